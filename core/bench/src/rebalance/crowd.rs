//! A thousand members join a group of a thousand partitions, and half of them die at once.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{SIGN, done, time_target, until_at_rest};
use crate::{
    connection::Connection,
    error::Error,
    figure::{Section, Unit},
    latency::Latency,
    member::Member,
    target::{Group, Server},
};

const MEMBERS: usize = 1_000;
const PARTITIONS: u32 = 1_000;

/// Threads that the members are spread over; each joins one after the other.
const THREADS: usize = 10;

/// Joins of the last so many members are held against the limit.
const LAST: usize = 100;

/// How often the member of another group does.
const HEARTBEAT: Duration = Duration::from_millis(5);

/// From the first join until nothing moves; a join at the end; a sign of life of others meanwhile; and from the
/// death of half of them, behind the grace of a session without a connection, which is 1 s.
const STABLE: Duration = Duration::from_secs(10);
const JOIN: Duration = Duration::from_millis(100);
const SIGN_OF_OTHERS: Duration = Duration::from_millis(50);
const AFTER_DEATHS: Duration = Duration::from_secs(6);

/// What the threads go by.
struct Stage {
    /// Threads whose members are logged in.
    ready: AtomicUsize,
    all_join: AtomicBool,
    joined: AtomicUsize,
    half_dies: AtomicBool,
    is_over: AtomicBool,
}

/// # Errors
/// What stops a member.
pub(super) fn measure(server: &mut Server) -> Result<Section, Error> {
    let mut control = server.log_in()?;
    let topic = server.create_topic(&mut control, PARTITIONS)?;
    let group = server.create_group(&mut control, &topic)?;
    let other = server.create_topic(&mut control, 1)?;
    let other = server.create_group(&mut control, &other)?;
    drop(control);
    let stage = Stage {
        ready: AtomicUsize::new(0),
        all_join: AtomicBool::new(false),
        joined: AtomicUsize::new(0),
        half_dies: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    };
    let (server, stage, group) = (&*server, &stage, &group);
    let (stable, after_deaths, joins, signs) = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(move || part(server, group, stage)))
            .collect();
        let bystander = scope.spawn(move || bystander(server, &other, stage));
        while stage.ready.load(Ordering::Relaxed) < THREADS {
            thread::sleep(HEARTBEAT);
        }
        let measured = watch(server, group, stage);
        stage.is_over.store(true, Ordering::Relaxed);
        let mut joins = Latency::new();
        for thread in threads {
            joins.merge(&done(thread)?);
        }
        let signs = done(bystander)?;
        let (stable, after_deaths) = measured?;
        Ok::<_, Error>((stable, after_deaths, joins, signs))
    })?;
    Ok(section((stable, after_deaths), joins, signs))
}

fn section(
    (stable, after_deaths): (Duration, Duration),
    joins: Latency,
    signs: Latency,
) -> Section {
    let name = format!("rebalance: {MEMBERS} members, {PARTITIONS} partitions");
    let mut section = Section::new(name);
    let (stable, after) = (stable.as_nanos() as f64, after_deaths.as_nanos() as f64);
    let (join, sign) = (joins.quantile(0.99), signs.quantile(0.99));
    section.figure("at rest after the first join", stable, Unit::Nanoseconds);
    section.latency("joins of the last 100", joins);
    section.latency("signs of life of another group meanwhile", signs);
    section.figure("at rest after half of them died", after, Unit::Nanoseconds);
    for (name, of, limit, measured) in [
        (
            "1,000 members join 1,000 partitions, at rest",
            "after the first join",
            STABLE,
            stable,
        ),
        (
            "one of the last 100 joins, p99",
            "until it is answered",
            JOIN,
            join,
        ),
        (
            "signs of life of another group meanwhile, p99",
            "until they are answered",
            SIGN_OF_OTHERS,
            sign,
        ),
        (
            "500 of them die at once, at rest",
            "grace of 1 s + 5 s",
            AFTER_DEATHS,
            after,
        ),
    ] {
        section.target(time_target(name, of, limit, measured));
    }
    section
}

/// Takes the times.
fn watch(server: &Server, group: &Group, stage: &Stage) -> Result<(Duration, Duration), Error> {
    let mut control = server.log_in()?;
    let begin = Instant::now();
    stage.all_join.store(true, Ordering::Relaxed);
    until_at_rest(&mut control, group, MEMBERS)?;
    let stable = begin.elapsed();
    let begin = Instant::now();
    stage.half_dies.store(true, Ordering::Relaxed);
    until_at_rest(&mut control, group, MEMBERS / 2)?;
    Ok((stable, begin.elapsed()))
}

/// Some of the members: logged in beforehand, then all at once joining, then alive. Gives how long those joins took
/// that came last.
fn part(server: &Server, group: &Group, stage: &Stage) -> Result<Latency, Error> {
    let sessions = log_in(server, stage);
    let mut latency = Latency::new();
    let mut members = Vec::new();
    for session in sessions? {
        let begin = Instant::now();
        members.push(Member::join(session, group)?);
        if stage.joined.fetch_add(1, Ordering::Relaxed) >= MEMBERS - LAST {
            latency.record(begin.elapsed());
        }
    }
    let mut due = Instant::now();
    while !stage.is_over.load(Ordering::Relaxed) {
        if stage.half_dies.load(Ordering::Relaxed) && members.len() == MEMBERS / THREADS {
            for member in members.drain(..MEMBERS / THREADS / 2) {
                member.die();
            }
        }
        if due.elapsed() >= SIGN {
            for member in &mut members {
                member.give_sign()?;
            }
            due = Instant::now();
        }
        thread::sleep(HEARTBEAT);
    }
    Ok(latency)
}

/// Logs members in, and waits for those of the other threads: a login takes a password check. Who was first says
/// meanwhile that it lives.
fn log_in(server: &Server, stage: &Stage) -> Result<Vec<Connection>, Error> {
    let mut sessions: Vec<Connection> = Vec::new();
    let mut due = Instant::now();
    while !stage.all_join.load(Ordering::Relaxed) {
        if sessions.len() == MEMBERS / THREADS {
            thread::sleep(HEARTBEAT);
        } else {
            sessions.push(log_in_once(server, stage, sessions.len())?);
        }
        if due.elapsed() >= SIGN {
            for session in &mut sessions {
                session.give_sign()?;
            }
            due = Instant::now();
        }
    }
    Ok(sessions)
}

/// The next of some; when it is the last, its thread is ready. Whoever can log in no more is ready, too: it fails.
fn log_in_once(server: &Server, stage: &Stage, before: usize) -> Result<Connection, Error> {
    let session = server.log_in();
    if session.is_err() || before + 1 == MEMBERS / THREADS {
        stage.ready.fetch_add(1, Ordering::Relaxed);
    }
    session
}

/// A member of another group that gives signs of life all the time.
fn bystander(server: &Server, group: &Group, stage: &Stage) -> Result<Latency, Error> {
    let mut member = Member::join(server.log_in()?, group)?;
    let mut latency = Latency::new();
    while !stage.is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        member.give_sign()?;
        latency.record(begin.elapsed());
        thread::sleep(HEARTBEAT);
    }
    Ok(latency)
}
