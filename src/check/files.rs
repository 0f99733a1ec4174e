//! Reads files, folders and standard input, as manifests and as policies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CheckInput, Manifests, SourceRole, UnreadableInput, rendered};
use crate::api::read_policies;
use crate::engine::exemption::matches;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::Policy;
use crate::model::nodes::node::{Host, Taint};
use crate::model::syntax::text::one_line;
use crate::process::files::{self, Accept};

/// What is wrong with an empty pattern of files to exclude: it would exclude all of them.
pub const EMPTY_PATTERN: &str = "the pattern is empty; write a path or a name, as in charts/*, or remove it";

/// A policy file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyLoadError {
    /// The file cannot be read.
    #[error("cannot read the policy file {name}: {why}")]
    Read {
        name: String,
        /// The error of the operating system.
        why: io::Error,
    },
    /// Its content is not a valid policy; one line per problem.
    #[error("the policy file cannot be used:\n{}", .0.join("\n"))]
    Useless(Vec<String>),
}

/// The policies to apply, and the node pools and required taints in the same file.
pub struct LoadedPolicies {
    /// The policies for pods.
    pub set: PolicySet,
    pools: Vec<Host>,
    required_taints: Vec<Taint>,
}

impl LoadedPolicies {
    /// Adds the pools and the taints to the facts.
    pub fn declare(&self, facts: &mut Facts) {
        facts.required_taints.extend(self.required_taints.iter().cloned());
        for pool in &self.pools {
            facts.add_pool(pool.clone());
        }
    }
}

/// The policies of a file, or the fallback without a file.
///
/// # Errors
/// Every problem of the file, one line each.
pub fn policies(file: Option<&Path>, fallback: Policy) -> Result<LoadedPolicies, PolicyLoadError> {
    let Some(file) = file else {
        return Ok(LoadedPolicies {
            set: PolicySet::new(Vec::new(), fallback),
            pools: Vec::new(),
            required_taints: Vec::new(),
        });
    };
    let name = file.display();
    let bytes = files::read(file, Accept::RegularOrPipe, files::POLICY_BYTES);
    let bytes = bytes.map_err(|why| PolicyLoadError::Read {
        name: name.to_string(),
        why,
    })?;
    match read_policies(bytes) {
        Ok(file) => Ok(LoadedPolicies {
            set: PolicySet::new(file.pod_policies, fallback),
            pools: file.pools,
            required_taints: file.required_taints,
        }),
        Err(errors) => {
            let lines = errors
                .iter()
                .map(|error| one_line(&format!("{name}:{error}")).into_owned());
            Err(PolicyLoadError::Useless(lines.collect()))
        }
    }
}

/// Reads a file, every manifest below a folder, or standard input.
pub fn read(path: &Path, manifests: &mut Manifests) {
    read_except(path, &Excludes::default(), SourceRole::Named, manifests);
}

/// The files and folders that are not read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excludes<'e> {
    /// Patterns (`*` matches any text, including `/`): for the whole path, the path relative to the folder that is
    /// read, and the name.
    pub patterns: &'e [String],
    /// The folder of the configuration file that contains the patterns: they also match paths relative to it, and all
    /// below a folder that they match.
    pub base: Option<&'e Path>,
}

/// Like [`read`], without what is excluded. A file that is named has this role, and files below a folder are found.
/// Returns the number of texts.
pub fn read_except(path: &Path, except: &Excludes<'_>, role: SourceRole, manifests: &mut Manifests) -> usize {
    if path.as_os_str() == "-" {
        match files::read_all(io::stdin().lock(), files::MANIFEST_BYTES) {
            Ok(bytes) => manifests.add_as(
                role,
                CheckInput {
                    source: "-".to_owned(),
                    bytes,
                },
            ),
            Err(error) => manifests.add_error(UnreadableInput::of_file(path, error.to_string())),
        }
        return 1;
    }
    let below = if role == SourceRole::Named {
        SourceRole::Found
    } else {
        role
    };
    let walk = FolderWalk {
        root: path,
        except,
        role: below,
    };
    if walk.is_below_excluded(path) {
        return 0;
    }
    if path.is_dir() {
        return walk.folder(path, manifests, 0);
    }
    if walk.leaves_out(path) {
        return 0;
    }
    read_file(path, role, Accept::RegularOrPipe, manifests);
    1
}

fn read_file(path: &Path, role: SourceRole, accept: Accept, manifests: &mut Manifests) {
    if !manifests.takes(path.canonicalize().ok()) {
        return;
    }
    match files::read(path, accept, files::MANIFEST_BYTES) {
        Ok(bytes) => manifests.add_as(
            role,
            CheckInput {
                source: path.display().to_string(),
                bytes,
            },
        ),
        Err(error) => manifests.add_error(UnreadableInput::of_file(path, error.to_string())),
    }
}

/// A recursive walk of a folder.
struct FolderWalk<'w> {
    root: &'w Path,
    except: &'w Excludes<'w>,
    role: SourceRole,
}

impl FolderWalk<'_> {
    fn leaves_out(&self, path: &Path) -> bool {
        let text = |path: &Path| path.to_string_lossy().replace('\\', "/");
        let names = [
            text(path),
            path.strip_prefix(self.root).map(text).unwrap_or_default(),
            path.file_name().map(Path::new).map(text).unwrap_or_default(),
            self.below_base(path).as_deref().map(text).unwrap_or_default(),
        ];
        let mut except = self.except.patterns.iter();
        except.any(|pattern| names.iter().any(|name| matches(pattern, name)))
    }

    /// The path relative to the folder of the configuration file.
    fn below_base(&self, path: &Path) -> Option<PathBuf> {
        let base = files::absolute(self.except.base?).ok()?;
        let path = files::absolute(path).ok()?;
        path.strip_prefix(base).ok().map(Path::to_owned)
    }

    /// Whether the configuration file excludes a folder above a path that the user named.
    fn is_below_excluded(&self, path: &Path) -> bool {
        let Some(below) = self.below_base(path) else {
            return false;
        };
        let mut above = below.ancestors().filter(|part| !part.as_os_str().is_empty());
        above.any(|part| {
            let part = part.to_string_lossy().replace('\\', "/");
            self.except.patterns.iter().any(|pattern| matches(pattern, &part))
        })
    }

    /// Reads every manifest in a folder and its subfolders; returns how many there were.
    fn folder(&self, folder: &Path, manifests: &mut Manifests, depth: usize) -> usize {
        /// Bounds the recursion, which a symbolic link to a parent would make endless.
        const DEEPEST: usize = 64;
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) if depth < DEEPEST => entries,
            Ok(_) => return 0,
            Err(error) => {
                manifests.add_error(UnreadableInput::of_file(folder, error.to_string()));
                return 1;
            }
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        if self.role != SourceRole::Facts {
            rendered::note(folder, |path| self.leaves_out(path), manifests);
        }
        let mut found = 0;
        for entry in entries {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let is_manifest = path.extension().is_some_and(|extension| {
                let mut known = ["yaml", "yml", "json"].iter();
                known.any(|known| extension.eq_ignore_ascii_case(known))
            });
            if hidden || self.leaves_out(&path) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found += self.folder(&path, manifests, depth + 1);
            } else if is_manifest && !path.is_dir() {
                // Reading a pipe without a writer would never end.
                read_file(&path, self.role, Accept::Regular, manifests);
                found += 1;
            }
        }
        found
    }
}
