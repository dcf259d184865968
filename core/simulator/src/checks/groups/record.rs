//! What a consumer group should have in one incarnation of a partition: fence, holder, stored offset. A
//! plain model of the rules, written apart from the `partition` crate.

use partition::{EpochHolder, FenceOffset, Grant, GroupCommand, Refusal, StartAt};
use wire::{Epoch, GroupStart, Offset, ResetTarget, Timestamp};

use crate::checks::partition::{PartitionModel, Step, Window};

/// Fence, holder and offset of a consumer group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) fence: Epoch,
    pub(crate) holder: Option<EpochHolder>,
    pub(crate) reached: Reached,
}

/// How far a consumer group is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Nothing is stored, and where it starts is not decided.
    #[default]
    Unresolved,
    /// Nothing is stored; it starts at this offset.
    Start(u64),
    /// Nothing is stored; it starts at the first message of this time or a later one.
    Time(Timestamp),
    /// The last message processed.
    Stored(u64),
}

impl Reached {
    pub(crate) const fn stored(self) -> Option<u64> {
        match self {
            Self::Stored(offset) => Some(offset),
            Self::Unresolved | Self::Start(_) | Self::Time(_) => None,
        }
    }
}

/// A record with all that it ever was.
#[derive(Debug, Default)]
pub(crate) struct Record {
    history: Vec<(Step, State)>,
}

/// What a command came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was carried out, perhaps without effect.
    Done,
    /// Refused.
    Refused(Refusal),
}

impl Record {
    /// As it is now.
    pub(crate) fn now(&self) -> State {
        self.history
            .last()
            .map(|(_, state)| *state)
            .unwrap_or_default()
    }

    /// All that it was at some time in the window.
    pub(crate) fn within(&self, window: Window) -> impl Iterator<Item = State> {
        let before = self
            .history
            .partition_point(|(step, _)| *step <= window.from);
        let first = before
            .checked_sub(1)
            .map(|last| self.history[last].1)
            .unwrap_or_default();
        let rest = self.history[before..].iter();
        let rest = rest.take_while(move |(step, _)| *step <= window.to);
        std::iter::once(first).chain(rest.map(|(_, state)| *state))
    }

    /// It is forgotten.
    pub(crate) fn forget(&mut self, step: Step) {
        self.history.push((step, State::default()));
    }

    /// Carries out a command. `told` is the start that the node has made of a time, which may be left as a
    /// time or not, but must mean the same.
    pub(crate) fn apply(
        &mut self,
        (step, now): (Step, Timestamp),
        partition: &PartitionModel,
        command: &GroupCommand,
        told: Option<StartAt>,
    ) -> Result<Verdict, String> {
        let mut state = self.now();
        let verdict = match command {
            GroupCommand::Fence {
                epoch,
                holder,
                offset,
            } => {
                let raised = raise(&mut state, *epoch, *holder);
                let is_its_own = state.fence == *epoch && state.holder == *holder;
                let resolve = |start| resolve(partition, start, now, told);
                match offset {
                    FenceOffset::Start(start)
                        if state.reached == Reached::Unresolved && is_its_own =>
                    {
                        state.reached = resolve(*start)?;
                    }
                    FenceOffset::Reset(target) if raised => {
                        state.reached = match target {
                            ResetTarget::Nothing => Reached::Unresolved,
                            ResetTarget::Earliest => resolve(GroupStart::Earliest)?,
                            ResetTarget::Latest => resolve(GroupStart::Latest)?,
                            ResetTarget::Timestamp(time) => resolve(GroupStart::Timestamp(*time))?,
                            ResetTarget::Offset(offset) => match partition.end().checked_sub(1) {
                                Some(last) => Reached::Stored(offset.0.min(last)),
                                None => Reached::Start(0),
                            },
                        };
                    }
                    FenceOffset::Keep | FenceOffset::Start(_) | FenceOffset::Reset(_) => {}
                }
                Verdict::Done
            }
            GroupCommand::Store { grant, offset } => {
                store(&mut state, partition, *grant, Some(*offset))
            }
            GroupCommand::Release { grant, offset, to } => {
                let verdict = store(&mut state, partition, *grant, *offset);
                if verdict == Verdict::Done {
                    raise(&mut state, to.epoch, Some(to.holder));
                }
                verdict
            }
        };
        if state != self.now() {
            self.history.push((step, state));
        }
        Ok(verdict)
    }
}

fn raise(state: &mut State, epoch: Epoch, holder: Option<EpochHolder>) -> bool {
    let raised = epoch > state.fence;
    if raised {
        (state.fence, state.holder) = (epoch, holder);
    }
    raised
}

fn store(
    state: &mut State,
    partition: &PartitionModel,
    grant: Grant,
    offset: Option<Offset>,
) -> Verdict {
    let Grant { epoch, holder } = grant;
    if epoch < state.fence {
        let fence = state.fence;
        return Verdict::Refused(Refusal::StaleEpoch { epoch, fence });
    }
    if epoch == state.fence && state.holder != Some(holder) {
        return Verdict::Refused(Refusal::NotHolder {
            epoch,
            here: state.holder,
            asked: holder,
        });
    }
    raise(state, epoch, Some(holder));
    let Some(offset) = offset else {
        return Verdict::Done;
    };
    if state.reached.stored() >= Some(offset.0) {
        return Verdict::Done;
    }
    if offset.0 >= partition.end() {
        return Verdict::Refused(Refusal::OffsetOutOfRange {
            offset,
            start: Offset(partition.start()),
            end: Offset(partition.end()),
        });
    }
    state.reached = Reached::Stored(offset.0);
    Verdict::Done
}

fn resolve(
    partition: &PartitionModel,
    start: GroupStart,
    now: Timestamp,
    told: Option<StartAt>,
) -> Result<Reached, String> {
    let time = match start {
        GroupStart::Earliest => return Ok(Reached::Start(partition.start())),
        GroupStart::Latest => return Ok(Reached::Start(partition.end())),
        GroupStart::Timestamp(time) => time,
    };
    let batch = partition.batch_since(time);
    let offset = batch.map_or(partition.end(), |batch| batch.base.max(partition.start()));
    match told {
        Some(StartAt::Time(told)) if told == time => Ok(Reached::Time(time)),
        Some(StartAt::Offset(told)) if told.0 == offset && (batch.is_some() || time <= now) => {
            Ok(Reached::Start(offset))
        }
        told => Err(format!(
            "the start at {time} is {told:?}; the first such message is {offset}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use partition::{EpochHolder, FenceOffset, Grant, GroupCommand, Refusal, StartAt};
    use wire::{
        BatchBuilder, ConsensusGroup, Epoch, GroupStart, Incarnation, MemberId, Message, Offset,
        ProducerId, ResetTarget, SessionNumber, Timestamp,
    };

    use super::{Reached, Record, Verdict};
    use crate::checks::partition::{PartitionLimits, PartitionModel, Window};

    fn partition() -> PartitionModel {
        let limits = PartitionLimits {
            producers_max: 1,
            consumers_max: 1,
        };
        let mut model = PartitionModel::new(ConsensusGroup(1), Incarnation(1), (1, 0));
        for time in [10, 20, 30] {
            let mut builder = BatchBuilder::new();
            for _ in 0..2 {
                builder.push(&Message {
                    payload: Bytes::from_static(b"x"),
                    ..Message::default()
                });
            }
            let batch = builder.build(ProducerId(0), 0);
            model.append(1, Timestamp(time), &batch, limits);
        }
        model
    }

    const fn grant(epoch: u64, member: u64) -> Grant {
        Grant {
            epoch: Epoch(epoch),
            holder: EpochHolder {
                member: MemberId(member),
                session: SessionNumber(member + 100),
            },
        }
    }

    const fn store(epoch: u64, member: u64, offset: u64) -> GroupCommand {
        GroupCommand::Store {
            grant: grant(epoch, member),
            offset: Offset(offset),
        }
    }

    fn fence(to: Grant, offset: FenceOffset) -> GroupCommand {
        GroupCommand::Fence {
            epoch: to.epoch,
            holder: Some(to.holder),
            offset,
        }
    }

    fn apply(record: &mut Record, step: u64, command: &GroupCommand) -> Verdict {
        let at = (step, Timestamp(40));
        record.apply(at, &partition(), command, None).unwrap()
    }

    #[test]
    fn fence_refuses_what_is_older_and_whoever_else_comes_with_its_epoch() {
        let mut record = Record::default();
        assert_eq!(apply(&mut record, 2, &store(5, 1, 3)), Verdict::Done);
        let to = grant(8, 2);
        apply(&mut record, 3, &fence(to, FenceOffset::Keep));
        assert!(matches!(
            apply(&mut record, 4, &store(5, 1, 4)),
            Verdict::Refused(Refusal::StaleEpoch { .. })
        ));
        assert!(matches!(
            apply(&mut record, 4, &store(8, 1, 4)),
            Verdict::Refused(Refusal::NotHolder { .. })
        ));
        assert_eq!(record.now().reached, Reached::Stored(3));
        let states: Vec<_> = record
            .within(Window { from: 2, to: 3 })
            .map(|state| state.fence)
            .collect();
        assert_eq!(states, [Epoch(5), Epoch(8)]);
    }

    #[test]
    fn stored_offset_falls_by_a_reset_only() {
        let mut record = Record::default();
        apply(&mut record, 2, &store(5, 1, 4));
        apply(&mut record, 3, &store(5, 1, 2));
        assert_eq!(record.now().reached, Reached::Stored(4));
        assert!(matches!(
            apply(&mut record, 3, &store(5, 1, 6)),
            Verdict::Refused(Refusal::OffsetOutOfRange { .. })
        ));
        let back = FenceOffset::Reset(ResetTarget::Offset(Offset(1)));
        apply(&mut record, 4, &fence(grant(9, 1), back));
        assert_eq!(record.now().reached, Reached::Stored(1));
        apply(&mut record, 5, &fence(grant(9, 1), back));
        record.forget(6);
        assert_eq!(record.now().reached, Reached::Unresolved);
    }

    #[test]
    fn release_without_right_hands_nothing_over() {
        let mut record = Record::default();
        apply(&mut record, 2, &store(5, 1, 0));
        let release = |from| GroupCommand::Release {
            grant: from,
            offset: Some(Offset(2)),
            to: grant(9, 2),
        };
        apply(&mut record, 3, &release(grant(4, 3)));
        assert_eq!(record.now().fence, Epoch(5));
        apply(&mut record, 4, &release(grant(5, 1)));
        assert_eq!(record.now().holder, Some(grant(9, 2).holder));
        assert_eq!(record.now().reached, Reached::Stored(2));
    }

    #[test]
    fn start_by_time_means_the_first_message_of_that_time() {
        let start = |time| FenceOffset::Start(GroupStart::Timestamp(Timestamp(time)));
        let told = |offset| Some(StartAt::Offset(Offset(offset)));
        let resolve = |time, told| {
            let mut record = Record::default();
            let command = fence(grant(5, 1), start(time));
            let result = record.apply((2, Timestamp(40)), &partition(), &command, told);
            result.map(|_| record.now().reached)
        };
        assert_eq!(resolve(15, told(2)), Ok(Reached::Start(2)));
        assert_eq!(resolve(35, told(6)), Ok(Reached::Start(6)));
        assert!(resolve(15, told(0)).is_err());
        assert!(resolve(50, told(6)).is_err(), "that time has not come");
        let time = Some(StartAt::Time(Timestamp(15)));
        assert_eq!(resolve(15, time), Ok(Reached::Time(Timestamp(15))));
    }
}
