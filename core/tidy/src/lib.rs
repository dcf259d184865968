//! What the tree itself has to keep to: directions between crates, purity, sizes, names.
//!
//! The checks are tests (`tests/tidy.rs`); this file only holds the rules that they read.

/// A crate of the workspace and what it may rest on.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Directory below `core/`.
    pub directory: &'static str,
    /// Whether it is `#![no_std]` without I/O, clock, randomness or async.
    pub pure: bool,
    /// Crates of the workspace that it may depend on, directly.
    pub workspace: &'static [&'static str],
    /// Packages from outside that a pure crate may depend on. `no_std` does not keep a dependency that
    /// uses std out, so each is named here. Not checked for the others.
    pub outside: &'static [&'static str],
}

const fn pure(
    directory: &'static str,
    workspace: &'static [&'static str],
    outside: &'static [&'static str],
) -> Rule {
    Rule {
        directory,
        pure: true,
        workspace,
        outside,
    }
}

const fn shell(directory: &'static str, workspace: &'static [&'static str]) -> Rule {
    Rule {
        directory,
        pure: false,
        workspace,
        outside: &[],
    }
}

/// Every crate. Development dependencies are free.
pub const RULES: &[Rule] = &[
    pure(
        "wire",
        &[],
        &["bytemuck", "bytes", "serde", "thiserror", "twox-hash"],
    ),
    pure(
        "vsr",
        &["wire"],
        &["bytemuck", "bytes", "serde", "thiserror"],
    ),
    pure(
        "journal",
        &["wire"],
        &[
            "bytemuck",
            "bytes",
            "crc-fast",
            "crc32c",
            "thiserror",
            "twox-hash",
        ],
    ),
    pure("coordinator", &["wire"], &["serde", "thiserror"]),
    pure(
        "catalog",
        &["coordinator", "wire"],
        &["bytes", "serde", "thiserror", "twox-hash"],
    ),
    pure(
        "partition",
        &["wire"],
        &["bytemuck", "bytes", "serde", "thiserror", "twox-hash"],
    ),
    pure(
        "shard",
        &[
            "catalog",
            "coordinator",
            "journal",
            "partition",
            "vsr",
            "wire",
        ],
        &["blake2", "bytes", "serde", "thiserror"],
    ),
    pure("client", &["wire"], &["bytes", "thiserror"]),
    shell("storage", &["journal", "wire"]),
    shell("network", &["wire"]),
    shell(
        "server",
        &[
            "catalog",
            "journal",
            "network",
            "partition",
            "shard",
            "storage",
            "vsr",
            "wire",
        ],
    ),
    shell("sdk", &["client", "wire"]),
    shell("cli", &["cohort"]),
    shell(
        "simulator",
        &[
            "catalog",
            "client",
            "coordinator",
            "journal",
            "partition",
            "shard",
            "vsr",
            "wire",
        ],
    ),
    shell("integration", &["cohort", "wire"]),
    shell(
        "bench",
        &[
            "client",
            "cohort",
            "coordinator",
            "journal",
            "network",
            "storage",
            "wire",
        ],
    ),
    shell("tidy", &[]),
];

/// Lines that a source file may have.
pub const FILE_LINES_MAX: usize = 1_000;

/// Parts of file names that say nothing.
pub const BANNED_FILE_NAMES: &[&str] = &[
    "common", "helpers", "impls", "manager", "misc", "types", "util", "utils",
];

/// Words that do not stay in the code.
pub const BANNED_WORDS: &[&str] = &["FIXME", "XXX", "todo!(", "unimplemented!(", "HACK"];
