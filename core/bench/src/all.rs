//! `all`: every figure that there is a target for, on as few servers as possible.

use crate::{
    bench::Bench, consume, error::Error, failover_consumer, figure::Section, handover, join, ping,
    probe, produce, start, store, target::Server,
};

/// Measures everything.
///
/// # Errors
/// `Usage` with a server that runs already; what stops a measurement.
pub(crate) fn run(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let mut sections = vec![probe::run(bench)?, start::empty(bench)?];
    let (mut server, own) = bench.server()?;
    sections.push(produce::one_by_one(bench, &mut server)?);
    sections.push(ping::measure(bench, &server)?);
    let load = produce::standard_load(bench);
    let (section, topic) = produce::throughput(bench, &mut server, &load)?;
    sections.push(section);
    sections.extend(consume::measure(bench, &server, &topic)?);
    if let Some((launch, _)) = own {
        // The loads before have left at least 1 GiB.
        sections.push(start::filled(bench, &launch, server)?);
    }
    sections.extend(consumer_groups(bench)?);
    sections.push(start::sessions(bench)?);
    Ok(sections)
}

/// All that concerns consumer groups, on one server.
fn consumer_groups(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    let launch = failover_consumer::launch(bench)?;
    let (mut server, _) = Server::start(&launch)?;
    let mut sections = join::measure(bench, &mut server)?;
    sections.extend(handover::measure(bench, &mut server)?);
    sections.push(failover_consumer::measure(bench, &mut server)?);
    sections.extend(store::measure(bench, &mut server)?);
    server.stop()?;
    Bench::remove(&launch)?;
    Ok(sections)
}
