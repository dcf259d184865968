//! Sessions and users.

use alloc::string::String;

use crate::{Identifier, Password, SessionSecret, UserId, field::body};

body! {
    /// Registers a session for the client id in the header. Replaces an older session of that client.
    Login {
        /// The user's name.
        name: String,
        /// The user's password.
        password: Password,
    }

    /// Asks for the replicas of the node that answers, with or without a session.
    GetNodeStatus {
        /// The user's name. Not looked at where the connection carries a session.
        name: String,
        /// The user's password. Not looked at where the connection carries a session.
        password: Password,
        /// Whether digests of the states are wanted: they cost the node the reading of its whole state.
        digests: bool,
    }

    /// Binds the connection to the session in the header.
    Attach {
        /// The session's secret, from the answer to its login.
        secret: SessionSecret,
    }

    /// Asks for one user.
    GetUser {
        /// The user.
        user: Identifier,
    }

    /// Asks for the users with an id above `after`.
    GetUsers {
        /// The last id of the page before; 0 for the first page.
        after: UserId,
        /// The most users to be answered; 0: as many as the server allows.
        limit: u32,
    }

    /// Makes a user.
    CreateUser {
        /// Its name.
        name: String,
        /// Its password.
        password: Password,
    }

    /// Removes a user and ends its sessions.
    DeleteUser {
        /// The user.
        user: Identifier,
    }

    /// Changes a user; what is absent stays.
    UpdateUser {
        /// The user.
        user: Identifier,
        /// Its new name.
        name: Option<String>,
        /// Whether it may log in; deactivating ends its sessions.
        active: Option<bool>,
    }

    /// Sets a password.
    ChangePassword {
        /// The user.
        user: Identifier,
        /// The password so far. A user that changes another one's gives its own.
        current: Password,
        /// The password from now on.
        new: Password,
    }
}
