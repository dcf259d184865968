//! What an application wants to be called for.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

/// What is called for each event of a consumer. It is never called from two threads at once, and the consumer
/// that has it can still be shared between them.
pub(crate) struct Listener<E>(Mutex<Listen<E>>);

type Listen<E> = Box<dyn FnMut(&E) + Send>;

impl<E> Listener<E> {
    pub(crate) fn new(listen: impl FnMut(&E) + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(listen)))
    }

    pub(crate) fn tell(&mut self, event: &E) {
        let listen = self.0.get_mut();
        (listen.unwrap_or_else(PoisonError::into_inner))(event);
    }
}

impl<E> fmt::Debug for Listener<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}
