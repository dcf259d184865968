//! Reads a configuration file, strictly.

use std::{fs, io, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    Kind, Setting, Value, nodes,
    problem::{Origin, Problem, did_you_mean},
    settings::{SETTINGS, setting},
    value::Raw,
};

/// A file much larger than this is not a configuration.
const FILE_SIZE_MAX: u64 = 1024 * 1024;

/// What one file sets, with the line of each.
pub(super) type Entries = Vec<(&'static Setting, Value, usize)>;

/// Reads the file at `path`.
pub(super) fn read(path: &Path) -> Result<String, Problem> {
    let refuse = |text: String| Problem {
        origin: Origin::File {
            name: path.display().to_string(),
            line: 0,
        },
        text,
    };
    let cannot = |error: io::Error| {
        refuse(match error.kind() {
            io::ErrorKind::NotFound => "there is no such file".into(),
            io::ErrorKind::PermissionDenied => "not readable: permission denied".into(),
            _ => format!("not readable: {error}"),
        })
    };
    let metadata = fs::metadata(path).map_err(cannot)?;
    if metadata.is_dir() {
        return Err(refuse("a directory where a file is expected".into()));
    }
    if metadata.len() > FILE_SIZE_MAX {
        let size = metadata.len();
        return Err(refuse(format!(
            "{size} bytes; a configuration has at most {FILE_SIZE_MAX}"
        )));
    }
    let bytes = fs::read(path).map_err(cannot)?;
    String::from_utf8(bytes).map_err(|error| {
        let position = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..position]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        Problem {
            origin: Origin::File {
                name: path.display().to_string(),
                line,
            },
            text: format!("not UTF-8 text: byte {position} of the file"),
        }
    })
}

/// Takes a file apart. Gives every mistake, not only the first.
pub(super) fn parse(name: &str, text: &str) -> Result<Entries, Vec<Problem>> {
    let file = File { name, text };
    file.check_text().map_err(|problem| vec![problem])?;
    let table = DeTable::parse(text).map_err(|error| vec![file.syntax(&error)])?;
    let mut found = Found::default();
    file.walk("", table.get_ref(), &mut found);
    if found.problems.is_empty() {
        Ok(found.entries)
    } else {
        Err(found.problems)
    }
}

#[derive(Default)]
struct Found {
    entries: Entries,
    problems: Vec<Problem>,
}

struct File<'a> {
    name: &'a str,
    text: &'a str,
}

impl File<'_> {
    fn check_text(&self) -> Result<(), Problem> {
        if self.text.starts_with('\u{feff}') {
            return Err(self.problem(
                1,
                "begins with a byte order mark (BOM); save it as UTF-8 without one",
            ));
        }
        if self.text.trim().is_empty() {
            return Err(self.problem(0, "empty; to run with the defaults, name no file"));
        }
        match self.text.lines().position(|line| line.contains('\t')) {
            Some(index) => {
                let key = self
                    .text
                    .lines()
                    .nth(index)
                    .unwrap_or_default()
                    .trim()
                    .replace('\t', " ");
                let text = format!("a tab in `{key}`; use spaces, which look the same everywhere");
                Err(self.problem(index + 1, text))
            }
            None => Ok(()),
        }
    }

    fn syntax(&self, error: &toml::de::Error) -> Problem {
        let line = error.span().map_or(0, |span| self.line(span.start));
        let source = self
            .text
            .lines()
            .nth(line.saturating_sub(1))
            .unwrap_or_default()
            .trim();
        let mut text = format!("`{source}`: {}", error.message());
        if let Some(value) = bare_quantity(source) {
            text = format!("{text}; text stands in quotes: \"{value}\"");
        }
        self.problem(line, text)
    }

    fn walk(&self, prefix: &str, table: &DeTable<'_>, found: &mut Found) {
        for (key, value) in table {
            let path = if prefix.is_empty() {
                key.get_ref().to_string()
            } else {
                format!("{prefix}.{}", key.get_ref())
            };
            let line = self.line(key.span().start);
            if let Some(setting) = setting(&path) {
                if setting.kind == Kind::Nodes {
                    self.read_nodes(setting, line, value, found);
                    continue;
                }
                match setting.read(&raw(value)) {
                    Ok(value) => found.entries.push((setting, value, line)),
                    Err(refusal) => {
                        let shown = self.shown(setting, value);
                        let text = format!("{path} = {shown}: {refusal}");
                        found.problems.push(self.problem(line, text));
                    }
                }
                continue;
            }
            match value.get_ref() {
                DeValue::Table(inner) if is_table(&path) => self.walk(&path, inner, found),
                _ if is_table(&path) => {
                    let text = format!("{path} is a table: write [{path}] and its keys below");
                    found.problems.push(self.problem(line, text));
                }
                _ => found
                    .problems
                    .push(self.problem(line, unknown(prefix, key.get_ref(), &path))),
            }
        }
    }

    fn read_nodes(
        &self,
        setting: &'static Setting,
        line: usize,
        value: &Spanned<DeValue<'_>>,
        found: &mut Found,
    ) {
        match nodes::read(value) {
            Ok(nodes) => found.entries.push((setting, Value::Nodes(nodes), line)),
            Err(mistakes) => {
                for (position, refusal) in mistakes {
                    let text = format!("{}: {refusal}", setting.path);
                    found.problems.push(self.problem(self.line(position), text));
                }
            }
        }
    }

    /// The value as it stands in the file, unless it is secret.
    fn shown(&self, setting: &Setting, value: &Spanned<DeValue<'_>>) -> String {
        if matches!(setting.kind, Kind::Secret { .. }) {
            return "(masked)".into();
        }
        let text = &self.text[value.span()];
        text.lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(80)
            .collect()
    }

    fn line(&self, position: usize) -> usize {
        1 + self.text[..position.min(self.text.len())]
            .matches('\n')
            .count()
    }

    fn problem(&self, line: usize, text: impl Into<String>) -> Problem {
        Problem {
            origin: Origin::File {
                name: self.name.to_owned(),
                line,
            },
            text: text.into(),
        }
    }
}

fn raw<'a>(value: &'a Spanned<DeValue<'_>>) -> Raw<'a> {
    match value.get_ref() {
        DeValue::String(text) => Raw::Text(text),
        DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix())
            .map_or(Raw::Other("a number out of range"), Raw::Integer),
        DeValue::Float(_) => Raw::Other("a fraction"),
        DeValue::Boolean(value) => Raw::Switch(*value),
        DeValue::Datetime(_) => Raw::Other("a date or time"),
        DeValue::Array(_) => Raw::Other("a list"),
        DeValue::Table(_) => Raw::Other("a table"),
    }
}

fn is_table(path: &str) -> bool {
    SETTINGS.iter().any(|setting| {
        setting
            .path
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// An unknown key, and what was meant: the same key in another table, or a similar one.
fn unknown(prefix: &str, key: &str, path: &str) -> String {
    if let Some(elsewhere) = SETTINGS.iter().find(|setting| setting.key() == key) {
        return format!(
            "unknown key {path}; {key} belongs in [{}]",
            elsewhere.table()
        );
    }
    let same_table = SETTINGS
        .iter()
        .filter(|setting| setting.table() == prefix)
        .map(Setting::key);
    let mut meant = did_you_mean(key, same_table);
    if meant.is_empty() {
        let tables = SETTINGS.iter().map(Setting::table);
        meant = did_you_mean(
            path,
            SETTINGS.iter().map(|setting| setting.path).chain(tables),
        );
    }
    if meant.is_empty() {
        meant = format!("; {} has: {}", table_name(prefix), keys_of(prefix));
    }
    format!("unknown key {path}{meant}")
}

fn table_name(prefix: &str) -> String {
    if prefix.is_empty() {
        "a configuration".into()
    } else {
        format!("[{prefix}]")
    }
}

fn keys_of(prefix: &str) -> String {
    let start = if prefix.is_empty() {
        0
    } else {
        prefix.len() + 1
    };
    let mut names: Vec<&str> = SETTINGS
        .iter()
        .filter(|setting| prefix.is_empty() || setting.path.starts_with(&format!("{prefix}.")))
        .filter_map(|setting| setting.path[start..].split('.').next())
        .collect();
    names.dedup();
    names.join(", ")
}

/// `2 s` of `key = 2 s`: a value that only lacks its quotes.
fn bare_quantity(line: &str) -> Option<&str> {
    let (_, value) = line.split_once('=')?;
    let value = value.trim();
    let unit = value
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .trim_start();
    let is_quantity = value.starts_with(|c: char| c.is_ascii_digit())
        && !unit.is_empty()
        && unit.chars().all(|c| c.is_ascii_alphabetic());
    is_quantity.then_some(value)
}
