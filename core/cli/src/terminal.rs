//! What needs a terminal: passwords without echo, a line that shows progress.

use std::{
    io::{self, IsTerminal, Read, Write},
    time::{Duration, Instant},
};

use rustix::{
    process::{Signal, getpid, kill_process},
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr},
};

use crate::context::can_ask;

/// Asks for a password on the terminal, without showing what is typed.
pub(crate) fn ask_password(prompt: &str) -> io::Result<String> {
    if !can_ask() {
        return Err(io::Error::other("there is no terminal to ask on"));
    }
    let mut standard_error = io::stderr();
    let quiet = Quiet::new()?;
    write!(standard_error, "{prompt}")?;
    standard_error.flush()?;
    // One read is one line.
    let mut typed = [0; 4_096];
    let length = io::stdin().lock().read(&mut typed)?;
    drop(quiet);
    writeln!(standard_error)?;
    let line = &typed[..length];
    if line.ends_with(&[CTRL_C]) {
        kill_process(getpid(), Signal::INT)?;
    }
    let line = str::from_utf8(line).map_err(io::Error::other)?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(io::Error::other("nothing was typed"));
    }
    Ok(password.to_string())
}

/// What ctrl-C types where it is no signal.
const CTRL_C: u8 = 3;

/// The terminal without echo, until it is dropped. Ctrl-C ends the line that is typed, instead of the process,
/// which would leave the terminal as it is now.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut without = before.clone();
        without
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ISIG);
        without.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
        tcsetattr(io::stdin(), OptionalActions::Flush, &without)?;
        Ok(Self { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _restored = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// One line on standard error that is written over and over, if that is a terminal.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    shown: bool,
    enabled: bool,
    last: Option<Instant>,
}

/// How often the line is written.
const INTERVAL: Duration = Duration::from_millis(100);

impl ProgressLine {
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            shown: false,
            enabled: wanted && io::stderr().is_terminal(),
            last: None,
        }
    }

    /// Shows the line, unless it was written just now.
    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        if !self.enabled || self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return;
        }
        self.last = Some(Instant::now());
        self.shown = true;
        eprint!("\r\x1b[K{}", line());
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if self.shown {
            self.shown = false;
            eprint!("\r\x1b[K");
        }
    }
}

/// A bar for a share of the whole, `[####------]`.
pub(crate) fn bar(done: u64, whole: u64) -> String {
    const WIDTH: u64 = 24;
    let filled = done
        .min(whole)
        .saturating_mul(WIDTH)
        .checked_div(whole)
        .unwrap_or(WIDTH);
    let filled = usize::try_from(filled).unwrap_or(0);
    let width = usize::try_from(WIDTH).unwrap_or(0);
    format!("[{}{}]", "#".repeat(filled), "-".repeat(width - filled))
}

/// Bytes with a unit: `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    // Tenths, rounded down, without floating point.
    let mut unit = 0;
    let mut scale = 1024_u64;
    while count / scale >= 1024 && unit + 1 < UNITS.len() {
        scale *= 1024;
        unit += 1;
    }
    let tenths = u128::from(count) * 10 / u128::from(scale);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// A number with its thousands apart: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// So many in this time, per second.
pub(crate) fn rate(count: u64, time: Duration) -> u64 {
    let micros = time.as_micros().max(1);
    u64::try_from(u128::from(count) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Duration, bar, bytes, grouped, rate};

    #[test]
    fn bars_fill_from_nothing_to_all() {
        assert_eq!(bar(0, 10), "[------------------------]");
        assert_eq!(bar(5, 10), "[############------------]");
        assert_eq!(bar(11, 10), "[########################]");
        assert_eq!(bar(0, 0), "[########################]");
    }

    #[test]
    fn numbers_are_written_for_people() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_500_000, "1.4 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ];
        for (count, text) in cases {
            assert_eq!(bytes(count), text);
        }
        let cases = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(rate(10, Duration::from_millis(500)), 20);
        assert_eq!(rate(10, Duration::ZERO), 10_000_000);
    }
}
