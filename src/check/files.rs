//! Files, folders and standard input, as manifests and as policies.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use super::{Input, Manifests, Unreadable};
use crate::api::read_policies;
use crate::engine::effective::PolicySet;
use crate::model::policy::Policy;

/// A policy file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// The file cannot be read.
    #[error("cannot read the policy file {name} (--policy): {source}")]
    Read {
        /// The file.
        name: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// What stands in it is no policy; one line for each problem.
    #[error("the policy file cannot be used:\n{}", .0.join("\n"))]
    Useless(Vec<String>),
}

/// The policies of a file, or what counts without one.
///
/// # Errors
/// Everything that is wrong with the file, one line each.
pub fn policies(file: Option<&Path>, fallback: Policy) -> Result<PolicySet, PolicyFileError> {
    let Some(file) = file else {
        return Ok(PolicySet::new(Vec::new(), fallback));
    };
    let name = file.display();
    let bytes = fs::read(file).map_err(|source| PolicyFileError::Read {
        name: name.to_string(),
        source,
    })?;
    match read_policies(bytes) {
        Ok(stored) => Ok(PolicySet::new(stored, fallback)),
        Err(errors) => {
            let lines = errors.iter().map(|error| format!("{name}:{error}"));
            Err(PolicyFileError::Useless(lines.collect()))
        }
    }
}

/// Reads a file, every manifest below a folder, or standard input.
pub fn read(path: &Path, manifests: &mut Manifests) {
    let failed = |path: &Path, error: &io::Error| Unreadable {
        source: path.display().to_string(),
        line: 0,
        message: error.to_string(),
    };
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        match io::stdin().lock().read_to_end(&mut bytes) {
            Ok(_) => manifests.add(Input {
                source: "-".to_owned(),
                bytes,
            }),
            Err(error) => manifests.add_error(failed(path, &error)),
        }
        return;
    }
    if path.is_dir() {
        read_folder(path, manifests, 0);
        return;
    }
    match fs::read(path) {
        Ok(bytes) => manifests.add(Input {
            source: path.display().to_string(),
            bytes,
        }),
        Err(error) => manifests.add_error(failed(path, &error)),
    }
}

fn read_folder(folder: &Path, manifests: &mut Manifests, depth: usize) {
    /// A link that leads back up would otherwise never end.
    const DEEPEST: usize = 64;
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = match entries {
        Ok(entries) if depth < DEEPEST => entries,
        Ok(_) => return,
        Err(error) => {
            let (source, message) = (folder.display().to_string(), error.to_string());
            return manifests.add_error(Unreadable {
                source,
                line: 0,
                message,
            });
        }
    };
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let is_manifest = path
            .extension()
            .is_some_and(|e| ["yaml", "yml", "json"].iter().any(|known| e == *known));
        if hidden {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            read_folder(&path, manifests, depth + 1);
        } else if is_manifest && path.is_file() {
            read(&path, manifests);
        }
    }
}
