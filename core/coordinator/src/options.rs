//! What a consumer group is told about itself.

use wire::{
    ConsumerGroupOptions, ConsumerGroupOptionsUpdate, GroupStart, Incarnation, Op, Timestamp,
    Writer,
};

use crate::OptionOutOfRange;

/// Where a group starts in a partition of which it has stored nothing. Resolved once per partition, when
/// the first fence is raised there, and stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPolicy {
    /// At the first message that is there.
    #[default]
    Earliest,
    /// Behind the last message that is there.
    Latest,
    /// At the first message that the broker stamped at this time or later.
    Timestamp(Timestamp),
}

impl StartPolicy {
    /// The policy for a partition, in a group made by op `created`. A partition that is younger than the
    /// group is read from its first message whatever the policy: nobody can have meant to skip what did
    /// not exist yet.
    #[must_use]
    pub const fn for_partition(self, created: Op, incarnation: Incarnation) -> Self {
        if incarnation.0 > created.0 {
            Self::Earliest
        } else {
            self
        }
    }

    pub(crate) const fn parts(self) -> (u8, Timestamp) {
        match self {
            Self::Earliest => (0, Timestamp(0)),
            Self::Latest => (1, Timestamp(0)),
            Self::Timestamp(timestamp) => (2, timestamp),
        }
    }

    pub(crate) const fn from_parts(kind: u8, timestamp: Timestamp) -> Option<Self> {
        match kind {
            0 => Some(Self::Earliest),
            1 => Some(Self::Latest),
            2 => Some(Self::Timestamp(timestamp)),
            _ => None,
        }
    }
}

/// The options of a group: set when it is created, changed by an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// How long a member that a partition is revoked from may keep it to finish its work, milliseconds.
    pub rebalance_timeout_ms: u32,
    /// How long an empty group waits for more members after the first join before it shares its
    /// partitions out, milliseconds; 0: not at all.
    pub initial_delay_ms: u32,
    /// Where the group starts.
    pub start: StartPolicy,
    /// How long the group is kept while it has no members, milliseconds; 0: for good.
    pub offset_expiry_ms: u64,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            rebalance_timeout_ms: 30_000,
            initial_delay_ms: 0,
            start: StartPolicy::Earliest,
            offset_expiry_ms: 0,
        }
    }
}

impl GroupOptions {
    /// The least and most of `rebalance_timeout_ms`.
    pub const REBALANCE_TIMEOUT_MS: (u32, u32) = (10, 3_600_000);
    /// The least and most of `initial_delay_ms`.
    pub const INITIAL_DELAY_MS: (u32, u32) = (0, 300_000);
    /// The least and most of `offset_expiry_ms`, where it is not 0: a second and ten years.
    pub const OFFSET_EXPIRY_MS: (u64, u64) = (1_000, 315_360_000_000);

    /// Checks every range.
    ///
    /// # Errors
    /// Names the first option that is out of its range.
    pub fn check(&self) -> Result<(), OptionOutOfRange> {
        let range = |option, value: u64, (minimum, maximum): (u64, u64)| {
            if (minimum..=maximum).contains(&value) {
                return Ok(());
            }
            Err(OptionOutOfRange {
                option,
                value,
                minimum,
                maximum,
            })
        };
        let wide = |(minimum, maximum): (u32, u32)| (u64::from(minimum), u64::from(maximum));
        range(
            "rebalance_timeout_ms",
            self.rebalance_timeout_ms.into(),
            wide(Self::REBALANCE_TIMEOUT_MS),
        )?;
        range(
            "initial_delay_ms",
            self.initial_delay_ms.into(),
            wide(Self::INITIAL_DELAY_MS),
        )?;
        if self.offset_expiry_ms == 0 {
            return Ok(());
        }
        range(
            "offset_expiry_ms",
            self.offset_expiry_ms,
            Self::OFFSET_EXPIRY_MS,
        )
    }

    pub(crate) fn write_canonical(&self, writer: &mut Writer) {
        let Self {
            rebalance_timeout_ms,
            initial_delay_ms,
            start,
            offset_expiry_ms,
        } = self;
        let (kind, timestamp) = start.parts();
        writer
            .u32(*rebalance_timeout_ms)
            .u32(*initial_delay_ms)
            .u8(kind)
            .u64(timestamp.0)
            .u64(*offset_expiry_ms);
    }
}

/// Options that change; the others stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionsUpdate {
    /// See [`GroupOptions::rebalance_timeout_ms`].
    pub rebalance_timeout_ms: Option<u32>,
    /// See [`GroupOptions::initial_delay_ms`].
    pub initial_delay_ms: Option<u32>,
    /// See [`GroupOptions::start`].
    pub start: Option<StartPolicy>,
    /// See [`GroupOptions::offset_expiry_ms`].
    pub offset_expiry_ms: Option<u64>,
}

impl OptionsUpdate {
    /// The options after the update.
    #[must_use]
    pub fn of(&self, options: GroupOptions) -> GroupOptions {
        GroupOptions {
            rebalance_timeout_ms: self
                .rebalance_timeout_ms
                .unwrap_or(options.rebalance_timeout_ms),
            initial_delay_ms: self.initial_delay_ms.unwrap_or(options.initial_delay_ms),
            start: self.start.unwrap_or(options.start),
            offset_expiry_ms: self.offset_expiry_ms.unwrap_or(options.offset_expiry_ms),
        }
    }
}

impl From<GroupStart> for StartPolicy {
    fn from(start: GroupStart) -> Self {
        match start {
            GroupStart::Earliest => Self::Earliest,
            GroupStart::Latest => Self::Latest,
            GroupStart::Timestamp(timestamp) => Self::Timestamp(timestamp),
        }
    }
}

impl From<StartPolicy> for GroupStart {
    fn from(start: StartPolicy) -> Self {
        match start {
            StartPolicy::Earliest => Self::Earliest,
            StartPolicy::Latest => Self::Latest,
            StartPolicy::Timestamp(timestamp) => Self::Timestamp(timestamp),
        }
    }
}

impl From<ConsumerGroupOptionsUpdate> for OptionsUpdate {
    fn from(update: ConsumerGroupOptionsUpdate) -> Self {
        let ConsumerGroupOptionsUpdate {
            rebalance_timeout_ms,
            initial_delay_ms,
            start,
            offset_expiry_ms,
        } = update;
        Self {
            rebalance_timeout_ms,
            initial_delay_ms,
            start: start.map(StartPolicy::from),
            offset_expiry_ms,
        }
    }
}

impl From<&GroupOptions> for ConsumerGroupOptions {
    fn from(options: &GroupOptions) -> Self {
        let GroupOptions {
            rebalance_timeout_ms,
            initial_delay_ms,
            start,
            offset_expiry_ms,
        } = *options;
        Self {
            rebalance_timeout_ms,
            initial_delay_ms,
            start: start.into(),
            offset_expiry_ms,
        }
    }
}

/// [`GroupOptions`] in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OptionsSnapshot {
    /// See [`GroupOptions::rebalance_timeout_ms`].
    pub rebalance_timeout_ms: u32,
    /// See [`GroupOptions::initial_delay_ms`].
    pub initial_delay_ms: u32,
    /// 0 earliest, 1 latest, 2 by time.
    pub start: u8,
    /// The time, where the group starts by time; else 0.
    pub start_timestamp: Timestamp,
    /// See [`GroupOptions::offset_expiry_ms`].
    pub offset_expiry_ms: u64,
}

impl From<&GroupOptions> for OptionsSnapshot {
    fn from(options: &GroupOptions) -> Self {
        let (start, start_timestamp) = options.start.parts();
        Self {
            rebalance_timeout_ms: options.rebalance_timeout_ms,
            initial_delay_ms: options.initial_delay_ms,
            start,
            start_timestamp,
            offset_expiry_ms: options.offset_expiry_ms,
        }
    }
}

impl OptionsSnapshot {
    /// The options, if there is a start policy of this number. Ranges are not judged: they may have been
    /// others when the options were set.
    pub(crate) fn restore(&self) -> Option<GroupOptions> {
        Some(GroupOptions {
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            initial_delay_ms: self.initial_delay_ms,
            start: StartPolicy::from_parts(self.start, self.start_timestamp)?,
            offset_expiry_ms: self.offset_expiry_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use wire::{
        ConsumerGroupOptions, ConsumerGroupOptionsUpdate, ErrorCode, Failure, GroupStart,
        Incarnation, Op, Timestamp,
    };

    use super::{GroupOptions, OptionsSnapshot, OptionsUpdate, StartPolicy};

    #[test]
    fn defaults_are_within_their_ranges() {
        assert_eq!(GroupOptions::default().check(), Ok(()));
        assert_eq!(GroupOptions::default().rebalance_timeout_ms, 30_000);
    }

    #[test]
    fn silly_values_are_refused_by_name_value_and_range() {
        for rebalance_timeout_ms in [0, 9, 3_600_001, u32::MAX] {
            let options = GroupOptions {
                rebalance_timeout_ms,
                ..GroupOptions::default()
            };
            let refused = options.check().unwrap_err();
            assert_eq!(refused.option, "rebalance_timeout_ms");
            assert_eq!(refused.value, u64::from(rebalance_timeout_ms));
        }
        let options = GroupOptions {
            offset_expiry_ms: 999,
            ..GroupOptions::default()
        };
        let failure = Failure::from(options.check().unwrap_err());
        assert_eq!(failure.code, ErrorCode::InvalidConsumerGroupOptions);
        assert_eq!(
            failure.text.to_string(),
            "offset_expiry_ms is 999 ms; it must be between 1000 ms and 315360000000 ms"
        );
    }

    #[test]
    fn update_leaves_what_it_does_not_name() {
        let options = GroupOptions {
            start: StartPolicy::Latest,
            ..GroupOptions::default()
        };
        let update = OptionsUpdate {
            rebalance_timeout_ms: Some(3_000),
            ..OptionsUpdate::default()
        };
        let updated = update.of(options);
        assert_eq!(updated.rebalance_timeout_ms, 3_000);
        assert_eq!(updated.start, StartPolicy::Latest);
        assert_eq!(OptionsUpdate::default().of(options), options);
    }

    #[test]
    fn partitions_younger_than_the_group_are_read_from_the_first_message() {
        for policy in [StartPolicy::Latest, StartPolicy::Timestamp(Timestamp(5))] {
            let created = Op(10);
            assert_eq!(policy.for_partition(created, Incarnation(9)), policy);
            let younger = policy.for_partition(created, Incarnation(11));
            assert_eq!(younger, StartPolicy::Earliest);
        }
    }

    #[test]
    fn what_a_client_tells_and_is_told_is_what_there_is() {
        for start in [
            GroupStart::Earliest,
            GroupStart::Latest,
            GroupStart::Timestamp(Timestamp(77)),
        ] {
            let told = ConsumerGroupOptionsUpdate {
                rebalance_timeout_ms: Some(5_000),
                initial_delay_ms: Some(3_000),
                start: Some(start),
                offset_expiry_ms: Some(60_000),
            };
            let options = OptionsUpdate::from(told).of(GroupOptions::default());
            let shown = ConsumerGroupOptions {
                rebalance_timeout_ms: 5_000,
                initial_delay_ms: 3_000,
                start,
                offset_expiry_ms: 60_000,
            };
            assert_eq!(ConsumerGroupOptions::from(&options), shown);
        }
    }

    #[test]
    fn options_survive_a_snapshot() {
        for start in [
            StartPolicy::Earliest,
            StartPolicy::Latest,
            StartPolicy::Timestamp(Timestamp(77)),
        ] {
            let options = GroupOptions {
                start,
                offset_expiry_ms: 5_000,
                ..GroupOptions::default()
            };
            assert_eq!(OptionsSnapshot::from(&options).restore(), Some(options));
        }
        let unknown = OptionsSnapshot {
            start: 3,
            ..OptionsSnapshot::from(&GroupOptions::default())
        };
        assert_eq!(unknown.restore(), None);
    }
}
