//! One heartbeat for all groups of a shard: each replica says what it has to say, and what is said to one node
//! at the same time goes there as one message.

use alloc::{collections::BTreeMap, vec::Vec};

use wire::{ConsensusGroup, ReplicaId};

use crate::PeerMessage;

/// What replicas have said and nobody was told yet, by receiver. Of what one group has said twice the later counts:
/// it says all that the earlier did.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    commits: BTreeMap<ReplicaId, BTreeMap<ConsensusGroup, vsr::Commit>>,
    oks: BTreeMap<ReplicaId, BTreeMap<ConsensusGroup, vsr::CommitOk>>,
}

impl Heartbeats {
    pub(crate) const fn new() -> Self {
        Self {
            commits: BTreeMap::new(),
            oks: BTreeMap::new(),
        }
    }

    /// Keeps what is part of a heartbeat, or of the answer to one. Returns what is neither.
    pub(crate) fn gather(
        &mut self,
        to: ReplicaId,
        group: ConsensusGroup,
        message: vsr::Message,
    ) -> Option<vsr::Message> {
        match message {
            vsr::Message::Commit(commit) => {
                self.commits.entry(to).or_default().insert(group, commit);
                None
            }
            vsr::Message::CommitOk(ok) => {
                self.oks.entry(to).or_default().insert(group, ok);
                None
            }
            other @ (vsr::Message::Prepare(_)
            | vsr::Message::PrepareOk(_)
            | vsr::Message::RequestPrepare(_)
            | vsr::Message::RequestedPrepare(_)
            | vsr::Message::StartViewChange(_)
            | vsr::Message::DoViewChange(_)
            | vsr::Message::StartView(_)
            | vsr::Message::RequestStartView(_)
            | vsr::Message::ViewProbe(_)
            | vsr::Message::ViewProbeOk(_)
            | vsr::Message::Gone(_)
            | vsr::Message::Rejoin(_)) => Some(other),
        }
    }

    /// Whether a primary has anything to say.
    pub(crate) fn has_commits(&self) -> bool {
        !self.commits.is_empty()
    }

    /// What is to be sent, and to whom.
    pub(crate) fn take(&mut self) -> Vec<(ReplicaId, PeerMessage)> {
        let commits = core::mem::take(&mut self.commits).into_iter();
        let commits = commits.map(|(to, it)| (to, PeerMessage::Commits(it.into_iter().collect())));
        let oks = core::mem::take(&mut self.oks).into_iter();
        let oks = oks.map(|(to, it)| (to, PeerMessage::CommitOks(it.into_iter().collect())));
        commits.chain(oks).collect()
    }
}
