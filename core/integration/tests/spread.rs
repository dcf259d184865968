//! Cases of consumer groups whose members, and whose partitions' primaries, are at different nodes: R04 and R06.

use std::time::{Duration, Instant};

use integration::{DEFAULT_OPTIONS, Deliveries, Member, Site, repetitions, until};
use wire::{ErrorCode, Failure, Offset};

use crate::{
    PARTITIONS, again,
    stage::{Stage, others, patient, rebalance_timeout},
};

/// How long a hand-over may take where it must come to that.
const DEADLINE: Duration = Duration::from_millis(1_500);

/// Messages of each partition.
const EACH: u64 = 50;

/// What the first member has done with every partition when the second one joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing (a).
    Nothing,
    /// It has stored all that it polled (b).
    Stored,
    /// It has polled more than it has stored (c, d).
    Polled,
}

/// The highest offset that is stored where less is stored than was polled.
const PART: u64 = 29;

/// A member at one node that has done so, and one at another that has joined since. Every node leads some of the
/// partitions.
fn two_members(stage: &Stage, before: Before, here: usize) -> (Member, Member) {
    let mut first = stage.join(here);
    first.wait_for(PARTITIONS as usize);
    for partition in 0..PARTITIONS {
        let stored = match before {
            Before::Nothing => continue,
            Before::Stored => EACH - 1,
            Before::Polled => PART,
        };
        let count = u32::try_from(EACH).expect("it is small");
        let page = again("it is read", || first.poll(partition, count));
        assert_eq!(page.messages.len() as u64, EACH);
        let told = again("it is stored", || first.store(partition, stored));
        assert_eq!(told, Some(Offset(stored)));
    }
    (first, stage.join(others(here)[0]))
}

/// a, b and d: it goes when all is stored that was served, wherever each of the three is.
#[test]
fn r04_a_b_d_what_is_stored_goes_at_once_wherever_members_and_primaries_are() {
    let mut stage = Stage::new(EACH);
    let rounds = repetitions(3, 30) as usize;
    let kinds = [Before::Nothing, Before::Stored, Before::Polled];
    for (round, before) in kinds.into_iter().cycle().take(rounds).enumerate() {
        eprintln!("---- {before:?}");
        let drained = stage.counted("moves_drained");
        let (mut first, mut second) = two_members(&stage, before, round % 3);
        if before == Before::Polled {
            first.wait_for_revoking(3);
            for partition in first.revoking() {
                let refused = until("no more is served", || match first.poll(partition, 1) {
                    Err(failure) if failure.code.retryable() && !is_revoking(&failure) => None,
                    other => Some(other.expect_err("it is revoked")),
                });
                assert!(is_revoking(&refused), "{refused}");
                again("it is stored", || first.store(partition, EACH - 2));
                again("it syncs", || second.sync());
                assert!(!second.owned().contains(&partition), "one is not stored");
                again("it is stored", || first.store(partition, EACH - 1));
            }
        }
        second.wait_for(3);
        first.wait_for(3);
        let next = match before {
            Before::Nothing => 0,
            Before::Stored | Before::Polled => EACH,
        };
        for partition in second.owned() {
            let page = again("it is read", || second.poll(partition, 1));
            let from = page.next.0 - page.messages.len() as u64;
            assert_eq!(from, next, "partition {partition}");
        }
        assert_eq!(stage.counted("moves_drained"), drained + 3);
        again("it leaves", || second.leave());
        again("it leaves", || first.leave());
        stage.renew();
    }
    assert_eq!(stage.counted("moves_timed_out"), 0);
}

fn is_revoking(failure: &Failure) -> bool {
    failure.code == ErrorCode::PartitionRevoking
}

/// c: what is not stored goes at the deadline, and is delivered again.
#[test]
fn r04_c_what_is_not_stored_goes_at_the_deadline_wherever_members_and_primaries_are() {
    let deadline = u32::try_from(DEADLINE.as_millis()).expect("it is short");
    let options = rebalance_timeout(deadline);
    let mut stage = Stage::with(|_, site| patient(site), EACH, options);
    for round in 0..repetitions(1, 20) as usize {
        let begun = Instant::now();
        let (mut first, mut second) = two_members(&stage, Before::Polled, round % 3);
        first.wait_for_revoking(3);
        second.wait_for(3);
        assert!(begun.elapsed() >= DEADLINE, "{:?}", begun.elapsed());
        for partition in second.owned() {
            let page = again("it is read", || second.poll(partition, 1));
            assert_eq!(page.messages[0].0, Offset(PART + 1));
            // 20 messages were delivered to the first as well, which may not store them any more.
            let late = until("it is refused", || match first.store(partition, EACH - 1) {
                Err(failure) if failure.code.retryable() => None,
                other => Some(other.expect_err("it is another one's")),
            });
            let codes = [ErrorCode::PartitionNotOwned, ErrorCode::StaleEpoch];
            assert!(codes.contains(&late.code), "{late}");
        }
        assert_eq!(stage.counted("moves_timed_out"), 3 * (round as u64 + 1));
        again("it leaves", || second.leave());
        again("it leaves", || first.leave());
        stage.renew();
    }
}

/// R06: a member that says nothing while the primary dies is expired by the next one. What it had on its way is
/// refused, no node lets it in again, and nothing of it changes anything; not after the next death, either.
#[test]
fn r06_silent_member_is_evicted_by_the_next_primary_and_stays_so_on_every_node() {
    let hasty = |_: usize, site: Site| {
        site.with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
            .with("cluster.timeouts.session_timeout", "\"3 s\"")
    };
    let mut stage = Stage::with(hasty, EACH, DEFAULT_OPTIONS);
    for _ in 0..repetitions(1, 20) {
        let victim = stage.leader(0);
        let [here, there] = others(victim);
        let mut silent = stage.join(here);
        let mut lively = stage.join(there);
        silent.wait_for(3);
        let lost = silent.owned()[0];
        let page = again("it is read", || silent.poll(lost, 30));
        assert_eq!(page.messages.len(), 30);
        // It says nothing from here on.
        stage.kill(victim);
        let deliveries = Deliveries::default();
        let read = |member: &mut Member| {
            until("everything is read", || {
                match member.turn(&deliveries) {
                    Ok(()) => {}
                    Err(failure) => assert!(failure.code.retryable(), "{failure}"),
                }
                let mut all = 0..PARTITIONS;
                let is_all = all.all(|partition| deliveries.count(partition) as u64 == EACH);
                is_all.then_some(())
            });
        };
        read(&mut lively);
        silent.expect_evicted(lost);
        for died in [victim, there] {
            stage.restore(died);
            for node in 0..3 {
                let refused = until("it is answered", || {
                    let attached = silent.connection.try_attach(stage.cluster.address(node));
                    let refused = attached.expect_err("the session has ended")?;
                    (!refused.code.retryable()).then_some(refused)
                });
                assert_eq!(refused.code, ErrorCode::SessionNotFound, "{refused}");
                assert_eq!(stage.stored(node), vec![Some(Offset(EACH - 1)); 6]);
            }
            if died == victim {
                stage.kill(there);
            }
        }
        // As somebody else it is welcome.
        let again = stage.join(here);
        assert!(again.id() > silent.id());
        stage.renew();
    }
}
