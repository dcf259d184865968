//! Replies of the one kind that a command has.

macro_rules! only {
    ($reply:expr, $kind:ident) => {
        match $reply {
            wire::Reply::$kind(reply) => Ok(reply),
            _ => Err($crate::Error::Protocol(
                "the server's answer is of another kind".to_string(),
            )),
        }
    };
}
pub(crate) use only;
