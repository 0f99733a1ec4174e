//! A check as SARIF 2.1.0 for GitHub code scanning and editors: a result for each finding with its line,
//! suppressed if it is exempted or the author accepts it, and a notification for each unreadable input and each note.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::super::json::{Exempted, Json, JsonFinding, JsonObject, JsonSuppressed, TextFix};
use super::super::sarif::{message, of_rule, tool, write_log};
use super::Level;
use crate::check::CheckOutcome;
use crate::model::text::one_line;
use crate::rules::documentation::DocumentationUrl;
use crate::rules::{Rule, catalogue};

/// Writes the report as SARIF.
///
/// # Errors
/// The errors of the writer.
pub fn check_sarif(
    report: &Json,
    outcome: &CheckOutcome,
    documentation: Option<&DocumentationUrl>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let objects = || report.objects.iter();
    let is_found = |rule: &&Rule| {
        objects().any(|subject| {
            let exempted = subject.exempted.iter().map(|it| &it.finding);
            let suppressed = subject.suppressed.iter().map(|it| &it.finding);
            subject
                .open()
                .chain(exempted)
                .chain(suppressed)
                .any(|found| found.id == rule.id)
        })
    };
    let rules: Vec<&Rule> = catalogue().filter(is_found).collect();
    let metadata: Vec<Value> = rules.iter().map(|rule| of_rule(rule, documentation)).collect();
    let results: Vec<Value> = objects()
        .flat_map(|object| {
            let subject = SarifObject {
                rules: &rules,
                uri: uri(&report.repository.path(&object.source)),
                object,
            };
            let open = object.open().map(|found| subject.result(found));
            let exempted = object.exempted.iter().map(|it| subject.exempted(it));
            let suppressed = object.suppressed.iter().map(|it| subject.suppressed(it));
            open.chain(exempted).chain(suppressed).collect::<Vec<_>>()
        })
        .collect();
    let notification = |level: &str, source: &str, (line, column): (usize, usize), text: &str| {
        json!({
            "level": level,
            "message": message(text),
            "locations": [{"physicalLocation": location(&uri(&report.repository.path(source)), line, (column > 0).then_some(column))}],
        })
    };
    let errors = outcome.errors.iter();
    let errors = errors.map(|error| notification("error", &error.source, (error.line, 0), &error.message));
    let notes = outcome.notes.iter();
    let notes = notes.map(|note| {
        let at = (note.line, note.column);
        notification(note.level.as_str(), &note.source, at, &note.message)
    });
    let run = json!({
        "tool": tool(&metadata),
        "invocations": [{
            "executionSuccessful": outcome.errors.is_empty(),
            "toolExecutionNotifications": errors.chain(notes).collect::<Vec<_>>(),
        }],
        "automationDetails": {"id": "transom/check/"},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {"summary": report.summary},
    });
    write_log(&run, out)
}

/// An object whose findings become results.
struct SarifObject<'r> {
    /// The rules that the results refer to by index.
    rules: &'r [&'r Rule],
    object: &'r JsonObject,
    uri: String,
}

impl SarifObject<'_> {
    fn result(&self, found: &JsonFinding) -> Value {
        let level = match self.object.level(found) {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "note",
        };
        let title = self.object.title();
        let mut result = json!({
            "ruleId": found.id,
            "ruleIndex": self.rules.iter().position(|rule| rule.id == found.id),
            "level": level,
            "message": message(&format!("{title}: {}", found.sentence())),
            "locations": [{
                "physicalLocation": location(&self.uri, found.line, Some(found.column)),
                "logicalLocations": [{
                    "fullyQualifiedName": one_line(&format!("{title}:{}", found.named_path)),
                    "kind": "object",
                }],
            }],
            "partialFingerprints": {"transom/v1": self.object.fingerprint(found)},
            "properties": {"action": found.action, "decision": self.object.decision},
        });
        if let (Some(result), false) = (result.as_object_mut(), found.fix.is_empty()) {
            result.insert("fixes".to_owned(), json!([self.fix(found)]));
        }
        result
    }

    /// The edit that `transom fix` makes for a finding.
    fn fix(&self, found: &JsonFinding) -> Value {
        let replacement = |part: &TextFix| {
            let mut replacement = json!({"deletedRegion": {
                "startLine": part.start.0, "startColumn": part.start.1,
                "endLine": part.end.0, "endColumn": part.end.1,
            }});
            if let (Some(replacement), false) = (replacement.as_object_mut(), part.text.is_empty()) {
                replacement.insert("insertedContent".to_owned(), json!({"text": part.text}));
            }
            replacement
        };
        json!({
            "description": message(&found.remedy),
            "artifactChanges": [{
                "artifactLocation": {"uri": self.uri},
                "replacements": found.fix.iter().map(replacement).collect::<Vec<_>>(),
            }],
        })
    }

    fn exempted(&self, exempted: &Exempted) -> Value {
        let justification = Some(exempted.exemption.as_str());
        with_suppression(self.result(&exempted.finding), "external", justification)
    }

    fn suppressed(&self, suppressed: &JsonSuppressed) -> Value {
        let kind = if suppressed.is_in_manifest() {
            "inSource"
        } else {
            "external"
        };
        let justification = suppressed.reason.as_deref();
        with_suppression(self.result(&suppressed.finding), kind, justification)
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
