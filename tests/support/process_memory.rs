//! The memory of a process, as the kernel reports it.

use std::fmt;

/// Memory in KiB.
#[derive(Clone, Copy, Default, Debug)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The anonymous part of it: without the pages of the binary, of which a debug build maps a lot.
    pub anonymous: u64,
    /// The peak of what was resident.
    pub peak: u64,
}

impl Memory {
    /// The memory of a process; an error if it has ended.
    pub fn of(pid: u32) -> std::io::Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
                .unwrap_or(0)
        };
        Ok(Memory {
            resident: field("VmRSS"),
            anonymous: field("RssAnon"),
            peak: field("VmHWM"),
        })
    }

    /// The peak without what is mapped from files now.
    pub fn anonymous_peak(&self) -> u64 {
        self.peak.saturating_sub(self.resident - self.anonymous)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |kib: u64| format!("{}.{} MiB", kib >> 10, ((kib & 1_023) * 10) >> 10);
        let [resident, peak, anonymous] = [self.resident, self.peak, self.anonymous].map(mib);
        write!(
            f,
            "{resident} resident, {anonymous} of it anonymous, {peak} at most"
        )
    }
}
