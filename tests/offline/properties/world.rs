//! Random clusters and policies.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::date;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use transom::model::cluster::facts::{Facts, NamespaceFacts, RuntimeClassFacts};
use transom::model::cluster::policy::{
    Action, BuildLabel, IgnoredFields, LinuxPods, PlacementField, PlacementMode, Policy,
};
use transom::model::nodes::node::{Host, Taint};
use transom::model::windows::build::Build;
use transom::model::windows::image_facts::{ImageConfig, ImageContents, ImageFacts, ImageVariant};
use transom::rules::catalogue;

/// The names of RuntimeClasses that pods use; the last is never known.
pub const RUNTIME_CLASSES: [&str; 4] = ["windows-2022", "windows-2019", "hyperv", "unknown"];

fn taint() -> impl Strategy<Value = Taint> {
    let evicting = Taint {
        effect: "NoExecute".into(),
        ..Taint::no_schedule("os", "windows")
    };
    select(vec![
        Taint::no_schedule("os", "windows"),
        Taint::no_schedule("os", "Windows"),
        Taint::no_schedule("node.kubernetes.io/os", "windows"),
        Taint::no_schedule("windows", "true"),
        Taint::no_schedule("tenant", "a"),
        Taint::no_schedule("node.kubernetes.io/unschedulable", ""),
        evicting,
    ])
}

fn hosts(name: &'static str, most: usize) -> impl Strategy<Value = Vec<Host>> {
    let build = weighted(0.9, select(vec![17763, 20348, 26100, 25398, 14393]));
    // Only pools have a template; that of half of them says the build.
    let template = weighted(0.7, any::<bool>()).prop_map(move |template| template.filter(|_| name == "pool"));
    let host = (build, vec(taint(), 0..=2), template).prop_map(move |(build, taints, template)| Host {
        name: name.to_owned(),
        may_be_at_zero: name == "pool",
        build: build.map(Build::new),
        taints,
        containerd: Some((1, 7)),
        labels: (template.into_iter())
            .flat_map(|has_build| {
                let of_build = build.filter(|_| has_build).map(|build| {
                    (
                        "node.kubernetes.io/windows-build".to_owned(),
                        Build::new(build).to_string(),
                    )
                });
                [Some(("disk".to_owned(), "ssd".to_owned())), of_build]
            })
            .flatten()
            // Every kubelet writes it.
            .chain(
                ["kubernetes.io/os", "beta.kubernetes.io/os"]
                    .map(|key| (key.to_owned(), "windows".to_owned())),
            )
            .filter(|(key, _)| name == "node" || !key.ends_with("kubernetes.io/os"))
            .collect(),
        ..Host::default()
    });
    vec(host, 0..=most)
}

fn runtime_class() -> impl Strategy<Value = RuntimeClassFacts> {
    let os = weighted(
        0.6,
        select(vec!["windows", "windows", "windows", "Windows", "linux"]),
    );
    let build = weighted(0.3, select(vec!["10.0.20348", "10.0.17763"]));
    let beta = weighted(0.1, Just("windows"));
    let handler = select(vec!["runhcs-wcow-process", "runhcs-wcow-hypervisor", ""]);
    (os, build, beta, handler, prop::bool::weighted(0.1)).prop_map(
        |(os, build, beta, handler, has_overhead)| {
            let entries = [
                ("kubernetes.io/os", os),
                ("node.kubernetes.io/windows-build", build),
                ("beta.kubernetes.io/os", beta),
            ];
            RuntimeClassFacts {
                handler: handler.to_owned(),
                node_selector: (entries.into_iter())
                    .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
                    .collect(),
                tolerations: Vec::new(),
                has_overhead,
            }
        },
    )
}

fn whitelist() -> impl Strategy<Value = String> {
    select(vec![
        "[]",
        r#"[{"operator": "Exists"}]"#,
        r#"[{"key": "os", "operator": "Exists"}]"#,
        r#"[{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]"#,
        r#"[{"key": "gpu", "operator": "Exists"}]"#,
        "no list at all",
    ])
    .prop_map(str::to_owned)
}

/// The images of the pods about which a registry may report something.
const KNOWN_IMAGES: [&str; 4] = [
    "registry.example.com/known:2",
    "mcr.microsoft.com/windows/servercore:ltsc2019",
    "registry.example.com/app:1.0-windowsservercore-ltsc2022",
    "mcr.microsoft.com/dotnet/runtime:8.0",
];

/// What a registry reports: some platforms, each with or without a configuration, or that it has no such image.
fn image_facts() -> impl Strategy<Value = ImageFacts> {
    let platforms = vec![
        ("windows", "10.0.17763.6532"),
        ("windows", "10.0.17763.4851"),
        ("windows", "10.0.20348.2700"),
        ("windows", "10.0.26100.4061"),
        ("windows", "10.0.19042.1889"),
        ("windows", ""),
        ("linux", ""),
        ("freebsd", ""),
    ];
    let config = (
        select(vec!["", "ContainerAdministrator", "ContainerUser"]),
        weighted(0.2, select(vec!["C:\\", "c:\\data", "D:"])),
    )
        .prop_map(|(user, volume)| ImageConfig {
            user: user.to_owned(),
            volumes: volume.into_iter().map(str::to_owned).collect(),
            command: Vec::new(),
            base: None,
        });
    let architecture = select(vec!["amd64", "amd64", "amd64", "arm64", ""]);
    let variant = (select(platforms), architecture, weighted(0.3, config)).prop_map(
        |((os, version), architecture, config)| ImageVariant {
            config,
            ..ImageVariant::new(os, architecture, version)
        },
    );
    let found = weighted(0.9, vec(variant, 0..=4)).prop_map(|variants| {
        variants.map(|variants| ImageContents {
            digest: "sha256:0123456789abcdef".to_owned(),
            variants,
        })
    });
    found.prop_map(|found| ImageFacts {
        looked_up: Timestamp::UNIX_EPOCH,
        found,
    })
}

/// A cluster of a release among these.
pub fn cluster(kubernetes: impl Strategy<Value = u32>) -> impl Strategy<Value = Facts> {
    let classes = RUNTIME_CLASSES[..3]
        .iter()
        .map(|_| weighted(0.6, runtime_class()))
        .collect::<Vec<_>>();
    let images = vec(weighted(0.3, image_facts()), KNOWN_IMAGES.len());
    (
        kubernetes,
        hosts("node", 4),
        hosts("pool", 1),
        classes,
        weighted(0.3, whitelist()),
        images,
    )
        .prop_map(
            |(kubernetes, hosts, pools, classes, tolerations_whitelist, images)| {
                let mut facts = Facts::new(kubernetes, date(2026, 1, 1));
                facts.pools = pools;
                for host in hosts {
                    facts.add_host(host);
                }
                for (name, class) in RUNTIME_CLASSES.into_iter().zip(classes) {
                    facts
                        .runtime_classes
                        .extend(class.map(|class| (name.to_owned(), class)));
                }
                std::sync::Arc::make_mut(&mut facts.namespaces).insert(
                    "default".to_owned(),
                    NamespaceFacts {
                        tolerations_whitelist,
                        ..NamespaceFacts::default()
                    },
                );
                let known = KNOWN_IMAGES.into_iter().zip(images);
                facts
                    .images
                    .extend(known.filter_map(|(name, image)| Some((name.to_owned(), Arc::new(image?)))));
                facts
            },
        )
}

/// A cluster of today, now and then an older one.
pub fn any_cluster() -> impl Strategy<Value = Facts> {
    cluster(prop_oneof![4 => Just(Facts::KUBERNETES), 1 => 20..=37u32])
}

fn actions() -> impl Strategy<Value = BTreeMap<&'static str, Action>> {
    let rules: Vec<&'static str> = catalogue().map(|rule| rule.id).collect();
    let action = select(vec![Action::Disabled, Action::Audit, Action::Warn, Action::Deny]);
    prop::collection::btree_map(select(rules), action, 0..=3)
}

fn placed() -> impl Strategy<Value = Vec<PlacementField>> {
    prop::collection::vec(prop::bool::weighted(0.9), PlacementField::ALL.len()).prop_map(|on| {
        let fields = PlacementField::ALL.into_iter().zip(on);
        fields.filter_map(|(field, on)| on.then_some(field)).collect()
    })
}

/// A policy; it leaves Linux pods alone.
pub fn any_policy() -> impl Strategy<Value = Policy> {
    let switches = (
        select(vec![Action::Disabled, Action::Audit, Action::Warn, Action::Deny]),
        select(vec![
            PlacementMode::Apply,
            PlacementMode::Apply,
            PlacementMode::Apply,
            PlacementMode::Audit,
            PlacementMode::Disabled,
        ]),
        select(IgnoredFields::ALL.to_vec()),
        placed(),
        select(BuildLabel::ALL.to_vec()),
    );
    let class = weighted(
        0.5,
        (
            select(vec!["ltsc2022", "ltsc2019"]),
            select(RUNTIME_CLASSES.to_vec()),
        ),
    );
    (switches, actions(), vec(taint(), 0..=2), class).prop_map(
        |((validation, placement, ignored_fields, placed, build_label), actions, taints, class)| Policy {
            name: "random".to_owned(),
            validation,
            placement,
            ignored_fields,
            placed,
            build_label,
            actions,
            taints: taints.into_iter().filter(Taint::marks_windows).collect(),
            runtime_classes: class
                .into_iter()
                .map(|(release, name)| (release.to_owned(), name.to_owned()))
                .collect(),
            ..Policy::standalone()
        },
    )
}

/// A policy that applies everything.
pub fn full_policy() -> impl Strategy<Value = Policy> {
    any_policy().prop_map(|policy| Policy {
        validation: Action::Deny,
        placement: PlacementMode::Apply,
        ignored_fields: IgnoredFields::Remove,
        placed: PlacementField::ALL.to_vec(),
        actions: BTreeMap::new(),
        ..policy
    })
}

/// The same policy with any setting for Linux pods.
pub fn guarded(policy: impl Strategy<Value = Policy>) -> impl Strategy<Value = Policy> {
    let linux_pods = select(vec![
        LinuxPods::Disabled,
        LinuxPods::Disabled,
        LinuxPods::Warn,
        LinuxPods::Apply,
    ]);
    (policy, linux_pods).prop_map(|(policy, linux_pods)| Policy { linux_pods, ..policy })
}
