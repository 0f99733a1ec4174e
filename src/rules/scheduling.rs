//! What keeps a pod off a node: its nodeSelector, its RuntimeClass, its required node affinity, the node's taints. This
//! module does not compare resources, topology spread, volumes and pod affinity.

use crate::model::facts::{Facts, RuntimeClassFacts};
use crate::model::node::Taint;
use crate::model::node_affinity::{self, KnownNodeLabels, Match};
use crate::model::pod::{PodSpec, Toleration};
use crate::model::policy::Policy;

/// What a pod requires of its node and tolerates there, including what its RuntimeClass adds.
#[derive(Clone, Copy)]
pub struct Constraints<'c> {
    spec: &'c PodSpec<'c>,
    class: Option<&'c RuntimeClassFacts>,
}

impl<'c> Constraints<'c> {
    /// The constraints of a pod. `class`: the RuntimeClass that the API server merges into it; `None` for the template
    /// of a DaemonSet, whose controller does not use the class.
    pub fn new(spec: &'c PodSpec<'c>, class: Option<&'c RuntimeClassFacts>) -> Self {
        Constraints { spec, class }
    }

    /// Whether the pod requires anything of its node.
    pub fn is_empty(&self) -> bool {
        let class_selects = self.class.is_some_and(|class| !class.node_selector.is_empty());
        self.spec.node_selector.is_empty() && !class_selects && self.spec.required_node_affinity().is_none()
    }

    /// Whether any requirement uses a label in this list, or a field of nodes.
    pub fn name_any(&self, labels: &[&str]) -> bool {
        let named = |key: &str| labels.contains(&key);
        let of_class = || self.class.iter().flat_map(|class| class.node_selector.keys());
        let terms = self.spec.required_terms();
        (self.spec.node_selector.iter()).any(|(key, _)| named(key))
            || of_class().any(|key| named(key))
            || terms.iter().any(|term| {
                !term.match_fields.is_empty()
                    || term
                        .match_expressions
                        .iter()
                        .any(|requirement| named(&requirement.key))
            })
    }

    /// Whether a node satisfies the nodeSelector, the RuntimeClass and the required node affinity.
    pub fn matches(&self, node: &impl KnownNodeLabels) -> Match {
        let own = node_affinity::matches(self.spec, node);
        let of_class = self.class.iter().flat_map(|class| &class.node_selector);
        of_class.fold(own, |least, (key, value)| {
            least.min(node_affinity::matches_label(key, value, node))
        })
    }

    /// Whether the pod tolerates a taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let of_class = self.class.iter().flat_map(|class| &class.tolerations);
        (self.spec.tolerations.iter().chain(of_class)).any(|t| taint.is_tolerated_by(t))
    }

    /// The taints that keep the pod off a node, or evict it.
    pub fn untolerated<'t>(&self, taints: &'t [Taint]) -> impl Iterator<Item = &'t Taint> + use<'t, 'c> {
        let constraints = *self;
        (taints.iter()).filter(move |taint| taint.keeps_off() && !constraints.tolerates(taint))
    }

    /// Those of them that are permanent.
    pub fn untolerated_lasting<'t>(
        &self,
        taints: &'t [Taint],
    ) -> impl Iterator<Item = &'t Taint> + use<'t, 'c> {
        self.untolerated(taints).filter(|taint| taint.lasts())
    }
}

/// Which tolerations placement may add to the Windows pods of a namespace.
pub struct Givable<'p> {
    policy: &'p Policy,
    /// The tolerations that PodTolerationRestriction allows in the namespace; `None` if it does not restrict them.
    allowed: Option<Vec<Toleration<'p>>>,
}

impl<'p> Givable<'p> {
    /// The tolerations for a namespace.
    pub fn of(namespace: &str, facts: &'p Facts, policy: &'p Policy) -> Self {
        let namespace = facts.namespaces.get(namespace);
        let whitelist = namespace.and_then(|namespace| namespace.tolerations_whitelist.as_ref());
        let allowed = whitelist.and_then(|text| match serde_json::from_str::<Vec<_>>(text) {
            Ok(list) if list.is_empty() => None,
            Ok(list) => Some(list),
            // A list that does not parse allows nothing: the plugin would answer any addition with a 500.
            Err(_) => Some(Vec::new()),
        });
        Givable { policy, allowed }
    }

    /// Whether placement may learn this toleration from a node with the taint, or the policy lists it.
    pub fn is_known(policy: &Policy, taint: &Taint) -> bool {
        taint.marks_windows() || policy.taints.contains(taint)
    }

    /// Whether placement may add a toleration of this taint: known as a Windows taint, and allowed in the namespace.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let permits = |list: &Vec<Toleration<'_>>| list.iter().any(|t| taint.is_tolerated_by(t));
        Self::is_known(self.policy, taint) && self.allowed.as_ref().is_none_or(permits)
    }
}
