//! Connections, sessions, users, the node.

use std::{string::String, vec, vec::Vec};

use super::{CLIENT, Content, MOMENT, SESSION, Vector, add_exchange, add_request, request_header};
use crate::{
    Attach, ChangePassword, ClusterId, ClusterMetadata, Command, ConsensusGroup, Counter,
    CreateUser, DeleteUser, ErrorCode, Failure, FrameHeader, GetNodeStatus, GetUser, GetUsers,
    GroupPrimary, Identifier, LoggedIn, Login, Me, Node, NodeStatus, Op, Password, ReplicaDetails,
    ReplicaId, ReplicaState, Reply, Request, SessionNumber, SessionSecret, Stats, Timestamp,
    UpdateUser, UserDetails, UserId, Users, View,
};

pub(super) fn add(vectors: &mut Vec<Vector>) {
    add_sessions(vectors);
    add_node(vectors);
    add_users(vectors);
    add_user_changes(vectors);
}

fn add_sessions(vectors: &mut Vec<Vector>) {
    add_exchange(vectors, "nothing else", Request::Ping, Reply::Done);
    let login = Login {
        name: "root".into(),
        password: Password("a long secret".into()),
    };
    let logged_in = LoggedIn {
        session: SessionNumber(SESSION),
        secret: secret(),
        user: UserId::ROOT,
        session_timeout_ms: 10_000,
        frame_size_max: 8_454_144,
    };
    add_exchange(vectors, "user root", login, logged_in);
    let refused = Failure::new(
        ErrorCode::InvalidCredentials,
        "user \"root\" and this password do not match",
    );
    vectors.push(Vector {
        file: "error-reply.txt".into(),
        title: "Error reply: a login with a wrong password".into(),
        content: Content::Refused(
            FrameHeader::reply(&request_header(Command::Login), refused.code.code()),
            refused,
        ),
    });
    let attach = Attach { secret: secret() };
    add_exchange(vectors, "by the session's secret", attach, Reply::Done);
    let me = Me {
        client: CLIENT,
        session: SessionNumber(SESSION),
        user: UserId::ROOT,
        user_name: "root".into(),
        address: "127.0.0.1:53124".into(),
    };
    add_exchange(vectors, "user root", Request::GetMe, me);
    add_exchange(vectors, "nothing else", Request::Logout, Reply::Done);
}

/// Bytes 0x80 to 0x9f.
fn secret() -> SessionSecret {
    let mut secret = [0; 32];
    for (byte, value) in secret.iter_mut().zip(0x80_u8..) {
        *byte = value;
    }
    SessionSecret(secret)
}

fn add_node(vectors: &mut Vec<Vector>) {
    let counter = |name: &str, value| Counter {
        name: name.into(),
        value,
    };
    let stats = Stats {
        counters: vec![
            counter("connections", 3),
            counter("messages_appended", 120_000),
        ],
    };
    add_exchange(vectors, "two counters", Request::GetStats, stats);
    let primary = |group, view| GroupPrimary {
        group: ConsensusGroup(group),
        view: View(view),
        primary: ReplicaId(0),
    };
    let metadata = ClusterMetadata {
        cluster: ClusterId(0x1f1e_1d1c_1b1a_1918_1716_1514_1312_1110),
        node: ReplicaId(0),
        nodes: vec![Node {
            replica: ReplicaId(0),
            address: "127.0.0.1:5100".into(),
        }],
        groups: vec![primary(0, 0), primary(1, 2)],
    };
    let request = Request::GetClusterMetadata;
    add_exchange(vectors, "one node, one data group", request, metadata);
    add_status(vectors);
}

fn add_status(vectors: &mut Vec<Vector>) {
    let ask = GetNodeStatus {
        name: "root".into(),
        password: Password("a long secret".into()),
        digests: true,
    };
    let replica = |group, state, digest| ReplicaDetails {
        group: ConsensusGroup(group),
        view: View(4),
        primary: ReplicaId(1),
        state,
        serves: false,
        op: Op(812),
        durable: Op(811),
        commit: Op(810),
        applied: Op(809),
        checkpoint: Op(700),
        damaged: 0,
        waits_for: None,
        digest,
    };
    let status = NodeStatus {
        cluster: ClusterId(0x1f1e_1d1c_1b1a_1918_1716_1514_1312_1110),
        node: ReplicaId(0),
        nodes: vec![Node {
            replica: ReplicaId(0),
            address: "127.0.0.1:5100".into(),
        }],
        replicas: vec![
            replica(0, ReplicaState::Normal, Some(0x0102_0304)),
            ReplicaDetails {
                waits_for: Some("a majority for view 4".into()),
                ..replica(1, ReplicaState::ViewChange, None)
            },
        ],
    };
    add_exchange(vectors, "a node with two replicas", ask, status);
}

fn user(id: u64, name: &str, active: bool) -> UserDetails {
    UserDetails {
        id: UserId(id),
        name: name.into(),
        active,
        created: Timestamp(MOMENT),
    }
}

fn alice() -> Identifier {
    Identifier::name("alice").unwrap()
}

fn add_users(vectors: &mut Vec<Vector>) {
    let get = GetUser { user: alice() };
    add_exchange(vectors, "by name", get, user(2, "alice", true));
    let get = GetUser {
        user: Identifier::from(UserId(2)),
    };
    add_request(vectors, "by-id", "by id", get);
    let page = GetUsers {
        after: UserId(0),
        limit: 2,
    };
    let users = Users {
        users: vec![user(1, "root", true), user(2, "alice", false)],
        more: true,
    };
    add_exchange(vectors, "the first page, of two", page, users);
}

fn add_user_changes(vectors: &mut Vec<Vector>) {
    let create = CreateUser {
        name: "alice".into(),
        password: Password("correct horse".into()),
    };
    add_exchange(vectors, "user alice", create, user(2, "alice", true));
    let delete = DeleteUser { user: alice() };
    add_exchange(vectors, "user alice", delete, Reply::Done);
    let update = UpdateUser {
        user: alice(),
        name: None,
        active: Some(false),
    };
    add_exchange(vectors, "deactivation", update, Reply::Done);
    let rename = UpdateUser {
        user: alice(),
        name: Some(String::from("élise")),
        active: None,
    };
    add_request(vectors, "rename", "another name", rename);
    let change = ChangePassword {
        user: alice(),
        current: Password("correct horse".into()),
        new: Password("battery staple".into()),
    };
    add_exchange(vectors, "user alice", change, Reply::Done);
}
