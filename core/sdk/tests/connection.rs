//! Connections of a client, against a server that speaks just enough.

mod fake;

use std::{future::Future, time::Duration};

use cohort::{BatchReceipt, Client, Command, Error, ErrorCode, Message, Offset, PartitionId};
use fake::{Fake, SECRET};
use tokio::net::TcpListener;
use wire::{Identifier, Request};

/// Runs a test with a limit of time.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(Duration::from_secs(30), test)
            .await
            .expect("in time");
    });
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
