//! Requests that wait for their answers, on the shard that they came in on.

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};

use wire::{
    Batch, Command, FrameHeader, GroupPrimary, Identifier, Op, Plane, PollResult, ReplicaDetails,
    SendResult, ShardId, TopicDetails,
};

use crate::{ConnectionId, Slot};

/// One request.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Where the answer goes; `None` when it is answered already, or the connection is gone.
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) header: FrameHeader,
    /// What it is charged with.
    pub(crate) charge: Option<(ConnectionId, u64)>,
    /// Answers that are still to come.
    pub(crate) left: usize,
    pub(crate) gather: Gather,
}

/// How the answers of several consensus groups become one.
#[derive(Debug)]
pub(crate) enum Gather {
    /// There is one answer, and it is the reply.
    One,
    Send(Vec<(SendResult, BatchSize)>),
    Poll {
        results: Vec<PollResult>,
        max_messages: u32,
        max_bytes: u32,
        /// Who serves sections; they are hurried once there is enough.
        shards: Vec<ShardId>,
        hurried: bool,
    },
    Store(Vec<wire::StoreResult>),
    /// By this session; each with the epoch that it is released for.
    Release(wire::SessionNumber, Vec<(wire::ReleaseResult, wire::Epoch)>),
    Delete(Vec<wire::DeleteResult>),
    Offsets(Vec<wire::OffsetResult>),
    Groups(Vec<GroupPrimary>),
    Counters(BTreeMap<&'static str, u64>),
    /// First the password is checked, if there is no session, then every shard tells its replicas; whether
    /// digests are wanted.
    Status(bool, Vec<ReplicaDetails>),
    /// First the catalog tells the topic, as of a metadata op, then the data groups its offsets.
    Topic(Option<(Op, TopicDetails)>),
    /// First the catalog tells the consumer group, then the data groups how far it has got.
    Group(Option<(Op, wire::ConsumerGroupDetails)>),
    /// There is one answer, and it is the reply once the data groups have carried out the reset of this
    /// consumer group.
    Reset(Box<ResetOf>),
}

/// The consumer group of a reset, as its client named it: this node may not know it yet when it is asked.
#[derive(Clone, Debug)]
pub(crate) struct ResetOf {
    pub(crate) stream: Identifier,
    pub(crate) topic: Identifier,
    pub(crate) group: Identifier,
}

/// How much a batch adds to the counters when it is appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchSize {
    pub(crate) messages: u64,
    /// Header included.
    pub(crate) bytes: u64,
}

impl BatchSize {
    pub(crate) fn of(batch: &Batch) -> Self {
        Self {
            messages: batch.header.count.into(),
            bytes: batch.header.size.into(),
        }
    }
}

/// The requests in flight of one shard.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    slots: BTreeMap<Slot, InFlight>,
    by_connection: BTreeMap<(ConnectionId, Slot), ()>,
    count: u64,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn open(
        &mut self,
        connection: ConnectionId,
        header: FrameHeader,
        bytes: u64,
    ) -> Slot {
        self.count += 1;
        let slot = Slot(self.count);
        let request = InFlight {
            connection: Some(connection),
            header,
            charge: Some((connection, bytes)),
            left: 1,
            gather: Gather::One,
        };
        self.slots.insert(slot, request);
        self.by_connection.insert((connection, slot), ());
        slot
    }

    pub(crate) fn find(&mut self, slot: Slot) -> Option<&mut InFlight> {
        self.slots.get_mut(&slot)
    }

    pub(crate) fn close(&mut self, slot: Slot) -> Option<InFlight> {
        let request = self.slots.remove(&slot)?;
        if let Some((connection, _)) = request.charge {
            self.by_connection.remove(&(connection, slot));
        }
        Some(request)
    }

    /// Whether such a command of this connection has no answer yet.
    pub(crate) fn has_command(&self, connection: ConnectionId, command: Command) -> bool {
        let range = (connection, Slot(0))..=(connection, Slot(u64::MAX));
        self.by_connection
            .range(range)
            .filter_map(|((_, slot), ())| self.slots.get(slot))
            .any(|request| request.header.code == command.code())
    }

    /// Takes away everything that a lost connection has in flight.
    pub(crate) fn close_connection(&mut self, connection: ConnectionId) -> Vec<(Slot, InFlight)> {
        let range = (connection, Slot(0))..=(connection, Slot(u64::MAX));
        let slots: Vec<Slot> = self
            .by_connection
            .range(range)
            .map(|((_, slot), ())| *slot)
            .collect();
        slots
            .into_iter()
            .filter_map(|slot| Some((slot, self.close(slot)?)))
            .collect()
    }

    /// Requests that end with an op.
    pub(crate) fn writes(&self) -> Vec<Slot> {
        let mut writes = Vec::new();
        for (slot, request) in &self.slots {
            let is_write = match &request.gather {
                Gather::Send(_)
                | Gather::Store(_)
                | Gather::Release(..)
                | Gather::Delete(_)
                | Gather::Reset(_) => true,
                Gather::One => is_metadata_write(&request.header),
                Gather::Poll { .. }
                | Gather::Offsets(_)
                | Gather::Groups(_)
                | Gather::Counters(_)
                | Gather::Status(..)
                | Gather::Topic(_)
                | Gather::Group(_) => false,
            };
            if is_write {
                writes.push(*slot);
            }
        }
        writes
    }

    /// The connections that polls came in on which have no answer yet.
    pub(crate) fn polling(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        let requests = self.slots.values();
        requests
            .filter(|request| matches!(request.gather, Gather::Poll { .. }))
            .filter_map(|request| request.connection)
    }

    /// Requests whose waits may be ended early: polls.
    pub(crate) fn polls(&self) -> impl Iterator<Item = (Slot, &[ShardId])> + '_ {
        self.slots
            .iter()
            .filter_map(|(slot, request)| match &request.gather {
                Gather::Poll { shards, .. } => Some((*slot, shards.as_slice())),
                Gather::One
                | Gather::Send(_)
                | Gather::Store(_)
                | Gather::Release(..)
                | Gather::Delete(_)
                | Gather::Offsets(_)
                | Gather::Groups(_)
                | Gather::Counters(_)
                | Gather::Status(..)
                | Gather::Topic(_)
                | Gather::Group(_)
                | Gather::Reset(_) => None,
            })
    }
}

fn is_metadata_write(header: &FrameHeader) -> bool {
    Command::from_code(header.code)
        .is_some_and(|command| command.plane() == Plane::Metadata || command == Command::Login)
}
