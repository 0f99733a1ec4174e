//! `transom test`: runs tests of policies and manifests, and reports what differs from what they expect.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use jiff::civil::Date;

use super::cluster::ClusterConfigArgs;
use super::exit_status;
use super::image_evidence::note_of;
use super::options::{OutputArgs, date};
use crate::check::policy_tests::{TEST_FILE, find_tests, run_test};
use crate::process::today;
use crate::render::{tests_json, tests_junit, tests_text, write_json};

/// Run tests of policies: manifests with what admission must do with them
///
/// Reads every file transom-test.yaml in the folders and below them. Each names policies, manifests, facts about the
/// cluster, and what admission must do with each object. Admission does not know suppressions, so they do not apply.
///
/// Exit status: 0 every expectation is met; 1 one is not; 2 bad usage, or a test that cannot be run.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  transom test tests/
  transom test -o junit=tests.xml -o text policies/
  transom test --today 2027-01-31 tests/shop/transom-test.yaml")]
pub struct TestArgs {
    /// Folders with tests, or test files
    #[arg(value_name = "DIR", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs<TestFormat>,
    /// The day to evaluate for, as in 2026-12-31, for tests that name none; unset: today in UTC
    #[arg(long, value_name = "DATE", value_parser = date)]
    today: Option<Date>,
    #[command(flatten)]
    cluster_config: ClusterConfigArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum TestFormat {
    /// For people
    Text,
    /// For machines
    Json,
    /// JUnit XML: a test suite for each file, a test case for each expectation
    Junit,
}

pub fn run(args: &TestArgs) -> anyhow::Result<ExitCode> {
    let TestArgs {
        paths,
        output,
        today: day,
        cluster_config,
    } = args;
    let stated = cluster_config.load()?.map(|stated| stated.config);
    let day = day.unwrap_or_else(today);
    let mut files = Vec::new();
    for path in paths {
        let found = find_tests(path).with_context(|| format!("cannot read {}", path.display()))?;
        if found.is_empty() {
            bail!("there is no {TEST_FILE} in {} or below it", path.display());
        }
        files.extend(found);
    }
    files.dedup();
    let results: Vec<_> = files
        .iter()
        .map(|file| run_test(file, day, stated.as_ref()))
        .collect();
    let policies = results.iter().flat_map(|file| &file.using_registries);
    let policies = policies.map(|name| format!("policy {name}")).collect();
    note_of(policies, "evidence.imageEvidence: Registry", None);
    output.write(|format, out| match format {
        TestFormat::Text => tests_text(&results, out),
        TestFormat::Json => write_json(&tests_json(&results), out),
        TestFormat::Junit => tests_junit(&results, out),
    })?;
    let is_incomplete = results.iter().any(|file| !file.errors.is_empty());
    let mut all = results.iter().flat_map(|file| &file.results);
    let fails = all.any(|result| !result.differences.is_empty());
    Ok(exit_status(is_incomplete, fails))
}
