//! Names, and how things are named on the wire.

#[cfg(test)]
mod tests;

use alloc::string::String;
use core::fmt;

use crate::{
    ConsumerGroupId, DecodeError, Reader, StreamId, TopicId, UserId, Writer, field::Field,
};

/// The longest name, in bytes.
pub const NAME_SIZE_MAX: usize = 255;

/// Names a stream, topic, user or consumer group: by id or by name, never ambiguously.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identifier {
    /// By id. On the wire: kind 1, length 8, u64.
    Number(u64),
    /// By name. On the wire: kind 2, length, UTF-8.
    Name(String),
}

impl Identifier {
    /// Names by name.
    ///
    /// # Errors
    /// The rule that the name breaks.
    pub fn name(name: &str) -> Result<Self, NameProblem> {
        check_name(name)?;
        Ok(Self::Name(String::from(name)))
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(id) => write!(f, "id {id}"),
            Self::Name(name) => write!(f, "{name:?}"),
        }
    }
}

macro_rules! from_id {
    ($($id:ident)*) => {$(
        impl From<$id> for Identifier {
            fn from(id: $id) -> Self {
                Self::Number(id.0)
            }
        }
    )*};
}

from_id! { StreamId TopicId UserId ConsumerGroupId }

impl Field for Identifier {
    const SIZE_MIN: usize = 2;

    /// A name is not judged here: one that breaks the rules names nothing, and is refused where it
    /// would be given to something.
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        match reader.kind(field)? {
            1 => match reader.length8(field)? {
                8 => Ok(Self::Number(reader.u64(field)?)),
                length => Err(reader.invalid(field, start + 1, length)),
            },
            2 => Ok(Self::Name(reader.text8(field)?)),
            kind => Err(reader.invalid(field, start, kind)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Number(id) => writer.u8(1).u8(8).u64(*id),
            Self::Name(name) => writer.u8(2).text8(name),
        };
    }
}

/// The rule that a name breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameProblem {
    /// It has no bytes.
    #[error("a name must not be empty")]
    Empty,
    /// It has more than [`NAME_SIZE_MAX`] bytes.
    #[error("a name of {size} bytes exceeds the limit of {NAME_SIZE_MAX}")]
    TooLong {
        /// Its bytes.
        size: usize,
    },
    /// It could be taken for an id.
    #[error("a name must not consist of digits only")]
    OnlyDigits,
    /// It begins as an id does where people write one: `#7`, `id:7`.
    #[error("a name must not begin with # or id:, as ids do")]
    ReadsAsId,
    /// It has a control character.
    #[error("a name must not have a control character (byte {position})")]
    ControlCharacter {
        /// The byte where the character starts.
        position: usize,
    },
    /// It starts or ends with white space.
    #[error("a name must not start or end with a space")]
    OuterSpace,
}

/// Checks the rules for names of streams, topics, users, consumer groups and single consumers: 1 to 255
/// bytes of UTF-8, not only digits, neither `#` nor `id:` at the beginning, no control characters, no leading or trailing white space.
///
/// # Errors
/// The first rule that is broken.
pub fn check_name(name: &str) -> Result<(), NameProblem> {
    if name.is_empty() {
        return Err(NameProblem::Empty);
    }
    if name.len() > NAME_SIZE_MAX {
        return Err(NameProblem::TooLong { size: name.len() });
    }
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NameProblem::OnlyDigits);
    }
    if let Some(position) = name.find(char::is_control) {
        return Err(NameProblem::ControlCharacter { position });
    }
    if name.starts_with(char::is_whitespace) || name.ends_with(char::is_whitespace) {
        return Err(NameProblem::OuterSpace);
    }
    // Last: instance ids may, and are held to all other rules.
    if name.starts_with('#') || name.starts_with("id:") {
        return Err(NameProblem::ReadsAsId);
    }
    Ok(())
}
