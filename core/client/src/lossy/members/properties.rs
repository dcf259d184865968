//! What must hold however the network and the members behave.

use core::time::Duration;

use proptest::prelude::{ProptestConfig, Strategy, any, proptest};

use super::{Faults, MS, SECOND, World};
use crate::{StoreMode, random::Random};

const CASES: u32 = 48;

fn faults() -> impl Strategy<Value = Faults> {
    let rates = (
        0_u64..60,
        0_u64..100,
        0_u64..500,
        0_u64..60,
        0_u64..300,
        0_u64..150,
    );
    rates.prop_map(
        |(cut, busy, lose_event, lose_answer, repeat, delay_ms)| Faults {
            cut,
            busy,
            lose_event,
            lose_answer,
            repeat,
            delay_ms,
        },
    )
}

/// Starts a member; who processes by itself and who does not is left to chance.
fn start(world: &mut World, random: &mut Random, patient: bool) {
    let manual = random.between(0, 1) == 0;
    world.start(|config| {
        if manual {
            config.store = StoreMode::Manual;
        }
        config.max_poll_interval = (!patient).then_some(Duration::from_secs(4));
    });
}

fn alive(world: &World, random: &mut Random) -> Option<usize> {
    let peers = (0..world.peers.len())
        .filter(|peer| world.peers[*peer].alive && !world.peers[*peer].consumer.is_ended());
    let peers = peers.collect::<alloc::vec::Vec<_>>();
    let count = u64::try_from(peers.len()).unwrap();
    let chosen = count.checked_sub(1).map(|last| random.between(0, last))?;
    Some(peers[usize::try_from(chosen).unwrap()])
}

/// Members take, process, come and go for a while.
fn live(world: &mut World, random: &mut Random, crashes: bool, steps: u32) {
    for _ in 0..steps {
        if random.between(0, 9) == 0 {
            let last = u64::try_from(world.broker.partitions.len() - 1).unwrap();
            let partition = usize::try_from(random.between(0, last)).unwrap();
            let count = u32::try_from(random.between(1, 6)).unwrap();
            world.broker.produce(partition, count);
        }
        let living = world.peers.iter().filter(|peer| peer.alive).count();
        let Some(peer) = alive(world, random) else {
            start(world, random, !crashes);
            continue;
        };
        match random.between(0, 199) {
            0..=119 => {
                world.take(peer);
            }
            120..=189 => world.process_one(peer),
            190..=193 if living < 4 => start(world, random, !crashes),
            194 => {
                let seconds = if crashes { 3 } else { 600 };
                world.close(peer, Duration::from_secs(seconds));
            }
            195 if crashes => world.kill(peer),
            196 if crashes => world.broker.change_view(0),
            // Nobody does anything for a while.
            197 if crashes => world.run_for(random.between(0, 6) * SECOND),
            _ => {}
        }
        world.run_for(random.between(0, 60) * MS);
        world.check_stored();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn every_message_is_processed_whatever_happens(
        seed in any::<u64>(), partitions in 1_u32..6, faults in faults(), lag_ms in 0_u64..300,
    ) {
        let mut world = World::new(seed, partitions, faults);
        world.broker.lag_ms = lag_ms;
        world.broker.rebalance_timeout_ms = 3_000;
        let mut random = Random::new(seed);
        start(&mut world, &mut random, false);
        start(&mut world, &mut random, false);
        live(&mut world, &mut random, true, 400);
        world.faults = Faults::default();
        start(&mut world, &mut random, false);
        world.work_off(60 * SECOND);
        world.check_stored();
        assert_eq!(u64::try_from(world.handed.len()).unwrap(), world.total());
    }

    #[test]
    fn hand_over_in_time_repeats_nothing(
        seed in any::<u64>(), partitions in 1_u32..6, lag_ms in 0_u64..300,
        lose_event in 0_u64..300, repeat in 0_u64..300, delay_ms in 0_u64..150,
    ) {
        let faults = Faults { lose_event, repeat, delay_ms, ..Faults::default() };
        let mut world = World::new(seed, partitions, faults);
        world.broker.lag_ms = lag_ms;
        world.broker.rebalance_timeout_ms = 600_000;
        let mut random = Random::new(seed);
        start(&mut world, &mut random, true);
        start(&mut world, &mut random, true);
        for peer in 0..2 {
            world.run_until(5 * SECOND, |world| world.peers[peer].consumer.membership().is_some());
        }
        live(&mut world, &mut random, false, 300);
        start(&mut world, &mut random, true);
        world.work_off(60 * SECOND);
        world.check_stored();
        assert_eq!(world.repeated(), 0);
    }
}
