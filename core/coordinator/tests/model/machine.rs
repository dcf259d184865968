//! The data group's state machine: as the model has it, and held against the crate that it is about.

use bytes::Bytes;
use partition::{
    DataConfig, DataGroup, DataRequest, DataResult, EpochHolder, FenceOffset, Grant, GroupCommand,
    PollRight,
};
use wire::{
    BatchBuilder, ConsensusGroup, ConsumerGroupId, Epoch, GroupStart, Incarnation, MemberId,
    Message, Offset, Op, PartitionId, PartitionKey, ProducerId, ResetTarget, SessionNumber,
    StreamId, Timestamp, TopicId,
};

use super::metadata::{OpNumber, SESSIONS, Session};

/// A position: the offset of the next message. As what is stored, 0 is "none stored".
pub(crate) type Position = u8;

/// Who asks, and under which epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) session: Session,
    pub(crate) epoch: OpNumber,
}

/// What the data group keeps of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) fence: OpNumber,
    /// 0: nobody.
    pub(crate) holder: Session,
    pub(crate) stored: Position,
}

/// An op of the data group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataOp {
    Fence {
        to: Claim,
        /// Nothing that the source was served may come again: it has drained the partition.
        clean: bool,
    },
    Store {
        claim: Claim,
        stored: Position,
    },
    Release {
        claim: Claim,
        stored: Position,
        to: Claim,
    },
}

/// The position as the offset of the last message before it.
pub(crate) fn offset(position: Position) -> Option<Offset> {
    let offset = position.checked_sub(1);
    offset.map(|offset| Offset(offset.into()))
}

impl Record {
    /// Whether a claim is neither stale nor somebody else's.
    pub(crate) const fn admits(&self, claim: Claim) -> bool {
        claim.epoch > self.fence || claim.epoch == self.fence && self.holder == claim.session
    }

    /// Says whether the fence was raised.
    pub(crate) const fn raise(&mut self, to: Claim) -> bool {
        let raised = to.epoch > self.fence;
        if raised {
            self.fence = to.epoch;
            self.holder = to.session;
        }
        raised
    }

    /// Says whether the op was accepted.
    fn apply(&mut self, op: DataOp) -> bool {
        let (claim, stored, to) = match op {
            DataOp::Fence { to, .. } => {
                self.raise(to);
                return true;
            }
            DataOp::Store { claim, stored } => (claim, stored, None),
            DataOp::Release { claim, stored, to } => (claim, stored, Some(to)),
        };
        if !self.admits(claim) {
            return false;
        }
        self.raise(claim);
        self.stored = self.stored.max(stored);
        if let Some(to) = to {
            self.raise(to);
        }
        true
    }

    /// The record after an op.
    pub(crate) fn after(mut self, op: DataOp) -> Self {
        self.apply(op);
        self
    }
}

const KEY: PartitionKey = PartitionKey {
    stream: StreamId(1),
    topic: TopicId(1),
    partition: PartitionId(0),
};
const INCARNATION: Incarnation = Incarnation(1);
const GROUP: ConsumerGroupId = ConsumerGroupId(1);
const MESSAGES: Position = 2;
const EPOCHS_MAX: OpNumber = 4;

fn grant(claim: Claim) -> Grant {
    Grant {
        epoch: Epoch(claim.epoch.into()),
        holder: EpochHolder {
            member: MemberId(claim.session.into()),
            session: SessionNumber(claim.session.into()),
        },
    }
}

fn request(command: GroupCommand) -> DataRequest {
    DataRequest::ConsumerGroup {
        key: KEY,
        incarnation: INCARNATION,
        admitted: Op(1),
        group: GROUP,
        command,
    }
}

fn command(op: DataOp) -> GroupCommand {
    match op {
        DataOp::Fence { to, .. } => GroupCommand::Fence {
            epoch: grant(to).epoch,
            holder: Some(grant(to).holder),
            offset: FenceOffset::Start(GroupStart::Earliest),
        },
        DataOp::Store { claim, stored } => GroupCommand::Store {
            grant: grant(claim),
            offset: offset(stored).expect("something is stored"),
        },
        DataOp::Release { claim, stored, to } => GroupCommand::Release {
            grant: grant(claim),
            offset: offset(stored),
            to: grant(to),
        },
    }
}

/// A data group with one partition and its messages, and this record of the group.
fn group_with(record: Record) -> DataGroup {
    let mut group = DataGroup::new(DataConfig::new(ConsensusGroup(1)));
    let create = DataRequest::CreatePartition {
        key: KEY,
        incarnation: INCARNATION,
        admitted: Op(1),
    };
    group.apply(Op(1), Timestamp(1), create);
    let mut batch = BatchBuilder::new();
    for _ in 0..MESSAGES {
        batch.push(&Message {
            payload: Bytes::from_static(b"m"),
            ..Message::default()
        });
    }
    let append = DataRequest::Append {
        key: KEY,
        incarnation: INCARNATION,
        admitted: Op(1),
        batch: batch.build(ProducerId(0), 0),
    };
    group.apply(Op(2), Timestamp(2), append);
    if record.fence > 0 {
        let grant = grant(Claim {
            session: record.holder,
            epoch: record.fence,
        });
        let target = offset(record.stored);
        let fence = GroupCommand::Fence {
            epoch: grant.epoch,
            holder: Some(grant.holder),
            offset: FenceOffset::Reset(target.map_or(ResetTarget::Earliest, ResetTarget::Offset)),
        };
        group.apply(Op(3), Timestamp(3), request(fence));
    }
    assert_eq!(seen(&group), record);
    group
}

/// What the data group has, in the model's words.
fn seen(group: &DataGroup) -> Record {
    let record = group.group_record(KEY, INCARNATION, GROUP);
    let record = record.expect("the partition is there");
    let small = |number: u64| u8::try_from(number).expect("numbers of the model are small");
    Record {
        fence: small(record.fence.0),
        holder: record.holder.map_or(0, |holder| small(holder.session.0)),
        stored: record.stored.map_or(0, |stored| small(stored.0 + 1)),
    }
}

fn claims() -> impl Iterator<Item = Claim> + Clone {
    SESSIONS
        .into_iter()
        .flat_map(|session| (1..=EPOCHS_MAX).map(move |epoch| Claim { session, epoch }))
}

fn ops() -> Vec<DataOp> {
    let fences = claims().map(|to| DataOp::Fence { to, clean: false });
    let stores = claims()
        .flat_map(|claim| (1..=MESSAGES).map(move |stored| DataOp::Store { claim, stored }));
    let releases = claims().flat_map(|claim| {
        let above = claims().filter(move |to| to.epoch > claim.epoch);
        above.flat_map(move |to| {
            (0..=MESSAGES).map(move |stored| DataOp::Release { claim, stored, to })
        })
    });
    fences.chain(stores).chain(releases).collect()
}

/// Holds every op in every record, and every poll, against the `partition` crate. Answers how many.
pub(crate) fn compare() -> usize {
    let held = claims().flat_map(|claim| {
        (0..=MESSAGES).map(move |stored| Record {
            fence: claim.epoch,
            holder: claim.session,
            stored,
        })
    });
    let mut compared = 0;
    for record in [Record::default()].into_iter().chain(held) {
        for op in ops() {
            let mut own = record;
            let accepted = own.apply(op);
            let mut group = group_with(record);
            let result = group.apply(Op(4), Timestamp(4), request(command(op)));
            assert_eq!(
                (accepted, own),
                (!matches!(result, DataResult::Failed(_)), seen(&group)),
                "{record:?}, {op:?}"
            );
            compared += 1;
        }
        let group = group_with(record);
        for claim in claims() {
            let right = group.poll_right(KEY, INCARNATION, GROUP, grant(claim));
            let right = right.map(|right| right == PollRight::FenceFirst);
            let own = record.admits(claim).then_some(claim.epoch > record.fence);
            assert_eq!(right.ok(), own, "{record:?}, {claim:?}");
            compared += 1;
        }
    }
    compared
}
