//! A member of a consumer group that does what it is told to, right or wrong; [`Member::turn`] does right.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use wire::{
    Consumer, ConsumerGroupAssignment, Epoch, ErrorCode, Event, EvictionReason, Failure,
    JoinConsumerGroup, LeaveConsumerGroup, MemberId, Offset, PartitionId, PollMessages, PollResult,
    PollSection, PollStrategy, ReleasePartition, ReleaseSection, Reply, StoreConsumerOffset,
    StoreSection, SyncConsumerGroup,
};

use crate::{Connection, Group, Page, connection::page, group::message, until};

/// Messages that one poll of [`Member::turn`] asks for.
const TURN: u32 = 20;

/// A member, or who was one.
#[derive(Debug)]
pub struct Member {
    /// What it speaks on.
    pub connection: Connection,
    /// Its group.
    pub group: Group,
    /// What it owns, and has to give up, as far as it has heard.
    pub assignment: ConsumerGroupAssignment,
}

impl Member {
    /// Joins with a session of its own.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn join(address: SocketAddr, group: &Group) -> Self {
        Self::try_join(Connection::login(address), group).expect("join")
    }

    /// Joins with the session of a connection.
    ///
    /// # Errors
    /// The refusal.
    pub fn try_join(mut connection: Connection, group: &Group) -> Result<Self, Failure> {
        let join = JoinConsumerGroup {
            stream: group.topic.stream.into(),
            topic: group.topic.id.into(),
            group: group.name.clone(),
            instance: None,
            weight: 1,
        };
        match connection.ask(join)? {
            Reply::Assignment(assignment) => Ok(Self {
                connection,
                group: group.clone(),
                assignment,
            }),
            other => panic!("join: {other:?}"),
        }
    }

    /// Goes on on another connection of its session, at this address.
    ///
    /// # Panics
    /// When the session is gone.
    pub fn attach(&mut self, address: SocketAddr) {
        self.connection = until("the session is attached to", || {
            match self.connection.try_attach(address) {
                Ok(connection) => Some(connection),
                Err(Some(failure)) => {
                    assert!(failure.code.retryable(), "{failure}");
                    None
                }
                Err(None) => None,
            }
        });
    }

    /// Its id in the group.
    #[must_use]
    pub const fn id(&self) -> MemberId {
        self.assignment.member
    }

    /// What it owns, as far as it has heard.
    #[must_use]
    pub fn owned(&self) -> Vec<u32> {
        let owned = self.assignment.owned.iter();
        owned.map(|one| one.partition.0).collect()
    }

    /// What it has to give up, as far as it has heard.
    #[must_use]
    pub fn revoking(&self) -> Vec<u32> {
        let revoking = self.assignment.revoking.iter();
        revoking.map(|one| one.partition.0).collect()
    }

    /// The epoch under which it has a partition, as far as it has heard.
    ///
    /// # Panics
    /// When it has not.
    #[must_use]
    pub fn epoch(&self, partition: u32) -> Epoch {
        let epoch = epoch_in(&self.assignment, partition);
        epoch.unwrap_or_else(|| panic!("partition {partition} is not in {:?}", self.assignment))
    }

    /// Learns its assignment.
    ///
    /// # Errors
    /// The refusal.
    pub fn sync(&mut self) -> Result<(), Failure> {
        let sync = SyncConsumerGroup {
            stream: self.group.topic.stream.into(),
            topic: self.group.topic.id.into(),
            group: self.group.name.clone(),
        };
        match self.connection.ask(sync)? {
            Reply::Assignment(assignment) => {
                self.assignment = assignment;
                Ok(())
            }
            other => panic!("sync: {other:?}"),
        }
    }

    /// Syncs; `false` when that is to be tried again.
    fn sync_again(&mut self) -> bool {
        match self.sync() {
            Ok(()) => true,
            Err(failure) => {
                assert!(failure.code.retryable(), "it is a member: {failure}");
                false
            }
        }
    }

    /// Syncs until it owns so many partitions and has none to give up.
    ///
    /// # Panics
    /// When it does not come to that, or it is not a member any more.
    pub fn wait_for(&mut self, count: usize) {
        until(&format!("{:?} owns {count}", self.id()), || {
            let is_told = self.sync_again();
            let assignment = &self.assignment;
            let has_all = assignment.owned.len() == count && assignment.revoking.is_empty();
            (is_told && has_all).then_some(())
        });
    }

    /// Syncs until it has so many partitions to give up.
    ///
    /// # Panics
    /// When it does not come to that, or it is not a member any more.
    pub fn wait_for_revoking(&mut self, count: usize) {
        until(&format!("{:?} gives up {count}", self.id()), || {
            let is_told = self.sync_again();
            (is_told && self.assignment.revoking.len() == count).then_some(())
        });
    }

    /// Polls and stores in this partition, which is refused, and is told why the session ended meanwhile.
    ///
    /// # Panics
    /// When it is not.
    pub fn expect_evicted(&mut self, partition: u32) {
        let epoch = self.epoch(partition);
        let poll = self.poll_of(&[(partition, epoch)], 10);
        let poll = self.connection.post(poll).expect("it is connected");
        let store = self.store_of(&[(partition, epoch, 20)]);
        let store = self.connection.post(store).expect("it is connected");
        let mut evicted = None;
        let mut refused = Vec::new();
        while refused.len() < 2 {
            let frame = self.connection.receive().expect("it is connected");
            if frame.header.correlation == poll || frame.header.correlation == store {
                refused.push(frame.error());
            } else if let Ok(Some(Event::Evicted(reason))) =
                Event::decode(&frame.header, frame.body.clone())
            {
                evicted = Some(reason);
            }
        }
        assert_eq!(evicted, Some(EvictionReason::Expired));
        assert_eq!(refused, [Some(ErrorCode::Unauthenticated); 2]);
    }

    /// A poll of these partitions, each under its epoch, that does not wait.
    #[must_use]
    pub fn poll_of(&self, sections: &[(u32, Epoch)], count: u32) -> PollMessages {
        let sections = sections.iter().map(|(partition, epoch)| PollSection {
            partition: PartitionId(*partition),
            epoch: *epoch,
            strategy: PollStrategy::Next,
        });
        PollMessages {
            stream: self.group.topic.stream.into(),
            topic: self.group.topic.id.into(),
            consumer: Consumer::Group(self.group.name.clone()),
            max_messages: count,
            max_bytes: 1 << 20,
            min_bytes: 0,
            max_wait_ms: 0,
            commit_on_poll: false,
            sections: sections.collect(),
        }
    }

    /// Reads a partition behind what is stored, under the epoch last heard of.
    ///
    /// # Errors
    /// The refusal of the request or of the partition.
    pub fn poll(&mut self, partition: u32, count: u32) -> Result<Page, Failure> {
        let epoch = self.epoch(partition);
        let poll = self.poll_of(&[(partition, epoch)], count);
        self.polled(poll)
    }

    /// Asks with a poll of one section.
    ///
    /// # Errors
    /// The refusal of the request or of the partition.
    pub fn polled(&mut self, poll: PollMessages) -> Result<Page, Failure> {
        let partition = poll.sections[0].partition.0;
        match self.connection.ask(poll)? {
            Reply::Polled(polled) => page_of(partition, &polled.sections[0]),
            other => panic!("poll: {other:?}"),
        }
    }

    /// Stores offsets, each under the epoch last heard of.
    ///
    /// # Errors
    /// The refusal of the request.
    pub fn store_all(
        &mut self,
        offsets: &[(u32, u64)],
    ) -> Result<Vec<Result<Option<Offset>, Failure>>, Failure> {
        let sections = offsets
            .iter()
            .map(|(partition, offset)| (*partition, self.epoch(*partition), *offset));
        let sections: Vec<_> = sections.collect();
        let store = self.store_of(&sections);
        match self.connection.ask(store)? {
            Reply::OffsetsStored(stored) => Ok(stored
                .sections
                .into_iter()
                .map(|section| section.status.map(|()| section.stored))
                .collect()),
            other => panic!("store: {other:?}"),
        }
    }

    /// A store of these partitions, epochs and offsets.
    #[must_use]
    pub fn store_of(&self, sections: &[(u32, Epoch, u64)]) -> StoreConsumerOffset {
        Self::store_to(&self.group, sections)
    }

    /// A store of these partitions, epochs and offsets, whoever sends it.
    #[must_use]
    pub fn store_to(group: &Group, sections: &[(u32, Epoch, u64)]) -> StoreConsumerOffset {
        let sections = sections
            .iter()
            .map(|(partition, epoch, offset)| StoreSection {
                partition: PartitionId(*partition),
                epoch: *epoch,
                offset: Offset(*offset),
            });
        StoreConsumerOffset {
            stream: group.topic.stream.into(),
            topic: group.topic.id.into(),
            consumer: Consumer::Group(group.name.clone()),
            sections: sections.collect(),
        }
    }

    /// Stores one offset, under the epoch last heard of; gives what is stored then.
    ///
    /// # Errors
    /// The refusal of the request or of the partition.
    pub fn store(&mut self, partition: u32, offset: u64) -> Result<Option<Offset>, Failure> {
        let mut results = self.store_all(&[(partition, offset)])?;
        results.pop().expect("one was stored")
    }

    /// Gives up a partition that it knows to be revoked; gives what is stored then.
    ///
    /// # Errors
    /// The refusal of the request or of the partition.
    ///
    /// # Panics
    /// When it has not heard that the partition is revoked.
    pub fn release(
        &mut self,
        partition: u32,
        offset: Option<u64>,
    ) -> Result<Option<Offset>, Failure> {
        let mut revoking = self.assignment.revoking.iter();
        let moving = revoking.find(|moving| moving.partition.0 == partition);
        let moving = moving.expect("it is revoked");
        let release = ReleasePartition {
            stream: self.group.topic.stream.into(),
            topic: self.group.topic.id.into(),
            group: self.group.name.clone(),
            sections: vec![ReleaseSection {
                partition: moving.partition,
                epoch: moving.epoch,
                planned: moving.planned,
                offset: offset.map(Offset),
            }],
        };
        match self.connection.ask(release)? {
            Reply::PartitionsReleased(released) => {
                let section = released.sections[0].clone();
                section.status.map(|()| section.stored)
            }
            other => panic!("release: {other:?}"),
        }
    }

    /// Leaves the group; the session stays.
    ///
    /// # Errors
    /// The refusal.
    pub fn leave(&mut self) -> Result<(), Failure> {
        let leave = LeaveConsumerGroup {
            stream: self.group.topic.stream.into(),
            topic: self.group.topic.id.into(),
            group: self.group.name.clone(),
        };
        self.connection.ask(leave).map(|_| ())
    }

    /// One turn of a member that does everything right: syncs, gives up what it has to, reads what it owns,
    /// notes what came, stores it.
    ///
    /// # Errors
    /// The refusal of a request as a whole, and of a partition for another reason than that it moves.
    pub fn turn(&mut self, deliveries: &Deliveries) -> Result<(), Failure> {
        self.sync()?;
        for partition in self.revoking() {
            // What was polled before was stored in the same turn.
            pass_over_moves(self.release(partition, None))?;
        }
        for partition in self.owned() {
            let Some(page) = pass_over_moves(self.poll(partition, TURN))? else {
                continue;
            };
            deliveries.note(self.id(), partition, &page);
            if let Some((last, _)) = page.messages.last() {
                pass_over_moves(self.store(partition, last.0))?;
            }
        }
        Ok(())
    }
}

/// The epoch under which an assignment has a partition.
fn epoch_in(assignment: &ConsumerGroupAssignment, partition: u32) -> Option<Epoch> {
    let owned = assignment.owned.iter();
    let revoking = assignment.revoking.iter();
    owned
        .map(|one| (one.partition, one.epoch))
        .chain(revoking.map(|one| (one.partition, one.epoch)))
        .find(|(found, _)| found.0 == partition)
        .map(|(_, epoch)| epoch)
}

fn pass_over_moves<T>(result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(failure) => match failure.code {
            ErrorCode::PartitionNotOwned
            | ErrorCode::PartitionRevoking
            | ErrorCode::StaleEpoch
            | ErrorCode::RevocationChanged => Ok(None),
            _ => Err(failure),
        },
    }
}

/// The messages of a section, which must be those of [`fill`](crate::fill), without a gap.
fn page_of(partition: u32, result: &PollResult) -> Result<Page, Failure> {
    result.status.clone()?;
    let page = page(result);
    for (expected, (offset, bytes)) in (result.from.0..).zip(&page.messages) {
        assert_eq!(offset.0, expected, "offsets of {partition} are dense");
        assert_eq!(
            *bytes,
            message(partition, expected),
            "message {expected} of {partition}"
        );
    }
    assert_eq!(
        result.next.0 - result.from.0,
        page.messages.len() as u64,
        "everything between from and next is there"
    );
    Ok(page)
}

/// Which members got which messages. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Deliveries(Arc<Mutex<Delivered>>);

/// Members by partition and offset, in the order of the deliveries.
type Delivered = BTreeMap<(u32, u64), Vec<MemberId>>;

impl Deliveries {
    /// Notes what a member got.
    pub fn note(&self, member: MemberId, partition: u32, page: &Page) {
        let mut delivered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (offset, _) in &page.messages {
            delivered
                .entry((partition, offset.0))
                .or_default()
                .push(member);
        }
    }

    /// Messages of a partition that were delivered, however often.
    #[must_use]
    pub fn count(&self, partition: u32) -> usize {
        let delivered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let places = delivered.keys();
        places.filter(|place| place.0 == partition).count()
    }

    /// Messages that were delivered again, each as often as that was.
    #[must_use]
    pub fn repeated(&self) -> usize {
        let delivered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        delivered.values().map(|members| members.len() - 1).sum()
    }

    /// Requires that the first `count` messages of a partition were delivered.
    ///
    /// # Panics
    /// When one was not.
    pub fn expect_all(&self, partition: u32, count: u64) {
        let delivered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing: Vec<u64> = (0..count)
            .filter(|offset| !delivered.contains_key(&(partition, *offset)))
            .collect();
        assert!(
            missing.is_empty(),
            "partition {partition}: {missing:?} were never delivered"
        );
    }
}
