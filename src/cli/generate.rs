//! `transom generate`: files of this repository that come out of the code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::render;

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
}

pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    match args.what {
        What::RulesDoc => write!(anstream::stdout().lock(), "{}", render::rules_markdown())?,
    }
    Ok(ExitCode::SUCCESS)
}
