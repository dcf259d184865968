//! `handover`: how long a partition takes from one member of a consumer group to another.

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use wire::{AssignedPartition, ErrorCode, PartitionId};

use crate::{
    bench::Bench,
    connection::Connection,
    error::Error,
    figure::Section,
    flush::{Budget, Series},
    join::supply,
    latency::Latency,
    member::Member,
    target::{Group, Server},
};

/// Partitions of the topic: the owner has both, and the newcomer gets one.
const PARTITIONS: u32 = 2;

/// Messages of each partition per hand-over: more than an owner at work can store meanwhile.
const SUPPLY: u32 = 150;

/// The join, the fence and the new owner follow from each other; then the newcomer asks and polls.
const BUDGET: Budget = Budget {
    flushes: 4.0,
    rest: Duration::from_millis(5),
    text: "4 x 4-KiB write and flush + 5 ms",
};

/// Starts a server and measures it.
///
/// # Errors
/// What stops a member or a probe.
pub(crate) fn run(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let (mut server, _own) = bench.server()?;
    let sections = measure(bench, &mut server)?;
    server.stop()?;
    Ok(sections)
}

/// Takes partitions from an owner that has stored what it polled, and from one that polls and stores on.
///
/// # Errors
/// What stops a member or a probe.
pub(crate) fn measure(bench: &mut Bench, server: &mut Server) -> Result<Vec<Section>, Error> {
    let (series, _) = hand_over_often(bench, server, from_owner_at_rest)?;
    let mut at_rest = Section::new("handover: owner has stored all that it polled");
    let target = "hand-over of a drained partition, join to first message";
    series.report(&mut at_rest, "first message after", target, BUDGET);
    let (series, unserved) = hand_over_often(bench, server, from_owner_at_work)?;
    let mut at_work = Section::new("handover: owner polls and stores on, message by message");
    let target = "hand-over from an owner at work, join to first message";
    series.report(&mut at_work, "first message after", target, BUDGET);
    at_work.latency("old owner's last message to new one's first", unserved);
    Ok(vec![at_rest, at_work])
}

/// One hand-over.
struct HandOver {
    /// The old owner, which has lost the partition.
    owner: Member,
    /// The new one.
    newcomer: Newcomer,
    /// What the owner had of the partition at last.
    last: Served,
}

/// A member that has joined and received its first message.
struct Newcomer {
    member: Member,
    joined: Instant,
    partition: AssignedPartition,
    first: Served,
}

/// A message that was received.
#[derive(Clone, Copy, Debug)]
struct Served {
    at: Instant,
    offset: u64,
}

type Way = fn(Member, Connection, &Group) -> Result<HandOver, Error>;

/// Hands partitions over, in rounds; gives also how long nobody was served.
fn hand_over_often(
    bench: &mut Bench,
    server: &mut Server,
    hand_over: Way,
) -> Result<(Series, Latency), Error> {
    let count = bench.pick(15, 60);
    let mut series = Series::begin(bench)?;
    let mut unserved = Latency::new();
    for _ in 0..bench.rounds() {
        let mut connection = server.log_in()?;
        let topic = server.create_topic(&mut connection, PARTITIONS)?;
        supply(server, &connection, &topic, count * SUPPLY)?;
        let group = server.create_group(&mut connection, &topic)?;
        let mut latency = Latency::new();
        let mut owner = Member::join(connection, &group)?;
        let mut connection = server.log_in()?;
        for _ in 0..count {
            owner.wait_until_owns(PARTITIONS)?;
            let done = hand_over(owner, connection, &group)?;
            let Served { at, offset } = done.newcomer.first;
            goes_on(done.last.offset, offset)?;
            latency.record(at - done.newcomer.joined);
            unserved.record(at.saturating_duration_since(done.last.at));
            (owner, connection) = give_back(done.owner, done.newcomer)?;
        }
        series.add(bench, &latency)?;
    }
    Ok((series, unserved))
}

fn from_owner_at_rest(
    mut owner: Member,
    connection: Connection,
    group: &Group,
) -> Result<HandOver, Error> {
    let stored = owner.process_one_of_each()?;
    let at = Instant::now();
    let newcomer = Newcomer::join(connection, group)?;
    let offset = stored[&newcomer.partition.partition];
    Ok(HandOver {
        owner,
        newcomer,
        last: Served { at, offset },
    })
}

fn from_owner_at_work(
    owner: Member,
    connection: Connection,
    group: &Group,
) -> Result<HandOver, Error> {
    let stop = AtomicBool::new(false);
    let (working, is_working) = mpsc::channel();
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(owner, &stop, working));
        // Nothing comes when the owner has failed, which it says itself.
        let newcomer = is_working
            .recv()
            .map(|()| Newcomer::join(connection, group));
        stop.store(true, Ordering::Relaxed);
        let (owner, last) = worker.join().expect("an owner does not panic")?;
        let newcomer = newcomer.expect("the owner worked")?;
        let last = last[&newcomer.partition.partition];
        Ok(HandOver {
            owner,
            newcomer,
            last,
        })
    })
}

/// Polls and stores until told to stop; what is taken away is left alone. Gives the last message of each
/// partition.
fn work(
    mut owner: Member,
    stop: &AtomicBool,
    working: Sender<()>,
) -> Result<(Member, BTreeMap<PartitionId, Served>), Error> {
    let mut held = owner.owned().to_vec();
    let mut last = BTreeMap::new();
    let mut working = Some(working);
    while !held.is_empty() && !stop.load(Ordering::Relaxed) {
        for partition in held.clone() {
            match owner.poll(&partition, 1) {
                Ok(messages) => {
                    let at = Instant::now();
                    let offset = messages.end - 1;
                    last.insert(partition.partition, Served { at, offset });
                    owner.store(&partition, offset)?;
                }
                Err(Error::Refused { failure, .. }) if is_taken_away(failure.code) => {
                    held.retain(|other| *other != partition);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(working) = working.take() {
            // Fails when the other side has failed, which it says itself.
            let _ = working.send(());
        }
    }
    Ok((owner, last))
}

const fn is_taken_away(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::PartitionRevoking | ErrorCode::PartitionNotOwned | ErrorCode::StaleEpoch
    )
}

impl Newcomer {
    fn join(connection: Connection, group: &Group) -> Result<Self, Error> {
        let joined = Instant::now();
        let mut member = Member::join(connection, group)?;
        member.wait_until_owns(PARTITIONS / 2)?;
        let partition = member.owned()[0].clone();
        let messages = member.poll(&partition, 1)?;
        let first = Served {
            at: Instant::now(),
            offset: messages.start,
        };
        Ok(Self {
            member,
            joined,
            partition,
            first,
        })
    }
}

/// A hand-over of what is drained repeats nothing, and leaves nothing out.
fn goes_on(last: u64, first: u64) -> Result<(), Error> {
    if first == last + 1 {
        return Ok(());
    }
    let text = format!("the new owner begins at {first}, the old one ended at {last}");
    Err(Error::answer("PollMessages", text))
}

/// The newcomer leaves, so that the owner gets its partition back.
fn give_back(mut owner: Member, newcomer: Newcomer) -> Result<(Member, Connection), Error> {
    let Newcomer {
        mut member,
        partition,
        first,
        ..
    } = newcomer;
    member.store(&partition, first.offset)?;
    // It has to know of its loss before it can wait for what it gets back.
    owner.wait_until_owns(PARTITIONS / 2)?;
    Ok((owner, member.leave()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_and_left_out_messages_are_errors() {
        assert!(goes_on(6, 7).is_ok());
        for first in [6, 8] {
            let error = goes_on(6, first).unwrap_err().to_string();
            assert!(error.contains(&format!("begins at {first}")), "{error}");
        }
    }
}
