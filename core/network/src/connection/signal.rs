//! Wakes one task of the same thread.

use std::{
    cell::RefCell,
    future::poll_fn,
    task::{Poll, Waker},
};

/// Where one task waits for a condition that other tasks of its thread bring about.
#[derive(Debug, Default)]
pub(crate) struct Signal(RefCell<Option<Waker>>);

impl Signal {
    /// Waits until `ready`; it is looked at again after each ring.
    pub(crate) async fn wait_until(&self, ready: impl Fn() -> bool) {
        poll_fn(|context| {
            if ready() {
                return Poll::Ready(());
            }
            let mut waker = self.0.borrow_mut();
            if !waker
                .as_ref()
                .is_some_and(|waker| waker.will_wake(context.waker()))
            {
                *waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Says that the condition may have changed.
    pub(crate) fn ring(&self) {
        let waker = self.0.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
