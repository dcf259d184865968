//! Commands that ask the server something and show the answer.

mod cluster;
pub(crate) mod group;
mod ping;
mod stats;
mod stream;
mod topic;
mod user;

use cohort::Timestamp;
use serde_json::Value;

use crate::{
    arguments::{Command, Format, OutputArguments},
    consume,
    context::Context,
    output::{Cell, Output},
    problem::Problem,
    send, time,
};

/// Carries out a command; the exit code.
pub(crate) async fn run(context: &Context, command: Command) -> Result<u8, Problem> {
    let mut output = Output::new();
    let code = match command {
        Command::Ping(arguments) => ping::run(context, &arguments, &mut output).await?,
        Command::Stream(command) => {
            let client = context.connect().await?;
            output.write(stream::run(&client, command).await?.as_bytes())?;
            0
        }
        Command::Topic(command) => {
            let client = context.connect().await?;
            output.write(topic::run(&client, command).await?.as_bytes())?;
            0
        }
        Command::Group(command) => {
            let client = context.connect().await?;
            output.write(group::run(&client, command).await?.as_bytes())?;
            0
        }
        Command::Cluster(command) => {
            let (text, code) = cluster::run(context, &command).await?;
            output.write(text.as_bytes())?;
            code
        }
        Command::Stats {
            output: OutputArguments { output: format },
        } => {
            let counters = context.connect().await?.stats().await?;
            output.write(stats::show(&counters, format).as_bytes())?;
            0
        }
        Command::User(command) => {
            output.write(user::run(context, command).await?.as_bytes())?;
            0
        }
        Command::Send(arguments) => send::run(context, &arguments, &mut output).await?,
        Command::Consume(arguments) => consume::run(context, &arguments, &mut output).await?,
    };
    output.flush()?;
    Ok(code)
}

/// A time in a table, and in microseconds for programs.
fn time_cell(timestamp: Timestamp) -> Cell {
    Cell::Both(time::format(timestamp), Value::from(timestamp.0))
}

/// What is told of something that is done: a sentence, or an object.
fn done(format: Format, sentence: &str, object: &Value) -> String {
    match format {
        Format::Table => format!("{sentence}\n"),
        Format::Json => crate::output::json(object),
    }
}
