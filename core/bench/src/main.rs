//! `cohort-bench`: what a Cohort server does, held against what its disk, network and runtime can do.
//!
//! Every claim is a ratio within one run: the bare figure is taken right before and right after the test,
//! in the same directory and with as many threads, connections and bytes at once. A figure that misses its
//! target is reported, and is no failure.

mod all;
mod bare;
mod bench;
mod cluster;
mod connection;
mod consume;
mod disk;
mod error;
mod failover_broker;
mod failover_consumer;
mod figure;
mod flush;
mod handover;
mod idle;
mod join;
mod latency;
mod loopback;
mod member;
mod noise;
mod options;
mod ping;
mod plot;
mod probe;
mod process;
mod produce;
mod producer;
mod rebalance;
mod rejoin;
mod report;
mod requests;
mod server;
mod start;
mod store;
mod storer;
mod target;

use std::{fs, io::Write, process::ExitCode};

use crate::{
    bench::Bench,
    disk::file_system,
    error::{During, Error},
    figure::Section,
    options::{Command, HELP, Options},
};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cohort-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let Some(options) = options::parse(std::env::args_os().skip(1))? else {
        return print(HELP);
    };
    let mut bench = Bench::new(options)?;
    let sections = match measure(&mut bench) {
        Ok(sections) => sections,
        Err(error) => {
            let left = bench.keep();
            eprintln!(
                "cohort-bench: what the servers said is in {}",
                left.display()
            );
            return Err(error);
        }
    };
    let options = &bench.options;
    if let Some(path) = &options.plot {
        fs::write(path, plot::svg(&sections)).during(format!("write {}", path.display()))?;
    }
    if options.json {
        print(&report::json(&sections, machine(&bench)))
    } else {
        print(&report::table(&sections))
    }
}

fn measure(bench: &mut Bench) -> Result<Vec<Section>, Error> {
    match bench.options.command {
        Command::Probe => Ok(vec![probe::run(bench)?]),
        Command::Produce => produce::run(bench),
        Command::Consume => consume::run(bench),
        Command::Ping => Ok(vec![ping::run(bench)?]),
        Command::Start => start::run(bench),
        Command::Join => join::run(bench),
        Command::Handover => handover::run(bench),
        Command::FailoverConsumer => Ok(vec![failover_consumer::run(bench)?]),
        Command::Store => store::run(bench),
        Command::FailoverBroker => failover_broker::run(bench),
        Command::Rejoin => rejoin::run(bench),
        Command::Rebalance => rebalance::run(bench),
        Command::Idle => Ok(vec![idle::run(bench)?]),
        Command::All => all::run(bench),
    }
}

/// What the figures depend on.
fn machine(bench: &Bench) -> serde_json::Value {
    let Options {
        directory, quick, ..
    } = &bench.options;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    serde_json::json!({
        "cores": network::available_cores().map_or(0, |cores| cores.len()),
        "shards": bench.shards,
        "kernel": kernel.trim_end(),
        "file_system": file_system(directory),
        "quick": quick,
    })
}

fn print(text: &str) -> Result<(), Error> {
    std::io::stdout().write_all(text.as_bytes()).during("print")
}
