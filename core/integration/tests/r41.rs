//! R41: a log that has become shorter than what is stored for a group. With one node nobody can repair it:
//! the partition is out of service, says so, and stops no other.

use integration::{DEFAULT_OPTIONS, Group, Member, cut, until};
use wire::{ErrorCode, Offset, Reply};

use crate::fixture::Fixture;

#[test]
fn r41_2_group_never_waits_in_silence_behind_the_end_of_a_log_that_was_cut() {
    let fixture = Fixture::with_checkpoints(1);
    let server = fixture.site.start();
    let mut admin = integration::Connection::login(server.address());
    let group = Group::create(&mut admin, &fixture.topic, "readers", DEFAULT_OPTIONS);
    let group = group.expect("make a group");
    let mut member = Member::join(server.address(), &group);
    let last = group.details(&mut admin).partitions[0].progress.clone();
    let last = last.expect("it is served").end.0 - 1;
    for partition in 0..4 {
        assert_eq!(member.store(partition, last), Ok(Some(Offset(last))));
    }
    let _ = server.kill();
    let segments = fixture.files("segment");
    cut(segments.last().expect("there are some"), 97);
    let server = fixture.site.start();
    let mut admin = integration::Connection::login(server.address());
    member.attach(server.address());
    expect_damaged(&mut member, &group);
    // Nobody's offset is lower for it.
    let stored = group.stored(&mut admin, &[0, 1, 2, 3]);
    assert_eq!(stored, Ok(vec![Some(Offset(last)); 4]));
    // Whoever comes next gets the others, and is told the same of this one.
    let mut second = Member::join(server.address(), &group);
    member.leave().expect("it is a member");
    until("it owns everything", || {
        second.sync().expect("it is a member");
        (second.owned().len() == 4).then_some(())
    });
    expect_damaged(&mut second, &group);
    for partition in 1..4 {
        assert_eq!(second.store(partition, 7), Ok(Some(Offset(last))));
    }
}

/// A poll that would wait is answered at once.
fn expect_damaged(member: &mut Member, group: &Group) {
    assert_eq!(member.group.id, group.id);
    let mut poll = member.poll_of(&[(0, member.epoch(0))], 10);
    poll.min_bytes = 1;
    poll.max_wait_ms = 30_000;
    match member.connection.ask(poll) {
        Ok(Reply::Polled(polled)) => {
            let status = polled.sections[0].status.clone();
            let refused = status.expect_err("it is damaged");
            assert_eq!(refused.code, ErrorCode::PartitionDamaged, "{refused}");
        }
        other => panic!("{other:?}"),
    }
}
