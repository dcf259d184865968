//! Requests about stored offsets, on the shard that they came in on: of single consumers, and of consumer
//! groups, whose members also release partitions.

use alloc::{collections::BTreeMap, vec::Vec};

use partition::DataRequest;
use wire::{
    ConsensusGroup, Consumer, DeleteConsumerOffset, Epoch, Failure, GetConsumerOffset, Offset, Op,
    ReleasePartition, ReplicaId, StoreConsumerOffset,
};

use crate::{
    Shard,
    admission::{Ask, Writes, address, group_key, group_reader, reader, section_index, single},
    pending::Gather,
    work::{
        GroupReader, GroupWrite, GroupWriteSection, OffsetsOf, PartitionAddress, Reader, Slot, Work,
    },
};

/// Partitions whose offsets are asked for.
pub(crate) struct OffsetsAsk {
    pub(crate) admitted: Op,
    pub(crate) consumer: Option<OffsetsOf>,
    /// Each with its section of the client's request.
    pub(crate) addresses: Vec<(u16, PartitionAddress)>,
}

impl Shard {
    /// The metadata op that must be applied where a request is judged: that of the names here, and for a
    /// consumer group that of its epochs, each of which is an op.
    pub(crate) fn admitted(&self, is_group: bool, epochs: impl Iterator<Item = Epoch>) -> Op {
        let applied = self.projection.applied();
        match epochs.max() {
            Some(epoch) if is_group => applied.max(Op(epoch.0)),
            Some(_) | None => applied,
        }
    }

    pub(crate) fn route_store(
        &mut self,
        ask: &Ask<'_>,
        store: StoreConsumerOffset,
    ) -> Result<(), Failure> {
        let slot = ask.slot;
        self.check_sections(store.sections.len())?;
        Self::check_distinct(store.sections.iter().map(|section| section.partition))?;
        let topic = self.projection.resolve(&store.stream, &store.topic)?;
        let reader = reader(ask, topic, store.consumer)?;
        let mut results = Vec::with_capacity(store.sections.len());
        let mut addresses = Vec::with_capacity(store.sections.len());
        for (index, section) in store.sections.iter().enumerate() {
            let status = address(topic, section.partition)
                .map(|address| addresses.push((section_index(index), address)));
            results.push(wire::StoreResult {
                partition: section.partition,
                status,
                primary: ReplicaId(0),
                stored: None,
            });
        }
        let gather = Gather::Store(results);
        match reader {
            Reader::Single(consumer) => {
                let admitted = self.projection.applied();
                let mut writes = Writes::default();
                for (index, address) in addresses {
                    let request = DataRequest::StoreOffset {
                        key: address.key,
                        incarnation: address.incarnation,
                        admitted,
                        consumer: consumer.clone(),
                        offset: store.sections[usize::from(index)].offset,
                    };
                    writes.push(address.group, usize::from(index), request);
                }
                self.dispatch_writes(slot, admitted, gather, writes);
            }
            Reader::Group(reader) => {
                let sections = addresses.into_iter().map(|(index, address)| {
                    let asked = &store.sections[usize::from(index)];
                    GroupWriteSection {
                        index,
                        address,
                        epoch: asked.epoch,
                        offset: Some(asked.offset),
                        planned: None,
                    }
                });
                let sections: Vec<GroupWriteSection> = sections.collect();
                self.dispatch_group_writes(slot, reader, gather, sections);
            }
        }
        Ok(())
    }

    pub(crate) fn route_release(
        &mut self,
        ask: &Ask<'_>,
        release: ReleasePartition,
    ) -> Result<(), Failure> {
        self.check_sections(release.sections.len())?;
        Self::check_distinct(release.sections.iter().map(|section| section.partition))?;
        let topic = self.projection.resolve(&release.stream, &release.topic)?;
        let reader = group_reader(ask, topic, &release.group)?;
        let mut results = Vec::with_capacity(release.sections.len());
        let mut sections = Vec::with_capacity(release.sections.len());
        for (index, asked) in release.sections.iter().enumerate() {
            let status = address(topic, asked.partition).map(|address| {
                sections.push(GroupWriteSection {
                    index: section_index(index),
                    address,
                    epoch: asked.epoch,
                    offset: asked.offset,
                    planned: Some(asked.planned),
                });
            });
            let result = wire::ReleaseResult {
                partition: asked.partition,
                status,
                primary: ReplicaId(0),
                stored: None,
            };
            results.push((result, asked.planned));
        }
        let gather = Gather::Release(reader.session, results);
        self.dispatch_group_writes(ask.slot, reader, gather, sections);
        Ok(())
    }

    fn dispatch_group_writes(
        &mut self,
        slot: Slot,
        reader: GroupReader,
        gather: Gather,
        sections: Vec<GroupWriteSection>,
    ) {
        let epochs = sections
            .iter()
            .map(|section| section.epoch.max(section.planned.unwrap_or(Epoch(0))));
        let admitted = self.admitted(true, epochs);
        let mut by_group: BTreeMap<ConsensusGroup, Vec<GroupWriteSection>> = BTreeMap::new();
        for section in sections {
            by_group
                .entry(section.address.group)
                .or_default()
                .push(section);
        }
        self.gather(slot, gather, by_group.len());
        for (group, sections) in by_group {
            let work = Work::GroupWrite(GroupWrite {
                group,
                admitted,
                reader,
                sections,
            });
            self.dispatch(slot, self.config.shard_of(group), work);
        }
        self.finish_if_done(slot);
    }

    pub(crate) fn route_delete(
        &mut self,
        slot: Slot,
        delete: DeleteConsumerOffset,
    ) -> Result<(), Failure> {
        self.check_sections(delete.partitions.len())?;
        Self::check_distinct(delete.partitions.iter().copied())?;
        let consumer = single(delete.consumer)?;
        let topic = self.projection.resolve(&delete.stream, &delete.topic)?;
        let admitted = self.projection.applied();
        let mut results = Vec::with_capacity(delete.partitions.len());
        let mut writes = Writes::default();
        for (index, partition) in delete.partitions.iter().copied().enumerate() {
            let status = address(topic, partition).map(
                |PartitionAddress {
                     key,
                     incarnation,
                     group,
                 }| {
                    let consumer = consumer.clone();
                    let request = DataRequest::DeleteOffset {
                        key,
                        incarnation,
                        admitted,
                        consumer,
                    };
                    writes.push(group, index, request);
                },
            );
            results.push(wire::DeleteResult {
                partition,
                status,
                primary: ReplicaId(0),
            });
        }
        self.dispatch_writes(slot, admitted, Gather::Delete(results), writes);
        Ok(())
    }

    pub(crate) fn route_offsets(
        &mut self,
        slot: Slot,
        get: GetConsumerOffset,
    ) -> Result<(), Failure> {
        self.check_sections(get.partitions.len())?;
        Self::check_distinct(get.partitions.iter().copied())?;
        let topic = self.projection.resolve(&get.stream, &get.topic)?;
        let consumer = match get.consumer {
            Consumer::Group(group) => {
                let group = topic.find_group(&group)?.id();
                OffsetsOf::Group(group_key(topic, group))
            }
            single_one @ Consumer::Single(_) => OffsetsOf::Single(single(single_one)?),
        };
        let admitted = self.projection.applied();
        let mut results = Vec::with_capacity(get.partitions.len());
        let mut addresses = Vec::with_capacity(get.partitions.len());
        for (index, partition) in get.partitions.iter().copied().enumerate() {
            let status = address(topic, partition)
                .map(|address| addresses.push((section_index(index), address)));
            results.push(wire::OffsetResult {
                partition,
                status,
                primary: ReplicaId(0),
                start: Offset(0),
                end: Offset(0),
                stored: None,
            });
        }
        let ask = OffsetsAsk {
            admitted,
            consumer: Some(consumer),
            addresses,
        };
        self.ask_offsets(slot, Gather::Offsets(results), ask);
        Ok(())
    }

    /// Asks the data groups of these partitions for their offsets.
    pub(crate) fn ask_offsets(&mut self, slot: Slot, gather: Gather, ask: OffsetsAsk) {
        let OffsetsAsk {
            admitted,
            consumer,
            addresses,
        } = ask;
        let mut by_group: BTreeMap<ConsensusGroup, Vec<(u16, PartitionAddress)>> = BTreeMap::new();
        for (index, address) in addresses {
            by_group
                .entry(address.group)
                .or_default()
                .push((index, address));
        }
        self.gather(slot, gather, by_group.len());
        for (group, partitions) in by_group {
            let shard = self.config.shard_of(group);
            self.dispatch(
                slot,
                shard,
                Work::Offsets {
                    group,
                    admitted,
                    consumer: consumer.clone(),
                    partitions,
                },
            );
        }
        self.finish_if_done(slot);
    }
}
