//! Valid objects of every kind that carries a pod, and their API paths.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use transom::model::objects::workload::Kind;
use transom::model::windows::image_facts::{ImageFacts, ImageVariant, WindowsBase};

/// The image of a Windows pod.
pub const IMAGE: &str = "mcr.microsoft.com/windows/servercore:ltsc2022";

/// Every kind that carries a pod.
pub const KINDS: [Kind; 9] = [
    Kind::Pod,
    Kind::Deployment,
    Kind::ReplicaSet,
    Kind::StatefulSet,
    Kind::DaemonSet,
    Kind::Job,
    Kind::CronJob,
    Kind::ReplicationController,
    Kind::PodTemplate,
];

pub fn plural(kind: Kind) -> String {
    format!("{}s", kind.as_str().to_lowercase())
}

pub fn api_version(kind: Kind) -> String {
    match kind.group() {
        "" => "v1".to_owned(),
        group => format!("{group}/v1"),
    }
}

pub fn url_of(kind: Kind, namespace: &str) -> String {
    let root = if kind.group().is_empty() { "/api" } else { "/apis" };
    format!(
        "{root}/{}/namespaces/{namespace}/{}",
        api_version(kind),
        plural(kind)
    )
}

/// An object of a kind with this pod spec.
pub fn object(kind: Kind, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if matches!(kind, Kind::Job | Kind::CronJob) {
        spec["restartPolicy"] = "Never".into();
    }
    let labels = json!({"app": "a"});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let selector = json!({"matchLabels": labels});
    let mut object = match kind {
        Kind::Pod => json!({"spec": spec}),
        Kind::PodTemplate => json!({"template": template}),
        Kind::Job => json!({"spec": {"template": template}}),
        Kind::CronJob => {
            json!({"spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}})
        }
        Kind::ReplicationController => json!({"spec": {"selector": labels, "template": template}}),
        Kind::StatefulSet => {
            json!({"spec": {"serviceName": "a", "selector": selector, "template": template}})
        }
        _ => json!({"spec": {"selector": selector, "template": template}}),
    };
    object["apiVersion"] = api_version(kind).into();
    object["kind"] = kind.as_str().into();
    object["metadata"] = json!({"name": name});
    object
}

/// A workload with this pod spec, labelled with its name; a Pod, Job, CronJob or DaemonSet has no replicas.
pub fn workload(kind: &str, name: &str, spec: &Value, replicas: usize) -> Value {
    let mut spec = spec.clone();
    if matches!(kind, "Job" | "CronJob") {
        spec["restartPolicy"] = "Never".into();
    }
    let labels = json!({"app": name});
    let selector = json!({"matchLabels": labels});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let (version, spec) = match kind {
        "Pod" => ("v1", spec),
        "ReplicationController" => (
            "v1",
            json!({"replicas": replicas, "selector": labels, "template": template}),
        ),
        "Job" => ("batch/v1", json!({"template": template})),
        "CronJob" => (
            "batch/v1",
            json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}),
        ),
        "StatefulSet" => (
            "apps/v1",
            json!({"replicas": replicas, "podManagementPolicy": "Parallel", "serviceName": name, "selector": selector,
                "template": template}),
        ),
        "DaemonSet" => ("apps/v1", json!({"selector": selector, "template": template})),
        _ => (
            "apps/v1",
            json!({"replicas": replicas, "selector": selector, "template": template}),
        ),
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec})
}

/// A valid pod for Windows without what placement adds.
pub fn windows_pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "web", "image": IMAGE}],
    }})
}

/// The object in a namespace.
pub fn in_namespace(namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

/// A pod spec with one required expression of node affinity.
pub fn node_affinity(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": key, "operator": operator, "values": values}]},
    ]}}}})
}

/// The pod template of an object, or the pod: metadata and spec.
pub fn template_of(kind: Kind, object: &mut Value) -> Option<&mut Value> {
    let mut fields = kind.template()?.iter();
    fields.try_fold(object, |here, field| here.get_mut(*field))
}

/// The pod spec of an object.
pub fn spec_of(kind: Kind, object: &mut Value) -> Option<&mut Value> {
    let spec = template_of(kind, object)?.get_mut("spec");
    spec.filter(|spec| spec.is_object())
}

/// What the comments of manifests say that registries list: `# image app:1: linux/amd64, windows/amd64 10.0.20348.1
/// user=ContainerUser volume=D: base=2025-12-09`, or `# image app:1: none`.
pub fn registry_images(text: &str) -> HashMap<String, Arc<ImageFacts>> {
    let comments = text.lines().filter_map(|line| line.strip_prefix("# image "));
    // Other comments may begin with the same word.
    let images = comments.filter_map(|comment| {
        let (reference, listed) = comment.split_once(": ")?;
        Some((reference.to_owned(), Arc::new(image_facts(listed))))
    });
    images.collect()
}

/// Platforms, each with its version and what its configuration sets.
fn image_facts(listed: &str) -> ImageFacts {
    let looked_up = Timestamp::UNIX_EPOCH;
    if listed == "none" {
        return ImageFacts {
            looked_up,
            found: None,
        };
    }
    let variants = listed.split(", ").map(|text| {
        let mut words = text.split_whitespace();
        let (os, architecture) = words.next().unwrap().split_once('/').unwrap();
        let mut variant = ImageVariant::new(os, architecture, "");
        for word in words {
            match word.split_once('=') {
                None => variant.os_version = ImageVariant::new(os, architecture, word).os_version,
                Some(("user", user)) => {
                    user.clone_into(&mut variant.config.get_or_insert_default().user);
                }
                Some(("volume", path)) => {
                    variant
                        .config
                        .get_or_insert_default()
                        .volumes
                        .push(path.to_owned());
                }
                Some(("base", date)) => {
                    let version = variant.os_version.unwrap();
                    let base = WindowsBase {
                        version,
                        date: date.parse().unwrap(),
                    };
                    variant.config.get_or_insert_default().base = Some(base);
                }
                Some(_) => panic!("unknown property {word} of an image: {listed}"),
            }
        }
        variant
    });
    let mut facts = ImageFacts::of(variants.collect(), looked_up);
    "sha256:0123456789abcdef".clone_into(&mut facts.found.as_mut().unwrap().digest);
    facts
}
