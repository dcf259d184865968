//! Where things lie in a data directory.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use wire::{ConsensusGroup, Incarnation, Offset, PartitionKey};

use crate::Error;

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
    match std::fs::create_dir(path) {
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
