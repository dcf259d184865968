//! The layout of one field of an operation.

use alloc::{string::String, vec::Vec};

use bytes::Bytes;
use wire::{
    ClientId, DecodeError, EvictionReason, Identifier, Op, Problem, Reader, SessionNumber, UserId,
    Writer,
};

use crate::{Limits, PasswordHash, SecretHash};

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
    Op(u64);
    SessionNumber(u64);
    UserId(u64);
}

impl Field for u32 {
    fn write(&self, writer: &mut Writer) {
        writer.u32(*self);
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.u32(name)
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

/// A u32 count and the pairs.
impl Field for Vec<(ClientId, SessionNumber)> {
    fn write(&self, writer: &mut Writer) {
        writer.count(self.len());
        for (client, session) in self {
            client.write(writer);
            session.write(writer);
        }
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        let count = reader.count(name, 16 + 8)?;
        (0..count)
            .map(|_| {
                let client = ClientId::read(name, reader)?;
                Ok((client, SessionNumber::read(name, reader)?))
            })
            .collect()
    }
}

/// All limits, a u32 each, in the order of the struct.
impl Field for Limits {
    fn write(&self, writer: &mut Writer) {
        for (_, value) in self.all() {
            writer.u32(value);
        }
    }

    fn read(name: &'static str, reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            users: reader.u32(name)?,
            sessions: reader.u32(name)?,
            streams: reader.u32(name)?,
            topics_per_stream: reader.u32(name)?,
            partitions_per_topic: reader.u32(name)?,
            partitions: reader.u32(name)?,
        })
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
