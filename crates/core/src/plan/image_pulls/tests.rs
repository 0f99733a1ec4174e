//! Tests with plain values: which images, in which order, with which bytes; and on which new nodes workloads land.

use jiff::Timestamp;

use super::*;
use crate::model::nodes::node::Host;
use crate::model::windows::build::Build;
use crate::plan::tests::{self as plan_tests, LTSC2019, LTSC2022, NODES, deployment, workload};

const LTSC2022_VERSION: &str = "10.0.20348.2700";

fn node(build: u32) -> NewNode {
    NewNode {
        pool: "win".to_owned(),
        label: Some(("agentpool", "win".to_owned())),
        nodes: 0,
        hosts: vec![Host {
            build: Some(Build::new(build)),
            may_be_at_zero: true,
            ..Host::default()
        }],
    }
}

fn landing<'w>(name: &'w str, replicas: Option<u64>, images: &[&'w str]) -> LandingWorkload<'w> {
    LandingWorkload {
        name: name.to_owned(),
        namespace: name.split([' ', '/']).nth(1).unwrap(),
        replicas,
        isolation: ContainerIsolation::Process,
        images: images.to_vec(),
    }
}

fn layers(sizes: &[(&str, u64)]) -> Vec<ImageLayer> {
    let layer = |(digest, size): &(&str, u64)| ImageLayer {
        digest: (*digest).to_owned(),
        size: *size,
    };
    sizes.iter().map(layer).collect()
}

fn variant(version: &str, sizes: &[(&str, u64)]) -> ImageVariant {
    ImageVariant {
        digest: format!("sha256:of-{version}"),
        size: (!sizes.is_empty()).then(|| sizes.iter().map(|(_, size)| size).sum()),
        layers: layers(sizes),
        ..ImageVariant::new("windows", "amd64", version)
    }
}

fn facts(variants: Vec<ImageVariant>) -> ImageFacts {
    let mut facts = ImageFacts::of(variants, Timestamp::UNIX_EPOCH);
    if let Some(found) = &mut facts.found {
        "sha256:index".clone_into(&mut found.digest);
    }
    facts
}

fn pulls(build: u32, workloads: &[LandingWorkload<'_>], images: &[(&str, ImageFacts)]) -> PoolPulls {
    let images = images.iter();
    let images = images.map(|(image, facts)| ((*image).to_owned(), Arc::new(facts.clone())));
    let known = PullKnowledge {
        images: &images.collect(),
        unanswered: None,
    };
    pulls_of(&node(build), workloads, &known)
}

fn names(pulls: &PoolPulls) -> Vec<&str> {
    pulls.images.iter().map(|pull| pull.image.as_str()).collect()
}

#[test]
fn images_of_daemonsets_come_first_and_then_those_with_the_most_replicas() {
    let workloads = [
        landing("Deployment shop/few", Some(2), &["few"]),
        landing("Deployment shop/many", Some(9), &["many", "sidecar"]),
        landing("DaemonSet ops/logs", None, &["logs"]),
        landing(
            "Deployment shop/more",
            Some(3),
            &["sidecar", "also-few", "also-few"],
        ),
    ];
    let pulls = pulls(20348, &workloads, &[]);
    assert_eq!(names(&pulls), ["logs", "sidecar", "many", "also-few", "few"]);
    let sidecar = &pulls.images[1];
    assert_eq!(
        (sidecar.replicas, sidecar.workloads.as_slice()),
        (
            12,
            &[
                "Deployment shop/many".to_owned(),
                "Deployment shop/more".to_owned()
            ][..]
        )
    );
    assert_eq!(
        (&*pulls.images[0].namespace, &*sidecar.namespace),
        ("ops", "shop")
    );
    assert_eq!(
        pulls.images[3].replicas, 3,
        "an image in two containers counts once"
    );
}

#[test]
fn a_layer_that_images_share_counts_once() {
    let base = ("sha256:base", 1_000);
    let images = [
        (
            "a",
            facts(vec![variant(LTSC2022_VERSION, &[base, ("sha256:a", 10)])]),
        ),
        (
            "b",
            facts(vec![variant(LTSC2022_VERSION, &[base, ("sha256:b", 5)])]),
        ),
    ];
    let workloads = [
        landing("Deployment shop/a", Some(2), &["a"]),
        landing("Deployment shop/b", Some(1), &["b"]),
    ];
    let pulls = pulls(20348, &workloads, &images);
    let sizes: Vec<_> = pulls.images.iter().map(|pull| (pull.size, pull.shared)).collect();
    assert_eq!(sizes, [(Some(1_010), Some(0)), (Some(1_005), Some(1_000))]);
    let total = PullTotal {
        images: 2,
        bytes: 1_015,
        unknown: 0,
    };
    assert_eq!(pulls.total, total);
}

#[test]
fn an_unknown_size_is_unknown_and_never_zero() {
    let missing = ImageFacts {
        looked_up: Timestamp::UNIX_EPOCH,
        found: None,
    };
    let without_layers = ImageVariant {
        size: Some(7),
        ..variant(LTSC2022_VERSION, &[])
    };
    let images = [
        ("missing", missing),
        ("other", facts(vec![variant("10.0.17763.1", &[("sha256:x", 3)])])),
        ("unread", facts(vec![variant(LTSC2022_VERSION, &[])])),
        ("whole", facts(vec![without_layers])),
    ];
    let all = ["missing", "other", "silent", "unread", "whole"];
    let pulls = pulls(20348, &[landing("Deployment shop/a", Some(1), &all)], &images);
    let unknown: Vec<_> = pulls.images.iter().map(|pull| pull.unknown.as_deref()).collect();
    assert_eq!(
        unknown,
        [
            Some("the registry has no such image"),
            Some("it has no variant for this build"),
            Some("its registry was not asked"),
            Some("the manifest of its variant for this build was not read"),
            None
        ]
    );
    assert!(pulls.images[..4].iter().all(|pull| pull.size.is_none()));
    // Its size is known, and what it shares is not: it counts as a whole.
    assert_eq!((pulls.images[4].size, pulls.images[4].shared), (Some(7), None));
    let total = PullTotal {
        images: 5,
        bytes: 7,
        unknown: 4,
    };
    assert_eq!(pulls.total, total);
}

#[test]
fn a_node_pulls_the_variant_for_its_build() {
    let both = facts(vec![
        variant("10.0.17763.6293", &[("sha256:old", 3)]),
        variant(LTSC2022_VERSION, &[("sha256:new", 4)]),
    ]);
    let of = |build: u32| {
        let workloads = [landing("Deployment shop/a", Some(1), &["a"])];
        let pulls = pulls(build, &workloads, &[("a", both.clone())]);
        (pulls.images[0].digest.clone(), pulls.total.bytes)
    };
    assert_eq!(of(17763), (Some("sha256:of-10.0.17763.6293".to_owned()), 3));
    assert_eq!(of(20348), (Some(format!("sha256:of-{LTSC2022_VERSION}")), 4));
    assert_eq!(of(26100), (Some(format!("sha256:of-{LTSC2022_VERSION}")), 4));
}

/// The images of each pool, for objects in YAML.
fn by_pool(yaml: &str, change: PlannedChange) -> Vec<(String, Vec<String>)> {
    with_pools(yaml, &[], change)
}

fn with_pools(yaml: &str, pools: &[Host], change: PlannedChange) -> Vec<(String, Vec<String>)> {
    let pulls = plan_tests::with_planner(yaml, pools, change, |planner| planner.image_pulls().unwrap());
    let pool = |pulls: PoolPulls| {
        let images = names(&pulls).into_iter().map(str::to_owned).collect();
        (pulls.pool, images)
    };
    pulls.into_iter().map(pool).collect()
}

fn each(to: Option<u32>, pools: &[&str]) -> PlannedChange {
    PlannedChange::MoreNodes {
        to: to.map(Build::new),
        pools: pools.iter().map(|pool| (*pool).to_owned()).collect(),
    }
}

fn expected(pools: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let owned = |images: &[&str]| images.iter().map(|image| (*image).to_owned()).collect();
    let pool = |(pool, images): &(&str, &[&str])| ((*pool).to_owned(), owned(images));
    pools.iter().map(pool).collect()
}

#[test]
fn workloads_land_on_the_pools_that_their_templates_allow_and_that_run_their_images() {
    let yaml = [
        NODES,
        &deployment("old", LTSC2019, "nodeSelector: {agentpool: win19},"),
        &deployment("new", LTSC2022, ""),
        &deployment("on-ssd", "corp.example/ssd:1", "nodeSelector: {disk: ssd},"),
        &deployment(
            "on-one",
            "corp.example/one:1",
            "nodeSelector: {kubernetes.io/hostname: b-1},",
        ),
        &workload("DaemonSet", "logs", "corp.example/logs:1", ""),
        // It pulls images for its node, and for no other one.
        "\n---\n{apiVersion: v1, kind: Pod, metadata: {name: puller, namespace: transom-system, ownerReferences: [{apiVersion: v1, \
         kind: Node, name: a-1, uid: u}]}, spec: {nodeName: a-1, os: {name: windows}, nodeSelector: {kubernetes.io/os: windows}, \
         containers: [{name: a, image: 'corp.example/puller:1'}]}}",
        // Since .NET 8 this name is for Linux only.
        &deployment("linux", "mcr.microsoft.com/dotnet/runtime:8.0", ""),
        &deployment("none", "corp.example/none:1", "")
            .replace("spec: {template", "spec: {replicas: 0, template"),
    ]
    .concat();
    let today: [(&str, &[&str]); 2] = [
        ("win19", &["corp.example/logs:1", LTSC2019]),
        ("win22", &["corp.example/logs:1", "corp.example/ssd:1", LTSC2022]),
    ];
    assert_eq!(by_pool(&yaml, each(None, &[])), expected(&today));
    assert_eq!(by_pool(&yaml, each(None, &["win22"])), expected(&today[1..]));
    assert_eq!(by_pool(&yaml, each(None, &["ltsc2019"])), expected(&today[..1]));
    // With another build, the image for 2019 does not run and that for 2022 does.
    let upgraded: [(&str, &[&str]); 2] = [
        ("win19", &["corp.example/logs:1", LTSC2022]),
        ("win22", &["corp.example/logs:1", "corp.example/ssd:1", LTSC2022]),
    ];
    assert_eq!(by_pool(&yaml, each(Some(26100), &[])), expected(&upgraded));
    let error = plan_tests::with_planner(&yaml, &[], each(None, &["win21"]), |planner| {
        planner.image_pulls().unwrap_err().to_string()
    });
    assert!(
        error.contains("win21") && error.contains("win19, win22"),
        "{error}"
    );
}

#[test]
fn a_pool_at_zero_nodes_has_what_its_nodes_would_pull() {
    let mut pool = Host {
        name: "pool-25".to_owned(),
        build: Some(Build::new(26100)),
        may_be_at_zero: true,
        ..Host::default()
    };
    pool.promise_label("agentpool", "win25".to_owned());
    let yaml = [
        NODES,
        &deployment("gpu", "corp.example/gpu:1", "nodeSelector: {agentpool: win25},"),
    ]
    .concat();
    let pools = with_pools(&yaml, &[pool], each(None, &["win25"]));
    assert_eq!(pools, expected(&[("pool-25", &["corp.example/gpu:1"])]));
}

#[test]
fn a_plan_counts_what_a_node_of_the_new_build_pulls_even_before_there_is_one() {
    let yaml = [
        NODES,
        &deployment("new", LTSC2022, ""),
        &deployment("old", LTSC2019, ""),
    ]
    .concat();
    let plan = plan_tests::plan(&yaml);
    let [node] = plan.new_nodes.as_slice() else {
        panic!("{:?}", plan.new_nodes)
    };
    assert_eq!(node.pool, "a new pool");
    let total = PullTotal {
        images: 1,
        bytes: 0,
        unknown: 1,
    };
    assert_eq!(node.pulls, total);
}

/// A custom resource with a pod of this image at a path below its spec.
fn custom(api_version: &str, kind: &str, name: &str, path: &[&str], image: &str) -> String {
    let mut spec = format!(
        "{{template: {{spec: {{nodeSelector: {{kubernetes.io/os: windows}}, containers: [{{name: app, image: '{image}'}}]}}}}}}"
    );
    for field in path.iter().rev() {
        spec = format!("{{{field}: {spec}}}");
    }
    format!(
        "\n---\n{{apiVersion: {api_version}, kind: {kind}, metadata: {{name: {name}, namespace: shop}}, spec: {spec}}}"
    )
}

#[test]
fn custom_resources_without_pods_are_pulled_for_and_do_not_change_an_upgrade() {
    let flow = |kind: &str, path: &str, spec: &str| {
        format!(
            "\n---\n{{apiVersion: argoproj.io/v1alpha1, kind: {kind}, metadata: {{name: flow, namespace: shop}}, spec: {path}{spec}}}"
        )
    };
    let steps = "{templates: [{name: a, nodeSelector: {kubernetes.io/os: windows}, container: {image: 'flow-a:1'}}, \
                 {name: b, nodeSelector: {kubernetes.io/os: windows}, container: {image: 'flow-b:1'}}, \
                 {name: c, nodeSelector: {kubernetes.io/os: linux}, container: {image: 'flow-c:1'}}]}";
    let library =
        "{templates: [{name: a, container: {image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}}]}";
    let owned = custom("agones.dev/v1", "GameServerSet", "set", &["template", "spec"], "game:1").replace(
        "name: set,",
        "name: set, ownerReferences: [{apiVersion: agones.dev/v1, kind: Fleet, name: fleet, controller: true}],",
    );
    let objects = [
        custom(
            "keda.sh/v1alpha1",
            "ScaledJob",
            "jobs",
            &["jobTargetRef"],
            "scaled:1",
        ),
        custom("apps.kruise.io/v1alpha1", "CloneSet", "clones", &[], "clone:1"),
        custom("apps.kruise.io/v1alpha1", "DaemonSet", "agent", &[], "agent:1"),
        flow("CronWorkflow", "{workflowSpec: ", &format!("{steps}}}")),
        // Nothing runs its templates, which select no nodes.
        flow("WorkflowTemplate", "", library),
        owned,
        custom("agones.dev/v1", "Fleet", "fleet", &["template", "spec"], "game:1").replace(
            "spec: {template: {spec: {template",
            "spec: {replicas: 2, template: {spec: {template",
        ),
    ];
    let yaml = [NODES, &objects.concat()].concat();
    let of_2022 = by_pool(&yaml, each(None, &["win22"]));
    // Without pods, schedules count as one.
    let images = ["agent:1", "game:1", "clone:1", "flow-a:1", "flow-b:1", "scaled:1"];
    assert_eq!(of_2022, expected(&[("win22", &images)]));
    assert_eq!(
        plan_tests::plan(&yaml).workloads.len(),
        0,
        "what their controllers create is upgraded"
    );
}
