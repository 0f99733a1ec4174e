//! The judgement of one request: which objects are looked at, in which phase what is said, and what is recorded.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::annotations;
use super::message;
use super::ownership::{Ownership, exists, injector};
use super::request::{Request, changes_nothing};
use super::response::{Verdict, unreadable};
use super::{Phase, closed};
use crate::engine::effective::{Asker, PolicySet};
use crate::engine::{Decision, Inspection, inspect, ratchet};
use crate::model::facts::Facts;
use crate::model::finding::{Class, Finding};
use crate::model::os;
use crate::model::policy::{Action, Policy, Repair, Switch};
use crate::model::subject::{Editable, Stage, Subject};
use crate::model::workload::Kind;

/// What a review is judged by.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// What is known of the cluster and the day.
    pub facts: &'c Facts,
    /// The policies.
    pub policies: &'c PolicySet,
}

/// What there is to log and count of a review.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The review's uid.
    pub uid: String,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `other`.
    pub operation: &'static str,
    /// A kind that Transom knows, or `other`.
    pub kind: &'static str,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// Where the object is.
    pub namespace: String,
    /// Its name, or what it is called before it has one.
    pub name: String,
    /// Who asked.
    pub user: String,
    /// Whether the API server only tries.
    pub dry_run: bool,
    /// `allow`, `patch`, `deny`, or `skip` where nothing was looked at.
    pub decision: &'static str,
    /// The verdict, where there is one.
    pub verdict: Option<os::Verdict>,
    /// The slugs of the open findings, one each.
    pub rules: Vec<&'static str>,
    /// The audit annotations that went out.
    pub annotations: Vec<(&'static str, String)>,
    /// The policy that counted.
    pub policy: String,
}

impl Record {
    /// The value of an audit annotation, where it went out.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.as_str())
    }
}

const OPERATIONS: &[&str] = &["CREATE", "UPDATE", "DELETE", "CONNECT"];

/// Judges one request.
pub fn judge(phase: Phase, request: &Request<'_>, context: &Context<'_>) -> (Verdict, Record) {
    let kind = Kind::of(&request.kind.group, &request.kind.kind).filter(|kind| kind.has_pod());
    let mut record = Record {
        uid: request.uid.to_string(),
        operation: closed(&request.operation, OPERATIONS),
        kind: kind.map_or("other", Kind::as_str),
        subresource: request.sub_resource.to_string(),
        namespace: request.namespace.to_string(),
        name: request.name.to_string(),
        user: request.user_info.username.to_string(),
        dry_run: request.dry_run.0,
        decision: "skip",
        ..Record::default()
    };
    let looked_at = matches!(&*request.operation, "CREATE" | "UPDATE")
        && matches!(&*request.sub_resource, "" | "ephemeralcontainers" | "resize");
    let (Some(kind), true) = (kind, looked_at) else {
        return (Verdict::default(), record);
    };

    let namespace = context.facts.namespaces.get(&*request.namespace);
    let policy = context.policies.effective(&Asker {
        namespace: &request.namespace,
        labels: namespace.map(|namespace| &namespace.labels),
        user: &request.user_info.username,
        groups: &request.user_info.groups,
        today: context.facts.today,
    });
    record.policy.clone_from(&policy.name);
    if policy.validation == Action::Off && policy.placement == Switch::Off && policy.repair == Repair::Off {
        return (Verdict::default(), record);
    }

    let Some(object) = request.object else {
        return refuse_unreadable(kind, "the request carries no object", &policy, record);
    };
    if &*request.operation == "UPDATE" && changes_nothing(object, request.old_object) {
        return (Verdict::default(), record);
    }
    match parse(phase, kind, request, object) {
        Err(error) => refuse_unreadable(kind, &error.to_string(), &policy, record),
        Ok(subject) => {
            let inspection = inspect_against_old(&subject, phase, request, context.facts, &policy);
            let judged = Judged {
                phase,
                request,
                object,
                subject: &subject,
                inspection: &inspection,
                policy: &policy,
            };
            let verdict = judged.verdict();
            subject.meta.display_name().clone_into(&mut record.name);
            record.decision = match &verdict {
                Verdict { denial: Some(_), .. } => "deny",
                Verdict { edits, .. } if !edits.is_empty() => "patch",
                _ => "allow",
            };
            record.verdict = Some(inspection.inference.verdict);
            record.rules = annotations::reported(&inspection)
                .map(|finding| finding.rule.name)
                .collect();
            (verdict, record)
        }
    }
}

/// An object that the API server could read and we cannot. Only a policy that denies at all refuses it.
fn refuse_unreadable(kind: Kind, why: &str, policy: &Policy, mut record: Record) -> (Verdict, Record) {
    let message = format!("transom cannot read this {kind}: {why}");
    let mut verdict = Verdict {
        annotations: vec![("decision", "unreadable".to_owned())],
        ..Verdict::default()
    };
    if policy.validation == Action::Deny {
        verdict.denial = Some(unreadable(message));
        record.decision = "deny";
    } else {
        record.decision = "allow";
    }
    (verdict, record)
}

fn parse<'a>(
    phase: Phase,
    kind: Kind,
    request: &Request<'a>,
    object: &'a RawValue,
) -> Result<Subject<'a>, crate::model::subject::SubjectError> {
    let stage = if phase == Phase::Mutate {
        Stage::Written
    } else {
        Stage::Stored
    };
    let mut subject = Subject::parse(kind, object.get(), stage)?;
    if !request.namespace.is_empty() {
        subject.namespace = request.namespace.clone();
    }
    subject.editable = match (phase, &*request.operation, &*request.sub_resource) {
        (Phase::Mutate, "CREATE", "") if kind == Kind::Pod => Editable::Pod,
        (Phase::Mutate, "UPDATE", "ephemeralcontainers") => Editable::EphemeralContainers,
        _ => Editable::Nothing,
    };
    Ok(subject)
}

fn inspect_against_old(
    subject: &Subject<'_>,
    phase: Phase,
    request: &Request<'_>,
    facts: &Facts,
    policy: &Policy,
) -> Inspection {
    let mut inspection = inspect(subject, facts, policy);
    if &*request.operation == "UPDATE" && !inspection.findings.is_empty() {
        let old = request
            .old_object
            .and_then(|old| parse(phase, subject.kind, request, old).ok());
        if let Some(mut old) = old {
            old.editable = Editable::Nothing;
            ratchet::lower_known(subject.kind, &mut inspection, &inspect(&old, facts, policy));
        }
    }
    inspection
}

struct Judged<'j> {
    phase: Phase,
    request: &'j Request<'j>,
    object: &'j RawValue,
    subject: &'j Subject<'j>,
    inspection: &'j Inspection,
    policy: &'j Policy,
}

impl Judged<'_> {
    fn verdict(&self) -> Verdict {
        match self.phase {
            Phase::Mutate => self.mutate(),
            Phase::Validate => self.validate(),
        }
    }

    /// Denies only what the API server would refuse next; it would show the user none of the other findings.
    fn mutate(&self) -> Verdict {
        let inspection = self.inspection;
        if self.is_refused_next(|finding| finding.action) {
            return Verdict {
                denial: Some(self.denial()),
                annotations: annotations::of_findings(inspection, self.policy, true),
                ..Verdict::default()
            };
        }
        let edits = inspection.edits.clone();
        let mut annotations = annotations::of_edits(inspection, self.policy);
        // The API server refuses it before `/validate` could say that we would have.
        if self.policy.validation != Action::Off && self.is_refused_next(|finding| finding.wanted) {
            if annotations.is_empty() {
                annotations = annotations::of_findings(inspection, self.policy, false);
            } else {
                annotations.push(("would-deny", annotations::would_deny(inspection)));
            }
        }
        Verdict {
            denial: None,
            edits,
            warnings: message::repaired(inspection).into_iter().collect(),
            annotations,
        }
    }

    fn validate(&self) -> Verdict {
        let denied = self.inspection.decision() == Decision::Deny;
        let silent = self.inspection.findings.is_empty()
            && matches!(
                self.inspection.inference.verdict,
                os::Verdict::Linux | os::Verdict::Unknown
            );
        Verdict {
            denial: denied.then(|| self.denial()),
            edits: Vec::new(),
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
        let says_windows = self
            .subject
            .pod()
            .is_some_and(|pod| pod.os_name() == Some("windows"));
        let owners = Ownership::of(self.subject.meta.managed_fields);
        denials.any(|finding| {
            let refused = finding.class == Class::ApiAlways || (finding.class == Class::Api && says_windows);
            refused && owners.owns(&finding.path)
        })
    }

    fn denial(&self) -> super::response::Denial {
        message::denial(
            self.subject,
            &self.attributed(),
            &*self.request.operation == "UPDATE",
        )
    }

    /// The inspection in which every field that another webhook added says so.
    fn attributed(&self) -> Cow<'_, Inspection> {
        /// Looking a field up reads the object once more; a person needs no more than this many.
        const MOST: usize = 50;
        /// In a larger object, in bytes, looking up takes longer than who added the field is worth.
        const LARGEST: usize = 256 << 10;
        // Best practices speak of what is missing; nobody added that.
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
