//! Stores, releases and questions of consumer groups, on the shard that hosts their partitions.

use alloc::vec::Vec;

use catalog::{GroupKey, TopicView};
use wire::{ErrorCode, Failure};

use crate::{
    Answer, Shard,
    fencing::{self, Judged},
    work::{GroupWrite, OffsetsOf, Origin, PartitionOffsets, Work},
};

impl Shard {
    /// Hands to the reconciler what has happened to partitions of consumer groups.
    pub(crate) fn note_touched(&mut self) -> bool {
        let touched = core::mem::take(&mut self.desk.touched);
        let begun = core::mem::take(&mut self.desk.begun);
        let any = !touched.is_empty() || !begun.is_empty();
        for (key, group) in touched {
            let (stream, topic) = (key.stream, key.topic);
            let group = GroupKey {
                stream,
                topic,
                group,
            };
            self.hand_overs.touch((group, key.partition));
        }
        for key in begun {
            // Whoever waits for messages of an older incarnation waits in vain.
            self.polls.on_reassigned(key);
            let (stream, topic) = (key.stream, key.topic);
            let groups = self.projection.topic(stream, topic).into_iter();
            for group in groups.flat_map(TopicView::groups) {
                let group = GroupKey {
                    stream,
                    topic,
                    group: group.id(),
                };
                self.hand_overs.touch((group, key.partition));
            }
        }
        any
    }

    /// Judges stores and releases, and replicates those that are admitted.
    pub(crate) fn write_for_group(&mut self, origin: Origin, write: GroupWrite) {
        let mut requests = Vec::new();
        let mut refused = Vec::new();
        for section in &write.sections {
            let place = (write.reader.key, section.address.key.partition);
            match fencing::write(&self.projection, &write.reader, section) {
                Ok(request) => {
                    if section.planned.is_some() {
                        self.hand_overs.on_release(place);
                    }
                    requests.push((section.index, request));
                }
                Err(Judged::Waits(failure)) => return self.wait_for_group(origin, write, failure),
                Err(Judged::Refused(failure)) => refused.push((section.index, Err(failure))),
                Err(Judged::Granted(_)) => unreachable!("what is granted is no error"),
            }
        }
        self.counters.group_stores_refused += refused.len() as u64;
        match self.data.get_mut(&write.group) {
            None => self.refuse_work(origin, Work::GroupWrite(write)),
            Some(host) => host.write_rest(&mut self.desk, origin, requests, refused),
        }
    }

    fn wait_for_group(&mut self, origin: Origin, write: GroupWrite, failure: Failure) {
        self.parked_count += 1;
        let until = self.desk.now.after(self.config.park_timeout);
        self.group_waits.insert(
            (write.reader.key, self.parked_count),
            (until, origin, write, failure),
        );
    }

    /// Judges again what waited for a change of the group.
    pub(crate) fn unpark_group(&mut self, key: GroupKey) {
        let range = (key, 0)..=(key, u64::MAX);
        let waiting: Vec<(GroupKey, u64)> =
            self.group_waits.range(range).map(|(key, _)| *key).collect();
        for entry in waiting {
            if let Some((_, origin, write, _)) = self.group_waits.remove(&entry) {
                self.work.push_back((origin, Work::GroupWrite(write)));
            }
        }
    }

    pub(crate) fn expire_group_waits(&mut self) {
        let now = self.desk.now.monotonic;
        let waiting = core::mem::take(&mut self.group_waits);
        for (key, (until, origin, write, failure)) in waiting {
            if until > now {
                self.group_waits
                    .insert(key, (until, origin, write, failure));
            } else {
                let refused = Work::GroupWrite(write).refused(&failure);
                self.desk.answer(origin, Answer::without_group(refused));
            }
        }
    }

    pub(crate) fn offsets(
        &self,
        address: &crate::PartitionAddress,
        consumer: Option<&OffsetsOf>,
    ) -> Result<PartitionOffsets, Failure> {
        let Some(host) = self.data.get(&address.group) else {
            let text = "the shard does not host the consensus group";
            return Err(Failure::new(ErrorCode::Internal, text));
        };
        if !host.member.serves() {
            return Err(host.member.refusal(host.member.why_not_serving()));
        }
        let (name, group) = match consumer {
            Some(OffsetsOf::Single(name)) => (name.as_str(), None),
            Some(OffsetsOf::Group(key)) => ("", Some(key)),
            None => ("", None),
        };
        let absent = |absent| Failure::new(ErrorCode::Retry, alloc::format!("{absent}"));
        let (key, incarnation) = (address.key, address.incarnation);
        let position = host
            .state
            .position(key, incarnation, name)
            .map_err(absent)?;
        let mut offsets = PartitionOffsets {
            start: position.start,
            end: position.end,
            stored: position.stored,
            group: None,
        };
        if let Some(group) = group {
            let record = host
                .state
                .group_record(key, incarnation, group.group)
                .map_err(absent)?;
            offsets.stored = record.stored;
            offsets.group = self.standing(group, address);
        }
        Ok(offsets)
    }
}
