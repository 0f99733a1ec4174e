//! What a drain promises, against a real control plane whose answers a proxy delays, refuses and loses: the lowest number of
//! Ready replicas is what the cluster shows. Without the programs (kube-controller-manager and kube-scheduler too) these tests
//! say so and prove nothing.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::command::{CommandRun, program, transom};
use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::faulty_proxy::{Fault, FaultyProxy};
use crate::support::kubelet::{Kubelets, join_with};
use crate::support::objects::{in_namespace, workload};

const CONTROLLERS: &str =
    "deployment-controller,replicaset-controller,statefulset-controller,disruption-controller";
const IMAGE: &str = "mcr.microsoft.com/windows/servercore:ltsc2022";
/// What every drain here allows.
const USUAL: [&str; 3] = ["--pool", "old", "--ignore-daemonsets"];
const SECOND: Duration = Duration::from_secs(1);

struct World {
    cluster: ControlPlane,
    kubelets: Kubelets,
    proxy: FaultyProxy,
}

/// Two nodes of each pool, of which the new one is cordoned until [`World::settle`].
fn world() -> Option<World> {
    world_of(CONTROLLERS)
}

/// The same with these controllers.
fn world_of(controllers: &str) -> Option<World> {
    let programs = programs_of_a_whole_control_plane("tests/cluster/drain_promises.rs")?;
    let cluster = ControlPlane::start(programs).unwrap();
    cluster.start_controllers_of(controllers).unwrap();
    cluster.start_scheduler().unwrap();
    for (node, build, pool) in [
        ("old-1", "10.0.20348", "old"),
        ("old-2", "10.0.20348", "old"),
        ("new-1", "10.0.26100", "new"),
        ("new-2", "10.0.26100", "new"),
    ] {
        join_with(&cluster, node, build, &[("agentpool", pool)]);
    }
    cluster.create_namespace("shop", &[]);
    cluster.kubectl(&["cordon", "-l", "agentpool=new"]).succeeded();
    let kubelets = Kubelets::start_with_pulls(&cluster, SECOND);
    let proxy = FaultyProxy::before(&cluster);
    Some(World {
        cluster,
        kubelets,
        proxy,
    })
}

impl World {
    fn create(&self, items: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.cluster
            .kubectl_with(&["create", "-f", "-"], &list.to_string())
            .succeeded();
    }

    fn pods(&self) -> Vec<Value> {
        pods(&self.cluster)
    }

    fn ready_on(&self, pool: &str) -> usize {
        let pods = self.pods();
        pods.iter()
            .filter(|pod| is_on(pod, pool) && is_ready(pod))
            .count()
    }

    /// Waits until so many pods are Ready on the old pool, and opens the new one.
    fn settle(&self, count: usize) {
        assert!(
            wait(60 * SECOND, || self.ready_on("old") == count),
            "{:#?}",
            self.pods()
        );
        self.cluster
            .kubectl(&["uncordon", "-l", "agentpool=new"])
            .succeeded();
        self.kubelets.lowest();
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        self.arguments_of(&self.proxy, more)
    }

    fn arguments_of(&self, proxy: &FaultyProxy, more: &[&str]) -> Vec<String> {
        let kubeconfig = proxy.kubeconfig(&self.cluster);
        let connection = ["drain", "--kubeconfig", &kubeconfig];
        connection.iter().chain(more).map(ToString::to_string).collect()
    }

    fn drain(&self, more: &[&str]) -> CommandRun {
        let arguments = self.arguments(&[&USUAL, more].concat());
        transom(
            Path::new("."),
            &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    }

    fn start(&self, more: &[&str]) -> Child {
        let mut command = Command::new(program());
        command
            .args(self.arguments(more))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn lowest(&self) -> BTreeMap<String, usize> {
        self.kubelets.lowest()
    }

    fn evictions(&self) -> usize {
        let requests = self.proxy.requests();
        requests
            .iter()
            .filter(|request| request.ends_with("/eviction"))
            .count()
    }
}

fn pods(cluster: &ControlPlane) -> Vec<Value> {
    let listed = cluster.kubectl(&["-n", "shop", "get", "pods", "-o", "json"]);
    if listed.ok { listed.objects() } else { Vec::new() }
}

fn is_on(pod: &Value, pool: &str) -> bool {
    pod["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| node.starts_with(pool))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|it| it["type"] == "Ready" && it["status"] == "True");
    pod["metadata"]["deletionTimestamp"].is_null() && ready.next().is_some()
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap()
}

/// A pod fails: it is Running, and no longer Ready.
fn fail(cluster: &ControlPlane, pod: &str) {
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}).to_string();
    let patch = [
        "-n",
        "shop",
        "patch",
        "pod",
        pod,
        "--subresource=status",
        "--type=strategic",
        "-p",
        &status,
    ];
    cluster.kubectl(&patch).succeeded();
}

fn template(image: &str) -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "app", "image": format!("{IMAGE}-{image}"), "resources": {"requests": {"cpu": "1"}}}]})
}

fn deployment(name: &str, replicas: usize) -> Value {
    in_namespace("shop", workload("Deployment", name, &template(name), replicas))
}

fn is_eviction(method: &str, path: &str) -> bool {
    method == "POST" && path.ends_with("/eviction")
}

#[test]
fn an_eviction_is_not_sent_again_when_the_api_server_asks_for_it() {
    let Some(world) = world() else { return };
    world.create(&[deployment("web", 3)]);
    world.settle(3);
    let evicted: Arc<Mutex<Option<String>>> = Arc::default();
    let noted = Arc::clone(&evicted);
    world.proxy.fault(move |method, path| {
        let mut noted = noted.lock().unwrap();
        if is_eviction(method, path) && noted.is_none() {
            *noted = path.split('/').nth_back(1).map(str::to_owned);
            return Fault::Answer(429, Duration::ZERO, 8);
        }
        Fault::None
    });
    let child = world.start(&[&USUAL[..], &["--timeout", "40s"]].concat());
    assert!(wait(60 * SECOND, || evicted.lock().unwrap().is_some()));
    std::thread::sleep(SECOND);
    let evicted = evicted.lock().unwrap().clone();
    let pods = world.pods();
    let other = pods.iter().find(|pod| Some(name(pod)) != evicted.as_deref());
    fail(&world.cluster, name(other.unwrap()));
    let ended = child.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(world.lowest()["web"] >= 2, "{:?} {out}", world.pods().len());
    assert!(out.contains("the proxy answers 429"), "{out}");
}

#[test]
fn a_list_that_takes_long_decides_no_eviction() {
    let Some(world) = world() else { return };
    world.create(&[deployment("web", 3)]);
    world.settle(3);
    world.proxy.fault(|method, path| {
        if method == "GET" && path.ends_with("/namespaces/shop/poddisruptionbudgets") {
            return Fault::Delay(12 * SECOND);
        }
        Fault::None
    });
    let child = world.start(&[&USUAL[..], &["--timeout", "45s"]].concat());
    let is_listed = || {
        world
            .proxy
            .requests()
            .iter()
            .any(|it| it.ends_with("/namespaces/shop/poddisruptionbudgets"))
    };
    assert!(wait(60 * SECOND, is_listed));
    std::thread::sleep(6 * SECOND);
    let pods = world.pods();
    fail(&world.cluster, name(&pods[0]));
    let ended = child.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(world.lowest()["web"] >= 2, "{out}");
    assert!(out.contains("the lists of the namespace shop take"), "{out}");
    assert_eq!(world.evictions(), 0, "{out}");
}

/// A custom resource with a scale subresource.
fn definition(group: &str, kind: &str, plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// The controller of a custom resource, which creates missing pods late.
struct CustomController {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for CustomController {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

impl World {
    /// Creates a custom resource, whose object is returned.
    fn create_custom(&self, group: &str, kind: &str, plural: &str, name: &str, replicas: usize) -> Value {
        let defined = definition(group, kind, plural).to_string();
        self.cluster
            .kubectl_with(&["create", "-f", "-"], &defined)
            .succeeded();
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name, "namespace": "shop"},
            "spec": {"replicas": replicas}});
        let create = || {
            self.cluster
                .kubectl_with(&["create", "-o", "json", "-f", "-"], &object.to_string())
        };
        let mut created = create();
        assert!(
            wait(30 * SECOND, || {
                if !created.ok {
                    created = create();
                }
                created.ok
            }),
            "{created:?}"
        );
        created.object()
    }

    fn controller_of(&self, owner: &Value, app: &'static str, late: Duration) -> CustomController {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let kubeconfig = self.cluster.path("admin.kubeconfig").display().to_string();
        let owner = owner.clone();
        let kubectl = Path::new(&std::env::var("KUBEBUILDER_ASSETS").unwrap_or_default()).join("kubectl");
        let thread = std::thread::spawn(move || {
            let run = |args: &[&str], input: &str| {
                use std::io::Write as _;
                let mut command = Command::new(&kubectl);
                command
                    .args(["--kubeconfig", &kubeconfig, "-n", "shop"])
                    .args(args);
                command
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null());
                let mut child = command.spawn().unwrap();
                child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
                String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
            };
            let wanted = usize::try_from(owner["spec"]["replicas"].as_u64().unwrap()).unwrap();
            let (mut created, mut short_since) = (0, None);
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(300));
                let listed = run(&["get", "pods", "-l", &format!("app={app}"), "-o", "json"], "");
                let Ok(listed) = serde_json::from_str::<Value>(&listed) else {
                    continue;
                };
                let pods = listed["items"].as_array().unwrap().iter();
                let there = pods
                    .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
                    .count();
                if there >= wanted {
                    short_since = None;
                    continue;
                }
                let since = *short_since.get_or_insert_with(Instant::now);
                if created > 0 && created >= wanted && since.elapsed() < late {
                    continue;
                }
                for _ in there..wanted {
                    created += 1;
                    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{app}-{created}"),
                        "labels": {"app": app}, "ownerReferences": [{"apiVersion": owner["apiVersion"], "kind": owner["kind"],
                            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": true}]},
                        "spec": template(app)});
                    run(&["create", "-f", "-"], &pod.to_string());
                }
                short_since = None;
            }
        });
        CustomController {
            stop,
            thread: Some(thread),
        }
    }
}

#[test]
fn a_drain_that_is_started_again_knows_how_many_replicas_a_custom_resource_should_have() {
    let Some(world) = world() else { return };
    let owner = world.create_custom("apps.kruise.io", "CloneSet", "clonesets", "web", 4);
    let _controller = world.controller_of(&owner, "web", 10 * SECOND);
    world.settle(4);
    for _ in 0..2 {
        let before = world.evictions();
        let mut child = world.start(&USUAL);
        assert!(wait(90 * SECOND, || world.evictions() > before
            || child.try_wait().unwrap().is_some()));
        std::thread::sleep(SECOND);
        let _ = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        let asked = Instant::now();
        child.wait().unwrap();
        assert!(asked.elapsed() < 2 * SECOND, "{:?}", asked.elapsed());
    }
    let run = world.drain(&[]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(world.lowest()["web"] >= 3, "{}", run.out);
}

#[test]
fn a_stateful_set_of_another_group_has_its_own_replicas() {
    let Some(world) = world() else { return };
    let owner = world.create_custom("apps.kruise.io", "StatefulSet", "statefulsets", "db", 4);
    world.create(&[in_namespace(
        "shop",
        workload("StatefulSet", "db", &template("db"), 0),
    )]);
    let _controller = world.controller_of(&owner, "db", 3 * SECOND);
    world.settle(4);
    let run = world.drain(&[]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(world.lowest()["db"] >= 3, "{}", run.out);
    assert_eq!(world.ready_on("new"), 4);
}

fn transom_of(arguments: &[String]) -> CommandRun {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    transom(Path::new("."), &arguments)
}

/// When requests passed a proxy: method and path.
type RequestTimes = Arc<Mutex<Vec<(String, Instant)>>>;

/// Notes when requests pass a proxy, which delays slow ones.
fn note_times(proxy: &FaultyProxy, is_slow: impl Fn(&str) -> bool + Send + 'static) -> RequestTimes {
    let times = RequestTimes::default();
    let noted = Arc::clone(&times);
    proxy.fault(move |method, path| {
        let request = format!("{method} {path}");
        noted.lock().unwrap().push((request, Instant::now()));
        if is_slow(path) {
            Fault::Delay(120 * SECOND)
        } else {
            Fault::None
        }
    });
    times
}

/// When the first and the last one of these requests passed.
fn first_and_last(times: &RequestTimes, is_meant: impl Fn(&str) -> bool) -> (Instant, Instant) {
    let times = times.lock().unwrap();
    let mut meant = times
        .iter()
        .filter(|(request, _)| is_meant(request))
        .map(|(_, time)| *time);
    let first = meant.next().unwrap();
    (first, meant.last().unwrap_or(first))
}

#[test]
fn a_second_drain_says_who_is_at_work_and_one_whose_lease_is_taken_stops_before_the_other_begins() {
    let Some(world) = world() else { return };
    let names: Vec<String> = (0..8).map(|index| format!("web-{index}")).collect();
    let small = |name: &String| {
        let mut set = deployment(name, 14);
        set["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m".into();
        set
    };
    world.create(&names.iter().map(small).collect::<Vec<_>>());
    world.settle(8 * 14);
    // When its Lease is taken, the first drain does not see that for 9 s.
    let cut: Arc<Mutex<Option<Instant>>> = Arc::default();
    let is_cut = Arc::clone(&cut);
    let of_first = note_times(&world.proxy, move |path| {
        let since = *is_cut.lock().unwrap();
        path.contains("/leases") && since.is_some_and(|since| since.elapsed() < 9 * SECOND)
    });
    let first = world.start(&["old-1", "--min-ready", "1s"]);
    assert!(wait(60 * SECOND, || world.evictions() > 0));
    let proxy = FaultyProxy::before(&world.cluster);
    let of_forced = note_times(&proxy, |_| false);
    let second = |more: &[&str]| {
        let arguments = [&["old-2", "--min-ready", "1s"], more].concat();
        transom_of(&world.arguments_of(&proxy, &arguments))
    };
    for more in [&[][..], &["--dry-run"]] {
        let refused = second(more);
        assert_eq!(refused.status, 1, "{}{}", refused.out, refused.err);
        for text in [
            "another drain is at work since ",
            ", process ",
            "nothing was changed",
        ] {
            assert!(refused.out.contains(text), "{text}: {}", refused.out);
        }
    }
    let planned = second(&["--dry-run", "--force-lock"]);
    assert!(
        planned.status == 0 && planned.out.contains("another drain is at work since "),
        "{}{}",
        planned.out,
        planned.err
    );
    *cut.lock().unwrap() = Some(Instant::now());
    let forced = second(&["--force-lock", "--timeout", "80s"]);
    assert!(
        forced
            .out
            .contains("--force-lock stops it, and this drain begins 10 s after that"),
        "{}{}",
        forced.out,
        forced.err
    );
    let ended = first.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(
        out.contains("has taken the Lease kube-system/transom-drain"),
        "{out}"
    );
    let (taken, _) = first_and_last(&of_forced, |request| {
        request.starts_with("PUT ") && request.contains("/leases/")
    });
    let (begin, _) = first_and_last(&of_forced, |request| request.starts_with("PATCH "));
    let (_, last) = first_and_last(&of_first, |request| request.ends_with("/eviction"));
    assert!(last < begin, "{out}\n{}", forced.out);
    assert!(begin - taken >= 10 * SECOND, "{:?}", begin - taken);
    let lowest = world.lowest();
    for name in &names {
        assert!(lowest[name] >= 13, "{name}: {lowest:?}");
    }
}

#[test]
fn the_replica_sets_of_a_rollout_share_one_floor() {
    let Some(world) = world() else { return };
    let owner = world.create_custom("argoproj.io", "Rollout", "rollouts", "web", 6);
    let set = |track: &str, replicas: usize| {
        let mut set = in_namespace(
            "shop",
            workload("ReplicaSet", &format!("web-{track}"), &template("web"), replicas),
        );
        set["metadata"]["ownerReferences"] = json!([{"apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": "web",
            "uid": owner["metadata"]["uid"], "controller": true}]);
        let labels = json!({"app": "web", "track": track});
        set["spec"]["selector"] = json!({"matchLabels": labels});
        set["spec"]["template"]["metadata"]["labels"] = labels;
        set
    };
    world.create(&[set("stable", 4), set("canary", 2)]);
    world.settle(6);
    let run = world.drain(&[]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(world.lowest()["web"] >= 5, "{}", run.out);
}

#[test]
fn replacements_that_fail_after_they_were_ready_are_not_available() {
    let Some(world) = world() else { return };
    world.create(&[deployment("web", 4)]);
    world.settle(4);
    let child = world.start(&[&USUAL[..], &["--timeout", "60s"]].concat());
    let mut since: BTreeMap<String, Instant> = BTreeMap::new();
    let begin = Instant::now();
    while begin.elapsed() < 70 * SECOND {
        std::thread::sleep(Duration::from_millis(300));
        for pod in world
            .pods()
            .iter()
            .filter(|pod| is_on(pod, "new") && is_ready(pod))
        {
            let ready = *since.entry(name(pod).to_owned()).or_insert_with(Instant::now);
            if ready.elapsed() > 8 * SECOND {
                fail(&world.cluster, name(pod));
            }
        }
    }
    let ended = child.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(!since.is_empty(), "{out}");
    assert!(world.lowest()["web"] >= 3, "{out}");
    assert!(out.contains("web has 3 of 4 replicas available"), "{out}");
}

#[test]
fn preemption_is_foreseen_and_named() {
    let Some(world) = world() else { return };
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000});
    world
        .cluster
        .kubectl_with(&["create", "-f", "-"], &class.to_string())
        .succeeded();
    let sized = |name: &str, pool: &str, class: Option<&str>| {
        let mut set = deployment(name, 2);
        let spec = &mut set["spec"]["template"]["spec"];
        spec["nodeSelector"]["agentpool"] = pool.into();
        spec["containers"][0]["resources"]["requests"]["cpu"] = "40".into();
        if let Some(class) = class {
            spec["priorityClassName"] = class.into();
        }
        set
    };
    let mut high = sized("high", "old", Some("high"));
    let spec = &mut high["spec"]["template"]["spec"];
    spec["nodeSelector"].as_object_mut().unwrap().remove("agentpool");
    world.create(&[high]);
    world.settle(2);
    world.create(&[sized("low", "new", None)]);
    assert!(
        wait(60 * SECOND, || world.ready_on("new") == 2),
        "{:#?}",
        world.pods()
    );
    world.lowest();
    let run = world.drain(&[]);
    assert_eq!(run.status, 1, "{}{}", run.out, run.err);
    assert!(
        run.out
            .contains("outage: Deployment shop/low: the scheduler would preempt shop/low-")
            && run.out.contains("Deployment shop/high"),
        "{}",
        run.out
    );
    assert_eq!((world.lowest()["low"], world.evictions()), (2, 0));
}

#[test]
fn a_budget_that_the_api_server_refuses_does_not_hold_the_others_and_pauses() {
    // Nothing updates budgets, so the API server refuses as long as it waits for that.
    let Some(world) = world_of("deployment-controller,replicaset-controller") else {
        return;
    };
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a-stuck", "namespace": "shop"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a-stuck"}}}});
    world.create(&[deployment("a-stuck", 4), deployment("web", 3), budget]);
    let status = json!({"status": {"disruptionsAllowed": 1, "currentHealthy": 4, "desiredHealthy": 3, "expectedPods": 4}});
    let patch = [
        "-n",
        "shop",
        "patch",
        "pdb",
        "a-stuck",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status.to_string(),
    ];
    world.cluster.kubectl(&patch).succeeded();
    world.settle(7);
    let run = world.drain(&["--progress-timeout", "50s"]);
    assert_eq!(run.status, 1, "{}{}", run.out, run.err);
    for text in [
        "failed to evict shop/a-stuck-",
        "The disruption budget a-stuck is still being processed by the server. (DisruptionBudget)",
        "stopped: nothing has improved for 50 s: the API server evicts no pod of Deployment shop/a-stuck now: ",
    ] {
        assert!(run.out.contains(text), "{text}\n{}", run.out);
    }
    assert_eq!(world.ready_on("new"), 3, "{}", run.out);
    let requests = world.proxy.requests();
    let refused = requests
        .iter()
        .filter(|it| it.contains("/a-stuck-") && it.ends_with("/eviction"));
    // After 5, 10, 20, 40 and 80 s, whichever pod it is.
    assert!(
        (2..=6).contains(&refused.clone().count()),
        "{}: {}",
        refused.count(),
        run.out
    );
}

#[test]
fn one_answer_409_or_401_ends_nothing() {
    let Some(world) = world() else { return };
    world.create(&[deployment("web", 3)]);
    world.settle(3);
    let mut answered: BTreeMap<String, u16> = BTreeMap::new();
    let mut has_begun = false;
    let faults: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&faults);
    world.proxy.fault(move |method, path| {
        has_begun |= path.ends_with("/selfsubjectaccessreviews");
        let kind = path
            .split('/')
            .filter(|part| part.contains("node") || !part.contains('-'));
        let kind = format!("{method} {}", kind.collect::<Vec<_>>().join("/"));
        let times = answered.entry(kind.clone()).or_default();
        if !has_begun || *times == 2 {
            return Fault::None;
        }
        *times += 1;
        noted.lock().unwrap().push(kind);
        Fault::Answer(if *times == 1 { 401 } else { 409 }, Duration::ZERO, 0)
    });
    let run = world.drain(&[]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(world.lowest()["web"] >= 2, "{}", run.out);
    assert_eq!(world.ready_on("new"), 3);
    let faults = faults.lock().unwrap();
    for kind in [
        "/eviction",
        "/leases",
        "/pods",
        "/nodes",
        "/poddisruptionbudgets",
        "/deployments",
    ] {
        assert!(
            faults.iter().any(|fault| fault.contains(kind)),
            "{kind}: {faults:?}"
        );
    }
}

#[test]
fn missing_rights_and_an_output_that_cannot_be_written_end_the_drain_before_it_begins() {
    let Some(world) = world() else { return };
    world.create(&[deployment("web", 2)]);
    world.settle(2);
    let page = include_str!("../../docs/reference/rights.md");
    let mut blocks = page
        .split("```yaml\n")
        .filter_map(|rest| rest.split("```").next());
    let role = blocks
        .find(|block| block.contains("name: transom-drain\n"))
        .unwrap();
    let bind = [
        "create",
        "clusterrolebinding",
        "drainer",
        "--clusterrole=transom-drain",
        "--user=drainer",
    ];
    world.cluster.kubectl(&bind).succeeded();
    for (right, shown) in [
        ("pods/eviction", "create pods/eviction in the namespace shop"),
        ("patch", "patch nodes"),
        ("create, update", "create leases in the namespace kube-system"),
    ] {
        assert!(role.contains(right), "{right}: {role}");
        let lacking = role.replace(right, "list");
        world
            .cluster
            .kubectl_with(&["apply", "-f", "-"], &lacking)
            .succeeded();
        for more in [&["--as", "drainer"][..], &["--as", "drainer", "--dry-run"]] {
            let run = world.drain(more);
            assert_eq!(run.status, 2, "{right}: {}{}", run.out, run.err);
            let text = "nothing was changed, because rights are missing: ";
            assert!(
                run.err.contains(text) && run.err.contains(shown),
                "{right}: {}",
                run.err
            );
        }
    }
    for more in [
        &["-o", "json=/nowhere/report.json"][..],
        &["-o", "json=/nowhere/report.json", "--dry-run"],
    ] {
        let run = world.drain(more);
        assert!(
            run.status == 2
                && run
                    .err
                    .contains("cannot write the output to /nowhere/report.json"),
            "{}{}",
            run.out,
            run.err
        );
    }
    let nodes = world
        .cluster
        .kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}"]);
    assert_eq!((nodes.succeeded().out.as_str(), world.evictions()), ("", 0));
}

#[test]
fn a_node_that_comes_back_under_its_name_is_not_drained() {
    let Some(world) = world() else { return };
    world.create(&[deployment("web", 6)]);
    world.settle(6);
    let old = world
        .pods()
        .iter()
        .filter(|pod| pod["spec"]["nodeName"] == "old-2")
        .count();
    assert!(old > 0);
    let first = world.start(&USUAL);
    assert!(wait(60 * SECOND, || world.evictions() > 0));
    world.cluster.kubectl(&["delete", "node", "old-2"]).succeeded();
    join_with(&world.cluster, "old-2", "10.0.26100", &[("agentpool", "new")]);
    let ended = first.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{out}");
    assert!(
        out.contains("not drained, because another node has this name now: old-2"),
        "{out}"
    );
    let node = world
        .cluster
        .kubectl(&["get", "node", "old-2", "-o", "json"])
        .object();
    assert_eq!(node["spec"]["unschedulable"], Value::Null, "{out}");
    let on_first = world
        .pods()
        .iter()
        .filter(|pod| pod["spec"]["nodeName"] == "old-1")
        .count();
    assert_eq!(on_first, 0, "{out}");
    assert!(world.lowest()["web"] >= 5, "{out}");
}

#[test]
fn a_workload_without_room_does_not_hold_one_that_runs_on_other_nodes() {
    let Some(world) = world() else { return };
    for (label, nodes) in [
        ("small", ["old-1", "old-2", "new-1"]),
        ("large", ["old-1", "old-2", "new-2"]),
    ] {
        for node in nodes {
            world
                .cluster
                .kubectl(&["label", "node", node, &format!("{label}=yes")])
                .succeeded();
        }
    }
    let on = |name: &str, label: &str, replicas, cpus: &str| {
        let mut set = deployment(name, replicas);
        let spec = &mut set["spec"]["template"]["spec"];
        spec["nodeSelector"][label] = "yes".into();
        spec["containers"][0]["resources"]["requests"]["cpu"] = cpus.into();
        set
    };
    world.create(&[on("large", "large", 2, "40"), on("small", "small", 4, "1")]);
    world.settle(6);
    let blocker = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "blocker", "namespace": "default"},
        "spec": {"nodeName": "new-2", "containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "30"}}}]}});
    world.create(&[blocker]);
    let run = world.drain(&["--pending-timeout", "4s"]);
    assert_eq!(run.status, 1, "{}{}", run.out, run.err);
    assert!(
        run.out.contains("stopped: no node is found for shop/large-")
            && run.out.contains("; still to move: shop/large-"),
        "{}",
        run.out
    );
    let pods = world.pods();
    let moved = pods.iter().filter(|pod| is_on(pod, "new-1") && is_ready(pod));
    assert_eq!(moved.count(), 4, "{}", run.out);
    assert!(world.lowest()["large"] >= 1, "{}", run.out);
}

/// How the replacements of a workload behave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replacements {
    Serve,
    FailAfter(Duration),
}

struct Compared {
    name: String,
    replicas: usize,
    budget: Option<Value>,
    min_ready: u64,
    replacements: Replacements,
    floor: usize,
}

/// Forty workloads: replicas, budgets, `minReadySeconds`, and replacements that serve, fail late, or never serve.
fn compared() -> Vec<Compared> {
    let all = (0..40).map(|index: usize| {
        let replicas = 2 + index % 5;
        let budget = match index / 5 % 4 {
            1 => Some(json!({"maxUnavailable": 1})),
            2 => Some(json!({"minAvailable": replicas - 1})),
            _ => None,
        };
        let replacements = match index % 8 {
            3 => Replacements::FailAfter(7 * SECOND),
            6 => Replacements::FailAfter(Duration::ZERO),
            _ => Replacements::Serve,
        };
        let min_ready = if index.is_multiple_of(3) { 0 } else { 12 };
        let name = format!("w{index:02}");
        Compared {
            name,
            replicas,
            budget,
            min_ready,
            replacements,
            floor: replicas - 1,
        }
    });
    all.collect()
}

/// Fails replacements as their workloads say, until it is dropped.
fn misbehaving(world: &World, compared: &[Compared]) -> CustomController {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let failing = compared.iter().filter_map(|it| match it.replacements {
        Replacements::FailAfter(after) => Some((it.name.clone(), after)),
        Replacements::Serve => None,
    });
    let failing: BTreeMap<String, Duration> = failing.collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let config = runtime.block_on(world.cluster.config());
    let thread = std::thread::spawn(move || {
        runtime.block_on(async {
            use k8s_openapi::api::core::v1::Pod;
            use kube::api::{ListParams, Patch, PatchParams};
            let client = kube::Client::try_from(config).unwrap();
            let pods: kube::Api<Pod> = kube::Api::namespaced(client, "shop");
            let mut since: BTreeMap<String, Instant> = BTreeMap::new();
            while !stopped.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let Ok(listed) = pods.list(&ListParams::default()).await else {
                    continue;
                };
                for pod in listed {
                    let pod = serde_json::to_value(pod).unwrap();
                    let after = failing.get(pod["metadata"]["labels"]["app"].as_str().unwrap_or_default());
                    let Some(after) = after.filter(|_| is_on(&pod, "new") && is_ready(&pod)) else {
                        continue;
                    };
                    let ready = *since.entry(name(&pod).to_owned()).or_insert_with(Instant::now);
                    if ready.elapsed() >= *after {
                        let status =
                            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
                        let params = PatchParams::default();
                        let _ = pods
                            .patch_status(name(&pod), &params, &Patch::Strategic(status))
                            .await;
                    }
                }
            }
        });
    });
    CustomController {
        stop,
        thread: Some(thread),
    }
}

fn lowest_of(compared: &[Compared], drain: impl FnOnce(&World)) -> Option<BTreeMap<String, usize>> {
    let world = world()?;
    let mut items = Vec::new();
    for it in compared {
        let mut set = deployment(&it.name, it.replicas);
        set["spec"]["minReadySeconds"] = it.min_ready.into();
        set["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m".into();
        items.push(set);
        if let Some(budget) = &it.budget {
            let mut spec = budget.clone();
            spec["selector"] = json!({"matchLabels": {"app": it.name}});
            items.push(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": it.name, "namespace": "shop"}, "spec": spec}));
        }
    }
    world.create(&items);
    world.settle(compared.iter().map(|it| it.replicas).sum());
    std::thread::sleep(15 * SECOND);
    let misbehaves = misbehaving(&world, compared);
    world.lowest();
    drain(&world);
    let lowest = world.lowest();
    drop(misbehaves);
    Some(lowest)
}

/// Writes the table to the file that `TRANSOM_DRAIN_TABLE` names.
#[test]
#[ignore = "takes ten minutes"]
fn the_lowest_ready_replicas_of_forty_workloads_beside_kubectl_drain() {
    use std::fmt::Write as _;
    let compared = compared();
    let ours = lowest_of(&compared, |world| {
        let run = world.drain(&["--progress-timeout", "90s"]);
        eprintln!("{}{}", run.out, run.err);
    });
    let Some(ours) = ours else { return };
    let theirs = lowest_of(&compared, |world| {
        std::thread::scope(|scope| {
            for node in ["old-1", "old-2"] {
                let cluster = &world.cluster;
                scope.spawn(move || {
                    cluster.kubectl(&["drain", node, "--ignore-daemonsets", "--timeout=180s"])
                });
            }
        });
        std::thread::sleep(20 * SECOND);
    });
    let theirs = theirs.unwrap();
    let mut table = "| workload | replicas | budget | minReadySeconds | replacements | floor | transom drain | kubectl drain |\n\
                     |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for it in &compared {
        let Compared {
            name,
            replicas,
            budget,
            min_ready,
            floor,
            ..
        } = it;
        let budget = budget
            .as_ref()
            .map_or_else(|| "none".to_owned(), std::string::ToString::to_string);
        let replacements = match it.replacements {
            Replacements::Serve => "serve".to_owned(),
            Replacements::FailAfter(after) => format!("fail {} s after they are Ready", after.as_secs()),
        };
        let (own, other) = (ours[name], theirs[name]);
        writeln!(
            table,
            "| {name} | {replicas} | {budget} | {min_ready} | {replacements} | {floor} | {own} | {other} |"
        )
        .unwrap();
    }
    if let Some(file) = std::env::var_os("TRANSOM_DRAIN_TABLE") {
        std::fs::write(file, &table).unwrap();
    }
    let broken = compared.iter().filter(|it| ours[&it.name] < it.floor);
    assert_eq!(broken.count(), 0, "{table}");
}

/// Seconds, requests, and how many workloads were how many replicas short, of a drain of 300 pods on 30 nodes.
fn measured(drain: impl FnOnce(&World, &[String])) -> Option<String> {
    let programs = programs_of_a_whole_control_plane("tests/cluster/drain_promises.rs")?;
    let cluster = ControlPlane::start(programs).unwrap();
    cluster.start_controllers_of(CONTROLLERS).unwrap();
    cluster.start_scheduler().unwrap();
    let nodes: Vec<String> = (0..30).map(|index| format!("old-{index:02}")).collect();
    for node in &nodes {
        join_with(&cluster, node, "10.0.20348", &[("agentpool", "old")]);
    }
    for index in 0..30 {
        join_with(
            &cluster,
            &format!("new-{index:02}"),
            "10.0.26100",
            &[("agentpool", "new")],
        );
    }
    cluster.create_namespace("shop", &[]);
    cluster.kubectl(&["cordon", "-l", "agentpool=new"]).succeeded();
    let world = World {
        kubelets: Kubelets::start_with_pulls(&cluster, 2 * SECOND),
        proxy: FaultyProxy::before(&cluster),
        cluster,
    };
    let replicas: BTreeMap<String, usize> = (0..80)
        .map(|index| (format!("w{index:02}"), if index < 60 { 4 } else { 3 }))
        .collect();
    world.create(
        &replicas
            .iter()
            .map(|(name, replicas)| deployment(name, *replicas))
            .collect::<Vec<_>>(),
    );
    let is_settled = || world.ready_on("old") == 300;
    assert!(wait(300 * SECOND, is_settled), "{}", world.ready_on("old"));
    world
        .cluster
        .kubectl(&["uncordon", "-l", "agentpool=new"])
        .succeeded();
    std::thread::sleep(15 * SECOND);
    world.lowest();
    let (before, begin) = (world.proxy.requests().len(), Instant::now());
    drain(&world, &nodes);
    let (seconds, requests) = (begin.elapsed().as_secs(), world.proxy.requests().len() - before);
    let mut short: BTreeMap<usize, usize> = BTreeMap::new();
    for (name, lowest) in world.lowest() {
        *short.entry(replicas[&name] - lowest).or_default() += 1;
    }
    Some(format!(
        "{seconds} s, {requests} requests, workloads by missing replicas: {short:?}, moved: {}",
        world.ready_on("new")
    ))
}

#[test]
#[ignore = "takes half an hour"]
fn three_hundred_pods_on_thirty_nodes_beside_kubectl_drain() {
    for more in [&[][..], &["--min-ready", "0s"]] {
        let measured = measured(|world, _| {
            let run = world.drain(more);
            assert_eq!(run.status, 0, "{}{}", run.out, run.err);
        });
        eprintln!("transom drain {more:?}: {measured:?}");
    }
    let measured = measured(|world, nodes| {
        let kubeconfig = world.proxy.kubeconfig(&world.cluster);
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let command = ["drain", "--kubeconfig", &kubeconfig, "--ignore-daemonsets"];
        world
            .cluster
            .kubectl(&[&command[..], &nodes].concat())
            .succeeded();
    });
    eprintln!("kubectl drain: {measured:?}");
}
