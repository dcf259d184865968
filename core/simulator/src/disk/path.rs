//! The names in a data directory.

use std::fmt;

use journal::FileId;
use partition::{FileKind, SegmentId};
use wire::{ConsensusGroup, Incarnation, Offset, Op, PartitionKey};

/// A directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Directory {
    /// Of the journal's files.
    Journal,
    /// Of a consensus group's snapshots.
    Group(ConsensusGroup),
    /// Of the segments of a partition's incarnation.
    Partition {
        /// The data group.
        group: ConsensusGroup,
        /// The partition.
        key: PartitionKey,
        /// Its incarnation.
        incarnation: Incarnation,
    },
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// A file of the journal.
    Journal(FileId),
    /// A snapshot.
    Snapshot(Op),
    /// A segment, by the offset of its first message.
    Segment(Offset),
    /// The index of a segment.
    Index(Offset),
    /// A file that gets its name when it is whole.
    Unfinished(u64),
}

/// A name and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path {
    /// The directory.
    pub(crate) directory: Directory,
    /// The name.
    pub(crate) name: Name,
}

impl Path {
    /// A file of the journal.
    #[must_use]
    pub(crate) const fn journal(file: FileId) -> Self {
        Self {
            directory: Directory::Journal,
            name: Name::Journal(file),
        }
    }

    /// A snapshot.
    #[must_use]
    pub(crate) const fn snapshot(group: ConsensusGroup, op: Op) -> Self {
        Self {
            directory: Directory::Group(group),
            name: Name::Snapshot(op),
        }
    }

    /// One of the files of a segment.
    #[must_use]
    pub(crate) const fn segment(segment: SegmentId, kind: FileKind) -> Self {
        let name = match kind {
            FileKind::Segment => Name::Segment(segment.base),
            FileKind::Index => Name::Index(segment.base),
        };
        Self {
            directory: Directory::of_segment(segment),
            name,
        }
    }
}

impl Directory {
    /// Where a segment lies.
    #[must_use]
    pub(crate) const fn of_segment(segment: SegmentId) -> Self {
        Self::Partition {
            group: segment.group,
            key: segment.partition,
            incarnation: segment.incarnation,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.directory, self.name)
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal => f.write_str("journal"),
            Self::Group(group) => write!(f, "group-{group}"),
            Self::Partition {
                group,
                key,
                incarnation,
            } => {
                let (stream, topic, partition) = (key.stream, key.topic, key.partition);
                write!(
                    f,
                    "group-{group}/{stream}-{topic}-{partition}-{incarnation}"
                )
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(file) => write!(f, "{}", file.0),
            Self::Snapshot(op) => write!(f, "snapshot-{op}"),
            Self::Segment(base) => write!(f, "{base}.segment"),
            Self::Index(base) => write!(f, "{base}.index"),
            Self::Unfinished(number) => write!(f, "unfinished-{number}"),
        }
    }
}
