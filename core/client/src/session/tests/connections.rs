//! Login, attach, heartbeats, close.

use super::*;

#[test]
fn connects_logs_in_and_then_sends_what_waited() {
    let mut driver = Driver::new(|_| {});
    driver.submit(9, query());
    let effect = driver.effect();
    let connection = ConnectionId(1);
    assert_eq!(
        effect,
        Effect::Connect {
            connection,
            address: "a:1".into()
        }
    );

    driver.input(Input::Connected { connection });
    let login = driver.sent();
    let expected = Login {
        name: "ann".into(),
        password: Password("secret".into()),
    };
    assert_eq!(login.request, Request::Login(expected));
    assert_eq!((login.header.session, login.header.request), (0, 0));
    assert_eq!(login.header.client(), ClientId(5));

    driver.reply(&login, &logged_in(100));
    let first = driver.session.next_effect();
    let (session, user) = (SessionNumber(100), UserId(1));
    let frame_size_max = FRAME_SIZE_MAX;
    assert_eq!(
        first,
        Some(Effect::LoggedIn {
            session,
            user,
            frame_size_max
        })
    );
    let sent = driver.sent();
    assert_eq!(sent.request, Request::GetStream(query()));
    // The session's own op is what it has seen so far.
    assert_eq!((sent.header.session, sent.header.request), (100, 100));

    driver.reply(&sent, &stream());
    assert_eq!(driver.completed(), (9, Ok(stream())));
    assert_eq!(driver.session.requests(), 0);
}

#[test]
fn attach_waits_at_the_node_for_what_the_session_has_seen() {
    let mut driver = Driver::logged_in(|_| {});
    driver.lose(ConnectionId(1));
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let attach = driver.sent();
    assert_eq!((attach.header.session, attach.header.request), (100, 100));
}

#[test]
fn eviction_ends_the_session_but_a_late_one_does_not() {
    let mut driver = Driver::logged_in(|_| {});
    let event = Event::Evicted(EvictionReason::Expired);
    for (session, ends) in [(99, false), (100, true)] {
        let header = event.header(SessionNumber(session));
        driver.frame(ConnectionId(1), header, event.encode());
        let effects = driver.effects();
        assert_eq!(effects[0], Effect::Event(event.clone()));
        assert_eq!(driver.session.session().is_none(), ends);
        assert_eq!(
            effects
                .iter()
                .any(|effect| matches!(effect, Effect::SessionLost { .. })),
            ends
        );
    }
}

#[test]
fn a_refused_login_ends_everything_for_good() {
    let mut driver = Driver::new(|_| {});
    driver.submit(1, query());
    driver.effects();
    let connection = ConnectionId(1);
    driver.input(Input::Connected { connection });
    let login = driver.sent();
    driver.refuse(&login, ErrorCode::InvalidCredentials);
    let error = ClientError::LoginRefused(Failure::new(ErrorCode::InvalidCredentials, "no"));
    let ended = |ticket| Effect::Completed {
        ticket: Ticket(ticket),
        result: Err(error.clone()),
    };
    let expected = [
        Effect::Close { connection },
        ended(1),
        Effect::Failed(error.clone()),
    ];
    assert_eq!(driver.effects(), expected);
    assert_eq!(driver.session.deadline(), None);
    driver.submit(2, query());
    assert_eq!(driver.effect(), ended(2));
    assert!(!format!("{driver_debug:?}", driver_debug = driver.session).contains("secret\""));
}

#[test]
fn a_login_that_may_succeed_later_is_tried_again() {
    let mut driver = Driver::new(|_| {});
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let login = driver.sent();
    driver.refuse(&login, ErrorCode::LoginThrottled);
    let effects = driver.effects();
    assert!(
        matches!(&effects[1], Effect::Unreachable { reason, .. } if reason.contains("LoginThrottled"))
    );
    assert_eq!(driver.connecting(), ConnectionId(2));
}

#[test]
fn addresses_are_tried_in_turn_and_a_pause_comes_after_all_of_them() {
    let mut driver = Driver::new(|config| config.addresses = vec!["a:1".into(), "b:2".into()]);
    for round in 0..3 {
        driver.input(Input::Tick);
        for own in ["a:1", "b:2"] {
            let effect = driver.effect();
            let Effect::Connect {
                connection,
                address,
            } = effect
            else {
                panic!("{effect:?}")
            };
            assert_eq!(address, own);
            driver.lose(connection);
        }
        let unreachable = Effect::Unreachable {
            address: "b:2".into(),
            reason: "cut".into(),
        };
        assert_eq!(driver.effect(), unreachable);
        let waits = driver.session.deadline().unwrap() - driver.now;
        let longest = (50 << round) * MS;
        assert!(waits >= longest / 2 && waits <= longest, "{waits} ns");
        driver.now += longest;
    }
}

#[test]
fn a_connection_attempt_or_login_that_hangs_is_given_up() {
    let mut driver = Driver::new(|_| {});
    let connection = driver.connecting();
    driver.advance(5_000);
    assert_eq!(driver.effects()[0], Effect::Close { connection });
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    driver.sent();
    driver.advance(10_000);
    assert_eq!(driver.effects()[0], Effect::Close { connection });
    // What comes of the attempt later is nobody's business.
    driver.input(Input::Connected { connection });
    assert_eq!(driver.effects().len(), 0);
}

/// Lets a session that has none log in.
fn next_login(driver: &mut Driver) -> Seen {
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let login = driver.sent();
    assert!(matches!(login.request, Request::Login(_)));
    login
}

#[test]
fn a_login_that_may_be_executed_yet_is_followed_by_that_of_another_client() {
    let mut driver = Driver::new(|_| {});
    let mut clients = Vec::new();
    let lost = next_login(&mut driver);
    clients.push(lost.header.client());
    driver.lose(lost.connection);
    let unanswered = next_login(&mut driver);
    clients.push(unanswered.header.client());
    driver.advance(10_000);
    let unknown = next_login(&mut driver);
    clients.push(unknown.header.client());
    driver.refuse(&unknown, ErrorCode::OutcomeUnknown);
    let refused = next_login(&mut driver);
    clients.push(refused.header.client());
    let different: alloc::collections::BTreeSet<ClientId> = clients.iter().copied().collect();
    assert_eq!(different.len(), 4, "{clients:?}");
    // What was certainly not executed is asked again by the same one.
    driver.refuse(&refused, ErrorCode::NotReady);
    let last = next_login(&mut driver);
    assert_eq!(last.header.client(), clients[3]);
    driver.reply(&last, &logged_in(100));
    driver.effects();
    driver.lose(last.connection);
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    assert_eq!(driver.sent().header.client(), clients[3]);
}

#[test]
fn silence_is_broken_by_a_heartbeat_and_a_dead_connection_is_dropped() {
    let mut driver = Driver::logged_in(|_| {});
    driver.advance(2_999);
    assert_eq!(driver.effects(), []);
    driver.advance(1);
    let ping = driver.sent();
    assert_eq!(
        (ping.request.command(), ping.header.session),
        (Command::Ping, 100)
    );
    driver.reply(&ping, &Reply::Done);
    driver.advance(3_000);
    driver.sent();
    driver.advance(4_999);
    assert_eq!(driver.effects(), []);
    driver.advance(1);
    assert_eq!(
        driver.effect(),
        Effect::Close {
            connection: ConnectionId(1)
        }
    );
    driver.reattach();
}

#[test]
fn a_waiting_poll_does_not_keep_heartbeats_from_being_sent() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, query());
    driver.effects();
    for _ in 0..3 {
        driver.advance(3_000);
        let ping = driver.sent();
        assert_eq!(ping.request.command(), Command::Ping);
        driver.reply(&ping, &Reply::Done);
    }
    assert_eq!(driver.session.requests(), 1);
}

#[test]
fn heartbeats_are_as_frequent_as_the_servers_timeout_demands() {
    let mut driver = Driver::new(|_| {});
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let login = driver.sent();
    let Reply::LoggedIn(reply) = logged_in(100) else {
        unreachable!()
    };
    driver.reply(
        &login,
        &Reply::LoggedIn(LoggedIn {
            session_timeout_ms: 900,
            ..reply
        }),
    );
    driver.effects();
    driver.advance(300);
    assert_eq!(driver.sent().request.command(), Command::Ping);
}

#[test]
fn further_connections_attach_and_lanes_are_spread_over_them() {
    let mut driver = Driver::new(|config| config.connections = 2);
    driver.input(Input::Tick);
    // The second one waits for the session.
    assert!(matches!(driver.effect(), Effect::Connect { .. }));
    driver.input(Input::Connected {
        connection: ConnectionId(1),
    });
    let login = driver.sent();
    driver.reply(&login, &logged_in(100));
    driver.session.next_effect();
    driver.input(Input::Tick);
    let second = ConnectionId(2);
    assert!(matches!(driver.effect(), Effect::Connect { connection, .. } if connection == second));
    let connection_of_lane = |driver: &mut Driver, lane| {
        driver.submit_with(1, query(), |submission| submission.route.lane = lane);
        driver.sent().connection
    };
    assert_eq!(connection_of_lane(&mut driver, 1), ConnectionId(1));
    driver.input(Input::Connected { connection: second });
    let attach = driver.sent();
    assert_eq!(
        (attach.connection, attach.request.command()),
        (second, Command::Attach)
    );
    driver.reply(&attach, &Reply::Done);
    driver.effects();
    assert_eq!(connection_of_lane(&mut driver, 0), ConnectionId(1));
    assert_eq!(connection_of_lane(&mut driver, 1), second);

    // The loss of one leaves the other alone, which carries everything until there are two again.
    driver.lose(ConnectionId(1));
    driver.effects();
    for lane in 0..3 {
        assert_eq!(connection_of_lane(&mut driver, lane), second);
    }
}

#[test]
fn closing_logs_out_and_ends_what_is_left() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, query());
    driver.effects();
    driver.input(Input::Close(Close {
        timeout: Duration::from_secs(1),
    }));
    let first = driver.session.next_effect();
    assert!(matches!(
        first,
        Some(Effect::Completed {
            ticket: Ticket(1),
            result: Err(_)
        })
    ));
    let logout = driver.sent();
    assert_eq!(
        (logout.request.command(), logout.header.request),
        (Command::Logout, 1)
    );
    driver.submit(2, query());
    assert_eq!(driver.completed(), (2, Err(ClientError::Closed)));
    driver.reply(&logout, &Reply::Done);
    let connection = ConnectionId(1);
    assert_eq!(
        driver.effects(),
        [Effect::Close { connection }, Effect::Closed]
    );
    assert_eq!(driver.session.deadline(), None);
}

#[test]
fn closing_ends_in_time_without_an_answer() {
    for lose in [false, true] {
        let mut driver = Driver::logged_in(|_| {});
        driver.input(Input::Close(Close {
            timeout: Duration::from_secs(1),
        }));
        driver.sent();
        if lose {
            driver.lose(ConnectionId(1));
        } else {
            driver.advance(1_000);
        }
        assert_eq!(driver.effects().last(), Some(&Effect::Closed));
    }
    let mut driver = Driver::new(|_| {});
    driver.connecting();
    driver.input(Input::Close(Close {
        timeout: Duration::from_secs(1),
    }));
    let connection = ConnectionId(1);
    assert_eq!(
        driver.effects(),
        [Effect::Close { connection }, Effect::Closed]
    );
}

#[test]
fn detaching_ends_the_connections_and_logs_nobody_out() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, query());
    driver.effects();
    driver.input(Input::Detach);
    let connection = ConnectionId(1);
    let effects = driver.effects();
    assert!(
        matches!(
            effects.as_slice(),
            [
                Effect::Close { connection: closed },
                Effect::Completed {
                    ticket: Ticket(1),
                    result: Err(_)
                },
                Effect::Closed
            ] if *closed == connection
        ),
        "{effects:?}"
    );
    assert_eq!(driver.session.deadline(), None);
}

#[test]
fn a_user_that_changes_its_password_logs_in_with_the_new_one() {
    for (user, own) in [
        (Identifier::Number(1), true),
        (Identifier::Name("ann".into()), true),
        (Identifier::Number(2), false),
        (Identifier::Name("bob".into()), false),
    ] {
        let mut driver = Driver::logged_in(|_| {});
        let (current, new) = (Password("secret".into()), Password("changed".into()));
        driver.submit(1, ChangePassword { user, current, new });
        let change = driver.sent();
        driver.reply(&change, &Reply::Done);
        driver.effects();
        let event = Event::Evicted(EvictionReason::UserChanged);
        driver.frame(
            ConnectionId(1),
            event.header(SessionNumber(100)),
            event.encode(),
        );
        driver.effects();
        let connection = driver.connecting();
        driver.input(Input::Connected { connection });
        let password = Password(if own { "changed" } else { "secret" }.into());
        let login = Login {
            name: "ann".into(),
            password,
        };
        assert_eq!(driver.sent().request, Request::Login(login));
    }
}
