//! What a shard holds and serves: for checks from outside.

use wire::ConsensusGroup;

use crate::Shard;

/// How much a shard holds at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Connections.
    pub connections: usize,
    /// Requests that came in here and are not answered.
    pub requests: usize,
    /// What waits for a metadata op that is not applied here yet, or for a consumer group to change.
    pub parked: usize,
    /// Polls that are read, wait for messages, or store what they serve.
    pub polls: usize,
    /// Work for the groups of this shard that was not begun.
    pub work: usize,
}

impl Shard {
    /// How much this shard holds at this moment.
    #[must_use]
    pub fn held(&self) -> Held {
        Held {
            connections: self.connections.len(),
            requests: self.pending.len(),
            parked: self.parked.len() + self.group_waits.len() + self.resets.len(),
            polls: self.polls.len(),
            work: self.work.len(),
        }
    }

    /// Whether a consensus group of this shard takes requests.
    #[must_use]
    pub fn serves(&self, group: ConsensusGroup) -> bool {
        self.member(group).is_some_and(|member| member.serves())
    }
}
