//! PROTOCOL.md says what the code does: codes, tables and dumps are compared.

use std::{
    borrow::ToOwned,
    collections::{BTreeMap, BTreeSet},
    env, format, fs,
    path::Path,
    string::{String, ToString},
    sync::Once,
    vec::Vec,
};

use super::{
    dump::{self, Line},
    grammar::Grammar,
    read_file,
    samples::{Content, vectors},
};
use crate::{
    Command, ErrorCode, EventCode, EvictionReason, FRAME_HEADER_SIZE, FrameKind, Limit,
    MembershipEndReason, Plane, Request, checksum64, partition_of_key,
};

/// PROTOCOL.md; on demand dumps and the error table in it are written anew first.
fn protocol() -> String {
    static WRITTEN: Once = Once::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("PROTOCOL.md");
    WRITTEN.call_once(|| {
        if env::var_os("WRITE_VECTORS").is_some() {
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, with_generated_parts(&text)).unwrap();
        }
    });
    fs::read_to_string(path).unwrap()
}

/// The text with what lies between a marker and the next empty line replaced by what belongs there:
/// `<!-- vector: FILE -->` a vector's dump, `<!-- errors: NN -->` the errors of an area.
fn with_generated_parts(text: &str) -> String {
    let mut written = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        written.push_str(line);
        written.push('\n');
        let marker = line
            .strip_prefix("<!-- ")
            .and_then(|line| line.strip_suffix(" -->"));
        let Some((kind, name)) = marker.and_then(|marker| marker.split_once(": ")) else {
            continue;
        };
        match kind {
            "vector" => written.push_str(&dump_block(name)),
            "errors" => written.push_str(&error_rows(name)),
            _ => panic!("{line}: not a marker"),
        }
        written.push('\n');
        for line in lines.by_ref() {
            if line.is_empty() {
                break;
            }
        }
    }
    written
}

fn dump_block(file: &str) -> String {
    let text = read_file(file);
    let (_title, dump) = text.split_once("\n\n").unwrap();
    format!("```text\n{dump}```\n")
}

/// The rows of the errors whose numbers begin with `area`.
fn error_rows(area: &str) -> String {
    let mut rows = String::from(
        "| number | name | retry | meaning | what to do |\n| --- | --- | --- | --- | --- |\n",
    );
    for code in ErrorCode::ALL {
        let number = code.code().to_string();
        if number.starts_with(area) {
            let retry = if code.retryable() { "yes" } else { "no" };
            let (name, meaning, advice) = (code.name(), code.meaning(), code.advice());
            rows.push_str(&format!(
                "| {number} | {name} | {retry} | {meaning} | {advice} |\n"
            ));
        }
    }
    rows
}

/// The part below a heading, up to the next heading of the same or a higher level.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let level = heading.chars().take_while(|letter| *letter == '#').count();
    let start = text
        .find(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("PROTOCOL.md has no {heading:?}"));
    let body = &text[start + heading.len() + 2..];
    let end = body
        .match_indices("\n#")
        .map(|(index, _)| index)
        .find(|index| {
            let marks = body[index + 1..]
                .chars()
                .take_while(|letter| *letter == '#');
            marks.count() <= level
        });
    &body[..end.unwrap_or(body.len())]
}

/// The cells of the rows of all tables in a text, head lines left out, code marks and links taken away.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |line: &str| line.starts_with('|');
    let is_rule = |line: &str| line.starts_with("| ---");
    lines
        .iter()
        .enumerate()
        .filter(|(index, line)| {
            let is_head = lines.get(index + 1).is_some_and(|next| is_rule(next));
            is_row(line) && !is_rule(line) && !is_head
        })
        .map(|(_, line)| {
            let cells = line.trim_matches('|').split('|');
            cells
                .map(|cell| {
                    let cell = cell.replace('`', "");
                    let linked = cell.split("](").next().unwrap_or_default();
                    linked.trim().trim_start_matches('[').to_owned()
                })
                .collect()
        })
        .collect()
}

#[test]
fn dumps_and_error_table_are_those_of_the_code() {
    let text = protocol();
    assert_eq!(text, with_generated_parts(&text));
    for area in ["10", "11", "20", "21", "30", "40", "50"] {
        assert!(text.contains(&format!("<!-- errors: {area} -->")), "{area}");
    }
    let numbers: BTreeSet<String> = rows(section(&text, "## Errors"))
        .into_iter()
        .map(|row| row[0].clone())
        .collect();
    for code in ErrorCode::ALL {
        assert!(
            numbers.contains(&code.code().to_string()),
            "{}",
            code.name()
        );
    }
}

#[test]
fn every_kind_of_frame_is_shown() {
    let text = protocol();
    for file in [
        "001-ping-request.txt",
        "001-ping-reply.txt",
        "040-login-request.txt",
        "040-login-reply.txt",
        "error-reply.txt",
        "101-send-messages-request.txt",
        "100-poll-messages-reply.txt",
        "903-primary-changed-event.txt",
        "batch.txt",
        "prepare.txt",
    ] {
        assert!(text.contains(&format!("<!-- vector: {file} -->")), "{file}");
    }
}

#[test]
fn table_of_commands_is_that_of_the_code() {
    let text = protocol();
    let table: Vec<Vec<String>> = rows(section(&text, "### Table of commands"))
        .into_iter()
        .map(|row| row[..4].to_vec())
        .collect();
    let expected: Vec<Vec<String>> = Command::ALL
        .iter()
        .map(|command| {
            let plane = match command.plane() {
                Plane::Connection => "connection",
                Plane::Metadata => "metadata",
                Plane::Query => "query",
                Plane::Data => "data",
            };
            let supported = if command.supported() { "yes" } else { "no" };
            let code = command.code().to_string();
            [&code, command.name(), plane, supported]
                .map(ToOwned::to_owned)
                .to_vec()
        })
        .collect();
    assert_eq!(table, expected);
}

#[test]
fn events_and_reasons_are_those_of_the_code() {
    let text = protocol();
    let numbered = |heading: &str| -> Vec<(String, String)> {
        rows(section(&text, heading))
            .into_iter()
            .map(|row| (row[0].clone(), row[1].clone()))
            .collect()
    };
    let events: Vec<(String, String)> = EventCode::ALL
        .iter()
        .map(|event| (event.code().to_string(), event.name().to_owned()))
        .collect();
    assert_eq!(numbered("### Table of events"), events);
    let reasons: Vec<(String, String)> = EvictionReason::ALL
        .iter()
        .map(|reason| (reason.code().to_string(), reason.name().to_owned()))
        .collect();
    assert_eq!(numbered("### Reasons of Evicted"), reasons);
    let reasons: Vec<(String, String)> = MembershipEndReason::ALL
        .iter()
        .map(|reason| (reason.code().to_string(), reason.name().to_owned()))
        .collect();
    assert_eq!(numbered("### Reasons of MembershipEnded"), reasons);
}

#[test]
fn limits_are_those_of_the_code() {
    let text = protocol();
    let table: BTreeMap<String, Vec<String>> = rows(section(&text, "### Limits of a node"))
        .into_iter()
        .map(|row| (row[0].clone(), row[1..4].to_vec()))
        .collect();
    for limit in Limit::ALL {
        let numbers =
            [limit.default, limit.minimum, limit.maximum].map(|number| number.to_string());
        assert_eq!(
            table.get(limit.name),
            Some(&numbers.to_vec()),
            "{}",
            limit.name
        );
    }
    assert_eq!(table.len(), Limit::ALL.len());
}

#[test]
fn values_of_keys_are_those_of_the_code() {
    let text = protocol();
    let rows = rows(section(&text, "### Test values for keys"));
    assert!(rows.len() >= 3);
    for row in rows {
        let key = row[0].as_bytes();
        let hash = format!("{:#018x}", checksum64(key));
        let partition = partition_of_key(key, 8).to_string();
        assert_eq!(row[1..3], [hash, partition], "{}", row[0]);
    }
}

#[test]
fn header_tables_are_those_of_the_code() {
    let text = protocol();
    let check = |heading: &str, lines: Vec<Line>| {
        let expected: Vec<Vec<String>> = lines
            .into_iter()
            .map(|line| {
                let name = line.label.rsplit(' ').next().unwrap().to_owned();
                [line.position.to_string(), line.size.to_string(), name].to_vec()
            })
            .collect();
        let table: Vec<Vec<String>> = rows(section(&text, heading))
            .into_iter()
            .map(|row| row[..3].to_vec())
            .collect();
        assert_eq!(table, expected, "{heading}");
    };
    check(
        "### Header of a request",
        dump::header_fields(FrameKind::Request),
    );
    check(
        "### Header of a reply",
        dump::header_fields(FrameKind::Reply),
    );
    check(
        "### Header of an event",
        dump::header_fields(FrameKind::Event),
    );
    check("### Header of a batch", dump::batch_fields());
    check("### Header of a message", dump::message_fields());
    check("### Header of a prepare", dump::prepare_fields());
}

/// Checks every vector of this kind against the table in its section.
fn check_bodies(name: &str, text: &str, of: impl Fn(&Content) -> bool) {
    let grammar = Grammar::parse(name, text);
    for vector in vectors().iter().filter(|vector| of(&vector.content)) {
        let bytes = vector.encode();
        let reads = dump::body_reads(&bytes);
        grammar.check(&vector.file, &bytes[FRAME_HEADER_SIZE..], &reads);
    }
}

#[test]
fn tables_of_bodies_are_what_the_decoders_read() {
    let text = protocol();
    for command in Request::COMMANDS {
        let name = format!("{} {}", command.code(), command.name());
        let part = |part: &str| -> String {
            let body = section(&text, &format!("### {name}"));
            section(&format!("\n{body}"), &format!("#### {part}")).to_owned()
        };
        check_bodies(
            &format!("{name}, request"),
            &part("Request"),
            |content| matches!(content, Content::Request(_, request) if request.command() == *command),
        );
        check_bodies(
            &format!("{name}, reply"),
            &part("Reply"),
            |content| matches!(content, Content::Reply(_, of, _) if of == command),
        );
    }
}

#[test]
fn tables_of_events_are_what_the_decoders_read() {
    let text = protocol();
    for code in EventCode::ALL {
        let name = format!("{} {}", code.code(), code.name());
        check_bodies(
            &name,
            section(&text, &format!("### {name}")),
            |content| matches!(content, Content::Event(_, event) if event.code() == *code),
        );
    }
}
