//! Many runs, over several threads.

use std::{
    cell::RefCell,
    io::{self, Write},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use crate::{Case, Counts, Report, run};

/// One seed in so many is run twice: its hashes must be equal.
const TWICE_EVERY: u64 = 20;

/// Runs per which the floors hold.
const FLOOR_RUNS: u64 = 200;

/// Seeds from `first` on, over `jobs` threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Nodes of each: 1, 3 or 5.
    pub replicas: u8,
    /// Threads.
    pub jobs: u64,
}

/// What came of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Nodes of each run.
    pub replicas: u8,
    /// Runs that ended, the good ones and the others.
    pub runs: u64,
    /// Simulated nanoseconds.
    pub simulated: u64,
    /// Events.
    pub events: u64,
    /// What happened in all of them.
    pub counts: Counts,
    /// The failed runs, with what is wrong.
    pub failures: Vec<(u64, String)>,
    /// What happened less often than it must.
    pub below_floor: Vec<String>,
}

impl Campaign {
    /// Runs all seeds, and tells failures and figures as they come.
    ///
    /// # Errors
    /// When nothing can be written to `output`.
    pub fn run(&self, output: &mut (dyn Write + Send)) -> io::Result<Outcome> {
        let next = AtomicU64::new(self.first);
        let outcome = Mutex::new((Outcome::default(), output));
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| self.work(&next, &outcome));
            }
        });
        let (mut outcome, output) = outcome.into_inner().expect("no thread has panicked");
        outcome.replicas = self.replicas;
        outcome.below_floor = outcome.counts.below_floor(self.count, self.replicas);
        outcome.failures.sort_unstable();
        outcome.tell(output, began)?;
        Ok(outcome)
    }

    fn work(&self, next: &AtomicU64, outcome: &Mutex<(Outcome, &mut (dyn Write + Send))>) {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.first + self.count {
                return;
            }
            let case = Case::whole(seed, self.replicas);
            let report = run_guarded(&case);
            let mut locked = outcome.lock().expect("no thread has panicked");
            let (outcome, output) = &mut *locked;
            if let Some(failure) = &report.failure {
                // What cannot be told now is told at the end.
                let _ = writeln!(output, "{}", failed(&case, failure));
            }
            outcome.add(report);
        }
    }
}

/// Runs a case, some twice.
fn run_guarded(case: &Case) -> Report {
    CURRENT.set(Some(case.clone()));
    let mut report = run(case);
    let twice = case.seed.is_multiple_of(TWICE_EVERY);
    if twice && report.failure.is_none() && run(case) != report {
        report.failure = Some("two runs of the seed differ".into());
    }
    CURRENT.set(None);
    report
}

thread_local! {
    /// What this thread runs, to be told when something panics.
    static CURRENT: RefCell<Option<Case>> = const { RefCell::new(None) };
}

/// Makes a panic tell the case that was run.
pub fn tell_seed_of_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        if let Some(case) = CURRENT.take() {
            // Nobody is left to tell if even that fails.
            let _ = writeln!(io::stderr(), "{}", failed(&case, "panicked, see above"));
        }
    }));
}

/// Runs one case, which a panic will name; tells every event if it is to be traced.
pub fn run_named(case: &Case, traced: bool, lines: impl FnMut(&str)) -> Report {
    CURRENT.set(Some(case.clone()));
    let report = match traced {
        true => crate::run_traced(case, lines),
        false => run(case),
    };
    CURRENT.set(None);
    report
}

fn failed(case: &Case, failure: &str) -> String {
    let Case { seed, replicas, .. } = case;
    format!(
        "seed {seed} failed: {failure}\n  again: {case}   (ARGS=--trace for every event)\n  cut down: make sim-shrink SEED={seed} REPLICAS={replicas}"
    )
}

impl Outcome {
    fn add(&mut self, report: Report) {
        self.runs += 1;
        self.simulated += report.simulated;
        self.events += report.events;
        self.counts.add(&report.counts);
        if let Some(failure) = report.failure {
            self.failures.push((report.seed, failure));
        }
    }

    /// Whether every run went well, and enough has happened in them.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && self.below_floor.is_empty()
    }

    fn tell(&self, output: &mut dyn Write, began: Instant) -> io::Result<()> {
        let seconds = began.elapsed().as_secs_f64().max(0.001);
        for (name, count) in self.counts.all() {
            writeln!(output, "{count:>12}  {name}")?;
        }
        let simulated = seconds_of(self.simulated);
        writeln!(
            output,
            "{} seeds, {simulated:.0} simulated seconds, {} events in {seconds:.1} s: {:.1} simulated seconds per second, {:.0} seeds per minute",
            self.runs,
            self.events,
            simulated / seconds,
            as_float(self.runs) * 60.0 / seconds,
        )?;
        for floor in &self.below_floor {
            writeln!(output, "too few: {floor}")?;
        }
        for (seed, failure) in &self.failures {
            let case = Case::whole(*seed, self.replicas);
            writeln!(output, "{}", failed(&case, failure))?;
        }
        Ok(())
    }
}

impl Counts {
    /// What must happen among several nodes: the count and the least of it.
    fn floors_among_others(&self) -> Vec<(&'static str, u64, u64)> {
        vec![
            ("views entered", self.views_entered, 1_000),
            ("links between nodes cut", self.peer_cuts, 200),
            ("nodes that stood still", self.pauses, 50),
            (
                "messages between nodes lost",
                self.peer_messages_lost,
                10_000,
            ),
            ("frames between nodes garbled", self.peer_frames_garbled, 50),
            ("prepares read for another node", self.prepares_read, 1_000),
            ("crashes in a checkpoint", self.crashes_in_checkpoint, 20),
            ("checkpoints of other nodes", self.checkpoints_installed, 50),
            ("parts of files sent to other nodes", self.parts_sent, 1_000),
            (
                "journals recycled behind a majority",
                self.recyclings_checked,
                5_000,
            ),
            ("frames near the end damaged", self.ends_rotten, 30),
            ("nodes cut off with one", self.nodes_stranded, 10),
            ("journals found damaged", self.journals_damaged, 40),
            ("prepares repaired", self.prepares_repaired, 12),
            ("ops dropped on nacks", self.ops_truncated, 1),
            ("snapshots damaged or gone", self.snapshots_rotten, 100),
            ("lost checkpoints bridged", self.checkpoints_bridged, 15),
            ("lost checkpoints had of others", self.checkpoints_lost, 60),
            ("starts that misread a sector", self.starts_misread, 5),
            ("reads that failed", self.reads_failed, 100),
            ("reads in a wrong place", self.reads_misdirected, 50),
            ("writes in a wrong place", self.writes_misdirected, 15),
            ("disks lost", self.disks_lost, 15),
            ("records lost with both copies", self.records_lost, 3),
            ("replicas taken back", self.replicas_taken_back, 60),
            ("damaged partitions found", self.partitions_damaged, 3),
            (
                "damaged segments that another node had",
                self.segments_mended,
                2,
            ),
        ]
    }

    /// What happened less often than it must in so many runs, so that the runs mean something.
    fn below_floor(&self, runs: u64, replicas: u8) -> Vec<String> {
        // Alone, nobody brings back what has rotten.
        let alone = [
            ("crashes in a checkpoint", self.crashes_in_checkpoint, 5),
            ("groups recovered from a snapshot", self.snapshots_used, 100),
            ("journal files recycled", self.files_recycled, 100),
            ("damaged partitions found", self.partitions_damaged, 3),
        ];
        let among_others = self.floors_among_others();
        let own = match replicas {
            1 => alone.as_slice(),
            _ => among_others.as_slice(),
        };
        let floors = [
            ("power failures", self.power_failures, 100),
            ("processes killed", self.kills, 100),
            (
                "crashes while a node was starting",
                self.crashes_at_start,
                20,
            ),
            ("torn frames cut", self.frames_torn, 20),
            ("slow disks", self.slow_disks, 100),
            ("full disks", self.disks_full, 60),
            ("writes without space", self.writes_without_space, 1_000),
            ("writes that failed", self.writes_failed, 30),
            ("flushes that failed", self.flushes_failed, 30),
            ("repeated batches", self.batches_repeated, 1_000),
            ("commands answered again", self.commands_repeated, 20),
            ("expired sessions", self.sessions_expired, 100),
            (
                "long polls ended by a message",
                self.long_polls_woken,
                1_000,
            ),
            ("segments read", self.segment_reads, 1_000),
            ("partitions dropped", self.partitions_dropped, 100),
            ("partitions purged", self.partitions_purged, 50),
            ("stores behind", self.stores_behind, 500),
            ("revocations released", self.moves_released, 50),
            ("revocations drained", self.moves_drained, 200),
            ("revocations timed out", self.moves_timed_out, 20),
            ("revocations cancelled", self.moves_cancelled, 20),
            (
                "partitions of owners that were gone",
                self.moves_from_nobody,
                500,
            ),
            ("stale stores refused", self.stale_stores_refused, 50),
            ("claims held back", self.claims_parked, 200),
            ("members taken over", self.members_taken_over, 20),
            ("seamless hand-overs", self.hand_overs_seamless, 30),
            ("offsets of groups reset", self.group_resets, 200),
        ];
        let short = floors
            .into_iter()
            .chain(own.iter().copied())
            .filter(|(_, count, floor)| {
                // Few runs prove nothing about what is rare.
                *count < floor * (runs / FLOOR_RUNS)
            });
        short
            .map(|(name, count, floor)| {
                format!("{name}: {count}; {floor} in {FLOOR_RUNS} seeds are the least")
            })
            .collect()
    }
}

fn seconds_of(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

fn as_float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
