//! The bytes of one frame never change within a version.

use std::{format, string::String, vec};

use super::disk::{Disk, config, prepare, superblock};
use crate::{FileId, Journal, UnitSize};

#[test]
fn first_frame_has_the_bytes_of_the_golden_file() {
    let mut disk = Disk::default();
    let mut journal = Journal::new(config(UnitSize::Bytes512));
    disk.write(&mut journal, vec![superblock(3, 2, 9), prepare(3, 3, 600)]);
    let frame = &disk.files[&FileId(1)][..4096];
    let mut text = String::new();
    for (index, row) in frame.chunks(32).enumerate() {
        if row.iter().all(|byte| *byte == 0) {
            continue;
        }
        text += &format!("{:04x}", index * 32);
        for byte in row {
            text += &format!(" {byte:02x}");
        }
        text += "\n";
    }
    assert_eq!(text, include_str!("golden_frame.txt"), "{text}");
}
