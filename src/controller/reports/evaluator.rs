//! Evaluates one stored object with what is known of the cluster and of images. It keeps nothing and does no IO.

use std::borrow::Cow;
use std::hash::RandomState;
use std::time::Duration;

use tokio::time::Instant;

use super::invalidation::Invalidation;
use super::stored_images::StoredImages;
use crate::engine::infer_os;
use crate::model::cluster::facts::WindowsWorkload;
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::model::syntax::text::cut;
use crate::model::windows::os::Verdict;
use crate::scan::pods::may_have_trouble;
use crate::scan::{
    DedupKey, EvalContext, Evaluated, OwnerResult, OwnerTemplates, PodDifference, dedup_key,
    dedup_key_of_owned, evaluate_object, evaluate_owned_pod,
};

/// The longest reason why an object cannot be read, in bytes.
const LONGEST_WHY: usize = 200;
/// How long a pod waits for a node, terminates or is not ready before it is checked.
const WAITS_LONG: Duration = Duration::from_secs(120);

/// A pod that waits for a node, terminates, or is not ready on a Windows node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StuckPod {
    pub namespace: String,
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
    /// It is a top-level owner; with its pods, if they are for Windows.
    Owner(Box<OwnerResult>, DedupKey, Option<WindowsWorkload>),
}

/// Evaluates objects; the hashes of [`DedupKey`] are comparable within one evaluator.
#[derive(Debug, Default)]
pub struct Evaluator {
    hashes: RandomState,
    templates: OwnerTemplates,
    /// The pods that were evaluated before the template of their owner was known.
    rereads: Invalidation,
}

impl Evaluator {
    /// Evaluates an object. The second value is for a pod that may be stuck.
    pub fn evaluate(
        &mut self,
        context: &EvalContext<'_>,
        images: &mut StoredImages,
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
        let (evaluated, key) = if let Some(difference) = self.compare(context, &object) {
            let key = dedup_key_of_owned(&object, &self.hashes);
            (evaluate_owned_pod(context, &object, json, &difference), key)
        } else {
            let key = dedup_key(&object, &self.hashes);
            (evaluate_object(context, &object, json), key)
        };
        let evaluation = match evaluated {
            Ok(Evaluated::Owner(owner)) => {
                let is_windows = owner.verdict == Verdict::Windows;
                let workload = is_windows.then(|| WindowsWorkload::of(&object)).flatten();
                ObjectEvaluation::Owner(owner, key, workload)
            }
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

impl Evaluator {
    /// Records the template of an owner, or compares a pod with it: `Some` if the pod is evaluated instead of its owner.
    fn compare(&mut self, context: &EvalContext<'_>, object: &Object<'_>) -> Option<PodDifference> {
        if self.templates.record(context, object) {
            self.rereads = std::mem::take(&mut self.rereads).with(object.namespace.to_string());
        }
        self.templates.compare(context, object)
    }

    /// Takes which pods must be listed again, because the templates of their owners were not known before.
    pub fn take_rereads(&mut self) -> Invalidation {
        std::mem::take(&mut self.rereads)
    }

    /// Forgets the template of an owner that is gone.
    pub fn forget(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.templates.forget(kind, namespace, name);
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
    use crate::model::cluster::facts::Facts;
    use crate::model::cluster::policy::Policy;
    use crate::model::nodes::node::Host;

    fn evaluate(kind: Kind, object: &Value) -> (ObjectEvaluation, Option<StuckPod>) {
        let policies = PolicySet::new(Vec::new(), Policy::cluster_default());
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 6, 1));
        facts.add_host(Host {
            name: "w1".into(),
            ..Host::default()
        });
        let snapshot = Snapshot::of_files(facts, policies);
        let mut images = StoredImages::new(None, Instant::now());
        Evaluator::default().evaluate(
            &EvalContext::of(&snapshot),
            &mut images,
            kind,
            &object.to_string(),
        )
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
    fn a_pod_is_evaluated_instead_of_an_owner_whose_template_does_not_show_that_it_is_for_windows() {
        let owned_by = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "r", "controller": true}]);
        let mut pod = pod(
            "windows",
            &[("/metadata/ownerReferences", owned_by("ReplicaSet", "web-5d"))],
        );
        pod["metadata"]["labels"] = json!({"pod-template-hash": "5d"});
        let made = |owner: Value, spec: &Value| {
            json!({"metadata": {"name": "web-5d", "namespace": "shop", "uid": "r", "ownerReferences": owner},
                "spec": {"replicas": 1, "template": {"spec": spec}}})
        };
        let no_sign = json!({"containers": [{"name": "app", "image": "app"}]});
        let replica_set = made(owned_by("Deployment", "web"), &no_sign);
        let mut deployment = made(json!([]), &no_sign);
        deployment["metadata"]["name"] = json!("web");

        let policies = PolicySet::new(Vec::new(), Policy::cluster_default());
        let snapshot = Snapshot::of_files(Facts::new(Facts::KUBERNETES, date(2026, 6, 1)), policies);
        let mut images = StoredImages::new(None, Instant::now());
        let mut evaluator = Evaluator::default();
        let mut evaluate = |evaluator: &mut Evaluator, kind, object: &Value| {
            let context = EvalContext::of(&snapshot);
            evaluator
                .evaluate(&context, &mut images, kind, &object.to_string())
                .0
        };
        // A pod may be known before its owner.
        assert!(matches!(
            evaluate(&mut evaluator, Kind::Pod, &pod),
            ObjectEvaluation::Owned
        ));
        evaluate(&mut evaluator, Kind::ReplicaSet, &replica_set);
        assert_eq!(
            evaluator.take_rereads(),
            Invalidation::None.with("shop".to_owned())
        );
        assert!(matches!(
            evaluate(&mut evaluator, Kind::Pod, &pod),
            ObjectEvaluation::Owned
        ));
        evaluate(&mut evaluator, Kind::Deployment, &deployment);
        assert_eq!(
            evaluator.take_rereads(),
            Invalidation::None.with("shop".to_owned())
        );
        let ObjectEvaluation::Owner(result, key, _) = evaluate(&mut evaluator, Kind::Pod, &pod) else {
            panic!("the pod is evaluated");
        };
        assert!(matches!(key, DedupKey::Of(_)) && result.is_added_evidence);
        let owner = result.owner.unwrap();
        assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Deployment", "web"));
        assert_eq!(evaluator.take_rereads(), Invalidation::None);

        // An owner that shows it is evaluated itself.
        let shows = json!({"os": {"name": "windows"}, "containers": [{"name": "app", "image": "app"}]});
        evaluate(
            &mut evaluator,
            Kind::ReplicaSet,
            &made(owned_by("Deployment", "web"), &shows),
        );
        assert!(matches!(
            evaluate(&mut evaluator, Kind::Pod, &pod),
            ObjectEvaluation::Owned
        ));
        evaluator.forget(Kind::ReplicaSet, "shop", "web-5d");
        assert!(
            matches!(evaluate(&mut evaluator, Kind::Pod, &pod), ObjectEvaluation::Owned),
            "unknown"
        );
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
        let (ObjectEvaluation::Owner(owner, _, workload), _) = evaluate(Kind::Pod, &pod("windows", &[]))
        else {
            panic!("a pod without an owner is evaluated");
        };
        assert_eq!(workload.unwrap().name, "web-1");
        assert_eq!((owner.namespace.as_str(), owner.name.as_str()), ("shop", "web-1"));
        let odd = pod("windows", &[("/spec/containers", json!("none"))]);
        let (ObjectEvaluation::Unreadable(why), None) = evaluate(Kind::Pod, &odd) else {
            panic!("containers must be a list");
        };
        assert!(why.contains("containers") && why.len() <= LONGEST_WHY, "{why}");
    }
}
