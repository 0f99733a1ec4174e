//! What the scheduler and PodTolerationRestriction do, told a second time and independently of the program.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Node labels that the random pods select by, in combinations that a cluster may have.
pub fn nodes() -> Vec<BTreeMap<String, String>> {
    let mut nodes = Vec::new();
    for (os, build) in [
        ("linux", ""),
        ("windows", ""),
        ("windows", "10.0.17763"),
        ("windows", "10.0.20348"),
        ("windows", "10.0.26100"),
    ] {
        for bits in 0..16 {
            let pick = |bit: usize, yes: &str, no: &str| {
                if bits >> bit & 1 == 1 {
                    yes.to_owned()
                } else {
                    no.to_owned()
                }
            };
            let mut labels = BTreeMap::from([
                ("kubernetes.io/os".to_owned(), os.to_owned()),
                ("beta.kubernetes.io/os".to_owned(), os.to_owned()),
                ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
                ("metadata.name".to_owned(), pick(0, "node-0", "node-1")),
                ("zone".to_owned(), pick(1, "a", "c")),
                ("disk".to_owned(), pick(2, "ssd", "hdd")),
            ]);
            if bits >> 3 == 1 {
                labels.insert("gpu".to_owned(), String::new());
            }
            if !build.is_empty() {
                labels.insert("node.kubernetes.io/windows-build".to_owned(), build.to_owned());
                labels.insert(
                    "transom.dev.node-restriction.kubernetes.io/windows-build".to_owned(),
                    build.to_owned(),
                );
                labels.insert("kubernetes.azure.com/os-sku".to_owned(), "Windows2022".to_owned());
            }
            nodes.push(labels);
        }
    }
    nodes
}

fn holds(expression: &Value, node: &BTreeMap<String, String>) -> bool {
    let has = node.get(expression["key"].as_str().unwrap_or_default());
    let among = has.is_some_and(|has| {
        expression["values"]
            .as_array()
            .is_some_and(|values| values.contains(&json!(has)))
    });
    match expression["operator"].as_str() {
        Some("In") => among,
        Some("NotIn") => !among,
        Some("Exists") => has.is_some(),
        Some("DoesNotExist") => has.is_none(),
        // Builds are no integers, and no other label is compared in these tests.
        _ => false,
    }
}

/// Whether a pod's nodeSelector and required node affinity let it onto a node.
///
/// Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`; an empty term matches nothing.
pub fn may_run(spec: &Value, node: &BTreeMap<String, String>) -> bool {
    let selected = (spec["nodeSelector"].as_object().into_iter().flatten())
        .all(|(key, value)| node.get(key).map(String::as_str) == value.as_str());
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let list = |term: &Value, field: &str| term[field].as_array().cloned().unwrap_or_default();
    let affine = required["nodeSelectorTerms"].as_array().is_none_or(|terms| {
        terms.iter().any(|term| {
            let all = [list(term, "matchExpressions"), list(term, "matchFields")].concat();
            !all.is_empty() && all.iter().all(|expression| holds(expression, node))
        })
    });
    selected && affine
}

/// Whether a toleration of the whitelist covers another.
///
/// Source: `kubernetes: pkg/apis/core/toleration/toleration.go`, `isSuperset`.
pub fn covers(listed: &Value, toleration: &Value) -> bool {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let operator = text(listed, "operator");
    let key = text(listed, "key");
    if key != text(toleration, "key") && !(key.is_empty() && operator == "Exists") {
        return false;
    }
    let effect = text(listed, "effect");
    if !effect.is_empty() && effect != text(toleration, "effect") {
        return false;
    }
    match operator.as_str() {
        "Exists" => true,
        "" | "Equal" => {
            text(toleration, "operator") == "Equal" && text(listed, "value") == text(toleration, "value")
        }
        _ => false,
    }
}
