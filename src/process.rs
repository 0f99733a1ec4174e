//! What every long-running process needs: tasks that are watched, readiness, metrics, logs. Nothing of Kubernetes.

mod json_lines;
pub mod last_words;
mod log_queue;
pub mod logs;
pub mod metrics;
pub mod readiness;
pub mod tasks;
pub mod values;

use jiff::civil::Date;

/// Today in UTC.
pub fn today() -> Date {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}
