//! A folder of small files that only this user may read and write.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::process::files::{self, Accept};

/// The maximum size of a file, in bytes.
const LARGEST: u64 = 4 << 20;
/// The name of the file with the salt.
const SALT: &str = "salt";
/// The size of the salt, in bytes.
const SALT_BYTES: usize = 32;
/// The start of the name of a file that is being written.
const UNFINISHED: &str = ".writing-";
/// After this time the process that was writing a file has ended.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A folder of files that this module writes.
pub(super) struct CacheFolder {
    path: PathBuf,
    /// The extension of its files: others are neither read nor removed.
    extension: &'static str,
}

impl CacheFolder {
    /// A folder, which need not exist.
    ///
    /// # Errors
    /// If it, or the folder above it, can be written by another user, or is not a folder.
    pub fn open(path: PathBuf, extension: &'static str) -> Result<Self, String> {
        for folder in [path.parent().unwrap_or(&path), &path] {
            match fs::metadata(folder) {
                Ok(found) if !found.is_dir() => return Err(format!("{} is not a folder", folder.display())),
                Ok(found) if !is_ours(&found) => {
                    return Err(format!(
                        "{} belongs to another user, or others may write to it",
                        folder.display()
                    ));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("{}: {error}", folder.display())),
            }
        }
        Ok(CacheFolder { path, extension })
    }

    /// The content of a file; `None` if there is none, or it is not one of this user.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.path.join(name);
        let found = fs::symlink_metadata(&path).ok()?;
        if !found.is_file() || !is_ours(&found) {
            return None;
        }
        files::read(&path, Accept::Regular, LARGEST).ok()
    }

    /// Replaces a file as a whole, if that is possible.
    pub fn write(&self, name: &str, text: &str) {
        if text.len() as u64 <= LARGEST {
            // Without a cache, the next command asks again.
            let _ = self.try_write(name, text.as_bytes());
        }
    }

    fn try_write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.write_unfinished(bytes)?;
        let renamed = fs::rename(&unfinished, self.path.join(name));
        if renamed.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        renamed
    }

    /// Writes a file under a name of its own.
    fn write_unfinished(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        create_folder(&self.path)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{UNFINISHED}{}-{number}", std::process::id());
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        private(&mut options);
        let mut file = match options.open(&path) {
            // An earlier process with this id was ended while it was writing.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                options.open(&path)?
            }
            opened => opened?,
        };
        let written = file.write_all(bytes);
        if let Err(error) = written {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(path)
    }

    /// The salt of the folder; the first call creates it.
    pub fn salt(&self) -> Result<Vec<u8>, String> {
        let known = || self.read(SALT).filter(|salt| salt.len() == SALT_BYTES);
        if let Some(salt) = known() {
            return Ok(salt);
        }
        let mut salt = [0; SALT_BYTES];
        let random = SystemRandom::new().fill(&mut salt);
        random.map_err(|_| "this machine has no random numbers".to_owned())?;
        let shown = self.path.display();
        let failed = |error: io::Error| format!("cannot write to {shown}: {error}");
        let path = self.path.join(SALT);
        let unfinished = self.write_unfinished(&salt).map_err(failed)?;
        // Of two processes, the first one decides.
        let linked = fs::hard_link(&unfinished, &path);
        let _ = fs::remove_file(&unfinished);
        if let Some(salt) = known() {
            return Ok(salt);
        }
        if linked.is_err() {
            // The file there is not a salt, or this file system has no links.
            self.try_write(SALT, &salt).map_err(failed)?;
        }
        Ok(salt.to_vec())
    }

    /// Removes the oldest files until at most so many, with so many bytes, are left, and files that a process did not
    /// finish.
    pub fn trim(&self, most_bytes: u64, most_files: usize) {
        let Ok(folder) = fs::read_dir(&self.path) else {
            return;
        };
        let now = SystemTime::now();
        let mut known: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in folder.flatten() {
            let Ok(found) = entry.metadata() else { continue };
            let written = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let path = entry.path();
            if path.extension() == Some(OsStr::new(self.extension)) && found.is_file() {
                known.push((written, found.len(), path));
            } else if entry.file_name().to_string_lossy().starts_with(UNFINISHED)
                && now.duration_since(written).is_ok_and(|age| age > ABANDONED)
            {
                let _ = fs::remove_file(path);
            }
        }
        known.sort();
        let (mut bytes, mut files) = (known.iter().map(|(_, bytes, _)| bytes).sum::<u64>(), known.len());
        for (_, length, path) in known {
            if bytes <= most_bytes && files <= most_files {
                break;
            }
            let _ = fs::remove_file(path);
            bytes = bytes.saturating_sub(length);
            files -= 1;
        }
    }
}

#[cfg(unix)]
fn is_ours(found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
}

#[cfg(not(unix))]
fn is_ours(_: &Metadata) -> bool {
    // %LOCALAPPDATA% is only accessible to its user.
    true
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
}

#[cfg(not(unix))]
fn private(_: &mut OpenOptions) {}

/// Creates a folder and those above it; new ones are only accessible to this user.
fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
