//! Standard output: tables for people, JSON for programs.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::{Map, Value};

use crate::{arguments::Format, problem::Problem};

/// Standard output. When its reader has gone, nothing more is written, and nobody is told.
pub(crate) struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    gone: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            writer: BufWriter::with_capacity(64 * 1024, io::stdout().lock()),
            gone: false,
        }
    }

    /// Whether nobody reads it any more.
    pub(crate) const fn is_gone(&self) -> bool {
        self.gone
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let result = if self.gone {
            Ok(())
        } else {
            self.writer.write_all(bytes)
        };
        self.settle(result)
    }

    pub(crate) fn line(&mut self, line: &str) -> Result<(), Problem> {
        self.write(line.as_bytes())?;
        self.write(b"\n")
    }

    pub(crate) fn flush(&mut self) -> Result<(), Problem> {
        let result = if self.gone {
            Ok(())
        } else {
            self.writer.flush()
        };
        self.settle(result)
    }

    fn settle(&mut self, result: io::Result<()>) -> Result<(), Problem> {
        match result {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            Err(error) => Err(Problem::new(format!("standard output: {error}"))),
        }
    }
}

/// A list of things with the same fields.
#[derive(Debug)]
pub(crate) struct Table {
    columns: &'static [Column],
    rows: Vec<Vec<Cell>>,
}

/// A column: the key in JSON; the heading of the table is the key in capitals, its words apart. Without the
/// unit `_ms`, for people are shown units with the values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column(pub(crate) &'static str);

/// A value in a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Text(String),
    Number(u64),
    Flag(bool),
    /// Shown for people one way, for programs another.
    Both(String, Value),
    /// Not known, or nothing.
    None,
}

impl Cell {
    /// A number that may be absent.
    pub(crate) fn maybe(number: Option<u64>) -> Self {
        number.map_or(Self::None, Self::Number)
    }

    fn for_people(&self) -> String {
        match self {
            // Names hold no control characters.
            Self::Text(text) | Self::Both(text, _) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Flag(true) => "yes".to_string(),
            Self::Flag(false) => "no".to_string(),
            Self::None => "-".to_string(),
        }
    }

    fn for_programs(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_str()),
            Self::Both(_, value) => value.clone(),
            Self::Number(number) => Value::from(*number),
            Self::Flag(flag) => Value::from(*flag),
            Self::None => Value::Null,
        }
    }

    const fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }
}

impl Table {
    pub(crate) const fn new(columns: &'static [Column]) -> Self {
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        assert!(cells.len() == self.columns.len());
        self.rows.push(cells);
    }

    /// As a list: a table, or an array of objects.
    pub(crate) fn list(&self, format: Format) -> String {
        match format {
            Format::Table => self.table(),
            Format::Json => json(&self.objects()),
        }
    }

    /// The only row: a table of one line, or an object.
    pub(crate) fn single(&self, format: Format) -> String {
        match format {
            Format::Table => self.table(),
            Format::Json => json(&self.object()),
        }
    }

    pub(crate) fn objects(&self) -> Value {
        self.rows.iter().map(|row| self.object_of(row)).collect()
    }

    /// The first row.
    pub(crate) fn object(&self) -> Value {
        self.rows
            .first()
            .map_or(Value::Null, |row| self.object_of(row))
    }

    fn object_of(&self, row: &[Cell]) -> Value {
        let fields = self.columns.iter().zip(row);
        let object = fields.map(|(column, cell)| (column.0.to_string(), cell.for_programs()));
        Value::Object(object.collect::<Map<_, _>>())
    }

    /// Numbers to the right, everything else to the left.
    pub(crate) fn table(&self) -> String {
        let headings = self
            .columns
            .iter()
            .map(|column| column.0.strip_suffix("_ms").unwrap_or(column.0))
            .map(|key| key.to_uppercase().replace('_', " "));
        let mut lines = vec![headings.collect::<Vec<_>>()];
        lines.extend(
            self.rows
                .iter()
                .map(|row| row.iter().map(Cell::for_people).collect::<Vec<_>>()),
        );
        let count = self.columns.len();
        let width = |index: usize| {
            lines
                .iter()
                .map(|line| line[index].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths = (0..count).map(width).collect::<Vec<_>>();
        let numeric = |index: usize| self.rows.iter().any(|row| row[index].is_number());
        let right = (0..count).map(numeric).collect::<Vec<_>>();
        let mut table = String::new();
        for line in &lines {
            let mut text = String::new();
            for (index, cell) in line.iter().enumerate() {
                let padding = " ".repeat(widths[index] - cell.chars().count());
                if index > 0 {
                    text.push_str("  ");
                }
                if right[index] {
                    text.push_str(&padding);
                }
                text.push_str(cell);
                if !right[index] {
                    text.push_str(&padding);
                }
            }
            table.push_str(text.trim_end());
            table.push('\n');
        }
        table
    }
}

/// JSON for programs, one value, indented.
pub(crate) fn json(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("values have no keys but strings");
    text.push('\n');
    text
}

/// JSON for programs, on one line.
pub(crate) fn json_line(value: &Value) -> String {
    serde_json::to_string(value).expect("values have no keys but strings")
}
