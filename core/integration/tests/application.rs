//! A process that uses the SDK, as far as the server can tell.

use std::{future::Future, sync::mpsc};

use cohort::{Client, GroupConsumer, GroupConsumerBuilder, Received};
use integration::PATIENCE;
use tokio::{runtime::Runtime, time::timeout};

use crate::scene::Scene;

/// An application: dropping its runtime is its sudden end, for nothing is sent any more.
pub(crate) struct Application {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
}

impl Application {
    pub(crate) fn start(scene: &Scene) -> Self {
        Self::at(&scene.server().url())
    }

    pub(crate) fn at(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("make a runtime");
        let client = runtime.block_on(Client::connect(url)).expect("connect");
        Self { runtime, client }
    }

    pub(crate) fn join(
        &self,
        scene: &Scene,
        set: impl FnOnce(GroupConsumerBuilder) -> GroupConsumerBuilder,
    ) -> GroupConsumer {
        let builder = self
            .client
            .consumer_group(scene.topic.stream, scene.topic.id, "billing");
        self.run(set(builder).build()).expect("join")
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let work = async { timeout(PATIENCE, work).await };
        self.runtime.block_on(work).expect("it comes to an end")
    }

    /// Takes messages until there are so many of them.
    pub(crate) fn take(&self, consumer: &mut GroupConsumer, count: u64) -> Vec<Received> {
        self.run(async {
            let mut taken = Vec::new();
            while (taken.len() as u64) < count {
                let next = consumer.next().await.expect("it goes on");
                taken.push(next.expect("nothing fails"));
            }
            taken
        })
    }

    /// Lets nothing of it run until the value is dropped.
    pub(crate) fn stand_still(&self) -> mpsc::Sender<()> {
        let (go_on, wait) = mpsc::channel();
        let (standing, stands) = mpsc::channel();
        // The runtime has one thread.
        self.runtime.spawn(async move {
            standing.send(()).expect("it is waited for");
            let _ = wait.recv();
        });
        stands.recv().expect("the runtime runs");
        go_on
    }

    pub(crate) fn stop_dead(self) {
        self.runtime.shutdown_background();
        // It would say good-bye, and has nothing to say it with.
        drop(self.client);
    }
}
