//! Why a command fails, in words.

use std::{fmt, io, path::Path};

/// What is told on standard error before the command ends with a code other than 0.
#[derive(Debug)]
pub(crate) struct Problem {
    text: String,
    /// What can be done about it.
    hint: Option<String>,
    /// The exit code.
    pub(crate) code: u8,
}

/// Failed.
pub(crate) const FAILED: u8 = 1;
/// The command line, environment or configuration is wrong.
pub(crate) const USAGE: u8 = 2;
/// Ended by ctrl-C or SIGTERM before it was done; the number that a shell has for ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

impl Problem {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hint: None,
            code: FAILED,
        }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self {
            code: USAGE,
            ..Self::new(text)
        }
    }

    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::new(format!("{}: {error}", path.display()))
    }

    /// What failed, in words, without what can be done about it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The same with other words.
    pub(crate) fn with_text(self, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..self
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cohort: {}", self.text)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<cohort::Error> for Problem {
    fn from(error: cohort::Error) -> Self {
        let problem = Self::new(error.to_string());
        match &error {
            cohort::Error::Unreachable { .. } => problem.with_hint(
                "is the server running there? Another address: --address or COHORT_ADDRESS",
            ),
            cohort::Error::Address(_) | cohort::Error::Invalid { .. } => Self {
                code: USAGE,
                ..problem
            },
            _ => match error.code() {
                Some(code) => problem.with_hint(code.advice()),
                None => problem,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Problem;

    #[test]
    fn problems_say_what_can_be_done() {
        let error = cohort::Error::Refused {
            code: cohort::ErrorCode::StreamNotFound,
            text: "no stream \"shop\"".to_string(),
        };
        let expected = "cohort: no stream \"shop\" (StreamNotFound, 3001)\n  \
            hint: Correct the name or id, or create the stream.";
        assert_eq!(Problem::from(error).to_string(), expected);
    }
}
