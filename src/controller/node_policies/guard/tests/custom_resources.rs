//! Custom resources that describe pods: their controllers read their templates, so they are evaluated like workloads.

use super::*;
use crate::model::objects::workload::configured::PodTemplateKind;

fn kruise(spec: Value) -> (Kind, Value) {
    let (_, object) = template(Kind::DaemonSet, "placed", "agent", spec);
    (Kind::AdvancedDaemonSet, object)
}

/// The affected workloads in a cluster that has these custom resources.
fn affected_with(kinds: &[Kind], objects: &[(Kind, Value)]) -> Vec<String> {
    let view = ClusterCache {
        nodes: [windows_node("win1", "10.0.20348.1")].into(),
        ..ClusterCache::default()
    };
    let survey = WorkloadSurvey::listing_custom(kinds.iter().copied());
    let on = (&["win1"][..], &[][..]);
    lines(affected_in(&built_in, &taints(), on, &view, &survey, objects))
}

#[test]
fn a_daemonset_of_openkruise_is_evaluated_like_a_daemonset() {
    let runs = |name: &str| {
        let pod = pod("placed", name, windows(json!({})), "win1");
        owned_by(pod, "DaemonSet", "agent", "apps.kruise.io/v1alpha1")
    };
    let found = affected_with(
        &[Kind::AdvancedDaemonSet],
        &[kruise(windows(json!({}))), runs("agent-1")],
    );
    let expected =
        "DaemonSet.apps.kruise.io placed/agent (its template does not tolerate os=windows:NoSchedule)";
    assert_eq!(found, [expected]);
    let good = [kruise(windows(tolerating())), runs("agent-1")];
    assert_eq!(affected_with(&[Kind::AdvancedDaemonSet], &good), [""; 0]);
}

#[test]
fn what_has_created_no_pod_yet_counts_where_placement_does_not_apply() {
    let meta = |name: &str| json!({"namespace": "bare", "name": name});
    let spec = || windows(json!({}));
    let cron_workflow = json!({"metadata": meta("cron"), "spec": {"workflowSpec": {"entrypoint": "main",
        "templates": [
            {"name": "lin", "container": {"name": "c", "image": "x"}, "nodeSelector": {"kubernetes.io/os": "linux"}},
            {"name": "win", "container": {"name": "c", "image": "x"}, "nodeSelector": {"kubernetes.io/os": "windows"}}]}}});
    let rollout = json!({"metadata": meta("roll"), "spec": {"replicas": 0, "template": {"spec": spec()}}});
    let scaled_job =
        json!({"metadata": meta("scaled"), "spec": {"jobTargetRef": {"template": {"spec": spec()}}}});
    let objects = [
        (Kind::CronWorkflow, cron_workflow),
        (Kind::Rollout, rollout),
        (Kind::ScaledJob, scaled_job),
    ];
    let kinds = [Kind::CronWorkflow, Kind::Rollout, Kind::ScaledJob];
    let found = affected_with(&kinds, &objects);
    assert_eq!(
        found,
        [
            "CronWorkflow.argoproj.io bare/cron (its template does not tolerate os=windows:NoSchedule)",
            "Rollout.argoproj.io bare/roll (its template does not tolerate os=windows:NoSchedule)",
            "ScaledJob.keda.sh bare/scaled (its template does not tolerate os=windows:NoSchedule)",
        ]
    );
    // Placement lets the pods tolerate the taint.
    let placed: Vec<_> = objects
        .into_iter()
        .map(|(kind, mut object)| {
            object["metadata"]["namespace"] = json!("placed");
            (kind, object)
        })
        .collect();
    assert_eq!(affected_with(&kinds, &placed), [""; 0]);
}

#[test]
fn what_a_custom_resource_made_is_named_by_it_only_if_it_is_read() {
    let set = owned_by(
        template(Kind::ReplicaSet, "bare", "roll-1", windows(json!({}))),
        "Rollout",
        "roll",
        "argoproj.io/v1alpha1",
    );
    let (_, rollout) = template(Kind::Deployment, "bare", "roll", windows(json!({})));
    let objects = [(Kind::Rollout, rollout), set.clone()];
    let named = |found: Vec<String>| -> Vec<String> {
        let names = found
            .iter()
            .map(|text| text.split(" (").next().unwrap().to_owned());
        names.collect()
    };
    assert_eq!(
        named(affected_with(&[Kind::Rollout], &objects)),
        ["Rollout.argoproj.io bare/roll"]
    );
    assert_eq!(named(affected_with(&[], &[set])), ["ReplicaSet bare/roll-1"]);
}

#[test]
fn a_run_that_has_ended_and_a_task_that_selects_no_nodes_do_not_count() {
    let container = json!({"name": "c", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"});
    let workflow = |phase: &str| {
        let object = json!({"metadata": {"namespace": "bare", "name": "run"}, "status": {"phase": phase},
            "spec": {"templates": [{"name": "a", "container": container}]}});
        (Kind::Workflow, object)
    };
    let task = json!({"metadata": {"namespace": "bare", "name": "task"}, "spec": {"steps": [container]}});
    let kinds = [Kind::Workflow, Kind::Task];
    assert_eq!(affected_with(&kinds, &[workflow("Running")]).len(), 1);
    assert_eq!(
        affected_with(&kinds, &[workflow("Succeeded"), (Kind::Task, task)]),
        [""; 0]
    );
}

#[test]
fn a_custom_resource_that_cannot_be_read_is_named_and_does_not_keep_taints_off_nodes_that_join() {
    let odd = json!({"metadata": {"namespace": "shop", "name": "odd"}, "spec": {"template": {"spec": {"containers": 7}}}});
    let objects = [(Kind::Rollout, odd)];
    let found = affected_with(&[Kind::Rollout], &objects);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("Rollout.argoproj.io shop/odd (cannot be read: "),
        "{found:?}"
    );
    let survey = WorkloadSurvey::listing_custom([Kind::Rollout]);
    let on = (&[][..], &["w22"][..]);
    let joining = affected_in(&built_in, &taints(), on, &two_builds(), &survey, &objects);
    assert_eq!(lines(joining), [""; 0]);
}

#[test]
fn a_kind_that_administrators_add_counts_where_it_describes_a_pod() {
    let entry = PodTemplateKind::parse("example.com/GameServerSet=spec.template").unwrap();
    let kind = Kind::Configured(entry.configured().unwrap());
    let view = ClusterCache {
        nodes: [windows_node("win1", "10.0.20348.1")].into(),
        ..ClusterCache::default()
    };
    let survey = WorkloadSurvey::listing_custom([kind]);
    let of = |namespace: &str, spec: Value| {
        let meta = json!({"namespace": namespace, "name": "arena"});
        (kind, json!({"metadata": meta, "spec": spec}))
    };
    let set = |namespace: &str| of(namespace, json!({"template": {"spec": windows(json!({}))}}));
    let objects = [set("games"), of("games", json!({}))];
    let on = (&["win1"][..], &[][..]);
    let found = lines(affected_in(&built_in, &taints(), on, &view, &survey, &objects));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("GameServerSet.example.com games/arena"),
        "{found:?}"
    );
}
