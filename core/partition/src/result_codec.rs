//! The bytes of results, for the node that passed the requests on. They are on no disk.

use wire::{
    ConsumerGroupId, Epoch, Incarnation, MemberId, Offset, Op, SessionNumber, Timestamp, fields,
    kinds,
};

use crate::{Absent, DataResult, EpochHolder, GroupRecord, Refusal, StartAt};

fields! {
    EpochHolder {
        member: MemberId,
        session: SessionNumber,
    }
    GroupRecord {
        fence: Epoch,
        holder: Option<EpochHolder>,
        stored: Option<Offset>,
        start: Option<StartAt>,
    }
}

kinds! {
    StartAt: "start" {
        1 Offset(offset: Offset)
        2 Time(time: Timestamp)
    }

    Absent: "absence" {
        1 NotHere {}
        2 OtherIncarnation { here: Incarnation, named: Incarnation, }
    }

    Refusal: "refusal" {
        1 Absent(absent: Absent)
        2 OffsetOutOfRange { offset: Offset, start: Offset, end: Offset, }
        3 SequenceOutOfOrder { sequence: u64, expected: u64, }
        4 SequenceTooOld { sequence: u64, last: u64, }
        5 SequenceReused { sequence: u64, offset: Offset, }
        6 ProducerUnknown { sequence: u64, }
        7 TooManyConsumers { limit: u64, }
        8 OffsetNotStored {}
        9 StaleEpoch { epoch: Epoch, fence: Epoch, }
        10 NotHolder { epoch: Epoch, here: Option<EpochHolder>, asked: EpochHolder, }
        11 GroupGone { admitted: Op, dropped: Op, }
    }

    DataResult: "result" {
        1 Created {}
        2 Dropped {}
        3 Appended { base_offset: Offset, repeated: bool, }
        4 Stored { stored: Offset, }
        5 OffsetDeleted { stored: Offset, }
        6 HeadTruncated { start: Offset, }
        7 Record { group: ConsumerGroupId, record: GroupRecord, }
        8 ConsumerGroupDropped { group: ConsumerGroupId, }
        9 Failed(refusal: Refusal)
    }
}
