//! R36 and R37: members that all go at once, and that all come at once.

use std::thread;

use integration::{DEFAULT_OPTIONS, Deliveries, Group, Member, repetitions, shares, until};
use wire::{ConsumerGroupOptionsUpdate, CreatePartitions, ErrorCode, GroupStart, Offset};

use crate::scene::{NEVER_MS, Scene, hasty, patient};

/// What a group is in the middle of when all its members vanish.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    OneMoves,
    AllMove,
    WaitsForMore,
    Joining,
    PartitionsAdded,
}

const PHASES: [Phase; 6] = [
    Phase::Idle,
    Phase::OneMoves,
    Phase::AllMove,
    Phase::WaitsForMore,
    Phase::Joining,
    Phase::PartitionsAdded,
];

/// Brings a group into a phase, and lets everybody vanish.
fn vanish(scene: &mut Scene, phase: Phase) {
    let mut members = Vec::new();
    match phase {
        Phase::WaitsForMore => {
            scene.begin_group(ConsumerGroupOptionsUpdate {
                initial_delay_ms: Some(300_000),
                rebalance_timeout_ms: Some(NEVER_MS),
                ..DEFAULT_OPTIONS
            });
            members.extend([scene.join(), scene.join()]);
        }
        Phase::Idle => members.push(scene.join_and_poll()),
        Phase::OneMoves => {
            members.push(scene.join_and_poll());
            let of_all: Vec<u32> = members[0].owned();
            for partition in &of_all[1..] {
                members[0].store(*partition, 9).expect("it is the owner");
            }
            members.push(scene.join());
        }
        Phase::AllMove | Phase::PartitionsAdded => {
            members.push(scene.join_and_poll());
            members.extend([scene.join(), scene.join(), scene.join()]);
        }
        Phase::Joining => {
            members.push(scene.join_and_poll());
            scene.join_and_vanish();
        }
    }
    if matches!(phase, Phase::PartitionsAdded) {
        let create = CreatePartitions {
            stream: scene.topic.stream.into(),
            topic: scene.topic.id.into(),
            count: 1,
        };
        scene.admin.post(create).expect("it is connected");
    }
    drop(members);
}

#[test]
fn r36_group_whose_members_vanish_in_any_phase_is_empty_and_can_be_joined() {
    for phase in PHASES {
        // Whoever was there is given its full time to come back.
        let kills: &[bool] = match phase {
            Phase::OneMoves | Phase::Joining => &[false, true],
            _ => &[false],
        };
        for is_killed in kills.iter().copied() {
            let site = hasty()
                .with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
                .with("cluster.timeouts.session_timeout", "\"4 s\"");
            let mut scene = Scene::new(site, 4, 20);
            vanish(&mut scene, phase);
            if is_killed {
                scene.crash();
            }
            let empty = until("the group is empty and nothing moves", || {
                let details = scene.group.details(&mut scene.admin);
                let summary = &details.summary;
                let is_empty = summary.member_count == 0 && summary.moving_count == 0;
                is_empty.then_some(details)
            });
            assert!(empty.summary.empty_since.is_some(), "{phase:?}");
            assert!(!empty.summary.plan_pending, "{phase:?}");
            let owners = empty.partitions.iter().filter(|it| it.owner.is_some());
            assert_eq!(owners.count(), 0, "{phase:?}");
            assert_eq!(scene.counter("moving"), 0, "{phase:?}");
            let mut member = if matches!(phase, Phase::WaitsForMore) {
                // It would wait for more again.
                scene.begin_group(DEFAULT_OPTIONS);
                scene.join()
            } else {
                scene.join()
            };
            member.wait_for(empty.partitions.len());
            let started = [0, 1, 2, 3].map(|partition| {
                let page = member.poll(partition, 1).expect("it is the owner");
                page.messages[0].0
            });
            let stored = Offset(10);
            let expected = match phase {
                Phase::OneMoves => [Offset(0), stored, stored, stored],
                _ => [Offset(0); 4],
            };
            assert_eq!(started, expected, "{phase:?}");
        }
    }
}

#[test]
fn r37_1_burst_of_joins_is_one_plan_where_the_group_waits_for_it() {
    const PARTITIONS: u32 = 40;
    let count = repetitions(10, 50) as usize;
    for delay in [0, 3_000] {
        let options = ConsumerGroupOptionsUpdate {
            initial_delay_ms: Some(delay),
            rebalance_timeout_ms: Some(NEVER_MS),
            ..DEFAULT_OPTIONS
        };
        let mut scene = Scene::with_options(patient(), PARTITIONS, 10, options);
        let connections: Vec<_> = (0..count)
            .map(|_| integration::Connection::login(scene.address()))
            .collect();
        let group: &Group = &scene.group;
        let mut members: Vec<Member> = thread::scope(|scope| {
            let joining: Vec<_> = connections
                .into_iter()
                .map(|connection| scope.spawn(|| Member::try_join(connection, group)))
                .collect();
            let joined = joining.into_iter().map(|it| it.join().expect("it joins"));
            joined.map(|it| it.expect("it is admitted")).collect()
        });
        let deliveries = Deliveries::default();
        until("everybody has a share", || {
            for member in &mut members {
                member.turn(&deliveries).expect("it is a member");
            }
            let details = scene.group.details(&mut scene.admin);
            let least = shares(&details).into_iter().min();
            let is_settled = least == Some(PARTITIONS as usize / count);
            (is_settled && details.summary.moving_count == 0).then_some(())
        });
        let details = scene.group.settled(&mut scene.admin);
        let generation = details.summary.generation.0;
        if delay > 0 {
            assert!(generation <= 5, "{generation} plans and completions");
        } else {
            // One plan for each join, and completions that are fewer than the partitions.
            let most = count as u64 + u64::from(PARTITIONS);
            assert!(generation <= most, "{generation}");
        }
        assert_eq!(deliveries.repeated(), 0, "whoever stores repeats nothing");
        assert_eq!(scene.counter("moves_timed_out"), 0);
    }
}

#[test]
fn r37_4_silly_times_are_refused_and_make_no_loop() {
    let mut scene = Scene::new(patient(), 2, 10);
    for rebalance_timeout_ms in [0, 9, u32::MAX] {
        let options = ConsumerGroupOptionsUpdate {
            rebalance_timeout_ms: Some(rebalance_timeout_ms),
            start: Some(GroupStart::Latest),
            ..DEFAULT_OPTIONS
        };
        let refused = Group::create(&mut scene.admin, &scene.topic, "silly", options);
        let refused = refused.expect_err("it is no time");
        assert_eq!(refused.code, ErrorCode::InvalidConsumerGroupOptions);
        let text = refused.text.to_string();
        let said = format!("rebalance_timeout_ms is {rebalance_timeout_ms} ms");
        assert!(text.contains(&said), "{text}");
    }
    let member = scene.join();
    let before = scene.group.details(&mut scene.admin).summary;
    assert_eq!(member.owned().len(), 2);
    let after = scene.group.details(&mut scene.admin).summary;
    assert_eq!(after, before);
}
