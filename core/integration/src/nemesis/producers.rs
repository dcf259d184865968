//! Producers under faults, and who keeps the book of them.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use cohort::{Delivery, Message};
use tokio::{runtime::Runtime, task::JoinHandle};
use wire::{Offset, TopicDetails};

use super::findings::Findings;
use crate::{Cluster, Ledger, NODES, PATIENCE, Tag, patient_client};

/// Producers, each with a session of its own; the last one begins where the first one does.
const PRODUCERS: u32 = 4;

/// Between two messages of a producer: members store after every message, and must keep up.
const PACE: Duration = Duration::from_millis(25);

/// Messages that a producer has unanswered at most.
const WINDOW: usize = 100;

/// An acknowledgement on its way into the book.
struct Acknowledged {
    tag: Tag,
    partition: u32,
    offset: Offset,
    sent: Instant,
}

/// How far acknowledgements have got. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Vec<Newest>>>);

/// Of a partition: when the newest of its acknowledged messages was sent, and the offset behind the highest.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    sent: Option<Instant>,
    end: u64,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Vec<Newest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Behind the highest offset that is acknowledged, by partition.
    pub(super) fn ends(&self) -> Vec<u64> {
        self.lock().iter().map(|newest| newest.end).collect()
    }

    /// When the newest message was sent that is acknowledged, of any partition.
    pub(super) fn newest(&self) -> Option<Instant> {
        self.lock().iter().filter_map(|newest| newest.sent).max()
    }

    /// Waits until a message that was sent after `since` is acknowledged in every partition; gives how long
    /// that took, or the partitions that have none when the time is over.
    pub(super) fn after(&self, since: Instant, limit: Duration) -> Result<Duration, Vec<usize>> {
        loop {
            let newest = self.lock().clone();
            let lacking = newest.iter().enumerate();
            let lacking = lacking.filter(|(_, one)| one.sent.is_none_or(|sent| sent < since));
            let lacking: Vec<usize> = lacking.map(|(partition, _)| partition).collect();
            if lacking.is_empty() {
                return Ok(since.elapsed());
            }
            if since.elapsed() > limit {
                return Err(lacking);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The producers.
#[derive(Debug)]
pub(super) struct Producers {
    runtime: Runtime,
    tasks: Vec<JoinHandle<()>>,
    notary: thread::JoinHandle<()>,
    finish: Arc<AtomicBool>,
    pub(super) progress: Progress,
    pub(super) ledger: Ledger,
}

impl Producers {
    pub(super) fn start(
        cluster: &Cluster,
        topic: &TopicDetails,
        findings: &Findings,
        size: usize,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("make a runtime");
        let ledger = Ledger::new(size);
        let newest = vec![Newest::default(); topic.partitions.len()];
        let progress = Progress(Arc::new(Mutex::new(newest)));
        let finish = Arc::new(AtomicBool::new(false));
        let (book, entries) = mpsc::channel();
        let notary = {
            let (ledger, progress) = (ledger.clone(), progress.clone());
            thread::spawn(move || keep(&entries, &ledger, &progress))
        };
        let producers = (0..PRODUCERS).map(|number| Producer {
            number,
            url: cluster.url(number as usize % NODES),
            topic: topic.clone(),
            ledger: ledger.clone(),
            book: book.clone(),
            finish: Arc::clone(&finish),
            findings: findings.clone(),
        });
        let tasks = producers.map(|producer| runtime.spawn(producer.run()));
        Self {
            tasks: tasks.collect(),
            runtime,
            notary,
            finish,
            progress,
            ledger,
        }
    }

    /// Sends nothing more, waits until everything is answered and in the book.
    pub(super) fn finish(self, findings: &Findings) -> Ledger {
        self.finish.store(true, Ordering::SeqCst);
        self.runtime.block_on(async {
            for task in self.tasks {
                match tokio::time::timeout(PATIENCE, task).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => findings.wrong(format_args!("a producer: {error}")),
                    Err(_) => findings.wrong(format_args!(
                        "a producer has no answer {PATIENCE:?} after everything was mended"
                    )),
                }
            }
        });
        drop(self.runtime);
        if self.notary.join().is_err() {
            findings.wrong("the book of acknowledgements contradicts itself");
        }
        self.ledger
    }
}

/// Enters what is acknowledged, on a thread of its own: what is not in the book counts as unacknowledged.
fn keep(entries: &mpsc::Receiver<Acknowledged>, ledger: &Ledger, progress: &Progress) {
    for entry in entries {
        ledger.acknowledge(entry.tag, entry.partition, entry.offset);
        let mut newest = progress.lock();
        let slot = &mut newest[entry.partition as usize];
        slot.sent = slot.sent.max(Some(entry.sent));
        slot.end = slot.end.max(entry.offset.0 + 1);
    }
}

struct Producer {
    number: u32,
    url: String,
    topic: TopicDetails,
    ledger: Ledger,
    book: mpsc::Sender<Acknowledged>,
    finish: Arc<AtomicBool>,
    findings: Findings,
}

impl Producer {
    async fn run(self) {
        let client = patient_client(&self.url).await;
        let producer = client.producer(self.topic.stream, self.topic.id);
        let producer = producer.build().await.expect("make a producer");
        let partitions = self.topic.partitions.len() as u64;
        let (waiting, answers) = tokio::sync::mpsc::channel(WINDOW);
        let answered = tokio::spawn(enter(answers, self.book, self.findings));
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.finish.load(Ordering::SeqCst) {
            pace.tick().await;
            let (tag, payload) = self.ledger.send(self.number);
            let partition = u32::try_from(tag.sequence % partitions).expect("there are few");
            let sent = Instant::now();
            let message = Message::new(payload).partition(partition);
            let delivery = producer.enqueue(message).await.expect("it fits");
            let waits = waiting.send((tag, sent, delivery)).await;
            assert!(waits.is_ok(), "somebody waits for the answers");
        }
        drop(waiting);
        answered.await.expect("nobody panics");
        client.close().await;
    }
}

/// Waits for the answers in order, and has them entered in the book.
async fn enter(
    mut answers: tokio::sync::mpsc::Receiver<(Tag, Instant, Delivery)>,
    book: mpsc::Sender<Acknowledged>,
    findings: Findings,
) {
    while let Some((tag, sent, delivery)) = answers.recv().await {
        match delivery.await {
            Ok(receipt) => {
                let entry = Acknowledged {
                    tag,
                    partition: receipt.partition.0,
                    offset: receipt.offset,
                    sent,
                };
                book.send(entry).expect("the book is kept");
            }
            Err(error) => findings.wrong(format_args!("{tag:?} failed: {error}")),
        }
    }
}
