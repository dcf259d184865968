//! The client table by itself, and its bytes.

use std::vec::Vec;

use bytes::Bytes;
use wire::{ClientId, Op, ReplicaId, RequestNumber, SessionNumber};

use super::ClientSessions;
use crate::{Barrier, Barriers, Checkpoint};

fn example() -> ClientSessions {
    let mut sessions = ClientSessions::default();
    for (client, op) in [(0x0a0b, 3), (5, 4)] {
        sessions.register(ClientId(client), Op(op), 8);
    }
    let reply = Bytes::from_static(b"ok");
    sessions.executed(ClientId(0x0a0b), RequestNumber(7), Op(9), reply);
    sessions
}

/// These bytes are in snapshots: older ones stay readable.
#[test]
fn encoding_in_snapshots_is_what_it_was() {
    let mut barriers = Barriers::default();
    let (op, checksum, nonce) = (Op(8), 6, 4);
    let barrier = Barrier {
        op,
        checksum,
        nonce,
    };
    barriers.set(ReplicaId(2), barrier);
    let checkpoint = Checkpoint {
        op: Op(9),
        checksum: 1,
        timestamp: wire::Timestamp(2),
        view: wire::View(3),
        client_sessions: example(),
        barriers,
    };
    let bytes = rmp_serde::to_vec(&checkpoint).unwrap();
    let id = |low: &[u8]| [&[0xc4, 16][..], &[0; 14], low].concat();
    let expected: Vec<u8> = [
        &[0x96, 9][..],
        &id(&[0, 1]),
        &[2, 3],
        // One field: a map of two clients, in order.
        &[0x91, 0x82],
        &id(&[0, 5]),
        &[0x94, 4, 0, 4, 0xc0],
        &id(&[0x0a, 0x0b]),
        &[0x94, 3, 7, 9, 0xc4, 2, b'o', b'k'],
        // One field: a map of one replica's barrier.
        &[0x91, 0x81, 2, 0x93, 8],
        &id(&[0, 6]),
        &id(&[0, 4]),
    ]
    .concat();
    assert_eq!(bytes, expected);
    assert_eq!(
        rmp_serde::from_slice::<Checkpoint>(&bytes).unwrap(),
        checkpoint
    );

    // Before there were barriers, nobody had any.
    let mut older = bytes[..bytes.len() - 41].to_vec();
    older[0] = 0x95;
    let expected = Checkpoint {
        barriers: Barriers::default(),
        ..checkpoint
    };
    assert_eq!(
        rmp_serde::from_slice::<Checkpoint>(&older).unwrap(),
        expected
    );
}

#[test]
fn damaged_encodings_are_errors() {
    let bytes = rmp_serde::to_vec(&example()).unwrap();
    for size in 0..bytes.len() {
        assert!(rmp_serde::from_slice::<ClientSessions>(&bytes[..size]).is_err());
    }
}

#[test]
fn sessions_are_listed_by_client() {
    let sessions = example();
    let listed: Vec<_> = sessions
        .iter()
        .map(|(client, entry)| (client.0, entry.session))
        .collect();
    assert_eq!(listed, [(5, SessionNumber(4)), (0x0a0b, SessionNumber(3))]);
}

#[test]
fn eviction_goes_by_the_last_activity() {
    let mut sessions = example();
    let evicted = sessions.register(ClientId(6), Op(10), 2);
    assert_eq!(evicted, Some((ClientId(5), SessionNumber(4))));
    let evicted = sessions.register(ClientId(7), Op(11), 2);
    assert_eq!(evicted, Some((ClientId(0x0a0b), SessionNumber(3))));
    assert_eq!(sessions.len(), 2);
}

/// A table that was restored under a higher bound shrinks as new clients come.
#[test]
fn table_above_its_bound_does_not_grow() {
    let mut sessions = example();
    sessions.register(ClientId(6), Op(10), 1);
    assert_eq!(sessions.len(), 2);
}
