//! The objects that pull images ahead of workloads: jobs of OpenKruise, a DaemonSet, or a plain list. The kubelet pulls the
//! images of DaemonSets itself, as soon as a node is there, so that only the others are in them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::model::syntax::dns::object_name;
use crate::plan::{ImagePull, PoolPulls};

/// The pull of a Windows image takes longer than the ten minutes that OpenKruise waits by default.
const TIMEOUT_SECONDS: u32 = 1800;
/// How many nodes pull an image at a time.
const PARALLELISM: u32 = 10;
/// An image for Windows and Linux whose program does nothing.
const PAUSE: &str = "registry.k8s.io/pause:3.10.1";
/// The maximum length of a name of an object: a DaemonSet's is a label of its pods.
const LONGEST: usize = 52;

/// One `ImagePullJob` per image and pool. They never end, so that nodes that are added later pull too.
pub fn pull_jobs(pools: &[PoolPulls]) -> Vec<Value> {
    let mut names = BTreeSet::new();
    let mut jobs = Vec::new();
    for pool in pools {
        for image in of_replicas(pool) {
            let repository = image.image.rsplit('/').next().unwrap_or_default();
            let name = free_name(&format!("pull-{}-{repository}", pool.pool), &mut names);
            jobs.push(json!({
                "apiVersion": "apps.kruise.io/v1beta1",
                "kind": "ImagePullJob",
                "metadata": {"name": name},
                "spec": {
                    "image": image.image,
                    "selector": {"matchLabels": pool.selector},
                    "parallelism": PARALLELISM,
                    "pullPolicy": {"timeoutSeconds": TIMEOUT_SECONDS, "backoffLimit": 3},
                    "completionPolicy": {"type": "Never"},
                }
            }));
        }
    }
    jobs
}

/// A DaemonSet per pool. Its init containers run one after another, and `cmd.exe /c exit 0` ends immediately, so that the
/// kubelet pulls the images in their order. Its pods stay and are Ready once their node has every image.
pub fn pull_daemon_sets(pools: &[PoolPulls]) -> Vec<Value> {
    let mut names = BTreeSet::new();
    let mut sets = Vec::new();
    for pool in pools {
        // HostProcess and Hyper-V containers have images that may not start with process isolation.
        let images: Vec<&ImagePull> = of_replicas(pool)
            .filter(|image| image.process_isolation)
            .collect();
        if images.is_empty() {
            continue;
        }
        let name = free_name(&format!("pull-{}", pool.pool), &mut names);
        let init: Vec<Value> = (images.iter().enumerate())
            .map(|(at, image)| init_container(at, image))
            .collect();
        sets.push(daemon_set(&name, pool, &init));
    }
    sets
}

/// Each image once, in order.
pub fn pull_list(pools: &[PoolPulls]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let images = pools.iter().flat_map(|pool| &pool.images);
    let images = images.map(|image| image.image.as_str());
    images.filter(|image| seen.insert(*image)).collect()
}

fn daemon_set(name: &str, pool: &PoolPulls, init: &[Value]) -> Value {
    let labels = json!({"app.kubernetes.io/name": name});
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "os": {"name": "windows"},
                    "nodeSelector": pool.selector,
                    "tolerations": [{"operator": "Exists"}],
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 0,
                    "securityContext": {"windowsOptions": {"runAsUserName": "ContainerUser"}},
                    "initContainers": init,
                    "containers": [{"name": "pause", "image": PAUSE, "resources": resources()}],
                }
            }
        }
    })
}

fn init_container(at: usize, image: &ImagePull) -> Value {
    json!({
        "name": format!("pull-{}", at + 1),
        "image": image.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["cmd.exe", "/c", "exit 0"],
        "resources": resources(),
    })
}

fn resources() -> Value {
    json!({"requests": {"cpu": "10m", "memory": "64Mi"}})
}

/// The images that a DaemonSet does not pull anyway.
fn of_replicas(pool: &PoolPulls) -> impl Iterator<Item = &ImagePull> {
    pool.images.iter().filter(|image| !image.daemon_set)
}

/// A text as the name of an object that no other one has.
fn free_name(text: &str, names: &mut BTreeSet<String>) -> String {
    let name: String = object_name(text).chars().take(LONGEST).collect();
    let name = name.trim_end_matches('-');
    let (mut free, mut number) = (name.to_owned(), 1);
    while !names.insert(free.clone()) {
        number += 1;
        free = format!("{name}-{number}");
    }
    free
}
