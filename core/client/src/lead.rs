//! Which node leads a partition, as far as answers have told.

use wire::ReplicaId;

/// How long a partition is asked for alone, nanoseconds: any node passes such a poll on. Then it is tried
/// together with others again.
const ALONE: u64 = 1_000_000_000;

/// What is known of who leads a partition.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    node: Option<ReplicaId>,
    /// The node that leads could not be asked: until then the partition is alone in its requests.
    alone_until: u64,
}

impl Lead {
    pub(crate) const fn node(&self) -> Option<ReplicaId> {
        self.node
    }

    /// Whether it must be the only section of a request for now.
    pub(crate) const fn is_alone(&self, now: u64) -> bool {
        now < self.alone_until
    }

    /// A node has answered for the partition.
    pub(crate) const fn told(&mut self, node: ReplicaId) {
        self.node = Some(node);
    }

    /// A node has refused the partition and named another one. If that was the one to be asked anyway, it
    /// cannot be reached. Says whether something will be done differently.
    pub(crate) fn elsewhere(&mut self, now: u64, node: ReplicaId) -> bool {
        if self.node == Some(node) {
            let was_alone = self.is_alone(now);
            self.alone_until = now.saturating_add(ALONE);
            !was_alone
        } else {
            self.node = Some(node);
            self.alone_until = 0;
            true
        }
    }
}

/// The node that leads all of several partitions, if that is one.
pub(crate) fn common<'a>(leads: impl Iterator<Item = &'a Lead>) -> Option<ReplicaId> {
    let mut nodes = leads.map(Lead::node);
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use wire::ReplicaId;

    use super::{ALONE, Lead, common};

    #[test]
    fn a_node_that_is_named_twice_in_vain_is_asked_through_others_for_a_while() {
        let mut lead = Lead::default();
        assert!(lead.elsewhere(5, ReplicaId(1)));
        assert!(!lead.is_alone(5));
        assert!(lead.elsewhere(5, ReplicaId(1)));
        assert!(lead.is_alone(5) && !lead.is_alone(5 + ALONE));
        assert!(!lead.elsewhere(6, ReplicaId(1)));
        assert!(lead.elsewhere(7, ReplicaId(2)));
        assert!(!lead.is_alone(7));
    }

    #[test]
    fn several_partitions_are_led_by_one_node_or_by_none() {
        let leads = |nodes: &[Option<u8>]| {
            let leads = nodes.iter().map(|node| {
                let mut lead = Lead::default();
                if let Some(node) = node {
                    lead.told(ReplicaId(*node));
                }
                lead
            });
            leads.collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(common(leads(&[]).iter()), None);
        assert_eq!(
            common(leads(&[Some(1), Some(1)]).iter()),
            Some(ReplicaId(1))
        );
        assert_eq!(common(leads(&[Some(1), Some(2)]).iter()), None);
        assert_eq!(common(leads(&[Some(1), None]).iter()), None);
        assert_eq!(common(leads(&[None, Some(1)]).iter()), None);
    }
}
