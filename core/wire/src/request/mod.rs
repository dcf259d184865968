//! Bodies of requests, one type per command.

mod catalog;
mod consumer_group;
mod message;
mod offset;
mod session;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use bytes::Bytes;

use crate::{
    Command, DecodeError, Problem, Writer,
    field::{self, Field},
};

pub use catalog::{
    CreatePartitions, CreateStream, CreateTopic, DeletePartitions, DeleteStream, DeleteTopic,
    GetStream, GetStreams, GetTopic, GetTopics, PurgeStream, PurgeTopic, UpdateStream, UpdateTopic,
};
pub use consumer_group::{
    ConsumerGroupOptionsUpdate, CreateConsumerGroup, DeleteConsumerGroup, GetConsumerGroup,
    GetConsumerGroups, GroupStart, JoinConsumerGroup, LeaveConsumerGroup, ReleasePartition,
    ReleaseSection, RemoveMember, ResetConsumerOffset, ResetSection, ResetTarget,
    SyncConsumerGroup, UpdateConsumerGroup,
};
pub use message::{
    Acknowledgement, Consumer, PartitionTarget, PollMessages, PollSection, PollStrategy,
    SendMessages, SendSection,
};
pub use offset::{DeleteConsumerOffset, GetConsumerOffset, StoreConsumerOffset, StoreSection};
pub use session::{
    Attach, ChangePassword, CreateUser, DeleteUser, GetNodeStatus, GetUser, GetUsers, Login,
    UpdateUser,
};

macro_rules! requests {
    (empty: $($empty:ident)*; bodies: $($name:ident)*;) => {
        /// A request: a command with its body.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Request {
            $(
                #[doc = concat!("[`Command::", stringify!($empty), "`]: no body.")]
                $empty,
            )*
            $(
                #[doc = concat!("[`Command::", stringify!($name), "`].")]
                $name($name),
            )*
        }

        impl Request {
            /// Every command whose body is specified; all that are
            /// [`supported`](Command::supported) are among them.
            pub const COMMANDS: &'static [Command] =
                &[$(Command::$empty,)* $(Command::$name,)*];

            /// The command.
            #[must_use]
            pub const fn command(&self) -> Command {
                match self {
                    $(Self::$empty => Command::$empty,)*
                    $(Self::$name(_) => Command::$name,)*
                }
            }

            /// Reads the body of `command`. Byte strings and batches are slices of it, not copies.
            ///
            /// # Errors
            /// Names the first field that is wrong; field `command` when its body is not specified.
            pub fn decode(command: Command, body: Bytes) -> Result<Self, DecodeError> {
                match command {
                    $(Command::$empty => field::decode(body).map(|Empty| Self::$empty),)*
                    $(Command::$name => field::decode(body).map(Self::$name),)*
                    _ => Err(DecodeError {
                        field: "command",
                        position: 0,
                        problem: Problem::Invalid { value: u64::from(command.code()) },
                    }),
                }
            }

            fn writer(&self) -> Writer {
                let mut writer = Writer::new();
                match self {
                    $(Self::$empty => {})*
                    $(Self::$name(body) => body.write(&mut writer),)*
                }
                writer
            }
        }

        $(
            impl From<$name> for Request {
                fn from(body: $name) -> Self {
                    Self::$name(body)
                }
            }
        )*
    };
}

requests! {
    empty: Ping GetStats GetClusterMetadata GetMe Logout;
    bodies:
        GetNodeStatus Login Attach GetUser GetUsers CreateUser DeleteUser UpdateUser ChangePassword
        PollMessages SendMessages
        GetConsumerOffset StoreConsumerOffset DeleteConsumerOffset ResetConsumerOffset
        GetStream GetStreams CreateStream DeleteStream UpdateStream PurgeStream
        GetTopic GetTopics CreateTopic DeleteTopic UpdateTopic PurgeTopic
        CreatePartitions DeletePartitions
        GetConsumerGroup GetConsumerGroups CreateConsumerGroup DeleteConsumerGroup
        JoinConsumerGroup LeaveConsumerGroup SyncConsumerGroup ReleasePartition RemoveMember
        UpdateConsumerGroup;
}

impl Request {
    /// The body in one piece.
    ///
    /// # Panics
    /// When a name, instance id or password exceeds 255 bytes or a key 65,535: callers check their users' input
    /// first, see [`check_name`](crate::check_name).
    #[must_use]
    pub fn encode(&self) -> Bytes {
        self.writer().into_bytes()
    }

    /// The body in pieces, for [`FrameHeader::frame_of_parts`](crate::FrameHeader::frame_of_parts): large
    /// batches are not copied.
    ///
    /// # Panics
    /// As [`Request::encode`].
    #[must_use]
    pub fn encode_parts(&self) -> Vec<Bytes> {
        self.writer().into_parts()
    }
}

/// A body without fields.
struct Empty;

impl Field for Empty {
    const SIZE_MIN: usize = 0;

    fn read(_reader: &mut crate::Reader, _field: &'static str) -> Result<Self, DecodeError> {
        Ok(Self)
    }

    fn write(&self, _writer: &mut Writer) {}
}
