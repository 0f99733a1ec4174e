//! A check as SARIF 2.1.0 for GitHub code scanning and editors: a result for each finding with its line,
//! suppressed if it is exempted or the author accepts it, and a notification for each unreadable input and each note.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::super::sarif::{message, of_rule, tool, write_log};
use super::{CheckReport, Level, fingerprint, level, sentence, title};
use crate::check::{Checked, SuppressedBy};
use crate::manifest::Position;
use crate::model::syntax::text::one_line;
use crate::rules::documentation::DocumentationUrl;
use crate::rules::{Finding, Rule, catalogue};

/// Writes the report as SARIF.
///
/// # Errors
/// The errors of the writer.
pub fn check_sarif(
    report: &CheckReport<'_>,
    documentation: Option<&DocumentationUrl>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rules = rules_of(report);
    let metadata: Vec<Value> = rules.iter().map(|rule| of_rule(rule, documentation)).collect();
    let mut results = Vec::new();
    for checked in &report.objects {
        let object = SarifObject {
            rules: &rules,
            uri: uri(&report.repository.path(checked.source)),
            checked,
        };
        object.add_results(&mut results);
    }
    let run = json!({
        "tool": tool(&metadata),
        "invocations": [{
            "executionSuccessful": report.outcome.errors.is_empty(),
            "toolExecutionNotifications": notifications(report),
        }],
        "automationDetails": {"id": "transom/check/"},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {"summary": report.summary},
    });
    write_log(&run, out)
}

/// The rules that are reported, exempted or suppressed.
fn rules_of(report: &CheckReport<'_>) -> Vec<&'static Rule> {
    let mut found = HashSet::new();
    for checked in &report.objects {
        let open = checked.evaluation.open();
        let exempted = checked
            .evaluation
            .exempted
            .iter()
            .flat_map(|(_, findings)| findings);
        let suppressed = checked.suppressed.iter().map(|it| &it.finding);
        let all = open.chain(exempted).chain(suppressed);
        found.extend(all.map(|finding| finding.rule.id));
    }
    catalogue().filter(|rule| found.contains(rule.id)).collect()
}

/// What could not be read, and the notes.
fn notifications(report: &CheckReport<'_>) -> Vec<Value> {
    let notification = |level: &str, source: &str, (line, column): (usize, usize), text: &str| {
        let uri = uri(&report.repository.path(source));
        json!({
            "level": level,
            "message": message(text),
            "locations": [{"physicalLocation": location(&uri, line, (column > 0).then_some(column))}],
        })
    };
    let errors = report.outcome.errors.iter();
    let errors = errors.map(|error| notification("error", &error.source, (error.line, 0), &error.message));
    let notes = report.outcome.notes.iter();
    let notes = notes.map(|note| {
        let at = (note.line, note.column);
        notification(note.level.as_str(), &note.source, at, &note.message)
    });
    errors.chain(notes).collect()
}

/// An object whose findings become results.
struct SarifObject<'r> {
    /// The rules that the results refer to by index.
    rules: &'r [&'r Rule],
    checked: &'r Checked<'r>,
    uri: String,
}

impl SarifObject<'_> {
    /// Adds the findings that are open, exempted or suppressed.
    fn add_results(&self, results: &mut Vec<Value>) {
        let findings = self.checked.findings();
        let open = findings.filter(|(finding, _)| finding.is_open());
        results.extend(open.map(|(finding, detail)| self.result(finding, detail.position)));
        let exempted = self.checked.exempted().into_iter();
        results.extend(exempted.map(|(note, finding, position)| {
            with_suppression(self.result(finding, position), "external", Some(note))
        }));
        results.extend(self.checked.suppressed.iter().map(|suppressed| {
            let kind = match suppressed.by {
                SuppressedBy::Manifest => "inSource",
                SuppressedBy::Baseline => "external",
            };
            let result = self.result(&suppressed.finding, suppressed.position);
            with_suppression(result, kind, suppressed.reason.as_deref())
        }));
    }

    fn result(&self, finding: &Finding, position: Position) -> Value {
        let level = match level(self.checked, finding) {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "note",
        };
        let title = title(self.checked);
        json!({
            "ruleId": finding.rule.id,
            "ruleIndex": self.rules.iter().position(|rule| rule.id == finding.rule.id),
            "level": level,
            "message": message(&format!("{title}: {}", sentence(finding))),
            "locations": [{
                "physicalLocation": location(&self.uri, position.line, Some(position.column)),
                "logicalLocations": [{
                    "fullyQualifiedName": one_line(&format!("{title}:{}", finding.path.named())),
                    "kind": "object",
                }],
            }],
            "partialFingerprints": {"transom/v1": fingerprint(self.checked, finding)},
            "properties": {"action": finding.effect(), "decision": self.checked.effective_decision().as_str()},
        })
    }
}

fn with_suppression(mut result: Value, kind: &str, justification: Option<&str>) -> Value {
    let mut suppression = json!({"kind": kind, "status": "accepted"});
    if let Some(justification) = justification {
        suppression["justification"] = one_line(justification).into();
    }
    result["suppressions"] = json!([suppression]);
    result
}

/// A location in a file; line 0 means the whole file.
fn location(uri: &str, line: usize, column: Option<usize>) -> Value {
    let mut location = json!({"artifactLocation": {"uri": uri}});
    if let (Some(location), 1..) = (location.as_object_mut(), line) {
        let mut region = json!({"startLine": line});
        if let (Some(region), Some(column @ 1..)) = (region.as_object_mut(), column) {
            region.insert("startColumn".to_owned(), column.into());
        }
        location.insert("region".to_owned(), region);
    }
    location
}

/// A path as a URI: characters that RFC 3986 does not allow in a path are percent-encoded. Consumers cannot resolve an
/// absolute path without a scheme.
fn uri(path: &str) -> String {
    const OTHERS: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    let encoded = percent_encoding::utf8_percent_encode(path, OTHERS);
    match path {
        path if path.starts_with('/') => format!("file://{encoded}"),
        path if Path::new(path).is_absolute() => format!("file:///{encoded}"),
        _ => encoded.to_string(),
    }
}
