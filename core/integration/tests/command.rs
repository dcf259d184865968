//! The command as a member of a consumer group.

use std::{
    io::{PipeWriter, pipe},
    process::Command,
};

use integration::{Process, ROOT_PASSWORD, binary, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::scene::{Scene, patient, rebalance_timeout};

/// The command, as root of the scene's server.
pub(crate) fn cohort(scene: &Scene, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("cohort"));
    command
        .args(["--address", &scene.address().to_string()])
        .args(arguments)
        .env_clear()
        .env("COHORT_PASSWORD", ROOT_PASSWORD);
    command
}

/// `cohort consume` as a member of the scene's group.
pub(crate) fn consume(scene: &Scene, arguments: &[&str]) -> Command {
    let consume = ["consume", "#1", "#1", "--group", "billing", "--follow"];
    cohort(scene, &[&consume, arguments].concat())
}

/// Waits until a pipe that nobody reads takes nothing more.
fn wait_until_full(pipe: &PipeWriter) {
    until("the pipe is full", || {
        let mut pipe = [PollFd::new(pipe, PollFlags::OUT)];
        let ready = poll(&mut pipe, Some(&Timespec::default())).expect("a pipe can be asked");
        (ready == 0).then_some(())
    });
}

#[test]
fn member_whose_output_is_blocked_tells_that_it_lost_a_partition() {
    let scene = Scene::with_options(patient(), 2, 5_000, rebalance_timeout(300));
    let (_reader, writer) = pipe().expect("make a pipe");
    let output = writer.try_clone().expect("it is shared");
    let process = Process::start_writing_to(consume(&scene, &[]), output);
    wait_until_full(&writer);
    let mut other = scene.join();
    let told = process.log().wait_for("cohort: lost: partition ");
    let told = told.expect("it runs on");
    assert!(told.ends_with("comes again"), "{told}");
    other.wait_for(1);
    assert!(told.contains(&format!("partition {}: ", other.owned()[0])));
    let _ = process.kill();
}

#[test]
fn member_whose_output_is_blocked_ends_when_it_is_told_to_stop_twice() {
    let scene = Scene::new(patient(), 1, 10_000);
    let (_reader, writer) = pipe().expect("make a pipe");
    let output = writer.try_clone().expect("it is shared");
    let mut process = Process::start_writing_to(consume(&scene, &[]), output);
    wait_until_full(&writer);
    until("it ends", || {
        // Those that come while one is taken count as one.
        process.ask_to_stop();
        (!process.is_running()).then_some(())
    });
    let ended = process.wait();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(ended.stderr.contains("ended before"), "{}", ended.stderr);
}

#[test]
fn r44_2_reset_beyond_the_messages_says_what_it_was_clamped_to() {
    let scene = Scene::new(patient(), 2, 10);
    for (to, expected) in [
        (
            "500",
            "clamped: partition 1 has no offset 500; next is 10, ",
        ),
        ("10", ""),
    ] {
        for dry_run in [&["--dry-run"][..], &[]] {
            let reset = ["group", "reset", "#1", "#1", "billing", "--to", to];
            let ended = Process::start(cohort(&scene, &[&reset, dry_run].concat())).wait();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            let told = ended.stdout;
            assert!(told.contains(expected), "{told}");
            assert_eq!(told.contains("clamped"), !expected.is_empty(), "{told}");
        }
    }
}

#[test]
fn r43_2_member_whose_group_is_deleted_says_so_and_how_to_go_on() {
    for create in [&["--create"][..], &[]] {
        let mut scene = Scene::new(patient(), 1, 1);
        let process = Process::start(consume(&scene, create));
        until("it has read", || (scene.next(0) == 1).then_some(()));
        scene.group.delete(&mut scene.admin, true).expect("forced");
        let ended = process.wait();
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        for part in [
            "consumer group billing was deleted",
            "start this again",
            "--create",
        ] {
            assert!(ended.stderr.contains(part), "{}", ended.stderr);
        }
    }
}
