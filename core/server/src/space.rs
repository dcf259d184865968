//! Watches how much room the disk has, and tells the shards when that changes what they may take.

use std::{
    io,
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use network::InboxSender;
use shard::DiskSpace;
use storage::JournalHandle;

use crate::shard_loop::Outside;

/// How often the disk is asked.
const INTERVAL: Duration = Duration::from_millis(100);

/// The thread that watches; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SpaceWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What is watched, and who is told.
pub(crate) struct Watched {
    pub(crate) data: PathBuf,
    /// Bytes that messages must leave.
    pub(crate) reserve: u64,
    pub(crate) journal: JournalHandle,
    pub(crate) inboxes: Vec<InboxSender<Outside>>,
}

impl SpaceWatch {
    /// Looks once, tells the shards, and goes on in a thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(watched: Watched) -> io::Result<Self> {
        let mut known = DiskSpace::Enough;
        watched.look(&mut known);
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("disk-space".into())
            .spawn(move || {
                while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    watched.look(&mut known);
                }
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for SpaceWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread ends the process.
            let _ = thread.join();
        }
    }
}

impl Watched {
    fn look(&self, known: &mut DiskSpace) {
        let free = match storage::free_space(&self.data) {
            Ok(free) => free,
            Err(error) => {
                tracing::debug!("{error}");
                u64::MAX
            }
        };
        let found = judge(
            *known,
            free,
            self.reserve,
            (self.journal.is_disk_full(), self.journal.is_stuck()),
        );
        if found == *known {
            return;
        }
        *known = found;
        let (path, reserve) = (self.data.display(), self.reserve);
        match found {
            DiskSpace::Enough => {
                tracing::info!(free, "the disk has space again: messages are taken")
            }
            DiskSpace::Reserve => tracing::error!(
                free, reserve, %path,
                "the disk is nearly full: messages are refused (StorageFull) until there is space"
            ),
            DiskSpace::Nothing => tracing::error!(
                free, %path,
                "the disk is full: all writes are refused (StorageFull) until there is space"
            ),
        }
        for inbox in &self.inboxes {
            inbox.send(Outside::Disk(found));
        }
    }
}

/// What there is room for. Messages are taken again a little above the reserve, so that a disk at the edge
/// is not told of all the time.
const fn judge(
    known: DiskSpace,
    free: u64,
    reserve: u64,
    (journal_is_full, journal_is_stuck): (bool, bool),
) -> DiskSpace {
    if journal_is_stuck {
        return DiskSpace::Nothing;
    }
    let wanted = match known {
        DiskSpace::Enough => reserve,
        DiskSpace::Reserve | DiskSpace::Nothing => reserve + reserve / 8,
    };
    if journal_is_full || free < wanted {
        DiskSpace::Reserve
    } else {
        DiskSpace::Enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: u64 = 800;

    #[test]
    fn messages_are_refused_below_the_reserve_and_taken_again_an_eighth_above() {
        let well = (false, false);
        let judge = |known, free| judge(known, free, RESERVE, well);
        assert_eq!(judge(DiskSpace::Enough, 800), DiskSpace::Enough);
        assert_eq!(judge(DiskSpace::Enough, 799), DiskSpace::Reserve);
        assert_eq!(judge(DiskSpace::Reserve, 899), DiskSpace::Reserve);
        assert_eq!(judge(DiskSpace::Reserve, 900), DiskSpace::Enough);
    }

    #[test]
    fn journal_that_finds_no_space_counts_more_than_what_the_disk_says() {
        let judge = |journal| judge(DiskSpace::Enough, u64::MAX, RESERVE, journal);
        assert_eq!(judge((true, false)), DiskSpace::Reserve);
        assert_eq!(judge((true, true)), DiskSpace::Nothing);
    }

    #[test]
    fn no_reserve_leaves_it_to_the_journal() {
        let judge = |known| judge(known, 0, 0, (false, false));
        assert_eq!(judge(DiskSpace::Enough), DiskSpace::Enough);
        assert_eq!(judge(DiskSpace::Reserve), DiskSpace::Enough);
    }
}
