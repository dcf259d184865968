//! Which operation of the catalog a request asks for.

use alloc::string::ToString;
use core::net::SocketAddr;

use catalog::Operation;
use coordinator::{OptionsUpdate, ResetTo, StartPolicy, Weight};
use wire::{ConsumerGroupOptionsUpdate, GroupStart, Request, ResetTarget};

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
            options: options(&r.options).of(coordinator::GroupOptions::default()),
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
            options: options(&r.options),
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
                .map(|section| (section.partition, reset_to(section.to)))
                .collect(),
            others: r.others.map(reset_to),
            force: r.force,
        },
        _ => return None,
    })
}

fn options(update: &ConsumerGroupOptionsUpdate) -> OptionsUpdate {
    OptionsUpdate {
        rebalance_timeout_ms: update.rebalance_timeout_ms,
        initial_delay_ms: update.initial_delay_ms,
        start: update.start.map(start_policy),
        offset_expiry_ms: update.offset_expiry_ms,
    }
}

const fn start_policy(start: GroupStart) -> StartPolicy {
    match start {
        GroupStart::Earliest => StartPolicy::Earliest,
        GroupStart::Latest => StartPolicy::Latest,
        GroupStart::Timestamp(timestamp) => StartPolicy::Timestamp(timestamp),
    }
}

const fn reset_to(target: ResetTarget) -> ResetTo {
    match target {
        ResetTarget::Offset(offset) => ResetTo::Offset(offset),
        ResetTarget::Timestamp(timestamp) => ResetTo::Start(StartPolicy::Timestamp(timestamp)),
        ResetTarget::Earliest => ResetTo::Start(StartPolicy::Earliest),
        ResetTarget::Latest => ResetTo::Start(StartPolicy::Latest),
        ResetTarget::Nothing => ResetTo::Nothing,
    }
}
