//! What two nodes tell each other before anything else, and how they prove that they may.
//!
//! ```text
//! dialler                                  answerer
//!    ── 1 Introduction (nonce) ──────────────►        judges it
//!    ◄────────────── 2 Introduction (nonce) ──        judges it
//!    ── 3 Proof ─────────────────────────────►        checks it
//!    ◄──────────────────────────── 4 Proof ───        checks it
//!    ◄────────────────── 5 Refusal (text) ────        instead of 2 or 4
//! ```
//!
//! A proof is an HMAC-SHA-256, under the secret of the cluster, of who proves it and of both introductions.
//! Those hold both nonces, both nodes and the cluster, so a proof is good for one link, in one direction,
//! between two nodes: it can be neither reflected nor taken elsewhere. The dialler proves itself first.

use std::{
    collections::BTreeMap,
    fmt, io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wire::{ClusterId, DiskId, FrameHeader, ReplicaId};

/// The version of the handshake and of what follows it on a link.
pub const LINK_VERSION: u16 = 5;

/// Bytes of a nonce.
pub(super) const NONCE_SIZE: usize = 32;

/// Bytes of a proof.
pub(super) const PROOF_SIZE: usize = 32;

/// Bytes of an introduction.
pub(super) const INTRODUCTION_SIZE: usize = SETTINGS + SETTINGS_MAX * 8 + NONCE_SIZE;

/// Nodes of the largest cluster.
const REPLICAS_MAX: usize = 5;

/// All that there can be.
const REPLICAS: Range<u8> = 0..5;
const _: () = assert!(REPLICAS.end as usize == REPLICAS_MAX, "one and the same");

/// Where the disks are in an introduction.
const DISKS: usize = 12 + 16 + 16 + 8;

/// Bytes of a disk's name and of the time at which it was recovered.
const DISK_SIZE: usize = 16 + 8;

/// Where the settings are, and how many there can be.
const SETTINGS: usize = DISKS + REPLICAS_MAX * DISK_SIZE;
const SETTINGS_MAX: usize = 24;

/// Bytes of the longest text of a refusal.
pub(super) const REFUSAL_MAX: usize = 512;

/// What all nodes of a cluster know; proves who belongs to it.
#[derive(Clone)]
pub struct LinkSecret(Vec<u8>);

/// A node as part of its cluster: all that has to be equal on both ends of a link, and who it is.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The cluster.
    pub cluster: ClusterId,
    /// This node.
    pub replica: ReplicaId,
    /// Nodes of the cluster.
    pub replica_count: u8,
    /// Data groups of the cluster, G.
    pub data_groups: u16,
    /// Stands for everything that was fixed when the nodes were formatted, the list of nodes included.
    pub fingerprint: u128,
    /// Settings that have to be equal everywhere though nothing fixes them: names and values, at most 24, in one
    /// order on all nodes.
    pub settings: Vec<(&'static str, u64)>,
    /// Shards of this node; nodes may differ in it.
    pub shard_count: u16,
    /// What the nodes prove to one another that they know.
    pub secret: LinkSecret,
    /// Names this process: chosen at random at its start.
    pub incarnation: u64,
    /// Knows which disk each node has.
    pub register: Register,
}

/// The disks of nodes.
pub type KnownDisks = BTreeMap<ReplicaId, DiskId>;

type Judge = dyn Fn(ReplicaId, &KnownDisks) -> io::Result<Result<(), DiskId>> + Send + Sync;

/// Knows which disk each node has, and decides whether one may come with another.
#[derive(Clone)]
pub struct Register {
    known: Arc<dyn Fn() -> KnownDisks + Send + Sync>,
    judge: Arc<Judge>,
    /// The processes that have come as each node, the last one at the end.
    processes: Arc<Mutex<BTreeMap<ReplicaId, Vec<u64>>>>,
}

/// Processes that are remembered of each node.
const PROCESSES: usize = 16;

impl Register {
    /// `known` gives the disks of all nodes that were met, this one's among them. `judge` decides about a node
    /// by what that tells of the disks: it is admitted, or should have come with another disk. When `judge`
    /// returns, what is new is durable, and nothing counts any more that comes from a process with a disk that
    /// was replaced. An error keeps the node out, too.
    #[must_use]
    pub fn new(
        known: impl Fn() -> KnownDisks + Send + Sync + 'static,
        judge: impl Fn(ReplicaId, &KnownDisks) -> io::Result<Result<(), DiskId>> + Send + Sync + 'static,
    ) -> Self {
        let (known, judge) = (Arc::new(known), Arc::new(judge));
        Self {
            known,
            judge,
            processes: Arc::default(),
        }
    }

    /// Notes a process that has come as a node. Says whether it can be: one that comes again behind another
    /// one runs beside it, on a copy of the data directory.
    pub(super) fn is_alone(&self, replica: ReplicaId, incarnation: u64) -> bool {
        let mut processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let of_node = processes.entry(replica).or_default();
        if of_node.last() == Some(&incarnation) {
            return true;
        }
        if of_node.contains(&incarnation) {
            return false;
        }
        of_node.push(incarnation);
        of_node.drain(..of_node.len().saturating_sub(PROCESSES));
        true
    }

    pub(super) fn judge(
        &self,
        replica: ReplicaId,
        told: &KnownDisks,
    ) -> io::Result<Result<(), DiskId>> {
        (self.judge)(replica, told)
    }
}

impl fmt::Debug for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Register(…)")
    }
}

/// The kinds of frames of a handshake, in the header's `code`. Frames with code 0 come after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Step {
    DiallerIntroduction = 1,
    AnswererIntroduction = 2,
    DiallerProof = 3,
    AnswererProof = 4,
    Refusal = 5,
}

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Dialler,
    Answerer,
}

/// One end of a link, as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    pub version: u16,
    /// Who it is.
    pub replica: ReplicaId,
    /// Whom it takes the other end for.
    pub other: ReplicaId,
    pub replica_count: u8,
    pub data_groups: u16,
    /// The shard at which the link ends here.
    pub shard: u16,
    pub shard_count: u16,
    pub cluster: ClusterId,
    pub fingerprint: u128,
    /// The values of the settings.
    pub settings: Vec<u64>,
    /// Names its process.
    pub incarnation: u64,
    /// The disks of the nodes that it knows, its own among them.
    pub disks: KnownDisks,
    pub nonce: [u8; NONCE_SIZE],
}

/// What is not the same on both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What it is.
    pub what: &'static str,
    /// On this node.
    pub here: String,
    /// On the other one.
    pub there: String,
}

impl LinkSecret {
    /// A secret of these bytes.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(secret.to_vec())
    }

    /// What `role` sends to prove that it knows the secret.
    pub(super) fn prove(
        &self,
        role: Role,
        dialler: &Introduction,
        answerer: &Introduction,
    ) -> [u8; PROOF_SIZE] {
        self.code(role, dialler, answerer)
            .finalize()
            .into_bytes()
            .into()
    }

    /// Whether `proof` is what `role` would have sent; takes as long whatever it is.
    pub(super) fn is_proof(
        &self,
        proof: &[u8],
        role: Role,
        dialler: &Introduction,
        answerer: &Introduction,
    ) -> bool {
        self.code(role, dialler, answerer)
            .verify_slice(proof)
            .is_ok()
    }

    fn code(&self, role: Role, dialler: &Introduction, answerer: &Introduction) -> Hmac<Sha256> {
        let mut code =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        code.update(match role {
            Role::Dialler => b"cohort link 1, dialler\0\0",
            Role::Answerer => b"cohort link 1, answerer\0",
        });
        code.update(&dialler.encode());
        code.update(&answerer.encode());
        code
    }
}

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSecret(…)")
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, here, there } = self;
        write!(f, "{what} is {here} here and {there} there")
    }
}

impl Introduction {
    /// Of this node to `other`, for a link that ends at `shard` here.
    pub(super) fn new(
        own: &Membership,
        other: ReplicaId,
        shard: u16,
        nonce: [u8; NONCE_SIZE],
    ) -> Self {
        Self {
            version: LINK_VERSION,
            replica: own.replica,
            other,
            replica_count: own.replica_count,
            data_groups: own.data_groups,
            shard,
            shard_count: own.shard_count,
            cluster: own.cluster,
            fingerprint: own.fingerprint,
            settings: own.settings.iter().map(|(_, value)| *value).collect(),
            incarnation: own.incarnation,
            disks: (own.register.known)(),
            nonce,
        }
    }

    /// The disk of the node itself.
    pub(super) fn disk(&self) -> DiskId {
        self.disks.get(&self.replica).copied().unwrap_or_default()
    }

    pub(super) fn encode(&self) -> [u8; INTRODUCTION_SIZE] {
        let mut bytes = [0; INTRODUCTION_SIZE];
        bytes[0..2].copy_from_slice(&self.version.to_le_bytes());
        bytes[2] = self.replica.0;
        bytes[3] = self.other.0;
        bytes[4] = self.replica_count;
        assert!(self.settings.len() <= SETTINGS_MAX, "there is room for 24");
        let count = u8::try_from(self.settings.len());
        bytes[5] = count.expect("there is room for 24");
        for (place, value) in bytes[SETTINGS..].chunks_exact_mut(8).zip(&self.settings) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes[6..8].copy_from_slice(&self.data_groups.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.shard.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.shard_count.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.cluster.0.to_le_bytes());
        bytes[28..44].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes[44..DISKS].copy_from_slice(&self.incarnation.to_le_bytes());
        for (replica, disk) in &self.disks {
            let at = DISKS + usize::from(replica.0) * DISK_SIZE;
            // A node that no list has is none of the cluster's.
            if let Some(place) = bytes[..SETTINGS].get_mut(at..at + DISK_SIZE) {
                place[..16].copy_from_slice(&disk.name.to_le_bytes());
                place[16..].copy_from_slice(&disk.recovered.to_le_bytes());
            }
        }
        bytes[INTRODUCTION_SIZE - NONCE_SIZE..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Takes an introduction apart. Of another version only the version is known to mean the same.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; INTRODUCTION_SIZE] = bytes.try_into().ok()?;
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| {
            let mut long = [0; 16];
            long.copy_from_slice(&bytes[at..at + 16]);
            u128::from_le_bytes(long)
        };
        let eight = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let disks = REPLICAS.map(ReplicaId).filter_map(|replica| {
            let at = DISKS + usize::from(replica.0) * DISK_SIZE;
            let disk = DiskId {
                name: long(at),
                recovered: eight(at + 16),
            };
            // All zeros: it was never met.
            (disk != DiskId::default()).then_some((replica, disk))
        });
        let mut nonce = [0; NONCE_SIZE];
        nonce.copy_from_slice(&bytes[INTRODUCTION_SIZE - NONCE_SIZE..]);
        let settings = (0..usize::from(bytes[5])).map(|index| eight(SETTINGS + index * 8));
        (usize::from(bytes[5]) <= SETTINGS_MAX).then(|| Self {
            version: short(0),
            replica: ReplicaId(bytes[2]),
            other: ReplicaId(bytes[3]),
            replica_count: bytes[4],
            data_groups: short(6),
            shard: short(8),
            shard_count: short(10),
            cluster: ClusterId(long(12)),
            fingerprint: long(28),
            settings: settings.collect(),
            incarnation: eight(44),
            disks: disks.collect(),
            nonce,
        })
    }

    /// Compares the other end with this one. The first difference is the one that explains the others.
    pub(super) fn judge(&self, own: &Membership) -> Result<(), Difference> {
        let differs = |what, here: String, there: String| Err(Difference { what, here, there });
        if self.version != LINK_VERSION {
            let there = self.version.to_string();
            return differs("the version of links", LINK_VERSION.to_string(), there);
        }
        if self.cluster != own.cluster {
            let id = |cluster: ClusterId| format!("{:032x}", cluster.0);
            return differs("the cluster's id", id(own.cluster), id(self.cluster));
        }
        if self.other != own.replica {
            let node = |replica: ReplicaId| format!("node {replica}");
            return differs(
                "who listens at the address that was dialled",
                node(own.replica),
                node(self.other),
            );
        }
        if self.replica_count != own.replica_count {
            let nodes = |count: u8| format!("{count} nodes");
            let (here, there) = (nodes(own.replica_count), nodes(self.replica_count));
            return differs("the number of nodes", here, there);
        }
        if self.replica == own.replica || self.replica.0 >= own.replica_count {
            let here = format!("another of {} nodes", own.replica_count);
            return differs("the other node", here, format!("node {}", self.replica));
        }
        if self.data_groups != own.data_groups {
            let (here, there) = (own.data_groups.to_string(), self.data_groups.to_string());
            return differs("cluster.data_groups", here, there);
        }
        if self.fingerprint != own.fingerprint {
            let print = |print: u128| format!("{print:032x}");
            let (here, there) = (print(own.fingerprint), print(self.fingerprint));
            return differs("the list of nodes (its fingerprint)", here, there);
        }
        if self.settings.len() != own.settings.len() {
            let (here, there) = (own.settings.len(), self.settings.len());
            let what = "the number of settings that are the same everywhere";
            return differs(what, here.to_string(), there.to_string());
        }
        for ((name, here), there) in own.settings.iter().zip(&self.settings) {
            if here != there {
                return differs(name, here.to_string(), there.to_string());
            }
        }
        if self.shard_count == 0 || self.shard >= self.shard_count {
            let there = format!("{} of {}", self.shard, self.shard_count);
            return differs("a link's shard", "below the number of shards".into(), there);
        }
        Ok(())
    }
}

/// A frame of a handshake.
pub(super) fn frame(step: Step, body: &[u8]) -> Vec<u8> {
    FrameHeader::peer(step as u32).frame(body)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::links) fn membership(replica: u8) -> Membership {
        Membership {
            cluster: ClusterId(7),
            replica: ReplicaId(replica),
            replica_count: 3,
            data_groups: 24,
            fingerprint: 99,
            settings: vec![
                ("cluster.limits.users", 10),
                ("cluster.limits.sections", 20),
            ],
            shard_count: 2,
            secret: LinkSecret::new(b"sixteen letters!"),
            incarnation: 1_000 + u64::from(replica),
            register: register(replica, disk_of(replica)),
        }
    }

    /// The disk that each node is known to have.
    pub(in crate::links) fn disk_of(replica: u8) -> DiskId {
        DiskId {
            name: 100 + u128::from(replica),
            recovered: 5,
        }
    }

    /// Of a node that has this disk.
    pub(in crate::links) fn register(replica: u8, own: DiskId) -> Register {
        let judge = |replica: ReplicaId, told: &KnownDisks| {
            let known = disk_of(replica.0);
            Ok(match told[&replica] {
                disk if disk == known || disk.replaces(known) => Ok(()),
                _ => Err(known),
            })
        };
        Register::new(move || KnownDisks::from([(ReplicaId(replica), own)]), judge)
    }

    fn introductions() -> (Introduction, Introduction) {
        let dialler = Introduction::new(&membership(0), ReplicaId(1), 1, [1; NONCE_SIZE]);
        let answerer = Introduction::new(&membership(1), ReplicaId(0), 1, [2; NONCE_SIZE]);
        (dialler, answerer)
    }

    #[test]
    fn introduction_comes_back_as_it_was() {
        let (dialler, _) = introductions();
        assert_eq!(
            Introduction::decode(&dialler.encode()),
            Some(dialler.clone())
        );
        assert_eq!(Introduction::decode(&dialler.encode()[1..]), None);
        assert_eq!(dialler.disk(), disk_of(0));
        let disks = (0..5).map(|replica| (ReplicaId(replica), disk_of(replica)));
        let of_five = Introduction {
            disks: disks.collect(),
            ..dialler.clone()
        };
        assert_eq!(Introduction::decode(&of_five.encode()), Some(of_five));
        assert_eq!(dialler.judge(&membership(1)), Ok(()));
    }

    #[test]
    fn every_difference_is_named() {
        type Change = fn(&mut Introduction);
        let cases: [(Change, &str); 12] = [
            (
                |it| it.version = 6,
                "the version of links is 5 here and 6 there",
            ),
            (|it| it.cluster = ClusterId(8), "the cluster's id"),
            (|it| it.other = ReplicaId(2), "node 1 here and node 2 there"),
            (|it| it.replica_count = 5, "3 nodes here and 5 nodes there"),
            (|it| it.replica = ReplicaId(1), "node 1 there"),
            (|it| it.replica = ReplicaId(3), "node 3 there"),
            (
                |it| it.data_groups = 8,
                "cluster.data_groups is 24 here and 8 there",
            ),
            (|it| it.fingerprint = 98, "the list of nodes"),
            (
                |it| it.settings[1] = 21,
                "cluster.limits.sections is 20 here and 21 there",
            ),
            (
                |it| it.settings.push(1),
                "the number of settings that are the same everywhere is 2 here and 3 there",
            ),
            (|it| it.shard = 2, "2 of 2 there"),
            (|it| it.shard_count = 0, "1 of 0 there"),
        ];
        for (change, part) in cases {
            let (mut dialler, _) = introductions();
            change(&mut dialler);
            let text = dialler.judge(&membership(1)).unwrap_err().to_string();
            assert!(text.contains(part), "no {part:?} in {text:?}");
        }
    }

    #[test]
    fn proof_is_good_for_one_role_and_one_pair_of_introductions() {
        let secret = membership(0).secret;
        let (dialler, answerer) = introductions();
        let proof = secret.prove(Role::Dialler, &dialler, &answerer);
        let holds = |secret: &LinkSecret, role, dialler: &_, answerer: &_| {
            secret.is_proof(&proof, role, dialler, answerer)
        };
        assert!(holds(&secret, Role::Dialler, &dialler, &answerer));
        assert!(!holds(&secret, Role::Answerer, &dialler, &answerer));
        assert!(!holds(&secret, Role::Dialler, &answerer, &dialler));
        let other = LinkSecret::new(b"seventeen letters");
        assert!(!holds(&other, Role::Dialler, &dialler, &answerer));
        let mut elsewhere = dialler.clone();
        elsewhere.other = ReplicaId(2);
        assert!(!holds(&secret, Role::Dialler, &elsewhere, &answerer));
        let mut later = answerer.clone();
        later.nonce[31] ^= 1;
        assert!(!holds(&secret, Role::Dialler, &dialler, &later));
        assert!(!secret.is_proof(&proof[1..], Role::Dialler, &dialler, &answerer));
    }

    #[test]
    fn secret_is_shown_nowhere() {
        assert!(!format!("{:?}", membership(0)).contains("115"));
        assert!(!format!("{:?}", membership(0)).contains("sixteen"));
    }
}
