//! What consumer groups have in a partition: fences, stored offsets, starts.

use proptest::prelude::*;
use wire::{ErrorCode, GroupStart, ResetTarget};

use super::*;
use crate::{
    Absent, EpochHolder, FenceOffset, Grant, GroupCommand, GroupRecord, PollRight, Refusal, StartAt,
};

const GROUP: ConsumerGroupId = ConsumerGroupId(9);

/// Member `member` of a session that has no number in common with it.
fn holder(member: u64) -> EpochHolder {
    EpochHolder {
        member: MemberId(member),
        session: SessionNumber(1_000 + member),
    }
}

fn grant(epoch: u64, member: u64) -> Grant {
    Grant {
        epoch: Epoch(epoch),
        holder: holder(member),
    }
}

fn fence_with(epoch: u64, member: u64, offset: FenceOffset) -> GroupCommand {
    GroupCommand::Fence {
        epoch: Epoch(epoch),
        holder: Some(holder(member)),
        offset,
    }
}

fn fence(epoch: u64, member: u64) -> GroupCommand {
    fence_with(epoch, member, FenceOffset::Keep)
}

fn start(epoch: u64, member: u64, start: GroupStart) -> GroupCommand {
    fence_with(epoch, member, FenceOffset::Start(start))
}

fn reset(epoch: u64, member: u64, target: ResetTarget) -> GroupCommand {
    fence_with(epoch, member, FenceOffset::Reset(target))
}

fn store(epoch: u64, member: u64, offset: u64) -> GroupCommand {
    GroupCommand::Store {
        grant: grant(epoch, member),
        offset: Offset(offset),
    }
}

fn release(from: (u64, u64), offset: Option<u64>, to: (u64, u64)) -> GroupCommand {
    GroupCommand::Release {
        grant: grant(from.0, from.1),
        offset: offset.map(Offset),
        to: grant(to.0, to.1),
    }
}

fn with_messages(count: u64) -> Node {
    let mut node = Node::with_partition(config());
    for _ in 0..count {
        node.send("x");
    }
    node
}

fn request(group: ConsumerGroupId, admitted: u64, command: GroupCommand) -> DataRequest {
    DataRequest::ConsumerGroup {
        key: key(0),
        incarnation: FIRST,
        admitted: Op(admitted),
        group,
        command,
    }
}

impl Node {
    fn group(&mut self, command: GroupCommand) -> Result<GroupRecord, Refusal> {
        let result = self.apply_one(request(GROUP, 7, command));
        if let DataResult::Failed(refusal) = result {
            return Err(refusal);
        }
        let record = self.record();
        let group = GROUP;
        assert_eq!(result, DataResult::Record { group, record });
        Ok(record)
    }

    fn record(&self) -> GroupRecord {
        let record = self.group.group_record(key(0), FIRST, GROUP);
        record.expect("the partition is here")
    }

    fn drop_group(&mut self, group: ConsumerGroupId, dropped: u64) -> DataResult {
        self.apply_one(DataRequest::DropConsumerGroup {
            key: key(0),
            incarnation: FIRST,
            dropped: Op(dropped),
            group,
        })
    }

    fn poll_right(&self, grant: Grant) -> Result<PollRight, Refusal> {
        self.group.poll_right(key(0), FIRST, GROUP, grant)
    }
}

fn held(fence: u64, member: u64) -> GroupRecord {
    GroupRecord {
        fence: Epoch(fence),
        holder: Some(holder(member)),
        ..GroupRecord::default()
    }
}

fn stored(fence: u64, member: u64, offset: u64) -> GroupRecord {
    GroupRecord {
        stored: Some(Offset(offset)),
        ..held(fence, member)
    }
}

fn starting(fence: u64, member: u64, offset: u64) -> GroupRecord {
    GroupRecord {
        start: Some(StartAt::Offset(Offset(offset))),
        ..held(fence, member)
    }
}

fn stale(epoch: u64, fence: u64) -> Refusal {
    Refusal::StaleEpoch {
        epoch: Epoch(epoch),
        fence: Epoch(fence),
    }
}

fn not_holder(epoch: u64, here: u64, asked: EpochHolder) -> Refusal {
    Refusal::NotHolder {
        epoch: Epoch(epoch),
        here: Some(holder(here)),
        asked,
    }
}

#[test]
fn fence_is_raised_with_its_holder_and_never_lowered() {
    let mut node = with_messages(3);
    assert_eq!(node.record(), GroupRecord::default());
    assert_eq!(node.group(fence(20, 1)), Ok(held(20, 1)));
    assert_eq!(node.group(fence(20, 1)), Ok(held(20, 1)));
    assert_eq!(node.group(fence(19, 2)), Ok(held(20, 1)));
    assert_eq!(node.group(fence(21, 2)), Ok(held(21, 2)));
}

#[test]
fn equal_epoch_of_somebody_else_takes_nothing_over() {
    let mut node = with_messages(3);
    node.group(fence(20, 1)).expect("raised");
    assert_eq!(node.group(fence(20, 2)), Ok(held(20, 1)));
    assert_eq!(
        node.group(start(20, 2, GroupStart::Latest)),
        Ok(held(20, 1))
    );
}

#[test]
fn fence_for_nobody_lets_nobody_store() {
    let mut node = with_messages(3);
    node.group(store(20, 1, 1)).expect("accepted");
    let nobody = GroupCommand::Fence {
        epoch: Epoch(21),
        holder: None,
        offset: FenceOffset::Keep,
    };
    let expected = GroupRecord {
        holder: None,
        ..stored(21, 1, 1)
    };
    assert_eq!(node.group(nobody), Ok(expected));
    for member in [0, 1] {
        let refusal = Refusal::NotHolder {
            epoch: Epoch(21),
            here: None,
            asked: holder(member),
        };
        assert_eq!(node.group(store(21, member, 2)), Err(refusal));
    }
    assert_eq!(node.record(), expected);
}

#[test]
fn store_below_the_fence_is_stale() {
    let mut node = with_messages(9);
    node.group(store(20, 1, 3)).expect("accepted");
    node.group(fence(21, 2)).expect("raised");
    assert_eq!(node.group(store(20, 1, 5)), Err(stale(20, 21)));
    assert_eq!(node.record(), stored(21, 2, 3));
}

#[test]
fn store_at_the_fence_of_another_member_or_session_is_refused() {
    let mut node = with_messages(9);
    node.group(fence(20, 1)).expect("raised");
    let refusal = not_holder(20, 1, holder(2));
    assert_eq!(node.group(store(20, 2, 5)), Err(refusal));
    let other_session = EpochHolder {
        session: SessionNumber(1),
        ..holder(1)
    };
    let command = GroupCommand::Store {
        grant: Grant {
            epoch: Epoch(20),
            holder: other_session,
        },
        offset: Offset(5),
    };
    let refusal = not_holder(20, 1, other_session);
    assert_eq!(node.group(command), Err(refusal));
    assert_eq!(node.record(), held(20, 1));
}

#[test]
fn store_above_the_fence_raises_it() {
    let mut node = with_messages(9);
    node.group(fence(20, 1)).expect("raised");
    assert_eq!(node.group(store(25, 2, 5)), Ok(stored(25, 2, 5)));
    assert_eq!(node.group(store(20, 1, 6)), Err(stale(20, 25)));
}

#[test]
fn lower_or_repeated_store_is_answered_with_what_is_stored() {
    let mut node = with_messages(9);
    node.group(store(20, 1, 5)).expect("accepted");
    for offset in [5, 4, 0] {
        assert_eq!(node.group(store(20, 1, offset)), Ok(stored(20, 1, 5)));
    }
    assert_eq!(node.group(store(21, 2, 4)), Ok(stored(21, 2, 5)));
    assert_eq!(node.group(store(21, 2, 6)), Ok(stored(21, 2, 6)));
}

#[test]
fn store_beyond_the_end_is_refused_and_its_fence_stays_raised() {
    let mut node = with_messages(3);
    node.group(store(20, 1, 2)).expect("accepted");
    let out_of_range = |offset| {
        Err(Refusal::OffsetOutOfRange {
            offset: Offset(offset),
            start: Offset(0),
            end: Offset(3),
        })
    };
    for offset in [3, u64::MAX] {
        assert_eq!(node.group(store(20, 1, offset)), out_of_range(offset));
    }
    assert_eq!(node.group(store(21, 2, 3)), out_of_range(3));
    assert_eq!(node.record(), stored(21, 2, 2));
    node.send("x");
    assert_eq!(node.group(store(21, 2, 3)), Ok(stored(21, 2, 3)));
}

#[test]
fn release_stores_and_fences_at_once() {
    let mut node = with_messages(9);
    node.group(fence(20, 1)).expect("raised");
    let released = node.group(release((20, 1), Some(6), (25, 2)));
    assert_eq!(released, Ok(stored(25, 2, 6)));
    assert_eq!(node.group(store(20, 1, 7)), Err(stale(20, 25)));
    let released = node.group(release((25, 2), None, (30, 1)));
    assert_eq!(released, Ok(stored(30, 1, 6)));
}

#[test]
fn release_whose_store_is_refused_fences_nothing() {
    let mut node = with_messages(9);
    node.group(store(20, 1, 2)).expect("accepted");
    let commands = [
        (release((19, 1), Some(6), (25, 2)), stale(19, 20)),
        (release((19, 1), None, (25, 2)), stale(19, 20)),
        (
            release((20, 3), Some(6), (25, 2)),
            not_holder(20, 1, holder(3)),
        ),
        (
            release((20, 3), None, (25, 2)),
            not_holder(20, 1, holder(3)),
        ),
        (
            release((20, 1), Some(9), (25, 2)),
            Refusal::OffsetOutOfRange {
                offset: Offset(9),
                start: Offset(0),
                end: Offset(9),
            },
        ),
    ];
    for (command, refusal) in commands {
        assert_eq!(node.group(command), Err(refusal));
        assert_eq!(node.record(), stored(20, 1, 2));
    }
}

#[test]
fn release_towards_an_old_plan_is_a_store() {
    let mut node = with_messages(9);
    let released = node.group(release((20, 1), Some(6), (20, 2)));
    assert_eq!(released, Ok(stored(20, 1, 6)));
}

#[test]
fn reset_sets_the_offset_backwards_once() {
    let mut node = with_messages(9);
    node.group(store(20, 1, 8)).expect("accepted");
    let to_three = reset(25, 1, ResetTarget::Offset(Offset(3)));
    assert_eq!(node.group(to_three), Ok(stored(25, 1, 3)));
    node.group(store(25, 1, 5)).expect("accepted");
    assert_eq!(node.group(to_three), Ok(stored(25, 1, 5)));
    let late = reset(24, 1, ResetTarget::Nothing);
    assert_eq!(node.group(late), Ok(stored(25, 1, 5)));
    let nothing = reset(26, 1, ResetTarget::Nothing);
    assert_eq!(node.group(nothing), Ok(held(26, 1)));
}

#[test]
fn reset_to_a_policy_is_resolved_when_it_is_applied() {
    let mut node = with_messages(9);
    node.truncate(2);
    node.group(store(20, 1, 8)).expect("accepted");
    let targets = [
        (ResetTarget::Earliest, 2),
        (ResetTarget::Latest, 9),
        (ResetTarget::Timestamp(Timestamp(u64::MIN)), 2),
        (ResetTarget::Timestamp(Timestamp(node.time)), 9),
    ];
    for (epoch, (target, offset)) in (21..).zip(targets) {
        node.group(store(epoch - 1, 1, 8)).expect("accepted");
        let record = node.group(reset(epoch, 1, target));
        assert_eq!(record, Ok(starting(epoch, 1, offset)));
    }
}

#[test]
fn reset_beyond_the_end_is_at_the_end_and_in_an_empty_partition_at_its_first_message() {
    let far = ResetTarget::Offset(Offset(100));
    let mut node = with_messages(9);
    assert_eq!(node.group(reset(20, 1, far)), Ok(stored(20, 1, 8)));
    let mut empty = with_messages(0);
    assert_eq!(empty.group(reset(20, 1, far)), Ok(starting(20, 1, 0)));
}

#[test]
fn start_is_resolved_once_and_a_store_ends_it() {
    let mut node = with_messages(4);
    let latest = start(20, 1, GroupStart::Latest);
    assert_eq!(node.group(latest), Ok(starting(20, 1, 4)));
    node.send("x");
    assert_eq!(node.group(latest), Ok(starting(20, 1, 4)));
    let next_grant = start(25, 2, GroupStart::Earliest);
    assert_eq!(node.group(next_grant), Ok(starting(25, 2, 4)));
    // Something before the start is stored all the same: it is what was processed.
    assert_eq!(node.group(store(25, 2, 1)), Ok(stored(25, 2, 1)));
    let third = start(30, 1, GroupStart::Latest);
    assert_eq!(node.group(third), Ok(stored(30, 1, 1)));
}

#[test]
fn start_behind_the_end_of_an_empty_partition_is_kept_and_is_not_0_stored() {
    let mut node = with_messages(0);
    let record = node.group(start(20, 1, GroupStart::Latest)).expect("kept");
    assert_eq!(record, starting(20, 1, 0));
    assert_eq!(record.stored, None);
    assert_eq!(record.next(), Some(StartAt::Offset(Offset(0))));
    node.send("a");
    node.send("b");
    let right = PollRight::Holds(record);
    assert_eq!(node.poll_right(grant(20, 1)), Ok(right));
    let record = node.group(store(20, 1, 0)).expect("accepted");
    assert_eq!(record.stored, Some(Offset(0)));
    assert_eq!(record.next(), Some(StartAt::Offset(Offset(1))));
}

#[test]
fn late_fence_does_not_resolve_what_a_reset_left_open() {
    let mut node = with_messages(4);
    node.group(reset(25, 2, ResetTarget::Nothing))
        .expect("raised");
    let late = start(20, 1, GroupStart::Latest);
    assert_eq!(node.group(late), Ok(held(25, 2)));
    let due = start(25, 2, GroupStart::Earliest);
    assert_eq!(node.group(due), Ok(starting(25, 2, 0)));
}

#[test]
fn start_by_time_begins_with_the_first_message_of_that_time() {
    let config = DataConfig {
        segment_size: 1_000,
        ..config()
    };
    let mut node = Node::with_partition(config);
    let times: Vec<_> = (0..9)
        .map(|_| {
            node.append(batch_of_size(200, 0));
            node.time
        })
        .collect();
    assert!((3..6).contains(&node.group.segments(key(0)).len()));
    for (offset, time) in (0..).zip(&times) {
        for (time, group) in [(time - 5, 100 + offset), (*time, 200 + offset)] {
            let group = ConsumerGroupId(group);
            let policy = GroupStart::Timestamp(Timestamp(time));
            let result = node.apply_one(request(group, 7, start(20, 1, policy)));
            let DataResult::Record { record, .. } = result else {
                panic!("{result:?}");
            };
            let next = record.next().expect("resolved");
            let answer = node.poll(next.strategy()).expect("served");
            assert_eq!(answer.from, Offset(offset));
            let shown = node.group.group_next(key(0), FIRST, group);
            let shown = shown.expect("here").expect("resolved");
            assert!(shown <= Offset(offset));
            assert!(shown.0 + 3 > offset);
        }
    }
}

#[test]
fn start_at_a_time_to_come_skips_what_is_appended_before() {
    let mut node = with_messages(2);
    let time = Timestamp(node.time + 25);
    let record = node.group(start(20, 1, GroupStart::Timestamp(time)));
    let next = record.expect("raised").next().expect("resolved");
    assert_eq!(next, StartAt::Time(time));
    let shown = |node: &Node| node.group.group_next(key(0), FIRST, GROUP);
    assert_eq!(shown(&node), Ok(Some(Offset(2))));
    while node.time < time.0 {
        node.send("x");
    }
    let last = node.group.end(key(0)).map(|end| Offset(end.0 - 1));
    let answer = node.poll(next.strategy()).expect("served");
    assert_eq!(Some(answer.from), last);
}

#[test]
fn time_that_is_over_is_an_offset_although_nothing_is_there() {
    let mut node = with_messages(0);
    let policy = GroupStart::Timestamp(Timestamp(1));
    assert_eq!(node.group(start(20, 1, policy)), Ok(starting(20, 1, 0)));
}

#[test]
fn next_is_never_shown_before_the_partitions_start() {
    let mut node = with_messages(9);
    let shown = |node: &Node| node.group.group_next(key(0), FIRST, GROUP);
    assert_eq!(shown(&node), Ok(None));
    node.group(store(20, 1, 2)).expect("accepted");
    assert_eq!(shown(&node), Ok(Some(Offset(3))));
    node.truncate(5);
    assert_eq!(shown(&node), Ok(Some(Offset(5))));
    assert_eq!(node.record(), stored(20, 1, 2));
}

#[test]
fn poll_needs_the_fence_and_its_holder() {
    let mut node = with_messages(3);
    assert_eq!(node.poll_right(grant(20, 1)), Ok(PollRight::FenceFirst));
    let record = node.group(start(20, 1, GroupStart::Earliest));
    let record = record.expect("raised");
    let right = node.poll_right(grant(20, 1));
    assert_eq!(right, Ok(PollRight::Holds(record)));
    assert_eq!(node.poll_right(grant(19, 1)), Err(stale(19, 20)));
    let refusal = not_holder(20, 1, holder(2));
    assert_eq!(node.poll_right(grant(20, 2)), Err(refusal));
    assert_eq!(node.poll_right(grant(21, 2)), Ok(PollRight::FenceFirst));
}

#[test]
fn groups_and_partitions_do_not_touch_each_other_and_are_listed_in_order() {
    let mut node = with_messages(9);
    for group in [5, 3, 4] {
        let command = store(20 + group, 1, group);
        node.apply_one(request(ConsumerGroupId(group), 7, command));
    }
    node.store("5", 8);
    node.create(1);
    let listed: Vec<_> = node.group.group_records(key(0)).collect();
    let expected = [3, 4, 5].map(|group| (ConsumerGroupId(group), stored(20 + group, 1, group)));
    assert_eq!(listed, expected);
    assert_eq!(node.group.group_records(key(1)).count(), 0);
    assert_eq!(node.group.group_records(key(2)).count(), 0);
    assert_eq!(node.group.stored(key(0), "5"), Some(Offset(8)));
}

#[test]
fn deleted_group_is_forgotten_and_a_late_request_does_not_revive_it() {
    let mut node = with_messages(9);
    node.group(store(20, 1, 5)).expect("accepted");
    let other = ConsumerGroupId(10);
    node.apply_one(request(other, 7, store(20, 1, 5)));
    let dropped = DataResult::ConsumerGroupDropped { group: GROUP };
    assert_eq!(node.drop_group(GROUP, 30), dropped);
    assert_eq!(node.drop_group(GROUP, 28), dropped);
    assert_eq!(node.group.dropped(), Op(30));
    for command in [
        store(40, 1, 5),
        start(40, 1, GroupStart::Latest),
        release((40, 1), None, (41, 2)),
    ] {
        let result = node.apply_one(request(GROUP, 29, command));
        let refusal = Refusal::GroupGone {
            admitted: Op(29),
            dropped: Op(30),
        };
        assert_eq!(result, DataResult::Failed(refusal));
        assert_eq!(refusal.code(), ErrorCode::Retry);
    }
    assert_eq!(node.record(), GroupRecord::default());
    // What has a record goes on, whatever it was admitted with; what is new needs newer metadata.
    let result = node.apply_one(request(other, 7, store(20, 1, 6)));
    let record = stored(20, 1, 6);
    assert_eq!(
        result,
        DataResult::Record {
            group: other,
            record
        }
    );
    let result = node.apply_one(request(ConsumerGroupId(11), 30, fence(31, 1)));
    assert!(matches!(result, DataResult::Record { .. }));
}

#[test]
fn dropped_partition_keeps_late_requests_away_too() {
    let mut node = with_messages(1);
    node.create(1);
    node.apply_one(DataRequest::DropPartition {
        key: key(1),
        incarnation: FIRST,
        dropped: Op(30),
    });
    let result = node.apply_one(request(GROUP, 29, fence(40, 1)));
    assert!(matches!(
        result,
        DataResult::Failed(Refusal::GroupGone { .. })
    ));
}

#[test]
fn new_incarnation_knows_nothing_of_the_groups_of_the_old_one() {
    let mut node = with_messages(9);
    node.group(store(20, 1, 5)).expect("accepted");
    let purged = Incarnation(30);
    node.apply_one(DataRequest::CreatePartition {
        key: key(0),
        incarnation: purged,
        admitted: Op(30),
    });
    let record = node.group.group_record(key(0), purged, GROUP);
    assert_eq!(record, Ok(GroupRecord::default()));
    // What somebody remembers of the old one never names another message.
    let place = node.group.position(key(0), purged, "").expect("it is here");
    assert_eq!((place.start, place.end), (Offset(9), Offset(9)));
    let absent = Absent::OtherIncarnation {
        here: purged,
        named: FIRST,
    };
    assert_eq!(node.group(store(20, 1, 5)), Err(absent.into()));
    assert_eq!(node.group(fence(40, 1)), Err(absent.into()));
    assert_eq!(node.poll_right(grant(20, 1)), Err(absent.into()));
    assert_eq!(node.group.group_records(key(0)).count(), 0);
}

#[test]
fn refusals_name_what_is_wrong() {
    let texts = [
        (
            stale(19, 20),
            ErrorCode::StaleEpoch,
            "epoch 19 is stale: the consumer group's fence in the partition is at 20",
        ),
        (
            not_holder(20, 1, holder(2)),
            ErrorCode::PartitionNotOwned,
            "epoch 20 of the partition belongs to member 1 of session 1001, not to member 2 of session 1002",
        ),
        (
            Refusal::NotHolder {
                epoch: Epoch(20),
                here: None,
                asked: holder(2),
            },
            ErrorCode::PartitionNotOwned,
            "epoch 20 of the partition belongs to nobody, not to member 2 of session 1002",
        ),
    ];
    for (refusal, code, text) in texts {
        let failure = refusal.failure();
        assert_eq!(
            (failure.code, failure.text.to_string()),
            (code, text.into())
        );
    }
}

#[test]
fn requests_with_no_epoch_or_no_member_leave_nothing_behind() {
    let mut node = with_messages(3);
    let nobody = GroupCommand::Fence {
        epoch: Epoch(0),
        holder: None,
        offset: FenceOffset::Start(GroupStart::Latest),
    };
    assert_eq!(node.group(nobody), Ok(GroupRecord::default()));
    for command in [store(0, 1, 1), store(0, 0, 1), store(20, 0, 1)] {
        let refused = node.group(command);
        assert!(matches!(refused, Err(Refusal::NotHolder { .. })));
    }
    assert_eq!(node.group.group_records(key(0)).count(), 0);
    let nobody = GroupRecord {
        holder: None,
        ..held(25, 1)
    };
    let released = node.group(release((20, 1), None, (25, 0)));
    assert_eq!(released, Ok(nobody));
    let snapshot = node.group.snapshot();
    assert!(DataGroup::restore(config(), snapshot).is_ok());
}

#[test]
fn records_survive_snapshot_and_replay() {
    let mut node = with_messages(4);
    node.group(store(20, 1, 2)).expect("accepted");
    let time = GroupStart::Timestamp(Timestamp(node.time + 1_000));
    node.apply_one(request(ConsumerGroupId(10), 7, start(21, 2, time)));
    node.apply_one(request(
        ConsumerGroupId(11),
        7,
        start(22, 3, GroupStart::Latest),
    ));
    let snapshot = node.checkpoint();
    let body = encode_requests(&[request(GROUP, 7, release((20, 1), Some(3), (25, 2)))]);
    let journal = [(node.op + 1, node.time + 10, body.clone())];
    (node.op, node.time) = (node.op + 1, node.time + 10);
    node.apply_body(&body);
    let (digest, records) = (
        node.group.digest(),
        node.group.group_records(key(0)).collect::<Vec<_>>(),
    );
    assert_eq!(records.len(), 3);
    let encoded = rmp_serde::to_vec(&snapshot).expect("in memory");
    let snapshot = rmp_serde::from_slice(&encoded).expect("written here");
    node.restart(&snapshot, &journal);
    assert_eq!(node.group.digest(), digest);
    let restored: Vec<_> = node.group.group_records(key(0)).collect();
    assert_eq!(restored, records);
}

#[test]
fn digest_tells_every_field_of_a_record() {
    let digest = |command| {
        let mut node = with_messages(4);
        node.apply_one(request(GROUP, 7, command));
        node.group.digest()
    };
    let other_session = GroupCommand::Fence {
        epoch: Epoch(20),
        holder: Some(EpochHolder {
            session: SessionNumber(1),
            ..holder(1)
        }),
        offset: FenceOffset::Keep,
    };
    let time = GroupStart::Timestamp(Timestamp(5_000));
    let commands = [
        fence(20, 1),
        fence(21, 1),
        fence(20, 2),
        other_session,
        store(20, 1, 0),
        store(20, 1, 1),
        start(20, 1, GroupStart::Earliest),
        start(20, 1, GroupStart::Latest),
        start(20, 1, time),
    ];
    let digests: std::collections::BTreeSet<_> = commands.map(digest).into_iter().collect();
    assert_eq!(digests.len(), commands.len());
    assert_eq!(digest(fence(20, 1)), digest(fence(20, 1)));
}

/// Every epoch has one holder, as the metadata grants them.
fn command() -> impl Strategy<Value = GroupCommand> {
    let member = |epoch: u64| epoch % 3 + 1;
    let epoch = 1..12_u64;
    let target = prop_oneof![
        Just(ResetTarget::Nothing),
        Just(ResetTarget::Earliest),
        Just(ResetTarget::Latest),
        (0..12_u64).prop_map(|offset| ResetTarget::Offset(Offset(offset))),
    ];
    let offset = prop_oneof![
        2 => Just(FenceOffset::Keep),
        2 => Just(FenceOffset::Start(GroupStart::Latest)),
        1 => target.prop_map(FenceOffset::Reset),
    ];
    prop_oneof![
        2 => (epoch.clone(), offset)
            .prop_map(move |(epoch, offset)| fence_with(epoch, member(epoch), offset)),
        4 => (epoch.clone(), 0..12_u64)
            .prop_map(move |(epoch, offset)| store(epoch, member(epoch), offset)),
        1 => (epoch.clone(), proptest::option::of(0..12_u64), epoch).prop_map(
            move |(from, offset, to)| release((from, member(from)), offset, (to, member(to)))
        ),
    ]
}

proptest! {
    // Late, repeated and reordered requests: the order is whatever comes.
    #[test]
    fn fences_only_rise_and_offsets_only_fall_by_a_reset(
        commands in proptest::collection::vec(command(), 1..60),
    ) {
        let mut node = with_messages(8);
        let mut others = with_messages(8);
        for command in commands.iter().chain(&commands) {
            let before = node.record();
            let result = node.group(*command);
            let after = node.record();
            prop_assert_eq!(others.group(*command), result);
            prop_assert_eq!(others.group.digest(), node.group.digest());
            prop_assert!(after.fence >= before.fence);
            if after.fence == before.fence {
                prop_assert_eq!(after.holder, before.holder);
            } else {
                prop_assert!(after.holder.is_some());
            }
            let is_reset = matches!(
                command,
                GroupCommand::Fence { offset: FenceOffset::Reset(_), .. }
            );
            if !is_reset {
                prop_assert!(after.stored >= before.stored);
            }
            // A start is never lost but for a store or a reset.
            if before.next().is_some() && !is_reset {
                prop_assert!(after.next().is_some());
            }
            match command {
                GroupCommand::Store { grant, .. } | GroupCommand::Release { grant, .. } => {
                    prop_assert_eq!(result == Err(stale(grant.epoch.0, before.fence.0)),
                        grant.epoch < before.fence);
                    if grant.epoch < before.fence {
                        prop_assert_eq!(after, before);
                    }
                    if let Ok(answer) = result {
                        prop_assert!(before.fence <= grant.epoch);
                        prop_assert!(answer.fence >= grant.epoch);
                    }
                }
                GroupCommand::Fence { epoch, .. } => {
                    prop_assert!(after.fence >= *epoch);
                    if *epoch < before.fence {
                        prop_assert_eq!(after, before);
                    }
                }
            }
        }
    }
}
