//! The members of a group.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::num::NonZeroU32;

use crate::{FencedInstance, GroupName, MembershipRefused};
use wire::{ClientId, MemberId, NameProblem, SessionNumber, Timestamp, Writer, check_name};

/// How large a share of the partitions a member takes, compared with the others. 0: none while anybody
/// else has a weight, so it stands by.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Weight(pub u16);

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

/// Whether a member's session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Its session lives.
    Active,
    /// Its session has ended. A static member keeps its partitions for a while, so that its process can
    /// come back with another session.
    Detached,
}

/// One consumer in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id, never used again in the group.
    pub id: MemberId,
    /// The client whose session it is.
    pub client: ClientId,
    /// The session.
    pub session: SessionNumber,
    /// Makes it a static member: a join of another session with the same instance id takes it over.
    pub instance: Option<String>,
    /// Its weight.
    pub weight: Weight,
    /// Whether the session lives.
    pub state: MemberState,
    /// When it joined; a take-over does not change it.
    pub joined: Timestamp,
    /// From whom the session took it over.
    pub displaced: Option<Displaced>,
    /// Where its session joined from, for people.
    pub address: String,
}

/// A session that lived when another one took its membership over: two processes hold, or held, one
/// instance id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Displaced {
    /// Its client.
    pub client: ClientId,
    /// The session.
    pub session: SessionNumber,
    /// When it was taken over.
    pub at: Timestamp,
}

/// A member, as far as somebody needs it who has to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The member.
    pub member: MemberId,
    /// Its client.
    pub client: ClientId,
    /// Its session.
    pub session: SessionNumber,
}

impl Member {
    /// Member, client and session.
    #[must_use]
    pub const fn holder(&self) -> Holder {
        Holder {
            member: self.id,
            client: self.client,
            session: self.session,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state == MemberState::Active
    }

    pub(crate) fn write_canonical(&self, writer: &mut Writer) {
        let Self {
            id,
            client,
            session,
            instance,
            weight,
            state,
            joined,
            displaced,
            address,
        } = self;
        writer.u64(id.0).u128(client.0).u64(session.0);
        writer.text16(instance.as_deref().unwrap_or_default());
        writer.u8(u8::from(instance.is_some()));
        writer.u16(weight.0);
        writer.u8(u8::from(*state == MemberState::Detached));
        writer.u64(joined.0).u8(u8::from(displaced.is_some()));
        if let Some(Displaced {
            client,
            session,
            at,
        }) = displaced
        {
            writer.u128(client.0).u64(session.0).u64(at.0);
        }
        writer.text16(address);
    }
}

/// Checks an instance id: the rules for names, except that it may look like an id, which nothing has that
/// is named by it.
///
/// # Errors
/// The rule that it breaks.
pub fn check_instance(instance: &str) -> Result<(), NameProblem> {
    match check_name(instance) {
        Ok(()) | Err(NameProblem::OnlyDigits | NameProblem::ReadsAsId) => Ok(()),
        Err(problem) => Err(problem),
    }
}

/// The place of a member in [`Members`]: four bytes where an id has eight. It is reused when its member
/// is gone, and means nothing outside one copy of the state: no decision, snapshot or digest may rest on
/// the order of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    /// From 0.
    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0.get() - 1).expect("a u32 fits a usize")
    }

    fn at(index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("members fit a u32"))
    }
}

/// Why a session has no seat.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoSeat<'a> {
    /// It never joined, left, was removed or expired.
    Stranger,
    /// Another session holds its membership now.
    TakenOver(&'a Member),
}

impl NoSeat<'_> {
    /// What the session is told.
    pub(crate) fn refused(self, group: GroupName, session: SessionNumber) -> MembershipRefused {
        match self {
            Self::Stranger => MembershipRefused::NotMember { group, session },
            Self::TakenOver(holder) => FencedInstance::by(holder, group, session).into(),
        }
    }
}

/// The members of a group, each in a slot that it keeps.
///
/// Invariants: the indexes name every member that they should and no other; a client is active in one
/// slot at most, and displaced from one at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    slots: Vec<Option<Member>>,
    free: Vec<Slot>,
    ids: BTreeMap<MemberId, Slot>,
    active: BTreeMap<ClientId, Slot>,
    instances: BTreeMap<String, Slot>,
    displaced: BTreeMap<ClientId, Slot>,
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Above the index of every slot in use.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// In order of ids.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (Slot, &Member)> {
        let occupied = self.ids.values();
        occupied.map(|slot| (*slot, self.occupant(*slot)))
    }

    pub(crate) fn at(&self, slot: Slot) -> Option<&Member> {
        self.slots.get(slot.index())?.as_ref()
    }

    /// # Panics
    /// When nobody is there: ownership names members only.
    pub(crate) fn occupant(&self, slot: Slot) -> &Member {
        self.at(slot).expect("a member is in its slot")
    }

    pub(crate) fn slot(&self, member: MemberId) -> Option<Slot> {
        self.ids.get(&member).copied()
    }

    /// The active member of a client.
    pub(crate) fn of_client(&self, client: ClientId) -> Option<Slot> {
        self.active.get(&client).copied()
    }

    pub(crate) fn of_instance(&self, instance: &str) -> Option<Slot> {
        self.instances.get(instance).copied()
    }

    /// The member of a session.
    pub(crate) fn seat(
        &self,
        client: ClientId,
        session: SessionNumber,
    ) -> Result<Slot, NoSeat<'_>> {
        if let Some(slot) = self.of_client(client)
            && self.occupant(slot).session == session
        {
            return Ok(slot);
        }
        let taken = self.displaced.get(&client).map(|slot| self.occupant(*slot));
        let old = taken.and_then(|member| member.displaced);
        match taken {
            Some(member) if old.is_some_and(|old| old.session == session) => {
                Err(NoSeat::TakenOver(member))
            }
            Some(_) | None => Err(NoSeat::Stranger),
        }
    }

    /// The member that was taken over from a client, whichever session.
    pub(crate) fn displaced_from(&self, client: ClientId) -> Option<Slot> {
        self.displaced.get(&client).copied()
    }

    /// Whether a member with these names can be put in, a new one or in its own place.
    pub(crate) fn has_room(&self, member: &Member) -> bool {
        let own = self.slot(member.id);
        let free = |taken: Option<Slot>| taken.is_none() || taken == own;
        let instance = member.instance.as_deref();
        let client_free = !member.is_active() || free(self.of_client(member.client));
        let displaced = member.displaced.map(|old| old.client);
        client_free
            && free(instance.and_then(|instance| self.of_instance(instance)))
            && free(displaced.and_then(|client| self.displaced.get(&client).copied()))
    }

    /// Puts a member in, in its own place if it is there already.
    ///
    /// # Panics
    /// When another member has its client, instance id or displaced client.
    pub(crate) fn put(&mut self, member: Member) -> Slot {
        assert!(self.has_room(&member), "no two members share a name");
        let slot = match self.slot(member.id) {
            Some(slot) => {
                self.unindex(slot);
                slot
            }
            None => self.free_slot(),
        };
        self.ids.insert(member.id, slot);
        if member.is_active() {
            self.active.insert(member.client, slot);
        }
        if let Some(instance) = &member.instance {
            self.instances.insert(instance.clone(), slot);
        }
        if let Some(displaced) = &member.displaced {
            self.displaced.insert(displaced.client, slot);
        }
        self.slots[slot.index()] = Some(member);
        slot
    }

    /// # Panics
    /// When nobody is there.
    pub(crate) fn remove(&mut self, slot: Slot) -> Member {
        self.unindex(slot);
        let member = self.slots[slot.index()].take();
        let member = member.expect("a member is in its slot");
        self.ids.remove(&member.id);
        self.free.push(slot);
        if self.is_empty() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
        member
    }

    fn free_slot(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot::at(self.slots.len() - 1)
        })
    }

    fn unindex(&mut self, slot: Slot) {
        let member = self.slots[slot.index()].as_ref();
        let member = member.expect("a member is in its slot");
        if member.is_active() {
            let indexed = self.active.remove(&member.client);
            assert!(indexed == Some(slot), "the index by client is out of step");
        }
        if let Some(instance) = &member.instance {
            let indexed = self.instances.remove(instance);
            assert!(
                indexed == Some(slot),
                "the index by instance is out of step"
            );
        }
        if let Some(displaced) = &member.displaced {
            let indexed = self.displaced.remove(&displaced.client);
            assert!(
                indexed == Some(slot),
                "the index of the displaced is out of step"
            );
        }
    }
}
