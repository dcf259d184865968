//! Frames out of a stream of bytes.

use bytes::{Bytes, BytesMut};
use wire::{DecodeError, FRAME_HEADER_SIZE, FrameHeader};

/// A frame whose size, version, kind and checksum are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header.
    pub header: FrameHeader,
    /// The body; shares the memory of the buffer that it was read from.
    pub body: Bytes,
}

/// Takes the first whole frame off the front of `buffer`; `None` when more bytes are needed first.
///
/// # Errors
/// What is wrong with the frame. The connection cannot be used any more.
pub fn next_frame(buffer: &mut BytesMut, size_max: u32) -> Result<Option<Frame>, DecodeError> {
    if buffer.len() < FRAME_HEADER_SIZE {
        return Ok(None);
    }
    let header = FrameHeader::read(buffer)?;
    header.check(size_max)?;
    let size = FRAME_HEADER_SIZE + header.body_size();
    if buffer.len() < size {
        return Ok(None);
    }
    let body = header.body(&buffer.split_to(size).freeze())?;
    Ok(Some(Frame { header, body }))
}

/// Bytes that the first frame in `buffer` lacks, as far as the buffer tells; 0 when it is whole.
#[must_use]
pub fn missing_bytes(buffer: &[u8]) -> usize {
    let size = match FrameHeader::read(buffer) {
        Ok(header) => FRAME_HEADER_SIZE + header.body_size(),
        Err(_) => FRAME_HEADER_SIZE,
    };
    size.saturating_sub(buffer.len())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use bytes::BytesMut;
    use wire::{ClientId, CorrelationId, FRAME_SIZE_MAX, FrameHeader};

    use super::{missing_bytes, next_frame};

    fn frame(correlation: u64, body: &[u8]) -> Vec<u8> {
        FrameHeader::request(1, CorrelationId(correlation), ClientId(9)).frame(body)
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let mut bytes = frame(1, b"");
        bytes.extend(frame(2, b"body"));
        for cut in 0..=bytes.len() {
            let mut buffer = BytesMut::new();
            let mut found = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                buffer.extend_from_slice(part);
                while let Some(frame) = next_frame(&mut buffer, FRAME_SIZE_MAX).unwrap() {
                    found.push((frame.header.correlation, frame.body.to_vec()));
                }
            }
            assert_eq!(found, [(1, Vec::new()), (2, b"body".to_vec())]);
        }
    }

    #[test]
    fn damage_and_excess_are_refused() {
        let good = frame(1, b"body");
        for position in 0..good.len() {
            let mut bytes = BytesMut::from(&good[..]);
            bytes[position] ^= 0x40;
            // A larger size only waits for bytes; everything else is an error.
            if let Ok(frame) = next_frame(&mut bytes, FRAME_SIZE_MAX) {
                assert_eq!(frame, None);
                assert!((8..12).contains(&position));
            }
        }
        assert!(next_frame(&mut BytesMut::from(&good[..]), 67).is_err());
        assert!(
            next_frame(&mut BytesMut::from(&good[..]), 68)
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn missing_bytes_counts_down_to_the_whole_frame() {
        let good = frame(1, b"body");
        assert_eq!(missing_bytes(&[]), 64);
        assert_eq!(missing_bytes(&good[..63]), 1);
        assert_eq!(missing_bytes(&good[..64]), 4);
        assert_eq!(missing_bytes(&good), 0);
    }
}
