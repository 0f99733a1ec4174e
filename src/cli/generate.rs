//! `transom generate`: files of this repository that come out of the code.

mod webhooks;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::{api, render};

/// Print files that are made from the code
#[derive(Args, Debug)]
pub struct GenerateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// docs/rules.md: every rule of the catalogue
    RulesDoc,
    /// manifests/crds.yaml: the CustomResourceDefinitions
    Crds,
    Webhooks(Box<webhooks::WebhooksArgs>),
}

pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::RulesDoc => write!(anstream::stdout().lock(), "{}", render::rules_markdown())?,
        What::Crds => write!(
            anstream::stdout().lock(),
            "{}",
            render::yaml_documents(&api::definitions())
        )?,
        What::Webhooks(args) => webhooks::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
