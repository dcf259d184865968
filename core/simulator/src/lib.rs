//! A whole node and its clients on a virtual disk, network and clock, in one thread, from one seed.
//!
//! The pure crates run as they do in the server; only what stands below them is simulated. [`run`] runs one
//! seed, [`Campaign`] many. `README.md` beside this crate tells what is checked.

mod campaign;
mod case;
mod checks;
mod clients;
mod clock;
mod counts;
mod disk;
mod event;
mod network;
mod node;
mod peers;
mod random;
mod report;
mod rot;
mod run;
mod scenario;
mod shrink;
#[cfg(test)]
mod tests;
mod trace;
mod world;

pub use campaign::{Campaign, Outcome, run_named, tell_seed_of_panics};
pub use case::{Case, Without};
pub use counts::Counts;
pub use report::{Report, run, run_traced};
pub use shrink::shrink;
