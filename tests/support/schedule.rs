//! Random clusters and pods, and a model of where the scheduler could put the pods: it uses the program's own
//! matching of selectors and taints, plus extended resources and topology spread. Another test compares the
//! model with a real scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::date;
use proptest::collection::{SizeRange, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use transom::engine::scheduling::Constraints;
use transom::model::cluster::facts::{Facts, RuntimeClassFacts};
use transom::model::cluster::policy::Policy;
use transom::model::nodes::extended_resources::OfferedResources;
use transom::model::nodes::node::{BUILD_LABEL, Host, NodeSigns as _, PRIVATE_IPV4_RESOURCE, Taint};
use transom::model::nodes::node_affinity::Match;
use transom::model::objects::pod::PodSpec;
use transom::model::objects::resources::Node;
use transom::model::windows::build::{Build, Compatibility, ContainerIsolation, RELEASES, compatibility};
use transom::model::windows::image::{ImageRef, build_hint};
use transom::model::windows::image_facts::{ImageFacts, ImageVariant};

pub const NOW: &str = "2026-01-01T12:00:00Z";

/// Nodes, RuntimeClasses, pools and a policy.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub nodes: Vec<Value>,
    pub classes: BTreeMap<String, RuntimeClassFacts>,
    pub policy: Policy,
    /// Pools that a node policy declares.
    pub declared: Vec<Host>,
    /// Pools that were seen before and have no nodes now.
    pub remembered: Vec<Host>,
    /// What registries report about images; of the others only the names are known.
    pub images: BTreeMap<String, ImageFacts>,
}

fn taints() -> impl Strategy<Value = Vec<Value>> {
    let taint = |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
    let all = vec![
        taint("os", "windows", "NoSchedule"),
        taint("node.kubernetes.io/os", "windows", "NoSchedule"),
        taint("team", "blue", "NoSchedule"),
        taint("os", "windows", "NoExecute"),
        taint("speed", "slow", "PreferNoSchedule"),
        taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
    ];
    prop_oneof![
        4 => Just(Vec::new()),
        3 => Just(vec![all[0].clone()]),
        2 => Just(vec![all[1].clone()]),
        1 => subsequence(all, 0..=2),
    ]
}

/// Groups of Windows nodes, with one or two nodes each and at most `most` in all, and a Linux node. Properties that a
/// pool shares are generated once.
fn nodes(groups: impl Into<SizeRange>, most: usize) -> impl Strategy<Value = Vec<Value>> {
    let windows = (
        select(vec![17763_u32, 20348, 20348, 26100, 14393]),
        // The build label: right, absent, stale.
        prop_oneof![5 => Just(0_u8), 2 => Just(1), 1 => Just(2)],
        taints(),
        weighted(0.8, select(vec!["a", "b", "c"])),
        weighted(0.5, select(vec!["nvme", "ssd"])),
        // Whether it reports addresses, how many GPUs, and how long it has been Ready.
        (
            weighted(0.2, Just(())),
            weighted(0.3, select(vec!["0", "1", "2"])),
            select(vec!["11:00", "11:58"]),
        ),
        1..=2_usize,
    );
    (vec(windows, groups), taints(), weighted(0.9, select(vec!["a", "b", "c"]))).prop_map(move |(pools, of_linux, zone)| {
        let mut nodes = Vec::new();
        for (pool, (build, label, taints, zone, disk, (offers, gpus, since), count)) in pools.into_iter().enumerate() {
            for _ in 0..count {
                let name = format!("node-{}", nodes.len());
                let mut labels = json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": name, "agentpool": format!("pool-{pool}")});
                match label {
                    0 => labels[BUILD_LABEL] = Build::new(build).to_string().into(),
                    1 => {}
                    _ => labels[BUILD_LABEL] = "10.0.17763".into(),
                }
                if let Some(zone) = zone {
                    labels["topology.kubernetes.io/zone"] = zone.into();
                }
                if let Some(disk) = disk {
                    labels["disk"] = disk.into();
                }
                let mut allocatable = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
                if offers.is_some() {
                    allocatable[PRIVATE_IPV4_RESOURCE] = "40".into();
                }
                if let Some(gpus) = gpus {
                    allocatable[GPU] = gpus.into();
                }
                nodes.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                    "spec": {"taints": taints},
                    "status": {"capacity": allocatable, "allocatable": allocatable,
                        "conditions": [{"type": "Ready", "status": "True",
                            "lastTransitionTime": format!("2026-01-01T{since}:00Z")}],
                        "nodeInfo": {"operatingSystem": "windows", "kernelVersion": format!("10.0.{build}.1")}}}));
            }
        }
        nodes.truncate(most);
        let name = format!("node-{}", nodes.len());
        let mut labels = json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name});
        if let Some(zone) = zone {
            labels["topology.kubernetes.io/zone"] = zone.into();
        }
        nodes.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": of_linux},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "nodeInfo": {"operatingSystem": "linux", "kernelVersion": "6.1.0"}}}));
        nodes
    })
}

fn runtime_class() -> impl Strategy<Value = RuntimeClassFacts> {
    let selector = prop_oneof![
        Just(BTreeMap::from([("kubernetes.io/os", "windows")])),
        Just(BTreeMap::from([
            ("kubernetes.io/os", "windows"),
            (BUILD_LABEL, "10.0.20348")
        ])),
        Just(BTreeMap::from([("disk", "nvme")])),
        Just(BTreeMap::new()),
    ];
    let tolerations = prop_oneof![
        3 => Just(json!([])),
        1 => Just(json!([{"key": "os", "operator": "Exists"}])),
    ];
    let handler = select(vec!["runhcs-wcow-process", "runhcs-wcow-hypervisor"]);
    (selector, tolerations, handler).prop_map(|(selector, tolerations, handler)| RuntimeClassFacts {
        handler: handler.to_owned(),
        node_selector: (selector.into_iter())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        tolerations: serde_json::from_str::<Vec<transom::model::objects::pod::Toleration<'_>>>(
            &tolerations.to_string(),
        )
        .expect("tolerations")
        .iter()
        .map(transom::model::objects::pod::Toleration::detached)
        .collect(),
        has_overhead: false,
    })
}

fn pool() -> impl Strategy<Value = Host> {
    (
        select(vec![17763_u32, 20348, 26100]),
        any::<bool>(),
        any::<bool>(),
        weighted(0.5, Just("nvme")),
    )
        .prop_map(|(build, tainted, offers, disk)| Host {
            name: "pool".to_owned(),
            build: Some(Build::new(build)),
            taints: tainted
                .then(|| Taint::no_schedule("os", "windows"))
                .into_iter()
                .collect(),
            labels: disk
                .map(|disk| ("disk".to_owned(), disk.to_owned()))
                .into_iter()
                .collect(),
            offered: OfferedResources::of_pool(offers.then_some(PRIVATE_IPV4_RESOURCE)),
            may_be_at_zero: true,
            ..Host::default()
        })
}

/// A cluster with a policy that applies placement.
pub fn any_cluster() -> impl Strategy<Value = Cluster> {
    cluster_of(1..=4, 8)
}

/// The same with 20 nodes.
pub fn cluster_of_20_nodes() -> impl Strategy<Value = Cluster> {
    cluster_of(19, 19)
}

fn cluster_of(groups: impl Into<SizeRange>, most: usize) -> impl Strategy<Value = Cluster> {
    (
        nodes(groups, most),
        weighted(0.4, runtime_class()),
        weighted(0.3, pool()),
        weighted(0.3, pool()),
        any::<bool>(),
        registries(),
    )
        .prop_map(|(nodes, class, declared, remembered, maps, images)| {
            let mut policy = Policy::standalone();
            if maps {
                policy
                    .runtime_classes
                    .extend([("ltsc2022".to_owned(), "class".to_owned())]);
            }
            Cluster {
                nodes,
                classes: class
                    .into_iter()
                    .map(|class| ("class".to_owned(), class))
                    .collect(),
                policy,
                declared: declared.into_iter().collect(),
                remembered: remembered.into_iter().collect(),
                images,
            }
        })
}

/// An extended resource of Windows nodes.
const GPU: &str = "microsoft.com/directx";

/// The images of the pods.
const IMAGES: [&str; 6] = [
    "mcr.microsoft.com/windows/servercore:ltsc2019",
    "mcr.microsoft.com/windows/servercore:ltsc2022",
    "mcr.microsoft.com/windows/nanoserver:ltsc2025",
    "corp.example/mssql:windows-2016",
    "corp.example/app:1.0-ltsc2022",
    "corp.example/app:1.0",
];

/// What a registry reports about an image: an index of several builds, entries without a version, both systems, one
/// system only, another architecture, no platform, or no such image.
fn image_facts() -> impl Strategy<Value = ImageFacts> {
    let variant = prop_oneof![
        6 => select(vec!["10.0.17763.6532", "10.0.20348.2700", "10.0.26100.4061", "10.0.14393.1", "10.0.19042.1"])
            .prop_map(|version| ImageVariant::new("windows", "amd64", version)),
        1 => Just(ImageVariant::new("windows", "amd64", "")),
        1 => Just(ImageVariant::new("windows", "arm64", "10.0.26100.1")),
        2 => Just(ImageVariant::new("linux", "amd64", "")),
    ];
    let looked_up: Timestamp = NOW.parse().expect("a time");
    prop_oneof![
        8 => vec(variant, 0..=4).prop_map(move |variants| ImageFacts::of(variants, looked_up)),
        1 => Just(ImageFacts { looked_up, found: None }),
    ]
}

/// What registries report about some of the images.
fn registries() -> impl Strategy<Value = BTreeMap<String, ImageFacts>> {
    vec(weighted(0.4, image_facts()), IMAGES.len()).prop_map(|facts| {
        let named = IMAGES.iter().zip(facts);
        named
            .filter_map(|(name, facts)| Some(((*name).to_owned(), facts?)))
            .collect()
    })
}

fn requirement() -> impl Strategy<Value = Value> {
    let label = |key: &'static str, values: &[&'static str]| {
        let values: Vec<&str> = values.to_vec();
        (
            select(vec!["In", "In", "NotIn", "Exists", "DoesNotExist"]),
            subsequence(values.clone(), 1..=values.len()),
        )
            .prop_map(move |(operator, values)| match operator {
                "In" | "NotIn" => json!({"key": key, "operator": operator, "values": values}),
                _ => json!({"key": key, "operator": operator}),
            })
    };
    prop_oneof![
        2 => label("topology.kubernetes.io/zone", &["a", "b"]),
        2 => label("disk", &["nvme", "ssd"]),
        2 => label(BUILD_LABEL, &["10.0.20348", "10.0.17763", "10.0.14393", "10.0.26100"]),
        1 => label("kubernetes.io/os", &["windows", "linux"]),
        1 => Just(json!({"key": "disk", "operator": "Gt", "values": ["1"]})),
    ]
}

fn term() -> impl Strategy<Value = Value> {
    let named = (
        select(vec!["In", "NotIn"]),
        select(vec!["node-0", "node-1", "node-2"]),
    )
        .prop_map(|(operator, name)| json!({"key": "metadata.name", "operator": operator, "values": [name]}));
    (vec(requirement(), 0..=2), weighted(0.2, named)).prop_map(|(expressions, field)| {
        let mut term = json!({});
        if !expressions.is_empty() {
            term["matchExpressions"] = expressions.into();
        }
        if let Some(field) = field {
            term["matchFields"] = json!([field]);
        }
        term
    })
}

fn spread() -> impl Strategy<Value = Value> {
    (
        1..=2_u32,
        weighted(0.3, 1..=3_u32),
        weighted(0.3, select(vec!["Honor", "Ignore"])),
        weighted(0.3, select(vec!["Honor", "Ignore"])),
        select(vec!["topology.kubernetes.io/zone", "kubernetes.io/hostname"]),
    )
        .prop_map(|(skew, least, affinity, taints, key)| {
            let mut constraint = json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "x"}}});
            if let Some(least) = least {
                constraint["minDomains"] = least.into();
            }
            if let Some(affinity) = affinity {
                constraint["nodeAffinityPolicy"] = affinity.into();
            }
            if let Some(taints) = taints {
                constraint["nodeTaintsPolicy"] = taints.into();
            }
            constraint
        })
}

/// A pod, mostly with evidence of Windows.
pub fn any_pod() -> impl Strategy<Value = Value> {
    let image = (select(IMAGES.to_vec()), weighted(0.3, select(IMAGES.to_vec())));
    let selector = prop_oneof![
        4 => Just(json!({"kubernetes.io/os": "windows"})),
        2 => Just(json!({})),
        1 => Just(json!({"kubernetes.io/os": "windows", "disk": "nvme"})),
        1 => Just(json!({"kubernetes.io/os": "windows", "topology.kubernetes.io/zone": "a"})),
        1 => Just(json!({"kubernetes.io/os": "windows", "kubernetes.io/hostname": "node-0"})),
        1 => Just(json!({"kubernetes.io/os": "windows", "agentpool": "pool-0"})),
        1 => Just(json!({"kubernetes.io/os": "windows", BUILD_LABEL: "10.0.20348"})),
    ];
    let tolerations = prop_oneof![
        4 => Just(json!([])),
        1 => Just(json!([{"operator": "Exists"}])),
        1 => Just(json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}])),
        1 => Just(json!([{"key": "team", "operator": "Exists"}])),
    ];
    (
        image,
        selector,
        tolerations,
        weighted(0.4, vec(term(), 1..=3)),
        weighted(0.3, spread()),
        weighted(0.2, Just("class")),
        weighted(0.1, Just(())),
        (weighted(0.5, Just(())), weighted(0.1, select(vec!["1", "2"]))),
    )
        .prop_map(
            |((image, second), selector, tolerations, terms, spread, class, host_process, (os, gpus))| {
                let mut containers = vec![json!({"name": "c", "image": image})];
                containers.extend(second.map(|image| json!({"name": "d", "image": image})));
                if let (Some(gpus), Some(first)) = (gpus, containers.first_mut()) {
                    first["resources"] = json!({"limits": {GPU: gpus}, "requests": {GPU: gpus}});
                }
                let mut spec = json!({"containers": containers});
                if selector != json!({}) {
                    spec["nodeSelector"] = selector;
                }
                if tolerations != json!([]) {
                    spec["tolerations"] = tolerations;
                }
                if let Some(terms) = terms {
                    spec["affinity"] = json!({"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
                }
                if let Some(spread) = spread {
                    spec["topologySpreadConstraints"] = json!([spread]);
                }
                if let Some(class) = class {
                    spec["runtimeClassName"] = class.into();
                }
                if host_process.is_some() {
                    spec["hostNetwork"] = true.into();
                    spec["securityContext"] = json!({"windowsOptions": {"hostProcess": true,
                    "runAsUserName": "NT AUTHORITY\\SYSTEM"}});
                }
                if os.is_some() {
                    spec["os"] = json!({"name": "windows"});
                }
                json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "namespace": "default", "labels": {"app": "x"}}, "spec": spec})
            },
        )
}

impl Cluster {
    pub fn facts(&self) -> Facts {
        let now: Timestamp = NOW.parse().expect("a time");
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        for node in &self.nodes {
            let text = node.to_string();
            let node: Node<'_> = serde_json::from_str(&text).expect("a node");
            if let Some(host) = Host::of_node(&node, Some(now)) {
                facts.add_host(host);
            }
        }
        for pool in &self.remembered {
            facts.add_host(pool.clone());
        }
        facts.pools.clone_from(&self.declared);
        facts.runtime_classes = self.classes.clone();
        let images = self.images.iter();
        facts.images = images
            .map(|(name, known)| (name.clone(), Arc::new(known.clone())))
            .collect();
        facts
    }

    /// The nodes on which the scheduler could put a pod, given its replicas on these nodes.
    pub fn feasible(&self, pod: &Value, replicas: &[String]) -> BTreeSet<String> {
        let text = pod["spec"].to_string();
        let spec: PodSpec<'_> = serde_json::from_str(&text).expect("a pod spec");
        let class = (spec.runtime_class_name.as_ref()).and_then(|name| self.classes.get(&**name));
        let constraints = Constraints::new(&spec, class);
        let read: Vec<(String, Value)> = (self.nodes.iter())
            .map(|node| (node.to_string(), node.clone()))
            .collect();
        let mut all = Vec::new();
        for (text, value) in &read {
            let node: Node<'_> = serde_json::from_str(text).expect("a node");
            let taints = node.taints();
            // For the scheduler, a resource that is not there yet is not there.
            let offers = constraints.lacking_resource(&node).is_none();
            let matches = offers && constraints.matches(&node) == Match::Yes;
            let tolerated = constraints.untolerated(&taints).next().is_none();
            all.push((node.name().to_owned(), value, matches, tolerated));
        }
        (all.iter())
            .filter(|(_, _, matches, tolerated)| *matches && *tolerated)
            .filter(|(name, ..)| spreads(&pod["spec"], &all, name, replicas))
            .map(|(name, ..)| name.clone())
            .collect()
    }

    /// The nodes that can run the images of a pod, from their kernel versions, and what registries report or the image
    /// names say.
    pub fn runnable(&self, pod: &Value) -> BTreeSet<String> {
        self.windows(|host| self.runs(pod, host))
    }

    /// Whether any release of Windows runs the images of a pod together.
    pub fn is_possible(&self, pod: &Value) -> bool {
        RELEASES.iter().any(|release| self.runs(pod, release.build))
    }

    /// Whether a host of a build runs the images of a pod.
    fn runs(&self, pod: &Value, host: Build) -> bool {
        let spec = &pod["spec"];
        let class = spec["runtimeClassName"].as_str();
        let known = class.map(|class| self.classes.get(class));
        let isolation = match known {
            _ if spec["securityContext"]["windowsOptions"]["hostProcess"] == true => {
                ContainerIsolation::HostProcess
            }
            Some(None) => return true,
            Some(Some(class)) => class.isolation(),
            None => ContainerIsolation::Process,
        };
        let runs = |build| compatibility(build, host, isolation) != Compatibility::Fails;
        let containers = spec["containers"].as_array().into_iter().flatten();
        let mut images = containers.filter_map(|container| container["image"].as_str());
        images.all(|image| self.has_variant(image, runs))
    }

    /// Whether an image has, or may have, a variant of a build that runs.
    fn has_variant(&self, image: &str, runs: impl Fn(Build) -> bool) -> bool {
        let listed = self.images.get(image).and_then(|facts| facts.found.as_ref());
        let Some(listed) = listed.filter(|listed| !listed.variants.is_empty()) else {
            let image = ImageRef::parse(image).expect("an image");
            return build_hint(&image).is_none_or(|hint| runs(hint.build));
        };
        // Every node is amd64.
        let mut pulled = listed
            .variants
            .iter()
            .filter(|variant| variant.os == "windows" && variant.architecture == "amd64");
        pulled.any(|variant| variant.os_version.is_none_or(|version| runs(version.build)))
    }

    /// Whether the Windows builds of an image are certain, and there are any.
    pub fn is_certain(&self, image: &str) -> bool {
        let listed = self.images.get(image).and_then(|facts| facts.found.as_ref());
        match listed.filter(|listed| !listed.variants.is_empty()) {
            Some(listed) => listed
                .variants
                .iter()
                .any(|variant| variant.os == "windows" && variant.architecture == "amd64"),
            None => ImageRef::parse(image)
                .ok()
                .and_then(|image| build_hint(&image))
                .is_some_and(|hint| hint.certain),
        }
    }

    fn windows(&self, runs: impl Fn(Build) -> bool) -> BTreeSet<String> {
        let windows = self
            .nodes
            .iter()
            .filter(|node| node["status"]["nodeInfo"]["operatingSystem"] == "windows");
        let right = windows.filter(|node| {
            let kernel = node["status"]["nodeInfo"]["kernelVersion"]
                .as_str()
                .unwrap_or_default();
            Build::parse_kernel_version(kernel).is_some_and(|(build, _)| runs(build))
        });
        right
            .map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// A short text for test messages.
    pub fn brief(&self) -> String {
        let nodes = self.nodes.iter().map(|node| {
            format!(
                "{} {} labels {} taints {} ready {}",
                node["metadata"]["name"],
                node["status"]["nodeInfo"]["kernelVersion"],
                node["metadata"]["labels"],
                node["spec"]["taints"],
                node["status"]["conditions"][0]["lastTransitionTime"]
            )
        });
        let nodes: Vec<String> = nodes.collect();
        format!(
            "\n{}\nclasses {:?}\ndeclared {:?}\nremembered {:?}\nmaps {:?}\nimages {:#?}",
            nodes.join("\n"),
            self.classes,
            self.declared,
            self.remembered,
            self.policy.runtime_classes,
            self.images
        )
    }

    pub fn node(&self, name: &str) -> &Value {
        let found = self.nodes.iter().find(|node| node["metadata"]["name"] == name);
        found.expect("a node of this name")
    }
}

/// Whether a node satisfies the required topology spread constraints of a pod.
///
/// Source: `kubernetes: pkg/scheduler/framework/plugins/podtopologyspread/filtering.go`.
fn spreads(spec: &Value, nodes: &[(String, &Value, bool, bool)], name: &str, replicas: &[String]) -> bool {
    let constraints = spec["topologySpreadConstraints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let value = |node: &Value, key: &str| node["metadata"]["labels"][key].as_str().map(str::to_owned);
    constraints.iter().all(|constraint| {
        let key = constraint["topologyKey"].as_str().unwrap_or_default();
        let own = nodes
            .iter()
            .find(|(node, ..)| node == name)
            .and_then(|(_, node, ..)| value(node, key));
        let Some(own) = own else { return false };
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        for (node, object, matches, tolerated) in nodes {
            let is_included = (constraint["nodeAffinityPolicy"] == "Ignore" || *matches)
                && (constraint["nodeTaintsPolicy"] != "Honor" || *tolerated);
            let Some(domain) = value(object, key).filter(|_| is_included) else {
                continue;
            };
            let here = replicas.iter().filter(|replica| *replica == node).count();
            *counts.entry(domain).or_default() += i64::try_from(here).unwrap_or(i64::MAX);
        }
        let least = constraint["minDomains"].as_i64().unwrap_or(1);
        let fewest = if i64::try_from(counts.len()).unwrap_or(i64::MAX) < least {
            0
        } else {
            counts.values().copied().min().unwrap_or(i64::from(i32::MAX))
        };
        counts.get(&own).copied().unwrap_or(0) + 1 - fewest <= constraint["maxSkew"].as_i64().unwrap_or(1)
    })
}
