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

/// Explain rules: what each looks for, why, what to do, with examples
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom explain run-as-user
  transom explain TSM204 TSM209
  transom explain TSM204 -o json")]
pub struct ExplainArgs {
    /// Their IDs or names, such as TSM204 or run-as-user; only one with -o json
    #[arg(value_name = "RULE", required = true)]
    rules: Vec<String>,
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
    let known = args.rules.iter().map(|name| match (find(name), nearest(name)) {
        (Some(rule), _) => Ok(rule),
        (None, Some(nearest)) => bail!("unknown rule \"{name}\"; did you mean {nearest}?"),
        (None, None) => bail!("unknown rule \"{name}\"; transom rules lists all rules"),
    });
    let rules: Vec<&Rule> = known.collect::<anyhow::Result<_>>()?;
    let [first, more @ ..] = &rules[..] else {
        bail!("name a rule; transom rules lists all rules");
    };
    let targets = args.output.targets()?;
    let is_json = targets
        .iter()
        .any(|target| matches!(target.format, ReportFormat::Json));
    if is_json && !more.is_empty() {
        bail!(
            "-o json explains one rule; transom rules {} -o json lists several",
            args.rules.join(" ")
        );
    }
    (args.output).report(&render::explain_json(first), |out| {
        write!(out, "{}", render::explain(first))?;
        for rule in more {
            write!(out, "\n\n{}", render::explain(rule))?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
