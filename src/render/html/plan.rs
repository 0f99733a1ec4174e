//! The upgrade plan section of the page, as plain data.

use std::fmt::Write as _;

/// An upgrade plan for the page.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanSection {
    /// The target, as in `Windows Server 2025 (10.0.26100)`.
    pub target: String,
    /// How many workloads can move.
    pub summary: String,
    /// The placement that the plan assumes for new pods.
    pub placement: String,
    /// The number of workloads in each class, in display order.
    pub classes: Vec<PlanClass>,
    /// The workloads.
    pub rows: Vec<PlanRow>,
    /// The pools in drain order.
    pub pools: Vec<PlanPool>,
    /// The capacity of the nodes, before and after.
    pub capacity: Vec<PlanCapacity>,
    /// What new nodes pull.
    pub new_nodes: Vec<PlanNewNode>,
}

/// One class of workloads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanClass {
    /// Its name, as in `newImage`.
    pub name: String,
    /// Its meaning.
    pub meaning: String,
    /// How many workloads are in it.
    pub count: usize,
}

/// One workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanRow {
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The name of its class.
    pub class: String,
    /// The first known end of support for its nodes.
    pub support: Option<String>,
    /// Its findings.
    pub findings: Vec<String>,
}

/// One pool of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanPool {
    /// Its name.
    pub name: String,
    /// Its build, if its nodes report one.
    pub build: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// A note for before it is drained; may be empty.
    pub note: String,
    /// Until when its nodes are supported, and their known faults.
    pub outlook: Vec<String>,
}

/// The capacity of one build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanCapacity {
    /// The build.
    pub build: String,
    /// The requests and the allocatable resources of its nodes now, with units.
    pub before: String,
    /// The same after the pools are removed.
    pub after: String,
}

/// What a new node of a pool pulls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanNewNode {
    /// The pool.
    pub pool: String,
    /// How many images, and their bytes if they are known.
    pub pulls: String,
}

/// The CSS rules with the sizes of the class bars.
pub(super) fn style(plan: Option<&PlanSection>) -> String {
    let classes = plan.map_or(&[][..], |plan| &plan.classes);
    let most = classes
        .iter()
        .map(|class| class.count)
        .max()
        .unwrap_or_default()
        .max(1);
    let mut style = String::new();
    for (at, class) in classes.iter().enumerate() {
        // Writing to a `String` cannot fail.
        let _ = writeln!(style, "#class-{at}{{--size:calc({}/{most})}}", class.count);
    }
    style
}
