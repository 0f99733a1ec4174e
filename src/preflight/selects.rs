//! Whether a pod could be put on a node, by its selectors and its tolerations, as the scheduler and the controller of DaemonSets
//! have it.

use std::collections::BTreeMap;

use crate::model::node::Taint;
use crate::model::pod::{Expression, NodeSelectorTerm, PodSpec};

/// What is asked of a node.
#[derive(Clone, Copy, Debug)]
pub struct Place<'n> {
    /// Its name.
    pub name: &'n str,
    /// Its labels.
    pub labels: &'n BTreeMap<String, String>,
    /// Its taints.
    pub taints: &'n [Taint],
}

/// Whether the nodeSelector and the required affinity of a pod select a node.
pub fn selects(pod: &PodSpec<'_>, place: Place<'_>) -> bool {
    let label = |key: &str| place.labels.get(key).map(String::as_str);
    let mut selector = pod.node_selector.iter();
    if !selector.all(|(key, value)| label(key) == Some(&**value)) {
        return false;
    }
    let terms = pod.required_terms();
    terms.is_empty() || terms.iter().any(|term| is_met(term, place))
}

fn is_met(term: &NodeSelectorTerm<'_>, place: Place<'_>) -> bool {
    let of_label = |expression: &Expression<'_>| {
        let value = place.labels.get(&*expression.key).map(String::as_str);
        holds(expression, value)
    };
    // metadata.name is the only field that there is.
    let of_field = |expression: &Expression<'_>| holds(expression, Some(place.name));
    !term.is_empty() && term.match_expressions.iter().all(of_label) && term.match_fields.iter().all(of_field)
}

/// Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.
fn holds(expression: &Expression<'_>, value: Option<&str>) -> bool {
    let is_listed = |value: &str| expression.values.iter().any(|listed| **listed == *value);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = expression.values.iter().next().and_then(|bound| number(bound));
    match &*expression.operator {
        "In" => value.is_some_and(is_listed),
        "NotIn" => !value.is_some_and(is_listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value
            .and_then(number)
            .zip(bound)
            .is_some_and(|(value, bound)| value > bound),
        "Lt" => value
            .and_then(number)
            .zip(bound)
            .is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// The first taint of a node that stays and that a pod does not tolerate.
pub fn kept_off_by<'n>(pod: &PodSpec<'_>, place: Place<'n>) -> Option<&'n Taint> {
    let tolerates = |taint: &Taint| {
        pod.tolerations
            .iter()
            .any(|toleration| taint.is_tolerated_by(toleration))
    };
    (place.taints.iter())
        .filter(|taint| taint.effect != "PreferNoSchedule" && taint.lasts())
        .find(|taint| !tolerates(taint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_and_affinity_are_read_as_the_scheduler_reads_them() {
        let labels: BTreeMap<String, String> = [("kubernetes.io/os", "windows"), ("n", "5")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let place = Place {
            name: "w1",
            labels: &labels,
            taints: &[],
        };
        for (pod, expected) in [
            ("{}", true),
            (r#"{"nodeSelector": {"kubernetes.io/os": "windows"}}"#, true),
            (r#"{"nodeSelector": {"kubernetes.io/os": "linux"}}"#, false),
        ] {
            let pod: PodSpec<'_> = serde_json::from_str(pod).unwrap();
            assert_eq!(selects(&pod, place), expected, "{pod:?}");
        }
        for (operator, values, expected) in [
            ("In", r#"["windows"]"#, true),
            ("NotIn", r#"["windows"]"#, false),
            ("Exists", "[]", true),
            ("DoesNotExist", "[]", false),
            ("Odd", "[]", false),
        ] {
            let pod = format!(
                r#"{{"affinity": {{"nodeAffinity": {{"requiredDuringSchedulingIgnoredDuringExecution": {{"nodeSelectorTerms":
                [{{"matchExpressions": [{{"key": "kubernetes.io/os", "operator": "{operator}", "values": {values}}}]}}]}}}}}}}}"#
            );
            let pod: PodSpec<'_> = serde_json::from_str(&pod).unwrap();
            assert_eq!(selects(&pod, place), expected, "{operator}");
        }
    }

    #[test]
    fn a_taint_that_passes_keeps_nothing_off() {
        let labels = BTreeMap::new();
        let taints = [
            Taint::no_schedule("node.kubernetes.io/not-ready", ""),
            Taint::no_schedule("os", "windows"),
        ];
        let place = Place {
            name: "w1",
            labels: &labels,
            taints: &taints,
        };
        let pod = PodSpec::default();
        assert_eq!(kept_off_by(&pod, place), Some(&taints[1]));
        let pod: PodSpec<'_> = serde_json::from_str(r#"{"tolerations": [{"operator": "Exists"}]}"#).unwrap();
        assert_eq!(kept_off_by(&pod, place), None);
    }
}
