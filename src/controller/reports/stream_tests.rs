//! A leader and a fake API server with rare conditions: unreadable objects, expired watches, and lists that change
//! while they are read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{once, pending};
use hyper::body::Bytes;
use jiff::civil::date;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{NextDenials, ReportContext, ReportSettings, ReportingState, StoredFindingMetrics, run};
use crate::cluster::cache::ClusterCache;
use crate::cluster::lease::Leadership;
use crate::cluster::node::NodeView;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::test_client::{Reply, serving};
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::ImageEvidence;
use crate::model::cluster::policy::Policy;
use crate::model::nodes::node::Host;
use crate::model::windows::image_facts::{ImageContents, ImageFacts, ImageVariant};
use crate::model::windows::registry_patterns::RegistryPatterns;
use crate::process::metrics::{Metrics, Reconciles};
use crate::registry::service::{ImageService, NoCredentials};
use crate::registry::{RegistryClient, RegistryConfig};

const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

/// The answers of the API server, and the requests it received.
#[derive(Default)]
struct FakeApiServer {
    /// Answers by path, each used once except the last one.
    answers: BTreeMap<String, Vec<String>>,
    requested: Vec<String>,
    /// Reports that were written, by name.
    written: Vec<Value>,
    /// Events that were made.
    events: Vec<Value>,
    /// The paths that it rejects.
    refused: Vec<String>,
    /// Whether it serves no report API.
    has_no_reports: bool,
    /// Whether it serves `PolicyReport` too.
    has_policy_reports: bool,
    /// How many more writes of reports it answers with a conflict.
    conflicts: usize,
    /// The paths of deleted objects.
    deleted: Vec<String>,
}

impl FakeApiServer {
    fn answer(&mut self, method: &str, path: &str, is_watch: bool, body: &str) -> Reply {
        self.requested
            .push(format!("{method} {path}{}", if is_watch { " watch" } else { "" }));
        if self.refused.iter().any(|it| it == path) {
            let status = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "not today"});
            return Reply::Json(500, status);
        }
        if method == "POST" {
            self.events.push(serde_json::from_str(body).unwrap());
            return Reply::Text(201, body.to_owned());
        }
        if method == "DELETE" {
            self.deleted.push(path.to_owned());
            return Reply::Json(200, json!({"kind": "Status", "status": "Success"}));
        }
        if method == "PATCH" && self.conflicts > 0 {
            self.conflicts -= 1;
            let status = json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict",
                                "message": "the object has been modified"});
            return Reply::Json(409, status);
        }
        if method == "PATCH" {
            let report: Value = serde_json::from_str(body).unwrap();
            self.written.push(report.clone());
            return Reply::Json(200, report);
        }
        if (!self.has_policy_reports && path.starts_with("/apis/wgpolicyk8s.io"))
            || (self.has_no_reports && path.starts_with("/apis/openreports.io"))
        {
            let status = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
                                "message": "the server could not find the requested resource"});
            return Reply::Json(404, status);
        }
        if path == "/apis/openreports.io/v1alpha1" {
            let list = json!({"kind": "APIResourceList", "groupVersion": "openreports.io/v1alpha1", "resources": [
                {"name": "reports", "singularName": "", "namespaced": true, "kind": "Report", "verbs": ["patch"]},
            ]});
            return Reply::Json(200, list);
        }
        if path == "/apis/wgpolicyk8s.io/v1alpha2" {
            let list = json!({"kind": "APIResourceList", "groupVersion": "wgpolicyk8s.io/v1alpha2", "resources": [
                {"name": "policyreports", "singularName": "", "namespaced": true, "kind": "PolicyReport", "verbs": ["patch"]},
            ]});
            return Reply::Json(200, list);
        }
        let key = if is_watch {
            format!("{path} watch")
        } else {
            path.to_owned()
        };
        let answer = self.answers.get_mut(&key).map(|answers| {
            if answers.len() > 1 {
                answers.remove(0)
            } else {
                answers[0].clone()
            }
        });
        match answer {
            // A watch stays open after its events, which come a little later.
            Some(answer) if is_watch => {
                let events = once(async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Bytes::from(answer)
                });
                Reply::Stream(events.chain(pending()).boxed())
            }
            Some(answer) => Reply::Text(200, answer),
            // A watch without events stays open.
            None if is_watch => Reply::Stream(pending().boxed()),
            None => self
                .stored(path)
                .unwrap_or_else(|| Reply::Text(200, list("1", &[]))),
        }
    }

    /// One object of the last list at a path; `None` if the path is that of a list.
    fn stored(&self, path: &str) -> Option<Reply> {
        let (list, name) = path.rsplit_once('/')?;
        let (group, list) = list.split_once("/namespaces/")?;
        let (_, resource) = list.split_once('/')?;
        let answers = self.answers.get(&format!("{group}/{resource}"));
        let list = answers.and_then(|answers| answers.last());
        let list: Value = serde_json::from_str(list.map_or("{}", String::as_str)).unwrap();
        let mut items = list["items"].as_array().into_iter().flatten();
        let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"});
        let found = items.find(|object| object["metadata"]["name"] == name);
        Some(found.map_or(Reply::Json(404, status), |object| {
            Reply::Json(200, object.clone())
        }))
    }
}

fn list(version: &str, items: &[Value]) -> String {
    json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}).to_string()
}

fn deployment(name: &str, user: i64) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "5"},
        "spec": {"template": {"spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"}, "securityContext": {"runAsUser": user},
            "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}],
        }}},
    })
}

fn client(server: &Arc<Mutex<FakeApiServer>>) -> Client {
    let server = Arc::clone(server);
    serving(move |method, uri, body, _| {
        let is_watch = uri.query().is_some_and(|it| it.contains("watch=true"));
        let mut server = server.lock().unwrap();
        server.answer(method.as_str(), uri.path(), is_watch, body)
    })
}

struct TestLeader {
    server: Arc<Mutex<FakeApiServer>>,
    reporting: watch::Receiver<ReportingState>,
    latest: watch::Sender<Arc<Snapshot>>,
    lease: watch::Sender<Option<Instant>>,
}

impl TestLeader {
    fn start(answers: &[(&str, &[String])]) -> Self {
        Self::start_with(answers, false)
    }

    fn start_with(answers: &[(&str, &[String])], has_no_reports: bool) -> Self {
        Self::start_as(answers, has_no_reports, Policy::cluster_default(), None)
    }

    fn start_as(
        answers: &[(&str, &[String])],
        has_no_reports: bool,
        policy: Policy,
        images: Option<ImageService>,
    ) -> Self {
        let answers = answers
            .iter()
            .map(|(path, answers)| ((*path).to_owned(), answers.to_vec()));
        let server = Arc::new(Mutex::new(FakeApiServer {
            answers: answers.collect(),
            has_no_reports,
            ..FakeApiServer::default()
        }));
        let (latest, follow) = watch::channel(Arc::new(snapshot(policy)));
        let (reporting, state) = watch::channel(ReportingState::Unknown);
        let far = Instant::now() + Duration::from_secs(1_000_000);
        let (lease, until) = watch::channel(Some(far));
        let context = ReportContext {
            next_denials: watch::channel(NextDenials::default()).0,
            client: client(&server),
            leadership: Leadership::new(until),
            latest: follow,
            images,
            gauges: StoredFindingMetrics::default(),
            reporting,
            settings: ReportSettings::default(),
            reconcile: Reconciles::new(&Metrics::new("0", None)).of("reports"),
        };
        tokio::spawn(run(context));
        TestLeader {
            server,
            reporting: state,
            latest,
            lease,
        }
    }

    /// Waits until the condition holds, with paused time.
    async fn until(&self, what: &str, is_so: impl Fn(&FakeApiServer) -> bool) {
        for _ in 0..100_000 {
            if is_so(&self.server.lock().unwrap()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{what}: {:?}", self.server.lock().unwrap().requested);
    }
}

fn snapshot(policy: Policy) -> Snapshot {
    let view = ClusterCache {
        kubernetes: 36,
        ..ClusterCache::default()
    };
    Snapshot {
        cache: Arc::new(view),
        ..Snapshot::of_files(
            Facts::new(36, date(2026, 1, 1)),
            PolicySet::new(Vec::new(), policy),
        )
    }
}

/// The names of the owners with written reports, in order.
fn reported(server: &FakeApiServer) -> Vec<&str> {
    let names = server
        .written
        .iter()
        .filter_map(|report| report["scope"]["name"].as_str());
    names.collect()
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_counted_named_and_passed_over() {
    let broken =
        json!({"metadata": {"name": "broken", "namespace": "shop", "uid": "b"}, "spec": {"template": 7}});
    let all = list("9", &[deployment("one", 1), broken, deployment("two", 2)]);
    let leader = TestLeader::start(&[(DEPLOYMENTS, &[all])]);
    leader
        .until("both others are reported", |it| reported(it) == ["one", "two"])
        .await;
    let state = leader.reporting.clone();
    leader
        .until("it is reported", |_| {
            matches!(*state.borrow(), ReportingState::Amiss(..))
        })
        .await;
    let state = state.borrow().clone();
    let ReportingState::Amiss(reason, message) = state else {
        panic!("{state:?}")
    };
    assert_eq!(reason, "Unparseable");
    assert!(
        message.starts_with("1 stored objects cannot be read and are skipped: Deployment shop/broken ("),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_while_a_watch_window_expired_is_read_anew() {
    let (before, after) = (
        list("9", &[deployment("one", 1)]),
        list("12", &[deployment("one", 1), deployment("two", 2)]),
    );
    let expired = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}});
    let leader = TestLeader::start(&[
        (DEPLOYMENTS, &[before, after]),
        (
            "/apis/apps/v1/deployments watch",
            &[format!("{expired}\n"), String::new()],
        ),
    ]);
    leader
        .until("both are reported", |it| reported(it).contains(&"two"))
        .await;
    let written = leader.server.lock().unwrap().written.clone();
    let ones = written.iter().filter(|it| it["scope"]["name"] == "one");
    assert_eq!(ones.count(), 1, "what is the same is written once");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_renews_late_goes_on_and_one_that_returns_later_begins_anew() {
    let all: Vec<Value> = (0..60).map(|it| deployment(&format!("web-{it}"), it)).collect();
    let leader = TestLeader::start(&[(DEPLOYMENTS, &[list("9", &all)])]);
    let written = || leader.server.lock().unwrap().written.len();
    let lists = |server: &FakeApiServer| {
        let listed = format!("GET {DEPLOYMENTS}");
        server.requested.iter().filter(|it| **it == listed).count()
    };
    // Ten writes a second: it never leads long enough to report everything.
    while written() < all.len() {
        tokio::time::sleep(Duration::from_secs(3)).await;
        leader.lease.send_replace(None);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = written();
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(written(), before, "it does not lead");
        assert_eq!(*leader.reporting.borrow(), ReportingState::Unknown);
        leader
            .lease
            .send_replace(Some(Instant::now() + Duration::from_secs(1_000)));
    }
    let listed = lists(&leader.server.lock().unwrap());
    assert_eq!(
        (written(), listed),
        (all.len(), 1),
        "each object is read and reported once"
    );

    leader.lease.send_replace(None);
    tokio::time::sleep(super::KEPT + Duration::from_secs(1)).await;
    leader
        .lease
        .send_replace(Some(Instant::now() + Duration::from_secs(1_000)));
    leader
        .until("everything is read anew", |server| lists(server) == 2)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_network_policy_is_reported_while_no_engine_may_enforce_it_for_windows_pods() {
    let daemon_set = |name: &str| {
        json!({"metadata": {"name": name, "namespace": "kube-system", "uid": name, "resourceVersion": "5"},
            "spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": []}}}})
    };
    let policy = |name: &str, namespace: &str| {
        json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "5"},
            "spec": {"podSelector": {}}})
    };
    let policies = "/apis/networking.k8s.io/v1/networkpolicies";
    let leader = TestLeader::start(&[
        (DEPLOYMENTS, &[list("9", &[deployment("web", 1)])]),
        ("/apis/apps/v1/daemonsets", &[list("9", &[daemon_set("cilium")])]),
        (
            policies,
            &[list("9", &[policy("of-shop", "shop"), policy("of-bank", "bank")])],
        ),
        (
            "/apis/apps/v1/daemonsets watch",
            &[format!(
                "{}\n",
                json!({"type": "ADDED", "object": daemon_set("calico-node")})
            )],
        ),
    ]);
    leader
        .until("both are reported", |it| reported(it) == ["web", "of-shop"])
        .await;
    let report = leader.server.lock().unwrap().written[1].clone();
    let result = &report["results"][0];
    assert_eq!(
        (&result["rule"], &result["result"], &report["scope"]["kind"]),
        (
            &json!("network-policy-not-enforced"),
            &json!("warn"),
            &json!("NetworkPolicy")
        )
    );
    let message = result["message"].as_str().unwrap();
    assert!(message.contains("(Deployment web): Cilium"), "{message}");
    assert_eq!(
        result["properties"]["outcome"],
        "reported here; admission does not review objects of this kind"
    );
    leader
        .until("Calico may enforce it", |it| !it.deleted.is_empty())
        .await;
    let server = leader.server.lock().unwrap();
    assert!(
        server.deleted[0].ends_with("/transom-networkpolicy-of-shop"),
        "{:?}",
        server.deleted
    );
    assert!(
        server
            .events
            .iter()
            .all(|event| event["regarding"]["kind"] == "Deployment")
    );
}

#[tokio::test(start_paused = true)]
async fn another_policy_is_another_evaluation_of_everything() {
    let all = list("9", &[deployment("one", 1), deployment("two", 2)]);
    let leader = TestLeader::start(&[(DEPLOYMENTS, &[all])]);
    leader
        .until("both are reported", |it| reported(it).len() == 2)
        .await;
    let mut policy = Policy::cluster_default();
    policy.name = "another".to_owned();
    leader.latest.send_replace(Arc::new(snapshot(policy)));
    leader
        .until("both are reported again", |it| reported(it).len() == 4)
        .await;
    let written = leader.server.lock().unwrap().written.clone();
    let policies: Vec<&Value> = written.iter().map(|it| &it["results"][0]["policy"]).collect();
    assert_eq!(policies[2..], ["another", "another"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_in_vain_for_a_reason_that_is_known_is_reported_once_on_its_top_owner() {
    let long_ago = "2026-01-01T00:00:00Z";
    let controller = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}]);
    let pod = |name: &str| {
        json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": long_ago,
                         "ownerReferences": controller("ReplicaSet", "web-1")},
            "spec": {"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "web", "image": "web"}]},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": long_ago},
            ]},
        })
    };
    let set = json!({"metadata": {"name": "web-1", "ownerReferences": controller("Deployment", "web")}});
    let top = json!({"metadata": {"name": "web"}});
    let mut running = pod("c");
    running["spec"]["nodeName"] = json!("n1");
    let leader = TestLeader::start(&[
        ("/api/v1/pods", &[list("9", &[pod("a"), pod("b"), running])]),
        ("/api/v1/namespaces/shop/pods/a", &[pod("a").to_string()]),
        ("/api/v1/namespaces/shop/pods/b", &[pod("b").to_string()]),
        (
            "/apis/apps/v1/namespaces/shop/replicasets/web-1",
            &[set.to_string()],
        ),
        (
            "/apis/apps/v1/namespaces/shop/deployments/web",
            &[top.to_string()],
        ),
    ]);
    leader.until("both are reported", |it| it.events.len() >= 2).await;
    let server = leader.server.lock().unwrap();
    let (one, other) = (&server.events[0], &server.events[1]);
    assert_eq!(
        (&one["regarding"]["kind"], &one["regarding"]["name"]),
        (&json!("Deployment"), &json!("web"))
    );
    assert_eq!(one["reason"], "WindowsPodPending");
    assert_eq!(
        one["metadata"]["name"], other["metadata"]["name"],
        "the API server refuses the second one"
    );
    let note = one["note"].as_str().unwrap();
    assert!(note.starts_with("a pod of this waits for a node: "), "{note}");
    assert!(!server.requested.iter().any(|it| it.ends_with("/pods/c")));
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_windows_node_that_terminates_past_its_grace_period_is_reported_on_its_owner() {
    let long_ago = "2026-01-01T00:00:00Z";
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web", "controller": true}]);
    let pod = |name: &str, node: &str| {
        json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "ownerReferences": owner,
                         "deletionTimestamp": long_ago},
            "spec": {"nodeName": node, "containers": [{"name": "web", "image": "web"}]},
            "status": {"phase": "Running"},
        })
    };
    let leader = TestLeader::start(&[
        ("/api/v1/pods", &[list("9", &[pod("a", "w1"), pod("b", "lin")])]),
        ("/api/v1/namespaces/shop/pods/a", &[pod("a", "w1").to_string()]),
        (
            "/apis/apps/v1/namespaces/shop/statefulsets/web",
            &[json!({"metadata": {"name": "web"}}).to_string()],
        ),
    ]);
    let node = NodeView {
        name: "w1".into(),
        operating_system: "windows".into(),
        ..NodeView::default()
    };
    let mut snapshot = snapshot(Policy::cluster_default());
    snapshot.facts.add_host(Host {
        name: "w1".into(),
        ..Host::default()
    });
    snapshot.cache = Arc::new(ClusterCache {
        nodes: [("w1".to_owned(), Arc::new(node))].into(),
        ..(*snapshot.cache).clone()
    });
    leader.latest.send_replace(Arc::new(snapshot));
    leader.until("it is reported", |it| !it.events.is_empty()).await;
    let server = leader.server.lock().unwrap();
    let event = &server.events[0];
    assert_eq!(
        (&event["reason"], &event["regarding"]["kind"]),
        (&json!("WindowsPodProblem"), &json!("StatefulSet"))
    );
    let note = event["note"].as_str().unwrap();
    assert!(
        note.starts_with("a pod of this: terminating past its grace period") && note.contains("w1"),
        "{note}"
    );
    assert!(!server.requested.iter().any(|it| it.ends_with("/pods/b")));
}

#[tokio::test(start_paused = true)]
async fn without_any_kind_of_report_findings_are_announced_once() {
    let all = list("9", &[deployment("one", 1)]);
    let leader = TestLeader::start_with(&[(DEPLOYMENTS, &[all])], true);
    leader.until("it is reported", |it| it.events.len() == 1).await;
    let state = leader.reporting.clone();
    let is_reported = || matches!(*state.borrow(), ReportingState::Amiss("ReportAPIMissing", _));
    leader.until("it is reported", |_| is_reported()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let server = leader.server.lock().unwrap();
    assert_eq!(server.events.len(), 1);
    assert_eq!(server.events[0]["regarding"]["name"], "one");
    assert!(server.written.is_empty());
}

fn replica_set(name: &str, replicas: u32, image: &str) -> Value {
    let mut set = deployment(name, 1);
    set["metadata"]["ownerReferences"] = json!([{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "r", "controller": true}]);
    set["spec"]["replicas"] = json!(replicas);
    set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    set
}

#[tokio::test(start_paused = true)]
async fn of_a_rollout_what_runs_is_reported_and_another_stands_in_for_what_goes() {
    const SETS: &str = "/apis/apps/v1/replicasets";
    let (image, other) = ("mcr.microsoft.com/windows/nanoserver:ltsc2022", "web:2");
    let all = [
        replica_set("a-old", 0, image),
        replica_set("b-now", 1, image),
        replica_set("c-like-b", 1, image),
        replica_set("d-canary", 1, other),
    ];
    let gone = json!({"type": "DELETED", "object": all[1]}).to_string() + "\n";
    let leader = TestLeader::start(&[
        (SETS, &[list("9", &all)]),
        ("/apis/apps/v1/replicasets watch", &[gone, String::new()]),
        (
            "/apis/apps/v1/namespaces/shop/replicasets",
            &[list("12", &all[2..])],
        ),
    ]);
    leader
        .until("the next one stands in", |it| reported(it).contains(&"c-like-b"))
        .await;
    let server = leader.server.lock().unwrap();
    assert_eq!(reported(&server), ["b-now", "d-canary", "c-like-b"]);
}

#[tokio::test(start_paused = true)]
async fn where_the_reports_that_are_there_cannot_be_read_it_is_reported_and_the_rest_goes_on() {
    let all = list("9", &[deployment("one", 1)]);
    let leader = TestLeader::start(&[(DEPLOYMENTS, &[all])]);
    let reports = "/apis/openreports.io/v1alpha1/reports".to_owned();
    leader.server.lock().unwrap().refused.push(reports);
    leader.until("it is reported", |it| reported(it) == ["one"]).await;
    let state = leader.reporting.clone();
    let text = || match &*state.borrow() {
        ReportingState::Amiss("RequestFailed", text) => text.clone(),
        _ => String::new(),
    };
    leader
        .until("it is reported", |_| {
            text() == "cannot watch the reports: not today"
        })
        .await;
    leader.server.lock().unwrap().refused.clear();
    leader
        .until("it works again", |_| *state.borrow() == ReportingState::Written)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_again_and_again_is_reported_until_it_works() {
    let error = json!({"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "broken"}});
    let leader = TestLeader::start(&[
        (DEPLOYMENTS, &[list("9", &[deployment("one", 1)])]),
        (
            "/apis/apps/v1/deployments watch",
            &[format!("{error}\n").repeat(3)],
        ),
    ]);
    let state = leader.reporting.clone();
    let is_reported = || matches!(&*state.borrow(), ReportingState::Amiss("RequestFailed", text) if text == "cannot watch /apis/apps/v1/deployments: broken");
    leader.until("it is reported", |_| is_reported()).await;
    leader
        .until("it does not fail any more", |_| {
            *state.borrow() == ReportingState::Written
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_deletes_no_reports_and_hides_no_other_kind() {
    let broken = json!({"kind": "Status", "code": 500, "message": "not today"}).to_string();
    let leader = TestLeader::start(&[
        ("/apis/batch/v1/jobs", &[list("9", &[deployment("job", 1)])]),
        (DEPLOYMENTS, &[broken]),
        (
            REPORTS,
            &[list("9", &[stored_report("Report", "one", "0000000000000001")])],
        ),
    ]);
    leader.server.lock().unwrap().refused.push(DEPLOYMENTS.to_owned());
    let state = leader.reporting.clone();
    let is_reported = || matches!(&*state.borrow(), ReportingState::Amiss("RequestFailed", text) if text == "cannot watch /apis/apps/v1/deployments: not today");
    leader.until("it is reported", |_| is_reported()).await;
    leader
        .until("the job is reported", |it| reported(it) == ["job"])
        .await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(leader.server.lock().unwrap().deleted, Vec::<String>::new());
}

const REPORTS: &str = "/apis/openreports.io/v1alpha1/reports";

/// A stored report on the Deployment of this name, with this content.
fn stored_report(kind: &str, owner: &str, content: &str) -> Value {
    json!({"apiVersion": "openreports.io/v1alpha1", "kind": kind, "metadata": {
        "name": format!("transom-deployment-uid-{owner}"), "namespace": "shop", "uid": format!("report-{owner}"),
        "resourceVersion": "7", "annotations": {"transom.dev/content": content},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": format!("uid-{owner}")}],
    }})
}

fn patches(server: &FakeApiServer) -> usize {
    let patched = server
        .requested
        .iter()
        .filter(|requested| requested.starts_with("PATCH "));
    patched.count()
}

#[tokio::test(start_paused = true)]
async fn the_report_of_an_earlier_leader_is_replaced_only_as_it_was_read_and_only_if_it_differs() {
    let all = list("9", &[deployment("one", 1)]);
    let reports = list("9", &[stored_report("Report", "one", "0000000000000001")]);
    let first = TestLeader::start(&[(DEPLOYMENTS, &[all]), (REPORTS, &[reports])]);
    first.until("it is replaced", |it| it.written.len() == 1).await;
    let written = first.server.lock().unwrap().written[0].clone();
    assert_eq!(written["metadata"]["resourceVersion"], "7");

    let content = written["metadata"]["annotations"]["transom.dev/content"]
        .as_str()
        .unwrap();
    let reports = list("9", &[stored_report("Report", "one", content)]);
    let second = TestLeader::start(&[
        (
            DEPLOYMENTS,
            &[list("9", &[deployment("one", 1), deployment("two", 2)])],
        ),
        (REPORTS, &[reports]),
    ]);
    second
        .until("the other one is written", |it| reported(it) == ["two"])
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        reported(&second.server.lock().unwrap()),
        ["two"],
        "one is up to date"
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_an_owner_is_evaluated_and_its_report_written_again() {
    let all = list("9", &[deployment("one", 1)]);
    let in_shop = "/apis/apps/v1/namespaces/shop/deployments";
    let leader = TestLeader::start(&[
        (DEPLOYMENTS, std::slice::from_ref(&all)),
        (in_shop, std::slice::from_ref(&all)),
    ]);
    leader.server.lock().unwrap().conflicts = 1;
    leader.until("it is written", |it| reported(it) == ["one"]).await;
    assert_eq!(patches(&leader.server.lock().unwrap()), 2);
    assert_eq!(
        *leader.reporting.borrow(),
        ReportingState::Written,
        "a conflict is no problem"
    );
}

#[tokio::test(start_paused = true)]
async fn the_report_of_an_owner_without_findings_and_those_of_the_other_report_api_are_deleted() {
    let mut clean = deployment("clean", 1);
    clean["spec"]["template"]["spec"] = json!({"nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [{"name": "web", "image": "nginx"}]});
    let leader = TestLeader::start(&[
        (DEPLOYMENTS, &[list("9", &[clean, deployment("one", 1)])]),
        (
            REPORTS,
            &[list("9", &[stored_report("Report", "clean", "0000000000000001")])],
        ),
        (
            "/apis/wgpolicyk8s.io/v1alpha2/policyreports",
            &[
                list("9", &[stored_report("PolicyReport", "one", "0000000000000001")]),
                list("10", &[]),
            ],
        ),
    ]);
    leader.server.lock().unwrap().has_policy_reports = true;
    leader.until("both are deleted", |it| it.deleted.len() == 2).await;
    leader
        .until("the other one is written", |it| reported(it) == ["one"])
        .await;
    let mut deleted = leader.server.lock().unwrap().deleted.clone();
    deleted.sort();
    assert_eq!(
        deleted,
        [
            "/apis/openreports.io/v1alpha1/namespaces/shop/reports/transom-deployment-uid-clean",
            "/apis/wgpolicyk8s.io/v1alpha2/namespaces/shop/policyreports/transom-deployment-uid-one",
        ]
    );
}

/// A service for images of this registry, which asks nobody.
fn image_service(registry: &str) -> ImageService {
    let registries = RegistryPatterns::parse([registry]).unwrap();
    let client = RegistryClient::new(RegistryConfig::default()).unwrap();
    let metrics = Metrics::new("0", None);
    ImageService::new(client, registries, NoCredentials, &metrics)
}

/// The rules of the last written report on an owner.
fn rules_of<'s>(server: &'s FakeApiServer, owner: &str) -> Vec<&'s str> {
    let mut written = server.written.iter().rev();
    let report = written.find(|report| report["scope"]["name"] == owner);
    let results = report.and_then(|report| report["results"].as_array());
    let rules = results.into_iter().flatten();
    rules.filter_map(|result| result["rule"].as_str()).collect()
}

const WEB: &str = "registry.corp/shop/web:1";
const NO_WINDOWS_VARIANT: &str = "image-has-no-windows-variant";

/// A leader with two Deployments of [`WEB`] and one of another image, which are reported for another reason too.
async fn leader_with_images(evidence: ImageEvidence) -> (TestLeader, ImageService) {
    let with_image = |name: &str| {
        let mut object = deployment(name, 1000);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(WEB);
        object
    };
    let all = [list(
        "9",
        &[with_image("one"), with_image("two"), deployment("other", 1000)],
    )];
    let policy = Policy {
        image_evidence: evidence,
        ..Policy::cluster_default()
    };
    let images = image_service("registry.corp");
    let in_shop = "/apis/apps/v1/namespaces/shop/deployments";
    let answers: &[(&str, &[String])] = &[(DEPLOYMENTS, &all), (in_shop, &all)];
    let leader = TestLeader::start_as(answers, false, policy, Some(images.clone()));
    leader
        .until("all are reported", |it| {
            let mut names = reported(it);
            names.sort_unstable();
            names == ["one", "other", "two"]
        })
        .await;
    assert!(!rules_of(&leader.server.lock().unwrap(), "one").contains(&NO_WINDOWS_VARIANT));
    (leader, images)
}

fn only_for(os: &str, digest: &str, at: &str) -> ImageFacts {
    ImageFacts {
        looked_up: at.parse().unwrap(),
        found: Some(ImageContents {
            digest: digest.to_owned(),
            variants: vec![ImageVariant::new(os, "amd64", "10.0.20348.1")],
        }),
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_registry_reports_later_is_reported_of_stored_objects() {
    let (leader, images) = leader_with_images(ImageEvidence::Registry).await;
    let is_in_both =
        |it: &FakeApiServer| ["one", "two"].map(|owner| rules_of(it, owner).contains(&NO_WINDOWS_VARIANT));
    images.learn(WEB, only_for("linux", "sha256:1", "2026-01-01T00:00:00Z"));
    leader
        .until("the registry's answer is reported", |it| {
            is_in_both(it) == [true; 2]
        })
        .await;
    // The same content again is written to no report.
    images.learn(WEB, only_for("linux", "sha256:1", "2026-01-02T00:00:00Z"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(leader.server.lock().unwrap().written.len(), 5);
    images.learn(WEB, only_for("windows", "sha256:2", "2026-01-03T00:00:00Z"));
    leader
        .until("the new image is reported", |it| is_in_both(it) == [false; 2])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_uses_names_reports_nothing_of_registries() {
    let (leader, images) = leader_with_images(ImageEvidence::Names).await;
    images.learn(WEB, only_for("linux", "sha256:1", "2026-01-01T00:00:00Z"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(leader.server.lock().unwrap().written.len(), 3);
}
