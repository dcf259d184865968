//! Several nodes: what is learned, where requests go, what becomes of them when nodes are lost.

use super::*;

const NODES: [&str; 3] = ["a:1", "b:1", "c:1"];

/// A session that was given one address and has learned the others, with connections to two nodes.
fn in_cluster(change: impl FnOnce(&mut SessionConfig)) -> Driver {
    let mut driver = Driver::new(change);
    for (node, address) in (0..).zip(NODES) {
        driver
            .told
            .insert(address.to_string(), cluster(node, &NODES));
    }
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let login = driver.sent();
    driver.reply(&login, &logged_in(100));
    let effects = driver.effects();
    assert!(matches!(effects[0], Effect::LoggedIn { .. }));
    // It asks for a second node as soon as it knows of one.
    driver.input(Input::Tick);
    let connects = [&effects[1..], &driver.effects()].concat();
    let (connection, address) = only_connect(&connects);
    assert_eq!(address, "b:1");
    driver.attached(connection);
    driver
}

fn only_connect(effects: &[Effect]) -> (ConnectionId, String) {
    let mut connects = Vec::new();
    for effect in effects {
        if let Effect::Connect {
            connection,
            address,
        } = effect
        {
            connects.push((*connection, address.clone()));
        }
    }
    assert_eq!(connects.len(), 1, "{effects:?}");
    connects[0].clone()
}

impl Driver {
    /// A connection attempt succeeds, and the node knows the session.
    fn attached(&mut self, connection: ConnectionId) {
        self.input(Input::Connected { connection });
        let attach = self.sent();
        assert_eq!(attach.request, Request::Attach(Attach { secret: SECRET }));
        self.reply(&attach, &Reply::Done);
    }

    fn address(&self, seen: &Seen) -> &str {
        &self.addresses[&seen.connection]
    }

    /// Submits a request of a route that keeps its order.
    fn submit_ordered(&mut self, ticket: u64, node: Option<u8>) {
        self.submit_with(ticket, send(1), |submission| {
            submission.route = Route {
                lane: 0,
                node: node.map(ReplicaId),
                ordered: true,
            };
        });
    }

    fn primary_changed(&mut self, connection: ConnectionId, (view, primary): (u32, u8)) {
        let event = Event::PrimaryChanged(PrimaryChanged {
            group: ConsensusGroup::METADATA,
            view: View(view),
            primary: ReplicaId(primary),
        });
        self.frame(connection, event.header(SessionNumber(100)), event.encode());
    }
}

#[test]
fn the_other_nodes_are_learned_and_two_are_connected() {
    let mut driver = in_cluster(|_| {});
    // Nothing more is opened for nothing.
    driver.input(Input::Tick);
    assert_eq!(driver.effects(), []);
}

#[test]
fn a_node_that_is_alone_is_one_connection_at_the_address_given() {
    let mut driver = Driver::new(|_| {});
    driver
        .told
        .insert("a:1".to_string(), cluster(0, &["elsewhere:9"]));
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let login = driver.sent();
    driver.reply(&login, &logged_in(100));
    driver.effects();
    driver.lose(connection);
    assert_eq!(driver.effects(), []);
    driver.wait();
    let (_, address) = only_connect(&driver.effects());
    assert_eq!(address, "a:1");
}

#[test]
fn a_lost_node_is_replaced_by_the_next_one_without_a_pause() {
    let mut driver = in_cluster(|_| {});
    driver.submit(1, query());
    let seen = driver.sent();
    assert_eq!(driver.address(&seen), "a:1");
    driver.lose(seen.connection);
    let effects = driver.effects();
    let (third, address) = only_connect(&effects);
    assert_eq!(address, "c:1");
    // The request is at the other node already.
    let again = driver_sent(&effects);
    assert_eq!(driver.addresses[&again.connection], "b:1");
    assert_eq!(again.request, seen.request);
    driver.attached(third);
    driver.reply(&again, &stream());
    assert_eq!(driver.completed(), (1, Ok(stream())));
}

/// The requests among effects, in order.
fn sends(effects: &[Effect]) -> Vec<Seen> {
    let mut sends = Vec::new();
    for effect in effects {
        if let Effect::Send { connection, frame } = effect {
            sends.push(Seen::of(*connection, frame));
        }
    }
    sends
}

fn driver_sent(effects: &[Effect]) -> Seen {
    let mut sent = sends(effects);
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent.remove(0)
}

#[test]
fn all_nodes_are_tried_before_there_is_a_pause() {
    let mut driver = in_cluster(|_| {});
    let start = driver.now;
    driver.lose(ConnectionId(1));
    let (third, _) = only_connect(&driver.effects());
    driver.lose(ConnectionId(2));
    assert_eq!(driver.effects(), []);
    driver.lose(third);
    assert_eq!(driver.effects(), []);
    driver.wait();
    assert!(driver.now >= start + 25 * MS);
    assert_eq!(driver.session.session(), Some(SessionNumber(100)));
}

#[test]
fn a_list_of_nodes_that_changes_replaces_what_was_learned() {
    let mut driver = in_cluster(|_| {});
    let moved = ["a:1", "b:1", "d:1"];
    driver.told.insert("c:1".to_string(), cluster(2, &moved));
    driver.lose(ConnectionId(2));
    let (third, address) = only_connect(&driver.effects());
    assert_eq!(address, "c:1");
    driver.attached(third);
    driver.effects();
    driver.lose(third);
    let (_, address) = only_connect(&driver.effects());
    assert_eq!(address, "d:1");
}

#[test]
fn a_node_that_is_behind_does_not_cost_the_session() {
    for code in [ErrorCode::Retry, ErrorCode::OutOfService] {
        let mut driver = in_cluster(|_| {});
        driver.lose(ConnectionId(2));
        let (third, _) = only_connect(&driver.effects());
        driver.input(Input::Connected { connection: third });
        let attach = driver.sent();
        driver.refuse(&attach, code);
        assert_eq!(driver.effect(), Effect::Close { connection: third });
        assert_eq!(driver.session.session(), Some(SessionNumber(100)));
        driver.wait();
        only_connect(&driver.effects());
    }
}

#[test]
fn a_node_that_is_out_of_service_costs_no_login_while_there_are_others() {
    for addresses in [&["a:1"][..], &["a:1", "b:1"]] {
        let mut driver = Driver::new(|config| {
            config.addresses = addresses.iter().map(|it| (*it).to_string()).collect();
        });
        let connection = driver.connecting();
        driver.input(Input::Connected { connection });
        let login = driver.sent();
        driver.refuse(&login, ErrorCode::OutOfService);
        let effects = driver.effects();
        let has_failed = |effect: &Effect| matches!(effect, Effect::Failed(_));
        assert_eq!(effects.iter().any(has_failed), addresses.len() == 1);
        if addresses.len() > 1 {
            let (_, address) = only_connect(&effects[1..]);
            assert_eq!(address, "b:1");
        }
    }
}

#[test]
fn a_route_goes_to_the_node_that_leads_over_a_connection_of_its_own() {
    let mut driver = in_cluster(|_| {});
    driver.submit_ordered(1, Some(2));
    // It waits for the connection that is being opened.
    let (third, address) = only_connect(&driver.effects());
    assert_eq!(address, "c:1");
    driver.attached(third);
    let sent = driver.sent();
    assert_eq!(sent.connection, third);
    // Once it is there it is used at once.
    driver.submit_ordered(2, Some(2));
    assert_eq!(driver.sent().connection, third);
}

#[test]
fn a_node_that_cannot_be_reached_is_asked_through_another_one() {
    let mut driver = in_cluster(|_| {});
    driver.submit_ordered(1, Some(2));
    let (third, _) = only_connect(&driver.effects());
    // It hangs: the request waits for a while, and no longer.
    driver.advance(99);
    assert_eq!(driver.effects(), []);
    driver.wait();
    assert_eq!(driver.now, 100 * MS);
    let sent = driver.sent();
    assert_ne!(sent.connection, third);
    // It fails: nothing waits for it.
    let mut driver = in_cluster(|_| {});
    driver.submit_ordered(1, Some(2));
    let (third, _) = only_connect(&driver.effects());
    driver.lose(third);
    assert_ne!(driver.sent().connection, third);
    driver.submit_ordered(2, Some(2));
    driver.sent();
    // A node that nobody knows is nobody's.
    driver.submit_ordered(3, Some(7));
    driver.sent();
}

#[test]
fn a_route_keeps_its_order_until_all_is_answered_and_then_moves() {
    let mut driver = in_cluster(|_| {});
    driver.submit_ordered(1, Some(2));
    let (third, _) = only_connect(&driver.effects());
    driver.advance(100);
    let first = driver.sent();
    driver.submit_ordered(2, Some(2));
    let second = driver.sent();
    assert_eq!(second.connection, first.connection);
    // The better connection is there: nothing overtakes what is unanswered elsewhere.
    driver.attached(third);
    driver.submit_ordered(3, Some(2));
    assert_eq!(driver.effects(), []);
    let sent = Reply::Sent(wire::Sent { sections: vec![] });
    driver.reply(&first, &sent);
    assert_eq!(driver.completed(), (1, Ok(sent.clone())));
    driver.reply(&second, &sent);
    let effects = driver.effects();
    assert!(matches!(effects[0], Effect::Completed { .. }));
    assert_eq!(driver_sent(&effects[1..]).connection, third);
}

#[test]
fn what_is_unanswered_of_a_route_moves_together_and_in_order() {
    let mut driver = in_cluster(|config| config.in_flight_max = 3);
    for ticket in 1..=5 {
        driver.submit_ordered(ticket, Some(0));
    }
    let before = driver.all_sent();
    assert_eq!(before.len(), 3);
    // The other connection could take them, but not in order.
    driver.submit_with(6, query(), |submission| submission.route.lane = 1);
    let other = driver.sent();
    assert_ne!(other.connection, before[0].connection);
    driver.lose(before[0].connection);
    let effects = driver.effects();
    let sent = sends(&effects);
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|seen| seen.connection == other.connection));
    let answer = Reply::Sent(wire::Sent { sections: vec![] });
    let mut tickets = Vec::new();
    let mut unanswered = VecDeque::from(sent);
    while let Some(seen) = unanswered.pop_front() {
        driver.reply(&seen, &answer);
        let effects = driver.effects();
        for effect in &effects {
            if let Effect::Completed { ticket, .. } = effect {
                tickets.push(ticket.0);
            }
        }
        unanswered.extend(sends(&effects));
    }
    assert_eq!(tickets, [1, 2, 3, 4, 5]);
}

#[test]
fn metadata_commands_go_to_their_primary_and_keep_their_number_when_it_is_lost() {
    let mut driver = in_cluster(|_| {});
    driver.submit(1, create("x"));
    driver.submit(2, create("y"));
    let first = driver.sent();
    assert_eq!((driver.address(&first), first.header.request), ("a:1", 1));
    driver.lose(first.connection);
    let again = driver_sent(&driver.effects());
    assert_eq!((driver.address(&again), again.header.request), ("b:1", 1));
    assert_eq!(again.request, first.request);
    // The answer names who leads now.
    let header = FrameHeader::reply(&again.header, 0).with_primary(Op(120), ReplicaId(2), View(2));
    driver.frame(again.connection, header, stream().to_bytes());
    let effects = driver.effects();
    assert!(matches!(effects[0], Effect::Completed { .. }));
    let third = driver
        .addresses
        .iter()
        .find(|(_, address)| *address == "c:1")
        .map(|(connection, _)| *connection)
        .expect("it is being opened");
    driver.attached(third);
    let second = driver.sent();
    assert_eq!((second.connection, second.header.request), (third, 2));
}

#[test]
fn a_refused_request_is_woken_by_another_primary() {
    let mut driver = in_cluster(|_| {});
    driver.submit(1, query());
    let mut seen = driver.sent();
    for _ in 0..6 {
        driver.refuse(&seen, ErrorCode::NotReady);
        driver.wait();
        seen = driver.sent();
    }
    driver.refuse(&seen, ErrorCode::NotReady);
    assert_eq!(driver.effects(), []);
    let before = driver.now;
    driver.primary_changed(ConnectionId(2), (1, 1));
    let woken = driver_sent(&driver.effects()[1..]);
    assert_eq!((woken.request, driver.now), (seen.request, before));
}

#[test]
fn views_never_go_back() {
    let mut driver = in_cluster(|_| {});
    driver.primary_changed(ConnectionId(2), (4, 1));
    driver.primary_changed(ConnectionId(1), (3, 0));
    driver.effects();
    driver.submit(1, create("x"));
    let seen = driver.sent();
    assert_eq!(driver.address(&seen), "b:1");
}

#[test]
fn a_node_that_was_replaced_without_a_word_has_to_give_a_sign_of_life() {
    for answers in [true, false] {
        let mut driver = in_cluster(|_| {});
        driver.submit_ordered(1, Some(0));
        let stuck = driver.sent();
        driver.advance(10);
        driver.primary_changed(ConnectionId(2), (1, 1));
        let ping = driver_sent(&driver.effects()[1..]);
        assert_eq!(ping.request, Request::Ping);
        assert_eq!(ping.connection, stuck.connection);
        // Nothing new goes there meanwhile.
        driver.submit_ordered(2, None);
        driver.submit(3, query());
        assert!(
            driver
                .all_sent()
                .iter()
                .all(|seen| seen.connection == ConnectionId(2))
        );
        if answers {
            driver.reply(&ping, &Reply::Done);
            driver.advance(200);
            assert_eq!(driver.effects(), []);
        } else {
            driver.advance(99);
            assert_eq!(driver.effects(), []);
            driver.advance(1);
            let effects = driver.effects();
            let connection = stuck.connection;
            assert_eq!(effects[0], Effect::Close { connection });
            let again = sends(&effects).remove(0);
            assert_eq!(
                (again.connection, again.request),
                (ConnectionId(2), stuck.request)
            );
        }
    }
}

/// It answers, but only that nobody leads: it does not hear from the others.
#[test]
fn a_node_that_does_not_know_that_it_leads_no_more_is_passed_over() {
    let mut driver = in_cluster(|_| {});
    driver.submit_ordered(1, Some(0));
    let first = driver.sent();
    assert_eq!(first.connection, ConnectionId(1));
    driver.primary_changed(ConnectionId(2), (1, 1));
    driver.effects();
    driver.refuse(&first, ErrorCode::NotReady);
    driver.effects();
    driver.submit_ordered(2, Some(0));
    let elsewhere = driver.sent();
    assert_eq!(elsewhere.connection, ConnectionId(2));
    driver.reply(&elsewhere, &Reply::Sent(wire::Sent { sections: vec![] }));
    // It hears from them again.
    driver.primary_changed(ConnectionId(1), (1, 1));
    driver.effects();
    driver.submit_ordered(3, Some(0));
    assert_eq!(driver.sent().connection, ConnectionId(1));
}

/// The connection that would have told of the change was made after it.
#[test]
fn a_node_is_passed_over_when_another_one_tells_of_a_later_view_at_the_greeting() {
    let mut driver = in_cluster(|_| {});
    driver.lose(ConnectionId(2));
    let (third, address) = only_connect(&driver.effects());
    assert_eq!(address, "c:1");
    let mut told = cluster(2, &NODES);
    told.groups[0].view = View(1);
    told.groups[0].primary = ReplicaId(1);
    driver.told.insert("c:1".to_string(), told);
    driver.attached(third);
    driver.effects();
    driver.submit_ordered(1, Some(0));
    assert_eq!(driver.sent().connection, third);
}

#[test]
fn nothing_new_is_asked_of_a_node_that_stops() {
    let mut driver = in_cluster(|_| {});
    let event = Event::ServerStopping(wire::ServerStopping { time_left_ms: 100 });
    driver.frame(
        ConnectionId(1),
        event.header(SessionNumber(100)),
        event.encode(),
    );
    driver.effects();
    driver.submit_ordered(1, Some(0));
    driver.submit(2, create("x"));
    assert!(
        driver
            .all_sent()
            .iter()
            .all(|seen| seen.connection == ConnectionId(2))
    );
}

#[test]
fn two_addresses_of_one_node_do_not_count_as_two_nodes() {
    let mut driver = Driver::new(|config| config.addresses = vec!["a:1".into(), "alias:1".into()]);
    for (node, address) in [(0, "a:1"), (0, "alias:1"), (1, "b:1"), (2, "c:1")] {
        driver
            .told
            .insert(address.to_string(), cluster(node, &NODES));
    }
    let connection = driver.connecting();
    driver.input(Input::Connected { connection });
    let login = driver.sent();
    driver.reply(&login, &logged_in(100));
    driver.effects();
    driver.input(Input::Tick);
    let alias = ConnectionId(2);
    assert_eq!(driver.addresses[&alias], "alias:1");
    driver.attached(alias);
    let effects = driver.effects();
    assert_eq!(effects[0], Effect::Close { connection: alias });
    driver.input(Input::Tick);
    let effects = [effects, driver.effects()].concat();
    assert_eq!(only_connect(&effects).1, "b:1");
}

#[test]
fn a_node_that_does_not_tell_of_the_cluster_yet_is_asked_again_with_a_heartbeat() {
    for (code, asks) in [
        (ErrorCode::Busy, true),
        (ErrorCode::CommandNotSupported, false),
    ] {
        let mut driver = Driver::new(|_| {});
        driver.answers_questions = false;
        let connection = driver.connecting();
        driver.input(Input::Connected { connection });
        let login = driver.sent();
        driver.reply(&login, &logged_in(100));
        let question = driver_sent(&driver.effects()[1..]);
        assert_eq!(question.request, Request::GetClusterMetadata);
        driver.refuse(&question, code);
        driver.wait();
        let asked: Vec<Command> = driver
            .all_sent()
            .iter()
            .map(|seen| seen.request.command())
            .collect();
        let expected = [Command::Ping, Command::GetClusterMetadata];
        assert_eq!(asked, expected[..1 + usize::from(asks)]);
    }
}

#[test]
fn a_node_that_takes_the_connection_and_hangs_does_not_keep_the_others_from_a_login() {
    let mut driver = Driver::new(|config| {
        config.addresses = NODES.map(String::from).to_vec();
    });
    let mut tried = Vec::new();
    let began = driver.now;
    for _ in 0..2 {
        let connection = driver.connecting();
        tried.push(driver.addresses[&connection].clone());
        driver.input(Input::Connected { connection });
        let _unanswered = driver.sent();
        driver.advance(1_000);
    }
    assert_ne!(tried[0], tried[1]);
    assert!(driver.now - began < 3_000 * MS, "the login has 10 s");
}
