//! The compio runtime of a shard's thread.

use std::io;

use compio::{
    driver::{DriverType, ProactorBuilder},
    runtime::{Runtime, RuntimeBuilder},
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Submission entries of a ring. A turn of a busy shard submits a read and a write for each of its
/// connections; what does not fit costs one more system call, nothing else.
const RING_ENTRIES: u32 = 4096;

/// Tasks that a shard is prepared for before its task table grows.
const TASKS: usize = 1024;

/// Tasks that run before the kernel is asked for news: a turn's readers, the loop and the writers of a
/// busy shard, so that all their reads and writes are submitted at once.
const TASKS_PER_TURN: usize = 256;

/// What moves the bytes between sockets and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// io_uring, with completions handled on the thread that waits for them (Linux 6.0).
    IoUring,
    /// io_uring on a kernel that does not know those flags (Linux 5.15).
    IoUringPlain,
    /// epoll and one system call for each read and write.
    Polling,
}

impl Driver {
    /// The name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::IoUringPlain => "io_uring (old kernel)",
            Self::Polling => "polling",
        }
    }
}

/// The driver that every shard of this process uses.
#[derive(Clone, Debug)]
pub struct DriverChoice {
    /// The driver.
    pub driver: Driver,
    /// One sentence for the operator when it is not the fast one although nobody asked for that: why, and
    /// what it costs. To be printed once, not once per shard.
    pub warning: Option<String>,
}

/// Finds out what this machine allows, by building a ring and dropping it.
#[must_use]
pub fn choose_driver(force_polling: bool) -> DriverChoice {
    if force_polling {
        return DriverChoice {
            driver: Driver::Polling,
            warning: None,
        };
    }
    let Err(refusal) = build_runtime(Driver::IoUring) else {
        return DriverChoice {
            driver: Driver::IoUring,
            warning: None,
        };
    };
    if build_runtime(Driver::IoUringPlain).is_ok() {
        let warning = format!(
            "io_uring of this kernel lacks flags that spare interrupts ({refusal}); Linux 6.0 has them"
        );
        return DriverChoice {
            driver: Driver::IoUringPlain,
            warning: Some(warning),
        };
    }
    let warning = format!(
        "io_uring is refused ({refusal}), polling is used instead: each request costs 40-45 % more CPU. \
         In a container, allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp \
         profile; on a host, see /proc/sys/kernel/io_uring_disabled"
    );
    DriverChoice {
        driver: Driver::Polling,
        warning: Some(warning),
    }
}

/// Builds the runtime of the calling thread, which must be the one that runs it.
///
/// # Errors
/// What the kernel says when it refuses the ring or the poll descriptor.
pub fn build_runtime(driver: Driver) -> io::Result<Runtime> {
    let mut proactor = ProactorBuilder::new();
    proactor.capacity(RING_ENTRIES);
    match driver {
        Driver::IoUring => {
            proactor
                .driver_type(DriverType::IoUring)
                .single_issuer(true)
                .coop_taskrun(true)
                .taskrun_flag(true);
        }
        Driver::IoUringPlain => {
            proactor.driver_type(DriverType::IoUring);
        }
        Driver::Polling => {
            proactor.driver_type(DriverType::Poll);
        }
    }
    RuntimeBuilder::new()
        .with_proactor(proactor)
        .local_queue_size(TASKS)
        .event_interval(TASKS_PER_TURN)
        .build()
}

/// The cores that this process may run on.
///
/// # Errors
/// What the kernel says.
pub fn available_cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect())
}

/// Keeps the calling thread on `core`.
///
/// # Errors
/// When the core does not exist or the process may not use it.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forced_polling_is_no_reason_to_warn() {
        let choice = choose_driver(true);
        assert_eq!(choice.driver, Driver::Polling);
        assert!(choice.warning.is_none());
    }

    #[test]
    fn chosen_driver_runs_a_task() {
        let choice = choose_driver(false);
        assert_eq!(choice.warning.is_some(), choice.driver != Driver::IoUring);
        let runtime = build_runtime(choice.driver).expect("the choice was tried");
        assert_eq!(
            runtime.block_on(async { compio::runtime::spawn(async { 7 }).await.ok() }),
            Some(7)
        );
    }

    #[test]
    fn pinned_thread_has_one_core() {
        std::thread::spawn(|| {
            let core = available_cores().unwrap()[0];
            pin_to_core(core).unwrap();
            assert_eq!(available_cores().unwrap(), [core]);
            assert!(pin_to_core(CpuSet::MAX_CPU).is_err());
        })
        .join()
        .unwrap();
    }
}
