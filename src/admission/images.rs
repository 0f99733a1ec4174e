//! The images whose facts the review of a request can use.

use std::time::Duration;

use super::audit_record::Phase;
use super::request::{Request, RequestObject, changes_nothing};
use super::review::{AdmissionContext, does_nothing, parse, policy_for};
use crate::model::pod::PodSpec;
use crate::model::policy::ImageEvidence;

/// The images of a pod, or of the pods of a workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodImages {
    /// The namespace.
    pub namespace: String,
    /// The references of its containers, as written.
    pub references: Vec<String>,
    /// The names of its imagePullSecrets.
    pub pull_secrets: Vec<String>,
}

impl PodImages {
    /// Reads a pod.
    pub fn of(pod: &PodSpec<'_>, namespace: &str) -> Self {
        let secrets = pod.image_pull_secrets.iter();
        PodImages {
            namespace: namespace.to_owned(),
            references: references(pod),
            pull_secrets: secrets.map(|secret| secret.name.to_string()).collect(),
        }
    }
}

/// The images whose facts the review of a request can use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReviewImages {
    /// Those of the object.
    pub pod: PodImages,
    /// The references of the previous version of the object.
    pub previous: Vec<String>,
    /// How long the review may wait for facts.
    pub wait: Duration,
}

/// The images whose facts the review of a request can use. `None` if its policy does not use registries, or the object
/// is not evaluated.
pub fn images_of(
    phase: Phase,
    request: &Request<'_>,
    context: &AdmissionContext<'_>,
) -> Option<ReviewImages> {
    if !request.is_reviewed() {
        return None;
    }
    let policy = policy_for(request, context);
    if policy.image_evidence != ImageEvidence::Registry || does_nothing(&policy) {
        return None;
    }
    let kind = (request.known_kind()).or_else(|| request.configured_kind(&policy.pod_templates))?;
    let parsed;
    let object = match request.object.as_ref()? {
        RequestObject::Read(object) => object,
        RequestObject::Raw(object) => {
            if &*request.operation == "UPDATE" && changes_nothing(object, request.old_object) {
                return None;
            }
            parsed = parse(phase, kind, request, RequestObject::Raw(object)).ok()?;
            &parsed
        }
    };
    let old = request.old_object.filter(|_| &*request.operation == "UPDATE");
    let old = old.and_then(|old| parse(phase, kind, request, RequestObject::Raw(old)).ok());
    let previous = old.as_ref().and_then(|old| old.pod());
    Some(ReviewImages {
        pod: PodImages::of(object.pod()?, &request.namespace),
        previous: previous.map_or_else(Vec::new, references),
        wait: policy.image_wait,
    })
}

fn references(pod: &PodSpec<'_>) -> Vec<String> {
    pod.images().map(str::to_owned).collect()
}
