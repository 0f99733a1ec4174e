//! `transom generate`: generates files of this repository from the code.

mod install;
mod webhooks;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use crate::check::CheckConfig;
use crate::check::policy_tests::PolicyTest;
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
    Schema(SchemaArgs),
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

/// Generate the JSON schema of a file that people write
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate schema > docs/reference/transom.schema.json
  transom generate schema test > docs/reference/transom-test.schema.json")]
struct SchemaArgs {
    /// Which file
    #[arg(value_enum, default_value = "config")]
    file: SchemaFile,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SchemaFile {
    /// The configuration of check: .transom.yaml
    Config,
    /// A test of policies: transom-test.yaml
    Test,
}

pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let mut out = anstream::stdout().lock();
    match &args.what {
        GenerateTarget::RulesDoc(RulesDocArgs {}) => write!(out, "{}", render::rules_markdown())?,
        GenerateTarget::Crds(CrdsArgs {}) => write!(out, "{}", render::yaml_documents(&api::definitions()))?,
        GenerateTarget::Schema(SchemaArgs { file }) => {
            let schema = match file {
                SchemaFile::Config => CheckConfig::schema(),
                SchemaFile::Test => PolicyTest::schema(),
            };
            render::write_json(&schema, &mut out)?;
        }
        GenerateTarget::Install(args) => write!(out, "{}", install::manifest(args)?)?,
        GenerateTarget::Webhooks(args) => {
            drop(out);
            webhooks::run(args)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
