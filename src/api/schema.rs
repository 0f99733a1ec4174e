//! Parts of the custom resources' OpenAPI schemas that do not come out of the types by themselves.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::model::policy::{Action, Inert, ReverseGuard, Switch};

/// A value that may be written `Off` without quotes in a file, which YAML 1.1 (and so kubectl) reads as `false`. The
/// API server takes names only: a structural schema has one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct OrOff<T>(pub T);

impl<'de, T: Deserialize<'de> + Names> Deserialize<'de> for OrOff<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Names> Visitor<'de> for Name<T> {
            type Value = OrOff<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "one of {}", T::NAMES.join(", "))
            }
            fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<Self::Value, E> {
                if on {
                    return Err(E::custom(
                        "true (or an unquoted On) is no value here; there is only Off",
                    ));
                }
                T::deserialize("Off".into_deserializer()).map(OrOff)
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
                T::deserialize(name.into_deserializer()).map(OrOff)
            }
        }
        deserializer.deserialize_any(Name(std::marker::PhantomData))
    }
}

/// A type with a few names, one of them `Off`.
pub trait Names {
    /// The names, as they are written.
    const NAMES: &'static [&'static str];
}

impl Names for Action {
    const NAMES: &'static [&'static str] = &["Deny", "Warn", "Audit", "Off"];
}

impl Names for Switch {
    const NAMES: &'static [&'static str] = &["Apply", "DryRun", "Off"];
}

/// What `inert` was called before.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// Inert fields are denied.
    Off,
    /// They are denied, and what repair would do is told.
    DryRun,
    /// They are taken out.
    Inert,
}

impl Names for Repair {
    const NAMES: &'static [&'static str] = &["Inert", "DryRun", "Off"];
}

impl Names for ReverseGuard {
    const NAMES: &'static [&'static str] = &["Apply", "Warn", "Off"];
}

impl<T: Names> JsonSchema for OrOff<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::NAMES.join("Or").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": T::NAMES})
    }
}

/// The key of a label or taint, with or without a prefix.
pub const QUALIFIED_NAME: &str =
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// The value of a label or taint, possibly empty.
pub const LABEL_VALUE: &str = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
/// A DNS label, such as the handler of a RuntimeClass.
pub const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

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
                "type": {"description": "What it is about.", "type": "string", "maxLength": 316},
                "status": {"description": "Whether it is so.", "type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {
                    "description": "The generation that it was written for.",
                    "type": "integer", "format": "int64", "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "When the status changed last.", "type": "string", "format": "date-time",
                },
                "reason": {
                    "description": "Why, in one word.",
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {"description": "Why, in words.", "type": "string", "maxLength": 32768},
            },
        },
    })
}

/// What namespace labels may change.
pub fn namespace_overrides(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["None", "Stricter", "Any"]})
}

/// What becomes of inert fields.
pub fn inert(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": Inert::ALL.map(Inert::as_str)})
}

/// What `inert` was called before.
pub fn repair(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": Repair::NAMES})
}

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
            "message": "this is no build; write it as in 10.0.20348",
        }],
    })
}

/// Node labels.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
    })
}

/// RuntimeClass names by release.
pub fn runtime_classes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {
            "type": "string", "minLength": 1, "maxLength": 253,
            "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        },
    })
}

/// Names of rules or namespaces, possibly with `*`.
pub fn short_strings(_: &mut SchemaGenerator) -> Schema {
    strings(64)
}

/// Names of users and groups, and images, possibly with `*`.
pub fn long_strings(_: &mut SchemaGenerator) -> Schema {
    strings(512)
}

/// Names of users, each spelt out.
pub fn users(_: &mut SchemaGenerator) -> Schema {
    let mut list = strings(512);
    let rule = serde_json::json!({"rule": "self.all(user, !user.contains('*'))", "message": USERS_IN_FULL});
    list.insert("x-kubernetes-validations".to_owned(), serde_json::json!([rule]));
    list
}

/// What is wrong with a pattern in the place of a user.
pub const USERS_IN_FULL: &str = "a user is named in full here, without *";

fn strings(longest: usize) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 256,
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "string", "minLength": 1, "maxLength": longest},
    })
}
