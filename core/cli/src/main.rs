//! The command line of Cohort.

fn main() {}
