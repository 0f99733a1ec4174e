//! Inspection: verdict, findings, edits and decision for one object. The one function that webhook, command line and audit share.

use std::cmp::Reverse;

use super::exemption;
use super::mutation::Mutation;
use super::os_inference::infer_os;
use crate::model::edit::Edit;
use crate::model::facts::Facts;
use crate::model::object::Object;
use crate::model::os::{Inference, Os, Verdict};
use crate::model::path::{Path, Segment};
use crate::model::pod::ContainerList;
use crate::model::policy::{Action, Policy};
use crate::model::requester::Origin;
use crate::model::severity::{Class, Severity};
use crate::model::string_enum::string_enum;
use crate::rules::{self, Cx, Finding, Image};

string_enum! {
    /// What admission does with the object.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Decision {
        /// It passes as it is.
        Allow = "allow",
        /// It is denied.
        Deny = "deny",
        /// It passes, and would be denied if the policy denied.
        WouldDeny = "would-deny",
        /// It passes with changes.
        Patch = "patch",
        /// It is not evaluated: another kind or operation, an excluded namespace, an update that changes no pod spec.
        Skip = "skip",
    }
}

/// What is to be said of one object, and done with it.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The verdict, with the evidence for it.
    pub inference: Inference,
    /// Every finding of the object as it stands, in the order in which a person would mend them; those that an edit
    /// resolves say so.
    pub findings: Vec<Finding>,
    /// What admission changes: only ever something for pods.
    pub edits: Vec<Edit>,
    /// What admission would change if the parts of the policy in dry run were on; empty where none is.
    pub would_edit: Vec<Edit>,
    /// The fields among the edits that are removals of ignored fields.
    pub removed: Vec<Path>,
    /// The fields that kept placement from setting `spec.os.name`.
    pub withheld: Vec<Path>,
    /// The findings that an exemption lifted, by the exemption's note.
    pub exempted: Vec<(String, Vec<Finding>)>,
}

impl Evaluation {
    /// The findings that no edit resolves.
    pub fn open(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_open())
    }

    /// The open findings that refuse the object.
    pub fn denials(&self) -> impl Iterator<Item = &Finding> {
        self.open().filter(|finding| finding.action == Action::Deny)
    }

    /// The open findings that refuse nothing where the controller of the object's owner made it: they are the owner's.
    pub fn of_the_owner(&self) -> impl Iterator<Item = &Finding> {
        self.open().filter(|finding| !finding.class.cannot_run())
    }

    /// The first that applies of deny, would-deny, patch and allow.
    pub fn decision(&self) -> Decision {
        if self.denials().next().is_some() {
            Decision::Deny
        } else if self.would_deny().next().is_some() {
            Decision::WouldDeny
        } else if !self.edits.is_empty() {
            Decision::Patch
        } else {
            Decision::Allow
        }
    }

    /// The open findings that would deny the object if the policy denied.
    pub fn would_deny(&self) -> impl Iterator<Item = &Finding> {
        let is_held_back = |finding: &&Finding| {
            finding.enforced_action == Action::Deny
                && Action::Disabled < finding.action
                && finding.action < Action::Deny
        };
        self.open().filter(is_held_back)
    }
}

/// Judges one object. Pure: the same object, facts and policy give the same inspection.
pub fn evaluate(subject: &Object<'_>, facts: &Facts, policy: &Policy) -> Evaluation {
    let inference = infer_os(subject, facts, policy);
    let images = images(subject, inference.verdict, facts);
    let as_written = Cx::new(subject, &inference, facts, policy, &images);
    let mut findings = Vec::new();
    // Of more findings of a rule than are kept, the one that counts most is; what is exempt does not count.
    let weigh = |finding: &Finding| {
        let lifted = exemption::is_lifted(finding, subject.pod(), policy);
        (!lifted).then(|| enforced_action(finding, subject, policy))
    };
    for rule in rules::asked(&as_written) {
        rule.run_weighed(&as_written, &mut findings, &weigh);
    }
    let is_cut = findings.iter().any(|finding| !finding.beyond.is_empty());
    let exempted = exemption::lift(&mut findings, subject.pod(), policy);
    for finding in &mut findings {
        finding.enforced_action = enforced_action(finding, subject, policy);
        finding.action = finding.enforced_action.min(policy.validation);
    }
    let is_complete = policy.actions.is_empty() && exempted.is_empty() && !is_cut;
    let mutation = Mutation::plan(&as_written, &findings, is_complete);
    mutation.resolve(&as_written, &mut findings);
    findings.sort_by_cached_key(order);

    let removed = mutation.removed().cloned().collect();
    let mutation = mutation.of_admission(subject);
    Evaluation {
        edits: mutation.edits.into_iter().map(|(edit, _)| edit).collect(),
        would_edit: mutation.would_edit,
        withheld: mutation.withheld,
        inference,
        findings,
        removed,
        exempted,
    }
}

/// The images of the pod's containers, where rules will read them: those of a pod that may be for Windows.
fn images<'s>(subject: &'s Object<'s>, verdict: Verdict, facts: &Facts) -> Vec<Option<Image<'s>>> {
    match subject.pod() {
        Some(pod) if matches!(verdict, Verdict::Windows | Verdict::Conflicting) => Image::of_pod(pod, facts),
        _ => Vec::new(),
    }
}

/// What a finding does to this object where `validation` is Deny.
///
/// A denial must reach a person: of an object that the controller of its owner made, only what cannot run anyway is
/// refused; the rest was decided at that owner. Objects without a pod are not admitted by us at all, and a mirror pod
/// runs whatever we say.
fn enforced_action(finding: &Finding, subject: &Object<'_>, policy: &Policy) -> Action {
    let action = policy.rule_action(finding.rule.id, finding.severity, finding.rule.since);
    let action = if is_tolerated(finding, subject, policy) {
        action.min(policy.ignored_fields.most())
    } else {
        action
    };
    if !subject.kind.has_pod() || subject.is_mirror {
        return action.min(Action::Audit);
    }
    if subject.origin == Origin::Controller && !finding.class.cannot_run() {
        return action.min(Action::Audit);
    }
    // kubectl writes such fields itself, and offers no way to leave them out; Windows ignores them.
    let is_ignored = matches!(finding.class, Class::Api | Class::Ignored);
    if is_ignored && subject.is_written_by_kubectl(&finding.path) {
        return action.min(Action::Warn);
    }
    action
}

/// Whether the policy's word for ignored fields counts for a finding: not where the API server refuses the field, where the
/// author counts on something that the pod then does without, or where the policy has a word for the rule itself.
fn is_tolerated(finding: &Finding, subject: &Object<'_>, policy: &Policy) -> bool {
    let says_windows = || subject.pod().and_then(|pod| pod.os_name()) == Some(Os::Windows.label());
    finding.is_ignored_field()
        && !finding.rule.asks_for_node
        && !policy.actions.contains_key(finding.rule.id)
        && (finding.class == Class::Ignored || !says_windows())
}

/// Errors first, and of those the ones that make the rest pointless; then the pod before its containers, in their order;
/// then by rule.
fn order(finding: &Finding) -> impl Ord + use<> {
    let segments = finding.path.segments();
    let container = segments.windows(2).find_map(|pair| match pair {
        [Segment::Field(list), Segment::Item(index, _)] => {
            let rank = ContainerList::ALL.iter().position(|l| l.field() == *list)?;
            Some((rank, *index))
        }
        _ => None,
    });
    let is_first = finding.rule.is_first && finding.severity == Severity::Error;
    (
        Reverse(finding.severity),
        Reverse(is_first),
        container,
        finding.rule.id,
    )
}

#[cfg(test)]
mod tests;
