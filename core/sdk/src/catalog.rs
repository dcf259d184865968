//! Users, streams, topics, partitions, stored offsets.

use wire::{
    ChangePassword, ClusterMetadata, Consumer, Counter, CreatePartitions, CreateStream,
    CreateTopic, CreateUser, DeleteConsumerOffset, DeletePartitions, DeleteStream, DeleteTopic,
    DeleteUser, GetConsumerOffset, GetStream, GetStreams, GetTopic, GetTopics, GetUser, GetUsers,
    Offset, PartitionId, Password, PurgeStream, PurgeTopic, Request, StreamDetails, StreamId,
    TopicDetails, TopicId, TopicSummary, UpdateStream, UpdateTopic, UpdateUser, UserDetails,
    UserId,
};

use crate::{Client, Error, Id, client::Me, id::check, only::only};

/// What a named consumer has stored for a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredOffset {
    /// The partition.
    pub partition: PartitionId,
    /// The offset of its oldest message.
    pub start: Offset,
    /// The offset behind its newest message.
    pub end: Offset,
    /// The last message processed; `None` when nothing is stored, which is not offset 0.
    pub stored: Option<Offset>,
}

impl StoredOffset {
    /// Where the consumer goes on: behind what is stored, or at the oldest message.
    #[must_use]
    pub fn next(&self) -> Offset {
        self.stored.map_or(self.start, Offset::next).max(self.start)
    }

    /// How many messages are left for it.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.end.0.saturating_sub(self.next().0)
    }
}

/// # Sessions and nodes
impl Client {
    /// The session that asks.
    ///
    /// # Errors
    /// Those of any request, see [`Error`].
    pub async fn me(&self) -> Result<Me, Error> {
        let me = only!(self.request(Request::GetMe).await?, Me)?;
        Ok(Me {
            user: me.user,
            user_name: me.user_name,
            session: me.session.0,
            address: me.address,
        })
    }

    /// The counters of the node that answers, by name.
    ///
    /// # Errors
    /// Those of any request, see [`Error`].
    pub async fn stats(&self) -> Result<Vec<Counter>, Error> {
        Ok(only!(self.request(Request::GetStats).await?, Stats)?.counters)
    }

    /// Nodes, consensus groups and their primaries, as the node that answers knows them.
    ///
    /// # Errors
    /// Those of any request, see [`Error`].
    pub async fn cluster(&self) -> Result<ClusterMetadata, Error> {
        only!(
            self.request(Request::GetClusterMetadata).await?,
            ClusterMetadata
        )
    }
}

/// # Users
impl Client {
    /// One user.
    ///
    /// # Errors
    /// `UserNotFound`.
    pub async fn user(&self, user: impl Into<Id>) -> Result<UserDetails, Error> {
        let user = user.into().identifier("user")?;
        only!(self.request(GetUser { user }).await?, User)
    }

    /// All users, in the order of their ids.
    ///
    /// # Errors
    /// Those of any request, see [`Error`].
    pub async fn users(&self) -> Result<Vec<UserDetails>, Error> {
        let mut users: Vec<UserDetails> = Vec::new();
        loop {
            let after = users.last().map_or(UserId(0), |user| user.id);
            let page = only!(self.request(GetUsers { after, limit: 0 }).await?, Users)?;
            let more = page.more && !page.users.is_empty();
            users.extend(page.users);
            if !more {
                return Ok(users);
            }
        }
    }

    /// Makes a user; the password has 8 to 255 bytes.
    ///
    /// # Errors
    /// `UserAlreadyExists`, `InvalidPassword`.
    pub async fn create_user(&self, name: &str, password: &str) -> Result<UserDetails, Error> {
        check("user", name)?;
        let password = password_of(password)?;
        let name = name.to_string();
        only!(self.request(CreateUser { name, password }).await?, User)
    }

    /// Removes a user and ends its sessions.
    ///
    /// # Errors
    /// `UserNotFound`, `RootProtected`.
    pub async fn delete_user(&self, user: impl Into<Id>) -> Result<(), Error> {
        let user = user.into().identifier("user")?;
        self.request(DeleteUser { user }).await.map(|_| ())
    }

    /// Renames a user.
    ///
    /// # Errors
    /// `UserNotFound`, `UserAlreadyExists`.
    pub async fn rename_user(&self, user: impl Into<Id>, name: &str) -> Result<(), Error> {
        check("user", name)?;
        let user = user.into().identifier("user")?;
        let name = Some(name.to_string());
        self.request(UpdateUser {
            user,
            name,
            active: None,
        })
        .await
        .map(|_| ())
    }

    /// Lets a user log in, or ends its sessions and no longer does.
    ///
    /// # Errors
    /// `UserNotFound`, `RootProtected`.
    pub async fn set_user_active(&self, user: impl Into<Id>, active: bool) -> Result<(), Error> {
        let user = user.into().identifier("user")?;
        let active = Some(active);
        self.request(UpdateUser {
            user,
            name: None,
            active,
        })
        .await
        .map(|_| ())
    }

    /// Sets a user's password. `current` is that of the user who asks, whose password ever is set.
    ///
    /// # Errors
    /// `UserNotFound`, `InvalidCredentials` when `current` is wrong, `InvalidPassword`.
    pub async fn change_password(
        &self,
        user: impl Into<Id>,
        current: &str,
        new: &str,
    ) -> Result<(), Error> {
        let user = user.into().identifier("user")?;
        let (current, new) = (password_of(current)?, password_of(new)?);
        self.request(ChangePassword { user, current, new })
            .await
            .map(|_| ())
    }
}

/// # Streams
impl Client {
    /// One stream.
    ///
    /// # Errors
    /// `StreamNotFound`.
    pub async fn stream(&self, stream: impl Into<Id>) -> Result<StreamDetails, Error> {
        let stream = stream.into().identifier("stream")?;
        only!(self.request(GetStream { stream }).await?, Stream)
    }

    /// All streams, in the order of their ids.
    ///
    /// # Errors
    /// Those of any request, see [`Error`].
    pub async fn streams(&self) -> Result<Vec<StreamDetails>, Error> {
        let mut streams: Vec<StreamDetails> = Vec::new();
        loop {
            let after = streams.last().map_or(StreamId(0), |stream| stream.id);
            let page = only!(self.request(GetStreams { after, limit: 0 }).await?, Streams)?;
            let more = page.more && !page.streams.is_empty();
            streams.extend(page.streams);
            if !more {
                return Ok(streams);
            }
        }
    }

    /// Makes a stream.
    ///
    /// # Errors
    /// `StreamAlreadyExists`, whose text tells the id of the other.
    pub async fn create_stream(&self, name: &str) -> Result<StreamDetails, Error> {
        check("stream", name)?;
        let name = name.to_string();
        only!(self.request(CreateStream { name }).await?, Stream)
    }

    /// Removes a stream with its topics and their messages.
    ///
    /// # Errors
    /// `StreamNotFound`.
    pub async fn delete_stream(&self, stream: impl Into<Id>) -> Result<(), Error> {
        let stream = stream.into().identifier("stream")?;
        self.request(DeleteStream { stream }).await.map(|_| ())
    }

    /// Renames a stream.
    ///
    /// # Errors
    /// `StreamNotFound`, `StreamAlreadyExists`.
    pub async fn rename_stream(&self, stream: impl Into<Id>, name: &str) -> Result<(), Error> {
        check("stream", name)?;
        let stream = stream.into().identifier("stream")?;
        let name = name.to_string();
        self.request(UpdateStream { stream, name })
            .await
            .map(|_| ())
    }
}

/// # Topics and partitions
impl Client {
    /// One topic with its partitions.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`.
    pub async fn topic(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
    ) -> Result<TopicDetails, Error> {
        let stream = stream.into().identifier("stream")?;
        let topic = topic.into().identifier("topic")?;
        only!(self.request(GetTopic { stream, topic }).await?, Topic)
    }

    /// All topics of a stream, in the order of their ids.
    ///
    /// # Errors
    /// `StreamNotFound`.
    pub async fn topics(&self, stream: impl Into<Id>) -> Result<Vec<TopicSummary>, Error> {
        let stream = stream.into().identifier("stream")?;
        let mut topics: Vec<TopicSummary> = Vec::new();
        loop {
            let after = topics.last().map_or(TopicId(0), |topic| topic.id);
            let request = GetTopics {
                stream: stream.clone(),
                after,
                limit: 0,
            };
            let page = only!(self.request(request).await?, Topics)?;
            let more = page.more && !page.topics.is_empty();
            topics.extend(page.topics);
            if !more {
                return Ok(topics);
            }
        }
    }

    /// Makes a topic with a number of partitions, at least 1.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicAlreadyExists`, `TooManyPartitions`.
    pub async fn create_topic(
        &self,
        stream: impl Into<Id>,
        name: &str,
        partitions: u32,
    ) -> Result<TopicDetails, Error> {
        check("topic", name)?;
        let stream = stream.into().identifier("stream")?;
        let name = name.to_string();
        only!(
            self.request(CreateTopic {
                stream,
                name,
                partitions
            })
            .await?,
            Topic
        )
    }

    /// Removes a topic with its messages and stored offsets.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`.
    pub async fn delete_topic(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
    ) -> Result<(), Error> {
        let stream = stream.into().identifier("stream")?;
        let topic = topic.into().identifier("topic")?;
        self.request(DeleteTopic { stream, topic })
            .await
            .map(|_| ())
    }

    /// Renames a topic.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`, `TopicAlreadyExists`.
    pub async fn rename_topic(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        name: &str,
    ) -> Result<(), Error> {
        check("topic", name)?;
        let stream = stream.into().identifier("stream")?;
        let topic = topic.into().identifier("topic")?;
        let name = name.to_string();
        self.request(UpdateTopic {
            stream,
            topic,
            name,
        })
        .await
        .map(|_| ())
    }

    /// Removes the messages of a topic, and what consumers and consumer groups have stored. Offsets go on
    /// where they were; members of groups go on under new epochs. An idempotent producer that goes on is told
    /// that it is not known any more, and begins anew.
    ///
    /// # Errors
    /// `TopicNotFound`.
    pub async fn purge_topic(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
    ) -> Result<(), Error> {
        let stream = stream.into().identifier("stream")?;
        let topic = topic.into().identifier("topic")?;
        let purge = PurgeTopic { stream, topic };
        self.request(purge).await.map(|_| ())
    }

    /// Does the same with every topic of a stream.
    ///
    /// # Errors
    /// `StreamNotFound`.
    pub async fn purge_stream(&self, stream: impl Into<Id>) -> Result<(), Error> {
        let stream = stream.into().identifier("stream")?;
        self.request(PurgeStream { stream }).await.map(|_| ())
    }

    /// Adds partitions to a topic and answers how many it has now. Keys are placed anew from then on.
    ///
    /// # Errors
    /// `TopicNotFound`, `TooManyPartitions`.
    pub async fn add_partitions(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        count: u32,
    ) -> Result<u32, Error> {
        let stream = stream.into().identifier("stream")?;
        let topic = topic.into().identifier("topic")?;
        let reply = self
            .request(CreatePartitions {
                stream,
                topic,
                count,
            })
            .await?;
        Ok(only!(reply, PartitionsChanged)?.partitions)
    }

    /// Removes the last partitions of a topic with their messages, and answers how many it has now.
    ///
    /// # Errors
    /// `TopicNotFound`, `InvalidPartitionCount`.
    pub async fn remove_partitions(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        count: u32,
    ) -> Result<u32, Error> {
        let stream = stream.into().identifier("stream")?;
        let topic = topic.into().identifier("topic")?;
        let reply = self
            .request(DeletePartitions {
                stream,
                topic,
                count,
            })
            .await?;
        Ok(only!(reply, PartitionsChanged)?.partitions)
    }
}

/// # Stored offsets
impl Client {
    /// What the consumer of this name has stored, for every partition of the topic.
    ///
    /// # Errors
    /// `TopicNotFound`; the first refusal of a partition.
    pub async fn stored_offsets(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        consumer: &str,
    ) -> Result<Vec<StoredOffset>, Error> {
        check("consumer", consumer)?;
        let topic = self.topic(stream, topic).await?;
        let mut offsets = Vec::with_capacity(topic.partitions.len());
        for partitions in topic.partitions.chunks(SECTIONS_MAX) {
            let request = GetConsumerOffset {
                stream: topic.stream.into(),
                topic: topic.id.into(),
                consumer: Consumer::Single(consumer.to_string()),
                partitions: partitions.iter().map(|partition| partition.id).collect(),
            };
            for section in only!(self.request(request).await?, Offsets)?.sections {
                section.status.map_err(refused)?;
                offsets.push(StoredOffset {
                    partition: section.partition,
                    start: section.start,
                    end: section.end,
                    stored: section.stored,
                });
            }
        }
        Ok(offsets)
    }

    /// Forgets what the consumer of this name has stored, in every partition of the topic.
    ///
    /// # Errors
    /// `TopicNotFound`; the first refusal of a partition other than that nothing is stored.
    pub async fn delete_stored_offsets(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        consumer: &str,
    ) -> Result<(), Error> {
        check("consumer", consumer)?;
        let topic = self.topic(stream, topic).await?;
        for partitions in topic.partitions.chunks(SECTIONS_MAX) {
            let request = DeleteConsumerOffset {
                stream: topic.stream.into(),
                topic: topic.id.into(),
                consumer: Consumer::Single(consumer.to_string()),
                partitions: partitions.iter().map(|partition| partition.id).collect(),
            };
            for section in only!(self.request(request).await?, OffsetsDeleted)?.sections {
                match section.status {
                    Err(failure) if failure.code != wire::ErrorCode::OffsetNotStored => {
                        return Err(refused(failure));
                    }
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// Partitions in one request: servers take at least as many sections.
const SECTIONS_MAX: usize = 128;

fn refused(failure: wire::Failure) -> Error {
    Error::Refused {
        code: failure.code,
        text: failure.text,
    }
}

fn password_of(password: &str) -> Result<Password, Error> {
    if password.is_empty() || password.len() > 255 {
        let problem = format!("8 to 255 bytes are allowed, not {}", password.len());
        return Err(Error::Invalid {
            what: "password",
            problem,
        });
    }
    Ok(Password(password.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{Offset, PartitionId, StoredOffset};

    #[test]
    fn next_and_lag_tell_nothing_stored_from_offset_0_stored() {
        // R32: 100 messages.
        let cases = [
            (None, 0, 100),
            (Some(0), 1, 99),
            (Some(98), 99, 1),
            (Some(99), 100, 0),
        ];
        for (stored, next, lag) in cases {
            let stored = stored.map(Offset);
            let (partition, start, end) = (PartitionId(0), Offset(0), Offset(100));
            let offset = StoredOffset {
                partition,
                start,
                end,
                stored,
            };
            assert_eq!((offset.next(), offset.lag()), (Offset(next), lag));
        }
    }

    #[test]
    fn what_retention_removed_is_no_lag() {
        let (partition, start, end) = (PartitionId(0), Offset(50), Offset(100));
        let offset = StoredOffset {
            partition,
            start,
            end,
            stored: Some(Offset(9)),
        };
        assert_eq!((offset.next(), offset.lag()), (Offset(50), 50));
    }
}
