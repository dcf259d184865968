//! R24: static members. Who is stopped keeps its partitions, and whoever comes with its instance id goes on.

use std::time::{Duration, Instant};

use cohort::Error;
use integration::{Connection, Ended, Group, Member, Process, Site, until};
use wire::{
    ConsumerGroupDetails, ErrorCode, Failure, JoinConsumerGroup, MemberDetails, MemberStatus,
    Offset, Reply,
};

use crate::{
    application::Application,
    command::consume,
    scene::{Scene, hasty, patient},
};

const INSTANCE: &str = "billing-7";

/// Members with an instance id, and what each owns, with epochs.
fn of_instance(details: &ConsumerGroupDetails) -> Option<(MemberDetails, Vec<(u32, u64)>)> {
    let mut members = details.members.iter();
    let member = members.find(|member| member.instance.as_deref() == Some(INSTANCE))?;
    Some((member.clone(), owned(details, member)))
}

fn owned(details: &ConsumerGroupDetails, member: &MemberDetails) -> Vec<(u32, u64)> {
    let owned = details.partitions.iter().filter(|partition| {
        let owner = partition.owner.as_ref();
        owner.is_some_and(|owner| owner.member == member.id)
    });
    owned
        .map(|partition| (partition.partition.0, partition.epoch.0))
        .collect()
}

/// Waits until the session of the static member has ended.
fn away(scene: &mut Scene) -> ConsumerGroupDetails {
    until("the member is away", || {
        let details = scene.group.details(&mut scene.admin);
        let (member, _) = of_instance(&details).expect("it stays a member");
        (member.state == MemberStatus::Detached).then_some(details)
    })
}

#[test]
fn r24_1_member_of_the_sdk_that_is_detached_is_taken_over_by_the_next_process() {
    let mut scene = Scene::new(hasty(), 4, 100);
    let application = Application::start(&scene);
    let mut consumer = application.join(&scene, |builder| builder.instance_id(INSTANCE));
    let mut other = scene.join();
    until("the partitions are shared", || {
        other.sync().expect("it is a member");
        (other.owned().len() == 2).then_some(())
    });
    let taken = application.take(&mut consumer, 30);
    application.run(consumer.detach()).expect("detach");
    application.run(application.client.clone().close());
    let before = away(&mut scene);
    let (member, partitions) = of_instance(&before).expect("it is a member");
    assert_eq!((partitions.len(), before.summary.moving_count), (2, 0));

    let again = Application::start(&scene);
    let mut consumer = again.join(&scene, |builder| builder.instance_id(INSTANCE));
    assert_eq!(consumer.member(), Some(member.id));
    let first_of = |partition: u32| {
        let mut of_partition = taken
            .iter()
            .filter(|message| message.partition().0 == partition);
        of_partition
            .next_back()
            .map_or(0, |message| message.offset().0 + 1)
    };
    let left = partitions
        .iter()
        .map(|(partition, _)| 100 - first_of(*partition));
    let rest = again.take(&mut consumer, left.sum());
    // Nothing comes twice, and nothing of what the other has.
    for (partition, _) in &partitions {
        let offsets = rest
            .iter()
            .filter(|message| message.partition().0 == *partition);
        let offsets = offsets
            .map(|message| message.offset().0)
            .collect::<Vec<_>>();
        assert_eq!(offsets, (first_of(*partition)..100).collect::<Vec<_>>());
    }
    // The other was never disturbed.
    let after = scene.group.details(&mut scene.admin);
    let ids = |partitions: Vec<(u32, u64)>| {
        let ids = partitions.into_iter();
        ids.map(|(partition, _)| partition).collect::<Vec<_>>()
    };
    let (_, now) = of_instance(&after).expect("it is a member");
    assert_eq!(ids(now), ids(partitions));
    let others = |details: &ConsumerGroupDetails| {
        let mut members = details.members.iter();
        let member = members.find(|member| member.id == other.id());
        owned(details, member.expect("it is a member"))
    };
    assert_eq!(others(&after), others(&before));
    again.run(consumer.close()).expect("close");
}

#[test]
fn r24_1_only_who_can_be_taken_over_can_be_detached() {
    let mut scene = Scene::new(hasty(), 1, 1);
    let application = Application::start(&scene);
    let consumer = application.join(&scene, |builder| builder);
    let error = application
        .run(consumer.detach())
        .expect_err("nobody could go on");
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    until("it has left", || {
        let details = scene.group.details(&mut scene.admin);
        details.members.is_empty().then_some(())
    });
}

fn start(scene: &Scene, arguments: &[&str]) -> Process {
    Process::start(consume(scene, &[&["-v"], arguments].concat()))
}

fn stop_when_read(scene: &mut Scene, process: Process, end: u64) -> Ended {
    until("everything is stored", || {
        (scene.next(0) == end).then_some(())
    });
    let ended = process.terminate();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended
}

#[test]
fn r24_1_command_that_is_stopped_keeps_the_partitions_of_its_instance() {
    let mut scene = Scene::new(hasty(), 1, 10);
    let process = start(&scene, &["--instance", INSTANCE]);
    let ended = stop_when_read(&mut scene, process, 10);
    assert_eq!(ended.stdout.lines().count(), 10);
    assert!(
        ended.stderr.contains("cohort: detached: "),
        "{}",
        ended.stderr
    );
    let before = away(&mut scene);
    let (member, partitions) = of_instance(&before).expect("it is a member");
    assert_eq!(partitions.len(), 1);

    let end = scene.append(0, 5);
    let process = start(&scene, &["--instance", INSTANCE]);
    let ended = stop_when_read(&mut scene, process, end);
    assert_eq!(ended.stdout.lines().count(), 5, "{}", ended.stdout);
    let joined = format!("joined: member {}", member.id);
    assert!(ended.stderr.contains(&joined), "{}", ended.stderr);
}

#[test]
fn r24_1_command_without_an_instance_leaves_when_it_is_stopped() {
    let mut scene = Scene::new(hasty(), 1, 10);
    let process = start(&scene, &[]);
    let ended = stop_when_read(&mut scene, process, 10);
    assert!(ended.stderr.contains("cohort: left: "), "{}", ended.stderr);
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
    let details = scene.group.details(&mut scene.admin);
    assert!(details.members.is_empty(), "{details:?}");
}

/// How long a session may be silent where that is to be seen.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

fn short_lived() -> Site {
    Site::new()
        .with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
        .with("cluster.timeouts.disconnect_grace", "\"100 ms\"")
        .with("cluster.timeouts.session_timeout", "\"2 s\"")
}

/// Joins with the instance id.
fn join_instance(connection: &mut Connection, group: &Group) -> Result<Reply, Failure> {
    connection.ask(JoinConsumerGroup {
        stream: group.topic.stream.into(),
        topic: group.topic.id.into(),
        group: group.name.clone(),
        instance: Some(INSTANCE.to_owned()),
        weight: 1,
    })
}

fn member_of(mut connection: Connection, group: &Group) -> Member {
    match join_instance(&mut connection, group) {
        Ok(Reply::Assignment(assignment)) => Member {
            connection,
            group: group.clone(),
            assignment,
        },
        other => panic!("join: {other:?}"),
    }
}

/// Whoever was fenced is told by whom, whatever it asks.
fn expect_fenced(member: &mut Member, by: &Member) {
    let holder = format!("session {}", by.connection.session());
    let partition = member.assignment.owned[0].partition.0;
    let refusals = [
        member.store(partition, 5).map(|_| ()),
        member.poll(partition, 1).map(|_| ()),
        member.sync(),
    ];
    for refused in refusals {
        let refused = refused.expect_err("another process has its instance id");
        assert_eq!(refused.code, ErrorCode::FencedInstanceId, "{refused}");
        let text = refused.text.to_string();
        assert!(
            text.contains(&holder) && text.contains("127.0.0.1:"),
            "{text}"
        );
    }
}

#[test]
fn r24_2_second_process_takes_over_and_the_first_is_told_of_it() {
    let mut scene = Scene::new(patient(), 2, 20);
    let mut first = member_of(Connection::login(scene.address()), &scene.group);
    first.wait_for(2);
    for partition in [0, 1] {
        first.poll(partition, 20).expect("it is the owner");
        let stored = first.store(partition, 4);
        assert_eq!(stored, Ok(Some(Offset(4))));
    }
    let mut second = member_of(Connection::login(scene.address()), &scene.group);
    assert_eq!(second.id(), first.id());
    second.wait_for(2);
    expect_fenced(&mut first, &second);
    for partition in [0, 1] {
        let page = second.poll(partition, 1).expect("it is the owner");
        assert_eq!(page.messages[0].0, Offset(5));
    }
    let details = scene.group.details(&mut scene.admin);
    let (member, _) = of_instance(&details).expect("it is a member");
    let displaced = member.displaced.expect("two processes hold it");
    assert_eq!(displaced.session, first.connection.session());
    let told = scene
        .server()
        .log()
        .wait_for("two processes have one instance id");
    assert!(told.is_some());
}

#[test]
fn r24_3_two_processes_that_both_come_again_change_hands_once_in_a_timeout() {
    let mut scene = Scene::new(short_lived(), 4, 10);
    let mut other = scene.join();
    let mut holder = member_of(Connection::login(scene.address()), &scene.group);
    until("the partitions are shared", || {
        other.sync().expect("it is a member");
        holder.sync().expect("it is a member");
        (other.owned().len() == 2 && holder.owned().len() == 2).then_some(())
    });
    let undisturbed = other.assignment.owned.clone();
    let began = Instant::now();
    for round in 0..3 {
        let mut connection = Connection::login(scene.address());
        let assignment = until("the next process is admitted", || {
            scene.admin.ping();
            other.connection.ping();
            holder.connection.ping();
            match join_instance(&mut connection, &scene.group) {
                Ok(Reply::Assignment(assignment)) => Some(assignment),
                Ok(other) => panic!("join: {other:?}"),
                Err(failure) => {
                    assert_eq!(failure.code, ErrorCode::Retry, "{failure}");
                    let text = failure.text.to_string();
                    assert!(text.contains("two processes have it"), "{text}");
                    holder.sync().expect("it still holds it");
                    None
                }
            }
        });
        assert!(began.elapsed() >= SESSION_TIMEOUT * round);
        let mut next = Member {
            connection,
            group: scene.group.clone(),
            assignment,
        };
        until("the next has its partitions", || {
            other.connection.ping();
            next.sync().expect("it is a member");
            (next.owned().len() == 2).then_some(())
        });
        expect_fenced(&mut holder, &next);
        holder = next;
    }
    other.sync().expect("it is a member");
    assert_eq!(other.assignment.owned, undisturbed);
    let details = scene.group.details(&mut scene.admin);
    assert_eq!(details.members.len(), 2);
}

/// A process that is gone is in nobody's way, however short ago it took over.
#[test]
fn r24_3_process_that_is_gone_is_taken_over_from_at_once() {
    let scene = Scene::new(hasty(), 1, 10);
    let first = member_of(Connection::login(scene.address()), &scene.group);
    let second = member_of(Connection::login(scene.address()), &scene.group);
    drop(second);
    let mut connection = Connection::login(scene.address());
    let again = until("the session has ended", || {
        match join_instance(&mut connection, &scene.group) {
            Ok(Reply::Assignment(assignment)) => Some(assignment),
            Ok(other) => panic!("join: {other:?}"),
            Err(failure) => {
                assert_eq!(failure.code, ErrorCode::Retry, "{failure}");
                None
            }
        }
    });
    assert_eq!(again.member, first.id());
}

#[test]
fn r24_4_member_keeps_its_partitions_when_the_server_dies() {
    let mut scene = Scene::new(patient(), 2, 10);
    let mut member = member_of(Connection::login(scene.address()), &scene.group);
    member.wait_for(2);
    let before = member.assignment.clone();
    scene.crash();
    member.attach(scene.address());
    member.sync().expect("it is a member");
    assert_eq!(member.assignment.owned, before.owned);
    assert_eq!(member.assignment.generation, before.generation);
}

#[test]
fn r24_5_late_copy_of_an_older_join_fences_nobody() {
    let scene = Scene::new(patient(), 1, 10);
    let mut older = Connection::login(scene.address());
    let mut newer = member_of(Connection::login(scene.address()), &scene.group);
    newer.wait_for(1);
    let refused = join_instance(&mut older, &scene.group).expect_err("it is late");
    assert_eq!(refused.code, ErrorCode::FencedInstanceId, "{refused}");
    newer.sync().expect("it is a member");
    assert_eq!(newer.store(0, 9), Ok(Some(Offset(9))));
}

#[test]
fn r24_7_who_was_away_for_too_long_gets_a_fair_share_again() {
    let mut scene = Scene::new(short_lived(), 4, 10);
    let mut other = scene.join();
    let mut member = member_of(Connection::login(scene.address()), &scene.group);
    let shared = |one: &mut Member, two: &mut Member| {
        until("the partitions are shared", || {
            one.sync().expect("it is a member");
            two.sync().expect("it is a member");
            (one.owned().len() == 2 && two.owned().len() == 2).then_some(())
        });
    };
    shared(&mut other, &mut member);
    let id = member.id();
    let gone = Instant::now();
    drop(member);
    until("the other has everything", || {
        other.sync().expect("it is a member");
        (other.owned().len() == 4).then_some(())
    });
    assert!(gone.elapsed() >= SESSION_TIMEOUT);
    let mut member = member_of(Connection::login(scene.address()), &scene.group);
    assert!(member.id() > id);
    shared(&mut other, &mut member);
    assert_eq!(scene.counter("moves_timed_out"), 0);
}
