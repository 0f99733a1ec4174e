//! The snapshot: everything known about the cluster at one time, as one immutable value. One task builds it from each
//! cache; reviews, controllers and gauges read nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use super::cache::{ClusterCache, same};
use super::facts;
use super::policy_store::{PodPolicies, PolicyState, was_accepted};
use super::stored_node_policies::NodePolicies;
use super::stored_node_pools::NodePools;
use crate::engine::namespace_selector;
use crate::engine::policy_set::PolicySet;
use crate::engine::{NodeFinding, node_findings};
use crate::model::cluster::config::ClusterConfig;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{PlacementMode, Policy};
use crate::model::knowledge::Knowledge;
use crate::model::windows::registry_patterns::RegistryPatterns;
use crate::process::day_of;
use crate::registration::{self, configurations::Configurations};

/// The current snapshot. The sender is the one task that builds them.
pub type SnapshotReceiver = watch::Receiver<Arc<Snapshot>>;

/// Everything known about the cluster at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The cache of the watches.
    pub cache: Arc<ClusterCache>,
    /// The stored node policies.
    pub node_policies: NodePolicies,
    /// The stored node pools.
    pub pools: NodePools,
    /// The facts for reviews: from the cache, the pools, and the date.
    pub facts: Facts,
    /// The policies that apply.
    pub policies: Arc<PolicySet>,
    /// The state of each stored policy, by name.
    pub outcomes: Arc<BTreeMap<String, PolicyState>>,
    /// The content of the webhook configurations, once known.
    pub registered: Option<Arc<Configurations>>,
    /// The namespaces that the webhooks exclude by name, in addition to those that are always excluded.
    pub excluded: Arc<[String]>,
    /// The registries that this process may ask about images.
    pub image_registries: RegistryPatterns,
    /// The file of facts about the cluster.
    pub stated: StatedCluster,
}

/// What administrators state about the cluster, and the state of the file that says it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StatedCluster {
    pub config: Arc<ClusterConfig>,
    /// The hash of the file with these facts; `None` without a file, or if it could never be used.
    pub hash: Option<Arc<str>>,
    /// Why the file cannot be used as it is now; the facts are then those of its last valid version.
    pub problem: Option<Arc<str>>,
}

/// What applies to the pods of a namespace, regardless of the user.
#[derive(Clone, Debug)]
pub struct NamespacePolicy {
    /// The effective policy.
    pub policy: Policy,
    /// Whether placement applies to the Windows pods that are created there.
    pub places: bool,
    /// Whether `/mutate` is called for its pods.
    pub is_reviewed: bool,
}

impl Snapshot {
    /// A snapshot without a cluster, from these facts and policies.
    pub fn of_files(facts: Facts, policies: PolicySet) -> Self {
        Snapshot {
            cache: Arc::default(),
            node_policies: NodePolicies::default(),
            pools: NodePools::default(),
            facts,
            policies: Arc::new(policies),
            outcomes: Arc::default(),
            registered: None,
            excluded: Arc::default(),
            image_registries: RegistryPatterns::default(),
            stated: StatedCluster::default(),
        }
    }

    /// Whether a cache has been published: before the first one, a missing object proves nothing.
    pub fn is_known(&self) -> bool {
        self.cache.kubernetes > 0
    }

    /// The policies that do not apply here although their statuses say that a version does: another replica has a
    /// valid version, and this one has not.
    pub fn lacking(&self) -> Vec<&str> {
        let skipped = self.outcomes.iter().filter(|(name, outcome)| {
            let stored = self.cache.pod_policies.get(*name);
            matches!(outcome, PolicyState::Skipped { .. })
                && stored.is_some_and(|stored| was_accepted(stored))
        });
        skipped.map(|(name, _)| name.as_str()).collect()
    }

    /// What the rules report of the Windows nodes.
    pub fn node_findings(&self) -> Vec<NodeFinding> {
        let nodes = self.cache.nodes.values();
        node_findings(nodes.map(|node| Arc::clone(node) as _), &self.facts)
    }

    /// Whether the API server calls the webhooks for pods of a namespace with these labels, as far as is known.
    pub fn is_reviewed_in(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        registration::not_reviewed(namespace, labels, &self.excluded, self.registered.as_deref()).is_none()
    }

    /// The namespaces without a policy: the webhooks are called for them, and no stored policy selects them, so the
    /// built-in policy applies there.
    pub fn namespaces_without_policy(&self) -> impl Iterator<Item = &str> {
        let namespaces = self.cache.namespaces.iter();
        let without = namespaces.filter(|(name, seen)| {
            self.policies.selecting(&seen.labels).is_none() && self.is_reviewed_in(name, &seen.labels)
        });
        without.map(|(name, _)| name.as_str())
    }

    /// What applies in a namespace. If the webhooks are not called there, no pod is placed, and the namespace's
    /// default OS is not used.
    pub fn in_namespace(&self, namespace: &str) -> NamespacePolicy {
        let unlabelled = BTreeMap::new();
        let known = self.facts.namespaces.get(namespace);
        // A namespace that requests exclusion is excluded, regardless of the registered selectors.
        let labels = known.map_or(&unlabelled, |namespace| &namespace.labels);
        let registered = self.registered.as_ref();
        let is_left_out = registration::is_left_out(namespace, labels, &self.excluded)
            || !registered.is_some_and(|registered| registered.mutates_in(labels));
        let mut policy = self.policies.in_namespace(namespace, &self.facts).into_owned();
        if is_left_out {
            policy.default_os = None;
        }
        NamespacePolicy {
            places: !is_left_out && policy.placement == PlacementMode::Apply,
            is_reviewed: !is_left_out,
            policy,
        }
    }
}

/// Builds snapshots; remembers the last valid version of each policy between them.
#[derive(Debug)]
pub struct SnapshotBuilder {
    /// The base of the next snapshot: what is not watched, and the namespaces of the last cache.
    base: Facts,
    last: Arc<ClusterCache>,
    excluded: Arc<[String]>,
    image_registries: RegistryPatterns,
    stated: StatedCluster,
    policies: PodPolicies,
}

impl SnapshotBuilder {
    /// `base`: the facts that are not watched. `excluded`: the namespaces that the webhooks exclude by name.
    pub fn new(base: Facts, excluded: impl IntoIterator<Item = String>) -> Self {
        SnapshotBuilder {
            base,
            last: Arc::default(),
            excluded: excluded.into_iter().collect(),
            image_registries: RegistryPatterns::default(),
            stated: StatedCluster::default(),
            policies: PodPolicies::default(),
        }
    }

    /// Sets the registries that this process may ask about images.
    #[must_use]
    pub fn with_image_registries(self, image_registries: RegistryPatterns) -> Self {
        SnapshotBuilder {
            image_registries,
            ..self
        }
    }

    /// Sets the known faults and dates of support of the next snapshots.
    pub fn set_knowledge(&mut self, knowledge: Arc<Knowledge>) {
        self.base.knowledge = knowledge;
    }

    /// Sets what administrators state about the cluster from the next snapshot on.
    pub fn set_stated(&mut self, stated: StatedCluster) {
        if self.base.config != stated.config {
            self.base.set_config(Arc::clone(&stated.config));
            // The selectors of namespaces follow from it.
            self.last = Arc::default();
        }
        self.stated = stated;
    }

    /// The snapshot before the first cache: only the arguments are known, and the built-in policy applies, which
    /// changes and denies nothing.
    pub fn unknown(&self) -> Snapshot {
        Snapshot {
            excluded: Arc::clone(&self.excluded),
            image_registries: self.image_registries.clone(),
            stated: self.stated.clone(),
            policies: Arc::clone(self.policies.set()),
            ..Snapshot::of_files(
                self.base.clone(),
                PolicySet::new(Vec::new(), Policy::cluster_default()),
            )
        }
    }

    /// Builds the snapshot of a cache, of what is registered, and of a time.
    pub fn take(
        &mut self,
        cache: &Arc<ClusterCache>,
        registered: Option<Arc<Configurations>>,
        now: Timestamp,
    ) -> Snapshot {
        self.base.today = day_of(now);
        self.base.has_scc = cache.has_scc;
        (self.base.default_node_selector).clone_from(&cache.default_node_selector);
        let policies = Arc::clone(self.policies.set());
        self.policies.update(&cache.pod_policies, &cache.policy_revisions);
        if !Arc::ptr_eq(&policies, self.policies.set()) || !has_same_namespaces(&self.last, cache) {
            self.base.namespaces = Arc::new(facts::namespaces(cache));
            namespace_selector::resolve(&mut self.base, self.policies.set());
        }
        self.last = Arc::clone(cache);
        let node_policies = NodePolicies::of(&cache.node_policies);
        let pools = NodePools::of(&cache.node_pools);
        Snapshot {
            facts: facts::of(cache, &node_policies, &pools, &self.base, now),
            cache: Arc::clone(cache),
            node_policies,
            pools,
            policies: Arc::clone(self.policies.set()),
            outcomes: Arc::clone(self.policies.outcomes()),
            registered,
            excluded: Arc::clone(&self.excluded),
            image_registries: self.image_registries.clone(),
            stated: self.stated.clone(),
        }
    }
}

/// Whether two caches have the same namespaces, and the same that decides their default node selectors.
fn has_same_namespaces(one: &ClusterCache, other: &ClusterCache) -> bool {
    same(&one.namespaces, &other.namespaces)
        && one.has_scc == other.has_scc
        && one.default_node_selector == other.default_node_selector
        && one.shown_selectors == other.shown_selectors
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::cluster::cache::CachedNamespace;
    use crate::registration::configurations::Configuration;
    use crate::registration::{RegistrationOptions, mutating};

    fn registered() -> Configurations {
        let object = serde_json::to_value(mutating(&RegistrationOptions::default())).unwrap();
        let configuration = Configuration::read("zz-transom".to_owned(), Some(&object["webhooks"]));
        Configurations {
            mutating: configuration.clone(),
            validating: configuration,
        }
    }

    #[test]
    fn a_namespace_causes_a_call_where_a_webhook_is_called_for_it() {
        let snapshot = SnapshotBuilder::new(Facts::new(Facts::KUBERNETES, date(2026, 6, 1)), []).unknown();
        let with = |registered: Option<Configurations>| Snapshot {
            registered: registered.map(Arc::new),
            ..snapshot.clone()
        };
        let nowhere = || {
            let mut none = registered();
            none.mutating.entries.clear();
            none.validating.entries.clear();
            none
        };
        let labels = BTreeMap::new();
        assert!(with(None).is_reviewed_in("web", &labels), "nothing is known yet");
        assert!(with(Some(registered())).is_reviewed_in("web", &labels));
        assert!(!with(Some(registered())).is_reviewed_in("kube-system", &labels));
        assert!(!with(Some(nowhere())).is_reviewed_in("web", &labels));
    }

    #[test]
    fn nothing_is_placed_where_the_webhooks_are_not_called() {
        let labelled = |name: &str, labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            let namespace = CachedNamespace {
                labels: labels.collect(),
                ..CachedNamespace::default()
            };
            (name.to_owned(), Arc::new(namespace))
        };
        let policy = json!({
            "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "p"},
            "spec": {"mode": "Warn", "evidence": {"defaultOS": "Windows"}},
        });
        let cache = Arc::new(ClusterCache {
            kubernetes: 36,
            namespaces: [
                labelled("web", &[]),
                labelled("own", &[]),
                labelled("out", &[("transom.dev/ignore", "true")]),
            ]
            .into(),
            pod_policies: [("p".to_owned(), Arc::new(policy))].into(),
            ..ClusterCache::default()
        });
        let today = Timestamp::UNIX_EPOCH;
        let mut snapshots = SnapshotBuilder::new(Facts::new(36, date(2026, 1, 1)), ["own".to_owned()]);
        let before = snapshots.take(&cache, None, today);
        let after = snapshots.take(&cache, Some(Arc::new(registered())), today);
        for (snapshot, namespace, places) in [
            (&before, "web", false),
            (&after, "web", true),
            (&after, "own", false),
            (&after, "out", false),
            (&after, "kube-system", false),
        ] {
            let counts = snapshot.in_namespace(namespace);
            assert_eq!(counts.places, places, "{namespace}");
            assert_eq!(counts.policy.default_os.is_some(), places, "{namespace}");
        }
        assert!(!snapshots.unknown().is_known() && after.is_known());
    }

    #[test]
    fn a_snapshot_shares_with_the_one_before_what_is_the_same() {
        let today = Timestamp::UNIX_EPOCH;
        let mut snapshots = SnapshotBuilder::new(Facts::new(36, date(2026, 1, 1)), []);
        let cache = Arc::new(ClusterCache::default());
        let (one, other) = (
            snapshots.take(&cache, None, today),
            snapshots.take(&cache, None, today + 24.hours()),
        );
        assert!(Arc::ptr_eq(&one.policies, &other.policies));
        assert!(Arc::ptr_eq(&one.facts.namespaces, &other.facts.namespaces));
        assert_eq!(other.facts.today, date(1970, 1, 2));
    }
}
