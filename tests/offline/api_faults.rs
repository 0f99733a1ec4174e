//! Every command that reads a cluster, against an API server (a double, over HTTP) that expires tokens, limits requests,
//! cuts answers short, hangs, or refuses a list: the result is the one of a healthy API server, or says what is missing.
#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use hyper::{Response, Uri};
use serde_json::{Value, json};
use transom::cluster::node::{NodeView, WatchedNode};
use transom::cluster::stored_node_policies::NodePolicies;
use transom::controller::node_policies::node_state::{NodePlans, PolicyResolver};
use transom::model::cluster::facts::Facts;

use crate::support::command::{assert_valid_reports, program, transom};
use crate::support::control_plane;
use crate::support::http::{self, HttpBody};

const NODES: &str = "/api/v1/nodes";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
/// Instead of a list: each of them.
const EVERYTHING: &str = "*";

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
    let (pool, taints) = if kernel.contains("17763") {
        // It means nothing to Transom, and keeps pods for Linux off nevertheless.
        let taint = json!({"key": "dedicated", "value": "windows", "effect": "NoSchedule"});
        ("win19", json!([taint]))
    } else {
        ("win22", json!([]))
    };
    json!({"apiVersion": "v1", "kind": "Node", "spec": {"taints": taints}, "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/os": os, "agentpool": pool},
            "annotations": {"flannel.alpha.coreos.com/backend-type": "vxlan"}},
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

/// A pod of the first Deployment, by a ReplicaSet that is not listed, and for a build that no node has.
fn pending_pod() -> Value {
    json!({"metadata": {"name": "one-5d4f8c7b9-x7k2p", "namespace": "shop", "uid": "pending",
            "labels": {"pod-template-hash": "5d4f8c7b9"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "one-5d4f8c7b9", "uid": "r",
                "controller": true}]},
        "spec": {"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.26100"},
            "containers": [{"name": "app", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2025"}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/3 nodes are available"}]}})
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
        "/api/v1/pods" => vec![pending_pod()],
        "/api/v1/podtemplates"
        | "/api/v1/replicationcontrollers"
        | "/apis/apps/v1/replicasets"
        | "/apis/apps/v1/statefulsets"
        | "/apis/apps/v1/daemonsets"
        | "/apis/batch/v1/cronjobs"
        | "/apis/batch/v1/jobs"
        | "/apis/networking.k8s.io/v1/networkpolicies"
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
    if (path == faulty || faulty == EVERYTHING) && fault == Fault::Forbidden {
        return Some(status(403, &json!({"reason": "Forbidden"})));
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
            // Without nodes there is no plan.
            if (command[0], faulty) == ("plan", NODES) {
                assert_eq!(stdout, "");
            } else {
                assert_schema(command[0], &stdout);
            }
        }
    }
}

/// What a person reads if one list, or each, is forbidden.
#[test]
fn nothing_is_said_to_be_absent_that_may_not_be_read() {
    const POLICIES: &str = "/apis/transom.dev/v1alpha1/windowspodpolicies";
    const DAEMON_SETS: &str = "/apis/apps/v1/daemonsets";
    const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status";
    let drain: &[&str] = &["drain", "win-1", "--dry-run"];
    let plan: &[&str] = &["plan", "--to", "ltsc2025"];
    let pool: &[&str] = &["plan", "--to", "ltsc2025", "--from", "win22"];
    let is_known = "nothing enforces NetworkPolicies";
    let healthy = ApiServer::start(NODES, Fault::None).run(&["preflight"]);
    assert!(healthy.1.contains(is_known), "{}", healthy.1);
    for (faulty, command, said, absent) in [
        (
            POLICIES,
            &["scan"][..],
            "the WindowsPodPolicies could not be read",
            "no WindowsPodPolicy exists",
        ),
        (POLICIES, &["scan"], "(policy not known: ", "(no policy: "),
        (
            POLICIES,
            plan,
            "by the built-in policy, because no known",
            "because no WindowsPodPolicy",
        ),
        (
            NODES,
            drain,
            "cannot read nodes, without which nothing can be planned",
            "no pool",
        ),
        (
            NODES,
            pool,
            "cannot read nodes, without which nothing can be planned",
            "no pool",
        ),
        (
            NODES,
            &["preflight"],
            "the values below are for charts/",
            "not recognized",
        ),
        (
            DEPLOYMENTS,
            plan,
            "as far as they could be read",
            "nothing to plan",
        ),
        (
            CONFIG_MAP,
            &["preflight"],
            "not known (not read): configmaps",
            "none is seen",
        ),
        (DAEMON_SETS, &["preflight"], "daemonsets", is_known),
        (
            EVERYTHING,
            &["uninstall", "--dry-run"],
            "cannot be seen: ",
            "there is nothing to remove",
        ),
    ] {
        let server = ApiServer::start(faulty, Fault::Forbidden);
        let (code, stdout, stderr) = server.run(command);
        let text = format!("{stdout} {stderr}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(said), "{command:?} does not say {said:?}: {text}");
        assert!(!text.contains(absent), "{command:?} says {absent:?}: {text}");
        assert!(
            text.contains("it is 403") && matches!(code, Some(1 | 2)),
            "{command:?}: {code:?} {text}"
        );
    }
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let mut server = ApiServer::start(NODES, Fault::None);
    // Nothing listens on the port of discard.
    let config = control_plane::kubeconfig("http://127.0.0.1:9");
    std::fs::write(&server.kubeconfig, config.to_string()).unwrap();
    server.port = 0;
    for command in COMMANDS {
        let (code, stdout, stderr) = server.run(command);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{command:?}: {stderr}");
        assert!(stderr.contains("(http://127.0.0.1:9/)"), "{command:?}: {stderr}");
    }
}

#[test]
fn a_node_that_cannot_be_drained_is_explained() {
    let server = ApiServer::start(NODES, Fault::None);
    for (node, why) in [
        (
            "lin-1",
            "node lin-1 is not a Windows node; kubectl drain drains it",
        ),
        ("win-11", "there is no node \"win-11\"; did you mean win-1?"),
        (
            "10.0.0.7",
            "there is no node \"10.0.0.7\"; the Windows nodes are win-1, win-2",
        ),
    ] {
        let (code, _, stderr) = server.run(&["drain", node, "--dry-run"]);
        assert_eq!((code, stderr), (Some(2), format!("error: {why}")));
    }
    // Draining no node at all would be done at once.
    let (code, _, stderr) = server.run(&["drain", "--pool", "win-1", "--dry-run"]);
    assert!(
        code == Some(2) && stderr.contains("no pool of Windows nodes has the name or build \"win-1\""),
        "{stderr}"
    );
}

#[test]
fn a_namespace_that_does_not_exist_is_an_error() {
    let server = ApiServer::start(NODES, Fault::None);
    let (code, stdout, _) = server.run(&["scan", "-n", "shpo"]);
    assert!(
        code == Some(2)
            && stdout.contains("there is no namespace of this name")
            && stdout.contains("did you mean shop?"),
        "{stdout}"
    );
}

#[test]
fn what_waits_now_is_read_before_what_would_be_denied() {
    let server = ApiServer::start(NODES, Fault::None);
    let (_, stdout, _) = server.run(&["scan"]);
    let at = |part: &str| stdout.find(part).unwrap_or_else(|| panic!("{part}: {stdout}"));
    assert!(at("pods that cannot start") < at("workloads by rule"), "{stdout}");
    at("shop/one-5d4f8c7b9-x7k2p of Deployment one:");
    assert!(
        stdout.contains("Audit instead of Deny: no known WindowsPodPolicy applies"),
        "{stdout}"
    );
}

#[test]
fn what_kubernetes_and_microsoft_support_is_said_by_both_commands() {
    let server = ApiServer::start(NODES, Fault::None);
    let (_, preflight, _) = server.run(&["preflight"]);
    let preflight = preflight.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, plan, _) = server.run(&["plan", "--to", "ltsc2025"]);
    for (text, said) in [
        (
            &preflight,
            "Kubernetes 1.36 supports Windows Server 2022 and Windows Server 2025, not Windows Server 2019 (10.0.17763) [TSM901",
        ),
        (
            &plan,
            "Kubernetes 1.36 does not support nodes of Windows Server 2019",
        ),
        (
            &plan,
            "2029-01-09: end of Microsoft's support for Windows Server 2019",
        ),
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let (_, plan, _) = server.run(&["plan", "--to", "ltsc2019"]);
    assert!(
        plan.starts_with("to Windows Server 2019 (10.0.17763): no known pool has an older build"),
        "{plan}"
    );
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

/// A finding of a rule on a node: the id of the rule, its name, the message and the remedy; and the node.
type OfNode = ([String; 4], String);

fn texts(finding: &Value, of_each: &Value) -> Vec<OfNode> {
    let text = |key: &str| finding[key].as_str().unwrap().to_owned();
    let words = ["id", "rule", "message", "remedy"].map(text);
    let nodes = of_each.as_array().unwrap().iter();
    nodes
        .map(|node| (words.clone(), node.as_str().unwrap().to_owned()))
        .collect()
}

/// What `check` reports of the nodes in a file.
fn of_check(nodes: &[Value]) -> BTreeSet<OfNode> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nodes.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": nodes});
    std::fs::write(&file, list.to_string()).unwrap();
    let run = transom(folder.path(), &["check", "-o", "json", "nodes.json"]);
    let report: Value = serde_json::from_str(&run.out).unwrap();
    let objects = report["objects"].as_array().unwrap().iter();
    let findings = objects.flat_map(|object| {
        let findings = object["findings"].as_array().unwrap().iter();
        findings.flat_map(|found| texts(found, &json!([object["name"]])))
    });
    findings.collect()
}

/// What the node controller knows of the same nodes: the findings, and the certain faults. It has its own condition for unsupported
/// builds.
fn of_policy(nodes: &[Value]) -> BTreeSet<(String, String, String)> {
    let stored = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
        "metadata": {"name": "p", "generation": 1}, "spec": {"mode": "Reconcile", "taints": {"mode": "Audit"}}});
    let policy = ("p".to_owned(), Arc::new(serde_json::from_value(stored).unwrap()));
    let resolver = PolicyResolver {
        policies: NodePolicies::of(&[policy].into()),
        ..PolicyResolver::default()
    };
    let view = |node: &Value| {
        let watched: WatchedNode = serde_json::from_value(node.clone()).unwrap();
        Arc::new(NodeView::from(watched))
    };
    let views: Vec<Arc<NodeView>> = nodes.iter().map(view).collect();
    let facts = Facts::new(36, transom::process::today());
    let assessed = NodePlans::of(&views, &resolver).assess(&resolver.policies, &facts);
    let state = &assessed["p"];
    let findings = state.findings.iter().flat_map(|((message, remedy), nodes)| {
        let nodes = nodes.iter();
        nodes.map(|node| (message.clone(), remedy.clone(), node.clone()))
    });
    let faults = state.known_faults.certain().flat_map(|found| {
        let words = (&found.fault.message, &found.fault.remedy);
        let nodes = found.nodes.iter();
        nodes.map(move |node| (words.0.clone(), words.1.clone(), node.clone()))
    });
    findings.chain(faults).collect()
}

#[test]
fn check_preflight_scan_and_a_node_policy_report_the_same_of_a_node() {
    let nodes = objects(NODES).unwrap();
    let checked = of_check(&nodes);
    let has = |rule: &str, node: &str| {
        let mut all = checked.iter();
        all.any(|([id, ..], name)| id == rule && name == node)
    };
    assert!(has("TSM904", "win-1") && !has("TSM904", "win-2"), "{checked:#?}");
    assert!(
        has("TSM901", "win-2") && has("TSM903", "win-2") && has("TSM912", "win-1"),
        "{checked:#?}"
    );

    let server = ApiServer::start(NODES, Fault::None);
    let report = |command: &str| -> Value {
        let (_, json, _) = server.run(&[command, "-o", "json"]);
        serde_json::from_str(&json).unwrap()
    };
    let scan = report("scan");
    let scanned = scan["nodeFindings"].as_array().unwrap().iter();
    let scanned: BTreeSet<OfNode> = scanned.flat_map(|found| texts(found, &found["nodes"])).collect();
    assert_eq!(scanned, checked, "scan");

    let preflight = report("preflight");
    let sections = preflight["sections"].as_array().unwrap().iter();
    let findings = sections.flat_map(|section| section["findings"].as_array().unwrap());
    let mut found = BTreeSet::new();
    for finding in findings {
        let message = finding["message"].as_str().unwrap();
        let Some((message, rule)) = message
            .strip_suffix(']')
            .and_then(|text| text.rsplit_once(" [TSM"))
        else {
            continue;
        };
        let (id, rule) = rule.split_once(' ').unwrap();
        let words = [
            &format!("TSM{id}"),
            rule,
            message,
            finding["remedy"].as_str().unwrap(),
        ];
        for node in finding["evidence"].as_array().unwrap() {
            let node = node.as_str().unwrap().trim_start_matches("node ").to_owned();
            found.insert((words.map(str::to_owned), node));
        }
    }
    assert_eq!(found, checked, "preflight");
    // Any taint keeps pods for Linux off, and only one that means Windows is written.
    let text = preflight.to_string();
    assert!(
        text.contains("the taint dedicated=windows:NoSchedule on 1 of 2 Windows nodes keeps Linux pods off"),
        "{text}"
    );
    assert!(!preflight["values"].to_string().contains("dedicated"), "{text}");

    // Possible faults are only in `status.knownFaults`, each for itself.
    let of_conditions = checked.iter().filter(|([id, _, message, _], _)| {
        let is_possible = id == "TSM912" && message.contains("may have");
        id != "TSM901" && !is_possible
    });
    let expected = of_conditions.map(|([id, rule, message, remedy], node)| {
        let remedy = match id.as_str() {
            "TSM912" => remedy.clone(),
            _ => format!("{remedy} [{id} {rule}]"),
        };
        (message.clone(), remedy, node.clone())
    });
    assert_eq!(of_policy(&nodes), expected.collect(), "node policy");
}
