//! The controllers of custom resources, and who only looks like one.

use super::*;
use crate::cluster::environment::Account;

fn running(name: &str, namespace: &str, image: &str, account: &str) -> (Kind, Value) {
    let spec = json!({"serviceAccountName": account, "containers": [{"name": "c", "image": image}]});
    let metadata = json!({"name": name, "namespace": namespace});
    (
        Kind::Deployment,
        json!({"metadata": metadata, "spec": {"template": {"spec": spec}}}),
    )
}

fn account(namespace: &str, name: &str) -> Account {
    Account {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// The report of a cluster that serves these kinds, in which these accounts may create everything everywhere.
fn report_of(kinds: &[Kind], objects: &[(Kind, Value)], admins: &[Account]) -> Preflight {
    let world = PreflightCluster::of(&[("w1", "windows", "10.0.20348.1", &[mark()])]);
    let custom = CustomLists {
        kinds: kinds
            .iter()
            .map(|kind| (*kind, format!("/apis/{}", kind.group())))
            .collect(),
        unknown: Vec::new(),
    };
    world.report_with(&custom, objects, |workloads| {
        let questions = workloads.controllers.questions();
        let answers = questions.into_keys().map(|(account, created)| {
            let is_allowed = admins.contains(&account);
            ((account, created), is_allowed)
        });
        let answers = answers.collect();
        workloads.controllers.answer(answers, None);
    })
}

#[test]
fn the_account_of_a_controller_is_proposed_for_its_kinds_and_a_look_alike_is_not() {
    let objects = [
        running(
            "argo-rollouts",
            "argo-rollouts",
            "quay.io/argoproj/argo-rollouts:v1.8.0",
            "argo-rollouts",
        ),
        running(
            "argo-rollouts",
            "team",
            "quay.io/argoproj/argo-rollouts:v1.8.0",
            "argo-rollouts",
        ),
        running(
            "kruise",
            "kruise-system",
            "openkruise/kruise-manager:v1.7.0",
            "kruise-manager",
        ),
        running(
            "keda-operator",
            "keda",
            "ghcr.io/kedacore/keda:2.16.0",
            "keda-operator",
        ),
        running("jenkins", "ci", "jenkins/jenkins:lts", "jenkins"),
    ];
    let admins = [
        account("argo-rollouts", "argo-rollouts"),
        account("kruise-system", "kruise-manager"),
        account("keda", "keda-operator"),
        account("ci", "jenkins"),
    ];
    // The cluster does not serve ScaledJobs.
    let kinds = [Kind::Rollout, Kind::CloneSet, Kind::AdvancedDaemonSet];
    let report = report_of(&kinds, &objects, &admins);
    assert_eq!(
        report.values.json()["cluster"]["controllers"],
        json!([
            {"username": "system:serviceaccount:argo-rollouts:argo-rollouts", "kinds": ["Rollout.argoproj.io"]},
            {"username": "system:serviceaccount:kruise-system:kruise-manager",
                "kinds": ["CloneSet.apps.kruise.io", "DaemonSet.apps.kruise.io"]},
        ])
    );
    let confirm = finding(
        &report,
        "until you confirm it as the controller of Rollout.argoproj.io",
    );
    assert_eq!(confirm.status, FindingStatus::ActionRequired);
    let alike = finding(
        &report,
        "system:serviceaccount:team:argo-rollouts, which may not create the objects of Rollout",
    );
    assert_eq!(alike.evidence, ["Deployment team/argo-rollouts"]);
    assert_eq!(
        finding(&report, "Jenkins runs as system:serviceaccount:ci:jenkins").status,
        FindingStatus::Ok
    );
}

#[test]
fn windows_workloads_of_a_kind_without_a_known_controller_are_counted_with_those_whose_next_rollout_is_denied()
 {
    let windows = json!({"kubernetes.io/os": "windows"});
    let mut bad = workload(&json!({"nodeSelector": windows, "hostPID": true}));
    bad["metadata"]["name"] = "bad".into();
    let objects = [
        (Kind::Rollout, workload(&json!({"nodeSelector": windows}))),
        (Kind::Rollout, bad),
    ];
    let report = report_of(&[Kind::Rollout], &objects, &[]);
    let denied: Vec<String> = report.denied.iter().map(DeniedWorkload::title).collect();
    assert_eq!(denied, ["Rollout shop/bad"]);
    let unknown = finding(
        &report,
        "the controller of 2 Windows workloads of kind Rollout.argoproj.io is not known",
    );
    assert!(
        unknown
            .message
            .ends_with("the next rollouts or runs of 1 of them are denied"),
        "{}",
        unknown.message
    );
    assert!(report.values.json()["cluster"]["controllers"].is_null());
}
