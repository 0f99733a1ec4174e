//! One span per review, from the real program over real TLS to a real OTLP/HTTP receiver; and reviews that go on whatever
//! becomes of the receiver.
#![cfg(unix)]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::collector::{Collector, Mood, Span};
use crate::support::command::program;
use crate::support::server::Server;
use serde_json::{Value, json};

/// How long a kubelet waits for the end of a process before it kills it.
const GRACE_PERIOD: Duration = Duration::from_secs(30);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A pod for Windows that placement changes, and that is denied where `bad`.
fn review(name: &str, bad: bool) -> Vec<u8> {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "containers": [
                {"name": "a", "image": "mcr.microsoft.com/windows/servercore:ltsc2022", "env": [{"name": "KEY", "value": "hush"}]},
                {"name": "b", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"},
            ],
        },
    });
    if bad {
        pod["spec"]["hostPID"] = json!(true);
    }
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": format!("uid-of-{name}"), "operation": "CREATE", "namespace": "shop", "name": name,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": "alice", "groups": ["developers"]},
            "dryRun": false,
            "object": pod,
        },
    })
    .to_string()
    .into_bytes()
}

fn server(folder: &Path, collector: &Collector, more: &[&str]) -> Server {
    let endpoint = format!("http://{}", collector.address);
    Server::start(folder, &[&["--otlp-endpoint", &endpoint], more].concat())
}

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// The spans in the order in which they began; there are as many and no more.
#[track_caller]
fn spans(collector: &Collector, count: usize) -> Vec<Span> {
    let mut spans = collector.wait_for(count, |_| true);
    assert_eq!(spans.len(), count, "{spans:#?}");
    spans.sort_by_key(|span| span.start);
    spans
}

/// Waits until something is so.
#[track_caller]
fn wait(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came to be");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_review_with_a_sampled_parent_is_its_child_and_says_what_the_audit_line_says() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start(Mood::Takes);
    let server = server(
        folder.path(),
        &collector,
        &[
            "--otlp-headers",
            "authorization=Bearer%20key",
            "--resource-attributes",
            "k8s.pod.name=transom-1",
        ],
    );
    let headers = [("traceparent", parent("01")), ("tracestate", "a=1".to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let good = review("good", false);
    assert_eq!(server.post_with("/mutate", &headers, &good).0, 200);
    let (status, answer) = server.post_with("/validate", &headers, &review("bad", true));
    assert_eq!(status, 200);
    assert!(answer.contains("\"allowed\":false"), "{answer}");

    let [mutated, denied] = spans(&collector, 2).try_into().unwrap();
    for span in [&mutated, &denied] {
        assert_eq!(
            (&*span.trace, &*span.parent, &*span.state),
            (TRACE, PARENT, "a=1")
        );
        assert_eq!((span.is_server, span.flags, &span.error), (true, 0x301, &None));
        assert_eq!(span.resource["service.name"], "transom");
        assert_eq!(span.resource["k8s.pod.name"], "transom-1");
        assert!(
            span.end > span.start && span.end - span.start < 2_000_000_000,
            "{span:?}"
        );
        let message = format!("{span:?}");
        assert!(
            !message.contains("alice") && !message.contains("hush"),
            "{message}"
        );
    }
    assert_ne!(mutated.id, denied.id);
    assert_eq!(
        (&*mutated.name, &*denied.name),
        ("POST /mutate", "POST /validate")
    );
    assert_eq!(
        json!(mutated.attributes),
        json!({
            "http.request.method": "POST",
            "http.route": "/mutate",
            "http.request.body.size": good.len(),
            "http.response.status_code": 200,
            "url.path": "/mutate",
            "url.scheme": "https",
            "network.protocol.version": "1.1",
            "server.address": "localhost",
            "transom.webhook.type": "mutating",
            "transom.operation": "CREATE",
            "transom.review.uid": "uid-of-good",
            "transom.object.kind": "Pod",
            "transom.object.namespace": "shop",
            "transom.object.name": "good",
            "transom.policy": "built-in",
            "transom.dry_run": false,
            "transom.decision": "patch",
            "transom.patched": true,
            "transom.verdict": "Windows",
            "transom.rules": mutated.attributes["transom.rules"],
        })
    );
    assert_eq!(denied.attributes["transom.decision"], "deny");
    assert_eq!(denied.attributes["transom.patched"], false);
    let rules = denied.attributes["transom.rules"].as_array().unwrap();
    assert!(rules.contains(&json!("host-pid")), "{rules:?}");
    let once: std::collections::BTreeSet<&str> = rules.iter().map(|rule| rule.as_str().unwrap()).collect();
    assert_eq!(once.len(), rules.len(), "each rule stands there once: {rules:?}");

    let export = collector.exports().remove(0);
    assert_eq!(export.path, "/v1/traces");
    assert_eq!(export.headers["content-type"], "application/x-protobuf");
    assert_eq!(export.headers["authorization"], "Bearer key");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn nothing_is_traced_without_a_sampled_parent_unless_the_ratio_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start(Mood::Takes);
    let quiet = server(folder.path(), &collector, &[]);
    let body = review("quiet", false);
    for headers in [
        &[][..],
        &[("traceparent", parent("00"))],
        &[("traceparent", "nonsense".to_owned())],
    ] {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(quiet.post_with("/mutate", &headers, &body).0, 200);
    }
    // The end exports whatever there is.
    assert_eq!(quiet.terminate(), Some(0));
    assert_eq!(collector.exports().len(), 0);

    let loud = server(
        folder.path(),
        &collector,
        &["--trace-ratio", "1", "--service-name", "door"],
    );
    assert_eq!(loud.post("/validate", &body).0, 200);
    let unsampled = parent("00");
    assert_eq!(
        loud.post_with("/validate", &[("traceparent", &unsampled)], &body)
            .0,
        200
    );
    assert_eq!(
        loud.get("/livez").map(|answer| answer.contains("200")),
        Some(true)
    );
    assert_eq!(loud.terminate(), Some(0));
    let [root] = spans(&collector, 1).try_into().unwrap();
    assert_eq!((&*root.parent, root.flags, root.trace.len()), ("", 0x101, 32));
    assert_eq!(root.resource["service.name"], "door");
}

#[test]
fn what_gets_no_review_is_a_span_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start(Mood::Takes);
    let bounds = ["--max-concurrent", "1", "--body-timeout", "20s"];
    let server = server(folder.path(), &collector, &bounds);
    let sampled = parent("01");
    let headers = [("traceparent", &*sampled)];
    assert_eq!(server.post_with("/validate", &headers, b"{\"secret\": 1}").0, 400);
    assert_eq!(server.post_with("/nowhere", &headers, b"{}").0, 404);

    // As many requests as may be open, whose bodies do not come: the one that has waited longest gives way to the next.
    let slow = [1, 2, 3, 4].map(|open| {
        let mut slow = server.connect();
        write!(
            slow,
            "POST /mutate HTTP/1.1\r\nhost: localhost:8443\r\ncontent-type: application/json\r\n\
             content-length: 9\r\ntraceparent: {sampled}\r\nuser-agent: kube-apiserver-admission\r\n\r\n"
        )
        .unwrap();
        slow.flush().unwrap();
        wait(|| server.metric("transom_http_requests_in_flight") == Some(open));
        slow
    });
    assert_eq!(server.post_with("/mutate", &headers, b"{}").0, 400);
    wait(|| server.metric("transom_requests_rejected_total{reason=\"slow_client\"}") == Some(1));
    drop(slow);

    let spans = spans(&collector, 6);
    let message: Vec<_> = spans
        .iter()
        .map(|span| {
            let of = |key: &str| span.attributes.get(key).cloned().unwrap_or(Value::Null);
            let error = span.error.as_deref().unwrap_or_default().trim_end();
            json!([
                span.name,
                of("http.response.status_code"),
                of("error.type"),
                error
            ])
        })
        .collect();
    assert_eq!(
        json!(message),
        json!([
            ["POST /validate", 400, "400", "the body is not an AdmissionReview"],
            [
                "POST /mutate",
                503,
                "503",
                "overloaded, and this request waited for its client"
            ],
            ["POST /mutate", 400, "400", "the body ended early"],
            ["POST /mutate", 400, "400", "the body ended early"],
            ["POST /mutate", 400, "400", "the body ended early"],
            ["POST /mutate", 400, "400", "the body is not an AdmissionReview"],
        ])
    );
    assert_eq!(spans[1].attributes["server.port"], 8443);
    assert_eq!(
        spans[1].attributes["user_agent.original"],
        "kube-apiserver-admission"
    );
    assert!(!format!("{spans:?}").contains("secret"));
}

#[test]
fn a_collector_is_trusted_by_the_ca_that_is_named_and_by_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, other) = (
        folder.path().join("collector.pem"),
        folder.path().join("other.pem"),
    );
    let collector = Collector::start_tls(&ca);
    let _other = Collector::start_tls(&other);
    let endpoint = format!("https://{}", collector.address);
    let sampled = parent("01");
    for (file, exports) in [(&other, 0), (&ca, 1)] {
        let file = file.display().to_string();
        let server = Server::start(folder.path(), &["--otlp-endpoint", &endpoint, "--otlp-ca", &file]);
        let headers = [("traceparent", &*sampled)];
        assert_eq!(
            server.post_with("/mutate", &headers, &review("tls", false)).0,
            200
        );
        assert_eq!(server.terminate(), Some(0));
        assert_eq!(collector.exports().len(), exports, "{file}");
    }
}

#[test]
fn whatever_becomes_of_the_collector_reviews_go_on_and_the_end_is_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (refuses, hangs) = (
        Collector::start(Mood::Answers(500)),
        Collector::start(Mood::Hangs),
    );
    let sampled = parent("01");
    for (what, address) in [
        ("gone", gone),
        ("refuses", refuses.address),
        ("hangs", hangs.address),
    ] {
        let endpoint = format!("http://{address}");
        let server = Server::start(folder.path(), &["--otlp-endpoint", &endpoint]);
        for _ in 0..40 {
            let headers = [("traceparent", &*sampled)];
            assert_eq!(
                server.post_with("/mutate", &headers, &review("any", false)).0,
                200
            );
        }
        // A review that waited for the collector would have been exported before the next one.
        assert!(hangs.exports().len() < 40, "{what}");
        match what {
            "gone" => {}
            "refuses" => wait(|| !refuses.exports().is_empty()),
            _ => wait(|| !hangs.exports().is_empty()),
        }
        assert_eq!(server.post("/mutate", &review("any", false)).0, 200);
        let start = Instant::now();
        assert_eq!(server.terminate(), Some(0), "{what}");
        assert!(start.elapsed() < GRACE_PERIOD, "{what}: {:?}", start.elapsed());
    }
}

#[test]
fn a_collector_that_is_busy_for_a_moment_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start(Mood::IsBusyAtFirst);
    let server = server(folder.path(), &collector, &["--trace-ratio", "1"]);
    assert_eq!(server.post("/mutate", &review("patient", false)).0, 200);
    assert_eq!(spans(&collector, 1)[0].name, "POST /mutate");
    assert_eq!(collector.exports().len(), 2);
}

#[test]
fn what_cannot_be_used_ends_the_start_with_the_variable_and_the_cure() {
    for (variable, value, words) in [
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "collector:4318",
            "write it as in http://collector:4318",
        ),
        (
            "OTEL_TRACES_SAMPLER_ARG",
            "often",
            "OTEL_TRACES_SAMPLER_ARG): write a number from 0 to 1",
        ),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "hush",
            "entry 1 of OTEL_EXPORTER_OTLP_HEADERS",
        ),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf only"),
        (
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
            "no/such/file",
            "cannot read the CA no/such/file (--otlp-ca",
        ),
    ] {
        let output = Command::new(program())
            .args([
                "serve",
                "--standalone",
                "--listen",
                "127.0.0.1:0",
                "--health-listen",
                "127.0.0.1:0",
            ])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example.com")
            .env(variable, value)
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(words), "{variable}: {message}");
        assert!(!message.contains("hush"), "{message}");
    }
}
