//! What holds for every sequence of operations.

use std::vec::Vec;

use proptest::{
    collection::vec,
    prelude::{ProptestConfig, any},
    prop_assert, prop_assert_eq, proptest,
};
use wire::{Op, UserId};

use super::{
    CONFIG, Run, create_stream, create_topic,
    model::Model,
    random::{aim, operations},
    time_of,
};
use crate::{Catalog, CatalogConfig, Limits, Operation, Outcome, Projection};

/// Applies operations to a catalog, with ops counted on.
fn apply_all(catalog: &mut Catalog, operations: &[Operation]) -> Vec<Outcome> {
    let apply = |operation| {
        let op = catalog.applied().next();
        catalog.apply(op, time_of(op), operation)
    };
    operations.iter().map(apply).collect()
}

/// The same operations with the numbers that an operation takes from the catalog made right.
fn aimed(operations: Vec<Operation>) -> Vec<Operation> {
    let mut catalog = Catalog::new(CONFIG);
    operations
        .into_iter()
        .map(|mut operation| {
            aim(&mut operation, &catalog);
            apply_all(&mut catalog, core::slice::from_ref(&operation));
            operation
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn catalog_does_what_the_model_does(operations in operations()) {
        let mut run = Run::empty();
        let mut model = Model::new(CONFIG.data_groups);
        for mut operation in operations {
            aim(&mut operation, &run.catalog);
            let decoded = Operation::decode(operation.kind(), operation.encode());
            prop_assert_eq!(decoded.as_ref(), Ok(&operation));

            let before = run.catalog.clone();
            let outcome = run.apply(&operation);
            let expected = model.apply(run.op().0, &operation);
            let result = outcome.result.map(|_| ()).map_err(|failure| failure.code);
            prop_assert_eq!(result, expected, "{:?}", operation);
            prop_assert_eq!(&Model::of(&run.catalog.snapshot(), CONFIG.data_groups), &model);
            // What is gone has been told, and so has what is new.
            if outcome.changes.is_empty() {
                let mut before = Projection::from(&before);
                before.apply(run.op(), &[]);
                prop_assert_eq!(&before, &run.projection);
            }
        }
    }

    #[test]
    fn ended_clients_are_those_without_a_session(operations in operations()) {
        let mut run = Run::empty();
        for mut operation in operations {
            aim(&mut operation, &run.catalog);
            let had: Vec<_> = run.catalog.sessions().map(|session| session.client).collect();
            let outcome = run.apply(&operation);
            let has = |client| run.catalog.sessions().any(|session| session.client == client);
            for client in &outcome.ended {
                prop_assert!(!has(*client));
            }
            for client in had {
                prop_assert!(has(client) || outcome.ended.contains(&client));
            }
        }
    }

    #[test]
    fn replay_from_any_snapshot_ends_in_the_same_state(
        operations in operations(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let operations = aimed(operations);
        let (before, after) = operations.split_at(cut.index(operations.len()));
        let mut whole = Catalog::new(CONFIG);
        let mut outcomes = apply_all(&mut whole, before);
        let bytes = rmp_serde::to_vec(&whole.snapshot()).unwrap();

        let snapshot = rmp_serde::from_slice(&bytes).unwrap();
        let mut restored = Catalog::restore(CONFIG, snapshot).unwrap();
        prop_assert_eq!(&restored, &whole);
        prop_assert_eq!(restored.digest(), whole.digest());

        outcomes.extend(apply_all(&mut whole, after));
        let repeated = apply_all(&mut restored, after);
        prop_assert_eq!(&outcomes[before.len()..], &repeated[..]);
        prop_assert_eq!(restored.digest(), whole.digest());

        let mut replayed = Catalog::new(CONFIG);
        prop_assert_eq!(apply_all(&mut replayed, &operations), outcomes);
        prop_assert_eq!(replayed.digest(), whole.digest());
    }

    #[test]
    fn configured_limits_change_nothing_until_their_op(operations in operations()) {
        let operations = aimed(operations);
        let mut narrow = Catalog::new(CatalogConfig {
            limits: Limits { users: 1, streams: 1, partitions: 1, ..Limits::INITIAL },
            ..CONFIG
        });
        let mut wide = Catalog::new(CONFIG);
        prop_assert_eq!(
            apply_all(&mut narrow, &operations),
            apply_all(&mut wide, &operations)
        );
        prop_assert_eq!(narrow.digest(), wide.digest());
    }

    #[test]
    fn creations_alone_keep_the_groups_within_one(
        topics in vec((1..9_u32, 0..9_u32), 1..30),
        data_groups in 1..26_u16,
    ) {
        let mut catalog = Catalog::new(CatalogConfig { data_groups, ..CONFIG });
        let password_hash = super::password("root's");
        let mut operations = [
            Operation::CreateRoot { password_hash },
            create_stream("s"),
        ].to_vec();
        for (index, (partitions, more)) in topics.into_iter().enumerate() {
            let name = std::format!("t{index}");
            operations.push(create_topic("s", &name, partitions));
            operations.push(Operation::CreatePartitions {
                by: UserId::ROOT,
                stream: super::named("s"),
                topic: super::named(&name),
                count: more,
            });
        }
        for operation in &operations {
            apply_all(&mut catalog, core::slice::from_ref(operation));
            let fewest = catalog.partitions_per_group().min().unwrap();
            let most = catalog.partitions_per_group().max().unwrap();
            prop_assert!(most - fewest <= 1);
        }
    }
}

#[test]
fn configured_limits_are_proposed_until_they_are_in_force() {
    let limits = Limits {
        streams: 5,
        ..Limits::INITIAL
    };
    let mut catalog = Catalog::new(CatalogConfig { limits, ..CONFIG });
    let proposed = catalog.limits_to_set().unwrap();
    assert_eq!(proposed, Operation::SetLimits { limits });
    catalog.apply(Op(1), time_of(Op(1)), &proposed);
    assert_eq!(catalog.limits_to_set(), None);
    assert_eq!(*catalog.limits(), limits);
}

#[test]
#[should_panic(expected = "ops are applied in order, once")]
fn op_is_not_applied_twice() {
    let mut catalog = Catalog::new(CONFIG);
    for _ in 0..2 {
        catalog.apply(Op(1), time_of(Op(1)), &create_stream("s"));
    }
}

#[test]
#[should_panic(expected = "changes are followed in order, once")]
fn changes_are_not_followed_twice() {
    let mut projection = Projection::default();
    projection.apply(Op(1), &[]);
    projection.apply(Op(1), &[]);
}
