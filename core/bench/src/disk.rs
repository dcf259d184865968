//! What the disk does when nothing but the file system is in between.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::{During, Error},
    latency::Latency,
    noise::noise,
};

/// Files like those of a journal: filled with zeros and flushed before use, written from front to back,
/// then used again in turn.
#[derive(Debug)]
pub(crate) struct ProbeFiles {
    files: Vec<File>,
    file_size: u64,
    current: usize,
    position: u64,
    buffer: Vec<u8>,
}

/// What is written at once to fill a file.
const FILL: usize = 1 << 20;

impl ProbeFiles {
    /// Makes `count` files of `file_size` bytes in `directory`, which are gone when the directory is.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn create(
        directory: &Path,
        name: &str,
        (count, file_size): (usize, u64),
    ) -> Result<Self, Error> {
        let zeros = vec![0; FILL];
        let mut files = Vec::new();
        for index in 0..count {
            let path = directory.join(format!("{name}-{index}"));
            let file = File::create(&path).during(format!("create {}", path.display()))?;
            let mut position = 0;
            while position < file_size {
                file.write_all_at(&zeros, position)
                    .during(format!("fill {}", path.display()))?;
                position += FILL as u64;
            }
            file.sync_all()
                .during(format!("flush {}", path.display()))?;
            files.push(file);
        }
        Ok(Self {
            files,
            file_size,
            current: 0,
            position: 0,
            buffer: noise(1, FILL),
        })
    }

    /// Writes `size` bytes behind those written last, and flushes them.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn write_flushed(&mut self, size: usize) -> Result<Duration, Error> {
        if self.buffer.len() < size {
            self.buffer = noise(1, size);
        }
        if self.position + size as u64 > self.file_size {
            self.position = 0;
            self.current = (self.current + 1) % self.files.len();
        }
        let file = &self.files[self.current];
        let start = Instant::now();
        file.write_all_at(&self.buffer[..size], self.position)
            .during("write to a probe file")?;
        file.sync_data().during("flush a probe file")?;
        self.position += size as u64;
        Ok(start.elapsed())
    }

    /// Latencies of writes of `size` bytes, each flushed, one after the other, for so long.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn latency(&mut self, size: usize, length: Duration) -> Result<Latency, Error> {
        raised(|| {
            let mut latency = Latency::new();
            let start = Instant::now();
            while start.elapsed() < length {
                latency.record(self.write_flushed(size)?);
            }
            Ok(latency)
        })
    }

    /// Bytes per second of `total` bytes in writes of `size` bytes, each flushed.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn bandwidth(&mut self, size: usize, total: u64) -> Result<f64, Error> {
        raised(|| {
            let mut written = 0;
            let start = Instant::now();
            while written < total {
                self.write_flushed(size)?;
                written += size as u64;
            }
            Ok(written as f64 / start.elapsed().as_secs_f64())
        })
    }
}

/// The same latencies of several writers at once, each with files of its own: what a node's journal finds where
/// those of others are on the same disk.
///
/// # Errors
/// `Io`.
pub(crate) fn latency_of_several(
    writers: &mut [ProbeFiles],
    size: usize,
    length: Duration,
) -> Result<Latency, Error> {
    let latencies: Vec<Result<Latency, Error>> = thread::scope(|scope| {
        let running = writers.iter_mut().map(|files| {
            let work = || files.latency(size, length);
            scope.spawn(work)
        });
        let running: Vec<_> = running.collect();
        let done = running.into_iter();
        done.map(|it| it.join().expect("a probe does not panic"))
            .collect()
    });
    let mut all = Latency::new();
    for latency in latencies {
        all.merge(&latency?);
    }
    Ok(all)
}

/// Works on a thread with the priority that the server's journal has: else a busy machine would slow the
/// probe and not the journal, which flatters the server.
fn raised<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let raised = || {
        let _ = storage::raise_priority();
        work()
    };
    thread::scope(|scope| scope.spawn(raised).join().expect("a probe does not panic"))
}

/// The kind of the file system that holds `directory`, as the mount table names it.
pub(crate) fn file_system(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (point, kind) = (fields.next()?, fields.next()?);
            directory
                .starts_with(point)
                .then(|| (point.len(), kind.to_owned()))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_files_are_used_again_in_turn() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = ProbeFiles::create(directory.path(), "probe", (2, 1 << 20)).unwrap();
        for _ in 0..5 {
            files.write_flushed(400 * 1024).unwrap();
        }
        assert_eq!((files.current, files.position), (0, 400 * 1024));
        for index in 0..2 {
            let path = directory.path().join(format!("probe-{index}"));
            assert_eq!(path.metadata().unwrap().len(), 1 << 20);
        }
    }

    #[test]
    fn file_system_is_that_of_the_longest_mount_point() {
        assert_eq!(
            file_system(Path::new("/proc/self")).as_deref(),
            Some("proc")
        );
        assert_eq!(file_system(Path::new("/no/such/directory")), None);
    }
}
