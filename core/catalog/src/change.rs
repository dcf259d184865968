//! What an op changed, for those who follow the catalog.

use alloc::{boxed::Box, string::String, vec::Vec};

use coordinator::{GroupChange, GroupProjection, Holder, MemberChange, MemberState};
use wire::{
    ClientId, ConsumerGroupId, EvictionReason, Generation, SessionNumber, StreamId, TopicId, UserId,
};

use crate::{GroupKey, Placement};

/// One change of what the shards of a node keep in their [`Projection`](crate::Projection). The changes
/// of an op are published together, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A stream was created; it is empty.
    StreamCreated {
        /// The stream.
        stream: StreamId,
        /// Its name.
        name: String,
    },
    /// A stream has another name.
    StreamRenamed {
        /// The stream.
        stream: StreamId,
        /// The new name.
        name: String,
    },
    /// A stream was deleted; its topics were deleted before, by changes of their own.
    StreamDeleted {
        /// The stream.
        stream: StreamId,
    },
    /// A topic was created.
    TopicCreated {
        /// Its stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// Its name.
        name: String,
        /// All its partitions, in order of ids.
        partitions: Vec<Placement>,
    },
    /// A topic has another name.
    TopicRenamed {
        /// Its stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The new name.
        name: String,
    },
    /// A topic was deleted with all its partitions; its consumer groups were deleted before, by changes
    /// of their own.
    TopicDeleted {
        /// Its stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The partitions that it had, in order of ids: the data groups drop them.
        partitions: Vec<Placement>,
    },
    /// Partitions were added above the highest one.
    PartitionsCreated {
        /// Their stream.
        stream: StreamId,
        /// Their topic.
        topic: TopicId,
        /// The new ones, in order of ids.
        partitions: Vec<Placement>,
    },
    /// The highest partitions were deleted.
    PartitionsDeleted {
        /// Their stream.
        stream: StreamId,
        /// Their topic.
        topic: TopicId,
        /// The deleted ones, in order of ids: the data groups drop them.
        partitions: Vec<Placement>,
    },
    /// All partitions of a topic have begun anew, without messages: their data groups begin the new
    /// incarnations in the place of the old ones.
    PartitionsPurged {
        /// Their stream.
        stream: StreamId,
        /// Their topic.
        topic: TopicId,
        /// All partitions of the topic, in order of ids, with their new incarnations.
        partitions: Vec<Placement>,
    },
    /// A session began.
    SessionRegistered {
        /// Its client.
        client: ClientId,
        /// Its number.
        session: SessionNumber,
        /// Who logged in.
        user: UserId,
    },
    /// A session ended.
    SessionEnded {
        /// Its client.
        client: ClientId,
        /// Its number.
        session: SessionNumber,
        /// Why.
        reason: EvictionReason,
    },
    /// A consumer group was created; it has no members.
    ConsumerGroupCreated {
        /// Its stream.
        stream: StreamId,
        /// Its topic.
        topic: TopicId,
        /// The group.
        group: Box<GroupProjection>,
    },
    /// A consumer group has other options, members, partitions or owners.
    ConsumerGroupChanged {
        /// Its stream.
        stream: StreamId,
        /// Its topic.
        topic: TopicId,
        /// The group and what changed.
        change: GroupChange,
    },
    /// A consumer group was deleted; all that its members do is refused from now on.
    ConsumerGroupDeleted {
        /// Its stream.
        stream: StreamId,
        /// Its topic.
        topic: TopicId,
        /// The group.
        group: ConsumerGroupId,
        /// Its last generation.
        generation: Generation,
        /// The members that it had, in order of ids.
        members: Vec<Holder>,
        /// The partitions whose data groups have to forget what it has stored, in order of ids. None
        /// when the topic goes as well: they forget it with the partitions.
        partitions: Vec<Placement>,
    },
}

/// A session whose view of a consumer group is another one now: an event tells it to sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// Its client.
    pub client: ClientId,
    /// The session.
    pub session: SessionNumber,
    /// The group.
    pub key: GroupKey,
    /// The group's generation now.
    pub generation: Generation,
}

impl Change {
    /// Who is to be told, each once, in order of clients: members with another assignment, those who
    /// are members no longer, and those whose instance id another session has taken.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        let mut sessions: Vec<(ClientId, SessionNumber)> = Vec::new();
        let told = |holder: &Holder| (holder.client, holder.session);
        let (stream, topic, group, generation) = match self {
            Self::ConsumerGroupChanged {
                stream,
                topic,
                change,
            } => {
                sessions.extend(change.notify.iter().map(told));
                for member in &change.members {
                    sessions.extend(member_told(member));
                }
                (*stream, *topic, change.group, change.generation)
            }
            Self::ConsumerGroupDeleted {
                stream,
                topic,
                group,
                generation,
                members,
                ..
            } => {
                sessions.extend(members.iter().map(told));
                (*stream, *topic, *group, *generation)
            }
            Self::StreamCreated { .. }
            | Self::StreamRenamed { .. }
            | Self::StreamDeleted { .. }
            | Self::TopicCreated { .. }
            | Self::TopicRenamed { .. }
            | Self::TopicDeleted { .. }
            | Self::PartitionsCreated { .. }
            | Self::PartitionsDeleted { .. }
            | Self::PartitionsPurged { .. }
            | Self::SessionRegistered { .. }
            | Self::SessionEnded { .. }
            | Self::ConsumerGroupCreated { .. } => return Vec::new(),
        };
        sessions.sort_unstable();
        sessions.dedup();
        let key = GroupKey {
            stream,
            topic,
            group,
        };
        let notice = |(client, session)| Notice {
            client,
            session,
            key,
            generation,
        };
        sessions.into_iter().map(notice).collect()
    }
}

/// The session that a change of a member takes the membership from.
fn member_told(change: &MemberChange) -> Option<(ClientId, SessionNumber)> {
    match change {
        MemberChange::Left(member) | MemberChange::Gone(member) => {
            Some((member.client, member.session))
        }
        MemberChange::Put(member) if member.state == MemberState::Active => {
            let displaced = member.displaced?;
            Some((displaced.client, displaced.session))
        }
        MemberChange::Put(_) => None,
    }
}
