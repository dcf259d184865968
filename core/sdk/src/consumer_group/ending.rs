//! What a member has stored for good, and how it ends.

use std::time::{Duration, Instant};

use wire::{Command, Consumer, GetConsumerOffset, OffsetResult};

use super::GroupConsumer;
use crate::{
    Error,
    core::{End, MemberEntry, Settled, Unstored},
    only::only,
    waiting::{in_time, timed_out},
};

/// The part of the time for an end that is kept for the server to let the member go.
const LEAVE_SHARE: u32 = 4;

/// More than that is not needed.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);

/// What nobody waits for.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// Partitions in one request: servers take at least as many sections.
const SECTIONS_MAX: usize = 128;

impl GroupConsumer {
    /// Stores all that is processed; it is durable when this returns. The message given out last is not among
    /// it, by default.
    ///
    /// # Errors
    /// [`Error::NotStored`] when a partition was lost, or its store refused, before that;
    /// [`Error::StoreInDoubt`] when it was lost and the server does not say what is stored;
    /// [`Error::TimedOut`] after the client's request timeout, though it goes on being tried.
    pub async fn store(&self) -> Result<(), Error> {
        let shared = self.client.shared();
        let stored = shared.lock().store_of_group(shared, self.id);
        let stored = stored.ok_or(Error::Closed)?;
        let timeout = self.client.request_timeout;
        let until = later(timeout);
        match in_time(timeout, stored).await {
            Some(settled) => self.outcome(settled?, until).await,
            None => Err(timed_out(Command::StoreConsumerOffset, timeout)),
        }
    }

    /// Leaves the group: nothing more is read; what was given out is to be processed within the client's
    /// request timeout (the last message counts as processed, [`StoreMode::Processed`](crate::StoreMode)), is
    /// stored, and the partitions go to the others, with nothing to be delivered again.
    ///
    /// # Errors
    /// [`Error::NotStored`] when something that is processed is not stored; it comes again.
    /// [`Error::StoreInDoubt`] when the server does not say, in time, what is stored.
    /// [`Error::TimedOut`] when it does not let the member go in time; it is told later, or the session
    /// expires.
    pub async fn close(self) -> Result<(), Error> {
        let timeout = self.client.request_timeout;
        self.close_within(timeout).await
    }

    /// As [`GroupConsumer::close`], with this time in all. A quarter of it, at most a second, is for the server;
    /// in the rest the application finishes, and what is processed is stored.
    ///
    /// # Errors
    /// As [`GroupConsumer::close`].
    pub async fn close_within(self, timeout: Duration) -> Result<(), Error> {
        self.end(End::Leave, timeout).await
    }

    /// Goes without leaving the group, so that a restart moves no partitions: of a member with an instance id
    /// ([`GroupConsumerBuilder::instance_id`](crate::GroupConsumerBuilder::instance_id)), before its process
    /// ends. As with [`GroupConsumer::close`], what was given out is to be processed within the client's
    /// request timeout, and is stored. The membership stays, with its partitions, until the server's session
    /// timeout after the connections have ended; whoever joins with the same instance id before that takes it
    /// over, and goes on behind what is stored. After that the partitions go to others.
    ///
    /// The membership is the session's: close the [`Client`](crate::Client) next, or drop all that holds it.
    /// While it lives, nobody reads these partitions.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a member without an instance id, which leaves the group. [`Error::NotStored`] and
    /// [`Error::StoreInDoubt`] as with [`GroupConsumer::close`]; the membership stays all the same.
    pub async fn detach(self) -> Result<(), Error> {
        let timeout = self.client.request_timeout;
        self.detach_within(timeout).await
    }

    /// As [`GroupConsumer::detach`], with this time in all.
    ///
    /// # Errors
    /// As [`GroupConsumer::detach`].
    pub async fn detach_within(self, timeout: Duration) -> Result<(), Error> {
        if !self.is_static {
            return Err(Error::Invalid {
                what: "detach",
                problem: "only a member with an instance id can be taken over; close it instead"
                    .to_string(),
            });
        }
        self.end(End::Detach, timeout).await
    }

    async fn end(&self, end: End, timeout: Duration) -> Result<(), Error> {
        let until = later(timeout);
        let finishing = timeout.saturating_sub((timeout / LEAVE_SHARE).min(LEAVE_TIME_MAX));
        let shared = self.client.shared();
        let ended = shared.lock().end_member(shared, self.id, (end, finishing));
        let ended = ended.ok_or(Error::Closed)?;
        if let Some(settled) = in_time(timeout, ended).await {
            return self.outcome(settled?, until).await;
        }
        // What is not stored is worth more than that nobody has answered.
        let settled = {
            let mut core = shared.lock();
            let entry = core.members.get_mut(&self.id);
            entry.map(MemberEntry::take_settled)
        };
        self.outcome(settled.unwrap_or_default(), until).await?;
        Err(timed_out(Command::LeaveConsumerGroup, timeout))
    }

    /// What has come of storing. The answer to a store may have been lost with the connection, and the
    /// partition with the membership: then the server knows what is stored, and is asked.
    async fn outcome(&self, settled: Settled, until: Instant) -> Result<(), Error> {
        if let Some(error) = settled.failed {
            return Err(error);
        }
        for unstored in settled.unstored.chunks(SECTIONS_MAX) {
            self.confirm(unstored, until).await?;
        }
        Ok(())
    }

    /// An error if one of these is not stored, or if that is not known.
    async fn confirm(&self, unstored: &[Unstored], until: Instant) -> Result<(), Error> {
        let Some(first) = unstored.first() else {
            return Ok(());
        };
        let request = GetConsumerOffset {
            stream: self.topic.0.into(),
            topic: self.topic.1.into(),
            consumer: Consumer::Group(self.group.into()),
            partitions: unstored.iter().map(|one| one.partition).collect(),
        };
        let left = until.saturating_duration_since(Instant::now());
        let shared = self.client.shared();
        let reply = shared.request(request.into(), left).await;
        match reply.and_then(|reply| only!(reply, Offsets)) {
            Ok(offsets) => unstored.iter().try_for_each(|one| {
                let mut sections = offsets.sections.iter();
                let section = sections.find(|section| section.partition == one.partition);
                confirmed(one, section)
            }),
            // The group is gone, and its offsets with it, or it is not for this user to know.
            Err(Error::Refused { code, .. }) if !code.retryable() => Err(not_stored(first)),
            Err(error) => Err(in_doubt(first, error)),
        }
    }
}

fn later(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + FOREVER)
}

fn confirmed(unstored: &Unstored, section: Option<&OffsetResult>) -> Result<(), Error> {
    match section {
        Some(section) => match &section.status {
            Ok(()) if section.stored >= Some(unstored.offset) => Ok(()),
            Ok(()) => Err(not_stored(unstored)),
            Err(failure) => {
                let (code, text) = (failure.code, failure.text.clone());
                Err(in_doubt(unstored, Error::Refused { code, text }))
            }
        },
        None => {
            let text = "the server's answer leaves it out".to_string();
            Err(in_doubt(unstored, Error::Protocol(text)))
        }
    }
}

fn not_stored(unstored: &Unstored) -> Error {
    Error::NotStored {
        partition: unstored.partition,
        offset: unstored.offset,
        code: unstored.code,
        text: unstored.text.clone(),
    }
}

fn in_doubt(unstored: &Unstored, error: Error) -> Error {
    Error::StoreInDoubt {
        partition: unstored.partition,
        offset: unstored.offset,
        error: Box::new(error),
    }
}
