//! Answers about stored offsets.

use wire::{
    Consumer, DeleteConsumerOffset, ErrorCode, GetConsumerOffset, Offset, Offsets, OffsetsDeleted,
    OffsetsStored, PartitionKey, StoreConsumerOffset,
};

use super::{
    groups,
    messages::{no_internal_error, same_count},
    wire::{Answered, Wrong},
};
use crate::run::Run;

pub(super) fn check_stored(
    run: &mut Run,
    answered: &Answered<'_>,
    store: &StoreConsumerOffset,
    stored: &OffsetsStored,
) -> Result<(), Wrong> {
    same_count(store.sections.len(), stored.sections.len())?;
    let consumer = match &store.consumer {
        Consumer::Single(consumer) => consumer,
        Consumer::Group(group) => {
            return groups::check_stored(run, answered, (store, group), stored);
        }
    };
    for (section, result) in store.sections.iter().zip(&stored.sections) {
        let names = (&store.stream, &store.topic);
        let Some(key) = answered.key(names, section.partition) else {
            continue;
        };
        match (&result.status, result.stored) {
            (Ok(()), Some(told)) => {
                if told < section.offset {
                    return Err(format!("{told} is stored, {} was asked", section.offset));
                }
                check_value(answered, key, consumer, Some(told))?;
            }
            (Ok(()), None) => return Err("stored, and the offset not told".into()),
            (Err(failure), _) if failure.code == ErrorCode::OffsetOutOfRange => {
                let end = |offset: Offset, known: u64| match offset.0 >= known {
                    true => Ok(()),
                    false => Err(format!("{failure}; the end was {known}")),
                };
                answered.any_incarnation(key, |model| {
                    end(section.offset, model.end_at(answered.window.from))
                })?;
            }
            (Err(failure), _) => no_internal_error(failure)?,
        }
    }
    Ok(())
}

pub(super) fn check_told(
    answered: &Answered<'_>,
    get: &GetConsumerOffset,
    told: &Offsets,
) -> Result<(), Wrong> {
    same_count(get.partitions.len(), told.sections.len())?;
    let consumer = match &get.consumer {
        Consumer::Single(consumer) => consumer,
        Consumer::Group(group) => {
            return groups::check_offsets_told(answered, (get, group), told);
        }
    };
    for (partition, result) in get.partitions.iter().zip(&told.sections) {
        let Some(key) = answered.key((&get.stream, &get.topic), *partition) else {
            continue;
        };
        if let Err(failure) = &result.status {
            no_internal_error(failure)?;
            continue;
        }
        check_value(answered, key, consumer, result.stored)?;
        check_end(answered, key, result.start, result.end)?;
    }
    Ok(())
}

pub(super) fn check_deleted(
    answered: &Answered<'_>,
    delete: &DeleteConsumerOffset,
    deleted: &OffsetsDeleted,
) -> Result<(), Wrong> {
    same_count(delete.partitions.len(), deleted.sections.len())?;
    let Consumer::Single(consumer) = &delete.consumer else {
        return Err("an offset of a consumer group is deleted".into());
    };
    for (partition, result) in delete.partitions.iter().zip(&deleted.sections) {
        let Some(key) = answered.key((&delete.stream, &delete.topic), *partition) else {
            continue;
        };
        match &result.status {
            Ok(()) => check_value(answered, key, consumer, None)?,
            Err(failure) if failure.code == ErrorCode::OffsetNotStored => {
                check_value(answered, key, consumer, None)?;
            }
            Err(failure) => no_internal_error(failure)?,
        }
    }
    Ok(())
}

/// Whether a consumer had this stored at some time between request and answer.
fn check_value(
    answered: &Answered<'_>,
    key: PartitionKey,
    consumer: &str,
    told: Option<Offset>,
) -> Result<(), Wrong> {
    let told = told.map(|offset| offset.0);
    answered.any_incarnation(key, |model| {
        let values = model.stored_in(consumer, answered.window);
        match values.contains(&told) {
            true => Ok(()),
            false => Err(format!(
                "{told:?} is told for {consumer}; expected {values:?}"
            )),
        }
    })
}

/// Whether the partition had this end at some time between request and answer.
pub(super) fn check_end(
    answered: &Answered<'_>,
    key: PartitionKey,
    start: Offset,
    end: Offset,
) -> Result<(), Wrong> {
    let window = answered.window;
    answered.any_incarnation(key, |model| {
        let (low, high) = (model.end_at(window.from), model.end_at(window.to));
        match model.start_in(window).contains(&start.0) && (low..=high).contains(&end.0) {
            true => Ok(()),
            false => Err(format!(
                "offsets {start} to {end}; the end was {low} to {high}"
            )),
        }
    })
}
