//! Operations at random, from few clients and partitions so that they meet, in step with the naive model.

use std::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use proptest::{
    collection::vec, option, prelude::Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest,
    sample::select, strategy::Just, test_runner::TestCaseError,
};
use wire::{
    ClientId, Epoch, MemberId, Offset, Op, PartitionId, SessionNumber, Writer, checksum128,
};

use super::{
    at, group,
    model::{Model, ModelMember, Now, Verdict, seen},
};
use crate::{
    At, ConsumerGroup, ConsumerGroups, GroupChange, GroupOptions, GroupProjection, Join,
    JoinRefused, MembershipRefused, OptionsUpdate, Reset, ResetRefused, ResetTo, RestoreContext,
    Weight,
};

/// One operation; clients, sessions and partitions are named by small numbers.
#[derive(Clone, Debug)]
pub(crate) enum Do {
    /// A client logs in: its session is this op. The old one may have been forgotten, or not.
    Login {
        client: u8,
        ends_old: bool,
        keep_static: bool,
    },
    Join {
        client: u8,
        stale: bool,
        instance: Option<u8>,
        weight: u16,
    },
    Leave {
        client: u8,
        stale: bool,
    },
    Remove {
        nth: u8,
    },
    Expire {
        mask: u8,
        wrong_session: bool,
    },
    EndSessions {
        mask: u8,
        keep_static: bool,
    },
    Plan {
        late: bool,
    },
    Create {
        count: u8,
    },
    Delete {
        count: u8,
    },
    Purge {
        mask: u8,
    },
    Reset {
        mask: u8,
        to: Option<u8>,
        force: bool,
        beyond: bool,
    },
    Update {
        initial_delay: bool,
    },
    /// Some of the moves that there are.
    Complete {
        mask: u8,
    },
    /// Some of all moves that there have ever been: late and repeated.
    CompleteAny {
        picks: Vec<u16>,
    },
}

pub(crate) fn operation(clients: u8, weights: &'static [u16]) -> impl Strategy<Value = Do> {
    use proptest::prelude::any;
    let client = move || 0..clients;
    let weight = move || select(weights);
    prop_oneof![
        2 => (client(), any::<bool>(), any::<bool>())
            .prop_map(|(client, ends_old, keep_static)| Do::Login { client, ends_old, keep_static }),
        9 => (client(), proptest::bool::weighted(0.1), option::weighted(0.4, 0..3_u8), weight())
            .prop_map(|(client, stale, instance, weight)| Do::Join { client, stale, instance, weight }),
        4 => (client(), proptest::bool::weighted(0.1))
            .prop_map(|(client, stale)| Do::Leave { client, stale }),
        1 => (0..8_u8).prop_map(|nth| Do::Remove { nth }),
        2 => (any::<u8>(), proptest::bool::weighted(0.2))
            .prop_map(|(mask, wrong_session)| Do::Expire { mask, wrong_session }),
        2 => (any::<u8>(), any::<bool>())
            .prop_map(|(mask, keep_static)| Do::EndSessions { mask, keep_static }),
        2 => proptest::bool::weighted(0.2).prop_map(|late| Do::Plan { late }),
        2 => (0..4_u8).prop_map(|count| Do::Create { count }),
        2 => (0..4_u8).prop_map(|count| Do::Delete { count }),
        1 => any::<u8>().prop_map(|mask| Do::Purge { mask }),
        2 => (any::<u8>(), option::of(0..9_u8), any::<bool>(), proptest::bool::weighted(0.1))
            .prop_map(|(mask, to, force, beyond)| Do::Reset { mask, to, force, beyond }),
        1 => any::<bool>().prop_map(|initial_delay| Do::Update { initial_delay }),
        6 => prop_oneof![any::<u8>(), Just(255)].prop_map(|mask| Do::Complete { mask }),
        2 => vec(any::<u16>(), 1..4).prop_map(|picks| Do::CompleteAny { picks }),
    ]
}

/// The group, who follows it, and what it is compared with.
pub(crate) struct Run {
    pub(crate) group: ConsumerGroup,
    pub(crate) projection: GroupProjection,
    /// A replica that was restored from a snapshot somewhere on the way.
    pub(crate) twin: Option<ConsumerGroup>,
    pub(crate) model: Model,
    pub(crate) op: u64,
    /// Session of each client.
    sessions: BTreeMap<u8, u64>,
    /// Every move that was ever planned.
    planned: Vec<(PartitionId, Epoch)>,
    /// To whom an epoch of a partition was granted, by which session.
    grants: BTreeMap<(PartitionId, Epoch), (MemberId, SessionNumber)>,
    initial_delay: bool,
}

pub(crate) type Checked = Result<(), TestCaseError>;

fn in_mask(mask: u8, index: usize) -> bool {
    mask & (1 << (index % 8)) != 0
}

fn join_verdict(refused: &JoinRefused) -> &'static str {
    match refused {
        JoinRefused::InvalidInstance { .. } => "instance",
        JoinRefused::Fenced(_) => "fenced",
        JoinRefused::Full { .. } => "full",
        JoinRefused::JoinedOtherwise { .. } => "otherwise",
        JoinRefused::SessionEnded { .. } => "session ended",
    }
}

fn seat_verdict(refused: &MembershipRefused) -> &'static str {
    match refused {
        MembershipRefused::NotMember { .. } => "not a member",
        MembershipRefused::Fenced(_) => "fenced",
    }
}

pub(crate) fn digest(group: &ConsumerGroup) -> u128 {
    let mut writer = Writer::new();
    group.write_canonical(&mut writer);
    checksum128(&writer.into_bytes())
}

pub(crate) fn restored(group: &ConsumerGroup, applied: Op) -> ConsumerGroup {
    let mut groups = ConsumerGroups::with_next_id(wire::ConsumerGroupId(2));
    assert!(groups.restore_group(group.clone()));
    let bytes = rmp_serde::to_vec(&groups.snapshot()).unwrap();
    let snapshot = rmp_serde::from_slice(&bytes).unwrap();
    let context = RestoreContext {
        applied,
        partitions: group.partition_count(),
    };
    let groups = ConsumerGroups::restore(context, snapshot).unwrap();
    groups.group(group.id()).unwrap().clone()
}

pub(crate) const MEMBERS_MAX: u32 = 6;

impl Run {
    pub(crate) fn new(partitions: u32) -> Self {
        let group = group(partitions, GroupOptions::default());
        Self {
            projection: GroupProjection::from(&group),
            twin: None,
            model: seen(&group),
            op: 1,
            sessions: BTreeMap::new(),
            planned: Vec::new(),
            grants: BTreeMap::new(),
            initial_delay: false,
            group,
        }
    }

    pub(crate) fn step(&mut self, operation: &Do) -> Checked {
        self.op += 1;
        let at = at(self.op);
        let before = self.group.clone();
        let (verdict, change) = self.execute(operation, at);
        let expected = self.follow_in_model(operation);
        prop_assert_eq!(&verdict, &expected, "{:?}", operation);
        prop_assert_eq!(
            seen(&self.group),
            self.model.clone(),
            "after {:?}",
            operation
        );

        if let Some(change) = &change {
            self.projection.follow(change);
            self.check_change(&before, change)?;
        } else {
            prop_assert_eq!(&before, &self.group, "a refused operation changes nothing");
        }
        prop_assert!(self.projection == GroupProjection::from(&self.group));
        if let Some(twin) = &self.twin {
            prop_assert_eq!(digest(twin), digest(&self.group), "after {:?}", operation);
        }
        self.check_epochs(&before)
    }

    /// Applies to the group, and the same to the twin.
    fn execute(&mut self, operation: &Do, at: At) -> (Verdict, Option<GroupChange>) {
        // The sessions before the op count for it, as for the model.
        let sessions = self.sessions.clone();
        if let Some(mut twin) = self.twin.take() {
            let _ = self.apply_to(&mut twin, &sessions, operation, at);
            self.twin = Some(twin);
        }
        let mut group = self.group.clone();
        let outcome = self.apply_to(&mut group, &sessions, operation, at);
        self.group = group;
        outcome
    }

    fn session(sessions: &BTreeMap<u8, u64>, client: u8, stale: bool) -> SessionNumber {
        let current = sessions.get(&client).copied().unwrap_or(1);
        SessionNumber(if stale {
            current.saturating_sub(1)
        } else {
            current
        })
    }

    fn apply_to(
        &self,
        group: &mut ConsumerGroup,
        sessions: &BTreeMap<u8, u64>,
        operation: &Do,
        at: At,
    ) -> (Verdict, Option<GroupChange>) {
        let done = |change| (Ok(None), Some(change));
        match operation {
            Do::Login {
                client,
                ends_old,
                keep_static,
            } => {
                let old = (client_id(*client), Self::session(sessions, *client, false));
                let ended = if *ends_old {
                    Vec::from([old])
                } else {
                    Vec::new()
                };
                done(group.end_sessions(at, &ended, *keep_static))
            }
            Do::Join {
                client,
                stale,
                instance,
                weight,
            } => {
                let join = Join {
                    client: client_id(*client),
                    session: Self::session(sessions, *client, *stale),
                    instance: instance.map(instance_id),
                    weight: Weight(*weight),
                };
                match group.join(at, join, MEMBERS_MAX) {
                    Ok((joined, change)) => (Ok(Some(joined.member.0)), Some(change)),
                    Err(refused) => (Err(join_verdict(&refused)), None),
                }
            }
            Do::Leave { client, stale } => {
                let session = Self::session(sessions, *client, *stale);
                match group.leave(at, client_id(*client), session) {
                    Ok(change) => done(change),
                    Err(refused) => (Err(seat_verdict(&refused)), None),
                }
            }
            Do::Remove { nth } => match group.remove(at, MemberId(u64::from(*nth))) {
                Ok(change) => done(change),
                Err(_) => (Err("not a member"), None),
            },
            Do::Expire {
                mask,
                wrong_session,
            } => {
                let members = group.members().enumerate();
                let chosen = members.filter(|(index, _)| in_mask(*mask, *index));
                let chosen: Vec<_> = chosen
                    .map(|(_, it)| {
                        (
                            it.id,
                            SessionNumber(it.session.0 + u64::from(*wrong_session)),
                        )
                    })
                    .collect();
                done(group.expire(at, &chosen))
            }
            Do::EndSessions { mask, keep_static } => {
                let ended: Vec<_> = (0..8_u8)
                    .filter(|client| in_mask(*mask, usize::from(*client)))
                    .map(|client| (client_id(client), Self::session(sessions, client, false)))
                    .collect();
                done(group.end_sessions(at, &ended, *keep_static))
            }
            Do::Plan { late } => done(group.plan(at, self.pending(*late))),
            Do::Create { .. } | Do::Delete { .. } | Do::Purge { .. } | Do::Reset { .. } => {
                self.apply_to_partitions(group, operation, at)
            }
            Do::Update { initial_delay } => {
                let update = OptionsUpdate {
                    initial_delay_ms: Some(u32::from(*initial_delay) * 500),
                    ..OptionsUpdate::default()
                };
                done(group.update(at, &update).unwrap())
            }
            Do::Complete { .. } | Do::CompleteAny { .. } => {
                done(group.complete(at, &self.completions(operation)))
            }
        }
    }

    fn apply_to_partitions(
        &self,
        group: &mut ConsumerGroup,
        operation: &Do,
        at: At,
    ) -> (Verdict, Option<GroupChange>) {
        let done = |change| (Ok(None), Some(change));
        match operation {
            Do::Create { count } => done(group.partitions_created(at, u32::from(*count))),
            Do::Delete { count } => {
                let remaining = self.remaining(*count);
                let count = group.partition_count() - u32::try_from(remaining).unwrap();
                done(group.partitions_deleted(at, count))
            }
            Do::Purge { mask } => done(group.purge(at, &self.masked(*mask))),
            Do::Reset {
                mask,
                to,
                force,
                beyond,
            } => {
                let mut partitions: Vec<_> = self
                    .masked(*mask)
                    .into_iter()
                    .map(|it| (it, reset_to(*to)))
                    .collect();
                if *beyond {
                    partitions.push((PartitionId(group.partition_count()), ResetTo::Nothing));
                }
                match group.reset(
                    at,
                    &Reset {
                        partitions,
                        force: *force,
                    },
                ) {
                    Ok(change) => done(change),
                    Err(ResetRefused::NotEmpty(_)) => (Err("members"), None),
                    Err(ResetRefused::PartitionNotFound { .. }) => (Err("partition"), None),
                    Err(ResetRefused::NamedTwice { .. }) => (Err("twice"), None),
                }
            }
            other => panic!("{other:?} is not about partitions"),
        }
    }

    fn follow_in_model(&mut self, operation: &Do) -> Verdict {
        let now = Now {
            op: self.op,
            timestamp: self.op * 1_000,
        };
        let completions = self.completions(operation);
        let mut model = self.model.clone();
        let verdict = model.apply(|model| match operation {
            Do::Login {
                client,
                ends_old,
                keep_static,
            } => {
                let old = self.named(*client, false);
                let ended = if *ends_old {
                    Vec::from([old])
                } else {
                    Vec::new()
                };
                end_sessions(model, now, &ended, *keep_static)
            }
            Do::Join {
                client,
                stale,
                instance,
                weight,
            } => {
                let (client, session) = self.named(*client, *stale);
                let join = ModelMember {
                    client,
                    session,
                    instance: instance.map(instance_id),
                    weight: *weight,
                    detached: false,
                    displaced: None,
                };
                model.join(now, &join, usize::try_from(MEMBERS_MAX).unwrap())
            }
            Do::Leave { client, stale } => {
                let (client, session) = self.named(*client, *stale);
                let id = model.seat(client, session)?;
                model.remove(now, &[id]);
                Ok(None)
            }
            Do::Remove { nth } => {
                let id = u64::from(*nth);
                if !model.members.contains_key(&id) {
                    return Err("not a member");
                }
                model.remove(now, &[id]);
                Ok(None)
            }
            Do::Expire {
                mask,
                wrong_session,
            } => {
                let members = model.members.keys().copied().enumerate();
                let chosen: Vec<u64> = members
                    .filter(|(index, _)| in_mask(*mask, *index) && !wrong_session)
                    .map(|(_, id)| id)
                    .collect();
                model.remove(now, &chosen);
                Ok(None)
            }
            Do::EndSessions { mask, keep_static } => {
                let clients = (0..8_u8).filter(|client| in_mask(*mask, usize::from(*client)));
                let ended: Vec<_> = clients.map(|client| self.named(client, false)).collect();
                end_sessions(model, now, &ended, *keep_static)
            }
            Do::Plan { late } => {
                model.plan_now(now, self.pending(*late).0);
                Ok(None)
            }
            Do::Create { count } => {
                model.resize(now, model.partitions.len() + usize::from(*count));
                Ok(None)
            }
            Do::Delete { count } => {
                model.resize(now, self.remaining(*count));
                Ok(None)
            }
            Do::Purge { mask } => {
                for partition in self.masked(*mask) {
                    model.restart(now, crate::group::index(partition), None);
                }
                Ok(None)
            }
            Do::Reset {
                mask,
                to,
                force,
                beyond,
            } => {
                if !force && !model.members.is_empty() {
                    return Err("members");
                }
                if *beyond {
                    return Err("partition");
                }
                for partition in self.masked(*mask) {
                    model.restart(now, crate::group::index(partition), Some(reset_to(*to)));
                }
                Ok(None)
            }
            Do::Update { initial_delay } => {
                model.initial_delay = *initial_delay;
                Ok(None)
            }
            Do::Complete { .. } | Do::CompleteAny { .. } => {
                for (partition, epoch) in &completions {
                    model.complete(crate::group::index(*partition), epoch.0);
                }
                Ok(None)
            }
        });
        self.model = model;
        if let Do::Login { client, .. } = operation {
            self.sessions.insert(*client, self.op);
        }
        if let Do::Update { initial_delay } = operation {
            self.initial_delay = *initial_delay;
        }
        verdict
    }

    fn named(&self, client: u8, stale: bool) -> (u128, u64) {
        let session = Self::session(&self.sessions, client, stale);
        (client_id(client).0, session.0)
    }

    /// The model is not changed before the group is, so both see the same.
    fn pending(&self, late: bool) -> Op {
        let pending = self.model.pending.unwrap_or(0);
        Op(pending.saturating_sub(u64::from(late)))
    }

    fn remaining(&self, count: u8) -> usize {
        self.model
            .partitions
            .len()
            .saturating_sub(usize::from(count))
            .max(1)
    }

    fn masked(&self, mask: u8) -> Vec<PartitionId> {
        let partitions = 0..self.model.partitions.len();
        let chosen = partitions.filter(|index| in_mask(mask, *index));
        chosen.map(crate::group::partition).collect()
    }

    fn completions(&self, operation: &Do) -> Vec<(PartitionId, Epoch)> {
        match operation {
            Do::Complete { mask } => {
                let entries = self.model.partitions.iter().enumerate();
                let moving = entries.filter_map(|(index, it)| Some((index, it.moving?.epoch)));
                moving
                    .filter(|(index, _)| in_mask(*mask, *index))
                    .map(|(index, epoch)| (crate::group::partition(index), Epoch(epoch)))
                    .collect()
            }
            Do::CompleteAny { picks } if !self.planned.is_empty() => {
                let pick = |pick: &u16| self.planned[usize::from(*pick) % self.planned.len()];
                picks.iter().map(pick).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a change says is what is different, and who is told is who sees it.
    fn check_change(&mut self, before: &ConsumerGroup, change: &GroupChange) -> Checked {
        let (old, new): (Vec<_>, Vec<_>) = (
            before.ownerships().collect(),
            self.group.ownerships().collect(),
        );
        let different = |index: &usize| old.get(*index) != new.get(*index);
        let never =
            |index: &usize| old.get(*index).is_none() && new[*index] == crate::Ownership::NEVER;
        let expected: Vec<usize> = (0..new.len())
            .filter(different)
            .filter(|index| !never(index))
            .collect();
        let changed: Vec<usize> = change
            .ownership
            .iter()
            .map(|(it, _)| crate::group::index(*it))
            .collect();
        prop_assert_eq!(changed, expected);
        for (partition, ownership) in &change.ownership {
            prop_assert_eq!(*ownership, new[crate::group::index(*partition)]);
            self.planned
                .extend(ownership.moving().map(|to| (*partition, to.epoch)));
        }
        let sees_other = |id: MemberId| {
            let assignment =
                |group: &ConsumerGroup| group.assignment(id).map(|it| (it.owned, it.revoking));
            let was = assignment(before).unwrap_or_default();
            assignment(&self.group).is_some_and(|is| is != was)
        };
        let expected = self.group.members().map(|member| member.holder());
        let expected: Vec<_> = expected.filter(|it| sees_other(it.member)).collect();
        prop_assert_eq!(&change.notify, &expected);
        Ok(())
    }

    /// G1 and G2, seen from outside.
    fn check_epochs(&mut self, before: &ConsumerGroup) -> Checked {
        prop_assert!(self.group.generation() >= before.generation());
        for (partition, entry) in (0..).map(PartitionId).zip(self.group.ownerships()) {
            for named in [entry.owner(), entry.heir()].into_iter().flatten() {
                prop_assert!(self.group.member(named).is_some());
            }
            let old = before.ownership(partition);
            prop_assert!(old.is_none_or(|old| entry.epoch >= old.epoch));
            let Some(owner) = entry.owner() else { continue };
            let session = self.group.member(owner).unwrap().session;
            let kept =
                old.is_some_and(|old| (old.owner(), old.epoch) == (Some(owner), entry.epoch));
            let granted = self
                .grants
                .insert((partition, entry.epoch), (owner, session));
            let expected = kept.then_some((owner, session));
            prop_assert_eq!(granted, expected, "an epoch is one member's and session's");
        }
        Ok(())
    }
}

fn end_sessions(model: &mut Model, now: Now, ended: &[(u128, u64)], keep_static: bool) -> Verdict {
    let mut leaving = Vec::new();
    for (client, session) in ended {
        let Ok(id) = model.seat(*client, *session) else {
            continue;
        };
        let member = model.members.get_mut(&id).unwrap();
        if keep_static && member.instance.is_some() {
            member.detached = true;
        } else {
            leaving.push(id);
        }
    }
    model.remove(now, &leaving);
    Ok(None)
}

fn client_id(client: u8) -> ClientId {
    ClientId(u128::from(client) + 100)
}

fn instance_id(instance: u8) -> String {
    format!("instance-{instance}").to_string()
}

fn reset_to(to: Option<u8>) -> ResetTo {
    to.map_or(ResetTo::Nothing, |offset| {
        ResetTo::Offset(Offset(offset.into()))
    })
}

fn play(partitions: u32, restore_at: usize, operations: &[Do]) -> Checked {
    let mut run = Run::new(partitions);
    for (index, operation) in operations.iter().enumerate() {
        if index == restore_at {
            run.twin = Some(restored(&run.group, Op(run.op)));
        }
        run.step(operation)?;
    }
    let again = restored(&run.group, Op(run.op));
    prop_assert_eq!(digest(&again), digest(&run.group));
    prop_assert_eq!(again, run.group);
    Ok(())
}

proptest! {
    #[test]
    fn group_follows_the_rules_step_by_step(
        partitions in 1..9_u32,
        restore_at in 0..40_usize,
        operations in vec(operation(6, &[1]), 1..60),
    ) {
        play(partitions, restore_at, &operations)?;
    }

    #[test]
    fn group_follows_the_rules_with_weights(
        partitions in 1..17_u32,
        restore_at in 0..40_usize,
        operations in vec(operation(7, &[1, 0, 2, 3]), 1..60),
    ) {
        play(partitions, restore_at, &operations)?;
    }
}
