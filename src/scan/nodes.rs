//! The Windows nodes and the pools that may be at zero, as a report lists them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::ScannedNode;
use crate::cluster::node::NodeView;
use crate::model::cluster::facts::Facts;
use crate::model::knowledge::{Knowledge, NodePlatform};
use crate::model::nodes::node::{Host, NodeSigns as _, Taint};
use crate::model::windows::build::{Build, Release};

/// What a node with DiskPressure is told.
const DISK_PRESSURE: &str = "the node reports DiskPressure: image layers and snapshots fill its disk, and the kubelet evicts pods \
     and starts none; remove unused images (crictl rmi --prune), and give the node a larger disk \
     (https://github.com/rancher/rke2/issues/3090)";

/// The Windows nodes by name, then the pools that have no nodes now: pools seen earlier, and pools that
/// policies declare.
pub fn nodes(view: &BTreeMap<String, Arc<NodeView>>, facts: &Facts) -> Vec<ScannedNode> {
    let windows = view.values().filter(|node| node.has_windows());
    let windows = windows.map(|node| {
        let platform = NodePlatform::of_labels(node.labels.keys().map(String::as_str));
        let pressure = node.has_disk_pressure.then(|| DISK_PRESSURE.to_owned());
        ScannedNode {
            pool: node.pool().map(|(_, pool)| pool.to_owned()),
            container_runtime: node.container_runtime.clone(),
            problems: pressure.into_iter().collect(),
            ..scanned(
                &facts.knowledge,
                &node.name,
                node.build(),
                &node.taints(),
                platform,
            )
        }
    });
    let seen = facts.hosts().iter().filter(|host| host.may_be_at_zero);
    let mut pools: Vec<&Host> = Vec::new();
    for pool in seen.chain(&facts.pools) {
        if !pools.contains(&pool) {
            pools.push(pool);
        }
    }
    let pools = pools.into_iter().map(|pool| {
        let platform = NodePlatform::of_labels(pool.labels.keys());
        ScannedNode {
            pool: pool.pool().map(|(_, pool)| pool.to_owned()),
            is_at_zero: true,
            ..scanned(&facts.knowledge, &pool.name, pool.build, &pool.taints, platform)
        }
    });
    windows.chain(pools).collect()
}

/// What a node and a pool have in common.
fn scanned(
    knowledge: &Knowledge,
    name: &str,
    build: Option<Build>,
    taints: &[Taint],
    platform: Option<NodePlatform>,
) -> ScannedNode {
    let dates = build.map(|build| knowledge.support_dates(platform, build));
    let dates = dates.unwrap_or_default();
    let release = build.and_then(Build::release);
    ScannedNode {
        name: name.to_owned(),
        pool: None,
        build: build.map(|build| build.to_string()),
        release: release.map(|release| release.product),
        available: release.and_then(|release| release.available),
        end_of_service: release.and_then(Release::end_of_support),
        taints: taints.iter().map(ToString::to_string).collect(),
        container_runtime: String::new(),
        is_at_zero: false,
        platform_dates: (dates.iter().filter(|date| date.platform.is_some()))
            .map(ToString::to_string)
            .collect(),
        problems: Vec::new(),
    }
}
