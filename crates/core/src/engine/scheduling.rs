//! What keeps the pods of an object off a node: as written, or as they are scheduled, after placement has run on a
//! cluster. The guard, the planner, scan and preflight ask here; placement reads the same constraints directly.

use super::placement::{ForbiddenFields, Placement};
use super::pod_patch::PodPatch;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{PlacementMode, Policy};
use crate::model::nodes::node::Taint;
use crate::model::objects::object::Object;
use crate::model::objects::pod::PodSpec;
use crate::model::windows::os::{Inference, Verdict};
pub use crate::rules::scheduling::Constraints;
use crate::rules::{Cx, Image, PodCx};

/// The images of the pod's containers, if rules will read them: those of a pod that may be for Windows.
pub(super) fn images<'s>(
    subject: &'s Object<'s>,
    verdict: Verdict,
    facts: &'s Facts,
) -> Vec<Option<Image<'s>>> {
    match subject.pod() {
        Some(pod) if matches!(verdict, Verdict::Windows | Verdict::Conflicting) => Image::of_pod(pod, facts),
        _ => Vec::new(),
    }
}

/// What happens to the pods of an object before they are scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionStage {
    /// Nothing: this is how the controller of a DaemonSet reads its template.
    AsWritten,
    /// Only their RuntimeClass and the default node selector of their namespace are merged in.
    Merged,
    /// Placement runs too, if the policy applies it.
    Placed,
}

impl AdmissionStage {
    /// What happens to the pods that are created from a template. `places`: whether placement runs in its namespace.
    pub fn of_template(subject: &Object<'_>, places: bool) -> Self {
        match places {
            _ if subject.kind.is_daemon_set() => AdmissionStage::AsWritten,
            true => AdmissionStage::Placed,
            false => AdmissionStage::Merged,
        }
    }
}

/// The constraints of the pods of an object; `None` if it has no pod.
pub fn constraints<'c>(
    subject: &'c Object<'c>,
    facts: &'c Facts,
    admission: AdmissionStage,
) -> Option<Constraints<'c>> {
    let pod: &PodSpec<'c> = subject.pod()?;
    if admission == AdmissionStage::AsWritten {
        return Some(Constraints::of_daemon_set(pod));
    }
    let class = (pod.runtime_class_name.as_deref()).and_then(|name| facts.runtime_classes.get(name));
    Some(Constraints::new(pod, class).with_selector(facts.node_selector_for(subject)))
}

/// The pods of an object before they are scheduled.
#[derive(Clone, Copy)]
pub struct PodsToSchedule<'s> {
    pub subject: &'s Object<'s>,
    /// What their operating system is.
    pub inference: &'s Inference,
    /// The policy that applies.
    pub policy: &'s Policy,
    /// What happens to them before.
    pub admission: AdmissionStage,
}

impl PodsToSchedule<'_> {
    /// Visits the pods as the scheduler sees them: with `Placed`, placement runs on the cluster of `facts`. `None` if the
    /// object has no pod.
    pub fn visit<T>(&self, facts: &Facts, visit: impl FnOnce(&PodCx<'_>) -> T) -> Option<T> {
        let PodsToSchedule {
            subject,
            inference,
            policy,
            admission,
        } = *self;
        let template = subject.template()?;
        let images = images(subject, inference.verdict, facts);
        let as_written = Cx::new(subject, inference, facts, policy, &images);
        let is_placed = admission == AdmissionStage::Placed
            && policy.placement == PlacementMode::Apply
            && inference.verdict == Verdict::Windows;
        if !is_placed {
            return as_written.pod().map(|cx| visit(&cx));
        }
        let placement = Placement {
            as_written,
            os_is_added: false,
            forbidden: ForbiddenFields::Unknown,
        };
        let mut patch = PodPatch::new(template, subject.spec_path());
        placement.constraints(&mut patch);
        Some(placement.with(&patch, visit))
    }

    /// The taints that would keep the pods off a node, or evict them, once the node has the taints. With `Placed`,
    /// placement runs on the cluster of `facts` first.
    pub fn untolerated<'t>(&self, taints: &'t [Taint], facts: &Facts) -> Vec<&'t Taint> {
        if self.admission == AdmissionStage::Placed {
            let untolerated = |cx: &PodCx<'_>| cx.reach().constraints().untolerated(taints).collect();
            return self.visit(facts, untolerated).unwrap_or_default();
        }
        let constraints = constraints(self.subject, facts, self.admission);
        constraints.map_or_else(Vec::new, |constraints| constraints.untolerated(taints).collect())
    }
}
