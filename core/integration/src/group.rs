//! A consumer group, as those see it who are not members of it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::{
    Consumer, ConsumerGroupDetails, ConsumerGroupId, ConsumerGroupOptionsUpdate,
    ConsumerGroupSummary, CreateConsumerGroup, DeleteConsumerGroup, Failure, GetConsumerGroup,
    GetConsumerOffset, Identifier, Offset, OwnershipDetails, PartitionId, Reply, Request,
    ResetConsumerOffset, ResetSection, ResetTarget, TopicDetails,
};

use crate::{Connection, Tag, payload, until};

/// All options as the server has them.
pub const DEFAULT_OPTIONS: ConsumerGroupOptionsUpdate = ConsumerGroupOptionsUpdate {
    rebalance_timeout_ms: None,
    initial_delay_ms: None,
    start: None,
    offset_expiry_ms: None,
};

/// Bytes of a message of [`fill`].
const MESSAGE: usize = 24;

/// The name of a consumer group, with its topic.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its topic.
    pub topic: TopicDetails,
    /// Its id.
    pub id: ConsumerGroupId,
    /// How requests name it.
    pub name: Identifier,
}

impl Group {
    /// Makes a group.
    ///
    /// # Errors
    /// The refusal.
    pub fn create(
        connection: &mut Connection,
        topic: &TopicDetails,
        name: &str,
        options: ConsumerGroupOptionsUpdate,
    ) -> Result<Self, Failure> {
        let create = CreateConsumerGroup {
            stream: topic.stream.into(),
            topic: topic.id.into(),
            name: name.to_owned(),
            options,
        };
        match connection.ask(create)? {
            Reply::ConsumerGroup(ConsumerGroupSummary { id, .. }) => Ok(Self {
                topic: topic.clone(),
                id,
                name: Identifier::Name(name.to_owned()),
            }),
            other => panic!("make a group: {other:?}"),
        }
    }

    /// Removes it.
    ///
    /// # Errors
    /// The refusal.
    pub fn delete(&self, connection: &mut Connection, force: bool) -> Result<(), Failure> {
        let delete = DeleteConsumerGroup {
            stream: self.topic.stream.into(),
            topic: self.topic.id.into(),
            group: self.name.clone(),
            force,
        };
        connection.ask(delete).map(|_| ())
    }

    /// Members, ownership, progress.
    ///
    /// # Errors
    /// The refusal.
    pub fn describe(&self, connection: &mut Connection) -> Result<ConsumerGroupDetails, Failure> {
        let get = GetConsumerGroup {
            stream: self.topic.stream.into(),
            topic: self.topic.id.into(),
            group: self.name.clone(),
        };
        match connection.ask(get)? {
            Reply::ConsumerGroupDetails(details) => Ok(details),
            other => panic!("describe a group: {other:?}"),
        }
    }

    /// As [`Group::describe`], of a group that is there.
    ///
    /// # Panics
    /// When it is refused.
    pub fn details(&self, connection: &mut Connection) -> ConsumerGroupDetails {
        self.describe(connection).expect("the group is there")
    }

    /// What is stored for it in each of these partitions.
    ///
    /// # Errors
    /// The refusal of the request.
    ///
    /// # Panics
    /// When a partition is refused.
    pub fn stored(
        &self,
        connection: &mut Connection,
        partitions: &[u32],
    ) -> Result<Vec<Option<Offset>>, Failure> {
        match connection.ask(self.offsets_of(partitions))? {
            Reply::Offsets(offsets) => Ok(offsets
                .sections
                .into_iter()
                .map(|section| {
                    assert_eq!(section.status, Ok(()), "{section:?}");
                    section.stored
                })
                .collect()),
            other => panic!("stored offsets: {other:?}"),
        }
    }

    /// A question for what is stored of these partitions.
    #[must_use]
    pub fn offsets_of(&self, partitions: &[u32]) -> GetConsumerOffset {
        GetConsumerOffset {
            stream: self.topic.stream.into(),
            topic: self.topic.id.into(),
            consumer: Consumer::Group(self.name.clone()),
            partitions: partitions.iter().copied().map(PartitionId).collect(),
        }
    }

    /// Where it goes on in a partition.
    ///
    /// # Panics
    /// When that is not known.
    pub fn next(&self, connection: &mut Connection, partition: u32) -> u64 {
        let details = self.details(connection);
        let progress = details.partitions[partition as usize].progress.as_ref();
        progress.expect("the partition is served").next.0
    }

    /// Sets the offset of a partition.
    ///
    /// # Errors
    /// The refusal.
    pub fn reset(
        &self,
        connection: &mut Connection,
        (partition, to): (u32, ResetTarget),
        force: bool,
    ) -> Result<(), Failure> {
        let reset = ResetConsumerOffset {
            stream: self.topic.stream.into(),
            topic: self.topic.id.into(),
            group: self.name.clone(),
            force,
            others: None,
            sections: vec![ResetSection {
                partition: PartitionId(partition),
                to,
            }],
        };
        connection.ask(reset).map(|_| ())
    }

    /// Waits until every partition has an owner and none moves. The members must do their part meanwhile.
    ///
    /// # Panics
    /// When that does not come to be, or the partitions are not shared out evenly.
    pub fn settled(&self, connection: &mut Connection) -> ConsumerGroupDetails {
        let details = until("everything has an owner and nothing moves", || {
            let details = self.details(connection);
            let is_settled = |one: &OwnershipDetails| one.owner.is_some() && one.moving.is_none();
            details.partitions.iter().all(is_settled).then_some(details)
        });
        assert_eq!(details.summary.moving_count, 0, "{details:?}");
        let counts = shares(&details);
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert!(
            most.expect("there are members") - least.expect("there are members") <= 1,
            "{counts:?}"
        );
        details
    }
}

/// How many partitions each member owns, in the order of the members. Whoever owns one is a member.
///
/// # Panics
/// When somebody owns a partition who is no member.
#[must_use]
pub fn shares(details: &ConsumerGroupDetails) -> Vec<usize> {
    let members: BTreeSet<u64> = details.members.iter().map(|member| member.id.0).collect();
    let mut counts: BTreeMap<u64, usize> = members.iter().map(|member| (*member, 0)).collect();
    for partition in &details.partitions {
        if let Some(owner) = &partition.owner {
            let count = counts.get_mut(&owner.member.0);
            *count.expect("who owns a partition is a member") += 1;
        }
    }
    counts.into_values().collect()
}

/// Appends messages to a partition, which had `from` of them, in batches of `batch`. Each says where it is.
///
/// # Panics
/// When it is refused, or they go to another place.
pub fn fill(
    connection: &mut Connection,
    topic: &TopicDetails,
    (partition, from, count): (u32, u64, u64),
    batch: u64,
) {
    let mut offset = from;
    while offset < from + count {
        let end = (offset + batch).min(from + count);
        let payloads: Vec<Bytes> = (offset..end)
            .map(|sequence| message(partition, sequence))
            .collect();
        let base = connection.append(topic, partition, &payloads);
        assert_eq!(base, Ok(Offset(offset)));
        offset = end;
    }
}

/// The message of [`fill`] that belongs in this place.
#[must_use]
pub fn message(partition: u32, offset: u64) -> Bytes {
    let tag = Tag {
        producer: partition,
        sequence: offset,
    };
    payload(tag, MESSAGE)
}

/// A counter of the node.
///
/// # Panics
/// When there is none of this name.
pub fn counter(connection: &mut Connection, name: &str) -> u64 {
    match connection.ask(Request::GetStats) {
        Ok(Reply::Stats(stats)) => {
            let mut counters = stats.counters.iter();
            let counter = counters.find(|counter| counter.name == name);
            counter.unwrap_or_else(|| panic!("no counter {name}")).value
        }
        other => panic!("counters: {other:?}"),
    }
}
