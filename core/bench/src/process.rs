//! What the kernel tells of a process: its memory, its CPU time, its bytes written.

use std::{collections::BTreeMap, fs};

use crate::error::{During, Error};

/// Figures of one process at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// Bytes that the process has handed to the file system. The kernel's own count of what reaches the
    /// disk, `write_bytes`, is of no use: where the page cache holds large folios it counts all of a
    /// folio for every 4 KiB written to it.
    pub(crate) written: u64,
    /// CPU time of each thread, nanoseconds, summed up by the threads' names.
    pub(crate) cpu: BTreeMap<String, u64>,
}

impl Usage {
    /// Reads the figures of a process.
    ///
    /// # Errors
    /// `Io` when there is no such process, or it belongs to somebody else.
    pub(crate) fn of(pid: u32) -> Result<Self, Error> {
        Ok(Self {
            written: field(pid, "io", "wchar:")?,
            cpu: cpu(pid)?,
        })
    }

    /// What was added since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut cpu = self.cpu.clone();
        for (name, nanoseconds) in &mut cpu {
            let earlier = before.cpu.get(name).copied().unwrap_or(0);
            *nanoseconds = nanoseconds.saturating_sub(earlier);
        }
        Self {
            written: self.written.saturating_sub(before.written),
            cpu,
        }
    }
}

/// CPU time of the threads of this process whose names begin so, nanoseconds.
///
/// # Errors
/// `Io`.
pub(crate) fn own_cpu(prefix: &str) -> Result<u64, Error> {
    let cpu = cpu(std::process::id())?;
    let named = cpu.iter().filter(|(name, _)| name.starts_with(prefix));
    Ok(named.map(|(_, nanoseconds)| nanoseconds).sum())
}

/// Resident bytes of a process.
///
/// # Errors
/// `Io`.
pub(crate) fn resident(pid: u32) -> Result<u64, Error> {
    Ok(field(pid, "status", "VmRSS:")? * 1024)
}

/// The number behind a name in one of the kernel's files about a process.
fn field(pid: u32, file: &str, name: &str) -> Result<u64, Error> {
    let path = format!("/proc/{pid}/{file}");
    let text = fs::read_to_string(&path).during(format!("read {path}"))?;
    let number = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| Error::Server(format!("{path} has no {name}")))
}

fn cpu(pid: u32) -> Result<BTreeMap<String, u64>, Error> {
    let path = format!("/proc/{pid}/task");
    let mut cpu = BTreeMap::new();
    for entry in fs::read_dir(&path).during(format!("read {path}"))? {
        let thread = entry.during(format!("read {path}"))?.path();
        // A thread may have ended since it was listed.
        let (Ok(name), Ok(times)) = (
            fs::read_to_string(thread.join("comm")),
            fs::read_to_string(thread.join("schedstat")),
        ) else {
            continue;
        };
        let running = times.split(' ').next().and_then(|time| time.parse().ok());
        *cpu.entry(name.trim_end().to_owned()).or_default() += running.unwrap_or(0);
    }
    Ok(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_figures_grow_with_what_is_done() {
        let pid = std::process::id();
        let before = Usage::of(pid).unwrap();
        let mut work = vec![1_u64; 1 << 20];
        (0..50).for_each(|n| {
            work.iter_mut()
                .for_each(|word| *word = word.wrapping_mul(n | 3))
        });
        assert_ne!(work[7], 1);
        let added = Usage::of(pid).unwrap().since(&before);
        assert!(added.cpu.values().sum::<u64>() > 0);
        assert!(resident(pid).unwrap() > 8 << 20);
    }

    #[test]
    fn absent_process_is_an_error() {
        let error = resident(u32::MAX).unwrap_err().to_string();
        assert!(error.contains("/proc/4294967295/status"), "{error}");
    }
}
