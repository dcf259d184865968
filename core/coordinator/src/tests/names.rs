//! The groups of a topic: names, ids, deletion.

use std::{string::ToString, vec::Vec};

use wire::{ConsumerGroupId, ErrorCode, Failure, Identifier, Writer};

use super::{MEMBERS_MAX, at, dynamic, named};
use crate::{ConsumerGroups, CreateRefused, GroupOptions, NewGroup};

fn new(name: &str) -> NewGroup {
    NewGroup {
        name: name.to_string(),
        options: GroupOptions::default(),
        partitions: 4,
    }
}

fn with_members(members: u64) -> ConsumerGroups {
    let mut groups = ConsumerGroups::default();
    groups.create(at(1), new("g"), 10).unwrap();
    for client in 1..=members {
        let group = groups.find_mut(&named("g")).unwrap();
        group
            .join(at(10 * client), dynamic(client), MEMBERS_MAX)
            .unwrap();
    }
    groups
}

#[test]
fn creating_what_exists_changes_nothing_and_tells_the_id() {
    let mut groups = with_members(2);
    let before = groups.clone();
    let refused = groups.create(at(90), new("g"), 10).unwrap_err();
    let CreateRefused::Exists { group } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(group.id, ConsumerGroupId(1));
    let failure = Failure::from(refused);
    assert_eq!(failure.code, ErrorCode::ConsumerGroupAlreadyExists);
    assert_eq!(failure.text, "consumer group \"g\" (id 1) exists already");
    assert_eq!(groups, before);
}

#[test]
fn names_options_and_numbers_are_checked() {
    let mut groups = ConsumerGroups::default();
    for wrong in ["", "12", " a", "a\t"] {
        let refused = groups.create(at(1), new(wrong), 10).unwrap_err();
        assert_eq!(Failure::from(refused).code, ErrorCode::InvalidName);
    }
    let mut silly = new("g");
    silly.options.rebalance_timeout_ms = 0;
    let refused = groups.create(at(1), silly, 10).unwrap_err();
    assert_eq!(
        Failure::from(refused).code,
        ErrorCode::InvalidConsumerGroupOptions
    );

    groups.create(at(1), new("a"), 2).unwrap();
    groups.create(at(2), new("b"), 2).unwrap();
    let failure = Failure::from(groups.create(at(3), new("c"), 2).unwrap_err());
    assert_eq!(failure.code, ErrorCode::TooManyConsumerGroups);
    assert_eq!(
        failure.text,
        "the topic has 2 consumer groups; the limit is 2 (cluster.limits.consumer_groups_per_topic)"
    );
    assert_eq!(groups.next_id(), ConsumerGroupId(3));
}

#[test]
fn deletion_under_members_is_refused_unless_forced() {
    let mut groups = with_members(12);
    let before = groups.clone();
    let failure = Failure::from(groups.delete(&named("g"), false).unwrap_err());
    assert_eq!(failure.code, ErrorCode::ConsumerGroupNotEmpty);
    assert_eq!(
        failure.text,
        "consumer group \"g\" (id 1) has 12 members (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …); it must have none, unless it is forced"
    );
    assert_eq!(groups, before);

    let deleted = groups.delete(&named("g"), true).unwrap();
    assert_eq!(deleted.group, ConsumerGroupId(1));
    assert_eq!(deleted.members.len(), 12);
    let failure = Failure::from(groups.delete(&named("g"), true).unwrap_err());
    assert_eq!(failure.code, ErrorCode::ConsumerGroupNotFound);
    assert_eq!(
        failure.text,
        "consumer group \"g\" does not exist in the topic"
    );
}

#[test]
fn id_of_a_deleted_group_names_no_other() {
    let mut groups = ConsumerGroups::default();
    for id in 1..=3 {
        assert_eq!(
            groups.create(at(id), new("g"), 10).unwrap().id(),
            ConsumerGroupId(id)
        );
        let deleted = groups.delete(&Identifier::Number(id), false).unwrap();
        assert_eq!(deleted.members, []);
        assert!(groups.find(&Identifier::Number(id)).is_err());
    }
    assert!(groups.is_empty());
}

#[test]
fn numbers_are_ids_and_names_are_names() {
    let groups = with_members(0);
    assert!(groups.find(&Identifier::Number(1)).is_ok());
    assert!(groups.find(&named("g")).is_ok());
    assert!(groups.find(&Identifier::Name("1".to_string())).is_err());
    assert!(groups.find(&Identifier::Number(2)).is_err());
}

#[test]
fn group_expires_only_after_an_unbroken_time_without_members() {
    let mut groups = with_members(0);
    let id = ConsumerGroupId(1);
    let since = groups.group(id).unwrap().empty_since();
    assert_eq!(
        since,
        Some(at(1).timestamp),
        "a group that was never used has its time, too"
    );
    let group = groups.find_mut(&named("g")).unwrap();
    group.join(at(10), dynamic(1), MEMBERS_MAX).unwrap();
    assert_eq!(groups.expire(id, at(1).timestamp), None, "it has a member");
    let group = groups.find_mut(&named("g")).unwrap();
    group
        .leave(at(20), dynamic(1).client, dynamic(1).session)
        .unwrap();
    assert_eq!(
        groups.expire(id, at(1).timestamp),
        None,
        "its time began anew"
    );
    assert!(groups.expire(id, at(20).timestamp).is_some());
    assert_eq!(groups.expire(id, at(20).timestamp), None);
}

#[test]
fn partitions_of_the_topic_are_those_of_every_group() {
    let mut groups = with_members(1);
    groups.create(at(30), new("empty"), 10).unwrap();
    let changes = groups.partitions_created(at(40), 2);
    assert_eq!(changes.len(), 2);
    assert!(changes.iter().all(|change| change.partitions == 6));
    let changes = groups.partitions_deleted(at(50), 5);
    assert!(changes.iter().all(|change| change.partitions == 1));
    let changes = groups.purge(at(60), &[wire::PartitionId(0)]);
    let named: Vec<_> = changes.iter().map(|change| change.group.0).collect();
    assert_eq!(named, [1, 2]);
}

#[test]
fn lists_are_read_page_by_page() {
    let mut groups = ConsumerGroups::default();
    for name in ["c", "a", "b"] {
        groups.create(at(1), new(name), 10).unwrap();
    }
    let page = |after| {
        let page = groups.iter_after(ConsumerGroupId(after)).take(2);
        page.map(|group| group.name().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(page(0), ["c", "a"]);
    assert_eq!(page(2), ["b"]);
    assert!(page(3).is_empty());
}

#[test]
fn digest_tells_what_ids_have_been_used() {
    let bytes = |groups: &ConsumerGroups| {
        let mut writer = Writer::new();
        groups.write_canonical(&mut writer);
        writer.into_bytes()
    };
    let fresh = ConsumerGroups::default();
    let mut used = fresh.clone();
    used.create(at(1), new("g"), 10).unwrap();
    used.delete(&named("g"), false).unwrap();
    assert_ne!(bytes(&fresh), bytes(&used));
}
