//! Producers that send as fast as they are answered.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cohort::{Client, Delivery, Message, Producer};
use tokio::{runtime::Runtime, task::JoinHandle};
use wire::TopicDetails;

use crate::{Ledger, PATIENCE, Tag};

/// Messages that a producer has unanswered at most.
const WINDOW: usize = 500;

/// Producers of the SDK, each with a session of its own, which reconnect by themselves. They note everything
/// in a [`Ledger`]. Dropping it ends them where they are.
#[derive(Debug)]
pub struct Load {
    tasks: Vec<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
    runtime: Option<Runtime>,
}

impl Load {
    /// Connects producers with these numbers, and starts them; each spreads its messages over the partitions
    /// in turn.
    ///
    /// # Panics
    /// When one cannot connect.
    #[must_use]
    pub fn start(url: &str, topic: &TopicDetails, producers: Range<u32>, ledger: &Ledger) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("make a runtime");
        let stopping = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for number in producers {
            let work = runtime.block_on(Work::begin(url, topic, number));
            tasks.push(runtime.spawn(work.run(ledger.clone(), Arc::clone(&stopping))));
        }
        Self {
            tasks,
            stopping,
            runtime: Some(runtime),
        }
    }

    /// Sends nothing more, and waits until everything is answered.
    ///
    /// # Panics
    /// When that takes longer than [`PATIENCE`], or a producer has failed.
    pub fn finish(mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        let tasks = std::mem::take(&mut self.tasks);
        let runtime = self
            .runtime
            .as_ref()
            .expect("it is there until it is dropped");
        runtime.block_on(async {
            for task in tasks {
                let ended = tokio::time::timeout(PATIENCE, task).await;
                ended.expect("answers come").expect("no producer fails");
            }
        });
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

struct Work {
    client: Client,
    producer: Producer,
    partitions: u64,
    number: u32,
}

impl Work {
    async fn begin(url: &str, topic: &TopicDetails, number: u32) -> Self {
        let client = Client::connect(url).await.expect("connect");
        let producer = client.producer(topic.stream, topic.id).build().await;
        Self {
            client,
            producer: producer.expect("make a producer"),
            partitions: topic.partitions.len() as u64,
            number,
        }
    }

    async fn run(self, ledger: Ledger, stopping: Arc<AtomicBool>) {
        let mut waiting: VecDeque<(Tag, Delivery)> = VecDeque::new();
        loop {
            if waiting.len() >= WINDOW || stopping.load(Ordering::Relaxed) {
                let Some((tag, delivery)) = waiting.pop_front() else {
                    break;
                };
                // A message that failed may be there or not: it was never acknowledged.
                if let Ok(receipt) = delivery.await {
                    ledger.acknowledge(tag, receipt.partition.0, receipt.offset);
                }
                continue;
            }
            let (tag, payload) = ledger.send(self.number);
            let partition = u32::try_from(tag.sequence % self.partitions);
            let partition = partition.expect("there are few");
            let message = Message::new(payload).partition(partition);
            let delivery = self.producer.enqueue(message).await.expect("it fits");
            waiting.push_back((tag, delivery));
        }
        self.client.close().await;
    }
}
