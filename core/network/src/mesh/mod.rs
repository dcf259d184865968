//! Bounded rings between the shards of a node.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
    },
};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::Notify;

/// One shard's end of the mesh: a ring to each other shard and one from each.
///
/// Sending never blocks. What was sent since the last [`Endpoint::flush`], and what a full ring did not
/// take, waits in a queue per peer whose length is [`Endpoint::backlog`]; the shard above slows its sources
/// down by it.
#[derive(Debug)]
pub struct Endpoint<T> {
    index: usize,
    notify: Notify,
    /// By peer; `None` at our own place.
    outgoing: Vec<Option<Outgoing<T>>>,
    incoming: Vec<Option<Incoming<T>>>,
    /// The peer that the next drain begins with, so that none is always last.
    first: usize,
}

#[derive(Debug)]
struct Outgoing<T> {
    ring: Producer<T>,
    backlog: VecDeque<T>,
    starved: Arc<Starved>,
    peer: Notify,
}

#[derive(Debug)]
struct Incoming<T> {
    ring: Consumer<T>,
    starved: Arc<Starved>,
    peer: Notify,
}

/// Set by a ring's producer when it found the ring full; cleared by the consumer, who then rings the
/// producer because there is room.
///
/// Neither misses the other: the producer stores the flag, fences, then looks at the ring; the consumer
/// moves the ring, fences, then looks at the flag. Of two sequentially consistent fences one is first, and
/// the side that fenced second sees what the other stored before.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Starved(AtomicBool);

/// Joins the shards whose loops wait on `bells`: one endpoint per bell, in order; each ring holds
/// `capacity` messages.
#[must_use]
pub fn mesh<T: Send>(bells: &[Notify], capacity: usize) -> Vec<Endpoint<T>> {
    assert!(capacity > 0);
    let mut endpoints: Vec<Endpoint<T>> = bells
        .iter()
        .enumerate()
        .map(|(index, bell)| Endpoint::unconnected(index, bell.clone(), bells.len()))
        .collect();
    for (from, to) in pairs(bells.len()) {
        let (producer, consumer) = RingBuffer::new(capacity);
        let starved = Arc::new(Starved::default());
        endpoints[from].outgoing[to] = Some(Outgoing {
            ring: producer,
            backlog: VecDeque::new(),
            starved: Arc::clone(&starved),
            peer: bells[to].clone(),
        });
        endpoints[to].incoming[from] = Some(Incoming {
            ring: consumer,
            starved,
            peer: bells[from].clone(),
        });
    }
    endpoints
}

fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count)
        .flat_map(move |from| (0..count).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
}

impl<T: Send> Endpoint<T> {
    fn unconnected(index: usize, notify: Notify, count: usize) -> Self {
        Self {
            index,
            notify,
            outgoing: (0..count).map(|_| None).collect(),
            incoming: (0..count).map(|_| None).collect(),
            first: 0,
        }
    }

    /// Our own place.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.outgoing.len()
    }

    /// Queues `message` for the shard `to`; [`Endpoint::flush`] publishes it.
    ///
    /// # Panics
    /// When `to` is this shard, or none.
    pub fn send(&mut self, to: usize, message: T) {
        self.outgoing_mut(to).backlog.push_back(message);
    }

    /// Messages for the shard `to` that its ring has not taken yet.
    ///
    /// # Panics
    /// When `to` is this shard, or none.
    #[must_use]
    pub fn backlog(&self, to: usize) -> usize {
        let outgoing = self.outgoing[to].as_ref();
        outgoing
            .expect("a shard sends itself nothing over the mesh")
            .backlog
            .len()
    }

    /// Publishes what was sent, as far as the rings have room, and rings each peer that got something:
    /// once per batch. Call it at the end of every turn of the loop. When a peer makes room in a ring that
    /// was full, it rings this shard.
    pub fn flush(&mut self) {
        for outgoing in self.outgoing.iter_mut().flatten() {
            outgoing.flush();
        }
    }

    /// Hands over at most `max` messages per peer, in the order each peer sent them; says how many. If more
    /// are left, this shard's own bell is rung.
    pub fn drain(&mut self, max: usize, mut handle: impl FnMut(usize, T)) -> usize {
        let count = self.incoming.len();
        let mut drained = 0;
        let mut left = false;
        for step in 0..count {
            let from = (self.first + step) % count;
            if let Some(incoming) = &mut self.incoming[from] {
                drained += incoming.drain(max, |message| handle(from, message));
                left |= !incoming.ring.is_empty();
            }
        }
        self.first = (self.first + 1) % count;
        if left {
            self.notify.notify();
        }
        drained
    }

    fn outgoing_mut(&mut self, to: usize) -> &mut Outgoing<T> {
        let outgoing = self.outgoing[to].as_mut();
        outgoing.expect("a shard sends itself nothing over the mesh")
    }
}

impl<T> Outgoing<T> {
    fn flush(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        let mut published = self.publish();
        if !self.backlog.is_empty() {
            self.starved.0.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            // The consumer may have made room before it could see the flag.
            published += self.publish();
        }
        if published > 0 {
            self.peer.notify();
        }
    }

    /// Moves what fits into the ring: one release store, whatever the number.
    fn publish(&mut self) -> usize {
        let room = self.ring.slots().min(self.backlog.len());
        if room == 0 {
            return 0;
        }
        let chunk = self
            .ring
            .write_chunk_uninit(room)
            .expect("the slots were counted");
        chunk.fill_from_iter(self.backlog.drain(..room))
    }
}

impl<T> Incoming<T> {
    fn drain(&mut self, max: usize, handle: impl FnMut(T)) -> usize {
        let count = self.ring.slots().min(max);
        if count == 0 {
            return 0;
        }
        let chunk = self.ring.read_chunk(count).expect("the slots were counted");
        chunk.into_iter().for_each(handle);
        fence(Ordering::SeqCst);
        if self.starved.0.load(Ordering::Relaxed) && self.starved.0.swap(false, Ordering::AcqRel) {
            self.peer.notify();
        }
        count
    }
}

#[cfg(test)]
mod tests;
