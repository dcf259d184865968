//! Snapshots of consensus groups: `group-<g>/snapshot-<op>`, checksummed; two are kept.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use bytes::{Buf, Bytes};
use wire::{ConsensusGroup, Op, checksum128};

use crate::{
    Error,
    directory::write_durably,
    paths::{create_directory, flush_directory, group_directory},
};

/// Begins every snapshot file.
const MAGIC: u64 = u64::from_le_bytes(*b"cohsnap1");

/// Bytes before the payload: magic, group, op, length, checksum.
const HEADER_SIZE: usize = 8 + 8 + 8 + 8 + 16;

/// Snapshots that are kept.
const KEPT: usize = 2;

/// A snapshot that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The op that it was taken after.
    pub op: Op,
    /// What was written.
    pub payload: Bytes,
}

/// A range of a snapshot, and what the file says of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRange {
    /// Bytes of the payload.
    pub size: u64,
    /// XXH3-128 of the payload. It is not compared with it: that takes all of it.
    pub checksum: u128,
    /// The bytes of the range; fewer at the end of the payload.
    pub bytes: Bytes,
}

/// The snapshots of one data directory.
#[derive(Clone, Debug)]
pub struct Snapshots {
    data: PathBuf,
}

impl Snapshots {
    /// Of a data directory.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        Self {
            data: data.to_path_buf(),
        }
    }

    /// Writes a snapshot, durably, then deletes those that are too old.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write(&self, group: ConsensusGroup, op: Op, payload: &[u8]) -> Result<(), Error> {
        let directory = group_directory(&self.data, group);
        create_directory(&directory)?;
        let mut bytes = Vec::with_capacity(HEADER_SIZE + payload.len());
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&u64::from(group.0).to_le_bytes());
        bytes.extend_from_slice(&op.0.to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&checksum128(payload).to_le_bytes());
        bytes.extend_from_slice(payload);
        write_durably(&path_of(&directory, op), &bytes)?;
        for op in self.ops(group)?.into_iter().rev().skip(KEPT) {
            let path = path_of(&directory, op);
            fs::remove_file(&path).map_err(Error::io("delete", &path))?;
        }
        Ok(())
    }

    /// Reads a range of a snapshot's payload.
    ///
    /// # Errors
    /// When it is not there, or not what was written as far as its header tells.
    pub fn read_range(
        &self,
        group: ConsensusGroup,
        op: Op,
        position: u64,
        length: u64,
    ) -> Result<SnapshotRange, Error> {
        let path = path_of(&group_directory(&self.data, group), op);
        let mut file = File::open(&path).map_err(Error::io("open", &path))?;
        let mut header = vec![0; HEADER_SIZE];
        file.read_exact(&mut header)
            .map_err(Error::io("read", &path))?;
        let (size, checksum) = read_header(&mut Bytes::from(header), &path, group, op)?;
        let left = size.saturating_sub(position);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(HEADER_SIZE as u64 + position.min(size)))
            .map_err(Error::io("read", &path))?;
        file.take(length.min(left))
            .read_to_end(&mut bytes)
            .map_err(Error::io("read", &path))?;
        Ok(SnapshotRange {
            size,
            checksum,
            bytes: bytes.into(),
        })
    }

    /// The newest snapshot of a group that can be read, and what is wrong with newer ones.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn newest(&self, group: ConsensusGroup) -> Result<(Option<Snapshot>, Vec<Error>), Error> {
        let directory = group_directory(&self.data, group);
        let mut damaged = Vec::new();
        if directory.is_dir() {
            // A process that was killed may have left a name that no power failure has to keep. The
            // journal is recycled up to the snapshot that is found here, so it must not get lost.
            flush_directory(&directory)?;
            flush_directory(&self.data)?;
        }
        for op in self.ops(group)?.into_iter().rev() {
            match read(&path_of(&directory, op), group, op) {
                Ok(snapshot) => return Ok((Some(snapshot), damaged)),
                Err(error) => damaged.push(error),
            }
        }
        Ok((None, damaged))
    }

    /// The ops of a group's snapshots, ascending, whether they can be read or not.
    fn ops(&self, group: ConsensusGroup) -> Result<Vec<Op>, Error> {
        let directory = group_directory(&self.data, group);
        if !directory.is_dir() {
            return Ok(Vec::new());
        }
        let mut ops = Vec::new();
        for entry in fs::read_dir(&directory).map_err(Error::io("read", &directory))? {
            let name = entry.map_err(Error::io("read", &directory))?.file_name();
            let op = name
                .to_str()
                .and_then(|name| name.strip_prefix("snapshot-")?.parse().ok());
            ops.extend(op.map(Op));
        }
        ops.sort_unstable();
        Ok(ops)
    }
}

fn path_of(directory: &Path, op: Op) -> PathBuf {
    directory.join(format!("snapshot-{:020}", op.0))
}

fn read(path: &Path, group: ConsensusGroup, op: Op) -> Result<Snapshot, Error> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    let damaged = |problem: &str| Error::Damaged {
        path: path.to_path_buf(),
        problem: problem.into(),
    };
    let mut bytes = Bytes::from(bytes);
    if bytes.len() < HEADER_SIZE {
        return Err(damaged("it is cut short"));
    }
    let mut header = bytes.split_to(HEADER_SIZE);
    let (size, checksum) = read_header(&mut header, path, group, op)?;
    if size != bytes.len() as u64 {
        return Err(damaged("it is cut short"));
    }
    if checksum != checksum128(&bytes) {
        return Err(damaged("it does not match its checksum"));
    }
    Ok(Snapshot { op, payload: bytes })
}

/// Size and checksum of the payload, if the header is that of this snapshot.
fn read_header(
    header: &mut Bytes,
    path: &Path,
    group: ConsensusGroup,
    op: Op,
) -> Result<(u64, u128), Error> {
    let damaged = |problem: &str| Error::Damaged {
        path: path.to_path_buf(),
        problem: problem.into(),
    };
    if header.get_u64_le() != MAGIC {
        return Err(damaged("it is no snapshot"));
    }
    if (header.get_u64_le(), header.get_u64_le()) != (u64::from(group.0), op.0) {
        return Err(damaged("it belongs to another group or op"));
    }
    Ok((header.get_u64_le(), header.get_u128_le()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: ConsensusGroup = ConsensusGroup(3);

    #[test]
    fn two_snapshots_are_kept_and_the_newest_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::new(directory.path());
        assert_eq!(snapshots.newest(GROUP).unwrap().0, None);
        for op in [9, 10, 200] {
            snapshots
                .write(GROUP, Op(op), format!("state {op}").as_bytes())
                .unwrap();
        }
        assert_eq!(snapshots.ops(GROUP).unwrap(), [Op(10), Op(200)]);
        let (newest, damaged) = snapshots.newest(GROUP).unwrap();
        assert_eq!(
            newest,
            Some(Snapshot {
                op: Op(200),
                payload: "state 200".into()
            })
        );
        assert!(damaged.is_empty());
    }

    #[test]
    fn ranges_of_a_snapshot_are_read_for_others() {
        let directory = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::new(directory.path());
        snapshots.write(GROUP, Op(7), b"0123456789").unwrap();
        let range = |position, length| snapshots.read_range(GROUP, Op(7), position, length);
        let whole = SnapshotRange {
            size: 10,
            checksum: checksum128(b"0123456789"),
            bytes: "0123456789".into(),
        };
        assert_eq!(range(0, 99).unwrap(), whole);
        assert_eq!(range(3, 4).unwrap().bytes, "3456");
        for (position, length) in [(0, 0), (10, 5), (u64::MAX, u64::MAX)] {
            assert_eq!(range(position, length).unwrap().bytes, "");
        }
        let missing = snapshots.read_range(GROUP, Op(8), 0, 1).unwrap_err();
        assert!(missing.is_missing(), "{missing}");
        let path = path_of(&group_directory(directory.path(), GROUP), Op(7));
        for damage in [&b""[..], b"short", &[0; HEADER_SIZE + 3]] {
            fs::write(&path, damage).unwrap();
            range(0, 1).unwrap_err();
        }
    }

    #[test]
    fn damaged_snapshot_is_named_and_the_one_before_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::new(directory.path());
        snapshots.write(GROUP, Op(1), b"first").unwrap();
        snapshots.write(GROUP, Op(2), b"second").unwrap();
        let path = path_of(&group_directory(directory.path(), GROUP), Op(2));
        let whole = fs::read(&path).unwrap();
        for index in 0..whole.len() {
            let mut rotten = whole.clone();
            rotten[index] ^= 0x10;
            fs::write(&path, &rotten).unwrap();
            let (newest, damaged) = snapshots.newest(GROUP).unwrap();
            assert_eq!(
                newest.map(|snapshot| snapshot.op),
                Some(Op(1)),
                "byte {index}"
            );
            assert!(
                damaged[0].to_string().contains("snapshot-"),
                "{}",
                damaged[0]
            );
            fs::write(&path, &whole[..index]).unwrap();
            assert_eq!(
                snapshots.newest(GROUP).unwrap().1.len(),
                1,
                "cut at {index}"
            );
        }
    }
}
