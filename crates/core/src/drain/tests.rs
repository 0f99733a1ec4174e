//! What tests of drains share.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;

/// The options of a drain that evicts everything that it may.
pub fn rules() -> DrainRules {
    DrainRules {
        ignore_daemonsets: true,
        delete_emptydir_data: true,
        force: true,
        pod_selector: None,
        allow_outage: false,
        max_unavailable: 1,
        min_ready: Duration::ZERO,
        timeout: None,
        pending_timeout: Duration::from_secs(300),
        progress_timeout: Duration::from_secs(1800),
        recovery_timeout: Duration::from_secs(180),
    }
}

/// A Deployment in the namespace `shop`.
pub fn owner(name: &str) -> WorkloadName {
    WorkloadName::of(Kind::Deployment, "shop", name)
}

/// A pod of a Deployment, without a node.
pub fn pod(name: &str, workload: &str) -> DrainPod {
    DrainPod {
        name: PodName {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        },
        uid: name.to_owned(),
        owner: Some(owner(workload)),
        is_replica: true,
        has_started: true,
        labels: BTreeMap::from([("app".to_owned(), workload.to_owned())]),
        ..DrainPod::default()
    }
}

/// A Ready pod of a Deployment on a node.
pub fn ready(name: &str, workload: &str, node: &str) -> DrainPod {
    DrainPod {
        node: Some(node.to_owned()),
        is_ready: true,
        ..pod(name, workload)
    }
}

/// The drain of the cordoned nodes `old-1` and `old-2`, with workloads that should have so many replicas.
pub fn state(pods: Vec<DrainPod>, desired: &[(&str, u64)]) -> DrainState {
    let node = |name: &str| DrainNode {
        name: name.to_owned(),
        is_cordoned: true,
        refused: None,
    };
    DrainState {
        nodes: vec![node("old-1"), node("old-2")],
        pods,
        desired: desired
            .iter()
            .map(|(name, replicas)| (owner(name), *replicas))
            .collect(),
        read: BTreeMap::from([("shop".to_owned(), ReadTime::default())]),
        ..DrainState::default()
    }
}
