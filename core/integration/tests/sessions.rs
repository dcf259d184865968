//! Sessions outlive the server.

use integration::{Connection, PATIENCE, Site, repetitions};

use crate::scene::patient;
use std::time::Instant;

/// Whenever a client comes back while the server starts, it is told to wait or taken, never that its session
/// is gone.
#[test]
fn session_is_found_again_from_the_first_moment_after_a_kill() {
    let site = Site::new().with("cluster.timeouts.disconnect_grace", "\"10 s\"");
    let mut server = site.start();
    let address = server.address();
    let site = site.with("node.address", &format!("\"{address}\""));
    let mut connection = Connection::login(address);
    connection.create_topic("orders", 1);
    let mut refusals = Vec::new();
    for _ in 0..repetitions(4, 50) {
        let _ = server.kill();
        let starting = std::thread::scope(|scope| {
            let starting = scope.spawn(|| site.start());
            let deadline = Instant::now() + PATIENCE;
            let attached = loop {
                match connection.try_attach(address) {
                    Ok(attached) => break attached,
                    Err(failure) => refusals.extend(failure),
                }
                assert!(Instant::now() < deadline, "never attached: {refusals:?}");
            };
            connection = attached;
            starting.join().expect("the server starts")
        });
        server = starting;
    }
    let wrong = refusals.iter().find(|failure| !failure.code.retryable());
    assert!(wrong.is_none(), "{wrong:?}");
    connection.ping();
    server.stop();
}

/// What a server learns from its journal has not happened just now.
#[test]
fn sessions_from_before_the_start_are_not_told_as_if_they_began() {
    let site = patient();
    let server = site.start();
    let address = server.address();
    let old: Vec<_> = (0..3).map(|_| Connection::login(address)).collect();
    let _ = server.kill();
    let server = site.start();
    let new = Connection::login(server.address());
    let begins =
        |connection: &Connection| format!("session begins session={}", connection.session());
    let told = server.log().wait_for(&begins(&new));
    assert!(told.is_some());
    for connection in &old {
        assert_eq!(server.log().find(&begins(connection)), None);
    }
    server.stop();
}
