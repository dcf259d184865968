//! `cohort consume --group`: a member of a consumer group.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn, ready},
    io::{IsTerminal, stderr},
    pin::{Pin, pin},
    process,
    sync::{Arc, Mutex, PoisonError},
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use cohort::{
    Client, ConsumerGroupDetails, Error, ErrorCode, GroupConsumer, GroupConsumerBuilder,
    GroupEvent, GroupEvents, GroupOptions, Id, MemberId, Offset, PartitionId, Received, StoreMode,
};
use serde_json::json;
use tokio::{sync::oneshot, task::JoinHandle};

use super::{
    GATHER_SIZE, Reading,
    event::{for_people, for_programs},
};
use crate::{
    arguments::ConsumeArguments,
    commands::group::explained,
    context::Context,
    output::{Output, json_line},
    problem::{INTERRUPTED, Problem},
    race::{First, first, interrupted},
    time,
};

/// How long nothing must come before a member ends that does not follow.
const IDLE: Duration = Duration::from_secs(1);

/// How long the end may take, before the member goes all the same.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads until everything is read, the count or ctrl-C; the exit code.
pub(super) async fn run(
    context: &Context,
    arguments: &ConsumeArguments,
    group: &Id,
    output: &mut Output,
) -> Result<u8, Problem> {
    let client = context.connect().await?;
    let mut interrupt = pin!(interrupted());
    let told = Events::default();
    let verbose = arguments.verbose || stderr().is_terminal();
    let building = build(&client, arguments, group, told.clone()).build();
    let mut consumer = match first(interrupt.as_mut(), Box::pin(building)).await {
        First::Left(()) => {
            client.close().await;
            return Ok(INTERRUPTED);
        }
        First::Right(built) => built.map_err(|error| explained(error, &arguments.topic, group))?,
    };
    let guard = tokio::spawn(end_when_blocked());
    let teller = Teller::start(consumer.events(), group.clone(), verbose);
    let mut member = Member {
        reading: Reading::new(arguments, output),
        group,
        client: client.clone(),
        source: Source {
            consumer,
            told,
            stashed: None,
        },
        verbose,
        teller,
    };
    let ended = member.read(interrupt.as_mut()).await;
    // Whoever presses ctrl-C once more does not want to wait for it.
    let left = match first(pin!(interrupted()), member.leave(ended)).await {
        First::Left(()) => return Ok(INTERRUPTED),
        First::Right(left) => left,
    };
    // There is no other way to end following.
    let code = if left? && !arguments.follow {
        INTERRUPTED
    } else {
        0
    };
    client.close().await;
    guard.abort();
    Ok(code)
}

fn build(
    client: &Client,
    arguments: &ConsumeArguments,
    group: &Id,
    told: Events,
) -> GroupConsumerBuilder {
    let topic = arguments.topic.clone();
    let mut builder = client
        .consumer_group(topic.stream, topic.topic, group.clone())
        // A message is processed when it is written, and that is not when the next one is asked for.
        .store(StoreMode::Manual)
        .on_event(move |event| told.push(event.clone()));
    if arguments.create {
        let mut options = GroupOptions::default();
        if let Some(start) = arguments.start {
            options = options.start(start.at(time::now()));
        }
        builder = builder.create_if_missing(options);
    }
    if let Some(instance) = &arguments.instance {
        builder = builder.instance_id(instance);
    }
    builder
}

/// What has happened to the member and is not told yet.
#[derive(Clone, Debug, Default)]
struct Events(Arc<Mutex<VecDeque<GroupEvent>>>);

impl Events {
    fn push(&self, event: GroupEvent) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.push_back(event);
    }

    fn pop(&self) -> Option<GroupEvent> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.pop_front()
    }
}

/// Messages, and what happens to the member, in their order.
struct Source {
    consumer: GroupConsumer,
    told: Events,
    /// Comes after what is told before it.
    stashed: Option<Incoming>,
}

enum Incoming {
    Event(GroupEvent),
    Message(Result<Received, Error>),
    End,
}

/// What ends the wait for a message.
enum Waited {
    Incoming(Incoming),
    Interrupted,
    /// For so long nothing came.
    Idle,
}

impl Source {
    fn poll(&mut self, context: &mut TaskContext<'_>) -> Poll<Incoming> {
        if self.stashed.is_none()
            && let Poll::Ready(next) = pin!(self.consumer.next()).poll(context)
        {
            self.stashed = Some(next.map_or(Incoming::End, Incoming::Message));
        }
        let event = self.told.pop().map(Incoming::Event);
        let next = event.or_else(|| self.stashed.take());
        next.map_or(Poll::Pending, Poll::Ready)
    }

    async fn next(&mut self) -> Incoming {
        poll_fn(|context| self.poll(context)).await
    }
}

/// How long a member that is told to stop may wait for standard output: longer than it takes to end otherwise.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(20);

/// Ends the process when standard output takes nothing, and keeps it from ending by itself: when it is told to
/// stop once more, or has not ended a good while after it was told. What was not written is not stored.
async fn end_when_blocked() {
    interrupted().await;
    // However long is waited.
    let _told_again = tokio::time::timeout(BLOCKED_TIMEOUT, interrupted()).await;
    eprintln!("cohort: ended before everything was written and stored");
    process::exit(INTERRUPTED.into());
}

/// Tells people on standard error what happens to the member, also while standard output takes nothing.
struct Teller {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Lost>,
}

/// What was written and is not known to be stored, of partitions that were lost; that was told.
type Lost = Vec<(PartitionId, Offset)>;

impl Teller {
    /// It must run on another thread than the one that writes.
    fn start(events: GroupEvents, group: Id, verbose: bool) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(tell(events, stopped, group, verbose));
        Self { stop, task }
    }

    /// Tells what has happened so far, and no more.
    async fn stop(self) -> Lost {
        // Whoever does not listen has ended by itself.
        let _ended = self.stop.send(());
        self.task.await.unwrap_or_default()
    }
}

async fn tell(
    mut events: GroupEvents,
    stopped: oneshot::Receiver<()>,
    group: Id,
    verbose: bool,
) -> Lost {
    let (mut joined, mut lost) = (false, Lost::new());
    let mut stopped = pin!(stopped);
    while let First::Left(Some(event)) = first(pin!(events.next()), stopped.as_mut()).await {
        let again = joined;
        joined |= matches!(event, GroupEvent::Joined { .. });
        if let GroupEvent::Lost {
            partition,
            unstored: Some(offset),
            ..
        } = &event
        {
            lost.push((*partition, *offset));
        }
        if let Some(told) = for_people(&event, &group, again)
            && (told.important || verbose)
        {
            eprintln!("cohort: {}", told.text);
        }
    }
    lost
}

struct Member<'a> {
    reading: Reading<'a>,
    group: &'a Id,
    client: Client,
    source: Source,
    /// Whether people are told of partitions that come and go.
    verbose: bool,
    teller: Teller,
}

impl Member<'_> {
    /// Says whether it was interrupted.
    async fn read(
        &mut self,
        mut interrupt: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<bool, Problem> {
        loop {
            // What is there is taken without a pause; before there is one, the reader gets everything.
            let there = first(pin!(self.source.next()), ready(())).await;
            let incoming = match there {
                First::Left(incoming) => incoming,
                First::Right(()) => {
                    self.reading.settle()?;
                    match self.wait(interrupt.as_mut()).await {
                        Waited::Incoming(incoming) => incoming,
                        Waited::Interrupted => return Ok(true),
                        Waited::Idle => {
                            match first(interrupt.as_mut(), self.has_read_all()).await {
                                First::Left(()) => return Ok(true),
                                First::Right(Ok(false)) => continue,
                                First::Right(Ok(true)) => return Ok(false),
                                First::Right(Err(problem)) => return Err(problem),
                            }
                        }
                    }
                }
            };
            match incoming {
                Incoming::End => return Ok(false),
                Incoming::Event(event) => self.tell(&event)?,
                Incoming::Message(Ok(message)) => self.reading.take(Ok(message))?,
                Incoming::Message(Err(error)) => self.take_error(error)?,
            }
            if self.reading.is_done() {
                return Ok(false);
            }
            if self.reading.gathered >= GATHER_SIZE {
                self.reading.settle()?;
                if let First::Left(()) = first(interrupt.as_mut(), ready(())).await {
                    return Ok(true);
                }
            }
        }
    }

    /// A partition that cannot be read leaves the others; everything else ends it.
    fn take_error(&mut self, error: Error) -> Result<(), Problem> {
        if matches!(error, Error::PartitionFailed { .. }) {
            self.reading.take(Err(error))
        } else {
            Err(self.gone(error))
        }
    }

    async fn wait(&mut self, interrupt: Pin<&mut impl Future<Output = ()>>) -> Waited {
        let arguments = self.reading.arguments;
        let next = async {
            if arguments.follow {
                return Some(self.source.next().await);
            }
            let idle = arguments.idle.unwrap_or(IDLE);
            tokio::time::timeout(idle, self.source.next()).await.ok()
        };
        match first(interrupt, next).await {
            First::Left(()) => Waited::Interrupted,
            First::Right(Some(incoming)) => Waited::Incoming(incoming),
            First::Right(None) => Waited::Idle,
        }
    }

    /// Whether the group has read all that there is in the member's partitions, and none is on its way to it.
    async fn has_read_all(&self) -> Result<bool, Problem> {
        let consumer = &self.source.consumer;
        // What is not stored is either still to be, or somebody else's by now.
        if consumer.store().await.is_err() {
            return Ok(false);
        }
        let Some(member) = consumer.member() else {
            return Ok(false);
        };
        let topic = self.reading.arguments.topic.clone();
        let details = self
            .client
            .describe_consumer_group(topic.stream, topic.topic, consumer.group())
            .await;
        match details {
            Ok(details) => Ok(is_through(&details, member)),
            Err(error) if error.is_retryable() => Ok(false),
            Err(error) => Err(self.gone(error)),
        }
    }

    /// Why it cannot go on. A group of which it was a member is not made anew: what others had stored in it
    /// is gone, and somebody wanted that.
    fn gone(&self, error: Error) -> Problem {
        let ConsumeArguments { topic, create, .. } = self.reading.arguments;
        if error.code() != Some(ErrorCode::ConsumerGroupNotFound) {
            return explained(error, topic, self.group);
        }
        let text = format!(
            "consumer group {} was deleted, alone or with its topic, and all that it had stored",
            self.group
        );
        let hint = match self.group {
            Id::Name(_) if *create => {
                "start this again: --create makes a new group of the name, which begins at --start"
                    .to_string()
            }
            Id::Name(name) => format!(
                "make a new one with `cohort group create {} {} {name}`, or start this again with --create",
                topic.stream, topic.topic
            ),
            Id::Number(_) => "a new group has another id".to_string(),
        };
        Problem::from(error).with_text(text).with_hint(hint)
    }

    /// Tells programs of an event.
    fn tell(&mut self, event: &GroupEvent) -> Result<(), Problem> {
        if self.reading.arguments.events {
            self.reading.output.line(&json_line(&for_programs(event)))?;
        }
        Ok(())
    }

    /// Stores what was written and leaves, however reading has ended; says whether it was interrupted. Who is
    /// interrupted and has an instance id is probably started again: it does not leave.
    async fn leave(mut self, ended: Result<bool, Problem>) -> Result<bool, Problem> {
        let settled = self.reading.settle();
        let lost = self.teller.stop().await;
        let consumer = self.source.consumer;
        let instance = self.reading.arguments.instance.as_ref();
        let detaches = matches!(ended, Ok(true)) && instance.is_some();
        let left = if settled.is_err() || self.reading.output.is_gone() {
            // What nobody reads any more is never processed: there is nothing to wait for, and the logout ends
            // the membership.
            let stored = consumer.store().await;
            drop(consumer);
            stored
        } else if detaches {
            consumer.detach_within(STORE_TIMEOUT).await
        } else {
            consumer.close_within(STORE_TIMEOUT).await
        };
        let interrupted = ended?;
        settled?;
        match left {
            // It was told when it was lost.
            Err(
                Error::NotStored {
                    partition, offset, ..
                }
                | Error::StoreInDoubt {
                    partition, offset, ..
                },
            ) if lost.contains(&(partition, offset)) => {}
            left => left?,
        }
        if self.verbose {
            match instance.filter(|_| detaches) {
                Some(instance) => eprintln!(
                    "cohort: detached: consumer group {} keeps the partitions, for a while, for instance {instance}",
                    self.group
                ),
                None => eprintln!("cohort: left: consumer group {}", self.group),
            }
        }
        if self.reading.arguments.events {
            let event = if detaches { "detached" } else { "left" };
            let left = json!({ "event": event });
            self.reading.output.line(&json_line(&left))?;
            self.reading.output.flush()?;
        }
        self.reading.check()?;
        Ok(interrupted)
    }
}

/// Whether nothing is left for this member, now or soon.
fn is_through(details: &ConsumerGroupDetails, member: MemberId) -> bool {
    let is_through = |partition: &cohort::OwnershipDetails| match &partition.moving {
        Some(moving) => moving.to != Some(member),
        None => {
            let own = partition
                .owner
                .as_ref()
                .is_some_and(|owner| owner.member == member);
            !own || match &partition.progress {
                Ok(progress) => progress.lag == 0,
                Err(code) => *code == ErrorCode::PartitionDamaged,
            }
        }
    };
    !details.summary.plan_pending && details.partitions.iter().all(is_through)
}

#[cfg(test)]
mod tests {
    use cohort::{Epoch, PartitionMove, Timestamp};

    use super::{ConsumerGroupDetails, ErrorCode, MemberId, is_through};
    use crate::commands::group::sample;

    const OWN: MemberId = MemberId(1);

    /// Member 1 has read all of partitions 0 and 2, member 2 has not begun with partition 1.
    fn group() -> ConsumerGroupDetails {
        let mut group = sample::group();
        group.partitions[0] = sample::partition(0, Some(1), Some(99));
        group
    }

    #[test]
    fn a_member_is_through_when_its_own_partitions_are_read() {
        assert!(is_through(&group(), OWN));
        assert!(!is_through(&group(), MemberId(2)));
        // Whoever has none is not waited for.
        assert!(is_through(&group(), MemberId(3)));
        let mut behind = group();
        behind.partitions[2] = sample::partition(2, Some(1), Some(98));
        assert!(!is_through(&behind, OWN));
    }

    #[test]
    fn what_is_on_its_way_to_a_member_is_waited_for() {
        let planned = |to| PartitionMove {
            to: Some(to),
            planned: Epoch(20),
            since: Timestamp(1),
            reset: None,
            waits_for: None,
            time_left_ms: None,
        };
        let mut moving = group();
        moving.partitions[1].moving = Some(planned(OWN));
        assert!(!is_through(&moving, OWN));
        // What it gives up is for the other to read.
        let mut leaving = group();
        leaving.partitions[0] = sample::partition(0, Some(1), Some(10));
        leaving.partitions[0].moving = Some(planned(MemberId(2)));
        assert!(is_through(&leaving, OWN));
        let mut pending = group();
        pending.summary.plan_pending = true;
        assert!(!is_through(&pending, OWN));
    }

    #[test]
    fn what_is_not_known_yet_is_waited_for_and_what_is_damaged_is_not() {
        let mut unknown = group();
        unknown.partitions[0].progress = Err(ErrorCode::NotReady);
        assert!(!is_through(&unknown, OWN));
        unknown.partitions[0].progress = Err(ErrorCode::PartitionDamaged);
        assert!(is_through(&unknown, OWN));
    }
}
