//! What a shard's loop waits for.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// The loop runs and nothing is announced.
const AWAKE: u8 = 0;
/// The loop waits; whoever announces something must wake it.
const PARKED: u8 = 1;
/// Something was announced since the loop last looked.
const RUNG: u8 = 2;

/// One loop's bell: any thread rings it after it has put something where the loop will look, and only the
/// first ring after the loop parked costs a wake-up.
///
/// No wake-up is lost. A ring is a swap that releases, and the loop's look is a swap that acquires, on one
/// atomic: they are totally ordered. Is the ring first, the loop finds `RUNG`, does not park, and sees what
/// was put there before. Is it second, it finds `PARKED` and wakes the loop. A plain load would not do on
/// either side: it may return what was true before the other side's last store.
#[derive(Clone, Debug, Default)]
pub struct Notify(Arc<Bell>);

/// Alone on its cache line: it is swapped by every thread that has something for the loop.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Bell {
    state: AtomicU8,
    /// Locked by the loop before it parks and by the one ring that finds it parked: never contended for
    /// longer than a clone takes.
    waker: Mutex<Option<Waker>>,
}

impl Notify {
    /// A bell that nobody has rung.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces that there is something to look at. Call it after the thing is in its place, once for any
    /// number of things.
    pub fn notify(&self) {
        if self.0.state.swap(RUNG, Ordering::AcqRel) == PARKED {
            let waker = self.lock().clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Waits for a ring since the last wait ended. Other tasks of the thread run in between even when the
    /// bell was rung already, so a loop that always finds something starves nobody.
    ///
    /// One loop waits on a bell; the last waiter wins.
    pub async fn notified(&self) {
        let mut yielded = false;
        poll_fn(|context| self.poll_notified(context, &mut yielded)).await;
    }

    fn poll_notified(&self, context: &Context<'_>, yielded: &mut bool) -> Poll<()> {
        if self.take_ring() {
            if *yielded {
                return Poll::Ready(());
            }
            // Keep the ring for the next poll.
            *yielded = true;
            self.0.state.swap(RUNG, Ordering::AcqRel);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        *yielded = true;
        self.store_waker(context.waker());
        let parked =
            self.0
                .state
                .compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire);
        if parked.is_ok() {
            return Poll::Pending;
        }
        self.0.state.swap(AWAKE, Ordering::AcqRel);
        Poll::Ready(())
    }

    fn take_ring(&self) -> bool {
        self.0.state.swap(AWAKE, Ordering::AcqRel) == RUNG
    }

    fn store_waker(&self, waker: &Waker) {
        let mut stored = self.lock();
        if !stored
            .as_ref()
            .is_some_and(|stored| stored.will_wake(waker))
        {
            *stored = Some(waker.clone());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.0.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn ring_before_wait_ends_it_after_one_yield() {
        let notify = Notify::new();
        notify.notify();
        let wakes = Arc::new(Counter::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut wait = std::pin::pin!(notify.notified());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        assert!(wait.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn only_the_first_ring_wakes_a_parked_loop() {
        let notify = Notify::new();
        let wakes = Arc::new(Counter::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut wait = std::pin::pin!(notify.notified());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        for _ in 0..5 {
            notify.notify();
        }
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        assert!(wait.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn wait_without_ring_stays_pending() {
        let notify = Notify::new();
        let waker = Waker::noop();
        let mut context = Context::from_waker(waker);
        let mut wait = std::pin::pin!(notify.notified());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        assert!(wait.as_mut().poll(&mut context).is_pending());
    }
}
