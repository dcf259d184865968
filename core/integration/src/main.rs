//! `nemesis`: see [`integration::nemesis`].
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it is there to be read")]

use std::{process::ExitCode, time::Duration};

use integration::nemesis::{MemberOptions, NemesisOptions, consume, run};

const USAGE: &str = "nemesis SEED MINUTES: faults from this seed for so long";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["member", url, group, store_every] => member(url, group, store_every),
        [seed, minutes] => match (seed.parse(), minutes.parse::<f64>()) {
            (Ok(seed), Ok(minutes)) if (0.0..1_000_000.0).contains(&minutes) => {
                harm(seed, Duration::from_secs_f64(60.0 * minutes))
            }
            _ => refuse(),
        },
        _ => refuse(),
    }
}

fn harm(seed: u64, lasts: Duration) -> ExitCode {
    println!(
        "seed {seed}, {} s; again with: make nemesis SEED={seed}",
        lasts.as_secs()
    );
    match run(NemesisOptions { seed, lasts }) {
        Ok(()) => {
            println!("seed {seed}: nothing is wrong");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            println!("seed {seed}: {} things are wrong:", wrong.len());
            for one in wrong {
                println!("- {one}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Of the program itself, which starts one for every member.
fn member(url: &str, group: &str, store_every: &str) -> ExitCode {
    let Ok(store_every) = store_every.parse() else {
        return refuse();
    };
    let options = MemberOptions {
        url: url.to_owned(),
        group: group.to_owned(),
        store_every,
    };
    match consume(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("member of {group}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn refuse() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
