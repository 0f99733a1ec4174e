//! Tests of each class, each cause and the order, with plain facts and objects in YAML.

use jiff::civil::date;

use super::*;
use crate::manifest;
use crate::model::cluster::policy::Policy;
use crate::model::nodes::node::Host;
use crate::model::windows::image_facts::{ImageFacts, ImageVariant};

pub(super) const NODES: &str = "
{apiVersion: v1, kind: Node, metadata: {name: a-1, labels: {kubernetes.io/os: windows, kubernetes.io/hostname: a-1, node.kubernetes.io/windows-build: 10.0.17763, agentpool: win19}}, status: {allocatable: {cpu: 4, memory: 16Gi, pods: 30}, nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://1.7.1'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b-1, labels: {kubernetes.io/os: windows, kubernetes.io/hostname: b-1, node.kubernetes.io/windows-build: 10.0.20348, agentpool: win22, disk: ssd}}, status: {allocatable: {cpu: 4, memory: 16Gi, pods: 30}, nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://1.7.1'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b-2, labels: {kubernetes.io/os: windows, kubernetes.io/hostname: b-2, node.kubernetes.io/windows-build: 10.0.20348, agentpool: win22, disk: ssd}}, status: {allocatable: {cpu: 4, memory: 16Gi, pods: 30}, nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://1.7.1'}}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: isolated}, handler: runhcs-wcow-hypervisor, overhead: {podFixed: {memory: 1Gi}}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2022}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: windows-2025}, handler: runhcs-wcow-process, scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.26100}}}
";
const NEW_NODE: &str = "
---
{apiVersion: v1, kind: Node, metadata: {name: c-1, labels: {kubernetes.io/os: windows, kubernetes.io/hostname: c-1, node.kubernetes.io/windows-build: 10.0.26100, agentpool: win25}}, status: {allocatable: {cpu: 8, memory: 32Gi, pods: 30}, nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.1, containerRuntimeVersion: 'containerd://1.7.1'}}}";

pub(super) const LTSC2022: &str = "mcr.microsoft.com/windows/servercore:ltsc2022";
pub(super) const LTSC2019: &str = "mcr.microsoft.com/windows/servercore:ltsc2019";

fn plan_options() -> PlanOptions {
    PlanOptions::upgrade(Build::new(26100), &[])
}

/// Plans for objects in YAML, as the command does.
pub(super) fn planned(
    yaml: &str,
    plan_options: PlanOptions,
    images: &[(&str, ImageFacts)],
) -> Result<UpgradePlan, NoPool> {
    visited(yaml, &[], (plan_options, Policy::standalone()), |planner| {
        let images = images.iter();
        planner.learn(images.map(|(image, facts)| ((*image).to_owned(), Arc::new(facts.clone()))));
        Ok(planner.plan()?.unwrap())
    })
}

/// What a planner that visited objects in YAML says about these new nodes, with these pools at zero nodes.
pub(super) fn with_planner<T>(
    yaml: &str,
    pools: &[Host],
    change: PlannedChange,
    finish: impl FnOnce(&mut Planner<'_>) -> T,
) -> T {
    visited(
        yaml,
        pools,
        (PlanOptions::new(change), Policy::standalone()),
        finish,
    )
}

pub(super) fn visited<T>(
    yaml: &str,
    pools: &[Host],
    (plan_options, policy): (PlanOptions, Policy),
    finish: impl FnOnce(&mut Planner<'_>) -> T,
) -> T {
    let parsed = manifest::parse(yaml.as_bytes().to_vec());
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let kind = |json: &str| {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        let text = |field: &str| value[field].as_str().unwrap().to_owned();
        Kind::of_api_version(&text("apiVersion"), &text("kind")).unwrap()
    };
    let objects: Vec<(Kind, String)> = parsed
        .documents
        .iter()
        .map(|it| (kind(it.json()), it.json().to_owned()))
        .collect();
    let mut facts = Facts::new(36, date(2026, 6, 1));
    for (kind, json) in &objects {
        facts.learn(&Object::parse(*kind, json, ReviewStage::Stored).unwrap());
    }
    facts.pools = pools.to_vec();
    let policies = PolicySet::new(Vec::new(), policy);
    let mut planner = Planner::new(&facts, &policies, plan_options);
    for pass in 0..Planner::PASSES {
        for (kind, json) in objects
            .iter()
            .filter(|(kind, _)| Planner::pass(*kind) == Some(pass))
        {
            planner.visit(*kind, json).unwrap();
        }
    }
    finish(&mut planner)
}

/// An image with variants for Windows of these versions.
fn image(versions: &[&str]) -> ImageFacts {
    let variants = versions
        .iter()
        .map(|version| ImageVariant::new("windows", "amd64", version));
    ImageFacts::of(variants.collect(), jiff::Timestamp::UNIX_EPOCH)
}

/// An image that does not exist.
fn no_image() -> ImageFacts {
    ImageFacts {
        looked_up: jiff::Timestamp::UNIX_EPOCH,
        found: None,
    }
}

/// The requests of what moves.
fn moving(plan: &UpgradePlan) -> &ResourceList {
    plan.nodes_needed.requests.as_ref().unwrap()
}

pub(super) fn plan(yaml: &str) -> UpgradePlan {
    planned(yaml, plan_options(), &[]).unwrap()
}

pub(super) fn deployment(name: &str, image: &str, spec: &str) -> String {
    workload("Deployment", name, image, spec)
}

pub(super) fn workload(kind: &str, name: &str, image: &str, spec: &str) -> String {
    format!(
        "\n---\n{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: {name}, namespace: shop}}, spec: {{template: {{spec: {{os: {{name: windows}}, \
         {spec} containers: [{{name: app, image: '{image}', resources: {{requests: {{cpu: 500m, memory: 1Gi}}}}}}]}}}}}}}}"
    )
}

pub(super) fn pod(name: &str, owner: &str, node: &str, rest: &str) -> String {
    let (kind, owner) = owner.split_once(' ').unwrap();
    format!(
        "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop, ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: {owner}, controller: true}}]}}, \
         spec: {{os: {{name: windows}}, nodeName: {node}, nodeSelector: {{node.kubernetes.io/windows-build: 10.0.20348}}, {rest} containers: [{{name: app, image: '{LTSC2022}', resources: {{requests: {{cpu: 500m, memory: 1Gi}}}}}}]}}, \
         status: {{phase: Running, conditions: [{{type: Ready, status: 'True'}}]}}}}"
    )
}

/// Class, whether it can move, and the cause: of the last blocking finding, or else of the last one.
fn class_and_remedy(plan: &UpgradePlan, name: &str) -> (UpgradeClass, bool, Option<BlockedBy>) {
    let workload = plan
        .workloads
        .iter()
        .find(|it| it.name == name)
        .unwrap_or_else(|| panic!("{name}: {plan:#?}"));
    let by = workload
        .findings
        .iter()
        .filter(|it| it.blocks)
        .max_by_key(|it| it.class)
        .and_then(|it| it.cause);
    (workload.class, workload.can_move, by)
}

#[test]
fn the_table_of_isolation_says_what_runs_unchanged_and_what_does_not() {
    let isolated = "runtimeClassName: isolated,";
    let hpc = "hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}},";
    let old = |name: &str, list: &str| {
        deployment(
            name,
            LTSC2022,
            &format!("{list}: [{{name: other, image: '{LTSC2019}'}}],"),
        )
    };
    let yaml = [
        NODES,
        &deployment("same", LTSC2022, ""),
        &deployment("old", LTSC2019, ""),
        &deployment("isolated", LTSC2019, isolated),
        &deployment("isolated-2022", LTSC2022, isolated),
        &deployment("in-doubt", LTSC2019, "runtimeClassName: other,"),
        &deployment("own", "corp.example/shop/web:1.4", ""),
        &deployment("untagged", "corp.example/shop/web", ""),
        &deployment("dotnet", "mcr.microsoft.com/dotnet/aspnet:8.0", ""),
        &deployment("multi", "mcr.microsoft.com/dotnet/runtime:6.0", ""),
        &deployment("pause", "registry.k8s.io/pause:3.9", ""),
        &deployment("host-process", "corp.example/agent:1", hpc),
        &deployment(
            "host-process-isolated",
            "corp.example/agent:1",
            &format!("{hpc} {isolated}"),
        ),
        &old("init", "initContainers"),
        &old("ephemeral", "ephemeralContainers"),
        &deployment("linux", "nginx:1.29", "nodeSelector: {kubernetes.io/os: linux},")
            .replace("os: {name: windows},", ""),
    ]
    .concat();
    let plan = plan(&yaml);
    for (name, class, can_move, by) in [
        ("same", UpgradeClass::Unchanged, true, None),
        ("old", UpgradeClass::NewImage, false, None),
        ("isolated", UpgradeClass::HyperVOnly, true, None),
        ("isolated-2022", UpgradeClass::Unchanged, true, None),
        ("in-doubt", UpgradeClass::Unknown, false, None),
        ("own", UpgradeClass::Unknown, false, None),
        ("untagged", UpgradeClass::Unknown, false, None),
        ("dotnet", UpgradeClass::NewImage, false, None),
        ("multi", UpgradeClass::Unchanged, true, None),
        ("pause", UpgradeClass::Unchanged, true, None),
        ("host-process", UpgradeClass::Unchanged, true, None),
        (
            "host-process-isolated",
            UpgradeClass::Blocked,
            false,
            Some(BlockedBy::HostProcess),
        ),
        ("init", UpgradeClass::NewImage, false, None),
        ("ephemeral", UpgradeClass::NewImage, false, None),
    ] {
        assert_eq!(class_and_remedy(&plan, name), (class, can_move, by), "{name}");
    }
    assert!(!plan.workloads.iter().any(|it| it.name == "linux"));
    let all = || plan.workloads.iter().flat_map(|it| &it.findings);
    assert!(
        all().all(|it| !it.source.name.is_empty() && !it.source.documentation.is_empty()),
        "{:#?}",
        plan.workloads
    );
    let of = |name: &str| plan.workloads.iter().find(|it| it.name == name).unwrap();
    let old = &of("old").findings[0];
    assert_eq!(
        old.source.name,
        "process isolation: 10.0.17763 image on 10.0.26100 host"
    );
    let proposed = old.proposed.as_ref().unwrap();
    assert_eq!(proposed.image, "mcr.microsoft.com/windows/servercore:ltsc2025");
    assert_eq!(proposed.verified, RegistryCheck::Published);
    assert!(old.remedy.as_deref().unwrap().contains("Microsoft publishes it"));
    assert_eq!(
        of("init").findings[0].path,
        "spec.template.spec.initContainers[other].image"
    );
    assert_eq!(
        of("untagged").findings[0].source.name,
        "TSM602 image-untagged-or-latest"
    );
}

#[test]
#[allow(clippy::too_many_lines)] // one table of cases
fn every_way_to_name_the_old_nodes_pins() {
    let affinity = |expressions: &str| {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{expressions}]}}}}}},"
        )
    };
    let term = |key: &str, operator: &str, values: &str| {
        format!("{{matchExpressions: [{{key: {key}, operator: {operator}, values: [{values}]}}]}}")
    };
    let build = "node.kubernetes.io/windows-build";
    let cases = [
        (
            "selector",
            format!("nodeSelector: {{{build}: 10.0.20348}},"),
            Some(BlockedBy::NodeSelector),
        ),
        ("new", format!("nodeSelector: {{{build}: 10.0.26100}},"), None),
        (
            "trusted",
            "nodeSelector: {transom.dev.node-restriction.kubernetes.io/windows-build: 10.0.20348},"
                .to_owned(),
            Some(BlockedBy::RestrictedBuildLabel),
        ),
        (
            "pool",
            "nodeSelector: {agentpool: win22},".to_owned(),
            Some(BlockedBy::PoolLabel),
        ),
        (
            "sku",
            "nodeSelector: {kubernetes.azure.com/os-sku: Windows2022},".to_owned(),
            Some(BlockedBy::PoolLabel),
        ),
        (
            "sku-new",
            "nodeSelector: {kubernetes.azure.com/os-sku: Windows2025},".to_owned(),
            None,
        ),
        (
            "class",
            "runtimeClassName: windows-2022,".to_owned(),
            Some(BlockedBy::RuntimeClass),
        ),
        ("class-new", "runtimeClassName: windows-2025,".to_owned(), None),
        ("bound", "nodeName: b-1,".to_owned(), Some(BlockedBy::NodeName)),
        (
            "hostname",
            "nodeSelector: {kubernetes.io/hostname: b-1},".to_owned(),
            Some(BlockedBy::NodeName),
        ),
        (
            "affinity",
            affinity(&term(build, "In", "10.0.17763, 10.0.20348")),
            Some(BlockedBy::NodeAffinity),
        ),
        (
            "affinity-not",
            affinity(&term(build, "NotIn", "10.0.17763")),
            None,
        ),
        (
            "affinity-both",
            affinity(&term(build, "In", "10.0.20348, 10.0.26100")),
            None,
        ),
        (
            "affinity-or",
            affinity(&format!(
                "{}, {}",
                term(build, "In", "10.0.20348"),
                term("kubernetes.io/os", "In", "windows")
            )),
            None,
        ),
        (
            "field",
            affinity("{matchFields: [{key: metadata.name, operator: In, values: [b-1]}]}"),
            Some(BlockedBy::NodeName),
        ),
        (
            "preferred",
            format!(
                "affinity: {{nodeAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 1, preference: {}}}]}}}},",
                term(build, "In", "10.0.20348")
            ),
            None,
        ),
    ];
    for nodes in [NODES.to_owned(), [NODES, NEW_NODE].concat()] {
        let has_new = nodes.contains("c-1");
        let yaml: String = cases
            .iter()
            .map(|(name, spec, _)| deployment(name, LTSC2022, spec))
            .collect();
        let plan = plan(&[nodes, yaml].concat());
        for (name, _, by) in &cases {
            // The existing new node has no AKS label.
            let by = if *name == "sku-new" && has_new {
                Some(BlockedBy::PoolLabel)
            } else {
                *by
            };
            let expected = by.map_or((UpgradeClass::Unchanged, true, None), |by| {
                (UpgradeClass::Pinned, false, Some(by))
            });
            assert_eq!(
                class_and_remedy(&plan, name),
                expected,
                "{name}, new nodes: {has_new}"
            );
        }
    }
}

#[test]
fn a_label_that_the_new_nodes_could_be_given_is_a_note_until_they_are_there_without_it() {
    let yaml = [NODES, &deployment("fast", LTSC2022, "nodeSelector: {disk: ssd},")].concat();
    let before = plan(&yaml);
    assert_eq!(
        class_and_remedy(&before, "fast"),
        (UpgradeClass::Unchanged, true, None)
    );
    assert!(
        before.workloads[0]
            .findings
            .iter()
            .any(|it| it.message.contains("disk=ssd")),
        "{before:#?}"
    );
    let after = plan(&[&yaml, NEW_NODE].concat());
    assert_eq!(
        class_and_remedy(&after, "fast"),
        (UpgradeClass::Pinned, false, Some(BlockedBy::NodeLabel))
    );
    let unknown = plan(
        &[
            NODES,
            &deployment("x", LTSC2022, "nodeSelector: {agentpool: other},"),
        ]
        .concat(),
    );
    assert_eq!(
        class_and_remedy(&unknown, "x").0,
        UpgradeClass::Unknown,
        "a pool of which nothing is known"
    );
}

#[test]
fn an_account_blocks_until_a_pod_with_it_is_ready_on_a_new_node() {
    let account = "securityContext: {windowsOptions: {gmsaCredentialSpecName: web}},";
    let yaml = [NODES, NEW_NODE, &deployment("web", LTSC2022, account)].concat();
    assert_eq!(
        class_and_remedy(&plan(&yaml), "web"),
        (UpgradeClass::Blocked, false, Some(BlockedBy::Gmsa))
    );
    let queried = PlanOptions {
        gmsa_ready: true,
        ..plan_options()
    };
    assert_eq!(
        class_and_remedy(&planned(&yaml, queried, &[]).unwrap(), "web"),
        (UpgradeClass::Unchanged, true, None)
    );
    let elsewhere = [
        &yaml,
        &*workload("StatefulSet", "db", LTSC2022, account),
        &pod("db-0", "StatefulSet db", "c-1", ""),
    ]
    .concat();
    assert_eq!(
        class_and_remedy(&plan(&elsewhere), "web"),
        (UpgradeClass::Unchanged, true, None)
    );
    let plug_in = "securityContext: {windowsOptions: {gmsaCredentialSpec: '{\"HostAccountConfig\": {}}'}},";
    let yaml = [NODES, &deployment("web", LTSC2022, plug_in)].concat();
    assert_eq!(
        class_and_remedy(&plan(&yaml), "web"),
        (UpgradeClass::Unchanged, true, None)
    );
}

#[test]
fn a_daemonset_must_be_there_for_both_builds() {
    let of = |name: &str, image: &str, build: &str| {
        let selector = format!(
            "nodeSelector: {{kubernetes.io/os: windows, node.kubernetes.io/windows-build: {build}}},"
        );
        workload("DaemonSet", name, image, &selector)
    };
    let old = of("agent", "corp.example/agent:1-ltsc2019", "10.0.17763");
    let alone = plan(&[NODES, &old].concat());
    assert_eq!(
        class_and_remedy(&alone, "agent"),
        (UpgradeClass::Blocked, false, Some(BlockedBy::DaemonSet))
    );
    let twin = of("agent-2025", "corp.example/agent:1-ltsc2025", "10.0.26100");
    let both = plan(&[NODES, &old, &twin].concat());
    assert_eq!(
        class_and_remedy(&both, "agent"),
        (UpgradeClass::Pinned, true, None)
    );
    assert_eq!(
        class_and_remedy(&both, "agent-2025"),
        (UpgradeClass::Unchanged, true, None)
    );
    let stranger = of("other", "corp.example/other:1-ltsc2025", "10.0.26100");
    assert!(!class_and_remedy(&plan(&[NODES, &old, &stranger].concat()), "agent").1);
    let everywhere = workload(
        "DaemonSet",
        "logs",
        LTSC2022,
        "nodeSelector: {kubernetes.io/os: windows},",
    );
    assert_eq!(
        class_and_remedy(&plan(&[NODES, &everywhere].concat()), "logs"),
        (UpgradeClass::Unchanged, true, None)
    );
}

#[test]
fn a_pod_without_a_controller_is_not_made_anew_and_a_taint_keeps_off() {
    let bare = format!(
        "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: bare, namespace: shop}}, spec: {{os: {{name: windows}}, containers: [{{name: a, image: '{LTSC2022}'}}]}}}}"
    );
    assert_eq!(
        class_and_remedy(&plan(&[NODES, &bare].concat()), "bare"),
        (UpgradeClass::Blocked, false, Some(BlockedBy::NoController))
    );
    let tainted = |taint: &str| NEW_NODE.replace("status:", &format!("spec: {{taints: [{taint}]}}, status:"));
    let with = |taint: &str, kind: &str| {
        let yaml = [
            NODES,
            &tainted(taint),
            &workload(
                kind,
                "web",
                LTSC2022,
                "nodeSelector: {kubernetes.io/os: windows},",
            ),
        ]
        .concat();
        class_and_remedy(&plan(&yaml), "web")
    };
    let blocked = (UpgradeClass::Blocked, false, Some(BlockedBy::Taint));
    assert_eq!(
        with("{key: team, value: a, effect: NoSchedule}", "Deployment"),
        blocked
    );
    assert_eq!(
        with(
            "{key: node.kubernetes.io/unschedulable, effect: NoSchedule}",
            "Deployment"
        )
        .0,
        UpgradeClass::Unchanged
    );
    assert_eq!(
        with("{key: os, value: windows, effect: NoSchedule}", "Deployment").0,
        UpgradeClass::Unchanged,
        "placement tolerates it"
    );
    assert_eq!(
        with("{key: os, value: windows, effect: NoSchedule}", "DaemonSet"),
        blocked,
        "its controller reads the template"
    );
}

#[test]
fn a_registry_says_what_names_do_not() {
    let own = "corp.example/shop/web:1.4";
    let yaml = [
        NODES,
        &deployment("own", own, ""),
        &deployment("old", "corp.example/shop/api:2-ltsc2019", ""),
    ]
    .concat();
    let ask = |images: &[(&str, ImageFacts)]| planned(&yaml, plan_options(), images).unwrap();
    assert_eq!(
        class_and_remedy(&ask(&[(own, image(&["10.0.17763", "10.0.20348"]))]), "own").0,
        UpgradeClass::Unchanged
    );
    assert_eq!(
        class_and_remedy(&ask(&[(own, image(&["10.0.17763"]))]), "own").0,
        UpgradeClass::HyperVOnly,
        "no tag says what another would be"
    );
    assert_eq!(
        class_and_remedy(&ask(&[(own, image(&[]))]), "own").0,
        UpgradeClass::NewImage
    );
    let new = "corp.example/shop/api:2-ltsc2025";
    let of_old = |images: &[(&str, ImageFacts)]| {
        let plan = ask(images);
        let old = plan.workloads.into_iter().find(|it| it.name == "old").unwrap();
        (old.class, old.findings[0].proposed.as_ref().map(|it| it.verified))
    };
    assert_eq!(of_old(&[]), (UpgradeClass::NewImage, None), "nobody was asked");
    assert_eq!(
        of_old(&[(new, image(&["10.0.26100"]))]),
        (UpgradeClass::NewImage, Some(RegistryCheck::Exists))
    );
    assert_eq!(
        of_old(&[(new, no_image())]),
        (UpgradeClass::HyperVOnly, Some(RegistryCheck::Missing))
    );
}

#[test]
fn only_images_that_exist_are_proposed() {
    for (image, class, proposed) in [
        (
            "mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2019",
            UpgradeClass::NewImage,
            "mcr.microsoft.com/dotnet/framework/aspnet:4.8.1-windowsservercore-ltsc2025",
        ),
        (
            "mcr.microsoft.com/dotnet/framework/wcf:4.8-20240109-windowsservercore-ltsc2019",
            UpgradeClass::NewImage,
            "mcr.microsoft.com/dotnet/framework/wcf:4.8.1-windowsservercore-ltsc2025",
        ),
        (
            "mcr.microsoft.com/dotnet/aspnet:6.0-nanoserver-1809",
            UpgradeClass::NewImage,
            "mcr.microsoft.com/dotnet/aspnet:6.0-nanoserver-ltsc2022",
        ),
        (
            "mcr.microsoft.com/dotnet/aspnet:8.0",
            UpgradeClass::NewImage,
            "mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-ltsc2025",
        ),
        (
            "mcr.microsoft.com/windows:1809",
            UpgradeClass::NewImage,
            "mcr.microsoft.com/windows/server:ltsc2025",
        ),
        // In no list, and no registry was asked.
        (
            "jenkins/inbound-agent:jdk17-windowsservercore-1809",
            UpgradeClass::NewImage,
            "",
        ),
        (
            "mcr.microsoft.com/azure-functions/dotnet:3.0-nanoserver-1809",
            UpgradeClass::HyperVOnly,
            "",
        ),
    ] {
        let yaml = [NODES, &deployment("web", image, "")].concat();
        let plan = planned(&yaml, plan_options(), &[]).unwrap();
        let web = plan.workloads.into_iter().find(|it| it.name == "web").unwrap();
        let name = web.findings[0].proposed.as_ref().map_or("", |it| &it.image);
        assert_eq!((web.class, name), (class, proposed), "{image}");
    }
}

#[test]
fn a_workload_with_empty_values_is_planned() {
    let written = deployment("web", LTSC2022, "").replace(
        "spec: {template:",
        "spec: {paused: null, suspend: null, template:",
    );
    assert!(written.contains("paused"), "{written}");
    let plan = plan(&[NODES, NEW_NODE, &written].concat());
    assert_eq!(plan.workloads.len(), 1, "{plan:#?}");
}

#[test]
fn pools_hold_a_workload_only_if_the_registry_has_its_image_for_them() {
    let own = "corp.example/shop/web:2019";
    let yaml = [NODES, NEW_NODE, &deployment("own", own, "")].concat();
    let pools = |images: &[(&str, ImageFacts)]| {
        let plan = planned(&yaml, plan_options(), images).unwrap();
        let held = plan.drain_order.iter().filter(|step| !step.blocked_by.is_empty());
        let mut held: Vec<String> = held.map(|step| step.pool.clone()).collect();
        held.sort();
        let own = plan.workloads.into_iter().find(|it| it.name == "own").unwrap();
        (own.pools, held)
    };
    let strings = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    assert_eq!(
        pools(&[(own, image(&["10.0.17763"]))]),
        (strings(&["win19"]), strings(&["win19"]))
    );
    assert_eq!(
        pools(&[]),
        (
            strings(&["win19", "win22", "win25"]),
            strings(&["win19", "win22"])
        ),
        "the name shows no build"
    );
    let unpooled = yaml
        .replace(", agentpool: win19", "")
        .replace(", agentpool: win22", "");
    let plan = planned(
        &unpooled,
        plan_options(),
        &[(own, image(&["10.0.17763", "10.0.20348"]))],
    )
    .unwrap();
    assert_eq!(
        plan.workloads[0].pools,
        [
            "10.0.17763 (no node-pool label)",
            "10.0.20348 (no node-pool label)",
            "win25"
        ]
    );
    // The registry takes precedence over the tag.
    let tagged = "corp.example/shop/web:ltsc2019";
    let yaml = yaml.replace(own, tagged);
    let plan = planned(
        &yaml,
        plan_options(),
        &[(tagged, image(&["10.0.17763", "10.0.20348"]))],
    )
    .unwrap();
    assert_eq!(plan.workloads[0].pools, ["win19", "win22", "win25"]);
    let message = &plan.workloads[0].findings[0].message;
    assert!(
        message.contains(" has a variant for Windows Server 2022 "),
        "{message}"
    );
}

#[test]
fn an_image_without_an_answer_is_not_known_and_one_that_was_not_requested_is_counted() {
    let (facts, policies) = (
        Facts::new(36, date(2026, 6, 1)),
        PolicySet::new(Vec::new(), Policy::standalone()),
    );
    let mut planner = Planner::new(&facts, &policies, plan_options());
    for (name, image) in [
        ("own", "corp.example/web:1.4"),
        ("old", "corp.example/web:1.4-ltsc2025"),
    ] {
        let yaml = deployment(name, image, "").replace("---", "");
        let parsed = manifest::parse(yaml.into_bytes());
        planner
            .visit(Kind::Deployment, parsed.documents[0].json())
            .unwrap();
    }
    let own = |planner: &Planner<'_>| {
        let plan = planner.plan().unwrap().unwrap();
        let own = plan.workloads.into_iter().find(|it| it.name == "own").unwrap();
        let finding = own.findings[0].clone();
        (finding.message, finding.remedy.unwrap(), plan.notes.join("\n"))
    };
    let (message, remedy, notes) = own(&planner);
    assert!(message.contains("is not known from its name"), "{message}");
    assert_eq!(
        remedy,
        "run the plan with --registry, or: transom image corp.example/web:1.4"
    );
    assert!(!notes.contains("not looked up"), "{notes}");
    let why = "the registry refused a request without credentials (401)";
    planner.learn_unanswered([("corp.example/web:1.4".to_owned(), why.to_owned())].into());
    let (message, remedy, notes) = own(&planner);
    assert_eq!(
        message,
        format!("the build of corp.example/web:1.4 is not known from its name or its registry: {why}")
    );
    assert_eq!(
        remedy,
        "docker login corp.example if it needs credentials, or try it on one node of the new build"
    );
    assert!(
        notes.contains("1 image was not looked up, because the plan does not need its registry: transom image corp.example/web:1.4-ltsc2025 "),
        "{notes}"
    );
}

#[test]
fn the_revision_of_an_image_and_an_entry_without_a_version_are_used() {
    let own = "corp.example/shop/web:1.4";
    let new_nodes = NEW_NODE.replace("10.0.26100.1,", "10.0.26100.2894,");
    let yaml = [NODES, &new_nodes, &deployment("own", own, "")].concat();
    let class = |versions: &[&str]| {
        let plan = planned(&yaml, plan_options(), &[(own, image(versions))]).unwrap();
        let own = plan.workloads.into_iter().find(|it| it.name == "own").unwrap();
        (own.class, own.findings[0].message.clone())
    };
    let (found, message) = class(&["10.0.26100.3194"]);
    assert_eq!(found, UpgradeClass::Blocked, "{message}");
    assert!(
        message.contains("need nodes of 10.0.26100.3194, and c-1 is 10.0.26100.2894"),
        "{message}"
    );
    assert_eq!(class(&["10.0.26100.2894"]).0, UpgradeClass::Unchanged);
    assert_eq!(class(&["10.0.26100"]).0, UpgradeClass::Unchanged);
    assert_eq!(class(&["10.0.20348.9999"]).0, UpgradeClass::Unchanged);
    let (found, message) = class(&["10.0.17763.1", ""]);
    assert_eq!(found, UpgradeClass::Unknown, "{message}");
    assert!(message.contains("without os.version"), "{message}");
    let plan = planned(&yaml, plan_options(), &[(own, no_image())]).unwrap();
    let missing = plan.workloads.into_iter().find(|it| it.name == "own").unwrap();
    assert!(
        missing.findings[0]
            .message
            .contains("the registry has no corp.example/shop/web:1.4")
    );
    assert_eq!(class(&["10.0.26100", ""]).0, UpgradeClass::Unchanged);
}

#[test]
fn pods_count_for_their_workloads_and_pools_are_drained_when_nothing_holds_them() {
    let replica_set = "\n---\n{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, controller: true}]}, spec: {replicas: 3}}";
    let yaml = [
        NODES,
        NEW_NODE,
        &deployment("web", LTSC2022, ""),
        replica_set,
        &deployment("old", LTSC2019, ""),
        &pod("web-1-a", "ReplicaSet web-1", "b-1", ""),
        &pod("web-1-b", "ReplicaSet web-1", "b-2", ""),
        &pod("web-1-c", "ReplicaSet web-1", "c-1", ""),
        &pod("old-a", "Deployment old", "a-1", ""),
        &pod("logs-a", "DaemonSet logs", "b-1", ""),
        &pod("rolled-a", "ReplicaSet rolled", "b-1", ""),
    ]
    .concat();
    let plan = plan(&yaml);
    let of = |name: &str| plan.workloads.iter().find(|it| it.name == name).unwrap();
    assert_eq!(
        (of("web").pods, of("web").pools.join(" ")),
        (3, "win22 win25".to_owned())
    );
    // Placement wrote the build into the pod, and its own object is unknown: that is not a pin.
    assert_eq!(of("rolled").read_from.as_deref(), Some("rolled-a"));
    assert_eq!(
        (of("rolled").class, &*of("rolled").kind),
        (UpgradeClass::Unchanged, "ReplicaSet")
    );
    let steps: Vec<_> = plan
        .drain_order
        .iter()
        .map(|it| (&*it.pool, it.ready, it.requests.as_ref().unwrap().pods))
        .collect();
    assert_eq!(steps, [("win22", true, 3), ("win19", false, 1)]);
    let held: Vec<_> = plan.drain_order[1]
        .blocked_by
        .iter()
        .map(|it| &*it.workload)
        .collect();
    assert_eq!(held, ["Deployment shop/old"]);
    assert_eq!((moving(&plan).cpu_millis, moving(&plan).pods), (2000, 4));
    assert_eq!(plan.nodes_needed.free.as_ref().unwrap().cpu_millis, 7500);
    assert_eq!(
        (
            plan.nodes_needed.reference_node.as_deref(),
            plan.nodes_needed.nodes
        ),
        (Some("c-1"), Some(0))
    );
    let after = plan.capacity.last().unwrap().after.as_ref().unwrap();
    assert_eq!((after.nodes, after.requested.as_ref().unwrap().pods), (1, 5));
    assert_eq!(plan.capacity[0].after, Some(NodeCapacity::default()));
    assert_eq!(
        (
            plan.summary.workloads,
            plan.summary.affected,
            plan.summary.can_move
        ),
        (4, 4, 3)
    );
}

#[test]
fn without_pods_replicas_count_and_the_pools_that_go_can_be_named() {
    let many = deployment("web", LTSC2022, "").replace("spec: {template", "spec: {replicas: 20, template");
    let yaml = [NODES, &*many].concat();
    let plan = plan(&yaml);
    assert!(
        !plan.nodes_needed.counts_pods
            && plan
                .notes
                .iter()
                .any(|note| note.contains("no pods of Windows workloads are known"))
    );
    assert_eq!(
        (
            moving(&plan).pods,
            plan.nodes_needed.nodes,
            plan.nodes_needed.reference_node.as_deref()
        ),
        (20, Some(3), Some("b-1"))
    );
    assert_eq!(plan.from, ["win19", "win22"]);
    let from = |pool: &str| {
        planned(
            &yaml,
            PlanOptions {
                from: vec![pool.to_owned()],
                ..plan_options()
            },
            &[],
        )
    };
    assert_eq!(from("win19").unwrap().from, ["win19"]);
    assert_eq!(from("ltsc2022").unwrap().from, ["win22"]);
    let error = from("win21").unwrap_err().to_string();
    assert!(
        error.contains("win21") && error.contains("win19, win22"),
        "{error}"
    );
    let none = planned(&deployment("web", LTSC2022, ""), plan_options(), &[]).unwrap();
    assert!(none.drain_order.is_empty() && none.notes.iter().any(|note| note.contains("no Windows node")));
}

#[test]
fn a_linux_image_that_a_windows_node_never_started_is_no_workload_for_windows() {
    let bare = |name: &str, image: &str, ready: &str| {
        let phase = if name == "pulls" { "Pending" } else { "Running" };
        format!(
            "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop}}, spec: {{nodeName: b-1, containers: [{{name: a, image: '{image}'}}]}}, \
             status: {{phase: {phase}, conditions: [{{type: Ready, status: '{ready}'}}]}}}}"
        )
    };
    let yaml = [
        NODES,
        &bare("lost", "nginx:1.27", "False"),
        &bare("pulls", "corp.example/app:1.4", "False"),
        &bare("own", "corp.example/app:1.4", "False"),
        &bare("named-so", "corp.example/nginx:1.27-alpine", "True"),
    ]
    .concat();
    let plan = plan(&yaml);
    let names: Vec<&str> = plan.workloads.iter().map(|it| it.name.as_str()).collect();
    assert!(
        names.contains(&"own") && !names.contains(&"lost") && !names.contains(&"pulls"),
        "{names:?}"
    );
    let kept = plan.workloads.iter().find(|it| it.name == "named-so").unwrap();
    assert_eq!(
        kept.findings[0].remedy.as_deref(),
        Some("use an image for Windows, or run it in a pod of its own on Linux nodes"),
        "{kept:#?}"
    );
}

/// A second pool of the new build, with the label `gpu=yes` and a taint.
const GPU_NODE: &str = "
---
{apiVersion: v1, kind: Node, metadata: {name: g-1, labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, kubernetes.io/hostname: g-1, node.kubernetes.io/windows-build: 10.0.26100, agentpool: gpu25, gpu: 'yes', disk: ssd}}, spec: {taints: [{key: sku, value: gpu, effect: NoSchedule}]}, status: {allocatable: {cpu: 8, memory: 32Gi, pods: 30}, nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.26100.1, containerRuntimeVersion: 'containerd://1.7.1'}}}";

fn required(terms: &str) -> String {
    format!(
        "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{terms}]}}}}}},"
    )
}

#[test]
fn one_and_the_same_node_must_have_the_labels_and_no_other_taint() {
    let gpu = "nodeSelector: {gpu: 'yes'},";
    let tolerating = "nodeSelector: {gpu: 'yes'}, tolerations: [{key: sku, operator: Exists}],";
    let yaml = [
        NODES,
        NEW_NODE,
        GPU_NODE,
        &deployment("plain", LTSC2022, ""),
        &deployment("gpu", LTSC2022, gpu),
        &deployment("tolerating", LTSC2022, tolerating),
        &deployment("fast", LTSC2022, "nodeSelector: {disk: ssd},"),
        &deployment("both", LTSC2022, "nodeSelector: {agentpool: win25, gpu: 'yes'},"),
        &deployment(
            "either",
            LTSC2022,
            &required("{matchExpressions: [{key: gpu, operator: Exists}]}, {matchExpressions: [{key: agentpool, operator: In, values: [win25]}]}"),
        ),
    ]
    .concat();
    let plan = plan(&yaml);
    for (name, expected) in [
        ("plain", (UpgradeClass::Unchanged, true, None)),
        ("gpu", (UpgradeClass::Blocked, false, Some(BlockedBy::Taint))),
        ("tolerating", (UpgradeClass::Unchanged, true, None)),
        ("fast", (UpgradeClass::Blocked, false, Some(BlockedBy::Taint))),
        ("both", (UpgradeClass::Pinned, false, Some(BlockedBy::NodeLabel))),
        ("either", (UpgradeClass::Unchanged, true, None)),
    ] {
        assert_eq!(class_and_remedy(&plan, name), expected, "{name}");
    }
    let gpu = plan.workloads.iter().find(|it| it.name == "gpu").unwrap();
    let message = &gpu.findings.last().unwrap().message;
    assert!(
        message.contains("as g-1 does sku=gpu:NoSchedule") && message.contains("by its selectors"),
        "{message}"
    );
}

#[test]
fn an_empty_term_of_the_required_affinity_matches_no_node() {
    let os = "{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}";
    for nodes in [NODES.to_owned(), [NODES, NEW_NODE].concat()] {
        let yaml = [
            &*nodes,
            &deployment("empty", LTSC2022, &required("{}")),
            &deployment("none", LTSC2022, &required("")),
            &deployment("either", LTSC2022, &required(&format!("{{}}, {os}"))),
        ]
        .concat();
        let plan = plan(&yaml);
        let pinned = (UpgradeClass::Pinned, false, Some(BlockedBy::NodeAffinity));
        assert_eq!(class_and_remedy(&plan, "empty"), pinned);
        assert_eq!(class_and_remedy(&plan, "none"), pinned);
        assert_eq!(
            class_and_remedy(&plan, "either"),
            (UpgradeClass::Unchanged, true, None)
        );
        let empty = plan.workloads.iter().find(|it| it.name == "empty").unwrap();
        let finding = empty.findings.last().unwrap();
        assert!(
            finding.message.contains("an empty term matches none"),
            "{finding:?}"
        );
        assert!(finding.path.ends_with(".nodeSelectorTerms"), "{finding:?}");
    }
}

#[test]
fn operating_system_and_architecture_are_compared() {
    let with_arch = |nodes: &str| {
        nodes.replace(
            "labels: {kubernetes.io/os: windows,",
            "labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64,",
        )
    };
    for nodes in [with_arch(NODES), with_arch(&[NODES, NEW_NODE].concat())] {
        let arm = "nodeSelector: {kubernetes.io/arch: arm64},";
        let yaml = [
            &*nodes,
            &deployment("arm", LTSC2022, arm),
            &deployment("amd", LTSC2022, "nodeSelector: {kubernetes.io/arch: amd64},"),
        ]
        .concat();
        let plan = plan(&yaml);
        let pinned = (UpgradeClass::Pinned, false, Some(BlockedBy::NodeLabel));
        assert_eq!(class_and_remedy(&plan, "arm"), pinned);
        assert_eq!(
            class_and_remedy(&plan, "amd"),
            (UpgradeClass::Unchanged, true, None)
        );
    }
}

#[test]
fn what_the_controller_of_a_daemonset_writes_into_its_pods_pins_nothing() {
    let own = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [b-1]}]}]}}},";
    let of_daemon_set = |owner: &str| [NODES, &pod("logs-a", owner, "b-1", own)].concat();
    assert_eq!(
        class_and_remedy(&plan(&of_daemon_set("DaemonSet logs")), "logs"),
        (UpgradeClass::Unchanged, true, None)
    );
    assert_eq!(
        class_and_remedy(&plan(&of_daemon_set("StatefulSet logs")), "logs"),
        (UpgradeClass::Pinned, false, Some(BlockedBy::NodeName)),
        "that one wrote its author"
    );
}

#[test]
fn a_sidecar_that_two_daemonsets_have_makes_no_pair_of_them() {
    let of = |name: &str, images: &[&str], build: &str, annotations: &str| {
        let containers: Vec<String> = (images.iter().enumerate())
            .map(|(at, image)| format!("{{name: c{at}, image: '{image}'}}"))
            .collect();
        format!(
            "\n---\n{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: {name}, namespace: shop}}, spec: {{template: {{metadata: {{annotations: {{{annotations}}}}}, \
             spec: {{os: {{name: windows}}, nodeSelector: {{node.kubernetes.io/windows-build: {build}}}, containers: [{}]}}}}}}}}",
            containers.join(", ")
        )
    };
    let (proxy, proxy_new) = ("corp.example/proxy:1-ltsc2019", "corp.example/proxy:1-ltsc2025");
    let (agent, agent_new) = ("corp.example/agent:1-ltsc2019", "corp.example/agent:2-ltsc2025");
    let other_new = "corp.example/other:1-ltsc2025";
    let old = |images: &[&str]| of("agent", images, "10.0.17763", "");
    let new = |images: &[&str]| of("agent-2025", images, "10.0.26100", "");
    for (old, new, is_pair) in [
        (old(&[agent, proxy]), new(&[other_new, proxy_new]), false),
        (old(&[proxy, agent]), new(&[proxy_new, other_new]), false),
        (old(&[agent, proxy]), new(&[proxy_new]), false),
        (old(&[agent, proxy]), new(&[agent_new, proxy_new]), true),
        (old(&[agent]), new(&[agent_new, proxy_new]), true),
        (old(&[agent]), new(&[proxy_new, agent_new]), false),
        (
            old(&[agent]),
            of(
                "agent-2025",
                &[proxy_new, agent_new],
                "10.0.26100",
                "kubectl.kubernetes.io/default-container: c1",
            ),
            true,
        ),
    ] {
        let plan = plan(&[NODES, &old, &new].concat());
        let can_move = class_and_remedy(&plan, "agent").1;
        assert_eq!(can_move, is_pair, "{old}{new}");
    }
}

#[test]
fn a_daemonset_whose_pods_fail_on_the_new_nodes_cannot_move_because_another_one_exists() {
    let new = "nodeSelector: {node.kubernetes.io/windows-build: 10.0.26100},";
    let old = "nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348},";
    let twin = workload("DaemonSet", "agent-2025", "corp.example/agent:1-ltsc2025", new);
    for (selector, can_move) in [("", false), (old, true)] {
        let agent = workload("DaemonSet", "agent", "corp.example/agent:1-ltsc2019", selector);
        let plan = plan(&[NODES, &agent, &twin].concat());
        assert_eq!(class_and_remedy(&plan, "agent").1, can_move, "{selector:?}");
    }
}

#[test]
fn an_extended_resource_that_the_new_nodes_do_not_offer_keeps_a_workload_off() {
    let gpu = "microsoft.com/directx";
    let deployment = deployment("gpu", LTSC2022, "").replace(
        "resources: {requests: {",
        &format!("resources: {{limits: {{{gpu}: 1}}, requests: {{"),
    );
    let offering = |name: &str, amount: u8| {
        let node = NEW_NODE.replace("c-1", name);
        node.replace("pods: 30", &format!("pods: 30, {gpu}: {amount}"))
    };
    let silent = NEW_NODE.replace("allocatable: {cpu: 8, memory: 32Gi, pods: 30}, ", "");
    let tainted = offering("c-2", 1).replace(
        "status:",
        "spec: {taints: [{key: team, value: blue, effect: NoSchedule}]}, status:",
    );
    let pinned = (UpgradeClass::Pinned, false, Some(BlockedBy::Resource));
    let moves = (UpgradeClass::Unchanged, true, None);
    for (nodes, expected) in [
        ("", moves),
        (NEW_NODE, pinned),
        (&*offering("c-1", 1), moves),
        (&*[NEW_NODE, &offering("c-2", 2)].concat(), moves),
        (
            &*silent,
            (UpgradeClass::Unknown, false, Some(BlockedBy::Resource)),
        ),
        (
            &*[NEW_NODE, &tainted].concat(),
            (UpgradeClass::Blocked, false, Some(BlockedBy::Taint)),
        ),
    ] {
        let plan = plan(&[NODES, nodes, &deployment].concat());
        assert_eq!(class_and_remedy(&plan, "gpu"), expected, "{nodes}");
        let findings = &plan.workloads[0].findings;
        let names = findings
            .iter()
            .any(|it| it.message.contains(gpu) && it.path.ends_with("containers[app].resources"));
        assert_eq!(
            names,
            nodes.is_empty() || expected.2 == Some(BlockedBy::Resource),
            "{findings:?}"
        );
    }
    // How many nodes it takes: each offers two.
    let many = deployment.replace("spec: {template", "spec: {replicas: 5, template");
    let with_gpus = NODES.replace("pods: 30", &format!("pods: 30, {gpu}: 2"));
    let counted = plan(&[with_gpus, many].concat());
    assert_eq!(counted.nodes_needed.nodes, Some(3), "{:?}", counted.nodes_needed);
}

#[test]
fn a_pods_own_resources_count_in_capacity() {
    let of_pod = deployment("web", LTSC2022, "resources: {requests: {cpu: 3, memory: 1Gi}},")
        .replace("spec: {template", "spec: {replicas: 3, template");
    let plan = plan(&[NODES, &of_pod].concat());
    assert_eq!(
        (moving(&plan).cpu_millis, plan.nodes_needed.nodes),
        (9000, Some(3))
    );
}

#[test]
fn unknown_capacity_is_never_zero_and_no_pool_is_ready_by_it() {
    let silent = |nodes: &str| nodes.replace("allocatable: {cpu: 4, memory: 16Gi, pods: 30}, ", "");
    let silent_new = NEW_NODE.replace("allocatable: {cpu: 8, memory: 32Gi, pods: 30}, ", "");
    let web = deployment("web", LTSC2022, "");
    let pods = [web.clone(), pod("web-1", "Deployment web", "b-1", "")].concat();
    for (case, yaml, requests_known) in [
        ("only nodes", NODES.to_owned(), false),
        (
            "no node reports anything",
            [silent(NODES), pods.clone()].concat(),
            true,
        ),
        (
            "the new node reports nothing",
            [NODES, &silent_new, &pods].concat(),
            true,
        ),
        ("no pods, and a new node", [NODES, NEW_NODE, &web].concat(), true),
    ] {
        let plan = plan(&yaml);
        let win22 = plan.drain_order.iter().find(|it| it.pool == "win22").unwrap();
        assert_eq!((win22.new_nodes, win22.ready), (None, false), "{case}: {win22:?}");
        assert_eq!(win22.requests.is_some(), requests_known, "{case}");
        assert_eq!(plan.nodes_needed.nodes, None, "{case}");
        let target = plan.capacity.last().unwrap();
        assert_eq!(target.after, None, "{case}");
    }
    // Nothing is unknown if the pods, and what nodes offer, are in the input.
    let plan = plan(&[NODES, NEW_NODE, &pods].concat());
    assert!(
        plan.drain_order
            .iter()
            .all(|it| it.ready && it.new_nodes == Some(0)),
        "{plan:#?}"
    );
}

#[test]
fn the_placement_that_is_assumed_is_part_of_the_plan() {
    let plan = plan(&[NODES, &deployment("web", LTSC2022, "")].concat());
    assert_eq!(
        serde_json::to_value(&plan).unwrap()["placement"],
        serde_json::json!({"namespaces": {"Apply": 1}, "policies": ["built-in"]})
    );
}

#[test]
fn only_what_a_kubelet_makes_of_a_file_stays_on_its_node() {
    let node = NODES.replace("metadata: {name: b-1,", "metadata: {name: b-1, uid: u1,");
    let mirror = |name: &str, uid: &str| {
        let made = pod(name, "Node b-1", "b-1", "");
        let made = made.replace(
            "apiVersion: apps/v1, kind: Node, name: b-1,",
            &format!("apiVersion: v1, kind: Node, name: b-1, uid: {uid},"),
        );
        made.replace(
            "metadata: {",
            "metadata: {annotations: {kubernetes.io/config.mirror: hash}, ",
        )
    };
    for (uid, requests) in [("u1", 0), ("u2", 1)] {
        let yaml = [node.as_str(), NEW_NODE, &mirror("static", uid)].concat();
        let plan = plan(&yaml);
        assert_eq!(moving(&plan).pods, requests, "{uid}");
    }
    // Files may have nodes without a uid.
    let yaml = [NODES, NEW_NODE, &mirror("static", "u1")].concat();
    let plan = plan(&yaml);
    assert_eq!((moving(&plan).pods, plan.workloads.len()), (0, 0), "{plan:#?}");
}

#[test]
fn objects_that_several_inputs_contain_count_once() {
    let bare = "\n---\n{apiVersion: v1, kind: Pod, metadata: {name: alone, namespace: shop}, spec: {os: {name: windows}, nodeName: b-2, containers: [{name: app, image: app, resources: {requests: {cpu: 1}}}]}, status: {phase: Running}}";
    let unnamed = "\n---\n{apiVersion: v1, kind: Pod, metadata: {generateName: task-, namespace: shop}, spec: {os: {name: windows}, containers: [{name: app, image: app, resources: {requests: {cpu: 1}}}]}, status: {phase: Pending}}";
    let objects = [
        NODES,
        NEW_NODE,
        &deployment("web", LTSC2022, ""),
        &pod("web-1", "Deployment web", "b-1", ""),
        &pod("web-2", "Deployment web", "b-2", ""),
        bare,
    ]
    .concat();
    let (once, twice) = (plan(&objects), plan(&[&*objects, "\n---", &objects].concat()));
    let json = |plan: &UpgradePlan| serde_json::to_value(plan).unwrap();
    assert_eq!(json(&once), json(&twice));
    assert_eq!(once.workloads.len(), 2);
    // Objects that have no name yet are different ones.
    let two = plan(&[&*objects, unnamed, unnamed].concat());
    let pending = two.workloads.iter().map(|workload| workload.pending);
    assert_eq!(pending.sum::<u64>(), 2, "{:#?}", two.workloads);
}

#[test]
fn a_workload_that_waits_for_a_node_now_is_not_said_to_run() {
    let waiting = |name: &str| pod(name, "Deployment web", "b-1", "").replace("nodeName: b-1,", "");
    let state = |pods: &[String]| {
        let plan = plan(&[NODES, &deployment("web", LTSC2022, ""), &pods.concat()].concat());
        let web = plan.workloads.iter().find(|it| it.name == "web").unwrap().clone();
        (
            web.class,
            web.can_move,
            web.findings
                .iter()
                .any(|it| it.message.contains("none of its pods has a node now")),
        )
    };
    let runs = (UpgradeClass::Unchanged, true, false);
    assert_eq!(state(&[waiting("web-1")]), (UpgradeClass::Unknown, true, true));
    assert_eq!(state(&[]), runs);
    assert_eq!(
        state(&[waiting("web-1"), pod("web-2", "Deployment web", "b-1", "")]),
        runs
    );
    // It waits for the new nodes.
    let new = deployment("web", "mcr.microsoft.com/windows/servercore:ltsc2025", "");
    let plan = plan(
        &[
            NODES,
            &new,
            &waiting("web-1").replace(LTSC2022, "mcr.microsoft.com/windows/servercore:ltsc2025"),
        ]
        .concat(),
    );
    assert_eq!(class_and_remedy(&plan, "web").0, UpgradeClass::Unchanged);
}

#[test]
fn memory_limits_are_compared_with_what_the_nodes_of_the_new_build_have() {
    let limited = |yaml: String, limit: &str| {
        yaml.replace("requests:", &format!("limits: {{memory: {limit}}}, requests:"))
    };
    let note = "may together use more memory";
    let pods = |limit: &str| {
        let pods = (0..3).map(|at| limited(pod(&format!("web-{at}"), "ReplicaSet web-1", "b-1", ""), limit));
        pods.collect::<String>()
    };
    let of = |nodes: &str, limit: &str| {
        let web = limited(deployment("web", LTSC2022, ""), limit);
        plan(&[NODES, nodes, &web, &pods(limit)].concat())
    };
    let messages = |plan: &UpgradePlan| -> Vec<String> {
        let web = plan.workloads.iter().filter(|it| it.name == "web");
        let all = web.flat_map(|it| &it.findings);
        let all = all.filter(|it| it.message.contains("memory limits"));
        all.map(|it| it.message.clone()).collect()
    };
    let large = of(NEW_NODE, "40Gi");
    assert_eq!(
        messages(&large),
        [
            "its memory limits (40960Mi) are above what any node of Windows Server 2025 (10.0.26100) has that it may be scheduled \
          on (32768Mi): Windows has no OOM killer, so the node pages to its disk"
        ]
    );
    assert!(large.workloads.iter().any(|it| it.name == "web" && it.can_move));

    // Each fits, but not all of them together.
    let together = of(NEW_NODE, "12Gi");
    assert!(messages(&together).is_empty(), "{together:#?}");
    let notes: Vec<&String> = together.notes.iter().filter(|it| it.contains(note)).collect();
    assert!(
        notes.len() == 1
            && notes[0].contains("(36864Mi, the sum of their limits) than is free for them (32768Mi)"),
        "{notes:?}"
    );
    let fits = of(NEW_NODE, "8Gi");
    assert!(!fits.notes.iter().any(|it| it.contains(note)), "{:?}", fits.notes);
    // What a new node has is not known before it exists.
    assert!(messages(&of("", "40Gi")).is_empty());
}
