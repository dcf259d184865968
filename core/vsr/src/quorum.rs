//! How many are enough.

use wire::ReplicaId;

use crate::mutation;

/// Replicas that make a quorum of `replica_count`, for replication and for view change.
#[must_use]
pub const fn quorum(replica_count: u8) -> u8 {
    replica_count / 2 + 1
}

/// The replicas that have voted, each once (V5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Votes(u8);

impl Votes {
    /// Counts `replica`; false when it was counted before.
    pub(crate) const fn add(&mut self, replica: ReplicaId) -> bool {
        let bit = 1 << replica.0;
        let is_new = self.0 & bit == 0;
        if mutation::V5 && !is_new {
            self.0 |= self.0.wrapping_add(1);
            return true;
        }
        self.0 |= bit;
        is_new
    }

    pub(crate) const fn contains(self, replica: ReplicaId) -> bool {
        self.0 & 1 << replica.0 != 0
    }

    pub(crate) const fn is_quorum(self, replica_count: u8) -> bool {
        self.0.count_ones() >= quorum(replica_count) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{Votes, quorum};
    use wire::ReplicaId;

    #[test]
    fn two_quorums_always_meet() {
        for (replica_count, expected) in [(1, 1), (3, 2), (5, 3)] {
            assert_eq!(quorum(replica_count), expected);
            assert!(2 * quorum(replica_count) > replica_count);
        }
    }

    /// V5: a repeated vote is one vote.
    #[test]
    fn votes_count_distinct_replicas() {
        let mut votes = Votes::default();
        assert!(votes.add(ReplicaId(2)));
        assert!(!votes.add(ReplicaId(2)));
        assert!(votes.contains(ReplicaId(2)));
        assert!(!votes.contains(ReplicaId(0)));
        assert!(!votes.is_quorum(3));
        assert!(votes.add(ReplicaId(0)));
        assert!(votes.is_quorum(3));
        assert!(!votes.is_quorum(5));
    }
}
