//! What a pass writes and reports if the API server refuses, or does not answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Method;
use k8s_openapi::api::core::v1::Taint as NodeTaint;
use serde_json::{Value, json};

use super::*;
use crate::cluster::cache::ClusterCache;
use crate::cluster::snapshot::SnapshotBuilder;
use crate::cluster::test_client::{Reply, serving};
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::{OS_LABEL, Taint};
use crate::process::metrics::Metrics;

const LATE: i64 = 100_000;
const UNINITIALIZED: &str = Taint::UNINITIALIZED_KEYS[1];

fn taint(key: &str) -> NodeTaint {
    NodeTaint {
        key: key.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..NodeTaint::default()
    }
}

/// A node with the startup taint, of this age in seconds.
fn node(name: &str, age: i64) -> NodeView {
    NodeView {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        resource_version: "7".to_owned(),
        operating_system: "windows".to_owned(),
        created: Some(Timestamp::now() - jiff::SignedDuration::from_secs(age)),
        taints: vec![taint(Taint::STARTUP_KEY)],
        ..NodeView::default()
    }
}

fn snapshot(nodes: &[NodeView], policies: &[(&str, Value)]) -> Snapshot {
    let policies = policies.iter().map(|(name, spec)| {
        let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
            "metadata": {"name": name, "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!(spec))});
        (
            (*name).to_owned(),
            Arc::new(serde_json::from_value(policy).unwrap()),
        )
    });
    let nodes = nodes
        .iter()
        .map(|node| (node.name.clone(), Arc::new(node.clone())));
    let cache = ClusterCache {
        kubernetes: 36,
        nodes: nodes.collect(),
        node_policies: policies.collect(),
        ..ClusterCache::default()
    };
    let today = jiff::civil::date(2026, 1, 1);
    SnapshotBuilder::new(Facts::new(36, today), []).take(&Arc::new(cache), None, Timestamp::UNIX_EPOCH)
}

/// Requests other than reads: the method, the path, and the body.
type Sent = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// A controller with a server, and what both show.
struct Gate {
    controller: StartupController,
    published: watch::Receiver<Arc<StartupStates>>,
    metrics: Metrics,
    sent: Sent,
    reads: Arc<Mutex<Vec<String>>>,
}

impl Gate {
    /// `special`: replies other than success, by method and path.
    fn new(
        account: Option<&str>,
        special: impl Fn(&Method, &str) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let (sent, reads) = (Sent::default(), Arc::<Mutex<Vec<String>>>::default());
        let (log, read) = (Arc::clone(&sent), Arc::clone(&reads));
        let client = serving(move |method, uri, body, _| {
            let path = uri.path();
            let json: Value = serde_json::from_str(body).unwrap_or_default();
            if *method == Method::GET {
                read.lock().unwrap().push(uri.to_string());
            } else {
                let request = (method.clone(), path.to_owned(), json.clone());
                log.lock().unwrap().push(request);
            }
            let name = path.rsplit('/').next().unwrap_or_default();
            let released =
                json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "8"}});
            special(method, path).unwrap_or_else(|| match *method {
                Method::POST => Reply::Json(201, json),
                Method::PATCH => Reply::Json(200, released),
                Method::DELETE => Reply::Json(200, json!({"kind": "Status", "status": "Success"})),
                _ => Reply::Json(200, json!({"metadata": {}, "items": []})),
            })
        });
        let (publish, published) = watch::channel(Arc::default());
        let metrics = Metrics::new("0", None);
        let parts = StartupParts {
            settings: StartupSettings::default(),
            account: PullerAccount {
                namespace: "transom-system".to_owned(),
                name: account.map(str::to_owned),
            },
            writer: Writer::new(client, None, 50),
            clock: ServerClock::default(),
            images: None,
            metrics: StartupMetrics::new(&metrics),
            publish,
        };
        Gate {
            controller: StartupController::new(parts),
            published,
            metrics,
            sent,
            reads,
        }
    }

    async fn pass(&mut self, nodes: &[NodeView], policies: &[(&str, Value)]) {
        let _ = self.controller.pass(&snapshot(nodes, policies)).await;
    }

    fn problem(&self, policy: &str) -> Option<(&'static str, String)> {
        self.published.borrow().get(policy)?.problem.clone()
    }

    fn reason(&self, policy: &str) -> Option<&'static str> {
        self.problem(policy).map(|(reason, _)| reason)
    }

    /// What was sent with this method to paths that end in this, and is forgotten now.
    fn take(&self, method: &Method, end: &str) -> Vec<(String, Value)> {
        let mut sent = self.sent.lock().unwrap();
        let is_it = |sent: &(Method, String, Value)| sent.0 == *method && sent.1.ends_with(end);
        let taken = sent.iter().filter(|sent| is_it(sent));
        let taken = taken
            .map(|(_, path, body)| (path.clone(), body.clone()))
            .collect();
        sent.retain(|sent| !is_it(sent));
        taken
    }

    fn reads(&self, part: &str) -> usize {
        let mut reads = self.reads.lock().unwrap();
        let count = reads.iter().filter(|read| read.contains(part)).count();
        reads.retain(|read| !read.contains(part));
        count
    }
}

fn refused(message: &str) -> Reply {
    Reply::Json(
        403,
        json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message}),
    )
}

fn by_pods(more: &Value) -> Value {
    let mut startup =
        json!({"puller": "Pods", "imageSource": "Listed", "images": ["x"], "maxConcurrentNodes": 1000});
    for (field, value) in more.as_object().unwrap() {
        startup[field] = value.clone();
    }
    json!({"startup": startup})
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_released_is_reported_once_with_the_missing_right() {
    let may_patch = Arc::new(AtomicBool::new(false));
    let may = Arc::clone(&may_patch);
    let mut gate = Gate::new(None, move |method, _| {
        let is_refused = *method == Method::PATCH && !may.load(Ordering::Relaxed);
        is_refused.then(|| refused("User \"t\" cannot patch resource \"nodes\""))
    });
    // The pool sets the taint; no policy requires it.
    let policies = [("p", json!({}))];
    for _ in 0..3 {
        gate.pass(&[node("a", 0)], &policies).await;
        let (reason, message) = gate.problem("p").unwrap();
        assert_eq!(reason, "ReleaseFailed");
        for part in [
            "nodes: a: ",
            "cannot patch resource \"nodes\"",
            "rbac.nodePolicies=true",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
    let shown = gate.metrics.expose();
    assert!(shown.contains("startup_nodes{state=\"blocked\"} 1\n"), "{shown}");
    let events = gate.take(&Method::POST, "/events");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].1["reason"], "ReleaseFailed");
    assert_eq!(events[0].1["regarding"]["name"], "a");
    may_patch.store(true, Ordering::Relaxed);
    gate.pass(&[node("a", 0)], &policies).await;
    assert!(gate.published.borrow().is_empty());
    assert!(
        gate.metrics
            .expose()
            .contains("startup_nodes{state=\"blocked\"} 0\n")
    );
}

#[tokio::test(start_paused = true)]
async fn lists_pods_and_events_that_hang_do_not_delay_the_release_of_nodes() {
    const NODES: usize = 100;
    let works = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&works);
    let mut gate = Gate::new(Some("puller"), move |method, path| {
        let hangs = (*method == Method::POST || path == "/api/v1/pods") && !answers.load(Ordering::Relaxed);
        hangs.then_some(Reply::Never)
    });
    let policies = [("p", by_pods(&json!({})))];
    let all = |kind: &str, age| {
        let names = (0..NODES).map(|number| format!("{kind}{number}"));
        names.map(|name| node(&name, age)).collect::<Vec<_>>()
    };
    let new = all("new", 0);
    let nodes = [new.clone(), all("late", LATE)].concat();
    let began = Instant::now();
    gate.pass(&nodes, &policies).await;
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    let released = gate.take(&Method::PATCH, "");
    assert_eq!(released.len(), NODES);
    assert!(released.iter().all(|(path, _)| path.contains("/nodes/late")));
    // It continues later.
    works.store(true, Ordering::Relaxed);
    gate.take(&Method::POST, "");
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(1)).await;
        gate.pass(&new, &policies).await;
    }
    let pods = gate.take(&Method::POST, "/pods").into_iter();
    let pods: BTreeSet<String> = pods.map(|(_, pod)| pod["spec"]["nodeName"].to_string()).collect();
    assert_eq!(pods.len(), NODES);
    // The first Event hung.
    assert_eq!(gate.take(&Method::POST, "/events").len(), NODES - 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_no_labels_of_its_pool_yet_waits_for_them() {
    let of_pool =
        |startup: Value| json!({"nodeSelector": {"matchLabels": {"pool": "w"}}, "startup": startup});
    let gating = || ("p", of_pool(json!({"puller": "None"})));
    let any = || ("any", json!({"priority": -1}));
    let new = |age| NodeView {
        taints: vec![taint(Taint::STARTUP_KEY), taint(UNINITIALIZED)],
        ..node("a", age)
    };
    let linux = NodeView {
        operating_system: "linux".to_owned(),
        ..new(0)
    };
    for (number, (node, policies, released)) in [
        (new(0), vec![gating()], 0),
        (new(0), vec![gating(), any()], 0),
        (new(LATE), vec![gating()], 1),
        (node("a", 0), vec![gating()], 1),
        (linux, vec![gating()], 1),
        (new(0), vec![("p", of_pool(Value::Null)), any()], 1),
    ]
    .into_iter()
    .enumerate()
    {
        let mut gate = Gate::new(None, |_, _| None);
        gate.pass(&[node], &policies).await;
        assert_eq!(gate.take(&Method::PATCH, "").len(), released, "case {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_cannot_be_read_says_which_nodes_wait_because_of_it() {
    let mut gate = Gate::new(None, |_, _| None);
    let unreadable = (
        "bad",
        json!({"nodeSelector": {"matchLabels": {"not a key!": "x"}}}),
    );
    for _ in 0..2 {
        gate.pass(&[node("a", 0)], std::slice::from_ref(&unreadable))
            .await;
        let (reason, message) = gate.problem("bad").unwrap();
        assert_eq!(reason, "HeldByInvalidPolicy");
        assert!(
            message.contains("1 new node with the startup taint (a)"),
            "{message}"
        );
    }
    assert!(
        gate.metrics
            .expose()
            .contains("startup_nodes{state=\"held\"} 1\n")
    );
    let events = gate.take(&Method::POST, "/events");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].1["reason"], "HeldByInvalidPolicy");
    assert!(
        events[0].1["note"]
            .as_str()
            .unwrap()
            .contains("WindowsNodePolicy bad cannot be read")
    );
    gate.pass(&[node("a", 0)], &[("bad", json!({}))]).await;
    assert_eq!(gate.reason("bad"), None);
    assert_eq!(gate.take(&Method::PATCH, "").len(), 1);
    assert!(
        gate.metrics
            .expose()
            .contains("startup_nodes{state=\"held\"} 0\n")
    );
}

#[tokio::test(start_paused = true)]
async fn the_age_of_an_old_node_that_gets_the_taint_is_no_time_of_a_start() {
    let policies = [("p", json!({"startup": {"imageSource": "Listed"}}))];
    for (age, counted) in [(0, 1), (900, 1), (30 * 24 * 3600, 0)] {
        let mut gate = Gate::new(None, |_, _| None);
        gate.pass(&[node("a", age)], &policies).await;
        assert_eq!(gate.take(&Method::PATCH, "").len(), 1);
        let shown = gate.metrics.expose();
        assert!(
            shown.contains(&format!("startup_seconds_count {counted}\n")),
            "{age}: {shown}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_problem_is_shown_while_nodes_wait_and_only_on_their_policy() {
    let mut gate = Gate::new(Some("puller"), |method, path| {
        let is_refused = *method == Method::POST && path.ends_with("/pods") || path.ends_with("/deployments");
        is_refused.then(|| refused("no"))
    });
    let other = |mut spec: Value| {
        spec["nodeSelector"] = json!({"matchLabels": {"pool": "other"}});
        spec["priority"] = json!(1);
        spec
    };
    let pods = [("p", by_pods(&json!({}))), ("q", other(by_pods(&json!({}))))];
    gate.pass(&[node("a", 0)], &pods).await;
    assert_eq!((gate.reason("p"), gate.reason("q")), (Some("PullerFailed"), None));
    gate.pass(&[], &pods).await;
    assert_eq!(gate.reason("p"), None);

    let of_workloads = [("p", json!({"startup": {}}))];
    gate.pass(&[node("a", 0)], &of_workloads).await;
    gate.controller.changed().await;
    gate.pass(&[node("a", 0)], &of_workloads).await;
    assert_eq!(gate.reason("p"), Some("ImagesUnknown"));
    gate.pass(&[], &of_workloads).await;
    assert_eq!(gate.reason("p"), None);
}

/// A stored pod of the node `a` whose pull failed with these Secrets.
fn failed_pod(secrets: &[&str]) -> Value {
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    json!({
        "metadata": {"name": "pod", "uid": "u", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid-a"}]},
        "spec": {"imagePullSecrets": secrets, "containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "c", "image": "x", "imageID": "",
            "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}}]},
    })
}

fn with_pod(account: Option<&str>, pod: Value, delete: fn() -> Option<Reply>) -> Gate {
    Gate::new(account, move |method, path| match *method {
        Method::GET if path.ends_with("/transom-system/pods") => {
            Some(Reply::Json(200, json!({"metadata": {}, "items": [pod]})))
        }
        Method::DELETE => delete(),
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_other_pull_secrets_than_the_policy_is_replaced_and_its_failures_are_forgotten() {
    let policy = || by_pods(&json!({"pullSecrets": [{"name": "new"}]}));
    for (secrets, deleted) in [(&["old"][..], 1), (&[], 1), (&["new"], 0), (&["new", "added"], 0)] {
        let mut gate = with_pod(Some("puller"), failed_pod(secrets), || None);
        gate.pass(&[node("a", 0)], &[("p", policy())]).await;
        assert_eq!(
            gate.take(&Method::DELETE, "/pods/pod").len(),
            deleted,
            "{secrets:?}"
        );
        assert_eq!(
            gate.published.borrow()["p"].failed.len(),
            1 - deleted,
            "{secrets:?}"
        );
    }
    // What failed before the Secret was changed is not given up, either.
    let mut gate = with_pod(Some("puller"), failed_pod(&["old"]), || None);
    gate.pass(&[node("a", 0)], &[("p", by_pods(&json!({})))]).await;
    assert_eq!(gate.published.borrow()["p"].failed.len(), 1);
    gate.pass(&[node("a", 0)], &[("p", policy())]).await;
    assert_eq!(gate.published.borrow()["p"].failed.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_the_puller_pods_that_are_left_are_deleted() {
    let mut gate = with_pod(None, failed_pod(&[]), || None);
    gate.pass(&[], &[]).await;
    assert_eq!(gate.take(&Method::DELETE, "/pods/pod").len(), 1);
    // The chart removes this right together with the puller.
    let mut gate = with_pod(None, failed_pod(&[]), || Some(refused("no")));
    for (deleted, reads) in [(1, 1), (0, 0)] {
        gate.pass(&[], &[]).await;
        assert_eq!(gate.take(&Method::DELETE, "/pods/pod").len(), deleted);
        assert_eq!(gate.reads("/transom-system/pods"), reads);
    }
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_busy_node_are_listed_once_a_poll() {
    let mut gate = Gate::new(Some("puller"), |method, path| {
        let mut other = failed_pod(&[]);
        other["status"] = json!({"phase": "Pending"});
        let is_it = *method == Method::GET && path == "/api/v1/pods";
        is_it.then(|| Reply::Json(200, json!({"metadata": {}, "items": [other]})))
    });
    let policies = [("p", by_pods(&json!({})))];
    for reads in [1, 0, 0] {
        gate.pass(&[node("a", 0)], &policies).await;
        assert_eq!(gate.reads("spec.nodeName"), reads);
    }
    tokio::time::advance(StartupSettings::default().poll).await;
    gate.pass(&[node("a", 0)], &policies).await;
    assert_eq!(gate.reads("spec.nodeName"), 1);
    assert_eq!(gate.take(&Method::POST, "/pods").len(), 0, "it is busy");
}

#[tokio::test(start_paused = true)]
async fn images_that_another_program_pulls_are_seen_on_its_pods_and_their_failures_reported() {
    let is_fixed = Arc::new(AtomicBool::new(false));
    let fixed = Arc::clone(&is_fixed);
    let mut gate = Gate::new(None, move |method, path| {
        let state = if fixed.load(Ordering::Relaxed) {
            json!({"running": {}})
        } else {
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "denied"}})
        };
        let prepull = json!({"metadata": {"name": "prepull"}, "spec": {"containers": [{"name": "c", "image": "x"}]},
            "status": {"containerStatuses": [{"name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                "state": state}]}});
        let is_it = *method == Method::GET && path == "/api/v1/pods";
        is_it.then(|| Reply::Json(200, json!({"metadata": {}, "items": [prepull]})))
    });
    let policies = [(
        "p",
        json!({"startup": {"imageSource": "Listed", "images": ["x"]}}),
    )];
    for (reads, failed) in [(1, 0), (0, 1), (0, 1)] {
        gate.pass(&[node("a", 0)], &policies).await;
        assert_eq!(
            gate.reads("spec.nodeName"),
            reads,
            "a node is read once in a while"
        );
        assert_eq!(gate.published.borrow()["p"].failed.len(), failed);
    }
    let events = gate.take(&Method::POST, "/events");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].1["reason"], "ImagePullFailed");
    assert_eq!(gate.take(&Method::PATCH, "").len(), 0);
    is_fixed.store(true, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(15)).await;
    for released in [0, 1] {
        gate.pass(&[node("a", 0)], &policies).await;
        assert_eq!(gate.take(&Method::PATCH, "").len(), released);
    }
    let events = gate.take(&Method::POST, "/events");
    assert_eq!(events[0].1["reason"], "ImagesReady");
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_bytes_without_sizes_is_a_problem() {
    for (startup, expected) in [
        (json!({"maxImageSize": "20Gi"}), Some("ImageSizesUnknown")),
        (json!({}), None),
        (
            json!({"maxImageSize": "20Gi", "imageSource": "Listed", "images": ["x"]}),
            None,
        ),
    ] {
        let mut gate = Gate::new(None, |_, _| None);
        gate.pass(&[], &[("p", json!({"startup": startup}))]).await;
        assert_eq!(gate.reason("p"), expected);
    }
}

/// A cluster with a Deployment of Windows pods.
fn with_a_deployment() -> Gate {
    Gate::new(None, |method, path| {
        let web = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "web"}, "spec": {"template": {"spec": {
            "nodeSelector": {"kubernetes.io/os": "windows", "zone": "a"},
            "containers": [{"name": "app", "image": "web:1"}]}}}});
        let is_it = *method == Method::GET && path.ends_with("/deployments");
        is_it.then(|| Reply::Json(200, json!({"metadata": {}, "items": [web]})))
    })
}

fn labelled(node: NodeView, zone: Option<&str>) -> NodeView {
    let zone = zone.map(|zone| ("zone".to_owned(), zone.to_owned()));
    NodeView {
        labels: Arc::new(zone.into_iter().collect()),
        kernel_version: "10.0.20348.1".to_owned(),
        ..node
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_gets_the_name_or_the_labels_of_another_one_is_not_judged_by_what_that_one_needs() {
    let policies = [("p", json!({"startup": {}}))];
    let named_again = NodeView {
        uid: "another".to_owned(),
        ..labelled(node("a", 0), Some("a"))
    };
    for later in [labelled(node("a", 0), Some("a")), named_again] {
        // What was surveyed without a zone needs nothing.
        let mut gate = with_a_deployment();
        let first = labelled(node("a", 0), None);
        gate.pass(std::slice::from_ref(&first), &policies).await;
        gate.controller.changed().await;
        gate.pass(std::slice::from_ref(&later), &policies).await;
        assert_eq!(gate.take(&Method::PATCH, "").len(), 0, "{later:?}");
        // It is surveyed itself, and waits for its image.
        tokio::time::advance(StartupSettings::default().survey_again).await;
        gate.pass(std::slice::from_ref(&later), &policies).await;
        gate.controller.changed().await;
        gate.pass(std::slice::from_ref(&later), &policies).await;
        assert_eq!(gate.take(&Method::PATCH, "").len(), 0, "{later:?}");
        let warm = NodeView {
            images: vec!["web:1".to_owned()],
            ..later
        };
        gate.pass(&[warm], &policies).await;
        assert_eq!(gate.take(&Method::PATCH, "").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_its_cloud_has_not_initialized_waits_for_that_or_its_timeout() {
    for key in Taint::UNINITIALIZED_KEYS {
        for policy in [
            json!({"startup": {}}),
            json!({"startup": {"imageSource": "Listed"}}),
        ] {
            let policies = [("p", policy)];
            let mut gate = with_a_deployment();
            let new = |age| NodeView {
                taints: vec![taint(Taint::STARTUP_KEY), taint(key)],
                ..labelled(node("a", age), None)
            };
            for _ in 0..3 {
                gate.pass(&[new(0)], &policies).await;
                assert_eq!(gate.take(&Method::PATCH, "").len(), 0, "{key}");
            }
            assert_eq!(gate.reads("/deployments"), 0, "its labels are not known");
            gate.pass(&[new(LATE)], &policies).await;
            assert_eq!(gate.take(&Method::PATCH, "").len(), 1, "{key}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_linux_node_whose_kubelet_is_silent_waits_and_is_not_counted() {
    let mut gate = Gate::new(None, |_, _| None);
    let silent = NodeView {
        operating_system: String::new(),
        labels: Arc::new([(OS_LABEL.to_owned(), "linux".to_owned())].into()),
        ..node("a", 0)
    };
    let policies = [("p", json!({"startup": {}}))];
    gate.pass(std::slice::from_ref(&silent), &policies).await;
    assert_eq!(gate.published.borrow()["p"].starting, 0);
    assert_eq!(gate.take(&Method::PATCH, "").len(), 0);
    let reported = NodeView {
        operating_system: "linux".to_owned(),
        ..silent
    };
    gate.pass(&[reported], &policies).await;
    assert_eq!(gate.take(&Method::PATCH, "").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn surveys_of_a_large_cluster_are_rare_though_nodes_join() {
    let settings = StartupSettings::default();
    let identity = |name: &str| NodeIdentity::of(&node(name, 0));
    let is_due = async |took: u64, after: u64| {
        let survey = LastSurvey {
            ended: Some((Instant::now(), [identity("a")].into())),
            took: Duration::from_secs(took),
            ..LastSurvey::default()
        };
        tokio::time::advance(Duration::from_secs(after)).await;
        survey.is_due(&[identity("b")].into(), &settings)
    };
    assert!(!is_due(1, 9).await);
    assert!(is_due(1, 10).await);
    assert!(!is_due(5, 19).await);
    assert!(is_due(5, 20).await);
    assert!(is_due(100, 60).await, "new nodes must not wait for long");
}
