//! Evaluates one stored object. Pure: it has no state and does no IO.

use std::borrow::Cow;
use std::hash::RandomState;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use crate::engine::infer_os;
use crate::model::json_types::{IsPresent, Str};
use crate::model::object::{Object, ReviewStage};
use crate::model::os::Verdict;
use crate::model::text::cut;
use crate::model::workload::Kind;
use crate::scan::{DedupKey, EvalContext, Evaluated, OwnerResult, dedup_key, evaluate_object};

/// The longest reason why an object cannot be read, in bytes.
const LONGEST_WHY: usize = 200;
/// How long a pod waits for a node before it is checked.
const WAITS_LONG: Duration = Duration::from_secs(120);

/// The metadata by which a stored object is known, read without its spec.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ObjectHead<'h> {
    /// Its metadata.
    #[serde(borrow)]
    pub metadata: ObjectHeadMeta<'h>,
}

/// The part of the metadata that identifies the object.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ObjectHeadMeta<'h> {
    /// Its uid.
    #[serde(borrow)]
    pub uid: Str<'h>,
    /// Its namespace.
    #[serde(borrow)]
    pub namespace: Str<'h>,
    /// Its name.
    #[serde(borrow)]
    pub name: Str<'h>,
}

impl<'h> ObjectHeadMeta<'h> {
    /// The metadata of an object; empty if it does not parse.
    pub fn of(json: &'h str) -> Self {
        let head: ObjectHead<'h> = serde_json::from_str(json).unwrap_or_default();
        head.metadata
    }
}

/// A pod that waits for a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When to check it next; monotonic time.
    pub due: Instant,
}

/// What the evaluation of one object found.
#[derive(Debug)]
pub enum Evaluation {
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
    /// Evaluates an object. The second value is for a pod that waits for a node.
    pub fn evaluate(
        &self,
        context: &EvalContext<'_>,
        kind: Kind,
        json: &str,
    ) -> (Evaluation, Option<PendingPod>) {
        let unreadable = |why: String| match cut(&why, LONGEST_WHY) {
            Cow::Borrowed(_) => Evaluation::Unreadable(why),
            Cow::Owned(cut) => Evaluation::Unreadable(cut),
        };
        let object = match Object::parse(kind, json, ReviewStage::Stored) {
            Ok(object) => object,
            Err(error) => return (unreadable(error.to_string()), None),
        };
        let pending = pending(context, &object, json);
        let evaluation = match evaluate_object(context, &object, json) {
            Ok(Evaluated::Judged(owner)) => Evaluation::Owner(owner, dedup_key(&object, json, &self.hashes)),
            Ok(Evaluated::Owned(..)) => Evaluation::Owned,
            Ok(Evaluated::Passed(_)) => Evaluation::Skipped,
            Err(error) => unreadable(error.to_string()),
        };
        (evaluation, pending)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodSummary<'b> {
    #[serde(borrow)]
    metadata: PodSummaryMeta<'b>,
    #[serde(borrow)]
    spec: PodSummarySpec<'b>,
    #[serde(borrow)]
    status: PodSummaryStatus<'b>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodSummaryMeta<'b> {
    #[serde(borrow)]
    namespace: Str<'b>,
    #[serde(borrow)]
    name: Str<'b>,
    deletion_timestamp: IsPresent,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodSummarySpec<'b> {
    #[serde(borrow)]
    node_name: Str<'b>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodSummaryStatus<'b> {
    #[serde(borrow)]
    phase: Str<'b>,
}

/// A pod that waits for a node, if it is for Windows or its evidence conflicts.
fn pending(context: &EvalContext<'_>, object: &Object<'_>, json: &str) -> Option<PendingPod> {
    if object.kind != Kind::Pod {
        return None;
    }
    let PodSummary {
        metadata,
        spec,
        status,
    } = serde_json::from_str(json).unwrap_or_default();
    if status.phase.as_str() != "Pending" || !spec.node_name.is_empty() || metadata.deletion_timestamp.0 {
        return None;
    }
    let policy = context.policy_in(&object.namespace);
    let verdict = infer_os(object, context.facts, &policy).verdict;
    matches!(verdict, Verdict::Windows | Verdict::Conflicting).then(|| PendingPod {
        namespace: metadata.namespace.to_string(),
        name: metadata.name.to_string(),
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
    use crate::model::policy::Policy;

    fn evaluate(kind: Kind, object: &Value) -> (Evaluation, Option<PendingPod>) {
        let policies = PolicySet::new(Vec::new(), Policy::cluster_default());
        let snapshot = Snapshot::of_files(Facts::new(Facts::KUBERNETES, date(2026, 6, 1)), policies);
        Evaluator::default().evaluate(&EvalContext::of(&snapshot), kind, &object.to_string())
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
    fn only_windows_pods_without_a_node_are_pending() {
        let is_pending = |pod: &Value| evaluate(Kind::Pod, pod).1.is_some();
        assert!(is_pending(&pod("windows", &[])));
        assert!(!is_pending(&pod("linux", &[])));
        for (field, value) in [
            ("/status/phase", json!("Running")),
            ("/spec/nodeName", json!("w1")),
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ] {
            assert!(!is_pending(&pod("windows", &[(field, value)])), "{field}");
        }
    }

    #[test]
    fn an_object_is_an_owner_or_owned_or_skipped_or_cannot_be_read() {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true}]);
        let owned = pod("windows", &[("/metadata/ownerReferences", owner)]);
        assert!(matches!(evaluate(Kind::Pod, &owned).0, Evaluation::Owned));
        let deleted = pod(
            "windows",
            &[("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))],
        );
        assert!(matches!(evaluate(Kind::Pod, &deleted).0, Evaluation::Skipped));
        let (Evaluation::Owner(owner, _), _) = evaluate(Kind::Pod, &pod("windows", &[])) else {
            panic!("a pod without an owner is evaluated");
        };
        assert_eq!((owner.namespace.as_str(), owner.name.as_str()), ("shop", "web-1"));
        let odd = pod("windows", &[("/spec/containers", json!("none"))]);
        let (Evaluation::Unreadable(why), None) = evaluate(Kind::Pod, &odd) else {
            panic!("containers must be a list");
        };
        assert!(why.contains("containers") && why.len() <= LONGEST_WHY, "{why}");
    }
}
