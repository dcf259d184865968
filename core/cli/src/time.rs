//! Times, as people write them: RFC 3339.

use std::time::{SystemTime, UNIX_EPOCH};

use cohort::Timestamp;

const SECONDS_PER_DAY: u64 = 86_400;

/// The time now.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// `2026-03-01T12:00:00.250Z`, in UTC, to the millisecond; `-` for no time.
pub(crate) fn format(time: Timestamp) -> String {
    if time.0 == 0 {
        return "-".to_string();
    }
    let (seconds, micros) = (time.0 / 1_000_000, time.0 % 1_000_000);
    let (days, second) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let millis = micros / 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Reads `2026-03-01T12:00:00Z`, with fractions of a second and an offset such as `+02:00` where wanted; a
/// blank may stand for the `T`; `2026-03-01` is midnight in UTC.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    parse_parts(text).map(Timestamp).ok_or_else(|| {
        format!("{text:?} is not a time: write 2026-03-01T12:00:00Z, or how long ago: 15m, 2h, 1d")
    })
}

fn parse_parts(text: &str) -> Option<u64> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let in_range = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    if !in_range || day == 0 || day > days_of_month(year, month) {
        return None;
    }
    let days = days_until(year, month, day);
    if rest.is_empty() {
        return Some(days * SECONDS_PER_DAY * 1_000_000);
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (micros, zone) = fraction(rest)?;
    let seconds = days * SECONDS_PER_DAY + hour * 3_600 + minute * 60 + second;
    let seconds = match zone.as_bytes() {
        b"Z" | b"z" => seconds,
        [sign @ (b'+' | b'-'), ..] => {
            let [hours, minutes] = numbers(&zone[1..], ':', [2, 2])?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 3_600 + minutes * 60;
            if *sign == b'+' {
                seconds.checked_sub(offset)?
            } else {
                seconds + offset
            }
        }
        _ => return None,
    };
    Some(seconds * 1_000_000 + micros)
}

/// Numbers of a fixed width between separators.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(separator);
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Microseconds of `.25` at the front of `text`, and what is behind it.
fn fraction(text: &str) -> Option<(u64, &str)> {
    let Some(digits) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    let (digits, rest) = digits.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let padded = format!("{digits:0<6}");
    Some((padded.get(..6)?.parse().ok()?, rest))
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date.
fn days_until(year: u64, month: u64, day: u64) -> u64 {
    let years = (1970..year)
        .map(|year| if is_leap(year) { 366 } else { 365 })
        .sum::<u64>();
    let months = (1..month)
        .map(|month| days_of_month(year, month))
        .sum::<u64>();
    years + months + day - 1
}

/// Year, month and day of so many days after 1970-01-01.
const fn date_of(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let mut month = 1;
    while days >= days_of_month(year, month) {
        days -= days_of_month(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::{Timestamp, format, parse};

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(format(Timestamp(0)), "-");
        assert_eq!(format(Timestamp(1_000)), "1970-01-01T00:00:00.001Z");
        // Checked with `date -u -d @…`.
        assert_eq!(
            format(Timestamp(951_868_799_999_999)),
            "2000-02-29T23:59:59.999Z"
        );
        assert_eq!(
            format(Timestamp(1_772_366_400_250_000)),
            "2026-03-01T12:00:00.250Z"
        );
    }

    #[test]
    fn times_are_read_back() {
        let noon = Timestamp(1_772_366_400_000_000);
        for text in [
            "2026-03-01T12:00:00Z",
            "2026-03-01 12:00:00z",
            "2026-03-01T14:00:00+02:00",
            "2026-03-01T06:30:00.000-05:30",
        ] {
            assert_eq!(parse(text).unwrap(), noon, "{text}");
        }
        assert_eq!(parse("2026-03-01").unwrap().0, noon.0 - 12 * 3_600_000_000);
        assert_eq!(
            parse("2026-03-01T12:00:00.25Z").unwrap().0,
            noon.0 + 250_000
        );
        assert_eq!(
            parse("2026-03-01T12:00:00.1234567Z").unwrap().0,
            noon.0 + 123_456
        );
        for seconds in (0..4_000_000_000_u64).step_by(86_399 * 97) {
            let time = Timestamp(seconds * 1_000_000 + 1_000);
            assert_eq!(parse(&format(time)).unwrap(), time);
        }
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in [
            "",
            "now",
            "2026-3-1",
            "2026-13-01",
            "2026-02-29",
            "2026-00-10",
            "2026-01-00",
            "1969-12-31",
            "2026-03-01T",
            "2026-03-01T12:00:00",
            "2026-03-01T24:00:00Z",
            "2026-03-01T12:00:00.Z",
            "2026-03-01T12:00:00+2",
            "2026-03-01T12:00:00Zx",
            "1970-01-01T00:00:00+01:00",
            "２026-03-01",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
