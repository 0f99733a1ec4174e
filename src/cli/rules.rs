//! `transom rules` and `transom explain`: prints the rule catalogue.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::options::{OutputArgs, ReportFormat, RuleSelector, rules};
use crate::render;
use crate::rules::{Rule, find, nearest};

/// List the rules of the catalogue
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom rules
  transom rules TSM2 run-as-user
  transom rules -o json=rules.json")]
pub struct RulesArgs {
    /// Only these rules, by ID, by name, or by the beginning of IDs, as in TSM2
    #[arg(value_name = "RULE", value_parser = rules)]
    rules: Vec<RuleSelector>,
    #[command(flatten)]
    output: OutputArgs<ReportFormat>,
}

/// Explain one rule: what it looks for, why, what to do, with examples
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom explain run-as-user
  transom explain TSM204 -o json")]
pub struct ExplainArgs {
    /// The rule's id or name, such as TSM204 or run-as-user
    #[arg(value_name = "ID|NAME")]
    rule: String,
    #[command(flatten)]
    output: OutputArgs<ReportFormat>,
}

pub fn list(args: &RulesArgs) -> anyhow::Result<ExitCode> {
    let is_listed =
        |rule: &Rule| args.rules.is_empty() || args.rules.iter().any(|it| it.0.contains(&rule.id));
    (args.output).report(&render::rules_json(is_listed), |out| {
        write!(out, "{}", render::rules_text(is_listed))
    })?;
    Ok(ExitCode::SUCCESS)
}

pub fn explain(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let Some(rule) = find(&args.rule) else {
        match nearest(&args.rule) {
            Some(nearest) => bail!("unknown rule \"{}\"; did you mean {nearest}?", args.rule),
            None => bail!("unknown rule \"{}\"; transom rules lists all rules", args.rule),
        }
    };
    (args.output).report(&render::explain_json(rule), |out| {
        write!(out, "{}", render::explain(rule))
    })?;
    Ok(ExitCode::SUCCESS)
}
