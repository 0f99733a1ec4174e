//! The report for machines, schema `transom.dev/check/v1`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use json_patch::Patch;
use serde::Serialize;
use serde_json::Value;

use super::plain::write_json;
use super::{CheckSummary, NotEvaluated};
use crate::check::{
    CheckOutcome, Checked, FieldPositions, ImageCounts, PolicyChoice, Repository, SourceLines, SuppressedBy,
    SuppressedFinding, with_edit,
};
use crate::engine::Decision;
use crate::engine::manifest_edits::safe_edit;
use crate::fix::{line_and_column, replacements_of};
use crate::model::edit::to_json_patch;
use crate::model::os::EvidenceKind;
use crate::model::policy::{Action, PlacementMode};
use crate::model::severity::Severity;
use crate::rules::{Finding, Resolver};

/// The schema of the report.
pub const SCHEMA: &str = "transom.dev/check/v1";
/// A suppression in the manifest.
const MANIFEST: &str = "manifest";

/// Collects objects and writes them as one JSON document at the end.
#[derive(Default)]
pub struct Json {
    /// How many fixes may still be computed: each of them reads its text again.
    fixes_left: usize,
    pub(super) summary: CheckSummary,
    pub(super) objects: Vec<JsonObject>,
    /// How many images were looked up, if any were.
    pub images: Option<ImageCounts>,
    /// How the formats of CI systems name files.
    pub repository: Repository,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JsonObject {
    pub(super) source: String,
    pub(super) line: usize,
    api_version: String,
    pub(super) kind: &'static str,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    owner: Option<String>,
    verdict: Option<&'static str>,
    evidence: Vec<JsonEvidence>,
    pub(super) decision: &'static str,
    pub(super) not_reviewed: Option<String>,
    policy: JsonPolicy,
    pub(super) findings: Vec<JsonFinding>,
    pub(super) exempted: Vec<Exempted>,
    pub(super) suppressed: Vec<JsonSuppressed>,
    patch: Patch,
    /// Whether findings deny it that are not suppressed.
    #[serde(skip)]
    pub(super) is_denied: bool,
}

/// The policy that applied.
#[derive(Serialize)]
struct JsonPolicy {
    name: String,
    validation: Action,
    placement: PlacementMode,
    reason: String,
}

#[derive(Serialize)]
struct JsonEvidence {
    path: String,
    value: String,
    kind: EvidenceKind,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JsonFinding {
    pub(super) id: &'static str,
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    path: String,
    /// The path with names of containers, volumes and ports instead of indexes: it does not change with their
    /// order.
    #[serde(skip)]
    pub(super) named_path: String,
    pub(super) message: String,
    pub(super) remedy: String,
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) resolved_by: Option<Resolver>,
    pub(super) action: Action,
    action_reason: Option<String>,
    /// The edit of the text that `transom fix` makes for it.
    #[serde(skip)]
    pub(super) fix: Vec<TextFix>,
}

/// A part of a text and its replacement: lines and columns from 1, the end exclusive.
pub(super) struct TextFix {
    pub(super) start: (usize, usize),
    pub(super) end: (usize, usize),
    pub(super) text: String,
}

/// A finding that an exemption covers.
#[derive(Serialize)]
pub(super) struct Exempted {
    #[serde(flatten)]
    pub(super) finding: JsonFinding,
    pub(super) exemption: String,
}

/// A finding that the author suppresses.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JsonSuppressed {
    #[serde(flatten)]
    pub(super) finding: JsonFinding,
    /// `manifest` or `baseline`.
    pub(super) suppressed_by: &'static str,
    /// The position of the suppression.
    location: String,
    until: Option<String>,
    pub(super) reason: Option<String>,
}

#[derive(Serialize)]
struct JsonNote<'r> {
    level: &'static str,
    source: &'r str,
    line: usize,
    message: &'r str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonReport<'r> {
    schema: &'static str,
    summary: CheckSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<ImageCounts>,
    objects: &'r [JsonObject],
    skipped: &'r BTreeMap<String, usize>,
    other_documents: &'r [String],
    notes: Vec<JsonNote<'r>>,
    errors: Vec<JsonError<'r>>,
}

#[derive(Serialize)]
struct JsonError<'r> {
    source: &'r str,
    line: usize,
    message: &'r str,
}

impl JsonSuppressed {
    /// Whether the suppression is in the manifest itself.
    pub(super) fn is_in_manifest(&self) -> bool {
        self.suppressed_by == MANIFEST
    }
}

impl Json {
    /// With the edits that fix findings, if the inputs keep their texts.
    pub fn with_fixes() -> Self {
        const MOST: usize = 2000;
        Json {
            fixes_left: MOST,
            ..Json::default()
        }
    }

    /// The edits of the text that fix each finding.
    fn fixes(&mut self, checked: &Checked<'_>) -> Vec<Vec<TextFix>> {
        /// The largest text in bytes: every fix is verified by reading the text with it.
        const LARGEST: usize = 256 << 10;
        let text = checked.text.map(SourceLines::bytes);
        let text = text.filter(|text| text.len() <= LARGEST);
        let mut before: Option<Value> = None;
        let fixes = checked.evaluation.findings.iter().map(|finding| {
            let (Some(text), Some(edit)) = (text, safe_edit(finding, checked.kind)) else {
                return Vec::new();
            };
            if self.fixes_left == 0 || !finding.is_open() {
                return Vec::new();
            }
            self.fixes_left -= 1;
            let before = before
                .get_or_insert_with(|| serde_json::from_str(checked.document.json()).unwrap_or_default());
            let replaced = with_edit(before, edit)
                .and_then(|after| replacements_of(text, checked.document.start(), &after));
            let replaced = replaced.unwrap_or_default().into_iter();
            replaced
                .map(|replacement| TextFix {
                    start: line_and_column(text, replacement.range.start),
                    end: line_and_column(text, replacement.range.end),
                    text: replacement.text,
                })
                .collect()
        });
        fixes.collect()
    }

    /// Adds one object.
    pub fn add(&mut self, checked: &Checked<'_>) {
        let fixes = self.fixes(checked);
        self.summary.count(checked);
        let evaluation = &checked.evaluation;
        let mut places = checked.places();
        self.objects.push(JsonObject {
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
                .then(|| evaluation.inference.verdict.as_str()),
            evidence: (evaluation.inference.evidence.iter())
                .map(|e| JsonEvidence {
                    path: e.path.to_string(),
                    value: e.value.clone(),
                    kind: e.kind,
                })
                .collect(),
            decision: match checked.not_reviewed {
                Some(_) => Decision::Skip,
                None => checked.decision,
            }
            .as_str(),
            not_reviewed: checked.not_reviewed.clone(),
            policy: policy(&checked.choice),
            findings: (evaluation.findings.iter().zip(&checked.action_reasons).zip(fixes))
                .map(|((finding, action_reason), fix)| {
                    found(&mut places, finding, action_reason.clone(), fix)
                })
                .collect(),
            exempted: exempted(&mut places, checked),
            suppressed: (checked.suppressed.iter())
                .map(|it| suppressed(&mut places, it))
                .collect(),
            is_denied: checked.not_reviewed.is_none() && evaluation.decision() == Decision::Deny,
            patch: to_json_patch(&evaluation.edits),
        });
    }

    /// Writes the report.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn write(
        &self,
        outcome: &CheckOutcome,
        unjudged: &NotEvaluated,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let errors = outcome.errors.iter().map(|e| JsonError {
            source: &e.source,
            line: e.line,
            message: &e.message,
        });
        let notes = outcome.notes.iter().map(|note| JsonNote {
            level: note.level.as_str(),
            source: &note.source,
            line: note.line,
            message: &note.message,
        });
        let report = JsonReport {
            schema: SCHEMA,
            summary: self.summary,
            images: self.images,
            objects: &self.objects,
            skipped: &unjudged.skipped,
            other_documents: &unjudged.other_documents,
            notes: notes.collect(),
            errors: errors.collect(),
        };
        write_json(&report, out)
    }

    /// The totals of the objects.
    pub fn summary(&self) -> CheckSummary {
        self.summary
    }
}

fn policy(choice: &PolicyChoice) -> JsonPolicy {
    JsonPolicy {
        name: choice.policy.clone(),
        validation: choice.validation,
        placement: choice.placement,
        reason: choice.why.clone(),
    }
}

fn exempted(places: &mut FieldPositions<'_>, checked: &Checked<'_>) -> Vec<Exempted> {
    let mut all = Vec::new();
    for (note, findings) in &checked.evaluation.exempted {
        all.extend(findings.iter().map(|finding| Exempted {
            finding: found(places, finding, None, Vec::new()),
            exemption: note.clone(),
        }));
    }
    all
}

fn suppressed(places: &mut FieldPositions<'_>, suppressed: &SuppressedFinding) -> JsonSuppressed {
    JsonSuppressed {
        finding: found(places, &suppressed.finding, None, Vec::new()),
        suppressed_by: match suppressed.by {
            SuppressedBy::Manifest => MANIFEST,
            SuppressedBy::Baseline => "baseline",
        },
        location: suppressed.place.clone(),
        until: suppressed.until.map(|until| until.to_string()),
        reason: suppressed.reason.clone(),
    }
}

fn found(
    places: &mut FieldPositions<'_>,
    finding: &Finding,
    action_reason: Option<String>,
    fix: Vec<TextFix>,
) -> JsonFinding {
    let position = places.of(&finding.path);
    JsonFinding {
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
        // A finding that placement fixes or an exemption covers has no action.
        action: if finding.is_open() {
            finding.action
        } else {
            Action::Disabled
        },
        action_reason: action_reason.filter(|_| finding.is_open()),
        fix,
    }
}
