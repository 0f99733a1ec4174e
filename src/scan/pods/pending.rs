//! Why no Windows node accepts a pending pod: an affinity that matches no node, operating system, build,
//! RuntimeClass, taints, in the order in which the scheduler excludes nodes. Other reasons, such as capacity,
//! volumes or other labels, are not reported here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ScannedPod, TroubleText, any_of};
use crate::cluster::node::NodeView;
use crate::engine::scheduling::{AdmissionStage, Constraints, PodsToSchedule, constraints};
use crate::model::cluster::facts::RuntimeClassFacts;
use crate::model::nodes::node::{BUILD_LABEL, NodeSigns as _, OS_SKU_LABEL, Taint};
use crate::model::nodes::node_affinity::{Match, matches_of};
use crate::model::nodes::os_selectors::{is_build_label, is_os_label};
use crate::model::objects::pod::NodeSelectorTerm;
use crate::model::windows::build::{Build, ContainerIsolation};
use crate::model::windows::os::Verdict;
use crate::rules::{Image, KnownVersions};
use crate::scan::report::PodProblem;

type CandidateNodes<'n> = Vec<&'n NodeView>;

impl ScannedPod<'_> {
    /// Why the pod is pending; only if every Windows node is excluded, and the last of them for one of these
    /// reasons.
    pub(super) fn waits(&self) -> Option<TroubleText> {
        if !self.is_for(Verdict::Windows) {
            return None;
        }
        let nodes = windows(self.pod_context.nodes?);
        if nodes.is_empty() {
            return Some(self.no_node());
        }
        if let Some(problem) = self.without_class(None).or_else(|| self.without_term()) {
            return Some(problem);
        }
        let class = self.class().ok().flatten();
        let of_class = |key: &str| class.is_some_and(|(_, class)| class.node_selector.contains_key(key));
        let speaks_of_build = |key: &str| is_build_label(key) || key == OS_SKU_LABEL;
        let of_os: CandidateNodes<'_> = self.that_meet(&nodes, &|key| is_os_label(key));
        if of_os.is_empty() {
            return Some(self.wrong_os());
        }
        let of_build = self.that_meet(&of_os, &|key| is_os_label(key) || speaks_of_build(key));
        if of_build.is_empty() {
            return Some(self.wrong_label(&of_os));
        }
        let classed = self.that_meet(&of_build, &|key| {
            is_os_label(key) || speaks_of_build(key) || of_class(key)
        });
        if let (true, Some((name, class))) = (classed.is_empty(), class) {
            return Some(wrong_class(name, class));
        }
        let constraints = constraints(
            self.subject,
            self.pod_context.eval_context.facts,
            AdmissionStage::Merged,
        )?;
        let selected = classed
            .into_iter()
            .filter(|node| constraints.matches(*node) == Match::Yes);
        let selected: CandidateNodes<'_> = selected.collect();
        if selected.is_empty() {
            return None;
        }
        self.untolerated(&constraints, &selected)
            .or_else(|| self.unhandled(&selected))
            .or_else(|| self.unfit(&selected))
    }

    fn that_meet<'n>(&self, nodes: &CandidateNodes<'n>, of: &dyn Fn(&str) -> bool) -> CandidateNodes<'n> {
        let nodes = nodes.iter().copied();
        nodes
            .filter(|node| matches_of(self.spec, *node, of) == Match::Yes)
            .collect()
    }

    /// A required affinity without any term that can match.
    fn without_term(&self) -> Option<TroubleText> {
        self.spec.required_node_affinity()?;
        if !self.spec.required_terms().iter().all(NodeSelectorTerm::is_empty) {
            return None;
        }
        Some((
            PodProblem::WaitsForAffinity,
            "its required node affinity matches no node: an empty term matches none".to_owned(),
            self.recreate_advice(
                "write into the empty term what the nodes must have, or delete the affinity",
            ),
        ))
    }

    fn no_node(&self) -> TroubleText {
        let facts = self.pod_context.eval_context.facts;
        let pools: Vec<&str> = (facts.hosts().iter().chain(&facts.pools))
            .filter(|host| host.may_be_at_zero)
            .map(|host| host.name.as_str())
            .collect();
        let remedy = if pools.is_empty() {
            "add a pool of Windows nodes to the cluster".to_owned()
        } else {
            let pools = pools.join(", ");
            format!(
                "find out why no autoscaler adds a node, or scale one of the known pools manually: {pools}"
            )
        };
        (
            PodProblem::WaitsForOs,
            "the cluster has no Windows node now".to_owned(),
            remedy,
        )
    }

    fn wrong_os(&self) -> TroubleText {
        let selected: Vec<String> = (self.spec.node_selector.iter())
            .filter(|(key, _)| is_os_label(key))
            .map(|(key, value)| format!("{key}: {}", &**value))
            .collect();
        let what = if selected.is_empty() {
            "the operating system that its affinity requires".to_owned()
        } else {
            selected.join(", ")
        };
        (
            PodProblem::WaitsForOs,
            format!("no Windows node has {what}"),
            self.recreate_advice("select kubernetes.io/os: windows"),
        )
    }

    /// A pod whose requirements on build labels no node satisfies. `nodes` are the nodes of its operating
    /// system.
    fn wrong_label(&self, nodes: &CandidateNodes<'_>) -> TroubleText {
        let (requested, excluded) = (self.named_builds("In"), self.named_builds("NotIn"));
        let there = builds(nodes);
        let is_unlabelled = |node: &NodeView, build: Build| {
            node.label(BUILD_LABEL).and_then(Build::parse_label) != Some(build)
        };
        let of_it: Vec<&str> = (nodes.iter())
            .filter(|node| {
                node.build()
                    .is_some_and(|it| requested.contains(&it) && is_unlabelled(node, it))
            })
            .map(|node| node.name.as_str())
            .collect();
        let shown = |builds: &BTreeSet<Build>, between: &str| {
            let builds: Vec<String> = builds.iter().map(ToString::to_string).collect();
            builds.join(between)
        };
        if let Some(first) = of_it.first() {
            return (
                PodProblem::WaitsForBuild,
                format!(
                    "it requires nodes labelled with build {}, and nodes of that build, such as {first}, have no such label",
                    shown(&requested, " or ")
                ),
                format!("let a WindowsNodePolicy maintain the label {BUILD_LABEL}"),
            );
        }
        if requested.is_empty() && !excluded.is_empty() {
            return (
                PodProblem::WaitsForBuild,
                format!(
                    "it excludes build {}, and no Windows node is left; there is {there}",
                    shown(&excluded, " and ")
                ),
                self.recreate_advice(
                    "exclude only builds that do not run its image, or add a node of another build",
                ),
            );
        }
        let what = if requested.is_empty() {
            "a build that no Windows node has".to_owned()
        } else {
            format!("build {}, which no Windows node has", shown(&requested, " or "))
        };
        (
            PodProblem::WaitsForBuild,
            format!("it requires {what}; there is {there}"),
            self.recreate_advice("use an image for an existing build and select that build, or add a node of the build that it requires"),
        )
    }

    /// The builds that the pod's requirements with this operator name; a nodeSelector is equivalent to `In`.
    fn named_builds(&self, operator: &str) -> BTreeSet<Build> {
        let selected = (self.spec.node_selector.iter())
            .filter(|(key, _)| operator == "In" && is_build_label(key))
            .map(|(_, value)| &**value);
        let expressions = (self.spec.required_terms().iter()).flat_map(|term| &term.match_expressions.0);
        let affine = expressions
            .filter(|expression| is_build_label(&expression.key) && *expression.operator == *operator)
            .flat_map(|expression| expression.values.iter().map(|value| &**value));
        selected.chain(affine).filter_map(Build::parse_label).collect()
    }

    fn untolerated(&self, constraints: &Constraints<'_>, nodes: &CandidateNodes<'_>) -> Option<TroubleText> {
        let facts = self.pod_context.eval_context.facts;
        let mut lacking: BTreeSet<Taint> = BTreeSet::new();
        for node in nodes {
            let taints = node.taints();
            let mut lasting = constraints.untolerated_lasting(&taints).cloned().peekable();
            lasting.peek()?;
            lacking.extend(lasting);
        }
        let lacking: Vec<Taint> = lacking.into_iter().collect();
        let pods = PodsToSchedule {
            subject: self.subject,
            inference: &self.inference,
            policy: self.policy,
            admission: AdmissionStage::Placed,
        };
        let is_placed = self
            .pod_context
            .eval_context
            .not_reviewed(&self.subject.namespace)
            .is_none()
            && self.subject.meta.controller().is_some()
            && pods.untolerated(&lacking, facts).is_empty();
        let tolerations: Vec<String> = lacking.iter().map(Taint::toleration_yaml).collect();
        let remedy = if is_placed {
            "delete the pod: placement gives the next one the toleration".to_owned()
        } else {
            self.recreate_advice(&format!("tolerate {}", tolerations.join(", ")))
        };
        let taints: Vec<String> = lacking.iter().map(ToString::to_string).collect();
        Some((
            PodProblem::WaitsForToleration,
            format!(
                "the Windows nodes that it may run on carry {}, which it does not tolerate",
                taints.join(", ")
            ),
            remedy,
        ))
    }

    fn unhandled(&self, nodes: &CandidateNodes<'_>) -> Option<TroubleText> {
        let mut problem = None;
        for node in nodes {
            problem = Some(self.without_class(Some(node))?);
        }
        problem
    }

    /// A pod that selects nodes which cannot run its image. The scheduler does not know that, and another
    /// reason keeps the pod pending; this one remains after that reason is fixed.
    fn unfit(&self, nodes: &CandidateNodes<'_>) -> Option<TroubleText> {
        let isolation = self.isolation();
        if isolation == ContainerIsolation::HostProcess || self.is_isolation_in_doubt() {
            return None;
        }
        let images = Image::of_pod(self.spec, self.pod_context.eval_context.facts);
        let mut certain = images.iter().flatten().filter_map(|image| {
            let versions = image.versions.as_ref().filter(|known| known.is_certain())?;
            Some((image.text, versions))
        });
        let fails = |versions: &KnownVersions, node: &&NodeView| {
            let host = node.build();
            host.is_some_and(|host| versions.fail_on(host, isolation))
        };
        let (image, versions) =
            certain.find(|(_, versions)| nodes.iter().all(|node| fails(versions, node)))?;
        Some((
            PodProblem::WaitsForBuild,
            format!(
                "its image {image} is for {}, which none of the nodes that it may run on runs; there is {}",
                any_of(versions),
                builds(nodes)
            ),
            self.recreate_advice("use an image for an existing build, or add a node that runs this one"),
        ))
    }
}

/// A RuntimeClass that selects labels which no node has.
fn wrong_class(name: &str, class: &RuntimeClassFacts) -> TroubleText {
    let labels = class.node_selector.iter();
    let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    let labels = labels.join(", ");
    (
        PodProblem::WaitsForRuntimeClass,
        format!("the RuntimeClass {name} selects {labels}, which no Windows node has"),
        format!(
            "add these labels to nodes, or change the RuntimeClass {name} to select labels that they have"
        ),
    )
}

/// The Windows nodes that are not being removed.
fn windows(nodes: &BTreeMap<String, Arc<NodeView>>) -> CandidateNodes<'_> {
    let nodes = nodes.values().map(|node| &**node);
    nodes.filter(|node| node.is_windows() && !node.deleting).collect()
}

/// The builds of nodes with the number of nodes of each, as text.
fn builds(nodes: &CandidateNodes<'_>) -> String {
    let mut counts: BTreeMap<Option<Build>, usize> = BTreeMap::new();
    for node in nodes {
        *counts.entry(node.build()).or_default() += 1;
    }
    let words: Vec<String> = (counts.into_iter())
        .map(|(build, count)| match build {
            Some(build) => format!("{build} ({count})"),
            None => format!("unknown build ({count})"),
        })
        .collect();
    words.join(", ")
}
