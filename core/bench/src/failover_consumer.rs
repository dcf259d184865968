//! `failover-consumer`: how soon others go on with what a consumer leaves behind that dies.

use std::time::Instant;

use crate::{
    bench::Bench,
    error::Error,
    figure::{Section, Side, Target, Unit, median},
    flush::flushed_write,
    join::supply,
    latency::Latency,
    member::Member,
    server::Launch,
    target::{Group, Server},
};

/// Partitions of the topic: the two members have one each.
const PARTITIONS: u32 = 2;

/// Messages that each partition needs per death.
const SUPPLY: u32 = 4;

/// How long the messages of the dead may take to reach somebody else, nanoseconds.
const LIMIT: f64 = 100e6;

/// A server that ends a session as soon as its last connection is lost.
///
/// # Errors
/// `Usage` with a server that runs already.
pub(crate) fn launch(bench: &mut Bench) -> Result<Launch, Error> {
    let mut launch = bench.launch()?;
    let grace = ("COHORT__CLUSTER__TIMEOUTS__DISCONNECT_GRACE", "0 s".into());
    launch.settings.push(grace);
    Ok(launch)
}

/// Starts a server and measures it.
///
/// # Errors
/// `Usage` with a server that runs already; what stops a member.
pub(crate) fn run(bench: &mut Bench) -> Result<Section, Error> {
    let launch = launch(bench)?;
    let (mut server, _) = Server::start(&launch)?;
    let section = measure(bench, &mut server)?;
    server.stop()?;
    Ok(section)
}

/// Kills one of two members again and again, on a server that was started for it.
///
/// # Errors
/// What stops a member or the probe.
pub(crate) fn measure(bench: &mut Bench, server: &mut Server) -> Result<Section, Error> {
    let deaths = bench.pick(5, 20);
    let (mut assigned, mut served) = (Latency::new(), Latency::new());
    let mut flushes = vec![flushed_write(bench)?.median()];
    for _ in 0..bench.rounds() {
        let mut connection = server.log_in()?;
        let topic = server.create_topic(&mut connection, PARTITIONS)?;
        supply(server, &connection, &topic, deaths * SUPPLY)?;
        let group = server.create_group(&mut connection, &topic)?;
        let mut survivor = Member::join(connection, &group)?;
        for _ in 0..deaths {
            survivor = death(server, &group, survivor, (&mut assigned, &mut served))?;
        }
        flushes.push(flushed_write(bench)?.median());
    }
    let mut section = Section::new("failover of a consumer: disconnect grace 0");
    section.latency("assigned to the other one after", assigned);
    let measured = served.quantile(0.99);
    section.latency("its messages are there after", served);
    let name = "write and flush 4 KiB next to it, p50";
    section.figure(name, median(flushes), Unit::Nanoseconds);
    section.target(Target {
        name: "a consumer's connection is lost, p99".into(),
        of: "until its next message is received by another one",
        side: Side::AtMost,
        limit: LIMIT,
        measured,
        unit: Unit::Nanoseconds,
    });
    Ok(section)
}

/// Lets somebody join, poll without storing, and die; the survivor goes on with the same message.
fn death(
    server: &Server,
    group: &Group,
    mut survivor: Member,
    (assigned, served): (&mut Latency, &mut Latency),
) -> Result<Member, Error> {
    survivor.wait_until_owns(PARTITIONS)?;
    let mut victim = Member::join(server.log_in()?, group)?;
    victim.wait_until_owns(PARTITIONS / 2)?;
    let polled = victim.poll(&victim.owned()[0].clone(), 1)?;
    survivor.wait_until_owns(PARTITIONS / 2)?;
    let own = survivor.owned()[0].partition;
    let begin = Instant::now();
    victim.die();
    survivor.wait_until_owns(PARTITIONS)?;
    assigned.record(begin.elapsed());
    let mut owned = survivor.owned().iter();
    let left = owned.find(|owned| owned.partition != own);
    let left = left.expect("it owns both").clone();
    let messages = survivor.poll(&left, 1)?;
    served.record(begin.elapsed());
    if messages != polled {
        let text = format!("{messages:?} is served where {polled:?} was not stored");
        return Err(Error::answer("PollMessages", text));
    }
    survivor.store(&left, messages.end - 1)?;
    Ok(survivor)
}
