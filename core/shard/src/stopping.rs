//! The end of a shard: what is in flight is finished, and what it leads goes to others.

use alloc::vec::Vec;

use wire::{Event, ServerStopping, ShardId};

use crate::{ConnectionId, DiskSpace, Effect, Shard, host::Member, work::Slot};

/// How long clients are told to have after a stop, milliseconds.
const STOP_TIME_LEFT: u32 = 5_000;

/// How long a node that is to stop waits until others lead what it led, nanoseconds.
const HAND_OVER_MAX: u64 = 1_000_000_000;

/// How long one of several nodes that is to stop waits for answers that only others can bring about,
/// nanoseconds: they may be gone.
const STOP_WITHOUT_OTHERS: u64 = 3_000_000_000;

impl Shard {
    pub(crate) fn on_stop(&mut self) {
        if core::mem::replace(&mut self.stopping, true) {
            return;
        }
        self.stopping_since = self.desk.now.monotonic;
        if let Some(host) = &mut self.metadata {
            host.stopping = true;
        }
        let event = Event::ServerStopping(ServerStopping {
            time_left_ms: STOP_TIME_LEFT,
        });
        let connections: Vec<ConnectionId> = self.connections.ids().collect();
        for connection in connections {
            self.send_event(connection, &event);
        }
        self.polls.hurry_all();
        let waiting: Vec<(Slot, Vec<ShardId>)> = self
            .pending
            .polls()
            .map(|(slot, shards)| (slot, shards.to_vec()))
            .collect();
        for (slot, shards) in waiting {
            self.hurry(slot, &shards);
        }
        self.feed_all(&vsr::Input::Stop);
    }

    pub(crate) fn say_stopped(&mut self) {
        if !self.stopping || self.stopped_said {
            return;
        }
        // What waits for space was answered so, and must not wait here.
        let is_done = self.is_idle() || self.disk == DiskSpace::Nothing;
        let is_answered = is_done && self.pending.is_empty() && self.polls.is_empty();
        // Whom it leads knows of a later view before it goes, unless there is nobody.
        let waited = self.desk.now.monotonic.saturating_sub(self.stopping_since);
        let has_others = self.config.nodes.len() > 1;
        let leads = has_others && self.members().any(Member::leads);
        let is_overdue = has_others && waited >= STOP_WITHOUT_OTHERS;
        if is_answered && (!leads || waited >= HAND_OVER_MAX) || is_overdue {
            self.stopped_said = true;
            self.desk.push(Effect::Stopped);
        }
    }
}
