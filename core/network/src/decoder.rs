//! Takes frames off the front of a buffer.

use bytes::{Bytes, BytesMut};
use wire::{DecodeError, FRAME_HEADER_SIZE, FrameHeader, PROTOCOL_VERSION, Problem, checksum64};

/// Why a connection's bytes are not read any further.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadFrame {
    /// The header, if it is enough of one to address a reply.
    pub(crate) header: Option<FrameHeader>,
    /// What is wrong.
    pub(crate) error: DecodeError,
}

/// Hands over every whole frame at the front of `buffer` and takes it off; bodies are slices of the buffer.
/// Gives the bytes that the next frame needs in all, its header if that is not there yet.
///
/// # Errors
/// The first frame that breaks the rules; it is left in the buffer. A size above `size_max` is found from
/// the header alone, before anything is allocated for the body.
pub(crate) fn take_frames(
    buffer: &mut BytesMut,
    size_max: u32,
    mut frame: impl FnMut(FrameHeader, Bytes),
) -> Result<usize, BadFrame> {
    let (whole, end) = scan(buffer, size_max);
    if whole > 0 {
        let block = buffer.split_to(whole).freeze();
        let mut position = 0;
        while position < whole {
            let header = FrameHeader::read(&block[position..]).expect("the scan found a header");
            let next = position + size_of_frame(&header);
            let body = position + FRAME_HEADER_SIZE;
            let body = if body == next {
                Bytes::new()
            } else {
                block.slice(body..next)
            };
            frame(header, body);
            position = next;
        }
    }
    end
}

/// How many bytes at the front are whole, good frames, and how it goes on behind them.
fn scan(buffer: &[u8], size_max: u32) -> (usize, Result<usize, BadFrame>) {
    let mut position = 0;
    loop {
        let rest = &buffer[position..];
        if rest.len() < FRAME_HEADER_SIZE {
            return (position, Ok(FRAME_HEADER_SIZE));
        }
        let header = FrameHeader::read(rest).expect("as many bytes as a header has");
        if let Err(error) = header.check(size_max) {
            return (position, Err(bad(header, error)));
        }
        let size = size_of_frame(&header);
        if rest.len() < size {
            return (position, Ok(size));
        }
        if checksum64(&rest[8..size]) != header.checksum {
            let error = DecodeError {
                field: "checksum",
                position: 0,
                problem: Problem::Checksum,
            };
            return (position, Err(bad(header, error)));
        }
        position += size;
    }
}

/// What the end of the input leaves unfinished, as an error; `None` when nothing is left.
pub(crate) fn unfinished(buffer: &[u8], needed: usize) -> Option<BadFrame> {
    if buffer.is_empty() {
        return None;
    }
    let problem = Problem::Truncated {
        needed: needed as u64,
        left: buffer.len() as u64,
    };
    let error = DecodeError {
        field: "frame",
        position: 0,
        problem,
    };
    Some(match FrameHeader::read(buffer) {
        Ok(header) => bad(header, error),
        Err(_) => BadFrame {
            header: None,
            error,
        },
    })
}

fn bad(header: FrameHeader, error: DecodeError) -> BadFrame {
    let addressable = header.version == PROTOCOL_VERSION && header.frame_kind().is_some();
    BadFrame {
        header: addressable.then_some(header),
        error,
    }
}

fn size_of_frame(header: &FrameHeader) -> usize {
    usize::try_from(header.size).expect("a u32 fits a usize")
}

#[cfg(test)]
mod tests {
    use wire::{ClientId, CorrelationId};

    use super::*;

    fn frame(correlation: u64, body: &[u8]) -> Vec<u8> {
        FrameHeader::request(1, CorrelationId(correlation), ClientId(9)).frame(body)
    }

    fn take(buffer: &mut BytesMut) -> (Vec<(u64, Bytes)>, Result<usize, BadFrame>) {
        let mut frames = Vec::new();
        let end = take_frames(buffer, 10_000, |header, body| {
            frames.push((header.correlation, body))
        });
        (frames, end)
    }

    #[test]
    fn frames_split_at_every_byte_come_out_alike() {
        let bytes = [frame(1, b""), frame(2, b"body"), frame(3, &[5; 300])].concat();
        for cut in 0..=bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..cut]);
            let (mut frames, end) = take(&mut buffer);
            let needed = end.unwrap();
            assert!(needed > buffer.len());
            assert!(cut == bytes.len() || needed <= bytes.len() - cut + buffer.len());
            buffer.extend_from_slice(&bytes[cut..]);
            frames.extend(take(&mut buffer).0);
            let bodies: Vec<_> = frames.iter().map(|(_, body)| body.len()).collect();
            assert_eq!(bodies, [0, 4, 300]);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn good_frames_before_a_bad_one_are_handed_over() {
        let mut bytes = [frame(1, b"one"), frame(2, b"two")].concat();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let (frames, end) = take(&mut BytesMut::from(&bytes[..]));
        assert_eq!(frames.len(), 1);
        let bad = end.unwrap_err();
        assert_eq!(bad.error.problem, Problem::Checksum);
        assert_eq!(bad.header.unwrap().correlation, 2);
    }

    #[test]
    fn size_above_the_limit_is_refused_by_the_header_alone() {
        let bytes = frame(1, &[0; 20_000]);
        let (_, end) = take(&mut BytesMut::from(&bytes[..FRAME_HEADER_SIZE]));
        let problem = Problem::TooLarge {
            value: 20_064,
            limit: 10_000,
        };
        assert_eq!(end.unwrap_err().error.problem, problem);
    }

    #[test]
    fn foreign_bytes_address_no_reply() {
        let mut bytes = BytesMut::from(&[b'G'; 80][..]);
        let (_, end) = take(&mut bytes);
        assert!(end.unwrap_err().header.is_none());
    }

    #[test]
    fn input_that_ends_inside_a_frame_is_truncated() {
        let bytes = frame(7, b"body");
        assert!(unfinished(&[], 64).is_none());
        assert!(unfinished(&bytes[..10], 64).unwrap().header.is_none());
        let bad = unfinished(&bytes[..66], bytes.len()).unwrap();
        assert_eq!(bad.header.unwrap().correlation, 7);
        assert_eq!(
            bad.error.problem,
            Problem::Truncated {
                needed: 68,
                left: 66
            }
        );
    }
}
