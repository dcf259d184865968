//! How far a partition is processed without a gap.

use alloc::collections::BTreeMap;

use wire::Offset;

/// Which messages were delivered, and which of them are processed.
///
/// What may be stored is the highest offset below which everything delivered is processed, never simply
/// the highest that is processed: a restart repeats, it does not skip.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frontier {
    /// Delivered and not processed: first offset to the offset behind the last, of each run.
    /// Invariant: runs are not empty, and do not touch.
    open: BTreeMap<u64, u64>,
    /// The first offset delivered.
    first: Option<Offset>,
    /// The last offset delivered.
    last: Option<Offset>,
    /// How far it was processed before deliveries went on elsewhere.
    before: Option<Offset>,
}

impl Frontier {
    /// A message was delivered; offsets rise.
    pub(crate) fn deliver(&mut self, offset: Offset) {
        assert!(self.last.is_none_or(|last| last < offset));
        self.first.get_or_insert(offset);
        self.last = Some(offset);
        match self.open.last_entry() {
            Some(mut run) if *run.get() == offset.0 => {
                run.insert(offset.0 + 1);
            }
            Some(_) | None => {
                self.open.insert(offset.0, offset.0 + 1);
            }
        }
    }

    /// Deliveries go on elsewhere: what is not processed by now does not hold anything up any more.
    pub(crate) fn leap(&mut self) {
        *self = Self {
            before: self.processed(),
            ..Self::default()
        };
    }

    /// A message is processed; says whether it was delivered and not processed before.
    pub(crate) fn acknowledge(&mut self, offset: Offset) -> bool {
        let Some((first, end)) = self
            .open
            .range(..=offset.0)
            .next_back()
            .map(|(f, e)| (*f, *e))
        else {
            return false;
        };
        if offset.0 >= end {
            return false;
        }
        self.open.remove(&first);
        if first < offset.0 {
            self.open.insert(first, offset.0);
        }
        if offset.0 + 1 < end {
            self.open.insert(offset.0 + 1, end);
        }
        true
    }

    /// Everything up to `offset` is processed.
    pub(crate) fn acknowledge_through(&mut self, offset: Offset) {
        while let Some(run) = self.open.first_entry() {
            let (first, end) = (*run.key(), *run.get());
            if first > offset.0 {
                break;
            }
            run.remove();
            if offset.0 + 1 < end {
                self.open.insert(offset.0 + 1, end);
            }
        }
    }

    /// Whether everything delivered is processed.
    pub(crate) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// The highest offset up to which everything delivered is processed; `None` when nothing is.
    pub(crate) fn processed(&self) -> Option<Offset> {
        let here = self
            .first
            .and_then(|first| match self.open.first_key_value() {
                None => self.last,
                Some((open, _)) if *open > first.0 => Some(Offset(open - 1)),
                Some(_) => None,
            });
        here.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeSet, vec::Vec};

    use proptest::prelude::{any, prop, proptest};
    use wire::Offset;

    use super::Frontier;

    fn delivered(offsets: impl IntoIterator<Item = u64>) -> Frontier {
        let mut frontier = Frontier::default();
        for offset in offsets {
            frontier.deliver(Offset(offset));
        }
        frontier
    }

    #[test]
    fn nothing_is_processed_before_the_first_message_is() {
        assert_eq!(Frontier::default().processed(), None);
        let mut frontier = delivered(0..3);
        assert_eq!(frontier.processed(), None);
        assert!(frontier.acknowledge(Offset(2)));
        assert_eq!(frontier.processed(), None);
        assert!(frontier.acknowledge(Offset(0)));
        assert_eq!(frontier.processed(), Some(Offset(0)));
        assert!(frontier.acknowledge(Offset(1)));
        assert_eq!(frontier.processed(), Some(Offset(2)));
    }

    #[test]
    fn repeated_and_foreign_acknowledgements_change_nothing() {
        let mut frontier = delivered([5, 6, 9]);
        assert!(frontier.acknowledge(Offset(5)));
        for offset in [5, 4, 7, 8, 10] {
            assert!(!frontier.acknowledge(Offset(offset)));
        }
        assert_eq!(frontier.processed(), Some(Offset(5)));
    }

    #[test]
    fn a_gap_that_was_never_delivered_does_not_stop_it() {
        let mut frontier = delivered([5, 6, 9]);
        assert!(frontier.acknowledge(Offset(5)));
        assert!(frontier.acknowledge(Offset(6)));
        assert_eq!(frontier.processed(), Some(Offset(8)));
        assert!(frontier.acknowledge(Offset(9)));
        assert_eq!(frontier.processed(), Some(Offset(9)));
    }

    #[test]
    fn acknowledging_through_an_offset_covers_what_is_below() {
        let mut frontier = delivered(0..10);
        assert!(frontier.acknowledge(Offset(7)));
        frontier.acknowledge_through(Offset(4));
        assert_eq!(frontier.processed(), Some(Offset(4)));
        frontier.acknowledge_through(Offset(6));
        assert_eq!(frontier.processed(), Some(Offset(7)));
        frontier.acknowledge_through(Offset(100));
        assert_eq!(frontier.processed(), Some(Offset(9)));
    }

    #[test]
    fn a_leap_keeps_what_is_processed_and_waits_for_nothing_else() {
        let mut frontier = delivered(5..9);
        assert!(frontier.acknowledge(Offset(5)));
        frontier.leap();
        assert!(frontier.is_settled());
        assert_eq!(frontier.processed(), Some(Offset(5)));
        assert!(!frontier.acknowledge(Offset(6)));
        // Back, where nothing is news before it gets beyond.
        for offset in [2, 3, 4, 5, 6] {
            frontier.deliver(Offset(offset));
            assert!(frontier.acknowledge(Offset(offset)));
            assert_eq!(frontier.processed(), Some(Offset(offset.max(5))));
        }
        // And ahead.
        frontier.leap();
        frontier.deliver(Offset(100));
        assert_eq!(frontier.processed(), Some(Offset(6)));
        assert!(frontier.acknowledge(Offset(100)));
        assert_eq!(frontier.processed(), Some(Offset(100)));
    }

    proptest! {
        #[test]
        fn equals_a_set_of_offsets(
            gaps in prop::collection::vec(1_u64..4, 1..40),
            acknowledged in prop::collection::vec((0_u64..80, any::<bool>()), 0..60),
        ) {
            let mut next = 0;
            let offsets = gaps.iter().map(|gap| { next += gap; next }).collect::<Vec<_>>();
            let mut frontier = delivered(offsets.iter().copied());
            let mut open = offsets.iter().copied().collect::<BTreeSet<_>>();
            for (offset, through) in acknowledged {
                if through {
                    frontier.acknowledge_through(Offset(offset));
                    open.retain(|other| *other > offset);
                } else {
                    assert_eq!(frontier.acknowledge(Offset(offset)), open.remove(&offset));
                }
                let expected = match open.first() {
                    None => offsets.last().copied(),
                    Some(first) if *first > offsets[0] => Some(first - 1),
                    Some(_) => None,
                };
                assert_eq!(frontier.processed(), expected.map(Offset));
            }
        }
    }
}
