//! What a consumer group asks of one partition, and the encoding of it in a prepare.

use wire::{
    DecodeError, Epoch, GroupStart, MemberId, Offset, Problem, Reader, ResetTarget, SessionNumber,
    Timestamp, Writer,
};

use crate::{EpochHolder, Grant};

/// What a consumer group asks of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommand {
    /// Raise the fence to an epoch, unless it is as high already. Never refused for its epoch: the answer
    /// says how high the fence is and whose.
    Fence {
        /// The epoch.
        epoch: Epoch,
        /// Whose it is; `None` when the metadata has nobody for the partition.
        holder: Option<EpochHolder>,
        /// What becomes of the stored offset.
        offset: FenceOffset,
    },
    /// Store an offset.
    Store {
        /// Under which grant.
        grant: Grant,
        /// The last message processed.
        offset: Offset,
    },
    /// Store an offset, and with that hand the partition over.
    Release {
        /// Under which grant.
        grant: Grant,
        /// The last message processed, if there is one.
        offset: Option<Offset>,
        /// The grant that the partition goes to.
        to: Grant,
    },
}

/// What a fence does with the stored offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceOffset {
    /// Nothing.
    Keep,
    /// Resolves where the group starts, if nothing is stored and no start is, and the fence is this one:
    /// raised now, or before for the same holder. A partition younger than its group starts at the
    /// earliest message whatever the group's policy: the proposer sees to that.
    Start(GroupStart),
    /// Sets it, backwards too, if the fence is raised. An offset beyond the end is that of the last
    /// message; in an empty partition nothing is stored, and the group starts at 0. After
    /// [`ResetTarget::Nothing`] a later fence resolves the start.
    Reset(ResetTarget),
}

/// Bytes of a grant: epoch, member, session.
const GRANT_SIZE: usize = 8 + 8 + 8;

/// Bytes of a kind and a number.
const TAGGED_SIZE: usize = 1 + 8;

/// What a fence does with the stored offset, as it stands in the body.
mod offset_kind {
    pub(super) const KEEP: u8 = 0;
    pub(super) const START_EARLIEST: u8 = 1;
    pub(super) const START_LATEST: u8 = 2;
    pub(super) const START_TIMESTAMP: u8 = 3;
    pub(super) const RESET_NOTHING: u8 = 4;
    pub(super) const RESET_EARLIEST: u8 = 5;
    pub(super) const RESET_LATEST: u8 = 6;
    pub(super) const RESET_TIMESTAMP: u8 = 7;
    pub(super) const RESET_OFFSET: u8 = 8;
}

impl GroupCommand {
    pub(crate) const fn encoded_size(&self) -> usize {
        match self {
            Self::Fence { .. } => GRANT_SIZE + TAGGED_SIZE,
            Self::Store { .. } => GRANT_SIZE + 8,
            Self::Release { .. } => GRANT_SIZE + TAGGED_SIZE + GRANT_SIZE,
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Fence {
                epoch,
                holder,
                offset,
            } => {
                let nobody = EpochHolder {
                    member: MemberId(0),
                    session: SessionNumber(0),
                };
                let holder = holder.unwrap_or(nobody);
                let grant = Grant {
                    epoch: *epoch,
                    holder,
                };
                encode_grant(grant, writer);
                let (kind, value) = offset.parts();
                writer.u8(kind).u64(value);
            }
            Self::Store { grant, offset } => {
                encode_grant(*grant, writer);
                writer.u64(offset.0);
            }
            Self::Release { grant, offset, to } => {
                encode_grant(*grant, writer);
                writer.u8(u8::from(offset.is_some()));
                writer.u64(offset.map_or(0, |offset| offset.0));
                encode_grant(*to, writer);
            }
        }
    }

    pub(crate) fn decode_fence(reader: &mut Reader) -> Result<Self, DecodeError> {
        let Grant { epoch, holder } = decode_grant(reader)?;
        let holder = (holder.member != MemberId(0)).then_some(holder);
        let start = reader.clone();
        let kind = reader.u8("offset kind")?;
        let value = reader.u64("offset value")?;
        let Some(offset) = FenceOffset::from_parts(kind, value) else {
            let value = u64::from(kind);
            return Err(start.error("offset kind", Problem::Invalid { value }));
        };
        Ok(Self::Fence {
            epoch,
            holder,
            offset,
        })
    }

    pub(crate) fn decode_store(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self::Store {
            grant: decode_grant(reader)?,
            offset: Offset(reader.u64("offset")?),
        })
    }

    pub(crate) fn decode_release(reader: &mut Reader) -> Result<Self, DecodeError> {
        let grant = decode_grant(reader)?;
        let start = reader.clone();
        let there = reader.bool("whether an offset is there")?;
        let value = reader.u64("offset")?;
        if !there && value != 0 {
            return Err(start.error("offset", Problem::Invalid { value }));
        }
        let offset = there.then_some(Offset(value));
        let to = decode_grant(reader)?;
        Ok(Self::Release { grant, offset, to })
    }
}

impl FenceOffset {
    const fn parts(self) -> (u8, u64) {
        match self {
            Self::Keep => (offset_kind::KEEP, 0),
            Self::Start(GroupStart::Earliest) => (offset_kind::START_EARLIEST, 0),
            Self::Start(GroupStart::Latest) => (offset_kind::START_LATEST, 0),
            Self::Start(GroupStart::Timestamp(time)) => (offset_kind::START_TIMESTAMP, time.0),
            Self::Reset(ResetTarget::Nothing) => (offset_kind::RESET_NOTHING, 0),
            Self::Reset(ResetTarget::Earliest) => (offset_kind::RESET_EARLIEST, 0),
            Self::Reset(ResetTarget::Latest) => (offset_kind::RESET_LATEST, 0),
            Self::Reset(ResetTarget::Timestamp(time)) => (offset_kind::RESET_TIMESTAMP, time.0),
            Self::Reset(ResetTarget::Offset(offset)) => (offset_kind::RESET_OFFSET, offset.0),
        }
    }

    /// `None` when there is no such kind, or one without a number has one.
    fn from_parts(kind: u8, value: u64) -> Option<Self> {
        let time = Timestamp(value);
        let (offset, has_value) = match kind {
            offset_kind::KEEP => (Self::Keep, false),
            offset_kind::START_EARLIEST => (Self::Start(GroupStart::Earliest), false),
            offset_kind::START_LATEST => (Self::Start(GroupStart::Latest), false),
            offset_kind::START_TIMESTAMP => (Self::Start(GroupStart::Timestamp(time)), true),
            offset_kind::RESET_NOTHING => (Self::Reset(ResetTarget::Nothing), false),
            offset_kind::RESET_EARLIEST => (Self::Reset(ResetTarget::Earliest), false),
            offset_kind::RESET_LATEST => (Self::Reset(ResetTarget::Latest), false),
            offset_kind::RESET_TIMESTAMP => (Self::Reset(ResetTarget::Timestamp(time)), true),
            offset_kind::RESET_OFFSET => (Self::Reset(ResetTarget::Offset(Offset(value))), true),
            _ => return None,
        };
        (has_value || value == 0).then_some(offset)
    }
}

fn encode_grant(grant: Grant, writer: &mut Writer) {
    let Grant { epoch, holder } = grant;
    writer
        .u64(epoch.0)
        .u64(holder.member.0)
        .u64(holder.session.0);
}

fn decode_grant(reader: &mut Reader) -> Result<Grant, DecodeError> {
    Ok(Grant {
        epoch: Epoch(reader.u64("epoch")?),
        holder: EpochHolder {
            member: MemberId(reader.u64("member")?),
            session: SessionNumber(reader.u64("session")?),
        },
    })
}
