//! What platforms do to Windows pods before Transom sees them, and what placement then has to do: OpenShift's
//! SecurityContextConstraints (imitated by a MutatingAdmissionPolicy), EKS' own webhook (by another webhook), nodes that
//! have lost the label of their build, and taints that come and go.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, Printed, wait};
use crate::support::objects::workload;
use crate::support::recorder::Recorder;

const PATIENCE: Duration = Duration::from_secs(90);
const ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// The defaults of `restricted-v2`, in a namespace with its label. Like the plugin it is asked before webhooks, and again
/// after them, leaves out only pods that say Windows, and asks for its defaults of all others in the end.
const CONSTRAINTS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: restricted-v2}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    namespaceSelector: {matchLabels: {platform: openshift}}
    resourceRules:
    - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchConditions:
  - {name: does-not-say-windows, expression: \"!has(object.spec.os) || object.spec.os.name != 'windows'\"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{
          metadata: Object.metadata{annotations: {'openshift.io/scc': 'restricted-v2'}},
          spec: Object.spec{
            securityContext: Object.spec.securityContext{
              fsGroup: 1000650000,
              seLinuxOptions: Object.spec.securityContext.seLinuxOptions{level: 's0:c26,c0'},
              seccompProfile: Object.spec.securityContext.seccompProfile{type: 'RuntimeDefault'}},
            containers: object.spec.containers.map(c, Object.spec.containers{
              name: c.name,
              securityContext: Object.spec.containers.securityContext{
                runAsUser: 1000650000, runAsNonRoot: true, allowPrivilegeEscalation: false}})}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: restricted-v2}
spec: {policyName: restricted-v2}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: restricted-v2}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {platform: openshift}}
    resourceRules:
    - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: >-
      has(object.spec.os) && object.spec.os.name == 'windows'
      || object.spec.containers.all(c, has(c.securityContext) && has(c.securityContext.runAsUser))
    message: unable to validate against any security context constraint
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: restricted-v2}
spec: {policyName: restricted-v2, validationActions: [Deny]}
";

/// By the API group Transom knows that it is on OpenShift, when it starts.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: securitycontextconstraints.security.openshift.io}
spec:
  group: security.openshift.io
  scope: Cluster
  names: {kind: SecurityContextConstraints, plural: securitycontextconstraints}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";

/// Makes the cluster one of OpenShift, as far as its API groups tell.
pub fn define_constraints(cluster: &ControlPlane) {
    cluster
        .kubectl_with(&["apply", "-f", "-"], DEFINITION)
        .succeeded();
    let served = || {
        cluster
            .kubectl(&["get", "--raw", "/apis/security.openshift.io"])
            .ok
    };
    assert!(wait(PATIENCE, served), "the definition is not served");
}

fn create(cluster: &ControlPlane, namespace: &str, object: &Value, more: &[&str]) -> Printed {
    let args = [&["create", "-n", namespace, "-o", "json", "-f", "-"], more].concat();
    cluster.kubectl_with(&args, &object.to_string())
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "web", "image": "registry.example.com/web:1"}]);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// The pods of a namespace, once so many are bound to nodes.
fn bound(cluster: &ControlPlane, namespace: &str, count: usize) -> Vec<Value> {
    let list = || {
        let printed = cluster.kubectl(&["get", "pods", "-n", namespace, "-o", "json"]);
        printed.succeeded().objects()
    };
    let are_bound = || {
        let pods = list();
        pods.len() == count && pods.iter().all(|pod| pod["spec"]["nodeName"].is_string())
    };
    let events = || cluster.kubectl(&["get", "events", "-n", namespace]).out;
    assert!(wait(PATIENCE, are_bound), "{:#?}\n{}", list(), events());
    list()
}

/// If the WindowsNodePolicy does not correct labels, a label that a node of the only fitting build has lost stays away.
pub fn a_node_without_the_label_of_its_build(cluster: &ControlPlane) {
    let no_labels =
        r#"{"spec":{"labels":{"kubelet":{"mode": "Disabled"},"nodeRestriction":{"mode": "Disabled"}}}}"#;
    cluster
        .kubectl(&["patch", "wnp", "default", "--type=merge", "-p", no_labels])
        .succeeded();
    let label = "node.kubernetes.io/windows-build-";
    cluster.kubectl(&["label", "node", "win-2019", label]).succeeded();
    let problem = "-o=jsonpath={.status.conditions[?(@.type=='BuildLabelsPresent')].message}";
    let problem = || cluster.kubectl(&["get", "wpp", "default", problem]).out;
    let reported = wait(PATIENCE, || problem().contains("win-2019"));
    assert!(reported, "{}\n{}", problem(), cluster.end_of_log("transom"));
    cluster.create_namespace("unlabelled", &[]);
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2019"}]});
    create(cluster, "unlabelled", &pod("for-2019", &spec), &[]).succeeded();
    // It must not require a label that no node carries.
    bound(cluster, "unlabelled", 1);
}

/// The constraints are asked first, and what they write keeps a pod from saying Windows.
pub fn openshift(cluster: &ControlPlane) {
    cluster
        .kubectl_with(&["apply", "-f", "-"], CONSTRAINTS)
        .succeeded();
    let selector = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    for (name, profile, non_root) in [
        ("openshift", "privileged", Value::Null),
        ("openshift-restricted", "restricted", json!(true)),
    ] {
        let labels = [
            ("platform", "openshift"),
            ("pod-security.kubernetes.io/enforce", profile),
        ];
        cluster.create_namespace(name, &labels);
        let linux = pod(
            "linux",
            &json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "web",
            "image": "web", "securityContext": {"capabilities": {"drop": ["ALL"]}}}]}),
        );
        let constrained = || {
            let printed = create(cluster, name, &linux, &["--dry-run=server"]);
            printed.out.contains("openshift.io/scc")
        };
        assert!(
            wait(PATIENCE, constrained),
            "{:?}",
            create(cluster, name, &linux, &["--dry-run=server"])
        );

        let warned = create(cluster, name, &pod("bare", &selector), &[]).succeeded();
        let names_pod = warned.err.contains(&format!("Pod {name}/bare"));
        assert!(
            names_pod && warned.err.contains("Windows ignores: "),
            "{warned:?}"
        );
        let reported = create(
            cluster,
            name,
            &workload("Deployment", "web", &pod("web", &selector)["spec"], 1),
            &[],
        )
        .succeeded();
        assert!(reported.err.contains("[TSM101 os-name-missing]"), "{reported:?}");
        for pod in bound(cluster, name, 2) {
            assert_eq!(pod["spec"]["os"]["name"], "windows", "{name}: {pod}");
            assert_eq!(pod["spec"]["securityContext"], json!({}), "{name}: {pod}");
            let mut left = pod["spec"]["containers"][0]["securityContext"].clone();
            assert_eq!(left["runAsNonRoot"], non_root, "{name}: {pod}");
            left.as_object_mut().unwrap().remove("runAsNonRoot");
            assert_eq!(left, json!({}), "{name}: {pod}");
        }
    }
    // A pod that cannot say it is told who is in the way, and not that its author is.
    let mut own = selector.clone();
    own["securityContext"] = json!({"fsGroup": 1});
    let denied = create(cluster, "openshift", &pod("own", &own), &[]);
    let reported = || denied.err.lines().filter(|line| line.starts_with("spec."));
    let line = |field: &str| reported().find(|line| line.contains(field));
    assert!(!denied.ok, "{denied:?}");
    assert!(
        line("fsGroup").is_some_and(|line| !line.contains("added in admission")),
        "{denied:?}"
    );
    let by = "(added in admission, probably by a SecurityContextConstraints of OpenShift)";
    assert!(
        line("seLinuxOptions").is_some_and(|line| line.contains(by)),
        "{denied:?}"
    );
    cluster
        .kubectl_with(&["delete", "-f", "-"], CONSTRAINTS)
        .succeeded();
}

/// As EKS' webhook does it: where the nodeSelector says Windows.
fn ask_for_an_address(_: &str, request: &Value) -> Option<Value> {
    let spec = &request["object"]["spec"];
    let selects = ["kubernetes.io/os", "beta.kubernetes.io/os"]
        .iter()
        .any(|label| spec["nodeSelector"][label] == "windows");
    let one = json!({"limits": {ADDRESS: "1"}, "requests": {ADDRESS: "1"}});
    selects.then(|| json!([{"op": "add", "path": "/spec/containers/0/resources", "value": one}]))
}

/// Its webhook is called before Transom and not again, so what placement adds it does not see.
pub fn eks(cluster: &ControlPlane) {
    use base64::Engine as _;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let webhook = runtime.block_on(Recorder::start_with(ask_for_an_address));
    let ca = base64::prelude::BASE64_STANDARD.encode(&webhook.ca);
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "vpc-resource-mutating-webhook"}, "webhooks": [{
        "name": "mpod.vpc.k8s.aws", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("{}/pods", webhook.url), "caBundle": ca}, "failurePolicy": "Fail",
        "namespaceSelector": {"matchLabels": {"platform": "eks"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    }]});
    cluster
        .kubectl_with(&["create", "-f", "-"], &configuration.to_string())
        .succeeded();
    let nodes = cluster
        .kubectl(&["get", "nodes", "-l", "kubernetes.io/os=windows", "-o", "json"])
        .succeeded()
        .objects();
    // What a node offers is believed once its kubelet has reported it Ready for a while.
    let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let room =
        json!({"status": {"capacity": {ADDRESS: "14"}, "allocatable": {ADDRESS: "14"}, "conditions": ready}})
            .to_string();
    for node in &nodes {
        let name = node["metadata"]["name"].as_str().unwrap();
        cluster
            .kubectl(&[
                "patch",
                "node",
                name,
                "--subresource=status",
                "--type=merge",
                "-p",
                &room,
            ])
            .succeeded();
    }
    cluster.create_namespace("eks", &[("platform", "eks")]);
    let term =
        json!({"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let pods = [
        (
            "by-selector",
            json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
        ),
        (
            "by-image",
            json!({"containers": [{"name": "web", "image": "golang:1.22-nanoserver"}]}),
        ),
        ("by-os-name", json!({"os": {"name": "windows"}})),
        ("by-affinity", json!({"affinity": {"nodeAffinity": required}})),
        ("by-pool", json!({"nodeSelector": {"agentpool": "win22"}})),
    ];
    let probe = pod("probe", &pods[2].1);
    let learned = || {
        create(cluster, "eks", &probe, &["--dry-run=server"])
            .out
            .contains(ADDRESS)
    };
    assert!(wait(PATIENCE, learned), "{}", cluster.end_of_log("transom"));
    for (name, spec) in &pods {
        create(cluster, "eks", &pod(name, spec), &[]).succeeded();
    }
    for pod in bound(cluster, "eks", pods.len()) {
        for list in ["limits", "requests"] {
            let requested = &pod["spec"]["containers"][0]["resources"][list];
            let log = cluster.end_of_log("transom");
            assert_eq!(*requested, json!({ADDRESS: "1"}), "{list}: {pod}\n{log}");
        }
    }
    let linux = json!({"nodeSelector": {"kubernetes.io/os": "linux"}});
    let linux = create(cluster, "eks", &pod("linux", &linux), &[]).succeeded();
    assert!(!linux.out.contains(ADDRESS), "{linux:?}");
    runtime.shutdown_background();
    cluster
        .kubectl(&[
            "delete",
            "mutatingwebhookconfiguration",
            "vpc-resource-mutating-webhook",
        ])
        .succeeded();
}

/// The guard goes by taints that stay, and tells the author of a DaemonSet what only its template can say.
pub fn taints_that_come_and_go(cluster: &ControlPlane) {
    let policy = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: guards}
spec: {mode: Enforce, placement: {linuxPods: Apply}, priority: 5, namespaceSelector: {matchLabels: {guard: 'on'}}}
";
    cluster.kubectl_with(&["apply", "-f", "-"], policy).succeeded();
    // A declared pool without a taint could take the pod too.
    cluster
        .kubectl(&["delete", "wnpool", "bare", "labelled"])
        .succeeded();
    let windows = ["-l", "kubernetes.io/os=windows"];
    let taint = |taint: &str| {
        cluster
            .kubectl(&[&["taint", "node"], &windows[..], &[taint]].concat())
            .succeeded();
    };
    taint("os=windows:NoSchedule");
    cluster.create_namespace("guarded", &[("guard", "on")]);
    let is_linux = || {
        let printed = create(
            cluster,
            "guarded",
            &pod("plain", &json!({})),
            &["--dry-run=server"],
        );
        printed.out.contains("\"kubernetes.io/os\": \"linux\"")
    };
    assert!(
        wait(PATIENCE, || !is_linux()),
        "a taint that stays keeps the pod off"
    );
    // An autoscaler takes a node away, and then leaves it after all.
    let passing = [
        "taint",
        "node",
        "win-2019",
        "ToBeDeletedByClusterAutoscaler=1:NoSchedule",
        "os-",
    ];
    cluster.kubectl(&passing).succeeded();
    assert!(wait(PATIENCE, is_linux), "{}", cluster.end_of_log("transom"));

    let agent = json!({"tolerations": [{"operator": "Exists"}]});
    let agent = workload("DaemonSet", "agent", &pod("agent", &agent)["spec"], 1);
    let warned = create(cluster, "guarded", &agent, &["--dry-run=server"]).succeeded();
    let words = "add nodeSelector kubernetes.io/os: linux [TSM709 linux-pod-tolerates-windows]";
    assert!(warned.err.contains(words), "{warned:?}");
}
