//! What differs between two scans of objects.

use serde_json::{Value, json};

use super::*;
use crate::model::cluster::severity::Severity;
use crate::model::objects::workload::Kind;
use crate::scan::report::ScanGap;
use crate::scan::report_builder::tests::{pod, scan, template};

fn deployment(name: &str, more: &Value) -> (Kind, Value) {
    let mut object = template(name, None, 1);
    let spec = &mut object["spec"]["template"]["spec"];
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    (Kind::Deployment, object)
}

/// An earlier report, as it was written.
fn written(report: &ScanReport) -> EarlierReport {
    EarlierReport::parse(&serde_json::to_vec(report).unwrap()).unwrap()
}

/// What changed, one line each: the object, with a mark if only one report lists it, and its findings about `hostPID`.
fn lines(owners: &[ComparedOwner]) -> Vec<String> {
    let line = |owner: &ComparedOwner| {
        let mark = if owner.in_both { "" } else { " (whole)" };
        let findings = owner
            .findings
            .iter()
            .filter(|found| found.rule == "host-pid")
            .map(|found| {
                let former = found.former_outcome.map(|former| format!("{former}→"));
                format!(
                    " {}@{} {}{}",
                    found.rule,
                    found.path,
                    former.unwrap_or_default(),
                    found.outcome
                )
            });
        format!(
            "{} {}{mark}:{}",
            owner.kind,
            owner.name,
            findings.collect::<String>()
        )
    };
    owners.iter().map(line).collect()
}

#[test]
fn what_is_new_and_what_is_gone_is_listed_and_what_stays_is_not() {
    let earlier = scan(&[
        deployment("stays", &json!({"hostPID": true})),
        deployment("fixed", &json!({"hostPID": true})),
        deployment("deleted", &json!({"hostPID": true})),
    ]);
    let now = scan(&[
        deployment("stays", &json!({"hostPID": true})),
        deployment("fixed", &json!({"hostPID": false})),
        deployment("broken", &json!({"hostPID": true})),
    ]);
    let changes = ScanChanges::between(&written(&earlier), &now);
    let denied = "host-pid@spec.template.spec.hostPID denied";
    assert_eq!(
        lines(&changes.new.owners),
        [format!("Deployment broken (whole): {denied}")]
    );
    assert_eq!(
        lines(&changes.gone.owners),
        [
            format!("Deployment deleted (whole): {denied}"),
            format!("Deployment fixed: {denied}")
        ]
    );
    assert_eq!((changes.changed.len(), changes.notes.len()), (0, 0));
    let summary = changes.summary();
    assert_eq!((summary.denied, summary.would_be_denied), (1, 1));
    assert!(summary.open[Severity::Error as usize] > 0);
    // Backwards, everything is the other way round.
    let back = ScanChanges::between(&written(&now), &earlier);
    assert_eq!((back.new.owners.len(), back.gone.owners.len()), (2, 1));
    // Nothing changes without a change.
    let same = ScanChanges::between(&written(&now), &now);
    assert_eq!(
        (&same.new, &same.gone, &same.changed),
        (&ChangedItems::default(), &ChangedItems::default(), &Vec::new())
    );
    assert_eq!(same.summary(), ScanSummary::default());
}

#[test]
fn a_container_is_the_same_at_another_place_of_its_list() {
    let containers = |names: [&str; 2]| {
        let containers = names.map(
            |name| json!({"name": name, "image": "a", "securityContext": {"privileged": name == "app"}}),
        );
        deployment("web", &json!({"containers": containers}))
    };
    let earlier = scan(&[containers(["app", "log"])]);
    let now = scan(&[containers(["log", "app"])]);
    let changes = ScanChanges::between(&written(&earlier), &now);
    assert_eq!(
        (&changes.new, &changes.gone),
        (&ChangedItems::default(), &ChangedItems::default())
    );
    let paths: Vec<&str> = now.owners[0].findings.iter().map(|found| &*found.path).collect();
    assert!(
        paths.contains(&"spec.template.spec.containers[app].securityContext.privileged"),
        "{paths:?}"
    );
}

#[test]
fn another_outcome_is_neither_new_nor_gone() {
    let now = scan(&[deployment("web", &json!({"hostPID": true}))]);
    let mut earlier = now.clone();
    let found = earlier.owners[0]
        .findings
        .iter_mut()
        .find(|found| found.rule == "host-pid")
        .unwrap();
    found.outcome = FindingOutcome::Warned;
    let changes = ScanChanges::between(&written(&earlier), &now);
    assert_eq!(
        (&changes.new, &changes.gone),
        (&ChangedItems::default(), &ChangedItems::default())
    );
    assert_eq!(
        lines(&changes.changed),
        ["Deployment web: host-pid@spec.template.spec.hostPID warned→denied"]
    );
    assert_eq!(changes.summary().denied, 1);
}

#[test]
fn pods_that_represent_their_owner_are_compared_by_it() {
    let of_rollout = |name: &str| {
        let owner = Some(("argoproj.io/v1alpha1", "Rollout", "web"));
        (Kind::Pod, pod(name, owner, json!({"hostPID": true})))
    };
    let (earlier, now) = (scan(&[of_rollout("web-1")]), scan(&[of_rollout("web-2")]));
    let changes = ScanChanges::between(&written(&earlier), &now);
    assert_eq!(
        (&changes.new, &changes.gone),
        (&ChangedItems::default(), &ChangedItems::default())
    );
}

#[test]
fn pods_are_compared_by_owner_and_problem() {
    let trouble = |name: &str, owner: &str, problem| PodFinding {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        owner: Some(owner.to_owned()),
        node: None,
        problem,
        message: "no node".to_owned(),
        remedy: "add one".to_owned(),
        since: None,
    };
    let (mut earlier, mut now) = (scan(&[]), scan(&[]));
    earlier.pods = vec![
        trouble("web-1", "Deployment web", PodProblem::WaitsForOs),
        trouble("old-1", "Deployment old", PodProblem::Build),
    ];
    now.pods = vec![
        trouble("web-2", "Deployment web", PodProblem::WaitsForOs),
        trouble("web-3", "Deployment web", PodProblem::WaitsForBuild),
        trouble("web-4", "Deployment web", PodProblem::WaitsForBuild),
    ];
    let changes = ScanChanges::between(&written(&earlier), &now);
    let names = |pods: &[PodFinding]| pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&changes.new.pods), names(&changes.gone.pods)),
        (vec!["web-3".to_owned()], vec!["old-1".to_owned()])
    );
}

#[test]
fn reports_of_which_too_little_is_known_are_named() {
    let (mut earlier, mut now) = (scan(&[]), scan(&[]));
    let gap = ScanGap {
        resource: "jobs".to_owned(),
        reason: "forbidden".to_owned(),
        remedy: None,
    };
    earlier.gaps.push(gap.clone());
    earlier.cluster.name = "test".to_owned();
    earlier.assumed.push("mode=Enforce".to_owned());
    now.gaps.push(gap);
    now.cluster.name = "prod".to_owned();
    let notes = ScanChanges::between(&written(&earlier), &now).notes;
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(
        notes[0].contains("of the cluster test, this one of prod"),
        "{notes:?}"
    );
}

#[test]
fn what_is_no_report_of_this_version_has_a_clear_error() {
    let error = |text: &str| EarlierReport::parse(text.as_bytes()).unwrap_err().to_string();
    for (text, expected) in [
        ("", "it is not a report of transom scan -o json: EOF"),
        (
            "namespace shop",
            "it is not a report of transom scan -o json: expected",
        ),
        ("[]", "it is not a report of transom scan -o json: invalid"),
        ("{}", "because it has no schema"),
        (
            r#"{"schema": "transom.dev/plan/v1"}"#,
            "its schema is \"transom.dev/plan/v1\", and this version of Transom compares reports with the schema \
             \"transom.dev/scan/v1\"; scan again with -o json",
        ),
        (
            r#"{"schema": "transom.dev/scan/v1", "owners": 1}"#,
            "it does not match the schema transom.dev/scan/v1: ",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}
