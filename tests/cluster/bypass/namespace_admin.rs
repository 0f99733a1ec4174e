//! One sentence for every kind, with kube-controller-manager: an administrator of a namespace gets nothing forbidden for
//! Windows stored, and nothing run but documented ignored fields. What is stored is read here without Transom's code.
//! `TRANSOM_BYPASS_ROUNDS` repeats what is random.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use transom::model::objects::workload::Kind;

use super::clients::{eprint_table, send};
use super::place::{Answer, MALLORY, NODE, Place, RUNTIME, denied, merged, place};
use crate::support::control_plane::wait;
use crate::support::dice::Dice;
use crate::support::objects::{IMAGE, KINDS, object, spec_of, template_of, url_of};
use crate::support::recorder::Recorder;

const NAMESPACE: &str = "held";
const A_WHILE: Duration = Duration::from_secs(60);
/// The attempts of a round.
const ATTEMPTS: usize = 90;

fn rounds() -> usize {
    let requested = std::env::var("TRANSOM_BYPASS_ROUNDS");
    requested.map_or(1, |count| {
        count.parse().expect("TRANSOM_BYPASS_ROUNDS is a number")
    })
}

/// What makes a pod a Windows pod; none of it is in the image.
fn evidence(dice: &mut Dice) -> Value {
    let terms = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let windows =
        json!({"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]});
    let never = json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["9"]}, {"key": "a", "operator": "Lt", "values": ["3"]}]});
    match dice.below(5) {
        0 => terms(json!([windows])),
        1 => terms(json!([never, windows])),
        2 => json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}}),
        3 => json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}}),
        _ => json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
    }
}

/// Fields that Windows does not have. The API server accepts all of them together.
fn forbidden(dice: &mut Dice) -> Value {
    let of_container = |context: Value| json!({"containers": [{"name": "web", "image": "registry.example.com/web:1", "securityContext": context}]});
    match dice.below(7) {
        0 => json!({"hostPID": true}),
        1 => json!({"hostIPC": true}),
        2 => json!({"securityContext": {"runAsUser": 1000}}),
        3 => json!({"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}}),
        4 => of_container(json!({"privileged": true})),
        5 => of_container(json!({"runAsUser": 0})),
        _ => of_container(json!({"capabilities": {"add": ["NET_ADMIN"]}})),
    }
}

fn plain() -> Value {
    json!({"containers": [{"name": "web", "image": "registry.example.com/web:1"}]})
}

/// Whether a node must be a Windows node for this pod, as the scheduler reads it.
fn is_for_windows(spec: &Value) -> bool {
    let is_windows = |labels: &Value| {
        labels["kubernetes.io/os"] == "windows"
            || labels["beta.kubernetes.io/os"] == "windows"
            || !labels["node.kubernetes.io/windows-build"].is_null()
    };
    let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let terms = terms.as_array().cloned().unwrap_or_default();
    // Nothing here has a term that some node could satisfy without being a Windows node, except the documented one.
    let names_windows = |term: &Value| term.to_string().contains("windows");
    let is_documented = terms.iter().any(|term| term.to_string().contains("nope"));
    spec["os"]["name"] == "windows"
        || is_windows(&spec["nodeSelector"])
        || (terms.iter().any(names_windows) && !is_documented)
}

/// The fields of a stored pod spec that Windows does not have.
fn forbidden_fields(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for field in ["hostPID", "hostIPC", "hostNetwork"] {
        if spec[field] == true {
            found.push(field.to_owned());
        }
    }
    let mut contexts = vec![&spec["securityContext"]];
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let containers = spec[list].as_array().into_iter().flatten();
        contexts.extend(containers.map(|container| &container["securityContext"]));
    }
    for context in contexts {
        for field in ["runAsUser", "seLinuxOptions", "privileged", "capabilities"] {
            if !context[field].is_null() && context[field] != false {
                found.push(field.to_owned());
            }
        }
    }
    found
}

/// The namespace, whose administrator is the attacker.
fn prepare(place: &Place) {
    place.cluster.create_namespace(NAMESPACE, &[]);
    let bind = |name: &str, role: &str| {
        let bind = [
            "create",
            "rolebinding",
            name,
            role,
            "--user",
            MALLORY,
            "-n",
            NAMESPACE,
        ];
        place.cluster.kubectl(&bind).succeeded();
    };
    bind("owner", "--clusterrole=admin");
    // The ClusterRole `admin` has no rights on these; here their author is the same user.
    for (name, resources) in [
        ("templates", "podtemplates"),
        ("debug", "pods/ephemeralcontainers"),
    ] {
        let resources = format!("--resource={resources}");
        let verbs = "--verb=create,get,list,update,patch,delete";
        place
            .cluster
            .kubectl(&["create", "role", name, verbs, &resources, "-n", NAMESPACE])
            .succeeded();
        bind(name, &format!("--role={name}"));
    }
}

/// An object with labels of its own, so that no controller adopts the pods of another.
fn named(kind: Kind, name: &str, spec: &Value) -> Value {
    let text = object(kind, name, spec).to_string();
    serde_json::from_str(&text.replace(r#""app":"a""#, &format!(r#""app":"{name}""#))).unwrap()
}

fn create(place: &Place, kind: Kind, object: &Value) -> Answer {
    let body = object.to_string();
    send(
        place,
        "POST",
        &url_of(kind, NAMESPACE),
        "application/json",
        body.as_bytes(),
    )
}

/// A merge patch of the pod spec.
fn patch(place: &Place, kind: Kind, name: &str, over: &Value) -> Answer {
    let fields = kind.template().unwrap().iter().chain([&"spec"]);
    let patch = fields
        .rev()
        .fold(over.clone(), |inner, field| json!({ *field: inner }));
    let path = format!("{}/{name}", url_of(kind, NAMESPACE));
    send(
        place,
        "PATCH",
        &path,
        "application/merge-patch+json",
        patch.to_string().as_bytes(),
    )
}

/// One of the ways to a forbidden object; the answer to its last step, which must be a denial.
fn attempt(place: &Place, dice: &mut Dice, kind: Kind, name: &str) -> (&'static str, Answer) {
    let (evidence, forbidden) = (evidence(dice), forbidden(dice));
    let bad = merged(&plain(), &forbidden);
    let can_change = !matches!(kind, Kind::Pod | Kind::Job);
    match dice.below(3) {
        0 => {
            // The evidence comes later. Only these fields of a gated Pod and of a suspended Job can be changed.
            let mut object = named(kind, name, &bad);
            match kind {
                Kind::Pod => object["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]),
                Kind::Job => object["spec"]["suspend"] = true.into(),
                _ => {}
            }
            let stored = create(place, kind, &object);
            assert!(stored.ok, "a pod without a sign: {object}: {stored:?}");
            (
                "the evidence in a second step",
                patch(place, kind, name, &evidence),
            )
        }
        1 if can_change => {
            let good = named(kind, name, &merged(&plain(), &evidence));
            let stored = create(place, kind, &good);
            assert!(stored.ok, "{good}: {stored:?}");
            (
                "the fields in a second step",
                patch(place, kind, name, &forbidden),
            )
        }
        _ => {
            let object = named(kind, name, &merged(&bad, &evidence));
            ("at once", create(place, kind, &object))
        }
    }
}

/// Adds a selector to pods.
fn inject(_: &str, request: &Value) -> Option<Value> {
    request["object"]["spec"]["nodeSelector"].is_null().then(
        || json!([{"op": "add", "path": "/spec/nodeSelector", "value": {"kubernetes.io/os": "windows"}}]),
    )
}

/// What is documented: each is stored, or runs, with fields that Windows ignores.
fn documented(place: &Place) {
    let bad = merged(&plain(), &json!({"hostPID": true}));
    // An injector for the pods with a label: what a controller creates is denied only for what cannot run.
    let injector = RUNTIME.block_on(Recorder::start_with(inject));
    let ca = {
        use base64::Engine as _;
        base64::prelude::BASE64_STANDARD.encode(&injector.ca)
    };
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "aaa-held"}, "webhooks": [{
        "name": "inject.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": {"url": format!("{}/inject", injector.url), "caBundle": ca}, "timeoutSeconds": 30,
        "objectSelector": {"matchLabels": {"inject": "yes"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    }]});
    let apply = ["apply", "--server-side", "-f", "-"];
    place
        .cluster
        .kubectl_with(&apply, &configuration.to_string())
        .succeeded();
    let injected = |name: &str, labels: &Value| {
        let mut deployment = named(Kind::Deployment, name, &bad);
        let template = template_of(Kind::Deployment, &mut deployment).unwrap();
        json_patch::merge(&mut template["metadata"]["labels"], labels);
        deployment
    };
    // A person's pod is denied, so the API server calls the injector.
    let mut probe = named(Kind::Pod, "probe", &bad);
    probe["metadata"]["labels"] = json!({"inject": "yes"});
    assert!(
        wait(A_WHILE, || denied(&create(place, Kind::Pod, &probe))),
        "{probe}"
    );
    let answer = create(
        place,
        Kind::Deployment,
        &injected("injected", &json!({"inject": "yes"})),
    );
    assert!(answer.ok, "{answer:?}");
    // The kubelet rejects a pod whose label names another system.
    let cannot_run = json!({"inject": "yes", "kubernetes.io/os": "linux"});
    let answer = create(place, Kind::Deployment, &injected("cannot-run", &cannot_run));
    assert!(answer.ok, "{answer:?}");

    // A term that some node may satisfy one day.
    let term = |key: &str, value: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
    let either = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [term("nope", "x"), term("kubernetes.io/os", "windows")]}}}});
    let answer = create(
        place,
        Kind::Deployment,
        &named(Kind::Deployment, "either", &merged(&bad, &either)),
    );
    assert!(answer.ok, "{answer:?}");

    // A debug container: its fields are removed, and those of the pod were there before.
    let answer = create(place, Kind::Pod, &named(Kind::Pod, "debugged", &bad));
    assert!(answer.ok, "{answer:?}");
    let debugger = json!({"spec": {"ephemeralContainers": [
        {"name": "debugger", "image": IMAGE, "securityContext": {"privileged": true}}]}});
    let path = format!("{}/debugged/ephemeralcontainers", url_of(Kind::Pod, NAMESPACE));
    let merge = "application/strategic-merge-patch+json";
    let answer = send(place, "PATCH", &path, merge, debugger.to_string().as_bytes());
    assert!(answer.ok, "{answer:?}");
    let debugged = stored(place, Kind::Pod)
        .into_iter()
        .find(|pod| pod["metadata"]["name"] == "debugged");
    let container = debugged.unwrap()["spec"]["ephemeralContainers"][0].clone();
    assert!(
        container["securityContext"]["privileged"].is_null(),
        "{container}"
    );

    // `kubectl debug node`, exactly as kubectl writes it.
    let mut node = named(
        Kind::Pod,
        &format!("node-debugger-{NODE}-xxxxx"),
        &json!({"nodeName": NODE, "nodeSelector": {"kubernetes.io/os": "windows"}, "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}], "hostPID": true, "hostIPC": true, "hostNetwork": true,
            "containers": [{"name": "debugger", "image": IMAGE}]}),
    );
    node["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "kubectl-debug"});
    let answer = create(place, Kind::Pod, &node);
    assert!(answer.ok, "{answer:?}");
}

fn stored(place: &Place, kind: Kind) -> Vec<Value> {
    let plural = crate::support::objects::plural(kind);
    let listed = place
        .cluster
        .kubectl(&["get", &plural, "-n", NAMESPACE, "-o", "json"]);
    listed.succeeded().objects()
}

/// The name of a stored Windows object with a forbidden field, and these fields.
fn violations(place: &Place) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for kind in KINDS {
        for mut object in stored(place, kind) {
            let name = format!("{kind} {}", object["metadata"]["name"].as_str().unwrap());
            let spec = spec_of(kind, &mut object).unwrap();
            let fields = forbidden_fields(spec);
            if is_for_windows(spec) && !fields.is_empty() {
                found.insert(name, fields);
            }
        }
    }
    found
}

#[test]
fn an_administrator_of_a_namespace_gets_nothing_forbidden_stored_and_nothing_run_but_documented_fields() {
    let Some(place) = place() else { return };
    prepare(place);
    let (mut dice, mut counts, mut admitted) = (Dice(0x1e57), BTreeMap::<&str, usize>::new(), Vec::new());
    let ready = named(Kind::Pod, "ready", &plain());
    assert!(
        wait(A_WHILE, || create(place, Kind::Pod, &ready).ok),
        "the rights of `admin`"
    );
    for n in 0..rounds() * ATTEMPTS {
        let (kind, name) = (KINDS[n % KINDS.len()], format!("held-{n}"));
        let (way, answer) = attempt(place, &mut dice, kind, &name);
        *counts.entry(way).or_default() += 1;
        if !denied(&answer) {
            admitted.push(format!("{kind} {name}, {way}: {answer:?}"));
        }
    }
    documented(place);
    // The controllers create the pods of what is stored.
    let of_app = |app: &str| {
        let pods = stored(place, Kind::Pod).into_iter();
        pods.filter(|pod| pod["metadata"]["labels"]["app"] == app).count()
    };
    assert!(wait(A_WHILE, || of_app("injected") == 1 && of_app("either") == 1));
    let reason = "--field-selector=reason=FailedCreate";
    let refused = || {
        place
            .cluster
            .kubectl(&["get", "events", "-n", NAMESPACE, reason, "-o", "json"])
            .out
    };
    assert!(
        wait(A_WHILE, || refused().contains("cannot-run")),
        "{}",
        refused()
    );
    assert_eq!(of_app("cannot-run"), 0, "the kubelet would reject it");

    let violations = violations(place);
    eprint_table(&format!(
        "an administrator of a namespace: {counts:?}, admitted: {}, stored with fields that Windows ignores: {violations:?}",
        admitted.len()
    ));
    assert!(admitted.is_empty(), "{admitted:#?}");
    let is_documented = |name: &String| {
        name.starts_with("Pod injected-") || *name == format!("Pod node-debugger-{NODE}-xxxxx")
    };
    let undocumented: Vec<&String> = violations.keys().filter(|name| !is_documented(name)).collect();
    assert!(undocumented.is_empty(), "{violations:#?}");
    assert!(
        violations.keys().any(|name| name.starts_with("Pod injected-")),
        "{violations:?}"
    );
    let delete = ["delete", "mutatingwebhookconfiguration", "aaa-held"];
    place.cluster.kubectl(&delete).succeeded();
}
