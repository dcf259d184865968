//! What goes wrong with disks: they are slow, fail, rot, and have no space.

use super::World;
use crate::{event::Fault, node::Failing, rot, run::MILLISECOND};

/// How long before the end of faults the last slow disk is as it was, so that all that takes long has ended.
const SLOW_ENDS_BEFORE: u64 = 500 * MILLISECOND;

impl World {
    /// Everything that a disk does takes many times longer for a while.
    pub(super) fn slow_disk_down(&mut self) {
        let node = self.some_node();
        let (factor, time) = (
            self.random.between(5, 100),
            self.random.between(20, 1_500) * MILLISECOND,
        );
        let end = self.scenario.faults.until.saturating_sub(SLOW_ENDS_BEFORE);
        let until = (self.run.now + time).min(end);
        if until <= self.run.now {
            return;
        }
        self.run.counts.slow_disks += 1;
        self.run.note(&[60, node as u64, factor, until], || {
            format!("node {node}: its disk is {factor} times slower until {until}")
        });
        self.nodes[node].trouble.slow_down(until, factor);
    }

    /// The next write or flush of a node fails: its process ends, and is started again (V18).
    pub(super) fn fail_disk(&mut self) {
        let node = self.some_node();
        let failing = match self.random.chance(500) {
            true => Failing::Flush,
            false => Failing::Write,
        };
        self.nodes[node].trouble.fail_next(failing);
    }

    /// Some reads of one of the disks that may be damaged fail for a while.
    pub(super) fn fail_reads(&mut self) {
        let may_be_damaged = self.scenario.rotting();
        if may_be_damaged == 0 {
            return;
        }
        let node = self.random.index(may_be_damaged);
        let until = self.run.now + self.random.between(20, 500) * MILLISECOND;
        let per_mille = *self.random.pick(&[20, 200, 1_000]);
        self.nodes[node].trouble.fail_reads(until, per_mille);
    }

    /// A disk has no space for a while.
    pub(super) fn fill_disk(&mut self) {
        let node = self.some_node();
        let time = self.random.between(50, 1_500) * MILLISECOND;
        let until = (self.run.now + time).min(self.scenario.faults.until);
        self.run.counts.disks_full += 1;
        self.run.note(&[65, node as u64, until], || {
            format!("node {node}: its disk is full until {until}")
        });
        self.nodes[node].trouble.fill(until);
    }

    /// A process whose disk has failed does nothing more, and another one starts a while later.
    pub(super) fn end_failed(&mut self, node: usize) {
        if self.nodes[node].trouble.failed().is_some() {
            self.crash_and_start(node, false);
        }
    }

    /// Sometimes a bit of the journal flips while the node is down, until faults are over. Not together with a
    /// write that is torn: both may hit the two copies of a superblock record (V13).
    pub(super) fn rot_journal(&mut self, node: usize) {
        let may_rot = self.scenario.rotting();
        let is_over = self.run.now >= self.scenario.faults.until;
        let Some(random) = self.fault_randoms.get_mut(&Fault::Rot) else {
            return;
        };
        if node >= may_rot || is_over {
            return;
        }
        let place = &mut self.nodes[node];
        let mut is_struck = false;
        if random.chance(self.scenario.peers.rot) {
            let apart = 3 * u64::from(self.scenario.journal.frame_size) + 64 * 1024;
            let limits = (apart, !self.scenario.tears());
            self.rot[node].strike(place, &mut self.run, random, limits);
            is_struck = true;
        }
        if random.chance(self.scenario.peers.rot_segments) {
            rot::strike_segment(place, &mut self.run, random);
        }
        if random.chance(self.scenario.peers.rot_end) {
            is_struck = true;
            if self.rot[node].strike_end(place, &mut self.run, random) && random.chance(300) {
                self.run.counts.nodes_stranded += 1;
                self.peers.isolate(&mut self.run, node);
            }
        }
        if random.chance(self.scenario.disks.fail_start) && !is_struck {
            rot::strike_start(place, &mut self.run, random, self.scenario.sector);
        }
    }

    /// Sometimes a snapshot rots while the node is down, however it went down, until faults are over.
    pub(super) fn rot_snapshot(&mut self, node: usize) {
        let may_rot = self.scenario.rotting();
        let is_over = self.run.now >= self.scenario.faults.until;
        let Some(random) = self.fault_randoms.get_mut(&Fault::Rot) else {
            return;
        };
        if node < may_rot && !is_over && random.chance(self.scenario.peers.rot_snapshots) {
            rot::strike_snapshot(&mut self.nodes[node], &mut self.run, random);
        }
    }

    /// Bits flip in a file, in what is flushed.
    pub(super) fn rot(&mut self) {
        let disk = &mut self.nodes[0].disk;
        let directories: Vec<_> = disk.directories().collect();
        if directories.is_empty() {
            return;
        }
        let directory = *self.random.pick(&directories);
        let files: Vec<_> = disk.list(directory).collect();
        let (name, inode) = *self.random.pick(&files);
        let ranges = disk.flushed_ranges(inode);
        if ranges.is_empty() {
            return;
        }
        for _ in 0..self.random.between(1, 4) {
            let (from, to) = *self.random.pick(&ranges);
            let position = self.random.between(from, to - 1);
            let bit = u8::try_from(self.random.below(8)).unwrap_or(0);
            disk.flip(inode, position, bit);
            self.run.counts.bits_rotten += 1;
            self.run.note(&[11, position], || {
                format!("rot: a bit of {directory}/{name} at {position}")
            });
        }
    }
}
