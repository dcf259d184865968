//! At most once (V14).

use std::vec;

use bytes::Bytes;
use wire::{ClientId, Op, RequestNumber, SessionNumber};

use super::{
    CLIENT, EMPTY, Fixture, OTHER_CLIENT, apply, committed, heartbeat, point, prepare_message,
    refuse, session, written,
};
use crate::{CLIENT_REPLY_SIZE_MAX, Effect, Input, Message, Note, Origin, Prepare, Refusal, Token};

fn reply(token: u64, op: Op, body: &'static str) -> Effect {
    Effect::Reply {
        token: Token(token),
        op,
        body: Bytes::from_static(body.as_bytes()),
    }
}

#[test]
fn register_opens_the_session_that_its_op_numbers() {
    let mut alone = Fixture::alone();
    alone.prepare(1);
    let effects = alone.request(2, Origin::Register { client: CLIENT }, "who");
    let prepare = written(&effects);
    assert_eq!(prepare.header.client(), CLIENT);
    assert_eq!(prepare.header.session, 0);
    assert_eq!(prepare.header.request, 0);
    assert_eq!(prepare.header.op, 2);
}

/// V14: the client table changes at commit, not at admission.
#[test]
fn session_exists_once_its_register_is_applied() {
    let mut alone = Fixture::alone();
    let effects = alone.request(1, Origin::Register { client: CLIENT }, "");
    let prepare = written(&effects);
    alone.durable(&prepare);
    assert_eq!(alone.replica.client_sessions().session(CLIENT), None);
    alone.applied(1, "");
    let entry = alone.replica.client_sessions().session(CLIENT);
    let entry = entry.expect("the session exists");
    assert_eq!(entry.session, SessionNumber(1));
    assert_eq!(entry.request, RequestNumber(0));
}

#[test]
fn register_that_the_state_machine_refuses_opens_nothing() {
    let mut alone = Fixture::alone();
    let older = alone.register(CLIENT);
    let effects = alone.request(1, Origin::Register { client: CLIENT }, "");
    let prepare = written(&effects);
    alone.durable(&prepare);
    alone.handle(Input::Applied {
        op: Op(2),
        reply: Bytes::new(),
        ended: vec![],
        registered: false,
    });
    let entry = alone.replica.client_sessions().session(CLIENT);
    assert_eq!(entry.map(|it| it.session), Some(older));
}

#[test]
fn register_replaces_the_client_s_older_session() {
    let mut alone = Fixture::alone();
    let older = alone.register(CLIENT);
    alone.execute(1, session(CLIENT, older, 1), "one");
    let newer = alone.register(CLIENT);
    assert_ne!(older, newer);
    let effects = alone.request(2, session(CLIENT, older, 2), "");
    assert_eq!(effects, [refuse(2, Refusal::NoSession)]);
    // Request numbers start anew.
    written(&alone.request(3, session(CLIENT, newer, 1), ""));
}

#[test]
fn one_register_of_a_client_is_in_flight() {
    let mut alone = Fixture::alone();
    alone.request(1, Origin::Register { client: CLIENT }, "");
    let effects = alone.request(2, Origin::Register { client: CLIENT }, "");
    assert_eq!(effects, [refuse(2, Refusal::InFlight)]);
    written(&alone.request(
        3,
        Origin::Register {
            client: OTHER_CLIENT,
        },
        "",
    ));
}

#[test]
fn client_zero_is_nobody() {
    let mut alone = Fixture::alone();
    let client = ClientId(0);
    let effects = alone.request(1, Origin::Register { client }, "");
    assert_eq!(effects, [refuse(1, Refusal::NoSession)]);
}

#[test]
fn request_without_a_session_is_refused() {
    let mut alone = Fixture::alone();
    let effects = alone.request(1, session(CLIENT, SessionNumber(1), 1), "");
    assert_eq!(effects, [refuse(1, Refusal::NoSession)]);
    let number = alone.register(CLIENT);
    let effects = alone.request(2, session(CLIENT, SessionNumber(number.0 + 1), 1), "");
    assert_eq!(effects, [refuse(2, Refusal::NoSession)]);
    let effects = alone.request(3, session(CLIENT, SessionNumber(0), 1), "");
    assert_eq!(effects, [refuse(3, Refusal::NoSession)]);
}

/// V14, at admission: what was executed is answered and not executed again.
#[test]
fn repeated_request_gets_the_reply_of_its_execution() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    let op = alone.execute(1, session(CLIENT, number, 1), "created");
    let effects = alone.request(2, session(CLIENT, number, 1), "");
    assert_eq!(effects, [reply(2, op, "created")]);
    assert_eq!(alone.replica.op(), op);
}

/// V14: only the last reply is kept; an older request is told apart from a new one.
#[test]
fn older_request_is_stale() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    alone.execute(1, session(CLIENT, number, 1), "one");
    alone.execute(2, session(CLIENT, number, 5), "five");
    for request in [0, 1, 4] {
        let effects = alone.request(3, session(CLIENT, number, request), "");
        assert_eq!(effects, [refuse(3, Refusal::Stale)]);
    }
}

#[test]
fn request_zero_is_no_request() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    let effects = alone.request(1, session(CLIENT, number, 0), "");
    assert_eq!(effects, [refuse(1, Refusal::Stale)]);
}

/// V14: a session has one request in flight.
#[test]
fn second_request_of_a_session_is_refused_while_one_is_in_flight() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    let prepare = written(&alone.request(1, session(CLIENT, number, 1), ""));
    let effects = alone.request(2, session(CLIENT, number, 2), "");
    assert_eq!(effects, [refuse(2, Refusal::InFlight)]);
    alone.durable(&prepare);
    alone.applied(2, "one");
    written(&alone.request(3, session(CLIENT, number, 2), ""));
}

/// V14, at admission: a repeated request in flight is not prepared twice; the newer asker gets the reply.
#[test]
fn repeated_request_in_flight_takes_the_reply_over() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    let prepare = written(&alone.request(1, session(CLIENT, number, 1), ""));
    let effects = alone.request(2, session(CLIENT, number, 1), "");
    assert_eq!(effects, [refuse(1, Refusal::Superseded)]);
    let effects = alone.durable(&prepare);
    assert_eq!(effects, [committed(2), apply(prepare, Some(2))]);
}

#[test]
fn request_repeated_after_its_op_was_handed_out_is_answered_beside_the_first() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    let prepare = written(&alone.request(1, session(CLIENT, number, 1), ""));
    let effects = alone.durable(&prepare);
    assert_eq!(effects[1], apply(prepare, Some(1)));
    assert_eq!(alone.request(2, session(CLIENT, number, 1), ""), []);
    let effects = alone.request(3, session(CLIENT, number, 1), "");
    assert_eq!(effects, [refuse(2, Refusal::Superseded)]);
    assert_eq!(alone.applied(2, "done"), [reply(3, Op(2), "done")]);
}

#[test]
fn cached_replies_are_served_when_the_pipeline_is_full() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    let op = alone.execute(1, session(CLIENT, number, 1), "one");
    while alone.replica.room().prepares > 0 {
        alone.prepare(2);
    }
    let effects = alone.request(3, session(CLIENT, number, 1), "");
    assert_eq!(effects, [reply(3, op, "one")]);
    let effects = alone.request(4, session(CLIENT, number, 2), "");
    assert_eq!(effects, [refuse(4, Refusal::Busy)]);
}

#[test]
fn ops_of_clients_are_applied_one_at_a_time() {
    let mut alone = Fixture::alone();
    let first = alone.register(CLIENT);
    let second = alone.register(OTHER_CLIENT);
    let one = written(&alone.request(1, session(CLIENT, first, 1), ""));
    let two = written(&alone.request(2, session(OTHER_CLIENT, second, 1), ""));
    assert_eq!(alone.durable(&one), [committed(3), apply(one, Some(1))]);
    assert_eq!(alone.durable(&two), [committed(4)]);
    assert_eq!(alone.applied(3, ""), [apply(two, Some(2))]);
}

/// V14, again at apply: the session ended while the request was in flight.
#[test]
fn request_whose_session_ended_before_it_is_not_executed() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    let expiry = alone.prepare(1);
    let late = written(&alone.request(2, session(CLIENT, number, 1), ""));
    alone.durable(&expiry);
    alone.durable(&late);
    let effects = alone.applied_with(2, "", vec![CLIENT]);
    assert_eq!(
        effects,
        [
            Effect::Note(Note::Skipped { op: Op(3) }),
            refuse(2, Refusal::NoSession),
        ]
    );
    assert_eq!(alone.replica.commit_min(), Op(3));
    // The next op follows as if nothing was.
    let next = alone.prepare(4);
    assert_eq!(alone.durable(&next), [committed(4), apply(next, Some(4))]);
}

/// V14, again at apply: the journal holds the same request twice. Admission lets no primary do that; a
/// replica that trusted the journal would execute it twice.
#[test]
fn request_that_the_journal_holds_twice_is_executed_once() {
    let mut backup = Fixture::started(1, 3);
    let mut head = EMPTY;
    let mut next = |client: ClientId, session: u64, request: u64| {
        let mut prepare = super::prepare_at(head, super::START + head.op.0, "body");
        prepare.header.client = client.0;
        prepare.header.session = session;
        prepare.header.request = request;
        prepare.header = prepare.header.sealed(&prepare.body);
        head = point(&prepare);
        prepare
    };
    let prepares: [Prepare; 4] = [
        next(CLIENT, 0, 0),
        next(CLIENT, 1, 1),
        next(CLIENT, 1, 1),
        next(CLIENT, 1, 2),
    ];
    for prepare in &prepares {
        backup.message(prepare_message(prepare, EMPTY));
    }
    backup.message(Message::Commit(heartbeat(4, point(&prepares[3]))));
    assert_eq!(backup.applied(1, ""), [apply(prepares[1].clone(), None)]);
    assert_eq!(
        backup.applied(2, "one"),
        [
            Effect::Note(Note::Skipped { op: Op(3) }),
            apply(prepares[3].clone(), None),
        ]
    );
    backup.applied(4, "two");
    assert_eq!(backup.replica.commit_min(), Op(4));
}

#[test]
fn reply_that_is_too_large_is_not_kept_and_that_is_said() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    for (request, size) in [(1, CLIENT_REPLY_SIZE_MAX), (2, CLIENT_REPLY_SIZE_MAX + 1)] {
        let prepare = written(&alone.request(1, session(CLIENT, number, request), ""));
        alone.durable(&prepare);
        let op = prepare.header.op();
        let body = Bytes::from(vec![1; size]);
        alone.handle(Input::Applied {
            op,
            reply: body.clone(),
            ended: vec![],
            registered: false,
        });
        let token = Token(2);
        let expected = if size <= CLIENT_REPLY_SIZE_MAX {
            Effect::Reply { token, op, body }
        } else {
            refuse(2, Refusal::ReplyNotKept { op })
        };
        let effects = alone.request(2, session(CLIENT, number, request), "");
        assert_eq!(effects, [expected]);
    }
}

/// V14: the table is bounded; whoever was idle for longest goes, by replicated facts alone, and is told.
#[test]
fn full_table_evicts_the_session_that_was_idle_for_longest() {
    let mut alone = Fixture::alone();
    let clients = [ClientId(1), ClientId(2), ClientId(3), ClientId(4)];
    let sessions = [0, 1, 2].map(|index| alone.register(clients[index]));
    alone.execute(1, session(clients[0], sessions[0], 1), "");

    let client = clients[3];
    let prepare = written(&alone.request(2, Origin::Register { client }, ""));
    alone.durable(&prepare);
    let effects = alone.applied(prepare.header.op, "");
    assert_eq!(
        effects,
        [Effect::Evict {
            client: clients[1],
            session: sessions[1],
        }]
    );
    let effects = alone.request(3, session(clients[1], sessions[1], 1), "");
    assert_eq!(effects, [refuse(3, Refusal::NoSession)]);
    assert_eq!(alone.replica.client_sessions().len(), 3);
}

#[test]
fn client_that_registers_again_evicts_nobody() {
    let mut alone = Fixture::alone();
    for client in 1..=3 {
        alone.register(ClientId(client));
    }
    let client = ClientId(2);
    let prepare = written(&alone.request(2, Origin::Register { client }, ""));
    alone.durable(&prepare);
    assert_eq!(alone.applied(4, ""), []);
    assert_eq!(alone.replica.client_sessions().len(), 3);
}

#[test]
fn session_that_an_op_ended_is_gone() {
    let mut alone = Fixture::alone();
    let number = alone.register(CLIENT);
    let prepare = written(&alone.request(1, session(CLIENT, number, 1), "logout"));
    alone.durable(&prepare);
    alone.applied_with(2, "bye", vec![CLIENT]);
    let effects = alone.request(2, session(CLIENT, number, 1), "logout");
    assert_eq!(effects, [refuse(2, Refusal::NoSession)]);
    assert!(alone.replica.client_sessions().is_empty());
}

/// V14: the table of a backup is that of the primary.
#[test]
fn backup_keeps_the_same_table() {
    let mut alone = Fixture::alone();
    let mut backup = Fixture::started(2, 3);
    let register = written(&alone.request(1, Origin::Register { client: CLIENT }, ""));
    alone.durable(&register);
    alone.applied(1, "");
    let number = SessionNumber(1);
    let request = written(&alone.request(2, session(CLIENT, number, 1), ""));
    alone.durable(&request);
    alone.applied(2, "one");

    for prepare in [&register, &request] {
        backup.message(prepare_message(prepare, EMPTY));
    }
    backup.message(Message::Commit(heartbeat(2, point(&request))));
    backup.applied(1, "");
    backup.applied(2, "one");
    assert_eq!(
        backup.replica.client_sessions(),
        alone.replica.client_sessions()
    );
}
