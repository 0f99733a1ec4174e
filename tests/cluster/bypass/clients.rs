//! What clients send: encodings and kinds of patches, images and users that resemble those of an exemption, and webhooks of
//! others that change a pod before Transom, after it, or both.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use transom::model::objects::workload::Kind;

use super::place::{Answer, MALLORY, Place, RUNTIME, TEAM, denied, place, windows};
use super::{create, refuses_update};
use crate::support::control_plane::wait;
use crate::support::objects::{IMAGE, object};
use crate::support::recorder::Recorder;

const PODS: &str = "/api/v1/namespaces/team/pods";

pub fn send(place: &Place, method: &str, path: &str, content_type: &str, body: &[u8]) -> Answer {
    RUNTIME.block_on(place.send_as(method, path, content_type, body))
}

/// A field of a message of Protocol Buffers, with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut length = content.len();
    let mut encoded = vec![number << 3 | 2];
    while length >= 0x80 {
        encoded.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    encoded.push(u8::try_from(length).unwrap());
    encoded.extend_from_slice(content);
    encoded
}

fn text(number: u8, content: &str) -> Vec<u8> {
    field(number, content.as_bytes())
}

/// A Windows pod as the clients of Kubernetes in Go send it; bad by `hostPID` (field 12 of a PodSpec).
fn protobuf(name: &str, bad: bool) -> Vec<u8> {
    let container = [text(1, "web"), text(2, IMAGE)].concat();
    let selector = [text(1, "kubernetes.io/os"), text(2, "windows")].concat();
    let mut spec = [field(2, &container), field(7, &selector)].concat();
    if bad {
        spec.extend_from_slice(&[12 << 3, 1]);
    }
    let pod = [field(1, &text(1, name)), field(2, &spec)].concat();
    let kind = [text(1, "v1"), text(2, "Pod")].concat();
    [&b"k8s\0"[..], &field(1, &kind), &field(2, &pod)].concat()
}

/// JSON as CBOR; texts as byte strings if `in_bytes`, which Kubernetes accepts too.
fn cbor(value: &Value, in_bytes: bool) -> Vec<u8> {
    let head = |major: u8, length: usize| {
        let length = u16::try_from(length).unwrap().to_be_bytes();
        vec![major << 5 | 0x19, length[0], length[1]]
    };
    match value {
        Value::Bool(on) => vec![if *on { 0xf5 } else { 0xf4 }],
        Value::String(text) => {
            let major = if in_bytes { 2 } else { 3 };
            [head(major, text.len()), text.clone().into_bytes()].concat()
        }
        Value::Array(items) => {
            let encoded = items.iter().flat_map(|item| cbor(item, in_bytes));
            head(4, items.len()).into_iter().chain(encoded).collect()
        }
        Value::Object(map) => {
            let members = map.iter().flat_map(|(key, value)| {
                let key = cbor(&Value::String(key.clone()), false);
                [key, cbor(value, in_bytes)].concat()
            });
            head(5, map.len()).into_iter().chain(members).collect()
        }
        other => panic!("{other}"),
    }
}

#[test]
fn no_encoding_and_no_kind_of_patch_hides_a_field() {
    let Some(place) = place() else { return };
    let post = |content_type: &str, body: &[u8]| send(place, "POST", PODS, content_type, body);
    let bad = |name: &str| object(Kind::Pod, name, &windows(&json!({"hostPID": true})));
    let (mut attempts, mut unsupported) = (0, Vec::new());
    let mut refused = |what: &str, answer: &Answer| {
        attempts += 1;
        if answer.code == 415 {
            unsupported.push(what.to_owned());
        } else {
            assert!(
                denied(answer) && answer.message.contains("host-pid"),
                "{what}: {answer:?}"
            );
        }
    };
    let pb = "application/vnd.kubernetes.protobuf";
    refused("protobuf", &post(pb, &protobuf("encoded", true)));
    let good = post(pb, &protobuf("encoded", false));
    assert!(good.ok, "{good:?}");
    let self_described = |value: &Value, in_bytes| [&[0xd9, 0xd9, 0xf7][..], &cbor(value, in_bytes)].concat();
    for in_bytes in [false, true] {
        refused(
            "CBOR",
            &post("application/cbor", &self_described(&bad("cbor"), in_bytes)),
        );
    }
    refused(
        "YAML",
        &post("application/yaml", bad("yaml").to_string().as_bytes()),
    );
    // The last of two fields with the same name applies.
    let twice =
        bad("twice")
            .to_string()
            .replacen("\"hostPID\":true", "\"hostPID\":false,\"hostPID\":true", 1);
    refused("a field twice", &post("application/json", twice.as_bytes()));
    let escaped = bad("escaped")
        .to_string()
        .replace("hostPID", "host\\u0050ID")
        .replace("windows", "w\\u0069ndows");
    refused("escapes", &post("application/json", escaped.as_bytes()));
    let case = bad("case").to_string().replace("hostPID", "HOSTPID");
    let answer = post("application/json", case.as_bytes());
    assert!(!answer.ok || stored_is_harmless(place, "case"), "{answer:?}");

    // Patches of a Deployment that is there.
    let deployment = object(Kind::Deployment, "patched", &windows(&json!({})));
    assert!(create(place, Kind::Deployment, &deployment).ok);
    let path = "/apis/apps/v1/namespaces/team/deployments/patched";
    let host_pid = json!({"spec": {"template": {"spec": {"hostPID": true}}}}).to_string();
    let operation = json!([{"op": "add", "path": "/spec/template/spec/hostPID", "value": true}]).to_string();
    let mut applied = object(Kind::Deployment, "patched", &windows(&json!({"hostPID": true})));
    applied["metadata"]["namespace"] = json!(TEAM);
    let applied = applied.to_string();
    let forced = format!("{path}?fieldManager=mallory&force=true");
    for (content_type, path, patch) in [
        ("application/merge-patch+json", path, &host_pid),
        ("application/strategic-merge-patch+json", path, &host_pid),
        ("application/json-patch+json", path, &operation),
        ("application/apply-patch+yaml", &*forced, &applied),
    ] {
        refused(
            content_type,
            &send(place, "PATCH", path, content_type, patch.as_bytes()),
        );
    }
    let created = "/apis/apps/v1/namespaces/team/deployments/applied?fieldManager=mallory&force=true";
    let applied = applied.replace("patched", "applied");
    let answer = send(
        place,
        "PATCH",
        created,
        "application/apply-patch+yaml",
        applied.as_bytes(),
    );
    refused("an apply that creates", &answer);
    eprint_table(&format!(
        "encodings and patches: {attempts} attempts, 0 admitted, not supported: {unsupported:?}"
    ));
}

/// Whether a stored pod lacks the field, because the API server dropped it.
fn stored_is_harmless(place: &Place, name: &str) -> bool {
    let pod = RUNTIME.block_on(place.get(Kind::Pod, name));
    pod["spec"]["hostPID"] != true
}

pub fn eprint_table(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn an_exemption_is_for_the_images_and_users_that_it_names() {
    let Some(place) = place() else { return };
    let privileged = json!({"privileged": true});
    let pod = |name: &str, containers: Value| {
        object(Kind::Pod, name, &windows(&json!({ "containers": containers })))
    };
    let of = |image: &str| json!([{"name": "web", "image": image, "securityContext": privileged}]);
    let exempt = "registry.example.com/exempt/app:1-windowsservercore-ltsc2022";
    let answer = create(place, Kind::Pod, &pod("exempt", of(exempt)));
    assert!(answer.ok, "the exemption applies: {answer:?}");
    let mut attempts = 0;
    for image in [
        "registry.example.com:443/exempt/app:1",
        "REGISTRY.example.com/exempt/app:1",
        "registry.example.com/EXEMPT/app:1",
        "registry.example.com/exempt",
        "registry.example.com/exempted/app:1",
        "registry.example.com./exempt/app:1",
        "registry.example.com/x/../exempt/app:1",
        "evil.example/registry.example.com/exempt/app:1",
        "evil.example/app:1@registry.example.com/exempt/app",
        "registry.example.com",
        "registry-example.com/exempt/app:1",
    ] {
        attempts += 1;
        let answer = create(place, Kind::Pod, &pod("forged", of(image)));
        assert!(!answer.ok, "{image}: {answer:?}");
        assert!(denied(&answer) || answer.code == 422, "{image}: {answer:?}");
    }
    let other = "registry.example.com/other:1-windowsservercore-ltsc2022";
    let both = |exempt_is_bad: bool| {
        let mut list = json!([{"name": "web", "image": exempt}, {"name": "exempt", "image": other, "securityContext": privileged}]);
        if exempt_is_bad {
            list[0]["securityContext"] = privileged.clone();
        }
        list
    };
    let init = json!({"initContainers": both(true), "containers": [{"name": "a", "image": exempt}]});
    let of_pod = json!({"containers": of(exempt), "hostPID": true});
    for (what, spec) in [
        ("another container", json!({"containers": both(false)})),
        ("a second one", json!({"containers": both(true)})),
        ("an init container", init),
        ("the pod itself", of_pod),
    ] {
        for kind in [Kind::Pod, Kind::Deployment, Kind::CronJob] {
            attempts += 1;
            let answer = create(place, kind, &object(kind, "forged", &windows(&spec)));
            assert!(denied(&answer), "{what} of a {kind}: {answer:?}");
        }
    }
    // What was exempt by its image is a new finding with another image.
    let deployment = |image: &str| {
        object(
            Kind::Deployment,
            "moved",
            &windows(&json!({"containers": of(image)})),
        )
    };
    let answer = create(place, Kind::Deployment, &deployment(exempt));
    assert!(answer.ok, "{answer:?}");
    refuses_update(place, Kind::Deployment, &deployment(other), "privileged");
    let path = format!("{PODS}/exempt");
    let patch = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": other}]).to_string();
    let answer = send(
        place,
        "PATCH",
        &path,
        "application/json-patch+json",
        patch.as_bytes(),
    );
    assert!(denied(&answer), "{answer:?}");
    attempts += 2;

    // Of a user, as the API server knows the requester; what the object says is nothing.
    let bad = |more: Value| {
        let mut pod = object(Kind::Pod, "by-user", &windows(&json!({"hostIPC": true})));
        json_patch::merge(&mut pod["metadata"], &more);
        pod
    };
    for metadata in [
        json!({}),
        json!({"annotations": {"kubernetes.io/created-by": "deployer"}, "labels": {"user": "deployer"}}),
        json!({"managedFields": [{"manager": "deployer", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:hostIPC": {}}}}]}),
    ] {
        attempts += 1;
        let answer = create(place, Kind::Pod, &bad(metadata));
        assert!(denied(&answer), "{answer:?}");
    }
    let as_user = |user: &str, groups: &[&str]| {
        let mut arguments = vec![
            "create".to_owned(),
            "--dry-run=server".to_owned(),
            format!("-n={TEAM}"),
            format!("--as={user}"),
            "-f=-".to_owned(),
        ];
        arguments.extend(groups.iter().map(|group| format!("--as-group={group}")));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        place
            .cluster
            .kubectl_with(&arguments, &bad(json!({})).to_string())
    };
    for (user, groups, is_exempt) in [
        ("deployer", &["system:masters"][..], true),
        ("Deployer", &["system:masters"], false),
        ("deployer ", &["system:masters"], false),
        ("system:serviceaccount:team:deployer", &["system:masters"], false),
        (MALLORY, &["deployer", "system:authenticated"], false),
        (MALLORY, &["deployers", "system:authenticated"], true),
        (MALLORY, &["deployers ", "system:authenticated"], false),
    ] {
        attempts += usize::from(!is_exempt);
        let printed = as_user(user, groups);
        assert_eq!(printed.ok, is_exempt, "{user} {groups:?}: {printed:?}");
    }
    eprint_table(&format!("exemptions: {attempts} attempts, 0 admitted"));
}

/// What the injector of an entry does to a pod, named by the last part of its path.
fn inject(entry: &str, request: &Value) -> Option<Value> {
    let spec = &request["object"]["spec"];
    let what = request["object"]["metadata"]["labels"][entry].as_str()?;
    let set = |path: &str, value: Value| Some(json!([{"op": "add", "path": path, "value": value}]));
    let is_missing = |field: &str| spec[field].is_null();
    match what {
        "host-pid" if is_missing("hostPID") => set("/spec/hostPID", json!(true)),
        "selector" => set("/spec/nodeSelector", json!({"kubernetes.io/os": "windows"})),
        "no-selector" if !is_missing("nodeSelector") => {
            Some(json!([{"op": "remove", "path": "/spec/nodeSelector"}]))
        }
        "no-os" if !is_missing("os") => Some(json!([{"op": "remove", "path": "/spec/os"}])),
        "privileged" if spec["containers"].as_array()?.len() == 1 => set(
            "/spec/containers/-",
            json!({"name": "injected", "image": IMAGE, "securityContext": {"privileged": true}}),
        ),
        "owner" => set(
            "/metadata/ownerReferences",
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "a", "controller": true}]),
        ),
        "mirror" => set(
            "/metadata/annotations",
            json!({"kubernetes.io/config.mirror": "a"}),
        ),
        _ => None,
    }
}

/// Whether a stored pod is a Windows pod with a field that Windows does not have.
fn is_forbidden(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let is_windows = spec["os"]["name"] == "windows" || spec["nodeSelector"]["kubernetes.io/os"] == "windows";
    let containers = spec["containers"].as_array().unwrap();
    let privileged = containers
        .iter()
        .any(|it| it["securityContext"]["privileged"] == true);
    is_windows && (privileged || spec["hostPID"] == true)
}

/// What another webhook may inject.
const INJECTIONS: [&str; 8] = [
    "none",
    "host-pid",
    "selector",
    "no-selector",
    "no-os",
    "privileged",
    "owner",
    "mirror",
];

/// Webhooks of others that are called before and after Transom's, which is `zz-transom`: mutating configurations are called in
/// the order of their names.
const INJECTORS: [(&str, &str); 2] = [("aaa-bypass", "before"), ("zzzz-bypass", "after")];

/// The configuration of a webhook that injects what a pod's label asks for.
fn injector_configuration(injector: &Recorder, name: &str, entry: &str) -> Value {
    use base64::Engine as _;
    let ca = base64::prelude::BASE64_STANDARD.encode(&injector.ca);
    let webhook = |again: &str| {
        json!({
            "name": format!("{entry}-{}.example.com", again.to_lowercase()), "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "failurePolicy": "Fail", "reinvocationPolicy": again, "timeoutSeconds": 30,
            "clientConfig": {"url": format!("{}/{entry}", injector.url), "caBundle": ca},
            "objectSelector": {"matchLabels": {"again": again}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        })
    };
    let webhooks = ["Never", "IfNeeded"].map(webhook);
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": webhooks})
}

/// Creates a pod as a dry run; its labels say what is injected.
fn create_injected(place: &Place, labels: Value, spec: &Value) -> Answer {
    let mut pod = object(Kind::Pod, "ordered", spec);
    pod["metadata"]["labels"] = labels;
    let path = format!("{PODS}?dryRun=All");
    send(
        place,
        "POST",
        &path,
        "application/json",
        pod.to_string().as_bytes(),
    )
}

fn stored(answer: &Answer) -> Value {
    serde_json::from_str(&answer.message).unwrap()
}

/// Waits until the API server calls every entry of the injectors.
fn injectors_are_called(place: &Place, plain: &Value) {
    for (_, entry) in INJECTORS {
        for again in ["Never", "IfNeeded"] {
            let called = || {
                let answer = create_injected(place, json!({"again": again, entry: "host-pid"}), plain);
                answer.ok && stored(&answer)["spec"]["hostPID"] == true
            };
            assert!(wait(Duration::from_secs(60), called), "{entry} {again}");
        }
    }
}

/// Every pair of injections, each with the policy that reinvokes Transom's webhook or does not. Two injections are enough
/// for one order; the other policy is tried where it may differ.
fn pairs_of_injections() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let pairs = INJECTIONS
        .into_iter()
        .flat_map(|before| INJECTIONS.map(|after| (before, after)));
    pairs.map(|(before, after)| {
        let is_single = before == "none" || after == "none";
        (before, after, if is_single { "Never" } else { "IfNeeded" })
    })
}

#[test]
fn webhooks_of_others_in_any_order_get_nothing_forbidden_in() {
    let Some(place) = place() else { return };
    let injector = RUNTIME.block_on(Recorder::start_with(inject));
    for (name, entry) in INJECTORS {
        let configuration = injector_configuration(&injector, name, entry).to_string();
        let apply = ["apply", "--server-side", "-f", "-"];
        place.cluster.kubectl_with(&apply, &configuration).succeeded();
    }
    let plain = json!({"containers": [{"name": "web", "image": "registry.example.com/app:1"}]});
    injectors_are_called(place, &plain);
    let mut bad = plain.clone();
    bad["hostPID"] = json!(true);
    let shapes = [
        ("signless", plain),
        ("signless and bad", bad),
        ("good", windows(&json!({}))),
    ];
    let (mut attempts, mut admitted, mut refused) = (0, String::new(), 0);
    for (shape, spec) in &shapes {
        for (before, after, again) in pairs_of_injections() {
            attempts += 1;
            let labels = json!({"again": again, "before": before, "after": after});
            let answer = create_injected(place, labels, spec);
            refused += usize::from(!answer.ok);
            if answer.ok && is_forbidden(&stored(&answer)) {
                let _ = writeln!(admitted, "{shape}: {before}, then {after} ({again})");
            }
        }
    }
    eprint_table(&format!(
        "injectors: {attempts} attempts, {refused} refused, admitted: {admitted:?}"
    ));
    for (name, _) in INJECTORS {
        let delete = ["delete", "mutatingwebhookconfiguration", name];
        place.cluster.kubectl(&delete).succeeded();
    }
    assert_eq!(admitted, "");
}
