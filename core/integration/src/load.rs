//! Producers that send as fast as they are answered.

use std::{collections::VecDeque, ops::Range, time::Duration};

use cohort::{Client, Delivery, Message, Producer};
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};
use wire::TopicDetails;

use crate::{Ledger, PATIENCE, Tag};

/// Messages that a producer has unanswered at most.
const WINDOW: usize = 200;

/// A client that waits until a node takes its login.
///
/// # Panics
/// When none does.
pub async fn patient_client(url: &str) -> Client {
    let builder = Client::builder(url).expect("it is an address");
    let builder = builder.wait_for_server(true).connect_timeout(PATIENCE);
    builder.connect().await.expect("connect")
}

/// Producers of the SDK, each with a session of its own, which reconnect by themselves. They note everything
/// in a [`Ledger`]. Dropping it ends them where they are.
#[derive(Debug)]
pub struct Load {
    tasks: Vec<JoinHandle<()>>,
    wish: watch::Sender<Wish>,
    runtime: Option<Runtime>,
}

/// What producers are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Send,
    Hold,
    Finish,
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
        let (wish, wished) = watch::channel(Wish::Send);
        let mut tasks = Vec::new();
        for number in producers {
            let work = runtime.block_on(Work::begin(url, topic, number));
            tasks.push(runtime.spawn(work.run(ledger.clone(), wished.clone())));
        }
        Self {
            tasks,
            wish,
            runtime: Some(runtime),
        }
    }

    /// Gives the producers nothing more to send, until [`Load::go_on`]. What is unanswered they repeat.
    pub fn hold(&self) {
        self.wish.send_replace(Wish::Hold);
    }

    /// Ends [`Load::hold`].
    pub fn go_on(&self) {
        self.wish.send_replace(Wish::Send);
    }

    /// Sends nothing more, and waits until everything is answered.
    ///
    /// # Panics
    /// When that takes longer than [`PATIENCE`], or a producer has failed.
    pub fn finish(mut self) {
        self.wish.send_replace(Wish::Finish);
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
        let client = patient_client(url).await;
        let producer = client.producer(topic.stream, topic.id).build().await;
        Self {
            client,
            producer: producer.expect("make a producer"),
            partitions: topic.partitions.len() as u64,
            number,
        }
    }

    async fn run(self, ledger: Ledger, mut wished: watch::Receiver<Wish>) {
        let mut waiting: VecDeque<(Tag, Delivery)> = VecDeque::new();
        loop {
            let wish = *wished.borrow_and_update();
            if waiting.len() >= WINDOW || wish != Wish::Send {
                if let Some((tag, delivery)) = waiting.pop_front() {
                    // A message that failed may be there or not: it was never acknowledged.
                    if let Ok(receipt) = delivery.await {
                        ledger.acknowledge(tag, receipt.partition.0, receipt.offset);
                    }
                } else if wish == Wish::Finish || wished.changed().await.is_err() {
                    break;
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
