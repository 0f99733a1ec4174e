//! Which policy applied to an object, and why, so that readers cannot attribute a report to another policy.

use schemars::JsonSchema;
use serde::Serialize;

use crate::engine::policy_set::{PolicyQuery, PolicySet};
use crate::model::cluster::policy::{Action, PlacementMode, Policy};

/// The policy that applied.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppliedPolicy")]
pub struct PolicyChoice {
    /// Its name; `built-in` without a WindowsPodPolicy.
    #[serde(rename = "name")]
    pub policy: String,
    /// The strongest action of its findings.
    pub validation: Action,
    /// Its placement setting.
    pub placement: PlacementMode,
    /// Why it applied.
    #[serde(rename = "reason")]
    pub why: String,
}

impl PolicyChoice {
    /// How the policies resolved to `effective` for an object.
    pub fn of(policies: &PolicySet, query: &PolicyQuery<'_>, effective: &Policy) -> Self {
        let none = std::collections::BTreeMap::new();
        let labels = query.labels.unwrap_or(&none);
        let stored = policies.stored();
        let mut why = match policies.selecting(labels) {
            None if stored.is_empty() => "no policy is given".to_owned(),
            None if query.labels.is_none() => {
                "no policy selects the namespace, whose labels are not among the inputs".to_owned()
            }
            None => "no policy selects the namespace".to_owned(),
            Some(chosen) => {
                let also = stored.iter().filter(|it| it.namespace_selector.selects(labels));
                match also.count().saturating_sub(1) {
                    0 => "it selects the namespace".to_owned(),
                    others => format!(
                        "it selects the namespace, and its priority ({}) or name puts it before {others} more",
                        chosen.priority
                    ),
                }
            }
        };
        let written = policies.selecting(labels).map(|chosen| &chosen.policy);
        let changed = |written: &Policy| {
            (written.validation, written.placement) != (effective.validation, effective.placement)
        };
        if written.is_some_and(changed) {
            why.push_str("; labels of the namespace change it");
        }
        PolicyChoice {
            policy: effective.name.clone(),
            validation: effective.validation,
            placement: effective.placement,
            why,
        }
    }
}
