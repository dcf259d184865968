//! A whole run: nodes, clients, network, faults and checks, from one seed.

mod disks;
mod wipes;

use std::collections::BTreeMap;

use ::wire::{Attach, Command, ConsensusGroup, FrameHeader, Request};
use bytes::Bytes;
use journal::Record;
use shard::{ConnectionId, Effect, PeerMessage};

use crate::{
    case::Case,
    checks::{Checks, recycling, wire::KnownCommand},
    clients::{self, Clients},
    event::{Event, Fault, NetworkEvent, ProcessEvent},
    network::{LinkId, Network},
    node::{Node, RecoveryEvent, Refused, RunningEvent, State},
    peers::Peers,
    random::Random,
    report::Report,
    rot::Rot,
    run::{MILLISECOND, Run, SECOND},
    scenario::Scenario,
};

/// How long everything may take that is left when faults have ended.
const PATIENCE: u64 = 60 * SECOND;

/// The same, when bits are rotten and something may be out of service for good.
const PATIENCE_WITH_ROT: u64 = 12 * SECOND;

/// How long a client is silent at the most: whoever is silent when faults end is back with time to spare.
const SILENCE_MAX: u64 = PATIENCE_WITH_ROT / 2;

/// How long a node may take to stop.
const STOP_PATIENCE: u64 = 10 * SECOND;

/// How much longer than its rebalance timeout a consumer group may take to come to rest.
const REST_SLACK: u64 = SECOND;

/// The same with several nodes: primaries may have to be elected first.
const REST_SLACK_OF_SEVERAL: u64 = 4 * SECOND;

/// How often it is looked whether the next phase may begin.
const LOOK_INTERVAL: u64 = 10 * MILLISECOND;

/// The faults that come again and again.
const FAULTS: [Fault; 9] = [
    Fault::Crash,
    Fault::Stop,
    Fault::Cut,
    Fault::PeerCut,
    Fault::Pause,
    Fault::Jump,
    Fault::Garble,
    Fault::Rot,
    Fault::Checkpoint,
];

/// The same of disks; what they draw moves none of the others.
const DISK_FAULTS: [Fault; 5] = [
    Fault::SlowDisk,
    Fault::FailingDisk,
    Fault::FailingReads,
    Fault::FullDisk,
    Fault::LostDisk,
];

/// A whole run.
#[derive(Debug)]
pub(crate) struct World {
    seed: u64,
    run: Run,
    scenario: Scenario,
    random: Random,
    /// A source of chance for every kind of fault: the others happen as before where one is left out.
    fault_randoms: BTreeMap<Fault, Random>,
    nodes: Vec<Node>,
    /// Of each node's journal, where there are several.
    rot: Vec<Rot>,
    network: Network,
    peers: Peers,
    clients: Clients,
    checks: Checks,
    phase: Phase,
    /// The process that is ready, and since when it was last seen to be.
    ready: (u64, u64),
    /// Until when a node must have stopped that was told to, while clients work.
    stops_until: Option<u64>,
}

/// How far a run has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Clients work, and things go wrong.
    Chaos,
    /// No more faults: clients finish.
    Finish,
    /// Everything is read once more.
    Audit,
    /// The node stops, as it is told.
    Stop,
    /// It starts for the last time, and must be as it was.
    LastStart,
    Done,
}

impl World {
    pub(crate) fn new(case: &Case, prints: bool) -> Self {
        let mut random = Random::new(case.seed);
        let mut scenario = Scenario::new(&mut random, case.replicas);
        case.without.apply(&mut scenario);
        Self::of(case.seed, scenario, (random, prints))
    }

    /// A run of a seed that is over soon.
    #[cfg(test)]
    pub(crate) fn short(seed: u64, prints: bool) -> Self {
        let mut random = Random::new(seed);
        let scenario = Scenario::new(&mut random, 1).shortened();
        Self::of(seed, scenario, (random, prints))
    }

    /// A run of several nodes that is over soon, with what a test wishes to go wrong.
    #[cfg(test)]
    pub(crate) fn short_of(seed: u64, replicas: u8, wish: impl FnOnce(&mut Scenario)) -> Self {
        let mut random = Random::new(seed);
        let mut scenario = Scenario::new(&mut random, replicas).shortened();
        wish(&mut scenario);
        Self::of(seed, scenario, (random, false))
    }

    fn of(seed: u64, scenario: Scenario, (mut random, prints): (Random, bool)) -> Self {
        let mut run = Run::new(prints);
        run.note(&[], || format!("{scenario:#?}"));
        let nodes = (0..usize::from(scenario.replicas))
            .map(|id| Node::new(id, &scenario, &mut random))
            .collect();
        let network = Network::new(&scenario, &mut random);
        let clients = Clients::new(&mut run, &scenario, &mut random);
        let checks = Checks::new(&scenario);
        let peers = Peers::new(&scenario, &mut random);
        let mut fault_randoms = BTreeMap::from(FAULTS.map(|fault| (fault, random.fork())));
        let of_disks = DISK_FAULTS.iter().zip(1..);
        fault_randoms.extend(of_disks.map(|(fault, salt)| (*fault, random.aside(salt))));
        Self {
            seed,
            run,
            random,
            fault_randoms,
            rot: vec![Rot::default(); usize::from(scenario.replicas)],
            nodes,
            network,
            peers,
            clients,
            checks,
            scenario,
            phase: Phase::Chaos,
            ready: (0, 0),
            stops_until: None,
        }
    }

    /// Runs to the end, or until something is wrong. `lines` takes the lines of the trace as they come.
    pub(crate) fn finish(mut self, mut lines: impl FnMut(&str)) -> Report {
        for node in 0..self.nodes.len() {
            self.run.at(0, Event::Start { node });
        }
        self.plan_faults();
        self.run.after(LOOK_INTERVAL, Event::Look);
        while self.phase != Phase::Done && self.run.failure().is_none() {
            let Some(event) = self.run.next_event() else {
                self.run.fail("nothing is to come any more");
                break;
            };
            self.on_event(event);
            for line in self.run.trace.take_lines() {
                lines(&line);
            }
        }
        for line in self.run.trace.take_lines() {
            lines(&line);
        }
        Report {
            seed: self.seed,
            hash: self.run.trace.hash(),
            events: self.run.trace.events(),
            simulated: self.run.now,
            counts: self.run.counts,
            failure: self.run.failure().cloned(),
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Start { node } => {
                if matches!(self.nodes[node].state, State::Down) {
                    self.nodes[node].start(&mut self.run, &self.scenario);
                    self.plan_crash_at_start(node);
                }
            }
            Event::Process { node, boot, event } => {
                if self.nodes[node].boot == boot && self.nodes[node].is_up() {
                    self.on_process(node, event);
                    self.end_failed(node);
                }
            }
            Event::Peer {
                way,
                boots,
                frame,
                is_whole,
            } => {
                if self.peers.arrives(&self.nodes, way, boots) {
                    let frame = (&frame, is_whole);
                    if let Some(message) = self.peers.read(&mut self.run, way, frame) {
                        self.on_peer(way, message);
                    }
                }
            }
            Event::PeerLink { at, other, up } => self.on_peer_link(at, other, up),
            Event::PeerHeal { ways } => self.peers.heal(&mut self.run, Some(&ways)),
            Event::Network(event) => self.on_network(event),
            Event::Wake { client } => {
                let around = (&mut self.network, &self.checks.ledger);
                self.clients
                    .wake(&mut self.run, &self.scenario, around, client);
            }
            Event::Replace { client } => {
                self.clients.replace(&mut self.run, &self.scenario, client);
            }
            Event::Fault(fault) => self.on_fault(fault),
            Event::Look => self.look(),
        }
    }

    fn on_process(&mut self, node: usize, event: ProcessEvent) {
        let is_running = matches!(self.nodes[node].state, State::Running(_));
        if is_running {
            return self.on_running(node, event);
        }
        let (run, scenario) = (&mut self.run, &self.scenario);
        let event = match event {
            ProcessEvent::Recover(step) => {
                if let Err(refused) = self.nodes[node].recover(run, scenario, step) {
                    self.on_refused(node, &refused);
                }
                return;
            }
            ProcessEvent::JournalTurn => RecoveryEvent::Turn,
            ProcessEvent::JournalQuiet { records } => RecoveryEvent::Quiet(records),
            ProcessEvent::Job(job) => RecoveryEvent::Job(job),
            ProcessEvent::JournalInput(input) => RecoveryEvent::Input(*input),
            ProcessEvent::Input { .. } | ProcessEvent::Turn { .. } | ProcessEvent::Tick { .. } => {
                return;
            }
        };
        self.nodes[node].recover_journal(run, scenario, event);
        if self.nodes[node].process().is_some() {
            self.peers.on_start(&mut self.run, node);
        }
    }

    fn on_peer(&mut self, (from, to): (usize, usize), message: PeerMessage) {
        let shards = self.nodes[to].shards();
        let from = self.nodes[from].replica;
        for (shard, message) in message.by_shard(self.scenario.replicas, shards) {
            let input = shard::Input::Peer { from, message };
            let (run, scenario) = (&mut self.run, &self.scenario);
            self.nodes[to].give(run, scenario, usize::from(shard.0), input);
        }
    }

    fn on_peer_link(&mut self, at: usize, other: usize, up: bool) {
        let is_running = self.nodes[other].process().is_some();
        if up != is_running {
            // It has gone or come back meanwhile, and that is told, too.
            return;
        }
        let node = self.nodes[other].replica;
        for shard in 0..usize::from(self.nodes[at].shards()) {
            let input = match up {
                true => shard::Input::PeerUp { node },
                false => shard::Input::PeerDown { node },
            };
            self.nodes[at].give(&mut self.run, &self.scenario, shard, input);
        }
    }

    fn on_running(&mut self, node: usize, event: ProcessEvent) {
        let (run, scenario) = (&mut self.run, &self.scenario);
        let place = &mut self.nodes[node];
        match event {
            ProcessEvent::Input { shard, input } => place.give(run, scenario, shard, *input),
            ProcessEvent::Turn { shard } if place.paused_until > run.now => {
                let delay = place.paused_until - run.now;
                place.plan(run, delay, ProcessEvent::Turn { shard });
            }
            ProcessEvent::Turn { shard } => self.turn(node, shard),
            ProcessEvent::Tick { shard } => place.tick(run, scenario, shard),
            ProcessEvent::JournalTurn => {
                place.process_event(run, scenario, RunningEvent::JournalTurn);
            }
            ProcessEvent::JournalQuiet { records } => {
                place.process_event(run, scenario, RunningEvent::JournalQuiet(records));
            }
            ProcessEvent::JournalInput(input) => {
                place.process_event(run, scenario, RunningEvent::JournalInput(*input));
            }
            ProcessEvent::Job(job) => {
                place.process_event(run, scenario, RunningEvent::Job(job));
            }
            ProcessEvent::Recover(_) => {}
        }
    }

    /// A shard's turn: what has come goes in, what comes out is checked, then carried out.
    fn turn(&mut self, node: usize, shard: usize) {
        let now = self.nodes[node].clock.read(self.run.now).monotonic;
        let served = self.nodes[node].serves_metadata();
        let applied = self.nodes[node].metadata_applied();
        let inputs = self.nodes[node].inbox(shard);
        let place = (node, now, applied.as_slice());
        self.checks.before_turn(&mut self.run, inputs, place);
        let mut effects = self.nodes[node].turn(&self.run, shard);
        if let Some(thread) = self.nodes[node].thread(shard) {
            let place = (node, &thread.shard);
            self.checks
                .after_turn(&mut self.run, &self.scenario, place, &effects);
        }
        let dies_after = self.nodes[node].dies_after;
        if let Some(count) = dies_after {
            effects.truncate(count);
        }
        for effect in effects {
            self.carry_out((node, shard), effect, now);
        }
        self.checks.end_turn(&self.run);
        if dies_after.is_some() {
            return self.crash(node);
        }
        if !served && self.nodes[node].serves_metadata() {
            self.checks.on_start(&self.run, node);
        }
        self.check_journal(node);
    }

    fn carry_out(&mut self, (node, shard): (usize, usize), effect: Effect, now: u64) {
        let (run, scenario) = (&mut self.run, &self.scenario);
        let link = |connection: ConnectionId| LinkId(connection.0);
        match effect {
            Effect::Send { connection, frame } => {
                let link = link(connection);
                let frame = clients::joined(frame);
                note_sent(run, link, &frame);
                self.checks.on_sent(run, (link, &frame), (node, now));
                self.network.send_to_client(run, link, frame);
            }
            Effect::Peer { to, message } => {
                let way = (node, usize::from(to.0));
                self.peers.send(run, &self.nodes, way, message);
            }
            Effect::Close { connection } => self.network.close_by_node(run, link(connection)),
            // The reader of a connection takes frames of any size in these runs.
            Effect::Admit { .. } => {}
            Effect::Pause { connection } => {
                let paused = (link(connection), true);
                self.network
                    .set_paused(run, &mut self.nodes, scenario, paused);
            }
            Effect::Resume { connection } => {
                let resumed = (link(connection), false);
                self.network
                    .set_paused(run, &mut self.nodes, scenario, resumed);
            }
            effect => {
                if let Effect::Journal(Record::Superblock(record)) = &effect {
                    recycling::check(run, &self.nodes, record);
                }
                let is_checkpoint =
                    matches!(effect, Effect::Flush { .. } | Effect::WriteSnapshot { .. });
                self.nodes[node].carry_out(run, scenario, shard, effect);
                if is_checkpoint {
                    self.plan_crash_at_checkpoint(node);
                }
            }
        }
    }

    fn on_network(&mut self, event: NetworkEvent) {
        let (run, scenario) = (&mut self.run, &self.scenario);
        let reached = self.network.on_event(run, &mut self.nodes, scenario, event);
        if let Some(arrival) = reached {
            self.clients.on_arrival(run, arrival);
        }
    }

    fn on_refused(&mut self, node: usize, refused: &Refused) {
        let Refused(reason) = refused;
        self.run
            .note(&[9], || format!("node {node}: does not start: {reason}"));
        self.run.counts.starts_refused += 1;
        self.nodes[node].state = State::Refused;
        self.checks.damage_named = true;
        if self.scenario.faults.rot.is_none() {
            self.run.fail(format!("the start was refused: {reason}"));
        }
    }

    /// The journal must not grow beyond what it is allowed to.
    fn check_journal(&mut self, node: usize) {
        let journal = &self.scenario.journal;
        let largest = journal.file_size.max(journal.first_file_size);
        // Beside what is needed: the file that is written, the next one, one that is made, those that are
        // deleted meanwhile.
        let limit = journal.live_max + 5 * largest;
        let size = self.nodes[node].journal_size();
        if size > limit {
            self.run.fail(format!(
                "the journal has {size} bytes, {limit} are the limit"
            ));
        }
    }

    fn crash(&mut self, node: usize) {
        let power = self.random.chance(self.scenario.faults.power);
        self.crash_and_start(node, power);
    }

    /// The process ends, perhaps with the power; another one starts a while later.
    fn crash_and_start(&mut self, node: usize, power: bool) {
        self.stops_until = None;
        // Since it was struck last it has taken part, and so written its superblock records anew.
        let place = &mut self.nodes[node];
        let is_torn = power || place.trouble.failed().is_some();
        let was_ready = place.is_ready();
        place.kill(&mut self.run, power);
        if was_ready && !is_torn {
            self.rot_journal(node);
        }
        self.rot_snapshot(node);
        self.network.on_crash(&mut self.run, node);
        self.peers.on_crash(&mut self.run, node, power);
        self.checks.on_crash(&self.run, node);
        let delay = self.random.around(self.scenario.faults.down);
        self.run.after(delay, Event::Start { node });
    }

    fn plan_faults(&mut self) {
        let plan = self.scenario.faults;
        self.run.at(plan.until, Event::Fault(Fault::End));
        let faults = FAULTS.into_iter().chain(DISK_FAULTS);
        for fault in faults.filter(|fault| *fault != Fault::Rot) {
            self.plan_next(fault);
        }
        if let Some(time) = plan.rot {
            self.run.at(time, Event::Fault(Fault::Rot));
        }
    }

    fn plan_next(&mut self, fault: Fault) {
        let mean = mean_of(&self.scenario, fault);
        let random = self.fault_randoms.get_mut(&fault);
        let Some(random) = random.filter(|_| mean > 0) else {
            return;
        };
        let time = self.run.now + random.around(mean);
        if time < self.scenario.faults.until {
            self.run.at(time, Event::Fault(fault));
        }
    }

    /// A start is crashed now and then, wherever it is.
    fn plan_crash_at_start(&mut self, node: usize) {
        if self.random.chance(self.scenario.faults.at_start) {
            self.plan_crash_of(node, true);
        }
    }

    /// And so is a checkpoint.
    fn plan_crash_at_checkpoint(&mut self, node: usize) {
        if self.random.chance(self.scenario.faults.at_checkpoint) {
            self.plan_crash_of(node, false);
        }
    }

    fn plan_crash_of(&mut self, node: usize, at_start: bool) {
        let plan = self.scenario.faults;
        let delay = self.random.around(2 * self.scenario.latency.flush);
        if plan.crash > 0 && self.run.now + delay < plan.until {
            let boot = self.nodes[node].boot;
            let fault = Fault::CrashOf {
                node,
                boot,
                at_start,
            };
            self.run.after(delay, Event::Fault(fault));
        }
    }

    fn on_fault(&mut self, fault: Fault) {
        self.swap_random(fault);
        self.carry_out_fault(fault);
        self.swap_random(fault);
        self.plan_next(fault);
    }

    /// What a fault draws comes from the source of its kind, and after it from that of before again.
    fn swap_random(&mut self, fault: Fault) {
        if let Some(random) = self.fault_randoms.get_mut(&fault) {
            std::mem::swap(random, &mut self.random);
        }
    }

    fn carry_out_fault(&mut self, fault: Fault) {
        match fault {
            Fault::Crash => self.crash_some(),
            Fault::PeerCut => self.peers.cut_some(&mut self.run),
            Fault::Pause => self.pause_some(),
            Fault::Checkpoint => self.want_checkpoint(),
            Fault::CrashOf {
                node,
                boot,
                at_start,
            } => {
                let place = &self.nodes[node];
                if place.boot == boot && place.is_up() && !(at_start && place.is_ready()) {
                    self.crash(node);
                }
            }
            Fault::Stop => self.stop_for_a_while(),
            Fault::Cut => self.trouble_client(),
            Fault::Jump => {
                let by = i64::try_from(self.random.below(20_000_000)).unwrap_or(0) - 10_000_000;
                self.run.note(&[10], || format!("wall clock: {by} us"));
                let node = self.some_node();
                self.nodes[node].clock.jump(by);
            }
            Fault::Garble => self.garble(),
            Fault::Rot => self.rot(),
            Fault::SlowDisk => self.slow_disk_down(),
            Fault::FailingDisk => self.fail_disk(),
            Fault::FailingReads => self.fail_reads(),
            Fault::FullDisk => self.fill_disk(),
            Fault::LostDisk => self.lose_some_disk(),
            Fault::RecoveredDisk { node } => self.recover_node(node),
            Fault::End => {
                self.peers.calm(&mut self.run);
                for node in &mut self.nodes {
                    node.dies_after = None;
                    node.trouble.calm();
                }
                self.phase = Phase::Finish;
            }
        }
    }

    /// One of the nodes.
    fn some_node(&mut self) -> usize {
        match self.nodes.len() {
            1 => 0,
            count => self.random.index(count),
        }
    }

    /// A node does nothing for a while: as after SIGSTOP, and nobody is told.
    /// The journals need room: all nodes that run take a checkpoint of some group.
    fn want_checkpoint(&mut self) {
        let groups: Vec<ConsensusGroup> = Node::groups(&self.scenario).collect();
        let group = *self.random.pick(&groups);
        for node in 0..self.nodes.len() {
            let shards = self.nodes[node].shards();
            if shards > 0 {
                let shard = shard::shard_of_group(group, self.scenario.replicas, shards);
                let input = shard::Input::CheckpointWanted { group };
                let (run, scenario) = (&mut self.run, &self.scenario);
                self.nodes[node].give(run, scenario, usize::from(shard.0), input);
            }
        }
    }

    fn pause_some(&mut self) {
        let node = self.some_node();
        let pause = self.random.between(20, 1_200) * MILLISECOND;
        self.run.counts.pauses += 1;
        self.run.note(&[52, node as u64], || {
            format!("node {node}: stands still for {pause} ns")
        });
        self.nodes[node].paused_until = self.run.now + pause;
    }

    /// One node, or now and then all.
    fn crash_some(&mut self) {
        if self.nodes.len() > 1 && self.random.chance(100) {
            for node in 0..self.nodes.len() {
                self.crash_somehow(node);
            }
            return;
        }
        let node = self.some_node();
        self.crash_somehow(node);
    }

    /// Between two events, or in the middle of a shard's turn.
    fn crash_somehow(&mut self, node: usize) {
        if !self.nodes[node].is_up() {
            return;
        }
        if self.nodes[node].process().is_some() && self.random.chance(300) {
            self.nodes[node].dies_after = Some(self.random.index(4));
        } else {
            self.crash(node);
        }
    }

    /// An operator stops the node, and starts it again.
    fn stop_for_a_while(&mut self) {
        if self.nodes[0].is_ready() && self.stops_until.is_none() {
            self.run.note(&[17], || "node 0: is told to stop".into());
            self.run.counts.stops += 1;
            self.stops_until = Some(self.run.now + STOP_PATIENCE);
            self.tell_to_stop();
        }
    }

    /// Whether a node that was told to stop has done so.
    fn look_after_stop(&mut self) {
        let Some(until) = self.stops_until else {
            return;
        };
        if self.nodes[0].has_stopped() {
            return self.crash_and_start(0, false);
        }
        if self.run.now > until && !self.checks.damage_named {
            self.run.fail("the node does not stop");
        }
    }

    fn trouble_client(&mut self) {
        match self.random.below(10) {
            0..6 => {
                let open = self.network.open();
                if !open.is_empty() {
                    let link = *self.random.pick(&open);
                    self.network.cut(&mut self.run, link);
                }
            }
            6..9 => {
                let timeout = self.scenario.sessions.session_timeout;
                let silence = silence(&mut self.random, timeout);
                self.clients.freeze(&mut self.run, silence);
            }
            _ => self.clients.kill(&mut self.run, &mut self.network),
        }
    }

    /// Somebody connects and sends bytes that no client sends, or what another has sent.
    fn garble(&mut self) {
        let node = self.some_node();
        let link = self.network.connect(&mut self.run, usize::MAX, node);
        let commands = self.checks.wire.commands();
        if commands.is_empty() || self.random.chance(300) {
            let bytes = garbage(&mut self.random);
            self.network.send_to_node(&mut self.run, link, bytes);
        } else {
            let command = self.random.pick(&commands).clone();
            self.repeat(link, &command);
        }
        let delay = self.random.between(1, 300 * MILLISECOND);
        self.run
            .after(delay, Event::Network(NetworkEvent::ClientEnd { link }));
        self.run
            .after(delay, Event::Network(NetworkEvent::NodeEnd { link }));
    }

    /// A command arrives once more, over another connection of its session.
    fn repeat(&mut self, link: LinkId, command: &KnownCommand) {
        let code = Command::Attach.code();
        let correlation = ::wire::CorrelationId(self.random.number().max(1));
        let mut attach = FrameHeader::request(code, correlation, command.header.client());
        attach.session = command.header.session;
        let body = Request::from(Attach {
            secret: command.secret,
        });
        let frame = attach.frame(&body.encode());
        self.network
            .send_to_node(&mut self.run, link, Bytes::from(frame));
        // Nothing is taken before the connection is attached.
        let delay = self.random.around(10 * MILLISECOND);
        let bytes = Bytes::from(command.header.frame(&command.body));
        self.run
            .after(delay, Event::Network(NetworkEvent::ToNode { link, bytes }));
    }

    /// Looks whether the next phase may begin.
    fn look(&mut self) {
        self.run.after(LOOK_INTERVAL, Event::Look);
        let rotten = self.scenario.faults.rot.is_some();
        let patience = if rotten { PATIENCE_WITH_ROT } else { PATIENCE };
        if self.run.now > self.scenario.faults.until + patience {
            return self.give_up(rotten);
        }
        if self
            .nodes
            .iter()
            .any(|node| matches!(node.state, State::Refused))
        {
            self.phase = Phase::Done;
            return;
        }
        self.look_after_stop();
        match self.phase {
            Phase::Chaos | Phase::Done => {}
            Phase::Finish => {
                self.look_at_groups();
                if self.clients.have_ended() && self.has_converged() {
                    self.phase = Phase::Audit;
                    self.clients.add_auditor(&mut self.run, &self.scenario);
                }
            }
            Phase::Audit => {
                if self.clients.have_ended() && self.has_no_sessions() && self.waits_for_nothing() {
                    self.check_order();
                    self.stop();
                }
            }
            Phase::Stop => {
                if self.nodes.iter().all(Node::has_stopped) {
                    self.start_again();
                }
            }
            Phase::LastStart => {
                if self.nodes.iter().all(Node::is_ready) && self.is_led() {
                    self.check_end();
                    self.phase = Phase::Done;
                }
            }
        }
    }

    /// Consumer groups come to rest when nothing goes wrong any more; then their members may leave.
    fn look_at_groups(&mut self) {
        if !self.nodes.iter().all(Node::is_ready) || !self.is_led() {
            self.ready = (0, 0);
            return;
        }
        let boots = self.nodes.iter().map(|node| node.boot).sum();
        if self.ready.0 != boots {
            self.ready = (boots, self.run.now);
        }
        if self.clients.members_leave() {
            return;
        }
        let healed = self.ready.1.max(self.scenario.faults.until);
        let groups = self.checks.ledger.groups();
        let slack = match self.nodes.len() {
            1 => REST_SLACK,
            _ => REST_SLACK_OF_SEVERAL,
        };
        match groups.restless(self.run.now, healed, slack) {
            Ok(true) => {}
            Ok(false) => self.clients.let_members_leave(),
            Err(_) if self.checks.damage_named => self.clients.let_members_leave(),
            Err(wrong) => self.run.fail(wrong),
        }
    }

    fn give_up(&mut self, rotten: bool) {
        if rotten && self.checks.damage_named {
            self.phase = Phase::Done;
            return;
        }
        let converged = self.has_converged();
        let unfinished = self.clients.unfinished();
        let unanswered = self.checks.wire.unanswered();
        let held: Vec<String> = self.nodes.iter().map(Node::holds).collect();
        self.run.fail(format!(
            "no end in {:?}: converged {converged}, {unanswered} requests unanswered, {unfinished}; {}",
            self.phase,
            held.join("; ")
        ));
    }

    /// Whether the data groups have exactly the partitions that the metadata knows.
    fn has_converged(&self) -> bool {
        self.nodes.iter().all(Node::is_ready)
            && self.is_led()
            && self.checks.without_disk.is_empty()
            && self.checks.ledger.has_converged()
    }

    /// Whether every consensus group has a primary that serves.
    fn is_led(&self) -> bool {
        Node::groups(&self.scenario).all(|group| {
            let mut nodes = self.nodes.iter();
            nodes.any(|node| node.serves(group))
        })
    }

    fn has_no_sessions(&self) -> bool {
        self.checks.ledger.catalog().sessions().len() == 0
    }

    /// Whether no request is held back for a metadata op: whoever has sent it may be gone, and it is held
    /// until its time is over.
    fn waits_for_nothing(&self) -> bool {
        let processes = self.nodes.iter().filter_map(Node::process);
        let mut threads = processes.flat_map(|process| &process.threads);
        threads.all(|thread| thread.shard.held().parked == 0)
    }

    fn stop(&mut self) {
        self.phase = Phase::Stop;
        self.tell_to_stop();
    }

    fn tell_to_stop(&mut self) {
        self.checks.wire.stopping = true;
        for node in &mut self.nodes {
            for shard in 0..usize::from(node.shards()) {
                node.give(&mut self.run, &self.scenario, shard, shard::Input::Stop);
            }
        }
    }

    fn start_again(&mut self) {
        for process in self.nodes.iter().filter_map(Node::process) {
            for thread in &process.threads {
                self.checks.at_the_end(&mut self.run, &thread.shard);
            }
        }
        self.phase = Phase::LastStart;
        for node in 0..self.nodes.len() {
            let power = self.random.chance(500);
            self.nodes[node].kill(&mut self.run, power);
            self.network.on_crash(&mut self.run, node);
            self.peers.on_crash(&mut self.run, node, power);
            self.checks.on_crash(&self.run, node);
            self.run.after(MILLISECOND, Event::Start { node });
        }
    }

    fn check_order(&mut self) {
        if self.scenario.producers_max > 100 {
            let given_up = self.clients.given_up();
            self.checks.ledger.check_order(&mut self.run, given_up);
        }
    }

    fn check_end(&mut self) {
        self.checks
            .check_all_served(&mut self.run, &self.scenario, &self.nodes);
    }
}

const fn mean_of(scenario: &Scenario, fault: Fault) -> u64 {
    let plan = &scenario.faults;
    match fault {
        Fault::PeerCut => scenario.peers.cut,
        Fault::Pause => scenario.peers.pause,
        Fault::Checkpoint => scenario.peers.checkpoint,
        Fault::Crash => plan.crash,
        Fault::Stop => plan.stop,
        Fault::Cut => plan.cut,
        Fault::Jump => plan.jump,
        Fault::Garble => plan.garble,
        Fault::SlowDisk => scenario.disks.slow,
        Fault::FailingDisk => scenario.disks.fail,
        Fault::FailingReads => scenario.disks.fail_reads,
        Fault::FullDisk => scenario.disks.full,
        Fault::LostDisk => scenario.disks.lose,
        Fault::Rot => match plan.rot {
            Some(_) => plan.until / 3,
            None => 0,
        },
        Fault::CrashOf { .. } | Fault::RecoveredDisk { .. } | Fault::End => 0,
    }
}

/// How long a client is silent: around the time after which its session ends.
fn silence(random: &mut Random, session_timeout: u64) -> u64 {
    random.around(session_timeout).min(SILENCE_MAX)
}

fn note_sent(run: &mut Run, link: LinkId, frame: &Bytes) {
    let Ok(header) = FrameHeader::read(frame) else {
        return;
    };
    let numbers = [12, link.0, header.checksum, u64::from(header.status)];
    run.note(&numbers, || {
        let name = Command::from_code(header.code).map_or("event", Command::name);
        format!(
            "connection {}: {name}, status {}, {} bytes",
            link.0, header.status, header.size
        )
    });
}

/// At least a header's worth of bytes that are no request, or one that nobody may send.
fn garbage(random: &mut Random) -> Bytes {
    let code = match random.below(3) {
        0 => Command::GetStreams.code(),
        1 => 4_242,
        _ => Command::Attach.code(),
    };
    let correlation = ::wire::CorrelationId(random.number().max(1));
    let client = ::wire::ClientId(random.wide());
    let size = random.index(64);
    let body = random.bytes(size);
    let mut bytes = FrameHeader::request(code, correlation, client).frame(&body);
    match random.below(3) {
        0 => {}
        1 => {
            let position = random.index(bytes.len());
            bytes[position] ^= 1 << random.below(8);
        }
        _ => bytes = random.bytes(64 + size),
    }
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::{PATIENCE, PATIENCE_WITH_ROT, silence};
    use crate::{random::Random, run::SECOND};

    #[test]
    fn whoever_is_silent_when_faults_end_is_back_while_it_is_waited_for() {
        let mut random = Random::new(1524);
        let longest = (0..10_000).map(|_| silence(&mut random, 5 * SECOND / 2));
        let longest = longest.max().unwrap();
        assert!(longest > 5 * SECOND / 2, "sessions expire: {longest}");
        assert!(longest <= PATIENCE_WITH_ROT.min(PATIENCE) / 2, "{longest}");
    }
}
