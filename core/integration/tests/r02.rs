//! R02: a revocation that is cancelled leaves what was before; nobody else is the owner meanwhile.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use integration::{Deliveries, Member, repetitions, shares, until};
use wire::{ConsumerGroupDetails, Epoch, ErrorCode, Failure, MemberId, Offset};

use crate::scene::{Scene, hasty, pass_a_moment, patient};

#[test]
fn r02_1_cancelled_revocation_is_as_if_it_had_not_been() {
    for is_killed in [false, true] {
        let mut scene = Scene::new(patient(), 4, 100);
        let mut first = scene.join_and_poll();
        let mut second = scene.join();
        let details = scene.group.details(&mut scene.admin);
        assert_eq!(details.summary.moving_count, 2);
        if is_killed {
            scene.crash();
            first.attach(scene.address());
            second.attach(scene.address());
            let details = scene.group.details(&mut scene.admin);
            assert_eq!(details.summary.moving_count, 2);
        }
        second.leave().expect("it is a member");
        let details = scene.group.settled(&mut scene.admin);
        assert_eq!(shares(&details), [4]);
        // Under the epochs of before: it has not heard of anything.
        for partition in 0..4 {
            let page = first.poll(partition, 10).expect("it is the owner");
            assert_eq!(page.messages[0].0, Offset(0));
        }
        let mut third = scene.join();
        first.wait_for_revoking(2);
        for partition in first.owned() {
            assert_eq!(first.store(partition, 9), Ok(Some(Offset(9))));
        }
        for partition in first.revoking() {
            // The killed node does not know what it has served.
            let given_up = if is_killed {
                first.release(partition, Some(9))
            } else {
                first.store(partition, 9)
            };
            assert_eq!(given_up, Ok(Some(Offset(9))));
        }
        third.wait_for(2);
        scene.group.settled(&mut scene.admin);
        for partition in third.owned() {
            let page = third.poll(partition, 10).expect("it is the owner");
            assert_eq!(page.messages[0].0, Offset(10));
        }
        assert_eq!(scene.counter("moves_timed_out"), 0);
    }
}

/// Six clients join, leave, vanish, poll, store and give up at random, mostly without having heard of each
/// other; some go on as members that are none any more. What is taken of anybody must be under an epoch that
/// nobody else has overtaken.
#[test]
fn r02_4_no_partition_ever_has_two_owners() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = u64::from(now.expect("it is later").subsec_nanos());
    eprintln!("seed {seed}");
    let mut chaos = Chaos::new(seed);
    for round in 0..repetitions(200, 3_000) {
        chaos.step(round);
        chaos.look();
    }
    chaos.calm_down();
}

const CLIENTS: usize = 6;
const PARTITIONS: u32 = 8;
const MESSAGES: u64 = 100;

struct Chaos {
    scene: Scene,
    members: Vec<Option<Member>>,
    /// Who has left, and does not admit it.
    stray: Option<Member>,
    owners: Owners,
    last: Option<ConsumerGroupDetails>,
    random: u64,
}

/// The highest epoch under which each partition was served, stored or given, and to whom.
#[derive(Default)]
struct Owners(BTreeMap<u32, (Epoch, MemberId)>);

impl Owners {
    fn accepted(&mut self, partition: u32, epoch: Epoch, member: MemberId) {
        let (highest, owner) = *self.0.entry(partition).or_insert((epoch, member));
        assert!(
            epoch > highest || member == owner,
            "partition {partition}: {member:?} under {epoch:?} after {owner:?} under {highest:?}"
        );
        self.0.insert(
            partition,
            (
                highest.max(epoch),
                if epoch > highest { member } else { owner },
            ),
        );
    }
}

impl Chaos {
    fn new(seed: u64) -> Self {
        Self {
            scene: Scene::new(hasty(), PARTITIONS, MESSAGES),
            members: (0..CLIENTS).map(|_| None).collect(),
            stray: None,
            owners: Owners::default(),
            last: None,
            random: seed << 1 | 1,
        }
    }

    fn random(&mut self, below: usize) -> usize {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % below as u64).expect("it is small")
    }

    fn step(&mut self, round: u32) {
        let client = self.random(CLIENTS);
        let what = self.random(14);
        let Some(mut member) = self.members[client].take() else {
            let member = self.scene.join();
            self.heard(&member);
            self.members[client] = Some(member);
            return;
        };
        match what {
            0 => {
                member.leave().expect("it is a member");
                self.stray = Some(member);
                return;
            }
            // Its session ends a little later.
            1 => return,
            2..=4 => {
                member.sync().expect("it is a member");
                self.heard(&member);
            }
            5 | 6 => {
                for partition in member.revoking() {
                    taken(member.release(partition, None));
                }
            }
            _ => self.poll_and_store(&mut member),
        }
        self.members[client] = Some(member);
        if let Some(mut stray) = self.stray.take() {
            self.bother(&mut stray);
            self.stray = Some(stray);
        }
        if round.is_multiple_of(5) {
            pass_a_moment(round, Duration::from_millis(50));
        }
    }

    /// What a member is told to own is its own.
    fn heard(&mut self, member: &Member) {
        for one in &member.assignment.owned {
            self.owners
                .accepted(one.partition.0, one.epoch, member.id());
        }
    }

    /// Under what it has last heard of, which may be long ago.
    fn poll_and_store(&mut self, member: &mut Member) {
        let known = [member.owned(), member.revoking()].concat();
        if known.is_empty() {
            return;
        }
        let partition = known[self.random(known.len())];
        let epoch = member.epoch(partition);
        let Some(page) = taken(member.poll(partition, 10)) else {
            return;
        };
        self.owners.accepted(partition, epoch, member.id());
        let Some((last, _)) = page.messages.last() else {
            return;
        };
        if self.random(3) > 0 && taken(member.store(partition, last.0)).is_some() {
            self.owners.accepted(partition, epoch, member.id());
        }
    }

    fn bother(&self, stray: &mut Member) {
        let partition = self
            .last
            .as_ref()
            .map_or(0, |last| last.summary.generation.0);
        let partition = u32::try_from(partition).expect("it is small") % PARTITIONS;
        let epoch = stray.assignment.owned.iter().map(|one| one.epoch).max();
        let epoch = epoch.unwrap_or(Epoch(1));
        let poll = stray.poll_of(&[(partition, epoch)], 10);
        let refused = stray.polled(poll).expect_err("it is not a member");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupMemberNotFound);
        let refused = stray.sync().expect_err("it is not a member");
        assert_eq!(refused.code, ErrorCode::ConsumerGroupMemberNotFound);
    }

    /// Requires what must hold at every moment.
    fn look(&mut self) {
        let details = self.scene.group.details(&mut self.scene.admin);
        // Whoever owns something is a member.
        let _ = shares(&details);
        for partition in &details.partitions {
            let goes_on = match &partition.moving {
                Some(moving) => moving.to.is_some(),
                None => partition.owner.is_some(),
            };
            assert!(goes_on || details.members.is_empty(), "{partition:?}");
        }
        if let Some(last) = &self.last {
            let (before, now) = (last.summary.generation, details.summary.generation);
            let changed = ownership(last) != ownership(&details);
            assert_eq!(before < now, changed, "{last:?} {details:?}");
            for (before, now) in last.partitions.iter().zip(&details.partitions) {
                let (before, now) = (before.progress.as_ref(), now.progress.as_ref());
                let (before, now) = (before.expect("it is known"), now.expect("it is known"));
                assert!(before.next <= now.next && before.fence <= now.fence);
            }
        }
        self.last = Some(details);
    }

    /// The members behave well from now on.
    fn calm_down(mut self) {
        let deliveries = Deliveries::default();
        let mut members: Vec<Member> = self.members.drain(..).flatten().collect();
        if members.is_empty() {
            members.push(self.scene.join());
        }
        let count = members.len();
        until("everything is read", || {
            for member in &mut members {
                member.turn(&deliveries).expect("it is a member");
            }
            let details = self.scene.group.details(&mut self.scene.admin);
            let mut progress = details.partitions.iter().map(|one| one.progress.as_ref());
            let is_done = details.members.len() == count
                && details.summary.moving_count == 0
                && progress.all(|one| one.is_ok_and(|one| one.lag == 0));
            is_done.then_some(())
        });
        let details = self.scene.group.settled(&mut self.scene.admin);
        assert_eq!(shares(&details).len(), count);
        assert_eq!(deliveries.repeated(), 0);
        assert_eq!(self.scene.counter("moves_timed_out"), 0);
    }
}

/// Who owns each partition under which epoch, and where it goes.
fn ownership(details: &ConsumerGroupDetails) -> Vec<(Option<MemberId>, Epoch, Option<Epoch>)> {
    let partitions = details.partitions.iter();
    partitions
        .map(|one| {
            let owner = one.owner.as_ref().map(|owner| owner.member);
            let planned = one.moving.as_ref().map(|moving| moving.planned);
            (owner, one.epoch, planned)
        })
        .collect()
}

/// What a request of a member brought that may have been overtaken.
fn taken<T>(result: Result<T, Failure>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(failure) => {
            let is_overtaken = matches!(
                failure.code,
                ErrorCode::PartitionNotOwned
                    | ErrorCode::PartitionRevoking
                    | ErrorCode::StaleEpoch
                    | ErrorCode::RevocationChanged
            );
            assert!(is_overtaken, "{failure}");
            None
        }
    }
}
