//! Reading a `WindowsPodPolicy` that the API server has stored, perhaps for a version of Transom that is not this one.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::compile::{UnknownNameHandling, UnknownNames, compile};
use super::decode::read;
use super::field_error::{FieldError, FieldStep, in_one_line};
use super::pod_policy::WindowsPodPolicySpec;
use crate::engine::policy_set::StoredPolicy;

/// A stored policy, and what of it this version does not know.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodedPolicy {
    /// What of it counts; shared, because policies can be many and large.
    pub policy: Arc<StoredPolicy>,
    /// Names of rules that this version does not have; omitted.
    pub unknown_rules: BTreeSet<String>,
    /// Names of releases of Windows that this version does not have; omitted.
    pub unknown_releases: BTreeSet<String>,
    /// Paths of fields that this version does not have; omitted.
    pub unknown_fields: BTreeSet<String>,
}

impl DecodedPolicy {
    /// Whether some of it is ignored.
    pub fn is_partial(&self) -> bool {
        let unknown = [&self.unknown_rules, &self.unknown_releases, &self.unknown_fields];
        unknown.into_iter().any(|names| !names.is_empty())
    }
}

/// A stored policy that cannot be used: what is wrong, where, and what to write instead.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{}", in_one_line(.problems, 4096))]
pub struct PolicyError {
    /// Every problem, in the order in which the API server prints the fields.
    pub problems: Vec<String>,
}

impl PolicyError {
    fn of(mut problems: Vec<FieldError>) -> Self {
        problems.sort_by(|one, other| one.path.cmp(&other.path));
        let problems = problems.into_iter().map(|problem| problem.message);
        PolicyError {
            problems: problems.collect(),
        }
    }
}

/// What is read of a stored policy.
#[derive(Deserialize)]
struct StoredPolicyFields {
    spec: WindowsPodPolicySpec,
}

/// Reads a stored policy. Rules, releases and fields that this version does not know are omitted and named: a newer
/// version may have stored them, and the rest of the policy must apply.
///
/// # Errors
/// Everything that cannot be used, such as values that this version does not know.
pub fn decode_policy(object: &Value) -> Result<DecodedPolicy, PolicyError> {
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let spec = object.get("spec").cloned().unwrap_or_else(|| json!({}));
    if !spec.is_object() {
        // serde would take a list for the fields in their order.
        let path = vec![FieldStep::Key("spec".to_owned())];
        return Err(PolicyError::of(vec![FieldError::at(
            path,
            "expected a map of fields",
        )]));
    }
    let mut unknown_fields = BTreeSet::new();
    let reading = read::<StoredPolicyFields>(json!({"spec": spec}), Some(&mut unknown_fields));
    let mut left_out = UnknownNames::default();
    let policy = reading.then(|stored| {
        compile(
            name.to_owned(),
            stored.spec,
            UnknownNameHandling::LeftOut(&mut left_out),
        )
    });
    Ok(DecodedPolicy {
        policy: Arc::new(policy.map_err(PolicyError::of)?),
        unknown_rules: left_out.rules,
        unknown_releases: left_out.releases,
        unknown_fields,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::cluster::policy::{Action, Policy};

    fn decode(spec: &Value) -> Result<DecodedPolicy, PolicyError> {
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.entry("mode").or_insert_with(|| json!("Enforce"));
        }
        decode_policy(&json!({"metadata": {"name": "p"}, "spec": spec, "status": {"odd": 1}}))
    }

    #[test]
    fn a_policy_that_enforces_is_the_one_of_serve_standalone_and_one_without_a_mode_is_none() {
        let of = |spec: Value| decode_policy(&json!({"metadata": {"name": "built-in"}, "spec": spec}));
        let decoded = of(json!({"mode": "Enforce"})).unwrap();
        assert_eq!(*decoded.policy, StoredPolicy::for_all(Policy::standalone()));
        let error = of(json!({})).unwrap_err().to_string();
        assert_eq!(error, "spec: the field \"mode\" is missing; it has no default");
        assert!(decode_policy(&json!({"metadata": {"name": "p"}})).is_err());
    }

    #[test]
    fn rules_of_a_newer_version_are_left_out_and_named() {
        let decoded = decode(&json!({
            "validation": {"rules": [{"name": "run-as-user", "action": "Warn"},
                {"name": "rule-of-tomorrow", "action": "Deny"}]},
            "exemptions": [
                {"name": "one", "rules": ["host-pid", "another"], "expiresOn": "2027-03-31", "owner": "a", "reason": "b",
                    "groups": ["g"]},
                {"name": "two", "rules": ["another"], "expiresOn": "2027-03-31", "owner": "a", "reason": "b",
                    "groups": ["g"]},
            ],
        }))
        .unwrap();
        assert_eq!(decoded.policy.policy.actions.len(), 1);
        let names: Vec<&String> = decoded.unknown_rules.iter().collect();
        assert_eq!(names, ["another", "rule-of-tomorrow"]);
        // Without its only rule the second one would have lifted all of them.
        assert_eq!(decoded.policy.exemptions.len(), 1);
        assert_eq!(decoded.policy.exemptions[0].exemption.rules.len(), 1);
    }

    #[test]
    fn releases_of_a_newer_version_are_left_out_and_named() {
        let decoded = decode(
            &json!({"placement": {"runtimeClasses": {"names": [{"release": "ltsc2022", "name": "windows-2022"},
                {"release": "ltsc2040", "name": "windows-2040"}]}}}),
        )
        .unwrap();
        let classes = &decoded.policy.policy.runtime_classes;
        assert_eq!(classes.keys().collect::<Vec<_>>(), ["ltsc2022"]);
        assert_eq!(decoded.unknown_releases, ["ltsc2040".to_owned()].into());
    }

    #[test]
    fn every_problem_is_reported_in_the_order_in_which_the_api_server_prints_the_fields() {
        let error = decode(&json!({
            "mode": "Deny",
            "validation": {"rules": [{"name": "rule-of-tomorrow", "action": "Deny"}]},
            "exemptions": [{"name": "e", "rules": ["*"], "groups": ["g"], "expiresOn": "soon", "owner": "a", "reason": "b"}],
            "namespaceSelector": {"matchLabels": {"team": "a b"}},
        }))
        .unwrap_err();
        let starts = [
            "spec.exemptions[0].expiresOn: \"soon\" is not a date;",
            "spec.mode: unknown value \"Deny\";",
            "spec.namespaceSelector.matchLabels.team: no label has the value \"a b\":",
        ];
        assert_eq!(error.problems.len(), starts.len(), "{error}");
        for (problem, start) in error.problems.iter().zip(starts) {
            assert!(problem.starts_with(start), "{error}");
        }
        assert!(error.to_string().starts_with("3 problems: (1) spec.exemptions"));
    }

    #[test]
    fn fields_of_a_newer_version_are_left_out_and_named() {
        let decoded = decode(&json!({
            "mode": "Warn",
            "tomorrow": {"a": 1},
            "placement": {"zone": "x", "toleratedTaints": [{"key": "j"}, {"key": "k", "when": "y"}]},
        }))
        .unwrap();
        assert_eq!(decoded.policy.policy.validation, Action::Warn);
        let paths: Vec<&String> = decoded.unknown_fields.iter().collect();
        assert_eq!(
            paths,
            [
                "spec.placement.toleratedTaints[1].when",
                "spec.placement.zone",
                "spec.tomorrow"
            ]
        );
    }

    #[test]
    fn a_value_that_is_not_known_is_an_error_that_names_its_place() {
        for (spec, error) in [
            (
                json!({"mode": "Deny"}),
                "spec.mode: unknown value \"Deny\"; use one of Audit, Warn, Enforce",
            ),
            (
                json!({"exemptions": [{"name": "e", "rules": ["*"], "groups": ["g"], "expiresOn": "2027-01-01", "owner": "a"}]}),
                "spec.exemptions[0]: the field \"reason\" is missing; it has no default",
            ),
        ] {
            assert_eq!(decode(&spec).unwrap_err().to_string(), error);
        }
        assert!(decode(&json!([])).is_err());
        assert!(decode(&json!("text")).is_err());
    }

    #[test]
    fn an_object_of_nothing_but_unknown_fields_comes_to_an_end() {
        let fields: serde_json::Map<String, Value> =
            (0..1000).map(|i| (format!("field{i}"), json!(i))).collect();
        assert!(decode(&Value::Object(fields)).is_err());
    }
}
