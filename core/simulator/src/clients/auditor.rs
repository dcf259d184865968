//! Somebody who reads every message of every partition when all others have gone.

use std::{collections::BTreeMap, time::Duration};

use client::{Retry, Ticket};
use wire::{
    Consumer, Epoch, ErrorCode, GetConsumerOffset, Identifier, Offset, PartitionKey, PollMessages,
    PollSection, PollStrategy, Reply, Request,
};

use super::{Answer, Desk};

/// An auditor. What it is answered is checked where it leaves the node; here it only matters that it gets
/// to every end.
#[derive(Debug, Default)]
pub(super) struct Auditor {
    /// What is left, once it has begun.
    tasks: Option<Vec<Task>>,
    asked: BTreeMap<Ticket, Task>,
}

#[derive(Clone, Debug)]
enum Task {
    /// Read a partition from an offset to the end.
    Read(PartitionKey, u64, u64),
    /// Compare what a consumer has stored.
    Stored(PartitionKey, String, u64),
}

impl Auditor {
    pub(super) fn is_done(&self) -> bool {
        self.tasks.as_ref().is_some_and(Vec::is_empty) && self.asked.is_empty()
    }

    #[expect(clippy::unused_self, reason = "the same for every kind of work")]
    pub(super) const fn deadline(&self) -> Option<u64> {
        None
    }

    pub(super) fn drive(&mut self, desk: &mut Desk<'_>) {
        let tasks = self.tasks.get_or_insert_with(|| all_tasks(desk));
        while self.asked.len() < 4 {
            let Some(task) = tasks.pop() else {
                return;
            };
            let timeout = Duration::from_secs(20);
            let ticket = desk.submit(task.request(), timeout, Retry::Session);
            self.asked.insert(ticket, task);
        }
    }

    pub(super) fn on_answer(&mut self, desk: &mut Desk<'_>, ticket: Ticket, answer: Answer) {
        let Some(task) = self.asked.remove(&ticket) else {
            return;
        };
        match (task, answer) {
            (Task::Read(key, from, end), Ok(Reply::Polled(polled))) => {
                let Some(result) = polled.sections.first() else {
                    return desk.run.fail("an empty answer");
                };
                if let Err(failure) = &result.status {
                    return self.on_refused(desk, (key, Task::Read(key, from, end)), failure.code);
                }
                if result.next.0 < end {
                    let next = result.next.0;
                    if next == from {
                        desk.run
                            .fail(format!("{key}: nothing comes after {from}, end is {end}"));
                    }
                    self.tasks
                        .get_or_insert_default()
                        .push(Task::Read(key, next, end));
                }
            }
            (Task::Stored(key, consumer, stored), Ok(Reply::Offsets(offsets))) => {
                let Some(result) = offsets.sections.first() else {
                    return desk.run.fail("an empty answer");
                };
                match &result.status {
                    Err(failure) => {
                        let task = Task::Stored(key, consumer, stored);
                        self.on_refused(desk, (key, task), failure.code);
                    }
                    Ok(()) if result.stored == Some(Offset(stored)) => {}
                    // A node that stood still may have carried out what a client sent before it ended: it stored
                    // another one, or deleted it.
                    Ok(()) if is_stored(desk, key, &consumer, result.stored) => {}
                    Ok(()) => desk.run.fail(format!(
                        "{key}: {:?} is stored for {consumer}, not {stored}",
                        result.stored
                    )),
                }
            }
            (task, Err(error)) => {
                if desk.scenario.faults.rot.is_none() {
                    desk.run.fail(format!("audit, {task:?}: {error}"));
                }
            }
            (task, Ok(reply)) => desk.run.fail(format!("audit, {task:?}: {reply:?}")),
        }
    }

    fn on_refused(
        &mut self,
        desk: &mut Desk<'_>,
        (key, task): (PartitionKey, Task),
        code: ErrorCode,
    ) {
        let moves = matches!(
            code,
            ErrorCode::Retry | ErrorCode::NotReady | ErrorCode::NotPrimary
        );
        if moves && desk.scenario.replicas > 1 {
            // A primary is new, or not known yet where it was asked.
            return self.tasks.get_or_insert_default().push(task);
        }
        let is_damage = matches!(code, ErrorCode::PartitionDamaged | ErrorCode::OutOfService);
        if desk.scenario.faults.rot.is_none() || !is_damage {
            desk.run.fail(format!("audit of {key}: {}", code.name()));
        }
    }
}

impl Task {
    fn request(&self) -> Request {
        match self {
            Self::Read(key, from, _) => PollMessages {
                stream: Identifier::Number(key.stream.0),
                topic: Identifier::Number(key.topic.0),
                consumer: Consumer::Single("auditor".into()),
                max_messages: 1_000,
                max_bytes: 64 * 1024,
                min_bytes: 0,
                max_wait_ms: 0,
                commit_on_poll: false,
                sections: vec![PollSection {
                    partition: key.partition,
                    epoch: Epoch(0),
                    strategy: PollStrategy::Offset(Offset(*from)),
                }],
            }
            .into(),
            Self::Stored(key, consumer, _) => GetConsumerOffset {
                stream: Identifier::Number(key.stream.0),
                topic: Identifier::Number(key.topic.0),
                consumer: Consumer::Single(consumer.clone()),
                partitions: vec![key.partition],
            }
            .into(),
        }
    }
}

/// Whether this is what a consumer has stored by now.
fn is_stored(desk: &Desk<'_>, key: PartitionKey, consumer: &str, told: Option<Offset>) -> bool {
    let mut live = desk.ledger.live_partitions();
    let model = live.find(|(found, _)| *found == key);
    model.is_some_and(|(_, model)| model.stored(consumer) == told.map(|told| told.0))
}

fn all_tasks(desk: &Desk<'_>) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (key, model) in desk.ledger.live_partitions() {
        tasks.push(Task::Read(key, 0, model.end()));
        for (consumer, stored) in model.consumers() {
            tasks.push(Task::Stored(key, consumer.to_string(), stored));
        }
    }
    tasks
}
