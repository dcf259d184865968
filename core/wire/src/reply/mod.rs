//! Bodies of replies, one type per kind of answer.

mod catalog;
mod message;
mod node;
mod offset;
mod session;

use alloc::vec::Vec;

use bytes::Bytes;

use crate::{
    Command, DecodeError, Problem, Reader, Writer,
    field::{self, Field},
};

pub use catalog::{
    PartitionDetails, PartitionsChanged, StreamDetails, Streams, TopicDetails, TopicSummary, Topics,
};
pub use message::{PollResult, Polled, SendResult, Sent};
pub use node::{ClusterMetadata, Counter, GroupPrimary, Node, Stats};
pub use offset::{DeleteResult, OffsetResult, Offsets, OffsetsDeleted, OffsetsStored, StoreResult};
pub use session::{LoggedIn, Me, UserDetails, Users};

macro_rules! replies {
    ($($name:ident($body:ty): $($command:ident)*;)*) => {
        /// The answer to a request that succeeded.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Reply {
            /// Done, and there is nothing to tell: an empty body. Answers [`Command::Ping`], `Attach`,
            /// `Logout`, `DeleteUser`, `UpdateUser`, `ChangePassword`, `DeleteStream`, `UpdateStream`,
            /// `DeleteTopic`, `UpdateTopic`.
            Done,
            $(
                #[doc = concat!("Answers", $(" [`Command::", stringify!($command), "`]",)* ".")]
                $name($body),
            )*
        }

        impl Reply {
            /// Reads the body of a reply to `command` with status 0.
            ///
            /// # Errors
            /// Names the first field that is wrong; field `command` when it is not a supported one.
            pub fn decode(command: Command, body: Bytes) -> Result<Self, DecodeError> {
                match command {
                    Command::Ping
                    | Command::Attach
                    | Command::Logout
                    | Command::DeleteUser
                    | Command::UpdateUser
                    | Command::ChangePassword
                    | Command::DeleteStream
                    | Command::UpdateStream
                    | Command::DeleteTopic
                    | Command::UpdateTopic => {
                        Reader::new(body).finish()?;
                        Ok(Self::Done)
                    }
                    $($(Command::$command)|* => field::decode(body).map(Self::$name),)*
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
                    Self::Done => {}
                    $(Self::$name(body) => body.write(&mut writer),)*
                }
                writer
            }
        }

        $(
            impl From<$body> for Reply {
                fn from(body: $body) -> Self {
                    Self::$name(body)
                }
            }
        )*
    };
}

replies! {
    Stats(Stats): GetStats;
    ClusterMetadata(ClusterMetadata): GetClusterMetadata;
    Me(Me): GetMe;
    LoggedIn(LoggedIn): Login;
    User(UserDetails): GetUser CreateUser;
    Users(Users): GetUsers;
    Stream(StreamDetails): GetStream CreateStream;
    Streams(Streams): GetStreams;
    Topic(TopicDetails): GetTopic CreateTopic;
    Topics(Topics): GetTopics;
    PartitionsChanged(PartitionsChanged): CreatePartitions DeletePartitions;
    Polled(Polled): PollMessages;
    Sent(Sent): SendMessages;
    Offsets(Offsets): GetConsumerOffset;
    OffsetsStored(OffsetsStored): StoreConsumerOffset;
    OffsetsDeleted(OffsetsDeleted): DeleteConsumerOffset;
}

impl Reply {
    /// The body in pieces, for [`FrameHeader::frame_of_parts`](crate::FrameHeader::frame_of_parts): large
    /// batches are not copied.
    ///
    /// # Panics
    /// When a text exceeds 255 bytes: names are checked when they are given.
    #[must_use]
    pub fn encode(&self) -> Vec<Bytes> {
        self.writer().into_parts()
    }

    /// The body in one piece.
    ///
    /// # Panics
    /// As [`Reply::encode`].
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.writer().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::{vec, vec::Vec};

    use super::{Bytes, Command, PollResult, Polled, Reply};
    use crate::{
        Batch, BatchBuilder, Message, Offset, PartitionId, Problem, ProducerId, ReplicaId,
        Timestamp,
    };

    fn batch(size: usize, base: u64) -> Bytes {
        let mut builder = BatchBuilder::new();
        builder.push(&Message {
            payload: Bytes::from(vec![7; size]),
            ..Message::default()
        });
        let batch = builder.build(ProducerId(0), 0);
        batch.stamped(Offset(base), Timestamp(9)).to_bytes()
    }

    fn polled(batches: Vec<Bytes>) -> Reply {
        Reply::Polled(Polled {
            sections: vec![PollResult {
                partition: PartitionId(1),
                status: Ok(()),
                primary: ReplicaId(0),
                start: Offset(0),
                end: Offset(9),
                stored: None,
                from: Offset(0),
                next: Offset(2),
                batches,
            }],
        })
    }

    #[test]
    fn large_batches_are_served_without_a_copy() {
        let batches = vec![batch(5_000, 0), batch(10, 1)];
        let parts = polled(batches.clone()).encode();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[1].as_ptr(), batches[0].as_ptr());
        assert_eq!(polled(batches).to_bytes(), parts.concat());
    }

    #[test]
    fn batches_are_told_apart_however_they_were_cut() {
        let batches = vec![batch(5_000, 0), batch(10, 1)];
        let whole = Bytes::from(batches.concat());
        let cut = polled(vec![whole.slice(..77), whole.slice(77..)]);
        let read = Reply::decode(Command::PollMessages, cut.to_bytes());
        assert_eq!(read, Ok(polled(batches.clone())));
        assert!(
            batches
                .iter()
                .all(|batch| Batch::read(batch).unwrap().is_stamped())
        );
    }

    #[test]
    fn batches_that_do_not_end_with_their_section_are_refused() {
        let whole = batch(10, 0);
        for size in 1..whole.len() {
            let cut = polled(vec![whole.slice(..size)]).to_bytes();
            let error = Reply::decode(Command::PollMessages, cut).unwrap_err();
            assert!(matches!(error.problem, Problem::Truncated { .. }), "{size}");
        }
    }

    #[test]
    fn nothing_to_tell_is_an_empty_body() {
        assert!(Reply::Done.encode().is_empty());
        assert_eq!(Reply::decode(Command::Ping, Bytes::new()), Ok(Reply::Done));
        assert!(Reply::decode(Command::Ping, Bytes::from_static(&[0])).is_err());
        assert!(Reply::decode(Command::GetMe, Bytes::new()).is_err());
    }
}
