//! Files are recycled, and the journal stays within its bounds.

use std::{collections::BTreeSet, vec, vec::Vec};

use wire::{ConsensusGroup, ShardId};

use super::disk::{Disk, config, ops, prepare, superblock};
use crate::{Input, Journal, Record, UnitSize};

const GROUP: ConsensusGroup = ConsensusGroup(1);

/// Queues a record without carrying anything out.
fn queue(journal: &mut Journal, record: Record) {
    journal.handle(Input::Record {
        shard: ShardId(0),
        record,
    });
}

#[test]
fn files_are_recycled_behind_checkpoints() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    let mut names = BTreeSet::new();
    for op in 1..=400 {
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
        if op % 5 == 0 {
            disk.write(&mut journal, vec![superblock(1, op - 5, op)]);
        }
        names.extend(disk.files.keys().copied());
        assert!(disk.files.len() <= 7, "{}", disk.files.len());
    }
    assert!(names.len() > 30);
    assert!(disk.wanted.is_empty());
    // Frames of older generations lie behind the last one.
    let scanned = disk.scan(config);
    assert!(scanned.damage.is_empty(), "{:?}", scanned.damage);
    assert_eq!(ops(&scanned, 1), (396..=400).collect::<Vec<_>>());
}

#[test]
fn group_that_pins_the_oldest_file_is_named() {
    let mut disk = Disk::default();
    let mut journal = Journal::new(config(UnitSize::Bytes512));
    disk.write(&mut journal, vec![prepare(2, 1, 100)]);
    let mut op = 0;
    while disk.wanted.is_empty() {
        op += 1;
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
    }
    assert_eq!(disk.wanted, [GROUP, ConsensusGroup(2)]);
    // Only the one that does not follow is asked again.
    disk.write(&mut journal, vec![superblock(1, op, 1)]);
    disk.wanted.clear();
    while disk.wanted.is_empty() {
        op += 1;
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
        let checkpoint = superblock(1, op.saturating_sub(12), op);
        disk.write(&mut journal, vec![checkpoint]);
    }
    assert_eq!(disk.wanted, [ConsensusGroup(2)]);
}

#[test]
fn full_journal_takes_superblocks_only_until_space_is_free() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    for op in 1..=300 {
        queue(&mut journal, prepare(1, op, 5_000));
    }
    disk.run(&mut journal);
    assert!(journal.live() <= config.live_max);
    let written = ops(&disk.scan(config), 1);
    assert!(written.len() < 150);
    assert!(disk.wanted.contains(&GROUP));

    let checkpoint = *written.last().expect("some");
    disk.write(&mut journal, vec![superblock(1, checkpoint, 1)]);
    // Files are released with the frames that follow; idle ones, if no record comes.
    for _ in 0..20 {
        disk.quiet(&mut journal);
        let head = *ops(&disk.scan(config), 1).last().unwrap_or(&checkpoint);
        disk.write(&mut journal, vec![superblock(1, head, head)]);
    }
    assert_eq!(disk.progress[&ShardId(0)].flushed.0, 300);
    assert!(disk.files.len() <= 12, "{}", disk.files.len());
}

#[test]
fn superblocks_alone_never_fill_the_journal() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    disk.write(&mut journal, vec![prepare(2, 1, 100)]);
    for mark in 0..2_000 {
        disk.write(&mut journal, vec![superblock(1, 0, mark)]);
    }
    assert!(disk.files.len() <= 7, "{}", disk.files.len());
    assert_eq!(ops(&disk.scan(config), 2), [1]);
}

#[test]
fn few_prepares_that_pin_an_old_file_are_written_again() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    // Group 2 never gets a checkpoint; group 1 keeps about six files.
    let held = (1..=5).map(|op| prepare(2, op, 700)).collect();
    disk.write(&mut journal, held);
    for op in 1..=1_000 {
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
        if op > 24 {
            disk.write(&mut journal, vec![superblock(1, op - 24, op)]);
        }
    }
    assert!(journal.live() <= config.live_max);
    assert!(!disk.files.contains_key(&crate::FileId(1)));
    let (_, scanned) = disk.restart(config);
    assert!(scanned.damage.is_empty(), "{:?}", scanned.damage);
    assert_eq!(ops(&scanned, 2), [1, 2, 3, 4, 5]);
    assert_eq!(ops(&scanned, 1), (977..=1_000).collect::<Vec<_>>());
}

/// A checkpoint comes while the prepares of an old file are written again, frame by frame. What is being read keeps its
/// name until then; the rest is not needed any more, and not read.
#[test]
fn file_that_is_given_up_while_it_is_written_again_is_read_no_more() {
    let config = config(UnitSize::Bytes512);
    let held = 5;
    let mut disk = Disk {
        reads_slowly: true,
        ..Disk::default()
    };
    let mut journal = Journal::new(config);
    for op in 1..=held {
        disk.write(&mut journal, vec![prepare(2, op, 300)]);
    }
    let mut op = 0;
    while disk.reading.is_none() {
        op += 1;
        let checkpoint = superblock(1, u64::saturating_sub(op, 24), op);
        disk.write(&mut journal, vec![prepare(1, op, 5_000), checkpoint]);
    }
    let read = disk.reading.map(|(file, ..)| file);
    assert_eq!(read, Some(crate::FileId(1)));

    for later in 1..=20 {
        let checkpoints = vec![superblock(1, op, op), superblock(2, held, later)];
        disk.write(&mut journal, checkpoints);
        disk.quiet(&mut journal);
    }
    assert!(disk.files.contains_key(&crate::FileId(1)));
    disk.finish_read(&mut journal);
    // Files are released with the frames that follow.
    for _ in 0..4 {
        disk.run(&mut journal);
        disk.quiet(&mut journal);
    }
    assert_eq!(disk.reading, None);
    assert!(!disk.files.contains_key(&crate::FileId(1)));
    assert!(disk.scan(config).damage.is_empty());
}

#[test]
fn prepares_written_again_keep_their_order_among_newer_ones() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    let mut held = 0;
    for op in 1..=1_000 {
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
        if op > 24 {
            disk.write(&mut journal, vec![superblock(1, op - 24, op)]);
        }
        if op % 100 == 1 {
            held += 1;
            disk.write(&mut journal, vec![prepare(2, held, 300)]);
        }
    }
    assert_eq!(ops(&disk.scan(config), 2), (1..=10).collect::<Vec<_>>());
}

#[test]
fn suspended_group_keeps_its_files_and_stops_nobody() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    for op in 1..=40 {
        disk.write(&mut journal, vec![prepare(2, op, 5_000)]);
    }
    journal.handle(Input::Suspend {
        group: ConsensusGroup(2),
    });
    for op in 1..=500 {
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
        disk.write(&mut journal, vec![superblock(1, op, op)]);
    }
    assert_eq!(disk.progress[&ShardId(0)].flushed.0, 40 + 999);
    let scanned = disk.scan(config);
    assert!(scanned.damage.is_empty());
    assert_eq!(ops(&scanned, 2), (1..=40).collect::<Vec<_>>());
}

#[test]
fn damaged_file_is_deleted_instead_of_recycled() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    let mut op = 0;
    while disk.files.len() < 4 {
        op += 1;
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
    }
    let file = disk.files.get_mut(&crate::FileId(2)).expect("a full file");
    file[600] ^= 1;
    let (mut journal, scanned) = disk.restart(config);
    assert_eq!(scanned.damage.len(), 1);
    disk.write(&mut journal, vec![superblock(1, op, 1)]);
    disk.quiet(&mut journal);
    assert!(!disk.files.contains_key(&crate::FileId(2)));
    let live = disk.files.len();
    assert!(live <= 3, "{live}");
    assert!(disk.scan(config).damage.is_empty());
}
