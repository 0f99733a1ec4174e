//! Bad input: bytes that are no review and no manifest, reviews of something else, and objects of absurd size.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::civil::date;
use serde_json::{Value, json};
use transom::admission::{AdmissionContext, MalformedReview, Phase, review};
use transom::check::{CheckInput, Manifests, UnreadableInput};
use transom::engine::policy_set::PolicySet;
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::{IgnoredFields, Policy};
use transom::model::objects::object::ReviewStage;
use transom::model::windows::image::ImageRef;

#[cfg(unix)]
use crate::support::command::program;

const REAL: &str = include_str!("../reviews/pod-create-linux-fields.json");
const PHASES: [Phase; 2] = [Phase::Mutate, Phase::Validate];

fn facts() -> Facts {
    Facts::new(Facts::KUBERNETES, date(2026, 1, 1))
}

/// The response to a body.
fn respond(phase: Phase, body: &[u8]) -> Result<Value, MalformedReview> {
    let policies = PolicySet::new(
        Vec::new(),
        Policy {
            ignored_fields: IgnoredFields::Remove,
            ..Policy::standalone()
        },
    );
    respond_by(phase, body, &policies)
}

fn respond_by(phase: Phase, body: &[u8], policies: &PolicySet) -> Result<Value, MalformedReview> {
    let answer = review(
        phase,
        body,
        &AdmissionContext {
            facts: &facts(),
            policies,
        },
    )?;
    let mut answer: Value = serde_json::from_slice(&answer.body).expect("an answer is JSON");
    Ok(answer["response"].take())
}

fn asking(kind: &Value, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u-1", "kind": kind, "namespace": "default", "operation": "CREATE", "object": object},
    })
}

fn pod_kind() -> Value {
    json!({"group": "", "version": "v1", "kind": "Pod"})
}

fn asking_for_pod(object: &Value) -> Vec<u8> {
    asking(&pod_kind(), object).to_string().into_bytes()
}

/// The real review without what is not the point, so that a walk over its bytes stays short.
fn compact_review() -> Vec<u8> {
    let mut review: Value = serde_json::from_str(REAL).unwrap();
    review["request"]["object"]["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    review.to_string().into_bytes()
}

/// The processor time that this thread has used: work of others on the machine is not included.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap())
}

#[test]
fn a_review_cut_off_anywhere_is_refused() {
    let body = compact_review();
    for end in 0..body.len() {
        for phase in PHASES {
            let error = respond(phase, &body[..end]).expect_err("half a review is none");
            assert!(
                error.to_string().starts_with("cannot read the AdmissionReview: "),
                "{error}"
            );
        }
    }
    for phase in PHASES {
        assert!(respond(phase, &body).is_ok());
    }
}

#[test]
fn a_review_with_any_byte_changed_is_answered_or_refused() {
    let body = compact_review();
    for at in 0..body.len() {
        for byte in [b'"', b'}', b'0', 0xff] {
            let mut body = body.clone();
            body[at] = byte;
            let _ = respond(Phase::Mutate, &body);
        }
    }
}

#[test]
fn deep_nesting_overflows_no_stack() {
    const DEEP: usize = 100_000;
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"spec\":", "}]")] {
        let nested = format!("{}null{}", open.repeat(DEEP), close.repeat(DEEP));
        for cut in [nested.len(), nested.len() / 2] {
            for phase in PHASES {
                assert!(respond(phase, &nested.as_bytes()[..cut]).is_err());
            }
        }
        let places = ["object", "oldObject", "kind", "userInfo", "options", "unknown"];
        let in_pod = [
            "{\"spec\":@}",
            "{\"spec\":{\"containers\":@}}",
            "{\"metadata\":{\"managedFields\":@}}",
            "{\"spec\":{\"x\":@}}",
        ];
        let bodies = (places.iter().map(|place| format!("\"{place}\":{nested}"))).chain(
            in_pod
                .iter()
                .map(|pod| format!("\"object\":{}", pod.replace('@', &nested))),
        );
        for body in bodies {
            let body = format!(
                "{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{{\"uid\":\"u-1\",\
                 \"operation\":\"UPDATE\",\"kind\":{{\"kind\":\"Pod\"}},{body}}}}}"
            );
            for phase in PHASES {
                if let Ok(response) = respond(phase, body.as_bytes()) {
                    assert_eq!(response["uid"], "u-1");
                }
            }
        }
    }
}

#[test]
fn a_review_without_an_object_is_refused_with_its_uid() {
    let missing = {
        let mut review = asking(&pod_kind(), &Value::Null);
        review["request"].as_object_mut().unwrap().remove("object");
        review.to_string().into_bytes()
    };
    for body in [missing, asking_for_pod(&Value::Null)] {
        for phase in PHASES {
            let response = respond(phase, &body).unwrap();
            assert_eq!(response["uid"], "u-1");
            assert_eq!(response["allowed"], false);
            assert_eq!(response["status"]["code"], 400);
            assert_eq!(
                response["status"]["message"],
                "transom cannot read this Pod: the request has no object"
            );
        }
    }
}

#[test]
fn a_policy_that_denies_nothing_lets_what_it_cannot_read_pass() {
    let policies = PolicySet::new(Vec::new(), Policy::cluster_default());
    for object in [Value::Null, json!([]), json!({"spec": 7})] {
        for phase in PHASES {
            let response = respond_by(phase, &asking_for_pod(&object), &policies).unwrap();
            assert_eq!(
                (&response["uid"], &response["allowed"]),
                (&json!("u-1"), &json!(true)),
                "{object}"
            );
            assert!(response["patch"].is_null() && response["warnings"].is_null());
        }
    }
}

#[test]
fn objects_of_other_kinds_pass() {
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"spec": "x"}, "spec": {"os": {"name": "windows"}, "hostPID": true}});
    for (group, kind) in [
        ("", "ConfigMap"),
        ("example.com", "Pod"),
        ("kafka.example.com", "Kafka"),
        ("", "pod"),
        ("apps", "Pod"),
        ("", ""),
    ] {
        for phase in PHASES {
            let kind = json!({"group": group, "version": "v1", "kind": kind});
            let response = respond(phase, asking(&kind, &config_map).to_string().as_bytes()).unwrap();
            assert_eq!(response, json!({"uid": "u-1", "allowed": true}));
        }
    }
}

#[test]
fn an_object_of_another_kind_than_the_request_says_is_answered() {
    for object in [
        json!({"kind": "ConfigMap", "data": {"a": "b"}}),
        json!({"kind": "Foo", "spec": {"replicas": 3}}),
        json!({}),
    ] {
        for phase in PHASES {
            let response = respond(phase, &asking_for_pod(&object)).unwrap();
            assert_eq!(
                (&response["uid"], &response["allowed"]),
                (&json!("u-1"), &json!(true)),
                "{object}"
            );
        }
    }
}

#[test]
fn a_value_of_the_wrong_type_is_refused_and_its_field_is_named() {
    let wrong = [
        (
            "spec.containers[0].image",
            json!({"spec": {"containers": [{"name": "a", "image": 7}]}}),
        ),
        (
            "spec.containers[1].name",
            json!({"spec": {"containers": [{"name": "a"}, {"name": 1.5}]}}),
        ),
        (
            "spec.nodeSelector.kubernetes.io/os",
            json!({"spec": {"nodeSelector": {"kubernetes.io/os": 1}}}),
        ),
        ("spec.os.name", json!({"spec": {"os": {"name": true}}})),
        ("spec.containers", json!({"spec": {"containers": {"name": "a"}}})),
        (
            "spec.tolerations[0].key",
            json!({"spec": {"tolerations": [{"key": ["os"]}]}}),
        ),
        ("spec.hostNetwork", json!({"spec": {"hostNetwork": "yes"}})),
        ("metadata.namespace", json!({"metadata": {"namespace": 9}})),
        ("spec", json!({"spec": "windows"})),
    ];
    for (field, object) in wrong {
        for phase in PHASES {
            let response = respond(phase, &asking_for_pod(&object)).unwrap();
            assert_eq!(
                (&response["uid"], &response["allowed"]),
                (&json!("u-1"), &json!(false)),
                "{object}"
            );
            let message = response["status"]["message"].as_str().unwrap();
            assert!(
                message.starts_with(&format!("transom cannot read this Pod: {field}: invalid type: ")),
                "{message}"
            );
            assert!(!message.contains(" at line "), "{message}");
        }
    }
}

#[test]
fn a_wrong_type_in_the_request_itself_is_an_error_that_says_so() {
    for (field, value) in [
        ("uid", json!(7)),
        ("uid", json!("")),
        ("uid", Value::Null),
        ("operation", json!({})),
        ("userInfo", json!("root")),
    ] {
        let mut review = asking(&pod_kind(), &json!({}));
        review["request"][field] = value;
        for phase in PHASES {
            let error = respond(phase, review.to_string().as_bytes())
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("cannot read the AdmissionReview: ") && error.len() < 300,
                "{error}"
            );
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_answered_or_refused() {
    let invalid: [&[u8]; 5] = [
        b"\xff",
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\x00",
    ];
    let body = String::from_utf8(asking_for_pod(
        &json!({"metadata": {"name": "NAME"}, "spec": {"containers": [{"name": "IMAGE"}]}}),
    ))
    .unwrap();
    for bytes in invalid {
        for place in ["u-1", "NAME", "IMAGE", "CREATE", "Pod"] {
            let (before, after) = body.split_once(place).unwrap();
            let body = [before.as_bytes(), bytes, after.as_bytes()].concat();
            for phase in PHASES {
                if let Ok(response) = respond(phase, &body) {
                    assert!(response["uid"].is_string());
                }
            }
        }
        assert!(respond(Phase::Mutate, bytes).is_err());
    }
}

/// A pod with this many containers, each with everything that Windows has not.
fn huge_pod(count: usize) -> Value {
    let context = json!({"privileged": true, "runAsUser": 0, "capabilities": {"drop": ["ALL"]}, "procMount": "Default"});
    let container = |i: usize| {
        json!({"name": format!("container-{i}"), "image": "busybox", "securityContext": context, "command": ["/bin/sh"],
               "volumeMounts": [{"name": "data", "mountPath": "/data"}]})
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "huge", "namespace": "default"},
        "spec": {"os": {"name": "windows"}, "containers": (0..count).map(container).collect::<Vec<_>>()},
    })
}

/// Answers that a person, an event and the API server can hold.
fn assert_bounded(response: &Value) {
    let message = response["status"]["message"].as_str().unwrap_or_default();
    assert!(message.len() <= 66 * 1024, "a message of {} bytes", message.len());
    let causes = response["status"]["details"]["causes"]
        .as_array()
        .map_or(0, Vec::len);
    assert!(causes <= 200, "{causes} causes");
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    let characters: usize = warnings
        .iter()
        .map(|warning| warning.as_str().unwrap_or_default().chars().count())
        .sum();
    assert!(characters <= 4_096, "{characters} characters of warnings");
    for (key, value) in response["auditAnnotations"].as_object().into_iter().flatten() {
        assert!(
            value.as_str().unwrap_or_default().len() <= 4_100,
            "the annotation {key} is too long"
        );
    }
}

#[test]
fn a_pod_of_ten_thousand_containers_gets_an_answer_of_sane_size() {
    let body = asking_for_pod(&huge_pod(10_000));
    let by = |ignored_fields| {
        PolicySet::new(
            Vec::new(),
            Policy {
                ignored_fields,
                ..Policy::standalone()
            },
        )
    };
    for phase in PHASES {
        let started = processor_time();
        let response = respond_by(phase, &body, &by(IgnoredFields::Deny)).unwrap();
        assert_eq!(
            (&response["uid"], &response["allowed"]),
            (&json!("u-1"), &json!(false))
        );
        assert!(
            response["status"]["message"]
                .as_str()
                .unwrap()
                .contains("more; run transom check")
        );
        assert_bounded(&response);
        // Twenty times what it takes: this is about quadratic work, not about the machine.
        assert!(
            processor_time().saturating_sub(started) < Duration::from_secs(20),
            "{:?}",
            processor_time().saturating_sub(started)
        );
    }
    let removed = respond_by(Phase::Mutate, &body, &by(IgnoredFields::Remove)).unwrap();
    assert_bounded(&removed);
}

#[test]
fn a_body_of_seven_mebibytes_is_answered() {
    let mut pod = huge_pod(1);
    let one = pod["spec"]["containers"][0].clone();
    let count = (7 << 20) / one.to_string().len();
    let containers = (0..count).map(|i| {
        let mut container = one.clone();
        container["name"] = format!("c{i}").into();
        container
    });
    pod["spec"]["containers"] = containers.collect();
    let body = asking_for_pod(&pod);
    assert!(body.len() > 7_000_000);
    for phase in PHASES {
        let started = processor_time();
        assert_bounded(&respond(phase, &body).unwrap());
        assert!(
            processor_time().saturating_sub(started) < Duration::from_secs(30),
            "{:?}",
            processor_time().saturating_sub(started)
        );
    }
}

#[test]
fn one_value_of_a_mebibyte_makes_no_long_answer() {
    let long = "x".repeat(1 << 20);
    for spec in [
        json!({"os": {"name": "windows"}, "containers": [{"name": long, "image": "app", "securityContext": {"privileged": true}}]}),
        json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "os": {"name": long}, "containers": []}),
        json!({"os": {"name": "windows"}, "hostPID": true, "containers": [{"name": "a", "image": long, "workingDir": long, "command": [long]}]}),
        json!({"os": {"name": "windows"}, "nodeSelector": {"node.kubernetes.io/windows-build": long}, "containers": [{"name": "a"}]}),
        json!({"os": {"name": "windows"}, "hostPID": long}),
    ] {
        for phase in PHASES {
            let response = respond(
                phase,
                &asking_for_pod(&json!({"metadata": {"name": "a"}, "spec": spec})),
            )
            .unwrap();
            assert_bounded(&response);
            let causes = response["status"]["details"]["causes"].to_string();
            assert!(
                causes.len() <= 128 * 1024,
                "{} bytes: {}…",
                causes.len(),
                &causes[..200]
            );
        }
    }
}

#[test]
fn an_image_name_of_any_length_is_read_as_it_is_printed() {
    for length in [1, 246, 247, 248, 255, 256] {
        for text in [
            "a".repeat(length),
            format!("library/{}", "a".repeat(length)),
            format!("r.example.com/{}", "a".repeat(length)),
        ] {
            if let Ok(image) = ImageRef::parse(&text) {
                assert_eq!(
                    ImageRef::parse(&image.to_string()),
                    Ok(image),
                    "{} characters",
                    text.len()
                );
            }
        }
    }
}

// ---- Manifests.

/// What is found in one file, and what cannot be read.
fn check(bytes: &[u8]) -> (usize, Vec<UnreadableInput>) {
    let policies = PolicySet::new(Vec::new(), Policy::standalone());
    let manifests = Manifests::parse(vec![CheckInput {
        source: "file".into(),
        bytes: bytes.to_vec(),
    }]);
    let mut facts = facts();
    let objects = manifests.objects(ReviewStage::Written);
    objects.learn(&mut facts, &policies);
    let mut findings = 0;
    let started = processor_time();
    let errors = objects.check(&facts, &policies, |checked| {
        let mut places = checked.places();
        for finding in &checked.evaluation.findings {
            assert!(places.of(&finding.path).line >= 1);
            findings += 1;
            assert!(
                processor_time().saturating_sub(started) < Duration::from_secs(20),
                "only {findings} findings were located in 20 s"
            );
        }
    });
    for error in &errors {
        assert!(!error.message.is_empty() && error.source == "file");
    }
    (findings, errors)
}

const MANIFEST: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: web # the name
  labels: &labels {app: \"a\\tb\", 'it''s': \"yes\"}
  annotations: *labels
spec:
  os: {name: windows}
  nodeSelector: {kubernetes.io/os: windows}
  containers:
  - name: web
    image: mcr.microsoft.com/windows/nanoserver:ltsc2022
    command: [cmd, /c, \"echo hi\"]
    securityContext:
      privileged: true
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: !!str 1, <<: {a: b}}}
spec: {selector: {app: web}}
";

#[test]
fn a_manifest_cut_off_anywhere_is_read_or_has_an_error_with_its_line() {
    let lines = MANIFEST.lines().count();
    for end in 0..MANIFEST.len() {
        for error in check(&MANIFEST.as_bytes()[..end]).1 {
            assert!((1..=lines + 1).contains(&error.line), "cut at {end}: {error:?}");
        }
    }
    let (findings, errors) = check(MANIFEST.as_bytes());
    assert!(findings > 0 && errors.is_empty(), "{errors:?}");
}

#[test]
fn a_manifest_with_any_byte_changed_is_read_or_has_an_error() {
    for at in 0..MANIFEST.len() {
        for byte in [b'"', b'{', b'\t', b'*', b'-', 0xff] {
            let mut bytes = MANIFEST.as_bytes().to_vec();
            bytes[at] = byte;
            check(&bytes);
        }
    }
}

#[test]
fn deeply_nested_manifests_overflow_no_stack() {
    const DEEP: usize = 100_000;
    let block = |item: &str| {
        (0..2_000).fold(String::new(), |mut text, i| {
            let _ = writeln!(text, "{}{item}", " ".repeat(i));
            text
        })
    };
    for text in [
        "[".repeat(DEEP),
        "{".repeat(DEEP),
        "{\"a\":".repeat(DEEP),
        "- ".repeat(DEEP),
        format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP)),
        format!(
            "apiVersion: v1\nkind: Pod\nspec: {}{}\n",
            "[".repeat(DEEP),
            "]".repeat(DEEP)
        ),
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"spec\":{}{}}}",
            "[".repeat(DEEP),
            "]".repeat(DEEP)
        ),
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"spec\":{{\"x\":{}{}}}}}",
            "[".repeat(DEEP),
            "]".repeat(DEEP)
        ),
        block("a:"),
        block("-"),
    ] {
        let (_, errors) = check(text.as_bytes());
        assert!(errors.iter().all(|error| error.line >= 1), "{errors:?}");
    }
}

#[test]
fn a_manifest_of_the_wrong_type_names_line_and_field() {
    for (line, field, text) in [
        (
            5,
            "spec.containers[0].image",
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: 7\n",
        ),
        (
            4,
            "spec.hostNetwork",
            "apiVersion: v1\nkind: Pod\nspec:\n  hostNetwork: soon\n",
        ),
        (3, "spec", "apiVersion: v1\nkind: Pod\nspec: windows\n"),
        (
            4,
            "spec.nodeSelector",
            "apiVersion: v1\nkind: Pod\nspec:\n  nodeSelector: [a]\n",
        ),
        (
            2,
            "spec.os.name",
            "# a comment\n{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"spec\": {\"os\": {\"name\": 1}}}\n",
        ),
    ] {
        let (_, errors) = check(text.as_bytes());
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert_eq!(errors[0].line, line, "{errors:?}");
        assert!(
            errors[0]
                .message
                .starts_with(&format!("this Pod cannot be read: {field}: ")),
            "{errors:?}"
        );
    }
}

#[test]
fn what_is_no_kubernetes_object_is_an_error_and_other_kinds_are_none() {
    for text in [
        "7\n",
        "text\n",
        "[1, 2]\n",
        "a: b\n",
        "kind: Pod\n",
        "apiVersion: v1\n",
        "apiVersion: 1\nkind: [Pod]\n",
        "{}\n",
    ] {
        let (findings, errors) = check(text.as_bytes());
        assert_eq!((findings, errors.len()), (0, 1), "{text}: {errors:?}");
        assert_eq!(errors[0].line, 1, "{text}: {errors:?}");
    }
    for text in [
        "",
        "\n",
        "---\n---\n",
        "# nothing\n",
        "null\n",
        "apiVersion: v1\nkind: ConfigMap\ndata: {spec: 7}\n",
        "apiVersion: example.com/v1\nkind: Pod\nspec: 7\n",
    ] {
        assert_eq!(check(text.as_bytes()), (0, vec![]), "{text}");
    }
}

#[test]
fn a_broken_document_leaves_the_others_alone() {
    let good = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {os: {name: windows}, hostPID: true}\n";
    let (alone, none) = check(good.as_bytes());
    assert!(alone > 0 && none.is_empty());
    for broken in [
        "a: [\n",
        "a: b: c\n",
        "\tx: 1\n",
        "a: *nowhere\n",
        "\"open\n",
        "a: {{ .Values.x }}\n",
    ] {
        let (findings, errors) = check(format!("{good}---\n{broken}---\n{good}").as_bytes());
        assert!(!errors.is_empty(), "{broken}");
        assert_eq!(findings, 2 * alone, "{broken}: {errors:?}");
    }
}

#[test]
fn manifests_that_are_no_text_are_an_error() {
    for bytes in [
        &b"\xff"[..],
        b"a: \xc3\x28\n",
        b"apiVersion: v1\nkind: \xed\xa0\x80\n",
        b"\x89PNG\r\n\x1a\n\x00\x00",
    ] {
        let (findings, errors) = check(bytes);
        assert_eq!(findings, 0);
        assert!(
            !errors.is_empty() && errors.iter().all(|error| error.line >= 1),
            "{errors:?}"
        );
    }
}

#[test]
fn aliases_cannot_blow_a_manifest_up() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..20 {
        let _ = writeln!(
            text,
            "a{i}: &a{i} [{}]",
            vec![format!("*a{}", i - 1); 9].join(", ")
        );
    }
    let started = processor_time();
    let (_, errors) = check(text.as_bytes());
    assert!(!errors.is_empty());
    assert!(
        processor_time().saturating_sub(started) < Duration::from_secs(20),
        "{:?}",
        processor_time().saturating_sub(started)
    );
}

#[test]
fn a_manifest_of_ten_thousand_containers_is_checked() {
    let (findings, errors) = check(huge_pod(10_000).to_string().as_bytes());
    // Each rule keeps so many findings of one object, and counts the others.
    let most_of_all = transom::rules::MOST_OF_A_RULE * 20;
    assert!(
        findings > transom::rules::MOST_OF_A_RULE && findings < most_of_all && errors.is_empty(),
        "{findings} {errors:?}"
    );
}

/// Runs the program with a bound on its memory, waits for its end, and returns its status and what it printed.
#[cfg(unix)]
fn run_bounded(arguments: &[&str], input: std::process::Stdio) -> (Option<i32>, String) {
    let mut shell = std::process::Command::new("sh");
    // Of its address space: two gigabytes, many times what it needs for a file of the largest size that is refused.
    shell.args(["-c", "ulimit -v 2097152 && exec \"$0\" \"$@\""]);
    let output = shell
        .arg(program())
        .args(arguments)
        .stdin(input)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
#[cfg(unix)]
fn what_has_no_end_is_refused_and_takes_no_memory() {
    use std::process::Stdio;

    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe").display().to_string();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let zero = "/dev/zero";
    let cases: [(&[&str], &str); 6] = [
        (&["check", zero], "it is a device or a socket"),
        (&["check", "--policy", zero, "-"], "it is a device or a socket"),
        (
            &["serve", "--standalone", "--policy", zero],
            "it is a device or a socket",
        ),
        // A server that waits for a pipe ignores SIGTERM.
        (&["serve", "--standalone", "--policy", &pipe], "it is a pipe"),
        (&["serve", "--standalone", "--facts", &pipe], "it is a pipe"),
        (&["audit-log", zero], "it is a device or a socket"),
    ];
    for (arguments, words) in cases {
        let (status, printed) = run_bounded(arguments, Stdio::null());
        assert_eq!(
            status.map(|status| status > 0),
            Some(true),
            "{arguments:?}: {printed}"
        );
        assert!(printed.contains(words), "{arguments:?}: {printed}");
    }
    // Standard input is read to a bound.
    let zeros = std::fs::File::open(zero).unwrap();
    let (status, printed) = run_bounded(&["check", "-"], zeros.into());
    assert_eq!(status, Some(2), "{printed}");
    assert!(printed.contains("larger than 512 MiB"), "{printed}");
}

#[test]
#[cfg(unix)]
fn a_manifest_comes_out_of_a_pipe_as_a_shell_makes_one() {
    let manifest = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {os: {name: windows}, hostPID: true, containers: []}}";
    let mut shell = std::process::Command::new("bash");
    let line = format!("{} check <(echo '{manifest}')", program().display());
    let output = shell.args(["-c", &line]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("1 checked, 1 for Windows") || printed.contains("1 object checked, 1 for Windows"),
        "{output:?}"
    );
}

/// Commands that need no cluster and no registry.
#[cfg(target_os = "linux")]
const PRINTING: [&[&str]; 19] = [
    &["--help"],
    &["version"],
    &["version", "-o", "json"],
    &["rules"],
    &["rules", "-o", "json"],
    &["explain", "run-as-user"],
    &["completion", "bash"],
    &["demo"],
    &["knowledge", "show"],
    &["crds", "list"],
    &["check", "web.yaml"],
    &["check", "-o", "json", "web.yaml"],
    &["check", "-o", "sarif", "web.yaml"],
    &["fix", "web.yaml"],
    &["plan", "--to", "ltsc2025", "web.yaml"],
    &["scan", "--kubeconfig", "/nowhere"],
    &["drain", "--kubeconfig", "/nowhere", "win-1"],
    &["generate", "rules-doc"],
    &["generate", "crds"],
];

/// A panic has the exit status 101.
#[test]
#[cfg(target_os = "linux")]
fn no_command_panics_because_its_output_cannot_be_written() {
    use std::fs::File;
    use std::process::{Command, Stdio};
    let folder =
        crate::support::command::files(&[("web.yaml", &crate::support::command::bad_pod("name: web"))]);
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    for arguments in PRINTING {
        let command = || {
            let mut command = Command::new(program());
            command
                .args(arguments)
                .current_dir(folder.path())
                .stdin(Stdio::null());
            command
        };
        let to_full = command().stdout(full()).stderr(full()).status().unwrap();
        let mut unread = command()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop((unread.stdout.take(), unread.stderr.take()));
        let unread = unread.wait().unwrap();
        for (status, output) in [(to_full, "a full disk"), (unread, "a closed pipe")] {
            assert!(
                status.code().is_some_and(|code| code < 3),
                "{arguments:?}, {output}: {status}"
            );
        }
    }
}
