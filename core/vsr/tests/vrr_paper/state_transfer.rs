//! What takes the place of §5.2, state transfer. A replica that is behind fetches prepare by prepare; and a
//! checkpoint where the others have what it misses in no journal any more.

use vsr::{Gone, Input, Message, Note, Origin, RequestPrepare, Status, Token};
use wire::{Op, ReplicaId, View};

use crate::network::{Network, Outcome};

fn requests(network: &Network) -> Vec<(u8, RequestPrepare)> {
    let mut found = Vec::new();
    for (to, message) in &network.messages {
        if let Message::RequestPrepare(request) = message {
            found.push((to.0, *request));
        }
    }
    found
}

/// A replica that learns that it is behind in its own view asks for what comes after its last op. (The paper
/// asks any replica; here in normal status the primary, whose journal is the view's.)
#[test]
fn replica_that_is_behind_in_its_view_fetches_what_follows() {
    let mut network = Network::new(3);
    for op in 1..=3 {
        network.request(0, op, Origin::Internal);
        network.lose_to(2);
    }
    network.request(0, 4, Origin::Internal);
    network.deliver_to(2);
    let asked: Vec<(u8, Op)> = requests(&network)
        .iter()
        .map(|(to, it)| (*to, it.op))
        .collect();
    assert_eq!(asked, [(0, Op(1)), (0, Op(2)), (0, Op(3)), (0, Op(4))]);
    network.settle();
    assert_eq!(network.node(2).replica.commit_min(), Op(4));
}

/// A replica that learns of a later view asks for that view's journal. The paper has it first cut its own to
/// what is committed. Here it stays whole until the other one is here and durable (V3): it may hold the only
/// copy but one of an acknowledged op, and the next view change may come before the answer.
#[test]
fn replica_that_learns_of_a_later_view_keeps_its_journal_until_the_new_one_is_here() {
    let mut network = Network::new(3);
    network.request(0, 1, Origin::Internal);
    network.finish_writes(0);
    network.messages.clear();
    network.cut_off.insert(0);
    let old = network.history[&Op(1)].clone();
    for replica in [1, 2] {
        network.handle(replica, Input::PrimaryLost);
    }
    network.settle();
    for op in 2..=3 {
        network.request(1, op, Origin::Internal);
    }
    network.settle();
    network.cut_off.clear();
    // The heartbeat of view 1 arrives.
    network.tick(30);
    network.deliver_to(0);
    let is_question = |it: &Message| matches!(it, Message::RequestStartView(_));
    assert!(network.messages.iter().any(|(_, it)| is_question(it)));
    network.deliver_to(1);
    network.deliver_to(0);
    assert_eq!(network.node(0).replica.status(), Status::ViewChange);
    assert_eq!(network.node(0).replica.op(), Op(1));
    assert_eq!(network.node(0).executed, []);

    // Interrupted, it is what it was.
    network.restart(0, false);
    assert_eq!(network.node(0).replica.op(), Op(1));
    network.settle();
    network.settle();
    assert_eq!(network.node(0).replica.status(), Status::Normal);
    assert_eq!(network.node(0).executed, network.node(1).executed);
    assert_ne!(network.node(0).executed.first(), Some(&old));
}

/// Ops that are committed are fetched in order, and executed as they come; then the rest.
#[test]
fn replica_that_missed_a_view_change_and_many_ops_catches_up() {
    let mut network = Network::new(3);
    network.cut_off.insert(2);
    for op in 1..=40 {
        network.request(0, op, Origin::Internal);
        network.settle();
    }
    network.handle(1, Input::PrimaryLost);
    network.cut_off.clear();
    for _ in 0..3 {
        network.settle();
    }
    for replica in network.replicas() {
        assert_eq!(network.node(replica).replica.commit_min(), Op(40));
    }
    let leader = network
        .replicas()
        .find(|it| network.node(*it).replica.is_serving());
    network.request(leader.expect("somebody serves"), 50, Origin::Internal);
    network.settle();
    assert_eq!(network.outcomes[&Token(50)], Outcome::Reply(Op(41)));
}

/// When the others keep a prepare no more, a checkpoint is fetched: the paper's application state. The paper's
/// replica would have cut its journal before it asks; here nothing changes until the checkpoint is durable
/// (V3), and then one superblock changes everything.
#[test]
fn replica_whose_missing_ops_are_gone_takes_over_a_checkpoint() {
    let mut network = Network::new(3);
    for op in 1..=3 {
        network.request(0, op, Origin::Internal);
        network.lose_to(2);
        network.deliver_to(1);
        network.finish_writes(0);
        network.finish_writes(1);
        network.deliver_to(0);
        network.execute(0);
    }
    let checkpoint = network.nodes[0].replica.begin_checkpoint();
    assert_eq!(checkpoint.op, Op(3));
    // It hears of op 4, asks for what comes before, and is told that this is gone.
    network.request(0, 4, Origin::Internal);
    network.deliver_to(2);
    let gone = Gone {
        replica: ReplicaId(0),
        view: View(0),
        op: Op(1),
        checkpoint: Op(3),
    };
    network.handle(2, Input::Message(Message::Gone(gone)));
    let wanted = Note::CheckpointWanted { op: Op(1) };
    assert_eq!(network.notes.last(), Some(&(ReplicaId(2), wanted)));
    assert_eq!(network.node(2).replica.status(), Status::Normal);

    network.handle(2, Input::CheckpointFetched(checkpoint));
    assert_eq!(network.node(2).replica.status(), Status::StateTransfer);
    network.messages.clear();
    network.finish_writes(2);
    assert_eq!(network.node(2).replica.status(), Status::Normal);
    assert_eq!(network.node(2).replica.commit_min(), Op(3));
    network.settle();
    let executed = &network.node(2).executed;
    assert_eq!(executed.len(), 1);
    assert_eq!(executed[0].header.op(), Op(4));
}
