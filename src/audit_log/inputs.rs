//! Inputs: the files of arguments and folders, the cluster that each is of, and plain bytes out of what may be compressed.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::process::files::{self, Accept};

/// How much is read at once.
const BUFFER: usize = 256 << 10;

/// One file to read, or standard input (`-`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFile {
    /// Where it is.
    pub path: PathBuf,
    /// The cluster that it is of, where the user says so; else empty.
    pub cluster: String,
    /// Whether the user named it, and not a folder around it.
    pub is_named: bool,
    /// Its size, for a bar; nought where that is not known.
    pub size: u64,
}

/// The files of an argument: a file, a folder or standard input, with `NAME=` before it where the user names the cluster.
///
/// # Errors
/// There is no such file, or the folder cannot be read or holds none.
pub fn files(argument: &str) -> Result<Vec<LogFile>, String> {
    let (cluster, path) = match argument.split_once('=') {
        Some((cluster, path)) if !Path::new(argument).exists() && !cluster.contains(['/', '\\']) => {
            (cluster, path)
        }
        _ => ("", argument),
    };
    let file = |path: PathBuf, is_named: bool| LogFile {
        size: fs::metadata(&path).map_or(0, |file| file.len()),
        path,
        cluster: cluster.to_owned(),
        is_named,
    };
    let path = Path::new(path);
    if path.as_os_str() == "-" {
        return Ok(vec![file(path.to_owned(), true)]);
    }
    let of_kind = fs::metadata(path).map_err(|error| words(&error))?;
    if !of_kind.is_dir() {
        return Ok(vec![file(path.to_owned(), true)]);
    }
    let mut paths = Vec::new();
    folder(path, 0, &mut paths).map_err(|error| words(&error))?;
    if paths.is_empty() {
        return Err("there is no file in this folder".to_owned());
    }
    Ok(paths.into_iter().map(|path| file(path, false)).collect())
}

fn folder(path: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    /// A link that leads back up would otherwise never end.
    const DEEPEST: usize = 64;
    let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() && depth < DEEPEST {
            folder(&path, depth + 1, paths)?;
        } else if path.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

/// Opens a file; each read tells `read` how many bytes of it there were.
///
/// # Errors
/// It cannot be opened, or it is not a file or a pipe.
pub fn open<'r>(file: &LogFile, read: impl Fn(u64) + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let source: Box<dyn Read> = if file.path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(files::open(&file.path, Accept::RegularOrPipe)?)
    };
    Ok(Box::new(ReadProgress { source, read }))
}

struct ReadProgress<R, F> {
    source: R,
    read: F,
}

impl<R: Read, F: Fn(u64)> Read for ReadProgress<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.source.read(buffer)?;
        (self.read)(bytes as u64);
        Ok(bytes)
    }
}

/// The plain bytes of what may be gzip, of one member or several.
///
/// # Errors
/// It cannot be read, or is compressed or encoded as is not read here.
pub fn plain<'r>(bytes: impl Read + 'r) -> io::Result<Box<dyn BufRead + 'r>> {
    let mut bytes = BufReader::with_capacity(BUFFER, bytes);
    let start = bytes.fill_buf()?;
    let unknown = match start {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            Some("it is compressed with zstd: zstd -dc FILE | transom audit-log -")
        }
        [b'B', b'Z', b'h', ..] => Some("it is compressed with bzip2: bzip2 -dc FILE | transom audit-log -"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            Some("it is compressed with xz: xz -dc FILE | transom audit-log -")
        }
        [b'P', b'K', 3, 4, ..] => Some("it is a zip archive: unzip -p FILE | transom audit-log -"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Some("it is UTF-16, as PowerShell writes it: write it as UTF-8")
        }
        _ => None,
    };
    if let Some(why) = unknown {
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    let is_gzip = start.starts_with(&[0x1f, 0x8b]);
    if start.starts_with(&[0xef, 0xbb, 0xbf]) {
        bytes.consume(3);
    }
    if is_gzip {
        return Ok(Box::new(BufReader::with_capacity(
            BUFFER,
            MultiGzDecoder::new(bytes),
        )));
    }
    Ok(Box::new(bytes))
}

/// An error of reading, in words for a person.
pub fn words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => {
            "the compressed data ends in the middle; what stands before that was read".to_owned()
        }
        ErrorKind::InvalidInput => format!("the compressed data is damaged: {error}"),
        _ => error.to_string(),
    }
}
