//! The judgement of one request: which objects are looked at, in which phase what is said, and what is recorded.

use std::borrow::Cow;

use json_patch::Patch;
use serde_json::value::RawValue;

use super::annotations;
use super::message;
use super::ownership::{Ownership, injector};
use super::request::{Request, changes_nothing};
use super::response::{Verdict, unreadable};
use super::{Phase, closed};
use crate::engine::effective::{Asker, PolicySet};
use crate::engine::{Decision, Inspection, inspect, ratchet};
use crate::model::edit::{Edit, to_json_patch};
use crate::model::facts::Facts;
use crate::model::json::exists;
use crate::model::os;
use crate::model::path::Path;
use crate::model::policy::{Action, Policy, Repair, Switch};
use crate::model::severity::Class;
use crate::model::subject::{Editable, Stage, Subject};
use crate::model::workload::Kind;
use crate::rules::Finding;

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
        Ok(mut subject) => {
            let mut inspection = inspect_against_old(&subject, phase, request, context.facts, &policy);
            if stands_in_the_way_of_others(&subject, &inspection, &policy) {
                subject.os_is_added = true;
                inspection = inspect_against_old(&subject, phase, request, context.facts, &policy);
            }
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
                Verdict { patch, .. } if !patch.is_empty() => "patch",
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

/// Whether a pod would be refused for `spec.os.name`, which no author wrote: most likely we did, before another webhook
/// added what the API server then refuses. Who wrote it takes time to tell, so that is asked last.
fn stands_in_the_way_of_others(subject: &Subject<'_>, inspection: &Inspection, policy: &Policy) -> bool {
    let says_windows = subject.pod().is_some_and(|pod| pod.os_name() == Some("windows"));
    let is_refused = || {
        // A rule that is off does not tell.
        !policy.actions.is_empty()
            || inspection
                .findings
                .iter()
                .any(|finding| finding.rule.class == Class::Api)
    };
    subject.editable == Editable::Pod
        && says_windows
        && is_refused()
        && !Ownership::of(subject.meta.managed_fields).owns(&Path::of(&["spec", "os", "name"]))
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
            patch: to_json_patch(&inspection.edits),
            warnings: message::repaired(inspection, self.subject.kind)
                .into_iter()
                .collect(),
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

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::request::decode;

    fn verdict(phase: Phase, object: &Value) -> Verdict {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "default",
            "operation": "CREATE", "object": object,
        }})
        .to_string();
        let context = Context {
            facts: &Facts::new(Facts::KUBERNETES, date(2026, 1, 1)),
            policies: &PolicySet::new(Vec::new(), Policy::standalone()),
        };
        judge(phase, &decode(review.as_bytes()).unwrap(), &context).0
    }

    /// What `/mutate` does with a pod whose author wrote these fields; the others came in admission.
    fn patch(written: &Value, pod: &Value) -> Vec<Value> {
        let fields = json!([{"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": written}}]);
        let metadata = json!({"name": "web", "managedFields": fields});
        let verdict = verdict(
            Phase::Mutate,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}),
        );
        assert!(verdict.denial.is_none(), "{:?}", verdict.denial);
        verdict.patch.iter().map(|operation| json!(operation)).collect()
    }

    /// A pod as placement left it, with the sidecar that a later webhook put in.
    fn with_sidecar(security: &Value) -> Value {
        json!({
            "os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"},
            "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}],
            "containers": [{"name": "web", "image": "web"}, {"name": "proxy", "image": "proxy", "securityContext": security}],
        })
    }

    #[test]
    fn an_os_name_that_no_author_wrote_is_taken_back_where_the_api_server_would_refuse_the_pod_for_it() {
        let written = json!({"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}});
        let linux = with_sidecar(&json!({"runAsUser": 1337}));
        assert_eq!(
            patch(&written, &linux),
            [json!({"op": "remove", "path": "/spec/os"})]
        );
        // Called once more it has nothing to do.
        let mut taken_back = linux;
        taken_back.as_object_mut().unwrap().remove("os");
        assert_eq!(patch(&written, &taken_back), Vec::<Value>::new());
    }

    #[test]
    fn an_os_name_stays_where_its_author_wrote_it_or_nothing_stands_in_its_way() {
        let none = Vec::<Value>::new();
        let written = json!({"f:os": {"f:name": {}}, "f:containers": {"k:{\"name\":\"web\"}": {}}});
        assert_eq!(patch(&written, &with_sidecar(&json!({"runAsUser": 1337}))), none);
        let without = json!({"f:containers": {"k:{\"name\":\"web\"}": {}}});
        assert_eq!(
            patch(&without, &with_sidecar(&json!({"runAsNonRoot": true}))),
            none
        );
        // The name is all that says Windows: it only goes because the selector comes.
        let mut unselective = with_sidecar(&json!({"runAsUser": 1337}));
        unselective.as_object_mut().unwrap().remove("nodeSelector");
        let edits = patch(&without, &unselective);
        assert!(
            edits.iter().any(|edit| edit["path"] == "/spec/nodeSelector"),
            "{edits:?}"
        );
    }

    #[test]
    fn what_kubectl_writes_to_debug_a_node_is_warned_of_and_what_cannot_run_there_is_refused() {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "node-debugger", "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"}},
            "spec": {
                "nodeName": "win-1", "hostPID": true, "hostIPC": true, "hostNetwork": true,
                "containers": [{"name": "debugger", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}],
            },
        });
        let debugger = verdict(Phase::Validate, &pod);
        assert!(debugger.denial.is_none(), "{:?}", debugger.denial);
        assert_eq!(debugger.warnings.len(), 3, "{:?}", debugger.warnings);
        // The label alone is no way round: without a node, the pod is one like any other.
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        assert!(verdict(Phase::Validate, &pod).denial.is_some());
        pod["spec"]["nodeName"] = json!("win-1");
        pod["spec"]["hostname"] = json!("debugger");
        pod["spec"]["securityContext"] = json!({"windowsOptions": {"hostProcess": true}});
        pod["spec"]["hostNetwork"] = json!(false);
        assert!(
            verdict(Phase::Validate, &pod).denial.is_some(),
            "the API server refuses it anyway"
        );
    }
}
