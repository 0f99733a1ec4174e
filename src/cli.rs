//! The command line: arguments in, exit status out. Each subcommand has its file.

mod audit_log;
mod check;
mod cleanup;
mod cluster;
mod generate;
mod plan;
mod preflight;
mod probe;
mod rules;
mod scan;
mod serve;
mod upgrade_crds;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Admission webhook and policy controller for Windows pods on Kubernetes.
#[derive(Parser, Debug)]
#[command(name = "transom", version, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Check(check::CheckArgs),
    Scan(scan::ScanArgs),
    Plan(plan::PlanArgs),
    AuditLog(audit_log::AuditLogArgs),
    Preflight(preflight::PreflightArgs),
    Probe(probe::ProbeArgs),
    Rules(rules::RulesArgs),
    Explain(rules::ExplainArgs),
    Generate(generate::GenerateArgs),
    Cleanup(cleanup::CleanupArgs),
    UpgradeCrds(upgrade_crds::UpgradeCrdsArgs),
}

/// Runs what the arguments ask for.
///
/// # Errors
/// Whatever kept it from being done, in words for a person; the exit status is then 2.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Check(args) => check::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::AuditLog(args) => audit_log::run(args),
        Command::Preflight(args) => preflight::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Rules(args) => rules::list(&args),
        Command::Explain(args) => rules::explain(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Cleanup(args) => cleanup::run(args),
        Command::UpgradeCrds(args) => upgrade_crds::run(&args),
    }
}

/// Runs a short command that asks the API server, on this thread.
fn block_on<T>(asking: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the thread of the client")?;
    runtime.block_on(asking)
}
