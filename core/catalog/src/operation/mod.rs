//! What the metadata group replicates, and its bytes in a prepare.

mod field;
#[cfg(test)]
mod tests;

use alloc::{string::String, vec::Vec};

use bytes::Bytes;
use wire::{
    ClientId, DecodeError, EvictionReason, Identifier, Op, Problem, Reader, SessionNumber, UserId,
    Writer,
};

use crate::{Limits, PasswordHash, SecretHash};
use field::Field;

/// Makes the enum, the numbers of its kinds and both directions of the codec from one table. The body of
/// a prepare is the fields in the order of the table, as [`Field`] lays them out.
macro_rules! operations {
    ($($(#[$doc:meta])* $kind:literal $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {
        /// One command of the metadata group.
        ///
        /// `by` is the user who asks; it is judged at apply, because it may have been deleted since
        /// admission. A number once given to a kind is never given to another one, and a kind never
        /// changes its fields: other fields are another kind, so that old journals stay readable.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Operation {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type,)* },)*
        }

        impl Operation {
            /// The number of the kind, for [`wire::PrepareHeader::operation`].
            #[must_use]
            pub const fn kind(&self) -> u16 {
                match self {
                    $(Self::$name { .. } => $kind,)*
                }
            }

            /// The body of the prepare.
            ///
            /// # Panics
            /// When a name or password hash has more than 65,535 bytes; those of decoded requests are
            /// shorter.
            #[must_use]
            pub fn encode(&self) -> Bytes {
                let mut writer = Writer::new();
                match self {
                    $(Self::$name { $($field,)* } => { $($field.write(&mut writer);)* })*
                }
                writer.into_bytes()
            }

            fn read(kind: u16, reader: &mut Reader) -> Result<Self, DecodeError> {
                match kind {
                    $($kind => Ok(Self::$name {
                        $($field: Field::read(stringify!($field), reader)?,)*
                    }),)*
                    unknown => Err(reader.error(
                        "operation",
                        Problem::Invalid { value: u64::from(unknown) },
                    )),
                }
            }

            #[cfg(test)]
            const KINDS: &[u16] = &[$($kind),*];
        }
    };
}

operations! {
    /// Puts other limits in force. Proposed by a primary whose configuration differs.
    1 SetLimits {
        /// All of them.
        limits: Limits,
    }

    /// Creates `root`; refused when it is there.
    100 CreateRoot {
        /// Its password.
        password_hash: PasswordHash,
    }

    /// Creates a user.
    101 CreateUser {
        /// Who asks.
        by: UserId,
        /// Its name.
        name: String,
        /// Its password.
        password_hash: PasswordHash,
    }

    /// Deletes a user and ends its sessions.
    102 DeleteUser {
        /// Who asks.
        by: UserId,
        /// Whom.
        user: Identifier,
    }

    /// Renames, activates or deactivates a user; deactivating ends its sessions.
    103 UpdateUser {
        /// Who asks.
        by: UserId,
        /// Whom.
        user: Identifier,
        /// The new name, if it changes.
        name: Option<String>,
        /// Whether it may log in, if that changes.
        active: Option<bool>,
    }

    /// Replaces a password and ends the user's sessions.
    104 ChangePassword {
        /// Who asks.
        by: UserId,
        /// Whose.
        user: Identifier,
        /// The new one.
        password_hash: PasswordHash,
        /// [`User::password_op`](crate::User::password_op) of the asker's own password, against which
        /// the shell checked the current one; if it is not the asker's any more, the change is refused.
        verified: Op,
    }

    /// Registers a session of `client`; the one that it has ends, unless this one is refused.
    200 Register {
        /// The client.
        client: ClientId,
        /// Who logs in.
        user: UserId,
        /// [`User::password_op`](crate::User::password_op) of the password against which the shell
        /// checked the one given; if it is not the user's any more, the login is refused.
        verified: Op,
        /// Of the session's secret.
        secret_hash: SecretHash,
    }

    /// Ends a session at its client's wish.
    201 Logout {
        /// The client.
        client: ClientId,
        /// Its session.
        session: SessionNumber,
    }

    /// Ends sessions for another reason; skips those that are not there any more, since who proposes it
    /// judges by what it knew a moment before.
    202 EndSessions {
        /// The sessions.
        sessions: Vec<(ClientId, SessionNumber)>,
        /// Why.
        reason: EvictionReason,
    }

    /// Creates a stream.
    300 CreateStream {
        /// Who asks.
        by: UserId,
        /// Its name.
        name: String,
    }

    /// Deletes a stream with all that is in it.
    301 DeleteStream {
        /// Who asks.
        by: UserId,
        /// Which.
        stream: Identifier,
    }

    /// Renames a stream.
    302 UpdateStream {
        /// Who asks.
        by: UserId,
        /// Which.
        stream: Identifier,
        /// The new name.
        name: String,
    }

    /// Creates a topic with its partitions.
    400 CreateTopic {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// Its name.
        name: String,
        /// How many partitions; at least one.
        partitions: u32,
    }

    /// Deletes a topic with all that is in it.
    401 DeleteTopic {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// Which.
        topic: Identifier,
    }

    /// Renames a topic.
    402 UpdateTopic {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// Which.
        topic: Identifier,
        /// The new name.
        name: String,
    }

    /// Adds partitions above the highest one.
    500 CreatePartitions {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// To which topic.
        topic: Identifier,
        /// How many; at least one.
        count: u32,
    }

    /// Deletes the highest partitions; at least one remains.
    501 DeletePartitions {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// Of which topic.
        topic: Identifier,
        /// How many; at least one.
        count: u32,
    }
}

impl Operation {
    /// Reads the body of a prepare whose header names `kind`.
    ///
    /// # Errors
    /// The kind is unknown, or the body is not one of that kind.
    pub fn decode(kind: u16, body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let operation = Self::read(kind, &mut reader)?;
        reader.finish()?;
        Ok(operation)
    }

    /// The user who asks, where one does.
    pub(crate) const fn asker(&self) -> Option<UserId> {
        match self {
            Self::CreateUser { by, .. }
            | Self::DeleteUser { by, .. }
            | Self::UpdateUser { by, .. }
            | Self::ChangePassword { by, .. }
            | Self::CreateStream { by, .. }
            | Self::DeleteStream { by, .. }
            | Self::UpdateStream { by, .. }
            | Self::CreateTopic { by, .. }
            | Self::DeleteTopic { by, .. }
            | Self::UpdateTopic { by, .. }
            | Self::CreatePartitions { by, .. }
            | Self::DeletePartitions { by, .. } => Some(*by),
            Self::SetLimits { .. }
            | Self::CreateRoot { .. }
            | Self::Register { .. }
            | Self::Logout { .. }
            | Self::EndSessions { .. } => None,
        }
    }
}
