//! Sessions and the catalog.

use std::{vec, vec::Vec};

use wire::{Command, ErrorCode, Event, EvictionReason, Login, Password, Reply, Request};

use super::node::{Disk, Node, Received, name};
use crate::{Input, MeshMessage, ShardId, Sign};

#[test]
fn a_fresh_node_creates_root_and_is_ready() {
    let node = Node::fresh(3);
    assert_eq!(node.ready, 3);
    assert!(node.shards[0].catalog().unwrap().user("root").is_some());
}

#[test]
fn nothing_is_served_before_login() {
    let mut node = Node::fresh(2);
    let mut client = node.log_in(2, 5);
    client.connection = node.open(3);
    for request in [
        Request::GetStats,
        Request::GetMe,
        Request::GetStreams(wire::GetStreams {
            after: wire::StreamId(0),
            limit: 0,
        }),
        Request::CreateStream(wire::CreateStream { name: "a".into() }),
    ] {
        let failure = node.call(&mut client, request).unwrap_err();
        assert_eq!(failure.code, ErrorCode::Unauthenticated);
    }
    assert_eq!(node.call(&mut client, Request::Ping), Ok(Reply::Done));
}

#[test]
fn a_wrong_password_and_an_unknown_user_are_told_alike() {
    let mut node = Node::fresh(2);
    let mut client = node.log_in(2, 5);
    client.connection = node.open(3);
    let logins = [("root", "wrong"), ("nobody", "correct horse")];
    let failures: Vec<_> = logins
        .iter()
        .map(|(user, password)| {
            let login = Login {
                name: (*user).into(),
                password: Password((*password).into()),
            };
            node.call(&mut client, login).unwrap_err()
        })
        .collect();
    assert_eq!(failures[0].code, ErrorCode::InvalidCredentials);
    assert_eq!(failures[0], failures[1]);
}

#[test]
fn a_login_before_there_is_any_user_is_not_taken_for_a_wrong_password() {
    let mut node = Node::stalled(2, Disk::default());
    let mut client = node.client(2, 5);
    let login = Login {
        name: "root".into(),
        password: Password("correct horse".into()),
    };
    let failure = node.call(&mut client, login).unwrap_err();
    assert_eq!(failure.code, ErrorCode::NotReady);
    node.disk_stalls = false;
    node.settle();
    node.log_in(3, 6);
}

#[test]
fn another_connection_attaches_by_the_secret_alone() {
    let mut node = Node::fresh(3);
    let client = node.log_in(1, 5);
    let mut other = client.clone();
    other.connection = node.open(5);
    let wrong = wire::Attach {
        secret: wire::SessionSecret([1; 32]),
    };
    assert_eq!(
        node.call(&mut other, wrong).unwrap_err().code,
        ErrorCode::InvalidCredentials
    );
    node.call(
        &mut other,
        wire::Attach {
            secret: client.secret,
        },
    )
    .unwrap();
    let Ok(Reply::Me(me)) = node.call(&mut other, Request::GetMe) else {
        panic!()
    };
    assert_eq!(
        (me.session, me.user_name.as_str()),
        (client.session, "root")
    );
}

#[test]
fn a_repeated_command_is_executed_once() {
    let mut node = Node::fresh(2);
    let mut client = node.log_in(1, 5);
    let first = node
        .call(&mut client, wire::CreateStream { name: "a".into() })
        .unwrap();
    client.request -= 1;
    let again = node
        .call(&mut client, wire::CreateStream { name: "a".into() })
        .unwrap();
    assert_eq!(first, again);
    let failure = node
        .call(&mut client, wire::CreateStream { name: "a".into() })
        .unwrap_err();
    assert_eq!(failure.code, ErrorCode::StreamAlreadyExists);
    assert!(failure.text.contains("id 1"), "{failure}");
}

#[test]
fn one_metadata_request_of_a_session_is_in_flight() {
    let mut node = Node::fresh(2);
    let mut client = node.log_in(1, 5);
    node.disk_stalls = true;
    let first = node.submit(&mut client, wire::CreateStream { name: "a".into() });
    node.settle();
    let failure = node
        .call(&mut client, wire::CreateStream { name: "b".into() })
        .unwrap_err();
    assert_eq!(failure.code, ErrorCode::RequestInFlight);
    node.disk_stalls = false;
    node.settle();
    assert!(
        node.answer(&mut client, Command::CreateStream, first)
            .unwrap()
            .is_ok()
    );
}

#[test]
fn a_topic_is_told_with_its_offsets() {
    let (mut node, mut client) = super::messages::with_topic(3);
    let get = wire::GetTopic {
        stream: name("orders"),
        topic: name("payments"),
    };
    let Ok(Reply::Topic(topic)) = node.call(&mut client, get) else {
        panic!()
    };
    assert_eq!(topic.partitions.len(), 6);
    assert!(
        topic
            .partitions
            .iter()
            .all(|partition| partition.end == Some(wire::Offset(0)))
    );
}

#[test]
fn the_answer_to_a_creation_names_an_op_that_knows_the_topic() {
    let mut node = Node::fresh(3);
    let mut client = node.log_in(1, 5);
    let stream = wire::CreateStream {
        name: "orders".into(),
    };
    node.call(&mut client, stream).unwrap();
    let seen = client.seen;
    let create = wire::CreateTopic {
        stream: name("orders"),
        name: "payments".into(),
        partitions: 6,
    };
    let Ok(Reply::Topic(topic)) = node.call(&mut client, create) else {
        panic!()
    };
    // Its partitions begin with the op that created them.
    assert_eq!(client.seen, topic.partitions[0].incarnation.0);
    assert!(client.seen > seen);
}

#[test]
fn a_deleted_topic_is_gone_and_its_name_is_free() {
    let (mut node, mut client) = super::messages::with_topic(2);
    let delete = wire::DeleteTopic {
        stream: name("orders"),
        topic: name("payments"),
    };
    node.call(&mut client, delete).unwrap();
    let poll = super::messages::poll(&[0], wire::PollStrategy::First);
    assert_eq!(
        node.call(&mut client, poll).unwrap_err().code,
        ErrorCode::TopicNotFound
    );
    let groups: usize = (1..=super::node::DATA_GROUPS)
        .filter_map(|group| {
            node.shards
                .iter()
                .find_map(|shard| shard.data_group(wire::ConsensusGroup(group)))
        })
        .map(|group| group.partitions().count())
        .sum();
    assert_eq!(groups, 0, "the data groups have dropped its partitions");
    let topic = wire::CreateTopic {
        stream: name("orders"),
        name: "payments".into(),
        partitions: 2,
    };
    let Ok(Reply::Topic(topic)) = node.call(&mut client, topic) else {
        panic!()
    };
    assert_eq!(topic.id, wire::TopicId(2));
}

#[test]
fn a_silent_session_expires_and_a_pinging_one_does_not() {
    let mut node = Node::fresh(2);
    let silent = node.log_in(1, 5);
    let mut pinging = node.log_in(2, 6);
    for _ in 0..6 {
        node.pass(2_000);
        node.call(&mut pinging, Request::Ping).unwrap();
    }
    let events = node.take(silent.connection);
    assert!(
        matches!(
            events[..],
            [Received::Event(Event::Evicted(EvictionReason::Expired))]
        ),
        "{events:?}"
    );
    assert!(node.call(&mut pinging, Request::GetMe).is_ok());
}

#[test]
fn a_node_that_stood_still_ends_no_session_for_that() {
    let mut node = Node::fresh(2);
    let mut client = node.log_in(1, 5);
    let gone = node.log_in(2, 6);
    node.pass(5_000);
    // The sessions have half of their time left when the process, and with it their signs, stops.
    node.now.monotonic += 60_000_000_000;
    node.pass(1_000);
    node.call(&mut client, Request::Ping).unwrap();
    node.pass(3_500);
    assert!(node.take(gone.connection).is_empty(), "half of its time");
    node.pass(1_000);
    let events = node.take(gone.connection);
    assert!(
        matches!(
            events[..],
            [Received::Event(Event::Evicted(EvictionReason::Expired))]
        ),
        "{events:?}"
    );
    assert!(node.call(&mut client, Request::GetMe).is_ok());
}

#[test]
fn a_sign_that_has_come_counts_before_anybody_is_looked_at() {
    let mut node = Node::fresh(3);
    let mut client = node.log_in(1, 5);
    node.pass(9_950);
    node.now.monotonic += 90_000_000;
    // Another shard reports first, and a tick came before both.
    let other = vec![Sign::Seen(wire::SessionNumber(999))];
    let signs = vec![Sign::Seen(client.session)];
    node.feed(ShardId(0), Input::Tick);
    for (from, signs) in [(1, other), (2, signs)] {
        let message = MeshMessage::Liveness(signs);
        let from = ShardId(from);
        node.feed(ShardId(0), Input::Mesh { from, message });
    }
    node.settle();
    assert!(node.call(&mut client, Request::GetMe).is_ok());
}

#[test]
fn a_lost_connection_ends_its_session_after_the_grace_unless_it_attaches_again() {
    let mut node = Node::fresh(3);
    let lost = node.log_in(1, 5);
    let mut back = node.log_in(2, 6);
    node.close(lost.connection);
    node.close(back.connection);
    node.pass(500);
    node.attach(&mut back, 7).unwrap();
    node.pass(1_000);
    let mut late = lost.clone();
    let failure = node.attach(&mut late, 8).unwrap_err();
    assert_eq!(failure.code, ErrorCode::SessionNotFound);
    assert!(node.call(&mut back, Request::GetMe).is_ok());
}

#[test]
fn a_step_of_the_wall_clock_expires_nobody() {
    let mut node = Node::fresh(2);
    let mut client = node.log_in(1, 5);
    node.now.wall.0 += 10 * 365 * 24 * 3_600 * 1_000_000;
    node.pass(500);
    node.now.wall.0 = 1;
    node.pass(500);
    assert!(node.call(&mut client, Request::GetMe).is_ok());
    assert!(
        node.call(&mut client, wire::CreateStream { name: "a".into() })
            .is_ok()
    );
}

#[test]
fn logging_out_is_answered_and_ends_the_session_everywhere() {
    let mut node = Node::fresh(2);
    let mut client = node.log_in(1, 5);
    let mut other = client.clone();
    node.attach(&mut other, 4).unwrap();
    assert_eq!(node.call(&mut client, Request::Logout), Ok(Reply::Done));
    assert!(node.take(client.connection).is_empty());
    let events = node.take(other.connection);
    assert!(
        matches!(
            events[..],
            [Received::Event(Event::Evicted(EvictionReason::LoggedOut))]
        ),
        "{events:?}"
    );
    let failure = node.call(&mut other, Request::GetMe).unwrap_err();
    assert_eq!(failure.code, ErrorCode::Unauthenticated);
}

#[test]
fn a_changed_password_ends_the_sessions_and_counts_from_then_on() {
    let mut node = Node::fresh(2);
    let mut root = node.log_in(1, 5);
    let user = wire::CreateUser {
        name: "ann".into(),
        password: Password("first password".into()),
    };
    node.call(&mut root, user).unwrap();
    let short = wire::CreateUser {
        name: "bob".into(),
        password: Password("short".into()),
    };
    assert_eq!(
        node.call(&mut root, short).unwrap_err().code,
        ErrorCode::InvalidPassword
    );
    root.request -= 1;
    let change = wire::ChangePassword {
        user: name("ann"),
        current: Password("correct horse".into()),
        new: Password("second password".into()),
    };
    node.call(&mut root, change).unwrap();
    let mut ann = root.clone();
    ann.connection = node.open(6);
    ann.id = wire::ClientId(99);
    for (password, valid) in [("first password", false), ("second password", true)] {
        let login = Login {
            name: "ann".into(),
            password: Password(password.into()),
        };
        assert_eq!(node.call(&mut ann, login).is_ok(), valid, "{password}");
    }
}

#[test]
fn who_changes_its_password_gets_the_reply_before_the_end_of_its_session() {
    for connection in [1, 2] {
        let mut node = Node::fresh(2);
        let mut root = node.log_in(connection, 5);
        let change = wire::ChangePassword {
            user: name("root"),
            current: Password("correct horse".into()),
            new: Password("battery staple".into()),
        };
        let correlation = node.submit(&mut root, change);
        node.settle();
        let received = node.take(root.connection);
        assert!(
            matches!(&received[..], [Received::Reply(header, _), Received::Event(Event::Evicted(EvictionReason::UserChanged))]
                if header.correlation == correlation.0 && header.status == 0),
            "{received:?}"
        );
    }
}
