//! A member of a consumer group, on a connection and with a session of its own.

use std::{collections::BTreeMap, ops::Range};

use wire::{
    AssignedPartition, Consumer, ConsumerGroupAssignment, JoinConsumerGroup, LeaveConsumerGroup,
    Offset, PartitionId, PollMessages, PollSection, PollStrategy, ReleasePartition, ReleaseSection,
    Reply, StoreConsumerOffset, StoreSection, SyncConsumerGroup,
};

use crate::{
    connection::{Connection, Session, unexpected},
    consume::only_section,
    error::Error,
    target::Group,
};

/// What a poll asks for at most, bytes.
const POLL_SIZE: u32 = 1 << 20;

/// How long a poll waits for messages, milliseconds.
const POLL_WAIT: u32 = 1_000;

/// Messages of a partition that a member was served.
#[derive(Clone, Debug)]
pub(crate) struct Polled {
    pub(crate) partition: AssignedPartition,
    pub(crate) messages: Range<u64>,
}

/// A member of a consumer group.
#[derive(Debug)]
pub(crate) struct Member {
    connection: Connection,
    group: Group,
    assignment: ConsumerGroupAssignment,
}

impl Member {
    /// Makes the session of a connection a member.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn join(mut connection: Connection, group: &Group) -> Result<Self, Error> {
        let reply = connection.call(JoinConsumerGroup {
            stream: group.topic.stream.clone(),
            topic: group.topic.identifier(),
            group: group.id.into(),
            instance: None,
            weight: 1,
        })?;
        Ok(Self {
            connection,
            group: group.clone(),
            assignment: assignment("JoinConsumerGroup", reply)?,
        })
    }

    /// What the member owns, as far as it has been told.
    pub(crate) fn owned(&self) -> &[AssignedPartition] {
        &self.assignment.owned
    }

    pub(crate) const fn session(&self) -> Session {
        self.connection.session()
    }

    /// Waits until the member owns so many partitions: at each event about the group it asks anew, and
    /// never else.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`; `Server` when the session or the membership ends.
    pub(crate) fn wait_until_owns(&mut self, count: u32) -> Result<(), Error> {
        while self.owned().len() != count as usize {
            let change = self.connection.next_change()?;
            if change.group != self.group.id || change.generation <= self.assignment.generation {
                continue;
            }
            self.sync()?;
            if self.assignment.generation < change.generation {
                return Err(Error::answer(
                    "SyncConsumerGroup",
                    "it is older than the event before",
                ));
            }
        }
        Ok(())
    }

    /// Waits until the member owns at least so many partitions, as [`Member::wait_until_owns`] does.
    ///
    /// # Errors
    /// Those of [`Member::wait_until_owns`].
    pub(crate) fn wait_until_owns_at_least(&mut self, count: u32) -> Result<(), Error> {
        while self.owned().len() < count as usize {
            let change = self.connection.next_change()?;
            if change.group == self.group.id && change.generation > self.assignment.generation {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Asks for the assignment if it was told that it is another one, and releases what it has to give up: all that
    /// it was served is stored.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn catch_up(&mut self) -> Result<(), Error> {
        let newest = self.connection.take_changes().map(|it| it.generation).max();
        if newest.is_none_or(|newest| newest <= self.assignment.generation) {
            return Ok(());
        }
        self.sync()?;
        let revoking = self.assignment.revoking.iter();
        let sections = revoking.map(|revoking| ReleaseSection {
            partition: revoking.partition,
            epoch: revoking.epoch,
            planned: revoking.planned,
            offset: None,
        });
        let sections: Vec<_> = sections.collect();
        if sections.is_empty() {
            return Ok(());
        }
        let reply = self.connection.call(ReleasePartition {
            stream: self.group.topic.stream.clone(),
            topic: self.group.topic.identifier(),
            group: self.group.id.into(),
            sections,
        })?;
        match reply {
            // One that has drained meanwhile is not its own any more, and that is told.
            Reply::PartitionsReleased(_) => Ok(()),
            other => Err(unexpected("ReleasePartition", &other)),
        }
    }

    /// Asks for the assignment.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        let reply = self.connection.call(SyncConsumerGroup {
            stream: self.group.topic.stream.clone(),
            topic: self.group.topic.identifier(),
            group: self.group.id.into(),
        })?;
        self.assignment = assignment("SyncConsumerGroup", reply)?;
        Ok(())
    }

    /// Says that the session lives.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn give_sign(&mut self) -> Result<(), Error> {
        self.connection.give_sign()
    }

    /// The next message of each partition that it owns and that has one, without waiting. A partition that is not its
    /// own any more is passed over.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn poll_all(&mut self) -> Result<Vec<Polled>, Error> {
        let owned = self.owned().to_vec();
        if owned.is_empty() {
            // It has nothing to do, and is told when it has.
            self.give_sign()?;
            return Ok(Vec::new());
        }
        let sections = owned.iter().map(|partition| PollSection {
            partition: partition.partition,
            epoch: partition.epoch,
            strategy: PollStrategy::Next,
        });
        let reply = self.connection.call(PollMessages {
            stream: self.group.topic.stream.clone(),
            topic: self.group.topic.identifier(),
            consumer: Consumer::Group(self.group.id.into()),
            max_messages: u32::try_from(owned.len()).unwrap_or(u32::MAX),
            max_bytes: POLL_SIZE,
            min_bytes: 0,
            max_wait_ms: 0,
            commit_on_poll: false,
            sections: sections.collect(),
        })?;
        let results = match reply {
            Reply::Polled(polled) => polled.sections,
            other => return Err(unexpected("PollMessages", &other)),
        };
        let polled = owned
            .into_iter()
            .zip(results)
            .filter_map(|(partition, result)| {
                let messages = result.from.0..result.next.0;
                let has_any = result.status.is_ok() && !messages.is_empty();
                has_any.then_some(Polled {
                    partition,
                    messages,
                })
            });
        Ok(polled.collect())
    }

    /// Stores the last of what was polled of each partition.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn store_all(&mut self, polled: &[Polled]) -> Result<(), Error> {
        if polled.is_empty() {
            return Ok(());
        }
        let sections = polled.iter().map(|one| StoreSection {
            partition: one.partition.partition,
            epoch: one.partition.epoch,
            offset: Offset(one.messages.end - 1),
        });
        let reply = self.connection.call(StoreConsumerOffset {
            stream: self.group.topic.stream.clone(),
            topic: self.group.topic.identifier(),
            consumer: Consumer::Group(self.group.id.into()),
            sections: sections.collect(),
        })?;
        let stored = match reply {
            Reply::OffsetsStored(stored) => stored.sections,
            other => return Err(unexpected("StoreConsumerOffset", &other)),
        };
        match stored.into_iter().find_map(|result| result.status.err()) {
            Some(failure) => Err(Error::Refused {
                what: "StoreConsumerOffset".into(),
                failure,
            }),
            None => Ok(()),
        }
    }

    /// The next messages behind the stored offset of a partition: at least one, at most a batch more than
    /// `count`.
    ///
    /// # Errors
    /// `Refused`, `Io`; `Answer` also when there are none.
    pub(crate) fn poll(
        &mut self,
        partition: &AssignedPartition,
        count: u32,
    ) -> Result<Range<u64>, Error> {
        let reply = self.connection.call(PollMessages {
            stream: self.group.topic.stream.clone(),
            topic: self.group.topic.identifier(),
            consumer: Consumer::Group(self.group.id.into()),
            max_messages: count,
            max_bytes: POLL_SIZE,
            min_bytes: 1,
            max_wait_ms: POLL_WAIT,
            commit_on_poll: false,
            sections: vec![PollSection {
                partition: partition.partition,
                epoch: partition.epoch,
                strategy: PollStrategy::Next,
            }],
        })?;
        let result = only_section(reply)?;
        if result.next == result.from {
            let text = "no messages where there are some";
            return Err(Error::answer("PollMessages", text));
        }
        Ok(result.from.0..result.next.0)
    }

    /// Stores an offset.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn store(
        &mut self,
        partition: &AssignedPartition,
        offset: u64,
    ) -> Result<(), Error> {
        let reply = self
            .connection
            .call(self.store_request(partition, offset))?;
        check_stored(reply, Offset(offset))
    }

    /// The request that stores an offset.
    pub(crate) fn store_request(
        &self,
        partition: &AssignedPartition,
        offset: u64,
    ) -> StoreConsumerOffset {
        StoreConsumerOffset {
            stream: self.group.topic.stream.clone(),
            topic: self.group.topic.identifier(),
            consumer: Consumer::Group(self.group.id.into()),
            sections: vec![StoreSection {
                partition: partition.partition,
                epoch: partition.epoch,
                offset: Offset(offset),
            }],
        }
    }

    /// Polls a message of each partition that is owned, and stores it; gives the offsets. Afterwards all of
    /// them are drained, if nothing was polled before and not stored.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn process_one_of_each(&mut self) -> Result<BTreeMap<PartitionId, u64>, Error> {
        let mut stored = BTreeMap::new();
        for partition in self.owned().to_vec() {
            let messages = self.poll(&partition, 1)?;
            self.store(&partition, messages.end - 1)?;
            stored.insert(partition.partition, messages.end - 1);
        }
        Ok(stored)
    }

    /// Ends the membership; the session goes on.
    ///
    /// # Errors
    /// `Refused`, `Io`, `Answer`.
    pub(crate) fn leave(mut self) -> Result<Connection, Error> {
        let reply = self.connection.call(LeaveConsumerGroup {
            stream: self.group.topic.stream.clone(),
            topic: self.group.topic.identifier(),
            group: self.group.id.into(),
        })?;
        match reply {
            Reply::Done => Ok(self.connection),
            other => Err(unexpected("LeaveConsumerGroup", &other)),
        }
    }

    /// Closes the connection without a word, as the kernel does for a process that was killed.
    pub(crate) fn die(self) {
        drop(self.connection);
    }
}

fn assignment(command: &str, reply: Reply) -> Result<ConsumerGroupAssignment, Error> {
    match reply {
        Reply::Assignment(assignment) => Ok(assignment),
        other => Err(unexpected(command, &other)),
    }
}

/// Checks that one offset was stored, and none beyond.
///
/// # Errors
/// `Refused`, `Answer`.
pub(crate) fn check_stored(reply: Reply, offset: Offset) -> Result<(), Error> {
    let mut stored = match reply {
        Reply::OffsetsStored(stored) => stored,
        other => return Err(unexpected("StoreConsumerOffset", &other)),
    };
    match stored.sections.pop() {
        Some(result) => match result.status {
            Ok(()) if result.stored == Some(offset) => Ok(()),
            Ok(()) => {
                let text = format!("{:?} is stored, not {}", result.stored, offset.0);
                Err(Error::answer("StoreConsumerOffset", text))
            }
            Err(failure) => Err(Error::Refused {
                what: "StoreConsumerOffset".into(),
                failure,
            }),
        },
        None => Err(Error::answer("StoreConsumerOffset", "no section")),
    }
}

#[cfg(test)]
mod tests {
    use wire::{ErrorCode, Failure, OffsetsStored, PartitionId, ReplicaId, StoreResult};

    use super::*;

    fn stored(status: Result<(), Failure>, stored: Option<u64>) -> Reply {
        let result = StoreResult {
            partition: PartitionId(0),
            status,
            primary: ReplicaId(0),
            stored: stored.map(Offset),
        };
        let sections = vec![result];
        OffsetsStored { sections }.into()
    }

    #[test]
    fn only_the_offset_itself_counts_as_stored() {
        assert!(check_stored(stored(Ok(()), Some(7)), Offset(7)).is_ok());
        for reply in [
            stored(Ok(()), Some(8)),
            stored(Ok(()), None),
            stored(Err(Failure::new(ErrorCode::StaleEpoch, "old")), Some(7)),
            OffsetsStored { sections: vec![] }.into(),
            Reply::Done,
        ] {
            assert!(check_stored(reply.clone(), Offset(7)).is_err(), "{reply:?}");
        }
    }
}
