//! Consumer groups: what there is, and what is done about them.

use std::time::Duration;

use wire::{
    ConsumerGroupDetails, ConsumerGroupId, ConsumerGroupOptionsUpdate, ConsumerGroupSummary,
    CreateConsumerGroup, DeleteConsumerGroup, GetConsumerGroup, GetConsumerGroups, GroupStart,
    MemberId, OffsetsReset, PartitionId, RemoveMember, ResetConsumerOffset, ResetSection,
    ResetTarget, UpdateConsumerGroup,
};

use crate::{Client, Error, Id, id::check, only::only};

/// Options of a consumer group. What is not set gets the server's default when the group is made, and stays
/// when it is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupOptions {
    rebalance_timeout: Option<Duration>,
    initial_delay: Option<Duration>,
    start: Option<GroupStart>,
    offset_expiry: Option<Duration>,
}

impl GroupOptions {
    /// Sets how long a member that a partition is revoked from may keep it to finish its work: 10 ms to an
    /// hour, 30 s by default.
    #[must_use]
    pub const fn rebalance_timeout(mut self, timeout: Duration) -> Self {
        self.rebalance_timeout = Some(timeout);
        self
    }

    /// Sets how long an empty group waits for more members before it shares its partitions out: up to 5
    /// minutes, not at all by default.
    #[must_use]
    pub const fn initial_delay(mut self, delay: Duration) -> Self {
        self.initial_delay = Some(delay);
        self
    }

    /// Sets where the group starts in a partition of which it has stored nothing: at the oldest message by
    /// default.
    #[must_use]
    pub const fn start(mut self, start: GroupStart) -> Self {
        self.start = Some(start);
        self
    }

    /// Sets how long the group is kept while it has no members; zero, the default: for good.
    #[must_use]
    pub const fn offset_expiry(mut self, expiry: Duration) -> Self {
        self.offset_expiry = Some(expiry);
        self
    }

    /// As the protocol has it. The server tells what is out of range.
    pub(crate) fn update(self) -> ConsumerGroupOptionsUpdate {
        let short = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        ConsumerGroupOptionsUpdate {
            rebalance_timeout_ms: self.rebalance_timeout.map(short),
            initial_delay_ms: self.initial_delay.map(short),
            start: self.start,
            offset_expiry_ms: self
                .offset_expiry
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// What becomes of the stored offsets of a consumer group, for [`Client::reset_offsets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetReset {
    others: Option<ResetTarget>,
    partitions: Vec<(PartitionId, ResetTarget)>,
    force: bool,
}

impl OffsetReset {
    /// Resets every partition, except those that are named in addition.
    #[must_use]
    pub const fn all(to: ResetTarget) -> Self {
        Self {
            others: Some(to),
            partitions: Vec::new(),
            force: false,
        }
    }

    /// Resets only those partitions that are named.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            others: None,
            partitions: Vec::new(),
            force: false,
        }
    }

    /// Names a partition.
    #[must_use]
    pub fn partition(mut self, partition: impl Into<PartitionId>, to: ResetTarget) -> Self {
        self.partitions.push((partition.into(), to));
        self
    }

    /// Sets whether it is done although the group has members: each loses its partitions for a moment, and
    /// gets them back under new epochs.
    #[must_use]
    pub const fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }
}

/// # Consumer groups
impl Client {
    /// One consumer group: members, owners of partitions, progress. What the node that answers does not know
    /// of a partition is told there, by an error code in place of the progress.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`, `ConsumerGroupNotFound`.
    pub async fn describe_consumer_group(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        group: impl Into<Id>,
    ) -> Result<ConsumerGroupDetails, Error> {
        let request = GetConsumerGroup {
            stream: stream.into().identifier("stream")?,
            topic: topic.into().identifier("topic")?,
            group: group.into().identifier("consumer group")?,
        };
        only!(self.request(request).await?, ConsumerGroupDetails)
    }

    /// All consumer groups of a topic, in the order of their ids.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`.
    pub async fn consumer_groups(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
    ) -> Result<Vec<ConsumerGroupSummary>, Error> {
        let stream = stream.into().identifier("stream")?;
        let topic = topic.into().identifier("topic")?;
        let mut groups: Vec<ConsumerGroupSummary> = Vec::new();
        loop {
            let request = GetConsumerGroups {
                stream: stream.clone(),
                topic: topic.clone(),
                after: groups.last().map_or(ConsumerGroupId(0), |group| group.id),
                limit: 0,
            };
            let page = only!(self.request(request).await?, ConsumerGroups)?;
            let more = page.more && !page.groups.is_empty();
            groups.extend(page.groups);
            if !more {
                return Ok(groups);
            }
        }
    }

    /// Makes a consumer group, without members.
    ///
    /// # Errors
    /// `ConsumerGroupAlreadyExists`, whose text tells the id of the other; `TopicNotFound`,
    /// `InvalidConsumerGroupOptions`, `TooManyConsumerGroups`.
    pub async fn create_consumer_group(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        name: &str,
        options: GroupOptions,
    ) -> Result<ConsumerGroupSummary, Error> {
        check("consumer group", name)?;
        let request = CreateConsumerGroup {
            stream: stream.into().identifier("stream")?,
            topic: topic.into().identifier("topic")?,
            name: name.to_string(),
            options: options.update(),
        };
        only!(self.request(request).await?, ConsumerGroup)
    }

    /// Changes options of a consumer group; those that are not set stay.
    ///
    /// # Errors
    /// `ConsumerGroupNotFound`, `InvalidConsumerGroupOptions`.
    pub async fn update_consumer_group(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        group: impl Into<Id>,
        options: GroupOptions,
    ) -> Result<ConsumerGroupSummary, Error> {
        let request = UpdateConsumerGroup {
            stream: stream.into().identifier("stream")?,
            topic: topic.into().identifier("topic")?,
            group: group.into().identifier("consumer group")?,
            options: options.update(),
        };
        only!(self.request(request).await?, ConsumerGroup)
    }

    /// Removes a consumer group with its stored offsets; with `force` although it has members, each of which
    /// is fenced.
    ///
    /// # Errors
    /// `ConsumerGroupNotFound`; `ConsumerGroupNotEmpty`, whose text tells how many members there are.
    pub async fn delete_consumer_group(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        group: impl Into<Id>,
        force: bool,
    ) -> Result<(), Error> {
        let request = DeleteConsumerGroup {
            stream: stream.into().identifier("stream")?,
            topic: topic.into().identifier("topic")?,
            group: group.into().identifier("consumer group")?,
            force,
        };
        self.request(request).await.map(|_| ())
    }

    /// Ends a membership. A consumer that lives joins again.
    ///
    /// # Errors
    /// `ConsumerGroupNotFound`, `ConsumerGroupMemberNotFound`.
    pub async fn remove_member(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        group: impl Into<Id>,
        member: MemberId,
    ) -> Result<(), Error> {
        let request = RemoveMember {
            stream: stream.into().identifier("stream")?,
            topic: topic.into().identifier("topic")?,
            group: group.into().identifier("consumer group")?,
            member,
        };
        self.request(request).await.map(|_| ())
    }

    /// Sets the stored offsets of a consumer group, backwards too. Once it is answered, reading rests on the
    /// new offsets.
    ///
    /// # Errors
    /// `ConsumerGroupNotFound`, `PartitionNotFound`; `ConsumerGroupNotEmpty` unless it is forced;
    /// `InvalidArgument` when a partition is named twice, or none is.
    pub async fn reset_offsets(
        &self,
        stream: impl Into<Id>,
        topic: impl Into<Id>,
        group: impl Into<Id>,
        reset: OffsetReset,
    ) -> Result<OffsetsReset, Error> {
        let sections = reset.partitions.into_iter();
        let request = ResetConsumerOffset {
            stream: stream.into().identifier("stream")?,
            topic: topic.into().identifier("topic")?,
            group: group.into().identifier("consumer group")?,
            force: reset.force,
            others: reset.others,
            sections: sections
                .map(|(partition, to)| ResetSection { partition, to })
                .collect(),
        };
        only!(self.request(request).await?, OffsetsReset)
    }
}
