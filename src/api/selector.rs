//! Label selectors: what the API server would refuse of them only where it uses them itself. In a custom resource it
//! stores them as they are, and they would select nothing without a word.

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::field_error::{FieldError, FieldStep, place};
use crate::model::objects::label_selector::{LabelExpression, LabelOperator, LabelSelector};
use crate::model::syntax::dns::is_subdomain;
use crate::model::syntax::text::cut;

/// What is wrong with the selector at `base` of a pod policy.
pub fn problems(base: Vec<FieldStep>, selector: &LabelSelector) -> Vec<FieldError> {
    let mut visit = Look {
        base,
        problems: Vec::new(),
    };
    for (key, value) in &selector.match_labels {
        visit.label(key, value);
    }
    for (i, expression) in selector.match_expressions.iter().enumerate() {
        visit.expression(
            i,
            &expression.key,
            expression.operator.as_str(),
            &expression.values,
        );
    }
    visit.problems
}

/// What is wrong with the selector at `base`, as Kubernetes has it.
fn problems_of(base: Vec<FieldStep>, selector: &meta::LabelSelector) -> Vec<FieldError> {
    let mut visit = Look {
        base,
        problems: Vec::new(),
    };
    for (key, value) in selector.match_labels.iter().flatten() {
        visit.label(key, value);
    }
    for (i, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let values = expression.values.as_deref().unwrap_or_default();
        visit.expression(i, &expression.key, &expression.operator, values);
    }
    visit.problems
}

/// The `spec.nodeSelector` of a node policy.
///
/// # Errors
/// What is wrong with it, in words; it must select nothing then.
pub fn node_selector(selector: &meta::LabelSelector) -> Result<LabelSelector, Vec<String>> {
    let problems = problems_of(place(&["spec", "nodeSelector"]), selector);
    if !problems.is_empty() {
        return Err(problems.into_iter().map(|problem| problem.message).collect());
    }
    let expression = |written: &meta::LabelSelectorRequirement| {
        Some(LabelExpression {
            key: written.key.clone(),
            // Every other operator is a problem.
            operator: (LabelOperator::ALL.into_iter()).find(|known| known.as_str() == written.operator)?,
            values: written.values.clone().unwrap_or_default(),
        })
    };
    let expressions = selector.match_expressions.iter().flatten();
    Ok(LabelSelector {
        match_labels: selector.match_labels.clone().unwrap_or_default(),
        match_expressions: expressions.filter_map(expression).collect(),
    })
}

struct Look {
    base: Vec<FieldStep>,
    problems: Vec<FieldError>,
}

impl Look {
    fn note(&mut self, below: &[FieldStep], what: Option<String>) {
        let path = [&self.base, below].concat();
        self.problems.extend(what.map(|what| FieldError::at(path, &what)));
    }

    fn label(&mut self, key: &str, value: &str) {
        let labels = [&self.base[..], &[FieldStep::Key("matchLabels".to_owned())]].concat();
        let path = [&labels[..], &[FieldStep::Key(key.to_owned())]].concat();
        if let Some(what) = wrong_key(key) {
            // The key is in the message; as a part of the path it would be hard to read.
            let message = FieldError::at(labels, &what).message;
            self.problems.push(FieldError {
                path: path.clone(),
                message,
            });
        }
        let value = wrong_value(value);
        self.problems
            .extend(value.map(|what| FieldError::at(path, &what)));
    }

    fn expression(&mut self, index: usize, key: &str, operator: &str, values: &[String]) {
        let below = |field: &str| {
            vec![
                FieldStep::Key("matchExpressions".to_owned()),
                FieldStep::Index(index),
                FieldStep::Key(field.to_owned()),
            ]
        };
        self.note(&below("key"), wrong_key(key));
        match operator {
            "In" | "NotIn" if values.is_empty() => self.note(
                &below("values"),
                Some(format!(
                    "{operator} needs at least one value; to require only that the label exists, write Exists or \
                     DoesNotExist"
                )),
            ),
            "In" | "NotIn" => (),
            "Exists" | "DoesNotExist" if values.is_empty() => (),
            "Exists" | "DoesNotExist" => {
                let other = if operator == "Exists" { "In" } else { "NotIn" };
                let what = format!("{operator} takes no values; remove them, or write {other}");
                self.note(&below("values"), Some(what));
            }
            other => {
                let what = format!(
                    "unknown operator \"{}\"; use In, NotIn, Exists or DoesNotExist",
                    cut(other, 64)
                );
                self.note(&below("operator"), Some(what));
            }
        }
        for (i, value) in values.iter().enumerate() {
            let mut place = below("values");
            place.push(FieldStep::Index(i));
            self.note(&place, wrong_value(value));
        }
    }
}

/// Why this is not a label key.
///
/// Source: `k8s.io/apimachinery/pkg/util/validation`, `IsQualifiedName`.
pub fn wrong_key(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let why = if name.is_empty() {
        "its name is empty"
    } else if name.len() > 63 {
        "its name has more than 63 characters"
    } else if !is_name(name) {
        "its name takes letters, digits, - _ and . with a letter or digit at both ends"
    } else if prefix.is_some_and(|prefix| prefix.len() > 253) {
        "its prefix has more than 253 characters"
    } else if !prefix.is_none_or(is_subdomain) {
        "its prefix is a DNS name in lower case"
    } else {
        return None;
    };
    let key = cut(key, 80);
    Some(format!(
        "\"{key}\" is not a label key: {why}; write it as in team or example.com/team"
    ))
}

/// Why this is not a label value.
///
/// Source: `k8s.io/apimachinery/pkg/util/validation`, `IsValidLabelValue`.
pub fn wrong_value(value: &str) -> Option<String> {
    let why = if value.len() > 63 {
        "it has more than 63 characters"
    } else if !value.is_empty() && !is_name(value) {
        "it takes letters, digits, - _ and . with a letter or digit at both ends"
    } else {
        return None;
    };
    let value = cut(value, 80);
    Some(format!("no label has the value \"{value}\": {why}"))
}

/// Why no label's value begins like this.
pub fn wrong_prefix(prefix: &str) -> Option<String> {
    // The beginning of a value, with a letter after it, is a value.
    let is_one = !prefix.is_empty() && prefix.len() <= 63 && is_name(&format!("{prefix}a"));
    (!is_one).then(|| {
        let prefix = cut(prefix, 80);
        format!("no value of a label begins with \"{prefix}\": it takes letters, digits, - _ and ., and begins with a letter or digit")
    })
}

fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is wrong with it, in both forms; they must agree.
    fn wrong(selector: &Value) -> Vec<String> {
        let of_nodes: meta::LabelSelector = serde_json::from_value(selector.clone()).unwrap();
        let found = problems_of(place(&["s"]), &of_nodes);
        if let Ok(ours) = serde_json::from_value::<LabelSelector>(selector.clone()) {
            assert_eq!(problems(place(&["s"]), &ours), found);
        }
        found.into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn what_the_api_server_takes_for_labels_is_right() {
        let prefix = vec!["p".repeat(63); 3].join(".");
        let keys = [
            "a",
            "A-b_c.9",
            "example.com/team",
            &"n".repeat(63),
            &format!("{prefix}/{}", "n".repeat(63)),
        ];
        for key in keys {
            for value in ["", "x", "a.b-c_D", &"v".repeat(63)] {
                let selector = json!({"matchLabels": {key: value}, "matchExpressions": [
                    {"key": key, "operator": "In", "values": [value]}, {"key": key, "operator": "DoesNotExist"}]});
                assert_eq!(wrong(&selector), [""; 0], "{key}={value}");
            }
        }
    }

    #[test]
    fn what_is_no_label_is_named_with_its_field_and_the_cure() {
        let long = format!("{}/a", "p".repeat(254));
        for key in [
            "",
            "not a key!",
            "-a",
            "a.",
            "a/b/c",
            "/a",
            "a/",
            "Example.com/a",
            "a..b/c",
            &"n".repeat(64),
            &long,
            "ü",
        ] {
            let found = wrong(&json!({"matchLabels": {key: "x"}}));
            assert!(
                found.len() == 1 && found[0].starts_with("s.matchLabels: \""),
                "{key}: {found:?}"
            );
            let found = wrong(&json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}));
            assert!(
                found.len() == 1 && found[0].starts_with("s.matchExpressions[0].key: \""),
                "{key}: {found:?}"
            );
        }
        assert_eq!(
            wrong(&json!({"matchLabels": {"not a key!": "x"}})),
            [
                "s.matchLabels: \"not a key!\" is not a label key: its name takes letters, digits, - _ and . with a \
                 letter or digit at both ends; write it as in team or example.com/team"
            ]
        );
        for value in ["a b", "-", "a_", "é", &"v".repeat(64)] {
            let found = wrong(&json!({"matchLabels": {"a/b": value}}));
            assert!(
                found.len() == 1 && found[0].starts_with("s.matchLabels[a/b]: no label has the value"),
                "{value}: {found:?}"
            );
        }
    }

    #[test]
    fn an_operator_comes_with_the_values_that_it_needs() {
        let found = wrong(&json!({"matchExpressions": [
            {"key": "a", "operator": "Is", "values": ["b"]},
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "NotIn", "values": []},
            {"key": "a", "operator": "Exists", "values": ["b", "c d"]},
        ]}));
        let starts = [
            "s.matchExpressions[0].operator: unknown operator \"Is\"; use In,",
            "s.matchExpressions[1].values: In needs at least one value;",
            "s.matchExpressions[2].values: NotIn needs at least one value;",
            "s.matchExpressions[3].values: Exists takes no values; remove them, or write In",
            "s.matchExpressions[3].values[1]: no label has the value \"c d\"",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
    }
}
