//! The condition that reports whether the registries that Transom may ask answer.

use super::MOST_NAMES;
use crate::api::DecodedPolicy;
use crate::controller::conditions::{ConditionUpdate, EventPolicy};
use crate::model::policy::ImageEvidence;
use crate::model::text::list;
use crate::registry::service::UnreachableRegistry;

/// The condition type.
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
