//! Whether the owners of consumer groups' partitions get on: when each polled and stored for the last time. A
//! sign of life is something else, and no less: see `liveness`.

use alloc::{collections::BTreeMap, vec::Vec};

use catalog::GroupKey;
use wire::{ConsumerGroupId, Epoch, PartitionKey};

use crate::Shard;

/// A partition, for one of the consumer groups of its topic.
type Place = (PartitionKey, ConsumerGroupId);

/// For so long an owner leaves messages alone before its partition counts as stalled, nanoseconds.
const STALLED_AFTER: u64 = 30_000_000_000;

/// What this node has seen of the owners since it leads their data group.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// When it began to lead: who did nothing since then is not in `seen`.
    began: u64,
    seen: BTreeMap<Place, Seen>,
}

/// Monotonic times, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Seen {
    held_since: Epoch,
    /// When this node saw the ownership first.
    since: u64,
    polled: Option<u64>,
    stored: Option<u64>,
}

/// How long ago an owner did something, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Idle {
    pub(crate) polled: Option<u64>,
    pub(crate) stored: Option<u64>,
    /// Since it did either, got the partition, or this node began to lead.
    pub(crate) quiet: u64,
}

impl Activity {
    /// This node leads the data group from now on.
    pub(crate) fn begin(&mut self, now: u64) {
        self.began = now;
        self.seen.clear();
    }

    pub(crate) fn forget(&mut self, place: &Place) {
        self.seen.remove(place);
    }

    /// Consumer groups of a partition that something was seen of.
    pub(crate) fn groups_of(&self, key: PartitionKey) -> impl Iterator<Item = ConsumerGroupId> {
        let all = (key, ConsumerGroupId(0))..=(key, ConsumerGroupId(u64::MAX));
        self.seen.range(all).map(|((_, group), _)| *group)
    }

    /// The partition is owned since this epoch.
    pub(crate) fn owned(&mut self, place: Place, held_since: Epoch, now: u64) {
        self.entry(place, held_since, now);
    }

    pub(crate) fn polled(&mut self, place: Place, held_since: Epoch, now: u64) {
        self.entry(place, held_since, now).polled = Some(now);
    }

    /// Its owner, whoever that is, has stored an offset.
    pub(crate) fn stored(&mut self, place: Place, now: u64) {
        if let Some(seen) = self.seen.get_mut(&place) {
            seen.stored = Some(now);
        }
    }

    fn entry(&mut self, place: Place, held_since: Epoch, now: u64) -> &mut Seen {
        let begins = Seen {
            held_since,
            since: now,
            polled: None,
            stored: None,
        };
        let seen = self.seen.entry(place).or_insert(begins);
        if seen.held_since != held_since {
            *seen = begins;
        }
        seen
    }

    /// How the owner since this epoch gets on.
    pub(crate) fn idle(&self, place: &Place, held_since: Epoch, now: u64) -> Idle {
        let seen = self.seen.get(place);
        let seen = seen.filter(|seen| seen.held_since == held_since);
        let ago = |time: Option<u64>| time.map(|time| now.saturating_sub(time));
        let last = match seen {
            Some(seen) => seen.since.max(seen.polled.max(seen.stored).unwrap_or(0)),
            None => self.began,
        };
        Idle {
            polled: ago(seen.and_then(|seen| seen.polled)),
            stored: ago(seen.and_then(|seen| seen.stored)),
            quiet: now.saturating_sub(last),
        }
    }
}

impl Shard {
    /// Partitions that this shard leads, counted once for every consumer group, whose owner leaves messages alone.
    pub(crate) fn stalled_count(&self) -> u64 {
        let now = self.desk.now.monotonic;
        let mut count = 0;
        for host in self.data.values().filter(|host| host.member.serves()) {
            let places: Vec<Place> = host.memory.activity.seen.keys().copied().collect();
            for (key, group) in places {
                let name = GroupKey {
                    stream: key.stream,
                    topic: key.topic,
                    group,
                };
                let projected = self.projection.group(&name);
                let view = projected.and_then(|it| it.view(key.partition));
                let placement = self.projection.placement(&key);
                let Some((view, placement)) = view.zip(placement) else {
                    continue;
                };
                let Some(held_since) = view.held_since() else {
                    continue;
                };
                let idle = host.memory.activity.idle(&(key, group), held_since, now);
                let next = host.state.group_next(key, placement.incarnation, group);
                let end = host.state.end(key);
                let has_more = next.is_ok_and(|next| next < end);
                count += u64::from(has_more && idle.quiet >= STALLED_AFTER);
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use wire::{ConsumerGroupId, Epoch, PartitionId, PartitionKey, StreamId, TopicId};

    use super::{Activity, Idle, Place};

    const PLACE: Place = (
        PartitionKey {
            stream: StreamId(1),
            topic: TopicId(1),
            partition: PartitionId(0),
        },
        ConsumerGroupId(1),
    );

    #[test]
    fn quiet_is_whoever_neither_polls_nor_stores() {
        let mut activity = Activity::default();
        activity.begin(100);
        let idle = |activity: &Activity, now| activity.idle(&PLACE, Epoch(5), now);
        assert_eq!(idle(&activity, 130).quiet, 30, "it may have been so before");
        activity.owned(PLACE, Epoch(5), 150);
        activity.polled(PLACE, Epoch(5), 160);
        activity.stored(PLACE, 180);
        activity.owned(PLACE, Epoch(5), 190);
        let expected = Idle {
            polled: Some(40),
            stored: Some(20),
            quiet: 20,
        };
        assert_eq!(idle(&activity, 200), expected);
    }

    #[test]
    fn next_owner_begins_anew_and_so_does_the_next_primary() {
        let mut activity = Activity::default();
        activity.begin(100);
        activity.polled(PLACE, Epoch(5), 110);
        activity.owned(PLACE, Epoch(9), 120);
        let expected = Idle {
            polled: None,
            stored: None,
            quiet: 10,
        };
        assert_eq!(activity.idle(&PLACE, Epoch(9), 130), expected);
        activity.begin(200);
        assert_eq!(activity.idle(&PLACE, Epoch(9), 205).quiet, 5);
        assert_eq!(activity.groups_of(PLACE.0).count(), 0);
    }
}
