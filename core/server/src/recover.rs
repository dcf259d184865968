//! `cohort-server recover`: the ways back for a node whose disk cannot be used as it is.
//!
//! A single node has nobody to ask: what is damaged in its journal is told, and an uncertain tail given up if
//! that is asked for. A node of a cluster gets a data directory that is empty and says so (V13): the others
//! bring it what it had, and it takes part when nothing depends on what it has forgotten.

use std::{
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use journal::{Journal, Uncertain, Verdict};
use storage::{DataDirectory, FoundJournal, JournalThread, scan_journal};
use wire::DiskId;

use crate::{
    Exit,
    config::Config,
    format,
    node::{StartError, fatal},
    random, settings,
};

/// What `recover` may do beyond saying what is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permission {
    /// Give up an uncertain tail of the journal.
    pub cut: bool,
    /// Move what is in the data directory aside, and begin anew.
    pub discard_disk: bool,
}

/// On a single node says what is damaged in the journal, and perhaps cuts it; on a node of a cluster formats
/// the data directory so that the node comes back from the others.
pub fn recover(config: &Config, permission: Permission) -> Exit {
    match try_recover(config, permission) {
        Ok(exit) => exit,
        Err(error) => {
            tracing::error!("{error}");
            error.exit()
        }
    }
}

fn try_recover(config: &Config, permission: Permission) -> Result<Exit, StartError> {
    let Permission { cut, discard_disk } = permission;
    if config.replica_count() > 1 {
        return match cut {
            true => Err(StartError::CutInCluster),
            false => rejoin(config, discard_disk),
        };
    }
    let path = &config.node.data_directory;
    let directory = path.display().to_string();
    if discard_disk || !DataDirectory::is_formatted(path)? {
        return Err(StartError::RecoverAlone { directory });
    }
    let directory = DataDirectory::open(path)?;
    if cut && directory.record().replica_count > 1 {
        return Err(StartError::CutInCluster);
    }
    examine(config, &directory, cut)
}

/// Formats an empty or missing data directory in the place of the one that the node had before.
fn rejoin(config: &Config, discard_disk: bool) -> Result<Exit, StartError> {
    let path = &config.node.data_directory;
    let mut disk = DiskId {
        name: random::id(),
        recovered: now()?,
    };
    let content = DataDirectory::content(path)?;
    if !content.is_empty() {
        let before = DataDirectory::is_formatted(path)?.then(|| DataDirectory::open(path));
        if !discard_disk {
            return Err(refuse(config, &content, before));
        }
        // A disk takes the place of another one only if it is later, whatever the clock says.
        if let Some(Ok(before)) = &before
            && let Some(before) = before.record().recovered
        {
            disk.recovered = disk.recovered.max(before.recovered.saturating_add(1));
        }
        drop(before);
        let aside = DataDirectory::discard(path, &disk.recovered.to_string())?;
        tracing::info!(path = %aside.display(), content = content.join(", "), "moved aside, nothing is deleted");
    }
    let directory = format::format_directory(config, Some(disk))?;
    let record = directory.record();
    tracing::info!(
        path = %directory.path().display(),
        cluster = %format_args!("{:032x}", record.cluster.0),
        node = record.replica.0,
        %disk,
        "data directory formatted in the place of the one before, which the others refuse as soon as they know \
         of this one; start the node, and the others bring it what it had"
    );
    Ok(Exit::Success)
}

/// Says what is in a directory that nobody has given up.
fn refuse(
    config: &Config,
    content: &[String],
    before: Option<Result<DataDirectory, storage::Error>>,
) -> StartError {
    let directory = config.node.data_directory.display().to_string();
    let about = match before {
        None => "it is not formatted".to_owned(),
        Some(Err(error @ storage::Error::Locked { .. })) => return error.into(),
        Some(Err(error)) => error.to_string(),
        Some(Ok(before)) => {
            // What is damaged is told; the refusal is the same.
            if let Err(error) = examine(config, &before, false) {
                tracing::error!("{error}");
            }
            let record = before.record();
            format!(
                "it was formatted for node {} of cluster {:032x}",
                record.replica, record.cluster.0
            )
        }
    };
    StartError::InUse {
        directory,
        content: content.join(", "),
        about,
    }
}

/// Nanoseconds since 1970.
fn now() -> Result<u64, StartError> {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = elapsed.ok().map(|elapsed| elapsed.as_nanos());
    nanoseconds
        .and_then(|nanoseconds| u64::try_from(nanoseconds).ok())
        .filter(|nanoseconds| *nanoseconds > 0)
        .ok_or(StartError::Clock)
}

/// Says what is damaged in the journal; with `cut`, gives an uncertain tail up, so that the node starts.
fn examine(config: &Config, directory: &DataDirectory, cut: bool) -> Result<Exit, StartError> {
    let record = directory.record();
    let is_alone = record.replica_count == 1;
    let journal = settings::journal(config, record);
    let uncertain = if cut { Uncertain::Cut } else { Uncertain::Keep };
    let found = scan_journal(directory.path(), journal, Some(uncertain))?;
    tell_damage(&found);
    refuse_lost_journal(directory, &found)?;
    let damage = &found.scanned.damage;
    if damage.is_empty() {
        tracing::info!("nothing is damaged in the journal");
    }
    let has = |verdict| damage.iter().any(|damage| damage.verdict == verdict);
    let (uncertain, rotten) = (has(Verdict::Uncertain), has(Verdict::Rotten));
    if uncertain && cut {
        let journal = Journal::resume(journal, found.scanned.resume);
        JournalThread::start(directory.path(), journal, Box::new(|_| ()), Arc::new(fatal))?.stop();
        tracing::info!("what is uncertain was cut");
    } else if uncertain && is_alone {
        tracing::info!(
            "nothing was changed; `cohort-server recover --cut` gives up what is uncertain"
        );
    }
    if rotten && is_alone {
        tracing::info!(
            "what is rotten was flushed and may have been acknowledged, so it is not given up; only a copy \
             of the data directory has it. The consensus groups named serve nothing until then, the others do"
        );
    } else if (rotten || uncertain) && !is_alone {
        tracing::info!("the other nodes have what is damaged: it is fetched when the node runs");
    }
    Ok(if rotten || uncertain && !cut {
        Exit::Damaged
    } else {
        Exit::Success
    })
}

/// A journal that is gone must not be taken for one that was never written: everything would begin anew.
pub(crate) fn refuse_lost_journal(
    directory: &DataDirectory,
    found: &FoundJournal,
) -> Result<(), storage::Error> {
    let problem = if found.size == 0 {
        "there is no file in it"
    } else if found.scanned.groups.is_empty() && directory.has_groups()? {
        "nothing is written in it, but there are files of consensus groups beside it"
    } else {
        return Ok(());
    };
    // A copy of an earlier day has forgotten what its node has promised since.
    let way_on = match directory.record().replica_count {
        1 => {
            "put it back, or the whole data directory from a copy: without the journal nothing that was \
             stored can be served"
        }
        _ => {
            "put it back if it is still somewhere, as it was last; or `cohort-server recover --discard-disk` \
             moves the data directory aside and has the node come back from the others. Never use a copy of \
             an earlier time"
        }
    };
    Err(storage::Error::Damaged {
        path: Path::join(directory.path(), "journal"),
        problem: format!("{problem}; {way_on}"),
    })
}

pub(crate) fn tell_damage(found: &FoundJournal) {
    for damage in &found.scanned.damage {
        match damage.verdict {
            Verdict::Torn => {
                tracing::warn!("journal: {damage}; it was never acknowledged, and is cut")
            }
            Verdict::Rotten | Verdict::Uncertain => {
                tracing::error!("journal: {damage}")
            }
        }
    }
    for stray in &found.strays {
        tracing::warn!(path = %stray.display(), "no file of the journal: it is left alone");
    }
}
