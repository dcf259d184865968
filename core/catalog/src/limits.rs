//! How much the catalog takes.

use wire::Writer;

/// How many things of each kind there may be. Part of the replicated state: replicas that refuse by
/// different limits, or one that replays its journal after its configuration was changed, would diverge.
/// What exists already stays when a limit is lowered; only new things are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Users, `root` included.
    pub users: u32,
    /// Sessions of all users.
    pub sessions: u32,
    /// Streams.
    pub streams: u32,
    /// Topics in one stream.
    pub topics_per_stream: u32,
    /// Partitions in one topic.
    pub partitions_per_topic: u32,
    /// Partitions of all topics.
    pub partitions: u32,
    /// Consumer groups of one topic.
    #[serde(default = "initial::consumer_groups_per_topic")]
    pub consumer_groups_per_topic: u32,
    /// Members of one consumer group.
    #[serde(default = "initial::members_per_group")]
    pub members_per_group: u32,
    /// Consumer groups that one session is a member of.
    #[serde(default = "initial::memberships_per_session")]
    pub memberships_per_session: u32,
}

/// What a snapshot that does not know of a limit was made under.
mod initial {
    use super::Limits;

    pub(super) const fn consumer_groups_per_topic() -> u32 {
        Limits::INITIAL.consumer_groups_per_topic
    }

    pub(super) const fn members_per_group() -> u32 {
        Limits::INITIAL.members_per_group
    }

    pub(super) const fn memberships_per_session() -> u32 {
        Limits::INITIAL.memberships_per_session
    }
}

/// The limits that there were before there were consumer groups; journals hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerLimits {
    /// See [`Limits::users`].
    pub users: u32,
    /// See [`Limits::sessions`].
    pub sessions: u32,
    /// See [`Limits::streams`].
    pub streams: u32,
    /// See [`Limits::topics_per_stream`].
    pub topics_per_stream: u32,
    /// See [`Limits::partitions_per_topic`].
    pub partitions_per_topic: u32,
    /// See [`Limits::partitions`].
    pub partitions: u32,
}

impl FormerLimits {
    pub(crate) fn write_canonical(&self, writer: &mut Writer) {
        let Self {
            users,
            sessions,
            streams,
            topics_per_stream,
            partitions_per_topic,
            partitions,
        } = self;
        writer.u32(*users).u32(*sessions).u32(*streams);
        writer.u32(*topics_per_stream).u32(*partitions_per_topic);
        writer.u32(*partitions);
    }
}

/// With the limits of consumer groups as they are initially.
impl From<FormerLimits> for Limits {
    fn from(former: FormerLimits) -> Self {
        let FormerLimits {
            users,
            sessions,
            streams,
            topics_per_stream,
            partitions_per_topic,
            partitions,
        } = former;
        Self {
            users,
            sessions,
            streams,
            topics_per_stream,
            partitions_per_topic,
            partitions,
            ..Self::INITIAL
        }
    }
}

impl Limits {
    /// What is in force until the first [`Operation::SetLimits`](crate::Operation::SetLimits), and what
    /// a configuration that says nothing asks for. Never changes: a journal is replayed from here.
    pub const INITIAL: Self = Self {
        users: 1_024,
        sessions: 16_384,
        streams: 4_096,
        topics_per_stream: 4_096,
        partitions_per_topic: 1_024,
        partitions: 65_536,
        consumer_groups_per_topic: 1_024,
        members_per_group: 1_024,
        memberships_per_session: 1_024,
    };

    /// The most that a configuration may ask for.
    pub const MAXIMUM: Self = Self {
        users: 65_536,
        sessions: 1_048_576,
        streams: 65_536,
        topics_per_stream: 65_536,
        partitions_per_topic: 16_384,
        partitions: 1_048_576,
        consumer_groups_per_topic: 16_384,
        members_per_group: wire::GROUP_MEMBERS_MAX,
        memberships_per_session: 16_384,
    };

    /// Checks that every limit is between 1 and its maximum.
    ///
    /// # Errors
    /// Names the first that is not.
    pub fn check(&self) -> Result<(), LimitOutOfRange> {
        for ((limit, value), (_, maximum)) in self.all().into_iter().zip(Self::MAXIMUM.all()) {
            if !(1..=maximum).contains(&value) {
                return Err(LimitOutOfRange {
                    limit,
                    value,
                    maximum,
                });
            }
        }
        Ok(())
    }

    /// Each limit with its value, in the order of the fields.
    #[must_use]
    pub const fn all(&self) -> [(Limit, u32); 9] {
        [
            (Limit::Users, self.users),
            (Limit::Sessions, self.sessions),
            (Limit::Streams, self.streams),
            (Limit::TopicsPerStream, self.topics_per_stream),
            (Limit::PartitionsPerTopic, self.partitions_per_topic),
            (Limit::Partitions, self.partitions),
            (
                Limit::ConsumerGroupsPerTopic,
                self.consumer_groups_per_topic,
            ),
            (Limit::MembersPerGroup, self.members_per_group),
            (Limit::MembershipsPerSession, self.memberships_per_session),
        ]
    }

    /// Those that there were before there were consumer groups.
    pub(crate) const fn former(&self) -> FormerLimits {
        FormerLimits {
            users: self.users,
            sessions: self.sessions,
            streams: self.streams,
            topics_per_stream: self.topics_per_stream,
            partitions_per_topic: self.partitions_per_topic,
            partitions: self.partitions,
        }
    }

    pub(crate) fn write_canonical(&self, writer: &mut Writer) {
        for (_, value) in self.all() {
            writer.u32(value);
        }
    }

    /// Admits a number of things that would exceed what is there now.
    pub(crate) fn admit(&self, limit: Limit, value: u64) -> Result<(), LimitExceeded> {
        let maximum = match limit {
            Limit::Users => self.users,
            Limit::Sessions => self.sessions,
            Limit::Streams => self.streams,
            Limit::TopicsPerStream => self.topics_per_stream,
            Limit::PartitionsPerTopic => self.partitions_per_topic,
            Limit::Partitions => self.partitions,
            Limit::ConsumerGroupsPerTopic => self.consumer_groups_per_topic,
            Limit::MembersPerGroup => self.members_per_group,
            Limit::MembershipsPerSession => self.memberships_per_session,
        };
        if value <= u64::from(maximum) {
            Ok(())
        } else {
            Err(LimitExceeded {
                limit,
                value,
                maximum,
            })
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::INITIAL
    }
}

/// The things that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Users.
    Users,
    /// Sessions.
    Sessions,
    /// Streams.
    Streams,
    /// Topics in one stream.
    TopicsPerStream,
    /// Partitions in one topic.
    PartitionsPerTopic,
    /// Partitions of all topics.
    Partitions,
    /// Consumer groups of one topic.
    ConsumerGroupsPerTopic,
    /// Members of one consumer group.
    MembersPerGroup,
    /// Consumer groups that one session is a member of.
    MembershipsPerSession,
}

impl Limit {
    /// The limit's key in the table `cluster.limits` of the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Sessions => "sessions",
            Self::Streams => "streams",
            Self::TopicsPerStream => "topics_per_stream",
            Self::PartitionsPerTopic => "partitions_per_topic",
            Self::Partitions => "partitions",
            Self::ConsumerGroupsPerTopic => "consumer_groups_per_topic",
            Self::MembersPerGroup => "members_per_group",
            Self::MembershipsPerSession => "memberships_per_session",
        }
    }

    /// What is counted, for a sentence.
    #[must_use]
    pub const fn counted(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Sessions => "sessions",
            Self::Streams => "streams",
            Self::TopicsPerStream => "topics in one stream",
            Self::PartitionsPerTopic => "partitions in one topic",
            Self::Partitions => "partitions in all topics",
            Self::ConsumerGroupsPerTopic => "consumer groups in one topic",
            Self::MembersPerGroup => "members in one consumer group",
            Self::MembershipsPerSession => "memberships of one session",
        }
    }
}

/// A request asks for more than there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this would make {value} {}; the limit is {maximum} (cluster.limits.{})",
    .limit.counted(),
    .limit.name()
)]
pub struct LimitExceeded {
    /// What is counted.
    pub limit: Limit,
    /// How many there would be.
    pub value: u64,
    /// How many there may be.
    pub maximum: u32,
}

/// A configured limit makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cluster.limits.{} is {value}; it must be between 1 and {maximum}", .limit.name())]
pub struct LimitOutOfRange {
    /// Which.
    pub limit: Limit,
    /// Its value.
    pub value: u32,
    /// The largest that is allowed.
    pub maximum: u32,
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::{Limit, Limits};

    #[test]
    fn limit_is_reached_but_not_exceeded() {
        let limits = Limits {
            streams: 3,
            ..Limits::INITIAL
        };
        assert_eq!(limits.admit(Limit::Streams, 3), Ok(()));
        let refused = limits.admit(Limit::Streams, 4).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "this would make 4 streams; the limit is 3 (cluster.limits.streams)"
        );
    }

    #[test]
    fn initial_limits_are_within_the_maxima_and_nothing_else_is() {
        assert_eq!(Limits::INITIAL.check(), Ok(()));
        assert_eq!(Limits::MAXIMUM.check(), Ok(()));
        let zero = Limits {
            users: 0,
            ..Limits::INITIAL
        };
        assert_eq!(
            zero.check().unwrap_err().to_string(),
            "cluster.limits.users is 0; it must be between 1 and 65536"
        );
        let large = Limits {
            partitions_per_topic: 16_385,
            ..Limits::INITIAL
        };
        assert_eq!(large.check().unwrap_err().limit, Limit::PartitionsPerTopic);
    }
}
