//! A rule that a test build takes out, to see that the simulator notices. It is false otherwise.

/// What is stored or released under an epoch behind the fence is taken.
pub(crate) const FENCE: bool = cfg!(feature = "mutation-fence");
