//! The start gate in one table: nodes of pools with different policies join together, and each row says how its node has to start.
//! Then what happens while nodes wait: changed policies, quotas, a frozen leader, an uninstall.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::command::program;
use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join_tainted;
use crate::support::pulling_kubelet::{PullingKubelets, PullingNode, SILENT, STARTUP};

const WEB: &str = "registry.example/web:1";
/// Not among the 50 images that a node reports.
const SMALL: &str = "registry.example/small:1";
const BAKED: &str = "registry.example/baked:0";
const MISSING: &str = "registry.example/missing:1";
const NEVER: &str = "registry.example/never:1";
/// The images of custom resources without a pod.
const CUSTOM: [&str; 3] = [
    "registry.example/scaled-job:1",
    "registry.example/cron-workflow:1",
    "registry.example/daemon-set:1",
];
const TIMEOUT: u64 = 150;
const SHORT: u64 = 40;
/// When a node without any other image is given up: a minute after the failure, and the time until that is seen.
const GIVEN_UP: std::ops::Range<u64> = 60..TIMEOUT - 20;

/// Pools, with the `startup` of their policies; `null` for none.
fn pools() -> Vec<(&'static str, Value)> {
    let pods = |more: &Value| {
        let mut startup = json!({"puller": "Pods", "timeoutSeconds": TIMEOUT});
        for (field, value) in more.as_object().unwrap() {
            startup[field] = value.clone();
        }
        startup
    };
    let listed = |images: &[&str]| json!({"imageSource": "Listed", "images": images});
    let mut never = listed(&[NEVER]);
    never["timeoutSeconds"] = json!(SHORT);
    vec![
        ("plain", Value::Null),
        ("web", pods(&json!({}))),
        ("custom", pods(&json!({}))),
        ("missing", pods(&listed(&[MISSING, WEB]))),
        ("baked", listed(&[BAKED])),
        ("elsewhere", json!({"timeoutSeconds": TIMEOUT})),
        ("failing", json!({"timeoutSeconds": TIMEOUT})),
        ("nobody", never),
        (
            "sized",
            json!({"timeoutSeconds": TIMEOUT, "maxImageSize": "20Gi"}),
        ),
        (
            "idle",
            pods(&json!({"imageSource": "Listed", "images": [WEB], "maxConcurrentNodes": 1})),
        ),
        (
            "waiting",
            json!({"imageSource": "Listed", "images": [NEVER], "timeoutSeconds": 3600}),
        ),
    ]
}

fn policies() -> String {
    let pods = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "default"},
        "spec": {"mode": "Audit"}});
    let of_pool = |(pool, startup): (&str, Value)| {
        let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": pool},
            "spec": {"mode": "Reconcile", "taints": {"mode": "Audit"}, "nodeSelector": {"matchLabels": {"agentpool": pool}}, "startup": startup}});
        policy.to_string()
    };
    let policies = pools().into_iter().map(of_pool);
    let all: Vec<String> = policies.chain([pods.to_string()]).collect();
    all.join("\n---\n")
}

/// How a node starts.
enum Outcome {
    /// Nothing holds it.
    Open,
    /// With these images.
    Warm(&'static [&'static str]),
    /// Without an image that cannot be pulled, which an Event names.
    GivenUp,
    /// At its timeout.
    Late,
}

/// Scenarios: what they are about, the name of the node, its pool, and how it starts.
const TABLE: [(&str, &str, &str, Outcome); 11] = [
    ("a Linux node with the taint", "linux", "web", Outcome::Open),
    ("no policy selects the node", "unselected", "", Outcome::Open),
    ("its policy has no startup", "plain-0", "plain", Outcome::Open),
    (
        "pods of Transom's pull what workloads need",
        "web-0",
        "web",
        Outcome::Warm(&[WEB]),
    ),
    (
        "custom resources without a pod",
        "custom-0",
        "custom",
        Outcome::Warm(&CUSTOM),
    ),
    (
        "an image cannot be pulled",
        "missing-0",
        "missing",
        Outcome::GivenUp,
    ),
    (
        "all images are in the node's image",
        "baked-0",
        "baked",
        Outcome::Warm(&[BAKED]),
    ),
    (
        "another program pulls an image that the node does not report",
        "elsewhere-0",
        "elsewhere",
        Outcome::Warm(&[SMALL]),
    ),
    (
        "another program cannot pull an image",
        "failing-0",
        "failing",
        Outcome::GivenUp,
    ),
    ("nothing pulls", "nobody-0", "nobody", Outcome::Late),
    (
        "nothing is needed, and maxImageSize knows no size",
        "sized-0",
        "sized",
        Outcome::Warm(&[]),
    ),
];

fn create(cluster: &ControlPlane, object: &Value) {
    cluster
        .kubectl_with(&["create", "-f", "-"], &object.to_string())
        .succeeded();
}

/// A pod template for one pool.
fn template(name: &str, pool: &str, images: &[&str]) -> Value {
    let containers: Vec<Value> = (images.iter().enumerate())
        .map(|(at, image)| json!({"name": format!("c{at}"), "image": image}))
        .collect();
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": containers,
        "nodeSelector": {"kubernetes.io/os": "windows", "agentpool": pool}}})
}

fn workload(kind: &str, name: &str, template: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}})
}

/// Defines custom resources, and creates one of each without a pod.
fn custom_resources(cluster: &ControlPlane) {
    let of = |at: usize| template("custom", "custom", &CUSTOM[at..=at]);
    let mut flow = of(1)["spec"].clone();
    flow["name"] = json!("main");
    flow["container"] = flow["containers"][0].clone();
    for (group, kind, plural, spec) in [
        (
            "keda.sh",
            "ScaledJob",
            "scaledjobs",
            json!({"jobTargetRef": {"template": of(0)}}),
        ),
        (
            "argoproj.io",
            "CronWorkflow",
            "cronworkflows",
            json!({"workflowSpec": {"templates": [flow]}}),
        ),
        (
            "apps.kruise.io",
            "DaemonSet",
            "daemonsets",
            json!({"template": of(2)}),
        ),
    ] {
        create(
            cluster,
            &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.{group}")}, "spec": {
                    "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                    "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
        );
        let object = json!({"apiVersion": format!("{group}/v1alpha1"), "kind": kind,
            "metadata": {"name": "empty", "namespace": "default"}, "spec": spec});
        let is_stored = || {
            cluster
                .kubectl_with(&["apply", "-f", "-"], &object.to_string())
                .ok
        };
        assert!(wait(Duration::from_secs(30), is_stored), "{kind}");
    }
}

fn join(cluster: &ControlPlane, name: &str, pool: &str, more: &[(&str, &str)]) {
    let build = if name == "linux" { "" } else { "10.0.20348" };
    let gate = json!([{"key": STARTUP, "effect": "NoSchedule"}]);
    let labels: Vec<(&str, &str)> = [("agentpool", pool)]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    join_tainted(cluster, name, build, &labels, &gate);
}

/// The cluster of the table, with two replicas.
struct Scenarios {
    cluster: ControlPlane,
    kubelets: PullingKubelets,
    replicas: [Replica; 2],
}

impl Scenarios {
    fn start() -> Option<Self> {
        let programs = programs_of_a_whole_control_plane("the scenarios of the start gate")?;
        let cluster = ControlPlane::start(programs).unwrap_or_else(|error| panic!("{error}"));
        install::prepare(&cluster, &policies());
        cluster
            .start_controllers_of(
                "deployment-controller,replicaset-controller,daemonset-controller,resourcequota-controller",
            )
            .unwrap();
        cluster.start_scheduler().unwrap();
        custom_resources(&cluster);
        create(
            &cluster,
            &workload("Deployment", "web", &template("web", "web", &[WEB])),
        );
        for (pool, images) in [("elsewhere", &[SMALL][..]), ("failing", &[SMALL, MISSING])] {
            let mut prepull = template(pool, pool, images);
            prepull["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
            create(&cluster, &workload("DaemonSet", pool, &prepull));
        }
        let flags = ["--image-puller-service-account", "transom-image-puller"];
        let replicas = ["one", "two"].map(|name| Replica::start(&cluster, name, &flags));
        install::register(&cluster, replicas[0].port, &[]);
        let sizes = [(WEB, 200_000_000), (SMALL, 1_000)].into_iter();
        let sizes: BTreeMap<&str, u64> = sizes.chain(CUSTOM.map(|image| (image, 10_000_000))).collect();
        let baked = (0..55).map(|at| (format!("registry.example/baked:{at}"), 50_000_000));
        let kubelets = PullingKubelets::start(&cluster, sizes, baked.collect(), "");
        let all = Scenarios {
            cluster,
            kubelets,
            replicas,
        };
        assert!(
            wait(Duration::from_secs(60), || all.leader().is_some()),
            "nobody leads"
        );
        Some(all)
    }

    fn leader(&self) -> Option<&Replica> {
        let mut replicas = self.replicas.iter();
        replicas.find(|replica| replica.metric("transom_leader ") == Some(1))
    }

    fn node(&self, name: &str) -> PullingNode {
        self.kubelets.log().nodes.get(name).cloned().unwrap_or_default()
    }

    /// Waits until a node got pods; returns its images then, and after how many seconds.
    fn released(&self, name: &str, within: u64) -> (BTreeSet<String>, u64) {
        let is_released = || self.node(name).released.is_some();
        assert!(
            wait(Duration::from_secs(within), is_released),
            "{name}: {:?}\n{}\n{}",
            self.node(name),
            self.cluster.end_of_log("one"),
            self.cluster.end_of_log("two")
        );
        let (images, after) = self.node(name).released.unwrap();
        (images, after.as_secs())
    }

    /// The Events of a node, by reason.
    fn events(&self, node: &str) -> BTreeMap<String, String> {
        let selector = format!("involvedObject.name={node}");
        let events = self
            .cluster
            .kubectl(&["get", "events", "--field-selector", &selector, "-o", "json"]);
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let events = events.succeeded().objects().into_iter();
        events
            .map(|event| (text(&event, "reason"), text(&event, "message")))
            .collect()
    }

    /// Reason and message of the condition `ImagesReady` of a policy.
    fn images_ready(&self, policy: &str) -> (String, String) {
        let policy = self
            .cluster
            .kubectl(&["get", "wnp", policy, "-o", "json"])
            .succeeded()
            .object();
        let conditions = policy["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = conditions
            .into_iter()
            .find(|it| it["type"] == "ImagesReady")
            .unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }

    fn shows(&self, policy: &str, reason: &str, part: &str) {
        let is_shown = || {
            let (now, message) = self.images_ready(policy);
            now == reason && message.contains(part)
        };
        let log = || self.cluster.end_of_log("one");
        assert!(
            wait(Duration::from_secs(60), is_shown),
            "{policy}: {:?}\n{}",
            self.images_ready(policy),
            log()
        );
    }

    /// Whether a row of the table holds: after how many seconds its node got pods, or what went wrong.
    fn holds(&self, (_, node, _, outcome): &(&str, &str, &str, Outcome)) -> Result<u64, String> {
        let (images, after) = self.released(node, TIMEOUT + 20);
        let has_event =
            |reason: &str| wait(Duration::from_secs(20), || self.events(node).contains_key(reason));
        let holds = match outcome {
            Outcome::Open => after < 30,
            Outcome::Warm(needed) => {
                let is_warm = needed.iter().all(|image| images.contains(*image));
                is_warm && after < TIMEOUT - 20 && has_event("ImagesReady")
            }
            Outcome::GivenUp => {
                let is_told = has_event("ImagePullFailed") && has_event("ImagesLate");
                let late = self.events(node).remove("ImagesLate").unwrap_or_default();
                is_told && GIVEN_UP.contains(&after) && late.contains(MISSING) && !late.contains(SMALL)
            }
            Outcome::Late => (SHORT - 2..SHORT + 20).contains(&after) && has_event("ImagesLate"),
        };
        let others: Vec<&String> = images.iter().filter(|image| !image.contains("/baked:")).collect();
        let what = || format!("after {after} s with {others:?}: {:?}", self.events(node));
        if holds { Ok(after) } else { Err(what()) }
    }
}

#[test]
fn each_scenario_of_the_table_starts_as_it_should() {
    let Some(all) = Scenarios::start() else { return };
    for (_, node, pool, _) in &TABLE {
        join(&all.cluster, node, pool, &[]);
    }
    let rows = TABLE.iter().map(|row| (row, all.holds(row)));
    let failed: Vec<String> = rows
        .filter_map(|((what, node, ..), result)| match result {
            Ok(after) => {
                println!("held: {what} ({node}, {after} s)");
                None
            }
            Err(why) => Some(format!("{what} ({node}): {why}")),
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    all.shows("sized", "ImageSizesUnknown", "maxImageSize has no effect");
    all.shows("nobody", "ImagesLate", "puller: None");
    assert_eq!(all.kubelets.log().bound_early, BTreeSet::new());

    all.a_ready_kubelet_does_nothing();
    all.policies_change_while_nodes_wait();
    all.pods_are_refused();
    all.a_leader_is_frozen();
    all.transom_is_uninstalled_in_the_middle();
    assert_eq!(all.kubelets.log().bound_early, BTreeSet::new());
}

impl Scenarios {
    fn a_ready_kubelet_does_nothing(&self) {
        join(&self.cluster, "idle-0", "idle", &[(SILENT, "true")]);
        let has_slot = || !self.node("idle-0").pullers.is_empty();
        assert!(
            wait(Duration::from_secs(30), has_slot),
            "{}",
            self.cluster.end_of_log("one")
        );
        let began = Instant::now();
        join(&self.cluster, "idle-1", "idle", &[]);
        let (images, after) = self.released("idle-1", TIMEOUT + 20);
        println!("held: a Ready kubelet does nothing, and another node needs its slot ({after} s)");
        assert!(images.contains(WEB), "{images:?}");
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        assert_eq!(self.node("idle-0").released, None);
        self.cluster
            .kubectl(&["delete", "node", "idle-0", "idle-1"])
            .succeeded();
    }

    fn policies_change_while_nodes_wait(&self) {
        let patch = |spec: Value| {
            let patch = json!({"spec": spec}).to_string();
            let arguments = ["patch", "wnp", "waiting", "--type=merge", "-p", &patch];
            self.cluster.kubectl(&arguments).succeeded();
        };
        let waits = |node: &str| {
            join(&self.cluster, node, "waiting", &[]);
            std::thread::sleep(Duration::from_secs(7));
            assert_eq!(self.node(node).released, None, "{node}");
        };
        waits("waiting-0");
        patch(json!({"startup": {"images": [BAKED]}}));
        self.released("waiting-0", 30);
        println!("held: the policy lists other images while a node waits");
        patch(json!({"startup": {"images": [NEVER]}}));
        // Another client sets the taint again.
        self.cluster
            .kubectl(&["taint", "node", "waiting-0", &format!("{STARTUP}=:NoSchedule")])
            .succeeded();
        waits("waiting-1");
        patch(json!({"startup": null}));
        self.released("waiting-1", 30);
        let is_free = || {
            let node = self
                .cluster
                .kubectl(&["get", "node", "waiting-0", "-o", "json"])
                .succeeded()
                .object();
            !node["spec"]["taints"].to_string().contains(STARTUP)
        };
        assert!(wait(Duration::from_secs(30), is_free));
        println!("held: the policy loses startup while nodes wait, of which one got the taint later");
        patch(json!({"startup": {"imageSource": "Listed", "images": [NEVER], "timeoutSeconds": 3600}}));
        waits("waiting-2");
        self.cluster.kubectl(&["delete", "wnp", "waiting"]).succeeded();
        self.released("waiting-2", 30);
        println!("held: the policy is deleted while a node waits");
    }

    fn pods_are_refused(&self) {
        let object = |kind: &str, spec: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "tight", "namespace": "transom-system"}, "spec": spec});
        let memory = json!({"limits": [{"type": "Container", "min": {"memory": "50Mi"}}]});
        for (kind, spec, part) in [
            (
                "ResourceQuota",
                json!({"hard": {"pods": "0"}}),
                "a ResourceQuota of Transom's namespace",
            ),
            ("LimitRange", memory, "a LimitRange of Transom's namespace"),
        ] {
            create(&self.cluster, &object(kind, spec));
            let node = format!("refused-{}", kind.to_lowercase());
            // The quota's controller has to count first.
            std::thread::sleep(Duration::from_secs(3));
            join(&self.cluster, &node, "web", &[]);
            self.shows("web", "PullerFailed", part);
            self.cluster
                .kubectl(&["delete", &kind.to_lowercase(), "tight", "-n", "transom-system"])
                .succeeded();
            let (images, after) = self.released(&node, TIMEOUT + 20);
            assert!(images.contains(WEB), "{images:?} after {after} s");
            println!("held: a {kind} refuses pods, is named, and is removed ({after} s)");
        }
    }

    fn a_leader_is_frozen(&self) {
        let first = self.leader().expect("a leader").name.clone();
        self.cluster.signal(&first, "STOP");
        join(&self.cluster, "frozen-0", "web", &[]);
        let (images, after) = self.released("frozen-0", TIMEOUT + 20);
        assert!(images.contains(WEB), "{images:?}");
        self.cluster.signal(&first, "CONT");
        std::thread::sleep(Duration::from_secs(3));
        join(&self.cluster, "frozen-1", "web", &[]);
        let (images, _) = self.released("frozen-1", TIMEOUT + 20);
        assert!(images.contains(WEB), "{images:?}");
        assert_eq!(self.node("frozen-1").pullers.len(), 1, "two leaders pull");
        println!("held: the leader freezes while a node joins, and continues later ({after} s)");
    }

    fn transom_is_uninstalled_in_the_middle(&self) {
        let patch =
            json!({"spec": {"startup": {"imageSource": "Listed", "images": [MISSING, NEVER]}}}).to_string();
        self.cluster
            .kubectl(&["patch", "wnp", "web", "--type=merge", "-p", &patch])
            .succeeded();
        join(&self.cluster, "last", "web", &[]);
        let pulls = || !self.node("last").pullers.is_empty();
        assert!(
            wait(Duration::from_secs(30), pulls),
            "{}",
            self.cluster.end_of_log("one")
        );
        for replica in &self.replicas {
            self.cluster.end(&replica.name, "TERM");
        }
        let mut uninstall = Command::new(program());
        uninstall.args([
            "uninstall",
            "--yes",
            "--transom-namespace",
            "transom-system",
            "--kubeconfig",
        ]);
        let done = uninstall
            .arg(self.cluster.path("admin.kubeconfig"))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        self.released("last", 30);
        let left = self
            .cluster
            .kubectl(&["get", "pods", "-n", "transom-system", "-o", "name"]);
        assert_eq!(left.succeeded().out, "");
        println!("held: Transom is uninstalled while a node waits");
    }
}
