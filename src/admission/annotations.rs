//! Audit annotations: short, stable keys under which a review is found again in the API server's audit log.

use crate::engine::{Decision, Evaluation};
use crate::model::edit::to_json_patch;
use crate::model::path::Path;
use crate::model::policy::{Action, Policy};
use crate::model::text::{cut, one_line, plain_json};
use crate::rules::Finding;

/// The longest value, in bytes: audit events are kept for long and sent far.
const LONGEST: usize = 4096;

/// The version of the keys and of what their values mean: another one where a reader of this one would read wrongly.
const SCHEMA: &str = "v1";

/// Keys and values; the API server puts the webhook's name before each key.
pub type Annotations = Vec<(&'static str, String)>;

/// What the others are written by. It goes with each answer that has any.
pub fn schema() -> (&'static str, String) {
    ("schema", SCHEMA.to_owned())
}

/// The open findings that are told.
pub fn reported(evaluation: &Evaluation) -> impl Iterator<Item = &Finding> {
    evaluation
        .open()
        .filter(|finding| finding.action > Action::Disabled)
}

/// What was found, and what came of it.
pub fn of_findings(evaluation: &Evaluation, policy: &Policy, denied: bool) -> Annotations {
    let mut annotations = head(evaluation);
    let evidence: Vec<String> = evaluation
        .inference
        .evidence
        .iter()
        .map(ToString::to_string)
        .collect();
    add(&mut annotations, "evidence", &evidence.join(", "));
    add(&mut annotations, "rules", &distinct(reported(evaluation)));
    if denied {
        add(&mut annotations, "denied-by", &denied_by(evaluation));
    }
    add(&mut annotations, "would-deny", &would_deny(evaluation));
    let notes: Vec<&str> = evaluation
        .exempted
        .iter()
        .map(|(note, _)| note.as_str())
        .collect();
    add(&mut annotations, "exempted", &notes.join("; "));
    add(&mut annotations, "policy", &policy.name);
    annotations
}

/// What was changed, or would be; nothing where nothing is.
pub fn of_edits(evaluation: &Evaluation, policy: &Policy) -> Annotations {
    if evaluation.edits.is_empty() && evaluation.would_edit.is_empty() {
        return Vec::new();
    }
    let mut annotations = head(evaluation);
    if !evaluation.would_edit.is_empty() {
        add(
            &mut annotations,
            "would-patch",
            &plain_json(&to_json_patch(&evaluation.would_edit).to_string()),
        );
    }
    add(&mut annotations, "removed", &paths(&evaluation.removed));
    add(&mut annotations, "withheld", &paths(&evaluation.withheld));
    add(&mut annotations, "policy", &policy.name);
    annotations
}

/// The rules that refuse the object.
fn denied_by(evaluation: &Evaluation) -> String {
    distinct(evaluation.open().filter(|finding| finding.action == Action::Deny))
}

/// The rules that would deny the object if the policy denied.
pub fn would_deny(evaluation: &Evaluation) -> String {
    distinct(evaluation.would_deny())
}

/// The decision goes before it, once it is known.
fn head(evaluation: &Evaluation) -> Annotations {
    vec![("verdict", evaluation.inference.verdict.to_string())]
}

/// A review that was answered without an evaluation of its object: why, and what became of it.
pub fn of_unevaluated(decision: Decision, why: &str, policy: Option<&Policy>) -> Annotations {
    let mut annotations = vec![("decision", decision.as_str().to_owned())];
    add(&mut annotations, "not-evaluated", why);
    if let Some(policy) = policy {
        add(&mut annotations, "policy", &policy.name);
    }
    annotations.push(schema());
    annotations
}

/// Adds what a key has to say, where it has anything to say.
pub fn add(annotations: &mut Annotations, key: &'static str, value: &str) {
    if !value.is_empty() {
        annotations.push((key, one_line(&cut(value, LONGEST)).into_owned()));
    }
}

fn distinct<'f>(findings: impl Iterator<Item = &'f Finding>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for finding in findings {
        if !names.contains(&finding.rule.name) {
            names.push(finding.rule.name);
        }
    }
    names.join(",")
}

fn paths(paths: &[Path]) -> String {
    let named: Vec<String> = paths.iter().map(Path::named).collect();
    named.join(", ")
}
