//! What selectors imply about the operating system: labels, affinity expressions and terms. The engine combines them.

use super::node::{BETA_OS_LABEL, BUILD_LABEL, OS_LABEL, PoolLabel, RESTRICTED_BUILD_LABEL};
use super::os::Os;
use super::pod::{Expression, NodeSelectorTerm};

/// Whether this is the label of a node's Windows build, or its copy.
pub fn is_build_label(key: &str) -> bool {
    key == BUILD_LABEL || key == RESTRICTED_BUILD_LABEL
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

/// The only operating system that an expression allows, if any.
pub fn os_of_expression(expression: &Expression<'_>, pool_labels: &[PoolLabel]) -> Option<Os> {
    let key = &*expression.key;
    let values = &expression.values;
    match &*expression.operator {
        "In" => {
            let mut systems = values.iter().map(|value| os_of_label(key, value, pool_labels));
            let first = systems.next()??;
            systems.all(|os| os == Some(first)).then_some(first)
        }
        // There are two operating systems: excluding one selects the other.
        "NotIn" if is_os_label(key) => {
            let names = |os: Os| values.iter().any(|value| **value == *os.label());
            match (names(Os::Linux), names(Os::Windows)) {
                (true, false) => Some(Os::Windows),
                (false, true) => Some(Os::Linux),
                _ => None,
            }
        }
        // Only Windows nodes have a build label.
        "Exists" | "Gt" | "Lt" if is_build_label(key) => Some(Os::Windows),
        _ => None,
    }
}

/// What one term of a required node affinity implies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TermOs {
    /// Its nodes have this operating system; with the index of the first expression that implies it.
    Is(Os, usize),
    /// It matches no node: it is empty, or its expressions on the operating system exclude each other.
    NoNode,
    /// Nothing.
    Nothing,
}

/// What a term implies for the scheduler. Its expressions are ANDed, so every matching node has the operating system of
/// its expression on that label, even if a build or pool label implies another.
pub fn os_of_term(term: &NodeSelectorTerm<'_>, pool_labels: &[PoolLabel]) -> TermOs {
    if term.is_empty() {
        return TermOs::NoNode;
    }
    let (mut by_label, mut by_pool) = (None, None);
    for (e, expression) in term.match_expressions.iter().enumerate() {
        let Some(os) = os_of_expression(expression, pool_labels) else {
            continue;
        };
        if !is_os_label(&expression.key) {
            by_pool.get_or_insert((os, e));
        } else if by_label.get_or_insert((os, e)).0 != os {
            return TermOs::NoNode;
        }
    }
    match (by_label, by_pool) {
        // Report the first expression that implies it, unless another contradicts it.
        (Some((os, e)), Some((same, first))) if os == same => TermOs::Is(os, e.min(first)),
        (Some((os, e)), _) | (None, Some((os, e))) => TermOs::Is(os, e),
        (None, None) => TermOs::Nothing,
    }
}

/// The operating system that every term implies (terms are ORed; those that match no node are skipped), with the index
/// of the first such term and of its first expression that implies it.
pub fn os_of_terms(terms: &[NodeSelectorTerm<'_>], pool_labels: &[PoolLabel]) -> Option<(Os, usize, usize)> {
    let mut verdict: Option<(Os, usize, usize)> = None;
    for (t, term) in terms.iter().enumerate() {
        let (os, e) = match os_of_term(term, pool_labels) {
            TermOs::Is(os, e) => (os, e),
            TermOs::NoNode => continue,
            // A term that no node can satisfy must not hide what the others imply.
            TermOs::Nothing if term.contradicts_itself() => continue,
            TermOs::Nothing => return None,
        };
        match verdict {
            None => verdict = Some((os, t, e)),
            Some((known, ..)) if known == os => {}
            Some(_) => return None,
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(terms: &str) -> Option<Os> {
        let terms: Vec<NodeSelectorTerm<'_>> = serde_json::from_str(terms).unwrap();
        os_of_terms(&terms, &PoolLabel::well_known()).map(|(os, ..)| os)
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
        // A contradictory term matches no node and hides nothing; a term that only matches no current node may.
        let term = |expressions: &str| format!(r#"{{"matchExpressions": [{expressions}]}}"#);
        let exists = r#"{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}"#;
        for (impossible, expected) in [
            (r#"{"key": "a", "operator": "DoesNotExist"}"#, Some(Os::Windows)),
            (r#"{"key": "c", "operator": "DoesNotExist"}"#, None),
            (
                r#"{"key": "c", "operator": "In", "values": ["x"]}, {"key": "c", "operator": "In", "values": ["y"]}"#,
                Some(Os::Windows),
            ),
            (
                r#"{"key": "c", "operator": "In", "values": ["x"]}, {"key": "c", "operator": "NotIn", "values": ["x", "y"]}"#,
                Some(Os::Windows),
            ),
            (
                r#"{"key": "c", "operator": "In", "values": ["x", "z"]}, {"key": "c", "operator": "NotIn", "values": ["x"]}"#,
                None,
            ),
        ] {
            let impossible = term(&format!("{exists}, {impossible}"));
            for terms in [
                format!("[{impossible}, {windows}]"),
                format!("[{windows}, {impossible}]"),
            ] {
                assert_eq!(verdict(&terms), expected, "{terms}");
            }
            assert_eq!(verdict(&format!("[{impossible}]")), None);
        }
        let openshift = r#"{"matchExpressions": [{"key": "node.openshift.io/os_id", "operator": "In", "values": ["Windows"]}]}"#;
        let no_ubuntu = r#"{"matchExpressions": [{"key": "kubernetes.azure.com/os-sku", "operator": "NotIn", "values": ["Ubuntu", "AzureLinux"]}]}"#;
        assert_eq!(verdict(&format!("[{openshift}]")), Some(Os::Windows));
        assert_eq!(verdict(&format!("[{no_ubuntu}]")), None);
        assert_eq!(verdict("[{}]"), None);
        assert_eq!(verdict("[]"), None);
    }

    #[test]
    fn expressions_of_one_term_are_read_together() {
        let build = r#"{"key": "node.kubernetes.io/windows-build", "operator": "Exists"}"#;
        let pool = r#"{"key": "kubernetes.azure.com/os-sku-effective", "operator": "In", "values": ["Windows2022"]}"#;
        let linux = r#"{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}"#;
        let windows = r#"{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}"#;
        let not_linux = r#"{"key": "beta.kubernetes.io/os", "operator": "NotIn", "values": ["linux"]}"#;
        let of = |terms: &[&[&str]]| {
            let terms = terms
                .iter()
                .map(|term| format!(r#"{{"matchExpressions": [{}]}}"#, term.join(",")));
            verdict(&format!("[{}]", terms.collect::<Vec<_>>().join(",")))
        };
        // Every node that such a term matches has the Linux label.
        assert_eq!(of(&[&[build, linux]]), Some(Os::Linux));
        assert_eq!(of(&[&[linux, build]]), Some(Os::Linux));
        assert_eq!(of(&[&[pool, linux]]), Some(Os::Linux));
        assert_eq!(of(&[&[build, windows]]), Some(Os::Windows));
        assert_eq!(of(&[&[pool]]), Some(Os::Windows));
        // No node has both labels: the term adds no nodes to those of the other.
        assert_eq!(of(&[&[windows, linux]]), None);
        assert_eq!(of(&[&[not_linux, linux], &[windows]]), Some(Os::Windows));
        assert_eq!(of(&[&[windows], &[build, linux]]), None);
    }
}
