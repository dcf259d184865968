//! Connections of a client, against a server that speaks just enough.

mod fake;

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use cohort::{
    BatchReceipt, Client, Command, Error, ErrorCode, GroupEvent, Message, Offset, PartitionId,
    StoreMode,
};
use fake::{Fake, SECRET};
use tokio::net::TcpListener;
use wire::{Identifier, Request};

/// Runs a test with a limit of time.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(Duration::from_secs(30), test)
            .await
            .expect("in time")
    })
}

#[test]
fn connects_and_asks() {
    run(async {
        let mut fake = Fake::start().await;
        let client = Client::connect(&fake.url()).await.unwrap();
        let (header, login) = fake.request().await;
        assert_eq!((login.command(), header.session), (Command::Login, 0));
        client.ping().await.unwrap();
        let error = client.stream("nowhere").await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::StreamNotFound));
        assert_eq!(
            error.to_string(),
            "no stream \"nowhere\" (StreamNotFound, 3001)"
        );
        assert!(!error.is_retryable());
        // Asked side by side.
        let asked = (0..100).map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.ping().await })
        });
        for ping in asked.collect::<Vec<_>>() {
            ping.await.unwrap().unwrap();
        }
    });
}

#[test]
fn wrong_credentials_are_told_without_the_password() {
    run(async {
        let fake = Fake::start().await;
        let url = format!("cohort://ann:bad-password@{}", fake.address);
        let error = Client::connect(&url).await.unwrap_err();
        assert!(matches!(
            error,
            Error::LoginRefused {
                code: ErrorCode::InvalidCredentials,
                ..
            }
        ));
        assert!(!error.is_retryable());
        assert!(!format!("{error} {error:?}").contains("bad-password"));
        let error = Client::connect(&format!("cohort://{}", fake.address))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "user: no user is given to log in");
    });
}

#[test]
fn a_server_that_is_not_there_is_told_at_once_or_waited_for() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let url = format!("cohort://ann:good-password@{address}");
        let error = Client::connect(&url).await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("cannot reach {address}: ")),
            "{error}"
        );
        assert!(error.is_retryable() && !error.may_have_happened());

        let patient = Client::builder(&url).unwrap().wait_for_server(true);
        let connecting = tokio::spawn(patient.connect());
        let _fake = Fake::on(TcpListener::bind(address).await.unwrap());
        connecting.await.unwrap().unwrap();

        let patient =
            Client::builder(&format!("cohort://ann:good-password@127.0.0.1:{}", 1)).unwrap();
        let patient = patient
            .wait_for_server(true)
            .connect_timeout(Duration::from_millis(200));
        let error = patient.connect().await.unwrap_err();
        assert!(
            error.to_string().contains("no login within 200 ms"),
            "{error}"
        );
    });
}

#[test]
fn any_address_of_several_will_do() {
    run(async {
        let fake = Fake::start().await;
        let url = format!("cohort://ann:good-password@127.0.0.1:1,{}", fake.address);
        let client = Client::connect(&url).await.unwrap();
        client.ping().await.unwrap();
    });
}

#[test]
fn a_lost_connection_is_attached_again_and_the_request_repeated() {
    run(async {
        let mut fake = Fake::start().await;
        let client = Client::connect(&fake.url()).await.unwrap();
        fake.request_of(Command::Login).await;
        fake.rules(|rules| rules.cut_at = Some(Command::DeleteStream));
        client.delete_stream("s").await.unwrap();
        let first = fake.request_of(Command::DeleteStream).await;
        let (header, attach) = fake.request().await;
        assert_eq!(
            (attach, header.session),
            (wire::Attach { secret: SECRET }.into(), 100)
        );
        let second = fake.request_of(Command::DeleteStream).await;
        assert_eq!((first.request, second.request), (1, 1));
        assert_ne!(first.correlation, second.correlation);
    });
}

#[test]
fn further_connections_attach() {
    run(async {
        let mut fake = Fake::start().await;
        let client = Client::builder(&fake.url())
            .unwrap()
            .connections(3)
            .connect()
            .await
            .unwrap();
        fake.request_of(Command::Login).await;
        fake.request_of(Command::Attach).await;
        fake.request_of(Command::Attach).await;
        client.ping().await.unwrap();
    });
}

#[test]
fn dropping_the_last_handle_ends_the_connection_and_closing_logs_out() {
    run(async {
        let mut fake = Fake::start().await;
        let client = Client::connect(&fake.url()).await.unwrap();
        let producer = client.producer(4, 5).build().await.unwrap();
        drop(client);
        producer.send("still there").await.unwrap();
        drop(producer);
        fake.ended().await;

        let client = Client::connect(&fake.url()).await.unwrap();
        let other = client.clone();
        client.close().await;
        let logout = fake.request_of(Command::Logout).await;
        assert_eq!((logout.session, logout.request), (100, 1));
        assert_eq!(other.ping().await.unwrap_err(), Error::Closed);
        fake.ended().await;
    });
}

#[test]
fn messages_are_sent_and_their_receipts_told() {
    run(async {
        let mut fake = Fake::start().await;
        let client = Client::connect(&fake.url()).await.unwrap();
        let builder = client.producer("s", "t").batch_messages(3);
        let (producer, mut receipts) = builder.build_with_receipts().await.unwrap();
        let mut deliveries = Vec::new();
        for number in 0..10 {
            let message = Message::new(number.to_string()).partition(1);
            deliveries.push(producer.enqueue(message).await.unwrap());
        }
        producer.flush().await.unwrap();
        for (offset, delivery) in (0..).zip(deliveries) {
            let receipt = delivery.await.unwrap();
            assert_eq!(
                (receipt.partition, receipt.offset),
                (PartitionId(1), Offset(offset))
            );
        }
        let mut end = 0;
        while let Some(BatchReceipt {
            partition,
            first,
            last,
        }) = receipts.try_next()
        {
            assert_eq!((partition, first), (PartitionId(1), Offset(end)));
            end = last.0 + 1;
        }
        assert_eq!(end, 10);
        drop(producer);
        assert_eq!(receipts.next().await, None);

        // The producer stays with the topic that the name meant when it was built.
        let (_, request) = loop {
            let (header, request) = fake.request().await;
            if request.command() == Command::SendMessages {
                break (header, request);
            }
        };
        let Request::SendMessages(send) = request else {
            unreachable!()
        };
        assert_eq!(
            (send.stream, send.topic),
            (Identifier::Number(4), Identifier::Number(5))
        );
    });
}

#[test]
fn a_producer_that_outruns_the_server_waits_in_bounded_memory() {
    run(async {
        let mut fake = Fake::start().await;
        fake.rules(|rules| rules.hold_sends = true);
        let client = Client::connect(&fake.url()).await.unwrap();
        let builder = client
            .producer(4, 5)
            .memory(10_000)
            .delivery_timeout(Duration::from_secs(20));
        let producer = builder.build().await.unwrap();
        let payload = vec![0; 3_000];
        let mut taken = Vec::new();
        let error = loop {
            match producer.try_enqueue(payload.clone()) {
                Ok(delivery) => taken.push(delivery),
                Err(error) => break error,
            }
        };
        assert_eq!(taken.len(), 3);
        assert!(
            matches!(error, Error::Message(_)) && error.is_retryable(),
            "{error}"
        );
        let mut more = std::pin::pin!(producer.enqueue(payload.clone()));
        let waits = std::future::poll_fn(|context| {
            std::task::Poll::Ready(more.as_mut().poll(context).is_pending())
        });
        assert!(waits.await);
        // A new connection, and the server answers: the same batches go again.
        fake.request_of(Command::SendMessages).await;
        fake.rules(|rules| {
            rules.hold_sends = false;
            rules.cut_at = Some(Command::Ping);
        });
        let pinged = client.ping().await;
        pinged.unwrap();
        let delivery = more.await.unwrap();
        for delivery in taken {
            delivery.await.unwrap();
        }
        delivery.await.unwrap();
        let error = producer.send(vec![0; 20_000]).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "a message of 20032 bytes exceeds the limit of 9904 bytes"
        );
    });
}

#[test]
fn names_are_checked_before_anything_is_sent() {
    run(async {
        let mut fake = Fake::start().await;
        let client = Client::connect(&fake.url()).await.unwrap();
        let long = "x".repeat(256);
        for name in ["", "7", " a", "a\n", long.as_str()] {
            assert!(matches!(
                client.create_stream(name).await,
                Err(Error::Invalid { what: "stream", .. })
            ));
            assert!(matches!(
                client.topic("s", name).await,
                Err(Error::Invalid { what: "topic", .. })
            ));
            assert!(matches!(
                client.user(name).await,
                Err(Error::Invalid { what: "user", .. })
            ));
            let consumer = client.consumer("s", "t", name).build().await;
            assert!(matches!(
                consumer,
                Err(Error::Invalid {
                    what: "consumer",
                    ..
                })
            ));
        }
        let password = client.create_user("bob", &long).await;
        assert!(matches!(
            password,
            Err(Error::Invalid {
                what: "password",
                ..
            })
        ));
        client.ping().await.unwrap();
        fake.request_of(Command::Login).await;
        assert_eq!(fake.request().await.1, Request::Ping);
    });
}

/// Requests up to one of this command, without heartbeats.
async fn requests_to(fake: &mut Fake, command: Command) -> Vec<Request> {
    let mut requests = Vec::new();
    loop {
        let (_, request) = fake.request().await;
        let last = request.command() == command;
        requests.push(request);
        if last {
            return requests;
        }
    }
}

/// Partitions and offsets that are to be stored.
fn stored_by(requests: &[Request]) -> BTreeSet<(u32, u64)> {
    let mut stored = BTreeSet::new();
    for request in requests {
        if let Request::StoreConsumerOffset(store) = request {
            let sections = store.sections.iter();
            stored.extend(sections.map(|own| (own.partition.0, own.offset.0)));
        }
    }
    stored
}

#[test]
fn a_member_reads_stores_and_leaves() {
    run(async {
        let mut fake = Fake::start().await;
        let client = Client::connect(&fake.url()).await.unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        let builder = client
            .consumer_group("s", "t", "g")
            .store(StoreMode::Manual);
        let builder = builder.on_event(move |event| sink.lock().unwrap().push(event.clone()));
        let mut consumer = builder.build().await.unwrap();
        assert_eq!((consumer.group().0, consumer.member().unwrap().0), (6, 8));
        let mut events = consumer.events();
        assert!(matches!(
            events.next().await,
            Some(GroupEvent::Joined { .. })
        ));
        let assigned = events.next().await.unwrap();
        let GroupEvent::Assigned { partitions } = &assigned else {
            panic!("{assigned:?}")
        };
        assert_eq!(partitions.len(), 2);
        let mut messages = Vec::new();
        for _ in 0..6 {
            messages.push(consumer.next().await.unwrap().unwrap());
        }
        assert_eq!(told.lock().unwrap()[1], assigned);
        let order = messages
            .iter()
            .map(|message| (message.partition().0, message.offset().0));
        let order = order.collect::<Vec<_>>();
        assert_eq!(order, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        let token = messages[3].fencing_token().unwrap();
        assert_eq!(
            (token.group.0, token.partition.0, token.epoch.0),
            (6, 1, 41)
        );
        // Out of order, and one is missing.
        assert!(messages[2].ack() && messages[0].ack() && messages[3].ack());
        assert!(!messages[0].ack());
        consumer.store().await.unwrap();
        let requests = requests_to(&mut fake, Command::StoreConsumerOffset).await;
        let Some(Request::StoreConsumerOffset(store)) = requests.last() else {
            panic!("{requests:?}")
        };
        let sections = store.sections.iter();
        let sections = sections.map(|own| (own.partition.0, own.epoch.0, own.offset.0));
        assert_eq!(sections.collect::<Vec<_>>(), [(0, 40, 0), (1, 41, 0)]);
        // Closing waits for what is being processed, and stores it.
        let closing = tokio::spawn(consumer.close());
        for message in [&messages[1], &messages[4], &messages[5]] {
            assert!(message.ack());
        }
        closing.await.unwrap().unwrap();
        let requests = requests_to(&mut fake, Command::LeaveConsumerGroup).await;
        let stored = stored_by(&requests);
        assert!(
            stored.contains(&(0, 2)) && stored.contains(&(1, 2)),
            "{stored:?}"
        );
        assert!(!messages[5].ack());
    });
}

/// What close says of a message that was processed, when the answer to its store is lost with the connection,
/// and the session with it; `stored`: what the server answers who asks.
fn close_without_an_answer(stored: Option<[Option<Offset>; 2]>) -> Result<(), Error> {
    run(async move {
        let mut fake = Fake::start().await;
        let client = Client::connect(&fake.url()).await.expect("connect");
        let building = client.consumer_group("s", "t", "g");
        let building = building.store(StoreMode::Manual).build();
        let mut consumer = building.await.expect("join");
        let next = consumer.next().await.expect("it goes on");
        fake.rules(|rules| {
            rules.cut_at = Some(Command::StoreConsumerOffset);
            rules.loses_sessions = true;
            rules.stored = stored;
        });
        assert!(next.expect("a message").ack());
        let closing = consumer.close_within(Duration::from_secs(5));
        let closing = tokio::spawn(closing);
        fake.request_of(Command::GetConsumerOffset).await;
        closing.await.expect("nobody panics")
    })
}

#[test]
fn close_asks_what_is_stored_when_it_does_not_know() {
    let stored = close_without_an_answer(Some([Some(Offset(0)); 2]));
    assert_eq!(stored, Ok(()));
    let error = close_without_an_answer(Some([None; 2])).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NotStored {
                offset: Offset(0),
                ..
            }
        ),
        "{error}"
    );
    let error = close_without_an_answer(None).unwrap_err();
    assert!(
        matches!(
            error,
            Error::StoreInDoubt {
                offset: Offset(0),
                ..
            }
        ),
        "{error}"
    );
    assert!(error.may_have_happened());
}

#[test]
fn who_detaches_stores_and_goes_without_a_farewell() {
    run(async {
        let mut fake = Fake::start().await;
        let client = Client::connect(&fake.url()).await.unwrap();
        let building = client.consumer_group("s", "t", "g").instance_id("i");
        let mut consumer = building.build().await.unwrap();
        consumer.next().await.unwrap().unwrap();
        consumer.detach().await.unwrap();
        client.close().await;
        let mut stored = false;
        while let Some(seen) = fake.seen.recv().await.unwrap() {
            let command = seen.1.command();
            stored |= command == Command::StoreConsumerOffset;
            let farewell = [Command::LeaveConsumerGroup, Command::Logout].contains(&command);
            assert!(!farewell, "{command:?}");
        }
        assert!(stored);
    });
}

/// What is not `Send` cannot be spawned.
#[test]
fn what_consumers_are_asked_can_be_spawned() {
    fn spawnable(_: impl Future<Output = Result<(), Error>> + Send) {}
    fn of_a_member(consumer: cohort::GroupConsumer) {
        spawnable(consumer.store());
        spawnable(consumer.close());
    }
    fn of_one(consumer: cohort::Consumer) {
        spawnable(consumer.flush());
        spawnable(consumer.close());
    }
    let _compiled: (fn(_), fn(_)) = (of_a_member, of_one);
}

#[test]
fn a_client_is_a_member_once_and_leaves_when_it_is_dropped() {
    run(async {
        let mut fake = Fake::start().await;
        let client = Client::connect(&fake.url()).await.unwrap();
        let mut first = client.consumer_group("s", "t", "g").build().await.unwrap();
        let error = client
            .consumer_group("s", "t", "g")
            .build()
            .await
            .unwrap_err();
        let text = "consumer group: this client is a member already; use another client for another member";
        assert_eq!(error.to_string(), text);
        // The first one still is, and goes on.
        first.next().await.unwrap().unwrap();
        client.ping().await.unwrap();
        let requests = requests_to(&mut fake, Command::Ping).await;
        let left = |request: &Request| request.command() == Command::LeaveConsumerGroup;
        assert!(!requests.iter().any(left));
        drop(first);
        fake.request_of(Command::LeaveConsumerGroup).await;
        let error = client
            .consumer_group("s", "t", "g")
            .store(StoreMode::Never)
            .build()
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::Invalid {
                    what: "store mode",
                    ..
                }
            ),
            "{error}"
        );
    });
}
