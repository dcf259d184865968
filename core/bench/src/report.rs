//! Figures for people and for programs.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::figure::{Section, Side, Target, Unit};

/// Columns of a figure's name, and of a target's.
const NAME_WIDTH: usize = 58;

/// Tables: every section, then all targets.
pub(crate) fn table(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        line(&mut text, format_args!("{}", section.name));
        for figure in &section.figures {
            let value = format_value(figure.value, figure.unit);
            line(
                &mut text,
                format_args!("  {:NAME_WIDTH$} {value:>12}", figure.name),
            );
        }
    }
    let targets: Vec<_> = sections
        .iter()
        .flat_map(|section| &section.targets)
        .collect();
    if !targets.is_empty() {
        let heads = ("target", "limit", "measured");
        line(
            &mut text,
            format_args!("{:NAME_WIDTH$} {:>14} {:>12}", heads.0, heads.1, heads.2),
        );
    }
    for target in targets {
        let sign = match target.side {
            Side::AtMost => "<=",
            Side::AtLeast => ">=",
        };
        let limit = format!("{sign} {}", format_value(target.limit, target.unit));
        let measured = format_value(target.measured, target.unit);
        let verdict = if target.is_met() { "ok" } else { "not ok" };
        line(&mut text, format_args!("  {}", target.name));
        line(
            &mut text,
            format_args!("    {:54} {limit:>14} {measured:>12}  {verdict}", target.of),
        );
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("text takes everything");
}

/// One object: the machine, and every section with its figures and targets in base units.
pub(crate) fn json(sections: &[Section], machine: Value) -> String {
    let sections: Vec<_> = sections
        .iter()
        .map(|section| {
            let mut figures = Map::new();
            for figure in &section.figures {
                let value = json!({ "value": figure.value, "unit": unit_name(figure.unit) });
                figures.insert(figure.name.clone(), value);
            }
            let targets: Vec<_> = section.targets.iter().map(target_json).collect();
            json!({ "name": section.name, "figures": figures, "targets": targets })
        })
        .collect();
    let report = json!({ "machine": machine, "sections": sections });
    format!("{report:#}\n")
}

fn target_json(target: &Target) -> Value {
    json!({
        "name": target.name,
        "of": target.of,
        "rule": match target.side {
            Side::AtMost => "at most",
            Side::AtLeast => "at least",
        },
        "limit": target.limit,
        "measured": target.measured,
        "unit": unit_name(target.unit),
        "ok": target.is_met(),
    })
}

const fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "ns",
        Unit::Bytes => "B",
        Unit::BytesPerSecond => "B/s",
        Unit::PerSecond => "1/s",
        Unit::Ratio => "1",
    }
}

/// With three digits and a unit that suits.
pub(crate) fn format_value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Nanoseconds => scaled(value, &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")]),
        Unit::Bytes => {
            let units = [
                (1073741824.0, "GiB"),
                (1048576.0, "MiB"),
                (1024.0, "KiB"),
                (1.0, "B"),
            ];
            scaled(value, &units)
        }
        Unit::BytesPerSecond => {
            let units = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")];
            scaled(value, &units)
        }
        Unit::PerSecond => scaled(value, &[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")]),
        Unit::Ratio => format!("{value:.2}"),
    }
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let smallest = units[units.len() - 1];
    let fits = |(factor, _): &&(f64, &str)| value >= *factor;
    let (factor, name) = *units.iter().find(fits).unwrap_or(&smallest);
    let scaled = value / factor;
    let decimals = match scaled {
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        let mut section = Section::new("flight");
        section.figure("height", 2_500_000.0, Unit::Nanoseconds);
        section.target(Target {
            name: "speed".into(),
            of: "sound",
            side: Side::AtLeast,
            limit: 1.0,
            measured: 0.4,
            unit: Unit::Ratio,
        });
        section
    }

    #[test]
    fn values_have_three_digits_and_a_unit_that_suits() {
        assert_eq!(format_value(161_200.0, Unit::Nanoseconds), "161 us");
        assert_eq!(format_value(2.0 * 1024.0 * 1024.0, Unit::Bytes), "2.00 MiB");
        assert_eq!(format_value(66.9e6, Unit::BytesPerSecond), "66.9 MB/s");
        assert_eq!(format_value(1_700_000.0, Unit::PerSecond), "1.70 M/s");
        assert_eq!(format_value(0.0, Unit::Bytes), "0.00 B");
    }

    #[test]
    fn table_says_what_is_missed() {
        let text = table(&[section()]);
        assert!(text.contains("2.50 ms"), "{text}");
        assert!(
            text.contains(">= 1.00") && text.contains("not ok"),
            "{text}"
        );
    }

    #[test]
    fn json_is_in_base_units() {
        let text = json(&[section()], json!({ "cores": 2 }));
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["machine"]["cores"], 2);
        assert_eq!(
            report["sections"][0]["figures"]["height"]["value"],
            2_500_000.0
        );
        assert_eq!(report["sections"][0]["targets"][0]["ok"], false);
    }
}
