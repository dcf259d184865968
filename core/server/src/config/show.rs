//! The configuration as text: what is in force, and the example that holds every key.

use std::fmt::Write;

use super::{ClusterNode, Entry, Kind, SETTINGS, Setting};

/// Characters of a comment line.
const WIDTH: usize = 100;

/// What is in force, as a file that would say the same, with the origin of each value behind it. Secrets
/// are masked.
#[must_use]
pub fn print_effective(entries: &[Entry]) -> String {
    let lines: Vec<(&Entry, String)> = entries
        .iter()
        .map(|entry| {
            (
                entry,
                format!("{} = {}", entry.setting.key(), entry.value.display()),
            )
        })
        .collect();
    let width = lines.iter().map(|(_, line)| line.len()).max().unwrap_or(0);
    let mut text = String::from("# environment > command line > file > default\n");
    let mut table = "";
    for (entry, line) in lines {
        if entry.setting.table() != table {
            table = entry.setting.table();
            line_of(&mut text, &format!("\n[{table}]"));
        }
        // A line that no file may hold is shown as a comment.
        let masked = matches!(entry.value, super::Value::Secret(_) | super::Value::Unset);
        let line = if masked { format!("# {line}") } else { line };
        line_of(&mut text, &format!("{line:width$}  # {}", entry.origin));
    }
    text
}

/// `configs/production.toml`: every setting with what it does, what it may be, and its default.
#[must_use]
pub fn production_file() -> String {
    let mut text = String::from(
        "# Every setting of cohort-server, with its default. Copy what you change; what is left out keeps\n\
         # its default. An environment variable replaces a value: COHORT__NODE__ADDRESS sets\n\
         # node.address. `cohort-server --print-config` shows what is in force and who set it.\n",
    );
    let mut table = "";
    for setting in SETTINGS {
        if setting.table() != table {
            table = setting.table();
            line_of(&mut text, &format!("\n[{table}]"));
            if let Some(note) = table_note(table) {
                comment(&mut text, note);
            }
        }
        text.push('\n');
        document(&mut text, setting);
    }
    text
}

fn table_note(table: &str) -> Option<&'static str> {
    match table {
        "cluster" => Some("[cluster] must be the same on all nodes, [node] is each node's own."),
        "cluster.limits" => {
            Some("A limit that is lowered takes nothing away that is there already.")
        }
        _ => None,
    }
}

fn document(text: &mut String, setting: &Setting) {
    comment(text, setting.doc);
    let allowed = setting.kind.allowed();
    comment(
        text,
        &format!("{}{}.", allowed[..1].to_uppercase(), &allowed[1..]),
    );
    let key = setting.key();
    if setting.kind == Kind::Nodes {
        line_of(text, &format!("# {key} = ["));
        for id in 0..3 {
            let (client, peer) = (
                format!("10.0.0.{}:5100", id + 1),
                format!("10.0.0.{}:5200", id + 1),
            );
            let node = ClusterNode { id, client, peer };
            line_of(text, &format!("#   {node},"));
        }
        line_of(text, "# ]");
    } else if setting.default.is_empty() {
        line_of(text, &format!("# {key} = \"…\""));
    } else {
        line_of(text, &format!("{key} = {}", setting.default));
    }
}

fn comment(text: &mut String, sentence: &str) {
    let mut line = String::from("#");
    for word in sentence.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            line_of(text, &line);
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    line_of(text, &line);
}

fn line_of(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes everything");
}
