//! Findings about the future of the Windows nodes: ends of support that are not near, what the next minor release of Kubernetes
//! removes, and webhooks that refuse pods.

use std::collections::BTreeMap;

use super::nodes::windows;
use super::{ClusterInput, PreflightFinding};
use crate::cluster::node::NodeView;
use crate::model::knowledge::{AffectedNodes, NodePlatform, product};
use crate::model::nodes::node::NodeSigns as _;
use crate::model::windows::build::{Build, supported_on};

/// What will change for the nodes, and which webhooks refuse pods.
pub fn findings(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let mut all = Vec::new();
    if input.could_list("nodes") {
        all.extend(dates(input));
        all.extend(next_minor(input));
        all.extend(minor_changes(input));
        all.extend(age(input));
    } else {
        let text = "not known (not read): nodes, and so the ends of their support";
        all.push(PreflightFinding::fine(text));
    }
    all.extend(unanswered(input));
    all
}

/// Which rows were used.
fn age(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let facts = &input.snapshot.facts;
    let lines = facts.knowledge.report(facts.today).lines().into_iter();
    let mut all: Vec<PreflightFinding> = lines.map(PreflightFinding::fine).collect();
    if let Some(first) = all.first_mut() {
        first.remedy = Some("transom knowledge list shows remedies and sources".to_owned());
    }
    all
}

/// Webhooks that refuse pods, Windows pods among them.
fn unanswered(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let hooks = input.environment.unanswered.iter().map(|hook| {
        let text = format!(
            "the webhook {} refuses pods: it has failurePolicy Fail, and its Service {}/{} has no ready endpoint",
            hook.configuration, hook.namespace, hook.service
        );
        let remedy = "start the pods of the Service and renew its certificate, or delete the webhook configuration";
        PreflightFinding::act(text, remedy).by([format!("Service {}/{}", hook.namespace, hook.service)])
    });
    hooks.collect()
}

/// The platform of a node: by its own labels, otherwise that of the cluster.
fn platform(node: &NodeView, input: ClusterInput<'_>) -> Option<NodePlatform> {
    let own = NodePlatform::of_labels(node.labels.keys().map(String::as_str));
    own.or(input.platform.of_nodes)
}

/// The Windows nodes by platform and build.
fn by_build(input: ClusterInput<'_>) -> BTreeMap<(Option<NodePlatform>, Build), Vec<&str>> {
    let mut all: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for node in windows(input.snapshot) {
        if let Some(build) = node.build() {
            all.entry((platform(node, input), build))
                .or_default()
                .push(&node.name);
        }
    }
    all
}

fn dates(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let (today, knowledge) = (input.snapshot.facts.today, &input.snapshot.facts.knowledge);
    let mut all = Vec::new();
    for ((platform, build), nodes) in by_build(input) {
        for date in knowledge.support_dates(platform, build) {
            // The finding about the build states the end of Microsoft's support, and a rule reports what is near.
            if date.platform.is_none() || date.is_near(today) {
                continue;
            }
            let text = format!("{date}, in {} days ({})", date.days_from(today), date.source);
            all.push(PreflightFinding::fine(text).on_nodes(&nodes));
        }
    }
    all
}

fn next_minor(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let current = input.snapshot.facts.kubernetes;
    let next = current + 1;
    let mut all = Vec::new();
    for ((platform, build), nodes) in by_build(input) {
        let lacks = |minor| supported_on(minor).is_some_and(|support| support.lacks(build));
        let by_platform =
            platform.and_then(|platform| input.snapshot.facts.knowledge.support_of(platform, build));
        let last = by_platform.filter(|support| support.last_minor == Some(current));
        let remedy = "move their workloads to nodes of a newer Windows Server before the upgrade";
        if let Some(support) = last {
            let (platform, product) = (support.platform, product(build));
            let text = format!(
                "{platform} does not support {product} with the next release, Kubernetes 1.{next} ({})",
                support.source
            );
            all.push(PreflightFinding::act(text, remedy).on_nodes(nodes));
        } else if lacks(next) && !lacks(current) {
            let text = format!(
                "the next release, Kubernetes 1.{next}, does not support {}",
                product(build)
            );
            all.push(PreflightFinding::act(text, remedy).on_nodes(nodes));
        }
    }
    all
}

/// What the next minor release changes for the nodes.
fn minor_changes(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let next = input.snapshot.facts.kubernetes + 1;
    let mut all = Vec::new();
    let changes = input.snapshot.facts.knowledge.changes.iter();
    for change in changes.filter(|change| change.minor == next) {
        let is_affected = |node: &&NodeView| {
            let here = change.platform.is_none() || change.platform == platform(node, input);
            let has = match change.affects {
                AffectedNodes::All => true,
                AffectedNodes::Containerd1 => node.container_runtime.starts_with("containerd://1."),
            };
            here && has
        };
        let nodes: Vec<&str> = windows(input.snapshot)
            .filter(is_affected)
            .map(|node| node.name.as_str())
            .collect();
        if !nodes.is_empty() {
            let text = format!("from Kubernetes 1.{next}: {} ({})", change.change, change.source);
            all.push(PreflightFinding::act(text, &change.remedy).on_nodes(nodes));
        }
    }
    all
}
