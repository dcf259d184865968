//! Two nodes with threads and sockets of their own, their shards on one runtime.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use bytes::Bytes;
use wire::FrameHeader;

use super::{introduction::tests::membership, *};
use crate::{Driver, Notify, bind, build_runtime, choose_driver};

/// One node: its threads, its shards' links, and what was heard.
struct Node {
    threads: Option<LinkThreads>,
    address: SocketAddr,
    shards: Vec<Links>,
    news: Receiver<LinkNews>,
    ups: usize,
    downs: usize,
    links: usize,
    /// By shard.
    received: Vec<Vec<(ReplicaId, Bytes)>>,
}

impl Node {
    /// Listens at `address`; dials the other node where it is known.
    fn start(
        own: Membership,
        address: SocketAddr,
        other: Option<SocketAddr>,
        bell: &Notify,
    ) -> Self {
        Self::start_with(own, address, other, bell, LinkLimits::default())
    }

    fn start_with(
        own: Membership,
        address: SocketAddr,
        other: Option<SocketAddr>,
        bell: &Notify,
        limits: LinkLimits,
    ) -> Self {
        let (tell, news) = mpsc::channel();
        let ring = bell.clone();
        let peers = other.map(|address| PeerNode {
            replica: ReplicaId(1 - own.replica.0),
            address: address.to_string(),
        });
        let (replica, shard_count) = (own.replica, own.shard_count);
        let listener = bind(address).unwrap();
        let threads = LinkThreads::start(own, listener, peers.into_iter().collect(), move |item| {
            let _ = tell.send(item);
            ring.notify();
        });
        let threads = threads.unwrap();
        let shards = (0..shard_count).map(|shard| {
            let (orders, ring) = (threads.orders(), bell.clone());
            Links::new(limits, bell.clone(), move |peer| {
                assert_ne!(peer, replica);
                orders.lost(peer, shard);
                ring.notify();
            })
        });
        Self {
            shards: shards.collect(),
            address: threads.address(),
            threads: Some(threads),
            news,
            ups: 0,
            downs: 0,
            links: 0,
            received: vec![Vec::new(); usize::from(shard_count)],
        }
    }

    fn take_news(&mut self) {
        while let Ok(item) = self.news.try_recv() {
            let count = u16::try_from(self.shards.len()).unwrap();
            match item {
                LinkNews::Outgoing(link) => {
                    self.links += 1;
                    let shard = usize::from(link.shard(count));
                    self.shards[shard].add_outgoing(link).unwrap();
                }
                LinkNews::Incoming(link) => {
                    let shard = usize::from(link.shard(count));
                    self.shards[shard].add_incoming(link).unwrap();
                }
                LinkNews::Up { .. } => self.ups += 1,
                LinkNews::Down { .. } => self.downs += 1,
            }
        }
    }

    fn take_frames(&mut self) {
        for (shard, links) in self.shards.iter().enumerate() {
            while let Some(frame) = links.next_frame() {
                self.received[shard].push(frame);
            }
        }
    }

    fn end(&mut self) {
        self.shards.iter().for_each(Links::close_all);
        self.threads.take().unwrap().stop();
    }
}

fn port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Runs a test's story on both drivers; it hangs, and fails, when a wake-up is lost.
fn run<F: Future<Output = ()> + 'static>(story: fn(Notify) -> F) {
    for driver in [choose_driver(false).driver, Driver::Polling] {
        let (done, is_done) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = build_runtime(driver).unwrap();
            runtime.block_on(story(Notify::new()));
            done.send(()).unwrap();
        });
        match is_done.recv_timeout(Duration::from_secs(60)) {
            Ok(()) => thread.join().unwrap(),
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the story failed"),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("a wake-up was lost"),
        }
    }
}

/// Lets both nodes run until something is true.
async fn until(bell: &Notify, nodes: &mut [&mut Node], is_met: impl Fn(&[&mut Node]) -> bool) {
    loop {
        for node in &mut *nodes {
            node.take_news();
            node.take_frames();
        }
        if is_met(nodes) {
            return;
        }
        bell.notified().await;
    }
}

/// A node that knows where the other one listens, whoever was first.
fn two(bell: &Notify, shards: [u16; 2]) -> (Node, Node) {
    let mut own = [membership(0), membership(1)];
    own[0].shard_count = shards[0];
    own[1].shard_count = shards[1];
    let [first, second] = own;
    // Its address is known only when it is there.
    let held = bind(port()).unwrap();
    let address = held.address();
    drop(held);
    let first = Node::start(first, port(), Some(address), bell);
    let second = Node::start(second, address, Some(first.address), bell);
    (first, second)
}

fn body(number: u64, size: usize) -> Vec<Bytes> {
    vec![
        Bytes::copy_from_slice(&number.to_le_bytes()),
        Bytes::from(vec![7; size]),
    ]
}

fn number(body: &Bytes) -> u64 {
    u64::from_le_bytes(body[..8].try_into().unwrap())
}

#[test]
fn every_shard_sends_over_a_link_of_its_own_in_order() {
    run(|bell| async move {
        let (mut first, mut second) = two(&bell, [2, 3]);
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[0].links == 2 && nodes[1].links == 3
        })
        .await;
        for count in 0..1_000_u64 {
            let size = usize::try_from(count * 97 % 5_000).unwrap();
            for (shard, links) in first.shards.iter().enumerate() {
                assert!(links.send(
                    ReplicaId(1),
                    body(count * 10 + shard as u64, size),
                    Urgency::Normal
                ));
            }
            for (shard, links) in second.shards.iter().enumerate() {
                assert!(links.send(
                    ReplicaId(0),
                    body(count * 10 + shard as u64, size),
                    Urgency::Normal
                ));
            }
        }
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            let count = |node: &Node| node.received.iter().map(Vec::len).sum::<usize>();
            count(nodes[0]) == 3_000 && count(nodes[1]) == 2_000
        })
        .await;
        for (node, senders) in [(&second, 2), (&first, 3)] {
            for (shard, received) in node.received.iter().enumerate() {
                for sender in 0..senders {
                    let of_sender = received
                        .iter()
                        .map(|(_, body)| number(body))
                        .filter(|n| n % 10 == sender);
                    let in_order: Vec<u64> = (0..1_000).map(|count| count * 10 + sender).collect();
                    let is_here = usize::try_from(sender).unwrap() % node.shards.len() == shard;
                    assert_eq!(
                        of_sender.collect::<Vec<_>>(),
                        if is_here { in_order } else { Vec::new() }
                    );
                }
            }
        }
        first.end();
        second.end();
    });
}

#[test]
fn node_that_ends_is_down_at_once_and_up_again_when_it_is_back() {
    run(|bell| async move {
        let (mut first, mut second) = two(&bell, [1, 1]);
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes.iter().all(|node| node.links == 1 && node.ups >= 2)
        })
        .await;
        let (ups, downs, address) = (first.ups, first.downs, second.address);
        second.end();
        drop(second);
        until(&bell, &mut [&mut first], |nodes| nodes[0].downs > downs).await;
        assert_eq!(first.downs, downs + 1);
        assert!(!first.shards[0].send(ReplicaId(1), body(1, 1), Urgency::Normal));

        let mut second = Node::start(
            membership_of_one_shard(1),
            address,
            Some(first.address),
            &bell,
        );
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[0].ups >= ups + 2 && nodes[0].links == 2 && nodes[1].links == 1
        })
        .await;
        assert_eq!(first.downs, downs + 1, "it is told once");
        assert!(first.shards[0].send(ReplicaId(1), body(5, 1), Urgency::Normal));
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[1].received[0]
                .iter()
                .any(|(from, body)| *from == ReplicaId(0) && number(body) == 5)
        })
        .await;
        first.end();
        second.end();
    });
}

fn membership_of_one_shard(replica: u8) -> Membership {
    Membership {
        shard_count: 1,
        ..membership(replica)
    }
}

#[test]
fn node_that_does_not_take_what_it_is_sent_costs_a_bounded_queue_and_gets_whole_frames_later() {
    run(|bell| async move {
        let limits = LinkLimits {
            queue_max: 1 << 20,
            ..LinkLimits::default()
        };
        let mut second = Node::start(membership_of_one_shard(1), port(), None, &bell);
        let own = membership_of_one_shard(0);
        let mut first = Node::start_with(own, port(), Some(second.address), &bell, limits);
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[0].links == 1
        })
        .await;
        second.take_news();
        // The second one takes nothing from here on.
        let mut sent = Vec::new();
        let mut dropped = 0;
        for count in 0..20_000_u64 {
            match first.shards[0].send(ReplicaId(1), body(count, 10_000), Urgency::Normal) {
                true => sent.push(count),
                false => dropped += 1,
            }
            if count % 50 == 0 {
                bell.notify();
                bell.notified().await;
            }
        }
        assert!(dropped > 0);
        assert!(first.shards[0].send(ReplicaId(1), body(77_777, 10), Urgency::High));
        let count = sent.len() + 1;
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[1].received[0].len() == count
        })
        .await;
        let mut received: Vec<u64> = second.received[0]
            .iter()
            .map(|(_, body)| number(body))
            .collect();
        let urgent = received
            .iter()
            .position(|number| *number == 77_777)
            .unwrap();
        assert!(
            urgent + 20 < received.len(),
            "it overtook: {urgent} of {count}"
        );
        received.remove(urgent);
        assert_eq!(received, sent);
        let statistics = first.shards[0].statistics();
        assert_eq!(
            (statistics.sent, statistics.dropped),
            (count as u64, dropped)
        );
        first.end();
        second.end();
    });
}

/// What is said may be behind something large; what is small is no traffic.
#[test]
fn large_frames_are_told_as_traffic_at_both_ends_and_small_ones_are_not() {
    run(|bell| async move {
        let (mut first, mut second) = two(&bell, [1, 1]);
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes.iter().all(|node| node.links == 1)
        })
        .await;
        assert!(first.shards[0].send(ReplicaId(1), body(0, 1_000), Urgency::High));
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[1].received[0].len() == 1
        })
        .await;
        let none = Traffic::default();
        assert_eq!(first.shards[0].take_traffic(), none);
        assert_eq!(second.shards[0].take_traffic(), none);
        for number in 1..4 {
            let large = body(number, 8_000_000);
            assert!(first.shards[0].send(ReplicaId(1), large, Urgency::Normal));
        }
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[1].received[0].len() == 4
        })
        .await;
        assert!(first.shards[0].take_traffic().is_sending);
        let receiving = second.shards[0].take_traffic();
        assert!(receiving.receiving.contains(&ReplicaId(0)) && !receiving.is_sending);
        assert_eq!(second.shards[0].take_traffic(), none, "told once");
        [first, second].iter_mut().for_each(Node::end);
    });
}

#[test]
fn strangers_and_nodes_of_another_cluster_disturb_nobody() {
    run(|bell| async move {
        let (mut first, mut second) = two(&bell, [1, 1]);
        let silent: Vec<TcpStream> = (0..20)
            .map(|_| TcpStream::connect(first.address).unwrap())
            .collect();
        let mut stranger = TcpStream::connect(first.address).unwrap();
        stranger.write_all(&[b'x'; 4_096]).unwrap();
        let other = Membership {
            secret: LinkSecret::new(b"another one's letters"),
            ..membership_of_one_shard(2)
        };
        let dialled = TcpStream::connect(first.address).unwrap();
        let refused = handshake::dial(&dialled, &other, ReplicaId(0), 0).unwrap_err();
        assert!(matches!(refused, HandshakeError::Refused(_)), "{refused}");
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[0].links == 1 && nodes[1].links == 1
        })
        .await;
        assert!(first.shards[0].send(ReplicaId(1), body(1, 1), Urgency::Normal));
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[1].received[0].len() == 1
        })
        .await;
        let mut rest = Vec::new();
        // A reset is what who sends too much gets.
        let _ = stranger.read_to_end(&mut rest);
        assert!(rest.is_empty());
        drop(silent);
        first.end();
        second.end();
    });
}

/// A node that speaks by hand.
fn dialled(address: SocketAddr, replica: u8) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    let own = membership_of_one_shard(replica);
    handshake::dial(&stream, &own, ReplicaId(0), 0).unwrap();
    stream
}

fn frame(number: u64) -> Vec<u8> {
    FrameHeader::peer(0)
        .frame_of_parts(body(number, 30))
        .concat()
}

#[test]
fn frame_with_a_wrong_bit_ends_its_link_and_no_other() {
    run(|bell| async move {
        let (mut first, mut second) = two(&bell, [1, 1]);
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[0].links == 1 && nodes[1].links == 1
        })
        .await;
        let heard = |node: &Node, number_of: u64| {
            let mut received = node.received[0].iter();
            received.any(|(_, body)| number(body) == number_of)
        };
        // In checksum, size, code, and what is reserved, and in the body.
        for (count, at) in [(0_u64, 3), (1, 11), (2, 17), (3, 40), (4, 64), (5, 90)] {
            let mut third = dialled(first.address, 2);
            third.write_all(&frame(100 + count)).unwrap();
            let mut garbled = frame(999);
            garbled[at] ^= 4;
            third.write_all(&garbled).unwrap();
            third.write_all(&frame(999)).unwrap();
            until(&bell, &mut [&mut first, &mut second], |nodes| {
                heard(nodes[0], 100 + count)
            })
            .await;
            // The end of the stream, or a reset.
            let (tell, is_over) = mpsc::channel();
            let ring = bell.clone();
            let reader = thread::spawn(move || {
                tell.send(third.read(&mut [0])).unwrap();
                ring.notify();
            });
            until(&bell, &mut [&mut first, &mut second], |_| {
                match is_over.try_recv() {
                    Ok(read) => {
                        assert!(!matches!(read, Ok(1..)), "{read:?}");
                        true
                    }
                    Err(_) => false,
                }
            })
            .await;
            reader.join().unwrap();

            let links = &second.shards[0];
            assert!(links.send(ReplicaId(0), body(200 + count, 5), Urgency::Normal));
            until(&bell, &mut [&mut first, &mut second], |nodes| {
                heard(nodes[0], 200 + count)
            })
            .await;
        }
        assert!(!heard(&first, 999));
        assert_eq!((first.links, second.links), (1, 1));
        first.end();
        second.end();
    });
}

#[test]
fn silent_strangers_take_a_bounded_number_of_places_for_a_bounded_time() {
    run(|bell| async move {
        let mut second = Node::start(membership_of_one_shard(1), port(), None, &bell);
        let strangers: Vec<TcpStream> = (0..100)
            .map(|_| TcpStream::connect(second.address).unwrap())
            .collect();
        let own = membership_of_one_shard(0);
        let mut first = Node::start(own, port(), Some(second.address), &bell);
        until(&bell, &mut [&mut first, &mut second], |nodes| {
            nodes[0].links == 1
        })
        .await;
        // Nobody had to say anything for that: who was silent was closed.
        for mut stranger in strangers {
            let mut said = Vec::new();
            stranger.read_to_end(&mut said).unwrap();
            assert!(said.is_empty());
        }
        first.end();
        second.end();
    });
}
