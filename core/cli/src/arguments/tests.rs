//! What the command line means, and what is refused.

use clap::{CommandFactory, error::ErrorKind};
use cohort::{GroupOptions, GroupStart, Offset, Start, Timestamp};

use super::{
    Arguments, Command, Duration, Format, From, GroupCommand, Id, InputFormat, KeyFrom,
    MessageFormat, OsString, StartPolicy, StreamCommand, TopicCommand, When, duration, parse,
};
use crate::golden::assert_golden;

fn words(line: &str) -> Vec<OsString> {
    std::iter::once("cohort")
        .chain(line.split_whitespace())
        .map(OsString::from)
        .collect()
}

fn command(line: &str) -> Command {
    parse(words(line))
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .command
}

fn refusal(line: &str) -> String {
    parse(words(line)).expect_err(line).to_string()
}

fn from(line: &str) -> Option<From> {
    let Command::Consume(arguments) = command(&format!("consume s t {line}")) else {
        panic!()
    };
    arguments.from
}

#[test]
fn definitions_are_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn a_bare_word_is_a_name_and_a_marked_number_an_id() {
    for (word, id) in [
        ("orders", Id::from("orders")),
        ("#7", Id::from(7)),
        ("id:7", Id::from(7)),
    ] {
        let Command::Topic(TopicCommand::Get { topic, .. }) =
            command(&format!("topic get s {word}"))
        else {
            panic!()
        };
        assert_eq!((topic.stream, topic.topic), (Id::from("s"), id));
    }
    // R51: a topic named 7 cannot be, and the topic with id 7 is asked for in so many words.
    let refusal = refusal("topic get s 7");
    assert!(refusal.contains("the name with this id is #7"), "{refusal}");
}

#[test]
fn nothing_gets_a_name_that_reads_as_an_id() {
    for line in [
        "stream create #7",
        "stream rename s id:7",
        "topic create s #x",
        "topic rename s t #7",
        "user create #7",
        "user rename u id:",
    ] {
        let refusal = refusal(line);
        assert!(
            refusal.contains("begin a name neither with # nor with id:"),
            "{refusal}"
        );
    }
}

#[test]
fn context_may_stand_before_or_behind_the_command() {
    for line in [
        "-a h:1 -u ann --timeout 2s --password-file p stream list",
        "stream list -a h:1 -u ann --timeout 2s --password-file p",
    ] {
        let context = parse(words(line)).unwrap().context;
        assert_eq!(
            (context.address.as_deref(), context.user.as_deref()),
            (Some("h:1"), Some("ann"))
        );
        assert_eq!(context.timeout, Some(Duration::from_secs(2)));
    }
}

#[test]
fn output_is_for_people_unless_asked_for_programs() {
    for (line, format) in [
        ("stream list", Format::Table),
        ("stream list -o json", Format::Json),
    ] {
        let Command::Stream(StreamCommand::List { output }) = command(line) else {
            panic!()
        };
        assert_eq!(output.output, format);
    }
}

#[test]
fn where_to_begin_is_one_word_or_two() {
    let offset = |offset| Some(From::At(Start::Offset(Offset(offset))));
    let cases = [
        ("", None),
        ("--from first", Some(From::At(Start::First))),
        ("--from last", Some(From::At(Start::Last(1)))),
        ("--from last:10", Some(From::At(Start::Last(10)))),
        ("--from last 10", Some(From::At(Start::Last(10)))),
        ("--from last --follow", Some(From::At(Start::Last(1)))),
        ("--from end", Some(From::At(Start::Last(0)))),
        ("--from next", Some(From::Next)),
        ("--from offset:5", offset(5)),
        ("--from offset 5", offset(5)),
        ("--from offset 0 -p 1", offset(0)),
        ("--from time 15m", Some(From::Since(When::Ago(900_000_000)))),
        (
            "--from time:2026-03-01T12:00:00Z",
            Some(From::Since(When::At(Timestamp(1_772_366_400_000_000)))),
        ),
        (
            "--from time 2026-03-01",
            Some(From::Since(When::At(Timestamp(1_772_323_200_000_000)))),
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(from(line), expected, "{line}");
    }
    assert_eq!(
        From::Since(When::Ago(900)).start(Timestamp(1_000)),
        Start::Timestamp(Timestamp(100))
    );
    // The words before the flag are not swallowed.
    let Command::Consume(arguments) = command("consume --from last s t") else {
        panic!()
    };
    assert_eq!(
        (arguments.from, arguments.topic.stream),
        (Some(From::At(Start::Last(1))), Id::from("s"))
    );
}

#[test]
fn where_to_begin_is_refused_with_what_is_possible() {
    for (line, text) in [
        (
            "--from earliest",
            "use one of first, last, last:N, end, next, offset:N, time:T",
        ),
        ("--from offset:-1", "\"-1\" is not a number from 0"),
        ("--from offset:", "\"\" is not a number from 0"),
        (
            "--from time:yesterday",
            "\"yesterday\" is not a time: write 2026-03-01T12:00:00Z",
        ),
    ] {
        let refusal = refusal(&format!("consume s t {line}"));
        assert!(refusal.contains(text), "{refusal}");
    }
}

#[test]
fn what_to_send_and_under_which_key() {
    let Command::Send(arguments) =
        command("send s t -f a -f b --key-from field:2:: --acknowledged")
    else {
        panic!()
    };
    assert_eq!(
        (arguments.file.len(), arguments.format),
        (2, InputFormat::Lines)
    );
    assert_eq!(arguments.key_from, Some(KeyFrom::Field(2, ":".to_string())));
    assert!(arguments.acknowledged && arguments.partition.is_none());
    for how in ["x", "field:0:,", "field:1:", "field:1", "prefix:", "json:"] {
        let refusal = refusal(&format!("send s t --key-from {how}"));
        assert!(
            refusal.contains("is none of prefix:SEP, field:N:SEP, json:NAME"),
            "{refusal}"
        );
    }
}

#[test]
fn how_to_consume() {
    let Command::Consume(arguments) =
        command("consume s t --partition 1 -p 2 --count 5 --follow --consumer billing -o raw")
    else {
        panic!()
    };
    assert_eq!(
        (arguments.partition, arguments.count),
        (vec![1, 2], Some(5))
    );
    assert!(arguments.follow);
    assert_eq!(
        (arguments.consumer.as_deref(), arguments.output),
        (Some("billing"), MessageFormat::Raw)
    );
}

#[test]
fn how_to_consume_as_a_member_of_a_group() {
    let Command::Consume(arguments) =
        command("consume s t -g billing --create --start 15m --instance a --idle 2s -v --events")
    else {
        panic!()
    };
    assert_eq!(arguments.group, Some(Id::from("billing")));
    assert_eq!(arguments.instance.as_deref(), Some("a"));
    assert!(arguments.create && arguments.verbose && arguments.events);
    let start = Some(StartPolicy::Time(When::Ago(900_000_000)));
    assert_eq!(arguments.start, start);
    assert_eq!(arguments.idle, Some(Duration::from_secs(2)));
}

#[test]
fn what_is_not_said_of_a_group_is_left_to_the_server() {
    let options = |line: &str| {
        let Command::Group(GroupCommand::Create { options, .. }) =
            command(&format!("group create s t g {line}"))
        else {
            panic!()
        };
        options.options(Timestamp(1_000))
    };
    assert_eq!(options(""), GroupOptions::default());
    let all = GroupOptions::default()
        .start(GroupStart::Latest)
        .rebalance_timeout(Duration::from_secs(10))
        .initial_delay(Duration::from_secs(3))
        .offset_expiry(Duration::from_hours(24));
    let line = "--start latest --rebalance-timeout 10s --initial-delay 3s --expiry 1d";
    assert_eq!(options(line), all);
}

#[test]
fn mistakes_are_refused() {
    for (line, kind) in [
        ("", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
        ("streams", ErrorKind::InvalidSubcommand),
        ("stream list --json", ErrorKind::UnknownArgument),
        ("stream list -o xml", ErrorKind::InvalidValue),
        ("stream get", ErrorKind::MissingRequiredArgument),
        (
            "topic create s t --partitions 0",
            ErrorKind::ValueValidation,
        ),
        ("topic create s t -p 4294967296", ErrorKind::ValueValidation),
        ("ping --count 0", ErrorKind::ValueValidation),
        ("ping --interval 200", ErrorKind::ValueValidation),
        ("ping --timeout 0s", ErrorKind::ValueValidation),
        (
            "send s t --delivery-timeout 0ms",
            ErrorKind::ValueValidation,
        ),
        ("consume s t --count 0", ErrorKind::ValueValidation),
        ("consume s t --consumer", ErrorKind::InvalidValue),
        ("send s t --batch-size 0", ErrorKind::ValueValidation),
        ("consume s t --group 7", ErrorKind::ValueValidation),
        (
            "consume s t --group g --start first",
            ErrorKind::ValueValidation,
        ),
        (
            "consume s t --group g --start latest",
            ErrorKind::MissingRequiredArgument,
        ),
        ("consume s t --create", ErrorKind::MissingRequiredArgument),
        (
            "consume s t --instance i",
            ErrorKind::MissingRequiredArgument,
        ),
        (
            "consume s t --group g --consumer c",
            ErrorKind::ArgumentConflict,
        ),
        (
            "consume s t --group g --from first",
            ErrorKind::ArgumentConflict,
        ),
        ("consume s t --group g -p 1", ErrorKind::ArgumentConflict),
        (
            "consume s t --group g --follow --idle 1s",
            ErrorKind::ArgumentConflict,
        ),
        ("group reset s t g", ErrorKind::MissingRequiredArgument),
        ("group reset s t g --to first", ErrorKind::ValueValidation),
        ("group remove-member s t g m", ErrorKind::ValueValidation),
        ("group create s t #7", ErrorKind::ValueValidation),
        (
            "send s t --key k --key-from prefix:x",
            ErrorKind::ArgumentConflict,
        ),
        // A password is no flag: everybody on the machine could see it.
        ("--password x stream list", ErrorKind::UnknownArgument),
    ] {
        assert_eq!(parse(words(line)).expect_err(line).kind(), kind, "{line}");
    }
}

#[test]
fn a_number_below_0_is_refused_as_a_number() {
    for line in [
        "topic create s t -p -1",
        "topic add-partitions s t -1",
        "topic remove-partitions s t -1",
        "consume s t -p -1",
        "consume s t --count -1",
        "send s t --partition -1",
        "ping -c -1",
    ] {
        let refusal = refusal(line);
        assert!(refusal.contains("invalid value '-1' for"), "{refusal}");
    }
}

#[test]
fn durations_have_units() {
    for (text, milliseconds) in [
        ("0ms", 0),
        ("250ms", 250),
        ("10s", 10_000),
        ("2m", 120_000),
        ("1 h", 3_600_000),
        ("1d", 86_400_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)));
    }
    for text in [
        "",
        "5",
        "s",
        "-5s",
        "1.5s",
        "5 weeks",
        "99999999999999999999s",
        "18446744073709551615d",
    ] {
        assert!(duration(text).is_err(), "{text}");
    }
}

/// Every command and its parents, depth first.
fn all(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
    found.push((path.to_string(), command.clone()));
    for inner in command
        .get_subcommands()
        .filter(|inner| inner.get_name() != "help")
    {
        all(inner, &format!("{path} {}", inner.get_name()), found);
    }
}

#[test]
fn every_help_has_an_example_that_can_be_said() {
    let mut root = Arguments::command();
    root.build();
    let mut found = Vec::new();
    all(&root, "cohort", &mut found);
    assert!(found.len() > 20);
    for (path, mut command) in found {
        let help = command.render_long_help().to_string();
        let examples = help
            .lines()
            .map(str::trim)
            .filter(|line| line.contains("cohort ") && !line.starts_with("Usage"));
        let examples = examples
            .filter(|line| line.contains(&path))
            .collect::<Vec<_>>();
        assert!(
            !examples.is_empty(),
            "{path} --help has no example of itself:\n{help}"
        );
        for example in examples {
            // As a shell takes it apart, without redirections and variables.
            let start = example.find("cohort ").unwrap();
            let line = example[start..]
                .split(['<', '>'])
                .next()
                .unwrap()
                .replace('\'', "");
            let line = line.trim_start_matches("cohort ");
            assert!(parse(words(line)).is_ok(), "{path}: {example}");
        }
    }
}

#[test]
fn help_stays_as_it_is() {
    let mut root = Arguments::command();
    root.build();
    assert_golden("help.txt", &root.render_long_help().to_string());
    for name in ["send", "consume", "topic", "group", "user"] {
        let command = root.find_subcommand_mut(name).unwrap();
        assert_golden(
            &format!("help-{name}.txt"),
            &command.render_long_help().to_string(),
        );
    }
}
