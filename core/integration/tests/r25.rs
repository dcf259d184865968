//! R25: members keep what they have when the primary of the metadata, or of their partitions, dies; and hand-overs
//! that were under way end. Its step 5 is told in `failover.rs`, and step 4 for a partition that moves in `deaths.rs`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cohort::{Client, GroupConsumer};
use integration::{
    Cluster, DEFAULT_OPTIONS, Group, Ledger, Load, NODES, Site, patient_client, repetitions,
    shares, until,
};
use tokio::{runtime::Runtime, task::JoinHandle};
use wire::{ConsensusGroup, Offset};

use crate::{
    LOOK, MESSAGE, PARTITIONS, again, in_step, primary, progress,
    stage::{NEVER_MS, Stage, others, patient, rebalance_timeout, store},
};

/// Members of the group, and partitions of the topic.
const MEMBERS: usize = 10;
const MANY: u32 = 30;

/// A time for hand-overs that passes within a test.
const HAND_OVER: Duration = Duration::from_secs(3);

/// What a member of the SDK has, and has been given.
#[derive(Debug, Default)]
struct Seen {
    member: Option<u64>,
    /// The partitions that it has, and under which epochs.
    held: Vec<(u32, u64)>,
    /// Of each partition, the first offset that it has not been given yet.
    next: BTreeMap<u32, u64>,
}

/// Members that take whatever comes.
pub(crate) struct Crew {
    _runtime: Runtime,
    tasks: Vec<JoinHandle<()>>,
    seen: Vec<Arc<Mutex<Seen>>>,
}

impl Crew {
    /// So many join all at once, over different nodes.
    pub(crate) fn join(cluster: &Cluster, count: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("make a runtime");
        let seen: Vec<Arc<Mutex<Seen>>> = (0..count).map(|_| Arc::default()).collect();
        let tasks = seen.iter().enumerate().map(|(number, seen)| {
            let url = cluster.url(number % NODES);
            let seen = Arc::clone(seen);
            runtime.spawn(async move {
                let client = patient_client(&url).await;
                let member = client.consumer_group("orders", "orders", "billing");
                let member = member.poll_wait(Duration::from_millis(50)).build().await;
                take((client, member.expect("join")), &seen).await;
            })
        });
        let tasks = tasks.collect();
        Self {
            _runtime: runtime,
            tasks,
            seen,
        }
    }

    /// What all of them have, by member; none of them has failed.
    pub(crate) fn held(&self) -> BTreeMap<u64, Vec<(u32, u64)>> {
        assert!(self.tasks.iter().all(|task| !task.is_finished()));
        let seen = self.seen.iter().map(|seen| {
            let seen = seen.lock().expect("no member fails");
            Some((seen.member?, seen.held.clone()))
        });
        seen.flatten().collect()
    }

    /// What all of them have, by member, as soon as each has so many partitions.
    pub(crate) fn settled(&self, each: usize) -> BTreeMap<u64, Vec<(u32, u64)>> {
        until("all have joined", || {
            let held = self.held();
            let is_settled = held.values().all(|held| held.len() == each);
            (is_settled && held.len() == self.seen.len()).then_some(held)
        })
    }

    /// Messages that were delivered.
    fn delivered(&self) -> u64 {
        assert!(self.tasks.iter().all(|task| !task.is_finished()));
        let counts = self.seen.iter().map(|seen| {
            let seen = seen.lock().expect("no member fails");
            seen.next.values().sum::<u64>()
        });
        counts.sum()
    }

    /// Waits until everything is delivered that is acknowledged by now.
    pub(crate) fn catch_up(&self, ledger: &Ledger) {
        let goal = ledger.acknowledged();
        until("what is acknowledged is delivered", || {
            (self.delivered() >= goal).then_some(())
        });
    }
}

/// Takes what comes: of each partition every message, in order, none twice.
async fn take((_client, mut member): (Client, GroupConsumer), seen: &Mutex<Seen>) {
    loop {
        let next = tokio::time::timeout(LOOK, member.next()).await;
        let mut seen = seen.lock().expect("nobody panics");
        seen.member = member.member().map(|member| member.0);
        let held = member.partitions();
        let held = held
            .iter()
            .map(|held| (held.token.partition.0, held.token.epoch.0));
        seen.held = held.collect();
        if let Ok(next) = next {
            let message = next.expect("it goes on").expect("nothing fails");
            let (partition, offset) = (message.partition().0, message.offset().0);
            let expected = seen.next.entry(partition).or_default();
            assert_eq!(offset, *expected, "of partition {partition}");
            *expected += 1;
        }
    }
}

/// Steps 1 and 3: nobody joins anew, nothing moves, nobody is expired, and everything is delivered once.
#[test]
fn r25_1_3_members_and_what_they_have_stay_when_primaries_die() {
    let mut cluster = Cluster::new();
    cluster.start();
    let topic = cluster.create_topic(0, "orders", MANY);
    let mut admin = cluster.login(0);
    let group = Group::create(&mut admin, &topic, "billing", DEFAULT_OPTIONS);
    let group = group.expect("make a group");
    let crew = Crew::join(&cluster, MEMBERS);
    let described = |cluster: &Cluster, node: usize| {
        let mut admin = cluster.login(node);
        again("the group is described", || group.describe(&mut admin))
    };
    let each = MANY as usize / MEMBERS;
    let held = crew.settled(each);
    let settled = described(&cluster, 0);
    assert_eq!(settled.summary.moving_count, 0);
    assert_eq!(shares(&settled), vec![each; MEMBERS]);
    let ledger = Ledger::new(MESSAGE);
    let load = Load::start(&cluster.url(1), &topic, 0..1, &ledger);
    progress(&ledger, 300);
    crew.catch_up(&ledger);
    for round in 0..repetitions(4, 20) as usize {
        let group = match round % 2 {
            0 => ConsensusGroup::METADATA,
            _ => topic.partitions[round % MANY as usize].group,
        };
        let victim = primary(&cluster, round % NODES, group);
        drop(cluster.kill(victim));
        let began = Instant::now();
        progress(&ledger, 300);
        crew.catch_up(&ledger);
        eprintln!("---- node {victim}: {:?} later", began.elapsed());
        cluster.start_in_order(&[victim]);
        assert_eq!(crew.held(), held);
    }
    load.finish();
    crew.catch_up(&ledger);
    assert_eq!(crew.held(), held);
    in_step(&cluster, &[0, 1, 2]);
    for node in 0..NODES {
        let told = described(&cluster, node);
        assert_eq!(told.summary, settled.summary);
        assert_eq!(told.members.len(), MEMBERS);
    }
}

/// Step 2: what has to be given up when the primary dies is given up by a store, or goes without it.
#[test]
fn r25_2_hand_overs_end_by_stores_or_in_time_although_the_primary_dies() {
    let options = rebalance_timeout(u32::try_from(HAND_OVER.as_millis()).expect("it is short"));
    let mut stage = Stage::with(|_, site| patient(site), 30, options);
    for _ in 0..repetitions(2, 20) {
        let victim = stage.leader(0);
        let (mut first, mut second) = stage.two_members(victim);
        let moving = first.revoking();
        stage.kill(victim);
        let began = Instant::now();
        store(&mut first, moving[0], 9);
        second.wait_for(3);
        eprintln!("---- node {victim}: {:?} later", began.elapsed());
        assert_eq!(second.owned(), moving);
        for (partition, next) in moving.iter().zip([10, 0, 0]) {
            let page = again("it is read", || second.poll(*partition, 1));
            assert_eq!(page.messages[0].0, Offset(next), "partition {partition}");
        }
        stage.end([first, second], victim);
    }
}

/// Step 4: a member whose client dies with the node that it was connected to, the primary, is no member any more.
#[test]
fn r25_4_member_that_dies_with_the_primary_is_expired_by_the_next_one() {
    let hasty = |_: usize, site: Site| {
        site.with("cluster.timeouts.heartbeat_interval", "\"500 ms\"")
            .with("cluster.timeouts.session_timeout", "\"3 s\"")
    };
    let mut stage = Stage::with(hasty, 10, rebalance_timeout(NEVER_MS));
    for _ in 0..repetitions(2, 20) {
        let victim = stage.leader(0);
        let mut second = stage.join(others(victim)[0]);
        second.wait_for(PARTITIONS as usize);
        let mut first = stage.join(victim);
        first.wait_for(3);
        stage.kill(victim);
        drop(first);
        second.wait_for(PARTITIONS as usize);
        let told = stage.details(others(victim)[1]);
        assert_eq!(told.members.len(), 1);
        stage.end([second], victim);
    }
}
