//! Torn, rotten, uncertain.

use std::{vec, vec::Vec};

use wire::{ConsensusGroup, Op, ShardId};

use super::disk::{Disk, config, ops, prepare, superblock};
use crate::{
    Affected, Config, Damage, FileId, Input, Journal, Scanned, Uncertain, UnitSize, Verdict,
};

const FILE: FileId = FileId(1);

/// A journal with one frame per entry, each with a prepare of that size; the last one is not covered.
fn with_frames(config: Config, sizes: &[usize]) -> (Disk, Journal) {
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    disk.write(&mut journal, vec![superblock(1, 0, 1)]);
    for (op, size) in (1..).zip(sizes) {
        disk.write(&mut journal, vec![prepare(1, op, *size)]);
    }
    (disk, journal)
}

/// Hands one more prepare over and stops before its flush.
fn with_unflushed(disk: &mut Disk, journal: &mut Journal, op: u64, size: usize) {
    journal.handle(Input::Record {
        shard: ShardId(0),
        record: prepare(1, op, size),
    });
    while disk.unflushed.is_empty() {
        assert!(disk.step(journal));
    }
}

fn only(scanned: &Scanned) -> &Damage {
    assert_eq!(scanned.damage.len(), 1, "{:?}", scanned.damage);
    &scanned.damage[0]
}

/// Position of the frame of this op, which is in file 1; the superblock's frames are the first two.
fn position(disk: &Disk, op: usize) -> usize {
    let (file, position) = disk.frames[op + 1];
    assert_eq!(file, FILE);
    usize::try_from(position).expect("small")
}

#[test]
fn unflushed_frame_that_lost_units_is_torn_and_cut() {
    let config = config(UnitSize::Bytes512);
    for lost in 0..10 {
        let (mut disk, mut journal) = with_frames(config, &[100, 100]);
        with_unflushed(&mut disk, &mut journal, 3, 5_000);
        disk.crash(config.unit_size, |index| index != lost);
        let (mut journal, scanned) = disk.restart(config);
        assert_eq!(only(&scanned).verdict, Verdict::Torn, "unit {lost}");
        assert_eq!(ops(&scanned, 1), [1, 2]);
        // What was cut is gone for good.
        let again = disk.scan(config);
        assert!(again.damage.is_empty(), "{:?}", again.damage);
        disk.write(&mut journal, vec![prepare(1, 3, 100)]);
        assert_eq!(ops(&disk.scan(config), 1), [1, 2, 3]);
    }
}

/// Sectors are smaller than blocks: the frame behind a sector that cannot be read is not given up with it.
#[test]
fn unreadable_sector_costs_no_frame_but_its_own() {
    let config = config(UnitSize::Bytes512);
    let (disk, _) = with_frames(config, &[100, 5_000, 100, 100]);
    let begins = position(&disk, 2) as u64;
    for sector in 0..16 {
        let spoiled = begins + sector * 512;
        let bytes = &disk.files[&FILE];
        let files = vec![crate::FileSize {
            file: FILE,
            size: bytes.len() as u64,
        }];
        let mut scan = crate::Scan::new(config, files);
        while let Some(wanted) = scan.wanted() {
            let end = wanted.position + wanted.length;
            let end = match wanted.position..end {
                range if range.contains(&spoiled) => spoiled,
                _ => end,
            };
            let [from, to] = [wanted.position, end].map(|it| usize::try_from(it).expect("small"));
            match from == to {
                true => scan.supply_unreadable_block(),
                false => scan.supply(&bytes[from..to]),
            }
        }
        let scanned = scan.finish(Uncertain::Keep);
        assert_eq!(only(&scanned).verdict, Verdict::Rotten, "sector {sector}");
        let found = ops(&scanned, 1);
        assert!(found.ends_with(&[3, 4]), "sector {sector}: {found:?}");
    }
}

#[test]
fn unflushed_frame_that_lost_all_units_leaves_no_trace() {
    let config = config(UnitSize::Bytes512);
    let (mut disk, mut journal) = with_frames(config, &[100]);
    with_unflushed(&mut disk, &mut journal, 2, 5_000);
    disk.crash(config.unit_size, |_| false);
    let scanned = disk.scan(config);
    assert!(scanned.damage.is_empty());
    assert_eq!(ops(&scanned, 1), [1]);
}

#[test]
fn unflushed_frame_that_lost_nothing_counts() {
    let config = config(UnitSize::Bytes512);
    let (mut disk, mut journal) = with_frames(config, &[100]);
    with_unflushed(&mut disk, &mut journal, 2, 5_000);
    disk.crash(config.unit_size, |_| true);
    let (_, scanned) = disk.restart(config);
    assert!(scanned.damage.is_empty());
    assert_eq!(ops(&scanned, 1), [1, 2]);
}

#[test]
fn tail_with_a_unit_of_no_generation_is_uncertain() {
    let config = config(UnitSize::Bytes512);
    // The frame of op 3 has 8 KiB: head and body, then padding.
    for unit in 0..16 {
        let (mut disk, _) = with_frames(config, &[100, 100, 5_000]);
        let at = position(&disk, 3);
        let file = disk.files.get_mut(&FILE).expect("it is there");
        file[at + unit * 512 + 17] ^= 4;
        let scanned = disk.scan(config);
        let damage = only(&scanned);
        assert_eq!(damage.verdict, Verdict::Uncertain, "unit {unit}");
        assert_eq!((damage.file, damage.position), (FILE, at as u64));
        let group = &scanned.groups[&ConsensusGroup(1)];
        assert!(!group.superblock_lost);
        let is_padding = ops(&scanned, 1) == [1, 2, 3];
        assert_eq!(is_padding, group.uncertain.is_empty(), "unit {unit}");
        if let Some(lost) = group.uncertain.first() {
            assert_eq!(ops(&scanned, 1), [1, 2]);
            // With the first unit gone nothing tells what it was.
            assert!(lost.last == Op(3) || unit == 0 && lost.count.is_none());
        }
    }
}

#[test]
fn torn_frame_with_a_rotten_unit_is_uncertain() {
    let config = config(UnitSize::Bytes512);
    let (mut disk, mut journal) = with_frames(config, &[100]);
    let at = position(&disk, 1) + 4096;
    with_unflushed(&mut disk, &mut journal, 2, 5_000);
    disk.crash(config.unit_size, |index| index != 4);
    let file = disk.files.get_mut(&FILE).expect("it is there");
    file[at + 5 * 512] ^= 1;
    assert_eq!(only(&disk.scan(config)).verdict, Verdict::Uncertain);
}

#[test]
fn damage_before_a_whole_frame_is_rotten_and_named() {
    let config = config(UnitSize::Bytes512);
    for unit in 0..16 {
        let (mut disk, _) = with_frames(config, &[100, 5_000, 100]);
        let at = position(&disk, 2);
        let file = disk.files.get_mut(&FILE).expect("it is there");
        file[at + unit * 512 + 100] ^= 4;
        let scanned = disk.scan(config);
        let damage = only(&scanned);
        assert_eq!(damage.verdict, Verdict::Rotten);
        assert_eq!((damage.file, damage.position), (FILE, at as u64));
        let group = &scanned.groups[&ConsensusGroup(1)];
        if ops(&scanned, 1) == [1, 2, 3] {
            assert!(group.rotten.is_empty());
            continue;
        }
        assert_eq!(ops(&scanned, 1), [1, 3]);
        assert_eq!(group.rotten.len(), 1);
        assert_eq!(group.rotten[0].after, Op(1));
        assert_eq!(group.rotten[0].count, Some(1));
        assert_eq!(group.rotten[0].last, Op(2));
    }
}

#[test]
fn rot_takes_only_the_groups_whose_prepares_are_lost() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    disk.write(
        &mut journal,
        vec![
            prepare(1, 1, 2_000),
            prepare(2, 1, 2_000),
            prepare(3, 1, 2_000),
        ],
    );
    disk.write(&mut journal, vec![prepare(4, 1, 10)]);
    let mut lost_groups = Vec::new();
    for unit in 0..16 {
        let mut rotten = disk.clone();
        let file = rotten.files.get_mut(&FILE).expect("it is there");
        file[unit * 512 + 200] ^= 4;
        let scanned = rotten.scan(config);
        let Affected::Groups(lost) = &only(&scanned).affected else {
            panic!("the next frame tells");
        };
        assert!(!lost.contains_key(&ConsensusGroup(4)));
        lost_groups.push(lost.len());
    }
    // The head's unit takes all; others one, or two that share it.
    assert_eq!(lost_groups[0], 3);
    assert!(lost_groups[2..].iter().all(|lost| *lost <= 2));
    assert!(lost_groups.contains(&1));
}

#[test]
fn rot_below_the_checkpoint_takes_nobody() {
    let config = config(UnitSize::Bytes512);
    let (mut disk, mut journal) = with_frames(config, &[100, 100, 100]);
    let at = position(&disk, 2);
    disk.write(&mut journal, vec![superblock(1, 2, 1)]);
    let file = disk.files.get_mut(&FILE).expect("it is there");
    file[at] ^= 1;
    let scanned = disk.scan(config);
    assert_eq!(only(&scanned).verdict, Verdict::Rotten);
    assert!(scanned.groups[&ConsensusGroup(1)].rotten.is_empty());
}

#[test]
fn rot_is_still_known_after_many_starts() {
    let config = config(UnitSize::Bytes512);
    let (mut disk, _) = with_frames(config, &[100, 100, 100]);
    let at = position(&disk, 2);
    let file = disk.files.get_mut(&FILE).expect("it is there");
    file[at..at + 4096].fill(0x55);
    for _ in 0..5 {
        let (mut journal, scanned) = disk.restart(config);
        assert_eq!(only(&scanned).verdict, Verdict::Rotten);
        let group = &scanned.groups[&ConsensusGroup(1)];
        assert_eq!(group.rotten.len(), 1);
        assert_eq!(group.rotten[0].last, Op(2));
        disk.write(&mut journal, vec![prepare(2, 1, 100)]);
    }
}

#[test]
fn uncertain_tail_that_is_kept_is_rotten_from_then_on() {
    let config = config(UnitSize::Bytes512);
    for first_unit_only in [false, true] {
        let (mut disk, _) = with_frames(config, &[100, 100, 5_000]);
        let at = position(&disk, 3);
        let file = disk.files.get_mut(&FILE).expect("it is there");
        match first_unit_only {
            true => file[at] ^= 1,
            false => file[at..at + 8192].fill(0x55),
        }
        let (mut journal, scanned) = disk.restart(config);
        assert_eq!(only(&scanned).verdict, Verdict::Uncertain);
        assert!(!scanned.groups[&ConsensusGroup(1)].uncertain.is_empty());
        disk.write(&mut journal, vec![prepare(1, 3, 100)]);
        for _ in 0..3 {
            let (_, scanned) = disk.restart(config);
            assert_eq!(only(&scanned).verdict, Verdict::Rotten);
            let group = &scanned.groups[&ConsensusGroup(1)];
            assert!(!group.rotten.is_empty());
            assert_eq!(ops(&scanned, 1), [1, 2, 3]);
        }
    }
}

#[test]
fn uncertain_tail_that_is_cut_is_gone() {
    let config = config(UnitSize::Bytes512);
    let (mut disk, _) = with_frames(config, &[100, 100, 5_000]);
    let at = position(&disk, 3);
    let file = disk.files.get_mut(&FILE).expect("it is there");
    file[at] ^= 1;
    let scanned = disk.scan_with(config, Uncertain::Cut);
    assert_eq!(only(&scanned).verdict, Verdict::Uncertain);
    let mut journal = Journal::resume(config, scanned.resume);
    disk.progress.clear();
    disk.run(&mut journal);
    assert!(disk.scan(config).damage.is_empty());
    disk.write(&mut journal, vec![prepare(1, 3, 100)]);
    assert_eq!(ops(&disk.scan(config), 1), [1, 2, 3]);
}

#[test]
fn superblock_lost_in_both_copies_is_told() {
    let config = config(UnitSize::Bytes512);
    let (mut disk, mut journal) = with_frames(config, &[100]);
    let at = position(&disk, 1) + 4096;
    disk.write(&mut journal, vec![superblock(1, 0, 2)]);
    disk.write(&mut journal, vec![prepare(2, 1, 10)]);
    let group = ConsensusGroup(1);
    for copies in [vec![0], vec![1], vec![0, 1]] {
        let mut rotten = disk.clone();
        let file = rotten.files.get_mut(&FILE).expect("it is there");
        for copy in &copies {
            file[at + copy * 4096] ^= 1;
        }
        let scanned = rotten.scan(config);
        let found = &scanned.groups[&group];
        assert_eq!(found.superblock_lost, copies.len() == 2, "{copies:?}");
        let mark = found.superblock.as_ref().expect("an older one").body[0];
        assert_eq!(mark, if copies.len() == 2 { 1 } else { 2 });
    }
}

#[test]
fn file_cut_at_any_byte_hides_no_flushed_prepare() {
    let config = config(UnitSize::Bytes512);
    let (disk, _) = with_frames(config, &[100, 3_000, 100]);
    let end = position(&disk, 3) + 4096;
    for length in (0..end + 4096).step_by(61) {
        let mut cut = disk.clone();
        let file = cut.files.get_mut(&FILE).expect("it is there");
        file.truncate(length);
        let scanned = cut.scan(config);
        let found = ops(&scanned, 1);
        assert!(found.iter().zip(1..).all(|(found, op)| *found == op));
        if found.len() < 3 {
            let verdicts = scanned.damage.iter().map(|damage| damage.verdict);
            assert!(verdicts.eq(scanned.damage.iter().map(|_| Verdict::Uncertain)));
            assert!(!scanned.damage.is_empty(), "{length}");
        }
    }
}

#[test]
fn missing_file_is_noticed() {
    let config = config(UnitSize::Bytes512);
    let (mut disk, mut journal) = with_frames(config, &[]);
    let mut op = 0;
    while disk.files.len() < 5 {
        op += 1;
        disk.write(&mut journal, vec![prepare(1, op, 5_000)]);
    }
    for missing in [1, 2, 3] {
        let mut less = disk.clone();
        less.files.remove(&FileId(missing));
        let scanned = less.scan(config);
        let damage = only(&scanned);
        assert_eq!(damage.verdict, Verdict::Rotten);
        assert!(!scanned.groups[&ConsensusGroup(1)].rotten.is_empty());
    }
}

#[test]
fn message_inside_a_damaged_frame_is_not_taken_for_a_frame() {
    let config = config(UnitSize::Bytes4096);
    let (mut disk, mut journal) = with_frames(config, &[100]);
    // The body holds, where a later unit begins, the image of a frame.
    let image = disk.files[&FILE][..4088].to_vec();
    let mut body = vec![0; 4088 * 3];
    let head = 4088 - 80 - 48 * 8 - 136;
    body[head..head + image.len()].copy_from_slice(&image);
    let header = wire::PrepareHeader {
        group: 1,
        op: 2,
        ..wire::PrepareHeader::default()
    };
    let record = crate::Record::Prepare {
        header: header.sealed(&body),
        body: bytes::Bytes::from(body),
    };
    let at = position(&disk, 1) + 4096;
    disk.write(&mut journal, vec![record]);
    let file = disk.files.get_mut(&FILE).expect("it is there");
    file[at] ^= 1;
    let scanned = disk.scan(config);
    assert_eq!(only(&scanned).verdict, Verdict::Uncertain);
    assert_eq!(ops(&scanned, 1), [1]);
}
