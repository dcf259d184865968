//! Shards of one node, driven through their one entry.

mod catalog;
mod connections;
mod messages;
mod node;
mod restart;
