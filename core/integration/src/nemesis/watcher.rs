//! Who asks one node, all the time, what is stored and where partitions end.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use wire::Reply;

use super::{findings::Findings, members::Book, producers::Progress, voice::Voice};
use crate::Group;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(40);

/// What was seen of all groups by all watchers: nothing lower may be seen afterwards. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Floor(Arc<Mutex<BTreeMap<(usize, u32), u64>>>);

/// Asks one node.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) address: SocketAddr,
    /// The groups, each with what its members say they have stored.
    pub(super) groups: Vec<(Group, Book)>,
    pub(super) floor: Floor,
    pub(super) progress: Progress,
    pub(super) findings: Findings,
    pub(super) answers: Arc<AtomicU64>,
}

impl Floor {
    fn at_least(&self, group: usize, stored: &BTreeMap<u32, u64>) -> BTreeMap<u32, u64> {
        let mut floor = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (partition, stored) in stored {
            let lowest = floor.entry((group, *partition)).or_insert(*stored);
            *lowest = (*lowest).max(*stored);
        }
        let of_group = floor.iter().filter(|((found, _), _)| *found == group);
        of_group
            .map(|((_, partition), offset)| (*partition, *offset))
            .collect()
    }
}

impl Watcher {
    pub(super) fn run(self) {
        let mut voice = None;
        while !self.findings.has_ended() {
            let speaker = match voice.take() {
                Some(speaker) => Some(speaker),
                None => Voice::login(&[self.address], 0),
            };
            if let Some(mut speaker) = speaker
                && (0..self.groups.len()).all(|group| self.look(group, &mut speaker).is_some())
            {
                voice = Some(speaker);
            }
            thread::sleep(PAUSE);
        }
    }

    /// `None` when another session is needed.
    fn look(&self, group: usize, voice: &mut Voice) -> Option<()> {
        let (watched, book) = &self.groups[group];
        let partitions: Vec<u32> = watched
            .topic
            .partitions
            .iter()
            .map(|one| one.id.0)
            .collect();
        // Known before it is asked.
        let floor = self.floor.at_least(group, &book.stored());
        let ends = self.progress.ends();
        let offsets = match voice.ask(watched.offsets_of(&partitions))? {
            Ok(Reply::Offsets(offsets)) => offsets,
            Ok(other) => {
                self.findings.wrong(format_args!("offsets: {other:?}"));
                return None;
            }
            Err(failure) if failure.code.retryable() => return Some(()),
            Err(_) => return None,
        };
        let mut seen = BTreeMap::new();
        for section in &offsets.sections {
            if section.status.is_err() {
                continue;
            }
            self.answers.fetch_add(1, Ordering::SeqCst);
            let partition = section.partition.0;
            let place = format!("{:?}, partition {partition}", watched.name);
            let stored = section.stored.map(|offset| offset.0);
            if stored < floor.get(&partition).copied() {
                self.findings.wrong(format_args!(
                    "{place}: {} says that {stored:?} is stored, it was {:?}",
                    self.address,
                    floor.get(&partition)
                ));
            }
            let end = ends[partition as usize];
            if section.end.0 < end {
                self.findings.wrong(format_args!(
                    "{place}: {} says that it ends at {}, {end} are acknowledged",
                    self.address, section.end
                ));
            }
            seen.extend(stored.map(|stored| (partition, stored)));
        }
        self.floor.at_least(group, &seen);
        Some(())
    }
}
