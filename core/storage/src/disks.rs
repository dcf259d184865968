//! Which disk each node of the cluster has: a node that comes with another one has lost what it promised (V13).

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use wire::ReplicaId;

use crate::{DataDirectory, Error, directory::write_durably};

/// The disks of the nodes, as far as this one has met them.
#[derive(Debug)]
pub struct Disks {
    path: PathBuf,
    own: u128,
    /// Invariant: what is in it is in the file, durably.
    known: Mutex<BTreeMap<ReplicaId, u128>>,
}

impl Disks {
    /// Reads what a data directory holds of it; the first time it is given `fresh` as the name of its disk.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or cannot be written.
    pub fn open(directory: &DataDirectory, fresh: u128) -> Result<Self, Error> {
        let path = directory.path().join("disks");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let disks = Self {
                    path,
                    own: fresh,
                    known: Mutex::default(),
                };
                write_durably(&disks.path, disks.render(&BTreeMap::new()).as_bytes())?;
                return Ok(disks);
            }
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        let damaged = |line: &str| Error::Damaged {
            path: path.clone(),
            problem: format!("{line:?} is not a node and its disk"),
        };
        let (mut own, mut known) = (None, BTreeMap::new());
        for line in text.lines() {
            let (who, disk) = line.split_once(' ').ok_or_else(|| damaged(line))?;
            let disk = u128::from_str_radix(disk, 16).map_err(|_| damaged(line))?;
            if who == "own" {
                own = Some(disk);
            } else {
                let replica = who.parse().map_err(|_| damaged(line))?;
                known.insert(ReplicaId(replica), disk);
            }
        }
        let own = own.ok_or_else(|| damaged("the end"))?;
        let known = Mutex::new(known);
        Ok(Self { path, own, known })
    }

    /// The name of this node's disk.
    #[must_use]
    pub const fn own(&self) -> u128 {
        self.own
    }

    /// Whether a node still has the disk that it came with the first time, which is remembered durably.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn admit(&self, replica: ReplicaId, disk: u128) -> Result<bool, Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = known.get(&replica) {
            return Ok(*before == disk);
        }
        let mut with = known.clone();
        with.insert(replica, disk);
        write_durably(&self.path, self.render(&with).as_bytes())?;
        *known = with;
        Ok(true)
    }

    fn render(&self, known: &BTreeMap<ReplicaId, u128>) -> String {
        let mut text = format!("own {:032x}\n", self.own);
        for (replica, disk) in known {
            writeln!(text, "{} {disk:032x}", replica.0).expect("text takes everything");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use journal::UnitSize;
    use wire::ClusterId;

    use super::*;
    use crate::Format;

    #[test]
    fn node_with_another_disk_is_not_admitted_and_that_is_remembered() {
        let place = tempfile::tempdir().unwrap();
        let format = Format {
            cluster: ClusterId(7),
            replica: ReplicaId(0),
            replica_count: 1,
            data_groups: 2,
            unit_size: UnitSize::default(),
            nodes: Vec::new(),
        };
        let directory =
            DataDirectory::format(&place.path().join("data"), format, 16 << 20).unwrap();
        let disks = Disks::open(&directory, 5).unwrap();
        assert_eq!(disks.own(), 5);
        assert!(disks.admit(ReplicaId(1), 77).unwrap());
        assert!(disks.admit(ReplicaId(1), 77).unwrap());
        assert!(!disks.admit(ReplicaId(1), 78).unwrap());
        drop(disks);
        let disks = Disks::open(&directory, 6).unwrap();
        assert_eq!(disks.own(), 5, "a disk has its name for ever");
        assert!(!disks.admit(ReplicaId(1), 78).unwrap());
        assert!(disks.admit(ReplicaId(1), 77).unwrap());
        assert!(disks.admit(ReplicaId(2), 78).unwrap());
        for wrong in ["", "own\n", "own 5\n1 x\n", "own 5\nx 1\n"] {
            fs::write(place.path().join("data/disks"), wrong).unwrap();
            let told = Disks::open(&directory, 6).unwrap_err().to_string();
            assert!(told.contains("disks"), "{told}");
        }
    }
}
