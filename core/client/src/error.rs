//! Why a request has no reply.

use alloc::string::String;

use wire::{Command, DecodeError, ErrorCode, Failure};

/// Why a request ended without a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server refused it.
    #[error("{0}")]
    Refused(Failure),
    /// The server refused the login; nothing more is tried.
    #[error("login refused: {0}")]
    LoginRefused(Failure),
    /// No connection could be made in time. The request was never sent.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// The address tried last.
        address: String,
        /// Why it could not be reached.
        reason: String,
    },
    /// The answer did not come in time.
    #[error("no answer to {} within {waited_ms} ms", command.name())]
    TimedOut {
        /// What was asked.
        command: Command,
        /// How long the request was allowed to take, milliseconds.
        waited_ms: u64,
        /// Whether it was sent, so that it may have been executed.
        sent: bool,
    },
    /// The connection was lost before the answer came, and the request was not to be repeated by the
    /// session. It may have been executed.
    #[error("the connection was lost before {} was answered: {reason}", command.name())]
    ConnectionLost {
        /// What was asked.
        command: Command,
        /// Why the connection was lost.
        reason: String,
    },
    /// The session ended before the answer came, and under a new session the request could be executed
    /// twice. It may have been executed.
    #[error("the session ended before {} was answered", command.name())]
    SessionLost {
        /// What was asked.
        command: Command,
    },
    /// The server's answer is not what the protocol says.
    #[error("the answer to {} cannot be read: {error}", command.name())]
    Unreadable {
        /// What was asked.
        command: Command,
        /// What is wrong with the answer.
        error: DecodeError,
    },
    /// The request does not fit a frame.
    #[error("{} of {size} bytes exceeds the limit of {limit} bytes", command.name())]
    TooLarge {
        /// What was asked.
        command: Command,
        /// Bytes of its body.
        size: usize,
        /// Bytes that a body may have.
        limit: usize,
    },
    /// As many requests wait in this session as may.
    #[error("{limit} requests wait for the server already")]
    QueueFull {
        /// How many may wait.
        limit: usize,
    },
    /// Only the session itself sends this command.
    #[error("{} is sent by the session itself", command.name())]
    Reserved {
        /// What was asked.
        command: Command,
    },
    /// The session is closed.
    #[error("the client is closed")]
    Closed,
}

/// What can be done about a [`ClientError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The same request may succeed later.
    Retryable,
    /// Repeating the request does not help.
    Fatal,
    /// The session is gone; the client logs in again by itself, what hung on the session does not return.
    SessionLost,
}

impl ClientError {
    /// What can be done about it.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Refused(failure) if failure.code.retryable() => ErrorClass::Retryable,
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::ConnectionLost { .. }
            | Self::QueueFull { .. } => ErrorClass::Retryable,
            Self::SessionLost { .. } => ErrorClass::SessionLost,
            Self::Refused(_)
            | Self::LoginRefused(_)
            | Self::Unreadable { .. }
            | Self::TooLarge { .. }
            | Self::Reserved { .. }
            | Self::Closed => ErrorClass::Fatal,
        }
    }

    /// Whether what failed is worth another try.
    pub(crate) const fn is_retryable(&self) -> bool {
        match self.class() {
            ErrorClass::Retryable | ErrorClass::SessionLost => true,
            ErrorClass::Fatal => false,
        }
    }

    /// The code of the server's refusal, if that is what it is.
    #[must_use]
    pub const fn refusal(&self) -> Option<ErrorCode> {
        if let Self::Refused(failure) = self {
            Some(failure.code)
        } else {
            None
        }
    }

    /// Whether the request may have been executed although it has no reply.
    #[must_use]
    pub const fn may_have_happened(&self) -> bool {
        match self {
            Self::Refused(failure) => matches!(failure.code, ErrorCode::OutcomeUnknown),
            Self::TimedOut { sent, .. } => *sent,
            Self::ConnectionLost { .. } | Self::SessionLost { .. } | Self::Unreadable { .. } => {
                true
            }
            Self::LoginRefused(_)
            | Self::Unreachable { .. }
            | Self::TooLarge { .. }
            | Self::QueueFull { .. }
            | Self::Reserved { .. }
            | Self::Closed => false,
        }
    }
}
