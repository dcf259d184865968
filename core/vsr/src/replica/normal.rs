//! Normal operation (VRR §4.1): requests, prepares, acknowledgements, commits.

use bytes::Bytes;
use wire::{ClientId, Op, PrepareHeader, ReplicaId, RequestNumber, SessionNumber, Timestamp};

use super::Replica;
use crate::{
    ChainPoint, Commit, CommitOk, Effect, Ignore, Message, Note, Origin, Prepare, PrepareMessage,
    PrepareOk, Refusal, Request, Status, Token,
    client_sessions::Answer,
    constants::{BARRIER, BODY_VERSION, TIMESTAMP_MAX},
    mutation,
};

/// How a request gets its reply.
enum Admission {
    /// It is prepared.
    Prepare,
    /// It is in flight already, and takes the reply of that.
    Join,
}

impl Replica {
    /// VRR §4.1, step 2: the primary takes a request.
    pub(super) fn on_request(&mut self, request: Request) {
        match self.admit(&request) {
            Ok(Admission::Prepare) => self.prepare(request),
            Ok(Admission::Join) => {}
            Err(answer) => self.answer(request.token, answer),
        }
    }

    fn admit(&mut self, request: &Request) -> Result<Admission, Answer> {
        if let Some(reason) = self.refuse_service() {
            return Err(Answer::Refusal(reason));
        }
        let admission = match request.origin {
            Origin::Internal => Admission::Prepare,
            Origin::Register { client } => self.admit_register(client)?,
            Origin::Session { .. } => self.admit_session(request.token, request.origin)?,
        };
        if matches!(admission, Admission::Prepare) && !self.pipeline.fits(request.body.len()) {
            return Err(Answer::Refusal(Refusal::Busy));
        }
        Ok(admission)
    }

    /// Why nothing at all is served here.
    pub(super) fn refuse_service(&self) -> Option<Refusal> {
        match self.status {
            Status::OutOfService(reason) => Some(Refusal::OutOfService(reason)),
            Status::Recovering
            | Status::ViewChange
            | Status::RecoveringHead
            | Status::StateTransfer => Some(Refusal::NotReady),
            Status::Normal if !self.is_primary() => Some(Refusal::NotPrimary {
                primary: self.primary(),
            }),
            // The inherited ops are not applied yet (V8), or it leads no more (V17).
            Status::Normal if !self.is_serving() => Some(Refusal::NotReady),
            Status::Normal => None,
        }
    }

    fn admit_register(&mut self, client: ClientId) -> Result<Admission, Answer> {
        // In a header 0 means that no client asked.
        if client == ClientId(0) {
            return Err(Answer::Refusal(Refusal::NoSession));
        }
        match self.pipeline.of_client(client) {
            Some(_) => Err(Answer::Refusal(Refusal::InFlight)),
            None => Ok(Admission::Prepare),
        }
    }

    /// V14, at admission: a request that was executed is answered from the client table; one that is in
    /// flight is joined; a session has one in flight.
    fn admit_session(&mut self, token: Token, origin: Origin) -> Result<Admission, Answer> {
        let (client, session, request) = named(origin);
        self.client_sessions.check(client, session, request)?;
        let Some(in_flight) = self.pipeline.of_client(client) else {
            return Ok(Admission::Prepare);
        };
        if Origin::of(&in_flight.header) != origin {
            return Err(Answer::Refusal(Refusal::InFlight));
        }
        if let Some(older) = in_flight.token.replace(token) {
            self.answer(older, Answer::Refusal(Refusal::Superseded));
        }
        Ok(Admission::Join)
    }

    /// VRR §4.1, step 3: the op gets its number and place in the chain, goes to the backups and the disk.
    fn prepare(&mut self, request: Request) {
        assert!(request.operation != BARRIER, "state machines have no such");
        let (client, session, number) = named(request.origin);
        let header = PrepareHeader {
            client: client.0,
            session: session.0,
            request: number.0,
            operation: request.operation,
            ..PrepareHeader::default()
        };
        self.replicate(header, request.body, Some(request.token));
    }

    /// `header` says what the op is; its place in the journal is the next.
    pub(super) fn replicate(&mut self, header: PrepareHeader, body: Bytes, token: Option<Token>) {
        assert!(self.is_serving());
        let head = self.journal.head();
        // V16: the only clock that a state machine sees.
        let timestamp = self.now.wall.max(Timestamp(head.timestamp.0 + 1));
        let header = PrepareHeader {
            parent: head.point.checksum,
            cluster: self.config.cluster.0,
            op: head.point.op.next().0,
            timestamp: timestamp.0,
            view: self.view.0,
            group: self.config.group.0,
            version: BODY_VERSION,
            ..header
        }
        .sealed(&body);
        let prepare = Prepare { header, body };
        self.pipeline.push(header, token);
        self.journal.append(prepare.clone(), false);
        self.broadcast(&Message::Prepare(PrepareMessage {
            replica: self.config.replica,
            view: self.view,
            commit: self.commit_point(),
            prepare: prepare.clone(),
        }));
        self.effects.push_back(Effect::WritePrepare(prepare));
    }

    /// VRR §4.1, step 4: a backup takes a prepare, and learns what is committed.
    pub(super) fn on_prepare(&mut self, message: PrepareMessage) {
        if let Some(reason) = self.ignore_from_backup(message.replica) {
            return self.count_ignored(reason);
        }
        self.on_sign_of_life();
        let PrepareMessage {
            commit, prepare, ..
        } = message;
        self.accept(prepare);
        self.learn_commit(commit);
        self.repair_on();
    }

    /// The journal goes on with `prepare`, if that is what comes next.
    pub(super) fn accept(&mut self, prepare: Prepare) {
        if let Some(reason) = self.ignore_prepare(&prepare) {
            if reason == Ignore::PrepareAhead {
                self.repair.want(prepare.header.op());
            }
            return self.count_ignored(reason);
        }
        self.extend(prepare.clone(), false);
        self.effects.push_back(Effect::WritePrepare(prepare));
        if mutation::V7 {
            self.acknowledge_after(self.journal.durable());
        }
        if let Some(ahead) = self.commit_ahead {
            self.learn_commit(ahead);
        }
        self.commit_behind_head();
    }

    /// A primary prepares an op only once the one [`SUFFIX_MAX`] before it is applied there: so that one is
    /// committed, and no more ops than these may be uncommitted.
    pub(super) fn commit_behind_head(&mut self) {
        self.commit_up_to(self.far_behind().min(self.op()));
    }

    /// Whether it is what was sealed, and may be in the journal of this group and view.
    pub(super) fn is_sound(&self, prepare: &Prepare) -> bool {
        let header = &prepare.header;
        header.is_valid()
            && header.is_valid_body(&prepare.body)
            && header.cluster == self.config.cluster.0
            && header.group() == self.config.group
            && header.view() <= self.view
            && header.timestamp() < TIMESTAMP_MAX
    }

    fn ignore_prepare(&self, prepare: &Prepare) -> Option<Ignore> {
        let header = &prepare.header;
        let head = self.journal.head();
        let op = header.op();
        if !self.is_sound(prepare) {
            return Some(Ignore::PrepareInvalid);
        }
        if op <= head.point.op {
            let is_same = self
                .journal
                .checksum(op)
                .is_none_or(|it| it == header.checksum);
            return Some(if is_same {
                Ignore::PrepareRepeated
            } else {
                Ignore::PrepareConflicts
            });
        }
        if op > head.point.op.next() {
            Some(Ignore::PrepareAhead)
        } else if self.contradicts_damaged(op, header.checksum) {
            Some(Ignore::PrepareConflicts)
        } else if header.parent != head.point.checksum {
            Some(Ignore::PrepareUnchained)
        } else if header.timestamp() <= head.timestamp {
            Some(Ignore::PrepareInvalid)
        } else {
            None
        }
    }

    /// A prepare is durable here: a primary counts itself, a backup acknowledges (V7).
    pub(super) fn on_prepare_written(&mut self, op: Op, checksum: u128) {
        let durable = self.journal.durable();
        let is_aside = self.set_aside_durable(op, checksum);
        let is_filled = self.set_filled_durable(op, checksum);
        if !self.journal.set_durable(op, checksum) && !is_aside && !is_filled {
            return self.count_ignored(Ignore::WriteUnknown);
        }
        if self.status != Status::Normal {
            self.journal.trim(self.commit_min());
            self.advance_target();
            if self.status == Status::ViewChange {
                self.promise_view();
                if is_filled {
                    self.vote();
                    self.refresh_vote();
                }
            }
            return;
        }
        if self.is_primary() {
            self.count_vote(op, checksum, self.config.replica);
        } else {
            self.acknowledge_after(durable);
        }
        self.journal.trim(self.commit_min());
    }

    /// Acknowledges every op after `op` up to which the journal is durable without a gap.
    pub(super) fn acknowledge_after(&mut self, op: Op) {
        assert!(self.status == Status::Normal);
        assert!(!self.is_primary());
        let mut op = op.max(self.journal.base());
        let durable = if mutation::V7 {
            self.op()
        } else {
            self.journal.durable()
        };
        while op < durable {
            op = op.next();
            let checksum = self.journal.checksum(op);
            let ok = PrepareOk {
                replica: self.config.replica,
                view: self.view,
                op,
                checksum: checksum.expect("ops behind the base are in the journal"),
                checkpoint: self.checkpoint_op(),
            };
            self.send(self.primary(), Message::PrepareOk(ok));
        }
    }

    /// VRR §4.1, step 5: an op is committed once a quorum, ourselves included, has it durably.
    pub(super) fn on_prepare_ok(&mut self, ok: PrepareOk) {
        if !self.is_primary() {
            return self.count_ignored(Ignore::NotPrimary);
        }
        // What the filter promised, restated.
        assert!(self.status == Status::Normal);
        assert!(ok.view == self.view);

        self.on_heard(ok.replica);
        self.learn_checkpoint(ok.replica, ok.checkpoint);
        if ok.op > self.commit_max {
            self.count_vote(ok.op, ok.checksum, ok.replica);
        }
    }

    pub(super) fn count_vote(&mut self, op: Op, checksum: u128, replica: ReplicaId) {
        match self.pipeline.vote(op, checksum, replica) {
            Ok(()) => self.on_progress(),
            // Committed by the backups before it was durable here, and applied.
            Err(Ignore::PrepareOkNotInFlight) if op <= self.commit_max => return,
            Err(reason) => return self.count_ignored(reason),
        }
        let mut committed = self.commit_max;
        while self
            .pipeline
            .has_quorum(committed.next(), self.config.replica_count)
        {
            committed = committed.next();
        }
        self.commit_up_to(committed);
    }

    /// VRR §4.1, step 6: without new prepares the primary tells what is committed; the heartbeat.
    pub(super) fn send_heartbeat(&mut self) {
        assert!(self.is_primary());
        let commit = Commit {
            replica: self.config.replica,
            view: self.view,
            op: self.op(),
            commit: self.commit_point(),
            checkpoint_quorum: self.promises.newest().checkpoint_quorum,
        };
        self.broadcast(&Message::Commit(commit));
    }

    /// Tells the backups now what is committed, not by the next prepare or heartbeat. For groups whose
    /// backups are read, and for heartbeats that go with those of other groups: does nothing where this
    /// replica leads nobody.
    pub fn tell_commit(&mut self) {
        if self.heartbeat.is_running() {
            assert!(self.is_primary());
            self.send_heartbeat();
            self.heartbeat.start(self.now);
        }
    }

    /// VRR §4.1, step 7: a backup learns what is committed.
    pub(super) fn on_commit(&mut self, commit: Commit) {
        if let Some(reason) = self.ignore_from_backup(commit.replica) {
            return self.count_ignored(reason);
        }
        self.on_sign_of_life();
        self.learn_commit(commit.commit);
        self.learn_checkpoint_quorum(commit.checkpoint_quorum);
        self.repair.want(commit.op);
        self.repair_on();
        self.answer_heartbeat();

        // Nothing was committed since the last heartbeat: our acknowledgements may be lost.
        if self.heartbeat_commit == commit.commit.op {
            self.acknowledge_after(commit.commit.op);
        }
        self.heartbeat_commit = commit.commit.op;
    }

    /// A backup tells the primary of its view that it follows.
    pub(super) fn answer_heartbeat(&mut self) {
        let ok = CommitOk {
            replica: self.config.replica,
            view: self.view,
            commit_min: self.commit_min(),
            checkpoint: self.checkpoint_op(),
            is_willing: self.is_willing(),
        };
        self.send(self.primary(), Message::CommitOk(ok));
    }

    pub(super) fn on_commit_ok(&mut self, ok: CommitOk) {
        if !self.is_primary() {
            return self.count_ignored(Ignore::NotPrimary);
        }
        self.on_heard(ok.replica);
        self.note_follower(&ok);
        self.learn_checkpoint(ok.replica, ok.checkpoint);
    }

    /// Everything up to `point` is committed. It is applied once the journal holds that very op: only then
    /// are the ops before it those of the view (V9).
    pub(super) fn learn_commit(&mut self, point: ChainPoint) {
        self.commit_max = self.commit_max.max(point.op);
        if point.op <= self.commit_chained {
            return;
        }
        if point.op <= self.op() {
            if self.commit_ahead.is_some_and(|ahead| ahead.op <= point.op) {
                self.commit_ahead = None;
            }
            if mutation::V9 || self.journal.checksum(point.op) == Some(point.checksum) {
                self.commit_up_to(point.op);
            } else {
                self.count_ignored(Ignore::CommitUnchained);
            }
        } else if self.commit_ahead.is_none() {
            // The nearest is kept: a later one may be out of reach for as long as ops keep coming.
            self.commit_ahead = Some(point);
        }
    }

    /// The ops up to `op` are committed, and are those in the journal.
    pub(super) fn commit_up_to(&mut self, op: Op) {
        assert!(op <= self.op());
        if op <= self.commit_chained {
            return;
        }
        self.commit_chained = op;
        self.commit_max = self.commit_max.max(op);
        self.note(Note::Committed { op });
        self.on_progress();
        self.confirm_by_commit(op);
        self.apply_committed();
    }

    pub(super) fn commit_point(&self) -> ChainPoint {
        let checksum = self.journal.checksum(self.commit_chained);
        ChainPoint {
            op: self.commit_chained,
            checksum: checksum.expect("what is not applied, and the op before, are in the journal"),
        }
    }

    /// What only the primary of the view sends, and only backups take.
    pub(super) fn ignore_from_backup(&self, sender: ReplicaId) -> Option<Ignore> {
        if self.is_primary() {
            Some(Ignore::NotBackup)
        } else if sender != self.primary() {
            Some(Ignore::FromBackup)
        } else {
            None
        }
    }
}

/// How a header names who asked; the reverse of [`Origin::of`].
const fn named(origin: Origin) -> (ClientId, SessionNumber, RequestNumber) {
    match origin {
        Origin::Internal => (ClientId(0), SessionNumber(0), RequestNumber(0)),
        Origin::Register { client } => (client, SessionNumber(0), RequestNumber(0)),
        Origin::Session {
            client,
            session,
            request,
        } => (client, session, request),
    }
}
