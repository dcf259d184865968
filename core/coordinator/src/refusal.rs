//! Why an operation on a consumer group is refused. Each names the thing, the value and the limit, and
//! has its code on the wire.

use alloc::{boxed::Box, format, string::String, vec::Vec};

use wire::{
    ClientId, ConsumerGroupId, ErrorCode, Failure, Identifier, MemberId, NameProblem, PartitionId,
    SessionNumber, Timestamp,
};

use crate::Member;

/// Which group, for a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("consumer group {name:?} (id {id})")]
pub struct GroupName {
    /// Its id.
    pub id: ConsumerGroupId,
    /// Its name.
    pub name: String,
}

/// There is no such group in the topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("consumer group {group} does not exist in the topic")]
pub struct GroupNotFound {
    /// What was asked for.
    pub group: Identifier,
}

/// Why a group is not created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateRefused {
    /// The name is not one.
    #[error("{}", broken(.name, *.problem))]
    InvalidName {
        /// The name.
        name: String,
        /// The rule that it breaks.
        problem: NameProblem,
    },
    /// The name is taken; nothing was changed.
    #[error("{group} exists already")]
    Exists {
        /// The group that has it.
        group: GroupName,
    },
    /// The topic has as many groups as it may have.
    #[error(
        "the topic has {groups} consumer groups; the limit is {groups_max} (cluster.limits.consumer_groups_per_topic)"
    )]
    TooMany {
        /// How many there are.
        groups: usize,
        /// How many there may be.
        groups_max: u32,
    },
    /// An option is out of its range.
    #[error(transparent)]
    Options(#[from] OptionOutOfRange),
}

/// An option of a group, all of which are times in milliseconds, is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} is {value} ms; it must be between {minimum} ms and {maximum} ms")]
pub struct OptionOutOfRange {
    /// The option.
    pub option: &'static str,
    /// What was asked for.
    pub value: u64,
    /// The least that is allowed.
    pub minimum: u64,
    /// The most that is allowed.
    pub maximum: u64,
}

/// The group has members, and it was not forced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{group} has {} ({}); it must have none, unless it is forced", counted(*.members), listed(.first, *.members))]
pub struct GroupNotEmpty {
    /// The group.
    pub group: GroupName,
    /// How many members it has.
    pub members: usize,
    /// The first of them, in order of ids.
    pub first: Vec<MemberId>,
}

/// How many members a refusal lists.
pub(crate) const LISTED_MAX: usize = 10;

fn counted(members: usize) -> String {
    match members {
        1 => "1 member".into(),
        _ => format!("{members} members"),
    }
}

fn listed(first: &[MemberId], members: usize) -> String {
    let mut text = String::new();
    for member in first {
        let comma = if text.is_empty() { "" } else { ", " };
        text.push_str(&format!("{comma}{member}"));
    }
    if members > first.len() {
        text.push_str(", …");
    }
    text
}

/// A name and the rule that it breaks; the name only where it can be shown.
fn broken(name: &str, problem: NameProblem) -> String {
    match problem {
        NameProblem::Empty | NameProblem::TooLong { .. } => format!("{problem}"),
        NameProblem::OnlyDigits
        | NameProblem::ReadsAsId
        | NameProblem::ControlCharacter { .. }
        | NameProblem::OuterSpace => format!("{name:?}: {problem}"),
    }
}

/// Why a group is not deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteRefused {
    /// It does not exist.
    #[error(transparent)]
    NotFound(#[from] GroupNotFound),
    /// It has members.
    #[error(transparent)]
    NotEmpty(#[from] GroupNotEmpty),
}

/// Why a session does not become a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefused {
    /// The instance id is not one.
    #[error("instance id {}", broken(.instance, *.problem))]
    InvalidInstance {
        /// The instance id.
        instance: String,
        /// The rule that it breaks.
        problem: NameProblem,
    },
    /// A newer session has the instance id: this is a late copy, or another process has replaced it.
    #[error(transparent)]
    Fenced(#[from] Box<FencedInstance>),
    /// The group has as many members as it may have.
    #[error(
        "{group} has {}; the limit is {members_max} (cluster.limits.members_per_group)", counted(*.members)
    )]
    Full {
        /// The group.
        group: GroupName,
        /// How many there are.
        members: usize,
        /// How many there may be.
        members_max: u32,
    },
    /// The session is a member under another instance id or weight.
    #[error(
        "session {session} is member {member} of {group} already, with another instance id or weight; it must leave first"
    )]
    JoinedOtherwise {
        /// The group.
        group: GroupName,
        /// The session.
        session: SessionNumber,
        /// Its member.
        member: MemberId,
    },
    /// The client has a newer session, which is a member.
    #[error(
        "session {session} of client {client} has ended: member {member} of {group} joined with session {newer}"
    )]
    SessionEnded {
        /// The group.
        group: GroupName,
        /// The client.
        client: ClientId,
        /// The session that asks.
        session: SessionNumber,
        /// The member.
        member: MemberId,
        /// Its session.
        newer: SessionNumber,
    },
}

/// Another session has joined with the same instance id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "instance id {instance:?} of {group} (member {member}) is held by session {holder} of client {client} at {address}; session {session} is fenced"
)]
pub struct FencedInstance {
    /// The group.
    pub group: GroupName,
    /// The instance id.
    pub instance: String,
    /// Its member.
    pub member: MemberId,
    /// The client that holds it.
    pub client: ClientId,
    /// Where that client joined from.
    pub address: String,
    /// The session that holds it.
    pub holder: SessionNumber,
    /// When that session took it over, or joined.
    pub since: Timestamp,
    /// The session that asks.
    pub session: SessionNumber,
}

impl FencedInstance {
    /// What `session` is told when `holder` has its instance id.
    pub(crate) fn by(holder: &Member, group: GroupName, session: SessionNumber) -> Box<Self> {
        Box::new(Self {
            group,
            instance: holder.instance.clone().unwrap_or_default(),
            member: holder.id,
            client: holder.client,
            address: holder.address.clone(),
            holder: holder.session,
            since: holder.displaced.map_or(holder.joined, |old| old.at),
            session,
        })
    }
}

/// Why a session is not treated as a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipRefused {
    /// It never joined, left, was removed or expired.
    #[error("session {session} is not a member of {group}")]
    NotMember {
        /// The group.
        group: GroupName,
        /// The session.
        session: SessionNumber,
    },
    /// Another session has taken its membership over.
    #[error(transparent)]
    Fenced(#[from] Box<FencedInstance>),
}

/// There is no such member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("member {member} is not in {group}")]
pub struct MemberNotFound {
    /// The group.
    pub group: GroupName,
    /// Who was asked for.
    pub member: MemberId,
}

/// Why offsets are not reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetRefused {
    /// The group has members.
    #[error(transparent)]
    NotEmpty(#[from] GroupNotEmpty),
    /// The topic does not have the partition.
    #[error("partition {partition} does not exist in the topic of {group}, which has {partitions}")]
    PartitionNotFound {
        /// The group.
        group: GroupName,
        /// What was asked for.
        partition: PartitionId,
        /// How many there are.
        partitions: u32,
    },
    /// A partition stands there twice.
    #[error("partition {partition} is named twice in a reset of {group}")]
    NamedTwice {
        /// The group.
        group: GroupName,
        /// The partition.
        partition: PartitionId,
    },
}

macro_rules! failures {
    ($($refused:ty => $code:ident;)*) => {$(
        impl From<$refused> for Failure {
            fn from(refused: $refused) -> Self {
                Self::new(ErrorCode::$code, format!("{refused}"))
            }
        }
    )*};
}

failures! {
    GroupNotFound => ConsumerGroupNotFound;
    OptionOutOfRange => InvalidConsumerGroupOptions;
    GroupNotEmpty => ConsumerGroupNotEmpty;
    FencedInstance => FencedInstanceId;
    MemberNotFound => ConsumerGroupMemberNotFound;
}

impl From<CreateRefused> for Failure {
    fn from(refused: CreateRefused) -> Self {
        let text = format!("{refused}");
        let code = match refused {
            CreateRefused::InvalidName { .. } => ErrorCode::InvalidName,
            CreateRefused::Exists { .. } => ErrorCode::ConsumerGroupAlreadyExists,
            CreateRefused::TooMany { .. } => ErrorCode::TooManyConsumerGroups,
            CreateRefused::Options(_) => ErrorCode::InvalidConsumerGroupOptions,
        };
        Self::new(code, text)
    }
}

impl From<DeleteRefused> for Failure {
    fn from(refused: DeleteRefused) -> Self {
        match refused {
            DeleteRefused::NotFound(refused) => refused.into(),
            DeleteRefused::NotEmpty(refused) => refused.into(),
        }
    }
}

impl From<JoinRefused> for Failure {
    fn from(refused: JoinRefused) -> Self {
        let text = format!("{refused}");
        let code = match refused {
            JoinRefused::InvalidInstance { .. } => ErrorCode::InvalidName,
            JoinRefused::Fenced(_) => ErrorCode::FencedInstanceId,
            JoinRefused::Full { .. } => ErrorCode::ConsumerGroupFull,
            JoinRefused::JoinedOtherwise { .. } => ErrorCode::InvalidArgument,
            JoinRefused::SessionEnded { .. } => ErrorCode::SessionNotFound,
        };
        Self::new(code, text)
    }
}

impl From<MembershipRefused> for Failure {
    fn from(refused: MembershipRefused) -> Self {
        let text = format!("{refused}");
        let code = match refused {
            MembershipRefused::NotMember { .. } => ErrorCode::ConsumerGroupMemberNotFound,
            MembershipRefused::Fenced(_) => ErrorCode::FencedInstanceId,
        };
        Self::new(code, text)
    }
}

impl From<ResetRefused> for Failure {
    fn from(refused: ResetRefused) -> Self {
        let text = format!("{refused}");
        let code = match refused {
            ResetRefused::NotEmpty(_) => ErrorCode::ConsumerGroupNotEmpty,
            ResetRefused::PartitionNotFound { .. } => ErrorCode::PartitionNotFound,
            ResetRefused::NamedTwice { .. } => ErrorCode::InvalidArgument,
        };
        Self::new(code, text)
    }
}
