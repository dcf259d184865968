//! The metadata plane: every history that the bounds allow, made by the crate's own state machine.
//!
//! A history is a path in a tree, and its node stands for the state after its last op. So a copy of the
//! metadata that is behind is an earlier node of the same path, and a state of the model needs to name one
//! node only.

use std::collections::BTreeMap;

use coordinator::{
    Admission, At, Claim, ConsumerGroup, ConsumerGroups, GroupChange, GroupOptions,
    GroupProjection, Intent, Join, NewGroup, OwnershipView, Park, Weight,
};
use wire::{ClientId, Epoch, Op, PartitionId, SessionNumber, Timestamp};

/// A session by its number, from 1; 0 is nobody. See [`join_of`].
pub(crate) type Session = u8;
/// An op of the metadata group, and so an epoch.
pub(crate) type OpNumber = u8;

pub(crate) const A: Session = 1;
pub(crate) const B: Session = 2;
pub(crate) const C: Session = 3;
pub(crate) const SESSIONS: [Session; 3] = [A, B, C];

/// The group is created by op 1, and A has joined and owns the partition by op 2.
pub(crate) const FIRST: OpNumber = 2;
/// Ops fit 4 bits, with one to spare for an epoch that nobody has been given.
const OPS_MAX: OpNumber = 14;
const EPOCHS: usize = 16;
const PARTITION: PartitionId = PartitionId(0);

/// A stands by with weight 0, so the partition goes to B or C as soon as they are there and back when they
/// leave: with one partition, every join and leave moves it. B and C have one instance id, so C takes B's
/// membership over.
fn join_of(session: Session) -> Join {
    Join {
        client: ClientId(session.into()),
        session: SessionNumber(session.into()),
        instance: (session != A).then(|| "b".to_owned()),
        weight: Weight(u16::from(session != A)),
        address: String::new(),
    }
}

/// What is proposed to the metadata group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Command {
    Join(Session),
    Leave(Session),
    /// Completes the move that is planned.
    Complete,
}

/// What a session is told of the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) epoch: OpNumber,
    pub(crate) held_since: OpNumber,
    /// It is being revoked, for the move with this epoch.
    pub(crate) planned: Option<OpNumber>,
}

/// An epoch that was granted, and the op at which the unbroken ownership that it belongs to began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) epoch: OpNumber,
    pub(crate) session: Session,
    pub(crate) held_since: OpNumber,
}

/// What admission says, in the model's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Under this epoch; of a release also the epoch and session that the partition goes to.
    Right(OpNumber, Option<(OpNumber, Session)>),
    /// Until this op is applied.
    Unapplied,
    /// The asker is the target of the move to the epoch that it names.
    Coming,
    /// The asker is being revoked: it may not poll.
    Revoking,
    Refused,
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Poll,
    Store,
    Release(OpNumber),
}

/// The state after an op.
pub(crate) struct Node {
    pub(crate) op: OpNumber,
    /// Joins and leaves after the first op.
    pub(crate) plans: u8,
    group: ConsumerGroup,
    projection: GroupProjection,
    pub(crate) view: OwnershipView,
    /// Nodes by op; itself the last. The first entry is not one.
    path: Vec<u16>,
    pub(crate) children: BTreeMap<Command, u16>,
    /// By session.
    pub(crate) assigned: [Option<Assigned>; 4],
    /// By session: the op since which it has been told the same.
    told_since: [OpNumber; 4],
    pub(crate) granted: Vec<Granted>,
    /// Every epoch that was given, granted or planned, and to whom.
    pub(crate) given: Vec<(OpNumber, Session)>,
    verdicts: Vec<Verdict>,
}

/// All histories.
pub(crate) struct Plane {
    nodes: Vec<Node>,
}

const fn at(op: OpNumber) -> At {
    At {
        op: Op(op as u64),
        timestamp: Timestamp(op as u64),
    }
}

fn number(epoch: Epoch) -> OpNumber {
    OpNumber::try_from(epoch.0).expect("an epoch is an op of the model")
}

pub(crate) fn session_of(session: SessionNumber) -> Session {
    Session::try_from(session.0).expect("a session is one of the model")
}

/// To whom a partition moves and under which epoch.
pub(crate) fn moving(view: &OwnershipView) -> Option<(Session, OpNumber)> {
    let moving = view.moving()?;
    let to = moving
        .to
        .expect("without resets a partition moves to a member");
    Some((session_of(to.session), number(moving.epoch)))
}

pub(crate) fn owner(view: &OwnershipView) -> Option<Granted> {
    let owner = view.owner()?;
    Some(Granted {
        epoch: number(view.epoch),
        session: session_of(owner.session),
        held_since: number(view.held_since().expect("an owner holds since some op")),
    })
}

impl Plane {
    /// Every history with at most `plans` joins and leaves after A's first join, out of those given.
    pub(crate) fn new(plans: u8, comings: &[Command]) -> Self {
        let mut groups = ConsumerGroups::default();
        let new = NewGroup {
            name: "g".to_owned(),
            options: GroupOptions::default(),
            partitions: 1,
        };
        let group = groups.create(at(1), new, 1).expect("a group");
        let mut plane = Self { nodes: Vec::new() };
        let root = plane.add(None, group.clone());
        let joined = plane.apply(root, Command::Join(A)).expect("A joins");
        plane.nodes[usize::from(joined)].plans = 0;
        let mut next = joined;
        while usize::from(next) < plane.nodes.len() {
            for command in plane.commands(next, plans, comings) {
                if let Some(child) = plane.apply(next, command) {
                    plane.nodes[usize::from(next)]
                        .children
                        .insert(command, child);
                }
            }
            next += 1;
        }
        plane
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node of [`FIRST`].
    pub(crate) const ROOT: u16 = 1;

    pub(crate) fn node(&self, node: u16) -> &Node {
        &self.nodes[usize::from(node)]
    }

    /// The state of a node's history after an earlier op of it.
    pub(crate) fn copy(&self, node: u16, op: OpNumber) -> &Node {
        self.node(self.node(node).path[usize::from(op)])
    }

    fn commands(&self, node: u16, plans: u8, comings: &[Command]) -> Vec<Command> {
        let node = self.node(node);
        let mut commands = Vec::new();
        if node.plans < plans {
            commands.extend(comings);
        }
        if node.view.moving().is_some() {
            commands.push(Command::Complete);
        }
        commands
    }

    /// The node that a command leads to; none when it is refused or changes nothing.
    fn apply(&mut self, parent: u16, command: Command) -> Option<u16> {
        let before = self.node(parent);
        let at = at(before.op + 1);
        let mut group = before.group.clone();
        let change = match command {
            Command::Join(session) => group.join(at, join_of(session), 8).ok()?.1,
            Command::Leave(session) => {
                let Join {
                    client, session, ..
                } = join_of(session);
                group.leave(at, client, session).ok()?
            }
            Command::Complete => {
                let epoch = before.view.moving()?.epoch;
                group.complete(at, &[(PARTITION, epoch)])
            }
        };
        if change.is_empty() {
            return None;
        }
        let mut projection = before.projection.clone();
        projection.follow(&change);
        check(before, &group, &change);
        assert!(
            projection == GroupProjection::from(&group),
            "a projection follows its group"
        );
        let child = self.add(Some(parent), group);
        let plans = u8::from(command != Command::Complete);
        self.nodes[usize::from(child)].plans = self.node(parent).plans + plans;
        Some(child)
    }

    fn add(&mut self, parent: Option<u16>, group: ConsumerGroup) -> u16 {
        let id = u16::try_from(self.nodes.len()).expect("few histories");
        let before = parent.map(|parent| self.node(parent));
        let op = before.map_or(1, |before| before.op + 1);
        assert!(op <= OPS_MAX, "epochs of the model fit 4 bits");
        let mut path = before.map_or_else(|| vec![0], |before| before.path.clone());
        path.push(id);
        let projection = GroupProjection::from(&group);
        let view = projection.view(PARTITION).expect("it has one partition");
        let mut node = Node {
            op,
            plans: before.map_or(0, |before| before.plans),
            view,
            path,
            children: BTreeMap::new(),
            assigned: [None; 4],
            told_since: [op; 4],
            granted: before.map_or_else(Vec::new, |before| before.granted.clone()),
            given: before.map_or_else(Vec::new, |before| before.given.clone()),
            verdicts: Vec::new(),
            group,
            projection,
        };
        node.note(before);
        self.nodes.push(node);
        id
    }
}

/// What holds from op to op: G1, G2, and that moves are complete only by their epoch.
fn check(before: &Node, group: &ConsumerGroup, change: &GroupChange) {
    let after = group.ownership(PARTITION).expect("it has one partition");
    let changed = before.group.ownership(PARTITION) != Some(after);
    let generation = before.group.generation().0 + u64::from(changed);
    assert_eq!(
        group.generation().0,
        generation,
        "G2: counts what changes ownership"
    );
    assert_eq!(change.generation, group.generation());
    assert!(
        after.epoch >= before.view.epoch,
        "G2: granted epochs only rise"
    );
    for member in [after.owner(), after.heir()].into_iter().flatten() {
        assert!(group.member(member).is_some(), "G1: names members only");
    }
    let mut stale = group.clone();
    let generation = stale.generation();
    let planned = after.moving().map(|moving| moving.epoch.0);
    let op = At {
        op: Op(99),
        timestamp: Timestamp(99),
    };
    for epoch in (0..99).filter(|epoch| Some(*epoch) != planned) {
        stale.complete(op, &[(PARTITION, Epoch(epoch))]);
    }
    assert_eq!(
        stale.generation(),
        generation,
        "a completion names its move"
    );
}

impl Node {
    fn note(&mut self, before: Option<&Self>) {
        for session in SESSIONS {
            let index = usize::from(session);
            self.assigned[index] = self.assigned(session);
            if let Some(before) = before
                && before.assigned[index] == self.assigned[index]
            {
                self.told_since[index] = before.told_since[index];
            }
        }
        if let Some(granted) = owner(&self.view)
            && !self.granted.iter().any(|it| it.epoch == granted.epoch)
        {
            self.granted.push(granted);
        }
        let granted = owner(&self.view).map(|it| (it.epoch, it.session));
        let planned = moving(&self.view).map(|(to, epoch)| (epoch, to));
        for given in granted.into_iter().chain(planned) {
            let other = self.given.iter().find(|(epoch, _)| *epoch == given.0);
            match other {
                Some(other) => assert_eq!(*other, given, "G2: an epoch is one session's"),
                None => self.given.push(given),
            }
        }
        let claims = SESSIONS
            .into_iter()
            .flat_map(|session| (0..EPOCHS).map(move |epoch| (session, epoch)));
        self.verdicts = claims
            .flat_map(|(session, epoch)| {
                let plain = [Intent::Poll, Intent::Store];
                let planned = (0..EPOCHS as u64).map(Epoch);
                let releases = planned.map(|planned| Intent::Release { planned });
                let intents = plain.into_iter().chain(releases);
                intents.map(move |intent| (session, epoch, intent))
            })
            .map(|(session, epoch, intent)| self.admit(session, epoch, intent))
            .collect();
    }

    fn assigned(&self, session: Session) -> Option<Assigned> {
        let Join {
            client, session, ..
        } = join_of(session);
        let member = self.projection.membership(client, session).ok()?.id;
        let assignment = self.projection.assignment(member)?;
        let owned = assignment.owned.iter().map(|it| Assigned {
            epoch: number(it.epoch),
            held_since: number(it.held_since),
            planned: None,
        });
        let revoking = assignment.revoking.iter().map(|it| Assigned {
            epoch: number(it.epoch),
            held_since: number(it.held_since),
            planned: Some(number(it.planned)),
        });
        owned.chain(revoking).next()
    }

    fn admit(&self, session: Session, epoch: usize, intent: Intent) -> Verdict {
        let join = join_of(session);
        let claim = Claim {
            client: join.client,
            session: join.session,
            epoch: Epoch(epoch as u64),
            intent,
        };
        let admission = self.projection.admit(PARTITION, &claim, Op(self.op.into()));
        match admission {
            Admission::Serve(right) | Admission::Lift(right) => {
                let to = right.release.map(|(epoch, member)| {
                    let member = self.group.member(member).expect("a target is a member");
                    (number(epoch), session_of(member.session))
                });
                Verdict::Right(number(right.epoch), to)
            }
            Admission::Park(Park::Applied(_)) => Verdict::Unapplied,
            Admission::Park(Park::Moved(_)) => Verdict::Coming,
            Admission::Revoking { .. } => Verdict::Revoking,
            Admission::NotOwned | Admission::NotMember(_) | Admission::PartitionNotFound { .. } => {
                Verdict::Refused
            }
        }
    }

    /// What this copy of the metadata says of a claim.
    pub(crate) fn verdict(&self, session: Session, epoch: OpNumber, wish: Wish) -> Verdict {
        let wish = match wish {
            Wish::Poll => 0,
            Wish::Store => 1,
            Wish::Release(planned) => 2 + usize::from(planned),
        };
        let claim = usize::from(session - 1) * EPOCHS + usize::from(epoch);
        self.verdicts[claim * (EPOCHS + 2) + wish]
    }

    /// Whether a session that asks at this op learns something new by it.
    pub(crate) fn is_news(&self, session: Session) -> bool {
        self.told_since[usize::from(session)] == self.op
    }

    /// The op since which a session has been told the same.
    pub(crate) fn told_since(&self, session: Session) -> OpNumber {
        self.told_since[usize::from(session)]
    }

    /// The last ownership that the session has had.
    pub(crate) fn last_held(&self, session: Session) -> Option<OpNumber> {
        let own = self.granted.iter().rev();
        own.filter(|it| it.session == session)
            .map(|it| it.held_since)
            .next()
    }

    /// The last ownership that the session has had, and the one before it.
    pub(crate) fn last_two_held(&self, session: Session) -> (Option<OpNumber>, Option<OpNumber>) {
        let own = self.granted.iter().rev();
        let mut own = own.filter(|it| it.session == session && it.epoch == it.held_since);
        let mut next = || own.next().map(|it| it.held_since);
        (next(), next())
    }

    /// The grant of the partition's owner.
    pub(crate) fn grant_of_owner(&self) -> Granted {
        owner(&self.view).expect("only a source is told to release")
    }

    /// How many ownerships the session has had.
    pub(crate) fn ownerships(&self, session: Session) -> usize {
        let own = self.granted.iter();
        own.filter(|it| it.session == session && it.epoch == it.held_since)
            .count()
    }

    /// The highest epoch that was granted to another session.
    pub(crate) fn granted_to_others(&self, session: Session) -> OpNumber {
        let others = self.granted.iter().filter(|it| it.session != session);
        others.map(|it| it.epoch).max().unwrap_or(0)
    }

    /// A grant by its epoch.
    pub(crate) fn grant(&self, epoch: OpNumber) -> Option<Granted> {
        self.granted.iter().copied().find(|it| it.epoch == epoch)
    }
}
