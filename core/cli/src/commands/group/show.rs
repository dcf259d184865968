//! How consumer groups are shown.

use cohort::{
    ConsumerGroupDetails, ConsumerGroupSummary, DisplacedSession, ErrorCode, GroupProgress,
    GroupStart, MemberDetails, MemberId, MemberStatus, MoveWait, OwnershipDetails, PartitionMove,
    ResetTarget,
};
use serde_json::{Map, Value, json};

use crate::{
    arguments::Format,
    commands::time_cell,
    output::{Cell, Column, Table, json},
    time,
};

/// For how long an owner leaves messages alone before that is told in so many words, milliseconds.
const STALLED_MS: u32 = 10_000;

/// Groups with their options.
pub(super) fn summaries(groups: &[ConsumerGroupSummary]) -> Table {
    const COLUMNS: &[Column] = &[
        Column("id"),
        Column("name"),
        Column("members"),
        Column("moving"),
        Column("generation"),
        Column("start"),
        Column("rebalance_timeout_ms"),
        Column("initial_delay_ms"),
        Column("offset_expiry_ms"),
        Column("empty_since"),
    ];
    let mut table = Table::new(COLUMNS);
    for group in groups {
        let options = &group.options;
        table.row(vec![
            Cell::Number(group.id.0),
            Cell::Text(group.name.clone()),
            Cell::Number(group.member_count.into()),
            Cell::Number(group.moving_count.into()),
            Cell::Number(group.generation.0),
            start(options.start),
            duration_cell(options.rebalance_timeout_ms.into()),
            duration_cell(options.initial_delay_ms.into()),
            match options.offset_expiry_ms {
                0 => Cell::Both("never".to_string(), Value::from(0)),
                expiry => duration_cell(expiry),
            },
            group.empty_since.map_or(Cell::None, time_cell),
        ]);
    }
    table
}

fn start(start: GroupStart) -> Cell {
    match start {
        GroupStart::Earliest => Cell::Text("earliest".to_string()),
        GroupStart::Latest => Cell::Text("latest".to_string()),
        GroupStart::Timestamp(time) => time_cell(time),
    }
}

/// Everything about one group.
pub(super) fn describe(group: &ConsumerGroupDetails, format: Format) -> String {
    let (lag, unknown) = lag(group);
    match format {
        Format::Table => {
            let summary = &group.summary;
            let mut text = format!(
                "consumer group {} (#{}) of topic #{} in stream #{}, generation {}\n{}\n",
                summary.name,
                summary.id,
                group.topic,
                group.stream,
                summary.generation,
                options(summary),
            );
            if !group.members.is_empty() {
                text.push('\n');
                let is_taken = |member: &MemberDetails| member.displaced.is_some();
                let any_taken = group.members.iter().any(is_taken);
                text.push_str(&members(group, any_taken).table());
            }
            text.push('\n');
            text.push_str(&partitions(group).table());
            text.push_str(&match unknown {
                0 => format!("\nlag {lag}\n"),
                1 => format!("\nlag at least {lag}: of 1 partition it is not known\n"),
                _ => format!("\nlag at least {lag}: of {unknown} partitions it is not known\n"),
            });
            for partition in &group.partitions {
                text.push_str(&stalled(partition).unwrap_or_default());
            }
            for damaged in group.partitions.iter().filter(|one| is_damaged(one)) {
                text.push_str(&format!(
                    "damaged: partition {} is out of service, see the log of node {}\n",
                    damaged.partition, damaged.primary
                ));
            }
            text
        }
        Format::Json => {
            let mut object = Map::new();
            object.insert("stream".to_string(), Value::from(group.stream.0));
            object.insert("topic".to_string(), Value::from(group.topic.0));
            if let Value::Object(summary) = summaries(std::slice::from_ref(&group.summary)).object()
            {
                object.extend(summary.into_iter().filter(|(key, _)| key != "members"));
            }
            let pending = Value::from(group.summary.plan_pending);
            object.insert("plan_pending".to_string(), pending);
            object.insert("lag".to_string(), Value::from(lag));
            object.insert("lag_is_partial".to_string(), Value::from(unknown > 0));
            object.insert("members".to_string(), members(group, true).objects());
            let partitions = group.partitions.iter().map(partition_object);
            object.insert("partitions".to_string(), partitions.collect());
            json(&Value::Object(object))
        }
    }
}

/// The sum of what is left, and of how many partitions that is not known.
fn lag(group: &ConsumerGroupDetails) -> (u64, usize) {
    let known = group.partitions.iter().filter_map(progress);
    let lag = known.fold(0_u64, |sum, progress| sum.saturating_add(progress.lag));
    let unknown = group
        .partitions
        .iter()
        .filter(|partition| partition.progress.is_err())
        .count();
    (lag, unknown)
}

const fn progress(partition: &OwnershipDetails) -> Option<&GroupProgress> {
    match &partition.progress {
        Ok(progress) => Some(progress),
        Err(_) => None,
    }
}

fn is_damaged(partition: &OwnershipDetails) -> bool {
    partition.progress.as_ref().err() == Some(&ErrorCode::PartitionDamaged)
}

fn options(summary: &ConsumerGroupSummary) -> String {
    let options = &summary.options;
    let start = match options.start {
        GroupStart::Earliest => "earliest".to_string(),
        GroupStart::Latest => "latest".to_string(),
        GroupStart::Timestamp(time) => time::format(time),
    };
    let mut text = format!(
        "starts at {start}, rebalance timeout {}, initial delay {}",
        duration(options.rebalance_timeout_ms.into()),
        duration(options.initial_delay_ms.into()),
    );
    if options.offset_expiry_ms > 0 {
        let expiry = duration(options.offset_expiry_ms);
        text.push_str(&format!(", expires after {expiry} without members"));
    }
    if summary.plan_pending {
        text.push_str("; waits for more members");
    }
    if let Some(since) = summary.empty_since {
        text.push_str(&format!("; no members since {}", time::format(since)));
    }
    text
}

/// For people with a unit, for programs in milliseconds.
fn duration_cell(milliseconds: u64) -> Cell {
    Cell::Both(duration(milliseconds), Value::from(milliseconds))
}

/// As it is written on the command line: in the largest unit that it is a whole number of.
fn duration(milliseconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let mut units = UNITS.into_iter();
    let whole = units.find(|(unit, _)| milliseconds.is_multiple_of(*unit) && milliseconds > 0);
    match whole {
        Some((unit, name)) => format!("{}{name}", milliseconds / unit),
        None if milliseconds == 0 => "0s".to_string(),
        None => format!("{milliseconds}ms"),
    }
}

/// A partition whose owner leaves its messages alone, though it may give signs of life.
fn stalled(partition: &OwnershipDetails) -> Option<String> {
    let (owner, progress) = (owner(partition)?, progress(partition)?);
    let stalled = progress.stalled_ms.filter(|it| *it >= STALLED_MS)?;
    Some(format!(
        "stalled: partition {} has {} messages left, and member {owner} has neither polled nor stored for {}\n",
        partition.partition,
        progress.lag,
        age(stalled),
    ))
}

fn members(group: &ConsumerGroupDetails, with_taken: bool) -> Table {
    const COLUMNS: &[Column] = &[
        Column("member"),
        Column("client"),
        Column("session"),
        Column("address"),
        Column("instance"),
        Column("weight"),
        Column("state"),
        Column("joined"),
        Column("partitions"),
        Column("taken_over"),
    ];
    let mut table = Table::new(if with_taken {
        COLUMNS
    } else {
        COLUMNS.split_at(9).0
    });
    let text = |text: &Option<String>| text.clone().map_or(Cell::None, Cell::Text);
    for member in &group.members {
        let mut row = vec![
            Cell::Number(member.id.0),
            client(member),
            Cell::Number(member.session.0),
            text(&member.address),
            text(&member.instance),
            Cell::Number(member.weight.into()),
            Cell::Text(state(member).to_string()),
            time_cell(member.joined),
            owned(group, member.id),
        ];
        if with_taken {
            row.push(member.displaced.as_ref().map_or(Cell::None, taken_over));
        }
        table.row(row);
    }
    table
}

/// The session that lived when another one came with its instance id: two processes hold it, or held it.
fn taken_over(displaced: &DisplacedSession) -> Cell {
    let text = format!(
        "from session {}, {}",
        displaced.session,
        time::format(displaced.at)
    );
    let object = json!({
        "client": format!("{:032x}", displaced.client.0),
        "session": displaced.session.0,
        "at": displaced.at.0,
    });
    Cell::Both(text, object)
}

/// People tell clients apart by their beginnings.
fn client(member: &MemberDetails) -> Cell {
    let digits = format!("{:032x}", member.client.0);
    Cell::Both(digits.chars().take(8).collect(), Value::from(digits))
}

const fn state(member: &MemberDetails) -> &'static str {
    match (member.state, &member.displaced) {
        (MemberStatus::Active, _) => "active",
        (MemberStatus::Detached, _) => "detached",
    }
}

fn owned(group: &ConsumerGroupDetails, member: MemberId) -> Cell {
    let partitions = group
        .partitions
        .iter()
        .filter(|partition| owner(partition) == Some(member))
        .map(|partition| partition.partition.0)
        .collect::<Vec<_>>();
    let text = if partitions.is_empty() {
        "-".to_string()
    } else {
        let numbers = partitions.iter().map(u32::to_string);
        numbers.collect::<Vec<_>>().join(",")
    };
    Cell::Both(text, Value::from(partitions))
}

fn owner(partition: &OwnershipDetails) -> Option<MemberId> {
    partition.owner.as_ref().map(|owner| owner.member)
}

/// A move is shown where there is one.
fn partitions(group: &ConsumerGroupDetails) -> Table {
    const COLUMNS: &[Column] = &[
        Column("partition"),
        Column("owner"),
        Column("epoch"),
        Column("stored"),
        Column("next"),
        Column("end"),
        Column("lag"),
        Column("last_poll"),
        Column("last_store"),
        Column("moves"),
        Column("waits_for"),
        Column("time_left"),
    ];
    const WITHOUT_MOVES: &[Column] = COLUMNS.split_at(9).0;
    let moving = group
        .partitions
        .iter()
        .any(|partition| partition.moving.is_some());
    let mut table = Table::new(if moving { COLUMNS } else { WITHOUT_MOVES });
    for partition in &group.partitions {
        let progress = progress(partition);
        let known = |value: Option<u64>| match value {
            Some(value) => Cell::Number(value),
            None => Cell::Both("?".to_string(), Value::Null),
        };
        let stored = match progress {
            Some(progress) => Cell::maybe(progress.stored.map(|offset| offset.0)),
            None => known(None),
        };
        let mut row = vec![
            Cell::Number(partition.partition.0.into()),
            Cell::maybe(owner(partition).map(|owner| owner.0)),
            Cell::Number(partition.epoch.0),
            stored,
            known(progress.map(|progress| progress.next.0)),
            known(progress.map(|progress| progress.end.0)),
            known(progress.map(|progress| progress.lag)),
            age_cell(progress.and_then(|progress| progress.polled_ms_ago)),
            age_cell(progress.and_then(|progress| progress.stored_ms_ago)),
        ];
        if moving {
            row.extend(move_cells(partition));
        }
        table.row(row);
    }
    table
}

fn move_cells(partition: &OwnershipDetails) -> [Cell; 3] {
    let Some(moving) = &partition.moving else {
        return [Cell::None, Cell::None, Cell::None];
    };
    let name = |member: Option<MemberId>| match member {
        Some(member) => member.to_string(),
        None => "nobody".to_string(),
    };
    let way = format!("{} -> {}", name(owner(partition)), name(moving.to));
    let wait = match moving.waits_for {
        Some(wait) => wait_name(wait).to_string(),
        None => "?".to_string(),
    };
    let left = moving
        .time_left_ms
        .map_or(Cell::None, |left| Cell::Text(tenths(left)));
    [Cell::Text(way), Cell::Text(wait), left]
}

/// With one digit behind the point.
fn tenths(milliseconds: u32) -> String {
    format!("{}.{} s", milliseconds / 1_000, milliseconds / 100 % 10)
}

/// How long ago something was.
fn age(milliseconds: u32) -> String {
    match milliseconds {
        0..10_000 => tenths(milliseconds),
        _ => duration(u64::from(milliseconds / 1_000) * 1_000),
    }
}

fn age_cell(milliseconds: Option<u32>) -> Cell {
    milliseconds.map_or(Cell::None, |it| Cell::Text(format!("{} ago", age(it))))
}

const fn wait_name(wait: MoveWait) -> &'static str {
    match wait {
        MoveWait::Drain => "drain",
        MoveWait::Release => "release",
        MoveWait::Fence => "fence",
        MoveWait::Completion => "completion",
        MoveWait::Incarnation => "incarnation",
    }
}

fn partition_object(partition: &OwnershipDetails) -> Value {
    let progress = progress(partition);
    let number = |offset: Option<cohort::Offset>| offset.map(|offset| offset.0);
    json!({
        "partition": partition.partition.0,
        "owner": owner(partition).map(|owner| owner.0),
        "epoch": partition.epoch.0,
        "start": progress.map(|progress| progress.start.0),
        "stored": number(progress.and_then(|progress| progress.stored)),
        "next": progress.map(|progress| progress.next.0),
        "end": progress.map(|progress| progress.end.0),
        "lag": progress.map(|progress| progress.lag),
        "last_polled": number(progress.and_then(|progress| progress.last_polled)),
        "fence": progress.map(|progress| progress.fence.0),
        "last_poll_ms_ago": progress.and_then(|progress| progress.polled_ms_ago),
        "last_store_ms_ago": progress.and_then(|progress| progress.stored_ms_ago),
        "stalled_ms": progress.and_then(|progress| progress.stalled_ms),
        "error": partition.progress.as_ref().err().map(|code| code.name()),
        "moving": partition.moving.as_ref().map(|moving| move_object(partition, moving)),
    })
}

fn move_object(partition: &OwnershipDetails, moving: &PartitionMove) -> Value {
    json!({
        "from": owner(partition).map(|owner| owner.0),
        "to": moving.to.map(|member| member.0),
        "planned_epoch": moving.planned.0,
        "since": moving.since.0,
        "reset": moving.reset.map(reset),
        "waits_for": moving.waits_for.map(wait_name),
        "time_left_ms": moving.time_left_ms,
    })
}

/// What is stored is reset to.
fn reset(target: ResetTarget) -> Value {
    match target {
        ResetTarget::Offset(stored) => json!({ "stored": stored.0 }),
        ResetTarget::Timestamp(time) => json!({ "time": time.0 }),
        ResetTarget::Earliest => Value::from("earliest"),
        ResetTarget::Latest => Value::from("latest"),
        ResetTarget::Nothing => Value::from("nothing"),
    }
}

#[cfg(test)]
mod tests {
    use cohort::{ClientId, ConsumerGroupId, Epoch, SessionNumber};

    use super::{
        ConsumerGroupDetails, DisplacedSession, ErrorCode, Format, GroupStart, MemberId,
        MemberStatus, MoveWait, PartitionMove, describe, duration, summaries,
    };
    use crate::{
        commands::group::sample::{NOON, group, summary},
        golden::assert_golden,
    };

    fn moving() -> ConsumerGroupDetails {
        let mut group = group();
        group.summary.moving_count = 2;
        let planned = |to: Option<u64>, waits_for, time_left_ms| PartitionMove {
            to: to.map(MemberId),
            planned: Epoch(15),
            since: NOON,
            reset: None,
            waits_for,
            time_left_ms,
        };
        group.partitions[0].moving = Some(planned(Some(2), Some(MoveWait::Drain), Some(29_950)));
        group.partitions[1].owner = None;
        group.partitions[1].moving = Some(planned(Some(1), None, None));
        group.partitions[2].progress = Err(ErrorCode::NotReady);
        group
    }

    #[test]
    fn groups_are_listed_with_their_options() {
        let mut others = summary("audit", 0, 0);
        others.id = ConsumerGroupId(2);
        others.options.start = GroupStart::Timestamp(NOON);
        let groups = [summary("billing", 2, 1), others];
        assert_golden("groups.txt", &summaries(&groups).list(Format::Table));
        assert_golden("groups.json", &summaries(&groups).list(Format::Json));
    }

    #[test]
    fn a_group_shows_members_owners_and_progress() {
        assert_golden("group.txt", &describe(&group(), Format::Table));
        assert_golden("group.json", &describe(&group(), Format::Json));
    }

    #[test]
    fn a_move_shows_its_way_and_what_it_waits_for_and_what_is_not_known_makes_the_sum_partial() {
        assert_golden("group-moving.txt", &describe(&moving(), Format::Table));
        assert_golden("group-moving.json", &describe(&moving(), Format::Json));
    }

    #[test]
    fn whoever_leaves_messages_alone_is_named_and_so_are_two_processes_of_one_instance() {
        let mut stalled = group();
        let session = DisplacedSession {
            client: ClientId(0xdead),
            session: SessionNumber(21),
            at: NOON,
        };
        stalled.members[1].displaced = Some(session);
        stalled.members[1].state = MemberStatus::Active;
        let progress = stalled.partitions[1].progress.as_mut();
        progress.expect("it is known").stalled_ms = Some(42_900);
        assert_golden("group-stalled.txt", &describe(&stalled, Format::Table));
        assert_golden("group-stalled.json", &describe(&stalled, Format::Json));
    }

    #[test]
    fn a_damaged_partition_is_named() {
        let mut damaged = group();
        damaged.partitions[1].progress = Err(ErrorCode::PartitionDamaged);
        assert_golden("group-damaged.txt", &describe(&damaged, Format::Table));
    }

    #[test]
    fn durations_are_shown_in_their_largest_unit() {
        for (milliseconds, shown) in [
            (0, "0s"),
            (250, "250ms"),
            (1_500, "1500ms"),
            (90_000, "90s"),
            (120_000, "2m"),
            (3_600_000, "1h"),
            (604_800_000, "7d"),
        ] {
            assert_eq!(duration(milliseconds), shown);
        }
    }

    #[test]
    fn a_group_without_members_says_since_when() {
        let mut empty = group();
        empty.summary = summary("billing", 0, 0);
        empty.members.clear();
        for partition in &mut empty.partitions {
            partition.owner = None;
        }
        assert_golden("group-empty.txt", &describe(&empty, Format::Table));
    }
}
