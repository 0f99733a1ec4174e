//! What Transom's own account may write: no more than the policies need, and of each object no more than is Transom's.

use std::time::Duration;

use serde_json::{Value, json};

use super::engine::{Engine, engine};
use super::leaving::{self, CLASS, untainted};
use super::refusal;
use super::release::{World, windows_pod};
use crate::support::control_plane::wait;

pub const ACCOUNT: &str = "system:serviceaccount:transom-system:transom";

/// The verbs on a resource in the cluster that the chart grants.
fn verbs(engine: &Engine, values: &Value, resource: &str) -> Vec<String> {
    let rendered = engine.render(values).unwrap();
    let rules = rendered.object("ClusterRole", "transom")["rules"]
        .as_array()
        .unwrap()
        .clone();
    let of = |rule: &&Value| rule["resources"].as_array().unwrap().contains(&json!(resource));
    let verbs = rules
        .iter()
        .filter(of)
        .flat_map(|rule| rule["verbs"].as_array().unwrap());
    verbs.map(|verb| verb.as_str().unwrap().to_owned()).collect()
}

#[test]
fn reports_take_their_rights_along_and_nothing_is_left_of_them_when_they_are_off() {
    let Some(engine) = engine() else { return };
    let none = json!({"nodePolicies": {"default": {"create": false}}, "rbac": {"nodePolicies": false}, "reports": {"enabled": false}});
    let on = json!({"nodePolicies": {"default": {"create": false}}, "rbac": {"nodePolicies": false}, "reports": {"enabled": true}});
    let written = ["list", "watch", "create", "patch", "delete"];
    for (resource, verbs_of_it) in [
        ("pods", &["get", "list", "watch"][..]),
        ("deployments", &["get", "list", "watch"]),
        ("jobs", &["get", "list", "watch"]),
        ("networkpolicies", &["get", "list", "watch"]),
        ("reports", &written),
        ("policyreports", &written),
        ("events", &["create"]),
    ] {
        assert_eq!(verbs(engine, &on, resource), verbs_of_it, "{resource}");
        assert!(verbs(engine, &none, resource).is_empty(), "{resource}");
    }
    let with_nodes = verbs(engine, &json!({}), "deployments");
    assert_eq!(
        with_nodes,
        ["get", "list"],
        "nothing is watched when they are off"
    );
    let (off, on) = (engine.render(&none).unwrap(), engine.render(&on).unwrap());
    assert!(!off.list().contains("reports") && !off.list().contains("TRANSOM_REPORTS"));
    assert!(on.list().contains("TRANSOM_REPORTS"));
}

/// The verbs on a resource of an API group that a ClusterRole of the chart grants.
fn verbs_in(engine: &Engine, values: &Value, role: &str, group: &str, resource: &str) -> Vec<String> {
    let rendered = engine.render(values).unwrap();
    let role = rendered.object("ClusterRole", role);
    let rules = role["rules"].as_array().unwrap().iter();
    let has = |list: &Value, text: &str| list.as_array().unwrap().contains(&json!(text));
    let rules = rules.filter(|rule| has(&rule["apiGroups"], group) && has(&rule["resources"], resource));
    let verbs = rules.flat_map(|rule| rule["verbs"].as_array().unwrap().clone());
    verbs.map(|verb| verb.as_str().unwrap().to_owned()).collect()
}

#[test]
fn custom_resources_with_pods_can_be_listed_wherever_workloads_can() {
    let Some(engine) = engine() else { return };
    let off = json!({"nodePolicies": {"default": {"create": false}}, "rbac": {"nodePolicies": false}, "reports": {"enabled": false}});
    let added = json!({"reports": {"enabled": false}, "cluster": {"podTemplates":
        [{"group": "example.com", "kind": "GameServerSet", "path": "spec.template"}]}});
    let reports = json!({"nodePolicies": {"default": {"create": false}}, "reports": {"enabled": true}});
    let classes = json!({"reports": {"enabled": false}, "rbac": {"runtimeClasses": true},
        "nodePolicies": {"default": {"spec": {"runtimeClasses": {"mode": "Reconcile"}}}}});
    let (list, watch) = (&["get", "list"][..], &["get", "list", "watch"][..]);
    for (values, expected) in [
        (&off, &[][..]),
        (&added, list),
        (&classes, list),
        (&reports, watch),
    ] {
        for (group, resource) in [
            ("argoproj.io", "rollouts"),
            ("apps.kruise.io", "daemonsets"),
            ("keda.sh", "scaledjobs"),
            ("agones.dev", "fleets"),
        ] {
            let granted = verbs_in(engine, values, "transom", group, resource);
            assert_eq!(granted, expected, "{group} {resource} {values}");
        }
    }
    let of_added = |values, role| verbs_in(engine, values, role, "example.com", "gameserversets");
    assert_eq!(of_added(&added, "transom"), list);
    assert_eq!(of_added(&classes, "transom"), [""; 0]);
    // The cleanup keeps a RuntimeClass that one of them names.
    assert_eq!(of_added(&added, "transom-pre-delete"), list);
    let rollouts = verbs_in(engine, &added, "transom-pre-delete", "argoproj.io", "rollouts");
    assert_eq!(rollouts, list);
}

#[test]
fn each_right_to_write_has_a_value_that_must_not_contradict_a_policy() {
    let Some(engine) = engine() else { return };
    let managed = json!({"default": {"spec": {"runtimeClasses": {"mode": "Reconcile"}}}});
    let read = ["get", "list", "watch"];
    for (values, nodes, classes) in [
        (json!({}), true, false),
        (json!({"rbac": {"runtimeClasses": true}}), true, true),
        (
            json!({"rbac": {"runtimeClasses": true}, "nodePolicies": managed}),
            true,
            true,
        ),
        // Before the policy is removed, and until what it wrote is.
        (
            json!({"nodePolicies": {"default": {"create": false}}}),
            true,
            false,
        ),
        (
            json!({"nodePolicies": {"default": {"create": false}}, "rbac": {"nodePolicies": false}}),
            false,
            false,
        ),
        (json!({"mode": "Audit"}), true, false),
        (
            json!({"mode": "Audit", "rbac": {"nodePolicies": false}}),
            false,
            false,
        ),
        (
            json!({"mode": "Audit", "rbac": {"nodePolicies": false, "runtimeClasses": true}, "nodePolicies": managed}),
            false,
            true,
        ),
    ] {
        let mut on_nodes = read.to_vec();
        on_nodes.extend(nodes.then_some("patch"));
        assert_eq!(verbs(engine, &values, "nodes"), on_nodes, "{values}");
        let looks = verbs(engine, &values, "deployments");
        assert_eq!(looks.is_empty(), !nodes && !classes, "{values}: {looks:?}");
        let mut on_classes = read[1..].to_vec();
        if classes {
            on_classes.extend(["create", "patch", "delete"]);
        }
        assert_eq!(verbs(engine, &values, "runtimeclasses"), on_classes, "{values}");
    }
    for (values, words) in [
        (
            json!({"rbac": {"nodePolicies": false}}),
            "rbac.nodePolicies: false removes the right to write to nodes, which nodePolicies.default.spec needs",
        ),
        (
            json!({"nodePolicies": {"default": {"spec": {}}, "second": {"spec": {"runtimeClasses": {"mode": "Reconcile"}}}}}),
            "rbac.runtimeClasses: nodePolicies.second.spec.runtimeClasses.mode=Reconcile needs the right to create RuntimeClasses; set rbac.runtimeClasses=true",
        ),
        (json!({"rbac": {"nodePolicies": "auto"}}), "/rbac/nodePolicies"),
    ] {
        let refusal = refusal(engine, &values);
        assert!(refusal.contains(words), "{refusal}");
    }
}

#[test]
fn a_network_policy_is_there_as_soon_as_the_values_name_who_may_come() {
    let Some(engine) = engine() else { return };
    let peer = json!([{"ipBlock": {"cidr": "192.0.2.0/28"}}]);
    for (policy, there) in [
        (json!({}), false),
        (json!({"webhookFrom": peer}), true),
        (json!({"metricsFrom": peer}), true),
        (json!({"enabled": true}), true),
        (json!({"enabled": false, "webhookFrom": peer}), false),
    ] {
        let rendered = engine.render(&json!({"networkPolicy": policy})).unwrap();
        let is_one = |object: &Value| object["kind"] == "NetworkPolicy";
        assert_eq!(rendered.objects.iter().any(is_one), there, "{policy}");
    }
}

/// What kubectl says when it asks as Transom itself; nothing is stored.
fn refused(world: &World, arguments: &[&str]) -> Option<String> {
    let as_transom = ["--as", ACCOUNT, "--dry-run=server"];
    let printed = world.cluster.kubectl(&[arguments, &as_transom].concat());
    (!printed.ok).then_some(printed.err)
}

/// The right to get what the program never gets: kubectl reads an object before it patches it.
pub fn kubectl_reads(account: &str) -> [Value; 2] {
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["get"]});
    let (named, role) = (json!({"name": "kubectl-reads"}), "rbac.authorization.k8s.io");
    [
        json!({"apiVersion": format!("{role}/v1"), "kind": "ClusterRole", "metadata": named, "rules": [
            rule("admissionregistration.k8s.io", &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]),
            rule("apps", &["controllerrevisions"]),
            rule("node.k8s.io", &["runtimeclasses"]),
            rule("transom.dev", &["windowspodpolicies", "windowsnodepolicies", "windowsnodepools"]),
        ]}),
        json!({"apiVersion": format!("{role}/v1"), "kind": "ClusterRoleBinding", "metadata": named,
            "roleRef": {"apiGroup": role, "kind": "ClusterRole", "name": "kubectl-reads"},
            "subjects": [{"apiGroup": role, "kind": "User", "name": account}]}),
    ]
}

/// Of each object that it may write, the account may write what is Transom's and nothing else. The release has a node policy
/// that keeps RuntimeClasses, and the class is one of its own.
#[allow(clippy::too_many_lines, reason = "one table")]
pub fn the_account_writes_only_what_is_transoms(world: &World, class: &str) {
    for object in [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lin-1", "labels": {"kubernetes.io/os": "linux"}}}),
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "theirs"}, "handler": "x"}),
    ] {
        world.create(&object);
    }
    for object in kubectl_reads(ACCOUNT) {
        world.create(&object);
    }
    let label = ["label", "node", "win-1", "team=a"];
    // The API server knows a new policy after a moment.
    assert!(
        wait(Duration::from_secs(60), || refused(world, &label).is_some()),
        "the account may set any label"
    );
    let webhooks = |path: &str, value: &str| {
        format!(r#"[{{"op": "replace", "path": "/webhooks/0/{path}", "value": {value}}}]"#)
    };
    let (rules, timeout) = (
        webhooks("rules/0/resources", r#"["*"]"#),
        webhooks("timeoutSeconds", "30"),
    );
    let conditions = r#"[{"op": "remove", "path": "/webhooks/0/matchConditions"}]"#;
    let bundle = webhooks("clientConfig/caBundle", r#""LS0tCg==""#);
    let (mutating, validating) = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration");
    let unschedulable = r#"{"spec": {"unschedulable": true}}"#;
    let finalizer = r#"{"metadata": {"finalizers": ["example.com/stay"]}}"#;
    let json_patch =
        |kind: &'static str, patch| vec!["patch", kind, "zz-transom", "--type=json", "-p", patch];
    let cases: Vec<(Vec<&str>, Option<&str>)> = vec![
        (
            vec!["label", "node", "win-1", "node.kubernetes.io/windows-build-"],
            None,
        ),
        (vec!["annotate", "node", "win-1", "transom.dev/owned-"], None),
        // It sets and removes only what its annotation names.
        (
            vec!["taint", "node", "win-1", "more=windows:NoSchedule"],
            Some("transom.dev/owned does not name"),
        ),
        // That of GKE says what the node is, and not how.
        (
            vec![
                "taint",
                "node",
                "win-1",
                "node.kubernetes.io/os=windows:NoSchedule",
            ],
            Some("transom.dev/owned does not name"),
        ),
        (label.to_vec(), Some("a label of the node")),
        (
            vec!["label", "node", "win-1", "kubernetes.io/os-"],
            Some("a label of the node"),
        ),
        (
            vec!["annotate", "node", "win-1", "note=a"],
            Some("an annotation of the node"),
        ),
        (
            vec!["patch", "node", "win-1", "-p", unschedulable],
            Some("the spec of the node"),
        ),
        (
            vec!["patch", "node", "win-1", "-p", finalizer],
            Some("its finalizers"),
        ),
        (
            vec!["taint", "node", "lin-1", "os=windows:NoSchedule"],
            Some("not a Windows node"),
        ),
        (
            vec![
                "taint",
                "node",
                "win-1",
                "node.kubernetes.io/unreachable:NoExecute",
            ],
            Some("a taint of Kubernetes"),
        ),
        (
            vec!["taint", "node", "lin-1", "node.kubernetes.io/not-ready-"],
            Some("a taint of Kubernetes"),
        ),
        (
            json_patch(mutating, &rules),
            Some("an entry of the webhook configuration"),
        ),
        (
            json_patch(mutating, conditions),
            Some("an entry of the webhook configuration"),
        ),
        (
            json_patch(validating, &timeout),
            Some("an entry of the webhook configuration"),
        ),
        (json_patch(validating, &bundle), None),
        (
            vec!["annotate", validating, "zz-transom", "a=b"],
            Some("a label, annotation, finalizer or owner"),
        ),
        (vec!["annotate", "runtimeclass", class, "a=b"], None),
        (vec!["delete", "runtimeclass", class], None),
        (
            vec!["annotate", "runtimeclass", "theirs", "a=b"],
            Some("a RuntimeClass that is not Transom's"),
        ),
        (
            vec!["delete", "runtimeclass", "theirs"],
            Some("a RuntimeClass that is not Transom's"),
        ),
    ];
    for (arguments, words) in cases {
        let refused = refused(world, &arguments);
        match (&refused, words) {
            (None, None) => {}
            (Some(refused), Some(words)) if refused.contains(words) => {}
            _ => panic!("{arguments:?}: {refused:?} instead of {words:?}"),
        }
    }
    // They speak of no other account.
    for arguments in [
        &label[..],
        &["cordon", "win-1"],
        &["delete", "runtimeclass", "theirs"],
        &["delete", "node", "lin-1"],
    ] {
        world.cluster.kubectl(arguments).succeeded();
    }
    world.cluster.kubectl(&["uncordon", "win-1"]).succeeded();
    world
        .cluster
        .kubectl(&["label", "node", "win-1", "team-"])
        .succeeded();
    for kind in ["clusterrole", "clusterrolebinding"] {
        world
            .cluster
            .kubectl(&["delete", kind, "kubectl-reads"])
            .succeeded();
    }
}

#[test]
fn the_right_to_write_goes_after_what_was_written() {
    let Some(engine) = engine() else { return };
    let Some(world) = World::start("rights that go", &untainted()) else {
        return;
    };
    let before = world.get("node", "win-1");
    leaving::install(&world, engine, &json!({}));
    let may = |verb: &str, resource: &str| {
        let requested = ["auth", "can-i", verb, resource, "--as", ACCOUNT];
        world.cluster.kubectl(&requested).out.starts_with("yes")
    };
    assert!(may("patch", "nodes") && may("delete", "runtimeclasses"));
    // With the policy goes what it wrote. The spec of before stays in the values, as with --reset-then-reuse-values.
    let mut values = json!({"replicaCount": 1, "shutdown": {"drainDelay": "0s"}, "rbac": {"runtimeClasses": true},
                            "nodePolicies": {"default": {"create": false, "spec": {"taints": {"mode": "Reconcile"}, "runtimeClasses": {"mode": "Reconcile"}}}},
                            "probe": {"enabled": true, "namespace": "second"}});
    world.deploy(engine, "upgrade", &values);
    let taken_back = || {
        let node = world.get("node", "win-1");
        node["metadata"]["annotations"] == before["metadata"]["annotations"]
            && !world.has(&["runtimeclass", CLASS])
    };
    assert!(
        wait(Duration::from_secs(90), taken_back),
        "{}",
        world.kubelet.logs()
    );
    probes_are_dry_runs(&world);
    values["rbac"] = json!({"nodePolicies": false, "runtimeClasses": false});
    world.deploy(engine, "upgrade", &values);
    assert!(!may("patch", "nodes") && !may("delete", "runtimeclasses") && may("watch", "nodes"));
}

#[test]
fn a_rollback_to_a_revision_without_a_node_policy_leaves_nothing_on_nodes() {
    let Some(engine) = engine() else { return };
    let Some(world) = World::start("a rollback over a node policy", &untainted()) else {
        return;
    };
    let before = world.get("node", "win-1");
    let none = json!({"replicaCount": 1, "shutdown": {"drainDelay": "0s"}, "nodePolicies": {"default": {"create": false}}});
    world.deploy(engine, "install", &none);
    let mut some = none.clone();
    some["nodePolicies"] = json!({"default": {"spec": {"taints": {"mode": "Reconcile"}}}});
    world.deploy(engine, "upgrade", &some);
    let owned = || world.get("node", "win-1")["metadata"]["annotations"]["transom.dev/owned"].clone();
    let is_tainted = || owned().as_str().is_some_and(|owned| owned.contains("NoSchedule"));
    assert!(
        wait(Duration::from_secs(60), is_tainted),
        "{}",
        world.kubelet.logs()
    );
    let rolled_back = world.request(engine, "rollback", &json!({"version": 1}));
    rolled_back.unwrap_or_else(|error| panic!("{error}\n{}", world.kubelet.jobs()));
    let reverted = || {
        let node = world.get("node", "win-1");
        node["metadata"]["annotations"] == before["metadata"]["annotations"]
    };
    assert!(
        wait(Duration::from_secs(90), reverted),
        "{}",
        world.kubelet.logs()
    );
}

/// Calls are seen to arrive, by the rights of the account, which stores no pod.
fn probes_are_dry_runs(world: &World) {
    let arrives = || {
        let metrics = world.kubelet.metrics();
        metrics.contains("transom_webhook_probe_success{type=\"mutating\"} 1")
            && metrics.contains("transom_webhook_probe_success{type=\"validating\"} 1")
    };
    assert!(
        wait(Duration::from_secs(90), arrives),
        "{}\n{}",
        world.kubelet.metrics(),
        world.kubelet.logs()
    );
    let mut pod = windows_pod("stored");
    pod["metadata"]["namespace"] = json!("second");
    let create = |more: &[&str]| {
        let arguments = [&["create", "-f", "-", "--as", ACCOUNT], more].concat();
        world.cluster.kubectl_with(&arguments, &pod.to_string())
    };
    let stored = create(&[]);
    assert!(
        stored.err.contains("Transom creates pods as a dry run only"),
        "{}",
        stored.err
    );
    create(&["--dry-run=server"]).succeeded();
}
