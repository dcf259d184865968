//! A walk through *Viewstamped Replication Revisited*, statement by statement: §4.1 (normal operation), §4.2
//! (view changes), and what takes the place of §4.3 (recovery) and §5.2 (state transfer). Where Cohort does
//! more than the paper, or something else, the test says what and why.

mod network;
mod normal_operation;
mod recovery;
mod state_transfer;
mod view_change;
