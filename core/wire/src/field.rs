//! How each type of a body's fields is laid out; bodies are put together from these.

use alloc::{boxed::Box, string::String, vec::Vec};

use bytes::Bytes;

use crate::{
    Batch, ClientId, ClusterId, ConsensusGroup, ConsumerGroupId, DecodeError, Epoch, ErrorCode,
    Generation, Incarnation, MemberId, Offset, Op, PartitionId, PartitionKey, PrepareHeader,
    Problem, Reader, ReplicaId, RequestNumber, SessionNumber, ShardId, StreamId, Timestamp,
    TopicId, UserId, View, Writer, prepare::PREPARE_HEADER_SIZE,
};

/// A type that a body can have as a field.
pub trait Field: Sized {
    /// The fewest bytes that a value takes, so that counts can be checked before anything is allocated.
    const SIZE_MIN: usize;

    /// Reads a value; errors name it `field`.
    ///
    /// # Errors
    /// Names the first field that is wrong.
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError>;

    /// Writes a value.
    fn write(&self, writer: &mut Writer);
}

/// How many times larger than on the wire an item of a list may be in memory.
const GROWTH_MAX: usize = 16;

macro_rules! integers {
    ($($ty:ident)*) => {$(
        impl Field for $ty {
            const SIZE_MIN: usize = size_of::<Self>();

            fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
                reader.$ty(field)
            }

            fn write(&self, writer: &mut Writer) {
                writer.$ty(*self);
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 u128 }

macro_rules! newtypes {
    ($($name:ident($inner:ty))*) => {$(
        impl Field for $name {
            const SIZE_MIN: usize = size_of::<$inner>();

            fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
                Ok(Self(Field::read(reader, field)?))
            }

            fn write(&self, writer: &mut Writer) {
                self.0.write(writer);
            }
        }
    )*};
}

newtypes! {
    ClientId(u128) ClusterId(u128) ConsensusGroup(u16) ConsumerGroupId(u64) Epoch(u64)
    Generation(u64) Incarnation(u64) MemberId(u64) Offset(u64) Op(u64) PartitionId(u32) ReplicaId(u8)
    RequestNumber(u64) SessionNumber(u64) ShardId(u16) StreamId(u64) Timestamp(u64) TopicId(u64)
    UserId(u64) View(u32)
}

impl Field for bool {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        reader.bool(field)
    }

    fn write(&self, writer: &mut Writer) {
        writer.u8(u8::from(*self));
    }
}

/// A u8 length and UTF-8.
impl Field for String {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        reader.text8(field)
    }

    fn write(&self, writer: &mut Writer) {
        writer.text8(self);
    }
}

/// 0, or 1 and the value.
impl<T: Field> Field for Option<T> {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        if reader.present(field)? {
            Ok(Some(T::read(reader, field)?))
        } else {
            Ok(None)
        }
    }

    fn write(&self, writer: &mut Writer) {
        self.is_some().write(writer);
        if let Some(value) = self {
            value.write(writer);
        }
    }
}

/// u32: 0 and the value, or an error code. A code that this version does not know becomes `Internal`.
impl<T: Field> Field for Result<T, ErrorCode> {
    const SIZE_MIN: usize = 4;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        match reader.u32(field)? {
            0 => Ok(Ok(T::read(reader, field)?)),
            code => Ok(Err(
                ErrorCode::from_code(code).unwrap_or(ErrorCode::Internal)
            )),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Ok(value) => {
                writer.u32(0);
                value.write(writer);
            }
            Err(code) => {
                writer.u32(code.code());
            }
        }
    }
}

/// No bytes.
impl Field for () {
    const SIZE_MIN: usize = 0;

    fn read(_reader: &mut Reader, _field: &'static str) -> Result<Self, DecodeError> {
        Ok(())
    }

    fn write(&self, _writer: &mut Writer) {}
}

/// One after the other.
impl<A: Field, B: Field> Field for (A, B) {
    const SIZE_MIN: usize = A::SIZE_MIN + B::SIZE_MIN;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        Ok((A::read(reader, field)?, B::read(reader, field)?))
    }

    fn write(&self, writer: &mut Writer) {
        self.0.write(writer);
        self.1.write(writer);
    }
}

/// One after the other.
impl<A: Field, B: Field, C: Field> Field for (A, B, C) {
    const SIZE_MIN: usize = A::SIZE_MIN + B::SIZE_MIN + C::SIZE_MIN;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        Ok((
            A::read(reader, field)?,
            B::read(reader, field)?,
            C::read(reader, field)?,
        ))
    }

    fn write(&self, writer: &mut Writer) {
        self.0.write(writer);
        self.1.write(writer);
        self.2.write(writer);
    }
}

/// As it lies in memory. One that does not match its own checksum is refused.
impl Field for PrepareHeader {
    const SIZE_MIN: usize = PREPARE_HEADER_SIZE;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let position = reader.position();
        let header = Self::read(&reader.bytes(field, PREPARE_HEADER_SIZE)?)?;
        if header.is_valid() {
            Ok(header)
        } else {
            Err(DecodeError {
                field,
                position,
                problem: Problem::Checksum,
            })
        }
    }

    fn write(&self, writer: &mut Writer) {
        writer.bytes(self.as_bytes());
    }
}

/// A u32 count and the items.
impl<T: Field> Field for Vec<T> {
    const SIZE_MIN: usize = 4;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        // A count that the bytes back may still size a large allocation if items grow a lot.
        const { assert!(size_of::<T>() <= GROWTH_MAX * T::SIZE_MIN) };
        let count = reader.count(field, T::SIZE_MIN)?;
        let mut items = Self::with_capacity(count);
        for _ in 0..count {
            items.push(T::read(reader, field)?);
        }
        Ok(items)
    }

    fn write(&self, writer: &mut Writer) {
        writer.count(self.len());
        for item in self {
            item.write(writer);
        }
    }
}

/// A batch that no broker has stamped. Its own header tells its size.
impl Field for Batch {
    const SIZE_MIN: usize = crate::BATCH_HEADER_SIZE;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        reader.batch(field)
    }

    fn write(&self, writer: &mut Writer) {
        writer
            .bytes(self.header.as_bytes())
            .shared(self.body.clone());
    }
}

/// Lays structs out: their fields, with their types, in the order of the wire.
#[macro_export]
macro_rules! fields {
    ($($name:ty { $($field:ident: $ty:ty,)* })*) => {$(
        impl $crate::Field for $name {
            const SIZE_MIN: usize = 0 $(+ <$ty as $crate::Field>::SIZE_MIN)*;

            fn read(
                reader: &mut $crate::Reader,
                _field: &'static str,
            ) -> Result<Self, $crate::DecodeError> {
                Ok(Self {
                    $($field: <$ty as $crate::Field>::read(reader, stringify!($field))?,)*
                })
            }

            fn write(&self, writer: &mut $crate::Writer) {
                $($crate::Field::write(&self.$field, writer);)*
            }
        }
    )*};
}

/// Lays enums out: a u8 kind, which errors name by the enum's text, and the kind's fields, with their types,
/// in the order of the wire. The one field of a tuple is given a name.
#[macro_export]
macro_rules! kinds {
    ($($enum:ty: $field:literal {
        $($kind:literal $name:ident
            $({ $($of:ident: $ty:ty,)* })?
            $(($only:ident: $only_ty:ty))?
        )*
    })*) => {$(
        impl $crate::Field for $enum {
            const SIZE_MIN: usize = 1;

            fn read(
                reader: &mut $crate::Reader,
                _field: &'static str,
            ) -> Result<Self, $crate::DecodeError> {
                let start = reader.position();
                match reader.u8($field)? {
                    $($kind => Ok(Self::$name {
                        $($($of: <$ty as $crate::Field>::read(reader, stringify!($of))?,)*)?
                        $(0: <$only_ty as $crate::Field>::read(reader, stringify!($only))?,)?
                    }),)*
                    kind => Err(reader.invalid($field, start, kind)),
                }
            }

            fn write(&self, writer: &mut $crate::Writer) {
                match self {
                    $(Self::$name { $($($of,)*)? $(0: $only,)? } => {
                        writer.u8($kind);
                        $($($crate::Field::write($of, writer);)*)?
                        $($crate::Field::write($only, writer);)?
                    })*
                }
            }
        }
    )*};
}

fields! {
    PartitionKey {
        stream: StreamId,
        topic: TopicId,
        partition: PartitionId,
    }
}

/// Declares what is one of several: a u8 each.
macro_rules! states {
    ($($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $number:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$value_doc])* $value = $number,)*
        }

        impl $crate::Field for $name {
            const SIZE_MIN: usize = 1;

            fn read(reader: &mut $crate::Reader, field: &'static str) -> Result<Self, $crate::DecodeError> {
                let start = reader.position();
                match reader.u8(field)? {
                    $($number => Ok(Self::$value),)*
                    value => Err(reader.invalid(field, start, value)),
                }
            }

            fn write(&self, writer: &mut $crate::Writer) {
                writer.u8(*self as u8);
            }
        }
    )*};
}

/// Declares a body or a part of one: its fields in the order of the wire.
macro_rules! body {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        $crate::fields! { $name { $($field: $ty,)* } }
    )*};
}

pub(crate) use {body, states};

/// Its value.
impl<T: Field> Field for Box<T> {
    const SIZE_MIN: usize = T::SIZE_MIN;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        T::read(reader, field).map(Self::new)
    }

    fn write(&self, writer: &mut Writer) {
        T::write(self, writer);
    }
}

/// Reads a whole body: bytes behind its last field are refused.
pub(crate) fn decode<T: Field>(body: Bytes) -> Result<T, DecodeError> {
    let mut reader = Reader::new(body);
    let value = T::read(&mut reader, "body")?;
    reader.finish()?;
    Ok(value)
}
