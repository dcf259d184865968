//! Ten members that poll and store share many partitions, and an eleventh takes its share.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{SIGN, done, time_target, until_at_rest};
use crate::{
    connection::Connection,
    error::Error,
    figure::{Section, Unit},
    join::supply,
    member::{Member, Polled},
    target::{Group, Server},
};

const MEMBERS: usize = 10;
const PARTITIONS: u32 = 900;

/// Messages of a partition, each a batch of its own: so many at a time, so many times.
const SUPPLY: u32 = 10;
const SUPPLIES: u32 = 4;

/// From the last join until nothing moves, and from the next one until it owns its share.
const STABLE: Duration = Duration::from_secs(1);
const SHARE: Duration = Duration::from_millis(300);

/// Where the next message of each partition is that nobody has had yet.
struct Progress(Vec<Mutex<u64>>);

impl Progress {
    /// Somebody was served these messages.
    fn served(&self, polled: &Polled) -> Result<(), Error> {
        let next = &self.0[polled.partition.partition.0 as usize];
        let mut next = next.lock().expect("no member panics");
        if polled.messages.start != *next {
            let text = format!(
                "partition {}: {:?} is served where {next} comes next",
                polled.partition.partition, polled.messages
            );
            return Err(Error::answer("PollMessages", text));
        }
        *next = polled.messages.end;
        Ok(())
    }
}

/// # Errors
/// What stops a member; a message that is served twice, or left out.
pub(super) fn measure(server: &mut Server) -> Result<Section, Error> {
    let topic = server.create_topic(&mut server.log_in()?, PARTITIONS)?;
    for _ in 0..SUPPLIES {
        // A session of its own each time: it says nothing else meanwhile.
        supply(server, &server.log_in()?, &topic, SUPPLY)?;
    }
    let mut control = server.log_in()?;
    let group = server.create_group(&mut control, &topic)?;
    let mut sessions = Vec::new();
    for _ in 0..MEMBERS {
        sessions.push(server.log_in()?);
    }
    let progress = Progress((0..PARTITIONS).map(|_| Mutex::new(0)).collect());
    let is_over = AtomicBool::new(false);
    let work = |member: Member| work(member, &progress, &is_over);

    let server = &*server;
    let (stable, share) = thread::scope(|scope| {
        let mut threads = Vec::new();
        let result = (|| {
            for session in sessions {
                let member = Member::join(session, &group)?;
                threads.push(scope.spawn(move || work(member)));
            }
            let begin = Instant::now();
            until_at_rest(&mut control, &group, MEMBERS)?;
            let stable = begin.elapsed();
            let (member, share) = newcomer(server.log_in()?, &group)?;
            threads.push(scope.spawn(move || work(member)));
            until_at_rest(&mut control, &group, MEMBERS + 1)?;
            Ok((stable, share))
        })();
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            done(thread)?;
        }
        result
    })?;

    let name = format!("rebalance: {MEMBERS} members at work on {PARTITIONS} partitions");
    let mut section = Section::new(name);
    let (stable, share) = (stable.as_nanos() as f64, share.as_nanos() as f64);
    section.figure("at rest after the last join", stable, Unit::Nanoseconds);
    section.figure("one more owns its share after", share, Unit::Nanoseconds);
    section.target(time_target(
        "10 members at work, 900 partitions, at rest",
        "after the last join",
        STABLE,
        stable,
    ));
    section.target(time_target(
        "the 11th member owns its share",
        "from its join; nothing is served twice",
        SHARE,
        share,
    ));
    Ok(section)
}

/// One more member joins, and waits for its share.
fn newcomer(session: Connection, group: &Group) -> Result<(Member, Duration), Error> {
    let share = PARTITIONS / (1 + u32::try_from(MEMBERS).expect("there are few"));
    let begin = Instant::now();
    let mut member = Member::join(session, group)?;
    member.wait_until_owns_at_least(share)?;
    Ok((member, begin.elapsed()))
}

/// Polls a message of each partition that it owns and stores them, over and over.
fn work(mut member: Member, progress: &Progress, is_over: &AtomicBool) -> Result<(), Error> {
    let mut signed = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        if signed.elapsed() >= SIGN {
            member.give_sign()?;
            signed = Instant::now();
        }
        member.catch_up()?;
        let polled = member.poll_all()?;
        for one in &polled {
            progress.served(one)?;
        }
        member.store_all(&polled)?;
    }
    Ok(())
}
