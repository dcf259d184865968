//! One operation in full, and what it does to a group and to the model of one.

use std::vec::Vec;

use wire::{ClientId, Epoch, MemberId, Op, PartitionId, SessionNumber};

use crate::{
    At, ConsumerGroup, GroupChange, Join, JoinRefused, MembershipRefused, OptionsUpdate, Reset,
    ResetRefused, ResetTo, Weight,
    group::index,
    tests::model::{Model, ModelMember, Now, Verdict},
};

const MEMBERS_MAX: u8 = 8;

/// An operation with all its arguments.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Join(Join),
    Leave(ClientId, SessionNumber),
    Remove(MemberId),
    Expire(Vec<(MemberId, SessionNumber)>),
    EndSessions {
        sessions: Vec<(ClientId, SessionNumber)>,
        keep_static: bool,
    },
    Plan(Op),
    Create(u32),
    Delete(u32),
    Purge(Vec<PartitionId>),
    Reset(Reset),
    Update(OptionsUpdate),
    Complete(Vec<(PartitionId, Epoch)>),
}

fn joined(refused: &JoinRefused) -> &'static str {
    match refused {
        JoinRefused::InvalidInstance { .. } => "instance",
        JoinRefused::Fenced(_) => "fenced",
        JoinRefused::Full { .. } => "full",
        JoinRefused::JoinedOtherwise { .. } => "otherwise",
        JoinRefused::SessionEnded { .. } => "session ended",
    }
}

fn seated(refused: &MembershipRefused) -> &'static str {
    match refused {
        MembershipRefused::NotMember { .. } => "not a member",
        MembershipRefused::Fenced(_) => "fenced",
    }
}

fn reset(refused: &ResetRefused) -> &'static str {
    match refused {
        ResetRefused::NotEmpty(_) => "members",
        ResetRefused::PartitionNotFound { .. } => "partition",
        ResetRefused::NamedTwice { .. } => "twice",
    }
}

impl Operation {
    /// The change, with the member of a join; or why it is refused.
    pub(super) fn apply(
        &self,
        group: &mut ConsumerGroup,
        at: At,
    ) -> Result<(Option<u64>, GroupChange), &'static str> {
        let change = match self {
            Self::Join(join) => {
                let outcome = group.join(at, join.clone(), MEMBERS_MAX.into());
                let (member, change) = outcome.map_err(|refused| joined(&refused))?;
                return Ok((Some(member.member.0), change));
            }
            Self::Leave(client, session) => group
                .leave(at, *client, *session)
                .map_err(|refused| seated(&refused))?,
            Self::Remove(member) => group.remove(at, *member).map_err(|_| "not a member")?,
            Self::Expire(members) => group.expire(at, members),
            Self::EndSessions {
                sessions,
                keep_static,
            } => group.end_sessions(at, sessions, *keep_static),
            Self::Plan(pending) => group.plan(at, *pending),
            Self::Create(count) => group.partitions_created(at, *count),
            Self::Delete(count) => group.partitions_deleted(at, *count),
            Self::Purge(partitions) => group.purge(at, partitions),
            Self::Reset(to) => group.reset(at, to).map_err(|refused| reset(&refused))?,
            Self::Update(update) => group.update(at, update).map_err(|_| "options")?,
            Self::Complete(moves) => group.complete(at, moves),
        };
        Ok((None, change))
    }

    /// The same by the model's rules.
    pub(super) fn apply_to_model(&self, model: &mut Model, now: Now) -> Verdict {
        match self {
            Self::Join(join) => return model.join(now, &modelled(join), MEMBERS_MAX.into()),
            Self::Leave(client, session) => {
                let id = model.seat(client.0, session.0)?;
                model.remove(now, &[id]);
            }
            Self::Remove(member) => {
                if !model.members.contains_key(&member.0) {
                    return Err("not a member");
                }
                model.remove(now, &[member.0]);
            }
            Self::Expire(members) => {
                let due = |id: u64, session: u64| {
                    let member = model.members.get(&id);
                    member.is_some_and(|member| member.session == session)
                };
                let due: Vec<u64> = members
                    .iter()
                    .filter(|(id, session)| due(id.0, session.0))
                    .map(|(id, _)| id.0)
                    .collect();
                model.remove(now, &due);
            }
            Self::EndSessions {
                sessions,
                keep_static,
            } => end_sessions(model, now, sessions, *keep_static),
            Self::Plan(pending) => model.plan_now(now, pending.0),
            Self::Create(count) => model.resize(now, model.partitions.len() + wide(*count)),
            Self::Delete(count) => model.resize(now, model.partitions.len() - wide(*count)),
            Self::Purge(partitions) => {
                for partition in partitions {
                    model.restart(now, index(*partition), None);
                }
            }
            Self::Reset(reset) => return reset_model(model, now, reset),
            Self::Update(update) => {
                let delay = update.initial_delay_ms;
                model.initial_delay = delay.map_or(model.initial_delay, |delay| delay > 0);
            }
            Self::Complete(moves) => {
                for (partition, epoch) in moves {
                    model.complete(index(*partition), epoch.0);
                }
            }
        }
        Ok(None)
    }
}

fn wide(count: u32) -> usize {
    index(PartitionId(count))
}

fn modelled(join: &Join) -> ModelMember {
    let Join {
        client,
        session,
        instance,
        weight: Weight(weight),
        address: _,
    } = join;
    ModelMember {
        client: client.0,
        session: session.0,
        instance: instance.clone(),
        weight: *weight,
        detached: false,
        displaced: None,
    }
}

fn end_sessions(
    model: &mut Model,
    now: Now,
    sessions: &[(ClientId, SessionNumber)],
    keep_static: bool,
) {
    let mut leaving = Vec::new();
    for (client, session) in sessions {
        let Ok(id) = model.seat(client.0, session.0) else {
            continue;
        };
        let member = model.members.get_mut(&id).unwrap();
        if keep_static && member.instance.is_some() {
            member.detached = true;
        } else {
            leaving.push(id);
        }
    }
    model.remove(now, &leaving);
}

fn reset_model(model: &mut Model, now: Now, reset: &Reset) -> Verdict {
    let Reset { partitions, force } = reset;
    if !force && !model.members.is_empty() {
        return Err("members");
    }
    let exists =
        |(partition, _): &(PartitionId, ResetTo)| index(*partition) < model.partitions.len();
    if !partitions.iter().all(exists) {
        return Err("partition");
    }
    for (partition, to) in partitions {
        model.restart(now, index(*partition), Some(*to));
    }
    Ok(None)
}
