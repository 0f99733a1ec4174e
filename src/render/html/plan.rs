//! The section of an upgrade plan: the plan, and its texts on the page.

use std::fmt::Write as _;

use super::super::image_pulls::pull_total;
use super::super::plan::{after_of, build_text, can_move, capacity_text, in_one_line, note_of, title};
use crate::plan::{PoolOutlook, UpgradeClass, UpgradeMethod, UpgradePlan, WorkloadPlan};

/// A plan with its texts.
pub(super) struct PlanSection<'p> {
    pub(super) plan: &'p UpgradePlan,
    /// Which nodes change how.
    pub(super) method: &'static str,
    /// How many workloads can move.
    pub(super) summary: String,
    /// The classes that occur, with their meaning and their number of workloads.
    pub(super) classes: Vec<(UpgradeClass, &'static str, usize)>,
    /// The pools in the order in which they are drained, then those that stay: with their build, and a note.
    pub(super) pools: Vec<(&'p PoolOutlook, String, String)>,
    /// The builds, with their capacity before and after.
    pub(super) capacity: Vec<(String, String, String)>,
    /// The pools of new nodes, with what these pull.
    pub(super) new_nodes: Vec<(&'p str, String)>,
    /// The workloads, with their findings.
    pub(super) workloads: Vec<(&'p WorkloadPlan, Vec<String>)>,
}

impl<'p> PlanSection<'p> {
    /// The section of a plan.
    pub(super) fn of(plan: &'p UpgradePlan) -> Self {
        let counted = |class: UpgradeClass| plan.summary.by_class.get(class.as_str()).copied();
        let classes = UpgradeClass::ALL.into_iter();
        let classes = classes.map(|class| (class, title(class), counted(class).unwrap_or_default()));
        let leaving = plan.drain_order.iter().filter_map(|step| {
            let outlook = plan.pools.iter().find(|pool| pool.pool == step.pool)?;
            Some((outlook, note_of(step)))
        });
        let staying = plan.pools.iter().filter(|pool| !plan.from.contains(&pool.pool));
        let pools = leaving.chain(staying.map(|pool| (pool, "stays".to_owned())));
        let capacity = plan.capacity.iter().map(|capacity| {
            let after = after_of(capacity.after.as_ref(), &plan.nodes_needed);
            (build_text(capacity.build), capacity_text(&capacity.before), after)
        });
        let new_nodes = plan.new_nodes.iter();
        let workloads = plan.workloads.iter();
        PlanSection {
            plan,
            method: match plan.method {
                UpgradeMethod::NewNodes => "New nodes replace the pools.",
                UpgradeMethod::InPlace => {
                    "The nodes of the pools get the new build, and keep their names and their other labels."
                }
            },
            summary: can_move(plan),
            classes: classes.filter(|(.., count)| *count > 0).collect(),
            pools: pools
                .map(|(pool, note)| (pool, build_text(pool.build), note))
                .collect(),
            capacity: capacity.collect(),
            new_nodes: new_nodes
                .map(|node| (node.pool.as_str(), pull_total(&node.pulls)))
                .collect(),
            workloads: workloads
                .map(|workload| (workload, workload.findings.iter().map(in_one_line).collect()))
                .collect(),
        }
    }

    /// The CSS rules with the sizes of the class bars.
    pub(super) fn style(&self) -> String {
        let most = self
            .classes
            .iter()
            .map(|(.., count)| *count)
            .max()
            .unwrap_or_default();
        let mut style = String::new();
        for (at, (.., count)) in self.classes.iter().enumerate() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(style, "#class-{at}{{--size:calc({count}/{most})}}");
        }
        style
    }
}
