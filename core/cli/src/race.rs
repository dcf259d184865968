//! Waiting for whatever comes first.

use std::{
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use tokio::signal::unix::{SignalKind, signal};

/// What came first.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Waits for either, and looks at the left one first. The right one is dropped when it is not done.
pub(crate) async fn first<A, B>(
    mut left: Pin<&mut impl Future<Output = A>>,
    right: impl Future<Output = B>,
) -> First<A, B> {
    let mut right = pin!(right);
    poll_fn(|context| match left.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(First::Left(result)),
        Poll::Pending => right.as_mut().poll(context).map(First::Right),
    })
    .await
}

/// Waits for ctrl-C or SIGTERM: whoever stops a command, a person or a supervisor, gets the same clean end.
pub(crate) async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        // Where nobody tells of them, they end the process at once.
        return pending().await;
    };
    poll_fn(|context| {
        // Both are polled, so that each of them wakes this.
        let interrupted = interrupt.poll_recv(context).is_ready();
        let terminated = terminate.poll_recv(context).is_ready();
        if interrupted || terminated {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
