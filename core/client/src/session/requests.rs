//! Requests: queue, numbers, answers, repetitions, time limits.

use alloc::{string::ToString, vec::Vec};
use core::time::Duration;

use wire::{
    Command, ConsensusGroup, CorrelationId, ErrorCode, FRAME_HEADER_SIZE, Failure, FrameHeader,
    Identifier, Password, Plane, ReplicaId, Reply, Request, RequestNumber, UserId, View,
};

use super::{
    Effect, Phase, Route, Session,
    link::{Link, LinkId},
    request::{Pending, Place, Repeat, RequestKey, Submission},
};
use crate::{ClientError, Frame, backoff::passes_with_primary};

impl Session {
    pub(super) fn on_submit(&mut self, submission: Submission) {
        let ticket = submission.ticket;
        let command = submission.request.command();
        let refusal = match &self.phase {
            Phase::Open => self.refuse_submission(command),
            Phase::Closing { .. } | Phase::Closed => Some(ClientError::Closed),
            Phase::Failed(error) => Some(error.clone()),
        };
        if let Some(error) = refusal {
            return self.effects.push_back(Effect::Completed {
                ticket,
                result: Err(error),
            });
        }
        let repeat = Repeat::of(&submission.request, submission.retry);
        let pending = self.pending(&submission.request, repeat, submission.timeout);
        self.enqueue(Pending {
            ticket: Some(ticket),
            route: submission.route,
            ..pending
        });
    }

    fn refuse_submission(&self, command: Command) -> Option<ClientError> {
        if matches!(command, Command::Login | Command::Attach | Command::Logout) {
            Some(ClientError::Reserved { command })
        } else if self.requests.len() >= self.config.requests_max {
            Some(ClientError::QueueFull {
                limit: self.config.requests_max,
            })
        } else {
            None
        }
    }

    pub(super) fn submit_logout(&mut self, timeout: Duration) {
        let pending = self.pending(&Request::Logout, Repeat::UnlessUnknown, timeout);
        self.enqueue(pending);
    }

    /// A request of the session's own.
    fn pending(&self, request: &Request, repeat: Repeat, timeout: Duration) -> Pending {
        Pending {
            ticket: None,
            command: request.command(),
            body: request.encode_parts(),
            route: Route::default(),
            repeat,
            deadline: self.after(timeout),
            timeout,
            attempts: 0,
            refusals: 0,
            number: None,
            unknown: false,
            place: Place::Queued,
            refusal: None,
            password: self.own_new_password(request),
        }
    }

    /// The new password, when the session's own user asks for one.
    fn own_new_password(&self, request: &Request) -> Option<Password> {
        let Request::ChangePassword(change) = request else {
            return None;
        };
        let own = match &change.user {
            Identifier::Number(id) => self.user() == Some(UserId(*id)),
            Identifier::Name(name) => *name == self.config.credentials.name,
        };
        own.then(|| change.new.clone())
    }

    fn enqueue(&mut self, pending: Pending) {
        self.next_key += 1;
        let key = RequestKey(self.next_key);
        self.deadlines.insert((pending.deadline, key));
        self.requests.insert(key, pending);
        self.queue(key);
    }

    /// Puts a request where [`Session::dispatch`] finds it.
    pub(super) fn queue(&mut self, key: RequestKey) {
        let Some(pending) = self.requests.get_mut(&key) else {
            return;
        };
        pending.place = Place::Queued;
        if !pending.is_metadata() {
            self.waiting.entry(pending.route).or_default().insert(key);
        } else if self.metadata_current != Some(key) {
            self.metadata_queue.insert(key);
        }
    }

    /// The metadata command to be sent now. It is numbered when it becomes the current one, and keeps its
    /// number until it ends, so that it is executed at most once.
    pub(super) fn next_metadata(&mut self) -> Option<RequestKey> {
        if let Some(current) = self.metadata_current {
            let queued = self.requests.get(&current)?.place == Place::Queued;
            return queued.then_some(current);
        }
        let key = self.metadata_queue.pop_first()?;
        self.number = RequestNumber(self.number.0 + 1);
        self.metadata_current = Some(key);
        self.requests.get_mut(&key)?.number = Some(self.number);
        Some(key)
    }

    pub(super) fn send_request(&mut self, id: LinkId, key: RequestKey) {
        let correlation = self.correlation();
        let (seen, limit) = (self.seen, self.body_size_max());
        let Some(pending) = self.requests.get_mut(&key) else {
            return;
        };
        let command = pending.command;
        let size = pending.body.iter().map(bytes::Bytes::len).sum::<usize>();
        if size > limit {
            return self.complete(
                key,
                Err(ClientError::TooLarge {
                    command,
                    size,
                    limit,
                }),
            );
        }
        pending.attempts += 1;
        pending.place = Place::InFlight(id, correlation);
        let request = match (command.plane(), pending.number) {
            (Plane::Metadata, Some(number)) => number.0,
            (Plane::Metadata | Plane::Connection, _) => 0,
            (Plane::Query | Plane::Data, _) => seen.0,
        };
        let body = pending.body.clone();
        let route = pending.order();
        if let Some(link) = self.links.get_mut(&id) {
            link.in_flight.insert(correlation, key);
        }
        if let Some(route) = route {
            self.bound.entry(route).or_insert((id, 0)).1 += 1;
        }
        let header = self.header(command, correlation, request);
        self.send_frame(id, header, body);
    }

    /// A request is not under way any more.
    fn leave_link(&mut self, key: RequestKey) {
        let Some(pending) = self.requests.get_mut(&key) else {
            return;
        };
        let Place::InFlight(id, correlation) = pending.place else {
            return;
        };
        pending.place = Place::Queued;
        let route = pending.order();
        if let Some(link) = self.links.get_mut(&id) {
            link.in_flight.remove(&correlation);
        }
        if let Some(route) = route
            && let Some((_, count)) = self.bound.get_mut(&route)
        {
            *count -= 1;
            if *count == 0 {
                self.bound.remove(&route);
            }
        }
    }

    fn body_size_max(&self) -> usize {
        let server = self
            .registered
            .map_or(u32::MAX, |registered| registered.frame_size_max);
        let limit = self.config.frame_size_max.min(server);
        usize::try_from(limit)
            .unwrap_or(usize::MAX)
            .saturating_sub(FRAME_HEADER_SIZE)
    }

    pub(super) fn on_reply(&mut self, id: LinkId, frame: Frame) {
        let correlation = CorrelationId(frame.header.correlation);
        // An answer to a request that has ended meanwhile, or to an earlier attempt, changes nothing.
        let link = self.links.get(&id);
        let Some(key) = link.and_then(|link| link.in_flight.get(&correlation).copied()) else {
            return;
        };
        let Some(pending) = self.requests.get(&key) else {
            return;
        };
        let command = pending.command;
        if frame.header.code != command.code() {
            return self.drop_connection(id, "the server mixes up its answers");
        }
        self.leave_link(key);
        if matches!(command.plane(), Plane::Metadata | Plane::Query) {
            self.seen = self.seen.max(frame.header.op());
        }
        if command.plane() == Plane::Metadata {
            self.learn_primary(&frame.header);
        }
        if frame.header.status != 0 {
            return self.on_refused(key, Failure::decode(frame.header.status, &frame.body));
        }
        if let Some(password) = self
            .requests
            .get(&key)
            .and_then(|pending| pending.password.clone())
        {
            self.config.credentials.password = password;
        }
        let result = Reply::decode(command, frame.body)
            .map_err(|error| ClientError::Unreadable { command, error });
        self.complete(key, result);
    }

    /// The answer to a metadata command names who leads the metadata group. One that rests on nothing names
    /// view 0.
    fn learn_primary(&mut self, header: &FrameHeader) {
        let (primary, view) = header.primary();
        if let Ok(primary) = u8::try_from(primary)
            && view > View(0)
        {
            self.cluster
                .note_primary(ConsensusGroup::METADATA, view, ReplicaId(primary));
        }
    }

    fn on_refused(&mut self, key: RequestKey, failure: Failure) {
        let Some(pending) = self.requests.get_mut(&key) else {
            return;
        };
        let command = pending.command;
        pending.unknown |= failure.code == ErrorCode::OutcomeUnknown;
        if ends_session(failure.code) {
            if pending.repeat == Repeat::Never {
                self.complete(key, Err(ClientError::SessionLost { command }));
            } else {
                self.queue(key);
            }
            return self.lose_session(&failure.to_string());
        }
        let repeat = match pending.repeat {
            Repeat::Freely => true,
            Repeat::UnlessUnknown => !pending.unknown,
            Repeat::Never => false,
        };
        if !repeat || !failure.code.retryable() {
            return self.complete(key, Err(ClientError::Refused(failure)));
        }
        pending.refusals = pending.refusals.saturating_add(1);
        let backoff = self.config.backoff.after(Some(failure.code));
        let wait = backoff.wait(pending.refusals, &mut self.random);
        let time = self.now.saturating_add(wait);
        pending.refusal = Some(failure);
        pending.place = Place::Delayed(time);
        self.delayed.insert((time, key));
    }

    /// A consensus group has another primary: what was refused for want of one is sent again at once.
    pub(super) fn wake_delayed(&mut self) {
        let mut woken = Vec::new();
        for (time, key) in &self.delayed {
            if let Some(pending) = self.requests.get_mut(key)
                && let Some(refusal) = &pending.refusal
                && passes_with_primary(refusal.code)
            {
                pending.refusals = 0;
                woken.push((*time, *key));
            }
        }
        for entry in woken {
            self.delayed.remove(&entry);
            self.queue(entry.1);
        }
    }

    pub(super) fn requeue_delayed(&mut self) {
        while let Some((time, key)) = self.delayed.first().copied() {
            if time > self.now {
                break;
            }
            self.delayed.remove(&(time, key));
            self.queue(key);
        }
    }

    pub(super) fn expire_requests(&mut self) {
        while let Some((deadline, key)) = self.deadlines.first().copied() {
            if deadline > self.now {
                break;
            }
            let error = self.expiry(key);
            self.complete(key, Err(error));
        }
    }

    /// What to say of a request whose time is up: the most telling thing that is known.
    fn expiry(&self, key: RequestKey) -> ClientError {
        let Some(pending) = self.requests.get(&key) else {
            return ClientError::Closed;
        };
        let in_flight = matches!(pending.place, Place::InFlight(..));
        if let Some(refusal) = &pending.refusal
            && !in_flight
            && !pending.unknown
        {
            return ClientError::Refused(refusal.clone());
        }
        match &self.last_failure {
            Some((address, reason))
                if pending.attempts == 0 && !self.links.values().any(Link::is_ready) =>
            {
                ClientError::Unreachable {
                    address: address.clone(),
                    reason: reason.clone(),
                }
            }
            _ => ClientError::TimedOut {
                command: pending.command,
                waited_ms: u64::try_from(pending.timeout.as_millis()).unwrap_or(u64::MAX),
                sent: in_flight || pending.unknown,
            },
        }
    }

    /// The link's connection is gone: what was unanswered is sent again, in order, or ends.
    pub(super) fn settle_in_flight(&mut self, id: LinkId, reason: &str) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        for key in link.in_flight.values().copied().collect::<Vec<_>>() {
            let Some(pending) = self.requests.get_mut(&key) else {
                continue;
            };
            pending.unknown = true;
            match pending.repeat {
                Repeat::Freely => {
                    self.leave_link(key);
                    self.queue(key);
                }
                Repeat::UnlessUnknown | Repeat::Never => {
                    let command = pending.command;
                    let reason = reason.to_string();
                    self.complete(key, Err(ClientError::ConnectionLost { command, reason }));
                }
            }
        }
    }

    /// Numbers mean nothing to the next session: a metadata command that may have been executed under its
    /// number ends, one that was certainly not is numbered anew.
    pub(super) fn settle_metadata(&mut self) {
        let Some(key) = self.metadata_current else {
            return;
        };
        let Some(pending) = self.requests.get_mut(&key) else {
            return;
        };
        let command = pending.command;
        if pending.unknown {
            return self.complete(key, Err(ClientError::SessionLost { command }));
        }
        pending.number = None;
        let delayed = matches!(pending.place, Place::Delayed(_));
        self.metadata_current = None;
        if !delayed {
            self.queue(key);
        }
    }

    /// The session is being closed: nothing is waited for any more.
    pub(super) fn end_all_requests(&mut self) {
        let failed = match &self.phase {
            Phase::Failed(error) => Some(error.clone()),
            Phase::Open | Phase::Closing { .. } | Phase::Closed => None,
        };
        let keys = self.requests.keys().copied().collect::<Vec<_>>();
        for key in keys {
            let Some(pending) = self.requests.get(&key) else {
                continue;
            };
            let command = pending.command;
            let error = if pending.unknown || matches!(pending.place, Place::InFlight(..)) {
                let reason = "the client was closed".to_string();
                ClientError::ConnectionLost { command, reason }
            } else {
                failed.clone().unwrap_or(ClientError::Closed)
            };
            self.complete(key, Err(error));
        }
    }

    /// Ends a request, wherever it is.
    pub(super) fn complete(&mut self, key: RequestKey, result: Result<Reply, ClientError>) {
        self.leave_link(key);
        let Some(pending) = self.requests.remove(&key) else {
            return;
        };
        self.deadlines.remove(&(pending.deadline, key));
        match pending.place {
            Place::Queued => {
                self.take_waiting(pending.route, key);
                self.metadata_queue.remove(&key);
            }
            Place::InFlight(..) => {}
            Place::Delayed(time) => {
                self.delayed.remove(&(time, key));
            }
        }
        if self.metadata_current == Some(key) {
            self.metadata_current = None;
        }
        match pending.ticket {
            Some(ticket) => self.effects.push_back(Effect::Completed { ticket, result }),
            None => self.finish_close(),
        }
    }
}

/// Whether a refusal says that the session is gone.
const fn ends_session(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::SessionNotFound | ErrorCode::Unauthenticated | ErrorCode::SessionMismatch
    )
}
