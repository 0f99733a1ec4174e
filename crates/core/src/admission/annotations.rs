//! Audit annotations: short, stable keys with which to find a review in the API server's audit log.

use std::collections::BTreeSet;

use crate::engine::{Decision, Evaluation};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Action, ImageEvidence, Policy};
use crate::model::objects::object::Object;
use crate::model::syntax::edit::to_json_patch;
use crate::model::syntax::path::Path;
use crate::model::syntax::text::{cut, one_line, plain_json};
use crate::rules::Finding;

/// The longest value, in bytes: audit events are stored for a long time and sent to other systems.
const LONGEST: usize = 4096;

/// The version of the keys and of the meaning of their values. It changes if a reader of this version would misread
/// them.
const SCHEMA: &str = "v1";

/// Keys and values; the API server puts the webhook's name before each key.
pub type AuditAnnotations = Vec<(&'static str, String)>;

/// The schema version of the other annotations; added to every answer that has annotations.
pub fn schema() -> (&'static str, String) {
    ("schema", SCHEMA.to_owned())
}

/// The open findings that are reported.
pub fn reported(evaluation: &Evaluation) -> impl Iterator<Item = &Finding> {
    evaluation
        .open()
        .filter(|finding| finding.action > Action::Disabled)
}

/// The findings and their effect.
pub fn of_findings(evaluation: &Evaluation, policy: &Policy, denied: bool) -> AuditAnnotations {
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

/// How many of the images of an object registries have described, as in `1 of 2 known`; only for policies that use
/// registries.
pub fn of_images(subject: &Object<'_>, facts: &Facts, policy: &Policy) -> Option<(&'static str, String)> {
    let pod = subject
        .pod()
        .filter(|_| policy.image_evidence == ImageEvidence::Registry)?;
    let images: BTreeSet<&str> = pod.images().collect();
    let known = images.iter().filter(|image| facts.images.contains_key(**image));
    Some(("images", format!("{} of {} known", known.count(), images.len())))
}

/// The changes, or the changes in dry run; empty if there are none.
pub fn of_edits(evaluation: &Evaluation, policy: &Policy) -> AuditAnnotations {
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

/// The rules that deny the object.
fn denied_by(evaluation: &Evaluation) -> String {
    distinct(evaluation.open().filter(|finding| finding.action == Action::Deny))
}

/// The rules that would deny the object if the policy denied.
pub fn would_deny(evaluation: &Evaluation) -> String {
    distinct(evaluation.would_deny())
}

/// The first annotation after the decision.
fn head(evaluation: &Evaluation) -> AuditAnnotations {
    vec![("verdict", evaluation.inference.verdict.to_string())]
}

/// A review that was answered without an evaluation of its object: the reason and the decision.
pub fn of_unevaluated(decision: Decision, why: &str, policy: Option<&Policy>) -> AuditAnnotations {
    let mut annotations = vec![("decision", decision.as_str().to_owned())];
    add(&mut annotations, "not-evaluated", why);
    if let Some(policy) = policy {
        add(&mut annotations, "policy", &policy.name);
    }
    annotations.push(schema());
    annotations
}

/// Adds an annotation unless its value is empty.
pub fn add(annotations: &mut AuditAnnotations, key: &'static str, value: &str) {
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
