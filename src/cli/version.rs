//! `transom version`: the version of this program.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::options::OutputArgs;
use crate::api::API_VERSION;
use crate::model::facts::Facts;
use crate::render::write_json;
use crate::rules::catalogue;

/// Print the version, the revision and what this program knows
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom version
  transom version -o json")]
pub struct VersionArgs {
    #[command(flatten)]
    output: OutputArgs<VersionFormat>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum VersionFormat {
    Text,
    Json,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct About {
    version: &'static str,
    /// The commit; `None` if the build does not set it.
    revision: Option<&'static str>,
    /// The newest Kubernetes version that this program supports.
    kubernetes: String,
    /// The version of the custom resources.
    api_version: &'static str,
    /// The number of rules.
    rules: usize,
    platform: String,
}

pub fn run(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let about = About {
        version: env!("CARGO_PKG_VERSION"),
        revision: option_env!("TRANSOM_REVISION").filter(|revision| !revision.is_empty()),
        kubernetes: format!("1.{}", Facts::KUBERNETES),
        api_version: API_VERSION,
        rules: catalogue().count(),
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    };
    args.output.write(|format, out| match format {
        VersionFormat::Text => {
            let About {
                version,
                revision,
                kubernetes,
                api_version,
                rules,
                platform,
            } = &about;
            let revision = revision
                .map(|revision| format!(" ({revision})"))
                .unwrap_or_default();
            writeln!(out, "transom {version}{revision} {platform}")?;
            writeln!(out, "Kubernetes up to {kubernetes}, {api_version}, {rules} rules")
        }
        VersionFormat::Json => write_json(&about, out),
    })?;
    Ok(ExitCode::SUCCESS)
}
