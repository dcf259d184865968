//! A model of the two planes in which every state is visited: the metadata group decides who owns a
//! partition, a data group serves and stores, and each knows of the other only what it has been told.
//!
//! **What is real.** The metadata plane is made of this crate's own types. [`model::metadata`] applies joins,
//! leaves and completions to a `ConsumerGroup` in every order that the bounds allow, and keeps each
//! history. Admission is `GroupProjection::admit`, after whatever op the primary's copy has reached; when a
//! move may be fenced is `coordinator::hand_over`. The record that the data group keeps, a fence, its
//! holder and the stored offset, is the model's own, so that rules can be taken out of it; a test of its
//! own holds it against the `partition` crate, op by op ([`machine`]).
//!
//! **What is modelled.** One partition, three sessions: A stands by and gets the partition whenever nobody
//! else is there, B is a static member, C takes B over. Joins, leaves, revocations, cancellations, moves
//! that get another target, owners that go, take-overs.
//!
//! | who | what may happen |
//! | --- | --- |
//! | metadata group | joins, leaves and completions are committed, in any order, at any time |
//! | copies of it | the primary of the data group is behind by any number of ops; a new one begins with any |
//! | data group | up to two ops are prepared; a view change loses or keeps any that are not committed, and keeps all that are. What the primary remembers of polls ends with its view |
//! | deposed primary | it goes on with its record and its copy of the metadata, which may catch up. It answers what a majority has confirmed before; whatever comes later waits in vain |
//! | reconciler | each of its steps may not come for any time, or be another primary's: it may stop between a fence and the completion. Its time is over at any moment |
//! | consumers | they learn any later state of theirs when they sync; process slowly; store anything they have processed, again, late, and in any order; release what is revoked; come with epochs that they only know of, or that nobody has |
//! | messages | what is sent is not used up, and nothing has to arrive: all are lost, repeated, late and reordered |
//!
//! **What must hold** in every state: see [`model::mutation::violation`]. Besides, [`model::metadata`] asserts G1 and G2
//! of every history, and from every state a reconciler that is left alone ends the move (G3).
//!
//! **What is not modelled.** Resets, purges, deletion, retention and more partitions than one; the plan is
//! tested elsewhere. `commit_on_poll`. More than one poll that is held at a time: each is judged by
//! itself. View changes of the metadata group, and how a group replicates: that an op is committed means
//! that it stays (V1 to V18). How a round of confirmation is carried out: a poll that comes to the current
//! primary is confirmed, one that comes to a deposed one never is. A consumer's clock.
//!
//! **How it stays small.** A state forgets what can make no difference any more: a completion of a plan
//! that has changed, an op that is going to be refused, what is on its way of an ownership that is over and
//! fenced, a deposed primary that holds no poll (`Steps::settle`).
//!
//! A rule that is taken out ([`Mutation`]) has to be missed: the search finds a violation, and prints the
//! shortest way to it; for some also what the members get to see when the first violation is let pass.
//! [`Floor`]s are what has to be seen for "no violation" to mean anything.
#![expect(
    clippy::print_stdout,
    reason = "says how large the model is, and how a missing rule shows"
)]

mod model;

use model::{
    machine,
    metadata::{A, B, C, Command, Plane},
    mutation::{Floor, Mutation},
    search::{Found, search},
    step::{Action, Bounds, Model},
};

/// Whoever there is comes and goes.
const ALL: [Command; 6] = [
    Command::Join(A),
    Command::Join(B),
    Command::Join(C),
    Command::Leave(A),
    Command::Leave(B),
    Command::Leave(C),
];

/// The partition is revoked from A, given back, and revoked again.
const BACK_AND_FORTH: [Command; 2] = [Command::Join(B), Command::Leave(B)];

const CHANGES: Bounds = Bounds {
    views: 1,
    prepared: 2,
    messages: 2,
};

/// One message is enough to be repeated.
const CANCELLATIONS: Bounds = Bounds {
    messages: 1,
    ..CHANGES
};

fn changes() -> Plane {
    Plane::new(2, &ALL)
}

fn cancellations() -> Plane {
    Plane::new(3, &BACK_AND_FORTH)
}

/// Visits every state, and fails with the shortest way to one that is wrong.
fn exhaust(plane: &Plane, bounds: Bounds) -> Found {
    let model = Model {
        plane,
        bounds,
        mutation: None,
        ignored: &[],
    };
    let found = search(&model);
    println!(
        "{} histories of the metadata, {} states, {} transitions, depth {}",
        plane.len(),
        found.states,
        found.transitions,
        found.depth
    );
    for floor in Floor::ALL {
        println!("  {floor:?}: {}", found.reached[floor.index()]);
    }
    if let Some((violation, way)) = &found.violation {
        panic!("{violation}\n{}", trace(way));
    }
    found
}

fn trace(way: &[Action]) -> String {
    let steps = (1..).zip(way);
    steps
        .map(|(number, action)| format!("  {number:2}. {action}\n"))
        .collect()
}

fn assert_floors(found: &Found, but: &[Floor]) {
    for floor in Floor::ALL {
        let reached = found.reached[floor.index()] > 0;
        assert!(
            reached || but.contains(&floor),
            "{floor:?} is never reached"
        );
    }
}

#[test]
fn no_order_of_changes_lets_anything_past_a_fence() {
    let found = exhaust(&changes(), CHANGES);
    assert_floors(&found, &[]);
}

#[test]
fn no_cancellation_lets_anything_past_a_fence() {
    let found = exhaust(&cancellations(), CANCELLATIONS);
    // A source is let go before its move gets another target: there is none.
    assert_floors(&found, &[Floor::Fenced]);
}

#[test]
#[ignore = "half a minute in a release build: cargo test --release -p coordinator --test two_planes -- --ignored"]
fn no_third_change_or_second_view_change_lets_anything_past_a_fence() {
    let found = exhaust(&Plane::new(3, &ALL), CHANGES);
    assert_floors(&found, &[]);
    let found = exhaust(
        &changes(),
        Bounds {
            views: 2,
            ..CHANGES
        },
    );
    assert_floors(&found, &[]);
}

/// Searches without a rule, and fails unless that is found to violate what it should.
fn assert_missed(mutation: Mutation, (plane, bounds): (&Plane, Bounds), case: Case<'_>) {
    let model = Model {
        plane,
        bounds,
        mutation: Some(mutation),
        ignored: case.ignored,
    };
    let found = search(&model);
    let Some((violation, way)) = found.violation else {
        panic!("nothing is wrong without {mutation:?}");
    };
    println!(
        "{mutation:?}, after {} states: {violation}\n{}",
        found.states,
        trace(&way)
    );
    assert_eq!(violation, case.violated, "{mutation:?}\n{}", trace(&way));
}

/// What a search without a rule lets pass, and what it has to find then.
#[derive(Clone, Copy)]
struct Case<'a> {
    ignored: &'a [&'static str],
    violated: &'static str,
}

#[test]
fn every_rule_that_is_taken_out_is_missed() {
    let (changes, cancellations) = (changes(), cancellations());
    for (mutation, violated) in Mutation::ALL {
        let world = if mutation.needs_cancellation() {
            (&cancellations, CANCELLATIONS)
        } else {
            (&changes, CHANGES)
        };
        let ignored = &[];
        assert_missed(mutation, world, Case { ignored, violated });
    }
}

#[test]
fn what_gets_past_a_fence_is_felt_by_the_members() {
    let one_change = Plane::new(1, &ALL);
    for (mutation, ignored, violated) in Mutation::FELT {
        assert_missed(mutation, (&one_change, CHANGES), Case { ignored, violated });
    }
}

#[test]
fn record_is_that_of_the_partition_crate() {
    assert!(machine::compare() > 1_000);
}
