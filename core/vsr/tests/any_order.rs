//! Three and five replicas in view 0, with messages lost, repeated and in any order, and disks and state
//! machines as slow as they like. What must hold at every step is checked by the network; what must hold
//! in the end is checked here.

mod network;

use network::{Network, Outcome};
use proptest::{
    collection::vec,
    prelude::{ProptestConfig, any},
    prop_assert, prop_assert_eq, proptest,
};
use vsr::{Input, Note, Origin, Refusal, Token};
use wire::{ClientId, Op, RequestNumber};

/// What one of three clients sends next: mostly the request after its last executed one, also that one
/// again, an older one, one too far, or a login.
fn next_of_client(choice: u32, network: &Network) -> Origin {
    let client = ClientId(u128::from(1 + choice % 3));
    let choice = choice / 3;
    let sessions = network.node(0).replica.client_sessions();
    let Some(entry) = sessions.session(client).filter(|_| choice % 32 != 31) else {
        return Origin::Register { client };
    };
    let last = entry.request.0;
    let request = match choice % 8 {
        0 => last.saturating_sub(1),
        1 => last,
        2 => last + 2,
        _ => last + 1,
    };
    Origin::Session {
        client,
        session: entry.session,
        request: RequestNumber(request),
    }
}

/// Whether a backup misses nearly as many ops as a primary keeps in memory. To catch up with more takes
/// reads of the journal or a state transfer.
fn is_far_behind(network: &Network) -> bool {
    let primary = network.node(0).replica.op().0;
    let lowest = network.nodes.iter().map(|node| node.replica.op().0).min();
    lowest.is_some_and(|lowest| primary - lowest >= 60)
}

/// One run: every number is one step.
fn run(replica_count: u8, steps: &[u32]) -> Network {
    let mut network = Network::new(replica_count);
    for (token, step) in (1..).zip(steps) {
        let pick = step / 100;
        let replica = u8::try_from(pick % u32::from(replica_count)).expect("a remainder of a u8");
        let index = |length: usize| (pick as usize / 8) % length;
        let messages = network.messages.len();
        let writes = network.node(replica).writes.len();
        match step % 100 {
            0..=34 if messages > 0 => network.deliver(index(messages), false),
            35..=40 if messages > 0 => network.deliver(index(messages), true),
            41..=45 if messages > 0 => {
                network.messages.remove(index(messages));
            }
            46..=59 if writes > 0 => network.finish_write(replica, index(writes)),
            60..=67 => network.execute_one(replica),
            68..=70 => network.deliver_to(replica),
            71 => network.lose_to(replica),
            72..=77 => network.tick(u64::from(pick % 30)),
            78..=81 => {
                let token = Token(token);
                network.asked.insert(token);
                network.handle(0, Input::ConfirmView { token });
            }
            82..=87 if !is_far_behind(&network) => network.request(0, token, Origin::Internal),
            88..=99 if !is_far_behind(&network) => {
                let origin = next_of_client(pick, &network);
                network.request(0, token, origin);
            }
            _ => {}
        }
    }
    network.settle();
    network
}

fn check(network: &Network) -> Result<(), proptest::test_runner::TestCaseError> {
    let primary = network.node(0);
    let history: Vec<_> = network.history.values().collect();
    prop_assert_eq!(primary.replica.op(), Op(history.len() as u64));
    for node in &network.nodes {
        // Everybody has applied everything, the same, and keeps the same table.
        prop_assert_eq!(node.replica.op(), primary.replica.op());
        prop_assert_eq!(node.replica.commit_min(), primary.replica.op());
        prop_assert_eq!(&node.executed, &primary.executed);
        prop_assert_eq!(
            node.replica.client_sessions(),
            primary.replica.client_sessions()
        );
    }
    for token in &network.asked {
        prop_assert!(
            network.outcomes.contains_key(token),
            "{:?} has no answer",
            token
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn three_replicas_agree(steps in vec(any::<u32>(), 100..800)) {
        check(&run(3, &steps))?;
    }

    #[test]
    fn five_replicas_agree(steps in vec(any::<u32>(), 100..800)) {
        check(&run(5, &steps))?;
    }
}

/// The steps do reach what they are for: a fixed run has repairs, cached replies, refusals, confirmations.
#[test]
fn runs_reach_what_they_are_for() {
    let mut state: u32 = 1;
    let steps: Vec<u32> = (0..20_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        })
        .collect();
    let network = run(3, &steps);
    check(&network).expect("the run is correct");
    let refused = |reason| {
        let outcome = Outcome::Refused(reason);
        network.outcomes.values().any(|it| *it == outcome)
    };
    for reason in [
        Refusal::Busy,
        Refusal::InFlight,
        Refusal::NoSession,
        Refusal::Stale,
        Refusal::Superseded,
    ] {
        assert!(refused(reason), "{reason:?}");
    }
    assert!(
        network
            .outcomes
            .values()
            .any(|it| *it == Outcome::Confirmed)
    );
    let mut notes = network.notes.iter().map(|(_, note)| note);
    assert!(notes.any(|note| matches!(note, Note::RepairRequested { .. })));
    assert!(notes.any(|note| matches!(note, Note::Skipped { .. })));
    let replies = network.outcomes.values();
    let replies = replies.filter(|it| matches!(it, Outcome::Reply(_))).count();
    assert!(replies > network.history.len() / 2);
    assert!(network.history.len() > 200);
}
