//! What a member of a consumer group tells and is told.

use alloc::vec::Vec;
use core::{fmt, time::Duration};

use wire::{
    ConsumerGroupId, Epoch, Event, Failure, MemberId, Offset, PartitionId, ReplicaId, Reply,
    Request,
};

use crate::{Call, ClientError, ConsumerError};

/// Names one ownership of one partition. An application that stores it beside its own effects, and takes
/// nothing under a lower epoch of the same group and partition, is safe from an owner that does not know
/// yet that it has lost the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    /// The consumer group.
    pub group: ConsumerGroupId,
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of its ownership. Rises with every new owner, and now and then under the same one.
    pub epoch: Epoch,
}

/// Why a partition was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The assignment no longer has it: it was to go to another member and everything served of it was stored
    /// already, the time to give it up was over, or its offset was reset.
    Reassigned,
    /// The server refused what was asked under its epoch: somebody newer owns it.
    Fenced(Failure),
    /// The session has ended, and the membership with it.
    SessionLost,
    /// The membership has ended while the session lives.
    MembershipEnded(Failure),
    /// The consumer has left the group: it was closed, or the application did not ask for messages.
    Left,
    /// The consumer has gone; the membership keeps the partition for whoever takes it over.
    Detached,
    /// The consumer cannot go on; an event tells why.
    Failed,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reassigned => f.write_str("it was reassigned"),
            Self::Fenced(failure) | Self::MembershipEnded(failure) => failure.fmt(f),
            Self::SessionLost => f.write_str("the session has ended"),
            Self::Left => f.write_str("the consumer has left the group"),
            Self::Detached => f.write_str("the consumer has gone, the membership stays"),
            Self::Failed => f.write_str("the consumer has failed"),
        }
    }
}

/// What happens to a member beside messages. Of each partition in this order: assigned, before its first
/// message; revoking, after which no message of it is handed out that was not before; then revoked or
/// lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// It is a member, at first or again.
    Joined {
        /// The group.
        group: ConsumerGroupId,
        /// The member. Another one than before when the membership had ended.
        member: MemberId,
    },
    /// These partitions are the consumer's from now on. Reading starts behind what is stored.
    Assigned {
        /// The partitions, each with the epoch to begin with.
        partitions: Vec<FencingToken>,
    },
    /// These partitions go to another member. What was handed out is to be processed, or at least soon; the
    /// partition is given up when that is done.
    Revoking {
        /// The partitions.
        partitions: Vec<PartitionId>,
        /// How long until they are taken, processed or not.
        time_left: Duration,
    },
    /// These partitions stay, though they were said to be revoked.
    Retained {
        /// The partitions.
        partitions: Vec<PartitionId>,
    },
    /// A partition was given up after everything that was handed out of it was processed and stored: nothing
    /// of it is delivered twice.
    Revoked {
        /// The partition.
        partition: PartitionId,
    },
    /// A partition is somebody else's, perhaps for some time already. What was handed out of it and not
    /// stored is delivered again, there or here.
    Lost {
        /// The partition.
        partition: PartitionId,
        /// Why.
        reason: LossReason,
        /// The last message that is processed and not known to be stored.
        unstored: Option<Offset>,
        /// Whether something was handed out that is not processed.
        unprocessed: bool,
    },
    /// The application has not asked for messages for too long: the consumer leaves the group, and joins
    /// again when it is asked.
    Stalled {
        /// For how long.
        idle: Duration,
    },
    /// Messages were gone before they were read: retention has removed them.
    Skipped {
        /// The partition.
        partition: PartitionId,
        /// The offset that was wanted.
        from: Offset,
        /// The oldest one that is left.
        to: Offset,
    },
    /// An offset was refused for good. What is processed later is tried again.
    StoreRefused {
        /// The partition.
        partition: PartitionId,
        /// The offset.
        offset: Offset,
        /// Why.
        failure: Failure,
    },
    /// A request failed; it is tried again.
    Retrying {
        /// Why.
        error: ClientError,
    },
    /// A partition cannot be read any more; the others go on.
    PartitionFailed {
        /// The partition.
        partition: PartitionId,
        /// Why.
        error: ConsumerError,
    },
    /// The consumer cannot go on.
    Failed(ConsumerError),
}

/// What the shell has to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupEffect {
    /// Give this request to the session, which may send it again ([`Retry::Session`](crate::Retry)), and
    /// report it with [`GroupConsumer::handle`](crate::GroupConsumer::handle).
    Submit {
        /// The request.
        call: Call,
        /// What is asked.
        request: Request,
        /// How long it may take.
        timeout: Duration,
        /// The node that leads what it is for, as far as known.
        node: Option<ReplicaId>,
    },
    /// Tell the application.
    Event(GroupEvent),
}

/// One event for a member.
#[derive(Clone, Debug)]
pub enum GroupInput {
    /// A request of [`GroupEffect::Submit`] has ended.
    Answered {
        /// The request.
        call: Call,
        /// Its reply, or why there is none.
        result: Result<Reply, ClientError>,
    },
    /// The server told something unasked, to this session.
    Told(Event),
    /// The session is gone ([`Effect::SessionLost`](crate::Effect)).
    SessionLost,
    /// What is processed is to be stored without more delay. It is done when
    /// [`GroupConsumer::is_stored`](crate::GroupConsumer::is_stored) says so.
    Flush,
    /// Ends the membership: nothing more is handed out; what was is to be processed, is stored, and the
    /// group is left. It is done when [`GroupConsumer::is_ended`](crate::GroupConsumer::is_ended) says so.
    Close {
        /// How long the application may take to process what it was handed, and the server to store it.
        timeout: Duration,
    },
    /// Ends reading as [`GroupInput::Close`] does, but does not leave the group: the membership stays as long as
    /// the session does, and one with an instance id for a while longer, for whoever joins with the same id.
    Detach {
        /// How long the application may take to process what it was handed, and the server to store it.
        timeout: Duration,
    },
    /// Time has passed, see [`GroupConsumer::deadline`](crate::GroupConsumer::deadline).
    Tick,
}
