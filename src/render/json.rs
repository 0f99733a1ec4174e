//! The report for machines, schema `transom.dev/check/v1`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use json_patch::Patch;
use serde::Serialize;

use super::plain::write_json;
use super::{Summary, Unjudged};
use crate::check::{Checked, Choice, Places, Unreadable};
use crate::engine::Decision;
use crate::model::edit::to_json_patch;
use crate::model::os::EvidenceKind;
use crate::model::policy::{Action, PlacementMode};
use crate::model::severity::Severity;
use crate::rules::{Finding, Resolver};

/// The schema of the report.
pub const SCHEMA: &str = "transom.dev/check/v1";

/// Collects objects and writes them as one JSON document at the end.
#[derive(Default)]
pub struct Json {
    pub(super) summary: Summary,
    pub(super) subjects: Vec<Subject>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subject {
    pub(super) source: String,
    pub(super) line: usize,
    api_version: String,
    pub(super) kind: &'static str,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    owner: Option<String>,
    verdict: Option<&'static str>,
    evidence: Vec<Evidence>,
    pub(super) decision: &'static str,
    pub(super) not_admitted: Option<String>,
    policy: Policy,
    pub(super) findings: Vec<Found>,
    pub(super) exempted: Vec<Exempted>,
    patch: Patch,
}

/// The policy that counted.
#[derive(Serialize)]
struct Policy {
    name: String,
    validation: Action,
    placement: PlacementMode,
    why: String,
}

#[derive(Serialize)]
struct Evidence {
    path: String,
    value: String,
    kind: EvidenceKind,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Found {
    pub(super) id: &'static str,
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    path: String,
    /// The path with containers, volumes and ports by name: it survives a change of their order.
    #[serde(skip)]
    pub(super) named_path: String,
    pub(super) message: String,
    pub(super) remedy: String,
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) resolved_by: Option<Resolver>,
    pub(super) action: Action,
    because: Option<String>,
}

/// A finding that an exemption lifts.
#[derive(Serialize)]
pub(super) struct Exempted {
    #[serde(flatten)]
    pub(super) finding: Found,
    pub(super) exemption: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'r> {
    schema: &'static str,
    summary: Summary,
    subjects: &'r [Subject],
    skipped: &'r BTreeMap<String, usize>,
    passed_over: &'r [String],
    errors: Vec<Error<'r>>,
}

#[derive(Serialize)]
struct Error<'r> {
    source: &'r str,
    line: usize,
    message: &'r str,
}

impl Json {
    /// Takes one object in.
    pub fn add(&mut self, checked: &Checked<'_>) {
        self.summary.count(checked);
        let inspection = &checked.inspection;
        let mut places = checked.places();
        self.subjects.push(Subject {
            source: checked.source.to_owned(),
            line: checked.document.start().line,
            api_version: checked.api_version.clone(),
            kind: checked.kind.as_str(),
            namespace: (!checked.namespace.is_empty()).then(|| checked.namespace.clone()),
            name: checked.name.clone(),
            owner: checked.owner.clone(),
            verdict: checked
                .kind
                .has_pod()
                .then(|| inspection.inference.verdict.as_str()),
            evidence: (inspection.inference.evidence.iter())
                .map(|e| Evidence {
                    path: e.path.to_string(),
                    value: e.value.clone(),
                    kind: e.kind,
                })
                .collect(),
            decision: match checked.not_admitted {
                Some(_) => Decision::Skip,
                None => inspection.decision(),
            }
            .as_str(),
            not_admitted: checked.not_admitted.clone(),
            policy: policy(&checked.choice),
            findings: (inspection.findings.iter().zip(&checked.because))
                .map(|(finding, because)| found(&mut places, finding, because.clone()))
                .collect(),
            exempted: exempted(&mut places, checked),
            patch: to_json_patch(&inspection.edits),
        });
    }

    /// Writes the report.
    ///
    /// # Errors
    /// Whatever the writer says.
    pub fn write(&self, errors: &[Unreadable], unjudged: &Unjudged, out: &mut dyn Write) -> io::Result<()> {
        let errors = errors.iter().map(|e| Error {
            source: &e.source,
            line: e.line,
            message: &e.message,
        });
        let report = Report {
            schema: SCHEMA,
            summary: self.summary,
            subjects: &self.subjects,
            skipped: &unjudged.skipped,
            passed_over: &unjudged.passed_over,
            errors: errors.collect(),
        };
        write_json(&report, out)
    }

    /// What the objects add up to.
    pub fn summary(&self) -> Summary {
        self.summary
    }
}

fn policy(choice: &Choice) -> Policy {
    Policy {
        name: choice.policy.clone(),
        validation: choice.validation,
        placement: choice.placement,
        why: choice.why.clone(),
    }
}

fn exempted(places: &mut Places<'_>, checked: &Checked<'_>) -> Vec<Exempted> {
    let mut all = Vec::new();
    for (note, findings) in &checked.inspection.exempted {
        all.extend(findings.iter().map(|finding| Exempted {
            finding: found(places, finding, None),
            exemption: note.clone(),
        }));
    }
    all
}

fn found(places: &mut Places<'_>, finding: &Finding, because: Option<String>) -> Found {
    let position = places.of(&finding.path);
    Found {
        id: finding.rule.id,
        rule: finding.rule.name,
        severity: finding.severity,
        path: finding.path.to_string(),
        named_path: finding.path.named(),
        message: finding.message.to_string(),
        remedy: finding.remedy.to_string(),
        line: position.line,
        column: position.column,
        resolved_by: finding.resolved_by,
        // Nothing is done about what is mended, or lifted before an action was looked for.
        action: if finding.is_open() {
            finding.action
        } else {
            Action::Disabled
        },
        because: because.filter(|_| finding.is_open()),
    }
}
