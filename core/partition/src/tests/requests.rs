//! The body of a data prepare.

use proptest::prelude::*;
use wire::{GroupStart, ResetTarget};

use super::*;
use crate::{EpochHolder, FenceOffset, Grant, GroupCommand, decode_requests};

fn every_kind() -> Vec<DataRequest> {
    let (key, incarnation, admitted) = (key(4), Incarnation(5), Op(6));
    let consumer = "consumer".to_string();
    alloc::vec![
        DataRequest::CreatePartition {
            key,
            incarnation,
            admitted
        },
        DataRequest::DropPartition {
            key,
            incarnation,
            dropped: Op(9)
        },
        DataRequest::Append {
            key,
            incarnation,
            admitted,
            batch: batch_of(&["a", "bc"], 1, 2)
        },
        DataRequest::StoreOffset {
            key,
            incarnation,
            admitted,
            consumer: consumer.clone(),
            offset: Offset(3)
        },
        DataRequest::DeleteOffset {
            key,
            incarnation,
            admitted,
            consumer
        },
        DataRequest::DeleteOffset {
            key,
            incarnation,
            admitted,
            consumer: String::new()
        },
        DataRequest::TruncateHead {
            key,
            incarnation,
            offset: Offset(8)
        },
        DataRequest::DropConsumerGroup {
            key,
            incarnation,
            dropped: Op(9),
            group: ConsumerGroupId(10),
        },
    ]
    .into_iter()
    .chain(every_command().map(|command| DataRequest::ConsumerGroup {
        key,
        incarnation,
        admitted,
        group: ConsumerGroupId(10),
        command,
    }))
    .collect()
}

/// Every kind of command with every kind of offset.
fn every_command() -> impl Iterator<Item = GroupCommand> {
    let grant = |epoch| Grant {
        epoch: Epoch(epoch),
        holder: EpochHolder {
            member: MemberId(12),
            session: SessionNumber(13),
        },
    };
    let time = Timestamp(14);
    let fences = [
        FenceOffset::Keep,
        FenceOffset::Start(GroupStart::Earliest),
        FenceOffset::Start(GroupStart::Latest),
        FenceOffset::Start(GroupStart::Timestamp(time)),
        FenceOffset::Reset(ResetTarget::Nothing),
        FenceOffset::Reset(ResetTarget::Earliest),
        FenceOffset::Reset(ResetTarget::Latest),
        FenceOffset::Reset(ResetTarget::Timestamp(time)),
        FenceOffset::Reset(ResetTarget::Offset(Offset(15))),
    ];
    let fences = fences.into_iter().flat_map(move |offset| {
        [None, Some(grant(11).holder)].map(|holder| GroupCommand::Fence {
            epoch: Epoch(11),
            holder,
            offset,
        })
    });
    let store = GroupCommand::Store {
        grant: grant(11),
        offset: Offset(15),
    };
    let releases = [None, Some(Offset(0)), Some(Offset(15))].map(|offset| GroupCommand::Release {
        grant: grant(11),
        offset,
        to: grant(16),
    });
    fences.chain([store]).chain(releases)
}

#[test]
fn every_request_comes_back_as_it_was() {
    let requests = every_kind();
    let body = encode_requests(&requests);
    let size = requests
        .iter()
        .map(DataRequest::encoded_size)
        .sum::<usize>();
    assert_eq!(body.len(), 4 + size);
    assert_eq!(decode_requests(body).as_ref(), Ok(&requests));
    assert_eq!(decode_requests(encode_requests(&[])), Ok(Vec::new()));
}

#[test]
fn layout_stays_as_it_is() {
    let body = encode_requests(&[DataRequest::StoreOffset {
        key: key(0x04),
        incarnation: Incarnation(5),
        admitted: Op(6),
        consumer: "c1".to_string(),
        offset: Offset(7),
    }]);
    let expected = [
        &[1, 0, 0, 0, 4][..],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0, 0, 0, 0, 0],
        &[4, 0, 0, 0],
        &[5, 0, 0, 0, 0, 0, 0, 0],
        &[6, 0, 0, 0, 0, 0, 0, 0],
        &[2, b'c', b'1'],
        &[7, 0, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(body, expected.concat());
}

#[test]
fn layout_of_what_groups_ask_stays_as_it_is() {
    let head = [
        &[1, 0, 0, 0, 0, 0, 0, 0][..],
        &[2, 0, 0, 0, 0, 0, 0, 0],
        &[4, 0, 0, 0],
        &[5, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let number = |value: u8| [value, 0, 0, 0, 0, 0, 0, 0];
    let grant = |epoch| [number(epoch), number(12), number(13)].concat();
    let nobody = [number(11), number(0), number(0)].concat();
    let fence = |kind: u8, value| [&[kind][..], &number(value)].concat();
    let kinds = [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 14),
        (4, 0),
        (5, 0),
        (6, 0),
        (7, 14),
        (8, 15),
    ];
    let fences = kinds.into_iter().flat_map(|(kind, value)| {
        [&nobody, &grant(11)].map(|holder| (7, [&holder[..], &fence(kind, value)].concat()))
    });
    let store = [(8, [grant(11), number(15).to_vec()].concat())];
    let releases = [(0, 0), (1, 0), (1, 15)].map(|(there, offset)| {
        let offset = [&[there][..], &number(offset)].concat();
        (9, [grant(11), offset, grant(16)].concat())
    });
    let commands = fences.chain(store).chain(releases);
    let mut expected: Vec<_> = commands
        .map(|(kind, fields)| {
            let numbers = [number(6), number(10)].concat();
            [&[kind][..], &head, &numbers, &fields].concat()
        })
        .collect();
    let drop = [number(9), number(10)].concat();
    expected.insert(0, [&[10][..], &head, &drop].concat());
    let requests = &every_kind()[7..];
    let body = encode_requests(requests);
    let count = u32::try_from(requests.len()).expect("a few");
    assert_eq!(body[..4], count.to_le_bytes());
    assert_eq!(body[4..], expected.concat());
}

#[test]
fn fence_with_an_offset_that_no_kind_has_is_refused() {
    let fence = every_kind().remove(8);
    let body = encode_requests(&[fence]).to_vec();
    let kind = body.len() - 9;
    for (index, value) in [(kind, 9), (kind, 255), (kind + 1, 1), (body.len() - 1, 1)] {
        let mut body = body.clone();
        body[index] = value;
        let error = decode_requests(Bytes::from(body)).expect_err("there is no such kind");
        assert_eq!(error.field, "offset kind");
    }
}

#[test]
fn batches_are_slices_of_the_body() {
    let body = encode_requests(&every_kind());
    let requests = decode_requests(body.clone()).expect("encoded here");
    let DataRequest::Append { batch, .. } = &requests[2] else {
        panic!("the third is an append");
    };
    assert!(body.as_ptr_range().contains(&batch.body.as_ptr()));
}

#[test]
fn body_cut_anywhere_is_refused() {
    let body = encode_requests(&every_kind());
    for length in 0..body.len() {
        assert!(
            decode_requests(body.slice(..length)).is_err(),
            "{length} bytes"
        );
    }
    let longer = [&body[..], &[0]].concat();
    assert!(decode_requests(Bytes::from(longer)).is_err());
}

#[test]
fn count_that_the_bytes_do_not_back_is_refused() {
    let body = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3]);
    let error = decode_requests(body).expect_err("4 billion requests");
    assert_eq!(error.field, "request count");
}

#[test]
fn batch_without_messages_or_with_half_a_producer_is_refused() {
    let mut empty = batch_of(&["a"], 0, 0);
    empty.header.count = 0;
    let mut half = batch_of(&["a"], 0, 0);
    half.header.sequence = 1;
    for (batch, field) in [(empty, "batch count"), (half, "batch sequence")] {
        let error = decode_requests(encode_requests(&[append(0, batch)])).expect_err("not a batch");
        assert_eq!(error.field, field);
    }
}

proptest! {
    #[test]
    fn mutated_bodies_are_refused_or_applied_but_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        // All but the drop of the partition, which would leave nothing to do for the others.
        let mut requests = every_kind();
        requests.remove(1);
        let mut body = encode_requests(&requests).to_vec();
        for (index, value) in changes {
            let index = index.index(body.len());
            body[index] = value;
        }
        let mut node = Node::new(config());
        node.apply_one(DataRequest::CreatePartition {
            key: key(4),
            incarnation: Incarnation(5),
            admitted: Op(6),
        });
        node.apply_one(DataRequest::Append {
            key: key(4),
            incarnation: Incarnation(5),
            admitted: Op(6),
            batch: batch_of(&["x"; 20], 1, 1),
        });
        let applied = node.group.apply_prepare(Op(3), Timestamp(2_000), &Bytes::from(body));
        if applied.is_err() {
            prop_assert_eq!(node.group.op(), Op(2));
        }
        node.settle();
        let snapshot = node.group.snapshot();
        prop_assert!(DataGroup::restore(config(), snapshot).is_ok());
    }

    #[test]
    fn random_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_requests(Bytes::from(body));
    }
}
