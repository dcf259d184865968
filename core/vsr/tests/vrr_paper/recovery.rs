//! What takes the place of §4.3, recovery. In the paper a replica that restarts has lost its state, asks all
//! others with a nonce, and takes part again when a quorum has answered, the primary among them. That needs a
//! group that works: when all restart at once it never ends; and it is not safe with what was promised before
//! it. Here the disk remembers what was promised (V10), and only a replica whose disk may hide something asks
//! (V11).

use vsr::{Ignore, Input, Message, Note, Origin, RequestStartView, Status, Token};
use wire::{Op, ReplicaId, View};

use crate::network::{Network, Outcome};

/// Three replicas with one op, committed and executed.
fn with_an_op() -> Network {
    let mut network = Network::new(3);
    network.request(0, 1, Origin::Internal);
    network.settle();
    network
}

/// A backup that restarts asks nobody, and acknowledges the next prepare.
#[test]
fn restarted_backup_goes_on_in_its_view() {
    let mut network = with_an_op();
    network.restart(2, false);
    assert_eq!(network.node(2).replica.status(), Status::Normal);
    assert_eq!(network.messages, []);
    network.cut_off.insert(1);
    network.request(0, 2, Origin::Internal);
    network.settle();
    assert_eq!(network.outcomes[&Token(2)], Outcome::Reply(Op(2)));
    assert_eq!(network.node(2).replica.commit_min(), Op(2));
}

/// What was acknowledged is still there; what was only on its way to the disk was not.
#[test]
fn restarted_backup_has_what_it_acknowledged() {
    let mut network = with_an_op();
    for op in [2, 3] {
        network.request(0, op, Origin::Internal);
    }
    network.deliver_to(2);
    network.finish_write(2, 0);
    network.restart(2, false);
    assert_eq!(network.node(2).replica.op(), Op(2));
}

/// All restart at once. In the paper more than f failures at a time are too many.
#[test]
fn group_that_restarts_as_a_whole_loses_nothing() {
    let mut network = with_an_op();
    network.request(0, 2, Origin::Internal);
    network.deliver_to(1);
    network.finish_writes(0);
    network.finish_writes(1);
    network.messages.clear();
    for replica in network.replicas() {
        network.restart(replica, false);
    }
    for _ in 0..3 {
        network.settle();
    }
    let leader = network
        .replicas()
        .find(|it| network.node(*it).replica.is_serving());
    let leader = leader.expect("a group of three restarted serves again");
    network.request(leader, 3, Origin::Internal);
    network.settle();
    assert_eq!(network.outcomes[&Token(3)], Outcome::Reply(Op(3)));
    for replica in network.replicas() {
        assert_eq!(network.node(replica).replica.commit_min(), Op(3));
    }
}

/// A primary that restarts does not lead its view again, whose messages may still be on their way (V10).
#[test]
fn restarted_primary_begins_another_view() {
    let mut network = with_an_op();
    network.restart(0, false);
    assert_eq!(network.node(0).replica.view(), View(1));
    assert_eq!(network.node(0).replica.status(), Status::ViewChange);
    network.settle();
    assert!(network.node(1).replica.is_serving());
    assert_eq!(network.node(0).replica.view(), View(1));
    assert_eq!(network.node(0).replica.status(), Status::Normal);
}

/// A replica that restarts after it has voted votes the same, and does not go back to the view before (V5).
#[test]
fn replica_that_restarts_in_a_view_change_votes_again() {
    let mut network = with_an_op();
    for replica in [1, 2] {
        network.handle(replica, Input::PrimaryLost);
    }
    network.deliver_to(2);
    network.finish_writes(2);
    let vote = |network: &Network| {
        let is_vote = |it: &Message| matches!(it, Message::DoViewChange(_));
        let found = network.messages.iter().find(|(_, it)| is_vote(it));
        found.cloned().expect("a vote")
    };
    let (to, Message::DoViewChange(before)) = vote(&network) else {
        unreachable!("it is one")
    };
    network.messages.clear();
    network.restart(2, false);
    let (to_again, Message::DoViewChange(after)) = vote(&network) else {
        unreachable!("it is one")
    };
    assert_eq!((to, to_again), (ReplicaId(1), ReplicaId(1)));
    assert_eq!(
        (before.view, before.log_view, before.op),
        (after.view, after.log_view, after.op)
    );
    // It may have forgotten that an op is committed, and reports it, then.
    assert!(after.commit.op <= before.commit.op);
    assert!(after.suffix.ends_with(&before.suffix));
}

/// The question with a nonce is there for a disk that may hide the head. The primary's answer is enough: it
/// is in normal status in the view, so a quorum was. An answer to an earlier incarnation is not one.
#[test]
fn replica_with_an_uncertain_head_asks_the_primary_with_a_nonce() {
    let mut network = with_an_op();
    network.restart(2, true);
    assert_eq!(network.node(2).replica.status(), Status::RecoveringHead);
    network.tick(60);
    let question = RequestStartView {
        replica: ReplicaId(2),
        view: View(0),
        nonce: 1,
    };
    let question = (ReplicaId(0), Message::RequestStartView(question));
    assert!(network.messages.contains(&question));
    network.deliver_to(0);
    let is_answer = |it: &Message| matches!(it, Message::StartView(_));
    let answer = network.messages.iter().find(|(_, it)| is_answer(it));
    let (_, answer) = answer.cloned().expect("the primary answers");
    network.messages.clear();

    // It restarts once more: that was the answer to somebody else.
    network.restart(2, true);
    network.handle(2, Input::Message(answer));
    let ignored = (ReplicaId(2), Note::Ignored(Ignore::StartViewNotAsked));
    assert_eq!(network.notes.last(), Some(&ignored));
    assert_eq!(network.node(2).replica.status(), Status::RecoveringHead);
    network.settle();
    assert_eq!(network.node(2).replica.status(), Status::Normal);
    assert_eq!(network.node(2).replica.commit_min(), Op(1));
}

/// Until then it takes part in nothing: f others must do without it.
#[test]
fn replica_with_an_uncertain_head_takes_no_part() {
    let mut network = with_an_op();
    network.restart(2, true);
    network.cut_off.insert(1);
    network.request(0, 2, Origin::Internal);
    network.deliver_to(2);
    network.finish_writes(2);
    network.deliver_to(0);
    assert_eq!(network.node(0).replica.commit_max(), Op(1));
    network.settle();
    // With the answer it has the journal of the view, this op included, and acknowledges it.
    assert_eq!(network.outcomes[&Token(2)], Outcome::Reply(Op(2)));
}
