//! A file system of its own, whose power can be cut.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rustix::{
    fs::{FallocateFlags, fallocate, statvfs},
    io::Errno,
};
use tempfile::TempDir;

/// Asks ext4 to shut down at once, and to flush neither its log nor anything else: whatever was not flushed
/// before is lost. There is no program for it that is installed everywhere; perl nearly is.
const SHUT_DOWN: &str = r#"
    sysopen(my $directory, $ARGV[0], 0) or die "open: $!";
    my $no_flush = pack("L", 2);
    ioctl($directory, 0x8004587D, $no_flush) or die "EXT4_IOC_SHUTDOWN: $!";
"#;

/// An ext4 file system in a file. It is unmounted when dropped; no process may use it then.
#[derive(Debug)]
pub struct Volume {
    directory: TempDir,
    mount: PathBuf,
    is_frozen: bool,
}

impl Volume {
    /// Makes and mounts one. Only root may, and not everywhere: `None` where it cannot be done, with a
    /// notice on standard error.
    #[must_use]
    pub fn mount(mebibytes: u64) -> Option<Self> {
        match Self::try_mount(mebibytes) {
            Ok(volume) => Some(volume),
            Err(reason) => {
                eprintln!("SKIPPED: a file system of its own is needed: {reason}");
                None
            }
        }
    }

    fn try_mount(mebibytes: u64) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root may mount one".to_owned());
        }
        run(Command::new("perl").args(["-e", "exit 0"]))?;
        let directory =
            TempDir::with_prefix("cohort-volume-").map_err(|error| error.to_string())?;
        let image = directory.path().join("image");
        let mount = directory.path().join("mount");
        fs::create_dir(&mount).map_err(|error| error.to_string())?;
        let made = fs::File::create(&image).and_then(|file| file.set_len(mebibytes << 20));
        made.map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let volume = Self {
            directory,
            mount,
            is_frozen: false,
        };
        volume.attach()?;
        Ok(volume)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Cuts the power: what is not flushed is lost, and everything fails from now on.
    ///
    /// # Panics
    /// When the file system cannot be shut down.
    pub fn cut_power(&self) {
        run(Command::new("perl")
            .args(["-e", SHUT_DOWN])
            .arg(&self.mount))
        .expect("shut the file system down");
    }

    /// Mounts it again after [`Volume::cut_power`]. No process may use it.
    ///
    /// # Panics
    /// When it cannot be unmounted or mounted.
    pub fn restore_power(&self) {
        self.detach().expect("unmount");
        self.attach().expect("mount");
    }

    /// Takes space away, so that only so many bytes are left, or as near to it as blocks allow.
    ///
    /// # Panics
    /// When a file cannot be made.
    pub fn occupy(&self, left: u64) {
        let path = self.occupant();
        let file = fs::File::options().create(true).append(true).open(path);
        let file = file.expect("make a file");
        loop {
            let free = self.free();
            let size = file.metadata().expect("it is open").len();
            // Half of what is too much, in case the file system needs some itself.
            let more = match free.saturating_sub(left) {
                0..4096 => break,
                over => (over / 2).max(4096),
            };
            let made = fallocate(&file, FallocateFlags::empty(), size, more);
            if made == Err(Errno::NOSPC) {
                break;
            }
            made.expect("take the space");
        }
    }

    /// Gives back what [`Volume::occupy`] took.
    ///
    /// # Panics
    /// When it took nothing.
    pub fn vacate(&self) {
        fs::remove_file(self.occupant()).expect("there is an occupant");
    }

    /// Bytes that may still be written.
    ///
    /// # Panics
    /// When it is not mounted.
    #[must_use]
    pub fn free(&self) -> u64 {
        let found = statvfs(&self.mount).expect("it is mounted");
        found.f_bavail * found.f_frsize
    }

    fn occupant(&self) -> PathBuf {
        self.mount.join("occupant")
    }

    /// Lets every write wait until [`Volume::thaw`].
    ///
    /// # Panics
    /// When the file system cannot be frozen.
    pub fn freeze(&mut self) {
        run(Command::new("fsfreeze").arg("-f").arg(&self.mount)).expect("freeze");
        self.is_frozen = true;
    }

    /// Ends [`Volume::freeze`].
    ///
    /// # Panics
    /// When it was not frozen.
    pub fn thaw(&mut self) {
        run(Command::new("fsfreeze").arg("-u").arg(&self.mount)).expect("thaw");
        self.is_frozen = false;
    }

    fn attach(&self) -> Result<(), String> {
        let image = self.directory.path().join("image");
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(image)
            .arg(&self.mount))
    }

    fn detach(&self) -> Result<(), String> {
        run(Command::new("umount").arg(&self.mount))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.is_frozen {
            let _ = run(Command::new("fsfreeze").arg("-u").arg(&self.mount));
        }
        if let Err(reason) = self.detach() {
            eprintln!("{} stays mounted: {reason}", self.mount.display());
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let Output { status, stderr, .. } = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&stderr);
    Err(format!("{program}: {status}: {}", said.trim()))
}
