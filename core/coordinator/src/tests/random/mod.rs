//! Operations at random, from few clients and partitions so that they meet, in step with the naive model.

mod operation;

use std::{collections::BTreeMap, format, string::String, vec, vec::Vec};

use proptest::{
    collection::vec, option, prelude::Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest,
    sample::select, strategy::Just, test_runner::TestCaseError,
};
use wire::{
    ClientId, Epoch, MemberId, Offset, Op, PartitionId, SessionNumber, Writer, checksum128,
};

use super::{
    at, group,
    model::{Model, Now, seen},
};
use crate::{
    ConsumerGroup, ConsumerGroups, GroupChange, GroupOptions, GroupProjection, Join, OptionsUpdate,
    Ownership, Reset, ResetTo, RestoreContext, Weight,
    group::{index, partition},
};
use operation::Operation;

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
    projection: GroupProjection,
    /// A replica that was restored from a snapshot somewhere on the way.
    twin: Option<ConsumerGroup>,
    model: Model,
    op: u64,
    /// Session of each client.
    sessions: BTreeMap<u8, u64>,
    /// Every move that was ever planned.
    planned: Vec<(PartitionId, Epoch)>,
    /// To whom an epoch of a partition was granted, and under which session.
    grants: BTreeMap<(PartitionId, Epoch), (MemberId, SessionNumber)>,
}

pub(crate) type Checked = Result<(), TestCaseError>;

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
            group,
        }
    }

    pub(crate) fn step(&mut self, what: &Do) -> Checked {
        let operation = self.resolve(what);
        self.op += 1;
        let at = at(self.op);
        let before = self.group.clone();
        let outcome = operation.apply(&mut self.group, at);
        if let Some(twin) = &mut self.twin {
            let same = operation.apply(twin, at);
            prop_assert_eq!(&same, &outcome, "{:?}", operation);
            prop_assert_eq!(digest(twin), digest(&self.group), "after {:?}", operation);
        }
        let now = Now {
            op: self.op,
            timestamp: at.timestamp.0,
        };
        let expected = self
            .model
            .apply(|model| operation.apply_to_model(model, now));
        let verdict = outcome.as_ref().map(|(member, _)| *member);
        prop_assert_eq!(
            verdict.map_err(|refused| *refused),
            expected,
            "{:?}",
            operation
        );
        prop_assert_eq!(&seen(&self.group), &self.model, "after {:?}", operation);

        if let Ok((_, change)) = &outcome {
            self.projection.follow(change);
            self.check_change(&before, change)?;
        } else {
            prop_assert_eq!(&before, &self.group, "a refused operation changes nothing");
        }
        prop_assert!(self.projection == GroupProjection::from(&self.group));
        if let Do::Login { client, .. } = what {
            self.sessions.insert(*client, self.op);
        }
        self.check_epochs(&before)
    }

    fn resolve(&self, what: &Do) -> Operation {
        match what {
            Do::Login {
                client,
                ends_old,
                keep_static,
            } => Operation::EndSessions {
                sessions: Vec::from_iter(ends_old.then(|| self.named(*client, false))),
                keep_static: *keep_static,
            },
            Do::Join {
                client,
                stale,
                instance,
                weight,
            } => {
                let (client, session) = self.named(*client, *stale);
                Operation::Join(Join {
                    client,
                    session,
                    instance: instance.map(instance_id),
                    weight: Weight(*weight),
                    address: std::format!("10.0.0.{}:4000", client.0),
                })
            }
            Do::Leave { client, stale } => {
                let (client, session) = self.named(*client, *stale);
                Operation::Leave(client, session)
            }
            Do::Remove { nth } => Operation::Remove(MemberId(u64::from(*nth))),
            Do::Expire {
                mask,
                wrong_session,
            } => self.expiry(*mask, *wrong_session),
            Do::EndSessions { mask, keep_static } => {
                let clients = (0..8_u8).filter(|client| in_mask(*mask, usize::from(*client)));
                Operation::EndSessions {
                    sessions: clients.map(|client| self.named(client, false)).collect(),
                    keep_static: *keep_static,
                }
            }
            Do::Plan { late } => {
                let pending = self.model.pending.unwrap_or(0);
                Operation::Plan(Op(pending.saturating_sub(u64::from(*late))))
            }
            Do::Create { count } => Operation::Create(u32::from(*count)),
            Do::Delete { count } => {
                let present = self.group.partition_count();
                Operation::Delete(u32::from(*count).min(present - 1))
            }
            Do::Purge { mask } => Operation::Purge(self.masked(*mask)),
            Do::Reset { .. } => self.reset(what),
            Do::Update { initial_delay } => Operation::Update(OptionsUpdate {
                initial_delay_ms: Some(u32::from(*initial_delay) * 500),
                ..OptionsUpdate::default()
            }),
            Do::Complete { .. } | Do::CompleteAny { .. } => Operation::Complete(self.moves(what)),
        }
    }

    fn named(&self, client: u8, stale: bool) -> (ClientId, SessionNumber) {
        let session = self.sessions.get(&client).copied().unwrap_or(1);
        let session = session.saturating_sub(u64::from(stale));
        (ClientId(u128::from(client) + 100), SessionNumber(session))
    }

    fn expiry(&self, mask: u8, wrong_session: bool) -> Operation {
        let members = self.group.members().enumerate();
        let chosen = members.filter(|(nth, _)| in_mask(mask, *nth));
        let session = |session: SessionNumber| session.0 + u64::from(wrong_session);
        let chosen = chosen.map(|(_, it)| (it.id, SessionNumber(session(it.session))));
        Operation::Expire(chosen.collect())
    }

    fn reset(&self, what: &Do) -> Operation {
        let Do::Reset {
            mask,
            to,
            force,
            beyond,
        } = what
        else {
            panic!("{what:?} is no reset");
        };
        let to = to.map_or(ResetTo::Nothing, |it| ResetTo::Offset(Offset(it.into())));
        let mut partitions = self.masked(*mask);
        partitions.extend(beyond.then(|| PartitionId(self.group.partition_count())));
        Operation::Reset(Reset {
            partitions: partitions
                .into_iter()
                .map(|partition| (partition, to))
                .collect(),
            force: *force,
        })
    }

    fn masked(&self, mask: u8) -> Vec<PartitionId> {
        let partitions = (0..self.model.partitions.len()).filter(|entry| in_mask(mask, *entry));
        partitions.map(partition).collect()
    }

    fn moves(&self, what: &Do) -> Vec<(PartitionId, Epoch)> {
        if let Do::CompleteAny { picks } = what {
            let planned = self.planned.len();
            let picks = picks.iter().filter(|_| planned > 0);
            return picks
                .map(|pick| self.planned[usize::from(*pick) % planned])
                .collect();
        }
        let Do::Complete { mask } = what else {
            panic!("{what:?} completes nothing");
        };
        let entries = self.group.ownerships().enumerate();
        let moving = entries.filter_map(|(entry, it)| Some((entry, it.moving()?.epoch)));
        let chosen = moving.filter(|(entry, _)| in_mask(*mask, *entry));
        chosen
            .map(|(entry, epoch)| (partition(entry), epoch))
            .collect()
    }

    /// What a change says is what is different, and who is told is who sees it.
    fn check_change(&mut self, before: &ConsumerGroup, change: &GroupChange) -> Checked {
        let (old, new): (Vec<_>, Vec<_>) = (
            before.ownerships().collect(),
            self.group.ownerships().collect(),
        );
        let different = |index: &usize| old.get(*index) != new.get(*index);
        let never = |index: &usize| old.get(*index).is_none() && new[*index] == Ownership::NEVER;
        let expected: Vec<usize> = (0..new.len())
            .filter(different)
            .filter(|index| !never(index))
            .collect();
        let changed: Vec<usize> = change.ownership.iter().map(|(it, _)| index(*it)).collect();
        prop_assert_eq!(changed, expected);
        for (partition, ownership) in &change.ownership {
            prop_assert_eq!(*ownership, new[index(*partition)]);
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

fn in_mask(mask: u8, nth: usize) -> bool {
    mask & (1 << (nth % 8)) != 0
}

fn instance_id(instance: u8) -> String {
    format!("instance-{instance}")
}

fn play(partitions: u32, restore_at: usize, operations: &[Do]) -> Checked {
    let mut run = Run::new(partitions);
    for (nth, operation) in operations.iter().enumerate() {
        if nth == restore_at {
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

    #[test]
    fn larger_groups_follow_the_rules(
        partitions in 1..40_u32,
        restore_at in 0..60_usize,
        operations in vec(operation(12, &[1, 1, 1, 2]), 40..120),
    ) {
        play(partitions, restore_at, &operations)?;
    }
}
