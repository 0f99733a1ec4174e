//! The report for machines, schema `transom.dev/check/v1`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use json_patch::Patch;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::plain::write_json;
use super::{CheckSummary, NotEvaluated};
use crate::check::{
    CheckNote, CheckOutcome, Checked, FieldPositions, ImageCounts, PolicyChoice, Repository, SourceLines,
    SuppressedBy, SuppressedFinding, with_edit,
};
use crate::engine::Decision;
use crate::engine::manifest_edits::safe_edit;
use crate::fix::{line_and_column, replacements_of};
use crate::model::edit::to_json_patch;
use crate::model::os::{EvidenceKind, Verdict};
use crate::model::policy::{Action, PlacementMode};
use crate::model::report_schema::{json_patch, of_report};
use crate::model::severity::Severity;
use crate::rules::{Finding, Resolver};

/// The schema of the report.
pub const SCHEMA: &str = "transom.dev/check/v1";
/// A suppression in the manifest.
const MANIFEST: &str = "manifest";
/// A suppression in a baseline.
const BASELINE: &str = "baseline";

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

/// An object of the input, and what admission would do with it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CheckedObject")]
pub(super) struct JsonObject {
    /// The name of the file; `-` for standard input.
    pub(super) source: String,
    /// The line where the object begins.
    pub(super) line: usize,
    /// Its `apiVersion` as written.
    api_version: String,
    /// Its kind.
    pub(super) kind: &'static str,
    /// Its namespace; null if neither the object nor `--namespace` names one.
    pub(super) namespace: Option<String>,
    /// Its name.
    pub(super) name: String,
    /// The owner whose controller is assumed to have created the object, as in `ReplicaSet web`; null if it is assumed that
    /// a person wrote it.
    owner: Option<String>,
    /// Its operating system; null for objects without a pod template.
    #[schemars(with = "Option<Verdict>")]
    verdict: Option<&'static str>,
    /// The evidence for the verdict, strongest first.
    evidence: Vec<JsonEvidence>,
    /// What admission would do.
    #[schemars(with = "Decision")]
    pub(super) decision: &'static str,
    /// Why admission would never see the object; the decision is then `skip`.
    pub(super) not_reviewed: Option<String>,
    /// The policy that applied.
    policy: JsonPolicy,
    /// The findings of the object as it is written.
    pub(super) findings: Vec<JsonFinding>,
    /// The findings that an exemption of the policy covers.
    pub(super) exempted: Vec<Exempted>,
    /// The findings that the author suppresses.
    pub(super) suppressed: Vec<JsonSuppressed>,
    /// The JSON Patch (RFC 6902) that admission would apply to the object; empty for workloads.
    #[schemars(schema_with = "json_patch")]
    patch: Patch,
    /// Whether findings deny it that are not suppressed.
    #[serde(skip)]
    pub(super) is_denied: bool,
}

/// The policy that applied.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AppliedPolicy")]
struct JsonPolicy {
    /// Its name; `built-in` without a WindowsPodPolicy.
    name: String,
    /// The strongest action of its findings.
    validation: Action,
    /// Its placement setting.
    placement: PlacementMode,
    /// Why it applied.
    reason: String,
}

/// A sign of the operating system of an object.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Evidence")]
struct JsonEvidence {
    /// The field.
    path: String,
    /// Its value.
    value: String,
    /// The kind of evidence.
    kind: EvidenceKind,
}

/// One rule that fires at one field of an object.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Finding")]
pub(super) struct JsonFinding {
    /// The id of the rule, as in `TSM204`.
    pub(super) id: &'static str,
    /// The name of the rule, as in `run-as-user`.
    pub(super) rule: &'static str,
    /// How severe it is.
    pub(super) severity: Severity,
    /// The field, from the root of the object.
    path: String,
    /// The path with names of containers, volumes and ports instead of indexes: it does not change with their
    /// order.
    #[serde(skip)]
    pub(super) named_path: String,
    /// What is wrong.
    pub(super) message: String,
    /// What to do.
    pub(super) remedy: String,
    /// The line of the field, or of its nearest existing parent; from 1.
    pub(super) line: usize,
    /// The column of the field, or of its nearest existing parent; from 1.
    pub(super) column: usize,
    /// How admission fixes it; null if it does not. A finding that admission fixes denies nothing.
    pub(super) resolved_by: Option<Resolver>,
    /// The effect of the finding; `Disabled` if admission fixes it, or ignores the object.
    pub(super) action: Action,
    /// The reason, if the action differs from the default of the severity.
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

/// A finding that an exemption of the policy covers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExemptedFinding")]
pub(super) struct Exempted {
    #[serde(flatten)]
    pub(super) finding: JsonFinding,
    /// The exemption: its owner, last day and reason.
    pub(super) exemption: String,
}

/// A finding that the author suppresses.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SuppressedFinding")]
pub(super) struct JsonSuppressed {
    #[serde(flatten)]
    pub(super) finding: JsonFinding,
    /// What suppresses it: a comment or an annotation in the `manifest`, or the `baseline`.
    #[schemars(extend("enum" = [MANIFEST, BASELINE]))]
    pub(super) suppressed_by: &'static str,
    /// The position of the suppression, as `file:line`, or the file of the baseline.
    location: String,
    /// The last day on which it applies, as in `2027-03-31`; null if it has none.
    until: Option<String>,
    /// The reason that the author gives; null if none is given.
    pub(super) reason: Option<String>,
}

/// A note about an input, suppressions or images.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Note")]
pub struct JsonNote<'r> {
    /// How important it is.
    #[schemars(extend("enum" = ["warning", "note"]))]
    level: &'static str,
    /// The name of the file; `-` for standard input.
    source: &'r str,
    /// The line, from 1; 0 if there is none.
    line: usize,
    /// The column, from 1, in characters; 0 if there is none.
    column: usize,
    /// The note.
    message: &'r str,
}

impl<'r> JsonNote<'r> {
    /// A note as JSON.
    pub fn of(note: &'r CheckNote) -> Self {
        JsonNote {
            level: note.level.as_str(),
            source: &note.source,
            line: note.line,
            column: note.column,
            message: &note.message,
        }
    }
}

/// What admission would do with the objects of the input.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom check -o json")]
struct JsonReport<'r> {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// The totals.
    summary: CheckSummary,
    /// How many images were looked up; absent without `--registry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<ImageCounts>,
    /// One entry for each object that rules check, in the order of the input.
    objects: &'r [JsonObject],
    /// By kind, how many objects create pods but are of a kind that Transom does not evaluate.
    skipped: &'r BTreeMap<String, usize>,
    /// Documents in folders that are not Kubernetes objects, as `file:line`.
    other_documents: &'r [String],
    /// Notes about the inputs (keys given twice, policies that do not apply, folders to render), about suppressions that
    /// expired or match nothing, and about images that are not known.
    notes: Vec<JsonNote<'r>>,
    /// The parts of the input that could not be read.
    errors: Vec<JsonError<'r>>,
}

/// A part of the input that could not be read.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UnreadableInput")]
struct JsonError<'r> {
    /// The name of the file; `-` for standard input.
    source: &'r str,
    /// The line, from 1; 0 if the whole file could not be read.
    line: usize,
    /// The reason and the remedy.
    message: &'r str,
}

/// The JSON schema of the report.
pub fn schema() -> Value {
    of_report::<JsonReport<'_>>()
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
            let (Some(text), Some(edit)) = (text, safe_edit(finding, checked.kind, false)) else {
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
        let notes = outcome.notes.iter().map(JsonNote::of);
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
            SuppressedBy::Baseline => BASELINE,
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
