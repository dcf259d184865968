//! Fields are read as they were written, and errors say where and what.

use std::string::ToString;

use bytes::Bytes;

use super::{Problem, Reader, Writer, writer::SHARED_SIZE_MIN};

#[test]
fn fields_come_back_in_their_order() {
    let mut writer = Writer::new();
    writer
        .u8(1)
        .u16(2)
        .u32(3)
        .u64(4)
        .u128(5)
        .text8("six")
        .text16("seven");
    writer.bytes32(b"eight").count(9);
    let mut reader = Reader::new(writer.into_bytes());
    assert_eq!(reader.u8("a"), Ok(1));
    assert_eq!(reader.u16("a"), Ok(2));
    assert_eq!(reader.u32("a"), Ok(3));
    assert_eq!(reader.u64("a"), Ok(4));
    assert_eq!(reader.u128("a"), Ok(5));
    assert_eq!(reader.text8("a").unwrap(), "six");
    assert_eq!(reader.text16("a").unwrap(), "seven");
    assert_eq!(reader.bytes32("a").unwrap(), "eight");
    assert_eq!(reader.rest(), [9, 0, 0, 0][..]);
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn error_names_field_position_and_what_is_wrong() {
    let mut reader = Reader::new(Bytes::from_static(&[0, 0, 7]));
    reader.u16("first").unwrap();
    let error = reader.u32("second").unwrap_err();
    assert_eq!(
        error.to_string(),
        "second at byte 2: needs 4 bytes, 1 are left"
    );
    let error = reader.bool("second").unwrap_err();
    assert_eq!(
        error.to_string(),
        "second at byte 2: 7 is not a value of this field"
    );
    let reader = Reader::new(Bytes::from_static(b"xy"));
    let error = reader.finish().unwrap_err();
    assert_eq!(
        error.to_string(),
        "body at byte 0: 2 bytes are left behind the last field"
    );
}

#[test]
fn failed_read_takes_nothing() {
    let mut reader = Reader::new(Bytes::from_static(&[1, 2]));
    assert!(reader.u32("a").is_err());
    assert_eq!((reader.position(), reader.left()), (0, 2));
}

#[test]
fn count_is_backed_by_bytes() {
    let body = |count: u32| {
        let mut writer = Writer::new();
        writer.u32(count).bytes(&[0; 30]);
        writer.into_bytes()
    };
    assert_eq!(Reader::new(body(3)).count("items", 10), Ok(3));
    let error = Reader::new(body(4)).count("items", 10).unwrap_err();
    let (needed, left) = (40, 30);
    assert_eq!(error.problem, Problem::Truncated { needed, left });
    assert_eq!(error.position, 0);
    let error = Reader::new(body(u32::MAX))
        .count("items", 1 << 40)
        .unwrap_err();
    assert!(matches!(error.problem, Problem::Truncated { .. }));
    assert!(Reader::new(body(31)).bytes32("bytes").is_err());
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let mut reader = Reader::new(Bytes::from_static(&[2, 0xc3, 0x28]));
    let error = reader.text8("name").unwrap_err();
    assert_eq!((error.position, error.problem), (1, Problem::Text));
}

#[test]
fn large_bytes_are_shared_and_small_ones_copied() {
    let large = Bytes::from(std::vec![7; SHARED_SIZE_MIN]);
    let small = large.slice(1..);
    let mut writer = Writer::new();
    writer.u8(1).shared(small.clone()).u8(2);
    writer.shared(large.clone()).shared(large.clone()).u8(3);
    assert_eq!(writer.len(), 3 + small.len() + 2 * large.len());
    let whole = writer.clone().into_bytes();
    let parts = writer.into_parts();
    assert_eq!(parts.concat(), whole);
    let sizes: std::vec::Vec<usize> = parts.iter().map(Bytes::len).collect();
    assert_eq!(sizes, [2 + small.len(), large.len(), large.len(), 1]);
    assert_eq!(parts[1].as_ptr(), large.as_ptr());
}

#[test]
fn writer_knows_whether_anything_was_written() {
    let mut writer = Writer::with_capacity(10);
    assert!(writer.is_empty());
    assert!(writer.clone().into_parts().is_empty());
    writer.shared(Bytes::from(std::vec![7; SHARED_SIZE_MIN]));
    assert!(!writer.is_empty());
}
