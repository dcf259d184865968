//! What holds of consumer groups after every op.

use std::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use coordinator::{ConsumerGroup, MemberState, Ownership};
use wire::{ClientId, Epoch, Generation};

use crate::{Catalog, GroupKey};

fn groups(catalog: &Catalog) -> impl Iterator<Item = (GroupKey, &ConsumerGroup)> {
    catalog.topics().flat_map(|(stream, topic)| {
        topic.groups().iter().map(move |group| {
            let key = GroupKey {
                stream,
                topic: topic.id(),
                group: group.id(),
            };
            (key, group)
        })
    })
}

/// The highest epoch that a partition has been given.
fn epoch_max(ownership: &Ownership) -> Epoch {
    let planned = ownership.moving().map_or(Epoch(0), |moving| moving.epoch);
    ownership.epoch.max(planned)
}

/// Generation and ownership of every group before an op.
pub(super) struct Generations {
    groups: BTreeMap<GroupKey, (Generation, Vec<Ownership>)>,
}

impl Generations {
    pub(super) fn of(catalog: &Catalog) -> Self {
        let state = |group: &ConsumerGroup| (group.generation(), group.ownerships().collect());
        let groups = groups(catalog).map(|(key, group)| (key, state(group)));
        Self {
            groups: groups.collect(),
        }
    }

    /// A generation counts the ops that changed an ownership; epochs only rise; what is new begins at
    /// the beginning.
    pub(super) fn assert_risen(&self, catalog: &Catalog) {
        for (key, group) in groups(catalog) {
            let after: Vec<Ownership> = group.ownerships().collect();
            let Some((generation, before)) = self.groups.get(&key) else {
                assert_eq!(group.generation(), Generation(0));
                assert!(after.iter().all(|entry| *entry == Ownership::NEVER));
                assert_eq!(group.created(), catalog.applied());
                continue;
            };
            let padded = |entries: &[Ownership]| {
                let mut entries = entries.to_vec();
                entries.resize(before.len().max(after.len()), Ownership::NEVER);
                entries
            };
            let changed = padded(before) != padded(&after);
            let expected = generation.0 + u64::from(changed);
            assert_eq!(group.generation().0, expected, "{key:?}");
            for (before, after) in before.iter().zip(&after) {
                assert!(before.epoch <= after.epoch, "{before:?} {after:?}");
                // Only a move that is called off takes its epoch back, and nobody is given that again.
                let fresh = epoch_max(after) != epoch_max(before);
                let this_op = epoch_max(after).0 == catalog.applied().0;
                let less = epoch_max(after) < epoch_max(before);
                assert!(!fresh || this_op || less, "{before:?} {after:?}");
            }
        }
    }
}

/// Nobody is an owner but members; members that are active have a session that lives; the index of
/// memberships is what a look at every group finds; the plan is a fixed point.
pub(super) fn assert_groups_sound(catalog: &Catalog) {
    let mut memberships: BTreeMap<ClientId, BTreeSet<GroupKey>> = BTreeMap::new();
    for (stream, topic) in catalog.topics() {
        for group in topic.groups().iter() {
            assert_eq!(
                group.partition_count() as usize,
                topic.partitions().len(),
                "partitions of {:?} in stream {stream}",
                group.name()
            );
        }
    }
    for (key, group) in groups(catalog) {
        for member in group.members() {
            let live = catalog.session(member.client, member.session).is_some();
            assert_eq!(live, member.state == MemberState::Active, "{member:?}");
            if live {
                let new = memberships.entry(member.client).or_default().insert(key);
                assert!(new, "a session is a member once: {member:?}");
            }
        }
        for entry in group.ownerships() {
            for named in [entry.owner(), entry.heir()].into_iter().flatten() {
                assert!(group.member(named).is_some(), "{entry:?}");
            }
        }
        assert!(group.plan_pending().is_some() || group.unplanned() == 0);
    }
    for session in catalog.sessions() {
        let found: BTreeSet<GroupKey> = catalog.memberships(session.client).collect();
        let expected = memberships.remove(&session.client).unwrap_or_default();
        assert_eq!(found, expected, "{session:?}");
    }
    assert!(memberships.is_empty());
}
