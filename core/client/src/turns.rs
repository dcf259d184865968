//! Partitions take turns, so that a busy one does not starve the others.

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use wire::{PartitionId, ReplicaId};

use crate::StoreMode;

/// Partitions in one request: servers take at least as many sections.
pub(crate) const SECTIONS_MAX: usize = 128;

/// The wait of a poll that takes the last place: while all others wait for partitions where nothing
/// happens, a busy one must not have to.
pub(crate) const LAST_WAIT: Duration = Duration::from_millis(20);

/// Messages of one partition that are handed out in a row before another partition has its turn.
const RUN_MAX: u32 = 64;

/// All partitions, beginning with `first`.
fn around<T>(
    partitions: &BTreeMap<PartitionId, T>,
    first: PartitionId,
) -> impl Iterator<Item = (PartitionId, &T)> {
    let around = partitions.range(first..).chain(partitions.range(..first));
    around.map(|(partition, own)| (*partition, own))
}

fn behind(partition: PartitionId) -> PartitionId {
    PartitionId(partition.0.saturating_add(1))
}

/// The partition that messages are handed out from, and how many were in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    partition: PartitionId,
    run: u32,
}

impl Turn {
    pub(crate) const FIRST: Self = Self {
        partition: PartitionId(0),
        run: 0,
    };

    /// Whose message is next, among those that have one.
    pub(crate) fn pass<T>(
        &mut self,
        partitions: &BTreeMap<PartitionId, T>,
        is_ready: impl Fn(&T) -> bool,
    ) -> Option<PartitionId> {
        let stays = self.run < RUN_MAX;
        let first = if stays {
            self.partition
        } else {
            behind(self.partition)
        };
        let mut ready = around(partitions, first).filter(|(_, own)| is_ready(own));
        let (partition, _) = ready.next()?;
        let run = if stays && partition == self.partition {
            self.run + 1
        } else {
            1
        };
        *self = Self { partition, run };
        Some(partition)
    }
}

/// What a partition has to do with the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    None,
    /// Together with others of the same node: a node serves no other in a poll of several.
    Polled(Option<ReplicaId>),
    /// In a poll of its own, which any node passes on.
    PolledAlone,
}

/// The partitions of the next poll, beginning with the one whose turn it is: all that go to its node.
pub(crate) fn polled_next<T>(
    partitions: &BTreeMap<PartitionId, T>,
    cursor: &mut PartitionId,
    wish: impl Fn(&T) -> Wish,
) -> Vec<PartitionId> {
    let mut polled = Vec::new();
    let mut asked = None;
    for (partition, own) in around(partitions, *cursor) {
        match wish(own) {
            Wish::None => continue,
            Wish::PolledAlone if !polled.is_empty() => continue,
            Wish::PolledAlone => {
                polled.push(partition);
                break;
            }
            Wish::Polled(node) if *asked.get_or_insert(node) != node => continue,
            Wish::Polled(_) => polled.push(partition),
        }
        if polled.len() == SECTIONS_MAX {
            break;
        }
    }
    if let Some(first) = polled.first() {
        *cursor = behind(*first);
    }
    polled
}

/// Bytes that one of so many partitions may fetch ahead.
pub(crate) fn share(store: StoreMode, buffer_size_max: usize, partitions: usize) -> usize {
    match store {
        // What is fetched counts as delivered, so nothing is fetched ahead.
        StoreMode::BeforeDelivery => 1,
        StoreMode::Processed | StoreMode::Manual | StoreMode::Never => {
            (buffer_size_max / partitions.max(1)).max(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeMap, vec::Vec};

    use wire::{PartitionId, ReplicaId};

    use super::{RUN_MAX, SECTIONS_MAX, Turn, Wish, polled_next};

    fn partitions<T: Clone>(own: &[(u32, T)]) -> BTreeMap<PartitionId, T> {
        let own = own.iter().cloned();
        own.map(|(partition, own)| (PartitionId(partition), own))
            .collect()
    }

    #[test]
    fn a_partition_is_left_after_its_run_if_another_one_is_ready() {
        let two = partitions(&[(3, true), (7, true)]);
        let mut turn = Turn::FIRST;
        let mut passed = Vec::new();
        for _ in 0..3 * RUN_MAX {
            passed.push(turn.pass(&two, |ready| *ready).unwrap().0);
        }
        let run = RUN_MAX as usize;
        assert!(passed[..run].iter().all(|partition| *partition == 3));
        assert!(passed[run..2 * run].iter().all(|partition| *partition == 7));
        assert!(passed[2 * run..].iter().all(|partition| *partition == 3));
        let one = partitions(&[(3, false), (7, true)]);
        assert_eq!(turn.pass(&one, |ready| *ready), Some(PartitionId(7)));
        assert_eq!(turn.pass(&one, |_| false), None);
    }

    #[test]
    fn each_partition_comes_first_in_a_poll_and_one_that_must_is_alone() {
        let anywhere = Wish::Polled(None);
        let own = partitions(&[
            (0, anywhere),
            (1, Wish::None),
            (2, Wish::PolledAlone),
            (4, anywhere),
        ]);
        let mut cursor = PartitionId(0);
        let mut polls = Vec::new();
        for _ in 0..4 {
            polls.push(polled(&own, &mut cursor));
        }
        assert_eq!(polls, [&[0, 4][..], &[2], &[4, 0], &[0, 4]]);
        let many = (0..200).map(|partition| (partition, anywhere));
        let many = partitions(&many.collect::<Vec<_>>());
        assert_eq!(polled(&many, &mut cursor).len(), SECTIONS_MAX);
    }

    #[test]
    fn a_poll_is_for_one_node_and_every_node_has_its_turn() {
        let (here, there) = (
            Wish::Polled(Some(ReplicaId(0))),
            Wish::Polled(Some(ReplicaId(1))),
        );
        let own = partitions(&[(0, here), (1, there), (2, here), (3, there)]);
        let mut cursor = PartitionId(0);
        assert_eq!(polled(&own, &mut cursor), [0, 2]);
        assert_eq!(polled(&own, &mut cursor), [1, 3]);
        assert_eq!(polled(&own, &mut cursor), [2, 0]);
        assert_eq!(polled(&own, &mut cursor), [3, 1]);
    }

    fn polled(own: &BTreeMap<PartitionId, Wish>, cursor: &mut PartitionId) -> Vec<u32> {
        let polled = polled_next(own, cursor, |wish| *wish);
        polled.iter().map(|partition| partition.0).collect()
    }
}
