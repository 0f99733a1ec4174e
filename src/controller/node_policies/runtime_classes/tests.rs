//! Which RuntimeClasses are desired, created, changed and deleted.

use serde_json::Value;

use super::*;
use crate::api::WindowsNodePolicy;

/// The plan if no pool has zero nodes.
fn plan(
    existing: &Existing,
    policies: &NodePolicies,
    nodes: &[Arc<NodeView>],
    others_are_gone: bool,
) -> ClassPlan {
    super::plan(existing, policies, nodes, &BTreeSet::new(), others_are_gone)
}

fn policies(spec: &Value) -> NodePolicies {
    let stored: WindowsNodePolicy = serde_json::from_value(json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
        "metadata": {"name": "windows", "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!({"runtimeClasses": spec})),
    }))
    .unwrap();
    NodePolicies::of(&[("windows".to_owned(), Arc::new(stored))].into())
}

fn managed() -> NodePolicies {
    policies(&json!({"mode": "Reconcile"}))
}

fn node(name: &str, kernel: &str, handlers: &[&str]) -> Arc<NodeView> {
    Arc::new(NodeView {
        name: name.to_owned(),
        operating_system: "windows".to_owned(),
        kernel_version: kernel.to_owned(),
        runtime_handlers: handlers.iter().map(|h| (*h).to_owned()).collect(),
        ..NodeView::default()
    })
}

type Existing = BTreeMap<String, Arc<RuntimeClass>>;

/// The classes as the API server stores them after the plan; no object uses any of them.
fn after(existing: &Existing, plan: &ClassPlan) -> Existing {
    let mut all = existing.clone();
    for change in &plan.changes {
        match &change.write {
            Write::Create(class) => _ = all.insert(change.name.clone(), Arc::new(class.clone())),
            Write::Delete { name, .. } => _ = all.remove(name),
            Write::Patch { name, patch } => {
                let mut value = serde_json::to_value(&*all[name]).unwrap();
                json_patch::merge(&mut value, patch);
                all.insert(name.clone(), Arc::new(serde_json::from_value(value).unwrap()));
            }
            other @ Write::PatchStatus { .. } => panic!("{other:?}"),
        }
    }
    all
}

fn foreign(name: &str, selector: &Value) -> Existing {
    let class = json!({"metadata": {"name": name}, "handler": "runhcs-wcow-process", "scheduling": {"nodeSelector": selector}});
    [(name.to_owned(), Arc::new(serde_json::from_value(class).unwrap()))].into()
}

fn selector(class: &RuntimeClass) -> &BTreeMap<String, String> {
    class.scheduling.as_ref().unwrap().node_selector.as_ref().unwrap()
}

#[test]
fn there_is_one_for_each_release_and_isolation_and_the_build_only_where_one_runs_it() {
    let nodes = [
        node("a", "10.0.17763.1", &[]),
        node("b", "10.0.20348.1", &[]),
        node("c", "10.0.25398.1", &[]),
    ];
    let both = policies(&json!({"mode": "Reconcile", "isolations": ["Process", "HyperV"]}));
    let made = after(&Existing::new(), &plan(&Existing::new(), &both, &nodes, true));
    let names: Vec<&str> = made.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "windows-ltsc2019",
            "windows-ltsc2019-hyperv",
            "windows-ltsc2022",
            "windows-ltsc2022-hyperv"
        ]
    );
    let build = |name: &str| selector(&made[name]).get(BUILD_LABEL).cloned();
    assert_eq!(build("windows-ltsc2019").as_deref(), Some("10.0.17763"));
    assert_eq!(build("windows-ltsc2022"), None);
    assert_eq!(build("windows-ltsc2019-hyperv"), None);
    assert!(made.values().all(|class| selector(class)[OS_LABEL] == "windows"));
    assert_eq!(made["windows-ltsc2019-hyperv"].handler, "runhcs-wcow-hypervisor");
    // What was created matches the desired state, and stays when the last node of a release is gone.
    let again = plan(&made, &both, &nodes[1..], true);
    assert_eq!(again.changes, []);
    assert_eq!(again.by_policy["windows"].names.len(), 4);
    assert_eq!(again.by_policy["windows"].problems, Vec::<String>::new());
}

#[test]
fn tolerations_follow_the_taints_of_the_nodes() {
    let mut first = (*node("a", "10.0.20348.1", &[])).clone();
    let made = after(
        &Existing::new(),
        &plan(&Existing::new(), &managed(), &[Arc::new(first.clone())], true),
    );
    let tolerations = |classes: &Existing| -> Vec<String> {
        let scheduling = classes["windows-ltsc2022"].scheduling.clone().unwrap();
        let all = scheduling.tolerations.unwrap_or_default().into_iter();
        all.map(|t| format!("{}={}", t.key.unwrap(), t.value.unwrap_or_default()))
            .collect()
    };
    assert_eq!(tolerations(&made), ["os=windows"]);
    for (key, value) in [("sku", "windows"), ("team", "blue")] {
        first.taints.push(k8s_openapi::api::core::v1::Taint {
            key: key.into(),
            value: Some(value.into()),
            effect: "NoSchedule".into(),
            time_added: None,
        });
    }
    let changed = plan(&made, &managed(), &[Arc::new(first.clone())], true);
    let now = after(&made, &changed);
    assert_eq!(tolerations(&now), ["os=windows", "sku=windows"]);
    assert_eq!(plan(&now, &managed(), &[Arc::new(first)], true).changes, []);
}

#[test]
fn a_handler_that_nodes_do_not_report_is_not_used() {
    let none = Existing::new();
    let lacks = plan(&none, &managed(), &[node("a", "10.0.20348.1", &["runc"])], true);
    assert_eq!(lacks.changes, []);
    assert!(
        lacks.by_policy["windows"].problems[0]
            .contains("do not report runhcs-wcow-process (node a reports runc)")
    );
    let has = plan(
        &none,
        &managed(),
        &[node("a", "10.0.20348.1", &["runhcs-wcow-process"])],
        true,
    );
    assert_eq!(has.changes.len(), 1);
}

#[test]
fn a_class_that_transom_did_not_make_is_used_and_never_changed() {
    let nodes = [node("a", "10.0.20348.1", &[])];
    let theirs = foreign("windows-ltsc2022", &json!({"kubernetes.io/os": "windows"}));
    let planned = plan(&theirs, &managed(), &nodes, true);
    assert_eq!(planned.changes, []);
    let state = &planned.by_policy["windows"];
    assert_eq!(
        (state.names.as_slice(), state.problems.len()),
        (&["windows-ltsc2022".to_owned()][..], 0)
    );
    assert!(state.notes[0].contains("was not created by Transom"));
    for (selector, reported) in [
        (json!({"kubernetes.io/os": "linux"}), "selects linux"),
        (
            json!({BUILD_LABEL: "10.0.17763"}),
            "does not run Windows Server 2022",
        ),
    ] {
        let planned = plan(&foreign("windows-ltsc2022", &selector), &managed(), &nodes, true);
        assert_eq!(planned.changes, []);
        assert!(
            planned.by_policy["windows"].problems[0].contains(reported),
            "{planned:?}"
        );
    }
}

#[test]
fn ours_go_when_the_policy_goes_and_only_when_that_is_certain() {
    let nodes = [node("a", "10.0.20348.1", &[])];
    let made = after(
        &Existing::new(),
        &plan(&Existing::new(), &managed(), &nodes, true),
    );
    for gone in [NodePolicies::default(), policies(&json!({"mode": "Disabled"}))] {
        assert_eq!(after(&made, &plan(&made, &gone, &nodes, true)).len(), 0);
    }
    assert_eq!(plan(&made, &NodePolicies::default(), &nodes, false).changes, []);
    let theirs = foreign("theirs", &json!({}));
    assert_eq!(plan(&theirs, &NodePolicies::default(), &nodes, true).changes, []);
}

#[test]
fn another_handler_means_another_class() {
    let nodes = [node("a", "10.0.20348.1", &[])];
    let made = after(
        &Existing::new(),
        &plan(&Existing::new(), &managed(), &nodes, true),
    );
    let other = policies(&json!({"mode": "Reconcile", "handlers": {"process": "my-runhcs"}}));
    let planned = plan(&made, &other, &nodes, true);
    assert!(
        matches!(
            planned.changes.as_slice(),
            [ClassChange {
                why_deleted: Some(_),
                ..
            }]
        ),
        "{planned:?}"
    );
    let made = after(&made, &planned);
    let made = after(&made, &plan(&made, &other, &nodes, true));
    assert_eq!(made["windows-ltsc2022"].handler, "my-runhcs");
}

#[test]
fn what_another_writer_changed_of_ours_is_changed_back() {
    let nodes = [node("a", "10.0.17763.1", &[])];
    let made = after(
        &Existing::new(),
        &plan(&Existing::new(), &managed(), &nodes, true),
    );
    let mut changed = (*made["windows-ltsc2019"]).clone();
    let scheduling = changed.scheduling.as_mut().unwrap();
    scheduling.node_selector = Some([("pool".to_owned(), "x".to_owned())].into());
    let existing: Existing = [("windows-ltsc2019".to_owned(), Arc::new(changed))].into();
    assert_eq!(after(&existing, &plan(&existing, &managed(), &nodes, true)), made);
}

#[test]
fn the_taint_of_a_pool_at_zero_stays_tolerated() {
    let absent = ["team=windows:NoSchedule", "os=windows:NoSchedule"].map(|text| {
        let (key, rest) = text.split_once('=').unwrap();
        Taint::no_schedule(key, rest.split_once(':').unwrap().0)
    });
    let none = Existing::new();
    let nodes = [node("a", "10.0.20348.1", &[])];
    let planned = super::plan(&none, &managed(), &nodes, &absent.into(), true);
    let made = after(&none, &planned);
    assert!(!made.is_empty());
    for class in made.values() {
        let tolerations = class.scheduling.clone().unwrap().tolerations.unwrap_or_default();
        let keys: Vec<_> = tolerations.iter().filter_map(|t| t.key.as_deref()).collect();
        // The key of another owner is not Transom's.
        assert_eq!(keys, ["os"], "{class:?}");
    }
}

#[test]
fn classes_stay_as_they_are_while_it_is_unknown_which_nodes_their_policy_selects() {
    let stored = |name: &str, spec: Value| {
        let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
            "metadata": {"name": name, "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!(spec))});
        (name.to_owned(), Arc::new(serde_json::from_value(policy).unwrap()))
    };
    let gpu = |key: &str, handler: &str| {
        stored(
            "gpu",
            json!({"priority": 1, "nodeSelector": {"matchLabels": {key: "gpu"}}, "runtimeClasses": {
                "mode": "Reconcile", "handlers": {"process": handler}}}),
        )
    };
    let all = |pattern: &str| {
        stored(
            "all",
            json!({"runtimeClasses": {"mode": "Reconcile", "namePattern": pattern}}),
        )
    };
    let mut learned = (*node("a", "10.0.20348.1", &[])).clone();
    learned.labels = Arc::new([("pool".to_owned(), "gpu".to_owned())].into());
    learned.owned = Some(json!({"policy": "gpu"}).to_string().into());
    learned.taints.push(k8s_openapi::api::core::v1::Taint {
        key: "sku".into(),
        value: Some("windows".into()),
        effect: "NoSchedule".into(),
        time_added: None,
    });
    let mut other = learned.clone();
    (other.name, other.labels) = ("b".to_owned(), Arc::default());
    other.owned = Some(json!({"policy": "all"}).to_string().into());
    let nodes = [Arc::new(learned), Arc::new(other)];
    let usable = NodePolicies::of(&[gpu("pool", "runhcs-wcow-process"), all("all-{release}")].into());
    let made = after(&Existing::new(), &plan(&Existing::new(), &usable, &nodes, true));
    let names = |of: &[&str]| -> Vec<String> { of.iter().map(|name| (*name).to_owned()).collect() };
    assert_eq!(
        made.keys().cloned().collect::<Vec<_>>(),
        names(&["all-ltsc2022", "windows-ltsc2022"])
    );

    // Neither is the toleration lost, nor is the class created again with the other handler, nor does another policy
    // take it.
    for pattern in ["all-{release}", "windows-{release}"] {
        let typo = NodePolicies::of(&[gpu("Example.com/pool", "other"), all(pattern)].into());
        let planned = plan(&made, &typo, &nodes, true);
        let touched: Vec<&str> = planned.changes.iter().map(|change| &*change.name).collect();
        assert!(!touched.contains(&"windows-ltsc2022"), "{pattern}: {planned:?}");
        assert_eq!(planned.by_policy["gpu"].names, names(&["windows-ltsc2022"]));
        assert!(planned.by_policy["gpu"].notes[0].starts_with("they stay as they are"));
    }
    // A policy that waits for nodes keeps its classes too: it does not know all of its nodes.
    let mut new = (*nodes[1]).clone();
    new.owned = None;
    let typo = NodePolicies::of(&[gpu("Example.com/pool", "other"), all("all-{release}")].into());
    let planned = plan(&made, &typo, &[Arc::clone(&nodes[0]), Arc::new(new)], true);
    assert_eq!(planned.changes, []);
    assert_eq!(planned.by_policy["all"].names, names(&["all-ltsc2022"]));
}

#[test]
fn of_two_policies_that_want_one_name_with_different_handlers_the_second_is_conflicted() {
    let policy = |name: &str, handler: &str| {
        let stored = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
            "metadata": {"name": name, "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!({
                "nodeSelector": {"matchLabels": {"pool": name}},
                "runtimeClasses": {"mode": "Reconcile", "handlers": {"process": handler}}}))});
        let stored: WindowsNodePolicy = serde_json::from_value(stored).unwrap();
        (name.to_owned(), Arc::new(stored))
    };
    let node = |pool: &str| {
        let mut node = (*node(pool, "10.0.20348.1", &[])).clone();
        node.labels = Arc::new([("pool".to_owned(), pool.to_owned())].into());
        Arc::new(node)
    };
    let nodes = [node("a"), node("b")];
    let of = |other: &str| {
        let both = NodePolicies::of(&[policy("a", "runhcs-a"), policy("b", other)].into());
        plan(&Existing::new(), &both, &nodes, true)
    };
    let planned = of("runhcs-b");
    let made = after(&Existing::new(), &planned);
    let class = &made["windows-ltsc2022"];
    assert_eq!(class.handler, "runhcs-a");
    assert_eq!(
        selector(class)["pool"],
        "a",
        "nodes of the other policy lack the handler"
    );
    assert!(planned.by_policy["a"].conflicts.is_empty());
    let conflict = &planned.by_policy["b"].conflicts[0];
    assert!(
        conflict.contains("policy a, with the handler runhcs-a instead of runhcs-b"),
        "{conflict}"
    );
    // Without labels in the selector of its policy, the class cannot exclude the other nodes.
    for match_labels in [json!({}), json!(null)] {
        let (name, mut first) = policy("a", "runhcs-a");
        let selector = json!({"matchLabels": match_labels, "matchExpressions": [
            {"key": "pool", "operator": "In", "values": ["a"]}]});
        Arc::get_mut(&mut first).unwrap().spec.node_selector = serde_json::from_value(selector).unwrap();
        let both = NodePolicies::of(&[(name, first), policy("b", "runhcs-b")].into());
        let planned = plan(&Existing::new(), &both, &nodes, true);
        let problems = &planned.by_policy["a"].problems;
        assert!(
            problems.len() == 1 && problems[0].contains("give this policy spec.nodeSelector.matchLabels"),
            "{problems:?}"
        );
    }
    // They share a class that both want alike.
    let shared = of("runhcs-a");
    assert!(shared.by_policy["b"].conflicts.is_empty());
    assert!(!selector(&after(&Existing::new(), &shared)["windows-ltsc2022"]).contains_key("pool"));
}
