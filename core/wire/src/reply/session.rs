//! Sessions and users.

use alloc::{string::String, vec::Vec};

use crate::{ClientId, SessionNumber, SessionSecret, Timestamp, UserId, field::body};

body! {
    /// A session is registered, and the connection is bound to it.
    LoggedIn {
        /// Its number.
        session: SessionNumber,
        /// Proves it on other connections.
        secret: SessionSecret,
        /// The user.
        user: UserId,
        /// How long the session lives without any frame from the client, milliseconds.
        session_timeout_ms: u32,
        /// The largest frame that the node takes, header included.
        frame_size_max: u32,
    }

    /// The session that asks.
    Me {
        /// Its client.
        client: ClientId,
        /// Its number.
        session: SessionNumber,
        /// Its user.
        user: UserId,
        /// The user's name.
        user_name: String,
        /// The connection's other end, as the node sees it.
        address: String,
    }

    /// A user.
    UserDetails {
        /// Its id.
        id: UserId,
        /// Its name.
        name: String,
        /// Whether it may log in.
        active: bool,
        /// When it was made.
        created: Timestamp,
    }

    /// A page of users.
    Users {
        /// In the order of their ids.
        users: Vec<UserDetails>,
        /// Whether there are users with a higher id.
        more: bool,
    }
}
