//! Commands that wait for the hashing pool: logins, new users, changes of passwords.

use alloc::{collections::BTreeMap, format, string::String};

use catalog::Operation;
use wire::{
    ClientId, ErrorCode, Failure, Identifier, Op, PASSWORD_SIZE_MIN, Password, Request,
    SessionSecret, UserId,
};

use crate::{
    Effect, IoTicket, Note, Output, Secret,
    desk::Desk,
    host::{
        MetadataHost,
        metadata::{Waiting, hash_of_secret},
    },
    work::{Caller, Credentials, LoginWork, Origin},
};

/// What is being checked or hashed, and what for.
#[derive(Debug)]
enum Task {
    /// The password of a login. `user` is absent when there is none of that name.
    Login {
        origin: Origin,
        client: ClientId,
        user: Option<(UserId, Op)>,
    },
    /// The password of somebody without a session.
    Verify { origin: Origin, exists: bool },
    /// The current password of whoever changes one.
    Current {
        origin: Origin,
        caller: Caller,
        user: Identifier,
        new: Password,
        verified: Op,
    },
    /// The password of a new user.
    NewUser {
        origin: Origin,
        caller: Caller,
        name: String,
    },
    /// The new password of a user.
    NewPassword {
        origin: Origin,
        caller: Caller,
        user: Identifier,
        verified: Op,
    },
}

/// What the hashing pool works on.
#[derive(Debug)]
pub(super) struct Passwords {
    tasks: BTreeMap<IoTicket, Task>,
    count_max: usize,
}

impl Passwords {
    pub(super) const fn new(count_max: u32) -> Self {
        Self {
            tasks: BTreeMap::new(),
            count_max: count_max as usize,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether a command of this client is among them.
    fn has_command_of(&self, client: ClientId) -> bool {
        self.tasks.values().any(|task| match task {
            Task::Login { .. } | Task::Verify { .. } => false,
            Task::Current { caller, .. }
            | Task::NewUser { caller, .. }
            | Task::NewPassword { caller, .. } => caller.binding.client == client,
        })
    }

    fn refuse_more(&self) -> Result<(), Failure> {
        if self.tasks.len() < self.count_max {
            return Ok(());
        }
        let text = format!(
            "{} passwords are being checked already, which is the limit",
            self.tasks.len()
        );
        Err(Failure::new(ErrorCode::LoginThrottled, text))
    }
}

impl MetadataHost {
    /// A login: its password is checked off the shard.
    pub(crate) fn login(&mut self, desk: &mut Desk, origin: Origin, work: LoginWork) {
        let LoginWork {
            client,
            name,
            password,
        } = work;
        if let Err(failure) = self.passwords.refuse_more() {
            return self.answer(desk, origin, Err(failure));
        }
        // Before the very first op there is nobody, and nothing to say about anybody's password.
        let has_users = self.catalog.user_by_id(UserId::ROOT).is_some();
        if !self.member.serves() || !has_users {
            let reason = vsr::Refusal::NotReady;
            let failure = self.member.refusal(reason);
            return self.answer(desk, origin, Err(failure));
        }
        let user = self.catalog.user(&name);
        let phc = user.map(|user| user.password_hash.0.clone());
        let user = user.map(|user| (user.id, user.password_op));
        let ticket = desk.next_io_ticket();
        self.passwords.tasks.insert(
            ticket,
            Task::Login {
                origin,
                client,
                user,
            },
        );
        desk.push(Effect::CheckPassword {
            ticket,
            password: Secret(password.0),
            phc,
        });
    }

    /// The password of somebody without a session is checked off the shard, by what this node knows, whether
    /// the metadata group has a primary or not.
    pub(crate) fn verify(&mut self, desk: &mut Desk, origin: Origin, credentials: Credentials) {
        if let Err(failure) = self.passwords.refuse_more() {
            return self.answer(desk, origin, Err(failure));
        }
        if self.catalog.user_by_id(UserId::ROOT).is_none() {
            let text = "this node has no copy of the metadata yet: it knows nobody's password";
            let failure = Failure::new(ErrorCode::NotReady, text);
            return self.answer(desk, origin, Err(failure));
        }
        let user = self.catalog.user(&credentials.name);
        let user = user.filter(|user| user.active);
        let ticket = desk.next_io_ticket();
        let exists = user.is_some();
        let task = Task::Verify { origin, exists };
        self.passwords.tasks.insert(ticket, task);
        desk.push(Effect::CheckPassword {
            ticket,
            password: Secret(credentials.password.0),
            phc: user.map(|user| user.password_hash.0.clone()),
        });
    }

    /// Takes a request for a new user, or for a new password of one: passwords are hashed off the shard.
    /// Other requests are given back.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other requests are given back"
    )]
    pub(super) fn begin_password(
        &mut self,
        desk: &mut Desk,
        origin: Origin,
        caller: &Caller,
        request: Request,
    ) -> Option<Request> {
        let caller = *caller;
        match request {
            Request::CreateUser(r) => {
                if let Err(failure) = self.refuse_password(&caller, &r.password) {
                    self.answer(desk, origin, Err(failure));
                    return None;
                }
                let ticket = desk.next_io_ticket();
                self.passwords.tasks.insert(
                    ticket,
                    Task::NewUser {
                        origin,
                        caller,
                        name: r.name,
                    },
                );
                desk.push(Effect::HashPassword {
                    ticket,
                    password: Secret(r.password.0),
                });
            }
            Request::ChangePassword(r) => {
                if let Err(failure) = self.refuse_password(&caller, &r.new) {
                    self.answer(desk, origin, Err(failure));
                    return None;
                }
                let asker = self.catalog.user_by_id(caller.user());
                let phc = asker.map(|user| user.password_hash.0.clone());
                let verified = asker.map_or(Op(0), |user| user.password_op);
                let ticket = desk.next_io_ticket();
                let task = Task::Current {
                    origin,
                    caller,
                    user: r.user,
                    new: r.new,
                    verified,
                };
                self.passwords.tasks.insert(ticket, task);
                desk.push(Effect::CheckPassword {
                    ticket,
                    password: Secret(r.current.0),
                    phc,
                });
            }
            other => return Some(other),
        }
        None
    }

    fn refuse_password(&self, caller: &Caller, new: &Password) -> Result<(), Failure> {
        self.passwords.refuse_more()?;
        if self.passwords.has_command_of(caller.binding.client) {
            let text = "another metadata request of the session has no answer yet";
            return Err(Failure::new(ErrorCode::RequestInFlight, text));
        }
        check_password(new)
    }

    /// The hashing pool has compared a password.
    pub(crate) fn on_password_checked(
        &mut self,
        desk: &mut Desk,
        ticket: IoTicket,
        valid: bool,
        secret: [u8; 32],
    ) {
        match self.passwords.tasks.remove(&ticket) {
            Some(Task::Login {
                origin,
                client,
                user: Some((user, verified)),
            }) if valid => {
                let secret = SessionSecret(secret);
                let secret_hash = hash_of_secret(&secret);
                let operation = Operation::Register {
                    client,
                    user,
                    verified,
                    secret_hash,
                };
                let waiting = Waiting::Login {
                    origin,
                    client,
                    user,
                    secret,
                };
                self.submit(desk, vsr::Origin::Register { client }, &operation, waiting);
            }
            Some(Task::Verify {
                origin,
                exists: true,
            }) if valid => self.answer(desk, origin, Ok(Output::Verified)),
            Some(Task::Login { origin, .. } | Task::Verify { origin, .. }) => {
                desk.note(Note::LoginRefused);
                let text = "user name or password is wrong";
                self.answer(
                    desk,
                    origin,
                    Err(Failure::new(ErrorCode::InvalidCredentials, text)),
                );
            }
            Some(Task::Current {
                origin,
                caller,
                user,
                new,
                verified,
            }) if valid => {
                let ticket = desk.next_io_ticket();
                let task = Task::NewPassword {
                    origin,
                    caller,
                    user,
                    verified,
                };
                self.passwords.tasks.insert(ticket, task);
                desk.push(Effect::HashPassword {
                    ticket,
                    password: Secret(new.0),
                });
            }
            Some(Task::Current { origin, .. }) => {
                let text = "the current password is wrong";
                self.answer(
                    desk,
                    origin,
                    Err(Failure::new(ErrorCode::InvalidCredentials, text)),
                );
            }
            Some(Task::NewUser { .. } | Task::NewPassword { .. }) | None => {}
        }
    }

    /// The hashing pool has hashed a password.
    pub(crate) fn on_password_hashed(&mut self, desk: &mut Desk, ticket: IoTicket, phc: String) {
        match self.passwords.tasks.remove(&ticket) {
            Some(Task::NewUser {
                origin,
                caller,
                name,
            }) => {
                let by = caller.user();
                let operation = Operation::CreateUser {
                    by,
                    name,
                    password_hash: phc.into(),
                };
                self.propose(desk, origin, &caller, &operation);
            }
            Some(Task::NewPassword {
                origin,
                caller,
                user,
                verified,
            }) => {
                let by = caller.user();
                let operation = Operation::ChangePassword {
                    by,
                    user,
                    password_hash: phc.into(),
                    verified,
                };
                self.propose(desk, origin, &caller, &operation);
            }
            Some(Task::Login { .. } | Task::Verify { .. } | Task::Current { .. }) | None => {}
        }
    }
}

fn check_password(password: &Password) -> Result<(), Failure> {
    let size = password.0.len();
    if size >= PASSWORD_SIZE_MIN {
        return Ok(());
    }
    let text = format!("the password has {size} bytes; at least {PASSWORD_SIZE_MIN} are needed");
    Err(Failure::new(ErrorCode::InvalidPassword, text))
}
