//! Parts of the custom resources' OpenAPI schemas that schemars does not derive from the types.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::engine::policy_set::BREAK_GLASS;
use crate::model::cluster::policy::{MOST_AGE_DAYS, PlacementField};
use crate::model::syntax::string_enum::StringEnum;
use crate::rules::IMAGE_BASE_OLD;

/// The key of a label or taint, with or without a prefix.
pub const QUALIFIED_NAME: &str =
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// What is wrong with the key of a label.
const LABEL_KEYS: &str =
    "a key is not a label key; write it as in team or example.com/team, with the prefix in lower case";
/// The value of a label or taint, possibly empty.
pub const LABEL_VALUE: &str = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
/// The name of an extended resource: with a prefix, which Kubernetes' own resources do not have.
pub const EXTENDED_RESOURCE: &str =
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// A DNS label, such as the handler of a RuntimeClass.
pub const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// A quantity of bytes, such as 20Gi, as text or as a number.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])?$",
        "maxLength": 32,
        "minimum": 0,
    })
}

/// `metav1.LabelSelector`, with what the API server would check of it only where it is used.
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels that must be there with these values.",
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
                // A schema has no pattern for keys.
                "x-kubernetes-validations": [{
                    "rule": format!("self.all(key, key.matches('{QUALIFIED_NAME}'))"),
                    "message": LABEL_KEYS,
                }],
            },
            "matchExpressions": {
                "description": "Expressions that must hold, all of them.",
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "The label.",
                            "type": "string", "minLength": 1, "maxLength": 316, "pattern": QUALIFIED_NAME,
                        },
                        "operator": {
                            "description": "How it is compared.",
                            "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "With what: at least one value for In and NotIn, none for the others.",
                            "type": "array",
                            "maxItems": 256,
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "message": "In and NotIn need at least one value, Exists and DoesNotExist none",
                        "fieldPath": ".values",
                    }],
                },
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// Conditions as other writers may add theirs: a map by type.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"description": "The type of the condition.", "type": "string", "maxLength": 316},
                "status": {"description": "The status of the condition.", "type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {
                    "description": "The metadata.generation that the condition describes.",
                    "type": "integer", "format": "int64", "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.", "type": "string", "format": "date-time",
                },
                "reason": {
                    "description": "The reason as one word.",
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {"description": "The reason as a sentence.", "type": "string", "maxLength": 32768},
            },
        },
    })
}

/// What is wrong with a break-glass that would deny.
pub const BREAK_GLASS_DENIES: &str = "break-glass limits what the other policies do; write Warn or Audit";

/// The mode of break-glass, as a rule about the whole object.
pub fn mode_of_break_glass() -> serde_json::Value {
    serde_json::json!([{
        "rule": format!("self.metadata.name != '{BREAK_GLASS}' || self.spec.mode != 'Enforce'"),
        "message": BREAK_GLASS_DENIES,
        "fieldPath": ".spec.mode",
    }])
}

/// What namespace labels may change.
pub fn namespace_overrides(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["None", "Stricter", "Any"]})
}

/// The name of one variant of an enum.
pub fn one_of<E: StringEnum>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": E::NAMES})
}

/// The message for a rule without a setting.
pub fn action_or_age() -> String {
    format!("set action, or parameters.maxAgeDays for {}", IMAGE_BASE_OLD.name)
}

/// The message for an age of another rule.
pub fn age_of_other_rule() -> String {
    format!(
        "only the rule {} has the parameter maxAgeDays",
        IMAGE_BASE_OLD.name
    )
}

/// The parameters of a rule.
pub fn rule_parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "maxAgeDays": {
                "description": format!("For {}: how many days old the Windows base of an image may be. Unset: 180.", IMAGE_BASE_OLD.name),
                "type": "integer", "format": "int32", "minimum": 1, "maximum": MOST_AGE_DAYS,
            },
        },
    })
}

/// The key of a taint.
pub fn taint_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 316, "pattern": QUALIFIED_NAME})
}

/// The value of a taint.
pub fn taint_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 63, "pattern": LABEL_VALUE})
}

/// How a toleration compares the value of a taint.
pub fn toleration_operator(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Equal", "Exists"]})
}

/// What placement writes.
pub fn placement_fields(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": PlacementField::ALL.len(),
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "enum": PlacementField::NAMES},
    })
}

/// The names of rules, or `*`.
pub fn rule_names(_: &mut SchemaGenerator) -> Schema {
    some_strings(64)
}

/// A minor version of Transom.
pub fn rules_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 16,
        "x-kubernetes-validations": [{
            "rule": r"self.matches('^(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)$')",
            "message": "write major and minor version, as in 0.1",
        }],
    })
}

/// The name of a RuntimeClass.
pub fn runtime_class_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 253,
        "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    })
}

/// The pattern of the names of RuntimeClasses.
pub fn class_name_pattern(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 100,
        "pattern": r"^([a-z0-9]|\{release\}|\{isolation\})([-.a-z0-9]|\{release\}|\{isolation\})*([a-z0-9]|\{release\}|\{isolation\})$|^\{release\}$",
        "x-kubernetes-validations": [{"rule": "self.contains('{release}')", "message": WITHOUT_RELEASE}],
    })
}

/// What is wrong with a pattern of class names.
pub const WITHOUT_RELEASE: &str =
    "it must contain {release}, otherwise all releases would share one RuntimeClass";

/// Values of a node label.
pub fn label_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": LABEL_VALUE},
    })
}

/// How values of a node label begin.
pub fn label_value_prefixes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": r"^[A-Za-z0-9][-A-Za-z0-9_.]*$"},
    })
}

/// The maximum number of namespaces, images, users and groups in all exemptions of a policy: each review compares them.
pub const MOST_EXEMPTION_PATTERNS: usize = 512;

/// The maximum length of all these together, in characters.
pub const LONGEST_EXEMPTION_PATTERNS: usize = 16 << 10;

/// What the exemptions of a policy have too much of.
pub const TOO_MANY_EXEMPTION_PATTERNS: &str = "the exemptions name more than 512 namespaces, images, users and groups together; replace several with one that \
     has a *, or exempt a group instead of its users";

/// The same of their length.
pub const TOO_LONG_EXEMPTION_PATTERNS: &str = "the namespaces, images, users and groups of the exemptions have more than 16384 characters together; replace several \
     with one that has a *";

/// The bounds of all exemptions of a policy together.
pub fn exemption_bounds() -> serde_json::Value {
    let sum = |of: &str| {
        let lists = ["namespaces", "images", "usernames", "groups"];
        let sums = lists.map(|list| {
            format!(
                "(has(e.{list}) ? {} : 0)",
                of.replace("LIST", &format!("e.{list}"))
            )
        });
        format!("self.map(e, {}).sum()", sums.join(" + "))
    };
    serde_json::json!([
        {
            "rule": format!("{} <= {MOST_EXEMPTION_PATTERNS}", sum("size(LIST)")),
            "message": TOO_MANY_EXEMPTION_PATTERNS,
        },
        {
            "rule": format!("{} <= {LONGEST_EXEMPTION_PATTERNS}", sum("LIST.map(text, size(text)).sum()")),
            "message": TOO_LONG_EXEMPTION_PATTERNS,
        },
    ])
}

/// What an exemption lacks that is for everybody and everything.
pub const WHOM: &str = "name at least one of namespaces, images, usernames or groups";
/// What an entry of `nodeLabels` lacks.
pub const VALUES_OR_PREFIXES: &str = "name at least one of values or valuePrefixes";
/// What `nodeLabels` has too much of: the API server compares each of them for every pod.
pub const TOO_MANY_NODE_LABEL_VALUES: &str =
    "the labels have more than 64 values and prefixes together; replace several values with one prefix";

/// An operating system, as a policy names it.
pub fn os(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Windows", "Linux"]})
}

/// A build. The rule is there for its message; a pattern would answer with itself.
pub fn build(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [{
            "rule": r"self.matches('^10\\.0\\.[1-9][0-9]{4}$')",
            "message": "this is not a build; write it as in 10.0.20348",
        }],
    })
}

/// What is wrong with the labels of a pool's template.
pub const TEMPLATE_LABELS: &str =
    "a label differs from the one in nodeSelector.matchLabels, so the pool would not select its own nodes";

/// Node labels, at least one.
pub fn selector_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, key.matches('{QUALIFIED_NAME}'))"),
            "message": LABEL_KEYS,
        }],
    })
}

/// A time, as Kubernetes writes it.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// Labels of nodes, with the bounds that the API server checks.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
    })
}

/// Names of namespaces, possibly with `*`.
pub fn short_strings(_: &mut SchemaGenerator) -> Schema {
    some_strings(64)
}

/// Names of users and groups, and images, possibly with `*`.
pub fn long_strings(_: &mut SchemaGenerator) -> Schema {
    some_strings(512)
}

/// A list that is left out if it has no entries.
fn some_strings(longest: usize) -> Schema {
    let mut list = strings(longest);
    list.insert("minItems".to_owned(), serde_json::json!(1));
    list
}

/// What is wrong with an empty list of an exemption.
pub const EMPTY_LIST: &str = "it is empty; name at least one, or leave the field out for all";

/// The name of a user, spelt out.
pub fn user(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 512,
        "x-kubernetes-validations": [{"rule": "!self.contains('*')", "message": USERS_IN_FULL}],
    })
}

/// Kinds with their groups, as in `Rollout.argoproj.io`.
pub fn kinds(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 32,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": 317, "pattern": "^[A-Z][A-Za-z0-9]*([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"},
    })
}

/// What is wrong with a pattern in the place of a user.
pub const USERS_IN_FULL: &str = "write the complete user name, without *";

fn strings(longest: usize) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 256,
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "string", "minLength": 1, "maxLength": longest},
    })
}
