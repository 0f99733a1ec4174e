//! `transom generate`: generates files of this repository from the code.

mod install;
mod webhooks;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::{api, render};

/// Generate manifests and documents from the code
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate crds | kubectl apply --server-side --field-manager=helm -f -
  transom generate install --image registry.example.com/transom:0.1.0 | kubectl apply --server-side -f -
  transom generate webhooks --url https://192.0.2.7:8443")]
pub struct GenerateArgs {
    #[command(subcommand)]
    what: GenerateTarget,
}

#[derive(Subcommand, Debug)]
enum GenerateTarget {
    RulesDoc(RulesDocArgs),
    Crds(CrdsArgs),
    Install(install::InstallArgs),
    Webhooks(Box<webhooks::WebhooksArgs>),
}

/// Generate docs/reference/rules.md: every rule of the catalogue
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate rules-doc > docs/reference/rules.md")]
struct RulesDocArgs {}

/// Generate manifests/crds.yaml: the CustomResourceDefinitions
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate crds | kubectl apply --server-side --field-manager=helm -f -")]
struct CrdsArgs {}

pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let mut out = anstream::stdout().lock();
    match &args.what {
        GenerateTarget::RulesDoc(RulesDocArgs {}) => write!(out, "{}", render::rules_markdown())?,
        GenerateTarget::Crds(CrdsArgs {}) => write!(out, "{}", render::yaml_documents(&api::definitions()))?,
        GenerateTarget::Install(args) => write!(out, "{}", install::manifest(args)?)?,
        GenerateTarget::Webhooks(args) => {
            drop(out);
            webhooks::run(args)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
