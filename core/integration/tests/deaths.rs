//! Cases of consumer groups where the primary of the metadata, or of the partition, dies in the middle: R01, R02, R03,
//! R05, R11, R15 and R17.

use integration::{DEFAULT_OPTIONS, Group, NODES, Site, is_full, repetitions, shares, until};
use wire::{ErrorCode, Offset, Reply};

use crate::{
    PARTITIONS, again, in_step,
    stage::{NEVER_MS, Stage, give_up, others, rebalance_timeout, store, stored_in},
};

/// Which primary dies.
const PLANES: [Plane; 2] = [Plane::Metadata, Plane::Data];

#[derive(Clone, Copy, Debug)]
enum Plane {
    Metadata,
    Data,
}

impl Stage {
    /// The primary of the metadata, or of a partition.
    fn primary_of(&self, plane: Plane, partition: u32) -> usize {
        match plane {
            Plane::Metadata => self.leader(0),
            Plane::Data => self.leader_of(partition, 0),
        }
    }
}

/// R01: who gives partitions up stores them under the epoch that it knows, though the primary died since.
#[test]
fn r01_owner_stores_what_it_gives_up_although_a_primary_dies_in_the_middle() {
    let mut stage = Stage::new(30);
    for plane in PLANES.into_iter().cycle().take(repetitions(2, 20) as usize) {
        let victim = stage.primary_of(plane, 0);
        eprintln!("---- {plane:?}, node {victim}");
        let (mut first, mut second) = stage.two_members(victim);
        let moving = first.revoking();
        stage.kill(victim);
        for partition in 0..PARTITIONS {
            store(&mut first, partition, 9);
        }
        let known = first.assignment.clone();
        // They move without anybody's time being over: for a primary that does not know what was served, by releases.
        assert_eq!(moving.len(), 3);
        give_up(&mut first);
        second.wait_for(3);
        first.wait_for(3);
        first.assignment = known;
        for partition in second.owned() {
            let page = again("it is read", || second.poll(partition, 5));
            assert_eq!(page.messages[0].0, Offset(10));
            assert!(moving.contains(&partition));
            let refused = until("it is refused", || match first.store(partition, 9) {
                Err(failure) if failure.code.retryable() => None,
                other => Some(other.expect_err("it is another one's")),
            });
            let codes = [ErrorCode::PartitionNotOwned, ErrorCode::StaleEpoch];
            assert!(codes.contains(&refused.code), "{refused}");
        }
        stage.end([first, second], victim);
    }
}

/// R02: a move that is cancelled leaves the owner what it was, whoever leads by then.
#[test]
fn r02_cancelled_moves_come_back_to_their_owner_although_a_primary_dies_in_the_middle() {
    let mut stage = Stage::new(30);
    for plane in PLANES.into_iter().cycle().take(repetitions(2, 20) as usize) {
        let victim = stage.primary_of(plane, 0);
        eprintln!("---- {plane:?}, node {victim}");
        let (mut first, mut second) = stage.two_members(victim);
        stage.kill(victim);
        again("the newcomer leaves", || second.leave());
        first.wait_for(PARTITIONS as usize);
        for partition in 0..PARTITIONS {
            let page = again("it is read", || first.poll(partition, 1));
            assert_eq!(page.messages[0].0, Offset(0));
        }
        let told = stage.details(others(victim)[0]);
        assert_eq!((told.summary.moving_count, shares(&told)), (0, vec![6]));
        stage.end([first], victim);
    }
}

/// R03, c: the owner vanishes at the same moment as a primary; the newcomer gets all, long before its time is over.
#[test]
fn r03_source_and_primary_vanish_together_and_the_target_gets_everything() {
    let hasty = |_: usize, site: Site| {
        site.with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
            .with("cluster.timeouts.session_timeout", "\"3 s\"")
            .with("cluster.timeouts.disconnect_grace", "\"1 s\"")
    };
    let mut stage = Stage::with(hasty, 30, rebalance_timeout(NEVER_MS));
    for plane in PLANES.into_iter().cycle().take(repetitions(2, 20) as usize) {
        let victim = stage.primary_of(plane, 0);
        eprintln!("---- {plane:?}, node {victim}");
        let (first, mut second) = stage.two_members(victim);
        stage.kill(victim);
        drop(first);
        second.wait_for(PARTITIONS as usize);
        for partition in 0..PARTITIONS {
            let page = again("it is read", || second.poll(partition, 1));
            assert_eq!(page.messages[0].0, Offset(0));
        }
        stage.end([second], victim);
    }
}

/// R05: what a former owner stores late is refused by every node, and by the one that leads now.
#[test]
fn r05_late_store_is_refused_by_the_new_primary_too() {
    let mut stage = Stage::new(100);
    for plane in PLANES.into_iter().cycle().take(repetitions(2, 20) as usize) {
        let victim = stage.primary_of(plane, 0);
        eprintln!("---- {plane:?}, node {victim}");
        let (mut first, mut second) = stage.two_members(victim);
        let old = first.assignment.clone();
        for partition in first.revoking() {
            again("it is released", || first.release(partition, None));
        }
        second.wait_for(3);
        for partition in second.owned() {
            again("it is read", || second.poll(partition, 80));
            store(&mut second, partition, 79);
        }
        stage.kill(victim);
        first.assignment = old;
        for partition in second.owned() {
            let refused = until("it is refused", || match first.store(partition, 49) {
                Err(failure) if failure.code.retryable() => None,
                other => Some(other.expect_err("it is another one's")),
            });
            let codes = [ErrorCode::PartitionNotOwned, ErrorCode::StaleEpoch];
            assert!(codes.contains(&refused.code), "{refused}");
            for node in others(victim) {
                let mut admin = stage.cluster.login(node);
                let stored = again("it is told", || {
                    stored_in(&mut admin, &stage.group, partition)
                });
                assert_eq!(stored, Some(Offset(79)));
            }
        }
        stage.end([first, second], victim);
    }
}

/// R11: offsets that are stored by polls go where all offsets go, and a membership is not bound to a node.
#[test]
fn r11_offsets_that_polls_store_are_on_every_node_and_the_membership_stays() {
    let mut stage = Stage::new(100);
    let node = others(stage.leader(0))[0];
    let mut member = stage.join(node);
    member.wait_for(PARTITIONS as usize);
    let (id, generation) = (member.id(), member.assignment.generation);
    let count = if is_full() { 10_000 } else { 300 };
    for number in 0..count {
        let partition = number % PARTITIONS;
        let mut poll = member.poll_of(&[(partition, member.epoch(partition))], 10);
        poll.commit_on_poll = true;
        let page = again("it is read", || member.polled(poll.clone()));
        // Ten polls of ten messages each, and then there is nothing new.
        let expected = if number < 10 * PARTITIONS { 10 } else { 0 };
        assert_eq!(page.messages.len(), expected, "poll {number}");
    }
    member.sync().expect("it is a member");
    assert_eq!(
        (member.id(), member.assignment.generation),
        (id, generation)
    );
    in_step(&stage.cluster, &[0, 1, 2]);
    for node in 0..NODES {
        assert_eq!(stage.stored(node), vec![Some(Offset(99)); 6], "node {node}");
    }
    stage.kill(node);
    member.attach(stage.cluster.address(others(node)[0]));
    again("it syncs", || member.sync());
    assert_eq!(
        (member.id(), member.assignment.generation),
        (id, generation)
    );
    let mut second = stage.join(others(node)[1]);
    // Where the primary lives on it knows that all it served is stored: such a partition moves by itself.
    until("the other member owns half", || {
        again("it syncs", || member.sync());
        give_up(&mut member);
        again("it syncs", || second.sync());
        (second.owned().len() == 3 && member.owned().len() == 3).then_some(())
    });
    for partition in second.owned() {
        let page = again("it is read", || second.poll(partition, 1));
        assert!(page.messages.is_empty(), "everything was stored");
    }
    in_step(&stage.cluster, &others(node));
    stage.restore(node);
}

/// R15, 3 and 4: a group that was deleted is gone with all its offsets after everything was killed, and on a node
/// that was away.
#[test]
fn r15_3_4_deleted_group_is_gone_after_all_nodes_were_killed_and_on_a_node_that_was_away() {
    let mut stage = Stage::new(20);
    for (round, is_away) in (0..repetitions(2, 20)).zip([false, true].into_iter().cycle()) {
        let away = others(stage.leader(0))[round as usize % 2];
        let through = others(away)[0];
        let mut member = stage.join(through);
        member.wait_for(PARTITIONS as usize);
        (0..PARTITIONS).for_each(|partition| store(&mut member, partition, 19));
        again("it leaves", || member.leave());
        if is_away {
            stage.kill(away);
        }
        let old = stage.group.clone();
        let mut admin = stage.cluster.login(through);
        again("it goes", || old.delete(&mut admin, false));
        if !is_away {
            (0..NODES).for_each(|node| stage.kill(node));
            stage.cluster.start_in_order(&[2, 0, 1]);
        }
        let mut admin = stage.cluster.login(through);
        let gone = again("it is looked for", || match old.describe(&mut admin) {
            Err(failure) if !failure.code.retryable() => Ok(failure),
            other => other.map(|told| panic!("{told:?}")),
        });
        assert_eq!(gone.code, ErrorCode::ConsumerGroupNotFound);
        let again_made = Group::create(&mut admin, &stage.topic, "billing", DEFAULT_OPTIONS);
        stage.group = again_made.expect("the name is free");
        assert!(stage.group.id > old.id);
        if is_away {
            stage.cluster.start_in_order(&[away]);
        }
        in_step(&stage.cluster, &[0, 1, 2]);
        for node in 0..NODES {
            assert_eq!(stage.stored(node), vec![None; 6], "node {node}");
            for partition in &stage.details(node).partitions {
                if let Ok(progress) = &partition.progress {
                    assert_eq!((progress.next, progress.lag), (Offset(0), 20));
                }
            }
        }
    }
}

/// R17: a topic that is made anew has nothing of the one before, on no node, whoever died meanwhile.
#[test]
fn r17_topic_that_is_made_anew_has_nothing_of_the_old_one() {
    let mut stage = Stage::new(20);
    for round in 0..repetitions(2, 20) {
        let victim = stage.leader(round as usize % NODES);
        let through = others(victim)[0];
        let mut member = stage.join(through);
        member.wait_for(PARTITIONS as usize);
        (0..PARTITIONS).for_each(|partition| store(&mut member, partition, 9));
        let mut admin = stage.cluster.login(through);
        again("an offset is stored", || {
            admin.store(&stage.topic, 0, "audit", Offset(7))
        });
        let delete = wire::DeleteTopic {
            stream: stage.topic.stream.into(),
            topic: stage.topic.id.into(),
        };
        let create = wire::CreateTopic {
            stream: stage.topic.stream.into(),
            name: "orders".into(),
            partitions: PARTITIONS,
        };
        let deleted = admin.ask(delete);
        assert_eq!(deleted, Ok(Reply::Done));
        stage.kill(victim);
        let mut admin = stage.cluster.login(through);
        let topic = match again("it is made anew", || admin.ask(create.clone())) {
            Reply::Topic(topic) => topic,
            other => panic!("{other:?}"),
        };
        assert!(topic.id > stage.topic.id);
        stage.topic = topic;
        let group = again("a group is made", || {
            Group::create(&mut admin, &stage.topic, "billing", DEFAULT_OPTIONS)
        });
        stage.group = group;
        let refused = until("the old membership is refused", || match member.sync() {
            Err(failure) if failure.code.retryable() => None,
            other => Some(other.expect_err("its group is gone")),
        });
        assert!(!refused.code.retryable(), "{refused}");
        stage.restore(victim);
        for node in 0..NODES {
            assert_eq!(stage.stored(node), vec![None; 6]);
            let mut admin = stage.cluster.login(node);
            let told = again("it is told", || admin.stored(&stage.topic, 0, "audit"));
            assert_eq!(
                (told.stored, told.start, told.end),
                (None, Offset(0), Offset(0))
            );
        }
        let mut admin = stage.cluster.login(victim);
        for partition in 0..PARTITIONS {
            for offset in 0..20 {
                let message = integration::message(partition, offset);
                let found = crate::append(&mut admin, &stage.topic, partition, &message);
                assert_eq!(found, Offset(offset));
            }
        }
    }
}

/// R17: a purge that was acknowledged is carried out on every node, also on one that was away or died then.
#[test]
fn r17_purge_is_carried_out_on_every_node_whoever_died_meanwhile() {
    let mut stage = Stage::new(20);
    for round in 0..repetitions(2, 20) {
        let victim = stage.leader(round as usize % NODES);
        let through = others(victim)[0];
        let begin = 20 * u64::from(round + 1);
        let mut member = stage.join(through);
        member.wait_for(PARTITIONS as usize);
        (0..PARTITIONS).for_each(|partition| store(&mut member, partition, begin - 11));
        let mut admin = stage.cluster.login(through);
        again("an offset is stored", || {
            admin.store(&stage.topic, 0, "audit", Offset(begin - 13))
        });
        let purge = wire::PurgeTopic {
            stream: stage.topic.stream.into(),
            topic: stage.topic.id.into(),
        };
        assert_eq!(admin.ask(purge), Ok(Reply::Done));
        stage.kill(victim);
        let refused = until("a store under the old epoch is refused", || {
            let stored = member.store(0, begin - 1);
            let failure = stored.expect_err("nobody owns what is purged before its fence");
            (!failure.code.retryable()).then_some(failure)
        });
        let is_fenced = matches!(
            refused.code,
            ErrorCode::PartitionNotOwned | ErrorCode::StaleEpoch
        );
        assert!(is_fenced, "{refused}");
        stage.restore(victim);
        let mut admin = stage.cluster.login(victim);
        for partition in 0..PARTITIONS {
            let message = integration::message(partition, begin);
            let found = crate::append(&mut admin, &stage.topic, partition, &message);
            assert_eq!(found, Offset(begin), "offsets go on");
        }
        for node in 0..NODES {
            let mut admin = stage.cluster.login(node);
            let told = again("it is told", || admin.stored(&stage.topic, 0, "audit"));
            assert_eq!(
                (told.stored, told.start, told.end),
                (None, Offset(begin), Offset(begin + 1))
            );
            assert_eq!(stage.stored(node)[1..], [None; 5]);
        }
        again("it leaves", || member.leave());
        for partition in 0..PARTITIONS {
            for offset in begin + 1..begin + 20 {
                let message = integration::message(partition, offset);
                crate::append(&mut admin, &stage.topic, partition, &message);
            }
        }
    }
}
