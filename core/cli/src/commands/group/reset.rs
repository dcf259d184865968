//! `cohort group reset`.

use std::collections::{BTreeMap, BTreeSet};

use cohort::{
    Client, ConsumerGroupDetails, GroupProgress, GroupStart, Offset, OffsetReset, PartitionId,
    ResetTarget, Start, Timestamp,
};
use serde_json::{Value, json};

use super::{find, located};
use crate::{
    arguments::{Format, ResetArguments, ResetTo},
    output::{Cell, Column, Table, json},
    problem::Problem,
    time,
};

/// Where a group stands in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    stored: Option<Offset>,
    next: Offset,
    lag: u64,
}

/// What becomes of a partition; `None`: not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    partition: PartitionId,
    before: Option<Standing>,
    after: Option<Standing>,
    /// Where it is at because the offset that was asked for is not there, and that offset.
    clamped: Option<(Clamp, i128)>,
}

/// What an offset that is out of range was taken as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clamp {
    ToStart,
    ToEnd,
}

impl Clamp {
    /// `asked`: the offset that the group was to go on with.
    fn of(asked: i128, after: Standing) -> Option<Self> {
        let stored = u64::try_from(asked - 1).ok().map(Offset);
        let next = i128::from(after.next.0);
        if next < asked {
            Some(Self::ToEnd)
        } else if next > asked && after.stored == stored {
            Some(Self::ToStart)
        } else {
            // Members may have got on since.
            None
        }
    }
}

pub(super) async fn run(client: &Client, arguments: &ResetArguments) -> Result<String, Problem> {
    let group = find(client, &arguments.group).await?;
    let wanted = wanted(&group, &arguments.partition)?;
    let targets = targets(&group, &wanted, arguments.to)?;
    let after = if arguments.dry_run {
        if group.summary.member_count > 0 && !arguments.force {
            let count = group.summary.member_count;
            let members = if count == 1 { "member" } else { "members" };
            eprintln!(
                "cohort: it would be refused without --force: the group has {count} {members}"
            );
        }
        predicted(client, &group, &targets).await?
    } else {
        let is_shift = matches!(arguments.to, ResetTo::Shift(_));
        let reset = match targets.first_key_value() {
            Some((_, (target, _))) if arguments.partition.is_empty() && !is_shift => {
                OffsetReset::all(*target)
            }
            _ => {
                let all = targets.iter();
                all.fold(OffsetReset::none(), |reset, (partition, (target, _))| {
                    reset.partition(*partition, *target)
                })
            }
        };
        client
            .reset_offsets(
                group.stream.0,
                group.topic.0,
                group.summary.id.0,
                reset.force(arguments.force),
            )
            .await
            .map_err(|error| located(error, &arguments.group))?;
        let read_back = client
            .describe_consumer_group(group.stream.0, group.topic.0, group.summary.id.0)
            .await?;
        standings(&read_back)
    };
    let before = standings(&group);
    let find = |standings: &[(PartitionId, Option<Standing>)], partition| {
        let mut standings = standings.iter();
        let found = standings.find(|(other, _)| *other == partition);
        found.and_then(|(_, standing)| *standing)
    };
    let changes = targets.iter().map(|(partition, (_, asked))| {
        let after = find(&after, *partition);
        let clamped = asked.zip(after).and_then(|(asked, after)| {
            let clamp = Clamp::of(asked, after)?;
            Some((clamp, asked))
        });
        Change {
            partition: *partition,
            before: find(&before, *partition),
            after,
            clamped,
        }
    });
    let changes = changes.collect::<Vec<_>>();
    Ok(match arguments.output.output {
        Format::Table => show(&group, &changes, arguments.dry_run),
        Format::Json => object(&group, &changes, arguments.dry_run),
    })
}

/// The partitions that are meant, each once.
fn wanted(group: &ConsumerGroupDetails, named: &[u32]) -> Result<BTreeSet<PartitionId>, Problem> {
    let all = group
        .partitions
        .iter()
        .map(|partition| partition.partition)
        .collect::<BTreeSet<_>>();
    if named.is_empty() {
        return Ok(all);
    }
    let wanted = named.iter().copied().map(PartitionId);
    let wanted = wanted.collect::<BTreeSet<_>>();
    match wanted.difference(&all).next() {
        None => Ok(wanted),
        Some(missing) => Err(Problem::new(format!(
            "there is no partition {missing}: the topic has {} partitions, from 0",
            all.len()
        ))),
    }
}

/// What becomes of each partition, and the offset that the group is to go on with, where one was asked for.
fn targets(
    group: &ConsumerGroupDetails,
    wanted: &BTreeSet<PartitionId>,
    to: ResetTo,
) -> Result<BTreeMap<PartitionId, (ResetTarget, Option<i128>)>, Problem> {
    let now = time::now();
    let partitions = group.partitions.iter();
    let wanted = partitions.filter(|partition| wanted.contains(&partition.partition));
    wanted
        .map(|partition| {
            let id = partition.partition;
            let next = match (&partition.progress, to) {
                (Ok(progress), _) => progress.next,
                (Err(code), ResetTo::Shift(_)) => {
                    let name = code.name();
                    let text = format!("partition {id}: it is not known where it stands ({name})");
                    return Err(Problem::new(text));
                }
                (Err(_), _) => Offset(0),
            };
            Ok((id, (to.target(now, next), to.asked(next))))
        })
        .collect()
}

fn standings(group: &ConsumerGroupDetails) -> Vec<(PartitionId, Option<Standing>)> {
    let standing = |progress: &GroupProgress| Standing {
        stored: progress.stored,
        next: progress.next,
        lag: progress.lag,
    };
    let partitions = group.partitions.iter();
    partitions
        .map(|partition| {
            let progress = partition.progress.as_ref().ok();
            (partition.partition, progress.map(standing))
        })
        .collect()
}

/// What the server would make of it, as far as that can be said from here.
async fn predicted(
    client: &Client,
    group: &ConsumerGroupDetails,
    targets: &BTreeMap<PartitionId, (ResetTarget, Option<i128>)>,
) -> Result<Vec<(PartitionId, Option<Standing>)>, Problem> {
    let mut predicted = Vec::new();
    for partition in &group.partitions {
        let id = partition.partition;
        let Some((target, _)) = targets.get(&id).copied() else {
            continue;
        };
        let Ok(progress) = &partition.progress else {
            predicted.push((id, None));
            continue;
        };
        let time = match (target, group.summary.options.start) {
            (ResetTarget::Timestamp(time), _)
            | (ResetTarget::Nothing, GroupStart::Timestamp(time)) => Some(time),
            _ => None,
        };
        let at_time = match time {
            Some(time) => first_since(client, group, id, time).await?,
            None => None,
        };
        let policy = group.summary.options.start;
        let standing = standing_after(progress, target, policy, at_time);
        predicted.push((id, Some(standing)));
    }
    Ok(predicted)
}

/// The first message of a partition that was stored at or after a time.
async fn first_since(
    client: &Client,
    group: &ConsumerGroupDetails,
    partition: PartitionId,
    time: Timestamp,
) -> Result<Option<Offset>, Problem> {
    let mut reader = client
        .reader(group.stream.0, group.topic.0)
        .partitions([partition])
        .start(Start::Timestamp(time))
        .stop_at_end(true)
        .build()
        .await?;
    match reader.next().await {
        Some(message) => Ok(Some(message?.offset())),
        None => Ok(None),
    }
}

/// `at_time`: the first message since the time that the target, or the policy, names.
fn standing_after(
    progress: &GroupProgress,
    target: ResetTarget,
    policy: GroupStart,
    at_time: Option<Offset>,
) -> Standing {
    let since = || at_time.unwrap_or(progress.end);
    let (stored, next) = match target {
        // Only what there is can be processed.
        ResetTarget::Offset(stored) => match progress.end.0.checked_sub(1) {
            Some(last) => {
                let stored = stored.min(Offset(last));
                (Some(stored), stored.next())
            }
            None => (None, progress.start),
        },
        ResetTarget::Earliest => (None, progress.start),
        ResetTarget::Latest => (None, progress.end),
        ResetTarget::Timestamp(_) => (None, since()),
        ResetTarget::Nothing => match policy {
            GroupStart::Earliest => (None, progress.start),
            GroupStart::Latest => (None, progress.end),
            GroupStart::Timestamp(_) => (None, since()),
        },
    };
    let next = next.max(progress.start);
    Standing {
        stored,
        next,
        lag: progress.end.0.saturating_sub(next.0),
    }
}

fn table(changes: &[Change]) -> Table {
    const COLUMNS: &[Column] = &[
        Column("partition"),
        Column("stored_before"),
        Column("next_before"),
        Column("stored"),
        Column("next"),
        Column("lag"),
    ];
    let mut table = Table::new(COLUMNS);
    for change in changes {
        let unknown = || Cell::Both("?".to_string(), Value::Null);
        let stored = |standing: Option<Standing>| match standing {
            Some(standing) => Cell::maybe(standing.stored.map(|offset| offset.0)),
            None => unknown(),
        };
        let number = |number: Option<u64>| number.map_or_else(unknown, Cell::Number);
        let next = |standing: Option<Standing>| number(standing.map(|standing| standing.next.0));
        table.row(vec![
            Cell::Number(change.partition.0.into()),
            stored(change.before),
            next(change.before),
            stored(change.after),
            next(change.after),
            number(change.after.map(|standing| standing.lag)),
        ]);
    }
    table
}

/// For people.
fn show(group: &ConsumerGroupDetails, changes: &[Change], dry_run: bool) -> String {
    let what = if dry_run {
        "would be reset"
    } else {
        "is reset"
    };
    let summary = &group.summary;
    let mut text = format!(
        "consumer group {} (#{}) {what}\n\n{}",
        summary.name,
        summary.id,
        table(changes).table()
    );
    for change in changes {
        let (Some((clamp, asked)), Some(after)) = (change.clamped, change.after) else {
            continue;
        };
        let place = match clamp {
            Clamp::ToStart => "the oldest message",
            Clamp::ToEnd => "behind the newest message",
        };
        text.push_str(&format!(
            "\nclamped: partition {} has no offset {asked}; next is {}, {place}",
            change.partition, after.next
        ));
    }
    if changes.iter().any(|change| change.clamped.is_some()) {
        text.push('\n');
    }
    text
}

/// For programs.
fn object(group: &ConsumerGroupDetails, changes: &[Change], dry_run: bool) -> String {
    let mut partitions = table(changes).objects();
    let rows = partitions.as_array_mut().into_iter().flatten();
    for (row, change) in rows.zip(changes) {
        row["clamped"] = Value::from(change.clamped.is_some());
    }
    json(&json!({
        "id": group.summary.id.0,
        "name": group.summary.name,
        "dry_run": dry_run,
        "partitions": partitions,
    }))
}

#[cfg(test)]
mod tests {
    use cohort::{Epoch, ResetTarget};

    use super::{
        Change, Clamp, GroupProgress, GroupStart, Offset, PartitionId, Standing, Timestamp, object,
        show, standing_after,
    };
    use crate::{commands::group::sample, golden::assert_golden};

    fn standing(stored: Option<u64>, next: u64) -> Standing {
        Standing {
            stored: stored.map(Offset),
            next: Offset(next),
            lag: 0,
        }
    }

    #[test]
    fn an_offset_that_is_out_of_range_is_said_to_be_clamped() {
        for (asked, after, clamped) in [
            (500, standing(Some(99), 100), Some(Clamp::ToEnd)),
            // The partition is empty.
            (5, standing(None, 0), Some(Clamp::ToEnd)),
            (4, standing(Some(3), 10), Some(Clamp::ToStart)),
            (0, standing(None, 10), Some(Clamp::ToStart)),
            (-3, standing(None, 0), Some(Clamp::ToStart)),
            (60, standing(Some(59), 60), None),
            (0, standing(None, 0), None),
            // Who was forced has got on already.
            (60, standing(Some(70), 71), None),
        ] {
            assert_eq!(Clamp::of(asked, after), clamped, "{asked}");
        }
    }

    #[test]
    fn a_reset_shows_before_and_after_and_what_was_clamped() {
        let change = |partition, after, clamped| Change {
            partition: PartitionId(partition),
            before: Some(standing(Some(41), 42)),
            after,
            clamped,
        };
        let changes = [
            change(0, Some(standing(Some(99), 100)), Some((Clamp::ToEnd, 500))),
            change(1, Some(standing(Some(499), 500)), None),
            change(
                2,
                Some(standing(Some(499), 700)),
                Some((Clamp::ToStart, 500)),
            ),
            change(3, None, None),
        ];
        let group = sample::group();
        assert_golden("group-reset.txt", &show(&group, &changes, false));
        assert_golden("group-reset.json", &object(&group, &changes, true));
    }

    #[test]
    fn a_dry_run_tells_what_the_server_would_make_of_it() {
        let progress = GroupProgress {
            start: Offset(10),
            end: Offset(100),
            stored: Some(Offset(50)),
            next: Offset(51),
            lag: 49,
            last_polled: None,
            fence: Epoch(3),
            polled_ms_ago: None,
            stored_ms_ago: None,
            stalled_ms: None,
        };
        let time = ResetTarget::Timestamp(Timestamp(7));
        let since = GroupStart::Timestamp(Timestamp(7));
        let (earliest, latest) = (GroupStart::Earliest, GroupStart::Latest);
        let found = Some(Offset(40));
        let offset = |stored| ResetTarget::Offset(Offset(stored));
        for (target, policy, at_time, expected) in [
            (ResetTarget::Earliest, latest, None, (None, 10, 90)),
            (ResetTarget::Latest, earliest, None, (None, 100, 0)),
            (ResetTarget::Nothing, earliest, None, (None, 10, 90)),
            (ResetTarget::Nothing, latest, None, (None, 100, 0)),
            (ResetTarget::Nothing, since, found, (None, 40, 60)),
            (offset(60), earliest, None, (Some(60), 61, 39)),
            // What is gone cannot be read again.
            (offset(4), earliest, None, (Some(4), 10, 90)),
            // What is not there yet is not processed.
            (offset(500), earliest, None, (Some(99), 100, 0)),
            (time, earliest, found, (None, 40, 60)),
            // Nothing is that new yet.
            (time, earliest, None, (None, 100, 0)),
        ] {
            let after = standing_after(&progress, target, policy, at_time);
            let stored = after.stored.map(|offset| offset.0);
            assert_eq!((stored, after.next.0, after.lag), expected, "{target:?}");
        }
    }
}
