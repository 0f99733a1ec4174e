//! The status of a node policy: conditions and counts, worded for the users who have to act on them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::Event;

use super::guard::GuardResult;
use super::guard::carried::ExcludedWorkloads;
use super::node_state::NodesOfPolicy;
use super::runtime_classes::ClassesOfPolicy;
use crate::api::{
    BuildCount, DriftedNode, FailedImage, KnownFaultStatus, PartMode, StartupStatus, TAINTS_BLOCKED,
    WORKLOADS_EXCLUDED, WindowsNodePolicySpec, WindowsNodePolicyStatus,
};
use crate::cluster::errors::ApiError;
use crate::cluster::stored_node_policies::NodePolicy;
use crate::controller::conditions::{
    ACCEPTED, AS_STORED, ConditionUpdate, EventPolicy, OVERLAPPING, PROGRAMMED, READY, conditions,
};
use crate::controller::startup_states::{NOT_PULLED_HERE, StartupOfPolicy};
use crate::model::syntax::text::{count, cut, list};
use crate::rules::MISSING_WINDOWS_TOLERATION;

pub(crate) mod write;

/// How many nodes a message names.
const NAMED: usize = 20;
/// How many nodes a short message names.
const BRIEF: usize = 3;
/// The longest text outside a condition's message, in bytes.
const LONGEST_BRIEF: usize = 512;

/// Inputs of a policy's status other than the state of its nodes.
#[derive(Clone, Debug, Default)]
pub struct PolicyFacts {
    pub guarded: GuardResult,
    /// The workloads that taints of Transom's keep off nodes.
    pub excluded: Option<ExcludedWorkloads>,
    /// Nodes that could not be written, and why.
    pub failures: BTreeMap<String, ApiError>,
    /// Nodes whose labels or taints another writer changes again and again.
    pub restless: Vec<String>,
    /// Its nodes that an autoscaler may remove, and whose pool nothing names.
    pub undeclared: BTreeSet<String>,
    /// The DaemonSets that do not tolerate the taints that its nodes still lack, each with the taints.
    pub untolerating: BTreeSet<String>,
    /// The state of its RuntimeClasses; `None` if it manages none.
    pub classes: Option<ClassesOfPolicy>,
    /// Its new nodes; `None` if it does not gate them, or they are not known yet.
    pub startup: Option<StartupOfPolicy>,
}

/// This condition only exists if the policy manages RuntimeClasses.
const CLASSES_READY: &str = "RuntimeClassesReady";
/// This condition only exists if the policy gates new nodes.
const IMAGES_READY: &str = "ImagesReady";
/// The condition for clients that revert what Transom writes.
const CONFLICTED: &str = "Conflicted";
/// The reason of a policy whose nodes are not all written yet.
const RECONCILING: &str = "Reconciling";
/// The condition for nodes whose versions have a known fault.
const KNOWN_FAULTS: &str = "KnownFaults";

/// The condition for the other findings of the rules on nodes. It only exists while there are any.
const NODE_FINDINGS: &str = "NodeFindings";

/// The status of a policy. `before`: the stored status; a condition keeps its transition time if it has not changed.
pub fn status_of(
    policy: &NodePolicy,
    nodes: &NodesOfPolicy,
    known: &PolicyFacts,
    before: Option<&WindowsNodePolicyStatus>,
    now: Timestamp,
) -> WindowsNodePolicyStatus {
    let updates = updates(policy, nodes, known);
    let message = message(&updates);
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
        conditions: conditions(
            updates,
            &[PROGRAMMED, CLASSES_READY, IMAGES_READY, NODE_FINDINGS],
            before,
            policy.generation,
            now,
        ),
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
        owned_node_count: number(nodes.owned),
        known_faults: known_faults(nodes),
        startup: known.startup.as_ref().map(startup_status),
        message,
    }
}

/// The Events for a status change: one when the policy cannot be used completely, or taints are blocked or in conflict, or
/// the reason changes, and one when that ends. `before`: the stored status.
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
        ACCEPTED => update.event("EvaluatePolicy"),
        KNOWN_FAULTS => update.event("CheckVersions"),
        IMAGES_READY => update.event("PullImages"),
        _ => update.event("ReconcileTaints"),
    };
    news.map(event).collect()
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The conditions of a policy, the most urgent first.
fn updates(policy: &NodePolicy, nodes: &NodesOfPolicy, known: &PolicyFacts) -> Vec<ConditionUpdate> {
    let mut details = vec![
        blocked(policy, nodes, known),
        excluded(known),
        conflicted(nodes, known),
        overlapping(policy, nodes),
        unsupported(nodes),
        faulty(nodes),
        undeclared(known),
        untolerating(known),
    ];
    details.extend(known.classes.as_ref().map(classes));
    details.extend(known.startup.as_ref().map(images_ready));
    details.push(node_findings(nodes));
    let accepted = accepted(policy);
    let programmed = programmed(policy, nodes, known, &details);
    let (reason, message) = met(nodes);
    let ready = ConditionUpdate::ready(&accepted, programmed.as_ref(), (reason, &message));
    let mut updates = vec![accepted];
    updates.extend(programmed);
    updates.push(ready);
    updates.extend(details);
    updates
}

/// The most severe problem, in one line. Transom cannot fix the versions of nodes, so known faults are none.
fn message(updates: &[ConditionUpdate]) -> Option<String> {
    let bad = |kind: &str| updates.iter().find(|update| update.kind == kind && update.is_bad);
    let refused = bad(ACCEPTED).filter(|accepted| !accepted.holds);
    let worst = refused.or_else(|| bad(PROGRAMMED)).or_else(|| bad(OVERLAPPING));
    let worst = worst.or_else(|| bad(ACCEPTED)).or_else(|| bad(IMAGES_READY));
    worst.map(|update| update.brief.clone())
}

/// Whether the policy can be used, completely or without some parts.
fn accepted(policy: &NodePolicy) -> ConditionUpdate {
    let mut update = if let Some(why) = &policy.unusable {
        let text = format!(
            "{why}; until it can be read, nothing is set and nothing is removed for it, and no node gets another policy \
             that comes later"
        );
        ConditionUpdate::expect_true(ACCEPTED, Some(("Invalid", text)), AS_STORED)
    } else if policy.left_out.is_empty() {
        ConditionUpdate::expect_true(ACCEPTED, None, AS_STORED)
    } else {
        ConditionUpdate::partially_invalid(policy.left_out.join("; "))
    };
    update.brief = cut(&update.message, LONGEST_BRIEF).into_owned();
    update.with_events(EventPolicy::Words)
}

/// Whether everything that the policy requires is written; `None` if it requires nothing, and nothing is left to
/// remove.
fn programmed(
    policy: &NodePolicy,
    nodes: &NodesOfPolicy,
    known: &PolicyFacts,
    details: &[ConditionUpdate],
) -> Option<ConditionUpdate> {
    let problem = unprogrammed(policy, nodes, known, details);
    if problem.is_none() && known.classes.is_none() && !writes(&policy.stored.spec) {
        return None;
    }
    // It is only a matter of time.
    let is_bad = problem.as_ref().is_some_and(|(reason, _)| *reason != RECONCILING);
    let problem = problem.map(|(reason, text)| (reason, cut(&text, LONGEST_BRIEF).into_owned()));
    let met = (PROGRAMMED, "everything that the policy requires is written");
    Some(ConditionUpdate {
        is_bad,
        ..ConditionUpdate::expect_true(PROGRAMMED, problem, met)
    })
}

/// Whether a policy makes Transom write anything.
fn writes(spec: &WindowsNodePolicySpec) -> bool {
    let labels = spec.label_modes().map(|(_, mode)| mode);
    let others = [spec.taints_mode(), spec.runtime_classes_mode()];
    labels
        .iter()
        .chain(&others)
        .any(|mode| *mode == PartMode::Reconcile)
}

/// Why not everything is written, the most urgent reason first.
fn unprogrammed(
    policy: &NodePolicy,
    nodes: &NodesOfPolicy,
    known: &PolicyFacts,
    details: &[ConditionUpdate],
) -> Option<(&'static str, String)> {
    if policy.unusable.is_some() {
        let text = "nothing is written for a policy that cannot be read";
        return Some(("Invalid", text.to_owned()));
    }
    if let Some((unusable, held)) = nodes.held.first_key_value() {
        let text = format!(
            "{unusable} may select {} nodes that this policy selects ({}) and cannot be read: nothing is set and nothing is \
             removed there; correct {unusable}, or delete it",
            held.len(),
            list(held, BRIEF)
        );
        return Some(("BlockedByInvalidPolicy", text));
    }
    if let Some(text) = forbidden(policy, nodes, known) {
        return Some(("Forbidden", text));
    }
    for (kind, reason) in [
        (TAINTS_BLOCKED, TAINTS_BLOCKED),
        (CONFLICTED, CONFLICTED),
        (CLASSES_READY, "RuntimeClassesNotReady"),
    ] {
        if let Some(bad) = details.iter().find(|update| update.kind == kind && update.is_bad) {
            return Some((reason, bad.brief.clone()));
        }
    }
    if let Some((node, why)) = known.failures.first_key_value() {
        let text = format!(
            "{} nodes could not be written: {node}: {why}",
            known.failures.len()
        );
        return Some(("WriteFailed", text));
    }
    (nodes.unwritten > 0).then(|| {
        let (waiting, all) = (nodes.unwritten, nodes.nodes);
        let text = format!("{waiting} of {all} Windows nodes still wait to be written");
        (RECONCILING, text)
    })
}

/// Which right Transom lacks to write what the policy requires, with the value of the chart that grants it.
fn forbidden(policy: &NodePolicy, nodes: &NodesOfPolicy, known: &PolicyFacts) -> Option<String> {
    let grant = |value: &str, what: &str, why: &str| {
        format!(
            "Transom's account may not {what}: set {value}=true in the values of the chart, or change the policy ({why})"
        )
    };
    let denied = |(node, why): (&String, &ApiError)| {
        let ApiError::Forbidden(why) = why else {
            return None;
        };
        Some(grant(
            "rbac.nodePolicies",
            "write to nodes",
            &format!("{node}: {why}"),
        ))
    };
    if let Some(text) = known.failures.iter().find_map(denied) {
        return Some(text);
    }
    if let GuardResult::Unknown {
        why,
        is_forbidden: true,
    } = &known.guarded
        && waits_for_guard(policy, nodes)
    {
        let what = "list the workloads that a taint would affect";
        return Some(grant("rbac.nodePolicies", what, why));
    }
    let why = known.classes.as_ref()?.forbidden.as_ref()?;
    Some(grant("rbac.runtimeClasses", "write RuntimeClasses", why))
}

/// Whether nodes get their taints only when the guard has found that no workload is affected.
fn waits_for_guard(policy: &NodePolicy, nodes: &NodesOfPolicy) -> bool {
    !nodes.waiting.is_empty() && policy.stored.spec.taints_mode() == PartMode::Reconcile
}

/// Reason and message of `Ready` if the policy is accepted and programmed.
fn met(of: &NodesOfPolicy) -> (&'static str, String) {
    let nodes = of.nodes;
    if nodes == 0 {
        let text = if of.outranked_by.is_empty() {
            "it selects no Windows node now".to_owned()
        } else {
            let others = list(&of.outranked_by, BRIEF);
            format!("policies with precedence apply to every Windows node that it selects: {others}")
        };
        return ("NoNodesSelected", text);
    }
    if of.drift.is_empty() {
        return (READY, format!("all {nodes} Windows nodes match the policy"));
    }
    let message = format!(
        "everything that Transom writes is written; status.driftedNodes lists what differs from the policy on {} of {nodes} \
         Windows nodes",
        of.drift.len()
    );
    ("Drifted", message)
}

fn conflicted(nodes: &NodesOfPolicy, known: &PolicyFacts) -> ConditionUpdate {
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
        CONFLICTED,
        &parts(NAMED),
        "OverwrittenByOtherClient",
        "NotConflicted",
        quiet,
    );
    if update.is_bad {
        update.brief = cut(&parts(BRIEF).join("; "), LONGEST_BRIEF).into_owned();
    }
    update.with_events(EventPolicy::Reasons)
}

fn blocked(policy: &NodePolicy, nodes: &NodesOfPolicy, known: &PolicyFacts) -> ConditionUpdate {
    let waits = waits_for_guard(policy, nodes);
    let (parts, reason) = match &known.guarded {
        GuardResult::Refused { message, .. } if waits => (vec![message.clone()], "WorkloadsAffected"),
        GuardResult::Unknown { why, .. } if waits => {
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

/// The condition for workloads that cannot be scheduled on nodes because of taints that Transom set. Any user may create such a
/// workload, so it does not affect `Ready`.
fn excluded(known: &PolicyFacts) -> ConditionUpdate {
    let parts: Vec<String> = (known.excluded.iter().map(|excluded| excluded.message.clone())).collect();
    let quiet = "no workload that was found needs nodes whose taints it does not tolerate";
    let mut update = where_any(
        WORKLOADS_EXCLUDED,
        &parts,
        "TaintsNotTolerated",
        "NoWorkloadsExcluded",
        quiet,
    );
    if let Some(excluded) = &known.excluded {
        update.brief = cut(&excluded.brief, LONGEST_BRIEF).into_owned();
    }
    update.with_events(EventPolicy::Turns)
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
    let parts: Vec<String> = parts.collect();
    let update = ConditionUpdate::overlapping((!parts.is_empty()).then(|| parts.join("; ")));
    ConditionUpdate {
        brief: in_brief(&parts, &update.message),
        ..update
    }
}

/// The condition for what `transom check` reports of the nodes, too. Transom does not act on it, so it does not affect `Ready`.
fn node_findings(nodes: &NodesOfPolicy) -> ConditionUpdate {
    let parts = nodes.findings.iter().map(|((message, remedy), nodes)| {
        let names = list(nodes, NAMED);
        format!("{} ({names}): {message}; {remedy}", count(nodes.len(), "node"))
    });
    notice(NODE_FINDINGS, &parts.collect::<Vec<_>>(), "FindingsFound")
}

fn unsupported(nodes: &NodesOfPolicy) -> ConditionUpdate {
    let parts = nodes.unsupported.iter().map(|(build, nodes)| {
        let product = build.release().map_or("an unknown release", |release| release.product);
        format!(
            "{nodes} nodes run {build} ({product}), which this Kubernetes release is not documented to support; Transom \
             changes nothing: move their workloads to a supported release"
        )
    });
    // Transom does not act on it, so it does not affect `Ready`.
    notice(
        "UnsupportedBuilds",
        &parts.collect::<Vec<_>>(),
        "BuildNotSupported",
    )
}

/// The condition for nodes whose versions certainly have a known fault; `status.knownFaults` has the remedies. Its Event is reported
/// when it turns. A condition must not be permanently true because of possible faults.
fn faulty(nodes: &NodesOfPolicy) -> ConditionUpdate {
    let certain = nodes.known_faults.certain().map(|found| {
        let nodes = count(found.nodes.len(), "node");
        format!("{nodes} ({}): {}", list(&found.nodes, NAMED), found.fault.id)
    });
    let mut parts: Vec<String> = certain.collect();
    if let Some(last) = parts.last_mut() {
        last.push_str("; status.knownFaults has the remedies");
    }
    let quiet = "no node runs a version with a known fault";
    let update = where_any(
        KNOWN_FAULTS,
        &parts,
        "KnownFaultsFound",
        "NoKnownFaultsFound",
        quiet,
    );
    update.with_events(EventPolicy::Turns)
}

/// The known faults of the nodes, for `status.knownFaults`.
fn known_faults(nodes: &NodesOfPolicy) -> Vec<KnownFaultStatus> {
    let all = nodes.known_faults.iter().take(KnownFaultStatus::MOST);
    let all = all.map(|found| KnownFaultStatus {
        id: found.fault.id.clone(),
        certain: found.fault.is_certain,
        message: cut(&found.fault.summary, 1024).into_owned(),
        remedy: cut(&found.fault.remedy, 1024).into_owned(),
        node_count: number(found.nodes.len()),
        nodes: (found.nodes.iter().take(KnownFaultStatus::MOST_NODES))
            .cloned()
            .collect(),
    });
    all.collect()
}

/// The condition for nodes that are forgotten when they are gone. Nothing is wrong while they are there, so it does not affect
/// `Ready`.
fn undeclared(known: &PolicyFacts) -> ConditionUpdate {
    let nodes = &known.undeclared;
    let part = format!(
        "{} ({}) have no pool label, and something may remove them all: with the last one, Transom forgets what it knows of \
         their pool; declare a WindowsNodePool, or name one of their labels in cluster.nodeLabels of the chart's values",
        count(nodes.len(), "Windows node"),
        list(nodes, NAMED)
    );
    let parts: Vec<String> = (!nodes.is_empty()).then_some(part).into_iter().collect();
    notice("UndeclaredPools", &parts, "NoPoolLabel")
}

/// The condition for DaemonSets that lose their pods once all nodes have the taints of the policy, whatever its mode is. Nothing
/// is wrong before, so it does not affect `Ready`.
fn untolerating(known: &PolicyFacts) -> ConditionUpdate {
    let daemon_sets = &known.untolerating;
    let part = format!(
        "once all nodes have the taints, {} would be denied ({}) and get no pods: {}; add the tolerations to their templates",
        count(daemon_sets.len(), "Windows DaemonSet"),
        MISSING_WINDOWS_TOLERATION.id,
        list(daemon_sets, NAMED)
    );
    let parts: Vec<String> = (!daemon_sets.is_empty()).then_some(part).into_iter().collect();
    notice("DaemonSetsUntolerating", &parts, "TaintsNotTolerated")
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

fn startup_status(startup: &StartupOfPolicy) -> StartupStatus {
    let failed = startup.failed.iter().take(StartupStatus::MOST_FAILED);
    let failed = failed.map(|failed| FailedImage {
        message: cut(&failed.message, 1024).into_owned(),
        ..failed.clone()
    });
    StartupStatus {
        starting: number(startup.starting),
        warm: number(startup.warm),
        late: number(startup.late),
        failed: failed.collect(),
    }
}

/// Whether new nodes get their images. It does not affect `Ready`: a node gets pods without them, too.
fn images_ready(startup: &StartupOfPolicy) -> ConditionUpdate {
    let failed = startup.failed.iter().map(|failed| {
        let FailedImage { node, image, message } = failed;
        format!("{image} cannot be pulled on node {node}: {message}")
    });
    let failed: Vec<String> = failed.collect();
    let (starting, late) = (startup.starting, startup.late);
    let unmet = if let Some((reason, message)) = &startup.problem {
        Some((*reason, message.clone()))
    } else if !failed.is_empty() {
        Some(("ImagePullFailed", list(&failed, NAMED)))
    } else if late > 0 {
        let unseen = if startup.others_pull { NOT_PULLED_HERE } else { "" };
        let text = format!(
            "{} got pods without some of their images{unseen}",
            count(late, "node")
        );
        Some(("ImagesLate", text))
    } else {
        let text = format!("{} for images", wait(starting));
        (starting > 0).then_some(("NodesStarting", text))
    };
    // It is only a matter of time.
    let is_bad = unmet
        .as_ref()
        .is_some_and(|(reason, _)| *reason != "NodesStarting");
    let brief = unmet
        .as_ref()
        .map(|(_, text)| cut(text, LONGEST_BRIEF).into_owned());
    let met = (IMAGES_READY, "no node waits for images");
    let update = ConditionUpdate::expect_true(IMAGES_READY, unmet, met);
    let update = ConditionUpdate {
        is_bad,
        brief: brief.unwrap_or_else(|| update.brief.clone()),
        ..update
    };
    // Nodes have Events of their own.
    let events = if startup.problem.is_some() {
        EventPolicy::Reasons
    } else {
        EventPolicy::Never
    };
    update.with_events(events)
}

fn wait(nodes: usize) -> String {
    match nodes {
        1 => "1 node waits".to_owned(),
        nodes => format!("{nodes} nodes wait"),
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

/// A condition that informs if there are any parts.
fn notice(kind: &'static str, parts: &[String], reason: &'static str) -> ConditionUpdate {
    ConditionUpdate::notice(kind, (!parts.is_empty()).then(|| (reason, parts.join("; "))))
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
