//! Which data group a new partition goes to.

use alloc::{collections::BTreeSet, vec, vec::Vec};

use wire::{ConsensusGroup, Incarnation, PartitionId};

/// Where a partition lives.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Placement {
    /// The partition within its topic.
    pub partition: PartitionId,
    /// The op that created it.
    pub incarnation: Incarnation,
    /// The data group that holds its messages.
    pub group: ConsensusGroup,
}

/// Partitions per data group.
/// Invariant: `order` holds (partitions, group) of every data group; `total` is their sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    partitions: Vec<u32>,
    order: BTreeSet<(u32, ConsensusGroup)>,
    total: u32,
}

impl Load {
    /// No partitions yet in groups `1..=data_groups`.
    ///
    /// # Panics
    /// When there are no data groups.
    pub(crate) fn new(data_groups: u16) -> Self {
        assert!(data_groups > 0, "partitions need a data group");
        Self {
            partitions: vec![0; usize::from(data_groups)],
            order: (1..=data_groups)
                .map(|group| (0, ConsensusGroup(group)))
                .collect(),
            total: 0,
        }
    }

    pub(crate) const fn total(&self) -> u32 {
        self.total
    }

    /// Picks the group with the fewest partitions, of those the lowest, and counts one more there.
    pub(crate) fn place(&mut self) -> ConsensusGroup {
        let (_, group) = *self.order.first().expect("there is a data group");
        self.add(group);
        group
    }

    pub(crate) fn contains(&self, group: ConsensusGroup) -> bool {
        group.0 >= 1 && usize::from(group.0) <= self.partitions.len()
    }

    /// Counts a partition that is placed already.
    pub(crate) fn add(&mut self, group: ConsensusGroup) {
        let count = self.count(group);
        self.set(group, count + 1);
        self.total += 1;
    }

    /// Forgets a partition that is dropped.
    pub(crate) fn remove(&mut self, group: ConsensusGroup) {
        let count = self.count(group);
        assert!(count > 0, "a partition was counted when it was placed");
        self.set(group, count - 1);
        self.total -= 1;
    }

    /// Partitions in `group`.
    pub(crate) fn count(&self, group: ConsensusGroup) -> u32 {
        assert!(self.contains(group), "partitions live in data groups only");
        self.partitions[usize::from(group.0) - 1]
    }

    /// Partitions in each group, from group 1.
    pub(crate) fn counts(&self) -> impl ExactSizeIterator<Item = u32> {
        self.partitions.iter().copied()
    }

    fn set(&mut self, group: ConsensusGroup, count: u32) {
        let counted = self.order.remove(&(self.count(group), group));
        assert!(counted, "every data group is in the order");
        self.order.insert((count, group));
        self.partitions[usize::from(group.0) - 1] = count;
    }
}

#[cfg(test)]
mod tests {
    use super::{ConsensusGroup, Load, Vec};

    #[test]
    fn partition_goes_to_the_group_with_the_fewest_and_of_those_to_the_lowest() {
        let mut load = Load::new(3);
        let placed: Vec<_> = (0..4).map(|_| load.place().0).collect();
        assert_eq!(placed, [1, 2, 3, 1]);

        load.remove(ConsensusGroup(3));
        load.remove(ConsensusGroup(1));
        // Now 1, 1, 0.
        let placed: Vec<_> = (0..3).map(|_| load.place().0).collect();
        assert_eq!(placed, [3, 1, 2]);
        assert_eq!(load.total(), 5);
    }

    #[test]
    fn counts_rebuilt_from_placements_equal_the_counts_kept() {
        let mut kept = Load::new(4);
        let groups: Vec<_> = (0..11).map(|_| kept.place()).collect();
        kept.remove(groups[2]);
        let mut rebuilt = Load::new(4);
        for (index, group) in groups.into_iter().enumerate() {
            if index != 2 {
                rebuilt.add(group);
            }
        }
        assert_eq!(rebuilt, kept);
    }

    #[test]
    #[should_panic(expected = "data groups only")]
    fn metadata_group_takes_no_partitions() {
        Load::new(2).add(ConsensusGroup::METADATA);
    }
}
