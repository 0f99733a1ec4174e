//! What a policy that uses registries lacks: the list of `serve`, the entries, or registries in their conditions.

use serde_json::json;

use super::super::match_conditions::selects_registry;
use super::super::names;
use super::{Configurations, CoverageGap, NAMED};
use crate::model::windows::registry_patterns::{RegistryPattern, RegistryPatterns};

const SETTING: &str = "evidence.imageEvidence: Registry";

impl Configurations {
    /// Why a policy with `evidence.imageEvidence: Registry` has no effect, or not on all pods. `registries`: the registries that this
    /// process may ask.
    pub(super) fn image_gap(&self, registries: &RegistryPatterns) -> Option<CoverageGap> {
        if registries.is_empty() {
            return Some(CoverageGap {
                reason: "ImageRegistriesNotConfigured",
                message: format!(
                    "{SETTING} has no effect: Transom may not ask any registry; set the chart's imageLookups.registries, as in \
                     [mcr.microsoft.com, \"*.azurecr.io\"], or add to transom serve and to transom generate webhooks: \
                     --image-registry 'PATTERN'"
                ),
            });
        }
        let entries = [
            self.mutating.entry(names::IMAGES_MUTATE),
            self.validating.entry(names::IMAGES_VALIDATE),
        ];
        if entries.iter().any(Option::is_none) {
            return Some(CoverageGap {
                reason: "WebhookEntryMissing",
                message: format!(
                    "{SETTING} has no effect on pods without a sign of Windows: the webhook configurations lack the entry {} \
                     or {}; {}",
                    names::IMAGES_MUTATE,
                    names::IMAGES_VALIDATE,
                    remedy(registries.iter())
                ),
            });
        }
        let is_selected = |pattern: &&RegistryPattern| {
            (entries.iter().flatten())
                .all(|entry| entry.has_condition(|expression| selects_registry(expression, pattern)))
        };
        let unknown: Vec<&RegistryPattern> = registries
            .iter()
            .filter(|pattern| !is_selected(pattern))
            .take(NAMED)
            .collect();
        (!unknown.is_empty()).then(|| CoverageGap {
            reason: "ImageRegistriesNotRegistered",
            message: format!(
                "{SETTING} has no effect on pods without a sign of Windows whose images are on registries that the webhook \
                 configurations do not know; {}",
                remedy(unknown.into_iter())
            ),
        })
    }
}

fn remedy<'p>(patterns: impl Iterator<Item = &'p RegistryPattern>) -> String {
    let patterns: Vec<String> = patterns.take(NAMED).map(ToString::to_string).collect();
    format!(
        "add to the chart's imageLookups.registries: {}, or to transom generate webhooks: --image-registry \'{}\'",
        json!(patterns),
        patterns.join(",")
    )
}
