//! The command as a member of a consumer group.

use std::{
    io::{PipeWriter, pipe},
    process::Command,
};

use integration::{Process, ROOT_PASSWORD, binary, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::scene::{Scene, patient, rebalance_timeout};

/// `cohort consume` as a member of the scene's group, which is the first of its topic.
pub(crate) fn consume(scene: &Scene, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("cohort"));
    command
        .args(["--address", &scene.address().to_string()])
        .args(["consume", "#1", "#1", "--group", "#1", "--follow"])
        .args(arguments)
        .env_clear()
        .env("COHORT_PASSWORD", ROOT_PASSWORD);
    command
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
