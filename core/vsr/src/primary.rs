//! Who is the primary of a view.

use wire::{ConsensusGroup, ReplicaId, View};

/// The primary of `view` in `group`.
///
/// The metadata group goes round. With k = g - 1, data group g starts at replica k mod n and moves on by a
/// stride of its own, so that the groups that a dead replica led are shared by all the others.
///
/// # Panics
/// When `replica_count` is not 1, 3 or 5: the strides are coprime to those only.
#[must_use]
pub fn primary_of(group: ConsensusGroup, view: View, replica_count: u8) -> ReplicaId {
    assert!(matches!(replica_count, 1 | 3 | 5));
    let n = u64::from(replica_count);
    let view = u64::from(view.0);
    let index = match group.0.checked_sub(1) {
        None => view % n,
        Some(_) if n == 1 => 0,
        Some(k) => {
            let k = u64::from(k);
            (k + view * stride(k / n, n)) % n
        }
    };
    ReplicaId(u8::try_from(index).expect("a remainder of a u8 fits a u8"))
}

fn stride(row: u64, n: u64) -> u64 {
    1 + digit_sum(row, n - 1) % (n - 1)
}

fn digit_sum(mut number: u64, base: u64) -> u64 {
    let mut sum = 0;
    while number > 0 {
        sum += number % base;
        number /= base;
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::primary_of;
    use wire::{ConsensusGroup, ReplicaId, View};

    fn primaries(group: u16, replica_count: u8) -> Vec<u8> {
        (0..u32::from(replica_count))
            .map(|view| primary_of(ConsensusGroup(group), View(view), replica_count).0)
            .collect()
    }

    #[test]
    fn metadata_goes_round() {
        assert_eq!(primaries(0, 3), [0, 1, 2]);
        assert_eq!(primary_of(ConsensusGroup(0), View(7), 5), ReplicaId(2));
    }

    #[test]
    fn one_replica_leads_everything() {
        for group in 0..30 {
            for view in 0..5 {
                let primary = primary_of(ConsensusGroup(group), View(view), 1);
                assert_eq!(primary, ReplicaId(0));
            }
        }
    }

    #[test]
    fn data_groups_move_by_their_stride() {
        // k = 0..2: row 0, stride 1. k = 3..5: row 1, stride 2. k = 9: row 3 = 11 in base 2, stride 1.
        assert_eq!(primaries(1, 3), [0, 1, 2]);
        assert_eq!(primaries(3, 3), [2, 0, 1]);
        assert_eq!(primaries(4, 3), [0, 2, 1]);
        assert_eq!(primaries(10, 3), [0, 1, 2]);
        // k = 15: row 3, digit sum 3 in base 4, stride 4.
        assert_eq!(primaries(16, 5), [0, 4, 3, 2, 1]);
    }

    #[test]
    fn every_replica_gets_its_turn_in_every_group() {
        for replica_count in [3, 5] {
            for group in 0..200 {
                let turns: BTreeSet<u8> = primaries(group, replica_count).into_iter().collect();
                assert_eq!(turns.len(), usize::from(replica_count));
            }
        }
    }

    #[test]
    fn a_dead_replica_s_groups_are_shared_by_all_others() {
        let led: Vec<u16> = (1..=24).filter(|&g| primaries(g, 3)[0] == 0).collect();
        let first = led.iter().filter(|&&g| primaries(g, 3)[1] == 1).count();
        let second = led.iter().filter(|&&g| primaries(g, 3)[1] == 2).count();
        assert_eq!((led.len(), first, second), (8, 4, 4));
    }
}
