//! The rules that can be taken out, and the states that a search has to have seen.

/// A rule that is taken out. For each of them the search has to find a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A move is told to be complete when its source has finished, fenced or not.
    GrantUnfenced,
    /// A completion completes whatever move is planned when it arrives.
    CompletionUnnamed,
    /// Stores are judged when they are admitted and not when they are applied.
    StoreUnjudged,
    /// A late store moves the stored offset back.
    StoreLowers,
    /// Polls are judged by the metadata and not by the fence.
    PollUnjudged,
    /// A poll above the fence is served without raising it.
    ReadUnfenced,
    /// A primary answers polls without asking whether it still is one.
    PollUnconfirmed,
    /// A poll that waited for its confirmation is not judged again when its answer is built.
    AnswerUnjudged,
    /// A shard that knows of a move goes on to serve its source.
    PollWhileRevoking,
    /// After a view change nothing counts as polled.
    DrainAssumed,
    /// Polls are known when the view began below the owner's epoch, not below its ownership.
    DrainByEpoch,
    /// A cancelled move makes the primary forget what was polled before.
    CancelForgetsPolls,
    /// A move may be fenced while something is polled that is not stored, and counts as drained.
    DrainUnstored,
    /// A release counts for whatever move is planned when it arrives.
    ReleaseUnnamed,
    /// A release raises the fence although its store was refused.
    ReleaseUnaccepted,
    /// A client goes on with answers that come after it has sent its release.
    ReleaseNotDropped,
    /// An epoch that this copy of the metadata has not seen yet is taken as it is.
    EpochUnparked,
    /// The target of a move is served under the move's epoch before the move is complete.
    TargetUnparked,
    /// Any older epoch of the owner's session counts as the owner's.
    LiftAcross,
}

impl Mutation {
    /// With what each of them is found to violate first.
    pub(crate) const ALL: [(Self, &'static str); 19] = [
        (Self::GrantUnfenced, violation::GRANT_UNFENCED),
        (Self::CompletionUnnamed, violation::GRANT_UNFENCED),
        (Self::StoreUnjudged, violation::STORED_BEHIND_FENCE),
        (Self::StoreLowers, violation::FALLS),
        (Self::PollUnjudged, violation::SERVED_BEHIND_FENCE),
        (Self::ReadUnfenced, violation::REPEATED),
        (Self::PollUnconfirmed, violation::SERVED_AFTER_GRANT),
        (Self::AnswerUnjudged, violation::SOURCE_SERVED),
        (Self::PollWhileRevoking, violation::SOURCE_SERVED),
        (Self::DrainAssumed, violation::REPEATED),
        (Self::DrainByEpoch, violation::REPEATED),
        (Self::CancelForgetsPolls, violation::REPEATED),
        (Self::DrainUnstored, violation::REPEATED),
        (Self::ReleaseUnnamed, violation::REPEATED),
        (Self::ReleaseUnaccepted, violation::REPEATED),
        (Self::ReleaseNotDropped, violation::REPEATED),
        (Self::EpochUnparked, violation::STUCK),
        (Self::TargetUnparked, violation::SERVED_UNGRANTED),
        (Self::LiftAcross, violation::LIFTED),
    ];

    /// What comes of some of them when the first violations are let pass: a fence matters for what the
    /// members get to see.
    pub(crate) const FELT: [(Self, &'static [&'static str], &'static str); 8] = [
        (
            Self::GrantUnfenced,
            &[violation::GRANT_UNFENCED],
            violation::SERVED_AFTER_GRANT,
        ),
        (
            Self::StoreUnjudged,
            &[violation::STORED_BEHIND_FENCE, violation::FALLS],
            violation::BEGINS_ELSEWHERE,
        ),
        (Self::StoreLowers, &[violation::FALLS], violation::REPEATED),
        (
            Self::PollUnjudged,
            &[violation::SERVED_BEHIND_FENCE],
            violation::SERVED_AFTER_GRANT,
        ),
        (
            Self::AnswerUnjudged,
            &[violation::SOURCE_SERVED, violation::SERVED_BEHIND_FENCE],
            violation::REPEATED,
        ),
        (
            Self::PollWhileRevoking,
            &[violation::SOURCE_SERVED],
            violation::REPEATED,
        ),
        (
            Self::EpochUnparked,
            &[violation::STUCK],
            violation::RAISED_UNPLANNED,
        ),
        (
            Self::EpochUnparked,
            &[violation::STUCK, violation::RAISED_UNPLANNED],
            violation::SERVED_UNGRANTED,
        ),
    ];

    /// Whether only a move that is planned again after it was cancelled shows that the rule is missing.
    pub(crate) const fn needs_cancellation(self) -> bool {
        matches!(
            self,
            Self::DrainByEpoch | Self::CancelForgetsPolls | Self::ReleaseUnnamed
        )
    }
}

/// What can be wrong with a step, or a state.
pub(crate) mod violation {
    pub(crate) const FALLS: &str = "G2, G5: the fence or the stored offset falls";
    pub(crate) const RAISED_UNPLANNED: &str =
        "G2: a fence is raised to an epoch that its holder was not given";
    pub(crate) const SERVED_UNGRANTED: &str =
        "G2: a poll is served under an epoch that its session was not granted";
    pub(crate) const LIFTED: &str = "G2: an epoch is lifted out of its ownership";
    pub(crate) const STUCK: &str = "G3: a move cannot end, or an owner is fenced";
    pub(crate) const GRANT_UNFENCED: &str = "G4: a grant comes before its fence";
    pub(crate) const SERVED_AFTER_GRANT: &str =
        "G4: a poll that came after another's grant is served under an older epoch";
    pub(crate) const SERVED_BEHIND_FENCE: &str = "G4: a poll is served behind a fence";
    pub(crate) const SOURCE_SERVED: &str = "G4: a shard that has applied a move serves its source";
    pub(crate) const STORED_BEHIND_FENCE: &str = "G5: a store is applied behind a fence";
    pub(crate) const BEGINS_ELSEWHERE: &str =
        "G5: an owner begins elsewhere than where it was fenced";
    pub(crate) const REPEATED: &str =
        "G6: after a release or drain the target is served what the source has processed";
}

/// Something that must have happened somewhere, or the bounds are too tight to tell anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// The deposed primary answers a poll that it had confirmed before.
    DeposedAnswers,
    /// A poll comes to the deposed primary, which would serve it, and waits in vain.
    DeposedAsked,
    /// A fence is told by a primary whose view began after it was committed: who raised it had stopped.
    FenceOfAnotherView,
    /// A view change loses a fence that was proposed.
    FenceLost,
    /// A view change commits a fence that was proposed.
    FenceInherited,
    /// A poll is served by a primary that does not know of the partition's move.
    CopyBehind,
    /// An epoch is newer than the primary's copy of the metadata.
    EpochParked,
    /// The target of a move comes before it owns the partition.
    TargetParked,
    /// A poll or store is served under a newer epoch of its ownership.
    Lifted,
    /// A store is refused at its apply that was admitted.
    StoreRefused,
    /// A poll is refused when its answer is built that was admitted.
    AnswerRefused,
    /// A fence is already above the move that this copy of the metadata shows.
    PlanIsOld,
    /// What was polled is not known, so nothing tells that it is stored.
    PollsUnknown,
    Drained,
    TimedOut,
    OwnerGone,
    Fenced,
    /// A grant ends a clean hand-over.
    GrantedClean,
    /// A release hands over.
    Released,
    /// A release names another move than the one that is planned, and is a store only.
    ReleaseOfOldMove,
    /// A release is refused at its apply.
    ReleaseRefused,
    /// A revocation is cancelled after its fence was raised.
    CancelledAfterFence,
    /// A completion arrives that completes nothing.
    CompletionLate,
}

impl Floor {
    pub(crate) const ALL: [Self; 23] = [
        Self::DeposedAnswers,
        Self::DeposedAsked,
        Self::FenceOfAnotherView,
        Self::FenceLost,
        Self::FenceInherited,
        Self::CopyBehind,
        Self::EpochParked,
        Self::TargetParked,
        Self::Lifted,
        Self::StoreRefused,
        Self::AnswerRefused,
        Self::PlanIsOld,
        Self::PollsUnknown,
        Self::Drained,
        Self::TimedOut,
        Self::OwnerGone,
        Self::Fenced,
        Self::GrantedClean,
        Self::Released,
        Self::ReleaseOfOldMove,
        Self::ReleaseRefused,
        Self::CancelledAfterFence,
        Self::CompletionLate,
    ];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
