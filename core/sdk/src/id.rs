//! How streams, topics, users and consumer groups are named.

use std::fmt;

use wire::{ConsumerGroupId, Identifier, NameProblem, StreamId, TopicId, UserId};

use crate::Error;

/// A stream, topic, user or consumer group, by name or by id. Text is always a name, never an id: `"7"` names nothing, since
/// names do not consist of digits; the one with id 7 is `7_u64`, or in text `#7` or `id:7`
/// ([`Id::parse`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// By name.
    Name(String),
    /// By id.
    Number(u64),
}

impl Id {
    /// Reads the text form: `#7` and `id:7` are ids, everything else is a name.
    ///
    /// # Errors
    /// When what stands behind `#` or `id:` is not a number, or when a name breaks the rules for names.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let number = text.strip_prefix('#').or_else(|| text.strip_prefix("id:"));
        match number {
            None => {
                check_known("name", text)?;
                Ok(Self::Name(text.to_string()))
            }
            Some(digits)
                if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                digits
                    .parse()
                    .map(Self::Number)
                    .map_err(|_| invalid_id(text))
            }
            Some(_) => Err(invalid_id(text)),
        }
    }

    /// As the protocol has it.
    ///
    /// # Errors
    /// When the name breaks the rules for names. `what` is named in the error.
    pub(crate) fn identifier(self, what: &'static str) -> Result<Identifier, Error> {
        match self {
            Self::Number(id) => Ok(Identifier::Number(id)),
            Self::Name(name) => {
                check_known(what, &name)?;
                Ok(Identifier::Name(name))
            }
        }
    }
}

fn invalid_id(text: &str) -> Error {
    Error::Invalid {
        what: "id",
        problem: format!("{text:?} is not an id: write #7 or id:7"),
    }
}

/// Checks a name that is given to something; `what` it is of is named in the error.
pub(crate) fn check(what: &'static str, name: &str) -> Result<(), Error> {
    wire::check_name(name).map_err(|problem| Error::Invalid {
        what,
        problem: problem.to_string(),
    })
}

/// Checks the name of something that is there, where digits are most likely meant as an id.
fn check_known(what: &'static str, name: &str) -> Result<(), Error> {
    wire::check_name(name).map_err(|problem| {
        let hint = match problem {
            NameProblem::OnlyDigits => format!("; the {what} with this id is #{name}"),
            NameProblem::Empty
            | NameProblem::TooLong { .. }
            | NameProblem::ReadsAsId
            | NameProblem::ControlCharacter { .. }
            | NameProblem::OuterSpace => String::new(),
        };
        Error::Invalid {
            what,
            problem: format!("{problem}{hint}"),
        }
    })
}

/// In the form that [`Id::parse`] reads.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(id) => write!(f, "#{id}"),
        }
    }
}

impl From<&str> for Id {
    fn from(name: &str) -> Self {
        Self::Name(name.to_string())
    }
}

impl From<String> for Id {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl From<&String> for Id {
    fn from(name: &String) -> Self {
        Self::Name(name.clone())
    }
}

impl From<u64> for Id {
    fn from(id: u64) -> Self {
        Self::Number(id)
    }
}

impl From<&Self> for Id {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

macro_rules! from_ids {
    ($($id:ident)*) => {$(
        impl From<$id> for Id {
            fn from(id: $id) -> Self {
                Self::Number(id.0)
            }
        }
    )*};
}

from_ids! { StreamId TopicId UserId ConsumerGroupId }

#[cfg(test)]
mod tests {
    use super::{Id, check};

    #[test]
    fn ids_are_written_with_a_mark_and_everything_else_is_a_name() {
        assert_eq!(Id::parse("#7").unwrap(), Id::Number(7));
        assert_eq!(Id::parse("id:7").unwrap(), Id::Number(7));
        assert_eq!(Id::parse("orders").unwrap(), Id::Name("orders".to_string()));
        assert_eq!(Id::parse("7-up").unwrap(), Id::Name("7-up".to_string()));
        for text in ["#7", "orders"] {
            assert_eq!(Id::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_neither_is_refused_with_a_hint() {
        let message = |text: &str| Id::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("7"),
            "name: a name must not consist of digits only; the name with this id is #7"
        );
        for text in ["#", "#x", "#-1", "#+1", "id:", "id:99999999999999999999"] {
            assert_eq!(
                message(text),
                format!("id: {text:?} is not an id: write #7 or id:7")
            );
        }
        assert_eq!(message(""), "name: a name must not be empty");
        assert_eq!(
            message(" x"),
            "name: a name must not start or end with a space"
        );
    }

    #[test]
    fn only_what_is_there_already_may_be_meant_by_its_id() {
        let wrong = "stream: a name must not consist of digits only";
        assert_eq!(check("stream", "7").unwrap_err().to_string(), wrong);
        assert_eq!(
            Id::from("7").identifier("stream").unwrap_err().to_string(),
            format!("{wrong}; the stream with this id is #7")
        );
    }

    #[test]
    fn a_name_is_never_sent_when_it_looks_like_an_id() {
        assert!(Id::from("7").identifier("topic").is_err());
        assert_eq!(
            Id::from(7).identifier("topic").unwrap(),
            wire::Identifier::Number(7)
        );
    }
}
