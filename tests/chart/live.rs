//! A release from its installation to the day that it goes: Helm installs it as it was before, the program runs as its
//! Deployment says with the rights of its ServiceAccount, it is upgraded under a stream of pods, rolled back, and leaves
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::engine::{Engine, engine};
use super::older;
use super::release::{NAMESPACE, World, cleanup, definitions, node, windows_pod};
use crate::support::command::printed;
use crate::support::control_plane::{ControlPlane, wait};

/// The entry that `webhooks.linuxPods` registers.
const LINUX_PODS: &str = "linux-pods.validate.transom.dev";

/// How many create pods at the same time.
const WRITERS: usize = 4;

/// Creates Windows pods, several at a time, until it is told to stop: each must be placed, or refused where it is a bad one.
/// All webhooks fail open, so that a review that is lost is seen.
struct Stream {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Vec<String>)>,
}

impl Stream {
    fn start(cluster: &Arc<ControlPlane>, name: &'static str, kinds: &'static [Streamed]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (cluster, stopped) = (Arc::clone(cluster), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let client = cluster.client().await;
                let writers = (0..WRITERS).map(|writer| {
                    let kind = kinds[writer % kinds.len()];
                    write(
                        client.clone(),
                        format!("{name}-{writer}"),
                        kind,
                        Arc::clone(&stopped),
                    )
                });
                let outcomes = futures::future::join_all(writers).await;
                let made = outcomes.iter().map(|(made, _)| made).sum();
                (
                    made,
                    outcomes.into_iter().flat_map(|(_, failed)| failed).collect(),
                )
            })
        });
        Stream { stop, thread }
    }

    /// How many were created; nothing went wrong.
    fn end(self, world: &World) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let (made, failed) = self.thread.join().unwrap();
        assert!(
            failed.is_empty(),
            "{} of {made}: {}\n{}",
            failed.len(),
            failed.join("\n"),
            world.kubelet.logs()
        );
        made
    }
}

/// What is streamed.
#[derive(Clone, Copy, PartialEq)]
enum Streamed {
    /// Its nodeSelector says Windows.
    Selects,
    /// Only its image does.
    ByImage,
    /// It has a field that Windows has not, which the API server takes.
    Bad,
}

impl Streamed {
    fn pod(self, name: &str) -> Value {
        let mut pod = windows_pod(name);
        match self {
            Streamed::Selects => {}
            Streamed::ByImage => {
                pod["spec"].as_object_mut().unwrap().remove("nodeSelector");
            }
            Streamed::Bad => {
                pod["spec"]["hostPID"] = json!(true);
                // Who calls a pod Transom's own gains nothing by it.
                pod["metadata"]["labels"] = json!({"app.kubernetes.io/name": "transom"});
            }
        }
        pod
    }
}

async fn write(
    client: Client,
    writer: String,
    kind: Streamed,
    stop: Arc<AtomicBool>,
) -> (usize, Vec<String>) {
    let pods: Api<Pod> = Api::namespaced(client, "apps");
    let (mut made, mut failed) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let name = format!("{writer}-{made}");
        let pod: Pod = serde_json::from_value(kind.pod(&name)).unwrap();
        match pods.create(&PostParams::default(), &pod).await {
            Ok(_) if kind == Streamed::Bad => failed.push(format!("{name} was let through")),
            Ok(pod) => {
                let tolerations = pod.spec.and_then(|spec| spec.tolerations).unwrap_or_default();
                if !tolerations.iter().any(|it| it.key.as_deref() == Some("os")) {
                    failed.push(format!("{name} was let through without placement"));
                }
            }
            Err(error) if kind == Streamed::Bad && error.to_string().contains("denied the request") => {}
            Err(error) => failed.push(format!("{name}: {error}")),
        }
        made += 1;
        // The processors are the replicas' too.
        tokio::time::sleep(Duration::from_millis(80)).await;
    }
    (made, failed)
}

#[test]
fn a_release_lives_and_leaves_nothing() {
    let Some(engine) = engine() else { return };
    let Some(world) = World::start("the life of a release", &node()) else {
        return;
    };
    let node_before = world.get("node", "win-1");
    let (_folder, older) = older::engine();

    install(&world, &older);
    the_version_of_the_server_is_printed(&world);
    reviews(&world.cluster);
    controllers(&world);
    upgrade_and_back(&world, engine);
    // Every replica has been another one since, and has led or not.
    assert_eq!(ignored_label_events(&world.cluster), 1);

    // Refused by nobody: the rights of the chart are those that the program needs.
    let logs = world.kubelet.logs();
    let refused: Vec<&str> = logs.lines().filter(|line| line.contains("forbidden")).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));

    let jobs = || world.kubelet.jobs();
    world
        .request(engine, "uninstall", &json!({}))
        .unwrap_or_else(|error| panic!("{error}\n{}", jobs()));
    assert!(
        jobs().contains("nothing else of Transom's is left in the cluster"),
        "{}",
        jobs()
    );
    assert_eq!(world.left(), definitions());
    let node = world.get("node", "win-1");
    assert_eq!(node["spec"], node_before["spec"]);
    assert_eq!(
        node["metadata"]["annotations"],
        node_before["metadata"]["annotations"]
    );
    let mut labels = node["metadata"]["labels"].clone();
    // The build label stays: a kubelet writes it only when it starts.
    labels
        .as_object_mut()
        .unwrap()
        .remove("node.kubernetes.io/windows-build");
    assert_eq!(labels, node_before["metadata"]["labels"]);

    // Twice, and with the definitions, by hand.
    for _ in 0..2 {
        let done = cleanup(&world.kubeconfig, &["--crds"]);
        assert!(done.status.success(), "{done:?}");
    }
    assert!(
        wait(Duration::from_secs(30), || world.left().is_empty()),
        "{:?}",
        world.left()
    );
}

/// Helm keeps what it knows of a release in the namespace of the release.
#[test]
fn what_a_release_left_is_removed_when_its_namespace_is_gone() {
    let Some(engine) = engine() else { return };
    let Some(world) = World::start(
        "that uninstall removes what Helm no longer knows (tests/chart/live.rs)",
        &node(),
    ) else {
        return;
    };
    world.deploy(engine, "install", &json!({"replicaCount": 1}));
    let own = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
        "metadata": {"name": "mine", "labels": {"app.kubernetes.io/name": "transom", "app.kubernetes.io/instance": "transom"}}});
    world.create(&own);
    delete_namespace(&world);
    assert!(
        world
            .left()
            .iter()
            .any(|it| it.ends_with("Role default/transom-events"))
    );

    let done = cleanup(&world.kubeconfig, &["--crds"]);
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{done:?}");
    assert!(
        printed.contains("of the installation is left: ClusterRole mine\nthat is for kubectl: "),
        "{printed}"
    );
    let mut left = Vec::new();
    let is_gone = || {
        left = world.left();
        // What the leader wrote after the objects were listed: it would go with the namespace.
        left.retain(|it| !it.contains(&format!(" {NAMESPACE}/")));
        left == ["ClusterRole /mine"]
    };
    assert!(wait(Duration::from_secs(30), is_gone), "{left:?}\n{printed}");
}

/// Deletes Transom's namespace as the controller of namespaces does, which does not run here: first what is in it.
fn delete_namespace(world: &World) {
    let here = format!(" {NAMESPACE}/");
    let cluster = &world.cluster;
    for object in world.left().iter().filter(|it| it.contains(&here)) {
        let (kind, name) = object.split_once(&here).unwrap();
        // Pods and ReplicaSets go with their owners.
        cluster.kubectl(&[
            "delete",
            kind,
            name,
            "-n",
            NAMESPACE,
            "--ignore-not-found",
            "--wait=false",
        ]);
    }
    cluster
        .kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"])
        .succeeded();
    let mut namespace = world.get("namespace", NAMESPACE);
    namespace["spec"]["finalizers"] = json!([]);
    let finalize = format!("/api/v1/namespaces/{NAMESPACE}/finalize");
    cluster
        .kubectl_with(
            &["replace", "--raw", &finalize, "-f", "-"],
            &namespace.to_string(),
        )
        .succeeded();
    let is_gone = || !world.has(&["namespace", NAMESPACE]);
    assert!(wait(Duration::from_secs(30), is_gone));
}

fn install(world: &World, engine: &Engine) {
    world.deploy(engine, "install", &json!({}));
    let published = || {
        let entries = entries(world);
        entries
            .values()
            .all(|entry| entry["clientConfig"]["caBundle"].is_string())
    };
    assert!(
        wait(Duration::from_secs(60), published),
        "no caBundle\n{}",
        world.kubelet.logs()
    );
    world.is_called();
    assert_eq!(entries(world).into_keys().collect::<Vec<_>>(), BEFORE);
    assert!(!older::knows_it(&definition(world)));
}

fn the_version_of_the_server_is_printed(world: &World) {
    let version = |more: &[&str]| {
        let version = ["version", "--kubeconfig", &world.kubeconfig];
        printed(&[&version, more].concat())
    };
    let printed: Value = serde_json::from_str(&version(&["-o", "json"])).unwrap();
    let server = &printed["servers"]["installations"][0];
    assert_eq!(server["deployment"], "transom");
    // The label is that of the chart which installed it.
    assert_eq!(server["version"], "0.1.0", "{printed:#}");
    assert!(
        server["image"]
            .as_str()
            .unwrap()
            .ends_with("/transom/transom:0.1.0")
    );
    let elsewhere = version(&["--transom-namespace", "apps"]);
    assert!(
        elsewhere.contains("has no Deployment of Transom in the namespace apps"),
        "{elsewhere}"
    );
}

/// The entries of the older chart.
const BEFORE: [&str; 3] = [
    "custom-resources.validate.transom.dev",
    "mutate.transom.dev",
    "validate.transom.dev",
];

const CONFIGURATIONS: [&str; 2] = ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"];

/// The entries of both phases, by name.
fn entries(world: &World) -> BTreeMap<String, Value> {
    let seen = CONFIGURATIONS.map(|kind| world.get(kind, "zz-transom"));
    let entries = seen.iter().flat_map(|seen| seen["webhooks"].as_array().unwrap());
    entries
        .map(|entry| (entry["name"].as_str().unwrap().to_owned(), entry.clone()))
        .collect()
}

fn definition(world: &World) -> Value {
    world.get("crd", "windowspodpolicies.transom.dev")
}

fn reviews(cluster: &ControlPlane) {
    let pod = cluster
        .kubectl_with(
            &["create", "-f", "-", "-o", "json"],
            &windows_pod("good").to_string(),
        )
        .succeeded()
        .object();
    assert_eq!(pod["spec"]["os"]["name"], "windows");
    assert!(
        pod["spec"]["tolerations"].to_string().contains("\"os\""),
        "{pod:#}"
    );
    let mut bad = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bad", "namespace": "apps"},
        "spec": {"selector": {"matchLabels": {"app": "bad"}}, "template": {"metadata": {"labels": {"app": "bad"}}}}});
    bad["spec"]["template"]["spec"] = windows_pod("x")["spec"].clone();
    bad["spec"]["template"]["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 1000});
    let refused = cluster.kubectl_with(&["create", "-f", "-"], &bad.to_string());
    assert!(refused.err.contains("Windows has no user IDs"), "{}", refused.err);
    // Transom's own namespace is not looked at.
    let mut own = windows_pod("own");
    own["metadata"]["namespace"] = json!(NAMESPACE);
    own["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 1000});
    cluster
        .kubectl_with(&["create", "--dry-run=server", "-f", "-"], &own.to_string())
        .succeeded();
    cluster
        .kubectl(&[
            "delete",
            "pod",
            "good",
            "-n",
            "apps",
            "--force",
            "--grace-period=0",
        ])
        .succeeded();
}

fn controllers(world: &World) {
    let labelled = || {
        let node = world.get("node", "win-1");
        node["metadata"]["labels"]["transom.dev.node-restriction.kubernetes.io/windows-build"] == "10.0.20348"
    };
    assert!(wait(Duration::from_secs(60), labelled), "the node gets no label");
    let ready = [
        "wait",
        "--for=condition=Ready",
        "wpp/default",
        "wnp/default",
        "--timeout=60s",
    ];
    let waited = world.cluster.kubectl(&ready);
    assert!(
        waited.ok,
        "{}\n{:#}\n{:#}\n{}",
        waited.err,
        world.get("wpp", "default")["status"],
        world.get("wnp", "default")["status"],
        world.kubelet.logs()
    );
    // The ServiceAccount may write an Event about a label without effect.
    let label = ["label", "namespace", "apps", "transom.dev/mode=enforce"];
    world.cluster.kubectl(&label).succeeded();
    let reported = || ignored_label_events(&world.cluster) == 1;
    assert!(
        wait(Duration::from_secs(60), reported),
        "no Event reports the label"
    );
    // And about a label that excludes a namespace, with the field manager that the API server recorded.
    let label = ["label", "namespace", "second", "transom.dev/ignore=true"];
    world.cluster.kubectl(&label).succeeded();
    let reported = || {
        let reported = events_of(&world.cluster, "NamespaceExcluded", "second");
        reported.iter().any(|event| {
            let note = event["note"].as_str().or(event["message"].as_str());
            note.is_some_and(|note| note.contains("Field manager kubectl-label set it"))
        })
    };
    assert!(
        wait(Duration::from_secs(60), reported),
        "no Event names the field manager that excluded the namespace"
    );
    let label = ["label", "namespace", "second", "transom.dev/ignore-"];
    world.cluster.kubectl(&label).succeeded();
}

/// How many Events there are about labels of the namespace that do nothing.
fn ignored_label_events(cluster: &ControlPlane) -> usize {
    events_of(cluster, "LabelIgnored", "apps").len()
}

/// The Events about a namespace with this reason.
fn events_of(cluster: &ControlPlane, reason: &str, namespace: &str) -> Vec<Value> {
    let selector = format!("--field-selector=reason={reason},involvedObject.name={namespace}");
    let events = ["get", "events", "-n", "default", &selector, "-o", "json"];
    cluster.kubectl(&events).succeeded().objects()
}

fn upgrade_and_back(world: &World, engine: &Engine) {
    let kubelet = &world.kubelet;
    let stream = Stream::start(
        &world.cluster,
        "up",
        &[Streamed::Selects, Streamed::ByImage, Streamed::Bad],
    );
    let bundle = || {
        let webhooks = world.get("mutatingwebhookconfiguration", "zz-transom")["webhooks"].clone();
        (
            webhooks[0]["clientConfig"]["caBundle"].clone(),
            webhooks[0]["timeoutSeconds"].clone(),
        )
    };
    let (old, seconds) = bundle();
    assert_eq!(seconds, 2);
    let values = json!({"webhooks": {"timeoutSeconds": 1, "linuxPods": {"enabled": true}},
                        "server": {"log": {"filter": "debug"}},
                        "podAnnotations": {"generation": "two"}});
    world.deploy(engine, "upgrade", &values);
    assert!(
        kubelet
            .jobs()
            .contains("windowspodpolicies.transom.dev updated (generation 2)"),
        "{}",
        kubelet.jobs()
    );
    assert!(older::knows_it(&definition(world)));
    assert_eq!(bundle(), (old.clone(), json!(1)));
    // An entry more, which the controller publishes into.
    let registered = || {
        let entries = entries(world);
        let owners = CONFIGURATIONS.map(|kind| {
            let shown = ["get", kind, "zz-transom", "-o", "json", "--show-managed-fields"];
            world.cluster.kubectl(&shown).succeeded().object()["metadata"]["managedFields"].to_string()
        });
        entries.contains_key(LINUX_PODS)
            && entries
                .values()
                .all(|entry| entry["clientConfig"]["caBundle"] == old)
            && !owners.concat().contains("transom-certificates")
    };
    assert!(
        wait(Duration::from_secs(30), registered),
        "{:#?}\n{}",
        entries(world),
        kubelet.logs()
    );
    let made = stream.end(world);
    let stream = Stream::start(&world.cluster, "back", &[Streamed::Selects, Streamed::Bad]);
    world.request(engine, "rollback", &json!({"version": 1})).unwrap();
    kubelet.settled();
    assert_eq!(bundle(), (old, json!(2)));
    assert_eq!(entries(world).into_keys().collect::<Vec<_>>(), BEFORE);
    // The definition stays the newer one, which knows all that the older one knew.
    assert!(older::knows_it(&definition(world)));
    let made = made + stream.end(world);
    assert!(made > 100, "only {made} pods");
    println!("{made} pods were created or refused during an upgrade and its rollback");
    // One request for all; one for each would take longer than everything before.
    let all = [
        "delete",
        "--raw",
        "/api/v1/namespaces/apps/pods?gracePeriodSeconds=0",
    ];
    world.cluster.kubectl(&all).succeeded();
}
