//! An error reply.

#[cfg(test)]
mod tests;

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

/// How one section of a request fared: u32, 0 for success, which the value follows; else an error code, which
/// a u16 length and the text follow.
impl<T: Field> Field for Result<T, Failure> {
    const SIZE_MIN: usize = 4 + if T::SIZE_MIN < 2 { T::SIZE_MIN } else { 2 };

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        match reader.u32(field)? {
            0 => Ok(Ok(T::read(reader, field)?)),
            status => {
                let text = reader.lossy_text16(field)?;
                Ok(Err(Failure::decode(status, text.as_bytes())))
            }
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Ok(value) => {
                writer.u32(0);
                value.write(writer);
            }
            Err(failure) => {
                let text = failure.text_up_to(SECTION_TEXT_SIZE_MAX);
                writer.u32(failure.code.code()).text16(text);
            }
        }
    }
}
