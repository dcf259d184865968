//! The refusals of the catalog. Each names the thing, the value and the limit.

use alloc::{format, string::ToString};

use wire::{
    ErrorCode, Failure, Identifier, NameProblem, PartitionId, SessionNumber, StreamId, TopicId,
    UserId, check_name,
};

use crate::{Limit, LimitExceeded};

/// Checks a name that something is to be given.
pub(crate) fn legal_name(name: &str) -> Result<(), Failure> {
    check_name(name).map_err(|problem| {
        let text = match problem {
            NameProblem::Empty | NameProblem::TooLong { .. } => problem.to_string(),
            NameProblem::OnlyDigits
            | NameProblem::ReadsAsId
            | NameProblem::ControlCharacter { .. }
            | NameProblem::OuterSpace => format!("{name:?}: {problem}"),
        };
        Failure::new(ErrorCode::InvalidName, text)
    })
}

pub(crate) fn stream_not_found(stream: &Identifier) -> Failure {
    Failure::new(
        ErrorCode::StreamNotFound,
        format!("stream {stream} does not exist"),
    )
}

pub(crate) fn stream_exists(name: &str, id: StreamId) -> Failure {
    Failure::new(
        ErrorCode::StreamAlreadyExists,
        format!("stream {name:?} exists already, with id {id}"),
    )
}

pub(crate) fn topic_not_found(stream: &str, topic: &Identifier) -> Failure {
    Failure::new(
        ErrorCode::TopicNotFound,
        format!("topic {topic} does not exist in stream {stream:?}"),
    )
}

pub(crate) fn topic_exists(stream: &str, name: &str, id: TopicId) -> Failure {
    Failure::new(
        ErrorCode::TopicAlreadyExists,
        format!("topic {name:?} exists already in stream {stream:?}, with id {id}"),
    )
}

pub(crate) fn partition_not_found(topic: &str, partition: PartitionId, count: usize) -> Failure {
    Failure::new(
        ErrorCode::PartitionNotFound,
        format!("partition {partition} does not exist in topic {topic:?}, which has {count}"),
    )
}

pub(crate) fn no_partitions_asked(topic: &str) -> Failure {
    Failure::new(
        ErrorCode::InvalidPartitionCount,
        format!("0 partitions for topic {topic:?}; at least 1 is needed"),
    )
}

pub(crate) fn too_few_partitions(topic: &str, count: u32, present: u32) -> Failure {
    Failure::new(
        ErrorCode::InvalidPartitionCount,
        format!(
            "{count} partitions cannot be deleted from topic {topic:?}: it has {present}, and 1 must remain"
        ),
    )
}

pub(crate) fn user_not_found(user: &Identifier) -> Failure {
    Failure::new(
        ErrorCode::UserNotFound,
        format!("user {user} does not exist"),
    )
}

pub(crate) fn user_exists(name: &str, id: UserId) -> Failure {
    Failure::new(
        ErrorCode::UserAlreadyExists,
        format!("user {name:?} exists already, with id {id}"),
    )
}

pub(crate) fn user_inactive(name: &str) -> Failure {
    Failure::new(
        ErrorCode::UserInactive,
        format!("user {name:?} is deactivated"),
    )
}

pub(crate) fn root_protected(what: &str) -> Failure {
    Failure::new(
        ErrorCode::RootProtected,
        format!("user root (id {}) cannot be {what}", UserId::ROOT),
    )
}

pub(crate) fn forbidden(by: &str, what: &str) -> Failure {
    Failure::new(ErrorCode::Forbidden, format!("user {by:?} may not {what}"))
}

/// Who asks is not there any more, and with it its sessions.
pub(crate) fn asker_gone(by: UserId) -> Failure {
    Failure::new(
        ErrorCode::Unauthenticated,
        format!("the user that asks (id {by}) does not exist any more"),
    )
}

/// The password that the shell verified is not the user's any more.
pub(crate) fn password_replaced(user: &str) -> Failure {
    Failure::new(
        ErrorCode::InvalidCredentials,
        format!("the password of user {user:?} was changed in the meantime"),
    )
}

pub(crate) fn session_not_found(session: SessionNumber) -> Failure {
    Failure::new(
        ErrorCode::SessionNotFound,
        format!("session {session} has ended"),
    )
}

impl From<LimitExceeded> for Failure {
    fn from(exceeded: LimitExceeded) -> Self {
        let code = match exceeded.limit {
            Limit::Users => ErrorCode::TooManyUsers,
            Limit::Sessions => ErrorCode::TooManySessions,
            Limit::Streams => ErrorCode::TooManyStreams,
            Limit::TopicsPerStream => ErrorCode::TooManyTopics,
            Limit::PartitionsPerTopic | Limit::Partitions => ErrorCode::TooManyPartitions,
            Limit::ConsumerGroupsPerTopic => ErrorCode::TooManyConsumerGroups,
            Limit::MembersPerGroup => ErrorCode::ConsumerGroupFull,
            Limit::MembershipsPerSession => ErrorCode::TooManyMemberships,
        };
        Self::new(code, exceeded.to_string())
    }
}
