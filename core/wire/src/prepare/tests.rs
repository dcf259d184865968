//! Sealed prepares.

use super::{PREPARE_HEADER_SIZE, PrepareHeader};
use crate::{ClientId, ConsensusGroup, Op, RequestNumber, SessionNumber, Timestamp, View};

fn sealed() -> PrepareHeader {
    PrepareHeader {
        parent: 1,
        cluster: 2,
        client: 3,
        session: 4,
        request: 5,
        op: 6,
        timestamp: 7,
        view: 8,
        group: 9,
        operation: 10,
        version: 11,
        ..PrepareHeader::default()
    }
    .sealed(b"body")
}

#[test]
fn sealed_header_is_valid_with_its_body_alone() {
    let header = sealed();
    assert!(header.is_valid());
    assert!(header.is_valid_body(b"body"));
    assert!(!header.is_valid_body(b"bodz"));
    assert!(!header.is_valid_body(b"bod"));
    assert!(!header.is_valid_body(b"body "));
    assert_eq!(header.size as usize, PREPARE_HEADER_SIZE + 4);
}

#[test]
fn header_with_any_bit_changed_is_not_valid() {
    let bytes = sealed().as_bytes().to_vec();
    for bit in 0..8 * PREPARE_HEADER_SIZE {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(
            !PrepareHeader::read(&changed).unwrap().is_valid(),
            "bit {bit}"
        );
    }
}

#[test]
fn zeroes_are_no_prepare() {
    let zeroes = PrepareHeader::read(&[0; PREPARE_HEADER_SIZE]).unwrap();
    assert!(!zeroes.is_valid());
    assert!(PrepareHeader::read(&[0; PREPARE_HEADER_SIZE - 1]).is_err());
}

#[test]
fn fields_are_read_back_under_their_types() {
    let header = PrepareHeader::read(sealed().as_bytes()).unwrap();
    assert_eq!(header, sealed());
    assert_eq!(
        (header.client(), header.session()),
        (ClientId(3), SessionNumber(4))
    );
    assert_eq!((header.request(), header.op()), (RequestNumber(5), Op(6)));
    assert_eq!((header.timestamp(), header.view()), (Timestamp(7), View(8)));
    assert_eq!(header.group(), ConsensusGroup(9));
}
