//! Whatever is written, whenever the power fails, whatever rots.

use std::{collections::BTreeMap, vec::Vec};

use proptest::{collection::vec, prelude::*};
use wire::{ConsensusGroup, ShardId};

use super::disk::{Disk, config, prepare, superblock};
use crate::{Config, GroupScan, Input, Journal, Record, Scanned, Ticket, UnitSize, Verdict};

const SHARD: ShardId = ShardId(0);

#[derive(Clone, Debug)]
enum Action {
    Prepare {
        group: u16,
        size: usize,
    },
    Superblock {
        group: u16,
        advances: bool,
    },
    /// Some effects.
    Steps(usize),
    /// All effects.
    Run,
    Quiet,
    /// Power failure; the bits say which units of unflushed writes survive.
    Crash(u64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        10 => (0..4_u16, 0..6_000_usize).prop_map(|(group, size)| Action::Prepare { group, size }),
        3 => (0..4_u16, any::<bool>())
            .prop_map(|(group, advances)| Action::Superblock { group, advances }),
        4 => (1..4_usize).prop_map(Action::Steps),
        3 => Just(Action::Run),
        1 => Just(Action::Quiet),
        1 => any::<u64>().prop_map(Action::Crash),
        1 => prop_oneof![Just(0), Just(u64::MAX)].prop_map(Action::Crash),
    ]
}

/// What a group handed over.
#[derive(Clone, Debug, Default)]
struct GroupModel {
    /// The checksum that an op has.
    handed: BTreeMap<u64, u128>,
    acknowledged: u64,
    checkpoint: u64,
    /// The newest mark handed over, and the newest that is durable.
    mark: u64,
    durable_mark: u64,
}

struct Model {
    config: Config,
    disk: Disk,
    journal: Journal,
    groups: BTreeMap<u16, GroupModel>,
    /// What the shard's tickets stand for: group and op, or group and mark.
    prepares: BTreeMap<Ticket, (u16, u64)>,
    superblocks: BTreeMap<Ticket, (u16, u64)>,
    ticket: Ticket,
}

impl Model {
    fn new(config: Config) -> Self {
        Self {
            config,
            disk: Disk::default(),
            journal: Journal::new(config),
            groups: BTreeMap::new(),
            prepares: BTreeMap::new(),
            superblocks: BTreeMap::new(),
            ticket: Ticket(0),
        }
    }

    fn hand(&mut self, record: Record) {
        self.ticket.0 += 1;
        self.journal.handle(Input::Record {
            shard: SHARD,
            record,
        });
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Prepare { group, size } => {
                let state = self.groups.entry(group).or_default();
                let op = state.handed.last_key_value().map_or(1, |(op, _)| op + 1);
                let record = prepare(group, op, size);
                if let Record::Prepare { header, .. } = &record {
                    state.handed.insert(op, header.checksum);
                }
                self.hand(record);
                self.prepares.insert(self.ticket, (group, op));
            }
            Action::Superblock { group, advances } => {
                let state = self.groups.entry(group).or_default();
                if advances {
                    state.checkpoint = state.acknowledged;
                }
                state.mark += 1;
                let (checkpoint, mark) = (state.checkpoint, state.mark);
                self.hand(superblock(group, checkpoint, mark));
                self.superblocks.insert(self.ticket, (group, mark));
            }
            Action::Steps(count) => {
                for _ in 0..count {
                    self.disk.step(&mut self.journal);
                }
            }
            Action::Run => self.disk.run(&mut self.journal),
            Action::Quiet => {
                self.disk.run(&mut self.journal);
                self.disk.quiet(&mut self.journal);
            }
            Action::Crash(keeps) => self.crash(keeps),
        }
        self.count_progress();
    }

    fn count_progress(&mut self) {
        let progress = self.disk.progress.get(&SHARD).copied().unwrap_or_default();
        for (group, op) in self.prepares.range(..=progress.flushed).map(|(_, v)| v) {
            let state = self.groups.get_mut(group).expect("it handed over");
            state.acknowledged = state.acknowledged.max(*op);
        }
        for (group, mark) in self.superblocks.range(..=progress.repeated).map(|(_, v)| v) {
            let state = self.groups.get_mut(group).expect("it handed over");
            state.durable_mark = state.durable_mark.max(*mark);
        }
    }

    fn crash(&mut self, keeps: u64) {
        self.count_progress();
        self.disk
            .crash(self.config.unit_size, |unit| keeps >> (unit % 64) & 1 == 1);
        let scanned = self.restart();
        let torn = scanned.damage.iter().all(|d| d.verdict == Verdict::Torn);
        assert!(torn, "{:?}", scanned.damage);
        for (group, state) in &mut self.groups {
            let found = found(&scanned, *group);
            assert!(!found.superblock_lost);
            let mark = mark(&found);
            assert!(mark <= state.mark && mark >= state.durable_mark);
            let floor = found.superblock.as_ref().map_or(0, |s| s.checkpoint.0);
            let ops: Vec<u64> = found.prepares.iter().map(|p| p.header.op).collect();
            let head = ops.last().copied().unwrap_or(floor).max(floor);
            assert!(head >= state.acknowledged, "group {group}: {ops:?}");
            assert!(
                ops.iter().copied().eq(floor + 1..=head),
                "group {group} floor {floor} {ops:?}"
            );
            state.mark = mark;
            state.checkpoint = floor;
            state.acknowledged = head;
            state.handed.retain(|op, _| *op <= head);
        }
    }

    /// Scans, checks that nothing was made up, and goes on.
    fn restart(&mut self) -> Scanned {
        let (journal, scanned) = self.disk.restart(self.config);
        self.journal = journal;
        self.ticket = Ticket(0);
        self.prepares.clear();
        self.superblocks.clear();
        for (group, scan) in &scanned.groups {
            let mut before = 0;
            for prepare in &scan.prepares {
                let handed = &self.groups[&group.0].handed;
                assert_eq!(
                    handed.get(&prepare.header.op),
                    Some(&prepare.header.checksum)
                );
                assert!(prepare.header.is_valid_body(&prepare.body));
                assert!(prepare.header.op > before);
                before = prepare.header.op;
            }
        }
        scanned
    }

    /// Whatever was acknowledged is there, or said to be missing.
    fn check_told(&self, scanned: &Scanned) {
        for (group, state) in &self.groups {
            let found = found(scanned, *group);
            let is_told = !found.rotten.is_empty() || !found.uncertain.is_empty();
            if found.superblock_lost {
                continue;
            }
            // Files of a group that is not known at all may be lost as a whole.
            assert!(mark(&found) >= state.durable_mark || !scanned.damage.is_empty());
            let floor = found.superblock.as_ref().map_or(0, |s| s.checkpoint.0);
            for op in floor + 1..=state.acknowledged {
                let is_there = found.prepares.iter().any(|p| p.header.op == op);
                let is_known = scanned.groups.contains_key(&ConsensusGroup(*group));
                assert!(
                    is_there || is_told || !is_known && !scanned.damage.is_empty(),
                    "group {group} op {op}: {:?}",
                    scanned.damage
                );
            }
        }
    }
}

fn found(scanned: &Scanned, group: u16) -> GroupScan {
    let group = scanned.groups.get(&ConsensusGroup(group));
    group.cloned().unwrap_or_default()
}

fn mark(found: &GroupScan) -> u64 {
    let body = found.superblock.as_ref().map(|record| record.body.clone());
    body.map_or(0, |body| {
        u64::from_le_bytes(body[..].try_into().expect("8 bytes"))
    })
}

/// A quarter of what the environment says: the cases are long.
fn cases() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig {
        cases: config.cases / 4,
        failure_persistence: None,
        ..config
    }
}

fn unit_size() -> impl Strategy<Value = UnitSize> {
    prop_oneof![Just(UnitSize::Bytes512), Just(UnitSize::Bytes4096)]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn power_failures_lose_nothing_that_was_flushed(
        unit_size in unit_size(),
        actions in vec(action(), 1..150),
        keeps in any::<u64>(),
    ) {
        let mut model = Model::new(config(unit_size));
        for action in &actions {
            model.act(action);
        }
        model.crash(keeps);
        model.crash(0);
    }

    #[test]
    fn rot_is_never_hidden(
        unit_size in unit_size(),
        actions in vec(action(), 1..100),
        rot in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..20_000_usize), 1..4),
    ) {
        let mut model = Model::new(config(unit_size));
        for action in &actions {
            model.act(action);
        }
        model.disk.crash(unit_size, |_| false);
        model.count_progress();
        for (file, position, length) in &rot {
            let files: Vec<_> = model.disk.files.keys().copied().collect();
            if files.is_empty() {
                continue;
            }
            let bytes = model.disk.files.get_mut(file.get(&files)).expect("it is there");
            // Rot near the beginning, where there is something in most cases.
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
            let start = position.index(used);
            let end = (start + length).min(bytes.len());
            bytes[start..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
        for _ in 0..3 {
            let scanned = model.restart();
            model.check_told(&scanned);
            model.act(&Action::Prepare { group: 9, size: 100 });
            model.act(&Action::Run);
        }
    }

    #[test]
    fn cut_files_hide_nothing(
        actions in vec(action(), 1..100),
        file in any::<prop::sample::Index>(),
        length in any::<prop::sample::Index>(),
    ) {
        let mut model = Model::new(config(UnitSize::Bytes512));
        for action in &actions {
            model.act(action);
        }
        model.disk.crash(UnitSize::Bytes512, |_| false);
        let files: Vec<_> = model.disk.files.keys().copied().collect();
        if !files.is_empty() {
            let bytes = model.disk.files.get_mut(file.get(&files)).expect("it is there");
            bytes.truncate(length.index(bytes.len()));
        }
        let scanned = model.disk.scan(model.config);
        model.check_told(&scanned);
    }
}
