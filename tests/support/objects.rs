//! Valid objects of every kind that carries a pod, and their API paths.

use serde_json::{Value, json};
use transom::model::workload::Kind;

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
