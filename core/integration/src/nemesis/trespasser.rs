//! Members that lost a partition and store all the same.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use wire::{
    ConsumerGroupAssignment, Epoch, Failure, JoinConsumerGroup, LeaveConsumerGroup, Offset, Reply,
    SyncConsumerGroup, TopicDetails,
};

use super::{findings::Findings, voice::Voice};
use crate::{Group, Member};

/// How long a partition may take to change hands.
const MOVE: Duration = Duration::from_secs(30);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(30);

/// How often it was tried. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts(Arc<AtomicU64>);

impl Attempts {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs until the end: one member after the other loses its partitions to a newcomer without giving them up,
/// and stores under the epoch that it had.
#[derive(Debug)]
pub(super) struct Trespasser {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) group: Group,
    pub(super) findings: Findings,
    pub(super) attempts: Attempts,
}

/// A member, with what it knows.
#[derive(Debug)]
struct Owner {
    voice: Voice,
    assignment: ConsumerGroupAssignment,
}

impl Trespasser {
    pub(super) fn run(self) {
        let mut turn = 0;
        while !self.findings.has_ended() {
            turn += 1;
            // What goes wrong on the way is what the faults are for: it begins again.
            if self.turn(turn).is_none() {
                thread::sleep(PAUSE);
            }
        }
    }

    fn turn(&self, turn: usize) -> Option<()> {
        let mut first = self.join(turn)?;
        self.wait_until(&mut first, |assignment| !assignment.owned.is_empty())?;
        let held = first.assignment.owned.clone();
        let mut second = self.join(turn + 1)?;
        let wins = |assignment: &ConsumerGroupAssignment| {
            let mut owned = assignment.owned.iter();
            owned.any(|one| held.iter().any(|other| other.partition == one.partition))
        };
        self.wait_until(&mut second, wins)?;
        for won in second.assignment.owned.clone() {
            let Some(lost) = held.iter().find(|held| held.partition == won.partition) else {
                continue;
            };
            self.trespass(
                &mut first,
                &mut second,
                (won.partition.0, lost.epoch, won.epoch),
            )?;
        }
        for owner in [first, second] {
            self.leave(owner);
        }
        Some(())
    }

    /// The new owner stores an offset, the former one stores a higher one, and it must still be the first.
    fn trespass(
        &self,
        former: &mut Owner,
        owner: &mut Owner,
        (partition, lost, won): (u32, Epoch, Epoch),
    ) -> Option<()> {
        let before = self.stored(owner, partition)?;
        let offset = before.map_or(0, |offset| offset.0 + 1);
        self.store(owner, (partition, won, offset))?.ok()?;
        let tried = self.store(former, (partition, lost, offset + 1))?;
        self.attempts.0.fetch_add(1, Ordering::SeqCst);
        let place = format!("partition {partition}, epoch {} after {won}", lost.0);
        match tried {
            Ok(stored) => self.findings.wrong(format_args!(
                "{place}: a former owner's store is accepted, {stored:?} is stored"
            )),
            Err(failure) if failure.code.retryable() => return None,
            Err(_) => {}
        }
        let after = self.stored(owner, partition)?;
        if after != Some(Offset(offset)) {
            self.findings.wrong(format_args!(
                "{place}: {after:?} is stored, and not {offset}"
            ));
        }
        Some(())
    }

    fn store(
        &self,
        owner: &mut Owner,
        section: (u32, Epoch, u64),
    ) -> Option<Result<Option<Offset>, Failure>> {
        let request = Member::store_to(&self.group, &[section]);
        let began = Instant::now();
        while began.elapsed() < MOVE {
            match owner.voice.insist(request.clone())? {
                Ok(Reply::OffsetsStored(stored)) => {
                    let section = stored.sections.into_iter().next()?;
                    match section.status {
                        Err(failure) if failure.code.retryable() => thread::sleep(PAUSE),
                        status => return Some(status.map(|()| section.stored)),
                    }
                }
                Ok(other) => {
                    self.findings.wrong(format_args!("store: {other:?}"));
                    return None;
                }
                Err(failure) => return Some(Err(failure)),
            }
        }
        None
    }

    fn stored(&self, owner: &mut Owner, partition: u32) -> Option<Option<Offset>> {
        let began = Instant::now();
        while began.elapsed() < MOVE {
            let request = self.group.offsets_of(&[partition]);
            let Ok(Reply::Offsets(offsets)) = owner.voice.insist(request)? else {
                return None;
            };
            let section = offsets.sections.into_iter().next()?;
            match section.status {
                Ok(()) => return Some(section.stored),
                Err(failure) if failure.code.retryable() => thread::sleep(PAUSE),
                Err(_) => return None,
            }
        }
        None
    }

    fn join(&self, node: usize) -> Option<Owner> {
        let mut voice = Voice::login(&self.addresses, node)?;
        let TopicDetails { stream, id, .. } = self.group.topic;
        let join = JoinConsumerGroup {
            stream: stream.into(),
            topic: id.into(),
            group: self.group.name.clone(),
            instance: None,
            weight: 1,
        };
        let Ok(Reply::Assignment(assignment)) = voice.ask(join)? else {
            return None;
        };
        Some(Owner { voice, assignment })
    }

    fn leave(&self, mut owner: Owner) {
        let leave = LeaveConsumerGroup {
            stream: self.group.topic.stream.into(),
            topic: self.group.topic.id.into(),
            group: self.group.name.clone(),
        };
        // Else it goes with its session.
        let _ = owner.voice.ask(leave);
    }

    fn wait_until(
        &self,
        owner: &mut Owner,
        is_it: impl Fn(&ConsumerGroupAssignment) -> bool,
    ) -> Option<()> {
        let began = Instant::now();
        while began.elapsed() < MOVE && !self.findings.has_ended() {
            if is_it(&owner.assignment) {
                return Some(());
            }
            thread::sleep(PAUSE);
            let sync = SyncConsumerGroup {
                stream: self.group.topic.stream.into(),
                topic: self.group.topic.id.into(),
                group: self.group.name.clone(),
            };
            let Ok(Reply::Assignment(assignment)) = owner.voice.insist(sync)? else {
                return None;
            };
            owner.assignment = assignment;
        }
        None
    }
}
