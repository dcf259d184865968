//! Questions about the catalog, answered as the wire wants them.

use alloc::vec::Vec;

use wire::{
    Failure, GetStreams, GetTopics, GetUsers, Identifier, StreamDetails, Streams, TopicDetails,
    Topics, UserDetails, UserId, Users,
};

use crate::{Catalog, Stream, User};

/// The most entries of one page of a list.
pub const PAGE_MAX: u32 = 1_000;

impl Catalog {
    /// A stream.
    ///
    /// # Errors
    /// `StreamNotFound`.
    pub fn stream_details(&self, stream: &Identifier) -> Result<StreamDetails, Failure> {
        self.find_stream(stream).map(Stream::details)
    }

    /// A page of streams, in order of ids.
    #[must_use]
    pub fn streams_page(&self, page: &GetStreams) -> Streams {
        let found = self.streams.iter_after(page.after);
        let (streams, more) = take_page(found.map(|(_, stream)| stream.details()), page.limit);
        Streams { streams, more }
    }

    /// A topic with its partitions; their starts and ends are known to the data groups only.
    ///
    /// # Errors
    /// `StreamNotFound`, `TopicNotFound`.
    pub fn topic_details(
        &self,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Result<TopicDetails, Failure> {
        let (stream, topic) = self.find_topic(stream, topic)?;
        Ok(topic.details(stream.id))
    }

    /// A page of a stream's topics, in order of ids.
    ///
    /// # Errors
    /// `StreamNotFound`.
    pub fn topics_page(&self, page: &GetTopics) -> Result<Topics, Failure> {
        let found = self
            .find_stream(&page.stream)?
            .topics
            .iter_after(page.after);
        let (topics, more) = take_page(found.map(|(_, topic)| topic.summary()), page.limit);
        Ok(Topics { topics, more })
    }

    /// A user, for `root` and for itself.
    ///
    /// # Errors
    /// `Forbidden`, `UserNotFound`; `Unauthenticated` or `UserInactive` when `by` may not ask any more.
    pub fn user_details(&self, by: UserId, user: &Identifier) -> Result<UserDetails, Failure> {
        self.require_self_or_root(by, user, "see other users")
            .map(User::details)
    }

    /// A page of users, in order of ids, for `root`.
    ///
    /// # Errors
    /// `Forbidden`; `Unauthenticated` or `UserInactive` when `by` may not ask any more.
    pub fn users_page(&self, by: UserId, page: &GetUsers) -> Result<Users, Failure> {
        self.require_root(by, "list users")?;
        let found = self.users.iter_after(page.after);
        let (users, more) = take_page(found.map(|(_, user)| user.details()), page.limit);
        Ok(Users { users, more })
    }
}

/// Up to `limit` of the entries and whether there are more; 0 asks for as many as a page has.
pub(crate) fn take_page<T>(mut entries: impl Iterator<Item = T>, limit: u32) -> (Vec<T>, bool) {
    let limit = match limit {
        0 => PAGE_MAX,
        limit => limit.min(PAGE_MAX),
    };
    let limit = usize::try_from(limit).expect("a u32 fits a usize");
    let page = entries.by_ref().take(limit).collect();
    (page, entries.next().is_some())
}
