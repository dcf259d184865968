//! `cohort topic`.

use cohort::{Client, StoredOffset, TopicDetails, TopicSummary};
use serde_json::json;

use super::{done, time_cell};
use crate::{
    arguments::{Format, OutputArguments, TopicArguments, TopicCommand},
    output::{Cell, Column, Table, json},
    problem::Problem,
    time,
};

pub(super) async fn run(client: &Client, command: TopicCommand) -> Result<String, Problem> {
    Ok(match command {
        TopicCommand::Create {
            stream,
            name,
            partitions,
            output,
        } => {
            let topic = client.create_topic(stream, &name, partitions).await?;
            details(&topic, None, output.output)
        }
        TopicCommand::List { stream, output } => {
            list(&client.topics(stream).await?).list(output.output)
        }
        TopicCommand::Get {
            topic,
            consumer,
            output,
        } => {
            let found = find(client, topic).await?;
            let stored = match consumer {
                Some(name) => Some(client.stored_offsets(found.stream, found.id, &name).await?),
                None => None,
            };
            details(&found, stored.as_deref(), output.output)
        }
        TopicCommand::Delete { topic, output } => {
            let found = find(client, topic).await?;
            client.delete_topic(found.stream, found.id).await?;
            let sentence = format!("topic {} (#{}) is deleted", found.name, found.id);
            let object = json!({ "deleted": { "id": found.id.0, "name": found.name } });
            done(output.output, &sentence, &object)
        }
        TopicCommand::Purge { topic, output } => purge(client, topic, output).await?,
        TopicCommand::Rename {
            topic,
            name,
            output,
        } => {
            let found = find(client, topic).await?;
            client.rename_topic(found.stream, found.id, &name).await?;
            show_again(client, &found, output).await?
        }
        TopicCommand::AddPartitions {
            topic,
            count,
            output,
        } => {
            let found = find(client, topic).await?;
            client.add_partitions(found.stream, found.id, count).await?;
            show_again(client, &found, output).await?
        }
        TopicCommand::RemovePartitions {
            topic,
            count,
            output,
        } => {
            let found = find(client, topic).await?;
            client
                .remove_partitions(found.stream, found.id, count)
                .await?;
            show_again(client, &found, output).await?
        }
    })
}

async fn purge(
    client: &Client,
    topic: TopicArguments,
    output: OutputArguments,
) -> Result<String, Problem> {
    let found = find(client, topic).await?;
    client.purge_topic(found.stream, found.id).await?;
    let sentence = format!("topic {} (#{}) is purged", found.name, found.id);
    let object = json!({ "purged": { "id": found.id.0, "name": found.name } });
    Ok(done(output.output, &sentence, &object))
}

/// A topic as it is after a change.
async fn show_again(
    client: &Client,
    topic: &TopicDetails,
    output: OutputArguments,
) -> Result<String, Problem> {
    let topic = client.topic(topic.stream, topic.id).await?;
    Ok(details(&topic, None, output.output))
}

async fn find(client: &Client, topic: TopicArguments) -> Result<TopicDetails, Problem> {
    Ok(client.topic(topic.stream, topic.topic).await?)
}

fn list(topics: &[TopicSummary]) -> Table {
    const COLUMNS: &[Column] = &[
        Column("id"),
        Column("name"),
        Column("partitions"),
        Column("created"),
    ];
    let mut table = Table::new(COLUMNS);
    for topic in topics {
        table.row(vec![
            Cell::Number(topic.id.0),
            Cell::Text(topic.name.clone()),
            Cell::Number(topic.partitions.into()),
            time_cell(topic.created),
        ]);
    }
    table
}

/// A topic, its partitions, and where a consumer stands in them if that is asked for.
fn details(topic: &TopicDetails, stored: Option<&[StoredOffset]>, format: Format) -> String {
    let partitions = match stored {
        None => partitions(topic),
        Some(stored) => progress(topic, stored),
    };
    match format {
        Format::Table => format!(
            "topic {} (#{}) of stream #{}, created {}\n\n{}",
            topic.name,
            topic.id,
            topic.stream,
            time::format(topic.created),
            partitions.table(),
        ),
        Format::Json => json(&json!({
            "stream": topic.stream.0,
            "id": topic.id.0,
            "name": topic.name,
            "created": topic.created.0,
            "partitions": partitions.objects(),
        })),
    }
}

fn partitions(topic: &TopicDetails) -> Table {
    const COLUMNS: &[Column] = &[
        Column("partition"),
        Column("consensus_group"),
        Column("start"),
        Column("end"),
        Column("messages"),
    ];
    let mut table = Table::new(COLUMNS);
    for partition in &topic.partitions {
        let range = partition.start.zip(partition.end);
        table.row(vec![
            Cell::Number(partition.id.0.into()),
            Cell::Number(partition.group.0.into()),
            Cell::maybe(partition.start.map(|start| start.0)),
            Cell::maybe(partition.end.map(|end| end.0)),
            Cell::maybe(range.map(|(start, end)| end.0.saturating_sub(start.0))),
        ]);
    }
    table
}

fn progress(topic: &TopicDetails, stored: &[StoredOffset]) -> Table {
    const COLUMNS: &[Column] = &[
        Column("partition"),
        Column("start"),
        Column("end"),
        Column("stored"),
        Column("next"),
        Column("lag"),
    ];
    let mut table = Table::new(COLUMNS);
    for partition in &topic.partitions {
        let own = stored
            .iter()
            .find(|stored| stored.partition == partition.id);
        table.row(vec![
            Cell::Number(partition.id.0.into()),
            Cell::maybe(own.map(|own| own.start.0)),
            Cell::maybe(own.map(|own| own.end.0)),
            Cell::maybe(own.and_then(|own| own.stored).map(|offset| offset.0)),
            Cell::maybe(own.map(|own| own.next().0)),
            Cell::maybe(own.map(StoredOffset::lag)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use cohort::{
        ConsensusGroup, Incarnation, Offset, PartitionDetails, PartitionId, StreamId, Timestamp,
        TopicId,
    };

    use super::{Format, StoredOffset, TopicDetails, TopicSummary, details, list};
    use crate::golden::assert_golden;

    fn topic() -> TopicDetails {
        let partition = |id, start: Option<u64>, end: Option<u64>| PartitionDetails {
            id: PartitionId(id),
            incarnation: Incarnation(9),
            group: ConsensusGroup(4),
            start: start.map(Offset),
            end: end.map(Offset),
        };
        TopicDetails {
            stream: StreamId(1),
            id: TopicId(3),
            name: "orders".to_string(),
            created: Timestamp(1_772_366_400_250_000),
            partitions: vec![
                partition(0, Some(0), Some(100)),
                partition(1, Some(50), Some(1_050)),
                partition(2, None, None),
            ],
        }
    }

    #[test]
    fn topics_are_listed() {
        let topic = |id, name: &str, partitions| TopicSummary {
            id: TopicId(id),
            name: name.to_string(),
            created: Timestamp(1_772_366_400_250_000),
            partitions,
        };
        let topics = [topic(1, "orders", 4), topic(2, "a-longer-name", 128)];
        assert_golden("topics.txt", &list(&topics).list(Format::Table));
        assert_golden("topics.json", &list(&topics).list(Format::Json));
    }

    #[test]
    fn a_topic_shows_its_partitions_and_what_is_not_known() {
        assert_golden("topic.txt", &details(&topic(), None, Format::Table));
        assert_golden("topic.json", &details(&topic(), None, Format::Json));
    }

    #[test]
    fn what_a_consumer_stored_is_shown_beside_where_it_goes_on() {
        // R32: nothing stored is not offset 0 stored.
        let stored = |partition, start, end, stored: Option<u64>| StoredOffset {
            partition: PartitionId(partition),
            start: Offset(start),
            end: Offset(end),
            stored: stored.map(Offset),
        };
        let stored = [
            stored(0, 0, 100, Some(0)),
            stored(1, 50, 1_050, None),
            stored(2, 0, 100, Some(99)),
        ];
        assert_golden(
            "topic-consumer.txt",
            &details(&topic(), Some(&stored), Format::Table),
        );
        assert_golden(
            "topic-consumer.json",
            &details(&topic(), Some(&stored), Format::Json),
        );
    }
}
