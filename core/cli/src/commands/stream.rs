//! `cohort stream`.

use cohort::{Client, StreamDetails};
use serde_json::json;

use super::{done, time_cell};
use crate::{
    arguments::StreamCommand,
    output::{Cell, Column, Table},
    problem::Problem,
};

pub(super) async fn run(client: &Client, command: StreamCommand) -> Result<String, Problem> {
    Ok(match command {
        StreamCommand::Create { name, output } => {
            let stream = client.create_stream(&name).await?;
            table(&[stream]).single(output.output)
        }
        StreamCommand::List { output } => table(&client.streams().await?).list(output.output),
        StreamCommand::Get { stream, output } => {
            table(&[client.stream(stream).await?]).single(output.output)
        }
        StreamCommand::Delete { stream, output } => {
            // Looked up first, so that what is told, and what is deleted, has both name and id.
            let found = client.stream(stream).await?;
            client.delete_stream(found.id).await?;
            let sentence = format!("stream {} (#{}) is deleted", found.name, found.id);
            let object = json!({ "deleted": { "id": found.id.0, "name": found.name } });
            done(output.output, &sentence, &object)
        }
        StreamCommand::Purge { stream, output } => {
            let found = client.stream(stream).await?;
            client.purge_stream(found.id).await?;
            let sentence = format!("stream {} (#{}) is purged", found.name, found.id);
            let object = json!({ "purged": { "id": found.id.0, "name": found.name } });
            done(output.output, &sentence, &object)
        }
        StreamCommand::Rename {
            stream,
            name,
            output,
        } => {
            let found = client.stream(stream).await?;
            client.rename_stream(found.id, &name).await?;
            table(&[client.stream(found.id).await?]).single(output.output)
        }
    })
}

fn table(streams: &[StreamDetails]) -> Table {
    const COLUMNS: &[Column] = &[
        Column("id"),
        Column("name"),
        Column("topics"),
        Column("created"),
    ];
    let mut table = Table::new(COLUMNS);
    for stream in streams {
        table.row(vec![
            Cell::Number(stream.id.0),
            Cell::Text(stream.name.clone()),
            Cell::Number(stream.topics.into()),
            time_cell(stream.created),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use cohort::{StreamId, Timestamp};

    use super::{StreamDetails, table};
    use crate::{arguments::Format, golden::assert_golden};

    #[test]
    fn streams_are_shown_with_id_and_name() {
        let stream = |id, name: &str, topics| StreamDetails {
            id: StreamId(id),
            name: name.to_string(),
            created: Timestamp(1_772_366_400_250_000),
            topics,
        };
        let streams = [stream(1, "shop", 2), stream(12, "größe", 0)];
        assert_golden("streams.txt", &table(&streams).list(Format::Table));
        assert_golden("streams.json", &table(&streams).list(Format::Json));
        assert_golden("stream.json", &table(&streams).single(Format::Json));
        assert_golden("streams-none.txt", &table(&[]).list(Format::Table));
        assert_golden("streams-none.json", &table(&[]).list(Format::Json));
    }
}
