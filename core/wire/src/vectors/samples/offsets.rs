//! Stored offsets.

use std::{vec, vec::Vec};

use super::{Vector, add_exchange, add_request, stream, topic};
use crate::{
    Consumer, DeleteConsumerOffset, DeleteResult, Epoch, ErrorCode, Failure, GetConsumerOffset,
    Identifier, Offset, OffsetResult, Offsets, OffsetsDeleted, OffsetsStored, PartitionId,
    ReplicaId, StoreConsumerOffset, StoreResult, StoreSection,
};

fn audit() -> Consumer {
    Consumer::Single("audit".into())
}

pub(super) fn add(vectors: &mut Vec<Vector>) {
    add_get(vectors);
    add_store(vectors);
    add_delete(vectors);
}

fn add_get(vectors: &mut Vec<Vector>) {
    let get = GetConsumerOffset {
        stream: stream(),
        topic: topic(),
        consumer: audit(),
        partitions: vec![PartitionId(0), PartitionId(1)],
    };
    let result = |partition, end, stored| OffsetResult {
        partition: PartitionId(partition),
        status: Ok(()),
        primary: ReplicaId(0),
        start: Offset(0),
        end: Offset(end),
        stored,
    };
    let offsets = Offsets {
        sections: vec![result(0, 1002, Some(Offset(999))), result(1, 0, None)],
    };
    add_exchange(vectors, "two partitions", get, offsets);
}

fn add_store(vectors: &mut Vec<Vector>) {
    let section = |partition, epoch, offset| StoreSection {
        partition: PartitionId(partition),
        epoch: Epoch(epoch),
        offset: Offset(offset),
    };
    let store = StoreConsumerOffset {
        stream: stream(),
        topic: topic(),
        consumer: audit(),
        sections: vec![section(0, 0, 1001), section(1, 0, 5)],
    };
    let stored = StoreResult {
        partition: PartitionId(0),
        status: Ok(()),
        primary: ReplicaId(0),
        stored: Some(Offset(1001)),
    };
    let refused = StoreResult {
        partition: PartitionId(1),
        status: Err(Failure::new(
            ErrorCode::OffsetOutOfRange,
            "offset 5 is out of range: the partition is empty",
        )),
        primary: ReplicaId(0),
        stored: None,
    };
    let stored = OffsetsStored {
        sections: vec![stored, refused],
    };
    add_exchange(vectors, "two partitions", store, stored);
    let group = StoreConsumerOffset {
        stream: stream(),
        topic: topic(),
        consumer: Consumer::Group(Identifier::Number(3)),
        sections: vec![section(0, 1234, 1001)],
    };
    add_request(vectors, "group", "a member of a consumer group", group);
}

fn add_delete(vectors: &mut Vec<Vector>) {
    let delete = DeleteConsumerOffset {
        stream: stream(),
        topic: topic(),
        consumer: audit(),
        partitions: vec![PartitionId(0)],
    };
    let deleted = OffsetsDeleted {
        sections: vec![DeleteResult {
            partition: PartitionId(0),
            status: Ok(()),
            primary: ReplicaId(0),
        }],
    };
    add_exchange(vectors, "one partition", delete, deleted);
}
