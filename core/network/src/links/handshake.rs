//! Carries a handshake out over a blocking socket, within bounds of time and size.

use std::{
    fmt,
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use wire::{FRAME_HEADER_SIZE, FrameHeader, FrameKind, checksum64};

use super::introduction::{
    Difference, INTRODUCTION_SIZE, Introduction, Membership, NONCE_SIZE, PROOF_SIZE, REFUSAL_MAX,
    Role, Step, frame,
};
use wire::{DiskId, ReplicaId};

/// How long a handshake may take in all.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The socket.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other end closed the connection.
    #[error("the other end has closed the connection")]
    Closed,
    /// It took too long.
    #[error("no answer within {HANDSHAKE_TIMEOUT:?}")]
    Late,
    /// What came is no handshake.
    #[error("what answers is no node of a cluster: {0}")]
    Foreign(&'static str),
    /// Something that must be equal is not.
    #[error("{0}")]
    Differs(#[from] Difference),
    /// The other end does not know the secret.
    #[error("node {0} has another cluster.secret")]
    Secret(ReplicaId),
    /// The other end has another disk than the one it had.
    #[error(
        "node {replica} comes with another disk than the one it had: what it has acknowledged may be gone, so \
         it takes no part; put its data directory back, or have it come back without: `cohort-server recover` \
         (its disk is {there} and was {here})"
    )]
    Wiped {
        /// Which node.
        replica: ReplicaId,
        /// The disk that it had.
        here: DiskId,
        /// The one that it comes with.
        there: DiskId,
    },
    /// The other end has a disk that another one has replaced.
    #[error(
        "node {replica} comes with a disk that another one has replaced: `cohort-server recover` has formatted \
         that later, and the old one never takes part again; start the node with the data directory that came \
         last (its disk is {there}, the one that counts {here})"
    )]
    Replaced {
        /// Which node.
        replica: ReplicaId,
        /// The disk that counts.
        here: DiskId,
        /// The one that it comes with.
        there: DiskId,
    },
    /// Two processes come as one node in turn.
    #[error(
        "two processes run as node {0} at the same time, on copies of one data directory, and this one was \
         there first: stop one, and keep the one that was never copied from elsewhere"
    )]
    Copied(ReplicaId),
    /// The other end gave a reason.
    #[error("it refuses this node: {0}")]
    Refused(RefusalText),
}

/// What the other end said, which may be anybody: fit to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalText(String);

impl fmt::Display for RefusalText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RefusalText {
    fn new(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let shown = text.chars().map(|letter| match letter.is_control() {
            true => '?',
            false => letter,
        });
        Self(shown.collect())
    }
}

impl std::error::Error for Difference {}

/// Makes a link to `other` over a socket that was connected, for `shard`.
///
/// # Errors
/// Why there is none.
pub(super) fn dial(
    socket: &TcpStream,
    own: &Membership,
    other: ReplicaId,
    shard: u16,
) -> Result<(), HandshakeError> {
    let wire = Wire::new(socket);
    let dialler = Introduction::new(own, other, shard, nonce()?);
    wire.send(Step::DiallerIntroduction, &dialler.encode())?;
    let body = wire.receive(Step::AnswererIntroduction, INTRODUCTION_SIZE)?;
    let answerer = introduction(&body)?;
    answerer.judge(own)?;
    if answerer.replica != other {
        return Err(HandshakeError::Foreign("another node has answered"));
    }
    let proof = own.secret.prove(Role::Dialler, &dialler, &answerer);
    wire.send(Step::DiallerProof, &proof)?;
    let proof = wire.receive(Step::AnswererProof, PROOF_SIZE)?;
    if !own
        .secret
        .is_proof(&proof, Role::Answerer, &dialler, &answerer)
    {
        return Err(HandshakeError::Secret(other));
    }
    admit(own, &answerer)?;
    wire.release()
}

/// Whether the node at the other end, which has proved that it is one, has the disk that it should have.
fn admit(own: &Membership, other: &Introduction) -> Result<(), HandshakeError> {
    let (replica, there) = (other.replica, other.disk());
    let admitted = own.register.judge(replica, &other.disks)?;
    if admitted.is_ok() && !own.register.is_alone(replica, other.incarnation) {
        return Err(HandshakeError::Copied(replica));
    }
    admitted.map_err(|here| match here.replaces(there) {
        true => HandshakeError::Replaced {
            replica,
            here,
            there,
        },
        false => HandshakeError::Wiped {
            replica,
            here,
            there,
        },
    })
}

/// Makes a link over a socket that was accepted. Gives the node at the other end and the shard of it.
///
/// # Errors
/// Why there is none; the other end was told if it is one that can understand it.
pub(super) fn answer(
    socket: &TcpStream,
    own: &Membership,
) -> Result<(ReplicaId, u16), HandshakeError> {
    let wire = Wire::new(socket);
    let answered = answer_over(&wire, own);
    if let Err(
        error @ (HandshakeError::Differs(_)
        | HandshakeError::Secret(_)
        | HandshakeError::Wiped { .. }
        | HandshakeError::Replaced { .. }
        | HandshakeError::Copied(_)),
    ) = &answered
    {
        let mut text = match error {
            HandshakeError::Differs(difference) => Difference {
                here: difference.there.clone(),
                there: difference.here.clone(),
                ..difference.clone()
            }
            .to_string(),
            HandshakeError::Wiped { .. }
            | HandshakeError::Replaced { .. }
            | HandshakeError::Copied(_) => error.to_string(),
            _ => "cluster.secret is not the same".into(),
        };
        text.truncate(REFUSAL_MAX);
        // Who is refused need not stay to hear why.
        let _ = wire.send(Step::Refusal, text.as_bytes());
    }
    answered
}

fn answer_over(wire: &Wire<'_>, own: &Membership) -> Result<(ReplicaId, u16), HandshakeError> {
    let body = wire.receive(Step::DiallerIntroduction, INTRODUCTION_SIZE)?;
    let dialler = introduction(&body)?;
    dialler.judge(own)?;
    let shard = dialler.shard % own.shard_count;
    let answerer = Introduction::new(own, dialler.replica, shard, nonce()?);
    wire.send(Step::AnswererIntroduction, &answerer.encode())?;
    let proof = wire.receive(Step::DiallerProof, PROOF_SIZE)?;
    if !own
        .secret
        .is_proof(&proof, Role::Dialler, &dialler, &answerer)
    {
        return Err(HandshakeError::Secret(dialler.replica));
    }
    // Before it can know: it relies on being known by its disk (V13).
    admit(own, &dialler)?;
    let proof = own.secret.prove(Role::Answerer, &dialler, &answerer);
    wire.send(Step::AnswererProof, &proof)?;
    wire.release()?;
    Ok((dialler.replica, dialler.shard))
}

fn introduction(body: &[u8]) -> Result<Introduction, HandshakeError> {
    Introduction::decode(body).ok_or(HandshakeError::Foreign("its introduction is none"))
}

fn nonce() -> Result<[u8; NONCE_SIZE], HandshakeError> {
    let mut nonce = [0; NONCE_SIZE];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

/// Frames over a blocking socket until a deadline.
struct Wire<'a> {
    socket: &'a TcpStream,
    deadline: Instant,
}

impl<'a> Wire<'a> {
    fn new(socket: &'a TcpStream) -> Self {
        Self {
            socket,
            deadline: Instant::now() + HANDSHAKE_TIMEOUT,
        }
    }

    fn left(&self) -> Result<Duration, HandshakeError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(HandshakeError::Late)
        } else {
            Ok(left)
        }
    }

    fn send(&self, step: Step, body: &[u8]) -> Result<(), HandshakeError> {
        let frame = frame(step, body);
        let mut socket = self.socket;
        let mut rest = &frame[..];
        while !rest.is_empty() {
            socket.set_write_timeout(Some(self.left()?))?;
            match socket.write(rest) {
                Ok(0) => return Err(HandshakeError::Closed),
                Ok(written) => rest = &rest[written..],
                Err(error) => go_on_after(error)?,
            }
        }
        Ok(())
    }

    /// The body of the next frame, which must be of this step and size, or says why there is no link.
    fn receive(&self, step: Step, size: usize) -> Result<Vec<u8>, HandshakeError> {
        let mut bytes = vec![0; FRAME_HEADER_SIZE];
        self.fill(&mut bytes)?;
        let Ok(header) = FrameHeader::read(&bytes) else {
            return Err(HandshakeError::Foreign("it sent no frame"));
        };
        let size_max = u32::try_from(FRAME_HEADER_SIZE + size.max(REFUSAL_MAX));
        let is_frame = size_max.is_ok_and(|size_max| header.check(size_max).is_ok());
        if !is_frame || header.frame_kind() != Some(FrameKind::Peer) {
            return Err(HandshakeError::Foreign("it sent no frame of a node"));
        }
        bytes.resize(FRAME_HEADER_SIZE + header.body_size(), 0);
        self.fill(&mut bytes[FRAME_HEADER_SIZE..])?;
        if checksum64(&bytes[size_of_val(&header.checksum)..]) != header.checksum {
            return Err(HandshakeError::Foreign("a frame has a wrong checksum"));
        }
        let body = bytes.split_off(FRAME_HEADER_SIZE);
        if header.code == Step::Refusal as u32 {
            return Err(HandshakeError::Refused(RefusalText::new(&body)));
        }
        if header.code != step as u32 || body.len() != size {
            return Err(HandshakeError::Foreign("it sent another frame than is due"));
        }
        Ok(body)
    }

    fn fill(&self, bytes: &mut [u8]) -> Result<(), HandshakeError> {
        let mut socket = self.socket;
        let mut filled = 0;
        while filled < bytes.len() {
            socket.set_read_timeout(Some(self.left()?))?;
            match socket.read(&mut bytes[filled..]) {
                Ok(0) => return Err(HandshakeError::Closed),
                Ok(read) => filled += read,
                Err(error) => go_on_after(error)?,
            }
        }
        Ok(())
    }

    /// The link may take as long as it likes from here on.
    fn release(&self) -> Result<(), HandshakeError> {
        self.socket.set_read_timeout(None)?;
        self.socket.set_write_timeout(None)?;
        Ok(())
    }
}

/// What a signal interrupts is tried again, and what is late is found out by the deadline.
fn go_on_after(error: io::Error) -> Result<(), HandshakeError> {
    match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(()),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Err(HandshakeError::Closed),
        _ => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::{
        super::introduction::tests::{disk_of, membership, register},
        *,
    };
    use crate::links::LinkSecret;

    type Answered = Result<(ReplicaId, u16), HandshakeError>;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (dialled, listener.accept().unwrap().0)
    }

    /// Both ends of one handshake; the dialler takes the answerer for node 1.
    fn meet(dialler: Membership, answerer: Membership) -> (Result<(), HandshakeError>, Answered) {
        let (dialled, accepted) = pair();
        let answering = thread::spawn(move || answer(&accepted, &answerer));
        let result = dial(&dialled, &dialler, ReplicaId(1), 1);
        (result, answering.join().unwrap())
    }

    /// A node with a disk that was recovered at a time.
    fn with_disk(replica: u8, recovered: u64) -> Membership {
        let disk = DiskId { name: 1, recovered };
        Membership {
            register: register(replica, disk),
            ..membership(replica)
        }
    }

    #[test]
    fn node_with_another_disk_is_refused_by_both_ends_and_both_say_which() {
        let known = disk_of(0).recovered;
        for (recovered, part) in [
            (known, "another disk than the one it had"),
            (known - 1, "a disk that another one has replaced"),
        ] {
            let (dialled, answered) = meet(with_disk(0, recovered), membership(1));
            let there = DiskId { name: 1, recovered };
            let disks = [disk_of(0).to_string(), there.to_string()];
            for told in [
                dialled.unwrap_err().to_string(),
                answered.unwrap_err().to_string(),
            ] {
                assert!(
                    told.contains(part) && disks.iter().all(|disk| told.contains(disk)),
                    "{told}"
                );
                assert!(told.len() < REFUSAL_MAX, "{told}");
            }
            let (dialled, _) = meet(membership(0), with_disk(1, recovered));
            let told = dialled.unwrap_err().to_string();
            assert!(told.contains(part) && told.contains("node 1"), "{told}");
        }
    }

    #[test]
    fn node_with_a_disk_that_was_recovered_later_is_admitted_by_both_ends() {
        let later = disk_of(0).recovered + 1;
        let (dialled, answered) = meet(with_disk(0, later), membership(1));
        dialled.unwrap();
        assert_eq!(answered.unwrap(), (ReplicaId(0), 1));
        let (dialled, answered) = meet(membership(0), with_disk(1, later));
        dialled.unwrap();
        answered.unwrap();
    }

    #[test]
    fn two_processes_that_come_as_one_node_in_turn_are_found_out() {
        let own = membership(1);
        let comes = |incarnation| {
            let dialler = Membership {
                incarnation,
                ..membership(0)
            };
            meet(dialler, own.clone())
        };
        for incarnation in [1, 1, 2, 2, 3] {
            comes(incarnation).1.unwrap();
        }
        let (dialled, answered) = comes(2);
        assert!(
            matches!(answered, Err(HandshakeError::Copied(ReplicaId(0)))),
            "{answered:?}"
        );
        let told = dialled.unwrap_err().to_string();
        assert!(told.contains("two processes run as node 0"), "{told}");
        comes(3).1.unwrap();
    }

    /// What the answerer says to somebody who sends these bytes and then reads to the end.
    fn stranger(bytes: &[u8]) -> (Answered, Vec<u8>) {
        let (mut dialled, accepted) = pair();
        let answering = thread::spawn(move || answer(&accepted, &membership(1)));
        dialled.write_all(bytes).unwrap();
        // Who sends too much may have been reset by now.
        let _ = dialled.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = dialled.read_to_end(&mut said);
        (answering.join().unwrap(), said)
    }

    #[test]
    fn nodes_of_one_cluster_meet() {
        let (dialled, answered) = meet(membership(0), membership(1));
        dialled.unwrap();
        assert_eq!(answered.unwrap(), (ReplicaId(0), 1));
    }

    #[test]
    fn other_secret_is_named_on_both_sides() {
        let mut other = membership(0);
        other.secret = LinkSecret::new(b"seventeen letters");
        let (dialled, answered) = meet(other, membership(1));
        let (dialled, answered) = (dialled.unwrap_err(), answered.unwrap_err());
        assert!(
            dialled
                .to_string()
                .contains("cluster.secret is not the same"),
            "{dialled}"
        );
        assert!(
            answered
                .to_string()
                .contains("node 0 has another cluster.secret"),
            "{answered}"
        );
    }

    #[test]
    fn difference_is_named_on_both_sides_each_from_its_own() {
        let mut other = membership(0);
        other.data_groups = 8;
        let (dialled, answered) = meet(other, membership(1));
        let (dialled, answered) = (dialled.unwrap_err(), answered.unwrap_err());
        assert!(
            dialled
                .to_string()
                .contains("cluster.data_groups is 8 here and 24 there"),
            "{dialled}"
        );
        assert!(
            answered
                .to_string()
                .contains("cluster.data_groups is 24 here and 8 there"),
            "{answered}"
        );
    }

    #[test]
    fn answerer_that_does_not_know_the_secret_is_refused() {
        let (dialled, accepted) = pair();
        let impostor = thread::spawn(move || {
            let own = membership(1);
            let wire = Wire::new(&accepted);
            let body = wire.receive(Step::DiallerIntroduction, INTRODUCTION_SIZE);
            let dialler = Introduction::decode(&body.unwrap()).unwrap();
            let answerer = Introduction::new(&own, ReplicaId(0), 1, dialler.nonce);
            wire.send(Step::AnswererIntroduction, &answerer.encode())
                .unwrap();
            let proof = wire.receive(Step::DiallerProof, PROOF_SIZE).unwrap();
            // What it has just seen is all that it could send back.
            wire.send(Step::AnswererProof, &proof).unwrap();
        });
        let refused = dial(&dialled, &membership(0), ReplicaId(1), 1);
        impostor.join().unwrap();
        assert!(matches!(refused, Err(HandshakeError::Secret(ReplicaId(1)))));
    }

    #[test]
    fn node_that_dials_itself_is_no_peer() {
        let (dialled, answered) = meet(membership(1), membership(1));
        assert!(matches!(dialled, Err(HandshakeError::Refused(_))));
        assert!(matches!(answered, Err(HandshakeError::Differs(_))));
    }

    #[test]
    fn strangers_are_refused_by_what_they_send_first_and_are_told_nothing() {
        let introduction = Introduction::new(&membership(0), ReplicaId(1), 0, [3; NONCE_SIZE]);
        let good = frame(Step::DiallerIntroduction, &introduction.encode());
        let mut flipped = good.clone();
        flipped[80] ^= 1;
        let mut huge = good.clone();
        huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        for bytes in [
            b"GET / HTTP/1.1\r\nHost: cohort.example\r\nAccept: */*\r\nConnection: close\r\n\r\n"
                .to_vec(),
            flipped,
            huge,
            frame(Step::DiallerProof, &[0; PROOF_SIZE]),
            frame(Step::DiallerIntroduction, b"short"),
            good[..70].to_vec(),
            Vec::new(),
        ] {
            let (answered, said) = stranger(&bytes);
            assert!(
                matches!(
                    answered,
                    Err(HandshakeError::Foreign(_) | HandshakeError::Closed)
                ),
                "{answered:?}"
            );
            assert!(said.is_empty());
        }
        let (answered, said) = stranger(&good);
        assert!(matches!(answered, Err(HandshakeError::Closed)));
        assert_eq!(
            said.len(),
            FRAME_HEADER_SIZE + INTRODUCTION_SIZE,
            "no proof"
        );
    }

    #[test]
    fn refusal_cannot_write_lines_into_a_log() {
        assert_eq!(RefusalText::new(b"a\nb\x1b[31m").to_string(), "a?b?[31m");
    }
}
