//! Pod Security on a real API server: a pod that it accepts as written, it accepts after `fix`, and after the edits of
//! admission. Without the programs of envtest these tests say so and prove nothing.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::civil::date;
use kube::api::PostParams;
use kube::core::Status;
use serde_json::{Value, json};
use transom::check::{CheckInput, CheckSettings, FixScope, Manifests, settings};
use transom::engine::evaluate;
use transom::engine::policy_set::PolicySet;
use transom::fix::fix;
use transom::model::cluster::facts::{Facts, NamespaceFacts};
use transom::model::cluster::policy::{IgnoredFields, PlacementField, PlacementMode, Policy};
use transom::model::cluster::severity::{Class, Severity};
use transom::model::objects::object::{Object, ReviewStage};
use transom::model::objects::workload::Kind;
use transom::model::syntax::edit::to_json_patch;
use transom::rules::{Finding, catalogue};

use crate::support::control_plane::{ControlPlane, programs_or_skip, wait};
use crate::support::dice::Dice;
use crate::support::harmless::costs_nothing;
use crate::support::install::{self, Replica};
use crate::support::objects::{in_namespace, object, url_of};

/// The namespaces, with the labels `pod-security.kubernetes.io/…`. The API server enforces the restricted profile where there
/// is none.
const NAMESPACES: [(&str, &[(&str, &str)]); 6] = [
    ("by-default", &[]),
    ("privileged", &[("enforce", "privileged")]),
    ("baseline", &[("enforce", "baseline")]),
    ("restricted", &[("enforce", "restricted")]),
    (
        "restricted-old",
        &[("enforce", "restricted"), ("enforce-version", "v1.24")],
    ),
    (
        "restricted-1-30",
        &[("enforce", "restricted"), ("enforce-version", "v1.30")],
    ),
];

/// The configuration of the API server: the restricted profile is the default, which the API does not show.
const ADMISSION: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: restricted, enforce-version: latest}
";

/// How many pods are thrown: `TRANSOM_THROWN_PODS`, else what takes some seconds.
fn thrown_pods() -> usize {
    let requested = std::env::var("TRANSOM_THROWN_PODS");
    requested.map_or(150, |count| {
        count.parse().expect("TRANSOM_THROWN_PODS is a number")
    })
}

/// The security context of a container, or none; most satisfy the restricted profile.
fn context(dice: &mut Dice) -> Value {
    let mut context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let more = [
        json!({"seccompProfile": {"type": "RuntimeDefault"}}),
        json!({"runAsNonRoot": true}),
        json!({"runAsUser": 1000}),
        json!({"runAsUser": 0}),
        json!({"runAsGroup": 3000}),
        json!({"readOnlyRootFilesystem": true}),
        json!({"privileged": false}),
        json!({"procMount": "Default"}),
        json!({"procMount": "Unmasked"}),
        json!({"seLinuxOptions": {"level": "s0:c1"}}),
        json!({"appArmorProfile": {"type": "RuntimeDefault"}}),
        json!({"allowPrivilegeEscalation": null}),
        json!({"capabilities": null}),
        json!({"capabilities": {"add": ["NET_BIND_SERVICE"]}}),
        json!({"windowsOptions": {"runAsUserName": "ContainerUser"}}),
    ];
    for field in &more {
        if dice.one_in(9) {
            json_patch::merge(&mut context, field);
        }
    }
    context
}

/// A pod spec; most are for Windows, and many satisfy the restricted profile.
fn thrown_spec(dice: &mut Dice) -> Value {
    let container = |name: String, dice: &mut Dice| {
        let mut container = json!({"name": name, "image": "registry.example.com/app:1"});
        if !dice.one_in(12) {
            container["securityContext"] = context(dice);
        }
        if dice.one_in(10) {
            let propagation = ["None", "HostToContainer"][dice.below(2)];
            container["volumeMounts"] =
                json!([{"name": "scratch", "mountPath": "C:/scratch", "mountPropagation": propagation}]);
        }
        container
    };
    let containers: Vec<Value> = (0..=dice.below(3))
        .map(|n| container(format!("c{n}"), dice))
        .collect();
    let mut spec = json!({
        "containers": containers, "nodeSelector": {"kubernetes.io/os": "windows"},
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
    });
    if dice.one_in(4) {
        spec["initContainers"] = json!([container("init".to_owned(), dice)]);
    }
    let more = [
        json!({"os": {"name": "windows"}}),
        json!({"os": {"name": "linux"}, "nodeSelector": null}),
        json!({"nodeSelector": {"kubernetes.io/os": null, "beta.kubernetes.io/os": "windows"}}),
        json!({"nodeSelector": {"kubernetes.io/os": "Windows"}}),
        json!({"nodeSelector": null}),
        json!({"hostUsers": false}),
        json!({"hostUsers": false, "securityContext": {"runAsNonRoot": null}}),
        json!({"hostUsers": true}),
        json!({"hostPID": true}),
        json!({"hostIPC": true}),
        json!({"hostNetwork": true}),
        json!({"shareProcessNamespace": true}),
        json!({"dnsPolicy": "ClusterFirstWithHostNet"}),
        json!({"securityContext": {"runAsNonRoot": null}}),
        json!({"securityContext": {"seccompProfile": null}}),
        json!({"securityContext": {"runAsUser": 0}}),
        json!({"securityContext": {"runAsUser": 1000, "runAsGroup": 1}}),
        json!({"securityContext": {"fsGroup": 2000, "fsGroupChangePolicy": "OnRootMismatch"}}),
        json!({"securityContext": {"supplementalGroups": [1], "supplementalGroupsPolicy": "Merge"}}),
        json!({"securityContext": {"seLinuxChangePolicy": "MountOption"}}),
        json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}}),
        json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}),
        json!({"securityContext": {"windowsOptions": {"runAsUserName": "ContainerUser"}}}),
        json!({"volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}]}),
        json!({"volumes": [{"name": "scratch", "hostPath": {"path": "/tmp", "type": "Directory"}}]}),
        json!({"tolerations": [{"operator": "Exists"}]}),
    ];
    for field in &more {
        if dice.one_in(14) {
            json_patch::merge(&mut spec, field);
        }
    }
    spec
}

fn thrown_pod(dice: &mut Dice, n: usize) -> Value {
    let mut metadata = json!({"name": format!("thrown-{n}")});
    if dice.one_in(4) {
        metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent",
            "uid": "11111111-1111-1111-1111-111111111111", "controller": true}]);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": thrown_spec(dice)})
}

/// The pod as `fix` leaves it.
fn fixed(pod: &Value, facts: &Facts, scope: &FixScope) -> Value {
    let mut manifests = Manifests::new(CheckSettings {
        keep_text: true,
        ..settings()
    });
    let bytes = pod.to_string().into_bytes();
    manifests.add(CheckInput {
        source: "pod.json".into(),
        bytes,
    });
    let policies = PolicySet::new(Vec::new(), Policy::standalone());
    let fixed = fix(&manifests, facts, &policies, scope, |_| true);
    let mut after = pod.clone();
    for object in &fixed.objects {
        assert_eq!(object.error, None, "{pod}");
        json_patch::patch(&mut after, &object.patch).unwrap();
    }
    after
}

/// The pod with the edits of admission in a namespace.
fn admitted(pod: &Value, namespace: &str, facts: &Facts, policy: &Policy) -> Value {
    let json = pod.to_string();
    let subject = Object {
        namespace: namespace.into(),
        ..Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap()
    };
    let edits = evaluate(&subject, facts, policy).edits;
    let mut after = pod.clone();
    json_patch::patch(&mut after, &to_json_patch(&edits)).unwrap();
    after
}

/// What admission may do, by name.
fn policies() -> Vec<(&'static str, Policy)> {
    let removes = Policy {
        ignored_fields: IgnoredFields::Remove,
        ..Policy::standalone()
    };
    let without_os_name = PlacementField::ALL
        .into_iter()
        .filter(|field| *field != PlacementField::OsName);
    vec![
        ("the built-in policy", Policy::standalone()),
        ("ignoredFields: Remove", removes.clone()),
        (
            "Remove without OSName",
            Policy {
                placed: without_os_name.collect(),
                ..removes.clone()
            },
        ),
        (
            "Remove without placement",
            Policy {
                placement: PlacementMode::Disabled,
                ..removes
            },
        ),
    ]
}

/// What `fix` may do, by name: everything that fits one rule, or all.
fn scopes(dice: &mut Dice) -> Vec<(String, FixScope)> {
    let all = |placement, rules| FixScope { placement, rules };
    let ids: Vec<&'static str> = catalogue().map(|rule| rule.id).collect();
    let (one, placement) = (ids[dice.below(ids.len())], dice.one_in(2));
    vec![
        ("fix".to_owned(), all(false, None)),
        ("fix --placement".to_owned(), all(true, None)),
        (
            format!("fix --select {one} (placement: {placement})"),
            all(placement, Some(vec![one])),
        ),
    ]
}

/// The API server's answer to a dry run: the reason why it rejects the pod.
async fn create(client: &kube::Client, namespace: &str, pod: &Value) -> Result<(), String> {
    let created = create_as(client, Kind::Pod, namespace, pod).await;
    created.map_err(|status| status.message)
}

/// The API server's answer to a dry run.
async fn create_as(client: &kube::Client, kind: Kind, namespace: &str, object: &Value) -> Result<(), Status> {
    let params = PostParams {
        dry_run: true,
        field_manager: None,
    };
    let request = kube::core::Request::new(url_of(kind, namespace))
        .create(&params, serde_json::to_vec(object).unwrap())
        .unwrap();
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code < 500 => Err(*status),
        Err(error) => panic!("{error}"),
    }
}

/// Namespace, pod, and each way to change it.
type PodChanges = (&'static str, Value, Vec<(String, Value)>);

#[test]
fn a_pod_that_the_api_server_accepts_it_accepts_after_fix_and_admission() {
    let Some(programs) = programs_or_skip("tests/cluster/pod_security.rs") else {
        return;
    };
    let configuration = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(configuration.path(), ADMISSION).unwrap();
    let flag = format!(
        "--admission-control-config-file={}",
        configuration.path().display()
    );
    let cluster = ControlPlane::start_with(programs, &[&flag]).unwrap_or_else(|error| panic!("{error}"));
    let mut facts = Facts::new(36, date(2026, 6, 1));
    for (name, labels) in NAMESPACES {
        let labels: Vec<(String, &str)> = labels
            .iter()
            .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), *value))
            .collect();
        let named: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        cluster.create_namespace(name, &named);
        let labels = labels
            .into_iter()
            .map(|(key, value)| (key, value.to_owned()))
            .collect();
        let known = NamespaceFacts {
            labels,
            ..NamespaceFacts::default()
        };
        Arc::make_mut(&mut facts.namespaces).insert(name.to_owned(), known);
    }
    let (mut dice, policies) = (Dice(0x0b5e), policies());
    let mut cases: Vec<PodChanges> = Vec::new();
    for n in 0..thrown_pods() {
        let pod = thrown_pod(&mut dice, n);
        // A manifest that names no namespace may be applied in any.
        let by_fix: Vec<(String, Value)> = scopes(&mut dice)
            .into_iter()
            .map(|(name, scope)| (name, fixed(&pod, &Facts::new(36, date(2026, 6, 1)), &scope)))
            .collect();
        for (namespace, _) in NAMESPACES {
            let by_admission = policies
                .iter()
                .map(|(name, policy)| ((*name).to_owned(), admitted(&pod, namespace, &facts, policy)));
            let changed: Vec<(String, Value)> = by_fix.iter().cloned().chain(by_admission).collect();
            cases.push((namespace, pod.clone(), changed));
        }
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(cluster.client_with(|_| ()));
    let answers = cases.iter().map(|(namespace, pod, changed)| {
        let client = &client;
        async move {
            let (mut asked, mut wrong) = (0, Vec::new());
            if create(client, namespace, pod).await.is_err() {
                return (asked, wrong);
            }
            for (how, after) in changed.iter().filter(|(_, after)| after != pod) {
                asked += 1;
                // Of the old profile a file says nothing: the author names the namespace among the inputs.
                let is_unknown = *namespace == "restricted-old" && how.starts_with("fix");
                match create(client, namespace, after).await {
                    Err(reason) if !is_unknown => {
                        wrong.push(format!("{how} in {namespace}: {reason}\n  {pod}\n  {after}"));
                    }
                    _ => {}
                }
            }
            (asked, wrong)
        }
    });
    let answers: Vec<_> = runtime.block_on(futures::stream::iter(answers).buffered(8).collect());
    let mut asked = BTreeMap::<&str, usize>::new();
    let mut wrong = Vec::new();
    for ((namespace, ..), (changed, refused)) in cases.iter().zip(answers) {
        *asked.entry(namespace).or_default() += changed;
        wrong.extend(refused);
    }
    println!(
        "changed pods that the API server accepted before, by namespace: {asked:?}; {} refused",
        wrong.len()
    );
    wrong.truncate(5);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(asked.values().all(|count| *count > 20), "{asked:?}");
}

/// Templates for Windows that do not say so, each with the values that correct what is not a field to remove.
fn wrong_templates() -> Vec<(&'static str, Value, Value)> {
    let linux =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsUser": 1000});
    let seccomp =
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}, "fsGroup": 2000});
    let container = |more: Value| {
        let mut container = json!({"name": "app", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"});
        json_patch::merge(&mut container, &more);
        json!({"containers": [container]})
    };
    let templates = vec![
        (
            "a user",
            container(json!({"securityContext": {"runAsUser": 1000}})),
            json!({}),
        ),
        (
            "what is required of Linux",
            container(json!({"securityContext": linux})),
            json!({}),
        ),
        (
            "everything of the pod",
            json!({"securityContext": seccomp}),
            json!({}),
        ),
        (
            "a selector",
            json!({"nodeSelector": {"kubernetes.io/os": "Windows"}}),
            json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
        ),
        (
            "a command, and a user",
            container(json!({"command": ["/bin/sh", "-c", "run"], "securityContext": {"runAsUser": 0}})),
            container(json!({"command": ["cmd.exe", "/c", "run"]})),
        ),
        (
            "memory",
            json!({"volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}]}),
            json!({"volumes": [{"name": "scratch", "emptyDir": {}}]}),
        ),
    ];
    let base = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "securityContext": {"runAsNonRoot": true},
        "containers": [{"name": "app", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]});
    let whole = |template: Value| {
        let mut spec = base.clone();
        json_patch::merge(&mut spec, &template);
        spec
    };
    let templates = templates.into_iter();
    templates
        .map(|(name, template, corrected)| (name, whole(template), corrected))
        .collect()
}

/// The template after its author has done what a denial says: the operating system is stated, what is forbidden is removed,
/// and the rest is corrected.
fn obeyed(spec: &Value, denial: &Status, corrected: &Value) -> Value {
    let mut spec = spec.clone();
    json_patch::merge(&mut spec, corrected);
    let causes = &denial.details.as_ref().unwrap().causes;
    for cause in causes {
        let field = cause.field.strip_prefix("spec.template.spec.").unwrap();
        if field == "os.name" {
            spec["os"] = json!({"name": "windows"});
        } else if cause.reason == "FieldValueForbidden" {
            let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
            let (parent, last) = pointer.rsplit_once('/').unwrap();
            if let Some(parent) = spec.pointer_mut(parent).and_then(Value::as_object_mut) {
                parent.remove(last);
            }
        }
    }
    spec
}

/// The profile does not decide about templates, only about the pods that a controller creates from them, and nobody watches
/// those.
#[test]
fn a_template_in_a_restricted_namespace_is_accepted_after_one_denial_and_so_are_its_pods() {
    let Some(cluster) = ControlPlane::start_or_skip("a template in a restricted namespace") else {
        return;
    };
    let policies = "{apiVersion: transom.dev/v1alpha1, kind: WindowsPodPolicy, metadata: {name: default}, spec: {mode: Enforce}}";
    install::prepare(&cluster, policies);
    let restricted = [("pod-security.kubernetes.io/enforce", "restricted")];
    cluster.create_namespace("restricted", &restricted);
    cluster.create_namespace("other", &[]);
    let replica = Replica::start(&cluster, "transom", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(cluster.client_with(|_| ()));
    let create = |kind, namespace: &str, spec: &Value| {
        let object = in_namespace(namespace, object(kind, "app", spec));
        let created = runtime.block_on(create_as(&client, kind, namespace, &object));
        created.map_err(Box::new)
    };
    let is_denied = || create(Kind::DaemonSet, "restricted", &wrong_templates()[0].1).is_err();
    assert!(
        wait(Duration::from_secs(60), is_denied),
        "{}",
        cluster.end_of_log("transom")
    );

    for kind in [Kind::Deployment, Kind::DaemonSet] {
        for (name, spec, corrected) in wrong_templates() {
            let denial = create(kind, "restricted", &spec).expect_err(name);
            let first = denial.message.lines().nth(1).unwrap_or_default();
            assert!(
                first.starts_with("spec.template.spec.os.name: ")
                    && first.contains("add spec.os.name: windows"),
                "{kind}, {name}: {}",
                denial.message
            );
            let obeyed = obeyed(&spec, &denial, &corrected);
            assert_eq!(
                create(kind, "restricted", &obeyed).err(),
                None,
                "{kind}, {name}: {obeyed}"
            );
            assert_eq!(
                create(Kind::Pod, "restricted", &obeyed).err(),
                None,
                "{kind}, {name}: {obeyed}"
            );
            // Where the profile is not enforced, the field is the author's choice.
            let denial = create(kind, "other", &spec).expect_err(name);
            assert!(!denial.message.contains("os-name-missing"), "{}", denial.message);
        }
    }
    // Without a problem that denies it, its author still reads it.
    let plain = in_namespace(
        "restricted",
        object(Kind::DaemonSet, "app", &wrong_templates()[3].2),
    );
    let mut plain = plain;
    plain["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "app", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]);
    let printed = cluster
        .kubectl_with(&["create", "--dry-run=server", "-f", "-"], &plain.to_string())
        .succeeded();
    assert!(
        printed.err.contains("spec.template.spec.os.name: "),
        "{printed:?}"
    );
}

/// What an error says of a pod that the API server accepts, if it is not true.
fn untrue(pod: &Value, finding: &Finding) -> Option<String> {
    let is_for_windows = pod["spec"]["os"]["name"] == "windows";
    let pointer = finding.path.pointer().to_string();
    let value = pod.pointer(&pointer).unwrap_or(&Value::Null);
    let field = pointer.rsplit('/').next().unwrap_or_default();
    let why = match finding.class {
        Class::ApiAlways => "the API server does not reject it",
        Class::Api if is_for_windows => "the API server does not reject it with spec.os.name",
        Class::Api | Class::Ignored if finding.rule.loses.is_empty() => "its rule names no loss",
        Class::Api | Class::Ignored if costs_nothing(pod, field, value) => "the value requests nothing",
        _ => return None,
    };
    Some(format!(
        "{} of {pointer}: {why}: {value}\n  {pod}",
        finding.rule.name
    ))
}

#[test]
fn a_pod_that_the_api_server_accepts_has_an_error_only_if_its_author_loses_something() {
    let Some(cluster) = ControlPlane::start_or_skip("errors on pods that the API server accepts") else {
        return;
    };
    cluster.create_namespace("any", &[("pod-security.kubernetes.io/enforce", "privileged")]);
    let (mut dice, facts) = (Dice(0x10_55), Facts::new(36, date(2026, 6, 1)));
    let pods: Vec<Value> = (0..thrown_pods() * 4).map(|n| thrown_pod(&mut dice, n)).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(cluster.client_with(|_| ()));
    let answers = pods.iter().map(|pod| create(&client, "any", pod));
    let answers: Vec<_> = runtime.block_on(futures::stream::iter(answers).buffered(8).collect());
    let accepted = pods.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
    let (mut count, mut errors, mut wrong) = (0, 0, Vec::new());
    for (pod, _) in accepted {
        count += 1;
        let json = pod.to_string();
        let subject = Object {
            namespace: "any".into(),
            ..Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap()
        };
        let findings = evaluate(&subject, &facts, &Policy::standalone()).findings;
        let found: Vec<&Finding> = findings
            .iter()
            .filter(|it| it.severity == Severity::Error)
            .collect();
        errors += found.len();
        wrong.extend(found.into_iter().filter_map(|finding| untrue(pod, finding)));
    }
    println!(
        "{errors} errors on {count} pods that the API server accepts; {} cost their authors nothing",
        wrong.len()
    );
    wrong.truncate(5);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count > thrown_pods() && errors > thrown_pods() / 2);
}
