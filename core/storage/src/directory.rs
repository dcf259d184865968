//! The data directory of a node: its lock, and the record that says whose it is.

use std::{
    fs::{self, File, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use journal::{FileId, UnitSize};
use wire::{ClusterId, DiskId, ReplicaId, checksum64};

use crate::{
    Error, journal_files,
    paths::{create_directory, create_file, flush_directory, journal_directory, private_options},
};

/// The version of the record of a node that is alone.
const VERSION: u32 = 1;

/// The name of the record.
const RECORD: &str = "node.toml";

/// The version of one that names the nodes of a cluster.
const VERSION_OF_CLUSTER: u32 = 2;

/// The version of one that was formatted in the place of a lost one.
const VERSION_OF_RECOVERED: u32 = 3;

/// What the directories begin with into which discarded content is moved.
const DISCARDED: &str = "discarded-";

/// What a data directory was formatted for. Fixed for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The cluster.
    pub cluster: ClusterId,
    /// This node.
    pub replica: ReplicaId,
    /// Nodes of the cluster.
    pub replica_count: u8,
    /// Data groups of the cluster, G.
    pub data_groups: u16,
    /// The largest block that the device writes whole or not at all.
    pub unit_size: UnitSize,
    /// The nodes of the cluster, by replica; none are noted of one that is alone.
    pub nodes: Vec<FormatNode>,
    /// The disk, where `cohort-server recover` formatted it in the place of one that the node had before: what
    /// is not on it the node may have promised (V13).
    pub recovered: Option<DiskId>,
}

/// A node as the record names it. Neither address has white space in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatNode {
    /// Where clients reach it, `host:port`.
    pub client: String,
    /// Where the other nodes reach it, `host:port`.
    pub peer: String,
}

/// A data directory that this process holds.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    format: Format,
    /// Held while it lives.
    _lock: File,
}

impl DataDirectory {
    /// Opens a formatted directory and locks it.
    ///
    /// # Errors
    /// When it is not formatted, held by another process, damaged, or not accessible.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if !Self::is_formatted(path)? {
            return Err(Error::NotFormatted {
                path: path.to_path_buf(),
            });
        }
        // It never changes, so the lock can wait until the directory is known to be one of ours.
        let format = read_format(&record_path(path))?;
        let lock = lock(path)?;
        create_directory(&journal_directory(path))?;
        Ok(Self {
            path: path.to_path_buf(),
            format,
            _lock: lock,
        })
    }

    /// Whether the directory is formatted; one that does not exist is not.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn is_formatted(path: &Path) -> Result<bool, Error> {
        let record = record_path(path);
        record.try_exists().map_err(Error::io("look for", &record))
    }

    /// Formats an empty or missing directory, and opens it. What a start that was interrupted has left there
    /// is no hindrance, nor is what was discarded for one that is recovered. `journal_size` is that of the
    /// journal's first file, bytes.
    ///
    /// # Errors
    /// When there is something in it, or it cannot be written.
    pub fn format(path: &Path, format: Format, journal_size: u64) -> Result<Self, Error> {
        let refuse_content = || match content(path, format.recovered.is_some())?.first() {
            None => Ok(()),
            Some(first) => Err(Error::NotEmpty {
                path: path.to_path_buf(),
                reason: format!("there is {first} in it"),
            }),
        };
        create_directory(path)?;
        // First, so that a directory of somebody else stays as it is; again, as another process may have
        // had the lock.
        refuse_content()?;
        let lock = lock(path)?;
        refuse_content()?;
        let journal = journal_directory(path);
        create_directory(&journal)?;
        // Before the record: a formatted directory without a file of the journal has lost it.
        journal_files::prepare(&journal, FileId(1), None, journal_size, &false.into())?;
        let record = record_path(path);
        write_durably(&record, render(&format).as_bytes())?;
        Ok(Self {
            path: path.to_path_buf(),
            format,
            _lock: lock,
        })
    }

    /// What is in a directory, by name, but for what formatting puts there and for what was discarded before.
    /// Of one that does not exist: nothing.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn content(path: &Path) -> Result<Vec<String>, Error> {
        match path.try_exists().map_err(Error::io("look for", path))? {
            true => content(path, true),
            false => Ok(Vec::new()),
        }
    }

    /// Moves all content of a directory that no server uses into a new one inside it, whose name ends with
    /// `time`; gives its path. Nothing is deleted. One that was interrupted leaves no formatted directory.
    ///
    /// # Errors
    /// When another process holds the directory, or something cannot be moved.
    pub fn discard(path: &Path, time: &str) -> Result<PathBuf, Error> {
        let _lock = lock(path)?;
        let mut names = content(path, true)?;
        // First: without it nothing that is left behind can be started.
        names.sort_by_key(|name| name != RECORD);
        let aside = path.join(format!("{DISCARDED}{time}"));
        create_directory(&aside)?;
        for name in names {
            let from = path.join(&name);
            fs::rename(&from, aside.join(&name)).map_err(Error::io("move aside", &from))?;
            if name == RECORD {
                flush_directory(&aside)?;
                flush_directory(path)?;
            }
        }
        flush_directory(&aside)?;
        flush_directory(path)?;
        Ok(aside)
    }

    /// Whether there are files of a consensus group: segments or snapshots.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn has_groups(&self) -> Result<bool, Error> {
        for entry in fs::read_dir(&self.path).map_err(Error::io("read", &self.path))? {
            let name = entry.map_err(Error::io("read", &self.path))?.file_name();
            if name.to_string_lossy().starts_with("group-") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it was formatted for.
    #[must_use]
    pub const fn record(&self) -> &Format {
        &self.format
    }
}

/// What a directory holds but what formatting puts there, and what was `discarded` if that counts for nothing.
fn content(path: &Path, discarded: bool) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    let formatted = path.join(RECORD).exists();
    for entry in fs::read_dir(path).map_err(Error::io("read", path))? {
        let name = entry.map_err(Error::io("read", path))?.file_name();
        let name = name.to_string_lossy().into_owned();
        let counts_for_nothing = match name.as_str() {
            "lock" | "node.toml.new" | "lost+found" => true,
            "journal" => !formatted && journal_files::is_unused(&journal_directory(path))?,
            other => discarded && other.starts_with(DISCARDED),
        };
        if !counts_for_nothing {
            found.push(name);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn record_path(path: &Path) -> PathBuf {
    path.join(RECORD)
}

/// Writes a file so that it is there whole or not at all, also after a power failure.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let mut file = create_file(&temporary).map_err(Error::io("create", &temporary))?;
    file.write_all(bytes)
        .map_err(Error::io("write", &temporary))?;
    file.sync_all().map_err(Error::io("flush", &temporary))?;
    fs::rename(&temporary, path).map_err(Error::io("rename", &temporary))?;
    path.parent().map_or(Ok(()), flush_directory)
}

fn lock(path: &Path) -> Result<File, Error> {
    let lock_path = path.join("lock");
    let mut file = private_options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&lock_path)
        .map_err(Error::io("open", &lock_path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            // Its content is for people; the lock itself is what counts.
            let holder = file
                .read_to_string(&mut text)
                .ok()
                .and_then(|_| text.trim().parse().ok());
            return Err(Error::Locked {
                path: path.to_path_buf(),
                holder,
            });
        }
        Err(TryLockError::Error(error)) => return Err(Error::io("lock", &lock_path)(error)),
    }
    let told = file
        .set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| writeln!(file, "{}", std::process::id()));
    told.map_err(Error::io("write", &lock_path))?;
    Ok(file)
}

fn render(format: &Format) -> String {
    let version = match format {
        Format {
            recovered: Some(_), ..
        } => VERSION_OF_RECOVERED,
        Format { nodes, .. } if nodes.is_empty() => VERSION,
        Format { .. } => VERSION_OF_CLUSTER,
    };
    let mut text = format!(
        "# What this data directory was formatted for. Never edit it.\n\
         version = {version}\n\
         cluster = \"{:032x}\"\n\
         replica = {}\n\
         replica_count = {}\n\
         data_groups = {}\n\
         unit_size = {}\n",
        format.cluster.0,
        format.replica,
        format.replica_count,
        format.data_groups,
        format.unit_size.bytes(),
    );
    for (replica, node) in format.nodes.iter().enumerate() {
        let FormatNode { client, peer } = node;
        text.push_str(&format!("node_{replica} = \"{client} {peer}\"\n"));
    }
    if let Some(DiskId { name, recovered }) = format.recovered {
        text.push_str(&format!(
            "rejoining = true\ndisk = \"{name:032x}\"\nrecovered = {recovered}\n"
        ));
    }
    let checksum = checksum64(text.as_bytes());
    text.push_str(&format!("checksum = \"{checksum:016x}\"\n"));
    text
}

fn read_format(path: &Path) -> Result<Format, Error> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    parse(&text).map_err(|problem| Error::Damaged {
        path: path.to_path_buf(),
        problem,
    })
}

fn parse(text: &str) -> Result<Format, String> {
    let position = text
        .find("checksum = ")
        .ok_or("there is no checksum in it")?;
    let checksum = value(text, "checksum")?;
    if checksum != format!("{:016x}", checksum64(&text.as_bytes()[..position])) {
        return Err("it does not match its checksum".into());
    }
    let version: u32 = number(text, "version")?;
    if !(VERSION..=VERSION_OF_RECOVERED).contains(&version) {
        return Err(format!(
            "its version is {version}, this server reads {VERSION} to {VERSION_OF_RECOVERED}"
        ));
    }
    let cluster = value(text, "cluster")?;
    let cluster =
        u128::from_str_radix(cluster, 16).map_err(|_| format!("cluster {cluster} is no id"))?;
    let unit_size = number(text, "unit_size")?;
    let replica_count = number(text, "replica_count")?;
    let nodes = match version {
        VERSION => Vec::new(),
        _ => (0..replica_count)
            .map(|replica| node(text, replica))
            .collect::<Result<_, _>>()?,
    };
    let recovered = match version {
        VERSION_OF_RECOVERED => Some(recovered(text)?),
        _ => None,
    };
    Ok(Format {
        cluster: ClusterId(cluster),
        replica: ReplicaId(number(text, "replica")?),
        replica_count,
        data_groups: number(text, "data_groups")?,
        unit_size: UnitSize::from_bytes(unit_size)
            .ok_or(format!("unit_size {unit_size} is unknown"))?,
        nodes,
        recovered,
    })
}

fn recovered(text: &str) -> Result<DiskId, String> {
    let name = value(text, "disk")?;
    let number = u128::from_str_radix(name, 16).map_err(|_| format!("disk {name} is no name"))?;
    Ok(DiskId {
        name: number,
        recovered: self::number(text, "recovered")?,
    })
}

fn node(text: &str, replica: u8) -> Result<FormatNode, String> {
    let key = format!("node_{replica}");
    let found = value(text, &key)?;
    let (client, peer) = found
        .split_once(' ')
        .ok_or_else(|| format!("{key} = {found} is no pair of addresses"))?;
    Ok(FormatNode {
        client: client.to_owned(),
        peer: peer.to_owned(),
    })
}

fn value<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    text.lines()
        .filter_map(|line| line.split_once(" = "))
        .find(|(found, _)| *found == key)
        .map(|(_, value)| value.trim_matches('"'))
        .ok_or_else(|| format!("{key} is missing"))
}

fn number<T: std::str::FromStr>(text: &str, key: &str) -> Result<T, String> {
    let found = value(text, key)?;
    found
        .parse()
        .map_err(|_| format!("{key} = {found} is no number of its range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the journal's first file.
    const SIZE: u64 = 64 * 1024;

    fn format() -> Format {
        Format {
            cluster: ClusterId(0xABCD),
            replica: ReplicaId(0),
            replica_count: 1,
            data_groups: 24,
            unit_size: UnitSize::Bytes4096,
            nodes: Vec::new(),
            recovered: None,
        }
    }

    fn format_of_recovered() -> Format {
        Format {
            recovered: Some(DiskId {
                name: 0xD15C,
                recovered: 1_790_000_000_000_000_000,
            }),
            ..format_of_cluster()
        }
    }

    fn format_of_cluster() -> Format {
        let node = |replica| FormatNode {
            client: format!("10.0.0.{replica}:5100"),
            peer: format!("node-{replica}:5200"),
        };
        Format {
            replica: ReplicaId(2),
            replica_count: 3,
            nodes: (0..3).map(node).collect(),
            ..format()
        }
    }

    #[test]
    fn formatted_directory_opens_with_what_it_was_formatted_for() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b");
        assert!(matches!(
            DataDirectory::open(&path),
            Err(Error::NotFormatted { .. })
        ));
        drop(DataDirectory::format(&path, format(), SIZE).unwrap());
        let directory = DataDirectory::open(&path).unwrap();
        assert_eq!(*directory.record(), format());
    }

    #[test]
    fn record_of_a_single_node_is_the_one_of_the_first_version() {
        assert!(render(&format()).contains("version = 1\n"));
        assert!(render(&format_of_cluster()).contains("version = 2\n"));
        let recovered = render(&format_of_recovered());
        assert!(recovered.contains("version = 3\n") && recovered.contains("rejoining = true\n"));
    }

    #[test]
    fn second_holder_is_refused_and_told_who_holds_it() {
        let temporary = tempfile::tempdir().unwrap();
        let _held = DataDirectory::format(temporary.path(), format(), SIZE).unwrap();
        let refused = DataDirectory::open(temporary.path()).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(&std::process::id().to_string()), "{text}");
        assert!(
            text.contains(&temporary.path().display().to_string()),
            "{text}"
        );
    }

    #[test]
    fn directory_with_something_in_it_is_not_formatted() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("thesis.txt"), "x").unwrap();
        let refused = DataDirectory::format(temporary.path(), format(), SIZE).unwrap_err();
        assert!(refused.to_string().contains("thesis.txt"), "{refused}");
    }

    #[test]
    fn refused_directory_is_left_as_it_was() {
        let temporary = tempfile::tempdir().unwrap();
        let stranger = temporary.path().join("thesis.txt");
        let record = temporary.path().join("node.toml");
        let lock = temporary.path().join("lock");
        fs::write(&stranger, "x").unwrap();
        DataDirectory::format(temporary.path(), format(), SIZE).unwrap_err();
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);

        fs::write(&record, "nodes = 3").unwrap();
        DataDirectory::open(temporary.path()).unwrap_err();
        assert!(!lock.exists());

        // A lock of somebody else keeps what it says.
        fs::remove_file(&record).unwrap();
        fs::write(&lock, "theirs").unwrap();
        DataDirectory::format(temporary.path(), format(), SIZE).unwrap_err();
        assert_eq!(fs::read_to_string(&lock).unwrap(), "theirs");
    }

    #[test]
    fn interrupted_formatting_is_taken_up_again_and_a_used_journal_is_not_overwritten() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path();
        let journal = path.join("journal");
        let first = journal.join("0000000001.journal");
        drop(DataDirectory::format(path, format(), SIZE).unwrap());
        assert_eq!(fs::metadata(&first).unwrap().len(), SIZE);
        // As it is left by a crash before the record.
        fs::remove_file(path.join("node.toml")).unwrap();
        fs::write(journal.join("0000000001.new"), [0; 100]).unwrap();
        drop(DataDirectory::format(path, format(), SIZE).unwrap());

        fs::remove_file(path.join("node.toml")).unwrap();
        let mut used = fs::read(&first).unwrap();
        used[5_000] = 1;
        fs::write(&first, &used).unwrap();
        let refused = DataDirectory::format(path, format(), SIZE).unwrap_err();
        assert!(
            refused.to_string().contains("there is journal in it"),
            "{refused}"
        );
        assert_eq!(fs::read(&first).unwrap(), used);
    }

    #[test]
    fn discarded_content_is_all_there_and_hinders_only_a_directory_that_is_not_recovered() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("data");
        assert_eq!(DataDirectory::content(&path).unwrap(), [""; 0]);
        let held = DataDirectory::format(&path, format_of_cluster(), SIZE).unwrap();
        fs::write(path.join("disks"), "own 5\n").unwrap();
        let content = ["disks", "journal", "node.toml"];
        assert_eq!(DataDirectory::content(&path).unwrap(), content);
        let refused = DataDirectory::discard(&path, "then").unwrap_err();
        assert!(refused.to_string().contains("in use"), "{refused}");
        assert_eq!(DataDirectory::content(&path).unwrap(), content);
        drop(held);

        let aside = DataDirectory::discard(&path, "then").unwrap();
        assert_eq!(aside, path.join("discarded-then"));
        assert_eq!(DataDirectory::content(&path).unwrap(), [""; 0]);
        assert!(!DataDirectory::is_formatted(&path).unwrap());
        for name in content {
            assert!(aside.join(name).exists(), "{name}");
        }
        let refused = DataDirectory::format(&path, format_of_cluster(), SIZE).unwrap_err();
        assert!(refused.to_string().contains("discarded-then"), "{refused}");
        drop(DataDirectory::format(&path, format_of_recovered(), SIZE).unwrap());
        let opened = DataDirectory::open(&path).unwrap();
        assert_eq!(*opened.record(), format_of_recovered());
    }

    #[test]
    fn every_changed_byte_of_the_record_is_found() {
        for format in [format(), format_of_cluster(), format_of_recovered()] {
            let text = render(&format);
            assert_eq!(parse(&text), Ok(format.clone()));
            for index in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[index] ^= 1;
                let changed = String::from_utf8(bytes).unwrap();
                assert!(
                    parse(&changed).is_err() || parse(&changed) == Ok(format.clone()),
                    "byte {index}"
                );
            }
        }
    }
}
