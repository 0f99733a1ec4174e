//! Simulates kubelets that pull images: one after the other, by size; `status.images` names the 50 largest; the reasons of a pod's
//! containers appear when each of them was tried once. No container of a pod that must not run as root runs. A kubelet of a node with
//! the label [`SILENT`] does nothing. A node that gets the name of one that is gone has no image of that one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::control_plane::ControlPlane;

/// The interval between two passes.
const REST: Duration = Duration::from_millis(100);
/// Bytes per second.
pub const BANDWIDTH: u64 = 100_000_000;
/// How long after its first report a kubelet visits a pod again.
const RESYNC: Duration = Duration::from_secs(10);
/// How many images a node reports.
const REPORTED: usize = 50;
/// The startup taint.
pub const STARTUP: &str = "startup-taint.cluster-autoscaler.kubernetes.io/transom";

/// The label of nodes whose kubelets do nothing.
pub const SILENT: &str = "example.com/silent";

/// What was seen of one node.
#[derive(Clone, Debug, Default)]
pub struct PullingNode {
    /// Its uid.
    pub uid: String,
    /// The uids of the pods of Transom's that were bound to it.
    pub pullers: BTreeSet<String>,
    /// The images that it has, with their sizes.
    pub images: BTreeMap<String, u64>,
    /// The images that it pulled, in order.
    pub pulled: Vec<String>,
    /// The images that it had when it first lacked the startup taint, and how long after it joined.
    pub released: Option<(BTreeSet<String>, Duration)>,
    /// The images that it had pulled by then.
    pub pulled_before: Vec<String>,
    joined: Option<Instant>,
    /// What it pulls, until when, and for which pod.
    pulling: Option<(String, Instant, String)>,
    /// Images that failed, by pod.
    failed: BTreeSet<(String, String)>,
    /// Pods of Transom's that it has acknowledged.
    acknowledged: BTreeSet<String>,
    /// Pods whose status was written, and when.
    settled: BTreeMap<String, Instant>,
    has_news: bool,
}

/// What was seen of all nodes.
#[derive(Clone, Debug, Default)]
pub struct PullingLog {
    pub nodes: BTreeMap<String, PullingNode>,
    /// How many pods of Transom's existed at a time, at most, by policy.
    pub most_pullers: BTreeMap<String, usize>,
    /// Pods of others that were bound to a node with the startup taint and do not tolerate it.
    pub bound_early: BTreeSet<String>,
}

/// The kubelets of all nodes; they stop when this is dropped.
pub struct PullingKubelets {
    log: Arc<Mutex<PullingLog>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PullingKubelets {
    /// `sizes`: the images of the registry; others cannot be pulled. `baked`: what each node has from its start. `garbage`: an
    /// image that a kubelet removes when a pod of Transom's could not pull others.
    pub fn start(
        cluster: &ControlPlane,
        sizes: BTreeMap<&'static str, u64>,
        baked: BTreeMap<String, u64>,
        garbage: &'static str,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let config = runtime.block_on(cluster.config());
        let (stop, log) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, shared) = (Arc::clone(&stop), Arc::clone(&log));
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let client = Client::try_from(config).unwrap();
                while !stopped.load(Ordering::Relaxed) {
                    visit(&client, &shared, (&sizes, &baked, garbage)).await;
                    tokio::time::sleep(REST).await;
                }
            });
        });
        PullingKubelets {
            log,
            stop,
            thread: Some(thread),
        }
    }

    /// What was seen until now.
    pub fn log(&self) -> PullingLog {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for PullingKubelets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn is_gated(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == STARTUP)
}

fn is_puller(pod: &Pod) -> bool {
    pod.labels()
        .get("app.kubernetes.io/component")
        .is_some_and(|component| component == "image-puller")
}

fn tolerates_all(pod: &Pod) -> bool {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations
        .into_iter()
        .any(|it| it.key.is_none() && it.operator.as_deref() == Some("Exists"))
}

async fn visit(
    client: &Client,
    log: &Mutex<PullingLog>,
    (sizes, baked, garbage): (&BTreeMap<&'static str, u64>, &BTreeMap<String, u64>, &str),
) {
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::all(client.clone()));
    // Pods first: a pod that is bound now may be bound because its node has just been released.
    let Ok(pods) = pods.list(&ListParams::default()).await else {
        return;
    };
    let Ok(all) = nodes.list(&ListParams::default()).await else {
        return;
    };
    let mut seen = log.lock().unwrap().clone();
    let mut pullers: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_puller(pod)) {
        let policy = pod.annotations()["transom.dev/node-policy"].clone();
        *pullers.entry(policy).or_default() += 1;
    }
    for (policy, now) in pullers {
        let most = seen.most_pullers.entry(policy).or_default();
        *most = now.max(*most);
    }
    for node in &all {
        let uid = node.uid().unwrap_or_default();
        if seen
            .nodes
            .get(&node.name_any())
            .is_some_and(|state| state.uid != uid)
        {
            seen.nodes.remove(&node.name_any());
        }
        let state = seen.nodes.entry(node.name_any()).or_insert_with(|| PullingNode {
            uid,
            images: baked.clone(),
            joined: Some(Instant::now()),
            has_news: true,
            ..PullingNode::default()
        });
        let bound = pods.iter().filter(|pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == node.metadata.name.as_deref()
        });
        let mut bound: Vec<&Pod> = bound.collect();
        bound.sort_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
        if is_gated(node) {
            let early = bound.iter().filter(|pod| !tolerates_all(pod));
            seen.bound_early.extend(early.map(|pod| pod.name_any()));
        } else if state.released.is_none() {
            let after = state.joined.map(|at| at.elapsed()).unwrap_or_default();
            state.released = Some((state.images.keys().cloned().collect(), after));
            state.pulled_before.clone_from(&state.pulled);
        }
        let of_transom = bound.iter().filter(|pod| is_puller(pod));
        state.pullers.extend(of_transom.filter_map(|pod| pod.uid()));
        if node.labels().contains_key(SILENT) {
            continue;
        }
        state.pull(&bound, sizes);
        if std::mem::take(&mut state.has_news) {
            let status = json!({"status": {"images": state.reported()}});
            let (patch, params) = (Patch::Strategic(&status), PatchParams::default());
            let written = nodes.patch_status(&node.name_any(), &params, &patch).await;
            state.has_news = written.is_err();
        }
        for pod in bound {
            state.report(client, pod, garbage).await;
        }
    }
    *log.lock().unwrap() = seen;
}

/// The containers and their images, without init containers.
fn images(pod: &Pod) -> Vec<(String, String)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .map(|container| {
            (
                container.name.clone(),
                container.image.clone().unwrap_or_default(),
            )
        })
        .collect()
}

/// The images in the order in which they are pulled.
fn pulled_images(pod: &Pod) -> impl Iterator<Item = String> {
    let init = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let init = init.filter_map(|container| container.image.clone());
    init.chain(images(pod).into_iter().map(|(_, image)| image))
}

impl PullingNode {
    /// Finishes and starts a pull.
    fn pull(&mut self, pods: &[&Pod], sizes: &BTreeMap<&'static str, u64>) {
        if let Some((image, until, pod)) = self.pulling.clone() {
            if Instant::now() < until {
                return;
            }
            self.pulling = None;
            match sizes.get(&*image) {
                Some(size) => {
                    self.images.insert(image.clone(), *size);
                    self.pulled.push(image);
                    self.has_news = true;
                }
                None => _ = self.failed.insert((pod, image)),
            }
        }
        for pod in pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        {
            let uid = pod.uid().unwrap_or_default();
            if (self.settled.get(&uid)).is_some_and(|at| at.elapsed() < RESYNC) {
                continue;
            }
            for image in pulled_images(pod) {
                if self.images.contains_key(&image) || self.failed.contains(&(uid.clone(), image.clone())) {
                    continue;
                }
                let millis = sizes.get(&*image).map_or(300, |size| size * 1000 / BANDWIDTH);
                let until = Instant::now() + Duration::from_millis(millis);
                self.pulling = Some((image, until, uid));
                return;
            }
        }
    }

    /// The largest images.
    fn reported(&self) -> Vec<Value> {
        let mut all: Vec<(&String, &u64)> = self.images.iter().collect();
        all.sort_by_key(|(_, size)| std::cmp::Reverse(**size));
        let reported = all.into_iter().take(REPORTED);
        reported
            .map(|(name, size)| json!({"names": [name], "sizeBytes": size}))
            .collect()
    }

    /// Writes the status of a pod when each of its images was tried, and removes a deleted one.
    async fn report(&mut self, client: &Client, pod: &Pod, garbage: &str) {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        if pod.metadata.deletion_timestamp.is_some() {
            let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
            return;
        }
        let params = PatchParams::default();
        if is_puller(pod) && !self.acknowledged.contains(&uid) {
            let now = k8s_openapi::jiff::Timestamp::now();
            let started = Patch::Merge(json!({"status": {"startTime": format!("{now:.0}")}}));
            if api.patch_status(&name, &params, &started).await.is_ok() {
                self.acknowledged.insert(uid.clone());
            }
        }
        let all = images(pod);
        let is_tried = |image: &String| {
            self.images.contains_key(image) || self.failed.contains(&(uid.clone(), image.clone()))
        };
        if self.settled.contains_key(&uid) || !pulled_images(pod).all(|image| is_tried(&image)) {
            return;
        }
        let waiting =
            |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
        let is_complete = pulled_images(pod).all(|image| self.images.contains_key(&image));
        let statuses = all.iter().map(|(container, image)| {
            let state = if !self.images.contains_key(image) {
                waiting("ErrImagePull", "not found")
            } else if is_puller(pod) {
                waiting("CreateContainerConfigError", "will break non-root policy")
            } else {
                json!({"running": {}})
            };
            json!({"name": container, "image": image, "imageID": "", "ready": false, "restartCount": 0, "state": state})
        });
        let statuses: Vec<Value> = statuses.collect();
        let runs = is_complete && !is_puller(pod);
        let phase = if runs { "Running" } else { "Pending" };
        let now = k8s_openapi::jiff::Timestamp::now();
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": format!("{now:.0}")});
        let conditions: Vec<Value> = if runs {
            ["Initialized", "ContainersReady", "Ready"]
                .map(condition)
                .to_vec()
        } else {
            Vec::new()
        };
        let status =
            json!({"status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses}});
        let patch = Patch::Merge(&status);
        if api.patch_status(&name, &params, &patch).await.is_ok() {
            self.settled.insert(uid, Instant::now());
            if is_puller(pod) && !is_complete {
                self.has_news |= self.images.remove(garbage).is_some();
            }
        }
    }
}
