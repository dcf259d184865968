//! Prepares are found again as long as their files are there.

use std::{vec, vec::Vec};

use wire::{ConsensusGroup, Op, PrepareHeader};

use super::disk::{Disk, config, prepare, superblock};
use crate::{Config, FrameLocation, Journal, Record, UnitSize};

fn header(record: &Record) -> PrepareHeader {
    match record {
        Record::Prepare { header, .. } => *header,
        Record::Superblock(_) => panic!("a prepare"),
    }
}

fn bytes_at(disk: &Disk, location: FrameLocation) -> Option<Vec<u8>> {
    let start = usize::try_from(location.position).unwrap();
    let file = disk.files.get(&location.file)?;
    Some(file[start..start + location.length as usize].to_vec())
}

/// Reads a prepare as a node does that was asked for it.
fn find(disk: &Disk, journal: &Journal, config: &Config, wanted: &Record) -> Option<Record> {
    let header = header(wanted);
    let key = (header.group(), header.op(), header.checksum);
    let places = journal.locate(key.0, key.1).into_iter();
    let found = places.filter_map(|place| place.prepare(config, &bytes_at(disk, place)?, key));
    let mut found = found.map(|(header, body)| Record::Prepare { header, body });
    found.next()
}

#[test]
fn every_prepare_is_found_until_its_file_is_recycled_also_after_a_restart() {
    for unit_size in [UnitSize::Bytes512, UnitSize::Bytes4096] {
        let config = config(unit_size);
        let mut disk = Disk::default();
        let mut journal = Journal::new(config);
        let mut written = Vec::new();
        for op in 1..=60 {
            let records = vec![
                prepare(1, op, 700),
                prepare(2, op, 3_000),
                prepare(1, 100 + op, 9),
            ];
            written.extend(records.clone());
            disk.write(&mut journal, records);
        }
        let resumed = Journal::resume(config, disk.scan(config).resume);
        for record in &written {
            assert_eq!(
                find(&disk, &journal, &config, record).as_ref(),
                Some(record)
            );
            assert_eq!(
                find(&disk, &resumed, &config, record).as_ref(),
                Some(record)
            );
        }
        for op in 61..=160 {
            disk.write(
                &mut journal,
                vec![
                    prepare(1, 200 + op, 5_000),
                    superblock(1, 200 + op - 3, op),
                    superblock(2, 60, op),
                ],
            );
        }
        assert_eq!(find(&disk, &journal, &config, &written[0]), None);
        assert_eq!(journal.locate(ConsensusGroup(2), Op(1)), []);
        let newest = prepare(1, 360, 5_000);
        assert_eq!(find(&disk, &journal, &config, &newest), Some(newest));
    }
}

#[test]
fn another_prepare_of_the_same_op_or_damaged_bytes_are_not_taken_for_it() {
    let config = config(UnitSize::Bytes512);
    let mut disk = Disk::default();
    let mut journal = Journal::new(config);
    let (first, second) = (prepare(1, 5, 600), prepare(1, 5, 601));
    disk.write(&mut journal, vec![first.clone()]);
    disk.write(&mut journal, vec![second.clone()]);
    assert_eq!(find(&disk, &journal, &config, &first), Some(first));
    assert_eq!(
        find(&disk, &journal, &config, &second),
        Some(second.clone())
    );
    assert_eq!(find(&disk, &journal, &config, &prepare(1, 5, 602)), None);
    assert_eq!(find(&disk, &journal, &config, &prepare(2, 5, 600)), None);

    let place = journal.locate(ConsensusGroup(1), Op(5))[0];
    let intact = bytes_at(&disk, place).unwrap();
    let wanted = header(&second);
    let key = (wanted.group(), wanted.op(), wanted.checksum);
    assert!(place.prepare(&config, &intact, key).is_some());
    let used = 512 * 2;
    for byte in 0..used {
        let mut bytes = intact.clone();
        bytes[byte] ^= 1;
        assert_eq!(place.prepare(&config, &bytes, key), None, "byte {byte}");
    }
    assert_eq!(place.prepare(&config, &intact[..512], key), None);
    assert_eq!(place.prepare(&config, &[], key), None);
}
