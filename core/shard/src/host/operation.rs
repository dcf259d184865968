//! Which operation of the catalog a request asks for.

use catalog::Operation;
use wire::Request;

use crate::work::Caller;

/// The operation that a metadata command stands for; `None` for everything else, and for the commands
/// that first need a password hashed.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only metadata commands become operations"
)]
pub(super) fn operation(caller: &Caller, request: Request) -> Option<Operation> {
    let by = caller.user();
    Some(match request {
        Request::Logout => {
            let (client, session) = (caller.binding.client, caller.binding.session);
            Operation::Logout { client, session }
        }
        Request::DeleteUser(r) => Operation::DeleteUser { by, user: r.user },
        Request::UpdateUser(r) => Operation::UpdateUser {
            by,
            user: r.user,
            name: r.name,
            active: r.active,
        },
        Request::CreateStream(r) => Operation::CreateStream { by, name: r.name },
        Request::DeleteStream(r) => Operation::DeleteStream {
            by,
            stream: r.stream,
        },
        Request::UpdateStream(r) => Operation::UpdateStream {
            by,
            stream: r.stream,
            name: r.name,
        },
        Request::CreateTopic(r) => Operation::CreateTopic {
            by,
            stream: r.stream,
            name: r.name,
            partitions: r.partitions,
        },
        Request::DeleteTopic(r) => Operation::DeleteTopic {
            by,
            stream: r.stream,
            topic: r.topic,
        },
        Request::UpdateTopic(r) => Operation::UpdateTopic {
            by,
            stream: r.stream,
            topic: r.topic,
            name: r.name,
        },
        Request::CreatePartitions(r) => Operation::CreatePartitions {
            by,
            stream: r.stream,
            topic: r.topic,
            count: r.count,
        },
        Request::DeletePartitions(r) => Operation::DeletePartitions {
            by,
            stream: r.stream,
            topic: r.topic,
            count: r.count,
        },
        _ => return None,
    })
}
