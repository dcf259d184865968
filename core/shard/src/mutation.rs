//! Rules that a test build takes out, each where it is kept, to see that the simulator notices. All of these
//! are false otherwise. The table is in the simulator's README.

/// A deposed primary answers without asking whether it still leads.
pub(crate) const CONFIRMATION: bool = cfg!(feature = "mutation-confirmation");
/// What was served in earlier views counts as nothing, and a hand-over as drained.
pub(crate) const DRAIN: bool = cfg!(feature = "mutation-drain");
/// A move is told complete when its source has finished, without a fence.
pub(crate) const GRANT: bool = cfg!(feature = "mutation-grant");
/// Polls and stores are judged by what is known here, however old that is.
pub(crate) const PARK: bool = cfg!(feature = "mutation-park");
