//! How much a node takes from a connection: defaults, and the most that a configuration may ask for.
//! The limits of the catalog are the catalog's.

/// A limit that an operator may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name, as PROTOCOL.md spells it.
    pub name: &'static str,
    /// What holds when nothing is configured.
    pub default: u64,
    /// The least that may be configured.
    pub minimum: u64,
    /// The most that may be configured.
    pub maximum: u64,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

impl Limit {
    /// Bytes of a frame of a client, header included: the largest batch that is taken, and what is around it.
    pub const FRAME_SIZE: Self = Self {
        name: "frame_size",
        default: crate::BATCH_SIZE_MAX as u64 + 64 * KIB,
        minimum: 128 * KIB,
        maximum: crate::BATCH_SIZE_MAX as u64 + 64 * KIB,
    };

    /// Connections of one shard of a node.
    pub const CONNECTIONS: Self = Self {
        name: "connections",
        default: 10_000,
        minimum: 1,
        maximum: 1_000_000,
    };

    /// Requests of one connection that are not answered.
    pub const REQUESTS_IN_FLIGHT: Self = Self {
        name: "requests_in_flight",
        default: 1_024,
        minimum: 1,
        maximum: 65_536,
    };

    /// Bytes of the requests of one connection that are not answered.
    pub const BYTES_IN_FLIGHT: Self = Self {
        name: "bytes_in_flight",
        default: 16 * MIB,
        minimum: 64 * KIB,
        maximum: 1_024 * MIB,
    };

    /// Messages in one batch.
    pub const BATCH_MESSAGES: Self = Self {
        name: "batch_messages",
        default: 65_536,
        minimum: 1,
        maximum: 262_144,
    };

    /// Sections, or partitions, in one request.
    pub const SECTIONS: Self = Self {
        name: "sections",
        default: 1_024,
        minimum: 1,
        maximum: 1_024,
    };

    /// The longest wait of a poll, milliseconds.
    pub const POLL_WAIT_MS: Self = Self {
        name: "poll_wait_ms",
        default: 30_000,
        minimum: 0,
        maximum: 600_000,
    };

    /// Bytes of batches in the answer to one poll, except that the first batch is always served.
    pub const POLL_BYTES: Self = Self {
        name: "poll_bytes",
        default: crate::BATCH_SIZE_MAX as u64,
        minimum: 64 * KIB,
        maximum: crate::BATCH_SIZE_MAX as u64,
    };

    /// Every limit.
    pub const ALL: &'static [Self] = &[
        Self::FRAME_SIZE,
        Self::CONNECTIONS,
        Self::REQUESTS_IN_FLIGHT,
        Self::BYTES_IN_FLIGHT,
        Self::BATCH_MESSAGES,
        Self::SECTIONS,
        Self::POLL_WAIT_MS,
        Self::POLL_BYTES,
    ];

    /// Whether a configuration may ask for this value.
    #[must_use]
    pub const fn allows(&self, value: u64) -> bool {
        self.minimum <= value && value <= self.maximum
    }
}

/// The most members that a consumer group may be configured to have: with as many partitions as a topic may
/// have, they fit the answer to [`Command::GetConsumerGroup`](crate::Command::GetConsumerGroup).
pub const GROUP_MEMBERS_MAX: u32 = 8_192;

#[cfg(test)]
mod tests {
    use std::vec;

    use super::{GROUP_MEMBERS_MAX, Limit};
    use crate::{
        BATCH_SIZE_MAX, FRAME_HEADER_SIZE, FRAME_SIZE_MAX, NAME_SIZE_MAX, PollResult, Reply,
        failure::SECTION_TEXT_SIZE_MAX, field::Field, vectors::largest_group,
    };

    #[test]
    fn defaults_are_allowed() {
        for limit in Limit::ALL {
            assert!(limit.allows(limit.default), "{}", limit.name);
            assert!(!limit.allows(limit.maximum + 1), "{}", limit.name);
        }
    }

    /// A poll is answered with batches of `poll_bytes`, or with one of the largest size, and each section
    /// may be a refusal with the longest text.
    #[test]
    fn largest_reply_fits_a_frame() {
        let batches = Limit::POLL_BYTES.maximum.max(u64::from(BATCH_SIZE_MAX));
        let section = PollResult::SIZE_MIN + 10 + 2 + SECTION_TEXT_SIZE_MAX;
        let sections = Limit::SECTIONS.maximum * section as u64;
        let body = 4 + sections + batches;
        assert!(FRAME_HEADER_SIZE as u64 + body <= u64::from(FRAME_SIZE_MAX));
    }

    /// Every member has the longest instance id, every field that may be absent is there.
    #[test]
    fn largest_consumer_group_fits_a_frame() {
        const PARTITIONS_MAX: usize = 16_384;
        let mut group = largest_group();
        let member = &mut group.members[0];
        member.instance = Some("i".repeat(NAME_SIZE_MAX));
        // The longest that an IPv6 address with scope and port can be.
        member.address = Some("a".repeat(70));
        group.members = vec![member.clone(); usize::try_from(GROUP_MEMBERS_MAX).unwrap()];
        group.partitions = vec![group.partitions[0].clone(); PARTITIONS_MAX];
        let size = FRAME_HEADER_SIZE + Reply::from(group).to_bytes().len();
        assert!(
            u32::try_from(size).unwrap() <= FRAME_SIZE_MAX,
            "{size} bytes"
        );
    }
}
