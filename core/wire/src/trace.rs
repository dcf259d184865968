//! Records which field was read where, so that tests can write a frame down field by field.

use core::cell::RefCell;
use std::{thread_local, vec::Vec};

/// One read of a decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// The field, as the decoder names it.
    pub(crate) field: &'static str,
    /// What of the field, where that is not its value: `kind`, `length`, `count`, `present`.
    pub(crate) part: Option<&'static str>,
    /// Where it starts.
    pub(crate) position: usize,
    /// How many bytes.
    pub(crate) size: usize,
    /// Whether the bytes are text.
    pub(crate) is_text: bool,
}

thread_local! {
    static READS: RefCell<Option<Vec<Read>>> = const { RefCell::new(None) };
    static PART: RefCell<Option<&'static str>> = const { RefCell::new(None) };
    static IS_TEXT: RefCell<bool> = const { RefCell::new(false) };
}

/// Says what the next read is of its field.
pub(crate) fn part(part: &'static str) {
    PART.set(Some(part));
}

/// Says that the next read is text.
pub(crate) fn text() {
    IS_TEXT.set(true);
}

/// Notes a read, if somebody wants to know.
pub(crate) fn record(field: &'static str, position: usize, size: usize) {
    let part = PART.take();
    let is_text = IS_TEXT.take();
    READS.with_borrow_mut(|reads| {
        if let Some(reads) = reads {
            reads.push(Read {
                field,
                part,
                position,
                size,
                is_text,
            });
        }
    });
}

/// Runs `decode` and gives the reads of this thread meanwhile.
pub(crate) fn reads_of<T>(decode: impl FnOnce() -> T) -> (T, Vec<Read>) {
    READS.set(Some(Vec::new()));
    let value = decode();
    let reads = READS.take().unwrap_or_default();
    (value, reads)
}
