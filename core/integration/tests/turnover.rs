//! Members that come and go while messages are sent: R02, R03, R04, R06, R14 and R43 with everything at once.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use cohort::{Error, GroupConsumer, GroupOptions};
use integration::{
    Connection, DEFAULT_OPTIONS, Deliveries, Group, Ledger, Load, Member, Site, fill, repetitions,
    until,
};
use tokio::{task::JoinHandle, time::timeout};
use wire::{DeleteTopic, ErrorCode, RemoveMember};

use crate::{
    application::Application,
    scene::{Scene, hasty, patient},
};

const PARTITIONS: u32 = 6;

/// Messages that are sent to a partition at a time.
const CHUNK: u64 = 5;

/// How often a reader that gets nothing looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Members that do everything right: whether they leave or vanish between two turns, nothing is lost, nothing
/// is delivered twice, and no hand-over comes to its deadline.
#[test]
fn r04_b_members_that_come_and_go_lose_nothing_and_repeat_nothing() {
    let mut scene = Scene::new(hasty(), PARTITIONS, 0);
    let deliveries = Deliveries::default();
    let done = AtomicBool::new(false);
    let chunks = u64::from(repetitions(60, 1_500));
    thread::scope(|scope| {
        let scene = &scene;
        let (deliveries, done) = (&deliveries, &done);
        let sending = scope.spawn(move || send(scene, chunks));
        for number in 0..3 {
            scope.spawn(move || come_and_go(scene, number, deliveries, done));
        }
        let mut steady = scene.join();
        until("everything is delivered", || {
            steady.turn(deliveries).expect("it is a member");
            let is_sent = sending.is_finished();
            is_sent.then_some(())
        });
        sending.join().expect("everything is sent");
        done.store(true, Ordering::SeqCst);
        let count = usize::try_from(chunks * CHUNK).expect("it is small");
        until("everything is delivered", || {
            steady.turn(deliveries).expect("it is a member");
            let is_all = (0..PARTITIONS).all(|partition| deliveries.count(partition) == count);
            is_all.then_some(())
        });
    });
    assert_eq!(deliveries.repeated(), 0);
    for partition in 0..PARTITIONS {
        deliveries.expect_all(partition, chunks * CHUNK);
        assert_eq!(scene.next(partition), chunks * CHUNK);
    }
    assert_eq!(scene.counter("moves_timed_out"), 0);
    let moves = ["moves_released", "moves_drained", "moves_from_nobody"];
    let moves: Vec<u64> = moves.iter().map(|name| scene.counter(name)).collect();
    assert!(moves.iter().sum::<u64>() > 0, "{moves:?}");
}

fn send(scene: &Scene, chunks: u64) {
    let mut connection = Connection::login(scene.address());
    for chunk in 0..chunks {
        for partition in 0..PARTITIONS {
            let place = (partition, chunk * CHUNK, CHUNK);
            fill(&mut connection, &scene.topic, place, CHUNK);
        }
    }
}

fn come_and_go(scene: &Scene, number: u32, deliveries: &Deliveries, done: &AtomicBool) {
    let mut round = number;
    while !done.load(Ordering::SeqCst) {
        let mut member = scene.join();
        for _ in 0..1 + round % 4 {
            member.turn(deliveries).expect("it is a member");
        }
        if !round.is_multiple_of(3) {
            member.leave().expect("it is a member");
        }
        round += 1;
    }
}

/// The SDK's members, under load, while the server is killed again and again. Their sessions outlive it, so
/// that every partition is given up in time, and nothing is delivered twice.
#[test]
fn r03_members_and_producers_of_the_sdk_outlive_a_server_that_is_killed() {
    let mut scene = Scene::new(patient(), PARTITIONS, 0);
    scene.stay();
    let seen: Seen = Arc::default();
    let mut members = vec![begin(&scene, &seen), begin(&scene, &seen)];
    let ledger = Ledger::new(100);
    let load = Load::start(&scene.server().url(), &scene.topic, 0..2, &ledger);
    for round in 0..repetitions(3, 40) {
        let before = ledger.acknowledged();
        until("the load is on", || {
            (ledger.acknowledged() > before + 200).then_some(())
        });
        scene.crash();
        if round.is_multiple_of(2) {
            members.push(begin(&scene, &seen));
        } else {
            members.remove(0).end();
        }
    }
    load.finish();
    let topic = scene.topic.clone();
    let sent = ledger.check(&mut scene.admin, &topic).messages;
    until("everything is delivered", || {
        let delivered = seen.lock().expect("nobody panics").len();
        (delivered as u64 == sent).then_some(())
    });
    for member in members {
        member.end();
    }
    let seen = seen.lock().expect("nobody panics");
    let repeated: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
    let details = scene.group.details(&mut scene.admin);
    for partition in &details.partitions {
        let progress = partition.progress.as_ref().expect("it is served");
        assert_eq!(progress.lag, 0, "{details:?}");
    }
    assert!(details.members.is_empty(), "{details:?}");
}

/// How often each message was delivered, by partition and offset.
type Seen = Arc<Mutex<BTreeMap<(u32, u64), u32>>>;

struct Reading {
    application: Application,
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<(), Error>>,
}

fn begin(scene: &Scene, seen: &Seen) -> Reading {
    let application = Application::start(scene);
    let consumer = application.join(scene, |builder| builder);
    let stop = Arc::new(AtomicBool::new(false));
    let task = application
        .runtime
        .spawn(read(consumer, Arc::clone(seen), Arc::clone(&stop)));
    Reading {
        application,
        stop,
        task,
    }
}

async fn read(
    mut consumer: GroupConsumer,
    seen: Seen,
    stopped: Arc<AtomicBool>,
) -> Result<(), Error> {
    while !stopped.load(Ordering::SeqCst) {
        let Ok(next) = timeout(LOOK, consumer.next()).await else {
            continue;
        };
        let message = next.expect("it goes on until it is closed")?;
        let place = (message.partition().0, message.offset().0);
        let mut seen = seen.lock().expect("nobody panics");
        *seen.entry(place).or_default() += 1;
    }
    consumer.close().await
}

impl Reading {
    /// Closes the member. When the answer to its last store was lost it asks what is stored.
    fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.application.run(self.task).expect("no panic");
        ended.expect("everything is stored");
    }
}

/// A member of the SDK that was removed is one again by itself; without its topic it says so.
#[test]
fn r14_2_member_of_the_sdk_joins_again_or_says_why_not() {
    let mut scene = Scene::new(hasty(), 1, 1);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| builder);
    application.take(&mut consumer, 1);
    let member = consumer.member().expect("it is a member");
    let remove = RemoveMember {
        stream: scene.topic.stream.into(),
        topic: scene.topic.id.into(),
        group: scene.group.name.clone(),
        member,
    };
    scene.admin.ask(remove).expect("it is a member");
    let end = scene.append(0, 1);
    let again = read_up_to(&application, &mut consumer, end);
    assert!(consumer.member() > Some(member), "{again:?}");
    let delete = DeleteTopic {
        stream: scene.topic.stream.into(),
        topic: scene.topic.id.into(),
    };
    scene.admin.ask(delete).expect("it is there");
    let error = failure(&application, &mut consumer);
    let code = error.code();
    let says_so = [ErrorCode::TopicNotFound, ErrorCode::ConsumerGroupNotFound];
    assert!(says_so.map(Some).contains(&code), "{error:?}");
}

/// What its stream of messages ends with.
fn failure(application: &Application, consumer: &mut GroupConsumer) -> Error {
    application.run(async {
        loop {
            match consumer.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("it ended without a word"),
            }
        }
    })
}

/// The process stands still for longer than its session lives. Others read on meanwhile; it comes back as
/// somebody else, and what it had before changes nothing.
#[test]
fn r06_4_member_of_the_sdk_that_stood_still_comes_back_as_another() {
    let site = Site::new()
        .with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
        .with("cluster.timeouts.session_timeout", "\"2 s\"");
    let mut scene = Scene::new(site, 2, 100);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| builder);
    let held = application.take(&mut consumer, 10);
    let before = consumer.member().expect("it is a member");
    let standstill = application.stand_still();
    let mut other = scene.join();
    let deliveries = Deliveries::default();
    until("the other has read everything", || {
        scene.admin.ping();
        other.turn(&deliveries).expect("it is a member");
        let owned = other.owned().len();
        let lag = scene.group.details(&mut scene.admin).partitions;
        let mut lag = lag.iter().map(|one| one.progress.as_ref());
        (owned == 2 && lag.all(|one| one.is_ok_and(|one| one.lag == 0))).then_some(())
    });
    assert_eq!(deliveries.repeated(), 0);
    drop(standstill);
    until("it is a member again", || {
        scene.admin.ping();
        other.turn(&deliveries).expect("it is a member");
        let next = application.run(async { timeout(LOOK, consumer.next()).await });
        if let Ok(next) = next {
            next.expect("it goes on").expect("nothing fails");
        }
        (consumer.member() > Some(before) && other.owned().len() == 1).then_some(())
    });
    // Too late: these were of the member that it was.
    for message in &held {
        message.ack();
    }
    assert_eq!((scene.next(0), scene.next(1)), (100, 100));
    let theirs = 1 - other.owned()[0];
    let end = scene.append(theirs, 10);
    let mut offsets = Vec::new();
    until("it reads what is sent", || {
        other.turn(&deliveries).expect("it is a member");
        let next = application.run(async { timeout(LOOK, consumer.next()).await });
        if let Ok(next) = next {
            let message = next.expect("it goes on").expect("nothing fails");
            assert_eq!(message.partition().0, theirs);
            offsets.push(message.offset().0);
        }
        (offsets.last() == Some(&(end - 1))).then_some(())
    });
    assert_eq!(offsets, (100..end).collect::<Vec<_>>());
}

/// Offsets of the messages until that before `end`.
fn read_up_to(application: &Application, consumer: &mut GroupConsumer, end: u64) -> Vec<u64> {
    let mut offsets = Vec::new();
    while offsets.last() != Some(&(end - 1)) {
        let messages = application.take(consumer, 1);
        offsets.push(messages[0].offset().0);
    }
    offsets
}

#[test]
fn r43_2_member_of_the_sdk_whose_group_was_deleted_says_so() {
    let mut scene = Scene::new(hasty(), 1, 1);
    let application = Application::start(&scene);
    // It would make one that is missing, but none in the place of the one that it was in.
    let mut consumer = application.join(&scene, |builder| {
        builder.create_if_missing(GroupOptions::default())
    });
    application.take(&mut consumer, 1);
    scene.group.delete(&mut scene.admin, true).expect("forced");
    let error = failure(&application, &mut consumer);
    assert_eq!(
        error.code(),
        Some(ErrorCode::ConsumerGroupNotFound),
        "{error:?}"
    );
    assert!(application.run(consumer.next()).is_none());
    // Nobody has made one.
    let gone = scene.group.describe(&mut scene.admin).expect_err("gone");
    assert_eq!(gone.code, ErrorCode::ConsumerGroupNotFound);
    let again = Group::create(&mut scene.admin, &scene.topic, "billing", DEFAULT_OPTIONS);
    let again = again.expect("the name is free");
    assert_eq!(Member::join(scene.address(), &again).owned(), [0]);
}
