//! A cluster of three processes under load and faults, drawn from a seed.
//!
//! [`run`] starts the nodes behind [gates](crate::Gate), producers with a [`Ledger`](crate::Ledger), two consumer
//! groups whose members are processes, a member that stores after it has lost its partition, and one watcher for
//! every node that asks all the time what is stored. Then it does harm, one fault after the other, requires that
//! every partition and the metadata go on within [`PROGRESS`] of each, while it lasts and after it has ended, and
//! compares everything at last.
//!
//! Which faults come in which order, and how long each lasts, follows from the seed. What the processes make of it
//! does not: they run on real threads and clocks.

mod ending;
mod faults;
mod findings;
mod member;
mod members;
mod plan;
mod producers;
mod trespasser;
mod voice;
mod watcher;
mod wiping;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use wire::{ConsumerGroupOptionsUpdate, GroupStart, TopicDetails};

use crate::{Cluster, Group, NODES, PATIENCE, until};
use faults::Harm;
use findings::Findings;
use members::Members;
use plan::Plan;
use producers::Producers;
use trespasser::{Attempts, Trespasser};
use watcher::{Floor, Watcher};

pub use member::{MemberOptions, consume};

/// How long a cluster may take to go on after a fault, and again after it has ended.
pub const PROGRESS: Duration = Duration::from_secs(10);

/// Of the stream, and of its topic.
const NAME: &str = "orders";

/// Partitions: one for each data group.
const PARTITIONS: u32 = 6;

/// Bytes of a message.
const SIZE: usize = 200;

/// How long a member may keep a partition that is revoked.
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(1);

/// The group whose members store what they must not.
const CONTESTED: &str = "contested";

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct NemesisOptions {
    /// Which faults come.
    pub seed: u64,
    /// How long faults go on, at least: the last round is finished.
    pub lasts: Duration,
}

/// Runs until the time is over, and tells everything on standard output.
///
/// # Errors
/// All that was found to be wrong.
///
/// # Panics
/// When the cluster cannot be started at all.
pub fn run(options: NemesisOptions) -> Result<(), Vec<String>> {
    let findings = Findings::new();
    let mut stage = Stage::set(&findings);
    let mut plan = Plan::new(options.seed, members::MEMBERS as u64);
    let mut rounds = 0;
    while findings.elapsed() < options.lasts && findings.is_clean() {
        for fault in plan.by_ref().take(plan::ROUND) {
            stage.harm.suffer(&fault);
            if !findings.is_clean() {
                break;
            }
        }
        rounds += 1;
    }
    stage.end(rounds);
    let wrong = findings.all();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong),
    }
}

/// Everything that runs.
struct Stage {
    harm: Harm,
    topic: TopicDetails,
    watchers: Vec<thread::JoinHandle<()>>,
    answers: Arc<AtomicU64>,
    attempts: Attempts,
    findings: Findings,
}

impl Stage {
    /// Starts everything, and waits until all of it goes on.
    fn set(findings: &Findings) -> Self {
        let mut cluster = Cluster::gated(|node, site| {
            // A node with fewer threads than groups, one with more, and one in between.
            site.with("node.shards", ["2", "1", "3"][node])
        });
        cluster.start();
        let topic = cluster.create_topic(0, NAME, PARTITIONS);
        let groups = members::GROUPS.map(|(name, _)| make_group(&cluster, &topic, name));
        let contested = make_group(&cluster, &topic, CONTESTED);
        let producers = Producers::start(&cluster, &topic, findings, SIZE);
        let members = Members::start(&cluster, findings);
        let addresses: Vec<SocketAddr> = (0..NODES).map(|node| cluster.address(node)).collect();
        let (answers, floor) = (Arc::<AtomicU64>::default(), Floor::default());
        let watched = groups.iter().enumerate();
        let watched = watched.map(|(index, group)| (group.clone(), members.book(index).clone()));
        let watched: Vec<_> = watched.collect();
        let mut watchers = Vec::new();
        for address in &addresses {
            let watcher = Watcher {
                address: *address,
                groups: watched.clone(),
                floor: floor.clone(),
                progress: producers.progress.clone(),
                findings: findings.clone(),
                answers: Arc::clone(&answers),
            };
            watchers.push(thread::spawn(move || watcher.run()));
        }
        let attempts = Attempts::default();
        let trespasser = Trespasser {
            addresses,
            group: contested,
            findings: findings.clone(),
            attempts: attempts.clone(),
        };
        watchers.push(thread::spawn(move || trespasser.run()));
        let began = Instant::now();
        let served = producers.progress.after(began, PATIENCE);
        assert!(served.is_ok(), "the cluster serves: {served:?}");
        until("all members get something", || {
            (0..groups.len())
                .all(|group| members.book(group).stored().len() == PARTITIONS as usize)
                .then_some(())
        });
        Self {
            harm: Harm::new(cluster, producers, members, findings.clone()),
            topic,
            watchers,
            answers,
            attempts,
            findings: findings.clone(),
        }
    }

    /// Ends everything, and compares.
    fn end(self, rounds: u32) {
        let Self {
            harm,
            topic,
            watchers,
            answers,
            attempts,
            findings,
        } = self;
        let suffered = harm.suffered();
        harm.keep_logs();
        let (cluster, producers, mut members) = harm.into_parts();
        let ledger = producers.finish(&findings);
        ending::drain(&cluster, &topic, &mut members, &findings);
        findings.end();
        for watcher in watchers {
            if watcher.join().is_err() {
                findings.wrong("a watcher has failed");
            }
        }
        let books: Vec<_> = (0..members::GROUPS.len())
            .map(|group| members.book(group).clone())
            .collect();
        let killed = members.killed();
        drop(members);
        ending::compare(&cluster, &topic, &ledger, &findings);
        ending::judge_deliveries(&books, &ledger, &findings);
        findings.tell(format_args!(
            "{rounds} rounds; {killed} members killed; {} answers of watchers; {} stores of former owners",
            answers.load(Ordering::SeqCst),
            attempts.count()
        ));
        ending::judge_faults(&suffered, rounds, &findings);
        if findings.is_clean() && (attempts.count() == 0 || killed == 0) {
            findings
                .wrong("no former owner has stored, or no member was killed: it proves too little");
        }
    }
}

fn make_group(cluster: &Cluster, topic: &TopicDetails, name: &str) -> Group {
    let timeout = u32::try_from(REBALANCE_TIMEOUT.as_millis()).expect("it is short");
    let options = ConsumerGroupOptionsUpdate {
        rebalance_timeout_ms: Some(timeout),
        initial_delay_ms: None,
        start: Some(GroupStart::Earliest),
        offset_expiry_ms: None,
    };
    let mut connection = cluster.login(0);
    until("a group is made", || {
        match Group::create(&mut connection, topic, name, options.clone()) {
            Ok(group) => Some(group),
            Err(failure) => {
                assert!(failure.code.retryable(), "{failure}");
                None
            }
        }
    })
}
