//! What can go wrong with files.

use std::{
    io,
    path::{Path, PathBuf},
};

use journal::Damage;

/// A failed operation on a data directory. The text is a sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation.
    #[error("{operation} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Another server holds the directory.
    #[error(
        "data directory {} is in use by another server{}; stop it, or use another directory",
        path.display(),
        match holder { Some(holder) => format!(" (process {holder})"), None => String::new() }
    )]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// The process that holds it, as far as its lock file says.
        holder: Option<u32>,
    },
    /// The directory is not formatted.
    #[error("data directory {} is not formatted: there is no node.toml in it", path.display())]
    NotFormatted {
        /// The data directory.
        path: PathBuf,
    },
    /// The directory is formatted already, or holds something else.
    #[error("{} cannot be formatted: {reason}", path.display())]
    NotEmpty {
        /// The data directory.
        path: PathBuf,
        /// What is in the way.
        reason: String,
    },
    /// The bytes of a file are not what was written.
    #[error("{} is damaged: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with them.
        problem: String,
    },
    /// The journal's head cannot be told, and there is no other replica to ask (V11).
    #[error(
        "the journal in {} cannot be trusted, so the server does not start. {}. What is damaged may have \
         been acknowledged; `cohort-server recover --cut` starts without it",
        path.display(),
        damage.iter().map(ToString::to_string).collect::<Vec<_>>().join(". ")
    )]
    Uncertain {
        /// The journal's directory.
        path: PathBuf,
        /// What is damaged.
        damage: Vec<Damage>,
    },
}

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            operation,
            path: path.to_path_buf(),
            source,
        }
    }

    /// Whether the file system has no space left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self,
            Self::Io { source, .. } if matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
        )
    }

    /// Whether the file or directory does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            " (the user that runs the server needs read and write permission)"
        }
        io::ErrorKind::StorageFull => " (free space on this file system)",
        _ => "",
    }
}
