//! `rebalance`: consumer groups of many members and partitions, while members come and die.

mod crowd;
mod working;

use std::{
    thread,
    time::{Duration, Instant},
};

use wire::{
    ConsumerGroupDetails, ConsumerGroupSummary, GetConsumerGroup, GetConsumerGroups, Reply,
};

use crate::{
    bench::Bench,
    connection::{Connection, unexpected},
    error::Error,
    figure::{Section, Side, Target, Unit},
    target::Group,
};

/// How often a session says that it lives.
const SIGN: Duration = Duration::from_secs(2);

/// How often it is looked whether a group is at rest.
const LOOK: Duration = Duration::from_millis(5);

/// A group that does not come to rest by then does not do so at all.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a server and measures it.
///
/// # Errors
/// What stops a member.
pub(crate) fn run(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let (mut server, _own) = bench.server()?;
    let sections = vec![working::measure(&mut server)?, crowd::measure(&mut server)?];
    server.stop()?;
    Ok(sections)
}

/// Waits until a group has so many members, and nothing moves; checks that every partition is owned by one of them.
///
/// # Errors
/// `Server` when that does not come; what a request says.
fn until_at_rest(
    connection: &mut Connection,
    group: &Group,
    members: usize,
) -> Result<ConsumerGroupDetails, Error> {
    let begin = Instant::now();
    let mut signed = begin;
    loop {
        if signed.elapsed() >= SIGN {
            connection.give_sign()?;
            signed = Instant::now();
        }
        let summary = summary(connection, group)?;
        let is_at_rest = summary.member_count as usize == members
            && summary.moving_count == 0
            && !summary.plan_pending;
        if is_at_rest {
            break;
        }
        if begin.elapsed() > PATIENCE {
            let text = format!("the group does not come to rest: {summary:?}");
            return Err(Error::Server(text));
        }
        thread::sleep(LOOK);
    }
    let details = details(connection, group)?;
    let owned = details.partitions.iter();
    let owned = owned.filter(|partition| partition.owner.is_some()).count();
    if owned == group.topic.partitions as usize {
        return Ok(details);
    }
    let text = format!("{owned} partitions of {} are owned", group.topic.partitions);
    Err(Error::Server(text))
}

fn summary(connection: &mut Connection, group: &Group) -> Result<ConsumerGroupSummary, Error> {
    let reply = connection.call(GetConsumerGroups {
        stream: group.topic.stream.clone(),
        topic: group.topic.identifier(),
        after: wire::ConsumerGroupId(group.id.0 - 1),
        limit: 1,
    })?;
    match reply {
        Reply::ConsumerGroups(mut page) if page.groups.len() == 1 => Ok(page.groups.remove(0)),
        other => Err(unexpected("GetConsumerGroups", &other)),
    }
}

fn details(connection: &mut Connection, group: &Group) -> Result<ConsumerGroupDetails, Error> {
    let reply = connection.call(GetConsumerGroup {
        stream: group.topic.stream.clone(),
        topic: group.topic.identifier(),
        group: group.id.into(),
    })?;
    match reply {
        Reply::ConsumerGroupDetails(details) => Ok(details),
        other => Err(unexpected("GetConsumerGroup", &other)),
    }
}

/// A time that may take so long at the most.
fn time_target(name: &str, of: &'static str, limit: Duration, measured: f64) -> Target {
    Target {
        name: name.into(),
        of,
        side: Side::AtMost,
        limit: limit.as_nanos() as f64,
        measured,
        unit: Unit::Nanoseconds,
    }
}

/// Joins a thread that gives what it has done.
fn done<T>(thread: thread::ScopedJoinHandle<'_, Result<T, Error>>) -> Result<T, Error> {
    thread
        .join()
        .unwrap_or_else(|_| Err(Error::Server("a member's thread panicked".into())))
}
