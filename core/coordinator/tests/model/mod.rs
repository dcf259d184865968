//! The model: its states, the steps between them, and the search through all of them.

mod data;
pub(crate) mod machine;
pub(crate) mod metadata;
pub(crate) mod mutation;
pub(crate) mod search;
mod state;
pub(crate) mod step;
