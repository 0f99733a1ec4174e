//! Whether what a policy wishes is registered: the condition for its status. What is missing is found in `registration`.

use std::collections::BTreeMap;

use super::report::Finding;
use crate::api::{DecodedPolicy, cut};
use crate::cluster::view::ClusterView;
use crate::engine::effective::PolicySet;
use crate::registration::configurations::Configurations;

/// The type of the condition.
pub(super) const KIND: &str = "Registered";

/// The longest message; the API server takes no more than 32768 characters.
const LONGEST: usize = 16 * 1024;

/// The condition. `decoded` is what of the policy counts, if anything.
pub(super) fn registered(
    decoded: Option<&DecodedPolicy>,
    registered: &Configurations,
    set: &PolicySet,
    view: &ClusterView,
) -> Finding {
    let gaps = decoded.map_or_else(Vec::new, |decoded| {
        let stored = &decoded.policy;
        let counts = |labels: &BTreeMap<String, String>| {
            let mut all = set.stored().iter();
            let first = all.find(|other| other.namespace_selector.selects(labels));
            first.is_some_and(|first| first.policy.name == stored.policy.name)
        };
        let namespaces = (view.namespaces.iter())
            .map(|(name, namespace)| (name.as_str(), &namespace.labels))
            .filter(|(_, labels)| counts(labels));
        registered.gaps(stored, &namespaces)
    });
    let (reason, message) = match gaps.first() {
        None => (
            "AsWanted",
            "the webhook configurations have everything that the policy needs".to_owned(),
        ),
        Some(first) => {
            let all: Vec<&str> = gaps.iter().map(|gap| gap.message.as_str()).collect();
            (first.reason, cut(&all.join("; "), LONGEST))
        }
    };
    Finding {
        kind: KIND,
        holds: gaps.is_empty(),
        bad: !gaps.is_empty(),
        reason,
        message,
    }
}
