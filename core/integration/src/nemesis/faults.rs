//! Does harm, and requires that the cluster goes on.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use wire::{CreateStream, DeleteStream, ErrorCode, Failure, Identifier, Reply, Request};

use super::{
    PROGRESS,
    findings::Findings,
    members::Members,
    plan::{Fault, GROUPS, Kind, Victim},
    producers::Producers,
    voice::Voice,
    wiping,
};
use crate::{Cluster, NODES, Passage};

/// Acknowledgements that are older are no load.
const LOAD: Duration = Duration::from_secs(2);

/// Lines of a node's events that are shown when something is wrong.
const LINES: usize = 15;

/// Of a kind of faults.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Suffered {
    /// How many there were.
    pub(super) count: u32,
    /// How many of them hit a node that led something, while producers were answered.
    pub(super) primaries: u32,
    /// The longest until all partitions went on, while the fault lasted and after it.
    pub(super) longest: [Duration; 2],
}

/// The cluster, and who does it harm.
#[derive(Debug)]
pub(super) struct Harm {
    cluster: Cluster,
    producers: Producers,
    members: Members,
    /// One for each node, past its gate.
    voices: Vec<Option<Voice>>,
    suffered: BTreeMap<Kind, Suffered>,
    number: u32,
    findings: Findings,
    /// What nodes said that were killed since.
    said: Vec<String>,
}

impl Harm {
    pub(super) fn new(
        cluster: Cluster,
        producers: Producers,
        members: Members,
        findings: Findings,
    ) -> Self {
        Self {
            cluster,
            producers,
            members,
            voices: (0..NODES).map(|_| None).collect(),
            suffered: BTreeMap::new(),
            number: 0,
            findings,
            said: vec![String::new(); NODES],
        }
    }

    pub(super) fn suffered(&self) -> BTreeMap<Kind, Suffered> {
        self.suffered.clone()
    }

    pub(super) fn into_parts(self) -> (Cluster, Producers, Members) {
        (self.cluster, self.producers, self.members)
    }

    /// One fault, from its beginning until everything is mended.
    pub(super) fn suffer(&mut self, fault: &Fault) {
        self.number += 1;
        if fault.kind == Kind::Wipe {
            // What only the victim and one other have must not be lost with both.
            self.wait_until_in_step();
        }
        let led = self.primaries();
        let victim = match fault.victim {
            Victim::Node(node) => node,
            Victim::Primary(group) => led.get(&group).copied().unwrap_or_default(),
        };
        let leads: Vec<u16> = (0..GROUPS)
            .filter(|group| led.get(group) == Some(&victim))
            .collect();
        let newest = self.producers.progress.newest();
        let under_load = newest.is_some_and(|newest| newest.elapsed() < LOAD);
        self.findings.tell(format_args!(
            "{}. {fault}: node {victim}, which leads {leads:?}",
            self.number
        ));
        let suffered = self.suffered.entry(fault.kind).or_default();
        suffered.count += 1;
        suffered.primaries += u32::from(!leads.is_empty() && under_load);
        self.begin(fault, victim);
        if let Some(member) = fault.member {
            self.members.replace(member);
        }
        if let Some(node) = fault.disconnected {
            self.cluster.client_gate(node).cut();
        }
        self.go_on(fault, 0, victim);
        thread::sleep(fault.lasts);
        self.mend(fault, victim);
        self.go_on(fault, 1, victim);
        if fault.kind == Kind::Wipe {
            self.wait_until_in_step();
        }
        thread::sleep(fault.rest);
        self.members.look_after();
        for node in 0..NODES {
            if self.cluster.has_ended(node) {
                self.findings
                    .wrong(format_args!("node {node} ended by itself"));
            }
        }
    }

    fn begin(&mut self, fault: &Fault, victim: usize) {
        match fault.kind {
            Kind::Wipe => {
                self.kill(victim);
                wiping::wipe(&self.cluster, victim);
            }
            Kind::Kill => self.kill(victim),
            Kind::KillAll => {
                (0..NODES).for_each(|node| self.kill(node));
                let order = [0, 1, 2].map(|step| (victim + step * fault.other) % NODES);
                self.cluster.start_in_order(&order);
            }
            Kind::Pause => self.cluster.server(victim).pause(),
            Kind::Isolate | Kind::Mute | Kind::Deafen | Kind::Part | Kind::Slow => {
                self.set_links(fault, victim, fault.passage);
            }
            Kind::Disconnect => {
                let count = self.cluster.client_gate(victim).cut();
                self.findings
                    .tell(format_args!("   {count} connections are cut"));
            }
        }
    }

    fn mend(&mut self, fault: &Fault, victim: usize) {
        match fault.kind {
            Kind::Kill => self.cluster.start_in_order(&[victim]),
            Kind::Wipe => match wiping::recover(&self.cluster, victim) {
                Ok(()) => self.cluster.start_in_order(&[victim]),
                Err(text) => self.findings.wrong(text),
            },
            Kind::Pause => self.cluster.server(victim).resume(),
            Kind::Isolate | Kind::Mute | Kind::Deafen | Kind::Part | Kind::Slow => {
                self.set_links(fault, victim, Passage::Open);
            }
            Kind::KillAll | Kind::Disconnect => {}
        }
    }

    /// All nodes are there, and lack nothing that is committed by now.
    fn wait_until_in_step(&self) {
        match wiping::wait_until_in_step(&self.cluster) {
            Ok(took) => self.findings.tell(format_args!(
                "   all nodes are in step, after {} ms",
                took.as_millis()
            )),
            Err(text) => {
                let number = self.number;
                self.findings
                    .wrong(format_args!("fault {number}: not in step: {text}"));
                self.show();
            }
        }
    }

    fn kill(&mut self, node: usize) {
        self.voices[node] = None;
        let ended = self.cluster.kill(node);
        self.said[node].push_str(&ended.stderr);
        self.said[node].push_str("\n---- killed\n");
    }

    fn set_links(&self, fault: &Fault, victim: usize, passage: Passage) {
        for step in 1..NODES {
            let other = (victim + step) % NODES;
            if fault.kind == Kind::Part && step != fault.other {
                continue;
            }
            if fault.kind != Kind::Mute {
                self.cluster.node_gate(victim).set(other, passage);
            }
            if fault.kind != Kind::Deafen {
                self.cluster.node_gate(other).set(victim, passage);
            }
        }
    }

    /// Every partition and the metadata must go on.
    fn go_on(&mut self, fault: &Fault, when: usize, victim: usize) {
        let since = Instant::now();
        let progress = self.producers.progress.after(since, PROGRESS);
        let when_text = ["while it lasts", "afterwards"][when];
        match progress {
            Ok(took) => {
                let suffered = self.suffered.entry(fault.kind).or_default();
                let longest = &mut suffered.longest[when];
                *longest = took.max(*longest);
                self.findings.tell(format_args!(
                    "   all partitions go on {when_text}, after {} ms",
                    took.as_millis()
                ));
            }
            Err(partitions) => {
                self.findings.wrong(format_args!(
                    "fault {}: {when_text} partitions {partitions:?} do not go on for {PROGRESS:?}",
                    self.number
                ));
                self.show();
            }
        }
        // One that reaches all others: neither the victim nor the other end of a link that is cut.
        let node = (victim + NODES - fault.other) % NODES;
        self.metadata_goes_on(when, when_text, node);
    }

    /// Makes something while a fault lasts, and deletes it afterwards, through this node.
    fn metadata_goes_on(&mut self, when: usize, when_text: &str, node: usize) {
        let since = Instant::now();
        let name = format!("after-{}", self.number);
        let request: Request = match when {
            0 => CreateStream { name }.into(),
            _ => DeleteStream {
                stream: Identifier::Name(name),
            }
            .into(),
        };
        let answer = self.ask(node, &request);
        let is_done = match &answer {
            Some(Ok(_)) => true,
            // It was done, and the answer was lost.
            Some(Err(failure)) => matches!(
                failure.code,
                ErrorCode::StreamAlreadyExists | ErrorCode::StreamNotFound
            ),
            None => false,
        };
        if !is_done || since.elapsed() > PROGRESS {
            self.findings.wrong(format_args!(
                "fault {}: {when_text} the metadata do not go on: {answer:?} after {:?}",
                self.number,
                since.elapsed()
            ));
            self.show();
        }
    }

    /// Asks a node. A session that has ended meanwhile, for what was done to the nodes, is followed by another.
    fn ask(&mut self, node: usize, request: &Request) -> Option<Result<Reply, Failure>> {
        let address = self.cluster.address(node);
        for voice in [self.voices[node].take(), None] {
            let voice = voice.or_else(|| Voice::login(&[address], 0));
            let Some(mut voice) = voice else { continue };
            match voice.insist(request.clone()) {
                None => {}
                Some(Err(failure)) if failure.code == ErrorCode::Unauthenticated => {}
                answer => {
                    self.voices[node] = Some(voice);
                    return answer;
                }
            }
        }
        None
    }

    /// Who leads each consensus group, by the node that knows the highest view of it.
    fn primaries(&mut self) -> BTreeMap<u16, usize> {
        let mut found: BTreeMap<u16, (u64, usize)> = BTreeMap::new();
        for node in 0..NODES {
            let answer = self.ask(node, &Request::GetClusterMetadata);
            let Some(Ok(Reply::ClusterMetadata(metadata))) = answer else {
                continue;
            };
            for group in &metadata.groups {
                let known = (group.view.0.into(), usize::from(group.primary.0));
                let newest = found.entry(group.group.0).or_insert(known);
                *newest = known.max(*newest);
            }
        }
        let primaries = found.into_iter();
        primaries.map(|(group, (_, node))| (group, node)).collect()
    }

    /// Shows what nodes said last.
    fn show(&self) {
        for node in 0..NODES {
            if !self.cluster.runs(node) {
                continue;
            }
            let lines = self.cluster.server(node).log().lines();
            for line in &lines[lines.len().saturating_sub(LINES)..] {
                self.findings.tell(format_args!("   node {node}: {line}"));
            }
        }
    }

    /// When something is wrong, writes down what the nodes said.
    pub(super) fn keep_logs(&self) {
        if self.findings.is_clean() {
            return;
        }
        for node in 0..NODES {
            let mut said = self.said[node].clone();
            if self.cluster.runs(node) {
                said.push_str(&self.cluster.server(node).log().text());
            }
            let name = format!("nemesis-{}-node-{node}.txt", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::write(&path, said) {
                Ok(()) => self.findings.tell(format_args!("see {}", path.display())),
                Err(error) => self
                    .findings
                    .tell(format_args!("{}: {error}", path.display())),
            }
        }
    }
}
