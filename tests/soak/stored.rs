//! How much memory the real program takes while it judges what is stored beside 100,000 pods. Everything but the pods is a
//! real API server's; the pods are listed and watched from a source that makes them up as they are asked for, in real sizes.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::net::TcpListener;

use super::memory::{is_bounded, memory_of};
use crate::support::control_plane::{self, ControlPlane, free_ports, wait};
use crate::support::http::{self, HttpBody};
use crate::support::install::{self, Replica};

const PODS: usize = 100_000;
/// One of so many stands alone, for Windows, and has a finding; the others are a ReplicaSet's.
const ALONE: usize = 500;
/// Changes of pods in a second, told by the watch.
const CHANGES: u64 = 100;

/// A pod as an API server lists it, with what the kubelet and the controllers wrote.
fn pod(number: usize, version: usize) -> String {
    let is_alone = number % ALONE == ALONE - 1;
    let owner = format!(
        r#""ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-{0}","uid":"00000000-0000-4000-9000-{0:012}","controller":true,"blockOwnerDeletion":true}}],"#,
        number / 20
    );
    let owner = if is_alone { "" } else { &owner };
    let special = if is_alone {
        r#""hostPID":true,"nodeSelector":{"kubernetes.io/os":"windows"},"#
    } else {
        ""
    };
    let fields = r#"{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{}}},"subresource":"status"}"#;
    let variables: Vec<String> = (0..40)
        .map(|at| format!(r#"{{"name":"SETTING_{at}","value":"the value of setting {at} of a service"}}"#))
        .collect();
    format!(
        r#"{{"metadata":{{"name":"web-{number}","namespace":"shop","uid":"00000000-0000-4000-8000-{number:012}","resourceVersion":"{version}","creationTimestamp":"2026-01-01T00:00:00Z",{owner}"labels":{{"app":"web"}},"managedFields":[{fields},{fields}]}},"spec":{{{special}"nodeName":"n{}","containers":[{{"name":"web","image":"registry.example.com/shop/web:1.2.3","env":[{}],"resources":{{"limits":{{"cpu":"1","memory":"1Gi"}}}}}}]}},"status":{{"phase":"Running","conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}}],"podIP":"10.0.0.1"}}}}"#,
        number % 1000,
        variables.join(",")
    )
}

/// What lists and watches are told, and how many pods were read.
struct Source {
    client: Client,
    read: AtomicUsize,
}

impl Source {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<HttpBody> {
        // Before it writes a report, Transom reads the pod again.
        let name = request
            .uri()
            .path()
            .strip_prefix("/api/v1/namespaces/shop/pods/web-");
        if let Some(number) = name.and_then(|number| number.parse().ok()) {
            return http::text("application/json", pod(number, 1000));
        }
        let is_of_pods = request.uri().path() == "/api/v1/pods";
        let query = request.uri().query().unwrap_or_default().to_owned();
        let of = |name: &str| {
            let mut parts = query.split('&').filter_map(|part| part.split_once('='));
            let value = parts
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_owned());
            value.unwrap_or_default()
        };
        match (is_of_pods, of("watch").as_str()) {
            (true, "true") => watch(),
            (true, _) => self.page(
                of("continue").parse().unwrap_or(0),
                of("limit").parse().unwrap_or(PODS),
            ),
            (false, _) => self.pass_on(request).await,
        }
    }

    fn page(&self, first: usize, limit: usize) -> Response<HttpBody> {
        let last = (first + limit).min(PODS);
        self.read.fetch_max(last, Ordering::Relaxed);
        let items: Vec<String> = (first..last).map(|number| pod(number, 1000)).collect();
        let more = if last < PODS {
            last.to_string()
        } else {
            String::new()
        };
        let body = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"1000","continue":"{more}"}},"items":[{}]}}"#,
            items.join(",")
        );
        http::text("application/json", body)
    }

    async fn pass_on(&self, request: Request<Incoming>) -> Response<HttpBody> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        parts.headers.remove("host");
        let request = Request::from_parts(parts, Body::from(body.to_vec()));
        let answered = self.client.send(request).await.unwrap();
        answered.map(|body| body.map_err(Into::into).boxed_unsync())
    }
}

/// Changes of pods that change nothing, for ever.
fn watch() -> Response<HttpBody> {
    let changes = futures::stream::unfold(1001_usize, |version| async move {
        tokio::time::sleep(Duration::from_millis(1000 / CHANGES)).await;
        let number = (version * 7919) % PODS;
        let event = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", pod(number, version));
        Some((Ok(Frame::data(Bytes::from(event))), version + 1))
    });
    Response::new(StreamBody::new(changes.boxed()).boxed_unsync())
}

#[test]
fn what_is_stored_is_evaluated_within_72_mib_beside_100_000_pods() {
    let _turn = crate::beside_others();
    let Some(cluster) = ControlPlane::start_or_skip("tests/soak/stored.rs") else {
        return;
    };
    install::prepare(&cluster, install::POLICIES);
    cluster.create_namespace("shop", &[]);
    let definition = include_str!("../reports/openreports.yaml");
    cluster
        .kubectl_with(&["create", "-f", "-"], definition)
        .succeeded();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(cluster.client());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let source = Arc::new(Source {
        client,
        read: AtomicUsize::new(0),
    });
    let served = Arc::clone(&source);
    let answer = move |request| Arc::clone(&served).answer(request);
    runtime.spawn(http::serve_on(listener, None, answer));
    let kubeconfig = cluster.path("source.kubeconfig");
    let config = control_plane::kubeconfig(&format!("http://{address}"));
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let replica =
        Replica::start_with_kubeconfig(&cluster, &kubeconfig, "reporter", free_ports(), &["--reports"]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let pid = cluster.pid("reporter");
    print(&format!("ready: {}", memory_of(pid)));

    let began = Instant::now();
    let read = || source.read.load(Ordering::Relaxed) == PODS;
    assert!(
        wait(Duration::from_secs(300), read),
        "{}",
        cluster.end_of_log("reporter")
    );
    print(&format!(
        "{PODS} pods read in {:.0?}: {}",
        began.elapsed(),
        memory_of(pid)
    ));
    let written = || {
        let listed = cluster.kubectl(&["get", "reports.openreports.io", "-A", "-o", "name"]);
        listed.out.lines().count() == PODS / ALONE
    };
    assert!(
        wait(Duration::from_secs(120), written),
        "{}",
        cluster.end_of_log("reporter")
    );
    let memory = memory_of(pid);
    print(&format!(
        "{} reports after {:.0?}: {memory}",
        PODS / ALONE,
        began.elapsed()
    ));
    assert!(is_bounded(&memory), "{memory}");
    // Figures are published every two seconds.
    let count = format!("action=\"deny\"}} {}", PODS / ALONE);
    let shows_all = || {
        let (_, metrics) = replica.get("/metrics").unwrap();
        let mut findings = metrics
            .lines()
            .filter(|line| line.starts_with("transom_stored_findings{resource_namespace=\"shop\""));
        findings.any(|shown| shown.ends_with(&count))
    };
    assert!(
        wait(Duration::from_secs(20), shows_all),
        "{:?}",
        replica.get("/metrics")
    );
}

fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "stored: {text}");
}
