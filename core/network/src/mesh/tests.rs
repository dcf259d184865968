//! Shards on threads of their own, and rings that are too small.

use std::{thread, time::Duration};

use super::*;
use crate::{build_runtime, choose_driver};

#[derive(Debug, PartialEq, Eq)]
struct Message {
    number: u64,
}

/// Runs one shard: sends `count` numbers to each peer, a batch a turn, and takes as many from each, in
/// order. Gives how many it took.
async fn exchange(mut endpoint: Endpoint<Message>, notify: Notify, count: u64, batch: u64) -> u64 {
    let peers: Vec<usize> = (0..endpoint.shards())
        .filter(|&peer| peer != endpoint.index())
        .collect();
    let mut next = vec![0; endpoint.shards()];
    let mut sent = 0;
    let total = count * peers.len() as u64;
    let mut taken = 0;
    loop {
        taken += endpoint.drain(256, |from, message| {
            assert_eq!(message.number, next[from], "from {from}");
            next[from] += 1;
        }) as u64;
        if sent < count {
            let end = count.min(sent + batch);
            for number in sent..end {
                peers
                    .iter()
                    .for_each(|&peer| endpoint.send(peer, Message { number }));
            }
            sent = end;
            // More to send: come round again. Else only the peers' rings bring this loop back.
            if sent < count {
                notify.notify();
            }
        }
        endpoint.flush();
        let unsent = peers.iter().any(|&peer| endpoint.backlog(peer) > 0);
        if taken == total && sent == count && !unsent {
            return taken;
        }
        notify.notified().await;
    }
}

/// Ends within the test's patience only if no wake-up is lost: nothing here polls by a timer.
fn stress(force_polling: bool, shards: usize, capacity: usize, count: u64) {
    let driver = choose_driver(force_polling).driver;
    let batch = capacity as u64 / 16 + 3;
    let bells: Vec<Notify> = (0..shards).map(|_| Notify::new()).collect();
    let (done, results) = std::sync::mpsc::channel();
    for (endpoint, bell) in mesh(&bells, capacity).into_iter().zip(bells) {
        let done = done.clone();
        thread::spawn(move || {
            let runtime = build_runtime(driver).expect("the choice was tried");
            let taken = runtime.block_on(async {
                compio::runtime::spawn(exchange(endpoint, bell, count, batch))
                    .await
                    .ok()
            });
            let _ = done.send(taken);
        });
    }
    for _ in 0..shards {
        let taken = results
            .recv_timeout(Duration::from_secs(60))
            .expect("a wake-up was lost");
        assert_eq!(taken, Some(count * (shards as u64 - 1)));
    }
}

#[test]
fn two_shards_exchange_millions_in_order() {
    stress(false, 2, 1024, 2_000_000);
}

#[test]
fn four_shards_exchange_millions_in_order() {
    stress(true, 4, 256, 300_000);
}

#[test]
fn rings_of_one_place_lose_no_wake_up() {
    stress(false, 3, 1, 20_000);
}

#[test]
fn full_ring_leaves_the_rest_in_the_backlog_and_rings_when_there_is_room() {
    let bells = [Notify::new(), Notify::new()];
    let mut endpoints = mesh(&bells, 4);
    let mut second = endpoints.pop().unwrap();
    let mut first = endpoints.pop().unwrap();
    for number in 0..10 {
        first.send(1, number);
    }
    assert_eq!(
        first.backlog(1),
        10,
        "nothing is published before the flush"
    );
    first.flush();
    assert_eq!(first.backlog(1), 6);

    let mut taken = Vec::new();
    while taken.len() < 10 {
        second.drain(4, |from, number| {
            assert_eq!(from, 0);
            taken.push(number);
        });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut rung = std::pin::pin!(bells[0].notified());
        let _ = rung.as_mut().poll(&mut context);
        assert!(
            taken.len() > 8 || rung.as_mut().poll(&mut context).is_ready(),
            "there is room"
        );
        first.flush();
    }
    assert_eq!(taken, (0..10).collect::<Vec<_>>());
    assert_eq!(first.backlog(1), 0);
}

#[test]
fn drain_that_stops_early_rings_its_own_bell() {
    let bells = [Notify::new(), Notify::new()];
    let mut endpoints = mesh(&bells, 8);
    let mut second = endpoints.pop().unwrap();
    let mut first = endpoints.pop().unwrap();
    (0..3).for_each(|number| first.send(1, number));
    first.flush();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut ready = |notify: &Notify| {
        let mut wait = std::pin::pin!(notify.notified());
        let _ = wait.as_mut().poll(&mut context);
        wait.as_mut().poll(&mut context).is_ready()
    };
    assert!(ready(&bells[1]), "the flush rang");
    assert_eq!(second.drain(2, |_, _| ()), 2);
    assert!(ready(&bells[1]), "one message is left");
    assert_eq!(second.drain(2, |_, _| ()), 1);
    assert!(!ready(&bells[1]));
}
