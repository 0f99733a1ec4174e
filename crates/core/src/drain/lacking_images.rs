//! The images that moved pods need and that the nodes which remain do not have yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::inventory::{InventoryNode, image_key};
use super::state::DrainRules;
use crate::model::nodes::node::pool_of;
use crate::model::syntax::text::count;
use crate::plan::{ImagePull, PoolPulls};

/// An image that nodes lack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LackingImage {
    /// The image.
    pub image: String,
    /// The pool whose nodes lack it.
    pub pool: String,
    /// The nodes that lack it.
    pub nodes: Vec<String>,
    /// The workloads that move and use it.
    pub workloads: Vec<String>,
    /// The compressed bytes of all its layers; null if they are not known.
    pub size: Option<u64>,
}

/// The images that the nodes of pools lack for the workloads that move, by pool. `images`: those of the pods of each
/// workload, as in `Deployment shop/web`.
pub fn lacking_images(
    pools: &[PoolPulls],
    images: &BTreeMap<String, BTreeSet<String>>,
    nodes: &[&InventoryNode],
) -> Vec<LackingImage> {
    let mut all = Vec::new();
    for pool in pools {
        let of_pool = nodes.iter().filter(|node| is_of(pool, node));
        let of_pool: Vec<&InventoryNode> = of_pool.copied().collect();
        for (image, workloads) in images_of_pool(pool, images) {
            let lacks = of_pool.iter().filter(|node| lacks(node, image));
            let nodes: Vec<String> = lacks.map(|node| node.host.name.clone()).collect();
            if nodes.is_empty() {
                continue;
            }
            let pull = pool
                .images
                .iter()
                .find(|pull| image_key(&pull.image) == image_key(image));
            all.push(LackingImage {
                image: image.to_owned(),
                pool: pool.pool.clone(),
                nodes,
                workloads: workloads.into_iter().map(str::to_owned).collect(),
                size: pull.and_then(|pull| pull.size),
            });
        }
    }
    all
}

/// The wait until nodes have the images, and take pods. Times are since its start.
#[derive(Clone, Debug, Default)]
pub struct ImageWait {
    /// How much was missing last: images of nodes, and a node that takes pods.
    missing: usize,
    /// The same in words.
    what: String,
    improved: Duration,
}

impl ImageWait {
    /// What it waits for now; `None` if for nothing. `closed`: why no node takes pods.
    pub fn next(
        &mut self,
        lacking: &[LackingImage],
        closed: Option<String>,
        now: Duration,
    ) -> Option<String> {
        let of_nodes: usize = lacking.iter().map(|image| image.nodes.len()).sum();
        let missing = of_nodes + usize::from(closed.is_some());
        if missing < self.missing {
            self.improved = now;
        }
        self.missing = missing;
        if let Some(first) = lacking.first() {
            self.what = count(lacking.len(), "image");
            return Some(format!("{} on {}", first.image, first.nodes.join(", ")));
        }
        "a schedulable node".clone_into(&mut self.what);
        closed
    }

    /// Why it ends although something is missing.
    pub fn end(&self, rules: &DrainRules, now: Duration) -> Option<String> {
        let what = &self.what;
        if let Some(timeout) = rules.timeout.filter(|timeout| now >= *timeout) {
            return Some(format!("{what} still missing after {} s", timeout.as_secs()));
        }
        (now.saturating_sub(self.improved) >= rules.progress_timeout).then(|| {
            let seconds = rules.progress_timeout.as_secs();
            format!("{what} still missing, and nothing has improved for {seconds} s")
        })
    }
}

/// The images of the moving workloads that may land on a pool, with these workloads.
fn images_of_pool<'i>(
    pool: &PoolPulls,
    images: &'i BTreeMap<String, BTreeSet<String>>,
) -> BTreeMap<&'i str, BTreeSet<&'i str>> {
    let lands = |workload: &String| {
        let mut pulls = pool.images.iter();
        pulls.any(|pull: &ImagePull| pull.workloads.contains(workload))
    };
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (workload, images) in images.iter().filter(|(workload, _)| lands(workload)) {
        for image in images {
            all.entry(image).or_default().insert(workload);
        }
    }
    all
}

/// Whether a node is of a pool: by the label of the pool, and by the build that it reports.
fn is_of(pool: &PoolPulls, node: &InventoryNode) -> bool {
    let labels = |key: &str| pool.selector.get(key).map(String::as_str);
    pool_of(labels) == node.host.pool() && node.host.build == pool.build.map(|build| build.0)
}

/// Whether a node certainly does not have an image: what it does not report, it may have if it reports as many as it can.
fn lacks(node: &InventoryNode, image: &str) -> bool {
    let key = image_key(image);
    !node.has_more_images && key.is_some_and(|key| !node.images.contains(&key))
}

#[cfg(test)]
mod tests;
