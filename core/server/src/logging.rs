//! Events on standard error, one a line.

use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;

use crate::config::{LogFormat, LogLevel, Logs};

/// Sends the process's events to standard error from here on. A second call changes nothing.
pub fn start(logs: &Logs) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(filter(logs.level))
        .with_target(false)
        .with_ansi(false)
        // An event that finds no space or no reader is lost. Saying so there would panic.
        .log_internal_errors(false)
        .with_writer(io::stderr);
    // Refused when a subscriber is there already.
    let _ = match logs.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        // A terminal's reader knows what time it is.
        LogFormat::Text if io::stderr().is_terminal() => builder.without_time().try_init(),
        LogFormat::Text => builder.try_init(),
    };
}

const fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
