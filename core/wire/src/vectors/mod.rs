//! The golden vectors under `core/wire/vectors/`: readable files that hold one frame, batch or prepare
//! header each, byte by byte. The files are the truth; these tests hold the code, and PROTOCOL.md, to
//! them. `WRITE_VECTORS=1 cargo test -p wire vectors` writes them anew from the samples.

mod damage;
mod dump;
mod grammar;
mod protocol;
mod samples;

use std::{
    collections::BTreeSet,
    env, format, fs,
    path::{Path, PathBuf},
    string::String,
    sync::Once,
    vec::Vec,
};

use bytes::Bytes;

use crate::{
    Batch, Command, DecodeError, ErrorCode, Event, FRAME_SIZE_MAX, Failure, FrameHeader, FrameKind,
    PREPARE_HEADER_SIZE, PrepareHeader, Reply, Request,
};
pub(crate) use samples::largest_group;
use samples::{Content, Vector, vectors};

/// Where the files are; on demand they are written first.
fn directory() -> PathBuf {
    static WRITTEN: Once = Once::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    WRITTEN.call_once(|| {
        if env::var_os("WRITE_VECTORS").is_some() {
            fs::create_dir_all(&directory).unwrap();
            for vector in vectors() {
                fs::write(directory.join(&vector.file), text_of(&vector)).unwrap();
            }
        }
    });
    directory
}

/// What stands in a file.
fn read_file(file: &str) -> String {
    let path = directory().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands in a vector's file.
fn text_of(vector: &Vector) -> String {
    format!("{}\n\n{}", vector.title, dump::dump(&vector.encode()))
}

#[test]
fn vectors_are_what_the_code_writes() {
    let rewrite = env::var_os("WRITE_VECTORS").is_some();
    for vector in vectors() {
        let path = directory().join(&vector.file);
        if rewrite {
            fs::create_dir_all(directory()).unwrap();
            fs::write(&path, text_of(&vector)).unwrap();
        }
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(text, text_of(&vector), "{}", vector.file);
    }
}

#[test]
fn vectors_are_read_as_what_they_show() {
    for vector in vectors() {
        let bytes = Bytes::from(dump::parse(&read_file(&vector.file)));
        assert_eq!(vector.read(&bytes), Ok(()), "{}", vector.file);
    }
}

#[test]
fn every_vector_file_has_a_sample() {
    let files: BTreeSet<String> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let vectors: Vec<Vector> = vectors();
    let samples: BTreeSet<String> = vectors.iter().map(|vector| vector.file.clone()).collect();
    assert_eq!(samples.len(), vectors.len(), "two samples share a file");
    assert_eq!(files, samples);
}

#[test]
fn every_specified_command_has_a_request_and_a_reply() {
    let vectors = vectors();
    for command in Request::COMMANDS {
        let request = vectors.iter().any(|vector| {
            matches!(&vector.content, Content::Request(_, request) if request.command() == *command)
        });
        let reply = vectors
            .iter()
            .any(|vector| matches!(&vector.content, Content::Reply(_, of, _) if of == command));
        assert!(request && reply, "{}", command.name());
    }
}

#[test]
fn bodies_of_commands_that_are_not_specified_are_refused() {
    let is_specified = |command: &&Command| Request::COMMANDS.contains(command);
    for command in Command::ALL.iter().filter(|command| !is_specified(command)) {
        assert!(!command.supported(), "{}", command.name());
        let request = Request::decode(*command, Bytes::new());
        let reply = Reply::decode(*command, Bytes::new());
        assert_eq!(request.unwrap_err().field, "command");
        assert_eq!(reply.unwrap_err().field, "command");
    }
}

impl Vector {
    /// The bytes of the sample.
    fn encode(&self) -> Vec<u8> {
        match &self.content {
            Content::Request(header, request) => {
                join(header.frame_of_parts(request.encode_parts()))
            }
            Content::Reply(header, _, reply) => join(header.frame_of_parts(reply.encode())),
            Content::Refused(header, failure) => header.frame(&failure.encode()),
            Content::Event(header, event) => header.frame(&event.encode()),
            Content::Batch(batch) => batch.to_bytes().to_vec(),
            Content::Prepare(header, body) => [header.as_bytes(), body].concat(),
        }
    }

    /// Reads bytes and compares with the sample.
    fn read(&self, bytes: &Bytes) -> Result<(), DecodeError> {
        match &self.content {
            Content::Request(header, request) => {
                let body = read_frame(bytes, header)?;
                assert_eq!(Request::decode(request.command(), body)?, *request);
            }
            Content::Reply(header, command, reply) => {
                let body = read_frame(bytes, header)?;
                assert_eq!(Reply::decode(*command, body)?, *reply);
            }
            Content::Refused(header, failure) => {
                let body = read_frame(bytes, header)?;
                assert_eq!(Failure::decode(header.status, &body), *failure);
            }
            Content::Event(header, event) => {
                let body = read_frame(bytes, header)?;
                assert_eq!(Event::decode(header, body)?.as_ref(), Some(event));
            }
            Content::Batch(batch) => {
                assert_eq!(Batch::read(bytes)?, *batch);
            }
            Content::Prepare(header, body) => {
                assert_eq!(PrepareHeader::read(bytes)?, *header);
                assert_eq!(bytes[PREPARE_HEADER_SIZE..], **body);
                assert!(header.is_valid() && header.is_valid_body(body));
            }
        }
        Ok(())
    }
}

/// Reads a frame, compares its header but for size and checksum, and gives its body.
fn read_frame(bytes: &Bytes, expected: &FrameHeader) -> Result<Bytes, DecodeError> {
    let header = FrameHeader::read(bytes)?;
    header.check(FRAME_SIZE_MAX)?;
    let named = FrameHeader {
        size: header.size,
        checksum: header.checksum,
        ..*expected
    };
    assert_eq!(header, named);
    assert_eq!(header.size as usize, bytes.len());
    header.body(bytes)
}

/// Decodes the body of a frame as its header says, and forgets the value.
fn decode_body(header: &FrameHeader, body: Bytes) -> Result<(), DecodeError> {
    let command = Command::from_code(header.code);
    match (header.frame_kind(), command) {
        (Some(FrameKind::Request), Some(command)) => Request::decode(command, body).map(drop),
        (Some(FrameKind::Reply), Some(command)) if header.status == 0 => {
            Reply::decode(command, body).map(drop)
        }
        (Some(FrameKind::Reply), _) => {
            let failure = Failure::decode(header.status, &body);
            assert!(ErrorCode::ALL.contains(&failure.code));
            Ok(())
        }
        (Some(FrameKind::Event), _) => Event::decode(header, body).map(drop),
        _ => Ok(()),
    }
}

fn join(parts: Vec<Bytes>) -> Vec<u8> {
    parts.concat()
}
