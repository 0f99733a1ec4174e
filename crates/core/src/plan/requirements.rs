//! What a pod template requires of its node: nodeSelector, RuntimeClass, required node affinity, node name.

use crate::model::nodes::node_affinity::{self, KnownNodeLabels, Match};
use crate::model::nodes::os_selectors::is_build_label;
use crate::model::objects::pod::{Expression, NodeSelectorTerm, PreferredTerm, REQUIRED_TERMS};
use crate::model::syntax::path::Path;
use crate::rules::PodCx;

/// The field of the pod that contains a requirement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequirementField {
    Selector,
    RuntimeClass,
    Affinity,
    NodeName,
}

/// What a requirement compares.
#[derive(Clone, Copy)]
enum Comparison<'c> {
    /// A label with one value.
    Label(&'c str),
    NodeName(&'c str),
    /// An expression on a label.
    Expression(&'c Expression<'c>),
    /// An expression on a field of the node.
    Field(&'c Expression<'c>),
}

pub(super) struct Requirement<'c> {
    pub field: RequirementField,
    /// The label key, or the name of the node field.
    pub key: &'c str,
    comparison: Comparison<'c>,
    pub path: String,
}

impl Requirement<'_> {
    /// Whether a node satisfies it.
    pub(super) fn matches(&self, node: &impl KnownNodeLabels) -> Match {
        match self.comparison {
            Comparison::Label(value) => node_affinity::matches_label(self.key, value, node),
            Comparison::NodeName(name) => Match::from(node.node_name() == Some(name)),
            Comparison::Expression(expression) => node_affinity::matches_expression(expression, node),
            Comparison::Field(expression) => node_affinity::matches_field(expression, node),
        }
    }

    fn operator(&self) -> &str {
        match self.comparison {
            Comparison::Label(_) | Comparison::NodeName(_) => "In",
            Comparison::Expression(expression) | Comparison::Field(expression) => &expression.operator,
        }
    }

    /// The values that it names.
    pub(super) fn values(&self) -> Vec<&str> {
        match self.comparison {
            Comparison::Label(value) | Comparison::NodeName(value) => vec![value],
            Comparison::Expression(expression) | Comparison::Field(expression) => {
                expression.values.iter().map(|value| &**value).collect()
            }
        }
    }

    /// Whether it compares a node field (`metadata.name`) and not a label.
    pub(super) fn is_field(&self) -> bool {
        matches!(self.comparison, Comparison::NodeName(_) | Comparison::Field(_))
    }

    /// Whether a node without the label satisfies it.
    pub(super) fn allows_absence(&self) -> bool {
        matches!(self.operator(), "NotIn" | "DoesNotExist")
    }

    /// Whether every value of the label satisfies it.
    pub(super) fn allows_every_value(&self) -> bool {
        self.operator() == "Exists"
    }

    /// Whether a node satisfies it that has the label with a value that is not known yet. `is_past`: whether the label certainly
    /// does not have a value.
    pub(super) fn matches_value_to_come(&self, is_past: impl Fn(&str) -> bool) -> Match {
        let all_past = || self.values().into_iter().all(&is_past);
        match self.operator() {
            "Exists" => Match::Yes,
            "DoesNotExist" => Match::No,
            "In" if all_past() => Match::No,
            "NotIn" if all_past() => Match::Yes,
            _ => Match::Unknown,
        }
    }

    /// The requirement as text: `agentpool=win22`, `agentpool In [win22, win25]`.
    pub(super) fn shown(&self) -> String {
        match (self.operator(), self.values().as_slice()) {
            ("In", [only]) => format!("{}={only}", self.key),
            (operator, []) => format!("{} {operator}", self.key),
            (operator, values) => format!("{} {operator} [{}]", self.key, values.join(", ")),
        }
    }
}

/// A term of the required node affinity.
pub(super) struct Term<'c> {
    /// The requirements, without those that the scheduler and controllers add.
    pub requirements: Vec<Requirement<'c>>,
    /// Whether the author left it empty: such a term matches no node.
    pub is_empty: bool,
}

/// All requirements of a template.
pub(super) struct Requirements<'c> {
    /// Requirements that must all match.
    pub always: Vec<Requirement<'c>>,
    /// Terms of which one must match; `None` without a required affinity.
    pub terms: Option<Vec<Term<'c>>>,
    /// The field path of the terms.
    pub terms_path: String,
}

/// The maximum number of terms and expressions that are read; real manifests have fewer.
const MOST: usize = 64;

impl<'c> Requirements<'c> {
    /// The requirements of a pod or template. If the pod is already bound (`as_placed`), skips everything
    /// that placement and the scheduler write. For a DaemonSet pod, skips everything that its controller
    /// writes.
    pub(super) fn of(cx: &PodCx<'c>, as_placed: bool) -> Self {
        let keeps = |key: &str| !(as_placed && is_build_label(key));
        let is_daemon = cx.subject.is_daemonset_pod();
        let selector = cx.spec.node_selector.iter().filter(|(key, _)| keeps(key));
        let selector = selector.take(MOST).map(|(key, value)| Requirement {
            field: RequirementField::Selector,
            key,
            comparison: Comparison::Label(value),
            path: cx.at(&["nodeSelector"]).key(key).named(),
        });
        let class = cx
            .runtime_class()
            .into_iter()
            .flat_map(|class| &class.node_selector);
        let class = class.map(|(key, value)| Requirement {
            field: RequirementField::RuntimeClass,
            key,
            comparison: Comparison::Label(value),
            path: cx.at(&["runtimeClassName"]).named(),
        });
        let name = cx.spec.node_name.as_deref();
        let name = name.filter(|name| !name.is_empty() && !as_placed);
        let name = name.map(|name| Requirement {
            field: RequirementField::NodeName,
            key: "metadata.name",
            comparison: Comparison::NodeName(name),
            path: cx.at(&["nodeName"]).named(),
        });
        let terms = || cx.spec.required_terms().iter().enumerate().take(MOST);
        let term = |(at, term): (usize, &'c NodeSelectorTerm<'c>)| Term {
            // The DaemonSet controller writes the node name into every term.
            requirements: of_term(cx.at(REQUIRED_TERMS).item(at), term)
                .filter(|it| keeps(it.key) && !(is_daemon && it.is_field()))
                .collect(),
            is_empty: term.is_empty(),
        };
        Requirements {
            always: selector.chain(class).chain(name).collect(),
            terms: cx
                .spec
                .required_node_affinity()
                .map(|_| terms().map(term).collect()),
            terms_path: cx.at(REQUIRED_TERMS).named(),
        }
    }

    /// Whether a node satisfies all requirements.
    pub(super) fn matches(&self, node: &impl KnownNodeLabels) -> Match {
        let always = least(&self.always, |requirement| requirement.matches(node));
        always.min(self.matches_terms(&|requirement| requirement.matches(node)))
    }

    /// Evaluates the terms with the given result for each requirement.
    pub(super) fn matches_terms(&self, of: &dyn Fn(&Requirement<'c>) -> Match) -> Match {
        let Some(terms) = &self.terms else {
            return Match::Yes;
        };
        let of_term = |term: &Term<'c>| {
            if term.is_empty {
                return Match::No;
            }
            least(&term.requirements, of)
        };
        terms.iter().map(of_term).max().unwrap_or(Match::No)
    }
}

/// The conjunction of the results of all requirements.
pub(super) fn least<'c>(requirements: &[Requirement<'c>], of: impl Fn(&Requirement<'c>) -> Match) -> Match {
    requirements.iter().map(of).min().unwrap_or(Match::Yes)
}

/// The requirements that the preferred node affinity of a pod or template contains.
pub(super) fn preferences<'c>(cx: &PodCx<'c>) -> Vec<Requirement<'c>> {
    const PREFERRED: &[&str] = &[
        "affinity",
        "nodeAffinity",
        "preferredDuringSchedulingIgnoredDuringExecution",
    ];
    let affinity = cx.spec.affinity.as_ref();
    let preferred = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let terms = preferred
        .iter()
        .flat_map(|affinity| &affinity.preferred)
        .enumerate();
    let read = |(at, term): (usize, &'c PreferredTerm<'c>)| {
        of_term(cx.at(PREFERRED).item(at).field("preference"), &term.preference)
    };
    terms.take(MOST).flat_map(read).collect()
}

fn of_term<'c>(path: Path, term: &'c NodeSelectorTerm<'c>) -> impl Iterator<Item = Requirement<'c>> {
    let read = move |field: &'static str, index: usize, expression: &'c Expression<'c>| Requirement {
        field: RequirementField::Affinity,
        key: &expression.key,
        comparison: if field == "matchFields" {
            Comparison::Field(expression)
        } else {
            Comparison::Expression(expression)
        },
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
