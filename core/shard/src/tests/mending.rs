//! What has rotted on one node's disk comes from the others.

use std::vec::Vec;

use partition::SegmentId;
use wire::{ErrorCode, Offset, PollStrategy, Reply};

use super::{
    cluster::{Cluster, with_topic},
    messages::{batch, payloads, poll, polled, send, sent},
    node::Client,
};
use crate::Note;

/// Messages that fill some segments of a partition.
const MESSAGES: usize = 90;

/// A cluster whose partition 0 has some full segments; who leads it, and the first of them.
struct Scene {
    cluster: Cluster,
    client: Client,
    leader: u8,
    damaged: SegmentId,
}

impl Scene {
    fn new() -> Self {
        let (mut cluster, mut admin) = with_topic();
        for _ in 0..MESSAGES {
            let text = "x".repeat(2_000);
            let request = send(&[(0, batch(&payloads(&text, 1), 0, 0))]);
            let results = sent(cluster.call(1, &mut admin, request));
            assert_eq!(results[0].status, Ok(()));
        }
        cluster.pass(100);
        let segments = cluster.node(0).disk.segments.keys();
        let damaged = *segments.min().expect("there are some");
        let leader = cluster.leader(damaged.group).expect("somebody leads");
        let client = cluster.log_in(leader, 9, 9);
        Self {
            cluster,
            client,
            leader,
            damaged,
        }
    }

    fn file(&mut self, node: u8) -> &mut Vec<u8> {
        let disk = &mut self.cluster.node(node).disk;
        disk.segments.entry(self.damaged).or_default()
    }

    fn others(&self) -> Vec<u8> {
        (0..3).filter(|node| *node != self.leader).collect()
    }

    /// Reads the first messages, through the node that leads.
    fn read(&mut self) -> Result<Offset, ErrorCode> {
        let request = poll(&[0], PollStrategy::First);
        let result = polled(self.cluster.call(self.leader, &mut self.client, request)).remove(0);
        match result.status {
            Ok(()) => Ok(result.next),
            Err(failure) => Err(failure.code),
        }
    }

    /// Lets time pass until the leader has put its file in order.
    fn pass_until_mended(&mut self) {
        let (leader, damaged) = (self.leader, self.damaged);
        self.cluster.pass_until("it is whole again", |cluster| {
            let notes = &cluster.node(leader).notes;
            let is_it =
                |note: &Note| matches!(note, Note::Mended { segment } if *segment == damaged);
            notes.iter().any(is_it)
        });
    }

    fn counter(&mut self, name: &str) -> u64 {
        let stats = wire::Request::GetStats;
        let Ok(Reply::Stats(stats)) = self.cluster.call(self.leader, &mut self.client, stats)
        else {
            panic!("no counters");
        };
        let mut counters = stats.counters.iter();
        counters
            .find(|it| it.name == name)
            .expect("it is there")
            .value
    }
}

#[test]
fn damaged_segment_of_a_leader_is_whole_again_and_read_meanwhile_nothing_wrong() {
    type Damage = fn(&mut Vec<u8>);
    let kinds: [Damage; 4] = [
        |bytes| bytes[1_000] ^= 1,
        |bytes| bytes.truncate(bytes.len() / 2),
        Vec::clear,
        |bytes| {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            bytes[0] ^= 1;
        },
    ];
    for damage in kinds {
        let mut scene = Scene::new();
        let before = scene.file(scene.leader).clone();
        let leader = scene.leader;
        damage(scene.file(leader));
        assert_eq!(scene.read(), Err(ErrorCode::Retry));
        // Only reading needs the file.
        let request = send(&[(0, batch(&payloads("new", 1), 0, 0))]);
        let results = sent(scene.cluster.call(leader, &mut scene.client, request));
        assert_eq!(results[0].base_offset, Some(Offset(MESSAGES as u64)));
        scene.pass_until_mended();
        assert!(*scene.file(leader) == before);
        assert!(scene.read().expect("it is served") > Offset(0));
        assert_eq!(scene.counter("segments_mended"), 1);
        assert_eq!(scene.counter("partitions_damaged"), 1);
    }
}

/// A backup reads its files back from time to time: nobody needs to ask for them.
#[test]
fn damage_at_a_node_that_follows_is_found_and_mended_too() {
    let mut scene = Scene::new();
    let follower = scene.others()[0];
    scene.leader = follower;
    let before = scene.file(follower).clone();
    scene.file(follower)[1_000] ^= 1;
    scene.cluster.node(follower).now.monotonic += 3_600_000_000_000;
    scene.pass_until_mended();
    assert!(*scene.file(follower) == before);
}

/// What is open at a start is judged before it is served.
#[test]
fn open_segment_that_a_start_finds_damaged_is_mended() {
    let mut scene = Scene::new();
    let group = scene.damaged.group;
    for node in 0..3 {
        let shards = u16::try_from(scene.cluster.node(node).shards.len()).unwrap();
        let shard = crate::shard_of_group(group, 3, shards);
        let wanted = crate::Input::CheckpointWanted { group };
        scene.cluster.node(node).feed(shard, wanted);
    }
    scene.cluster.pass(200);
    let keys = scene.cluster.node(2).disk.segments.keys().copied();
    let own = keys.filter(|id| id.partition == scene.damaged.partition);
    scene.damaged = own.max().expect("there are some");
    scene.leader = 2;
    let before = scene.file(2).clone();
    scene
        .cluster
        .node(2)
        .disk
        .records
        .retain(|record| match record {
            journal::Record::Prepare { header, .. } => header.group() != group,
            journal::Record::Superblock(_) => true,
        });
    scene.cluster.kill(2);
    scene
        .cluster
        .disk(2)
        .segments
        .get_mut(&scene.damaged)
        .unwrap()[500] ^= 1;
    scene.cluster.start(2);
    scene.pass_until_mended();
    assert!(*scene.file(2) == before);
}

/// Nobody is believed: a copy that is damaged itself is left for the third one.
#[test]
fn copy_that_is_damaged_too_is_not_taken() {
    for spoilt in 0..2 {
        let mut scene = Scene::new();
        let leader = scene.leader;
        let before = scene.file(leader).clone();
        let other = scene.others()[spoilt];
        let middle = before.len() / 2;
        scene.file(other)[middle] ^= 1;
        scene.file(leader)[1_000] ^= 1;
        assert_eq!(scene.read(), Err(ErrorCode::Retry));
        scene.pass_until_mended();
        assert!(*scene.file(leader) == before);
        assert!(scene.read().is_ok());
    }
}

/// As long as nobody has it, it is asked for again.
#[test]
fn who_is_cut_off_goes_on_asking() {
    let mut scene = Scene::new();
    let follower = scene.others()[0];
    scene.leader = follower;
    let before = scene.file(follower).clone();
    scene.file(follower)[1_000] ^= 1;
    scene.cluster.node(follower).now.monotonic += 3_600_000_000_000;
    scene.cluster.isolate(follower);
    scene.cluster.pass(4_000);
    let notes = &scene.cluster.node(follower).notes;
    let is_damage = |note: &&Note| matches!(note, Note::Damaged { .. });
    assert_eq!(notes.iter().filter(is_damage).count(), 1);
    assert!(*scene.file(follower) != before);
    scene.cluster.reconnect();
    scene.pass_until_mended();
    assert!(*scene.file(follower) == before);
}

/// What is deleted is not fetched, nor made anew.
#[test]
fn partition_that_is_deleted_meanwhile_is_not_mended() {
    let mut scene = Scene::new();
    let leader = scene.leader;
    scene.file(leader)[1_000] ^= 1;
    assert_eq!(scene.read(), Err(ErrorCode::Retry));
    let topic = wire::DeleteTopic {
        stream: super::node::name("orders"),
        topic: super::node::name("payments"),
    };
    let others: Vec<u8> = scene.others();
    // Whatever the others are asked for they cannot answer yet.
    for node in &others {
        for bytes in scene.cluster.node(*node).disk.segments.values_mut() {
            bytes[0] ^= 1;
        }
    }
    scene
        .cluster
        .call(leader, &mut scene.client, topic)
        .unwrap();
    scene.cluster.pass(2_000);
    let notes = &scene.cluster.node(leader).notes;
    assert!(!notes.iter().any(|note| matches!(note, Note::Mended { .. })));
    let parts = scene.cluster.parts.len();
    scene.cluster.pass(2_000);
    assert_eq!(
        scene.cluster.parts.len(),
        parts,
        "nothing is asked for any more"
    );
}
