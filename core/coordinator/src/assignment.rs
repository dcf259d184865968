//! The plan: which partition goes to whom. Balanced, sticky, minimal, and a fixed point.
//!
//! [`plan`] is a pure function of the members, in order of ids, and the ownership table. It answers the
//! entries that have to change, in order of partitions, and changes nothing itself.
//!
//! **Terms.** A partition's *holder* is its owner or, if it has none, the member that it moves to. Its
//! *heir* is who will own it when nothing moves any more. A member *holds* so many partitions, and so
//! many are *planned* for it. With P partitions and M members of equal weight, the *base* is ⌊P/M⌋ and
//! P mod M members get one more, the *extra*; by weights, the base of a member is ⌊P·w/W⌋, and what is
//! left goes, one each, to members whose exact share is not a whole number. Base and extra are its
//! *quota*.
//!
//! **Steps.**
//!
//! 1. Extras: first to those that hold more than their base (each of them saves a move), of these and
//!    then of the others to those that more than their base is planned for (they were promised the extra
//!    before), then to those that own more, then to lower ids.
//! 2. A member that holds more than its quota gives up the difference: first what is being revoked from
//!    it already, then what comes to it from nobody, since it does not know of that yet, then what it
//!    owns, in each case most recently planned or granted first (ties: highest id). A member that has
//!    more revocations than it has to give up gets some of them cancelled: first those whose target is
//!    gone or has more coming than room, then those granted to it longest ago (ties: lowest id).
//! 3. A member that holds less than its quota has room. What is on its way to it from an owner stays so,
//!    as far as there is room.
//! 4. All the rest needs a target: partitions without a holder, those given up in step 2, and moves whose
//!    target is gone or full. They are handed out in order of partitions to the members with room in order
//!    of ids. The numbers fit exactly, because quotas and partitions have the same sum.
//!
//! **Example.** Six partitions, all owned by member 1. Members 2 and 3 join, in that order.
//!
//! | op | 0 | 1 | 2 | 3 | 4 | 5 | why |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | 10: 1 joins | 1 | 1 | 1 | 1 | 1 | 1 | never owned: granted at once, epoch 10 |
//! | 20: 2 joins | 1 | 1 | 1 | 1→2 | 1→2 | 1→2 | quota 3: member 1 gives up three; all are as old, so the highest |
//! | 30: 3 joins | 1 | 1 | 1→3 | 1→2 | 1→2 | 1→3 | quota 2: member 1 gives up one more; member 2 has room for two of its three, the last gets another target |
//! | 40: fences of 3 and 4 | 1 | 1 | 1→3 | 2 | 2 | 1→3 | completions leave nothing to plan |
//! | 50: 3 leaves | 1 | 1 | 1 | 2 | 2 | 1→2 | quota 3: member 1 holds four, so one revocation is cancelled (epoch 50), and one gets a target that is there |
//!
//! In op 30 partition 5 keeps the deadline of op 20, in op 50 as well. In op 50 both targets are gone and
//! both partitions are as old, so the lower one stays. Nothing has moved that need not: in the end two of
//! six partitions have, and a third follows.
//!
//! **Why it is minimal.** Whatever the quotas, a member must lose at least what it holds above its quota,
//! and step 2 takes exactly that. An extra saves a move only for a member that holds more than its base,
//! one for each; step 1 gives as many of them an extra as there are extras.
//!
//! **Why it is a fixed point**, right after a plan and after any of its moves went on. A plan makes what
//! is planned for each member equal to its quota. Completions, take-overs, resets and purges change no
//! heir; a holder stays or becomes the heir. So if the extras go to the same members again, steps 2 to 4
//! find nothing to do. If some member without an extra holds more than its base, it has moves away from
//! it that are not complete, and held no less when the plan was made: then every extra went to a member
//! that held more than its base, and still does, because it gives up only what is above its quota. Among
//! those, the ones with an extra are the ones for which more than the base is planned. If no member
//! without an extra holds more than its base, then all that do have one, and the rest goes again to those
//! for which more is planned. So completions need no plan, and nobody's partition moves twice for one
//! reason.
//!
//! **Cost** O(P + M): a few passes over both, and linear selection instead of sorting.

use alloc::{vec, vec::Vec};

use crate::{
    Holding, Ownership,
    member::{Members, Slot},
};

/// What becomes of one entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It goes to another member than before.
    Assign {
        /// To whom.
        to: Slot,
    },
    /// Its revocation ends; the owner keeps it.
    Cancel,
    /// Its target is gone, and there is no other.
    Strand,
}

/// The entries that have to change, by index, in order.
pub(crate) fn plan(members: &Members, ownership: &[Ownership<Slot>]) -> Vec<(usize, Decision)> {
    if members.is_empty() {
        return stranded(members, ownership);
    }
    let mut planner = Planner::new(members, ownership);
    planner.share_out();
    planner.cancel();
    planner.give_up();
    planner.hand_out()
}

/// Without members only moves to one that is gone have to change.
fn stranded(members: &Members, ownership: &[Ownership<Slot>]) -> Vec<(usize, Decision)> {
    let entries = ownership.iter().enumerate();
    entries
        .filter(|(_, entry)| entry.heir().is_some_and(|to| members.at(to).is_none()))
        .map(|(index, _)| (index, Decision::Strand))
        .collect()
}

/// A member in the plan. Partitions are counted.
struct Share {
    slot: Slot,
    weight: u64,
    /// Its share, rounded down.
    base: u32,
    /// Whether its exact share is above its base.
    fraction: bool,
    quota: u32,
    /// Owns, those included that are being revoked from it.
    owned: u32,
    /// Being revoked from it.
    outgoing: u32,
    /// On their way to it from nobody.
    fencing: u32,
    /// On their way to it from an owner.
    incoming: u32,
}

impl Share {
    const fn held(&self) -> u32 {
        self.owned + self.fencing
    }

    const fn planned(&self) -> u32 {
        self.held() - self.outgoing + self.incoming
    }

    const fn excess(&self) -> u32 {
        self.held().saturating_sub(self.quota)
    }

    const fn room(&self) -> u32 {
        self.quota.saturating_sub(self.held())
    }

    /// Revocations that end.
    const fn cancelled(&self) -> u32 {
        self.outgoing.saturating_sub(self.excess())
    }

    /// What it gives up beside the revocations that there are.
    const fn given_up(&self) -> u32 {
        self.excess().saturating_sub(self.outgoing)
    }
}

/// What is decided about an entry so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Cancelled,
    NeedsTarget,
}

/// An entry that its member may be asked for; the least comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    class: bool,
    age: u64,
    order: u32,
    entry: u32,
}

struct Planner<'a> {
    ownership: &'a [Ownership<Slot>],
    /// In order of member ids; the index is the member's rank.
    shares: Vec<Share>,
    /// By slot.
    ranks: Vec<Option<u32>>,
    /// By entry.
    fates: Vec<Fate>,
}

impl<'a> Planner<'a> {
    fn new(members: &Members, ownership: &'a [Ownership<Slot>]) -> Self {
        let mut ranks = vec![None; members.slots()];
        let mut shares = Vec::with_capacity(members.len());
        for (rank, (slot, member)) in (0..).zip(members.iter()) {
            ranks[slot.index()] = Some(rank);
            shares.push(Share {
                slot,
                weight: member.weight.0.into(),
                base: 0,
                fraction: false,
                quota: 0,
                owned: 0,
                outgoing: 0,
                fencing: 0,
                incoming: 0,
            });
        }
        let mut planner = Self {
            ownership,
            shares,
            ranks,
            fates: vec![Fate::Stays; ownership.len()],
        };
        planner.count();
        planner
    }

    fn count(&mut self) {
        for entry in self.ownership {
            match entry.holding {
                Holding::Nobody => {}
                Holding::Owned { owner, .. } => self.owner(owner).owned += 1,
                Holding::Revoking { owner, to, .. } => {
                    let owner = self.owner(owner);
                    owner.owned += 1;
                    owner.outgoing += 1;
                    if let Some(rank) = self.rank(to) {
                        self.share(rank).incoming += 1;
                    }
                }
                Holding::Fencing { to, .. } => {
                    if let Some(rank) = to.and_then(|to| self.rank(to)) {
                        self.share(rank).fencing += 1;
                    }
                }
            }
        }
    }

    /// None for a member that is gone.
    fn rank(&self, slot: Slot) -> Option<u32> {
        self.ranks.get(slot.index()).copied().flatten()
    }

    fn share(&mut self, rank: u32) -> &mut Share {
        &mut self.shares[wide(rank)]
    }

    fn owner(&mut self, slot: Slot) -> &mut Share {
        let rank = self.rank(slot);
        self.share(rank.expect("owners are members: who goes lets go first"))
    }

    /// Step 1: base, extra and quota of each member.
    fn share_out(&mut self) {
        let partitions = self.ownership.len() as u64;
        let mut weights: u64 = self.shares.iter().map(|share| share.weight).sum();
        if weights == 0 {
            // All stand by, so all serve.
            weights = self.shares.len() as u64;
            for share in &mut self.shares {
                share.weight = 1;
            }
        }
        let mut left = partitions;
        for share in &mut self.shares {
            let exact = partitions * share.weight;
            share.base = narrow(exact / weights);
            share.fraction = !exact.is_multiple_of(weights);
            share.quota = share.base;
            left -= u64::from(share.base);
        }
        for rank in self.extras(wide(narrow(left))) {
            self.share(rank).quota += 1;
        }
    }

    /// The members that get one of `count` extras.
    fn extras(&self, count: usize) -> Vec<u32> {
        let ranked = (0..).zip(&self.shares);
        let ranked = ranked.filter(|(_, share)| share.fraction);
        let mut ranks: Vec<u32> = ranked.map(|(rank, _)| rank).collect();
        assert!(
            count == 0 || count < ranks.len(),
            "fractions below 1 add up to the extras"
        );
        if count > 0 {
            ranks.select_nth_unstable_by_key(count - 1, |rank| {
                let share = &self.shares[wide(*rank)];
                let holds_more = share.held() > share.base;
                let promised = share.planned() > share.base;
                (!holds_more, !promised, u32::MAX - share.owned, *rank)
            });
        }
        ranks.truncate(count);
        ranks
    }

    /// Step 2, where a member has more revocations than it has to give up.
    fn cancel(&mut self) {
        let mut candidates = Vec::new();
        for (entry, ownership) in (0..).zip(self.ownership) {
            let Holding::Revoking {
                owner,
                held_since,
                to,
                ..
            } = ownership.holding
            else {
                continue;
            };
            let owner = self.rank(owner).expect("owners are members");
            if self.shares[wide(owner)].cancelled() == 0 {
                continue;
            }
            let target = self.rank(to).map(|rank| &self.shares[wide(rank)]);
            let fits = target.is_some_and(|target| target.incoming <= target.room());
            let candidate = Candidate {
                class: fits,
                age: held_since.0,
                order: entry,
                entry,
            };
            candidates.push((owner, candidate));
        }
        for entry in self.select(&candidates, Share::cancelled) {
            self.fates[wide(entry)] = Fate::Cancelled;
            let target = self.ownership[wide(entry)].heir();
            if let Some(rank) = target.and_then(|to| self.rank(to)) {
                self.share(rank).incoming -= 1;
            }
        }
    }

    /// Step 2, where a member has to give up more than is being revoked from it.
    fn give_up(&mut self) {
        let mut candidates = Vec::new();
        for (entry, ownership) in (0..).zip(self.ownership) {
            let (owned, member, latest) = match ownership.holding {
                Holding::Owned { owner, held_since } => (true, owner, held_since),
                Holding::Fencing {
                    to: Some(to),
                    epoch,
                    ..
                } => (false, to, epoch),
                Holding::Nobody | Holding::Revoking { .. } | Holding::Fencing { .. } => continue,
            };
            let Some(rank) = self.rank(member) else {
                continue;
            };
            if self.shares[wide(rank)].given_up() == 0 {
                continue;
            }
            let candidate = Candidate {
                class: owned,
                age: u64::MAX - latest.0,
                order: u32::MAX - entry,
                entry,
            };
            candidates.push((rank, candidate));
        }
        for entry in self.select(&candidates, Share::given_up) {
            self.fates[wide(entry)] = Fate::NeedsTarget;
        }
    }

    /// Of each member's candidates the least, as many as `wanted` says. Linear: the candidates are put
    /// in one row, member by member, and selected there.
    fn select(&self, candidates: &[(u32, Candidate)], wanted: fn(&Share) -> u32) -> Vec<u32> {
        let Some((_, any)) = candidates.first() else {
            return Vec::new();
        };
        let mut starts = vec![0_usize; self.shares.len() + 1];
        for (rank, _) in candidates {
            starts[wide(*rank) + 1] += 1;
        }
        for rank in 1..starts.len() {
            starts[rank] += starts[rank - 1];
        }
        let mut row = vec![*any; candidates.len()];
        let mut next = starts.clone();
        for (rank, candidate) in candidates {
            let place = &mut next[wide(*rank)];
            row[*place] = *candidate;
            *place += 1;
        }
        let mut selected = Vec::new();
        for (share, bounds) in self.shares.iter().zip(starts.windows(2)) {
            let own = &mut row[bounds[0]..bounds[1]];
            let count = wide(wanted(share));
            if own.is_empty() {
                continue;
            }
            if count < own.len() {
                own.select_nth_unstable(count - 1);
            }
            selected.extend(own[..count].iter().map(|candidate| candidate.entry));
        }
        selected
    }

    /// Steps 3 and 4.
    fn hand_out(&mut self) -> Vec<(usize, Decision)> {
        let mut room: Vec<u32> = self.shares.iter().map(Share::room).collect();
        for (entry, ownership) in self.ownership.iter().enumerate() {
            let target = ownership.heir().and_then(|to| self.rank(to));
            match ownership.holding {
                Holding::Owned { .. } => {}
                Holding::Nobody | Holding::Fencing { .. } => {
                    if target.is_none() {
                        self.fates[entry] = Fate::NeedsTarget;
                    }
                }
                Holding::Revoking { .. } if self.fates[entry] == Fate::Cancelled => {}
                Holding::Revoking { .. } => match target.map(|rank| &mut room[wide(rank)]) {
                    Some(room) if *room > 0 => *room -= 1,
                    Some(_) | None => self.fates[entry] = Fate::NeedsTarget,
                },
            }
        }
        let mut targets = self.shares.iter().zip(&mut room).peekable();
        let mut decisions = Vec::new();
        for (entry, fate) in self.fates.iter().enumerate() {
            match fate {
                Fate::Stays => {}
                Fate::Cancelled => decisions.push((entry, Decision::Cancel)),
                Fate::NeedsTarget => {
                    while targets.next_if(|(_, room)| **room == 0).is_some() {}
                    let target = targets.peek_mut();
                    let (share, room) = target.expect("there is room for every partition");
                    **room -= 1;
                    decisions.push((entry, Decision::Assign { to: share.slot }));
                }
            }
        }
        assert!(
            targets.all(|(_, room)| *room == 0),
            "every member gets its quota"
        );
        decisions
    }
}

fn wide(number: u32) -> usize {
    usize::try_from(number).expect("a u32 fits a usize")
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).expect("partitions of a topic fit a u32")
}
