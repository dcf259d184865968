//! Events and a prepare.

use std::{format, vec::Vec};

use bytes::Bytes;

use super::{CLIENT, Content, MOMENT, SESSION, Vector};
use crate::{
    AssignmentChanged, ClientId, ConsensusGroup, ConsumerGroupId, Event, EvictionReason,
    Generation, MemberId, MembershipEndReason, MembershipEnded, PrepareHeader, PrimaryChanged,
    ReplicaId, ServerStopping, SessionNumber, StreamId, TopicId, View,
};

pub(super) fn add(vectors: &mut Vec<Vector>) {
    let assignment = AssignmentChanged {
        stream: StreamId(1),
        topic: TopicId(2),
        group: ConsumerGroupId(3),
        generation: Generation(17),
    };
    let ended = MembershipEnded {
        stream: StreamId(1),
        topic: TopicId(2),
        group: ConsumerGroupId(3),
        member: MemberId(7),
        by: Some(ClientId(0x5f5e_5d5c_5b5a_5958_5756_5554_5352_5150)),
        address: Some("192.0.2.8:40112".into()),
    };
    let primary = PrimaryChanged {
        group: ConsensusGroup(5),
        view: View(4),
        primary: ReplicaId(1),
    };
    let stopping = ServerStopping {
        time_left_ms: 3_000,
    };
    for (name, event) in [
        ("assignment-changed", Event::AssignmentChanged(assignment)),
        ("evicted", Event::Evicted(EvictionReason::Replaced)),
        ("server-stopping", Event::ServerStopping(stopping)),
        ("primary-changed", Event::PrimaryChanged(primary)),
        (
            "membership-ended",
            Event::MembershipEnded(MembershipEndReason::FencedInstanceId, ended),
        ),
    ] {
        vectors.push(Vector {
            file: format!("{}-{name}-event.txt", event.code().code()),
            title: format!("{}, event", event.code().name()),
            content: Content::Event(event.header(SessionNumber(SESSION)), event),
        });
    }
    add_prepare(vectors);
}

fn add_prepare(vectors: &mut Vec<Vector>) {
    let body = Bytes::from_static(b"the op, as its state machine encodes it");
    let header = PrepareHeader {
        parent: 0x3f3e_3d3c_3b3a_3938_3736_3534_3332_3130,
        cluster: 0x1f1e_1d1c_1b1a_1918_1716_1514_1312_1110,
        client: CLIENT.0,
        session: SESSION,
        request: 3,
        op: 58,
        timestamp: MOMENT,
        view: 4,
        group: 0,
        operation: 9,
        version: 1,
        ..PrepareHeader::default()
    }
    .sealed(&body);
    vectors.push(Vector {
        file: "prepare.txt".into(),
        title: "Prepare: header and body, as on a replica link and in the journal".into(),
        content: Content::Prepare(header, body),
    });
}
