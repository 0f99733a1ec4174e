//! What node policies state about the cluster: pools that may be at zero nodes, and labels that say Windows.

use super::field_error::{FieldError, FieldStep, place};
use super::node_policy::{Pool, PoolLabelSpec, WindowsNodePolicySpec};
use super::schema::VALUES_OR_PREFIX;
use crate::model::build::Build;
use crate::model::extended_resources::OfferedResources;
use crate::model::facts::Facts;
use crate::model::node::{Host, PoolLabel, Taint};

/// The pools and pool labels of one node policy, and what of them cannot be used.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclaredPools {
    /// Pools that may be at zero nodes.
    pub pools: Vec<Host>,
    /// Labels that say Windows.
    pub labels: Vec<PoolLabel>,
    /// What is omitted, and why.
    pub problems: Vec<FieldError>,
}

impl DeclaredPools {
    /// Those of a spec.
    pub fn of(spec: &WindowsNodePolicySpec) -> Self {
        let mut declared = DeclaredPools::default();
        for (i, pool) in spec.pools.iter().enumerate() {
            declared.pool(i, pool);
        }
        for (i, label) in spec.pool_labels.iter().enumerate() {
            declared.label(i, label);
        }
        declared
    }

    /// Adds them to what is known of the cluster: what several policies declare counts once.
    pub fn add_to(&self, facts: &mut Facts) {
        add_new(&mut facts.pools, &self.pools);
        add_new(&mut facts.pool_labels, &self.labels);
    }

    fn pool(&mut self, index: usize, pool: &Pool) {
        let build = pool.build.as_deref();
        let known = build.and_then(Build::parse_label);
        if let (Some(text), None) = (build, known) {
            let path = place(&["spec", "pools", &index.to_string(), "build"]);
            let message = format!("\"{text}\" is not a build; write it as in 10.0.20348");
            self.problems.push(FieldError::at(path, &message));
        }
        self.pools.push(Host {
            name: pool.name.clone(),
            build: known,
            taints: pool.taints.iter().map(Taint::from).collect(),
            labels: pool.labels.clone().into(),
            offered: OfferedResources::of_pool(pool.resources.iter().map(String::as_str)),
            may_be_at_zero: true,
            ..Host::default()
        });
    }

    fn label(&mut self, index: usize, label: &PoolLabelSpec) {
        match (&label.values[..], &label.value_prefix) {
            ([], Some(prefix)) => self.labels.push(PoolLabel::prefix(&label.key, prefix)),
            ([_, ..], None) => {
                let values = label.values.iter();
                self.labels
                    .extend(values.map(|value| PoolLabel::exact(&label.key, value)));
            }
            _ => {
                let path = vec![
                    FieldStep::Key("spec".to_owned()),
                    FieldStep::Key("poolLabels".to_owned()),
                    FieldStep::Index(index),
                ];
                self.problems.push(FieldError::at(path, VALUES_OR_PREFIX));
            }
        }
    }
}

fn add_new<T: PartialEq + Clone>(to: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !to.contains(one) {
            to.push(one.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::json;

    use super::*;
    use crate::model::node::PRIVATE_IPV4_RESOURCE;

    #[test]
    fn what_several_policies_declare_is_known_once() {
        let declared = |spec: serde_json::Value| DeclaredPools::of(&serde_json::from_value(spec).unwrap());
        let spec = json!({
            "pools": [{"name": "win", "build": "10.0.20348", "resources": [PRIVATE_IPV4_RESOURCE]}],
            "poolLabels": [{"key": "pool", "values": ["win-a", "win-b"]}, {"key": "team", "valuePrefix": "win"}],
        });
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let known = facts.pool_labels.len();
        for _ in 0..2 {
            declared(spec.clone()).add_to(&mut facts);
        }
        assert_eq!((facts.pools.len(), facts.pool_labels.len()), (1, known + 3));
        assert!(facts.pools[0].offered.contains(PRIVATE_IPV4_RESOURCE) && facts.pools[0].may_be_at_zero);
        let is_pool =
            |key: &str, value: &str| facts.pool_labels.iter().any(|label| label.matches(key, value));
        assert!(is_pool("pool", "win-a") && is_pool("team", "windows"));
        // As Kubernetes compares them.
        assert!(!is_pool("pool", "Win-a") && !is_pool("pool", "win-ab") && !is_pool("team", "WIN"));
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_place() {
        let spec = json!({
            "pools": [{"name": "win", "build": "ltsc2022"}],
            "poolLabels": [{"key": "pool"}, {"key": "team", "values": ["a"], "valuePrefix": "b"}],
        });
        let declared = DeclaredPools::of(&serde_json::from_value(spec).unwrap());
        let problems: Vec<&str> = declared.problems.iter().map(|p| p.message.as_str()).collect();
        assert_eq!(
            problems,
            [
                "spec.pools[0].build: \"ltsc2022\" is not a build; write it as in 10.0.20348",
                "spec.poolLabels[0]: set either values or valuePrefix",
                "spec.poolLabels[1]: set either values or valuePrefix",
            ]
        );
        assert_eq!((declared.pools.len(), declared.labels.len()), (1, 0));
    }
}
