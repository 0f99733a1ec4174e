//! Tests of upgrades in place: the same nodes with another build.

use super::tests::{LTSC2019, LTSC2022, deployment, planned, pod, workload};
use super::*;
use crate::model::cluster::policy::Policy;

/// A node of AKS.
fn node(name: &str, pool: &str, build: u32, sku: &str) -> String {
    format!(
        "\n---\n{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{kubernetes.io/os: windows, kubernetes.io/hostname: {name}, \
         node.kubernetes.io/windows-build: 10.0.{build}, kubernetes.azure.com/os-sku: {sku}, kubernetes.azure.com/cluster: c, agentpool: {pool}}}}}, \
         status: {{allocatable: {{cpu: 4, memory: 16Gi, pods: 30}}, nodeInfo: {{operatingSystem: windows, kernelVersion: 10.0.{build}.1, \
         kubeletVersion: v1.31.2, containerRuntimeVersion: 'containerd://1.7.1'}}}}}}"
    )
}

/// Two nodes of the pool `win22`, and RuntimeClasses.
fn win22() -> String {
    let classes = "
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2022}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: isolated}, handler: runhcs-wcow-hypervisor}";
    [
        classes.to_owned(),
        node("a-1", "win22", 20348, "Windows2022"),
        node("a-2", "win22", 20348, "Windows2022"),
    ]
    .concat()
}

fn in_place_to(to: u32, yaml: &str, pools: &[&str]) -> Result<UpgradePlan, NoPool> {
    let pools: Vec<String> = pools.iter().map(|pool| (*pool).to_owned()).collect();
    planned(yaml, PlanOptions::upgrade(Build::new(to), &pools), &[])
}

fn in_place(yaml: &str) -> UpgradePlan {
    in_place_to(26100, yaml, &["win22"]).unwrap()
}

fn of<'p>(plan: &'p UpgradePlan, name: &str) -> &'p WorkloadPlan {
    let found = plan.workloads.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("{name}: {plan:#?}"))
}

/// The class, whether it runs afterwards, and what it says.
fn state(plan: &UpgradePlan, name: &str) -> (UpgradeClass, bool, String) {
    let workload = of(plan, name);
    let findings = workload.findings.iter();
    let lines = findings.map(|it| {
        format!(
            "{}: {}; {}",
            it.path,
            it.message,
            it.remedy.as_deref().unwrap_or_default()
        )
    });
    (
        workload.class,
        workload.can_move,
        lines.collect::<Vec<_>>().join("\n"),
    )
}

#[test]
fn names_and_pools_stay_and_everything_that_states_the_build_changes() {
    let build = "node.kubernetes.io/windows-build";
    let sku = "kubernetes.azure.com/os-sku";
    let affinity = |key: &str, values: &str| {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: \
             [{{matchExpressions: [{{key: {key}, operator: In, values: [{values}]}}]}}]}}}}}},"
        )
    };
    let blocked = "pinned";
    let cases = [
        ("pool", "nodeSelector: {agentpool: win22},".to_owned(), ""),
        (
            "hostname",
            "nodeSelector: {kubernetes.io/hostname: a-1},".to_owned(),
            "",
        ),
        (
            "build",
            format!("nodeSelector: {{{build}: 10.0.20348}},"),
            blocked,
        ),
        ("build-new", format!("nodeSelector: {{{build}: 10.0.26100}},"), ""),
        ("sku", format!("nodeSelector: {{{sku}: Windows2022}},"), blocked),
        ("sku-new", format!("nodeSelector: {{{sku}: Windows2025}},"), ""),
        ("affinity", affinity(build, "10.0.17763, 10.0.20348"), blocked),
        ("affinity-both", affinity(build, "10.0.20348, 10.0.26100"), ""),
        ("affinity-sku", affinity(sku, "Windows2022"), blocked),
        ("class", "runtimeClassName: windows-2022,".to_owned(), blocked),
    ];
    let workloads: String = cases
        .iter()
        .map(|(name, spec, _)| deployment(name, LTSC2022, spec))
        .collect();
    let plan = in_place(&[win22(), workloads, deployment("old", LTSC2019, "")].concat());
    assert_eq!(
        (plan.method, plan.from.as_slice()),
        (UpgradeMethod::InPlace, &["win22".to_owned()][..])
    );
    for (name, _, expected) in &cases {
        let class = if expected.is_empty() {
            UpgradeClass::Unchanged
        } else {
            UpgradeClass::Pinned
        };
        let (found, runs, lines) = state(&plan, name);
        assert_eq!((found, runs), (class, expected.is_empty()), "{name}: {lines}");
    }
    let (_, _, lines) = state(&plan, "sku");
    assert!(
        lines.contains("it requires kubernetes.azure.com/os-sku=Windows2022, and nodes of Windows Server 2025 (10.0.26100) have Windows2025; select by a label that the upgrade does not change"),
        "{lines}"
    );
    assert_eq!(state(&plan, "old").0, UpgradeClass::NewImage);
    assert_eq!(plan.drain_order[0].new_nodes, Some(0));
    let capacity: Vec<(u64, u64)> = (plan.capacity.iter())
        .map(|room| (room.before.nodes, room.after.as_ref().unwrap().nodes))
        .collect();
    assert_eq!(capacity, [(2, 0), (0, 2)]);
    let text = plan.notes.join("\n");
    for note in [
        "Windows Server 2025 on AKS: its pools require FIPS mode",
        "AKS supports Windows Server 2025 from Kubernetes 1.32, and nodes run 1.31: upgrade Kubernetes first",
    ] {
        assert!(text.contains(note), "{note}: {text}");
    }
}

#[test]
fn a_pool_that_keeps_its_build_takes_what_the_upgraded_nodes_do_not() {
    let other = node("b-1", "other", 20348, "Windows2022");
    let sku = "nodeSelector: {kubernetes.azure.com/os-sku: Windows2022},";
    let both = "nodeSelector: {kubernetes.azure.com/os-sku: Windows2022, agentpool: win22},";
    let yaml = [
        win22(),
        other,
        deployment("sku", LTSC2022, sku),
        deployment("both", LTSC2022, both),
        workload("DaemonSet", "agent", LTSC2022, sku),
        workload(
            "DaemonSet",
            "of-other",
            LTSC2022,
            "nodeSelector: {kubernetes.azure.com/os-sku: Windows2022, agentpool: other},",
        ),
    ]
    .concat();
    let plan = in_place(&yaml);
    let (class, runs, lines) = state(&plan, "sku");
    assert_eq!((class, runs), (UpgradeClass::Unchanged, true), "{lines}");
    assert!(
        lines.contains("its pods run on other, which keeps its build"),
        "{lines}"
    );
    assert_eq!(state(&plan, "both").0, UpgradeClass::Pinned);
    let (class, runs, lines) = state(&plan, "agent");
    assert_eq!((class, runs), (UpgradeClass::Blocked, false), "{lines}");
    assert!(
        lines.contains("it is needed for both builds while pools are upgraded"),
        "{lines}"
    );
    let (class, runs, lines) = state(&plan, "of-other");
    assert_eq!(
        (class, runs, of(&plan, "of-other").affected),
        (UpgradeClass::Unchanged, true, false),
        "{lines}"
    );
}

#[test]
fn an_image_that_the_new_build_does_not_run_stays_off_it_only_with_placement() {
    let nodes = [
        win22(),
        node("c-1", "win19", 17763, "Windows2019"),
        node("c-2", "win19b", 17763, "Windows2019"),
    ]
    .concat();
    let yaml = [nodes, deployment("old", LTSC2019, "")].concat();
    let with = |placement| {
        let policy = Policy {
            placement,
            ..Policy::standalone()
        };
        let options = PlanOptions::upgrade(Build::new(20348), &["win19".to_owned()]);
        let plan = super::tests::visited(&yaml, &[], (options, policy), |planner| planner.plan());
        let plan = plan.unwrap().unwrap();
        let (class, runs, _) = state(&plan, "old");
        (class, runs)
    };
    assert_eq!(with(PlacementMode::Apply), (UpgradeClass::Unchanged, true));
    assert_eq!(with(PlacementMode::Audit), (UpgradeClass::NewImage, false));
    let all = in_place_to(20348, &yaml, &["ltsc2019"]).unwrap();
    assert_eq!(all.from, ["win19", "win19b"]);
    assert_eq!(state(&all, "old").0, UpgradeClass::NewImage);
}

#[test]
fn a_pool_that_is_upgraded_in_part_or_already_and_one_that_does_not_exist() {
    let begun = [
        win22(),
        node("a-3", "win22", 26100, "Windows2025"),
        deployment(
            "sku",
            LTSC2022,
            "nodeSelector: {kubernetes.azure.com/os-sku: Windows2022},",
        ),
    ]
    .concat();
    let plan = in_place(&begun);
    assert_eq!(plan.from, ["win22 (10.0.20348)"]);
    assert_eq!(state(&plan, "sku").0, UpgradeClass::Pinned);
    let done = in_place_to(20348, &win22(), &["win22"]).unwrap();
    assert_eq!((done.from.len(), done.drain_order.len()), (0, 0));
    assert!(
        done.notes.contains(
            &"nothing changes: every node of win22 already runs Windows Server 2022 (10.0.20348)".to_owned()
        ),
        "{:?}",
        done.notes
    );
    let error = in_place_to(26100, &win22(), &["win23"]).unwrap_err().to_string();
    assert_eq!(
        error,
        "no pool of Windows nodes has the name or build \"win23\"; known pools: win22"
    );
}

#[test]
fn labels_in_which_platforms_state_a_version_change_with_the_build() {
    const IMAGE: &str = "kubernetes.azure.com/node-image-version";
    let nodes = win22().replace(
        "kubernetes.azure.com/cluster: c",
        "kubernetes.azure.com/cluster: c, kubernetes.azure.com/node-image-version: AKSWindows-2022-1, \
         eks.amazonaws.com/nodegroup-image: ami-1, cloud.google.com/gke-os-distribution: windows_ltsc",
    );
    let affinity = |key: &str, operator: &str| {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: \
             [{{matchExpressions: [{{key: {key}, operator: {operator}}}]}}]}}}}}},"
        )
    };
    let image = |operator: &str| affinity(IMAGE, operator);
    for (name, spec, class) in [
        (
            "image",
            image("In, values: [AKSWindows-2022-1]"),
            UpgradeClass::Pinned,
        ),
        (
            "not-image",
            image("NotIn, values: [AKSWindows-2022-1]"),
            UpgradeClass::Unchanged,
        ),
        ("any-image", image("Exists"), UpgradeClass::Unchanged),
        ("no-image", image("DoesNotExist"), UpgradeClass::Pinned),
        (
            "later-image",
            image("In, values: [AKSWindows-2022-1, AKSWindows-2025-1]"),
            UpgradeClass::Unknown,
        ),
        (
            "ami",
            "nodeSelector: {eks.amazonaws.com/nodegroup-image: ami-1},".to_owned(),
            UpgradeClass::Pinned,
        ),
        (
            "family",
            affinity(
                "cloud.google.com/gke-os-distribution",
                "In, values: [windows_ltsc]",
            ),
            UpgradeClass::Unknown,
        ),
    ] {
        let plan = in_place(&[nodes.clone(), deployment(name, LTSC2022, &spec)].concat());
        let (found, runs, lines) = state(&plan, name);
        assert_eq!(
            (found, runs),
            (class, class == UpgradeClass::Unchanged),
            "{name}: {lines}"
        );
    }
    let plan = in_place(
        &[
            nodes.clone(),
            deployment("image", LTSC2022, &image("In, values: [AKSWindows-2022-1]")),
        ]
        .concat(),
    );
    let lines = state(&plan, "image").2;
    assert!(
        lines.contains("AKS changes that label with the image of the node; select by a label that the upgrade does not change"),
        "{lines}"
    );
}

#[test]
fn a_second_daemonset_runs_the_same_program_and_not_only_on_the_same_base_image() {
    let of = |name: &str, image: &str, sku: &str, command: &str| {
        let spec = format!("nodeSelector: {{kubernetes.azure.com/os-sku: {sku}}},");
        let object = workload("DaemonSet", name, image, &spec);
        object.replace("name: app, image", &format!("name: app, {command} image"))
    };
    let new_image = LTSC2022.replace("2022", "2025");
    for (old, new, is_pair) in [
        (
            "command: [cmd.exe, /c, logs.exe],",
            "command: [cmd.exe, /c, metrics.exe],",
            false,
        ),
        ("", "", false),
        ("command: [logs.exe],", "", false),
        ("command: [logs.exe],", "command: [logs.exe],", true),
        (
            "args: ['C:\\ltsc2022\\logs.exe', --build=20348],",
            "args: ['C:\\ltsc2025\\logs.exe', --build=26100],",
            true,
        ),
    ] {
        let yaml = [
            win22(),
            of("agent", LTSC2022, "Windows2022", old),
            of("agent-2025", &new_image, "Windows2025", new),
        ];
        let (class, runs, lines) = state(&in_place(&yaml.concat()), "agent");
        let expected = if is_pair {
            UpgradeClass::Pinned
        } else {
            UpgradeClass::Blocked
        };
        assert_eq!((class, runs), (expected, is_pair), "{old} {new}: {lines}");
    }
}

#[test]
fn a_second_daemonset_is_for_each_upgraded_node_and_not_only_for_one_of_the_pool() {
    let new_image = LTSC2022.replace("2022", "2025");
    let agent = |name: &str, image: &str, selector: &str| {
        let spec = format!("nodeSelector: {{kubernetes.azure.com/os-sku: {selector}}},");
        workload("DaemonSet", name, image, &spec)
            .replace("name: app, image", "name: app, command: [logs.exe], image")
    };
    let first = agent("agent", LTSC2022, "Windows2022");
    let pods = ["a-1", "a-2"].map(|node| pod(&format!("agent-{node}"), "DaemonSet agent", node, ""));
    for (selector, pods, is_pair) in [
        ("Windows2025", &pods[..], true),
        ("Windows2025, kubernetes.io/hostname: a-1", &pods[..], false),
        // It has no pod on the other node now.
        ("Windows2025, kubernetes.io/hostname: a-1", &pods[..1], true),
    ] {
        let second = agent("agent-2025", &new_image, selector);
        let yaml = [win22(), first.clone(), second, pods.concat()].concat();
        let (_, runs, lines) = state(&in_place(&yaml), "agent");
        assert_eq!(runs, is_pair, "{selector}: {lines}");
    }
}

#[test]
fn what_a_plan_does_not_evaluate_is_named_for_each_workload_that_has_it() {
    let anti = |key: &str| {
        format!(
            "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: {key}}}]}}}},"
        )
    };
    let spread = |key: &str, when: &str| {
        format!("topologySpreadConstraints: [{{maxSkew: 1, topologyKey: {key}, whenUnsatisfiable: {when}}}],")
    };
    let (build, sku) = ("node.kubernetes.io/windows-build", "kubernetes.azure.com/os-sku");
    let preferred = "affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: \
                     node.kubernetes.io/windows-build}}]}},";
    for (name, spec, is_named) in [
        ("anti", anti(build), true),
        (
            "affinity",
            anti(sku).replace("podAntiAffinity", "podAffinity"),
            true,
        ),
        ("spread", spread(build, "DoNotSchedule"), true),
        ("soft", spread(build, "ScheduleAnyway"), false),
        ("preferred", preferred.to_owned(), false),
        ("host", anti("kubernetes.io/hostname"), false),
    ] {
        let plan = in_place(&[win22(), deployment(name, LTSC2022, &spec)].concat());
        let (class, runs, lines) = state(&plan, name);
        let expected = if is_named {
            UpgradeClass::Unknown
        } else {
            UpgradeClass::Unchanged
        };
        assert_eq!((class, runs), (expected, !is_named), "{name}: {lines}");
        assert_eq!(
            lines.contains("the plan does not evaluate its required"),
            is_named,
            "{name}: {lines}"
        );
    }
    // Fewer nodes are left for a workload that moves to another pool.
    let selected = format!(
        "nodeSelector: {{{sku}: Windows2022}}, {}",
        anti("kubernetes.io/hostname")
    );
    let other = node("b-1", "other", 20348, "Windows2022");
    let plan = in_place(&[win22(), other, deployment("web", LTSC2022, &selected)].concat());
    let (class, runs, lines) = state(&plan, "web");
    assert_eq!((class, runs), (UpgradeClass::Unknown, false), "{lines}");
    assert!(
        lines.contains("only other can run its pods afterwards"),
        "{lines}"
    );
}

#[test]
fn a_preference_for_the_old_build_is_a_note() {
    let preferring = |build: &str| {
        format!(
            "affinity: {{nodeAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 1, preference: \
             {{matchExpressions: [{{key: node.kubernetes.io/windows-build, operator: In, values: [{build}]}}]}}}}]}}}},"
        )
    };
    let lines = |build: &str| {
        let plan = in_place(&[win22(), deployment("web", LTSC2022, &preferring(build))].concat());
        let (class, runs, lines) = state(&plan, "web");
        assert_eq!((class, runs), (UpgradeClass::Unchanged, true), "{lines}");
        lines
    };
    assert!(lines("10.0.20348").contains(
        "it prefers node.kubernetes.io/windows-build=10.0.20348, which no node of Windows Server 2025"
    ));
    assert!(!lines("10.0.26100").contains("it prefers"));
}

#[test]
fn a_pool_of_which_it_is_not_known_what_it_offers_is_no_certain_place() {
    let gpu = "microsoft.com/directx";
    let other = |amount: &str| {
        node("b-1", "other", 20348, "Windows2022").replace("pods: 30", &format!("pods: 30, {gpu}: {amount}"))
    };
    let web = deployment(
        "web",
        LTSC2022,
        "nodeSelector: {kubernetes.azure.com/os-sku: Windows2022},",
    )
    .replace(
        "resources: {requests: {",
        &format!("resources: {{limits: {{{gpu}: 1}}, requests: {{"),
    );
    // 0 is reported while a device plugin restarts.
    for (amount, class) in [("1", UpgradeClass::Unchanged), ("0", UpgradeClass::Unknown)] {
        let plan = in_place(&[win22(), other(amount), web.clone()].concat());
        let (found, runs, lines) = state(&plan, "web");
        assert_eq!(
            (found, runs),
            (class, class == UpgradeClass::Unchanged),
            "{amount}: {lines}"
        );
    }
}

#[test]
fn an_image_that_its_registry_lacks_still_has_the_build_of_its_name() {
    let image = "mcr.microsoft.com/windows/nanoserver:ltsc2025";
    let taints = "spec: {taints: [{key: node.kubernetes.io/os, value: windows, effect: NoSchedule}]}, status: {allocatable";
    let new = node("d-1", "win25", 26100, "Windows2025").replace("status: {allocatable", taints);
    let old = node("c-1", "win19", 17763, "Windows2019");
    let missing = crate::model::windows::image_facts::ImageFacts {
        looked_up: jiff::Timestamp::UNIX_EPOCH,
        found: None,
    };
    let options = PlanOptions::upgrade(Build::new(20348), &["win25".to_owned()]);
    let yaml = [old, new, deployment("web", image, "")].concat();
    let (_, runs, lines) = state(&planned(&yaml, options, &[(image, missing)]).unwrap(), "web");
    assert!(!runs && !lines.contains("keeps its build"), "{lines}");
}
