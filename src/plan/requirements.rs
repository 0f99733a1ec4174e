//! What a pod template requires of its node: nodeSelector, RuntimeClass, required node affinity, the name of a node.

use crate::model::pod::{Expression, NodeSelectorTerm, REQUIRED_TERMS};
use crate::model::selection::is_build_label;
use crate::rules::PodCx;

/// Where a requirement stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Selector,
    RuntimeClass,
    Affinity,
    NodeName,
}

/// One requirement, as an expression of node affinity.
pub(super) struct Requirement<'c> {
    pub place: Place,
    pub key: &'c str,
    pub operator: &'c str,
    pub values: Vec<&'c str>,
    /// Whether the key is a field of nodes (`metadata.name`) and no label.
    pub is_field: bool,
    pub path: String,
}

impl Requirement<'_> {
    /// Whether a node with this value meets it.
    ///
    /// Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.
    pub(super) fn is_met_by(&self, value: Option<&str>) -> bool {
        let named = value.is_some_and(|value| self.values.contains(&value));
        let number = |text: &str| text.parse::<i64>().ok();
        let compared = || Some((number(value?)?, number(self.values.first()?)?));
        match self.operator {
            "In" => named,
            "NotIn" => !named,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared().is_some_and(|(value, than)| value > than),
            "Lt" => compared().is_some_and(|(value, than)| value < than),
            _ => false,
        }
    }

    /// Whether the absence of the label meets it.
    pub(super) fn asks_for_absence(&self) -> bool {
        matches!(self.operator, "NotIn" | "DoesNotExist")
    }

    /// It for people: `agentpool=win22`, `agentpool In [win22, win25]`.
    pub(super) fn shown(&self) -> String {
        match (self.operator, self.values.as_slice()) {
            ("In", [only]) => format!("{}={only}", self.key),
            (operator, []) => format!("{} {operator}", self.key),
            (operator, values) => format!("{} {operator} [{}]", self.key, values.join(", ")),
        }
    }
}

/// Everything that a template requires.
pub(super) struct Requirements<'c> {
    /// What must hold.
    pub always: Vec<Requirement<'c>>,
    /// Terms, of which one must hold; empty where there is no required affinity.
    pub terms: Vec<Vec<Requirement<'c>>>,
}

/// So many terms and expressions are looked at; no author writes more.
const MOST: usize = 64;

impl<'c> Requirements<'c> {
    /// Those of a pod or a template. Of a pod that is bound already, `as_placed`, nothing is read that placement and the
    /// scheduler write.
    pub(super) fn of(cx: &PodCx<'c>, as_placed: bool) -> Self {
        let keeps = |key: &str| !(as_placed && is_build_label(key));
        let equal = |place, key: &'c str, value: &'c str, path: String| Requirement {
            place,
            key,
            operator: "In",
            values: vec![value],
            is_field: false,
            path,
        };
        let selector = cx.spec.node_selector.iter().filter(|(key, _)| keeps(key));
        let mut always: Vec<_> = selector
            .take(MOST)
            .map(|(key, value)| {
                let path = cx.at(&["nodeSelector"]).key(key).named();
                equal(Place::Selector, key, value, path)
            })
            .collect();
        let of_class = cx
            .runtime_class()
            .into_iter()
            .flat_map(|class| &class.node_selector);
        always.extend(of_class.map(|(key, value)| {
            let path = cx.at(&["runtimeClassName"]).named();
            equal(Place::RuntimeClass, key, value, path)
        }));
        let name = cx
            .spec
            .node_name
            .as_deref()
            .filter(|name| !name.is_empty() && !as_placed);
        always.extend(name.map(|name| Requirement {
            is_field: true,
            ..equal(
                Place::NodeName,
                "metadata.name",
                name,
                cx.at(&["nodeName"]).named(),
            )
        }));
        let terms = cx.spec.required_terms().iter().enumerate();
        // A term with nothing in it matches no node.
        let terms = terms.filter(|(_, term)| !term.is_empty()).take(MOST);
        Requirements {
            always,
            terms: terms
                .map(|(at, term)| of_term(cx, at, term).filter(|it| keeps(it.key)).collect())
                .collect(),
        }
    }
}

fn of_term<'c>(
    cx: &PodCx<'c>,
    at: usize,
    term: &'c NodeSelectorTerm<'c>,
) -> impl Iterator<Item = Requirement<'c>> {
    let path = cx.at(REQUIRED_TERMS).item(at);
    let read = move |field: &'static str, index: usize, expression: &'c Expression<'c>| Requirement {
        place: Place::Affinity,
        key: &expression.key,
        operator: &expression.operator,
        values: expression.values.iter().map(|value| &**value).collect(),
        is_field: field == "matchFields",
        path: path.clone().field(field).item(index).named(),
    };
    let labels = term.match_expressions.iter().enumerate();
    let fields = term.match_fields.iter().enumerate();
    let all = labels
        .map(|(i, it)| ("matchExpressions", i, it))
        .chain(fields.map(|(i, it)| ("matchFields", i, it)));
    all.take(MOST)
        .map(move |(field, index, expression)| read(field, index, expression))
}
