//! The condition that reports whether the webhooks a policy needs are registered. `registration` finds what is
//! missing.

use std::collections::BTreeMap;

use super::ControllerStates;
use crate::api::DecodedPolicy;
use crate::cluster::snapshot::Snapshot;
use crate::controller::conditions::{ConditionUpdate, EventPolicy, PROGRAMMED};
use crate::registration::configurations::{Configurations, CoverageGap};

/// The condition. `decoded`: the version of the policy that applies, if any.
pub(super) fn programmed(
    decoded: Option<&DecodedPolicy>,
    registered: &Configurations,
    states: ControllerStates<'_>,
    snapshot: &Snapshot,
) -> ConditionUpdate {
    let gaps = decoded.map_or_else(Vec::new, |decoded| {
        let stored = &decoded.policy;
        let applies = |labels: &BTreeMap<String, String>| {
            let mut all = snapshot.policies.stored().iter();
            let first = all.find(|other| other.namespace_selector.selects(labels));
            first.is_some_and(|first| first.policy.name == stored.policy.name)
        };
        let namespaces = (snapshot.cache.namespaces.iter())
            .map(|(name, namespace)| (name.as_str(), &namespace.labels))
            .filter(|(_, labels)| applies(labels));
        registered.gaps(stored, &snapshot.image_registries, &namespaces)
    });
    let unreached = states.unreached.cloned();
    let contested = states
        .contested
        .map(|message| gap("CABundleOverwritten", message));
    let stated = &snapshot.stated;
    let invalid = (stated.problem.as_deref()).map(|problem| gap("ClusterConfigInvalid", problem));
    let of_controllers = invalid.into_iter().chain(unreached).chain(contested);
    let problems = registered.problems(stated.hash.as_deref());
    let gaps: Vec<CoverageGap> = of_controllers.chain(problems).chain(gaps).collect();
    let message = || {
        gaps.iter()
            .map(|gap| gap.message.as_str())
            .collect::<Vec<_>>()
            .join("; ")
    };
    let unmet = gaps.first().map(|first| (first.reason, message()));
    let met = (
        PROGRAMMED,
        "the webhook configurations have everything that the policy needs",
    );
    ConditionUpdate::expect_true(PROGRAMMED, unmet, met).with_events(EventPolicy::Reasons)
}

fn gap(reason: &'static str, message: &str) -> CoverageGap {
    CoverageGap {
        reason,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::controller::reports::{NextDenials, ReportingState};
    use crate::engine::policy_set::PolicySet;
    use crate::model::cluster::facts::Facts;
    use crate::model::cluster::policy::Policy;
    use crate::registration::configurations::Configuration;
    use crate::registration::{RegistrationOptions, mutating, validating};

    #[test]
    fn what_other_controllers_find_out_makes_the_condition_false() {
        let options = RegistrationOptions::default();
        let configuration = |title: &str, json: serde_json::Value| {
            Configuration::read(title.to_owned(), Some(&json["webhooks"]))
        };
        let registered = Configurations {
            mutating: configuration("m", serde_json::to_value(mutating(&options)).unwrap()),
            validating: configuration("v", serde_json::to_value(validating(&options)).unwrap()),
        };
        let snapshot = Snapshot::of_files(
            Facts::new(Facts::KUBERNETES, date(2026, 6, 1)),
            PolicySet::new(Vec::new(), Policy::cluster_default()),
        );
        let reason = |unreached: Option<&CoverageGap>, contested: Option<&str>| {
            let states = ControllerStates {
                reporting: &ReportingState::Off,
                next_denials: &NextDenials::default(),
                unreached,
                contested,
                registries: None,
            };
            let update = programmed(None, &registered, states, &snapshot);
            (update.holds, update.reason, update.message)
        };
        assert_eq!(reason(None, None).1, "Programmed");
        let (holds, name, message) = reason(None, Some("a writer"));
        assert_eq!(
            (holds, name, &*message),
            (false, "CABundleOverwritten", "a writer")
        );
        let (_, name, message) = reason(Some(&gap("WebhookProbeFailed", "no call")), Some("a writer"));
        assert_eq!((name, &*message), ("WebhookProbeFailed", "no call; a writer"));
    }
}
