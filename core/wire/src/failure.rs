//! An error reply.

use alloc::{format, string::String};
use core::fmt;

use bytes::Bytes;

use crate::{DecodeError, ErrorCode, Problem, Reader, Writer, field::Field};

/// The longest text of a reply, bytes; of a longer one the end is cut off.
const TEXT_SIZE_MAX: usize = 4096;

/// The longest text of a section, bytes: a reply of as many sections as there may be must fit a frame
/// beside the largest batch.
pub(crate) const SECTION_TEXT_SIZE_MAX: usize = 512;

/// Why a request was refused: a code for programs, a text for people. The text names the thing, the
/// value and the limit; it never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// The code, the status of the reply.
    pub code: ErrorCode,
    /// The text, the body of the reply.
    pub text: String,
}

impl Failure {
    /// A failure with its text.
    #[must_use]
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// What to answer to a frame whose header or checksum is wrong.
    #[must_use]
    pub fn from_frame(error: &DecodeError) -> Self {
        let code = match (error.field, error.problem) {
            ("version", _) => ErrorCode::UnsupportedVersion,
            ("size", Problem::TooLarge { .. }) => ErrorCode::FrameTooLarge,
            (_, Problem::Checksum) => ErrorCode::ChecksumMismatch,
            _ => ErrorCode::MalformedFrame,
        };
        Self::new(code, format!("frame: {error}"))
    }

    /// What to answer to a body that cannot be read.
    #[must_use]
    pub fn from_body(error: &DecodeError) -> Self {
        let code = match (error.field, error.problem) {
            ("batch size", Problem::TooLarge { .. }) => ErrorCode::BatchTooLarge,
            (field, _) if field.starts_with("batch") => ErrorCode::InvalidBatch,
            _ => ErrorCode::MalformedBody,
        };
        Self::new(code, format!("body: {error}"))
    }

    /// The body of the reply.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        Bytes::copy_from_slice(self.text_up_to(TEXT_SIZE_MAX).as_bytes())
    }

    fn text_up_to(&self, size: usize) -> &str {
        &self.text[..self.text.floor_char_boundary(size)]
    }

    /// Reads an error reply. A number that this version does not know becomes `Internal`, with the
    /// number in the text; text that is not UTF-8 is shown as far as it goes.
    #[must_use]
    pub fn decode(status: u32, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        match ErrorCode::from_code(status) {
            Some(code) => Self::new(code, text),
            None => Self::new(ErrorCode::Internal, format!("error {status}: {text}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, code) = (self.code.name(), self.code.code());
        write!(f, "{} ({name}, {code})", self.text)
    }
}

/// The status of one section of a reply: u32, 0 for success; else an error code, which a u16 length and
/// the text follow.
impl Field for Result<(), Failure> {
    const SIZE_MIN: usize = 4;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        match reader.u32(field)? {
            0 => Ok(Ok(())),
            status => {
                let text = reader.lossy_text16(field)?;
                Ok(Err(Failure::decode(status, text.as_bytes())))
            }
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Ok(()) => writer.u32(0),
            Err(failure) => {
                let text = failure.text_up_to(SECTION_TEXT_SIZE_MAX);
                writer.u32(failure.code.code()).text16(text)
            }
        };
    }
}

#[cfg(test)]
mod tests {
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
}
