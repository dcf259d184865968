//! The naive model of consumer groups: the rules, one after the other.

use wire::{GroupStart, ResetTarget};

use super::{
    reference::{Model, ModelPartition},
    *,
};
use crate::{EpochHolder, FenceOffset, Grant, GroupCommand, GroupRecord, Refusal, StartAt};

/// What groups ask. Epochs, members and admissions are drawn without regard to each other: late,
/// repeated and reordered requests are the rule here.
#[derive(Clone, Debug)]
pub(super) struct GroupAsk {
    partition: u32,
    group: u64,
    back: u64,
    member: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Fence(u8, u8),
    Store(u8),
    Release(Option<u8>, u64),
    Drop,
}

pub(super) fn group_ask() -> impl Strategy<Value = GroupAsk> {
    let what = prop_oneof![
        6 => (0..10_u8, any::<u8>()).prop_map(|(kind, at)| What::Fence(kind, at)),
        6 => any::<u8>().prop_map(What::Store),
        3 => (proptest::option::of(any::<u8>()), 0..4_u64)
            .prop_map(|(at, ahead)| What::Release(at, ahead)),
        1 => Just(What::Drop),
    ];
    (partition(), 1..4_u64, 0..4_u64, 0..3_u64, what).prop_map(
        |(partition, group, back, member, what)| GroupAsk {
            partition,
            group,
            back,
            member,
            what,
        },
    )
}

fn holder(member: u64) -> EpochHolder {
    EpochHolder {
        member: MemberId(member),
        session: SessionNumber(member + 100),
    }
}

impl Pair {
    pub(super) fn group_request(&mut self, ask: &GroupAsk) -> DataRequest {
        let (key, group) = (key(ask.partition), ConsumerGroupId(ask.group));
        let incarnation = self.here(ask.partition).unwrap_or(WRONG);
        self.metadata_op += u64::from(ask.back == 0);
        let epoch = Epoch(self.metadata_op - ask.back);
        let grant = Grant {
            epoch,
            holder: holder(ask.member + 1),
        };
        let place = |at| Offset(self.place(ask.partition, at));
        let command = match ask.what {
            What::Fence(kind, at) => GroupCommand::Fence {
                epoch,
                holder: (ask.member > 0).then(|| holder(ask.member)),
                offset: self.fence_offset(kind, at, place(at)),
            },
            What::Store(at) => GroupCommand::Store {
                grant,
                offset: place(at),
            },
            What::Release(at, ahead) => GroupCommand::Release {
                grant,
                offset: at.map(place),
                to: Grant {
                    epoch: Epoch(epoch.0 + ahead),
                    holder: holder(3 - ask.member),
                },
            },
            What::Drop => {
                self.metadata_op += 1;
                return DataRequest::DropConsumerGroup {
                    key,
                    incarnation,
                    dropped: Op(self.metadata_op),
                    group,
                };
            }
        };
        DataRequest::ConsumerGroup {
            key,
            incarnation,
            admitted: Op(self.metadata_op - ask.back),
            group,
            command,
        }
    }

    fn fence_offset(&self, kind: u8, at: u8, place: Offset) -> FenceOffset {
        // From before the first message to after this prepare.
        let time = Timestamp(990 + (self.node.time - 980) * u64::from(at) / 256);
        match kind {
            0 => FenceOffset::Start(GroupStart::Earliest),
            1 => FenceOffset::Start(GroupStart::Latest),
            2 => FenceOffset::Start(GroupStart::Timestamp(time)),
            3 => FenceOffset::Reset(ResetTarget::Nothing),
            4 => FenceOffset::Reset(ResetTarget::Earliest),
            5 => FenceOffset::Reset(ResetTarget::Latest),
            6 => FenceOffset::Reset(ResetTarget::Timestamp(time)),
            7 => FenceOffset::Reset(ResetTarget::Offset(place)),
            _ => FenceOffset::Keep,
        }
    }

    /// Everything that groups have is what the model says, and a poll begins where it says.
    pub(super) fn check_groups(&self) {
        let time = self.node.time;
        for (partition, model) in &self.model.partitions {
            let (key, incarnation) = (key(*partition), model.incarnation);
            let found: Vec<_> = self.node.group.group_records(key).collect();
            assert_eq!(found.len(), model.groups.len());
            for (group, record) in found {
                let expected = model.shown(model.groups[&group], time);
                assert_eq!(model.shown(record, time), expected);
                let asked = self.node.group.group_record(key, incarnation, group);
                assert_eq!(asked, Ok(record));
            }
        }
    }
}

impl Model {
    /// `None` when the request is none of a group's.
    pub(super) fn try_group(
        &mut self,
        time: u64,
        request: &DataRequest,
    ) -> Option<Result<DataResult, Refusal>> {
        if let DataRequest::DropConsumerGroup { dropped, group, .. } = request {
            self.dropped = self.dropped.max(dropped.0);
            if let Some(model) = self.partitions.get_mut(&request.key().partition.0) {
                model.groups.remove(group);
            }
            return Some(Ok(DataResult::ConsumerGroupDropped { group: *group }));
        }
        let DataRequest::ConsumerGroup {
            admitted,
            group,
            command,
            ..
        } = request
        else {
            return None;
        };
        let (admitted, group, dropped) = (*admitted, *group, Op(self.dropped));
        let model = match self.named(request) {
            Ok(model) => model,
            Err(refusal) => return Some(Err(refusal)),
        };
        if !model.groups.contains_key(&group) && admitted < dropped {
            return Some(Err(Refusal::GroupGone { admitted, dropped }));
        }
        let record = model.groups.get(&group).copied().unwrap_or_default();
        let (record, outcome) = model.command(record, *command, time);
        if record.fence > Epoch(0) {
            model.groups.insert(group, record);
        }
        Some(outcome.map(|()| DataResult::Record { group, record }))
    }

    /// A result with the start as an offset, which the state machine leaves open when it would have to
    /// look into a segment. What is said of a partition that is gone since is not looked at.
    pub(super) fn shown(&self, request: &DataRequest, result: DataResult, time: u64) -> DataResult {
        let DataResult::Record { group, record } = result else {
            return result;
        };
        let model = self.partitions.get(&request.key().partition.0);
        let model = model.filter(|model| model.incarnation == request.incarnation());
        let erased = GroupRecord {
            start: None,
            ..record
        };
        let record = model.map_or(erased, |model| model.shown(record, time));
        DataResult::Record { group, record }
    }
}

impl ModelPartition {
    fn end(&self) -> Offset {
        Offset(self.messages.len() as u64)
    }

    fn at_time(&self, time: Timestamp, now: u64) -> StartAt {
        let messages = (0..).zip(&self.messages);
        let found = messages
            .filter(|(offset, _)| *offset >= self.start)
            .find(|(_, (sent, _))| *sent >= time.0);
        match found {
            Some((offset, _)) => StartAt::Offset(Offset(offset)),
            None if time.0 <= now => StartAt::Offset(self.end()),
            None => StartAt::Time(time),
        }
    }

    fn shown(&self, record: GroupRecord, now: u64) -> GroupRecord {
        let start = record.start.map(|start| match start {
            StartAt::Offset(offset) => StartAt::Offset(offset.max(Offset(self.start))),
            StartAt::Time(time) => self.at_time(time, now),
        });
        GroupRecord { start, ..record }
    }

    fn start(&self, start: GroupStart, now: u64) -> StartAt {
        match start {
            GroupStart::Earliest => StartAt::Offset(Offset(self.start)),
            GroupStart::Latest => StartAt::Offset(self.end()),
            GroupStart::Timestamp(time) => self.at_time(time, now),
        }
    }

    pub(super) fn command(
        &self,
        mut record: GroupRecord,
        command: GroupCommand,
        now: u64,
    ) -> (GroupRecord, Result<(), Refusal>) {
        let outcome = match command {
            GroupCommand::Fence {
                epoch,
                holder,
                offset,
            } => {
                self.fence(&mut record, (epoch, holder), offset, now);
                Ok(())
            }
            GroupCommand::Store { grant, offset } => self.accept(&mut record, grant, Some(offset)),
            GroupCommand::Release { grant, offset, to } => {
                let stored = self.accept(&mut record, grant, offset);
                if stored.is_ok() && to.epoch > record.fence {
                    (record.fence, record.holder) = (to.epoch, Some(to.holder));
                }
                stored
            }
        };
        (record, outcome)
    }

    fn fence(
        &self,
        record: &mut GroupRecord,
        (epoch, holder): (Epoch, Option<EpochHolder>),
        offset: FenceOffset,
        now: u64,
    ) {
        let raised = epoch > record.fence;
        if raised {
            (record.fence, record.holder) = (epoch, holder);
        }
        let open = (record.stored, record.start) == (None, None);
        match offset {
            FenceOffset::Start(start)
                if open && (record.fence, record.holder) == (epoch, holder) =>
            {
                record.start = Some(self.start(start, now));
            }
            FenceOffset::Reset(target) if raised => {
                (record.stored, record.start) = match target {
                    ResetTarget::Nothing => (None, None),
                    ResetTarget::Offset(_) if self.end() == Offset(0) => {
                        (None, Some(StartAt::Offset(Offset(0))))
                    }
                    ResetTarget::Offset(offset) => {
                        (Some(offset.min(Offset(self.end().0 - 1))), None)
                    }
                    ResetTarget::Earliest => (None, Some(self.start(GroupStart::Earliest, now))),
                    ResetTarget::Latest => (None, Some(self.start(GroupStart::Latest, now))),
                    ResetTarget::Timestamp(time) => (None, Some(self.at_time(time, now))),
                };
            }
            FenceOffset::Keep | FenceOffset::Start(_) | FenceOffset::Reset(_) => {}
        }
    }

    fn accept(
        &self,
        record: &mut GroupRecord,
        grant: Grant,
        offset: Option<Offset>,
    ) -> Result<(), Refusal> {
        let Grant { epoch, holder } = grant;
        let (fence, here) = (record.fence, record.holder);
        if epoch < fence {
            return Err(Refusal::StaleEpoch { epoch, fence });
        }
        if epoch == fence && here != Some(holder) {
            let asked = holder;
            return Err(Refusal::NotHolder { epoch, here, asked });
        }
        (record.fence, record.holder) = (epoch, Some(holder));
        let Some(offset) = offset else {
            return Ok(());
        };
        if record.stored.is_some_and(|stored| offset <= stored) {
            return Ok(());
        }
        if offset >= self.end() {
            return Err(self.out_of_range(offset));
        }
        (record.stored, record.start) = (Some(offset), None);
        Ok(())
    }
}
