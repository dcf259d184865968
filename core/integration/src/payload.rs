//! Payloads that say what they are.

use std::fmt::Write;

use bytes::Bytes;

/// Says which message it is: the producer, and the message's number with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// Who sends it.
    pub producer: u32,
    /// Its number, from 0.
    pub sequence: u64,
}

/// A payload of `size` bytes, more if the tag takes more: the tag as text, then bytes that follow from it,
/// so that a changed or shifted byte shows.
#[must_use]
pub fn payload(tag: Tag, size: usize) -> Bytes {
    let mut text = String::new();
    write!(text, "{}/{};", tag.producer, tag.sequence).expect("a String takes everything");
    let mut bytes = text.into_bytes();
    let mut state = (u64::from(tag.producer) << 40 ^ tag.sequence).wrapping_mul(SPREAD) | 1;
    while bytes.len() < size {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state.to_le_bytes();
        let left = size - bytes.len();
        bytes.extend_from_slice(&word[..left.min(word.len())]);
    }
    Bytes::from(bytes)
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Tag {
    /// The tag of a payload; `None` when it has none.
    #[must_use]
    pub fn of(payload: &[u8]) -> Option<Self> {
        let end = payload.iter().position(|byte| *byte == b';')?;
        let text = str::from_utf8(&payload[..end]).ok()?;
        let (producer, sequence) = text.split_once('/')?;
        Some(Self {
            producer: producer.parse().ok()?,
            sequence: sequence.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Tag, payload};

    #[test]
    fn payload_tells_its_tag_and_differs_from_every_other() {
        let tag = Tag {
            producer: 3,
            sequence: 71,
        };
        let bytes = payload(tag, 1_000);
        assert_eq!(bytes.len(), 1_000);
        assert_eq!(Tag::of(&bytes), Some(tag));
        assert_eq!(payload(tag, 0), "3/71;");
        let other = payload(
            Tag {
                sequence: 72,
                ..tag
            },
            1_000,
        );
        let equal = bytes.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(equal < 50, "{equal}");
    }
}
