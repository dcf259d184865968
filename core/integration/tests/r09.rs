//! R09: an offset that cannot be told at this moment is never told as if there were none.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

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
    let groups = groups(&stage, repetitions(6, 50));
    let (done, told) = (AtomicBool::new(false), AtomicU64::new(0));
    let addresses: Vec<SocketAddr> = (0..NODES).map(|node| stage.cluster.address(node)).collect();
    thread::scope(|scope| {
        let watchers: Vec<_> = addresses
            .iter()
            .map(|address| scope.spawn(|| watch(*address, &groups, &done, &told)))
            .collect();
        for round in 0..repetitions(3, 20) {
            let ask = round as usize % NODES;
            let victim = match round % 2 {
                0 => stage.leader(ask),
                _ => stage.leader_of(round % PARTITIONS, ask),
            };
            stage.kill(victim);
            wait_for_more(&told);
            // 3: of a node that has just begun nothing else is heard, either.
            stage.cluster.start_in_order(&[victim]);
            wait_for_more(&told);
        }
        done.store(true, Ordering::SeqCst);
        for watcher in watchers {
            watcher.join().expect("every answer is right");
        }
    });
    in_step(&stage.cluster, &[0, 1, 2]);
    let (number, group) = (0, groups[0].clone());
    let delivered = consume(&stage, &group);
    for (partition, offset) in delivered {
        let stored = stored_by(number, partition);
        assert!(
            offset > stored,
            "{offset} of {partition} was stored, {stored} was"
        );
    }
}

/// Waits until some hundred further answers were right.
fn wait_for_more(told: &AtomicU64) {
    let goal = told.load(Ordering::SeqCst) + 300;
    until("offsets are told", || {
        (told.load(Ordering::SeqCst) >= goal).then_some(())
    });
}

/// What a consumer of the SDK gets for a group that reads from the start where nothing is stored.
fn consume(stage: &Stage, group: &Group) -> Vec<(u32, u64)> {
    let wire::Identifier::Name(name) = &group.name else {
        panic!("it has a name");
    };
    let expected: u64 = (0..PARTITIONS)
        .map(|partition| EACH - 1 - stored_by(0, partition))
        .sum();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("make a runtime");
    runtime.block_on(async {
        let client = patient_client(&stage.cluster.url(0)).await;
        let consumer = client.consumer_group("orders", "orders", name.as_str());
        let mut consumer = consumer.build().await.expect("join");
        let mut delivered = Vec::new();
        while (delivered.len() as u64) < expected {
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
