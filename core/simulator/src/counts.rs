//! What happened in a run, or in many, counted.

macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// How often things happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Counts {
            /// Nothing has happened yet.
            pub const ZERO: Self = Self { $($name: 0,)* };

            /// Every count with its name, in words.
            #[must_use]
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!($($doc),*).trim_ascii_start().trim_end_matches('.'), self.$name),)*]
            }

            /// Adds those of another run.
            pub const fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Power failures.
    power_failures,
    /// Processes killed.
    kills,
    /// Stops, as told.
    stops,
    /// Crashes while a node was starting.
    crashes_at_start,
    /// Crashes while a checkpoint was being taken.
    crashes_in_checkpoint,
    /// Starts that had something to recover.
    recoveries,
    /// Groups recovered from a snapshot.
    snapshots_used,
    /// Frames found torn and cut.
    frames_torn,
    /// Bits flipped by rot.
    bits_rotten,
    /// Frames near the end of a journal damaged by rot.
    ends_rotten,
    /// Snapshots damaged or gone.
    snapshots_rotten,
    /// Newest checkpoints that were lost, with a journal that leads on from an older one.
    checkpoints_bridged,
    /// Newest checkpoints that were lost, and no journal leads there.
    checkpoints_lost,
    /// Starts that could not read a sector, or read another one.
    starts_misread,
    /// Nodes cut off with a damaged frame that only the others have.
    nodes_stranded,
    /// Disks that were slow for a while.
    slow_disks,
    /// Writes that failed, and with them a process.
    writes_failed,
    /// Flushes that failed, and with them a process.
    flushes_failed,
    /// Reads that failed.
    reads_failed,
    /// Reads that gave the bytes of another place.
    reads_misdirected,
    /// Writes that landed in another place.
    writes_misdirected,
    /// Disks that were full for a while.
    disks_full,
    /// Writes that found no space, and were tried again.
    writes_without_space,
    /// Times that not even the journal had room.
    times_without_room,
    /// Disks lost with all that was on them.
    disks_lost,
    /// Nodes that lost both copies of a superblock record.
    records_lost,
    /// Logins refused by nodes that stood aside.
    logins_out_of_service,
    /// Replicas taken back that had lost their disks.
    replicas_taken_back,
    /// Barriers of those in the journals of groups.
    barriers,
    /// Journals of groups found damaged.
    journals_damaged,
    /// Prepares repaired by a copy of another node.
    prepares_repaired,
    /// Ops dropped on nacks.
    ops_truncated,
    /// Votes of all nodes that left an op undecided.
    ops_undecided,
    /// Starts refused because of rot.
    starts_refused,
    /// Groups out of service because of rot.
    groups_out_of_service,
    /// Damaged partitions found.
    partitions_damaged,
    /// Damaged segments that another node had.
    segments_mended,
    /// Journal files recycled.
    files_recycled,
    /// Journal files made.
    files_made,
    /// Frames of the journal.
    frames,
    /// Checkpoints.
    checkpoints,
    /// Ops of the metadata group.
    metadata_ops,
    /// Ops of data groups.
    data_ops,
    /// Ops applied again after a restart.
    ops_replayed,
    /// Digests compared.
    digests_compared,
    /// Batches appended.
    batches_appended,
    /// Batches that were there already.
    batches_repeated,
    /// Messages appended.
    messages_appended,
    /// Messages served and compared.
    messages_served,
    /// Ranges of segments read.
    segment_reads,
    /// Polls answered.
    polls,
    /// Long polls ended by a message.
    long_polls_woken,
    /// Long polls that waited in vain.
    long_polls_in_vain,
    /// Offsets stored.
    offsets_stored,
    /// Stores that were behind what was stored.
    stores_behind,
    /// Stores refused as out of range.
    stores_out_of_range,
    /// Metadata commands executed.
    commands_executed,
    /// Metadata commands repeated and answered from the client table.
    commands_repeated,
    /// Partitions dropped.
    partitions_dropped,
    /// Partitions purged that had messages.
    partitions_purged,
    /// Sessions registered.
    sessions_registered,
    /// Sessions that expired.
    sessions_expired,
    /// Sessions logged out.
    sessions_logged_out,
    /// Connections attached to a session.
    connections_attached,
    /// Connections cut.
    connections_cut,
    /// Messages between nodes.
    peer_messages,
    /// Bytes of messages between nodes.
    peer_bytes,
    /// Frames between nodes that arrived as other bytes, and ended their link.
    peer_frames_garbled,
    /// Messages between nodes that were lost.
    peer_messages_lost,
    /// Times that links between nodes were cut.
    peer_cuts,
    /// Times that a node stood still.
    pauses,
    /// Views entered after the first.
    views_entered,
    /// Prepares read from a journal for another node.
    prepares_read,
    /// Checkpoints wanted of other nodes.
    checkpoints_wanted,
    /// Checkpoints of other nodes installed.
    checkpoints_installed,
    /// Parts of segments and snapshots sent to other nodes.
    parts_sent,
    /// Journals whose older part is in the checkpoints of a majority.
    recyclings_checked,
    /// Connections paused by a shard.
    connections_paused,
    /// Bad frames sent.
    frames_garbled,
    /// Turns after which requests waited for a metadata op.
    turns_with_parked,
    /// Messages delivered to consumers.
    messages_consumed,
    /// Consumer groups created.
    groups_created,
    /// Consumer groups deleted.
    groups_deleted,
    /// Offsets of groups reset.
    group_resets,
    /// Members that joined a group.
    members_joined,
    /// Members that are gone.
    members_gone,
    /// Members taken over by another session.
    members_taken_over,
    /// Revocations ended by a release.
    moves_released,
    /// Revocations ended because all was stored.
    moves_drained,
    /// Revocations ended by their deadline.
    moves_timed_out,
    /// Revocations ended by the fence of an earlier plan.
    moves_fenced_before,
    /// Fences of plans that had changed meanwhile.
    moves_fenced_late,
    /// Revocations cancelled.
    moves_cancelled,
    /// Partitions given on whose owner was gone.
    moves_from_nobody,
    /// Hand-overs whose first message was the next one.
    hand_overs_seamless,
    /// Sections of polls that members were answered.
    group_polls,
    /// Sections of polls that members were refused.
    group_polls_refused,
    /// Answers with messages to members.
    group_messages_served,
    /// Stores of members accepted.
    group_stores,
    /// Stores of members refused.
    group_stores_refused,
    /// Releases accepted.
    group_releases,
    /// Stale stores that a data group refused.
    stale_stores_refused,
    /// Claims that were held back until they could be judged.
    claims_parked,
    /// Messages that members processed.
    messages_processed,
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn counts_have_names_and_add_up() {
        let mut sum = Counts {
            kills: 2,
            ..Counts::default()
        };
        sum.add(&Counts {
            kills: 3,
            polls: 1,
            ..Counts::default()
        });
        let all = sum.all();
        assert!(all.contains(&("Processes killed", 5)), "{all:?}");
        assert!(all.contains(&("Polls answered", 1)));
    }
}
