//! Connections: back-off, login, attach, heartbeats, loss.

use alloc::{format, string::ToString, vec::Vec};
use core::time::Duration;

use bytes::Bytes;
use wire::{
    Attach, Command, CorrelationId, Event, Failure, FrameHeader, FrameKind, LoggedIn, Login, Op,
    Reply, Request, RequestNumber,
};

use super::{
    ConnectionId, Effect, Phase, Registered, Session,
    lane::{Activity, LaneState},
};
use crate::{ClientError, Frame, nanoseconds};

impl Session {
    /// Does what is due on a lane.
    pub(super) fn drive_lane(&mut self, index: usize) {
        match self.lanes[index].state {
            LaneState::Idle { until } => {
                if self.now >= until && self.may_connect(index) {
                    self.connect(index);
                }
            }
            LaneState::Connecting {
                connection,
                deadline,
            } => {
                if self.now >= deadline {
                    self.effects.push_back(Effect::Close { connection });
                    self.on_lane_failed(index, "the attempt to connect took too long");
                }
            }
            LaneState::Greeting {
                connection,
                deadline,
                ..
            } => {
                if self.now >= deadline {
                    self.effects.push_back(Effect::Close { connection });
                    self.on_lane_failed(index, "the server did not answer the login");
                }
            }
            LaneState::Ready { activity, .. } => self.drive_heartbeat(index, activity),
        }
    }

    pub(super) fn lane_deadline(&self, index: usize, lane: &super::Lane) -> Option<u64> {
        if !matches!(self.phase, Phase::Open | Phase::Closing { .. }) {
            return None;
        }
        match lane.state {
            LaneState::Idle { until } => self.may_connect(index).then_some(until),
            LaneState::Connecting { deadline, .. } | LaneState::Greeting { deadline, .. } => {
                Some(deadline)
            }
            LaneState::Ready { activity, .. } => {
                Some(activity.deadline(self.heartbeat_interval(), self.heartbeat_timeout()))
            }
        }
    }

    /// The first lane logs in; the others attach to its session.
    fn may_connect(&self, index: usize) -> bool {
        matches!(self.phase, Phase::Open) && (index == 0 || self.registered.is_some())
    }

    fn connect(&mut self, index: usize) {
        self.next_connection += 1;
        let connection = ConnectionId(self.next_connection);
        let deadline = self.after(self.config.connect_timeout);
        let lane = &mut self.lanes[index];
        lane.state = LaneState::Connecting {
            connection,
            deadline,
        };
        let address = self.config.addresses[lane.address].clone();
        self.effects.push_back(Effect::Connect {
            connection,
            address,
        });
    }

    pub(super) fn on_connected(&mut self, connection: ConnectionId) {
        let Some(index) = self.lane_of(connection) else {
            return;
        };
        if !matches!(self.lanes[index].state, LaneState::Connecting { .. }) {
            return;
        }
        let request = match self.registered {
            Some(registered) => Request::Attach(Attach {
                secret: registered.secret,
            }),
            None => Request::Login(Login {
                name: self.config.credentials.name.clone(),
                password: self.config.credentials.password.clone(),
            }),
        };
        // A login knows nothing of the metadata; an attach to another node has to wait until that node
        // knows the session.
        let seen = if self.registered.is_some() {
            self.seen
        } else {
            Op(0)
        };
        let correlation = self.correlation();
        let deadline = self.after(self.config.login_timeout);
        self.lanes[index].state = LaneState::Greeting {
            connection,
            correlation,
            deadline,
        };
        let header = self.header(request.command(), correlation, seen.0);
        self.send_frame(index, header, request.encode_parts());
    }

    pub(super) fn on_disconnected(&mut self, connection: ConnectionId, reason: &str) {
        if let Some(index) = self.lane_of(connection) {
            self.on_lane_failed(index, reason);
        }
    }

    pub(super) fn on_frame(&mut self, connection: ConnectionId, frame: Frame) {
        let Some(index) = self.lane_of(connection) else {
            return;
        };
        if let LaneState::Ready { activity, .. } = &mut self.lanes[index].state {
            activity.received = self.now;
        }
        match frame.header.frame_kind() {
            Some(FrameKind::Reply) => self.on_reply_frame(index, connection, frame),
            Some(FrameKind::Event) => self.on_event(index, frame),
            Some(FrameKind::Request | FrameKind::Peer) | None => {
                self.drop_connection(index, "the server sent a frame that is not for clients");
            }
        }
    }

    fn on_reply_frame(&mut self, index: usize, connection: ConnectionId, frame: Frame) {
        let answered = CorrelationId(frame.header.correlation);
        match &mut self.lanes[index].state {
            LaneState::Idle { .. } | LaneState::Connecting { .. } => {}
            LaneState::Greeting { correlation, .. } => {
                // Correlation id 0 concerns the connection as a whole.
                if *correlation == answered || answered.0 == 0 {
                    self.on_greeted(index, connection, &frame);
                }
            }
            LaneState::Ready { activity, .. } => {
                if activity.ping.is_some_and(|(ping, _)| ping == answered) {
                    activity.ping = None;
                } else if answered.0 == 0 {
                    let failure = Failure::decode(frame.header.status, &frame.body);
                    self.drop_connection(index, &failure.to_string());
                } else {
                    self.on_reply(index, frame);
                }
            }
        }
    }

    /// Login or attach is answered.
    fn on_greeted(&mut self, index: usize, connection: ConnectionId, frame: &Frame) {
        let attaching = self.registered.is_some();
        if frame.header.status != 0 {
            let failure = Failure::decode(frame.header.status, &frame.body);
            return self.on_greeting_refused(index, connection, failure);
        }
        let command = if attaching {
            Command::Attach
        } else {
            Command::Login
        };
        match Reply::decode(command, frame.body.clone()) {
            Ok(Reply::LoggedIn(logged_in)) => self.on_logged_in(&logged_in),
            Ok(Reply::Done) if attaching => {}
            Ok(_) => {
                return self
                    .drop_connection(index, "the answer to the login is of another command");
            }
            Err(error) => {
                return self.drop_connection(index, &format!("the answer to the login: {error}"));
            }
        }
        self.lanes[index].state = LaneState::Ready {
            connection,
            activity: Activity::new(self.now),
        };
    }

    fn on_logged_in(&mut self, logged_in: &LoggedIn) {
        let configured = nanoseconds(self.config.heartbeat_interval);
        let third = u64::from(logged_in.session_timeout_ms) * 1_000_000 / 3;
        self.registered = Some(Registered {
            number: logged_in.session,
            secret: logged_in.secret,
            user: logged_in.user,
            frame_size_max: logged_in.frame_size_max,
            heartbeat_interval: if third == 0 {
                configured
            } else {
                configured.min(third)
            },
        });
        self.number = RequestNumber(0);
        // The op of the register: newer than anything seen in the sessions before, unless the cluster
        // itself was replaced, and then those ops mean nothing.
        self.seen = Op(logged_in.session.0);
        self.effects.push_back(Effect::LoggedIn {
            session: logged_in.session,
            user: logged_in.user,
            frame_size_max: logged_in.frame_size_max,
        });
    }

    fn on_greeting_refused(&mut self, index: usize, connection: ConnectionId, failure: Failure) {
        self.effects.push_back(Effect::Close { connection });
        if failure.code.retryable() {
            self.on_lane_failed(index, &failure.to_string());
        } else if self.registered.is_some() {
            // The node no longer knows the session.
            self.on_lane_failed(index, &failure.to_string());
            self.lose_session(&failure.to_string());
        } else {
            self.lanes[index].state = LaneState::Idle { until: self.now };
            self.fail(ClientError::LoginRefused(failure));
        }
    }

    fn on_event(&mut self, index: usize, frame: Frame) {
        let session = self.session();
        let event = match Event::decode(&frame.header, frame.body) {
            // An event of a later version says nothing that this one could act on.
            Ok(None) => return,
            Ok(Some(event)) => event,
            Err(error) => return self.drop_connection(index, &format!("an event: {error}")),
        };
        self.effects.push_back(Effect::Event(event.clone()));
        if let Event::Evicted(reason) = event
            && session == Some(frame.header.session())
        {
            self.lose_session(&format!("the server ended it ({})", reason.name()));
        }
    }

    /// The session is gone. Its connections are closed; the first lane logs in again.
    pub(super) fn lose_session(&mut self, reason: &str) {
        let Some(registered) = self.registered else {
            return;
        };
        self.close_lanes(reason);
        self.registered = None;
        self.number = RequestNumber(0);
        self.settle_metadata();
        self.effects.push_back(Effect::SessionLost {
            session: registered.number,
            reason: reason.to_string(),
        });
    }

    /// No login will ever succeed.
    fn fail(&mut self, error: ClientError) {
        self.close_lanes("the login was refused");
        self.registered = None;
        self.phase = Phase::Failed(error.clone());
        self.end_all_requests();
        self.effects.push_back(Effect::Failed(error));
    }

    /// Ends a connection that cannot be used any more.
    pub(super) fn drop_connection(&mut self, index: usize, reason: &str) {
        if let Some(connection) = self.lanes[index].connection() {
            self.effects.push_back(Effect::Close { connection });
            self.on_lane_failed(index, reason);
        }
    }

    pub(super) fn close_lanes(&mut self, reason: &str) {
        for index in 0..self.lanes.len() {
            self.drop_connection(index, reason);
        }
    }

    /// The lane has no connection any more: plans the next attempt, settles what was unanswered.
    fn on_lane_failed(&mut self, index: usize, reason: &str) {
        let count = u32::try_from(self.config.addresses.len()).unwrap_or(u32::MAX);
        let steady = nanoseconds(self.config.backoff.max);
        let lane = &mut self.lanes[index];
        let tried = lane.address;
        let wait = match lane.state {
            LaneState::Ready { activity, .. } => {
                // A connection that lasted is worth another try at once, where it was.
                if self.now.saturating_sub(activity.ready_since) >= steady {
                    lane.failures = 0;
                }
                lane.failures = lane.failures.saturating_add(1);
                self.config
                    .backoff
                    .wait(lane.failures.div_ceil(count), &mut self.random)
            }
            LaneState::Idle { .. } | LaneState::Connecting { .. } | LaneState::Greeting { .. } => {
                lane.failures = lane.failures.saturating_add(1);
                lane.address = (lane.address + 1) % self.config.addresses.len();
                if lane.failures.is_multiple_of(count) {
                    if index == 0 && self.registered.is_none() && self.phase == Phase::Open {
                        self.effects.push_back(Effect::Unreachable {
                            address: self.config.addresses[tried].clone(),
                            reason: reason.to_string(),
                        });
                    }
                    self.config
                        .backoff
                        .wait(lane.failures / count, &mut self.random)
                } else {
                    0
                }
            }
        };
        lane.state = LaneState::Idle {
            until: self.now.saturating_add(wait),
        };
        self.last_failure = Some((self.config.addresses[tried].clone(), reason.to_string()));
        self.settle_in_flight(index, reason);
    }

    fn drive_heartbeat(&mut self, index: usize, activity: Activity) {
        if self.now < activity.deadline(self.heartbeat_interval(), self.heartbeat_timeout()) {
            return;
        }
        if activity.ping.is_some() {
            return self.drop_connection(index, "the server has gone silent");
        }
        let correlation = self.correlation();
        if let LaneState::Ready { activity, .. } = &mut self.lanes[index].state {
            activity.ping = Some((correlation, self.now));
        }
        let header = self.header(Command::Ping, correlation, 0);
        self.send_frame(index, header, Vec::new());
    }

    fn heartbeat_interval(&self) -> u64 {
        match self.registered {
            Some(registered) => registered.heartbeat_interval,
            None => nanoseconds(self.config.heartbeat_interval),
        }
    }

    fn heartbeat_timeout(&self) -> u64 {
        nanoseconds(self.config.heartbeat_timeout)
    }

    /// The header of a request, with what the command says of its last field.
    pub(super) fn header(
        &self,
        command: Command,
        correlation: CorrelationId,
        last: u64,
    ) -> FrameHeader {
        let mut header = FrameHeader::request(command.code(), correlation, self.config.client);
        header.session = self.registered.map_or(0, |registered| registered.number.0);
        header.request = last;
        header
    }

    pub(super) fn send_frame(&mut self, index: usize, header: FrameHeader, body: Vec<Bytes>) {
        let now = self.now;
        let lane = &mut self.lanes[index];
        if let LaneState::Ready { activity, .. } = &mut lane.state {
            activity.sent = now;
        }
        let Some(connection) = lane.connection() else {
            return;
        };
        let frame = header.frame_of_parts(body);
        self.effects.push_back(Effect::Send { connection, frame });
    }

    fn lane_of(&self, connection: ConnectionId) -> Option<usize> {
        self.lanes
            .iter()
            .position(|lane| lane.connection() == Some(connection))
    }

    pub(super) fn after(&self, duration: Duration) -> u64 {
        self.now.saturating_add(nanoseconds(duration))
    }
}
