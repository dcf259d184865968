//! A group written down as plainly as can be: flat records, loops over everything, sorting. It follows the
//! rules word by word and knows nothing of slots, passes or steps.

use std::{collections::BTreeMap, string::String, vec::Vec};

use crate::{ConsumerGroup, Displaced, ResetTo};

pub(crate) type Id = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelMember {
    pub(crate) client: u128,
    pub(crate) session: u64,
    pub(crate) instance: Option<String>,
    pub(crate) weight: u16,
    pub(crate) detached: bool,
    pub(crate) displaced: Option<(u128, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelMove {
    pub(crate) to: Option<Id>,
    pub(crate) epoch: u64,
    pub(crate) since: u64,
    pub(crate) reset: Option<ResetTo>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelPartition {
    pub(crate) owner: Option<Id>,
    pub(crate) epoch: u64,
    pub(crate) held_since: u64,
    pub(crate) moving: Option<ModelMove>,
}

impl ModelPartition {
    pub(crate) fn heir(&self) -> Option<Id> {
        self.moving.map_or(self.owner, |moving| moving.to)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) members: BTreeMap<Id, ModelMember>,
    pub(crate) partitions: Vec<ModelPartition>,
    pub(crate) generation: u64,
    pub(crate) pending: Option<u64>,
    pub(crate) empty_since: Option<u64>,
    pub(crate) next_member: Id,
    pub(crate) initial_delay: bool,
}

/// What the real group says, in the model's words.
pub(crate) fn seen(group: &ConsumerGroup) -> Model {
    let partitions = group.ownerships().map(|entry| ModelPartition {
        owner: entry.owner().map(|owner| owner.0),
        epoch: entry.epoch.0,
        held_since: entry.held_since().map_or(0, |since| since.0),
        moving: entry.moving().map(|moving| ModelMove {
            to: moving.to.map(|to| to.0),
            epoch: moving.epoch.0,
            since: moving.since.0,
            reset: moving.reset,
        }),
    });
    let members = group.members().map(|member| {
        let displaced = member.displaced;
        let displaced = displaced.map(
            |Displaced {
                 client, session, ..
             }| (client.0, session.0),
        );
        let seen = ModelMember {
            client: member.client.0,
            session: member.session.0,
            instance: member.instance.clone(),
            weight: member.weight.0,
            detached: member.state == crate::MemberState::Detached,
            displaced,
        };
        (member.id.0, seen)
    });
    Model {
        members: members.collect(),
        partitions: partitions.collect(),
        generation: group.generation().0,
        pending: group.plan_pending().map(|op| op.0),
        empty_since: group.empty_since().map(|since| since.0),
        next_member: group.next_member.0,
        initial_delay: group.options().initial_delay_ms > 0,
    }
}

/// What one operation came to.
pub(crate) type Verdict = Result<Option<Id>, &'static str>;

/// The op and its timestamp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) op: u64,
    pub(crate) timestamp: u64,
}

impl Model {
    /// Runs a change and counts the generation by what it did.
    pub(crate) fn apply(&mut self, change: impl FnOnce(&mut Self) -> Verdict) -> Verdict {
        let before = self.partitions.clone();
        let verdict = change(self);
        let length = before.len().max(self.partitions.len());
        let padded = |mut partitions: Vec<ModelPartition>| {
            partitions.resize(length, ModelPartition::default());
            partitions
        };
        if padded(before) != padded(self.partitions.clone()) {
            self.generation += 1;
        }
        verdict
    }

    pub(crate) fn seat(&self, client: u128, session: u64) -> Result<Id, &'static str> {
        let active = |member: &&ModelMember| !member.detached && member.client == client;
        let own = self.members.iter().find(|(_, member)| active(member));
        match own {
            Some((id, member)) if member.session == session => return Ok(*id),
            Some(_) | None => {}
        }
        let taken = |member: &ModelMember| member.displaced == Some((client, session));
        if self.members.values().any(taken) {
            Err("fenced")
        } else {
            Err("not a member")
        }
    }

    pub(crate) fn join(&mut self, now: Now, join: &ModelMember, members_max: usize) -> Verdict {
        let (client, session) = (join.client, join.session);
        let active = |member: &ModelMember| !member.detached && member.client == client;
        let own = self.members.iter().find(|(_, member)| active(member));
        if let Some((id, member)) = own {
            let id = *id;
            if member.session > session {
                return Err("session ended");
            }
            if member.instance != join.instance {
                return Err("otherwise");
            }
            if member.session == session {
                return if member.weight == join.weight {
                    Ok(Some(id))
                } else {
                    Err("otherwise")
                };
            }
            return Ok(Some(self.take_over(now, id, join)));
        }
        let holds =
            |member: &ModelMember| join.instance.is_some() && member.instance == join.instance;
        let holder = self.members.iter().find(|(_, member)| holds(member));
        if let Some((id, member)) = holder {
            if !member.detached && member.session >= session {
                return Err("fenced");
            }
            return Ok(Some(self.take_over(now, *id, join)));
        }
        if self.members.len() >= members_max {
            return Err("full");
        }
        if self.members.is_empty() && self.initial_delay {
            self.pending = Some(now.op);
        }
        self.empty_since = None;
        self.forget(client);
        let id = self.next_member;
        self.next_member += 1;
        self.members.insert(id, join.clone());
        self.plan(now);
        Ok(Some(id))
    }

    fn forget(&mut self, client: u128) {
        for member in self.members.values_mut() {
            if member
                .displaced
                .is_some_and(|(displaced, _)| displaced == client)
            {
                member.displaced = None;
            }
        }
    }

    fn take_over(&mut self, now: Now, id: Id, join: &ModelMember) -> Id {
        self.forget(join.client);
        let member = self.members.get_mut(&id).unwrap();
        let fenced = !member.detached && member.client != join.client;
        *member = ModelMember {
            displaced: fenced.then_some((member.client, member.session)),
            ..join.clone()
        };
        for partition in &mut self.partitions {
            if partition.owner == Some(id) {
                partition.owner = None;
                partition.held_since = 0;
                partition.moving.get_or_insert(ModelMove {
                    to: Some(id),
                    epoch: now.op,
                    since: now.timestamp,
                    reset: None,
                });
            } else if let Some(moving) = &mut partition.moving
                && moving.to == Some(id)
            {
                moving.epoch = now.op;
            }
        }
        self.plan(now);
        id
    }

    pub(crate) fn remove(&mut self, now: Now, ids: &[Id]) {
        let before = self.members.len();
        self.members.retain(|id, _| !ids.contains(id));
        if self.members.len() == before {
            return;
        }
        for partition in &mut self.partitions {
            if partition.owner.is_some_and(|owner| ids.contains(&owner)) {
                partition.owner = None;
                partition.held_since = 0;
            }
        }
        if self.members.is_empty() {
            self.pending = None;
            self.empty_since = Some(now.timestamp);
        }
        self.plan(now);
    }

    pub(crate) fn plan_now(&mut self, now: Now, pending: u64) {
        if self.pending == Some(pending) {
            self.pending = None;
            self.plan(now);
        }
    }

    pub(crate) fn resize(&mut self, now: Now, partitions: usize) {
        self.partitions
            .resize(partitions, ModelPartition::default());
        self.plan(now);
    }

    pub(crate) fn restart(&mut self, now: Now, partition: usize, reset: Option<ResetTo>) {
        let entry = &mut self.partitions[partition];
        let since = entry.moving.map_or(now.timestamp, |moving| moving.since);
        let to = entry.heir();
        *entry = ModelPartition {
            owner: None,
            epoch: entry.epoch,
            held_since: 0,
            moving: Some(ModelMove {
                to,
                epoch: now.op,
                since,
                reset,
            }),
        };
    }

    pub(crate) fn complete(&mut self, partition: usize, epoch: u64) {
        let Some(entry) = self.partitions.get_mut(partition) else {
            return;
        };
        let Some(moving) = entry.moving.filter(|moving| moving.epoch == epoch) else {
            return;
        };
        *entry = ModelPartition {
            owner: moving.to,
            epoch,
            held_since: if moving.to.is_some() { epoch } else { 0 },
            moving: None,
        };
    }

    /// Who has a claim on a partition: its owner, else the member that it moves to.
    pub(crate) fn holder(&self, partition: &ModelPartition) -> Option<Id> {
        let target = partition.moving.and_then(|moving| moving.to);
        let target = target.filter(|to| self.members.contains_key(to));
        partition.owner.or(target)
    }

    fn held(&self, id: Id) -> usize {
        let held = |it: &&ModelPartition| self.holder(it) == Some(id);
        self.partitions.iter().filter(held).count()
    }

    /// The exact share of a member as a fraction: partitions × weight over the sum of weights.
    pub(crate) fn share(&self, id: Id) -> (usize, usize) {
        let sum: usize = self
            .members
            .values()
            .map(|member| usize::from(member.weight))
            .sum();
        let partitions = self.partitions.len();
        if sum == 0 {
            return (partitions, self.members.len());
        }
        (partitions * usize::from(self.members[&id].weight), sum)
    }

    pub(crate) fn quotas(&self) -> BTreeMap<Id, usize> {
        let base = |id: Id| {
            let (share, of) = self.share(id);
            share / of
        };
        let mut quotas: BTreeMap<Id, usize> =
            self.members.keys().map(|id| (*id, base(*id))).collect();
        let extras = self.partitions.len() - quotas.values().sum::<usize>();
        let mut eligible: Vec<Id> = self.members.keys().copied().collect();
        eligible.retain(|id| {
            let (share, of) = self.share(*id);
            share % of != 0
        });
        eligible.sort_by_key(|id| {
            let heirs = self
                .partitions
                .iter()
                .filter(|it| it.heir() == Some(*id))
                .count();
            let owned = self
                .partitions
                .iter()
                .filter(|it| it.owner == Some(*id))
                .count();
            let holds_more = self.held(*id) > base(*id);
            (!holds_more, heirs <= base(*id), usize::MAX - owned, *id)
        });
        for id in eligible.into_iter().take(extras) {
            *quotas.get_mut(&id).unwrap() += 1;
        }
        quotas
    }

    fn plan(&mut self, now: Now) {
        if self.pending.is_some() {
            return;
        }
        if self.members.is_empty() {
            return self.strand(now);
        }
        let quotas = self.quotas();
        let room: BTreeMap<Id, usize> = quotas
            .iter()
            .map(|(id, quota)| (*id, quota.saturating_sub(self.held(*id))))
            .collect();
        let (cancelled, given) = self.losses(&quotas, &room);

        let mut left = room;
        let mut loose = given;
        for (index, partition) in self.partitions.iter().enumerate() {
            if cancelled.contains(&index) {
                continue;
            }
            if self.holder(partition).is_none() {
                loose.push(index);
            } else if let (Some(_), Some(moving)) = (partition.owner, partition.moving) {
                match moving.to.and_then(|to| left.get_mut(&to)) {
                    Some(left) if *left > 0 => *left -= 1,
                    Some(_) | None => loose.push(index),
                }
            }
        }
        for index in cancelled {
            let partition = &mut self.partitions[index];
            partition.moving = None;
            partition.epoch = now.op;
        }
        loose.sort_unstable();
        for index in loose {
            let (to, left) = left.iter_mut().find(|(_, left)| **left > 0).unwrap();
            *left -= 1;
            assign(&mut self.partitions[index], now, *to);
        }
        assert!(left.values().all(|left| *left == 0));
    }

    fn strand(&mut self, now: Now) {
        for partition in &mut self.partitions {
            if let Some(moving) = partition.moving
                && moving.to.is_some()
            {
                let kept = ModelMove {
                    to: None,
                    epoch: now.op,
                    ..moving
                };
                partition.moving = moving.reset.map(|_| kept);
            }
        }
    }

    /// Revocations that end, and what members give up beside those that go on.
    fn losses(
        &self,
        quotas: &BTreeMap<Id, usize>,
        room: &BTreeMap<Id, usize>,
    ) -> (Vec<usize>, Vec<usize>) {
        let entries = || self.partitions.iter().enumerate();
        let incoming = |to: Id| {
            entries()
                .filter(|(_, it)| it.owner.is_some() && it.moving.is_some_and(|m| m.to == Some(to)))
                .count()
        };
        let (mut cancelled, mut given) = (Vec::new(), Vec::new());
        for (id, quota) in quotas {
            let excess = self.held(*id).saturating_sub(*quota);
            let mut outgoing: Vec<usize> = entries()
                .filter(|(_, it)| it.owner == Some(*id) && it.moving.is_some())
                .map(|(index, _)| index)
                .collect();
            if outgoing.len() > excess {
                outgoing.sort_by_key(|index| {
                    let it = &self.partitions[*index];
                    let to = it.heir().unwrap();
                    let fits = room.get(&to).is_some_and(|room| incoming(to) <= *room);
                    (fits, it.held_since, *index)
                });
                cancelled.extend(&outgoing[..outgoing.len() - excess]);
                continue;
            }
            let mut others: Vec<usize> = entries()
                .filter(|(_, it)| {
                    self.holder(it) == Some(*id) && (it.owner.is_none() || it.moving.is_none())
                })
                .map(|(index, _)| index)
                .collect();
            others.sort_by_key(|index| {
                let it = &self.partitions[*index];
                let latest = it.moving.map_or(it.held_since, |moving| moving.epoch);
                (it.owner.is_some(), u64::MAX - latest, usize::MAX - *index)
            });
            given.extend(&others[..excess - outgoing.len()]);
        }
        (cancelled, given)
    }
}

fn assign(partition: &mut ModelPartition, now: Now, to: Id) {
    let nobody_older =
        partition.owner.is_none() && partition.moving.is_none() && partition.epoch == 0;
    if nobody_older {
        partition.owner = Some(to);
        partition.epoch = now.op;
        partition.held_since = now.op;
        return;
    }
    let (since, reset) = partition
        .moving
        .map_or((now.timestamp, None), |moving| (moving.since, moving.reset));
    partition.moving = Some(ModelMove {
        to: Some(to),
        epoch: now.op,
        since,
        reset,
    });
}
