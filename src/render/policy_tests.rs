//! The results of policy tests, for people, as JSON and as JUnit XML.

use std::io::{self, Write};

use anstyle::AnsiColor;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::check::junit::{JunitCase, JunitDocument, JunitFailure, text};
use super::text::BOLD;
use crate::check::policy_tests::{Difference, ExpectationResult, TestFileResult};
use crate::model::syntax::report_schema::of_report;
use crate::model::syntax::text::{count, one_line};

/// The schema of the report.
const SCHEMA: &str = "transom.dev/test/v1";

/// The results of tests of policies.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Report of transom test -o json")]
struct TestReport<'r> {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// The result of each test file.
    files: &'r [TestFileResult],
}

/// The JSON schema of the report.
pub fn tests_schema() -> Value {
    of_report::<TestReport<'_>>()
}

/// The results for machines.
pub fn tests_json(files: &[TestFileResult]) -> impl Serialize {
    TestReport {
        schema: SCHEMA,
        files,
    }
}

/// How many findings explain a difference.
const FINDINGS: usize = 10;

/// Writes every expectation with what differs.
///
/// # Errors
/// The errors of the writer.
pub fn tests_text(files: &[TestFileResult], out: &mut dyn Write) -> io::Result<()> {
    let (green, red) = (AnsiColor::Green.on_default(), AnsiColor::Red.on_default().bold());
    let (mut expectations, mut failed, mut errors) = (0, 0, 0);
    for file in files {
        let (name, path) = (one_line(&file.name), one_line(&file.file));
        if name == path {
            writeln!(out, "{BOLD}{name}{BOLD:#}")?;
        } else {
            writeln!(out, "{BOLD}{name}{BOLD:#} ({path})")?;
        }
        for error in &file.errors {
            errors += 1;
            writeln!(out, "  {red}ERROR{red:#} {}", one_line(error))?;
        }
        for result in &file.results {
            expectations += 1;
            let title = format!("{} is {}", one_line(&result.object), result.outcome);
            if result.differences.is_empty() {
                writeln!(out, "  {green}ok{green:#}    {title}")?;
                continue;
            }
            failed += 1;
            writeln!(out, "  {red}FAIL{red:#}  {title} ({path}:{})", result.line)?;
            for line in lines(result) {
                writeln!(out, "        {}", one_line(&line))?;
            }
        }
        writeln!(out)?;
    }
    write!(
        out,
        "{}, {}: {failed} failed",
        count(files.len(), "test file"),
        count(expectations, "expectation")
    )?;
    if errors > 0 {
        write!(out, ", {}", count(errors, "error"))?;
    }
    writeln!(out)
}

/// What differs, as a diff of each field, and the findings.
fn lines(result: &ExpectationResult) -> Vec<String> {
    let mut lines = Vec::new();
    for Difference {
        field,
        expected,
        actual,
    } in &result.differences
    {
        lines.push(format!("{field}:"));
        lines.extend(expected.iter().map(|expected| format!("- {expected} (expected)")));
        lines.extend(actual.iter().map(|actual| format!("+ {actual} (found)")));
    }
    if !result.findings.is_empty() {
        lines.push("findings:".to_owned());
        let shown = result.findings.iter().take(FINDINGS);
        lines.extend(shown.map(|finding| format!("  {finding}")));
    }
    lines
}

/// The fields that differ.
fn differing(result: &ExpectationResult) -> String {
    let fields = result.differences.iter().map(|difference| difference.field);
    fields.collect::<Vec<_>>().join(", ")
}

/// Writes a test suite for each file, and a test case for each expectation.
///
/// # Errors
/// The errors of the writer.
pub fn tests_junit(files: &[TestFileResult], out: &mut dyn Write) -> io::Result<()> {
    let mut document = JunitDocument::new("transom test");
    for file in files {
        for error in &file.errors {
            let case = JunitCase {
                name: "cannot be used".to_owned(),
                error: Some(text(error)),
                ..JunitCase::default()
            };
            document.add(&file.file, case);
        }
        for result in &file.results {
            let title = format!("{} is {}", result.object, result.outcome);
            let failure = (!result.differences.is_empty()).then(|| JunitFailure {
                kind: "expectation",
                message: format!("not as expected: {}", differing(result)),
                lines: lines(result).iter().map(|line| text(line)).collect(),
            });
            let case = JunitCase {
                name: text(&title),
                line: result.line,
                failure,
                ..JunitCase::default()
            };
            document.add(&file.file, case);
        }
    }
    document.write(out)
}
