//! The Windows nodes and the pools that may be at zero, as a report lists them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::NodeReport;
use crate::cluster::node::NodeView;
use crate::cluster::pool_history::pool_of;
use crate::model::build::{Build, Release};
use crate::model::facts::Facts;
use crate::model::node::{Host, NodeSigns as _, Taint};

/// The Windows nodes by name, then the pools that have no nodes now: pools seen earlier, and pools that
/// policies declare.
pub fn nodes(view: &BTreeMap<String, Arc<NodeView>>, facts: &Facts) -> Vec<NodeReport> {
    let windows = view.values().filter(|node| node.is_windows());
    let windows = windows.map(|node| {
        let pool = pool_of(&node.labels).map(|(_, pool)| pool.to_owned());
        let runtime = node.container_runtime.clone();
        row(&node.name, pool, node.build(), &node.taints(), runtime, false)
    });
    let seen = facts.hosts().iter().filter(|host| host.may_be_at_zero);
    let mut pools: Vec<&Host> = Vec::new();
    for pool in seen.chain(&facts.pools) {
        if !pools.contains(&pool) {
            pools.push(pool);
        }
    }
    let pools = pools.into_iter().map(|pool| {
        let label = pool_of(&pool.labels).map(|(_, pool)| pool.to_owned());
        row(&pool.name, label, pool.build, &pool.taints, String::new(), true)
    });
    windows.chain(pools).collect()
}

fn row(
    name: &str,
    pool: Option<String>,
    build: Option<Build>,
    taints: &[Taint],
    container_runtime: String,
    is_at_zero: bool,
) -> NodeReport {
    let release = build.and_then(Build::release);
    NodeReport {
        name: name.to_owned(),
        pool,
        build: build.map(|build| build.to_string()),
        release: release.map(|release| release.product),
        available: release.and_then(|release| release.available),
        end_of_service: release.and_then(Release::end_of_support),
        taints: taints.iter().map(ToString::to_string).collect(),
        container_runtime,
        is_at_zero,
    }
}
