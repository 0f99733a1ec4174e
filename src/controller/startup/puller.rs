//! The pod that pulls images on one node. No container of it is ever created: `runAsNonRoot` and the user
//! `ContainerAdministrator` exclude each other, which the kubelet finds out after the pull. Source: `verifyRunAsNonRoot` in
//! `pkg/kubelet/kuberuntime/security_context_windows.go`. As a second barrier, its command exists in no image.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, Pod, PodOS, PodSpec, ResourceRequirements, SecurityContext, Toleration,
    WindowsSecurityContextOptions,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::gate::NewPuller;
use super::pulls::{IMAGES_ANNOTATION, NODE_ANNOTATION, POLICY_ANNOTATION, PULLER_LABELS};
use crate::cluster::node::NodeView;
use crate::model::nodes::node::OS_LABEL;
use crate::model::syntax::text::digest_hex;

/// The command, which does not exist.
const COMMAND: &str = "transom-puller-never-runs";
/// How many hexadecimal digits of the SHA-256 of node and images its name has.
const DIGITS: usize = 20;

/// The pod, with an account that has no rights.
pub fn puller_pod(new: &NewPuller<'_>, namespace: &str, account: &str, now: Timestamp) -> Pod {
    let left = new.deadline.duration_since(now).as_secs().max(1);
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let secrets = new
        .startup
        .pull_secrets
        .iter()
        .map(|secret| LocalObjectReference {
            name: secret.name.clone(),
        });
    // A list of strings always has a JSON form.
    let images = serde_json::to_string(new.images).unwrap_or_default();
    let annotations = [
        (NODE_ANNOTATION, &*new.node.name),
        (POLICY_ANNOTATION, new.policy),
        (IMAGES_ANNOTATION, &*images),
    ];
    Pod {
        metadata: ObjectMeta {
            name: Some(name(new.node, new.images)),
            namespace: Some(namespace.to_owned()),
            labels: Some(PULLER_LABELS.into_iter().map(text).collect()),
            annotations: Some(annotations.into_iter().map(text).collect()),
            owner_references: Some(vec![owner(new.node)]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(new.node.name.clone()),
            node_selector: Some([text((OS_LABEL, "windows"))].into()),
            os: Some(PodOS {
                name: "windows".to_owned(),
            }),
            tolerations: Some(vec![Toleration {
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }]),
            restart_policy: Some("Never".to_owned()),
            service_account_name: Some(account.to_owned()),
            automount_service_account_token: Some(false),
            image_pull_secrets: Some(secrets.collect()).filter(|all: &Vec<_>| !all.is_empty()),
            termination_grace_period_seconds: Some(0),
            active_deadline_seconds: Some(left),
            containers: new.images.iter().enumerate().map(container).collect(),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// The same node and images have the same name.
fn name(node: &NodeView, images: &[String]) -> String {
    let identity = format!("{}\n{}", node.uid, images.join("\n"));
    format!("transom-pull-{}", digest_hex(identity.as_bytes(), DIGITS))
}

/// The garbage collector deletes the pod with its node.
fn owner(node: &NodeView) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name.clone(),
        uid: node.uid.clone(),
        ..OwnerReference::default()
    }
}

fn container((index, image): (usize, &String)) -> Container {
    let amounts: BTreeMap<String, Quantity> = [("cpu", "1m"), ("memory", "1Mi")]
        .map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned())))
        .into();
    Container {
        name: format!("image-{index}"),
        image: Some(image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec![COMMAND.to_owned()]),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            windows_options: Some(WindowsSecurityContextOptions {
                run_as_user_name: Some("ContainerAdministrator".to_owned()),
                ..WindowsSecurityContextOptions::default()
            }),
            ..SecurityContext::default()
        }),
        resources: Some(ResourceRequirements {
            requests: Some(amounts.clone()),
            limits: Some(amounts),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    }
}
