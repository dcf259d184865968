//! Tests with real processes: what a server started from its binary does when it is killed, when its files
//! are damaged, and when nonsense is sent to it.
//!
//! This library is the harness. [`Site`] is a directory with a configuration; it starts [`Server`]s, which
//! never outlive the test. [`Connection`] speaks the protocol on a plain socket, malformed bytes included;
//! for everything else there is the SDK. A [`Ledger`] notes what was sent and what was acknowledged, and
//! compares it with what can be read. A [`Clock`] is a server's wall clock, wrong as a test wants it. A [`Group`] is a consumer group, a [`Member`] is one of its members, well
//! behaved or not, and [`Deliveries`] notes which of them got which messages. Nothing sleeps to wait for something else: [`until`] waits for the
//! condition, with a deadline.
#![forbid(unsafe_code)]

mod archive;
mod binaries;
mod clock;
mod cluster;
mod connection;
mod damage;
mod gate;
mod group;
mod ledger;
mod load;
mod log;
mod member;
pub mod nemesis;
mod patience;
mod payload;
mod proxy;
mod repetitions;
mod server;
mod site;
mod status;
mod volume;

pub use archive::{pack, unpack};
pub use binaries::binary;
pub use clock::Clock;
pub use cluster::{Cluster, NODES};
pub use connection::{Connection, Frame, Page, batch, poll, send, store};
pub use damage::{append, cut, flip_bit, is_zero, last_written, overwrite};
pub use gate::{Gate, Passage};
pub use group::{DEFAULT_OPTIONS, Group, counter, fill, message, shares};
pub use ledger::{Found, Ledger};
pub use load::{Load, patient_client};
pub use log::Log;
pub use member::{Deliveries, Member};
pub use patience::{PATIENCE, again, until};
pub use payload::{Tag, payload};
pub use proxy::Proxy;
pub use repetitions::{is_full, repetitions};
pub use server::{Ended, Process, Server};
pub use site::{ROOT_PASSWORD, Site};
pub use status::{States, node_status, states};
pub use volume::Volume;
