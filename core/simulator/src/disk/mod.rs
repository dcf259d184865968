//! A disk that keeps what was flushed, and of the rest whatever chance leaves.
//!
//! Every file and directory has two states: what a running process sees, and what is sure to be there after
//! the power was lost. Between them lie the changes that nobody has flushed. A process that dies takes
//! nothing with it; see [`Disk::lose_power`] for what a power failure does.

mod file;
mod path;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::random::Random;
use file::File;
pub(crate) use path::{Directory, Name, Path};

/// A file, whatever it is called at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inode(u64);

/// How far the changes of a file or directory had got when a flush began: what came later is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

/// A disk of one node.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Bytes that are written whole or not at all.
    sector: usize,
    directories: BTreeMap<Directory, Entries>,
    files: BTreeMap<Inode, File>,
    inodes: u64,
    changes: u64,
    /// The frames of the journal that were written last, oldest first.
    frames: VecDeque<Frame>,
}

/// A frame of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Counts the frames of this disk.
    pub(crate) number: u64,
    pub(crate) inode: Inode,
    pub(crate) position: u64,
    pub(crate) length: u64,
}

/// Frames that are remembered.
const FRAMES_KEPT: usize = 9;

/// The names in one directory.
#[derive(Debug, Default)]
struct Entries {
    durable: BTreeMap<Name, Inode>,
    current: BTreeMap<Name, Inode>,
    /// Oldest first.
    pending: VecDeque<(u64, EntryChange)>,
}

#[derive(Clone, Copy, Debug)]
enum EntryChange {
    Link(Name, Inode),
    Unlink(Name),
    Rename(Name, Name),
}

impl Disk {
    /// An empty disk that writes sectors of so many bytes.
    #[must_use]
    pub(crate) const fn new(sector: usize) -> Self {
        Self {
            sector,
            directories: BTreeMap::new(),
            files: BTreeMap::new(),
            inodes: 0,
            changes: 0,
            frames: VecDeque::new(),
        }
    }

    /// The directories that hold anything.
    pub(crate) fn directories(&self) -> impl Iterator<Item = Directory> + '_ {
        let mut held = self.directories.iter();
        std::iter::from_fn(move || {
            held.by_ref()
                .find(|(_, entries)| !entries.current.is_empty())
                .map(|(directory, _)| *directory)
        })
    }

    /// The files of a directory, in the order of their names.
    pub(crate) fn list(&self, directory: Directory) -> impl Iterator<Item = (Name, Inode)> + '_ {
        let entries = self.directories.get(&directory);
        entries
            .into_iter()
            .flat_map(|entries| &entries.current)
            .map(|(name, inode)| (*name, *inode))
    }

    /// The file under this name.
    #[must_use]
    pub(crate) fn find(&self, path: Path) -> Option<Inode> {
        let entries = self.directories.get(&path.directory)?;
        entries.current.get(&path.name).copied()
    }

    /// The file under this name, made empty if there is none.
    pub(crate) fn open(&mut self, path: Path) -> Inode {
        if let Some(inode) = self.find(path) {
            return inode;
        }
        self.inodes += 1;
        let inode = Inode(self.inodes);
        self.files.insert(inode, File::default());
        self.change_entry(path.directory, EntryChange::Link(path.name, inode));
        inode
    }

    /// Bytes of a file.
    ///
    /// # Panics
    /// When there is no such file.
    #[must_use]
    pub(crate) fn size(&self, inode: Inode) -> u64 {
        self.file(inode).size()
    }

    /// Bytes of a file that no unflushed change touches, as ranges, for faults.
    #[must_use]
    pub(crate) fn flushed_ranges(&self, inode: Inode) -> Vec<(u64, u64)> {
        self.file(inode).flushed_ranges()
    }

    /// Reads a range; less than asked for at the end of the file.
    #[must_use]
    pub(crate) fn read(&self, inode: Inode, position: u64, length: u64) -> Bytes {
        self.file(inode).read(position, length)
    }

    /// Reads a range as a process does; where in it something cannot be read, if that is so.
    pub(crate) fn try_read(&self, inode: Inode, position: u64, length: u64) -> Result<Bytes, u64> {
        let file = self.file(inode);
        match file.unreadable(position, length, self.sector) {
            Some(at) => Err(at),
            None => Ok(file.read(position, length)),
        }
    }

    /// The sector with this byte cannot be read until it is written.
    pub(crate) fn spoil(&mut self, inode: Inode, position: u64) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.spoil(position);
        }
    }

    /// Writes a range; the file grows as needed. A file that is gone meanwhile is written all the same.
    pub(crate) fn write(&mut self, inode: Inode, position: u64, bytes: Bytes) {
        self.changes += 1;
        let change = self.changes;
        if let Some(file) = self.files.get_mut(&inode) {
            file.write(change, position, bytes);
        }
    }

    /// Remembers where a frame of the journal was written. One that is written once more is the same.
    pub(crate) fn note_frame(&mut self, inode: Inode, position: u64, length: u64) {
        let number = match self.frames.back() {
            Some(newest) if (newest.inode, newest.position) == (inode, position) => {
                let number = newest.number;
                self.frames.pop_back();
                number
            }
            newest => newest.map_or(0, |newest| newest.number) + 1,
        };
        self.frames.push_back(Frame {
            number,
            inode,
            position,
            length,
        });
        while self.frames.len() > FRAMES_KEPT {
            self.frames.pop_front();
        }
    }

    /// The frames of the journal that were written last, the newest last. Those before it are flushed, unless a
    /// flush has failed or the power was lost.
    pub(crate) fn frames(&self) -> impl DoubleEndedIterator<Item = Frame> + '_ {
        self.frames.iter().copied()
    }

    /// Writes the whole sectors with which a range begins.
    pub(crate) fn write_beginning(&mut self, inode: Inode, position: u64, bytes: &Bytes) {
        let end = position + bytes.len() as u64;
        let whole = (end - end % self.sector as u64).saturating_sub(position);
        let whole = usize::try_from(whole).unwrap_or(0);
        self.write(inode, position, bytes.slice(..whole));
    }

    /// Cuts a file, or extends it by zeros.
    pub(crate) fn set_size(&mut self, inode: Inode, size: u64) {
        self.changes += 1;
        let change = self.changes;
        if let Some(file) = self.files.get_mut(&inode) {
            file.set_size(change, size);
        }
    }

    /// Gives a file another name in its directory, in place of the one that has it.
    pub(crate) fn rename(&mut self, directory: Directory, from: Name, to: Name) {
        if self
            .find(Path {
                directory,
                name: from,
            })
            .is_some()
        {
            self.change_entry(directory, EntryChange::Rename(from, to));
        }
    }

    /// Removes a name, if it is there.
    pub(crate) fn remove(&mut self, path: Path) {
        if self.find(path).is_some() {
            self.change_entry(path.directory, EntryChange::Unlink(path.name));
        }
    }

    /// Where a flush that begins now will end.
    #[must_use]
    pub(crate) const fn mark(&self) -> Mark {
        Mark(self.changes)
    }

    /// A flush of a file is done: its changes up to the mark are durable.
    pub(crate) fn flushed(&mut self, inode: Inode, mark: Mark) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.flushed(mark.0);
        }
    }

    /// A flush of a file fails: see [`File::fail_flush`].
    pub(crate) fn fail_flush(&mut self, inode: Inode, random: &mut Random) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.fail_flush(random, self.sector);
        }
    }

    /// A flush of a directory is done: its names up to the mark are durable.
    pub(crate) fn flushed_directory(&mut self, directory: Directory, mark: Mark) {
        if let Some(entries) = self.directories.get_mut(&directory) {
            while let Some((_, change)) = entries.pending.pop_front_if(|(at, _)| *at <= mark.0) {
                change.apply(&mut entries.durable);
            }
        }
        self.forget_unnamed();
    }

    /// The power is lost. Of the unflushed changes of each directory a beginning survives; of those of
    /// each file anything: all, nothing, a beginning with the next write torn, or of each sector another
    /// state that it went through, as if they were written in any order.
    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        for entries in self.directories.values_mut() {
            let survive = random.index(entries.pending.len() + 1);
            for (_, change) in entries.pending.drain(..).take(survive) {
                change.apply(&mut entries.durable);
            }
            entries.current.clone_from(&entries.durable);
        }
        for file in self.files.values_mut() {
            file.lose_power(random, self.sector);
        }
        self.forget_unnamed();
    }

    /// Flips one bit where it lies, as rot does.
    pub(crate) fn flip(&mut self, inode: Inode, position: u64, bit: u8) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.flip(position, bit);
        }
    }

    /// Puts other bytes where some lie, as a write does that was meant for another place.
    pub(crate) fn overwrite(&mut self, inode: Inode, position: u64, bytes: &[u8]) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.overwrite(position, bytes);
        }
    }

    fn file(&self, inode: Inode) -> &File {
        self.files.get(&inode).expect("a named file is there")
    }

    fn change_entry(&mut self, directory: Directory, change: EntryChange) {
        self.changes += 1;
        let entries = self.directories.entry(directory).or_default();
        change.apply(&mut entries.current);
        entries.pending.push_back((self.changes, change));
    }

    fn forget_unnamed(&mut self) {
        let mut named = BTreeSet::new();
        for entries in self.directories.values() {
            named.extend(entries.durable.values().copied());
            named.extend(entries.current.values().copied());
            named.extend(
                entries
                    .pending
                    .iter()
                    .filter_map(|(_, change)| match change {
                        EntryChange::Link(_, inode) => Some(*inode),
                        EntryChange::Unlink(_) | EntryChange::Rename(..) => None,
                    }),
            );
        }
        self.files.retain(|inode, _| named.contains(inode));
    }
}

impl EntryChange {
    fn apply(self, entries: &mut BTreeMap<Name, Inode>) {
        match self {
            Self::Link(name, inode) => {
                entries.insert(name, inode);
            }
            Self::Unlink(name) => {
                entries.remove(&name);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = entries.remove(&from) {
                    entries.insert(to, inode);
                }
            }
        }
    }
}
