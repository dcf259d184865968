//! What the exit code says.

/// How the process ended. The codes are part of the interface: service managers act on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked, or stopped because it was asked to.
    Success,
    /// It failed while it ran: a bug, or a disk that cannot be written. A restart may help.
    Failed,
    /// The command line cannot be read.
    Usage,
    /// The configuration was refused. A restart does not help.
    Configuration,
    /// It could not start: port taken, directory locked or not accessible, address unknown.
    CannotStart,
    /// What is on the disk is damaged in a way that the server does not guess about.
    Damaged,
    /// A second signal ended it before it was done.
    Killed,
}

impl Exit {
    /// The code.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Configuration => 3,
            Self::CannotStart => 4,
            Self::Damaged => 5,
            Self::Killed => 130,
        }
    }

    /// Every code but 0, with what it means, for the help.
    pub const MEANINGS: [(Self, &'static str); 6] = [
        (Self::Failed, "failed while running"),
        (Self::Usage, "the command line is wrong"),
        (Self::Configuration, "the configuration is refused"),
        (
            Self::CannotStart,
            "cannot start: port, data directory, permission",
        ),
        (
            Self::Damaged,
            "what is on the disk is damaged; see the message",
        ),
        (Self::Killed, "ended at once by a second signal"),
    ];
}
