//! R09: an offset that cannot be told at this moment is never told as if there were none.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use cohort::StoreMode;
use integration::{
    Connection, DEFAULT_OPTIONS, Group, NODES, PATIENCE, patient_client, repetitions, until,
};
use wire::{ErrorCode, Offset, Reply};

use crate::{
    PARTITIONS, again, in_step,
    stage::{Stage, others, store, stored_in},
};

/// Between two looks of who asks again and again.
const PAUSE: Duration = Duration::from_millis(20);

/// Messages of each partition.
const EACH: u64 = 12;

/// What the group with this number has stored in a partition.
fn stored_by(number: u64, partition: u32) -> u64 {
    (number * 7 + u64::from(partition)) % EACH
}

/// Groups, each with an offset in every partition.
fn groups(stage: &Stage, count: u32) -> Vec<Group> {
    let mut admin = stage.cluster.login(0);
    let groups = (0..count).map(|number| {
        let name = format!("group-{number}");
        let group = Group::create(&mut admin, &stage.topic, &name, DEFAULT_OPTIONS);
        let group = group.expect("make a group");
        let mut member = stage.join_group(number as usize % NODES, &group);
        member.wait_for(PARTITIONS as usize);
        for partition in 0..PARTITIONS {
            let offset = stored_by(number.into(), partition);
            store(&mut member, partition, offset);
        }
        member.leave().expect("it is a member");
        group
    });
    groups.collect()
}

/// Asks a node for every offset of every group, again and again. What it tells is counted, and must be right.
fn watch(address: SocketAddr, groups: &[Group], done: &AtomicBool, told: &AtomicU64) {
    while !done.load(Ordering::SeqCst) {
        if let Ok(mut connection) = Connection::try_login(address) {
            while !done.load(Ordering::SeqCst) && look(&mut connection, groups, told).is_some() {
                thread::sleep(PAUSE);
            }
        }
        thread::sleep(PAUSE);
    }
}

/// One round; none when the connection was lost.
fn look(connection: &mut Connection, groups: &[Group], told: &AtomicU64) -> Option<()> {
    for (number, group) in (0..).zip(groups) {
        for partition in 0..PARTITIONS {
            let answer = connection.try_ask(group.offsets_of(&[partition]))?;
            let section = match answer {
                Ok(Reply::Offsets(mut offsets)) => offsets.sections.pop().expect("one is told"),
                Ok(other) => panic!("{other:?}"),
                Err(failure) => {
                    assert!(failure.code.retryable(), "{failure}");
                    continue;
                }
            };
            match section.status {
                Ok(()) => {
                    let expected = Offset(stored_by(number, partition));
                    assert_eq!(
                        section.stored,
                        Some(expected),
                        "group {number}, {partition}"
                    );
                    told.fetch_add(1, Ordering::SeqCst);
                }
                Err(failure) => assert!(failure.code.retryable(), "{failure}"),
            }
        }
    }
    Some(())
}

#[test]
fn r09_1_2_offset_is_told_as_it_is_or_not_at_all_while_primaries_die() {
    let mut stage = Stage::new(EACH);
    let groups = groups(&stage, repetitions(6, 50) + 1);
    let (read, groups) = groups.split_last().expect("there are some");
    let read = (groups.len() as u64, read, stage.cluster.url(1));
    let (done, told, rounds) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let addresses: Vec<SocketAddr> = (0..NODES).map(|node| stage.cluster.address(node)).collect();
    thread::scope(|scope| {
        // Whatever fails here, the others end.
        let end = End(&done);
        let watchers: Vec<_> = addresses
            .iter()
            .map(|address| scope.spawn(|| watch(*address, groups, &done, &told)))
            .collect();
        let reader = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                expect_behind_stored(&read);
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        for round in 0..repetitions(3, 20) {
            let ask = round as usize % NODES;
            let victim = match round % 2 {
                0 => stage.leader(ask),
                _ => stage.leader_of(round % PARTITIONS, ask),
            };
            stage.kill(victim);
            wait_for_more(&told, 300);
            wait_for_more(&rounds, 1);
            // 3: of a node that has just begun nothing else is heard, either.
            stage.cluster.start_in_order(&[victim]);
            wait_for_more(&told, 300);
        }
        drop(end);
        reader.join().expect("every delivery is right");
        for watcher in watchers {
            watcher.join().expect("every answer is right");
        }
    });
    in_step(&stage.cluster, &[0, 1, 2]);
    expect_behind_stored(&read);
}

/// Tells others to end when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Waits until so many further answers were right.
fn wait_for_more(counted: &AtomicU64, count: u64) {
    let goal = counted.load(Ordering::SeqCst) + count;
    until("further answers are right", || {
        (counted.load(Ordering::SeqCst) >= goal).then_some(())
    });
}

/// A member of the group with this number gets all that is behind what is stored, and nothing else.
fn expect_behind_stored((number, group, url): &(u64, &Group, String)) {
    let mut delivered = consume(url, group, *number);
    delivered.sort_unstable();
    delivered.dedup();
    let expected = (0..PARTITIONS).flat_map(|partition| {
        let behind = stored_by(*number, partition) + 1..EACH;
        behind.map(move |offset| (partition, offset))
    });
    assert!(delivered.iter().copied().eq(expected), "{delivered:?}");
}

/// What a consumer of the SDK gets for a group that reads from the start where nothing is stored. It stores nothing.
fn consume(url: &str, group: &Group, number: u64) -> Vec<(u32, u64)> {
    let wire::Identifier::Name(name) = &group.name else {
        panic!("it has a name");
    };
    let expected: u64 = (0..PARTITIONS)
        .map(|partition| EACH - 1 - stored_by(number, partition))
        .sum();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("make a runtime");
    runtime.block_on(async {
        let client = patient_client(url).await;
        let consumer = client.consumer_group("orders", "orders", name.as_str());
        let consumer = consumer.store(StoreMode::Manual).build().await;
        let mut consumer = consumer.expect("join");
        let mut delivered = Vec::new();
        while (delivered.iter().collect::<BTreeSet<_>>().len() as u64) < expected {
            let next = tokio::time::timeout(PATIENCE, consumer.next()).await;
            let message = next
                .expect("all is delivered")
                .expect("it goes on")
                .expect("it is read");
            delivered.push((message.partition().0, message.offset().0));
        }
        client.close().await;
        delivered
    })
}

#[test]
fn r09_3_backup_and_node_that_has_just_started_do_not_tell_of_nothing() {
    let mut stage = Stage::new(EACH);
    let groups = groups(&stage, 1);
    for round in 0..repetitions(2, 20) {
        let backup = others(stage.leader_of(0, 0))[round as usize % 2];
        stage.kill(backup);
        let process = stage.cluster.launch(backup);
        // From the first moment that it takes a connection.
        let address = stage.cluster.address(backup);
        let told = until("it tells the offset", || {
            let mut connection = match Connection::try_login(address) {
                Ok(connection) => connection,
                Err(refused) => {
                    let is_early = refused.is_none_or(|refused| refused.code.retryable());
                    assert!(is_early);
                    return None;
                }
            };
            match stored_in(&mut connection, &groups[0], 0) {
                Ok(stored) => Some(stored),
                Err(failure) => {
                    assert!(failure.code.retryable(), "{failure}");
                    None
                }
            }
        });
        assert_eq!(told, Some(Offset(stored_by(0, 0))));
        stage.cluster.adopt(backup, process);
    }
}

#[test]
fn r09_4_absurd_offsets_are_refused_on_every_node_and_change_nothing() {
    let stage = Stage::new(EACH);
    for node in 0..NODES {
        let mut member = stage.join(node);
        member.wait_for(PARTITIONS as usize);
        for absurd in [EACH, 1 << 63, u64::MAX - 1, u64::MAX] {
            let refused = until("it is refused", || match member.store(0, absurd) {
                Err(failure) if failure.code.retryable() => None,
                other => Some(other),
            });
            let refused = refused.expect_err("there is no such message");
            assert_eq!(refused.code, ErrorCode::OffsetOutOfRange, "{refused}");
        }
        let stored = again("it is told", || {
            stored_in(&mut member.connection, &stage.group, 0)
        });
        assert_eq!(stored, None);
        member.leave().expect("it is a member");
    }
}
