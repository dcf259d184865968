//! The command line of the Cohort message broker.

mod arguments;
mod commands;
mod consume;
mod context;
#[cfg(test)]
mod golden;
mod output;
mod problem;
mod race;
mod send;
mod terminal;
mod text;
mod time;

use std::{env, process::ExitCode};

use arguments::{Arguments, Command};
use context::{Context, Environment};
use problem::{FAILED, Problem};

fn main() -> ExitCode {
    let arguments = match arguments::parse(env::args_os()) {
        Ok(arguments) => arguments,
        // Help goes to standard output with code 0, mistakes to standard error with code 2.
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(FAILED);
            // A reader that has gone is not to be told.
            let _printed = error.print();
            return ExitCode::from(code);
        }
    };
    match run(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(problem.code)
        }
    }
}

fn run(arguments: Arguments) -> Result<u8, Problem> {
    let context = Context::new(&arguments.context, Environment::read()?)?;
    let mut runtime = match &arguments.command {
        // The session of a member stays alive while standard output takes nothing.
        Command::Consume(consume) if consume.group.is_some() => {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            runtime.worker_threads(1);
            runtime
        }
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| Problem::new(format!("start: {error}")))?;
    let result = runtime.block_on(commands::run(&context, arguments.command));
    // A thread may still wait for standard input.
    runtime.shutdown_background();
    result
}
