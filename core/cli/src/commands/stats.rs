//! `cohort stats`.

use cohort::Counter;
use serde_json::{Map, Value};

use crate::{
    arguments::Format,
    output::{Cell, Column, Table, json},
};

/// The counters of a node: a table, or an object of numbers by name.
pub(super) fn show(counters: &[Counter], format: Format) -> String {
    const COLUMNS: &[Column] = &[Column("counter"), Column("value")];
    match format {
        Format::Table => {
            let mut table = Table::new(COLUMNS);
            for counter in counters {
                table.row(vec![
                    Cell::Text(counter.name.clone()),
                    Cell::Number(counter.value),
                ]);
            }
            table.table()
        }
        Format::Json => {
            let numbers = counters
                .iter()
                .map(|counter| (counter.name.clone(), Value::from(counter.value)));
            json(&Value::Object(numbers.collect::<Map<_, _>>()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counter, Format, show};
    use crate::golden::assert_golden;

    #[test]
    fn counters_are_shown_by_name() {
        let counter = |name: &str, value| Counter {
            name: name.to_string(),
            value,
        };
        let counters = [counter("polls", 12), counter("messages_sent", 120_000)];
        assert_golden("stats.txt", &show(&counters, Format::Table));
        assert_golden("stats.json", &show(&counters, Format::Json));
    }
}
