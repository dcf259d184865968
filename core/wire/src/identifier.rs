//! Names, and how things are named on the wire.

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
/// bytes of UTF-8, not only digits, no control characters, no leading or trailing white space.
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Identifier, NameProblem, check_name};
    use crate::{
        DecodeError, Problem, StreamId, Writer,
        field::{self, Field},
    };

    fn decode(bytes: &'static [u8]) -> Result<Identifier, DecodeError> {
        field::decode(bytes.into())
    }

    #[test]
    fn identifier_is_an_id_or_a_name() {
        assert_eq!(
            decode(&[1, 8, 7, 0, 0, 0, 0, 0, 0, 0]),
            Ok(Identifier::Number(7))
        );
        assert_eq!(decode(&[2, 1, b'7']), Ok(Identifier::Name("7".into())));
        assert_eq!(Identifier::from(StreamId(7)), Identifier::Number(7));
    }

    #[test]
    fn identifier_of_another_form_is_refused() {
        let position_and_value = |bytes| {
            let error = decode(bytes).unwrap_err();
            (error.position, error.problem)
        };
        assert_eq!(
            position_and_value(&[0, 0]),
            (0, Problem::Invalid { value: 0 })
        );
        assert_eq!(
            position_and_value(&[3, 0]),
            (0, Problem::Invalid { value: 3 })
        );
        assert_eq!(
            position_and_value(&[1, 4, 7, 0, 0, 0]),
            (1, Problem::Invalid { value: 4 })
        );
        assert_eq!(position_and_value(&[2, 1, 0xff]), (2, Problem::Text));
    }

    #[test]
    fn identifier_is_shown_so_that_ids_and_names_differ() {
        assert_eq!(Identifier::Number(7).to_string(), "id 7");
        assert_eq!(Identifier::Name("a b".into()).to_string(), "\"a b\"");
    }

    #[test]
    fn names_follow_the_rules() {
        let longest = "x".repeat(255);
        for name in [
            "a", "7a", "a 7", "-1", "élise", "名前", "a.b/c", "７", &longest,
        ] {
            assert_eq!(check_name(name), Ok(()), "{name:?}");
            assert_eq!(Identifier::name(name), Ok(Identifier::Name(name.into())));
        }
    }

    #[test]
    fn names_that_break_a_rule_are_told_which() {
        let size = 256;
        for (name, problem) in [
            ("", NameProblem::Empty),
            ("7", NameProblem::OnlyDigits),
            ("0123456789", NameProblem::OnlyDigits),
            ("a\nb", NameProblem::ControlCharacter { position: 1 }),
            ("é\u{7f}", NameProblem::ControlCharacter { position: 2 }),
            ("\u{85}", NameProblem::ControlCharacter { position: 0 }),
            (" a", NameProblem::OuterSpace),
            ("a ", NameProblem::OuterSpace),
            (" ", NameProblem::OuterSpace),
            ("a\u{a0}", NameProblem::OuterSpace),
            (&"x".repeat(size), NameProblem::TooLong { size }),
        ] {
            assert_eq!(check_name(name), Err(problem), "{name:?}");
            assert_eq!(Identifier::name(name), Err(problem));
            assert!(problem.to_string().starts_with("a name"));
        }
    }

    proptest! {
        #[test]
        fn identifiers_come_back(id in any::<u64>(), name in ".{1,60}") {
            for identifier in [Identifier::Number(id), Identifier::Name(name.clone())] {
                let mut writer = Writer::new();
                identifier.write(&mut writer);
                let read: Result<Identifier, DecodeError> = field::decode(writer.into_bytes());
                prop_assert_eq!(read, Ok(identifier));
            }
        }

        #[test]
        fn what_consists_of_digits_is_no_name(digits in "[0-9]{1,40}", letter in "[a-z]") {
            prop_assert_eq!(check_name(&digits), Err(NameProblem::OnlyDigits));
            prop_assert_eq!(check_name(&(digits + &letter)), Ok(()));
        }
    }
}
