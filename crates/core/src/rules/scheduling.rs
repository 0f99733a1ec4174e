//! What keeps a pod off a node: its nodeSelector and that of its namespace, its RuntimeClass, its required node affinity,
//! its extended resources, the node's taints. This module does not compare free CPU and memory, topology spread, volumes and pod affinity.

use std::sync::Arc;

use crate::model::cluster::facts::{Facts, RuntimeClassFacts};
use crate::model::cluster::policy::Policy;
use crate::model::nodes::namespace_selector::NodeSelector;
use crate::model::nodes::node::{PRIVATE_IPV4_RESOURCE, Taint};
use crate::model::nodes::node_affinity::{self, KnownNodeLabels, Match};
use crate::model::objects::pod::{PodSpec, Toleration};

/// What a pod requires of its node and tolerates there, including what its RuntimeClass adds.
#[derive(Clone)]
pub struct Constraints<'c> {
    spec: &'c PodSpec<'c>,
    class: Option<&'c RuntimeClassFacts>,
    /// The default node selector of the namespace, which the API server adds.
    of_namespace: Option<&'c NodeSelector>,
    /// The extended resources that the pod requests, read once for all nodes.
    extended: Arc<[(&'c str, u64)]>,
    /// See [`Constraints::without_address`].
    ignores_address: bool,
}

impl<'c> Constraints<'c> {
    /// The constraints of a pod. `class`: the RuntimeClass that the API server merges into it.
    pub fn new(spec: &'c PodSpec<'c>, class: Option<&'c RuntimeClassFacts>) -> Self {
        Constraints {
            spec,
            class,
            of_namespace: None,
            extended: spec.extended_requests().into(),
            ignores_address: false,
        }
    }

    /// With the default node selector of the namespace, which the API server merges into the pods of a template.
    #[must_use]
    pub fn with_selector(self, of_namespace: Option<&'c NodeSelector>) -> Self {
        Constraints { of_namespace, ..self }
    }

    /// Without the request for an address of the VPC. Placement adds that request itself, according to the nodes that the
    /// pod reaches, so that it must not decide which nodes those are.
    #[must_use]
    pub fn without_address(self) -> Self {
        Constraints {
            ignores_address: true,
            ..self
        }
    }

    /// The constraints of the template of a DaemonSet: its controller uses neither the RuntimeClass nor resources.
    pub fn of_daemon_set(spec: &'c PodSpec<'c>) -> Self {
        Constraints {
            spec,
            class: None,
            of_namespace: None,
            extended: Arc::default(),
            ignores_address: false,
        }
    }

    /// The labels that the API server adds to the nodeSelector.
    fn added(&self) -> impl Iterator<Item = (&'c String, &'c String)> + use<'c> {
        let of_class = self.class.map(|class| &class.node_selector);
        of_class.into_iter().chain(self.of_namespace).flatten()
    }

    /// Whether the pod requires anything of its node.
    pub fn is_empty(&self) -> bool {
        self.spec.node_selector.is_empty()
            && self.added().next().is_none()
            && self.spec.required_node_affinity().is_none()
    }

    /// Whether any requirement uses a label in this list, or a field of nodes.
    pub fn name_any(&self, labels: &[&str]) -> bool {
        let mut terms = self.spec.required_terms().iter();
        terms.any(|term| !term.match_fields.is_empty()) || labels.iter().any(|label| self.name(label))
    }

    /// Whether any requirement uses this label.
    pub fn name(&self, label: &str) -> bool {
        let mut terms = self.spec.required_terms().iter();
        (self.spec.node_selector.iter()).any(|(key, _)| **key == *label)
            || self.added().any(|(key, _)| key == label)
            || terms.any(|term| {
                let mut requirements = term.match_expressions.iter();
                requirements.any(|requirement| *requirement.key == *label)
            })
    }

    /// Whether a node satisfies the nodeSelector, what the API server adds to it, and the required node affinity, and offers the extended
    /// resources.
    pub fn matches(&self, node: &impl KnownNodeLabels) -> Match {
        let own = node_affinity::matches(self.spec, node);
        let selected = self.added().fold(own, |least, (key, value)| {
            least.min(node_affinity::matches_label(key, value, node))
        });
        // What a node does not report yet does not keep a pod off it.
        let lacks = || matches!(self.lacking_resource(node), Some((_, Match::No)));
        if selected != Match::No && lacks() {
            return Match::No;
        }
        selected
    }

    /// The extended resource that the pod requests and a node does not offer, or, if there is none, one of which that is
    /// unknown.
    pub fn lacking_resource(&self, node: &impl KnownNodeLabels) -> Option<(&'c str, Match)> {
        let requests = self.extended.iter().copied();
        let counted = requests.filter(|(name, _)| !self.ignores_address || *name != PRIVATE_IPV4_RESOURCE);
        let offers = counted.map(|(name, amount)| (name, node.offers(name, amount)));
        offers
            .filter(|(_, offers)| *offers != Match::Yes)
            .min_by_key(|(_, offers)| *offers)
    }

    /// Whether the pod tolerates a taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let of_class = self.class.iter().flat_map(|class| &class.tolerations);
        (self.spec.tolerations.iter().chain(of_class)).any(|t| taint.is_tolerated_by(t))
    }

    /// The taints that keep the pod off a node, or evict it.
    pub fn untolerated<'s, 't>(
        &'s self,
        taints: &'t [Taint],
    ) -> impl Iterator<Item = &'t Taint> + use<'s, 't, 'c> {
        (taints.iter()).filter(|taint| taint.keeps_off() && !self.tolerates(taint))
    }

    /// Those of them that are permanent.
    pub fn untolerated_lasting<'s, 't>(
        &'s self,
        taints: &'t [Taint],
    ) -> impl Iterator<Item = &'t Taint> + use<'s, 't, 'c> {
        self.untolerated(taints).filter(|taint| taint.lasts())
    }

    /// Whether no permanent taint keeps the pod off a node.
    pub fn tolerates_lasting(&self, taints: &[Taint]) -> bool {
        self.untolerated_lasting(taints).next().is_none()
    }
}

/// Which tolerations placement may add to the Windows pods of a namespace.
pub struct AddableTolerations<'p> {
    policy: &'p Policy,
    /// The tolerations that PodTolerationRestriction allows in the namespace; `None` if it does not restrict them.
    allowed: Option<Vec<Toleration<'p>>>,
}

impl<'p> AddableTolerations<'p> {
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
        let of_cluster = || {
            (!facts.config.allowed_tolerations.is_empty()).then(|| facts.config.allowed_tolerations.clone())
        };
        AddableTolerations {
            policy,
            allowed: allowed.or_else(of_cluster),
        }
    }

    /// The taints that pods tolerate whatever the known nodes have: those that the policy lists, and of those that node policies
    /// require and declared pools have the ones that mean Windows. The default of the policy applies only without the latter.
    pub fn stated<'f>(policy: &'f Policy, facts: &'f Facts) -> impl Iterator<Item = &'f Taint> {
        let of_pools = facts.pools.iter().flat_map(|pool| &pool.taints);
        let derived = facts.required_taints.iter().chain(of_pools);
        let derived = derived.filter(|taint| taint.marks_windows());
        let uses_listed = policy.explicit.taints || derived.clone().next().is_none();
        let listed = policy.taints.iter().filter(move |_| uses_listed);
        listed.chain(derived)
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
