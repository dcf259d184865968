//! Damaged vectors.
