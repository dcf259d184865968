//! What an application that uses the SDK notices of the death of a node: that it takes a moment.

use std::{collections::BTreeSet, time::Duration};

use cohort::{Client, GroupConsumer, GroupOptions, HeldPartition, Message, Producer};
use integration::{Cluster, NODES, PATIENCE, ROOT_PASSWORD, message, patient_client};

/// Partitions of the topic: one for each data group.
const PARTITIONS: u32 = 6;

/// Messages that are sent to each partition between two deaths.
const ROUND: u64 = 10;

/// A producer and a member of a group over one session.
struct Application {
    client: Client,
    producer: Producer,
    member: GroupConsumer,
    sent: u64,
    taken: BTreeSet<(u32, u64)>,
}

impl Application {
    /// Given the address of one node only: it has to learn the others.
    async fn start(cluster: &Cluster, node: usize) -> Self {
        let url = format!("cohort://root:{ROOT_PASSWORD}@{}", cluster.address(node));
        let client = patient_client(&url).await;
        let producer = client.producer("orders", "orders").linger(Duration::ZERO);
        let producer = producer.build().await.expect("make a producer");
        let member = client
            .consumer_group("orders", "orders", "billing")
            .create_if_missing(GroupOptions::default())
            .poll_wait(Duration::from_millis(50));
        let member = member.build().await.expect("join");
        Self {
            client,
            producer,
            member,
            sent: 0,
            taken: BTreeSet::new(),
        }
    }

    /// Sends to every partition, and takes all of it.
    async fn round(&mut self) {
        for number in self.sent..self.sent + ROUND {
            for partition in 0..PARTITIONS {
                let message = Message::new(message(partition, number)).partition(partition);
                let receipt = self.producer.send(message).await.expect("it is sent");
                // Nothing is lost before it, and nothing is there twice.
                assert_eq!((receipt.partition.0, receipt.offset.0), (partition, number));
            }
        }
        self.sent += ROUND;
        let all = u64::from(PARTITIONS) * self.sent;
        while (self.taken.len() as u64) < all {
            let next = tokio::time::timeout(PATIENCE, self.member.next()).await;
            let next = next.expect("everything is delivered");
            let found = next.expect("it goes on").expect("nothing fails");
            let (partition, offset) = (found.partition().0, found.offset().0);
            assert_eq!(*found.payload(), message(partition, offset));
            assert!(self.taken.insert((partition, offset)), "delivered twice");
        }
    }

    fn holds(&self) -> Vec<(u32, u64)> {
        let held = self.member.partitions();
        let epochs = held
            .iter()
            .map(|HeldPartition { token, .. }| (token.partition.0, token.epoch.0));
        epochs.collect()
    }
}

#[test]
fn an_application_goes_on_with_its_membership_when_the_node_that_it_talks_to_is_killed() {
    let mut cluster = Cluster::new();
    cluster.start();
    let _topic = cluster.create_topic(1, "orders", PARTITIONS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("make a runtime");
    let mut application = runtime.block_on(Application::start(&cluster, 0));
    runtime.block_on(application.round());
    let held = application.holds();
    assert_eq!(held.len(), 6);
    let member = application.member.member();
    let session = runtime
        .block_on(application.client.me())
        .expect("it is asked")
        .session;
    for victim in 0..NODES {
        drop(cluster.kill(victim));
        runtime.block_on(application.round());
        cluster.start_in_order(&[victim]);
        runtime.block_on(application.round());
    }
    // The same session, the same member, the same epochs: nobody has taken anything away.
    assert_eq!(application.holds(), held);
    assert_eq!(application.member.member(), member);
    let me = runtime.block_on(application.client.me());
    assert_eq!(me.expect("it is asked").session, session);
    runtime.block_on(async {
        application.member.close().await.expect("it leaves");
        application.producer.close().await.expect("all is sent");
        application.client.close().await;
    });
}
