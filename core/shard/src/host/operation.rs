//! Which operation of the catalog a request asks for.

use alloc::string::ToString;
use core::net::SocketAddr;

use catalog::Operation;
use coordinator::{GroupOptions, OptionsUpdate, ResetTo, Weight};
use wire::Request;

use crate::work::Caller;

/// The operation that a metadata command stands for; `None` for everything else, and for the commands
/// that first need a password hashed.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only metadata commands become operations"
)]
pub(super) fn operation(caller: &Caller, peer: SocketAddr, request: Request) -> Option<Operation> {
    let by = caller.user();
    if let Some(operation) = group_operation(caller, peer, &request) {
        return Some(operation);
    }
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
        Request::PurgeStream(r) => Operation::PurgeStream {
            by,
            stream: r.stream,
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
        Request::PurgeTopic(r) => Operation::PurgeTopic {
            by,
            stream: r.stream,
            topic: r.topic,
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

/// The same for the commands of consumer groups.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only commands of consumer groups become these operations"
)]
fn group_operation(caller: &Caller, peer: SocketAddr, request: &Request) -> Option<Operation> {
    let by = caller.user();
    let (client, session) = (caller.binding.client, caller.binding.session);
    Some(match request.clone() {
        Request::CreateConsumerGroup(r) => Operation::CreateConsumerGroup {
            by,
            stream: r.stream,
            topic: r.topic,
            name: r.name,
            options: OptionsUpdate::from(r.options).of(GroupOptions::default()),
        },
        Request::DeleteConsumerGroup(r) => Operation::DeleteConsumerGroup {
            by,
            stream: r.stream,
            topic: r.topic,
            group: r.group,
            force: r.force,
        },
        Request::UpdateConsumerGroup(r) => Operation::UpdateConsumerGroup {
            by,
            stream: r.stream,
            topic: r.topic,
            group: r.group,
            options: r.options.into(),
        },
        Request::JoinConsumerGroup(r) => Operation::JoinConsumerGroup {
            client,
            session,
            stream: r.stream,
            topic: r.topic,
            group: r.group,
            instance: r.instance,
            weight: Weight(r.weight),
            address: peer.to_string(),
        },
        Request::LeaveConsumerGroup(r) => Operation::LeaveConsumerGroup {
            client,
            session,
            stream: r.stream,
            topic: r.topic,
            group: r.group,
        },
        Request::RemoveMember(r) => Operation::RemoveMember {
            by,
            stream: r.stream,
            topic: r.topic,
            group: r.group,
            member: r.member,
        },
        Request::ResetConsumerOffset(r) => Operation::ResetConsumerOffset {
            by,
            stream: r.stream,
            topic: r.topic,
            group: r.group,
            partitions: r
                .sections
                .iter()
                .map(|section| (section.partition, section.to.into()))
                .collect(),
            others: r.others.map(ResetTo::from),
            force: r.force,
        },
        _ => return None,
    })
}
