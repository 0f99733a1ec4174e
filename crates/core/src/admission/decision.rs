//! The decision for one object: denied, patched or allowed, and the messages. `/mutate` and `/validate` differ here.

use std::cell::OnceCell;

use super::annotations;
use super::audit_record::Phase;
use super::message::{self, AddedFields, DenialMessage};
use super::response::{Denial, ReviewDecision};
use super::review_input::ReviewInput;
use crate::engine::{Decision, Evaluation};
use crate::model::cluster::policy::Action;
use crate::model::cluster::severity::Class;
use crate::model::objects::managed_fields::injector;
use crate::model::objects::object::Object;
use crate::model::objects::requester::Origin;
use crate::model::objects::workload_name::root_owner;
use crate::model::syntax::edit::Edit;
use crate::model::syntax::json::exists;
use crate::model::syntax::path::Path;
use crate::model::windows::os;
use crate::rules::Finding;

/// One object in one phase with its evaluation: the input of the decision.
pub(super) struct EvaluatedReview<'j> {
    pub(super) review: ReviewInput<'j>,
    pub(super) subject: &'j Object<'j>,
    pub(super) evaluation: &'j Evaluation,
}

impl<'j> EvaluatedReview<'j> {
    /// The decision.
    pub fn decide(&self) -> ReviewDecision<'j> {
        let mut decide = match self.review.phase {
            Phase::Mutate => self.mutate(),
            Phase::Validate => self.validate(),
        };
        if !decide.annotations.is_empty() {
            let decision = decide.decision().as_str().to_owned();
            decide.annotations.insert(0, ("decision", decision));
            let Object { kind, meta, .. } = self.subject;
            let owner = root_owner(*kind, meta, self.review.facts.today).unwrap_or_default();
            annotations::add(&mut decide.annotations, "owner", &owner);
            if self.owner_is_not_trusted() {
                decide.annotations.push(("owner-trusted", "false".to_owned()));
            }
            decide.annotations.push(annotations::schema());
        }
        decide
    }

    /// Whether more would have been admitted if the requester were known as the controller of the object's owner.
    fn owner_is_not_trusted(&self) -> bool {
        let is_refused = |finding: &Finding| finding.enforced_action > Action::Audit;
        self.subject.context.origin == Origin::Unproven && self.evaluation.of_the_owner().any(is_refused)
    }

    /// Denies only what the API server would reject next; its message would contain none of the other findings.
    fn mutate(&self) -> ReviewDecision<'j> {
        let evaluation = self.evaluation;
        if self.is_refused_next(|finding| finding.action) {
            return ReviewDecision {
                denial: Some(self.denial()),
                annotations: annotations::of_findings(evaluation, self.review.policy, true),
                ..ReviewDecision::default()
            };
        }
        let mut annotations = annotations::of_edits(evaluation, self.review.policy);
        // The API server rejects it before `/validate` could report that Transom would have denied it.
        if self.evaluation.would_deny().next().is_some()
            && self.is_refused_next(|finding| finding.enforced_action)
        {
            if annotations.is_empty() {
                annotations = annotations::of_findings(evaluation, self.review.policy, false);
            } else {
                annotations.push(("would-deny", annotations::would_deny(evaluation)));
            }
        }
        ReviewDecision {
            denial: None,
            patch: &evaluation.edits,
            warnings: message::removed(self.subject, evaluation).into_iter().collect(),
            annotations,
        }
    }

    fn validate(&self) -> ReviewDecision<'j> {
        let denied = self.evaluation.decision() == Decision::Deny;
        let silent = self.evaluation.findings.is_empty()
            && matches!(
                self.evaluation.inference.verdict,
                os::Verdict::Linux | os::Verdict::Unknown
            );
        ReviewDecision {
            denial: denied.then(|| self.denial()),
            patch: &[],
            warnings: if denied {
                Vec::new()
            } else {
                message::warnings(self.subject, self.evaluation, &self.added())
            },
            annotations: if silent {
                Vec::new()
            } else {
                annotations::of_findings(self.evaluation, self.review.policy, denied)
            },
        }
    }

    /// Whether the API server is about to reject a field that a finding with action Deny reports and that a manager
    /// owns.
    fn is_refused_next(&self, action: fn(&Finding) -> Action) -> bool {
        let mut denials = self
            .evaluation
            .open()
            .filter(|finding| action(finding) == Action::Deny)
            .peekable();
        if denials.peek().is_none() {
            return false;
        }
        let takes_back =
            |edit: &Edit| matches!(edit, Edit::Remove(path) if *path == Path::of(&["spec", "os"]));
        let is_for_windows = !self.evaluation.edits.iter().any(takes_back)
            && self
                .subject
                .pod()
                .is_some_and(|pod| pod.os_name() == Some("windows"));
        denials.any(|finding| {
            let refused =
                finding.class == Class::ApiAlways || (finding.class == Class::Api && is_for_windows);
            refused && self.subject.is_of_author(&finding.path)
        })
    }

    fn denial(&self) -> Denial<'j> {
        Denial::Found(DenialMessage {
            subject: self.subject,
            evaluation: self.evaluation,
            added: self.added(),
            is_update: self.review.request.is_update(),
            documentation: self.review.documentation,
            distrusts_owner: self.owner_is_not_trusted(),
        })
    }

    /// The findings about fields that another webhook added, which their messages mention.
    fn added(&self) -> AddedFields {
        /// Looking up a field parses the object again; a reader needs no more than this many.
        const MOST: usize = 50;
        /// In bytes. In a larger review the look-up takes too long for its value.
        const LARGEST: usize = 256 << 10;
        // Best practices report missing fields, which no webhook added.
        let may_be_added =
            |finding: &Finding| finding.action >= Action::Warn && finding.class != Class::BestPractice;
        if self.review.request.body.len() > LARGEST || !self.evaluation.open().any(may_be_added) {
            return AddedFields::default();
        }
        let object = OnceCell::new();
        let is_there = |path: &Path| exists(object.get_or_init(|| self.review.request.object_text()), path);
        let is_added = |finding: &Finding| {
            may_be_added(finding) && !self.subject.is_of_author(&finding.path) && is_there(&finding.path)
        };
        let findings: Vec<usize> = (self.evaluation.findings.iter().enumerate().take(MOST))
            .filter(|(_, finding)| is_added(finding))
            .map(|(index, _)| index)
            .collect();
        if findings.is_empty() {
            return AddedFields::default();
        }
        let by = injector(self.subject).map_or(String::new(), |name| format!(", probably by {name}"));
        AddedFields {
            findings,
            words: format!(" (added in admission{by})"),
        }
    }
}
