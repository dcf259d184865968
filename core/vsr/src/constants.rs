//! Limits and intervals. Those that change what is replicated are equal on all replicas.

use wire::Timestamp;

/// Ops that a primary may have prepared and not yet applied.
pub const PIPELINE_PREPARES_MAX: usize = 32;

/// Bytes of those ops, headers included. A single op that is larger is taken when nothing else is in
/// flight.
pub const PIPELINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A reply larger than this is not kept for retries. Replicated: it is part of the client table.
pub const CLIENT_REPLY_SIZE_MAX: usize = 16 * 1024;

/// Sessions that a client table holds if nothing else is configured.
pub const CLIENTS_MAX: usize = 16 * 1024;

/// The format of the bodies that this version prepares.
pub(crate) const BODY_VERSION: u32 = 1;

/// No prepare is as late as this: leaves room for the ops after it (V16).
pub(crate) const TIMESTAMP_MAX: Timestamp = Timestamp(u64::MAX / 2);

/// Prepares that a replica with backups keeps in memory after they are applied, in flight ones included.
pub(crate) const KEPT_PREPARES_MAX: usize = 2 * PIPELINE_PREPARES_MAX;

/// Bytes of those prepares.
pub(crate) const KEPT_BYTES_MAX: usize = PIPELINE_BYTES_MAX;

/// Prepares that a backup asks for at once.
pub(crate) const REPAIR_WINDOW: u64 = 32;

const MILLISECOND: u64 = 1_000_000;

/// Nanoseconds between two heartbeats of a primary.
pub(crate) const HEARTBEAT_INTERVAL: u64 = 25 * MILLISECOND;

/// Nanoseconds after which a question that was not answered is asked again.
pub(crate) const REPEAT_INTERVAL: u64 = 50 * MILLISECOND;

const _: () = {
    assert!(KEPT_PREPARES_MAX >= PIPELINE_PREPARES_MAX);
    assert!(REPAIR_WINDOW <= KEPT_PREPARES_MAX as u64);
    assert!(HEARTBEAT_INTERVAL <= REPEAT_INTERVAL);
};
