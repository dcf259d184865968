//! R32, R34 and R41: what a stored offset means, whose it is, and which are refused.

use integration::{DEFAULT_OPTIONS, Member, until};
use wire::{ConsumerGroupOptionsUpdate, ErrorCode, GroupStart, Offset, ResetTarget};

use crate::scene::{Scene, hasty, patient};

/// Each line: what is done, where the group goes on then, and how much there is for it.
#[test]
fn r32_stored_offset_is_that_of_the_last_message_processed() {
    let mut scene = Scene::new(patient(), 1, 100);
    let mut member = scene.join();
    expect(&mut scene, (None, 0, 100));
    let first = member.poll(0, 1).expect("it is the owner");
    assert_eq!(first.messages[0].0, Offset(0));
    assert_eq!(member.store(0, 0), Ok(Some(Offset(0))));
    expect(&mut scene, (Some(0), 1, 99));
    scene.crash();
    member.attach(scene.address());
    expect(&mut scene, (Some(0), 1, 99));
    let page = member.poll(0, 10).expect("it is the owner");
    assert_eq!(page.messages[0].0, Offset(1));
    assert_eq!(member.store(0, 99), Ok(Some(Offset(99))));
    expect(&mut scene, (Some(99), 100, 0));
    let page = member.poll(0, 10).expect("it is the owner");
    assert_eq!((page.messages.len(), page.next), (0, Offset(100)));
    let group = scene.group.clone();
    let reset = |scene: &mut Scene, to| {
        let done = group.reset(&mut scene.admin, (0, to), true);
        done.expect("it is forced");
    };
    reset(&mut scene, ResetTarget::Earliest);
    expect_next(&mut scene, 0, 100);
    // That message counts as processed.
    reset(&mut scene, ResetTarget::Offset(Offset(0)));
    expect(&mut scene, (Some(0), 1, 99));
    reset(&mut scene, ResetTarget::Latest);
    expect_next(&mut scene, 100, 0);
    reset(&mut scene, ResetTarget::Nothing);
    expect(&mut scene, (None, 0, 100));
    scene.crash();
    member.attach(scene.address());
    expect(&mut scene, (None, 0, 100));
}

fn expect(scene: &mut Scene, (stored, next, lag): (Option<u64>, u64, u64)) {
    let details = scene.group.details(&mut scene.admin);
    let progress = details.partitions[0].progress.as_ref();
    let progress = progress.expect("it is served");
    assert_eq!(progress.stored, stored.map(Offset));
    assert_eq!((progress.next, progress.lag), (Offset(next), lag));
    let answered = scene.group.stored(&mut scene.admin, &[0]);
    assert_eq!(answered, Ok(vec![stored.map(Offset)]));
}

fn expect_next(scene: &mut Scene, next: u64, lag: u64) {
    let details = scene.group.details(&mut scene.admin);
    let progress = details.partitions[0].progress.as_ref();
    let progress = progress.expect("it is served");
    assert_eq!((progress.next, progress.lag), (Offset(next), lag));
}

/// Where a group starts that begins at the end is found out once, and kept: also in a partition that was
/// empty, and by a node that is killed.
#[test]
fn r32_the_end_at_which_a_group_starts_does_not_move() {
    let latest = ConsumerGroupOptionsUpdate {
        start: Some(GroupStart::Latest),
        ..DEFAULT_OPTIONS
    };
    // Who is lost with the node keeps its session for so long.
    let site = hasty().with("cluster.timeouts.session_timeout", "\"3 s\"");
    let site = site.with("cluster.timeouts.heartbeat_interval", "\"500 ms\"");
    let mut scene = Scene::with_options(site, 2, 0, latest);
    scene.append(0, 30);
    let member = scene.join();
    for (partition, start) in [(0, 30), (1, 0)] {
        until("the start is found out", || {
            (scene.next(partition) == start).then_some(())
        });
    }
    scene.append(0, 10);
    scene.append(1, 10);
    drop(member);
    scene.crash();
    let mut member = scene.join();
    for (partition, start) in [(0, 30), (1, 0)] {
        until("it is the owner", || {
            member.sync().expect("it is a member");
            member.owned().contains(&partition).then_some(())
        });
        let page = member.poll(partition, 10).expect("it is the owner");
        assert_eq!(
            (page.messages.len(), page.messages[0].0),
            (10, Offset(start))
        );
    }
}

#[test]
fn r34_offset_belongs_to_the_group_not_to_the_member() {
    let mut scene = Scene::new(hasty(), 2, 100);
    let mut first = scene.join();
    assert_eq!(first.store(0, 49), Ok(Some(Offset(49))));
    first.leave().expect("it is a member");
    let mut second = scene.join_alone();
    assert_eq!(second.poll(0, 1).expect("owner").messages[0].0, Offset(50));
    assert_eq!(second.store(0, 59), Ok(Some(Offset(59))));
    drop(second);
    let mut third = scene.join_alone();
    assert_eq!(third.poll(0, 1).expect("owner").messages[0].0, Offset(60));
    // A single consumer of the name, or of what the id looks like, is somebody else.
    for name in ["billing".to_owned(), format!("group-{}", scene.group.id)] {
        let stored = scene.admin.store(&scene.topic, 0, &name, Offset(10));
        assert_eq!(stored, Ok(Some(Offset(10))));
        let stored = scene.admin.stored(&scene.topic, 0, &name).expect("stored");
        assert_eq!(stored.stored, Some(Offset(10)));
    }
    assert_eq!(scene.next(0), 60);
    let deleted = scene.admin.ask(wire::DeleteConsumerOffset {
        stream: scene.topic.stream.into(),
        topic: scene.topic.id.into(),
        consumer: wire::Consumer::Single("billing".to_owned()),
        partitions: vec![wire::PartitionId(0)],
    });
    deleted.expect("it is stored");
    assert_eq!(scene.next(0), 60);
    third.leave().expect("it is a member");
    for round in 0..20 {
        let mut member = scene.join_alone();
        let offset = 60 + round;
        assert_eq!(member.store(0, offset), Ok(Some(Offset(offset))));
        member.leave().expect("it is a member");
    }
    scene.crash();
    let stored = scene.group.stored(&mut scene.admin, &[0, 1]);
    assert_eq!(stored, Ok(vec![Some(Offset(79)), None]));
    let mut last = scene.join_alone();
    assert_eq!(last.poll(0, 1).expect("owner").messages[0].0, Offset(80));
}

#[test]
fn r41_offset_of_no_message_is_refused() {
    let mut scene = Scene::new(patient(), 2, 0);
    scene.append(0, 10);
    let mut member = scene.join();
    let wrong = [(0, 10), (0, 11), (0, 10_000), (0, u64::MAX), (1, 0), (1, 9)];
    let refuse = |scene: &mut Scene, member: &mut Member| {
        for (partition, offset) in wrong {
            let refused = member.store(partition, offset).expect_err("no message");
            assert_eq!(refused.code, ErrorCode::OffsetOutOfRange, "{refused}");
            let topic = &scene.topic;
            let refused = scene
                .admin
                .store(topic, partition, "single", Offset(offset));
            let refused = refused.expect_err("no message");
            assert_eq!(refused.code, ErrorCode::OffsetOutOfRange, "{refused}");
        }
    };
    refuse(&mut scene, &mut member);
    assert_eq!((scene.next(0), scene.next(1)), (0, 0));
    assert_eq!(member.store(0, 9), Ok(Some(Offset(9))));
    let topic = scene.topic.clone();
    let stored = scene.admin.store(&topic, 0, "single", Offset(9));
    assert_eq!(stored, Ok(Some(Offset(9))));
    scene.crash();
    member.attach(scene.address());
    refuse(&mut scene, &mut member);
    let stored = scene.group.stored(&mut scene.admin, &[0, 1]);
    assert_eq!(stored, Ok(vec![Some(Offset(9)), None]));
    // A refused release gives nothing up.
    member.poll(0, 10).expect("it is the owner");
    scene.append(1, 1);
    let page = member.poll(1, 10).expect("it is the owner");
    assert_eq!(page.messages.len(), 1);
    let mut second = scene.join();
    member.wait_for_revoking(1);
    let moving = member.revoking()[0];
    let refused = member.release(moving, Some(500)).expect_err("no message");
    assert_eq!(refused.code, ErrorCode::OffsetOutOfRange, "{refused}");
    second.sync().expect("it is a member");
    assert_eq!(second.owned(), []);
    member.release(moving, Some(0)).expect("it is the owner");
    second.wait_for(1);
}
