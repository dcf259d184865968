//! What must hold however the network behaves.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::{ops::Range, time::Duration};

use bytes::Bytes;
use proptest::prelude::{ProptestConfig, Strategy, any, proptest};
use wire::{Offset, PartitionId};

use super::{End, Faults, SECOND, World};
use crate::{
    ConsumerEvent, ProducerInput, PushError, Pushed, Start, StoreMode, Target, random::Random,
};

fn faults() -> impl Strategy<Value = Faults> {
    let rates = (
        0_u64..300,
        0_u64..200,
        0_u64..200,
        0_u64..100,
        0_u64..50,
        0_u64..30,
        0_u64..200,
        0_u64..30,
    );
    rates.prop_map(
        |(refuse_connection, cut, busy, unknown, ignore, forget_sessions, delay_ms, kill)| Faults {
            refuse_connection,
            cut,
            busy,
            unknown,
            ignore,
            forget_sessions,
            delay_ms,
            kill,
        },
    )
}

const CASES: u32 = 64;

/// What was pushed: where it belongs, in which batch, and what it says.
struct Sent {
    /// Where it had to go, if it did.
    wanted: Option<PartitionId>,
    pushed: Pushed,
    payload: u64,
}

/// Pushes a message for each payload, to explicit partitions, by key, and wherever there is room.
fn push_all(world: &mut World, seed: u64, payloads: Range<u64>) -> Vec<Sent> {
    let mut random = Random::new(seed ^ 0xabc);
    let mut pushed: Vec<Sent> = Vec::new();
    for payload in payloads {
        let key = ["", "", "a", "b", "c"][usize::try_from(random.between(0, 4)).unwrap()];
        let last = PartitionId(world.producer.partitions() - 1);
        let target = if random.between(0, 4) == 0 {
            Target::Partition(last)
        } else {
            Target::Placed
        };
        let pushed_to = loop {
            match world.push(target, key, payload) {
                Ok(pushed) => break pushed,
                Err(PushError::Full { .. }) => world.run_for(SECOND / 20),
                Err(error) => panic!("{error}"),
            }
        };
        let wanted = match target {
            Target::Partition(partition) => Some(partition),
            Target::Placed if key.is_empty() => None,
            Target::Placed => Some(wire::partition_of_key(
                key.as_bytes(),
                world.producer.partitions(),
            )),
        };
        pushed.push(Sent {
            wanted,
            pushed: pushed_to,
            payload,
        });
        if random.between(0, 9) == 0 {
            world.run_for(random.between(0, 300) * 1_000_000);
        }
    }
    world.producer.handle(world.time(), ProducerInput::Flush);
    world.pump();
    pushed
}

fn payload_of(bytes: &Bytes) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Where the model holds each message.
fn stored(world: &World) -> BTreeMap<u64, Vec<(PartitionId, Offset)>> {
    let mut stored: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for (index, partition) in world.network.broker.partitions.iter().enumerate() {
        for (offset, payload) in partition.messages() {
            let id = PartitionId(u32::try_from(index).unwrap());
            stored
                .entry(payload_of(&payload))
                .or_default()
                .push((id, offset));
        }
    }
    stored
}

/// Every message that counts as delivered is where its receipt says, once; the others are not there, or
/// were said to be in doubt.
fn check_delivery(world: &World, pushed: &[Sent]) {
    let stored = stored(world);
    for message in pushed {
        let places = stored.get(&message.payload).cloned().unwrap_or_default();
        match &world.ends[&message.pushed.batch] {
            End::Delivered {
                partition,
                base_offset,
                count,
            } => {
                let index = message.pushed.index;
                assert!(index < *count && message.pushed.partition == *partition);
                assert_eq!(
                    places,
                    [(*partition, Offset(base_offset.0 + u64::from(index)))]
                );
                assert!(message.wanted.is_none_or(|wanted| wanted == *partition));
            }
            End::Failed {
                may_be_stored: false,
                ..
            } => assert_eq!(places, []),
            End::Failed {
                may_be_stored: true,
                error,
            } => {
                assert!(places.len() <= 1, "{places:?} {error}");
            }
        }
    }
}

/// In each partition the messages stand in the order in which they were pushed. Those in doubt are left
/// out: a copy that the network held back may come after everything else.
fn check_order(world: &World, pushed: &[Sent]) {
    let delivered = pushed
        .iter()
        .filter(|message| matches!(world.ends[&message.pushed.batch], End::Delivered { .. }));
    let delivered = delivered
        .map(|message| message.payload)
        .collect::<BTreeSet<_>>();
    for partition in &world.network.broker.partitions {
        let payloads = partition
            .messages()
            .into_iter()
            .map(|(_, payload)| payload_of(&payload));
        let payloads = payloads
            .filter(|payload| delivered.contains(payload))
            .collect::<Vec<_>>();
        assert!(payloads.is_sorted(), "{payloads:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn every_message_is_stored_once_and_in_order(
        seed in any::<u64>(), partitions in 1_u32..5, faults in faults(),
    ) {
        let mut world = World::new(seed, partitions, faults);
        let pushed = push_all(&mut world, seed, 0..150);
        world.run_for(20 * SECOND);
        world.network.faults = Faults::default();
        world.run_until(120 * SECOND, |world| world.producer.is_idle());
        assert!(world.ends.values().all(|end| matches!(end, End::Delivered { .. })), "{:?}", world.ends);
        assert_eq!(world.producer.held(), 0);
        check_delivery(&world, &pushed);
        check_order(&world, &pushed);
        world.close();
    }

    #[test]
    fn what_is_given_up_is_told_and_what_follows_is_sound(
        seed in any::<u64>(), partitions in 1_u32..4, faults in faults(),
    ) {
        let mut world = World::with(seed, partitions, faults, |config| {
            config.delivery_timeout = Duration::from_millis(1_500);
            config.request_timeout = Duration::from_millis(700);
        });
        let pushed = push_all(&mut world, seed, 0..150);
        world.run_until(120 * SECOND, |world| world.producer.is_idle());
        // What was cut off may still be on its way to the broker.
        world.run_for(10 * SECOND);
        assert_eq!(world.producer.held(), 0);
        check_delivery(&world, &pushed);
        check_order(&world, &pushed);
    }

    #[test]
    fn a_partition_that_forgets_its_producers_stores_nothing_twice(
        seed in any::<u64>(), busy in 0_u64..300, delay_ms in 0_u64..200,
    ) {
        // Without lost answers: a batch in doubt cannot be told from a new one any more.
        let mut world = World::new(seed, 2, Faults { busy, delay_ms, ..Faults::default() });
        let mut random = Random::new(seed);
        let mut pushed = Vec::new();
        for round in 0..6 {
            pushed.extend(push_all(&mut world, seed ^ round, round * 20..round * 20 + 20));
            world.network.broker.forget_producers(usize::try_from(random.between(0, 1)).unwrap());
            world.run_for(random.between(0, 1_000) * 1_000_000);
        }
        world.network.faults = Faults::default();
        world.run_until(120 * SECOND, |world| world.producer.is_idle());
        assert!(world.ends.values().all(|end| matches!(end, End::Delivered { .. })), "{:?}", world.ends);
        check_delivery(&world, &pushed);
        check_order(&world, &pushed);
    }

    #[test]
    fn a_consumer_sees_every_offset_once_and_in_order(
        seed in any::<u64>(), partitions in 1_u32..5, faults in faults(),
    ) {
        let mut world = World::new(seed, partitions, faults);
        world.restart_consumer(|_| {});
        push_all(&mut world, seed, 0..100);
        let mut random = Random::new(seed);
        let total = |world: &World| world.network.broker.partitions.iter().map(|p| p.next).sum::<u64>();
        for round in 0.. {
            assert!(round < 2_000, "{} of {}", world.received.len(), total(&world));
            if round == 200 {
                world.network.faults = Faults::default();
            }
            for _ in 0..random.between(0, 6) {
                world.receive();
            }
            world.run_for(SECOND / 10);
            let done = u64::try_from(world.received.len()).unwrap() == total(&world);
            if done && world.producer.is_idle() {
                break;
            }
        }
        check_reading(&world, &world.received);
        // All that was handed out and asked beyond is stored in the end.
        assert_eq!(world.receive(), None);
        world.network.faults = Faults::default();
        world.run_until(60 * SECOND, |world| world.consumer.as_ref().unwrap().is_stored());
        for partition in &world.network.broker.partitions {
            let expected = partition.next.checked_sub(1).map(Offset);
            assert_eq!(partition.stored.get("reader").copied(), expected);
        }
    }

    #[test]
    fn restarts_repeat_but_never_skip(
        seed in any::<u64>(), partitions in 1_u32..4, faults in faults(),
    ) {
        let mut world = World::new(seed, partitions, faults);
        push_all(&mut world, seed, 0..60);
        world.run_for(20 * SECOND);
        world.network.faults = Faults::default();
        world.run_until(120 * SECOND, |world| world.producer.is_idle());
        world.network.faults = faults;
        let mut random = Random::new(seed);
        let mut processed = BTreeSet::new();
        for round in 0..30 {
            if round == 20 {
                world.network.faults = Faults::default();
            }
            world.restart_consumer(|_| {});
            world.received.clear();
            let mut before: Option<(PartitionId, Offset)> = None;
            for _ in 0..random.between(1, 40) {
                world.run_for(SECOND / 20);
                let delivery = world.receive();
                processed.extend(before.take());
                before = delivery.map(|delivery| (delivery.partition, delivery.message.offset));
            }
            // The process is killed while it handles the last message: it is not processed.
            for (index, partition) in world.network.broker.partitions.iter().enumerate() {
                let id = PartitionId(u32::try_from(index).unwrap());
                let through = partition.stored.get("reader").map_or(0, |stored| stored.0 + 1);
                for offset in 0..through {
                    assert!(processed.contains(&(id, Offset(offset))), "{id}/{offset} was skipped");
                }
            }
            check_reading(&world, &world.received);
        }
    }

    #[test]
    fn delivery_at_most_once_repeats_nothing(
        seed in any::<u64>(), partitions in 1_u32..4, faults in faults(),
    ) {
        let mut world = World::new(seed, partitions, Faults::default());
        push_all(&mut world, seed, 0..60);
        world.run_until(120 * SECOND, |world| world.producer.is_idle());
        world.network.faults = faults;
        let mut seen = BTreeSet::new();
        for _ in 0..12 {
            world.restart_consumer(|config| config.store = StoreMode::BeforeDelivery);
            world.received.clear();
            for _ in 0..20 {
                world.run_for(SECOND / 20);
                world.receive();
            }
            for (partition, offset, _) in &world.received {
                assert!(seen.insert((*partition, *offset)), "{partition}/{offset} came twice");
            }
        }
    }
}

/// What a consumer received is, per partition, one run of the partition's messages.
fn check_reading(world: &World, received: &[(PartitionId, Offset, Bytes)]) {
    for (index, partition) in world.network.broker.partitions.iter().enumerate() {
        let id = PartitionId(u32::try_from(index).unwrap());
        let own = received.iter().filter(|(partition, ..)| *partition == id);
        let own = own
            .map(|(_, offset, payload)| (*offset, payload.clone()))
            .collect::<Vec<_>>();
        let Some((first, _)) = own.first() else {
            continue;
        };
        let messages = partition.messages();
        let from = usize::try_from(first.0).unwrap();
        assert_eq!(own[..], messages[from..from + own.len()]);
    }
}

#[test]
fn faults_strike() {
    let faults = Faults {
        cut: 100,
        delay_ms: 20,
        ..Faults::default()
    };
    let mut world = World::new(1, 2, faults);
    push_all(&mut world, 1, 0..100);
    world.run_until(120 * SECOND, |world| world.producer.is_idle());
    assert!(world.network.cuts > 3);
    assert_eq!(world.network.broker.logins, 1);
}

/// Without any other fault, so that what is seen comes of the deaths alone.
#[test]
fn nodes_that_die_and_come_back_cost_a_moment_and_no_session() {
    let faults = Faults {
        kill: 60,
        ..Faults::default()
    };
    let mut world = World::new(1, 4, faults);
    world.restart_consumer(|_| {});
    let mut pushed = Vec::new();
    for round in 0..100 {
        pushed.extend(push_all(&mut world, round, round * 10..round * 10 + 10));
        world.run_for(SECOND / 10);
        while world.receive().is_some() {}
    }
    world.network.faults = Faults::default();
    world.run_until(5 * SECOND, |world| world.producer.is_idle());
    for _ in 0..100 {
        world.run_for(SECOND / 20);
        while world.receive().is_some() {}
    }
    assert!(world.network.deaths >= 3, "{}", world.network.deaths);
    assert_eq!(world.network.broker.logins, 1);
    check_delivery(&world, &pushed);
    check_order(&world, &pushed);
    check_reading(&world, &world.received);
    assert_eq!(world.received.len(), pushed.len());
    // Polls are split by nodes: few are refused, right after a change.
    assert!(world.network.broker.refused_elsewhere < 20 * world.network.deaths);
}

/// With a dead node the next batch is stored as soon as somebody leads, give or take a few milliseconds.
#[test]
fn what_is_sent_after_a_death_waits_for_the_next_primary_and_no_longer() {
    for seed in 0..20 {
        let mut world = World::new(seed, 1, Faults::default());
        push_all(&mut world, seed, 0..5);
        world.run_until(SECOND, |world| world.producer.is_idle());
        world.run_for(SECOND);
        world.network.faults.kill = 1_000;
        world.push(Target::Placed, "", 1_000).unwrap();
        world.producer.handle(world.time(), ProducerInput::Flush);
        world.pump();
        world.network.faults.kill = 0;
        let before = world.now;
        world.run_until(SECOND, |world| world.producer.is_idle());
        let waited = (world.now - before) / 1_000_000;
        assert!(waited <= 160, "{waited} ms");
    }
}

#[test]
fn partitions_that_are_added_are_read_from_their_first_message() {
    let mut world = World::new(1, 1, Faults::default());
    push_all(&mut world, 1, 0..10);
    world.run_until(SECOND, |world| world.producer.is_idle());
    world.restart_consumer(|config| {
        config.start = Start::Last(0);
        config.refresh_interval = Duration::from_secs(1);
    });
    world.run_for(SECOND / 2);
    world.network.broker.add_partition();
    world.run_for(90 * SECOND);
    assert_eq!(world.producer.partitions(), 2);
    world
        .push(Target::Partition(PartitionId(1)), "", 500)
        .unwrap();
    world.run_for(SECOND);
    let delivery = world.receive().unwrap();
    assert_eq!(
        (delivery.partition, delivery.message.offset),
        (PartitionId(1), Offset(0))
    );
    assert_eq!(world.receive(), None);
}

#[test]
fn retention_is_told_and_reading_goes_on() {
    let mut world = World::new(1, 1, Faults::default());
    push_all(&mut world, 1, 0..20);
    world.run_until(SECOND, |world| world.producer.is_idle());
    world.restart_consumer(|config| {
        config.start = Start::Offset(Offset(2));
        config.poll_size_max = 100;
        config.buffer_size_max = 100;
    });
    // What is fetched ahead is limited, so most of it is not fetched yet.
    world.run_for(SECOND / 10);
    world.receive().unwrap();
    world.network.broker.partitions[0].start = 18;
    let mut offsets = Vec::new();
    for _ in 0..60 {
        offsets.extend(world.receive().map(|delivery| delivery.message.offset.0));
        world.run_for(SECOND / 50);
    }
    assert_eq!(offsets.last(), Some(&19));
    let skipped = world.events.iter().find_map(|event| {
        if let ConsumerEvent::Skipped { from, to, .. } = event {
            Some((from.0, to.0))
        } else {
            None
        }
    });
    let (from, to) = skipped.expect("the gap is told");
    assert_eq!(to, 18);
    assert!(offsets.contains(&(from - 1)) && !offsets.contains(&from));
}

#[test]
fn a_login_that_is_executed_late_does_not_end_the_session_that_came_after_it() {
    let mut world = World::new(1, 1, Faults::default());
    // The first is given up after 10 s.
    world.network.late_logins = alloc::vec![11 * SECOND];
    push_all(&mut world, 1, 0..1);
    world.run_until(15 * SECOND, |world| world.producer.is_idle());
    assert_eq!(world.network.broker.logins, 1);
    world.run_for(5 * SECOND);
    assert_eq!(world.network.broker.logins, 2);
    push_all(&mut world, 1, 1..2);
    world.run_until(SECOND, |world| world.producer.is_idle());
    assert_eq!((world.losses, world.network.broker.logins), (0, 2));
}
