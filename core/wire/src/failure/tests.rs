//! Failures and their way over the wire.

use std::string::ToString;

use super::{
    Bytes, DecodeError, ErrorCode, Failure, Problem, SECTION_TEXT_SIZE_MAX, TEXT_SIZE_MAX,
};
use crate::{
    Batch, FRAME_SIZE_MAX, FrameHeader, Writer,
    field::{self, Field},
};

type Status = Result<(), Failure>;

fn round_trip(status: &Status) -> Status {
    let mut writer = Writer::new();
    status.write(&mut writer);
    field::decode(writer.into_bytes()).unwrap()
}

#[test]
fn failure_comes_back_with_its_text() {
    let failure = Failure::new(ErrorCode::StreamNotFound, "stream \"a\" does not exist");
    assert_eq!(Failure::decode(3001, &failure.encode()), failure);
    assert_eq!(
        failure.to_string(),
        "stream \"a\" does not exist (StreamNotFound, 3001)"
    );
}

#[test]
fn number_of_a_later_version_is_kept_in_the_text() {
    let failure = Failure::decode(7777, b"something new");
    assert_eq!(
        failure,
        Failure::new(ErrorCode::Internal, "error 7777: something new")
    );
    assert!(!failure.code.retryable());
}

#[test]
fn text_that_is_not_utf8_is_shown_as_far_as_it_goes() {
    assert_eq!(Failure::decode(1100, &[b'a', 0xff]).text, "a\u{fffd}");
}

#[test]
fn status_of_a_section_comes_back() {
    assert_eq!(round_trip(&Ok(())), Ok(()));
    let refused = Err(Failure::new(ErrorCode::Retry, "later"));
    assert_eq!(round_trip(&refused), refused);
}

#[test]
fn long_texts_are_cut_between_characters() {
    let failure = Failure::new(ErrorCode::Retry, "é".repeat(TEXT_SIZE_MAX));
    assert_eq!(failure.encode().len(), TEXT_SIZE_MAX);
    let failure = Failure::new(ErrorCode::Retry, "名".repeat(TEXT_SIZE_MAX));
    let text = round_trip(&Err(failure)).unwrap_err().text;
    assert_eq!(
        text.len(),
        SECTION_TEXT_SIZE_MAX - SECTION_TEXT_SIZE_MAX % 3
    );
}

#[test]
fn bad_frame_is_answered_by_what_is_wrong_with_it() {
    let request = FrameHeader::request(1, 1.into(), 1.into());
    let code = |change: fn(&mut FrameHeader)| {
        let mut header = FrameHeader {
            size: 64,
            ..request
        };
        change(&mut header);
        Failure::from_frame(&header.check(FRAME_SIZE_MAX).unwrap_err()).code
    };
    assert_eq!(
        code(|header| header.size = u32::MAX),
        ErrorCode::FrameTooLarge
    );
    assert_eq!(code(|header| header.size = 0), ErrorCode::MalformedFrame);
    assert_eq!(
        code(|header| header.version = 9),
        ErrorCode::UnsupportedVersion
    );
    assert_eq!(code(|header| header.kind = 9), ErrorCode::MalformedFrame);
    assert_eq!(code(|header| header.flags = 9), ErrorCode::MalformedFrame);
    let frame = Bytes::from(request.frame(b"body"));
    let error = FrameHeader {
        checksum: 0,
        size: 68,
        ..request
    }
    .body(&frame)
    .unwrap_err();
    assert_eq!(
        Failure::from_frame(&error).code,
        ErrorCode::ChecksumMismatch
    );
}

#[test]
fn bad_body_is_answered_by_what_is_wrong_with_it() {
    let error = Batch::read(&Bytes::from_static(&[0; 96])).unwrap_err();
    assert_eq!(Failure::from_body(&error).code, ErrorCode::InvalidBatch);
    let error = Batch::read(&Bytes::from_static(&[0xff; 96])).unwrap_err();
    assert_eq!(Failure::from_body(&error).code, ErrorCode::BatchTooLarge);
    let error = DecodeError {
        field: "name",
        position: 3,
        problem: Problem::Text,
    };
    let failure = Failure::from_body(&error);
    assert_eq!(failure.code, ErrorCode::MalformedBody);
    assert_eq!(failure.text, "body: name at byte 3: is not valid text");
}
