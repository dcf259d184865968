//! Which consumer groups each client is a member of.

use alloc::collections::{BTreeMap, BTreeSet};

use coordinator::{MemberChange, MemberState};
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

    /// Follows what happened to the members of a group.
    pub(crate) fn follow(&mut self, key: GroupKey, changes: &[MemberChange]) {
        for change in changes {
            match change {
                MemberChange::Put(member) => {
                    // Whose place was taken is in the group no more: if it comes back, the member
                    // does not name it any longer.
                    if let Some(displaced) = &member.displaced {
                        self.remove(displaced.client, &key);
                    }
                    match member.state {
                        MemberState::Active => self.insert(member.client, key),
                        MemberState::Detached => self.remove(member.client, &key),
                    }
                }
                // A client whose static member is away may be in the group by another one.
                MemberChange::Gone(member) if member.state == MemberState::Active => {
                    self.remove(member.client, &key);
                }
                MemberChange::Gone(_) => {}
            }
        }
    }
}
