//! Every step of the table, once.
