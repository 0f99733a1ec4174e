//! How reports for CI systems name files: GitHub and GitLab match paths that start at the root of the repository.

use std::path::{Path, PathBuf};

use crate::process::files::absolute;

/// The repository that the current folder is in.
#[derive(Debug, Default)]
pub struct Repository {
    root: Option<PathBuf>,
}

impl Repository {
    /// The repository of the current folder; without one, its paths start at the current folder.
    pub fn of_current_folder() -> Self {
        Repository {
            root: std::env::current_dir().ok().map(|current| root_of(&current)),
        }
    }

    /// The path of a file, with `/`: from the root of the repository, or absolute if the file is outside of it.
    /// Standard input stays `-`.
    pub fn path(&self, source: &str) -> String {
        let below = self.below_root(source);
        let path = below.as_ref().map(|path| path.to_string_lossy());
        let path = path.as_deref().unwrap_or(source).replace('\\', "/");
        path.strip_prefix("./").map(str::to_owned).unwrap_or(path)
    }

    fn below_root(&self, source: &str) -> Option<PathBuf> {
        let root = self.root.as_ref().filter(|_| source != "-")?;
        let path = absolute(Path::new(source)).ok()?;
        Some(path.strip_prefix(root).map(Path::to_owned).unwrap_or(path))
    }
}

/// The nearest folder with a repository of Git: a folder `.git`, or a file of that name in a work tree.
fn root_of(folder: &Path) -> PathBuf {
    let mut above = folder.ancestors();
    let root = above.find(|folder| folder.join(".git").exists());
    root.unwrap_or(folder).to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn paths_start_at_the_root_of_the_repository() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("team/web")).unwrap();
        assert_eq!(root_of(&root.join("team/web")), root.join("team/web"));
        fs::create_dir(root.join(".git")).unwrap();
        let root = root_of(&root.join("team/web"));
        assert_eq!(root, folder.path().canonicalize().unwrap());

        let repository = Repository {
            root: Some(root.clone()),
        };
        let at = |path: &str| repository.path(&root.join(path).display().to_string());
        assert_eq!(at("team/a b.yaml"), "team/a b.yaml");
        assert_eq!(at("team/web/../b.yaml"), "team/b.yaml");
        let outside = root.with_file_name("c.yaml");
        assert_eq!(at("../c.yaml"), outside.to_str().unwrap());
        assert_eq!(repository.path("-"), "-");
        assert_eq!(Repository::default().path("./a.yaml"), "a.yaml");
    }
}
