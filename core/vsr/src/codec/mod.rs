//! The bytes of what replicas say to each other, as `PEERS.md` beside the crate `wire` describes them.
//!
//! A header of a prepare must match its own checksum; whatever else a message claims is judged by the
//! replica that takes it, bodies of prepares included.

use alloc::vec::Vec;

use bytes::Bytes;
use wire::{
    DecodeError, Field, Op, PREPARE_HEADER_SIZE, PrepareHeader, Reader, ReplicaId, View, Writer,
    fields,
};

use crate::{
    ChainPoint, Commit, CommitOk, DoViewChange, Gone, Message, Prepare, PrepareMessage, PrepareOk,
    Rejoin, RequestPrepare, RequestStartView, RequestedPrepare, StartView, StartViewChange,
    SuffixReport, ViewProbe, ViewProbeOk,
};

macro_rules! messages {
    ($($kind:literal $name:ident($body:ty),)*) => {
        impl Message {
            /// The kinds of messages, as they stand in the bytes, with their names.
            pub const KINDS: &'static [(u8, &'static str)] = &[$(($kind, stringify!($name)),)*];

            /// The message's kind.
            #[must_use]
            pub const fn kind(&self) -> u8 {
                match self {
                    $(Self::$name(_) => $kind,)*
                }
            }
        }

        /// A u8 kind and the message.
        impl Field for Message {
            const SIZE_MIN: usize = 1;

            fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
                let start = reader.position();
                match reader.u8(field)? {
                    $($kind => <$body as Field>::read(reader, field).map(Self::$name),)*
                    kind => Err(reader.invalid(field, start, kind)),
                }
            }

            fn write(&self, writer: &mut Writer) {
                writer.u8(self.kind());
                match self {
                    $(Self::$name(message) => message.write(writer),)*
                }
            }
        }
    };
}

messages! {
    1 Prepare(PrepareMessage),
    2 PrepareOk(PrepareOk),
    3 Commit(Commit),
    4 CommitOk(CommitOk),
    5 RequestPrepare(RequestPrepare),
    6 RequestedPrepare(RequestedPrepare),
    7 StartViewChange(StartViewChange),
    8 DoViewChange(DoViewChange),
    9 StartView(StartView),
    10 RequestStartView(RequestStartView),
    11 ViewProbe(ViewProbe),
    12 ViewProbeOk(ViewProbeOk),
    13 Gone(Gone),
    14 Rejoin(Rejoin),
}

fields! {
    ChainPoint {
        op: Op,
        checksum: u128,
    }
    PrepareMessage {
        replica: ReplicaId,
        view: View,
        commit: ChainPoint,
        prepare: Prepare,
    }
    PrepareOk {
        replica: ReplicaId,
        view: View,
        op: Op,
        checksum: u128,
        checkpoint: Op,
    }
    Commit {
        replica: ReplicaId,
        view: View,
        op: Op,
        commit: ChainPoint,
        checkpoint_quorum: Op,
    }
    CommitOk {
        replica: ReplicaId,
        view: View,
        commit_min: Op,
        checkpoint: Op,
        is_willing: bool,
    }
    RequestPrepare {
        replica: ReplicaId,
        view: View,
        op: Op,
        checksum: Option<u128>,
    }
    RequestedPrepare {
        replica: ReplicaId,
        view: View,
        is_committed: bool,
        prepare: Prepare,
    }
    StartViewChange {
        replica: ReplicaId,
        view: View,
        promised: View,
    }
    DoViewChange {
        replica: ReplicaId,
        view: View,
        log_view: View,
        op: Op,
        commit: ChainPoint,
        checkpoint: Op,
        suffix: Vec<SuffixReport>,
    }
    StartView {
        replica: ReplicaId,
        view: View,
        op: Op,
        commit: ChainPoint,
        checkpoint_quorum: Op,
        suffix: Vec<PrepareHeader>,
        nonce: Option<u128>,
    }
    RequestStartView {
        replica: ReplicaId,
        view: View,
        nonce: u128,
    }
    ViewProbe {
        replica: ReplicaId,
        view: View,
        round: u64,
    }
    ViewProbeOk {
        replica: ReplicaId,
        view: View,
        round: u64,
    }
    Gone {
        replica: ReplicaId,
        view: View,
        op: Op,
        checkpoint: Op,
    }
    Rejoin {
        replica: ReplicaId,
        view: View,
        heard_view: View,
        heard_commit: Op,
        nonce: u128,
    }
}

/// The header, which tells the size of the body, and the body.
impl Field for Prepare {
    const SIZE_MIN: usize = PREPARE_HEADER_SIZE;

    fn read(reader: &mut Reader, _field: &'static str) -> Result<Self, DecodeError> {
        let header = <PrepareHeader as Field>::read(reader, "prepare header")?;
        let body = reader.bytes("prepare body", header.size as usize - PREPARE_HEADER_SIZE)?;
        Ok(Self { header, body })
    }

    fn write(&self, writer: &mut Writer) {
        assert!(self.header.size as usize == PREPARE_HEADER_SIZE + self.body.len());
        Field::write(&self.header, writer);
        writer.shared(self.body.clone());
    }
}

/// A header that is there is that of the op.
impl Field for SuffixReport {
    const SIZE_MIN: usize = 8 + 1 + 1 + 1;

    fn read(reader: &mut Reader, _field: &'static str) -> Result<Self, DecodeError> {
        let op = Op(reader.u64("suffix op")?);
        let start = reader.position();
        let header = <Option<PrepareHeader> as Field>::read(reader, "suffix header")?;
        if let Some(header) = header.filter(|header| header.op() != op) {
            return Err(reader.invalid("suffix header", start, header.op));
        }
        Ok(Self {
            op,
            header,
            nack: reader.bool("suffix nack")?,
            present: reader.bool("suffix present")?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.u64(self.op.0);
        self.header.write(writer);
        writer.u8(u8::from(self.nack)).u8(u8::from(self.present));
    }
}

impl Message {
    /// Reads a message that fills `bytes`. Bodies of prepares are slices of it.
    ///
    /// # Errors
    /// Names the first field that is wrong.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = <Self as Field>::read(&mut reader, "message kind")?;
        reader.finish()?;
        Ok(message)
    }

    /// The message in pieces: the body of a large prepare is not copied.
    #[must_use]
    pub fn encode(&self) -> Vec<Bytes> {
        let mut writer = Writer::new();
        self.write(&mut writer);
        writer.into_parts()
    }
}

#[cfg(test)]
mod tests;
