//! Finds and reads files that users name: only file types with an end, and only up to a size limit.

use std::fs::{self, File, FileType};
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The maximum size of one manifest, and of standard input. All pods of a cluster with 50,000 of them are
/// smaller.
pub const MANIFEST_BYTES: u64 = 512 << 20;
/// The maximum size of a policy file. One object of the API server has at most 1.5 MiB.
pub const POLICY_BYTES: u64 = 16 << 20;
/// The maximum size of a file of certificates or keys.
pub const CERTIFICATE_BYTES: u64 = 4 << 20;

/// Which file types are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Accept {
    /// Regular files, directly or by symbolic links: a server reads its files repeatedly, and a pipe would
    /// block it.
    #[default]
    Regular,
    /// Also pipes, as a shell passes them for `<(command)`: for commands that read a file once.
    RegularOrPipe,
}

/// Opens a file of an accepted type.
///
/// # Errors
/// If it cannot be opened, or is a folder, a device, a socket, or a pipe that is not accepted.
pub fn open(path: &Path, accept: Accept) -> io::Result<File> {
    // Before opening, because opening a pipe waits for the process that writes it.
    check_type(path, accept)?;
    File::open(path)
}

/// Checks the type of a file without opening it.
///
/// # Errors
/// As [`open`].
pub fn check_type(path: &Path, accept: Accept) -> io::Result<()> {
    let kind = fs::metadata(path)
        .map_err(|error| what_is_missing(path, error))?
        .file_type();
    if kind.is_file() || accept == Accept::RegularOrPipe && is_pipe(kind) {
        return Ok(());
    }
    let remedy = match accept {
        Accept::Regular => "write the content to a regular file",
        Accept::RegularOrPipe => "name a regular file or a pipe",
    };
    let text = format!("it is {}, not a regular file; {remedy}", describe(kind));
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

/// Says what is missing: the target of a symbolic link, for which the system says that the link itself does not exist, or a URL.
fn what_is_missing(path: &Path, error: io::Error) -> io::Error {
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    let is_url = |path: &str| path.starts_with("https:/") || path.starts_with("http:/");
    let text = match fs::read_link(path) {
        Ok(target) => format!(
            "it is a symbolic link to {}, which does not exist; correct or remove the link",
            target.display()
        ),
        Err(_) if path.to_str().is_some_and(is_url) => {
            "it is a URL, and only files are read; download it, and pass the file, or - for standard input"
                .to_owned()
        }
        Err(_) => "No such file or directory".to_owned(),
    };
    io::Error::new(ErrorKind::NotFound, text)
}

/// Reads a file of an accepted type.
///
/// # Errors
/// As [`open`], or if it has more than `most` bytes.
pub fn read(path: &Path, accept: Accept, most: u64) -> io::Result<Vec<u8>> {
    read_all(open(path, accept)?, most)
}

/// Reads a regular file, for asynchronous callers.
///
/// # Errors
/// As [`read`].
pub async fn read_async(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read(&path, Accept::Regular, most));
    read.await.map_err(io::Error::other)?
}

/// Reads something at this interval until it differs from what is known, if anything is. Files are polled, because a kubelet replaces a symbolic
/// link in a parent folder, which a file watch does not report.
pub async fn changed<T, R>(every: Duration, known: Option<&T>, read: impl Fn() -> R) -> T
where
    T: PartialEq,
    R: Future<Output = T>,
{
    loop {
        tokio::time::sleep(every).await;
        let now = read().await;
        if known != Some(&now) {
            return now;
        }
    }
}

/// Calls `reload` whenever the content of a file changes, or whether it can be read. `file`: `None` if there is none to
/// follow. Never ends.
pub async fn follow(file: Option<PathBuf>, every: Duration, most: u64, mut reload: impl FnMut()) {
    let Some(file) = file else {
        return std::future::pending().await;
    };
    let read = || async { read_async(&file, most).await.ok() };
    let mut content = read().await;
    loop {
        content = changed(every, Some(&content), read).await;
        reload();
    }
}

/// Reads a stream to its end.
///
/// # Errors
/// If it cannot be read, or has more than `most` bytes.
pub fn read_all(stream: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut stream = stream.take(most.saturating_add(1));
    stream.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let text = format!(
            "it is larger than {} MiB, the most that is read; split it",
            most >> 20
        );
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// The path from the root, without `.` and `..`: its ancestors are the folders that contain it. The system resolves the
/// part up to the last `..`, because a folder before it can be a symbolic link; other links stay.
///
/// # Errors
/// If a folder before `..` does not exist, or the current folder cannot be read.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let last = parts.iter().rposition(|part| *part == Component::ParentDir);
    // Windows removes `..` itself, and has another spelling for canonical paths.
    let Some(last) = last.filter(|_| cfg!(unix)) else {
        return std::path::absolute(path);
    };
    let (above, below) = parts.split_at(last + 1);
    let mut absolute = above.iter().collect::<PathBuf>().canonicalize()?;
    absolute.extend(below);
    Ok(absolute)
}

#[cfg(unix)]
fn is_pipe(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&kind)
}

#[cfg(not(unix))]
fn is_pipe(_: FileType) -> bool {
    false
}

fn describe(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if is_pipe(kind) {
        "a pipe"
    } else {
        "a device or a socket"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_larger_than_the_bound_is_refused_after_the_bound() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, [0; 16]).unwrap();
        assert_eq!(read(&file, Accept::Regular, 16).unwrap().len(), 16);
        let error = read(&file, Accept::Regular, 15).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
        // An endless stream is read only up to the limit.
        let error = read_all(io::repeat(0), 1 << 20).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is larger than 1 MiB, the most that is read; split it"
        );
    }

    #[test]
    #[cfg(unix)]
    fn devices_are_refused_and_pipes_where_they_would_block() {
        for accept in [Accept::Regular, Accept::RegularOrPipe] {
            let error = read(Path::new("/dev/zero"), accept, 1 << 20).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(
                error.to_string().starts_with("it is a device or a socket"),
                "{error}"
            );
        }
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let error = read(&pipe, Accept::Regular, 1 << 20).unwrap_err();
        assert!(error.to_string().starts_with("it is a pipe"), "{error}");
        check_type(&pipe, Accept::RegularOrPipe).unwrap();
    }

    #[test]
    fn an_absolute_path_has_no_parent_folders_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for folder in ["team", "shop"] {
            fs::create_dir(root.join(folder)).unwrap();
        }
        for (path, expected) in [
            ("team/../shop/./a.yaml", "shop/a.yaml"),
            ("team/../shop", "shop"),
            ("team/..", ""),
            ("team/../missing/a.yaml", "missing/a.yaml"),
        ] {
            let mut expected_path = root.clone();
            expected_path.extend(Path::new(expected));
            assert_eq!(absolute(&root.join(path)).unwrap(), expected_path, "{path}");
        }
        assert!(absolute(&root.join("missing/../shop")).is_err());
        assert_eq!(
            absolute(Path::new("a/./b")).unwrap(),
            std::env::current_dir().unwrap().join("a/b")
        );
    }

    #[test]
    #[cfg(unix)]
    fn a_symbolic_link_to_a_regular_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "a").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read(&link, Accept::Regular, 1).unwrap(), b"a");
    }
}
