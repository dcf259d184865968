//! The disk keeps what it promises, and nothing more.

use bytes::Bytes;
use journal::FileId;
use wire::{ConsensusGroup, Op};

use super::{Directory, Disk, Path};
use crate::random::Random;

const SECTOR: usize = 512;

fn path(file: u32) -> Path {
    Path::journal(FileId(file))
}

fn content(disk: &Disk, path: Path) -> Option<Bytes> {
    disk.find(path)
        .map(|inode| disk.read(inode, 0, disk.size(inode)))
}

fn filled(byte: u8, size: usize) -> Bytes {
    Bytes::from(vec![byte; size])
}

/// A file with its name and `size` zeros on the disk.
fn prepared(size: usize) -> (Disk, super::Inode) {
    let mut disk = Disk::new(SECTOR);
    let inode = disk.open(path(1));
    disk.write(inode, 0, filled(0, size));
    disk.flushed(inode, disk.mark());
    disk.flushed_directory(Directory::Journal, disk.mark());
    (disk, inode)
}

#[test]
fn what_is_flushed_survives_every_power_failure() {
    for seed in 0..200 {
        let (mut disk, inode) = prepared(4096);
        disk.write(inode, 100, filled(1, 1000));
        let mark = disk.mark();
        disk.write(inode, 2048, filled(2, 1024));
        disk.flushed(inode, mark);
        disk.lose_power(&mut Random::new(seed));
        let content = content(&disk, path(1)).unwrap();
        assert_eq!(content[100..1100], filled(1, 1000));
        assert!(content[..100].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn unflushed_writes_survive_in_any_sectors_and_any_order() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let (mut disk, inode) = prepared(2048);
        disk.write(inode, 0, filled(1, 1024));
        disk.write(inode, 512, filled(2, 1024));
        disk.lose_power(&mut Random::new(seed));
        let content = content(&disk, path(1)).unwrap();
        assert_eq!(content.len(), 2048);
        for sector in content.chunks(SECTOR) {
            assert!(sector.iter().all(|byte| *byte == sector[0]));
        }
        seen.insert([content[0], content[512], content[1024], content[1536]]);
    }
    // Both, none, the second without the first, a hole between them.
    for expected in [[1, 2, 2, 0], [0, 0, 0, 0], [0, 2, 2, 0], [1, 0, 2, 0]] {
        assert!(seen.contains(&expected), "{expected:?} in {seen:?}");
    }
    assert!(seen.iter().all(|state| state[3] == 0));
}

#[test]
fn names_survive_in_order() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let (mut disk, _) = prepared(512);
        disk.rename(Directory::Journal, path(1).name, path(2).name);
        disk.open(path(3));
        disk.remove(path(2));
        disk.lose_power(&mut Random::new(seed));
        let names: Vec<u32> = (1..=3)
            .filter(|file| disk.find(path(*file)).is_some())
            .collect();
        seen.insert(names);
    }
    let expected: [&[u32]; 4] = [&[1], &[2], &[2, 3], &[3]];
    assert_eq!(seen, expected.map(<[u32]>::to_vec).into_iter().collect());
}

#[test]
fn renamed_file_keeps_its_bytes_when_the_name_is_lost() {
    for seed in 0..50 {
        let mut disk = Disk::new(SECTOR);
        let unfinished = Path::snapshot(ConsensusGroup(1), Op(0));
        let finished = Path::snapshot(ConsensusGroup(1), Op(7));
        let inode = disk.open(unfinished);
        disk.write(inode, 0, filled(9, 700));
        disk.flushed(inode, disk.mark());
        disk.rename(unfinished.directory, unfinished.name, finished.name);
        disk.lose_power(&mut Random::new(seed));
        let found = content(&disk, finished).or(content(&disk, unfinished));
        assert!(found.is_none_or(|bytes| bytes == filled(9, 700)));
    }
}

#[test]
fn cut_may_be_undone_until_it_is_flushed() {
    let mut sizes = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let (mut disk, inode) = prepared(2048);
        disk.set_size(inode, 700);
        disk.lose_power(&mut Random::new(seed));
        sizes.insert(disk.size(inode));
    }
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [700, 2048]);
}

#[test]
fn sector_that_cannot_be_read_can_be_again_when_it_is_written() {
    let (mut disk, inode) = prepared(2048);
    disk.spoil(inode, 700);
    assert_eq!(disk.try_read(inode, 0, 2048), Err(512));
    assert_eq!(disk.try_read(inode, 600, 10), Err(600));
    assert_eq!(disk.try_read(inode, 0, 512), Ok(filled(0, 512)));
    assert_eq!(disk.try_read(inode, 1024, 4000), Ok(filled(0, 1024)));
    disk.write(inode, 1024, filled(1, 8));
    assert_eq!(disk.try_read(inode, 1000, 100), Err(1000));
    disk.write(inode, 512, filled(1, 512));
    assert_eq!(disk.try_read(inode, 1000, 10), Ok(filled(1, 10)));
}

/// V18: whoever goes on after a failed flush believes what is not on the disk.
#[test]
fn failed_flush_leaves_what_no_later_flush_writes() {
    let (mut lied, mut dropped) = (false, false);
    for seed in 0..100 {
        let (mut disk, inode) = prepared(1024);
        let random = &mut Random::new(seed);
        disk.write(inode, 0, filled(1, 1024));
        disk.fail_flush(inode, random);
        let seen = content(&disk, path(1)).unwrap();
        disk.flushed(inode, disk.mark());
        disk.lose_power(random);
        let left = content(&disk, path(1)).unwrap();
        lied |= seen == filled(1, 1024) && left != seen;
        dropped |= seen == filled(0, 1024);
    }
    assert!(lied, "the page cache tells what is not on the disk");
    assert!(dropped, "what was written is gone at once");
}

#[test]
fn last_frames_are_remembered_and_one_that_is_written_again_is_the_same() {
    let (mut disk, inode) = prepared(64 * 1024);
    for number in 0..12 {
        disk.note_frame(inode, number * 4096, 4096);
    }
    disk.note_frame(inode, 11 * 4096, 4096);
    let numbers: Vec<u64> = disk.frames().map(|frame| frame.number).collect();
    assert_eq!(numbers, (4..=12).collect::<Vec<_>>());
    let newest = disk.frames().next_back().unwrap();
    assert_eq!((newest.position, newest.length), (11 * 4096, 4096));
}

#[test]
fn what_lands_in_a_wrong_place_survives_the_power_failure() {
    let (mut disk, inode) = prepared(1024);
    disk.overwrite(inode, 1000, &filled(7, 100));
    disk.lose_power(&mut Random::new(1));
    let content = content(&disk, path(1)).unwrap();
    assert_eq!(content.len(), 1024, "the file grows by no such write");
    assert_eq!(content[1000..], filled(7, 24));
}

#[test]
fn write_that_fails_has_written_whole_sectors() {
    let (mut disk, inode) = prepared(2048);
    disk.write_beginning(inode, 0, &filled(1, 700));
    disk.write_beginning(inode, 1024, &filled(1, 511));
    let content = content(&disk, path(1)).unwrap();
    assert_eq!(content[..512], filled(1, 512));
    assert_eq!(content[512..], filled(0, 1536));
}

#[test]
fn rot_hits_what_is_flushed_only() {
    let (mut disk, inode) = prepared(2048);
    disk.write(inode, 512, filled(1, 512));
    assert_eq!(disk.flushed_ranges(inode), [(0, 512), (1024, 2048)]);
    disk.flip(inode, 3, 7);
    assert_eq!(disk.read(inode, 3, 1)[0], 0x80);
    disk.set_size(inode, 1500);
    assert_eq!(disk.flushed_ranges(inode), [(0, 512), (1024, 1500)]);
}
