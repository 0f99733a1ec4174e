//! What is said before `Deny` and `Apply` are turned on is what happens then: the same hundreds of workloads, applied where
//! everything is only looked at and where it is enforced. The audit log, the scan, the reading of the audit log and the
//! reports are compared with what was really denied and changed, object by object that a person wrote. Without a control
//! plane this says so and proves nothing.
#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::command::printed;
use crate::support::control_plane::{ControlPlane, programs_or_skip, wait};
use crate::support::install::{self, Replica};
use crate::support::objects::workload;
use kube::Client;
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
spec: {mode: Audit, namespaceSelector: {matchLabels: {policy: seen}}}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: held}
spec: {mode: Enforce, namespaceSelector: {matchLabels: {policy: held}}}
";

/// The definition of reports.
const REPORTS: &str = include_str!("../reports/openreports.yaml");

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
        // Of what is good one each will do: reports are written at a pace.
        let of_rule = rule.bad.iter().chain(rule.good.first());
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
            all.push(nth_workload(n, &id.to_lowercase(), &spec));
        }
    }
    all
}

fn nth_workload(n: usize, id: &str, spec: &Value) -> Value {
    const KINDS: [&str; 6] = ["Pod", "Deployment", "Pod", "StatefulSet", "DaemonSet", "CronJob"];
    workload(KINDS[n % KINDS.len()], &format!("{id}-{n}"), spec, 1)
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

/// What `transom scan` says of the owners of a namespace, by kind and name.
fn scan(cluster: &ControlPlane, namespace: &str, more: &[&str]) -> BTreeMap<Name, Value> {
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let arguments = ["scan", "--kubeconfig", &kubeconfig, "--namespace", namespace];
    let text = printed(&[&arguments[..], &["-o", "json", "--fail-on", "never"], more].concat());
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["gaps"], json!([]), "all of it could be read");
    let owners = report["owners"].as_array().unwrap().iter();
    owners
        .map(|owner| {
            let text = |key: &str| owner[key].as_str().unwrap().to_owned();
            ((text("kind"), text("name")), owner.clone())
        })
        .collect()
}

/// What `transom audit-log` counts for each workload of a namespace: how often it was or would be denied, and was or would
/// be patched.
fn counted(cluster: &ControlPlane, namespace: &str) -> BTreeMap<Name, [u64; 4]> {
    let log = cluster.path("audit.log").display().to_string();
    let arguments = ["audit-log", &log, "--namespace", namespace];
    let text = printed(&[&arguments[..], &["-o", "json", "--fail-on", "never"]].concat());
    let report: Value = serde_json::from_str(&text).unwrap();
    let mut all: BTreeMap<Name, [u64; 4]> = BTreeMap::new();
    for row in report["workloads"].as_array().unwrap() {
        let (kind, name) = row["workload"].as_str().unwrap().split_once(' ').unwrap();
        let counts = all.entry((kind.to_owned(), name.to_owned())).or_default();
        let keys = ["denied", "wouldDeny", "patched", "wouldPatch"];
        for (count, key) in counts.iter_mut().zip(keys) {
            *count += row["summary"][key].as_u64().unwrap();
        }
    }
    all
}

/// The rules that the reports of a namespace say refuse each object, or would.
fn reported(cluster: &ControlPlane, namespace: &str) -> BTreeMap<Name, BTreeSet<String>> {
    let listed = cluster.kubectl(&["get", "reports.openreports.io", "-n", namespace, "-o", "json"]);
    let of_report = |report: Value| {
        let text = |key: &str| report["scope"][key].as_str().unwrap().to_owned();
        let results = report["results"].as_array().unwrap().iter();
        let fails = results.filter(|result| result["result"] == "fail");
        let rules = fails.map(|result| result["rule"].as_str().unwrap().to_owned());
        ((text("kind"), text("name")), rules.collect::<BTreeSet<_>>())
    };
    let all = listed.succeeded().objects().into_iter().map(of_report);
    all.filter(|(_, rules)| !rules.is_empty()).collect()
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

/// A cluster in which Transom looks at one namespace and enforces in the other, and its client.
async fn start() -> Option<(ControlPlane, Client)> {
    let cluster = ControlPlane::start(programs_or_skip("tests/cluster/prediction_accuracy.rs")?).unwrap();
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
        cluster.create_namespace(namespace, &[("policy", namespace)]);
    }
    install::prepare(&cluster, POLICIES);
    cluster
        .kubectl_with(&["apply", "--server-side", "-f", "-"], REPORTS)
        .succeeded();
    let replica = Replica::start(&cluster, "transom", &["--reports"]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let spec =
        json!({"os": {"name": "windows"}, "hostPID": true, "containers": [{"name": "c", "image": "i"}]});
    let bad = nth_workload(0, "probe", &spec).to_string();
    let called = || {
        let refused = cluster.kubectl_with(&["create", "-n", HELD, "--dry-run=server", "-f", "-"], &bad);
        refused.err.contains("transom.dev\" denied the request")
    };
    assert!(wait(Duration::from_secs(60), called), "the webhooks are called");
    let client = cluster.client().await;
    Some((cluster, client))
}

/// What was said of every object before and after, and what came of it.
struct Predictions {
    /// What came of it where it was only looked at.
    seen: BTreeMap<Name, Answer>,
    /// The scan of that, by the stored policy.
    before: BTreeMap<Name, Value>,
    /// The same, by the policy that was to come.
    foreseen: BTreeMap<Name, Value>,
    /// The annotations in the audit log.
    annotations: BTreeMap<Name, BTreeMap<String, String>>,
    /// What the reading of the audit log counts: where it was looked at, and where it was enforced.
    counts: [BTreeMap<Name, [u64; 4]>; 2],
}

impl Predictions {
    /// What is told otherwise than it came, of one object that was sent where everything is enforced.
    fn wrong_of(&self, name: &Name, answer: &Answer) -> Vec<String> {
        let mut wrong = Vec::new();
        let none = BTreeMap::new();
        let annotations = self.annotations.get(name).unwrap_or(&none);
        let would_deny = listed(annotations.get("would-deny"));
        let is_denied = answer.is_denied_by_transom();
        let refused = &answer.refused;
        if is_denied == would_deny.is_empty() {
            wrong.push(format!(
                "{name:?}: would-deny {would_deny:?}, and it was {refused:?}"
            ));
        }
        let counts = self.counts.each_ref();
        let counts = counts.map(|all| all.get(name).copied().unwrap_or_default());
        let [[denied_seen, would_seen, ..], [denied_held, would_held, ..]] = counts;
        let expected = (0, u64::from(is_denied), u64::from(is_denied), 0);
        if (denied_seen, would_seen, denied_held, would_held) != expected {
            wrong.push(format!(
                "{name:?}: audit-log counts {counts:?}, and it was {refused:?}"
            ));
        }
        let seen = &self.seen[name];
        // What was never stored cannot be scanned: the API server refuses it too.
        let Some(as_seen) = &seen.stored else {
            if answer.stored.is_some() {
                wrong.push(format!(
                    "{name:?}: refused where it is only looked at: {:?}",
                    seen.refused
                ));
            }
            return wrong;
        };
        let empty = json!({"findings": [], "patches": [], "wouldPatch": [], "decision": "allow"});
        let before = self.before.get(name).unwrap_or(&empty);
        let foreseen = self.foreseen.get(name).unwrap_or(&empty);
        let decision = &foreseen["decision"];
        if (decision == "deny") != is_denied {
            wrong.push(format!(
                "{name:?}: the scan said {decision}, and it was {refused:?}"
            ));
        }
        let would = rules(before, |finding| finding["wouldDeny"] == true);
        let will = rules(foreseen, |finding| finding["outcome"] == "denied");
        if would != would_deny || will != would_deny {
            wrong.push(format!(
                "{name:?}: would-deny {would_deny:?}, the scan {would:?}, with --as {will:?}"
            ));
        }
        if let Some(stored) = &answer.stored {
            let is_changed = name.0 == "Pod" && stored["spec"] != as_seen["spec"];
            let [[.., would_patch], [.., patched, _]] = counts;
            let predictions = [
                annotations.contains_key("would-patch"),
                before["wouldPatch"] != json!([]),
                decision == "patch",
                would_patch == 1,
                patched == 1,
            ];
            if predictions != [is_changed; 5] {
                wrong.push(format!(
                    "{name:?}: changed {is_changed}; would-patch, scan, scan --as, audit-log before and after: {predictions:?}"
                ));
            }
        }
        wrong
    }
}

/// What reports say otherwise than the scan of what was only looked at. The leader writes them at its pace: they are
/// compared when they say the same, or when that does not come about.
fn wrong_of_reports(cluster: &ControlPlane, before: &BTreeMap<Name, Value>) -> Vec<String> {
    let would = before
        .iter()
        .map(|(name, owner)| (name.clone(), rules(owner, |finding| finding["wouldDeny"] == true)));
    let would: BTreeMap<Name, BTreeSet<String>> = would.filter(|(_, rules)| !rules.is_empty()).collect();
    let mut wrong = Vec::new();
    if !wait(Duration::from_secs(120), || reported(cluster, SEEN) == would) {
        let reported = reported(cluster, SEEN);
        wrong.push(format!("the reports say {reported:?}, and the scan {would:?}"));
    }
    let left = reported(cluster, HELD);
    if !left.is_empty() {
        wrong.push(format!(
            "the reports would deny what was let in under Deny: {left:?}"
        ));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_reported_before_is_what_happens() {
    let Some((cluster, client)) = start().await else {
        return;
    };
    let objects = workloads();
    assert!(objects.len() >= 100, "{}", objects.len());
    let seen = create_all(&client, SEEN, &objects).await;
    let before = scan(&cluster, SEEN, &[]);
    let foreseen = scan(&cluster, SEEN, &["--assume", "mode=Enforce"]);
    let held = create_all(&client, HELD, &objects).await;
    let predictions = Predictions {
        seen,
        before,
        foreseen,
        annotations: audited(&cluster, SEEN),
        counts: [SEEN, HELD].map(|namespace| counted(&cluster, namespace)),
    };
    let mut wrong: Vec<String> = (held.iter())
        .flat_map(|(name, answer)| predictions.wrong_of(name, answer))
        .collect();
    wrong.extend(wrong_of_reports(&cluster, &predictions.before));
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));

    let denied = held
        .values()
        .filter(|answer| answer.is_denied_by_transom())
        .count();
    let changed = predictions
        .foreseen
        .values()
        .filter(|owner| owner["decision"] == "patch");
    let (changed, never) = (
        changed.count(),
        predictions
            .seen
            .values()
            .filter(|answer| answer.stored.is_none())
            .count(),
    );
    eprintln!(
        "{} objects: {denied} denied, {changed} changed, {never} that the API server refuses by itself",
        objects.len()
    );
    assert!(denied > 30 && changed > 20, "{denied} {changed}");
}
