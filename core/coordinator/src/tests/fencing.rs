//! Two planes at once: members that poll and store through nodes whose metadata is old, with requests on
//! their way for any time, and a reconciler on every node that completes what it believes to be planned.
//! G2, G4, G5 after every step, G3 at the end.

use std::{collections::BTreeMap, vec, vec::Vec};

use proptest::{
    collection::vec, prelude::Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use wire::{ClientId, Epoch, MemberId, Offset, Op, PartitionId, SessionNumber};

use super::{MEMBERS_MAX, at, dynamic, fixed, group, random::Checked};
use crate::{
    Admission, Claim, ConsumerGroup, GroupChange, GroupOptions, GroupProjection, HandOver, Intent,
    Progress, Reset, ResetTo, Right, hand_over,
};

const PARTITIONS: u32 = 3;
const NODES: usize = 2;

/// What a data group keeps for one partition and the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Record {
    fence: Epoch,
    holder: Option<MemberId>,
    stored: Option<Offset>,
}

impl Record {
    fn raise(&mut self, epoch: Epoch, holder: Option<MemberId>) {
        if epoch > self.fence {
            self.fence = epoch;
            self.holder = holder;
        }
    }

    fn reset(&mut self, epoch: Epoch, holder: Option<MemberId>, reset: ResetTo) {
        if epoch > self.fence {
            self.raise(epoch, holder);
            self.stored = match reset {
                ResetTo::Nothing | ResetTo::Start(_) => None,
                ResetTo::Offset(offset) => Some(offset),
            };
        }
    }

    /// Whether it is accepted; raises the fence if it is newer.
    fn admits(&mut self, right: &Right) -> bool {
        self.raise(right.epoch, Some(right.member));
        right.epoch == self.fence && self.holder == Some(right.member)
    }
}

/// A request that was admitted and is not applied yet.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    partition: PartitionId,
    session: SessionNumber,
    right: Right,
    offset: Offset,
}

#[derive(Clone, Debug)]
enum Act {
    Metadata(Change),
    Follow {
        node: usize,
        ops: u8,
    },
    Poll {
        node: usize,
        client: u8,
        partition: u32,
        epoch: u8,
    },
    Store {
        node: usize,
        client: u8,
        partition: u32,
        epoch: u8,
        offset: u8,
    },
    Release {
        node: usize,
        client: u8,
        partition: u32,
        epoch: u8,
        planned: u8,
    },
    Land {
        nth: u8,
    },
    Reconcile {
        node: usize,
        timed_out: bool,
    },
    Complete {
        nth: u8,
        again: bool,
    },
}

fn act() -> impl Strategy<Value = Act> {
    use proptest::prelude::any;
    let client = || 1..5_u8;
    // Above the clients: whoever owns the partition, as the node sees it.
    let asker = || 1..12_u8;
    let node = || 0..NODES;
    let partition = || 0..PARTITIONS;
    prop_oneof![
        4 => (client(), proptest::bool::weighted(0.2)).prop_map(|(client, instance)| Act::Metadata(Change::Join { client, instance })),
        1 => client().prop_map(|client| Act::Metadata(Change::Leave { client })),
        1 => (0..4_u8).prop_map(|nth| Act::Metadata(Change::Expire { nth })),
        1 => (partition(), proptest::option::of(0..9_u8))
            .prop_map(|(partition, offset)| Act::Metadata(Change::Reset { partition, offset })),
        10 => (node(), 1..4_u8).prop_map(|(node, ops)| Act::Follow { node, ops }),
        20 => (node(), asker(), partition(), any::<u8>()).prop_map(
            |(node, client, partition, epoch)| Act::Poll { node, client, partition, epoch }
        ),
        15 => (node(), asker(), partition(), any::<u8>(), any::<u8>()).prop_map(
            |(node, client, partition, epoch, offset)| Act::Store { node, client, partition, epoch, offset }
        ),
        5 => (node(), asker(), partition(), any::<u8>(), any::<u8>()).prop_map(
            |(node, client, partition, epoch, planned)| Act::Release { node, client, partition, epoch, planned }
        ),
        8 => any::<u8>().prop_map(|nth| Act::Land { nth }),
        5 => (node(), any::<bool>()).prop_map(|(node, timed_out)| Act::Reconcile { node, timed_out }),
        5 => (any::<u8>(), any::<bool>()).prop_map(|(nth, again)| Act::Complete { nth, again }),
    ]
}

#[derive(Clone, Debug)]
enum Change {
    Join { client: u8, instance: bool },
    Leave { client: u8 },
    Expire { nth: u8 },
    Reset { partition: u32, offset: Option<u8> },
}

struct Planes {
    group: ConsumerGroup,
    op: u64,
    /// The change of every op, for nodes that follow later.
    changes: Vec<GroupChange>,
    /// What each node has followed, and up to which change.
    nodes: Vec<(GroupProjection, usize)>,
    records: Vec<Record>,
    in_flight: Vec<InFlight>,
    completions: Vec<(PartitionId, Epoch)>,
    /// Sessions of the clients: each join with an instance id comes from a new one.
    sessions: BTreeMap<u8, u64>,
    /// Epochs that there have been, to choose from; some are nobody's.
    epochs: Vec<u64>,
    /// Who has ever been accepted under an epoch of a partition.
    accepted: BTreeMap<(PartitionId, Epoch), (MemberId, SessionNumber)>,
    /// The highest epoch that was served a poll, and so knows where it starts.
    started: Vec<Epoch>,
    served: usize,
}

impl Planes {
    fn new() -> Self {
        let group = group(PARTITIONS, GroupOptions::default());
        let node = (GroupProjection::from(&group), 0);
        Self {
            group,
            op: 1,
            changes: Vec::new(),
            nodes: vec![node; NODES],
            records: vec![Record::default(); 3],
            in_flight: Vec::new(),
            completions: Vec::new(),
            sessions: BTreeMap::new(),
            epochs: vec![0, 1],
            accepted: BTreeMap::new(),
            started: vec![Epoch(0); 3],
            served: 0,
        }
    }

    fn run(&mut self, act: &Act) -> Checked {
        match act {
            Act::Metadata(change) => {
                self.metadata(change);
                Ok(())
            }
            Act::Follow { node, ops } => {
                (0..*ops).for_each(|_| self.follow(*node));
                Ok(())
            }
            Act::Poll {
                node,
                client,
                partition,
                epoch,
            } => {
                let at = (*node, PartitionId(*partition));
                let claim = self.claim(at, *client, *epoch, Intent::Poll);
                self.poll(at, &claim)
            }
            Act::Store {
                node,
                client,
                partition,
                epoch,
                offset,
            } => {
                let at = (*node, PartitionId(*partition));
                let claim = self.claim(at, *client, *epoch, Intent::Store);
                self.store(at, &claim, *offset);
                Ok(())
            }
            Act::Release {
                node,
                client,
                partition,
                epoch,
                planned,
            } => {
                let at = (*node, PartitionId(*partition));
                let planned = Epoch(self.epoch(at, *planned));
                let claim = self.claim(at, *client, *epoch, Intent::Release { planned });
                self.store(at, &claim, 200);
                Ok(())
            }
            Act::Land { nth } => self.land(usize::from(*nth)),
            Act::Reconcile { node, timed_out } => {
                self.reconcile(*node, *timed_out);
                Ok(())
            }
            Act::Complete { nth, again } => {
                self.complete(usize::from(*nth), *again);
                Ok(())
            }
        }
    }

    fn metadata(&mut self, change: &Change) {
        self.op += 1;
        let now = at(self.op);
        let change = match change {
            Change::Join { client, instance } => {
                // Every process that has the instance id logs in anew.
                let known = self.sessions.get(client).copied();
                let session = known.filter(|_| !instance).unwrap_or(self.op);
                let number = u64::from(*client);
                let mut join = if *instance {
                    fixed(number, "a")
                } else {
                    dynamic(number)
                };
                join.session = SessionNumber(session);
                let joined = self.group.join(now, join, MEMBERS_MAX);
                if joined.is_ok() {
                    self.sessions.insert(*client, session);
                }
                joined.ok().map(|(_, change)| change)
            }
            Change::Leave { client } => {
                let session = SessionNumber(self.sessions.get(client).copied().unwrap_or(0));
                self.group.leave(now, client_id(*client), session).ok()
            }
            Change::Expire { nth } => {
                let member = self.group.members().nth(usize::from(*nth));
                let member = member.map(|it| (it.id, it.session));
                member.map(|member| self.group.expire(now, &[member]))
            }
            Change::Reset { partition, offset } => {
                let to = offset.map_or(ResetTo::Nothing, |it| ResetTo::Offset(Offset(it.into())));
                let partitions = vec![(PartitionId(*partition), to)];
                Some(
                    self.group
                        .reset(
                            now,
                            &Reset {
                                partitions,
                                force: true,
                            },
                        )
                        .unwrap(),
                )
            }
        };
        self.publish(change);
    }

    fn publish(&mut self, change: Option<GroupChange>) {
        let Some(change) = change else {
            self.op -= 1;
            return;
        };
        assert_eq!(
            self.changes.len() as u64 + 2,
            self.op,
            "one change for every op"
        );
        self.changes.push(change);
        self.epochs.push(self.op);
    }

    fn follow(&mut self, node: usize) {
        let (projection, followed) = &mut self.nodes[node];
        if let Some(change) = self.changes.get(*followed) {
            projection.follow(change);
            *followed += 1;
        }
    }

    fn applied(&self, node: usize) -> Op {
        Op(self.nodes[node].1 as u64 + 1)
    }

    /// Mostly what a member that is as old as the node would say; else one that there has been, or one
    /// that nobody has.
    fn epoch(&self, (node, partition): (usize, PartitionId), pick: u8) -> u64 {
        let view = self.nodes[node].0.view(partition).unwrap();
        let back = usize::from(pick % 16);
        match pick {
            0..100 => view.epoch.0,
            100..160 => view.moving().map_or(view.epoch, |to| to.epoch).0,
            160..250 if back < self.epochs.len() => self.epochs[self.epochs.len() - 1 - back],
            _ => self.op + 5,
        }
    }

    fn claim(&self, at: (usize, PartitionId), client: u8, epoch: u8, intent: Intent) -> Claim {
        let view = self.nodes[at.0].0.view(at.1).unwrap();
        let known = self.sessions.get(&client).copied().unwrap_or(0);
        let known = (client_id(client), SessionNumber(known));
        let owner = view.owner().map(|owner| (owner.client, owner.session));
        let (client, session) = owner.filter(|_| client >= 5).unwrap_or(known);
        Claim {
            client,
            session,
            epoch: Epoch(self.epoch(at, epoch)),
            intent,
        }
    }

    fn admit(&self, (node, partition): (usize, PartitionId), claim: &Claim) -> Option<Right> {
        let (projection, _) = &self.nodes[node];
        match projection.admit(partition, claim, self.applied(node)) {
            Admission::Serve(right) | Admission::Lift(right) => Some(right),
            Admission::Park(_)
            | Admission::NotOwned
            | Admission::Revoking { .. }
            | Admission::NotMember(_)
            | Admission::PartitionNotFound { .. } => None,
        }
    }

    /// A poll is executed by a primary that has just been confirmed, so by the newest record.
    fn poll(&mut self, at: (usize, PartitionId), claim: &Claim) -> Checked {
        let (_, partition) = at;
        let Some(right) = self.admit(at, claim) else {
            return Ok(());
        };
        let entry = crate::group::index(partition);
        if !self.records[entry].admits(&right) {
            return Ok(());
        }
        self.served += 1;
        self.started[entry] = self.started[entry].max(right.epoch);
        let ownership = self.group.ownership(partition).unwrap();
        if let (Some(owner), Some(since)) = (ownership.owner(), ownership.held_since()) {
            let session = self.group.member(owner).unwrap().session;
            prop_assert_eq!((right.member, claim.session), (owner, session), "G4");
            prop_assert!(right.epoch >= since, "G4");
        }
        self.accept(partition, &right, claim.session)
    }

    fn accept(&mut self, partition: PartitionId, right: &Right, session: SessionNumber) -> Checked {
        let who = (right.member, session);
        let before = *self.accepted.entry((partition, right.epoch)).or_insert(who);
        prop_assert_eq!(
            before,
            who,
            "G2: an epoch belongs to one member and session"
        );
        Ok(())
    }

    fn store(&mut self, at: (usize, PartitionId), claim: &Claim, offset: u8) {
        let (_, partition) = at;
        if let Some(right) = self.admit(at, claim) {
            self.in_flight.push(InFlight {
                partition,
                session: claim.session,
                right,
                offset: Offset(offset.into()),
            });
        }
    }

    fn land(&mut self, nth: usize) -> Checked {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let landed = self.in_flight.swap_remove(nth % self.in_flight.len());
        let InFlight {
            partition,
            session,
            right,
            offset,
        } = landed;
        let entry = crate::group::index(partition);
        let record = &mut self.records[entry];
        let before = *record;
        if !record.admits(&right) {
            prop_assert_eq!(*record, before, "a refused store changes nothing");
            return Ok(());
        }
        record.stored = record.stored.max(Some(offset));
        if let Some((planned, to)) = right.release {
            record.raise(planned, Some(to));
        }
        prop_assert!(right.epoch >= self.started[entry], "G5");
        prop_assert!(self.records[entry].stored >= before.stored, "G5");
        self.accept(partition, &right, session)
    }

    /// Raises the fences of what may be handed over, and wants completed what is fenced.
    fn reconcile(&mut self, node: usize, timed_out: bool) {
        let moves: Vec<_> = self.nodes[node].0.moves().collect();
        for (partition, view) in moves {
            let record = &mut self.records[crate::group::index(partition)];
            let progress = Progress {
                fence: record.fence,
                fence_at_view: record.fence,
                timed_out,
                ..Progress::default()
            };
            let why: Option<HandOver> = hand_over(&view, &progress);
            let Some(planned) = view.moving().filter(|_| why.is_some()) else {
                continue;
            };
            let to = planned.to.map(|to| to.member);
            match planned.reset {
                None => record.raise(planned.epoch, to),
                Some(reset) => record.reset(planned.epoch, to, reset),
            }
            if (record.fence, record.holder) == (planned.epoch, to) {
                self.completions.push((partition, planned.epoch));
            }
        }
    }

    fn complete(&mut self, nth: usize, again: bool) {
        if self.completions.is_empty() {
            return;
        }
        let nth = nth % self.completions.len();
        let completed = self.completions[nth];
        if !again {
            self.completions.swap_remove(nth);
        }
        self.op += 1;
        let change = self.group.complete(at(self.op), &[completed]);
        self.publish(Some(change));
    }

    /// On a healed network everything comes to rest, and owners are served.
    fn come_to_rest(&mut self) -> Checked {
        for _ in 0..3 {
            for node in 0..NODES {
                (0..self.changes.len()).for_each(|_| self.follow(node));
                self.reconcile(node, true);
            }
            (0..self.completions.len()).for_each(|_| self.complete(0, false));
        }
        (0..self.changes.len()).for_each(|_| self.follow(0));
        for (partition, ownership) in (0..)
            .map(PartitionId)
            .zip(self.group.ownerships().collect::<Vec<_>>())
        {
            prop_assert_eq!(ownership.moving(), None, "G3");
            let Some(owner) = ownership.owner() else {
                prop_assert_eq!(self.group.members().len(), 0, "G3");
                continue;
            };
            let member = self.group.member(owner).unwrap();
            let claim = Claim {
                client: member.client,
                session: member.session,
                epoch: ownership.epoch,
                intent: Intent::Poll,
            };
            let served = self.served;
            self.poll((0, partition), &claim)?;
            prop_assert_eq!(self.served, served + 1, "the owner is served");
        }
        Ok(())
    }
}

fn client_id(client: u8) -> ClientId {
    ClientId(client.into())
}

proptest! {
    #[test]
    fn nothing_gets_past_the_fence(acts in vec(act(), 1..300)) {
        let mut planes = Planes::new();
        for act in &acts {
            planes.run(act)?;
        }
        planes.come_to_rest()?;
    }
}
