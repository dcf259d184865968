//! What happens to a group: at first anything, then nothing bad any more.

use vsr::Input;

use crate::group::{Counts, Group};

const MILLISECOND: u64 = 1_000_000;
const STEPS: u64 = 3_000;

/// Runs one story to its end.
///
/// # Panics
/// When a check fails; the seed says how to see it again.
pub(crate) fn tell(mut group: Group, seed: u64) -> Counts {
    let _guard = Guard(seed, group.replica_count);
    set_out(&mut group);
    for _ in 0..STEPS {
        step(&mut group);
        if group.random.percent(2) {
            trouble(&mut group);
        }
    }
    if group.random.percent(60) {
        endure(&mut group);
    }
    heal(&mut group);
    finish(&mut group);
    group.assert_whole();
    group.counts
}

/// Says which seed has failed.
struct Guard(u64, u8);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(seed, replica_count) = *self;
            eprintln!(
                "n = {replica_count}, seed {seed}: VSR_TRACE=1 VSR_SEEDS={seed}..{}",
                seed + 1
            );
        }
    }
}

/// How bad the network of this story is, and whether one disk is slow.
fn set_out(group: &mut Group) {
    match group.random.below(10) {
        _ if group.loses_disks || group.loses_checkpoints => {}
        0..=3 => group.loses_heads = true,
        4..=7 => group.rots = true,
        _ => {}
    }
    if group.random.percent(25) {
        let replica = any(group);
        let slowness = 80 + group.random.below(19);
        group.members[usize::from(replica)].disk.slowness = slowness;
    }
    group.loss = [0, 0, 2, 10][group.random.index(4)];
    group.tardy = [0, 0, 3][group.random.index(3)];
    group.repeats = [0, 5, 20][group.random.index(3)];
    group.delay_max = [MILLISECOND, 5 * MILLISECOND, 60 * MILLISECOND][group.random.index(3)];
}

fn any(group: &mut Group) -> u8 {
    let count = u64::from(group.replica_count);
    u8::try_from(group.random.below(count)).expect("below a u8")
}

/// A little time passes, and everybody does a little.
fn step(group: &mut Group) {
    let time = 100_000 + group.random.below(4 * MILLISECOND);
    group.pass(time);
    for replica in 0..group.replica_count {
        for _ in 0..group.random.below(6) {
            group.work(replica);
        }
        if group.random.percent(20) {
            group.fetch(replica);
        }
    }
    group.clients_act(true);
    match group.random.below(10) {
        0..=5 => {
            if let Some(leader) = group.leader() {
                group.request(leader);
            }
        }
        6 => {
            let replica = any(group);
            group.request(replica);
        }
        7 => {
            let replica = any(group);
            if group.is_up(replica) {
                group.ask_confirmation(replica);
            }
        }
        8 => {
            let replica = any(group);
            if group.random.percent(12) {
                group.checkpoint(replica);
            }
        }
        _ => {}
    }
}

/// Something bad begins or ends.
fn trouble(group: &mut Group) {
    let replica = any(group);
    match group.random.below(19) {
        0 | 1 => {
            if group.is_up(replica) {
                group.crash(replica);
            }
        }
        2..=4 => {
            if !group.is_up(replica) {
                group.start(replica);
            }
        }
        5 => {
            // Everything stops and comes back.
            for replica in 0..group.replica_count {
                if group.is_up(replica) {
                    group.crash(replica);
                }
                group.start(replica);
            }
        }
        6 => {
            let other = any(group);
            group.cut.insert((replica, other));
        }
        7 => {
            for other in 0..group.replica_count {
                group.cut.insert((replica, other));
                if group.random.percent(50) {
                    group.cut.insert((other, replica));
                }
            }
        }
        8 => {
            // The leader is heard by nobody, or hears nobody.
            let leader = group.leader().unwrap_or(replica);
            let is_deaf = group.random.percent(50);
            for other in 0..group.replica_count {
                let link = if is_deaf {
                    (other, leader)
                } else {
                    (leader, other)
                };
                group.cut.insert(link);
            }
        }
        9 => {
            let until = group.now + group.random.below(800 * MILLISECOND);
            let member = &mut group.members[usize::from(replica)];
            if let Some(process) = &mut member.process {
                process.paused_until = until;
            }
        }
        10 | 11 => {
            // A disk stalls: that of the leader, for instance.
            let leader = group.leader().filter(|_| group.random.percent(50));
            let until = group.now + group.random.below(1_500 * MILLISECOND);
            let replica = leader.unwrap_or(replica);
            group.members[usize::from(replica)].disk.stalled_until = until;
        }
        12 => set_clock(group, replica),
        14 if group.loses_heads => lose_head(group, replica),
        14 if group.rots => rot(group, replica),
        14 if group.loses_disks => group.wipe(replica),
        13 | 14 if group.loses_checkpoints => group.lose_checkpoint(replica),
        13 => group.handle(replica, Input::PrimaryLost),
        // Whoever is away or behind has to do with a checkpoint.
        15 => (0..group.replica_count).for_each(|replica| group.checkpoint(replica)),
        16 => {
            let is_reluctant = group.random.percent(50);
            group.set_reluctant(replica, is_reluctant);
        }
        _ => group.cut.clear(),
    }
}

/// A replica loses the end of its journal. Sometimes it is back at once, and its primary gone: what was said
/// before still arrives.
fn lose_head(group: &mut Group, replica: u8) {
    group.lose_head(replica);
    if group.random.percent(50) {
        return;
    }
    if !group.is_up(replica) {
        group.start(replica);
    }
    group.repeat_start_view(replica);
    if let Some(leader) = group.leader() {
        group.crash(leader);
    }
}

/// Prepares rot on a disk. Sometimes on all of them, and everything starts anew: nobody has them in memory.
fn rot(group: &mut Group, replica: u8) {
    let is_everywhere = group.random.percent(40);
    for other in 0..group.replica_count {
        if is_everywhere || other == replica {
            group.rot(other);
        }
    }
    for other in 0..group.replica_count {
        if !group.is_up(other) && group.random.percent(70) {
            group.start(other);
        }
    }
}

/// The wall clock of one replica jumps, forwards or back, by up to an hour.
fn set_clock(group: &mut Group, replica: u8) {
    let wall = group.random.below(3_600_000_000);
    let member = &mut group.members[usize::from(replica)];
    if let Some(process) = &mut member.process {
        group.counts.clocks_back += u64::from(wall < process.wall);
        process.wall = wall;
    }
}

/// What one replica suffers for good.
#[derive(Clone, Copy, Debug)]
enum Affliction {
    Dead,
    /// It hears nobody.
    Deaf,
    /// Nobody hears it.
    Mute,
    /// Its disk completes nothing.
    Stalled,
}

/// A minority is lost for good, the leader perhaps among them. The others elect, commit and serve, whatever
/// came before (V17), and then stay in their view: nobody moves them alone (V6).
fn endure(group: &mut Group) {
    heal(group);
    if group.random_for_disks() {
        until_taken_back(group);
    }
    // Those whose head is uncertain, or that have lost prepares, may need the others, and count as lost.
    let mut afflicted: Vec<u8> = (0..group.replica_count)
        .filter(|it| {
            let disk = &group.members[usize::from(*it)].disk;
            disk.is_head_uncertain || disk.is_suspect() || disk.is_lost || group.needs_others(*it)
        })
        .collect();
    let rest = usize::from(group.replica_count / 2).saturating_sub(afflicted.len());
    if rest == 0 {
        return;
    }
    for _ in 0..=group.random.index(rest) {
        let leader = group.leader().filter(|_| group.random.percent(50));
        let replica = leader.unwrap_or_else(|| any(group));
        if !afflicted.contains(&replica) {
            afflicted.push(replica);
            afflict(group, replica);
        }
    }
    let deadline = group.now + 30_000 * MILLISECOND;
    let mut view = None;
    let mut since = group.now;
    let mut answered = group.answered.len();
    while group.now < since + 5_000 * MILLISECOND || group.answered.len() == answered {
        let healthy = (0..group.replica_count).filter(|it| !afflicted.contains(it));
        assert!(
            group.now < deadline,
            "with {afflicted:?} lost the others do not serve in one view:\n{}",
            group.states()
        );
        let now_in = healthy.map(|replica| group.normal_view(replica)).max();
        if now_in != view {
            view = now_in;
            since = group.now;
            answered = group.answered.len();
        }
        group.pass(4 * MILLISECOND);
        for replica in 0..group.replica_count {
            while group.work(replica) {}
            group.fetch(replica);
        }
        group.clients_act(true);
        let leaders = group.leaders();
        for leader in leaders {
            if group.random.percent(5) {
                group.request(leader);
            }
        }
    }
    group.counts.endured += 1;
}

/// Whoever lost its disk is back before anything else happens.
fn until_taken_back(group: &mut Group) {
    let deadline = group.now + 30_000 * MILLISECOND;
    while group.without_disk() > 0 {
        assert!(
            group.now < deadline,
            "who lost its disk is not taken back:\n{}",
            group.states()
        );
        group.pass(MILLISECOND);
        for replica in 0..group.replica_count {
            while group.work(replica) {}
            group.fetch(replica);
        }
        group.clients_act(false);
    }
}

fn afflict(group: &mut Group, replica: u8) {
    let affliction = [
        Affliction::Dead,
        Affliction::Deaf,
        Affliction::Mute,
        Affliction::Stalled,
    ][group.random.index(4)];
    group.trace(|| format!("{replica} is {affliction:?} from now on"));
    match affliction {
        Affliction::Dead => group.crash(replica),
        Affliction::Stalled => {
            group.members[usize::from(replica)].disk.stalled_until = u64::MAX;
        }
        Affliction::Deaf => {
            for other in 0..group.replica_count {
                group.cut.insert((other, replica));
            }
        }
        Affliction::Mute => {
            for other in 0..group.replica_count {
                group.cut.insert((replica, other));
            }
        }
    }
}

fn heal(group: &mut Group) {
    group.cut.clear();
    group.loss = 0;
    group.repeats = 0;
    group.tardy = 0;
    group.delay_max = MILLISECOND;
    for replica in 0..group.replica_count {
        let disk = &mut group.members[usize::from(replica)].disk;
        disk.stalled_until = 0;
        disk.slowness = 0;
        if !group.is_up(replica) {
            group.start(replica);
        }
    }
    choose_reluctant(group);
}

/// Some would rather not lead from now on, or all, or nobody. Whatever it is, the group comes to rest.
fn choose_reluctant(group: &mut Group) {
    let percent = [0, 40, 100][group.random.index(3)];
    for replica in 0..group.replica_count {
        let is_reluctant = group.random.percent(percent);
        group.set_reluctant(replica, is_reluctant);
    }
}

/// The group elects, commits, and all replicas come to rest in one view, within a time that no story
/// should need: many view changes, each with a longer time than the one before.
fn finish(group: &mut Group) {
    let deadline = group.now + 30_000 * MILLISECOND;
    let before = group.answered.len();
    while !(group.is_at_rest()
        && group.answered.len() > before
        && group.clients.are_content()
        && group.is_led_willingly())
    {
        assert!(
            group.now < deadline,
            "the group does not come to rest:\n{}",
            group.states()
        );
        group.pass(MILLISECOND);
        for replica in 0..group.replica_count {
            while group.work(replica) {}
            group.fetch(replica);
        }
        group.clients_act(false);
        if let Some(leader) = group.leader()
            && group.answered.len() == before
            && group.random.percent(5)
        {
            group.request(leader);
        }
    }
}
