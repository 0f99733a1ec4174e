//! Label selectors: what they ask for, and whether they select something with these labels. The one matcher of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::string_enum::string_enum;

/// A label selector (`metav1.LabelSelector`); empty, it selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must be there with these values.
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must hold, all of them.
    pub match_expressions: Vec<LabelExpression>,
}

/// One expression of a [`LabelSelector`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelExpression {
    /// The label.
    pub key: String,
    /// How it is compared.
    pub operator: LabelOperator,
    /// With what, for `In` and `NotIn`.
    #[serde(default)]
    pub values: Vec<String>,
}

string_enum! {
    /// How a label is compared.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub enum LabelOperator {
        /// The label has one of the values.
        In = "In",
        /// The label is absent or has none of the values.
        NotIn = "NotIn",
        /// The label is there.
        Exists = "Exists",
        /// The label is not there.
        DoesNotExist = "DoesNotExist",
    }
}

impl LabelSelector {
    /// Whether it asks for this label.
    pub fn names(&self, label: &str) -> bool {
        self.match_labels.contains_key(label) || self.match_expressions.iter().any(|e| e.key == label)
    }

    /// Whether it selects something with these labels.
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
