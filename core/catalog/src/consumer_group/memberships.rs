//! Which consumer groups each client is a member of.

use alloc::collections::{BTreeMap, BTreeSet};

use coordinator::{ConsumerGroup, MemberChange, MemberState};
use wire::ClientId;

use super::GroupKey;

/// The groups in which each client has a member whose session lives: a session that ends finds its
/// memberships without a look at any other group. Follows from the groups.
///
/// Invariants: names exactly those groups; no entry is empty; every client in it has a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memberships {
    groups: BTreeMap<ClientId, BTreeSet<GroupKey>>,
}

impl Memberships {
    pub(crate) fn contains(&self, client: ClientId, key: &GroupKey) -> bool {
        let groups = self.groups.get(&client);
        groups.is_some_and(|groups| groups.contains(key))
    }

    pub(crate) fn count(&self, client: ClientId) -> usize {
        self.groups.get(&client).map_or(0, BTreeSet::len)
    }

    /// In order of keys.
    pub(crate) fn of(&self, client: ClientId) -> impl Iterator<Item = &GroupKey> {
        self.groups.get(&client).into_iter().flatten()
    }

    pub(crate) fn insert(&mut self, client: ClientId, key: GroupKey) {
        self.groups.entry(client).or_default().insert(key);
    }

    pub(crate) fn remove(&mut self, client: ClientId, key: &GroupKey) {
        if let Some(groups) = self.groups.get_mut(&client) {
            groups.remove(key);
            if groups.is_empty() {
                self.groups.remove(&client);
            }
        }
    }

    /// Follows what happened to the members of a group, which is `group` by now. A client may be named by a
    /// member that is away, or that was taken from it, and be in the group by another one.
    pub(crate) fn follow(
        &mut self,
        key: GroupKey,
        group: &ConsumerGroup,
        changes: &[MemberChange],
    ) {
        let mut named = BTreeSet::new();
        for change in changes {
            let (MemberChange::Put(member)
            | MemberChange::Left(member)
            | MemberChange::Gone(member)) = change;
            named.insert(member.client);
            named.extend(member.displaced.map(|displaced| displaced.client));
        }
        if named.is_empty() {
            return;
        }
        for client in &named {
            self.remove(*client, &key);
        }
        for member in group.members() {
            if member.state == MemberState::Active && named.contains(&member.client) {
                self.insert(member.client, key);
            }
        }
    }
}
