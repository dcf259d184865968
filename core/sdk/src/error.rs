//! What can go wrong.

use client::{ClientError, ConsumerError, PushError};
use wire::{Command, ErrorCode, Offset, PartitionId};

use crate::AddressError;

/// Why something was not done. [`Error::is_retryable`] says whether the same call may succeed later,
/// [`Error::may_have_happened`] whether it may have been done all the same, [`Error::code`] what the server
/// answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address to connect to is wrong.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An argument is wrong; nothing was sent.
    #[error("{what}: {problem}")]
    Invalid {
        /// Which one.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The server refused it. The text names the thing, the value and the limit.
    #[error("{text} ({}, {})", code.name(), code.code())]
    Refused {
        /// The code, for programs.
        code: ErrorCode,
        /// The text, for people.
        text: String,
    },
    /// The server refused the login, and will refuse it again.
    #[error("login refused: {text} ({}, {})", code.name(), code.code())]
    LoginRefused {
        /// The code, for programs.
        code: ErrorCode,
        /// The text, for people.
        text: String,
    },
    /// No server could be reached.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// The address tried last.
        address: String,
        /// Why.
        reason: String,
    },
    /// The answer did not come in time.
    #[error("no answer to {} within {waited_ms} ms", command.name())]
    TimedOut {
        /// What was asked.
        command: Command,
        /// How long the request was allowed to take, milliseconds.
        waited_ms: u64,
        /// Whether it was sent.
        sent: bool,
    },
    /// The connection was lost before the answer came.
    #[error("the connection was lost before {} was answered: {reason}", command.name())]
    ConnectionLost {
        /// What was asked.
        command: Command,
        /// Why.
        reason: String,
    },
    /// The session ended before the answer came. The client has logged in again; what hung on the session
    /// is gone.
    #[error("the session ended before {} was answered", command.name())]
    SessionLost {
        /// What was asked.
        command: Command,
    },
    /// As many requests wait in this client as may.
    #[error("{limit} requests wait for the server already")]
    TooManyWaiting {
        /// How many may wait.
        limit: usize,
    },
    /// The server's answer is not what the protocol says.
    #[error("{0}")]
    Protocol(String),
    /// The message is too large, or its partition does not exist; nothing was sent.
    #[error(transparent)]
    Message(#[from] PushError),
    /// A batch was given up: it may be stored or not.
    #[error("{error}; whether the messages are stored is not known")]
    InDoubt {
        /// Why it was given up.
        error: Box<Self>,
    },
    /// A partition cannot be read any more. The consumer goes on with the others.
    #[error("partition {partition} cannot be read any more: {error}")]
    PartitionFailed {
        /// The partition.
        partition: PartitionId,
        /// Why.
        error: ConsumerError,
    },
    /// The offset is not stored: what was processed up to it comes again.
    #[error("offset {offset} of partition {partition} was not stored: {text} ({}, {})", code.name(), code.code())]
    NotStored {
        /// The partition.
        partition: PartitionId,
        /// The offset.
        offset: Offset,
        /// The code, for programs.
        code: ErrorCode,
        /// The text, for people.
        text: String,
    },
    /// The offset may be stored or not: the answer was lost, and could not be asked for again in time.
    #[error("whether offset {offset} of partition {partition} is stored is not known: {error}")]
    StoreInDoubt {
        /// The partition.
        partition: PartitionId,
        /// The offset.
        offset: Offset,
        /// Why it is not known.
        error: Box<Self>,
    },
    /// The client, producer or consumer was closed.
    #[error("the client is closed")]
    Closed,
}

impl Error {
    /// Whether the same call may succeed later, with nothing else done about it.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { code, .. } | Self::NotStored { code, .. } => code.retryable(),
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::ConnectionLost { .. }
            | Self::TooManyWaiting { .. } => true,
            Self::Message(error) => matches!(error, PushError::Full { .. }),
            Self::Address(_)
            | Self::Invalid { .. }
            | Self::LoginRefused { .. }
            | Self::SessionLost { .. }
            | Self::Protocol(_)
            | Self::InDoubt { .. }
            | Self::StoreInDoubt { .. }
            | Self::PartitionFailed { .. }
            | Self::Closed => false,
        }
    }

    /// Whether it may have been done although there is an error.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code == ErrorCode::OutcomeUnknown,
            Self::TimedOut { sent, .. } => *sent,
            Self::ConnectionLost { .. }
            | Self::SessionLost { .. }
            | Self::Protocol(_)
            | Self::InDoubt { .. }
            | Self::StoreInDoubt { .. } => true,
            Self::Address(_)
            | Self::Invalid { .. }
            | Self::LoginRefused { .. }
            | Self::Unreachable { .. }
            | Self::TooManyWaiting { .. }
            | Self::Message(_)
            | Self::PartitionFailed { .. }
            | Self::NotStored { .. }
            | Self::Closed => false,
        }
    }

    /// What the server answered, if it refused; of a partition that failed, why.
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::PartitionFailed {
                error: ConsumerError::Request(ClientError::Refused(failure)),
                ..
            } => Some(failure.code),
            Self::Refused { code, .. }
            | Self::LoginRefused { code, .. }
            | Self::NotStored { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(failure) => Self::Refused {
                code: failure.code,
                text: failure.text,
            },
            ClientError::LoginRefused(failure) => Self::LoginRefused {
                code: failure.code,
                text: failure.text,
            },
            ClientError::Unreachable { address, reason } => Self::Unreachable { address, reason },
            ClientError::TimedOut {
                command,
                waited_ms,
                sent,
            } => Self::TimedOut {
                command,
                waited_ms,
                sent,
            },
            ClientError::ConnectionLost { command, reason } => {
                Self::ConnectionLost { command, reason }
            }
            ClientError::SessionLost { command } => Self::SessionLost { command },
            ClientError::Unreadable { .. } => Self::Protocol(error.to_string()),
            ClientError::TooLarge { .. } | ClientError::Reserved { .. } => Self::Invalid {
                what: "request",
                problem: error.to_string(),
            },
            ClientError::QueueFull { limit } => Self::TooManyWaiting { limit },
            ClientError::Closed => Self::Closed,
        }
    }
}

impl From<ConsumerError> for Error {
    fn from(error: ConsumerError) -> Self {
        match error {
            ConsumerError::Request(error) => error.into(),
            ConsumerError::Damaged { .. } | ConsumerError::Compressed { .. } => {
                Self::Protocol(error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientError, ConsumerError, Error, ErrorCode};

    #[test]
    fn a_partition_that_failed_says_what_the_server_answered() {
        let failed = |error| Error::PartitionFailed {
            partition: wire::PartitionId(3),
            error,
        };
        let refused = wire::Failure::new(ErrorCode::PartitionDamaged, "segment 0 is damaged");
        let refused = ConsumerError::Request(ClientError::Refused(refused));
        let code = failed(refused).code();
        assert_eq!(code, Some(ErrorCode::PartitionDamaged));
        let closed = ConsumerError::Request(ClientError::Closed);
        assert_eq!(failed(closed).code(), None);
    }
}
