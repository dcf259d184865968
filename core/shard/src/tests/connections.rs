//! Limits, back-pressure, bad input and shutdown.

use std::vec::Vec;

use wire::{
    Command, ErrorCode, Event, FrameHeader, PollMessages, PollStrategy, Reply, Request, ShardId,
};

use super::{
    messages::{batch, payloads, poll, send, sent, with_topic},
    node::{Node, Received},
};
use crate::{ConnectionId, Input};

#[test]
fn a_connection_with_too_much_in_flight_is_not_read_until_it_is_answered() {
    let (mut node, mut client) = with_topic(2);
    node.disk_stalls = true;
    let requests: Vec<_> = (0..8)
        .map(|_| node.submit(&mut client, send(&[(0, batch(&payloads("a", 1), 0, 0))])))
        .collect();
    node.settle();
    assert_eq!(node.paused.get(&client.connection), Some(&true));
    node.disk_stalls = false;
    node.settle();
    assert_eq!(node.paused.get(&client.connection), Some(&false));
    for correlation in requests {
        sent(
            node.answer(&mut client, Command::SendMessages, correlation)
                .unwrap(),
        );
    }
}

#[test]
fn all_paused_connections_go_on_when_the_shard_has_room_again() {
    let (mut node, client) = with_topic(1);
    let mut clients = std::vec![client.clone()];
    for connection in 2..10 {
        let mut other = client.clone();
        node.attach(&mut other, connection).unwrap();
        clients.push(other);
    }
    node.disk_stalls = true;
    let large = std::vec!["x".repeat(200_000)];
    for client in &mut clients {
        node.submit(client, send(&[(0, batch(&large, 0, 0))]));
    }
    node.settle();
    assert!(node.paused.values().any(|paused| *paused));
    node.disk_stalls = false;
    node.settle();
    assert!(
        node.paused.values().all(|paused| !*paused),
        "{:?}",
        node.paused
    );
}

#[test]
fn bytes_that_are_no_frame_get_one_reply_and_the_connection_is_closed() {
    let mut node = Node::fresh(2);
    let mut other = node.log_in(1, 5);
    let connection = node.open(2);
    let error = FrameHeader {
        size: 7,
        ..FrameHeader::default()
    }
    .check(1_000)
    .unwrap_err();
    node.feed(
        node.shard_of(connection),
        Input::BadFrame {
            connection,
            header: None,
            error,
        },
    );
    node.settle();
    let received = node.take(connection);
    assert!(
        matches!(&received[..], [Received::Reply(header, _), Received::Closed]
            if header.status == ErrorCode::MalformedFrame.code()),
        "{received:?}"
    );
    assert!(node.call(&mut other, Request::GetMe).is_ok());
}

#[test]
fn unknown_and_unsupported_commands_are_told_apart() {
    let mut node = Node::fresh(2);
    let client = node.log_in(1, 5);
    for (code, expected) in [
        (4_711, ErrorCode::CommandUnknown),
        (
            Command::UpdatePermissions.code(),
            ErrorCode::CommandNotSupported,
        ),
    ] {
        let header = FrameHeader::request(code, node.next_correlation(), client.id);
        node.send(client.connection, header, &[]);
        node.settle();
        let received = node.take(client.connection);
        assert!(
            matches!(&received[..], [Received::Reply(header, _)] if header.status == expected.code())
        );
    }
}

#[test]
fn a_body_that_cannot_be_read_is_refused_and_the_connection_lives() {
    let (mut node, mut client) = with_topic(2);
    for command in Command::ALL.iter().filter(|command| command.supported()) {
        let mut header = FrameHeader::request(command.code(), node.next_correlation(), client.id);
        header.session = client.session.0;
        node.send(client.connection, header, &[0xFF; 3]);
        node.settle();
        let received = node.take(client.connection);
        assert!(
            matches!(&received[..], [Received::Reply(header, _)] if header.status != 0),
            "{command:?}: {received:?}"
        );
    }
    assert!(node.call(&mut client, Request::GetMe).is_ok());
}

#[test]
fn one_connection_too_many_is_told_so() {
    let mut node = Node::fresh(1);
    for connection in 1..=16 {
        node.open(connection);
    }
    let connection = node.open(17);
    let received = node.take(connection);
    assert!(
        matches!(&received[..], [Received::Reply(header, _), Received::Closed]
            if header.status == ErrorCode::TooManyConnections.code())
    );
    node.close(ConnectionId(3));
    let connection = node.open(18);
    assert!(node.take(connection).is_empty());
}

#[test]
fn a_lost_connection_leaves_nothing_behind() {
    let (mut node, client) = with_topic(3);
    let mut other = client.clone();
    node.attach(&mut other, 5).unwrap();
    let wait = PollMessages {
        min_bytes: 1,
        max_wait_ms: 20_000,
        ..poll(&[0, 1, 2, 3, 4, 5], PollStrategy::Next)
    };
    node.submit(&mut other, wait);
    node.settle();
    node.close(other.connection);
    for shard in &node.shards {
        assert!(shard.pending.is_empty() && shard.polls.is_empty());
    }
}

#[test]
fn a_stopping_node_answers_what_is_in_flight_and_takes_nothing_new() {
    let (mut node, mut client) = with_topic(3);
    let wait = PollMessages {
        min_bytes: 1,
        max_wait_ms: 20_000,
        ..poll(&[0, 1, 2, 3, 4, 5], PollStrategy::Next)
    };
    let waiting = node.submit(&mut client, wait);
    node.disk_stalls = true;
    let sending = node.submit(&mut client, send(&[(0, batch(&payloads("a", 1), 0, 0))]));
    node.settle();
    for shard in 0..3 {
        node.feed(ShardId(shard), Input::Stop);
    }
    node.settle();
    assert!(matches!(
        node.received[&client.connection][0],
        Received::Event(Event::ServerStopping(_))
    ));
    assert!(
        node.answer(&mut client, Command::PollMessages, waiting)
            .unwrap()
            .is_ok()
    );
    let failure = node.call(&mut client, Request::GetMe).unwrap_err();
    assert_eq!(failure.code, ErrorCode::ServerStopping);
    assert!(node.stopped < 3);
    node.disk_stalls = false;
    node.settle();
    assert!(matches!(
        node.answer(&mut client, Command::SendMessages, sending),
        Some(Ok(Reply::Sent(_)))
    ));
    assert_eq!(node.stopped, 3);
}
