//! What is written comes back.

use std::{vec, vec::Vec};

use wire::{ConsensusGroup, Op, ShardId};

use super::disk::{Disk, config, ops, prepare, superblock};
use crate::{Input, Journal, Progress, Record, Ticket, UnitSize};

const SHARD: ShardId = ShardId(0);

#[test]
fn records_of_many_groups_come_back_in_order() {
    for unit_size in [UnitSize::Bytes512, UnitSize::Bytes4096] {
        let config = config(unit_size);
        let mut disk = Disk::default();
        let mut journal = Journal::new(config);
        let mut records = Vec::new();
        for op in 1..=40 {
            for group in 0..5 {
                records.push(prepare(group, op, usize::from(group) * 300));
            }
        }
        disk.write(&mut journal, records.clone());
        let scanned = disk.scan(config);
        assert!(scanned.damage.is_empty());
        for group in 0..5 {
            assert_eq!(ops(&scanned, group), (1..=40).collect::<Vec<_>>());
        }
        let found = scanned.groups.values().flat_map(|group| &group.prepares);
        for found in found {
            let record = Record::Prepare {
                header: found.header,
                body: found.body.clone(),
            };
            assert!(records.contains(&record));
        }
    }
}

#[test]
fn everything_that_is_queued_goes_into_one_flush() {
    let mut disk = Disk::default();
    let mut journal = Journal::new(config(UnitSize::Bytes512));
    disk.run(&mut journal);
    let records = (1..=20).map(|op| prepare(1, op, 100)).collect();
    disk.write(&mut journal, records);
    assert_eq!(disk.flushes, 1);
    assert_eq!(disk.progress[&SHARD].flushed, Ticket(20));
}

#[test]
fn prepare_is_durable_after_one_flush_and_superblock_after_two() {
    let mut disk = Disk::default();
    let mut journal = Journal::new(config(UnitSize::Bytes512));
    disk.run(&mut journal);
    for record in [prepare(1, 1, 10), superblock(1, 0, 1)] {
        journal.handle(Input::Record {
            shard: SHARD,
            record,
        });
    }
    while disk.flushes < 1 {
        assert!(disk.step(&mut journal));
    }
    assert_eq!(
        journal.progress(SHARD),
        Progress {
            flushed: Ticket(1),
            repeated: Ticket(0),
        }
    );
    disk.run(&mut journal);
    assert_eq!(disk.flushes, 2);
    assert_eq!(
        journal.progress(SHARD),
        Progress {
            flushed: Ticket(1),
            repeated: Ticket(2),
        }
    );
}

#[test]
fn last_frame_is_covered_when_no_record_comes() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    assert!(!journal.wants_quiet());
    disk.write(&mut journal, vec![prepare(1, 1, 10)]);
    assert!(journal.wants_quiet());
    journal.handle(Input::Quiet);
    disk.run(&mut journal);
    assert!(!journal.wants_quiet());
    assert_eq!(journal.sequence(), 2);
    // Rot in the first frame is now known to be rot.
    let file = disk.files.values_mut().next().expect("one file");
    file[300] ^= 1;
    let scanned = disk.scan(config);
    assert_eq!(scanned.damage.len(), 1);
    assert_eq!(scanned.damage[0].verdict, crate::Verdict::Rotten);
}

#[test]
fn record_larger_than_a_frame_is_written_alone() {
    let mut config = config(UnitSize::Bytes4096);
    config.file_size = 16 * 1024 * 1024;
    config.first_file_size = 16 * 1024 * 1024;
    config.frame_size = 4 * 1024 * 1024;
    config.live_max = 64 * 1024 * 1024;
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    let size = 8 * 1024 * 1024 + 64 * 1024;
    disk.write(
        &mut journal,
        vec![prepare(1, 1, 10), prepare(1, 2, size), prepare(2, 1, size)],
    );
    let scanned = disk.scan(config);
    assert!(scanned.damage.is_empty());
    assert_eq!(ops(&scanned, 1), [1, 2]);
    assert_eq!(ops(&scanned, 2), [1]);
}

#[test]
fn first_frame_of_a_file_holds_the_superblock_of_every_group() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    let superblocks = (0..10).map(|group| superblock(group, 0, 77)).collect();
    disk.write(&mut journal, superblocks);
    let mut op = 0;
    while disk.files.len() < 4 {
        op += 1;
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
    }
    // The file before the one in preparation alone tells all.
    let newest = *disk.files.keys().nth(2).expect("three files");
    disk.files.retain(|file, _| *file == newest);
    let scanned = disk.scan(config);
    for group in 0..10 {
        let group = &scanned.groups[&ConsensusGroup(group)];
        assert!(group.superblock.is_some());
        assert!(!group.superblock_lost);
    }
}

#[test]
fn prepares_below_the_checkpoint_are_not_returned() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    let records = (1..=10).map(|op| prepare(1, op, 100)).collect();
    disk.write(&mut journal, records);
    disk.write(&mut journal, vec![superblock(1, 7, 1)]);
    let scanned = disk.scan(config);
    assert_eq!(ops(&scanned, 1), [8, 9, 10]);
    let superblock = &scanned.groups[&ConsensusGroup(1)].superblock;
    assert_eq!(superblock.as_ref().expect("one").checkpoint, Op(7));
}

#[test]
fn restart_goes_on_behind_the_last_frame() {
    let config = config(UnitSize::Bytes4096);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    disk.write(&mut journal, vec![superblock(1, 0, 1), prepare(1, 1, 100)]);
    for op in 2..30 {
        let (mut journal, scanned) = disk.restart(config);
        assert!(scanned.damage.is_empty(), "{:?}", scanned.damage);
        assert_eq!(ops(&scanned, 1), (1..op).collect::<Vec<_>>());
        assert!(!scanned.groups[&ConsensusGroup(1)].superblock_lost);
        disk.write(&mut journal, vec![prepare(1, op, 3_000)]);
    }
}

#[test]
fn frames_lie_where_they_can_be_written_past_the_page_cache() {
    let mut journal = Journal::new(config(UnitSize::Bytes512));
    let mut disk = Disk::default();
    for op in 1..20 {
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
        let frame = journal.frame();
        assert_eq!(frame.as_ptr().align_offset(crate::FRAME_ALIGNMENT), 0);
        assert_eq!(frame.len() % crate::FRAME_ALIGNMENT, 0);
    }
}

#[test]
fn frames_of_another_node_are_not_ours() {
    let ours = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(crate::Config {
        identity: 8,
        ..ours
    });
    disk.write(&mut journal, vec![prepare(1, 1, 100), prepare(1, 2, 100)]);
    let scanned = disk.scan(ours);
    assert!(scanned.groups.is_empty());
    assert_eq!(scanned.damage[0].verdict, crate::Verdict::Uncertain);
}

#[test]
fn identity_tells_replicas_and_clusters_apart() {
    use wire::{ClusterId, ReplicaId};
    let identity = crate::identity(ClusterId(1), ReplicaId(0));
    assert_ne!(identity, crate::identity(ClusterId(1), ReplicaId(1)));
    assert_ne!(identity, crate::identity(ClusterId(2), ReplicaId(0)));
}
