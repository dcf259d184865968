//! Reading and writing little-endian fields.

mod reader;
#[cfg(test)]
mod tests;
mod writer;

use core::fmt;

pub use reader::Reader;
pub use writer::Writer;

/// Why foreign bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} at byte {position}: {problem}")]
pub struct DecodeError {
    /// The field that was being read, as PROTOCOL.md names it.
    pub field: &'static str,
    /// Where it starts, counted from the beginning of the body.
    pub position: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// The kinds of damage that a decoder tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Fewer bytes are left than the field needs.
    Truncated {
        /// Bytes that the field needs.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// The value is none of those that PROTOCOL.md allows.
    Invalid {
        /// The value read.
        value: u64,
    },
    /// The value exceeds the limit.
    TooLarge {
        /// The value read.
        value: u64,
        /// The largest that is allowed.
        limit: u64,
    },
    /// Text is not UTF-8, or breaks the rules for names.
    Text,
    /// The checksum does not match.
    Checksum,
    /// Bytes are left behind the last field.
    Trailing {
        /// How many.
        left: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, left } => write!(f, "needs {needed} bytes, {left} are left"),
            Self::Invalid { value } => write!(f, "{value} is not a value of this field"),
            Self::TooLarge { value, limit } => write!(f, "{value} exceeds the limit of {limit}"),
            Self::Text => f.write_str("is not valid text"),
            Self::Checksum => f.write_str("does not match its checksum"),
            Self::Trailing { left } => write!(f, "{left} bytes are left behind the last field"),
        }
    }
}
