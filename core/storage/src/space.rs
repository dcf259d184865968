//! How much room the disk has.

use std::{io, path::Path};

use crate::Error;

/// Bytes that may still be written into files below `directory`, by a user that is not root.
///
/// # Errors
/// What the operating system says.
pub fn free_space(directory: &Path) -> Result<u64, Error> {
    let found = rustix::fs::statvfs(directory)
        .map_err(io::Error::from)
        .map_err(Error::io("ask for the free space of", directory))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}
