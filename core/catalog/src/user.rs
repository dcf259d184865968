//! Users: who may log in and what they may do.

use alloc::{borrow::ToOwned, string::String};

use wire::{
    EvictionReason, Failure, Identifier, Op, Reply, Timestamp, UserDetails, UserId, Writer,
};

use crate::{Catalog, Limit, PasswordHash, apply::Step, directory::Named, failure};

/// A user, in snapshots as well.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct User {
    /// Its id.
    pub id: UserId,
    /// Its name, unique.
    pub name: String,
    /// Its password.
    pub password_hash: PasswordHash,
    /// The op that set the password: names this password among those that the user has had.
    pub password_op: Op,
    /// Whether it may log in. Invariant: `root` may.
    pub active: bool,
    /// When it was created.
    pub created: Timestamp,
    /// What it may do besides what every user may.
    pub permissions: Permissions,
}

/// What a user may do. There are no grades yet: `root` may do everything, every other user everything
/// except to manage users other than itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Permissions {}

impl Named for User {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }
}

impl User {
    pub(crate) fn details(&self) -> UserDetails {
        UserDetails {
            id: self.id,
            name: self.name.clone(),
            active: self.active,
            created: self.created,
        }
    }

    pub(crate) fn write_canonical(&self, writer: &mut Writer) {
        let Self {
            id,
            name,
            password_hash,
            password_op,
            active,
            created,
            permissions: Permissions {},
        } = self;
        writer
            .u64(id.0)
            .text16(name)
            .text16(&password_hash.0)
            .u64(password_op.0)
            .u8(u8::from(*active))
            .u64(created.0);
    }
}

impl Catalog {
    /// The user of that name, for a login.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(self.users.id_of_name(name)?)
    }

    /// The user with that id.
    #[must_use]
    pub fn user_by_id(&self, id: UserId) -> Option<&User> {
        self.users.get(id)
    }

    /// The user who asks, or logs in.
    pub(crate) fn active_user(&self, by: UserId) -> Result<&User, Failure> {
        match self.users.get(by) {
            Some(user) if user.active => Ok(user),
            Some(user) => Err(failure::user_inactive(&user.name)),
            None => Err(failure::asker_gone(by)),
        }
    }

    /// Refuses everybody but `root`.
    pub(crate) fn require_root(&self, by: UserId, what: &str) -> Result<(), Failure> {
        let asker = self.active_user(by)?;
        if asker.id == UserId::ROOT {
            Ok(())
        } else {
            Err(failure::forbidden(&asker.name, what))
        }
    }

    /// Refuses everybody but `root` and the user itself, whether the user named exists or not: a refusal
    /// must not tell who exists.
    pub(crate) fn require_self_or_root(
        &self,
        by: UserId,
        user: &Identifier,
        what: &str,
    ) -> Result<&User, Failure> {
        let asker = self.active_user(by)?;
        let found = self.users.find(user);
        if asker.id != UserId::ROOT && found.is_none_or(|found| found.id != asker.id) {
            return Err(failure::forbidden(&asker.name, what));
        }
        found.ok_or_else(|| failure::user_not_found(user))
    }

    pub(crate) fn create_root(
        &mut self,
        step: &Step,
        password_hash: &PasswordHash,
    ) -> Result<Reply, Failure> {
        if let Some(root) = self.users.get(UserId::ROOT) {
            return Err(failure::user_exists(&root.name, root.id));
        }
        Ok(self.add_user(step, UserId::ROOT, "root", password_hash))
    }

    pub(crate) fn create_user(
        &mut self,
        step: &Step,
        by: UserId,
        name: &str,
        password_hash: &PasswordHash,
    ) -> Result<Reply, Failure> {
        self.require_root(by, "create users")?;
        failure::legal_name(name)?;
        if let Some(id) = self.users.id_of_name(name) {
            return Err(failure::user_exists(name, id));
        }
        let users = self.users.len() as u64 + 1;
        self.limits.admit(Limit::Users, users)?;

        let id = self.next_user;
        self.next_user = UserId(id.0 + 1);
        Ok(self.add_user(step, id, name, password_hash))
    }

    fn add_user(
        &mut self,
        step: &Step,
        id: UserId,
        name: &str,
        password_hash: &PasswordHash,
    ) -> Reply {
        let user = User {
            id,
            name: name.to_owned(),
            password_hash: password_hash.clone(),
            password_op: step.op,
            active: true,
            created: step.timestamp,
            permissions: Permissions::default(),
        };
        let reply = Reply::User(user.details());
        self.users.insert(id, user);
        reply
    }

    pub(crate) fn delete_user(
        &mut self,
        step: &mut Step,
        by: UserId,
        user: &Identifier,
    ) -> Result<Reply, Failure> {
        self.require_root(by, "delete users")?;
        let id = self.users.id_of(user);
        let id = id.ok_or_else(|| failure::user_not_found(user))?;
        if id == UserId::ROOT {
            return Err(failure::root_protected("deleted"));
        }
        self.users.remove(id);
        self.end_sessions_of(step, id, EvictionReason::UserChanged);
        Ok(Reply::Done)
    }

    pub(crate) fn update_user(
        &mut self,
        step: &mut Step,
        by: UserId,
        user: &Identifier,
        (name, active): (Option<&str>, Option<bool>),
    ) -> Result<Reply, Failure> {
        let id = self
            .require_self_or_root(by, user, "change other users")?
            .id;
        if active.is_some() {
            self.require_root(by, "activate or deactivate users")?;
        }
        if id == UserId::ROOT && active == Some(false) {
            return Err(failure::root_protected("deactivated"));
        }
        if let Some(name) = name {
            failure::legal_name(name)?;
            match self.users.id_of_name(name) {
                Some(other) if other != id => return Err(failure::user_exists(name, other)),
                Some(_) | None => self.users.rename(id, name),
            }
        }
        let user = self.users.get_mut(id).expect("the user was found");
        user.active = active.unwrap_or(user.active);
        if active == Some(false) {
            self.end_sessions_of(step, id, EvictionReason::UserChanged);
        }
        Ok(Reply::Done)
    }

    /// `verified` is the op of the asker's password that the shell has checked.
    pub(crate) fn change_password(
        &mut self,
        step: &mut Step,
        by: UserId,
        user: &Identifier,
        (password_hash, verified): (&PasswordHash, Op),
    ) -> Result<Reply, Failure> {
        let id = self
            .require_self_or_root(by, user, "change the passwords of other users")?
            .id;
        let asker = self.active_user(by)?;
        if asker.password_op != verified {
            return Err(failure::password_replaced(&asker.name));
        }
        let user = self.users.get_mut(id).expect("the user was found");
        user.password_hash = password_hash.clone();
        user.password_op = step.op;
        self.end_sessions_of(step, id, EvictionReason::UserChanged);
        Ok(Reply::Done)
    }
}
