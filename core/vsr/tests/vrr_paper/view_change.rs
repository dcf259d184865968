//! §4.2, view changes.

use vsr::{
    DoViewChange, Ignore, Input, Message, Note, Origin, PrepareOk, Refusal, StartView,
    StartViewChange, Status, Token,
};
use wire::{ClientId, Op, ReplicaId, RequestNumber, SessionNumber, View};

use crate::network::{Network, Outcome};

const CLIENT: ClientId = ClientId(77);

fn wishes(network: &Network) -> Vec<(u8, StartViewChange)> {
    let mut found = Vec::new();
    for (to, message) in &network.messages {
        if let Message::StartViewChange(wish) = message {
            found.push((to.0, *wish));
        }
    }
    found
}

fn votes(network: &Network) -> Vec<(u8, DoViewChange)> {
    let mut found = Vec::new();
    for (to, message) in &network.messages {
        if let Message::DoViewChange(vote) = message {
            found.push((to.0, vote.clone()));
        }
    }
    found
}

fn start_views(network: &Network) -> Vec<(u8, StartView)> {
    let mut found = Vec::new();
    for (to, message) in &network.messages {
        if let Message::StartView(start) = message {
            found.push((to.0, start.clone()));
        }
    }
    found
}

fn acknowledgements(network: &Network) -> Vec<PrepareOk> {
    let mut found = Vec::new();
    for (_, message) in &network.messages {
        if let Message::PrepareOk(ok) = message {
            found.push(*ok);
        }
    }
    found
}

fn statuses(network: &Network) -> Vec<(Status, u32)> {
    let of = |replica| {
        let replica = &network.node(replica).replica;
        (replica.status(), replica.view().0)
    };
    network.replicas().map(of).collect()
}

/// Three replicas. Op 1 is committed and executed everywhere; op 2 is durable at the primary and at `holder`
/// and committed by nobody. The primary is cut off.
fn with_an_uncommitted_op(holder: u8) -> Network {
    let mut network = Network::new(3);
    network.request(0, 1, Origin::Internal);
    network.settle();
    network.request(0, 2, Origin::Internal);
    network.finish_writes(0);
    network.deliver_to(holder);
    network.finish_writes(holder);
    network.messages.clear();
    network.cut_off.insert(0);
    assert_eq!(network.node(holder).replica.op(), Op(2));
    assert_eq!(network.node(0).replica.commit_max(), Op(1));
    network
}

/// Both backups suspect the primary, and each hears of the other's wish.
fn suspect(network: &mut Network) {
    for replica in [1, 2] {
        network.handle(replica, Input::PrimaryLost);
    }
    for replica in [1, 2] {
        network.deliver_to(replica);
    }
}

/// Backups expect to hear from the primary regularly; when a timeout expires without that, they carry out a
/// view change.
#[test]
fn silent_primary_is_replaced() {
    let mut network = Network::new(3);
    network.settle();
    network.cut_off.insert(0);
    network.settle();
    network.settle();
    let (normal, primary) = (Status::Normal, &network.node(1).replica);
    assert!(primary.is_serving());
    assert_eq!(statuses(&network)[1..], [(normal, 1), (normal, 1)]);
}

/// While they hear from it they do not.
#[test]
fn primary_that_is_heard_is_not_replaced() {
    let mut network = Network::new(3);
    for _ in 0..5 {
        network.settle();
    }
    let expected = [(Status::Normal, 0); 3];
    assert_eq!(statuses(&network), expected);
}

/// There is no election: the primary is chosen round-robin by the number of the view.
#[test]
fn primary_follows_from_the_number_of_the_view() {
    let mut network = Network::new(3);
    for view in 1..=4 {
        let primary = u8::try_from((view - 1) % 3).unwrap();
        for replica in network.replicas().filter(|it| *it != primary) {
            network.handle(replica, Input::PrimaryLost);
        }
        network.settle();
        let next = ReplicaId(u8::try_from(view % 3).unwrap());
        for replica in network.replicas() {
            assert_eq!(network.node(replica).replica.view(), View(view));
            assert_eq!(network.node(replica).replica.primary(), next);
        }
    }
}

/// Correctness: every committed op survives into all later views, at the same place, though the new primary
/// did not have it.
#[test]
fn committed_op_survives_into_the_next_view() {
    let mut network = with_an_uncommitted_op(2);
    network.cut_off.clear();
    // It commits at the old primary, and that is gone; replica 1 has never heard of it.
    let prepare = network.history[&Op(2)].clone();
    let ok = PrepareOk {
        replica: ReplicaId(2),
        view: View(0),
        op: Op(2),
        checksum: prepare.header.checksum,
        checkpoint: Op(0),
    };
    network.handle(0, Input::Message(Message::PrepareOk(ok)));
    network.execute(0);
    assert_eq!(network.outcomes[&Token(2)], Outcome::Reply(Op(2)));
    network.messages.clear();
    network.cut_off.insert(0);
    assert_eq!(network.node(1).replica.op(), Op(1));
    suspect(&mut network);
    network.settle();
    assert!(network.node(1).replica.is_serving());
    for replica in [1, 2] {
        assert_eq!(network.node(replica).executed[1], prepare);
    }
}

/// Step 1: a replica that notices the need sends start_view_change for the next view to all others. In the
/// paper it leaves its view at once; here it goes on (V6), or one that only cannot hear would stop the
/// others again and again.
#[test]
fn step_1_replica_sends_start_view_change_and_stays_normal() {
    let mut network = Network::new(3);
    network.handle(2, Input::PrimaryLost);
    let wish = StartViewChange {
        replica: ReplicaId(2),
        view: View(1),
        promised: View(0),
    };
    assert_eq!(wishes(&network), [(0, wish), (1, wish)]);
    assert_eq!(statuses(&network)[2], (Status::Normal, 0));
    network.settle();
    assert_eq!(statuses(&network), [(Status::Normal, 0); 3]);
}

/// Step 1: or it hears that others do: a do_view_change for a larger view is the word of a quorum.
#[test]
fn step_1_replica_follows_a_do_view_change() {
    let mut network = with_an_uncommitted_op(2);
    network.handle(2, Input::PrimaryLost);
    // The wish of replica 1 is heard, and that of replica 2 is lost.
    network.handle(1, Input::PrimaryLost);
    network.lose_to(1);
    network.deliver_to(2);
    network.finish_writes(2);
    network
        .messages
        .retain(|(_, it)| matches!(it, Message::DoViewChange(_)));
    assert_eq!(statuses(&network)[1], (Status::Normal, 0));
    network.deliver_to(1);
    assert_eq!(statuses(&network)[1], (Status::ViewChange, 1));
}

/// Step 2: with start_view_change of f others for its view, it sends do_view_change to the new primary: the
/// view, its journal, the last view in which it was normal, op and commit number. Here the journal goes as
/// headers, the number of the view is `log_view` (V2), and all of it is durable first (V1, V5).
#[test]
fn step_2_replica_sends_do_view_change_once_it_is_durable() {
    let mut network = with_an_uncommitted_op(2);
    suspect(&mut network);
    assert_eq!(statuses(&network)[2], (Status::ViewChange, 1));
    assert_eq!(votes(&network), []);
    network.finish_writes(2);
    let sent = votes(&network);
    let [(1, vote)] = &sent[..] else {
        panic!("one vote, to the primary of view 1: {sent:?}");
    };
    let first = &network.history[&Op(1)].header;
    assert_eq!((vote.view, vote.log_view), (View(1), View(0)));
    assert_eq!((vote.op, vote.commit.op), (Op(2), Op(1)));
    assert_eq!(vote.commit.checksum, first.checksum);
    assert_eq!(vote.suffix.len(), 1);
    assert_eq!(vote.suffix[0].header, Some(network.history[&Op(2)].header));
}

/// Step 2: f others, not fewer. Of five replicas three have to agree.
#[test]
fn step_2_fewer_than_f_others_are_not_enough() {
    let mut network = Network::new(5);
    for replica in [3, 4] {
        network.handle(replica, Input::PrimaryLost);
    }
    for replica in [3, 4] {
        network.deliver_to(replica);
    }
    assert_eq!(statuses(&network)[3..], [(Status::Normal, 0); 2]);
    network.handle(2, Input::PrimaryLost);
    network.deliver_to(4);
    assert_eq!(statuses(&network)[4], (Status::ViewChange, 1));
}

/// Step 2, why it is needed: whoever has voted acknowledges no more in the view before, so what the old
/// primary still says comes to nothing.
#[test]
fn step_2_prepares_of_the_view_before_are_no_longer_taken() {
    let mut network = Network::new(3);
    network.request(0, 1, Origin::Internal);
    let prepares = core::mem::take(&mut network.messages);
    network.cut_off.insert(0);
    suspect(&mut network);
    network.messages.clear();
    for (to, message) in prepares {
        network.handle(to.0, Input::Message(message));
        let ignored = (to, Note::Ignored(Ignore::NotNormal));
        assert_eq!(network.notes.last(), Some(&ignored));
        network.finish_writes(to.0);
    }
    assert_eq!(acknowledgements(&network), []);
}

/// Step 3: with f + 1 of them, its own included, the new primary takes the journal of the largest log_view,
/// then of the largest op, and the largest commit number, and tells the others in start_view: view, journal,
/// op and commit number. The bodies that it lacks it fetches first, and the install is durable first (V1).
#[test]
fn step_3_new_primary_takes_the_best_journal_and_starts_the_view() {
    let mut network = with_an_uncommitted_op(2);
    assert_eq!(network.node(1).replica.op(), Op(1));
    suspect(&mut network);
    network.finish_writes(2);
    // Its own vote is not durable yet.
    network.deliver_to(1);
    assert_eq!(network.messages, []);
    network.finish_writes(1);
    let asked = network.messages.iter().filter(|(to, message)| {
        let op = Op(2);
        *to == ReplicaId(2) && matches!(message, Message::RequestPrepare(it) if it.op == op)
    });
    assert_eq!(asked.count(), 1);
    network.deliver_to(2);
    network.deliver_to(1);
    assert_eq!(start_views(&network), []);
    network.finish_write(1, 0);
    assert_eq!(start_views(&network), []);
    network.finish_write(1, 0);
    let started = start_views(&network);
    let [(2, start)] = &started[..] else {
        panic!("one start_view, replica 0 is cut off: {started:?}");
    };
    assert_eq!((start.view, start.op), (View(1), Op(2)));
    assert_eq!(start.commit.op, Op(1));
    assert_eq!(start.suffix, [network.history[&Op(2)].header]);
    assert_eq!(statuses(&network)[1], (Status::Normal, 1));
}

/// Step 4: the new primary executes what is committed, and takes requests. The paper lets it take them at
/// once and send the replies of ops that it had not executed; here it serves when all that it inherited is
/// committed and executed (V8), and who waits for a reply asks again (V14).
#[test]
fn step_4_new_primary_executes_what_it_inherited_then_serves() {
    let mut network = with_an_uncommitted_op(2);
    suspect(&mut network);
    for _ in 0..3 {
        for replica in [2, 1] {
            network.finish_writes(replica);
            network.deliver_to(replica);
        }
    }
    assert_eq!(statuses(&network)[1], (Status::Normal, 1));
    network.request(1, 5, Origin::Internal);
    assert_eq!(
        network.outcomes[&Token(5)],
        Outcome::Refused(Refusal::NotReady)
    );
    network.settle();
    assert!(network.node(1).replica.is_serving());
    assert_eq!(network.node(1).executed[1], network.history[&Op(2)]);
    // Nobody here waits for it, and who waits at the old primary hears that nobody knows.
    assert_eq!(network.outcomes.get(&Token(2)), None);
    network.cut_off.clear();
    network.settle();
    assert_eq!(
        network.outcomes[&Token(2)],
        Outcome::Refused(Refusal::Unknown)
    );
}

/// Step 4: the client asks again, at the new primary, and gets the reply of the one execution.
#[test]
fn step_4_client_asks_again_and_the_request_is_executed_once() {
    let mut network = Network::new(3);
    network.request(0, 1, Origin::Register { client: CLIENT });
    network.settle();
    let origin = Origin::Session {
        client: CLIENT,
        session: SessionNumber(1),
        request: RequestNumber(1),
    };
    network.request(0, 2, origin);
    network.finish_writes(0);
    network.deliver_to(2);
    network.finish_writes(2);
    network.messages.clear();
    network.cut_off.insert(0);
    suspect(&mut network);
    network.settle();
    network.request(1, 3, origin);
    network.settle();
    assert_eq!(network.outcomes[&Token(3)], Outcome::Reply(Op(2)));
    assert_eq!(network.node(1).replica.op(), Op(2));
}

/// Step 5: on start_view the others replace their journal by that of the message, are normal in its view, and
/// acknowledge what is not committed; then they execute what is committed. (One prepare_ok for each op, after
/// the install is durable, and with its checksum: V1, V7.)
#[test]
fn step_5_backups_take_the_journal_and_acknowledge() {
    let mut network = with_an_uncommitted_op(1);
    suspect(&mut network);
    network.finish_writes(2);
    network.finish_writes(1);
    network.deliver_to(1);
    network.finish_writes(1);
    assert_eq!(statuses(&network)[1], (Status::Normal, 1));
    assert_eq!(network.node(2).replica.op(), Op(1));
    network.deliver_to(2);
    network.deliver_to(1);
    network.deliver_to(2);
    assert_eq!(statuses(&network)[2], (Status::ViewChange, 1));
    network.finish_write(2, 0);
    assert_eq!(acknowledgements(&network), []);
    network.finish_write(2, 0);
    assert_eq!(statuses(&network)[2], (Status::Normal, 1));
    let second = network.history[&Op(2)].header;
    let ok = PrepareOk {
        replica: ReplicaId(2),
        view: View(1),
        op: Op(2),
        checksum: second.checksum,
        checkpoint: Op(0),
    };
    assert_eq!(acknowledgements(&network), [ok]);
    network.settle();
    assert_eq!(network.node(2).replica.commit_min(), Op(2));
}

/// An op that was not committed may be lost: the old primary drops it when it comes back, and another op has
/// its number.
#[test]
fn uncommitted_op_may_be_lost() {
    let mut network = Network::new(3);
    network.request(0, 1, Origin::Internal);
    network.finish_writes(0);
    network.messages.clear();
    network.cut_off.insert(0);
    let lost = network.history[&Op(1)].clone();
    suspect(&mut network);
    network.settle();
    network.request(1, 2, Origin::Internal);
    network.settle();
    assert_eq!(network.outcomes[&Token(2)], Outcome::Reply(Op(1)));
    network.cut_off.clear();
    network.settle();
    assert_eq!(statuses(&network), [(Status::Normal, 1); 3]);
    assert_eq!(
        network.outcomes[&Token(1)],
        Outcome::Refused(Refusal::Unknown)
    );
    assert_eq!(network.node(0).executed, network.node(1).executed);
    assert_ne!(network.node(0).executed[0], lost);
}

/// The view change itself may fail: the next primary is gone, too. Then there is one to the view after it.
#[test]
fn view_change_that_fails_is_followed_by_another() {
    let mut network = Network::new(5);
    network.request(0, 1, Origin::Internal);
    network.settle();
    network.cut_off.extend([0, 1]);
    for _ in 0..4 {
        network.settle();
    }
    assert!(network.node(2).replica.is_serving());
    assert_eq!(statuses(&network)[2..], [(Status::Normal, 2); 3]);
    assert_eq!(network.node(4).executed.len(), 1);
}

/// Step 3, why the largest log_view comes before the largest op: a longer journal may be of a view that is
/// over, and what a later one has committed is not in it. (The view of the last entry says nothing: V4.)
#[test]
fn step_3_longer_journal_of_an_earlier_view_is_not_taken() {
    let mut network = Network::new(3);
    for op in 1..=3 {
        network.request(0, op, Origin::Internal);
    }
    network.finish_writes(0);
    network.messages.clear();
    network.cut_off.insert(0);
    suspect(&mut network);
    network.settle();
    network.request(1, 4, Origin::Internal);
    network.settle();
    assert_eq!(network.outcomes[&Token(4)], Outcome::Reply(Op(1)));

    network.cut_off = [1].into();
    assert_eq!(network.node(0).replica.op(), Op(3));
    assert_eq!(network.node(2).replica.op(), Op(1));
    for replica in [0, 2] {
        network.handle(replica, Input::PrimaryLost);
    }
    for _ in 0..4 {
        network.settle();
    }
    assert!(network.node(2).replica.is_serving());
    assert_eq!(network.node(0).executed, network.node(1).executed);
    assert_eq!(network.node(2).replica.op(), Op(1));
}
