//! With an upgrade in place, the workloads whose pods run on pools that keep their build.

use super::constraints::AFFINITY;
use super::drain_order::PlannedUpgrade;
use super::new_nodes::NewNode;
use super::plan_finding::{BlockedBy, FindingSource, PlanFinding, UpgradeClass};
use super::workload::PlannedWorkload;
use crate::model::cluster::policy::PlacementMode;
use crate::model::nodes::node_affinity::Match;
use crate::model::syntax::text::list;

impl PlannedUpgrade<'_> {
    /// The findings of a workload: if its pods cannot be scheduled on the upgraded nodes, but run on a pool that keeps its build,
    /// nothing blocks it.
    pub(super) fn or_elsewhere(
        &self,
        workload: &PlannedWorkload,
        mut findings: Vec<PlanFinding>,
    ) -> Vec<PlanFinding> {
        let is_solved = |finding: &PlanFinding| finding.cause != Some(BlockedBy::NoController);
        if !findings
            .iter()
            .any(|finding| finding.blocks && is_solved(finding))
            || !self.stays_off(workload)
        {
            return findings;
        }
        let found = [Match::Yes, Match::Unknown]
            .map(|landing| (landing, self.pools_that_stay_for(workload, landing)))
            .into_iter()
            .find(|(_, pools)| !pools.is_empty());
        let Some((landing, pools)) = found else {
            return findings;
        };
        for finding in findings.iter_mut().filter(|finding| is_solved(finding)) {
            (finding.blocks, finding.class) = (false, UpgradeClass::Unchanged);
            // Nothing needs to be done.
            (finding.remedy, finding.proposed) = (None, None);
        }
        findings.push(self.runs_elsewhere(workload, landing, &pools));
        let shown = list(&pools, 4);
        let constraints = workload.constraints.iter();
        findings.extend(constraints.map(|constraint| constraint.elsewhere(&shown)));
        findings
    }

    /// The finding about pools that keep their build and run a workload; `landing`: whether that is known.
    fn runs_elsewhere(&self, workload: &PlannedWorkload, landing: Match, pools: &[String]) -> PlanFinding {
        let source = FindingSource::row("node selection: nodes that are not upgraded", AFFINITY);
        let keeps = if pools.len() == 1 {
            "keeps its build"
        } else {
            "keep their builds"
        };
        let pools = list(pools, 4);
        if landing == Match::Unknown {
            let message = format!(
                "its pods may run on {pools}, which {keeps}, but whether its nodes have all labels and resources is not known"
            );
            return PlanFinding::new(UpgradeClass::Unknown, "spec", message, source)
                .remedy("make sure that these nodes have what the pods require");
        }
        let run = if self.planner.knows_builds(workload) {
            "run"
        } else {
            "are scheduled"
        };
        let message = format!("its pods {run} on {pools}, which {keeps}");
        PlanFinding::new(UpgradeClass::Unchanged, "spec", message, source)
    }

    /// Whether no pod of a workload is scheduled on the upgraded nodes. Of a DaemonSet, it must not have had any there, because
    /// its pods do not move.
    fn stays_off(&self, workload: &PlannedWorkload) -> bool {
        if workload.is_daemon_set {
            let mut pools = workload.pods.keys().chain(&workload.selected_pools);
            return workload.lands_on.is_empty() && !pools.any(|pool| self.from.contains(pool));
        }
        let fails = || {
            let mut pools = self.planner.planned().new_nodes.iter();
            pools.all(|pool| !self.runs_on(workload, pool))
        };
        let placement = self.planner.placements.get(&workload.key.namespace);
        let is_placed = placement.is_some_and(|(_, mode)| *mode == PlacementMode::Apply);
        workload.lands_on.is_empty() || (is_placed && fails())
    }

    /// The pools that keep their build and run a workload; `landing`: whether it is known that its pods are scheduled there.
    fn pools_that_stay_for(&self, workload: &PlannedWorkload, landing: Match) -> Vec<String> {
        let staying = self.planner.planned().staying.iter().enumerate();
        let is_meant = |index: usize| workload.stays_on.get(&index) == Some(&landing);
        let running = staying.filter(|(index, pool)| is_meant(*index) && self.runs_on(workload, pool));
        running.map(|(_, pool)| pool.pool.clone()).collect()
    }

    /// Whether the nodes of a pool run the images of a workload, as far as is known.
    fn runs_on(&self, workload: &PlannedWorkload, pool: &NewNode) -> bool {
        let Some(build) = pool.build() else { return true };
        // An image that its registry lacks still has the build of its name.
        if self.planner.images_fail(workload, Some(build)) {
            return false;
        }
        let knowledge = self.planner.knowledge(build);
        workload.images.iter().all(|used| {
            let finding = knowledge.state(used, workload.kernel);
            !finding.blocks || finding.class == UpgradeClass::Unknown
        })
    }
}
