//! The report for machines, schema `transom.dev/check/v1`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use json_patch::Patch;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::plain::write_json;
use super::{CheckReport, CheckSummary};
use crate::check::{
    CheckNote, Checked, ImageCounts, PolicyChoice, ReportedFinding, SkippedForWindows, SuppressedBy,
    SuppressedFinding, UnreadableInput,
};
use crate::engine::Decision;
use crate::model::syntax::edit::to_json_patch;
use crate::model::syntax::report_schema::{json_patch, of_report};
use crate::model::windows::os::{Evidence, Verdict};

/// The schema of the report.
pub const SCHEMA: &str = "transom.dev/check/v1";

/// An object of the input, and what admission would do with it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CheckedObject")]
struct JsonObject<'r> {
    /// The name of the file; `-` for standard input.
    source: &'r str,
    /// The line where the object begins.
    line: usize,
    /// Its `apiVersion` as written.
    api_version: &'r str,
    /// Its kind.
    kind: &'static str,
    /// Its namespace; null if neither the object nor `--namespace` names one.
    namespace: Option<&'r str>,
    /// Its name.
    name: &'r str,
    /// The owner whose controller is assumed to have created the object, as in `ReplicaSet web`; null if it is assumed that
    /// a person wrote it.
    owner: Option<&'r str>,
    /// Its operating system; null for objects without a pod template.
    #[schemars(with = "Option<Verdict>")]
    verdict: Option<&'static str>,
    /// The evidence for the verdict, strongest first.
    evidence: &'r [Evidence],
    /// What admission would do.
    #[schemars(with = "Decision")]
    decision: &'static str,
    /// Why admission would never see the object; the decision is then `skip`.
    not_reviewed: Option<&'r str>,
    /// The policy that applied.
    policy: &'r PolicyChoice,
    /// The findings of the object as it is written.
    findings: Vec<ReportedFinding>,
    /// The findings that an exemption of the policy covers.
    exempted: Vec<Exempted>,
    /// The findings that the author suppresses.
    suppressed: Vec<JsonSuppressed>,
    /// The JSON Patch (RFC 6902) that admission would apply to the object; empty for workloads.
    #[schemars(schema_with = "json_patch")]
    patch: Patch,
}

/// A finding that an exemption of the policy covers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExemptedFinding")]
struct Exempted {
    #[serde(flatten)]
    finding: ReportedFinding,
    /// The exemption: its owner, last day and reason.
    exemption: String,
}

/// A finding that the author suppresses.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SuppressedFinding")]
struct JsonSuppressed {
    #[serde(flatten)]
    finding: ReportedFinding,
    /// What suppresses it: a comment or an annotation in the `manifest`, or the `baseline`.
    suppressed_by: SuppressedBy,
    /// The position of the suppression, as `file:line`, or the file of the baseline.
    location: String,
    /// The last day on which it applies, as in `2027-03-31`; null if it has none.
    until: Option<String>,
    /// The reason that the author gives; null if none is given.
    reason: Option<String>,
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
    objects: Vec<JsonObject<'r>>,
    /// By kind, how many objects create pods but are of a kind that Transom does not evaluate.
    skipped: &'r BTreeMap<String, usize>,
    /// Those of these objects that select Windows nodes.
    skipped_for_windows: &'r [SkippedForWindows],
    /// Documents in folders that are not Kubernetes objects, as `file:line`.
    other_documents: &'r [String],
    /// Notes about the inputs (keys given twice, policies that do not apply, folders to render), about suppressions that
    /// expired or match nothing, and about images that are not known.
    notes: &'r [CheckNote],
    /// The parts of the input that could not be read.
    errors: &'r [UnreadableInput],
}

/// The JSON schema of the report.
pub fn schema() -> Value {
    of_report::<JsonReport<'_>>()
}

/// Writes the report.
///
/// # Errors
/// The errors of the writer.
pub fn check_json(report: &CheckReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let json = JsonReport {
        schema: SCHEMA,
        summary: report.summary,
        images: report.images,
        objects: report.objects.iter().map(JsonObject::of).collect(),
        skipped: &report.not_evaluated.skipped.kinds,
        skipped_for_windows: &report.not_evaluated.skipped.for_windows,
        other_documents: &report.not_evaluated.other_documents,
        notes: &report.outcome.notes,
        errors: &report.outcome.errors,
    };
    write_json(&json, out)
}

impl<'r> JsonObject<'r> {
    fn of(checked: &'r Checked<'_>) -> Self {
        let inference = &checked.evaluation.inference;
        let exempted = checked.exempted().into_iter();
        JsonObject {
            source: checked.source,
            line: checked.document.start().line,
            api_version: checked.api_version,
            kind: checked.kind.as_str(),
            namespace: (!checked.namespace.is_empty()).then_some(&*checked.namespace),
            name: &checked.name,
            owner: checked.owner.as_deref(),
            verdict: checked.kind.has_pod().then(|| inference.verdict.as_str()),
            evidence: &inference.evidence,
            decision: checked.effective_decision().as_str(),
            not_reviewed: checked.not_reviewed.as_deref(),
            policy: &checked.choice,
            findings: checked.findings().map(ReportedFinding::of_applied).collect(),
            exempted: exempted
                .map(|(note, finding, position)| Exempted {
                    finding: ReportedFinding::of(finding, position),
                    exemption: note.to_owned(),
                })
                .collect(),
            suppressed: checked.suppressed.iter().map(JsonSuppressed::of).collect(),
            patch: to_json_patch(&checked.evaluation.edits),
        }
    }
}

impl JsonSuppressed {
    fn of(suppressed: &SuppressedFinding) -> Self {
        JsonSuppressed {
            finding: ReportedFinding::of(&suppressed.finding, suppressed.position),
            suppressed_by: suppressed.by,
            location: suppressed.place.clone(),
            until: suppressed.until.map(|until| until.to_string()),
            reason: suppressed.reason.clone(),
        }
    }
}
