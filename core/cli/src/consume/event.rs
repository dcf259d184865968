//! How what happens to a member of a consumer group is told.

use std::time::Duration;

use cohort::{GroupEvent, Id, LossReason, PartitionId};
use serde_json::{Value, json};

/// What people are told: the sentence, and whether it is told unasked, since something is wrong.
pub(super) struct Told {
    pub(super) text: String,
    pub(super) important: bool,
}

/// For people; `None` when nothing is to be said. `again`: it was a member before.
pub(super) fn for_people(event: &GroupEvent, group: &Id, again: bool) -> Option<Told> {
    let usual = |text| Told {
        text,
        important: false,
    };
    let important = |text| Told {
        text,
        important: true,
    };
    Some(match event {
        GroupEvent::Joined { member, .. } => {
            let how = if again { "joined again" } else { "joined" };
            usual(format!("{how}: member {member} of consumer group {group}"))
        }
        GroupEvent::Assigned { partitions } => {
            let partitions = partitions.iter().map(|token| token.partition);
            usual(format!("assigned: {}", named(partitions)))
        }
        GroupEvent::Revoking {
            partitions,
            time_left,
        } => usual(format!(
            "to be given up: {}, within {}",
            named(partitions.iter().copied()),
            seconds(*time_left)
        )),
        GroupEvent::Retained { partitions } => {
            usual(format!("kept: {}", named(partitions.iter().copied())))
        }
        GroupEvent::Revoked { partition } => usual(format!("given up: partition {partition}")),
        GroupEvent::Lost {
            partition,
            reason,
            unstored,
            unprocessed,
        } => match unstored {
            None if *unprocessed => important(format!(
                "lost: partition {partition}: {reason}; what was read of it and is not written yet comes again"
            )),
            // The server lets it go as soon as it sees that there is nothing left to store.
            None if *reason == LossReason::Reassigned => usual(format!(
                "taken: partition {partition}, with nothing left to store"
            )),
            None => usual(format!("lost: partition {partition}: {reason}")),
            Some(offset) => important(format!(
                "lost: partition {partition}: {reason}; what was written of it up to offset {offset} is not known to be \
                 stored, and may come again"
            )),
        },
        GroupEvent::Stalled { idle } => important(format!(
            "standard output took nothing for {}: the partitions go to others",
            seconds(*idle)
        )),
        GroupEvent::Skipped {
            partition,
            from,
            to,
        } => important(format!(
            "partition {partition}: {} messages from offset {from} on are gone, it goes on at {to}",
            to.0.saturating_sub(from.0)
        )),
        GroupEvent::StoreRefused {
            partition,
            offset,
            failure,
        } => important(format!(
            "partition {partition}: offset {offset} was not stored: {failure}"
        )),
        GroupEvent::Retrying { error } => important(format!("{error}; trying again")),
        // These are errors among the messages.
        GroupEvent::PartitionFailed { .. } | GroupEvent::Failed(_) => return None,
    })
}

/// For programs: an object whose `event` says what it is.
pub(super) fn for_programs(event: &GroupEvent) -> Value {
    let numbers = |partitions: &[PartitionId]| {
        let numbers = partitions.iter().map(|partition| Value::from(partition.0));
        numbers.collect::<Value>()
    };
    match event {
        GroupEvent::Joined { group, member } => {
            json!({ "event": "joined", "group": group.0, "member": member.0 })
        }
        GroupEvent::Assigned { partitions } => {
            let partitions = partitions
                .iter()
                .map(|token| json!({ "partition": token.partition.0, "epoch": token.epoch.0 }));
            json!({ "event": "assigned", "partitions": partitions.collect::<Value>() })
        }
        GroupEvent::Revoking {
            partitions,
            time_left,
        } => json!({
            "event": "revoking",
            "partitions": numbers(partitions),
            "time_left_ms": milliseconds(*time_left),
        }),
        GroupEvent::Retained { partitions } => {
            json!({ "event": "retained", "partitions": numbers(partitions) })
        }
        GroupEvent::Revoked { partition } => {
            json!({ "event": "revoked", "partition": partition.0 })
        }
        GroupEvent::Lost {
            partition,
            reason,
            unstored,
            unprocessed,
        } => json!({
            "event": "lost",
            "partition": partition.0,
            "reason": reason.to_string(),
            "unstored": unstored.map(|offset| offset.0),
            "unprocessed": unprocessed,
        }),
        GroupEvent::Stalled { idle } => {
            json!({ "event": "stalled", "idle_ms": milliseconds(*idle) })
        }
        GroupEvent::Skipped {
            partition,
            from,
            to,
        } => json!({ "event": "skipped", "partition": partition.0, "from": from.0, "to": to.0 }),
        GroupEvent::StoreRefused {
            partition,
            offset,
            failure,
        } => json!({
            "event": "store_refused",
            "partition": partition.0,
            "offset": offset.0,
            "error": failure.to_string(),
        }),
        GroupEvent::Retrying { error } => {
            json!({ "event": "retrying", "error": error.to_string() })
        }
        GroupEvent::PartitionFailed { partition, error } => json!({
            "event": "partition_failed",
            "partition": partition.0,
            "error": error.to_string(),
        }),
        GroupEvent::Failed(error) => json!({ "event": "failed", "error": error.to_string() }),
    }
}

fn named(partitions: impl Iterator<Item = PartitionId>) -> String {
    let numbers = partitions
        .map(|partition| partition.to_string())
        .collect::<Vec<_>>();
    let word = if numbers.len() == 1 {
        "partition"
    } else {
        "partitions"
    };
    format!("{word} {}", numbers.join(", "))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(time: Duration) -> String {
    let milliseconds = time.as_millis();
    format!("{}.{} s", milliseconds / 1_000, milliseconds / 100 % 10)
}

#[cfg(test)]
mod tests {
    use cohort::{
        ClientError, ConsumerError, ConsumerGroupId, Epoch, FencingToken, MemberId, Offset,
    };

    use super::{Duration, GroupEvent, Id, LossReason, PartitionId, for_people, for_programs};
    use crate::{golden::assert_golden, output::json_line};

    fn events() -> Vec<GroupEvent> {
        let token = |partition, epoch| FencingToken {
            group: ConsumerGroupId(1),
            partition: PartitionId(partition),
            epoch: Epoch(epoch),
        };
        let lost = |reason, unstored: Option<u64>, unprocessed| GroupEvent::Lost {
            partition: PartitionId(3),
            reason,
            unstored: unstored.map(Offset),
            unprocessed,
        };
        let failed = ConsumerError::Request(ClientError::Closed);
        let partition = PartitionId(0);
        vec![
            GroupEvent::Joined {
                group: ConsumerGroupId(1),
                member: MemberId(4),
            },
            GroupEvent::Assigned {
                partitions: vec![token(0, 12), token(3, 14)],
            },
            GroupEvent::Revoking {
                partitions: vec![PartitionId(0)],
                time_left: Duration::from_millis(29_950),
            },
            GroupEvent::Retained {
                partitions: vec![PartitionId(0), PartitionId(3)],
            },
            GroupEvent::Revoked { partition },
            lost(LossReason::Reassigned, None, false),
            lost(LossReason::Reassigned, None, true),
            lost(LossReason::Left, None, false),
            lost(LossReason::SessionLost, Some(17), true),
            GroupEvent::Stalled {
                idle: Duration::from_mins(5),
            },
            GroupEvent::Skipped {
                partition,
                from: Offset(10),
                to: Offset(25),
            },
            GroupEvent::Retrying {
                error: ClientError::Closed,
            },
            GroupEvent::PartitionFailed {
                partition,
                error: failed.clone(),
            },
            GroupEvent::Failed(failed),
        ]
    }

    #[test]
    fn what_happens_to_a_member_is_told_to_people_and_programs() {
        let group = Id::from("billing");
        let mut people = String::new();
        let mut programs = String::new();
        for event in events() {
            if let Some(told) = for_people(&event, &group, false) {
                let mark = if told.important { "!" } else { " " };
                people.push_str(&format!("{mark} {}\n", told.text));
            }
            programs.push_str(&json_line(&for_programs(&event)));
            programs.push('\n');
        }
        assert_golden("consume-events.txt", &people);
        assert_golden("consume-events.jsonl", &programs);
    }

    #[test]
    fn a_second_membership_is_told_as_such() {
        let joined = events().swap_remove(0);
        let told = for_people(&joined, &Id::from(7), true).unwrap();
        assert_eq!(told.text, "joined again: member 4 of consumer group #7");
    }
}
