//! What selectors imply about the operating system: labels, affinity expressions and terms. The engine combines them.

use super::node::{BETA_OS_LABEL, BUILD_LABEL, NodeLabel, OS_LABEL, RESTRICTED_BUILD_LABEL};
use super::node_affinity::can_match;
use crate::model::objects::pod::{Expression, NodeSelectorTerm};
use crate::model::syntax::json_types::Map;
use crate::model::windows::os::Os;

/// Whether this is the label of a node's Windows build, or its copy.
pub fn is_build_label(key: &str) -> bool {
    key == BUILD_LABEL || key == RESTRICTED_BUILD_LABEL
}

/// Whether this is the label of a node's operating system, or its deprecated form.
pub fn is_os_label(key: &str) -> bool {
    key == OS_LABEL || key == BETA_OS_LABEL
}

/// The operating system of the nodes that have this value for this label.
pub fn os_of_label(key: &str, value: &str, node_labels: &[NodeLabel]) -> Option<Os> {
    if is_os_label(key) {
        Os::parse_lenient(value)
    } else if is_build_label(key) || node_labels.iter().any(|label| label.matches(key, value)) {
        Some(Os::Windows)
    } else {
        None
    }
}

/// The only operating system that an expression allows, if any.
pub fn os_of_expression(expression: &Expression<'_>, node_labels: &[NodeLabel]) -> Option<Os> {
    let key = &*expression.key;
    let values = &expression.values;
    match &*expression.operator {
        // No node has another value, so that others allow nothing.
        "In" if is_os_label(key) => {
            let mut systems = values.iter().filter_map(|value| os_of_label(key, value, &[]));
            let first = systems.next()?;
            systems.all(|os| os == first).then_some(first)
        }
        "In" => {
            let mut systems = values.iter().map(|value| os_of_label(key, value, node_labels));
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

/// The values of the label of the operating system, which every kubelet writes.
fn values_of_nodes(label: &str) -> Option<&'static [&'static str]> {
    is_os_label(label).then_some(&["linux", "windows"])
}

/// What one term of a required node affinity implies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TermOs {
    /// Its nodes have this operating system; with the index of the first expression that implies it.
    Is(Os, usize),
    /// It matches no node: it is empty, or its expressions on the operating system exclude each other.
    NoNode,
    Nothing,
}

/// What a term implies for the scheduler. Its expressions are ANDed, so every matching node has the operating system of
/// its expression on that label, even if a build or pool label implies another.
pub fn os_of_term(term: &NodeSelectorTerm<'_>, node_labels: &[NodeLabel]) -> TermOs {
    if term.is_empty() {
        return TermOs::NoNode;
    }
    let (mut by_label, mut by_pool) = (None, None);
    for (e, expression) in term.match_expressions.iter().enumerate() {
        let Some(os) = os_of_expression(expression, node_labels) else {
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

/// The operating system that every term implies (terms are ORed), with the index of the first such term and of its first
/// expression that implies it.
///
/// A term that no node can satisfy, together with the pod's nodeSelector, is skipped if another term is left: it must
/// not hide what that one implies.
pub fn os_of_terms(
    terms: &[NodeSelectorTerm<'_>],
    node_selector: &Map<'_>,
    node_labels: &[NodeLabel],
) -> Option<(Os, usize, usize)> {
    let possible: Vec<bool> = (terms.iter())
        .map(|term| terms.len() == 1 || can_match(term, node_selector, values_of_nodes))
        .collect();
    let is_any_possible = possible.contains(&true);
    let mut verdict: Option<(Os, usize, usize)> = None;
    for (t, (term, is_possible)) in terms.iter().zip(possible).enumerate() {
        if is_any_possible && !is_possible {
            continue;
        }
        let (os, e) = match os_of_term(term, node_labels) {
            TermOs::Is(os, e) => (os, e),
            TermOs::NoNode => continue,
            TermOs::Nothing if !is_possible => continue,
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
        os_of_terms(&terms, &Map::default(), &NodeLabel::well_known()).map(|(os, ..)| os)
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
        for (values, expected) in [
            (r#"["windows", "x"]"#, Some(Os::Windows)),
            (r#"["x", "linux"]"#, Some(Os::Linux)),
            (r#"["x", "linux", "windows"]"#, None),
            (r#"["x"]"#, None),
        ] {
            let one = format!(
                r#"{{"matchExpressions": [{{"key": "kubernetes.io/os", "operator": "In", "values": {values}}}]}}"#
            );
            assert_eq!(verdict(&format!("[{one}]")), expected, "{values}");
        }
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

    #[test]
    fn a_term_that_no_node_can_satisfy_hides_nothing() {
        let windows = r#"{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}"#;
        let linux = r#"{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}"#;
        let term = |expressions: &str| format!(r#"{{"matchExpressions": [{expressions}]}}"#);
        let on = |key: &str, operator: &str, values: &[&str]| {
            format!(r#"{{"key": "{key}", "operator": "{operator}", "values": {values:?}}}"#)
        };
        let not_in: Vec<String> = (0..63).map(|zeros| format!("{}5", "0".repeat(zeros))).collect();
        let not_in: Vec<&str> = not_in.iter().map(String::as_str).collect();
        let many: Vec<String> = (0..40).map(|n| on(&format!("k{n}"), "Exists", &[])).collect();
        for (expressions, is_possible) in [
            (vec![on("a", "Gt", &["9"]), on("a", "Lt", &["3"])], false),
            (vec![on("a", "Gt", &["9"]), on("a", "Lt", &["10"])], false),
            (vec![on("a", "Gt", &["9"]), on("a", "Lt", &["11"])], true),
            (vec![on("a", "Gt", &["9223372036854775807"])], false),
            (vec![on("a", "Gt", &["9223372036854775806"])], true),
            // Integers beyond 64 bits do not parse, and no label value is negative.
            (vec![on("a", "Gt", &["9223372036854775808"])], false),
            (vec![on("a", "Lt", &["-9223372036854775808"])], false),
            (vec![on("a", "Lt", &["0"])], false),
            (vec![on("a", "Lt", &["1"])], true),
            (vec![on("a", "Gt", &["many"])], false),
            (vec![on("a", "Gt", &["1", "2"])], false),
            (vec![on("a", "In", &["3", "x"]), on("a", "Gt", &["3"])], false),
            (vec![on("a", "In", &["3", "4"]), on("a", "Gt", &["3"])], true),
            (vec![on("a", "In", &["not a label value"])], false),
            (vec![on("a", "In", &[])], false),
            (vec![on("a", "NotIn", &[])], false),
            (vec![on("a", "Exists", &["x"])], false),
            (vec![on("a", "DoesNotExist", &[]), on("a", "Lt", &["9"])], false),
            (vec![on("a", "DoesNotExist", &[]), on("a", "NotIn", &["x"])], true),
            (
                [many.clone(), vec![on("k7", "DoesNotExist", &[])]].concat(),
                false,
            ),
            (many, true),
            (
                vec![
                    on("a", "Gt", &["4"]),
                    on("a", "Lt", &["6"]),
                    on("a", "NotIn", &not_in),
                ],
                false,
            ),
            (
                vec![
                    on("a", "Gt", &["4"]),
                    on("a", "Lt", &["6"]),
                    on("a", "NotIn", &not_in[1..]),
                ],
                true,
            ),
            (
                vec![
                    on("a", "Gt", &["4"]),
                    on("a", "Lt", &["7"]),
                    on("a", "NotIn", &not_in),
                ],
                true,
            ),
            // Nodes have one of two operating systems.
            (vec![on("kubernetes.io/os", "Gt", &["1"])], false),
            (vec![on("kubernetes.io/os", "In", &["darwin"])], false),
            (vec![on("kubernetes.io/os", "DoesNotExist", &[])], false),
            (
                vec![on("kubernetes.io/os", "NotIn", &["linux", "windows"])],
                false,
            ),
            (vec![on("kubernetes.io/os", "NotIn", &["darwin"])], true),
            (vec![on("kubernetes.io/os", "Exists", &[])], true),
        ] {
            let other = term(&expressions.join(", "));
            // A term that implies Linux, but that no node satisfies, hides nothing either.
            let with_linux = term(&[vec![linux.to_owned()], expressions].concat().join(", "));
            for other in [other, with_linux] {
                for terms in [
                    format!("[{other}, {}]", term(windows)),
                    format!("[{}, {other}]", term(windows)),
                ] {
                    let expected = (!is_possible).then_some(Os::Windows);
                    assert_eq!(verdict(&terms), expected, "{terms}");
                }
            }
        }
        let fields = |operator: &str, name: &str| {
            format!(r#"{{"key": "metadata.name", "operator": "{operator}", "values": ["{name}"]}}"#)
        };
        let named =
            |one: &str, other: &str| format!(r#"[{{"matchFields": [{one}, {other}]}}, {}]"#, term(windows));
        assert_eq!(
            verdict(&named(&fields("In", "a"), &fields("In", "b"))),
            Some(Os::Windows)
        );
        assert_eq!(
            verdict(&named(&fields("In", "a"), &fields("NotIn", "a"))),
            Some(Os::Windows)
        );
        assert_eq!(verdict(&named(&fields("In", "a"), &fields("NotIn", "b"))), None);
    }

    #[test]
    fn the_node_selector_applies_to_every_term() {
        let terms = r#"[{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]},
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}]"#;
        let terms: Vec<NodeSelectorTerm<'_>> = serde_json::from_str(terms).unwrap();
        for (selector, expected) in [
            (r#"{"pool": "a"}"#, None),
            (r#"{"pool": "b"}"#, Some(Os::Windows)),
            (r#"{"disk": "ssd"}"#, None),
        ] {
            let selector: Map<'_> = serde_json::from_str(selector).unwrap();
            let os = os_of_terms(&terms, &selector, &[]).map(|(os, ..)| os);
            assert_eq!(os, expected, "{selector:?}");
        }
    }
}
