//! What waits to be written to one connection.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::buffers::BufferPool;

/// Parts below this are copied together, larger ones are written from where they are.
const COPY_MAX: usize = 16 * 1024;

/// What small parts are copied into.
const TAIL_BUFFER: usize = 64 * 1024;

/// Bytes of one write.
const WRITE_MAX: usize = 1024 * 1024;

/// Pieces of one write; the kernel takes 1,024.
const PIECES_MAX: usize = 256;

/// Pieces in order; small parts are copied as they come, so that a burst of replies is one piece.
#[derive(Debug, Default)]
pub(super) struct Output {
    pieces: VecDeque<Bytes>,
    /// The small parts behind the last piece. Without a buffer while there are none.
    tail: BytesMut,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    pub(super) fn push(&mut self, part: Bytes, pool: &BufferPool) {
        if part.len() >= COPY_MAX {
            self.end_tail(pool);
            self.pieces.push_back(part);
            return;
        }
        if self.tail.capacity() - self.tail.len() < part.len() {
            self.end_tail(pool);
            self.tail = pool.take(TAIL_BUFFER);
        }
        self.tail.extend_from_slice(&part);
    }

    /// Takes what the next write carries; nothing when nothing is left.
    pub(super) fn take(&mut self, pool: &BufferPool) -> Vec<Bytes> {
        self.end_tail(pool);
        let mut size = 0;
        let mut count = 0;
        for piece in self.pieces.iter().take(PIECES_MAX) {
            // The little before a large piece, say its frame's header, is not worth a write of its own.
            if size >= COPY_MAX && size + piece.len() > WRITE_MAX {
                break;
            }
            size += piece.len();
            count += 1;
        }
        let pieces = self.pieces.drain(..count).collect();
        if self.pieces.is_empty() && self.pieces.capacity() > PIECES_MAX {
            // A burst's memory is not kept for the connection's life.
            self.pieces = VecDeque::new();
        }
        pieces
    }

    /// Forgets everything; says how many bytes that were.
    pub(super) fn clear(&mut self) -> usize {
        let pieces: usize = self.pieces.drain(..).map(|piece| piece.len()).sum();
        pieces + std::mem::take(&mut self.tail).len()
    }

    fn end_tail(&mut self, pool: &BufferPool) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
            pool.give(TAIL_BUFFER, std::mem::take(&mut self.tail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(output: &mut Output, pool: &BufferPool) -> Vec<usize> {
        output.take(pool).iter().map(Bytes::len).collect()
    }

    #[test]
    fn small_parts_become_one_piece_and_large_ones_are_not_copied() {
        let pool = BufferPool::new(1 << 20);
        let large = Bytes::from(vec![9; COPY_MAX]);
        let mut output = Output::default();
        output.push(Bytes::from_static(b"a"), &pool);
        output.push(Bytes::from_static(b"b"), &pool);
        output.push(large.clone(), &pool);
        output.push(Bytes::from_static(b"c"), &pool);
        assert!(!output.is_empty());
        let pieces = output.take(&pool);
        assert_eq!(
            pieces,
            [
                Bytes::from_static(b"ab"),
                large.clone(),
                Bytes::from_static(b"c")
            ]
        );
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert!(output.is_empty());
        assert!(output.take(&pool).is_empty());
    }

    #[test]
    fn one_write_is_bounded_in_bytes_and_pieces() {
        let pool = BufferPool::new(1 << 20);
        let mut output = Output::default();
        (0..5).for_each(|_| output.push(Bytes::from(vec![0; 400_000]), &pool));
        assert_eq!(lengths(&mut output, &pool), [400_000; 2]);
        output.push(Bytes::from(vec![0; 2 * WRITE_MAX]), &pool);
        assert_eq!(lengths(&mut output, &pool), [400_000; 2]);
        assert_eq!(lengths(&mut output, &pool), [400_000]);
        assert_eq!(
            lengths(&mut output, &pool),
            [2 * WRITE_MAX],
            "a single piece of any size"
        );

        (0..300).for_each(|_| output.push(Bytes::from(vec![0; COPY_MAX]), &pool));
        assert_eq!(lengths(&mut output, &pool).len(), WRITE_MAX / COPY_MAX);
        assert_eq!(output.clear(), 300 * COPY_MAX - WRITE_MAX);
    }

    #[test]
    fn header_goes_with_its_body_however_large_that_is() {
        let pool = BufferPool::new(1 << 20);
        let mut output = Output::default();
        for _ in 0..2 {
            output.push(Bytes::from(vec![0; 100]), &pool);
            output.push(Bytes::from(vec![0; WRITE_MAX]), &pool);
        }
        assert_eq!(lengths(&mut output, &pool), [100, WRITE_MAX]);
        assert_eq!(lengths(&mut output, &pool), [100, WRITE_MAX]);
    }

    #[test]
    fn small_parts_overflow_into_the_next_buffer() {
        let pool = BufferPool::new(1 << 20);
        let mut output = Output::default();
        (0..100).for_each(|_| output.push(Bytes::from(vec![0; 1_000]), &pool));
        let lengths = lengths(&mut output, &pool);
        assert_eq!(lengths.iter().sum::<usize>(), 100_000);
        assert_eq!(lengths.len(), 2);
    }
}
