//! What an attacker with the token of Transom's account cannot get: on a real API server, with the rights and the
//! admission policies of the chart.

use std::time::Duration;

use serde_json::{Value, json};
use transom::model::nodes::node::Taint;

use super::container::kubeconfig_of;
use super::engine::{Engine, engine};
use super::leaving::{CLASS, untainted};
use super::trust::kubectl_reads;
use crate::support::command::{printed, program};
use crate::support::control_plane::{ControlPlane, Printed, free_ports, wait};
use crate::support::install;

pub const NAMESPACE: &str = "transom-system";
const SECRET: &str = "transom-certificates";

/// An API server with the account of a release, its rights and its admission policies, and nothing that runs.
pub struct Attack {
    pub cluster: ControlPlane,
    account: String,
}

impl Attack {
    pub fn start(what: &str, values: &Value) -> Option<Attack> {
        let engine = engine()?;
        let cluster = ControlPlane::start_or_skip(what)?;
        for namespace in ["apps", NAMESPACE] {
            cluster.create_namespace(namespace, &[]);
        }
        define_reports(&cluster);
        let attack = Attack {
            cluster,
            account: format!("system:serviceaccount:{NAMESPACE}:transom"),
        };
        attack.install(engine, values);
        for object in kubectl_reads(&attack.account) {
            apply(&attack.cluster, &object.to_string());
        }
        Some(attack)
    }

    /// Applies what of the chart decides what the account may do.
    fn install(&self, engine: &Engine, values: &Value) {
        let rendered = engine.render(values).unwrap();
        let kinds = [
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
            "Role",
            "RoleBinding",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ];
        let items: Vec<&Value> = rendered
            .objects
            .iter()
            .filter(|object| kinds.iter().any(|kind| object["kind"] == *kind))
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        apply(&self.cluster, &list);
    }

    pub fn as_transom(&self, arguments: &[&str], input: &Value) -> Printed {
        let arguments = [arguments, &["--as", &self.account]].concat();
        self.cluster.kubectl_with(&arguments, &input.to_string())
    }

    pub fn create(&self, object: &Value) -> Printed {
        self.as_transom(&["create", "-f", "-"], object)
    }

    /// Waits until the API server knows the policies, each of which refuses one of these.
    fn is_held(&self) {
        for object in [
            in_namespace("v1", "Secret", "other", json!({"type": "Opaque"})),
            in_namespace("coordination.k8s.io/v1", "Lease", "other", json!({})),
            event("other", json!({"reportingController": "kubelet"})),
            report("other", &json!({})),
        ] {
            let held = || {
                let arguments = ["create", "--dry-run=server", "-f", "-"];
                self.as_transom(&arguments, &object)
                    .err
                    .contains("ValidatingAdmissionPolicy")
            };
            assert!(wait(Duration::from_secs(60), held), "it may create {object}");
        }
    }
}

/// Something with a name in Transom's namespace.
fn in_namespace(api_version: &str, kind: &str, name: &str, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE},
    });
    merge(&mut object, more);
    object
}

fn event(name: &str, more: Value) -> Value {
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": "apps"},
        "reportingController": "transom.dev/controller", "reportingInstance": "transom", "action": "A", "reason": "B", "note": "c",
        "type": "Warning", "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "apps"},
    });
    merge(&mut event, more);
    event
}

fn report(name: &str, metadata: &Value) -> Value {
    let mut report = json!({
        "apiVersion": "openreports.io/v1alpha1", "kind": "Report", "metadata": {"name": name, "namespace": "apps"},
    });
    merge(&mut report["metadata"], metadata.clone());
    report
}

/// Puts the fields of `more` into `object`, maps in maps.
pub fn merge(object: &mut Value, more: Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (key, value) in more {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, more) => *object = more,
    }
}

fn define_reports(cluster: &ControlPlane) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "reports.openreports.io"},
        "spec": {
            "group": "openreports.io", "scope": "Namespaced", "names": {"kind": "Report", "plural": "reports"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    apply(cluster, &definition.to_string());
    cluster.wait_for_definitions();
}

/// Applies objects; an API server that has just started does not know its own schemas yet.
pub fn apply(cluster: &ControlPlane, objects: &str) {
    let applied = || {
        let arguments = ["apply", "--server-side", "-f", "-"];
        cluster.kubectl_with(&arguments, objects).ok
    };
    assert!(wait(Duration::from_secs(60), applied), "{objects}");
}

/// The Secret as the leader makes it.
fn certificates() -> Value {
    in_namespace(
        "v1",
        "Secret",
        SECRET,
        json!({
            "metadata": {
                "labels": {"app.kubernetes.io/managed-by": "transom", "transom.dev/owned": "true"},
            },
            "type": "kubernetes.io/tls",
            "stringData": {"ca.crt": "a", "ca.key": "b", "tls.crt": "c", "tls.key": "d"},
        }),
    )
}

/// A Secret into which the token controller puts a token of another account.
fn token() -> Value {
    in_namespace(
        "v1",
        "Secret",
        SECRET,
        json!({
            "metadata": {"annotations": {"kubernetes.io/service-account.name": "operator"}},
            "type": "kubernetes.io/service-account-token",
        }),
    )
}

/// The whole way to a token of another account of the namespace; `Err`: what refused it.
fn steal(attack: &Attack) -> Result<String, String> {
    // The garbage collector deletes what has an owner that is not there.
    let owner = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000001"}]}});
    let path = ["patch", "secret", SECRET, "-n", NAMESPACE, "--type=merge", "-p"];
    let patched = attack.as_transom(&[&path[..], &[&owner.to_string()]].concat(), &Value::Null);
    if !patched.ok {
        return Err(patched.err);
    }
    let secret = ["get", "secret", SECRET, "-n", NAMESPACE, "-o", "json"];
    let gone = || !attack.as_transom(&secret, &Value::Null).ok;
    assert!(wait(Duration::from_secs(60), gone), "nothing collects the Secret");
    let created = attack.create(&token());
    if !created.ok {
        return Err(created.err);
    }
    let mut token = None;
    let read = || {
        let seen = attack.as_transom(&secret, &Value::Null);
        token = seen
            .ok
            .then(|| seen.object()["data"]["token"].as_str().map(str::to_owned));
        token.iter().flatten().next().is_some()
    };
    assert!(
        wait(Duration::from_secs(60), read),
        "the token controller made no token"
    );
    token.flatten().ok_or_else(|| "no token".to_owned())
}

#[test]
fn the_account_gets_no_token_of_another_account() {
    let off = json!({"admissionPolicies": {"enabled": false}});
    let Some(attack) = Attack::start("what the account could get", &off) else {
        return;
    };
    let key = attack.cluster.path("accounts.key");
    let controllers = "garbage-collector-controller,serviceaccount-token-controller";
    let key = format!("--service-account-private-key-file={}", key.display());
    if let Err(missing) = attack.cluster.start_controllers_with(controllers, &[&key]) {
        super::engine::skipped_without_helm("that the account gets no token of another account", &missing);
        return;
    }
    attack
        .cluster
        .kubectl(&["create", "serviceaccount", "operator", "-n", NAMESPACE])
        .succeeded();
    // The rights alone allow it.
    attack.create(&certificates()).succeeded();
    steal(&attack).unwrap();
    let deleted = ["delete", "secret", SECRET, "-n", NAMESPACE];
    attack.cluster.kubectl(&deleted).succeeded();

    let Some(engine) = engine() else { return };
    attack.install(engine, &json!({"reports": {"enabled": true}}));
    attack.is_held();
    let refusal = attack.create(&token()).err;
    assert!(
        refusal.contains("ValidatingAdmissionPolicy 'transom-secrets'"),
        "{refusal}"
    );
    attack.create(&certificates()).succeeded();
    let refusal = steal(&attack).unwrap_err();
    assert!(
        refusal.contains("an owner or finalizer of the Secret"),
        "{refusal}"
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn the_account_creates_nothing_that_another_controller_acts_on() {
    let values = json!({"reports": {"enabled": true}});
    let Some(attack) = Attack::start("what the account may create", &values) else {
        return;
    };
    attack.is_held();
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]);
    let labelled = json!({"app.kubernetes.io/managed-by": "transom", "transom.dev/owned": "true"});
    let secret = |more: Value| {
        let mut secret = certificates();
        merge(&mut secret, more);
        secret
    };
    let lease = |more| in_namespace("coordination.k8s.io/v1", "Lease", "transom", more);
    let ours = |more: Value| {
        let mut metadata = json!({"labels": labelled});
        merge(&mut metadata, more);
        report("transom-deployment-1", &metadata)
    };
    let revision = |more: Value| {
        let owner = json!([{"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "name": "default", "uid": "u"}]);
        let labels = json!({"app.kubernetes.io/managed-by": "transom", "transom.dev/policy-uid": "u"});
        let metadata = json!({"labels": labels, "ownerReferences": owner});
        let spec = json!({"metadata": metadata, "revision": 1, "data": {"mode": "Audit"}});
        let mut revision = in_namespace("apps/v1", "ControllerRevision", "policy-u-1", spec);
        merge(&mut revision, more);
        revision
    };
    let finalizers = json!(["example.com/stay"]);
    let metadata = |key: &str, value: &Value| json!({"metadata": {key: value}});
    let daemon_set = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]);
    let label = metadata("labels", &json!({"owner": "helm"}));
    let empty_label = metadata("labels", &json!({"owner": ""}));
    let annotation = metadata("annotations", &json!({"meta.helm.sh/release-name": "x"}));
    let core_event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "core", "namespace": NAMESPACE},
        "involvedObject": {"kind": "ConfigMap", "name": "x", "namespace": NAMESPACE}, "reason": "A", "message": "b",
        "source": {"component": "kubelet"}, "type": "Normal",
    });
    let cases = [
        // A release of Helm is a Secret or a ConfigMap of this label, which an administrator applies.
        (secret(label), Some("a label or annotation of the Secret")),
        (secret(empty_label), Some("a label or annotation of the Secret")),
        (secret(annotation), Some("a label or annotation of the Secret")),
        (
            secret(metadata(
                "labels",
                &json!({"app.kubernetes.io/managed-by": "Helm"}),
            )),
            Some("a label or annotation of the Secret"),
        ),
        (
            secret(metadata("ownerReferences", &owner)),
            Some("an owner or finalizer of the Secret"),
        ),
        (
            secret(metadata("finalizers", &finalizers)),
            Some("an owner or finalizer of the Secret"),
        ),
        (
            secret(json!({"stringData": {"release": "x"}})),
            Some("a key of the Secret other than"),
        ),
        (
            secret(json!({"immutable": true})),
            Some("a key of the Secret other than"),
        ),
        (
            secret(json!({"type": "helm.sh/release.v1"})),
            Some("of a type other than kubernetes.io/tls"),
        ),
        (
            secret(json!({"metadata": {"name": "sh.helm.release.v1.app.v2"}})),
            Some("Transom writes one Secret: transom-certificates"),
        ),
        (secret(json!({})), None),
        (
            in_namespace("v1", "ConfigMap", "other", json!({})),
            Some("cannot create resource \"configmaps\""),
        ),
        (
            lease(json!({"metadata": {"name": "their-controller"}})),
            Some("Transom writes one Lease: transom"),
        ),
        (
            lease(metadata("finalizers", &finalizers)),
            Some("an owner or finalizer of the Lease"),
        ),
        (lease(json!({"spec": {"holderIdentity": "a"}})), None),
        (
            event("a", json!({"reportingController": "kubelet"})),
            Some("an Event of another controller"),
        ),
        // A namespace does not go while an object in it has a finalizer.
        (
            event("b", metadata("finalizers", &finalizers)),
            Some("finalizer of an Event"),
        ),
        (
            core_event,
            Some("cannot create resource \"events\" in API group \"\""),
        ),
        (event("c", json!({})), None),
        (
            report(
                "transom-deployment-1",
                &json!({"labels": {"app.kubernetes.io/managed-by": "transom"}}),
            ),
            Some("a report that is not Transom's"),
        ),
        (
            ours(json!({"name": "theirs"})),
            Some("a report that is not Transom's"),
        ),
        (
            ours(json!({"finalizers": finalizers})),
            Some("a finalizer of a report"),
        ),
        (ours(json!({})), None),
        // A DaemonSet goes back to a revision that it owns, or that its selector matches.
        (
            revision(metadata("ownerReferences", &daemon_set)),
            Some("a ControllerRevision that is not of a WindowsPodPolicy"),
        ),
        (
            revision(metadata("labels", &json!({"transom.dev/policy-uid": "another"}))),
            Some("a ControllerRevision that is not of a WindowsPodPolicy"),
        ),
        (
            revision(metadata("labels", &json!({"app": "agent"}))),
            Some("a label, annotation or finalizer of the ControllerRevision"),
        ),
        (
            revision(metadata("finalizers", &finalizers)),
            Some("a label, annotation or finalizer of the ControllerRevision"),
        ),
        (revision(json!({})), None),
    ];
    for (object, words) in &cases {
        let made = attack.create(object);
        match words {
            None => assert!(made.ok, "{object}: {}", made.err),
            Some(words) => assert!(made.err.contains(words), "{object}: {words}: {}", made.err),
        }
    }

    // What is there belongs to another one, or to Transom.
    let admin = |object: &Value| {
        attack
            .cluster
            .kubectl_with(&["create", "-f", "-"], &object.to_string())
            .succeeded();
    };
    admin(&report(
        "theirs",
        &json!({"labels": {"app.kubernetes.io/managed-by": "kyverno"}}),
    ));
    let kept = |reporter: &str| {
        let more = json!({"metadata": {"namespace": "default"}, "regarding": {"namespace": "default"}, "reportingController": reporter});
        event("kept", more)
    };
    admin(&kept("kubelet"));
    // Labels of other writers on the Secret must not block Transom's own writes.
    attack
        .cluster
        .kubectl(&["label", "secret", SECRET, "team=a", "-n", NAMESPACE])
        .succeeded();
    admin(&revision(json!({
        "metadata": {"name": "agent-1", "ownerReferences": daemon_set},
    })));
    let patch = |object: &[&str], patch: &Value| {
        let patch = patch.to_string();
        let arguments = [&["patch"], object, &["--type=merge", "-p", &patch]].concat();
        attack.as_transom(&arguments, &Value::Null)
    };
    // Without a read before it: the account may not read these objects.
    let apply = |object: &Value| {
        let arguments = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=false",
            "-f",
            "-",
        ];
        attack.as_transom(&arguments, object)
    };
    let certificates = ["secret", SECRET, "-n", NAMESPACE];
    patch(&certificates, &json!({"data": {"next-ca.key": "YQ=="}})).succeeded();
    let mut relabelled = kept("kubelet");
    relabelled["metadata"]["labels"] = json!({"team": "a"});
    let refused = [
        (
            patch(&certificates, &json!({"data": {"token": "YQ=="}})),
            "a key of the Secret",
        ),
        (
            patch(&certificates, &metadata("labels", &json!({"owner": "helm"}))),
            "a label or annotation of the Secret",
        ),
        (
            patch(&certificates, &metadata("finalizers", &finalizers)),
            "an owner or finalizer of the Secret",
        ),
        (
            apply(&report("theirs", &json!({"labels": labelled}))),
            "a report that is not Transom's",
        ),
        (
            attack.as_transom(
                &["delete", "report", "theirs", "-n", "apps", "--wait=false"],
                &Value::Null,
            ),
            "a report that is not Transom's",
        ),
        (apply(&relabelled), "an Event of another controller"),
        (
            attack.as_transom(
                &[
                    "delete",
                    "controllerrevision",
                    "agent-1",
                    "-n",
                    NAMESPACE,
                    "--wait=false",
                ],
                &Value::Null,
            ),
            "a ControllerRevision that is not of a WindowsPodPolicy",
        ),
        (
            attack.as_transom(&["get", "secret", "other", "-n", NAMESPACE], &Value::Null),
            "cannot get resource",
        ),
        (
            attack.as_transom(&["get", "secrets", "-A"], &Value::Null),
            "cannot list resource",
        ),
        (
            attack.as_transom(&["create", "token", "transom", "-n", NAMESPACE], &Value::Null),
            "cannot create resource",
        ),
    ];
    for (printed, words) in refused {
        assert!(!printed.ok && printed.err.contains(words), "{words}: {printed:?}");
    }
    let ours = [
        "delete",
        "report",
        "transom-deployment-1",
        "-n",
        "apps",
        "--wait=false",
    ];
    attack.as_transom(&ours, &Value::Null).succeeded();
    let ours = [
        "delete",
        "controllerrevision",
        "policy-u-1",
        "-n",
        NAMESPACE,
        "--wait=false",
    ];
    attack.as_transom(&ours, &Value::Null).succeeded();
}

const POLICIES: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec: {mode: Enforce}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePolicy
metadata: {name: default}
spec: {mode: Reconcile, runtimeClasses: {mode: Reconcile}}
";

#[test]
fn the_program_writes_all_that_it_keeps_within_the_policies() {
    let node_policy = json!({"spec": {"runtimeClasses": {"mode": "Reconcile"}}});
    let values = json!({"reports": {"enabled": true}, "rbac": {"runtimeClasses": true}, "nodePolicies": {"default": node_policy}});
    let Some(attack) = Attack::start("what the program writes within the policies", &values) else {
        return;
    };
    attack.is_held();
    let cluster = &attack.cluster;
    apply(cluster, &printed(&["generate", "crds"]));
    let created = |object: &str| cluster.kubectl_with(&["create", "-f", "-"], object).ok;
    apply(cluster, POLICIES);
    assert!(created(&untainted().to_string()));
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true,
                      "containers": [{"name": "a", "image": "a"}]});
    let labels = json!({"app": "a"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bad", "namespace": "apps"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    });
    assert!(created(&deployment.to_string()));

    let [port, health] = free_ports();
    let kubeconfig = kubeconfig_of(cluster, NAMESPACE, "transom").display().to_string();
    let (url, listen) = (format!("https://127.0.0.1:{port}"), format!("127.0.0.1:{port}"));
    let health = format!("127.0.0.1:{health}");
    let arguments = [
        "serve",
        "--kubeconfig",
        &kubeconfig,
        "--transom-namespace",
        NAMESPACE,
        "--identity",
        "one",
        "--webhook-url",
        &url,
        "--listen",
        &listen,
        "--health-listen",
        &health,
        "--reports",
    ];
    install::register(cluster, port, &[]);
    cluster.run_program("transom", &program(), &arguments.map(str::to_owned));

    let has = |place: &[&str], part: &str| {
        let printed = cluster.kubectl(&[&["get", "-o", "json"], place].concat());
        printed.ok && printed.out.contains(part)
    };
    let everything: [(&[&str], &str); 8] = [
        (&["secret", SECRET, "-n", NAMESPACE], "tls.key"),
        (&["lease", "transom", "-n", NAMESPACE], "holderIdentity"),
        (&["windowsnodepools"], "10.0.20348"),
        (&["runtimeclass", CLASS], "transom.dev/owned"),
        (&["node", "win-1"], "transom.dev/owned"),
        (
            &["events.events.k8s.io", "-n", "default"],
            "\"reportingController\": \"transom.dev/controller\"",
        ),
        (&["reports", "-n", "apps"], "transom-deployment-"),
        (
            &["controllerrevisions", "-n", NAMESPACE],
            "transom.dev/policy-uid",
        ),
    ];
    for (place, part) in everything {
        let written = wait(Duration::from_secs(60), || has(place, part));
        assert!(written, "{place:?}\n{}", cluster.end_of_log("transom"));
    }
    // What others have put on an object does not keep Transom from writing its own part of it.
    let build = "-o=jsonpath={.items[0].metadata.name} {.items[0].spec.template.build}";
    let pool = || {
        cluster
            .kubectl(&["get", "windowsnodepools", build])
            .succeeded()
            .out
    };
    let name = pool().split(' ').next().unwrap_or_default().to_owned();
    let forgotten = json!({"metadata": {"annotations": {"note": "theirs"}, "labels": {"team": "a"}},
                           "spec": {"template": {"build": null}}});
    let forgotten = forgotten.to_string();
    let patch = [
        "patch",
        "windowsnodepool",
        &name,
        "--type=merge",
        "-p",
        &forgotten,
    ];
    cluster.kubectl(&patch).succeeded();
    let again = wait(Duration::from_secs(60), || pool().ends_with(" 10.0.20348"));
    let log = std::fs::read_to_string(cluster.path("transom.log")).unwrap();
    assert!(again, "{log}");
    assert!(
        !log.contains("ValidatingAdmissionPolicy") && !log.contains("is forbidden"),
        "{log}"
    );
}

/// A taint as its part of the annotation `transom.dev/owned`.
fn named(taint: &Value) -> String {
    let text = |field: &str| taint[field].as_str().unwrap_or_default();
    format!(
        r#"{{"key":"{}","value":"{}","effect":"{}"}}"#,
        text("key"),
        text("value"),
        text("effect")
    )
}

fn owned(taints: &[&Value]) -> String {
    let taints: Vec<String> = taints.iter().map(|taint| named(taint)).collect();
    format!(r#"{{"policy":"default","taints":[{}]}}"#, taints.join(","))
}

fn taint(key: &str, value: &str, effect: &str) -> Value {
    json!({"key": key, "value": value, "effect": effect})
}

/// Node, attack, taints, annotation, refusal.
type NodeAttack<'c> = (&'c str, &'c str, Vec<&'c Value>, Option<String>, Option<&'c str>);

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn the_account_removes_and_marks_no_node_of_others() {
    let Some(attack) = Attack::start("what the account may do with nodes", &json!({})) else {
        return;
    };
    let ours = taint("os", "windows", "NoSchedule");
    let more = taint("sku", "windows", "NoSchedule");
    let tenant =
        json!({"key": "tenant", "value": "gold", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
    let control_plane = json!({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"});
    let evicting = taint("os", "windows", "NoExecute");
    let startup = taint(Taint::STARTUP_KEY, "", "NoSchedule");
    let node = |name: &str, os: &str, taints: &[&Value], owned: Option<String>| {
        json!({
            "apiVersion": "v1", "kind": "Node", "spec": {"taints": taints},
            "metadata": {"name": name, "labels": {"kubernetes.io/os": os}, "annotations": owned.map(|owned| json!({"transom.dev/owned": owned}))},
        })
    };
    let win = [&ours, &tenant];
    for object in [
        node("win-1", "windows", &win, Some(owned(&[&ours]))),
        node("win-2", "windows", &[&tenant], Some(owned(&[&ours]))),
        node("lin-1", "linux", &[&control_plane, &tenant], None),
        node("win-3", "windows", &[&ours, &startup], Some(owned(&[&ours]))),
    ] {
        let create = ["create", "-f", "-"];
        attack
            .cluster
            .kubectl_with(&create, &object.to_string())
            .succeeded();
    }
    // The API server puts one on every new node.
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let patch = |account: &str, node: &str, taints: &[&Value], owned: Option<&str>| {
        let taints: Vec<&Value> = taints.iter().copied().chain([&not_ready]).collect();
        let mut patch = json!({"spec": {"taints": taints}});
        if let Some(owned) = owned {
            let owned = (!owned.is_empty()).then_some(owned);
            patch["metadata"] = json!({"annotations": {"transom.dev/owned": owned}});
        }
        let account = format!("system:serviceaccount:{NAMESPACE}:{account}");
        attack.cluster.kubectl(&[
            "patch",
            "node",
            node,
            "--type=merge",
            "--dry-run=server",
            "--as",
            &account,
            "-p",
            &patch.to_string(),
        ])
    };
    let accounts = ["transom", "transom-pre-delete"];
    for account in accounts {
        let is_held = || {
            patch(account, "lin-1", &[], None)
                .err
                .contains("ValidatingAdmissionPolicy")
        };
        assert!(
            wait(Duration::from_secs(60), is_held),
            "{account} may remove taints"
        );
    }

    let disowned = "a taint that it did not set";
    let protected = "a taint of Kubernetes, of a cloud or of an autoscaler";
    let forged = "must not name a taint in transom.dev/owned";
    let of_both = owned(&[&ours, &tenant]);
    let of_more = owned(&[&ours, &more]);
    let mut later = tenant.clone();
    later["timeAdded"] = json!("2027-01-01T00:00:00Z");
    let silver = taint("tenant", "silver", "NoExecute");
    let twice = owned(&[&ours, &ours]);
    let hidden = format!(r#"{{"policy":"default","taints":[],"more":{}}}"#, named(&tenant));
    let reordered = r#"{"policy":"default","taints":[{"effect":"NoExecute","key":"tenant","value":"gold"}]}"#;
    // One of every prefix and every key that the program protects.
    let of_prefix = Taint::PROTECTED_PREFIXES.map(|prefix| format!("{prefix}x"));
    let more_marks = Taint::PROTECTED_KEYS.map(str::to_owned);
    let keys = of_prefix.iter().chain(&more_marks).map(String::as_str);
    let keys = keys.chain([Taint::STARTUP_KEY, "node.kubernetes.io/out-of-service"]);
    let marks: Vec<Value> = keys.map(|key| taint(key, "y", "NoSchedule")).collect();
    let mut cases: Vec<NodeAttack<'_>> = vec![
        (
            "lin-1",
            "remove the taint of the control plane",
            vec![&tenant],
            None,
            Some(protected),
        ),
        (
            "lin-1",
            "remove the taint of a tenant",
            vec![&control_plane],
            None,
            Some(disowned),
        ),
        (
            "lin-1",
            "name the taint of a tenant",
            vec![&control_plane, &tenant],
            Some(owned(&[&tenant])),
            Some(forged),
        ),
        (
            "lin-1",
            "name and remove it",
            vec![&control_plane],
            Some(owned(&[&tenant])),
            Some(disowned),
        ),
        (
            "lin-1",
            "set a taint",
            vec![&control_plane, &tenant, &ours],
            Some(owned(&[&ours])),
            Some("not a Windows node"),
        ),
        ("win-1", "remove all taints", vec![], None, Some(disowned)),
        (
            "win-1",
            "remove the taint of a tenant",
            vec![&ours],
            None,
            Some(disowned),
        ),
        (
            "win-1",
            "change its value",
            vec![&ours, &silver],
            None,
            Some(disowned),
        ),
        (
            "win-1",
            "change its time",
            vec![&ours, &later],
            None,
            Some("the time of a taint"),
        ),
        (
            "win-1",
            "name it",
            win.to_vec(),
            Some(of_both.clone()),
            Some(forged),
        ),
        (
            "win-1",
            "name and remove it",
            vec![&ours],
            Some(of_both),
            Some(disowned),
        ),
        (
            "win-1",
            "name it in another field",
            win.to_vec(),
            Some(hidden),
            Some(forged),
        ),
        (
            "win-1",
            "name it in another order",
            win.to_vec(),
            Some(reordered.to_owned()),
            Some(forged),
        ),
        ("win-1", "name one twice", win.to_vec(), Some(twice), Some(forged)),
        (
            "win-1",
            "name one that a node may get",
            win.to_vec(),
            Some(of_more.clone()),
            Some(forged),
        ),
        // Otherwise the same taint of a later writer would count as Transom's.
        (
            "win-1",
            "remove its own taint and keep the name",
            vec![&tenant],
            None,
            Some(forged),
        ),
        (
            "win-1",
            "remove its own taint and write the name again",
            vec![&tenant],
            Some(owned(&[&ours]).replace("default", "another")),
            Some(forged),
        ),
        (
            "win-1",
            "set a taint without its name",
            vec![&ours, &tenant, &more],
            None,
            Some("does not name"),
        ),
        (
            "win-1",
            "evict pods",
            vec![&ours, &tenant, &evicting],
            Some(owned(&[&ours, &evicting])),
            Some("admissionPolicies.noExecuteTaints"),
        ),
        (
            "win-3",
            "remove the startup taint and its own, and keep the name",
            vec![],
            None,
            Some(forged),
        ),
        // What the program does.
        ("win-3", "remove the startup taint", vec![&ours], None, None),
        (
            "win-1",
            "set a taint",
            vec![&ours, &tenant, &more],
            Some(of_more),
            None,
        ),
        (
            "win-1",
            "remove its own taint",
            vec![&tenant],
            Some(String::new()),
            None,
        ),
        // Another writer removed the taint that the annotation of this node names.
        ("win-2", "change no taint", vec![&tenant], None, None),
        (
            "win-2",
            "set its own taint again",
            vec![&ours, &tenant],
            None,
            None,
        ),
        (
            "win-1",
            "disown its own taint",
            win.to_vec(),
            Some(String::new()),
            None,
        ),
    ];
    for mark in &marks {
        let names = owned(&[&ours, mark]);
        cases.push((
            "win-1",
            "set a mark",
            vec![&ours, &tenant, mark],
            Some(names),
            Some(protected),
        ));
    }
    let named: Vec<&Value> = marks.iter().collect();
    let bearer = node("win-4", "windows", &named, Some(owned(&named)));
    let create = ["create", "-f", "-"];
    (attack.cluster.kubectl_with(&create, &bearer.to_string())).succeeded();
    for (at, mark) in marks.iter().enumerate() {
        if mark["key"] != Taint::STARTUP_KEY {
            let rest: Vec<&Value> = marks
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .map(|(_, it)| it)
                .collect();
            // A kubelet can forge the annotation; the account then removes no such taint either.
            cases.push((
                "win-4",
                "remove a mark",
                rest.clone(),
                Some(owned(&rest)),
                Some(protected),
            ));
        }
    }
    for account in accounts {
        for (node, attempt, taints, owned, words) in &cases {
            let printed = patch(account, node, taints, owned.as_deref());
            match words {
                None => assert!(printed.ok, "{account}: {attempt} of {node}: {}", printed.err),
                Some(words) => assert!(
                    !printed.ok && printed.err.contains(words),
                    "{account}: {attempt} of {node}: {words}: {printed:?}"
                ),
            }
        }
    }

    the_account_writes_nothing_else_of_a_node(&attack, &accounts);

    // A value of the chart allows the effect.
    let Some(engine) = engine() else { return };
    attack.install(engine, &json!({"admissionPolicies": {"noExecuteTaints": true}}));
    let evicts = || {
        let taints = [&ours, &tenant, &evicting];
        patch("transom", "win-1", &taints, Some(&owned(&[&ours, &evicting]))).ok
    };
    assert!(wait(Duration::from_secs(60), evicts));
}

/// Everything of a node but its taints and what is Transom's: each is changed by itself.
fn the_account_writes_nothing_else_of_a_node(attack: &Attack, accounts: &[&str]) {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]);
    let refused = [
        (
            json!({"metadata": {"labels": {"team": "a"}}}),
            "a label of the node",
        ),
        (
            json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}}),
            "a label of the node",
        ),
        (
            json!({"metadata": {"labels": {"kubernetes.io/os": null}}}),
            "a label of the node",
        ),
        (
            json!({"metadata": {"annotations": {"note": "a"}}}),
            "an annotation of the node",
        ),
        (
            json!({"metadata": {"finalizers": ["example.com/stay"]}}),
            "its finalizers or owners",
        ),
        (
            json!({"metadata": {"ownerReferences": owner}}),
            "its finalizers or owners",
        ),
        (json!({"spec": {"unschedulable": true}}), "the spec of the node"),
        (json!({"spec": {"providerID": "a://b"}}), "the spec of the node"),
        (
            json!({"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}}),
            "the spec of the node",
        ),
    ];
    for account in accounts {
        let account = format!("system:serviceaccount:{NAMESPACE}:{account}");
        let run = |arguments: &[&str]| {
            let dry_run = ["--as", &account, "--dry-run=server"];
            attack.cluster.kubectl(&[arguments, &dry_run].concat())
        };
        for (patch, words) in &refused {
            let printed = run(&["patch", "node", "win-1", "--type=merge", "-p", &patch.to_string()]);
            assert!(
                !printed.ok && printed.err.contains(words),
                "{account}: {patch}: {printed:?}"
            );
        }
        // Its rights allow none of these.
        let status = json!({"status": {"phase": "Terminated"}}).to_string();
        for arguments in [
            &[
                "patch",
                "node",
                "win-1",
                "--subresource=status",
                "--type=merge",
                "-p",
                &status,
            ][..],
            &["delete", "node", "win-1", "--wait=false"],
        ] {
            let printed = run(arguments);
            assert!(
                !printed.ok && printed.err.contains("forbidden"),
                "{account}: {arguments:?}: {printed:?}"
            );
        }
        let patch =
            json!({"metadata": {"labels": {"node.kubernetes.io/windows-build": "10.0.20348"}}}).to_string();
        run(&["patch", "node", "win-1", "--type=merge", "-p", &patch]).succeeded();
    }
}

/// Runs the program with the account of the release, next to a Windows node, and with this node policy.
pub fn serve(attack: &Attack, policy: &Value) {
    let cluster = &attack.cluster;
    apply(cluster, &printed(&["generate", "crds"]));
    apply(cluster, &policy.to_string());
    let create = ["create", "-f", "-"];
    cluster
        .kubectl_with(&create, &untainted().to_string())
        .succeeded();
    let [port, health] = free_ports();
    let kubeconfig = kubeconfig_of(cluster, NAMESPACE, "transom").display().to_string();
    install::register(cluster, port, &[]);
    let arguments = [
        "serve".to_owned(),
        format!("--kubeconfig={kubeconfig}"),
        format!("--transom-namespace={NAMESPACE}"),
        "--identity=one".to_owned(),
        "--image-puller-service-account=transom-image-puller".to_owned(),
        format!("--webhook-url=https://127.0.0.1:{port}"),
        format!("--listen=127.0.0.1:{port}"),
        format!("--health-listen=127.0.0.1:{health}"),
    ];
    cluster.run_program("transom", &program(), &arguments);
}

/// Waits until a condition of the node policy has this status and reason, and a message with these words.
#[track_caller]
fn has_condition(attack: &Attack, kind: &str, begin: &str, words: &str) {
    let cluster = &attack.cluster;
    let path = format!("jsonpath={{.status.conditions[?(@.type=='{kind}')]['status','reason','message']}}");
    let status = || {
        cluster
            .kubectl(&["get", "windowsnodepolicy", "default", "-o", &path])
            .out
    };
    let reported = || {
        let status = status();
        status.starts_with(begin) && status.contains(words)
    };
    assert!(
        wait(Duration::from_secs(60), reported),
        "{}\n{}",
        status(),
        cluster.end_of_log("transom")
    );
}

#[test]
fn the_account_changes_only_the_node_pools_that_it_created() {
    let Some(attack) = Attack::start("the account and node pools", &json!({})) else {
        return;
    };
    install::define(&attack.cluster);
    let spec =
        json!({"nodeSelector": {"matchLabels": {"agentpool": "win"}}, "template": {"build": "10.0.20348"}});
    let pool = |name: &str, labels: Value| {
        json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePool",
            "metadata": {"name": name, "labels": labels}, "spec": spec})
    };
    let own = json!({"transom.dev/owned": "true"});
    let create = ["create", "-f", "-"];
    let theirs = pool("theirs", json!({})).to_string();
    attack.cluster.kubectl_with(&create, &theirs).succeeded();
    let is_held = || {
        attack
            .create(&pool("other", json!({})))
            .err
            .contains("is not Transom's")
    };
    assert!(wait(Duration::from_secs(60), is_held));
    let made = attack.create(&pool("ours", own.clone()));
    assert!(made.ok, "{}", made.err);
    let patch = |name: &str, patch: &Value| {
        let patch = patch.to_string();
        attack.as_transom(
            &["patch", "wnpool", name, "--type=merge", "-p", &patch],
            &Value::Null,
        )
    };
    let build = json!({"spec": {"template": {"build": "10.0.26100"}}});
    let adopt = json!({"metadata": {"labels": own}});
    let release = json!({"metadata": {"labels": {"transom.dev/owned": null}}});
    let elsewhere = json!({"spec": {"nodeSelector": {"matchLabels": {"team": "a"}}}});
    for (name, change) in [
        ("theirs", &build),
        ("theirs", &adopt),
        ("ours", &release),
        ("ours", &elsewhere),
    ] {
        let refused = patch(name, change);
        assert!(
            refused.err.contains("Transom must not write"),
            "{name} {change}: {refused:?}"
        );
    }
    let refused = attack.as_transom(&["delete", "wnpool", "theirs"], &Value::Null);
    assert!(refused.err.contains("is not Transom's"), "{refused:?}");
    let allowed = patch("ours", &build);
    assert!(allowed.ok, "{}", allowed.err);
    let deleted = attack.as_transom(&["delete", "wnpool", "ours"], &Value::Null);
    assert!(deleted.ok, "{}", deleted.err);
}

#[test]
fn a_taint_that_the_admission_policies_refuse_is_in_the_status_of_its_policy() {
    let Some(attack) = Attack::start("a refused taint in a status", &json!({})) else {
        return;
    };
    let policy = json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "default"},
        "spec": {"mode": "Reconcile", "taints": {"noExecute": "Allowed", "required": [{"key": "os", "value": "windows", "effect": "NoExecute"}]}},
    });
    serve(&attack, &policy);
    let value = "admissionPolicies.noExecuteTaints of the chart";
    has_condition(&attack, "Programmed", "False WriteFailed ", value);
}

#[test]
fn an_installation_in_audit_changes_no_node_and_names_the_right_that_it_would_need() {
    let Some(engine) = engine() else { return };
    let values = json!({"mode": "Audit", "rbac": {"nodePolicies": false}});
    let Some(attack) = Attack::start("an installation in Audit", &values) else {
        return;
    };
    let rendered = engine.render(&values).unwrap();
    serve(&attack, rendered.object("WindowsNodePolicy", "default"));
    has_condition(&attack, "Ready", "True Drifted ", "1 of 1 Windows nodes");
    let node = || {
        attack
            .cluster
            .kubectl(&["get", "node", "win-1", "-o", "json"])
            .object()
    };
    let known = node();
    assert!(
        known["metadata"]["annotations"]["transom.dev/owned"].is_null(),
        "{known}"
    );
    let may = |verb: &str, resource: &str| {
        let arguments = ["auth", "can-i", verb, resource, "--as", &attack.account];
        attack.cluster.kubectl(&arguments).out.starts_with("yes")
    };
    assert!(may("watch", "nodes") && !may("patch", "nodes") && !may("list", "pods"));
    assert!(!may("create", "runtimeclasses"));

    // Somebody changes the policy without the chart.
    for (spec, words) in [
        (
            json!({"labels": {"nodeRestriction": {"mode": "Reconcile"}}}),
            "set rbac.nodePolicies=true",
        ),
        (
            json!({"labels": {"nodeRestriction": {"mode": "Audit"}}, "taints": {"mode": "Reconcile"}}),
            "list the workloads that a taint would affect: set rbac.nodePolicies=true",
        ),
        (
            json!({"taints": {"mode": "Audit"}, "runtimeClasses": {"mode": "Reconcile"}}),
            "set rbac.runtimeClasses=true",
        ),
    ] {
        let patch = json!({ "spec": spec }).to_string();
        let arguments = [
            "patch",
            "windowsnodepolicy",
            "default",
            "--type=merge",
            "-p",
            &patch,
        ];
        attack.cluster.kubectl(&arguments).succeeded();
        has_condition(&attack, "Programmed", "False Forbidden ", words);
    }
    assert_eq!(node()["metadata"]["labels"], known["metadata"]["labels"]);
}

#[test]
fn an_install_is_refused_where_a_secret_is_the_cluster() {
    let Some(engine) = engine() else { return };
    for namespace in ["kube-system", "kube-public", "kube-node-lease"] {
        let refusal = engine.render_as("transom", namespace, &json!({})).unwrap_err();
        let words = format!("namespace: Transom does not belong in {namespace}");
        assert!(refusal.contains(&words), "{refusal}");
    }
}
