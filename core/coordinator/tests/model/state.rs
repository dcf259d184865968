//! One state of the model, and the three words that it is kept as.

use super::{
    machine::{Claim, DataOp, Position, Record},
    metadata::{FIRST, OpNumber, Plane, Session},
};

/// A client that has processed nothing in its ownership.
pub(crate) const NOTHING: Position = 3;

/// A poll that a primary holds and will answer: it has been confirmed, or nobody asks for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poll {
    pub(crate) claim: Claim,
    /// It waits at the deposed primary.
    pub(crate) deposed: bool,
    /// The highest epoch that another session had been granted when it arrived.
    pub(crate) others: OpNumber,
}

/// A primary whose view is over and which does not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deposed {
    /// The metadata op that it has applied.
    pub(crate) copy: OpNumber,
    pub(crate) record: Record,
}

/// A consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// The metadata op at which it was last told something new.
    pub(crate) told: OpNumber,
    /// How far it has processed in the last ownership that it was told of.
    pub(crate) processed: Position,
    /// How far it has been served there; answers may be on their way. 0: not at all.
    pub(crate) served: Position,
    /// How far it had processed in the ownership before.
    pub(crate) before: Position,
    /// The last release that it has sent: the epoch of the move, 0 for none, and what it stores.
    pub(crate) released: (OpNumber, Position),
}

/// What the current primary of the data group remembers since its view began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The fence as it was when the view began.
    pub(crate) fence: OpNumber,
    /// The highest position served, and the ownership that it was served in.
    pub(crate) since: OpNumber,
    pub(crate) polled: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The history of the metadata group.
    pub(crate) node: u16,
    /// The metadata op that the current primary has applied.
    pub(crate) copy: OpNumber,
    /// What is committed in the data group; the current primary has applied it.
    pub(crate) record: Record,
    pub(crate) memory: Memory,
    /// Prepared and not committed, in order.
    pub(crate) queue: [Option<DataOp>; 2],
    /// View changes of the data group.
    pub(crate) views: u8,
    pub(crate) deposed: Option<Deposed>,
    pub(crate) poll: Option<Poll>,
    /// Moves that were told to be complete, by epoch: a bit each.
    pub(crate) told: u16,
    pub(crate) clients: [Client; 3],
    /// Of the fence as it is, for the invariants: whether it ends a clean hand-over, and what was stored
    /// when it was raised.
    pub(crate) clean: bool,
    pub(crate) raised_at: Position,
}

/// Packs and unpacks numbers of a few bits.
#[derive(Default)]
struct Bits {
    word: u64,
    at: u32,
}

impl Bits {
    fn put(&mut self, value: u8, bits: u32) {
        self.word |= u64::from(value) << self.at;
        self.at += bits;
    }

    fn take(&mut self, bits: u32) -> u8 {
        let value = self.word & ((1 << bits) - 1);
        self.word >>= bits;
        value.to_le_bytes()[0]
    }

    fn put_record(&mut self, record: Record) {
        self.put(record.fence, 4);
        self.put(record.holder, 2);
        self.put(record.stored, 2);
    }

    fn take_record(&mut self) -> Record {
        Record {
            fence: self.take(4),
            holder: self.take(2),
            stored: self.take(2),
        }
    }

    fn put_claim(&mut self, claim: Claim) {
        self.put(claim.epoch, 4);
        self.put(claim.session, 2);
    }

    fn take_claim(&mut self) -> Claim {
        Claim {
            epoch: self.take(4),
            session: self.take(2),
        }
    }

    fn put_op(&mut self, op: Option<DataOp>) {
        let nobody = Claim {
            epoch: 0,
            session: 0,
        };
        let (kind, claim, stored, to) = match op {
            None => (0, nobody, 0, nobody),
            Some(DataOp::Fence { to, clean }) => (1, nobody, u8::from(clean), to),
            Some(DataOp::Store { claim, stored }) => (2, claim, stored, nobody),
            Some(DataOp::Release { claim, stored, to }) => (3, claim, stored, to),
        };
        self.put(kind, 2);
        self.put_claim(claim);
        self.put(stored, 2);
        self.put_claim(to);
    }

    fn take_op(&mut self) -> Option<DataOp> {
        let kind = self.take(2);
        let (claim, stored, to) = (self.take_claim(), self.take(2), self.take_claim());
        match kind {
            0 => None,
            1 => {
                let clean = stored == 1;
                Some(DataOp::Fence { to, clean })
            }
            2 => Some(DataOp::Store { claim, stored }),
            _ => Some(DataOp::Release { claim, stored, to }),
        }
    }

    fn put_client(&mut self, client: Client) {
        self.put(client.told, 4);
        self.put(client.processed, 2);
        self.put(client.served, 2);
        self.put(client.before, 2);
        self.put(client.released.0, 4);
        self.put(client.released.1, 2);
    }

    fn take_client(&mut self) -> Client {
        Client {
            told: self.take(4),
            processed: self.take(2),
            served: self.take(2),
            before: self.take(2),
            released: (self.take(4), self.take(2)),
        }
    }
}

/// A state in three words.
pub(crate) type Packed = [u64; 3];

impl State {
    /// A owns the partition since [`FIRST`], as everybody knows, and nothing is fenced, served or stored.
    pub(crate) fn first(plane: &Plane) -> Self {
        let node = plane.node(Plane::ROOT);
        let client = |session| Client {
            told: node.told_since(session),
            processed: NOTHING,
            served: 0,
            before: NOTHING,
            released: (0, 0),
        };
        Self {
            node: Plane::ROOT,
            copy: FIRST,
            record: Record::default(),
            memory: Memory::default(),
            queue: [None; 2],
            views: 0,
            deposed: None,
            poll: None,
            told: 0,
            clients: [client(1), client(2), client(3)],
            clean: false,
            raised_at: 0,
        }
    }

    pub(crate) fn client(&self, session: Session) -> &Client {
        &self.clients[usize::from(session - 1)]
    }

    pub(crate) fn client_mut(&mut self, session: Session) -> &mut Client {
        &mut self.clients[usize::from(session - 1)]
    }

    pub(crate) fn pack(&self) -> Packed {
        let word = self.node.into();
        let mut planes = Bits { word, at: 10 };
        planes.put(self.copy, 4);
        planes.put_record(self.record);
        planes.put(self.memory.fence, 4);
        planes.put(self.memory.since, 4);
        planes.put(self.memory.polled, 2);
        planes.put(self.views, 2);
        planes.put(u8::from(self.clean), 1);
        planes.put(self.raised_at, 2);
        planes.word |= u64::from(self.told) << planes.at;

        let mut groups = Bits::default();
        groups.put_op(self.queue[0]);
        groups.put_op(self.queue[1]);
        groups.put(u8::from(self.deposed.is_some()), 1);
        if let Some(deposed) = self.deposed {
            groups.put(deposed.copy, 4);
            groups.put_record(deposed.record);
        }

        let mut clients = Bits::default();
        for client in self.clients {
            clients.put_client(client);
        }
        if let Some(poll) = self.poll {
            clients.put_claim(poll.claim);
            clients.put(u8::from(poll.deposed), 1);
            clients.put(poll.others, 4);
        }
        [planes.word, groups.word, clients.word]
    }

    pub(crate) fn unpack([planes, groups, clients]: Packed) -> Self {
        let bits = |word| Bits { word, at: 0 };
        let (mut planes, mut groups, mut clients) = (bits(planes), bits(groups), bits(clients));
        let node = u16::from(planes.take(8)) | u16::from(planes.take(2)) << 8;
        let (copy, record) = (planes.take(4), planes.take_record());
        let memory = Memory {
            fence: planes.take(4),
            since: planes.take(4),
            polled: planes.take(2),
        };
        let (views, clean, raised_at) = (planes.take(2), planes.take(1) == 1, planes.take(2));
        let told = u16::from(planes.take(8)) | u16::from(planes.take(8)) << 8;
        let queue = [groups.take_op(), groups.take_op()];
        let deposed = (groups.take(1) == 1).then(|| Deposed {
            copy: groups.take(4),
            record: groups.take_record(),
        });
        let of_clients = [
            clients.take_client(),
            clients.take_client(),
            clients.take_client(),
        ];
        let poll = Poll {
            claim: clients.take_claim(),
            deposed: clients.take(1) == 1,
            others: clients.take(4),
        };
        Self {
            node,
            copy,
            record,
            memory,
            queue,
            views,
            deposed,
            poll: (poll.claim.session > 0).then_some(poll),
            told,
            clients: of_clients,
            clean,
            raised_at,
        }
    }
}
