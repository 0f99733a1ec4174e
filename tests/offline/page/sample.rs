//! A report as a cluster of some size makes it, with hostile texts wherever a report holds a text.

use jiff::Timestamp;
use transom::engine::{Decision, NodeFinding};
use transom::model::cluster::severity::Severity;
use transom::model::knowledge::Knowledge;
use transom::model::objects::workload::Kind;
use transom::model::windows::build::Build;
use transom::model::windows::os::Verdict;
use transom::plan::{
    AssumedPlacement, Blocker, BuildCapacity, DrainStep, FindingSource, NewNodePulls, NodeCapacity,
    NodesNeeded, PlanFinding, PlanSummary, PoolFault, PoolOutlook, PullTotal, ResourceList, TargetBuild,
    UpgradeClass, UpgradeMethod, UpgradePlan, WorkloadPlan,
};
use transom::rules::{Rule, catalogue};
use transom::scan::report::{
    NamespaceReport, PodFinding, PodProblem, SCHEMA, ScanGap, ScanReport, ScanSummary, ScannedCluster,
    ScannedNode,
};
use transom::scan::{FindingOutcome, FindingResult, ForeignOwner, OwnerOutcome, OwnerResult};

/// What an author of an object may write where a text is read.
pub const HOSTILE: &str =
    "<script>window.hurt=1</script>\"'><img src=x onerror=window.hurt=1>&amp;\u{202e}</style>";

const NAMESPACES: [&str; 12] = [
    "billing",
    "build-agents",
    "checkout",
    "crm",
    "identity",
    "kube-system",
    "legacy-erp",
    "monitoring",
    "payments-eu",
    "reporting",
    "shop",
    "warehouse",
];
const NAMES: [&str; 8] = [
    "api",
    "web",
    "worker",
    "iis-frontend",
    "batch-import",
    "report-renderer",
    "session-cache",
    "print-spooler",
];
const KINDS: [Kind; 5] = [
    Kind::Deployment,
    Kind::Deployment,
    Kind::StatefulSet,
    Kind::DaemonSet,
    Kind::CronJob,
];
const BUILDS: [u32; 5] = [14393, 17763, 19042, 20348, 26100];
const POOLS: [(u32, &str, usize); 4] = [
    (17763, "win2019", 4),
    (20348, "win2022", 9),
    (26100, "win2025", 3),
    (25398, "wincore", 1),
];

/// A report about so many workloads, the same in every run.
pub fn report(owners: usize) -> ScanReport {
    let rules: Vec<&'static Rule> = catalogue()
        .filter(|rule| !rule.id.starts_with("TSM8"))
        .take(22)
        .collect();
    let mut owners: Vec<OwnerResult> = (0..owners).map(|at| owner(at, &rules)).collect();
    if let Some(first) = owners.first_mut() {
        inject(first);
    }
    owners.sort_by(|a, b| {
        (&a.namespace, a.kind.as_str(), &a.name).cmp(&(&b.namespace, b.kind.as_str(), &b.name))
    });
    let mut summary = ScanSummary {
        objects: owners.len() * 7,
        misplaced: 2,
        pending: 3,
        unreadable: 1,
        ..ScanSummary::default()
    };
    for owner in &owners {
        summary.count(owner);
    }
    ScanReport {
        schema: SCHEMA,
        created_at: "2026-11-22T09:30:00Z".parse().unwrap(),
        today: "2026-11-22".parse().unwrap(),
        knowledge: Knowledge::built_in().report("2026-11-22".parse().unwrap()),
        cluster: ScannedCluster {
            name: "prod-westeurope".to_owned(),
            kubernetes: "1.36".to_owned(),
            has_webhooks: true,
            policies: vec!["default".to_owned(), HOSTILE.to_owned()],
            namespaces_without_policy: Vec::new(),
        },
        assumed: vec!["mode=Enforce".to_owned()],
        limited_to: Vec::new(),
        changes: None,
        summary,
        nodes: nodes(),
        node_findings: vec![NodeFinding {
            id: "TSM912",
            rule: "node-known-fault",
            severity: Severity::Warning,
            message: HOSTILE.to_owned(),
            remedy: "update it".to_owned(),
            nodes: vec![HOSTILE.to_owned()],
        }],
        namespaces: (NAMESPACES.iter())
            .map(|name| NamespaceReport {
                name: (*name).to_owned(),
                policy: "default".to_owned(),
                validation: "Warn",
                placement: "Audit",
                not_reviewed: (*name == "kube-system")
                    .then(|| format!("the namespace {name} is excluded by name")),
            })
            .collect(),
        owners,
        pods: pods(),
        notes: Vec::new(),
        gaps: vec![ScanGap {
            resource: "jobs".to_owned(),
            reason: format!("the API server answered 403 Forbidden: {HOSTILE}"),
            remedy: Some("grant list on jobs.batch to the account of the scan".to_owned()),
        }],
    }
}

fn owner(at: usize, rules: &[&'static Rule]) -> OwnerResult {
    let namespace = NAMESPACES[at * 7 % NAMESPACES.len()];
    let is_reviewed = namespace != "kube-system";
    let findings = findings(at, rules, is_reviewed);
    let is_denied = findings
        .iter()
        .any(|found| found.outcome == FindingOutcome::Denied);
    let patches = [
        "spec.template.spec.nodeSelector",
        "spec.template.spec.tolerations",
    ]
    .map(str::to_owned);
    let outcome = match (is_reviewed, is_denied, at % 3) {
        (false, ..) => OwnerOutcome::NotReviewed,
        (_, true, _) => OwnerOutcome::Denied,
        (_, _, 1) => OwnerOutcome::Patched,
        _ => OwnerOutcome::Passes,
    };
    let verdict = match at % 11 {
        9 => Verdict::Linux,
        10 => Verdict::Unknown,
        _ => Verdict::Windows,
    };
    OwnerResult {
        unlisted_controller: None,
        denied_by_class: None,
        api_version: "apps/v1".to_owned(),
        kind: KINDS[at % KINDS.len()],
        namespace: namespace.to_owned(),
        name: format!("{}-{at}", NAMES[at * 5 % NAMES.len()]),
        uid: String::new(),
        owner: (at % 40 == 3).then(|| ForeignOwner {
            api_version: "argoproj.io/v1alpha1".to_owned(),
            kind: "Rollout".to_owned(),
            name: "web".to_owned(),
        }),
        is_added_evidence: false,
        differs_from_template: false,
        verdict,
        evidence: vec!["spec.template.spec.nodeSelector[kubernetes.io/os]: windows".to_owned()],
        policy: "default".to_owned(),
        outcome,
        decision: match outcome {
            OwnerOutcome::Denied => Decision::Deny,
            OwnerOutcome::Patched => Decision::Patch,
            OwnerOutcome::Passes => Decision::Allow,
            OwnerOutcome::NotReviewed => Decision::Skip,
        },
        not_reviewed: (!is_reviewed).then(|| format!("the namespace {namespace} is excluded by name")),
        image_builds: match (verdict, at % 9) {
            (Verdict::Windows, 0..8) => vec![Build::new(BUILDS[at * 3 % BUILDS.len()])],
            _ => Vec::new(),
        },
        has_unknown_images: verdict == Verdict::Windows && at % 9 > 6,
        replicas: (at % 5 < 3).then_some((at % 6) as u64 + 1),
        patches: if outcome == OwnerOutcome::Patched {
            patches.to_vec()
        } else {
            Vec::new()
        },
        would_patch: Vec::new(),
        findings,
    }
}

fn findings(at: usize, rules: &[&'static Rule], is_reviewed: bool) -> Vec<FindingResult> {
    let number = [0, 1, 2, 0, 4, 1, 7][at % 7];
    let found = |nth: usize| {
        let rule = rules[(at * 13 + nth * nth * 5) % rules.len()];
        let outcome = match (is_reviewed, (at + nth) % 8, rule.severity) {
            (false, ..) => FindingOutcome::NotReviewed,
            (_, 5, _) => FindingOutcome::Fixed,
            (_, 6, _) => FindingOutcome::Exempted,
            (_, _, Severity::Error) => FindingOutcome::Denied,
            (_, _, Severity::Warning) => FindingOutcome::Warned,
            _ => FindingOutcome::Audited,
        };
        FindingResult {
            id: rule.id,
            rule: rule.name,
            severity: rule.severity,
            class: rule.class,
            path: format!("spec.template.spec.containers[{nth}].securityContext.runAsUser"),
            message: format!(
                "{} (container {nth}, image registry.example.com/a/rather/long/path/to/an/image/that/goes/on:ltsc2019@sha256:{})",
                rule.summary,
                "0f".repeat(32)
            ),
            remedy: rule.remedy.to_owned(),
            outcome,
            would_deny: outcome == FindingOutcome::Denied,
            outcome_reason: (outcome == FindingOutcome::Exempted)
                .then(|| "until the move in spring".to_owned()),
        }
    };
    (0..number).map(found).collect()
}

/// Puts a hostile text into everything that an author writes.
fn inject(owner: &mut OwnerResult) {
    for text in [&mut owner.namespace, &mut owner.name, &mut owner.policy] {
        HOSTILE.clone_into(text);
    }
    owner.evidence = vec![HOSTILE.to_owned()];
    owner.patches = vec![HOSTILE.to_owned()];
    owner.would_patch = vec![HOSTILE.to_owned()];
    owner.not_reviewed = Some(HOSTILE.to_owned());
    owner.owner = Some(ForeignOwner {
        api_version: HOSTILE.to_owned(),
        kind: HOSTILE.to_owned(),
        name: HOSTILE.to_owned(),
    });
    let rule = catalogue().next().unwrap();
    owner.findings.push(FindingResult {
        id: rule.id,
        rule: rule.name,
        severity: Severity::Error,
        class: rule.class,
        path: HOSTILE.to_owned(),
        message: HOSTILE.to_owned(),
        remedy: HOSTILE.to_owned(),
        outcome: FindingOutcome::Audited,
        would_deny: false,
        outcome_reason: Some(HOSTILE.to_owned()),
    });
}

fn nodes() -> Vec<ScannedNode> {
    let mut nodes: Vec<ScannedNode> = (POOLS.iter())
        .flat_map(|(build, pool, number)| (0..*number).map(move |at| node(*build, pool, at)))
        .collect();
    nodes.push(ScannedNode {
        name: HOSTILE.to_owned(),
        pool: Some(HOSTILE.to_owned()),
        build: None,
        release: None,
        available: None,
        end_of_service: None,
        platform_dates: vec![HOSTILE.to_owned()],
        problems: vec![HOSTILE.to_owned()],
        taints: vec![HOSTILE.to_owned()],
        container_runtime: HOSTILE.to_owned(),
        is_at_zero: true,
    });
    nodes
}

fn node(build: u32, pool: &str, at: usize) -> ScannedNode {
    let build = Build::new(build);
    let release = build.release();
    ScannedNode {
        name: format!("aks{pool}00000{at}"),
        pool: Some(pool.to_owned()),
        build: Some(build.to_string()),
        release: release.map(|release| release.product),
        available: release.and_then(|release| release.available),
        end_of_service: release.and_then(transom::model::windows::build::Release::end_of_support),
        platform_dates: vec!["2028-06-30: end of support for Windows Server 2022 on AKS".to_owned()],
        problems: Vec::new(),
        taints: vec!["os=windows:NoSchedule".to_owned()],
        container_runtime: "containerd://2.1.4".to_owned(),
        is_at_zero: false,
    }
}

fn pods() -> Vec<PodFinding> {
    let since: Timestamp = "2026-11-21T17:05:00Z".parse().unwrap();
    (PodProblem::ALL.into_iter().enumerate())
        .map(|(at, wrong)| PodFinding {
            namespace: NAMESPACES[at].to_owned(),
            name: if at == 0 {
                HOSTILE.to_owned()
            } else {
                format!("web-6f7c9d-{at}")
            },
            owner: (at != 1).then(|| HOSTILE.to_owned()),
            node: wrong.is_misplaced().then(|| HOSTILE.to_owned()),
            problem: wrong,
            message: format!("the pod asks for build 10.0.17763, and no node has it {HOSTILE}"),
            remedy: format!("build the image for ltsc2022, or add a pool {HOSTILE}"),
            since: Some(since),
        })
        .collect()
}

/// What is known of the nodes of a pool.
fn outlook((build, name, nodes): &(u32, &str, usize)) -> PoolOutlook {
    PoolOutlook {
        pool: format!("{name} {HOSTILE}"),
        build: Some(TargetBuild(Build::new(*build))),
        nodes: u64::try_from(*nodes).unwrap(),
        platform: None,
        dates: Vec::new(),
        last_kubernetes: None,
        is_too_new: false,
        known_faults: vec![PoolFault {
            id: "example".to_owned(),
            message: HOSTILE.to_owned(),
            remedy: "update it".to_owned(),
            is_certain: true,
            nodes: vec![HOSTILE.to_owned()],
            source: "https://example.com".to_owned(),
        }],
        revisions: None,
        unsupported_by: None,
    }
}

/// A plan of an upgrade.
pub fn plan() -> UpgradePlan {
    let to = TargetBuild(Build::new(26100));
    let counts = [("unchanged", 88), ("newImage", 61), ("unknown", 12)];
    let room = |nodes| NodeCapacity {
        nodes,
        ..NodeCapacity::default()
    };
    let workload = |at: usize| WorkloadPlan {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: NAMESPACES[at].to_owned(),
        name: format!("web-{at} {HOSTILE}"),
        read_from: None,
        class: UpgradeClass::NewImage,
        can_move: false,
        affected: true,
        replicas: Some(1),
        pods: 1,
        pending: 0,
        pools: vec![HOSTILE.to_owned()],
        knows_builds: true,
        support_ends: Some(jiff::civil::date(2031, 10, 14)),
        requests: ResourceList::default(),
        findings: vec![PlanFinding {
            class: UpgradeClass::NewImage,
            cause: None,
            blocks: true,
            path: "spec.containers[0].image".to_owned(),
            message: HOSTILE.to_owned(),
            remedy: Some("build the image for ltsc2025".to_owned()),
            source: FindingSource {
                name: HOSTILE.to_owned(),
                documentation: String::new(),
            },
            proposed: None,
        }],
    };
    let pools: Vec<PoolOutlook> = POOLS.iter().map(outlook).collect();
    let step = |pool: &PoolOutlook| DrainStep {
        step: 1,
        pool: pool.pool.clone(),
        build: pool.build,
        nodes: pool.nodes,
        ready: false,
        requests: None,
        blocked_by: vec![Blocker {
            workload: HOSTILE.to_owned(),
            class: UpgradeClass::NewImage,
            cause: None,
        }],
        new_nodes: None,
    };
    UpgradePlan {
        schema: "transom.dev/plan/v1",
        knowledge: Knowledge::built_in().report(jiff::civil::date(2026, 1, 1)),
        to,
        method: UpgradeMethod::NewNodes,
        from: pools[..1].iter().map(|pool| pool.pool.clone()).collect(),
        placement: AssumedPlacement {
            namespaces: [("Apply", 6)].into(),
            policies: [HOSTILE.to_owned()].into(),
        },
        summary: PlanSummary {
            workloads: 161,
            affected: 161,
            can_move: 88,
            by_class: counts.into(),
        },
        workloads: (0..6).map(workload).collect(),
        drain_order: pools[..1].iter().map(step).collect(),
        capacity: vec![BuildCapacity {
            build: Some(to),
            before: room(1),
            after: Some(room(2)),
        }],
        nodes_needed: NodesNeeded {
            requests: None,
            counts_pods: true,
            free: None,
            daemon_set_requests: ResourceList::default(),
            reference_node: None,
            reference_allocatable: None,
            nodes: None,
        },
        new_nodes: vec![NewNodePulls {
            pool: HOSTILE.to_owned(),
            pulls: PullTotal {
                images: 12,
                bytes: 9 << 30,
                unknown: 0,
            },
        }],
        pools,
        unread: Vec::new(),
        notes: Vec::new(),
    }
}
