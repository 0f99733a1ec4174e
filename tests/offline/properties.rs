//! Properties of admission and of the engine, on random reviews, pods, clusters and policies.

mod in_place;
mod never_worse;
pub(super) mod pods;
mod scheduler;
mod second_actor;
mod world;

use crate::support::gate;
use crate::support::harmless::{CONTAINER_LISTS, costs_nothing};
use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use json_patch::Patch;
use pods::Signs;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use transom::admission::{AdmissionContext, Phase, review};
use transom::engine::policy_set::PolicySet;
use transom::engine::{Evaluation, evaluate, infer_os};
use transom::model::cluster::facts::{Facts, RuntimeClassFacts};
use transom::model::cluster::policy::{IgnoredFields, LinuxPods, Policy};
use transom::model::cluster::severity::{Class, Severity};
use transom::model::nodes::node::Host;
use transom::model::objects::object::{Object, ReviewStage};
use transom::model::objects::workload::Kind;
use transom::model::syntax::edit::{Edit, to_json_patch};
use transom::model::syntax::path::{Path, Segment};
use transom::model::windows::build::Build;
use transom::model::windows::image_facts::{ImageFacts, ImageVariant};
use transom::model::windows::os::{Inference, Os, Verdict};
use transom::rules::Finding;
pub(super) use world::{any_cluster, any_policy};
use world::{cluster, full_policy, guarded};

/// At least so many cases; more where `PROPTEST_CASES` says so.
pub(super) fn cases(least: u32) -> ProptestConfig {
    let set = ProptestConfig::default();
    ProptestConfig {
        cases: set.cases.max(least),
        failure_persistence: None,
        ..set
    }
}

// ---- What is asked, and what is answered.

/// A review of the creation of a pod.
fn creation(pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "somebody"},
            "object": pod,
            "oldObject": null,
        },
    })
}

fn answer(phase: Phase, review_object: &Value, facts: &Facts, policies: &PolicySet) -> Option<Value> {
    let answer = review(
        phase,
        review_object.to_string().as_bytes(),
        &AdmissionContext { facts, policies },
    )
    .ok()?;
    Some(serde_json::from_slice::<Value>(&answer.body).expect("an answer is JSON")["response"].clone())
}

fn operations(response: &Value) -> Option<Patch> {
    let patch = BASE64_STANDARD
        .decode(response["patch"].as_str()?)
        .expect("a patch is base64");
    assert_eq!(response["patchType"], "JSONPatch");
    Some(serde_json::from_slice(&patch).expect("a patch is JSON"))
}

/// The pod with the operations applied, each of which must apply.
fn patched(pod: &Value, patch: &Patch) -> Value {
    let mut pod = pod.clone();
    json_patch::patch(&mut pod, patch).expect("the patch applies");
    pod
}

/// What `/mutate` makes of the creation of a pod: whether it is allowed, the operations and the pod after them.
fn mutate(pod: &Value, facts: &Facts, policy: &Policy) -> (bool, Option<Patch>, Value) {
    let policies = PolicySet::new(Vec::new(), policy.clone());
    let response = answer(Phase::Mutate, &creation(pod), facts, &policies).expect("a review is answered");
    let operations = operations(&response);
    let after = operations
        .as_ref()
        .map_or_else(|| pod.clone(), |operations| patched(pod, operations));
    (response["allowed"] == true, operations, after)
}

fn with_subject<T>(pod: &Value, visit: impl FnOnce(&Object<'_>) -> T) -> T {
    let json = pod.to_string();
    visit(&Object::parse(Kind::Pod, &json, ReviewStage::Written).expect("the pod is readable"))
}

fn inspected(pod: &Value, facts: &Facts, policy: &Policy) -> Evaluation {
    with_subject(pod, |subject| evaluate(subject, facts, policy))
}

fn inferred(pod: &Value, facts: &Facts, policy: &Policy) -> Inference {
    with_subject(pod, |subject| infer_os(subject, facts, policy))
}

fn identities<'f>(findings: impl Iterator<Item = &'f Finding>) -> BTreeSet<(&'static str, String)> {
    findings.map(Finding::identity).collect()
}

fn rules<'f>(findings: impl Iterator<Item = &'f Finding>) -> BTreeSet<&'static str> {
    findings.map(|finding| finding.rule.id).collect()
}

// ---- What Kubernetes forbids on a pod whose spec.os.name is windows (facts 1.2).

const FORBIDDEN_OF_POD: [&str; 15] = [
    "/securityContext/appArmorProfile",
    "/securityContext/seLinuxOptions",
    "/hostUsers",
    "/hostPID",
    "/hostIPC",
    "/securityContext/seccompProfile",
    "/securityContext/fsGroup",
    "/securityContext/fsGroupChangePolicy",
    "/securityContext/sysctls",
    "/shareProcessNamespace",
    "/securityContext/runAsUser",
    "/securityContext/runAsGroup",
    "/securityContext/supplementalGroups",
    "/securityContext/supplementalGroupsPolicy",
    "/securityContext/seLinuxChangePolicy",
];

const FORBIDDEN_OF_CONTAINER: [&str; 10] = [
    "/securityContext/appArmorProfile",
    "/securityContext/seLinuxOptions",
    "/securityContext/seccompProfile",
    "/securityContext/capabilities",
    "/securityContext/readOnlyRootFilesystem",
    "/securityContext/privileged",
    "/securityContext/allowPrivilegeEscalation",
    "/securityContext/procMount",
    "/securityContext/runAsUser",
    "/securityContext/runAsGroup",
];

/// The pointers of all that the API server refuses in this pod spec where `os.name` is windows.
fn forbidden(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for pointer in FORBIDDEN_OF_POD {
        let counts = match (pointer, spec.pointer(pointer).unwrap_or(&Value::Null)) {
            ("/hostPID" | "/hostIPC", value) => value == true,
            ("/securityContext/sysctls", value) => value.as_array().is_some_and(|list| !list.is_empty()),
            (_, value) => !value.is_null(),
        };
        if counts {
            found.push(format!("/spec{pointer}"));
        }
    }
    for list in CONTAINER_LISTS {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let there = |pointer: &&&str| container.pointer(pointer).is_some_and(|value| !value.is_null());
            found.extend(
                (FORBIDDEN_OF_CONTAINER.iter().filter(there)).map(|p| format!("/spec/{list}/{index}{p}")),
            );
        }
    }
    if spec.get("resources").is_some_and(|value| !value.is_null()) {
        found.push("/spec/resources".to_owned());
    }
    found
}

/// What removal may take: what is forbidden, but what Windows does not ignore in silence.
fn removable(pod: &Value) -> Vec<String> {
    let mut fields = forbidden(&pod["spec"]);
    fields.retain(|field| !field.ends_with("/sysctls") && field != "/spec/resources");
    if pod["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet" {
        fields.push("/spec/dnsPolicy".to_owned());
    }
    fields
}

/// Where `after` lacks or changes something of `before`; lists may have grown at their end.
fn lost(before: &Value, after: &Value, at: &str, out: &mut Vec<String>) {
    match (before, after) {
        (Value::Null, _) => {}
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                match after.get(key) {
                    Some(after) => lost(value, after, &at, out),
                    None if value.is_null() => {}
                    None => out.push(at),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() <= after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                lost(before, after, &format!("{at}/{index}"), out);
            }
        }
        _ if before == after => {}
        _ => out.push(at.to_owned()),
    }
}

// ---- Reviews of anything.

/// Any JSON, with the names of real fields in it more often than not.
fn any_json() -> pods::Json {
    let name = || {
        prop_oneof![
            3 => prop::sample::select(vec![
                "uid", "kind", "apiVersion", "metadata", "spec", "name", "namespace", "containers", "initContainers",
                "template", "nodeSelector", "kubernetes.io/os", "os", "tolerations", "affinity", "nodeAffinity",
                "securityContext", "windowsOptions", "image", "volumes", "managedFields", "ownerReferences",
                "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "matchExpressions",
            ]).prop_map(str::to_owned),
            1 => ".{0,6}".prop_map(String::from),
        ]
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        name().prop_map(Value::from),
        prop::sample::select(vec![
            "windows",
            "linux",
            "Pod",
            "v1",
            "In",
            "Exists",
            "mcr.microsoft.com/windows:ltsc2022"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
    .boxed()
}

fn real_reviews() -> Vec<Value> {
    [
        include_str!("../reviews/cronjob-create.json"),
        include_str!("../reviews/daemonset-create-hostprocess.json"),
        include_str!("../reviews/deployment-create.json"),
        include_str!("../reviews/deployment-update-image.json"),
        include_str!("../reviews/pod-create-by-daemonset-hostprocess.json"),
        include_str!("../reviews/pod-create-by-replicaset-runtimeclass.json"),
        include_str!("../reviews/pod-create-dry-run.json"),
        include_str!("../reviews/pod-create-linux-fields.json"),
        include_str!("../reviews/pod-create-linux.json"),
        include_str!("../reviews/pod-create-os-windows.json"),
        include_str!("../reviews/pod-delete.json"),
        include_str!("../reviews/pod-ephemeralcontainers-update.json"),
        include_str!("../reviews/pod-resize-update.json"),
        include_str!("../reviews/pod-update-metadata.json"),
        include_str!("../reviews/pod-update-terminating.json"),
        include_str!("../reviews/replicaset-create.json"),
    ]
    .map(|text| serde_json::from_str(text).expect("a real review"))
    .into()
}

/// The pointers of every node.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                pointers(
                    value,
                    &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    out,
                );
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointers(item, &format!("{at}/{index}"), out);
            }
        }
        _ => {}
    }
}

/// A real review in which some nodes became something else.
fn mutated_review() -> impl Strategy<Value = Value> {
    let changes = prop::collection::vec((any::<Index>(), any_json()), 0..4);
    (prop::sample::select(real_reviews()), changes).prop_map(|(mut review, changes)| {
        for (node, value) in changes {
            let mut all = Vec::new();
            pointers(&review["request"], "/request", &mut all);
            let pointer = all.swap_remove(node.index(all.len()));
            *review.pointer_mut(&pointer).expect("a node of the review") = value;
        }
        review
    })
}

/// Whatever is asked, the answer is for the one who asked.
fn is_answered_with_its_uid(requested: &Value, facts: &Facts, policy: Policy) -> Result<(), TestCaseError> {
    let policies = PolicySet::new(Vec::new(), policy);
    for phase in [Phase::Mutate, Phase::Validate] {
        if let Some(response) = answer(phase, requested, facts, &policies) {
            prop_assert_eq!(&response["uid"], &requested["request"]["uid"]);
            prop_assert!(response["allowed"].is_boolean());
            if let Some(operations) = operations(&response) {
                prop_assert!(phase == Phase::Mutate && response["allowed"] == true);
                patched(&requested["request"]["object"], &operations);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(192))]

    #[test]
    fn any_json_is_answered_or_refused(object in any_json(), kind in any_json(), whole in any_json(), facts in any_cluster()) {
        let mut requested = creation(&object);
        is_answered_with_its_uid(&requested, &facts, Policy::standalone())?;
        requested["request"]["kind"] = kind;
        is_answered_with_its_uid(&requested, &facts, Policy::standalone())?;
        requested["request"] = whole.clone();
        is_answered_with_its_uid(&requested, &facts, Policy::standalone())?;
        is_answered_with_its_uid(&whole, &facts, Policy::standalone())?;
    }

    #[test]
    fn a_real_review_with_anything_in_it_is_answered(
        requested in mutated_review(), facts in any_cluster(), policy in guarded(any_policy()),
    ) {
        is_answered_with_its_uid(&requested, &facts, policy)?;
    }

    #[test]
    fn an_object_that_cannot_be_read_is_still_answered(object in any_json(), kind in prop::sample::select(Kind::ALL.to_vec())) {
        let facts = Facts::new(Facts::KUBERNETES, jiff::civil::date(2026, 1, 1));
        let mut requested = creation(&object);
        requested["request"]["kind"] = json!({"group": kind.group(), "version": "v1", "kind": kind.as_str()});
        let policies = PolicySet::new(Vec::new(), Policy::standalone());
        for phase in [Phase::Mutate, Phase::Validate] {
            let response = answer(phase, &requested, &facts, &policies);
            prop_assert_eq!(response.map(|response| response["uid"].clone()), Some(json!("u-1")));
        }
    }
}

// ---- What admission changes.

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn what_was_mutated_once_is_not_mutated_again(
        pod in pods::pod(), facts in any_cluster(), policy in guarded(any_policy()),
    ) {
        let (_, operations, after) = mutate(&pod, &facts, &policy);
        let (_, again, _) = mutate(&after, &facts, &policy);
        prop_assert_eq!(again, None, "after {:?}", operations);
    }

    #[test]
    fn the_patch_is_the_difference_and_loses_nothing(
        pod in pods::pod(), facts in any_cluster(), policy in guarded(any_policy()),
    ) {
        let (_, operations, after) = mutate(&pod, &facts, &policy);
        let difference = json_patch::diff(&pod, &after);
        let mut other = pod.clone();
        json_patch::patch(&mut other, &difference).expect("the difference applies");
        prop_assert_eq!(&other, &after);

        let mut gone = Vec::new();
        lost(&pod, &after, "", &mut gone);
        let may_take = removable(&pod);
        for place in gone {
            let beta = &pod["spec"]["nodeSelector"]["beta.kubernetes.io/os"];
            let migrated = place == "/spec/nodeSelector/beta.kubernetes.io~1os"
                && beta.as_str().is_some_and(|os| os.eq_ignore_ascii_case("windows"))
                && after["spec"]["nodeSelector"]["kubernetes.io/os"] == "windows";
            let removed = may_take.contains(&place) && policy.ignored_fields == IgnoredFields::Remove;
            prop_assert!(migrated || removed, "{place} is lost by {operations:?}");
        }
        prop_assert_ne!(operations, Some(Patch::default()), "an empty patch is none");
    }

    /// With `spec.os.name: windows`, the API server rejects even values that request nothing.
    #[test]
    fn no_ignored_field_is_an_error_unless_the_author_loses_something(
        pod in pods::pod(), facts in any_cluster(), policy in any_policy(),
    ) {
        let is_for_windows = pod["spec"]["os"]["name"] == "windows";
        for finding in inspected(&pod, &facts, &policy).findings {
            if finding.severity < Severity::Error || !matches!(finding.class, Class::Api | Class::Ignored) {
                continue;
            }
            let pointer = finding.path.pointer().to_string();
            let value = pod.pointer(&pointer).unwrap_or(&Value::Null);
            let field = pointer.rsplit('/').next().unwrap_or_default();
            let is_rejected = is_for_windows && finding.class == Class::Api;
            prop_assert!(is_rejected || !finding.rule.loses.is_empty(), "{:?} names no loss", finding.rule);
            prop_assert!(is_rejected || !costs_nothing(&pod, field, value), "{pointer}: {value}");
        }
    }

    #[test]
    fn placed_pods_and_pods_of_daemonsets_are_hardly_touched(
        pod in pods::pod(), facts in any_cluster(), policy in guarded(any_policy()),
    ) {
        let (_, operations, _) = mutate(&pod, &facts, &policy);
        // The annotation of mirror pods proves nothing: anybody may write it.
        if !pod["spec"]["nodeName"].is_null() {
            prop_assert_eq!(&operations, &None);
        }
        let may_take = removable(&pod);
        if pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet" {
            for operation in operations.iter().flat_map(|patch| patch.iter()) {
                let path = operation.path().as_str();
                let is_toleration = path == "/spec/tolerations" || path == "/spec/tolerations/-";
                let is_removal = policy.ignored_fields == IgnoredFields::Remove && may_take.iter().any(|place| place == path);
                prop_assert!(is_toleration || is_removal, "{path}");
            }
        }
    }

    #[test]
    fn placement_only_ever_narrows_where_a_pod_may_run(
        pod in pods::pod(), facts in any_cluster(), policy in guarded(any_policy()),
    ) {
        let (_, operations, after) = mutate(&pod, &facts, &policy);
        let mut pod = pod;
        if let Some(beta) = pod.pointer_mut("/spec/nodeSelector/beta.kubernetes.io~1os") {
            // Migrated, and in lower case then.
            *beta = beta.as_str().unwrap_or_default().to_lowercase().into();
        }
        if operations.is_some() {
            for node in scheduler::nodes() {
                prop_assert!(
                    !scheduler::may_run(&after["spec"], &node) || scheduler::may_run(&pod["spec"], &node),
                    "it may run on {node:?} after {operations:?}"
                );
            }
        }
    }

    #[test]
    fn added_tolerations_are_of_known_taints_and_allowed_in_the_namespace(
        pod in pods::pod(), facts in any_cluster(), policy in any_policy(),
    ) {
        let (_, operations, after) = mutate(&pod, &facts, &policy);
        let had = pod["spec"]["tolerations"].as_array().map_or(0, Vec::len);
        let whitelist = facts.namespaces["default"].tolerations_whitelist.as_deref();
        let whitelist: Option<Vec<Value>> = whitelist.map(|list| serde_json::from_str(list).unwrap_or_else(|_| vec![Value::Null]));
        let of_hosts = || facts.hosts().iter().chain(&facts.pools).flat_map(|host| &host.taints);
        let known = || of_hosts().chain(&policy.taints);
        for added in after["spec"]["tolerations"].as_array().into_iter().flatten().skip(had) {
            let is_known = known().any(|taint| {
                taint.marks_windows() && *added == json!({"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect})
            });
            prop_assert!(is_known, "{added} by {operations:?}");
            if let Some(list) = whitelist.as_ref().filter(|list| !list.is_empty()) {
                prop_assert!(list.iter().any(|listed| scheduler::covers(listed, added)), "{added} is not in {list:?}");
            }
        }
    }

    #[test]
    fn placement_never_makes_the_api_server_refuse_a_pod(
        pod in pods::pod(), facts in cluster(34..=37u32), policy in guarded(any_policy()),
    ) {
        let (allowed, operations, after) = mutate(&pod, &facts, &policy);
        let set_by_us = pod["spec"]["os"].is_null() && !after["spec"]["os"].is_null();
        if set_by_us {
            prop_assert_eq!(&after["spec"]["os"], &json!({"name": "windows"}));
            prop_assert_eq!(forbidden(&after["spec"]), Vec::<String>::new(), "by {:?}", operations);
        }
        if allowed {
            prop_assert!(mutate(&after, &facts, &policy).0, "refused after {operations:?}");
        }
    }

    #[test]
    fn placement_never_contradicts_the_runtime_class(
        pod in pods::pod(), facts in any_cluster(), policy in guarded(any_policy()),
    ) {
        // The admission plugin RuntimeClass answers a conflict with 403.
        let conflicts = |pod: &Value| -> Vec<String> {
            let class = pod["spec"]["runtimeClassName"].as_str().and_then(|name| facts.runtime_classes.get(name));
            let selected = |key: &str| pod["spec"]["nodeSelector"].get(key).and_then(Value::as_str);
            (class.into_iter().flat_map(|class| &class.node_selector))
                .filter(|(key, value)| selected(key).is_some_and(|own| own != value.as_str()))
                .map(|(key, _)| key.clone())
                .collect()
        };
        let (_, operations, after) = mutate(&pod, &facts, &policy);
        if conflicts(&pod).is_empty() {
            prop_assert_eq!(conflicts(&after), Vec::<String>::new(), "by {:?}", operations);
        }
    }
}

/// A cluster of 2019 and 2022 nodes in which the policy maps ltsc2022 to a RuntimeClass with this nodeSelector.
fn mapped_to(selector: &[(&str, &str)]) -> (Facts, Policy) {
    let mut facts = Facts::new(Facts::KUBERNETES, jiff::civil::date(2026, 1, 1));
    let node_selector = selector
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let class = RuntimeClassFacts {
        handler: "runhcs-wcow-process".to_owned(),
        node_selector,
        ..RuntimeClassFacts::default()
    };
    facts.runtime_classes.insert("mapped".to_owned(), class);
    let mapped = [("ltsc2022".to_owned(), "mapped".to_owned())].into();
    (
        facts,
        Policy {
            runtime_classes: mapped,
            ..Policy::standalone()
        },
    )
}

#[test]
fn a_runtime_class_that_does_not_fit_the_pod_is_never_set() {
    let container = json!({"name": "a", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}});
    let fits: [&[(&str, &str)]; 3] = [
        &[],
        &[("kubernetes.io/os", "windows")],
        &[("node.kubernetes.io/windows-build", "10.0.20348")],
    ];
    for selector in fits {
        let (facts, policy) = mapped_to(selector);
        assert_eq!(
            mutate(&pod, &facts, &policy).2["spec"]["runtimeClassName"],
            "mapped",
            "{selector:?}"
        );
    }
    let misfits: [&[(&str, &str)]; 3] = [
        &[("kubernetes.io/os", "linux")],
        &[("beta.kubernetes.io/os", "linux")],
        &[("node.kubernetes.io/windows-build", "10.0.17763")],
    ];
    let mut set = Vec::new();
    for selector in misfits {
        let (facts, policy) = mapped_to(selector);
        let (_, operations, after) = mutate(&pod, &facts, &policy);
        if !after["spec"]["runtimeClassName"].is_null() {
            set.push(format!("{selector:?}: {}", operations.unwrap_or_default()));
        }
    }
    assert!(set.is_empty(), "{}", set.join("\n"));
}

#[test]
fn an_empty_term_that_matches_no_node_stays_so() {
    let terms = json!([{}, {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
        "os": {"name": "windows"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        "containers": [{"name": "a", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}],
    }});
    let mut facts = Facts::new(Facts::KUBERNETES, jiff::civil::date(2026, 1, 1));
    for build in [17763, 20348] {
        let build = Some(Build::new(build));
        facts.add_host(Host {
            name: "w".to_owned(),
            build,
            labels: [
                ("kubernetes.io/os".to_owned(), "windows".to_owned()),
                ("zone".to_owned(), "a".to_owned()),
                (
                    "node.kubernetes.io/windows-build".to_owned(),
                    build.map(|build| build.to_string()).unwrap_or_default(),
                ),
            ]
            .into(),
            ..Host::default()
        });
    }
    let (_, operations, after) = mutate(&pod, &facts, &Policy::standalone());
    let pointer =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let after = after.pointer(pointer).expect("the terms");
    assert_eq!(after[0], json!({}), "{operations:?}");
    assert_eq!(
        after[1]["matchExpressions"].as_array().map(Vec::len),
        Some(2),
        "{operations:?}"
    );
}

#[test]
fn a_term_for_a_build_that_cannot_run_the_image_is_named_beside_a_term_without_a_build() {
    let (zone, unfit) = (
        json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}),
        json!({"matchExpressions": [{"key": "node.kubernetes.io/windows-build", "operator": "In", "values": ["10.0.20348"]}]}),
    );
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
        "os": {"name": "windows"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone, unfit]}}},
        "containers": [{"name": "a", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2019"}],
    }});
    let mut facts = Facts::new(Facts::KUBERNETES, jiff::civil::date(2026, 1, 1));
    facts.add_host(Host {
        name: "w".to_owned(),
        build: Some(Build::new(20348)),
        ..Host::default()
    });
    // A pool without the build label is let in by terms; a nodeSelector would close the unfit term too.
    facts.pools.push(Host {
        name: "pool".to_owned(),
        build: Some(Build::new(17763)),
        labels: [("disk".to_owned(), "ssd".to_owned())].into(),
        ..Host::default()
    });
    let policy = Policy::standalone();
    let placed = mutate(&pod, &facts, &policy).2;
    for (pod, when) in [(&pod, "as written"), (&placed, "as placed")] {
        let open = identities(inspected(pod, &facts, &policy).open());
        let unfit = ("TSM702", "spec.affinity".to_owned());
        assert!(open.contains(&unfit), "{when}: {open:?}");
    }
}

#[test]
fn a_list_where_an_object_belongs_is_no_object() {
    // The API server would not read it either.
    let facts = Facts::new(Facts::KUBERNETES, jiff::civil::date(2026, 1, 1));
    let policies = PolicySet::new(Vec::new(), Policy::standalone());
    for spec in [
        json!([["windows"]]),
        json!({"os": ["windows"]}),
        json!({"containers": [["a", "nginx"]]}),
    ] {
        let requested = creation(&json!({"metadata": {"name": "a"}, "spec": spec}));
        let response = answer(Phase::Mutate, &requested, &facts, &policies).expect("a review is answered");
        assert_eq!(
            response["allowed"], false,
            "{spec} is read as if it were an object: {response}"
        );
    }
}

// ---- What is found.

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn the_pod_after_the_patch_has_the_findings_that_were_left_open(
        pod in pods::bare(Signs::Any), facts in any_cluster(), policy in full_policy(),
    ) {
        let before = inspected(&pod, &facts, &policy);
        let after = patched(&pod, &to_json_patch(&before.edits));
        let left = inspected(&after, &facts, &policy);
        prop_assert_eq!(identities(left.findings.iter()), identities(before.open()), "after {:?}", before.edits);
        prop_assert_eq!(left.edits, vec![]);
    }

    #[test]
    fn a_rule_that_is_not_called_would_have_reported_nothing(
        pod in pods::pod(), facts in any_cluster(), policy in guarded(any_policy()),
    ) {
        let [with, without] = with_subject(&pod, |subject| gate::with_and_without(subject, &facts, &policy));
        prop_assert_eq!(with, without);
    }

    #[test]
    fn resolved_findings_are_never_counted_as_open(
        pod in pods::pod(), facts in any_cluster(), policy in guarded(any_policy()),
    ) {
        let evaluation = inspected(&pod, &facts, &policy);
        let open: BTreeSet<_> = evaluation.open().map(|finding| (finding.rule.id, finding.path.to_string())).collect();
        for finding in evaluation.findings.iter().filter(|finding| !finding.is_open()) {
            prop_assert!(!open.contains(&(finding.rule.id, finding.path.to_string())));
        }
        prop_assert!(evaluation.edits.is_empty() || evaluation.inference.verdict != Verdict::Conflicting);
    }

    #[test]
    fn a_pod_without_a_sign_of_windows_is_left_alone(
        pod in pods::bare(Signs::NoneOfWindows), facts in any_cluster(), policy in any_policy(),
    ) {
        prop_assume!(policy.linux_pods == LinuxPods::Disabled);
        let evaluation = inspected(&pod, &facts, &policy);
        prop_assert!(matches!(evaluation.inference.verdict, Verdict::Linux | Verdict::Unknown), "{:?}", evaluation.inference);
        // A name of an operating system that no API server takes is refused whatever the pod is for.
        let found = evaluation.findings.iter().filter(|finding| finding.rule.name != "os-name-invalid");
        prop_assert_eq!(identities(found), BTreeSet::new());
        prop_assert!(evaluation.edits.is_empty() && evaluation.would_edit.is_empty());
    }

    #[test]
    fn the_order_of_lists_changes_no_rule(
        (pod, shuffled) in pods::pod().prop_flat_map(|pod| {
            let lists: Vec<_> = ["containers", "initContainers", "volumes", "tolerations"].into_iter().map(|list| {
                let items = pod["spec"][list].as_array().cloned().unwrap_or_default();
                Just(items).prop_shuffle().prop_map(move |items| (list, items))
            }).collect();
            (Just(pod), lists)
        }),
        facts in any_cluster(), policy in any_policy(),
    ) {
        let mut other = pod.clone();
        for (list, items) in shuffled {
            if !items.is_empty() {
                other["spec"][list] = Value::Array(items);
            }
        }
        let (one, two) = (inspected(&pod, &facts, &policy), inspected(&other, &facts, &policy));
        prop_assert_eq!(rules(one.findings.iter()), rules(two.findings.iter()));
        prop_assert_eq!(rules(one.open()), rules(two.open()));
        prop_assert_eq!(one.inference.verdict, two.inference.verdict);
        prop_assert_eq!(one.decision(), two.decision());
    }

    #[test]
    fn a_preference_is_no_evidence(
        pod in pods::pod(), preferences in pods::preferences(), facts in any_cluster(), policy in any_policy(),
    ) {
        let before = inferred(&pod, &facts, &policy);
        prop_assert_eq!(&before, &inferred(&pod, &facts, &policy));
        let mut preferring = pod.clone();
        preferring["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = preferences;
        prop_assert_eq!(&before, &inferred(&preferring, &facts, &policy));
    }

    #[test]
    fn every_finding_points_into_the_pod(pod in pods::pod(), facts in any_cluster(), policy in any_policy()) {
        for finding in inspected(&pod, &facts, &policy).findings {
            let path = &finding.path;
            prop_assert_eq!(pod.pointer(path.pointer().as_str()), path.get(&pod), "{}", path);
            // A field that is missing may be pointed at, in an item that is there.
            let last_item = path.segments().iter().rposition(|segment| matches!(segment, Segment::Item(..)));
            let mut item = path.clone();
            while item.segments().len() > last_item.map_or(0, |at| at + 1) {
                item = item.parent().expect("a path that is not the root");
            }
            prop_assert!(item.get(&pod).is_some(), "{path} is nowhere");
            if let Some(Edit::Remove(path)) = &finding.edit {
                prop_assert!(path.get(&pod).is_some(), "nothing to remove at {path}");
            }
        }
    }

    #[test]
    fn a_pointer_leads_where_its_path_leads(value in any_json(), node in any::<Index>(), missing in "[a-z~/.]{0,4}") {
        let mut all = Vec::new();
        paths(&value, &Path::ROOT, &mut all);
        let path = all.swap_remove(node.index(all.len()));
        prop_assert!(path.get(&value).is_some());
        prop_assert_eq!(value.pointer(path.pointer().as_str()), path.get(&value));
        let further = path.clone().key(&missing);
        if !path.get(&value).is_some_and(Value::is_array) {
            prop_assert_eq!(value.pointer(further.pointer().as_str()), further.get(&value));
        }
        prop_assert_eq!(further.parent(), Some(path));
    }
}

#[test]
fn images_that_disagree_give_one_verdict_in_any_order() {
    let mut facts = Facts::new(Facts::KUBERNETES, jiff::civil::date(2026, 1, 1));
    let linux = ImageVariant::new("linux", "amd64", "");
    let linux = Arc::new(ImageFacts::of(vec![linux], jiff::Timestamp::UNIX_EPOCH));
    facts
        .images
        .insert("registry.example.com/known:2".to_owned(), linux);
    let windows = json!({"name": "a", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"});
    let known = json!({"name": "b", "image": "registry.example.com/known:2"});
    let verdict = |containers: Value| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": containers}});
        inferred(&pod, &facts, &Policy::standalone()).verdict
    };
    assert_eq!(verdict(json!([windows, known])), verdict(json!([known, windows])));
}

#[test]
fn a_patch_is_only_made_for_a_pod_with_a_spec() {
    // No API server sends one without, yet what is answered must apply to what was asked.
    let facts = Facts::new(Facts::KUBERNETES, jiff::civil::date(2026, 1, 1));
    let mut with_host = facts.clone();
    with_host.add_host(Host {
        name: "w".to_owned(),
        build: None,
        taints: Vec::new(),
        containerd: None,
        ..Host::default()
    });
    let guard = Policy {
        linux_pods: LinuxPods::Apply,
        ..Policy::standalone()
    };
    let default = Policy {
        default_os: Some(Os::Windows),
        ..Policy::standalone()
    };
    for (facts, policy) in [(with_host, guard), (facts, default)] {
        for pod in [
            json!({}),
            json!({"spec": null}),
            json!({"metadata": {"name": "a"}}),
        ] {
            mutate(&pod, &facts, &policy);
        }
    }
}

/// The paths of every node.
fn paths(value: &Value, at: &Path, out: &mut Vec<Path>) {
    out.push(at.clone());
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| paths(value, &at.clone().key(key), out)),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| paths(item, &at.clone().item(index), out));
        }
        _ => {}
    }
}
