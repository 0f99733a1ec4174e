//! Logging: destination and format.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;

use super::json_lines::JsonLines;
use super::log_queue::LogQueue;
use super::metrics::Metrics;
use super::panic_writer;

/// The flags for logs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// How logs look: text for people, json for machines. They go to standard error
    #[arg(long, env = "TRANSOM_LOG_FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Which logs: a level, or levels by target. Target audit has the reviews, those that were plainly allowed at debug
    #[arg(long, env = "TRANSOM_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
}

/// How logs look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LogFormat {
    /// Text for people.
    Text,
    /// JSON for machines.
    Json,
}

/// The log of a process. Dropping it writes the waiting lines, for at most about a second.
#[derive(Debug)]
#[must_use = "queued lines are lost when it is dropped"]
pub struct Logs(#[expect(dead_code, reason = "its Drop writes the waiting lines")] WorkerGuard);

impl LogArgs {
    /// Starts logging for the whole process, on a separate thread: nothing waits for the reader of the log. `metrics`
    /// count the lines that were dropped because the reader is too slow.
    ///
    /// # Errors
    /// If the filter is invalid.
    pub fn start(&self, metrics: &Metrics) -> anyhow::Result<Logs> {
        let filter = filter(&self.log)?;
        let dropped = metrics.add(
            "log_lines_dropped",
            "Lines of the log that were dropped: the reader of standard error is too slow, or its disk is full",
        );
        panic_writer::start().context("cannot start a thread for logs")?;
        let (queue, guard) = LogQueue::start(std::io::stderr(), dropped);
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(queue);
        let started = match self.log_format {
            LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
            LogFormat::Json => builder.json().event_format(JsonLines::new()).try_init(),
        };
        match started {
            Ok(()) => Ok(Logs(guard)),
            Err(error) => Err(anyhow::anyhow!("cannot start logging: {error}")),
        }
    }
}

/// kube's watcher warns about every attempt at a forbidden list. `cluster::watches` logs each reason once.
const QUIET: (&str, &str) = ("kube_runtime", "kube_runtime=off");

/// The filter of `--log`. kube's watcher is silent unless the filter names it.
fn filter(text: &str) -> anyhow::Result<EnvFilter> {
    let filter = EnvFilter::try_new(text).with_context(|| {
        format!("cannot read the log filter \"{text}\" (--log); write it as in info or info,audit=debug")
    })?;
    let (target, directive) = QUIET;
    if text.contains(target) {
        return Ok(filter);
    }
    Ok(filter.add_directive(directive.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::test_log::Log;

    #[test]
    fn the_watcher_of_kube_is_silent_unless_the_filter_names_it() {
        for (text, theirs, ours) in [
            ("info", false, true),
            ("debug", false, true),
            ("info,kube_runtime=warn", true, true),
            ("error", false, false),
        ] {
            let log = Log::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(filter(text).unwrap())
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(target: "kube_runtime::watcher", "theirs");
                tracing::warn!(target: "transom::cluster::watches", "ours");
            });
            let logged = log.text();
            let shown = (logged.contains("theirs"), logged.contains("ours"));
            assert_eq!(shown, (theirs, ours), "{text}: {logged}");
        }
        let error = filter("info,=nonsense=").unwrap_err();
        assert!(error.to_string().contains("(--log)"), "{error}");
    }
}
