//! Bits of journals and segments flip while their nodes are down, or their sectors cannot be read any more.
//!
//! They do so on fewer nodes than make a quorum, always the same ones: then whatever was acknowledged has a
//! copy that can be read, and of what has none enough others can say that they never had it (V12). Never on two
//! neighbouring frames: a superblock record is in two, and who has lost both has forgotten its promises (V13).
//! Of segments anything may rot there: the others have them.

use crate::{
    disk::{Directory, Disk, Frame, Inode, Name},
    node::Node,
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
        let frames: Vec<Frame> = node.disk.last_frames().filter(is_apart).collect();
        if frames.is_empty() {
            return false;
        }
        let frame = *random.pick(&frames);
        let position = frame.position + random.below(frame.length);
        self.frames.push(frame.number);
        damage(&mut node.disk, random, frame.inode, position);
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
    if random.chance(300) {
        disk.set_size(inode, position);
    } else {
        damage(disk, random, inode, position);
    }
    run.counts.bits_rotten += 1;
    run.note(&[14, node.id as u64, position], || {
        format!("rot: node {}'s {name} at {position}", node.id)
    });
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
