//! The command line: arguments in, exit status out. Each subcommand has its file.

mod audit;
mod check;
mod cleanup;
mod cluster;
mod connect;
mod generate;
mod logs;
mod rules;
mod serve;
mod upgrade_crds;

use std::process::ExitCode;

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
        Command::Rules(args) => rules::list(&args),
        Command::Explain(args) => rules::explain(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Cleanup(args) => cleanup::run(args),
        Command::UpgradeCrds(args) => upgrade_crds::run(&args),
    }
}

/// The namespaces of a list that was split at its commas: what is empty names none, so that an empty variable means
/// "none" where a missing one means the default.
fn named_namespaces(list: Vec<String>) -> impl Iterator<Item = String> {
    list.into_iter()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_of_namespaces_names_none() {
        let named = |text: &str| named_namespaces(text.split(',').map(str::to_owned).collect()).collect();
        for (text, names) in [
            ("", &[][..]),
            (",", &[]),
            ("a,, b", &["a", "b"]),
            ("123", &["123"]),
        ] {
            let found: Vec<String> = named(text);
            assert_eq!(found, names, "{text:?}");
        }
    }
}
