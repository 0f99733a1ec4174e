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

use super::control_plane::{ControlPlane, wait};
use super::engine::{Engine, engine};
use super::older;
use super::release::{NAMESPACE, World, cleanup, definitions, node, windows_pod};

/// The entry that `webhooks.reverseGuard` registers.
const GUARD: &str = "guard.validate.transom.dev";

/// How many create pods at the same time.
const WRITERS: usize = 4;

/// Creates Windows pods, several at a time, until it is told to stop; each must be accepted and placed.
struct Stream {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Vec<String>)>,
}

impl Stream {
    fn start(cluster: &Arc<ControlPlane>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (cluster, stopped) = (Arc::clone(cluster), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let client = Client::try_from(cluster.config().await).unwrap();
                let writers = (0..WRITERS).map(|writer| write(client.clone(), writer, Arc::clone(&stopped)));
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

    /// How many were created, and what went wrong.
    fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

async fn write(client: Client, writer: usize, stop: Arc<AtomicBool>) -> (usize, Vec<String>) {
    let pods: Api<Pod> = Api::namespaced(client, "apps");
    let (mut made, mut failed) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let name = format!("stream-{writer}-{made}");
        let pod: Pod = serde_json::from_value(windows_pod(&name)).unwrap();
        match pods.create(&PostParams::default(), &pod).await {
            Ok(pod) => {
                let tolerations = pod.spec.and_then(|spec| spec.tolerations).unwrap_or_default();
                if !tolerations.iter().any(|it| it.key.as_deref() == Some("os")) {
                    failed.push(format!("{name} was let through without placement"));
                }
            }
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
    reviews(&world.cluster);
    controllers(&world);
    upgrade_and_back(&world, engine);
    // Every replica has been another one since, and has led or not.
    assert_eq!(ignored_labels_told(&world.cluster), 1);

    // Refused by nobody: the rights of the chart are those that the program needs.
    let logs = world.kubelet.logs();
    let refused: Vec<&str> = logs.lines().filter(|line| line.contains("forbidden")).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));

    let jobs = || world.kubelet.jobs();
    world
        .ask(engine, "uninstall", &json!({}))
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

fn install(world: &World, engine: &Engine) {
    // With Fail, a gap would be seen.
    world.deploy(engine, "install", &json!({"webhooks": {"failurePolicy": "Fail"}}));
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
    assert!(
        entries(world).contains_key(older::THEN),
        "it was not called so then"
    );
    assert!(!older::knows_it(&definition(world)));
}

/// The entries for /validate, by name.
fn entries(world: &World) -> BTreeMap<String, Value> {
    let seen = world.get("validatingwebhookconfiguration", "zz-transom");
    let entries = seen["webhooks"].as_array().unwrap().iter();
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
    assert!(refused.err.contains("Windows has no user ids"), "{}", refused.err);
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
        node["metadata"]["labels"]["node-restriction.kubernetes.io/windows-build"] == "10.0.20348"
    };
    assert!(wait(Duration::from_secs(60), labelled), "the node gets no label");
    let ready = [
        "wait",
        "--for=condition=Ready",
        "wpp/default",
        "wnp/default",
        "--timeout=60s",
    ];
    world.cluster.kubectl(&ready).succeeded();
    // The ServiceAccount may tell of a label that does nothing.
    let label = ["label", "namespace", "apps", "transom.dev/validation=deny"];
    world.cluster.kubectl(&label).succeeded();
    let told = || ignored_labels_told(&world.cluster) == 1;
    assert!(wait(Duration::from_secs(60), told), "nobody tells of the label");
}

/// How many Events there are about labels of namespaces that do nothing.
fn ignored_labels_told(cluster: &ControlPlane) -> usize {
    let events = [
        "get",
        "events",
        "-n",
        "default",
        "--field-selector=reason=LabelIgnored,involvedObject.name=apps",
        "-o",
        "json",
    ];
    cluster.kubectl(&events).succeeded().objects().len()
}

fn upgrade_and_back(world: &World, engine: &Engine) {
    let kubelet = &world.kubelet;
    let stream = Stream::start(&world.cluster);
    let bundle = || {
        let webhooks = world.get("mutatingwebhookconfiguration", "zz-transom")["webhooks"].clone();
        (
            webhooks[0]["clientConfig"]["caBundle"].clone(),
            webhooks[0]["timeoutSeconds"].clone(),
        )
    };
    let (old, seconds) = bundle();
    assert_eq!(seconds, 2);
    let values = json!({"webhooks": {"failurePolicy": "Fail", "timeoutSeconds": 1, "reverseGuard": {"enabled": true}},
                        "log": {"filter": "debug"},
                        "podAnnotations": {"generation": "two"}});
    world.deploy(engine, "upgrade", &values);
    assert!(
        kubelet
            .jobs()
            .contains("windowspodpolicies.transom.dev is up to date (generation 2)"),
        "{}",
        kubelet.jobs()
    );
    assert!(older::knows_it(&definition(world)));
    assert_eq!(bundle(), (old.clone(), json!(1)));
    // An entry more and one of another name, which the controller publishes into, and lets go.
    let registered = || {
        let entries = entries(world);
        let shown = [
            "get",
            "validatingwebhookconfiguration",
            "zz-transom",
            "-o",
            "json",
            "--show-managed-fields",
        ];
        let owners =
            world.cluster.kubectl(&shown).succeeded().object()["metadata"]["managedFields"].to_string();
        entries.contains_key(GUARD)
            && entries.contains_key(older::NOW)
            && !entries.contains_key(older::THEN)
            && entries
                .values()
                .all(|entry| entry["clientConfig"]["caBundle"] == old)
            && !owners.contains("transom-certificates")
    };
    assert!(
        wait(Duration::from_secs(30), registered),
        "{:#?}\n{}",
        entries(world),
        kubelet.logs()
    );
    world.ask(engine, "rollback", &json!({"version": 1})).unwrap();
    kubelet.settled();
    assert_eq!(bundle(), (old, json!(2)));
    let entries: Vec<String> = entries(world).into_keys().collect();
    assert_eq!(entries, [older::THEN, "strong.validate.transom.dev"]);
    // The definition stays the newer one, which knows all that the older one knew.
    assert!(older::knows_it(&definition(world)));
    let (made, failed) = stream.end();
    assert!(
        failed.is_empty(),
        "{} of {made}: {}\n{}",
        failed.len(),
        failed.join("\n"),
        kubelet.logs()
    );
    assert!(made > 100, "only {made} pods");
    println!("{made} pods were created during an upgrade and its rollback");
    // One request for all; one for each would take longer than everything before.
    let all = [
        "delete",
        "--raw",
        "/api/v1/namespaces/apps/pods?gracePeriodSeconds=0",
    ];
    world.cluster.kubectl(&all).succeeded();
}
