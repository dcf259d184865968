//! R27: a poll that waits holds nothing up, and is a sign of life.

use std::time::{Duration, Instant};

use integration::{Site, until};
use wire::{Command, ErrorCode, Event, Offset, Reply, Request};

use crate::scene::{Scene, patient};

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// As long as a poll may wait here, milliseconds.
const LONG_MS: u32 = 20_000;

fn silent() -> Site {
    Site::new()
        .with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
        .with("cluster.timeouts.session_timeout", "\"2 s\"")
}

#[test]
fn r27_1_7_what_else_is_asked_is_answered_while_a_poll_waits() {
    let mut scene = Scene::new(patient(), 1, 10);
    let mut member = scene.join();
    member.wait_for(1);
    member.poll(0, 10).expect("it is the owner");
    member.store(0, 8).expect("it is the owner");
    let epoch = member.epoch(0);
    let mut poll = member.poll_of(&[(0, epoch)], 10);
    (poll.min_bytes, poll.max_wait_ms) = (1 << 20, LONG_MS);
    let waiting = member.connection.post(poll).expect("it is connected");
    // In this order, and none of them after the poll.
    let store = member.store_of(&[(0, epoch, 9)]);
    let asked = [
        member.connection.post(Request::Ping).expect("connected"),
        member.connection.post(store).expect("connected"),
        member.connection.post(Request::GetMe).expect("connected"),
    ];
    let mut answered = Vec::new();
    while answered.len() < asked.len() {
        let frame = member.connection.receive().expect("it is connected");
        assert_ne!(frame.header.correlation, waiting, "it waits");
        assert_eq!(frame.error(), None);
        answered.push(frame.header.correlation);
    }
    answered.sort_unstable();
    assert_eq!(answered, asked);
    assert_eq!(scene.next(0), 10);
}

#[test]
fn r27_2_member_whose_poll_waits_lives() {
    let mut scene = Scene::new(silent(), 1, 0);
    let mut member = scene.join();
    member.wait_for(1);
    let mut poll = member.poll_of(&[(0, member.epoch(0))], 10);
    let wait = 2 * SESSION_TIMEOUT;
    poll.min_bytes = 1;
    poll.max_wait_ms = u32::try_from(wait.as_millis()).expect("it is short");
    let began = Instant::now();
    let waiting = member.connection.post(poll).expect("it is connected");
    let frame = loop {
        scene.admin.ping();
        let frame = member.connection.receive().expect("it is connected");
        if frame.header.correlation == waiting {
            break frame;
        }
        let event = Event::decode(&frame.header, frame.body.clone());
        assert!(!matches!(event, Ok(Some(Event::Evicted(_)))), "{event:?}");
    };
    assert!(began.elapsed() >= wait);
    assert_eq!(frame.error(), None);
    member.sync().expect("it is a member");
    assert_eq!(member.owned(), [0]);
}

#[test]
fn r27_3_4_poll_that_waits_ends_when_its_partition_moves_and_when_a_message_comes() {
    let mut scene = Scene::new(patient(), 2, 0);
    let mut member = scene.join();
    member.wait_for(2);
    for partition in [0, 1] {
        let mut poll = member.poll_of(&[(partition, member.epoch(partition))], 10);
        (poll.min_bytes, poll.max_wait_ms) = (1, LONG_MS);
        let waiting = member.connection.post(poll).expect("it is connected");
        let mut second = None;
        if partition == 0 {
            scene.append(0, 1);
        } else {
            second = Some(scene.join());
        }
        let frame = loop {
            let frame = member.connection.receive().expect("it is connected");
            if frame.header.correlation == waiting {
                break frame;
            }
        };
        let Ok(Reply::Polled(polled)) = frame.reply(Command::PollMessages) else {
            panic!("not polled");
        };
        let section = &polled.sections[0];
        match second {
            None => assert_eq!((section.from, section.next), (Offset(0), Offset(1))),
            Some(mut second) => {
                let refused = section.status.clone().expect_err("it moves");
                assert!(
                    matches!(
                        refused.code,
                        ErrorCode::PartitionRevoking | ErrorCode::PartitionNotOwned
                    ),
                    "{refused}"
                );
                second.wait_for(1);
            }
        }
    }
}

#[test]
fn r27_6_client_that_closes_while_its_poll_waits_leaves_nothing_behind() {
    let mut scene = Scene::new(crate::scene::hasty(), 1, 10);
    let mut member = scene.join();
    member.wait_for(1);
    let mut poll = member.poll_of(&[(0, member.epoch(0))], 10);
    (poll.min_bytes, poll.max_wait_ms) = (1 << 20, LONG_MS);
    member.connection.post(poll).expect("it is connected");
    drop(member);
    // What it would have been served counts as never polled: nobody has to be waited for.
    let mut second = scene.join();
    until("the other has everything", || {
        second.sync().expect("it is a member");
        (second.owned().len() == 1).then_some(())
    });
    let page = second.poll(0, 10).expect("it is the owner");
    assert_eq!(page.messages.len(), 10);
    assert_eq!(scene.counter("moves_timed_out"), 0);
}
