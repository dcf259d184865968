//! Answers as the client table keeps them.

use bytes::Bytes;
use wire::{Command, ErrorCode, Failure, Problem, Reply};

use super::{Run, create_stream};
use crate::{CachedReply, Outcome};

#[test]
fn kept_answer_is_the_body_of_the_reply() {
    let mut run = Run::new();
    let outcome = run.create_stream("orders");
    let CachedReply { status, body } = Outcome::decode_result(outcome.encode_result()).unwrap();
    assert_eq!(status, 0);
    let reply = Reply::decode(Command::CreateStream, body).unwrap();
    assert_eq!(Ok(reply), outcome.result);
}

#[test]
fn kept_refusal_is_status_and_text() {
    let mut run = Run::new();
    run.create_stream("orders");
    let outcome = run.apply(&create_stream("orders"));
    let CachedReply { status, body } = Outcome::decode_result(outcome.encode_result()).unwrap();
    assert_eq!(status, ErrorCode::StreamAlreadyExists.code());
    assert_eq!(Failure::decode(status, &body), outcome.result.unwrap_err());
}

#[test]
fn kept_answer_does_not_grow_with_the_topic() {
    let mut run = Run::new();
    run.create_stream("orders");
    let outcome = run.create_topic("orders", "payments", 1_000);
    let kept = Outcome::decode_result(outcome.encode_result()).unwrap();
    let Ok(Reply::Topic(topic)) = outcome.result else {
        panic!("not created");
    };
    assert_eq!(kept.topic(), Ok((topic.stream, topic.id)));
    assert!(kept.body.len() < 100);
}

#[test]
fn kept_answer_without_a_status_is_none() {
    let refused = Outcome::decode_result(Bytes::from_static(&[0; 3])).unwrap_err();
    assert_eq!(refused.problem, Problem::Truncated { needed: 4, left: 3 });
}
