//! How long a change of membership takes in large groups.
fn main() {}
