//! What to know about a plan: missing information that could change it.

use super::Planner;
use super::drain_order::PlannedUpgrade;
use super::nodes::PlannedNode;
use super::upgrade_plan::NodesNeeded;
use super::workload_images::shown_image;
use crate::model::nodes::memory_limits::{NO_OOM_KILLER, mebibytes};
use crate::model::nodes::node::Host;
use crate::model::syntax::text::list;
use crate::model::windows::image::ImageRef;

impl PlannedUpgrade<'_> {
    pub(super) fn notes(&self, needed: &NodesNeeded) -> Vec<String> {
        let (planner, to) = (self.planner, self.upgrade.to);
        let mut notes = Vec::new();
        if planner.nodes.pools.is_empty() {
            notes.push("no Windows node is known: the plan has no pools, order or capacity".to_owned());
        }
        if !self.upgrade.is_in_place() {
            notes.extend(self.capacity_notes(needed));
            notes.extend(self.overcommitted(needed));
        } else if self.from.is_empty() {
            let pools = list(&planner.plan_options.from, 12);
            let product = to.with_product();
            notes.push(format!(
                "nothing changes: every node of {pools} already runs {product}"
            ));
        } else {
            notes.extend(self.stale_pools());
        }
        if !planner.has_pods && !planner.workloads.is_empty() {
            notes.push("no pods of Windows workloads are known: workloads are counted by their replicas, and on every pool that their templates fit".to_owned());
        }
        if planner.nodes.pools.iter().any(|pool| pool.build.is_none()) {
            notes.push(
                "some Windows nodes do not report their build: the plan drains no pool for them".to_owned(),
            );
        }
        notes.extend(planner.platform_notes(to));
        notes.extend(planner.not_looked_up());
        notes.push("not checked: PodDisruptionBudgets, volumes that only one node or zone has, and what programs require from Windows".to_owned());
        notes
    }

    /// Pods that move and may together use more memory than there will be for them.
    fn overcommitted(&self, needed: &NodesNeeded) -> Option<String> {
        let pools = self
            .from
            .iter()
            .filter_map(|index| self.planner.nodes.pools.get(*index));
        let limits = pools.map(|pool| pool.limits).fold(0, u64::saturating_add);
        let each = needed.reference_allocatable.clone()?;
        let each = each.without(&needed.daemon_set_requests);
        let mut room = each.times(needed.nodes?);
        room += needed.free.as_ref()?;
        (limits > room.memory_bytes).then(|| {
            format!(
                "the pods that move may together use more memory ({}, the sum of their limits) than is free for them ({}): set memory \
                 requests equal to limits, or add nodes; {NO_OOM_KILLER}",
                mebibytes(limits),
                mebibytes(room.memory_bytes)
            )
        })
    }

    /// What is not known about the capacity for new nodes.
    fn capacity_notes(&self, needed: &NodesNeeded) -> Vec<String> {
        let (nodes, to) = (&self.planner.nodes, self.upgrade.to);
        let mut notes = Vec::new();
        let silent = |node: &&PlannedNode| node.allocatable.is_none();
        let of_target = nodes.of(to).find(silent);
        let no_reference = || nodes.all().find(|_| needed.reference_node.is_none());
        if let Some(node) = of_target.or_else(no_reference) {
            notes.push(format!(
                "what {} offers (status.allocatable) is not in the input: free capacity is unknown",
                node.host.name
            ));
        }
        if !self.planner.lists_pods && nodes.of(to).next().is_some() {
            notes.push(format!(
                "no pods are known: what is free on the nodes of {} is unknown",
                to.with_product()
            ));
        }
        notes
    }

    /// The declared pools whose build is no longer right after an upgrade in place.
    fn stale_pools(&self) -> impl Iterator<Item = String> {
        let (planner, to) = (self.planner, self.upgrade.to);
        let is_stale = move |pool: &&Host| {
            planner.is_of_pools(pool, &self.from) && pool.build.is_some_and(|build| build != to)
        };
        planner.facts.pools.iter().filter(is_stale).map(move |pool| {
            format!(
                "the WindowsNodePool {} states another build: change its template.build to {to} with the nodes",
                pool.name
            )
        })
    }
}

impl Planner<'_> {
    /// With registries: how many images were not looked up: their names show their builds, or their builds do not matter.
    fn not_looked_up(&self) -> Option<String> {
        let unanswered = self.unanswered.as_ref()?;
        let is_open = |image: &&str| {
            !self.facts.images.contains_key(*image)
                && !unanswered.contains_key(*image)
                && ImageRef::parse(image).is_ok()
        };
        let images: Vec<&str> = self.names.iter().map(|image| &**image).filter(is_open).collect();
        let first = images.first()?;
        let counted = match images.len() {
            1 => "1 image was not looked up, because the plan does not need its registry".to_owned(),
            count => {
                format!("{count} images were not looked up, because the plan does not need their registries")
            }
        };
        Some(format!(
            "{counted}: transom image {} shows whether it exists",
            shown_image(first)
        ))
    }
}
