//! The resource limits of the process: file descriptors and memory.

use std::fs;
use std::path::Path;

/// The maximum number of descriptors to request: some systems reject a number that they report as allowed.
#[cfg(unix)]
const MOST_DESCRIPTORS: u64 = 65_536;

/// The limits of the process; `None` if there is no limit, or if it could not be read.
#[derive(Clone, Copy, Default, Debug)]
pub struct ResourceLimits {
    /// Files and sockets open at the same time.
    pub descriptors: Option<u64>,
    /// Bytes of memory, from the limit of the container.
    pub memory: Option<u64>,
}

impl ResourceLimits {
    /// Raises the soft limit of descriptors towards the hard one, up to a useful maximum, and reads both
    /// limits.
    pub fn take() -> Self {
        let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self {
            descriptors: descriptors(),
            memory: memory(Path::new("/sys/fs/cgroup"), &group),
        }
    }
}

/// The limit of descriptors, after raising it.
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

/// Windows handles and sockets have no such limit.
#[cfg(not(unix))]
fn descriptors() -> Option<u64> {
    None
}

/// The memory limit of the control groups that `group` names: the minimum from the process's own group up to
/// the root.
fn memory(root: &Path, group: &str) -> Option<u64> {
    // Version 2 has one hierarchy, `0::/path`. In a container with its own cgroup namespace, the path is `/`.
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

/// A limit in a file; `None` if it is `max`, or the large number that version 1 uses for no limit.
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
