//! The images whose facts the review of a request can use.

use std::time::Duration;

use super::request::RequestObject;
use super::review::{Review, does_nothing, is_unchanged, read_object};
use crate::model::cluster::policy::ImageEvidence;
use crate::model::objects::object::Object;
use crate::model::objects::pod_images::PodImages;

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

impl Review<'_, '_> {
    /// The images whose facts the review can use. `None` if its policy does not use registries, or the object is not
    /// evaluated. The object that is parsed for this replaces its text in the request, so that the review does not parse it
    /// again.
    pub fn images(&mut self) -> Option<ReviewImages> {
        let Review { request, applied, .. } = self;
        let (kind, policy) = applied.as_ref()?;
        if policy.image_evidence != ImageEvidence::Registry || does_nothing(policy) {
            return None;
        }
        let unread = request.object.take()?;
        if is_unchanged(request, &unread) {
            request.object = Some(unread);
            return None;
        }
        let text = match &unread {
            RequestObject::Raw(text) => Some(*text),
            RequestObject::Read(_) => None,
        };
        let Ok(object) = read_object(*kind, unread) else {
            // The review reports why.
            request.object = text.map(RequestObject::Raw);
            return None;
        };
        let old = request.old_object.filter(|_| request.is_update());
        let old = old.and_then(|old| read_object(*kind, RequestObject::Raw(old)).ok());
        let images = |object: &Object<'_>| Some(PodImages::of(object.pod()?, &request.namespace));
        let (pod, previous) = (images(&object), old.and_then(|old| images(&old)));
        request.object = Some(RequestObject::Read(object));
        Some(ReviewImages {
            pod: pod?,
            previous: previous.map_or_else(Vec::new, |previous| previous.references),
            wait: policy.image_wait,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::admission::{AdmissionContext, decode};
    use crate::engine::policy_set::PolicySet;
    use crate::model::cluster::facts::Facts;
    use crate::model::cluster::policy::Policy;

    /// What remains of the object of an update, and the images that were read from it.
    fn update(new: &serde_json::Value, old: &serde_json::Value) -> (bool, Option<ReviewImages>) {
        let policy = Policy {
            image_evidence: ImageEvidence::Registry,
            ..Policy::cluster_default()
        };
        let facts = Facts::new(Facts::KUBERNETES, date(2026, 6, 1));
        let context = AdmissionContext {
            facts: &facts,
            policies: &PolicySet::new(Vec::new(), policy),
        };
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "shop",
            "operation": "UPDATE", "object": new, "oldObject": old, "userInfo": {},
        }});
        let body = review.to_string();
        let mut review = Review::new(decode(body.as_bytes()).unwrap(), &context);
        let images = review.images();
        (
            matches!(review.request.object, Some(RequestObject::Read(_))),
            images,
        )
    }

    #[test]
    fn the_object_that_is_parsed_for_its_images_is_not_parsed_again() {
        let pod = |image: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
                   "spec": {"containers": [{"name": "web", "image": image}]}})
        };
        let (is_parsed, images) = update(&pod("web:2"), &pod("web:1"));
        let images = images.unwrap();
        assert!(is_parsed);
        assert_eq!(
            (images.pod.references, images.previous),
            (vec!["web:2".to_owned()], vec!["web:1".to_owned()])
        );
        // The review still compares both texts, and reports why an object cannot be read.
        assert_eq!(update(&pod("web:1"), &pod("web:1")), (false, None));
        let broken = json!({"metadata": {"name": "web"}, "spec": 1});
        assert_eq!(update(&broken, &pod("web:1")), (false, None));
    }
}
