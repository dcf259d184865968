//! R24: static members. Who is stopped keeps its partitions, and whoever comes with its instance id goes on.

use std::time::Duration;

use cohort::Error;
use integration::{Ended, Process, until};
use wire::{ConsumerGroupDetails, MemberDetails, MemberStatus};

use crate::{
    application::Application,
    command::consume,
    scene::{Scene, hasty},
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
