//! What the replica has promised, and how much of it is durable (V1, V2).

use alloc::{collections::VecDeque, vec::Vec};

use wire::{Op, View};

use crate::{ChainPoint, Message, SuffixEntry, Superblock, mutation};

/// The view and log_view of one superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Views {
    view: View,
    log_view: View,
}

/// The superblock that was written last, and the views of those that are on the way to the disk.
#[derive(Debug, Default)]
pub(super) struct Promises {
    newest: Superblock,
    /// What this incarnation writes is at this position of the disk's journal or behind it.
    position: u64,
    /// By sequence number, rising.
    writing: VecDeque<(u64, Views)>,
    /// None before the first superblock is durable.
    durable: Option<Views>,
}

impl Promises {
    /// Nothing is promised.
    pub(super) fn fresh(position: u64) -> Self {
        Self {
            position,
            ..Self::default()
        }
    }

    /// What was promised is not known any more (V13).
    pub(super) fn lost(position: u64) -> Self {
        let mut promises = Self::fresh(position);
        promises.newest.is_rejoining = true;
        promises
    }

    /// The promises of a replica that was stopped.
    pub(super) const fn recovered(superblock: Superblock, position: u64) -> Self {
        let durable = Views {
            view: superblock.view,
            log_view: superblock.log_view,
        };
        Self {
            newest: superblock,
            position,
            writing: VecDeque::new(),
            durable: Some(durable),
        }
    }

    /// The superblock that was written last, durable or not.
    pub(super) const fn newest(&self) -> &Superblock {
        &self.newest
    }

    /// The journal up to `head` is that of `view`; `suffix` names its last ops. Neither number ever falls
    /// (V2).
    pub(super) fn install(&mut self, view: View, head: Op, suffix: Vec<SuffixEntry>) {
        self.leave(view, head, suffix);
        self.newest.log_view = view;
        self.newest.since = self.position;
        self.newest.is_rejoining = false;
    }

    /// `view` is about to be started; the journal up to `head` is still that of `log_view`.
    pub(super) fn leave(&mut self, view: View, head: Op, suffix: Vec<SuffixEntry>) {
        assert!(view >= self.newest.view);
        assert!(view >= self.newest.log_view);
        self.newest.view = view;
        if mutation::V2 {
            self.newest.log_view = view;
        }
        self.newest.head = head;
        self.newest.suffix = suffix;
        self.retain_suffix();
    }

    /// The journal begins at the checkpoint and ends at `head`; it is still that of the same view.
    pub(super) fn begin_journal(&mut self, head: Op, suffix: Vec<SuffixEntry>) {
        assert!(head >= self.newest.checkpoint.op);
        self.newest.head = head;
        self.newest.suffix = suffix;
        self.retain_suffix();
    }

    fn retain_suffix(&mut self) {
        let checkpoint = self.newest.checkpoint.op;
        self.newest.suffix.retain(|entry| entry.op > checkpoint);
    }

    /// Checkpoints never go back either.
    pub(super) fn set_checkpoint(&mut self, checkpoint: ChainPoint, checkpoint_quorum: Op) {
        assert!(checkpoint.op >= self.newest.checkpoint.op);
        assert!(checkpoint_quorum >= self.newest.checkpoint_quorum);
        self.newest.checkpoint = checkpoint;
        self.newest.checkpoint_quorum = checkpoint_quorum;
        self.retain_suffix();
    }

    /// Except that one that cannot be read any more is none: an older one takes its place, from which the journal
    /// leads on. What is given up does not change.
    pub(super) fn go_back(&mut self, checkpoint: ChainPoint) {
        let recyclable = self.newest.recyclable();
        self.newest.checkpoint = checkpoint;
        assert!(
            self.newest.recyclable() == recyclable || mutation::V10_CHECKPOINT || mutation::V15
        );
    }

    /// The superblock to be made durable, under a sequence number of its own.
    pub(super) fn write(&mut self) -> Superblock {
        self.newest.sequence += 1;
        let views = Views {
            view: self.newest.view,
            log_view: self.newest.log_view,
        };
        self.writing.push_back((self.newest.sequence, views));
        self.newest.clone()
    }

    /// The superblock with this sequence number is durable. Each replaces those before it, so they are
    /// needed no more.
    pub(super) fn set_durable(&mut self, sequence: u64) {
        assert!(sequence <= self.newest.sequence);
        while let Some((written, views)) = self.writing.front() {
            if *written > sequence {
                break;
            }
            self.durable = Some(*views);
            self.writing.pop_front();
        }
    }

    /// Whether the replica may take part in `view`: it is durable, and so is the install of its journal.
    pub(super) fn is_durable(&self, view: View) -> bool {
        let views = Views {
            view,
            log_view: view,
        };
        self.durable == Some(views)
    }

    /// The view that is durable.
    pub(super) fn durable_view(&self) -> Option<View> {
        self.durable.map(|views| views.view)
    }

    /// The view whose journal this replica has; none while the journal of another is on its way to the disk.
    pub(super) fn journal_view(&self) -> Option<View> {
        let log_view = self.newest.log_view;
        let durable = self.durable.filter(|views| views.log_view == log_view);
        durable.map(|_| log_view)
    }

    /// V1: no message carries a view above the durable one, except a wish or a question; and what speaks
    /// of a journal waits for the durable log_view, too.
    pub(super) fn assert_may_say(&self, message: &Message) {
        if matches!(
            message,
            Message::StartViewChange(_) | Message::ViewProbe(_) | Message::ViewProbeOk(_)
        ) {
            return;
        }
        let durable = self
            .durable
            .expect("nothing is said before the first superblock");
        assert!(message.view() <= durable.view);
        if matches!(message, Message::PrepareOk(_) | Message::StartView(_)) {
            assert!(message.view() == durable.log_view);
        }
        if let Message::DoViewChange(vote) = message {
            assert!(vote.view == durable.view);
            assert!(vote.log_view == durable.log_view);
        }
    }
}
