//! Where the parts of a shard lay down what is to be done, in order.

use alloc::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    vec::Vec,
};

use catalog::Change;
use journal::{Progress, Record, SuperblockRecord, Ticket};
use partition::{SegmentChange, SegmentId};
use vsr::{Prepare, Superblock};
use wire::{
    ConsensusGroup, ConsumerGroupId, Incarnation, Op, PartitionKey, ReplicaId, ShardId, Time,
};

use crate::{
    Effect, IoTicket, MeshMessage, Note, PeerMessage,
    heartbeats::Heartbeats,
    inflow::Inflow,
    work::{Answer, Origin},
};

/// A record that is on its way to the disk, and what its replica is told when it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Prepare {
        group: ConsensusGroup,
        op: Op,
        checksum: u128,
        /// Bytes, the header included.
        size: u64,
    },
    Superblock {
        group: ConsensusGroup,
        sequence: u64,
    },
}

/// A change of a segment that is on its way to the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingChange {
    ticket: IoTicket,
    /// Bytes of which segment are then in the file, up to which position.
    pub(crate) appended: Option<(SegmentId, u64)>,
    /// Bytes in it that another node has sent.
    fetched: u64,
}

/// What is to be done, in order, and what was asked of the shell and is not answered yet.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) node: ReplicaId,
    pub(crate) shard: ShardId,
    shard_count: u16,
    /// Whether the cluster has other nodes.
    pub(crate) has_peers: bool,
    pub(crate) now: Time,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) heartbeats: Heartbeats,
    /// Answers to requests that came in on this shard.
    pub(crate) answers: VecDeque<(Origin, Answer)>,
    /// Changes of the metadata that this shard does not follow yet; the others were told.
    pub(crate) published: VecDeque<(Op, Arc<[Change]>)>,
    /// Partitions that have changed so that a waiting poll may end.
    pub(crate) grown: BTreeSet<(PartitionKey, Incarnation)>,
    /// Fences or stored offsets of consumer groups that may have changed.
    pub(crate) touched: BTreeSet<(PartitionKey, ConsumerGroupId)>,
    /// Partitions that have begun, or are gone.
    pub(crate) begun: BTreeSet<PartitionKey>,
    /// Groups that need a checkpoint which contains this op, and a node that has one.
    pub(crate) fetches: Vec<(ConsensusGroup, Op, ReplicaId)>,
    records: u64,
    prepares: VecDeque<(Ticket, Written)>,
    superblocks: VecDeque<(Ticket, Written)>,
    /// Bytes of the prepares that are not durable.
    unwritten: u64,
    /// Prepares have become durable since somebody asked.
    moved: bool,
    changes: VecDeque<PendingChange>,
    /// What is fetched from other nodes.
    inflow: Inflow,
    io: u64,
}

impl Desk {
    pub(crate) const fn new(
        (node, shard): (ReplicaId, ShardId),
        (node_count, shard_count): (usize, u16),
        (now, inflow): (Time, Inflow),
    ) -> Self {
        Self {
            node,
            shard,
            shard_count,
            has_peers: node_count > 1,
            now,
            effects: VecDeque::new(),
            heartbeats: Heartbeats::new(),
            answers: VecDeque::new(),
            published: VecDeque::new(),
            grown: BTreeSet::new(),
            touched: BTreeSet::new(),
            begun: BTreeSet::new(),
            fetches: Vec::new(),
            records: 0,
            prepares: VecDeque::new(),
            superblocks: VecDeque::new(),
            unwritten: 0,
            moved: false,
            changes: VecDeque::new(),
            inflow,
            io: 0,
        }
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Sends to another replica of a group: at once, or with what the other groups have to say.
    pub(crate) fn send(&mut self, to: ReplicaId, group: ConsensusGroup, message: vsr::Message) {
        if let Some(message) = self.heartbeats.gather(to, group, message) {
            let message = PeerMessage::Replica { group, message };
            self.push(Effect::Peer { to, message });
        }
    }

    /// Sends what the groups have to say to each node.
    pub(crate) fn send_heartbeats(&mut self) {
        for (to, message) in self.heartbeats.take() {
            self.push(Effect::Peer { to, message });
        }
    }

    pub(crate) fn note(&mut self, note: Note) {
        self.effects.push_back(Effect::Note(note));
    }

    pub(crate) const fn next_io_ticket(&mut self) -> IoTicket {
        self.io += 1;
        IoTicket(self.io)
    }

    /// Sends an answer to where the request came in.
    pub(crate) fn answer(&mut self, origin: Origin, answer: Answer) {
        if origin.node != self.node {
            let answer = answer.into();
            self.push(Effect::Peer {
                to: origin.node,
                message: PeerMessage::Answer { origin, answer },
            });
        } else if origin.shard == self.shard {
            self.answers.push_back((origin, answer));
        } else {
            let message = MeshMessage::Answer {
                origin,
                answer: answer.into(),
            };
            self.push(Effect::Mesh {
                to: origin.shard,
                message,
            });
        }
    }

    /// Tells every shard what an op of the metadata has changed. Called before the op is answered, so
    /// that whoever has the answer meets the changes on every shard.
    pub(crate) fn publish(&mut self, op: Op, changes: Vec<Change>) {
        let changes: Arc<[Change]> = changes.into();
        let own = self.shard;
        for shard in (0..self.shard_count)
            .map(ShardId)
            .filter(|shard| *shard != own)
        {
            let message = MeshMessage::Changes {
                op,
                changes: Arc::clone(&changes),
            };
            self.push(Effect::Mesh { to: shard, message });
        }
        self.published.push_back((op, changes));
    }

    pub(crate) fn journal_prepare(&mut self, group: ConsensusGroup, prepare: Prepare) {
        self.records += 1;
        let (op, checksum) = (prepare.header.op(), prepare.header.checksum);
        let size = u64::from(prepare.header.size);
        self.unwritten += size;
        let written = Written::Prepare {
            group,
            op,
            checksum,
            size,
        };
        self.prepares.push_back((Ticket(self.records), written));
        let Prepare { header, body } = prepare;
        self.push(Effect::Journal(Record::Prepare { header, body }));
    }

    pub(crate) fn journal_superblock(&mut self, group: ConsensusGroup, superblock: &Superblock) {
        self.records += 1;
        let written = Written::Superblock {
            group,
            sequence: superblock.sequence,
        };
        self.superblocks.push_back((Ticket(self.records), written));
        let record = SuperblockRecord {
            group,
            checkpoint: superblock.recyclable(),
            body: superblock.encode(),
        };
        self.push(Effect::Journal(Record::Superblock(record)));
    }

    /// Bytes of the prepares that are not durable.
    pub(crate) const fn unwritten(&self) -> u64 {
        self.unwritten
    }

    /// What became durable by this progress, oldest first.
    pub(crate) fn written(&mut self, progress: Progress) -> Vec<Written> {
        let mut written = Vec::new();
        while let Some((ticket, record)) = self.prepares.front() {
            if *ticket > progress.flushed {
                break;
            }
            if let Written::Prepare { size, .. } = record {
                self.unwritten -= size;
            }
            self.moved = true;
            written.push(*record);
            self.prepares.pop_front();
        }
        while let Some((ticket, record)) = self.superblocks.front() {
            if *ticket > progress.repeated {
                break;
            }
            written.push(*record);
            self.superblocks.pop_front();
        }
        written
    }

    /// Whether prepares have become durable since this was last asked.
    pub(crate) const fn take_moved(&mut self) -> bool {
        core::mem::replace(&mut self.moved, false)
    }

    /// Hands a change to the shell.
    pub(crate) fn change(&mut self, change: SegmentChange) {
        let appended = match &change {
            SegmentChange::Append {
                segment, position, ..
            } => Some((*segment, position + size_of_change(&change))),
            SegmentChange::WriteIndex { .. }
            | SegmentChange::Delete { .. }
            | SegmentChange::DeletePartition { .. } => None,
        };
        self.push_change(change, appended, 0);
    }

    /// Hands a change to the shell that no state of this node asks for: what another node's state rests on.
    pub(crate) fn change_fetched(&mut self, change: SegmentChange) {
        let fetched = size_of_change(&change);
        self.inflow.take(fetched);
        self.push_change(change, None, fetched);
    }

    /// Whether more may be asked of other nodes.
    pub(crate) const fn may_fetch(&self) -> bool {
        self.inflow.is_open(self.now.monotonic)
    }

    /// So many bytes are asked of another node.
    pub(crate) fn note_asked(&mut self, bytes: u64) {
        self.inflow.ask(bytes, self.now.monotonic);
    }

    fn push_change(
        &mut self,
        change: SegmentChange,
        appended: Option<(SegmentId, u64)>,
        fetched: u64,
    ) {
        let ticket = self.next_io_ticket();
        self.changes.push_back(PendingChange {
            ticket,
            appended,
            fetched,
        });
        self.push(Effect::Change { ticket, change });
    }

    /// The changes that are carried out now, oldest first.
    pub(crate) fn changed(&mut self, through: IoTicket) -> Vec<PendingChange> {
        let count = self
            .changes
            .iter()
            .take_while(|change| change.ticket <= through)
            .count();
        let changed: Vec<_> = self.changes.drain(..count).collect();
        let fetched = changed.iter().map(|change| change.fetched).sum();
        self.inflow.put_away(fetched);
        changed
    }

    /// The newest change that is not carried out yet.
    pub(crate) fn last_change(&self) -> Option<IoTicket> {
        self.changes.back().map(|change| change.ticket)
    }

    /// Whether nothing waits for a disk.
    pub(crate) fn is_idle(&self) -> bool {
        self.prepares.is_empty() && self.superblocks.is_empty() && self.changes.is_empty()
    }
}

/// Bytes that it appends.
fn size_of_change(change: &SegmentChange) -> u64 {
    match change {
        SegmentChange::Append { parts, .. } => parts.iter().map(|part| part.len() as u64).sum(),
        SegmentChange::WriteIndex { .. }
        | SegmentChange::Delete { .. }
        | SegmentChange::DeletePartition { .. } => 0,
    }
}
