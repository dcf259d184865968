//! Somebody who does with consumer groups whatever the protocol lets it, by the rules or against them:
//! epochs that are others', old, or not yet there; stores that come late and again; releases of what was
//! never its; it joins and says nothing more; it resets, deletes and removes.

use std::{collections::BTreeSet, time::Duration};

use catalog::GroupKey;
use client::{Retry, Route, Ticket};
use wire::{
    Consumer, ConsumerGroupOptionsUpdate, CreateConsumerGroup, DeleteConsumerGroup, Epoch,
    GetConsumerGroup, GetConsumerGroups, GetConsumerOffset, Identifier, JoinConsumerGroup,
    LeaveConsumerGroup, MemberId, Offset, PartitionId, PartitionKey, PollMessages, PollSection,
    PollStrategy, ReleasePartition, ReleaseSection, RemoveMember, Request, ResetConsumerOffset,
    ResetSection, ResetTarget, StoreConsumerOffset, StoreSection, SyncConsumerGroup, Timestamp,
    UpdateConsumerGroup,
};

use super::{Desk, member::options};
use crate::{checks::groups::all_groups, run::MILLISECOND};

/// Requests that are sent again now and then.
const KEPT: usize = 12;

/// A rogue.
#[derive(Debug, Default)]
pub(super) struct Rogue {
    asked: BTreeSet<Ticket>,
    kept: Vec<Request>,
    next_at: u64,
}

/// A group that something is done to.
struct Target {
    key: GroupKey,
    partitions: u32,
}

impl Rogue {
    pub(super) fn on_answer(&mut self, ticket: Ticket) {
        self.asked.remove(&ticket);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    pub(super) const fn deadline(&self) -> u64 {
        self.next_at
    }

    pub(super) fn drive(&mut self, desk: &mut Desk<'_>) {
        if desk.now.monotonic < self.next_at {
            return;
        }
        let pause = desk.random.around(8 * MILLISECOND);
        self.next_at = desk.after(pause);
        if !desk.may_begin() || self.asked.len() >= 5 {
            return;
        }
        let request = match desk.random.chance(60) && !self.kept.is_empty() {
            true => desk.random.pick(&self.kept).clone(),
            false => match Target::pick(desk) {
                Some(target) => target.any_request(desk),
                None => return,
            },
        };
        if matches!(
            request,
            Request::StoreConsumerOffset(_)
                | Request::ReleasePartition(_)
                | Request::PollMessages(_)
                | Request::JoinConsumerGroup(_)
        ) {
            if self.kept.len() == KEPT {
                self.kept.remove(0);
            }
            self.kept.push(request.clone());
        }
        let timeout = Duration::from_millis(desk.random.between(100, 2_000));
        let retry = match desk.random.chance(600) {
            true => Retry::Session,
            false => Retry::Caller,
        };
        let lane = u16::try_from(desk.random.below(4)).unwrap_or(0);
        let ticket = desk.submit_on(Route::any(lane), request, timeout, retry);
        self.asked.insert(ticket);
    }
}

impl Target {
    fn pick(desk: &mut Desk<'_>) -> Option<Self> {
        if desk.random.chance(30) {
            let gone: Vec<GroupKey> = desk.ledger.groups().deleted().collect();
            if !gone.is_empty() {
                let key = *desk.random.pick(&gone);
                return Some(Self { key, partitions: 2 });
            }
        }
        let all = all_groups(desk.ledger.catalog());
        if all.is_empty() {
            return None;
        }
        let (key, group) = desk.random.pick(&all);
        Some(Self {
            key: *key,
            partitions: group.partition_count(),
        })
    }

    fn any_request(&self, desk: &mut Desk<'_>) -> Request {
        match desk.random.below(1_000) {
            0..90 => self.join(desk),
            90..110 => LeaveConsumerGroup {
                stream: self.stream(),
                topic: self.topic(),
                group: self.group(),
            }
            .into(),
            110..200 => SyncConsumerGroup::from(self.key).into(),
            200..450 => self.poll(desk),
            450..720 => self.store(desk),
            720..850 => self.release(desk),
            850..890 => GetConsumerGroup {
                stream: self.stream(),
                topic: self.topic(),
                group: self.group(),
            }
            .into(),
            890..910 => GetConsumerGroups {
                stream: self.stream(),
                topic: self.topic(),
                after: wire::ConsumerGroupId(desk.random.below(3)),
                limit: u32::try_from(desk.random.below(3)).unwrap_or(0),
            }
            .into(),
            910..940 => GetConsumerOffset {
                stream: self.stream(),
                topic: self.topic(),
                consumer: Consumer::Group(self.group()),
                partitions: self.some_partitions(desk),
            }
            .into(),
            _ => self.command(desk),
        }
    }

    fn command(&self, desk: &mut Desk<'_>) -> Request {
        let (stream, topic, group) = (self.stream(), self.topic(), self.group());
        match desk.random.below(100) {
            0..20 => UpdateConsumerGroup {
                stream,
                topic,
                group,
                options: ConsumerGroupOptionsUpdate {
                    start: None,
                    ..options(desk)
                },
            }
            .into(),
            20..40 => RemoveMember {
                stream,
                topic,
                group,
                member: MemberId(desk.random.between(1, 12)),
            }
            .into(),
            40..55 => CreateConsumerGroup {
                stream,
                topic,
                name: format!("group-{}", desk.random.below(4)),
                options: options(desk),
            }
            .into(),
            55..65 => DeleteConsumerGroup {
                stream,
                topic,
                group,
                force: desk.random.chance(400),
            }
            .into(),
            _ => self.reset(desk),
        }
    }

    fn reset(&self, desk: &mut Desk<'_>) -> Request {
        let partitions = self.some_partitions(desk).into_iter();
        let sections = partitions.map(|partition| ResetSection {
            partition,
            to: self.target(desk, partition),
        });
        let sections = sections.collect();
        let others = match desk.random.chance(300) {
            true => Some(ResetTarget::Earliest),
            false => None,
        };
        ResetConsumerOffset {
            stream: self.stream(),
            topic: self.topic(),
            group: self.group(),
            force: desk.random.chance(500),
            others,
            sections,
        }
        .into()
    }

    fn target(&self, desk: &mut Desk<'_>, partition: PartitionId) -> ResetTarget {
        match desk.random.below(5) {
            0 => ResetTarget::Earliest,
            1 => ResetTarget::Latest,
            2 => ResetTarget::Nothing,
            3 => {
                let back = desk.random.below(4_000_000);
                ResetTarget::Timestamp(Timestamp(desk.now.wall.0.saturating_sub(back)))
            }
            _ => {
                let end = self.end(desk, partition);
                ResetTarget::Offset(Offset(desk.random.below(end + 3)))
            }
        }
    }

    fn join(&self, desk: &mut Desk<'_>) -> Request {
        let instance = desk
            .random
            .chance(300)
            .then(|| format!("instance-{}", desk.random.below(3)));
        JoinConsumerGroup {
            stream: self.stream(),
            topic: self.topic(),
            group: self.group(),
            instance,
            weight: *desk.random.pick(&[1, 1, 1, 1, 0, 3]),
        }
        .into()
    }

    fn poll(&self, desk: &mut Desk<'_>) -> Request {
        let mut partitions = self.some_partitions(desk);
        let commit_on_poll = desk.random.chance(150);
        if commit_on_poll {
            partitions.truncate(1);
        }
        let sections = partitions.into_iter().map(|partition| PollSection {
            partition,
            epoch: self.epoch(desk, partition),
            strategy: match desk.random.below(4) {
                0 => PollStrategy::First,
                1 => PollStrategy::Offset(Offset(desk.random.below(40))),
                _ => PollStrategy::Next,
            },
        });
        let sections = sections.collect();
        let waits = u32::from(desk.random.chance(400));
        PollMessages {
            stream: self.stream(),
            topic: self.topic(),
            consumer: Consumer::Group(self.group()),
            max_messages: 30,
            max_bytes: 8_000,
            min_bytes: waits,
            max_wait_ms: waits * 300,
            commit_on_poll,
            sections,
        }
        .into()
    }

    fn store(&self, desk: &mut Desk<'_>) -> Request {
        let partitions = self.some_partitions(desk).into_iter();
        let sections = partitions.map(|partition| StoreSection {
            partition,
            epoch: self.epoch(desk, partition),
            offset: self.offset(desk, partition),
        });
        StoreConsumerOffset {
            stream: self.stream(),
            topic: self.topic(),
            consumer: Consumer::Group(self.group()),
            sections: sections.collect(),
        }
        .into()
    }

    fn release(&self, desk: &mut Desk<'_>) -> Request {
        let partitions = self.some_partitions(desk).into_iter();
        let sections = partitions.map(|partition| ReleaseSection {
            partition,
            epoch: self.epoch(desk, partition),
            planned: self.epoch(desk, partition),
            offset: match desk.random.chance(700) {
                true => Some(self.offset(desk, partition)),
                false => None,
            },
        });
        ReleasePartition {
            stream: self.stream(),
            topic: self.topic(),
            group: self.group(),
            sections: sections.collect(),
        }
        .into()
    }

    /// An epoch: the owner's, that of a move, an old one, one that is not there yet, or none at all.
    fn epoch(&self, desk: &mut Desk<'_>, partition: PartitionId) -> Epoch {
        let known = desk.ledger.groups().epochs(&self.key, partition);
        let applied = desk.ledger.catalog().applied().0;
        match desk.random.below(20) {
            0 => Epoch(0),
            1 => Epoch(u64::MAX),
            2 | 3 => Epoch(applied + desk.random.between(1, 6)),
            4 => Epoch(desk.random.below(applied + 1)),
            5..8 if !known.is_empty() => *desk.random.pick(&known),
            8..11 if known.len() > 1 => known[known.len() - 2],
            _ => known.last().copied().unwrap_or(Epoch(applied)),
        }
    }

    fn offset(&self, desk: &mut Desk<'_>, partition: PartitionId) -> Offset {
        let end = self.end(desk, partition);
        Offset(match desk.random.below(10) {
            0 => end + desk.random.below(3),
            1..4 => desk.random.below(end + 1),
            _ => end.saturating_sub(desk.random.between(1, 10)),
        })
    }

    fn end(&self, desk: &Desk<'_>, partition: PartitionId) -> u64 {
        let key = PartitionKey {
            stream: self.key.stream,
            topic: self.key.topic,
            partition,
        };
        let mut live = desk.ledger.live_partitions();
        live.find(|(at, _)| *at == key)
            .map_or(0, |(_, model)| model.end())
    }

    fn some_partitions(&self, desk: &mut Desk<'_>) -> Vec<PartitionId> {
        let count = u64::from(self.partitions.max(1)) + u64::from(desk.random.chance(20));
        let mut chosen = BTreeSet::new();
        for _ in 0..desk.random.between(1, 3) {
            let partition = desk.random.below(count);
            chosen.insert(PartitionId(u32::try_from(partition).unwrap_or(0)));
        }
        chosen.into_iter().collect()
    }

    fn stream(&self) -> Identifier {
        self.key.stream.into()
    }

    fn topic(&self) -> Identifier {
        self.key.topic.into()
    }

    fn group(&self) -> Identifier {
        self.key.group.into()
    }
}
