//! The configuration: from where it comes, how it is checked, and what it holds.
//!
//! Every setting of the table in `settings` has a default. A file replaces defaults, the command line
//! replaces what the file says, the environment replaces both:
//!
//! ```text
//! environment  >  command line  >  file  >  default
//! ```
//!
//! Nothing that is not understood is passed over: a key that does not exist, a value of the wrong kind or
//! out of range, settings that contradict one another end the start with a sentence that names the place,
//! the key, the value and what is allowed.

mod file;
mod nodes;
mod problem;
mod rules;
mod settings;
mod show;
mod typed;
mod value;

use std::{ffi::OsString, path::Path};

use problem::did_you_mean;
use settings::ENVIRONMENT_PREFIX;

pub use nodes::ClusterNode;
pub use problem::{Origin, Problem};
pub use settings::{SETTINGS, Setting};
pub use show::{print_effective, production_file};
pub use typed::{
    Cluster, ClusterLimits, Config, Connections, Journal, LogFormat, LogLevel, Logs, Node,
    Password, Passwords, Timeouts,
};
pub use value::{Kind, Value};

/// What runs when no file is named.
pub const BUILT_IN: &str = include_str!("../../../../configs/single.toml");

/// The name of [`BUILT_IN`] in messages.
pub const BUILT_IN_NAME: &str = "built-in configs/single.toml";

/// Where a configuration is looked for.
#[derive(Clone, Debug, Default)]
pub struct Sources<'a> {
    /// The file; [`BUILT_IN`] when there is none.
    pub file: Option<&'a Path>,
    /// Paths and values that the command line sets, in order: a later one replaces an earlier one.
    pub command_line: &'a [(String, String)],
    /// The environment, or what a test makes of it.
    pub environment: Vec<(OsString, OsString)>,
}

/// One setting as it is in force.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The setting.
    pub setting: &'static Setting,
    /// Its value.
    pub value: Value,
    /// Who set it.
    pub origin: Origin,
}

/// A configuration that was taken.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// All settings, in the order of the table.
    pub entries: Vec<Entry>,
    /// What is odd but does no harm.
    pub warnings: Vec<Problem>,
}

/// Reads and checks a configuration.
///
/// # Errors
/// Every mistake in it.
pub fn load(sources: &Sources<'_>) -> Result<Loaded, Vec<Problem>> {
    let mut loading = Loading::with_defaults();
    let (name, text) = match sources.file {
        Some(path) => {
            let text = file::read(path).map_err(|problem| vec![problem])?;
            (path.display().to_string(), text)
        }
        None => (BUILT_IN_NAME.to_owned(), BUILT_IN.to_owned()),
    };
    match file::parse(&name, &text) {
        Ok(found) => {
            for (setting, value, line) in found {
                loading.set(
                    setting,
                    value,
                    Origin::File {
                        name: name.clone(),
                        line,
                    },
                );
            }
        }
        Err(problems) => loading.problems.extend(problems),
    }
    loading.take_command_line(sources.command_line);
    loading.take_environment(&sources.environment);
    loading.finish()
}

struct Loading {
    entries: Vec<Entry>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Loading {
    fn with_defaults() -> Self {
        let entries = SETTINGS
            .iter()
            .map(|setting| Entry {
                setting,
                value: setting.default_value(),
                origin: Origin::Default,
            })
            .collect();
        Self {
            entries,
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn set(&mut self, setting: &'static Setting, value: Value, origin: Origin) {
        let entry = self
            .entries
            .iter_mut()
            .find(|entry| entry.setting.path == setting.path);
        let entry = entry.expect("there is an entry for every setting");
        entry.value = value;
        entry.origin = origin;
    }

    fn take_command_line(&mut self, settings: &[(String, String)]) {
        for (path, text) in settings {
            self.take_text(path, text, Origin::CommandLine);
        }
    }

    fn take_environment(&mut self, environment: &[(OsString, OsString)]) {
        for (variable, text) in environment {
            let variable = variable.to_string_lossy().into_owned();
            if !variable.starts_with(ENVIRONMENT_PREFIX) {
                continue;
            }
            let origin = Origin::Environment {
                variable: variable.clone(),
            };
            let Some(setting) = SETTINGS
                .iter()
                .find(|setting| setting.variable() == variable)
            else {
                let known: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
                let meant = did_you_mean(&variable, known.iter().map(String::as_str));
                let text = format!("sets nothing{meant}");
                self.warnings.push(Problem { origin, text });
                continue;
            };
            match text.to_str() {
                Some(text) => self.take_text(setting.path, text, origin),
                None => self.problems.push(Problem {
                    origin,
                    text: "not UTF-8 text".into(),
                }),
            }
        }
    }

    fn take_text(&mut self, path: &str, text: &str, origin: Origin) {
        let Some(setting) = settings::setting(path) else {
            let meant = did_you_mean(path, SETTINGS.iter().map(|setting| setting.path));
            let text = format!("unknown setting {path}{meant}");
            self.problems.push(Problem { origin, text });
            return;
        };
        match setting.parse(text) {
            Ok(value) => self.set(setting, value, origin),
            Err(refusal) => {
                let shown = if matches!(setting.kind, Kind::Secret { .. }) {
                    "(masked)"
                } else {
                    text
                };
                let text = format!("{path} = {shown}: {refusal}");
                self.problems.push(Problem { origin, text });
            }
        }
    }

    fn finish(mut self) -> Result<Loaded, Vec<Problem>> {
        if self.problems.is_empty() {
            self.problems = rules::contradictions(&self.entries);
        }
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        let config = Config::from_entries(&self.entries);
        Ok(Loaded {
            config,
            entries: self.entries,
            warnings: self.warnings,
        })
    }
}

impl Setting {
    /// The default, as a value.
    fn default_value(&self) -> Value {
        if self.default.is_empty() {
            return Value::Unset;
        }
        let text = self.default.trim_matches('"');
        self.parse(text).expect("defaults are allowed values")
    }
}

#[cfg(test)]
mod tests;
