//! State transfer.

use wire::{
    DecodeError, Field, Incarnation, Offset, Op, PartitionKey, Reader, Writer, fields, kinds,
};

use crate::transfer::{FilePart, SnapshotOffer, TransferFile, TransferMessage};

fields! {
    SnapshotOffer {
        op: Op,
        size: u64,
        checksum: u128,
    }
    FilePart {
        file: TransferFile,
        position: u64,
        length: u64,
    }
}

kinds! {
    TransferFile: "file kind" {
        1 Snapshot(op: Op)
        2 Segment { partition: PartitionKey, incarnation: Incarnation, base: Offset, }
    }
}

impl Field for TransferMessage {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        Ok(match reader.u8(field)? {
            1 => Self::Ask {
                at_least: Field::read(reader, "at_least")?,
            },
            2 => Self::Offer(Field::read(reader, "offer")?),
            3 => Self::AskPart(Field::read(reader, "part")?),
            4 => Self::Part {
                part: Field::read(reader, "part")?,
                checksum: reader.u64("checksum")?,
                bytes: reader.bytes32("bytes")?,
            },
            5 => Self::Gone(Field::read(reader, "part")?),
            kind => return Err(reader.invalid(field, start, kind)),
        })
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Ask { at_least } => {
                writer.u8(1);
                at_least.write(writer);
            }
            Self::Offer(offer) => {
                writer.u8(2);
                offer.write(writer);
            }
            Self::AskPart(part) => {
                writer.u8(3);
                part.write(writer);
            }
            Self::Part {
                part,
                checksum,
                bytes,
            } => {
                writer.u8(4);
                part.write(writer);
                writer.u64(*checksum).count(bytes.len());
                writer.shared(bytes.clone());
            }
            Self::Gone(part) => {
                writer.u8(5);
                part.write(writer);
            }
        }
    }
}
