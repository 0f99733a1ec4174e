//! The section of the page about an upgrade plan: what it shows, as plain data.

use std::fmt::Write as _;

/// An upgrade plan, as the page shows it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanSection {
    /// What the upgrade goes to, as in `Windows Server 2025 (10.0.26100)`.
    pub target: String,
    /// How many workloads can move.
    pub summary: String,
    /// The placement that is assumed of the next pods.
    pub placement: String,
    /// How many workloads are in each class, in the order in which they are shown.
    pub classes: Vec<PlanClass>,
    /// The workloads.
    pub rows: Vec<PlanRow>,
    /// The pools in the order in which they are drained.
    pub pools: Vec<PlanPool>,
    /// What the nodes can take, before and after.
    pub capacity: Vec<PlanCapacity>,
}

/// One class of workloads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanClass {
    /// Its name, as in `newImage`.
    pub name: String,
    /// What it means.
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
    /// What is said of it.
    pub statements: Vec<String>,
}

/// One pool of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanPool {
    /// Its name.
    pub name: String,
    /// Its build, where its nodes tell one.
    pub build: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// What is to be known before it is drained; may be empty.
    pub note: String,
}

/// The room of one build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanCapacity {
    /// The build.
    pub build: String,
    /// What is asked of its nodes and what they offer as it is, with units.
    pub before: String,
    /// The same when the pools that go are gone.
    pub after: String,
}

/// The rules of the page's style that give the bars of the classes their sizes.
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
        // A `String` takes whatever is written to it.
        let _ = writeln!(style, "#class-{at}{{--size:calc({}/{most})}}", class.count);
    }
    style
}
