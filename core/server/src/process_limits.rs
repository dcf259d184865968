//! Limits that the system sets to this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors besides those of connections: segments, journal, listeners, rings.
const FILES_BESIDES: u64 = 1_024;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Files and sockets that may be open; `None`: without limit.
    pub open_files: Option<u64>,
    /// Bytes of memory that may be locked, the journal's buffers for example; `None`: without limit.
    pub locked_memory: Option<u64>,
    /// One sentence for the operator when fewer connections fit than are configured.
    pub warning: Option<String>,
}

/// Raises the limit of open files as far as is allowed, and says whether `connections` connections fit.
#[must_use]
pub fn check(connections: u64) -> ProcessLimits {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: found.maximum,
        maximum: found.maximum,
    };
    let open_files = if setrlimit(Resource::Nofile, raised).is_ok() {
        raised.current
    } else {
        found.current
    };
    ProcessLimits {
        open_files,
        locked_memory: getrlimit(Resource::Memlock).current,
        warning: open_files.and_then(|limit| warning(limit, connections)),
    }
}

fn warning(limit: u64, connections: u64) -> Option<String> {
    let needed = connections.saturating_add(FILES_BESIDES);
    (limit < needed).then(|| {
        format!(
            "{limit} files may be open, {needed} are needed for the connections that are configured; \
             raise nofile (ulimit -n, LimitNOFILE=) or lower node.connections.per_shard"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_files_are_a_warning_with_both_numbers() {
        assert_eq!(warning(20_000, 10_000), None);
        let text = warning(1_024, 10_000).unwrap();
        assert!(text.contains("1024") && text.contains("11024"), "{text}");
    }

    #[test]
    fn soft_limit_is_raised_to_the_hard_one() {
        let limits = check(1);
        assert_eq!(limits.open_files, getrlimit(Resource::Nofile).maximum);
    }
}
