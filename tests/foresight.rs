//! What is said before `Deny` and `Apply` are turned on is what happens then: the same hundred-odd workloads, applied where
//! everything is only looked at and where it is enforced. The audit log, the scan, the reading of the audit log and the
//! reports are compared with what was really denied and changed, object by object that a person wrote. Without a control
//! plane this says so and proves nothing.
#![cfg(unix)]

#[path = "support/control_plane.rs"]
#[allow(dead_code)] // other tests need more of it
mod control_plane;
#[path = "support/install.rs"]
#[allow(dead_code)]
mod install;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use control_plane::{ControlPlane, programs_or_skip, wait};
use install::Replica;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use transom::rules::{catalogue, examples};

/// The namespace in which everything is only looked at, and the one in which it is enforced.
const SEEN: &str = "seen";
const HELD: &str = "held";

/// The policy of each, by the label `policy` of the namespace.
const POLICIES: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: seen}
spec: {validation: Audit, placement: DryRun, namespaceSelector: {matchLabels: {policy: seen}}}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: held}
spec: {validation: Deny, placement: Apply, namespaceSelector: {matchLabels: {policy: held}}}
";

/// Nodes of two builds; all of them carry the taint of Windows nodes.
const NODES: [(&str, &str); 2] = [("win-2019", "10.0.17763"), ("win-2022", "10.0.20348")];

/// What was sent, or what came of it: by kind and name.
type Name = (String, String);

/// What the API server said to one object in one namespace.
#[derive(Debug, Default)]
struct Answer {
    /// The message of the refusal, where it was refused.
    refused: Option<String>,
    /// The object as it was stored, where it was.
    stored: Option<Value>,
}

impl Answer {
    fn is_denied_by_transom(&self) -> bool {
        let denied = |message: &String| message.contains("transom.dev\" denied the request");
        self.refused.as_ref().is_some_and(denied)
    }
}

/// A workload of each example of the catalogue, by turns of each kind; with `spec.os` and without.
fn workloads() -> Vec<Value> {
    let mut all = Vec::new();
    let examples = catalogue().flat_map(|rule| {
        let of_rule = rule.bad.iter().chain(rule.good);
        of_rule.map(move |example| (rule.id, *example))
    });
    for (id, example) in examples {
        let parsed = transom::manifest::parse(example.as_bytes().to_vec());
        for document in &parsed.documents {
            let piece: Value = serde_json::from_str(document.json()).unwrap();
            if piece.get("kind").is_some() {
                continue;
            }
            let mut pod: Value = serde_json::from_str(examples::BASE).unwrap();
            json_patch::merge(&mut pod["spec"], &piece);
            let mut spec = pod["spec"].take();
            let n = all.len();
            // Without it the API server takes what it refuses otherwise.
            if n % 2 == 0 {
                spec.as_object_mut().unwrap().remove("os");
            }
            all.push(workload(n, &id.to_lowercase(), spec));
        }
    }
    all
}

fn workload(n: usize, id: &str, mut spec: Value) -> Value {
    const KINDS: [&str; 6] = ["Pod", "Deployment", "Pod", "StatefulSet", "DaemonSet", "CronJob"];
    let name = format!("{id}-{n}");
    let labels = json!({"app": name});
    let kind = KINDS[n % KINDS.len()];
    let metadata = json!({"name": name});
    if kind == "Pod" {
        return json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec});
    }
    if kind == "CronJob" {
        spec["restartPolicy"] = json!("Never");
        let template = json!({"spec": {"template": {"metadata": {"labels": labels}, "spec": spec}}});
        return json!({"apiVersion": "batch/v1", "kind": kind, "metadata": metadata,
            "spec": {"schedule": "0 0 1 1 *", "jobTemplate": template}});
    }
    let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}});
    if kind == "StatefulSet" {
        object["spec"]["serviceName"] = json!("none");
    }
    object
}

fn name_of(object: &Value) -> Name {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// Creates every object in a namespace.
async fn create_all(client: &Client, namespace: &str, objects: &[Value]) -> BTreeMap<Name, Answer> {
    let mut answers = BTreeMap::new();
    for object in objects {
        let (group, resource) = match object["kind"].as_str().unwrap() {
            "Pod" => ("api/v1", "pods"),
            "CronJob" => ("apis/batch/v1", "cronjobs"),
            "Deployment" => ("apis/apps/v1", "deployments"),
            "StatefulSet" => ("apis/apps/v1", "statefulsets"),
            _ => ("apis/apps/v1", "daemonsets"),
        };
        let request = hyper::Request::post(format!("/{group}/namespaces/{namespace}/{resource}"))
            .header("Content-Type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        let answer = match client.request::<Value>(request).await {
            Ok(stored) => Answer {
                stored: Some(stored),
                refused: None,
            },
            Err(kube::Error::Api(status)) => Answer {
                refused: Some(status.message.clone()),
                stored: None,
            },
            Err(other) => panic!("{other}"),
        };
        answers.insert(name_of(object), answer);
    }
    answers
}

/// The annotations of Transom's webhooks in the audit log, by what they are of in a namespace, without the webhook's name.
fn audited(cluster: &ControlPlane, namespace: &str) -> BTreeMap<Name, BTreeMap<String, String>> {
    let kind_of = |resource: &str| match resource {
        "pods" => "Pod",
        "deployments" => "Deployment",
        "statefulsets" => "StatefulSet",
        "daemonsets" => "DaemonSet",
        "cronjobs" => "CronJob",
        other => panic!("{other}"),
    };
    let mut all: BTreeMap<Name, BTreeMap<String, String>> = BTreeMap::new();
    for event in cluster.audit_events() {
        let of = &event["objectRef"];
        if of["namespace"] != namespace || event["verb"] != "create" {
            continue;
        }
        let name = (
            kind_of(of["resource"].as_str().unwrap()).to_owned(),
            of["name"].as_str().unwrap_or_default().to_owned(),
        );
        let annotations = event["annotations"].as_object().into_iter().flatten();
        let ours = annotations.filter_map(|(key, value)| {
            let (webhook, key) = key.split_once('/')?;
            let is_ours = webhook.ends_with(".transom.dev");
            is_ours.then(|| (key.to_owned(), value.as_str().unwrap().to_owned()))
        });
        all.entry(name).or_default().extend(ours);
    }
    all
}

fn client(cluster: &ControlPlane) -> impl Future<Output = Client> {
    let path = cluster.path("admin.kubeconfig");
    async move {
        let read = Kubeconfig::read_from(path).unwrap();
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
        Client::try_from(config.unwrap()).unwrap()
    }
}

/// What `transom scan` says of the owners of a namespace, by kind and name.
fn scan(cluster: &ControlPlane, namespace: &str, more: &[&str]) -> BTreeMap<Name, Value> {
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_transom"))
        .args(["scan", "--kubeconfig", &kubeconfig, "--namespace", namespace])
        .args(["--format", "json", "--fail-on", "never"])
        .args(more)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["gaps"], json!([]), "all of it could be read");
    let owners = report["owners"].as_array().unwrap().iter();
    owners
        .map(|owner| {
            let text = |key: &str| owner[key].as_str().unwrap().to_owned();
            ((text("kind"), text("name")), owner.clone())
        })
        .collect()
}

/// The rules among an owner's findings of which one thing is true.
fn rules(owner: &Value, is: impl Fn(&Value) -> bool) -> BTreeSet<String> {
    let findings = owner["findings"].as_array().unwrap().iter();
    let these = findings.filter(|finding| is(finding));
    these
        .map(|finding| finding["rule"].as_str().unwrap().to_owned())
        .collect()
}

fn listed(text: Option<&String>) -> BTreeSet<String> {
    let names = text.iter().flat_map(|text| text.split(','));
    names.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_said_before_is_what_happens() {
    let Some(programs) = programs_or_skip("tests/foresight.rs") else {
        return;
    };
    let cluster = ControlPlane::start(programs).unwrap();
    for (name, build) in NODES {
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name, "node.kubernetes.io/windows-build": build}},
            "spec": {"taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]},
            "status": {"nodeInfo": {"operatingSystem": "windows", "architecture": "amd64",
                "kernelVersion": format!("{build}.1"), "bootID": "", "machineID": "", "systemUUID": "",
                "osImage": "Windows Server", "containerRuntimeVersion": "containerd://1.7.20",
                "kubeletVersion": "v1.36.2", "kubeProxyVersion": ""}}});
        let text = node.to_string();
        cluster.kubectl_with(&["create", "-f", "-"], &text).succeeded();
    }
    for namespace in [SEEN, HELD] {
        cluster.kubectl(&["create", "namespace", namespace]).succeeded();
        let label = format!("policy={namespace}");
        cluster
            .kubectl(&["label", "namespace", namespace, &label])
            .succeeded();
    }
    install::prepare(&cluster, POLICIES);
    let replica = Replica::start(&cluster, "transom", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let client = client(&cluster).await;
    let bad = workload(
        0,
        "probe",
        json!({"os": {"name": "windows"}, "hostPID": true, "containers": [{"name": "c", "image": "i"}]}),
    );
    let called = || {
        let refused = cluster.kubectl_with(
            &["create", "-n", HELD, "--dry-run=server", "-f", "-"],
            &bad.to_string(),
        );
        refused.err.contains("transom.dev\" denied the request")
    };
    assert!(wait(Duration::from_secs(60), called), "the webhooks are called");

    let objects = workloads();
    assert!(objects.len() >= 100, "{}", objects.len());
    let seen = create_all(&client, SEEN, &objects).await;
    let before = scan(&cluster, SEEN, &[]);
    let foreseen = scan(&cluster, SEEN, &["--as", "validation=Deny,placement=Apply"]);
    let held = create_all(&client, HELD, &objects).await;
    let said = audited(&cluster, SEEN);
    let none = BTreeMap::new();

    let mut wrong = Vec::new();
    let (mut denied, mut changed, mut never) = (0, 0, 0);
    for (name, answer) in &held {
        let said = said.get(name).unwrap_or(&none);
        let would_deny = listed(said.get("would-deny"));
        let is_denied = answer.is_denied_by_transom();
        denied += usize::from(is_denied);
        if is_denied == would_deny.is_empty() {
            wrong.push(format!(
                "{name:?}: would-deny {would_deny:?}, and it was {:?}",
                answer.refused
            ));
        }
        // What was never stored cannot be scanned: the API server refuses it too.
        if seen[name].stored.is_none() {
            never += 1;
            if answer.stored.is_some() {
                wrong.push(format!(
                    "{name:?}: refused where it is only looked at: {:?}",
                    seen[name].refused
                ));
            }
            continue;
        }
        let empty = json!({"findings": [], "changes": [], "wouldChange": [], "outcome": "passes"});
        let of_before = before.get(name).unwrap_or(&empty);
        let of_foreseen = foreseen.get(name).unwrap_or(&empty);
        if (of_foreseen["outcome"] == "denied") != is_denied {
            wrong.push(format!(
                "{name:?}: the scan said {}, and it was {:?}",
                of_foreseen["outcome"], answer.refused
            ));
        }
        let would = rules(of_before, |finding| finding["wouldDeny"] == true);
        let will = rules(of_foreseen, |finding| finding["fate"] == "denied");
        if would != would_deny || will != would_deny {
            wrong.push(format!(
                "{name:?}: would-deny {would_deny:?}, the scan {would:?}, with --as {will:?}"
            ));
        }
        let is_changed = answer.stored.as_ref().is_some_and(|stored| {
            name.0 == "Pod" && stored["spec"] != seen[name].stored.as_ref().unwrap()["spec"]
        });
        changed += usize::from(is_changed);
        let would_patch = said.contains_key("would-patch");
        let (scan_would, scan_will) = (
            of_before["wouldChange"] != json!([]),
            of_foreseen["outcome"] == "changed",
        );
        if answer.stored.is_some() && [would_patch, scan_would, scan_will] != [is_changed; 3] {
            wrong.push(format!(
                "{name:?}: changed {is_changed}; would-patch {would_patch}, the scan {scan_would}, with --as {scan_will}"
            ));
        }
    }
    eprintln!(
        "{} objects: {denied} denied, {changed} changed, {never} that the API server refuses by itself",
        objects.len()
    );
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(denied > 30 && changed > 20, "{denied} {changed}");
}
