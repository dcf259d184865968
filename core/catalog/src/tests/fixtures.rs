//! Bytes that earlier versions wrote, which every later one must read; and bytes that nobody wrote.

use std::{format, fs, path::PathBuf, string::String, vec::Vec};

use proptest::{collection::vec, prelude::any, proptest};
use wire::{
    ClientId, ConsensusGroup, EvictionReason, Op, PartitionId, SessionNumber, StreamId, TopicId,
    UserId,
};

use super::{CONFIG, Run, group_fixtures::of_groups, named, password};
use crate::{
    Catalog, CatalogSnapshot, FormerLimits, Limits, Operation, PasswordHash, RestoreError,
    SecretHash,
};

/// Written before there were consumer groups, for the state that [`scenario`] makes.
const SNAPSHOT_1: &[u8] = include_bytes!("../../fixtures/snapshot-1.rmp");

/// One line per operation: kind and body in hexadecimal digits, in the order of [`one_of_each`].
const OPERATIONS: &str = include_str!("../../fixtures/operations.txt");

/// One operation of each kind, with every form that a field can take.
pub(crate) fn one_of_each() -> Vec<Operation> {
    let mut operations = one_of_each_former();
    operations.extend(of_groups());
    operations.extend(of_purges());
    operations
}

/// Those that there were before there were consumer groups.
fn one_of_each_former() -> Vec<Operation> {
    let operations = [of_users(), of_sessions(), of_streams(), of_topics()];
    operations.into_iter().flatten().collect()
}

fn of_purges() -> [Operation; 2] {
    [
        Operation::PurgeStream {
            by: UserId(2),
            stream: named("orders"),
        },
        Operation::PurgeTopic {
            by: UserId(2),
            stream: StreamId(1).into(),
            topic: named("invoices"),
        },
    ]
}

fn of_users() -> Vec<Operation> {
    let by = UserId::ROOT;
    [
        Operation::SetFormerLimits {
            limits: FormerLimits {
                sessions: 100,
                ..Limits::INITIAL.former()
            },
        },
        Operation::CreateRoot {
            password_hash: password("root's"),
        },
        Operation::CreateUser {
            by,
            name: "Zoë".into(),
            password_hash: password("Zoë's"),
        },
        Operation::DeleteUser {
            by,
            user: UserId(7).into(),
        },
        Operation::UpdateUser {
            by,
            user: named("Zoë"),
            name: Some("zoe".into()),
            active: Some(true),
        },
        Operation::UpdateUser {
            by,
            user: named("Zoë"),
            name: None,
            active: None,
        },
        Operation::ChangePassword {
            by,
            user: UserId(2).into(),
            password_hash: password("changed"),
            verified: Op(2),
        },
    ]
    .into()
}

fn of_sessions() -> Vec<Operation> {
    [
        Operation::Register {
            client: ClientId(0x0102_0304_0506_0708_090A_0B0C_0D0E_0F10),
            user: UserId(2),
            verified: Op(7),
            secret_hash: SecretHash([0xC5; 32]),
        },
        Operation::Logout {
            client: ClientId(9),
            session: SessionNumber(12),
        },
        Operation::EndSessions {
            sessions: [
                (ClientId(10), SessionNumber(13)),
                (ClientId(11), SessionNumber(14)),
            ]
            .to_vec(),
            reason: EvictionReason::Disconnected,
        },
    ]
    .into()
}

fn of_streams() -> Vec<Operation> {
    let by = UserId::ROOT;
    [
        Operation::CreateStream {
            by,
            name: "orders".into(),
        },
        Operation::DeleteStream {
            by,
            stream: StreamId(u64::MAX).into(),
        },
        Operation::UpdateStream {
            by,
            stream: named("orders"),
            name: "sales".into(),
        },
    ]
    .into()
}

fn of_topics() -> Vec<Operation> {
    let by = UserId::ROOT;
    [
        Operation::CreateTopic {
            by,
            stream: named("sales"),
            name: "payments".into(),
            partitions: 5,
        },
        Operation::DeleteTopic {
            by,
            stream: named("orders"),
            topic: named("payments"),
        },
        Operation::UpdateTopic {
            by,
            stream: StreamId(1).into(),
            topic: TopicId(1).into(),
            name: "invoices".into(),
        },
        Operation::CreatePartitions {
            by,
            stream: StreamId(1).into(),
            topic: named("invoices"),
            count: 2,
        },
        Operation::DeletePartitions {
            by,
            stream: named("orders"),
            topic: TopicId(2).into(),
            count: u32::MAX,
        },
    ]
    .into()
}

/// A state in which nothing is empty and every counter is above what exists, but there are no consumer
/// groups.
pub(super) fn scenario() -> Run {
    let mut run = Run::empty();
    for operation in one_of_each_former() {
        run.apply(&operation);
    }
    let ann = run.create_user("ann");
    run.accept(Operation::UpdateUser {
        by: UserId::ROOT,
        user: ann.into(),
        name: None,
        active: Some(false),
    });
    run.log_in(20, UserId::ROOT);
    run.log_in(u128::MAX, UserId(2));
    run.create_stream("gone");
    run.create_topic("gone", "gone", 3);
    run.create_stream("empty");
    run.create_topic("sales", "refunds", 2);
    run.create_topic("sales", "gone", 1);
    for operation in [
        Operation::DeleteStream {
            by: UserId::ROOT,
            stream: named("gone"),
        },
        Operation::DeleteTopic {
            by: UserId::ROOT,
            stream: named("sales"),
            topic: named("gone"),
        },
        Operation::DeletePartitions {
            by: UserId::ROOT,
            stream: named("sales"),
            topic: named("invoices"),
            count: 3,
        },
    ] {
        run.accept(operation);
    }
    run
}

pub(super) fn decode(bytes: &[u8]) -> CatalogSnapshot {
    rmp_serde::from_slice(bytes).expect("the fixture is a snapshot")
}

fn operation_lines() -> String {
    let line = |operation: &Operation| {
        let body = operation.encode();
        let digits: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {digits}\n", operation.kind())
    };
    one_of_each().iter().map(line).collect()
}

#[test]
fn snapshot_of_version_1_is_read() {
    let restored = Catalog::restore(CONFIG, decode(SNAPSHOT_1)).unwrap();
    let run = scenario();
    assert_eq!(restored, run.catalog);
    assert_eq!(restored.digest(), run.catalog.digest());
    // Replicas of different versions compare digests.
    assert_eq!(
        restored.digest(),
        256_932_888_705_892_715_289_628_076_224_587_104_279
    );
}

#[test]
fn operations_are_read_and_written_as_ever() {
    assert_eq!(operation_lines(), OPERATIONS);
    for (line, operation) in OPERATIONS.lines().zip(one_of_each()) {
        let (kind, digits) = line.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let body: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let decoded = Operation::decode(kind.parse().unwrap(), body.into());
        assert_eq!(decoded, Ok(operation));
    }
}

#[test]
#[ignore = "writes the fixtures anew: only for kinds that no release has written"]
fn fixtures_are_written() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    fs::write(directory.join("operations.txt"), operation_lines()).unwrap();
}

#[test]
fn snapshot_of_a_later_version_is_refused() {
    let mut snapshot = decode(SNAPSHOT_1);
    snapshot.version = 2;
    let refused = Catalog::restore(CONFIG, snapshot).unwrap_err();
    assert_eq!(refused, RestoreError::Version { version: 2 });
    assert_eq!(
        format!("{refused}"),
        "snapshot version 2 is above 1, the highest that this version reads"
    );
}

/// Changes a snapshot that was read.
pub(super) type Edit = fn(&mut CatalogSnapshot);

/// Changes to the fixture, each of which makes another state of it.
const OTHER_STATES: &[Edit] = &[
    |s| s.applied.0 += 1,
    |s| s.limits.users += 1,
    |s| s.limits.sessions += 1,
    |s| s.limits.streams += 1,
    |s| s.limits.topics_per_stream += 1,
    |s| s.limits.partitions_per_topic += 1,
    |s| s.limits.partitions += 1,
    |s| s.limits.consumer_groups_per_topic += 1,
    |s| s.limits.members_per_group += 1,
    |s| s.limits.memberships_per_session += 1,
    |s| s.next_user.0 += 1,
    |s| s.users[1].name.push('x'),
    |s| s.users[1].password_hash = PasswordHash("x".into()),
    |s| s.users[1].password_op.0 += 1,
    |s| s.users[2].active = true,
    |s| s.users[1].created.0 += 1,
    |s| s.users.truncate(2),
    |s| s.sessions[0].client.0 += 1,
    |s| s.sessions[0].number.0 -= 1,
    |s| s.sessions[0].user.0 += 1,
    |s| s.sessions[0].secret_hash.0[31] ^= 1,
    |s| s.sessions[0].registered.0 += 1,
    |s| s.sessions.truncate(1),
    |s| s.next_stream.0 += 1,
    |s| s.streams[0].name.push('x'),
    |s| s.streams[0].created.0 += 1,
    |s| s.streams[0].next_topic.0 += 1,
    |s| s.streams.truncate(1),
    |s| s.streams[0].topics[0].name.push('x'),
    |s| s.streams[0].topics[0].created.0 += 1,
    |s| s.streams[0].topics.truncate(1),
    |s| s.streams[0].topics[0].partitions[0].incarnation.0 -= 1,
    |s| s.streams[0].topics[0].partitions[0].group.0 = 3,
    |s| s.streams[0].topics[0].partitions.truncate(1),
];

#[test]
fn every_part_of_the_state_is_in_the_digest() {
    let mut digests = [scenario().catalog.digest()].to_vec();
    for change in OTHER_STATES {
        let mut snapshot = decode(SNAPSHOT_1);
        change(&mut snapshot);
        let catalog = Catalog::restore(CONFIG, snapshot).unwrap();
        assert!(
            !digests.contains(&catalog.digest()),
            "change {}",
            digests.len() - 1
        );
        digests.push(catalog.digest());
    }
}

/// Changes to the fixture, each of which no catalog can hold, with what is said of them.
const CONTRADICTIONS: &[(Edit, &str)] = &[
    (|s| s.next_user = UserId(3), "user id 3 with next id 3"),
    (|s| s.users[1].id = UserId(0), "user id 0 with next id 4"),
    (|s| s.users[0].active = false, "user root is deactivated"),
    (
        |s| s.users[1].id = UserId::ROOT,
        "user id 1 or name \"zoe\" is there twice",
    ),
    (
        |s| s.users[1].name = "root".into(),
        "user id 2 or name \"root\" is there twice",
    ),
    (
        |s| s.sessions[0].user = UserId(9),
        "session 21 is of user id 9, who may not log in",
    ),
    (
        |s| s.sessions[0].user = UserId(3),
        "session 21 is of user id 3, who may not log in",
    ),
    (|s| s.sessions[0].number.0 = 99, "session 99 is above op 30"),
    (
        |s| s.sessions[1].client = ClientId(20),
        "client 20 has two sessions",
    ),
    (
        |s| s.next_stream = StreamId(1),
        "stream id 1 with next id 1",
    ),
    (
        |s| s.streams[0].id = StreamId(0),
        "stream id 0 with next id 4",
    ),
    (
        |s| s.streams[1].id = StreamId(1),
        "stream id 1 or name \"empty\" is there twice",
    ),
    (
        |s| s.streams[1].name = "sales".into(),
        "stream id 3 or name \"sales\" is there twice",
    ),
    (
        |s| s.streams[0].next_topic = TopicId(2),
        "topic id 2 with next id 2",
    ),
    (
        |s| s.streams[0].topics[1].id = TopicId(0),
        "topic id 0 with next id 4",
    ),
    (
        |s| s.streams[0].topics[1].id = TopicId(1),
        "topic id 1 or name \"refunds\" is twice in a stream",
    ),
    (
        |s| s.streams[0].topics[1].name = "invoices".into(),
        "topic id 2 or name \"invoices\" is twice in a stream",
    ),
    (
        |s| s.streams[0].topics[0].partitions.clear(),
        "topic \"invoices\" has no partitions",
    ),
    (
        |s| s.streams[0].topics[0].partitions[1].partition = PartitionId(2),
        "topic \"invoices\" has partition 2 where partition 1 belongs",
    ),
    (
        |s| s.streams[0].topics[0].partitions[1].incarnation.0 = 99,
        "partition 1 of topic \"invoices\" was created by op 99, above op 30",
    ),
    (
        |s| s.streams[0].topics[0].partitions[1].group = ConsensusGroup::METADATA,
        "partition 1 of topic \"invoices\" is in data group 0 of 3",
    ),
    (
        |s| s.streams[0].topics[0].partitions[1].group = ConsensusGroup(4),
        "partition 1 of topic \"invoices\" is in data group 4 of 3",
    ),
];

#[test]
fn snapshot_that_contradicts_itself_is_refused() {
    for (change, what) in CONTRADICTIONS {
        let mut snapshot = decode(SNAPSHOT_1);
        change(&mut snapshot);
        let refused = Catalog::restore(CONFIG, snapshot).unwrap_err();
        let text = format!("the snapshot contradicts itself or the configuration: {what}");
        assert_eq!(format!("{refused}"), text);
    }
}

proptest! {
    #[test]
    fn garbled_snapshot_is_no_reason_to_panic(
        garbage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = SNAPSHOT_1.to_vec();
        for (index, value) in garbage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            if let Ok(snapshot) = rmp_serde::from_slice(bytes) {
                let _ = Catalog::restore(CONFIG, snapshot).map(|catalog| catalog.digest());
            }
        }
    }
}
