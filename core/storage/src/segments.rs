//! Files with the messages of partitions.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File, OpenOptions},
    io::{self, IoSlice, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use rustix::{buffer::spare_capacity, io::Errno};
use wire::{ConsensusGroup, Incarnation, PartitionKey};

use crate::{
    Error, SegmentName,
    paths::{
        create_directory, create_file, flush_directory, group_directory, partition_directory,
        private_options,
    },
};

/// Which of a segment's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// The batches.
    Segment,
    /// The index.
    Index,
}

/// Pieces that one system call takes.
const PIECES_MAX: usize = 512;

/// Reads and writes segments of one data directory. Keeps the files that were used last open.
#[derive(Debug)]
pub struct Segments {
    data: PathBuf,
    open: HashMap<SegmentName, (File, u64)>,
    open_max: usize,
    uses: u64,
}

impl Segments {
    /// Of a data directory; at most `open_max` files stay open.
    #[must_use]
    pub fn new(data: &Path, open_max: usize) -> Self {
        assert!(open_max > 0);
        Self {
            data: data.to_path_buf(),
            open: HashMap::new(),
            open_max,
            uses: 0,
        }
    }

    /// Writes pieces one after the other at a position; makes file and directory if they are missing.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn append(
        &mut self,
        name: &SegmentName,
        position: u64,
        pieces: &[Bytes],
    ) -> Result<(), Error> {
        let data = self.data.clone();
        let file = self.file(name, true)?;
        write_pieces(file, position, pieces)
            .map_err(|error| Error::io("write", &name.segment(&data))(error))
    }

    /// Reads a range; less than `length` bytes when the file ends before.
    ///
    /// # Errors
    /// What the operating system says, also when the file does not exist.
    pub fn read(
        &mut self,
        name: &SegmentName,
        kind: FileKind,
        position: u64,
        length: u64,
    ) -> Result<Bytes, Error> {
        let data = self.data.clone();
        match kind {
            FileKind::Segment => {
                let file = self.file(name, false)?;
                read_range(file, position, length)
                    .map_err(|error| Error::io("read", &name.segment(&data))(error))
            }
            FileKind::Index => {
                let path = name.index(&data);
                let file = File::open(&path).map_err(Error::io("open", &path))?;
                read_range(&file, position, length).map_err(Error::io("read", &path))
            }
        }
    }

    /// Writes a segment's index in place of one that may be there. It is not flushed: one that is lost or
    /// half written is made again.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write_index(&self, name: &SegmentName, bytes: &[u8]) -> Result<(), Error> {
        create_directory(&name.directory(&self.data))?;
        let path = name.index(&self.data);
        let temporary = path.with_extension("index.new");
        let mut file = create_file(&temporary).map_err(Error::io("create", &temporary))?;
        file.write_all(bytes)
            .map_err(Error::io("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(Error::io("rename", &temporary))
    }

    /// Deletes a segment and its index; files that are not there are no error.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn delete(&mut self, name: &SegmentName) -> Result<(), Error> {
        self.open.remove(name);
        for path in [name.segment(&self.data), name.index(&self.data)] {
            ignore_missing(fs::remove_file(&path).map_err(Error::io("delete", &path)))?;
        }
        Ok(())
    }

    /// Deletes everything of a partition's incarnation; a directory that is not there is no error.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn delete_partition(
        &mut self,
        group: ConsensusGroup,
        partition: &PartitionKey,
        incarnation: Incarnation,
    ) -> Result<(), Error> {
        self.forget(group, partition, incarnation);
        let path = partition_directory(&self.data, group, partition, incarnation);
        ignore_missing(fs::remove_dir_all(&path).map_err(Error::io("delete", &path)))
    }

    /// Closes a segment's file.
    pub fn close(&mut self, name: &SegmentName) {
        self.open.remove(name);
    }

    /// Closes the files of a partition's incarnation.
    pub fn forget(
        &mut self,
        group: ConsensusGroup,
        partition: &PartitionKey,
        incarnation: Incarnation,
    ) {
        self.open.retain(|name, _| {
            (name.group, &name.partition, name.incarnation) != (group, partition, incarnation)
        });
    }

    /// Flushes segments and the directories that name them; those that are gone are no error.
    ///
    /// # Errors
    /// What the operating system says. Nothing can be promised of the files then.
    pub fn flush(&self, names: &[SegmentName]) -> Result<(), Error> {
        let mut directories: Vec<PathBuf> = Vec::new();
        for name in names {
            let path = name.segment(&self.data);
            let file = match File::open(&path).map_err(Error::io("open", &path)) {
                Ok(file) => file,
                Err(error) if error.is_missing() => continue,
                Err(error) => return Err(error),
            };
            file.sync_data().map_err(Error::io("flush", &path))?;
            directories.push(name.directory(&self.data));
        }
        directories.sort_unstable();
        directories.dedup();
        for directory in directories {
            ignore_missing(flush_directory(&directory))?;
        }
        Ok(())
    }

    /// Deletes the segments of a group, with their indexes, that are not among these: what a transfer that was cut
    /// short has brought, or a deletion has left. Files that no segment or index is named like are nobody's and
    /// stay. Returns how many files that were.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn keep_only(
        &self,
        group: ConsensusGroup,
        known: &BTreeSet<SegmentName>,
    ) -> Result<usize, Error> {
        let files = known
            .iter()
            .flat_map(|name| [name.segment(&self.data), name.index(&self.data)]);
        let files: BTreeSet<PathBuf> = files.collect();
        let mut deleted = 0;
        for directory in list(&group_directory(&self.data, group))? {
            if !is_partition(&directory) {
                continue;
            }
            for path in list(&directory)? {
                if is_of_segment(&path) && !files.contains(&path) {
                    fs::remove_file(&path).map_err(Error::io("delete", &path))?;
                    deleted += 1;
                }
            }
            if list(&directory)?.is_empty() {
                fs::remove_dir(&directory).map_err(Error::io("delete", &directory))?;
            }
        }
        Ok(deleted)
    }

    /// Shortens a segment to what is known of it, before anything is appended. One that is shorter, or not
    /// there, stays as it is.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn truncate(&self, name: &SegmentName, length: u64) -> Result<(), Error> {
        let path = name.segment(&self.data);
        let file = match OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(Error::io("open", &path))
        {
            Ok(file) => file,
            Err(error) if error.is_missing() => return Ok(()),
            Err(error) => return Err(error),
        };
        let size = file.metadata().map_err(Error::io("look at", &path))?.len();
        if size > length {
            file.set_len(length).map_err(Error::io("cut", &path))?;
        }
        Ok(())
    }

    fn file(&mut self, name: &SegmentName, create: bool) -> Result<&File, Error> {
        self.uses += 1;
        let uses = self.uses;
        if !self.open.contains_key(name) {
            if self.open.len() >= self.open_max {
                let oldest = self
                    .open
                    .iter()
                    .min_by_key(|(_, (_, used))| *used)
                    .map(|(name, _)| *name);
                if let Some(oldest) = oldest {
                    self.open.remove(&oldest);
                }
            }
            let file = self.open_file(name, create)?;
            self.open.insert(*name, (file, uses));
        }
        let (file, used) = self.open.get_mut(name).expect("it was put there");
        *used = uses;
        Ok(file)
    }

    fn open_file(&self, name: &SegmentName, create: bool) -> Result<File, Error> {
        let path = name.segment(&self.data);
        if !create {
            return File::open(&path).map_err(Error::io("open", &path));
        }
        let mut options = private_options();
        options.read(true).write(true).create(true).truncate(false);
        match options.open(&path) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_directory(&name.directory(&self.data))?;
                options.open(&path).map_err(Error::io("create", &path))
            }
            Err(error) => Err(Error::io("create", &path)(error)),
        }
    }
}

/// Whether it is a directory that is named like one of a partition's incarnation.
fn is_partition(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let mut parts = name.unwrap_or_default().split('-');
    let numbers = parts.by_ref().take(4);
    numbers.filter(|part| is_number(part)).count() == 4 && parts.next().is_none() && path.is_dir()
}

/// Whether it is named like a segment or an index, or one that was never finished.
fn is_of_segment(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some((base, kind)) = name.and_then(|name| name.split_once('.')) else {
        return false;
    };
    base.len() == 20 && is_number(base) && ["segment", "index", "index.new"].contains(&kind)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// What is in a directory; one that is not there is empty.
fn list(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(path).map_err(Error::io("read", path)) {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        entries => entries?,
    };
    entries
        .map(|entry| Ok(entry.map_err(Error::io("read", path))?.path()))
        .collect()
}

fn ignore_missing(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_missing() => Ok(()),
        other => other,
    }
}

fn write_pieces(file: &File, mut position: u64, pieces: &[Bytes]) -> io::Result<()> {
    for pieces in pieces.chunks(PIECES_MAX) {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = &mut slices[..];
        while left.iter().any(|slice| !slice.is_empty()) {
            let written = rustix::io::pwritev(file, left, position)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            position += written as u64;
            IoSlice::advance_slices(&mut left, written);
        }
    }
    Ok(())
}

fn read_range(file: &File, position: u64, length: u64) -> io::Result<Bytes> {
    // A length comes from an index; a file that is shorter bounds it.
    let size = file.metadata()?.len();
    let end = position.saturating_add(length).min(size);
    let length =
        usize::try_from(end.saturating_sub(position)).map_err(|_| io::ErrorKind::InvalidInput)?;
    // Filled by the kernel alone: zeros would cost a third of the read.
    let mut buffer = Vec::with_capacity(length);
    while buffer.len() < length {
        let at = position + buffer.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut buffer), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    buffer.truncate(length);
    Ok(Bytes::from(buffer))
}

#[cfg(test)]
mod tests {
    use wire::{Offset, PartitionId, StreamId, TopicId};

    use super::*;

    fn name(base: u64) -> SegmentName {
        let partition = PartitionKey {
            stream: StreamId(1),
            topic: TopicId(2),
            partition: PartitionId(3),
        };
        SegmentName {
            group: ConsensusGroup(4),
            partition,
            incarnation: Incarnation(5),
            base: Offset(base),
        }
    }

    fn pieces(count: usize) -> Vec<Bytes> {
        (0..count)
            .map(|index| Bytes::from(format!("piece {index};")))
            .collect()
    }

    #[test]
    fn what_is_appended_is_read_back_whatever_the_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut segments = Segments::new(directory.path(), 2);
        let all = pieces(2_000);
        let first: Vec<Bytes> = all[..1_000].to_vec();
        let at = first.iter().map(Bytes::len).sum::<usize>() as u64;
        segments.append(&name(0), at, &all[1_000..]).unwrap();
        segments.append(&name(0), 0, &first).unwrap();
        let whole = segments
            .read(&name(0), FileKind::Segment, 0, 1 << 30)
            .unwrap();
        assert_eq!(whole, all.concat());
        let part = segments.read(&name(0), FileKind::Segment, 6, 3).unwrap();
        assert_eq!(part, whole.slice(6..9));
        let behind = segments
            .read(&name(0), FileKind::Segment, 1 << 40, 3)
            .unwrap();
        assert!(behind.is_empty());
    }

    #[test]
    fn few_files_stay_open() {
        let directory = tempfile::tempdir().unwrap();
        let mut segments = Segments::new(directory.path(), 3);
        for base in 0..10 {
            segments.append(&name(base), 0, &pieces(1)).unwrap();
            assert!(segments.open.len() <= 3);
        }
        for base in 0..10 {
            assert_eq!(
                segments
                    .read(&name(base), FileKind::Segment, 0, 100)
                    .unwrap(),
                pieces(1)[0]
            );
        }
    }

    #[test]
    fn what_is_gone_is_no_error_for_those_who_flush_or_delete() {
        let directory = tempfile::tempdir().unwrap();
        let mut segments = Segments::new(directory.path(), 3);
        segments.append(&name(0), 0, &pieces(1)).unwrap();
        segments.write_index(&name(0), b"index").unwrap();
        assert_eq!(
            segments.read(&name(0), FileKind::Index, 0, 99).unwrap(),
            "index"
        );
        segments.flush(&[name(0), name(7)]).unwrap();
        segments.delete(&name(0)).unwrap();
        segments.delete(&name(0)).unwrap();
        assert!(
            segments
                .read(&name(0), FileKind::Segment, 0, 1)
                .unwrap_err()
                .is_missing()
        );
        let SegmentName {
            group,
            partition,
            incarnation,
            ..
        } = name(0);
        segments
            .delete_partition(group, &partition, incarnation)
            .unwrap();
        segments
            .delete_partition(group, &partition, incarnation)
            .unwrap();
        segments.flush(&[name(0)]).unwrap();
        assert!(!name(0).directory(directory.path()).exists());
    }

    #[test]
    fn only_what_is_known_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut segments = Segments::new(directory.path(), 9);
        let group = name(0).group;
        assert_eq!(segments.keep_only(group, &BTreeSet::new()).unwrap(), 0);
        let other = SegmentName {
            incarnation: Incarnation(6),
            ..name(0)
        };
        let elsewhere = SegmentName {
            group: ConsensusGroup(7),
            ..name(1)
        };
        for name in [name(0), name(1), other, elsewhere] {
            segments.append(&name, 0, &pieces(1)).unwrap();
            segments.write_index(&name, b"index").unwrap();
        }
        let snapshot = directory.path().join("group-4").join("12.snapshot");
        let notes = name(0).directory(directory.path()).join("notes.txt");
        for strange in [&snapshot, &notes] {
            fs::write(strange, b"not ours").unwrap();
        }
        let deleted = segments.keep_only(group, &BTreeSet::from([name(0)]));
        assert_eq!(deleted.unwrap(), 4);
        let is_there = |name: SegmentName| {
            let files = [name.segment(directory.path()), name.index(directory.path())];
            files.map(|path| path.exists())
        };
        assert_eq!(is_there(name(0)), [true, true]);
        assert_eq!(is_there(name(1)), [false, false]);
        assert_eq!(is_there(other), [false, false]);
        assert_eq!(is_there(elsewhere), [true, true]);
        assert!(!other.directory(directory.path()).exists());
        assert!(snapshot.exists() && notes.exists());
    }

    #[test]
    fn truncation_only_shortens() {
        let directory = tempfile::tempdir().unwrap();
        let mut segments = Segments::new(directory.path(), 3);
        segments.truncate(&name(0), 5).unwrap();
        segments
            .append(&name(0), 0, &[Bytes::from_static(b"0123456789")])
            .unwrap();
        segments.truncate(&name(0), 20).unwrap();
        segments.truncate(&name(0), 4).unwrap();
        assert_eq!(
            segments.read(&name(0), FileKind::Segment, 0, 99).unwrap(),
            "0123"
        );
    }
}
