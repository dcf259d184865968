//! R38: as many as the configuration says, and what is asked for page by page.

use integration::{Connection, DEFAULT_OPTIONS, Group, Member};
use wire::{ConsumerGroupId, ErrorCode, GetConsumerGroups, Offset, Reply};

use crate::scene::{Scene, patient};

#[test]
fn r38_4_full_group_takes_nobody_more_and_says_so() {
    let site = patient().with("cluster.limits.members_per_group", "3");
    let mut scene = Scene::new(site, 4, 10);
    let mut members: Vec<Member> = (0..3).map(|_| scene.join()).collect();
    for is_killed in [false, true] {
        if is_killed {
            scene.crash();
            for member in &mut members {
                member.attach(scene.address());
            }
        }
        let refused = Member::try_join(Connection::login(scene.address()), &scene.group);
        let refused = refused.expect_err("it is full");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupFull, "{refused}");
        let text = refused.text.to_string();
        for part in ["billing", "3 members", "the limit is 3"] {
            assert!(text.contains(part), "no {part:?} in {text:?}");
        }
        // Who is a member may say so again.
        let again = Member::try_join(members[0].connection.attach(), &scene.group);
        let again = again.expect("it is a member");
        assert_eq!(again.id(), members[0].id());
        members[0] = again;
        assert_eq!(scene.group.details(&mut scene.admin).members.len(), 3);
    }
    members[0].leave().expect("it is a member");
    let _ = scene.join();
}

#[test]
fn r38_limits_of_groups_memberships_and_stored_offsets_name_the_limit() {
    let site = patient()
        .with("cluster.limits.consumer_groups_per_topic", "2")
        .with("cluster.limits.memberships_per_session", "1")
        .with("cluster.limits.consumers_per_partition", "2");
    let mut scene = Scene::new(site, 1, 10);
    let second = Group::create(&mut scene.admin, &scene.topic, "audit", DEFAULT_OPTIONS);
    let second = second.expect("there is room");
    let refused = Group::create(&mut scene.admin, &scene.topic, "third", DEFAULT_OPTIONS);
    let refused = refused.expect_err("there is none");
    assert_eq!(refused.code, ErrorCode::TooManyConsumerGroups, "{refused}");
    assert!(refused.text.contains("the limit is 2"), "{refused}");

    let member = scene.join();
    let refused = Member::try_join(member.connection.attach(), &second);
    let refused = refused.expect_err("one is the limit");
    assert_eq!(refused.code, ErrorCode::TooManyMemberships, "{refused}");
    assert!(refused.text.contains("the limit is 1"), "{refused}");

    for consumer in ["a", "b", "a"] {
        let stored = scene.admin.store(&scene.topic, 0, consumer, Offset(1));
        assert_eq!(stored, Ok(Some(Offset(1))));
    }
    let refused = scene.admin.store(&scene.topic, 0, "c", Offset(1));
    let refused = refused.expect_err("two are the limit");
    assert_eq!(refused.code, ErrorCode::TooManyConsumers, "{refused}");
    assert!(refused.text.contains('2'), "{refused}");
}

#[test]
fn r38_2_groups_are_listed_page_by_page() {
    let mut scene = Scene::new(patient(), 1, 1);
    let mut ids = vec![scene.group.id];
    for number in 0..24 {
        let name = format!("group-{number}");
        let group = Group::create(&mut scene.admin, &scene.topic, &name, DEFAULT_OPTIONS);
        ids.push(group.expect("there is room").id);
    }
    let mut listed = Vec::new();
    let mut pages = 0;
    loop {
        let page = GetConsumerGroups {
            stream: scene.topic.stream.into(),
            topic: scene.topic.id.into(),
            after: listed.last().copied().unwrap_or(ConsumerGroupId(0)),
            limit: 10,
        };
        let Ok(Reply::ConsumerGroups(page)) = scene.admin.ask(page) else {
            panic!("not listed");
        };
        assert!(page.groups.len() <= 10);
        listed.extend(page.groups.iter().map(|group| group.id));
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!((listed, pages), (ids, 3));
}
