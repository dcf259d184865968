//! Whatever a message or a client's request contains, a replica takes or ignores it; it never panics, and
//! never applies what is not committed.

use bytes::Bytes;
use proptest::{collection::vec, prelude::any, prop_assert, proptest};
use vsr::{
    ChainPoint, Commit, CommitOk, Config, DoViewChange, Effect, Gone, Input, Message, Origin,
    Prepare, PrepareMessage, PrepareOk, Recovered, Replica, Request, RequestPrepare,
    RequestStartView, RequestedPrepare, StartView, StartViewChange, SuffixReport, Token, ViewProbe,
    ViewProbeOk,
};
use wire::{
    ClientId, ClusterId, ConsensusGroup, Op, PrepareHeader, ReplicaId, RequestNumber,
    SessionNumber, Time, Timestamp, View,
};

/// Draws fields from a list of numbers, few distinct values each, so that they meet.
struct Draw<'a> {
    numbers: &'a [u32],
    /// A checksum that means something at this moment.
    checksum: u128,
}

impl Draw<'_> {
    const fn number(&mut self) -> u32 {
        match self.numbers {
            [first, rest @ ..] => {
                self.numbers = rest;
                *first
            }
            [] => 0,
        }
    }

    const fn small(&mut self, below: u8) -> u8 {
        self.number().to_le_bytes()[0] % below
    }

    const fn flag(&mut self) -> bool {
        self.small(2) == 1
    }

    fn u64(&mut self) -> u64 {
        const VALUES: [u64; 10] = [0, 1, 1, 2, 2, 3, 4, 40, u64::MAX - 1, u64::MAX];
        VALUES[usize::from(self.small(10))]
    }

    fn op(&mut self) -> Op {
        Op(self.u64())
    }

    const fn view(&mut self) -> View {
        View(if self.small(8) == 0 { self.number() } else { 0 })
    }

    const fn replica(&mut self) -> ReplicaId {
        ReplicaId(match self.small(8) {
            0 => 255,
            other => other % 4,
        })
    }

    const fn checksum(&mut self) -> u128 {
        if self.flag() { self.checksum } else { 0 }
    }

    fn point(&mut self) -> ChainPoint {
        ChainPoint {
            op: self.op(),
            checksum: self.checksum(),
        }
    }

    fn header(&mut self) -> PrepareHeader {
        PrepareHeader {
            parent: self.checksum(),
            cluster: 1,
            client: u128::from(self.small(3)),
            session: self.u64(),
            request: self.u64(),
            op: self.u64(),
            timestamp: self.u64(),
            view: self.view().0,
            ..PrepareHeader::default()
        }
    }

    fn prepare(&mut self) -> Prepare {
        let body = Bytes::from_static(b"body");
        let header = self.header();
        let header = if self.small(8) == 0 {
            header
        } else {
            header.sealed(&body)
        };
        Prepare { header, body }
    }

    fn bytes(&mut self) -> Bytes {
        Bytes::from(vec![0; usize::from(self.small(9))])
    }

    fn message(&mut self) -> Message {
        let (replica, view) = (self.replica(), self.view());
        match self.small(12) {
            0 | 1 => Message::Prepare(PrepareMessage {
                replica,
                view,
                commit: self.point(),
                prepare: self.prepare(),
            }),
            2 => Message::PrepareOk(PrepareOk {
                replica,
                view,
                op: self.op(),
                checksum: self.checksum(),
                checkpoint: self.op(),
            }),
            3 | 4 => Message::Commit(Commit {
                replica,
                view,
                op: self.op(),
                commit: self.point(),
                checkpoint_quorum: self.op(),
            }),
            5 => Message::CommitOk(CommitOk {
                replica,
                view,
                commit_min: self.op(),
                checkpoint: self.op(),
                is_willing: true,
            }),
            6 => Message::RequestPrepare(RequestPrepare {
                replica,
                view,
                op: self.op(),
                checksum: Some(self.checksum()),
            }),
            7 | 8 => Message::RequestedPrepare(RequestedPrepare {
                replica,
                view,
                is_committed: self.flag(),
                prepare: self.prepare(),
            }),
            9 => Message::ViewProbe(ViewProbe {
                replica,
                view,
                round: self.u64(),
            }),
            10 => Message::ViewProbeOk(ViewProbeOk {
                replica,
                view,
                round: self.u64(),
            }),
            _ => self.other_message(replica, view),
        }
    }

    fn other_message(&mut self, replica: ReplicaId, view: View) -> Message {
        match self.small(5) {
            0 => Message::StartViewChange(StartViewChange {
                replica,
                view: View(view.0 + u32::from(self.small(4))),
                promised: self.view(),
            }),
            1 => self.do_view_change(replica),
            2 => self.start_view(),
            3 => Message::RequestStartView(RequestStartView {
                replica,
                view,
                nonce: self.checksum(),
            }),
            _ => Message::Gone(Gone {
                replica,
                view,
                op: self.op(),
                checkpoint: self.op(),
            }),
        }
    }

    /// The headers of up to three ops after the point returned, nearly always a chain.
    fn suffix(&mut self) -> (ChainPoint, Vec<PrepareHeader>) {
        let commit = self.point();
        let mut point = commit;
        let mut headers = Vec::new();
        for _ in 0..self.small(4) {
            let mut header = self.header();
            if self.small(8) > 0 {
                header.parent = point.checksum;
                header.op = point.op.0.wrapping_add(1);
                header.timestamp = header.op;
                header.view = 0;
            }
            let header = header.sealed(b"body");
            point = ChainPoint {
                op: header.op(),
                checksum: header.checksum,
            };
            headers.push(header);
        }
        (commit, headers)
    }

    fn do_view_change(&mut self, replica: ReplicaId) -> Message {
        let (commit, headers) = self.suffix();
        let is_sound = self.small(8) > 0;
        let report = |header: &PrepareHeader| SuffixReport {
            op: header.op(),
            header: Some(*header),
            nack: !is_sound,
            present: is_sound,
        };
        Message::DoViewChange(DoViewChange {
            replica,
            view: View(u32::from(self.small(6))),
            log_view: self.view(),
            op: headers.last().map_or(commit.op, |header| header.op()),
            commit,
            checkpoint: self.op(),
            suffix: headers.iter().map(report).collect(),
        })
    }

    fn start_view(&mut self) -> Message {
        let (commit, suffix) = self.suffix();
        let view = self.small(6);
        Message::StartView(StartView {
            replica: ReplicaId(view % 3),
            view: View(u32::from(view)),
            op: suffix.last().map_or(commit.op, |header| header.op()),
            commit,
            checkpoint_quorum: self.op(),
            suffix,
            nonce: None,
        })
    }

    fn origin(&mut self) -> Origin {
        let client = ClientId(u128::from(self.small(3)));
        match self.small(3) {
            0 => Origin::Internal,
            1 => Origin::Register { client },
            _ => Origin::Session {
                client,
                session: SessionNumber(self.u64()),
                request: RequestNumber(self.u64()),
            },
        }
    }
}

/// A replica in normal status whose disk and state machine are never behind.
struct Prompt {
    replica: Replica,
    now: Time,
    /// The checksum of the prepare that was written last.
    last: u128,
}

impl Prompt {
    fn new(replica: u8, replica_count: u8) -> Self {
        let config = Config {
            cluster: ClusterId(1),
            group: ConsensusGroup::METADATA,
            replica: ReplicaId(replica),
            replica_count,
            clients_max: 2,
        };
        let mut prompt = Self {
            replica: Replica::new(config, Recovered::default()),
            now: Time::default(),
            last: 0,
        };
        prompt.carry_out();
        prompt
    }

    fn handle(&mut self, input: Input) {
        self.now.monotonic += 7_000_000;
        self.now.wall = Timestamp(self.now.wall.0 + 1);
        self.replica.handle(self.now, input);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.replica.next_effect() {
            let done = match effect {
                Effect::WritePrepare(prepare) => {
                    self.last = prepare.header.checksum;
                    Input::PrepareWritten {
                        op: prepare.header.op(),
                        checksum: prepare.header.checksum,
                    }
                }
                Effect::WriteSuperblock(superblock) => Input::SuperblockWritten {
                    sequence: superblock.sequence,
                },
                Effect::Apply { prepare, .. } => Input::Applied {
                    op: prepare.header.op(),
                    reply: Bytes::new(),
                    ended: Vec::new(),
                    registered: true,
                },
                // None of the kept ones is forgotten here.
                Effect::ReadPrepare { op, to, .. } => Input::PrepareRead {
                    op,
                    to,
                    prepare: None,
                },
                Effect::ReplaceState { .. } => panic!("no checkpoint was fetched"),
                Effect::Send { .. }
                | Effect::FetchCheckpoint { .. }
                | Effect::Reply { .. }
                | Effect::Refuse { .. }
                | Effect::Evict { .. }
                | Effect::ViewConfirmed { .. }
                | Effect::StatusChanged
                | Effect::Note(_) => continue,
            };
            self.replica.handle(self.now, done);
        }
    }
}

fn feed(prompt: &mut Prompt, numbers: &[u32]) {
    let mut draw = Draw {
        numbers,
        checksum: prompt.last,
    };
    let input = match draw.small(8) {
        0 => Input::Tick,
        1 => Input::Request(Request {
            token: Token(1),
            origin: draw.origin(),
            operation: 1,
            body: draw.bytes(),
        }),
        2 => {
            prompt.replica.begin_checkpoint();
            Input::CheckpointWritten { op: draw.op() }
        }
        _ => Input::Message(draw.message()),
    };
    prompt.handle(input);
}

proptest! {
    #[test]
    fn no_message_harms_a_replica(
        replica in 0_u8..3,
        inputs in vec(vec(any::<u32>(), 40), 1..200),
    ) {
        let mut prompt = Prompt::new(replica, 3);
        for numbers in &inputs {
            feed(&mut prompt, numbers);
            prop_assert!(prompt.replica.commit_min() <= prompt.replica.op());
        }
    }

    #[test]
    fn no_message_harms_a_replica_alone(inputs in vec(vec(any::<u32>(), 24), 1..100)) {
        let mut prompt = Prompt::new(0, 1);
        for numbers in &inputs {
            feed(&mut prompt, numbers);
            prop_assert!(prompt.replica.commit_min() == prompt.replica.op());
        }
    }
}
