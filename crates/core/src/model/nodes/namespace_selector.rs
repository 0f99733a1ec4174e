//! The default node selector of a namespace: labels that admission adds to the nodeSelector of its pods, and the
//! annotations that state them.

use std::collections::BTreeMap;

use super::node::{BETA_OS_LABEL, BUILD_LABELS, OS_LABEL};

/// Labels with the values that a node must have.
pub type NodeSelector = BTreeMap<String, String>;

/// The annotation that the plug-in PodNodeSelector of Kubernetes reads. The plug-in is off by default, and the API does
/// not show whether it is on.
pub const PLUGIN_ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The annotation that OpenShift reads.
const OPENSHIFT_ANNOTATION: &str = "openshift.io/node-selector";

/// What a namespace states about its default node selector. An annotation alone has no effect: the API server must have
/// a plug-in that reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatedSelectors {
    /// The value of [`PLUGIN_ANNOTATION`].
    pub plugin: Option<String>,
    /// The value of the annotation `openshift.io/node-selector`; empty: no selector.
    pub openshift: Option<String>,
}

impl StatedSelectors {
    /// Takes them from annotations, given by key.
    pub fn of(mut annotation: impl FnMut(&str) -> Option<String>) -> Self {
        StatedSelectors {
            plugin: annotation(PLUGIN_ANNOTATION),
            openshift: annotation(OPENSHIFT_ANNOTATION),
        }
    }
}

/// Parses `key=value,key=value`. `None` if it is something else: the API server then refuses every pod of the namespace.
///
/// Source: kubernetes, `labels.ConvertSelectorToLabelsMap`; OpenShift also accepts `==`.
pub fn parse(text: &str) -> Option<NodeSelector> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once("==").or_else(|| pair.split_once('='))?;
        let (key, value) = (key.trim(), value.trim());
        let is_pair = !key.is_empty() && !value.contains('=');
        is_pair.then(|| (key.to_owned(), value.to_owned()))
    };
    pairs.map(pair).collect()
}

/// Whether Transom's placement may write this label into a pod itself.
pub fn is_placed(key: &str) -> bool {
    key == OS_LABEL || key == BETA_OS_LABEL || BUILD_LABELS.contains(&key)
}

/// Whether a selector has only labels that Transom's placement may write into a pod itself.
pub fn is_only_placed(selector: &NodeSelector) -> bool {
    selector.keys().all(|key| is_placed(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(pairs: &[(&str, &str)]) -> NodeSelector {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_selector_is_a_list_of_labels_with_values() {
        let windows = selector(&[("kubernetes.io/os", "windows")]);
        for (text, expected) in [
            ("kubernetes.io/os=windows", Some(windows.clone())),
            (" kubernetes.io/os = windows ,", Some(windows.clone())),
            ("kubernetes.io/os==windows", Some(windows)),
            ("a=b,c=", Some(selector(&[("a", "b"), ("c", "")]))),
            ("", Some(NodeSelector::new())),
            ("kubernetes.io/os", None),
            ("=windows", None),
            ("a in (b)", None),
            ("a=b=c", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
