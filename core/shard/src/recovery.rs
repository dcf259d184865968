//! From what a disk holds of a consensus group to what its replica starts from.

use alloc::vec::Vec;

use journal::{Affected, Damage, GroupScan, LostPrepares, ScannedPrepare, Verdict};
use vsr::{Prepare, Recovered, Rotten, Superblock};
use wire::{ConsensusGroup, DecodeError, Op};

use crate::{GroupSnapshot, GroupStart};

impl GroupStart {
    /// What a group starts from: the newest of its snapshots that can be read, what the scan of the journal
    /// has `found` of it, and all `damage` of the journal. What cannot be read is never taken for what was
    /// never written. Where `is_rejoining` says that the node has lost its disk, a group of which nothing is
    /// there is no new one either (V13).
    ///
    /// # Errors
    /// When the superblock is one of a later version.
    pub fn from_disk(
        group: ConsensusGroup,
        snapshot: Option<GroupSnapshot>,
        found: Option<GroupScan>,
        damage: &[Damage],
        is_rejoining: bool,
    ) -> Result<Self, DecodeError> {
        // A group of which nothing is left may have been in what nobody can read.
        let hidden = found.is_none() && damage.iter().any(may_hold_any);
        let found = found.unwrap_or_default();
        let forgotten = hidden || found.superblock_lost;
        let floor = found.superblock.as_ref().map(|record| record.checkpoint);
        let superblock = match found.superblock {
            Some(record) if !forgotten => Some(Superblock::decode(record.body)?),
            Some(_) | None => None,
        };
        let snapshot = snapshot.filter(|it| is_of(superblock.as_ref(), it));
        let order = Order::of(&found.prepares, floor.unwrap_or_default());
        let rotten = found.rotten.iter().flat_map(|lost| lost_ops(lost, &order));
        let rotten = rotten.collect();
        let unbounded = found.rotten.iter().filter(|lost| !is_bounded(lost));
        let prepares = found.prepares.into_iter().map(|prepare| Prepare {
            header: prepare.header,
            body: prepare.body,
        });
        let recovered = Recovered {
            superblock,
            checkpoint: None,
            prepares: prepares.collect(),
            rotten,
            rotten_unbounded: unbounded.map(|lost| lost.before_frame).max(),
            position: found.next_frame,
            head_uncertain: forgotten || !found.uncertain.is_empty(),
            // Only a replica among others asks for a journal.
            nonce: 0,
            is_rejoining,
        };
        Ok(Self {
            group,
            snapshot,
            recovered,
        })
    }

    /// Whether the snapshot of the newest checkpoint cannot be read, or is gone: there is an older one at the most.
    /// The journal may lead on from there, or the checkpoint of another node takes its place. What is on the disk of
    /// its state is not older, and neither deleted nor cut.
    #[must_use]
    pub fn has_lost_checkpoint(&self) -> bool {
        let found = self.snapshot.as_ref().map(|it| it.checkpoint.op);
        let superblock = self.recovered.superblock.as_ref();
        superblock.is_some_and(|it| it.checkpoint.op > found.unwrap_or_default())
    }
}

/// Whether a snapshot may be the one that the superblock names, or another one: under the number of that one
/// there is one only.
fn is_of(superblock: Option<&Superblock>, snapshot: &GroupSnapshot) -> bool {
    let named = superblock.map(|superblock| superblock.checkpoint);
    let checkpoint = &snapshot.checkpoint;
    named.is_none_or(|it| it.op != checkpoint.op || it.checksum == checkpoint.checksum)
}

fn may_hold_any(damage: &Damage) -> bool {
    damage.affected == Affected::Any && damage.verdict != Verdict::Torn
}

/// How the readable prepares of a group lie in the journal.
struct Order {
    /// The ops up to this one are in the checkpoint.
    floor: Op,
    highest: Op,
    /// Each has a higher op than the one before: no view change has come in between.
    is_rising: bool,
}

impl Order {
    fn of(prepares: &[ScannedPrepare], floor: Op) -> Self {
        let ops = prepares.iter().map(|prepare| prepare.header.op());
        Self {
            floor,
            highest: ops.clone().max().unwrap_or_default(),
            is_rising: ops.is_sorted_by(|before, op| before < op),
        }
    }
}

/// More consecutive ops than these are not believed to be lost.
const LOST_MAX: u64 = 1 << 20;

/// Whether it is known which ops may be lost.
fn is_bounded(lost: &LostPrepares) -> bool {
    lost.count.is_some_and(|count| count <= LOST_MAX)
        && lost.last.0.saturating_sub(lost.after.0) <= LOST_MAX
}

/// What cannot be read, by header, as far as these are known; else every op that may be concerned.
fn lost_ops(lost: &LostPrepares, order: &Order) -> Vec<Rotten> {
    let before = lost.before_frame;
    let read = lost.headers.len() as u64;
    if read > 0 && lost.count == Some(read) {
        let rotten = |header: &wire::PrepareHeader| Rotten {
            op: header.op(),
            header: Some(*header),
            before,
        };
        return lost.headers.iter().map(rotten).collect();
    }
    // Where nothing tells how many, the first of them is enough to know that something is missing.
    let first = lost.after.0.saturating_add(1);
    let (first, last) = match lost.count {
        Some(_) if !is_bounded(lost) => (first, first),
        // Prepares that were fetched for another view need not be in order, so the one before says little.
        Some(count) if !order.is_rising => {
            let highest = order.highest.0.saturating_add(count);
            (order.floor.0 + 1, lost.last.0.max(highest))
        }
        Some(_) => (first, lost.last.0),
        None => (first, first),
    };
    let rotten = |op| Rotten {
        op: Op(op),
        header: None,
        before,
    };
    (first..=last).map(rotten).collect()
}

#[cfg(test)]
mod tests {
    use std::{string::ToString, vec, vec::Vec};

    use journal::{FileId, SuperblockRecord};
    use wire::PrepareHeader;

    use super::{
        Affected, ConsensusGroup, Damage, GroupScan, GroupSnapshot, GroupStart, LostPrepares, Op,
        Rotten, ScannedPrepare, Superblock, Verdict,
    };
    use crate::StateSnapshot;

    const GROUP: ConsensusGroup = ConsensusGroup(3);

    fn start(found: Option<GroupScan>, damage: &[Damage]) -> vsr::Recovered {
        GroupStart::from_disk(GROUP, None, found, damage, false)
            .unwrap()
            .recovered
    }

    fn found() -> GroupScan {
        let superblock = Superblock {
            sequence: 2,
            ..Superblock::default()
        };
        GroupScan {
            superblock: Some(SuperblockRecord {
                group: GROUP,
                checkpoint: Op(0),
                body: superblock.encode(),
            }),
            ..GroupScan::default()
        }
    }

    fn damage(verdict: Verdict) -> Damage {
        Damage {
            verdict,
            file: FileId(1),
            position: 0,
            length: 4096,
            sequence: 1,
            affected: Affected::Any,
        }
    }

    #[test]
    fn group_without_any_record_is_a_new_one() {
        assert_eq!(start(None, &[]), vsr::Recovered::default());
        // A torn frame was never relied on.
        assert_eq!(
            start(None, &[damage(Verdict::Torn)]),
            vsr::Recovered::default()
        );
    }

    /// V13: the replica is told, and its superblock counts if there is one.
    #[test]
    fn group_on_a_new_disk_of_a_node_that_lost_its_own_is_no_new_one() {
        let start = GroupStart::from_disk(GROUP, None, None, &[], true).unwrap();
        assert_eq!(start.recovered.superblock, None);
        assert!(start.recovered.is_rejoining);
    }

    #[test]
    fn group_that_may_be_in_a_lost_frame_is_no_new_one() {
        let recovered = start(None, &[damage(Verdict::Rotten)]);
        assert!(recovered.head_uncertain);
        assert_eq!(recovered.superblock, None);
    }

    #[test]
    fn superblock_that_may_be_followed_by_a_lost_one_is_not_used() {
        assert_eq!(
            start(Some(found()), &[])
                .superblock
                .map(|block| block.sequence),
            Some(2)
        );
        let recovered = start(
            Some(GroupScan {
                superblock_lost: true,
                ..found()
            }),
            &[],
        );
        assert_eq!(recovered.superblock, None);
        assert!(recovered.head_uncertain);
    }

    #[test]
    fn lost_prepares_are_named_by_header_or_by_count() {
        let header = PrepareHeader {
            op: 9,
            ..PrepareHeader::default()
        };
        let lost = |count: Option<u64>, headers| LostPrepares {
            after: Op(4),
            last: count.map_or(Op(u64::MAX), |count| Op(4 + count)),
            count,
            headers,
            before_frame: 8,
        };
        let rotten = |lost| {
            let scan = GroupScan {
                rotten: vec![lost],
                ..found()
            };
            let recovered = start(Some(scan), &[]);
            (recovered.rotten, recovered.rotten_unbounded)
        };
        let named = |op, header| Rotten {
            op: Op(op),
            header,
            before: 8,
        };
        let expected = vec![named(9, Some(header))];
        assert_eq!(rotten(lost(Some(1), vec![header])), (expected, None));
        let expected = vec![named(5, None), named(6, None)];
        assert_eq!(rotten(lost(Some(2), vec![])), (expected, None));
        assert_eq!(rotten(lost(None, vec![])), (vec![named(5, None)], Some(8)));
        // A header that is damaged itself may be that of any op.
        let any = LostPrepares {
            last: Op(u64::MAX),
            ..lost(Some(1), vec![])
        };
        assert_eq!(rotten(any), (vec![named(5, None)], Some(8)));
    }

    /// Prepares that were fetched for a view that came to nothing are not in order: the op before those that
    /// are lost says nothing, and all up to the highest that it can be are named.
    #[test]
    fn lost_prepares_among_some_that_are_not_in_order_may_be_any() {
        let scanned = |op| ScannedPrepare {
            header: PrepareHeader {
                op,
                ..PrepareHeader::default()
            },
            body: bytes::Bytes::new(),
        };
        let lost = LostPrepares {
            after: Op(3),
            last: Op(4),
            count: Some(1),
            headers: vec![],
            before_frame: 8,
        };
        let ops = |prepares| {
            let scan = GroupScan {
                prepares,
                rotten: vec![lost.clone()],
                next_frame: 9,
                ..found()
            };
            let recovered = start(Some(scan), &[]);
            assert_eq!(recovered.position, 9);
            let ops = recovered.rotten.iter().map(|rotten| rotten.op.0);
            ops.collect::<Vec<_>>()
        };
        let in_order = vec![scanned(2), scanned(3), scanned(5)];
        assert_eq!(ops(in_order), [4]);
        let aside = vec![scanned(2), scanned(5), scanned(3)];
        assert_eq!(ops(aside), [1, 2, 3, 4, 5, 6]);
    }

    /// The older one, or none, is what the group starts from; and the node is no new one.
    #[test]
    fn snapshot_that_the_superblock_does_not_know_is_none() {
        let start = |op, checksum| {
            let mut scan = found();
            let superblock = Superblock {
                checkpoint: vsr::ChainPoint {
                    op: Op(7),
                    checksum: 5,
                },
                ..Superblock::default()
            };
            if let Some(record) = &mut scan.superblock {
                record.body = superblock.encode();
            }
            let checkpoint = vsr::Checkpoint {
                op: Op(op),
                checksum,
                ..vsr::Checkpoint::default()
            };
            let state = partition::DataGroup::new(partition::DataConfig::new(GROUP)).snapshot();
            let snapshot = GroupSnapshot {
                group: GROUP,
                checkpoint,
                state: StateSnapshot::Data(state),
            };
            let start = GroupStart::from_disk(GROUP, Some(snapshot), Some(scan), &[], false);
            let start = start.unwrap();
            (start.snapshot.is_some(), start.has_lost_checkpoint())
        };
        assert_eq!(start(7, 5), (true, false));
        assert_eq!(start(8, 6), (true, false));
        assert_eq!(start(7, 4), (false, true));
        assert_eq!(start(6, 4), (true, true));
    }

    #[test]
    fn superblock_of_another_version_is_refused() {
        let mut scan = found();
        if let Some(record) = &mut scan.superblock {
            record.body = bytes::Bytes::from_static(&[9, 0, 0, 0]);
        }
        let error = GroupStart::from_disk(GROUP, None, Some(scan), &[], false).unwrap_err();
        assert!(error.to_string().contains("version"), "{error}");
    }
}
