//! The layout of one field of an operation.

use alloc::{string::String, vec::Vec};

use bytes::Bytes;
use coordinator::{GroupOptions, OptionsUpdate, ResetTo, StartPolicy, Weight};
use wire::{
    ClientId, ConsumerGroupId, DecodeError, Epoch, EvictionReason, Identifier, MemberId, Offset,
    Op, PartitionId, Problem, Reader, SessionNumber, StreamId, Timestamp, TopicId, UserId, Writer,
};

use crate::{FormerLimits, GroupKey, Limits, PasswordHash, SecretHash};

/// A type that operations are made of.
pub(super) trait Field: Sized {
    fn write(&self, writer: &mut Writer);

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError>;
}

macro_rules! number {
    ($($type:ident($read:ident);)*) => {$(
        impl Field for $type {
            fn write(&self, writer: &mut Writer) {
                writer.$read(self.0);
            }

            fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
                reader.$read(name).map(Self)
            }
        }
    )*};
}

number! {
    ClientId(u128);
    ConsumerGroupId(u64);
    Epoch(u64);
    MemberId(u64);
    Offset(u64);
    Op(u64);
    PartitionId(u32);
    SessionNumber(u64);
    StreamId(u64);
    Timestamp(u64);
    TopicId(u64);
    UserId(u64);
    Weight(u16);
}

impl Field for u32 {
    fn write(&self, writer: &mut Writer) {
        writer.u32(*self);
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.u32(name)
    }
}

impl Field for u64 {
    fn write(&self, writer: &mut Writer) {
        writer.u64(*self);
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.u64(name)
    }
}

/// One byte, 0 or 1.
impl Field for bool {
    fn write(&self, writer: &mut Writer) {
        writer.u8(u8::from(*self));
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        let at = reader.clone();
        match reader.u8(name)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(invalid(&at, name, value)),
        }
    }
}

/// A u16 length and as many bytes of UTF-8.
impl Field for String {
    fn write(&self, writer: &mut Writer) {
        writer.text16(self);
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.text16(name)
    }
}

/// As its PHC string.
impl Field for PasswordHash {
    fn write(&self, writer: &mut Writer) {
        self.0.write(writer);
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        Field::read(name, reader).map(Self)
    }
}

/// One byte, 0 or 1; after 1 the value.
impl<T: Field> Field for Option<T> {
    fn write(&self, writer: &mut Writer) {
        self.is_some().write(writer);
        if let Some(value) = self {
            value.write(writer);
        }
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        match bool::read(name, reader)? {
            true => T::read(name, reader).map(Some),
            false => Ok(None),
        }
    }
}

/// 32 bytes as they are.
impl Field for SecretHash {
    fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.0);
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        let bytes: Bytes = reader.bytes(name, 32)?;
        let mut array = [0; 32];
        array.copy_from_slice(&bytes);
        Ok(Self(array))
    }
}

/// One after the other.
impl<A: Field, B: Field> Field for (A, B) {
    fn write(&self, writer: &mut Writer) {
        self.0.write(writer);
        self.1.write(writer);
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        let first = A::read(name, reader)?;
        Ok((first, B::read(name, reader)?))
    }
}

/// What lists are made of.
pub(super) trait Entry: Field {
    /// The bytes that one has at least: a count beyond the bytes that are there is refused before
    /// anything is allocated.
    const SIZE_MIN: usize;
}

macro_rules! entries {
    ($($entry:ty = $size_min:expr;)*) => {$(
        impl Entry for $entry {
            const SIZE_MIN: usize = $size_min;
        }
    )*};
}

entries! {
    (ClientId, SessionNumber) = 16 + 8;
    (MemberId, SessionNumber) = 8 + 8;
    (PartitionId, Epoch) = 4 + 8;
    (PartitionId, ResetTo) = 4 + 1;
    (GroupKey, Op) = 24 + 8;
    (GroupKey, Timestamp) = 24 + 8;
    (GroupKey, Vec<(MemberId, SessionNumber)>) = 24 + 4;
    (GroupKey, Vec<(PartitionId, Epoch)>) = 24 + 4;
}

/// A u32 count and the entries.
impl<T: Entry> Field for Vec<T> {
    fn write(&self, writer: &mut Writer) {
        writer.count(self.len());
        for entry in self {
            entry.write(writer);
        }
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        let count = reader.count(name, T::SIZE_MIN)?;
        (0..count).map(|_| T::read(name, reader)).collect()
    }
}

/// 0 earliest, 1 latest, 2 and the time.
impl Field for StartPolicy {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Earliest => writer.u8(0),
            Self::Latest => writer.u8(1),
            Self::Timestamp(timestamp) => writer.u8(2).u64(timestamp.0),
        };
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        let at = reader.clone();
        match reader.u8(name)? {
            0 => Ok(Self::Earliest),
            1 => Ok(Self::Latest),
            2 => Field::read(name, reader).map(Self::Timestamp),
            kind => Err(invalid(&at, name, kind)),
        }
    }
}

/// 0: nothing; 1 and the offset; 2 and the start.
impl Field for ResetTo {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Nothing => _ = writer.u8(0),
            Self::Offset(offset) => _ = writer.u8(1).u64(offset.0),
            Self::Start(start) => start.write(writer.u8(2)),
        }
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        let at = reader.clone();
        match reader.u8(name)? {
            0 => Ok(Self::Nothing),
            1 => Field::read(name, reader).map(Self::Offset),
            2 => Field::read(name, reader).map(Self::Start),
            kind => Err(invalid(&at, name, kind)),
        }
    }
}

macro_rules! records {
    ($($(#[$doc:meta])* $record:ident { $($field:ident,)* })*) => {$(
        $(#[$doc])*
        impl Field for $record {
            fn write(&self, writer: &mut Writer) {
                $(self.$field.write(writer);)*
            }

            fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
                Ok(Self { $($field: Field::read(name, reader)?,)* })
            }
        }
    )*};
}

records! {
    /// Its three ids.
    GroupKey {
        stream,
        topic,
        group,
    }

    /// Every option.
    GroupOptions {
        rebalance_timeout_ms,
        initial_delay_ms,
        start,
        offset_expiry_ms,
    }

    /// Every option that changes.
    OptionsUpdate {
        rebalance_timeout_ms,
        initial_delay_ms,
        start,
        offset_expiry_ms,
    }

    /// All limits, a u32 each.
    Limits {
        users,
        sessions,
        streams,
        topics_per_stream,
        partitions_per_topic,
        partitions,
        consumer_groups_per_topic,
        members_per_group,
        memberships_per_session,
    }

    /// The same, those that there were.
    FormerLimits {
        users,
        sessions,
        streams,
        topics_per_stream,
        partitions_per_topic,
        partitions,
    }
}

/// Its number, a u32.
impl Field for EvictionReason {
    fn write(&self, writer: &mut Writer) {
        writer.u32(self.code());
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        let at = reader.clone();
        let code = reader.u32(name)?;
        Self::from_code(code).ok_or_else(|| invalid(&at, name, code))
    }
}

/// 1 and the id, or 2 and the name.
impl Field for Identifier {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Number(number) => writer.u8(1).u64(*number),
            Self::Name(text) => writer.u8(2).text16(text),
        };
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        let at = reader.clone();
        match reader.u8(name)? {
            1 => reader.u64(name).map(Self::Number),
            2 => reader.text16(name).map(Self::Name),
            kind => Err(invalid(&at, name, kind)),
        }
    }
}

fn invalid(at: &Reader, name: &'static str, value: impl Into<u64>) -> DecodeError {
    at.error(
        name,
        Problem::Invalid {
            value: value.into(),
        },
    )
}
