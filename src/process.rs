//! The infrastructure of a long-running process: supervised tasks, readiness, metrics, logs, traces, bounded
//! file reads. Independent of Kubernetes.

pub(crate) mod arg_parsers;
pub(crate) mod complaints;
pub(crate) mod files;
mod json_lines;
mod log_queue;
pub(crate) mod logs;
pub mod metrics;
pub mod panic_writer;
pub mod readiness;
pub(crate) mod resource_limits;
pub(crate) mod root_certificates;
pub(crate) mod server_clock;
pub mod tasks;
#[cfg(test)]
pub(crate) mod test_log;
pub(crate) mod token_bucket;
pub(crate) mod traces;
mod usage;

use jiff::Timestamp;
use jiff::civil::Date;

/// Today in UTC, as dates of support and exemptions are compared with it.
pub fn today() -> Date {
    day_of(Timestamp::now())
}

/// The date of a time, in UTC.
pub fn day_of(time: Timestamp) -> Date {
    time.to_zoned(jiff::tz::TimeZone::UTC).date()
}

/// An error with its chain of causes; the outermost error alone is too general.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let message = next.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = next.source();
    }
    text
}
