//! §4.1, normal operation, with three replicas in view 0.

use vsr::{
    ChainPoint, Commit, Effect, Ignore, Input, Message, Note, Origin, PrepareMessage, PrepareOk,
    Refusal, Token,
};
use wire::{ClientId, Op, ReplicaId, RequestNumber, SessionNumber, View};

use crate::network::{Network, Outcome};

const CLIENT: ClientId = ClientId(77);

const fn request(session: SessionNumber, number: u64) -> Origin {
    Origin::Session {
        client: CLIENT,
        session,
        request: RequestNumber(number),
    }
}

/// Three replicas and a session; the next op is 2.
fn with_session() -> (Network, SessionNumber) {
    let mut network = Network::new(3);
    network.request(0, 1, Origin::Register { client: CLIENT });
    network.settle();
    assert_eq!(network.outcomes[&Token(1)], Outcome::Reply(Op(1)));
    (network, SessionNumber(1))
}

fn prepares(network: &Network) -> Vec<(u8, PrepareMessage)> {
    let mut found = Vec::new();
    for (to, message) in &network.messages {
        if let Message::Prepare(prepare) = message {
            found.push((to.0, prepare.clone()));
        }
    }
    found
}

fn acknowledgements(network: &Network) -> Vec<PrepareOk> {
    let mut found = Vec::new();
    for (to, message) in &network.messages {
        if let Message::PrepareOk(ok) = message {
            assert_eq!(*to, ReplicaId(0), "acknowledgements go to the primary");
            found.push(*ok);
        }
    }
    found
}

fn point(network: &Network, op: u64) -> ChainPoint {
    ChainPoint {
        op: Op(op),
        checksum: network.history[&Op(op)].header.checksum,
    }
}

/// Requests are processed in normal status only. (Before its superblock is durable a replica is not.)
#[test]
fn requests_are_processed_in_normal_status_only() {
    let config = vsr::Config {
        cluster: wire::ClusterId(1),
        group: wire::ConsensusGroup::METADATA,
        replica: ReplicaId(0),
        replica_count: 3,
        clients_max: 8,
    };
    let mut replica = vsr::Replica::new(config, vsr::Recovered::default());
    assert_eq!(replica.status(), vsr::Status::Recovering);
    while replica.next_effect().is_some() {}
    let request = vsr::Request {
        token: Token(1),
        origin: Origin::Internal,
        operation: 1,
        body: bytes::Bytes::new(),
    };
    replica.handle(wire::Time::default(), Input::Request(request));
    let refused = Effect::Refuse {
        token: Token(1),
        reason: Refusal::NotReady,
    };
    assert_eq!(replica.next_effect(), Some(refused));
    assert_eq!(replica.next_effect(), None);
}

/// Messages between replicas name the sender's view, and are processed in that view only: those of a
/// sender that is behind are dropped.
#[test]
fn messages_name_their_view_and_count_in_it_only() {
    let (mut network, session) = with_session();
    network.request(0, 2, request(session, 1));
    assert!(!network.messages.is_empty());
    for (_, message) in &network.messages {
        assert_eq!(message.view(), View(0));
    }
    let commit = Commit {
        replica: ReplicaId(0),
        view: View(1),
        op: Op(1),
        commit: point(&network, 1),
        checkpoint_quorum: Op(0),
    };
    network.handle(2, Input::Message(Message::Commit(commit)));
    let ignored = (ReplicaId(2), Note::Ignored(Ignore::NewerView));
    assert_eq!(network.notes.last(), Some(&ignored));
}

/// Step 1 and 2: the client sends its request, under its id and a number; one that is not above the
/// table's is dropped, but the last one executed is answered again.
#[test]
fn step_2_repeated_requests_are_answered_and_older_ones_dropped() {
    let (mut network, session) = with_session();
    network.request(0, 2, request(session, 1));
    network.settle();
    network.request(0, 3, request(session, 2));
    network.settle();
    let (first, second) = (Outcome::Reply(Op(2)), Outcome::Reply(Op(3)));
    assert_eq!(network.outcomes[&Token(2)], first);
    assert_eq!(network.outcomes[&Token(3)], second);

    network.request(0, 4, request(session, 2));
    assert_eq!(network.outcomes[&Token(4)], second);
    network.request(0, 5, request(session, 1));
    assert_eq!(
        network.outcomes[&Token(5)],
        Outcome::Refused(Refusal::Stale)
    );
    assert_eq!(network.node(0).replica.op(), Op(3));
    assert_eq!(network.messages, []);
}

/// Step 3: the primary gives the request the next op number, adds it to its journal, and sends a prepare
/// with view, request, op number and commit number to the others.
#[test]
fn step_3_primary_sends_prepares_to_the_others() {
    let (mut network, session) = with_session();
    network.request(0, 2, request(session, 1));
    assert_eq!(network.node(0).replica.op(), Op(2));
    let prepare = network.history[&Op(2)].clone();
    assert_eq!(prepare.header.client(), CLIENT);
    assert_eq!(prepare.header.session(), session);
    assert_eq!(prepare.header.request(), RequestNumber(1));
    let message = PrepareMessage {
        replica: ReplicaId(0),
        view: View(0),
        commit: point(&network, 1),
        prepare,
    };
    assert_eq!(prepares(&network), [(1, message.clone()), (2, message)]);
}

/// Step 3: what is in flight counts as the client's latest request. (The paper notes it in the client
/// table; here the table changes at commit, and the pipeline knows.)
#[test]
fn step_3_request_in_flight_is_not_prepared_again() {
    let (mut network, session) = with_session();
    network.request(0, 2, request(session, 1));
    network.request(0, 3, request(session, 1));
    assert_eq!(network.node(0).replica.op(), Op(2));
    network.settle();
    let superseded = Outcome::Refused(Refusal::Superseded);
    assert_eq!(network.outcomes[&Token(2)], superseded);
    assert_eq!(network.outcomes[&Token(3)], Outcome::Reply(Op(2)));
}

/// Step 4: a backup takes prepares in order only, and fetches those that it misses.
#[test]
fn step_4_backup_waits_for_all_earlier_prepares() {
    let (mut network, _) = with_session();
    network.request(0, 2, Origin::Internal);
    network.lose_to(1);
    network.request(0, 3, Origin::Internal);
    network.deliver_to(1);
    assert_eq!(network.node(1).replica.op(), Op(1));
    network.finish_writes(1);
    assert_eq!(acknowledgements(&network), []);

    network.deliver_to(0);
    network.deliver_to(1);
    assert_eq!(network.node(1).replica.op(), Op(3));
}

/// Step 4: then it acknowledges, for this op and all earlier ones. The paper acknowledges from memory and
/// writes nothing to disk; here an acknowledgement is a promise that survives the loss of all memories at
/// once, so it waits for the disk (V7).
#[test]
fn step_4_backup_acknowledges_what_is_durable() {
    let (mut network, _) = with_session();
    network.request(0, 2, Origin::Internal);
    network.request(0, 3, Origin::Internal);
    network.deliver_to(2);
    assert_eq!(network.node(2).replica.op(), Op(3));
    assert_eq!(acknowledgements(&network), []);
    network.finish_writes(2);
    let acknowledged: Vec<(u8, Op, View)> = acknowledgements(&network)
        .iter()
        .map(|ok| (ok.replica.0, ok.op, ok.view))
        .collect();
    assert_eq!(acknowledged, [(2, Op(2), View(0)), (2, Op(3), View(0))]);
}

/// Step 5: with f acknowledgements of different backups the op and all earlier ones are committed. (The
/// primary counts itself when it has the op durably: a quorum of disks, not of memories.)
#[test]
fn step_5_primary_commits_with_f_acknowledgements() {
    let (mut network, _) = with_session();
    network.request(0, 2, Origin::Internal);
    network.finish_writes(0);
    assert_eq!(network.node(0).replica.commit_max(), Op(1));
    network.deliver_to(1);
    network.finish_writes(1);
    network.deliver_to(0);
    assert_eq!(network.node(0).replica.commit_max(), Op(2));
}

/// Step 5: it executes the op after all earlier ones, then replies, and keeps the result in the table.
#[test]
fn step_5_primary_executes_in_order_then_replies() {
    let (mut network, session) = with_session();
    network.request(0, 2, Origin::Internal);
    network.request(0, 3, request(session, 1));
    network.finish_writes(0);
    network.deliver_to(1);
    network.finish_writes(1);
    network.deliver_to(0);
    assert_eq!(network.node(0).replica.commit_max(), Op(3));
    assert_eq!(network.outcomes.get(&Token(2)), None);
    network.execute_one(0);
    assert_eq!(network.outcomes[&Token(2)], Outcome::Reply(Op(2)));
    assert_eq!(network.outcomes.get(&Token(3)), None);
    assert_eq!(network.node(0).replica.commit_min(), Op(2));
    network.execute_one(0);
    assert_eq!(network.outcomes[&Token(3)], Outcome::Reply(Op(3)));
    assert_eq!(network.node(0).replica.commit_min(), Op(3));

    let sessions = network.node(0).replica.client_sessions();
    let entry = sessions.session(CLIENT).expect("the session lives");
    assert_eq!(entry.request, RequestNumber(1));
    assert_eq!(entry.reply.as_deref(), Some(&b"reply of 3"[..]));
}

/// Step 6: backups learn of a commit from the next prepare.
#[test]
fn step_6_next_prepare_tells_of_the_commit() {
    let (mut network, _) = with_session();
    network.request(0, 2, Origin::Internal);
    for replica in [0, 1] {
        network.deliver_to(replica);
        network.finish_writes(replica);
    }
    network.deliver_to(0);
    assert_eq!(network.node(1).replica.commit_max(), Op(1));
    network.request(0, 3, Origin::Internal);
    network.deliver_to(1);
    assert_eq!(network.node(1).replica.commit_max(), Op(2));
}

/// Step 6: without a new request the primary sends the commit number by itself, in time.
#[test]
fn step_6_commit_message_tells_it_when_nothing_else_does() {
    let (mut network, _) = with_session();
    network.request(0, 2, Origin::Internal);
    for replica in [0, 1] {
        network.deliver_to(replica);
        network.finish_writes(replica);
    }
    network.deliver_to(0);
    network.tick(25);
    let commit = Message::Commit(Commit {
        replica: ReplicaId(0),
        view: View(0),
        op: Op(2),
        commit: point(&network, 2),
        checkpoint_quorum: Op(0),
    });
    assert!(network.messages.contains(&(ReplicaId(1), commit)));
    network.deliver_to(1);
    assert_eq!(network.node(1).replica.commit_max(), Op(2));
}

/// Step 7: a backup that learns of a commit waits until it has the op, and has executed all earlier ones.
/// Then it executes, keeps the result in its table, and answers nobody.
#[test]
fn step_7_backup_executes_in_order_and_does_not_reply() {
    let (mut network, session) = with_session();
    network.request(0, 2, Origin::Internal);
    network.lose_to(1);
    network.request(0, 3, request(session, 1));
    network.lose_to(1);
    for replica in [2, 0] {
        network.deliver_to(replica);
        network.finish_writes(replica);
    }
    network.deliver_to(0);
    assert_eq!(network.node(0).replica.commit_max(), Op(3));

    network.tick(25);
    network.deliver_to(1);
    assert_eq!(network.node(1).replica.commit_max(), Op(3));
    assert_eq!(network.node(1).replica.commit_min(), Op(1));
    network.deliver_to(0);
    network.deliver_to(1);
    network.execute(1);
    let executed: Vec<Op> = network
        .node(1)
        .executed
        .iter()
        .map(|prepare| prepare.header.op())
        .collect();
    assert_eq!(executed, [Op(1), Op(2), Op(3)]);
    assert_eq!(network.outcomes.get(&Token(3)), None);
    network.execute(0);
    assert_eq!(
        network.node(1).replica.client_sessions(),
        network.node(0).replica.client_sessions()
    );
}

/// A client without an answer asks all replicas: backups do not process requests. (Here they also say
/// where the primary is.)
#[test]
fn backups_do_not_process_requests() {
    let (mut network, session) = with_session();
    for replica in [1, 2] {
        let token = u64::from(replica) + 10;
        network.request(replica, token, request(session, 1));
        let primary = ReplicaId(0);
        let refused = Outcome::Refused(Refusal::NotPrimary { primary });
        assert_eq!(network.outcomes[&Token(token)], refused);
        assert_eq!(network.node(replica).replica.op(), Op(1));
    }
    assert_eq!(network.messages, []);
}

/// The group goes on while f replicas are silent.
#[test]
fn group_of_three_goes_on_without_one_backup() {
    let (mut network, session) = with_session();
    for number in 1..=5 {
        network.request(0, 10 + number, request(session, number));
        for _ in 0..3 {
            network.lose_to(2);
            for replica in [0, 1] {
                network.deliver_to(replica);
                network.finish_writes(replica);
                network.execute(replica);
            }
        }
        let token = Token(10 + number);
        assert_eq!(network.outcomes[&token], Outcome::Reply(Op(1 + number)));
    }
    assert_eq!(network.node(2).replica.op(), Op(1));
    // Once its link is back, it catches up.
    network.settle();
    assert_eq!(network.node(2).replica.commit_min(), Op(6));
}
