//! `all`: every figure that there is a target for, on as few servers as possible.

use crate::{bench::Bench, consume, error::Error, figure::Section, ping, probe, produce, start};

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
    sections.push(start::sessions(bench)?);
    Ok(sections)
}
