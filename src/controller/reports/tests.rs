//! Reports on evaluated owners, and the state that is kept for them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::json;

use super::evaluator::ObjectEvaluation;
use super::events::event_on;
use super::owner_index::{
    ObservationSource, OwnerIndex, Recorded, ReportAction, UnreadableObject, WrittenReport,
};
use super::report::{self, MOST_RESULTS, content};
use super::report_api::ReportApi;
use crate::cluster::stored::ObjectHeadMeta;
use crate::engine::Decision;
use crate::model::os::Verdict;
use crate::model::workload::Kind;
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
        api_version: "apps/v1".to_owned(),
        kind: Kind::Deployment,
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        uid: uid.to_owned(),
        owner: None,
        is_added_evidence: false,
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
        namespace: "shop".to_owned(),
        uid: uid.to_owned(),
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
    assert_eq!(report::name(Kind::CronJob, "A_b/c."), "transom-cronjob-a-b-c");
}

#[test]
fn a_report_is_written_on_change_only_and_taken_away_when_clean() {
    let mut ledger = OwnerIndex::default();
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let content_hash = content(&dirty).unwrap();
    assert_eq!(ledger.record_result(&dirty, 1), ReportAction::Write(content_hash));
    ledger.written(UID, Some(content_hash), None);
    assert_eq!(ledger.record_result(&dirty, 2), ReportAction::Nothing);
    assert_eq!(ledger.next_to_delete(), None);
    assert_eq!(
        ledger.record_result(&owner_result(UID, &[]), 3),
        ReportAction::Nothing
    );
    let (kind, namespace, uid) = ledger.next_to_delete().unwrap();
    assert_eq!((kind, &*namespace, &*uid), (Kind::Deployment, "shop", UID));
    ledger.written(UID, None, None);
    assert_eq!((ledger.behind(), ledger.series().count()), (0, 0));
}

#[test]
fn an_owner_that_becomes_clean_while_its_report_is_written_keeps_none() {
    let mut ledger = OwnerIndex::default();
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let content_hash = content(&dirty).unwrap();
    ledger.record_result(&dirty, 1);
    ledger.written(UID, Some(content_hash), None);
    ledger.record_result(&owner_result(UID, &[FindingOutcome::Warned]), 1);
    ledger.record_result(&owner_result(UID, &[]), 1);
    ledger.written(UID, content(&owner_result(UID, &[FindingOutcome::Warned])), None);
    assert!(ledger.next_to_delete().is_some());
}

#[test]
fn what_a_new_leader_finds_and_no_owner_has_is_taken_away_after_a_whole_reading() {
    let mut ledger = OwnerIndex::default();
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let content_hash = content(&dirty).unwrap();
    ledger.found(&there(Kind::Deployment, UID, content_hash, None));
    ledger.found(&there(Kind::Deployment, "fixed", 7, None));
    ledger.found(&there(Kind::Job, "another kind", 7, None));
    ledger.begins(Kind::Deployment);
    assert_eq!(
        ledger.record_result(&dirty, 1),
        ReportAction::Nothing,
        "it says so already"
    );
    ledger.ends(Kind::Deployment, 1);
    let (_, _, uid) = ledger.next_to_delete().unwrap();
    assert_eq!(&*uid, "fixed");
    assert_eq!(ledger.next_to_delete(), None);
}

#[test]
fn what_changes_during_a_reading_is_not_taken_from_what_it_reads() {
    let mut ledger = OwnerIndex::default();
    ledger.record_result(&owner_result(UID, &[FindingOutcome::Denied]), 1);
    ledger.begins(Kind::Deployment);
    ledger.touch(Kind::Deployment, UID);
    assert!(ledger.is_touched(Kind::Deployment, UID));
    assert!(!ledger.is_touched(Kind::Job, UID));
    ledger.ends(Kind::Deployment, 2);
    assert!(ledger.has_findings(UID), "it was not gone, it was passed over");
    assert!(!ledger.is_touched(Kind::Deployment, UID));
}

#[test]
fn what_cannot_be_read_is_reported_once_and_forgotten_when_it_can() {
    let mut ledger = OwnerIndex::default();
    let which = || UnreadableObject {
        kind: Kind::Deployment,
        name: "shop/web".to_owned(),
        why: "w".to_owned(),
    };
    assert!(ledger.unreadable(UID, which(), 1));
    assert!(!ledger.unreadable(UID, which(), 2));
    assert_eq!(ledger.all_unreadable().len(), 1);
    ledger.record_result(&owner_result(UID, &[]), 2);
    assert_eq!(ledger.all_unreadable().len(), 0);
}

#[test]
fn when_reports_are_gone_they_are_to_be_written_anew() {
    let mut ledger = OwnerIndex::default();
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    ledger.record_result(&dirty, 1);
    ledger.written(UID, content(&dirty), None);
    assert!(ledger.without_report(|_| true).is_empty());
    assert_eq!(
        ledger.without_report(|_| false),
        BTreeSet::from(["shop".to_owned()])
    );
    assert!(matches!(ledger.record_result(&dirty, 2), ReportAction::Write(_)));
    ledger.written(UID, content(&dirty), None);
    ledger.forget_reports();
    assert!(matches!(ledger.record_result(&dirty, 3), ReportAction::Write(_)));
    assert_eq!(ledger.series().count(), 1, "findings are counted without reports");
}

#[test]
fn one_object_stands_for_those_that_are_like_it_until_it_goes() {
    let mut ledger = OwnerIndex::default();
    let stands = |ledger: &mut OwnerIndex, like, uid, pass| {
        ledger.stands_for(like, Kind::ReplicaSet, "shop", uid, pass)
    };
    assert_eq!(stands(&mut ledger, 1, "a", 1), (true, false));
    assert_eq!(stands(&mut ledger, 1, "b", 1), (false, false));
    assert_eq!(stands(&mut ledger, 2, "b", 1), (true, false));
    assert!(ledger.gone(Kind::ReplicaSet, "a"), "others are to be looked at");
    assert!(!ledger.gone(Kind::ReplicaSet, "a"));
    assert_eq!(stands(&mut ledger, 1, "c", 1), (true, false));
    assert_eq!(
        stands(&mut ledger, 3, "c", 1),
        (true, true),
        "its template has changed"
    );
    assert_eq!(stands(&mut ledger, 2, "b", 2), (true, false));
    let freed = ledger.ends(Kind::ReplicaSet, 2);
    assert_eq!(freed, BTreeSet::from(["shop".to_owned()]), "c was not seen");
    assert_eq!(stands(&mut ledger, 3, "d", 2), (true, false));
    assert_eq!(stands(&mut ledger, 2, "d", 2), (false, true));
}

#[test]
fn a_report_that_another_hand_has_written_is_written_anew_and_an_old_event_is_none() {
    let mut ledger = OwnerIndex::default();
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let content_hash = content(&dirty).unwrap();
    ledger.record_result(&dirty, 1);
    let there = |content_hash, version| there(Kind::Deployment, UID, content_hash, Some(version));
    assert!(!ledger.found(&there(7, 3)), "the write of this one is under way");
    ledger.written(UID, Some(content_hash), Some(5));
    assert!(!ledger.found(&there(content_hash, 5)));
    assert!(!ledger.found(&there(7, 4)), "it was before");
    assert_eq!(ledger.record_result(&dirty, 2), ReportAction::Nothing);
    assert!(ledger.found(&there(7, 6)));
    assert!(matches!(ledger.record_result(&dirty, 2), ReportAction::Write(_)));
    assert_eq!(ledger.version(UID), Some(6), "it is written over what was seen");
    ledger.written(UID, Some(content_hash), Some(7));
    assert!(!ledger.found(&there(content_hash, 7)));
    assert!(
        ledger.found(&there(content_hash, 8)),
        "an edit may keep the annotation"
    );
    assert!(matches!(ledger.record_result(&dirty, 3), ReportAction::Write(_)));
}

#[test]
fn a_report_in_another_namespace_stands_in_for_no_other() {
    let dirty = owner_result(UID, &[FindingOutcome::Denied]);
    let forged = WrittenReport {
        namespace: "attackers".to_owned(),
        ..there(Kind::Deployment, UID, content(&dirty).unwrap(), Some(9))
    };
    let mut ledger = OwnerIndex::default();
    ledger.found(&forged);
    assert!(
        matches!(ledger.record_result(&dirty, 1), ReportAction::Write(_)),
        "before the owner is known"
    );
    assert!(!ledger.found(&forged));
    assert!(
        matches!(ledger.record_result(&dirty, 2), ReportAction::Write(_)),
        "and after"
    );
}

#[test]
fn an_event_reports_what_would_be_denied_once_for_the_same_problem() {
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
        reported.message,
        "for Windows this would be denied with validation.action: Deny: run-as-user; spec: Windows has no user IDs; use \
         windowsOptions.runAsUserName"
    );
    let again = event_on(&owner_result(UID, &[FindingOutcome::Warned])).unwrap();
    assert_eq!(reported.name(), again.name());
    let denied = event_on(&owner_result(UID, &[FindingOutcome::Denied])).unwrap();
    assert_ne!(denied.name(), again.name());
    assert!(denied.name().starts_with("web."));
    let mut long = denied.clone();
    long.owner.name = format!("{}.", "a".repeat(252));
    assert!(long.name().len() < 253);
}

/// Records an evaluation of the Deployment `shop/web` with this uid.
fn record(
    index: &mut OwnerIndex,
    uid: &str,
    evaluation: &ObjectEvaluation,
    source: ObservationSource,
) -> Recorded {
    let object = json!({"metadata": {"namespace": "shop", "name": "web", "uid": uid}}).to_string();
    index.record(
        Kind::Deployment,
        &ObjectHeadMeta::of(&object),
        evaluation,
        1,
        source,
    )
}

fn owner(uid: &str, key: DedupKey) -> ObjectEvaluation {
    ObjectEvaluation::Owner(Box::new(owner_result(uid, &[FindingOutcome::Denied])), key)
}

#[test]
fn an_evaluation_says_whether_to_write_and_whether_others_must_be_listed_again() {
    use ObservationSource::{List, Watch};
    let index = &mut OwnerIndex::default();
    assert!(
        record(index, "a", &owner("a", DedupKey::None), List)
            .write
            .is_some()
    );
    assert_eq!(index.behind(), 1, "it is to be written");
    assert_eq!(
        record(index, "a", &ObjectEvaluation::Skipped, Watch),
        Recorded::default()
    );
    assert_eq!(index.behind(), 0, "it was never written");

    assert!(
        record(index, "b", &owner("b", DedupKey::Of(7)), List)
            .write
            .is_some()
    );
    let other = record(index, "c", &owner("c", DedupKey::Of(7)), List);
    assert_eq!(other, Recorded::default(), "b represents it");
    assert!(record(index, "b", &owner("b", DedupKey::AtZero), Watch).has_freed);
    assert!(
        record(index, "c", &owner("c", DedupKey::Of(7)), List)
            .write
            .is_some()
    );
}

#[test]
fn an_object_that_changed_during_a_list_is_not_taken_from_it_but_owned_ones_are_not_remembered() {
    let index = &mut OwnerIndex::default();
    index.begins(Kind::Deployment);
    record(index, "a", &ObjectEvaluation::Skipped, ObservationSource::Watch);
    record(index, "b", &ObjectEvaluation::Owned, ObservationSource::Watch);
    record(index, "c", &ObjectEvaluation::Skipped, ObservationSource::List);
    let touched = |uid| index.is_touched(Kind::Deployment, uid);
    assert_eq!((touched("a"), touched("b"), touched("c")), (true, false, false));
}

#[test]
fn an_unreadable_object_is_new_once_and_its_report_goes() {
    let index = &mut OwnerIndex::default();
    let write = record(index, "a", &owner("a", DedupKey::None), ObservationSource::List).write;
    index.written("a", write, Some(1));
    let unreadable = || ObjectEvaluation::Unreadable("containers: a list is expected".to_owned());
    assert!(record(index, "a", &unreadable(), ObservationSource::Watch).is_newly_unreadable);
    assert!(!record(index, "a", &unreadable(), ObservationSource::List).is_newly_unreadable);
    assert_eq!(index.all_unreadable().next().unwrap().name, "shop/web");
    let (kind, namespace, uid) = index.next_to_delete().unwrap();
    assert_eq!((kind, &*namespace, &*uid), (Kind::Deployment, "shop", "a"));
    record(index, "a", &ObjectEvaluation::Skipped, ObservationSource::Watch);
    assert_eq!(index.all_unreadable().len(), 0);
}
