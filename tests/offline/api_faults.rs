//! Every command that reads a cluster, against an API server (a double, over HTTP) that expires tokens, limits requests,
//! cuts answers short, hangs, or refuses a list: the result is the one of a healthy API server, or says what is missing.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use hyper::{Response, Uri};
use serde_json::{Value, json};

use crate::support::command::{assert_valid_reports, program};
use crate::support::control_plane;
use crate::support::http::{self, HttpBody};

const NODES: &str = "/api/v1/nodes";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

/// What goes wrong with a list. Every list has two pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// The token of the second page has expired; another one is given.
    Expired,
    /// The same, and no other one is given: the list starts again.
    ExpiredForGood,
    /// Too many requests, twice.
    TooManyRequests,
    /// The first answer ends in the middle.
    CutShort,
    /// The first request is never answered.
    Hangs,
    /// The right to list it is missing.
    Forbidden,
}

/// An API server with one fault in one list.
struct ApiServer {
    port: u16,
    _kubeconfig: tempfile::TempDir,
    kubeconfig: String,
    requests: Arc<Mutex<BTreeMap<String, usize>>>,
}

fn status(code: u16, more: &Value) -> Response<HttpBody> {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": format!("it is {code}"), "reason": "R"});
    let more = more.as_object().unwrap().clone();
    status.as_object_mut().unwrap().extend(more);
    http::json(code, &status)
}

fn node(name: &str, os: &str, kernel: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/os": os, "agentpool": "win22"}},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "nodeInfo": {"operatingSystem": os, "kernelVersion": kernel, "kubeletVersion": "v1.36.2",
                "osImage": "x", "architecture": "amd64", "containerRuntimeVersion": "containerd://2.1.9"}}})
}

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"replicas": 1, "template": {"spec": {"nodeSelector": {"kubernetes.io/os": "windows"},
            "securityContext": {"runAsUser": 1000},
            "containers": [{"name": "app", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}]}}}})
}

/// The objects of each list.
fn objects(path: &str) -> Option<Vec<Value>> {
    Some(match path {
        NODES => vec![
            node("win-1", "windows", "10.0.20348.2527"),
            node("win-2", "windows", "10.0.17763.6414"),
            node("lin-1", "linux", "6.8.0"),
        ],
        DEPLOYMENTS => vec![deployment("one"), deployment("two"), deployment("three")],
        "/api/v1/namespaces" => vec![json!({"metadata": {"name": "shop", "uid": "shop"}})],
        "/api/v1/pods"
        | "/api/v1/podtemplates"
        | "/api/v1/replicationcontrollers"
        | "/apis/apps/v1/replicasets"
        | "/apis/apps/v1/statefulsets"
        | "/apis/apps/v1/daemonsets"
        | "/apis/batch/v1/cronjobs"
        | "/apis/batch/v1/jobs"
        | "/apis/node.k8s.io/v1/runtimeclasses"
        | "/apis/storage.k8s.io/v1/csinodes"
        | "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        | "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        | "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings" => Vec::new(),
        _ => return None,
    })
}

/// The answer to a request. `None`: never.
fn answer(uri: &Uri, before: usize, faulty: &str, fault: Fault) -> Option<Response<HttpBody>> {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    if path == "/version" {
        let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
        return Some(http::json(200, &version));
    }
    if path == "/apis" {
        let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []});
        return Some(http::json(200, &list));
    }
    let Some(mut objects) = objects(path) else {
        return Some(status(404, &json!({"reason": "NotFound"})));
    };
    let is_first_page = !query.contains("continue=");
    if path == faulty {
        match fault {
            Fault::Expired if query.contains("continue=old") => {
                return Some(status(410, &json!({"metadata": {"continue": "new"}})));
            }
            Fault::ExpiredForGood if query.contains("continue=old") && before == 0 => {
                return Some(status(410, &json!({})));
            }
            Fault::TooManyRequests if is_first_page && before < 2 => {
                return Some(status(429, &json!({"details": {"retryAfterSeconds": 1}})));
            }
            Fault::Hangs if is_first_page && before == 0 => return None,
            Fault::Forbidden => return Some(status(403, &json!({"reason": "Forbidden"}))),
            _ => {}
        }
    }
    let second = objects.split_off(objects.len().min(1));
    let (items, more) = match (is_first_page, second.is_empty()) {
        (true, true) => (objects, ""),
        (true, false) => (objects, "old"),
        (false, _) => (second, ""),
    };
    let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "9", "continue": more},
        "items": items});
    let is_cut = path == faulty && fault == Fault::CutShort && is_first_page && before == 0;
    Some(if is_cut {
        http::json_cut_short(&list)
    } else {
        http::json(200, &list)
    })
}

impl ApiServer {
    fn start(faulty: &'static str, fault: Fault) -> Self {
        let requests = Arc::<Mutex<BTreeMap<String, usize>>>::default();
        let counted = Arc::clone(&requests);
        let address = http::serve(move |request| {
            let before = {
                let mut counted = counted.lock().unwrap();
                let count = counted.entry(request.uri().to_string()).or_default();
                *count += 1;
                *count - 1
            };
            answer(request.uri(), before, faulty, fault)
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let config = control_plane::kubeconfig(&format!("http://{address}"));
        std::fs::write(&file, config.to_string()).unwrap();
        ApiServer {
            port: address.port(),
            kubeconfig: file.display().to_string(),
            _kubeconfig: folder,
            requests,
        }
    }

    /// What a command prints about this cluster, without the times and the address.
    fn run(&self, command: &[&str]) -> (Option<i32>, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = Command::new(program())
            .args(command)
            .args(["--kubeconfig", &self.kubeconfig])
            .env_remove("KUBECONFIG")
            .output()
            .unwrap();
        let plain = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes)
                .unwrap()
                .replace(&format!(":{}", self.port), ":PORT");
            let lines = text.lines().filter(|line| !line.contains("\"createdAt\""));
            lines.collect::<Vec<_>>().join("\n")
        };
        (status.code(), plain(stdout), plain(stderr))
    }

    fn requests_for(&self, path: &str) -> usize {
        let requests = self.requests.lock().unwrap();
        let of_path = requests
            .iter()
            .filter(|(requested, _)| requested.split('?').next() == Some(path));
        of_path.map(|(_, count)| count).sum()
    }
}

const COMMANDS: [&[&str]; 4] = [
    &["scan", "-o", "json"],
    &["plan", "--to", "ltsc2025", "-o", "json"],
    &["preflight", "-o", "json"],
    &["uninstall", "--dry-run"],
];

/// What a command printed, and how often it requested the faulty list.
type Run = ((Option<i32>, String, String), usize);

/// Runs every command against a server of its own, at the same time.
fn run_all(faulty: &'static str, fault: Fault) -> Vec<Run> {
    let runs = COMMANDS.map(|command| {
        std::thread::spawn(move || {
            let server = ApiServer::start(faulty, fault);
            let run = server.run(command);
            (run, server.requests_for(faulty))
        })
    });
    runs.into_iter().map(|run| run.join().unwrap()).collect()
}

/// Validates a report, of which the time is removed.
fn assert_schema(command: &str, report: &str) {
    let Ok(mut report) = serde_json::from_str::<Value>(report) else {
        assert_eq!(command, "uninstall");
        return;
    };
    if command != "plan" {
        report["createdAt"] = "2026-01-01T00:00:00Z".into();
    }
    assert_valid_reports(command, &[&report]);
}

#[test]
fn every_command_gets_over_faults_that_pass() {
    let faults = [
        Fault::Expired,
        Fault::ExpiredForGood,
        Fault::TooManyRequests,
        Fault::CutShort,
        Fault::Hangs,
    ];
    let all = faults
        .iter()
        .flat_map(|fault| [(NODES, *fault), (DEPLOYMENTS, *fault)]);
    let all: Vec<_> = all
        .map(|(faulty, fault)| (faulty, fault, std::thread::spawn(move || run_all(faulty, fault))))
        .collect();
    let healthy = [NODES, DEPLOYMENTS].map(|path| (path, run_all(path, Fault::None)));
    for (_, runs) in &healthy {
        for (command, ((_, stdout, stderr), _)) in COMMANDS.iter().zip(runs) {
            let is_whole = command[0] == "uninstall" || stdout.contains("three");
            assert!(is_whole, "{command:?} reads every page: {stdout}{stderr}");
            assert_schema(command[0], stdout);
        }
    }
    for (faulty, fault, runs) in all {
        let (_, healthy) = healthy.iter().find(|(path, _)| *path == faulty).unwrap();
        let runs = runs.join().unwrap();
        for (command, ((found, requests), (expected, usual))) in COMMANDS.iter().zip(runs.iter().zip(healthy))
        {
            assert_eq!(found, expected, "{command:?} with {fault:?} of {faulty}");
            assert!(
                requests > usual || *usual == 0,
                "{command:?} did not meet {fault:?} of {faulty}: {requests} requests"
            );
        }
    }
}

#[test]
fn every_command_says_what_it_may_not_read_and_exits_with_2() {
    for (faulty, resource) in [(NODES, "nodes"), (DEPLOYMENTS, "deployments")] {
        let commands = COMMANDS.iter().take(3);
        for (command, ((code, stdout, stderr), _)) in commands.zip(run_all(faulty, Fault::Forbidden)) {
            assert_eq!(code, Some(2), "{command:?}: {stdout}{stderr}");
            let message = format!("{stdout}{stderr}");
            assert!(
                message.contains(resource) && message.contains("403"),
                "{command:?}: {message}"
            );
            assert_schema(command[0], &stdout);
        }
    }
}

#[test]
fn every_command_reads_nodes_once() {
    for command in COMMANDS {
        let server = ApiServer::start(NODES, Fault::None);
        server.run(command);
        assert_eq!(
            server.requests_for(NODES),
            2,
            "one request for each page: {command:?}"
        );
    }
}
