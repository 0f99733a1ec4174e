//! Reading a `WindowsPodPolicy` that the API server has stored, perhaps for a version of Transom that is not this one.

use std::collections::BTreeSet;

use serde_json::Value;

use super::compile::{Unknown, compile};
use super::pod_policy::WindowsPodPolicySpec;
use super::policy_file::explain;
use crate::engine::effective::StoredPolicy;

/// So many unknown fields are left out of one object before it is given up.
const MOST_UNKNOWN_FIELDS: usize = 200;

/// A stored policy, and what of it this version does not know.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodedPolicy {
    /// What of it counts.
    pub policy: StoredPolicy,
    /// Names of rules that this version does not have; left out.
    pub unknown_rules: BTreeSet<String>,
    /// Paths of fields that this version does not have; left out.
    pub unknown_fields: BTreeSet<String>,
}

/// A stored policy that cannot be used: what is wrong, where, and what to write instead.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{0}")]
pub struct PolicyError(String);

/// Reads a stored policy. Rules and fields that this version does not know are left out and named: a newer version may
/// have stored them, and the rest of the policy must go on.
///
/// # Errors
/// The first thing that cannot be used, such as a value that this version does not know.
pub fn decode_policy(object: &Value) -> Result<DecodedPolicy, PolicyError> {
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut unknown_fields = BTreeSet::new();
    let spec = decode_spec(object.get("spec"), &mut unknown_fields)?;
    let mut unknown_rules = BTreeSet::new();
    let policy = compile(name.to_owned(), spec, Unknown::LeftOut(&mut unknown_rules))
        .map_err(|problem| PolicyError(problem.message))?;
    Ok(DecodedPolicy {
        policy,
        unknown_rules,
        unknown_fields,
    })
}

fn decode_spec(
    written: Option<&Value>,
    unknown: &mut BTreeSet<String>,
) -> Result<WindowsPodPolicySpec, PolicyError> {
    let mut spec = match written {
        None | Some(Value::Null) => return Ok(WindowsPodPolicySpec::default()),
        Some(spec @ Value::Object(_)) => spec.clone(),
        // serde would take a list for the fields in their order.
        Some(_) => return Err(PolicyError("spec: it has to be a map of fields".to_owned())),
    };
    loop {
        let error = match serde_path_to_error::deserialize::<_, WindowsPodPolicySpec>(&spec) {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        let path = format!("spec.{}", error.path());
        let message = error.inner().to_string();
        let is_unknown = message.starts_with("unknown field") && unknown.len() < MOST_UNKNOWN_FIELDS;
        if !is_unknown || !remove(&mut spec, error.path()) {
            return Err(PolicyError(explain(&path, &message)));
        }
        unknown.insert(path);
    }
}

/// Removes the field at a path; says whether it was there.
fn remove(from: &mut Value, path: &serde_path_to_error::Path) -> bool {
    use serde_path_to_error::Segment;
    let mut at = from;
    let mut segments = path.iter().peekable();
    while let Some(segment) = segments.next() {
        let next = match segment {
            Segment::Map { key } if segments.peek().is_none() => {
                return at.as_object_mut().is_some_and(|map| map.remove(key).is_some());
            }
            Segment::Map { key } => at.get_mut(key),
            Segment::Seq { index } => at.get_mut(index),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        let Some(next) = next else { return false };
        at = next;
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::policy::{Action, Policy};

    fn decode(spec: &Value) -> Result<DecodedPolicy, PolicyError> {
        decode_policy(&json!({"metadata": {"name": "p"}, "spec": spec, "status": {"odd": 1}}))
    }

    #[test]
    fn a_policy_without_a_spec_is_the_default_one() {
        let decoded = decode_policy(&json!({"metadata": {"name": "built-in"}})).unwrap();
        assert_eq!(decoded.policy, StoredPolicy::for_all(Policy::standalone()));
    }

    #[test]
    fn rules_of_a_newer_version_are_left_out_and_named() {
        let decoded = decode(&json!({
            "rules": {"run-as-user": "Warn", "rule-of-tomorrow": "Deny"},
            "exemptions": [
                {"rules": ["host-pid", "another"], "expires": "2027-03-31", "owner": "a", "reason": "b"},
                {"rules": ["another"], "expires": "2027-03-31", "owner": "a", "reason": "b"},
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
    fn fields_of_a_newer_version_are_left_out_and_named() {
        let decoded = decode(&json!({
            "validation": "Warn",
            "tomorrow": {"a": 1},
            "pools": [{"name": "a"}, {"name": "b", "zone": "x", "taints": [{"key": "k", "when": "y"}]}],
        }))
        .unwrap();
        assert_eq!(decoded.policy.policy.validation, Action::Warn);
        let paths: Vec<&String> = decoded.unknown_fields.iter().collect();
        assert_eq!(
            paths,
            [
                "spec.pools[1].taints[0].when",
                "spec.pools[1].zone",
                "spec.tomorrow"
            ]
        );
    }

    #[test]
    fn a_value_that_is_not_known_is_an_error_that_names_its_place() {
        for (spec, error) in [
            (
                json!({"validation": "Enforce"}),
                "spec.validation: there is no value \"Enforce\"; there are Off, Audit, Warn, Deny",
            ),
            (
                json!({"pools": [{"name": "w", "build": "ltsc2022"}]}),
                "spec.pools[0].build: \"ltsc2022\" is no build; write it as in 10.0.20348",
            ),
            (
                json!({"exemptions": [{"expires": "2027-01-01", "owner": "a"}]}),
                "spec.exemptions[0]: missing field `reason`",
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
