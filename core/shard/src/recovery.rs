//! From what a disk holds of a consensus group to what its replica starts from.

use alloc::vec::Vec;

use journal::{Affected, Damage, GroupScan, LostPrepares, Verdict};
use vsr::{Prepare, Recovered, Superblock};
use wire::{ConsensusGroup, DecodeError, Op};

use crate::{GroupSnapshot, GroupStart};

impl GroupStart {
    /// What a group starts from: the newest of its snapshots that can be read, what the scan of the journal
    /// has `found` of it, and all `damage` of the journal. What cannot be read is never taken for what was
    /// never written.
    ///
    /// # Errors
    /// When the superblock is one of a later version.
    pub fn from_disk(
        group: ConsensusGroup,
        snapshot: Option<GroupSnapshot>,
        found: Option<GroupScan>,
        damage: &[Damage],
    ) -> Result<Self, DecodeError> {
        // A group of which nothing is left may have been in what nobody can read.
        let hidden = found.is_none() && damage.iter().any(may_hold_any);
        let found = found.unwrap_or_default();
        let forgotten = hidden || found.superblock_lost;
        let superblock = match found.superblock {
            Some(record) if !forgotten => Some(Superblock::decode(record.body)?),
            Some(_) | None => None,
        };
        let prepares = found.prepares.into_iter().map(|prepare| Prepare {
            header: prepare.header,
            body: prepare.body,
        });
        let recovered = Recovered {
            superblock,
            checkpoint: None,
            prepares: prepares.collect(),
            rotten: found.rotten.iter().flat_map(lost_ops).collect(),
            head_uncertain: forgotten || !found.uncertain.is_empty(),
            // Only a replica among others asks for a journal.
            nonce: 0,
        };
        Ok(Self {
            group,
            snapshot,
            recovered,
        })
    }
}

fn may_hold_any(damage: &Damage) -> bool {
    damage.affected == Affected::Any && damage.verdict != Verdict::Torn
}

/// The ops of prepares that cannot be read, as far as they are known.
fn lost_ops(lost: &LostPrepares) -> Vec<Op> {
    let read = lost.headers.len() as u64;
    if read > 0 && lost.count == Some(read) {
        return lost.headers.iter().map(|header| header.op()).collect();
    }
    // Where nothing tells how many, the first of them is enough to know that something is missing.
    let first = lost.after.0.saturating_add(1);
    let last = if lost.count.is_some() {
        lost.last.0
    } else {
        first
    };
    (first..=last).map(Op).collect()
}

#[cfg(test)]
mod tests {
    use std::{string::ToString, vec};

    use journal::{FileId, SuperblockRecord};
    use wire::PrepareHeader;

    use super::{
        Affected, ConsensusGroup, Damage, GroupScan, GroupStart, LostPrepares, Op, Superblock,
        Verdict,
    };

    const GROUP: ConsensusGroup = ConsensusGroup(3);

    fn start(found: Option<GroupScan>, damage: &[Damage]) -> vsr::Recovered {
        GroupStart::from_disk(GROUP, None, found, damage)
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
        };
        let rotten = |lost| {
            let scan = GroupScan {
                rotten: vec![lost],
                ..found()
            };
            start(Some(scan), &[]).rotten
        };
        assert_eq!(rotten(lost(Some(1), vec![header])), [Op(9)]);
        assert_eq!(rotten(lost(Some(2), vec![])), [Op(5), Op(6)]);
        assert_eq!(rotten(lost(None, vec![])), [Op(5)]);
    }

    #[test]
    fn superblock_of_another_version_is_refused() {
        let mut scan = found();
        if let Some(record) = &mut scan.superblock {
            record.body = bytes::Bytes::from_static(&[9, 0, 0, 0]);
        }
        let error = GroupStart::from_disk(GROUP, None, Some(scan), &[]).unwrap_err();
        assert!(error.to_string().contains("version"), "{error}");
    }
}
