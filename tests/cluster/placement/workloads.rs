//! Workloads in all the ways that authors write them, and the nodes that can really run each.

use serde_json::{Value, json};

use crate::support::objects::{node_affinity, workload};

/// What is right for a workload.
#[derive(Clone, Copy, Debug)]
pub enum Truth {
    /// Its pods belong on these nodes.
    RunsOn(&'static [&'static str]),
    /// It is refused when it is applied, with this rule.
    Denied(&'static str),
}

pub struct Workload {
    pub name: String,
    pub object: Value,
    pub truth: Truth,
}

pub const LINUX: Truth = Truth::RunsOn(&["linux-a", "linux-b"]);
pub const WINDOWS: Truth = Truth::RunsOn(&["win-2019", "win-2022", "win-23h2", "win-2025"]);
pub const ON_2019: Truth = Truth::RunsOn(&["win-2019"]);
/// Where images of Server 2022 run: its own build, and every newer one.
pub const ON_2022: Truth = Truth::RunsOn(&["win-2022", "win-23h2", "win-2025"]);
pub const ON_2025: Truth = Truth::RunsOn(&["win-2025"]);

const CORE_2019: &str = "mcr.microsoft.com/windows/servercore:ltsc2019";
const CORE_2022: &str = "mcr.microsoft.com/windows/servercore:ltsc2022";
const CORE_2025: &str = "mcr.microsoft.com/windows/servercore:ltsc2025";
const NANO_1809: &str = "mcr.microsoft.com/windows/nanoserver:1809";
const NANO_2022: &str = "mcr.microsoft.com/windows/nanoserver:ltsc2022";
const FRAMEWORK: &str = "mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2019";
const ASPNET: &str = "mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-ltsc2022";
const IIS: &str = "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022";
const OWN: &str = "registry.example.com/shop/web:1.4";
const OWN_2022: &str = "registry.example.com/shop/web:1.4-ltsc2022";

/// Every way to say Windows, by the field that says it.
pub fn os_name() -> Value {
    json!({"os": {"name": "windows"}})
}

pub fn selector() -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows"}})
}

fn beta() -> Value {
    json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}})
}

fn both() -> Value {
    json!({"os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"}})
}

fn with_toleration() -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]})
}

fn two_terms() -> Value {
    let term =
        |key: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["windows"]}]});
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        term("kubernetes.io/os"), term("beta.kubernetes.io/os"),
    ]}}}})
}

fn build(build: &str) -> Value {
    json!({"nodeSelector": {"node.kubernetes.io/windows-build": build}})
}

pub fn nothing() -> Value {
    json!({})
}

fn linux() -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "linux"}})
}

fn tolerates_all() -> Value {
    json!({"tolerations": [{"operator": "Exists"}]})
}

fn host_process() -> Value {
    json!({"hostNetwork": true, "nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": [{"operator": "Exists"}],
        "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}})
}

/// The selector and what else a DaemonSet's template needs to run on nodes of one build.
fn daemon(build: &str) -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build},
        "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]})
}

pub fn object(kind: &str, name: &str, spec: Value, image: &str) -> Value {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "app", "image": image, "resources": {"requests": {"cpu": "10m"}}}]);
    workload(kind, name, &spec, if kind == "Deployment" { 4 } else { 2 })
}

/// The workloads. Each is one that somebody has written like this.
#[allow(clippy::too_many_lines)] // a table
pub fn workloads() -> Vec<Workload> {
    let list: Vec<(&'static str, &str, Value, &str, Truth)> = vec![
        ("pod-os-name", "Pod", os_name(), CORE_2022, ON_2022),
        ("pod-os-name-2019", "Pod", os_name(), CORE_2019, ON_2019),
        ("pod-selector", "Pod", selector(), NANO_2022, ON_2022),
        ("pod-beta", "Pod", beta(), NANO_1809, ON_2019),
        ("pod-both", "Pod", both(), CORE_2025, ON_2025),
        ("pod-image-only", "Pod", nothing(), CORE_2022, ON_2022),
        ("pod-image-only-2019", "Pod", nothing(), FRAMEWORK, ON_2019),
        (
            "pod-build",
            "Pod",
            build("10.0.20348"),
            OWN,
            Truth::RunsOn(&["win-2022"]),
        ),
        ("pod-own-image", "Pod", selector(), OWN, WINDOWS),
        ("pod-own-tag", "Pod", selector(), OWN_2022, ON_2022),
        (
            "pod-affinity",
            "Pod",
            node_affinity("kubernetes.io/os", "In", &["windows"]),
            CORE_2019,
            ON_2019,
        ),
        (
            "pod-affinity-not-linux",
            "Pod",
            node_affinity("kubernetes.io/os", "NotIn", &["linux"]),
            CORE_2022,
            ON_2022,
        ),
        ("pod-two-terms", "Pod", two_terms(), CORE_2025, ON_2025),
        ("pod-host-process", "Pod", host_process(), OWN, WINDOWS),
        ("web-os-name", "Deployment", os_name(), ASPNET, ON_2022),
        ("web-selector", "Deployment", selector(), IIS, ON_2022),
        ("web-selector-2019", "Deployment", selector(), FRAMEWORK, ON_2019),
        ("web-beta", "Deployment", beta(), CORE_2025, ON_2025),
        ("web-both", "Deployment", both(), CORE_2019, ON_2019),
        (
            "web-toleration",
            "Deployment",
            with_toleration(),
            CORE_2022,
            ON_2022,
        ),
        ("web-image-only", "Deployment", nothing(), IIS, ON_2022),
        ("web-image-nano", "Deployment", nothing(), NANO_1809, ON_2019),
        ("web-own-image", "Deployment", both(), OWN, WINDOWS),
        ("web-own-tag", "Deployment", os_name(), OWN_2022, ON_2022),
        (
            "web-affinity",
            "Deployment",
            node_affinity("kubernetes.io/os", "In", &["windows"]),
            ASPNET,
            ON_2022,
        ),
        (
            "web-affinity-build",
            "Deployment",
            node_affinity("node.kubernetes.io/windows-build", "In", &["10.0.17763"]),
            CORE_2019,
            ON_2019,
        ),
        ("web-build", "Deployment", build("10.0.26100"), CORE_2022, ON_2025),
        ("db-selector", "StatefulSet", selector(), CORE_2022, ON_2022),
        ("db-os-name", "StatefulSet", os_name(), CORE_2019, ON_2019),
        ("db-image-only", "StatefulSet", nothing(), CORE_2025, ON_2025),
        ("set-selector", "ReplicaSet", selector(), CORE_2019, ON_2019),
        (
            "old-selector",
            "ReplicationController",
            beta(),
            CORE_2022,
            ON_2022,
        ),
        ("job-selector", "Job", selector(), CORE_2019, ON_2019),
        ("job-image-only", "Job", nothing(), NANO_2022, ON_2022),
        ("job-os-name", "Job", os_name(), CORE_2025, ON_2025),
        ("cron-selector", "CronJob", selector(), CORE_2022, ON_2022),
        ("cron-image-only", "CronJob", nothing(), FRAMEWORK, ON_2019),
        (
            "agent-2022",
            "DaemonSet",
            daemon("10.0.20348"),
            CORE_2022,
            Truth::RunsOn(&["win-2022"]),
        ),
        ("agent-host-process", "DaemonSet", host_process(), OWN, WINDOWS),
        (
            "agent-unselective",
            "DaemonSet",
            os_name(),
            CORE_2022,
            Truth::Denied("daemonset-template-unselective"),
        ),
        (
            "agent-image-only",
            "DaemonSet",
            nothing(),
            NANO_2022,
            Truth::Denied("daemonset-template-unselective"),
        ),
        (
            "agent-wrong-build",
            "DaemonSet",
            with_toleration(),
            CORE_2019,
            Truth::Denied("daemonset-spans-builds"),
        ),
        (
            "conflict",
            "Deployment",
            json!({"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "windows"}}),
            OWN,
            Truth::Denied("mixed-os-contradiction"),
        ),
        ("linux-pod", "Pod", nothing(), "nginx:1.29", LINUX),
        ("linux-web", "Deployment", nothing(), "nginx:1.29", LINUX),
        ("linux-selector", "Deployment", linux(), "nginx:1.29", LINUX),
        (
            "linux-dotnet",
            "Deployment",
            nothing(),
            "mcr.microsoft.com/dotnet/aspnet:8.0",
            LINUX,
        ),
        (
            "linux-tolerant",
            "Deployment",
            tolerates_all(),
            "busybox:1.37",
            LINUX,
        ),
        ("linux-job", "Job", nothing(), "busybox:1.37", LINUX),
        ("linux-db", "StatefulSet", tolerates_all(), "postgres:18", LINUX),
        (
            "linux-agent",
            "DaemonSet",
            nothing(),
            "registry.example.com/agent:2",
            LINUX,
        ),
        (
            "linux-agent-selector",
            "DaemonSet",
            json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "tolerations": [{"operator": "Exists"}]}),
            "registry.example.com/agent:2",
            LINUX,
        ),
    ];
    list.into_iter()
        .map(|(name, kind, spec, image, truth)| Workload {
            name: name.to_owned(),
            object: object(kind, name, spec, image),
            truth,
        })
        .collect()
}
