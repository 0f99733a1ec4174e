//! What is answered to one object: denied, patched or allowed, with which words. `/mutate` and `/validate` differ here.

use std::cell::OnceCell;

use jiff::civil::Date;

use super::annotations;
use super::message::{self, Added, Refusal};
use super::ownership::{Ownership, injector};
use super::record::Phase;
use super::request::Request;
use super::response::{Denial, Ruling};
use crate::engine::{Decision, Inspection};
use crate::model::edit::Edit;
use crate::model::json::exists;
use crate::model::object::Object;
use crate::model::os;
use crate::model::path::Path;
use crate::model::policy::{Action, Policy};
use crate::model::requester::Origin;
use crate::model::root_owner::root_owner;
use crate::model::severity::Class;
use crate::rules::Finding;

/// One object in one phase, with what was found: what is answered follows from it.
pub struct Case<'j> {
    pub phase: Phase,
    pub request: &'j Request<'j>,
    pub subject: &'j Object<'j>,
    pub inspection: &'j Inspection,
    pub policy: &'j Policy,
    pub today: Date,
    owners: OnceCell<Ownership<'j>>,
}

impl<'j> Case<'j> {
    /// An object that was inspected.
    pub fn new(
        phase: Phase,
        request: &'j Request<'j>,
        subject: &'j Object<'j>,
        inspection: &'j Inspection,
        policy: &'j Policy,
        today: Date,
    ) -> Self {
        Case {
            phase,
            request,
            subject,
            inspection,
            policy,
            today,
            owners: OnceCell::new(),
        }
    }

    /// Who owns which fields of the object: read where that is asked, once.
    fn owners(&self) -> &Ownership<'j> {
        self.owners
            .get_or_init(|| Ownership::of(self.subject.meta.managed_fields))
    }

    /// What is answered.
    pub fn ruling(&self) -> Ruling<'j> {
        let mut ruling = match self.phase {
            Phase::Mutate => self.mutate(),
            Phase::Validate => self.validate(),
        };
        if !ruling.annotations.is_empty() {
            let decision = ruling.decision().as_str().to_owned();
            ruling.annotations.insert(0, ("decision", decision));
            let Object { kind, meta, .. } = self.subject;
            let owner = root_owner(*kind, meta, self.today).unwrap_or_default();
            annotations::add(&mut ruling.annotations, "owner", &owner);
            if self.owner_is_not_trusted() {
                ruling.annotations.push(("owner-trust", "not-trusted".to_owned()));
            }
            ruling.annotations.push(annotations::schema());
        }
        ruling
    }

    /// Whether more would have passed if the requester were known as the controller of the object's owner.
    fn owner_is_not_trusted(&self) -> bool {
        let is_refused = |finding: &Finding| finding.wanted > Action::Audit;
        self.subject.made_by == Origin::Unproven && self.inspection.of_the_owner().any(is_refused)
    }

    /// Denies only what the API server would refuse next; it would show the user none of the other findings.
    fn mutate(&self) -> Ruling<'j> {
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
        if self.inspection.would_deny().next().is_some() && self.is_refused_next(|finding| finding.wanted) {
            if annotations.is_empty() {
                annotations = annotations::of_findings(inspection, self.policy, false);
            } else {
                annotations.push(("would-deny", annotations::would_deny(inspection)));
            }
        }
        Ruling {
            denial: None,
            patch: &inspection.edits,
            warnings: message::repaired(self.subject, inspection).into_iter().collect(),
            annotations,
        }
    }

    fn validate(&self) -> Ruling<'j> {
        let denied = self.inspection.decision() == Decision::Deny;
        let silent = self.inspection.findings.is_empty()
            && matches!(
                self.inspection.inference.verdict,
                os::Verdict::Linux | os::Verdict::Unknown
            );
        Ruling {
            denial: denied.then(|| self.denial()),
            patch: &[],
            warnings: if denied {
                Vec::new()
            } else {
                message::warnings(self.subject, self.inspection, &self.added())
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
        denials.any(|finding| {
            let refused = finding.class == Class::ApiAlways || (finding.class == Class::Api && says_windows);
            refused && self.owners().owns(&finding.path)
        })
    }

    fn denial(&self) -> Denial<'j> {
        Denial::Found(Refusal {
            subject: self.subject,
            inspection: self.inspection,
            added: self.added(),
            is_update: &*self.request.operation == "UPDATE",
            distrusts_owner: self.owner_is_not_trusted(),
        })
    }

    /// The findings of fields that another webhook added: they say so.
    fn added(&self) -> Added {
        /// Looking a field up reads the object once more; a person needs no more than this many.
        const MOST: usize = 50;
        /// In a larger review, in bytes, looking up takes longer than who added the field is worth.
        const LARGEST: usize = 256 << 10;
        // Best practices speak of what is missing; no webhook added that.
        let may_be_added =
            |finding: &Finding| finding.action >= Action::Warn && finding.class != Class::BestPractice;
        if self.request.body.len() > LARGEST || !self.inspection.open().any(may_be_added) {
            return Added::default();
        }
        let object = OnceCell::new();
        let is_there = |path: &Path| exists(object.get_or_init(|| self.request.object_text()), path);
        let is_added = |finding: &Finding| {
            may_be_added(finding) && !self.owners().owns(&finding.path) && is_there(&finding.path)
        };
        let findings: Vec<usize> = (self.inspection.findings.iter().enumerate().take(MOST))
            .filter(|(_, finding)| is_added(finding))
            .map(|(index, _)| index)
            .collect();
        if findings.is_empty() {
            return Added::default();
        }
        let by = injector(self.subject).map_or(String::new(), |name| format!(", probably by {name}"));
        Added {
            findings,
            words: format!(" (added in admission{by})"),
        }
    }
}
