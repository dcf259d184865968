//! One node: what it survives and what it refuses.

mod frames;
mod r29;
mod sessions;
mod start;
mod stopping;
