//! The ops that a primary has prepared in its view and not applied yet.

use alloc::{collections::VecDeque, vec::Vec};

use wire::{ClientId, Op, PREPARE_HEADER_SIZE, PrepareHeader, ReplicaId};

use crate::{
    Ignore, Room, Token,
    constants::{PIPELINE_BYTES_MAX, PIPELINE_PREPARES_MAX},
    quorum::Votes,
};

/// One op in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) header: PrepareHeader,
    /// Who waits for the reply; none once the op was handed out to be applied.
    pub(crate) token: Option<Token>,
    votes: Votes,
}

/// The ops in flight, in order and without gaps.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    entries: VecDeque<InFlight>,
    /// Bytes of them, headers included.
    size: usize,
}

impl Pipeline {
    /// What fits behind the ops in flight.
    pub(crate) fn room(&self) -> Room {
        Room {
            prepares: PIPELINE_PREPARES_MAX.saturating_sub(self.entries.len()),
            bytes: PIPELINE_BYTES_MAX.saturating_sub(self.size),
        }
    }

    /// Whether an op with a body of this size fits; however large, it fits when nothing is in flight.
    pub(crate) fn fits(&self, body_size: usize) -> bool {
        let room = self.room();
        let is_small = PREPARE_HEADER_SIZE + body_size <= room.bytes;
        room.prepares > 0 && (is_small || self.entries.is_empty())
    }

    pub(crate) fn push(&mut self, header: PrepareHeader, token: Option<Token>) {
        assert!(self.entries.len() < PIPELINE_PREPARES_MAX);
        self.push_back(header, token);
    }

    /// An op that the primary of a view has found in its journal, and that nobody waits for. There may be
    /// many: it may be far behind with applying.
    pub(crate) fn push_inherited(&mut self, header: PrepareHeader) {
        self.push_back(header, None);
    }

    /// The view is over: returns who waits.
    pub(crate) fn clear(&mut self) -> Vec<Token> {
        self.size = 0;
        let entries = self.entries.drain(..);
        entries.filter_map(|entry| entry.token).collect()
    }

    fn push_back(&mut self, header: PrepareHeader, token: Option<Token>) {
        if let Some(last) = self.entries.back() {
            assert!(header.op() == last.header.op().next());
            assert!(header.parent == last.header.checksum);
        }
        self.size += header.size as usize;
        self.entries.push_back(InFlight {
            header,
            token,
            votes: Votes::default(),
        });
    }

    /// The client's op in flight; there is one at most.
    pub(crate) fn of_client(&mut self, client: ClientId) -> Option<&mut InFlight> {
        assert!(client != ClientId(0));
        self.entries
            .iter_mut()
            .find(|entry| entry.header.client() == client)
    }

    /// Counts that `replica` has the op durably, if it is the op of this checksum (V7) and was not counted
    /// before (V5).
    pub(crate) fn vote(
        &mut self,
        op: Op,
        checksum: u128,
        replica: ReplicaId,
    ) -> Result<(), Ignore> {
        let Some(entry) = self.entry_mut(op) else {
            return Err(Ignore::PrepareOkNotInFlight);
        };
        if entry.header.checksum != checksum {
            return Err(Ignore::PrepareOkChecksum);
        }
        if entry.votes.add(replica) {
            Ok(())
        } else {
            Err(Ignore::PrepareOkRepeated)
        }
    }

    /// Whether a quorum has the op.
    pub(crate) fn has_quorum(&self, op: Op, replica_count: u8) -> bool {
        self.index(op)
            .is_some_and(|index| self.entries[index].votes.is_quorum(replica_count))
    }

    /// Who waits for the op; asked once, when it is handed out to be applied.
    pub(crate) fn take_token(&mut self, op: Op) -> Option<Token> {
        self.entry_mut(op).and_then(|entry| entry.token.take())
    }

    /// Nobody is to wait any more for what is in flight: returns who did.
    pub(crate) fn take_tokens(&mut self) -> Vec<Token> {
        let entries = self.entries.iter_mut();
        entries.filter_map(|entry| entry.token.take()).collect()
    }

    /// The op was applied; returns it if it was prepared in this view.
    pub(crate) fn pop(&mut self, op: Op) -> Option<InFlight> {
        if self.first()? != op {
            return None;
        }
        let entry = self.entries.pop_front()?;
        self.size -= entry.header.size as usize;
        Some(entry)
    }

    /// The lowest op in flight.
    pub(crate) fn first(&self) -> Option<Op> {
        self.entries.front().map(|entry| entry.header.op())
    }

    /// The highest op in flight.
    pub(crate) fn last(&self) -> Option<Op> {
        self.entries.back().map(|entry| entry.header.op())
    }

    fn entry_mut(&mut self, op: Op) -> Option<&mut InFlight> {
        self.index(op).map(|index| &mut self.entries[index])
    }

    fn index(&self, op: Op) -> Option<usize> {
        let index = op.0.checked_sub(self.first()?.0)?;
        let index = usize::try_from(index).ok()?;
        (index < self.entries.len()).then_some(index)
    }
}
