//! R08: what was acknowledged is there after the primary died, on every node; what was not may be there or not, on
//! all of them alike, and sent again under its number it is there once.

use std::time::Duration;

use integration::{Connection, DEFAULT_OPTIONS, Group, NODES, repetitions, until};
use wire::{
    ConsensusGroup, CreateConsumerGroup, CreatePartitions, ErrorCode, GetTopic, JoinConsumerGroup,
    Offset, Reply, Request,
};

use crate::{
    MESSAGE, PARTITIONS, again, append, in_step, primary,
    stage::{Stage, others, pass_a_moment, store, stored_in},
};

/// How long after the acknowledgement the primary dies at the latest.
const MOMENT: Duration = Duration::from_millis(5);

/// What is done.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Create,
    Join,
    Leave,
    Store,
    Delete,
    AddPartition,
    Send,
}

const ALL: [Deed; 7] = [
    Deed::Create,
    Deed::Join,
    Deed::Leave,
    Deed::Store,
    Deed::Delete,
    Deed::AddPartition,
    Deed::Send,
];

/// What must be there from then on, whoever is asked.
#[derive(Debug)]
enum Fact {
    Exists(Group),
    Deleted(Group),
    Member(Group, u64),
    Left(Group, u64),
    Stored(Group, Offset),
    Partitions(usize),
    Message(Offset, bytes::Bytes),
}

impl Fact {
    /// Asks for it until there is an answer.
    fn check(&self, stage: &Stage, connection: &mut Connection) {
        match self {
            Self::Exists(group) => {
                let told = again("it is there", || group.describe(connection));
                assert_eq!(told.summary.id, group.id);
            }
            Self::Deleted(group) => {
                let refused = until("it is told that it is gone", || {
                    let refused = group.describe(connection).expect_err("it is gone");
                    (!refused.code.retryable()).then_some(refused)
                });
                assert_eq!(refused.code, ErrorCode::ConsumerGroupNotFound, "{refused}");
            }
            Self::Member(group, member) | Self::Left(group, member) => {
                let told = again("it is described", || group.describe(connection));
                let is_member = told.members.iter().any(|one| one.id.0 == *member);
                assert_eq!(is_member, matches!(self, Self::Member(..)), "{told:?}");
            }
            Self::Stored(group, offset) => {
                let stored = again("it is told", || stored_in(connection, group, 0));
                assert_eq!(stored, Some(*offset));
            }
            Self::Partitions(count) => {
                let get = GetTopic {
                    stream: stage.topic.stream.into(),
                    topic: stage.topic.id.into(),
                };
                match again("the topic is told", || connection.ask(get.clone())) {
                    Reply::Topic(topic) => assert_eq!(topic.partitions.len(), *count),
                    other => panic!("{other:?}"),
                }
            }
            Self::Message(offset, message) => {
                let page = again("it is read", || {
                    connection.read_from(&stage.topic, 0, *offset)
                });
                assert_eq!(page.messages.first(), Some(&(*offset, message.clone())));
            }
        }
    }
}

/// Does something through a node, and gives what must be so once it is acknowledged.
fn carry_out(stage: &Stage, deed: Deed, node: usize, round: u32, partitions: &mut usize) -> Fact {
    let mut connection = stage.cluster.login(node);
    let name = format!("group-{round}");
    let create = |connection: &mut Connection| {
        let made = Group::create(connection, &stage.topic, &name, DEFAULT_OPTIONS);
        made.expect("make a group")
    };
    match deed {
        Deed::Create => Fact::Exists(create(&mut connection)),
        Deed::Delete => {
            let group = create(&mut connection);
            group.delete(&mut connection, false).expect("it is empty");
            Fact::Deleted(group)
        }
        Deed::Join | Deed::Leave | Deed::Store => {
            let group = create(&mut connection);
            let mut member = stage.join_group(node, &group);
            let id = member.id().0;
            match deed {
                Deed::Store => {
                    let at = Offset(u64::from(round) % 10);
                    member.wait_for(*partitions);
                    store(&mut member, 0, at.0);
                    Fact::Stored(group, at)
                }
                Deed::Leave => {
                    member.leave().expect("it is a member");
                    Fact::Left(group, id)
                }
                _ => Fact::Member(group, id),
            }
        }
        Deed::AddPartition => {
            let add = CreatePartitions {
                stream: stage.topic.stream.into(),
                topic: stage.topic.id.into(),
                count: 1,
            };
            connection.ask(add).expect("there may be more");
            *partitions += 1;
            Fact::Partitions(*partitions)
        }
        Deed::Send => {
            let message =
                bytes::Bytes::from(vec![u8::try_from(round % 251).expect("small"); MESSAGE]);
            let message = [message.as_ref(), name.as_bytes()].concat().into();
            let offset = append(&mut connection, &stage.topic, 0, &message);
            Fact::Message(offset, message)
        }
    }
}

#[test]
fn r08_1_what_was_acknowledged_survives_the_death_of_the_primary_on_every_node() {
    let mut stage = Stage::new(10);
    let mut partitions = PARTITIONS as usize;
    for (round, deed) in (0..repetitions(7, 200)).zip(ALL.into_iter().cycle()) {
        let group = match deed {
            Deed::Send | Deed::Store => stage.topic.partitions[0].group,
            _ => ConsensusGroup::METADATA,
        };
        let victim = primary(&stage.cluster, round as usize % NODES, group);
        let asked = (victim + round as usize) % NODES;
        eprintln!("---- {round}: {deed:?} through node {asked}, node {victim} leads");
        let fact = carry_out(&stage, deed, asked, round, &mut partitions);
        pass_a_moment(round + 1, MOMENT);
        stage.kill(victim);
        for survivor in others(victim) {
            let mut connection = stage.cluster.login(survivor);
            fact.check(&stage, &mut connection);
        }
        in_step(&stage.cluster, &others(victim));
        stage.restore(victim);
        fact.check(&stage, &mut stage.cluster.login(victim));
    }
}

#[test]
fn r08_2_what_was_not_acknowledged_is_there_once_when_it_is_sent_again_under_its_number() {
    let mut stage = Stage::new(1);
    for round in 0..repetitions(4, 60) {
        let victim = stage.leader(round as usize % NODES);
        let name = format!("group-{round}");
        let mut connection = stage.cluster.login(victim);
        let request: Request = match round % 2 {
            0 => CreateConsumerGroup {
                stream: stage.topic.stream.into(),
                topic: stage.topic.id.into(),
                name: name.clone(),
                options: DEFAULT_OPTIONS,
            }
            .into(),
            _ => JoinConsumerGroup {
                stream: stage.topic.stream.into(),
                topic: stage.topic.id.into(),
                group: stage.group.name.clone(),
                instance: None,
                weight: 1,
            }
            .into(),
        };
        let before = stage.described(&mut connection).members.len();
        let frame = connection.frame(&request);
        connection.write(&frame).expect("it lives");
        pass_a_moment(round + 1, MOMENT);
        stage.kill(victim);
        let mut again_at = until("the session is attached to", || {
            let attached = connection.try_attach(stage.cluster.address(others(victim)[0]));
            attached.ok()
        });
        let reply = until("it is answered", || {
            again_at.write(&frame).expect("it lives");
            let frame = again_at.receive().expect("it is answered");
            match frame.reply(request.command()) {
                Ok(reply) => Some(reply),
                Err(failure) => {
                    let is_early = failure.code.retryable();
                    assert!(
                        is_early || failure.code == ErrorCode::RequestInFlight,
                        "{failure}"
                    );
                    None
                }
            }
        });
        let mut elsewhere = stage.cluster.login(others(victim)[1]);
        match reply {
            Reply::ConsumerGroup(made) => {
                let mut group = stage.group.clone();
                group.name = wire::Identifier::Name(name);
                let told = again("it is there", || group.describe(&mut elsewhere));
                assert_eq!(told.summary.id, made.id);
            }
            Reply::Assignment(joined) => {
                let told = stage.described(&mut elsewhere);
                assert_eq!(told.members.len(), before + 1, "{told:?}");
                assert!(told.members.iter().any(|one| one.id == joined.member));
            }
            other => panic!("{other:?}"),
        }
        stage.restore(victim);
    }
}

#[test]
fn r08_3_what_was_acknowledged_survives_the_death_of_two_nodes() {
    let mut stage = Stage::new(10);
    let mut partitions = PARTITIONS as usize;
    for (round, deed) in (0..repetitions(4, 50)).zip(ALL.into_iter().rev().cycle()) {
        let spared = round as usize % NODES;
        eprintln!("---- {round}: {deed:?}, node {spared} lives");
        let fact = carry_out(&stage, deed, spared, round, &mut partitions);
        pass_a_moment(round + 1, MOMENT);
        let [one, other] = others(spared);
        stage.kill(one);
        stage.kill(other);
        stage.cluster.start_in_order(&[other, one]);
        in_step(&stage.cluster, &[0, 1, 2]);
        for node in 0..NODES {
            fact.check(&stage, &mut stage.cluster.login(node));
        }
    }
}
