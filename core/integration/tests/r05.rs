//! R05 and R06: whoever has lost a partition, or is no member any more, changes nothing and is served nothing.

use integration::{Connection, Deliveries, Member, Site, until};
use wire::{Consumer, DeleteConsumerOffset, ErrorCode, Failure, Offset, PartitionId, ResetTarget};

use crate::scene::{Scene, hasty, patient, rebalance_timeout};

#[test]
fn r05_late_store_of_a_partition_that_moved_is_refused_and_changes_nothing() {
    let mut scene = Scene::with_options(patient(), 2, 100, rebalance_timeout(300));
    let mut first = scene.join();
    for partition in [0, 1] {
        let page = first.poll(partition, 50).expect("it is the owner");
        assert_eq!(page.messages.len(), 50);
    }
    let mut second = scene.join();
    second.wait_for(1);
    assert_eq!(scene.counter("moves_timed_out"), 1);
    let moved = second.owned()[0];
    let page = second.poll(moved, 80).expect("it is the owner");
    assert_eq!(page.next, Offset(80));
    assert_eq!(second.store(moved, 79), Ok(Some(Offset(79))));
    expect_powerless(&mut scene, &mut first, (moved, second.epoch(moved)));
    scene.crash();
    first.attach(scene.address());
    second.attach(scene.address());
    expect_powerless(&mut scene, &mut first, (moved, second.epoch(moved)));
    let page = second.poll(moved, 10).expect("it is the owner");
    assert_eq!(page.messages[0].0, Offset(80));
}

/// It has not heard that the partition is another's, whose epoch is this.
fn expect_powerless(scene: &mut Scene, loser: &mut Member, (moved, epoch): (u32, wire::Epoch)) {
    let refused = loser.store(moved, 49).expect_err("it is another's");
    assert_eq!(refused.code, ErrorCode::PartitionNotOwned, "{refused}");
    assert!(
        refused.text.contains(&format!("partition {moved}")) && refused.text.contains("billing"),
        "{refused}"
    );
    let old = loser.epoch(moved);
    for epoch in [old, epoch] {
        for commit_on_poll in [false, true] {
            let mut poll = loser.poll_of(&[(moved, epoch)], 10);
            poll.commit_on_poll = commit_on_poll;
            let refused = loser.polled(poll).expect_err("it is another's");
            assert_eq!(refused.code, ErrorCode::PartitionNotOwned, "{refused}");
        }
    }
    // Under the epoch of the owner, in whose name it has no business.
    let forged = loser.store_of(&[(moved, epoch, 49)]);
    match loser.connection.ask(forged) {
        Ok(wire::Reply::OffsetsStored(stored)) => {
            let refused = stored.sections[0].status.clone().expect_err("not its own");
            assert_eq!(refused.code, ErrorCode::PartitionNotOwned, "{refused}");
        }
        other => panic!("{other:?}"),
    }
    let delete = DeleteConsumerOffset {
        stream: loser.group.topic.stream.into(),
        topic: loser.group.topic.id.into(),
        consumer: Consumer::Group(loser.group.name.clone()),
        partitions: vec![PartitionId(moved)],
    };
    let refused = loser.connection.ask(delete).expect_err("not like that");
    assert_eq!(refused.code, ErrorCode::InvalidArgument, "{refused}");
    let reset = (moved, ResetTarget::Nothing);
    let refused = scene.group.reset(&mut loser.connection, reset, false);
    let refused = refused.expect_err("it has members");
    assert_eq!(refused.code, ErrorCode::ConsumerGroupNotEmpty, "{refused}");
    assert_eq!(scene.next(moved), 80);
}

/// A member that says nothing for the session timeout, while its partitions and those of the other are read.
#[test]
fn r06_silent_member_is_evicted_and_what_it_had_on_its_way_is_refused() {
    let site = Site::new()
        .with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
        .with("cluster.timeouts.session_timeout", "\"2 s\"");
    let mut scene = Scene::new(site, 2, 100);
    let mut silent = scene.join();
    silent.poll(1, 10).expect("it is the owner");
    let mut lively = scene.join();
    silent.wait_for_revoking(1);
    let lost = silent.owned()[0];
    let page = silent.poll(lost, 30).expect("it is the owner");
    assert_eq!(page.messages.len(), 30);
    // It says nothing from here on.
    let deliveries = Deliveries::default();
    until("the other has read everything", || {
        lively.turn(&deliveries).expect("it is a member");
        scene.admin.ping();
        let done = deliveries.count(0) == 100 && deliveries.count(1) == 100;
        done.then_some(())
    });
    assert_eq!(deliveries.repeated(), 0);
    silent.expect_evicted(lost);
    let attached: Result<Connection, Option<Failure>> =
        silent.connection.try_attach(scene.address());
    let refused = attached.expect_err("the session has ended");
    let refused = refused.expect("it is answered");
    assert!(!refused.code.retryable(), "{refused}");
    assert_eq!((scene.next(0), scene.next(1)), (100, 100));
    // As somebody else it is welcome.
    let mut again = scene.join();
    assert!(again.id() > silent.id());
    until("it has its share", || {
        lively.turn(&deliveries).expect("it is a member");
        again.turn(&deliveries).expect("it is a member");
        (again.owned().len() == 1 && lively.owned().len() == 1).then_some(())
    });
    assert_eq!(deliveries.repeated(), 0);
    assert_eq!(scene.counter("moves_timed_out"), 0);
}

/// The node is killed after the eviction: it stays one.
#[test]
fn r06_who_was_evicted_stays_so_after_a_crash() {
    let mut scene = Scene::new(hasty(), 2, 100);
    let mut gone = scene.join_and_poll();
    // Its session ends with its last connection.
    let still = gone.connection.attach();
    drop(std::mem::replace(&mut gone.connection, still));
    gone.sync().expect("a connection is left");
    let finish = gone.connection.socket().shutdown(std::net::Shutdown::Both);
    finish.expect("it is connected");
    let mut other = scene.join();
    other.wait_for(2);
    assert_eq!(other.store(0, 99), Ok(Some(Offset(99))));
    scene.crash();
    other.attach(scene.address());
    let attached = until("the node answers", || {
        match gone.connection.try_attach(scene.address()) {
            Err(Some(failure)) if failure.code.retryable() => None,
            answer => Some(answer),
        }
    });
    let refused = attached.expect_err("the session has ended");
    let refused = refused.expect("it is answered");
    assert!(!refused.code.retryable(), "{refused}");
    assert_eq!(scene.next(0), 100);
    assert_eq!(other.store(0, 20), Ok(Some(Offset(99))));
}
