//! Who comes and who goes.

use alloc::{string::String, vec::Vec};

use wire::{ClientId, Generation, MemberId, Op, SessionNumber};

use super::{ConsumerGroup, Step};
use crate::{
    At, Displaced, FencedInstance, GroupChange, JoinRefused, Member, MemberChange, MemberNotFound,
    MemberState, MembershipRefused, Weight, check_instance, member::Slot,
};

/// A session that wants to be a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Its client.
    pub client: ClientId,
    /// The session. Live: whoever applies the op has looked.
    pub session: SessionNumber,
    /// Makes it a static member, which another session can take over.
    pub instance: Option<String>,
    /// Its weight.
    pub weight: Weight,
    /// Where it joins from, for people.
    pub address: String,
}

/// A membership, new or as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The member.
    pub member: MemberId,
    /// The group's generation.
    pub generation: Generation,
    /// The join that began the wait for more members, while the first plan is pending.
    pub plan_pending: Option<Op>,
}

/// What a join comes to.
enum Place {
    /// The session is this member.
    Own(Slot),
    /// The session takes this member over.
    TakeOver(Slot),
    /// The session becomes another member.
    New,
}

/// How members go: [`MemberChange::Left`] or [`MemberChange::Gone`].
type Departure = fn(Member) -> MemberChange;

impl ConsumerGroup {
    /// Makes a session a member. Joining again answers the same membership. With the instance id of a
    /// member, a session takes that member over: it stays, with all that it holds, but each of its
    /// partitions passes a fence, so that nothing of the old session comes after the new one's start.
    ///
    /// # Errors
    /// The instance id is not one or is held by a newer session; the group is full; the session is a
    /// member otherwise; the client has joined with a newer session.
    pub fn join(
        &mut self,
        at: At,
        join: Join,
        members_max: u32,
    ) -> Result<(Joined, GroupChange), JoinRefused> {
        let mut step = Step::new(at);
        let slot = match self.place_of(&join)? {
            Place::Own(slot) => slot,
            Place::TakeOver(slot) => self.take_over(&mut step, slot, &join),
            Place::New => self.admit(&mut step, &join, members_max)?,
        };
        let member = self.members.occupant(slot).id;
        let change = self.finish(step);
        let joined = Joined {
            member,
            generation: self.generation,
            plan_pending: self.plan_pending,
        };
        Ok((joined, change))
    }

    fn place_of(&self, join: &Join) -> Result<Place, JoinRefused> {
        if let Some(instance) = &join.instance {
            check_instance(instance).map_err(|problem| JoinRefused::InvalidInstance {
                instance: instance.clone(),
                problem,
            })?;
        }
        if let Some(slot) = self.members.of_client(join.client) {
            let member = self.members.occupant(slot);
            self.check_own_place(join, member)?;
            let same = member.session == join.session;
            return Ok(if same {
                Place::Own(slot)
            } else {
                Place::TakeOver(slot)
            });
        }
        let instance = join.instance.as_deref();
        let Some(slot) = instance.and_then(|instance| self.members.of_instance(instance)) else {
            return Ok(Place::New);
        };
        let holder = self.members.occupant(slot);
        // A late copy of an older join must not fence who came after it. Where no session lives any
        // more, there is nobody to fence.
        if holder.is_active() && holder.session >= join.session {
            let group = self.group_name();
            return Err(FencedInstance::by(holder, group, join.session).into());
        }
        Ok(Place::TakeOver(slot))
    }

    fn check_own_place(&self, join: &Join, member: &Member) -> Result<(), JoinRefused> {
        if member.session > join.session {
            return Err(JoinRefused::SessionEnded {
                group: self.group_name(),
                client: join.client,
                session: join.session,
                member: member.id,
                newer: member.session,
            });
        }
        let same_session = member.session == join.session;
        if member.instance != join.instance || same_session && member.weight != join.weight {
            return Err(JoinRefused::JoinedOtherwise {
                group: self.group_name(),
                session: join.session,
                member: member.id,
            });
        }
        Ok(())
    }

    fn admit(
        &mut self,
        step: &mut Step,
        join: &Join,
        members_max: u32,
    ) -> Result<Slot, JoinRefused> {
        let members = self.members.len();
        if u32::try_from(members).is_ok_and(|members| members >= members_max) {
            return Err(JoinRefused::Full {
                group: self.group_name(),
                members,
                members_max,
            });
        }
        self.forget_displaced(step, join.client);
        if self.empty_since.take().is_some() && self.options.initial_delay_ms > 0 {
            self.plan_pending = Some(step.at.op);
        }
        let id = self.next_member;
        self.next_member = MemberId(id.0 + 1);
        let slot = self.put(
            step,
            Member {
                id,
                client: join.client,
                session: join.session,
                instance: join.instance.clone(),
                weight: join.weight,
                state: MemberState::Active,
                joined: step.at.timestamp,
                displaced: None,
                address: join.address.clone(),
            },
        );
        self.replan(step);
        Ok(slot)
    }

    fn take_over(&mut self, step: &mut Step, slot: Slot, join: &Join) -> Slot {
        let old = self.members.occupant(slot).clone();
        self.forget_displaced(step, join.client);
        let displaced = Displaced {
            client: old.client,
            session: old.session,
            at: step.at.timestamp,
        };
        let lived = old.is_active() && old.client != join.client;
        let same = self.put(
            step,
            Member {
                client: join.client,
                session: join.session,
                weight: join.weight,
                state: MemberState::Active,
                displaced: lived.then_some(displaced),
                address: join.address.clone(),
                ..old
            },
        );
        assert!(same == slot, "a member keeps its slot");
        let at = step.at;
        for entry in 0..self.ownership.len() {
            let ownership = &self.ownership[entry];
            if ownership.owner() == Some(slot) {
                self.touch(step, entry).take_over(at);
            } else if ownership.moving().is_some_and(|it| it.to == Some(slot)) {
                // The fence may have been raised for the old session already: its epoch is not the new one's.
                self.touch(step, entry).assign(at, slot);
            }
        }
        // Changes nothing unless the weight is another one.
        self.replan(step);
        slot
    }

    /// A client that joins is not one of those any more who were replaced.
    fn forget_displaced(&mut self, step: &mut Step, client: ClientId) {
        if let Some(slot) = self.members.displaced_from(client) {
            let mut member = self.members.occupant(slot).clone();
            member.displaced = None;
            self.put(step, member);
        }
    }

    fn put(&mut self, step: &mut Step, member: Member) -> Slot {
        step.members.push(MemberChange::Put(member.clone()));
        self.members.put(member)
    }

    /// Ends a session's membership at its own wish.
    ///
    /// # Errors
    /// The session is not a member, or not any more.
    pub fn leave(
        &mut self,
        at: At,
        client: ClientId,
        session: SessionNumber,
    ) -> Result<GroupChange, MembershipRefused> {
        let slot = self.seat(client, session)?;
        Ok(self.depart(at, [slot], MemberChange::Left))
    }

    /// Ends a membership at somebody else's wish.
    ///
    /// # Errors
    /// There is no such member.
    pub fn remove(&mut self, at: At, member: MemberId) -> Result<GroupChange, MemberNotFound> {
        match self.members.slot(member) {
            Some(slot) => Ok(self.depart(at, [slot], MemberChange::Gone)),
            None => Err(MemberNotFound {
                group: self.group_name(),
                member,
            }),
        }
    }

    /// Ends memberships whose time is over, all in one plan. Skips those that are not there any more or
    /// belong to another session by now: who proposes it judges by what it knew a moment before.
    pub fn expire(&mut self, at: At, members: &[(MemberId, SessionNumber)]) -> GroupChange {
        let slots = members.iter().filter_map(|(member, session)| {
            let slot = self.members.slot(*member)?;
            (self.members.occupant(slot).session == *session).then_some(slot)
        });
        let slots: Vec<Slot> = slots.collect();
        self.depart(at, slots, MemberChange::Gone)
    }

    /// Ends the memberships of sessions that have ended, all in one plan. With `keep_static` the static
    /// members among them stay, without a session, until they expire or are taken over. Sessions without
    /// a membership are skipped.
    pub fn end_sessions(
        &mut self,
        at: At,
        sessions: &[(ClientId, SessionNumber)],
        keep_static: bool,
    ) -> GroupChange {
        let mut step = Step::new(at);
        let mut leaving = Vec::new();
        for (client, session) in sessions {
            let Ok(slot) = self.seat(*client, *session) else {
                continue;
            };
            let member = self.members.occupant(slot);
            if keep_static && member.instance.is_some() {
                let state = MemberState::Detached;
                let member = Member {
                    state,
                    ..member.clone()
                };
                self.put(&mut step, member);
            } else {
                leaving.push(slot);
            }
        }
        self.let_go(&mut step, leaving, MemberChange::Gone);
        self.finish(step)
    }

    fn depart(
        &mut self,
        at: At,
        slots: impl IntoIterator<Item = Slot>,
        how: Departure,
    ) -> GroupChange {
        let mut step = Step::new(at);
        self.let_go(&mut step, slots, how);
        self.finish(step)
    }

    /// Removes members, some of them perhaps named twice, with one plan for all that they leave behind.
    fn let_go(&mut self, step: &mut Step, slots: impl IntoIterator<Item = Slot>, how: Departure) {
        let before = step.members.len();
        for slot in slots {
            if self.members.at(slot).is_some() {
                let member = self.members.remove(slot);
                step.members.push(how(member));
            }
        }
        if step.members.len() == before {
            return;
        }
        for entry in 0..self.ownership.len() {
            let owner = self.ownership[entry].owner();
            if owner.is_some_and(|owner| self.members.at(owner).is_none()) {
                self.touch(step, entry).release();
            }
        }
        if self.members.is_empty() {
            self.plan_pending = None;
            self.empty_since = Some(step.at.timestamp);
        }
        self.replan(step);
    }
}
