//! The journal's thread on real files: several shards, restarts, recycling, damage.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use journal::{
    Config, Journal, Progress, Record, SuperblockRecord, Ticket, Uncertain, UnitSize, Verdict,
};
use storage::{Error, FoundJournal, JournalEvent, JournalThread, scan_journal};
use tempfile::TempDir;
use wire::{ConsensusGroup, Op, PrepareHeader, ShardId};

const PATIENCE: Duration = Duration::from_secs(60);

fn config() -> Config {
    Config {
        file_size: 256 * 1024,
        first_file_size: 256 * 1024,
        frame_size: 32 * 1024,
        live_max: 4 * 1024 * 1024,
        checkpoint_at: 1024 * 1024,
        ..Config::new(7, UnitSize::Bytes512)
    }
}

fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    fs::create_dir(directory.path().join("journal")).expect("it can be written");
    directory
}

/// The files of a journal as they are now.
fn copy_of(data: &Path) -> TempDir {
    let copy = directory();
    for entry in fs::read_dir(data.join("journal")).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_some_and(|it| it == "journal") {
            let name = path.file_name().expect("a file has a name");
            fs::copy(&path, copy.path().join("journal").join(name)).expect("it can be copied");
        }
    }
    copy
}

fn prepare(group: u16, op: u64, size: usize) -> Record {
    let body = vec![u8::try_from(op % 251).expect("less"); size];
    let header = PrepareHeader {
        group,
        op,
        ..PrepareHeader::default()
    }
    .sealed(&body);
    Record::Prepare {
        header,
        body: Bytes::from(body),
    }
}

fn superblock(group: u16, checkpoint: u64) -> Record {
    let body = Bytes::from_static(b"promises");
    Record::Superblock(SuperblockRecord {
        group: ConsensusGroup(group),
        checkpoint: Op(checkpoint),
        body,
    })
}

/// A journal's thread, and what it tells.
struct Running {
    thread: JournalThread,
    events: Receiver<JournalEvent>,
    progress: BTreeMap<ShardId, Progress>,
    wanted: Vec<ConsensusGroup>,
}

impl Running {
    fn start(directory: &Path, found: FoundJournal) -> Self {
        let journal = Journal::resume(config(), found.scanned.resume);
        let (sender, events) = channel();
        let listener = Box::new(move |event| sender.send(event).expect("the test listens"));
        let fatal = Arc::new(|error: Error| panic!("{error}"));
        let thread = JournalThread::start(directory, journal, listener, fatal)
            .expect("threads can be started");
        Self {
            thread,
            events,
            progress: BTreeMap::new(),
            wanted: Vec::new(),
        }
    }

    fn wait_for(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            match self
                .events
                .recv_timeout(PATIENCE)
                .expect("the journal goes on")
            {
                JournalEvent::Progress { shard, progress } => {
                    let before = self.progress.insert(shard, progress).unwrap_or_default();
                    assert!(
                        before.flushed <= progress.flushed && before.repeated <= progress.repeated
                    );
                }
                JournalEvent::CheckpointWanted { group } => self.wanted.push(group),
            }
        }
    }

    fn wait_for_flush(&mut self, shard: ShardId, ticket: u64) {
        self.wait_for(|running| {
            running
                .progress
                .get(&shard)
                .is_some_and(|progress| progress.flushed >= Ticket(ticket))
        });
    }
}

fn scan(directory: &Path) -> FoundJournal {
    scan_journal(directory, config(), None).expect("it can be read")
}

fn ops(found: &FoundJournal, group: u16) -> Vec<u64> {
    let group = found.scanned.groups.get(&ConsensusGroup(group));
    group.map_or_else(Vec::new, |group| {
        group
            .prepares
            .iter()
            .map(|prepare| prepare.header.op)
            .collect()
    })
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("journal")).expect("it is there");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("it is there").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn what_several_shards_hand_over_is_found_after_a_restart() {
    let directory = directory();
    let mut running = Running::start(directory.path(), scan(directory.path()));
    let threads: Vec<_> = (0..3_u16)
        .map(|shard| {
            let handle = running.thread.handle();
            thread::spawn(move || {
                for op in 1..=200 {
                    handle.submit(ShardId(shard), &mut vec![prepare(shard, op, 300)]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it only submits");
    }
    for shard in 0..3 {
        running.wait_for_flush(ShardId(shard), 200);
    }
    // No stop: what was reported is on the disk. Looked at in a copy, for a scan tidies up what a running
    // thread may be making.
    let copied = copy_of(directory.path());
    let found = scan(copied.path());
    for shard in 0..3 {
        assert_eq!(ops(&found, shard), (1..=200).collect::<Vec<_>>());
    }
    running.thread.stop();
    assert_eq!(scan(directory.path()).scanned.damage, []);
}

#[test]
fn superblock_is_reported_when_it_is_there_twice() {
    let directory = directory();
    let mut running = Running::start(directory.path(), scan(directory.path()));
    running
        .thread
        .handle()
        .submit(ShardId(0), &mut vec![superblock(3, 0)]);
    running.wait_for(|running| {
        running
            .progress
            .get(&ShardId(0))
            .is_some_and(|progress| progress.repeated == Ticket(1))
    });
    // A scan tidies up what a running thread may be making.
    running.thread.stop();
    let found = scan(directory.path());
    assert!(
        found.scanned.groups[&ConsensusGroup(3)]
            .superblock
            .is_some()
    );
}

#[test]
fn checkpoints_let_files_be_used_again() {
    let directory = directory();
    let mut running = Running::start(directory.path(), scan(directory.path()));
    let handle = running.thread.handle();
    let mut ticket = 0;
    for op in 1..=1_500_u64 {
        ticket += 1;
        handle.submit(ShardId(0), &mut vec![prepare(1, op, 10_000)]);
        running.wait_for_flush(ShardId(0), ticket);
        if running.wanted.pop().is_some() {
            running.wanted.clear();
            ticket += 1;
            handle.submit(ShardId(0), &mut vec![superblock(1, op - 5)]);
        }
    }
    running.thread.stop();
    let size: u64 = files(directory.path())
        .iter()
        .map(|path| fs::metadata(path).expect("there").len())
        .sum();
    assert!(
        size <= config().live_max,
        "15 MB were written, {size} bytes are held"
    );
    let found = scan(directory.path());
    let ops = ops(&found, 1);
    assert_eq!(ops.last(), Some(&1_500));
    assert!(ops.windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[test]
fn flipped_bit_in_the_middle_is_rotten_and_named() {
    let directory = directory();
    let mut running = Running::start(directory.path(), scan(directory.path()));
    for op in 1..=20 {
        running
            .thread
            .handle()
            .submit(ShardId(0), &mut vec![prepare(1, op, 2_000)]);
        running.wait_for_flush(ShardId(0), op);
    }
    running.thread.stop();
    let file = &files(directory.path())[0];
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .expect("it is there");
    let mut bytes = fs::read(file).expect("it can be read");
    let body = vec![7; 300];
    let at = bytes
        .windows(body.len())
        .position(|window| window == body)
        .expect("the body of op 7");
    bytes[at] ^= 1;
    open.write_all_at(&bytes[at..=at], at as u64)
        .expect("it can be written");
    let found = scan(directory.path());
    let rotten = &found.scanned.groups[&ConsensusGroup(1)].rotten;
    assert_eq!(rotten.len(), 1);
    let text = found.scanned.damage[0].to_string();
    assert_eq!(found.scanned.damage[0].verdict, Verdict::Rotten);
    assert!(
        text.contains("consensus group 1") && text.contains('7'),
        "{text}"
    );
}

#[test]
fn uncertain_tail_ends_the_start_unless_it_is_cut() {
    let directory = directory();
    let mut running = Running::start(directory.path(), scan(directory.path()));
    running
        .thread
        .handle()
        .submit(ShardId(0), &mut vec![superblock(1, 0)]);
    for op in 1..=3 {
        running
            .thread
            .handle()
            .submit(ShardId(0), &mut vec![prepare(1, op, 2_000)]);
        running.wait_for_flush(ShardId(0), op + 1);
    }
    running.thread.stop();
    // Everything from the last prepare on is overwritten by what no tear leaves behind.
    let file = &files(directory.path())[0];
    let mut bytes = fs::read(file).expect("it can be read");
    let body = vec![3; 300];
    let at = bytes
        .windows(body.len())
        .position(|window| window == body)
        .expect("the body of op 3");
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("something was written");
    for byte in &mut bytes[at..=end] {
        *byte = byte.wrapping_add(1);
    }
    fs::write(file, &bytes).expect("it can be written");
    let refused = scan_journal(directory.path(), config(), None).expect_err("nobody can be asked");
    let text = refused.to_string();
    assert!(matches!(refused, Error::Uncertain { .. }), "{text}");
    assert!(
        text.contains("recover --cut") && text.contains("consensus group 1"),
        "{text}"
    );
    let cut = scan_journal(directory.path(), config(), Some(Uncertain::Cut))
        .expect("the operator said so");
    Running::start(directory.path(), cut).thread.stop();
    let found = scan(directory.path());
    assert_eq!(ops(&found, 1), [1, 2]);
}

#[test]
fn strays_are_named_and_left_alone() {
    let directory = directory();
    let stray = directory.path().join("journal/notes.txt");
    fs::write(&stray, "x").expect("it can be written");
    fs::write(directory.path().join("journal/0000000009.new"), "half").expect("it can be written");
    let found = scan(directory.path());
    assert_eq!(found.strays, std::slice::from_ref(&stray));
    assert!(stray.exists());
    assert_eq!(files(directory.path()), [stray]);
}

#[test]
fn prepare_is_read_back_while_the_journal_goes_on_writing() {
    let directory = directory();
    let mut running = Running::start(directory.path(), scan(directory.path()));
    let handle = running.thread.handle();
    let mut records: Vec<Record> = (1..=50).map(|op| prepare(2, op, 3_000)).collect();
    let written = records.clone();
    handle.submit(ShardId(0), &mut records);
    running.wait_for_flush(ShardId(0), 50);
    let (answer, answers) = channel();
    let ask = |record: &Record| {
        let Record::Prepare { header, .. } = record else {
            panic!("a prepare");
        };
        let answer = answer.clone();
        handle.read_prepare(header.group(), header.op(), header.checksum, move |found| {
            answer.send(found).expect("the test listens");
        });
        answers.recv_timeout(PATIENCE).expect("it is answered")
    };
    for record in &written {
        let (header, body) = ask(record).expect("it is there");
        assert_eq!(Record::Prepare { header, body }, *record);
    }
    assert_eq!(ask(&prepare(2, 51, 3_000)), None);
    assert_eq!(ask(&prepare(2, 50, 2_999)), None);
    running.thread.stop();
}
