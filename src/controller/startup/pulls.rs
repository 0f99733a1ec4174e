//! How far pods are with their images, as the API server has them. Pure.
//!
//! A kubelet pulls the image of a container, and then verifies `runAsNonRoot`: `CreateContainerConfigError` proves that the image
//! is there. Source: `startContainer` in `pkg/kubelet/kuberuntime/kuberuntime_container.go`. It reports the reasons of all
//! containers when it has tried each of them once.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStatus, Pod, PodStatus};

use crate::cluster::node::{MANAGED_BY, OWNED_LABEL};
use crate::model::windows::image::ImageRef;

/// The labels of the pods that pull.
pub const PULLER_LABELS: [(&str, &str); 4] = [
    ("app.kubernetes.io/name", "transom"),
    ("app.kubernetes.io/component", "image-puller"),
    MANAGED_BY,
    OWNED_LABEL,
];
/// A selector for them.
pub const PULLER_SELECTOR: &str = "app.kubernetes.io/component=image-puller,transom.dev/owned";
/// The annotation with the node.
pub const NODE_ANNOTATION: &str = "transom.dev/node";
/// The annotation with the policy.
pub const POLICY_ANNOTATION: &str = "transom.dev/node-policy";
/// The annotation with the images that were asked for, as a JSON list: a webhook may have changed those of the containers, for
/// example to a mirror.
pub const IMAGES_ANNOTATION: &str = "transom.dev/images";

/// How far an image is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PullProgress {
    /// It is being pulled, or waits for its turn.
    Pulling,
    /// It is on the node.
    Pulled,
    /// It cannot be pulled, and why.
    Failed(String),
}

/// A stored pod that pulls images.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PullerPod {
    pub name: String,
    pub uid: String,
    /// The uid of its node.
    pub node_uid: String,
    /// The policy that it was created for.
    pub policy: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether a kubelet has seen it.
    pub is_acknowledged: bool,
    /// Whether its kubelet has given it up.
    pub has_ended: bool,
    /// Why its kubelet did not accept it, for example because the node has too many pods.
    pub rejected: Option<String>,
    /// The Secrets that it pulls with.
    pub secrets: Vec<String>,
    /// Its images, as workloads write them.
    pub images: Vec<(String, PullProgress)>,
}

impl PullerPod {
    /// Reads a stored pod.
    pub fn of(pod: Pod) -> Self {
        let images = images_of(&pod);
        let (secrets, has_ended) = (pull_secrets(&pod), has_ended(&pod));
        let status = pod.status.as_ref();
        let is_acknowledged = status.is_some_and(|status| status.start_time.is_some());
        let rejected = status.filter(|_| has_ended).and_then(rejection);
        let meta = pod.metadata;
        let policy = meta.annotations.and_then(|mut all| all.remove(POLICY_ANNOTATION));
        let mut owners = meta.owner_references.into_iter().flatten();
        PullerPod {
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            node_uid: owners
                .find(|owner| owner.kind == "Node")
                .map(|owner| owner.uid)
                .unwrap_or_default(),
            policy: policy.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            is_acknowledged,
            has_ended,
            rejected,
            secrets,
            images,
        }
    }
}

/// Why a kubelet did not run a pod. The deadline of a pod that pulls is the timeout of its node.
fn rejection(status: &PodStatus) -> Option<String> {
    let reason = status
        .reason
        .as_deref()
        .filter(|reason| *reason != "DeadlineExceeded")?;
    let message = status.message.as_deref().unwrap_or_default();
    Some(format!(
        "the kubelet did not accept the pod that pulls it: {reason}: {message}"
    ))
}

/// Whether a pod of a node still pulls an image. Kubelets pull one image after the other, so other pulls would only delay it.
pub fn is_pulling(pod: &Pod, now: Timestamp) -> bool {
    let is_leaving = pod.metadata.deletion_timestamp.is_some() || has_ended(pod);
    !is_leaving
        && !hangs(pod, now)
        && (images_of(pod).iter()).any(|(_, progress)| *progress == PullProgress::Pulling)
}

/// How long a kubelet may need until the containers of a pod can start.
const SANDBOX: SignedDuration = SignedDuration::from_secs(30);

/// Whether a pod waits for something else than its images: for a volume or its network, which a kubelet waits for before it pulls,
/// or for an init container that runs.
fn hangs(pod: &Pod, now: Timestamp) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    let started = status.start_time.as_ref().map(|time| time.0);
    let is_overdue = started.is_some_and(|started| now.duration_since(started) > SANDBOX);
    let mut conditions = status.conditions.iter().flatten();
    let has_no_sandbox = conditions.any(|it| it.type_ == "PodReadyToStartContainers" && it.status == "False");
    let sidecars = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars: Vec<&str> = sidecars
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| &*container.name)
        .collect();
    let mut init = status.init_container_statuses.iter().flatten();
    let runs_init = init.any(|it| {
        let is_running = it.state.as_ref().is_some_and(|state| state.running.is_some());
        is_running && !sidecars.contains(&&*it.name)
    });
    (is_overdue && has_no_sandbox) || runs_init
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// What pods of others show about images, by reference in canonical form: which the kubelet has, and which it cannot pull. A pull
/// that may still end well outweighs a failed one, because pods have different Secrets. A kubelet pulls nothing after an init
/// container whose image fails.
pub fn shown_by(pods: &[Pod]) -> BTreeMap<String, PullProgress> {
    let rank = |progress: &PullProgress| match progress {
        PullProgress::Failed(_) => 0,
        PullProgress::Pulling => 1,
        PullProgress::Pulled => 2,
    };
    let mut shown: BTreeMap<String, PullProgress> = BTreeMap::new();
    for pod in pods {
        let is_leaving = pod.metadata.deletion_timestamp.is_some() || has_ended(pod);
        let init = init_images_of(pod);
        let stops_at = init.iter().find(|(_, progress)| rank(progress) == 0);
        let stops_at = stops_at.map(|(image, _)| format!("its pod stops at {image}, which cannot be pulled"));
        for (image, mut progress) in init.into_iter().chain(images_of(pod)) {
            if let (PullProgress::Pulling, Some(why)) = (&progress, &stops_at) {
                progress = PullProgress::Failed(why.clone());
            }
            if is_leaving && progress != PullProgress::Pulled {
                continue;
            }
            let known = shown.entry(canonical(&image)).or_insert_with(|| progress.clone());
            if rank(&progress) > rank(known) {
                *known = progress;
            }
        }
    }
    shown
}

/// The same text for references that mean the same.
pub fn canonical(image: &str) -> String {
    ImageRef::parse(image).map_or_else(|_| image.to_owned(), |image| image.canonical())
}

/// The images of the init containers of a pod.
fn init_images_of(pod: &Pod) -> Vec<(String, PullProgress)> {
    let statuses = pod.status.as_ref();
    let statuses = statuses.and_then(|status| status.init_container_statuses.as_deref());
    let containers = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref());
    progress_in(pod, containers.unwrap_or_default(), statuses.unwrap_or_default())
}

/// The images of the containers of a pod, as they were asked for, without those of init containers: they are pulled first.
fn images_of(pod: &Pod) -> Vec<(String, PullProgress)> {
    let statuses = pod.status.as_ref();
    let statuses = statuses.and_then(|status| status.container_statuses.as_deref());
    let asked = pod.metadata.annotations.as_ref();
    let asked = asked.and_then(|all| serde_json::from_str::<Vec<String>>(all.get(IMAGES_ANNOTATION)?).ok());
    let mut asked = asked.unwrap_or_default().into_iter();
    let containers = pod.spec.as_ref().map(|spec| &*spec.containers);
    let mut images = progress_in(pod, containers.unwrap_or_default(), statuses.unwrap_or_default());
    for (image, progress) in &mut images {
        let Some(asked) = asked.next().filter(|asked| asked != image) else {
            continue;
        };
        if let PullProgress::Failed(why) = progress {
            *why = format!("a webhook changed it to {image}: {why}");
        }
        *image = asked;
    }
    images
}

/// How far the images of these containers of a pod are.
fn progress_in(
    pod: &Pod,
    containers: &[Container],
    statuses: &[ContainerStatus],
) -> Vec<(String, PullProgress)> {
    let secrets = pull_secrets(pod);
    let secrets = match secrets[..] {
        [] => "without a pull Secret".to_owned(),
        _ => format!("with the pull Secrets {}", secrets.join(", ")),
    };
    let images = containers.iter().map(|container| {
        let status = statuses.iter().find(|status| status.name == container.name);
        let progress = status.map_or(PullProgress::Pulling, |status| progress_of(status, &secrets));
        (container.image.clone().unwrap_or_default(), progress)
    });
    images.collect()
}

/// The Secrets that a pod pulls with. A kubelet reports a missing Secret in an Event only, and pulls without it.
fn pull_secrets(pod: &Pod) -> Vec<String> {
    let secrets = pod
        .spec
        .iter()
        .flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    secrets.map(|secret| secret.name.clone()).collect()
}

/// `secrets`: what the pod pulls with.
fn progress_of(status: &ContainerStatus, secrets: &str) -> PullProgress {
    match &status.state {
        Some(ContainerState {
            waiting: Some(waiting),
            ..
        }) => {
            let message = || waiting.message.clone().unwrap_or_default();
            match waiting.reason.as_deref().unwrap_or_default() {
                "" | "ContainerCreating" | "PodInitializing" => PullProgress::Pulling,
                reason @ ("ErrImagePull"
                | "ImagePullBackOff"
                | "InvalidImageName"
                | "ImageInspectError"
                | "ErrImageNeverPull"
                | "RegistryUnavailable"
                | "SignatureValidationFailed") => {
                    PullProgress::Failed(format!("{reason} {secrets}: {}", message()))
                }
                // All others come after the pull.
                _ => PullProgress::Pulled,
            }
        }
        Some(ContainerState { running: Some(_), .. }) => PullProgress::Pulled,
        // A kubelet also writes this for containers that it never pulled for.
        Some(ContainerState {
            terminated: Some(_), ..
        }) if !status.image_id.is_empty() => PullProgress::Pulled,
        _ => PullProgress::Pulling,
    }
}
