//! Sixty workloads, and what the plan for Windows Server 2025 must say of each.

use serde_json::{Value, json};
use transom::model::windows::build::ContainerIsolation;

use crate::support::objects::{in_namespace, node_affinity, workload};

pub struct Workload {
    pub name: String,
    pub object: Value,
    /// The class that it must have.
    pub class: &'static str,
    /// By what, for what is blocked.
    pub by: &'static str,
    /// The builds of its images; none where their names do not tell.
    pub builds: Vec<u32>,
    pub isolation: ContainerIsolation,
}

impl Workload {
    /// Whether there are pods of it before the move.
    pub fn makes_pods(&self) -> bool {
        // A DaemonSet for nodes that are not there has none.
        !matches!(self.object["kind"].as_str(), Some("CronJob" | "DaemonSet"))
    }
}

const CORE: &str = "mcr.microsoft.com/windows/servercore";

pub fn object(kind: &str, name: &str, mut spec: Value, image: &str) -> Value {
    spec["containers"] =
        json!([{"name": "app", "image": image, "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]);
    let replicas = if kind == "ReplicationController" { 1 } else { 2 };
    in_namespace("shop", workload(kind, name, &spec, replicas))
}

/// A workload that the plan must not name.
pub fn linux() -> Value {
    object(
        "Deployment",
        "linux",
        json!({"nodeSelector": {"kubernetes.io/os": "linux"}}),
        "nginx:1.29",
    )
}

fn windows() -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows"}})
}

/// The workloads.
#[allow(clippy::too_many_lines)] // a table
pub fn workloads() -> Vec<Workload> {
    let mut all: Vec<Workload> = Vec::new();
    let mut add = |kind: &str, name: &str, spec: Value, image: &str, class, by, builds: &[u32], isolation| {
        all.push(Workload {
            name: name.to_owned(),
            object: object(kind, name, spec, image),
            class,
            by,
            builds: builds.to_vec(),
            isolation,
        });
    };
    let process = ContainerIsolation::Process;
    // Images of every release, by three kinds.
    for (name, image, build) in [
        ("2016", format!("{CORE}:ltsc2016"), 14393),
        ("2019", format!("{CORE}:ltsc2019"), 17763),
        (
            "own-2019",
            "registry.example.com/shop/web:1.4-windowsservercore-ltsc2019".to_owned(),
            17763,
        ),
        (
            "20h2",
            "mcr.microsoft.com/windows/nanoserver:20H2".to_owned(),
            19042,
        ),
        (
            "2022",
            "mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-ltsc2022".to_owned(),
            20348,
        ),
        (
            "own-2022",
            "registry.example.com/shop/web:1.4-ltsc2022".to_owned(),
            20348,
        ),
    ] {
        let class = if build == 20348 { "unchanged" } else { "newImage" };
        add(
            "Deployment",
            &format!("web-{name}"),
            windows(),
            &image,
            class,
            "",
            &[build],
            process,
        );
        add(
            "StatefulSet",
            &format!("db-{name}"),
            json!({"os": {"name": "windows"}}),
            &image,
            class,
            "",
            &[build],
            process,
        );
        add(
            "ReplicationController",
            &format!("old-{name}"),
            json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}}),
            &image,
            class,
            "",
            &[build],
            process,
        );
    }
    let core_2022 = format!("{CORE}:ltsc2022");
    let core_2019 = format!("{CORE}:ltsc2019");
    for kind in ["Deployment", "StatefulSet"] {
        let named = |name: &str| format!("{name}-{}", kind.to_lowercase());
        add(
            kind,
            &named("ahead"),
            windows(),
            &format!("{CORE}:ltsc2025"),
            "unchanged",
            "",
            &[26100],
            process,
        );
        let mut with_init = windows();
        with_init["initContainers"] = json!([{"name": "first", "image": core_2019}]);
        add(
            kind,
            &named("init"),
            with_init,
            "registry.example.com/shop/web:1.4",
            "newImage",
            "",
            &[17763],
            process,
        );
        // Everything that holds pods to old nodes.
        for (name, spec) in [
            (
                "selector",
                json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}}),
            ),
            (
                "trusted",
                json!({"nodeSelector": {"transom.dev.node-restriction.kubernetes.io/windows-build": "10.0.20348"}}),
            ),
            (
                "affinity",
                node_affinity("node.kubernetes.io/windows-build", "In", &["10.0.20348"]),
            ),
            (
                "pool",
                json!({"nodeSelector": {"kubernetes.io/os": "windows", "agentpool": "win-2022"}}),
            ),
            (
                "hostname",
                json!({"nodeSelector": {"kubernetes.io/os": "windows", "kubernetes.io/hostname": "win-2022"}}),
            ),
            ("class", json!({"runtimeClassName": "windows-2022"})),
            (
                "bound",
                json!({"os": {"name": "windows"}, "nodeName": "win-2022"}),
            ),
        ] {
            add(
                kind,
                &named(name),
                spec,
                &core_2022,
                "pinned",
                "",
                &[20348],
                process,
            );
        }
        for (name, spec) in [("own", windows()), ("own-os", json!({"os": {"name": "windows"}}))] {
            add(
                kind,
                &named(name),
                spec,
                "registry.example.com/shop/web:1.4",
                "unknown",
                "",
                &[],
                process,
            );
        }
        add(
            kind,
            &named("isolated"),
            json!({"runtimeClassName": "isolated"}),
            &core_2019,
            "hyperVOnly",
            "",
            &[17763],
            ContainerIsolation::HyperV,
        );
        add(
            kind,
            &named("isolated-2022"),
            json!({"runtimeClassName": "isolated"}),
            &core_2022,
            "unchanged",
            "",
            &[20348],
            ContainerIsolation::HyperV,
        );
        let mut account = windows();
        account["securityContext"] = json!({"windowsOptions": {"gmsaCredentialSpecName": "web"}});
        add(
            kind,
            &named("account"),
            account,
            &core_2022,
            "blocked",
            "gmsa",
            &[20348],
            process,
        );
    }
    let daemon = |build: &str| json!({"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build}});
    let mut host_process = windows();
    host_process["hostNetwork"] = json!(true);
    host_process["securityContext"] =
        json!({"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}});
    let agent = |release: &str| format!("registry.example.com/agent:2-{release}");
    add(
        "DaemonSet",
        "agent-host",
        host_process,
        "registry.example.com/host-agent:2",
        "unchanged",
        "",
        &[],
        ContainerIsolation::HostProcess,
    );
    add(
        "DaemonSet",
        "agent-all",
        windows(),
        &core_2022,
        "unchanged",
        "",
        &[20348],
        process,
    );
    add(
        "DaemonSet",
        "agent-2019",
        daemon("10.0.17763"),
        "registry.example.com/lonely:2-ltsc2019",
        "blocked",
        "daemonSet",
        &[17763],
        process,
    );
    add(
        "DaemonSet",
        "agent-2022",
        daemon("10.0.20348"),
        &agent("ltsc2022"),
        "pinned",
        "",
        &[20348],
        process,
    );
    add(
        "DaemonSet",
        "agent-2025",
        daemon("10.0.26100"),
        &agent("ltsc2025"),
        "unchanged",
        "",
        &[26100],
        process,
    );
    for (name, image) in [
        ("bare-2022", &core_2022),
        ("bare-2019", &core_2019),
        ("bare-own", &agent("ltsc2022")),
    ] {
        add(
            "Pod",
            name,
            windows(),
            image,
            "blocked",
            "noController",
            &[],
            process,
        );
    }
    add(
        "CronJob",
        "cron-2022",
        windows(),
        &core_2022,
        "unchanged",
        "",
        &[20348],
        process,
    );
    add(
        "CronJob",
        "cron-2019",
        windows(),
        &core_2019,
        "newImage",
        "",
        &[17763],
        process,
    );
    add(
        "CronJob",
        "cron-pinned",
        daemon("10.0.20348"),
        &core_2022,
        "pinned",
        "",
        &[20348],
        process,
    );
    add(
        "CronJob",
        "cron-own",
        windows(),
        "registry.example.com/shop/report:3",
        "unknown",
        "",
        &[],
        process,
    );
    // Makes it sixty.
    add(
        "Deployment",
        "tolerant",
        json!({"os": {"name": "windows"}, "tolerations": [{"key": "os", "operator": "Exists"}]}),
        &core_2022,
        "unchanged",
        "",
        &[20348],
        process,
    );
    add(
        "Deployment",
        "not-old",
        {
            let mut spec = node_affinity("node.kubernetes.io/windows-build", "In", &["10.0.17763"]);
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
                [0]["matchExpressions"][0]["operator"] = json!("NotIn");
            spec["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
            spec
        },
        &core_2022,
        "unchanged",
        "",
        &[20348],
        process,
    );
    all
}
