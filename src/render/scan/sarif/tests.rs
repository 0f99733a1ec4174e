//! Compares the SARIF of a report with the requirements of the standard.

use serde_json::Value;

use super::*;
use crate::engine::Decision;
use crate::model::cluster::severity::Class;
use crate::model::knowledge::Knowledge;
use crate::model::objects::workload::Kind;
use crate::model::windows::os::Verdict;
use crate::scan::OwnerOutcome;
use crate::scan::report::{ScanGap, ScanSummary, ScannedCluster};

fn report() -> ScanReport {
    let rule = catalogue().find(|rule| rule.id == "TSM204").unwrap();
    let found = |outcome, outcome_reason: Option<&str>| FindingResult {
        id: rule.id,
        rule: rule.name,
        severity: Severity::Error,
        class: Class::Api,
        path: "spec.template.spec.securityContext.runAsUser".to_owned(),
        message: "Windows has no user IDs".to_owned(),
        remedy: "take it out".to_owned(),
        outcome,
        would_deny: true,
        outcome_reason: outcome_reason.map(str::to_owned),
    };
    let owner_result = OwnerResult {
        unlisted_controller: None,
        denied_by_class: None,
        api_version: "apps/v1".to_owned(),
        kind: Kind::Deployment,
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        uid: String::new(),
        owner: None,
        is_added_evidence: false,
        differs_from_template: false,
        verdict: Verdict::Windows,
        evidence: Vec::new(),
        policy: "strict".to_owned(),
        outcome: OwnerOutcome::Denied,
        decision: Decision::Deny,
        not_reviewed: None,
        image_builds: Vec::new(),
        has_unknown_images: false,
        replicas: Some(3),
        patches: Vec::new(),
        would_patch: Vec::new(),
        findings: vec![
            found(FindingOutcome::Denied, None),
            found(FindingOutcome::Exempted, Some("until May")),
        ],
    };
    ScanReport {
        schema: crate::scan::report::SCHEMA,
        created_at: "2026-06-01T12:00:00Z".parse().unwrap(),
        today: "2026-06-01".parse().unwrap(),
        knowledge: Knowledge::built_in().report("2026-12-01".parse().unwrap()),
        cluster: ScannedCluster::default(),
        assumed: Vec::new(),
        limited_to: Vec::new(),
        changes: None,
        summary: ScanSummary::default(),
        nodes: Vec::new(),
        node_findings: Vec::new(),
        namespaces: Vec::new(),
        owners: vec![owner_result],
        pods: vec![PodFinding {
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
            owner: Some("Deployment web".to_owned()),
            node: None,
            problem: PodProblem::WaitsForOs,
            message: "no node".to_owned(),
            remedy: "add one".to_owned(),
            since: None,
        }],
        notes: Vec::new(),
        gaps: vec![ScanGap {
            resource: "jobs".to_owned(),
            reason: "forbidden".to_owned(),
            remedy: None,
        }],
    }
}

#[test]
fn each_result_names_a_rule_of_the_run_and_an_object_and_what_is_lifted_is_suppressed() {
    let mut out = Vec::new();
    scan_sarif(&report(), None, &mut out).unwrap();
    let log: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    assert_eq!((rules.len(), results.len()), (2, 3));
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()));
    }
    assert_eq!(
        results[0]["locations"][0],
        json!({
            "physicalLocation": {"artifactLocation": {"uri": "k8s:///shop/Deployment/web"}},
            "logicalLocations": [{
                "fullyQualifiedName": "shop/Deployment/web:spec.template.spec.securityContext.runAsUser",
                "kind": "object",
            }],
        })
    );
    let suppressed: Vec<bool> = results
        .iter()
        .map(|result| result.get("suppressions").is_some())
        .collect();
    assert_eq!(suppressed, [false, true, false]);
    assert_eq!(results[2]["ruleId"], "pod-waits-for-os");
    let invocation = &run["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], false);
    assert_eq!(
        invocation["toolExecutionNotifications"][0]["message"]["text"],
        "jobs: forbidden"
    );
}

#[test]
fn nothing_in_a_name_or_a_message_does_more_than_stand_there() {
    fn sarif(report: &ScanReport, out: &mut dyn io::Write) -> io::Result<()> {
        scan_sarif(report, None, out)
    }
    let hostile = "a\u{9b}31m\u{202e} ##vso[task.setvariable]\n::error ::x";
    let mut report = report();
    report.owners[0].name = hostile.to_owned();
    report.owners[0].findings[0].message = hostile.to_owned();
    report.pods[0].message = hostile.to_owned();
    report.cluster.name = hostile.to_owned();
    for write in [sarif, crate::render::scan_json] {
        let mut out = Vec::new();
        write(&report, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        for line in out.lines() {
            assert_eq!(one_line(line), line);
            assert!(!line.trim_start().starts_with("::"), "{line}");
        }
        let means = serde_json::from_str::<Value>(&out).unwrap();
        let of_sarif = means.pointer("/runs/0/results/0/properties/policy");
        let of_json = means.pointer("/owners/0/name");
        assert!(of_sarif.is_some() || of_json == Some(&json!(hostile)), "{out}");
    }
}

#[test]
fn what_an_author_wrote_is_no_link_in_a_message() {
    let mut report = report();
    let link = r"run [the fix](https://evil.example) from C:\\[x](y) or a\b";
    report.owners[0].findings[0].message = link.to_owned();
    report.pods[0].remedy = "[a](b)".to_owned();
    report.gaps[0].reason = "[a](b)".to_owned();
    let mut out = Vec::new();
    scan_sarif(&report, None, &mut out).unwrap();
    let log: Value = serde_json::from_slice(&out).unwrap();
    let run = &log["runs"][0];
    assert_eq!(
        run["results"][0]["message"]["text"],
        r"run \[the fix\](https://evil.example) from C:\\\\\[x\](y) or a\b; take it out"
    );
    for text in [
        &run["results"][2]["message"]["text"],
        &run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"],
    ] {
        assert!(text.as_str().unwrap().contains(r"\[a\](b)"), "{text}");
    }
}
