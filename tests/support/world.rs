//! A separate cluster for each test of the controllers: a real API server, a cache built from real watches,
//! and the controller in this process.

#![allow(clippy::needless_pass_by_value)] // by value, so that callers can pass json!

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::civil::date;
use k8s_openapi::api::core::v1::{Event, Namespace, Node};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client, CustomResourceExt as _, Resource, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use transom::api::WindowsNodePolicy;
use transom::cluster::cache::{CachedNamespace, ClusterCache};
use transom::cluster::lease::Leadership;
use transom::cluster::node::{NodeView, WatchedNode};
use transom::cluster::snapshot::{Snapshot, SnapshotBuilder};
use transom::controller::leader_loop::LeaderLoop;
use transom::controller::node_policies::{NodeController, NodeControllerSettings};
use transom::controller::writer::{WRITES_PER_SECOND, Writer};
use transom::model::cluster::facts::Facts;
use transom::process::metrics::{Metrics, Reconciles};
use transom::registration::configurations::{Configuration, Configurations};
use transom::registration::{RegistrationOptions, mutating};

use super::control_plane::{ControlPlane, programs_or_skip};

/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running API server with the custom resources.
pub struct World {
    pub plane: Arc<ControlPlane>,
    pub client: Client,
}

/// A running controller; dropping this stops it.
pub struct Running {
    tasks: Vec<JoinHandle<()>>,
    lease: watch::Sender<Option<tokio::time::Instant>>,
}

impl Running {
    /// Makes it the leader.
    pub fn lead(&self) {
        self.lease.send(Some(far_away())).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn snapshots() -> SnapshotBuilder {
    SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, date(2026, 1, 1)), [])
}

fn far_away() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(3600)
}

/// Settings with short intervals.
pub fn quick() -> NodeControllerSettings {
    NodeControllerSettings {
        back_off: Duration::from_millis(200),
        guard_every: Duration::from_secs(2),
        affected_every: Duration::from_millis(500),
        status_every: Duration::from_millis(300),
        // Nothing reports the registration in these tests.
        know_registered: Duration::ZERO,
        settle: Duration::from_millis(50),
        ..NodeControllerSettings::default()
    }
}

/// A Windows node, as its kubelet would register it.
pub fn node(name: &str, kernel: &str, labels: &[(&str, &str)]) -> Value {
    let mut all = BTreeMap::from([
        ("kubernetes.io/os", "windows"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", name),
    ]);
    all.extend(labels.iter().copied());
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all}, "spec": {},
        "status": {"nodeInfo": {
            "operatingSystem": "windows", "architecture": "amd64", "kernelVersion": kernel, "bootID": "", "machineID": "",
            "systemUUID": "", "osImage": "Windows Server", "containerRuntimeVersion": "containerd://1.7.20",
            "kubeletVersion": "v1.36.2", "kubeProxyVersion": "",
        }},
    })
}

/// A node policy.
pub fn policy(name: &str, spec: Value) -> Value {
    // Labels are written and taints only audited, unless the spec says otherwise.
    let mut all = json!({"mode": "Reconcile", "taints": {"mode": "Audit"}});
    json_patch::merge(&mut all, &json!(spec));
    json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": name}, "spec": all})
}

/// A Deployment in the namespace `default`.
pub fn deployment(name: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "c", "image": "registry.example/app:1"}]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    })
}

/// The message of a condition.
pub fn message(status: &Value, kind: &str) -> String {
    condition(status, kind)["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn condition(status: &Value, kind: &str) -> Value {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|c| c["type"] == kind).unwrap_or_default()
}

impl World {
    /// Starts a cluster; `None`, with a message, if the programs are missing.
    pub async fn start() -> Option<World> {
        let programs = programs_or_skip("the tests of the controllers")?;
        let plane = tokio::task::spawn_blocking(|| ControlPlane::start(programs))
            .await
            .unwrap();
        let plane = Arc::new(plane.unwrap_or_else(|error| panic!("{error}")));
        let client = plane.client().await;
        let world = World { plane, client };
        let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
        definitions
            .create(&PostParams::default(), &WindowsNodePolicy::crd())
            .await
            .unwrap();
        let policies: Api<WindowsNodePolicy> = Api::all(world.client.clone());
        let served = || async { policies.list(&ListParams::default()).await.is_ok() };
        world.wait_for(served, "the custom resource is served").await;
        Some(world)
    }

    /// A lease that is held or not, and the view of it that the controllers get.
    pub fn leadership(held: bool) -> (watch::Sender<Option<tokio::time::Instant>>, Leadership) {
        let (sender, receiver) = watch::channel(held.then(far_away));
        (sender, Leadership::new(receiver))
    }

    /// Runs the controller as the leader. Placement applies nowhere.
    pub fn run(&self, settings: NodeControllerSettings) -> Running {
        self.run_with(settings, true)
    }

    /// Runs the controller.
    pub fn run_with(&self, settings: NodeControllerSettings, leads: bool) -> Running {
        self.run_at(settings, leads, WRITES_PER_SECOND)
    }

    /// Runs the controller with another rate of writes.
    pub fn run_at(&self, settings: NodeControllerSettings, leads: bool, per_second: u32) -> Running {
        self.start_controller(settings, leads, per_second, None)
    }

    /// Runs the controller as the leader of an installation whose webhooks are registered. Placement applies in every namespace
    /// that they do not exclude.
    pub fn run_registered(&self, settings: NodeControllerSettings) -> Running {
        let object = serde_json::to_value(mutating(&RegistrationOptions::default())).unwrap();
        let configuration = Configuration::read("zz-transom".to_owned(), Some(&object["webhooks"]));
        let registered = Configurations {
            mutating: configuration.clone(),
            validating: configuration,
        };
        self.start_controller(settings, true, WRITES_PER_SECOND, Some(Arc::new(registered)))
    }

    fn start_controller(
        &self,
        settings: NodeControllerSettings,
        leads: bool,
        per_second: u32,
        registered: Option<Arc<Configurations>>,
    ) -> Running {
        let (lease, leadership) = World::leadership(leads);
        let (sender, latest) = watch::channel(Arc::new(snapshots().unknown()));
        let writer = Writer::new(self.client.clone(), Some(leadership.clone()), per_second);
        let leader_loop = LeaderLoop {
            latest,
            leadership,
            reconcile: Reconciles::new(&Metrics::new("0", None)).of("node_policies"),
        };
        let watches = tokio::spawn(follow_all(self.client.clone(), sender, registered));
        let controller = tokio::spawn(async move {
            leader_loop.run(NodeController::new(writer, settings)).await;
            eprintln!("the controller has ended");
        });
        Running {
            tasks: vec![controller, watches],
            lease,
        }
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value) {
        create(&self.client, object).await;
    }

    /// Creates many objects.
    pub async fn create_many(&self, objects: impl Iterator<Item = Value>) {
        let client = &self.client;
        let all = objects.map(|object| async move { create(client, &object).await });
        futures::stream::iter(all)
            .buffer_unordered(16)
            .collect::<Vec<()>>()
            .await;
    }

    /// The output of kubectl, which must succeed.
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(args).succeeded().out
    }

    /// The stored node.
    pub async fn node(&self, name: &str) -> Value {
        let nodes: Api<Node> = Api::all(self.client.clone());
        serde_json::to_value(nodes.get(name).await.unwrap()).unwrap()
    }

    /// Several stored nodes.
    pub async fn nodes(&self, names: &[&str]) -> Vec<Value> {
        let mut all = Vec::new();
        for name in names {
            all.push(self.node(name).await);
        }
        all
    }

    /// Waits until the node matches, and returns it.
    pub async fn node_until(&self, name: &str, so: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let node = self.node(name).await;
            if so(&node) {
                return node;
            }
            if start.elapsed() >= PATIENCE {
                let policies: Api<WindowsNodePolicy> = Api::all(self.client.clone());
                let all = policies.list(&ListParams::default()).await.unwrap();
                panic!("node {name} stays as it is: {node:#}\n{:#}", json!(all.items));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the policy has this condition, and returns its status.
    pub async fn status_until(&self, name: &str, kind: &str, status: &str, reason: &str) -> Value {
        let so = |now: &Value| {
            let condition = condition(now, kind);
            condition["status"] == status && condition["reason"] == reason
        };
        self.status_where(name, so).await
    }

    /// Waits until the status of the policy lacks a condition, and returns it.
    pub async fn status_without(&self, name: &str, kind: &str) -> Value {
        self.status_where(name, |now| now.is_object() && condition(now, kind).is_null())
            .await
    }

    /// Waits until the status of the policy matches, and returns it.
    pub async fn status_where(&self, name: &str, so: impl Fn(&Value) -> bool) -> Value {
        let policies: Api<WindowsNodePolicy> = Api::all(self.client.clone());
        let start = Instant::now();
        loop {
            let status = json!(policies.get(name).await.unwrap().status);
            if so(&status) {
                return status;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "the status of {name} stays as it is: {status:#}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn events_on(&self, name: &str) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let params = ListParams::default().fields(&format!("involvedObject.name={name}"));
        events.list(&params).await.unwrap().items
    }

    /// The Events on a node or a policy as `type reason`, with repetitions.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let reported = self.events_on(name).await.into_iter().map(|event| {
            let again = event.series.and_then(|series| series.count);
            let again = again.map_or_else(String::new, |count| format!(" x{count}"));
            format!(
                "{} {}{again}",
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default()
            )
        });
        let mut reported: Vec<String> = reported.collect();
        reported.sort();
        reported
    }

    /// Waits for an Event on a node or a policy with this text in its note.
    pub async fn event_until(&self, name: &str, note: &str) {
        let reported = || async {
            let states = |event: &Event| event.message.as_deref().is_some_and(|text| text.contains(note));
            self.events_on(name).await.iter().any(states)
        };
        self.wait_for(reported, note).await;
    }

    /// Waits until the condition is true.
    pub async fn wait_for<F: Future<Output = bool>>(&self, so: impl Fn() -> F, what: &str) {
        let start = Instant::now();
        while !so().await {
            assert!(start.elapsed() < PATIENCE, "it does not come about: {what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Changes a policy.
    pub async fn patch_policy(&self, name: &str, patch: Value) {
        let policies: Api<WindowsNodePolicy> = Api::all(self.client.clone());
        policies
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// The number of requests that the API server has counted.
    pub async fn requests(&self, resource: &str, verb: &str) -> f64 {
        let request = kube::core::Request::new("/metrics")
            .list(&ListParams::default())
            .unwrap();
        let text = self.client.request_text(request).await.unwrap();
        let (resource, verb) = (format!("resource=\"{resource}\""), format!("verb=\"{verb}\""));
        text.lines()
            .filter(|line| line.starts_with("apiserver_request_total{"))
            .filter(|line| {
                line.contains(&resource) && line.contains(&verb) && line.contains("subresource=\"\"")
            })
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// From now on the API server rejects every change of a node.
    pub async fn refuse_writes_to_node(&self, name: &str) {
        let kind = |kind: &str, spec: Value| {
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": format!("refuse-{name}")}, "spec": spec})
        };
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"]});
        let spec = json!({
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": format!("object.metadata.name != '{name}'"), "message": "not this one"}],
        });
        self.create(&kind("ValidatingAdmissionPolicy", spec)).await;
        let binding = json!({"policyName": format!("refuse-{name}"), "validationActions": ["Deny"]});
        self.create(&kind("ValidatingAdmissionPolicyBinding", binding))
            .await;
        self.wait_for(
            || async { !self.can_write_node(name).await },
            "writes are refused",
        )
        .await;
    }

    /// Whether the API server accepts changes of a node.
    pub async fn can_write_node(&self, name: &str) -> bool {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patch = json!({"metadata": {"labels": {"probe": "x"}}});
        nodes.patch(name, &params, &Patch::Merge(&patch)).await.is_ok()
    }
}

async fn create(client: &Client, object: &Value) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let types = object.types.clone().unwrap();
    let group = types
        .api_version
        .rsplit_once('/')
        .map_or("", |(group, _)| group)
        .to_owned();
    let version = types.api_version.rsplit('/').next().unwrap().to_owned();
    let gvk = kube::core::GroupVersionKind {
        group,
        version,
        kind: types.kind,
    };
    let mut resource = kube::core::ApiResource::from_gvk(&gvk);
    if gvk.kind == "WindowsNodePolicy" {
        "windowsnodepolicies".clone_into(&mut resource.plural);
    }
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    if let Err(error) = api.create(&PostParams::default(), &object).await {
        panic!("cannot create {} {}: {error}", gvk.kind, object.name_any());
    }
}

/// The objects of one kind, by name, as the watch has delivered them; `None` before the first list.
type Seen<V> = Arc<Mutex<Option<BTreeMap<String, V>>>>;

/// Watches everything that the node controller reads, and publishes only complete views.
async fn follow_all(
    client: Client,
    sender: watch::Sender<Arc<Snapshot>>,
    registered: Option<Arc<Configurations>>,
) {
    let (changed, mut news) = watch::channel(());
    let changed = Arc::new(changed);
    let nodes: Seen<Arc<NodeView>> = Seen::default();
    let classes: Seen<Arc<RuntimeClass>> = Seen::default();
    let policies: Seen<Arc<WindowsNodePolicy>> = Seen::default();
    let namespaces: Seen<Arc<CachedNamespace>> = Seen::default();
    let pod_policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy",
        "metadata": {"name": "default"}, "spec": {"mode": "Warn"}});
    let pod_policies = BTreeMap::from([("default".to_owned(), Arc::new(pod_policy))]);
    let all = async {
        futures::join!(
            follow(
                Api::<WatchedNode>::all(client.clone()),
                |node| Arc::new(NodeView::from(node)),
                &nodes,
                &changed
            ),
            follow(
                Api::<RuntimeClass>::all(client.clone()),
                Arc::new,
                &classes,
                &changed
            ),
            follow(
                Api::<WindowsNodePolicy>::all(client.clone()),
                Arc::new,
                &policies,
                &changed
            ),
            follow(
                Api::<Namespace>::all(client.clone()),
                |namespace| Arc::new(CachedNamespace {
                    labels: namespace.metadata.labels.unwrap_or_default(),
                    ..CachedNamespace::default()
                }),
                &namespaces,
                &changed
            ),
        )
    };
    let send = async {
        while news.changed().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            news.borrow_and_update();
            let (nodes, classes, policies, namespaces) = (
                nodes.lock().unwrap().clone(),
                classes.lock().unwrap().clone(),
                policies.lock().unwrap().clone(),
                namespaces.lock().unwrap().clone(),
            );
            let (Some(mut nodes), Some(runtime_classes), Some(node_policies), Some(namespaces)) =
                (nodes, classes, policies, namespaces)
            else {
                continue;
            };
            let pod_policies = registered
                .as_ref()
                .map(|_| pod_policies.clone())
                .unwrap_or_default();
            nodes.retain(|_, node| node.is_of_interest());
            let view = ClusterCache {
                kubernetes: 36,
                nodes,
                runtime_classes,
                node_policies,
                namespaces,
                pod_policies,
                ..ClusterCache::default()
            };
            let registered = registered.clone();
            let snapshot = snapshots().take(
                &Arc::new(view),
                registered,
                "2026-01-01T00:00:00Z".parse().unwrap(),
            );
            let _ = sender.send(Arc::new(snapshot));
        }
    };
    futures::join!(all, send);
}

async fn follow<K, V>(api: Api<K>, trim: impl Fn(K) -> V, seen: &Seen<V>, changed: &watch::Sender<()>)
where
    K: Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let mut listed = BTreeMap::new();
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => _ = listed.insert(object.name_any(), trim(object)),
            Ok(watcher::Event::InitDone) => *seen.lock().unwrap() = Some(std::mem::take(&mut listed)),
            Ok(watcher::Event::Apply(object)) => {
                if let Some(seen) = seen.lock().unwrap().as_mut() {
                    seen.insert(object.name_any(), trim(object));
                }
            }
            Ok(watcher::Event::Delete(object)) => {
                if let Some(seen) = seen.lock().unwrap().as_mut() {
                    seen.remove(&object.name_any());
                }
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
        let _ = changed.send(());
    }
}
