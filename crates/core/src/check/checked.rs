//! An evaluated object of the inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::effective_policy::PolicyChoice;
use super::source_lines::SourceLines;
use super::suppression::SuppressedFinding;
use crate::engine::{Decision, Evaluation};
use crate::manifest::{Document, Locator, Position};
use crate::model::objects::resources::Meta;
use crate::model::objects::workload::Kind;
use crate::model::windows::os::{Os, Verdict};
use crate::rules::{Finding, Rule};

/// An evaluated object, with its document and what suppressions did.
#[derive(Debug)]
pub struct Checked<'d> {
    /// The name of its input.
    pub source: &'d str,
    /// The text of its input, if it was kept.
    pub text: Option<&'d SourceLines>,
    /// Its JSON and positions.
    pub document: &'d Document,
    /// Its `apiVersion` as written.
    pub api_version: &'d str,
    pub kind: Kind,
    /// Its metadata as written.
    pub meta: Arc<Meta<'d>>,
    /// Its namespace; empty if neither the object nor the [`Scope`](super::Scope) names one.
    pub namespace: String,
    pub name: String,
    /// The owner whose controller is assumed to have created it, as in `Deployment web`: a file has no
    /// requester.
    pub owner: Option<String>,
    /// The operating system that the author states for its input.
    pub stated_os: Option<Os>,
    /// The policy that applied.
    pub choice: PolicyChoice,
    /// Why admission would never review it; `None` if it would.
    pub not_reviewed: Option<String>,
    /// What admission would do. It does not know suppressions.
    pub decision: Decision,
    /// The evaluation, without the suppressed findings.
    pub evaluation: Evaluation,
    /// More about each finding of the evaluation, in the same order.
    pub details: Vec<FindingDetail>,
    pub suppressed: Vec<SuppressedFinding>,
}

/// What a file adds to a finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FindingDetail {
    /// The position of the field, or of its nearest existing parent.
    pub position: Position,
    /// Why the effect differs from what the severity implies.
    pub action_reason: Option<String>,
}

impl<'d> Checked<'d> {
    /// The findings with their details.
    pub fn findings(&self) -> impl Iterator<Item = (&Finding, &FindingDetail)> {
        self.evaluation.findings.iter().zip(&self.details)
    }

    /// The findings that nothing resolves, with their details.
    pub fn open(&self) -> impl Iterator<Item = (&Finding, &FindingDetail)> {
        self.findings().filter(|(finding, _)| finding.is_open())
    }

    /// The findings that an exemption of the policy covers, each with the note of the exemption and its position.
    pub fn exempted(&self) -> Vec<(&str, &Finding, Position)> {
        let mut places = self.places();
        let exempted = self.evaluation.exempted.iter();
        let exempted =
            exempted.flat_map(|(note, findings)| findings.iter().map(|finding| (&**note, finding)));
        exempted
            .map(|(note, finding)| (note, finding, places.of(&finding.path)))
            .collect()
    }

    /// What admission would do with it where it is: nothing if it never reviews it.
    pub fn effective_decision(&self) -> Decision {
        match self.not_reviewed {
            Some(_) => Decision::Skip,
            None => self.decision,
        }
    }

    /// Whether admission would deny it for a finding that is not suppressed.
    pub fn is_denied(&self) -> bool {
        self.evaluation.decision() == Decision::Deny
    }

    /// Whether only suppressed findings deny it.
    pub fn is_denial_suppressed(&self) -> bool {
        self.decision == Decision::Deny && !self.is_denied()
    }

    /// Whether nothing says for which operating system its pods are: no rule for Windows checks them.
    pub fn has_unknown_os(&self) -> bool {
        self.kind.has_pod() && self.evaluation.inference.verdict == Verdict::Unknown
    }

    /// Drops the findings of all other rules, as if these rules did not exist.
    pub fn keep_rules(&mut self, is_kept: impl Fn(&Rule) -> bool) {
        let Evaluation {
            findings, exempted, ..
        } = &mut self.evaluation;
        let details = std::mem::take(&mut self.details).into_iter();
        let kept = std::mem::take(findings).into_iter().zip(details);
        let kept = kept.filter(|(finding, _)| is_kept(finding.rule));
        (*findings, self.details) = kept.unzip();
        for (_, findings) in exempted {
            findings.retain(|finding| is_kept(finding.rule));
        }
        self.suppressed
            .retain(|suppressed| is_kept(suppressed.finding.rule));
        let mut reviewed = self.evaluation.clone();
        let suppressed = self.suppressed.iter().map(|suppressed| &suppressed.finding);
        reviewed.findings.extend(suppressed.cloned());
        self.decision = reviewed.decision();
    }

    /// The labels of the object.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.meta.labels.to_owned_map()
    }

    /// Finds the positions of fields of the object.
    pub fn places(&self) -> Locator<'d> {
        self.document.locator()
    }
}
