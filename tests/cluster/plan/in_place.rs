//! Upgrades in place: what the plan says, and what the scheduler and the controllers do once the nodes of pools have another
//! build under the same names.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use transom::model::windows::build::{Build, Compatibility, ContainerIsolation, compatibility};

use super::workloads::{self, Workload};
use super::{Quiet, are_decided, are_placed, cluster, create, of, pods, transom};
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join_tainted;
use crate::support::objects::node_affinity;

const SKU: &str = "kubernetes.azure.com/os-sku";
/// The nodes: name, pool, build, SKU.
const NODES: [(&str, &str, &str, &str); 7] = [
    ("win-2016", "win-2016", "10.0.14393", "Windows2016"),
    ("win-2019", "win-2019", "10.0.17763", "Windows2019"),
    ("win-20h2", "win-20h2", "10.0.19042", "WindowsAnnual"),
    ("win-2022", "win-2022", "10.0.20348", "Windows2022"),
    ("win-2022-b", "win-2022", "10.0.20348", "Windows2022"),
    ("other-2022", "other-2022", "10.0.20348", "Windows2022"),
    ("win-23h2", "win-23h2", "10.0.25398", "WindowsAnnual"),
];

/// Workloads that only an upgrade in place treats in another way.
fn of_skus() -> Vec<Workload> {
    let mut all = Vec::new();
    let mut add = |kind: &str, name: &str, mut spec: Value| {
        // Placement adds it to the pods of the others.
        if kind == "DaemonSet" && name != "pool-only-daemonset" {
            spec["tolerations"] = json!([{"key": "os", "operator": "Exists"}]);
        }
        // With the same repository, one would be the second DaemonSet of the others, for the new build.
        let image = match kind {
            "DaemonSet" => format!("corp.example/{name}:1-ltsc2022"),
            _ => "mcr.microsoft.com/windows/servercore:ltsc2022".to_owned(),
        };
        all.push(Workload {
            name: name.to_owned(),
            object: workloads::object(kind, name, spec, &image),
            class: "",
            by: "",
            builds: vec![20348],
            isolation: ContainerIsolation::Process,
        });
    };
    let sku = |value: &str| json!({"nodeSelector": {SKU: value}});
    let in_pool = |pool: &str, value: &str| json!({"nodeSelector": {SKU: value, "agentpool": pool}});
    for kind in ["Deployment", "StatefulSet", "DaemonSet"] {
        let named = |name: &str| format!("{name}-{}", kind.to_lowercase());
        add(kind, &named("sku-2022"), sku("Windows2022"));
        add(kind, &named("sku-2025"), sku("Windows2025"));
        add(kind, &named("sku-pool"), in_pool("win-2022", "Windows2022"));
        add(kind, &named("sku-other"), in_pool("other-2022", "Windows2022"));
        add(
            kind,
            &named("sku-affinity"),
            node_affinity(SKU, "In", &["Windows2022"]),
        );
        add(
            kind,
            &named("sku-both"),
            node_affinity(SKU, "In", &["Windows2022", "Windows2025"]),
        );
        add(
            kind,
            &named("sku-not"),
            node_affinity(SKU, "NotIn", &["Windows2025"]),
        );
        add(
            kind,
            &named("pool-only"),
            json!({"nodeSelector": {"kubernetes.io/os": "windows", "agentpool": "win-2022"}}),
        );
    }
    all
}

#[test]
fn exactly_what_the_plan_foresees_has_no_place_after_an_upgrade_in_place() {
    let Some(cluster) = cluster() else { return };
    let (taints, none) = (
        json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]),
        json!([]),
    );
    for (name, pool, build, sku) in NODES {
        // Nodes with and without the taint that marks Windows nodes.
        let taints = if pool == "win-2022" { &taints } else { &none };
        join_tainted(&cluster, name, build, &[("agentpool", pool), (SKU, sku)], taints);
    }
    let policies = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec: {mode: Audit, placement: {mode: Apply}}
";
    install::prepare(&cluster, policies);
    let replica = Replica::start(&cluster, "transom", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let mut all = workloads::workloads();
    all.extend(of_skus());
    create(&cluster, &all);
    let mut quiet = Quiet::new();
    let decided = || are_decided(&cluster, &all, &mut quiet);
    assert!(wait(Duration::from_secs(90), decided), "{:#?}", pods(&cluster));

    // One pool, while another one keeps the build; then all others.
    upgrade(&cluster, &replica, &all, &["win-2022"], 2);
    let others = ["win-2016", "win-2019", "win-20h2", "other-2022", "win-23h2"];
    upgrade(&cluster, &replica, &all, &others, NODES.len());
}

/// Plans the upgrade of pools, does it, and compares.
fn upgrade(cluster: &ControlPlane, replica: &Replica, all: &[Workload], pools: &[&str], upgraded: usize) {
    let plan = plan(cluster, pools);
    let nodes: BTreeSet<&str> = (NODES.iter())
        .filter(|(_, pool, ..)| pools.contains(pool))
        .map(|(name, ..)| *name)
        .collect();
    let before = Placed::of(&pods(cluster));
    for node in &nodes {
        change(cluster, node);
    }
    let series = "transom_windows_nodes{release=\"ltsc2025\"}";
    let is_known = || replica.metric(series) == u64::try_from(upgraded).ok();
    assert!(
        wait(Duration::from_secs(30), is_known),
        "{}",
        cluster.end_of_log("transom")
    );
    create_again(cluster, all, &nodes);
    let after = Placed::of(&pods(cluster));
    let mut wrong = Vec::new();
    let (mut stranded, mut open) = (0, 0);
    for workload in all {
        let Some(entry) = plan["workloads"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == *workload.name)
        else {
            // A pod without a controller that an upgrade before has deleted.
            assert_eq!(workload.object["kind"], "Pod", "{} is missing", workload.name);
            continue;
        };
        let is_stranded = after.is_stranded(workload, &before, &nodes);
        stranded += usize::from(is_stranded);
        let foreseen = foreseen(entry).unwrap_or_else(|| {
            open += 1;
            false
        });
        if foreseen != is_stranded {
            wrong.push(format!(
                "{}: foreseen {foreseen}, stranded {is_stranded}, before {:?}, after {:?}\n{entry:#}",
                workload.name,
                before.0.get(&workload.name),
                after.0.get(&workload.name)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(stranded >= 5, "only {stranded}");
    let _ = writeln!(
        std::io::stderr(),
        "in place, {}: {stranded} of {} workloads have no place afterwards, all of them foreseen, and no other was; the plan leaves \
         {open} open",
        pools.join(", "),
        all.len()
    );
}

/// Whether the plan says that a workload cannot run afterwards; `None` if it says that this is not known.
pub fn foreseen(entry: &Value) -> Option<bool> {
    let findings = entry["findings"].as_array().unwrap().iter();
    let mut blocking = findings.filter(|finding| finding["blocks"] == true).peekable();
    let has_any = blocking.peek().is_some();
    let is_open = |finding: &Value| finding["class"] == "unknown" || finding["cause"] == "gmsa";
    if has_any && blocking.all(is_open) {
        return None;
    }
    Some(entry["affected"] == true && entry["canMove"] == false)
}

pub fn plan(cluster: &ControlPlane, pools: &[&str]) -> Value {
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let pools = pools.join(",");
    let command = ["plan", "--to", "ltsc2025", "--in-place", &pools, "-o", "json"];
    let (status, out, errors) = transom(&[&command[..], &["--kubeconfig", &kubeconfig]].concat(), "");
    assert_eq!((status, errors.as_str()), (1, ""));
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&plan["method"], &plan["nodesNeeded"]["nodes"]),
        (&json!("inPlace"), &json!(0))
    );
    plan
}

/// What the platform and the kubelet write when a node starts with Windows Server 2025.
fn change(cluster: &ControlPlane, node: &str) {
    let labels = [
        "node.kubernetes.io/windows-build=10.0.26100".to_owned(),
        format!("{SKU}=Windows2025"),
    ];
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    cluster
        .kubectl(&[&["label", "--overwrite", "node", node][..], &labels].concat())
        .succeeded();
    let status = json!({"status": {"nodeInfo": {"kernelVersion": "10.0.26100.4061"}}}).to_string();
    cluster
        .kubectl(&[
            "patch",
            "node",
            node,
            "--subresource=status",
            "--type=merge",
            "-p",
            &status,
        ])
        .succeeded();
}

/// Deletes the pods of upgraded nodes and those without a node, starts the CronJobs, and waits until the scheduler has decided.
pub fn create_again<W: Borrow<Workload>>(cluster: &ControlPlane, all: &[W], nodes: &BTreeSet<&str>) {
    let before = pods(cluster);
    let is_deleted = |pod: &&Value| {
        pod["spec"]["nodeName"]
            .as_str()
            .is_none_or(|node| nodes.contains(node))
    };
    let deleted = before.iter().filter(is_deleted);
    let deleted: Vec<&str> = deleted
        .map(|pod| pod["metadata"]["name"].as_str().unwrap())
        .collect();
    let uids: BTreeSet<&str> = (before.iter().filter(is_deleted))
        .map(|pod| pod["metadata"]["uid"].as_str().unwrap())
        .collect();
    cluster
        .kubectl(&["-n", "shop", "delete", "jobs", "--all", "--cascade=background"])
        .succeeded();
    let delete = [
        "-n",
        "shop",
        "delete",
        "pods",
        "--force",
        "--grace-period=0",
        "--wait=false",
        "--ignore-not-found",
    ];
    cluster.kubectl(&[&delete[..], &deleted].concat()).succeeded();
    let all = || all.iter().map(W::borrow);
    for workload in all().filter(|it| it.object["kind"] == "CronJob") {
        let from = format!("cronjob/{}", workload.name);
        cluster
            .kubectl(&["-n", "shop", "create", "job", &workload.name, "--from", &from])
            .succeeded();
    }
    let mut quiet = Quiet::new();
    let settled = || {
        let pods = pods(cluster);
        let is_back = |workload: &Workload| {
            let kind = workload.object["kind"].as_str().unwrap();
            matches!(kind, "Pod" | "DaemonSet") || of(&pods, &workload.name).count() >= replicas(workload)
        };
        let is_gone = |pod: &Value| !uids.contains(pod["metadata"]["uid"].as_str().unwrap());
        quiet.after(&pods) && pods.iter().all(is_gone) && are_placed(&pods) && all().all(is_back)
    };
    assert!(wait(Duration::from_secs(300), settled), "{:#?}", pods(cluster));
}

fn replicas(workload: &Workload) -> usize {
    let replicas = workload.object["spec"]["replicas"].as_u64().unwrap_or(1);
    usize::try_from(replicas).unwrap()
}

/// The nodes of the pods of each workload; `None` for a pod without one.
pub struct Placed(BTreeMap<String, Vec<Option<String>>>);

impl Placed {
    pub fn of(pods: &[Value]) -> Self {
        let mut placed: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
        for pod in pods {
            let app = pod["metadata"]["labels"]["app"].as_str().unwrap_or_default();
            let node = pod["spec"]["nodeName"].as_str().map(str::to_owned);
            placed.entry(app.to_owned()).or_default().push(node);
        }
        Placed(placed)
    }

    pub fn nodes(&self, workload: &str) -> &[Option<String>] {
        self.0.get(workload).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn has(&self, workload: &str, node: &str) -> bool {
        self.nodes(workload).iter().any(|of| of.as_deref() == Some(node))
    }

    /// Whether a workload has no pods any more, a pod without a node, or one that cannot run on its upgraded node. A DaemonSet
    /// has them on the same nodes as before, unless a second one for the new build has.
    fn is_stranded(&self, workload: &Workload, before: &Placed, upgraded: &BTreeSet<&str>) -> bool {
        let name = workload.name.as_str();
        let runs = workload.builds.iter().all(|build| {
            let target = Build::new(26100);
            compatibility(Build::new(*build), target, workload.isolation) == Compatibility::Runs
        });
        if workload.object["kind"] == "DaemonSet" {
            let second = if name == "agent-2022" { "agent-2025" } else { name };
            let mut had = upgraded.iter().filter(|node| before.has(name, node));
            return had.any(|node| !self.has(second, node) || !runs);
        }
        let nodes = self.nodes(name);
        let fails = |node: &Option<String>| match node {
            Some(node) => upgraded.contains(node.as_str()) && !runs,
            None => true,
        };
        let was_there = before
            .nodes(name)
            .iter()
            .flatten()
            .any(|node| upgraded.contains(node.as_str()));
        let is_first = before.nodes(name).is_empty();
        (was_there || is_first) && (nodes.is_empty() || nodes.iter().any(fails))
    }
}
