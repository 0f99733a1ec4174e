//! DaemonSets that cannot run on the new nodes, and those that replace them there.

use super::drain_order::PlannedUpgrade;
use super::new_nodes::Upgrade;
use super::plan_finding::{BlockedBy, FindingSource, PlanFinding, UpgradeClass};
use super::workload::PlannedWorkload;
use crate::rules;

/// Whether a finding of this class blocks a workload although its images and requirements allow the new build, or may allow it.
fn is_doubt_or_obstacle(class: UpgradeClass) -> bool {
    matches!(class, UpgradeClass::Unknown | UpgradeClass::Blocked)
}

/// The finding about a DaemonSet that cannot run on the new nodes. `second`: the one for the new build; if it replaces this
/// one, the findings of this one no longer block.
fn of_daemon_set(upgrade: Upgrade, second: Option<&str>, findings: &mut [PlanFinding]) -> PlanFinding {
    let target = upgrade.to.with_product();
    let finding = |class, message: String| {
        let source = FindingSource::rule(&rules::DAEMONSET_SPANS_BUILDS);
        PlanFinding::new(class, "spec.template", message, source)
    };
    let Some(second) = second else {
        let process = if upgrade.is_in_place() {
            "upgraded"
        } else {
            "drained"
        };
        let message = format!(
            "it is needed for both builds while pools are {process}, and none that runs the same program is for {target}"
        );
        let remedy = format!("add one with an image and a nodeSelector for {target} in addition");
        return finding(UpgradeClass::Blocked, message).remedy(remedy);
    };
    // One whose pods would start on the new nodes too, and fail there, is not replaced by another one.
    let stays_off = |it: &PlanFinding| it.blocks && it.class == UpgradeClass::Pinned;
    if !findings.iter().any(stays_off) {
        let message = format!(
            "DaemonSet {second} exists for nodes of {target}, and this one creates pods there too, which fail"
        );
        return finding(UpgradeClass::Blocked, message)
            .remedy("let each of the two select the nodes of its own build");
    }
    for finding in findings {
        finding.blocks &= is_doubt_or_obstacle(finding.class);
    }
    let end = if upgrade.is_in_place() {
        "has no pods on upgraded nodes"
    } else {
        "is removed with the old nodes"
    };
    let message = format!("DaemonSet {second} exists for nodes of {target}; this one {end}");
    finding(UpgradeClass::Pinned, message).note()
}

impl PlannedUpgrade<'_> {
    /// Whether a DaemonSet may have pods on all upgraded nodes on which another one has pods now.
    fn covers(&self, second: &PlannedWorkload, first: &PlannedWorkload) -> bool {
        if !self.upgrade.is_in_place() {
            return true;
        }
        let is_upgraded = |name: &&String| {
            let node = self.planner.nodes.get(name);
            node.is_some_and(|node| self.from.contains(&node.pool))
        };
        let mut nodes = first.nodes.iter().filter(is_upgraded);
        nodes.all(|name| second.lands_on_each.contains(name))
    }

    /// A DaemonSet that cannot run on the new nodes must exist for both builds while pools are drained or upgraded.
    /// Another DaemonSet that runs the same program on the new build is accepted as the second one. `findings`: those of each
    /// workload, by index.
    pub(super) fn daemon_sets(&self, findings: &mut [Vec<PlanFinding>]) {
        let workloads = || {
            self.planner
                .workloads
                .iter()
                .zip(0..)
                .filter(|(it, _)| it.is_daemon_set)
        };
        // One that only runs on pools that keep their build is not for the new one.
        let is_for_target = |it: &PlannedWorkload| !self.upgrade.is_in_place() || !it.lands_on.is_empty();
        let is_blocked = |index: usize| {
            findings
                .get(index)
                .is_some_and(|all| all.iter().any(|it| it.blocks))
        };
        let running: Vec<&PlannedWorkload> = workloads()
            .filter(|(workload, index)| !is_blocked(*index) && is_for_target(workload))
            .map(|(workload, _)| workload)
            .collect();
        for (workload, index) in workloads() {
            let holds = |it: &PlanFinding| it.blocks && !is_doubt_or_obstacle(it.class);
            if let Some(findings) = findings.get_mut(index)
                && findings.iter().any(holds)
            {
                let second = running.iter().find(|other| {
                    other.key.namespace == workload.key.namespace
                        && workload.runs_same_program(other)
                        && self.covers(other, workload)
                });
                let second = second.map(|second| second.key.name.as_str());
                let finding = of_daemon_set(self.upgrade, second, findings);
                findings.push(finding.caused_by(BlockedBy::DaemonSet));
            }
        }
    }
}
