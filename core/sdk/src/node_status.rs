//! What a single node says of itself, without a session.

use std::time::Duration;

use bytes::BytesMut;
use client::next_frame;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use wire::{
    ClientId, Command, CorrelationId, ErrorCode, FRAME_SIZE_MAX, Failure, FrameHeader, FrameKind,
    GetNodeStatus, NodeStatus, Password, Reply,
};

use crate::{Address, Error, client::check_credentials};

/// Asks one node, the first of the address and no other, how far its replicas have got and what they wait for.
/// It needs no session, so it is answered without a majority, too; the node judges name and password by its
/// own copy of the metadata. With `digests` it says a digest of the state of each, which costs it the reading
/// of all of its state.
///
/// # Errors
/// When the address or the credentials are wrong, the node cannot be reached or does not answer in time, or
/// refuses.
pub async fn node_status(
    address: &Address,
    (name, password): (&str, &str),
    digests: bool,
    timeout: Duration,
) -> Result<NodeStatus, Error> {
    check_credentials(name, password)?;
    let host = address.hosts().first().cloned().unwrap_or_default();
    let ask = GetNodeStatus {
        name: name.to_string(),
        password: Password(password.to_string()),
        digests,
    };
    match tokio::time::timeout(timeout, exchange(&host, ask)).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::TimedOut {
            command: Command::GetNodeStatus,
            waited_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            sent: true,
        }),
    }
}

async fn exchange(host: &str, ask: GetNodeStatus) -> Result<NodeStatus, Error> {
    const COMMAND: Command = Command::GetNodeStatus;
    let unreachable = |error: std::io::Error| Error::Unreachable {
        address: host.to_string(),
        reason: error.to_string(),
    };
    let lost = |reason: String| Error::ConnectionLost {
        command: COMMAND,
        reason,
    };
    let mut stream = TcpStream::connect(host).await.map_err(unreachable)?;
    let header = FrameHeader::request(COMMAND.code(), CorrelationId(1), ClientId(0));
    let frame = header.frame(&wire::Request::from(ask).encode());
    let sent = stream.write_all(&frame).await;
    sent.map_err(|error| lost(error.to_string()))?;
    let mut buffer = BytesMut::new();
    let reply = loop {
        let frame = next_frame(&mut buffer, FRAME_SIZE_MAX);
        let frame = frame.map_err(|error| Error::Protocol(format!("{host}: {error}")))?;
        match frame {
            Some(frame) if frame.header.frame_kind() == Some(FrameKind::Reply) => break frame,
            // An event, that it is about to stop, for one.
            Some(_) => {}
            None => match stream.read_buf(&mut buffer).await {
                Ok(0) => return Err(lost("the server closed the connection".to_string())),
                Ok(_) => {}
                Err(error) => return Err(lost(error.to_string())),
            },
        }
    };
    if reply.header.status != 0 {
        return Err(refusal(&reply));
    }
    match Reply::decode(COMMAND, reply.body) {
        Ok(Reply::NodeStatus(status)) => Ok(status),
        Ok(other) => Err(Error::Protocol(format!("{host} answered with {other:?}"))),
        Err(error) => Err(Error::Protocol(format!("{host}: {error}"))),
    }
}

fn refusal(reply: &client::Frame) -> Error {
    let Failure { code, text } = Failure::decode(reply.header.status, &reply.body);
    match code {
        ErrorCode::InvalidCredentials => Error::LoginRefused { code, text },
        _ => Error::Refused { code, text },
    }
}
