//! What was committed, op by op, and what follows from it.
//!
//! Every prepare that a shard hands to its journal is kept. As soon as a state machine has applied an op,
//! the op belongs to history for good: reference state machines, which never crash, apply it once, and so
//! does a plain model of the partitions. Whatever any process shows at that op must be equal.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use bytes::Bytes;
use catalog::{Catalog, CatalogConfig, Operation, Outcome};
use partition::{
    DataConfig, DataGroup, DataRequest, DataResult, GroupCommand, GroupRecord, StartAt,
    decode_requests,
};
use vsr::ChainPoint;
use wire::{
    Batch, ClientId, ConsensusGroup, ConsumerGroupId, Incarnation, Offset, Op, PartitionKey,
    PrepareHeader, RequestNumber, SessionNumber, Timestamp,
};

use super::{
    forgotten::Forgotten,
    groups::{Committed, Done, Groups, Reached, State, Verdict},
    partition::{PartitionLimits, PartitionModel, Step, Window},
};
use crate::{clients::order_of, run::Run};

/// The operation of a barrier: an op that no state machine sees (V13).
const BARRIER: u16 = u16::MAX;

/// History of all consensus groups.
#[derive(Debug)]
pub(crate) struct Ledger {
    replicas: u8,
    histories: BTreeMap<ConsensusGroup, History>,
    references: BTreeMap<ConsensusGroup, DataGroup>,
    partitions: BTreeMap<PartitionKey, Vec<PartitionModel>>,
    limits: PartitionLimits,
    catalog: Catalog,
    /// The catalog after each op that changed something, with the step.
    versions: Vec<(Step, Rc<Catalog>)>,
    /// Ops of the metadata group that the replica did not execute.
    skipped: BTreeSet<Op>,
    forgotten: Forgotten,
    commands: BTreeMap<(SessionNumber, RequestNumber), Op>,
    outcomes: BTreeMap<Op, Executed>,
    groups: Groups,
    /// The highest metadata op of a deletion that each data group knows of.
    dropped: BTreeMap<ConsensusGroup, Op>,
    /// Sessions that an op ended, not looked at yet.
    ended: Vec<(SessionNumber, wire::EvictionReason)>,
}

/// A command of the metadata group that was executed.
#[derive(Debug)]
pub(crate) struct Executed {
    pub(crate) client: ClientId,
    /// The answer.
    pub(crate) outcome: Outcome,
    /// When it was first shown as applied.
    pub(crate) step: Step,
}

/// The ops of one group.
#[derive(Debug, Default)]
struct History {
    /// What was prepared, applied or not, by op and checksum.
    prepares: BTreeMap<(Op, u128), (PrepareHeader, Bytes)>,
    /// The last op that any process has shown as applied.
    applied: Op,
    /// What was applied, by op: for good, on every node.
    committed: BTreeMap<Op, u128>,
    /// The last op prepared.
    timestamp: Timestamp,
    digests: BTreeMap<Op, u128>,
}

impl Ledger {
    pub(crate) fn new(
        (replicas, catalog): (u8, CatalogConfig),
        data: impl Fn(ConsensusGroup) -> DataConfig,
        (limits, clients_max): (PartitionLimits, usize),
    ) -> Self {
        let groups = || (1..=catalog.data_groups).map(ConsensusGroup);
        let reference = |group| (group, DataGroup::new(data(group)));
        Self {
            replicas,
            histories: groups()
                .chain([ConsensusGroup::METADATA])
                .map(|group| (group, History::default()))
                .collect(),
            references: groups().map(reference).collect(),
            partitions: BTreeMap::new(),
            limits,
            catalog: Catalog::new(catalog),
            versions: vec![(0, Rc::new(Catalog::new(catalog)))],
            skipped: BTreeSet::new(),
            forgotten: Forgotten::new(clients_max),
            commands: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            groups: Groups::default(),
            dropped: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// A shard hands a prepare to its journal.
    pub(crate) fn prepared(&mut self, run: &mut Run, header: PrepareHeader, body: Bytes) {
        let (group, op) = (header.group(), header.op());
        let is_alone = self.replicas == 1;
        let history = self.history_mut(group);
        if op <= history.applied && is_alone {
            return run.fail(format!(
                "group {group}: op {op} is prepared again; {} is applied",
                history.applied
            ));
        }
        history
            .prepares
            .insert((op, header.checksum), (header, body));
    }

    /// A replica did not execute an op of the metadata group.
    pub(crate) fn skipped(&mut self, op: Op) {
        self.skipped.insert(op);
    }

    /// The last op of a group that any process has shown as applied.
    pub(crate) fn applied(&self, group: ConsensusGroup) -> Op {
        self.histories
            .get(&group)
            .map_or(Op(0), |history| history.applied)
    }

    /// A process shows the state of a group after an op.
    pub(crate) fn shown(
        &mut self,
        run: &mut Run,
        step: Step,
        (group, point): (ConsensusGroup, ChainPoint),
        digest: u128,
    ) {
        let (op, applied) = (point.op, self.applied(group));
        for next in self.chain(run, group, point) {
            self.apply(run, step, group, next);
        }
        let committed = self.histories[&group].committed.get(&op).copied();
        if op.0 > 0 && committed.is_some_and(|it| it != point.checksum) {
            run.fail(format!("group {group}: op {op} was applied as another one"));
        }
        run.counts.ops_replayed += u64::from(op < applied);
        if op == self.applied(group) && !self.histories[&group].digests.contains_key(&op) {
            let known = self.digest(group);
            self.history_mut(group).digests.insert(op, known);
        }
        let Some(known) = self.histories[&group].digests.get(&op).copied() else {
            // It went by without being shown.
            return;
        };
        run.counts.digests_compared += 1;
        if known != digest {
            run.fail(format!(
                "group {group}: the state after op {op} has digest {digest:#x}, not {known:#x}"
            ));
        }
    }

    /// The ops that are applied for the first time with this one, in order: along the chain, for several
    /// may have been prepared under one number.
    fn chain(
        &self,
        run: &mut Run,
        group: ConsensusGroup,
        mut point: ChainPoint,
    ) -> Vec<ChainPoint> {
        let history = &self.histories[&group];
        let mut chain = Vec::new();
        while point.op > history.applied {
            chain.push(point);
            let Some((header, _)) = history.prepares.get(&(point.op, point.checksum)) else {
                run.fail(format!("group {group}: op {} was never prepared", point.op));
                return Vec::new();
            };
            point = ChainPoint {
                op: Op(point.op.0 - 1),
                checksum: header.parent,
            };
        }
        chain.reverse();
        chain
    }

    fn digest(&self, group: ConsensusGroup) -> u128 {
        if group == ConsensusGroup::METADATA {
            self.catalog.digest()
        } else {
            self.references[&group].digest()
        }
    }

    fn apply(&mut self, run: &mut Run, step: Step, group: ConsensusGroup, point: ChainPoint) {
        let op = point.op;
        let history = self.history_mut(group);
        history.applied = op;
        history.committed.insert(op, point.checksum);
        let Some((header, body)) = history.prepares.get(&(op, point.checksum)).cloned() else {
            return run.fail(format!("group {group}: op {op} was never prepared"));
        };
        let before = Op(op.0 - 1);
        let parent = history.committed.get(&before).copied();
        if header.parent != parent.unwrap_or(0) {
            run.fail(format!(
                "group {group}: op {op} does not follow from op {before}"
            ));
        }
        if header.timestamp() <= history.timestamp {
            run.fail(format!(
                "group {group}: op {op} is not later than op {before}"
            ));
        }
        history.timestamp = header.timestamp();
        if header.operation == BARRIER {
            run.counts.barriers += 1;
            return;
        }
        if group == ConsensusGroup::METADATA {
            run.counts.metadata_ops += 1;
            self.apply_metadata(run, step, &header, body);
        } else {
            run.counts.data_ops += 1;
            self.apply_data(run, step, &header, body);
        }
    }

    fn apply_metadata(&mut self, run: &mut Run, step: Step, header: &PrepareHeader, body: Bytes) {
        let op = header.op();
        let key = (header.session(), header.request());
        let is_command = key.0.0 != 0;
        if self.skipped.contains(&op) {
            return self.note_skipped(run, header);
        }
        let operation = match Operation::decode(header.operation, body) {
            Ok(operation) => operation,
            Err(error) => return run.fail(format!("metadata op {op}: {error}")),
        };
        let outcome = self.catalog.apply(op, header.timestamp(), &operation);
        self.forgotten.on_op(self.catalog.sessions().len());
        for change in &outcome.changes {
            if let catalog::Change::SessionEnded {
                session, reason, ..
            } = change
            {
                self.ended.push((*session, *reason));
                self.forgotten.on_ended(*session);
            }
        }
        if is_command && let Some(first) = self.commands.insert(key, op) {
            run.fail(format!(
                "request {} of session {} was executed as op {first} and again as op {op}",
                key.1, key.0
            ));
        }
        run.counts.commands_executed += u64::from(is_command);
        let committed = Committed {
            step,
            op,
            operation: &operation,
            changes: &outcome.changes,
            catalog: &self.catalog,
        };
        self.groups.on_op(run, &committed);
        let executed = Executed {
            client: header.client(),
            outcome,
            step,
        };
        self.outcomes.insert(op, executed);
        self.versions.push((step, Rc::new(self.catalog.clone())));
    }

    /// An op may be skipped if its request was executed before, or its session had ended, or a client table
    /// that is full has forgotten it. Then it ends by an op of its own, and others may come before that.
    fn note_skipped(&mut self, run: &mut Run, header: &PrepareHeader) {
        let (client, session) = (header.client(), header.session());
        let repeats = self
            .commands
            .range((session, header.request())..=(session, RequestNumber(u64::MAX)))
            .next()
            .is_some();
        let lives = self.catalog.session(client, session).is_some();
        if lives && !repeats && !self.forgotten.on_skipped(session) {
            run.fail(format!(
                "metadata op {} was not executed, and nothing forbids it",
                header.op()
            ));
        }
    }

    /// At the end no session lives on that the client table has forgotten.
    pub(crate) fn check_forgotten(&self, run: &mut Run) {
        let forgotten = self.forgotten.sessions();
        if !forgotten.is_empty() {
            run.fail(format!(
                "sessions {forgotten:?} are forgotten, and have not ended"
            ));
        }
    }

    fn apply_data(&mut self, run: &mut Run, step: Step, header: &PrepareHeader, body: Bytes) {
        let (group, op) = (header.group(), header.op());
        let requests = match decode_requests(body) {
            Ok(requests) => requests,
            Err(error) => return run.fail(format!("group {group}, op {op}: {error}")),
        };
        for request in requests {
            let expected = self.apply_request(run, step, header, &request);
            let reference = self.references.get_mut(&group).expect("there is one each");
            let key = request.key();
            let shown = match run.trace.prints() {
                true => describe(&request),
                false => String::new(),
            };
            let incarnation = request.incarnation();
            let asked = group_request(&request);
            let result = reference.apply(op, header.timestamp(), request);
            while reference.next_change().is_some() {}
            run.note(&[40, u64::from(group.0), op.0], || {
                format!("group {group}, op {op}: {shown} -> {result:?}")
            });
            if let Some(asked) = asked {
                self.apply_group(run, (step, header), &asked, result);
            }
            if result == DataResult::Created {
                self.created(run, (step, group), (key, incarnation));
            }
            if expected.is_some_and(|expected| expected != result) {
                run.fail(format!(
                    "partition {key}, op {op}: {result:?}; expected {expected:?}"
                ));
            }
        }
    }

    /// What the model makes of a request; `None` when it has no opinion. An incarnation may be created in
    /// one group before another group has dropped an older one.
    fn apply_request(
        &mut self,
        run: &mut Run,
        step: Step,
        header: &PrepareHeader,
        request: &DataRequest,
    ) -> Option<DataResult> {
        let (key, incarnation) = (request.key(), request.incarnation());
        let (group, timestamp) = (header.group(), header.timestamp());
        let limits = self.limits;
        let incarnations = self.partitions.entry(key).or_default();
        let here = incarnations
            .iter_mut()
            .find(|model| model.group == group && model.dropped.is_none());
        match request {
            // Whether a proposal comes too late only the group knows.
            DataRequest::CreatePartition { .. } => None,
            DataRequest::DropPartition { dropped, .. } => {
                let known = self.dropped.entry(group).or_default();
                *known = (*known).max(*dropped);
                if let Some(here) = here.filter(|here| here.incarnation <= incarnation) {
                    run.counts.partitions_dropped += 1;
                    here.dropped = Some(step);
                }
                None
            }
            DataRequest::Append { batch, .. } => {
                let named = here.filter(|here| here.incarnation == incarnation)?;
                let result = named.append(step, timestamp, batch, limits);
                count_append(run, result, batch.header.count);
                Some(result)
            }
            DataRequest::StoreOffset {
                consumer, offset, ..
            } => {
                let named = here.filter(|here| here.incarnation == incarnation)?;
                let result = named.store(step, consumer, *offset, limits);
                count_store(run, result, offset.0);
                Some(result)
            }
            DataRequest::DeleteOffset { consumer, .. } => {
                let named = here.filter(|here| here.incarnation == incarnation)?;
                Some(named.delete_offset(step, consumer))
            }
            DataRequest::TruncateHead { .. } => {
                run.fail("nobody asks for the head of a partition to be cut");
                None
            }
            DataRequest::ConsumerGroup { .. } => None,
            DataRequest::DropConsumerGroup {
                dropped,
                group: consumer_group,
                ..
            } => {
                let known = self.dropped.entry(group).or_default();
                *known = (*known).max(*dropped);
                if let Some(record) = here.and_then(|here| here.record_mut(*consumer_group)) {
                    record.forget(step);
                }
                let group = *consumer_group;
                Some(DataResult::ConsumerGroupDropped { group })
            }
        }
    }

    /// A data group has executed a command of a consumer group.
    fn apply_group(
        &mut self,
        run: &mut Run,
        (step, header): (Step, &PrepareHeader),
        asked: &GroupRequest,
        result: DataResult,
    ) {
        let (key, group) = (asked.key, header.group());
        let dropped = self.dropped.get(&group).copied().unwrap_or_default();
        let incarnations = self.partitions.entry(key).or_default();
        let here = incarnations.iter_mut().find(|model| {
            model.group == group
                && model.dropped.is_none()
                && model.incarnation == asked.incarnation
        });
        let Some(here) = here else {
            if !matches!(result, DataResult::Failed(partition::Refusal::Absent(_))) {
                run.fail(format!("{key} is not there, and yet: {result:?}"));
            }
            return;
        };
        let at = (step, header.timestamp());
        let before = here.record(asked.group).map(|record| record.now());
        let before = before.unwrap_or_default();
        let expected = if before.fence.0 == 0 && asked.admitted < dropped {
            let admitted = asked.admitted;
            Ok(DataResult::Failed(partition::Refusal::GroupGone {
                admitted,
                dropped,
            }))
        } else {
            let told = match result {
                DataResult::Record { record, .. } => record.start,
                _ => None,
            };
            here.apply_group(at, asked.group, &asked.command, told)
                .map(|verdict| match verdict {
                    Verdict::Refused(refusal) => DataResult::Failed(refusal),
                    Verdict::Done => shown(asked.group, here),
                })
        };
        match expected {
            Ok(expected) if expected == result => {}
            wrong => run.fail(format!(
                "{key}, group {}, {:?}: {result:?}; expected {wrong:?}",
                asked.group, asked.command
            )),
        }
        let now = here.record(asked.group).map(|record| record.now());
        let proposer = vsr::primary_of(group, header.view(), self.replicas);
        let done = Done {
            key: catalog::GroupKey {
                stream: key.stream,
                topic: key.topic,
                group: asked.group,
            },
            partition: key.partition,
            command: &asked.command,
            result,
            proposer: usize::from(proposer.0),
            states: (before, now.unwrap_or_default()),
        };
        self.groups.on_command(run, &done);
    }

    /// A group holds an incarnation of a partition from now on, if it did not before.
    fn created(
        &mut self,
        run: &mut Run,
        (step, group): (Step, ConsensusGroup),
        (key, incarnation): (PartitionKey, Incarnation),
    ) {
        let incarnations = self.partitions.entry(key).or_default();
        let here = incarnations
            .iter_mut()
            .find(|model| model.group == group && model.dropped.is_none());
        // Offsets of a partition that is purged go on.
        let mut begin = 0;
        match here {
            Some(here) if here.incarnation == incarnation => return,
            Some(here) => {
                here.dropped = Some(step);
                begin = here.end();
                run.counts.partitions_purged += u64::from(begin > here.start());
            }
            None => {}
        }
        incarnations.push(PartitionModel::new(group, incarnation, (step, begin)));
    }

    /// The incarnations of a partition that were there at some time in the window.
    pub(crate) fn partitions(
        &self,
        key: PartitionKey,
        window: Window,
    ) -> impl Iterator<Item = &PartitionModel> {
        let incarnations = self.partitions.get(&key).into_iter().flatten();
        incarnations.filter(move |model| model.lived(window))
    }

    /// All partitions that are there now.
    pub(crate) fn live_partitions(&self) -> impl Iterator<Item = (PartitionKey, &PartitionModel)> {
        self.all_partitions()
            .filter(|(_, model)| model.dropped.is_none())
    }

    /// Every incarnation of every partition.
    pub(crate) fn all_partitions(&self) -> impl Iterator<Item = (PartitionKey, &PartitionModel)> {
        self.partitions
            .iter()
            .flat_map(|(key, all)| all.iter().map(|model| (*key, model)))
    }

    /// Whether the data groups have exactly the partitions that the metadata knows.
    pub(crate) fn has_converged(&self) -> bool {
        let projection = catalog::Projection::from(&self.catalog);
        let known = projection
            .placements()
            .map(|(key, placement)| (key, placement.group, placement.incarnation));
        let here = self
            .live_partitions()
            .map(|(key, model)| (key, model.group, model.incarnation));
        known.eq(here)
    }

    /// Messages of one producer of the client crate are in the order in which they were pushed, and each
    /// is there once, but for those that it has given up without an answer.
    pub(crate) fn check_order(&self, run: &mut Run, given_up: &BTreeSet<(u64, u64)>) {
        for (key, model) in self.all_partitions() {
            let mut last = BTreeMap::new();
            for stored in model.batches() {
                let known = order_in(&stored.bytes).into_iter();
                for (producer, place) in known.filter(|order| !given_up.contains(order)) {
                    let before = last.insert(producer, place);
                    if before.is_some_and(|before| before >= place) {
                        run.fail(format!(
                            "{key}: message {place} of producer {producer} is behind {before:?}"
                        ));
                    }
                }
            }
        }
    }

    /// Nodes of the cluster.
    pub(crate) const fn replicas(&self) -> u8 {
        self.replicas
    }

    /// The consumer groups.
    pub(crate) const fn groups(&self) -> &Groups {
        &self.groups
    }

    pub(crate) const fn groups_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }

    /// The catalog now.
    pub(crate) const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The catalog as it was right after an op, if the op changed it.
    pub(crate) fn catalog_after(&self, op: Op) -> Option<&Catalog> {
        let index = self
            .versions
            .partition_point(|(_, catalog)| catalog.applied() <= op);
        let (_, catalog) = self.versions.get(index.checked_sub(1)?)?;
        Some(catalog)
    }

    /// The catalogs from an op on, that one included.
    pub(crate) fn catalogs_since(&self, op: Op) -> impl Iterator<Item = &Catalog> {
        let index = self
            .versions
            .partition_point(|(_, catalog)| catalog.applied() <= op);
        let versions = self.versions[index.saturating_sub(1)..].iter();
        versions.map(|(_, catalog)| &**catalog)
    }

    /// The op that executed a command.
    pub(crate) fn command(&self, session: SessionNumber, request: RequestNumber) -> Option<Op> {
        self.commands.get(&(session, request)).copied()
    }

    /// What an op of the metadata group came to.
    pub(crate) fn executed(&self, op: Op) -> Option<&Executed> {
        self.outcomes.get(&op)
    }

    /// Sessions that ended since this was last asked.
    pub(crate) fn take_ended(&mut self) -> Vec<(SessionNumber, wire::EvictionReason)> {
        std::mem::take(&mut self.ended)
    }

    fn history_mut(&mut self, group: ConsensusGroup) -> &mut History {
        self.histories.entry(group).or_default()
    }
}

/// What a consumer group asks of a partition.
#[derive(Clone, Copy, Debug)]
struct GroupRequest {
    key: PartitionKey,
    incarnation: Incarnation,
    admitted: Op,
    group: ConsumerGroupId,
    command: GroupCommand,
}

fn group_request(request: &DataRequest) -> Option<GroupRequest> {
    match *request {
        DataRequest::ConsumerGroup {
            key,
            incarnation,
            admitted,
            group,
            command,
        } => Some(GroupRequest {
            key,
            incarnation,
            admitted,
            group,
            command,
        }),
        _ => None,
    }
}

/// The model's record as a result. How a time is told was compared when it was resolved.
fn shown(group: ConsumerGroupId, model: &PartitionModel) -> DataResult {
    let State {
        fence,
        holder,
        reached,
    } = model
        .record(group)
        .map(|record| record.now())
        .unwrap_or_default();
    let start = match reached {
        Reached::Start(offset) => Some(StartAt::Offset(Offset(offset))),
        Reached::Time(time) => Some(StartAt::Time(time)),
        Reached::Unresolved | Reached::Stored(_) => None,
    };
    let record = GroupRecord {
        fence,
        holder,
        stored: reached.stored().map(Offset),
        start,
    };
    DataResult::Record { group, record }
}

/// A request, for people.
fn describe(request: &DataRequest) -> String {
    let (key, incarnation) = (request.key(), request.incarnation());
    let what = match request {
        DataRequest::CreatePartition { .. } => "create".into(),
        DataRequest::DropPartition { .. } => "drop".into(),
        DataRequest::Append { batch, .. } => format!(
            "append {} of producer {:x}, {} messages",
            batch.header.sequence,
            batch.header.producer >> 96,
            batch.header.count
        ),
        DataRequest::StoreOffset {
            consumer, offset, ..
        } => format!("store {offset} for {consumer}"),
        DataRequest::DeleteOffset { consumer, .. } => format!("delete the offset of {consumer}"),
        DataRequest::TruncateHead { offset, .. } => format!("truncate to {offset}"),
        DataRequest::ConsumerGroup { group, command, .. } => {
            format!("consumer group {group}: {command:?}")
        }
        DataRequest::DropConsumerGroup { group, .. } => format!("drop consumer group {group}"),
    };
    format!("{key} ({incarnation}): {what}")
}

/// Producer and place of every message of a stored batch, where a producer of the client crate sent it.
fn order_in(bytes: &Bytes) -> Vec<(u64, u64)> {
    let batch = Batch::read_admitted(bytes).expect("the ledger keeps whole batches");
    let messages = batch.messages().flatten();
    messages
        .filter_map(|message| order_of(message.id))
        .collect()
}

fn count_append(run: &mut Run, result: DataResult, messages: u32) {
    if let DataResult::Appended { repeated, .. } = result {
        run.counts.batches_repeated += u64::from(repeated);
        run.counts.batches_appended += u64::from(!repeated);
        run.counts.messages_appended += if repeated { 0 } else { u64::from(messages) };
    }
}

fn count_store(run: &mut Run, result: DataResult, asked: u64) {
    match result {
        DataResult::Stored { stored } => {
            run.counts.offsets_stored += 1;
            run.counts.stores_behind += u64::from(stored.0 > asked);
        }
        DataResult::Failed(partition::Refusal::OffsetOutOfRange { .. }) => {
            run.counts.stores_out_of_range += 1;
        }
        DataResult::Failed(_)
        | DataResult::Created
        | DataResult::Dropped
        | DataResult::Appended { .. }
        | DataResult::OffsetDeleted { .. }
        | DataResult::HeadTruncated { .. }
        | DataResult::Record { .. }
        | DataResult::ConsumerGroupDropped { .. } => {}
    }
}
