//! Whether a poll, store or release is admitted, by what a shard has applied of the metadata.
//!
//! Admission keeps order among those who are up to date, and tells the others what to do. **Safety does
//! not rest on it**: it runs at the primary of the partition's data group, whose copy of the metadata may
//! be old. What it admits is judged again by the data group's state machine, which keeps for every
//! (incarnation, group) a fence F, its holder, and the stored offset O, and decides when the request is
//! applied, in the order of the data group's journal.
//!
//! **Why nothing gets past the fence.** A partition moves from member 1, epoch 10, to member 2, epoch 20.
//! Three journal entries decide, in two journals:
//!
//! | | journal | entry | then |
//! | --- | --- | --- | --- |
//! | M1 | metadata | the join of member 2, op 20 | the plan: moving (1, 10) → (2, 20). Member 2 is told nothing yet |
//! | D | data group | `Fence(20, 2)` | F = 20: everything with an older epoch is refused from here on |
//! | M2 | metadata | the completion of (partition, 20) | member 2 owns the partition, and is told |
//!
//! D is proposed because of M1, and M2 only when D has been applied, so M1, D, M2 is their order in time,
//! whatever crashes in between; each may be proposed again and changes nothing the second time.
//!
//! * *A store of member 1*, however late it arrives, is somewhere in the data group's journal. Before D:
//!   it is applied, F was 10, and O counts it. After D: 10 < F, and it is refused. Member 2 reads O after
//!   M2, so after D. So whatever was stored, member 2 starts behind it, and nothing is stored after that.
//! * *A poll of member 1* leaves no entry. It is answered only by a primary that a majority confirmed
//!   after the poll came, so one that had applied every entry that was committed before it came, and only
//!   if F is not above its epoch. A poll that arrives after member 2 was told arrives after D: refused.
//! * *A fence of a plan that has changed.* D may have been committed when op 30 cancels the move. Then
//!   F = 20 is above epoch 10, so the cancellation gives member 1 a new epoch, 30, and its next request
//!   raises F to it. If op 30 plans another target instead, member 1 is left fenced, which is as good as
//!   released, and `Fence(30, 3)` comes next. The completion of (partition, 20) finds no such move, and
//!   changes nothing.
//! * *An epoch that nobody has.* F rises with any epoch above it that comes with a store or poll, so an
//!   invented one must not get that far: an epoch above the last op applied here waits until it is
//!   applied, and is then the owner's or refused. The epoch of a move is known to others before its
//!   target owns it; under it a request waits, too, until the move is complete or planned otherwise.
//! * *Two owners* cannot be written down (see the table of `Ownership`), and two members never have one
//!   epoch of a partition, because an op plans each partition for one member, and is told of it only when
//!   it owns the partition. So whoever comes with the epoch F is the holder, and the state machine checks
//!   that, too.
//!
//! A shard that lags behind may still admit polls of member 1 after M1: until D they are served like
//! those before the join. Its waiting polls end when it applies M1.

use alloc::format;

use wire::{ClientId, Epoch, ErrorCode, Failure, MemberId, Op, PartitionId, SessionNumber};

use crate::{GroupName, Holder, Holding, MembershipRefused, OwnershipView};

/// What a session asks of a partition in its group's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The client.
    pub client: ClientId,
    /// Its session.
    pub session: SessionNumber,
    /// The epoch under which it believes to own the partition.
    pub epoch: Epoch,
    /// What for.
    pub intent: Intent,
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To read messages.
    Poll,
    /// To store an offset.
    Store,
    /// To store an offset and let the partition go.
    Release {
        /// The epoch of the move that it is let go for.
        planned: Epoch,
    },
}

/// Whether a claim is admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The epoch is the owner's.
    Serve(Right),
    /// The epoch is an older one of the same unbroken ownership: it is served under the owner's.
    Lift(Right),
    /// It cannot be judged yet. Not for long: then it is answered with `Retry`.
    Park(Park),
    /// The partition is somebody else's, nobody's, or the session's under another epoch.
    NotOwned,
    /// It is being revoked: no more polls.
    Revoking {
        /// The epoch of the move, for the release.
        planned: Epoch,
    },
    /// The session is not a member, or not any more.
    NotMember(MembershipRefused),
    /// The topic does not have the partition.
    PartitionNotFound {
        /// How many it has.
        partitions: u32,
    },
}

/// What an admitted request carries to the data group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// The member.
    pub member: MemberId,
    /// The epoch of the request from here on.
    pub epoch: Epoch,
    /// Of a release: the epoch and member that the fence is raised for once the store is accepted. None
    /// when the move that the release names is not planned any more: then it is a store only.
    pub release: Option<(Epoch, MemberId)>,
}

/// What a parked claim waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Park {
    /// That the metadata op is applied here.
    Applied(Op),
    /// That the move of the partition to this epoch is complete, or planned otherwise.
    Moved(Epoch),
}

impl Claim {
    /// The op that must be applied before the claim can be judged.
    pub(crate) fn rests_on(&self) -> Op {
        let planned = match self.intent {
            Intent::Release { planned } => planned,
            Intent::Poll | Intent::Store => Epoch(0),
        };
        Op(self.epoch.max(planned).0)
    }
}

/// Judges a member's claim that rests on nothing newer than the view.
pub(crate) fn admit(view: &OwnershipView, member: MemberId, claim: &Claim) -> Admission {
    let session = |holder: Holder| {
        holder.member == member && holder.client == claim.client && holder.session == claim.session
    };
    let (held_since, planned) = match view.holding {
        Holding::Owned { owner, held_since } if session(owner) => (held_since, None),
        Holding::Revoking {
            owner,
            held_since,
            to,
            epoch,
            ..
        } if session(owner) => (held_since, Some((epoch, to.member))),
        Holding::Revoking { to, epoch, .. }
        | Holding::Fencing {
            to: Some(to),
            epoch,
            ..
        } if session(to) && epoch == claim.epoch => return Admission::Park(Park::Moved(epoch)),
        Holding::Nobody
        | Holding::Owned { .. }
        | Holding::Revoking { .. }
        | Holding::Fencing { .. } => return Admission::NotOwned,
    };
    if claim.epoch < held_since || claim.epoch > view.epoch {
        return Admission::NotOwned;
    }
    let release = match (claim.intent, planned) {
        (Intent::Poll, Some((planned, _))) => return Admission::Revoking { planned },
        (Intent::Release { planned }, Some((epoch, to))) if planned == epoch => Some((epoch, to)),
        (Intent::Poll | Intent::Store | Intent::Release { .. }, _) => None,
    };
    let right = Right {
        member,
        epoch: view.epoch,
        release,
    };
    if claim.epoch == view.epoch {
        Admission::Serve(right)
    } else {
        Admission::Lift(right)
    }
}

impl Admission {
    /// What the claim on `partition` is answered with, if it is refused. A parked one whose time is over
    /// gets its answer here, too.
    #[must_use]
    pub fn refusal(
        &self,
        group: &GroupName,
        partition: PartitionId,
        claim: &Claim,
    ) -> Option<Failure> {
        let epoch = claim.epoch;
        let (code, text) = match self {
            Self::Serve(_) | Self::Lift(_) => return None,
            Self::NotMember(refused) => return Some(refused.clone().into()),
            Self::Park(Park::Applied(op)) => (
                ErrorCode::Retry,
                format!(
                    "this node has not applied metadata op {op} yet, on which the request rests"
                ),
            ),
            Self::Park(Park::Moved(planned)) => (
                ErrorCode::Retry,
                format!("partition {partition} of {group} is on its way, under epoch {planned}"),
            ),
            Self::NotOwned => (
                ErrorCode::PartitionNotOwned,
                format!(
                    "partition {partition} of {group} is not owned by the session under epoch {epoch}"
                ),
            ),
            Self::Revoking { planned } => (
                ErrorCode::PartitionRevoking,
                format!(
                    "partition {partition} of {group} is being revoked; store what was polled and release it to epoch {planned}"
                ),
            ),
            Self::PartitionNotFound { partitions } => (
                ErrorCode::PartitionNotFound,
                format!(
                    "partition {partition} does not exist in the topic of {group}, which has {partitions}"
                ),
            ),
        };
        Some(Failure::new(code, text))
    }
}

#[cfg(test)]
mod tests;
