//! Why no Windows node takes a pod that waits: operating system, build, RuntimeClass, taints, in the order in which they rule
//! nodes out. What else the scheduler may miss, as room, volumes or another label, is no reason that is told here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::selection::meets;
use super::{Pod, Told};
use crate::cluster::node::NodeView;
use crate::engine::{Admission, untolerated};
use crate::model::build::{Build, Compatibility, Isolation, compatibility};
use crate::model::node::{BUILD_LABEL, NodeSigns as _, OS_SKU_LABEL, Taint};
use crate::model::os::Verdict;
use crate::model::selection::{is_build_label, is_os_label};
use crate::rules::Image;
use crate::scan::report::Wrong;

type Nodes<'n> = Vec<&'n NodeView>;

impl Pod<'_> {
    /// Why it waits; only where every Windows node is ruled out, and the last of them for such a reason.
    pub(super) fn waits(&self) -> Option<Told> {
        if !self.is_for(Verdict::Windows) {
            return None;
        }
        let nodes = windows(self.ground.nodes?);
        if nodes.is_empty() {
            return Some(self.no_node());
        }
        if let Some(told) = self.without_class(None) {
            return Some(told);
        }
        let class = self.class().ok().flatten();
        let of_class = |key: &str| class.is_some_and(|(_, class)| class.node_selector.contains_key(key));
        let speaks_of_build = |key: &str| is_build_label(key) || key == OS_SKU_LABEL;
        let of_os: Nodes<'_> = self.that_meet(&nodes, &|key| is_os_label(key));
        if of_os.is_empty() {
            return Some(self.wrong_os());
        }
        let of_build = self.that_meet(&of_os, &|key| is_os_label(key) || speaks_of_build(key));
        if of_build.is_empty() {
            return Some(self.wrong_label(&nodes));
        }
        let classed = self.that_meet(&of_build, &|key| {
            is_os_label(key) || speaks_of_build(key) || of_class(key)
        });
        if let (true, Some((name, class))) = (classed.is_empty(), class) {
            let labels: Vec<String> = (class.node_selector.iter())
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            let labels = labels.join(", ");
            return Some((
                Wrong::WaitsForRuntimeClass,
                format!("the RuntimeClass {name} selects {labels}, which no Windows node has"),
                format!("label nodes so, or let the RuntimeClass {name} select labels that they have"),
            ));
        }
        let selected = self.that_meet(&classed, &|_| true);
        if selected.is_empty() {
            return None;
        }
        self.untolerated(&selected)
            .or_else(|| self.unhandled(&selected))
            .or_else(|| self.unfit(&selected))
    }

    fn that_meet<'n>(&self, nodes: &Nodes<'n>, of: &dyn Fn(&str) -> bool) -> Nodes<'n> {
        let nodes = nodes.iter().copied();
        nodes.filter(|node| meets(self.spec, node, of)).collect()
    }

    fn no_node(&self) -> Told {
        let facts = self.ground.world.facts;
        let pools: Vec<&str> = (facts.hosts().iter().chain(&self.policy.pools))
            .filter(|host| host.may_be_at_zero)
            .map(|host| host.name.as_str())
            .collect();
        let remedy = if pools.is_empty() {
            "add a pool of Windows nodes to the cluster".to_owned()
        } else {
            let pools = pools.join(", ");
            format!(
                "see why no autoscaler brings a node, or scale one of the pools that are known by hand: {pools}"
            )
        };
        (
            Wrong::WaitsForOs,
            "the cluster has no Windows node at the moment".to_owned(),
            remedy,
        )
    }

    fn wrong_os(&self) -> Told {
        let selected: Vec<String> = (self.spec.node_selector.iter())
            .filter(|(key, _)| is_os_label(key))
            .map(|(key, value)| format!("{key}: {}", &**value))
            .collect();
        let what = if selected.is_empty() {
            "what its affinity asks for of the operating system".to_owned()
        } else {
            selected.join(", ")
        };
        (
            Wrong::WaitsForOs,
            format!("no Windows node has {what}"),
            self.anew("select kubernetes.io/os: windows"),
        )
    }

    /// A pod that asks for a label of a build that no node has.
    fn wrong_label(&self, nodes: &Nodes<'_>) -> Told {
        let asked = self.asked_builds();
        let there = builds(nodes);
        let of_it: Vec<&str> = (nodes.iter())
            .filter(|node| node.build().is_some_and(|build| asked.contains(&build)))
            .map(|node| node.name.as_str())
            .collect();
        let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
        let asked = asked.join(" or ");
        if let Some(first) = of_it.first() {
            return (
                Wrong::WaitsForBuild,
                format!(
                    "it asks for nodes labelled with build {asked}, and those of that build, as {first}, carry no such label"
                ),
                format!("let a WindowsNodePolicy keep the label {BUILD_LABEL}"),
            );
        }
        let what = if asked.is_empty() {
            "a build that no Windows node has".to_owned()
        } else {
            format!("build {asked}, which no Windows node has")
        };
        (
            Wrong::WaitsForBuild,
            format!("it asks for {what}; there is {there}"),
            self.anew("use an image for a build that there is, and select that one, or add a node of the build that it asks for"),
        )
    }

    /// The builds that the pod's selectors name.
    fn asked_builds(&self) -> BTreeSet<Build> {
        let selected = (self.spec.node_selector.iter())
            .filter(|(key, _)| is_build_label(key))
            .map(|(_, value)| &**value);
        let expressions = (self.spec.required_terms().iter()).flat_map(|term| &term.match_expressions.0);
        let affine = expressions
            .filter(|expression| is_build_label(&expression.key))
            .flat_map(|expression| expression.values.iter().map(|value| &**value));
        selected.chain(affine).filter_map(Build::parse_label).collect()
    }

    fn untolerated(&self, nodes: &Nodes<'_>) -> Option<Told> {
        let facts = self.ground.world.facts;
        let mut lacking: BTreeSet<Taint> = BTreeSet::new();
        for node in nodes {
            let taints = node.taints();
            let kept_off = untolerated(self.subject, &taints, facts, self.policy, Admission::Merged);
            let lasting: Vec<&Taint> = kept_off.into_iter().filter(|taint| taint.lasts()).collect();
            if lasting.is_empty() {
                return None;
            }
            lacking.extend(lasting.into_iter().cloned());
        }
        let lacking: Vec<Taint> = lacking.into_iter().collect();
        let is_placed = self.ground.world.not_asked(&self.subject.namespace).is_none()
            && self.subject.meta.controller().is_some()
            && untolerated(self.subject, &lacking, facts, self.policy, Admission::Placed).is_empty();
        let tolerations: Vec<String> = (lacking.iter())
            .map(|taint| {
                let Taint { key, value, effect } = taint;
                format!("{{key: {key}, operator: Equal, value: \"{value}\", effect: {effect}}}")
            })
            .collect();
        let remedy = if is_placed {
            "delete the pod: placement gives the next one the toleration".to_owned()
        } else {
            self.anew(&format!("tolerate {}", tolerations.join(", ")))
        };
        let taints: Vec<String> = lacking.iter().map(ToString::to_string).collect();
        Some((
            Wrong::WaitsForToleration,
            format!(
                "the Windows nodes that it may run on carry {}, which it does not tolerate",
                taints.join(", ")
            ),
            remedy,
        ))
    }

    fn unhandled(&self, nodes: &Nodes<'_>) -> Option<Told> {
        let mut told = None;
        for node in nodes {
            told = Some(self.without_class(Some(node))?);
        }
        told
    }

    /// A pod that selects nodes which do not run its image: the scheduler does not know of it, and another reason keeps the pod
    /// waiting; but once that is mended, this one remains.
    fn unfit(&self, nodes: &Nodes<'_>) -> Option<Told> {
        let isolation = self.isolation();
        let in_doubt = self.spec.runtime_class_name.is_some() && self.class().ok().flatten().is_none();
        if isolation == Isolation::HostProcess || in_doubt {
            return None;
        }
        let images = Image::of_pod(self.spec, self.ground.world.facts);
        let certain = images.iter().flatten().filter_map(|image| match image.build {
            Some((build, true)) => Some((image.text, build)),
            _ => None,
        });
        let fails = |image: Build, node: &&NodeView| {
            let host = node.build();
            host.is_some_and(|host| compatibility(image, host, isolation) == Compatibility::Fails)
        };
        let (image, build) = certain
            .into_iter()
            .find(|(_, build)| nodes.iter().all(|node| fails(*build, node)))?;
        Some((
            Wrong::WaitsForBuild,
            format!(
                "its image {image} is for {build}, which none of the nodes that it may run on runs; there is {}",
                builds(nodes)
            ),
            self.anew("use an image for a build that there is, or add a node that runs this one"),
        ))
    }
}

/// The Windows nodes that stay.
fn windows(nodes: &BTreeMap<String, Arc<NodeView>>) -> Nodes<'_> {
    let nodes = nodes.values().map(|node| &**node);
    nodes.filter(|node| node.is_windows() && !node.deleting).collect()
}

/// The builds of nodes with how many there are of each, in words.
fn builds(nodes: &Nodes<'_>) -> String {
    let mut counts: BTreeMap<Option<Build>, usize> = BTreeMap::new();
    for node in nodes {
        *counts.entry(node.build()).or_default() += 1;
    }
    let words: Vec<String> = (counts.into_iter())
        .map(|(build, count)| match build {
            Some(build) => format!("{build} ({count})"),
            None => format!("no build that is known ({count})"),
        })
        .collect();
    words.join(", ")
}
