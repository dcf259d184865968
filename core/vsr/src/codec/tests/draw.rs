//! Messages by chance.

use std::{vec, vec::Vec};

use bytes::Bytes;
use wire::{Op, PrepareHeader, ReplicaId, View};

use crate::{
    ChainPoint, Commit, CommitOk, DoViewChange, Gone, Message, Prepare, PrepareMessage, PrepareOk,
    Rejoin, RequestPrepare, RequestStartView, RequestedPrepare, StartView, StartViewChange,
    SuffixReport, ViewProbe, ViewProbeOk,
};

/// Small and reproducible: xorshift64*.
pub(super) struct Draw(pub(super) u64);

impl Draw {
    fn u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn u128(&mut self) -> u128 {
        u128::from(self.u64()) << 64 | u128::from(self.u64())
    }

    fn byte(&mut self) -> u8 {
        self.u64().to_le_bytes()[7]
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.u64() % end as u64).expect("a usize has 64 bits")
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn op(&mut self) -> Op {
        Op(self.u64())
    }

    fn view(&mut self) -> View {
        View(u32::from_le_bytes([
            self.byte(),
            self.byte(),
            self.byte(),
            self.byte(),
        ]))
    }

    fn replica(&mut self) -> ReplicaId {
        ReplicaId(self.byte())
    }

    fn point(&mut self) -> ChainPoint {
        ChainPoint {
            op: self.op(),
            checksum: self.u128(),
        }
    }

    fn nonce(&mut self) -> Option<u128> {
        self.flag().then(|| self.u128())
    }

    fn bytes(&mut self, size: usize) -> Bytes {
        (0..size).map(|_| self.byte()).collect()
    }

    /// A prepare with a body of so many bytes.
    pub(super) fn prepare(&mut self, size: usize) -> Prepare {
        let body = self.bytes(size);
        let header = PrepareHeader {
            parent: self.u128(),
            cluster: self.u128(),
            client: self.u128(),
            session: self.u64(),
            request: self.u64(),
            op: self.u64(),
            timestamp: self.u64(),
            view: self.view().0,
            group: u16::from(self.byte()),
            operation: u16::from(self.byte()),
            version: u32::from(self.byte()),
            ..PrepareHeader::default()
        };
        Prepare {
            header: header.sealed(&body),
            body,
        }
    }

    fn some_prepare(&mut self) -> Prepare {
        let size = [0, 1, 39, 1_500][self.below(4)];
        self.prepare(size)
    }

    pub(super) fn prepare_message(&mut self, prepare: Prepare) -> Message {
        Message::Prepare(PrepareMessage {
            replica: self.replica(),
            view: self.view(),
            commit: self.point(),
            prepare,
        })
    }

    fn report(&mut self) -> SuffixReport {
        let header = self.prepare(3).header;
        SuffixReport {
            op: header.op(),
            header: self.flag().then_some(header),
            nack: self.flag(),
            present: self.flag(),
        }
    }

    /// With a header in it.
    pub(super) fn do_view_change(&mut self) -> DoViewChange {
        let mut suffix: Vec<SuffixReport> = (0..self.below(4)).map(|_| self.report()).collect();
        let header = self.prepare(0).header;
        suffix.push(SuffixReport {
            op: header.op(),
            header: Some(header),
            nack: false,
            present: true,
        });
        DoViewChange {
            replica: self.replica(),
            view: self.view(),
            log_view: self.view(),
            op: self.op(),
            commit: self.point(),
            checkpoint: self.op(),
            suffix,
        }
    }

    fn start_view(&mut self) -> StartView {
        StartView {
            replica: self.replica(),
            view: self.view(),
            op: self.op(),
            commit: self.point(),
            checkpoint_quorum: self.op(),
            suffix: (0..self.below(4)).map(|_| self.prepare(1).header).collect(),
            nonce: self.nonce(),
        }
    }

    /// A message of a kind.
    pub(super) fn message(&mut self, kind: u8) -> Message {
        let (replica, view, op) = (self.replica(), self.view(), self.op());
        match kind {
            1 => {
                let prepare = self.some_prepare();
                self.prepare_message(prepare)
            }
            2 => Message::PrepareOk(PrepareOk {
                replica,
                view,
                op,
                checksum: self.u128(),
                checkpoint: self.op(),
            }),
            3 => Message::Commit(Commit {
                replica,
                view,
                op,
                commit: self.point(),
                checkpoint_quorum: self.op(),
            }),
            4 => Message::CommitOk(CommitOk {
                replica,
                view,
                commit_min: op,
                checkpoint: self.op(),
                is_willing: self.flag(),
            }),
            5 => Message::RequestPrepare(RequestPrepare {
                replica,
                view,
                op,
                checksum: self.nonce(),
            }),
            6 => Message::RequestedPrepare(RequestedPrepare {
                replica,
                view,
                is_committed: self.flag(),
                prepare: self.some_prepare(),
            }),
            7 => Message::StartViewChange(StartViewChange {
                replica,
                view,
                promised: self.view(),
            }),
            8 => Message::DoViewChange(self.do_view_change()),
            9 => Message::StartView(self.start_view()),
            _ => self.later_message(kind),
        }
    }

    fn later_message(&mut self, kind: u8) -> Message {
        let (replica, view, op) = (self.replica(), self.view(), self.op());
        match kind {
            10 => Message::RequestStartView(RequestStartView {
                replica,
                view,
                nonce: self.u128(),
            }),
            11 => Message::ViewProbe(ViewProbe {
                replica,
                view,
                round: self.u64(),
            }),
            12 => Message::ViewProbeOk(ViewProbeOk {
                replica,
                view,
                round: self.u64(),
            }),
            13 => Message::Gone(Gone {
                replica,
                view,
                op,
                checkpoint: self.op(),
            }),
            14 => Message::Rejoin(Rejoin {
                replica,
                view,
                heard_view: self.view(),
                heard_commit: op,
                nonce: self.u128(),
            }),
            other => panic!("there is no kind {other}"),
        }
    }

    /// The bytes, changed in one of the ways in which lengths, counts and kinds go wrong.
    pub(super) fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        let at = self.below(bytes.len());
        match self.below(6) {
            0 => damaged[at] ^= 1 << self.below(8),
            1 => damaged[at] = [0, 1, 2, 14, 15, 0x7f, 0x80, 0xff][self.below(8)],
            2 => {
                let number = [0, 1, u32::MAX, 1 << 31, 0x00ff_ffff][self.below(5)];
                let end = bytes.len().min(at + 4);
                damaged[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            3 => {
                let added = vec![self.byte(); self.below(9)];
                damaged.splice(at..at, added);
            }
            4 => {
                let end = bytes.len().min(at + self.below(9));
                damaged.drain(at..end);
            }
            _ => damaged.truncate(at),
        }
        damaged
    }
}
