//! The journal's files: their names, reading them all back, making new ones.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use journal::{Config, Damage, FileId, FileSize, Scan, Scanned, Uncertain, Verdict};
use rustix::{fs::FallocateFlags, io::Errno};

use crate::{
    Error,
    paths::{create_file, flush_directory, journal_directory},
};

/// Bytes read at once.
const CHUNK: usize = 1024 * 1024;

/// Bytes of a new file that are zeroed and flushed at once.
const FILL: u64 = 2 * 1024 * 1024;

/// What the journal of a data directory holds.
#[derive(Debug)]
pub struct FoundJournal {
    /// What the scan found.
    pub scanned: Scanned,
    /// Bytes that were read.
    pub size: u64,
    /// Files in the journal's directory that are none of its own.
    pub strays: Vec<PathBuf>,
}

/// Reads the whole journal of a data directory and judges it.
///
/// With one replica nobody can be asked what an uncertain tail held, so it ends the start, unless
/// `uncertain` says to cut it.
///
/// # Errors
/// When a file cannot be read; `Uncertain` as said.
pub fn scan_journal(
    data: &Path,
    config: Config,
    uncertain: Option<Uncertain>,
) -> Result<FoundJournal, Error> {
    let directory = journal_directory(data);
    // A process that was killed may have left a name that no power failure has to keep, and what is written
    // to that file from now on must be found under it.
    flush_directory(&directory)?;
    let (files, strays) = list(&directory)?;
    let size = files.iter().map(|file| file.size).sum();
    let mut scan = Scan::new(config, files);
    let mut open: Option<(FileId, File)> = None;
    let mut buffer = vec![0; CHUNK];
    while let Some(wanted) = scan.wanted() {
        let path = path_of(&directory, wanted.file);
        let file = match &open {
            Some((id, file)) if *id == wanted.file => file,
            Some(_) | None => {
                let file = File::open(&path).map_err(Error::io("open", &path))?;
                &open.insert((wanted.file, file)).1
            }
        };
        let length = usize::try_from(wanted.length).unwrap_or(CHUNK).min(CHUNK);
        match file.read_at(&mut buffer[..length], wanted.position) {
            // Shorter than the directory said: what is missing cannot be read.
            Ok(0) => scan.supply_unreadable(length as u64),
            Ok(read) => scan.supply(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), position = wanted.position, "read journal: {error}");
                scan.supply_unreadable_block();
            }
        }
    }
    let scanned = scan.finish(uncertain.unwrap_or(Uncertain::Keep));
    if uncertain.is_none() {
        let is_grave =
            |damage: &&Damage| damage.verdict == Verdict::Uncertain && damage.loses_prepares();
        let damage: Vec<_> = scanned.damage.iter().filter(is_grave).cloned().collect();
        if !damage.is_empty() {
            return Err(Error::Uncertain {
                path: directory,
                damage,
            });
        }
    }
    Ok(FoundJournal {
        scanned,
        size,
        strays,
    })
}

fn list(directory: &Path) -> Result<(Vec<FileSize>, Vec<PathBuf>), Error> {
    let mut files = Vec::new();
    let mut strays = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io("read", directory))? {
        let entry = entry.map_err(Error::io("read", directory))?;
        let path = entry.path();
        match id_of(&path) {
            Some(file) => {
                let size = entry.metadata().map_err(Error::io("look at", &path))?.len();
                files.push(FileSize { file, size });
            }
            // One that was being made when the process ended.
            None if path.extension().is_some_and(|extension| extension == "new") => {
                fs::remove_file(&path).map_err(Error::io("delete", &path))?;
            }
            None => strays.push(path),
        }
    }
    Ok((files, strays))
}

fn id_of(path: &Path) -> Option<FileId> {
    if path.extension()? != "journal" {
        return None;
    }
    path.file_stem()?.to_str()?.parse().ok().map(FileId)
}

pub(crate) fn path_of(directory: &Path, file: FileId) -> PathBuf {
    directory.join(format!("{:010}.journal", file.0))
}

/// An open file of the journal.
#[derive(Debug)]
pub(crate) struct JournalFile {
    /// Reads, zeros and flushes.
    pub(crate) cached: File,
    /// Writes past the page cache, which copies nothing and leaves a flush nothing to collect. Absent where the
    /// file system does not offer that.
    direct: Option<File>,
    /// The same, and a write returns only when its bytes are on the disk: the kernel writes and flushes
    /// without waking this thread in between.
    durable: Option<File>,
}

impl JournalFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let cached = options.read(true).write(true).open(path)?;
        let direct = options.custom_flags(libc::O_DIRECT).open(path).ok();
        let flags = libc::O_DIRECT | libc::O_DSYNC;
        let durable = options.custom_flags(flags).open(path).ok();
        Ok(Self {
            cached,
            direct,
            durable,
        })
    }

    /// Writes a frame and makes it durable. What was written otherwise before is not made durable by that.
    pub(crate) fn write_durable(&self, frame: &[u8], position: u64) -> io::Result<()> {
        if let Some(durable) = &self.durable {
            match durable.write_all_at(frame, position) {
                // The disk's blocks are larger than a frame's alignment.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                written => return written,
            }
        }
        self.write(frame, position)?;
        self.cached.sync_data()
    }

    /// Writes a frame. The two ways may be mixed: the kernel keeps the page cache in step with the disk.
    pub(crate) fn write(&self, frame: &[u8], position: u64) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            match direct.write_all_at(frame, position) {
                // The disk's blocks are larger than a frame's alignment.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                written => return written,
            }
        }
        self.cached.write_all_at(frame, position)
    }
}

/// Makes a file of the journal ready: renames an old one, or makes one that is allocated and full of written
/// zeros; durably. Once `hurries` is true somebody waits for it, and the rest of the zeros is left out: the
/// file is as good, its first writes only take longer.
pub(crate) fn prepare(
    directory: &Path,
    file: FileId,
    from: Option<FileId>,
    size: u64,
    hurries: &AtomicBool,
) -> Result<(), Error> {
    let path = path_of(directory, file);
    match from {
        Some(from) => {
            let from = path_of(directory, from);
            fs::rename(&from, &path).map_err(Error::io("rename", &from))?;
        }
        None => {
            let temporary = path.with_extension("new");
            if let Err(error) = make(&temporary, size, hurries) {
                // Half a file is of no use, least of all on a full disk.
                let _ = fs::remove_file(&temporary);
                return Err(error);
            }
            fs::rename(&temporary, &path).map_err(Error::io("rename", &temporary))?;
        }
    }
    flush_directory(directory)
}

fn make(path: &Path, size: u64, hurries: &AtomicBool) -> Result<(), Error> {
    let new = create_file(path).map_err(Error::io("create", path))?;
    match rustix::fs::fallocate(&new, FallocateFlags::empty(), 0, size) {
        // A file system that cannot promise space: the zeros take it.
        Err(Errno::OPNOTSUPP) => new.set_len(size).map_err(Error::io("allocate", path))?,
        allocated => allocated.map_err(|error| Error::io("allocate", path)(error.into()))?,
    }
    let mut at = 0;
    while at < size && !hurries.load(Ordering::Relaxed) {
        // In pieces, so that the journal's own flushes wait for few of these bytes.
        let length = FILL.min(size - at);
        zero(&new, at, length).map_err(Error::io("write", path))?;
        new.sync_data().map_err(Error::io("flush", path))?;
        at += length;
    }
    new.sync_all().map_err(Error::io("flush", path))
}

/// Whether nothing was ever written to the journal in this directory: there are only files that are being made,
/// or that are made and still zero.
pub(crate) fn is_unused(directory: &Path) -> Result<bool, Error> {
    for entry in fs::read_dir(directory).map_err(Error::io("read", directory))? {
        let path = entry.map_err(Error::io("read", directory))?.path();
        let is_new = path.extension().is_some_and(|extension| extension == "new");
        if !is_new && (id_of(&path).is_none() || !is_zero(&path)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_zero(path: &Path) -> Result<bool, Error> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer).map_err(Error::io("read", path))? {
            0 => return Ok(true),
            read if buffer[..read].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Overwrites a range with zeros.
pub(crate) fn zero(file: &File, position: u64, length: u64) -> io::Result<()> {
    let zeros = vec![0; CHUNK];
    let mut at = position;
    let end = position + length;
    while at < end {
        let size = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        file.write_all_at(&zeros[..size], at)?;
        at += size as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_past_the_page_cache_or_through_it_and_are_the_same() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("file");
        let alive = AtomicBool::new(false);
        make(&path, 64 * 1024, &alive).unwrap();
        let file = JournalFile::open(&path).unwrap();
        let memory = vec![7; 3 * 4096];
        let start = memory.as_ptr().align_offset(4096);
        let mut expected = vec![0; 64 * 1024];
        // In its place, beside it, and over zeros that are only in the page cache.
        for (from, position) in [(start, 4096), (start + 1, 8192), (start, 32_768)] {
            zero(&file.cached, position, 8192).unwrap();
            file.write(&memory[from..from + 4096], position).unwrap();
            let at = usize::try_from(position).unwrap();
            expected[at..at + 4096].fill(7);
        }
        file.cached.sync_data().unwrap();
        assert!(fs::read(&path).unwrap() == expected);
    }
}
