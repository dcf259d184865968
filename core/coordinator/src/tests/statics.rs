//! Static members: an instance id outlives the session of its process.

use std::{string::ToString, vec};

use wire::{ClientId, Epoch, ErrorCode, Failure, MemberId, PartitionId, SessionNumber};

use super::{Table, at, fixed, repeated, told};
use crate::{Join, MemberState, MembershipRefused};

fn client(client: u64) -> ClientId {
    ClientId(client.into())
}

fn detach(table: &mut Table, number: u64) {
    let at = table.next();
    table
        .group
        .end_sessions(at, &[(client(number), SessionNumber(number))], true);
}

#[test]
fn restarted_process_keeps_its_partitions_behind_a_fence() {
    let mut table = Table::new(4);
    table.join_fixed(1, "a");
    table.join(2);
    table.settle();
    let generation = table.generation();
    detach(&mut table, 1);
    assert_eq!(table.drawn(), ["1", "1", "2", "2"]);
    assert_eq!(
        table.generation(),
        generation,
        "nobody's assignment changed"
    );
    assert_eq!(
        table.group.member(MemberId(1)).unwrap().state,
        MemberState::Detached
    );

    let (member, change) = table.join_fixed(3, "a");
    assert_eq!(member, 1);
    assert_eq!(table.drawn(), ["->1", "->1", "2", "2"]);
    assert_eq!(told(&change), [1], "member 2 is not disturbed");
    let change = table.settle();
    assert_eq!(table.drawn(), ["1", "1", "2", "2"]);
    assert_eq!(told(&change), [1]);
    assert_eq!(change.notify[0].session, SessionNumber(3));
}

#[test]
fn dynamic_members_do_not_outlive_their_session() {
    let mut table = Table::new(4);
    table.join(1);
    table.join_fixed(2, "a");
    table.settle();
    let at = table.next();
    let both = [(client(1), SessionNumber(1)), (client(2), SessionNumber(2))];
    table.group.end_sessions(at, &both, true);
    assert_eq!(table.group.members().len(), 1);
    assert_eq!(table.drawn(), ["->2", "->2", "2", "2"]);
    // Without the grace the static one goes as well.
    table.join_fixed(3, "a");
    let at = table.next();
    table
        .group
        .end_sessions(at, &[(client(3), SessionNumber(3))], false);
    assert_eq!(table.group.members().len(), 0);
}

#[test]
fn second_process_fences_the_first_and_both_are_told_of_each_other() {
    let mut table = Table::new(2);
    table.join_fixed(1, "a");
    let generation = table.generation();
    table.join_fixed(2, "a");
    assert_eq!(table.generation(), generation + 1);
    let refused = table
        .group
        .membership(client(1), SessionNumber(1))
        .unwrap_err();
    let MembershipRefused::Fenced(fenced) = &refused else {
        panic!("{refused}");
    };
    assert_eq!((fenced.client, fenced.since), (client(2), at(20).timestamp));
    let failure = Failure::from(refused);
    assert_eq!(failure.code, ErrorCode::FencedInstanceId);
    assert_eq!(
        failure.text,
        "instance id \"a\" of consumer group \"g\" (id 1) (member 1) is held by session 2 of client 2 at 10.0.0.2:4000; session 1 is fenced"
    );
    let displaced = table.group.member(MemberId(1)).unwrap().displaced.unwrap();
    assert_eq!(
        (displaced.client, displaced.session),
        (client(1), SessionNumber(1))
    );
    assert!(table.group.membership(client(2), SessionNumber(2)).is_ok());
    let at = table.next();
    let left = table
        .group
        .leave(at, client(1), SessionNumber(1))
        .unwrap_err();
    assert_eq!(Failure::from(left).code, ErrorCode::FencedInstanceId);
}

#[test]
fn late_copy_of_an_older_join_fences_nobody() {
    let mut table = Table::new(2);
    table.join_fixed(5, "a");
    let before = table.group.clone();
    for session in [4, 5] {
        let late = Join {
            session: SessionNumber(session),
            ..fixed(3, "a")
        };
        let refused = table.try_join(late).unwrap_err();
        assert_eq!(Failure::from(refused).code, ErrorCode::FencedInstanceId);
        assert_eq!(table.group, before);
    }
}

#[test]
fn older_session_may_have_the_place_of_a_dead_one() {
    let mut table = Table::new(2);
    table.join_fixed(5, "a");
    detach(&mut table, 5);
    let (member, _) = table.join_fixed(3, "a");
    assert_eq!(member, 1);
    assert_eq!(table.group.member(MemberId(1)).unwrap().displaced, None);
}

#[test]
fn fenced_process_comes_back_with_a_new_session() {
    let mut table = Table::new(2);
    table.join_fixed(1, "a");
    table.join_fixed(2, "a");
    let again = Join {
        session: SessionNumber(9),
        ..fixed(1, "a")
    };
    let (joined, _) = table.try_join(again).unwrap();
    assert_eq!(joined.member, MemberId(1));
    assert!(table.group.membership(client(1), SessionNumber(9)).is_ok());
    assert!(table.group.membership(client(1), SessionNumber(1)).is_err());
    let displaced = table.group.member(MemberId(1)).unwrap().displaced.unwrap();
    assert_eq!(displaced.client, client(2));
}

#[test]
fn fenced_process_may_join_as_somebody_else() {
    let mut table = Table::new(2);
    table.join_fixed(1, "a");
    table.join_fixed(2, "a");
    let (member, _) = table.join(1);
    assert_eq!(member, 2);
    assert!(table.group.membership(client(1), SessionNumber(1)).is_ok());
    table.leave(1);
    let refused = table
        .group
        .membership(client(1), SessionNumber(1))
        .unwrap_err();
    assert_eq!(
        Failure::from(refused).code,
        ErrorCode::ConsumerGroupMemberNotFound
    );
}

#[test]
fn what_was_already_on_its_way_to_another_goes_there() {
    let mut table = Table::new(4);
    table.join_fixed(1, "a");
    table.join(2);
    assert_eq!(table.drawn(), ["1", "1", "1>2", "1>2"]);
    table.join_fixed(3, "a");
    assert_eq!(table.drawn(), ["->1", "->1", "->2", "->2"]);
    let epochs: vec::Vec<_> = table.moves().iter().map(|(_, epoch)| epoch.0).collect();
    assert_eq!(epochs, [30, 30, 20, 20]);
}

/// The fence for the old session may be raised by then: its epoch is nobody else's.
#[test]
fn take_over_of_a_target_gives_the_moves_to_it_a_new_epoch() {
    let mut table = Table::new(2);
    table.join(1);
    table.join_fixed(2, "a");
    assert_eq!(table.drawn(), ["1", "1>2"]);
    let since = table
        .group
        .ownership(PartitionId(1))
        .unwrap()
        .moving()
        .unwrap()
        .since;
    table.join_fixed(3, "a");
    assert_eq!(table.drawn(), ["1", "1>2"]);
    let moving = table
        .group
        .ownership(PartitionId(1))
        .unwrap()
        .moving()
        .unwrap();
    assert_eq!((moving.epoch, moving.since), (Epoch(30), since));
    let change = table.complete(&[(1, 20)]);
    assert!(change.is_empty(), "that epoch was the old session's");
    let change = table.complete(&[(1, 30)]);
    let sessions: vec::Vec<_> = change.notify.iter().map(|it| it.session.0).collect();
    assert_eq!(sessions, [1, 3], "the new session is told");
}

#[test]
fn absent_too_long_is_like_any_expiry() {
    let mut table = Table::new(4);
    table.join_fixed(1, "a");
    table.join(2);
    table.settle();
    detach(&mut table, 1);
    let at = table.next();
    table.group.expire(at, &[(MemberId(1), SessionNumber(1))]);
    table.settle();
    assert_eq!(table.drawn(), repeated("2", 4));
    let (member, _) = table.join_fixed(4, "a");
    assert_eq!(member, 3, "another member");
    table.settle();
    assert_eq!(table.counts(), [2, 2], "with a fair share");
}

#[test]
fn partitions_are_assigned_to_a_static_member_that_is_away() {
    let mut table = Table::new(2);
    table.join_fixed(1, "a");
    table.join(2);
    table.settle();
    detach(&mut table, 1);
    let at = table.next();
    table.group.partitions_created(at, 2);
    assert_eq!(table.counts(), [2, 2]);
}

#[test]
fn instance_ids_follow_the_rules_of_names_and_may_look_like_ids() {
    let mut table = Table::new(1);
    for wrong in ["", " a", "a\n", "#\n", "id:7 "] {
        let refused = table.try_join(fixed(1, wrong)).unwrap_err();
        assert_eq!(Failure::from(refused).code, ErrorCode::InvalidName);
    }
    let refused = table.try_join(fixed(1, &"x".repeat(256))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "instance id a name of 256 bytes exceeds the limit of 255"
    );
    for right in (1..).zip(["7", "#7", "id:7"]) {
        assert!(table.try_join(fixed(right.0, right.1)).is_ok());
    }
}
