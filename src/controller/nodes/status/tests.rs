//! What the status of a node policy says.

use super::*;
use crate::model::build::Build;
use crate::model::facts::Taint;
use serde_json::json;
use std::sync::Arc;

fn policy(spec: &serde_json::Value) -> NodePolicy {
    let stored = json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
        "metadata": {"name": "windows", "generation": 4}, "spec": spec,
    });
    NodePolicy::of(&Arc::new(serde_json::from_value(stored).unwrap())).unwrap()
}

fn condition<'s>(status: &'s WindowsNodePolicyStatus, kind: &str) -> &'s Condition {
    status.conditions.iter().find(|c| c.type_ == kind).unwrap()
}

fn ready(standing: &Standing, known: &Known) -> (String, String) {
    let status = status_of(&policy(&json!({})), standing, known, None, Timestamp::UNIX_EPOCH);
    let ready = condition(&status, "Ready");
    (ready.status.clone(), ready.reason.clone())
}

#[test]
fn ready_says_the_most_urgent_problem() {
    let said = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    let mut standing = Standing::default();
    let mut known = Known::default();
    assert_eq!(ready(&standing, &known), said("True", "NoNodes"));
    standing.nodes = 2;
    assert_eq!(ready(&standing, &known), said("True", "AsWanted"));
    standing.drift.insert("w1".into(), vec!["x".into()]);
    assert_eq!(ready(&standing, &known), said("True", "Reported"));
    standing.unwritten = 1;
    assert_eq!(ready(&standing, &known), said("False", "Converging"));
    known.failures.push("w1: forbidden".into());
    assert_eq!(ready(&standing, &known), said("False", "WriteFailed"));
    standing
        .contested
        .insert("w1".into(), vec![Taint::no_schedule("os", "windows")]);
    assert_eq!(ready(&standing, &known), said("False", "Contested"));
}

#[test]
fn times_change_only_with_the_status() {
    let (first, later) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
    let mut standing = Standing::default();
    let known = Known::default();
    let before = status_of(&policy(&json!({})), &standing, &known, None, first);
    standing.nodes = 1;
    let same = status_of(&policy(&json!({})), &standing, &known, Some(&before), later);
    assert_eq!(condition(&same, "Ready").last_transition_time.0, first);
    standing.unwritten = 1;
    let other = status_of(&policy(&json!({})), &standing, &known, Some(&same), later);
    assert_eq!(condition(&other, "Ready").last_transition_time.0, later);
    assert_eq!(condition(&other, "Contested").last_transition_time.0, first);
}

#[test]
fn builds_and_drift_are_counted_and_bounded() {
    let mut standing = Standing {
        nodes: 30,
        ..Standing::default()
    };
    standing.builds.insert(Build::new(17763), 10);
    standing.builds.insert(Build::new(20348), 20);
    standing.unsupported.insert(Build::new(17763), 10);
    for i in 0..30 {
        standing.drift.insert(format!("w{i}"), vec!["y".repeat(5000)]);
    }
    let status = status_of(
        &policy(&json!({})),
        &standing,
        &Known::default(),
        None,
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(status.build_summary.as_deref(), Some("ltsc2019 10, ltsc2022 20"));
    assert_eq!((status.drift.count, status.drift.nodes.len()), (30, Drift::MOST));
    let unsupported = condition(&status, "UnsupportedBuilds");
    assert_eq!(unsupported.status, "True");
    assert!(
        unsupported
            .message
            .contains("10 nodes run 10.0.17763 (Windows Server 2019)")
    );
    // It is not acted upon, so it keeps nothing from being ready.
    assert_eq!(condition(&status, "Ready").status, "True");
}
