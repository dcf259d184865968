//! What the cases of consumer groups begin with: a server, a topic with messages in batches of ten, a group.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use integration::{Connection, DEFAULT_OPTIONS, Group, Member, Server, Site, counter, fill};
use wire::{ConsumerGroupOptionsUpdate, TopicDetails};

/// Longer than any test: what waits for it has waited in vain.
pub(crate) const NEVER_MS: u32 = 3_600_000;

/// Messages of a batch.
const BATCH: u64 = 10;

/// A server with a topic and a group, and the connection of somebody who only looks.
pub(crate) struct Scene {
    pub(crate) site: Site,
    server: Option<Server>,
    pub(crate) admin: Connection,
    pub(crate) topic: TopicDetails,
    pub(crate) group: Group,
    /// Messages of each partition.
    counts: Vec<u64>,
    groups: u32,
}

/// Sessions without a connection end soon; those with one do not.
pub(crate) fn hasty() -> Site {
    Site::new()
        .with("cluster.timeouts.disconnect_grace", "\"100 ms\"")
        .with("cluster.timeouts.session_timeout", "\"60 s\"")
}

/// Sessions outlive their connections, and a server that is killed.
pub(crate) fn patient() -> Site {
    Site::new()
        .with("cluster.timeouts.disconnect_grace", "\"60 s\"")
        .with("cluster.timeouts.session_timeout", "\"60 s\"")
}

/// Options with this time for hand-overs.
pub(crate) fn rebalance_timeout(milliseconds: u32) -> ConsumerGroupOptionsUpdate {
    ConsumerGroupOptionsUpdate {
        rebalance_timeout_ms: Some(milliseconds),
        ..DEFAULT_OPTIONS
    }
}

impl Scene {
    /// `each` messages in each partition; hand-overs may take for ever.
    pub(crate) fn new(site: Site, partitions: u32, each: u64) -> Self {
        Self::with_options(site, partitions, each, rebalance_timeout(NEVER_MS))
    }

    pub(crate) fn with_options(
        site: Site,
        partitions: u32,
        each: u64,
        options: ConsumerGroupOptionsUpdate,
    ) -> Self {
        let server = site.start();
        let mut admin = Connection::login(server.address());
        let topic = admin.create_topic("orders", partitions);
        let group = Group::create(&mut admin, &topic, "billing", options).expect("make a group");
        let mut scene = Self {
            site,
            server: Some(server),
            admin,
            topic,
            group,
            counts: vec![0; partitions as usize],
            groups: 0,
        };
        for partition in 0..partitions {
            scene.append(partition, each);
        }
        scene
    }

    /// Lets the server listen at the same address whenever it is started again.
    pub(crate) fn stay(&mut self) {
        let address = format!("\"{}\"", self.address());
        let site = std::mem::take(&mut self.site);
        self.site = site.with("node.address", &address);
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server().address()
    }

    /// Appends messages; gives the offset behind the last.
    pub(crate) fn append(&mut self, partition: u32, count: u64) -> u64 {
        let from = self.counts[partition as usize];
        fill(
            &mut self.admin,
            &self.topic,
            (partition, from, count),
            BATCH,
        );
        self.counts[partition as usize] = from + count;
        from + count
    }

    /// Takes note that the topic has more partitions.
    pub(crate) fn partitions_added(&mut self, count: usize) {
        self.counts.resize(self.counts.len() + count, 0);
    }

    /// Goes on with another group of the same topic.
    pub(crate) fn begin_group(&mut self, options: ConsumerGroupOptionsUpdate) {
        self.groups += 1;
        let name = format!("group-{}", self.groups);
        let group = Group::create(&mut self.admin, &self.topic, &name, options);
        self.group = group.expect("make a group");
    }

    pub(crate) fn join(&self) -> Member {
        Member::join(self.address(), &self.group)
    }

    /// Somebody asks to join, and vanishes before the answer is read.
    pub(crate) fn join_and_vanish(&self) {
        let mut connection = Connection::login(self.address());
        let join = wire::JoinConsumerGroup {
            stream: self.topic.stream.into(),
            topic: self.topic.id.into(),
            group: self.group.name.clone(),
            instance: None,
            weight: 1,
        };
        connection.post(join).expect("it is connected");
    }

    /// The only member, once it owns everything: what others have owned reaches it a little later.
    pub(crate) fn join_alone(&self) -> Member {
        let mut member = self.join();
        member.wait_for(self.counts.len());
        member
    }

    /// The first member, which has polled ten messages of each partition and stored nothing.
    pub(crate) fn join_and_poll(&self) -> Member {
        let mut member = self.join();
        assert_eq!(member.owned().len(), self.topic.partitions.len());
        for partition in member.owned() {
            let page = member.poll(partition, 10).expect("it is the owner");
            assert_eq!(page.messages.len(), 10);
        }
        member
    }

    /// Kills the server and starts it again. Members have to attach.
    pub(crate) fn crash(&mut self) {
        self.stop();
        let server = self.site.start();
        self.admin = Connection::login(server.address());
        self.server = Some(server);
    }

    /// Where the group goes on.
    pub(crate) fn next(&mut self, partition: u32) -> u64 {
        self.group.next(&mut self.admin, partition)
    }

    /// Kills the server for good.
    pub(crate) fn stop(&mut self) {
        let server = self.server.take().expect("it runs");
        let _ = server.kill();
    }

    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        counter(&mut self.admin, name)
    }
}

/// Uses up a moment of irregular length, less than `limit`: something else happens meanwhile.
pub(crate) fn pass_a_moment(round: u32, limit: Duration) {
    let limit = u64::try_from(limit.as_micros()).expect("it is short");
    let length = Duration::from_micros(u64::from(round) * 7_919_993 % limit);
    let end = Instant::now() + length;
    while Instant::now() < end {
        thread::yield_now();
    }
}
