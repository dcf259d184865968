//! A disk that is slow for a while, or fails, and the writes, flushes and reads of a process on it.

use bytes::Bytes;

use super::Machine;
use crate::{
    disk::{Directory, Inode, Mark, Path},
    run::MILLISECOND,
    scenario::Latency,
};

/// How long a flush of a slow disk takes at the most, about, if it does not take a fourth of that anyway.
const SLOW_FLUSH_MAX: u64 = 60 * MILLISECOND;

/// What is wrong with a node's disk.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// Until when it is slow, and how many times slower than otherwise.
    slow: (u64, u64),
    /// What is the next to fail.
    failing: Option<Failing>,
    /// Until when reads of files fail, and how many of a thousand.
    reads: (u64, u64),
    /// What the next start reads in a wrong way.
    start: Option<BadSector>,
    /// Until when there is no space for anything that grows.
    full: u64,
    /// What has failed. The process does nothing more (V18).
    failed: Option<Failing>,
}

/// A range of a file that cannot be read while a process starts, though nothing is wrong with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadSector {
    pub(crate) inode: Inode,
    pub(crate) position: u64,
    pub(crate) length: u64,
    /// The bytes of this place come instead.
    pub(crate) elsewhere: Option<u64>,
}

/// What fails once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    /// A write: a beginning of it is in the file.
    Write,
    /// A flush: of all that was written since the one before anything is on the disk.
    Flush,
}

impl Trouble {
    /// It is slow until a time.
    pub(crate) const fn slow_down(&mut self, until: u64, factor: u64) {
        self.slow = (until, factor);
    }

    /// The next write or flush fails.
    pub(crate) const fn fail_next(&mut self, failing: Failing) {
        self.failing = Some(failing);
    }

    /// So many of a thousand reads fail until a time.
    pub(crate) const fn fail_reads(&mut self, until: u64, per_mille: u64) {
        self.reads = (until, per_mille);
    }

    /// The next start cannot read a sector.
    pub(crate) const fn fail_at_start(&mut self, bad: BadSector) {
        self.start = Some(bad);
    }

    /// The sector that cannot be read, if it is in this range of a file.
    pub(super) fn at_start(&self, inode: Inode, (from, to): (u64, u64)) -> Option<BadSector> {
        let is_in = |bad: &BadSector| bad.position < to && bad.position + bad.length > from;
        self.start.filter(|bad| bad.inode == inode && is_in(bad))
    }

    /// The start has read everything.
    pub(super) const fn calm_start(&mut self) {
        self.start = None;
    }

    /// There is no space until a time.
    pub(crate) const fn fill(&mut self, until: u64) {
        self.full = until;
    }

    /// Whether there is no space.
    pub(super) const fn is_full(&self, now: u64) -> bool {
        now < self.full
    }

    /// Nothing is wrong any more.
    pub(crate) fn calm(&mut self) {
        *self = Self {
            failed: self.failed,
            ..Self::default()
        };
    }

    /// What has failed, so that the process must end.
    pub(crate) const fn failed(&self) -> Option<Failing> {
        self.failed
    }

    /// That process is gone.
    pub(super) const fn forget_failure(&mut self) {
        self.failed = None;
    }

    /// How long things take now.
    pub(super) fn latency(&self, usual: Latency, now: u64) -> Latency {
        let (until, factor) = self.slow;
        if now >= until {
            return usual;
        }
        let slower = |time: u64| (time * factor).min(SLOW_FLUSH_MAX).max(time * 4);
        Latency {
            write: slower(usual.write),
            flush: slower(usual.flush),
            read: slower(usual.read),
            ..usual
        }
    }

    fn fails(&mut self, what: Failing) -> bool {
        if self.failing == Some(what) {
            self.failing = None;
            self.failed = Some(what);
        }
        self.failed.is_some()
    }
}

impl Machine<'_> {
    /// Whether what makes a file longer finds no space.
    pub(super) const fn finds_no_space(&mut self) -> bool {
        let is_full = self.trouble.is_full(self.run.now);
        if is_full {
            self.run.counts.writes_without_space += 1;
        }
        is_full
    }

    /// Writes a range of a file. After a failure nothing is written any more.
    pub(super) fn write(&mut self, inode: Inode, position: u64, bytes: Bytes) {
        let was_well = self.trouble.failed.is_none();
        if !self.trouble.fails(Failing::Write) {
            return self.disk.write(inode, position, bytes);
        }
        if was_well {
            self.run.counts.writes_failed += 1;
            self.note_failure("write");
            let written = self.random.index(bytes.len() + 1);
            self.disk
                .write_beginning(inode, position, &bytes.slice(..written));
        }
    }

    /// A flush of a file ends.
    pub(super) fn flushed(&mut self, inode: Inode, mark: Mark) {
        let was_well = self.trouble.failed.is_none();
        if !self.trouble.fails(Failing::Flush) {
            return self.disk.flushed(inode, mark);
        }
        if was_well {
            self.run.counts.flushes_failed += 1;
            self.note_failure("flush");
            self.disk.fail_flush(inode, self.random);
        }
    }

    /// A flush of a directory ends. One that fails makes nothing durable, and nothing worse.
    pub(super) fn flushed_directory(&mut self, directory: Directory, mark: Mark) {
        let was_well = self.trouble.failed.is_none();
        if !self.trouble.fails(Failing::Flush) {
            return self.disk.flushed_directory(directory, mark);
        }
        if was_well {
            self.run.counts.flushes_failed += 1;
            self.note_failure("flush of a directory");
        }
    }

    /// Reads a range of a file; why not, if it cannot be read.
    pub(super) fn read(&mut self, path: Path, position: u64, length: u64) -> Result<Bytes, String> {
        let Some(inode) = self.disk.find(path) else {
            return Err(format!("{path} does not exist"));
        };
        let (until, per_mille) = self.trouble.reads;
        let is_failing = self.run.now < until && self.random.chance(per_mille);
        let read = self.disk.try_read(inode, position, length);
        let at = match read {
            Ok(bytes) if !is_failing => return Ok(bytes),
            Ok(_) if self.random.chance(500) => {
                return Ok(self.read_elsewhere(inode, position, length));
            }
            Ok(_) => position,
            Err(at) => at,
        };
        self.run.counts.reads_failed += 1;
        let node = self.node;
        self.run.note(&[62, node as u64, at], || {
            format!("node {node}: {path} cannot be read at {at}")
        });
        Err(format!("{path} cannot be read at {at}"))
    }

    /// A read that gives the bytes of another place of the file.
    fn read_elsewhere(&mut self, inode: Inode, position: u64, length: u64) -> Bytes {
        let size = self.disk.size(inode);
        let at = self.random.below(size.saturating_sub(length).max(1));
        self.run.counts.reads_misdirected += 1;
        let node = self.node;
        self.run.note(&[63, node as u64, at], || {
            format!("node {node}: reads at {at} instead of {position}")
        });
        self.disk.read(inode, at, length)
    }

    fn note_failure(&mut self, what: &str) {
        let node = self.node;
        self.run.note(&[61, node as u64], || {
            format!("node {node}: a {what} fails")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Failing, SLOW_FLUSH_MAX, Trouble};
    use crate::{random::Random, run::MILLISECOND, scenario::Scenario};

    #[test]
    fn slow_disk_is_slow_for_a_while_and_the_rest_is_as_before() {
        let usual = Scenario::new(&mut Random::new(3), 1).latency;
        let mut trouble = Trouble::default();
        trouble.slow_down(50, 20);
        let slow = trouble.latency(usual, 49);
        assert!(slow.flush >= 4 * usual.flush, "{slow:?}");
        assert!(
            slow.flush <= SLOW_FLUSH_MAX.max(4 * usual.flush),
            "{slow:?}"
        );
        assert!(slow.write >= 4 * usual.write && slow.read >= 4 * usual.read);
        assert_eq!((slow.turn, slow.mesh), (usual.turn, usual.mesh));
        assert_eq!(trouble.latency(usual, 50).flush, usual.flush);
        trouble.slow_down(100 * MILLISECOND, 20);
        trouble.calm();
        assert_eq!(trouble.latency(usual, 0).flush, usual.flush);
    }

    #[test]
    fn after_a_failure_everything_fails_until_the_process_is_gone() {
        let mut trouble = Trouble::default();
        trouble.fail_next(Failing::Flush);
        assert!(!trouble.fails(Failing::Write));
        assert!(trouble.fails(Failing::Flush));
        assert!(trouble.fails(Failing::Write));
        trouble.calm();
        assert_eq!(trouble.failed(), Some(Failing::Flush));
        trouble.forget_failure();
        assert!(!trouble.fails(Failing::Flush));
    }
}
