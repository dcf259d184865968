//! Every rule of admission, once.

use std::string::ToString;

use wire::{ClientId, Epoch, ErrorCode, MemberId, Op, PartitionId, SessionNumber};

use super::{Admission, Claim, Intent, Park, Right};
use crate::{
    GroupProjection, MembershipRefused, Reset, ResetTo,
    tests::{Table, at},
};

const APPLIED: Op = Op(1_000);

/// Members 1 and 2 of clients 1 and 2: `1`, `1>2` with epochs 10 and 20.
fn handing_over() -> Table {
    let mut table = Table::new(2);
    table.join(1);
    table.join(2);
    table
}

fn claim(client: u64, epoch: u64, intent: Intent) -> Claim {
    Claim {
        client: ClientId(client.into()),
        session: SessionNumber(client),
        epoch: Epoch(epoch),
        intent,
    }
}

fn admitted(table: &Table, partition: u32, claim: &Claim) -> Admission {
    let projection = GroupProjection::from(&table.group);
    projection.admit(PartitionId(partition), claim, APPLIED)
}

const fn right(member: u64, epoch: u64) -> Right {
    Right {
        member: MemberId(member),
        epoch: Epoch(epoch),
        release: None,
    }
}

const BOTH: [Intent; 2] = [Intent::Poll, Intent::Store];

#[test]
fn owner_is_served_under_its_epoch() {
    let table = handing_over();
    for intent in BOTH {
        let admission = admitted(&table, 0, &claim(1, 10, intent));
        assert_eq!(admission, Admission::Serve(right(1, 10)));
        assert_eq!(
            admitted(&table, 0, &claim(2, 10, intent)),
            Admission::NotOwned
        );
        for epoch in [0, 9, 11, 20] {
            assert_eq!(
                admitted(&table, 0, &claim(1, epoch, intent)),
                Admission::NotOwned
            );
        }
    }
}

#[test]
fn source_of_a_revocation_stores_and_does_not_poll() {
    let table = handing_over();
    let poll = admitted(&table, 1, &claim(1, 10, Intent::Poll));
    assert_eq!(poll, Admission::Revoking { planned: Epoch(20) });
    let store = admitted(&table, 1, &claim(1, 10, Intent::Store));
    assert_eq!(store, Admission::Serve(right(1, 10)));
    // Under a wrong epoch it is not even told that.
    let poll = admitted(&table, 1, &claim(1, 9, Intent::Poll));
    assert_eq!(poll, Admission::NotOwned);
}

#[test]
fn release_counts_for_the_move_that_it_names() {
    let table = handing_over();
    let release = |planned| Intent::Release {
        planned: Epoch(planned),
    };
    let named = admitted(&table, 1, &claim(1, 10, release(20)));
    let both = Right {
        release: Some((Epoch(20), MemberId(2))),
        ..right(1, 10)
    };
    assert_eq!(named, Admission::Serve(both));
    for another in [0, 10, 19, 21] {
        let admission = admitted(&table, 1, &claim(1, 10, release(another)));
        assert_eq!(admission, Admission::Serve(right(1, 10)), "a store only");
    }
    let kept = admitted(&table, 0, &claim(1, 10, release(20)));
    assert_eq!(kept, Admission::Serve(right(1, 10)), "nothing is planned");
    let planned_later = admitted(&table, 1, &claim(1, 10, release(1_001)));
    assert_eq!(planned_later, Admission::Park(Park::Applied(Op(1_001))));
}

#[test]
fn older_epochs_of_one_unbroken_ownership_are_lifted() {
    let mut table = handing_over();
    table.leave(2);
    // Cancelled: owned since 10 under epoch 30.
    for intent in BOTH {
        for epoch in [10, 11, 29] {
            let admission = admitted(&table, 1, &claim(1, epoch, intent));
            assert_eq!(admission, Admission::Lift(right(1, 30)));
        }
        let admission = admitted(&table, 1, &claim(1, 30, intent));
        assert_eq!(admission, Admission::Serve(right(1, 30)));
        assert_eq!(
            admitted(&table, 1, &claim(1, 9, intent)),
            Admission::NotOwned
        );
        assert_eq!(
            admitted(&table, 1, &claim(1, 31, intent)),
            Admission::NotOwned
        );
    }
}

#[test]
fn epochs_of_another_ownership_are_not_lifted() {
    let mut table = handing_over();
    table.settle();
    // Member 2 owns partition 1 since 20; the epochs of member 1 were its own.
    assert_eq!(
        admitted(&table, 1, &claim(2, 10, Intent::Store)),
        Admission::NotOwned
    );
    assert_eq!(
        admitted(&table, 1, &claim(1, 10, Intent::Store)),
        Admission::NotOwned
    );
    let admission = admitted(&table, 1, &claim(2, 20, Intent::Poll));
    assert_eq!(admission, Admission::Serve(right(2, 20)));
}

#[test]
fn epochs_that_are_not_applied_here_wait() {
    let table = handing_over();
    for intent in BOTH {
        // Before anything else is judged: what is not known yet may explain it.
        for (client, partition) in [(1, 0), (2, 0), (9, 0), (1, 77)] {
            let admission = admitted(&table, partition, &claim(client, 1_001, intent));
            assert_eq!(admission, Admission::Park(Park::Applied(Op(1_001))));
        }
    }
}

#[test]
fn target_waits_for_its_move() {
    let mut table = handing_over();
    for intent in BOTH {
        let admission = admitted(&table, 1, &claim(2, 20, intent));
        assert_eq!(admission, Admission::Park(Park::Moved(Epoch(20))));
        assert_eq!(
            admitted(&table, 1, &claim(1, 20, intent)),
            Admission::NotOwned
        );
        assert_eq!(
            admitted(&table, 1, &claim(2, 19, intent)),
            Admission::NotOwned
        );
    }
    table.leave(1);
    let admission = admitted(&table, 1, &claim(2, 20, Intent::Poll));
    assert_eq!(
        admission,
        Admission::Park(Park::Moved(Epoch(20))),
        "from nobody as well"
    );
}

#[test]
fn reset_under_an_owner_refuses_its_old_epoch() {
    let mut table = handing_over();
    let partitions = [(PartitionId(0), ResetTo::Nothing)].to_vec();
    let op = table.next();
    table
        .group
        .reset(
            op,
            &Reset {
                partitions,
                force: true,
            },
        )
        .unwrap();
    for intent in BOTH {
        assert_eq!(
            admitted(&table, 0, &claim(1, 10, intent)),
            Admission::NotOwned
        );
    }
    table.settle();
    assert_eq!(
        admitted(&table, 0, &claim(1, 10, Intent::Store)),
        Admission::NotOwned
    );
    let admission = admitted(&table, 0, &claim(1, 30, Intent::Store));
    assert_eq!(admission, Admission::Serve(right(1, 30)));
}

#[test]
fn other_session_of_the_same_client_is_a_stranger() {
    let table = handing_over();
    let mut other = claim(1, 10, Intent::Poll);
    other.session = SessionNumber(99);
    let Admission::NotMember(refused) = admitted(&table, 0, &other) else {
        panic!("admitted");
    };
    assert!(matches!(refused, MembershipRefused::NotMember { .. }));
}

#[test]
fn session_whose_instance_was_taken_is_told_so() {
    let mut table = Table::new(1);
    table.join_fixed(1, "a");
    table.join_fixed(2, "a");
    let Admission::NotMember(refused) = admitted(&table, 0, &claim(1, 10, Intent::Store)) else {
        panic!("admitted");
    };
    assert!(matches!(refused, MembershipRefused::Fenced(_)));
    let waits = admitted(&table, 0, &claim(2, 20, Intent::Store));
    assert_eq!(waits, Admission::Park(Park::Moved(Epoch(20))));
    table.settle();
    // The epoch of the old session is not lifted for the new one.
    assert_eq!(
        admitted(&table, 0, &claim(2, 10, Intent::Store)),
        Admission::NotOwned
    );
}

#[test]
fn group_without_members_serves_nobody() {
    let mut table = Table::new(1);
    table.join(1);
    table.leave(1);
    let admission = admitted(&table, 0, &claim(1, 10, Intent::Store));
    assert!(matches!(admission, Admission::NotMember(_)));
}

#[test]
fn member_without_partitions_is_a_member() {
    let mut table = Table::new(1);
    table.join(1);
    table.join(2);
    assert_eq!(
        admitted(&table, 0, &claim(2, 10, Intent::Poll)),
        Admission::NotOwned
    );
    assert_eq!(table.assignment(2).owned, []);
}

#[test]
fn every_refusal_has_its_own_code_and_names_the_thing() {
    let table = handing_over();
    let name = GroupProjection::from(&table.group).name();
    let refusal = |client, partition, epoch, intent| {
        let claim = claim(client, epoch, intent);
        let admission = admitted(&table, partition, &claim);
        admission.refusal(&name, PartitionId(partition), &claim)
    };
    let cases = [
        (
            refusal(1, 1, 10, Intent::Poll),
            ErrorCode::PartitionRevoking,
            "partition 1 of consumer group \"g\" (id 1) is being revoked; store what was polled and release it to epoch 20",
        ),
        (
            refusal(2, 0, 10, Intent::Poll),
            ErrorCode::PartitionNotOwned,
            "partition 0 of consumer group \"g\" (id 1) is not owned by the session under epoch 10",
        ),
        (
            refusal(9, 0, 10, Intent::Poll),
            ErrorCode::ConsumerGroupMemberNotFound,
            "session 9 is not a member of consumer group \"g\" (id 1)",
        ),
        (
            refusal(1, 7, 10, Intent::Poll),
            ErrorCode::PartitionNotFound,
            "partition 7 does not exist in the topic of consumer group \"g\" (id 1), which has 2",
        ),
        (
            refusal(2, 1, 20, Intent::Poll),
            ErrorCode::Retry,
            "partition 1 of consumer group \"g\" (id 1) is on its way, under epoch 20",
        ),
        (
            refusal(1, 0, 1_001, Intent::Poll),
            ErrorCode::Retry,
            "this node has not applied metadata op 1001 yet, on which the request rests",
        ),
    ];
    for (failure, code, text) in cases {
        let failure = failure.unwrap();
        assert_eq!((failure.code, failure.text.as_str()), (code, text));
    }
    assert_eq!(refusal(1, 0, 10, Intent::Poll), None);
}

#[test]
fn projection_says_what_moves() {
    let mut table = handing_over();
    let mut projection = GroupProjection::from(&table.group);
    let moves: std::vec::Vec<_> = projection.moves().collect();
    assert_eq!(moves.len(), 1);
    let (partition, view) = moves[0];
    assert_eq!(partition, PartitionId(1));
    assert_eq!(view.owner().unwrap().client, ClientId(1));
    assert_eq!(view.heir().unwrap().session, SessionNumber(2));
    assert_eq!(view.moving().unwrap().since, at(20).timestamp);
    assert_eq!(
        projection.assignment(MemberId(1)),
        table.group.assignment(MemberId(1))
    );

    projection.follow(&table.settle());
    assert_eq!(projection.moves().count(), 0);
    assert_eq!(projection.name().to_string(), "consumer group \"g\" (id 1)");
    assert_eq!(projection.generation(), table.group.generation());
}
