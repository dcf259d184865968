//! Messages of a poll's answer, until they are handed out.

use alloc::vec::Vec;

use wire::{Batch, Compression, Message, MessageIter, Offset, PollResult, Timestamp};

use crate::ConsumerError;

/// Messages of one batch.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) messages: MessageIter,
    /// Messages below this are not wanted.
    pub(crate) from: Offset,
    /// Nor are those from here on.
    pub(crate) to: Offset,
    /// The offset that is delivered next.
    pub(crate) next: Offset,
    /// When the broker appended the batch.
    pub(crate) appended: Timestamp,
    /// Bytes of the batch.
    pub(crate) size: usize,
}

impl Chunk {
    /// The next message that is wanted, if there is one left.
    pub(crate) fn next_message(&mut self) -> Option<Message> {
        // The batch was walked when it came in, so there is no error left to be found.
        let from = self.from;
        let mut messages = self.messages.by_ref().flatten();
        let message = messages.find(|message| message.offset >= from)?;
        if message.offset >= self.to {
            return None;
        }
        self.next = message.offset.next();
        Some(message)
    }
}

/// The batches of an answer, checked.
///
/// # Errors
/// A batch is damaged, or compressed in a way that this client cannot read.
pub(crate) fn chunks(section: &PollResult) -> Result<Vec<Chunk>, ConsumerError> {
    let partition = section.partition;
    let mut chunks = Vec::with_capacity(section.batches.len());
    for bytes in &section.batches {
        let batch = Batch::read(bytes).map_err(|error| ConsumerError::Damaged {
            partition,
            offset: section.from,
            error,
        })?;
        match batch.compression() {
            Some(Compression::None) => {}
            Some(compression @ (Compression::Lz4 | Compression::Zstd)) => {
                let offset = Offset(batch.header.base_offset);
                return Err(ConsumerError::Compressed {
                    partition,
                    offset,
                    compression,
                });
            }
            None => unreachable!("a batch with an unknown compression is not read"),
        }
        let base_offset = Offset(batch.header.base_offset);
        chunks.push(Chunk {
            messages: MessageIter::new(batch.body.clone(), base_offset),
            from: section.from,
            to: section.next,
            next: base_offset.max(section.from),
            appended: Timestamp(batch.header.timestamp),
            size: bytes.len(),
        });
    }
    Ok(chunks)
}
