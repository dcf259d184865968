//! The command line.

use std::{ffi::OsString, fmt::Write, path::PathBuf};

use lexopt::{Arg, Parser, ValueExt};

use crate::{Exit, Permission};

/// What the process is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Serve.
    Run,
    /// Format the data directory of a node of a cluster, and end.
    Format,
    /// Say what is damaged in the journal, perhaps give it up; in a cluster, format anew a node whose disk is
    /// lost; and end.
    Recover,
    /// Say whether the configuration is taken, and end.
    Check,
    /// Print the configuration that is in force, and end.
    PrintConfig,
    /// Print an example with every setting, and end.
    PrintExample,
    /// Print the help, and end.
    Help,
    /// Print the version, and end.
    Version,
}

/// A command line that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// What to do.
    pub action: Action,
    /// What `recover` may do.
    pub permission: Permission,
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// Settings, in order.
    pub settings: Vec<(String, String)>,
}

/// Takes the command line apart; `arguments` does not begin with the program's name.
///
/// # Errors
/// One sentence that says what is wrong and where help is.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, String> {
    parse_all(Parser::from_args(arguments))
        .map_err(|error| format!("{error}; `cohort-server --help` says what there is"))
}

fn parse_all(mut parser: Parser) -> Result<Arguments, lexopt::Error> {
    let mut parsed = Arguments {
        action: Action::Run,
        permission: Permission::default(),
        file: None,
        settings: Vec::new(),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('c') | Arg::Long("config") => {
                if parsed.file.replace(parser.value()?.into()).is_some() {
                    return Err("--config is given twice".into());
                }
            }
            Arg::Short('s') | Arg::Long("set") => {
                let text = parser.value()?.string()?;
                let Some((path, value)) = text.split_once('=') else {
                    return Err(format!("--set {text}: KEY=VALUE is expected").into());
                };
                parsed
                    .settings
                    .push((path.trim().to_owned(), value.trim().to_owned()));
            }
            Arg::Long("check") => parsed.decide(Action::Check)?,
            Arg::Long("print-config") => parsed.decide(Action::PrintConfig)?,
            Arg::Long("print-example") => parsed.decide(Action::PrintExample)?,
            // Whatever else is asked for: who asks for help wants to know what that means.
            Arg::Short('h') | Arg::Long("help") => {
                return Ok(Arguments {
                    action: Action::Help,
                    permission: Permission::default(),
                    file: None,
                    settings: Vec::new(),
                });
            }
            Arg::Short('V') | Arg::Long("version") => parsed.decide(Action::Version)?,
            Arg::Long("cut") => parsed.permission.cut = true,
            Arg::Long("discard-disk") => parsed.permission.discard_disk = true,
            Arg::Value(value) if value == "run" => parsed.decide(Action::Run)?,
            Arg::Value(value) if value == "format" => parsed.decide(Action::Format)?,
            Arg::Value(value) if value == "recover" => parsed.decide(Action::Recover)?,
            Arg::Value(value) => {
                let value = value.to_string_lossy().into_owned();
                return Err(
                    format!("unexpected argument {value}; a file is named by --config").into(),
                );
            }
            Arg::Short(_) | Arg::Long(_) => return Err(argument.unexpected()),
        }
    }
    let Permission { cut, discard_disk } = parsed.permission;
    for (given, name) in [(cut, "--cut"), (discard_disk, "--discard-disk")] {
        if given && parsed.action != Action::Recover {
            return Err(format!("{name} belongs to `cohort-server recover`").into());
        }
    }
    if cut && discard_disk {
        return Err("--cut is for a single node, --discard-disk for one of several".into());
    }
    Ok(parsed)
}

impl Arguments {
    fn decide(&mut self, action: Action) -> Result<(), lexopt::Error> {
        if self.action != Action::Run && self.action != action {
            return Err("more than one thing to print or check is asked for".into());
        }
        self.action = action;
        Ok(())
    }
}

/// The text of `--help`.
#[must_use]
pub fn help() -> String {
    let mut text = String::from(
        "\
Cohort: a replicated message broker around its consumer-group coordinator.

Usage: cohort-server [run] [OPTIONS]
       cohort-server format [OPTIONS]
       cohort-server recover [--cut | --discard-disk] [OPTIONS]

Serves until SIGTERM or SIGINT. A node of a cluster is formatted once, by `format`, before its first
start; a single node formats an empty data directory itself.

`recover`, on a single node, says what is damaged in the journal of a stopped server and changes
nothing. Damage is
  torn       a write that a crash cut short: nobody was told of it, the next start cuts it off
  uncertain  nobody can say whether it was flushed: with --cut it is given up, so that the server
             starts again; what is given up may have been acknowledged
  rotten     it was flushed and cannot be read: it is never given up. A node of a cluster fetches it
             from the others; on a single node its consensus group serves nothing until a copy of
             the data directory is put in place

`recover`, on a node of a cluster, is the way back for one that has lost its disk. It formats the data
directory, if that is empty or missing, in the place of the one before; then start the node as ever:
the others bring it what it had, and it takes part when it has that. What is still in the directory is
told, and nothing changed; with --discard-disk it is moved into a directory `discarded-…` inside it, never
deleted. The others refuse the old disk from then on. A majority of all nodes has to run, without this one

Options:
  -c, --config FILE    Read settings from FILE; without it, one node on 127.0.0.1:5100 with its
                       data in ./data
  -s, --set KEY=VALUE  Set one thing; may be repeated
      --check          Check the configuration, say what is wrong with it, and end
      --print-config   Print the settings in force and where each comes from, and end
      --print-example  Print a file with every setting, its default and what it does, and end
  -h, --help           Print this, and end
  -V, --version        Print the version, and end

Settings come from, the first that has one: the environment (COHORT__NODE__ADDRESS sets
node.address), the command line, the file, the default.

Examples:
  cohort-server
  cohort-server --config configs/single.toml --set node.address=127.0.0.1:5200
  COHORT__NODE__ROOT_PASSWORD=… cohort-server --set node.data_directory=/var/lib/cohort
  cohort-server --config /etc/cohort/cohort.toml --check
  COHORT__CLUSTER__SECRET=… cohort-server format --config configs/cluster/node-1.toml

Exit codes:
  0    did what was asked, or stopped because it was asked to
",
    );
    for (exit, meaning) in Exit::MEANINGS {
        writeln!(text, "  {:<4} {meaning}", exit.code()).expect("a String takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Arguments, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn options_are_taken_in_every_spelling() {
        let long = ["--config=a.toml", "--set", "node.shards=2", "--check"];
        let short = ["-c", "a.toml", "-snode.shards = 2", "--check"];
        let expected = Arguments {
            action: Action::Check,
            permission: Permission::default(),
            file: Some("a.toml".into()),
            settings: vec![("node.shards".into(), "2".into())],
        };
        assert_eq!(parse_words(&long), Ok(expected.clone()));
        assert_eq!(parse_words(&short), Ok(expected));
        for (words, action) in [
            (&[][..], Action::Run),
            (&["run"], Action::Run),
            (&["format", "-c", "a.toml"], Action::Format),
            (&["recover", "--discard-disk"], Action::Recover),
        ] {
            assert_eq!(parse_words(words).unwrap().action, action, "{words:?}");
        }
    }

    #[test]
    fn mistakes_are_named_and_point_to_the_help() {
        for (words, part) in [
            (&["--port", "1"][..], "--port"),
            (&["-x"], "-x"),
            (&["--config"], "--config"),
            (&["cohort.toml"], "named by --config"),
            (&["--set", "node.shards"], "KEY=VALUE"),
            (&["-c", "a", "-c", "b"], "twice"),
            (&["--check", "--version"], "more than one"),
            (&["format", "recover"], "more than one"),
            (&["--check=yes"], "--check"),
            (&["--cut"], "--cut belongs to"),
            (&["format", "--discard-disk"], "--discard-disk belongs to"),
            (
                &["recover", "--cut", "--discard-disk"],
                "for one of several",
            ),
        ] {
            let error = parse_words(words).expect_err("a mistake");
            assert!(error.contains(part) && error.contains("--help"), "{error}");
        }
    }

    #[test]
    fn help_wins() {
        for words in [
            &["recover", "--help"][..],
            &["recover", "--cut", "-h"],
            &["--cut", "--help"],
            &["--check", "--help"],
            &["--help", "recover"],
            &["--help", "--no-such-option"],
        ] {
            let parsed = parse_words(words).expect("help");
            assert_eq!(parsed.action, Action::Help, "{words:?}");
        }
    }

    #[test]
    fn help_names_every_exit_code() {
        let text = help();
        for code in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "130 "] {
            assert!(text.contains(&format!("\n  {code}")), "{code}");
        }
    }
}
