//! The command as a process, as far as it needs no server.

use std::process::{Command, Output, Stdio};

fn cohort(words: &[&str], environment: &[(&str, &str)]) -> Output {
    let nowhere = std::env::temp_dir().join("cohort-has-no-configuration-here");
    Command::new(env!("CARGO_BIN_EXE_cohort"))
        .args(words)
        .env_clear()
        .env("XDG_CONFIG_HOME", nowhere)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

/// Words, environment, exit code, part of the message.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32, &'a str);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn version_and_help_go_to_standard_output() {
    let output = cohort(&["--version"], &[]);
    assert!(output.status.success());
    assert_eq!(
        text(&output.stdout),
        format!("cohort {}\n", env!("CARGO_PKG_VERSION"))
    );
    let output = cohort(&["send", "--help"], &[]);
    assert!(output.status.success() && text(&output.stdout).contains("Usage: cohort send"));
}

#[test]
fn mistakes_and_failures_go_to_standard_error_with_a_code() {
    let password = [("COHORT_PASSWORD", "whatever-it-is")];
    let wrong_address = [("COHORT_ADDRESS", "cohort://u:hunter2@h:x"), password[0]];
    let cases: [Case<'_>; 7] = [
        (&["streams"], &[], 2, "unrecognized subcommand 'streams'"),
        (&["stream", "list"], &[], 2, "no password for user \"root\""),
        (
            &["stream", "list", "-a", "127.0.0.1:1"],
            &password,
            1,
            "cannot reach 127.0.0.1:1: ",
        ),
        (
            &["stream", "list"],
            &wrong_address,
            2,
            "COHORT_ADDRESS: \"x\" is not a port",
        ),
        (
            &["stream", "list", "--config", "/nowhere/c.toml"],
            &password,
            1,
            "/nowhere/c.toml: ",
        ),
        (
            &["consume", "s", "t", "--from", "next"],
            &password,
            2,
            "--from next needs --consumer",
        ),
        (
            &["consume", "s", "t", "--consumer", "c", "--from", "end"],
            &password,
            2,
            "--from end needs --follow",
        ),
    ];
    for (words, environment, code, message) in cases {
        let output = cohort(words, environment);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        assert!(
            error.contains(message) && !error.contains("hunter2"),
            "{words:?}: {error}"
        );
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
}
