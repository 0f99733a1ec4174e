//! The placement that a plan assumes: whether new pods get tolerations decides which of them can move.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::cluster::policy::{BUILT_IN, PlacementMode};
use crate::model::syntax::report_schema::counts_by;
use crate::model::syntax::text::{count, list};

/// The placement settings of the namespaces with Windows workloads.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssumedPlacement {
    /// In how many of these namespaces placement is `Disabled`, `Audit` or `Apply`.
    #[schemars(schema_with = "counts_by::<PlacementMode>")]
    pub namespaces: BTreeMap<&'static str, usize>,
    /// The policies with these settings; `built-in` if no WindowsPodPolicy selects the namespace.
    pub policies: BTreeSet<String>,
}

impl AssumedPlacement {
    /// From the policy of each namespace: its name and its `placement`.
    pub(super) fn of<'p>(policies: impl IntoIterator<Item = &'p (String, PlacementMode)>) -> Self {
        let mut assumed = AssumedPlacement::default();
        for (policy, placement) in policies {
            *assumed.namespaces.entry(placement.as_str()).or_default() += 1;
            assumed.policies.insert(policy.clone());
        }
        assumed
    }
}

/// As one line, as in `Apply in 2 namespaces, by the policy default`.
impl fmt::Display for AssumedPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespaces.is_empty() {
            return f.write_str("none, because no Windows workload is known");
        }
        let modes = self
            .namespaces
            .iter()
            .map(|(placement, namespaces)| format!("{placement} in {}", count(*namespaces, "namespace")));
        let modes: Vec<String> = modes.collect();
        let is_built_in = |name: &String| *name == BUILT_IN;
        let policies: Vec<&String> = self.policies.iter().filter(|name| !is_built_in(name)).collect();
        let by = match policies.len() {
            0 => "the built-in policy, because no known WindowsPodPolicy applies".to_owned(),
            1 => format!("the WindowsPodPolicy {}", list(&policies, 1)),
            _ => format!("the WindowsPodPolicies {}", list(&policies, 5)),
        };
        write!(f, "{}, by {by}", modes.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_modes_and_the_policies() {
        let of = |policies: &[(&str, PlacementMode)]| {
            let policies: Vec<(String, PlacementMode)> = policies
                .iter()
                .map(|(name, mode)| ((*name).to_owned(), *mode))
                .collect();
            AssumedPlacement::of(&policies).to_string()
        };
        assert_eq!(of(&[]), "none, because no Windows workload is known");
        assert_eq!(
            of(&[("built-in", PlacementMode::Audit)]),
            "Audit in 1 namespace, by the built-in policy, because no known WindowsPodPolicy applies"
        );
        assert_eq!(
            of(&[
                ("default", PlacementMode::Apply),
                ("team", PlacementMode::Apply),
                ("default", PlacementMode::Disabled)
            ]),
            "Apply in 2 namespaces, Disabled in 1 namespace, by the WindowsPodPolicies default, team"
        );
    }
}
