//! The command as a process that is told to stop, against a server that speaks just enough.

// What only the client's own tests ask of it is not used here.
#[expect(dead_code, reason = "shared with the tests of the client")]
#[path = "../../sdk/tests/fake/mod.rs"]
mod fake;

use std::{
    ffi::OsStr,
    fs::File,
    future::Future,
    io::{Read, Write},
    os::unix::{ffi::OsStrExt, process::ExitStatusExt},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use fake::Fake;
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(Duration::from_secs(60), test)
            .await
            .expect("in time");
    });
}

fn start(fake: &Fake, words: &[&str]) -> Child {
    let nowhere = std::env::temp_dir().join("cohort-has-no-configuration-here");
    Command::new(env!("CARGO_BIN_EXE_cohort"))
        .args(words)
        .env_clear()
        .env("XDG_CONFIG_HOME", nowhere)
        .env("COHORT_ADDRESS", fake.address.to_string())
        .env("COHORT_USER", "ann")
        .env("COHORT_PASSWORD", "good-password")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs")
}

fn signal(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).expect("an id of a process");
    kill_process(Pid::from_raw(id).expect("not 0"), signal).expect("it runs");
}

async fn end(child: Child) -> Output {
    let waiting = tokio::task::spawn_blocking(|| child.wait_with_output());
    waiting.await.expect("nobody panics").expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_end_of_the_input_ends_lingering() {
    run(async {
        let fake = Fake::start().await;
        let linger = ["--partition", "1", "--linger", "1h"];
        let mut child = start(&fake, &[&["send", "s", "t"], linger.as_slice()].concat());
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"a\nb\n").expect("it reads");
        drop(input);
        let output = end(child).await;
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{error}");
        assert!(
            error.starts_with("2 messages stored in 1 partition, "),
            "{error}"
        );
    });
}

#[test]
fn what_got_no_answer_is_counted_when_a_send_is_stopped() {
    run(async {
        let mut fake = Fake::start().await;
        fake.rules(|rules| rules.hold_sends = true);
        let mut child = start(&fake, &["send", "s", "t", "-o", "json"]);
        // Kept open: there may be more.
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"a\n").expect("it reads");
        fake.request_of(cohort::Command::SendMessages).await;
        signal(&child, Signal::INT);
        let output = end(child).await;
        assert_eq!(output.status.code(), Some(130));
        let summary = text(&output.stdout);
        assert!(
            summary.contains("\"stored\": 0,") && summary.contains("\"unknown\": 1,"),
            "{summary}"
        );
    });
}

#[test]
fn a_ping_that_is_stopped_sums_up() {
    run(async {
        let mut fake = Fake::start().await;
        let child = start(
            &fake,
            &["ping", "-c", "2", "--interval", "1h", "-o", "json"],
        );
        fake.request_of(cohort::Command::Ping).await;
        signal(&child, Signal::TERM);
        let output = end(child).await;
        assert_eq!(output.status.code(), Some(130));
        assert!(text(&output.stdout).contains("\"answered\": "));
    });
}

/// A terminal: the side of whoever types, and that of the command.
fn terminal() -> (File, File) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&keyboard).expect("a terminal");
    unlockpt(&keyboard).expect("a terminal");
    let name = ptsname(&keyboard, Vec::new()).expect("a terminal has a name");
    let screen = File::options()
        .read(true)
        .write(true)
        .open(OsStr::from_bytes(name.as_bytes()));
    (File::from(keyboard), screen.expect("the terminal opens"))
}

#[test]
fn a_terminal_that_was_asked_for_a_password_echoes_again_after_ctrl_c() {
    let (mut keyboard, screen) = terminal();
    let side = || Stdio::from(screen.try_clone().expect("a handle"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_cohort"))
        .args(["stream", "list"])
        .env_clear()
        .stdin(side())
        .stderr(side())
        .spawn()
        .expect("the binary runs");
    let mut shown = Vec::new();
    while !shown.ends_with(b"Password of root: ") {
        let mut byte = [0];
        keyboard.read_exact(&mut byte).expect("it asks");
        shown.extend(byte);
    }
    let modes = || tcgetattr(&screen).expect("a terminal").local_modes;
    assert!(!modes().contains(LocalModes::ECHO));
    // The line end is for a command that takes ctrl-C for nothing.
    keyboard
        .write_all(b"secret\x03\n")
        .expect("it can be typed");
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
    assert!(modes().contains(LocalModes::ECHO | LocalModes::ISIG));
}
