use super::super::state::DisruptionBudget;
use super::super::tests::{owner, pod, ready, rules, state};
use super::*;
use crate::model::objects::label_selector::LabelSelector;
use crate::model::objects::workload::Kind;

#[test]
fn pods_are_classified_as_by_kubectl_drain() {
    let strict = DrainRules {
        ignore_daemonsets: false,
        delete_emptydir_data: false,
        force: false,
        ..rules()
    };
    let selecting = DrainRules {
        pod_selector: Some(LabelSelector {
            match_labels: [("app".to_owned(), "other".to_owned())].into(),
            ..LabelSelector::default()
        }),
        ..rules()
    };
    let of = |change: &dyn Fn(&mut DrainPod)| {
        let mut pod = pod("a", "web");
        change(&mut pod);
        [&strict, &rules(), &selecting].map(|rules| classify(&pod, rules))
    };
    let daemon = |pod: &mut DrainPod| {
        pod.owner = Some(WorkloadName::of(Kind::DaemonSet, "shop", "agent"));
    };
    let (evict, ignore) = (PodClass::Evict, PodClass::Ignore);
    for (name, pod, expected) in [
        ("a replica", of(&|_| ()), [evict, evict, ignore]),
        ("static", of(&|pod| pod.is_mirror = true), [ignore; 3]),
        (
            "of a DaemonSet",
            of(&daemon),
            [PodClass::Refuse(RefusedPods::DaemonSet), ignore, ignore],
        ),
        (
            "with an emptyDir",
            of(&|pod| pod.has_empty_dir = true),
            [PodClass::Refuse(RefusedPods::LocalData), evict, ignore],
        ),
        (
            "without a controller",
            of(&|pod| pod.owner = None),
            [PodClass::Refuse(RefusedPods::NoController), evict, ignore],
        ),
        (
            "finished, with an emptyDir and without a controller",
            of(&|pod| (pod.owner, pod.has_empty_dir, pod.has_ended) = (None, true, true)),
            [evict, evict, ignore],
        ),
    ] {
        assert_eq!(pod, expected, "{name}");
    }
}

#[test]
fn what_has_an_outage_is_named_with_its_causes() {
    let budget = |name: &str, app: &str, is_zero| DisruptionBudget {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        selector: Some(LabelSelector {
            match_labels: [("app".to_owned(), app.to_owned())].into(),
            ..LabelSelector::default()
        }),
        allowed: 1,
        desired_healthy: 1,
        is_zero,
        failure: None,
    };
    let mut pods: Vec<DrainPod> = ["one", "zero", "both", "disk", "pinned", "fine"]
        .map(|app| ready(&format!("{app}-1"), app, "old-1"))
        .into();
    pods[3].claims.push("data".to_owned());
    pods.push(DrainPod {
        owner: None,
        ..ready("bare", "bare", "old-2")
    });
    pods.push(ready("elsewhere", "elsewhere", "new-1"));
    let desired = [
        ("one", 1),
        ("zero", 3),
        ("both", 3),
        ("disk", 3),
        ("pinned", 3),
        ("fine", 3),
        ("elsewhere", 1),
    ];
    let mut state = state(pods, &desired);
    state.budgets = vec![
        budget("never", "zero", true),
        budget("first", "both", false),
        budget("second", "both", false),
        budget("some", "fine", false),
    ];
    state.node_claims.insert(("shop".to_owned(), "data".to_owned()));
    state
        .cannot_move
        .insert(owner("pinned"), "it requires agentpool=old".to_owned());
    let found: Vec<(String, OutageCause)> = outages(&state, &rules())
        .into_iter()
        .map(|outage| (outage.workload, outage.cause))
        .collect();
    let of = |name: &str, cause| (format!("Deployment shop/{name}"), cause);
    assert_eq!(
        found,
        [
            of("both", OutageCause::SeveralBudgets),
            of("disk", OutageCause::NodeVolume),
            of("one", OutageCause::OneReplica),
            of("pinned", OutageCause::CannotMove),
            of("zero", OutageCause::ZeroBudget),
            ("Pod shop/bare".to_owned(), OutageCause::NoController),
        ]
    );
}

#[test]
fn the_pods_of_a_job_are_no_replicas() {
    let job = DrainPod {
        is_replica: false,
        owner: Some(WorkloadName::of(Kind::Job, "shop", "import")),
        ..ready("import-1", "import", "old-1")
    };
    let mut state = state(vec![job], &[]);
    state
        .desired
        .extend(state.pods[0].owner.clone().map(|owner| (owner, 1)));
    assert_eq!(outages(&state, &rules()), []);
}
