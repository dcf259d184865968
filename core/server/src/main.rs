//! `cohort-server`: reads the command line and the configuration, then serves until it is told to stop.

use std::{
    env,
    io::{self, Write},
    process,
};

use server::{
    Exit,
    arguments::{self, Action, Arguments},
    config::{self, Loaded, Sources},
    logging,
};

fn main() {
    process::exit(start().code());
}

fn start() -> Exit {
    let arguments = match arguments::parse(env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(sentence) => {
            complain(&sentence);
            return Exit::Usage;
        }
    };
    match arguments.action {
        Action::Help => print(&arguments::help()),
        Action::Version => print(&format!("cohort-server {}\n", env!("CARGO_PKG_VERSION"))),
        Action::PrintExample => print(&config::production_file()),
        Action::Check | Action::PrintConfig | Action::Run | Action::Format | Action::Recover => {
            start_configured(&arguments)
        }
    }
}

fn start_configured(arguments: &Arguments) -> Exit {
    let sources = Sources {
        file: arguments.file.as_deref(),
        command_line: &arguments.settings,
        environment: env::vars_os().collect(),
    };
    let loaded = match config::load(&sources) {
        Ok(loaded) => loaded,
        Err(problems) => {
            problems
                .iter()
                .for_each(|problem| complain(&problem.to_string()));
            return Exit::Configuration;
        }
    };
    if matches!(
        arguments.action,
        Action::Run | Action::Format | Action::Recover
    ) {
        return run(arguments, &loaded);
    }
    loaded
        .warnings
        .iter()
        .for_each(|warning| complain(&format!("warning: {warning}")));
    if arguments.action == Action::PrintConfig {
        print(&config::print_effective(&loaded.entries))
    } else {
        print("the configuration is right\n")
    }
}

fn run(arguments: &Arguments, loaded: &Loaded) -> Exit {
    logging::start(&loaded.config.node.logs);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match arguments.action {
        Action::Format => server::format(&loaded.config),
        Action::Recover => server::recover(&loaded.config, arguments.permission),
        _ => server::serve(&loaded.config),
    }
}

/// To standard output; a reader that has gone away is no fault of ours.
fn print(text: &str) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Exit::Success,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
        Err(_) => Exit::Failed,
    }
}

fn complain(sentence: &str) {
    // Nobody can be told when standard error is closed.
    let _ = writeln!(io::stderr(), "cohort-server: {sentence}");
}
