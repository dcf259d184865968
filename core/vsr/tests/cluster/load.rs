//! Nobody fails, and everything is slow: disks that take most of a second for a write, links on which what is small
//! waits behind what is large, processes that get no core in time. A primary keeps leading through all of it, since
//! whoever followed it would have the same to wait for.

use vsr::Input;
use wire::{ReplicaId, View};

use crate::{group::Counts, group::Group, random::Random};

const MILLISECOND: u64 = 1_000_000;

/// How long it goes on.
const TIME: u64 = 60_000 * MILLISECOND;

/// What a disk takes for one write, at most: longer than a primary waits that hears nobody.
const WRITE_MAX: u64 = 900 * MILLISECOND;

/// What a small message waits for a large one, at most.
const DELAY_MAX: u64 = 90 * MILLISECOND;

/// From one tick to the next, at most: not late enough for a replica to notice that it was held up.
const STEP_MAX: u64 = 70 * MILLISECOND;

/// How long nothing large follows something large, at least: what is small and waits goes first then, and arrives.
const PAUSE: u64 = 2 * DELAY_MAX + STEP_MAX;

/// How long a frame is on its way that takes as long as it likes, with everything behind it.
const FRAME_MAX: u64 = 1_200 * MILLISECOND;

/// Runs one story.
///
/// # Panics
/// When somebody is deposed, or nothing is done.
pub(crate) fn tell(replica_count: u8, seed: u64) -> Counts {
    let mut group = Group::new(replica_count, Random::new(seed));
    begin(&mut group);
    group.delay_max = DELAY_MAX;
    let end = group.now + TIME;
    let mut frames = Frames::default();
    while group.now < end {
        // In turns everybody is quick, and nobody is.
        let step_max = match group.now / (2_000 * MILLISECOND) % 2 {
            0 => 4 * MILLISECOND,
            _ => STEP_MAX,
        };
        let step = 100_000 + group.random.below(step_max);
        carry_frames(&mut group, &mut frames);
        group.pass(step);
        for replica in 0..replica_count {
            write(&mut group, replica);
        }
        if let Some(leader) = group.leader() {
            group.request(leader);
        }
    }
    for replica in 0..replica_count {
        let view = group.normal_view(replica);
        let is_first = view == Some(View(0));
        assert!(
            is_first,
            "n = {replica_count}, seed {seed}: {}",
            group.states()
        );
    }
    let counts = group.counts.clone();
    assert_eq!(counts.views_entered, 0, "n = {replica_count}, seed {seed}");
    assert_eq!(counts.abdicated, 0, "n = {replica_count}, seed {seed}");
    counts
}

/// All are in the first view.
fn begin(group: &mut Group) {
    while (0..group.replica_count).any(|it| group.normal_view(it).is_none()) {
        group.pass(MILLISECOND);
        for replica in 0..group.replica_count {
            while group.work(replica) {}
        }
    }
}

/// A replica executes what it can, and its disk completes one write if its time has come.
fn write(group: &mut Group, replica: u8) {
    while group
        .process(replica)
        .is_some_and(crate::group::Process::has_applies)
    {
        group.apply(replica);
    }
    let member = &group.members[usize::from(replica)];
    if member.disk.is_busy() && member.disk.stalled_until <= group.now {
        group.work(replica);
        let until = group.now + group.random.below(WRITE_MAX);
        group.members[usize::from(replica)].disk.stalled_until = until;
    }
}

/// Frames that take as long as they like: on which links, and until when.
#[derive(Default)]
struct Frames {
    links: Vec<(u8, u8)>,
    until: u64,
}

/// Now and then a node sends something large, to one other or to all. What it says meanwhile is lost here: it would
/// come when it is of no use any more. But bytes are seen to arrive.
fn carry_frames(group: &mut Group, frames: &mut Frames) {
    if group.now >= frames.until {
        group.cut.clear();
        frames.links.clear();
        let has_paused = group.now >= frames.until + PAUSE;
        if has_paused && group.random.percent(3) {
            send_frames(group, frames);
        }
    }
    for (from, to) in frames.links.clone() {
        let from = ReplicaId(from);
        group.handle(to, Input::Receiving { from });
    }
}

fn send_frames(group: &mut Group, frames: &mut Frames) {
    let count = u64::from(group.replica_count);
    let from = u8::try_from(group.random.below(count)).expect("below a u8");
    let others = (0..group.replica_count).filter(|to| *to != from);
    let mut links: Vec<(u8, u8)> = others.map(|to| (from, to)).collect();
    if group.random.percent(30) {
        let to = group.random.index(links.len());
        links = vec![links[to]];
    }
    group.cut.extend(links.iter().copied());
    frames.links = links;
    frames.until = group.now + group.random.below(FRAME_MAX);
}
