//! `cohort-simulator`: one run, or many.

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
    thread,
};

use simulator::{Campaign, Case, Without, run_named, shrink, tell_seed_of_panics};

const USAGE: &str =
    "usage: cohort-simulator run --seed N [--replicas R] [--without PARTS] [--trace]
       cohort-simulator shrink --seed N [--replicas R]
       cohort-simulator campaign --first F --count N [--replicas R] [--jobs J]

run       one seed; --trace prints every event; PARTS, separated by commas, are left out
shrink    one seed that fails: leaves out what it fails without
campaign  seeds F to F + N - 1 over J threads (default: as many as there are cores)

R is the number of nodes: 1, 3 or 5 (default: 1)";

fn main() -> ExitCode {
    tell_seed_of_panics();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((command, options)) if command == "run" => run_one(options),
        Some((command, options)) if command == "shrink" => shrink_one(options),
        Some((command, options)) if command == "campaign" => run_many(options),
        _ => Err(USAGE.to_string()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            // There is no other place to say it.
            let _ = writeln!(io::stderr(), "{text}");
            ExitCode::from(2)
        }
    }
}

fn run_one(options: &[String]) -> Result<bool, String> {
    let (case, prints) = one(options)?;
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut written = Ok(());
    let report = run_named(&case, prints, |line| {
        if written.is_ok() {
            written = writeln!(output, "{line}");
        }
    });
    let told = written.and_then(|()| {
        for (name, count) in report.counts.all() {
            writeln!(output, "{count:>12}  {name}")?;
        }
        writeln!(
            output,
            "seed {}: trace hash {:016x}, {} events",
            report.seed, report.hash, report.events
        )?;
        match &report.failure {
            Some(failure) => writeln!(output, "failed: {failure}")?,
            None => writeln!(output, "good")?,
        }
        output.flush()
    });
    told.map_err(|error| error.to_string())?;
    Ok(report.failure.is_none())
}

fn shrink_one(options: &[String]) -> Result<bool, String> {
    let (case, _) = one(options)?;
    let smaller = shrink(&case, &mut io::stdout()).map_err(|error| error.to_string())?;
    Ok(!smaller.without.is_empty() || smaller == case)
}

/// The case that options name, and whether every event is to be told.
fn one(options: &[String]) -> Result<(Case, bool), String> {
    let mut seed = None;
    let mut replicas = 1;
    let mut without = Without::default();
    let mut prints = false;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--seed" => seed = Some(number(option, options.next())?),
            "--replicas" => replicas = replica_count(option, options.next())?,
            "--without" => without = parts(option, options.next())?,
            "--trace" => prints = true,
            other => return Err(format!("{other}: no such option\n{USAGE}")),
        }
    }
    let seed = seed.ok_or_else(|| format!("--seed is missing\n{USAGE}"))?;
    let case = Case {
        seed,
        replicas,
        without,
    };
    Ok((case, prints))
}

fn run_many(options: &[String]) -> Result<bool, String> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut campaign = Campaign {
        first: 1,
        count: 200,
        replicas: 1,
        jobs: cores,
    };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let given = options.next();
        if option == "--replicas" {
            campaign.replicas = replica_count(option, given)?;
            continue;
        }
        let value = number(option, given)?;
        match option.as_str() {
            "--first" => campaign.first = value,
            "--count" => campaign.count = value,
            "--jobs" => campaign.jobs = value.max(1),
            other => return Err(format!("{other}: no such option\n{USAGE}")),
        }
    }
    let outcome = campaign.run(&mut io::stdout());
    outcome
        .map(|outcome| outcome.is_good())
        .map_err(|error| error.to_string())
}

fn replica_count(option: &str, value: Option<&String>) -> Result<u8, String> {
    match number(option, value)? {
        1 => Ok(1),
        3 => Ok(3),
        5 => Ok(5),
        other => Err(format!("{option} {other}: 1, 3 or 5 nodes\n{USAGE}")),
    }
}

fn parts(option: &str, value: Option<&String>) -> Result<Without, String> {
    let value = value.ok_or_else(|| format!("{option}: what is to be left out is missing"))?;
    value.parse()
}

fn number(option: &str, value: Option<&String>) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("{option}: the number is missing\n{USAGE}"))?;
    value
        .parse()
        .map_err(|_| format!("{option} {value}: not a number\n{USAGE}"))
}
