//! Work for consensus groups that another node leads: it goes there over the link between the nodes, and
//! its answer comes back the same way. When link or view is lost meanwhile, nobody knows whether it was
//! done, and whoever asked is told so.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    vec::Vec,
};

use catalog::GroupKey;
use wire::{
    ConsensusGroup, Epoch, ErrorCode, Event, Failure, GroupPrimary, PartitionId, PrimaryChanged,
    ReplicaId, ShardId, View,
};

use crate::{
    Answer, Effect, MeshMessage, Output, PeerMessage, Shard, Sign,
    host::{Asker, Member},
    mutation,
    work::{Origin, Slot, Work},
};

/// Items that go to another node in one message: some megabytes.
pub(crate) const LIST_MAX: usize = 64 * 1024;

/// How long nothing is forwarded to a node that has left something unanswered, nanoseconds: clients may reach it
/// where this node does not.
const SILENT: u64 = 5_000_000_000;

/// Bytes of prepares that may wait for the disk when another node sends more: some of what all primaries may have in
/// flight, and little memory.
pub(crate) const UNWRITTEN_MAX: u64 = 32 * 1024 * 1024;

/// Work that is at another node.
#[derive(Debug)]
struct Forward {
    /// Whom its answer is for.
    origin: Origin,
    to: ReplicaId,
    group: ConsensusGroup,
    /// The view in which that node led the group.
    view: View,
    /// When it was sent, and when it is given up: monotonic time.
    since: u64,
    until: u64,
    /// What is answered then.
    refused: Result<Output, Failure>,
}

impl Forward {
    /// The answer; one to other work says nothing of what came of this.
    fn checked(&self, answer: Answer) -> Answer {
        let fits = match &answer.outcome {
            Ok(output) => output.answers(&self.refused),
            Err(_) => true,
        };
        if fits {
            answer
        } else {
            Answer::without_group(self.refused.clone())
        }
    }
}

/// Work that waits until it is certain that this node leads its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadId(u64);

/// What this shard has forwarded and has no answer to.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    sent: BTreeMap<Slot, Forward>,
    by_origin: BTreeMap<Origin, Slot>,
    count: u64,
    /// Work that is done once it is certain that this node leads its group.
    reads: BTreeMap<ReadId, (Origin, Work)>,
    read_count: u64,
    /// Nodes to which nothing is forwarded until then: to which there is no link, or that left something
    /// unanswered until its time was over, and answered nothing else meanwhile. Monotonic time.
    unreachable: BTreeMap<ReplicaId, u64>,
    /// When each node last answered anything: monotonic time.
    answered_at: BTreeMap<ReplicaId, u64>,
    /// Who leads each group of this shard, as clients were told.
    told: BTreeMap<ConsensusGroup, GroupPrimary>,
}

impl Forwards {
    /// Of a process: slots are not those of the one before.
    pub(crate) fn new(incarnation: u64) -> Self {
        Self {
            count: incarnation,
            ..Self::default()
        }
    }

    /// What `from` answers; none when that was given up, or another node was asked.
    fn answered(&mut self, slot: Slot, from: ReplicaId) -> Option<Forward> {
        self.sent.get(&slot).filter(|forward| forward.to == from)?;
        self.remove(slot)
    }

    /// Whether the node has answered nothing since it was asked this. One that has is slow, and not silent.
    fn is_silent(&self, forward: &Forward) -> bool {
        let answered = self.answered_at.get(&forward.to);
        answered.is_none_or(|at| *at < forward.since)
    }

    fn is_unreachable(&self, node: ReplicaId, now: u64) -> bool {
        let until = self.unreachable.get(&node);
        until.is_some_and(|until| now < *until)
    }

    fn remove(&mut self, slot: Slot) -> Option<Forward> {
        let forward = self.sent.remove(&slot)?;
        self.by_origin.remove(&forward.origin);
        Some(forward)
    }

    /// Takes out what is lost.
    fn take(&mut self, is_lost: impl Fn(&Forward) -> bool) -> Vec<Forward> {
        let lost = self.sent.iter().filter(|(_, forward)| is_lost(forward));
        let slots: Vec<Slot> = lost.map(|(slot, _)| *slot).collect();
        slots
            .into_iter()
            .filter_map(|slot| self.remove(slot))
            .collect()
    }
}

impl Shard {
    /// This node's part in a group of this shard.
    pub(crate) fn member(&self, group: ConsensusGroup) -> Option<&Member> {
        match group {
            ConsensusGroup::METADATA => self.metadata.as_ref().map(|host| &host.member),
            _ => self.data.get(&group).map(|host| &host.member),
        }
    }

    pub(crate) fn member_mut(&mut self, group: ConsensusGroup) -> Option<&mut Member> {
        match group {
            ConsensusGroup::METADATA => self.metadata.as_mut().map(|host| &mut host.member),
            _ => self.data.get_mut(&group).map(|host| &mut host.member),
        }
    }

    /// Sends work to the node that leads its group, or refuses it when nobody does. Returns what is to be
    /// done here.
    pub(crate) fn pass_on(&mut self, origin: Origin, work: Work) -> Option<Work> {
        let Some(group) = work.group() else {
            return Some(work);
        };
        let Some(member) = self.member(group).filter(|member| !member.serves()) else {
            return Some(work);
        };
        match member.follows() {
            // It was forwarded once, or there is no link: whoever asked learns who leads, and may reach it.
            Some(to)
                if origin.node == self.config.replica
                    && !self.forwards.is_unreachable(to, self.desk.now.monotonic) =>
            {
                let view = member.primary().view;
                self.forward(origin, (group, to, view), work);
            }
            _ => {
                let failure = member.refusal(member.why_not_serving());
                let answer = Answer {
                    primary: member.primary(),
                    ..Answer::without_group(work.refused(&failure))
                };
                self.desk.answer(origin, answer);
            }
        }
        None
    }

    /// Holds back what would tell what this node knows, until it is certain that it still leads the group.
    /// Returns what need not wait.
    pub(crate) fn confirm_first(&mut self, origin: Origin, work: Work) -> Option<Work> {
        let is_read = match &work {
            Work::Attach(_) | Work::Offsets { .. } => true,
            Work::Catalog(work) => {
                let host = self.metadata.as_ref();
                host.is_some_and(|host| host.is_read(work))
            }
            Work::Login(_)
            | Work::Write { .. }
            | Work::Poll(_)
            | Work::GroupWrite(_)
            | Work::Groups
            | Work::Counters
            | Work::Verify(_)
            | Work::Replicas { .. } => false,
        };
        let asks = is_read && self.desk.has_peers && !mutation::CONFIRMATION;
        // What is not hosted here is refused where it would be done.
        let is_here = |group: &ConsensusGroup| self.member(*group).is_some();
        let Some(group) = work.group().filter(|group| asks && is_here(group)) else {
            return Some(work);
        };
        self.forwards.read_count += 1;
        let id = ReadId(self.forwards.read_count);
        let asker = Asker::Work(id);
        if group == ConsensusGroup::METADATA {
            let host = self.metadata.as_mut()?;
            host.member.confirm(&self.desk, asker);
            self.forwards.reads.insert(id, (origin, work));
            host.pump(&mut self.desk);
        } else {
            let host = self.data.get_mut(&group)?;
            host.member.confirm(&self.desk, asker);
            self.forwards.reads.insert(id, (origin, work));
            host.pump(&mut self.desk);
        }
        None
    }

    /// It is certain that this node leads the group of some work, or it does not.
    pub(crate) fn on_read_confirmed(&mut self, id: ReadId, outcome: Result<(), Failure>) {
        let Some((origin, work)) = self.forwards.reads.remove(&id) else {
            return;
        };
        match outcome {
            Ok(()) => self.carry_out(origin, work),
            Err(failure) => {
                let answer = Answer::without_group(work.refused(&failure));
                self.desk.answer(origin, answer);
            }
        }
    }

    fn forward(
        &mut self,
        origin: Origin,
        (group, to, view): (ConsensusGroup, ReplicaId, View),
        mut work: Work,
    ) {
        let now = self.desk.now;
        let mut until = now.after(2 * self.config.park_timeout);
        if let Work::Poll(poll) = &mut work {
            // Clocks differ from node to node.
            poll.deadline = poll.deadline.saturating_sub(now.monotonic);
            until = until.saturating_add(poll.deadline);
        }
        let code = if work.appends() {
            ErrorCode::OutcomeUnknown
        } else {
            ErrorCode::Retry
        };
        let text = format!(
            "node {to} led consensus group {group} in view {view}; it did not answer before link or view were lost"
        );
        let forward = Forward {
            origin,
            to,
            group,
            view,
            since: now.monotonic,
            until,
            refused: work.refused(&Failure::new(code, text)),
        };
        self.forwards.count = self.forwards.count.wrapping_add(1);
        let slot = Slot(self.forwards.count);
        self.forwards.sent.insert(slot, forward);
        self.forwards.by_origin.insert(origin, slot);
        let message = PeerMessage::Work {
            origin: self.origin(slot),
            group,
            work: work.into(),
        };
        self.counters.forwarded += 1;
        self.desk.push(Effect::Peer { to, message });
    }

    /// The wait of a poll is over, wherever it is.
    pub(crate) fn on_hurry(&mut self, origin: Origin) {
        self.polls.hurry(origin);
        let Some(slot) = self.forwards.by_origin.get(&origin).copied() else {
            return;
        };
        let forward = &self.forwards.sent[&slot];
        let (to, group) = (forward.to, forward.group);
        let origin = self.origin(slot);
        let message = PeerMessage::Hurry { origin, group };
        self.desk.push(Effect::Peer { to, message });
    }

    pub(crate) fn on_peer(&mut self, from: ReplicaId, message: PeerMessage) {
        match message {
            PeerMessage::Replica { group, message } => self.on_replica(from, group, message),
            PeerMessage::Commits(commits) => {
                for (group, commit) in commits {
                    self.on_replica(from, group, vsr::Message::Commit(commit));
                }
            }
            PeerMessage::CommitOks(oks) => {
                for (group, ok) in oks {
                    self.on_replica(from, group, vsr::Message::CommitOk(ok));
                }
            }
            PeerMessage::Transfer { group, message } => self.on_transfer(from, group, message),
            PeerMessage::Work {
                origin, mut work, ..
            } => {
                if let Work::Poll(poll) = &mut *work {
                    poll.deadline = self.desk.now.after(poll.deadline);
                }
                if origin.node == from {
                    self.work.push_back((origin, *work));
                }
            }
            PeerMessage::Answer { origin, answer } => {
                let now = self.desk.now.monotonic;
                if let Some(forward) = self.forwards.answered(origin.slot, from) {
                    self.forwards.answered_at.insert(from, now);
                    let answer = forward.checked(*answer);
                    self.desk.answer(forward.origin, answer);
                }
            }
            PeerMessage::Hurry { origin, .. } => {
                if origin.node == from {
                    self.polls.hurry(origin);
                }
            }
            PeerMessage::Moved(completed) => self.on_moved(completed),
            PeerMessage::Liveness(signs) => {
                if let Some(host) = &mut self.metadata {
                    host.on_signs(self.desk.now.monotonic, from, &signs);
                }
            }
            PeerMessage::Connections(sessions) => {
                if let Some(host) = &mut self.metadata {
                    host.on_connections(self.desk.now.monotonic, from, &sessions);
                }
            }
        }
    }

    /// A node speaks for its own replicas only. While the disk keeps up with nothing, because it is full or stands
    /// still, prepares count as lost on the way: a primary that has a majority without this node goes on, and what
    /// it says would be kept here in memory. What is missing is asked for when there is room.
    fn on_replica(&mut self, from: ReplicaId, group: ConsensusGroup, message: vsr::Message) {
        let is_prepare = matches!(
            message,
            vsr::Message::Prepare(_) | vsr::Message::RequestedPrepare(_)
        );
        if is_prepare && self.desk.unwritten() > UNWRITTEN_MAX {
            self.counters.prepares_dropped += 1;
        } else if message.replica() == from {
            self.feed(group, vsr::Input::Message(message));
        }
    }

    /// Gives up what is lost.
    fn give_up(&mut self, is_lost: impl Fn(&Forward) -> bool) {
        for forward in self.forwards.take(is_lost) {
            let answer = Answer::without_group(forward.refused);
            self.desk.answer(forward.origin, answer);
        }
    }

    pub(crate) fn expire_forwards(&mut self) {
        let now = self.desk.now.monotonic;
        let sent = self.forwards.sent.values();
        let expired = sent.filter(|forward| forward.until <= now);
        let silent = expired.filter(|forward| self.forwards.is_silent(forward));
        let silent: BTreeSet<ReplicaId> = silent.map(|forward| forward.to).collect();
        for node in silent {
            let until = self.forwards.unreachable.entry(node).or_default();
            *until = now.saturating_add(SILENT).max(*until);
        }
        self.give_up(|forward| forward.until <= now);
    }

    /// A link to another node is gone: nothing comes back over it, and its sessions have no connection.
    pub(crate) fn on_peer_down(&mut self, node: ReplicaId) {
        self.forwards.unreachable.insert(node, u64::MAX);
        self.give_up(|forward| forward.to == node);
        if let Some(host) = &mut self.metadata {
            host.on_connections(self.desk.now.monotonic, node, &[]);
        }
        let groups = self.data.keys().copied();
        let groups: Vec<ConsensusGroup> = core::iter::once(ConsensusGroup::METADATA)
            .chain(groups)
            .collect();
        for group in groups {
            if self.member(group).and_then(Member::follows) == Some(node) {
                self.feed(group, vsr::Input::PrimaryLost);
            }
        }
    }

    /// A link to another node is new: what it may have missed is said again.
    pub(crate) fn on_peer_up(&mut self, node: ReplicaId) {
        self.forwards.unreachable.remove(&node);
        self.give_up(|forward| forward.to == node);
        if self.leader_of_metadata() == Some(node) {
            self.tell_connections(node);
        }
        self.hand_overs.refresh();
    }

    /// Who leads the metadata group, where that is another node.
    fn leader_of_metadata(&self) -> Option<ReplicaId> {
        self.metadata.as_ref()?.member.follows()
    }

    fn tell_connections(&mut self, to: ReplicaId) {
        let Some(host) = &self.metadata else {
            return;
        };
        let mut sessions = host.connections_of(self.config.replica);
        let rest = sessions.split_off(sessions.len().min(LIST_MAX));
        let message = PeerMessage::Connections(sessions);
        self.desk.push(Effect::Peer { to, message });
        // Those that are not named have none, until they connect.
        let signs: Vec<Sign> = rest
            .into_iter()
            .flat_map(|(client, session, count)| {
                (0..count).map(move |_| Sign::Connected(client, session))
            })
            .collect();
        self.send_list(to, &signs, PeerMessage::Liveness);
    }

    /// Sends a list, in as many messages as it needs.
    fn send_list<T: Clone>(
        &mut self,
        to: ReplicaId,
        items: &[T],
        message: impl Fn(Vec<T>) -> PeerMessage,
    ) {
        for items in items.chunks(LIST_MAX) {
            let message = message(items.to_vec());
            self.desk.push(Effect::Peer { to, message });
        }
    }

    /// What this shard's connections did, for who watches over sessions. Only shard 0 knows who that is.
    pub(crate) fn pass_signs(&mut self, signs: Vec<Sign>) {
        let node = self.config.replica;
        let Some(host) = &mut self.metadata else {
            let message = MeshMessage::Liveness(signs);
            return self.desk.push(Effect::Mesh {
                to: ShardId(0),
                message,
            });
        };
        host.on_signs(self.desk.now.monotonic, node, &signs);
        if let Some(to) = host.member.follows() {
            self.send_list(to, &signs, PeerMessage::Liveness);
        }
    }

    /// Moves are complete: for who leads the metadata group. Only shard 0 knows who that is.
    pub(crate) fn on_moved(&mut self, completed: Vec<(GroupKey, PartitionId, Epoch)>) {
        let Some(host) = &mut self.metadata else {
            let message = MeshMessage::Moved(completed);
            return self.desk.push(Effect::Mesh {
                to: ShardId(0),
                message,
            });
        };
        match host.member.follows() {
            Some(to) => self.send_list(to, &completed, PeerMessage::Moved),
            None => host.on_completed(&completed),
        }
    }

    /// Status, view or primary of groups of this shard have changed.
    pub(crate) fn on_status_changed(&mut self, groups: &[ConsensusGroup]) {
        for group in groups {
            let Some(member) = self.member(*group) else {
                continue;
            };
            let now = member.primary();
            let (serves, follows) = (member.serves(), member.follows());
            self.give_up(|forward| {
                forward.group == *group && (follows != Some(forward.to) || now.view != forward.view)
            });
            if !serves {
                self.polls.on_leader_lost(*group);
            }
            let is_led = serves || follows.is_some();
            if is_led && self.forwards.told.insert(*group, now.clone()) != Some(now.clone()) {
                self.tell_primary(&now);
                if *group == ConsensusGroup::METADATA
                    && let Some(leader) = follows
                {
                    self.tell_connections(leader);
                }
            }
        }
    }

    /// Tells all connections of this node who leads a group now. A cluster of one has nothing to tell, nor
    /// has the first view.
    fn tell_primary(&mut self, primary: &GroupPrimary) {
        if self.config.nodes.len() == 1 || primary.view == View(0) {
            return;
        }
        for shard in (0..self.config.shard_count).map(ShardId) {
            if shard != self.config.shard {
                let message = MeshMessage::PrimaryChanged(primary.clone());
                self.desk.push(Effect::Mesh { to: shard, message });
            }
        }
        self.on_primary_changed(primary);
    }

    pub(crate) fn on_primary_changed(&mut self, primary: &GroupPrimary) {
        let event = Event::PrimaryChanged(PrimaryChanged {
            group: primary.group,
            view: primary.view,
            primary: primary.primary,
        });
        for connection in self.connections.bound() {
            self.send_event(connection, &event);
        }
    }
}
