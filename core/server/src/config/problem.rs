//! What is said about a configuration that is not taken.

use std::fmt;

/// Where a value, or a mistake, comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A file, and the line in it.
    File {
        /// Its name.
        name: String,
        /// From 1; 0 when it is about the file as a whole.
        line: usize,
    },
    /// The command line.
    CommandLine,
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { name, line: 0 } => f.write_str(name),
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::CommandLine => f.write_str("command line"),
            Self::Environment { variable } => write!(f, "environment {variable}"),
        }
    }
}

/// One mistake, with all that is needed to put it right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub origin: Origin,
    /// What is wrong, with key and value where there are such, and what is allowed instead.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}

/// Of `known`, what somebody who wrote `word` may have meant.
pub(super) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = known
        .map(|candidate| (distance(word, candidate), candidate))
        .min();
    match nearest {
        Some((distance, candidate)) if distance <= tolerated(word, candidate) => {
            format!("; did you mean {candidate}?")
        }
        _ => String::new(),
    }
}

/// How many letters may be wrong. Whole words that are the same say nothing about the others, and in a
/// short one few letters make another word.
fn tolerated(word: &str, candidate: &str) -> usize {
    let same = word
        .bytes()
        .zip(candidate.bytes())
        .take_while(|(a, b)| a == b);
    let same = same.count();
    let ends_word = |byte: &u8| matches!(byte, b'.' | b'_');
    let words = candidate.as_bytes()[..same].iter().rposition(ends_word);
    let rest = candidate.len() - words.map_or(0, |end| end + 1);
    1 + rest / 4
}

/// How many letters must be put in, left out or changed.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_offered_and_far_ones_are_not() {
        let known = || ["heartbeat_interval", "session_timeout"].into_iter();
        assert_eq!(
            did_you_mean("hartbeat_intervall", known()),
            "; did you mean heartbeat_interval?"
        );
        assert_eq!(did_you_mean("colour", known()), "");
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn short_word_behind_a_table_is_not_excused_by_the_table() {
        let meant = |word, known: &[&'static str]| did_you_mean(word, known.iter().copied());
        assert_eq!(meant("node.foo", &["node.logs", "node.address"]), "");
        assert_eq!(
            meant("COHORT__NODE__FOO", &["COHORT__NODE__LOGS__LEVEL"]),
            ""
        );
        assert_eq!(
            meant("node.lgos", &["node.logs", "node.address"]),
            "; did you mean node.logs?"
        );
        assert_eq!(
            meant("node.shard", &["node.shards"]),
            "; did you mean node.shards?"
        );
        assert_eq!(
            meant("nod.shards", &["node.shards"]),
            "; did you mean node.shards?"
        );
    }
}
