//! Which workloads a taint would affect, object by object.

#![allow(clippy::needless_pass_by_value)] // so that cases can be written with json!

use super::*;
use crate::cluster::cache::ClusterCache;
use crate::cluster::facts;
use crate::cluster::node::NodeView;
use crate::cluster::stored_node_policies::NodePolicies;
use crate::cluster::stored_node_pools::NodePools;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{ImageEvidence, Policy};
use crate::model::nodes::node::{Host, NodeLabel};
use crate::model::windows::os::Os;
use serde_json::{Value, json};
use std::sync::Arc;

fn taints() -> Vec<Taint> {
    vec![Taint::no_schedule("os", "windows")]
}

/// The built-in policy; placement applies in the namespace `placed` only.
fn built_in(namespace: &str) -> NamespacePolicy {
    NamespacePolicy {
        policy: Policy::standalone(),
        places: namespace == "placed",
        is_reviewed: namespace == "placed",
    }
}

/// The affected workloads, given the policy of each namespace.
fn affected_under(
    policy_of: &(dyn Fn(&str) -> NamespacePolicy + Send + Sync),
    taints: &[Taint],
    cache: &ClusterCache,
    objects: &[(Kind, Value)],
) -> Impact {
    let mut cache = cache.clone();
    if cache.nodes.is_empty() {
        cache.nodes.extend([windows_node("win1", "10.0.20348.1")]);
    }
    let tainted: Vec<String> = cache.nodes.keys().cloned().collect();
    let tainted: Vec<&str> = tainted.iter().map(String::as_str).collect();
    affected_on(policy_of, taints, (&tainted, &[]), &cache, objects)
}

fn windows_node(name: &str, kernel: &str) -> (String, Arc<NodeView>) {
    let node = NodeView {
        name: name.into(),
        operating_system: "windows".into(),
        kernel_version: kernel.into(),
        labels: Arc::new([("pool".to_owned(), "win-2022".to_owned())].into()),
        ..NodeView::default()
    };
    (name.to_owned(), Arc::new(node))
}

/// The workloads that taints on some nodes affect; the second list are nodes that join others with the taints.
fn affected_on(
    policy_of: &(dyn Fn(&str) -> NamespacePolicy + Send + Sync),
    taints: &[Taint],
    (tainted, joining): (&[&str], &[&str]),
    cache: &ClusterCache,
    objects: &[(Kind, Value)],
) -> Impact {
    let survey = WorkloadSurvey::default();
    affected_in(policy_of, taints, (tainted, joining), cache, &survey, objects)
}

/// The same, in a cluster with custom resources.
fn affected_in(
    policy_of: &(dyn Fn(&str) -> NamespacePolicy + Send + Sync),
    taints: &[Taint],
    (tainted, joining): (&[&str], &[&str]),
    cache: &ClusterCache,
    survey: &WorkloadSurvey,
    objects: &[(Kind, Value)],
) -> Impact {
    let mut base = Facts::new(36, jiff::civil::Date::ZERO);
    base.namespaces = Arc::new(facts::namespaces(cache));
    base.add_node_labels(&[NodeLabel::prefix("pool", "win")]);
    let facts = facts::of(
        cache,
        &NodePolicies::of(&cache.node_policies),
        &NodePools::default(),
        &base,
        jiff::Timestamp::UNIX_EPOCH,
    );
    let group = |name: &str| match name {
        name if joining.contains(&name) => 1,
        _ => 0,
    };
    let gains = |name: &str| tainted.contains(&name) || joining.contains(&name);
    let after = |host: &Host| {
        let gained = taints.iter().filter(|_| gains(&host.name)).cloned();
        host.taints.iter().cloned().chain(gained).collect()
    };
    let change = TaintChange::new(
        &facts,
        |host| host.taints.clone(),
        after,
        |host| group(&host.name),
    );
    let names = cache.nodes.keys().filter(|name| gains(name));
    let in_pool = |name: &&str| !name.starts_with("other-");
    let nodes = GuardedNodes {
        change: &change,
        gains: names
            .map(|name| (name.as_str(), (group(name), taints.to_vec())))
            .collect(),
        // The pool of the nodes that join: those named after it.
        joining: [(
            1,
            cache.nodes.keys().map(String::as_str).filter(in_pool).collect(),
        )]
        .into(),
        complete: None,
    };
    let mut guard = Guard::new(nodes, policy_of, survey);
    for (kind, object) in objects {
        guard.visit(*kind, &object.to_string());
    }
    guard.impact(&guard.groups())
}

fn lines(affected: Impact) -> Vec<String> {
    (affected.0.into_iter())
        .map(|(place, affected)| format!("{place} ({})", affected.why))
        .collect()
}

fn affected_by(taints: &[Taint], cache: &ClusterCache, objects: &[(Kind, Value)]) -> Vec<String> {
    lines(affected_under(&built_in, taints, cache, objects))
}

fn affected(objects: &[(Kind, Value)]) -> Vec<String> {
    affected_by(&taints(), &ClusterCache::default(), objects)
}

fn template(kind: Kind, namespace: &str, name: &str, spec: Value) -> (Kind, Value) {
    let meta = json!({"namespace": namespace, "name": name});
    let object = match kind {
        Kind::CronJob => {
            json!({"metadata": meta, "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})
        }
        _ => json!({"metadata": meta, "spec": {"template": {"spec": spec}}}),
    };
    (kind, object)
}

fn windows(more: Value) -> Value {
    let mut spec =
        json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": "x"}]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec
}

fn tolerating() -> Value {
    json!({"tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]})
}

fn owned_by(mut object: (Kind, Value), kind: &str, name: &str, api_version: &str) -> (Kind, Value) {
    object.1["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "controller": true}]);
    object
}

fn pod(namespace: &str, name: &str, spec: Value, node: &str) -> (Kind, Value) {
    let mut spec = spec;
    if !node.is_empty() {
        spec["nodeName"] = json!(node);
    }
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    (
        Kind::Pod,
        json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec, "status": ready}),
    )
}

#[test]
fn a_windows_template_without_the_toleration_is_affected_where_placement_does_not_apply() {
    for kind in [
        Kind::Deployment,
        Kind::StatefulSet,
        Kind::ReplicaSet,
        Kind::Job,
        Kind::CronJob,
        Kind::ReplicationController,
    ] {
        let found = affected(&[
            template(kind, "bare", "web", windows(json!({}))),
            template(kind, "placed", "web", windows(json!({}))),
            template(kind, "bare", "good", windows(tolerating())),
            template(
                kind,
                "bare",
                "linux",
                json!({"nodeSelector": {"kubernetes.io/os": "linux"}}),
            ),
            template(kind, "bare", "unknown", json!({})),
        ]);
        assert_eq!(
            found,
            [format!(
                "{kind} bare/web (its template does not tolerate os=windows:NoSchedule)"
            )]
        );
    }
}

#[test]
fn a_daemonset_needs_the_toleration_in_its_template_wherever_it_is() {
    let found = affected(&[
        template(Kind::DaemonSet, "placed", "agent", windows(json!({}))),
        template(Kind::DaemonSet, "placed", "good", windows(tolerating())),
    ]);
    assert_eq!(
        found,
        ["DaemonSet placed/agent (its template does not tolerate os=windows:NoSchedule)"]
    );
}

#[test]
fn an_unselective_daemonset_is_affected_where_it_runs_on_windows() {
    let bare = json!({"containers": [{"name": "c", "image": "x"}]});
    let everything =
        json!({"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "x"}]});
    let of = |pod, name| owned_by(pod, "DaemonSet", name, "apps/v1");
    let found = affected(&[
        template(Kind::DaemonSet, "placed", "logs", bare.clone()),
        of(pod("placed", "logs-1", bare.clone(), "win1"), "logs"),
        of(pod("placed", "cni-1", everything, "win1"), "cni"),
        of(pod("placed", "other-1", bare, "linux1"), "other"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("DaemonSet placed/logs (it selects no operating system"));
}

#[test]
fn pods_are_evaluated_at_their_owner_and_by_themselves_where_no_known_kind_owns_them() {
    let found = affected(&[
        template(Kind::Deployment, "bare", "web", windows(tolerating())),
        owned_by(
            template(Kind::ReplicaSet, "bare", "web-1", windows(json!({}))),
            "Deployment",
            "web",
            "apps/v1",
        ),
        owned_by(
            pod("bare", "web-1-a", windows(json!({})), "win1"),
            "ReplicaSet",
            "web-1",
            "apps/v1",
        ),
        owned_by(
            template(Kind::ReplicaSet, "bare", "roll-1", windows(json!({}))),
            "Rollout",
            "roll",
            "argoproj.io/v1",
        ),
        owned_by(
            pod("bare", "spark-1", windows(json!({})), "win1"),
            "SparkApplication",
            "spark",
            "x.io/v1",
        ),
        pod("bare", "alone", windows(json!({})), "win1"),
        pod("placed", "runs", windows(json!({})), "win1"),
        pod("placed", "waits", windows(json!({})), ""),
    ]);
    let names: Vec<&str> = found
        .iter()
        .map(|text| text.split(" (").next().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "Pod bare/alone",
            "ReplicaSet bare/roll-1",
            "SparkApplication.x.io bare/spark",
            "Pod placed/waits"
        ]
    );
}

#[test]
fn a_pod_that_waits_for_a_node_is_evaluated_as_itself_whatever_its_template_says_now() {
    let of = |pod, kind: &str| owned_by(pod, kind, "web", "apps/v1");
    let found = affected(&[
        template(Kind::ReplicaSet, "placed", "web", windows(json!({}))),
        template(Kind::StatefulSet, "bare", "web", windows(tolerating())),
        template(Kind::DaemonSet, "bare", "web", windows(tolerating())),
        of(pod("placed", "web-old", windows(json!({})), ""), "ReplicaSet"),
        of(pod("placed", "web-new", windows(tolerating()), ""), "ReplicaSet"),
        of(
            pod("placed", "web-runs", windows(json!({})), "win1"),
            "ReplicaSet",
        ),
        of(pod("bare", "web-0", windows(json!({})), ""), "StatefulSet"),
        of(pod("bare", "web-d", windows(json!({})), ""), "DaemonSet"),
    ]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[1].starts_with("ReplicaSet placed/web (its pods wait for a node"),
        "{found:?}"
    );
    assert!(
        found[0].starts_with("StatefulSet bare/web (its pods wait for a node"),
        "{found:?}"
    );
}

#[test]
fn finished_and_deleted_things_are_not_affected() {
    let mut job = template(Kind::Job, "bare", "done", windows(json!({})));
    job.1["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let mut gone = template(Kind::Deployment, "bare", "gone", windows(json!({})));
    gone.1["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(affected(&[job, gone]), Vec::<String>::new());
}

#[test]
fn a_runtime_class_that_tolerates_helps_all_but_daemonsets() {
    let class = serde_json::from_value(json!({
        "metadata": {"name": "win"}, "handler": "runhcs-wcow-process",
        "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows"},
            "tolerations": [{"key": "os", "operator": "Exists"}]},
    }));
    let cache = ClusterCache {
        runtime_classes: [("win".to_owned(), Arc::new(class.unwrap()))].into(),
        ..ClusterCache::default()
    };
    let spec = json!({"runtimeClassName": "win", "containers": [{"name": "c", "image": "x"}]});
    let found = affected_by(
        &taints(),
        &cache,
        &[
            template(Kind::Deployment, "bare", "web", spec.clone()),
            template(Kind::DaemonSet, "bare", "agent", spec),
        ],
    );
    assert_eq!(
        found,
        ["DaemonSet bare/agent (its template does not tolerate os=windows:NoSchedule)"]
    );
}

#[test]
fn placement_helps_only_with_taints_that_it_learns_and_within_the_whitelist() {
    let own = [Taint::no_schedule("team", "blue")];
    let web = [template(Kind::Deployment, "placed", "web", windows(json!({})))];
    assert_eq!(affected_by(&own, &ClusterCache::default(), &web).len(), 1);
    for (whitelist, count) in [
        ("[]", 0),
        (r#"[{"key": "team"}]"#, 1),
        (r#"[{"key": "os", "operator": "Exists"}]"#, 0),
        ("x", 1),
    ] {
        let namespace = crate::cluster::cache::CachedNamespace {
            tolerations_whitelist: Some(whitelist.to_owned()),
            ..Default::default()
        };
        let cache = ClusterCache {
            namespaces: [("placed".to_owned(), Arc::new(namespace))].into(),
            ..ClusterCache::default()
        };
        assert_eq!(affected_by(&taints(), &cache, &web).len(), count, "{whitelist}");
    }
}

#[test]
fn no_execute_affects_whatever_runs_there_and_does_not_tolerate_it() {
    let evict = [Taint {
        effect: "NoExecute".into(),
        ..Taint::no_schedule("os", "windows")
    }];
    let spec = json!({"containers": [{"name": "c", "image": "x"}]});
    let run = owned_by(
        pod("placed", "web-1-a", spec, "win1"),
        "ReplicaSet",
        "web-1",
        "apps/v1",
    );
    let set = owned_by(
        template(Kind::ReplicaSet, "placed", "web-1", json!({})),
        "Deployment",
        "web",
        "apps/v1",
    );
    let found = affected_by(&evict, &ClusterCache::default(), &[set, run]);
    assert_eq!(
        found,
        ["Deployment placed/web (its pods would be evicted, as they do not tolerate os=windows:NoExecute)"]
    );
}

#[test]
fn a_namespaces_own_policy_says_what_a_windows_pod_is_and_whether_it_is_placed() {
    let plain = || NamespacePolicy {
        policy: Policy::standalone(),
        places: false,
        is_reviewed: true,
    };
    let policy_of = |namespace: &str| {
        let mut counts = plain();
        match namespace {
            "windows" => counts.policy.default_os = Some(Os::Windows),
            "no-images" => counts.policy.image_evidence = ImageEvidence::Disabled,
            "placed" => counts.places = true,
            _ => {}
        }
        counts
    };
    let pooled = json!({"nodeSelector": {"pool": "win-2022"}, "containers": [{"name": "c", "image": "x"}]});
    let bare = json!({"containers": [{"name": "c", "image": "x"}]});
    let image =
        json!({"containers": [{"name": "c", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]});
    let of =
        |namespace: &str, name: &str, spec: &Value| template(Kind::Deployment, namespace, name, spec.clone());
    let affected = affected_under(
        &policy_of,
        &taints(),
        &ClusterCache {
            nodes_are_unread: true,
            ..ClusterCache::default()
        },
        &[
            of("other", "pooled", &pooled),
            of("other", "bare", &bare),
            of("windows", "bare", &bare),
            of("placed", "image", &image),
            of("other", "image", &image),
            of("no-images", "image", &image),
        ],
    );
    let found: Vec<_> = (affected.0.into_iter())
        .map(|(place, affected)| (place.to_string(), affected.remedy.unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("Deployment other/image".to_owned(), Remedy::SelectWindows),
            ("Deployment other/pooled".to_owned(), Remedy::Tolerate),
            ("Deployment windows/bare".to_owned(), Remedy::SelectWindows),
        ]
    );
}

#[test]
fn placement_helps_with_the_taints_that_the_policy_lists_too() {
    let own = [Taint::no_schedule("team", "blue")];
    let web = [template(Kind::Deployment, "placed", "web", windows(json!({})))];
    let listed = |namespace: &str| {
        let mut counts = built_in(namespace);
        counts.policy.taints.extend(own.clone());
        counts
    };
    assert!(affected_under(&listed, &own, &ClusterCache::default(), &web).is_empty());
    assert!(!affected_under(&built_in, &own, &ClusterCache::default(), &web).is_empty());
}

#[test]
fn what_runs_on_windows_and_selects_nothing_gets_the_selector_that_is_right() {
    let bare = json!({"containers": [{"name": "c", "image": "x"}]});
    let linux =
        json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "c", "image": "x"}]});
    let policy_of = |namespace: &str| {
        let mut counts = built_in(namespace);
        counts.policy.default_os = (namespace == "linux").then_some(Os::Linux);
        counts
    };
    let run = |namespace: &str, name: &str, spec: &Value| {
        let pod = pod(namespace, &format!("{name}-1"), spec.clone(), "win1");
        owned_by(pod, "DaemonSet", name, "apps/v1")
    };
    let objects = [
        run("linux", "logs", &bare),
        run("linux", "picky", &linux),
        run("other", "agent", &bare),
        template(Kind::Deployment, "other", "web", windows(json!({}))),
    ];
    let affected = affected_under(&policy_of, &taints(), &ClusterCache::default(), &objects);
    let message = affected.message(&taints());
    let tolerations = "tolerations: [{key: os, operator: Equal, value: windows, effect: NoSchedule}]";
    for remedy in [
        format!("Write in the pod templates of Deployment other/web: {tolerations}."),
        "Write in the pod templates of DaemonSet linux/logs: nodeSelector: {kubernetes.io/os: linux}."
            .to_owned(),
        format!(
            "Write in the pod templates of DaemonSet other/agent: if it is for Windows nodeSelector: \
             {{kubernetes.io/os: windows}} and {tolerations}, if it is for Linux nodeSelector: {{kubernetes.io/os: linux}}."
        ),
    ] {
        assert!(message.contains(&remedy), "{remedy}\n{message}");
    }
    assert!(!message.contains("picky"), "{message}");
}

#[test]
fn a_host_process_daemonset_without_a_selector_gets_both() {
    let spec = json!({"containers": [{"name": "c", "image": "x"}], "hostNetwork": true,
        "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}});
    let objects = [template(Kind::DaemonSet, "placed", "proxy", spec)];
    let affected = affected_under(&built_in, &taints(), &ClusterCache::default(), &objects);
    assert!(
        affected.message(&taints()).contains(
            "Write in their pod templates: nodeSelector: {kubernetes.io/os: windows} and tolerations: [{key: os"
        ),
        "{affected:?}"
    );
}

#[test]
fn the_message_names_twenty_says_what_to_write_and_speaks_of_the_platforms() {
    let workload = |i| {
        let affected = AffectedWorkload {
            why: "x".to_owned(),
            remedy: Some(Remedy::Tolerate),
            generation: None,
        };
        (
            WorkloadName::new("apps", "Deployment", "a", &format!("d{i:02}")),
            affected,
        )
    };
    let many = Impact((0..23).map(workload).collect());
    let text = many.message(&[
        Taint::no_schedule("windows", "true"),
        Taint::no_schedule("dedicated", ""),
    ]);
    assert!(
        text.contains("23 workloads") && text.contains("a/d19 (x)") && !text.contains("a/d20"),
        "{text}"
    );
    assert!(text.contains("and 3 more"));
    assert!(text.contains(
        "Write in their pod templates: tolerations: [{key: windows, operator: Equal, value: \"true\", effect: NoSchedule}, {key: dedicated, operator: \
         Exists, effect: NoSchedule}]"
    ));
    for platform in ["AKS", "EKS", "GKE", "OpenShift"] {
        assert!(text.contains(platform));
    }
    assert_eq!(
        many.brief_of_missing(&taints()),
        "not set: os=windows:NoSchedule, because 23 workloads would be affected: Deployment a/d00, Deployment a/d01, Deployment \
         a/d02 and 20 more; the condition TaintsBlocked gives the reasons and the remedies"
    );
}

#[test]
fn the_annotation_of_mirror_pods_hides_no_object_that_a_taint_affects() {
    let annotated = |mut object: (Kind, Value)| {
        object.1["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
        object
    };
    let mirror = owned_by(
        annotated(pod("bare", "mirror", windows(json!({})), "win1")),
        "Node",
        "win1",
        "v1",
    );
    assert_eq!(affected(&[mirror]), [""; 0]);
    let found = affected(&[
        annotated(template(Kind::Deployment, "bare", "web", windows(json!({})))),
        annotated(pod("bare", "pod", windows(json!({})), "")),
    ]);
    assert_eq!(found.len(), 2, "{found:?}");
}

/// A Windows Deployment whose build is unknown.
fn of_unknown_build(more: Value) -> (Kind, Value) {
    let mut spec = windows(json!({"containers": [{"name": "c", "image": "corp.example/app:1"}]}));
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    template(Kind::Deployment, "placed", "web", spec)
}

fn two_builds() -> ClusterCache {
    ClusterCache {
        nodes: [
            windows_node("w19", "10.0.17763.1"),
            windows_node("w22", "10.0.20348.1"),
        ]
        .into(),
        ..ClusterCache::default()
    }
}

#[test]
fn the_guard_answers_what_placement_will_do_on_the_cluster_with_the_taints() {
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}],
        "containers": [{"name": "c", "image": "mcr.microsoft.com/windows/servercore:ltsc2019"}],
        "runtimeClassName": "hyperv"});
    let host_process = json!({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true,
        "runAsUserName": "NT AUTHORITY\\SYSTEM"}}});
    let mut cache = two_builds();
    let class = json!({"metadata": {"name": "hyperv"}, "handler": "runhcs-wcow-hypervisor"});
    cache.runtime_classes.insert(
        "hyperv".to_owned(),
        Arc::new(serde_json::from_value(class).unwrap()),
    );
    let on = |nodes: &[&str], object: (Kind, Value)| {
        lines(affected_on(&built_in, &taints(), (nodes, &[]), &cache, &[object]))
    };
    // Placement withholds the toleration, because an untainted node of another build is open.
    let withheld = "Deployment placed/web (placement would not give its pods, which could run there now, a toleration of \
                    os=windows:NoSchedule)";
    assert_eq!(on(&["w22"], of_unknown_build(json!({}))), [withheld]);
    assert_eq!(on(&["w19", "w22"], of_unknown_build(json!({}))), [""; 0]);
    // It withholds it too if the spread of the pods honors taints.
    assert_eq!(on(&["w22"], of_unknown_build(spread.clone())), [withheld]);
    assert_eq!(on(&["w19", "w22"], of_unknown_build(spread)), [""; 0]);
    // HostProcess pods run on every build, and get it.
    assert_eq!(on(&["w22"], of_unknown_build(host_process)), [""; 0]);
    // A build that is known and runs on the tainted node only.
    let known =
        json!({"containers": [{"name": "c", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]});
    assert_eq!(on(&["w22"], of_unknown_build(known)), [""; 0]);
    // A node that the pods cannot reach.
    let pinned = json!({"nodeSelector": {"kubernetes.io/os": "windows", "kubernetes.io/hostname": "w19"}});
    assert_eq!(on(&["w22"], of_unknown_build(pinned)), [""; 0]);
}

#[test]
fn on_a_node_that_joins_tainted_ones_only_what_runs_or_is_not_reviewed_keeps_the_taint_away() {
    let mut cache = two_builds();
    cache.nodes.extend([windows_node("other-w22", "10.0.20348.1")]);
    let on = |objects: &[(Kind, Value)]| {
        lines(affected_on(
            &built_in,
            &taints(),
            (&[], &["w22"]),
            &cache,
            objects,
        ))
        .len()
    };
    let agent = |namespace: &str| template(Kind::DaemonSet, namespace, "agent", windows(json!({})));
    let runs = |node: &str| {
        let pod = pod("placed", &format!("agent-{node}"), windows(json!({})), node);
        owned_by(pod, "DaemonSet", "agent", "apps/v1")
    };
    let mut starts = runs("w19");
    starts.1["status"] = json!({"conditions": [{"type": "Ready", "status": "False"}]});
    assert_eq!(on(&[agent("placed")]), 0);
    assert_eq!(on(&[agent("placed"), runs("w19")]), 1, "it runs in the pool");
    assert_eq!(on(&[agent("placed"), starts]), 0, "it does not run yet");
    assert_eq!(
        on(&[agent("placed"), runs("other-w22")]),
        0,
        "it runs in another pool"
    );
    assert_eq!(on(&[agent("placed"), runs("other-w22"), runs("w19")]), 1);
    assert_eq!(on(&[agent("bare")]), 1, "no webhook is called there");
    assert_eq!(on(&[pod("placed", "waits", windows(json!({})), "")]), 0);
    let old = lines(affected_on(
        &built_in,
        &taints(),
        (&["w22"], &[]),
        &cache,
        &[agent("placed")],
    ));
    assert_eq!(old.len(), 1, "{old:?}");
}

#[test]
fn what_loses_another_node_does_not_refuse_the_nodes_that_join() {
    // A node without a group, whose taints another group changes, as the survey sees it.
    let mut base = Facts::new(36, jiff::civil::Date::ZERO);
    base.namespaces = Arc::default();
    let facts = facts::of(
        &two_builds(),
        &NodePolicies::default(),
        &NodePools::default(),
        &base,
        jiff::Timestamp::UNIX_EPOCH,
    );
    let change = TaintChange::new(
        &facts,
        |host| host.taints.clone(),
        |host| {
            let gained = if host.name == "w19" { taints() } else { Vec::new() };
            host.taints.iter().cloned().chain(gained).collect()
        },
        |_| 0,
    );
    let groups = |gains: &[(&'static str, GuardGroup)]| {
        let survey = WorkloadSurvey::default();
        let nodes = GuardedNodes {
            change: &change,
            gains: (gains.iter().map(|(name, group)| (*name, (*group, taints())))).collect(),
            joining: [(1, BTreeSet::new())].into(),
            complete: None,
        };
        let mut guard = Guard::new(nodes, &built_in, &survey);
        let pinned =
            json!({"nodeSelector": {"kubernetes.io/os": "windows", "kubernetes.io/hostname": "w19"}});
        let mut spec = windows(pinned);
        spec["containers"][0]["image"] = json!("mcr.microsoft.com/windows/servercore:ltsc2019");
        let (kind, agent) = template(Kind::DaemonSet, "placed", "agent", spec);
        guard.visit(kind, &agent.to_string());
        guard.affecting_groups()
    };
    assert_eq!(groups(&[("w22", 0), ("new", 1)]), [0].into());
    assert_eq!(groups(&[("new", 1)]), BTreeSet::new());
}

mod custom_resources;
