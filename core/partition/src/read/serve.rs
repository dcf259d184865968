//! Serves batches from the bytes of a segment's file.

use bytes::Bytes;
use wire::Offset;

use super::{
    Batches,
    goal::{Floor, Goal, Wanted},
};
use crate::{
    Damage, Range, SegmentProblem,
    group::Partition,
    verify::{Step, Walk, to_index},
};

/// What came of a range of a segment.
#[derive(Debug)]
pub(super) enum Served {
    /// The answer.
    Batches(Batches),
    /// What is wanted is not in the range; the goal says what is known by now.
    Again,
}

/// Checks every batch of a range, and takes those that are wanted. The range begins with the batch at
/// offset `first` of the segment with base `segment`, and may end in the middle of one.
pub(super) fn serve(
    goal: &mut Goal,
    partition: &Partition,
    bytes: Option<&Bytes>,
    (segment, range, first): (Offset, Range, Offset),
) -> Result<Served, Damage> {
    if goal.skip_to_start(partition) {
        return Ok(Served::Again);
    }
    let length = to_index(range.length);
    let found = bytes.map(|bytes| bytes.slice(..length.min(bytes.len())));
    let mut walk = Walk::new(found.clone().unwrap_or_default(), range.position, first);
    let Some(found) = found else {
        return Err(walk.damage(SegmentProblem::Unreadable));
    };
    let whole = found.len() == length;
    let mut taken: Option<(Batches, usize)> = None;
    let mut full = false;
    let needed = loop {
        // Bytes behind the answer are looked at only to find where a file that is too short ends.
        if full && whole {
            break 0;
        }
        let begin = walk.position;
        let batch = match walk.step()? {
            Step::Batch(batch) => batch,
            Step::Partial { needed } => break needed,
        };
        let size = u64::from(batch.header.size);
        if taken.is_none() {
            let from = goal.first_in(&batch.header, partition.start);
            taken = from.map(|from| {
                let answer = goal.answer(partition, from);
                (answer, to_index(begin - range.position))
            });
        }
        if let Some((batches, _)) = &mut taken
            && !full
        {
            if goal.takes(batches, size) {
                batches.next = walk.next;
                batches.size += size;
            } else {
                full = true;
            }
        }
    };
    if !whole {
        let length = range.position + found.len() as u64;
        return Err(walk.damage(SegmentProblem::Short { length }));
    }
    if let Some((mut batches, begin)) = taken {
        let end = begin + to_index(batches.size);
        batches.parts.push(found.slice(begin..end));
        return Ok(Served::Batches(batches));
    }
    match &mut goal.wanted {
        Wanted::Time { floor, .. } if walk.position > range.position => {
            *floor = Some(Floor {
                segment,
                offset: walk.next,
                position: walk.position,
            });
            Ok(Served::Again)
        }
        // The range was chosen so that it holds the batch as a whole.
        Wanted::Offset(_) | Wanted::Time { .. } => {
            let left = range.position + range.length - walk.position;
            let size = needed;
            Err(walk.damage(SegmentProblem::Overrun { size, left }))
        }
    }
}
