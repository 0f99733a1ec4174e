//! What the machine leaves to the process: how many descriptors, and how much memory.

use std::fs;
use std::path::Path;

/// More descriptors than this are not asked for: some systems refuse a number that they call allowed.
#[cfg(unix)]
const MOST_DESCRIPTORS: u64 = 65_536;

/// What the process may use; none where there is no limit, or none that could be read.
#[derive(Clone, Copy, Default, Debug)]
pub struct ResourceLimits {
    /// Open files and sockets at once.
    pub descriptors: Option<u64>,
    /// Bytes of memory, from the limit of the container.
    pub memory: Option<u64>,
}

impl ResourceLimits {
    /// Raises the soft limit of descriptors to the hard one, as far as that is of use, and reads both limits.
    pub fn take() -> Self {
        let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self {
            descriptors: descriptors(),
            memory: memory(Path::new("/sys/fs/cgroup"), &group),
        }
    }
}

/// The limit of descriptors, once it is raised.
#[cfg(unix)]
fn descriptors() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(MOST_DESCRIPTORS, |hard| hard.min(MOST_DESCRIPTORS));
    let raised = Rlimit {
        current: Some(wanted),
        maximum,
    };
    match current {
        Some(soft) if soft < wanted && setrlimit(Resource::Nofile, raised).is_ok() => Some(wanted),
        soft => soft,
    }
}

/// Handles and sockets have no such limit.
#[cfg(not(unix))]
fn descriptors() -> Option<u64> {
    None
}

/// The memory limit under the control groups that `group` names: the least of those from the process's own to the root.
fn memory(root: &Path, group: &str) -> Option<u64> {
    // Version 2 has one hierarchy, `0::/path`. In a container that sees itself as the root, the path is `/`.
    let path = group
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or_default();
    let own = root.join(path);
    let unified = own.ancestors().take_while(|folder| folder.starts_with(root));
    let limits = unified.filter_map(|folder| number(&folder.join("memory.max")));
    limits
        .min()
        .or_else(|| number(&root.join("memory/memory.limit_in_bytes")))
}

/// A limit in a file; none where it is `max`, or as large as version 1 writes where there is none.
fn number(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Path, text: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn the_least_memory_limit_of_the_groups_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(memory(root, "0::/\n"), None);
        write(
            &root.join("memory/memory.limit_in_bytes"),
            "9223372036854771712\n",
        );
        assert_eq!(memory(root, "4:memory:/\n"), None);
        write(&root.join("memory/memory.limit_in_bytes"), "268435456\n");
        assert_eq!(memory(root, "4:memory:/\n"), Some(256 << 20));
        write(&root.join("pods/one/memory.max"), "max\n");
        write(&root.join("pods/memory.max"), "1048576\n");
        assert_eq!(memory(root, "0::/pods/one\n"), Some(1 << 20));
    }

    #[test]
    #[cfg(unix)]
    fn the_soft_limit_of_descriptors_is_raised() {
        use rustix::process::{Resource, Rlimit, getrlimit};
        let room = ResourceLimits::take();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(room.descriptors, current);
        let most = maximum.map_or(MOST_DESCRIPTORS, |hard| hard.min(MOST_DESCRIPTORS));
        assert!(current.is_none_or(|soft| soft >= most));
    }
}
