//! Whether a node of the new build can be what a pod template requires, and which requirement says no.

use super::nodes::{Node, Nodes};
use super::requirements::{Place, Requirement, Requirements};
use super::statement::{Because, By, Class, Statement};
use super::target::named;
use crate::model::build::Build;
use crate::model::facts::Facts;
use crate::model::node::{
    ARCH_LABEL, BETA_ARCH_LABEL, BETA_OS_LABEL, HOSTNAME_LABEL, OS_LABEL, OS_SKU_LABEL, POOL_LABELS,
    TRUSTED_BUILD_LABEL, build_of_sku,
};
use crate::model::policy::Policy;
use crate::model::selection::is_build_label;
use crate::model::text::shown;

const SELECTOR: &str =
    "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodeselector";
const AFFINITY: &str =
    "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity";
const NODE_NAME: &str = "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename";
const CLASS: &str = "https://kubernetes.io/docs/concepts/containers/runtime-class/#scheduling";

/// What the requirements are held against.
#[derive(Clone, Copy)]
pub(super) struct World<'w> {
    pub nodes: &'w Nodes,
    pub facts: &'w Facts,
    pub policy: &'w Policy,
    pub target: Build,
}

/// What one requirement means.
enum Answer {
    /// Nodes of the new build meet it.
    Met,
    /// They do where they are given what it asks for.
    IfSo(Statement),
    /// They do not.
    Not(Statement),
}

/// What keeps the pods of a template off the nodes of the new build; notes on what those nodes must have are among it.
pub(super) fn pins(requirements: &Requirements<'_>, world: World<'_>) -> Vec<Statement> {
    let mut said = Vec::new();
    for requirement in &requirements.always {
        if let Answer::Not(statement) | Answer::IfSo(statement) = world.ask(requirement) {
            said.push(statement);
        }
    }
    let mut refused = Vec::new();
    for term in &requirements.terms {
        let mut notes = Vec::new();
        let mut first = None;
        for requirement in term {
            match world.ask(requirement) {
                Answer::Met => {}
                Answer::IfSo(note) => notes.push(note),
                Answer::Not(statement) => first = first.or(Some(statement)),
            }
        }
        if let Some(statement) = first {
            refused.push(statement);
        } else {
            said.append(&mut notes);
            refused.clear();
            break;
        }
    }
    said.append(&mut refused);
    if !said.iter().any(|statement| statement.holds) && !world.has_one_for(requirements) {
        said.push(world.not_together());
    }
    said
}

impl World<'_> {
    fn new_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.of(self.target)
    }

    fn ask(&self, requirement: &Requirement<'_>) -> Answer {
        let not = |why: String| Answer::Not(self.pin(requirement, &why));
        if self.new_nodes().next().is_some() {
            let met =
                self.new_nodes().any(|node| node.meets(requirement)) || self.has_pool_at_zero(requirement);
            return if met {
                Answer::Met
            } else {
                not(format!("no node of {} is so", named(self.target)))
            };
        }
        let key = requirement.key;
        let one_of = |meets: &dyn Fn(&str) -> bool| requirement.values.iter().any(|value| meets(value));
        if is_build_label(key) {
            let of_target = self.target.to_string();
            return if requirement.is_met_by(Some(&of_target)) {
                Answer::Met
            } else {
                not(format!("nodes of {} have {of_target}", named(self.target)))
            };
        }
        if requirement.asks_for_absence()
            || matches!(key, OS_LABEL | BETA_OS_LABEL | ARCH_LABEL | BETA_ARCH_LABEL)
        {
            return Answer::Met;
        }
        if key == OS_SKU_LABEL {
            return if requirement.operator == "Exists"
                || one_of(&|value| build_of_sku(value) == Some(self.target))
            {
                Answer::Met
            } else {
                not("AKS gives that label to nodes of another release".to_owned())
            };
        }
        if requirement.is_field || key == HOSTNAME_LABEL {
            return not("that names a node, and the nodes to come have other names".to_owned());
        }
        let has = |node: &Node| node.meets(requirement);
        if POOL_LABELS.contains(&key) || self.is_pool_label(requirement) {
            return if requirement.operator == "Exists" || self.has_pool_at_zero(requirement) {
                Answer::Met
            } else if let Some(node) = self.nodes.all().find(|node| has(node)) {
                let of = node
                    .build
                    .map_or_else(String::new, |build| format!(", of {}", named(build)));
                not(format!("that is a pool of nodes that are there now{of}"))
            } else {
                let statement = self.pin(requirement, "no node of such a pool is known, nor its build");
                Answer::Not(Statement {
                    class: Class::Unknown,
                    ..statement
                })
            };
        }
        Answer::IfSo(self.note(requirement, self.nodes.all().any(has)))
    }

    /// Whether a pool that may be at zero nodes has the new build and the label.
    fn has_pool_at_zero(&self, requirement: &Requirement<'_>) -> bool {
        let pools = self.facts.hosts().iter().filter(|host| host.may_be_at_zero);
        let mut of_target = pools
            .chain(&self.policy.pools)
            .filter(|pool| pool.build == Some(self.target));
        let value = |pool: &crate::model::node::Host| pool.template.get(requirement.key).cloned();
        of_target.any(|pool| requirement.is_met_by(value(pool).as_deref()) && !requirement.is_field)
    }

    fn is_pool_label(&self, requirement: &Requirement<'_>) -> bool {
        let labels = &self.policy.pool_labels;
        let mut values = requirement.values.iter();
        values.any(|value| labels.iter().any(|label| label.matches(requirement.key, value)))
    }

    /// Whether some node of the new build meets all of it, as far as such nodes are known.
    fn has_one_for(&self, requirements: &Requirements<'_>) -> bool {
        let mut nodes = self.new_nodes().peekable();
        nodes.peek().is_none()
            || nodes.any(|node| node.meets_all(requirements))
            || self
                .facts
                .hosts()
                .iter()
                .any(|host| host.may_be_at_zero && host.build == Some(self.target))
    }

    fn not_together(&self) -> Statement {
        let message = format!(
            "each of its requirements is met by some node of {}, and no node meets them all",
            named(self.target)
        );
        Statement::new(
            Class::Pinned,
            "spec",
            message,
            Because::row("node selection: all requirements at once", AFFINITY),
        )
        .by(By::NodeLabel)
        .remedy("give one pool of the new nodes all the labels, or take requirements out")
    }

    fn pin(&self, requirement: &Requirement<'_>, why: &str) -> Statement {
        let by = match requirement.place {
            Place::RuntimeClass => By::RuntimeClass,
            Place::NodeName => By::NodeName,
            _ if requirement.is_field || requirement.key == HOSTNAME_LABEL => By::NodeName,
            _ if requirement.key == TRUSTED_BUILD_LABEL => By::TrustedBuildLabel,
            Place::Selector if is_build_label(requirement.key) => By::NodeSelector,
            Place::Affinity if is_build_label(requirement.key) => By::NodeAffinity,
            _ if requirement.key == OS_SKU_LABEL
                || POOL_LABELS.contains(&requirement.key)
                || self.is_pool_label(requirement) =>
            {
                By::PoolLabel
            }
            _ => By::NodeLabel,
        };
        let asks = shown(&requirement.shown());
        let message = match requirement.place {
            Place::RuntimeClass => format!("its RuntimeClass selects {asks}, and {why}"),
            _ => format!("it requires {asks}, and {why}"),
        };
        let remedy = match by {
            By::RuntimeClass => self.another_class(),
            By::NodeSelector | By::NodeAffinity | By::TrustedBuildLabel => format!(
                "take it out (placement holds pods to the builds that run their images), or require {} when the image runs \
                 there",
                self.target
            ),
            By::NodeName => "take it out: the scheduler finds a node".to_owned(),
            By::NodeLabel => format!(
                "give the nodes of {} the label, or take the requirement out",
                named(self.target)
            ),
            _ => "name a pool of the new nodes, or select by what both pools have".to_owned(),
        };
        Statement::new(
            Class::Pinned,
            requirement.path.as_str(),
            message,
            because(requirement),
        )
        .by(by)
        .remedy(remedy)
    }

    fn another_class(&self) -> String {
        let target = self.target.to_string();
        let of_target = self.facts.runtime_classes.iter().find(|(_, class)| {
            (class.node_selector.iter()).any(|(key, value)| is_build_label(key) && *value == target)
        });
        of_target.map_or_else(
            || format!("name a RuntimeClass for {}", named(self.target)),
            |(name, _)| format!("name the RuntimeClass {name}, which selects {target}"),
        )
    }

    fn note(&self, requirement: &Requirement<'_>, is_there: bool) -> Statement {
        let asks = shown(&requirement.shown());
        let now = if is_there || self.nodes.all().next().is_none() {
            ""
        } else {
            ", which no Windows node has now"
        };
        let message = format!("it requires {asks}{now}: the nodes to come need that label");
        Statement::new(
            Class::Unchanged,
            requirement.path.as_str(),
            message,
            because(requirement),
        )
        .remedy(format!("give the new nodes {asks}"))
        .note()
    }
}

fn because(requirement: &Requirement<'_>) -> Because {
    let (name, source) = match requirement.place {
        Place::Selector => ("nodeSelector", SELECTOR),
        Place::RuntimeClass => ("scheduling of the RuntimeClass", CLASS),
        Place::Affinity => ("required node affinity", AFFINITY),
        Place::NodeName => ("nodeName", NODE_NAME),
    };
    Because::row(
        format!("node selection: {name}, {}", shown(requirement.key)),
        source,
    )
}
