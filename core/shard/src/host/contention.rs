//! Two processes with one instance id: each that comes takes the membership over from the other. That is
//! admitted once in a session timeout, so that the others of the group are left in peace, and is told.
//!
//! By the primary's own clock and memory: a new primary may admit one more.

use alloc::{collections::BTreeMap, format, vec::Vec};

use catalog::{Catalog, Change, GroupKey, Operation};
use coordinator::{Member, MemberChange, MemberState};
use wire::{ErrorCode, Failure, MemberId, Timestamp};

use crate::{Note, work::Caller};

/// How often a conflict is told of one member, nanoseconds.
const TOLD_EVERY: u64 = 60_000_000_000;

/// Memberships that were taken over from sessions that lived.
#[derive(Debug, Default)]
pub(super) struct Contention {
    taken: BTreeMap<(GroupKey, MemberId), Taken>,
}

/// Monotonic times, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Taken {
    at: u64,
    told: Option<u64>,
}

impl Contention {
    /// This node leads the metadata group from now on.
    pub(super) fn restart(&mut self) {
        self.taken.clear();
    }

    /// Follows the changes of an op that the primary has executed. Returns the conflicts to be told.
    pub(super) fn follow(
        &mut self,
        changes: &[Change],
        timestamp: Timestamp,
        now: u64,
    ) -> Vec<Note> {
        let mut notes = Vec::new();
        for change in changes {
            if let Change::ConsumerGroupDeleted {
                stream,
                topic,
                group,
                ..
            } = change
            {
                let key = (*stream, *topic, *group);
                self.taken
                    .retain(|(it, _), _| (it.stream, it.topic, it.group) != key);
            }
            let Change::ConsumerGroupChanged {
                stream,
                topic,
                change,
            } = change
            else {
                continue;
            };
            let key = GroupKey {
                stream: *stream,
                topic: *topic,
                group: change.group,
            };
            for member in &change.members {
                notes.extend(self.follow_member(key, member, (timestamp, now)));
            }
        }
        notes
    }

    fn follow_member(
        &mut self,
        key: GroupKey,
        change: &MemberChange,
        (timestamp, now): (Timestamp, u64),
    ) -> Option<Note> {
        let member = match change {
            MemberChange::Left(member) | MemberChange::Gone(member) => {
                self.taken.remove(&(key, member.id));
                return None;
            }
            MemberChange::Put(member) => member,
        };
        // It is kept with the member: what was taken over before is no news.
        let displaced = member.displaced.filter(|old| old.at == timestamp)?;
        let taken = self.taken.entry((key, member.id)).or_insert(Taken {
            at: now,
            told: None,
        });
        taken.at = now;
        let is_told = taken
            .told
            .is_some_and(|told| now.saturating_sub(told) < TOLD_EVERY);
        if is_told {
            return None;
        }
        taken.told = Some(now);
        Some(Note::InstanceContended {
            key,
            member: member.id,
            instance: member.instance.clone().unwrap_or_default(),
            from: displaced.session,
            to: member.session,
            address: member.address.clone(),
        })
    }

    /// Whether a join may be proposed.
    pub(super) fn admit(
        &self,
        catalog: &Catalog,
        (caller, operation): (&Caller, &Operation),
        (session_timeout, now): (u64, u64),
    ) -> Result<(), Failure> {
        let Operation::JoinConsumerGroup {
            stream,
            topic,
            group,
            instance: Some(instance),
            ..
        } = operation
        else {
            return Ok(());
        };
        let holder = catalog.instance_holder((stream, topic, group), instance);
        let Some((key, holder)) = holder else {
            return Ok(());
        };
        let ended = holder.state == MemberState::Detached;
        if ended || holder.client == caller.binding.client {
            return Ok(());
        }
        let Some(taken) = self.taken.get(&(key, holder.id)) else {
            return Ok(());
        };
        let passed = now.saturating_sub(taken.at);
        if passed >= session_timeout {
            return Ok(());
        }
        let left = session_timeout - passed;
        Err(refused(instance, holder, (passed, left)))
    }
}

fn refused(instance: &str, holder: &Member, (passed, left): (u64, u64)) -> Failure {
    let (passed, left) = (passed / 1_000_000, left / 1_000_000);
    let text = format!(
        "instance id {instance:?} was taken over {passed} ms ago from a session that lived, and is held by session {} \
         at {}: two processes have it; it can be taken over again in {left} ms, or when that session has ended",
        holder.session, holder.address,
    );
    Failure::new(ErrorCode::Retry, text)
}
