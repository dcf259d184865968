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

#[test]
fn a_member_that_is_stopped_stores_what_it_wrote_and_leaves() {
    for (follow, code) in [(true, 0), (false, 130)] {
        run(async {
            let mut fake = Fake::start().await;
            let words = [
                "consume", "s", "t", "--group", "g", "-o", "json", "--events",
            ];
            let how = if follow {
                ["--follow", "-v"].as_slice()
            } else {
                &["--idle", "1h", "-v"]
            };
            let child = start(&fake, &[words.as_slice(), how].concat());
            fake.request_of(cohort::Command::StoreConsumerOffset).await;
            signal(&child, Signal::TERM);
            fake.request_of(cohort::Command::LeaveConsumerGroup).await;
            fake.request_of(cohort::Command::Logout).await;
            let output = end(child).await;
            let (told, error) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(code), "{error}");
            let lines = told.lines().collect::<Vec<_>>();
            assert_eq!(lines[0], r#"{"event":"joined","group":6,"member":8}"#);
            assert_eq!(
                lines[1],
                r#"{"event":"assigned","partitions":[{"partition":0,"epoch":40},{"partition":1,"epoch":41}]}"#
            );
            let message = r#"{"partition":1,"offset":2,"epoch":41,"appended":1,"payload":""}"#;
            assert!(lines.contains(&message), "{told}");
            assert_eq!(lines.last(), Some(&r#"{"event":"left"}"#));
            let expected = "cohort: joined: member 8 of consumer group g\n\
                cohort: assigned: partitions 0, 1\n\
                cohort: left: consumer group g\n";
            assert_eq!(error, expected);
        });
    }
}

#[test]
fn a_member_that_has_its_count_leaves() {
    run(async {
        let mut fake = Fake::start().await;
        let words = ["consume", "s", "t", "--group", "g", "--count", "2", "-o"];
        let child = start(&fake, &[words.as_slice(), &["raw"]].concat());
        fake.request_of(cohort::Command::StoreConsumerOffset).await;
        fake.request_of(cohort::Command::LeaveConsumerGroup).await;
        let output = end(child).await;
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{error}");
        assert_eq!(
            (text(&output.stdout).as_str(), error.as_str()),
            ("\n\n", "")
        );
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
