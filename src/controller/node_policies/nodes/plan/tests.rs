//! The plan for one node, case by case.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::desired::DesiredLabels;
use super::super::patch::AnnotationChange;
use super::*;
use crate::api::PartMode;
use crate::cluster::node_ownership::{MOST_REVERSALS, PROOF_LABEL};
use crate::model::nodes::node::{BUILD_LABEL, RESTRICTED_BUILD_LABEL};

fn node(kernel: &str) -> NodeView {
    NodeView {
        name: "w1".into(),
        resource_version: "7".into(),
        labels: Arc::new(
            [(OS_LABEL, "windows"), (ARCH_LABEL, "amd64")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
        ),
        operating_system: "windows".into(),
        architecture: "amd64".into(),
        kernel_version: kernel.into(),
        ..NodeView::default()
    }
}

/// The plan if no template selects nodes by a label.
fn plan(node: &NodeView, desired: Option<&DesiredNode>) -> NodePlan {
    super::plan(node, desired, &LabelUse::Unused)
}

fn desired_node() -> DesiredNode {
    DesiredNode {
        policy: "windows".into(),
        generation: 1,
        labels: DesiredLabels {
            kubelet: PartMode::Reconcile,
            node_restriction: PartMode::Reconcile,
        },
        mode: PartMode::Reconcile,
        taints: vec![Taint::no_schedule("os", "windows")],
        approved: [Taint::no_schedule("os", "windows")].into(),
        withdrawn: BTreeSet::new(),
        inherits: false,
    }
}

/// The node as the API server stores it after the plan.
fn after(node: &NodeView, plan: &NodePlan) -> NodeView {
    let mut node = node.clone();
    let labels = Arc::make_mut(&mut node.labels);
    for (key, value) in &plan.labels {
        match value {
            Some(value) => labels.insert((*key).to_owned(), value.clone()),
            None => labels.remove(*key),
        };
    }
    if let Some(taints) = &plan.taints {
        node.taints.clone_from(taints);
    }
    match &plan.annotation {
        AnnotationChange::Stays => {}
        AnnotationChange::Remove => node.owned = None,
        AnnotationChange::Set(text) => node.owned = Some(text.clone().into()),
    }
    node
}

fn stored(taint: &Taint) -> NodeTaint {
    NodeTaint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: taint.effect.clone(),
        time_added: None,
    }
}

fn other_taint(key: &str) -> NodeTaint {
    NodeTaint {
        key: key.into(),
        effect: "NoSchedule".into(),
        ..NodeTaint::default()
    }
}

fn texts(node: &NodeView) -> Vec<String> {
    node.taints
        .iter()
        .map(|taint| taint_of(taint).to_string())
        .collect()
}

#[test]
fn a_build_label_that_is_missing_stale_or_forged_is_corrected() {
    for now in [
        None,
        Some("10.0.17763"),
        Some("windows"),
        Some("x".repeat(63).as_str()),
    ] {
        let mut node = node("10.0.20348.2700");
        Arc::make_mut(&mut node.labels).extend(now.map(|value| (BUILD_LABEL.to_owned(), value.to_owned())));
        let plan = plan(&node, Some(&desired_node()));
        let change = NodeChange::Label {
            key: BUILD_LABEL,
            from: now.map(str::to_owned),
            to: Some("10.0.20348".into()),
        };
        assert!(plan.changes.contains(&change), "{plan:?}");
        let patch = plan.patch(&node).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["metadata"]["labels"][BUILD_LABEL], "10.0.20348");
        assert_eq!(patch["metadata"]["labels"][RESTRICTED_BUILD_LABEL], "10.0.20348");
    }
}

#[test]
fn a_plan_that_was_carried_out_plans_nothing_more() {
    let first = node("10.0.20348.1");
    let second = after(&first, &plan(&first, Some(&desired_node())));
    assert_eq!(texts(&second), ["os=windows:NoSchedule"]);
    assert_eq!(plan(&second, Some(&desired_node())), NodePlan::default());
}

#[test]
fn exactly_what_is_ours_is_taken_back() {
    let mut before = node("10.0.20348.1");
    Arc::make_mut(&mut before.labels).insert(BUILD_LABEL.into(), "10.0.20348".into());
    before.taints = vec![other_taint("a"), other_taint("b")];
    let mut ours = after(&before, &plan(&before, Some(&desired_node())));
    assert_eq!(
        texts(&ours),
        ["a:NoSchedule", "b:NoSchedule", "os=windows:NoSchedule"]
    );
    // Meanwhile another writer adds its own.
    ours.taints.push(other_taint("c"));
    Arc::make_mut(&mut ours.labels).insert("team".into(), "a".into());
    let back = after(&ours, &plan(&ours, None));
    before.taints.push(other_taint("c"));
    Arc::make_mut(&mut before.labels).insert("team".into(), "a".into());
    assert_eq!(back, before);
    assert!(plan(&back, None).is_empty());
}

#[test]
fn the_startup_taint_goes_when_a_node_is_released_and_with_an_uninstall_and_no_other_taint_does() {
    let mut gated = node("10.0.20348.1");
    gated.taints = vec![
        other_taint("a"),
        other_taint(Taint::STARTUP_KEY),
        other_taint("b"),
    ];
    let keep = KeepOptions {
        labels: true,
        taints: true,
    };
    for released in [plan_release(&gated), plan_revert(&gated, keep)] {
        assert_eq!(texts(&after(&gated, &released)), ["a:NoSchedule", "b:NoSchedule"]);
    }
    gated.taints.remove(1);
    assert!(plan_release(&gated).is_empty());
    assert!(
        !Taint::no_schedule(Taint::STARTUP_KEY, "").lasts(),
        "placement ignores it"
    );
}

#[test]
fn what_stood_there_before_us_is_not_ours() {
    let mut before = node("10.0.20348.1");
    Arc::make_mut(&mut before.labels).insert(BUILD_LABEL.into(), "10.0.20348".into());
    Arc::make_mut(&mut before.labels).insert(RESTRICTED_BUILD_LABEL.into(), "10.0.20348".into());
    before.taints = vec![NodeTaint {
        value: Some("windows".into()),
        ..other_taint("os")
    }];
    assert!(plan(&before, Some(&desired_node())).is_empty());
    assert!(plan(&before, None).is_empty());
}

#[test]
fn another_value_of_our_taint_is_reported_and_never_overwritten() {
    let mut node = node("10.0.20348.1");
    node.taints = vec![NodeTaint {
        value: Some("Windows".into()),
        ..other_taint("os")
    }];
    let plan = plan(&node, Some(&desired_node()));
    assert!(plan.taints.is_none());
    assert!(
        plan.remains[0].contains("os=Windows:NoSchedule, which Transom did not set"),
        "{plan:?}"
    );
}

#[test]
fn report_sets_no_taint_and_says_what_is_missing() {
    let desired = DesiredNode {
        mode: PartMode::Audit,
        approved: BTreeSet::new(),
        ..desired_node()
    };
    let plan = plan(&node("10.0.20348.1"), Some(&desired));
    assert!(plan.taints.is_none() && plan.waiting.is_empty());
    assert_eq!(
        plan.remains,
        ["it lacks the taint os=windows:NoSchedule (taints.mode is Audit)"]
    );
}

#[test]
fn a_taint_waits_until_it_affects_no_workload() {
    let desired = DesiredNode {
        approved: BTreeSet::new(),
        ..desired_node()
    };
    let plan = plan(&node("10.0.20348.1"), Some(&desired));
    assert!(plan.taints.is_none());
    assert_eq!(plan.waiting, [Taint::no_schedule("os", "windows")]);
}

#[test]
fn the_facts_of_reviews_expect_the_taints_that_an_approved_plan_writes() {
    let taints = [
        Taint::no_schedule("os", "windows"),
        Taint::no_schedule("os", "other"),
        Taint::no_schedule("sku", ""),
        Taint::no_schedule("node.kubernetes.io/not-ready", ""),
    ];
    let subset = |bits: u32| {
        let chosen = taints
            .iter()
            .enumerate()
            .filter(move |(at, _)| bits & (1 << at) != 0);
        chosen.map(|(_, taint)| taint.clone()).collect::<Vec<_>>()
    };
    let required = vec![taints[0].clone(), taints[3].clone()];
    let desired = DesiredNode {
        taints: required.clone(),
        approved: required.iter().cloned().collect(),
        ..desired_node()
    };
    // Key and effect are unique on a node.
    let present = (0..16).filter(|bits| bits & 3 != 3).map(subset);
    let mut changed = 0;
    for present in present {
        for (ours, reversals, generation) in (0..16).flat_map(|ours| {
            (0..=MOST_REVERSALS).flat_map(move |n| [1, 2].map(|generation| (ours, n, generation)))
        }) {
            let owned = NodeOwnership {
                policy: "windows".into(),
                taints: subset(ours),
                reversals: [("os=windows:NoSchedule".to_owned(), reversals)].into(),
                generation,
                ..NodeOwnership::default()
            };
            let mut node = node("10.0.20348.1");
            node.taints = present.iter().map(stored).collect();
            node.owned = owned.to_annotation().map(Into::into);
            if let Some(proof) = owned.proof() {
                Arc::make_mut(&mut node.labels).insert(PROOF_LABEL.to_owned(), proof);
            }
            let written = plan(&node, Some(&desired)).taints_after(&node);
            let expected = owned.taints_after(&present, &required, "windows", 1);
            assert_eq!(written, expected, "{present:?} {owned:?}");
            changed += usize::from(written != present);
        }
    }
    assert!((300..1500).contains(&changed), "{changed} of 1536");
}

#[test]
fn after_three_reversals_it_is_contested_until_the_policy_changes() {
    let mut desired = desired_node();
    let mut now = node("10.0.20348.1");
    for round in 0..MOST_REVERSALS {
        let plan = plan(&now, Some(&desired));
        assert!(plan.contested.is_empty(), "round {round}");
        now = after(&now, &plan);
        assert_eq!(texts(&now), ["os=windows:NoSchedule"], "round {round}");
        now.taints.clear();
    }
    let given_in = plan(&now, Some(&desired));
    assert_eq!(given_in.contested, desired.taints);
    assert!(given_in.taints.is_none());
    now = after(&now, &given_in);
    // No replica writes anything further.
    let quiet = plan(&now, Some(&desired));
    assert!(quiet.is_empty() && quiet.contested == desired.taints);
    desired.generation = 2;
    now = after(&now, &plan(&now, Some(&desired)));
    assert_eq!(texts(&now), ["os=windows:NoSchedule"]);
    assert!(plan(&now, Some(&desired)).is_empty());
}

#[test]
fn a_taint_that_the_policy_names_no_more_is_taken_back_and_another_value_replaces_it() {
    let first = node("10.0.20348.1");
    let ours = after(&first, &plan(&first, Some(&desired_node())));
    let none = DesiredNode {
        taints: Vec::new(),
        ..desired_node()
    };
    assert_eq!(
        texts(&after(&ours, &plan(&ours, Some(&none)))),
        Vec::<String>::new()
    );
    let other = DesiredNode {
        taints: vec![Taint::no_schedule("os", "Windows")],
        ..desired_node()
    };
    // A clearance for one taint does not apply to another.
    assert!(plan(&ours, Some(&other)).taints.is_none());
    let other = DesiredNode {
        approved: other.taints.iter().cloned().collect(),
        ..other
    };
    assert_eq!(
        texts(&after(&ours, &plan(&ours, Some(&other)))),
        ["os=Windows:NoSchedule"]
    );
    // In Audit mode taints are neither set nor removed.
    let report = DesiredNode {
        mode: PartMode::Audit,
        approved: BTreeSet::new(),
        ..none
    };
    let plan = plan(&ours, Some(&report));
    assert!(plan.taints.is_none() && plan.remains[0].contains("set taints.mode to Reconcile"));
}

#[test]
fn odd_nodes_are_reported_and_not_written() {
    let odd = [
        (
            NodeView {
                operating_system: String::new(),
                ..node("")
            },
            "has not reported",
        ),
        (node(""), "contains no Windows build"),
        (node("5.15.0-1041-azure"), "contains no Windows build"),
        (node("10.0"), "contains no Windows build"),
        (node("10.0.20348.2700\u{7}; rm -rf"), "contains no Windows build"),
        (
            NodeView {
                operating_system: "linux".into(),
                ..node("6.1.0")
            },
            "its kubelet reports \"linux\"",
        ),
    ];
    let desired = DesiredNode {
        taints: Vec::new(),
        ..desired_node()
    };
    for (node, reported) in odd {
        let plan = plan(&node, Some(&desired));
        assert!(plan.is_empty(), "{node:?}");
        assert!(
            plan.remains.iter().any(|text| text.contains(reported)),
            "{reported}: {plan:?}"
        );
    }
    let deleting = NodeView {
        deleting: true,
        ..node("10.0.20348.1")
    };
    assert_eq!(plan(&deleting, Some(&desired)), NodePlan::default());
}

#[test]
fn labels_of_the_kubelet_are_reported_and_not_written() {
    let mut node = node("10.0.20348.1");
    Arc::make_mut(&mut node.labels).insert(OS_LABEL.into(), "linux".into());
    Arc::make_mut(&mut node.labels).remove(ARCH_LABEL);
    let plan = plan(&node, Some(&desired_node()));
    assert!(!plan.labels.contains_key(OS_LABEL) && !plan.labels.contains_key(ARCH_LABEL));
    assert_eq!(plan.remains.len(), 2, "{plan:?}");
}

#[test]
fn a_node_that_is_windows_no_longer_gives_back_what_is_ours() {
    let first = node("10.0.20348.1");
    let mut ours = after(&first, &plan(&first, Some(&desired_node())));
    ours.operating_system = "linux".into();
    let back = after(&ours, &plan(&ours, Some(&desired_node())));
    assert_eq!((back.owned.is_none(), texts(&back).len()), (true, 0));
    assert!(!back.labels.contains_key(RESTRICTED_BUILD_LABEL));
    assert_eq!(
        back.labels.get(BUILD_LABEL).map(String::as_str),
        Some("10.0.20348")
    );
}

#[test]
fn of_an_annotation_of_garbage_only_what_can_be_transoms_alone_is_believed() {
    let mut node = node("10.0.20348.1");
    Arc::make_mut(&mut node.labels).insert(RESTRICTED_BUILD_LABEL.into(), "10.0.20348".into());
    Arc::make_mut(&mut node.labels).insert(BUILD_LABEL.into(), "10.0.20348".into());
    node.taints = vec![NodeTaint {
        value: Some("windows".into()),
        ..other_taint("os")
    }];
    node.owned = Some("{{{".to_owned().into());
    let plan_of_want = plan(&node, Some(&desired_node()));
    let lost = |plan: &NodePlan| matches!(plan.changes.last(), Some(NodeChange::AnnotationLost(_)));
    assert!(
        lost(&plan_of_want) && plan_of_want.changes.len() == 1,
        "{plan_of_want:?}"
    );
    let fixed = after(&node, &plan_of_want);
    assert_eq!((&fixed.taints, &fixed.labels), (&node.taints, &node.labels));
    // No kubelet can write the mirror label, and its value is the one Transom writes: it is still Transom's.
    let owned = fixed.ownership().unwrap();
    assert_eq!((owned.labels.len(), owned.taints.len()), (1, 0), "{owned:?}");
    assert!(owned.labels.contains_key(RESTRICTED_BUILD_LABEL));
    for plan in [
        plan(&node, None),
        plan(&fixed, None),
        plan_revert(&node, KeepOptions::default()),
    ] {
        let left = after(&node, &plan);
        assert!(!left.labels.contains_key(RESTRICTED_BUILD_LABEL), "{plan:?}");
        assert_eq!((left.owned, &left.taints), (None, &node.taints));
        assert_eq!(left.labels[BUILD_LABEL], "10.0.20348");
    }
    // A value that another writer has put there instead is not Transom's.
    Arc::make_mut(&mut node.labels).insert(RESTRICTED_BUILD_LABEL.into(), "10.0.17763".into());
    let left = after(&node, &plan(&node, None));
    assert_eq!((left.owned, left.labels), (None, node.labels));
}

#[test]
fn a_forged_annotation_takes_away_no_taint_of_another_writer() {
    let dedicated = NodeTaint {
        value: Some("db".into()),
        ..other_taint("dedicated")
    };
    let forged = NodeOwnership {
        policy: "windows".into(),
        taints: vec![Taint::no_schedule("dedicated", "db")],
        ..NodeOwnership::default()
    };
    let windows = node("10.0.20348.1");
    let mut linux = node("6.1.0");
    linux.operating_system = "linux".into();
    Arc::make_mut(&mut linux.labels).insert(OS_LABEL.into(), "linux".into());
    // The proof of what Transom owns does not prove anything else.
    let ours = after(&windows, &plan(&windows, Some(&desired_node())));
    for mut node in [linux, windows, ours] {
        let others = texts(&node);
        node.taints.push(dedicated.clone());
        node.owned = forged.to_annotation().map(Into::into);
        for desired in [Some(desired_node()), None] {
            let plan = plan(&node, desired.as_ref());
            let left = after(&node, &plan);
            assert!(left.taints.contains(&dedicated), "{plan:?}");
            assert!(
                others.iter().all(|taint| texts(&left).contains(taint)),
                "{plan:?}"
            );
            assert!(
                left.owned.is_none_or(|owned| !owned.text.contains("dedicated")),
                "{plan:?}"
            );
            assert!(
                matches!(plan.changes.last(), Some(NodeChange::AnnotationLost(_))),
                "{plan:?}"
            );
        }
        assert!(
            after(&node, &plan_revert(&node, KeepOptions::default()))
                .taints
                .contains(&dedicated)
        );
    }
}

#[test]
fn the_proof_is_written_with_the_taints_and_goes_with_them() {
    let first = node("10.0.20348.1");
    let plan_of_first = plan(&first, Some(&desired_node()));
    let patch = plan_of_first.patch(&first).unwrap();
    assert!(patch["metadata"]["labels"][PROOF_LABEL].is_string(), "{patch}");
    let ours = after(&first, &plan_of_first);
    assert!(!after(&ours, &plan(&ours, None)).labels.contains_key(PROOF_LABEL));
    // A proof that no longer matches is removed too, so that it cannot be reused later.
    let mut robbed = ours.clone();
    robbed.owned = None;
    for plan in [
        plan(&robbed, Some(&desired_node())),
        plan_revert(&robbed, KeepOptions::default()),
    ] {
        let left = after(&robbed, &plan);
        assert_eq!(
            (texts(&left), left.labels.contains_key(PROOF_LABEL)),
            (texts(&ours), false)
        );
    }
}

#[test]
fn five_hundred_taints_of_others_stay_in_their_order() {
    let mut node = node("10.0.20348.1");
    node.taints = (0..500).map(|i| other_taint(&format!("t{i}"))).collect();
    let with = after(&node, &plan(&node, Some(&desired_node())));
    assert_eq!((with.taints.len(), &with.taints[..500]), (501, &node.taints[..]));
    assert_eq!(after(&with, &plan(&with, None)).taints, node.taints);
}

#[test]
fn a_mirror_that_the_policy_wants_no_more_goes_and_the_build_label_stays() {
    let first = node("10.0.20348.1");
    let ours = after(&first, &plan(&first, Some(&desired_node())));
    let desired = DesiredNode {
        labels: DesiredLabels {
            kubelet: PartMode::Disabled,
            node_restriction: PartMode::Disabled,
        },
        ..desired_node()
    };
    let less = after(&ours, &plan(&ours, Some(&desired)));
    assert!(!less.labels.contains_key(RESTRICTED_BUILD_LABEL) && less.labels.contains_key(BUILD_LABEL));
    assert!(plan(&less, Some(&desired)).is_empty());
}

#[test]
fn a_label_that_is_only_audited_is_reported_and_neither_written_nor_removed() {
    let audits = DesiredNode {
        labels: DesiredLabels {
            kubelet: PartMode::Audit,
            node_restriction: PartMode::Audit,
        },
        mode: PartMode::Audit,
        ..desired_node()
    };
    let mut bare = node("10.0.20348.1");
    Arc::make_mut(&mut bare.labels).insert(BUILD_LABEL.to_owned(), "10.0.17763".to_owned());
    let reported = plan(&bare, Some(&audits));
    assert!(reported.is_empty(), "{reported:?}");
    assert_eq!(
        reported.remains[..2],
        [
            "its label node.kubernetes.io/windows-build is \"10.0.17763\" instead of \"10.0.20348\" (labels.kubelet.mode is \
             Audit)",
            "it lacks the label transom.dev.node-restriction.kubernetes.io/windows-build=10.0.20348 (labels.nodeRestriction.mode \
             is Audit)"
        ]
    );
    // What was written before stays, and stays Transom's.
    let written = after(&bare, &plan(&bare, Some(&desired_node())));
    let audited = after(&written, &plan(&written, Some(&audits)));
    assert_eq!(audited.labels, written.labels);
    let removed = after(&audited, &plan(&audited, None));
    assert!(!removed.labels.contains_key(RESTRICTED_BUILD_LABEL));
}

#[test]
fn protected_taints_are_never_set() {
    let desired = DesiredNode {
        taints: vec![Taint::no_schedule("node.kubernetes.io/unschedulable", "")],
        ..desired_node()
    };
    let plan = plan(&node("10.0.20348.1"), Some(&desired));
    assert!(plan.taints.is_none() && plan.remains[0].contains("belongs to Kubernetes"));
}

#[test]
fn the_mirror_of_the_build_label_stays_and_stays_ours_while_a_template_selects_by_it() {
    let ours = after(
        &node("10.0.20348.1"),
        &plan(&node("10.0.20348.1"), Some(&desired_node())),
    );
    let in_use = LabelUse::Stays("DaemonSet shop/agent select nodes by it".to_owned());
    let mut unmanaged = desired_node();
    unmanaged.labels.node_restriction = PartMode::Disabled;
    for desired in [None, Some(&unmanaged)] {
        let kept = super::plan(&ours, desired, &in_use);
        assert!(kept.keeps_label, "{kept:?}");
        assert!(
            kept.remains[0].contains("stays, because DaemonSet shop/agent"),
            "{kept:?}"
        );
        let kept = after(&ours, &kept);
        assert_eq!(kept.labels[RESTRICTED_BUILD_LABEL], "10.0.20348");
        assert_eq!(texts(&kept).is_empty(), desired.is_none(), "only the label stays");
        assert_eq!(super::plan(&kept, desired, &in_use).changes, []);
        // It is removed when nothing selects by it any longer.
        let gone = plan(&kept, desired);
        assert!(!gone.keeps_label);
        assert!(!after(&kept, &gone).labels.contains_key(RESTRICTED_BUILD_LABEL));
    }
    // A node that is not a Windows node any longer must not have it.
    let mut linux = ours;
    linux.operating_system = "linux".into();
    for desired in [None, Some(&unmanaged)] {
        let gone = super::plan(&linux, desired, &in_use);
        assert!(!after(&linux, &gone).labels.contains_key(RESTRICTED_BUILD_LABEL));
    }
}

#[test]
fn a_taint_that_keeps_workloads_off_is_removed_if_it_is_ours_and_is_no_reversal() {
    let set = after(
        &node("10.0.20348.1"),
        &plan(&node("10.0.20348.1"), Some(&desired_node())),
    );
    let os = Taint::no_schedule("os", "windows");
    assert_eq!(set.taints().as_slice(), std::slice::from_ref(&os));
    let withdrawing = DesiredNode {
        approved: BTreeSet::new(),
        withdrawn: [os.clone()].into(),
        ..desired_node()
    };
    let removal = plan(&set, Some(&withdrawing));
    assert!(
        removal.changes.contains(&NodeChange::TaintWithdrawn(os.clone())),
        "{removal:?}"
    );
    let open = after(&set, &removal);
    assert_eq!((open.taints.len(), open.claimed().taints.len()), (0, 0));
    let waiting = plan(&open, Some(&withdrawing));
    assert_eq!(
        (waiting.waiting, open.claimed().reversals.len()),
        (vec![os.clone()], 0)
    );
    // A policy that only audits removes nothing, and another writer's taint stays.
    let audit = DesiredNode {
        mode: PartMode::Audit,
        ..withdrawing.clone()
    };
    assert!(plan(&set, Some(&audit)).taints.is_none());
    let mut foreign = node("10.0.20348.1");
    foreign.taints.clone_from(&set.taints);
    assert!(plan(&foreign, Some(&withdrawing)).taints.is_none());
    // The one that an older version of the policy required does not wait for its successor.
    let changed = DesiredNode {
        taints: vec![Taint::no_schedule("os", "win")],
        ..withdrawing
    };
    assert!(
        plan(&set, Some(&changed))
            .taints
            .is_some_and(|taints| taints.is_empty())
    );
}
