//! `cohort group`.

mod reset;
#[cfg(test)]
pub(crate) mod sample;
mod show;

use cohort::{Client, ConsumerGroupDetails, Error, ErrorCode, Id};
use serde_json::json;

use super::done;
use crate::{
    arguments::{GroupArguments, GroupCommand, TopicArguments},
    problem::Problem,
    time,
};
use show::{describe, summaries};

pub(super) async fn run(client: &Client, command: GroupCommand) -> Result<String, Problem> {
    Ok(match command {
        GroupCommand::Create {
            topic,
            name,
            options,
            output,
        } => {
            let options = options.options(time::now());
            let made = client.create_consumer_group(topic.stream, topic.topic, &name, options);
            summaries(&[made.await?]).single(output.output)
        }
        GroupCommand::List { topic, output } => {
            let groups = client.consumer_groups(topic.stream, topic.topic).await?;
            summaries(&groups).list(output.output)
        }
        GroupCommand::Describe { group, output } => {
            describe(&find(client, &group).await?, output.output)
        }
        GroupCommand::Update {
            group,
            options,
            output,
        } => {
            if options.is_empty() {
                return Err(Problem::usage("no option is named that is to be changed"));
            }
            let options = options.options(time::now());
            let (stream, topic, id) = words(&group);
            let changed = client
                .update_consumer_group(stream, topic, id, options)
                .await
                .map_err(|error| located(error, &group))?;
            summaries(&[changed]).single(output.output)
        }
        GroupCommand::Delete {
            group,
            force,
            output,
        } => {
            let found = find(client, &group).await?;
            let (id, name) = (found.summary.id, &found.summary.name);
            client
                .delete_consumer_group(found.stream.0, found.topic.0, id.0, force)
                .await
                .map_err(|error| located(error, &group))?;
            let sentence = format!("consumer group {name} (#{id}) is deleted");
            let object = json!({ "deleted": { "id": id.0, "name": name } });
            done(output.output, &sentence, &object)
        }
        GroupCommand::RemoveMember {
            group,
            member,
            output,
        } => {
            let (stream, topic, id) = words(&group);
            let removed = client.remove_member(stream, topic, id, member.into()).await;
            removed.map_err(|error| not_removed(error, &group))?;
            let sentence = format!(
                "member {member} of consumer group {} is removed",
                group.group
            );
            let object = json!({ "removed": { "member": member } });
            done(output.output, &sentence, &object)
        }
        GroupCommand::Reset(arguments) => reset::run(client, &arguments).await?,
    })
}

fn words(group: &GroupArguments) -> (Id, Id, Id) {
    let TopicArguments { stream, topic } = group.topic.clone();
    (stream, topic, group.group.clone())
}

async fn find(client: &Client, group: &GroupArguments) -> Result<ConsumerGroupDetails, Problem> {
    let (stream, topic, id) = words(group);
    let found = client.describe_consumer_group(stream, topic, id).await;
    found.map_err(|error| located(error, group))
}

/// A problem with a consumer group that is to be there; of one that is not, where to see those that are.
fn located(error: Error, group: &GroupArguments) -> Problem {
    let missing = error.code() == Some(ErrorCode::ConsumerGroupNotFound);
    let problem = Problem::from(error);
    let TopicArguments { stream, topic } = &group.topic;
    if missing {
        problem.with_hint(format!(
            "see which there are with `cohort group list {stream} {topic}`"
        ))
    } else {
        problem
    }
}

/// The advice of the code is for the member.
fn not_removed(error: Error, group: &GroupArguments) -> Problem {
    let missing = error.code() == Some(ErrorCode::ConsumerGroupMemberNotFound);
    let TopicArguments { stream, topic } = &group.topic;
    let problem = located(error, group);
    if missing {
        problem.with_hint(format!(
            "see its members with `cohort group describe {stream} {topic} {}`",
            group.group
        ))
    } else {
        problem
    }
}

/// A problem with a consumer group; of one that is not there, how it is made.
pub(crate) fn explained(error: Error, topic: &TopicArguments, group: &Id) -> Problem {
    let missing = error.code() == Some(ErrorCode::ConsumerGroupNotFound);
    let problem = Problem::from(error);
    match group {
        Id::Name(name) if missing => problem.with_hint(format!(
            "make it with `cohort group create {} {} {name}`, or with `cohort consume --group {name} --create`",
            topic.stream, topic.topic
        )),
        Id::Name(_) | Id::Number(_) => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorCode, GroupArguments, Id, TopicArguments, explained, located};

    #[test]
    fn who_names_a_group_that_is_not_there_is_told_where_to_look() {
        let group = GroupArguments {
            topic: TopicArguments {
                stream: Id::from("shop"),
                topic: Id::from("orders"),
            },
            group: Id::from("biling"),
        };
        let refused = |code| Error::Refused {
            code,
            text: "no".to_string(),
        };
        let missing = located(refused(ErrorCode::ConsumerGroupNotFound), &group);
        let expected = "cohort: no (ConsumerGroupNotFound, 5000)\n  \
            hint: see which there are with `cohort group list shop orders`";
        assert_eq!(missing.to_string(), expected);
        let other = located(refused(ErrorCode::TopicNotFound), &group);
        assert!(!other.to_string().contains("group list"));
    }

    #[test]
    fn a_group_that_is_not_there_can_be_made() {
        let topic = TopicArguments {
            stream: Id::from("shop"),
            topic: Id::from("orders"),
        };
        let refused = |code| Error::Refused {
            code,
            text: "no".to_string(),
        };
        let problem = explained(
            refused(ErrorCode::ConsumerGroupNotFound),
            &topic,
            &Id::from("billing"),
        );
        let text = problem.to_string();
        assert!(
            text.contains("hint: make it with `cohort group create shop orders billing`"),
            "{text}"
        );
        // By id nothing can be made, and of other problems that is not the way out.
        let not_found = explained(
            refused(ErrorCode::ConsumerGroupNotFound),
            &topic,
            &Id::from(7),
        );
        assert!(!not_found.to_string().contains("make it with"));
        let full = refused(ErrorCode::ConsumerGroupFull);
        let full = explained(full, &topic, &Id::from("billing")).to_string();
        assert!(!full.contains("make it with"), "{full}");
    }
}
