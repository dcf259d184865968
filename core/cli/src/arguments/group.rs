//! `cohort group`.

use std::time::Duration;

use clap::{Args, Subcommand};
use cohort::{GroupOptions, GroupStart, Id, Offset, ResetTarget, Timestamp};

use super::{OutputArguments, TopicArguments, duration, new_name};
use crate::time;

const RESET: &str = "\
Where to (--to):
  earliest  at the oldest message
  latest    behind the newest message
  TIME      at the first message stored at or after it: 2026-03-01T12:00:00Z, or how long ago: 15m, 2h, 1d
  OFFSET    at the message with this offset, so that the one before it is stored
  shift:N   N messages later than now, in each partition; earlier with shift:-N
  nothing   nothing is stored any more: the group starts by its policy

It shows what was stored before and what is stored after, as read back from the server, and says so when an
OFFSET or shift that leads to a message that is not there was clamped to the oldest message, or behind the newest. While the group has
members it is refused, unless forced: then each of them loses its partitions for a moment.

Examples:
  cohort group reset shop orders billing --to earliest --dry-run
  cohort group reset shop orders billing --to 1200 --partition 3";

/// A consumer group of a topic.
#[derive(Args, Clone, Debug)]
pub(crate) struct GroupArguments {
    #[command(flatten)]
    pub(crate) topic: TopicArguments,
    /// The consumer group, NAME or #ID
    #[arg(value_name = "NAME", value_parser = Id::parse)]
    pub(crate) group: Id,
}

/// What can be set of a consumer group.
#[derive(Args, Clone, Debug)]
pub(crate) struct GroupOptionsArguments {
    /// Where it starts in a partition of which nothing is stored: earliest, latest, or a time such as
    /// 2026-03-01T12:00:00Z, 15m ago as 15m [default: earliest]
    #[arg(long, value_name = "WHERE", value_parser = StartPolicy::parse)]
    pub(crate) start: Option<StartPolicy>,
    /// How long a member may keep a partition that goes to another one, to finish its work [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) rebalance_timeout: Option<Duration>,
    /// How long an empty group waits for more members before it shares its partitions out [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) initial_delay: Option<Duration>,
    /// How long it is kept, with its offsets, while it has no members; 0s: for good [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) expiry: Option<Duration>,
}

impl GroupOptionsArguments {
    pub(crate) const fn is_empty(&self) -> bool {
        self.start.is_none()
            && self.rebalance_timeout.is_none()
            && self.initial_delay.is_none()
            && self.expiry.is_none()
    }

    pub(crate) fn options(&self, now: Timestamp) -> GroupOptions {
        let mut options = GroupOptions::default();
        if let Some(start) = self.start {
            options = options.start(start.at(now));
        }
        if let Some(timeout) = self.rebalance_timeout {
            options = options.rebalance_timeout(timeout);
        }
        if let Some(delay) = self.initial_delay {
            options = options.initial_delay(delay);
        }
        if let Some(expiry) = self.expiry {
            options = options.offset_expiry(expiry);
        }
        options
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Make a consumer group
    #[command(after_help = "Example:\n  cohort group create shop orders billing --start latest")]
    Create {
        #[command(flatten)]
        topic: TopicArguments,
        /// Name of the consumer group
        #[arg(value_parser = new_name)]
        name: String,
        #[command(flatten)]
        options: GroupOptionsArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List the consumer groups of a topic
    #[command(after_help = "Example:\n  cohort group list shop orders")]
    List {
        #[command(flatten)]
        topic: TopicArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Show one consumer group: its members, who has which partition, how far it has got, what moves
    #[command(after_help = "Example:\n  cohort group describe shop orders billing")]
    Describe {
        #[command(flatten)]
        group: GroupArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Change options of a consumer group; those that are not named stay
    #[command(
        after_help = "Example:\n  cohort group update shop orders billing --rebalance-timeout 10s"
    )]
    Update {
        #[command(flatten)]
        group: GroupArguments,
        #[command(flatten)]
        options: GroupOptionsArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Delete a consumer group with its stored offsets
    #[command(after_help = "Example:\n  cohort group delete shop orders billing")]
    Delete {
        #[command(flatten)]
        group: GroupArguments,
        /// Also while it has members, which are turned out
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// End a membership; a consumer that lives joins again
    #[command(after_help = "Example:\n  cohort group remove-member shop orders billing 7")]
    RemoveMember {
        #[command(flatten)]
        group: GroupArguments,
        /// The member's id
        #[arg(allow_negative_numbers = true)]
        member: u64,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Set the stored offsets of a consumer group, backwards too
    #[command(after_help = RESET)]
    Reset(ResetArguments),
}

#[derive(Args, Debug)]
pub(crate) struct ResetArguments {
    #[command(flatten)]
    pub(crate) group: GroupArguments,
    /// Where to: earliest, latest, TIME, OFFSET, shift:N, nothing
    #[arg(long, value_name = "WHERE", allow_hyphen_values = true, value_parser = ResetTo::parse)]
    pub(crate) to: ResetTo,
    /// Only this partition; may be repeated
    #[arg(long, short = 'p', value_name = "N", allow_negative_numbers = true)]
    pub(crate) partition: Vec<u32>,
    /// Also while the group has members
    #[arg(long)]
    pub(crate) force: bool,
    /// Show what it would do, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// A time, or how many microseconds ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    At(Timestamp),
    Ago(u64),
}

impl When {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match duration(text) {
            Ok(ago) => Ok(Self::Ago(
                u64::try_from(ago.as_micros()).unwrap_or(u64::MAX),
            )),
            Err(_) => time::parse(text).map(Self::At),
        }
    }

    pub(crate) const fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(micros) => Timestamp(now.0.saturating_sub(micros)),
        }
    }
}

/// Where a group starts where it has stored nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartPolicy {
    Earliest,
    Latest,
    Time(When),
}

impl StartPolicy {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            _ => When::parse(text.strip_prefix("time:").unwrap_or(text))
                .map(Self::Time)
                .map_err(|problem| format!("use earliest, latest or a time: {problem}")),
        }
    }

    pub(crate) const fn at(self, now: Timestamp) -> GroupStart {
        match self {
            Self::Earliest => GroupStart::Earliest,
            Self::Latest => GroupStart::Latest,
            Self::Time(when) => GroupStart::Timestamp(when.at(now)),
        }
    }
}

/// Where stored offsets are set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetTo {
    Earliest,
    Latest,
    Time(When),
    /// The group goes on with this one.
    Offset(u64),
    /// It goes on so many messages after the one that it would go on with, or before it.
    Shift(i64),
    Nothing,
}

impl ResetTo {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(number) = text.strip_prefix("shift:") {
            let shift = number.parse().map(Self::Shift);
            return shift
                .map_err(|_| format!("{number:?} is no shift: use shift:100 or shift:-100"));
        }
        let digits = text.strip_prefix("offset:").unwrap_or(text);
        let unsigned = digits.strip_prefix('-').unwrap_or(digits);
        if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
            let offset = digits.parse().map(Self::Offset);
            return offset.map_err(|_| {
                format!(
                    "{digits} is no offset: the first is 0, the last {}",
                    u64::MAX - 1
                )
            });
        }
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            "nothing" => Ok(Self::Nothing),
            _ => When::parse(text.strip_prefix("time:").unwrap_or(text))
                .map(Self::Time)
                .map_err(|problem| {
                    format!("use earliest, latest, nothing, an offset or a time: {problem}")
                }),
        }
    }

    /// As the protocol has it, where an offset is that of the last message processed, of a partition in which
    /// the group would go on with `next`.
    pub(crate) fn target(self, now: Timestamp, next: Offset) -> ResetTarget {
        match self {
            Self::Offset(_) | Self::Shift(_) => {
                // Nothing comes before the first message.
                let stored = self.asked(next).unwrap_or_default() - 1;
                if stored < 0 {
                    return ResetTarget::Earliest;
                }
                ResetTarget::Offset(Offset(u64::try_from(stored).unwrap_or(u64::MAX)))
            }
            Self::Earliest => ResetTarget::Earliest,
            Self::Latest => ResetTarget::Latest,
            Self::Time(when) => ResetTarget::Timestamp(when.at(now)),
            Self::Nothing => ResetTarget::Nothing,
        }
    }

    /// The offset that the group is to go on with, where one was asked for; there may be no such number.
    pub(crate) fn asked(self, next: Offset) -> Option<i128> {
        match self {
            Self::Offset(offset) => Some(offset.into()),
            Self::Shift(shift) => Some(i128::from(next.0) + i128::from(shift)),
            Self::Earliest | Self::Latest | Self::Time(_) | Self::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GroupStart, Offset, ResetTarget, ResetTo, StartPolicy, Timestamp, When};

    const NOW: Timestamp = Timestamp(1_772_366_400_000_000);

    #[test]
    fn a_group_starts_at_an_end_or_at_a_time() {
        let start = |text| StartPolicy::parse(text).map(|start| start.at(NOW));
        assert_eq!(start("earliest"), Ok(GroupStart::Earliest));
        assert_eq!(start("latest"), Ok(GroupStart::Latest));
        let minute_ago = GroupStart::Timestamp(Timestamp(NOW.0 - 60_000_000));
        assert_eq!(start("1m"), Ok(minute_ago));
        let time = Ok(GroupStart::Timestamp(NOW));
        assert_eq!(start("2026-03-01T12:00:00Z"), time);
        assert_eq!(start("time:2026-03-01T12:00:00Z"), time);
        for text in ["first", "", "5", "nothing"] {
            assert!(StartPolicy::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_offset_to_reset_to_is_the_one_to_go_on_with() {
        let target = |text| ResetTo::parse(text).map(|to| to.target(NOW, Offset(50)));
        assert_eq!(target("17"), Ok(ResetTarget::Offset(Offset(16))));
        assert_eq!(target("offset:1"), Ok(ResetTarget::Offset(Offset(0))));
        // There is no offset before it to be stored.
        assert_eq!(target("0"), Ok(ResetTarget::Earliest));
        // As many messages from where the group is.
        assert_eq!(target("shift:10"), Ok(ResetTarget::Offset(Offset(59))));
        assert_eq!(target("shift:+10"), Ok(ResetTarget::Offset(Offset(59))));
        assert_eq!(target("shift:-10"), Ok(ResetTarget::Offset(Offset(39))));
        assert_eq!(target("shift:-51"), Ok(ResetTarget::Earliest));
        for text in [
            "shift:",
            "shift:x",
            "shift:--1",
            "shift:9223372036854775808",
        ] {
            assert!(ResetTo::parse(text).is_err(), "{text}");
        }
        assert_eq!(target("earliest"), Ok(ResetTarget::Earliest));
        assert_eq!(target("latest"), Ok(ResetTarget::Latest));
        assert_eq!(target("nothing"), Ok(ResetTarget::Nothing));
        assert_eq!(
            ResetTo::parse("2h"),
            Ok(ResetTo::Time(When::Ago(7_200_000_000)))
        );
        for text in ["", "first", "offset:", "-", "-5m"] {
            assert!(ResetTo::parse(text).is_err(), "{text}");
        }
        for text in ["-1", "18446744073709551616"] {
            let said =
                format!("{text} is no offset: the first is 0, the last 18446744073709551614");
            assert_eq!(ResetTo::parse(text), Err(said));
        }
    }
}
