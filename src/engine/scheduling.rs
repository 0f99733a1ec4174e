//! What keeps the pods of an object off a node, as written or after admission. The guard, the planner, scan and
//! preflight use it; placement reads the same constraints directly.

use crate::model::facts::Facts;
use crate::model::node::Taint;
use crate::model::object::Object;
use crate::model::pod::PodSpec;
use crate::model::policy::{PlacementMode, Policy};
pub use crate::rules::scheduling::Constraints;
use crate::rules::scheduling::Givable;

/// What happens to the pods of an object before they are scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionStage {
    /// Nothing: this is how the controller of a DaemonSet reads its template.
    AsWritten,
    /// Only their RuntimeClass is merged in.
    Merged,
    /// Placement runs too, and may add the tolerations that the policy and the cluster's nodes define.
    Placed,
}

/// The constraints of the pods of an object; `None` if it has no pod.
pub fn constraints<'c>(
    subject: &'c Object<'c>,
    facts: &'c Facts,
    admission: AdmissionStage,
) -> Option<Constraints<'c>> {
    let pod: &PodSpec<'c> = subject.pod()?;
    let class = (pod.runtime_class_name.as_deref())
        .filter(|_| admission != AdmissionStage::AsWritten)
        .and_then(|name| facts.runtime_classes.get(name));
    Some(Constraints::new(pod, class))
}

/// The taints that would keep the Windows pods of an object off a node, or evict them, once the node has the taints.
/// With `Placed`, only the taints that placement may not tolerate remain.
pub fn untolerated<'t>(
    subject: &Object<'_>,
    taints: &'t [Taint],
    facts: &Facts,
    policy: &Policy,
    admission: AdmissionStage,
) -> Vec<&'t Taint> {
    let Some(constraints) = constraints(subject, facts, admission) else {
        return Vec::new();
    };
    let places = policy.placement == PlacementMode::Apply && policy.parts.tolerations;
    let givable = (admission == AdmissionStage::Placed && places)
        .then(|| Givable::of(&subject.namespace, facts, policy));
    (constraints.untolerated(taints))
        .filter(|taint| !givable.as_ref().is_some_and(|givable| givable.tolerates(taint)))
        .collect()
}
