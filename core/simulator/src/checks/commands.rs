//! Answers to metadata commands and queries.

use bytes::Bytes;
use wire::{
    ClientId, Command, ErrorCode, Failure, Op, PartitionKey, Reply, Request, SessionNumber,
    TopicDetails,
};

use super::{
    groups,
    messages::no_internal_error,
    offsets,
    wire::{Answered, Wrong},
};
use crate::run::Run;

/// A command is executed at most once, and every answer to it is the answer of that op.
pub(super) fn check_command(
    run: &mut Run,
    answered: &Answered<'_>,
    body: &Bytes,
) -> Result<(), Wrong> {
    let header = &answered.header;
    let asked = &answered.asked.header;
    let op = answered
        .ledger
        .command(asked.session(), asked.request_number());
    let executed = op.and_then(|op| Some((op, answered.ledger.executed(op)?)));
    let Some((op, executed)) = executed else {
        return match header.status {
            0 => Err("a command succeeded that was never executed".into()),
            status => check_not_executed(status, body),
        };
    };
    if executed.client != asked.client() {
        return Err(format!(
            "session and client of op {op} do not belong together"
        ));
    }
    if executed.outcome.joined.is_some() {
        let reply = match header.status {
            0 => Reply::decode(Command::JoinConsumerGroup, body.clone())
                .map(Ok)
                .map_err(|error| format!("answer to a join: {error}"))?,
            status => Err(Failure::decode(status, body)),
        };
        run.counts.commands_repeated += u64::from(answered.asked.step > executed.step);
        if header.status == 0 && header.op() < op {
            return Err(format!(
                "the answer names op {}, and it joined by {op}",
                header.op()
            ));
        }
        return match &reply {
            Err(failure) if check_not_executed(header.status, body).is_ok() => {
                no_internal_error(failure)
            }
            reply => groups::check_joined(answered, (op, executed), reply),
        };
    }
    if let Ok(Reply::Topic(created)) = &executed.outcome.result {
        run.counts.commands_repeated += u64::from(answered.asked.step > executed.step);
        return check_created(answered, (op, created), body);
    }
    let (status, expected) = match &executed.outcome.result {
        Ok(reply) => (0, reply.to_bytes()),
        Err(failure) => (failure.code.code(), failure.encode()),
    };
    if header.status == status && *body == expected {
        run.counts.commands_repeated += u64::from(answered.asked.step > executed.step);
        if header.status == 0 && header.code == Command::ResetConsumerOffset.code() {
            groups::check_reset(answered, op)?;
        }
        return match header.op() == op {
            true => Ok(()),
            false => Err(format!("the answer names op {}, not {op}", header.op())),
        };
    }
    match header.status {
        0 => Err(format!(
            "op {op} came to another answer: {:?}",
            executed.outcome.result
        )),
        status => check_not_executed(status, body),
    }
}

/// The creation of a topic is answered with the topic as it was after some op since.
fn check_created(
    answered: &Answered<'_>,
    (op, created): (Op, &TopicDetails),
    body: &Bytes,
) -> Result<(), Wrong> {
    let header = &answered.header;
    let (stream, topic) = (created.stream.into(), created.id.into());
    let mut catalogs = answered.ledger.catalogs_since(op);
    if header.status != 0 {
        let failure = Failure::decode(header.status, body);
        let is_gone = catalogs.any(|it| {
            let told = it.topic_details(&stream, &topic);
            told.is_err_and(|told| told.code == failure.code)
        });
        return match is_gone {
            true => Ok(()),
            false => check_not_executed(header.status, body),
        };
    }
    if header.op() < op {
        return Err(format!("the answer names op {}, not {op}", header.op()));
    }
    let reply = Reply::decode(Command::CreateTopic, body.clone());
    let Ok(Reply::Topic(mut told)) = reply else {
        return Err(format!("answer to the creation of a topic: {reply:?}"));
    };
    for partition in &mut told.partitions {
        (partition.start, partition.end) = (None, None);
    }
    match catalogs.any(|it| it.topic_details(&stream, &topic).as_ref() == Ok(&told)) {
        true => Ok(()),
        false => Err(format!("the topic was never so: {told:?}")),
    }
}

/// Refusals that say nothing of what a command came to.
fn check_not_executed(status: u32, body: &Bytes) -> Result<(), Wrong> {
    use ErrorCode as E;
    let failure = Failure::decode(status, body);
    match failure.code {
        E::Retry
        | E::NotReady
        | E::NotPrimary
        | E::ServerStopping
        | E::Busy
        | E::OutOfService
        | E::OutcomeUnknown
        | E::StorageFull
        | E::Unauthenticated
        | E::InvalidCredentials
        | E::SessionNotFound
        | E::SessionMismatch
        | E::RequestInFlight
        | E::StaleRequest
        | E::InvalidRequestNumber
        | E::LoginThrottled
        | E::InvalidPassword
        | E::MalformedBody
        | E::CommandNotSupported => Ok(()),
        _ => Err(format!("refused without an op: {failure}")),
    }
}

/// A query is answered from the catalog as it was after some op; login and attach by the sessions that there
/// are.
pub(super) fn check_query(
    run: &mut Run,
    answered: &Answered<'_>,
    request: &Request,
    reply: &Reply,
) -> Result<(), Wrong> {
    match (request, reply) {
        (Request::Login(_), Reply::LoggedIn(logged_in)) => {
            check_session(answered, logged_in.session)
        }
        (Request::Attach(_), Reply::Done) => {
            run.counts.connections_attached += 1;
            check_session(answered, answered.asked.header.session())
        }
        (Request::GetTopic(_), Reply::Topic(topic)) => check_topic(answered, request, topic),
        (Request::GetConsumerGroup(asked), Reply::ConsumerGroupDetails(told)) => {
            groups::check_details(answered, asked, told)
        }
        (Request::GetMe, Reply::Me(_))
        | (Request::GetClusterMetadata, Reply::ClusterMetadata(_))
        | (Request::GetStats, Reply::Stats(_)) => Ok(()),
        _ => {
            let op = answered.header.op();
            let seen = Op(answered.asked.header.request);
            if op < seen {
                return Err(format!(
                    "the answer is of op {op}, the asker has seen {seen}"
                ));
            }
            let Some(catalog) = answered.ledger.catalog_after(op) else {
                return Err(format!("the answer is of op {op}, which is not committed"));
            };
            let asker = (
                answered.asked.header.client(),
                answered.asked.header.session(),
            );
            match expected(catalog, asker, request) {
                Some(Ok(expected)) if expected == plain(reply) => Ok(()),
                other => Err(format!("after op {op}: {reply:?}, expected {other:?}")),
            }
        }
    }
}

/// An answer without what only the data groups know.
fn plain(reply: &Reply) -> Reply {
    match reply {
        Reply::Assignment(told) => Reply::Assignment(groups::without_time_left(told)),
        other => other.clone(),
    }
}

fn expected(
    catalog: &catalog::Catalog,
    asker: (ClientId, SessionNumber),
    request: &Request,
) -> Option<Result<Reply, Failure>> {
    let root = wire::UserId::ROOT;
    Some(match request {
        Request::GetStream(it) => catalog.stream_details(&it.stream).map(Reply::Stream),
        Request::GetStreams(it) => Ok(catalog.streams_page(it).into()),
        Request::GetTopics(it) => catalog.topics_page(it).map(Reply::Topics),
        Request::GetUser(it) => catalog.user_details(root, &it.user).map(Reply::User),
        Request::GetUsers(it) => catalog.users_page(root, it).map(Reply::Users),
        Request::GetConsumerGroups(it) => {
            catalog.consumer_groups_page(it).map(Reply::ConsumerGroups)
        }
        Request::SyncConsumerGroup(it) => {
            let assignment = catalog.assignment(asker, it, |_, _, _| 0);
            assignment.map(Reply::Assignment)
        }
        _ => return None,
    })
}

/// A session that is told, or that a connection is bound to, was registered by its client.
fn check_session(answered: &Answered<'_>, session: SessionNumber) -> Result<(), Wrong> {
    let client: ClientId = answered.asked.header.client();
    let register = answered.ledger.catalog_after(Op(session.0));
    let known = register.and_then(|catalog| catalog.session(client, session));
    match known {
        Some(_) => Ok(()),
        None => Err(format!("session {session} was never registered")),
    }
}

/// The topic as it was after some op that is not older than what the asker has seen, and offsets that its
/// partitions had between request and answer.
fn check_topic(
    answered: &Answered<'_>,
    request: &Request,
    told: &TopicDetails,
) -> Result<(), Wrong> {
    let Request::GetTopic(asked) = request else {
        return Ok(());
    };
    let mut plain = told.clone();
    for partition in &mut plain.partitions {
        (partition.start, partition.end) = (None, None);
    }
    let seen = Op(answered.asked.header.request);
    let fits = answered
        .ledger
        .catalogs_since(seen)
        .any(|catalog| catalog.topic_details(&asked.stream, &asked.topic).as_ref() == Ok(&plain));
    if !fits {
        return Err(format!("the topic was never so: {told:?}"));
    }
    for partition in &told.partitions {
        let (Some(start), Some(end)) = (partition.start, partition.end) else {
            continue;
        };
        let key = PartitionKey {
            stream: told.stream,
            topic: told.id,
            partition: partition.id,
        };
        offsets::check_end(answered, key, start, end)?;
    }
    Ok(())
}
