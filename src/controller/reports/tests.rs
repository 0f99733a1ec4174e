//! Reports on evaluated owners, and the state that is kept for them.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use serde_json::json;
use tokio::time::Instant;

use super::evaluator::ObjectEvaluation;
use super::events::event_on;
use super::owner_index::{OwnerIndex, Recorded, ReportAction, WrittenReport};
use super::report::{self, MOST_RESULTS, content};
use super::report_api::ReportApi;
use super::representatives::{Representatives, Represents};
use super::write_queue::ObservationSource::{self, List, Watch};
use crate::cluster::stored::ObjectHeadMeta;
use crate::engine::Decision;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::windows::os::Verdict;
use crate::rules::find;
use crate::scan::{DedupKey, FindingOutcome, FindingResult, OwnerOutcome, OwnerResult};

fn found(outcome: FindingOutcome, path: &str) -> FindingResult {
    let rule = find("run-as-user").unwrap();
    FindingResult {
        id: rule.id,
        rule: rule.name,
        severity: rule.severity,
        class: rule.class,
        path: path.to_owned(),
        message: "Windows has no user IDs".to_owned(),
        remedy: "use windowsOptions.runAsUserName".to_owned(),
        outcome,
        would_deny: matches!(outcome, FindingOutcome::Denied | FindingOutcome::Warned),
        outcome_reason: None,
    }
}

/// A Deployment `shop/web` with these findings.
pub fn owner_result(uid: &str, outcomes: &[FindingOutcome]) -> OwnerResult {
    OwnerResult {
        unlisted_controller: None,
        denied_by_class: None,
        api_version: "apps/v1".to_owned(),
        kind: Kind::Deployment,
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        uid: uid.to_owned(),
        owner: None,
        is_added_evidence: false,
        differs_from_template: false,
        verdict: Verdict::Windows,
        evidence: Vec::new(),
        policy: "default".to_owned(),
        outcome: OwnerOutcome::Passes,
        decision: Decision::Allow,
        not_reviewed: None,
        image_builds: Vec::new(),
        has_unknown_images: false,
        replicas: Some(1),
        patches: Vec::new(),
        would_patch: Vec::new(),
        findings: outcomes.iter().map(|outcome| found(*outcome, "spec")).collect(),
    }
}

fn there(kind: Kind, uid: &str, content_hash: u64, version: Option<u64>) -> WrittenReport {
    WrittenReport {
        kind,
        owner: WorkloadName::of(kind, "shop", "web").with_uid(uid),
        content_hash,
        version,
    }
}

const UID: &str = "3c1f6b1e-0000-4000-8000-000000000001";

#[test]
fn a_report_says_policy_rule_severity_category_message_remedy_field_and_what_would_become_of_it() {
    let owner_result = owner_result(UID, &[FindingOutcome::Audited, FindingOutcome::Denied]);
    let content_hash = content(&owner_result).unwrap();
    let at = Timestamp::from_second(1_700_000_000).unwrap();
    let report = report::report(&owner_result, content_hash, ReportApi::OpenReports, at);
    assert_eq!(report["apiVersion"], "openreports.io/v1alpha1");
    assert_eq!(report["kind"], "Report");
    assert_eq!(report["source"], "transom");
    assert_eq!(report["metadata"]["name"], format!("transom-deployment-{UID}"));
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": UID}]);
    assert_eq!(report["metadata"]["ownerReferences"], owner);
    let summary = json!({"pass": 0, "fail": 1, "warn": 1, "error": 0, "skip": 0});
    assert_eq!(report["summary"], summary);
    assert_eq!(
        report["results"][0],
        json!({
            "source": "transom", "policy": "default", "rule": "run-as-user", "category": "Security context",
            "severity": "high", "result": "fail", "scored": true, "message": "Windows has no user IDs",
            "timestamp": {"seconds": 1_700_000_000, "nanos": 0},
            "properties": {
                "id": "TSM204", "field": "spec", "remedy": "use windowsOptions.runAsUserName",
                "outcome": "denied at its next create; an update that leaves it as it is passes",
            },
        }),
        "what refuses it comes first"
    );
    let other = report::report(&owner_result, content_hash, ReportApi::PolicyReports, at);
    assert_eq!(other["apiVersion"], "wgpolicyk8s.io/v1alpha2");
    assert_eq!(
        (&other["kind"], &other["source"]),
        (&json!("PolicyReport"), &json!(null))
    );
}

#[test]
fn what_is_fixed_by_itself_or_not_called_for_is_no_reason_for_a_report() {
    assert_eq!(content(&owner_result(UID, &[])), None);
    assert_eq!(content(&owner_result(UID, &[FindingOutcome::Fixed])), None);
    let mut left_out = owner_result(UID, &[FindingOutcome::NotReviewed]);
    left_out.outcome = OwnerOutcome::NotReviewed;
    assert_eq!(content(&left_out), None);
    assert!(content(&owner_result(UID, &[FindingOutcome::Exempted])).is_some());
}

#[test]
fn the_same_findings_are_the_same_content_and_others_are_not() {
    let one = content(&owner_result(UID, &[FindingOutcome::Warned]));
    assert_eq!(one, content(&owner_result(UID, &[FindingOutcome::Warned])));
    for other in [
        &[FindingOutcome::Denied][..],
        &[FindingOutcome::Warned, FindingOutcome::Warned],
    ] {
        assert_ne!(one, content(&owner_result(UID, other)), "{other:?}");
    }
}

#[test]
fn results_are_bounded_and_the_summary_counts_all() {
    let mut owner_result = owner_result(UID, &[]);
    owner_result.findings = (0..MOST_RESULTS + 17)
        .map(|at| found(FindingOutcome::Warned, &format!("spec[{at}]{}", "x".repeat(5000))))
        .collect();
    let content_hash = content(&owner_result).unwrap();
    let report = report::report(
        &owner_result,
        content_hash,
        ReportApi::OpenReports,
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(report["results"].as_array().unwrap().len(), MOST_RESULTS);
    assert_eq!(report["summary"]["fail"], MOST_RESULTS + 17);
    assert_eq!(
        report["metadata"]["annotations"]["transom.dev/more-results"],
        "17"
    );
    assert!(report.to_string().len() < 128 << 10);
}

#[test]
fn a_name_is_legal_whatever_the_uid_is() {
    assert_eq!(
        report::name(&WorkloadName::of(Kind::CronJob, "shop", "nightly").with_uid("A_b/c.")),
        "transom-cronjob-a-b-c"
    );
}

/// An index of a cluster that serves a kind of report.
fn reporting() -> OwnerIndex {
    let mut index = OwnerIndex::default();
    index.forget_reports(true);
    index
}

/// The next owner with something to do, and what.
fn next(index: &mut OwnerIndex) -> Option<(String, ReportAction)> {
    let (_, WorkloadName { uid, .. }) = index.next_write(Instant::now())?;
    Some((uid.to_string(), index.plan(&uid)))
}

#[test]
fn a_report_is_written_on_change_only_and_deleted_when_its_owner_is_clean() {
    let mut index = reporting();
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let content_hash = content(&dirty).unwrap();
    index.record_result(&dirty, List);
    let named = WorkloadName::of(Kind::Deployment, "shop", "web").with_uid(UID);
    assert_eq!(index.next_write(Instant::now()), Some((Kind::Deployment, named)));
    assert_eq!(index.plan(UID), ReportAction::Write(content_hash));
    index.written(UID, Some(content_hash), None);
    index.record_result(&dirty, List);
    assert_eq!(next(&mut index), None);
    index.record_result(&owner_result(UID, &[]), Watch);
    assert_eq!(next(&mut index), Some((UID.to_owned(), ReportAction::Delete)));
    index.written(UID, None, None);
    assert_eq!((index.behind(), index.series().count()), (0, 0));
    assert_eq!(next(&mut index), None);
}

#[test]
fn an_owner_that_changes_while_its_report_is_written_gets_the_right_one() {
    let mut index = reporting();
    let (dirty, warned) = (
        owner_result(UID, &[FindingOutcome::Denied]),
        owner_result(UID, &[FindingOutcome::Warned]),
    );
    index.record_result(&dirty, List);
    index.next_write(Instant::now()).unwrap();
    index.record_result(&warned, Watch);
    assert_eq!(next(&mut index), None, "one write at a time");
    index.written(UID, content(&dirty), None);
    let write = ReportAction::Write(content(&warned).unwrap());
    assert_eq!(next(&mut index), Some((UID.to_owned(), write)));
    index.record_result(&owner_result(UID, &[]), Watch);
    index.written(UID, content(&warned), None);
    assert_eq!(next(&mut index), Some((UID.to_owned(), ReportAction::Delete)));
}

#[test]
fn a_write_that_fails_is_tried_again_ever_later() {
    let mut index = reporting();
    index.record_result(&owner_result(UID, &[FindingOutcome::Denied]), List);
    let (mut now, first) = (Instant::now(), Duration::from_secs(10));
    let mut waits = Vec::new();
    index.next_write(now).unwrap();
    for _ in 0..4 {
        index.failed(UID, now, first);
        let before = now;
        while index.next_write(now).is_none() {
            now += Duration::from_secs(1);
        }
        waits.push(now - before);
    }
    assert!(
        waits[0] == first && waits.is_sorted() && waits[3] > first,
        "{waits:?}"
    );
}

#[test]
fn a_report_without_an_owner_is_deleted_after_the_list_of_its_kind() {
    let mut index = reporting();
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let content_hash = content(&dirty).unwrap();
    index.found(&there(Kind::Deployment, UID, content_hash, None));
    index.found(&there(Kind::Deployment, "fixed", 7, None));
    index.found(&there(Kind::Job, "another kind", 7, None));
    index.begin_pass(Kind::Deployment);
    index.record_result(&dirty, List);
    assert_eq!(
        next(&mut index),
        None,
        "it is up to date, and the others are not known"
    );
    index.end_pass(Kind::Deployment);
    assert_eq!(next(&mut index), Some(("fixed".to_owned(), ReportAction::Delete)));
    assert_eq!(next(&mut index), None);
    // After the list, the owner itself decides.
    index.found(&there(Kind::Deployment, "forged", 7, None));
    assert_eq!(next(&mut index).unwrap().0, "forged");
}

#[test]
fn reports_that_are_gone_are_written_again() {
    let mut index = reporting();
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let write = || Some((UID.to_owned(), ReportAction::Write(content(&dirty).unwrap())));
    let writes = |index: &mut OwnerIndex| {
        let action = next(index);
        index.written(UID, content(&dirty), None);
        action
    };
    index.record_result(&dirty, List);
    assert_eq!(writes(&mut index), write());
    index.without_report(|_| true);
    assert_eq!(writes(&mut index), None);
    index.without_report(|_| false);
    assert_eq!(writes(&mut index), write());
    let elsewhere = WrittenReport {
        owner: WorkloadName::of(Kind::Deployment, "attackers", "web").with_uid(UID),
        ..there(Kind::Deployment, UID, 7, None)
    };
    index.missing(&elsewhere);
    assert_eq!(writes(&mut index), None, "it was another one");
    index.missing(&there(Kind::Deployment, UID, 7, None));
    assert_eq!(writes(&mut index), write());
    index.forget_reports(true);
    assert_eq!(writes(&mut index), write());
    assert_eq!(index.series().count(), 1, "findings are counted without reports");
}

#[test]
fn one_object_represents_those_that_are_like_it_until_it_goes() {
    let mut all = Representatives::default();
    let record = |all: &mut Representatives, like, uid, pass| {
        let Represents {
            is_representative,
            has_freed,
        } = all.record(like, Kind::ReplicaSet, &"shop".into(), uid, pass);
        (is_representative, has_freed)
    };
    assert_eq!(record(&mut all, 1, "a", 1), (true, false));
    assert_eq!(record(&mut all, 1, "b", 1), (false, false));
    assert_eq!(record(&mut all, 2, "b", 1), (true, false));
    assert!(all.remove("a"), "others are to be read again");
    assert!(!all.remove("a"));
    assert_eq!(record(&mut all, 1, "c", 1), (true, false));
    assert_eq!(
        record(&mut all, 3, "c", 1),
        (true, true),
        "its template has changed"
    );
    assert_eq!(record(&mut all, 2, "b", 2), (true, false));
    let freed = all.end_pass(Kind::ReplicaSet, 2);
    assert_eq!(freed, BTreeSet::from(["shop".to_owned()]), "c was not seen");
    assert_eq!(record(&mut all, 3, "d", 2), (true, false));
    assert_eq!(record(&mut all, 2, "d", 2), (false, true));
}

#[test]
fn an_edit_of_a_report_is_overwritten_and_an_event_from_before_a_write_is_no_edit() {
    let mut index = reporting();
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let content_hash = content(&dirty).unwrap();
    index.record_result(&dirty, List);
    let there = |content_hash, version| there(Kind::Deployment, UID, content_hash, Some(version));
    let is_written_again = |index: &mut OwnerIndex| {
        let action = next(index).map(|(_, action)| action);
        action == Some(ReportAction::Write(content_hash))
    };
    assert!(is_written_again(&mut index));
    index.found(&there(7, 3));
    assert_eq!(next(&mut index), None, "the write of this one is under way");
    index.written(UID, Some(content_hash), Some(5));
    index.found(&there(content_hash, 5));
    index.found(&there(7, 4));
    assert_eq!(next(&mut index), None, "it was before");
    index.found(&there(7, 6));
    assert!(is_written_again(&mut index));
    assert_eq!(index.version(UID), Some(6), "it is written over what was seen");
    index.written(UID, Some(content_hash), Some(7));
    index.found(&there(content_hash, 7));
    assert_eq!(next(&mut index), None);
    index.found(&there(content_hash, 8));
    assert!(is_written_again(&mut index), "an edit may keep the annotation");
    index.found(&there(7, 10));
    index.written(UID, Some(content_hash), Some(9));
    assert!(
        is_written_again(&mut index),
        "the edit was seen before the answer"
    );
}

#[test]
fn a_report_in_another_namespace_replaces_no_other() {
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let write = Some((UID.to_owned(), ReportAction::Write(content(&dirty).unwrap())));
    let forged = WrittenReport {
        owner: WorkloadName::of(Kind::Deployment, "attackers", "web").with_uid(UID),
        ..there(Kind::Deployment, UID, content(&dirty).unwrap(), Some(9))
    };
    let mut index = reporting();
    index.found(&forged);
    index.record_result(&dirty, List);
    assert_eq!(next(&mut index), write, "before the owner is known");
    index.finished(UID);
    index.found(&forged);
    index.record_result(&dirty, List);
    assert_eq!(next(&mut index), write, "and after");
}

#[test]
fn an_event_reports_what_would_be_denied_once_for_the_same_problem() {
    let event_on = |result: &OwnerResult| event_on(result, Timestamp::UNIX_EPOCH);
    let name = |event: Event| event.metadata.name.unwrap();
    assert_eq!(
        event_on(&owner_result(
            UID,
            &[FindingOutcome::Audited, FindingOutcome::Exempted]
        )),
        None
    );
    let reported = event_on(&owner_result(
        UID,
        &[FindingOutcome::Audited, FindingOutcome::Warned],
    ))
    .unwrap();
    assert_eq!(
        reported.note.as_deref(),
        Some(
            "for Windows this would be denied with validation.action: Deny: run-as-user; spec: Windows has no user IDs; use \
             windowsOptions.runAsUserName"
        )
    );
    let again = name(event_on(&owner_result(UID, &[FindingOutcome::Warned])).unwrap());
    assert_eq!(name(reported), again);
    let mut result = owner_result(UID, &[FindingOutcome::Denied]);
    let denied = name(event_on(&result).unwrap());
    assert_ne!(denied, again);
    assert!(denied.starts_with("web."));
    result.name = format!("{}.", "a".repeat(252));
    assert!(name(event_on(&result).unwrap()).len() < 253);
}

/// Records an evaluation of the Deployment `shop/web` with this uid.
fn record(
    index: &mut OwnerIndex,
    uid: &str,
    evaluation: &ObjectEvaluation,
    source: ObservationSource,
) -> Recorded {
    let object = json!({"metadata": {"namespace": "shop", "name": "web", "uid": uid}}).to_string();
    index.record(Kind::Deployment, &ObjectHeadMeta::of(&object), evaluation, source)
}

fn owner(uid: &str, key: DedupKey) -> ObjectEvaluation {
    let result = owner_result(uid, &[FindingOutcome::Denied]);
    ObjectEvaluation::Owner(Box::new(result), key, None)
}

#[test]
fn an_evaluation_says_whether_others_must_be_listed_again() {
    let index = &mut reporting();
    let is_next = |index: &mut OwnerIndex, uid: &str| next(index).is_some_and(|(next, _)| next == uid);
    record(index, "a", &owner("a", DedupKey::None), List);
    assert_eq!(index.behind(), 1, "it is to be written");
    let recorded = record(index, "a", &ObjectEvaluation::Skipped, Watch);
    assert_eq!(recorded, Recorded::default());
    assert_eq!((index.behind(), next(index)), (0, None), "it was never written");

    record(index, "b", &owner("b", DedupKey::Of(7)), List);
    assert!(is_next(index, "b"));
    let other = record(index, "c", &owner("c", DedupKey::Of(7)), List);
    assert_eq!(other, Recorded::default());
    assert_eq!(next(index), None, "b represents it");
    assert!(record(index, "b", &owner("b", DedupKey::AtZero), Watch).has_freed);
    record(index, "c", &owner("c", DedupKey::Of(7)), List);
    assert!(is_next(index, "c"));
}

#[test]
fn an_unreadable_object_is_new_once_and_its_report_goes() {
    let index = &mut reporting();
    record(index, "a", &owner("a", DedupKey::None), List);
    assert!(next(index).is_some());
    index.written("a", Some(1), Some(1));
    let unreadable = || ObjectEvaluation::Unreadable("containers: a list is expected".to_owned());
    assert!(record(index, "a", &unreadable(), Watch).is_newly_unreadable);
    assert!(!record(index, "a", &unreadable(), List).is_newly_unreadable);
    assert_eq!(index.all_unreadable().next().unwrap().name, "shop/web");
    assert_eq!(next(index), Some(("a".to_owned(), ReportAction::Delete)));
    record(index, "a", &ObjectEvaluation::Skipped, Watch);
    assert_eq!(index.all_unreadable().len(), 0);
}
