//! Shards of one node, driven through their one entry.

mod catalog;
mod cluster;
mod connections;
mod disk;
mod group_lives;
mod groups;
mod heartbeats;
mod leading;
mod mending;
mod messages;
mod node;
mod releases;
mod restart;
mod standing;
mod transfer;
