//! The guard next to another client, which removes, adds and contests taints, changes policies and whether placement applies
//! after the nodes were tainted, and restarts pods at any moment. The world, and not the guard, decides which workloads a
//! taint of Transom's keeps off nodes: the conditions of the node policy list each of them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Response};
use jiff::civil::date;
use kube::Client;
use kube::client::Body;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use transom::cluster::cache::{CachedNamespace, ClusterCache};
use transom::cluster::node::{NodeView, OWNED_ANNOTATION, WatchedNode};
use transom::cluster::snapshot::{Snapshot, SnapshotBuilder};
use transom::controller::leader_loop::Controller as _;
use transom::controller::node_policies::{NodeController, NodeControllerSettings};
use transom::controller::writer::Writer;
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::Policy;
use transom::model::windows::os::Verdict;
use transom::registration::configurations::{Configuration, Configurations};
use transom::registration::{RegistrationOptions, mutating};

use super::never_worse::without_addresses;
use super::{inferred, mutate};
use crate::support::schedule::{Cluster, NOW, any_cluster, any_pod};

const POLICY: &str = "windows";
const NAMESPACES: [&str; 2] = ["shop", "bank"];
const KINDS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// What the other client does.
#[derive(Clone, Debug)]
enum Action {
    /// Removes every taint with the key `os` from a node, as often as this.
    Remove { node: usize, times: usize },
    /// Adds a taint to a node.
    Add { node: usize, value: &'static str },
    /// Changes the node policy.
    NodePolicy(Value),
    /// Sets `placement.mode` of the policy of a namespace.
    Placement { namespace: usize, mode: &'static str },
    /// Sets or removes `transom.dev/ignore` of a namespace.
    Ignore { namespace: usize, ignored: bool },
    /// Deletes the pods of a workload; its controller creates them again.
    Restart { workload: usize },
    /// A node of another build joins.
    Join { build: u32 },
    /// Nothing, for some time.
    Wait,
}

fn action() -> impl Strategy<Value = Action> {
    let node_policies = vec![
        json!({"mode": "Reconcile", "taints": {"mode": "Reconcile"}}),
        json!({"mode": "Reconcile", "taints": {"mode": "Reconcile"}, "labels": {"nodeRestriction": {"mode": "Disabled"}}}),
        json!({"mode": "Reconcile", "taints": {"mode": "Audit"}}),
        json!({"mode": "Reconcile", "taints": {"mode": "Reconcile", "required": [{"key": "os", "value": "win", "effect": "NoSchedule"}]}}),
        json!({"mode": "Reconcile", "taints": {"mode": "Reconcile"}, "nodeSelector": {"matchLabels": {"agentpool": "pool-0"}}}),
    ];
    let (node, namespace) = (0..8_usize, 0..NAMESPACES.len());
    prop_oneof![
        4 => (node.clone(), select(vec![1, 4, 4])).prop_map(|(node, times)| Action::Remove { node, times }),
        1 => (node, select(vec!["windows", "theirs"])).prop_map(|(node, value)| Action::Add { node, value }),
        2 => select(node_policies).prop_map(Action::NodePolicy),
        2 => (namespace.clone(), select(vec!["Apply", "Disabled", "Audit"]))
            .prop_map(|(namespace, mode)| Action::Placement { namespace, mode }),
        2 => (namespace, any::<bool>()).prop_map(|(namespace, ignored)| Action::Ignore { namespace, ignored }),
        4 => (0..4_usize).prop_map(|workload| Action::Restart { workload }),
        1 => select(vec![17763, 20348, 26100]).prop_map(|build| Action::Join { build }),
        2 => Just(Action::Wait),
    ]
}

/// A workload: kind, namespace and name, and the pod that its template describes.
#[derive(Clone, Debug)]
struct Workload {
    kind: &'static str,
    namespace: &'static str,
    name: String,
    pod: Value,
}

impl Workload {
    /// As conditions name it.
    fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    fn object(&self) -> Value {
        json!({"metadata": {"namespace": self.namespace, "name": self.name, "uid": self.title(), "generation": 1},
            "spec": {"template": {"metadata": {"labels": self.pod["metadata"]["labels"]}, "spec": self.pod["spec"]}}})
    }
}

/// A stored pod, without the fields of its API version.
#[derive(Clone, Debug)]
struct StoredPod {
    workload: usize,
    pod: Value,
}

/// What the API server stores.
struct Store {
    cluster: Cluster,
    workloads: Vec<Workload>,
    pods: Vec<StoredPod>,
    node_policy: Value,
    /// `placement.mode`, and whether the namespace is excluded.
    namespaces: [(&'static str, bool); 2],
    /// The taints that the controller set, as the API server has seen it.
    ours: BTreeSet<(String, String)>,
    /// On how many nodes the controller removed a taint that its policy requires.
    withdrawn: usize,
    version: u64,
}

/// The taint of a node as text.
fn text_of(taint: &Value) -> String {
    let text = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    format!("{}={}:{}", text("key"), text("value"), text("effect"))
}

fn taints(node: &Value) -> Vec<Value> {
    node["spec"]["taints"].as_array().cloned().unwrap_or_default()
}

impl Store {
    fn node(&mut self, name: &str) -> Option<&mut Value> {
        let mut nodes = self.cluster.nodes.iter_mut();
        nodes.find(|node| node["metadata"]["name"] == name)
    }

    fn next_version(&mut self) -> Value {
        self.version += 1;
        self.version.to_string().into()
    }

    /// Answers a request of the controller.
    fn answer(&mut self, method: &Method, path: &str, body: &str) -> (u16, Value) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            (&Method::GET, ["apis"]) => (200, json!({"kind": "APIGroupList", "groups": []})),
            (&Method::PATCH, ["api", "v1", "nodes", name]) => self.patch_node(name, body),
            (&Method::GET, ["api", "v1", "nodes", name]) => match self.node(name) {
                Some(node) => (200, node.clone()),
                None => gone(),
            },
            (&Method::PATCH, [.., "windowsnodepolicies", POLICY, "status"]) => {
                let patch: Value = serde_json::from_str(body).unwrap();
                if patch["metadata"]["resourceVersion"] != self.node_policy["metadata"]["resourceVersion"] {
                    return conflict();
                }
                let version = self.next_version();
                json_patch::merge(&mut self.node_policy, &patch);
                self.node_policy["metadata"]["resourceVersion"] = version;
                (200, self.node_policy.clone())
            }
            (&Method::GET, [.., "windowsnodepolicies"]) => list(std::slice::from_ref(&self.node_policy)),
            (&Method::POST, [.., "events"]) => {
                let event: Value = serde_json::from_str(body).unwrap();
                let note = event["note"].as_str().unwrap_or_default();
                self.withdrawn += usize::from(note.contains("would keep restarted pods off"));
                (201, event)
            }
            (&Method::PATCH, [.., "events", _]) => (200, serde_json::from_str(body).unwrap()),
            (&Method::GET, [.., "namespaces", namespace, _, name]) => {
                let mut all = self.workloads.iter();
                let found = all.find(|it| it.namespace == *namespace && it.name == *name);
                found.map_or_else(gone, |found| (200, found.object()))
            }
            (&Method::GET, [.., "pods"]) => {
                list(&self.pods.iter().map(|it| it.pod.clone()).collect::<Vec<_>>())
            }
            (&Method::GET, [.., resource]) => {
                let of = |it: &&Workload| format!("{}s", it.kind.to_lowercase()) == *resource;
                let found = self.workloads.iter().filter(of).map(Workload::object);
                let sets = self.replica_sets().filter(|_| *resource == "replicasets");
                list(&found.chain(sets).collect::<Vec<_>>())
            }
            _ => panic!("{method} {path}: {body}"),
        }
    }

    fn replica_sets(&self) -> impl Iterator<Item = Value> {
        let deployments = self.workloads.iter().filter(|it| it.kind == "Deployment");
        deployments.map(|it| {
            let mut set = it.object();
            set["metadata"]["name"] = format!("{}-1", it.name).into();
            set["metadata"]["ownerReferences"] = owned_by("Deployment", &it.name);
            set
        })
    }

    fn patch_node(&mut self, name: &str, body: &str) -> (u16, Value) {
        let patch: Value = serde_json::from_str(body).unwrap();
        let version = self.next_version();
        let Some(node) = self.node(name) else {
            return gone();
        };
        if patch["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"] {
            return conflict();
        }
        let before: BTreeSet<String> = taints(node).iter().map(text_of).collect();
        json_patch::merge(node, &patch);
        node["metadata"]["resourceVersion"] = version;
        let (node, after) = (node.clone(), taints(node));
        let after: BTreeSet<String> = after.iter().map(text_of).collect();
        for set in after.difference(&before) {
            self.ours.insert((name.to_owned(), set.clone()));
        }
        (200, node)
    }

    /// What the other client writes to the taints of a node.
    fn write_taints(&mut self, index: usize, change: impl FnOnce(&mut Vec<Value>)) {
        let version = self.next_version();
        let count = self.cluster.nodes.len();
        let node = &mut self.cluster.nodes[index % count];
        let mut list = taints(node);
        change(&mut list);
        node["spec"]["taints"] = list.into();
        node["metadata"]["resourceVersion"] = version;
        self.forget_removed();
    }

    /// A taint that somebody removed is no longer the controller's.
    fn forget_removed(&mut self) {
        let present: BTreeSet<(String, String)> = (self.cluster.nodes.iter())
            .flat_map(|node| {
                let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let taints = taints(node);
                let texts: Vec<_> = taints
                    .iter()
                    .map(|taint| (name.clone(), text_of(taint)))
                    .collect();
                texts
            })
            .collect();
        self.ours.retain(|taint| present.contains(taint));
    }

    /// The same cluster without the taints that the controller set.
    fn without_ours(&self) -> Cluster {
        let mut cluster = self.cluster.clone();
        for node in &mut cluster.nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let kept: Vec<Value> = (taints(node).into_iter())
                .filter(|taint| !self.ours.contains(&(name.clone(), text_of(taint))))
                .collect();
            node["spec"]["taints"] = kept.into();
        }
        cluster
    }

    /// What the leader's watches have delivered.
    fn cache(&self) -> ClusterCache {
        let nodes = self.cluster.nodes.iter().map(|node| {
            let view = NodeView::from(serde_json::from_value::<WatchedNode>(node.clone()).unwrap());
            (view.name.clone(), Arc::new(view))
        });
        let namespaces = NAMESPACES
            .iter()
            .zip(self.namespaces)
            .map(|(name, (_, ignored))| {
                let labels = [
                    ("kubernetes.io/metadata.name", *name),
                    ("transom.dev/ignore", "true"),
                ];
                let labels = labels.into_iter().take(1 + usize::from(ignored));
                let namespace = CachedNamespace {
                    labels: labels
                        .map(|(key, value)| (key.to_owned(), value.to_owned()))
                        .collect(),
                    ..CachedNamespace::default()
                };
                ((*name).to_owned(), Arc::new(namespace))
            });
        let classes = self.cluster.classes.iter().map(|(name, class)| {
            let tolerations: Vec<Value> = (class.tolerations.iter())
                .map(|it| json!({"key": it.key.as_deref(), "operator": it.operator.as_deref(), "effect": it.effect.as_deref()}))
                .collect();
            let class = json!({"metadata": {"name": name}, "handler": class.handler,
                "scheduling": {"nodeSelector": class.node_selector, "tolerations": tolerations}});
            (name.clone(), Arc::new(serde_json::from_value(class).unwrap()))
        });
        let policies = NAMESPACES.iter().zip(self.namespaces).map(|(name, (mode, _))| {
            let mut spec = json!({"mode": "Warn", "placement": {"mode": mode},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}});
            if !self.cluster.policy.runtime_classes.is_empty() {
                spec["placement"]["runtimeClasses"] = json!([{"release": "ltsc2022", "name": "class"}]);
            }
            let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy",
                "metadata": {"name": name, "uid": name}, "spec": spec});
            ((*name).to_owned(), Arc::new(policy))
        });
        let node_policy = serde_json::from_value(self.node_policy.clone()).unwrap();
        ClusterCache {
            kubernetes: Facts::KUBERNETES,
            nodes: nodes.filter(|(_, node)| node.is_of_interest()).collect(),
            namespaces: namespaces.collect(),
            runtime_classes: classes.collect(),
            pod_policies: policies.collect(),
            node_policies: [(POLICY.to_owned(), Arc::new(node_policy))].into(),
            ..ClusterCache::default()
        }
    }

    /// Creates the pods of a workload again, as its controller, admission and a scheduler do.
    fn restart(&mut self, index: usize, snapshot: &Snapshot) {
        self.pods.retain(|it| it.workload != index);
        let workload = self.workloads[index].clone();
        let admitted = admit(&workload, self.places(&workload), &snapshot.facts, snapshot);
        let feasible = self.cluster.feasible(&admitted, &[]);
        let runnable = self.cluster.runnable(&workload.pod);
        let nodes: Vec<Option<String>> = match workload.kind {
            "DaemonSet" => feasible.into_iter().map(Some).collect(),
            _ => vec![feasible.into_iter().next()],
        };
        for (number, node) in nodes.into_iter().enumerate() {
            let mut pod = admitted.clone();
            let (kind, owner) = match workload.kind {
                "Deployment" => ("ReplicaSet", format!("{}-1", workload.name)),
                kind => (kind, workload.name.clone()),
            };
            let name = format!("{}-{number}", workload.name);
            pod["metadata"] = json!({"namespace": workload.namespace, "name": name, "uid": name,
                "labels": pod["metadata"]["labels"], "ownerReferences": owned_by(kind, &owner)});
            if let Some(node) = node {
                let ready = if runnable.contains(&node) { "True" } else { "False" };
                pod["spec"]["nodeName"] = node.into();
                pod["status"] = json!({"conditions": [{"type": "Ready", "status": ready}]});
            }
            self.pods.push(StoredPod { workload: index, pod });
        }
    }

    /// Whether placement applies to the pods of a workload, from what the other client wrote.
    fn places(&self, workload: &Workload) -> bool {
        let mut namespaces = NAMESPACES.iter().zip(self.namespaces);
        let found = namespaces.find(|(name, _)| **name == workload.namespace);
        found.is_some_and(|(_, (mode, ignored))| mode == "Apply" && !ignored)
    }

    /// The workloads whose pods, created now, could run on more nodes without the taints of the controller, or wait for a node
    /// only because of them; with the reason.
    fn stranded(&self, snapshot: &Snapshot) -> Vec<(String, String)> {
        let before = self.without_ours();
        let mut found = Vec::new();
        for (index, workload) in self.workloads.iter().enumerate() {
            let policy = policy_of(workload, snapshot);
            if inferred(&workload.pod, &snapshot.facts, &policy).verdict != Verdict::Windows {
                continue;
            }
            let runnable = self.cluster.runnable(&workload.pod);
            let reached = |cluster: &Cluster, pod: &Value| -> BTreeSet<String> {
                let feasible = cluster.feasible(&schedulable(workload, pod), &[]);
                feasible.intersection(&runnable).cloned().collect()
            };
            let places = self.places(workload);
            let with = admit(workload, places, &snapshot.facts, snapshot);
            let without = admit(workload, places, &before.facts(), snapshot);
            let lost: Vec<String> = (reached(&before, &without).difference(&reached(&self.cluster, &with)))
                .cloned()
                .collect();
            if !lost.is_empty() {
                found.push((workload.title(), format!("loses {lost:?} with {with}")));
                continue;
            }
            let mut waiting = self.pods.iter().filter(|it| it.workload == index);
            let waits = waiting.find(|it| {
                it.pod["spec"].get("nodeName").is_none()
                    && reached(&self.cluster, &it.pod).is_empty()
                    && !reached(&before, &it.pod).is_empty()
            });
            if let Some(waits) = waits {
                found.push((workload.title(), format!("waits: {}", waits.pod)));
            }
        }
        found
    }

    /// The messages of the conditions about taints.
    fn conditions(&self) -> String {
        let conditions = self.node_policy["status"]["conditions"].as_array().cloned();
        let about = ["TaintsBlocked", "WorkloadsExcluded"];
        let messages = conditions
            .into_iter()
            .flatten()
            .filter(|it| it["status"] == "True" && about.iter().any(|kind| it["type"] == **kind));
        messages.fold(String::new(), |mut text, it| {
            let _ = writeln!(text, "{}: {}", it["type"], it["message"]);
            text
        })
    }
}

/// A pod as the guard considers it: without requests for addresses, and with the RuntimeClass only if its template is not that of a
/// DaemonSet.
fn schedulable(workload: &Workload, pod: &Value) -> Value {
    let mut pod = without_addresses(pod);
    if workload.kind == "DaemonSet"
        && let Some(spec) = pod["spec"].as_object_mut()
    {
        spec.remove("runtimeClassName");
    }
    pod
}

fn policy_of(workload: &Workload, snapshot: &Snapshot) -> Policy {
    snapshot.in_namespace(workload.namespace).policy
}

/// The pod of a workload after admission, on a cluster of these facts.
fn admit(workload: &Workload, places: bool, facts: &Facts, snapshot: &Snapshot) -> Value {
    if !places || workload.kind == "DaemonSet" {
        return workload.pod.clone();
    }
    mutate(&workload.pod, facts, &policy_of(workload, snapshot)).2
}

fn owned_by(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}])
}

fn list(items: &[Value]) -> (u16, Value) {
    (200, json!({"metadata": {}, "items": items}))
}

fn gone() -> (u16, Value) {
    (
        404,
        json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone"}),
    )
}

fn conflict() -> (u16, Value) {
    (
        409,
        json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "another version"}),
    )
}

/// A controller next to the store.
struct Trial {
    store: Arc<Mutex<Store>>,
    controller: NodeController,
    snapshots: SnapshotBuilder,
    registered: Arc<Configurations>,
}

impl Trial {
    fn new(mut cluster: Cluster, pods: Vec<(Value, usize, usize)>) -> Self {
        cluster.images.clear();
        cluster.declared.clear();
        cluster.remembered.clear();
        for node in &mut cluster.nodes {
            let name = node["metadata"]["name"].clone();
            node["metadata"]["uid"] = name;
            node["metadata"]["resourceVersion"] = "1".into();
        }
        let workloads = pods
            .into_iter()
            .enumerate()
            .map(|(number, (mut pod, kind, namespace))| {
                let namespace = NAMESPACES[namespace];
                pod["metadata"]["namespace"] = namespace.into();
                Workload {
                    kind: KINDS[kind],
                    namespace,
                    name: format!("w{number}"),
                    pod,
                }
            });
        let store = Store {
            workloads: workloads.collect(),
            pods: Vec::new(),
            node_policy: json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
                "metadata": {"name": POLICY, "uid": POLICY, "generation": 1, "resourceVersion": "1"},
                "spec": {"mode": "Reconcile"}}),
            namespaces: [("Apply", false); 2],
            ours: BTreeSet::new(),
            withdrawn: 0,
            version: 1,
            cluster,
        };
        let store = Arc::new(Mutex::new(store));
        let served = Arc::clone(&store);
        let service = tower::service_fn(move |request: Request<Body>| {
            let store = Arc::clone(&served);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = String::from_utf8_lossy(&body).into_owned();
                let (status, answer) = store.lock().unwrap().answer(&head.method, head.uri.path(), &body);
                let body = Full::<Bytes>::from(answer.to_string());
                Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
            }
        });
        let writer = Writer::new(Client::new(service, "default"), None, 1000);
        let object = serde_json::to_value(mutating(&RegistrationOptions::default())).unwrap();
        let configuration = Configuration::read("zz-transom".to_owned(), Some(&object["webhooks"]));
        Trial {
            store,
            controller: NodeController::new(writer, NodeControllerSettings::default()),
            snapshots: SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, date(2026, 1, 1)), []),
            registered: Arc::new(Configurations {
                mutating: configuration.clone(),
                validating: configuration,
            }),
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let cache = Arc::new(self.store.lock().unwrap().cache());
        (self.snapshots).take(&cache, Some(Arc::clone(&self.registered)), NOW.parse().unwrap())
    }

    async fn pass(&mut self) {
        let snapshot = self.snapshot();
        self.controller.pass(&snapshot).await;
        self.store.lock().unwrap().forget_removed();
    }

    async fn settle(&mut self) {
        for _ in 0..16 {
            self.pass().await;
            tokio::time::advance(Duration::from_secs(30)).await;
        }
        self.pass().await;
    }

    fn restart(&mut self, workload: usize) {
        let snapshot = self.snapshot();
        let mut store = self.store.lock().unwrap();
        let count = store.workloads.len();
        store.restart(workload % count, &snapshot);
    }

    async fn act(&mut self, action: &Action) {
        match action {
            Action::Remove { node, times } => {
                for _ in 0..*times {
                    self.store
                        .lock()
                        .unwrap()
                        .write_taints(*node, |taints| taints.retain(|it| it["key"] != "os"));
                    self.pass().await;
                    tokio::time::advance(Duration::from_secs(10)).await;
                    self.pass().await;
                }
            }
            Action::Add { node, value } => {
                let added = json!({"key": "os", "value": value, "effect": "NoSchedule"});
                self.store.lock().unwrap().write_taints(*node, |taints| {
                    if !taints
                        .iter()
                        .any(|it| it["key"] == "os" && it["effect"] == "NoSchedule")
                    {
                        taints.push(added);
                    }
                });
            }
            Action::NodePolicy(spec) => {
                let mut store = self.store.lock().unwrap();
                let version = store.next_version();
                let generation = store.node_policy["metadata"]["generation"]
                    .as_i64()
                    .unwrap_or_default();
                store.node_policy["spec"] = spec.clone();
                store.node_policy["metadata"]["generation"] = (generation + 1).into();
                store.node_policy["metadata"]["resourceVersion"] = version;
            }
            Action::Placement { namespace, mode } => {
                self.store.lock().unwrap().namespaces[*namespace].0 = mode;
            }
            Action::Ignore { namespace, ignored } => {
                self.store.lock().unwrap().namespaces[*namespace].1 = *ignored;
            }
            Action::Restart { workload } => self.restart(*workload),
            Action::Join { build } => self.join(*build),
            Action::Wait => {
                self.pass().await;
                tokio::time::advance(Duration::from_secs(70)).await;
            }
        }
        self.pass().await;
    }

    fn join(&self, build: u32) {
        let mut store = self.store.lock().unwrap();
        let name = format!("node-{}", store.cluster.nodes.len());
        let room = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
        let labels = json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
            "node.kubernetes.io/windows-build": format!("10.0.{build}"), "agentpool": format!("joined-{build}")});
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels,
                "creationTimestamp": "2026-01-01T11:59:00Z"},
            "spec": {"taints": []},
            "status": {"capacity": room, "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}],
                "nodeInfo": {"operatingSystem": "windows", "kernelVersion": format!("10.0.{build}.1")}}});
        store.cluster.nodes.push(node);
    }

    /// The workloads that the conditions do not name, after some time without any change.
    fn unnamed(&mut self) -> Vec<String> {
        let snapshot = self.snapshot();
        let store = self.store.lock().unwrap();
        let conditions = store.conditions();
        let stranded = store.stranded(&snapshot).into_iter();
        let unnamed = stranded.filter(|(title, _)| !conditions.contains(&format!("{title} (")));
        let owned = store
            .cluster
            .nodes
            .iter()
            .map(|node| node["metadata"]["annotations"][OWNED_ANNOTATION].clone());
        let owned: Vec<Value> = owned.collect();
        unnamed
            .map(|(title, why)| {
                let policy = &store.node_policy;
                format!(
                    "{title} {why} in {}\n{owned:?}\n{policy:#}\n{:?}",
                    store.cluster.brief(),
                    store.namespaces
                )
            })
            .collect()
    }
}

/// What random clusters had in all.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Workloads that a taint keeps off nodes, and a condition names.
    named: usize,
    /// Nodes from which the controller removed a taint that its policy requires.
    withdrawn: usize,
}

async fn check(
    cluster: Cluster,
    pods: Vec<(Value, usize, usize)>,
    actions: &[Action],
) -> Result<Seen, TestCaseError> {
    let mut trial = Trial::new(cluster, pods);
    let count = trial.store.lock().unwrap().workloads.len();
    for workload in 0..count {
        trial.restart(workload);
    }
    trial.settle().await;
    let unnamed = trial.unnamed();
    prop_assert!(
        unnamed.is_empty(),
        "before the other client acts: {}",
        unnamed.join("\n")
    );
    for action in actions {
        trial.act(action).await;
    }
    trial.settle().await;
    let unnamed = trial.unnamed();
    prop_assert!(unnamed.is_empty(), "{}", unnamed.join("\n"));
    // Nothing is set and removed again and again.
    let quiet = trial.store.lock().unwrap().version;
    trial.settle().await;
    let later = trial.store.lock().unwrap().version;
    prop_assert!(
        later - quiet <= 2,
        "{} writes although nothing changes",
        later - quiet
    );
    let snapshot = trial.snapshot();
    let store = trial.store.lock().unwrap();
    Ok(Seen {
        named: store.stranded(&snapshot).len(),
        withdrawn: store.withdrawn,
    })
}

/// How many random clusters: `TRANSOM_GUARD_CLUSTERS`.
fn clusters() -> u32 {
    let requested = std::env::var("TRANSOM_GUARD_CLUSTERS");
    requested.map_or(60, |count| {
        count.parse().expect("TRANSOM_GUARD_CLUSTERS is a number")
    })
}

#[test]
fn no_workload_is_stranded_that_the_conditions_do_not_name() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: clusters(),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    // The guard refuses most clusters with taints of others, and with DaemonSets.
    let cluster = (any_cluster(), weighted(0.8, Just(()))).prop_map(|(mut cluster, bare)| {
        for node in cluster.nodes.iter_mut().filter(|_| bare.is_some()) {
            node["spec"]["taints"] = json!([]);
        }
        cluster
    });
    let kind = select(vec![0, 0, 0, 1, 1, 1, 2]);
    let pods = vec((any_pod(), kind, 0..NAMESPACES.len()), 1..=4);
    let all = Mutex::new(Seen::default());
    let run = runner.run(
        &(cluster, pods, vec(action(), 1..=8)),
        |(cluster, pods, actions)| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            let seen = runtime.block_on(check(cluster, pods, &actions))?;
            let mut all = all.lock().unwrap();
            all.named += seen.named;
            all.withdrawn += seen.withdrawn;
            Ok(())
        },
    );
    if let Err(error) = run {
        panic!("{error}");
    }
    let all = all.into_inner().unwrap();
    println!("{} clusters: {all:?}", clusters());
    // Fewer clusters may have none.
    assert!(
        clusters() < 200 || (all.named > 0 && all.withdrawn > 0),
        "{all:?}"
    );
}
