//! Capacity, network engines, and group-managed service accounts.

use super::*;
use crate::cluster::environment::ReadinessRule;
use crate::model::objects::label_selector::LabelSelector;

/// A node of AKS or EKS with this much memory in MiB, room for pods, and addresses.
fn sized(name: &str, label: &str, memory: u64, pods: u64, addresses: u64) -> AnyNode {
    let allocatable = json!({"memory": format!("{memory}Mi"), "pods": pods.to_string(),
        "vpc.amazonaws.com/PrivateIPv4Address": addresses.to_string()});
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": "windows", label: "a"}},
        "status": {"nodeInfo": {"operatingSystem": "windows"}, "allocatable": allocatable}});
    AnyNode::read(&node.to_string()).unwrap()
}

/// A Windows pod on a node with a memory limit in MiB and an address.
fn placed(name: &str, node: &str, limit: u64) -> (Kind, Value) {
    let resources = json!({"limits": {"memory": format!("{limit}Mi"), "vpc.amazonaws.com/PrivateIPv4Address": "1"},
        "requests": {"memory": "1Mi"}});
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "controller": true}]);
    let spec = json!({"nodeName": node, "nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "c", "image": "registry.example/app:1", "resources": resources}]});
    let metadata = json!({"name": name, "namespace": "shop", "ownerReferences": owner});
    (Kind::Pod, json!({"metadata": metadata, "spec": spec}))
}

#[test]
fn what_pods_may_use_is_compared_with_what_their_nodes_have() {
    let world = |nodes: Vec<AnyNode>| {
        let mut world = PreflightCluster::of(&[]);
        world.environment.nodes = nodes;
        world
    };
    let eks = || {
        vec![
            sized("w1", "eks.amazonaws.com/nodegroup", 4096, 110, 2),
            sized("w2", "eks.amazonaws.com/nodegroup", 4096, 3, 9),
        ]
    };
    let pods = |limit: u64| {
        let mut pods: Vec<(Kind, Value)> = (0..2).map(|at| placed(&format!("a{at}"), "w1", limit)).collect();
        pods.extend((0..3).map(|at| placed(&format!("b{at}"), "w2", 1)));
        pods
    };
    let report = world(eks()).report(&pods(3000));
    let memory = finding(&report, "may together use more memory than is allocatable");
    assert_eq!(memory.evidence, ["node w1 (6000Mi of 4096Mi)"]);
    let full = finding(&report, "2 Windows nodes have no room for another pod");
    assert_eq!(
        full.evidence,
        ["node w1 (2 of 2 addresses)", "node w2 (3 of 3 pods)"]
    );
    assert!(
        full.remedy.as_ref().unwrap().contains("prefix-delegation"),
        "{full:?}"
    );

    let report = world(eks()).report(&pods(2048)[1..3]);
    assert!(!has_finding(&report, "more memory than") && !has_finding(&report, "no room for another pod"));
    finding(&report, "the Windows nodes have room for their pods");

    let large = json!({"nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "c", "image": "registry.example/app:1", "resources": {"limits": {"memory": "8Gi"}}}]});
    let report = world(eks()).report(&[(Kind::Deployment, workload(&large))]);
    let too_large = finding(&report, "are above what any Windows node has");
    assert_eq!(too_large.evidence, ["Deployment shop/web (8192Mi of 4096Mi)"]);

    let mut aks = world(vec![sized("w1", "kubernetes.azure.com/cluster", 4096, 30, 0)]);
    aks.environment.cluster_traffic_services = Some(450);
    finding(
        &aks.report(&[]),
        "450 Services have externalTrafficPolicy: Cluster",
    );
    let mut aks = world(Vec::new());
    aks.environment.cluster_traffic_services = Some(399);
    assert!(!has_finding(&aks.report(&[]), "externalTrafficPolicy"));
}

#[test]
fn a_pool_of_karpenter_without_an_operating_system_and_a_rule_that_windows_nodes_do_not_meet_are_named() {
    let daemon_set = || {
        (
            Kind::DaemonSet,
            workload(&json!({"nodeSelector": {"kubernetes.io/os": "windows"}})),
        )
    };
    let pool = |states_os: bool, taints: Vec<Taint>| NodeGroupResource {
        source: "NodePool default".into(),
        name: "default".into(),
        labels: [("karpenter.sh/nodepool".to_owned(), "default".to_owned())].into(),
        taints,
        states_os,
        ..NodeGroupResource::default()
    };
    for (pool, is_named) in [
        (pool(false, Vec::new()), true),
        (pool(true, Vec::new()), false),
        (pool(false, vec![Taint::no_schedule("gpu", "")]), false),
    ] {
        let mut world = PreflightCluster::of(&[("l1", "linux", "6.1", &[])]);
        world.environment.scaled = vec![pool.clone()];
        let report = world.report(&[daemon_set()]);
        assert_eq!(
            has_finding(&report, "NodePool default states no operating system"),
            is_named,
            "{pool:?}"
        );
    }

    let rule = |labels: &[(&str, &str)]| ReadinessRule {
        name: "network".into(),
        selector: Some(LabelSelector {
            match_labels: labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..LabelSelector::default()
        }),
        taint: "readiness.k8s.io/network".into(),
        conditions: vec!["example.com/NetworkReady".into()],
    };
    let taint = Taint::no_schedule("readiness.k8s.io/network", "pending");
    for (labels, taints, nodes) in [
        (&[][..], vec![taint.clone()], &["node w1"][..]),
        (&[("kubernetes.io/os", "linux")], vec![taint], &[]),
        (&[], Vec::new(), &[]),
    ] {
        let mut world = PreflightCluster::of(&[("w1", "windows", "10.0.26100.1", &taints)]);
        world.environment.readiness_rules = vec![rule(labels)];
        let report = world.report(&[]);
        let part = "NodeReadinessRule network keeps pods off Windows nodes";
        assert_eq!(has_finding(&report, part), !nodes.is_empty(), "{labels:?}");
        if !nodes.is_empty() {
            assert_eq!(finding(&report, part).evidence, nodes);
        }
    }

    // No node shows whether something reports the condition on those of a declared pool.
    let pool = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePool", "metadata": {"name": "large"},
        "spec": {"nodeSelector": {"matchLabels": {"example.com/pool": "large"}}}});
    for (labels, nodes, pools) in [
        (("example.com/pool", "large"), 0, &["WindowsNodePool large"][..]),
        (("kubernetes.io/os", "windows"), 0, &["WindowsNodePool large"]),
        (("kubernetes.io/os", "linux"), 0, &[]),
        (("kubernetes.io/os", "windows"), 1, &[]),
    ] {
        let nodes = &[("w1", "windows", "10.0.26100.1", &[][..])][..nodes];
        let mut world = PreflightCluster::of(nodes);
        let stored = serde_json::from_value(pool.clone()).unwrap();
        world.view.node_pools.insert("large".to_owned(), Arc::new(stored));
        world.environment.readiness_rules = vec![rule(&[labels])];
        let report = world.report(&[]);
        let part = "NodeReadinessRule network keeps pods off Windows nodes";
        assert_eq!(has_finding(&report, part), !pools.is_empty(), "{labels:?}");
        if !pools.is_empty() {
            let found = finding(&report, part);
            assert_eq!(found.status, FindingStatus::Ok);
            assert_eq!(found.evidence, pools);
        }
    }
}

#[test]
fn the_engine_of_network_policies_is_named_if_the_cluster_shows_it() {
    let report = |name: &str| {
        let world = PreflightCluster::of(&[("w1", "windows", "10.0.26100.1", &[])]);
        let mut agent = workload(&json!({"nodeSelector": {"kubernetes.io/os": "linux"}}));
        agent["metadata"]["name"] = json!(name);
        world.report(&[(Kind::DaemonSet, agent)])
    };
    let cilium = report("cilium");
    let found = finding(
        &cilium,
        "nothing enforces NetworkPolicies for Windows pods: Cilium",
    );
    assert_eq!(
        (found.status, &found.evidence[..]),
        (FindingStatus::Ok, &["DaemonSet shop/cilium".to_owned()][..])
    );
    finding(
        &report("calico-node-windows"),
        "Calico enforces NetworkPolicies for Windows pods",
    );
    assert!(!has_finding(&report("calico-node"), "NetworkPolicies"));
}

#[test]
fn credential_specs_that_cannot_work_are_named_with_their_workloads() {
    let named = |name: &str, spec: &str| {
        let mut object = workload(
            &json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "serviceAccountName": "app",
            "securityContext": {"windowsOptions": {"gmsaCredentialSpecName": spec}}}),
        );
        object["metadata"]["name"] = json!(name);
        (Kind::Deployment, object)
    };
    let world = |specs: Option<&[(&str, Option<&str>)]>| {
        let mut world = PreflightCluster::of(&[("w1", "windows", "10.0.26100.1", &[])]);
        world.environment.credential_specs = specs.map(|specs| {
            let owned = |text: &&str| (*text).to_owned();
            specs
                .iter()
                .map(|(name, problem)| ((*name).to_owned(), problem.as_ref().map(owned)))
                .collect()
        });
        world
    };
    let none = world(None).report(&[named("web", "web")]);
    assert_eq!(
        finding(&none, "does not have this kind").evidence,
        ["Deployment shop/web"]
    );
    finding(
        &world(None).report(&[]),
        "no Windows workload names a GMSACredentialSpec",
    );

    let specs = [
        ("web", None),
        ("old", Some("its credspec.CmsPlugins lacks ActiveDirectory")),
    ];
    let mut webhook = workload(&json!({"nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [{"name": "c", "image": "registry.k8s.io/gmsa-webhook/k8s-gmsa-webhook:v0.12.1"}]}));
    webhook["metadata"]["name"] = json!("windows-gmsa");
    let objects = [
        named("web", "web"),
        named("old", "old"),
        named("lost", "lost"),
        (Kind::Deployment, webhook),
    ];
    let report = world(Some(&specs)).report(&objects);
    assert_eq!(
        finding(
            &report,
            "GMSACredentialSpec old cannot work: its credspec.CmsPlugins"
        )
        .evidence,
        ["Deployment shop/old"]
    );
    assert_eq!(
        finding(&report, "GMSACredentialSpec lost does not exist").evidence,
        ["Deployment shop/lost"]
    );
    finding(&report, "no webhook of windows-gmsa is registered");
    finding(&report, "is release v0.12.1; the newest known one is v0.14.1");
    assert!(!has_finding(&report, "GMSACredentialSpec web"));

    let mut working = world(Some(&specs));
    working.environment.hooks = vec![WebhookPresence {
        is_mutating: true,
        name: "windows-gmsa".into(),
        sees_pods: true,
        ..WebhookPresence::default()
    }];
    finding(
        &working.report(&[named("web", "web")]),
        "1 use of a GMSACredentialSpec can work",
    );
}
