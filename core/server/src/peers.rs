//! The other nodes of the cluster, as the process sees them.

use std::io;

use network::{
    Admission, InboxSender, LinkNews, LinkSecret, LinkThreads, Listener, Membership, PeerNode,
    Urgency,
};
use shard::PeerMessage;
use storage::{Disks, Format};
use wire::ReplicaId;

use crate::{config::Config, format, shard_loop::Outside};

/// Bytes of a frame that may overtake others.
const URGENT_SIZE: usize = 1024;

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
    let own = Membership {
        cluster: record.cluster,
        replica: record.replica,
        replica_count: record.replica_count,
        data_groups: record.data_groups,
        fingerprint: format::fingerprint(record),
        shard_count,
        secret: LinkSecret::new(secret.0.as_bytes()),
        disk: disks.own(),
        admission: Admission::new(move |replica, disk| {
            disks.admit(replica, disk).map_err(io::Error::other)
        }),
    };
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
                let shard = usize::from(link.shard(shard_count));
                inboxes[shard].send(Outside::Outgoing(link));
            }
            LinkNews::Incoming(link) => {
                let shard = usize::from(link.shard(shard_count));
                inboxes[shard].send(Outside::Incoming(link));
            }
        }
    })
}

/// Whether a message of so many bytes may go before others: replicas take what they say to each other in any
/// order, but what is small and carries no op must not wait behind ops.
pub(crate) const fn urgency(message: &PeerMessage, size: usize) -> Urgency {
    match message {
        PeerMessage::Replica {
            message: vsr::Message::Prepare(_) | vsr::Message::RequestedPrepare(_),
            ..
        } => Urgency::Normal,
        PeerMessage::Replica { .. } if size <= URGENT_SIZE => Urgency::High,
        PeerMessage::Commits(_) | PeerMessage::CommitOks(_) => Urgency::High,
        _ => Urgency::Normal,
    }
}

#[cfg(test)]
mod tests {
    use vsr::{ChainPoint, Message, Prepare, PrepareMessage, PrepareOk};
    use wire::{ConsensusGroup, Op, PrepareHeader, View};

    use super::*;

    fn of_replica(message: Message) -> PeerMessage {
        PeerMessage::Replica {
            group: ConsensusGroup(1),
            message,
        }
    }

    #[test]
    fn small_words_of_replicas_overtake_and_ops_and_work_keep_their_order() {
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
        // What a node tells of its sessions makes sense in its order only.
        assert_eq!(
            urgency(&PeerMessage::Liveness(Vec::new()), 20),
            Urgency::Normal
        );
    }
}
