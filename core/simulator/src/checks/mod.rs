//! What must hold, looked at after every step.

mod commands;
mod forgotten;
pub(crate) mod groups;
pub(crate) mod ledger;
mod messages;
mod offsets;
pub(crate) mod partition;
pub(crate) mod recycling;
mod sessions;
pub(crate) mod wire;

use std::collections::{BTreeMap, BTreeSet};

use ::wire::{
    Command, ConsensusGroup, FrameHeader, Op, PrepareHeader, SessionNumber, UserId, View,
};
use bytes::Bytes;
use catalog::Operation;
use journal::Record;
use shard::{Effect, Input, Note, Shard};
use vsr::ChainPoint;

use self::{
    ledger::Ledger,
    partition::{PartitionLimits, Step},
    sessions::Sessions,
    wire::Wire,
};
use crate::{Counts, network::LinkId, node::Node, run::Run, scenario::Scenario};

/// Everything that is checked.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) ledger: Ledger,
    pub(crate) wire: Wire,
    sessions: Sessions,
    /// The turns of shards so far.
    pub(crate) step: Step,
    /// What each group of a running process showed last.
    shown: BTreeMap<(usize, ConsensusGroup), Op>,
    /// The highest view that a replica of each group was ever in.
    views: BTreeMap<ConsensusGroup, View>,
    replicas: u8,
    /// Connections that were closed in this turn: they may be answered until it ends.
    closed: Vec<LinkId>,
    /// Whether damage was named since the run began.
    pub(crate) damage_named: bool,
    /// Replicas whose disks were lost, and which are not taken back (V13).
    pub(crate) without_disk: BTreeSet<(usize, ConsensusGroup)>,
    /// The node of which a record was lost with both its copies, and whether it has said so.
    pub(crate) record_lost: Option<(usize, bool)>,
}

impl Checks {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let limits = PartitionLimits {
            producers_max: scenario.producers_max as usize,
            consumers_max: scenario.consumers_max as usize,
        };
        let ledger = Ledger::new(
            (scenario.replicas, scenario.catalog()),
            |group| scenario.data(group),
            (limits, scenario.clients_max as usize),
        );
        Self {
            ledger,
            wire: Wire::default(),
            sessions: Sessions::default(),
            step: 0,
            shown: BTreeMap::new(),
            views: BTreeMap::new(),
            replicas: scenario.replicas,
            closed: Vec::new(),
            damage_named: false,
            without_disk: BTreeSet::new(),
            record_lost: None,
        }
    }

    /// A shard is about to take what is in its inbox.
    pub(crate) fn before_turn<'a>(
        &mut self,
        run: &mut Run,
        inputs: impl Iterator<Item = &'a Input>,
        (node, time, applied): (usize, u64, &[Op]),
    ) {
        self.step += 1;
        // With several nodes it may be another one that judges.
        let applied = if self.replicas == 1 { applied } else { &[] };
        for input in inputs {
            match input {
                Input::Frame {
                    connection,
                    header,
                    body,
                } => {
                    let link = LinkId(connection.0);
                    let asked = self.wire.on_request(
                        (node, link),
                        (header, body),
                        (self.step, time, applied),
                    );
                    run.note(&[13, link.0, header.checksum], || {
                        format!("connection {}: asks {}", link.0, asked.describe())
                    });
                    self.sessions.on_frame(run.now, link);
                }
                Input::BadFrame { connection, .. } => {
                    self.wire.on_bad_frame(LinkId(connection.0));
                }
                Input::Closed { connection } => self.closed.push(LinkId(connection.0)),
                Input::Opened { .. }
                | Input::Mesh { .. }
                | Input::Peer { .. }
                | Input::PeerUp { .. }
                | Input::PeerDown { .. }
                | Input::Receiving { .. }
                | Input::Moving
                | Input::PrepareRead { .. }
                | Input::Tick
                | Input::Journal(_)
                | Input::CheckpointWanted { .. }
                | Input::Changed { .. }
                | Input::Read { .. }
                | Input::Flushed { .. }
                | Input::SnapshotWritten { .. }
                | Input::SnapshotRead { .. }
                | Input::SnapshotDecoded { .. }
                | Input::PasswordChecked { .. }
                | Input::PasswordHashed { .. }
                | Input::Disk(_)
                | Input::Stop => {}
            }
        }
    }

    /// A shard has had its turn.
    pub(crate) fn after_turn(
        &mut self,
        run: &mut Run,
        scenario: &Scenario,
        (node, shard): (usize, &Shard),
        effects: &[Effect],
    ) {
        for effect in effects {
            match effect {
                Effect::Note(note) => self.on_note(run, scenario, node, note),
                Effect::Journal(Record::Prepare { header, body }) => {
                    self.check_proposal(run, (scenario, node), header, body);
                    self.ledger.prepared(run, *header, body.clone());
                }
                _ => {}
            }
        }
        if let Some(catalog) = shard.catalog() {
            let point = applied_point(shard, ConsensusGroup::METADATA);
            self.show(run, (node, ConsensusGroup::METADATA), point, || {
                catalog.digest()
            });
        }
        for group in Node::groups(scenario).skip(1) {
            if let Some(state) = shard.data_group(group) {
                let point = applied_point(shard, group);
                self.show(run, (node, group), point, || state.digest());
            }
        }
        for group in Node::groups(scenario) {
            let newest = self.views.entry(group).or_default();
            *newest = shard.view(group).unwrap_or_default().max(*newest);
        }
        let ended = self.ledger.take_ended();
        if !ended.is_empty() {
            self.sessions.on_ended(run, &ended);
        }
        self.check_served(run, scenario, shard);
        self.check_held(run, scenario, shard);
    }

    /// A shard sends a frame.
    pub(crate) fn on_sent(
        &mut self,
        run: &mut Run,
        (link, frame): (LinkId, &Bytes),
        (node, time): (usize, u64),
    ) {
        self.note_binding(run.now, (node, link), frame);
        let at = (self.step, time);
        match self.wire.on_sent(run, &self.ledger, (link, frame), at) {
            Ok(served) => {
                for served in served {
                    self.ledger.groups_mut().on_served(run, &served);
                }
            }
            Err(wrong) => run.fail(format!("connection {}: {wrong}", link.0)),
        }
    }

    /// Everything that a turn led to is done.
    pub(crate) fn end_turn(&mut self, run: &Run) {
        for link in std::mem::take(&mut self.closed) {
            self.wire.on_closed(link);
            self.sessions.on_closed(run.now, link);
        }
    }

    /// A process is gone, and with it everything that it was asked.
    pub(crate) fn on_crash(&mut self, run: &Run, node: usize) {
        self.wire.on_crash(node);
        self.sessions.on_crash(run.now, node);
        self.shown.retain(|(of, _), _| *of != node);
        self.ledger.groups_mut().on_crash(run.now, node);
    }

    /// A node leads the metadata group from now on.
    pub(crate) fn on_start(&mut self, run: &Run, node: usize) {
        self.sessions.on_start(run.now, node);
    }

    fn show(
        &mut self,
        run: &mut Run,
        place: (usize, ConsensusGroup),
        point: Option<ChainPoint>,
        digest: impl FnOnce() -> u128,
    ) {
        let Some(point) = point else { return };
        let op = point.op;
        let before = self.shown.insert(place, op);
        if before == Some(op) {
            return;
        }
        if before.is_some_and(|before| before > op) {
            run.fail(format!("group {}: back to op {op}", place.1));
        }
        self.ledger
            .shown(run, self.step, (place.1, point), digest());
    }

    fn check_proposal(
        &mut self,
        run: &mut Run,
        (scenario, node): (&Scenario, usize),
        header: &PrepareHeader,
        body: &Bytes,
    ) {
        let group = header.group();
        let proposer = vsr::primary_of(group, header.view(), self.replicas);
        if group != ConsensusGroup::METADATA || usize::from(proposer.0) != node {
            return;
        }
        let operation = Operation::decode(header.operation, body.clone());
        if let Ok(Operation::EndSessions { sessions, reason }) = operation
            && self.sessions.is_new(header.checksum)
        {
            let proposal = (sessions.as_slice(), reason);
            self.sessions
                .on_proposed(run, (&scenario.sessions, node), proposal);
        }
    }

    fn on_note(&mut self, run: &mut Run, scenario: &Scenario, node: usize, note: &Note) {
        run.note(&[8], || format!("node {node}: {note:?}"));
        let rotten = scenario.faults.rot.is_some();
        match note {
            Note::Replica {
                group,
                note: vsr::Note::Skipped { op },
            } if *group == ConsensusGroup::METADATA => self.ledger.skipped(*op),
            Note::Replica {
                note: vsr::Note::OutOfService(vsr::OutOfService::SuperblockMissing),
                ..
            } if self.record_lost.is_some_and(|(of, _)| of == node) => {
                self.record_lost = Some((node, true));
            }
            Note::Replica {
                note: vsr::Note::OutOfService(_),
                ..
            } => {
                run.counts.groups_out_of_service += 1;
                self.name_damage(run, rotten, note);
            }
            Note::Damaged { .. } => {
                run.counts.partitions_damaged += 1;
                // The others have it, so nothing is excused.
                let is_mended = scenario.segments_may_rot() && node < scenario.rotting();
                if !is_mended {
                    self.name_damage(run, rotten, note);
                }
            }
            Note::Mended { .. } => run.counts.segments_mended += 1,
            Note::Replica {
                group,
                note: vsr::Note::ViewEntered { view },
            } => {
                run.counts.views_entered += u64::from(view.0 > 0);
                // Whoever is in a view was taken back, and that is durable.
                let is_back = self.without_disk.remove(&(node, *group));
                run.counts.replicas_taken_back += u64::from(is_back);
            }
            Note::Checkpoint { .. } => run.counts.checkpoints += 1,
            Note::SessionRegistered { .. } => run.counts.sessions_registered += 1,
            Note::Replica { note, .. } => count_of_replica(&mut run.counts, note),
            Note::SessionEnded { .. } | Note::InstanceContended { .. } | Note::LoginRefused => {}
        }
    }

    fn name_damage(&mut self, run: &mut Run, rotten: bool, note: &Note) {
        self.damage_named = true;
        if !rotten {
            run.fail(format!("no bit is rotten, and yet: {note:?}"));
        }
    }

    /// A group that serves shows everything that was ever applied.
    fn check_served(&self, run: &mut Run, scenario: &Scenario, shard: &Shard) {
        for group in Node::groups(scenario).filter(|group| shard.serves(*group)) {
            if shard.view(group) < self.views.get(&group).copied() {
                // A deposed primary, which does not know it yet.
                continue;
            }
            let applied = self.ledger.applied(group);
            let op = shard.applied_point(group).unwrap_or_default().op;
            if op < applied {
                run.fail(format!(
                    "group {group} serves at op {op}, {applied} was applied"
                ));
            }
        }
    }

    /// After the last start every group serves.
    pub(crate) fn check_all_served(&self, run: &mut Run, scenario: &Scenario, nodes: &[Node]) {
        for group in Node::groups(scenario) {
            let is_served = nodes.iter().any(|node| node.serves(group));
            if !self.damage_named && !is_served {
                run.fail(format!("group {group} does not serve after the last start"));
            }
        }
    }

    fn note_binding(&mut self, now: u64, (node, link): (usize, LinkId), frame: &Bytes) {
        let Ok(header) = FrameHeader::read(frame) else {
            return;
        };
        let binds = [Command::Login.code(), Command::Attach.code()].contains(&header.code);
        if header.status != 0 || !binds {
            return;
        }
        let session = match header.code == Command::Login.code() {
            // The op of the register.
            true => SessionNumber(header.op().0),
            false => header.session(),
        };
        self.sessions.on_bound(now, (node, link), session);
    }

    fn check_held(&self, run: &mut Run, scenario: &Scenario, shard: &Shard) {
        let held = shard.held();
        run.counts.turns_with_parked += u64::from(held.parked > 0);
        let limit = held.connections * (scenario.limits.requests_in_flight as usize + INBOX_MAX);
        if held.requests > limit {
            run.fail(format!(
                "{} requests are held, {limit} may be",
                held.requests
            ));
        }
    }

    /// At the end nothing may be left of anybody.
    pub(crate) fn at_the_end(&self, run: &mut Run, shard: &Shard) {
        let held = shard.held();
        // What another node has passed on may come late, and waits until its time is over.
        let parked = if self.replicas == 1 { held.parked } else { 0 };
        if held.requests + parked + held.polls + held.work > 0 {
            run.fail(format!("at the end a shard holds {held:?}"));
        }
        self.ledger.check_forgotten(run);
        if self.ledger.catalog().user_by_id(UserId::ROOT).is_none() {
            run.fail("at the end there is no root");
        }
    }
}

/// Counts what happens to replicas and means nothing to the checks.
fn count_of_replica(counts: &mut Counts, note: &vsr::Note) {
    let count = match note {
        vsr::Note::CheckpointWanted { .. } => &mut counts.checkpoints_wanted,
        vsr::Note::CheckpointInstalled { .. } => &mut counts.checkpoints_installed,
        vsr::Note::CheckpointLost { is_bridged, .. } => match is_bridged {
            true => &mut counts.checkpoints_bridged,
            false => &mut counts.checkpoints_lost,
        },
        vsr::Note::Damaged { .. } => &mut counts.journals_damaged,
        vsr::Note::Repaired { .. } => &mut counts.prepares_repaired,
        vsr::Note::Truncated { .. } => &mut counts.ops_truncated,
        vsr::Note::Undecided { .. } => &mut counts.ops_undecided,
        _ => return,
    };
    *count += 1;
}

/// Requests that may be on their way to a shard when it says that it takes no more.
const INBOX_MAX: usize = 64;

/// The last op that a group has applied. A replica that is out of service applies nothing, and shows what its
/// snapshot held.
fn applied_point(shard: &Shard, group: ConsensusGroup) -> Option<ChainPoint> {
    let point = shard.applied_point(group);
    point.filter(|_| !shard.is_out_of_service(group))
}
