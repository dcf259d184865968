//! The catalog as a snapshot holds it.
//!
//! The shell encodes these types as positional arrays. A field is never removed or moved; a new one goes
//! to the end of its struct, with `serde(default)`, so that every snapshot ever written stays readable.
//! The same holds for the types of other files that stand in here as they are.

use alloc::{format, string::String, vec::Vec};

use coordinator::{ConsumerGroups, GroupsSnapshot, MemberState, RestoreContext};
use wire::{Op, PartitionId, StreamId, Timestamp, TopicId, UserId};

use crate::{
    Catalog, CatalogConfig, GroupKey, Limits, Placement, Session, Stream, Topic, User,
    directory::Directory,
};

/// The layout that this version writes. It rises only with a change that a default cannot bridge.
const VERSION: u32 = 1;

/// The whole state after `applied`. Every list is in order of ids.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CatalogSnapshot {
    /// Of the layout.
    pub version: u32,
    /// The last op in it.
    pub applied: Op,
    /// The limits in force.
    pub limits: Limits,
    /// The id of the next user.
    pub next_user: UserId,
    /// Users.
    pub users: Vec<User>,
    /// Sessions, in order of client ids.
    pub sessions: Vec<Session>,
    /// The id of the next stream.
    pub next_stream: StreamId,
    /// Streams.
    pub streams: Vec<StreamSnapshot>,
}

/// A [`Stream`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StreamSnapshot {
    /// Its id.
    pub id: StreamId,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created: Timestamp,
    /// The id of its next topic.
    pub next_topic: TopicId,
    /// Topics.
    pub topics: Vec<TopicSnapshot>,
}

/// A [`Topic`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TopicSnapshot {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created: Timestamp,
    /// Partitions.
    pub partitions: Vec<Placement>,
    /// Consumer groups.
    #[serde(default)]
    pub groups: GroupsSnapshot,
}

/// Why a snapshot is not one of this cluster's metadata group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A later version wrote it.
    #[error("snapshot version {version} is above {VERSION}, the highest that this version reads")]
    Version {
        /// What it says.
        version: u32,
    },
    /// The consumer groups of a topic are none.
    #[error("topic {topic:?}: {source}")]
    Groups {
        /// The topic.
        topic: String,
        /// What is wrong with them.
        source: coordinator::RestoreError,
    },
    /// What it holds contradicts itself or the configuration.
    #[error("the snapshot contradicts itself or the configuration: {what}")]
    Inconsistent {
        /// The thing and the value.
        what: String,
    },
}

impl Catalog {
    /// The state as it is.
    #[must_use]
    pub fn snapshot(&self) -> CatalogSnapshot {
        CatalogSnapshot {
            version: VERSION,
            applied: self.applied,
            limits: self.limits,
            next_user: self.next_user,
            users: self.users.iter().map(|(_, user)| user.clone()).collect(),
            sessions: self.sessions.values().copied().collect(),
            next_stream: self.next_stream,
            streams: self
                .streams
                .iter()
                .map(|(_, stream)| stream.into())
                .collect(),
        }
    }

    /// The state that a snapshot holds.
    ///
    /// # Errors
    /// A later version wrote it, or it holds what no catalog of this configuration can hold.
    pub fn restore(config: CatalogConfig, snapshot: CatalogSnapshot) -> Result<Self, RestoreError> {
        if snapshot.version > VERSION {
            let version = snapshot.version;
            return Err(RestoreError::Version { version });
        }
        let mut catalog = Self::new(config);
        catalog.applied = snapshot.applied;
        catalog.limits = snapshot.limits;
        catalog.next_user = snapshot.next_user;
        catalog.next_stream = snapshot.next_stream;
        for user in snapshot.users {
            catalog.restore_user(user)?;
        }
        for session in snapshot.sessions {
            catalog.restore_session(session)?;
        }
        for stream in snapshot.streams {
            catalog.restore_stream(stream)?;
        }
        Ok(catalog)
    }

    fn restore_user(&mut self, user: User) -> Result<(), RestoreError> {
        let root = user.id == UserId::ROOT;
        consistent(user.id >= UserId::ROOT && user.id < self.next_user, || {
            format!("user id {} with next id {}", user.id, self.next_user)
        })?;
        consistent(!root || user.active, || "user root is deactivated".into())?;
        consistent(self.users.has_room(user.id, &user.name), || {
            format!("user id {} or name {:?} is there twice", user.id, user.name)
        })?;
        self.users.insert(user.id, user);
        Ok(())
    }

    fn restore_session(&mut self, session: Session) -> Result<(), RestoreError> {
        let user = self.users.get(session.user);
        consistent(user.is_some_and(|user| user.active), || {
            let (number, user) = (session.number, session.user);
            format!("session {number} is of user id {user}, who may not log in")
        })?;
        consistent(session.number.0 <= self.applied.0, || {
            format!("session {} is above op {}", session.number, self.applied)
        })?;
        let older = self.sessions.insert(session.client, session);
        consistent(older.is_none(), || {
            format!("client {} has two sessions", session.client)
        })
    }

    fn restore_stream(&mut self, stream: StreamSnapshot) -> Result<(), RestoreError> {
        let StreamSnapshot {
            id,
            name,
            created,
            next_topic,
            topics,
        } = stream;
        consistent(id.0 >= 1 && id < self.next_stream, || {
            format!("stream id {id} with next id {}", self.next_stream)
        })?;
        consistent(self.streams.has_room(id, &name), || {
            format!("stream id {id} or name {name:?} is there twice")
        })?;
        let mut stream = Stream {
            id,
            name,
            created,
            topics: Directory::default(),
            next_topic,
        };
        for topic in topics {
            self.restore_topic(&mut stream, topic)?;
        }
        self.streams.insert(id, stream);
        Ok(())
    }

    fn restore_topic(
        &mut self,
        stream: &mut Stream,
        topic: TopicSnapshot,
    ) -> Result<(), RestoreError> {
        let groups = topic.groups;
        let mut topic = Topic {
            id: topic.id,
            name: topic.name,
            created: topic.created,
            partitions: topic.partitions,
            groups: ConsumerGroups::default(),
        };
        let Topic { id, name, .. } = &topic;
        consistent(id.0 >= 1 && *id < stream.next_topic, || {
            format!("topic id {id} with next id {}", stream.next_topic)
        })?;
        consistent(stream.topics.has_room(*id, name), || {
            format!("topic id {id} or name {name:?} is twice in a stream")
        })?;
        consistent(!topic.partitions.is_empty(), || {
            format!("topic {name:?} has no partitions")
        })?;
        for (partition, placement) in (0..).map(PartitionId).zip(&topic.partitions) {
            self.check_placement(name, partition, placement)?;
            self.load.add(placement.group);
        }
        self.restore_groups(stream.id, &mut topic, groups)?;
        stream.topics.insert(topic.id, topic);
        Ok(())
    }

    /// Expects the sessions to be there.
    fn restore_groups(
        &mut self,
        stream: StreamId,
        topic: &mut Topic,
        groups: GroupsSnapshot,
    ) -> Result<(), RestoreError> {
        let context = RestoreContext {
            applied: self.applied,
            partitions: topic.partition_count(),
        };
        let groups = ConsumerGroups::restore(context, groups).map_err(|source| {
            let topic = topic.name.clone();
            RestoreError::Groups { topic, source }
        })?;
        for group in groups.iter() {
            let key = GroupKey {
                stream,
                topic: topic.id,
                group: group.id(),
            };
            for member in group.members() {
                if member.state == MemberState::Detached {
                    continue;
                }
                let (client, session) = (member.client, member.session);
                consistent(self.session(client, session).is_some(), || {
                    let (member, group) = (member.id, group.name());
                    format!(
                        "member {member} of group {group:?} has session {session}, which has ended"
                    )
                })?;
                self.memberships.insert(client, key);
            }
        }
        topic.groups = groups;
        Ok(())
    }

    fn check_placement(
        &self,
        topic: &str,
        partition: PartitionId,
        placement: &Placement,
    ) -> Result<(), RestoreError> {
        let Placement {
            partition: found,
            incarnation,
            group,
        } = placement;
        consistent(*found == partition, || {
            format!("topic {topic:?} has partition {found} where partition {partition} belongs")
        })?;
        consistent(incarnation.0 <= self.applied.0, || {
            let applied = self.applied;
            format!(
                "partition {partition} of topic {topic:?} was created by op {incarnation}, above op {applied}"
            )
        })?;
        consistent(self.load.contains(*group), || {
            let groups = self.config.data_groups;
            format!("partition {partition} of topic {topic:?} is in data group {group} of {groups}")
        })
    }
}

fn consistent(holds: bool, what: impl FnOnce() -> String) -> Result<(), RestoreError> {
    if holds {
        Ok(())
    } else {
        Err(RestoreError::Inconsistent { what: what() })
    }
}

impl From<&Stream> for StreamSnapshot {
    fn from(stream: &Stream) -> Self {
        let Stream {
            id,
            name,
            created,
            topics,
            next_topic,
        } = stream;
        Self {
            id: *id,
            name: name.clone(),
            created: *created,
            next_topic: *next_topic,
            topics: topics.iter().map(|(_, topic)| topic.into()).collect(),
        }
    }
}

impl From<&Topic> for TopicSnapshot {
    fn from(topic: &Topic) -> Self {
        let Topic {
            id,
            name,
            created,
            partitions,
            groups,
        } = topic;
        Self {
            id: *id,
            name: name.clone(),
            created: *created,
            partitions: partitions.clone(),
            groups: groups.snapshot(),
        }
    }
}
