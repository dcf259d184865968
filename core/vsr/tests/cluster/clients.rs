//! Clients with sessions: they number their requests, and repeat one at another replica when it is refused
//! or when nobody answers. Whatever they do, a request is executed at most once, and its op never changes
//! (V14).

use std::collections::BTreeMap;

use bytes::Bytes;
use vsr::{Input, Origin, Refusal, Request, Token};
use wire::{ClientId, Op, RequestNumber, SessionNumber};

use crate::group::Group;

/// Sessions that a client table holds: fewer than there are clients, so that some are evicted.
pub(crate) const SESSIONS_MAX: usize = 4;
const CLIENTS: u128 = 5;
/// Its op ends the session.
pub(crate) const LOGOUT: u16 = 3;
const MILLISECOND: u64 = 1_000_000;

/// What a session asks for, once.
pub(crate) type Key = (ClientId, SessionNumber, RequestNumber);

/// A request that is not answered yet.
#[derive(Clone, Debug)]
struct Asking {
    origin: Origin,
    operation: u16,
    /// The newest attempt.
    token: Token,
    /// When it is repeated.
    repeat_at: u64,
}

#[derive(Clone, Debug)]
struct Client {
    id: ClientId,
    session: Option<SessionNumber>,
    /// The last request of the session.
    number: RequestNumber,
    asking: Option<Asking>,
    /// An older request, answered: it may come again at any time.
    answered: Option<Origin>,
    /// Who is believed to lead.
    primary: u8,
}

/// All clients, and what they were told.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    clients: Vec<Client>,
    /// Every attempt: whose, and what for.
    attempts: BTreeMap<Token, (usize, Origin)>,
    /// The op of each request that was answered.
    answers: BTreeMap<Key, Op>,
    /// The op that executed each request, on any replica.
    executed: BTreeMap<Key, Op>,
}

pub(crate) const fn key(origin: Origin) -> Option<Key> {
    match origin {
        Origin::Session {
            client,
            session,
            request,
        } => Some((client, session, request)),
        Origin::Internal | Origin::Register { .. } => None,
    }
}

/// What the state machine says of an op; now and then too much to be kept.
pub(crate) fn reply_of(op: Op) -> Bytes {
    static LARGE: [u8; vsr::CLIENT_REPLY_SIZE_MAX + 1] = [1; vsr::CLIENT_REPLY_SIZE_MAX + 1];
    if op.0.is_multiple_of(16) {
        Bytes::from_static(&LARGE)
    } else {
        Bytes::copy_from_slice(&op.0.to_le_bytes())
    }
}

impl Clients {
    pub(crate) fn new() -> Self {
        let client = |id| Client {
            id: ClientId(id),
            session: None,
            number: RequestNumber(0),
            asking: None,
            answered: None,
            primary: 0,
        };
        Self {
            clients: (1..=CLIENTS).map(client).collect(),
            attempts: BTreeMap::new(),
            answers: BTreeMap::new(),
            executed: BTreeMap::new(),
        }
    }

    /// Whether nobody waits for anything.
    pub(crate) fn are_content(&self) -> bool {
        self.clients.iter().all(|client| client.asking.is_none())
    }

    /// A replica executes a request.
    pub(crate) fn execute(&mut self, key: Key, op: Op) {
        let first = *self.executed.entry(key).or_insert(op);
        assert_eq!(first, op, "V14: {key:?} was executed twice");
    }

    /// An attempt was answered by the op that executed its request.
    pub(crate) fn answer(&mut self, token: Token, op: Op, random: u64) {
        let Some((index, origin)) = self.attempts.get(&token).copied() else {
            return;
        };
        if let Some(key) = key(origin) {
            let executed = self.executed.get(&key);
            assert_eq!(executed, Some(&op), "V14: {key:?} was another op");
            let first = *self.answers.entry(key).or_insert(op);
            assert_eq!(first, op, "V14: the op of {key:?} has changed");
        }
        let client = &mut self.clients[index];
        let Some(asking) = client.asking.take_if(|asking| asking.origin == origin) else {
            return;
        };
        match origin {
            Origin::Register { .. } => {
                client.session = Some(SessionNumber(op.0));
                client.number = RequestNumber(0);
            }
            Origin::Session { .. } if asking.operation == LOGOUT => client.session = None,
            Origin::Session { .. } => {
                if random.is_multiple_of(3) || client.answered.is_none() {
                    client.answered = Some(origin);
                }
            }
            Origin::Internal => unreachable!("clients have names"),
        }
    }

    /// An attempt was refused. Only of the newest it matters why.
    pub(crate) fn refuse(&mut self, token: Token, reason: Refusal, now: u64, random: u64) {
        let Some((index, origin)) = self.attempts.get(&token).copied() else {
            return;
        };
        if let Refusal::ReplyNotKept { op } = reason {
            return self.answer(token, op, random);
        }
        let client = &mut self.clients[index];
        let Some(asking) = client.asking.as_mut().filter(|it| it.token == token) else {
            return;
        };
        asking.repeat_at = now + random % (20 * MILLISECOND);
        match reason {
            Refusal::NotPrimary { primary } => client.primary = primary.0,
            Refusal::NotReady | Refusal::Unknown | Refusal::Busy | Refusal::InFlight => {
                client.primary = u8::try_from(random % 5).expect("small");
            }
            // It was evicted, or has ended.
            Refusal::NoSession => {
                client.session = None;
                client.asking = None;
            }
            Refusal::Stale => panic!("V14: the newest request {origin:?} is stale"),
            Refusal::Superseded => panic!("{token:?} is the newest attempt"),
            Refusal::OutOfService(reason) => panic!("out of service: {reason}"),
            Refusal::ReplyNotKept { .. } => unreachable!("that is an answer"),
        }
    }
}

impl Group {
    /// Every client does something, or nothing. With `begins` they begin new requests.
    pub(crate) fn clients_act(&mut self, begins: bool) {
        for index in 0..self.clients.clients.len() {
            self.client_acts(index, begins);
        }
    }

    fn client_acts(&mut self, index: usize, begins: bool) {
        let client = self.clients.clients[index].clone();
        match client.asking {
            Some(asking) if asking.repeat_at <= self.now => {
                // Nobody said where to: the next one.
                let to = client.primary % self.replica_count;
                self.clients.clients[index].primary = to + 1;
                self.attempt(index, asking.origin, asking.operation, to);
            }
            Some(_) => {}
            None if !begins || !self.random.percent(8) => {}
            None => self.begin(index),
        }
        if let Some(origin) = client.answered
            && begins
            && self.random.percent(1)
        {
            // It was long on its way.
            let to = u8::try_from(self.random.below(u64::from(self.replica_count)));
            let token = self.next_token();
            self.clients.attempts.insert(token, (index, origin));
            self.ask(to.expect("small"), token, origin, 2);
        }
    }

    fn begin(&mut self, index: usize) {
        let client = &mut self.clients.clients[index];
        let id = client.id;
        let (origin, operation) = match client.session {
            None => (Origin::Register { client: id }, 1),
            Some(session) => {
                client.number = RequestNumber(client.number.0 + 1);
                let request = client.number;
                let origin = Origin::Session {
                    client: id,
                    session,
                    request,
                };
                let ends = self.random.percent(3);
                (origin, if ends { LOGOUT } else { 2 })
            }
        };
        let to = client.primary % self.replica_count;
        self.attempt(index, origin, operation, to);
    }

    fn attempt(&mut self, index: usize, origin: Origin, operation: u16, to: u8) {
        let token = self.next_token();
        let repeat_at = self.now + (50 + self.random.below(400)) * MILLISECOND;
        self.clients.clients[index].asking = Some(Asking {
            origin,
            operation,
            token,
            repeat_at,
        });
        self.clients.attempts.insert(token, (index, origin));
        self.ask(to, token, origin, operation);
    }

    pub(crate) fn ask(&mut self, replica: u8, token: Token, origin: Origin, operation: u16) {
        let size = 1 + self.random.index(40);
        let request = Request {
            token,
            origin,
            operation,
            body: Bytes::from(vec![7; size]),
        };
        self.handle(replica, Input::Request(request));
    }
}
