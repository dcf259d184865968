//! Limits and intervals. Those that change what is replicated are equal on all replicas.

use wire::{Timestamp, View};

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

/// The operation of barriers (V13); state machines have no such.
pub(crate) const BARRIER: u16 = u16::MAX;

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

/// Nanoseconds after which prepares that were asked for are asked for again, at most. Asked for sooner than they
/// can be sent, they would be sent again and again, and never be in time: each time without an answer doubles
/// the wait.
pub(crate) const REPEAT_INTERVAL_MAX: u64 = 16 * REPEAT_INTERVAL;

/// Nanoseconds without a word from the primary after which it is suspected, at least: a busy host of two
/// cores stalls for half of that.
pub(crate) const SILENCE_MIN: u64 = 150 * MILLISECOND;

/// The primary is suspected when it is silent for so many of its usual intervals.
pub(crate) const SILENCE_INTERVALS: u64 = 3;

/// Nanoseconds of silence after which the primary is suspected, however slow it usually is.
pub(crate) const SILENCE_MAX: u64 = 1_000 * MILLISECOND;

/// A tick that comes so many nanoseconds after the one before is late: the replica itself was held up,
/// and blames nobody.
pub(crate) const TICK_LATE: u64 = 75 * MILLISECOND;

/// A tick is due every 10 ms. What it comes later than this, in nanoseconds after the one before, does not count as
/// anybody's silence: the replica itself was held up for that long.
pub(crate) const TICK_INTERVAL_MAX: u64 = 20 * MILLISECOND;

/// Nanoseconds without a word from a replica whose node's bytes keep arriving, after which that is no excuse any
/// more.
pub(crate) const RECEIVING_MAX: u64 = 2 * SILENCE_MAX;

/// Nanoseconds after which a slow interval is forgotten, by and by.
pub(crate) const SLOWNESS_MEMORY: u64 = 2_000 * MILLISECOND;

/// Nanoseconds for which a wish for a view counts (V5). Wishes are repeated every [`REPEAT_INTERVAL`].
pub(crate) const WISH_INTERVAL: u64 = 500 * MILLISECOND;

/// Nanoseconds that the first view change in a row may take; each further one gets twice the time.
pub(crate) const VIEW_CHANGE_INTERVAL: u64 = 200 * MILLISECOND;

/// How often that time is doubled at most.
pub(crate) const VIEW_CHANGE_DOUBLINGS_MAX: u32 = 4;

/// Nanoseconds that one replica waits longer than the one before, so that they do not move in step.
pub(crate) const STAGGER: u64 = 12 * MILLISECOND;

/// A primary that heard from no quorum for so many nanoseconds abdicates (V17).
pub(crate) const ABDICATION_INTERVAL: u64 = 600 * MILLISECOND;

/// So does one of whose ops in flight none has moved for so many nanoseconds, at least: a flush that takes a second
/// is no reason.
pub(crate) const PROGRESS_MIN: u64 = 2 * ABDICATION_INTERVAL;

/// It does when nothing has moved for so many of the usual intervals between two moves.
pub(crate) const PROGRESS_INTERVALS: u64 = 4;

/// Nanoseconds without a move after which it abdicates, however slow it usually is; and for how long work of others
/// excuses it.
pub(crate) const PROGRESS_MAX: u64 = 4_000 * MILLISECOND;

/// How long a primary whose process is about to end waits for what is in flight before it leads no more,
/// nanoseconds.
pub(crate) const HAND_OVER_INTERVAL: u64 = 300 * MILLISECOND;

/// Nanoseconds for which a primary leads at least before it hands over because it would rather not lead, and between
/// two attempts.
pub(crate) const HAND_OVER_PAUSE: u64 = 200 * MILLISECOND;

/// Nanoseconds for which the replica that is to lead a group must have followed, and another one have led, before the
/// group is given back.
pub(crate) const SPREAD_INTERVAL: u64 = 5_000 * MILLISECOND;

/// Nanoseconds from one time that a replica gives a group back to the next; each further time twice that.
pub(crate) const OFFER_INTERVAL: u64 = 30_000 * MILLISECOND;

/// How often that time is doubled at most.
pub(crate) const OFFER_DOUBLINGS_MAX: u32 = 5;

/// Ops that a backup may lack of what its primary has applied to be given the lead: as many as may be in flight.
pub(crate) const FOLLOWS_BEHIND_MAX: u64 = PIPELINE_PREPARES_MAX as u64;

/// Views from here on are not believed: leaves room for those after them.
pub(crate) const VIEW_MAX: View = View(u32::MAX / 2);

/// Ops of a journal that may be uncommitted: a primary prepares an op only when the one so many before it
/// is applied.
pub(crate) const SUFFIX_MAX: usize = PIPELINE_PREPARES_MAX;

/// Ops that a vote may name: where the last prepares cannot be read, more may have been there than were.
pub(crate) const VOTE_OPS_MAX: usize = 4 * SUFFIX_MAX;

const _: () = {
    assert!(3 * HEARTBEAT_INTERVAL <= SILENCE_MIN);
    assert!(TICK_LATE < SILENCE_MIN);
    assert!(TICK_INTERVAL_MAX < TICK_LATE);
    assert!(SILENCE_MAX < RECEIVING_MAX);
    assert!(SILENCE_MIN < HAND_OVER_PAUSE);
    assert!(HAND_OVER_PAUSE < SPREAD_INTERVAL);
    assert!(SPREAD_INTERVAL < OFFER_INTERVAL);
    assert!(ABDICATION_INTERVAL < RECEIVING_MAX);
    assert!(PROGRESS_MIN < PROGRESS_MAX);
    assert!(3 * SILENCE_MIN < SLOWNESS_MEMORY);
    assert!(2 * REPEAT_INTERVAL < WISH_INTERVAL);
    assert!(SILENCE_MIN < VIEW_CHANGE_INTERVAL);
    assert!(KEPT_PREPARES_MAX >= PIPELINE_PREPARES_MAX);
    assert!(REPAIR_WINDOW <= KEPT_PREPARES_MAX as u64);
    assert!(HEARTBEAT_INTERVAL <= REPEAT_INTERVAL);
};
