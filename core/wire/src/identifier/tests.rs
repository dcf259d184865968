//! Names and identifiers.

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
        "a", "7a", "a 7", "-1", "élise", "名前", "a.b/c", "７", "a#7", "id", "id7", "Id:7",
        &longest,
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
        ("#7", NameProblem::ReadsAsId),
        ("#general", NameProblem::ReadsAsId),
        ("id:7", NameProblem::ReadsAsId),
        ("id:", NameProblem::ReadsAsId),
        ("#a\nb", NameProblem::ControlCharacter { position: 2 }),
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
