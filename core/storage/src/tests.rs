//! What threads do at the edges: a stop, a crash in the middle of a write, a full disk.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use journal::{
    Config, Effect, FileId, Input, Journal, Record, Ticket, Uncertain, UnitSize, Verdict,
};
use wire::{
    ClusterId, ConsensusGroup, Incarnation, Offset, Op, PartitionId, PartitionKey, PrepareHeader,
    ReplicaId, ShardId, StreamId, TopicId,
};

use crate::{
    DataDirectory, Done, Error, FileKind, FileThreads, Format, Job, JournalEvent, JournalThread,
    SegmentName, Segments, Snapshots,
    journal_files::{path_of, prepare},
    paths::{create_directory, journal_directory},
    scan_journal,
};

/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn config() -> Config {
    Config {
        file_size: 512 * 1024,
        first_file_size: 128 * 1024,
        frame_size: 64 * 1024,
        live_max: 4 * 1024 * 1024,
        checkpoint_at: 2 * 1024 * 1024,
        ..Config::new(7, UnitSize::Bytes512)
    }
}

fn record(group: u16, op: u64, size: usize) -> Record {
    let body = Bytes::from(vec![u8::try_from(op % 251).expect("less"); size]);
    Record::Prepare {
        header: PrepareHeader {
            group,
            op,
            ..PrepareHeader::default()
        }
        .sealed(&body),
        body,
    }
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    create_directory(&journal_directory(directory.path())).expect("it is ours");
    directory
}

/// A running journal, and what it tells.
struct Running {
    thread: JournalThread,
    events: Receiver<JournalEvent>,
    flushed: BTreeMap<ShardId, Ticket>,
}

impl Running {
    fn start(data: &Path, uncertain: Option<Uncertain>) -> Self {
        let found = scan_journal(data, config(), uncertain).expect("it can be started");
        let (tell, events) = mpsc::channel();
        let listener = Box::new(move |event| tell.send(event).unwrap_or_default());
        let journal = Journal::resume(config(), found.scanned.resume);
        let fatal = Arc::new(|error: Error| panic!("{error}"));
        let thread = JournalThread::start(data, journal, listener, fatal);
        Self {
            thread: thread.expect("a thread"),
            events,
            flushed: BTreeMap::new(),
        }
    }

    fn write(&mut self, records: Vec<Record>) {
        let mut records = records;
        let last = records.len() as u64 + self.flushed.get(&ShardId(0)).map_or(0, |t| t.0);
        self.thread.handle().submit(ShardId(0), &mut records);
        self.wait(ShardId(0), Ticket(last));
    }

    fn wait(&mut self, shard: ShardId, ticket: Ticket) {
        while self
            .flushed
            .get(&shard)
            .is_none_or(|flushed| *flushed < ticket)
        {
            let event = self.events.recv_timeout(PATIENCE);
            if let JournalEvent::Progress { shard, progress } = event.expect("it goes on") {
                self.flushed.insert(shard, progress.flushed);
            }
        }
    }
}

fn ops(data: &Path, group: u16) -> Vec<u64> {
    let found = scan_journal(data, config(), Some(Uncertain::Keep)).expect("it is readable");
    let group = found.scanned.groups.get(&ConsensusGroup(group));
    let prepares = group.map(|group| group.prepares.iter().map(|prepare| prepare.header.op));
    prepares.map_or_else(Vec::new, Iterator::collect)
}

fn verdicts(data: &Path) -> Vec<Verdict> {
    let found = scan_journal(data, config(), Some(Uncertain::Keep)).expect("it is readable");
    found.scanned.damage.iter().map(|d| d.verdict).collect()
}

/// Hands records over and writes them without a thread; the last frame goes to the file only in those of
/// its units that `keeps` names, and is not flushed.
fn crash_after(data: &Path, records: Vec<Record>, keeps: impl Fn(usize) -> bool) {
    let directory = journal_directory(data);
    let found = scan_journal(data, config(), Some(Uncertain::Keep)).expect("it is readable");
    let mut journal = Journal::resume(config(), found.scanned.resume);
    let mut records = Some(records);
    while let Some(effect) = journal.next_effect() {
        match effect {
            Effect::Write { file, position } => {
                let file = fs::File::options()
                    .write(true)
                    .open(path_of(&directory, file));
                let file = file.expect("it is there");
                if !journal.is_ready() && records.is_some() {
                    file.write_all_at(journal.frame(), position).expect("space");
                    continue;
                }
                for (index, unit) in journal.frame().chunks(512).enumerate() {
                    if keeps(index) || records.is_some() {
                        let position = position + index as u64 * 512;
                        file.write_all_at(unit, position).expect("space");
                    }
                }
                if records.is_none() {
                    return;
                }
            }
            Effect::Flush { .. } => journal.handle(Input::Flushed),
            Effect::Prepare { file, from, size } => {
                prepare(&directory, file, from, size, &false.into()).expect("space");
                journal.handle(Input::Prepared { file });
            }
            Effect::Progress { .. }
            | Effect::CheckpointWanted { .. }
            | Effect::Delete { .. }
            | Effect::Zero { .. }
            | Effect::Read { .. } => {}
        }
        if journal.is_ready()
            && let Some(records) = records.take()
        {
            for record in records {
                let shard = ShardId(0);
                journal.handle(Input::Record { shard, record });
            }
        }
    }
}

#[test]
fn clean_stop_covers_the_last_frame() {
    let directory = directory();
    let mut running = Running::start(directory.path(), None);
    running.write(vec![record(1, 1, 100)]);
    running.thread.stop();
    let path = path_of(&journal_directory(directory.path()), FileId(1));
    let mut bytes = fs::read(&path).expect("it is there");
    bytes[200] ^= 1;
    fs::write(&path, bytes).expect("it is ours");
    // Known to be flushed, since a frame follows it.
    assert_eq!(verdicts(directory.path()), [Verdict::Rotten]);
}

/// V18: what was not flushed is not acknowledged, the flush is not tried again, and the process is told to end.
#[test]
fn v18_failed_flush_ends_the_journal_and_acknowledges_nothing() {
    let directory = directory();
    let data = directory.path();
    let mut running = Running::start(data, None);
    running.write(vec![record(1, 1, 100)]);
    running.thread.stop();
    let found = scan_journal(data, config(), None).expect("it can be started");
    let path = path_of(&journal_directory(data), FileId(1));
    fs::remove_file(&path).expect("it is ours");
    // Takes nothing, whatever is asked of it.
    std::os::unix::fs::symlink("/dev/full", &path).expect("it is ours");

    let (tell, events) = mpsc::channel();
    let listener = Box::new(move |event| tell.send(event).unwrap_or_default());
    let (tell_fatal, fatal) = mpsc::channel();
    let thread = JournalThread::start(
        data,
        Journal::resume(config(), found.scanned.resume),
        listener,
        Arc::new(move |error: Error| tell_fatal.send(error).unwrap_or_default()),
    );
    let thread = thread.expect("a thread");
    thread
        .handle()
        .submit(ShardId(0), &mut vec![record(1, 2, 100)]);
    let error = fatal.recv_timeout(PATIENCE).expect("it is told");
    assert!(error.to_string().contains("flush"), "{error}");
    // It has let go of everything, so that nobody is told anything any more.
    loop {
        match events.recv_timeout(PATIENCE) {
            Ok(JournalEvent::Progress { progress, .. }) => {
                assert!(progress.flushed < Ticket(1), "{progress:?}");
            }
            Ok(JournalEvent::CheckpointWanted { .. }) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("it goes on"),
        }
    }
    assert!(fatal.try_recv().is_err(), "told once");
    thread.stop();
}

#[test]
fn torn_tail_is_cut_at_the_next_start() {
    let directory = directory();
    let mut running = Running::start(directory.path(), None);
    running.write(vec![record(1, 1, 100)]);
    running.thread.stop();
    crash_after(directory.path(), vec![record(1, 2, 20_000)], |unit| {
        unit != 7
    });
    assert_eq!(verdicts(directory.path()), [Verdict::Torn]);
    let mut running = Running::start(directory.path(), None);
    assert_eq!(verdicts(directory.path()), []);
    running.write(vec![record(1, 2, 100)]);
    running.thread.stop();
    assert_eq!(ops(directory.path(), 1), [1, 2]);
}

#[test]
fn what_was_written_and_not_flushed_is_written_again_before_it_counts() {
    let directory = directory();
    let mut running = Running::start(directory.path(), None);
    running.write(vec![record(1, 1, 100)]);
    running.thread.stop();
    crash_after(directory.path(), vec![record(1, 2, 5_000)], |_| true);
    let running = Running::start(directory.path(), None);
    running.thread.stop();
    assert_eq!(ops(directory.path(), 1), [1, 2]);
}

/// A file system of its own with `size` bytes, where the machine allows that.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory.path())
            .output();
        let mounted = mounted.is_ok_and(|output| output.status.success());
        mounted.then_some(Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn full_disk_makes_records_wait_until_there_is_space() {
    let Some(disk) = SmallDisk::mount("3m") else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let data = disk.0.path();
    create_directory(&journal_directory(data)).expect("there is space");
    let mut running = Running::start(data, None);
    let handle = running.thread.handle();
    fs::write(data.join("occupant"), vec![1; 2 * 1024 * 1024]).expect("there is space");
    let mut written = 0;
    let write = |written: &mut u64| {
        *written += 1;
        handle.submit(ShardId(0), &mut vec![record(1, *written, 30_000)]);
    };
    let mut told = 0;
    let start = Instant::now();
    while !handle.is_disk_full() {
        assert!(start.elapsed() < PATIENCE);
        if written == told {
            assert!(written < 200);
            write(&mut written);
        }
        // The last one gets no answer.
        match running.events.recv_timeout(Duration::from_millis(10)) {
            Ok(JournalEvent::Progress { shard, progress }) => {
                running.flushed.insert(shard, progress.flushed);
                told = progress.flushed.0;
            }
            Ok(JournalEvent::CheckpointWanted { .. }) | Err(RecvTimeoutError::Timeout) => {}
            Err(error) => panic!("{error}"),
        }
    }
    // More than the last file takes.
    for _ in 0..20 {
        write(&mut written);
    }
    let start = Instant::now();
    while !handle.is_stuck() {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
    fs::remove_file(data.join("occupant")).expect("it is there");
    running.wait(ShardId(0), Ticket(written));
    let start = Instant::now();
    while handle.is_disk_full() {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
    assert!(!handle.is_stuck());
    running.thread.stop();
    assert_eq!(verdicts(data), []);
    assert_eq!(ops(data, 1), (1..=written).collect::<Vec<_>>());
}

fn segment() -> SegmentName {
    SegmentName {
        group: ConsensusGroup(1),
        partition: PartitionKey {
            stream: StreamId(1),
            topic: TopicId(2),
            partition: PartitionId(0),
        },
        incarnation: Incarnation(4),
        base: Offset(0),
    }
}

#[test]
fn full_disk_makes_appends_wait_and_reads_go_on() {
    let Some(disk) = SmallDisk::mount("1m") else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let data = disk.0.path();
    let (tell, answers) = mpsc::channel();
    let answer = Arc::new(move |done| tell.send(done).unwrap_or_default());
    let fatal = Arc::new(|error: Error| panic!("{error}"));
    let files = FileThreads::start(data, 0, answer, fatal).expect("threads");
    let append = |ticket, position, size| Job::Append {
        ticket,
        segment: segment(),
        position,
        pieces: vec![Bytes::from(vec![5; size])],
    };
    files.submit(append(1, 0, 1_000));
    let first = answers.recv_timeout(PATIENCE);
    assert!(matches!(first, Ok(Done::Changed { ticket: 1 })));
    fs::write(data.join("occupant"), vec![1; 900 * 1024]).expect("there is space");
    files.submit(append(2, 1_000, 300 * 1024));
    files.submit(Job::Read {
        ticket: 3,
        segment: segment(),
        kind: FileKind::Segment,
        position: 0,
        length: 10,
    });
    let read = answers.recv_timeout(PATIENCE);
    assert!(matches!(
        read,
        Ok(Done::Read {
            ticket: 3,
            result: Ok(_)
        })
    ));
    fs::remove_file(data.join("occupant")).expect("it is there");
    let last = answers.recv_timeout(PATIENCE);
    assert!(matches!(last, Ok(Done::Changed { ticket: 2 })));
}

#[test]
fn deletion_behind_an_append_that_waits_for_space_makes_that_space() {
    let Some(disk) = SmallDisk::mount("1m") else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let data = disk.0.path();
    let (tell, answers) = mpsc::channel();
    let answer = Arc::new(move |done| tell.send(done).unwrap_or_default());
    let fatal = Arc::new(|error: Error| panic!("{error}"));
    let files = FileThreads::start(data, 0, answer, fatal).expect("threads");
    let old = SegmentName {
        incarnation: Incarnation(3),
        ..segment()
    };
    let append = |ticket, segment, size| Job::Append {
        ticket,
        segment,
        position: 0,
        pieces: vec![Bytes::from(vec![5; size])],
    };
    files.submit(append(1, old, 800 * 1024));
    let first = answers.recv_timeout(PATIENCE);
    assert!(matches!(first, Ok(Done::Changed { ticket: 1 })));
    files.submit(append(2, segment(), 600 * 1024));
    files.submit(append(3, old, 100));
    files.submit(Job::DeletePartition {
        ticket: 4,
        group: old.group,
        partition: old.partition,
        incarnation: old.incarnation,
    });
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE);
        match answers.recv_timeout(PATIENCE) {
            Ok(Done::Changed { ticket: 4 }) => break,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    drop(files);
    let written = fs::metadata(segment().segment(data)).expect("it is there");
    assert_eq!(written.len(), 600 * 1024);
    assert!(!old.directory(data).exists());
}

/// Everything below a directory.
fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("it is readable");
    let paths = entries.map(|entry| entry.expect("it is readable").path());
    paths
        .flat_map(|path| {
            let inner = if path.is_dir() {
                below(&path)
            } else {
                Vec::new()
            };
            inner.into_iter().chain([path])
        })
        .collect()
}

#[test]
fn other_accounts_of_the_machine_can_read_nothing() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let data = temporary.path().join("above/data");
    let format = Format {
        cluster: ClusterId(7),
        replica: ReplicaId(0),
        replica_count: 1,
        data_groups: 1,
        unit_size: UnitSize::Bytes512,
        nodes: Vec::new(),
        recovered: None,
    };
    let held = DataDirectory::format(&data, format, 64 * 1024).expect("it is empty");
    let mut segments = Segments::new(&data, 2);
    let piece = [Bytes::from_static(b"secret")];
    segments.append(&segment(), 0, &piece).expect("a segment");
    segments
        .write_index(&segment(), b"index")
        .expect("an index");
    let snapshots = Snapshots::new(&data);
    let group = segment().group;
    snapshots
        .write(group, Op(1), b"hashes")
        .expect("a snapshot");

    let found = below(temporary.path());
    for file in [
        "lock",
        "node.toml",
        ".journal",
        ".segment",
        ".index",
        "snapshot-",
    ] {
        let is_there = |path: &PathBuf| path.is_file() && path.display().to_string().contains(file);
        assert!(found.iter().any(is_there), "no {file} in {found:?}");
    }
    for path in found {
        let mode = fs::metadata(&path).expect("it is there").permissions();
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode.mode() & 0o777, expected, "{}", path.display());
    }
    drop(held);
}
