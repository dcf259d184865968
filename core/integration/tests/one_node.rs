//! One node: what it survives and what it refuses.

mod extremes;
mod fixture;
mod frames;
mod hostile;
mod journal;
mod limits;
mod r12;
mod r29;
mod r30;
mod r31;
mod r51;
mod sessions;
mod start;
mod stopping;
