//! Evaluates one stored object with what is known of the cluster and of images. It keeps nothing and does no IO.

use std::borrow::Cow;
use std::hash::RandomState;
use std::time::Duration;

use tokio::time::Instant;

use super::stored_images::StoredImages;
use crate::engine::infer_os;
use crate::model::object::{Object, ReviewStage};
use crate::model::os::Verdict;
use crate::model::text::cut;
use crate::model::workload::Kind;
use crate::scan::pods::may_have_trouble;
use crate::scan::{DedupKey, EvalContext, Evaluated, OwnerResult, dedup_key, evaluate_object};

/// The longest reason why an object cannot be read, in bytes.
const LONGEST_WHY: usize = 200;
/// How long a pod waits for a node, terminates or is not ready before it is checked.
const WAITS_LONG: Duration = Duration::from_secs(120);

/// A pod that waits for a node, terminates, or is not ready on a Windows node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StuckPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When to check it next; monotonic time.
    pub due: Instant,
}

/// What the evaluation of one object found.
#[derive(Debug)]
pub enum ObjectEvaluation {
    /// The object cannot be read: why.
    Unreadable(String),
    /// Another object is evaluated for it. Most pods.
    Owned,
    /// It is not evaluated, for example because it is being deleted.
    Skipped,
    /// It is a top-level owner.
    Owner(Box<OwnerResult>, DedupKey),
}

/// Evaluates objects; the hashes of [`DedupKey`] are comparable within one evaluator.
#[derive(Debug, Default)]
pub struct Evaluator {
    hashes: RandomState,
}

impl Evaluator {
    /// Evaluates an object. The second value is for a pod that may be stuck.
    pub fn evaluate(
        &self,
        context: &EvalContext<'_>,
        images: &StoredImages,
        kind: Kind,
        json: &str,
    ) -> (ObjectEvaluation, Option<StuckPod>) {
        let unreadable = |why: String| match cut(&why, LONGEST_WHY) {
            Cow::Borrowed(_) => ObjectEvaluation::Unreadable(why),
            Cow::Owned(cut) => ObjectEvaluation::Unreadable(cut),
        };
        let object = match Object::parse(kind, json, ReviewStage::Stored) {
            Ok(object) => object,
            Err(error) => return (unreadable(error.to_string()), None),
        };
        let known = images.known(context, &object);
        let facts = known.as_ref().map(|known| known.added_to(context.facts));
        let context = &context.with_facts(facts.as_ref().unwrap_or(context.facts));
        let stuck = stuck(context, &object, json);
        let evaluation = match evaluate_object(context, &object, json) {
            Ok(Evaluated::Owner(owner)) => ObjectEvaluation::Owner(owner, dedup_key(&object, &self.hashes)),
            Ok(Evaluated::Owned(..)) => ObjectEvaluation::Owned,
            Ok(Evaluated::Passed(_)) => ObjectEvaluation::Skipped,
            Err(error) => unreadable(error.to_string()),
        };
        if let (ObjectEvaluation::Owner(..), Some(known)) = (&evaluation, known) {
            images.used(known);
        }
        (evaluation, stuck)
    }
}

/// A pod that may be stuck: one without a node if it is for Windows or its evidence conflicts, and any on a Windows
/// node that terminates or is not ready.
fn stuck(context: &EvalContext<'_>, object: &Object<'_>, json: &str) -> Option<StuckPod> {
    let spec = object.pod().filter(|_| object.kind == Kind::Pod)?;
    if !may_have_trouble(object, json) {
        return None;
    }
    let is_candidate = match spec.node_name.as_deref().filter(|node| !node.is_empty()) {
        Some(node) => context.facts.hosts().iter().any(|host| host.name == node),
        None if object.meta.deletion_timestamp.0 => false,
        None => {
            let policy = context.policy_in(&object.namespace);
            let verdict = infer_os(object, context.facts, &policy).verdict;
            matches!(verdict, Verdict::Windows | Verdict::Conflicting)
        }
    };
    is_candidate.then(|| StuckPod {
        namespace: object.namespace.to_string(),
        name: object.meta.name.to_string(),
        due: Instant::now() + WAITS_LONG,
    })
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::snapshot::Snapshot;
    use crate::engine::policy_set::PolicySet;
    use crate::model::facts::Facts;
    use crate::model::node::Host;
    use crate::model::policy::Policy;

    fn evaluate(kind: Kind, object: &Value) -> (ObjectEvaluation, Option<StuckPod>) {
        let policies = PolicySet::new(Vec::new(), Policy::cluster_default());
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 6, 1));
        facts.add_host(Host {
            name: "w1".into(),
            ..Host::default()
        });
        let snapshot = Snapshot::of_files(facts, policies);
        let images = StoredImages::new(None, Instant::now());
        Evaluator::default().evaluate(&EvalContext::of(&snapshot), &images, kind, &object.to_string())
    }

    fn pod(os: &str, more: &[(&str, Value)]) -> Value {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u"},
            "spec": {"os": {"name": os}, "containers": [{"name": "app", "image": "app"}]},
            "status": {"phase": "Pending"}});
        for (pointer, value) in more {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        pod
    }

    #[test]
    fn windows_pods_without_a_node_and_pods_that_are_not_ready_on_a_windows_node_may_be_stuck() {
        let is_stuck = |pod: &Value| evaluate(Kind::Pod, pod).1.is_some();
        assert!(is_stuck(&pod("windows", &[])));
        assert!(!is_stuck(&pod("linux", &[])));
        let deleted = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        assert!(!is_stuck(&pod("windows", std::slice::from_ref(&deleted))));
        assert!(!is_stuck(&pod(
            "windows",
            &[("/status/phase", json!("Succeeded"))]
        )));

        let on = |node: &str| ("/spec/nodeName", json!(node));
        assert!(!is_stuck(&pod("windows", &[on("other")])));
        assert!(is_stuck(&pod("windows", &[on("w1")])));
        assert!(is_stuck(&pod("linux", &[on("w1")])));
        assert!(is_stuck(&pod("windows", &[on("w1"), deleted])));
        let ready = ("/status/conditions", json!([{"type": "Ready", "status": "True"}]));
        assert!(!is_stuck(&pod("windows", &[on("w1"), ready.clone()])));
        let relabelled = ("/metadata/labels", json!({"kubernetes.io/os": "linux"}));
        assert!(is_stuck(&pod("windows", &[on("w1"), ready, relabelled])));
    }

    #[test]
    fn an_object_is_an_owner_or_owned_or_skipped_or_cannot_be_read() {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true}]);
        let owned = pod("windows", &[("/metadata/ownerReferences", owner)]);
        assert!(matches!(evaluate(Kind::Pod, &owned).0, ObjectEvaluation::Owned));
        let deleted = pod(
            "windows",
            &[("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))],
        );
        assert!(matches!(
            evaluate(Kind::Pod, &deleted).0,
            ObjectEvaluation::Skipped
        ));
        let (ObjectEvaluation::Owner(owner, _), _) = evaluate(Kind::Pod, &pod("windows", &[])) else {
            panic!("a pod without an owner is evaluated");
        };
        assert_eq!((owner.namespace.as_str(), owner.name.as_str()), ("shop", "web-1"));
        let odd = pod("windows", &[("/spec/containers", json!("none"))]);
        let (ObjectEvaluation::Unreadable(why), None) = evaluate(Kind::Pod, &odd) else {
            panic!("containers must be a list");
        };
        assert!(why.contains("containers") && why.len() <= LONGEST_WHY, "{why}");
    }
}
