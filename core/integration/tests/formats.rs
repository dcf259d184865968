//! Data directories as they were written once: whatever comes later reads them.
//!
//! A kept directory is never changed. With a format that is new, one more is written:
//! `COHORT_WRITE_FORMAT=tests/formats/directory-3.txt cargo nextest run -p integration directory_of_today`.

use std::{env, fs, path::Path};

use bytes::Bytes;
use integration::{
    Connection, DEFAULT_OPTIONS, Group, Member, Site, fill, message, pack, send, unpack,
};
use wire::{
    Acknowledgement, Batch, BatchBuilder, CreateUser, GetTopic, Login, Message, Offset, Password,
    ProducerId, Reply, TopicDetails,
};

/// Every directory that was kept, the oldest first.
const KEPT: &[(&str, &str)] = &[
    ("directory-1", include_str!("formats/directory-1.txt")),
    ("directory-2", include_str!("formats/directory-2.txt")),
];

/// Messages of each partition.
const COUNTS: [u64; 2] = [60, 40];

/// The producer that numbers its batches, and where its batch is.
const PRODUCER: ProducerId = ProducerId(77);
const NUMBERED: Offset = Offset(COUNTS[1]);

const CONSUMER: &str = "billing";
const STORED: Offset = Offset(23);
const GROUP: &str = "auditors";
const GROUP_STORED: u64 = 29;
const ANN: (&str, &str) = ("ann", "ann's own password");

#[test]
fn kept_directories_are_read_and_written_on() {
    for (name, text) in KEPT {
        let site = Site::new();
        unpack(text, site.data());
        expect_all(&site, name);
    }
}

#[test]
fn directory_of_today_is_read_and_written_on() {
    let site = Site::new();
    write_all(&site);
    // The lock file says who ran here last.
    fs::remove_file(site.data().join("lock")).unwrap_or_default();
    let text = pack(site.data());
    if let Ok(path) = env::var("COHORT_WRITE_FORMAT") {
        let about = "# A data directory, see formats.rs: blocks in hexadecimal digits, then files as block*times.\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        fs::write(path, format!("{about}{text}")).expect("write the directory down");
    }
    let copy = Site::new();
    unpack(&text, copy.data());
    expect_all(&copy, "today's");
}

/// Something of everything that is durable. Snapshots are kept beside the state machines that write them.
fn write_all(site: &Site) {
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 2);
    for (partition, count) in (0..).zip(COUNTS) {
        fill(&mut connection, &topic, (partition, 0, count), 10);
    }
    let sent = connection.ask(send(&topic, 1, numbered(), Acknowledgement::Quorum));
    assert_eq!(base_of(&sent.expect("it is appended")), NUMBERED);
    let stored = connection.store(&topic, 0, CONSUMER, STORED);
    assert_eq!(stored, Ok(Some(STORED)));

    let group = Group::create(&mut connection, &topic, GROUP, DEFAULT_OPTIONS).expect("a group");
    let mut member = Member::join(server.address(), &group);
    member.wait_for(2);
    for partition in 0..2 {
        member.poll(partition, 30).expect("its partition");
        let stored = member.store(partition, GROUP_STORED);
        assert_eq!(stored, Ok(Some(Offset(GROUP_STORED))));
    }
    member.leave().expect("it leaves");
    let user = CreateUser {
        name: ANN.0.into(),
        password: Password(ANN.1.into()),
    };
    connection.ask(user).expect("make a user");

    drop(connection);
    server.stop();
}

/// Reads all that was written, and goes on from there.
fn expect_all(site: &Site, name: &str) {
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = topic(&mut connection);
    for (partition, count) in (0..).zip(COUNTS) {
        let page = connection
            .read_from(&topic, partition, Offset(0))
            .expect("it is read");
        let expected = (0..count).map(|offset| (Offset(offset), message(partition, offset)));
        let found = page
            .messages
            .into_iter()
            .take_while(|(offset, _)| offset.0 < count);
        assert!(found.eq(expected), "{name}: partition {partition}");
    }
    let again = connection.ask(send(&topic, 1, numbered(), Acknowledgement::Quorum));
    assert_eq!(
        base_of(&again.expect("it was appended")),
        NUMBERED,
        "{name}"
    );
    let stored = connection
        .stored(&topic, 0, CONSUMER)
        .expect("it is stored");
    assert_eq!(stored.stored, Some(STORED), "{name}");

    let group = Group {
        topic: topic.clone(),
        id: wire::ConsumerGroupId(1),
        name: wire::Identifier::Name(GROUP.into()),
    };
    let stored = group.stored(&mut connection, &[0, 1]);
    let expected = Some(Offset(GROUP_STORED));
    assert_eq!(stored, Ok(vec![expected, expected]), "{name}");
    let mut member = Member::join(server.address(), &group);
    member.wait_for(2);
    let page = member.poll(0, 1).expect("its partition");
    assert_eq!(page.messages[0].0, Offset(GROUP_STORED + 1), "{name}");
    let login = Login {
        name: ANN.0.into(),
        password: Password(ANN.1.into()),
    };
    Connection::open(server.address())
        .ask(login)
        .expect("ann logs in");

    fill(&mut connection, &topic, (0, COUNTS[0], 10), 10);
    drop(connection);
    let _ = server.kill();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let page = connection
        .read_from(&topic, 0, Offset(0))
        .expect("it is read");
    assert_eq!(page.end, Offset(COUNTS[0] + 10), "{name}");
    server.stop();
}

fn topic(connection: &mut Connection) -> TopicDetails {
    let request = GetTopic {
        stream: wire::Identifier::Name("orders".into()),
        topic: wire::Identifier::Name("orders".into()),
    };
    match connection.ask(request) {
        Ok(Reply::Topic(topic)) => topic,
        other => panic!("ask for a topic: {other:?}"),
    }
}

fn numbered() -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(&Message {
        payload: Bytes::from_static(b"once"),
        ..Message::default()
    });
    builder.build(PRODUCER, 1)
}

fn base_of(reply: &Reply) -> Offset {
    let Reply::Sent(sent) = reply else {
        panic!("append: {reply:?}");
    };
    sent.sections[0].base_offset.expect("it succeeded")
}
