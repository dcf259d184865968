//! Behaviour of the catalog as a whole.

mod consumer_groups;
mod fixtures;
mod group_fixtures;
mod group_model;
mod model;
mod outcome;
mod random;
mod random_groups;
mod replay;
mod sessions;
mod soundness;
mod tree;
mod users;

use std::{
    string::{String, ToString},
    vec::Vec,
};

use wire::{
    ClientId, ErrorCode, EvictionReason, Identifier, Op, Reply, SessionNumber, Timestamp, UserId,
};

use crate::{
    Catalog, CatalogConfig, Change, Limits, Operation, Outcome, PasswordHash, Projection,
    SecretHash,
};

pub(crate) use fixtures::one_of_each;
pub(crate) use random::operation;
use soundness::{Generations, assert_groups_sound};

const CONFIG: CatalogConfig = CatalogConfig {
    data_groups: 3,
    limits: Limits::INITIAL,
};

/// A catalog that is fed one op after the other, and a projection that follows it.
struct Run {
    catalog: Catalog,
    projection: Projection,
}

impl Run {
    /// Before the first op.
    fn empty() -> Self {
        Self {
            catalog: Catalog::new(CONFIG),
            projection: Projection::default(),
        }
    }

    /// With `root`, created by op 1.
    fn new() -> Self {
        let mut run = Self::empty();
        run.accept(Operation::CreateRoot {
            password_hash: password("root's"),
        });
        run
    }

    /// Applies the next op and checks what holds after every op.
    fn apply(&mut self, operation: &Operation) -> Outcome {
        let op = self.catalog.applied().next();
        let before = Generations::of(&self.catalog);
        let outcome = self.catalog.apply(op, time_of(op), operation);
        before.assert_risen(&self.catalog);
        assert_groups_sound(&self.catalog);
        self.projection.apply(op, &outcome.changes);
        assert_eq!(self.projection, Projection::from(&self.catalog));
        outcome
    }

    #[track_caller]
    fn accept(&mut self, operation: Operation) -> Outcome {
        let outcome = self.apply(&operation);
        assert!(outcome.result.is_ok(), "{operation:?}: {outcome:?}");
        outcome
    }

    /// Expects a refusal that changes nothing; gives its text.
    #[track_caller]
    fn refuse(&mut self, code: ErrorCode, operation: Operation) -> String {
        let mut before = self.catalog.clone();
        let outcome = self.apply(&operation);
        let failure = outcome.result.expect_err("the operation is refused");
        assert_eq!(failure.code, code, "{operation:?}: {failure}");
        assert_eq!((outcome.changes, outcome.ended), Default::default());
        assert_eq!(outcome.joined, None);
        before.applied = self.catalog.applied();
        assert_eq!(self.catalog, before);
        failure.text
    }

    fn op(&self) -> Op {
        self.catalog.applied()
    }

    #[track_caller]
    fn create_user(&mut self, name: &str) -> UserId {
        let outcome = self.accept(Operation::CreateUser {
            by: UserId::ROOT,
            name: name.to_string(),
            password_hash: password(name),
        });
        match outcome.result {
            Ok(Reply::User(user)) => user.id,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn create_stream(&mut self, name: &str) -> Outcome {
        self.accept(create_stream(name))
    }

    #[track_caller]
    fn create_topic(&mut self, stream: &str, name: &str, partitions: u32) -> Outcome {
        self.accept(create_topic(stream, name, partitions))
    }

    /// A login of `client` as `user` with the password of the moment.
    fn register(&self, client: u128, user: UserId) -> Operation {
        let user_state = self.catalog.user_by_id(user);
        Operation::Register {
            client: ClientId(client),
            user,
            verified: user_state.map_or(Op(0), |user| user.password_op),
            secret_hash: SecretHash([7; 32]),
        }
    }

    #[track_caller]
    fn log_in(&mut self, client: u128, user: UserId) -> SessionNumber {
        let register = self.register(client, user);
        self.accept(register);
        SessionNumber(self.op().0)
    }
}

fn time_of(op: Op) -> Timestamp {
    Timestamp(1_000_000 + op.0)
}

fn password(of: &str) -> PasswordHash {
    PasswordHash(std::format!("$argon2id$v=19$m=19456,t=2,p=1$salt${of}"))
}

fn named(name: &str) -> Identifier {
    Identifier::Name(name.to_string())
}

fn create_stream(name: &str) -> Operation {
    Operation::CreateStream {
        by: UserId::ROOT,
        name: name.to_string(),
    }
}

fn create_topic(stream: &str, name: &str, partitions: u32) -> Operation {
    Operation::CreateTopic {
        by: UserId::ROOT,
        stream: named(stream),
        name: name.to_string(),
        partitions,
    }
}

fn session_ended(client: u128, session: SessionNumber, reason: EvictionReason) -> Change {
    Change::SessionEnded {
        client: ClientId(client),
        session,
        reason,
    }
}

/// Group numbers of the partitions of a topic.
fn groups(run: &Run, stream: &str, topic: &str) -> Vec<u16> {
    let topic = run.projection.resolve(&named(stream), &named(topic));
    let topic = topic.expect("the topic is there");
    topic
        .partitions
        .iter()
        .map(|placement| placement.group.0)
        .collect()
}
