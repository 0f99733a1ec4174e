//! What selectors say of the operating system: labels, affinity expressions and terms. The weighing of it is the engine's.

use super::node::{BETA_OS_LABEL, BUILD_LABEL, OS_LABEL, TRUSTED_BUILD_LABEL};
use super::os::Os;
use super::pod::{Expression, NodeSelectorTerm};
use super::policy::PoolLabel;

/// Whether this is the label of a node's Windows build, or its mirror.
pub fn is_build_label(key: &str) -> bool {
    key == BUILD_LABEL || key == TRUSTED_BUILD_LABEL
}

/// Whether this is the label of a node's operating system, or its deprecated form.
pub fn is_os_label(key: &str) -> bool {
    key == OS_LABEL || key == BETA_OS_LABEL
}

/// The operating system of the nodes that have this value for this label.
pub fn os_of_label(key: &str, value: &str, pool_labels: &[PoolLabel]) -> Option<Os> {
    if is_os_label(key) {
        Os::parse_lenient(value)
    } else if is_build_label(key) || pool_labels.iter().any(|label| label.matches(key, value)) {
        Some(Os::Windows)
    } else {
        None
    }
}

/// The operating system that an expression leaves, where it leaves one.
pub fn os_of_expression(expression: &Expression<'_>, pool_labels: &[PoolLabel]) -> Option<Os> {
    let key = &*expression.key;
    let values = &expression.values;
    match &*expression.operator {
        "In" => {
            let mut systems = values.iter().map(|value| os_of_label(key, value, pool_labels));
            let first = systems.next()??;
            systems.all(|os| os == Some(first)).then_some(first)
        }
        // There are two operating systems: what is not the one is the other.
        "NotIn" if is_os_label(key) => {
            let names = |os: Os| values.iter().any(|value| **value == *os.label());
            match (names(Os::Linux), names(Os::Windows)) {
                (true, false) => Some(Os::Windows),
                (false, true) => Some(Os::Linux),
                _ => None,
            }
        }
        // Only Windows nodes have a build.
        "Exists" | "Gt" | "Lt" if is_build_label(key) => Some(Os::Windows),
        _ => None,
    }
}

/// The operating system that every term leaves (terms are ORed, their expressions ANDed), with the index of the
/// first expression that says so in the first term.
pub fn os_of_terms(terms: &[NodeSelectorTerm<'_>], pool_labels: &[PoolLabel]) -> Option<(Os, usize, usize)> {
    let mut verdict: Option<(Os, usize, usize)> = None;
    for (t, term) in terms.iter().enumerate() {
        // A term without expressions and fields matches no node at all.
        if term.is_empty() {
            continue;
        }
        let mut systems = (term.match_expressions.iter().enumerate())
            .filter_map(|(e, expression)| Some((os_of_expression(expression, pool_labels)?, t, e)));
        let of_term = systems.next()?;
        match verdict {
            None => verdict = Some(of_term),
            Some((os, ..)) if os == of_term.0 => {}
            Some(_) => return None,
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::Policy;

    fn verdict(terms: &str) -> Option<Os> {
        let terms: Vec<NodeSelectorTerm<'_>> = serde_json::from_str(terms).unwrap();
        os_of_terms(&terms, &Policy::well_known_pool_labels()).map(|(os, ..)| os)
    }

    #[test]
    fn every_term_must_imply_the_operating_system() {
        let windows =
            r#"{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]}"#;
        let not_linux = r#"{"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "NotIn", "values": ["linux"]}]}"#;
        let not_windows = r#"{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"]}]}"#;
        let either = r#"{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux", "windows"]}]}"#;
        let build =
            r#"{"matchExpressions": [{"key": "node.kubernetes.io/windows-build", "operator": "Exists"}]}"#;
        let zone = r#"{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}"#;
        let aks = r#"{"matchExpressions": [{"key": "kubernetes.azure.com/os-sku", "operator": "In", "values": ["Windows2019", "Windows2022"]}]}"#;
        assert_eq!(verdict(&format!("[{windows}]")), Some(Os::Windows));
        assert_eq!(
            verdict(&format!("[{windows}, {not_linux}, {build}, {aks}]")),
            Some(Os::Windows)
        );
        assert_eq!(verdict(&format!("[{not_windows}]")), Some(Os::Linux));
        assert_eq!(verdict(&format!("[{either}]")), None);
        assert_eq!(verdict(&format!("[{windows}, {zone}]")), None);
        assert_eq!(verdict(&format!("[{windows}, {not_windows}]")), None);
        assert_eq!(verdict(&format!("[{windows}, {{}}]")), Some(Os::Windows));
        assert_eq!(verdict("[{}]"), None);
        assert_eq!(verdict("[]"), None);
    }
}
