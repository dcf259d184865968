//! SIGTERM: what was answered is stored, the exit code is 0, and it takes no longer than it may.

use std::{fs, process::Command, time::Duration};

use bytes::Bytes;
use integration::{Connection, Ledger, Load, Site, batch, poll, repetitions, send, until};
use wire::{
    Acknowledgement, ErrorCode, EventCode, FrameKind, Offset, PollMessages, PollStrategy, Request,
};

/// The server gives itself 10 s for what is in flight; this is for the rest, on a busy machine.
const BOUND: Duration = Duration::from_secs(20);

#[test]
fn signal_right_after_the_start_is_heeded() {
    let site = Site::new();
    for _ in 0..3 {
        site.start().stop();
    }
}

/// However long it takes to read what is on the disk: here it takes for ever.
#[test]
fn signal_before_anything_is_begun_ends_it_at_once() {
    let site = Site::new();
    fs::create_dir(site.data()).expect("make a directory");
    let made = Command::new("mkfifo")
        .arg(site.data().join("node.toml"))
        .status();
    assert!(made.expect("make a pipe").success());
    let process = site.launch();
    until("it heeds signals", || process.heeds_signals().then_some(()));
    let ended = process.terminate();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("before anything was begun"));
}

#[test]
fn everything_answered_before_a_stop_under_load_is_stored() {
    let site = Site::new();
    let mut server = site.start();
    let topic = Connection::login(server.address()).create_topic("orders", 4);
    let ledger = Ledger::new(300);
    for round in 0..repetitions(2, 10) {
        let load = Load::start(&server.url(), &topic, round * 3..round * 3 + 3, &ledger);
        let before = ledger.acknowledged();
        until("the load is on", || {
            (ledger.acknowledged() > before + 1_000).then_some(())
        });
        let ended = server.stop();
        assert!(ended.took < BOUND, "{:?}", ended.took);
        drop(load);
        server = site.start();
        let found = ledger.check(&mut Connection::login(server.address()), &topic);
        assert!(found.acknowledged > before, "{found:?}");
    }
    server.stop();
}

#[test]
fn clients_are_told_and_waits_end() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 2);
    let mut idle = connection.attach();
    let wait = PollMessages {
        min_bytes: 1,
        max_wait_ms: 30_000,
        ..poll(&topic, 0, "reader", PollStrategy::Next)
    };
    let waiting = connection.post(wait).expect("it is open");
    // Requests of a connection are taken in order: the answer to this one says that the poll waits.
    let ping = connection.post(Request::Ping).expect("it is open");
    let answered = connection.receive().expect("it is open");
    assert_eq!(answered.header.correlation, ping);
    let ended = server.stop();
    assert!(ended.took < BOUND, "{:?}", ended.took);

    let mut was_answered = false;
    let mut was_told = false;
    while let Some(frame) = connection.receive() {
        was_answered |= frame.header.correlation == waiting;
        was_told |= is_stopping(&frame.header);
    }
    assert!(was_answered, "the wait ends with an answer");
    assert!(was_told, "ServerStopping is told");
    let mut was_told = false;
    while let Some(frame) = idle.receive() {
        was_told |= is_stopping(&frame.header);
    }
    assert!(was_told, "ServerStopping is told on every connection");
}

fn is_stopping(header: &wire::FrameHeader) -> bool {
    header.kind == FrameKind::Event as u8 && header.code == EventCode::ServerStopping.code()
}

#[test]
fn every_request_before_the_end_is_answered_or_refused_by_the_closed_connection() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    // Many in flight: each is answered with an offset, with ServerStopping, or not at all.
    let count = 400;
    for number in 0..count {
        let payload = Bytes::from(format!("{number}"));
        let send = send(&topic, 0, batch(&[payload]), Acknowledgement::Quorum);
        connection.post(send).expect("it is open");
    }
    let first = connection.receive().expect("the first answer");
    let ended = server.stop();
    assert!(ended.took < BOUND, "{:?}", ended.took);
    let mut stored = u64::from(first.error().is_none());
    while let Some(frame) = connection.receive() {
        if frame.header.kind != FrameKind::Reply as u8 {
            continue;
        }
        match frame.reply(wire::Command::SendMessages) {
            Ok(wire::Reply::Sent(sent)) if sent.sections[0].status.is_ok() => stored += 1,
            Ok(wire::Reply::Sent(sent)) => {
                let failure = sent.sections[0].status.clone().expect_err("it is refused");
                assert_eq!(failure.code, ErrorCode::ServerStopping, "{failure}");
            }
            Ok(other) => panic!("{other:?}"),
            Err(failure) => assert_eq!(failure.code, ErrorCode::ServerStopping, "{failure}"),
        }
    }
    let server = site.start();
    let page = Connection::login(server.address()).read_from(&topic, 0, Offset(0));
    let messages = page.expect("it can be read").messages;
    assert!(
        messages.len() as u64 >= stored,
        "{} < {stored}",
        messages.len()
    );
    for (number, (_, payload)) in messages.iter().enumerate() {
        assert_eq!(*payload, format!("{number}"), "in the order sent");
    }
    server.stop();
}
