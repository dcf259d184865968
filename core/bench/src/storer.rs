//! Consumers that store offsets, each with one store in flight, from one thread.

use std::{io, net::TcpStream as StdStream, ops::Range, time::Instant};

use bytes::Bytes;
use compio::{
    buf::BufResult,
    io::{AsyncRead, AsyncWriteExt},
    net::TcpStream,
    runtime::spawn,
};
use wire::{
    Command, CorrelationId, FRAME_HEADER_SIZE, FRAME_SIZE_MAX, FrameHeader, FrameKind, Offset,
    Request, StoreConsumerOffset,
};

use crate::{
    connection::{Answer, Session},
    error::{During, Error},
    member::check_stored,
    requests::SharedTally,
};

/// What one read takes at most: an answer has some hundred bytes.
const READ_BUFFER: usize = 4 * 1024;

/// One consumer.
#[derive(Debug)]
pub(crate) struct Storer {
    /// A connection of the session.
    pub(crate) socket: StdStream,
    /// Whose stores they are.
    pub(crate) session: Session,
    /// The request, but for the offset.
    pub(crate) store: StoreConsumerOffset,
    /// What may be stored: one after the other is.
    pub(crate) offsets: Range<u64>,
}

/// Stores until the time is over.
///
/// # Errors
/// `Io`, `Refused`, `Answer`; `Server` when a consumer has no message left.
pub(crate) async fn drive(storers: Vec<Storer>, tally: SharedTally) -> Result<(), Error> {
    let mut tasks = Vec::new();
    for storer in storers {
        tasks.push(spawn(storer.run(SharedTally::clone(&tally))));
    }
    for task in tasks {
        task.await
            .unwrap_or_else(|_| Err(Error::Server("a consumer's task ended".into())))?;
    }
    Ok(())
}

impl Storer {
    async fn run(mut self, tally: SharedTally) -> Result<(), Error> {
        let socket = self.socket.try_clone().during("share a connection")?;
        let mut socket = TcpStream::from_std(socket).during("hand a connection to the runtime")?;
        let mut frames = Frames::default();
        // Those of the requests before, if any, are below.
        let mut correlation = CorrelationId(1 << 32);
        while !tally.borrow().is_over() {
            let Some(offset) = self.offsets.next() else {
                let text = "a consumer has stored all its messages before the time was over";
                return Err(Error::Server(text.into()));
            };
            correlation.0 += 1;
            let frame = self.frame(correlation, offset);
            let sent = Instant::now();
            let BufResult(result, _) = socket.write_all(frame).await;
            result.during("send StoreConsumerOffset")?;
            let answer = loop {
                match frames.next_answer()? {
                    Some(answer) => break answer,
                    None => frames.read(&mut socket).await?,
                }
            };
            tally.borrow_mut().record(sent);
            if answer.header.correlation != correlation.0 {
                return Err(Error::answer(
                    "StoreConsumerOffset",
                    "another correlation id",
                ));
            }
            check_stored(answer.decode(Command::StoreConsumerOffset)?, Offset(offset))?;
        }
        Ok(())
    }

    fn frame(&mut self, correlation: CorrelationId, offset: u64) -> Vec<u8> {
        self.store.sections[0].offset = Offset(offset);
        let code = Command::StoreConsumerOffset.code();
        let mut header = FrameHeader::request(code, correlation, self.session.client);
        header.session = self.session.number.0;
        header.request = self.session.seen.0;
        let request = Request::from(self.store.clone());
        header.frame_of_parts(request.encode_parts()).concat()
    }
}

/// What has come in, cut into frames.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    async fn read(&mut self, socket: &mut TcpStream) -> Result<(), Error> {
        let buffer = Vec::with_capacity(READ_BUFFER);
        let BufResult(count, filled) = socket.read(buffer).await;
        if count.during("receive an answer")? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof)).during("receive an answer");
        }
        self.bytes.extend_from_slice(&filled);
        Ok(())
    }

    /// The next answer, if all of it is there; events are passed over.
    fn next_answer(&mut self) -> Result<Option<Answer>, Error> {
        while let Some(answer) = self.next_frame()? {
            match answer.header.frame_kind() {
                Some(FrameKind::Reply) => return Ok(Some(answer)),
                Some(FrameKind::Event) => {}
                kind => return Err(Error::answer("a request", format!("kind {kind:?}"))),
            }
        }
        Ok(None)
    }

    fn next_frame(&mut self) -> Result<Option<Answer>, Error> {
        let Some(header) = self.bytes.get(..FRAME_HEADER_SIZE) else {
            return Ok(None);
        };
        let decode = |error| Error::decode("a request", &error);
        let header = FrameHeader::read(header).map_err(decode)?;
        header.check(FRAME_SIZE_MAX).map_err(decode)?;
        let end = FRAME_HEADER_SIZE + header.body_size();
        let Some(body) = self.bytes.get(FRAME_HEADER_SIZE..end) else {
            return Ok(None);
        };
        let body = Bytes::copy_from_slice(body);
        self.bytes.drain(..end);
        Ok(Some(Answer { header, body }))
    }
}

#[cfg(test)]
mod tests {
    use wire::{ErrorCode, Event, ServerStopping, SessionNumber};

    use super::*;

    #[test]
    fn answers_are_cut_out_of_what_comes_in() {
        let request =
            FrameHeader::request(Command::Ping.code(), CorrelationId(7), wire::ClientId(1));
        let status = ErrorCode::Retry.code();
        let event = Event::ServerStopping(ServerStopping { time_left_ms: 1 });
        let mut bytes = event.header(SessionNumber(1)).frame(&event.encode());
        bytes.extend(FrameHeader::reply(&request, status).frame(b"later"));
        bytes.extend(FrameHeader::reply(&request, 0).frame(b""));
        let mut frames = Frames::default();
        let mut answers = Vec::new();
        for byte in bytes {
            frames.bytes.push(byte);
            answers.extend(frames.next_answer().unwrap());
        }
        let [refused, done] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert_eq!(
            (refused.header.status, &refused.body[..]),
            (status, &b"later"[..])
        );
        assert_eq!((done.header.correlation, done.body.len()), (7, 0));
        assert!(frames.bytes.is_empty());
    }

    #[test]
    fn request_as_an_answer_is_an_error() {
        let request =
            FrameHeader::request(Command::Ping.code(), CorrelationId(7), wire::ClientId(1));
        let mut frames = Frames {
            bytes: request.frame(b""),
        };
        assert!(frames.next_answer().is_err());
    }
}
