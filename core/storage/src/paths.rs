//! Where things lie in a data directory.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use wire::{ConsensusGroup, Incarnation, Offset, PartitionKey};

use crate::Error;

/// Who may look into directories that are made: the server's user.
const DIRECTORY_MODE: u32 = 0o700;
/// Who may read and write files that are made: the server's user. They hold messages, and hashes of passwords.
const FILE_MODE: u32 = 0o600;

/// Names a segment: `group-<g>/<stream>-<topic>-<partition>-<incarnation>/<base offset>.segment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The data group.
    pub group: ConsensusGroup,
    /// The partition.
    pub partition: PartitionKey,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Offset of the first message.
    pub base: Offset,
}

impl SegmentName {
    /// The directory of the partition's incarnation.
    #[must_use]
    pub fn directory(&self, data: &Path) -> PathBuf {
        partition_directory(data, self.group, &self.partition, self.incarnation)
    }

    /// The file with the messages.
    #[must_use]
    pub fn segment(&self, data: &Path) -> PathBuf {
        self.directory(data)
            .join(format!("{:020}.segment", self.base.0))
    }

    /// The file with the index.
    #[must_use]
    pub fn index(&self, data: &Path) -> PathBuf {
        self.directory(data)
            .join(format!("{:020}.index", self.base.0))
    }
}

/// The directory of a consensus group.
pub(crate) fn group_directory(data: &Path, group: ConsensusGroup) -> PathBuf {
    data.join(format!("group-{group}"))
}

/// The directory of a partition's incarnation.
pub(crate) fn partition_directory(
    data: &Path,
    group: ConsensusGroup,
    partition: &PartitionKey,
    incarnation: Incarnation,
) -> PathBuf {
    let PartitionKey {
        stream,
        topic,
        partition,
    } = partition;
    group_directory(data, group).join(format!("{stream}-{topic}-{partition}-{incarnation}"))
}

/// The directory of the journal.
pub(crate) fn journal_directory(data: &Path) -> PathBuf {
    data.join("journal")
}

/// Makes the entries of a directory durable.
pub(crate) fn flush_directory(path: &Path) -> Result<(), Error> {
    let directory = File::open(path).map_err(Error::io("open", path))?;
    directory.sync_all().map_err(Error::io("flush", path))
}

/// How files are opened that may have to be made: whoever else has an account on the machine cannot read them.
pub(crate) fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Makes a file, or empties the one that is there.
pub(crate) fn create_file(path: &Path) -> std::io::Result<File> {
    private_options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
}

/// Makes a directory with all above it that are missing, durably.
pub(crate) fn create_directory(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        create_directory(parent)?;
    }
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {
            return Ok(());
        }
        Err(error) => return Err(Error::io("create directory", path)(error)),
    }
    match path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        Some(parent) => flush_directory(parent),
        None => Ok(()),
    }
}
