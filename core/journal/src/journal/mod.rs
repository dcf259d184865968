//! The journal's writer: gathers records, lays frames out, says what is durable, recycles files.

mod assemble;
mod files;
mod find;
mod groups;
mod resume;
mod space;

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use bytes::Bytes;
use wire::{PrepareHeader, ShardId};

use self::space::Moving;
pub(crate) use self::{
    files::{Current, FileNotes, Files, Need, Placed},
    groups::{GroupState, Groups},
    resume::Zeroed,
};
pub use self::{find::FrameLocation, resume::Resume};
use crate::{
    Config, Effect, FileId, Input, Progress, Record, SuperblockRecord, Ticket, frame::FrameBuilder,
    layout::Head,
};

/// Writes the journal of one node, for all its shards and groups.
///
/// Feed it with [`Journal::handle`], then carry out what [`Journal::next_effect`] returns until it returns
/// nothing. A frame is laid out when an effect is asked for and none is in flight, so that everything
/// handed over until then goes into one write and one flush.
#[derive(Clone, Debug)]
pub struct Journal {
    config: Config,
    groups: Groups,
    shards: BTreeMap<ShardId, ShardState>,
    /// Prepares of the shards, in the order handed over.
    queue: VecDeque<Queued>,
    /// Prepares that are written again, to free the file they are in.
    moves: VecDeque<Queued>,
    moving: Option<Moving>,
    files: Files,
    effects: VecDeque<Effect>,
    builder: FrameBuilder,
    /// Header and tables of the last frame; kept for their room.
    head: Head,
    head_bytes: Vec<u8>,
    /// Prepares of the frame that is laid out; empty in between.
    taken: Vec<Queued>,
    flight: Option<Flight>,
    /// The newest frame, in flight or flushed.
    sequence: u64,
    /// Its hash.
    hash: u64,
    /// The newest frame that is flushed. Invariant: `sequence` or one less.
    flushed: u64,
    /// The newest frame that anybody may rely on, and that a later one must therefore cover.
    relied_on: u64,
    /// The newest frame with the superblock records of all groups.
    stated: u64,
    /// The next frame must be such a one.
    must_state: bool,
    /// The driver saw no record for a while.
    is_quiet: bool,
}

/// What is on its way to the disk.
#[derive(Clone, Debug)]
enum Flight {
    /// A frame.
    Frame {
        /// Bytes in the file.
        size: u64,
        /// Files that this frame is the first not to list.
        released: Vec<FileId>,
    },
    /// The frame found last is written once more before anything rests on it, and what was cut is zeroed.
    Healing {
        /// Flushes that are not reported yet.
        flushes: usize,
    },
}

/// A prepare that waits for its frame.
#[derive(Clone, Debug)]
struct Queued {
    header: PrepareHeader,
    body: Bytes,
    origin: Source,
}

/// Where a prepare comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Shard { shard: ShardId, ticket: Ticket },
    Move { number: u64 },
}

/// What one shard handed over.
#[derive(Clone, Copy, Debug, Default)]
struct ShardState {
    /// The newest ticket.
    handed: Ticket,
    /// Reported last.
    progress: Progress,
    /// The newest prepare in the frame in flight.
    prepare: Ticket,
    /// The newest superblock record handed over, in a frame, in the frame before that.
    superblock: Ticket,
    superblock_once: Ticket,
    superblock_twice: Ticket,
}

impl Journal {
    /// A journal without files.
    ///
    /// # Panics
    /// When the sizes of `config` contradict each other.
    #[must_use]
    pub fn new(config: Config) -> Self {
        assert_config(&config);
        let mut journal = Self {
            config,
            groups: Groups::new(),
            shards: BTreeMap::new(),
            queue: VecDeque::new(),
            moves: VecDeque::new(),
            moving: None,
            files: Files::default(),
            effects: VecDeque::new(),
            builder: FrameBuilder::new(config.unit_size),
            head: Head::default(),
            head_bytes: Vec::new(),
            taken: Vec::new(),
            flight: None,
            sequence: 0,
            hash: 0,
            flushed: 0,
            relied_on: 0,
            stated: 0,
            must_state: true,
            is_quiet: false,
        };
        journal.prepare_next();
        journal
    }

    /// Feeds one event.
    ///
    /// # Panics
    /// When a completion comes that nothing asked for, or a record that no frame can hold.
    pub fn handle(&mut self, input: Input) {
        match input {
            Input::Record { shard, record } => self.on_record(shard, record),
            Input::Flushed => self.on_flushed(),
            Input::Prepared { file } => self.on_prepared(file),
            Input::Read { file, bytes, .. } => self.on_read(file, &bytes),
            Input::Quiet => self.is_quiet = true,
            Input::Suspend { group } => {
                self.groups.entry(group).or_default().is_suspended = true;
            }
        }
        self.assert_invariants();
    }

    /// The next thing to do, if there is one.
    pub fn next_effect(&mut self) -> Option<Effect> {
        if self.effects.is_empty() && self.flight.is_none() {
            self.assemble();
        }
        self.effects.pop_front()
    }

    /// The bytes that an [`Effect::Write`] writes; unchanged until [`Input::Flushed`].
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        self.builder.bytes()
    }

    /// Whether [`Input::Quiet`] would have something to do: to cover the last frame, or to free files.
    #[must_use]
    pub fn wants_quiet(&self) -> bool {
        self.flight.is_none() && !self.is_quiet && self.is_unsettled()
    }

    /// Whether records wait for a file that is not there yet.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.flight.is_none()
            && self.files.ready.is_none()
            && (!self.queue.is_empty() || !self.moves.is_empty() || self.owes_copies())
    }

    /// Whether all that was found at the start is safe on the disk again, so that a replica may act on it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let has_file = self.files.current.is_some() || self.files.ready.is_some();
        has_file && self.flight.is_none() && self.effects.is_empty() && !self.owes_copies()
    }

    /// How far the records of a shard are durable.
    #[must_use]
    pub fn progress(&self, shard: ShardId) -> Progress {
        self.shards
            .get(&shard)
            .map_or_else(Progress::default, |state| state.progress)
    }

    /// Bytes of the files that something is needed from.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.files.live(&self.groups)
    }

    /// Sequence number of the newest frame.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    fn on_record(&mut self, shard: ShardId, record: Record) {
        let state = self.shards.entry(shard).or_default();
        state.handed.0 += 1;
        let ticket = state.handed;
        match record {
            Record::Prepare { header, body } => {
                assert!(header.size as usize == wire::PREPARE_HEADER_SIZE + body.len());
                let group = self.groups.entry(header.group()).or_default();
                group.shard = Some(shard);
                self.queue.push_back(Queued {
                    header,
                    body,
                    origin: Source::Shard { shard, ticket },
                });
            }
            Record::Superblock(record) => {
                state.superblock = ticket;
                self.on_superblock(shard, record);
            }
        }
    }

    fn on_superblock(&mut self, shard: ShardId, record: SuperblockRecord) {
        let group = self.groups.entry(record.group).or_default();
        group.shard = Some(shard);
        group.record = Some(record);
        group.copies = 0;
    }

    fn on_flushed(&mut self) {
        match self.flight.take().expect("a flush was asked for") {
            Flight::Healing { flushes: 1 } => {}
            Flight::Healing { flushes } => {
                self.flight = Some(Flight::Healing {
                    flushes: flushes - 1,
                });
            }
            Flight::Frame { size, released } => {
                let current = self.files.current.as_mut().expect("a frame was written");
                current.position += size;
                self.flushed = self.sequence;
                self.report_progress();
                for group in self.groups.values_mut() {
                    if let Some(record) = &group.record
                        && group.copies == groups::COPIES
                    {
                        group.released = group.released.max(record.checkpoint);
                    }
                }
                self.after_flush(released);
            }
        }
    }

    fn report_progress(&mut self) {
        for (shard, state) in &mut self.shards {
            let progress = Progress {
                flushed: state.progress.flushed.max(state.prepare),
                repeated: state.superblock_twice,
            };
            if progress != state.progress {
                state.progress = progress;
                self.effects.push_back(Effect::Progress {
                    shard: *shard,
                    progress,
                });
            }
        }
    }

    fn on_prepared(&mut self, file: FileId) {
        let preparing = self.files.preparing.take();
        let ready = preparing.expect("a file was asked for");
        assert!(ready.file == file);
        self.files.ready = Some(ready);
    }

    fn owes_copies(&self) -> bool {
        self.groups.values().any(GroupState::owes_copy)
    }

    fn is_unsettled(&self) -> bool {
        self.relied_on == self.sequence && self.sequence > 0 || self.has_release()
    }

    fn assert_invariants(&self) {
        assert!(self.flushed <= self.sequence);
        assert!(self.sequence <= self.flushed + 1);
        assert!(self.taken.is_empty());
        if let Some(current) = &self.files.current {
            assert!(current.position <= current.notes.size);
        }
    }
}

fn assert_config(config: &Config) {
    let alignment = crate::FRAME_ALIGNMENT as u64;
    for size in [config.file_size, config.first_file_size] {
        assert!(size > 0 && size.is_multiple_of(alignment));
        assert!(size <= 1 << 40);
    }
    assert!(config.live_max >= 2 * config.file_size.max(config.first_file_size));
    assert!(config.checkpoint_at <= config.live_max);
}
