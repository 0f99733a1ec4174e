//! Inputs: finds the files of arguments and folders, assigns each to a cluster, and decompresses them.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::process::files::{self, Accept};

/// The size of a read, in bytes.
const BUFFER: usize = 256 << 10;

/// One file to read, or standard input (`-`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFile {
    pub path: PathBuf,
    /// Its cluster, if the user names it; otherwise empty.
    pub cluster: String,
    /// Whether the user named the file itself, and not a folder that contains it.
    pub is_named: bool,
    /// Its size, for the progress bar; 0 if unknown.
    pub size: u64,
}

/// The files of an argument: a file, a folder or standard input, with the prefix `NAME=` if the user names
/// the cluster.
///
/// # Errors
/// If the file does not exist, or the folder cannot be read or is empty.
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
    /// Bounds the recursion, which a symbolic link to a parent would make endless.
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

/// Opens a file; `read` is called with the number of bytes of each read.
///
/// # Errors
/// If it cannot be opened, or is neither a file nor a pipe.
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

/// The decompressed bytes of an input that may be gzip, with one member or several.
///
/// # Errors
/// If it cannot be read, or its compression or encoding is not supported.
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

/// A read error as text for people.
pub fn words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => {
            "the compressed data ends in the middle; everything before that was read".to_owned()
        }
        ErrorKind::InvalidInput => format!("the compressed data is damaged: {error}"),
        _ => error.to_string(),
    }
}
