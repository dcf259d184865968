//! The other nodes of the cluster, as the process sees them.

use std::{
    io, process,
    sync::{Arc, Mutex, PoisonError},
};

use network::{
    InboxSender, KnownDisks, LinkNews, LinkSecret, LinkThreads, Listener, Membership, NewLink,
    PeerNode, Register, Urgency,
};
use shard::PeerMessage;
use storage::{Disks, Format};
use wire::{ConsensusGroup, ReplicaId};

use crate::{Exit, config::Config, format, random, shard_loop::Outside};

/// Bytes of a frame that may overtake others.
const URGENT_SIZE: usize = 1024;

/// The same of one with an op of the metadata.
const URGENT_METADATA_SIZE: usize = 64 * 1024;

/// Makes links to all other nodes, and lets them make theirs; what comes of it goes to the shards.
///
/// # Errors
/// When a thread cannot be started.
pub(crate) fn start(
    config: &Config,
    (record, disks): (&Format, Disks),
    listener: Listener,
    inboxes: &[InboxSender<Outside>],
) -> io::Result<LinkThreads> {
    let secret = config.cluster.secret.as_ref();
    let secret = secret.expect("a cluster without a secret is refused");
    let shard_count = u16::try_from(inboxes.len()).expect("shards are counted by a u16");
    let disks = Arc::new(disks);
    let own = Membership {
        cluster: record.cluster,
        replica: record.replica,
        replica_count: record.replica_count,
        data_groups: record.data_groups,
        fingerprint: format::fingerprint(record),
        settings: config.cluster.agreed(),
        shard_count,
        secret: LinkSecret::new(secret.0.as_bytes()),
        incarnation: u64::from_le_bytes(random::bytes()),
        register: register(Arc::clone(&disks), inboxes),
    };
    let threshold = Threshold::new(disks, record.replica_count);
    let all = (0..record.replica_count).map(ReplicaId).zip(&record.nodes);
    let others = all.filter(|(replica, _)| *replica != record.replica);
    let others = others.map(|(replica, node)| PeerNode {
        replica,
        address: node.peer.clone(),
    });
    let inboxes = inboxes.to_vec();
    LinkThreads::start(own, listener, others.collect(), move |news| {
        let to_all = |what: fn(ReplicaId) -> Outside, peer| {
            inboxes.iter().for_each(|inbox| inbox.send(what(peer)));
        };
        match news {
            LinkNews::Up { peer } => to_all(Outside::PeerUp, peer),
            LinkNews::Down { peer } => to_all(Outside::PeerDown, peer),
            LinkNews::Outgoing(link) => {
                for link in threshold.pass(link) {
                    let shard = usize::from(link.shard(shard_count));
                    to_all(Outside::PeerUp, link.peer());
                    inboxes[shard].send(Outside::Outgoing(link));
                }
            }
            LinkNews::Incoming(link) => {
                let shard = usize::from(link.shard(shard_count));
                inboxes[shard].send(Outside::Incoming(link));
            }
        }
    })
}

/// Judges other nodes by their disks. Nothing that a process with a replaced disk says is heard any more when
/// the one with the new disk gets its answer.
fn register(disks: Arc<Disks>, inboxes: &[InboxSender<Outside>]) -> Register {
    let inboxes = inboxes.to_vec();
    let known = Arc::clone(&disks);
    Register::new(
        move || known.known(),
        move |replica: ReplicaId, told: &KnownDisks| {
            let met = disks.meet(replica, told).map_err(io::Error::other)?;
            Ok(met.map(|replaced| {
                for node in replaced {
                    tracing::warn!(
                        node = node.0,
                        "has another disk from now on: `cohort-server recover` was run on it; the old one is refused"
                    );
                    let to_all = inboxes.iter();
                    to_all.for_each(|inbox| inbox.send(Outside::PeerReplaced(node)));
                }
            }))
        },
    )
}

/// Keeps a node that was recovered from speaking before so many others know it by its new disk that none that
/// still has the old one can be part of any majority: that one has promised what the new one knows nothing of
/// (V13).
struct Threshold {
    disks: Arc<Disks>,
    /// Others that have to know it.
    needed: usize,
    /// Links that wait for that.
    held: Mutex<Vec<NewLink>>,
}

impl Threshold {
    fn new(disks: Arc<Disks>, replica_count: u8) -> Self {
        let needed = match disks.own().recovered {
            0 => 0,
            _ => others_needed(replica_count),
        };
        Self {
            disks,
            needed,
            held: Mutex::default(),
        }
    }

    /// Takes a link to a node, which knows this one by its disk now. Gives the links that may be used.
    fn pass(&self, link: NewLink) -> Vec<NewLink> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.disks.admitted(link.peer()).unwrap_or_else(|error| {
            // It would be forgotten what others rely on (V18).
            tracing::error!("{error}; the process ends");
            process::exit(Exit::Failed.code())
        });
        let node = link.peer().0;
        held.push(link);
        if known < self.needed {
            tracing::info!(
                node,
                known,
                needed = self.needed,
                "recovered: this node takes part when so many others know its new disk"
            );
            return Vec::new();
        }
        std::mem::take(&mut *held)
    }
}

/// Nodes that have to refuse an old disk before the new one takes part: a majority with the old one would
/// have all its other nodes among the rest, of which there are too few then.
fn others_needed(replica_count: u8) -> usize {
    let others = usize::from(replica_count.saturating_sub(1));
    let others_of_a_majority = usize::from(replica_count / 2);
    others - others_of_a_majority + 1
}

/// Whether a message of so many bytes may go before others: replicas take what they say to each other in any
/// order, but what is small and carries no op must not wait behind ops. Nor must the ops of the metadata, which are
/// few and which sessions wait for, behind batches: megabytes of them are no news there. Should one overtake another,
/// the other is asked for.
pub(crate) const fn urgency(message: &PeerMessage, size: usize) -> Urgency {
    match message {
        PeerMessage::Replica {
            group,
            message: vsr::Message::Prepare(_) | vsr::Message::RequestedPrepare(_),
        } => match group.0 == ConsensusGroup::METADATA.0 && size <= URGENT_METADATA_SIZE {
            true => Urgency::High,
            false => Urgency::Normal,
        },
        PeerMessage::Replica { .. } if size <= URGENT_SIZE => Urgency::High,
        PeerMessage::Commits(_) | PeerMessage::CommitOks(_) => Urgency::High,
        // Asked for again if it does not come.
        PeerMessage::Replica { .. } | PeerMessage::Transfer { .. } => Urgency::Normal,
        // Said once, in its order: work and its answers, and what a node tells of its sessions.
        PeerMessage::Work { .. }
        | PeerMessage::Answer { .. }
        | PeerMessage::Hurry { .. }
        | PeerMessage::Moved(_)
        | PeerMessage::Liveness(_)
        | PeerMessage::Connections(_) => Urgency::Kept,
    }
}

#[cfg(test)]
mod tests {
    use vsr::{ChainPoint, Message, Prepare, PrepareMessage, PrepareOk};
    use wire::{Op, PrepareHeader, View};

    use super::*;

    fn of_replica(message: Message) -> PeerMessage {
        PeerMessage::Replica {
            group: ConsensusGroup(1),
            message,
        }
    }

    #[test]
    fn old_disk_finds_no_majority_when_the_new_one_takes_part() {
        for (nodes, needed) in [(3_u8, 2), (5, 3)] {
            assert_eq!(others_needed(nodes), needed);
            let strangers = usize::from(nodes) - 1 - needed;
            assert!(strangers + 1 < usize::from(nodes / 2) + 1, "{nodes} nodes");
        }
    }

    #[test]
    fn small_words_of_replicas_and_metadata_overtake_and_ops_and_work_keep_their_order() {
        let prepare_ok = of_replica(Message::PrepareOk(PrepareOk {
            replica: ReplicaId(1),
            view: View(0),
            op: Op(1),
            checksum: 7,
            checkpoint: Op(0),
        }));
        let prepare = of_replica(Message::Prepare(PrepareMessage {
            replica: ReplicaId(0),
            view: View(0),
            commit: ChainPoint::default(),
            prepare: Prepare {
                header: PrepareHeader::default(),
                body: bytes::Bytes::new(),
            },
        }));
        assert_eq!(urgency(&prepare_ok, 100), Urgency::High);
        assert_eq!(urgency(&prepare_ok, URGENT_SIZE + 1), Urgency::Normal);
        assert_eq!(urgency(&prepare, 100), Urgency::Normal);
        let PeerMessage::Replica { message, .. } = prepare else {
            unreachable!("it was made so")
        };
        let metadata = PeerMessage::Replica {
            group: ConsensusGroup::METADATA,
            message,
        };
        assert_eq!(urgency(&metadata, 100), Urgency::High);
        let too_large = URGENT_METADATA_SIZE + 1;
        assert_eq!(urgency(&metadata, too_large), Urgency::Normal);
        // What a node tells of its sessions makes sense in its order only, and is told once.
        assert_eq!(
            urgency(&PeerMessage::Liveness(Vec::new()), 20),
            Urgency::Kept
        );
    }
}
