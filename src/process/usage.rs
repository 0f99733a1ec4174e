//! The standard process metrics, with the names of Prometheus' client libraries; read on each scrape.

use std::fmt::Error;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// How long a sample is reused: simultaneous scrapes must not each read `/proc`.
const FRESH: Duration = Duration::from_secs(1);

/// The resource usage of this process.
#[derive(Debug)]
pub struct Usage {
    started: f64,
    read: Mutex<Option<(Instant, UsageSample)>>,
}

/// One sample; a value that cannot be read on a system is missing.
#[derive(Clone, Copy, Debug)]
struct UsageSample {
    cpu_seconds: Option<f64>,
    resident: Option<i64>,
    virtual_memory: Option<i64>,
    open_descriptors: Option<i64>,
    most_descriptors: Option<i64>,
}

impl Usage {
    /// `started` is when the process began. The kernel's clock starts at boot, and converting it would need a
    /// second reading.
    pub fn new(started: SystemTime) -> Self {
        let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        Usage {
            started: started.as_secs_f64(),
            read: Mutex::default(),
        }
    }

    fn reading(&self) -> UsageSample {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, reading)) = *read
            && at.elapsed() < FRESH
        {
            return reading;
        }
        let reading = UsageSample {
            cpu_seconds: cpu_seconds(),
            resident: status("VmRSS:"),
            virtual_memory: status("VmSize:"),
            open_descriptors: open_descriptors(),
            most_descriptors: most_descriptors(),
        };
        *read = Some((Instant::now(), reading));
        reading
    }
}

impl Collector for Usage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let reading = self.reading();
        let mut show =
            |name: &str, help: &str, metric: &dyn ExposeMetric| metric.show(&mut encoder, name, help);
        show(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970",
            &ConstGauge::new(self.started),
        )?;
        if let Some(cpu) = reading.cpu_seconds {
            let help = "Time that the process has spent on processors";
            show("process_cpu_seconds", help, &ConstCounter::new(cpu))?;
        }
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Memory of the process that is in RAM",
                reading.resident,
            ),
            (
                "process_virtual_memory_bytes",
                "Address space of the process",
                reading.virtual_memory,
            ),
            (
                "process_open_fds",
                "Open files and sockets",
                reading.open_descriptors,
            ),
            (
                "process_max_fds",
                "How many files and sockets may be open",
                reading.most_descriptors,
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                show(name, help, &ConstGauge::new(value))?;
            }
        }
        Ok(())
    }
}

/// A metric without labels.
trait ExposeMetric {
    fn show(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> Result<(), Error>;
}

impl<M: EncodeMetric> ExposeMetric for M {
    fn show(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> Result<(), Error> {
        self.encode(encoder.encode_descriptor(name, help, None, self.metric_type())?)
    }
}

#[cfg(unix)]
fn cpu_seconds() -> Option<f64> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let whole = u64::try_from(used.tv_sec).ok()?;
    let nanos = u32::try_from(used.tv_nsec).ok()?;
    Some(std::time::Duration::new(whole, nanos).as_secs_f64())
}

#[cfg(unix)]
fn most_descriptors() -> Option<i64> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.and_then(|most| i64::try_from(most).ok())
}

#[cfg(not(unix))]
fn cpu_seconds() -> Option<f64> {
    None
}

#[cfg(not(unix))]
fn most_descriptors() -> Option<i64> {
    None
}

/// A line of `/proc/self/status` in bytes; `None` if the file does not exist.
fn status(key: &str) -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: i64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn open_descriptors() -> Option<i64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    i64::try_from(open).ok()
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "there is no /proc")]
    fn the_process_shows_what_it_uses() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Usage::new(SystemTime::now())));
        let mut out = String::new();
        text::encode(&mut out, &registry).unwrap();
        for name in [
            "process_start_time_seconds",
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_max_fds",
        ] {
            let value = out.lines().find_map(|line| line.strip_prefix(name));
            let value: f64 = value
                .unwrap_or_else(|| panic!("no {name}: {out}"))
                .trim()
                .parse()
                .unwrap();
            assert!(value > 0.0, "{name}: {out}");
        }
    }
}
