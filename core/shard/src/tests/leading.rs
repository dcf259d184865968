//! Who leads, where several can.

use std::vec::Vec;

use wire::ConsensusGroup;

use super::cluster::{Cluster, with_topic};
use crate::{DiskSpace, Input};

/// The groups that a node leads.
fn led_by(cluster: &Cluster, node: u8) -> Vec<ConsensusGroup> {
    let groups = cluster.shards().flat_map(|(_, shard)| shard.members());
    let mut groups: Vec<ConsensusGroup> = groups.map(|member| member.group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.retain(|group| cluster.leader(*group) == Some(node));
    groups
}

fn set_disk(cluster: &mut Cluster, node: u8, space: DiskSpace) {
    cluster.node(node).tell(|| Input::Disk(space));
}

/// What a node cannot append to, others lead.
#[test]
fn node_whose_disk_is_full_hands_over_what_it_leads() {
    let (mut cluster, _admin) = with_topic();
    let full = 1;
    assert!(!led_by(&cluster, full).is_empty());
    set_disk(&mut cluster, full, DiskSpace::Reserve);
    cluster.pass_until("others lead all", |cluster| {
        cluster.all_led() && led_by(cluster, full).is_empty()
    });
    cluster.pass(2_000);
    assert!(
        led_by(&cluster, full).is_empty(),
        "nobody gives it any back"
    );
    assert!(cluster.all_led());
}

/// With nobody to hand over to, whoever leads goes on.
#[test]
fn nodes_whose_disks_are_all_full_keep_what_they_lead() {
    let (mut cluster, _admin) = with_topic();
    // They learn of each other's disks by what these answer.
    for node in 0..3 {
        set_disk(&mut cluster, node, DiskSpace::Reserve);
    }
    let before: Vec<_> = (0..3).map(|node| led_by(&cluster, node)).collect();
    cluster.pass(3_000);
    let after: Vec<_> = (0..3).map(|node| led_by(&cluster, node)).collect();
    assert_eq!(before, after);
    // One has space again: it takes all.
    set_disk(&mut cluster, 2, DiskSpace::Enough);
    cluster.pass_until("it leads all", |cluster| {
        cluster.all_led() && (0..2).all(|node| led_by(cluster, node).is_empty())
    });
}

/// It takes over from a node that is gone, though others would be better, if they are not there.
#[test]
fn node_whose_disk_is_full_leads_if_nobody_else_can() {
    let (mut cluster, _admin) = with_topic();
    set_disk(&mut cluster, 1, DiskSpace::Reserve);
    set_disk(&mut cluster, 2, DiskSpace::Reserve);
    cluster.kill(0);
    cluster.pass_until("the two that are left lead all", |cluster| {
        led_among(cluster, &[1, 2])
    });
}

/// Whether these lead all groups between them.
fn led_among(cluster: &Cluster, nodes: &[u8]) -> bool {
    let groups = cluster.shards().flat_map(|(_, shard)| shard.members());
    let mut groups = groups.map(|member| member.group);
    groups.all(|group| cluster.leader_among(group, nodes).is_some())
}

/// It hears everybody but the primary of the metadata: new sessions and partitions it would learn of never.
#[test]
fn node_that_is_cut_off_from_the_metadata_alone_hands_over_what_it_leads() {
    let (mut cluster, _admin) = with_topic();
    let primary = cluster.leader(ConsensusGroup::METADATA);
    let primary = primary.expect("somebody leads the metadata");
    let lonely = (primary + 1) % 3;
    assert!(!led_by(&cluster, lonely).is_empty());
    cluster.cut.insert((primary, lonely));
    cluster.cut.insert((lonely, primary));
    cluster.pass_until("others lead what it led", |cluster| {
        cluster.all_led() && led_by(cluster, lonely).is_empty()
    });
    let leader = cluster.leader(ConsensusGroup::METADATA);
    assert_eq!(leader, Some(primary), "the others are content with it");
    cluster.reconnect();
    cluster.pass(1_000);
    assert!(cluster.all_led());
}

/// After every node was away in turn one would lead everything for good.
#[test]
fn groups_come_back_to_a_node_that_was_away() {
    let (mut cluster, _admin) = with_topic();
    let before: Vec<_> = (0..3).map(|node| led_by(&cluster, node)).collect();
    cluster.kill(1);
    cluster.pass_until("the others lead all", |cluster| led_among(cluster, &[0, 2]));
    cluster.start(1);
    cluster.pass(500);
    assert!(led_by(&cluster, 1).is_empty(), "it must stay for a while");
    cluster.pass(8_000);
    let after: Vec<_> = (0..3).map(|node| led_by(&cluster, node)).collect();
    assert_eq!(before, after);
}
