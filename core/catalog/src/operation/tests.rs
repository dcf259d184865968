//! Bytes of operations, whole and damaged.

use std::{collections::BTreeSet, vec::Vec};

use bytes::Bytes;
use proptest::{
    collection::vec,
    prelude::any,
    prop_assert_eq, proptest,
    sample::{Index, select},
};
use wire::Problem;

use super::Operation;
use crate::tests::{one_of_each, operation};

#[test]
fn numbers_of_kinds_are_unique_and_each_is_tried_here() {
    let numbers: BTreeSet<u16> = Operation::KINDS.iter().copied().collect();
    assert_eq!(numbers.len(), Operation::KINDS.len());
    let tried: BTreeSet<u16> = one_of_each().iter().map(Operation::kind).collect();
    assert_eq!(tried, numbers);
}

#[test]
fn truncated_or_prolonged_body_is_refused() {
    for operation in one_of_each() {
        let body = operation.encode();
        for size in 0..body.len() {
            let decoded = Operation::decode(operation.kind(), body.slice(..size));
            assert!(decoded.is_err(), "{operation:?} cut to {size} bytes");
        }
        let prolonged: Bytes = body.iter().copied().chain([0]).collect();
        let refused = Operation::decode(operation.kind(), prolonged).unwrap_err();
        assert_eq!(refused.problem, Problem::Trailing { left: 1 });
    }
}

#[test]
fn unknown_kind_is_refused_by_its_number() {
    for kind in (0..=u16::MAX).filter(|kind| !Operation::KINDS.contains(kind)) {
        let refused = Operation::decode(kind, Bytes::new()).unwrap_err();
        assert_eq!(refused.field, "operation");
        let value = u64::from(kind);
        assert_eq!(refused.problem, Problem::Invalid { value });
    }
}

#[test]
fn count_beyond_the_bytes_is_refused_before_anything_is_allocated() {
    let mut body = u32::MAX.to_le_bytes().to_vec();
    body.extend([0; 24]);
    let refused = Operation::decode(202, body.into()).unwrap_err();
    let needed = u64::from(u32::MAX) * 24;
    assert_eq!(refused.field, "sessions");
    assert_eq!(refused.problem, Problem::Truncated { needed, left: 24 });
}

proptest! {
    #[test]
    fn operation_survives_the_journal(operation in operation()) {
        let decoded = Operation::decode(operation.kind(), operation.encode());
        prop_assert_eq!(decoded, Ok(operation));
    }

    /// What decodes at all is written as it was read: one operation has one form.
    #[test]
    fn damaged_body_is_refused_or_another_operation(
        operation in operation(),
        damage in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut body = operation.encode().to_vec();
        for (index, value) in damage {
            if !body.is_empty() {
                let index = index.index(body.len());
                body[index] = value;
            }
        }
        if let Ok(decoded) = Operation::decode(operation.kind(), body.clone().into()) {
            prop_assert_eq!(decoded.encode(), body);
        }
    }

    #[test]
    fn garbage_is_refused_or_an_operation(
        kind in select(Operation::KINDS),
        body in vec(any::<u8>(), 0..200),
    ) {
        if let Ok(decoded) = Operation::decode(kind, body.clone().into()) {
            prop_assert_eq!(decoded.encode(), body);
        }
    }
}

#[test]
fn mutated_bytes_are_refused_or_another_operation() {
    for operation in one_of_each() {
        let body: Vec<u8> = operation.encode().to_vec();
        for position in 0..body.len() {
            for bit in 0..8 {
                let mut mutated = body.clone();
                mutated[position] ^= 1 << bit;
                if let Ok(decoded) = Operation::decode(operation.kind(), mutated.clone().into()) {
                    assert_eq!(decoded.encode(), mutated);
                    assert_ne!(decoded, operation);
                }
            }
        }
    }
}
