//! Where the programs under test are.

use std::{env, path::PathBuf};

/// The program of this name, built by the same profile into the same directory as the running test.
///
/// # Panics
/// When it is not there; the message says how to build it.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let test = env::current_exe().expect("a process knows its program");
    // target/<profile>/deps/<test>, or target/<profile>/<program>
    let directory = test.parent().expect("a program lies in a directory");
    let profile = match directory.file_name() {
        Some(name) if name == "deps" => directory.parent().expect("it lies in target"),
        _ => directory,
    };
    let path = profile.join(name);
    let release = if profile.ends_with("release") {
        " --release"
    } else {
        ""
    };
    assert!(
        path.is_file(),
        "{} is not built; build it with: cargo build --workspace --bins{release}",
        path.display()
    );
    path
}
