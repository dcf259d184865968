//! The client side of Cohort as state machines: session, producer, consumers. Performs no I/O.
//!
//! [`Session`] keeps one session alive over its connections and answers each request exactly once, with a
//! reply or an error. [`Producer`], [`Consumer`] and [`GroupConsumer`] sit on top: they emit requests for a session and take
//! its answers. All of them take events with the time as an argument (`handle(now, …)`), give effects
//! (`next_effect()`) and say when they want to be called again (`deadline()`). They know no clock and no
//! randomness of their own: ids and seeds are arguments.
#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::match_wildcard_for_single_variants,
    clippy::wildcard_enum_match_arm
)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod backoff;
mod chunk;
mod consumer;
mod consumer_group;
mod error;
mod fetching;
mod frames;
mod frontier;
mod lead;
#[cfg(test)]
mod lossy;
mod producer;
mod random;
mod session;
mod storing;
mod turns;

pub use backoff::Backoff;
pub use consumer::{
    Consumer, ConsumerConfig, ConsumerEffect, ConsumerError, ConsumerEvent, ConsumerInput,
    Delivery, Progress, Start, StoreMode,
};
pub use consumer_group::{
    FencingToken, GroupConsumer, GroupConsumerConfig, GroupEffect, GroupEvent, GroupInput,
    HeldPartition, LossReason,
};
pub use error::{ClientError, ErrorClass};
pub use frames::{Frame, missing_bytes, next_frame};
pub use producer::{
    BatchId, Call, Producer, ProducerConfig, ProducerEffect, ProducerInput, PushError, Pushed,
    Target,
};
pub use session::{
    Close, ConnectionId, Credentials, Effect, Input, Retry, Route, Session, SessionConfig,
    Submission, Ticket,
};

use core::time::Duration;

/// A duration on the scale of [`wire::Time::monotonic`].
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
