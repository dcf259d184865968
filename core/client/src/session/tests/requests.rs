//! Numbers, retries, time limits, lost sessions.

use super::*;

#[test]
fn metadata_commands_are_numbered_and_sent_one_by_one() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, create("a"));
    let first = driver.sent();
    assert_eq!(first.header.request, 1);
    driver.submit(2, create("b"));
    driver.submit(3, query());
    let other = driver.sent();
    assert_eq!(other.request.command(), Command::GetStream);

    driver.reply_at(&first, &stream(), Op(120));
    assert!(matches!(
        driver.session.next_effect(),
        Some(Effect::Completed {
            ticket: Ticket(1),
            ..
        })
    ));
    let second = driver.sent();
    assert_eq!(
        (second.header.request, second.request),
        (2, create("b").into())
    );
}

#[test]
fn later_reads_carry_the_highest_metadata_op_seen() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, create("a"));
    let create = driver.sent();
    driver.reply_at(&create, &stream(), Op(120));
    let _created = driver.completed();
    driver.submit(2, query());
    let read = driver.sent();
    assert_eq!(read.header.request, 120);
    // The op of a data group is on another scale.
    driver.submit(3, send(1));
    let data = driver.sent();
    assert_eq!(data.header.request, 120);
    driver.reply_at(
        &data,
        &Reply::Sent(wire::Sent { sections: vec![] }),
        Op(9_999),
    );
    assert_eq!(driver.session.seen(), Op(120));
    // An older answer does not take it back.
    driver.effects();
    driver.reply_at(&read, &stream(), Op(110));
    assert_eq!(driver.session.seen(), Op(120));
}

#[test]
fn a_lost_connection_is_attached_again_and_requests_are_repeated_in_order() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, create("a"));
    driver.submit(2, query());
    driver.submit(3, send(1));
    let before = driver.all_sent();
    driver.lose(before[0].connection);
    let connection = driver.reattach();
    let after = driver.all_sent();
    let commands = after
        .iter()
        .map(|seen| seen.request.command())
        .collect::<Vec<_>>();
    assert_eq!(
        commands,
        [
            Command::CreateStream,
            Command::GetStream,
            Command::SendMessages
        ]
    );
    assert_eq!(after[0].header.request, before[0].header.request);
    for (old, new) in before.iter().zip(&after) {
        assert_eq!((new.connection, &new.request), (connection, &old.request));
        assert!(new.header.correlation > old.header.correlation);
    }
    // An answer from the lost connection comes to nothing.
    driver.reply(&before[1], &stream());
    assert_eq!(driver.effects(), []);
    driver.reply(&after[1], &stream());
    assert_eq!(driver.completed().0, 2);
}

#[test]
fn a_lost_connection_ends_what_must_not_be_repeated() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit_with(1, send(1), |submission| submission.retry = Retry::Caller);
    driver.submit(2, send(0));
    driver.submit(3, send(1));
    driver.effects();
    driver.lose(ConnectionId(1));
    let effects = driver.effects();
    let command = Command::SendMessages;
    let lost = |ticket| Effect::Completed {
        ticket: Ticket(ticket),
        result: Err(ClientError::ConnectionLost {
            command,
            reason: "cut".into(),
        }),
    };
    assert_eq!(effects, [lost(1), lost(2)]);
    driver.reattach();
    assert_eq!(driver.sent().request, send(1).into());
}

#[test]
fn retryable_refusals_are_repeated_after_a_pause_under_the_same_number() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, create("a"));
    let mut seen = driver.sent();
    for attempt in 1..4 {
        driver.refuse(&seen, ErrorCode::Busy);
        assert_eq!(driver.effects(), []);
        let before = driver.now;
        driver.wait();
        let waited = (driver.now - before) / MS;
        let longest = 50 << (attempt - 1);
        assert!(waited >= longest / 2 && waited <= longest, "{waited} ms");
        seen = driver.sent();
        assert_eq!(seen.header.request, 1);
    }
    // Nobody else takes a number meanwhile.
    driver.refuse(&seen, ErrorCode::RequestInFlight);
    driver.submit(2, create("b"));
    assert_eq!(driver.effects(), []);
}

#[test]
fn what_passes_with_a_change_of_primaries_is_asked_again_soon_and_then_less_often() {
    for code in [ErrorCode::Retry, ErrorCode::NotReady, ErrorCode::NotPrimary] {
        let mut driver = Driver::logged_in(|_| {});
        driver.submit(1, query());
        for longest in [4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000] {
            let seen = driver.sent();
            driver.refuse(&seen, code);
            let before = driver.now;
            driver.wait();
            let waited = driver.now - before;
            assert!(
                waited >= longest * MS / 2 && waited <= longest * MS,
                "{waited} ns"
            );
        }
    }
}

#[test]
fn refusals_end_a_request_that_its_caller_repeats_or_that_cannot_succeed() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit_with(1, send(1), |submission| submission.retry = Retry::Caller);
    let seen = driver.sent();
    driver.refuse(&seen, ErrorCode::Busy);
    let (ticket, result) = driver.completed();
    let error = result.unwrap_err();
    assert_eq!((ticket, error.class()), (1, ErrorClass::Retryable));
    assert!(!error.may_have_happened());

    driver.submit(2, query());
    let seen = driver.sent();
    driver.refuse(&seen, ErrorCode::StreamNotFound);
    let error = driver.completed().1.unwrap_err();
    assert_eq!(error.refusal(), Some(ErrorCode::StreamNotFound));
    assert_eq!(error.class(), ErrorClass::Fatal);
}

#[test]
fn a_send_without_producer_is_repeated_only_if_it_was_certainly_not_executed() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, send(0));
    let seen = driver.sent();
    driver.refuse(&seen, ErrorCode::Busy);
    driver.wait();
    let seen = driver.sent();
    driver.refuse(&seen, ErrorCode::OutcomeUnknown);
    let error = driver.completed().1.unwrap_err();
    assert_eq!(error.refusal(), Some(ErrorCode::OutcomeUnknown));
    assert!(error.may_have_happened());
}

#[test]
fn time_limits_tell_what_is_known() {
    let mut driver = Driver::new(|_| {});
    driver.submit_with(1, query(), |submission| {
        submission.timeout = Duration::from_millis(300)
    });
    driver.effects();
    driver.input(Input::Disconnected {
        connection: ConnectionId(1),
        reason: "refused".into(),
    });
    driver.effects();
    driver.advance(300);
    let effects = driver.effects();
    let unreachable = ClientError::Unreachable {
        address: "a:1".into(),
        reason: "refused".into(),
    };
    let result = Err(unreachable);
    assert!(
        effects.contains(&Effect::Completed {
            ticket: Ticket(1),
            result
        }),
        "{effects:?}"
    );

    let mut driver = Driver::logged_in(|_| {});
    driver.submit_with(2, query(), |submission| {
        submission.timeout = Duration::from_millis(10)
    });
    let seen = driver.sent();
    driver.advance(9);
    assert_eq!(driver.effects(), []);
    driver.advance(1);
    let command = Command::GetStream;
    let late = ClientError::TimedOut {
        command,
        waited_ms: 10,
        sent: true,
    };
    assert_eq!(driver.completed(), (2, Err(late)));
    driver.reply(&seen, &stream());
    assert_eq!(driver.effects(), []);

    driver.submit_with(3, query(), |submission| {
        submission.timeout = Duration::from_millis(10)
    });
    let seen = driver.sent();
    driver.refuse(&seen, ErrorCode::Busy);
    driver.advance(10);
    assert_eq!(
        driver.completed().1.unwrap_err().refusal(),
        Some(ErrorCode::Busy)
    );
}

#[test]
fn a_lost_session_is_replaced_and_unknown_outcomes_are_told() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, create("a"));
    driver.submit(2, create("b"));
    driver.submit(3, query());
    driver.effects();
    driver.lose(ConnectionId(1));
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let attach = driver.sent();
    driver.refuse(&attach, ErrorCode::SessionNotFound);
    let effects = driver.effects();
    let command = Command::CreateStream;
    let ended = Err(ClientError::SessionLost { command });
    assert_eq!(effects[0], Effect::Close { connection });
    assert_eq!(
        effects[1],
        Effect::Completed {
            ticket: Ticket(1),
            result: ended
        }
    );
    let lost = SessionNumber(100);
    assert!(matches!(&effects[2], Effect::SessionLost { session, .. } if *session == lost));

    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let login = driver.sent();
    assert_eq!(
        (login.request.command(), login.header.session),
        (Command::Login, 0)
    );
    driver.reply(&login, &logged_in(200));
    driver.session.next_effect();
    let after = driver.all_sent();
    assert_eq!(after[0].request, create("b").into());
    assert_eq!((after[0].header.session, after[0].header.request), (200, 1));
    assert_eq!(
        (after[1].header.session, after[1].header.request),
        (200, 200)
    );
}

#[test]
fn a_command_refused_for_want_of_a_session_is_executed_under_the_next_one() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, create("a"));
    let seen = driver.sent();
    driver.refuse(&seen, ErrorCode::SessionNotFound);
    let effects = driver.effects();
    assert!(
        matches!(effects[1], Effect::SessionLost { .. }),
        "{effects:?}"
    );
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let login = driver.sent();
    driver.reply(&login, &logged_in(200));
    driver.session.next_effect();
    let again = driver.sent();
    assert_eq!(
        (again.request, again.header.request),
        (create("a").into(), 1)
    );
}

#[test]
fn windows_bound_what_is_unanswered_and_what_is_held() {
    let mut driver = Driver::logged_in(|config| {
        config.in_flight_max = 2;
        config.requests_max = 3;
    });
    for ticket in 1..=3 {
        driver.submit(ticket, query());
    }
    let sent = driver.all_sent();
    assert_eq!(sent.len(), 2);
    driver.submit(4, query());
    assert_eq!(
        driver.completed(),
        (4, Err(ClientError::QueueFull { limit: 3 }))
    );
    driver.reply(&sent[1], &stream());
    let effects = driver.effects();
    assert!(matches!(
        effects[0],
        Effect::Completed {
            ticket: Ticket(2),
            ..
        }
    ));
    assert!(matches!(effects[1], Effect::Send { .. }));
}

#[test]
fn what_the_session_sends_itself_and_what_is_too_large_is_refused() {
    let mut driver = Driver::logged_in(|config| config.frame_size_max = 128);
    driver.submit(1, Request::Logout);
    let command = Command::Logout;
    assert_eq!(
        driver.completed(),
        (1, Err(ClientError::Reserved { command }))
    );
    driver.submit(2, create(&"x".repeat(64)));
    let (command, size, limit) = (Command::CreateStream, 65, 64);
    assert_eq!(
        driver.completed(),
        (
            2,
            Err(ClientError::TooLarge {
                command,
                size,
                limit
            })
        )
    );
    driver.submit(3, create("fits"));
    assert_eq!(driver.sent().header.request, 2);
}

#[test]
fn nonsense_from_the_server_costs_the_connection_or_the_request() {
    let mut driver = Driver::logged_in(|_| {});
    driver.submit(1, query());
    let seen = driver.sent();
    let header = FrameHeader::reply(&seen.header, 0);
    driver.frame(seen.connection, header, Bytes::from_static(b"nonsense"));
    assert!(matches!(
        driver.completed().1,
        Err(ClientError::Unreadable { .. })
    ));

    driver.submit(2, query());
    let seen = driver.sent();
    let header = FrameHeader {
        code: Command::Ping.code(),
        ..FrameHeader::reply(&seen.header, 0)
    };
    driver.frame(seen.connection, header, Bytes::new());
    assert_eq!(
        driver.effect(),
        Effect::Close {
            connection: ConnectionId(1)
        }
    );
    driver.reattach();
    let seen = driver.sent();
    driver.frame(seen.connection, seen.header, Bytes::new());
    assert_eq!(
        driver.effects()[0],
        Effect::Close {
            connection: seen.connection
        }
    );
    driver.reattach();
    let seen = driver.sent();
    let about_connection = FrameHeader {
        correlation: 0,
        ..FrameHeader::reply(&seen.header, ErrorCode::ChecksumMismatch.code())
    };
    driver.frame(seen.connection, about_connection, Bytes::new());
    assert_eq!(
        driver.effects()[0],
        Effect::Close {
            connection: seen.connection
        }
    );
}
