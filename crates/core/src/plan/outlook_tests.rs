//! Tests of the outlook over a cluster of five pools with ends in the past and in the future.

use jiff::civil::{Date, date};

use super::*;
use crate::manifest;
use crate::model::cluster::policy::Policy;

/// Five pools: three of AKS, one of EKS, and one without a known platform.
const FIVE_POOLS: &str = r"
{apiVersion: v1, kind: Node, metadata: {name: a-1, labels: {kubernetes.io/os: windows, kubernetes.azure.com/cluster: c, kubernetes.azure.com/agentpool: win19}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6893, kubeletVersion: v1.32.9, containerRuntimeVersion: 'containerd://1.7.33'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b-1, labels: {kubernetes.io/os: windows, kubernetes.azure.com/cluster: c, kubernetes.azure.com/agentpool: win22, node.kubernetes.io/instance-type: Standard_D4ads_v6}, annotations: {projectcalico.org/IPv4Address: 10.0.0.4/24}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2582, kubeletVersion: v1.38.0, containerRuntimeVersion: 'containerd://2.1.9'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b-2, labels: {kubernetes.io/os: windows, kubernetes.azure.com/cluster: c, kubernetes.azure.com/agentpool: win22}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.38.0, containerRuntimeVersion: 'containerd://2.1.9'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: c-1, labels: {kubernetes.io/os: windows, kubernetes.azure.com/cluster: c, kubernetes.azure.com/agentpool: win23h2}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.25398.1, kubeletVersion: v1.38.0, containerRuntimeVersion: 'containerd://2.1.9'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: d-1, labels: {kubernetes.io/os: windows, eks.amazonaws.com/nodegroup: windows-2022}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.4297, kubeletVersion: v1.38.0, containerRuntimeVersion: 'containerd://2.1.9'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: e-1, labels: {kubernetes.io/os: windows, agentpool: own}}, status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.29500.1, kubeletVersion: v1.38.0, containerRuntimeVersion: 'containerd://2.1.9'}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {os: {name: windows}, nodeSelector: {kubernetes.azure.com/agentpool: win19}, containers: [{name: app, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}}}
";

fn planned(today: Date) -> UpgradePlan {
    let parsed = manifest::parse(FIVE_POOLS.as_bytes().to_vec());
    let mut facts = Facts::new(36, today);
    let objects: Vec<(Kind, &str)> = (parsed.documents.iter())
        .map(|document| {
            let value: serde_json::Value = serde_json::from_str(document.json()).unwrap();
            let text = |field: &str| value[field].as_str().unwrap().to_owned();
            let kind = Kind::of_api_version(&text("apiVersion"), &text("kind")).unwrap();
            (kind, document.json())
        })
        .collect();
    for (kind, json) in &objects {
        facts.learn(&Object::parse(*kind, json, ReviewStage::Stored).unwrap());
    }
    let policies = PolicySet::new(Vec::new(), Policy::standalone());
    let options = PlanOptions::upgrade(Build::new(26100), &[]);
    let mut planner = Planner::new(&facts, &policies, options);
    for pass in 0..Planner::PASSES {
        for (kind, json) in objects
            .iter()
            .filter(|(kind, _)| Planner::pass(*kind) == Some(pass))
        {
            planner.visit(*kind, json).unwrap();
        }
    }
    planner.plan().unwrap().unwrap()
}

fn pool<'p>(plan: &'p UpgradePlan, name: &str) -> &'p PoolOutlook {
    plan.pools.iter().find(|pool| pool.pool == name).unwrap()
}

#[test]
fn every_pool_has_the_dates_of_its_platform_and_unknown_stays_unknown() {
    let plan = planned(date(2026, 11, 23));
    assert_eq!(plan.pools.len(), 5);
    let dates = |name: &str| -> Vec<(String, bool, bool)> {
        let of_pool = pool(&plan, name).dates.iter();
        of_pool
            .map(|date| (date.date.to_string(), date.has_passed, date.is_near))
            .collect()
    };
    let day = |on: &str, has_passed, is_near| (on.to_owned(), has_passed, is_near);
    assert_eq!(
        dates("win19"),
        [
            day("2026-03-01", true, true),
            day("2027-04-01", false, true),
            day("2029-01-09", false, false)
        ]
    );
    assert_eq!(
        dates("win22"),
        [
            day("2028-06-30", false, false),
            day("2029-06-30", false, false),
            day("2031-10-14", false, false)
        ]
    );
    assert_eq!(dates("windows-2022"), [day("2031-10-14", false, false)]);
    assert_eq!(dates("own"), []);
    assert_eq!(pool(&plan, "own").lines(), Vec::<String>::new());
    let of_2022 = pool(&plan, "win22");
    assert_eq!(
        (of_2022.last_kubernetes.as_deref(), of_2022.is_too_new),
        (Some("1.36"), true)
    );
    assert_eq!(pool(&plan, "windows-2022").last_kubernetes, None);
    assert_eq!(pool(&plan, "win19").platform.as_deref(), Some("AKS"));
    assert_eq!(of_2022.revisions, Some((2582, 4297)));
}

#[test]
fn the_dates_follow_today() {
    let near = |today| -> Vec<String> {
        let plan = planned(today);
        let near = plan.pools.iter().flat_map(|pool| {
            let near = pool.dates.iter().filter(|date| date.is_near && !date.has_passed);
            near.map(|date| format!("{} {}", pool.pool, date.date))
                .collect::<Vec<_>>()
        });
        near.collect()
    };
    assert_eq!(near(date(2025, 1, 1)), Vec::<String>::new());
    assert_eq!(near(date(2026, 2, 1)), ["win19 2026-03-01", "win23h2 2026-05-15"]);
    assert_eq!(near(date(2028, 6, 30)), ["win22 2028-06-30"]);
}

#[test]
fn a_workload_shows_the_first_end_of_its_pools_and_the_faults_name_their_nodes() {
    let plan = planned(date(2026, 11, 23));
    let web = plan
        .workloads
        .iter()
        .find(|workload| workload.name == "web")
        .unwrap();
    assert_eq!(web.support_ends, Some(date(2026, 3, 1)));
    let faults: Vec<(bool, &[String])> = (pool(&plan, "win22").known_faults.iter())
        .map(|fault| (fault.is_certain, &fault.nodes[..]))
        .collect();
    assert_eq!(
        faults,
        [(true, &["b-1".to_owned()][..]), (false, &["b-1".to_owned()][..])]
    );
    assert!(
        pool(&plan, "win19")
            .known_faults
            .iter()
            .all(|fault| !fault.is_certain)
    );
}
