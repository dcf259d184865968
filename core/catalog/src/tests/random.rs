//! Operations at random, from few names and ids so that they meet.

use std::{
    string::{String, ToString},
    vec::Vec,
};

use proptest::{
    collection::vec, option, prelude::Strategy, prop_oneof, sample::select, strategy::Just,
};
use wire::{ClientId, EvictionReason, Identifier, Op, SessionNumber, UserId};

use super::random_groups::{aim_at_groups, group_operation, prelude};
use crate::{Catalog, Limits, Operation, PasswordHash, SecretHash};

const NAMES: &[&str] = &["a", "b", "c", "d", "root", "Zoë", "12", "", " a", "a\n"];

pub(super) fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => select(&NAMES[..6]),
        1 => select(&NAMES[6..]),
    ]
    .prop_map(ToString::to_string)
}

pub(super) fn identifier() -> impl Strategy<Value = Identifier> {
    prop_oneof![
        (0..7_u64).prop_map(Identifier::Number),
        name().prop_map(Identifier::Name),
    ]
}

pub(super) fn asker() -> impl Strategy<Value = UserId> {
    prop_oneof![4 => Just(UserId::ROOT), 1 => (0..6_u64).prop_map(UserId)]
}

pub(super) fn client() -> impl Strategy<Value = ClientId> {
    (1..5_u128).prop_map(ClientId)
}

fn password() -> impl Strategy<Value = PasswordHash> {
    (0..9_u32).prop_map(|password| PasswordHash(std::format!("$argon2id${password}")))
}

fn limits() -> impl Strategy<Value = Limits> {
    (
        2..6_u32,
        1..4_u32,
        1..4_u32,
        1..4_u32,
        (1..8_u32, 1..20_u32),
        (1..4_u32, 1..4_u32, 1..4_u32),
    )
        .prop_map(
            |(users, sessions, streams, topics_per_stream, partitions, groups)| Limits {
                users,
                sessions,
                streams,
                topics_per_stream,
                partitions_per_topic: partitions.0,
                partitions: partitions.1,
                consumer_groups_per_topic: groups.0,
                members_per_group: groups.1,
                memberships_per_session: groups.2,
            },
        )
}

fn user_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        1 => password().prop_map(|password_hash| Operation::CreateRoot { password_hash }),
        4 => (asker(), name(), password()).prop_map(|(by, name, password_hash)| {
            Operation::CreateUser { by, name, password_hash }
        }),
        1 => (asker(), identifier()).prop_map(|(by, user)| Operation::DeleteUser { by, user }),
        2 => (asker(), identifier(), option::of(name()), option::of(proptest::bool::ANY)).prop_map(
            |(by, user, name, active)| Operation::UpdateUser { by, user, name, active },
        ),
        2 => (asker(), identifier(), password(), 0..4_u64).prop_map(
            |(by, user, password_hash, verified)| Operation::ChangePassword {
                by,
                user,
                password_hash,
                verified: Op(verified),
            },
        ),
    ]
}

fn session_operation() -> impl Strategy<Value = Operation> {
    let number = || (0..4_u64).prop_map(SessionNumber);
    prop_oneof![
        4 => (client(), asker(), 0..4_u64, proptest::num::u8::ANY).prop_map(
            |(client, user, verified, secret)| Operation::Register {
                client,
                user,
                verified: Op(verified),
                secret_hash: SecretHash([secret; 32]),
            },
        ),
        1 => (client(), number())
            .prop_map(|(client, session)| Operation::Logout { client, session }),
        1 => (vec((client(), number()), 0..4), select(EvictionReason::ALL))
            .prop_map(|(sessions, reason)| Operation::EndSessions { sessions, reason }),
    ]
}

fn tree_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (asker(), name()).prop_map(|(by, name)| Operation::CreateStream { by, name }),
        1 => (asker(), identifier())
            .prop_map(|(by, stream)| Operation::DeleteStream { by, stream }),
        1 => (asker(), identifier(), name())
            .prop_map(|(by, stream, name)| Operation::UpdateStream { by, stream, name }),
        8 => (asker(), identifier(), name(), 0..6_u32).prop_map(
            |(by, stream, name, partitions)| Operation::CreateTopic { by, stream, name, partitions },
        ),
        2 => (asker(), identifier(), identifier())
            .prop_map(|(by, stream, topic)| Operation::DeleteTopic { by, stream, topic }),
        2 => (asker(), identifier(), identifier(), name()).prop_map(
            |(by, stream, topic, name)| Operation::UpdateTopic { by, stream, topic, name },
        ),
        2 => (asker(), identifier(), identifier())
            .prop_map(|(by, stream, topic)| Operation::PurgeTopic { by, stream, topic }),
        1 => (asker(), identifier())
            .prop_map(|(by, stream)| Operation::PurgeStream { by, stream }),
        4 => (asker(), identifier(), identifier(), 0..4_u32).prop_map(
            |(by, stream, topic, count)| Operation::CreatePartitions { by, stream, topic, count },
        ),
        4 => (asker(), identifier(), identifier(), 0..4_u32).prop_map(
            |(by, stream, topic, count)| Operation::DeletePartitions { by, stream, topic, count },
        ),
    ]
}

/// Any operation.
pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        1 => limits().prop_map(|limits| Operation::SetLimits { limits }),
        1 => limits().prop_map(|it| Operation::SetFormerLimits { limits: it.former() }),
        40 => group_operation().boxed(),
        8 => user_operation().boxed(),
        8 => session_operation().boxed(),
        24 => tree_operation().boxed(),
    ]
}

/// Operations after the one that creates `root`; in half of the cases there are topics, groups and
/// sessions from the beginning, and most operations are about them.
pub(crate) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let about_groups = prop_oneof![
        80 => group_operation().boxed(),
        14 => session_operation().boxed(),
        4 => tree_operation().boxed(),
        1 => user_operation().boxed(),
        1 => limits().prop_map(|limits| Operation::SetLimits { limits }),
    ];
    let password_hash = PasswordHash("$argon2id$root".to_string());
    let create_root = [Operation::CreateRoot { password_hash }].to_vec();
    prop_oneof![
        (Just(create_root.clone()), vec(operation(), 1..120)),
        (
            Just([create_root, prelude()].concat()),
            vec(about_groups, 1..120)
        ),
    ]
    .prop_map(|(first, then)| [first, then].concat())
}

/// Most of the numbers that an operation must have got from the catalog are made right: at random they
/// never would be.
pub(crate) fn aim(operation: &mut Operation, catalog: &Catalog) {
    let password_op = |user| catalog.user_by_id(user).map(|user| user.password_op);
    let number = |client, at_random: SessionNumber| {
        let mut sessions = catalog.sessions();
        let session = sessions.find(|session| session.client == client);
        session
            .filter(|_| at_random.0 > 0)
            .map(|session| session.number)
    };
    aim_at_groups(operation, catalog);
    match operation {
        Operation::JoinConsumerGroup {
            client, session, ..
        }
        | Operation::LeaveConsumerGroup {
            client, session, ..
        } => {
            *session = number(*client, *session).unwrap_or(*session);
        }
        Operation::ChangePassword {
            by: user, verified, ..
        }
        | Operation::Register { user, verified, .. } => {
            if verified.0 > 0 {
                *verified = password_op(*user).unwrap_or(*verified);
            }
        }
        Operation::Logout { client, session } => {
            *session = number(*client, *session).unwrap_or(*session);
        }
        Operation::EndSessions { sessions, .. } => {
            for (client, session) in sessions {
                *session = number(*client, *session).unwrap_or(*session);
            }
        }
        Operation::SetFormerLimits { .. }
        | Operation::SetLimits { .. }
        | Operation::CreateRoot { .. }
        | Operation::CreateUser { .. }
        | Operation::DeleteUser { .. }
        | Operation::UpdateUser { .. }
        | Operation::CreateStream { .. }
        | Operation::DeleteStream { .. }
        | Operation::UpdateStream { .. }
        | Operation::PurgeStream { .. }
        | Operation::CreateTopic { .. }
        | Operation::DeleteTopic { .. }
        | Operation::UpdateTopic { .. }
        | Operation::PurgeTopic { .. }
        | Operation::CreatePartitions { .. }
        | Operation::DeletePartitions { .. }
        | Operation::CreateConsumerGroup { .. }
        | Operation::DeleteConsumerGroup { .. }
        | Operation::UpdateConsumerGroup { .. }
        | Operation::RemoveMember { .. }
        | Operation::ResetConsumerOffset { .. }
        | Operation::PlanGroups { .. }
        | Operation::CompleteMoves { .. }
        | Operation::ExpireMembers { .. }
        | Operation::ExpireGroups { .. } => {}
    }
}
