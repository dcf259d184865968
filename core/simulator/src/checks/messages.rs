//! Answers to sends and polls.

use wire::{
    Acknowledgement, Batch, Consumer, ErrorCode, Failure, Identifier, Op, PartitionId,
    PartitionKey, PartitionTarget, PollMessages, PollResult, PollSection, PollStrategy, Polled,
    Request, SendMessages, SendResult, SendSection, Sent, partition_of_key,
};

use super::{
    groups,
    partition::PartitionModel,
    wire::{Answered, Wrong},
};
use crate::run::Run;

/// Stream and topic that a request is about.
pub(super) fn names(request: &Request) -> Option<(Identifier, Identifier)> {
    let (stream, topic) = match request {
        Request::SendMessages(it) => (&it.stream, &it.topic),
        Request::PollMessages(it) => (&it.stream, &it.topic),
        Request::StoreConsumerOffset(it) => (&it.stream, &it.topic),
        Request::GetConsumerOffset(it) => (&it.stream, &it.topic),
        Request::DeleteConsumerOffset(it) => (&it.stream, &it.topic),
        Request::GetTopic(it) => (&it.stream, &it.topic),
        Request::ReleasePartition(it) => (&it.stream, &it.topic),
        Request::SyncConsumerGroup(it) => (&it.stream, &it.topic),
        Request::GetConsumerGroup(it) => (&it.stream, &it.topic),
        Request::GetConsumerGroups(it) => (&it.stream, &it.topic),
        _ => return None,
    };
    Some((stream.clone(), topic.clone()))
}

impl Answered<'_> {
    /// The partition that a name may have meant; `None` when it may have meant several.
    pub(super) fn key(
        &self,
        (stream, topic): (&Identifier, &Identifier),
        partition: PartitionId,
    ) -> Option<PartitionKey> {
        let seen = Op(self.asked.header.request);
        let mut meant = None;
        for catalog in self.ledger.catalogs_since(seen) {
            let Ok(topic) = catalog.topic_details(stream, topic) else {
                continue;
            };
            let key = PartitionKey {
                stream: topic.stream,
                topic: topic.id,
                partition,
            };
            if meant.is_some_and(|meant| meant != key) {
                return None;
            }
            meant = Some(key);
        }
        meant
    }

    /// Whether something holds of an incarnation that was there between request and answer.
    pub(super) fn any_incarnation(
        &self,
        key: PartitionKey,
        mut check: impl FnMut(&PartitionModel) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let mut wrong = format!("partition {key}");
        for model in self.ledger.partitions(key, self.window) {
            match check(model) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    wrong += &format!(", incarnation {}: {error}", model.incarnation);
                }
            }
        }
        Err(wrong)
    }
}

/// Sections are answered one by one, in order.
pub(super) fn same_count(asked: usize, answered: usize) -> Result<(), Wrong> {
    match asked == answered {
        true => Ok(()),
        false => Err(format!("{asked} sections were asked, {answered} answered")),
    }
}

pub(super) fn check_sent(
    answered: &Answered<'_>,
    send: &SendMessages,
    sent: &Sent,
) -> Result<(), Wrong> {
    same_count(send.sections.len(), sent.sections.len())?;
    for (section, result) in send.sections.iter().zip(&sent.sections) {
        check_sent_section(answered, send, section, result)?;
    }
    Ok(())
}

fn check_sent_section(
    answered: &Answered<'_>,
    send: &SendMessages,
    section: &SendSection,
    result: &SendResult,
) -> Result<(), Wrong> {
    if let Err(failure) = &result.status {
        return no_internal_error(failure);
    }
    let base = match (send.acknowledgement, result.base_offset) {
        // Nothing is promised.
        (Acknowledgement::None, _) => return Ok(()),
        (Acknowledgement::Quorum, Some(base)) => base,
        (Acknowledgement::Quorum, None) => return Err("appended, and the offset not told".into()),
    };
    let names = (&send.stream, &send.topic);
    let Some(key) = answered.key(names, result.partition) else {
        return Ok(());
    };
    check_target(answered, names, section, result.partition)?;
    answered.any_incarnation(key, |model| {
        let Some(stored) = model.batch_at(base.0) else {
            let holder = model.batch_of(base.0).map(|batch| (batch.base, batch.next));
            let end = model.end();
            return Err(format!(
                "no batch was committed at offset {base}; the end is {end}, {holder:?}"
            ));
        };
        if stored.checksum != section.batch.header.checksum {
            return Err(format!("another batch was committed at offset {base}"));
        }
        Ok(())
    })
}

fn check_target(
    answered: &Answered<'_>,
    (stream, topic): (&Identifier, &Identifier),
    section: &SendSection,
    partition: PartitionId,
) -> Result<(), Wrong> {
    let seen = Op(answered.asked.header.request);
    let fits = match &section.target {
        PartitionTarget::Explicit(asked) => *asked == partition,
        PartitionTarget::Balanced => true,
        PartitionTarget::Key(key) => {
            let mut catalogs = answered.ledger.catalogs_since(seen);
            catalogs.any(|catalog| {
                let details = catalog.topic_details(stream, topic);
                details.is_ok_and(|details| {
                    let count = u32::try_from(details.partitions.len()).unwrap_or(u32::MAX);
                    partition_of_key(key, count) == partition
                })
            })
        }
    };
    match fits {
        true => Ok(()),
        false => Err(format!("{:?} does not lead to {partition}", section.target)),
    }
}

pub(super) fn no_internal_error(failure: &Failure) -> Result<(), Wrong> {
    match failure.code {
        ErrorCode::Internal => Err(failure.to_string()),
        _ => Ok(()),
    }
}

pub(super) fn check_polled(
    run: &mut Run,
    answered: &Answered<'_>,
    poll: &PollMessages,
    polled: &Polled,
) -> Result<(), Wrong> {
    same_count(poll.sections.len(), polled.sections.len())?;
    run.counts.polls += 1;
    for (section, result) in poll.sections.iter().zip(&polled.sections) {
        if section.partition != result.partition {
            return Err(format!(
                "partition {} was asked, {} answered",
                section.partition, result.partition
            ));
        }
        if let Consumer::Group(group) = &poll.consumer {
            groups::check_polled(run, answered, (poll, group), (section, result))?;
        }
        match &result.status {
            Ok(()) => check_poll_section(run, answered, poll, (section, result))?,
            Err(failure) => check_poll_refusal(answered, poll, section, failure)?,
        }
    }
    check_wait(run, answered, poll, polled)?;
    check_limits(poll, polled)
}

fn check_poll_section(
    run: &mut Run,
    answered: &Answered<'_>,
    poll: &PollMessages,
    (section, result): (&PollSection, &PollResult),
) -> Result<(), Wrong> {
    let Some(key) = answered.key((&poll.stream, &poll.topic), section.partition) else {
        return Ok(());
    };
    run.counts.messages_served += result.next.0 - result.from.0.min(result.next.0);
    answered.any_incarnation(key, |model| {
        check_offsets(answered, model, poll, result)?;
        check_batches(model, result)?;
        check_begin(answered, model, poll, (section, result))?;
        let ended = model.end_at(answered.window.from);
        let alone = poll.sections.len() == 1;
        if alone && result.from.0 < ended && result.next == result.from {
            return Err(format!("nothing is served from {} on", result.from));
        }
        Ok(())
    })
}

fn check_offsets(
    answered: &Answered<'_>,
    model: &PartitionModel,
    poll: &PollMessages,
    result: &PollResult,
) -> Result<(), Wrong> {
    let window = answered.window;
    let (low, high) = (model.end_at(window.from), model.end_at(window.to));
    if !model.start_in(window).contains(&result.start.0) || !(low..=high).contains(&result.end.0) {
        let PollResult { start, end, .. } = result;
        return Err(format!(
            "offsets {start} to {end}; the end was {low} to {high}"
        ));
    }
    if let Consumer::Single(consumer) = &poll.consumer {
        let stored = result.stored.map(|offset| offset.0);
        let values = model.stored_in(consumer, window);
        if !values.contains(&stored) {
            return Err(format!(
                "{stored:?} is stored for {consumer}; expected {values:?}"
            ));
        }
        if poll.commit_on_poll && result.next > result.from && stored < Some(result.next.0 - 1) {
            return Err(format!("{stored:?} is stored, {} is served", result.next));
        }
    }
    Ok(())
}

fn check_batches(model: &PartitionModel, result: &PollResult) -> Result<(), Wrong> {
    let mut next = None;
    for bytes in &result.batches {
        let batch = Batch::read(bytes).map_err(|error| format!("a batch: {error}"))?;
        let base = batch.header.base_offset;
        let Some(stored) = model.batch_at(base) else {
            return Err(format!("no batch begins at offset {base}"));
        };
        if stored.bytes != *bytes {
            return Err(format!("the batch at offset {base} is another one"));
        }
        if next.is_some_and(|next| next != base) {
            return Err(format!("offset {base} does not follow {next:?}"));
        }
        if next.is_none() && !(stored.base..stored.next).contains(&result.from.0) {
            return Err(format!("{} is not in the first batch", result.from));
        }
        next = Some(stored.next);
    }
    if next.unwrap_or(result.from.0) != result.next.0 {
        return Err(format!("the batches end at {next:?}, not {}", result.next));
    }
    Ok(())
}

/// Whether the first message is the one that was asked for.
fn check_begin(
    answered: &Answered<'_>,
    model: &PartitionModel,
    poll: &PollMessages,
    (section, result): (&PollSection, &PollResult),
) -> Result<(), Wrong> {
    let window = answered.window;
    let from = result.from.0;
    let fits = match section.strategy {
        PollStrategy::Offset(offset) => model.reads_from(offset.0, from, window),
        PollStrategy::First => model.start_in(window).contains(&from),
        PollStrategy::Last => {
            // With several sections what is left of the count decides.
            let count = u64::from(poll.max_messages);
            let starts = model.start_in(window);
            let begin = model.end_at(window.from).saturating_sub(count);
            let begin = begin.max(*starts.start());
            let alone = poll.sections.len() == 1;
            let end = if alone { count } else { 1 };
            let last = model.end_at(window.to).saturating_sub(end);
            (begin..=last.max(*starts.end())).contains(&from)
        }
        PollStrategy::Next => {
            let Consumer::Single(consumer) = &poll.consumer else {
                return Ok(());
            };
            let values = model.stored_in(consumer, window);
            values
                .into_iter()
                .map(|stored| stored.map_or(0, |stored| stored + 1))
                .any(|next| model.reads_from(next, from, window))
        }
        PollStrategy::Timestamp(time) => match model.batch_since(time) {
            Some(batch) if batch.step <= window.from => model.reads_from(batch.base, from, window),
            Some(batch) if batch.step <= window.to => {
                model.reads_from(batch.base, from, window) || result.from == result.end
            }
            Some(_) | None => result.from == result.end,
        },
    };
    match fits {
        true => Ok(()),
        false => Err(format!("{:?} begins at {from}", section.strategy)),
    }
}

fn check_poll_refusal(
    answered: &Answered<'_>,
    poll: &PollMessages,
    section: &PollSection,
    failure: &Failure,
) -> Result<(), Wrong> {
    no_internal_error(failure)?;
    let (ErrorCode::OffsetOutOfRange, PollStrategy::Offset(offset)) =
        (failure.code, section.strategy)
    else {
        return match failure.code {
            ErrorCode::OffsetOutOfRange => Err(failure.to_string()),
            _ => Ok(()),
        };
    };
    let Some(key) = answered.key((&poll.stream, &poll.topic), section.partition) else {
        return Ok(());
    };
    answered.any_incarnation(key, |model| {
        match offset.0 > model.end_at(answered.window.from) {
            true => Ok(()),
            false => Err(failure.to_string()),
        }
    })
}

/// A poll that brings too little must have waited.
fn check_wait(
    run: &mut Run,
    answered: &Answered<'_>,
    poll: &PollMessages,
    polled: &Polled,
) -> Result<(), Wrong> {
    let refused = polled.sections.iter().any(|result| result.status.is_err());
    if poll.min_bytes == 0 || poll.max_wait_ms == 0 || refused {
        return Ok(());
    }
    let batches = polled.sections.iter().flat_map(|result| &result.batches);
    let bytes: usize = batches.map(bytes::Bytes::len).sum();
    let wait = u64::from(poll.max_wait_ms) * 1_000_000;
    // Another node has waited, by a clock of its own.
    let wait = match answered.ledger.replicas() {
        1 => wait,
        _ => wait - wait / 20,
    };
    if bytes > 0 && is_news(answered, poll, polled) {
        run.counts.long_polls_woken += u64::from(answered.took < wait);
    }
    run.counts.long_polls_in_vain += u64::from(bytes == 0);
    if bytes == 0 && answered.took < wait && !answered.stopping {
        return Err(format!(
            "nothing is served after {} ns of {wait}",
            answered.took
        ));
    }
    Ok(())
}

/// Whether everything that is served came after the request.
fn is_news(answered: &Answered<'_>, poll: &PollMessages, polled: &Polled) -> bool {
    polled.sections.iter().all(|result| {
        let key = answered.key((&poll.stream, &poll.topic), result.partition);
        key.is_some_and(|key| {
            let mut models = answered.ledger.partitions(key, answered.window);
            models.any(|model| model.end_at(answered.asked.step) <= result.from.0)
        })
    })
}

/// Nothing is added beyond the limits, except that the first batch is always served.
fn check_limits(poll: &PollMessages, polled: &Polled) -> Result<(), Wrong> {
    let mut messages = 0;
    let mut bytes = 0;
    for result in &polled.sections {
        let mut from = result.from.0;
        for batch in &result.batches {
            let exceeds = bytes + batch.len() > poll.max_bytes as usize;
            if bytes > 0 && (exceeds || messages >= u64::from(poll.max_messages)) {
                let sections = polled.sections.iter();
                let shape: Vec<_> = sections
                    .map(|it| (it.from.0, it.next.0, it.batches.len()))
                    .collect();
                return Err(format!(
                    "{messages} messages and {bytes} bytes were enough for {} and {}: {shape:?}",
                    poll.max_messages, poll.max_bytes
                ));
            }
            bytes += batch.len();
            let header = Batch::read_header(batch).map_err(|error| error.to_string())?;
            let next = header.last_offset().next().0;
            messages += next - from;
            from = next;
        }
    }
    Ok(())
}
