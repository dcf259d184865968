//! Error codes: the status of a reply that is no success.

macro_rules! error_codes {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $retryable:literal, $advice:literal;)*) => {
        /// Why a request, or one section of it, was refused. Numbers are stable and grouped by area:
        /// 10xx frames and bodies, 11xx the node, 20xx sessions, 21xx users, 30xx catalog, 40xx
        /// messages and offsets, 50xx consumer groups. 0 is success and not in here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum ErrorCode {
            $($(#[doc = $doc])* $name = $code,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code with this number, if this version knows it.
            #[must_use]
            pub const fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The name, as PROTOCOL.md spells it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// What has happened, in general; a reply's text says it of the case.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),*).trim_ascii_start(),)*
                }
            }

            /// Whether the same request may succeed later, with nothing else done about it.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self {
                    $(Self::$name => $retryable,)*
                }
            }

            /// What the client, or the person behind it, should do: one sentence.
            #[must_use]
            pub const fn advice(self) -> &'static str {
                match self {
                    $(Self::$name => $advice,)*
                }
            }
        }
    };
}

error_codes! {
    // Frames and bodies.

    /// The header's size, kind, flags or status is not what the protocol allows.
    MalformedFrame = 1000, false, "Fix the client; the server closes the connection.";
    /// The frame's checksum does not match its bytes.
    ChecksumMismatch = 1001, false, "Connect again; if it repeats, fix the client or the network.";
    /// The header's protocol version is not spoken here.
    UnsupportedVersion = 1002, false, "Use a client that speaks the version which the text names.";
    /// The frame is larger than the server takes.
    FrameTooLarge = 1003, false, "Send smaller batches; the limit is in the answer to Login.";
    /// No command has this code.
    CommandUnknown = 1004, false, "Fix the client, or upgrade the server.";
    /// The code is taken by a command that this version does not execute.
    CommandNotSupported = 1005, false, "Upgrade the server.";
    /// The body is not what the command expects; the text names field and position.
    MalformedBody = 1006, false, "Fix the client.";
    /// A value is out of its range, or contradicts another one; the text names both.
    InvalidArgument = 1007, false, "Correct the value that the text names.";
    /// The request has more sections than one may have.
    TooManySections = 1008, false, "Split the request.";

    // The node.

    /// Not executed: the node is behind what the request rests on, or lost the way to the primary.
    Retry = 1100, true, "Send it again after a short, growing pause, a metadata command under its request number.";
    /// Not executed: another node leads the partition's data group; the reply names it.
    NotPrimary = 1101, true, "Send it to the node that the reply names.";
    /// Not executed: the consensus group has no primary that serves at this moment.
    NotReady = 1102, true, "Send it again after a short, growing pause.";
    /// Not executed: the node is shutting down.
    ServerStopping = 1103, true, "Connect to another node, or wait until this one is back.";
    /// The node has as many connections as it takes.
    TooManyConnections = 1104, true, "Connect to another node, or later.";
    /// The connection has as many unanswered requests as it may have.
    TooManyRequests = 1105, true, "Wait for answers before sending more.";
    /// The connection has as many unanswered bytes as it may have.
    TooManyBytes = 1106, true, "Wait for answers before sending more.";
    /// Not executed: the consensus group has as many requests waiting as it takes.
    Busy = 1107, true, "Send it again after a short, growing pause.";
    /// The disk's reserve is reached; messages are refused, everything else goes on.
    StorageFull = 1108, true, "Free or add disk space; the node resumes by itself.";
    /// The consensus group is out of service on this node, because its journal is damaged.
    OutOfService = 1109, false, "An operator must repair the node; its log names group and op.";
    /// It may or may not have been executed: the primary changed before the node learned the outcome.
    OutcomeUnknown = 1110, true, "Send it again, a metadata command under its request number; a batch without producer may then be there twice.";
    /// The node failed at its own task; its log says how.
    Internal = 1199, false, "Report it to the operator.";

    // Sessions.

    /// The connection has no session, and the command needs one.
    Unauthenticated = 2000, false, "Log in or attach first.";
    /// Name and password, or the session's secret, do not match.
    InvalidCredentials = 2001, false, "Ask for the right ones; do not repeat these.";
    /// The session has ended, or never was.
    SessionNotFound = 2002, false, "Log in again; memberships of the old session are gone.";
    /// The user may not do this.
    Forbidden = 2003, false, "Ask for the permission.";
    /// Another metadata request of the session has no answer yet.
    RequestInFlight = 2004, true, "Wait for the answer to the session's other metadata request.";
    /// The request number is below the last one executed, whose answer alone is kept.
    StaleRequest = 2005, false, "Number requests upwards, from one place per session.";
    /// A metadata command without a request number.
    InvalidRequestNumber = 2006, false, "Number the session's metadata requests from 1.";
    /// The frame's client or session is not the one that the connection is bound to.
    SessionMismatch = 2007, false, "Use one connection for one session.";
    /// The connection has a session already.
    AlreadyLoggedIn = 2008, false, "Open another connection for another session.";
    /// The cluster has as many sessions as it takes.
    TooManySessions = 2009, true, "End unused sessions, or raise the limit.";
    /// Too many failed logins, or too many waiting to be checked.
    LoginThrottled = 2010, true, "Wait a few seconds before the next attempt.";

    // Users.

    /// No such user.
    UserNotFound = 2100, false, "Correct the name or id.";
    /// The name is taken; the text tells the id.
    UserAlreadyExists = 2101, false, "Choose another name, or use the user that exists.";
    /// The user is deactivated.
    UserInactive = 2102, false, "An administrator must activate the user.";
    /// The password is too short or too long.
    InvalidPassword = 2103, false, "Choose one within the limits that the text names.";
    /// As many users as there may be.
    TooManyUsers = 2104, false, "Remove unused users, or raise the limit.";
    /// What must not be done to the user `root`.
    RootProtected = 2105, false, "Use another user for this.";
    /// No such token.
    TokenNotFound = 2110, false, "Correct the token's name.";
    /// The user has a token of this name.
    TokenAlreadyExists = 2111, false, "Choose another name.";
    /// The token's time is over.
    TokenExpired = 2112, false, "Make a new token.";
    /// As many tokens as the user may have.
    TooManyTokens = 2113, false, "Remove unused tokens, or raise the limit.";

    // Streams, topics, partitions.

    /// The name breaks the rules for names; the text tells which.
    InvalidName = 3000, false, "Choose a name that follows the rules.";
    /// No such stream.
    StreamNotFound = 3001, false, "Correct the name or id, or create the stream.";
    /// The name is taken; the text tells the id.
    StreamAlreadyExists = 3002, false, "Use the stream that exists, or choose another name.";
    /// As many streams as there may be.
    TooManyStreams = 3003, false, "Remove unused streams, or raise the limit.";
    /// No such topic in the stream.
    TopicNotFound = 3010, false, "Correct the name or id, or create the topic.";
    /// The name is taken in the stream; the text tells the id.
    TopicAlreadyExists = 3011, false, "Use the topic that exists, or choose another name.";
    /// As many topics as a stream may have.
    TooManyTopics = 3012, false, "Remove unused topics, or raise the limit.";
    /// No such partition in the topic.
    PartitionNotFound = 3020, false, "Read the topic again and use a partition that it has.";
    /// As many partitions as a topic may have.
    TooManyPartitions = 3021, false, "Use fewer partitions, or raise the limit.";
    /// A count of partitions that is 0, or more than the topic can lose.
    InvalidPartitionCount = 3022, false, "Use a count that the text allows.";
    /// The partition is out of service on this node until its segment is repaired.
    PartitionDamaged = 3023, false, "An operator must repair the node; other partitions are not touched.";

    // Messages and offsets.

    /// The batch's layout or checksum is wrong; the text names the field.
    InvalidBatch = 4000, false, "Fix the client.";
    /// The batch is larger than the server takes.
    BatchTooLarge = 4001, false, "Send smaller batches.";
    /// The batch has more messages than one may have.
    TooManyMessages = 4002, false, "Send smaller batches.";
    /// The sequence skips one: a batch of the producer is missing before it.
    SequenceOutOfOrder = 4010, false, "Send the batches after the last acknowledged one again, in order.";
    /// The partition does not know the producer, and the sequence is not 1.
    ProducerUnknown = 4011, false, "Go on with a new producer id and sequence 1; what was unanswered may be there twice.";
    /// The batch was appended before, so long ago that its offset is no longer kept.
    SequenceTooOld = 4012, false, "Take it as sent; its offset is not known.";
    /// Another batch was sent under the sequence: two producers share an id, or one began anew with it.
    SequenceReused = 4013, false, "Go on with a new producer id and sequence 1; no two producers may share one.";
    /// The offset is not that of a message which the partition holds.
    OffsetOutOfRange = 4020, false, "Use an offset between start and end of the partition.";
    /// The consumer has nothing stored for the partition.
    OffsetNotStored = 4021, false, "Nothing is to be done; there is nothing to delete.";
    /// As many single consumers as may store offsets in a partition.
    TooManyConsumers = 4022, false, "Delete the offsets of unused consumers, or raise the limit.";

    // Consumer groups.

    /// No such consumer group in the topic.
    ConsumerGroupNotFound = 5000, false, "Create the group; one of the same name made since is another group.";
    /// The name is taken in the topic; the text tells the id.
    ConsumerGroupAlreadyExists = 5001, false, "Use the group that exists.";
    /// The group has members; the text tells how many.
    ConsumerGroupNotEmpty = 5002, false, "Stop its members first, or force it.";
    /// The session is not a member: it never joined, left, was removed, or expired.
    ConsumerGroupMemberNotFound = 5003, false, "Join again and drop what is held for the old membership.";
    /// As many members as a group may have.
    ConsumerGroupFull = 5004, false, "Stop unused members, or raise the limit.";
    /// As many consumer groups as a topic may have.
    TooManyConsumerGroups = 5005, false, "Delete unused groups, or raise the limit.";
    /// As many memberships as a session may have.
    TooManyMemberships = 5006, false, "Leave groups, or use another session.";
    /// Another session has joined with the same instance id; the text tells its address.
    FencedInstanceId = 5007, false, "Stop; another process runs under the same instance id.";
    /// An option of the group is out of its range.
    InvalidConsumerGroupOptions = 5008, false, "Use a value within the range that the text names.";
    /// The partition is not the member's, or no longer under this epoch.
    PartitionNotOwned = 5009, false, "Drop what is held of the partition, sync, and go on with what is assigned.";
    /// The partition is being revoked from the member: no more polls, stores still count.
    PartitionRevoking = 5010, false, "Finish what was polled, store it, and release the partition.";
    /// A newer epoch has been seen: the partition was handed over.
    StaleEpoch = 5011, false, "Drop what is held of the partition and sync; the offset was not stored.";
    /// The offset is stored, but the revocation named is no longer planned, so nothing was released.
    RevocationChanged = 5012, false, "Sync, and go on with what is assigned.";
}

impl ErrorCode {
    /// The number, as it stands in a reply.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn numbers_rise_and_lead_back_to_their_codes() {
        assert!(ErrorCode::ALL.is_sorted_by(|a, b| a.code() < b.code()));
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(code.code()), Some(*code));
        }
        for unknown in [0, 1, 999, 1200, 5099, u32::MAX] {
            assert_eq!(ErrorCode::from_code(unknown), None);
        }
    }

    #[test]
    fn consumer_groups_have_their_area() {
        assert_eq!(ErrorCode::PartitionNotOwned.code(), 5009);
        for code in ErrorCode::ALL {
            let is_of_groups = (5000..5100).contains(&code.code());
            assert_eq!(is_of_groups, code >= &ErrorCode::ConsumerGroupNotFound);
        }
    }

    #[test]
    fn meaning_and_advice_are_sentences() {
        for code in ErrorCode::ALL {
            for text in [code.meaning(), code.advice()] {
                assert!(text.ends_with('.'), "{}: {text}", code.name());
                assert!(
                    text.starts_with(char::is_uppercase),
                    "{}: {text}",
                    code.name()
                );
                assert!(!text.contains("  "), "{}: {text}", code.name());
            }
        }
    }
}
