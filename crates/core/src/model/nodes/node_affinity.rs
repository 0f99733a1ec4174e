//! Whether a node satisfies the nodeSelector and the required node affinity of a pod, as the scheduler compares them.
//! The only matcher of node labels; `node` handles taints, and `engine::scheduling` everything else that keeps a pod
//! off a node.
//!
//! Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::model::objects::pod::{Expression, NodeSelector, NodeSelectorTerm, PodSpec};
use crate::model::syntax::json_types::{Map, Str};

/// The only field of nodes that `matchFields` supports.
const NAME_FIELD: &str = "metadata.name";

/// What is known about one label of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LabelValue<'n> {
    /// The node has the label with this value.
    Is(Cow<'n, str>),
    /// The node does not have the label.
    Absent,
    /// Unknown: the node does not exist yet, and its pool does not declare the label.
    Unknown,
}

impl<'n> From<Option<&'n str>> for LabelValue<'n> {
    fn from(value: Option<&'n str>) -> Self {
        value.map_or(LabelValue::Absent, |value| LabelValue::Is(value.into()))
    }
}

/// Name, labels and extended resources of a node, or what is known about the future nodes of a pool.
pub trait KnownNodeLabels {
    /// Its name; `None` for a pool, whose nodes have no names yet.
    fn node_name(&self) -> Option<&str>;
    /// One of its labels.
    fn label_value(&self, key: &str) -> LabelValue<'_>;
    /// Whether it offers a pod this amount of an extended resource.
    fn offers(&self, _resource: &str, _amount: u64) -> Match {
        Match::Unknown
    }
}

/// The result of a comparison. `Unknown` occurs for labels of pools without nodes, and for resources.
///
/// Ordered, so that `min` is the result for all of several requirements, and `max` for any of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Match {
    /// The node does not satisfy it.
    No,
    /// It depends on unknown labels.
    Unknown,
    /// The node satisfies it.
    Yes,
}

impl From<bool> for Match {
    fn from(is: bool) -> Self {
        if is { Match::Yes } else { Match::No }
    }
}

/// Whether a node satisfies the nodeSelector and the required node affinity of a pod. Ignores `nodeName` and the
/// additions of a RuntimeClass.
pub fn matches(pod: &PodSpec<'_>, node: &impl KnownNodeLabels) -> Match {
    matches_of(pod, node, |_| true)
}

/// The same, considering only the requirements on these labels and fields.
pub fn matches_of(pod: &PodSpec<'_>, node: &impl KnownNodeLabels, of: impl Fn(&str) -> bool) -> Match {
    let selector = pod.node_selector.iter().filter(|(key, _)| of(key));
    let mut selector = selector.map(|(key, value)| matches_label(key, value, node));
    all(&mut selector).min(matches_terms(pod, node, &of))
}

/// Whether a node has this value for a label, as a nodeSelector requires.
pub fn matches_label(key: &str, value: &str, node: &impl KnownNodeLabels) -> Match {
    match node.label_value(key) {
        LabelValue::Is(has) => Match::from(has == value),
        LabelValue::Absent => Match::No,
        LabelValue::Unknown => Match::Unknown,
    }
}

/// Whether a node satisfies the required node affinity of a pod: at least one of its terms. Without a required affinity
/// every node does.
fn matches_terms(pod: &PodSpec<'_>, node: &impl KnownNodeLabels, of: &impl Fn(&str) -> bool) -> Match {
    if pod.required_node_affinity().is_none() {
        return Match::Yes;
    }
    let terms = pod.required_terms().iter();
    terms
        .map(|term| matches_term(term, node, of))
        .max()
        .unwrap_or(Match::No)
}

/// Whether a node satisfies a node selector with terms, as that of a volume: at least one of them.
pub fn matches_selector(selector: &NodeSelector<'_>, node: &impl KnownNodeLabels) -> Match {
    let terms = selector.node_selector_terms.iter();
    terms
        .map(|term| matches_term(term, node, &|_: &str| true))
        .max()
        .unwrap_or(Match::No)
}

/// Whether a node satisfies all requirements of a term. A term without any matches no node.
fn matches_term(
    term: &NodeSelectorTerm<'_>,
    node: &impl KnownNodeLabels,
    of: &impl Fn(&str) -> bool,
) -> Match {
    if term.is_empty() {
        return Match::No;
    }
    let named = |requirement: &&Expression<'_>| of(&requirement.key);
    let fields = term.match_fields.iter().filter(named);
    let mut fields = fields.map(|requirement| matches_field(requirement, node));
    let labels = term.match_expressions.iter().filter(named);
    let mut labels = labels.map(|requirement| matches_expression(requirement, node));
    all(&mut fields).min(all(&mut labels))
}

/// Whether some node could satisfy all requirements of a term and a nodeSelector, with any labels: false if the
/// requirements on one label or field contradict each other, or cannot be satisfied by a valid label value. `values_of`:
/// the values of a label that every node has, if they are known.
pub fn can_match(
    term: &NodeSelectorTerm<'_>,
    node_selector: &Map<'_>,
    values_of: impl Fn(&str) -> Option<&'static [&'static str]>,
) -> bool {
    let mut labels: HashMap<&str, PossibleValues<'_>> = HashMap::new();
    for requirement in &term.match_expressions {
        let known = labels.entry(&requirement.key);
        let values = known.or_insert_with(|| {
            let mut values = PossibleValues::default();
            if let Some(of_nodes) = values_of(&requirement.key) {
                values.require_one_of(of_nodes.iter().copied());
            }
            values
        });
        values.require(requirement);
    }
    for (key, value) in node_selector {
        if let Some(values) = labels.get_mut(&**key) {
            values.require_one_of([&**value]);
        }
    }
    let mut names = PossibleValues::default();
    for requirement in &term.match_fields {
        if &*requirement.key != NAME_FIELD || requirement.values.len() != 1 {
            return false;
        }
        names.require(requirement);
    }
    !term.is_empty() && names.exist(|_| true) && labels.values().all(|values| values.exist(is_label_value))
}

/// The values of one label that satisfy several requirements.
#[derive(Default)]
struct PossibleValues<'t> {
    /// A requirement that no value satisfies.
    is_impossible: bool,
    must_exist: bool,
    must_be_absent: bool,
    /// Only these; `None`: any.
    among: Option<HashSet<&'t str>>,
    excluded: HashSet<&'t str>,
    /// Integers between these.
    above: Option<i64>,
    below: Option<i64>,
}

impl<'t> PossibleValues<'t> {
    fn require_one_of(&mut self, values: impl IntoIterator<Item = &'t str>) {
        let mut values: HashSet<&'t str> = values.into_iter().collect();
        if let Some(known) = &self.among {
            values.retain(|value| known.contains(value));
        }
        self.among = Some(values);
        self.must_exist = true;
    }

    /// Adds a requirement; the cases are those of [`holds`].
    fn require(&mut self, requirement: &'t Expression<'_>) {
        let values = &*requirement.values;
        let texts = || values.iter().map(|value| &**value);
        match &*requirement.operator {
            "In" => self.require_one_of(texts()),
            "NotIn" if !values.is_empty() => self.excluded.extend(texts()),
            "Exists" if values.is_empty() => self.must_exist = true,
            "DoesNotExist" if values.is_empty() => self.must_be_absent = true,
            operator @ ("Gt" | "Lt") => {
                self.must_exist = true;
                match (operator, values) {
                    ("Gt", [bound]) => self.above = self.above.max(integer(bound)),
                    (_, [bound]) => {
                        let bound = integer(bound);
                        self.below = self
                            .below
                            .map_or(bound, |known| bound.map(|bound| bound.min(known)));
                    }
                    _ => self.is_impossible = true,
                }
                let is_number = values.first().is_some_and(|bound| integer(bound).is_some());
                self.is_impossible |= !is_number;
            }
            _ => self.is_impossible = true,
        }
    }

    /// Whether a value, or its absence, satisfies all of them. `is_valid`: whether a listed value is one at all.
    fn exist(&self, is_valid: impl Fn(&str) -> bool) -> bool {
        if self.is_impossible || (self.must_exist && self.must_be_absent) {
            return false;
        }
        if !self.must_exist {
            return true;
        }
        let allowed = |value: &str| !self.excluded.contains(value);
        if let Some(among) = &self.among {
            let mut among = among.iter().filter(|value| is_valid(value) && allowed(value));
            return among.any(|value| self.is_between(value));
        }
        if self.above.is_none() && self.below.is_none() {
            // A finite list cannot exclude all values.
            return true;
        }
        // No label value has a sign, but zeros may precede the digits. One more than the excluded values is enough.
        let lowest = self.above.map_or(Some(0), |above| above.checked_add(1));
        let Some(lowest) = lowest else { return false };
        let highest = self.below.map_or(Some(i64::MAX), |below| below.checked_sub(1));
        let integers = lowest.max(0)..=highest.unwrap_or(-1);
        let spellings = integers.flat_map(|integer| {
            let width = integer.to_string().len();
            (width..=LONGEST_LABEL_VALUE).map(move |width| format!("{integer:0width$}"))
        });
        (spellings.take(self.excluded.len().saturating_add(1))).any(|spelling| allowed(&spelling))
    }

    fn is_between(&self, value: &str) -> bool {
        let number = || integer(value);
        self.above
            .is_none_or(|above| number().is_some_and(|value| value > above))
            && self
                .below
                .is_none_or(|below| number().is_some_and(|value| value < below))
    }
}

/// The maximum length of a label value, in characters.
const LONGEST_LABEL_VALUE: usize = 63;

/// Whether a text is a valid value of a label: letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_label_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_LABEL_VALUE
        && bytes.iter().copied().all(inner)
        && is_end(bytes.first())
        && is_end(bytes.last())
}

/// Whether a node satisfies a requirement on a label.
pub fn matches_expression(requirement: &Expression<'_>, node: &impl KnownNodeLabels) -> Match {
    match node.label_value(&requirement.key) {
        LabelValue::Is(value) => holds(requirement, Some(&value)).into(),
        LabelValue::Absent => holds(requirement, None).into(),
        LabelValue::Unknown => Match::Unknown,
    }
}

/// Whether a node satisfies a requirement of `matchFields`: its name, compared with one value.
pub fn matches_field(requirement: &Expression<'_>, node: &impl KnownNodeLabels) -> Match {
    let [name] = &*requirement.values else {
        return Match::No;
    };
    if &*requirement.key != NAME_FIELD {
        return Match::No;
    }
    // The future nodes of a pool have their own names.
    let is_named = node.node_name() == Some(&**name);
    match &*requirement.operator {
        "In" => is_named.into(),
        "NotIn" => (!is_named).into(),
        _ => Match::No,
    }
}

/// Whether a label with this value, or a missing label, satisfies a requirement. The API server accepts no other
/// operators. For the scheduler, no node satisfies a requirement that does not parse.
pub fn holds(requirement: &Expression<'_>, value: Option<&str>) -> bool {
    let values = &*requirement.values;
    let listed = || value.is_some_and(|value| values.iter().any(|one| **one == *value));
    match &*requirement.operator {
        "In" => listed(),
        "NotIn" => !values.is_empty() && !listed(),
        "Exists" => values.is_empty() && value.is_some(),
        "DoesNotExist" => values.is_empty() && value.is_none(),
        "Gt" => compares(values, value, |value, bound| value > bound),
        "Lt" => compares(values, value, |value, bound| value < bound),
        _ => false,
    }
}

fn compares(values: &[Str<'_>], value: Option<&str>, is: fn(i64, i64) -> bool) -> bool {
    let [bound] = values else { return false };
    let (Some(value), Some(bound)) = (value.and_then(integer), integer(bound)) else {
        return false;
    };
    is(value, bound)
}

/// Parses like Go's `strconv.ParseInt` in base 10.
fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn all(matches: &mut impl Iterator<Item = Match>) -> Match {
    let mut least = Match::Yes;
    for one in matches {
        least = least.min(one);
        if least == Match::No {
            break;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct TestNode {
        name: Option<&'static str>,
        labels: BTreeMap<&'static str, &'static str>,
    }

    impl KnownNodeLabels for TestNode {
        fn node_name(&self) -> Option<&str> {
            self.name
        }

        fn label_value(&self, key: &str) -> LabelValue<'_> {
            match self.labels.get(key) {
                Some(value) => LabelValue::Is((*value).into()),
                None if self.name.is_some() => LabelValue::Absent,
                None => LabelValue::Unknown,
            }
        }
    }

    fn labels() -> BTreeMap<&'static str, &'static str> {
        BTreeMap::from([("os", "windows"), ("cores", "8"), ("empty", "")])
    }

    fn node() -> TestNode {
        TestNode {
            name: Some("w1"),
            labels: labels(),
        }
    }

    fn pool() -> TestNode {
        TestNode {
            name: None,
            labels: labels(),
        }
    }

    /// Rows from `nodeaffinity_test.go` and from values that `labels.NewRequirement` rejects.
    #[test]
    fn a_requirement_holds_as_the_scheduler_evaluates_it() {
        use Match::{No, Unknown, Yes};
        for (key, operator, values, of_node, of_pool) in [
            ("os", "In", &["windows"][..], Yes, Yes),
            ("os", "In", &["linux", "windows"], Yes, Yes),
            ("os", "In", &["linux"], No, No),
            ("os", "In", &["Windows"], No, No),
            ("os", "In", &[], No, No),
            ("os", "NotIn", &["windows"], No, No),
            ("os", "NotIn", &["linux"], Yes, Yes),
            ("os", "NotIn", &[], No, No),
            ("os", "Exists", &[], Yes, Yes),
            ("os", "Exists", &["windows"], No, No),
            ("os", "DoesNotExist", &[], No, No),
            ("zone", "In", &["a"], No, Unknown),
            ("zone", "NotIn", &["a"], Yes, Unknown),
            ("zone", "Exists", &[], No, Unknown),
            ("zone", "DoesNotExist", &[], Yes, Unknown),
            ("empty", "In", &[""], Yes, Yes),
            ("cores", "Gt", &["4"], Yes, Yes),
            ("cores", "Gt", &["8"], No, No),
            ("cores", "Lt", &["9"], Yes, Yes),
            ("cores", "Lt", &["8"], No, No),
            ("cores", "Gt", &["4", "5"], No, No),
            ("cores", "Gt", &["four"], No, No),
            ("os", "Gt", &["1"], No, No),
            ("zone", "Gt", &["1"], No, Unknown),
            ("os", "Matches", &["windows"], No, No),
        ] {
            let requirement = Expression {
                key: key.into(),
                operator: operator.into(),
                values: crate::model::syntax::json_types::List(values.iter().map(|v| (*v).into()).collect()),
            };
            let shown = format!("{key} {operator} {values:?}");
            assert_eq!(matches_expression(&requirement, &node()), of_node, "{shown}");
            assert_eq!(matches_expression(&requirement, &pool()), of_pool, "{shown}");
        }
    }

    #[test]
    fn terms_are_alternatives_and_an_empty_one_matches_no_node() {
        use Match::{No, Unknown, Yes};
        let os = r#"{"matchExpressions": [{"key": "os", "operator": "In", "values": ["windows"]}]}"#;
        let zone = r#"{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}"#;
        let both = r#"{"matchExpressions": [{"key": "os", "operator": "Exists"}, {"key": "zone", "operator": "Exists"}]}"#;
        let named = r#"{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["w1"]}]}"#;
        let another = r#"{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["w1"]}]}"#;
        let several =
            r#"{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["w1", "w2"]}]}"#;
        let namespace =
            r#"{"matchFields": [{"key": "metadata.namespace", "operator": "In", "values": ["w1"]}]}"#;
        let mixed = r#"{"matchExpressions": [{"key": "os", "operator": "Exists"}], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["w2"]}]}"#;
        for (terms, of_node, of_pool) in [
            (vec![], No, No),
            (vec!["{}"], No, No),
            (vec!["{}", os], Yes, Yes),
            (vec![os], Yes, Yes),
            (vec![zone], No, Unknown),
            (vec![zone, os], Yes, Yes),
            (vec![both], No, Unknown),
            (vec![named], Yes, No),
            (vec![another], No, Yes),
            (vec![several], No, No),
            (vec![namespace], No, No),
            (vec![mixed], No, No),
        ] {
            let pod = format!(
                r#"{{"affinity": {{"nodeAffinity": {{"requiredDuringSchedulingIgnoredDuringExecution":
                    {{"nodeSelectorTerms": [{}]}}}}}}}}"#,
                terms.join(",")
            );
            let pod: PodSpec<'_> = serde_json::from_str(&pod).unwrap();
            assert_eq!(matches(&pod, &node()), of_node, "{terms:?}");
            assert_eq!(matches(&pod, &pool()), of_pool, "{terms:?}");
        }
    }

    #[test]
    fn the_node_selector_and_the_affinity_must_both_hold() {
        let affinity = r#""affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]}]}}}"#;
        for (selector, expected) in [
            (r#"{"os": "windows"}"#, Match::Yes),
            (r#"{"os": "windows", "empty": ""}"#, Match::Yes),
            (r#"{"os": "linux"}"#, Match::No),
            (r#"{"zone": ""}"#, Match::No),
        ] {
            let pod = format!(r#"{{"nodeSelector": {selector}, {affinity}}}"#);
            let pod: PodSpec<'_> = serde_json::from_str(&pod).unwrap();
            assert_eq!(matches(&pod, &node()), expected, "{selector}");
        }
    }
}
