//! Leaving: because it is closed, or because nobody takes its messages. Or going without leaving.

use core::time::Duration;

use wire::{Epoch, LeaveConsumerGroup, Reply};

use super::{
    Asked, Call, ClientError, GroupConsumer, GroupEvent, LossReason, Phase, State, nanoseconds,
};

/// The longest wait for what is processed to be stored when a stalled consumer leaves.
const STALL_STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// On the way out of the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    why: Why,
    /// When it leaves, whatever is processed and stored by then.
    deadline: u64,
    /// The unanswered leave.
    call: Option<Call>,
    /// Whether everything is done but the leave itself.
    told: bool,
    /// When the leave is sent again, if it failed.
    at: u64,
    /// Leaves that failed.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Closed,
    /// The process goes, the membership stays.
    Detached,
    /// The application did not ask for messages.
    Stalled {
        /// It asks again.
        back: bool,
    },
}

impl Leaving {
    pub(super) fn due(&self) -> Option<u64> {
        let time = if self.told { self.at } else { self.deadline };
        self.call.is_none().then_some(time)
    }

    /// Whether everything is done but the leave itself.
    pub(super) const fn is_told(&self) -> bool {
        self.told
    }

    /// Whether the group is not left in the end.
    pub(super) const fn keeps_membership(&self) -> bool {
        matches!(self.why, Why::Detached)
    }
}

impl GroupConsumer {
    /// The application asks for a message.
    pub(super) fn on_asked(&mut self) {
        match &mut self.phase {
            Phase::Away => self.phase = Phase::joining(self.now),
            Phase::Leaving(leaving) => {
                if let Why::Stalled { back } = &mut leaving.why {
                    *back = true;
                }
            }
            Phase::Joining { .. } | Phase::Member | Phase::Ended | Phase::Failed => {}
        }
    }

    /// When the application counts as stalled, if it asks for nothing until then.
    pub(super) fn stall_deadline(&self) -> Option<u64> {
        if !matches!(self.phase, Phase::Member) {
            return None;
        }
        let interval = nanoseconds(self.config.max_poll_interval?);
        Some(self.idle_since?.saturating_add(interval))
    }

    pub(super) fn watch_stall(&mut self) {
        if self.stall_deadline().is_none_or(|time| self.now < time) {
            return;
        }
        let since = self.idle_since.unwrap_or(self.now);
        let idle = Duration::from_nanos(self.now.saturating_sub(since));
        self.event(GroupEvent::Stalled { idle });
        self.begin_leaving(Why::Stalled { back: false }, STALL_STORE_TIMEOUT);
    }

    pub(super) fn on_close(&mut self, timeout: Duration) {
        match self.phase {
            Phase::Away | Phase::Joining { sent: false, .. } => self.phase = Phase::Ended,
            Phase::Leaving(ref mut leaving) => leaving.why = Why::Closed,
            Phase::Joining { .. } | Phase::Member => self.begin_leaving(Why::Closed, timeout),
            Phase::Ended | Phase::Failed => {}
        }
    }

    pub(super) fn on_detach(&mut self, timeout: Duration) {
        match self.phase {
            Phase::Member => self.begin_leaving(Why::Detached, timeout),
            // Nothing was handed out.
            Phase::Joining { .. } | Phase::Away => self.phase = Phase::Ended,
            // It gives its partitions up already, because nobody takes their messages.
            Phase::Leaving(_) => self.on_close(timeout),
            Phase::Ended | Phase::Failed => {}
        }
    }

    fn begin_leaving(&mut self, why: Why, timeout: Duration) {
        self.phase = Phase::Leaving(Leaving {
            why,
            deadline: self.now.saturating_add(nanoseconds(timeout)),
            call: None,
            told: false,
            at: self.now,
            failures: 0,
        });
        for holding in self.held.values_mut() {
            self.buffered -= holding.drop_fetched();
        }
        self.idle_since = None;
        self.on_flush();
    }

    /// Leaves when what was handed out is processed and stored, or there is no more time for it.
    pub(super) fn leave(&mut self) {
        let Phase::Leaving(leaving) = self.phase else {
            return;
        };
        if leaving.told {
            if leaving.call.is_none() && self.now >= leaving.at {
                self.submit_leave(leaving);
            }
            return;
        }
        let store = self.config.store;
        let finished = match leaving.why {
            Why::Closed | Why::Detached => self.held.values().all(|holding| {
                matches!(holding.state, State::Released) || holding.is_finished(store)
            }),
            Why::Stalled { .. } => true,
        };
        if self.now < leaving.deadline && !(finished && self.is_stored()) {
            return;
        }
        for holding in self.held.values_mut() {
            // Given up like a revoked one, if nothing of it is left to be done.
            if holding.state == State::Owned {
                let (planned, deadline) = (Epoch(0), leaving.deadline);
                holding.state = State::Revoking { planned, deadline };
            }
        }
        if leaving.keeps_membership() {
            self.lose_all(&LossReason::Detached);
            return self.on_left();
        }
        self.lose_all(&LossReason::Left);
        self.submit_leave(leaving);
    }

    fn submit_leave(&mut self, leaving: Leaving) {
        let request = self.leave_request();
        let call = self.submit(request.into(), Asked::Leave, Duration::ZERO);
        self.phase = Phase::Leaving(Leaving {
            call: Some(call),
            told: true,
            ..leaving
        });
    }

    /// The leave is answered, or not: then it is sent again, or partitions would stay with a member that
    /// does not read them, for as long as the session lives.
    pub(super) fn on_leave_answered(&mut self, result: Result<Reply, ClientError>) {
        match (result, &mut self.phase) {
            (Err(error), Phase::Leaving(leaving)) if error.is_retryable() => {
                leaving.call = None;
                leaving.failures = leaving.failures.saturating_add(1);
                let failures = leaving.failures;
                let later = self.backoff(failures);
                if let Phase::Leaving(leaving) = &mut self.phase {
                    leaving.at = later;
                }
                self.event(GroupEvent::Retrying { error });
            }
            // Whoever is not a member has left.
            (Ok(_) | Err(_), _) => self.on_left(),
        }
    }

    pub(super) fn leave_request(&self) -> LeaveConsumerGroup {
        let (stream, topic, group) = self.names();
        LeaveConsumerGroup {
            stream,
            topic,
            group,
        }
    }

    /// The group is left, or the membership has ended otherwise.
    pub(super) fn on_left(&mut self) {
        if let Phase::Leaving(leaving) = self.phase {
            self.phase = match leaving.why {
                Why::Closed | Why::Detached => Phase::Ended,
                Why::Stalled { back: false } => Phase::Away,
                Why::Stalled { back: true } => Phase::joining(self.now),
            };
        }
    }
}
