//! What a node says of its replicas, whether it can log anybody in or not.

use std::{collections::BTreeMap, net::SocketAddr};

use wire::{ConsensusGroup, Failure, GetNodeStatus, NodeStatus, Op, Password, Reply};

use crate::{Connection, ROOT_PASSWORD};

/// How far each consensus group has got on a node, and the digest of its state there.
pub type States = BTreeMap<ConsensusGroup, (Op, Option<u128>)>;

/// Asks a node for itself, as `root` and without a session.
///
/// # Errors
/// The refusal; none when the node cannot be reached.
///
/// # Panics
/// When it answers something else.
pub fn node_status(address: SocketAddr) -> Result<NodeStatus, Option<Failure>> {
    let mut connection = Connection::try_open(address).map_err(|_| None)?;
    let ask = GetNodeStatus {
        name: "root".into(),
        password: Password(ROOT_PASSWORD.into()),
        digests: true,
    };
    match connection.try_ask(ask) {
        Some(Ok(Reply::NodeStatus(status))) => Ok(status),
        Some(Ok(other)) => panic!("ask for the status: {other:?}"),
        Some(Err(failure)) => Err(Some(failure)),
        None => Err(None),
    }
}

/// The states that a node tells.
#[must_use]
pub fn states(status: &NodeStatus) -> States {
    let replicas = status.replicas.iter();
    replicas
        .map(|replica| (replica.group, (replica.applied, replica.digest)))
        .collect()
}
