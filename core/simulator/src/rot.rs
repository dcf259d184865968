//! Bits of journals and segments flip while their nodes are down, or their sectors cannot be read any more.
//!
//! They do so on fewer nodes than make a quorum, always the same ones: then whatever was acknowledged has a
//! copy that can be read, and of what has none enough others can say that they never had it (V12). Never on two
//! neighbouring frames: a superblock record is in two, and who has lost both has forgotten its promises (V13).
//! Of segments and snapshots anything may rot there: the others have them.

use bytes::Bytes;

use crate::{
    disk::{Directory, Disk, Frame, Inode, Name, Path},
    node::{BadSector, Node},
    random::Random,
    run::Run,
};

/// The bits that have flipped on one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rot {
    flipped: Vec<(Inode, u64)>,
    /// One was near the beginning or the end of what a file held: its neighbour may be in another file.
    at_an_edge: bool,
    /// Frames near the end that were struck, by number.
    frames: Vec<u64>,
}

impl Rot {
    /// One of the last frames of the journal is damaged, never the newest: what that is cannot be told from a frame
    /// that was torn. Their ops are the ones that no checkpoint has yet. Returns whether there was one.
    pub(crate) fn strike_end(
        &mut self,
        node: &mut Node,
        run: &mut Run,
        random: &mut Random,
    ) -> bool {
        let is_apart = |frame: &Frame| self.frames.iter().all(|it| it.abs_diff(frame.number) > 1);
        let older = node.disk.frames().rev().skip(1);
        let frames: Vec<Frame> = older.filter(is_apart).collect();
        if frames.is_empty() {
            return false;
        }
        let frame = *random.pick(&frames);
        let position = frame.position + random.below(frame.length);
        self.frames.push(frame.number);
        match random.below(10) {
            0..4 => misdirect(node, run, random, frame),
            _ => damage(&mut node.disk, random, frame.inode, position),
        }
        run.counts.ends_rotten += 1;
        run.note(&[15, node.id as u64, position], || {
            format!(
                "rot: node {}'s frame {} at {position}",
                node.id, frame.number
            )
        });
        true
    }

    /// A bit flips in what is written and flushed of the journal, so many bytes `apart` from the others that
    /// have, at least; near an edge of a file only where `edges` says so: a write may be torn beside it.
    pub(crate) fn strike(
        &mut self,
        node: &mut Node,
        run: &mut Run,
        random: &mut Random,
        (apart, edges): (u64, bool),
    ) {
        let disk = &mut node.disk;
        let mut places = Vec::new();
        for (name, inode) in disk.list(Directory::Journal) {
            if matches!(name, Name::Journal(_)) {
                places.extend(written(disk, inode));
            }
        }
        if places.is_empty() {
            return;
        }
        let (inode, from, to) = *random.pick(&places);
        let position = random.between(from, to);
        let is_near = |it: &(Inode, u64)| it.0 == inode && it.1.abs_diff(position) < apart;
        let is_at_edge = position < apart || to - position < apart;
        if self.flipped.iter().any(is_near) || is_at_edge && (self.at_an_edge || !edges) {
            return;
        }
        self.at_an_edge |= is_at_edge;
        self.flipped.push((inode, position));
        damage(disk, random, inode, position);
        run.counts.bits_rotten += 1;
        run.note(&[13, node.id as u64, position], || {
            format!("rot: a bit of node {}'s journal at {position}", node.id)
        });
    }
}

/// The newest frames of the journal are damaged, so many that no copy is left of the records in them.
pub(crate) fn strike_newest(node: &mut Node, run: &mut Run, random: &mut Random) {
    let disk = &mut node.disk;
    let frames: Vec<Frame> = disk.frames().rev().take(3).collect();
    for frame in frames {
        let position = frame.position + random.below(64);
        disk.flip(frame.inode, position, 0);
        run.counts.bits_rotten += 1;
        run.note(&[16, node.id as u64, position], || {
            format!("rot: node {}'s newest frame {}", node.id, frame.number)
        });
    }
}

/// A bit flips in a segment of this node, or its end is gone.
pub(crate) fn strike_segment(node: &mut Node, run: &mut Run, random: &mut Random) {
    let disk = &mut node.disk;
    let mut segments = Vec::new();
    for directory in disk.directories() {
        let files = disk.list(directory);
        segments.extend(files.filter(|(name, _)| matches!(name, Name::Segment(_))));
    }
    if segments.is_empty() {
        return;
    }
    let (name, inode) = *random.pick(&segments);
    let ranges = written(disk, inode);
    if ranges.is_empty() {
        return;
    }
    let (inode, from, to) = *random.pick(&ranges);
    let position = random.between(from, to);
    match random.below(10) {
        0..3 => disk.set_size(inode, position),
        3..5 => {
            let length = random.between(1, 1_024);
            let elsewhere = random.between(from, to);
            let bytes = disk.read(inode, elsewhere, length);
            disk.overwrite(inode, position, &bytes);
            run.counts.writes_misdirected += 1;
        }
        _ => damage(disk, random, inode, position),
    }
    run.counts.bits_rotten += 1;
    run.note(&[14, node.id as u64, position], || {
        format!("rot: node {}'s {name} at {position}", node.id)
    });
}

/// A snapshot of this node rots, mostly the newest one of a group, or is gone.
pub(crate) fn strike_snapshot(node: &mut Node, run: &mut Run, random: &mut Random) {
    let snapshots = snapshots(&node.disk);
    if snapshots.is_empty() {
        return;
    }
    let of_group = random.pick(&snapshots);
    let (path, inode) = match random.chance(800) {
        true => of_group[of_group.len() - 1],
        false => *random.pick(of_group),
    };
    let size = node.disk.size(inode);
    let position = random.below(size.max(1));
    match random.below(10) {
        0..2 => {
            let Directory::Group(group) = path.directory else {
                unreachable!("snapshots are in the directories of groups");
            };
            node.remember_snapshot(group);
            node.disk.remove(path);
        }
        2..4 => node.disk.set_size(inode, position),
        4..6 => {
            let length = random.between(1, 1_024);
            let bytes = node.disk.read(inode, random.below(size.max(1)), length);
            node.disk.overwrite(inode, position, &bytes);
            run.counts.writes_misdirected += 1;
        }
        _ => damage(&mut node.disk, random, inode, position),
    }
    run.counts.snapshots_rotten += 1;
    run.note(&[18, node.id as u64, position], || {
        format!("rot: node {}'s {path} at {position}", node.id)
    });
}

/// The snapshots of each group that has some, the newest last.
fn snapshots(disk: &Disk) -> Vec<Vec<(Path, Inode)>> {
    let directories: Vec<_> = disk.directories().collect();
    let of_groups = directories.into_iter().map(|directory| {
        let files = disk.list(directory);
        let snapshots = files.filter(|(name, _)| matches!(name, Name::Snapshot(_)));
        let paths = snapshots.map(|(name, inode)| (Path { directory, name }, inode));
        paths.collect::<Vec<_>>()
    });
    of_groups
        .filter(|snapshots| !snapshots.is_empty())
        .collect()
}

/// The next start of this node cannot read a sector of the journal or of a snapshot, or reads another one instead.
pub(crate) fn strike_start(node: &mut Node, run: &mut Run, random: &mut Random, sector: usize) {
    let sector = sector as u64;
    let disk = &node.disk;
    let journals = disk.list(Directory::Journal);
    let journals = journals.filter(|(name, _)| matches!(name, Name::Journal(_)));
    let mut places: Vec<_> = journals
        .flat_map(|(_, inode)| written(disk, inode))
        .collect();
    if random.chance(300) {
        let snapshots = snapshots(disk).into_iter().flatten();
        places = snapshots
            .flat_map(|(_, inode)| written(disk, inode))
            .collect();
    }
    if places.is_empty() {
        return;
    }
    let (inode, from, to) = *random.pick(&places);
    let position = random.between(from, to) / sector * sector;
    let elsewhere = random.between(from, to) / sector * sector;
    let bad = BadSector {
        inode,
        position,
        length: sector,
        elsewhere: random.chance(500).then_some(elsewhere),
    };
    node.trouble.fail_at_start(bad);
    run.counts.starts_misread += 1;
    run.note(&[19, node.id as u64, position], || {
        format!("node {}: will not read {position} of a file", node.id)
    });
}

/// A frame is not where it was written to: there is what was there before, or an older frame that was meant for
/// another place.
fn misdirect(node: &mut Node, run: &mut Run, random: &mut Random, frame: Frame) {
    let disk = &mut node.disk;
    let is_older = |other: &Frame| other.number < frame.number && other.length <= frame.length;
    let older: Vec<Frame> = disk.frames().filter(is_older).collect();
    let bytes = match older.is_empty() || random.chance(500) {
        true => Bytes::from(vec![0; usize::try_from(frame.length).unwrap_or(0)]),
        false => {
            let other = *random.pick(&older);
            disk.read(other.inode, other.position, other.length)
        }
    };
    disk.overwrite(frame.inode, frame.position, &bytes);
    run.counts.writes_misdirected += 1;
}

/// A bit of this byte flips, or its sector cannot be read any more.
fn damage(disk: &mut Disk, random: &mut Random, inode: Inode, position: u64) {
    match random.chance(300) {
        true => disk.spoil(inode, position),
        false => disk.flip(inode, position, u8::try_from(random.below(8)).unwrap_or(0)),
    }
}

/// The flushed ranges of a file, as first and last byte, without the zeros that it was filled with.
fn written(disk: &Disk, inode: Inode) -> Vec<(Inode, u64, u64)> {
    let mut ranges = Vec::new();
    for (from, to) in disk.flushed_ranges(inode) {
        let bytes = disk.read(inode, from, to - from);
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            ranges.push((inode, from, from + last as u64));
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use journal::FileId;

    use super::Rot;
    use crate::{disk::Path, node::Node, random::Random, run::Run, scenario::Scenario};

    const FRAMES: u64 = 9;
    const SIZE: u64 = 4096;

    /// A node of three whose journal has nine frames, filled with their numbers.
    fn node(seed: u64) -> (Node, Run, Random) {
        let random = &mut Random::new(seed);
        let scenario = Scenario::new(random, 3);
        let mut node = Node::new(0, &scenario, random);
        let inode = node.disk.open(Path::journal(FileId(1)));
        for number in 1..=FRAMES {
            let filling = u8::try_from(number).unwrap();
            let bytes = Bytes::from(vec![filling; 4096]);
            node.disk.write(inode, (number - 1) * SIZE, bytes);
            node.disk.note_frame(inode, (number - 1) * SIZE, SIZE);
        }
        node.disk.flushed(inode, node.disk.mark());
        (node, Run::new(false), random.clone())
    }

    /// The frames that are not what was written.
    fn damaged(node: &Node) -> Vec<u64> {
        let inode = node.disk.find(Path::journal(FileId(1))).unwrap();
        let is_damaged = |number: &u64| {
            let filling = u8::try_from(*number).unwrap();
            let read = node.disk.try_read(inode, (number - 1) * SIZE, SIZE);
            read.is_err() || read.is_ok_and(|bytes| bytes.iter().any(|byte| *byte != filling))
        };
        (1..=FRAMES).filter(is_damaged).collect()
    }

    #[test]
    fn end_rots_before_the_newest_frame_and_never_in_two_neighbours() {
        let mut struck = std::collections::BTreeSet::new();
        for seed in 0..60 {
            let (mut node, mut run, mut random) = node(seed);
            let mut rot = Rot::default();
            while rot.strike_end(&mut node, &mut run, &mut random) {}
            let damaged = damaged(&node);
            assert!(damaged.len() > 1, "{damaged:?}");
            assert_eq!(damaged.len() as u64, run.counts.ends_rotten);
            assert!(
                damaged.windows(2).all(|two| two[1] > two[0] + 1),
                "{damaged:?}"
            );
            struck.extend(damaged);
        }
        assert_eq!(struck, (1..FRAMES).collect());
    }

    #[test]
    fn record_is_lost_with_the_newest_frames() {
        let (mut node, mut run, mut random) = node(3);
        super::strike_newest(&mut node, &mut run, &mut random);
        assert_eq!(damaged(&node), [FRAMES - 2, FRAMES - 1, FRAMES]);
    }
}
