//! Waiting for whatever comes first.

use std::{
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

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

/// Waits for ctrl-C.
pub(crate) async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Where nobody tells of it, ctrl-C ends the process at once.
        pending::<()>().await;
    }
}
