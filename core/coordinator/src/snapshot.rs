//! The consumer groups of a topic as a snapshot holds them.
//!
//! The shell encodes these types as positional arrays. A field is never removed or moved; a new one goes
//! to the end of its struct, with `serde(default)`, so that every snapshot ever written stays readable.
//! The same holds for the types of other files that stand in here as they are.

use alloc::{format, string::String, vec::Vec};

use wire::{
    ClientId, ConsumerGroupId, Epoch, Generation, MemberId, Offset, Op, SessionNumber, Timestamp,
};

use crate::{
    ConsumerGroup, ConsumerGroups, Displaced, Holding, Member, MemberState, OptionsSnapshot,
    Ownership, ResetTo, StartPolicy, Weight, check_instance,
    member::{Members, Slot},
};

/// The layout that this version writes. It rises only with a change that a default cannot bridge.
const VERSION: u32 = 1;

/// All groups of a topic. Every list is in order of ids.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupsSnapshot {
    /// Of the layout.
    pub version: u32,
    /// The id of the next group.
    pub next_group: ConsumerGroupId,
    /// Groups.
    pub groups: Vec<GroupSnapshot>,
}

/// A topic whose snapshot says nothing of groups has had none.
impl Default for GroupsSnapshot {
    fn default() -> Self {
        Self {
            version: VERSION,
            next_group: ConsumerGroupId(1),
            groups: Vec::new(),
        }
    }
}

/// A [`ConsumerGroup`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupSnapshot {
    /// Its id.
    pub id: ConsumerGroupId,
    /// Its name.
    pub name: String,
    /// The op that created it.
    pub created: Op,
    /// Its options.
    pub options: OptionsSnapshot,
    /// Its generation.
    pub generation: Generation,
    /// The join that the first plan is pending since.
    pub plan_pending: Option<Op>,
    /// Since when it has had no members.
    pub empty_since: Option<Timestamp>,
    /// The id of the next member.
    pub next_member: MemberId,
    /// Members.
    pub members: Vec<MemberSnapshot>,
    /// Every partition.
    pub ownership: Vec<OwnershipSnapshot>,
}

/// A [`Member`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MemberSnapshot {
    /// Its id.
    pub id: MemberId,
    /// Its client.
    pub client: ClientId,
    /// Its session.
    pub session: SessionNumber,
    /// Its instance id.
    pub instance: Option<String>,
    /// Its weight.
    pub weight: Weight,
    /// Whether its session has ended.
    pub detached: bool,
    /// When it joined.
    pub joined: Timestamp,
    /// From whom its session took it over.
    pub displaced: Option<Displaced>,
    /// Where its session joined from.
    pub address: String,
}

/// An [`Ownership`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OwnershipSnapshot {
    /// The epoch of the last grant.
    pub epoch: Epoch,
    /// The owner, and the epoch at which its unbroken ownership began.
    pub owner: Option<(MemberId, Epoch)>,
    /// Where it goes.
    pub moving: Option<MoveSnapshot>,
}

/// A [`Move`](crate::Move).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MoveSnapshot {
    /// The target.
    pub to: Option<MemberId>,
    /// The epoch there.
    pub epoch: Epoch,
    /// When it began.
    pub since: Timestamp,
    /// What the fence sets the stored offset to.
    pub reset: Option<ResetSnapshot>,
}

/// A [`ResetTo`]: an offset, a start, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ResetSnapshot {
    /// The offset.
    pub offset: Option<Offset>,
    /// The start: 0 earliest, 1 latest, 2 by time; and the time, else 0.
    pub start: Option<(u8, Timestamp)>,
}

/// Why a snapshot is not one of a topic's groups.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A later version wrote it.
    #[error(
        "consumer groups of version {version}, above {VERSION}, the highest that this version reads"
    )]
    Version {
        /// What it says.
        version: u32,
    },
    /// What it holds contradicts itself, or the topic.
    #[error("the consumer groups contradict themselves or their topic: {what}")]
    Inconsistent {
        /// The thing and the value.
        what: String,
    },
}

/// What the groups of a snapshot have to agree with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreContext {
    /// The last op in the snapshot.
    pub applied: Op,
    /// Partitions of the topic.
    pub partitions: u32,
}

impl ConsumerGroups {
    /// The groups as they are.
    #[must_use]
    pub fn snapshot(&self) -> GroupsSnapshot {
        GroupsSnapshot {
            version: VERSION,
            next_group: self.next_id(),
            groups: self.iter().map(ConsumerGroup::snapshot).collect(),
        }
    }

    /// The groups that a snapshot holds.
    ///
    /// # Errors
    /// A later version wrote it, or it holds what no topic like this can have.
    pub fn restore(
        context: RestoreContext,
        snapshot: GroupsSnapshot,
    ) -> Result<Self, RestoreError> {
        if snapshot.version > VERSION {
            let version = snapshot.version;
            return Err(RestoreError::Version { version });
        }
        let mut groups = Self::with_next_id(snapshot.next_group);
        for snapshot in snapshot.groups {
            let group = ConsumerGroup::restore(context, snapshot)?;
            let (id, name) = (group.id, group.name.clone());
            consistent(id.0 >= 1 && id < groups.next_id(), || {
                format!("group id {id} with next id {}", groups.next_id())
            })?;
            consistent(groups.restore_group(group), || {
                format!("group id {id} or name {name:?} is there twice")
            })?;
        }
        Ok(groups)
    }
}

impl ConsumerGroup {
    /// The group as it is.
    #[must_use]
    pub fn snapshot(&self) -> GroupSnapshot {
        GroupSnapshot {
            id: self.id,
            name: self.name.clone(),
            created: self.created,
            options: (&self.options).into(),
            generation: self.generation,
            plan_pending: self.plan_pending,
            empty_since: self.empty_since,
            next_member: self.next_member,
            members: self.members().map(MemberSnapshot::from).collect(),
            ownership: self.ownerships().map(OwnershipSnapshot::from).collect(),
        }
    }

    fn restore(context: RestoreContext, snapshot: GroupSnapshot) -> Result<Self, RestoreError> {
        let name = &snapshot.name;
        let in_group = |what: String| format!("group {name:?}: {what}");
        let options = snapshot.options.restore();
        consistent(options.is_some(), || {
            in_group(format!("start policy {}", snapshot.options.start))
        })?;
        consistent(snapshot.created <= context.applied, || {
            in_group(format!("created by op {}", snapshot.created))
        })?;
        consistent(
            snapshot.members.is_empty() == snapshot.empty_since.is_some()
                && (snapshot.plan_pending.is_none() || !snapshot.members.is_empty()),
            || in_group(format!("{} members", snapshot.members.len())),
        )?;
        let mut members = Members::default();
        for member in snapshot.members {
            let id = member.id;
            let put = id < snapshot.next_member && restore_member(&mut members, member);
            consistent(put, || in_group(format!("member {id}")))?;
        }
        let found = snapshot.ownership.len();
        consistent(u32::try_from(found) == Ok(context.partitions), || {
            in_group(format!("{found} partitions of {}", context.partitions))
        })?;
        let pending = snapshot.plan_pending.is_some();
        let mut ownership = Vec::with_capacity(found);
        for (partition, entry) in snapshot.ownership.iter().enumerate() {
            let restored = entry.restore(&members).filter(|restored| {
                restored.is_consistent()
                    && restored.epoch_max().0 <= context.applied.0
                    && !(pending && restored.heir().is_some())
            });
            consistent(restored.is_some(), || {
                in_group(format!("partition {partition}: {entry:?}"))
            })?;
            ownership.extend(restored);
        }
        let group = Self {
            id: snapshot.id,
            created: snapshot.created,
            options: options.unwrap_or_default(),
            generation: snapshot.generation,
            plan_pending: snapshot.plan_pending,
            empty_since: snapshot.empty_since,
            next_member: snapshot.next_member,
            members,
            ownership,
            name: snapshot.name,
        };
        Ok(group)
    }
}

/// Whether the member fits in with those that are there.
fn restore_member(members: &mut Members, snapshot: MemberSnapshot) -> bool {
    let member = Member::from(snapshot);
    let instance = member.instance.as_deref();
    let legal = instance.is_none_or(|instance| check_instance(instance).is_ok());
    let fits = legal
        && member.id >= MemberId(1)
        && (member.is_active() || instance.is_some())
        && members.slot(member.id).is_none()
        && members.has_room(&member);
    if fits {
        members.put(member);
    }
    fits
}

impl OwnershipSnapshot {
    /// `None` when it names somebody who is not a member, or is in no state that there is.
    fn restore(&self, members: &Members) -> Option<Ownership<Slot>> {
        let slot = |member: MemberId| members.slot(member);
        let moving = self.moving;
        let reset = moving.and_then(|moving| moving.reset);
        let holding = match (self.owner, moving) {
            (None, None) => Holding::Nobody,
            (Some((owner, held_since)), None) => Holding::Owned {
                owner: slot(owner)?,
                held_since,
            },
            (Some((owner, held_since)), Some(moving)) if reset.is_none() => Holding::Revoking {
                owner: slot(owner)?,
                held_since,
                to: slot(moving.to?)?,
                epoch: moving.epoch,
                since: moving.since,
            },
            (Some(_), Some(_)) => return None,
            (None, Some(moving)) => Holding::Fencing {
                to: match moving.to {
                    Some(to) => Some(slot(to)?),
                    None => None,
                },
                epoch: moving.epoch,
                since: moving.since,
                reset: match reset {
                    Some(reset) => Some(reset.restore()?),
                    None => None,
                },
            },
        };
        Some(Ownership {
            epoch: self.epoch,
            holding,
        })
    }
}

fn consistent(holds: bool, what: impl FnOnce() -> String) -> Result<(), RestoreError> {
    if holds {
        Ok(())
    } else {
        Err(RestoreError::Inconsistent { what: what() })
    }
}

impl From<&Member> for MemberSnapshot {
    fn from(member: &Member) -> Self {
        let Member {
            id,
            client,
            session,
            instance,
            weight,
            state,
            joined,
            displaced,
            address,
        } = member.clone();
        Self {
            id,
            client,
            session,
            instance,
            weight,
            detached: state == MemberState::Detached,
            joined,
            displaced,
            address,
        }
    }
}

impl From<MemberSnapshot> for Member {
    fn from(snapshot: MemberSnapshot) -> Self {
        let MemberSnapshot {
            id,
            client,
            session,
            instance,
            weight,
            detached,
            joined,
            displaced,
            address,
        } = snapshot;
        Self {
            id,
            client,
            session,
            instance,
            weight,
            state: if detached {
                MemberState::Detached
            } else {
                MemberState::Active
            },
            joined,
            displaced,
            address,
        }
    }
}

impl From<Ownership> for OwnershipSnapshot {
    fn from(ownership: Ownership) -> Self {
        let moving = ownership.moving().map(|moving| MoveSnapshot {
            to: moving.to,
            epoch: moving.epoch,
            since: moving.since,
            reset: moving.reset.map(ResetSnapshot::from),
        });
        Self {
            epoch: ownership.epoch,
            owner: ownership.owner().zip(ownership.held_since()),
            moving,
        }
    }
}

impl From<ResetTo> for ResetSnapshot {
    fn from(reset: ResetTo) -> Self {
        let (offset, start) = match reset {
            ResetTo::Nothing => (None, None),
            ResetTo::Offset(offset) => (Some(offset), None),
            ResetTo::Start(start) => (None, Some(start.parts())),
        };
        Self { offset, start }
    }
}

impl ResetSnapshot {
    /// `None` when it is in no form that there is.
    fn restore(self) -> Option<ResetTo> {
        match (self.offset, self.start) {
            (None, None) => Some(ResetTo::Nothing),
            (Some(offset), None) => Some(ResetTo::Offset(offset)),
            (None, Some((kind, timestamp))) => {
                StartPolicy::from_parts(kind, timestamp).map(ResetTo::Start)
            }
            (Some(_), Some(_)) => None,
        }
    }
}
