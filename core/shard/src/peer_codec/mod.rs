//! The bytes of what nodes say to each other: the bodies of frames of kind 4, as `PEERS.md` beside the crate
//! `wire` describes them.
//!
//! Nodes of a cluster trust each other's judgement, not each other's bytes: what is decoded here is such
//! that the receiver comes to no harm by it.

mod answer;
#[cfg(test)]
mod tests;
mod transfer;
mod work;

use alloc::vec::Vec;

use bytes::Bytes;
use wire::{ClientId, ConsensusGroup, DecodeError, Field, Reader, SessionNumber, Writer, fields};

use crate::{
    PeerMessage, Sign,
    work::{Origin, Slot, Work},
};

/// The version of these bytes; the first of them.
pub const PEER_VERSION: u8 = 1;

/// The kinds of messages, as they stand in the bytes.
mod kind {
    pub(super) const REPLICA: u8 = 1;
    pub(super) const WORK: u8 = 2;
    pub(super) const ANSWER: u8 = 3;
    pub(super) const HURRY: u8 = 4;
    pub(super) const MOVED: u8 = 5;
    pub(super) const LIVENESS: u8 = 6;
    pub(super) const CONNECTIONS: u8 = 7;
    pub(super) const COMMITS: u8 = 8;
    pub(super) const COMMIT_OKS: u8 = 9;
    pub(super) const TRANSFER: u8 = 10;
}

impl PeerMessage {
    /// The body of a frame, in pieces: the bodies of large prepares and batches are not copied.
    ///
    /// # Panics
    /// When it is work, or an answer, that concerns one node only: such is not passed on.
    #[must_use]
    pub fn encode(&self) -> Vec<Bytes> {
        let mut writer = Writer::new();
        writer.u8(PEER_VERSION);
        match self {
            Self::Replica { group, message } => {
                writer.u8(kind::REPLICA).u16(group.0);
                message.write(&mut writer);
            }
            Self::Transfer { group, message } => {
                writer.u8(kind::TRANSFER).u16(group.0);
                message.write(&mut writer);
            }
            Self::Work {
                origin,
                group,
                work,
            } => {
                assert!(work.group() == Some(*group));
                writer.u8(kind::WORK).u16(group.0);
                origin.write(&mut writer);
                work.write(&mut writer);
            }
            Self::Answer { origin, answer } => {
                writer.u8(kind::ANSWER);
                origin.write(&mut writer);
                answer.write(&mut writer);
            }
            Self::Hurry { origin, group } => {
                writer.u8(kind::HURRY).u16(group.0);
                origin.write(&mut writer);
            }
            Self::Moved(moves) => {
                writer.u8(kind::MOVED);
                moves.write(&mut writer);
            }
            Self::Liveness(signs) => {
                writer.u8(kind::LIVENESS);
                signs.write(&mut writer);
            }
            Self::Connections(sessions) => {
                writer.u8(kind::CONNECTIONS);
                sessions.write(&mut writer);
            }
            Self::Commits(commits) => {
                writer.u8(kind::COMMITS);
                commits.write(&mut writer);
            }
            Self::CommitOks(oks) => {
                writer.u8(kind::COMMIT_OKS);
                oks.write(&mut writer);
            }
        }
        writer.into_parts()
    }

    /// Reads the body of a frame. Bodies of prepares and batches are slices of it, not copies.
    ///
    /// # Errors
    /// Names the first field that is wrong.
    pub fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let version = reader.u8("version")?;
        if version != PEER_VERSION {
            return Err(reader.invalid("version", 0, version));
        }
        let message = decode_message(&mut reader)?;
        reader.finish()?;
        Ok(message)
    }
}

fn decode_message(reader: &mut Reader) -> Result<PeerMessage, DecodeError> {
    let start = reader.position();
    Ok(match reader.u8("kind")? {
        kind::REPLICA => PeerMessage::Replica {
            group: ConsensusGroup(reader.u16("group")?),
            message: Field::read(reader, "message kind")?,
        },
        kind::WORK => {
            let group = ConsensusGroup(reader.u16("group")?);
            let origin = Field::read(reader, "origin")?;
            let position = reader.position();
            let work = Work::read(reader, "work kind")?;
            // It goes to the shard that hosts the group.
            if work.group() != Some(group) {
                return Err(reader.invalid("work of another group", position, group.0));
            }
            PeerMessage::Work {
                origin,
                group,
                work: work.into(),
            }
        }
        kind::ANSWER => PeerMessage::Answer {
            origin: Field::read(reader, "origin")?,
            answer: Field::read(reader, "answer")?,
        },
        kind::HURRY => PeerMessage::Hurry {
            group: ConsensusGroup(reader.u16("group")?),
            origin: Field::read(reader, "origin")?,
        },
        kind::MOVED => PeerMessage::Moved(Field::read(reader, "moves")?),
        kind::LIVENESS => PeerMessage::Liveness(Field::read(reader, "signs")?),
        kind::TRANSFER => PeerMessage::Transfer {
            group: ConsensusGroup(reader.u16("group")?),
            message: Field::read(reader, "transfer kind")?,
        },
        kind::CONNECTIONS => PeerMessage::Connections(Field::read(reader, "sessions")?),
        kind::COMMITS => PeerMessage::Commits(Field::read(reader, "commits")?),
        kind::COMMIT_OKS => PeerMessage::CommitOks(Field::read(reader, "commit_oks")?),
        kind => return Err(reader.invalid("kind", start, kind)),
    })
}

fields! {
    Origin {
        node: wire::ReplicaId,
        shard: wire::ShardId,
        slot: Slot,
    }
}

impl Field for Slot {
    const SIZE_MIN: usize = 8;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        reader.u64(field).map(Self)
    }

    fn write(&self, writer: &mut Writer) {
        writer.u64(self.0);
    }
}

impl Field for Sign {
    const SIZE_MIN: usize = 1 + 8;

    fn read(reader: &mut Reader, _field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        match reader.u8("sign")? {
            1 => {
                let client = ClientId::read(reader, "client")?;
                Ok(Self::Connected(client, Field::read(reader, "session")?))
            }
            2 => Ok(Self::Disconnected(Field::read(reader, "session")?)),
            3 => Ok(Self::Seen(Field::read(reader, "session")?)),
            kind => Err(reader.invalid("sign", start, kind)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        let session: SessionNumber = match self {
            Self::Connected(client, session) => {
                writer.u8(1);
                client.write(writer);
                *session
            }
            Self::Disconnected(session) => {
                writer.u8(2);
                *session
            }
            Self::Seen(session) => {
                writer.u8(3);
                *session
            }
        };
        session.write(writer);
    }
}
