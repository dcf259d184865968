//! The reconciler: brings what the metadata has planned for consumer groups to an end, partition by
//! partition. The shard with the data group's primary waits until the source has finished, raises the
//! fence, and only when that is committed tells the metadata group that the move is complete.
//!
//! Level-triggered: every step is decided from the metadata as it is applied here and from the fence as it
//! is committed, so whatever was lost in between is found again by the next look.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use catalog::GroupKey;
use coordinator::{GroupProjection, HandOver, Holding, OwnershipView, Progress, ResetTo};
use partition::{DataRequest, EpochHolder, FenceOffset, Grant, GroupCommand, GroupRecord};
use wire::{
    ConsensusGroup, ConsumerGroupId, Epoch, Incarnation, MoveWait, Op, PartitionId, PartitionKey,
    Timestamp,
};

use crate::{
    Shard,
    counters::Counters,
    fencing::{first_fence, holder_of},
    host::{DataHost, Waiter},
    mutation,
    poll::DataHosts,
};

/// A partition of a topic, for one of its consumer groups.
type Place = (GroupKey, PartitionId);

/// A move is complete: its fence is committed under this epoch.
pub(crate) type Completed = (GroupKey, PartitionId, Epoch);

/// The partitions that this shard has something to do for.
#[derive(Debug, Default)]
pub(crate) struct HandOvers {
    open: BTreeMap<Place, Open>,
    due: BTreeSet<(u64, Place)>,
    touched: BTreeSet<Place>,
    completed: Vec<Completed>,
}

/// One partition that moves, or of which it is not resolved where the group starts.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// When the move began, as the metadata says: a plan that changes keeps it, and so its deadline.
    since: Option<Timestamp>,
    /// When this node first saw it: monotonic time.
    began: u64,
    /// When a revocation ends without its source: monotonic time.
    due: Option<u64>,
    /// The fence that is on its way.
    fencing: Option<Epoch>,
    /// The epoch that shard 0 was told is complete.
    told: Option<Epoch>,
    why: Option<HandOver>,
    /// Its end is in the counters.
    counted: bool,
}

impl HandOvers {
    /// Something happened to a partition that may let a move go on.
    pub(crate) fn touch(&mut self, place: Place) {
        self.touched.insert(place);
    }

    pub(crate) fn take_touched(&mut self) -> BTreeSet<Place> {
        core::mem::take(&mut self.touched)
    }

    pub(crate) fn take_completed(&mut self) -> Vec<Completed> {
        core::mem::take(&mut self.completed)
    }

    /// How many partitions are moving, or wait for their start.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    fn close(&mut self, place: &Place) {
        if let Some(open) = self.open.remove(place)
            && let Some(due) = open.due
        {
            self.due.remove(&(due, *place));
        }
    }

    /// Notes that a partition moves, and since when.
    fn watch(&mut self, place: Place, view: &OwnershipView, timeout: u64, now: u64) {
        let since = view.moving().map(|moving| moving.since);
        let open = self.open.entry(place).or_insert(Open {
            began: now,
            since,
            ..Open::default()
        });
        if open.since != since {
            *open = Open {
                began: now,
                since,
                ..Open::default()
            };
        }
        let due = match view.holding {
            Holding::Revoking { .. } => Some(open.began.saturating_add(timeout)),
            Holding::Nobody | Holding::Owned { .. } | Holding::Fencing { .. } => None,
        };
        let before = core::mem::replace(&mut open.due, due);
        if before != due {
            if let Some(before) = before {
                self.due.remove(&(before, place));
            }
            self.due.extend(due.map(|due| (due, place)));
        }
    }

    /// Marks the partitions whose deadline is over.
    pub(crate) fn on_time(&mut self, now: u64) {
        while let Some((due, place)) = self.due.first().copied() {
            if due > now {
                break;
            }
            self.due.pop_first();
            self.touched.insert(place);
        }
    }

    /// Looks at everything again, and tells again what may have been lost.
    pub(crate) fn refresh(&mut self) {
        for (place, open) in &mut self.open {
            open.told = None;
            open.fencing = None;
            self.touched.insert(*place);
        }
    }

    /// Milliseconds that a revocation still has, by the clock of this node.
    pub(crate) fn time_left(
        &self,
        key: &GroupKey,
        partition: PartitionId,
        now: u64,
    ) -> Option<u32> {
        let due = self.open.get(&(*key, partition))?.due?;
        let left = due.saturating_sub(now) / 1_000_000;
        Some(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Whether the deadline of a revocation is over.
    fn is_over(&self, place: &Place, now: u64) -> bool {
        let due = self.open.get(place).and_then(|open| open.due);
        due.is_some_and(|due| due <= now)
    }

    /// A member has asked to release the partition.
    pub(crate) fn on_release(&mut self, place: Place) {
        if let Some(open) = self.open.get_mut(&place) {
            open.why.get_or_insert(HandOver::Released);
        }
    }

    /// The groups' partitions that are open.
    fn of_group(&self, key: &GroupKey) -> Vec<PartitionId> {
        let range = (*key, PartitionId(0))..=(*key, PartitionId(u32::MAX));
        self.open.range(range).map(|((_, it), _)| *it).collect()
    }

    /// Looks at all of a group's open partitions again.
    pub(crate) fn touch_group(&mut self, key: &GroupKey) {
        for partition in self.of_group(key) {
            self.touched.insert((*key, partition));
        }
    }
}

/// What is to be done for a partition.
#[derive(Debug)]
enum Step {
    /// Nothing, and nothing will be.
    Rest,
    /// Nothing before something happens.
    Wait(MoveWait),
    /// Raise the fence.
    Fence(DataRequest, Epoch, Option<HandOver>),
    /// The fence is raised: the move is complete.
    Complete(Epoch),
}

/// Where a partition is, and what is known of it there.
struct Scene<'a> {
    group: &'a GroupProjection,
    key: GroupKey,
    partition: PartitionKey,
    incarnation: Incarnation,
    view: OwnershipView,
    record: GroupRecord,
    progress: Progress,
    applied: Op,
}

impl Scene<'_> {
    fn step(&self) -> Step {
        let Some(moving) = self.view.moving() else {
            return self.start();
        };
        let to = moving.to.as_ref().map(holder_of);
        let fence = self.record.fence;
        if fence == moving.epoch && self.record.holder == to {
            return Step::Complete(moving.epoch);
        }
        if fence >= moving.epoch {
            // The plan that this copy of the metadata shows is old.
            return Step::Wait(MoveWait::Completion);
        }
        match coordinator::hand_over(&self.view, &self.progress) {
            Some(_) if mutation::GRANT => Step::Complete(moving.epoch),
            Some(why) => {
                let request = self.fence(moving.epoch, to, moving.reset);
                Step::Fence(request, moving.epoch, Some(why))
            }
            None if self.polls_known() => Step::Wait(MoveWait::Drain),
            None => Step::Wait(MoveWait::Release),
        }
    }

    fn polls_known(&self) -> bool {
        let held_since = self.view.held_since();
        held_since.is_some_and(|since| self.progress.fence_at_view < since)
    }

    /// A partition that was granted at once: resolve where the group starts before somebody asks.
    fn start(&self) -> Step {
        let Some(owner) = self.view.owner() else {
            return Step::Rest;
        };
        if self.record.next().is_some() || self.record.fence > self.view.epoch {
            return Step::Rest;
        }
        let grant = Grant {
            epoch: self.view.epoch,
            holder: holder_of(&owner),
        };
        let place = (self.partition, self.incarnation);
        let request = first_fence((&self.key, self.group), place, grant, self.applied);
        Step::Fence(request, self.view.epoch, None)
    }

    fn fence(
        &self,
        epoch: Epoch,
        holder: Option<EpochHolder>,
        reset: Option<ResetTo>,
    ) -> DataRequest {
        let offset = match (reset, holder) {
            (Some(reset), _) => FenceOffset::Reset(reset.into()),
            (None, Some(_)) => FenceOffset::Start(self.group.start(self.incarnation).into()),
            (None, None) => FenceOffset::Keep,
        };
        DataRequest::ConsumerGroup {
            key: self.partition,
            incarnation: self.incarnation,
            admitted: self.applied,
            group: self.key.group,
            command: GroupCommand::Fence {
                epoch,
                holder,
                offset,
            },
        }
    }
}

impl Shard {
    /// Goes on with everything that something has happened to. Returns whether there was anything.
    pub(crate) fn reconcile_groups(&mut self) -> bool {
        let touched = self.hand_overs.take_touched();
        let any = !touched.is_empty();
        for place in touched {
            self.reconcile_partition(place);
        }
        any
    }

    fn reconcile_partition(&mut self, place: Place) {
        let now = self.desk.now.monotonic;
        let is_metadata_shard = self.metadata.is_some();
        let Self {
            hand_overs,
            data,
            projection,
            counters,
            ..
        } = self;
        let (key, partition) = place;
        let Some((group, view, address)) = find(projection, place) else {
            return hand_overs.close(&place);
        };
        let host = data.get_mut(&address.group);
        if host.is_none() && !is_metadata_shard {
            return hand_overs.close(&place);
        }
        let timeout = u64::from(group.options().rebalance_timeout_ms) * 1_000_000;
        if view.moving().is_some() || hand_overs.open.contains_key(&place) {
            hand_overs.watch(place, &view, timeout, now);
        }
        let Some(host) = host.filter(|host| host.member.serves()) else {
            if view.moving().is_none() {
                hand_overs.close(&place);
            }
            return;
        };
        let partition_key = PartitionKey {
            stream: key.stream,
            topic: key.topic,
            partition,
        };
        let record = host
            .state
            .group_record(partition_key, address.incarnation, key.group);
        let Ok(record) = record else {
            // Looked at again when the data group has begun the partition.
            hand_overs.watch(place, &view, timeout, now);
            return;
        };
        if let Some(held_since) = view.held_since() {
            let place = (partition_key, key.group);
            host.memory.activity.owned(place, held_since, now);
        }
        let timed_out = hand_overs.is_over(&place, now);
        let scene = Scene {
            group,
            key,
            partition: partition_key,
            incarnation: address.incarnation,
            view,
            record,
            progress: progress(host, (partition_key, &key), (&view, &record), timed_out),
            applied: projection.applied(),
        };
        match scene.step() {
            Step::Rest => hand_overs.close(&place),
            Step::Wait(_) => hand_overs.watch(place, &view, timeout, now),
            Step::Fence(request, epoch, why) => {
                hand_overs.watch(place, &view, timeout, now);
                hand_overs.fence(place, (epoch, why), || {
                    host.queue(request, Waiter::Fence(key.group));
                });
            }
            Step::Complete(epoch) => {
                hand_overs.watch(place, &view, timeout, now);
                hand_overs.complete(place, epoch, counters);
            }
        }
    }

    /// Tells the metadata group which moves are complete.
    pub(crate) fn tell_completed(&mut self) {
        let completed = self.hand_overs.take_completed();
        if completed.is_empty() {
            return;
        }
        self.on_moved(completed);
    }

    /// Looks at every partition of every group: what may have been missed shows.
    pub(crate) fn reconcile_all_groups(&mut self) {
        let Self {
            hand_overs,
            projection,
            data,
            ..
        } = self;
        for (key, group) in projection.groups() {
            for (partition, view) in (0..).map(PartitionId).zip(group.views()) {
                let place = (key, partition);
                if view.moving().is_some() || lacks_start(projection, data, place, &view) {
                    hand_overs.touch(place);
                }
            }
        }
        hand_overs.refresh();
        self.drop_stray_groups();
    }

    /// Drops what the data groups that this node leads hold of consumer groups that are deleted.
    fn drop_stray_groups(&mut self) {
        let applied = self.projection.applied();
        for host in self.data.values_mut().filter(|host| host.member.serves()) {
            let partitions = host.state.partitions();
            let stray: Vec<(PartitionKey, Incarnation, ConsumerGroupId)> = partitions
                .flat_map(|(key, incarnation)| {
                    let records = host.state.group_records(key);
                    // What is newer than this copy of the metadata is not judged by it.
                    let judged = records.filter(|(_, record)| record.fence.0 <= applied.0);
                    judged.map(move |(group, _)| (key, incarnation, group))
                })
                .filter(|(key, _, group)| {
                    let (stream, topic, group) = (key.stream, key.topic, *group);
                    let group = GroupKey {
                        stream,
                        topic,
                        group,
                    };
                    self.projection.group(&group).is_none()
                })
                .collect();
            for (key, incarnation, group) in stray {
                let request = DataRequest::DropConsumerGroup {
                    key,
                    incarnation,
                    dropped: applied,
                    group,
                };
                host.queue(request, Waiter::Fence(group));
            }
        }
    }

    /// What is to be told of a group's progress in a partition of this shard.
    pub(crate) fn standing(
        &self,
        key: &GroupKey,
        address: &crate::PartitionAddress,
    ) -> Option<crate::GroupStanding> {
        let place = (*key, address.key.partition);
        let (group, view, _) = find(&self.projection, place)?;
        let host = self.data.get(&address.group)?;
        let (partition, incarnation) = (address.key, address.incarnation);
        let record = host
            .state
            .group_record(partition, incarnation, key.group)
            .ok()?;
        let now = self.desk.now.monotonic;
        let timed_out = self.hand_overs.is_over(&place, now);
        let progress = progress(host, (partition, key), (&view, &record), timed_out);
        let scene = Scene {
            group,
            key: *key,
            partition,
            incarnation,
            view,
            record,
            progress,
            applied: self.projection.applied(),
        };
        let time_left = self.hand_overs.time_left(key, place.1, now);
        let waits_for = view.moving().map(|_| match scene.step() {
            Step::Wait(wait) => (wait, time_left),
            Step::Fence(..) | Step::Rest => (MoveWait::Fence, None),
            Step::Complete(_) => (MoveWait::Completion, None),
        });
        let next = host.state.group_next(partition, incarnation, key.group);
        let place = host.state.position(partition, incarnation, "").ok()?;
        let next = next.ok()?.unwrap_or(place.start).max(place.start);
        let idle = view.held_since().map(|held_since| {
            let activity = &host.memory.activity;
            activity.idle(&(partition, key.group), held_since, now)
        });
        let is_left = next < place.end;
        Some(crate::GroupStanding {
            next,
            polled_ms_ago: idle.and_then(|idle| idle.polled).map(milliseconds),
            stored_ms_ago: idle.and_then(|idle| idle.stored).map(milliseconds),
            stalled_ms: idle
                .filter(|_| is_left)
                .map(|idle| milliseconds(idle.quiet)),
            last_polled: progress.last_polled,
            fence: record.fence,
            waits_for,
            is_damaged: host.state.is_damaged(partition),
        })
    }
}

fn milliseconds(nanoseconds: u64) -> u32 {
    u32::try_from(nanoseconds / 1_000_000).unwrap_or(u32::MAX)
}

impl HandOvers {
    fn fence(
        &mut self,
        place: Place,
        (epoch, why): (Epoch, Option<HandOver>),
        queue: impl FnOnce(),
    ) {
        let Some(open) = self.open.get_mut(&place) else {
            return;
        };
        if open.fencing != Some(epoch) {
            open.fencing = Some(epoch);
            open.why = why;
            queue();
        }
    }

    fn complete(&mut self, place: Place, epoch: Epoch, counters: &mut Counters) {
        let Some(open) = self.open.get_mut(&place) else {
            return;
        };
        if open.told == Some(epoch) {
            return;
        }
        let first = !core::mem::replace(&mut open.counted, true);
        open.told = Some(epoch);
        self.completed.push((place.0, place.1, epoch));
        if first {
            match open.why {
                Some(HandOver::Released) => counters.moves_released += 1,
                Some(HandOver::Drained) => counters.moves_drained += 1,
                Some(HandOver::TimedOut) => counters.moves_timed_out += 1,
                Some(HandOver::OwnerGone) => counters.moves_from_nobody += 1,
                Some(HandOver::Fenced) | None => counters.moves_fenced_before += 1,
            }
        }
    }
}

/// Whether a partition that lives here is owned, and it is not resolved yet where its group starts.
fn lacks_start(
    projection: &catalog::Projection,
    data: &DataHosts,
    (key, partition): Place,
    view: &OwnershipView,
) -> bool {
    let partition = PartitionKey {
        stream: key.stream,
        topic: key.topic,
        partition,
    };
    let placement = projection.placement(&partition);
    let host = placement.and_then(|it| Some((it.incarnation, data.get(&it.group)?)));
    let Some((incarnation, host)) = host.filter(|_| view.owner().is_some()) else {
        return false;
    };
    let record = host.state.group_record(partition, incarnation, key.group);
    record.map_or(true, |record| record.next().is_none())
}

/// The group, the state of the partition, and where it lives.
fn find(
    projection: &catalog::Projection,
    (key, partition): Place,
) -> Option<(&GroupProjection, OwnershipView, Address)> {
    let group = projection.group(&key)?;
    let view = group.view(partition)?;
    let placement = projection.placement(&PartitionKey {
        stream: key.stream,
        topic: key.topic,
        partition,
    })?;
    let address = Address {
        group: placement.group,
        incarnation: placement.incarnation,
    };
    Some((group, view, address))
}

#[derive(Clone, Copy)]
struct Address {
    group: ConsensusGroup,
    incarnation: Incarnation,
}

fn progress(
    host: &DataHost,
    (partition, key): (PartitionKey, &GroupKey),
    (view, record): (&OwnershipView, &GroupRecord),
    timed_out: bool,
) -> Progress {
    let held_since = view.held_since();
    Progress {
        fence: record.fence,
        fence_at_view: host.memory.fence(partition, key.group),
        stored: record.stored,
        last_polled: held_since
            .and_then(|since| host.memory.last_polled((partition, key.group), since)),
        // A release raises the fence together with its store.
        released: false,
        timed_out,
    }
}
