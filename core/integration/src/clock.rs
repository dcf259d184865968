//! A wall clock that a test sets, for one server.

use std::{fs, path::PathBuf, process::Command};

use tempfile::TempDir;

use crate::Site;

/// What is preloaded into the server.
const SOURCE: &str = include_str!("clock.c");

/// Names the file that says by how much the clock is off.
const VARIABLE: &str = "COHORT_TEST_CLOCK";

/// The wall clock of a server. Its other clocks are right.
#[derive(Debug)]
pub struct Clock {
    directory: TempDir,
    library: PathBuf,
}

impl Clock {
    /// Makes one that is right. That takes a compiler for C and a linker that preloads: `None` where there is none,
    /// with a notice on standard error.
    #[must_use]
    pub fn make() -> Option<Self> {
        match Self::try_make() {
            Ok(clock) => Some(clock),
            Err(reason) => {
                eprintln!("SKIPPED: a wall clock of its own is needed: {reason}");
                None
            }
        }
    }

    fn try_make() -> Result<Self, String> {
        if !cfg!(all(target_os = "linux", target_env = "gnu")) {
            return Err("only programs of glibc take one".to_owned());
        }
        let directory = TempDir::with_prefix("cohort-clock-").map_err(|error| error.to_string())?;
        let (source, library) = (
            directory.path().join("clock.c"),
            directory.path().join("clock.so"),
        );
        fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(&source);
        let output = compiler.output().map_err(|error| format!("cc: {error}"))?;
        if !output.status.success() {
            return Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let clock = Self { directory, library };
        clock.set(0);
        Ok(clock)
    }

    /// Sets it so many seconds forward from the right time, or back, also while the server runs.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set(&self, seconds: i64) {
        let path = self.file();
        // Whoever looks meanwhile sees all of one or the other.
        let new = path.with_extension("new");
        fs::write(&new, format!("{seconds}\n")).expect("write a file");
        fs::rename(new, path).expect("rename a file");
    }

    /// The site of a server that goes by this clock, which has to live as long.
    #[must_use]
    pub fn rule(&self, site: Site) -> Site {
        let (library, file) = (self.library.display(), self.file());
        site.with_variable("LD_PRELOAD", &library.to_string())
            .with_variable(VARIABLE, &file.display().to_string())
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("seconds")
    }
}
