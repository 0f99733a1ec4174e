//! The status of a node policy: conditions and counts, worded for the users who have to act on them. Pure.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::Event;

use super::guard::GuardResult;
use super::node_state::{FaultyNodes, NodesOfPolicy};
use super::policies::NodePolicy;
use super::runtime_classes::ClassesOfPolicy;
use crate::api::{BuildCount, DriftedNode, TAINTS_BLOCKED, TaintMode, WindowsNodePolicyStatus};
use crate::controller::conditions::{ConditionUpdate, EventPolicy, conditions};
use crate::model::text::{count, cut, list};

pub mod write;

/// How many nodes a message names.
const NAMED: usize = 20;
/// How many nodes a short message names.
const BRIEF: usize = 3;
/// The longest text outside a condition's message, in bytes.
const LONGEST_BRIEF: usize = 512;

/// Inputs of a policy's status other than the state of its nodes.
#[derive(Clone, Debug, Default)]
pub struct PolicyFacts {
    /// The guard's result.
    pub guarded: GuardResult,
    /// Nodes that could not be written, with the reason.
    pub failures: Vec<String>,
    /// Nodes whose labels or taints another writer changes again and again.
    pub restless: Vec<String>,
    /// Its nodes that an autoscaler may remove, and whose pool nothing names.
    pub undeclared: BTreeSet<String>,
    /// The state of its RuntimeClasses; `None` if it manages none.
    pub classes: Option<ClassesOfPolicy>,
}

/// This condition only exists if the policy manages RuntimeClasses.
const CLASSES_READY: &str = "RuntimeClassesReady";
/// The condition for nodes whose versions have a known fault.
const KNOWN_FAULTS: &str = "KnownFaults";

/// The status of a policy. `before`: the stored status; a condition keeps its transition time if it has not changed.
pub fn status_of(
    policy: &NodePolicy,
    nodes: &NodesOfPolicy,
    known: &PolicyFacts,
    before: Option<&WindowsNodePolicyStatus>,
    now: Timestamp,
) -> WindowsNodePolicyStatus {
    let mut updates = updates(policy, nodes, known);
    let problem = problem(policy, nodes, known, &updates);
    updates.insert(0, ready(nodes, problem.as_ref()));
    let builds: Vec<BuildCount> = (nodes.builds.iter())
        .map(|(build, nodes)| BuildCount {
            build: build.to_string(),
            release: build.release().map(|release| release.name.to_owned()),
            node_count: number(*nodes),
        })
        .collect();
    let before = before.map_or(&[][..], |before| &before.conditions);
    WindowsNodePolicyStatus {
        observed_generation: Some(policy.generation),
        conditions: conditions(updates, &[CLASSES_READY], before, policy.generation, now),
        node_count: number(nodes.nodes),
        build_summary: BuildCount::summary(&builds),
        builds,
        drifted_node_count: number(nodes.drift.len()),
        drifted_nodes: (nodes.drift.iter().take(WindowsNodePolicyStatus::MOST_DRIFTED))
            .map(|(name, what)| DriftedNode {
                name: name.clone(),
                message: cut(&what.join("; "), 1024).into_owned(),
            })
            .collect(),
        message: problem.map(|(_, brief)| brief),
    }
}

/// The Events for a status change: one when taints are blocked or in conflict or the reason changes, and one when
/// that ends. `before`: the stored status.
pub fn news_of(
    policy: &NodePolicy,
    nodes: &NodesOfPolicy,
    known: &PolicyFacts,
    before: Option<&WindowsNodePolicyStatus>,
) -> Vec<Event> {
    let before = before.map_or(&[][..], |before| &before.conditions);
    let updates = updates(policy, nodes, known).into_iter();
    let news = updates.filter(|update| update.is_news(before));
    let event = |update: ConditionUpdate| match update.kind {
        KNOWN_FAULTS => update.event("CheckVersions"),
        _ => update.event("ReconcileTaints"),
    };
    news.map(event).collect()
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The conditions of a policy except `Ready`, the most urgent first.
fn updates(policy: &NodePolicy, nodes: &NodesOfPolicy, known: &PolicyFacts) -> Vec<ConditionUpdate> {
    let mut updates = vec![
        blocked(policy, nodes, known),
        conflict(nodes, known),
        overlapping(policy, nodes),
        unsupported(nodes),
        faulty(nodes),
        undeclared(known),
    ];
    updates.extend(known.classes.as_ref().map(classes));
    updates
}

/// Why the policy is not ready, the most urgent problem first: a reason, and one line of text.
fn problem(
    policy: &NodePolicy,
    nodes: &NodesOfPolicy,
    known: &PolicyFacts,
    updates: &[ConditionUpdate],
) -> Option<(&'static str, String)> {
    let brief = |text: &str| cut(text, LONGEST_BRIEF).into_owned();
    if let Some(why) = &policy.unusable {
        let text = format!(
            "{why}; until it can be read, nothing is set and nothing is removed for it, and no node gets another policy \
             that comes later"
        );
        return Some(("Invalid", brief(&text)));
    }
    if let Some((unusable, held)) = nodes.held.first_key_value() {
        let text = format!(
            "{unusable} may select {} nodes that this policy selects ({}) and cannot be read: nothing is set and nothing is \
             removed there; correct {unusable}, or delete it",
            held.len(),
            list(held, BRIEF)
        );
        return Some(("BlockedByInvalidPolicy", brief(&text)));
    }
    // Transom cannot fix the versions of nodes, so known faults do not affect `Ready`.
    let of_policy = |update: &&ConditionUpdate| update.is_bad && update.kind != KNOWN_FAULTS;
    if let Some(bad) = updates.iter().find(of_policy) {
        return Some((bad.kind, bad.brief.clone()));
    }
    if let Some(first) = known.failures.first() {
        let text = format!("{} nodes could not be written: {first}", known.failures.len());
        return Some(("WriteFailed", brief(&text)));
    }
    (!policy.left_out.is_empty()).then(|| ("InvalidFieldsIgnored", brief(&policy.left_out.join("; "))))
}

fn ready(of: &NodesOfPolicy, problem: Option<&(&'static str, String)>) -> ConditionUpdate {
    let nodes = of.nodes;
    let (holds, reason, message) = match problem {
        Some((reason, message)) => (false, *reason, message.clone()),
        None if of.unwritten > 0 => (
            false,
            "Reconciling",
            format!(
                "{} of {nodes} Windows nodes still wait to be written",
                of.unwritten
            ),
        ),
        None if nodes == 0 => (true, "NoNodes", "it selects no Windows node now".to_owned()),
        None if of.drift.is_empty() => (
            true,
            "Reconciled",
            format!("all {nodes} Windows nodes match the policy"),
        ),
        None => (
            true,
            "DriftReported",
            format!(
                "everything that Transom writes is written; status.driftedNodes lists what differs from the policy on {} of {nodes} Windows \
                 nodes",
                of.drift.len()
            ),
        ),
    };
    ConditionUpdate {
        kind: "Ready",
        holds,
        is_bad: !holds,
        reason,
        brief: message.clone(),
        message,
        events: EventPolicy::Never,
    }
}

fn conflict(nodes: &NodesOfPolicy, known: &PolicyFacts) -> ConditionUpdate {
    let parts = |most: usize| {
        let mut parts = Vec::new();
        if !nodes.contested.is_empty() {
            let taints: BTreeSet<String> = nodes
                .contested
                .values()
                .flatten()
                .map(ToString::to_string)
                .collect();
            parts.push(format!(
                "another client removed {} three times on {}: Transom no longer sets it there; set it where that client \
                 reads it (the node pool), or change the policy to try again",
                list(&taints, most),
                list(nodes.contested.keys(), most)
            ));
        }
        if !known.restless.is_empty() {
            parts.push(format!(
                "another client repeatedly reverts what Transom writes to {}; Transom corrects it at growing intervals: \
                 find that client in metadata.managedFields of the node",
                list(&known.restless, most)
            ));
        }
        parts
    };
    let quiet = "no other client reverts what Transom writes";
    let mut update = where_any(
        "Conflict",
        &parts(NAMED),
        "OverwrittenByOtherClient",
        "NoConflict",
        quiet,
    );
    if update.is_bad {
        update.brief = cut(&parts(BRIEF).join("; "), LONGEST_BRIEF).into_owned();
    }
    update.with_events(EventPolicy::Reasons)
}

fn blocked(policy: &NodePolicy, nodes: &NodesOfPolicy, known: &PolicyFacts) -> ConditionUpdate {
    let waits = !nodes.waiting.is_empty() && policy.stored.spec.taints.mode == TaintMode::Apply;
    let (parts, reason) = match &known.guarded {
        GuardResult::Refused { message, .. } if waits => (vec![message.clone()], "WorkloadsAffected"),
        GuardResult::Unknown(why) if waits => {
            let text = format!("not set, because it is unknown whether a workload would be affected: {why}");
            (vec![text], "ImpactUnknown")
        }
        _ => (Vec::new(), "WorkloadsAffected"),
    };
    let quiet = "no taint is withheld";
    let mut update = where_any(TAINTS_BLOCKED, &parts, reason, "NoWorkloadsAffected", quiet);
    if let (GuardResult::Refused { brief, .. }, true) = (&known.guarded, update.is_bad) {
        update.brief = cut(brief, LONGEST_BRIEF).into_owned();
    }
    update.with_events(EventPolicy::Reasons)
}

fn overlapping(policy: &NodePolicy, nodes: &NodesOfPolicy) -> ConditionUpdate {
    let parts = nodes.overlapping.iter().map(|(other, node)| {
        let first = policy.name.as_str().min(other);
        format!(
            "node {node} is selected by {} and {other}, which have the same priority: {first} takes precedence, as the first \
             by name; make their nodeSelectors exclude each other, or give them different priorities",
            policy.name
        )
    });
    where_any(
        "Overlapping",
        &parts.collect::<Vec<_>>(),
        "SamePriority",
        "NoOverlap",
        "no other policy of the same priority selects its nodes",
    )
}

fn unsupported(nodes: &NodesOfPolicy) -> ConditionUpdate {
    let parts = nodes.unsupported.iter().map(|(build, nodes)| {
        let product = build.release().map_or("an unknown release", |release| release.product);
        format!(
            "{nodes} nodes run {build} ({product}), which this Kubernetes release is not documented to support; Transom \
             changes nothing: move their workloads to a supported release"
        )
    });
    let update = where_any(
        "UnsupportedBuilds",
        &parts.collect::<Vec<_>>(),
        "BuildNotSupported",
        "Supported",
        "every build is supported or unknown",
    );
    // Transom does not act on it, so it does not affect `Ready`.
    ConditionUpdate {
        is_bad: false,
        ..update
    }
}

/// The condition for nodes whose versions have a known fault. Its Event is reported when it turns. Possible faults are
/// only in its message: a condition must not be permanently true because of them.
fn faulty(nodes: &NodesOfPolicy) -> ConditionUpdate {
    let possible = if nodes.possible_faults.is_empty() {
        String::new()
    } else {
        format!(
            "possible faults: {}",
            fault_parts(&nodes.possible_faults).join("; ")
        )
    };
    let certain = fault_parts(&nodes.known_faults);
    let no = if possible.is_empty() {
        "NoKnownFault"
    } else {
        "PossibleFaults"
    };
    let quiet = "no node runs a version with a known fault";
    let mut update = where_any(KNOWN_FAULTS, &certain, "FaultyVersions", no, quiet);
    if !possible.is_empty() {
        update.message.push_str("; ");
        update.message.push_str(&possible);
    }
    update.with_events(EventPolicy::Turns)
}

/// The condition for nodes that are forgotten when they are gone. Nothing is wrong while they are there, so it does not affect
/// `Ready`.
fn undeclared(known: &PolicyFacts) -> ConditionUpdate {
    let nodes = &known.undeclared;
    let part = format!(
        "{} ({}) have no pool label, and something may remove them all: with the last one, Transom forgets what it knows of \
         their pool; declare a pool in spec.pools, or name one of their labels in spec.poolLabels",
        count(nodes.len(), "Windows node"),
        list(nodes, NAMED)
    );
    let parts: Vec<String> = (!nodes.is_empty()).then_some(part).into_iter().collect();
    let quiet = "every node that may be removed has a pool label or a declared pool";
    let update = where_any("UndeclaredPools", &parts, "NoPoolLabel", "PoolsKnown", quiet);
    ConditionUpdate {
        is_bad: false,
        ..update
    }
}

fn fault_parts(faults: &FaultyNodes) -> Vec<String> {
    let parts = faults.iter().map(|((message, remedy), nodes)| {
        let names = list(nodes, NAMED);
        format!("{} nodes ({names}): {message}; {remedy}", nodes.len())
    });
    parts.collect()
}

fn classes(classes: &ClassesOfPolicy) -> ConditionUpdate {
    let problems: Vec<String> = classes
        .conflicts
        .iter()
        .chain(&classes.problems)
        .cloned()
        .collect();
    let mut message = match classes.names.as_slice() {
        [] if !classes.conflicts.is_empty() => "it has no class".to_owned(),
        [] => "there is no Windows node, and no class, yet".to_owned(),
        names => names.join(", "),
    };
    for more in problems.iter().chain(&classes.notes) {
        message.push_str("; ");
        message.push_str(more);
    }
    let brief = in_brief(&problems, &message);
    let reason = if classes.conflicts.is_empty() {
        "ReconcileFailed"
    } else {
        "Conflicted"
    };
    let unmet = (!problems.is_empty()).then(|| (reason, message.clone()));
    ConditionUpdate {
        brief,
        ..ConditionUpdate::expect_true(CLASSES_READY, unmet, ("Reconciled", &message))
    }
}

/// A condition that is `True` and bad if there are any parts.
fn where_any(
    kind: &'static str,
    parts: &[String],
    yes: &'static str,
    no: &'static str,
    quiet: &str,
) -> ConditionUpdate {
    let unmet = (!parts.is_empty()).then(|| (yes, parts.join("; ")));
    ConditionUpdate {
        brief: in_brief(parts, quiet),
        ..ConditionUpdate::expect_false(kind, unmet, (no, quiet))
    }
}

/// The first part, and the number of others.
fn in_brief(parts: &[String], quiet: &str) -> String {
    match parts {
        [] => cut(quiet, LONGEST_BRIEF).into_owned(),
        [only] => cut(only, LONGEST_BRIEF).into_owned(),
        [one, more @ ..] => format!("{}; and {} more", cut(one, LONGEST_BRIEF - 32), more.len()),
    }
}

#[cfg(test)]
mod tests;
