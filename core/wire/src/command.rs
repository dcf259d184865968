//! Command codes: what a request asks for.

/// Which part of a node executes a command, and so what its header's last field means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Concerns the connection that it arrives on; allowed before login.
    Connection,
    /// One op of the metadata group. The header's last field is the request number.
    Metadata,
    /// Read from the node's copy of the metadata; needs no op.
    Query,
    /// Executed by the data group that holds the partition.
    Data,
}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $plane:ident, $supported:literal;)*) => {
        /// A command, with the code that names it in a frame's header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Command {
            $($(#[$doc])* $name = $code,)*
        }

        impl Command {
            /// Every command, in the order of the codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The command with this code, if there is one.
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

            /// Which part of a node executes it.
            #[must_use]
            pub const fn plane(self) -> Plane {
                match self {
                    $(Self::$name => Plane::$plane,)*
                }
            }

            /// Whether this version executes it. The codes of the others are taken, and are answered
            /// with `CommandNotSupported`.
            #[must_use]
            pub const fn supported(self) -> bool {
                match self {
                    $(Self::$name => $supported,)*
                }
            }
        }
    };
}

commands! {
    /// Proves that both ends live.
    Ping = 1, Connection, true;
    /// The node's counters.
    GetStats = 10, Query, true;
    /// The node's replicas: how far each has got, and what it waits for.
    GetNodeStatus = 11, Connection, true;
    /// Nodes, consensus groups and their primaries.
    GetClusterMetadata = 12, Query, true;
    /// The session that asks.
    GetMe = 20, Query, true;
    /// One session.
    GetClient = 21, Query, false;
    /// The sessions, page by page.
    GetClients = 22, Query, false;
    /// One user.
    GetUser = 31, Query, true;
    /// The users, page by page.
    GetUsers = 32, Query, true;
    /// Makes a user.
    CreateUser = 33, Metadata, true;
    /// Removes a user and ends its sessions.
    DeleteUser = 34, Metadata, true;
    /// Renames, activates or deactivates a user.
    UpdateUser = 35, Metadata, true;
    /// Sets what a user may do.
    UpdatePermissions = 36, Metadata, false;
    /// Sets a user's password.
    ChangePassword = 37, Metadata, true;
    /// Ends the session, on all its connections.
    Logout = 39, Metadata, true;
    /// Registers a session for a name and a password.
    Login = 40, Connection, true;
    /// A user's tokens.
    GetPersonalAccessTokens = 41, Query, false;
    /// Makes a token.
    CreatePersonalAccessToken = 42, Metadata, false;
    /// Removes a token.
    DeletePersonalAccessToken = 43, Metadata, false;
    /// Binds another connection to a session, by the session's secret.
    Attach = 44, Connection, true;
    /// Registers a session for a token.
    LoginWithToken = 45, Connection, false;
    /// Reads messages of one or several partitions of a topic.
    PollMessages = 100, Data, true;
    /// Appends batches to one or several partitions of a topic.
    SendMessages = 101, Data, true;
    /// What a consumer has stored.
    GetConsumerOffset = 120, Data, true;
    /// Stores the last message that a consumer has processed.
    StoreConsumerOffset = 121, Data, true;
    /// Forgets what a consumer has stored.
    DeleteConsumerOffset = 122, Data, true;
    /// Sets the offsets of a consumer group, ordered by the metadata group.
    ResetConsumerOffset = 123, Metadata, true;
    /// One stream.
    GetStream = 200, Query, true;
    /// The streams, page by page.
    GetStreams = 201, Query, true;
    /// Makes a stream.
    CreateStream = 202, Metadata, true;
    /// Removes a stream with its topics.
    DeleteStream = 203, Metadata, true;
    /// Renames a stream.
    UpdateStream = 204, Metadata, true;
    /// Removes the messages of all topics of a stream, and what was stored of them.
    PurgeStream = 205, Metadata, true;
    /// One topic with its partitions.
    GetTopic = 300, Query, true;
    /// The topics of a stream, page by page.
    GetTopics = 301, Query, true;
    /// Makes a topic.
    CreateTopic = 302, Metadata, true;
    /// Removes a topic with its partitions and consumer groups.
    DeleteTopic = 303, Metadata, true;
    /// Renames a topic.
    UpdateTopic = 304, Metadata, true;
    /// Removes the messages of a topic, and what was stored of them.
    PurgeTopic = 305, Metadata, true;
    /// Adds partitions to a topic.
    CreatePartitions = 402, Metadata, true;
    /// Removes the last partitions of a topic.
    DeletePartitions = 403, Metadata, true;
    /// Removes the oldest segments of a partition.
    DeleteSegments = 503, Data, false;
    /// One consumer group: members, ownership, progress.
    GetConsumerGroup = 600, Query, true;
    /// The consumer groups of a topic, page by page.
    GetConsumerGroups = 601, Query, true;
    /// Makes a consumer group.
    CreateConsumerGroup = 602, Metadata, true;
    /// Removes a consumer group.
    DeleteConsumerGroup = 603, Metadata, true;
    /// Makes the session a member of a consumer group.
    JoinConsumerGroup = 604, Metadata, true;
    /// Ends the session's membership.
    LeaveConsumerGroup = 605, Metadata, true;
    /// The member's assignment.
    SyncConsumerGroup = 606, Query, true;
    /// Stores the last offset of a partition that is being revoked, and gives it up.
    ReleasePartition = 607, Data, true;
    /// Ends somebody's membership.
    RemoveMember = 608, Metadata, true;
    /// Sets the options of a consumer group.
    UpdateConsumerGroup = 609, Metadata, true;
}

impl Command {
    /// The code, as it stands in the header.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, Plane};

    #[test]
    fn codes_rise_and_lead_back_to_their_commands() {
        assert!(Command::ALL.is_sorted_by(|a, b| a.code() < b.code()));
        for command in Command::ALL {
            assert_eq!(Command::from_code(command.code()), Some(*command));
        }
        for unknown in [0, 2, 38, 610, 900, u32::MAX] {
            assert_eq!(Command::from_code(unknown), None);
        }
    }

    /// What is allowed before login must not grow unnoticed.
    #[test]
    fn only_five_commands_concern_the_connection() {
        let connection: std::vec::Vec<Command> = Command::ALL
            .iter()
            .copied()
            .filter(|command| command.plane() == Plane::Connection)
            .collect();
        let expected = [
            Command::Ping,
            Command::GetNodeStatus,
            Command::Login,
            Command::Attach,
            Command::LoginWithToken,
        ];
        assert_eq!(connection, expected);
    }
}
