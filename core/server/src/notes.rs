//! What a shard notes, as events for the operator: one line for what happens in the life of a group,
//! a session or a partition, nothing per request.

use shard::Note;
use wire::{Op, ShardId};

pub(crate) fn tell(shard: ShardId, note: &Note) {
    let shard = shard.0;
    match note {
        Note::Replica { group, note } => replica(group.0, note),
        Note::Damaged { segment, reason } => tracing::error!(
            group = segment.group.0,
            partition = %segment.partition,
            segment = segment.base.0,
            "partition is out of service on this node, its segment is {reason}; others are not touched"
        ),
        Note::Mended { segment } => tracing::info!(
            group = segment.group.0,
            partition = %segment.partition,
            segment = segment.base.0,
            "damaged segment is whole again: another node had it"
        ),
        Note::Checkpoint { group, op } => tracing::info!(group = group.0, op = op.0, "checkpoint"),
        Note::SessionRegistered {
            session,
            is_replayed,
        } => {
            let session = session.0;
            if *is_replayed {
                tracing::debug!(session, "session began before the start");
            } else {
                tracing::info!(session, "session begins");
            }
        }
        Note::SessionEnded {
            session,
            reason,
            is_replayed,
        } => {
            let (session, reason) = (session.0, reason.name());
            if *is_replayed {
                tracing::debug!(session, reason, "session ended before the start");
            } else {
                tracing::info!(session, reason, "session ends");
            }
        }
        Note::InstanceContended {
            key,
            member,
            instance,
            from,
            to,
            address,
        } => tracing::warn!(
            stream = key.stream.0,
            topic = key.topic.0,
            consumer_group = key.group.0,
            member = member.0,
            instance,
            from = from.0,
            to = to.0,
            address,
            "two processes have one instance id: the membership was taken over from a session that lived"
        ),
        Note::LoginRefused => tracing::warn!(shard, "login refused: name or password is wrong"),
    }
}

fn replica(group: u16, note: &vsr::Note) {
    match note {
        vsr::Note::OutOfService(reason) => tracing::error!(
            group,
            "consensus group is out of service: {reason}; a node of a cluster comes back by `cohort-server recover \
             --discard-disk`, for a single one see `cohort-server recover --help`"
        ),
        vsr::Note::Dropped { op } => {
            tracing::warn!(
                group,
                op = op.0,
                "prepare dropped: it was not part of the installed journal"
            );
        }
        vsr::Note::CheckpointLost { op, is_bridged } => lost_checkpoint(group, *op, *is_bridged),
        vsr::Note::CheckpointWanted { op } => {
            tracing::info!(
                group,
                op = op.0,
                "what is missing here is in checkpoints only: one is fetched"
            );
        }
        vsr::Note::CheckpointInstalled { op } => {
            tracing::info!(
                group,
                op = op.0,
                "a checkpoint of another node is installed"
            );
        }
        vsr::Note::Recovered { checkpoint, op } => {
            tracing::debug!(group, checkpoint = checkpoint.0, op = op.0, "journal read");
        }
        vsr::Note::Damaged { .. }
        | vsr::Note::Repaired { .. }
        | vsr::Note::Truncated { .. }
        | vsr::Note::Undecided { .. } => lost_prepares(group, note),
        vsr::Note::ViewWished { view } => {
            tracing::info!(group, view = view.0, "primary suspected")
        }
        vsr::Note::Abdicated { view } => {
            tracing::warn!(
                group,
                view = view.0,
                "leads no more: it hears from no majority, or commits nothing"
            );
        }
        vsr::Note::LeadOffered { view, to } => {
            tracing::info!(
                group,
                view = view.0,
                node = to.0,
                "leads no more: another node had better lead"
            );
        }
        vsr::Note::HandsOver { view } => {
            tracing::info!(group, view = view.0, "leads no more: the process stops");
        }
        vsr::Note::ViewChangeStarted { view } => {
            tracing::info!(group, view = view.0, "view change")
        }
        vsr::Note::ViewEntered { view } => tracing::debug!(group, view = view.0, "view entered"),
        vsr::Note::Ignored(_)
        | vsr::Note::Committed { .. }
        | vsr::Note::Skipped { .. }
        | vsr::Note::RepairRequested { .. } => {}
        vsr::Note::Barrier { .. }
        | vsr::Note::Rejoining
        | vsr::Note::RejoinUnanswered
        | vsr::Note::Rejoined { .. } => lost_disk(group, note),
    }
}

fn lost_checkpoint(group: u16, op: Op, is_bridged: bool) {
    let what = if is_bridged {
        "the journal leads there from an older one"
    } else {
        "that of another node takes its place, before the group takes part here"
    };
    tracing::error!(
        group,
        op = op.0,
        "snapshot-{} is damaged or gone: {what}",
        op.0
    );
}

/// How a consensus group takes back a node that lost its disk.
fn lost_disk(group: u16, note: &vsr::Note) {
    match note {
        vsr::Note::Barrier { op, replica } => tracing::info!(
            group,
            op = op.0,
            node = replica.0,
            "a node that lost its disk is taken back"
        ),
        vsr::Note::Rejoining => tracing::warn!(
            group,
            "has lost its disk: asks the other nodes to take it back"
        ),
        vsr::Note::RejoinUnanswered => tracing::warn!(
            group,
            "nobody takes it back: no primary of the group serves on another node"
        ),
        vsr::Note::Rejoined { view } => {
            tracing::info!(group, view = view.0, "taken back, and takes part again");
        }
        _ => {}
    }
}

/// What a consensus group does about prepares that cannot be read.
fn lost_prepares(group: u16, note: &vsr::Note) {
    match note {
        vsr::Note::Damaged { first, last } => tracing::warn!(
            group,
            first = first.0,
            last = last.0,
            "prepares cannot be read: they are fetched from the other nodes"
        ),
        vsr::Note::Repaired { op } => {
            tracing::info!(
                group,
                op = op.0,
                "prepare that could not be read is here again"
            );
        }
        vsr::Note::Truncated { op, nacks } => tracing::warn!(
            group,
            op = op.0,
            nacks,
            "the view does without this op: it was not acknowledged, and cannot be read any more"
        ),
        vsr::Note::Undecided { view, op } => tracing::error!(
            group,
            view = view.0,
            op = op.0,
            "no node can read this op, and it may have been acknowledged: the group serves nothing \
             until a node has a copy of it"
        ),
        _ => {}
    }
}
