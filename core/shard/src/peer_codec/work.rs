//! The bytes of work that is passed on.

use alloc::{string::String, vec::Vec};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use catalog::GroupKey;
use partition::DataRequest;
use wire::{
    ClientId, Command, ConsensusGroup, DecodeError, Epoch, Field, Incarnation, Offset, Op,
    PartitionKey, Password, PollStrategy, Reader, Request, RequestNumber, SessionNumber,
    SessionSecret, UserId, Writer, fields, kinds,
};

use crate::{
    Binding, PartitionAddress,
    work::{
        AttachWork, Caller, CatalogWork, GroupReader, GroupWrite, GroupWriteSection, LoginWork,
        OffsetsOf, PollSectionWork, PollWork, Reader as Who, Work,
    },
};

fields! {
    Binding {
        client: ClientId,
        session: SessionNumber,
        user: UserId,
    }
    Caller {
        binding: Binding,
        request: RequestNumber,
    }
    LoginWork {
        client: ClientId,
        name: String,
        password: Password,
    }
    AttachWork {
        client: ClientId,
        session: SessionNumber,
        secret: SessionSecret,
    }
    PartitionAddress {
        key: PartitionKey,
        incarnation: Incarnation,
        group: ConsensusGroup,
    }
    GroupReader {
        key: GroupKey,
        client: ClientId,
        session: SessionNumber,
    }
    GroupWrite {
        group: ConsensusGroup,
        admitted: Op,
        reader: GroupReader,
        sections: Vec<GroupWriteSection>,
    }
    GroupWriteSection {
        index: u16,
        address: PartitionAddress,
        epoch: Epoch,
        offset: Option<Offset>,
        planned: Option<Epoch>,
    }
    PollWork {
        admitted: Op,
        reader: Who,
        max_messages: u32,
        max_bytes: u32,
        min_bytes: u32,
        deadline: u64,
        commit_on_poll: bool,
        sections: Vec<PollSectionWork>,
    }
    PollSectionWork {
        index: u16,
        address: PartitionAddress,
        epoch: Epoch,
        strategy: PollStrategy,
    }
}

kinds! {
    OffsetsOf: "consumer kind" {
        1 Single(name: String)
        2 Group(key: GroupKey)
    }
    Who: "reader kind" {
        1 Single(name: String)
        2 Group(reader: GroupReader)
    }
}

/// The request as a command's code and the length of its body before the body.
impl Field for CatalogWork {
    const SIZE_MIN: usize = Caller::SIZE_MIN + 1 + 4 + 4;

    fn read(reader: &mut Reader, _field: &'static str) -> Result<Self, DecodeError> {
        let caller = Caller::read(reader, "caller")?;
        let peer = read_address(reader)?;
        let start = reader.position();
        let code = reader.u32("command")?;
        let Some(command) = Command::from_code(code) else {
            return Err(reader.invalid("command", start, code));
        };
        let body = reader.bytes32("request")?;
        let start = reader.position() - body.len();
        let request = Request::decode(command, body).map_err(|error| DecodeError {
            position: start + error.position,
            ..error
        })?;
        Ok(Self {
            caller,
            peer,
            request,
        })
    }

    fn write(&self, writer: &mut Writer) {
        self.caller.write(writer);
        write_address(&self.peer, writer);
        writer
            .u32(self.request.command().code())
            .bytes32(&self.request.encode());
    }
}

fn read_address(reader: &mut Reader) -> Result<SocketAddr, DecodeError> {
    let start = reader.position();
    match reader.u8("address kind")? {
        4 => {
            let ip = Ipv4Addr::from_bits(reader.u32("address")?.swap_bytes());
            Ok(SocketAddr::new(IpAddr::V4(ip), reader.u16("port")?))
        }
        6 => {
            let ip = Ipv6Addr::from_bits(reader.u128("address")?.swap_bytes());
            let port = reader.u16("port")?;
            let (flow, scope) = (reader.u32("flow")?, reader.u32("scope")?);
            Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope)))
        }
        kind => Err(reader.invalid("address kind", start, kind)),
    }
}

/// The bytes of the address itself are in their usual order.
fn write_address(address: &SocketAddr, writer: &mut Writer) {
    match address {
        SocketAddr::V4(address) => writer
            .u8(4)
            .bytes(&address.ip().octets())
            .u16(address.port()),
        SocketAddr::V6(address) => writer
            .u8(6)
            .bytes(&address.ip().octets())
            .u16(address.port())
            .u32(address.flowinfo())
            .u32(address.scope_id()),
    };
}

/// The kinds of work, as they stand in the bytes.
mod kind {
    pub(super) const LOGIN: u8 = 1;
    pub(super) const ATTACH: u8 = 2;
    pub(super) const CATALOG: u8 = 3;
    pub(super) const WRITE: u8 = 4;
    pub(super) const POLL: u8 = 5;
    pub(super) const GROUP_WRITE: u8 = 6;
    pub(super) const OFFSETS: u8 = 7;
}

impl Work {
    pub(super) fn write(&self, writer: &mut Writer) {
        match self {
            Self::Login(work) => {
                writer.u8(kind::LOGIN);
                work.write(writer);
            }
            Self::Attach(work) => {
                writer.u8(kind::ATTACH);
                work.write(writer);
            }
            Self::Catalog(work) => {
                writer.u8(kind::CATALOG);
                work.write(writer);
            }
            Self::Write {
                group,
                admitted,
                requests,
            } => {
                writer.u8(kind::WRITE).u16(group.0).u64(admitted.0);
                requests.write(writer);
            }
            Self::Poll(work) => {
                writer.u8(kind::POLL);
                work.write(writer);
            }
            Self::GroupWrite(work) => {
                writer.u8(kind::GROUP_WRITE);
                work.write(writer);
            }
            Self::Offsets {
                group,
                admitted,
                consumer,
                partitions,
            } => {
                writer.u8(kind::OFFSETS).u16(group.0).u64(admitted.0);
                consumer.write(writer);
                partitions.write(writer);
            }
            Self::Groups | Self::Counters | Self::Verify(_) | Self::Replicas { .. } => {
                unreachable!("every shard does it itself")
            }
        }
    }

    pub(super) fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let start = reader.position();
        Ok(match reader.u8(field)? {
            kind::LOGIN => Self::Login(Field::read(reader, "login")?),
            kind::ATTACH => Self::Attach(Field::read(reader, "attach")?),
            kind::CATALOG => Self::Catalog(Field::read(reader, "catalog")?),
            kind::WRITE => Self::Write {
                group: Field::read(reader, "group")?,
                admitted: Field::read(reader, "admitted")?,
                requests: <Vec<(u16, DataRequest)> as Field>::read(reader, "requests")?,
            },
            kind::POLL => Self::Poll(Field::read(reader, "poll")?),
            kind::GROUP_WRITE => Self::GroupWrite(Field::read(reader, "group write")?),
            kind::OFFSETS => Self::Offsets {
                group: Field::read(reader, "group")?,
                admitted: Field::read(reader, "admitted")?,
                consumer: Field::read(reader, "consumer")?,
                partitions: Field::read(reader, "partitions")?,
            },
            kind => return Err(reader.invalid(field, start, kind)),
        })
    }
}
