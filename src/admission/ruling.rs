//! What is answered to one object: denied, patched or allowed, with which words. `/mutate` and `/validate` differ here.

use std::borrow::Cow;

use json_patch::Patch;
use serde_json::value::RawValue;

use super::annotations;
use super::message;
use super::ownership::{Ownership, injector};
use super::record::Phase;
use super::request::Request;
use super::response::{Denial, Ruling};
use crate::engine::{Decision, Inspection};
use crate::model::edit::{Edit, to_json_patch};
use crate::model::json::exists;
use crate::model::os;
use crate::model::owner::MadeBy;
use crate::model::path::Path;
use crate::model::policy::{Action, Policy};
use crate::model::severity::Class;
use crate::model::subject::Subject;
use crate::rules::Finding;

/// One object in one phase, with what was found: what is answered follows from it.
pub struct Case<'j> {
    pub phase: Phase,
    pub request: &'j Request<'j>,
    pub object: &'j RawValue,
    pub subject: &'j Subject<'j>,
    pub inspection: &'j Inspection,
    pub policy: &'j Policy,
}

impl Case<'_> {
    /// What is answered.
    pub fn ruling(&self) -> Ruling {
        let mut ruling = match self.phase {
            Phase::Mutate => self.mutate(),
            Phase::Validate => self.validate(),
        };
        if !ruling.annotations.is_empty() && self.owner_is_not_trusted() {
            ruling.annotations.push(("owner", "not-trusted".to_owned()));
        }
        ruling
    }

    /// Whether more would have passed if the requester were known as the controller of the object's owner.
    fn owner_is_not_trusted(&self) -> bool {
        let is_refused = |finding: &Finding| finding.wanted > Action::Audit;
        self.subject.made_by == MadeBy::Unproven && self.inspection.of_the_owner().any(is_refused)
    }

    /// Denies only what the API server would refuse next; it would show the user none of the other findings.
    fn mutate(&self) -> Ruling {
        let inspection = self.inspection;
        if self.is_refused_next(|finding| finding.action) {
            return Ruling {
                denial: Some(self.denial()),
                annotations: annotations::of_findings(inspection, self.policy, true),
                ..Ruling::default()
            };
        }
        let mut annotations = annotations::of_edits(inspection, self.policy);
        // The API server refuses it before `/validate` could say that we would have.
        if self.policy.validation != Action::Off && self.is_refused_next(|finding| finding.wanted) {
            if annotations.is_empty() {
                annotations = annotations::of_findings(inspection, self.policy, false);
            } else {
                annotations.push(("would-deny", annotations::would_deny(inspection)));
            }
        }
        Ruling {
            denial: None,
            patch: to_json_patch(&inspection.edits),
            warnings: message::repaired(inspection, self.subject.kind)
                .into_iter()
                .collect(),
            annotations,
        }
    }

    fn validate(&self) -> Ruling {
        let denied = self.inspection.decision() == Decision::Deny;
        let silent = self.inspection.findings.is_empty()
            && matches!(
                self.inspection.inference.verdict,
                os::Verdict::Linux | os::Verdict::Unknown
            );
        Ruling {
            denial: denied.then(|| self.denial()),
            patch: Patch::default(),
            warnings: if denied {
                Vec::new()
            } else {
                message::warnings(&self.attributed())
            },
            annotations: if silent {
                Vec::new()
            } else {
                annotations::of_findings(self.inspection, self.policy, denied)
            },
        }
    }

    /// Whether the API server is about to refuse what a finding with action Deny is about, in a field that is owned.
    fn is_refused_next(&self, action: fn(&Finding) -> Action) -> bool {
        let mut denials = self
            .inspection
            .open()
            .filter(|finding| action(finding) == Action::Deny)
            .peekable();
        if denials.peek().is_none() {
            return false;
        }
        let takes_back =
            |edit: &Edit| matches!(edit, Edit::Remove(path) if *path == Path::of(&["spec", "os"]));
        let says_windows = !self.inspection.edits.iter().any(takes_back)
            && self
                .subject
                .pod()
                .is_some_and(|pod| pod.os_name() == Some("windows"));
        let owners = Ownership::of(self.subject.meta.managed_fields);
        denials.any(|finding| {
            let refused = finding.class == Class::ApiAlways || (finding.class == Class::Api && says_windows);
            refused && owners.owns(&finding.path)
        })
    }

    fn denial(&self) -> Denial {
        let is_update = &*self.request.operation == "UPDATE";
        let mut denial = message::denial(self.subject, &self.attributed(), is_update);
        if self.owner_is_not_trusted() {
            message::owner_is_not_trusted(&mut denial, self.subject);
        }
        denial
    }

    /// The inspection in which every field that another webhook added says so.
    fn attributed(&self) -> Cow<'_, Inspection> {
        /// Looking a field up reads the object once more; a person needs no more than this many.
        const MOST: usize = 50;
        /// In a larger object, in bytes, looking up takes longer than who added the field is worth.
        const LARGEST: usize = 256 << 10;
        // Best practices speak of what is missing; no webhook added that.
        let may_be_added =
            |finding: &Finding| finding.action >= Action::Warn && finding.class != Class::BestPractice;
        if self.object.get().len() > LARGEST || !self.inspection.open().any(may_be_added) {
            return Cow::Borrowed(self.inspection);
        }
        let owners = Ownership::of(self.subject.meta.managed_fields);
        let is_added = |finding: &Finding| {
            may_be_added(finding) && !owners.owns(&finding.path) && exists(self.object.get(), &finding.path)
        };
        let added: Vec<usize> = (self.inspection.findings.iter().enumerate().take(MOST))
            .filter(|(_, finding)| is_added(finding))
            .map(|(index, _)| index)
            .collect();
        if added.is_empty() {
            return Cow::Borrowed(self.inspection);
        }
        let by = injector(self.subject).map_or(String::new(), |name| format!(", probably by {name}"));
        let mut inspection = self.inspection.clone();
        for index in added {
            if let Some(finding) = inspection.findings.get_mut(index) {
                finding.message = format!("{} (added in admission{by})", finding.message).into();
            }
        }
        Cow::Owned(inspection)
    }
}
