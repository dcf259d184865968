//! Connections: login, attach, what is asked of the node, heartbeats, loss.

use alloc::{format, string::ToString, vec::Vec};
use core::time::Duration;

use bytes::Bytes;
use wire::{
    Attach, ClientId, ClusterMetadata, Command, ConsensusGroup, CorrelationId, ErrorCode, Event,
    Failure, FrameHeader, FrameKind, LoggedIn, Login, Op, PrimaryChanged, ReplicaId, Reply,
    Request, RequestNumber, View,
};

use super::{
    ConnectionId, Effect, Phase, Registered, Session,
    link::{Activity, Link, LinkId, LinkState},
};
use crate::{ClientError, Frame, nanoseconds};

/// How long a node that may be dead has for a sign of life, nanoseconds; longer if it is far away.
const DOUBT: u64 = 100_000_000;

impl Session {
    pub(super) fn on_connected(&mut self, connection: ConnectionId) {
        let Some(id) = self.link_of(connection) else {
            return;
        };
        let LinkState::Connecting { since, .. } = self.links[&id].state else {
            return;
        };
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
        let address = &self.links[&id].address;
        let patience = self.patience(address, self.config.login_timeout);
        let deadline = self.now.saturating_add(patience);
        let state = LinkState::Greeting {
            connection,
            correlation,
            since,
            sent: self.now,
            deadline,
        };
        if let Some(link) = self.links.get_mut(&id) {
            link.state = state;
        }
        let header = self.header(request.command(), correlation, seen.0);
        self.send_frame(id, header, request.encode_parts());
    }

    pub(super) fn on_disconnected(&mut self, connection: ConnectionId, reason: &str) {
        if let Some(id) = self.link_of(connection) {
            self.on_link_failed(id, reason);
        }
    }

    pub(super) fn on_frame(&mut self, connection: ConnectionId, frame: Frame) {
        let Some(id) = self.link_of(connection) else {
            return;
        };
        let now = self.now;
        if let Some(activity) = self.links.get_mut(&id).and_then(Link::activity_mut) {
            activity.note_received(now);
        }
        match frame.header.frame_kind() {
            Some(FrameKind::Reply) => self.on_reply_frame(id, connection, frame),
            Some(FrameKind::Event) => self.on_event(id, frame),
            Some(FrameKind::Request | FrameKind::Peer) | None => {
                self.drop_connection(id, "the server sent a frame that is not for clients");
            }
        }
    }

    fn on_reply_frame(&mut self, id: LinkId, connection: ConnectionId, frame: Frame) {
        let answered = CorrelationId(frame.header.correlation);
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        match &mut link.state {
            LinkState::Idle | LinkState::Connecting { .. } => {}
            LinkState::Greeting { correlation, .. } => {
                // Correlation id 0 concerns the connection as a whole.
                if *correlation == answered || answered.0 == 0 {
                    self.on_greeted(id, connection, &frame);
                }
            }
            LinkState::Ready { activity, .. } => {
                if activity.ping.is_some_and(|(ping, _)| ping == answered) {
                    activity.ping = None;
                } else if activity.question == Some(answered) {
                    activity.question = None;
                    self.on_cluster_told(id, &frame);
                } else if answered.0 == 0 {
                    let failure = Failure::decode(frame.header.status, &frame.body);
                    self.drop_connection(id, &failure.to_string());
                } else {
                    self.on_reply(id, frame);
                }
            }
        }
    }

    /// Login or attach is answered.
    fn on_greeted(&mut self, id: LinkId, connection: ConnectionId, frame: &Frame) {
        let attaching = self.registered.is_some();
        if frame.header.status != 0 {
            let failure = Failure::decode(frame.header.status, &frame.body);
            return self.on_greeting_refused(id, connection, failure);
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
                return self.drop_connection(id, "the answer to the login is of another command");
            }
            Err(error) => {
                return self.drop_connection(id, &format!("the answer to the login: {error}"));
            }
        }
        let now = self.now;
        if let Some(link) = self.links.get_mut(&id)
            && let LinkState::Greeting { sent, .. } = link.state
        {
            link.state = LinkState::Ready {
                connection,
                activity: Activity::new(now, now.saturating_sub(sent)),
            };
        }
        self.ask_for_cluster(id);
    }

    /// Asks who is at the other end, which nodes there are, and who leads.
    fn ask_for_cluster(&mut self, id: LinkId) {
        let correlation = self.correlation();
        if let Some(activity) = self.links.get_mut(&id).and_then(Link::activity_mut) {
            activity.question = Some(correlation);
            let header = self.header(Command::GetClusterMetadata, correlation, 0);
            self.send_frame(id, header, Vec::new());
        }
    }

    fn on_cluster_told(&mut self, id: LinkId, frame: &Frame) {
        let is_refused = frame.header.status != 0;
        if is_refused
            && Failure::decode(frame.header.status, &frame.body)
                .code
                .retryable()
        {
            // The next heartbeat asks again.
            return;
        }
        if let Some(activity) = self.links.get_mut(&id).and_then(Link::activity_mut) {
            activity.told = true;
        }
        if is_refused {
            return;
        }
        match Reply::decode(Command::GetClusterMetadata, frame.body.clone()) {
            Ok(Reply::ClusterMetadata(told)) => {
                self.compare_views(id, &told);
                if let Some(link) = self.links.get_mut(&id) {
                    link.node = Some(told.node);
                    self.cluster.learn(&link.address, &told);
                }
                self.thin_out(id);
            }
            Ok(_) => self.drop_connection(id, "the server mixes up its answers"),
            Err(error) => self.drop_connection(id, &format!("the cluster's nodes: {error}")),
        }
    }

    /// Two addresses may lead to one node: a connection with nothing under way goes to another one instead.
    fn thin_out(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        let (node, is_idle) = (link.node, link.in_flight.is_empty());
        let LinkId::Kept(_) = id else {
            return;
        };
        if id == LinkId::FIRST || !is_idle || self.candidates(id).any(|own| own.node == node) {
            return;
        }
        if let Some(link) = self.links.get_mut(&id)
            && let Some(connection) = link.connection()
        {
            link.state = LinkState::Idle;
            link.node = None;
            self.effects.push_back(Effect::Close { connection });
        }
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

    fn on_greeting_refused(&mut self, id: LinkId, connection: ConnectionId, failure: Failure) {
        self.effects.push_back(Effect::Close { connection });
        // What is wrong with a node is no reason to give up while there is another one.
        let is_elsewhere =
            failure.code == ErrorCode::OutOfService && !self.cluster.is_one_address();
        if self.registered.is_none() && !failure.code.retryable() && !is_elsewhere {
            if let Some(link) = self.links.get_mut(&id) {
                link.state = LinkState::Idle;
            }
            return self.fail(ClientError::LoginRefused(failure));
        }
        if failure.code != ErrorCode::OutcomeUnknown
            && let Some(link) = self.links.get_mut(&id)
        {
            // It is certain that nothing was registered.
            link.state = LinkState::Idle;
        }
        self.on_link_failed(id, &failure.to_string());
        if denies_session(failure.code) {
            // The cluster no longer knows the session: whoever says so has asked the metadata's primary.
            self.lose_session(&failure.to_string());
        }
    }

    fn on_event(&mut self, id: LinkId, frame: Frame) {
        let session = self.session();
        let event = match Event::decode(&frame.header, frame.body) {
            // An event of a later version says nothing that this one could act on.
            Ok(None) => return,
            Ok(Some(event)) => event,
            Err(error) => return self.drop_connection(id, &format!("an event: {error}")),
        };
        self.effects.push_back(Effect::Event(event.clone()));
        match event {
            Event::Evicted(reason) if session == Some(frame.header.session()) => {
                self.lose_session(&format!("the server ended it ({})", reason.name()));
            }
            Event::PrimaryChanged(changed) => self.on_primary_changed(id, &changed),
            Event::ServerStopping(_) => {
                if let Some(activity) = self.links.get_mut(&id).and_then(Link::activity_mut) {
                    activity.stopping = true;
                }
            }
            Event::Evicted(_) | Event::AssignmentChanged(_) | Event::MembershipEnded(..) => {}
        }
    }

    /// What was refused for want of a primary is asked again at once. The node that led before may be dead
    /// without a word: it has to give a sign of life.
    fn on_primary_changed(&mut self, id: LinkId, changed: &PrimaryChanged) {
        if let Some(activity) = self.links.get_mut(&id).and_then(Link::activity_mut) {
            activity.note_view(changed.group, changed.view);
        }
        let before = self.cluster.on_primary_changed(changed);
        self.wake_delayed();
        let Some(before) = before else {
            return;
        };
        self.expect_to_know(id, before, (changed.group, changed.view));
        let now = self.now;
        let mut silent = Vec::new();
        for (id, link) in &mut self.links {
            if link.node == Some(before)
                && let Some(activity) = link.activity_mut()
                && activity.received < now
                && activity.doubted.is_none()
            {
                let patience = DOUBT.max(activity.greeting.saturating_mul(3));
                activity.doubted = Some(now.saturating_add(patience));
                silent.push((*id, activity.ping.is_none()));
            }
        }
        for (id, asks) in silent {
            if asks {
                self.ping(id);
            }
        }
    }

    /// Over `id` was told that a node leads no more. It may be cut off from the others, and still take itself for
    /// the one that leads: until it says that it knows, others are asked.
    fn expect_to_know(&mut self, id: LinkId, former: ReplicaId, view: (ConsensusGroup, View)) {
        for (other, link) in &mut self.links {
            if *other != id
                && link.node == Some(former)
                && let Some(activity) = link.activity_mut()
            {
                activity.behind = Some(view);
            }
        }
    }

    /// Compares what a node tells of who leads with what is known: either may be behind.
    fn compare_views(&mut self, id: LinkId, told: &ClusterMetadata) {
        for group in &told.groups {
            let Some((known, primary)) = self.cluster.leading(group.group) else {
                continue;
            };
            if known < group.view && primary != group.primary {
                self.expect_to_know(id, primary, (group.group, group.view));
            } else if known > group.view
                && primary != group.primary
                && group.primary == told.node
                && let Some(activity) = self.links.get_mut(&id).and_then(Link::activity_mut)
            {
                activity.behind = Some((group.group, known));
            }
        }
    }

    /// The session is gone. Its connections are closed; the first link logs in again.
    pub(super) fn lose_session(&mut self, reason: &str) {
        let Some(registered) = self.registered else {
            return;
        };
        self.close_links(reason);
        self.cluster.forget_primaries();
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
        self.close_links("the login was refused");
        self.registered = None;
        self.phase = Phase::Failed(error.clone());
        self.end_all_requests();
        self.effects.push_back(Effect::Failed(error));
    }

    /// Ends a connection that cannot be used any more.
    pub(super) fn drop_connection(&mut self, id: LinkId, reason: &str) {
        if let Some(connection) = self.links.get(&id).and_then(Link::connection) {
            self.effects.push_back(Effect::Close { connection });
            self.on_link_failed(id, reason);
        }
    }

    pub(super) fn close_links(&mut self, reason: &str) {
        for id in self.links.keys().copied().collect::<Vec<_>>() {
            self.drop_connection(id, reason);
        }
    }

    /// The link has no connection any more: settles what was unanswered. The next attempt goes to the next
    /// address at once, and to this one after a pause.
    pub(super) fn on_link_failed(&mut self, id: LinkId, reason: &str) {
        let steady = nanoseconds(self.config.backoff.max);
        let Some(link) = self.links.get(&id) else {
            return;
        };
        let address = link.address.clone();
        let lasted = match link.state {
            LinkState::Ready { activity, .. } => {
                self.now.saturating_sub(activity.ready_since) >= steady
            }
            LinkState::Idle | LinkState::Connecting { .. } | LinkState::Greeting { .. } => false,
        };
        if self.registered.is_none() && matches!(link.state, LinkState::Greeting { .. }) {
            self.choose_client();
        }
        self.settle_in_flight(id, reason);
        if matches!(id, LinkId::Wanted(_)) {
            self.links.remove(&id);
        } else if let Some(link) = self.links.get_mut(&id) {
            link.state = LinkState::Idle;
            link.node = None;
        }
        let (backoff, random) = (&self.config.backoff, &mut self.random);
        self.cluster
            .on_failed((&address, lasted), self.now, backoff, random);
        if self.registered.is_none()
            && self.phase == Phase::Open
            && self.cluster.all_failed(self.now)
        {
            self.effects.push_back(Effect::Unreachable {
                address: address.clone(),
                reason: reason.to_string(),
            });
        }
        self.last_failure = Some((address, reason.to_string()));
    }

    /// A login has no answer, and may be executed yet: after the next one it would take the place of its session.
    /// So the next one is another client's.
    fn choose_client(&mut self) {
        let mut random = || u128::from(self.random.next());
        let other = self.config.client.0 ^ (random() << 64 | random());
        // 0 is nobody.
        self.config.client = ClientId(other.max(1));
    }

    pub(super) fn drive_heartbeat(&mut self, id: LinkId, activity: Activity) {
        if self.now < activity.deadline(self.heartbeat_interval(), self.heartbeat_timeout()) {
            return;
        }
        if activity.ping.is_some() {
            return self.drop_connection(id, "the server has gone silent");
        }
        self.ping(id);
        if !activity.told && activity.question.is_none() {
            self.ask_for_cluster(id);
        }
    }

    fn ping(&mut self, id: LinkId) {
        let correlation = self.correlation();
        let now = self.now;
        if let Some(activity) = self.links.get_mut(&id).and_then(Link::activity_mut) {
            activity.ping = Some((correlation, now));
        }
        let header = self.header(Command::Ping, correlation, 0);
        self.send_frame(id, header, Vec::new());
    }

    pub(super) fn heartbeat_interval(&self) -> u64 {
        match self.registered {
            Some(registered) => registered.heartbeat_interval,
            None => nanoseconds(self.config.heartbeat_interval),
        }
    }

    pub(super) fn heartbeat_timeout(&self) -> u64 {
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

    pub(super) fn send_frame(&mut self, id: LinkId, header: FrameHeader, body: Vec<Bytes>) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if let Some(activity) = link.activity_mut() {
            activity.sent = now;
        }
        let Some(connection) = link.connection() else {
            return;
        };
        let frame = header.frame_of_parts(body);
        self.effects.push_back(Effect::Send { connection, frame });
    }

    fn link_of(&self, connection: ConnectionId) -> Option<LinkId> {
        let mut links = self.links.iter();
        let own = links.find(|(_, link)| link.connection() == Some(connection));
        own.map(|(id, _)| *id)
    }

    pub(super) fn after(&self, duration: Duration) -> u64 {
        self.now.saturating_add(nanoseconds(duration))
    }
}

/// Whether the refusal of an attach says that there is no such session. Whatever else keeps one node from
/// taking it, another may.
const fn denies_session(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::SessionNotFound | ErrorCode::InvalidCredentials | ErrorCode::Unauthenticated
    )
}
