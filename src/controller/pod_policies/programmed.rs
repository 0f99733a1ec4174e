//! The condition that reports whether the webhooks a policy needs are registered. `registration` finds what is
//! missing.

use std::collections::BTreeMap;

use crate::api::DecodedPolicy;
use crate::cluster::snapshot::Snapshot;
use crate::controller::conditions::{ConditionUpdate, EventPolicy};
use crate::registration::configurations::{Configurations, CoverageGap};

/// The condition. `decoded`: the version of the policy that applies, if any; `unreached`: the message if calls of the
/// API server do not arrive.
pub(super) fn programmed(
    decoded: Option<&DecodedPolicy>,
    registered: &Configurations,
    unreached: Option<&str>,
    snapshot: &Snapshot,
) -> ConditionUpdate {
    let gaps = decoded.map_or_else(Vec::new, |decoded| {
        let stored = &decoded.policy;
        let counts = |labels: &BTreeMap<String, String>| {
            let mut all = snapshot.policies.stored().iter();
            let first = all.find(|other| other.namespace_selector.selects(labels));
            first.is_some_and(|first| first.policy.name == stored.policy.name)
        };
        let namespaces = (snapshot.view.namespaces.iter())
            .map(|(name, namespace)| (name.as_str(), &namespace.labels))
            .filter(|(_, labels)| counts(labels));
        registered.gaps(
            stored,
            &snapshot.facts.pool_labels,
            &snapshot.image_registries,
            &namespaces,
        )
    });
    let unreached = unreached.map(|said| CoverageGap {
        reason: "CallsDoNotArrive",
        message: said.to_owned(),
    });
    let unmet = unreached.into_iter().chain(registered.problems());
    let gaps: Vec<CoverageGap> = unmet.chain(gaps).collect();
    let message = || {
        gaps.iter()
            .map(|gap| gap.message.as_str())
            .collect::<Vec<_>>()
            .join("; ")
    };
    let unmet = gaps.first().map(|first| (first.reason, message()));
    let met = (
        "Programmed",
        "the webhook configurations have everything that the policy needs",
    );
    ConditionUpdate::expect_true("Programmed", unmet, met).with_events(EventPolicy::Reasons)
}
