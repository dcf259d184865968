//! Committed ops go to the state machine, in order, each request once.

use bytes::Bytes;
use wire::{ClientId, Op, PrepareHeader, SessionNumber};

use super::Replica;
use crate::{
    Effect, Note, Origin, Token, barriers::Barrier, client_sessions::Answer,
    constants::PIPELINE_PREPARES_MAX, journal::anchor,
};

impl Replica {
    /// Hands out what is committed. An op that a client asked for waits until the ops before it are
    /// applied: they may end its session, or be the same request (V14). So does a barrier, which is applied here. The others wait for nothing but
    /// their order. How many are handed out and not reported is bounded.
    pub(super) fn apply_committed(&mut self) {
        while self.applying < self.commit_chained {
            let handed_out = self.applying.0 - self.commit_min().0;
            if handed_out >= PIPELINE_PREPARES_MAX as u64 {
                return;
            }
            let op = self.applying.next();
            let prepare = self.journal.prepare(op);
            let prepare = prepare
                .expect("what is not applied is in the journal")
                .clone();
            if Origin::of(&prepare.header) != Origin::Internal && handed_out > 0 {
                return;
            }
            let barrier = Barrier::read(&prepare);
            if barrier.is_some() && handed_out > 0 {
                return;
            }
            self.applying = op;
            if let Some((replica, barrier)) = barrier {
                self.pass_barrier(replica, barrier);
                continue;
            }
            match self.check(&prepare.header) {
                Ok(()) => {
                    let token = self.pipeline.take_token(op);
                    self.effects.push_back(Effect::Apply { prepare, token });
                }
                Err(answer) => self.skip(op, answer),
            }
        }
    }

    /// The state machine has executed an op.
    pub(super) fn on_applied(
        &mut self,
        op: Op,
        reply: Bytes,
        ended: &[ClientId],
        registered: bool,
    ) {
        assert!(op == self.commit_min().next(), "ops are applied in order");
        assert!(op <= self.applying, "only what was handed out is applied");
        let prepare = self.journal.prepare(op);
        let header = &prepare
            .expect("what is not applied is in the journal")
            .header;
        match Origin::of(header) {
            Origin::Internal => {}
            Origin::Register { client } => {
                if registered {
                    self.register(client, op);
                }
            }
            Origin::Session {
                client, request, ..
            } => self
                .client_sessions
                .executed(client, request, op, reply.clone()),
        }
        for client in ended {
            self.client_sessions.end(*client);
        }
        if let Some(token) = self.finish(op) {
            // The request was repeated after its op was handed out.
            let body = reply;
            self.effects.push_back(Effect::Reply { token, op, body });
        }
        self.apply_committed();
    }

    fn register(&mut self, client: ClientId, op: Op) {
        let evicted = self
            .client_sessions
            .register(client, op, self.config.clients_max);
        if let Some((client, session)) = evicted {
            self.effects.push_back(Effect::Evict { client, session });
        }
    }

    /// V14, at apply: whether the op is to be executed, else what its asker gets.
    fn check(&self, header: &PrepareHeader) -> Result<(), Answer> {
        match Origin::of(header) {
            Origin::Internal | Origin::Register { .. } => Ok(()),
            Origin::Session {
                client,
                session,
                request,
            } => self.client_sessions.check(client, session, request),
        }
    }

    /// A committed op that is not executed, on any replica.
    fn skip(&mut self, op: Op, answer: Answer) {
        let token = self.finish(op);
        self.note(Note::Skipped { op });
        if let Some(token) = token {
            self.answer(token, answer);
        }
    }

    pub(super) fn answer(&mut self, token: Token, answer: Answer) {
        self.effects.push_back(match answer {
            Answer::Reply { op, body } => Effect::Reply { token, op, body },
            Answer::Refusal(reason) => Effect::Refuse { token, reason },
        });
    }

    /// The op is behind us. Returns who waits for it still.
    pub(super) fn finish(&mut self, op: Op) -> Option<Token> {
        let was_serving = self.is_serving();
        let prepare = self.journal.prepare(op);
        self.applied = anchor(prepare.expect("what is not applied is in the journal"));
        self.journal.trim(op);
        let token = self.pipeline.pop(op).and_then(|entry| entry.token);
        if self.is_serving() && !was_serving {
            self.effects.push_back(Effect::StatusChanged);
        }
        token
    }
}

impl Origin {
    /// Who asked for the op of this header.
    pub(super) fn of(header: &PrepareHeader) -> Self {
        if header.client() == ClientId(0) {
            Self::Internal
        } else if header.session() == SessionNumber(0) {
            Self::Register {
                client: header.client(),
            }
        } else {
            Self::Session {
                client: header.client(),
                session: header.session(),
                request: header.request(),
            }
        }
    }
}
