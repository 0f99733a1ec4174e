//! Label selectors and their matcher. All code that matches label selectors uses this module.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::syntax::string_enum::string_enum;

/// A label selector (`metav1.LabelSelector`); empty, it selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must exist with these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must all hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelExpression>,
}

/// One expression of a [`LabelSelector`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelExpression {
    pub key: String,
    pub operator: LabelOperator,
    /// The values, for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

string_enum! {
    /// The operator of an expression.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub enum LabelOperator {
        /// The label has one of the values.
        In = "In",
        /// The label is absent or has none of the values.
        NotIn = "NotIn",
        /// The label exists.
        Exists = "Exists",
        /// The label does not exist.
        DoesNotExist = "DoesNotExist",
    }
}

impl LabelSelector {
    /// Whether it uses this label.
    pub fn names(&self, label: &str) -> bool {
        self.match_labels.contains_key(label) || self.match_expressions.iter().any(|e| e.key == label)
    }

    /// Whether it selects an object with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let has = |expression: &LabelExpression| {
            labels
                .get(&expression.key)
                .is_some_and(|value| expression.values.contains(value))
        };
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|expression| match expression.operator {
                    LabelOperator::In => has(expression),
                    LabelOperator::NotIn => !has(expression),
                    LabelOperator::Exists => labels.contains_key(&expression.key),
                    LabelOperator::DoesNotExist => !labels.contains_key(&expression.key),
                })
    }
}
