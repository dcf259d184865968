//! The members of consumer groups, as simply as their rules can be written. Who owns what is left to the
//! model of the groups themselves.

use std::{string::String, vec::Vec};

use coordinator::{GroupSnapshot, GroupsSnapshot, check_instance};
use wire::{ErrorCode, EvictionReason, Identifier};

use super::model::{legal, matches, within};
use crate::Limits;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    next: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) id: u64,
    name: String,
    pub(super) members: Vec<Member>,
    next_member: u64,
    empty_since: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    id: u64,
    pub(super) client: u128,
    session: u64,
    instance: Option<String>,
    weight: u16,
    pub(super) detached: bool,
    displaced: Option<(u128, u64)>,
}

/// A session that wants to be a member.
pub(super) struct Candidate<'a> {
    pub(super) client: u128,
    pub(super) session: u64,
    pub(super) instance: Option<&'a String>,
    pub(super) weight: u16,
}

impl Groups {
    pub(super) fn new() -> Self {
        Self {
            groups: Vec::new(),
            next: 1,
        }
    }

    pub(super) fn of(snapshot: &GroupsSnapshot) -> Self {
        Self {
            groups: snapshot.groups.iter().map(Group::of).collect(),
            next: snapshot.next_group.0,
        }
    }

    pub(super) fn index(&self, group: &Identifier) -> Result<usize, ErrorCode> {
        let found = self
            .groups
            .iter()
            .position(|it| matches(group, it.id, &it.name));
        found.ok_or(ErrorCode::ConsumerGroupNotFound)
    }

    pub(super) fn create(
        &mut self,
        now: u64,
        name: &str,
        sane: bool,
        limits: &Limits,
    ) -> Result<(), ErrorCode> {
        legal(name)?;
        if self.groups.iter().any(|group| group.name == name) {
            return Err(ErrorCode::ConsumerGroupAlreadyExists);
        }
        if !sane {
            return Err(ErrorCode::InvalidConsumerGroupOptions);
        }
        let code = ErrorCode::TooManyConsumerGroups;
        within(
            self.groups.len() + 1,
            limits.consumer_groups_per_topic,
            code,
        )?;
        self.groups.push(Group {
            id: self.next,
            name: name.into(),
            members: Vec::new(),
            next_member: 1,
            empty_since: Some(now),
        });
        self.next += 1;
        Ok(())
    }

    pub(super) fn delete(&mut self, group: &Identifier, force: bool) -> Result<(), ErrorCode> {
        let index = self.index(group)?;
        if !force && !self.groups[index].members.is_empty() {
            return Err(ErrorCode::ConsumerGroupNotEmpty);
        }
        self.groups.remove(index);
        Ok(())
    }

    pub(super) fn expire(&mut self, id: u64, empty_since: u64) {
        let expired = |group: &Group| group.id == id && group.empty_since == Some(empty_since);
        self.groups.retain(|group| !expired(group));
    }
}

impl Group {
    fn of(snapshot: &GroupSnapshot) -> Self {
        let member = |member: &coordinator::MemberSnapshot| Member {
            id: member.id.0,
            client: member.client.0,
            session: member.session.0,
            instance: member.instance.clone(),
            weight: member.weight.0,
            detached: member.detached,
            displaced: member.displaced.map(|old| (old.client.0, old.session.0)),
        };
        Self {
            id: snapshot.id.0,
            name: snapshot.name.clone(),
            members: snapshot.members.iter().map(member).collect(),
            next_member: snapshot.next_member.0,
            empty_since: snapshot.empty_since.map(|since| since.0),
        }
    }

    pub(super) fn has(&self, client: u128) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.client == client && !member.detached)
    }

    pub(super) fn join(
        &mut self,
        candidate: &Candidate<'_>,
        members_max: u32,
    ) -> Result<(), ErrorCode> {
        let Candidate {
            client,
            session,
            instance,
            weight,
        } = *candidate;
        if instance.is_some_and(|instance| check_instance(instance).is_err()) {
            return Err(ErrorCode::InvalidName);
        }
        let mut members = self.members.iter();
        if let Some(own) = members.find(|it| it.client == client && !it.detached) {
            let same = own.instance.as_ref() == instance && own.weight == weight;
            return same.then_some(()).ok_or(ErrorCode::InvalidArgument);
        }
        let holder = |it: &Member| instance.is_some() && it.instance.as_ref() == instance;
        let held = self.members.iter().position(holder);
        if let Some(at) = held {
            if !self.members[at].detached && self.members[at].session >= session {
                return Err(ErrorCode::FencedInstanceId);
            }
        } else {
            let code = ErrorCode::ConsumerGroupFull;
            within(self.members.len() + 1, members_max, code)?;
        }
        for member in &mut self.members {
            member.displaced = member.displaced.filter(|(old, _)| *old != client);
        }
        let joined = |id, displaced| Member {
            id,
            client,
            session,
            instance: instance.cloned(),
            weight,
            detached: false,
            displaced,
        };
        match held {
            Some(at) => {
                let old = &self.members[at];
                let displaced = (!old.detached).then_some((old.client, old.session));
                self.members[at] = joined(old.id, displaced);
            }
            None => {
                self.members.push(joined(self.next_member, None));
                self.next_member += 1;
            }
        }
        self.empty_since = None;
        Ok(())
    }

    pub(super) fn leave(&mut self, now: u64, client: u128, session: u64) -> Result<(), ErrorCode> {
        let seated = |it: &Member| (it.client, it.session) == (client, session) && !it.detached;
        if self.members.iter().any(seated) {
            self.retain(now, |it| !seated(it));
            return Ok(());
        }
        let fenced = |it: &Member| it.displaced == Some((client, session));
        Err(if self.members.iter().any(fenced) {
            ErrorCode::FencedInstanceId
        } else {
            ErrorCode::ConsumerGroupMemberNotFound
        })
    }

    pub(super) fn remove(&mut self, now: u64, id: u64) -> Result<(), ErrorCode> {
        if self.members.iter().all(|member| member.id != id) {
            return Err(ErrorCode::ConsumerGroupMemberNotFound);
        }
        self.retain(now, |member| member.id != id);
        Ok(())
    }

    pub(super) fn expire(&mut self, now: u64, gone: &[(u64, u64)]) {
        self.retain(now, |it| !gone.contains(&(it.id, it.session)));
    }

    pub(super) fn session_ended(
        &mut self,
        now: u64,
        (client, session): (u128, u64),
        reason: EvictionReason,
    ) {
        use EvictionReason as R;
        let comes_back = [R::Disconnected, R::Replaced, R::TableFull].contains(&reason);
        let ended = |it: &Member| (it.client, it.session) == (client, session) && !it.detached;
        let stays = |it: &Member| comes_back && it.instance.is_some();
        self.retain(now, |it| !ended(it) || stays(it));
        for member in &mut self.members {
            member.detached |= ended(member);
        }
    }

    fn retain(&mut self, now: u64, keep: impl FnMut(&Member) -> bool) {
        let before = self.members.len();
        self.members.retain(keep);
        if before > 0 && self.members.is_empty() {
            self.empty_since = Some(now);
        }
    }
}
