//! Evaluation: verdict, findings, edits and decision for one object. Webhook, command line and audit all use this
//! function.

use std::cmp::Reverse;

use schemars::JsonSchema;

use super::exemption::Exemptions;
use super::mutation::Mutation;
use super::os_inference::infer_os;
use super::scheduling::images;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Action, PlacementMode, Policy};
use crate::model::cluster::severity::Class;
use crate::model::objects::object::Object;
use crate::model::objects::pod::ContainerList;
use crate::model::objects::requester::Origin;
use crate::model::syntax::edit::Edit;
use crate::model::syntax::path::{Path, Segment};
use crate::model::syntax::string_enum::string_enum;
use crate::model::windows::os::{Inference, Os, Verdict};
use crate::rules::{self, Cx, Finding, Required};

string_enum! {
    /// What admission does with the object.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, JsonSchema)]
    #[schemars(rename_all = "kebab-case")]
    pub enum Decision {
        /// It passes as it is.
        Allow = "allow",
        /// It is denied.
        Deny = "deny",
        /// It passes, but would be denied if the policy denied.
        WouldDeny = "would-deny",
        /// It passes with changes.
        Patch = "patch",
        /// It is not evaluated: another kind or operation, an excluded namespace, an update that changes no pod spec.
        Skip = "skip",
    }
}

/// The result of evaluating one object.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The verdict, with the evidence for it.
    pub inference: Inference,
    /// Every finding of the object as written, in the order in which a person would fix them; those that an edit
    /// resolves are marked.
    pub findings: Vec<Finding>,
    /// What admission changes; always empty for objects other than pods.
    pub edits: Vec<Edit>,
    /// What admission would change if the parts of the policy in dry run were active; empty if none is in dry run.
    pub would_edit: Vec<Edit>,
    /// The fields that the edits remove because Windows ignores them.
    pub removed: Vec<Path>,
    /// The fields that prevented placement from setting `spec.os.name`.
    pub withheld: Vec<Path>,
    /// The exempt findings, by the note of the exemption.
    pub exempted: ExemptedFindings,
}

impl Evaluation {
    /// The findings that no edit resolves.
    pub fn open(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_open())
    }

    /// The open findings that deny the object.
    pub fn denials(&self) -> impl Iterator<Item = &Finding> {
        self.open().filter(|finding| finding.action == Action::Deny)
    }

    /// The open findings that deny nothing if the controller of the object's owner created it: they are reported on the
    /// owner.
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

    fn map_paths(&mut self, map: impl Fn(&Path) -> Path) {
        let Evaluation {
            inference,
            findings,
            edits,
            would_edit,
            removed,
            withheld,
            exempted,
        } = self;
        let exempted = exempted.iter_mut().flat_map(|(_, findings)| findings);
        for finding in findings.iter_mut().chain(exempted) {
            finding.path = map(&finding.path);
            if let Some(edit) = &mut finding.edit {
                edit.relocate(&map);
            }
        }
        for edit in edits.iter_mut().chain(would_edit) {
            edit.relocate(&map);
        }
        let evidence = inference.evidence.iter_mut().map(|evidence| &mut evidence.path);
        for path in evidence.chain(removed).chain(withheld) {
            *path = map(path);
        }
    }

    /// Adds the evaluation of another pod of the same object. What both have in common is reported once, and the verdict is
    /// that of the pod that matters most.
    fn add(&mut self, other: Evaluation) {
        let weight = |verdict| match verdict {
            Verdict::Windows => 3,
            Verdict::Conflicting => 2,
            Verdict::Linux => 1,
            Verdict::Unknown => 0,
        };
        if weight(other.inference.verdict) > weight(self.inference.verdict) {
            self.inference = other.inference;
        }
        let is_same = |a: &Finding, b: &Finding| a.rule.id == b.rule.id && a.path == b.path;
        for finding in other.findings {
            if !self.findings.iter().any(|known| is_same(known, &finding)) {
                self.findings.push(finding);
            }
        }
        add_exempted(&mut self.exempted, other.exempted);
        let paths = [
            (&mut self.removed, other.removed),
            (&mut self.withheld, other.withheld),
        ];
        for (known, other) in paths {
            let new: Vec<Path> = (other.into_iter()).filter(|path| !known.contains(path)).collect();
            known.extend(new);
        }
        self.edits.extend(other.edits);
        self.would_edit.extend(other.would_edit);
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

/// Evaluates one object. Pure: the same object, facts and policy give the same evaluation.
pub fn evaluate(subject: &Object<'_>, facts: &Facts, policy: &Policy) -> Evaluation {
    evaluate_each(subject, facts, policy, |pod| infer_os(pod, facts, policy))
}

/// Evaluates one object, given what the operating system of each of its pods is: `inference_of` is called for one pod after
/// the other.
pub fn evaluate_each(
    subject: &Object<'_>,
    facts: &Facts,
    policy: &Policy,
    mut inference_of: impl FnMut(&Object<'_>) -> Inference,
) -> Evaluation {
    let mut pods = subject.custom_pods.iter().map(|pod| {
        let subject = subject.of_custom_pod(pod);
        let mut evaluation = evaluate_as(&subject, inference_of(&subject), facts, policy);
        evaluation.map_paths(|path| pod.path_in_object(path));
        evaluation
    });
    let Some(mut evaluation) = pods.next() else {
        return evaluate_as(subject, inference_of(subject), facts, policy);
    };
    pods.for_each(|pod| evaluation.add(pod));
    evaluation.findings.sort_by_cached_key(order);
    evaluation
}

/// Evaluates an object with one pod, given what its operating system is: its own, or that of a later version of it.
///
/// If placement only audits, this predicts what it would do, and node policies would then write the labels that they only
/// audit.
pub fn evaluate_as(subject: &Object<'_>, inference: Inference, facts: &Facts, policy: &Policy) -> Evaluation {
    let is_prediction = policy.placement == PlacementMode::Audit;
    let predicted = if is_prediction { facts.reconciled() } else { None };
    let facts = predicted.as_ref().unwrap_or(facts);
    let images = images(subject, inference.verdict, facts);
    let as_written = Cx::new(subject, &inference, facts, policy, &images);
    // Which findings are exempt depends on the pod as written: no edit changes an image.
    let exemptions = Exemptions::new(policy, subject.pod());
    let (mut findings, mut exempted) = run_rules(&as_written, &exemptions);
    let is_cut = findings.iter().any(|finding| !finding.over_limit.is_empty());
    let is_complete = policy.actions.is_empty() && exempted.is_empty() && !is_cut;
    // Admission does not know what the author states.
    let mutation = if inference.is_stated() {
        Mutation::default()
    } else {
        Mutation::plan(&as_written, &findings, is_complete)
    };
    let mut caused = mutation.resolve(&as_written, &mut findings, &exempted);
    add_exempted(&mut exempted, decide(&mut caused, &as_written, &exemptions));
    findings.append(&mut caused);
    for finding in &mut findings {
        // A pod that has what Pod Security requires runs.
        let is_kept = finding.required != Required::Never && mutation.kept.contains(&finding.path);
        if is_kept && is_tolerated(finding, subject, policy) {
            finding.limit_action(Action::Warn);
        }
    }
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

/// The exempt findings, by the note of the exemption.
type ExemptedFindings = Vec<(String, Vec<Finding>)>;

fn add_exempted(all: &mut ExemptedFindings, other: ExemptedFindings) {
    for (note, findings) in other {
        match all.iter_mut().find(|(known, _)| *known == note) {
            None => all.push((note, findings)),
            Some((_, known)) => known.extend(findings),
        }
    }
}

/// The findings of an object with their actions, and the exempt ones.
fn run_rules<'p>(as_written: &Cx<'p>, exemptions: &Exemptions<'p>) -> (Vec<Finding>, ExemptedFindings) {
    let Cx { subject, policy, .. } = *as_written;
    let mut findings = Vec::new();
    // If a rule has more findings than are kept, the most important one is kept; exempt findings are not.
    let weigh =
        |finding: &Finding| (!exemptions.covers(finding)).then(|| enforced_action(finding, subject, policy));
    let pod = as_written.pod();
    for rule in rules::applicable(as_written) {
        rule.run_weighed(as_written, pod.as_ref(), &mut findings, &weigh);
    }
    let exempted = decide(&mut findings, as_written, exemptions);
    (findings, exempted)
}

/// Decides what findings do to an object. Removes and returns the exempt ones.
fn decide(findings: &mut Vec<Finding>, cx: &Cx<'_>, exemptions: &Exemptions<'_>) -> ExemptedFindings {
    let exempted = exemptions.lift(findings);
    for finding in findings {
        finding.enforced_action = enforced_action(finding, cx.subject, cx.policy);
        finding.action = finding.enforced_action.min(cx.policy.validation);
    }
    exempted
}

/// What a finding does to this object if `validation` is Deny.
///
/// A denial must reach a person. If the controller of the object's owner created it, only a finding that prevents it
/// from running denies it; other findings were decided at the owner. Admission does not handle objects without a pod,
/// and a mirror pod runs regardless of admission.
fn enforced_action(finding: &Finding, subject: &Object<'_>, policy: &Policy) -> Action {
    let action = policy.rule_action(finding.rule.id, finding.severity, finding.rule.since);
    let action = if is_tolerated(finding, subject, policy) {
        action.min(policy.ignored_fields.most())
    } else {
        action
    };
    if !subject.kind.has_pod() || subject.context.is_mirror {
        return action.min(Action::Audit);
    }
    if subject.context.origin == Origin::Controller && !finding.class.cannot_run() {
        return action.min(Action::Audit);
    }
    // Admission does not see a field that the API server has dropped.
    if finding.path.is_unknown() {
        return action.min(Action::Warn);
    }
    // kubectl sets these fields and has no option to omit them; Windows ignores them.
    if finding.class.is_ignored() && subject.is_written_by_kubectl(&finding.path) {
        return action.min(Action::Warn);
    }
    action
}

/// Whether the policy's `ignoredFields` applies to a finding. It does not if the API server rejects the field, if the
/// author depends on something that the pod then does not have, or if the policy sets an action for the rule itself.
fn is_tolerated(finding: &Finding, subject: &Object<'_>, policy: &Policy) -> bool {
    let is_for_windows = || subject.pod().and_then(|pod| pod.os_name()) == Some(Os::Windows.label());
    finding.is_tolerable()
        && !policy.actions.contains_key(finding.rule.id)
        && (finding.class == Class::Ignored || !is_for_windows())
}

/// Those that must be read before the rest; errors first; then the pod before its containers, in their order; then by rule.
fn order(finding: &Finding) -> impl Ord + use<> {
    let segments = finding.path.segments();
    let container = segments.windows(2).find_map(|pair| match pair {
        [Segment::Field(list), Segment::Item(index, _)] => {
            let rank = ContainerList::ALL.iter().position(|l| l.field() == *list)?;
            Some((rank, *index))
        }
        _ => None,
    });
    (
        Reverse(finding.is_first()),
        Reverse(finding.severity),
        container,
        finding.rule.id,
    )
}

#[cfg(test)]
mod tests;
