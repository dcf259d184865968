//! When a move may be fenced: what the shard with the data group's primary waits for.

use wire::{Epoch, Offset};

use crate::{Holding, Ownership};

/// What the primary of the data group knows of one partition for one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The fence.
    pub fence: Epoch,
    /// The fence as it was when this primary's view began. If it was below the epoch at which the owner's
    /// ownership began, every poll of that ownership has been served by this primary, and `last_polled`
    /// is the whole truth; else it is not known, which is not "never polled".
    pub fence_at_view: Epoch,
    /// The stored offset.
    pub stored: Option<Offset>,
    /// The highest offset that was served since the owner's ownership began, under whichever epoch.
    pub last_polled: Option<Offset>,
    /// Whether the owner has released the partition for this very move, and its store was accepted.
    pub released: bool,
    /// Whether the deadline of the revocation is over.
    pub timed_out: bool,
}

/// Why the fence of a move may be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// The source has finished, and said so.
    Released,
    /// A fence of an earlier plan is above the source: it was let go then.
    Fenced,
    /// All that the source was served is stored.
    Drained,
    /// Its time is over. What it was served and has not stored is delivered again.
    TimedOut,
    /// There is no source.
    OwnerGone,
}

/// Whether the fence of a partition's move may be raised now, and why. The move itself comes after the
/// fence: the new owner learns of it only then.
#[must_use]
pub fn hand_over<M: Copy + PartialEq>(
    ownership: &Ownership<M>,
    progress: &Progress,
) -> Option<HandOver> {
    let held_since = match ownership.holding {
        Holding::Nobody | Holding::Owned { .. } => return None,
        Holding::Fencing { .. } => return Some(HandOver::OwnerGone),
        Holding::Revoking { held_since, .. } => held_since,
    };
    let polls_known = progress.fence_at_view < held_since;
    if progress.released {
        Some(HandOver::Released)
    } else if progress.fence > ownership.epoch {
        Some(HandOver::Fenced)
    } else if polls_known && progress.stored >= progress.last_polled {
        // None is below every offset: nothing polled is drained, nothing stored is not.
        Some(HandOver::Drained)
    } else if progress.timed_out {
        Some(HandOver::TimedOut)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use wire::{Epoch, MemberId, Offset, Timestamp};

    use super::{HandOver, Progress, hand_over};
    use crate::{Holding, Ownership};

    /// Owned since epoch 5, cancelled once since, now moving to epoch 9.
    const REVOKING: Ownership = Ownership {
        epoch: Epoch(7),
        holding: Holding::Revoking {
            owner: MemberId(1),
            held_since: Epoch(5),
            to: MemberId(2),
            epoch: Epoch(9),
            since: Timestamp(100),
        },
    };

    const FRESH: Progress = Progress {
        fence: Epoch(5),
        fence_at_view: Epoch(4),
        stored: None,
        last_polled: None,
        released: false,
        timed_out: false,
    };

    #[test]
    fn nothing_polled_is_drained() {
        assert_eq!(hand_over(&REVOKING, &FRESH), Some(HandOver::Drained));
    }

    #[test]
    fn waits_until_all_that_was_polled_is_stored() {
        let mut progress = Progress {
            last_polled: Some(Offset(0)),
            ..FRESH
        };
        assert_eq!(hand_over(&REVOKING, &progress), None);
        progress.stored = Some(Offset(0));
        assert_eq!(hand_over(&REVOKING, &progress), Some(HandOver::Drained));
        progress.last_polled = Some(Offset(9));
        assert_eq!(hand_over(&REVOKING, &progress), None);
        progress.timed_out = true;
        assert_eq!(hand_over(&REVOKING, &progress), Some(HandOver::TimedOut));
    }

    #[test]
    fn polls_of_another_primary_are_unknown_and_not_none() {
        let unknown = Progress {
            fence_at_view: Epoch(5),
            ..FRESH
        };
        assert_eq!(hand_over(&REVOKING, &unknown), None);
        let released = Progress {
            released: true,
            ..unknown
        };
        assert_eq!(hand_over(&REVOKING, &released), Some(HandOver::Released));
    }

    #[test]
    fn source_that_an_earlier_plan_has_fenced_is_not_waited_for() {
        let fenced = Progress {
            fence: Epoch(8),
            fence_at_view: Epoch(8),
            last_polled: Some(Offset(3)),
            ..FRESH
        };
        assert_eq!(hand_over(&REVOKING, &fenced), Some(HandOver::Fenced));
    }

    #[test]
    fn without_owner_nobody_is_waited_for_and_without_move_nothing() {
        let mut ownership = REVOKING;
        ownership.release();
        let unknown = Progress {
            fence_at_view: Epoch(7),
            ..FRESH
        };
        assert_eq!(hand_over(&ownership, &unknown), Some(HandOver::OwnerGone));
        assert!(ownership.complete(Epoch(9)));
        let released = Progress {
            released: true,
            timed_out: true,
            ..FRESH
        };
        assert_eq!(hand_over(&ownership, &released), None);
    }
}
