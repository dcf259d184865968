//! What waits for an application that asks for the next message.

use std::{
    collections::VecDeque,
    task::{Context, Waker},
};

use client::Delivery;

/// Events kept for an application that does not ask for them; the oldest are dropped first.
pub(crate) const EVENTS_MAX: usize = 1_024;

/// What there is for an application that asks for the next message.
#[derive(Debug)]
pub(crate) enum Next<E> {
    Event(E),
    Message(Delivery),
    /// There will be no more.
    End,
    /// The application is woken when there is more.
    Wait,
}

/// Events that are not told yet, and who waits for them or for a message.
#[derive(Debug)]
pub(super) struct Inbox<E> {
    events: VecDeque<E>,
    waker: Option<Waker>,
}

impl<E> Inbox<E> {
    pub(super) const fn new() -> Self {
        Self {
            events: VecDeque::new(),
            waker: None,
        }
    }

    pub(super) fn push(&mut self, event: E) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        self.events.pop_front()
    }

    /// Whoever asks is woken when there is more.
    pub(super) fn wait(&mut self, context: &Context<'_>) {
        self.waker = Some(context.waker().clone());
    }

    /// Wakes who waits, if there is an event, or something else.
    pub(super) fn wake_if(&mut self, other: bool) {
        if (other || !self.events.is_empty())
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    /// What comes next: a message that was taken, or an event that came of asking for one.
    pub(super) fn next(&mut self, delivery: Option<Delivery>, is_over: bool) -> Next<E> {
        match delivery {
            Some(delivery) => Next::Message(delivery),
            None => match self.pop() {
                Some(event) => Next::Event(event),
                None if is_over => Next::End,
                None => Next::Wait,
            },
        }
    }
}
