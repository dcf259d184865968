//! R31: a full disk. Nothing ends, nothing is acknowledged that is not stored, and everything is taken again
//! when there is space.

use std::time::{Duration, Instant};

use bytes::Bytes;
use integration::{
    Connection, Ledger, Load, PATIENCE, Server, Site, Volume, batch, repetitions, send, until,
};
use wire::{
    Acknowledgement, Command, DeleteTopic, ErrorCode, Failure, Offset, PartitionId, PollStrategy,
    StoreConsumerOffset, StoreSection, TopicDetails,
};

const MIB: u64 = 1 << 20;

/// Partitions of a topic in which one request stores many offsets.
const PARTITIONS: u32 = 500;

/// Requests that are sent before their answers are read.
const WINDOW: usize = 8;

/// "No space" is answered within 1 s; longer here, since the machine may be busy.
const SOON: Duration = Duration::from_secs(5);

/// A server on a disk of 256 MiB, of which it keeps 64 MiB from messages.
fn site(volume: &Volume) -> Site {
    Site::new()
        .with("node.disk_reserve", "\"64 MiB\"")
        .with("cluster.limits.batch_size", "\"1 MiB\"")
        .with("node.connections.bytes_in_flight", "\"2 MiB\"")
        .with_data(&volume.path().join("data"))
}

fn megabyte() -> Vec<Bytes> {
    vec![Bytes::from(vec![7; 10_000]); 100]
}

/// Sends until it is refused; gives the number of batches that were acknowledged.
fn fill(connection: &mut Connection, topic: &TopicDetails, server: &Server) -> u64 {
    for count in 0..2_000 {
        let start = Instant::now();
        let sent = connection.append(topic, 0, &megabyte());
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        match sent {
            Ok(offset) => assert_eq!(offset, Offset(count * 100)),
            Err(failure) => {
                assert_eq!(failure.code, ErrorCode::StorageFull, "{failure}");
                assert!(failure.code.retryable());
                return count;
            }
        }
    }
    panic!("the disk never fills up: {}", server.log().text());
}

/// Appends until it is taken, and says how long that took.
fn appends_again(connection: &mut Connection, topic: &TopicDetails) -> Duration {
    let start = Instant::now();
    until("messages are taken again", || {
        match connection.append(topic, 0, &[Bytes::from("again")]) {
            Ok(_) => Some(()),
            Err(failure) => {
                assert_eq!(failure.code, ErrorCode::StorageFull, "{failure}");
                None
            }
        }
    });
    start.elapsed()
}

fn delete(topic: &TopicDetails) -> DeleteTopic {
    DeleteTopic {
        stream: topic.stream.into(),
        topic: topic.id.into(),
    }
}

/// Steps 1 and 3: full by its own messages. What needs little goes on, from the reserve; deleting makes space.
#[test]
fn r31_1_full_of_messages_it_refuses_them_and_does_everything_else() {
    let Some(volume) = Volume::mount(256) else {
        return;
    };
    let site = site(&volume);
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    let count = fill(&mut connection, &topic, &server);
    assert!(count > 20, "{count}");
    let said = server.log().find("nearly full");
    assert!(said.is_some(), "{}", server.log().text());

    connection.ping();
    let page = connection.poll(&topic, 0, PollStrategy::Offset(Offset(count * 100 - 1)));
    let page = page.expect("messages are read");
    assert_eq!(page.messages.len(), 1);
    assert_eq!(
        page.end,
        Offset(count * 100),
        "what was refused is not there"
    );
    for number in 0..u64::from(repetitions(300, 10_000)) {
        let offset = Offset(number % (count * 100));
        let stored = connection.store(&topic, 0, &format!("c{}", number % 50), offset);
        assert!(stored.is_ok(), "{number}: {stored:?}");
    }
    Connection::login(server.address()).ping();
    let other = connection.create_topic("others", 2);
    let refused = connection.append(&other, 1, &megabyte());
    assert_eq!(
        refused.expect_err("it is full").code,
        ErrorCode::StorageFull
    );

    connection.ask(delete(&topic)).expect("topics are deleted");
    let took = appends_again(&mut connection, &other);
    assert!(took < SOON, "{took:?}");
    let said = server.log().find("has space again");
    assert!(said.is_some(), "{}", server.log().text());
    drop(connection);
    server.stop();
}

/// Step 2: somebody else takes the last byte. Nobody waits for ever, nothing is acknowledged that is not there.
#[test]
fn r31_2_without_a_byte_left_nothing_is_lost_and_nobody_waits_for_ever() {
    let Some(volume) = Volume::mount(256) else {
        return;
    };
    let site = site(&volume);
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", PARTITIONS);
    connection
        .append(&topic, 0, &megabyte())
        .expect("there is space");
    let mut writer = connection.attach();
    volume.occupy(0);
    let refusal = use_journal_up(&mut writer, &topic);
    assert!(
        matches!(
            refusal.code,
            ErrorCode::StorageFull | ErrorCode::OutcomeUnknown
        ),
        "{refusal}"
    );
    let start = Instant::now();
    let refused = writer.store(&topic, 0, "billing", Offset(5));
    assert_eq!(
        refused.expect_err("it is full").code,
        ErrorCode::StorageFull
    );
    let refused = writer.ask(delete(&topic)).expect_err("it is full");
    assert_eq!(refused.code, ErrorCode::StorageFull);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    connection.ping();
    let page = connection.read_from(&topic, 0, Offset(0));
    assert_eq!(page.expect("messages are read").messages.len(), 100);

    volume.vacate();
    let took = appends_again(&mut connection, &topic);
    assert!(took < SOON, "{took:?}");
    assert_eq!(
        connection.store(&topic, 0, "billing", Offset(5)),
        Ok(Some(Offset(5)))
    );
    drop((connection, writer));
    server.stop();
}

/// Stores offsets, which the last file of the journal has room for, until one is refused. In which partitions
/// does not matter: the refusal of an offset is written, too.
fn use_journal_up(connection: &mut Connection, topic: &TopicDetails) -> Failure {
    let sections = (0..PARTITIONS).map(|partition| StoreSection {
        partition: PartitionId(partition),
        epoch: wire::Epoch(0),
        offset: Offset(0),
    });
    let request = StoreConsumerOffset {
        sections: sections.collect(),
        ..integration::store(topic, 0, &"x".repeat(255), Offset(0))
    };
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "the journal finds space");
        for _ in 0..WINDOW {
            connection.post(request.clone()).expect("it is open");
        }
        let mut refusal = None;
        for _ in 0..WINDOW {
            let frame = connection.receive().expect("it is open");
            refusal = frame.reply(Command::StoreConsumerOffset).err().or(refusal);
        }
        if let Some(refusal) = refusal {
            return refusal;
        }
    }
}

/// Steps 3 and 6: producers of the SDK go through it all, and what was acknowledged is there.
#[test]
fn r31_3_producers_go_on_by_themselves_when_there_is_space() {
    let Some(volume) = Volume::mount(256) else {
        return;
    };
    let site = site(&volume);
    let server = site.start();
    let topic = Connection::login(server.address()).create_topic("orders", 4);
    let ledger = Ledger::new(1_000);
    let load = Load::start(&server.url(), &topic, 0..3, &ledger);
    for left in [0, 4 * MIB, 63 * MIB] {
        let before = ledger.acknowledged();
        until("the load is on", || {
            (ledger.acknowledged() > before + 500).then_some(())
        });
        volume.occupy(left);
        until("it is told", || {
            let lines = server.log().lines();
            let last = lines.iter().rfind(|line| line.contains("the disk "));
            last.is_some_and(|line| line.contains("full")).then_some(())
        });
        Connection::open(server.address()).ping();
        volume.vacate();
    }
    let before = ledger.acknowledged();
    until("the load goes on", || {
        (ledger.acknowledged() > before + 500).then_some(())
    });
    load.finish();
    let found = ledger.check(&mut Connection::login(server.address()), &topic);
    assert!(found.acknowledged > before);
    server.stop();
}

/// Step 4: killed while it is full, started while it is full.
#[test]
fn r31_4_start_on_a_full_disk_serves_what_is_there_and_says_what_is_missing() {
    let Some(volume) = Volume::mount(256) else {
        return;
    };
    let site = site(&volume).with("cluster.timeouts.disconnect_grace", "\"10 s\"");
    let server = site.start();
    let address = server.address();
    let site = site.with("node.address", &format!("\"{address}\""));
    let mut connection = Connection::login(address);
    let topic = connection.create_topic("orders", 1);
    for _ in 0..30 {
        connection
            .append(&topic, 0, &megabyte())
            .expect("there is space");
    }
    volume.occupy(0);
    let _ = server.kill();
    volume.occupy(0);
    assert!(volume.free() < 4096);
    let server = site.start();
    let said = server.log().wait_for("full");
    assert!(said.is_some());
    let mut connection = connection
        .try_attach(address)
        .expect("the session is there");
    let page = connection.read_from(&topic, 0, Offset(0));
    assert_eq!(page.expect("messages are read").messages.len(), 3_000);
    let refused = connection.append(&topic, 0, &megabyte());
    assert_eq!(
        refused.expect_err("it is full").code,
        ErrorCode::StorageFull
    );
    volume.vacate();
    let took = appends_again(&mut connection, &topic);
    assert!(took < SOON, "{took:?}");
    drop(connection);
    server.stop();
}

/// SIGTERM does not wait for space.
#[test]
fn r31_server_stops_although_the_disk_is_full() {
    let Some(volume) = Volume::mount(256) else {
        return;
    };
    let site = site(&volume);
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", PARTITIONS);
    let first = [Bytes::from("first")];
    connection
        .append(&topic, 0, &first)
        .expect("there is space");
    volume.occupy(0);
    let _ = use_journal_up(&mut connection, &topic);
    let send = send(&topic, 0, batch(&first), Acknowledgement::Quorum);
    connection.post(send).expect("it is open");
    let ended = server.terminate();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.took < SOON, "{:?}", ended.took);
    volume.vacate();
    let server = site.start();
    let page = Connection::login(server.address()).read_from(&topic, 0, Offset(0));
    let messages = page.expect("messages are read").messages;
    assert_eq!(messages.len(), 1, "the refused one is not there");
    server.stop();
}
