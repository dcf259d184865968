//! The state, and what is true of it as a whole.

use alloc::collections::BTreeMap;

use coordinator::ConsumerGroups;
use wire::{ClientId, Op, StreamId, UserId, Writer, checksum128};

use crate::{
    Limits, Operation, Session, Stream, Topic, User, consumer_group::Memberships,
    directory::Directory, placement::Load,
};

/// What a catalog is told when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogConfig {
    /// Data groups of the cluster, G: fixed when it was formatted, equal on all replicas.
    pub data_groups: u16,
    /// The limits that this node is configured with. They come into force by an op only, see
    /// [`Catalog::limits_to_set`].
    pub limits: Limits,
}

/// The state of the metadata group after some op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    pub(crate) config: CatalogConfig,
    /// The last op applied.
    pub(crate) applied: Op,
    /// The limits in force.
    pub(crate) limits: Limits,
    pub(crate) users: Directory<UserId, User>,
    /// Above the id of every user that there has ever been, and of `root`.
    pub(crate) next_user: UserId,
    pub(crate) sessions: BTreeMap<ClientId, Session>,
    pub(crate) streams: Directory<StreamId, Stream>,
    /// Above the id of every stream that there has ever been.
    pub(crate) next_stream: StreamId,
    /// Follows from the placements in `streams`.
    pub(crate) load: Load,
    /// Follows from the consumer groups in `streams`.
    pub(crate) memberships: Memberships,
}

impl Catalog {
    /// The state before the first op: nothing exists, not even `root`.
    ///
    /// # Panics
    /// When there are no data groups.
    #[must_use]
    pub fn new(config: CatalogConfig) -> Self {
        Self {
            config,
            applied: Op(0),
            limits: Limits::INITIAL,
            users: Directory::default(),
            next_user: UserId(UserId::ROOT.0 + 1),
            sessions: BTreeMap::new(),
            streams: Directory::default(),
            next_stream: StreamId(1),
            load: Load::new(config.data_groups),
            memberships: Memberships::default(),
        }
    }

    /// The last op applied.
    #[must_use]
    pub const fn applied(&self) -> Op {
        self.applied
    }

    /// The limits in force.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What a primary proposes when it begins to serve: its configured limits, unless they are in force.
    #[must_use]
    pub fn limits_to_set(&self) -> Option<Operation> {
        let limits = self.config.limits;
        (limits != self.limits).then_some(Operation::SetLimits { limits })
    }

    /// Partitions in each data group, the first being group 1.
    pub fn partitions_per_group(&self) -> impl ExactSizeIterator<Item = u32> {
        self.load.counts()
    }

    /// Every topic with its stream, in order of ids.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (StreamId, &Topic)> {
        let streams = self.streams.iter();
        streams.flat_map(|(stream, it)| it.topics.iter().map(move |(_, topic)| (stream, topic)))
    }

    /// XXH3-128 of the state in a canonical form: replicas with equal states have equal digests. The
    /// configuration is not part of it.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let Self {
            config: _,
            applied,
            limits,
            users,
            next_user,
            sessions,
            streams,
            next_stream,
            load: _,
            memberships: _,
        } = self;
        let mut writer = Writer::new();
        writer.u64(applied.0);
        let former = limits.former();
        former.write_canonical(&mut writer);
        writer.u64(next_user.0).count(users.len());
        for (_, user) in users.iter() {
            user.write_canonical(&mut writer);
        }
        writer.count(sessions.len());
        for session in sessions.values() {
            session.write_canonical(&mut writer);
        }
        writer.u64(next_stream.0).count(streams.len());
        for (_, stream) in streams.iter() {
            stream.write_canonical(&mut writer);
        }
        // A version without consumer groups writes what is above, so this comes last, and not at all
        // where there have been none: only then is the digest the same on both.
        if *limits != Limits::from(former) {
            writer.u8(1);
            limits.write_canonical(&mut writer);
        }
        for (stream, topic) in self.topics() {
            if topic.groups != ConsumerGroups::default() {
                writer.u8(2).u64(stream.0).u64(topic.id.0);
                topic.groups.write_canonical(&mut writer);
            }
        }
        checksum128(&writer.into_bytes())
    }
}
