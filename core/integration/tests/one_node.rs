//! One node: what it survives and what it refuses.

mod frames;
