//! What the state machines call a file, as the storage calls it.

use partition::SegmentId;
use storage::SegmentName;

pub(crate) const fn segment(id: SegmentId) -> SegmentName {
    SegmentName {
        group: id.group,
        partition: id.partition,
        incarnation: id.incarnation,
        base: id.base,
    }
}

pub(crate) const fn file_kind(kind: partition::FileKind) -> storage::FileKind {
    match kind {
        partition::FileKind::Segment => storage::FileKind::Segment,
        partition::FileKind::Index => storage::FileKind::Index,
    }
}
