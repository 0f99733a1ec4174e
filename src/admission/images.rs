//! The images whose facts the review of a request can use.

use std::time::Duration;

use super::audit_record::Phase;
use super::request::{Request, RequestObject, changes_nothing};
use super::review::{AdmissionContext, does_nothing, parse, policy_for};
use crate::model::object::Object;
use crate::model::policy::ImageEvidence;

/// The images whose facts the review of a request can use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReviewImages {
    /// The namespace of the object.
    pub namespace: String,
    /// The references of its containers, as written.
    pub references: Vec<String>,
    /// Those of the previous version of the object.
    pub previous: Vec<String>,
    /// The names of its imagePullSecrets.
    pub pull_secrets: Vec<String>,
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
    let pod = object.pod()?;
    let secrets = pod.image_pull_secrets.iter();
    Some(ReviewImages {
        namespace: request.namespace.to_string(),
        references: references(object),
        previous: old.as_deref().map_or_else(Vec::new, references),
        pull_secrets: secrets.map(|secret| secret.name.to_string()).collect(),
        wait: policy.image_wait,
    })
}

fn references(object: &Object<'_>) -> Vec<String> {
    let pod = object.pod();
    pod.map_or_else(Vec::new, |pod| pod.images().map(str::to_owned).collect())
}
