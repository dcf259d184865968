//! `cohort-simulator`: one run, or many.

fn main() {}
