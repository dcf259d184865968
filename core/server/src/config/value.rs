//! Values with units, as people write them.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{ClusterNode, Setting, nodes};

const KIB: u64 = 1024;
const SIZE_UNITS: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", KIB),
    ("MiB", KIB * KIB),
    ("GiB", KIB * KIB * KIB),
    ("TiB", KIB * KIB * KIB * KIB),
];

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
pub(super) const SECOND: u64 = 1_000 * MILLISECOND;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
const DURATION_UNITS: [(&str, u64); 5] = [
    ("us", MICROSECOND),
    ("ms", MILLISECOND),
    ("s", SECOND),
    ("min", MINUTE),
    ("h", HOUR),
];

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Count {
        /// The least allowed.
        min: u64,
        /// The most allowed.
        max: u64,
    },
    /// `"auto"` or a whole number.
    AutoOrCount {
        /// The least allowed.
        min: u64,
        /// The most allowed.
        max: u64,
    },
    /// Bytes, with a unit.
    Size {
        /// The least allowed, bytes.
        min: u64,
        /// The most allowed, bytes.
        max: u64,
    },
    /// A length of time, with a unit.
    Duration {
        /// The least allowed, nanoseconds.
        min: u64,
        /// The most allowed, nanoseconds.
        max: u64,
    },
    /// `true` or `false`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An IP address and a port. Need not be set where there is no default.
    Address,
    /// A short text. Need not be set.
    Text {
        /// The most allowed, bytes.
        max: usize,
    },
    /// The nodes of a cluster. Need not be set.
    Nodes,
    /// A path; a relative one starts at the working directory.
    Path,
    /// Text that is never shown. Need not be set.
    Secret {
        /// The least allowed, bytes.
        min: usize,
        /// The most allowed, bytes.
        max: usize,
    },
}

/// A setting's value, checked against its kind.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Of [`Kind::Count`] and [`Kind::AutoOrCount`].
    Count(u64),
    /// Of [`Kind::AutoOrCount`].
    Auto,
    /// Bytes.
    Size(u64),
    /// A length of time.
    Duration(Duration),
    /// On or off.
    Switch(bool),
    /// The word chosen.
    Choice(&'static str),
    /// An address.
    Address(SocketAddr),
    /// A path.
    Path(PathBuf),
    /// A secret that is set.
    Secret(String),
    /// A text.
    Text(String),
    /// The nodes of a cluster.
    Nodes(Vec<ClusterNode>),
    /// What is not set, where that is allowed.
    Unset,
}

/// What a file says, before it is known what the setting takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw<'a> {
    Text(&'a str),
    Integer(i128),
    Switch(bool),
    /// Anything that no setting takes: what TOML calls it.
    Other(&'static str),
}

/// Why a value is refused: what is wrong with it, and what is allowed instead.
pub(super) type Refusal = String;

impl Setting {
    /// Reads a value from a file.
    pub(super) fn read(&self, raw: &Raw<'_>) -> Result<Value, Refusal> {
        let wrong_type =
            |found: &str| format!("{found} where {} is expected", self.kind.expected());
        match (self.kind, raw) {
            (Kind::Count { .. } | Kind::AutoOrCount { .. }, Raw::Integer(value)) => {
                self.count(*value)
            }
            (Kind::Switch, Raw::Switch(value)) => Ok(Value::Switch(*value)),
            (Kind::Count { .. } | Kind::Switch, Raw::Text(text)) => Err(format!(
                "{}; without the quotes {} would be one",
                wrong_type("text"),
                if self.parse(text).is_ok() {
                    "this"
                } else {
                    "a right value"
                }
            )),
            (Kind::Size { .. } | Kind::Duration { .. }, Raw::Integer(_)) => {
                Err(format!("a number without a unit; {}", self.kind.allowed()))
            }
            (_, Raw::Text(text)) => self.parse(text),
            (_, Raw::Integer(_)) => Err(wrong_type("a number")),
            (_, Raw::Switch(_)) => Err(wrong_type("true or false")),
            (_, Raw::Other(name)) => Err(wrong_type(name)),
        }
    }

    /// Reads a value from text: a quoted value of a file, an environment variable, a command line.
    pub(super) fn parse(&self, text: &str) -> Result<Value, Refusal> {
        if text.chars().any(char::is_control) {
            return Err("a control character, such as a tab or a line end, is in the text".into());
        }
        let refuse = || format!("not {}; {}", self.kind.expected(), self.kind.allowed());
        match self.kind {
            Kind::AutoOrCount { .. } if text == "auto" => Ok(Value::Auto),
            Kind::Count { .. } | Kind::AutoOrCount { .. } => {
                self.count(text.parse().map_err(|_| refuse())?)
            }
            Kind::Size { min, max } => {
                let bytes = quantity(text, &SIZE_UNITS).map_err(|why| self.explain(why))?;
                self.in_range(bytes, min, max).map(Value::Size)
            }
            Kind::Duration { min, max } => {
                let nanoseconds =
                    quantity(text, &DURATION_UNITS).map_err(|why| self.explain(why))?;
                let nanoseconds = self.in_range(nanoseconds, min, max)?;
                Ok(Value::Duration(Duration::from_nanos(nanoseconds)))
            }
            Kind::Switch => text.parse().map(Value::Switch).map_err(|_| refuse()),
            Kind::Choice(words) => match words.iter().find(|word| **word == text) {
                Some(word) => Ok(Value::Choice(word)),
                None => Err(refuse()),
            },
            Kind::Address => text.parse().map(Value::Address).map_err(|_| refuse()),
            Kind::Text { max } if !(1..=max).contains(&text.len()) => {
                Err(format!("{} bytes; {}", text.len(), self.kind.allowed()))
            }
            Kind::Text { .. } => Ok(Value::Text(text.to_owned())),
            Kind::Nodes => match nodes::parse(text) {
                Ok(nodes) => Ok(Value::Nodes(nodes)),
                Err(why) => Err(self.explain(&why)),
            },
            Kind::Path if text.is_empty() => Err("an empty path".into()),
            Kind::Path => Ok(Value::Path(PathBuf::from(text))),
            Kind::Secret { min, max } if !(min..=max).contains(&text.len()) => {
                Err(format!("{} bytes; {}", text.len(), self.kind.allowed()))
            }
            Kind::Secret { .. } => Ok(Value::Secret(text.to_owned())),
        }
    }

    fn count(&self, value: i128) -> Result<Value, Refusal> {
        let (Kind::Count { min, max } | Kind::AutoOrCount { min, max }) = self.kind else {
            unreachable!("only counts are read as counts");
        };
        match u64::try_from(value) {
            Ok(value) => self.in_range(value, min, max).map(Value::Count),
            Err(_) => Err(format!("out of range; {}", self.kind.allowed())),
        }
    }

    fn in_range(&self, value: u64, min: u64, max: u64) -> Result<u64, Refusal> {
        if (min..=max).contains(&value) {
            Ok(value)
        } else {
            Err(format!("out of range; {}", self.kind.allowed()))
        }
    }

    fn explain(&self, why: &str) -> Refusal {
        format!("{why}; {}", self.kind.allowed())
    }
}

impl Kind {
    const fn expected(self) -> &'static str {
        match self {
            Self::Count { .. } => "a whole number",
            Self::AutoOrCount { .. } => "\"auto\" or a whole number",
            Self::Size { .. } => "a size with a unit",
            Self::Duration { .. } => "a duration with a unit",
            Self::Switch => "true or false",
            Self::Choice(_) => "one of the words allowed",
            Self::Address => "an IP address with a port",
            Self::Path => "a path",
            Self::Secret { .. } | Self::Text { .. } => "text",
            Self::Nodes => "a list of nodes",
        }
    }

    /// A sentence for people: what a setting of this kind may be.
    #[must_use]
    pub fn allowed(self) -> String {
        match self {
            Self::Count { min, max } => format!("allowed: {min} to {max}"),
            Self::AutoOrCount { min, max } => format!("allowed: \"auto\", or {min} to {max}"),
            Self::Size { min, max } => format!(
                "allowed: {} to {}, in {}",
                format_quantity(min, &SIZE_UNITS),
                format_quantity(max, &SIZE_UNITS),
                unit_names(&SIZE_UNITS)
            ),
            Self::Duration { min, max } => format!(
                "allowed: {} to {}, in {}",
                format_quantity(min, &DURATION_UNITS),
                format_quantity(max, &DURATION_UNITS),
                unit_names(&DURATION_UNITS)
            ),
            Self::Switch => "allowed: true, false".into(),
            Self::Choice(words) => format!("allowed: \"{}\"", words.join("\", \"")),
            Self::Address => "allowed: such as 127.0.0.1:5100 or [::1]:5100".into(),
            Self::Path => "allowed: any path".into(),
            Self::Secret { min, max } => format!("allowed: {min} to {max} bytes of text"),
            Self::Text { max } => format!("allowed: 1 to {max} bytes of text"),
            Self::Nodes => "allowed: 1, 3 or 5 nodes, each with id, client and peer; in a variable ID CLIENT PEER, with commas between".into(),
        }
    }
}

impl Value {
    /// As it would stand in a file; a secret that is set is masked.
    #[must_use]
    pub fn display(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Auto => "\"auto\"".into(),
            Self::Size(bytes) => format!("\"{}\"", format_quantity(*bytes, &SIZE_UNITS)),
            Self::Duration(duration) => {
                let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
                format!("\"{}\"", format_quantity(nanoseconds, &DURATION_UNITS))
            }
            Self::Switch(value) => value.to_string(),
            Self::Choice(word) => format!("\"{word}\""),
            Self::Address(address) => format!("\"{address}\""),
            Self::Path(path) => format!("{:?}", path.display().to_string()),
            Self::Secret(_) => "\"(masked)\"".into(),
            Self::Text(text) => format!("{text:?}"),
            Self::Nodes(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                format!("[{}]", nodes.join(", "))
            }
            Self::Unset => "(not set)".into(),
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.display())
    }
}

/// A whole number, at most one space, a unit.
fn quantity(text: &str, units: &[(&str, u64)]) -> Result<u64, &'static str> {
    if text.starts_with('-') {
        return Err("negative");
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let unit = rest.strip_prefix(' ').unwrap_or(rest);
    if number.is_empty() {
        return Err("not a whole number with a unit");
    }
    if unit.is_empty() {
        return Err("a number without a unit");
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err("not a whole number with a unit");
    };
    let number: u64 = number.parse().map_err(|_| "out of range")?;
    number.checked_mul(*factor).ok_or("out of range")
}

/// In the largest unit that leaves a whole number.
fn format_quantity(value: u64, units: &[(&str, u64)]) -> String {
    let whole = |(_, factor): &&(&str, u64)| value != 0 && value.is_multiple_of(*factor);
    let (name, factor) = units.iter().rev().find(whole).unwrap_or(&units[0]);
    format!("{} {name}", value / factor)
}

fn unit_names(units: &[(&str, u64)]) -> String {
    let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_need_a_whole_number_and_a_known_unit() {
        assert_eq!(quantity("64 MiB", &SIZE_UNITS), Ok(64 << 20));
        assert_eq!(quantity("64MiB", &SIZE_UNITS), Ok(64 << 20));
        assert_eq!(quantity("30 s", &DURATION_UNITS), Ok(30 * SECOND));
        assert_eq!(quantity("0 s", &DURATION_UNITS), Ok(0));
        for text in [
            "", "MiB", "64", "64 ", "64  MiB", " 64 MiB", "64 MB", "64 mib", "6.5 MiB", "-1 B",
            "+1 B", "1 B ",
        ] {
            assert!(quantity(text, &SIZE_UNITS).is_err(), "{text:?}");
        }
        assert_eq!(
            quantity("99999999999 TiB", &SIZE_UNITS),
            Err("out of range")
        );
    }

    #[test]
    fn quantities_are_shown_in_the_largest_whole_unit() {
        assert_eq!(format_quantity(64 << 20, &SIZE_UNITS), "64 MiB");
        assert_eq!(format_quantity(1536, &SIZE_UNITS), "1536 B");
        assert_eq!(format_quantity(0, &SIZE_UNITS), "0 B");
        assert_eq!(format_quantity(90 * SECOND, &DURATION_UNITS), "90 s");
        assert_eq!(format_quantity(HOUR, &DURATION_UNITS), "1 h");
    }

    #[test]
    fn secret_is_shown_nowhere() {
        let value = Value::Secret("hunter2".into());
        assert!(!format!("{value:?} {}", value.display()).contains("hunter2"));
    }
}
