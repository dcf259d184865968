//! `cohort ping`.

use std::{pin::pin, time::Duration};

use cohort::Client;
use serde_json::{Value, json};

use crate::{
    arguments::{Format, PingArguments},
    context::Context,
    output::{Output, json},
    problem::{INTERRUPTED, Problem},
    race::{First, first, interrupted},
};

/// Pings as often as asked for, or until ctrl-C, and sums up; the exit code.
pub(super) async fn run(
    context: &Context,
    arguments: &PingArguments,
    output: &mut Output,
) -> Result<u8, Problem> {
    let client = context.connect().await?;
    let mut times = Vec::new();
    let pings = ping(&client, context, arguments, output, &mut times);
    let code = match first(pin!(interrupted()), pings).await {
        First::Left(()) => INTERRUPTED,
        First::Right(done) => done.map(|()| 0)?,
    };
    output.write(summary(&times, arguments.output.output).as_bytes())?;
    Ok(code)
}

async fn ping(
    client: &Client,
    context: &Context,
    arguments: &PingArguments,
    output: &mut Output,
    times: &mut Vec<Duration>,
) -> Result<(), Problem> {
    for number in 1..=arguments.count {
        if number > 1 {
            tokio::time::sleep(arguments.interval).await;
        }
        let time = client.ping().await?;
        times.push(time);
        if arguments.output.output == Format::Table {
            output.line(&format!(
                "{}: {number}: {}",
                context.hosts(),
                milliseconds(time)
            ))?;
            output.flush()?;
        }
    }
    Ok(())
}

/// Lowest, mean, percentiles, highest.
fn summary(times: &[Duration], format: Format) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let percentile = |percent: usize| {
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    };
    let count = u32::try_from(sorted.len()).unwrap_or(u32::MAX).max(1);
    let mean = sorted.iter().sum::<Duration>() / count;
    let (min, max) = (percentile(0), percentile(100));
    match format {
        Format::Table => format!(
            "{} answered: min {}, mean {}, p50 {}, p99 {}, max {}\n",
            sorted.len(),
            milliseconds(min),
            milliseconds(mean),
            milliseconds(percentile(50)),
            milliseconds(percentile(99)),
            milliseconds(max),
        ),
        Format::Json => json(&json!({
            "answered": sorted.len(),
            "min_us": micros(min),
            "mean_us": micros(mean),
            "p50_us": micros(percentile(50)),
            "p99_us": micros(percentile(99)),
            "max_us": micros(max),
        })),
    }
}

fn micros(time: Duration) -> Value {
    Value::from(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

fn milliseconds(time: Duration) -> String {
    let micros = time.as_micros();
    format!("{}.{:03} ms", micros / 1_000, micros % 1_000)
}

#[cfg(test)]
mod tests {
    use super::{Duration, Format, summary};
    use crate::golden::assert_golden;

    #[test]
    fn times_are_summed_up() {
        let times = [300, 100, 200, 5_000].map(Duration::from_micros);
        assert_golden("ping.txt", &summary(&times, Format::Table));
        assert_golden("ping.json", &summary(&times, Format::Json));
    }
}
