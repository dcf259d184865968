//! Signals that end the server.

use std::{io, process, thread};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::Exit;

/// Calls `stop` with the signal's name at the first SIGTERM or SIGINT. The second ends the process at once:
/// what is acknowledged is on the disk, the rest is as after a crash.
///
/// # Errors
/// When the handlers or the thread that waits for them cannot be set up.
pub fn on_stop(stop: impl FnOnce(&'static str) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let mut stop = Some(stop);
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let name = if signal == SIGTERM {
                    "SIGTERM"
                } else {
                    "SIGINT"
                };
                match stop.take() {
                    Some(stop) => stop(name),
                    None => {
                        tracing::warn!(signal = name, "a second signal: the server ends at once");
                        process::exit(Exit::Killed.code());
                    }
                }
            }
        })?;
    Ok(())
}
