//! The status of a node policy.

use super::*;
use crate::cluster::node::NodeView;
use crate::cluster::node_ownership::NodeOwnership;
use crate::cluster::stored_node_policies::NodePolicies;
use crate::controller::node_policies::node_state::{NodePlans, NodesByPolicy, PolicyResolver};
use crate::model::cluster::facts::Facts;
use crate::model::knowledge::{FaultField, NodeFault};
use crate::model::nodes::network_plugin::NetworkPlugin;
use crate::model::nodes::node::Taint;
use crate::model::windows::build::Build;
use jiff::civil::date;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use std::sync::Arc;

fn policy(spec: &serde_json::Value) -> NodePolicy {
    let stored = json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
        "metadata": {"name": "windows", "generation": 4}, "spec": crate::api::reconciling(&serde_json::json!(spec)),
    });
    NodePolicy::of(&Arc::new(serde_json::from_value(stored).unwrap())).unwrap()
}

fn condition<'s>(status: &'s WindowsNodePolicyStatus, kind: &str) -> &'s Condition {
    status.conditions.iter().find(|c| c.type_ == kind).unwrap()
}

fn assess(nodes: &[Arc<NodeView>], resolver: &PolicyResolver) -> NodesByPolicy {
    let facts = Facts::new(36, date(2026, 6, 1));
    NodePlans::of(nodes, resolver).assess(&resolver.policies, &facts)
}

fn ready(standing: &NodesOfPolicy, known: &PolicyFacts) -> (String, String) {
    let status = status_of(&policy(&json!({})), standing, known, None, Timestamp::UNIX_EPOCH);
    let ready = condition(&status, "Ready");
    (ready.status.clone(), ready.reason.clone())
}

#[test]
fn nodes_whose_pool_nothing_names_are_named_without_affecting_ready() {
    let known = PolicyFacts {
        undeclared: ["w1".to_owned(), "w2".to_owned()].into(),
        ..PolicyFacts::default()
    };
    for (known, is_reported) in [(&PolicyFacts::default(), false), (&known, true)] {
        let of = status_of(
            &policy(&json!({})),
            &NodesOfPolicy::default(),
            known,
            None,
            Timestamp::UNIX_EPOCH,
        );
        let undeclared = of.conditions.iter().find(|c| c.type_ == "UndeclaredPools");
        assert_eq!(undeclared.is_some(), is_reported);
        if let Some(undeclared) = undeclared {
            assert_eq!(
                (&*undeclared.status, &*undeclared.reason),
                ("True", "NoPoolLabel")
            );
            assert!(
                undeclared.message.contains("2 Windows nodes (w1, w2)"),
                "{undeclared:?}"
            );
        }
        assert_eq!(condition(&of, "Ready").status, "True");
    }
}

#[test]
fn daemon_sets_that_a_taint_would_deny_are_named_in_every_mode_without_affecting_ready() {
    let known = PolicyFacts {
        untolerating: ["shop/agent (os=windows:NoSchedule)".to_owned()].into(),
        ..PolicyFacts::default()
    };
    for mode in ["Audit", "Reconcile"] {
        let policy = policy(&json!({"taints": {"mode": mode}}));
        for (known, is_reported) in [(&PolicyFacts::default(), false), (&known, true)] {
            let of = status_of(
                &policy,
                &NodesOfPolicy::default(),
                known,
                None,
                Timestamp::UNIX_EPOCH,
            );
            let mut conditions = of.conditions.iter();
            let untolerating = conditions.find(|c| c.type_ == "DaemonSetsUntolerating");
            assert_eq!(untolerating.is_some(), is_reported);
            if let Some(untolerating) = untolerating {
                assert_eq!(
                    (&*untolerating.status, &*untolerating.reason),
                    ("True", "TaintsNotTolerated")
                );
                let denied = "1 Windows DaemonSet would be denied (TSM701)";
                assert!(untolerating.message.contains(denied), "{untolerating:?}");
            }
            assert_eq!(condition(&of, "Ready").status, "True");
        }
    }
}

#[test]
fn new_nodes_are_counted_and_images_that_fail_are_named_without_affecting_ready() {
    let failed = FailedImage {
        node: "w1".to_owned(),
        image: "app:1".to_owned(),
        message: "denied".to_owned(),
    };
    let startup = StartupOfPolicy {
        starting: 2,
        warm: 1,
        ..StartupOfPolicy::default()
    };
    let cases = [
        (StartupOfPolicy::default(), "True", "ImagesReady", None),
        (startup.clone(), "False", "NodesStarting", None),
        (
            StartupOfPolicy {
                late: 1,
                ..startup.clone()
            },
            "False",
            "ImagesLate",
            Some("1 node got"),
        ),
        (
            StartupOfPolicy {
                failed: [failed].into(),
                ..startup.clone()
            },
            "False",
            "ImagePullFailed",
            Some("app:1 cannot be pulled on node w1: denied"),
        ),
        (
            StartupOfPolicy {
                problem: Some(("PullerNotAllowed", "no".to_owned())),
                ..startup
            },
            "False",
            "PullerNotAllowed",
            Some("no"),
        ),
    ];
    for (startup, holds, reason, message) in cases {
        let known = PolicyFacts {
            startup: Some(startup.clone()),
            ..PolicyFacts::default()
        };
        let nodes = NodesOfPolicy::default();
        let status = status_of(&policy(&json!({})), &nodes, &known, None, Timestamp::UNIX_EPOCH);
        let ready = condition(&status, "ImagesReady");
        assert_eq!((&*ready.status, &*ready.reason), (holds, reason));
        assert_eq!(condition(&status, "Ready").status, "True");
        let shown = status.message.as_deref();
        assert_eq!(shown.is_some(), message.is_some(), "{shown:?}");
        assert!(
            shown.unwrap_or_default().contains(message.unwrap_or_default()),
            "{shown:?}"
        );
        let counts = status.startup.unwrap();
        assert_eq!(counts.starting, i32::try_from(startup.starting).unwrap());
        assert_eq!(counts.failed.len(), startup.failed.len());
    }
    let without = status_of(
        &policy(&json!({})),
        &NodesOfPolicy::default(),
        &PolicyFacts::default(),
        None,
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(without.startup, None);
    assert!(
        without
            .conditions
            .iter()
            .all(|condition| condition.type_ != "ImagesReady")
    );
}

#[test]
fn ready_says_the_most_urgent_problem() {
    let text = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    let mut standing = NodesOfPolicy::default();
    let mut known = PolicyFacts::default();
    assert_eq!(ready(&standing, &known), text("True", "NoNodesSelected"));
    standing.nodes = 2;
    assert_eq!(ready(&standing, &known), text("True", "Ready"));
    standing.drift.insert("w1".into(), vec!["x".into()]);
    assert_eq!(ready(&standing, &known), text("True", "Drifted"));
    standing.unwritten = 1;
    assert_eq!(ready(&standing, &known), text("False", "Reconciling"));
    known
        .failures
        .insert("w1".into(), ApiError::Other("refused".into()));
    assert_eq!(ready(&standing, &known), text("False", "WriteFailed"));
    standing
        .contested
        .insert("w1".into(), vec![Taint::no_schedule("os", "windows")]);
    assert_eq!(ready(&standing, &known), text("False", "Conflicted"));
    let nodes = (1..=5).map(|number| format!("w{number}")).collect();
    standing.held.insert("gpu".into(), nodes);
    assert_eq!(ready(&standing, &known), text("False", "BlockedByInvalidPolicy"));
    let status = status_of(
        &policy(&json!({})),
        &standing,
        &known,
        None,
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(
        status.message.as_deref(),
        Some(
            "gpu may select 5 nodes that this policy selects (w1, w2, w3 and 2 more) and cannot be read: nothing is set and \
             nothing is removed there; correct gpu, or delete it"
        )
    );
}

#[test]
fn nodes_that_wait_for_a_policy_are_counted_and_named_by_the_policy_that_holds_them() {
    let stored = |name: &str, spec: serde_json::Value| {
        let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
            "metadata": {"name": name, "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!(spec))});
        (name.to_owned(), Arc::new(serde_json::from_value(policy).unwrap()))
    };
    let typo = json!({"priority": 1, "nodeSelector": {"matchLabels": {"Example.com/pool": "gpu"}}});
    let gpu = json!({"priority": 2, "nodeSelector": {"matchLabels": {"pool": "gpu"}}});
    let resolver = PolicyResolver {
        policies: NodePolicies::of(
            &[stored("all", json!({})), stored("gpu", gpu), stored("typo", typo)].into(),
        ),
        ..PolicyResolver::default()
    };
    let node = |name: &str, pool: &str, owner: Option<&str>| {
        let owned = owner.map(|owner| json!({"policy": owner}).to_string().into());
        Arc::new(NodeView {
            name: name.into(),
            operating_system: "windows".into(),
            kernel_version: "10.0.20348.1".into(),
            labels: Arc::new([("pool".to_owned(), pool.to_owned())].into()),
            owned,
            ..NodeView::default()
        })
    };
    let nodes = [
        node("old", "app", Some("all")),
        node("new", "app", None),
        node("gpu", "gpu", None),
    ];
    let due = NodePlans::of(&nodes, &resolver).due();
    let by_policy = assess(&nodes, &resolver);
    assert_eq!((by_policy["all"].nodes, by_policy["gpu"].nodes), (1, 1));
    let held = &by_policy["all"].held;
    assert_eq!(*held, [("typo".to_owned(), ["new".to_owned()].into())].into());
    assert!(by_policy["gpu"].held.is_empty() && by_policy["typo"].held.is_empty());
    let due: Vec<&str> = due.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(
        due,
        ["old", "gpu"],
        "a node with nothing of Transom's gets nothing"
    );
}

#[test]
fn times_change_only_with_the_status() {
    let (first, later) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
    let mut standing = NodesOfPolicy::default();
    let known = PolicyFacts::default();
    let before = status_of(&policy(&json!({})), &standing, &known, None, first);
    standing.nodes = 1;
    let same = status_of(&policy(&json!({})), &standing, &known, Some(&before), later);
    assert_eq!(condition(&same, "Ready").last_transition_time.0, first);
    standing.unwritten = 1;
    let other = status_of(&policy(&json!({})), &standing, &known, Some(&same), later);
    assert_eq!(condition(&other, "Ready").last_transition_time.0, later);
    assert_eq!(condition(&other, "Accepted").last_transition_time.0, first);
}

#[test]
fn builds_and_drift_are_counted_and_bounded() {
    let mut standing = NodesOfPolicy {
        nodes: 30,
        ..NodesOfPolicy::default()
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
        &PolicyFacts::default(),
        None,
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(status.build_summary.as_deref(), Some("ltsc2019 10, ltsc2022 20"));
    assert_eq!(
        (status.drifted_node_count, status.drifted_nodes.len()),
        (30, WindowsNodePolicyStatus::MOST_DRIFTED)
    );
    let unsupported = condition(&status, "UnsupportedBuilds");
    assert_eq!(unsupported.status, "True");
    assert!(
        unsupported
            .message
            .contains("10 nodes run 10.0.17763 (Windows Server 2019)")
    );
    // Transom does not act on it, so it does not affect `Ready`.
    assert_eq!(condition(&status, "Ready").status, "True");
}

#[test]
fn a_known_fault_is_a_condition_and_an_event_and_does_not_affect_ready() {
    let policies = |standing: &NodesOfPolicy, before: Option<&WindowsNodePolicyStatus>| {
        let policy = policy(&json!({}));
        let known = PolicyFacts::default();
        let news = news_of(&policy, standing, &known, before);
        let status = status_of(&policy, standing, &known, before, Timestamp::UNIX_EPOCH);
        let news: Vec<String> = (news.iter())
            .map(|event| {
                format!(
                    "{:?} {} {}",
                    event.type_,
                    event.reason,
                    event.note.clone().unwrap_or_default()
                )
            })
            .collect();
        (status, news)
    };
    let node = |name: &str, kernel: &str| NodeView {
        name: name.into(),
        operating_system: "windows".into(),
        kernel_version: kernel.into(),
        kubelet_version: "v1.38.0".into(),
        network_plugin: Some(NetworkPlugin::Calico),
        ..NodeView::default()
    };
    let stored = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
        "metadata": {"name": "p", "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!({}))});
    let policy = ("p".to_owned(), Arc::new(serde_json::from_value(stored).unwrap()));
    let resolver = PolicyResolver {
        policies: NodePolicies::of(&[policy].into()),
        ..PolicyResolver::default()
    };
    let assessed = |nodes: &[NodeView]| {
        let nodes: Vec<Arc<NodeView>> = nodes.iter().cloned().map(Arc::new).collect();
        assess(&nodes, &resolver).remove("p").unwrap()
    };
    let faulty = [node("w1", "10.0.20348.2582"), node("w2", "10.0.20348.2582")];
    let (status, news) = policies(&assessed(&faulty), None);
    let condition = condition(&status, "KnownFaults");
    assert_eq!(
        (&*condition.status, &*condition.reason),
        ("True", "KnownFaultsFound")
    );
    let [fault, ..] = &status.known_faults[..] else {
        panic!("{status:?}")
    };
    assert_eq!((fault.certain, fault.node_count), (true, 2));
    assert_eq!(fault.nodes, ["w1", "w2"]);
    assert!(fault.message.contains("20348.2762"), "{fault:?}");
    assert!(fault.remedy.contains("KB5044281"), "{fault:?}");
    let message = format!(
        "2 nodes (w1, w2): {}; status.knownFaults has the remedies",
        fault.id
    );
    assert_eq!(condition.message, message);
    assert_ne!(status.message.as_deref(), Some(condition.message.as_str()));
    assert!(
        matches!(&news[..], [one] if one.starts_with("Warning KnownFaultsFound 2 nodes")),
        "{news:?}"
    );
    assert_eq!(
        policies(&assessed(&faulty), Some(&status)).1,
        Vec::<String>::new()
    );
    let (_, news) = policies(&assessed(&[node("w1", "10.0.20348.2762")]), Some(&status));
    assert_eq!(
        news,
        ["Normal NoKnownFaultsFound no node runs a version with a known fault"]
    );
}

#[test]
fn a_possible_fault_is_in_the_status_and_neither_a_condition_nor_an_event() {
    let mut standing = NodesOfPolicy::default();
    let fault = |id: &str, is_certain: bool| NodeFault {
        id: id.to_owned(),
        is_certain,
        field: FaultField::KubeletVersion,
        message: String::new(),
        summary: "may not start".to_owned(),
        remedy: "update it".to_owned(),
        source: String::new(),
    };
    let ids = |standing: &NodesOfPolicy| {
        let (policy, known) = (policy(&json!({})), PolicyFacts::default());
        let has_certain = standing.known_faults.certain().next().is_some();
        assert_eq!(
            news_of(&policy, standing, &known, None).len(),
            usize::from(has_certain)
        );
        let status = status_of(&policy, standing, &known, None, Timestamp::UNIX_EPOCH);
        let mut conditions = status.conditions.iter();
        assert_eq!(conditions.any(|it| it.type_ == "KnownFaults"), has_certain);
        let ids = status.known_faults.into_iter().map(|fault| fault.id);
        ids.collect::<Vec<String>>()
    };
    let nodes: Vec<String> = (10..40).map(|number| format!("w{number}")).collect();
    for node in &nodes {
        standing.known_faults.add(node, [fault("a", false)]);
    }
    assert_eq!(ids(&standing), ["a"]);
    standing.known_faults.add("w1", [fault("b", true)]);
    assert_eq!(ids(&standing), ["b", "a"]);
    let listed = known_faults(&standing).remove(1);
    assert_eq!(listed.node_count, 30);
    assert_eq!(listed.nodes, nodes[..KnownFaultStatus::MOST_NODES]);
}

/// Nodes that wait for a taint, and the guard's result.
fn held_back(guarded: GuardResult) -> (NodePolicy, NodesOfPolicy, PolicyFacts) {
    let mut standing = NodesOfPolicy::default();
    let taints = vec![Taint::no_schedule("os", "windows")];
    let waiting = (0..30).map(|i| (format!("w{i:02}"), taints.clone()));
    standing.waiting.extend(waiting);
    let known = PolicyFacts {
        guarded,
        ..PolicyFacts::default()
    };
    (policy(&json!({"taints": {"mode": "Reconcile"}})), standing, known)
}

#[test]
fn the_message_is_short_and_the_condition_reports_everything() {
    let (policy, mut standing, known) = held_back(GuardResult::Refused {
        message: format!("not set: {}", "x".repeat(5_000)),
        brief: "not set: who and who and 20 more".to_owned(),
    });
    let status = status_of(&policy, &standing, &known, None, Timestamp::UNIX_EPOCH);
    assert_eq!(
        status.message.as_deref(),
        Some("not set: who and who and 20 more")
    );
    assert_eq!(
        condition(&status, "Ready").message,
        "the condition Programmed is False: not set: who and who and 20 more"
    );
    assert!(condition(&status, "TaintsBlocked").message.len() > 5_000);

    standing.waiting.clear();
    for i in 0..30 {
        let taints = vec![Taint::no_schedule("os", "windows")];
        standing.contested.insert(format!("w{i:02}"), taints);
    }
    let status = status_of(
        &policy,
        &standing,
        &PolicyFacts::default(),
        None,
        Timestamp::UNIX_EPOCH,
    );
    let short = status.message.clone().unwrap();
    assert!(
        short.contains("three times on w00, w01, w02 and 27 more:") && short.len() < 300,
        "{short}"
    );
    let long = &condition(&status, "Conflicted").message;
    assert!(long.contains("w19 and 10 more"), "{long}");
}

#[test]
fn an_event_is_reported_when_taints_are_refused_for_another_reason_or_no_longer_and_once_only() {
    let refused = || GuardResult::Refused {
        message: "long".to_owned(),
        brief: "short".to_owned(),
    };
    let (policy, mut standing, mut known) = held_back(refused());
    let mut stored: Option<WindowsNodePolicyStatus> = None;
    let mut visit = |standing: &NodesOfPolicy, known: &PolicyFacts| {
        let news = news_of(&policy, standing, known, stored.as_ref());
        stored = Some(status_of(
            &policy,
            standing,
            known,
            stored.as_ref(),
            Timestamp::UNIX_EPOCH,
        ));
        news.into_iter()
            .map(|event| format!("{:?} {} {}", event.type_, event.reason, event.note.unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(visit(&standing, &known), ["Warning WorkloadsAffected short"]);
    assert_eq!(visit(&standing, &known), Vec::<String>::new());
    // Other workloads would be affected: the same reason.
    known.guarded = GuardResult::Refused {
        message: "longer".to_owned(),
        brief: "other".to_owned(),
    };
    assert_eq!(visit(&standing, &known), Vec::<String>::new());
    known.guarded = GuardResult::Unknown {
        why: "no answer".to_owned(),
        is_forbidden: false,
    };
    assert_eq!(
        visit(&standing, &known),
        [
            "Warning ImpactUnknown not set, because it is unknown whether a workload would be affected: no answer"
        ]
    );
    standing.waiting.clear();
    standing
        .contested
        .insert("w1".to_owned(), vec![Taint::no_schedule("os", "windows")]);
    let reported = visit(&standing, &known);
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert_eq!(reported[0], "Normal NoWorkloadsAffected no taint is withheld");
    assert!(
        reported[1]
            .starts_with("Warning OverwrittenByOtherClient another client removed os=windows:NoSchedule"),
        "{reported:?}"
    );
    standing.contested.clear();
    assert_eq!(
        visit(&standing, &known),
        ["Normal NotConflicted no other client reverts what Transom writes"]
    );
}

/// Transom's condition types; the last one exists only if there are RuntimeClasses.
const HEALTHY: [&str; 4] = ["Accepted", "Programmed", "Ready", "RuntimeClassesReady"];

#[test]
fn conditions_of_other_writers_stay_and_ours_go_where_they_say_nothing_any_more() {
    let now = Timestamp::UNIX_EPOCH;
    let (standing, mut known) = (NodesOfPolicy::default(), PolicyFacts::default());
    known.classes = Some(ClassesOfPolicy::default());
    known.undeclared = ["w1".to_owned()].into();
    let mut stored = status_of(&policy(&json!({})), &standing, &known, None, now);
    let kinds = |status: &WindowsNodePolicyStatus| -> Vec<String> {
        status.conditions.iter().map(|c| c.type_.clone()).collect()
    };
    let with_problem = [&HEALTHY[..3], &["UndeclaredPools"], &HEALTHY[3..]].concat();
    assert_eq!(kinds(&stored), with_problem, "in this order");
    stored.conditions.insert(
        0,
        Condition {
            type_: "example.com/Approved".into(),
            ..stored.conditions[0].clone()
        },
    );
    (known.classes, known.undeclared) = (None, BTreeSet::new());
    let next = status_of(&policy(&json!({})), &standing, &known, Some(&stored), now);
    let expected = [&HEALTHY[..3], &["example.com/Approved"]].concat();
    assert_eq!(kinds(&next), expected);
}

#[test]
fn a_policy_whose_class_another_policy_has_is_conflicted() {
    let mut known = PolicyFacts::default();
    let conflict = "windows-ltsc2022 is the class of the policy a, with the handler x instead of y";
    known.classes = Some(ClassesOfPolicy {
        conflicts: vec![conflict.to_owned()],
        ..ClassesOfPolicy::default()
    });
    let status = status_of(
        &policy(&json!({})),
        &NodesOfPolicy::default(),
        &known,
        None,
        Timestamp::UNIX_EPOCH,
    );
    let classes = condition(&status, "RuntimeClassesReady");
    assert_eq!((&*classes.status, &*classes.reason), ("False", "Conflicted"));
    assert_eq!(classes.message, format!("it has no class; {conflict}"));
    let ready = condition(&status, "Ready");
    assert_eq!(
        (&*ready.status, &*ready.reason),
        ("False", "RuntimeClassesNotReady")
    );
    assert_eq!(status.message.as_deref(), Some(conflict));
}

#[test]
fn a_policy_that_writes_nothing_is_ready_without_being_programmed() {
    let audits = json!({"labels": {"kubelet": {"mode": "Audit"}, "nodeRestriction": {"mode": "Disabled"}}, "taints": {"mode": "Audit"}});
    let of = |known: &PolicyFacts| {
        status_of(
            &policy(&audits),
            &NodesOfPolicy::default(),
            known,
            None,
            Timestamp::UNIX_EPOCH,
        )
    };
    let status = of(&PolicyFacts::default());
    assert!(status.conditions.iter().all(|it| it.type_ != "Programmed"));
    assert_eq!(condition(&status, "Ready").status, "True");
    // What is left to remove cannot be removed.
    let status = of(&PolicyFacts {
        failures: [("w1".to_owned(), ApiError::Other("refused".to_owned()))].into(),
        ..PolicyFacts::default()
    });
    assert_eq!(condition(&status, "Programmed").reason, "WriteFailed");
    assert_eq!(
        status.message.as_deref(),
        Some("1 nodes could not be written: w1: refused")
    );
}

#[test]
fn parts_that_are_ignored_leave_a_policy_accepted_and_policies_that_overlap_leave_it_ready() {
    let twice = json!({"taints": {"required": [{"key": "os", "value": "a"}, {"key": "os", "value": "b"}]}});
    let mut standing = NodesOfPolicy::default();
    let of = |standing: &NodesOfPolicy| {
        status_of(
            &policy(&twice),
            standing,
            &PolicyFacts::default(),
            None,
            Timestamp::UNIX_EPOCH,
        )
    };
    let status = of(&standing);
    let accepted = condition(&status, "Accepted");
    assert_eq!(
        (&*accepted.status, &*accepted.reason),
        ("True", "PartiallyInvalid")
    );
    assert_eq!(condition(&status, "Ready").status, "True");
    assert_eq!(status.message.as_deref(), Some(&*accepted.message));
    standing.overlapping.insert("other".to_owned(), "w1".to_owned());
    let status = of(&standing);
    let overlapping = condition(&status, "Overlapping");
    assert_eq!(
        (&*overlapping.status, &*overlapping.reason),
        ("True", "Overlapping")
    );
    assert_eq!(status.message.as_deref(), Some(&*overlapping.message));
    assert_eq!(condition(&status, "Ready").status, "True");
}

#[test]
fn a_policy_that_cannot_be_read_is_neither_accepted_nor_programmed() {
    let wrong = policy(&json!({"nodeSelector": {"matchLabels": {"no key!": "x"}}}));
    let (nodes, known) = (NodesOfPolicy::default(), PolicyFacts::default());
    let status = status_of(&wrong, &nodes, &known, None, Timestamp::UNIX_EPOCH);
    for kind in ["Accepted", "Programmed", "Ready"] {
        let of = condition(&status, kind);
        assert_eq!((&*of.status, &*of.reason), ("False", "Invalid"), "{kind}");
    }
    let news = news_of(&wrong, &nodes, &known, None);
    assert_eq!((news.len(), news[0].reason.as_str()), (1, "Invalid"));
}

#[test]
fn a_missing_right_is_reported_with_the_value_that_grants_it() {
    let waiting = NodesOfPolicy {
        waiting: [("w1".to_owned(), vec![Taint::no_schedule("os", "windows")])].into(),
        ..NodesOfPolicy::default()
    };
    let denied = |why: &str| ApiError::Forbidden(why.to_owned());
    let classes = ClassesOfPolicy {
        problems: vec!["cannot create windows-ltsc2022: no".to_owned()],
        forbidden: Some("no".to_owned()),
        ..ClassesOfPolicy::default()
    };
    for (known, value) in [
        (
            PolicyFacts {
                failures: [("w1".to_owned(), denied("cannot patch resource"))].into(),
                ..PolicyFacts::default()
            },
            "write to nodes: set rbac.nodePolicies=true",
        ),
        (
            PolicyFacts {
                guarded: GuardResult::Unknown {
                    why: "cannot list pods".to_owned(),
                    is_forbidden: true,
                },
                ..PolicyFacts::default()
            },
            "list the workloads that a taint would affect: set rbac.nodePolicies=true",
        ),
        (
            PolicyFacts {
                classes: Some(classes),
                ..PolicyFacts::default()
            },
            "write RuntimeClasses: set rbac.runtimeClasses=true",
        ),
    ] {
        let spec = json!({"taints": {"mode": "Reconcile"}});
        let status = status_of(&policy(&spec), &waiting, &known, None, Timestamp::UNIX_EPOCH);
        let programmed = condition(&status, "Programmed");
        assert_eq!((&*programmed.status, &*programmed.reason), ("False", "Forbidden"));
        assert!(programmed.message.contains(value), "{programmed:?}");
        assert_eq!(condition(&status, "Ready").reason, "Forbidden");
    }
}

#[test]
fn nodes_on_which_a_policy_owns_something_are_counted() {
    let owned = NodeOwnership {
        policy: "windows".into(),
        taints: vec![Taint::no_schedule("os", "windows")],
        ..NodeOwnership::default()
    };
    let of_another = NodeOwnership {
        policy: "another".into(),
        ..owned.clone()
    };
    let node = |name: &str, owned: Option<&NodeOwnership>| {
        Arc::new(NodeView {
            name: name.into(),
            owned: owned.and_then(NodeOwnership::to_annotation).map(Into::into),
            ..NodeView::default()
        })
    };
    let nodes = [
        node("a", Some(&owned)),
        node("b", Some(&of_another)),
        node("c", None),
    ];
    // The policy selects none of them.
    let policy = policy(&json!({"nodeSelector": {"matchLabels": {"pool": "none"}}}));
    let stored = [("windows".to_owned(), Arc::clone(&policy.stored))].into();
    let resolver = PolicyResolver {
        policies: NodePolicies::of(&stored),
        ..PolicyResolver::default()
    };
    let assessed = assess(&nodes, &resolver);
    let state = &assessed["windows"];
    let status = status_of(
        &policy,
        state,
        &PolicyFacts::default(),
        None,
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(status.owned_node_count, 1);
}

#[test]
fn workloads_that_taints_keep_off_nodes_are_named_without_affecting_ready() {
    let known = PolicyFacts {
        excluded: Some(ExcludedWorkloads {
            message: "it keeps Deployment shop/web off".to_owned(),
            brief: "it keeps 1 workload off".to_owned(),
        }),
        ..PolicyFacts::default()
    };
    let nodes = NodesOfPolicy::default();
    let status = status_of(&policy(&json!({})), &nodes, &known, None, Timestamp::UNIX_EPOCH);
    let excluded = condition(&status, "WorkloadsExcluded");
    assert_eq!(
        (&*excluded.status, &*excluded.reason, &*excluded.message),
        ("True", "TaintsNotTolerated", "it keeps Deployment shop/web off")
    );
    assert_eq!(condition(&status, "Ready").status, "True");
    let events = news_of(&policy(&json!({})), &nodes, &known, None);
    let told: Vec<_> = events
        .iter()
        .map(|event| (&*event.reason, event.note.as_deref()))
        .collect();
    assert_eq!(told, [("TaintsNotTolerated", Some("it keeps 1 workload off"))]);
    assert_eq!(
        news_of(&policy(&json!({})), &nodes, &known, Some(&status)).len(),
        0
    );
}

#[test]
fn a_policy_that_others_outrank_says_by_which() {
    let stored = |name: &str, priority: i32| {
        let stored = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
            "metadata": {"name": name, "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!({"priority": priority}))});
        (name.to_owned(), Arc::new(serde_json::from_value(stored).unwrap()))
    };
    let resolver = PolicyResolver {
        policies: NodePolicies::of(&[stored("default", 0), stored("gpu", 1)].into()),
        ..PolicyResolver::default()
    };
    let node = NodeView {
        name: "w1".into(),
        operating_system: "windows".into(),
        ..NodeView::default()
    };
    let assessed = assess(&[Arc::new(node)], &resolver);
    let message = |name: &str| {
        let policy = resolver.policies.get(name).unwrap();
        let nodes = &assessed[name];
        let known = PolicyFacts::default();
        let status = status_of(policy, nodes, &known, None, Timestamp::UNIX_EPOCH);
        condition(&status, "Ready").message.clone()
    };
    assert_eq!(
        message("default"),
        "policies with precedence apply to every Windows node that it selects: gpu"
    );
    assert!(!message("gpu").contains("precedence"));
}
