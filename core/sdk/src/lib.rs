//! The asynchronous client of the Cohort message broker, on tokio.
//!
//! ```no_run
//! # async fn example() -> Result<(), cohort::Error> {
//! let client = cohort::Client::connect("cohort://root:secret@127.0.0.1:5100").await?;
//! client.create_stream("shop").await?;
//! client.create_topic("shop", "orders", 4).await?;
//!
//! let producer = client.producer("shop", "orders").build().await?;
//! producer.send(cohort::Message::new("paid").key("customer-9")).await?;
//!
//! let mut consumer = client.consumer("shop", "orders", "billing").build().await?;
//! if let Some(message) = consumer.next().await {
//!     println!("{:?}", message?.payload());
//! }
//! consumer.close().await?;
//! client.close().await;
//! # Ok(()) }
//! ```
//!
//! It runs in a tokio runtime with I/O and time enabled; the manifest of a program needs
//!
//! ```toml
//! cohort = { path = "cohort/core/sdk" }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! What is sent is stored once and in order within its partition, through lost connections, restarts of the
//! server and deaths of nodes. What is consumed comes at least once: an offset is stored when its message is processed, so
//! after a crash the messages behind the last one stored come again. `examples/orders.rs` has both in full.
//!
//! Everything that decides anything is in the crate `client`, without I/O; here are the sockets, the clock
//! and the tasks around it.
#![forbid(unsafe_code)]

mod address;
mod catalog;
mod client;
mod consumer;
mod consumer_group;
mod consumer_groups;
mod core;
mod error;
mod id;
mod listener;
mod message;
mod node_status;
mod only;
mod producer;
mod waiting;

pub use ::client::{
    ClientError, ConsumerError, ConsumerEvent, FencingToken, GroupEvent, HeldPartition, LossReason,
    Progress, PushError, Start, StoreMode,
};
pub use address::{Address, AddressError, DEFAULT_PORT};
pub use bytes::Bytes;
pub use catalog::StoredOffset;
pub use client::{Client, ClientBuilder, Me};
pub use consumer::{Consumer, ConsumerBuilder};
pub use consumer_group::{GroupConsumer, GroupConsumerBuilder, GroupEvents};
pub use consumer_groups::{GroupOptions, OffsetReset};
pub use error::Error;
pub use id::Id;
pub use message::{Message, Received};
pub use node_status::node_status;
pub use producer::{BatchReceipt, Delivery, Producer, ProducerBuilder, Receipt, Receipts};
pub use wire::{
    ClientId, ClusterMetadata, Command, ConsensusGroup, ConsumerGroupDetails, ConsumerGroupId,
    ConsumerGroupOptions, ConsumerGroupSummary, Counter, DisplacedSession, Epoch, ErrorCode,
    Generation, GroupPrimary, GroupProgress, GroupStart, Incarnation, MemberDetails, MemberId,
    MemberStatus, MoveWait, Node, NodeStatus, Offset, OffsetsReset, Op, OwnershipDetails,
    PartitionDetails, PartitionId, PartitionMove, PartitionOwner, ReplicaDetails, ReplicaId,
    ReplicaState, ResetTarget, SessionNumber, StreamDetails, StreamId, Timestamp, TopicDetails,
    TopicId, TopicSummary, UserDetails, UserId, View,
};
