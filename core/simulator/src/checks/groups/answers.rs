//! What members are told, held against what was committed: polls, stores, releases, assignments.

use catalog::{Catalog, GroupKey, Observed};
use wire::{
    ConsumerGroupAssignment, ConsumerGroupDetails, Epoch, ErrorCode, Failure, GetConsumerGroup,
    GetConsumerOffset, Identifier, Offset, Offsets, OffsetsStored, Op, PartitionId, PartitionKey,
    PartitionsReleased, PollMessages, PollResult, PollSection, PollStrategy, ReleasePartition,
    ReplicaId, Reply, Request, StoreConsumerOffset, SyncConsumerGroup,
};

use super::{Group, all_groups, record::Reached};
use crate::{
    checks::{
        ledger::Executed,
        messages::{no_internal_error, same_count},
        offsets,
        partition::PartitionModel,
        wire::{Answered, Wrong},
    },
    run::Run,
};

/// Messages that a member was served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) key: GroupKey,
    pub(crate) partition: PartitionId,
    /// The ownership in which it was.
    pub(crate) held_since: Epoch,
    /// The last of them.
    pub(crate) last: u64,
}

/// What a request calls its group.
pub(crate) type Names<'a> = (&'a Identifier, &'a Identifier, &'a Identifier);

impl Answered<'_> {
    /// The group that names may have meant; `None` when they may have meant several, or none.
    pub(crate) fn group_key(&self, (stream, topic, group): Names<'_>) -> Option<GroupKey> {
        use Identifier::Number as N;
        if let (N(stream), N(topic), N(group)) = (stream, topic, group) {
            // Ids are never used again.
            return Some(GroupKey {
                stream: (*stream).into(),
                topic: (*topic).into(),
                group: (*group).into(),
            });
        }
        let seen = Op(self.asked.header.request);
        let mut meant = None;
        for catalog in self.ledger.catalogs_since(seen) {
            // A topic may have got the name of another one, and have no such group.
            let key = find(catalog, (stream, topic, group))?;
            if meant.is_some_and(|meant| meant != key) {
                return None;
            }
            meant = Some(key);
        }
        meant
    }

    fn group(&self, key: &GroupKey) -> Result<&Group, Wrong> {
        let found = self.ledger.groups().groups.get(key);
        found.ok_or_else(|| format!("{key:?} never was"))
    }

    /// Whether a member of a group may be refused so, as a whole or a section.
    fn check_group_refusal(
        &self,
        key: &GroupKey,
        claim: Option<(PartitionId, Epoch)>,
        failure: &Failure,
    ) -> Result<(), Wrong> {
        no_internal_error(failure)?;
        let Some(group) = self.ledger.groups().groups.get(key) else {
            return Ok(());
        };
        let session = self.asked.header.session();
        let (from, to) = (self.asked.step, self.window.to);
        // A shard may be behind, but not behind what the asker has seen.
        let seen = self.ledger.catalog_after(Op(self.asked.header.request));
        let seen = seen.and_then(|catalog| catalog.consumer_group(key));
        let client = self.asked.header.client();
        // Nor is it in between: a member that leaves and joins again may be told of the time without.
        let mut catalogs = self.ledger.catalogs_since(Op(self.asked.header.request));
        let is_member = catalogs.all(|catalog| {
            let group = catalog.consumer_group(key);
            group.is_some_and(|group| group.membership(client, session).is_ok())
        });
        match failure.code {
            ErrorCode::ConsumerGroupNotFound if seen.is_some() && group.deleted.is_none() => {
                Err(format!("{failure}, and it was there all the time"))
            }
            ErrorCode::ConsumerGroupMemberNotFound
                if is_member && group.was_member(session, from, to) =>
            {
                Err(format!("{failure}, and it was one all the time"))
            }
            ErrorCode::PartitionNotOwned => {
                let Some((partition, epoch)) = claim else {
                    return Ok(());
                };
                // An epoch that became the owner's only after the shard had judged.
                let known = Op(self.asked.header.request.max(epoch.0));
                let tenure = group.tenure(partition, session, epoch);
                let tenure = tenure.filter(|tenure| epoch <= tenure.top_after(known));
                let polls = matches!(self.asked.request, Some(Request::PollMessages(_)));
                let owned = tenure.is_some_and(|tenure| match polls {
                    true => tenure.polls.iter().any(|span| span.covers(from, to)),
                    false => tenure.stores.covers(from, to),
                });
                match owned {
                    true => Err(format!("{failure}, and the session owned it all the time")),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// What a request about a group may be refused with as a whole.
pub(crate) fn check_refused(answered: &Answered<'_>, failure: &Failure) -> Result<(), Wrong> {
    let Some(names) = answered.asked.request.as_ref().and_then(names) else {
        return Ok(());
    };
    match answered.group_key(names) {
        Some(key) => answered.check_group_refusal(&key, None, failure),
        None => Ok(()),
    }
}

fn names(request: &Request) -> Option<Names<'_>> {
    use wire::Consumer::Group;
    Some(match request {
        Request::PollMessages(PollMessages {
            stream,
            topic,
            consumer: Group(group),
            ..
        })
        | Request::StoreConsumerOffset(StoreConsumerOffset {
            stream,
            topic,
            consumer: Group(group),
            ..
        }) => (stream, topic, group),
        Request::ReleasePartition(it) => (&it.stream, &it.topic, &it.group),
        Request::SyncConsumerGroup(it) => (&it.stream, &it.topic, &it.group),
        _ => return None,
    })
}

impl Answered<'_> {
    /// Whether a partition has begun anew since an ownership began. A node that is behind may still serve
    /// what it was before, to its owner of that time: nobody else has that.
    fn is_renewed(&self, (key, partition): (&GroupKey, PartitionId), held_since: Epoch) -> bool {
        let catalog = self.ledger.catalog();
        let details = catalog.topic_details(&key.stream.into(), &key.topic.into());
        details.is_ok_and(|details| {
            let mut partitions = details.partitions.iter();
            partitions.any(|it| it.id == partition && it.incarnation.0 > held_since.0)
        })
    }
}

/// A section of a member's poll.
pub(crate) fn check_polled(
    run: &mut Run,
    answered: &Answered<'_>,
    (poll, group): (&PollMessages, &Identifier),
    (section, result): (&PollSection, &PollResult),
) -> Result<(), Wrong> {
    let Some(key) = answered.group_key((&poll.stream, &poll.topic, group)) else {
        return Ok(());
    };
    let partition = section.partition;
    if let Err(failure) = &result.status {
        run.counts.group_polls_refused += 1;
        run.counts.claims_parked += u64::from(failure.code == ErrorCode::Retry);
        let claim = Some((partition, section.epoch));
        return answered.check_group_refusal(&key, claim, failure);
    }
    run.counts.group_polls += 1;
    let group = answered.group(&key)?;
    let session = answered.asked.header.session();
    let Some(tenure) = group.tenure(partition, session, section.epoch) else {
        return Err(format!(
            "partition {partition} is served under epoch {}, which was never the session's",
            section.epoch
        ));
    };
    let (from, to) = (answered.asked.step, answered.window.to);
    run.counts.claims_parked += u64::from(tenure.stores.from > from);
    let later = group.granted_after(partition, (tenure.holder, tenure.top()));
    let is_renewed = answered.is_renewed((&key, partition), tenure.held_since);
    if later.is_some_and(|later| later < from) && !is_renewed {
        return Err(format!(
            "partition {partition} is served to {}, and was somebody else's before the poll came",
            tenure.holder
        ));
    }
    let place = PartitionKey {
        stream: key.stream,
        topic: key.topic,
        partition,
    };
    let applied = answered.applied_for(place);
    let might_poll = tenure.polls.iter().any(|span| {
        let ended = span
            .to
            .is_some_and(|(_, op)| applied.is_some_and(|applied| op <= applied));
        span.from <= to && !ended
    });
    if !might_poll {
        return Err(format!(
            "partition {partition} is served to {} by a shard that knew that it might not: {tenure:?}, applied {applied:?}",
            tenure.holder
        ));
    }
    answered.any_incarnation(place, |model| {
        check_record(answered, (model, &key), tenure.holder, (section, result))
    })?;
    if result.next > result.from {
        answered.served.borrow_mut().push(Served {
            key,
            partition,
            held_since: tenure.held_since,
            last: result.next.0 - 1,
        });
    }
    Ok(())
}

/// The holder of the fence is served, from where the group is.
fn check_record(
    answered: &Answered<'_>,
    (model, key): (&PartitionModel, &GroupKey),
    holder: partition::EpochHolder,
    (section, result): (&PollSection, &PollResult),
) -> Result<(), Wrong> {
    let Some(record) = model.record(key.group) else {
        return Err(format!("{holder} is served, and nothing was ever fenced"));
    };
    let window = answered.window;
    if !record
        .within(window)
        .any(|state| state.holder == Some(holder))
    {
        return Err(format!("{holder} is served and does not hold the fence"));
    }
    let stored = result.stored.map(|offset| offset.0);
    let fits = |reached: Reached| {
        let from = result.from.0;
        match (section.strategy, reached) {
            (PollStrategy::Next, Reached::Stored(offset)) => {
                model.reads_from(offset + 1, from, window)
            }
            (PollStrategy::Next, Reached::Start(offset)) => model.reads_from(offset, from, window),
            (PollStrategy::Next, Reached::Time(time)) => match model.batch_since(time) {
                Some(batch) if batch.step <= window.to => {
                    model.reads_from(batch.base, from, window) || result.from == result.end
                }
                Some(_) | None => result.from == result.end,
            },
            (PollStrategy::Next, Reached::Unresolved) => false,
            _ => true,
        }
    };
    let mut states = record.within(window);
    if !states.any(|state| fits(state.reached)) {
        let states: Vec<_> = record.within(window).collect();
        return Err(format!(
            "{:?} begins at {}: {states:?}",
            section.strategy, result.from
        ));
    }
    if !record
        .within(window)
        .any(|state| state.reached.stored() == stored)
    {
        let states: Vec<_> = record.within(window).collect();
        return Err(format!("{stored:?} is told as stored: {states:?}"));
    }
    Ok(())
}

/// What members store.
pub(crate) fn check_stored(
    run: &mut Run,
    answered: &Answered<'_>,
    (store, group): (&StoreConsumerOffset, &Identifier),
    stored: &OffsetsStored,
) -> Result<(), Wrong> {
    same_count(store.sections.len(), stored.sections.len())?;
    let Some(key) = answered.group_key((&store.stream, &store.topic, group)) else {
        return Ok(());
    };
    for (section, result) in store.sections.iter().zip(&stored.sections) {
        let claim = (section.partition, section.epoch);
        let asked = Some(section.offset);
        check_write(
            run,
            answered,
            (&key, claim),
            (asked, &result.status, result.stored),
        )?;
    }
    Ok(())
}

/// What members release.
pub(crate) fn check_released(
    run: &mut Run,
    answered: &Answered<'_>,
    release: &ReleasePartition,
    released: &PartitionsReleased,
) -> Result<(), Wrong> {
    same_count(release.sections.len(), released.sections.len())?;
    let names = (&release.stream, &release.topic, &release.group);
    let Some(key) = answered.group_key(names) else {
        return Ok(());
    };
    for (section, result) in release.sections.iter().zip(&released.sections) {
        let claim = (section.partition, section.epoch);
        run.counts.group_releases += u64::from(result.status.is_ok());
        if let (Ok(()), Some(group)) = (&result.status, answered.ledger.groups().groups.get(&key))
            && let Some(wrong) = group.why_not_released(section, answered.asked.header.session())
        {
            return Err(wrong);
        }
        let told = result.stored.filter(|_| section.offset.is_some());
        check_write(
            run,
            answered,
            (&key, claim),
            (section.offset, &result.status, told),
        )?;
    }
    Ok(())
}

fn check_write(
    run: &mut Run,
    answered: &Answered<'_>,
    (key, claim): (&GroupKey, (PartitionId, Epoch)),
    (asked, status, told): (Option<Offset>, &Result<(), Failure>, Option<Offset>),
) -> Result<(), Wrong> {
    let (partition, epoch) = claim;
    let place = PartitionKey {
        stream: key.stream,
        topic: key.topic,
        partition,
    };
    let session = answered.asked.header.session();
    match (status, told) {
        (Ok(()), told) => {
            run.counts.group_stores += 1;
            let group = answered.group(key)?;
            let Some(tenure) = group.tenure(partition, session, epoch) else {
                return Err(format!(
                    "partition {partition}: stored under epoch {epoch}, which was never the session's"
                ));
            };
            run.counts.claims_parked += u64::from(tenure.stores.from > answered.asked.step);
            if asked.is_some() && told < asked {
                return Err(format!("{told:?} is stored, {asked:?} was asked"));
            }
            match told {
                Some(told) => check_value(answered, (key, place), Some(told)),
                None => Ok(()),
            }
        }
        (Err(failure), _) => {
            run.counts.group_stores_refused += 1;
            run.counts.claims_parked += u64::from(failure.code == ErrorCode::Retry);
            answered.check_group_refusal(key, Some(claim), failure)
        }
    }
}

/// Whether the group had this stored at some time between request and answer.
fn check_value(
    answered: &Answered<'_>,
    (key, place): (&GroupKey, PartitionKey),
    told: Option<Offset>,
) -> Result<(), Wrong> {
    let told = told.map(|offset| offset.0);
    answered.any_incarnation(place, |model| {
        let Some(record) = model.record(key.group) else {
            return match told {
                None => Ok(()),
                Some(told) => Err(format!("{told} is told, and nothing was ever stored")),
            };
        };
        let mut states = record.within(answered.window);
        match states.any(|state| state.reached.stored() == told) {
            true => Ok(()),
            false => {
                let states: Vec<_> = record.within(answered.window).collect();
                Err(format!("{told:?} is told for {key:?}: {states:?}"))
            }
        }
    })
}

/// What anybody is told of a group's offsets.
pub(crate) fn check_offsets_told(
    answered: &Answered<'_>,
    (get, group): (&GetConsumerOffset, &Identifier),
    told: &Offsets,
) -> Result<(), Wrong> {
    same_count(get.partitions.len(), told.sections.len())?;
    let Some(key) = answered.group_key((&get.stream, &get.topic, group)) else {
        return Ok(());
    };
    for (partition, result) in get.partitions.iter().zip(&told.sections) {
        if let Err(failure) = &result.status {
            no_internal_error(failure)?;
            continue;
        }
        let place = PartitionKey {
            stream: key.stream,
            topic: key.topic,
            partition: *partition,
        };
        check_value(answered, (&key, place), result.stored)?;
        offsets::check_end(answered, place, result.start, result.end)?;
    }
    Ok(())
}

/// A join is answered with an assignment that the member had after it.
pub(crate) fn check_joined(
    answered: &Answered<'_>,
    (op, executed): (Op, &Executed),
    reply: &Result<Reply, Failure>,
) -> Result<(), Wrong> {
    let joined = executed.outcome.joined;
    let Some(joined) = joined else {
        return Err(format!("op {op} joined nothing: {reply:?}"));
    };
    let sync = SyncConsumerGroup::from(joined.key);
    let asker = (
        answered.asked.header.client(),
        answered.asked.header.session(),
    );
    let mut catalogs = answered.ledger.catalogs_since(op);
    match reply {
        Ok(Reply::Assignment(told)) => {
            let told = without_time_left(told);
            let fits = catalogs.any(|catalog| {
                let known = catalog.assignment(asker, &sync, |_, _, _| 0);
                known.is_ok_and(|known| known == told)
            });
            match fits {
                true => Ok(()),
                false => Err(format!("the assignment was never so: {told:?}")),
            }
        }
        Ok(other) => Err(format!("a join is answered with {other:?}")),
        Err(failure) => {
            let fits = catalogs.any(|catalog| {
                let known = catalog.assignment(asker, &sync, |_, _, _| 0);
                known.is_err_and(|known| known.code == failure.code)
            });
            match fits {
                true => Ok(()),
                false => Err(format!("joined by op {op}, and told: {failure}")),
            }
        }
    }
}

/// The same as the metadata knows it.
pub(crate) fn without_time_left(told: &ConsumerGroupAssignment) -> ConsumerGroupAssignment {
    let mut plain = told.clone();
    for partition in &mut plain.revoking {
        partition.time_left_ms = 0;
    }
    plain
}

/// A group is told as it was after some op that is not older than what the asker has seen.
pub(crate) fn check_details(
    answered: &Answered<'_>,
    asked: &GetConsumerGroup,
    told: &ConsumerGroupDetails,
) -> Result<(), Wrong> {
    let nothing = |_: &_, _: &_, _: &_| Observed {
        primary: ReplicaId(0),
        progress: Err(ErrorCode::NotReady),
        waits_for: None,
        time_left_ms: None,
    };
    let mut plain = told.clone();
    for partition in &mut plain.partitions {
        partition.primary = ReplicaId(0);
        partition.progress = Err(ErrorCode::NotReady);
        if let Some(moving) = &mut partition.moving {
            (moving.waits_for, moving.time_left_ms) = (None, None);
        }
    }
    let seen = Op(answered.asked.header.request);
    let mut catalogs = answered.ledger.catalogs_since(seen);
    match catalogs.any(|it| it.consumer_group_details(asked, nothing).as_ref() == Ok(&plain)) {
        true => Ok(()),
        false => Err(format!("the group was never so: {told:?}")),
    }
}

/// Once a reset is answered, it is carried out.
pub(crate) fn check_reset(answered: &Answered<'_>, op: Op) -> Result<(), Wrong> {
    for (key, group) in &answered.ledger.groups().groups {
        if group.deleted.is_some() {
            continue;
        }
        let mut moves = group.ownership.iter().filter_map(|it| it.moving());
        let left = moves.find(|moving| moving.epoch == Epoch(op.0) && moving.reset.is_some());
        if let Some(left) = left {
            return Err(format!(
                "{key:?}: the reset is answered, and {left:?} is left"
            ));
        }
    }
    Ok(())
}

fn find(catalog: &Catalog, (stream, topic, group): Names<'_>) -> Option<GroupKey> {
    let topic = catalog.topic_details(stream, topic).ok()?;
    let all = all_groups(catalog).into_iter();
    let mut own = all.filter(|(key, _)| (key.stream, key.topic) == (topic.stream, topic.id));
    own.find(|(key, found)| match group {
        Identifier::Number(id) => key.group.0 == *id,
        Identifier::Name(name) => found.name() == name,
    })
    .map(|(key, _)| key)
}
