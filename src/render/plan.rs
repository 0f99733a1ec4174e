//! An upgrade plan as text for people.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::image_pulls::pull_total;
use crate::model::syntax::text::{count, list, one_line};
use crate::plan::{
    DrainStep, NodeCapacity, NodesNeeded, PlanFinding, ResourceList, TargetBuild, UpgradeClass,
    UpgradeMethod, UpgradePlan, WorkloadPlan,
};

/// Writes a plan: workloads by class, the worst first; the order of pools; capacity; unknowns.
///
/// # Errors
/// If the output cannot be written.
pub fn plan_text(plan: &UpgradePlan, out: &mut dyn Write) -> io::Result<()> {
    let has_nodes = plan.capacity.iter().any(|it| it.before.nodes > 0);
    if plan.workloads.is_empty() && !has_nodes {
        let of_what = if plan.unread.is_empty() {
            "the input"
        } else {
            "what could be read"
        };
        return writeln!(
            out,
            "nothing to plan: no Windows node and no Windows workload in {of_what}"
        );
    }
    let from = list(&plan.from, 12);
    let how = match plan.method {
        UpgradeMethod::NewNodes if from.is_empty() => {
            ": no known pool has an older build, so none is replaced; --from names those to replace"
        }
        UpgradeMethod::InPlace if from.is_empty() => {
            ", in place: every node of the pools has this build already"
        }
        UpgradeMethod::NewNodes => ", from ",
        UpgradeMethod::InPlace => ", in place, on ",
    };
    writeln!(out, "to {}{how}{from}", plan.to)?;
    writeln!(out, "assumed placement: {}", plan.placement)?;
    for class in UpgradeClass::ALL.into_iter().rev() {
        let of_class: Vec<&WorkloadPlan> = plan.workloads.iter().filter(|it| it.class == class).collect();
        if !of_class.is_empty() {
            writeln!(out, "\n{} ({})", title(class), of_class.len())?;
        }
        for workload in of_class {
            write_workload(plan, workload, out)?;
        }
    }
    write_order(plan, out)?;
    write_outlook(plan, out)?;
    write_capacity(plan, out)?;
    write_pulls(plan, out)?;
    for note in plan.knowledge.lines().iter().chain(&plan.notes) {
        writeln!(out, "note: {note}")?;
    }
    write_summary(plan, out)
}

fn write_summary(plan: &UpgradePlan, out: &mut dyn Write) -> io::Result<()> {
    let summary = &plan.summary;
    let classes = UpgradeClass::ALL.into_iter().filter_map(|class| {
        let count = summary.by_class.get(class.as_str()).copied().unwrap_or_default();
        (count > 0).then(|| format!("{count} {}", short(class, count)))
    });
    let classes: Vec<String> = classes.collect();
    let classes = if classes.is_empty() {
        String::new()
    } else {
        format!(": {}", classes.join(", "))
    };
    writeln!(
        out,
        "\n{}{classes}; {}",
        count(summary.workloads, "Windows workload"),
        can_move(plan)
    )
}

/// How many workloads can move; every output of a plan uses this sentence.
pub fn can_move(plan: &UpgradePlan) -> String {
    let summary = &plan.summary;
    let (pools, end) = match plan.method {
        UpgradeMethod::NewNodes => ("drained pools", "can move unchanged"),
        UpgradeMethod::InPlace => ("upgraded pools", "run afterwards as they are"),
    };
    let of_what = if plan.unread.is_empty() {
        ""
    } else {
        ", as far as they could be read"
    };
    if summary.affected == 0 {
        return format!("0 workloads are on the {pools}{of_what}");
    }
    let affected = count(summary.affected, "workload");
    format!("{} of {affected} on the {pools} {end}{of_what}", summary.can_move)
}

/// The title of the pools that are upgraded.
fn order_title(method: UpgradeMethod) -> &'static str {
    match method {
        UpgradeMethod::NewNodes => "pools, in the order in which they can be drained",
        UpgradeMethod::InPlace => "pools, in the order in which they can be upgraded",
    }
}

/// A build, if nodes report one.
pub(super) fn build_text(build: Option<TargetBuild>) -> String {
    build.map_or_else(|| "unknown build".to_owned(), |build| build.to_string())
}

/// A finding with its source and remedy.
pub(super) fn in_one_line(finding: &PlanFinding) -> String {
    let mut line = format!("{}: {} [{}]", finding.path, finding.message, finding.source.name);
    if let Some(remedy) = &finding.remedy {
        line.push_str("; ");
        line.push_str(remedy);
    }
    line
}

/// What to know about a pool before it is drained.
pub(super) fn note_of(step: &DrainStep) -> String {
    if !step.blocked_by.is_empty() {
        let blockers: Vec<String> = step.blocked_by.iter().map(|it| it.workload.clone()).collect();
        return format!("blocked by {}", list(&blockers, 12));
    }
    new_nodes(step)
}

/// What must exist before a pool is drained.
fn new_nodes(step: &DrainStep) -> String {
    match step.new_nodes {
        Some(0) => String::new(),
        Some(nodes) => format!("needs {} before it", count(nodes, "new node")),
        None => "how many new nodes it needs is unknown".to_owned(),
    }
}

pub(super) fn title(class: UpgradeClass) -> &'static str {
    match class {
        UpgradeClass::Unchanged => "runs unchanged",
        UpgradeClass::HyperVOnly => "only by Hyper-V isolation",
        UpgradeClass::Unknown => "not known",
        UpgradeClass::NewImage => "needs a new image",
        UpgradeClass::Pinned => "pinned to other nodes",
        UpgradeClass::Blocked => "blocked",
    }
}

fn short(class: UpgradeClass, count: usize) -> &'static str {
    match class {
        UpgradeClass::Unchanged if count == 1 => "runs unchanged",
        UpgradeClass::Unchanged => "run unchanged",
        UpgradeClass::HyperVOnly => "only by Hyper-V isolation",
        UpgradeClass::Unknown => "not known",
        UpgradeClass::NewImage if count == 1 => "needs a new image",
        UpgradeClass::NewImage => "need a new image",
        UpgradeClass::Pinned => "pinned",
        UpgradeClass::Blocked => "blocked",
    }
}

fn write_workload(plan: &UpgradePlan, workload: &WorkloadPlan, out: &mut dyn Write) -> io::Result<()> {
    let pods = match (workload.pods, workload.replicas) {
        (0, Some(1)) => "1 replica".to_owned(),
        (0, Some(replicas)) => format!("{replicas} replicas"),
        (0, None) => "no pods".to_owned(),
        (pods, _) => count(pods, "pod"),
    };
    let pods = match workload.pending {
        pending @ 1.. if pending < workload.pods => format!("{pods}, {pending} of them pending,"),
        1.. => format!("{pods}, pending"),
        0 => pods,
    };
    let on = match list(&workload.pools, 4) {
        pools if pools.is_empty() => pools,
        pools if workload.pods > workload.pending => format!(" on {pools}"),
        pools if workload.knows_builds => format!(", can run on {pools}"),
        pools => format!(", can be scheduled on {pools}"),
    };
    let not = match plan.method {
        _ if workload.affected => "",
        UpgradeMethod::NewNodes => ", not on the drained pools",
        UpgradeMethod::InPlace => ", not on the upgraded pools",
    };
    let read_from = workload.read_from.as_ref();
    let read_from = read_from.map_or_else(String::new, |pod| format!(", read from the pod {pod}"));
    let ends = match (plan.unsupported_by(workload), workload.support_ends) {
        (Some(release), _) => format!(", on nodes that Kubernetes {release} does not support"),
        (None, Some(end)) => format!(", on nodes supported until {end}"),
        (None, None) => String::new(),
    };
    let line = format!(
        "{}/{} {}: {pods}{on}{ends}{not}{read_from}",
        workload.namespace, workload.name, workload.kind
    );
    writeln!(out, "  {}", one_line(&line))?;
    // Blocking findings first.
    let (blocking, others): (Vec<&PlanFinding>, Vec<&PlanFinding>) =
        workload.findings.iter().partition(|finding| finding.blocks);
    for finding in blocking.into_iter().chain(others) {
        write_finding(finding, out)?;
    }
    Ok(())
}

fn write_finding(finding: &PlanFinding, out: &mut dyn Write) -> io::Result<()> {
    let cause = finding.cause.filter(|_| finding.blocks);
    let cause = cause.map_or_else(String::new, |cause| format!("by {cause}: "));
    let line = format!(
        "{}: {cause}{} [{}]",
        finding.path, finding.message, finding.source.name
    );
    writeln!(out, "    {}", one_line(&line))?;
    match &finding.remedy {
        Some(remedy) => writeln!(out, "      → {}", one_line(remedy)),
        None => Ok(()),
    }
}

fn write_order(plan: &UpgradePlan, out: &mut dyn Write) -> io::Result<()> {
    if plan.drain_order.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", order_title(plan.method))?;
    for drain in &plan.drain_order {
        let DrainStep {
            step,
            pool,
            build,
            nodes,
            ready,
            requests,
            blocked_by,
            new_nodes: _,
        } = drain;
        let build = build.map_or_else(|| "build unknown".to_owned(), |build| build.to_string());
        let new = match new_nodes(drain) {
            none if none.is_empty() => none,
            new => format!(", {new}"),
        };
        let state = match (ready, blocked_by.is_empty()) {
            (true, _) => "ready",
            (false, true) => "capacity unknown",
            (false, false) => "blocked",
        };
        let requests = or_unknown("requests", requests.as_ref());
        let line = format!(
            "{step}. {pool}: {build}, {}, {requests}{new}: {state}",
            count(*nodes, "node")
        );
        writeln!(out, "  {}", one_line(&line))?;
        for blocker in blocked_by {
            let cause = blocker
                .cause
                .map_or_else(String::new, |cause| format!(" by {cause}"));
            writeln!(
                out,
                "     blocked by {}: {}{cause}",
                one_line(&blocker.workload),
                short(blocker.class, 1)
            )?;
        }
    }
    Ok(())
}

/// Until when the nodes of each pool are supported, and their known faults.
fn write_outlook(plan: &UpgradePlan, out: &mut dyn Write) -> io::Result<()> {
    if plan.pools.is_empty() {
        return Ok(());
    }
    writeln!(out, "\npools, and until when their nodes are supported")?;
    for pool in &plan.pools {
        let build = pool
            .build
            .map_or_else(|| "build unknown".to_owned(), |build| build.to_string());
        let line = format!("{}: {build}, {}", pool.pool, count(pool.nodes, "node"));
        writeln!(out, "  {}", one_line(&line))?;
        let lines = pool.lines();
        if lines.is_empty() {
            writeln!(out, "    no end of support is known")?;
        }
        for line in lines {
            writeln!(out, "    {}", one_line(&line))?;
        }
    }
    Ok(())
}

fn write_capacity(plan: &UpgradePlan, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\ncapacity by build: requested / allocatable")?;
    for capacity in &plan.capacity {
        writeln!(out, "  {}", build_text(capacity.build))?;
        writeln!(out, "    before: {}", capacity_text(&capacity.before))?;
        let after = after_of(capacity.after.as_ref(), &plan.nodes_needed);
        writeln!(out, "    after:  {after}")?;
    }
    if plan.method == UpgradeMethod::InPlace {
        return Ok(());
    }
    let needed = &plan.nodes_needed;
    let counted = if needed.counts_pods {
        "by pods"
    } else {
        "by replicas"
    };
    writeln!(
        out,
        "  moving, {counted}: {}; free on {}: {}",
        or_unknown("", needed.requests.as_ref()),
        plan.to,
        or_unknown("", needed.free.as_ref())
    )?;
    match more_nodes(needed) {
        Some(line) => writeln!(out, "  {line}"),
        None => Ok(()),
    }
}

/// What new nodes pull.
fn write_pulls(plan: &UpgradePlan, out: &mut dyn Write) -> io::Result<()> {
    if plan.new_nodes.is_empty() {
        return Ok(());
    }
    let title = match plan.method {
        UpgradeMethod::NewNodes => "what a new node pulls (transom image pulls lists it)",
        UpgradeMethod::InPlace => "what an upgraded node pulls if it starts without images",
    };
    writeln!(out, "\n{title}")?;
    for node in &plan.new_nodes {
        let line = format!("{}: {}", node.pool, pull_total(&node.pulls));
        writeln!(out, "  {}", one_line(&line))?;
    }
    Ok(())
}

/// How many nodes must be added, if a node is known that they are assumed to equal.
fn more_nodes(needed: &NodesNeeded) -> Option<String> {
    let like = needed.reference_node.as_ref()?;
    let each = needed.reference_allocatable.as_ref()?;
    if needed.requests.is_none() || needed.free.is_none() {
        return Some("how many more nodes are needed is unknown".to_owned());
    }
    Some(match needed.nodes {
        Some(0) => "no more nodes are needed".to_owned(),
        Some(nodes) => format!(
            "at least {} more like {like} ({} each, of which DaemonSets take {})",
            count(nodes, "node"),
            shown(each),
            shown(&needed.daemon_set_requests)
        ),
        None => format!("nodes like {like} have no room for it in addition to their DaemonSets"),
    })
}

pub(super) fn capacity_text(capacity: &NodeCapacity) -> String {
    let (requested, offered) = (capacity.requested.as_ref(), capacity.allocatable.as_ref());
    let each = |of: &dyn Fn(&ResourceList) -> String| {
        let or_unknown = |amount: Option<&ResourceList>| amount.map_or_else(|| "unknown".to_owned(), of);
        format!("{} / {}", or_unknown(requested), or_unknown(offered))
    };
    let lists = requested.into_iter().chain(offered);
    let names: BTreeSet<&String> = lists.flat_map(|list| list.extended.keys()).collect();
    let mut all = vec![
        format!("cpu {}", each(&|list| cpu(list.cpu_millis))),
        format!("memory {}", each(&|list| memory(list.memory_bytes))),
        format!("pods {}", each(&|list| list.pods.to_string())),
    ];
    all.extend(names.into_iter().map(|name| {
        let amount = |list: &ResourceList| list.extended.get(name).copied().unwrap_or_default().to_string();
        format!("{name} {}", each(&amount))
    }));
    format!("{}: {}", count(capacity.nodes, "node"), all.join(", "))
}

/// The capacity of a build after the upgrade.
pub(super) fn after_of(after: Option<&NodeCapacity>, needed: &NodesNeeded) -> String {
    match after {
        Some(capacity) => capacity_text(capacity),
        None if needed.requests.is_some() && needed.free.is_some() && needed.reference_node.is_some() => {
            "unknown, because no node has enough room".to_owned()
        }
        None => "unknown".to_owned(),
    }
}

fn or_unknown(what: &str, amount: Option<&ResourceList>) -> String {
    amount.map_or_else(|| format!("{what} unknown").trim_start().to_owned(), shown)
}

fn shown(amount: &ResourceList) -> String {
    let mut parts = vec![
        count(amount.pods, "pod"),
        format!("cpu {}", cpu(amount.cpu_millis)),
        format!("memory {}", memory(amount.memory_bytes)),
    ];
    parts.extend((amount.extended.iter()).map(|(name, amount)| format!("{name} {amount}")));
    parts.join(", ")
}

fn cpu(millis: u64) -> String {
    if millis.is_multiple_of(1000) {
        (millis / 1000).to_string()
    } else {
        format!("{millis}m")
    }
}

/// In one unit, so that amounts can be compared: Gi, rounded up to a hundredth.
fn memory(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) * 100).div_ceil(1 << 30);
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    match (whole, rest) {
        (0, 0) => "0".to_owned(),
        (whole, 0) => format!("{whole}Gi"),
        (whole, rest) => format!("{whole}.{rest:02}Gi"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::{Date, date};

    use super::*;
    use crate::engine::policy_set::PolicySet;
    use crate::manifest;
    use crate::model::cluster::facts::Facts;
    use crate::model::cluster::policy::Policy;
    use crate::model::objects::object::{Object, ReviewStage};
    use crate::model::objects::workload::Kind;
    use crate::model::windows::build::Build;
    use crate::plan::{PlanOptions, Planner};

    /// The text of the plan to Windows Server 2025 for these objects.
    fn text_of(yaml: &str, today: Date) -> String {
        let parsed = manifest::parse(yaml.as_bytes().to_vec());
        let objects: Vec<(Kind, &str)> = (parsed.documents.iter())
            .map(|document| {
                let value: serde_json::Value = serde_json::from_str(document.json()).unwrap();
                let text = |field: &str| value[field].as_str().unwrap().to_owned();
                let kind = Kind::of_api_version(&text("apiVersion"), &text("kind")).unwrap();
                (kind, document.json())
            })
            .collect();
        let mut facts = Facts::new(36, today);
        for (kind, json) in &objects {
            facts.learn(&Object::parse(*kind, json, ReviewStage::Stored).unwrap());
        }
        let policies = PolicySet::new(Vec::new(), Policy::standalone());
        let mut planner = Planner::new(&facts, &policies, PlanOptions::upgrade(Build::new(26100), &[]));
        for pass in 0..Planner::PASSES {
            let of_pass = objects
                .iter()
                .filter(|(kind, _)| Planner::pass(*kind) == Some(pass));
            for (kind, json) in of_pass {
                planner.visit(*kind, json).unwrap();
            }
        }
        let mut text = Vec::new();
        plan_text(&planner.plan().unwrap().unwrap(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn dates_and_faults_of_pools_are_in_the_text_and_unknown_capacity_is_no_zero() {
        let text = text_of(
            r"
{apiVersion: v1, kind: Node, metadata: {name: a-1, labels: {kubernetes.io/os: windows, kubernetes.azure.com/cluster: c, kubernetes.azure.com/agentpool: win19}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6893, kubeletVersion: v1.32.9, containerRuntimeVersion: 'containerd://1.7.33'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b-1, labels: {kubernetes.io/os: windows, kubernetes.azure.com/cluster: c, kubernetes.azure.com/agentpool: win22}, annotations: {projectcalico.org/IPv4Address: 10.0.0.4/24}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2582, kubeletVersion: v1.38.0, containerRuntimeVersion: 'containerd://2.1.9'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: e-1, labels: {kubernetes.io/os: windows, agentpool: own}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.29500.1, kubeletVersion: v1.38.0, containerRuntimeVersion: 'containerd://2.1.9'}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {os: {name: windows}, nodeSelector: {kubernetes.azure.com/agentpool: win19}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}}}
",
            date(2026, 11, 23),
        );
        for part in [
            "2026-03-01: end of support for Windows Server 2019 on AKS (passed) [https://github.com/Azure/AKS/issues/4091]",
            "AKS supports Windows Server 2022 up to Kubernetes 1.36: its nodes run a newer one",
            "10.0.20348.2582: pods reach nothing",
            "no end of support is known",
            "on nodes supported until 2026-03-01",
            "unknown: capacity unknown",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains(": ready"), "{text}");
    }

    #[test]
    fn memory_has_one_unit() {
        let shown = [0, 64 << 20, 4096 << 20, 13 << 30, (4 << 30) + (512 << 20)].map(memory);
        assert_eq!(shown, ["0", "0.07Gi", "4Gi", "13Gi", "4.50Gi"]);
    }

    #[test]
    fn no_more_nodes_are_not_counted() {
        let mut needed = NodesNeeded {
            requests: Some(ResourceList::default()),
            counts_pods: true,
            free: Some(ResourceList::default()),
            daemon_set_requests: ResourceList::default(),
            reference_node: Some("win25-1".to_owned()),
            reference_allocatable: Some(ResourceList::default()),
            nodes: Some(0),
        };
        assert_eq!(more_nodes(&needed).as_deref(), Some("no more nodes are needed"));
        needed.nodes = Some(1);
        let line = more_nodes(&needed).unwrap();
        assert!(line.starts_with("at least 1 node more like win25-1 ("), "{line}");
    }

    #[test]
    fn nodes_that_report_no_capacity_have_no_zeros_in_its_place() {
        let mut capacity = NodeCapacity {
            nodes: 2,
            ..NodeCapacity::default()
        };
        let of = |pods, directx| ResourceList {
            pods,
            extended: [("microsoft.com/directx".to_owned(), directx)].into(),
            ..ResourceList::default()
        };
        (capacity.requested, capacity.allocatable) = (Some(of(3, 1)), None);
        assert_eq!(
            capacity_text(&capacity),
            "2 nodes: cpu 0 / unknown, memory 0 / unknown, pods 3 / unknown, microsoft.com/directx 1 / unknown"
        );
        (capacity.requested, capacity.allocatable) = (None, Some(of(110, 2)));
        assert_eq!(
            capacity_text(&capacity),
            "2 nodes: cpu unknown / 0, memory unknown / 0, pods unknown / 110, microsoft.com/directx unknown / 2"
        );
    }
}
