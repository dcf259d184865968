//! What stops a measurement.

use std::io;

use wire::{DecodeError, Failure};

/// What stops a measurement. A figure that misses its target is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line makes no sense.
    #[error("{0}; see cohort-bench --help")]
    Usage(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    Io {
        /// What was tried, as a verb phrase.
        what: String,
        /// What the system said.
        error: io::Error,
    },
    /// The server said no.
    #[error("{what} was refused: {failure}")]
    Refused {
        /// What was asked for.
        what: String,
        /// The server's answer.
        failure: Failure,
    },
    /// The server answered something that is not in the protocol, or not what it was asked for.
    #[error("the answer to {what} makes no sense: {why}")]
    Answer {
        /// What was asked for.
        what: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// The server process did not do what it should.
    #[error("{0}")]
    Server(String),
}

impl Error {
    pub(crate) fn answer(what: impl Into<String>, why: impl ToString) -> Self {
        Self::Answer {
            what: what.into(),
            why: why.to_string(),
        }
    }

    pub(crate) fn decode(what: impl Into<String>, error: &DecodeError) -> Self {
        Self::answer(what, error)
    }
}

/// Says what was tried.
pub(crate) trait During<T> {
    /// Says what was tried, as a verb phrase.
    fn during(self, what: impl Into<String>) -> Result<T, Error>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl Into<String>) -> Result<T, Error> {
        self.map_err(|error| Error::Io {
            what: what.into(),
            error,
        })
    }
}
