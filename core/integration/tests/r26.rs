//! R26 and R48: whoever comes and goes leaves nothing behind, and comes once.

use integration::{Connection, Member, repetitions, until};
use wire::ErrorCode;

use crate::scene::{Scene, hasty, patient};

/// What a server holds of sessions, connections, members and partitions that move.
fn held(scene: &mut Scene) -> [u64; 4] {
    let members = scene.group.details(&mut scene.admin).members.len() as u64;
    [
        scene.counter("sessions"),
        scene.counter("connections"),
        scene.counter("moving"),
        members,
    ]
}

#[test]
fn r26_sessions_and_members_that_vanish_leave_nothing_behind() {
    let mut scene = Scene::new(hasty(), 4, 10);
    let before = held(&mut scene);
    for round in 0..repetitions(10, 1_000) {
        let members: Vec<Member> = (0..3).map(|_| scene.join()).collect();
        for mut member in members {
            match round % 3 {
                0 => drop(member),
                1 => member.leave().expect("it is a member"),
                _ => {
                    let logout = wire::Request::Logout;
                    member.connection.ask(logout).expect("it is logged in");
                }
            }
        }
        let _ = Connection::login(scene.address());
    }
    until("everything is as before", || {
        (held(&mut scene) == before).then_some(())
    });
}

/// What a clean start holds is what the journal and the snapshots have: nothing of those who are gone.
#[test]
fn r26_nothing_is_left_after_a_restart_either() {
    let site = hasty()
        .with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
        .with("cluster.timeouts.session_timeout", "\"2 s\"");
    let mut scene = Scene::new(site, 4, 10);
    for _ in 0..3 {
        drop(scene.join());
    }
    // Whoever was there is given its full time to come back.
    scene.crash();
    until("nobody is left", || {
        let [_, _, moving, members] = held(&mut scene);
        (moving == 0 && members == 0).then_some(())
    });
}

#[test]
fn r48_joining_again_is_the_same_membership() {
    let mut scene = Scene::new(patient(), 2, 10);
    let mut member = scene.join();
    member.wait_for(2);
    let before = scene.group.details(&mut scene.admin);
    for _ in 0..3 {
        let connection = member.connection.attach();
        let again = Member::try_join(connection, &scene.group).expect("join");
        assert_eq!(again.assignment, member.assignment);
        member = again;
    }
    let after = scene.group.details(&mut scene.admin);
    assert_eq!(after.summary, before.summary);
    assert_eq!(after.members, before.members);
    member.leave().expect("it is a member");
    let refused = member.leave().expect_err("it has left");
    assert_eq!(refused.code, ErrorCode::ConsumerGroupMemberNotFound);
}

/// The answer to a join is never read.
#[test]
fn r48_who_vanishes_while_it_joins_is_no_member_for_long() {
    let mut scene = Scene::new(hasty(), 2, 10);
    for _ in 0..repetitions(5, 100) {
        scene.join_and_vanish();
    }
    let sessions = 1;
    until("nobody is left", || {
        let [left, _, moving, members] = held(&mut scene);
        (left == sessions && moving == 0 && members == 0).then_some(())
    });
    let mut member = scene.join_alone();
    let page = member.poll(0, 1).expect("it is the owner");
    assert!(!page.messages.is_empty());
}
