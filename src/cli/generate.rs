//! `transom generate`: generates files of this repository from the code.

mod install;
mod webhooks;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, Subcommand, ValueEnum};
use serde_json::Value;

use super::image::pulls::GenerateImagePullsArgs;
use super::{Cli, image};
use crate::audit_log::AuditReport;
use crate::check::CheckConfig;
use crate::check::policy_tests::PolicyTest;
use crate::drain::DrainReport;
use crate::image_report::ImageReports;
use crate::model::knowledge::KnowledgeFile;
use crate::model::syntax::report_schema::of_report;
use crate::plan::{ImagePulls, UpgradePlan};
use crate::preflight::Preflight;
use crate::scan::report::ScanReport;
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
    BreakGlass(BreakGlassArgs),
    Schema(SchemaArgs),
    Install(install::InstallArgs),
    Webhooks(Box<webhooks::WebhooksArgs>),
    ImagePulls(Box<GenerateImagePullsArgs>),
    ManPages(ManPagesArgs),
}

/// Generate the page about every rule of the catalogue, in Markdown
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate rules-doc > docs/reference/rules.md")]
struct RulesDocArgs {}

/// Generate a man page for each command into a folder
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate man-pages ~/.local/share/man/man1
  man transom-check")]
struct ManPagesArgs {
    /// The folder, which is created if it is missing
    folder: PathBuf,
}

/// Generate manifests/crds.yaml: the CustomResourceDefinitions
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate crds | kubectl apply --server-side --field-manager=helm -f -")]
struct CrdsArgs {}

/// Generate the policy for emergencies: while it is in the cluster, Transom denies nothing
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate break-glass | kubectl apply -f -
  kubectl delete windowspodpolicy break-glass")]
struct BreakGlassArgs {}

/// Generate the JSON schema of a file that people write, or of a report that a command prints with -o json
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom generate schema > docs/reference/transom.schema.json
  transom generate schema test > docs/reference/transom-test.schema.json
  transom generate schema check > docs/reference/schemas/check.schema.json")]
struct SchemaArgs {
    /// Which file, or the report of which command
    #[arg(value_enum, default_value = "config")]
    of: SchemaOf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SchemaOf {
    /// The configuration of check: .transom.yaml
    Config,
    /// A test of policies: transom-test.yaml
    Test,
    /// Known faults and dates of support (--knowledge), as transom knowledge list prints them
    Knowledge,
    /// The report of transom check
    Check,
    /// The report of transom scan
    Scan,
    /// The report of transom plan
    Plan,
    /// The report of transom drain
    Drain,
    /// The report of transom preflight
    Preflight,
    /// The report of transom audit-log
    AuditLog,
    /// The report of transom fix
    Fix,
    /// The report of transom image
    Image,
    /// The report of transom image pulls
    ImagePulls,
    /// The report of transom rules
    Rules,
    /// The report of transom explain
    Explain,
    /// The report of transom test
    TestReport,
    /// The report of transom version
    Version,
}

impl SchemaOf {
    fn schema(self) -> Value {
        match self {
            SchemaOf::Config => CheckConfig::schema(),
            SchemaOf::Test => PolicyTest::schema(),
            SchemaOf::Knowledge => of_report::<KnowledgeFile>(),
            SchemaOf::Check => render::check_schema(),
            SchemaOf::Scan => of_report::<ScanReport>(),
            SchemaOf::Plan => of_report::<UpgradePlan>(),
            SchemaOf::Drain => of_report::<DrainReport>(),
            SchemaOf::Preflight => of_report::<Preflight>(),
            SchemaOf::AuditLog => of_report::<AuditReport>(),
            SchemaOf::Fix => super::fix::schema(),
            SchemaOf::Image => of_report::<ImageReports>(),
            SchemaOf::ImagePulls => of_report::<ImagePulls>(),
            SchemaOf::Rules => render::rules_schema(),
            SchemaOf::Explain => render::explain_schema(),
            SchemaOf::TestReport => render::tests_schema(),
            SchemaOf::Version => super::version::schema(),
        }
    }
}

pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let mut out = anstream::stdout().lock();
    match &args.what {
        GenerateTarget::RulesDoc(RulesDocArgs {}) => write!(out, "{}", render::rules_markdown())?,
        GenerateTarget::Crds(CrdsArgs {}) => write!(out, "{}", render::yaml_documents(&api::definitions()))?,
        GenerateTarget::BreakGlass(BreakGlassArgs {}) => {
            write!(out, "{}", include_str!("generate/break-glass.yaml"))?;
        }
        GenerateTarget::Schema(SchemaArgs { of }) => render::write_json(&of.schema(), &mut out)?,
        GenerateTarget::Install(args) => write!(out, "{}", install::manifest(args)?)?,
        GenerateTarget::Webhooks(args) => {
            drop(out);
            webhooks::run(args)?;
        }
        GenerateTarget::ImagePulls(args) => {
            drop(out);
            return image::pulls::generate(args);
        }
        GenerateTarget::ManPages(ManPagesArgs { folder }) => {
            let written = fs::create_dir_all(folder);
            let written = written.and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
            written.with_context(|| format!("cannot write man pages to {}", folder.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
