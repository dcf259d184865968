//! Which disk each node of the cluster has: a node that comes with another one has lost what it promised (V13).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs, io,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use wire::{DiskId, ReplicaId};

use crate::{DataDirectory, Error, directory::write_durably};

/// The disks of the nodes, as far as this one has met them or was told of them.
#[derive(Debug)]
pub struct Disks {
    path: PathBuf,
    replica: ReplicaId,
    own: DiskId,
    /// Invariant: what is in it is in the file, durably.
    noted: Mutex<Noted>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Noted {
    /// Of the other nodes.
    known: BTreeMap<ReplicaId, DiskId>,
    /// The nodes that have noted this one's disk in the place of the one before.
    admitted_by: BTreeSet<ReplicaId>,
}

impl Disks {
    /// Reads what a data directory holds of it. The first time its disk is given the name `fresh`, unless it
    /// got one when it was formatted.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or cannot be written.
    pub fn open(directory: &DataDirectory, fresh: u128) -> Result<Self, Error> {
        let path = directory.path().join("disks");
        let record = directory.record();
        let disks = |own, noted| Self {
            path: path.clone(),
            replica: record.replica,
            own: record.recovered.unwrap_or(own),
            noted: Mutex::new(noted),
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let own = DiskId {
                    name: fresh,
                    recovered: 0,
                };
                let disks = disks(own, Noted::default());
                disks.write(&Noted::default())?;
                return Ok(disks);
            }
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        let (own, noted) = parse(&text).map_err(|line| Error::Damaged {
            path: path.clone(),
            problem: format!("{line:?} is not a node and its disk"),
        })?;
        Ok(disks(own, noted))
    }

    /// This node's disk.
    #[must_use]
    pub const fn own(&self) -> DiskId {
        self.own
    }

    /// The disks of all nodes that are known, this one's among them.
    #[must_use]
    pub fn known(&self) -> BTreeMap<ReplicaId, DiskId> {
        let mut known = self.lock().known.clone();
        known.insert(self.replica, self.own);
        known
    }

    /// Judges a node by what it tells of the nodes' disks, its own among them, and remembers durably what is
    /// new: the first disk of a node, and one that takes the place of another. Gives the nodes whose disk was
    /// replaced, or of a node that may not come with its disk the one that counts.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn meet(
        &self,
        replica: ReplicaId,
        told: &BTreeMap<ReplicaId, DiskId>,
    ) -> Result<Result<Vec<ReplicaId>, DiskId>, Error> {
        let mut noted = self.lock();
        let disk = told.get(&replica).copied().unwrap_or_default();
        if let Some(before) = noted.known.get(&replica)
            && *before != disk
            && !disk.replaces(*before)
        {
            return Ok(Err(*before));
        }
        let mut with = noted.clone();
        let mut replaced = Vec::new();
        for (node, disk) in told.iter().filter(|(node, _)| **node != self.replica) {
            match with.known.get(node) {
                Some(before) if disk.replaces(*before) => replaced.push(*node),
                Some(_) => continue,
                None => {}
            }
            with.known.insert(*node, *disk);
        }
        if with != *noted {
            self.write(&with)?;
            *noted = with;
        }
        Ok(Ok(replaced))
    }

    /// Remembers durably that a node has noted this one's disk. Gives the number of those that have. Nobody
    /// needs to where the disk took nobody's place: then it is none.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn admitted(&self, by: ReplicaId) -> Result<usize, Error> {
        let mut noted = self.lock();
        if self.own.recovered > 0 && !noted.admitted_by.contains(&by) {
            let mut with = noted.clone();
            with.admitted_by.insert(by);
            self.write(&with)?;
            *noted = with;
        }
        Ok(noted.admitted_by.len())
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, noted: &Noted) -> Result<(), Error> {
        let mut text = String::new();
        let mut line = |who: &dyn std::fmt::Display, disk: &DiskId| {
            let DiskId { name, recovered } = disk;
            match recovered {
                0 => writeln!(text, "{who} {name:032x}"),
                _ => writeln!(text, "{who} {name:032x} {recovered}"),
            }
            .expect("text takes everything");
        };
        line(&"own", &self.own);
        noted
            .known
            .iter()
            .for_each(|(replica, disk)| line(replica, disk));
        for replica in &noted.admitted_by {
            writeln!(text, "admitted {replica}").expect("text takes everything");
        }
        write_durably(&self.path, text.as_bytes())
    }
}

/// What the file says; the line that says nothing.
fn parse(text: &str) -> Result<(DiskId, Noted), String> {
    let (mut own, mut noted) = (None, Noted::default());
    for line in text.lines() {
        let wrong = || line.to_owned();
        let (who, what) = line.split_once(' ').ok_or_else(wrong)?;
        if who == "admitted" {
            let by = what.parse().map_err(|_| wrong())?;
            noted.admitted_by.insert(ReplicaId(by));
            continue;
        }
        let (name, recovered) = what.split_once(' ').unwrap_or((what, "0"));
        let disk = DiskId {
            name: u128::from_str_radix(name, 16).map_err(|_| wrong())?,
            recovered: recovered.parse().map_err(|_| wrong())?,
        };
        if who == "own" {
            own = Some(disk);
        } else {
            let replica = who.parse().map_err(|_| wrong())?;
            noted.known.insert(ReplicaId(replica), disk);
        }
    }
    own.map(|own| (own, noted))
        .ok_or_else(|| "the end".to_owned())
}

#[cfg(test)]
mod tests {
    use journal::UnitSize;
    use tempfile::TempDir;
    use wire::ClusterId;

    use super::*;
    use crate::Format;

    /// A data directory of node 0.
    fn directory(place: &TempDir, recovered: Option<DiskId>) -> DataDirectory {
        let format = Format {
            cluster: ClusterId(7),
            replica: ReplicaId(0),
            replica_count: 1,
            data_groups: 2,
            unit_size: UnitSize::default(),
            nodes: Vec::new(),
            recovered,
        };
        DataDirectory::format(&place.path().join("data"), format, 16 << 20).unwrap()
    }

    fn disk(name: u128, recovered: u64) -> DiskId {
        DiskId { name, recovered }
    }

    /// A node comes with a disk and tells of no others.
    fn comes(
        disks: &Disks,
        replica: u8,
        name: u128,
        recovered: u64,
    ) -> Result<Vec<ReplicaId>, DiskId> {
        let replica = ReplicaId(replica);
        let told = BTreeMap::from([(replica, disk(name, recovered))]);
        disks.meet(replica, &told).unwrap()
    }

    #[test]
    fn node_with_another_disk_is_not_admitted_and_that_is_remembered() {
        let place = tempfile::tempdir().unwrap();
        let directory = directory(&place, None);
        let disks = Disks::open(&directory, 5).unwrap();
        assert_eq!(disks.own(), disk(5, 0));
        assert_eq!(comes(&disks, 1, 77, 0), Ok(vec![]));
        assert_eq!(comes(&disks, 1, 77, 0), Ok(vec![]));
        assert_eq!(comes(&disks, 1, 78, 0), Err(disk(77, 0)));
        drop(disks);
        let disks = Disks::open(&directory, 6).unwrap();
        assert_eq!(disks.own(), disk(5, 0), "a disk has its name for ever");
        assert_eq!(comes(&disks, 1, 78, 0), Err(disk(77, 0)));
        assert_eq!(comes(&disks, 1, 77, 0), Ok(vec![]));
        assert_eq!(comes(&disks, 2, 78, 0), Ok(vec![]));
        for wrong in [
            "",
            "own\n",
            "own 5\n1 x\n",
            "own 5\nx 1\n",
            "own 5\n1 7 x\n",
            "own 5\nadmitted x\n",
        ] {
            fs::write(place.path().join("data/disks"), wrong).unwrap();
            let told = Disks::open(&directory, 6).unwrap_err().to_string();
            assert!(told.contains("disks"), "{told}");
        }
    }

    #[test]
    fn recovered_disk_takes_the_place_of_the_one_before_and_none_comes_back() {
        let place = tempfile::tempdir().unwrap();
        let directory = directory(&place, None);
        let disks = Disks::open(&directory, 5).unwrap();
        assert_eq!(comes(&disks, 1, 77, 0), Ok(vec![]));
        assert_eq!(comes(&disks, 1, 78, 1_000), Ok(vec![ReplicaId(1)]));
        assert_eq!(comes(&disks, 1, 78, 1_000), Ok(vec![]));
        assert_eq!(comes(&disks, 1, 77, 0), Err(disk(78, 1_000)));
        assert_eq!(comes(&disks, 1, 79, 1_000), Err(disk(78, 1_000)));
        assert_eq!(comes(&disks, 1, 80, 2_000), Ok(vec![ReplicaId(1)]));
        drop(disks);
        let disks = Disks::open(&directory, 6).unwrap();
        assert_eq!(comes(&disks, 1, 78, 1_000), Err(disk(80, 2_000)));
        assert_eq!(comes(&disks, 1, 77, 0), Err(disk(80, 2_000)));
        assert_eq!(comes(&disks, 1, 80, 2_000), Ok(vec![]));
        // One that was never met here is as old as one that was.
        assert_eq!(comes(&disks, 1, 81, 1_500), Err(disk(80, 2_000)));
    }

    #[test]
    fn replacement_is_learned_from_a_node_that_was_there_and_from_no_node_that_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let disks = Disks::open(&directory(&place, None), 5).unwrap();
        comes(&disks, 1, 77, 0).unwrap();
        comes(&disks, 2, 22, 0).unwrap();
        let refused = BTreeMap::from([(ReplicaId(2), disk(23, 0)), (ReplicaId(1), disk(78, 9))]);
        let met = disks.meet(ReplicaId(2), &refused).unwrap();
        assert_eq!(met, Err(disk(22, 0)));
        assert_eq!(disks.known()[&ReplicaId(1)], disk(77, 0));

        let told = BTreeMap::from([
            (ReplicaId(2), disk(22, 0)),
            (ReplicaId(1), disk(78, 9)),
            (ReplicaId(0), disk(6, 99)),
        ]);
        let met = disks.meet(ReplicaId(2), &told).unwrap();
        assert_eq!(met, Ok(vec![ReplicaId(1)]));
        assert_eq!(comes(&disks, 1, 77, 0), Err(disk(78, 9)));
        let known = BTreeMap::from([
            (ReplicaId(0), disk(5, 0)),
            (ReplicaId(1), disk(78, 9)),
            (ReplicaId(2), disk(22, 0)),
        ]);
        assert_eq!(disks.known(), known, "of itself a node knows best");
    }

    #[test]
    fn recovered_node_remembers_who_has_admitted_it() {
        let place = tempfile::tempdir().unwrap();
        let formatted = Disks::open(&directory(&place, None), 5).unwrap();
        assert_eq!(formatted.admitted(ReplicaId(1)).unwrap(), 0);

        let place = tempfile::tempdir().unwrap();
        let own = disk(9, 1_000);
        let directory = directory(&place, Some(own));
        let disks = Disks::open(&directory, 5).unwrap();
        assert_eq!(disks.own(), own);
        assert_eq!(disks.admitted(ReplicaId(1)).unwrap(), 1);
        assert_eq!(disks.admitted(ReplicaId(1)).unwrap(), 1);
        drop(disks);
        let disks = Disks::open(&directory, 5).unwrap();
        assert_eq!(disks.own(), own);
        assert_eq!(disks.admitted(ReplicaId(2)).unwrap(), 2);
    }
}
