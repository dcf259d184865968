//! A run that fails, cut down: whatever can be left out so that it still fails in the same way.

use std::{
    env,
    io::{self, Write},
    process::Command,
};

use crate::case::{Case, Part, Without};

/// Milliseconds that a run has at the most until faults and work end.
const TIME_MAX: u64 = 8_192;

/// How often a time is halved.
const HALVINGS: u32 = 8;

/// Leaves out of a failing run what it fails without, and tells what is left.
///
/// Every attempt is a process of its own, since a run may fail by a panic.
///
/// # Errors
/// When no process can be started, nothing can be written, or the run does not fail.
pub fn shrink(case: &Case, output: &mut dyn Write) -> io::Result<Case> {
    let Some(failure) = attempt(case)? else {
        return Err(io::Error::other(format!("{case}: it does not fail")));
    };
    writeln!(output, "{case}\n  fails: {}", failure.text)?;
    let mut smaller = Shrinking {
        case: case.clone(),
        failure,
        output,
    };
    let (mut faults, mut work) = (TIME_MAX, TIME_MAX);
    let mut parts = case.parts();
    // What was needed at first may not be any more.
    for _ in 0..2 {
        faults = smaller.shorten(Part::FaultsAfter, faults)?;
        work = smaller.shorten(Part::WorkAfter, work)?;
        let mut needed = Vec::new();
        for part in parts {
            if !smaller.leave_out(&part)? {
                needed.push(part);
            }
        }
        parts = needed;
    }
    let Shrinking { case, failure, .. } = smaller;
    writeln!(output, "cut down: {case}\n  fails: {}", failure.text)?;
    Ok(case)
}

struct Shrinking<'a> {
    case: Case,
    failure: Failure,
    output: &'a mut dyn Write,
}

impl Shrinking<'_> {
    /// Leaves a part out if the run fails without it in the same way.
    fn leave_out(&mut self, part: &Part) -> io::Result<bool> {
        let case = Case {
            without: self.case.without.and(*part),
            ..self.case.clone()
        };
        let failure = attempt(&case)?;
        let Some(failure) = failure.filter(|it| it.kind() == self.failure.kind()) else {
            return Ok(false);
        };
        writeln!(self.output, "  and without {part}")?;
        (self.case, self.failure) = (case, failure);
        Ok(true)
    }

    /// Finds a time before `high`, as early as may be, after which nothing of a kind is needed.
    fn shorten(&mut self, after: fn(u64) -> Part, mut high: u64) -> io::Result<u64> {
        let mut low = 0;
        for _ in 0..HALVINGS {
            let middle = u64::midpoint(low, high);
            match middle > low && self.leave_out(&after(middle))? {
                true => high = middle,
                false => low = middle,
            }
        }
        // Of several times the earliest counts; the others say nothing.
        let is_later = |part: &Part| *part > after(high) && *part <= after(u64::MAX);
        self.case.without.forget(is_later);
        Ok(high)
    }
}

/// How a run fails.
struct Failure {
    text: String,
}

impl Failure {
    /// What it has in common with other failures by the same thing: the words, not the numbers.
    fn kind(&self) -> String {
        let words = self.text.split(|c: char| !c.is_alphabetic());
        let words = words.filter(|word| word.len() > 2).take(8);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Runs a case in a process of its own; none when it is good.
fn attempt(case: &Case) -> io::Result<Option<Failure>> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["run", "--seed", &case.seed.to_string()]);
    command.args(["--replicas", &case.replicas.to_string()]);
    if case.without != Without::default() {
        command.args(["--without", &case.without.to_string()]);
    }
    let output = command.output()?;
    if output.status.success() {
        return Ok(None);
    }
    let (told, cried) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let failed = told.lines().find_map(|line| line.strip_prefix("failed: "));
    let panicked = cried.lines().skip_while(|line| !line.contains("panicked"));
    let text = match failed {
        Some(text) => text.to_string(),
        None => panicked.take(2).collect::<Vec<_>>().join(" "),
    };
    if text.is_empty() {
        return Err(io::Error::other(format!("{case}: {cried}")));
    }
    Ok(Some(Failure { text }))
}

#[cfg(test)]
mod tests {
    use super::Failure;

    #[test]
    fn failures_that_differ_in_numbers_are_alike() {
        let kind = |text: &str| Failure { text: text.into() }.kind();
        let first = kind("group 3 serves at op 17, 18 was applied");
        assert_eq!(first, kind("group 12 serves at op 4, 90 was applied"));
        assert_ne!(first, kind("group 3: back to op 17"));
    }
}
