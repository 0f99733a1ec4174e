//! Whether a node has what a pod's selectors ask for, as the scheduler compares it.
//!
//! Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.

use crate::cluster::node::NodeView;
use crate::model::pod::{Expression, PodSpec};

/// Whether a node meets the nodeSelector and the required affinity of a pod, as far as they speak of these labels.
pub(super) fn meets(spec: &PodSpec<'_>, node: &NodeView, of: &dyn Fn(&str) -> bool) -> bool {
    let label = |key: &str| node.labels.get(key).map(String::as_str);
    let selected = (spec.node_selector.iter()).all(|(key, value)| !of(key) || label(key) == Some(&**value));
    let terms = spec.required_terms();
    let has_affinity = !terms.is_empty();
    let affine = terms.iter().filter(|term| !term.is_empty()).any(|term| {
        let labels = term
            .match_expressions
            .iter()
            .filter(|expression| of(&expression.key));
        let fields = term.match_fields.iter().filter(|field| of(&field.key));
        labels
            .into_iter()
            .all(|expression| holds(expression, label(&expression.key)))
            && fields.into_iter().all(|field| holds(field, Some(&node.name)))
    });
    selected && (!has_affinity || affine)
}

fn holds(expression: &Expression<'_>, value: Option<&str>) -> bool {
    let among = || value.is_some_and(|value| expression.values.iter().any(|one| **one == *value));
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = |is: fn(&i64, &i64) -> bool| {
        let [bound] = &*expression.values else {
            return false;
        };
        (value.and_then(number).zip(number(bound))).is_some_and(|(value, bound)| is(&value, &bound))
    };
    match &*expression.operator {
        "In" => among(),
        "NotIn" => !among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(i64::gt),
        "Lt" => compared(i64::lt),
        _ => false,
    }
}
