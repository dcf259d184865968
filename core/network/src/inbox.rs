//! From any thread to one shard's loop.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Notify;

/// A queue that any thread fills and one loop empties. It has no bound of its own: every sender answers
/// requests of this loop, and the loop bounds those.
#[derive(Debug)]
pub struct Inbox<T> {
    queue: Arc<Mutex<Vec<T>>>,
    /// Emptied by the last drain; swapped in, so that a drain takes the lock once and allocates nothing.
    spare: Vec<T>,
}

/// Puts things into an [`Inbox`] and rings its loop.
#[derive(Debug)]
pub struct InboxSender<T> {
    queue: Arc<Mutex<Vec<T>>>,
    notify: Notify,
}

/// Makes an inbox whose loop waits on `notify`.
#[must_use]
pub fn inbox<T: Send>(notify: Notify) -> (InboxSender<T>, Inbox<T>) {
    let queue = Arc::new(Mutex::new(Vec::new()));
    let sender = InboxSender {
        queue: Arc::clone(&queue),
        notify,
    };
    let inbox = Inbox {
        queue,
        spare: Vec::new(),
    };
    (sender, inbox)
}

impl<T: Send> InboxSender<T> {
    /// Puts `item` in and rings the loop; wakes it only if it is parked.
    pub fn send(&self, item: T) {
        lock(&self.queue).push(item);
        self.notify.notify();
    }
}

impl<T> Clone for InboxSender<T> {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            notify: self.notify.clone(),
        }
    }
}

impl<T: Send> Inbox<T> {
    /// Hands over everything that is there, each sender's items in the order sent; says how many.
    pub fn drain(&mut self, mut handle: impl FnMut(T)) -> usize {
        std::mem::swap(&mut *lock(&self.queue), &mut self.spare);
        let count = self.spare.len();
        for item in self.spare.drain(..) {
            handle(item);
        }
        count
    }
}

fn lock<T>(queue: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;
    use crate::{Driver, build_runtime};

    #[test]
    fn loop_gets_every_item_of_every_thread_in_order() {
        const ITEMS: u64 = 50_000;
        let notify = Notify::new();
        let (sender, mut inbox) = inbox(notify.clone());
        let threads: Vec<_> = (0..3)
            .map(|name: usize| {
                let sender = sender.clone();
                thread::spawn(move || (0..ITEMS).for_each(|item| sender.send((name, item))))
            })
            .collect();
        let (done, result) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = build_runtime(Driver::Polling).expect("polling works everywhere");
            runtime.block_on(async move {
                let mut next = [0; 3];
                while next != [ITEMS; 3] {
                    notify.notified().await;
                    inbox.drain(|(name, item): (usize, u64)| {
                        assert_eq!(item, next[name]);
                        next[name] += 1;
                    });
                }
            });
            done.send(()).expect("the test waits");
        });
        for thread in threads {
            thread.join().unwrap();
        }
        result
            .recv_timeout(Duration::from_secs(60))
            .expect("a wake-up was lost");
    }
}
