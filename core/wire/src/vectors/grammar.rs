//! Reads the tables of bodies in PROTOCOL.md as a grammar, and bodies by it.

use std::{string::String, vec::Vec};

use crate::trace::Read;

/// A row of a table.
#[derive(Clone, Debug)]
struct Row {
    /// How deep in lists.
    depth: usize,
    field: String,
    kind: String,
}

/// The fields of a body, as a table lists them.
pub(super) struct Grammar {
    rows: Vec<Row>,
}

impl Grammar {
    /// Takes the table out of a section. Without a table the section must begin with `Empty.`.
    pub(super) fn parse(name: &str, text: &str) -> Self {
        let lines = text.lines().skip_while(|line| !line.starts_with('|'));
        let table = lines.take_while(|line| line.starts_with('|'));
        let rows: Vec<Row> = table.skip(2).map(Row::parse).collect();
        if rows.is_empty() {
            assert!(
                text.trim_start().starts_with("Empty."),
                "{name} has no table"
            );
        }
        Self { rows }
    }

    /// Reads a body by the table, and compares with what its decoder has read.
    pub(super) fn check(&self, name: &str, body: &[u8], reads: &[Read]) {
        let mut walk = Walk {
            name,
            body,
            position: 0,
            reads: reads.iter(),
        };
        walk.rows(&self.rows, 0);
        assert_eq!(
            walk.position,
            body.len(),
            "{name}: the table ends before the body"
        );
        assert_eq!(
            walk.reads.next(),
            None,
            "{name}: the table ends before the decoder"
        );
    }
}

impl Row {
    fn parse(line: &str) -> Self {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        Self {
            depth: cells[1].matches('·').count(),
            field: cells[1].replace(['`', '·', ' '], ""),
            kind: cells[2].trim_end_matches(':').into(),
        }
    }
}

struct Walk<'a> {
    name: &'a str,
    body: &'a [u8],
    position: usize,
    reads: core::slice::Iter<'a, Read>,
}

impl Walk<'_> {
    /// Reads the fields of one level; the rows below a list are its items'.
    fn rows(&mut self, rows: &[Row], depth: usize) {
        let mut rest = rows;
        while let Some((row, below)) = rest.split_first() {
            assert_eq!(row.depth, depth, "{}: {}", self.name, row.field);
            let nests = ["list of", "optional", "code and"].contains(&row.kind.as_str());
            let inner = below.iter().take_while(|row| row.depth > depth).count();
            let (items, after) = below.split_at(inner);
            assert_eq!(nests, !items.is_empty(), "{}: {}", self.name, row.field);
            let times = match row.kind.as_str() {
                "list of" => self.take(&row.field, Some("count"), 4),
                "optional" => self.take(&row.field, Some("present"), 1),
                "code and" => usize::from(self.take(&row.field, None, 4) == 0),
                kind => {
                    self.value(&row.field, kind);
                    0
                }
            };
            for _ in 0..times {
                self.rows(items, depth + 1);
            }
            rest = after;
        }
    }

    fn value(&mut self, field: &str, kind: &str) {
        match kind {
            "u8" | "bool" => self.number(field, 1),
            "u16" => self.number(field, 2),
            "u32" => self.number(field, 4),
            "u64" => self.number(field, 8),
            "u128" => self.number(field, 16),
            "32 bytes" => self.number(field, 32),
            "text" => self.counted(field, 1),
            "status" => {
                if self.take(field, None, 4) != 0 {
                    self.counted(field, 2);
                }
            }
            "batch" => self.batch(field),
            "batches" => {
                let end = self.take(field, Some("length"), 4) + self.position;
                while self.position < end {
                    self.batch(field);
                }
            }
            "identifier" => match self.take(field, Some("kind"), 1) {
                1 => {
                    assert_eq!(self.take(field, Some("length"), 1), 8);
                    self.number(field, 8);
                }
                2 => self.counted(field, 1),
                kind => panic!("{}: {kind} is no identifier", self.name),
            },
            "consumer" => match self.take(field, Some("kind"), 1) {
                1 => self.counted(field, 1),
                2 => self.value(field, "identifier"),
                kind => panic!("{}: {kind} is no consumer", self.name),
            },
            "target" => match self.take(field, Some("kind"), 1) {
                1 => self.number(field, 4),
                2 => {}
                3 => self.counted(field, 2),
                kind => panic!("{}: {kind} is no target", self.name),
            },
            "strategy" => match self.take(field, Some("kind"), 1) {
                1 | 2 => self.number(field, 8),
                3..=5 => {}
                kind => panic!("{}: {kind} is no strategy", self.name),
            },
            "start" => match self.take(field, Some("kind"), 1) {
                1 | 2 => {}
                3 => self.number(field, 8),
                kind => panic!("{}: {kind} is no start", self.name),
            },
            "reset" => match self.take(field, Some("kind"), 1) {
                1 | 2 => self.number(field, 8),
                3..=5 => {}
                kind => panic!("{}: {kind} is no reset", self.name),
            },
            _ => self.compound(field, kind),
        }
    }

    fn compound(&mut self, field: &str, kind: &str) {
        if let Some(kind) = kind.strip_prefix("optional ") {
            if self.take(field, Some("present"), 1) == 1 {
                self.value(field, kind);
            }
        } else if let Some(kind) = kind.strip_prefix("list of ") {
            for _ in 0..self.take(field, Some("count"), 4) {
                self.value(field, kind);
            }
        } else {
            panic!("{}: {kind} is not a type of PROTOCOL.md", self.name);
        }
    }

    fn number(&mut self, field: &str, size: usize) {
        self.take(field, None, size);
    }

    /// A length and as many bytes.
    fn counted(&mut self, field: &str, length_size: usize) {
        let size = self.take(field, Some("length"), length_size);
        self.take(field, None, size);
    }

    /// A batch tells its own size, 32 bytes from its start.
    fn batch(&mut self, field: &str) {
        let size = &self.body[self.position + 32..self.position + 36];
        let size = u32::from_le_bytes(size.try_into().unwrap());
        self.take(field, None, usize::try_from(size).unwrap());
    }

    /// Takes the next bytes, which the decoder must have read as just that. Gives the number that they
    /// begin with.
    fn take(&mut self, field: &str, part: Option<&'static str>, size: usize) -> usize {
        let read = self.reads.next();
        let read = read.unwrap_or_else(|| panic!("{}: {field} is not read", self.name));
        let is = (read.field, read.part, read.position, read.size);
        assert_eq!(is, (field, part, self.position, size), "{}", self.name);
        let bytes = &self.body[self.position..self.position + size];
        self.position += size;
        let mut number = [0; 8];
        let known = bytes.len().min(number.len());
        number[..known].copy_from_slice(&bytes[..known]);
        usize::try_from(u64::from_le_bytes(number)).unwrap()
    }
}
