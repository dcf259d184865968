//! R29: after a crash no offset is given out twice, and nothing is missing in between.

use bytes::Bytes;
use cohort::Client;
use integration::{Connection, Ledger, Load, PATIENCE, Site, Tag, payload, repetitions, until};
use wire::{Offset, PollStrategy};

/// Step 1. Acknowledged means flushed: after SIGKILL all ten are there, the next five go on behind them,
/// and a consumer that stands at 10 gets all five.
#[test]
fn r29_1_offsets_go_on_behind_what_was_acknowledged() {
    let site = Site::new();
    let server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    assert_eq!(
        connection.append(&topic, 0, &messages(0..4, 100)),
        Ok(Offset(0))
    );
    assert_eq!(
        connection.append(&topic, 0, &messages(4..10, 100)),
        Ok(Offset(4))
    );
    let stored = connection.store(&topic, 0, "billing", Offset(9));
    assert_eq!(stored, Ok(Some(Offset(9))));
    let _ = server.kill();

    let server = site.start();
    let mut connection = Connection::login(server.address());
    let bounds = connection
        .stored(&topic, 0, "billing")
        .expect("it is there");
    assert_eq!(
        (bounds.start, bounds.end),
        (Offset(0), Offset(10)),
        "nothing is lost"
    );
    assert_eq!(
        connection.append(&topic, 0, &messages(10..15, 100)),
        Ok(Offset(10)),
        "no offset is given out twice, none is left out"
    );
    // The SDK's consumer goes on where the stored offset says.
    let received = in_runtime(async {
        let client = Client::connect(&server.url()).await?;
        let mut consumer = client
            .consumer(topic.stream, topic.id, "billing")
            .stop_at_end(true)
            .build()
            .await?;
        let mut received = Vec::new();
        while let Some(message) = consumer.next().await {
            let message = message?;
            received.push((message.offset(), message.payload().clone()));
        }
        consumer.close().await?;
        client.close().await;
        Ok(received)
    });
    let expected: Vec<(Offset, Bytes)> = (10..15).map(Offset).zip(messages(10..15, 100)).collect();
    assert_eq!(received, expected);
    let whole = connection
        .read_from(&topic, 0, Offset(0))
        .expect("it can be read");
    let expected: Vec<(Offset, Bytes)> = (0..15).map(Offset).zip(messages(0..15, 100)).collect();
    assert_eq!(whole.messages, expected);
    server.stop();
}

/// Step 2. What is on the disk and what arrives meet without a gap: a producer and a consumer that begin at
/// the same moment, right after a restart.
#[test]
fn r29_2_consumer_sees_no_gap_between_disk_and_memory() {
    let site = Site::new();
    let mut server = site.start();
    let mut connection = Connection::login(server.address());
    let topic = connection.create_topic("orders", 1);
    let append = |connection: &mut Connection, range: std::ops::Range<u64>| {
        let first = Offset(range.start);
        let appended = connection.append(&topic, 0, &messages(range, 60));
        assert_eq!(appended, Ok(first));
    };
    append(&mut connection, 0..1_000);
    let mut end = 1_000;
    for run in 0..repetitions(4, 100) {
        // Every other time without a warning.
        if run % 2 == 0 {
            server.stop();
        } else {
            let _ = server.kill();
        }
        server = site.start();
        let url = server.url();
        let (stream, id) = (topic.stream, topic.id);
        let (from, to) = (end, end + 100);
        let consumed =
            std::thread::spawn(move || in_runtime(consume(url, stream.into(), id.into(), to)));
        let mut connection = Connection::login(server.address());
        for _ in 0..10 {
            append(&mut connection, end..end + 10);
            end += 10;
        }
        let offsets = consumed.join().expect("the consumer ends");
        // Auto-commit: a run begins where the one before has stored, at the latest behind its last message.
        // What the run before has processed is stored, not more.
        let first = if run == 0 { 0 } else { from };
        let expected: Vec<u64> = (first..to).collect();
        assert_eq!(offsets, expected, "run {run}: a gap");
    }
    server.stop();
}

/// Reads as `billing` until the message before `to`; checks each message, gives their offsets.
async fn consume(
    url: String,
    stream: cohort::Id,
    topic: cohort::Id,
    to: u64,
) -> Result<Vec<u64>, cohort::Error> {
    let client = Client::connect(&url).await?;
    let mut consumer = client.consumer(stream, topic, "billing").build().await?;
    let mut offsets = Vec::new();
    while let Some(message) = consumer.next().await {
        let message = message?;
        let offset = message.offset().0;
        let tag = Tag {
            producer: 1,
            sequence: offset,
        };
        assert_eq!(*message.payload(), payload(tag, 60));
        offsets.push(offset);
        if offset + 1 == to {
            break;
        }
    }
    consumer.close().await?;
    client.close().await;
    Ok(offsets)
}

/// Step 3. SIGKILL under load, again and again on the same data: every acknowledged message is readable at
/// its offset with identical bytes, and none of the others is there twice or changed.
#[test]
fn r29_3_sigkill_under_load_loses_nothing_acknowledged() {
    let site = Site::new();
    let server = site.start();
    // The producers find the next server where the first was.
    let address = server.address();
    let site = site.with("node.address", &format!("\"{address}\""));
    let topic = Connection::login(address).create_topic("orders", 4);
    let ledger = Ledger::new(400);
    let load = Load::start(&server.url(), &topic, 0..3, &ledger);
    let mut server = server;
    for kill in 0..repetitions(3, 20) {
        let before = ledger.acknowledged();
        // Not always after the same time.
        let more = 500 + u64::from(kill * 137 % 700);
        until("the load is on", || {
            (ledger.acknowledged() > before + more).then_some(())
        });
        let _ = server.kill();
        assert!(
            ledger.sent() > ledger.acknowledged(),
            "the kill hits no idle server"
        );
        server = until("the address is free again", || site.try_start().ok());
        let found = ledger.check(&mut Connection::login(address), &topic);
        assert!(found.acknowledged > before, "{found:?}");
        load.go_on();
    }
    load.finish();
    let found = ledger.check(&mut Connection::login(address), &topic);
    assert_eq!(
        found.messages,
        ledger.sent(),
        "producers repeat what was not answered, once"
    );
    assert_eq!(found.acknowledged, found.messages);
    server.stop();

    let server = site.start();
    let found_again = ledger.check(&mut Connection::login(address), &topic);
    assert_eq!(found_again, found);
    server.stop();
}

/// What was shown to a reader counts as well, acknowledged or not: it never changes afterwards.
#[test]
fn r29_offset_once_shown_is_never_another_message() {
    let site = Site::new();
    let mut server = site.start();
    let topic = Connection::login(server.address()).create_topic("orders", 1);
    let ledger = Ledger::new(50);
    let mut shown: Vec<Bytes> = Vec::new();
    for round in 0..repetitions(3, 20) {
        let load = Load::start(&server.url(), &topic, round..round + 1, &ledger);
        let mut reader = Connection::login(server.address());
        let until_length = shown.len() + 300;
        while shown.len() < until_length {
            let next = Offset(shown.len() as u64);
            let page = reader.poll(&topic, 0, PollStrategy::Offset(next));
            let messages = page.expect("it can be read").messages;
            shown.extend(messages.into_iter().map(|(_, payload)| payload));
        }
        let _ = server.kill();
        drop(load);
        server = site.start();
        let mut reader = Connection::login(server.address());
        let page = reader
            .read_from(&topic, 0, Offset(0))
            .expect("it can be read");
        let now: Vec<Bytes> = page
            .messages
            .into_iter()
            .map(|(_, payload)| payload)
            .collect();
        assert!(
            now.len() >= shown.len(),
            "round {round}: shown messages are gone"
        );
        assert!(
            now[..shown.len()] == shown[..],
            "round {round}: shown messages differ"
        );
        shown = now;
    }
    server.stop();
}

fn in_runtime<T>(work: impl Future<Output = Result<T, cohort::Error>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("make a runtime");
    let bounded = async { tokio::time::timeout(PATIENCE, work).await };
    runtime
        .block_on(bounded)
        .expect("it ends")
        .expect("it succeeds")
}

/// The messages with these numbers.
fn messages(range: std::ops::Range<u64>, size: usize) -> Vec<Bytes> {
    let tag = |sequence| Tag {
        producer: 1,
        sequence,
    };
    range.map(|sequence| payload(tag(sequence), size)).collect()
}
