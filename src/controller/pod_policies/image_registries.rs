//! The condition that reports whether the registries that Transom may ask answer.

use super::MOST_NAMES;
use crate::api::DecodedPolicy;
use crate::controller::conditions::{ConditionUpdate, EventPolicy};
use crate::model::cluster::policy::ImageEvidence;
use crate::model::syntax::text::list;
use crate::registry::service::UnreachableRegistry;

pub(super) const IMAGE_REGISTRIES_REACHABLE: &str = "ImageRegistriesReachable";

/// The condition; `None` if the policy does not use registries, or none is listed. `decoded`: the version of the policy
/// that applies, if any.
pub(super) fn image_registries(
    decoded: Option<&DecodedPolicy>,
    unreachable: Option<&[UnreachableRegistry]>,
) -> Option<ConditionUpdate> {
    let policy = &decoded?.policy.policy;
    let unreachable = unreachable.filter(|_| policy.image_evidence == ImageEvidence::Registry)?;
    let message = |registries: &[UnreachableRegistry]| {
        let named = (registries.iter()).map(|it| format!("{} ({})", it.registry, it.message));
        format!(
            "no answer from {}; images that are known are used for up to a day, and the names of the others; check that the \
             replicas can reach the registry, its certificate and the credentials",
            list(named, MOST_NAMES)
        )
    };
    let unmet = (!unreachable.is_empty()).then(|| ("Unreachable", message(unreachable)));
    let met = ("Reachable", "no listed registry has failed for five minutes");
    Some(ConditionUpdate::expect_true(IMAGE_REGISTRIES_REACHABLE, unmet, met).with_events(EventPolicy::Turns))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::decode_policy;

    fn policy(images: &str) -> DecodedPolicy {
        let object = json!({
            "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "default"},
            "spec": {"mode": "Enforce", "evidence": {"imageEvidence": images}},
        });
        decode_policy(&object).unwrap()
    }

    #[test]
    fn the_condition_names_the_registries_and_only_policies_that_use_them_have_it() {
        let down = [UnreachableRegistry {
            registry: "registry.corp".into(),
            message: "no route".to_owned(),
        }];
        let (names, registry) = (policy("Names"), policy("Registry"));
        assert_eq!(image_registries(None, Some(&down)), None);
        assert_eq!(image_registries(Some(&names), Some(&down)), None);
        assert_eq!(
            image_registries(Some(&registry), None),
            None,
            "no registry is listed"
        );
        let good = image_registries(Some(&registry), Some(&[])).unwrap();
        assert!(good.holds && !good.is_bad);
        let bad = image_registries(Some(&registry), Some(&down)).unwrap();
        assert!(!bad.holds && bad.is_bad && bad.reason == "Unreachable");
        assert!(
            bad.message
                .starts_with("no answer from registry.corp (no route);"),
            "{}",
            bad.message
        );
    }
}
