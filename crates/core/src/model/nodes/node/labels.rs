//! The labels of a host.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The labels of a host: those of its node, shared with every copy of the node, and those that are not written yet.
/// Clusters have thousands of nodes with dozens of labels each, so that a copy for each set of facts would be most of the
/// memory.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    written: Arc<BTreeMap<String, String>>,
    /// Sorted by key. These apply before `written`.
    expected: Vec<(String, String)>,
}

impl Labels {
    /// The labels of a node.
    pub fn of_node(written: Arc<BTreeMap<String, String>>) -> Self {
        Labels {
            written,
            expected: Vec::new(),
        }
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.position(key)
            .ok()
            .and_then(|at| self.expected.get(at))
            .map(|(_, value)| value)
            .or_else(|| self.written.get(key))
            .map(String::as_str)
    }

    /// Whether there is a label with this key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.expected.is_empty()
    }

    /// Adds or replaces a label that is not on the node yet.
    pub fn expect(&mut self, key: &str, value: String) {
        match self.position(key) {
            Ok(at) => {
                if let Some((_, old)) = self.expected.get_mut(at) {
                    *old = value;
                }
            }
            Err(at) => self.expected.insert(at, (key.to_owned(), value)),
        }
    }

    /// The labels, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut written = self.written.iter().peekable();
        let mut expected = self.expected.iter().peekable();
        std::iter::from_fn(move || {
            let next = match (written.peek(), expected.peek()) {
                (Some((key, _)), Some((other, _))) if *key < other => written.next(),
                (Some((key, _)), Some((other, _))) => {
                    if *key == other {
                        written.next();
                    }
                    expected.next().map(|(key, value)| (key, value))
                }
                (_, None) => written.next(),
                (None, _) => expected.next().map(|(key, value)| (key, value)),
            };
            next.map(|(key, value)| (key.as_str(), value.as_str()))
        })
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(key, _)| key)
    }

    /// The index of an expected label, or that of its insertion.
    fn position(&self, key: &str) -> Result<usize, usize> {
        self.expected
            .binary_search_by(|(other, _)| other.as_str().cmp(key))
    }

    pub(super) fn is_same(&self, other: &Labels) -> bool {
        Arc::ptr_eq(&self.written, &other.written) && self.expected == other.expected
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.iter().eq(other.iter())
    }
}

impl Eq for Labels {}

impl<T: Into<BTreeMap<String, String>>> From<T> for Labels {
    fn from(labels: T) -> Self {
        Labels::of_node(Arc::new(labels.into()))
    }
}

impl FromIterator<(String, String)> for Labels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        labels.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_labels_apply_before_those_of_the_node_and_share_them() {
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        let node = Arc::new(pairs(&[("b", "1"), ("d", "2")]));
        let mut labels = Labels::of_node(Arc::clone(&node));
        for (key, value) in [("e", "5"), ("a", "3"), ("b", "0"), ("b", "4")] {
            labels.expect(key, value.to_owned());
        }
        let all = [("a", "3"), ("b", "4"), ("d", "2"), ("e", "5")];
        assert_eq!(labels.iter().collect::<Vec<_>>(), all);
        assert_eq!(labels.keys().collect::<String>(), "abde");
        assert_eq!(
            ["a", "b", "c", "d"].map(|key| labels.get(key)),
            [Some("3"), Some("4"), None, Some("2")]
        );
        assert!(labels.contains_key("e") && !labels.is_empty() && Labels::default().is_empty());
        assert_eq!(labels, Labels::from(pairs(&all)), "equal when they are written");
        assert_ne!(labels, Labels::of_node(Arc::clone(&node)));
        assert_eq!(Arc::strong_count(&node), 2, "nothing is copied");
    }
}
