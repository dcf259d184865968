//! Rules that a test build takes out, each where it is kept, to see that the tests notice. All of these are
//! false otherwise. `tests/cluster/README.md` has the table.

/// A superblock counts as durable while it is on its way.
pub(crate) const V1: bool = cfg!(feature = "mutation-v1");
/// log_view advances when the view before is left, not when the new journal is installed.
pub(crate) const V2: bool = cfg!(feature = "mutation-v2");
/// As in VRR §5.2: the own journal is cut to what is committed before the new one, or the checkpoint that
/// takes its place, is here.
pub(crate) const V3: bool = cfg!(feature = "mutation-v3");
/// The longest journal is chosen, whatever its log_view.
pub(crate) const V4: bool = cfg!(feature = "mutation-v4");
/// A repeated vote counts as that of somebody else.
pub(crate) const V5: bool = cfg!(feature = "mutation-v5");
/// A single wish moves everybody.
pub(crate) const V6: bool = cfg!(feature = "mutation-v6");
/// A backup acknowledges what is not durable.
pub(crate) const V7: bool = cfg!(feature = "mutation-v7");
/// A new primary serves before what it inherited is applied.
pub(crate) const V8: bool = cfg!(feature = "mutation-v8");
/// What is said to be committed is taken by its number, whatever its checksum.
pub(crate) const V9: bool = cfg!(feature = "mutation-v9");
/// A primary that restarts goes on in its view.
pub(crate) const V10: bool = cfg!(feature = "mutation-v10");
/// What cannot be read is as good as never prepared.
pub(crate) const V10_UNREADABLE: bool = cfg!(feature = "mutation-v10-unreadable");
/// A replica that has lost its checkpoint goes on with an older one as if nothing had come after it.
pub(crate) const V10_CHECKPOINT: bool = cfg!(feature = "mutation-v10-checkpoint");
/// Any journal of the view ends the uncertainty of a head, also one that was sent before.
pub(crate) const V11: bool = cfg!(feature = "mutation-v11");
/// A prepare that cannot be read is nacked.
pub(crate) const V12: bool = cfg!(feature = "mutation-v12");
/// A replica that lost its disk is as good as a new one.
pub(crate) const V13: bool = cfg!(feature = "mutation-v13");
/// What a replica has voted before it lost its disk counts.
pub(crate) const V13_VOTES: bool = cfg!(feature = "mutation-v13-votes");
/// Duplicates are recognised neither at admission nor at apply.
pub(crate) const V14: bool = cfg!(feature = "mutation-v14");
/// The journal is recycled up to the own checkpoint, whatever others have.
pub(crate) const V15: bool = cfg!(feature = "mutation-v15");
/// A primary that nobody answers goes on.
pub(crate) const V17: bool = cfg!(feature = "mutation-v17");
