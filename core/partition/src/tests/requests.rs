//! The body of a data prepare.

use proptest::prelude::*;

use super::*;
use crate::decode_requests;

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
    ]
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
        let mut body = encode_requests(&every_kind()).to_vec();
        for (index, value) in changes {
            let index = index.index(body.len());
            body[index] = value;
        }
        let mut node = Node::new(config());
        node.op = 1;
        let applied = node.group.apply_prepare(Op(1), Timestamp(1), &Bytes::from(body));
        if applied.is_err() {
            prop_assert_eq!(node.group.op(), Op(0));
        }
        node.settle();
    }

    #[test]
    fn random_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_requests(Bytes::from(body));
    }
}
