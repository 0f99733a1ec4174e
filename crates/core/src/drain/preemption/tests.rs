use std::collections::BTreeSet;

use super::super::InventoryNode;
use super::super::tests::{ready, rules, state};
use super::*;

fn node(name: &str, cpus: u64) -> InventoryNode {
    InventoryNode {
        uid: String::new(),
        host: Host {
            name: name.to_owned(),
            ..Host::default()
        },
        is_cordoned: false,
        is_ready: true,
        images: BTreeSet::new(),
        has_more_images: false,
        allocatable: Some(ResourceList {
            cpu_millis: cpus,
            pods: 100,
            ..ResourceList::default()
        }),
    }
}

fn replica(name: &str, workload: &str, node: &str, priority: i64) -> DrainPod {
    DrainPod {
        priority,
        preempts: true,
        requests: ResourceList {
            cpu_millis: 1,
            pods: 1,
            ..ResourceList::default()
        },
        spec: Some("{}".into()),
        ..ready(name, workload, node)
    }
}

fn preempted(pods: Vec<DrainPod>, cpus: u64) -> Vec<String> {
    let mut inventory = DrainInventory::default();
    for (name, cpus) in [("old-1", 9), ("new-1", cpus)] {
        inventory.nodes.insert(name.to_owned(), node(name, cpus));
    }
    let found = foreseen_preemption(&inventory, &state(pods, &[]), &rules());
    found.into_keys().map(|workload| workload.name).collect()
}

#[test]
fn pods_of_lower_priority_are_preempted_only_if_no_node_has_room() {
    let pods = || {
        vec![
            replica("h1", "high", "old-1", 10),
            replica("h2", "high", "old-1", 10),
            replica("l1", "low", "new-1", 0),
            replica("s1", "same", "new-1", 10),
        ]
    };
    assert!(preempted(pods(), 4).is_empty());
    assert_eq!(preempted(pods(), 3), ["low"]);
    assert_eq!(
        preempted(pods(), 2),
        ["low"],
        "the second finds no pod of lower priority"
    );
    let mut polite = pods();
    polite[0].preempts = false;
    polite[1].preempts = false;
    assert!(preempted(polite, 2).is_empty());
    let mut elsewhere = pods();
    for pod in &mut elsewhere[..2] {
        pod.spec = Some(r#"{"nodeSelector": {"pool": "other"}}"#.into());
    }
    assert!(preempted(elsewhere, 2).is_empty(), "it cannot run there");
}
