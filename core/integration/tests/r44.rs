//! R44: a reset is done, or refused; never said and not done.

use integration::{Deliveries, until};
use wire::{ErrorCode, ResetTarget};

use crate::{
    command::cohort,
    scene::{Scene, patient},
};

#[test]
fn r44_1_reset_under_members_is_refused_or_takes_their_partitions_from_them() {
    let mut scene = Scene::new(patient(), 2, 20);
    let mut member = scene.join();
    member.wait_for(2);
    let deliveries = Deliveries::default();
    until("everything is read", || {
        member.turn(&deliveries).expect("it is a member");
        ((0..2).all(|partition| deliveries.count(partition) == 20)).then_some(())
    });
    let before = scene.group.details(&mut scene.admin);
    let refused = scene
        .group
        .reset(&mut scene.admin, (0, ResetTarget::Earliest), false);
    let refused = refused.expect_err("it has a member");
    assert_eq!(refused.code, ErrorCode::ConsumerGroupNotEmpty, "{refused}");
    assert!(refused.text.contains("1 member"), "{refused}");
    assert_eq!(
        scene.group.details(&mut scene.admin).summary,
        before.summary
    );
    assert_eq!(scene.next(0), 20);

    let old = member.epoch(0);
    scene
        .group
        .reset(&mut scene.admin, (0, ResetTarget::Earliest), true)
        .expect("it is forced");
    // It is answered when it is done.
    assert_eq!((scene.next(0), scene.next(1)), (0, 20));
    let late = member.store_of(&[(0, old, 19)]);
    let Ok(wire::Reply::OffsetsStored(stored)) = member.connection.ask(late) else {
        panic!("not answered");
    };
    assert!(stored.sections[0].status.is_err(), "{stored:?}");
    assert_eq!(scene.next(0), 0);
    let again = Deliveries::default();
    until("it is read again", || {
        member.turn(&again).expect("it is a member");
        (again.count(0) == 20).then_some(())
    });
    assert_eq!(again.count(1), 0, "the other partition is left alone");
}

/// Old and new of each partition, as the command tells them.
fn reset(scene: &Scene, arguments: &[&str]) -> Result<Vec<(u64, u64, bool)>, String> {
    let group = scene.group.id.to_string();
    let (stream, topic) = (scene.topic.stream, scene.topic.id);
    let names = [
        format!("#{stream}"),
        format!("#{topic}"),
        format!("#{group}"),
    ];
    let mut command = cohort(scene, &["group", "reset"]);
    command.args(names).args(arguments).args(["-o", "json"]);
    let output = command.output().expect("run it");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let told = String::from_utf8(output.stdout).expect("it is text");
    let before = values(&told, "next_before").map(number);
    let after = values(&told, "next").map(number);
    let clamped = values(&told, "clamped").map(|value| value == "true");
    let places = before.zip(after).zip(clamped);
    Ok(places
        .map(|((before, after), clamped)| (before, after, clamped))
        .collect())
}

/// The values of a key, in the order in which they stand in the JSON.
fn values<'a>(json: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    let key = format!("\"{key}\":");
    let found: Vec<&str> = json
        .match_indices(&key)
        .map(|(at, key)| {
            let value = &json[at + key.len()..];
            let end = value.find([',', '}', '\n']).unwrap_or(value.len());
            value[..end].trim()
        })
        .collect();
    found.into_iter()
}

fn number(text: &str) -> u64 {
    text.parse().expect("it is a number")
}

#[test]
fn r44_2_3_4_5_command_tells_old_and_new_as_they_are() {
    let mut scene = Scene::new(patient(), 2, 20);
    let cases: &[(&[&str], [u64; 2], bool)] = &[
        (&["--to", "latest"], [20, 20], false),
        (&["--to", "5"], [5, 5], false),
        (&["--to", "shift:+3"], [8, 8], false),
        (&["--to", "shift:-2", "--partition", "1"], [8, 6], false),
        (&["--to", "shift:-100"], [0, 0], true),
        (&["--to", "shift:100"], [20, 20], true),
        (&["--to", "100"], [20, 20], true),
        (&["--to", "earliest"], [0, 0], false),
    ];
    let mut before = [0, 0];
    for (arguments, after, clamped) in cases {
        let dry: Vec<&str> = arguments.iter().copied().chain(["--dry-run"]).collect();
        let told = reset(&scene, &dry).expect("it is possible");
        assert_eq!([scene.next(0), scene.next(1)], before, "nothing is done");
        let done = reset(&scene, arguments).expect("it is done");
        assert_eq!(done, told, "{arguments:?}");
        assert_eq!([scene.next(0), scene.next(1)], *after, "{arguments:?}");
        let of_one = arguments.contains(&"--partition");
        let partitions: Vec<usize> = if of_one { vec![1] } else { vec![0, 1] };
        let expected: Vec<_> = partitions
            .iter()
            .map(|it| (before[*it], after[*it], *clamped))
            .collect();
        assert_eq!(done, expected, "{arguments:?}");
        before = *after;
    }
    for (arguments, said) in [
        (["--to", "5", "--partition", "2"], "there is no partition 2"),
        (["--to", "shift:x", "--partition", "0"], "shift"),
    ] {
        let refused = reset(&scene, &arguments).expect_err("it is wrong");
        assert!(refused.contains(said), "{refused}");
    }
    let _member = scene.join();
    let refused = reset(&scene, &["--to", "5"]).expect_err("it has a member");
    assert!(refused.contains("1 member"), "{refused}");
    assert_eq!([scene.next(0), scene.next(1)], before);
}
