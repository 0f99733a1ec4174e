//! The judgement of one request: which objects are looked at, by which policy, and what is recorded of it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::annotations;
use super::ownership::Ownership;
use super::record::{Phase, Record};
use super::request::{Request, changes_nothing};
use super::response::{Ruling, unreadable};
use super::ruling::Case;
use crate::engine::effective::{Asker, PolicySet};
use crate::engine::{Inspection, inspect, ratchet};
use crate::model::facts::Facts;
use crate::model::path::Path;
use crate::model::policy::{Action, Policy, Repair, Switch};
use crate::model::severity::Class;
use crate::model::subject::{Editable, Stage, Subject, SubjectError};
use crate::model::workload::Kind;

/// What a review is judged by.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// What is known of the cluster and the day.
    pub facts: &'c Facts,
    /// The policies.
    pub policies: &'c PolicySet,
}

/// Judges one request.
pub fn judge(phase: Phase, request: &Request<'_>, context: &Context<'_>) -> (Ruling, Record) {
    let mut record = Record::of(phase, request);
    let Some(kind) = request.looked_at() else {
        return (Ruling::default(), record);
    };
    let policy = policy_for(request, context);
    record.policy.clone_from(&policy.name);
    if does_nothing(&policy) {
        return (Ruling::default(), record);
    }
    let Some(object) = request.object else {
        return refuse_unreadable(kind, "the request carries no object", &policy, record);
    };
    if &*request.operation == "UPDATE" && changes_nothing(object, request.old_object) {
        return (Ruling::default(), record);
    }
    match parse(phase, kind, request, object) {
        Err(error) => refuse_unreadable(kind, &error.to_string(), &policy, record),
        Ok(mut subject) => {
            let inspection = inspect_as_written(&mut subject, phase, request, context.facts, &policy);
            let ruling = Case {
                phase,
                request,
                object,
                subject: &subject,
                inspection: &inspection,
                policy: &policy,
            }
            .ruling();
            record.set_name(subject.meta.display_name());
            record.labels.decision = ruling.decision();
            record.warned = !ruling.warnings.is_empty();
            record.verdict = Some(inspection.inference.verdict);
            record.rules = annotations::reported(&inspection)
                .map(|finding| finding.rule.name)
                .collect();
            (ruling, record)
        }
    }
}

/// The policy that counts for a request.
fn policy_for<'c>(request: &Request<'_>, context: &Context<'c>) -> Cow<'c, Policy> {
    let namespace = context.facts.namespaces.get(&*request.namespace);
    context.policies.effective(&Asker {
        namespace: &request.namespace,
        labels: namespace.map(|namespace| &namespace.labels),
        user: &request.user_info.username,
        groups: &request.user_info.groups,
        today: context.facts.today,
    })
}

/// Whether nothing would come of a judgement by this policy.
fn does_nothing(policy: &Policy) -> bool {
    policy.validation == Action::Off && policy.placement == Switch::Off && policy.repair == Repair::Off
}

/// An object that the API server could read and we cannot. Only a policy that denies at all refuses it.
fn refuse_unreadable(kind: Kind, why: &str, policy: &Policy, mut record: Record) -> (Ruling, Record) {
    let message = format!("transom cannot read this {kind}: {why}");
    let mut ruling = Ruling {
        annotations: vec![("decision", "unreadable".to_owned())],
        ..Ruling::default()
    };
    if policy.validation == Action::Deny {
        ruling.denial = Some(unreadable(message));
    }
    record.labels.decision = ruling.decision();
    (ruling, record)
}

fn parse<'a>(
    phase: Phase,
    kind: Kind,
    request: &Request<'a>,
    object: &'a RawValue,
) -> Result<Subject<'a>, SubjectError> {
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

/// Inspects an object; where we stand in the way of the other webhooks, as if our `spec.os.name` were not there.
fn inspect_as_written(
    subject: &mut Subject<'_>,
    phase: Phase,
    request: &Request<'_>,
    facts: &Facts,
    policy: &Policy,
) -> Inspection {
    let inspection = inspect_against_old(subject, phase, request, facts, policy);
    if !stands_in_the_way_of_others(subject, &inspection, policy) {
        return inspection;
    }
    subject.os_is_added = true;
    inspect_against_old(subject, phase, request, facts, policy)
}

/// Inspects an object; on UPDATE, what its old self had as well cannot deny.
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

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::request::decode;

    fn ruling(phase: Phase, object: &Value) -> Ruling {
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
        let ruling = ruling(
            Phase::Mutate,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}),
        );
        assert!(ruling.denial.is_none(), "{:?}", ruling.denial);
        ruling.patch.iter().map(|operation| json!(operation)).collect()
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
        let debugger = ruling(Phase::Validate, &pod);
        assert!(debugger.denial.is_none(), "{:?}", debugger.denial);
        assert_eq!(debugger.warnings.len(), 3, "{:?}", debugger.warnings);
        // The label alone is no way round: without a node, the pod is one like any other.
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        assert!(ruling(Phase::Validate, &pod).denial.is_some());
        pod["spec"]["nodeName"] = json!("win-1");
        pod["spec"]["hostname"] = json!("debugger");
        pod["spec"]["securityContext"] = json!({"windowsOptions": {"hostProcess": true}});
        pod["spec"]["hostNetwork"] = json!(false);
        assert!(
            ruling(Phase::Validate, &pod).denial.is_some(),
            "the API server refuses it anyway"
        );
    }
}
