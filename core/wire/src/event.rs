//! Events: what a node tells a client unasked.

use alloc::string::String;

use bytes::Bytes;

use crate::{
    ClientId, ConsensusGroup, ConsumerGroupId, DecodeError, FrameHeader, Generation, MemberId,
    Problem, ReplicaId, SessionNumber, StreamId, TopicId, View, Writer,
    field::{self, Field, body},
};

/// The code of an event, in the header of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum EventCode {
    /// A consumer group's assignment changed for the session's member.
    AssignmentChanged = 900,
    /// The session has ended.
    Evicted = 901,
    /// The node is shutting down.
    ServerStopping = 902,
    /// A consensus group has another primary.
    PrimaryChanged = 903,
    /// The session is not a member of a consumer group any more.
    MembershipEnded = 904,
}

impl EventCode {
    /// Every event code, in the order of the numbers.
    pub const ALL: &'static [Self] = &[
        Self::AssignmentChanged,
        Self::Evicted,
        Self::ServerStopping,
        Self::PrimaryChanged,
        Self::MembershipEnded,
    ];

    /// The number.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The event with this number, if there is one.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|event| event.code() == code)
    }

    /// The name, as PROTOCOL.md spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AssignmentChanged => "AssignmentChanged",
            Self::Evicted => "Evicted",
            Self::ServerStopping => "ServerStopping",
            Self::PrimaryChanged => "PrimaryChanged",
            Self::MembershipEnded => "MembershipEnded",
        }
    }
}

/// Why a session ended: the reason in the header of an [`Event::Evicted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum EvictionReason {
    /// No frame came from it for the session timeout.
    Expired = 1,
    /// Its last connection was lost, and no other attached in time.
    Disconnected = 2,
    /// It logged out, on another connection.
    LoggedOut = 3,
    /// The same client logged in again.
    Replaced = 4,
    /// The table of sessions was full, and it was the one used least recently.
    TableFull = 5,
    /// Its user was removed or deactivated, or the user's password or permissions changed.
    UserChanged = 6,
    /// An administrator ended it.
    Removed = 7,
}

impl EvictionReason {
    /// Every reason, in the order of the numbers.
    pub const ALL: &'static [Self] = &[
        Self::Expired,
        Self::Disconnected,
        Self::LoggedOut,
        Self::Replaced,
        Self::TableFull,
        Self::UserChanged,
        Self::Removed,
    ];

    /// The number.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The reason with this number, if there is one.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.code() == code)
    }

    /// The name, as PROTOCOL.md spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "Expired",
            Self::Disconnected => "Disconnected",
            Self::LoggedOut => "LoggedOut",
            Self::Replaced => "Replaced",
            Self::TableFull => "TableFull",
            Self::UserChanged => "UserChanged",
            Self::Removed => "Removed",
        }
    }
}

/// Why a membership ended while its session lives: the reason in the header of an
/// [`Event::MembershipEnded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum MembershipEndReason {
    /// Another session has joined with the same instance id; the body names it.
    FencedInstanceId = 1,
    /// An administrator removed the member.
    Removed = 2,
    /// The consumer group, its topic or its stream was deleted.
    GroupDeleted = 3,
}

impl MembershipEndReason {
    /// Every reason, in the order of the numbers.
    pub const ALL: &'static [Self] = &[Self::FencedInstanceId, Self::Removed, Self::GroupDeleted];

    /// The number.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The reason with this number, if there is one.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.code() == code)
    }

    /// The name, as PROTOCOL.md spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FencedInstanceId => "FencedInstanceId",
            Self::Removed => "Removed",
            Self::GroupDeleted => "GroupDeleted",
        }
    }
}

body! {
    /// A consumer group's assignment changed for the session's member: it should sync.
    AssignmentChanged {
        /// The stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The consumer group.
        group: ConsumerGroupId,
        /// The group's generation now.
        generation: Generation,
    }

    /// The node is shutting down: what is in flight is still answered, new requests are refused.
    ServerStopping {
        /// How long until it closes the connections, milliseconds.
        time_left_ms: u32,
    }

    /// A consensus group has another primary.
    PrimaryChanged {
        /// The consensus group.
        group: ConsensusGroup,
        /// Its view.
        view: View,
        /// The primary of that view.
        primary: ReplicaId,
    }

    /// The session is not a member of a consumer group any more, and has not left it itself.
    MembershipEnded {
        /// The stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The consumer group.
        group: ConsumerGroupId,
        /// The member that the session was.
        member: MemberId,
        /// Who has taken the membership over, where somebody has.
        by: Option<ClientId>,
        /// From where they joined, for people; absent when that is not known.
        address: Option<String>,
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A consumer group's assignment changed.
    AssignmentChanged(AssignmentChanged),
    /// The session has ended; memberships are gone. The connection stays, without a session.
    Evicted(EvictionReason),
    /// The node is shutting down.
    ServerStopping(ServerStopping),
    /// A consensus group has another primary.
    PrimaryChanged(PrimaryChanged),
    /// The session is not a member of a consumer group any more; all that it does there is refused.
    MembershipEnded(MembershipEndReason, MembershipEnded),
}

impl Event {
    /// The code.
    #[must_use]
    pub const fn code(&self) -> EventCode {
        match self {
            Self::AssignmentChanged(_) => EventCode::AssignmentChanged,
            Self::Evicted(_) => EventCode::Evicted,
            Self::ServerStopping(_) => EventCode::ServerStopping,
            Self::PrimaryChanged(_) => EventCode::PrimaryChanged,
            Self::MembershipEnded(..) => EventCode::MembershipEnded,
        }
    }

    /// The reason in the header; 0 where the event has none.
    #[must_use]
    pub const fn reason(&self) -> u32 {
        match self {
            Self::Evicted(reason) => reason.code(),
            Self::MembershipEnded(reason, _) => reason.code(),
            Self::AssignmentChanged(_) | Self::ServerStopping(_) | Self::PrimaryChanged(_) => 0,
        }
    }

    /// The header for a client with this session; 0 when it has none.
    #[must_use]
    pub fn header(&self, session: SessionNumber) -> FrameHeader {
        FrameHeader::event(self.code().code(), self.reason(), session)
    }

    /// The body.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::new();
        match self {
            Self::AssignmentChanged(body) => body.write(&mut writer),
            Self::Evicted(_) => {}
            Self::ServerStopping(body) => body.write(&mut writer),
            Self::PrimaryChanged(body) => body.write(&mut writer),
            Self::MembershipEnded(_, body) => body.write(&mut writer),
        }
        writer.into_bytes()
    }

    /// Reads an event; `None` when its code or reason is of a later version: clients pass over it.
    ///
    /// # Errors
    /// Names the first field that is wrong.
    pub fn decode(header: &FrameHeader, body: Bytes) -> Result<Option<Self>, DecodeError> {
        let Some(code) = EventCode::from_code(header.code) else {
            return Ok(None);
        };
        let event = match code {
            EventCode::AssignmentChanged => Self::AssignmentChanged(field::decode(body)?),
            EventCode::Evicted => {
                crate::Reader::new(body).finish()?;
                let Some(reason) = EvictionReason::from_code(header.status) else {
                    return Ok(None);
                };
                return Ok(Some(Self::Evicted(reason)));
            }
            EventCode::ServerStopping => Self::ServerStopping(field::decode(body)?),
            EventCode::PrimaryChanged => Self::PrimaryChanged(field::decode(body)?),
            EventCode::MembershipEnded => {
                let body = field::decode(body)?;
                let reason = MembershipEndReason::from_code(header.status);
                return Ok(reason.map(|reason| Self::MembershipEnded(reason, body)));
            }
        };
        if header.status == 0 {
            Ok(Some(event))
        } else {
            Err(DecodeError {
                field: "reason",
                position: 0,
                problem: Problem::Invalid {
                    value: u64::from(header.status),
                },
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Bytes, ClientId, ConsumerGroupId, Event, EventCode, EvictionReason, FrameHeader, MemberId,
        MembershipEndReason, MembershipEnded, ServerStopping, SessionNumber, StreamId, TopicId,
    };

    #[test]
    fn codes_and_reasons_lead_back_to_themselves() {
        for code in EventCode::ALL {
            assert_eq!(EventCode::from_code(code.code()), Some(*code));
        }
        for reason in EvictionReason::ALL {
            assert_eq!(EvictionReason::from_code(reason.code()), Some(*reason));
        }
        for reason in MembershipEndReason::ALL {
            assert_eq!(MembershipEndReason::from_code(reason.code()), Some(*reason));
        }
        assert_eq!(MembershipEndReason::from_code(0), None);
        assert_eq!(EventCode::from_code(905), None);
        assert_eq!(EvictionReason::from_code(0), None);
    }

    #[test]
    fn events_and_reasons_of_a_later_version_are_passed_over() {
        let header = FrameHeader::event(905, 0, SessionNumber(1));
        assert_eq!(Event::decode(&header, Bytes::from_static(b"new")), Ok(None));
        let header = FrameHeader::event(901, 99, SessionNumber(1));
        assert_eq!(Event::decode(&header, Bytes::new()), Ok(None));
    }

    #[test]
    fn end_of_a_membership_has_a_reason() {
        let ended = MembershipEnded {
            stream: StreamId(1),
            topic: TopicId(2),
            group: ConsumerGroupId(3),
            member: MemberId(4),
            by: Some(ClientId(5)),
            address: None,
        };
        let event = Event::MembershipEnded(MembershipEndReason::Removed, ended);
        let mut header = event.header(SessionNumber(7));
        assert_eq!(header.status, 2);
        let body = event.encode();
        assert_eq!(Event::decode(&header, body.clone()), Ok(Some(event)));
        header.status = 99;
        assert_eq!(Event::decode(&header, body), Ok(None));
        assert!(Event::decode(&header, Bytes::new()).is_err());
    }

    #[test]
    fn reason_comes_only_with_an_eviction() {
        let evicted = Event::Evicted(EvictionReason::Expired);
        assert_eq!(evicted.reason(), 1);
        let stopping = Event::ServerStopping(ServerStopping { time_left_ms: 5 });
        assert_eq!(stopping.reason(), 0);
        let mut header = stopping.header(SessionNumber(0));
        header.status = 1;
        assert_eq!(
            Event::decode(&header, stopping.encode()).unwrap_err().field,
            "reason"
        );
    }
}
