//! Replaces a file with new content: completely or not at all, with its mode, through symbolic links, and only if the
//! file still has the content that was read.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Why a file was not replaced; it has its old content. The caller names the file.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Another program wrote it in the meantime.
    #[error("the file was changed since it was read; nothing was written: run the command again")]
    Changed,
    /// It is a pipe or a device.
    #[error("not a regular file; nothing was written")]
    NotAFile,
    /// An error of the operating system.
    #[error("cannot write the file: {0}")]
    Io(io::Error),
}

/// Replaces the content of a file that had this content when it was read.
///
/// # Errors
/// See [`WriteError`].
pub fn replace(path: &Path, read: &[u8], new: &[u8]) -> Result<(), WriteError> {
    let failed = WriteError::Io;
    // The link stays; the file that it names is replaced.
    let target = fs::canonicalize(path).map_err(failed)?;
    let metadata = fs::metadata(&target).map_err(failed)?;
    if !metadata.is_file() {
        return Err(WriteError::NotAFile);
    }
    if metadata.permissions().readonly() {
        return Err(failed(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is read-only",
        )));
    }
    let (temporary, mut file) = create_next_to(&target).map_err(failed)?;
    let written = file
        .write_all(new)
        .and_then(|()| file.set_permissions(metadata.permissions()))
        .and_then(|()| file.sync_all());
    drop(file);
    let result = written.map_err(failed).and_then(|()| {
        // As late as possible: a change after this line is lost, as with every editor.
        if fs::read(&target).map_err(failed)? != read {
            return Err(WriteError::Changed);
        }
        fs::rename(&temporary, &target).map_err(failed)
    });
    if result.is_err() {
        // The error that matters is the first one.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// A new file in the folder of another one, so that a rename replaces that one.
fn create_next_to(target: &Path) -> io::Result<(PathBuf, File)> {
    let folder = target.parent().unwrap_or(Path::new("."));
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    for number in 0..100 {
        let path = folder.join(format!(".{name}.transom-{}-{number}", std::process::id()));
        match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(
        "its folder is full of temporary files; remove them",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "other").unwrap();
        let error = replace(&path, b"old", b"new").unwrap_err();
        assert!(matches!(error, WriteError::Changed), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"other");
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "the temporary file is removed"
        );
        replace(&path, b"other", b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    #[cfg(unix)]
    fn mode_and_links_stay() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a.yaml"), folder.path().join("link.yaml"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("a.yaml", &link).unwrap();
        replace(&link, b"old", b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        let error = replace(&path, b"new", b"newer").unwrap_err().to_string();
        assert!(error.contains("read-only"), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }
}
