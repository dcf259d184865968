//! Checks of the tree itself.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use tidy::{BANNED_FILE_NAMES, BANNED_WORDS, FILE_LINES_MAX, RULES, Rule};

fn core_directory() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("tidy lies in core/").to_path_buf()
}

fn crate_directories() -> BTreeSet<String> {
    fs::read_dir(core_directory())
        .expect("the tree can be read")
        .map(|entry| entry.expect("the tree can be read"))
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| {
            entry
                .file_name()
                .into_string()
                .expect("the tree can be read")
        })
        .collect()
}

fn sources_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("the tree can be read").path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                sources_below(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    sources_below(&core_directory(), &mut found);
    found.sort();
    found
}

/// Names below `[dependencies]` (and `[target.….dependencies]`) of a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[dependencies]"
                || line.starts_with("[target.") && line.ends_with(".dependencies]");
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            names.push(line[..end].to_string());
        }
    }
    names
}

fn rule(directory: &str) -> &'static Rule {
    RULES
        .iter()
        .find(|rule| rule.directory == directory)
        .unwrap_or_else(|| panic!("core/{directory} has no rule in core/tidy/src/lib.rs"))
}

/// The package name of a crate directory, where it differs.
fn package(directory: &str) -> &str {
    if directory == "sdk" {
        "cohort"
    } else {
        directory
    }
}

#[test]
fn crates_depend_only_downwards() {
    let workspace: BTreeSet<String> = crate_directories()
        .iter()
        .map(|directory| package(directory).to_string())
        .collect();
    for directory in crate_directories() {
        let rule = rule(&directory);
        let manifest = fs::read_to_string(core_directory().join(&directory).join("Cargo.toml"))
            .expect("the tree can be read");
        for dependency in dependencies(&manifest) {
            if workspace.contains(&dependency) {
                assert!(
                    rule.workspace.contains(&dependency.as_str()),
                    "core/{directory} must not depend on {dependency}"
                );
            } else if rule.pure {
                assert!(
                    rule.outside.contains(&dependency.as_str()),
                    "core/{directory} is pure and must not depend on {dependency}"
                );
            }
        }
    }
}

#[test]
fn pure_crates_are_no_std_and_without_unsafe() {
    for directory in crate_directories() {
        if !rule(&directory).pure {
            continue;
        }
        let root = fs::read_to_string(core_directory().join(&directory).join("src/lib.rs"))
            .expect("the tree can be read");
        for line in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(
                root.lines().any(|l| l == line),
                "core/{directory}/src/lib.rs lacks {line}"
            );
        }
    }
}

#[test]
fn only_storage_and_network_use_unsafe() {
    for path in sources() {
        let allowed = ["storage", "network", "tidy"]
            .iter()
            .any(|directory| path.starts_with(core_directory().join(directory)));
        let text = fs::read_to_string(&path).expect("the tree can be read");
        let found = text.lines().any(|line| {
            let line = line.trim_start();
            !line.starts_with("//") && (line.contains("unsafe {") || line.contains("unsafe fn"))
        });
        assert!(allowed || !found, "{} uses unsafe", path.display());
    }
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for path in sources() {
        let text = fs::read_to_string(&path).expect("the tree can be read");
        let lines = text.lines().count();
        assert!(
            lines <= FILE_LINES_MAX,
            "{}: {lines} lines, limit {FILE_LINES_MAX}",
            path.display()
        );
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("//!"),
            "{}: begins without a //! line",
            path.display()
        );
    }
}

#[test]
fn file_names_mean_something() {
    for path in sources() {
        let stem = path
            .file_stem()
            .expect("the tree can be read")
            .to_str()
            .expect("the tree can be read")
            .to_string();
        for banned in BANNED_FILE_NAMES {
            assert!(
                stem != *banned,
                "{}: name it after what it is about",
                path.display()
            );
        }
    }
}

#[test]
fn every_source_file_is_part_of_a_crate() {
    let all: String = sources()
        .iter()
        .map(|path| fs::read_to_string(path).expect("the tree can be read"))
        .collect();
    for path in sources() {
        let stem = path
            .file_stem()
            .expect("the tree can be read")
            .to_str()
            .expect("the tree can be read")
            .to_string();
        let parent = path.parent().expect("the tree can be read");
        let root = ["src", "tests", "bin", "benches", "examples", "fuzz_targets"]
            .iter()
            .any(|name| parent.file_name().is_some_and(|n| n == *name));
        let is_root = root
            && (parent.file_name().expect("the tree can be read") != "src"
                || ["lib", "main"].contains(&stem.as_str()));
        // Cargo makes a test of its own of tests/NAME/main.rs.
        let above = parent.parent().and_then(|above| above.file_name());
        let is_test = stem == "main" && above.is_some_and(|name| name == "tests");
        if is_root || is_test || stem == "build" {
            continue;
        }
        let name = if stem == "mod" {
            parent
                .file_name()
                .expect("the tree can be read")
                .to_str()
                .expect("the tree can be read")
                .to_string()
        } else {
            stem
        };
        assert!(
            all.lines()
                .any(|line| line.trim_end().ends_with(&format!("mod {name};"))),
            "{} belongs to no module",
            path.display()
        );
    }
}

#[test]
fn nothing_unfinished_stays() {
    for path in sources() {
        if path.starts_with(core_directory().join("tidy")) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("the tree can be read");
        for word in BANNED_WORDS {
            assert!(!text.contains(word), "{} contains {word}", path.display());
        }
    }
}

#[test]
fn tests_do_not_sleep() {
    for path in sources() {
        if path.starts_with(core_directory().join("tidy")) {
            continue;
        }
        let is_test = path.components().any(|part| part.as_os_str() == "tests")
            || path.file_stem().is_some_and(|stem| {
                stem.to_str()
                    .expect("the tree can be read")
                    .contains("tests")
            });
        if !is_test || path.starts_with(core_directory().join("integration")) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("the tree can be read");
        for call in ["thread::sleep", "time::sleep"] {
            assert!(
                !text.contains(call),
                "{}: waits by {call}; wait for the condition",
                path.display()
            );
        }
    }
}

#[test]
fn rules_name_only_crates_that_may_exist() {
    let names: BTreeSet<&str> = RULES.iter().map(|rule| package(rule.directory)).collect();
    for rule in RULES {
        for dependency in rule.workspace {
            assert!(
                names.contains(dependency),
                "{}: {dependency} has no rule",
                rule.directory
            );
        }
    }
}
