//! Damage to the journal: a torn tail is cut and said; what was flushed and cannot be read is never guessed
//! about; what may have been flushed is given up by nobody but the operator.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use integration::{
    Connection, Ended, Server, Site, Tag, flip_bit, last_written, overwrite, payload,
};
use wire::{CreateStream, ErrorCode, Offset, TopicDetails};

/// The exit code for data that the server does not guess about.
const DAMAGED: i32 = 5;
const USAGE: i32 = 2;

/// Bytes of a block of the journal.
const BLOCK: u64 = 4_096;

/// A killed server whose journal holds everything: a few messages in each of four partitions, and last of
/// all one large message in partition 0.
struct Scene {
    site: Site,
    topic: TopicDetails,
}

const SMALL: u64 = 5;

impl Scene {
    fn new() -> Self {
        let site = Site::new();
        let server = site.start();
        let mut connection = Connection::login(server.address());
        let topic = connection.create_topic("orders", 4);
        for number in 0..SMALL {
            for partition in 0..4 {
                let appended = connection.append(&topic, partition, &[small(partition, number)]);
                assert_eq!(appended, Ok(Offset(number)));
            }
        }
        let appended = connection.append(&topic, 0, &[large()]);
        assert_eq!(appended, Ok(Offset(SMALL)));
        // An empty frame behind the last one says that it is flushed; it is on its way.
        drop(connection);
        server.stop();
        Self { site, topic }
    }

    /// Where a message begins in the journal. Its bytes are interrupted wherever a block ends.
    fn find(&self, message: &[u8]) -> (PathBuf, u64) {
        for path in journal_files(&self.site) {
            let content = written(&path);
            for (number, piece) in (0..).zip(message.chunks_exact(16).take(4)) {
                let mut windows = content.windows(piece.len());
                if let Some(position) = windows.position(|window| window == piece) {
                    return (path, position as u64 - number * 16);
                }
            }
        }
        panic!("not in the journal: {message:?}");
    }

    /// Where a name is first written.
    fn find_name(&self, name: &str) -> (PathBuf, u64) {
        let path = journal_files(&self.site).remove(0);
        let content = written(&path);
        let mut windows = content.windows(name.len());
        let position = windows.position(|window| window == name.as_bytes());
        (path, position.expect("it is written") as u64)
    }

    /// Where the large message is.
    fn large(&self) -> (PathBuf, u64) {
        self.find(&large())
    }

    fn connect(&self, server: &Server) -> Connection {
        Connection::login(server.address())
    }

    /// Requires that the small messages of a partition are there, and `more` behind them.
    fn expect(&self, connection: &mut Connection, partition: u32, more: &[Bytes]) {
        let page = connection
            .read_from(&self.topic, partition, Offset(0))
            .unwrap_or_else(|failure| panic!("partition {partition}: {failure}"));
        let found: Vec<Bytes> = page.messages.into_iter().map(|(_, bytes)| bytes).collect();
        let mut expected: Vec<Bytes> = (0..SMALL).map(|n| small(partition, n)).collect();
        expected.extend_from_slice(more);
        assert!(
            found == expected,
            "partition {partition}: {} messages",
            found.len()
        );
    }

    /// The group of a partition, as events show it.
    fn group(&self, partition: usize) -> u16 {
        self.topic.partitions[partition].group.0
    }
}

fn small(partition: u32, sequence: u64) -> Bytes {
    let tag = Tag {
        producer: partition,
        sequence,
    };
    payload(tag, 200)
}

/// Its frame takes many blocks.
fn large() -> Bytes {
    let tag = Tag {
        producer: 9,
        sequence: 9,
    };
    payload(tag, 200_000)
}

fn journal_files(site: &Site) -> Vec<PathBuf> {
    site.files(|path| {
        path.starts_with("journal/") && Path::new(path).extension() == Some("journal".as_ref())
    })
}

/// Everything in the data directory but the lock, to see whether anything was changed.
fn contents(site: &Site) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = site.files(|path| path != "lock");
    let content = |path: PathBuf| {
        let bytes = fs::read(&path).expect("read a file");
        (path, bytes)
    };
    files.into_iter().map(content).collect()
}

/// What is written of a file of the journal; the rest is zero.
fn written(path: &Path) -> Vec<u8> {
    let mut content = fs::read(path).expect("read the journal");
    content.truncate(usize::try_from(last_written(path)).expect("it is small"));
    content
}

fn recover(site: &Site, code: i32, parts: &[&str]) -> Ended {
    let before = contents(site);
    let ended = site.run(&["recover"]);
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    for part in parts {
        assert!(
            ended.stderr.contains(part),
            "no {part:?} in: {}",
            ended.stderr
        );
    }
    assert!(contents(site) == before, "without --cut nothing is changed");
    ended
}

/// A crash in the middle of the last write: some blocks of the large message's frame are there, the others
/// are as they were before, and nothing is behind it.
fn tear(path: &Path, from: u64) {
    let end = last_written(path);
    let zeros = usize::try_from(end - from).expect("it is small");
    overwrite(path, from, &vec![0; zeros]);
}

#[test]
fn torn_tail_is_cut_and_said() {
    let scene = Scene::new();
    let (path, position) = scene.large();
    // The first block of the frame and some more reached the disk.
    tear(&path, (position / BLOCK + 20) * BLOCK);
    let group = format!("consensus group {}", scene.group(0));
    recover(&scene.site, 0, &["torn", &group]);

    let server = scene.site.start();
    let said = server.log().find("torn").expect("it is said");
    for part in [&group, "op ", "never acknowledged", "cut"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let mut connection = scene.connect(&server);
    for partition in 0..4 {
        scene.expect(&mut connection, partition, &[]);
    }
    // The place is free: nobody was told of it.
    let next = Bytes::from("behind the cut");
    let appended = connection.append(&scene.topic, 0, std::slice::from_ref(&next));
    assert_eq!(appended, Ok(Offset(SMALL)));
    let _ = server.kill();
    let server = scene.site.start();
    assert_eq!(
        server.log().find("torn"),
        None,
        "said once: it is cut for good"
    );
    scene.expect(&mut scene.connect(&server), 0, &[next]);
    server.stop();
}

#[test]
fn torn_tail_whose_first_block_is_missing_is_cut_and_said() {
    let scene = Scene::new();
    let (path, position) = scene.large();
    let start = position / BLOCK * BLOCK;
    let end = last_written(&path);
    // Blocks may reach the disk in any order.
    overwrite(&path, start, &[0; 4_096]);
    tear(&path, end - 8 * BLOCK);
    let server = scene.site.start();
    let said = server.log().find("torn").expect("it is said");
    assert!(said.contains("cut"), "{said}");
    let mut connection = scene.connect(&server);
    for partition in 0..4 {
        scene.expect(&mut connection, partition, &[]);
    }
    server.stop();
}

#[test]
fn rotten_block_takes_its_group_out_and_names_group_and_op() {
    let scene = Scene::new();
    let (path, position) = scene.find(&small(0, 2));
    flip_bit(&path, position + 50);
    let group = scene.group(0);
    let named = format!("consensus group {group}: op ");
    recover(
        &scene.site,
        DAMAGED,
        &["rotten", &named, "copy of the data directory"],
    );

    let server = scene.site.start();
    let log = server.log().text();
    let said = log.lines().find(|line| line.contains("rotten"));
    assert!(said.expect("it is said").contains(&named), "{log}");
    let said = log.lines().find(|line| line.contains("out of service"));
    let said = said.expect("it is said");
    for part in [&format!("group={group}"), "op ", "cohort-server recover"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let mut connection = scene.connect(&server);
    let mut others = 0;
    for partition in 0..4 {
        let read = connection.read_from(&scene.topic, partition, Offset(0));
        let appended = connection.append(&scene.topic, partition, &[Bytes::from("x")]);
        if scene.group(partition as usize) == group {
            // Also what could be read: the group does not know what is behind it.
            assert_eq!(read.expect_err("refused").code, ErrorCode::OutOfService);
            assert_eq!(appended.expect_err("refused").code, ErrorCode::OutOfService);
            let stored = connection.store(&scene.topic, partition, "billing", Offset(0));
            assert_eq!(stored.expect_err("refused").code, ErrorCode::OutOfService);
        } else {
            assert_eq!(appended, Ok(Offset(SMALL)));
            scene.expect(&mut connection, partition, &[Bytes::from("x")]);
            others += 1;
        }
    }
    assert_eq!(others, 2);
    // The metadata goes on.
    let more = CreateStream {
        name: "more".to_owned(),
    };
    connection.ask(more).expect("the metadata goes on");
    drop(connection);
    server.stop();

    // Who puts the block back gets everything back.
    flip_bit(&path, position + 50);
    let server = scene.site.start();
    let mut connection = scene.connect(&server);
    scene.expect(&mut connection, 0, &[large()]);
    server.stop();
}

#[test]
fn rotten_block_of_the_metadata_leaves_nothing_to_serve_and_says_so() {
    let scene = Scene::new();
    // The name of the stream, in the op that has made it.
    let (path, position) = scene.find_name("orders");
    flip_bit(&path, position);
    recover(&scene.site, DAMAGED, &["rotten", "consensus group 0: "]);
    let ended = scene
        .site
        .try_start()
        .expect_err("there is nobody to log in");
    assert_eq!(ended.code, Some(DAMAGED), "{}", ended.stderr);
    for part in ["rotten", "consensus group 0: ", "recover"] {
        assert!(
            ended.stderr.contains(part),
            "no {part:?} in {}",
            ended.stderr
        );
    }
}

#[test]
fn uncertain_tail_is_refused_until_the_operator_gives_it_up() {
    let scene = Scene::new();
    let (path, position) = scene.large();
    // A block of the last frame with messages is not what was written, and the frames behind it, which would
    // prove that it was flushed, are damaged as well.
    flip_bit(&path, position + 10 * BLOCK);
    let end = last_written(&path);
    let behind = large_end(&path, position);
    let mut block = behind;
    while block < end {
        flip_bit(&path, block + 100);
        block += BLOCK;
    }
    let journal = scene.site.data().join("journal").display().to_string();
    let group = format!("consensus group {}", scene.group(0));
    let parts = [
        "uncertain",
        "recover --cut",
        "acknowledged",
        &journal,
        &group,
    ];
    for _ in 0..2 {
        let ended = scene.site.try_start().expect_err("it does not guess");
        assert_eq!(ended.code, Some(DAMAGED), "{}", ended.stderr);
        for part in parts {
            assert!(
                ended.stderr.contains(part),
                "no {part:?} in: {}",
                ended.stderr
            );
        }
        recover(
            &scene.site,
            DAMAGED,
            &["uncertain", &group, "recover --cut"],
        );
    }

    let ended = scene.site.run(&["recover", "--cut"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("cut"), "{}", ended.stderr);
    let server = scene.site.start();
    let mut connection = scene.connect(&server);
    for partition in 0..4 {
        scene.expect(&mut connection, partition, &[]);
    }
    let next = Bytes::from("behind the cut");
    let appended = connection.append(&scene.topic, 0, std::slice::from_ref(&next));
    assert_eq!(appended, Ok(Offset(SMALL)));
    let _ = server.kill();
    let server = scene.site.start();
    scene.expect(&mut scene.connect(&server), 0, &[next]);
    server.stop();
}

/// The block behind the last one of the large message.
fn large_end(path: &Path, position: u64) -> u64 {
    let content = written(path);
    let message = large();
    let last = &message[message.len() - 100..];
    let from = usize::try_from(position).expect("it is small");
    let mut windows = content[from..].windows(last.len());
    let found = windows.position(|window| window == last);
    let end = position + found.expect("its end is in one block") as u64 + 100;
    end.div_ceil(BLOCK) * BLOCK
}

#[test]
fn uncertain_frame_that_holds_nothing_costs_nothing_when_it_is_cut() {
    let scene = Scene::new();
    let (path, _) = scene.large();
    // The very last block: an empty frame.
    flip_bit(&path, last_written(&path) - BLOCK + 70);
    let ended = scene.site.try_start().expect_err("it does not guess");
    assert_eq!(ended.code, Some(DAMAGED), "{}", ended.stderr);
    let ended = scene.site.run(&["recover", "--cut"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let server = scene.site.start();
    let mut connection = scene.connect(&server);
    scene.expect(&mut connection, 0, &[large()]);
    for partition in 1..4 {
        scene.expect(&mut connection, partition, &[]);
    }
    server.stop();
}

#[test]
fn recover_says_when_nothing_is_damaged() {
    let scene = Scene::new();
    recover(&scene.site, 0, &["nothing is damaged"]);
    let ended = scene.site.run(&["recover", "--cut"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let server = scene.site.start();
    scene.expect(&mut scene.connect(&server), 0, &[large()]);
    server.stop();
    let nothing = Site::new().run(&["recover"]);
    assert_ne!(nothing.code, Some(0));
    for part in ["nobody else has", "begins anew", "--config"] {
        assert!(nothing.stderr.contains(part), "{}", nothing.stderr);
    }
    let discarded = scene.site.run(&["recover", "--discard-disk"]);
    assert_eq!(discarded.code, Some(USAGE), "{}", discarded.stderr);
    let server = scene.site.start();
    scene.expect(&mut scene.connect(&server), 0, &[large()]);
    server.stop();
}

#[test]
fn strange_files_beside_the_journal_are_named_and_left_alone() {
    let scene = Scene::new();
    let stray = scene.site.data().join("journal/notes.txt");
    fs::write(&stray, "mine").expect("write a file");
    let server = scene.site.start();
    let said = server.log().find(&stray.display().to_string());
    assert!(said.is_some(), "{}", server.log().text());
    scene.expect(&mut scene.connect(&server), 0, &[large()]);
    server.stop();
    assert_eq!(fs::read(&stray).expect("it is there"), b"mine");
}

#[test]
fn missing_journal_is_not_taken_for_a_new_one() {
    let scene = Scene::new();
    let files = journal_files(&scene.site);
    let kept: Vec<Vec<u8>> = files
        .iter()
        .map(|path| fs::read(path).expect("read it"))
        .collect();
    for path in &files {
        fs::remove_file(path).expect("delete it");
    }
    let ended = scene
        .site
        .try_start()
        .expect_err("its messages would be gone");
    assert_eq!(ended.code, Some(DAMAGED), "{}", ended.stderr);
    let journal = scene.site.data().join("journal").display().to_string();
    assert!(ended.stderr.contains(&journal), "{}", ended.stderr);
    for (path, content) in files.iter().zip(kept) {
        fs::write(path, content).expect("put it back");
    }
    let server = scene.site.start();
    scene.expect(&mut scene.connect(&server), 0, &[large()]);
    server.stop();
}

#[test]
fn journal_cut_in_the_middle_is_never_served_as_if_it_were_whole() {
    let scene = Scene::new();
    let (path, position) = scene.find(&small(0, 3));
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("open it");
    file.set_len(position / BLOCK * BLOCK).expect("cut it");
    match scene.site.try_start() {
        Err(ended) => {
            assert_eq!(ended.code, Some(DAMAGED), "{}", ended.stderr);
            assert!(ended.stderr.contains("journal"), "{}", ended.stderr);
        }
        Ok(server) => {
            let mut connection = scene.connect(&server);
            let read = connection.read_from(&scene.topic, 0, Offset(0));
            assert_eq!(read.expect_err("refused").code, ErrorCode::OutOfService);
        }
    }
}
