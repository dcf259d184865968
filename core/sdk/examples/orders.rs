//! Sends a hundred orders, and consumes them under the name `billing`, which keeps how far it has got:
//! started again, it goes on behind what it processed.
//!
//! ```text
//! cargo run -p cohort --example orders -- cohort://root:secret@127.0.0.1:5100
//! ```
#![expect(clippy::print_stdout, reason = "it is there to be watched")]

use std::process::ExitCode;

use cohort::{Client, Error, ErrorCode, Message};

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("an address is expected, such as cohort://root:secret@127.0.0.1:5100");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system lets it start");
    match runtime.block_on(run(&address)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(address: &str) -> Result<(), Error> {
    let client = Client::connect(address).await?;
    there_already(client.create_stream("shop").await.map(drop))?;
    there_already(client.create_topic("shop", "orders", 4).await.map(drop))?;
    produce(&client).await?;
    consume(&client).await?;
    for partition in client.stored_offsets("shop", "orders", "billing").await? {
        let (next, lag) = (partition.next(), partition.lag());
        println!("partition {}: next {next}, lag {lag}", partition.partition);
    }
    client.close().await;
    Ok(())
}

/// Whoever comes second finds what is to be made already there.
fn there_already(made: Result<(), Error>) -> Result<(), Error> {
    match made {
        Err(error)
            if matches!(
                error.code(),
                Some(ErrorCode::StreamAlreadyExists | ErrorCode::TopicAlreadyExists)
            ) =>
        {
            Ok(())
        }
        made => made,
    }
}

async fn produce(client: &Client) -> Result<(), Error> {
    let producer = client.producer("shop", "orders").build().await?;
    for number in 1..=100 {
        let customer = format!("customer-{}", number % 7);
        let order = Message::new(format!("order {number}")).key(customer);
        // Waits for room only; whether it is stored, the flush below tells.
        let _delivery = producer.enqueue(order).await?;
    }
    producer.flush().await
}

async fn consume(client: &Client) -> Result<(), Error> {
    let mut consumer = client
        .consumer("shop", "orders", "billing")
        // A service leaves this out, and waits for what comes.
        .stop_at_end(true)
        .build()
        .await?;
    // Asking for the next message says that the one before is processed.
    while let Some(message) = consumer.next().await {
        let message = message?;
        let payload = String::from_utf8_lossy(message.payload());
        println!("{}:{} {payload}", message.partition(), message.offset());
    }
    // Stores how far it has got, the last message included.
    consumer.close().await
}
