//! What the metadata group replicates, and its bytes in a prepare.

mod field;
#[cfg(test)]
mod tests;

use alloc::{string::String, vec::Vec};

use bytes::Bytes;
use coordinator::{GroupOptions, OptionsUpdate, ResetTo, Weight};
use wire::{
    ClientId, DecodeError, Epoch, EvictionReason, Identifier, MemberId, Op, PartitionId, Problem,
    Reader, SessionNumber, Timestamp, UserId, Writer,
};

use crate::{FormerLimits, GroupKey, Limits, PasswordHash, SecretHash};
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
    /// Puts other limits in force, those of consumer groups being the initial ones. Not proposed any
    /// more.
    1 SetFormerLimits {
        /// All that there were.
        limits: FormerLimits,
    }

    /// Puts other limits in force. Proposed by a primary whose configuration differs.
    2 SetLimits {
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

    /// Purges every topic of a stream.
    303 PurgeStream {
        /// Who asks.
        by: UserId,
        /// Which.
        stream: Identifier,
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

    /// Begins a new incarnation of every partition, without messages and stored offsets. What groups have
    /// stored is gone too, and members go on under new epochs.
    403 PurgeTopic {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// Which.
        topic: Identifier,
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

    /// Creates a consumer group without members; one that exists is not touched.
    600 CreateConsumerGroup {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// In which topic.
        topic: Identifier,
        /// Its name.
        name: String,
        /// Its options.
        options: GroupOptions,
    }

    /// Deletes a consumer group with what it has stored.
    601 DeleteConsumerGroup {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// In which topic.
        topic: Identifier,
        /// Which.
        group: Identifier,
        /// Whether to do it although it has members, who are fenced then.
        force: bool,
    }

    /// Changes options of a consumer group.
    602 UpdateConsumerGroup {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// In which topic.
        topic: Identifier,
        /// Which.
        group: Identifier,
        /// The options that change.
        options: OptionsUpdate,
    }

    /// Makes a session a member of a consumer group, or answers the membership that it has. The session
    /// stands for its user.
    603 JoinConsumerGroup {
        /// The client.
        client: ClientId,
        /// Its session.
        session: SessionNumber,
        /// In which stream.
        stream: Identifier,
        /// In which topic.
        topic: Identifier,
        /// Which group.
        group: Identifier,
        /// Makes it a static member, which another session can take over.
        instance: Option<String>,
        /// How large a share it takes.
        weight: Weight,
        /// Where the client is connected from, for people.
        address: String,
    }

    /// Ends a session's membership at its own wish.
    604 LeaveConsumerGroup {
        /// The client.
        client: ClientId,
        /// Its session.
        session: SessionNumber,
        /// In which stream.
        stream: Identifier,
        /// In which topic.
        topic: Identifier,
        /// Which group.
        group: Identifier,
    }

    /// Ends somebody's membership.
    605 RemoveMember {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// In which topic.
        topic: Identifier,
        /// In which group.
        group: Identifier,
        /// Whose.
        member: MemberId,
    }

    /// Sets stored offsets of a consumer group, backwards too. It is done when the moves that it plans
    /// are complete.
    606 ResetConsumerOffset {
        /// Who asks.
        by: UserId,
        /// In which stream.
        stream: Identifier,
        /// In which topic.
        topic: Identifier,
        /// Whose.
        group: Identifier,
        /// The partitions, none twice, and what becomes of each.
        partitions: Vec<(PartitionId, ResetTo)>,
        /// What becomes of every other partition; if it is not there, they stay as they are.
        others: Option<ResetTo>,
        /// Whether to do it although the group has members.
        force: bool,
    }

    /// Shares the partitions of consumer groups out whose initial delay is over; skips those where
    /// another wait, or none, goes on by now.
    610 PlanGroups {
        /// Each with the join that began the wait.
        groups: Vec<(GroupKey, Op)>,
    }

    /// The data groups have raised the fences of these moves; skips those that are not planned any more,
    /// or are complete.
    611 CompleteMoves {
        /// By consumer group, the partitions and the epochs that they move to.
        groups: Vec<(GroupKey, Vec<(PartitionId, Epoch)>)>,
    }

    /// Ends the memberships of static members that have stayed away too long; skips those that have come
    /// back or are gone.
    612 ExpireMembers {
        /// By consumer group, the members and the session that each had last.
        groups: Vec<(GroupKey, Vec<(MemberId, SessionNumber)>)>,
    }

    /// Deletes consumer groups that have had no members for too long; skips those that somebody has
    /// joined since.
    613 ExpireGroups {
        /// Each with the time since when it has had none.
        groups: Vec<(GroupKey, Timestamp)>,
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
            | Self::PurgeStream { by, .. }
            | Self::CreateTopic { by, .. }
            | Self::DeleteTopic { by, .. }
            | Self::UpdateTopic { by, .. }
            | Self::PurgeTopic { by, .. }
            | Self::CreatePartitions { by, .. }
            | Self::DeletePartitions { by, .. }
            | Self::CreateConsumerGroup { by, .. }
            | Self::DeleteConsumerGroup { by, .. }
            | Self::UpdateConsumerGroup { by, .. }
            | Self::RemoveMember { by, .. }
            | Self::ResetConsumerOffset { by, .. } => Some(*by),
            Self::SetFormerLimits { .. }
            | Self::SetLimits { .. }
            | Self::CreateRoot { .. }
            | Self::Register { .. }
            | Self::Logout { .. }
            | Self::EndSessions { .. }
            | Self::JoinConsumerGroup { .. }
            | Self::LeaveConsumerGroup { .. }
            | Self::PlanGroups { .. }
            | Self::CompleteMoves { .. }
            | Self::ExpireMembers { .. }
            | Self::ExpireGroups { .. } => None,
        }
    }
}
