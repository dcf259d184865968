//! What waits to be sent over one link.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Urgency;

/// Bytes that wait, above which what is urgent goes before them.
const OVERTAKE: usize = 256 * 1024;

/// Bytes of urgent frames that may wait, beside all others.
const URGENT_MAX: usize = 1024 * 1024;

/// Bytes of one write, and pieces; one frame may be larger.
const WRITE_MAX: usize = 1024 * 1024;
const PIECES_MAX: usize = 256;

/// Bytes of frames that are kept, beside all others. What they answer, or who asked for them, is bounded before that.
const KEPT_MAX: usize = 256 * 1024 * 1024;

/// Whole frames, in order; urgent ones overtake when much waits.
#[derive(Debug, Default)]
pub(super) struct Queue {
    urgent: VecDeque<Vec<Bytes>>,
    urgent_bytes: usize,
    /// And whether they are kept.
    others: VecDeque<(bool, Vec<Bytes>)>,
    /// Of those that may be dropped, and of those that are kept.
    bytes: usize,
    kept_bytes: usize,
}

impl Queue {
    /// Queues a frame unless there is no room for it; `room` is for those that are not urgent, bytes. A frame
    /// that nothing waits before is always taken, however large.
    pub(super) fn push(&mut self, frame: Vec<Bytes>, urgency: Urgency, room: usize) -> bool {
        let size: usize = frame.iter().map(Bytes::len).sum();
        if urgency == Urgency::High && self.bytes + self.kept_bytes > OVERTAKE {
            if self.urgent_bytes + size > URGENT_MAX {
                return false;
            }
            self.urgent_bytes += size;
            self.urgent.push_back(frame);
            return true;
        }
        let is_kept = urgency == Urgency::Kept;
        let (bytes, most) = match is_kept {
            true => (&mut self.kept_bytes, KEPT_MAX),
            false => (&mut self.bytes, room),
        };
        if *bytes > 0 && *bytes + size > most {
            return false;
        }
        *bytes += size;
        self.others.push_back((is_kept, frame));
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.others.is_empty()
    }

    /// Takes whole frames for the next write, the urgent ones first.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut size = 0;
        loop {
            let urgent = self.urgent.front();
            let Some(frame) = urgent.or_else(|| self.others.front().map(|(_, frame)| frame)) else {
                return pieces;
            };
            let bytes: usize = frame.iter().map(Bytes::len).sum();
            let is_full = size + bytes > WRITE_MAX || pieces.len() + frame.len() > PIECES_MAX;
            if size > 0 && is_full {
                return pieces;
            }
            size += bytes;
            pieces.extend(self.pop(bytes));
        }
    }

    /// Takes the next frame, of so many bytes.
    fn pop(&mut self, bytes: usize) -> Vec<Bytes> {
        if let Some(frame) = self.urgent.pop_front() {
            self.urgent_bytes -= bytes;
            return frame;
        }
        let Some((is_kept, frame)) = self.others.pop_front() else {
            return Vec::new();
        };
        match is_kept {
            true => self.kept_bytes -= bytes,
            false => self.bytes -= bytes,
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(letter: u8, size: usize) -> Vec<Bytes> {
        vec![Bytes::from(vec![letter; size])]
    }

    fn letters(queue: &mut Queue) -> Vec<u8> {
        queue.take().iter().map(|piece| piece[0]).collect()
    }

    #[test]
    fn order_is_kept_while_little_waits() {
        let mut queue = Queue::default();
        assert!(queue.push(frame(1, 1_000), Urgency::Normal, 1 << 20));
        assert!(queue.push(frame(2, 100), Urgency::High, 1 << 20));
        assert!(queue.push(frame(3, 100), Urgency::Normal, 1 << 20));
        assert_eq!(letters(&mut queue), [1, 2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn urgent_frame_waits_for_one_write_at_most() {
        let mut queue = Queue::default();
        for _ in 0..10 {
            assert!(queue.push(frame(1, WRITE_MAX / 2), Urgency::Normal, 64 << 20));
        }
        assert_eq!(letters(&mut queue), [1, 1]);
        assert!(queue.push(frame(2, 100), Urgency::High, 64 << 20));
        assert_eq!(letters(&mut queue), [2, 1]);
    }

    #[test]
    fn what_is_said_once_is_kept_however_much_waits_and_takes_nobody_s_room() {
        let mut queue = Queue::default();
        let room = 3_000;
        assert!(queue.push(frame(1, 2_000), Urgency::Normal, room));
        assert!(!queue.push(frame(2, 2_000), Urgency::Normal, room));
        for letter in 3..6 {
            assert!(queue.push(frame(letter, 2_000), Urgency::Kept, room));
        }
        assert!(queue.push(frame(6, 1_000), Urgency::Normal, room));
        assert_eq!(letters(&mut queue), [1, 3, 4, 5, 6]);
        assert_eq!((queue.bytes, queue.kept_bytes), (0, 0));
        // In the end it is a node that does not read.
        let large = frame(7, KEPT_MAX / 2 + 1);
        assert!(queue.push(large.clone(), Urgency::Kept, room));
        assert!(!queue.push(large, Urgency::Kept, room));
    }

    #[test]
    fn what_does_not_fit_is_dropped_whole_and_urgent_frames_still_fit() {
        let mut queue = Queue::default();
        let room = 1 << 20;
        assert!(
            queue.push(frame(1, 2 * room), Urgency::Normal, room),
            "alone"
        );
        assert!(!queue.push(frame(2, 1), Urgency::Normal, room));
        assert!(queue.push(frame(3, 1), Urgency::High, room));
        let urgent = (0..).take_while(|_| queue.push(frame(4, 100_000), Urgency::High, room));
        assert_eq!(urgent.count(), 10);
        let taken: Vec<Bytes> = std::iter::from_fn(|| Some(queue.take()))
            .take_while(|pieces| !pieces.is_empty())
            .flatten()
            .collect();
        assert_eq!(taken.len(), 12);
        assert!(queue.push(frame(1, room), Urgency::Normal, room));
    }

    #[test]
    fn pieces_of_a_frame_stay_together() {
        let mut queue = Queue::default();
        for _ in 0..3 {
            let frame = vec![Bytes::from_static(b"head"), Bytes::from(vec![0; WRITE_MAX])];
            assert!(queue.push(frame, Urgency::Normal, 64 << 20));
        }
        for _ in 0..3 {
            assert_eq!(queue.take().len(), 2);
        }
    }
}
