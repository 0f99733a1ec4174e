//! Logs: where they go and how they look.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How the process speaks of what it does.
#[derive(Args, Debug)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// How logs look: text for people, json for machines. They go to standard error
    #[arg(long, env = "TRANSOM_LOG_FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Which logs: a level, or levels by target. Target audit has one line per review
    #[arg(long, env = "TRANSOM_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
}

/// How logs look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// JSON for machines.
    Json,
}

impl LogArgs {
    /// How logs look.
    pub fn format(&self) -> LogFormat {
        self.log_format
    }

    /// Starts logging for the whole process.
    ///
    /// # Errors
    /// A filter that makes no sense.
    pub fn start(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).with_context(|| {
            format!(
                "cannot read the log filter \"{}\" (--log); write it as in info or info,audit=warn",
                self.log
            )
        })?;
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        let started = match self.log_format {
            LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
            LogFormat::Json => builder.json().flatten_event(true).try_init(),
        };
        started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
    }
}
