//! How long the disk takes for a flush.

use std::{fs, os::unix::fs::FileExt, path::Path, time::Duration, time::Instant};

use crate::{Error, journal_files::zero, paths::create_file};

/// Bytes of a probe's write.
const BLOCK: [u8; 4096] = [0x5A; 4096];

/// How long a 4-KiB write and its flush took, into a file of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushProbe {
    /// Half took less.
    pub median: Duration,
    /// The longest.
    pub slowest: Duration,
}

/// Writes and flushes 4 KiB `count` times, in a temporary file of `directory`.
///
/// # Errors
/// What the operating system says.
pub fn probe_flush(directory: &Path, count: usize) -> Result<FlushProbe, Error> {
    assert!(count > 0);
    let path = directory.join("flush-probe.new");
    let file = create_file(&path).map_err(Error::io("create", &path))?;
    let probed = (|| {
        zero(&file, 0, (BLOCK.len() * count) as u64)?;
        file.sync_all()?;
        let mut times = Vec::with_capacity(count);
        for index in 0..count as u64 {
            let start = Instant::now();
            file.write_all_at(&BLOCK, index * BLOCK.len() as u64)?;
            file.sync_data()?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(FlushProbe {
            median: times[count / 2],
            slowest: times[count - 1],
        })
    })();
    // A probe that is left behind does no harm.
    let _ = fs::remove_file(&path);
    probed.map_err(Error::io("write", &path))
}
