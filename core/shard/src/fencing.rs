//! What sessions ask of partitions in their consumer groups' names, judged where the partition lives:
//! first by this shard's copy of the metadata, which may be old, then by the fence, which decides.

use alloc::{collections::BTreeMap, format, vec::Vec};

use catalog::{GroupKey, Projection};
use coordinator::{Admission, Claim, GroupProjection, Holder, Intent};
use partition::{DataGroup, DataRequest, EpochHolder, FenceOffset, Grant, GroupCommand, PollRight};
use wire::{
    ConsumerGroupId, Epoch, ErrorCode, Failure, Incarnation, Offset, Op, PartitionId, PartitionKey,
    PollStrategy, View,
};

use crate::{GroupReader, GroupWriteSection, PartitionAddress, activity::Activity, mutation};

/// What the metadata says of a claim.
#[derive(Clone, Debug)]
pub(crate) enum Judged {
    /// It is the owner's.
    Granted(Granted),
    /// It cannot be judged before the group changes; the failure is for when that takes too long.
    Waits(Failure),
    /// It is refused.
    Refused(Failure),
}

/// What an owner's request carries to the data group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    /// Of a release: to whom the partition goes.
    pub(crate) release: Option<Grant>,
}

/// Judges what a session claims by the metadata applied here.
pub(crate) fn judge(
    projection: &Projection,
    reader: &GroupReader,
    partition: PartitionId,
    (epoch, intent): (Epoch, Intent),
) -> Judged {
    let Some(group) = projection.group(&reader.key) else {
        return Judged::Refused(group_gone(&reader.key));
    };
    let claim = Claim {
        client: reader.client,
        session: reader.session,
        epoch,
        intent,
    };
    let admission = group.admit(partition, &claim, projection.applied());
    if let Some(failure) = admission.refusal(&group.name(), partition, &claim) {
        return match admission {
            Admission::Park(_) => Judged::Waits(failure),
            Admission::Serve(_)
            | Admission::Lift(_)
            | Admission::NotOwned
            | Admission::Revoking { .. }
            | Admission::NotMember(_)
            | Admission::PartitionNotFound { .. } => Judged::Refused(failure),
        };
    }
    let (Admission::Serve(right) | Admission::Lift(right)) = admission else {
        unreachable!("what is not refused is served");
    };
    let view = group.view(partition).expect("it is owned");
    let holder = EpochHolder {
        member: right.member,
        session: reader.session,
    };
    let release = right.release.and_then(|(epoch, _)| {
        let to = view.moving()?.to?;
        let holder = holder_of(&to);
        Some(Grant { epoch, holder })
    });
    Judged::Granted(Granted {
        grant: Grant {
            epoch: right.epoch,
            holder,
        },
        release,
    })
}

fn group_gone(key: &GroupKey) -> Failure {
    let text = format!("consumer group {} does not exist in the topic", key.group);
    Failure::new(ErrorCode::ConsumerGroupNotFound, text)
}

pub(crate) const fn holder_of(holder: &Holder) -> EpochHolder {
    EpochHolder {
        member: holder.member,
        session: holder.session,
    }
}

/// Whether a poll of a group's partition may read, and from where.
#[derive(Clone, Debug)]
pub(crate) enum Gate {
    /// From here.
    Open(PollStrategy),
    /// This has to be committed first.
    Fence(DataRequest),
    /// Not before the group changes.
    Waits(Failure),
    Refused(Failure),
}

/// Judges one section of a group's poll, by the metadata and by the fence.
pub(crate) fn gate(
    projection: &Projection,
    state: &DataGroup,
    reader: &GroupReader,
    (address, epoch, strategy): (&PartitionAddress, Epoch, PollStrategy),
) -> Gate {
    let partition = address.key.partition;
    let granted = match judge(projection, reader, partition, (epoch, Intent::Poll)) {
        Judged::Granted(granted) => granted,
        Judged::Waits(failure) => return Gate::Waits(failure),
        Judged::Refused(failure) => return Gate::Refused(failure),
    };
    let PartitionAddress {
        key, incarnation, ..
    } = *address;
    let fence = || {
        let group = projection.group(&reader.key)?;
        Some(Gate::Fence(first_fence(
            (&reader.key, group),
            (key, incarnation),
            granted.grant,
            projection.applied(),
        )))
    };
    let group = reader.key.group;
    match state.poll_right(key, incarnation, group, granted.grant) {
        Err(refusal) => Gate::Refused(refusal.failure()),
        Ok(PollRight::FenceFirst) => {
            fence().unwrap_or_else(|| Gate::Refused(group_gone(&reader.key)))
        }
        Ok(PollRight::Holds(record)) => {
            let strategy = match (strategy, record.next()) {
                (PollStrategy::Next, Some(start)) => start.strategy(),
                (PollStrategy::Next, None) => {
                    return fence().unwrap_or_else(|| Gate::Refused(group_gone(&reader.key)));
                }
                (
                    other @ (PollStrategy::Offset(_)
                    | PollStrategy::Timestamp(_)
                    | PollStrategy::First
                    | PollStrategy::Last),
                    _,
                ) => other,
            };
            Gate::Open(strategy)
        }
    }
}

/// The fence of an owner who has the partition already, which also resolves where the group starts.
pub(crate) fn first_fence(
    (key, group): (&GroupKey, &GroupProjection),
    (partition, incarnation): (PartitionKey, Incarnation),
    grant: Grant,
    admitted: Op,
) -> DataRequest {
    DataRequest::ConsumerGroup {
        key: partition,
        incarnation,
        admitted,
        group: key.group,
        command: GroupCommand::Fence {
            epoch: grant.epoch,
            holder: Some(grant.holder),
            offset: FenceOffset::Start(group.start(incarnation).into()),
        },
    }
}

/// What a store or release asks of the data group.
pub(crate) fn write(
    projection: &Projection,
    reader: &GroupReader,
    section: &GroupWriteSection,
) -> Result<DataRequest, Judged> {
    let GroupWriteSection {
        address,
        epoch,
        offset,
        planned,
        ..
    } = *section;
    let intent = planned.map_or(Intent::Store, |planned| Intent::Release { planned });
    let partition = address.key.partition;
    let granted = match judge(projection, reader, partition, (epoch, intent)) {
        Judged::Granted(granted) => granted,
        other @ (Judged::Waits(_) | Judged::Refused(_)) => return Err(other),
    };
    let Granted { grant, release, .. } = granted;
    let command = match (release, offset) {
        (Some(to), offset) => GroupCommand::Release { grant, offset, to },
        (None, Some(offset)) => GroupCommand::Store { grant, offset },
        (None, None) => return Err(Judged::Refused(revocation_changed(partition))),
    };
    Ok(DataRequest::ConsumerGroup {
        key: address.key,
        incarnation: address.incarnation,
        admitted: projection.applied(),
        group: reader.key.group,
        command,
    })
}

/// What a release is answered with that names a move which is not planned any more.
pub(crate) fn revocation_changed(partition: PartitionId) -> Failure {
    let text = format!("partition {partition} is not revoked under that epoch any more; sync");
    Failure::new(ErrorCode::RevocationChanged, text)
}

/// What the primary of a data group remembers of consumer groups since its view began. After a view change
/// the polls of before are unknown, which is not "never polled".
#[derive(Debug, Default)]
pub(crate) struct ViewMemory {
    view: Option<View>,
    incarnations: BTreeMap<PartitionKey, Incarnation>,
    fences: BTreeMap<(PartitionKey, ConsumerGroupId), Epoch>,
    /// The highest offset served, and the ownership that it was served in.
    polled: BTreeMap<(PartitionKey, ConsumerGroupId), (Epoch, Offset)>,
    /// Whether the owners get on.
    pub(crate) activity: Activity,
}

impl ViewMemory {
    /// This node leads the data group from now on.
    pub(crate) fn begin(&mut self, view: View, state: &DataGroup, now: u64) {
        if self.view == Some(view) {
            return;
        }
        self.view = Some(view);
        self.polled.clear();
        self.activity.begin(now);
        self.incarnations = state.partitions().collect();
        if mutation::DRAIN {
            return self.fences.clear();
        }
        self.fences = state
            .partitions()
            .flat_map(|(key, _)| {
                let records = state.group_records(key);
                records.map(move |(group, record)| ((key, group), record.fence))
            })
            .collect();
    }

    /// The fence as it was when the view began.
    pub(crate) fn fence(&self, key: PartitionKey, group: ConsumerGroupId) -> Epoch {
        self.fences.get(&(key, group)).copied().unwrap_or(Epoch(0))
    }

    /// A poll was answered with messages up to `last`.
    pub(crate) fn served(
        &mut self,
        (key, group): (PartitionKey, ConsumerGroupId),
        held_since: Epoch,
        last: Offset,
    ) {
        let entry = self
            .polled
            .entry((key, group))
            .or_insert((held_since, last));
        *entry = match *entry {
            (since, before) if since == held_since => (since, before.max(last)),
            _ => (held_since, last),
        };
    }

    /// The highest offset served in the ownership that began at `held_since`.
    pub(crate) fn last_polled(
        &self,
        (key, group): (PartitionKey, ConsumerGroupId),
        held_since: Epoch,
    ) -> Option<Offset> {
        let (since, last) = self.polled.get(&(key, group))?;
        (*since == held_since).then_some(*last)
    }

    /// The partition has begun, perhaps anew. One that is created again as what it is has not.
    pub(crate) fn created(&mut self, key: PartitionKey, incarnation: Incarnation) {
        let known = self.incarnations.insert(key, incarnation);
        if known != Some(incarnation) {
            self.forget_all(key);
        }
    }

    /// The partition is gone.
    pub(crate) fn forget_partition(&mut self, key: PartitionKey) {
        self.incarnations.remove(&key);
        self.forget_all(key);
    }

    fn forget_all(&mut self, key: PartitionKey) {
        let all = (key, ConsumerGroupId(0))..=(key, ConsumerGroupId(u64::MAX));
        let groups: Vec<ConsumerGroupId> = self
            .polled
            .range(all.clone())
            .map(|((_, group), _)| *group)
            .chain(self.fences.range(all).map(|((_, group), _)| *group))
            .chain(self.activity.groups_of(key))
            .collect();
        for group in groups {
            self.forget(key, group);
        }
    }

    /// The group is gone.
    pub(crate) fn forget(&mut self, key: PartitionKey, group: ConsumerGroupId) {
        self.polled.remove(&(key, group));
        self.fences.remove(&(key, group));
        self.activity.forget(&(key, group));
    }
}
