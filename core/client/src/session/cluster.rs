//! What a session knows of the cluster: addresses, nodes, and who leads which consensus group.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use wire::{ClusterMetadata, ConsensusGroup, PrimaryChanged, ReplicaId, View};

use crate::{Backoff, random::Random};

/// Nodes that are kept of a list; clusters have fewer.
const NODES_MAX: usize = 32;

/// Consensus groups whose primaries are kept; what a node tells beyond is passed over.
const GROUPS_MAX: usize = 4096;

/// Where to connect to, and who leads.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The configured addresses, in their order, then those that the cluster has told.
    targets: Vec<Target>,
    /// The nodes of the cluster; 0: not told.
    size: usize,
    /// Who leads each group, in which view.
    /// Invariant: the view of a group never falls.
    primaries: BTreeMap<ConsensusGroup, (View, ReplicaId)>,
}

/// An address.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) address: String,
    configured: bool,
    /// The node that is there, by the cluster's list or by its own word.
    pub(super) node: Option<ReplicaId>,
    /// Attempts in a row that did not lead to a connection which lasted.
    pub(super) failures: u32,
    /// Nothing is tried before this time.
    pub(super) blocked_until: u64,
}

impl Target {
    const fn new(address: String, configured: bool) -> Self {
        Self {
            address,
            configured,
            node: None,
            failures: 0,
            blocked_until: 0,
        }
    }

    pub(super) const fn is_open(&self, now: u64) -> bool {
        self.blocked_until <= now
    }

    /// Whether both lead to the same node, as far as known.
    pub(super) fn is_same(&self, address: &str, node: Option<ReplicaId>) -> bool {
        self.address == address || self.node.is_some() && self.node == node
    }
}

impl Cluster {
    pub(super) fn new(addresses: &[String]) -> Self {
        let mut targets: Vec<Target> = Vec::new();
        for address in addresses {
            if !targets.iter().any(|target| target.address == *address) {
                targets.push(Target::new(address.clone(), true));
            }
        }
        Self {
            targets,
            size: 0,
            primaries: BTreeMap::new(),
        }
    }

    /// Whether there is only one address to go to.
    pub(super) const fn is_one_address(&self) -> bool {
        self.targets.len() == 1
    }

    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn target_mut(&mut self, address: &str) -> Option<&mut Target> {
        let mut targets = self.targets.iter_mut();
        targets.find(|target| target.address == address)
    }

    /// The node that is believed to be at an address.
    pub(super) fn node_at(&self, address: &str) -> Option<ReplicaId> {
        let mut targets = self.targets.iter();
        targets.find(|target| target.address == address)?.node
    }

    /// Whether the cluster has told that it has several nodes.
    pub(super) const fn has_several(&self) -> bool {
        self.size > 1
    }

    /// How many nodes there are, as far as known.
    pub(super) const fn size(&self) -> usize {
        if self.size > 0 {
            self.size
        } else {
            self.targets.len()
        }
    }

    /// Whether it is known where a node is.
    pub(super) fn knows(&self, node: ReplicaId) -> bool {
        self.targets.iter().any(|target| target.node == Some(node))
    }

    /// An address of a node that may be tried now; what the cluster tells comes first.
    pub(super) fn open_address_of(&self, node: ReplicaId, now: u64) -> Option<&Target> {
        let own = self.targets.iter();
        let own = own.filter(|target| target.node == Some(node) && target.is_open(now));
        own.min_by_key(|target| target.configured)
    }

    pub(super) fn primary(&self, group: ConsensusGroup) -> Option<ReplicaId> {
        self.primaries.get(&group).map(|(_, primary)| *primary)
    }

    /// The newest view of a group that is known, and who leads it in that.
    pub(super) fn leading(&self, group: ConsensusGroup) -> Option<(View, ReplicaId)> {
        self.primaries.get(&group).copied()
    }

    /// Takes over what the node at `address` tells. One that is alone is known by the address at hand: the
    /// one that it tells may lead there only from where it is.
    pub(super) fn learn(&mut self, address: &str, told: &ClusterMetadata) {
        if let Some(target) = self.target_mut(address) {
            target.node = Some(told.node);
        }
        let nodes = &told.nodes[..told.nodes.len().min(NODES_MAX)];
        self.size = nodes.len();
        let others = if self.size > 1 { nodes } else { &[] };
        let listed = |target: &Target| others.iter().any(|node| node.address == target.address);
        self.targets
            .retain(|target| target.configured || listed(target));
        for node in others {
            match self.target_mut(&node.address) {
                Some(target) => target.node = Some(node.replica),
                None => {
                    let mut target = Target::new(node.address.clone(), false);
                    target.node = Some(node.replica);
                    self.targets.push(target);
                }
            }
        }
        for group in &told.groups {
            self.note_primary(group.group, group.view, group.primary);
        }
    }

    /// Another node leads a group. Gives the one that led it before, if that is news.
    pub(super) fn on_primary_changed(&mut self, changed: &PrimaryChanged) -> Option<ReplicaId> {
        let before = self.primary(changed.group);
        let is_news = self.note_primary(changed.group, changed.view, changed.primary);
        before.filter(|before| is_news && *before != changed.primary)
    }

    /// Says whether that is news: an older view never replaces a newer one.
    pub(super) fn note_primary(
        &mut self,
        group: ConsensusGroup,
        view: View,
        primary: ReplicaId,
    ) -> bool {
        let known = self.primaries.get(&group).map(|(view, _)| *view);
        if known.is_some_and(|known| known >= view)
            || known.is_none() && self.primaries.len() >= GROUPS_MAX
        {
            return false;
        }
        self.primaries.insert(group, (view, primary));
        true
    }

    /// Nothing more is known of who leads: another cluster may be at the same addresses.
    pub(super) fn forget_primaries(&mut self) {
        self.primaries.clear();
    }

    /// A connection to an address was lost, or did not come about. Those of one node fail together, and count
    /// once.
    pub(super) fn on_failed(
        &mut self,
        (address, lasted): (&str, bool),
        now: u64,
        backoff: &Backoff,
        random: &mut Random,
    ) {
        let Some(target) = self.target_mut(address) else {
            return;
        };
        if !target.is_open(now) {
            return;
        }
        if lasted {
            target.failures = 0;
        }
        target.failures = target.failures.saturating_add(1);
        target.blocked_until = now.saturating_add(backoff.wait(target.failures, random));
    }

    /// Whether every address has failed, so that there is nothing to be tried for the moment.
    pub(super) fn all_failed(&self, now: u64) -> bool {
        self.targets.iter().all(|target| !target.is_open(now))
    }
}
