//! A check as a Code Quality report of GitLab, which shows findings in a merge request.
//!
//! Source: GitLab, Code Quality, "Implement a custom tool".

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::plain::write_json;
use super::{CheckReport, Level, fingerprint, level, sentence, title};
use crate::check::NoteLevel;
use crate::model::syntax::text::{digest_hex, one_line};

/// Writes an entry for each open finding, each note and each unreadable input.
///
/// # Errors
/// The errors of the writer.
pub fn check_gitlab(report: &CheckReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut fingerprints = Fingerprints::default();
    let mut entries: Vec<Value> = Vec::new();
    for error in &report.outcome.errors {
        let path = report.repository.path(&error.source);
        let identity = format!("{path}:{}", error.message);
        entries.push(json!({
            "description": one_line(&error.message),
            "check_name": "unreadable",
            "fingerprint": fingerprints.of(&identity),
            "severity": "blocker",
            "location": location(&path, error.line),
        }));
    }
    for note in &report.outcome.notes {
        let path = report.repository.path(&note.source);
        let identity = format!("{path}:{}", note.message);
        entries.push(json!({
            "description": one_line(&note.message),
            "check_name": "note",
            "fingerprint": fingerprints.of(&identity),
            "severity": match note.level {
                NoteLevel::Warning => "minor",
                NoteLevel::Note => "info",
            },
            "location": location(&path, note.line),
        }));
    }
    for checked in &report.objects {
        let path = report.repository.path(checked.source);
        for (finding, detail) in checked.open() {
            let severity = match level(checked, finding) {
                Level::Error => "critical",
                Level::Warning => "minor",
                Level::Note => "info",
            };
            let description = format!("{}: {}", title(checked), sentence(finding));
            let identity = format!("{path}:{}", fingerprint(checked, finding));
            entries.push(json!({
                "description": one_line(&description),
                "check_name": format!("{} {}", finding.rule.id, finding.rule.name),
                "fingerprint": fingerprints.of(&identity),
                "severity": severity,
                "location": location(&path, detail.position.line),
            }));
        }
    }
    write_json(&entries, out)
}

fn location(path: &str, line: usize) -> Value {
    json!({"path": one_line(path), "lines": {"begin": line.max(1)}})
}

/// Makes fingerprints unique: GitLab shows only one of the entries with the same fingerprint.
#[derive(Default)]
struct Fingerprints(HashMap<String, usize>);

impl Fingerprints {
    fn of(&mut self, identity: &str) -> String {
        let seen = self.0.entry(identity.to_owned()).or_default();
        let fingerprint = digest_hex(format!("{identity}#{seen}").as_bytes(), 64);
        *seen += 1;
        fingerprint
    }
}
