//! Whole nodes and their clients on a virtual disk, network and clock, in one thread, from one seed.

pub mod disk;
pub mod random;
pub mod trace;
