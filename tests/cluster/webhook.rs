//! The real webhook behind a real API server, as people meet it: through kubectl. Without the programs of envtest in
//! `$KUBEBUILDER_ASSETS` or `/usr/local/kubebuilder/bin` these tests say so and prove nothing.
#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::support::collector::{self, Collector, Mood};
use crate::support::command::{printed, program, transom};
use crate::support::control_plane::{ControlPlane, Printed, free_ports, programs_or_skip, wait};
use crate::support::objects::{IMAGE, windows_pod, workload};
use crate::support::skipped::skipped;
use serde_json::{Value, json};

const FACTS: &str = include_str!("webhook/facts.yaml");
const BAD_DEPLOYMENT: &str = include_str!("../../manifests/examples/deployment-bad.yaml");
const GOOD_DEPLOYMENT: &str = include_str!("../../manifests/examples/deployment-good.yaml");

/// The webhooks by the value of the namespace label `webhook`, and the spec of the policy that each one has.
const WEBHOOKS: [(&str, Option<&str>); 4] = [
    ("deny", None),
    ("audit", Some("{mode: Audit, placement: {mode: Apply}}")),
    ("dry", Some("{mode: Audit}")),
    // Called after "deny" in namespaces that have the label `then: second` too.
    (
        "second",
        Some(
            "{mode: Enforce, placement: {toleratedTaints: [{key: pool, value: extra, effect: NoSchedule}]}}",
        ),
    ),
];

/// The cluster that the tests of this file share; `None` where there are no programs to start one.
fn cluster() -> Option<&'static ControlPlane> {
    static CLUSTER: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    let programs = programs_or_skip("the tests of tests/cluster/webhook.rs")?;
    let started = CLUSTER.get_or_init(|| {
        // The API server's own spans go nowhere: nobody listens there.
        let [nowhere] = free_ports();
        let tracing = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n\
             endpoint: 127.0.0.1:{nowhere}\nsamplingRatePerMillion: 1000000\n"
        );
        std::fs::write(tracing.path(), text).unwrap();
        let flag = format!("--tracing-config-file={}", tracing.path().display());
        let shows = ShownToWebhooks::new();
        let cluster = ControlPlane::start_with(programs, &[&flag, &shows.flag()])?;
        shows.leave_ca(&cluster.path("client-ca.pem"));
        prepare(&cluster)?;
        Ok(cluster)
    });
    Some(started.as_ref().unwrap_or_else(|error| panic!("{error}")))
}

/// The certificate that the API server shows to webhooks, by its admission configuration as docs/how-to/restrict-access.md has it.
struct ShownToWebhooks {
    folder: tempfile::TempDir,
    ca: String,
}

impl ShownToWebhooks {
    fn new() -> Self {
        use rcgen::{
            BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
            KeyPair,
        };
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, CLIENT);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        // In it, because the API server reads files again when the folder is gone.
        let data = |text: String| {
            use base64::Engine as _;
            base64::prelude::BASE64_STANDARD.encode(text)
        };
        let (certificate, key) = (data(certificate.pem()), data(key.serialize_pem()));
        write(
            "webhooks.kubeconfig",
            &format!(
                "apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user:\n    client-certificate-data: {certificate}\n    \
                 client-key-data: {key}\n"
            ),
        );
        let kubeconfig = folder.path().join("webhooks.kubeconfig");
        let plugin = |name: &str| {
            format!(
                "- name: {name}\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    \
                 kind: WebhookAdmissionConfiguration\n    kubeConfigFile: {}\n",
                kubeconfig.display()
            )
        };
        let plugins = plugin("MutatingAdmissionWebhook") + &plugin("ValidatingAdmissionWebhook");
        write(
            "admission.yaml",
            &format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n{plugins}"
            ),
        );
        ShownToWebhooks { ca: ca.pem(), folder }
    }

    fn flag(&self) -> String {
        format!(
            "--admission-control-config-file={}",
            self.folder.path().join("admission.yaml").display()
        )
    }

    fn leave_ca(&self, path: &Path) {
        std::fs::write(path, &self.ca).unwrap();
    }
}

/// The name in the API server's certificate for webhooks.
const CLIENT: &str = "kube-apiserver";

/// Where the spans of the webhook "deny" go.
fn collector() -> &'static Collector {
    static COLLECTOR: OnceLock<Collector> = OnceLock::new();
    COLLECTOR.get_or_init(|| Collector::start(Mood::Takes))
}

/// Starts the webhooks and registers them, and makes what is in the facts.
fn prepare(cluster: &ControlPlane) -> Result<(), String> {
    std::fs::write(cluster.path("facts.yaml"), FACTS).unwrap();
    cluster.kubectl_with(&["create", "-f", "-"], FACTS).succeeded();
    for (name, policy) in WEBHOOKS {
        register(cluster, name, policy)?;
    }
    for (name, _) in WEBHOOKS {
        let namespace = format!("probe-{name}");
        cluster.create_namespace(&namespace, &[("webhook", name), ("then", "second")]);
        if name != "second" && !wait(Duration::from_secs(30), || is_called(cluster, &namespace, name)) {
            let log = cluster.end_of_log(&format!("transom-{name}"));
            return Err(format!("the webhook {name} is not called:\n{log}"));
        }
    }
    Ok(())
}

/// Whether a webhook is called in a namespace: its annotations, or its denial, tell.
fn is_called(cluster: &ControlPlane, namespace: &str, webhook: &str) -> bool {
    let mut probe = windows_pod("probe");
    set(&mut probe, "/spec/os", json!({"name": "windows"}));
    set(&mut probe, "/spec/hostPID", json!(true));
    let printed = create(cluster, namespace, &[probe], &["--dry-run=server"]);
    let decision = format!("mutate-{webhook}.transom.dev/");
    printed.err.contains("denied the request")
        || events(cluster, namespace, "probe").iter().any(|event| {
            annotations(event)
                .iter()
                .any(|(key, _)| key.starts_with(&decision))
        })
}

fn register(cluster: &ControlPlane, name: &str, policy: Option<&str>) -> Result<(), String> {
    let [port, health] = free_ports();
    let file = |name: String| cluster.path(&name).display().to_string();
    let ca = file(format!("{name}-ca.pem"));
    let mut args: Vec<String> = [
        "serve",
        "--standalone",
        "--log",
        "info,audit=debug",
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--health-listen",
        &format!("127.0.0.1:{health}"),
        "--write-ca",
        &ca,
        "--facts",
        &file("facts.yaml".to_owned()),
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(spec) = policy {
        let path = file(format!("{name}-policy.yaml"));
        let text = format!(
            "apiVersion: transom.dev/v1alpha1\nkind: WindowsPodPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        );
        std::fs::write(&path, text).unwrap();
        args.extend(["--policy".to_owned(), path]);
    }
    if name == "deny" {
        let endpoint = format!("http://{}", collector().address);
        args.extend(["--otlp-endpoint".to_owned(), endpoint]);
        // Only the API server is answered here: all that is seen to work with this webhook works with its certificate.
        args.extend(["--client-ca".to_owned(), file("client-ca.pem".to_owned())]);
        args.extend(["--client-name".to_owned(), CLIENT.to_owned()]);
        args.push("--require-client-certificate".to_owned());
    }
    let program = format!("transom-{name}");
    cluster.run_program(&program, &self::program(), &args);
    // The ports are bound before there is a certificate.
    let listens = || Path::new(&ca).exists() && std::net::TcpStream::connect(("127.0.0.1", health)).is_ok();
    if !wait(Duration::from_secs(30), listens) {
        return Err(format!(
            "{program} does not listen:\n{}",
            cluster.end_of_log(&program)
        ));
    }
    let ca = {
        use base64::Engine as _;
        base64::prelude::BASE64_STANDARD.encode(std::fs::read(&ca).unwrap())
    };
    let label = if name == "second" { "then" } else { "webhook" };
    let webhook = |phase: &str| {
        json!({
            "name": format!("{phase}-{name}.transom.dev"),
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/{phase}"), "caBundle": ca},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": 2,
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
                {"key": label, "operator": "In", "values": [name]},
            ]},
            "rules": [
                rule("", &["pods", "replicationcontrollers", "podtemplates"], &["CREATE", "UPDATE"]),
                rule("", &["pods/ephemeralcontainers", "pods/resize"], &["UPDATE"]),
                rule("apps", &["deployments", "statefulsets", "daemonsets", "replicasets"], &["CREATE", "UPDATE"]),
                rule("batch", &["jobs", "cronjobs"], &["CREATE", "UPDATE"]),
            ],
        })
    };
    let configuration = |kind: &str, webhook: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": format!("transom-{name}")},
            "webhooks": [webhook],
        })
    };
    let mut mutating = webhook("mutate");
    mutating["reinvocationPolicy"] = json!("IfNeeded");
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [
        configuration("MutatingWebhookConfiguration", mutating),
        configuration("ValidatingWebhookConfiguration", webhook("validate")),
    ]});
    cluster
        .kubectl_with(&["create", "-f", "-"], &both.to_string())
        .succeeded();
    Ok(())
}

fn rule(group: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": resources, "operations": operations})
}

/// Calls a webhook from now on in a namespace that had none.
fn switch_on(cluster: &ControlPlane, namespace: &str, webhook: &str) {
    let label = format!("webhook={webhook}");
    cluster
        .kubectl(&["label", "namespace", namespace, &label])
        .succeeded();
    let denied = || {
        let mut probe = windows_pod("probe");
        set(&mut probe, "/spec/os", json!({"name": "windows"}));
        set(&mut probe, "/spec/hostPID", json!(true));
        create(cluster, namespace, &[probe], &["--dry-run=server"])
            .err
            .contains("denied the request")
    };
    assert!(wait(Duration::from_secs(30), denied), "{webhook} is not called");
}

/// Puts a value at a JSON pointer; objects on the way are made.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut here = object;
    for word in pointer.split('/').skip(1) {
        let word = word.replace("~1", "/");
        here = match word.parse::<usize>() {
            Ok(index) => &mut here[index],
            Err(_) => &mut here[word.as_str()],
        };
    }
    *here = value;
}

fn create(cluster: &ControlPlane, namespace: &str, objects: &[Value], more: &[&str]) -> Printed {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut args = vec!["create", "-n", namespace, "-f", "-", "-o", "json"];
    args.extend(more);
    cluster.kubectl_with(&args, &list.to_string())
}

fn get(cluster: &ControlPlane, namespace: &str, what: &[&str]) -> Value {
    let mut args = vec!["get", "-n", namespace, "-o", "json"];
    args.extend(what);
    cluster.kubectl(&args).succeeded().object()
}

fn names(objects: &[Value]) -> BTreeSet<String> {
    objects
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

fn managers(object: &Value) -> BTreeSet<String> {
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| format!("{} {}", entry["manager"], entry["operation"]))
        .collect()
}

/// The audit events of an object.
fn events(cluster: &ControlPlane, namespace: &str, name: &str) -> Vec<Value> {
    let mut events = cluster.audit_events();
    events.retain(|event| event["objectRef"]["namespace"] == namespace && event["objectRef"]["name"] == name);
    events
}

/// The annotations of an audit event.
fn annotations(event: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(event["annotations"].clone()).unwrap_or_default()
}

/// What `transom check` says of objects: its report, as JSON.
fn check(cluster: &ControlPlane, file: &str, objects: &[Value]) -> Vec<Value> {
    let path = cluster.path(file);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&path, list.to_string()).unwrap();
    let report = transom(path.parent().unwrap(), &["check", "-o", "json", file]).json();
    assert_eq!(report["errors"], json!([]), "every object can be read");
    report["objects"].as_array().unwrap().clone()
}

/// The rules about what the API server refuses.
fn api_rules() -> BTreeSet<String> {
    let catalogue: Value = serde_json::from_str(&printed(&["rules", "-o", "json"])).unwrap();
    let rules = catalogue["rules"].as_array().unwrap();
    let refused = |rule: &&Value| {
        rule["severity"] == "error"
            && rule["class"]
                .as_str()
                .unwrap()
                .contains("rejected by the API server")
    };
    rules
        .iter()
        .filter(refused)
        .map(|rule| rule["rule"].as_str().unwrap().to_owned())
        .collect()
}

/// Every field that the API server refuses beside `spec.os.name: windows`, with every kind of value that counts and
/// some that do not; one pod for each.
fn pods_with_linux_fields() -> Vec<(String, Value)> {
    let pod_level = [
        (
            "securityContext/appArmorProfile",
            vec![json!({"type": "RuntimeDefault"})],
        ),
        (
            "securityContext/seLinuxOptions",
            vec![json!({}), json!({"level": "s0"})],
        ),
        ("hostUsers", vec![json!(true), json!(false)]),
        ("hostPID", vec![json!(true), json!(false)]),
        ("hostIPC", vec![json!(true), json!(false)]),
        (
            "securityContext/seccompProfile",
            vec![json!({"type": "RuntimeDefault"})],
        ),
        ("securityContext/fsGroup", vec![json!(0), json!(2000)]),
        (
            "securityContext/fsGroupChangePolicy",
            vec![json!("OnRootMismatch"), Value::Null],
        ),
        (
            "securityContext/sysctls",
            vec![
                json!([]),
                json!([{"name": "kernel.shm_rmid_forced", "value": "0"}]),
            ],
        ),
        (
            "shareProcessNamespace",
            vec![json!(true), json!(false), Value::Null],
        ),
        (
            "securityContext/runAsUser",
            vec![json!(0), json!(1000), Value::Null],
        ),
        ("securityContext/runAsGroup", vec![json!(0), json!(1000)]),
        (
            "securityContext/supplementalGroups",
            vec![json!([]), json!([5]), Value::Null],
        ),
        ("securityContext/supplementalGroupsPolicy", vec![json!("Merge")]),
        ("securityContext/seLinuxChangePolicy", vec![json!("Recursive")]),
        ("resources", vec![json!({"limits": {"memory": "1Gi"}}), json!({})]),
        // Accepted: these are here so that neither side refuses too much.
        ("securityContext/runAsNonRoot", vec![json!(true)]),
        ("hostNetwork", vec![json!(true)]),
        ("setHostnameAsFQDN", vec![json!(true)]),
    ];
    let container_level = [
        ("appArmorProfile", vec![json!({"type": "RuntimeDefault"})]),
        ("seLinuxOptions", vec![json!({}), Value::Null]),
        ("seccompProfile", vec![json!({"type": "RuntimeDefault"})]),
        ("capabilities", vec![json!({}), json!({"drop": ["ALL"]})]),
        ("readOnlyRootFilesystem", vec![json!(true), json!(false)]),
        ("privileged", vec![json!(true), json!(false)]),
        (
            "allowPrivilegeEscalation",
            vec![json!(false), json!(true), Value::Null],
        ),
        ("procMount", vec![json!("Default")]),
        ("runAsUser", vec![json!(0), json!(1000)]),
        ("runAsGroup", vec![json!(0)]),
        ("runAsNonRoot", vec![json!(true)]),
    ];
    let mut pods = Vec::new();
    let mut add = |pointer: &str, value: Value| {
        let mut pod = windows_pod(&format!("field-{:02}", pods.len()));
        let spec = pod["spec"].as_object_mut().unwrap();
        spec.insert(
            "initContainers".to_owned(),
            json!([{"name": "init", "image": IMAGE}]),
        );
        let what = format!("{pointer}: {value}");
        set(&mut pod, pointer, value);
        pods.push((what, pod));
    };
    for (field, values) in pod_level {
        for value in values {
            add(&format!("/spec/{field}"), value);
        }
    }
    for (field, values) in container_level {
        for value in values {
            for list in ["containers", "initContainers"] {
                add(&format!("/spec/{list}/0/securityContext/{field}"), value.clone());
            }
        }
    }
    pods
}

/// Names of users, good and bad: every clause of the API server's check, at its borders.
fn user_names() -> Vec<String> {
    let long = |count| "u".repeat(count);
    vec![
        String::new(),
        "ContainerAdministrator".into(),
        "ContainerUser".into(),
        r"NT AUTHORITY\NETWORK SERVICE".into(),
        r"-bad.com\user".into(),
        r"DOM AIN\user".into(),
        " a".into(),
        "user.".into(),
        "S-1-5-18".into(),
        r"CORP\gmsa$".into(),
        long(104),
        long(105),
        r"\user".into(),
        r"dom\".into(),
        r"a\b\c".into(),
        "user@corp.com".into(),
        r"sixteen_charactr\user".into(),
        r"fifteen_charact\user".into(),
        r".dom\user".into(),
        "...".into(),
        " . ".into(),
        "a\tb".into(),
        "a/b".into(),
        "a:b".into(),
        "a,b".into(),
        "a[b".into(),
        "ü".repeat(52),
        "ü".repeat(53),
        format!(r"{}\user", "d".repeat(255)),
        format!(
            r"{}\user",
            ["d".repeat(63), "e".repeat(63), "f".repeat(63), "g".repeat(63)].join(".")
        ),
        format!(r"{}\user", "d".repeat(64)),
        r"corp.example.com\user".into(),
        r"Corp.Example.com\user".into(),
        r"a..b\user".into(),
        r"corp.example.com.\user".into(),
        r"a*b\user".into(),
        r"a.-b\user".into(),
    ]
}

/// HostProcess, users and gMSA: what the API server looks at whatever `spec.os.name` says.
fn pods_with_windows_options() -> Vec<(String, Value)> {
    let mut pods = Vec::new();
    let mut add = |what: String, changes: &[(&str, Value)]| {
        let mut pod = windows_pod(&format!("option-{:02}", pods.len()));
        for (pointer, value) in changes {
            set(&mut pod, pointer, value.clone());
        }
        pods.push((what, pod));
    };
    let of_pod = "/spec/securityContext/windowsOptions/hostProcess";
    let of_first = "/spec/containers/0/securityContext/windowsOptions/hostProcess";
    let two = ("/spec/initContainers", json!([{"name": "init", "image": IMAGE}]));
    let host = ("/spec/hostNetwork", json!(true));
    add(
        "HostProcess without the host's network".into(),
        &[(of_pod, json!(true))],
    );
    add("HostProcess".into(), &[(of_pod, json!(true)), host.clone()]);
    add("HostProcess false".into(), &[(of_pod, json!(false))]);
    add(
        "HostProcess of the only container".into(),
        &[(of_first, json!(true)), host.clone()],
    );
    add(
        "HostProcess of one of two".into(),
        &[two.clone(), (of_first, json!(true)), host.clone()],
    );
    add(
        "HostProcess of all by the pod".into(),
        &[two, (of_pod, json!(true)), host.clone()],
    );
    add(
        "HostProcess true and false".into(),
        &[(of_pod, json!(true)), (of_first, json!(false)), host.clone()],
    );
    add(
        "HostProcess false and true".into(),
        &[(of_pod, json!(false)), (of_first, json!(true)), host.clone()],
    );
    add(
        "HostProcess without a root user".into(),
        &[
            (of_pod, json!(true)),
            host,
            ("/spec/securityContext/runAsNonRoot", json!(true)),
        ],
    );

    for user in user_names() {
        for place in ["", "/containers/0"] {
            let pointer = format!("/spec{place}/securityContext/windowsOptions/runAsUserName");
            add(
                format!("runAsUserName{place}: {user:?}"),
                &[(&pointer, json!(user))],
            );
        }
    }
    for name in ["webapp1", "gmsa-WebApp1", "a.b-c", "a_b", "-a", "a..b", ""] {
        let pointer = "/spec/securityContext/windowsOptions/gmsaCredentialSpecName";
        add(
            format!("gmsaCredentialSpecName: {name:?}"),
            &[(pointer, json!(name))],
        );
    }
    for length in [0, 1, 65_536, 65_537] {
        let pointer = "/spec/containers/0/securityContext/windowsOptions/gmsaCredentialSpec";
        add(
            format!("gmsaCredentialSpec of {length} bytes"),
            &[(pointer, json!("x".repeat(length)))],
        );
    }
    pods
}

/// Splits what the bare API server says of pods: the names of those that it accepts. Those that it refuses it names too.
fn accepted_by_bare(cluster: &ControlPlane, namespace: &str, pods: &[(String, Value)]) -> BTreeSet<String> {
    let objects: Vec<Value> = pods.iter().map(|(_, pod)| pod.clone()).collect();
    let printed = create(cluster, namespace, &objects, &["--dry-run=server"]);
    let accepted = names(&printed.objects());
    for (what, pod) in pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let refused = printed.err.contains(&format!("Pod \"{name}\" is invalid"));
        assert_ne!(accepted.contains(name), refused, "{what}: {}", printed.err);
    }
    accepted
}

/// The rules about what the API server refuses that `transom check` has for each pod, with a finding of one of these
/// severities.
fn found(
    cluster: &ControlPlane,
    file: &str,
    pods: &[(String, Value)],
    severities: &[&str],
) -> BTreeMap<String, Vec<String>> {
    let rules = api_rules();
    let objects: Vec<Value> = pods.iter().map(|(_, pod)| pod.clone()).collect();
    check(cluster, file, &objects)
        .iter()
        .map(|subject| {
            let is_meant = |finding: &&Value| severities.contains(&finding["severity"].as_str().unwrap());
            let findings = subject["findings"].as_array().unwrap().iter().filter(is_meant);
            let names = findings.map(|finding| finding["rule"].as_str().unwrap().to_owned());
            (
                subject["name"].as_str().unwrap().to_owned(),
                names.filter(|name| rules.contains(name)).collect(),
            )
        })
        .collect()
}

#[test]
fn a_bad_deployment_is_denied_with_all_findings_on_lines_of_their_own() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("bad", &[("webhook", "deny")]);
    let printed = cluster.kubectl_with(&["apply", "-n", "bad", "-f", "-"], BAD_DEPLOYMENT);
    assert!(!printed.ok);
    let lines: Vec<&str> = printed.err.lines().collect();
    assert_eq!(
        lines[0],
        "Error from server (Forbidden): error when creating \"STDIN\": admission webhook \
         \"validate-deny.transom.dev\" denied the request: 4 problems with Deployment bad/web for Windows:"
    );
    assert_eq!(lines.len(), 6, "{}", printed.err);
    assert_eq!(
        lines[5],
        "If Pod Security requires seccompProfile or capabilities here, set spec.os.name: windows"
    );
    // The others request nothing that Windows lacks.
    for (line, (start, end)) in lines[1..5].iter().zip([
        ("spec.template.spec.", "[TSM209 fs-group]"),
        ("spec.template.spec.", "[TSM204 run-as-user]"),
        ("(warning) spec.template.spec.", "[TSM203 seccomp-profile]"),
        ("(warning) spec.template.spec.", "[TSM212 capabilities]"),
    ]) {
        assert!(line.starts_with(start) && line.ends_with(end), "{printed:?}");
    }
}

#[test]
fn a_deployment_that_the_api_server_would_refuse_is_denied_with_all_findings_too() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("bad-os", &[("webhook", "deny")]);
    let mut bad = workload("Deployment", "web", &windows_pod("web")["spec"], 1);
    set(&mut bad, "/spec/template/spec/os", json!({"name": "windows"}));
    set(&mut bad, "/spec/template/spec/hostPID", json!(true));
    set(
        &mut bad,
        "/spec/template/spec/volumes",
        json!([{"name": "cache", "emptyDir": {"medium": "Memory"}}]),
    );
    set(
        &mut bad,
        "/spec/template/spec/containers/0/securityContext",
        json!({"privileged": true, "allowPrivilegeEscalation": true}),
    );
    let printed = cluster.kubectl_with(&["apply", "-n", "bad-os", "-f", "-"], &bad.to_string());
    assert!(!printed.ok);
    assert!(
        printed
            .err
            .contains("\"mutate-deny.transom.dev\" denied the request: "),
        "{printed:?}"
    );
    for rule in [
        "host-pid",
        "empty-dir-memory",
        "privileged",
        "allow-privilege-escalation",
    ] {
        assert!(
            printed
                .err
                .lines()
                .any(|line| line.ends_with(&format!(" {rule}]"))),
            "{rule}: {printed:?}"
        );
    }
}

#[test]
fn a_good_deployment_is_stored_as_it_was_written() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("good", &[("webhook", "deny")]);
    cluster.create_namespace("good-bare", &[]);
    let mut stored = Vec::new();
    for namespace in ["good", "good-bare"] {
        let printed = cluster
            .kubectl_with(&["apply", "-n", namespace, "-f", "-"], GOOD_DEPLOYMENT)
            .succeeded();
        assert_eq!(printed.out, "deployment.apps/web created\n");
        assert_eq!(printed.err, "", "no warning");
        stored.push(get(
            cluster,
            namespace,
            &["deployment/web", "--show-managed-fields"],
        ));
    }
    assert_eq!(stored[0]["spec"], stored[1]["spec"], "as without a webhook");
    let applied = r#""kubectl-client-side-apply" "Update""#;
    assert!(
        managers(&stored[0]).contains(applied),
        "{:?}",
        managers(&stored[0])
    );
    assert!(
        managers(&stored[0])
            .iter()
            .all(|manager| !manager.contains("transom")),
        "no fields of ours"
    );
}

#[test]
fn a_pod_that_says_windows_is_refused_by_the_api_server_just_where_transom_finds_an_error() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("bare-os", &[]);
    let mut pods = pods_with_linux_fields();
    pods.extend(pods_with_windows_options());
    for (_, pod) in &mut pods {
        set(pod, "/spec/os", json!({"name": "windows"}));
    }
    for (index, os) in ["Windows", "freebsd", ""].into_iter().enumerate() {
        let mut other = windows_pod(&format!("os-{index}"));
        set(&mut other, "/spec/os", json!({"name": os}));
        pods.push((format!("os.name: {os:?}"), other));
    }
    let accepted = accepted_by_bare(cluster, "bare-os", &pods);
    let found = found(cluster, "differential-os.json", &pods, &["error"]);
    let mut wrong = Vec::new();
    for (what, pod) in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        if accepted.contains(name) != found[name].is_empty() {
            let server = if accepted.contains(name) {
                "accepts"
            } else {
                "refuses"
            };
            wrong.push(format!(
                "{what}: the API server {server} it, Transom found {:?}",
                found[name]
            ));
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "of {} pods", pods.len());
    assert!(
        accepted.len() > 40 && pods.len() - accepted.len() > 60,
        "{} of {}",
        accepted.len(),
        pods.len()
    );
}

#[test]
fn a_pod_that_does_not_say_windows_is_accepted_by_the_api_server_and_found_by_transom() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("bare-unset", &[]);
    let pods = pods_with_linux_fields();
    let with_os: Vec<(String, Value)> = pods
        .iter()
        .map(|(what, pod)| {
            let mut pod = pod.clone();
            set(&mut pod, "/spec/os", json!({"name": "windows"}));
            (what.clone(), pod)
        })
        .collect();
    let accepted = accepted_by_bare(cluster, "bare-unset", &pods);
    let refused: Vec<&str> = pods
        .iter()
        .filter(|(_, pod)| !accepted.contains(pod["metadata"]["name"].as_str().unwrap()))
        .map(|(what, _)| what.as_str())
        .collect();
    assert_eq!(refused, Vec::<&str>::new());
    let (unset, set) = (
        // A value that requests nothing is a warning then.
        found(cluster, "differential-unset.json", &pods, &["error", "warning"]),
        found(cluster, "differential-set.json", &with_os, &["error"]),
    );
    for (what, pod) in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        assert_eq!(
            unset[name], set[name],
            "{what}: found whether or not os.name is there"
        );
    }
    // What the API server accepts without os.name it accepts with Transom too, where the policy only looks.
    cluster.create_namespace("audit-unset", &[("webhook", "audit")]);
    let mut objects: Vec<Value> = pods.iter().map(|(_, pod)| pod.clone()).collect();
    let options = pods_with_windows_options();
    let bare = accepted_by_bare(cluster, "bare-unset", &options);
    objects.extend(
        options
            .into_iter()
            .map(|(_, pod)| pod)
            .filter(|pod| bare.contains(pod["metadata"]["name"].as_str().unwrap())),
    );
    let printed = create(cluster, "audit-unset", &objects, &[]);
    assert!(
        printed.ok,
        "Transom turned an accepted pod into a refused one: {}",
        printed.err
    );
    let stored = printed.objects();
    assert_eq!(stored.len(), objects.len());
    for pod in &stored {
        let name = pod["metadata"]["name"].as_str().unwrap();
        // An empty list is not in what the API server sends to webhooks.
        let withheld = unset.get(name).is_some_and(|rules| !rules.is_empty())
            && objects.iter().all(|object| {
                object["metadata"]["name"] != name
                    || object["spec"]["securityContext"]["supplementalGroups"] != json!([])
            });
        let os = pod["spec"]["os"]["name"].as_str();
        assert_eq!(os, (!withheld).then_some("windows"), "{pod}");
        let audited = cluster.audited("audit-unset", name);
        assert_eq!(
            audited.contains_key("mutate-audit.transom.dev/withheld"),
            withheld,
            "{name}: {audited:?}"
        );
        assert_eq!(audited["mutate-audit.transom.dev/decision"], "patch");
    }
}

#[test]
fn a_windows_pod_is_stored_with_what_placement_adds() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("placed", &[("webhook", "deny")]);
    let mut by_image = windows_pod("by-image");
    by_image["spec"].as_object_mut().unwrap().remove("nodeSelector");
    let mut of_class = windows_pod("of-class");
    set(&mut of_class, "/spec/runtimeClassName", json!("windows-2019"));
    set(
        &mut of_class,
        "/spec/containers/0/image",
        json!("mcr.microsoft.com/windows/servercore:ltsc2019"),
    );
    let linux = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "linux"},
        "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}, "hostPID": true,
            "containers": [{"name": "web", "image": "nginx", "securityContext": {"runAsUser": 0}}]},
    });
    let printed = create(cluster, "placed", &[by_image, of_class, linux], &[]).succeeded();
    let [by_image, of_class, linux] = <[Value; 3]>::try_from(printed.objects()).unwrap();

    assert_eq!(by_image["spec"]["os"], json!({"name": "windows"}));
    assert_eq!(
        by_image["spec"]["nodeSelector"],
        json!({"kubernetes.io/os": "windows"})
    );
    let terms =
        &by_image["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        terms["nodeSelectorTerms"],
        json!([{"matchExpressions": [{"key": "node.kubernetes.io/windows-build", "operator": "In",
            "values": ["10.0.20348", "10.0.25398", "10.0.26100"]}]}]),
    );
    for value in ["windows", "Windows"] {
        let toleration = json!({"key": "os", "operator": "Equal", "value": value, "effect": "NoSchedule"});
        assert_eq!(count(&by_image, &toleration), 1, "{by_image}");
    }

    assert_eq!(of_class["spec"]["os"], json!({"name": "windows"}));
    assert_eq!(
        of_class["spec"]["nodeSelector"],
        json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.17763"}),
        "as the RuntimeClass selects, and nothing more"
    );

    assert_eq!(linux["spec"]["os"], Value::Null);
    assert_eq!(
        linux["spec"]["nodeSelector"],
        json!({"kubernetes.io/os": "linux"})
    );
    assert_eq!(linux["spec"]["affinity"], Value::Null);
}

/// How often a pod has a toleration.
fn count(pod: &Value, toleration: &Value) -> usize {
    let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
    tolerations.iter().filter(|other| *other == toleration).count()
}

#[test]
fn a_second_webhook_that_changes_the_pod_has_transom_called_again_and_nothing_is_added_twice() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("twice", &[("webhook", "deny"), ("then", "second")]);
    let stored = create(cluster, "twice", &[windows_pod("web")], &[])
        .succeeded()
        .object();
    let windows = json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"});
    let extra = json!({"key": "pool", "operator": "Equal", "value": "extra", "effect": "NoSchedule"});
    assert_eq!(
        (count(&stored, &windows), count(&stored, &extra)),
        (1, 1),
        "{stored}"
    );
    let terms = &stored["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        terms["nodeSelectorTerms"][0]["matchExpressions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let log = std::fs::read_to_string(cluster.path("transom-deny.log")).unwrap();
    let calls = log
        .lines()
        .filter(|line| line.contains("type=mutating") && line.contains("twice"))
        .count();
    assert_eq!(calls, 2, "called again after the other webhook: {log}");
}

#[test]
fn pods_that_a_controller_made_survive_the_day_on_which_transom_is_installed() {
    let Some(cluster) = cluster() else { return };
    if let Err(missing) = cluster.start_controllers() {
        return skipped(format!("SKIPPED: pods that a controller made: {missing}"));
    }
    cluster.create_namespace("running", &[]);
    let mut spec = windows_pod("web")["spec"].clone();
    set(
        &mut spec,
        "/volumes",
        json!([{"name": "cache", "emptyDir": {"medium": "Memory"}}]),
    );
    let ignored = workload("Deployment", "ignored", &spec, 1);
    set(
        &mut spec,
        "/containers/0/securityContext",
        json!({"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}),
    );
    let linux_fields = workload("Deployment", "linux-fields", &spec, 1);
    create(cluster, "running", &[ignored, linux_fields], &[]).succeeded();
    let pods = |app: &str| -> Vec<Value> {
        let selector = format!("app={app}");
        let printed = cluster.kubectl(&["get", "pods", "-n", "running", "-o", "json", "-l", &selector]);
        let list: Value = serde_json::from_str(&printed.succeeded().out).unwrap();
        list["items"].as_array().unwrap().clone()
    };
    let placed = |app: &str| -> usize {
        pods(app)
            .iter()
            .filter(|pod| pod["spec"]["affinity"] != Value::Null)
            .count()
    };
    let kubectl = |args: &[&str]| cluster.kubectl(&[&["-n", "running"], args].concat());
    for app in ["ignored", "linux-fields"] {
        assert!(
            wait(Duration::from_secs(30), || pods(app).len() == 1),
            "the controllers run"
        );
    }
    switch_on(cluster, "running", "deny");
    for app in ["ignored", "linux-fields"] {
        let deployment = format!("deployment/{app}");
        kubectl(&["scale", &deployment, "--replicas=3"]).succeeded();
        assert!(
            wait(Duration::from_secs(30), || placed(app) == 2),
            "{app}: two more pods, with placement: {}",
            kubectl(&["get", "events"]).out
        );
        let selector = format!("app={app}");
        kubectl(&["delete", "pods", "-l", &selector]).succeeded();
        assert!(
            wait(Duration::from_secs(30), || placed(app) == 3),
            "{app}: deleted pods come back: {}",
            kubectl(&["get", "events"]).out
        );
        let names_its_os = pods(app).iter().all(|pod| pod["spec"]["os"]["name"] == "windows");
        assert_eq!(
            names_its_os,
            app == "ignored",
            "os.name is withheld beside Linux fields"
        );

        // A restart brings nothing new in.
        let before = names(&pods(app));
        let printed = kubectl(&["rollout", "restart", &deployment]).succeeded();
        assert!(printed.err.contains("Warning: transom: "), "{printed:?}");
        assert!(
            wait(Duration::from_secs(30), || !names(&pods(app)).is_subset(&before)),
            "{app}: the new ReplicaSet makes pods: {}",
            kubectl(&["get", "events"]).out
        );
    }
    let failed = kubectl(&[
        "get",
        "events",
        "--field-selector",
        "reason=FailedCreate",
        "-o",
        "name",
    ]);
    assert_eq!(failed.succeeded().out, "", "no controller was ever denied");
}

/// Says that this owner controls an object.
fn owned(mut object: Value, api_version: &str, kind: &str) -> Value {
    let owner =
        json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "0b5e", "controller": true});
    set(&mut object, "/metadata/ownerReferences", json!([owner]));
    object
}

/// A user who may do nothing but create pods in a namespace.
const MALLORY: [&str; 2] = ["--as", "mallory"];

#[test]
fn a_user_who_may_only_create_pods_gains_nothing_by_a_forged_owner() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("forged", &[("webhook", "deny")]);
    let kubectl = |args: &[&str]| cluster.kubectl(&[&["-n", "forged"], args].concat());
    kubectl(&["create", "role", "pods", "--verb=create", "--resource=pods"]).succeeded();
    kubectl(&["create", "rolebinding", "pods", "--role=pods", "--user=mallory"]).succeeded();
    let may = |pod: &Value| create(cluster, "forged", std::slice::from_ref(pod), &MALLORY);
    let granted = || may(&windows_pod("good")).ok || may(&windows_pod("good")).err.contains("AlreadyExists");
    assert!(
        wait(Duration::from_secs(30), granted),
        "{:?}",
        may(&windows_pod("good"))
    );
    let bad = |name: &str| {
        let mut pod = windows_pod(name);
        set(&mut pod, "/spec/hostPID", json!(true));
        set(
            &mut pod,
            "/spec/containers/0/securityContext",
            json!({"privileged": true}),
        );
        pod
    };
    let plain = may(&bad("plain")).err;
    assert!(
        plain.contains("host-pid") && plain.contains("privileged"),
        "{plain}"
    );
    for (name, api_version, kind) in [
        ("replicaset", "apps/v1", "ReplicaSet"),
        ("statefulset", "apps/v1", "StatefulSet"),
        ("daemonset", "apps/v1", "DaemonSet"),
        ("job", "batch/v1", "Job"),
        ("replicationcontroller", "v1", "ReplicationController"),
    ] {
        let forged = may(&owned(bad(name), api_version, kind)).err;
        assert!(
            forged.contains("denied the request") && forged.contains("host-pid"),
            "{kind}: {forged}"
        );
        assert!(forged.contains("cluster.controllers"), "{kind}: {forged}");
    }
    let annotations = cluster.audited("forged", "replicaset");
    let owner = annotations.get("validate-deny.transom.dev/owner-trusted");
    assert_eq!(owner.map(String::as_str), Some("false"), "{annotations:?}");
    let custom = may(&owned(bad("custom"), "jobset.x-k8s.io/v1alpha2", "JobSet")).err;
    assert!(
        custom.contains("denied the request") && !custom.contains("cluster.controllers"),
        "{custom}"
    );
}

#[test]
fn what_a_controller_made_is_let_pass_for_its_own_kind_and_evaluated_where_no_webhook_sees_its_owner() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("owners", &[("webhook", "deny")]);
    let mut spec = windows_pod("web")["spec"].clone();
    set(&mut spec, "/hostPID", json!(true));
    set(
        &mut spec,
        "/containers/0/securityContext",
        json!({"privileged": true}),
    );
    let mut bare = windows_pod("web");
    set(&mut bare, "/spec", spec.clone());
    let mut set_of_pods = workload("Deployment", "web", &spec, 1);
    set(&mut set_of_pods, "/kind", json!("ReplicaSet"));
    let account = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    let (replicasets, deployments) = (account("replicaset-controller"), account("deployment-controller"));
    let rollouts = "system:serviceaccount:argo-rollouts:argo-rollouts";
    let of_replicaset = owned(bare, "apps/v1", "ReplicaSet");
    let of_deployment = owned(set_of_pods.clone(), "apps/v1", "Deployment");
    let of_rollout = owned(set_of_pods, "argoproj.io/v1alpha1", "Rollout");
    for (object, user, passes) in [
        (&of_replicaset, replicasets.as_str(), true),
        (&of_replicaset, "system:kube-controller-manager", true),
        (&of_replicaset, deployments.as_str(), false),
        (&of_replicaset, rollouts, false),
        (&of_deployment, deployments.as_str(), true),
        (&of_deployment, replicasets.as_str(), false),
        // The policy does not name it.
        (&of_rollout, rollouts, false),
        (&of_rollout, deployments.as_str(), false),
    ] {
        // What it may do is not what is asked here.
        let requester = ["--as", user, "--as-group=system:masters", "--dry-run=server"];
        let printed = create(cluster, "owners", std::slice::from_ref(object), &requester);
        assert_eq!(printed.ok, passes, "{object} by {user}: {printed:?}");
        let denied = ["host-pid", "privileged"]
            .iter()
            .all(|rule| printed.err.contains(rule));
        assert_eq!(denied, !passes, "{object} by {user}: {printed:?}");
    }
}

#[test]
fn kubectl_debug_works_on_a_windows_pod() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("debug", &[("webhook", "deny")]);
    cluster.create_namespace("debug-bare", &[]);
    let mut target = windows_pod("target");
    set(&mut target, "/spec/os", json!({"name": "windows"}));
    for namespace in ["debug", "debug-bare"] {
        create(cluster, namespace, &[target.clone()], &[]).succeeded();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "target"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "win2022"},
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/target/binding");
        cluster
            .kubectl_with(&["create", "--raw", &path, "-f", "-"], &binding.to_string())
            .succeeded();
    }
    let debug = |namespace: &str, profile: &str| {
        cluster.kubectl(&[
            "debug",
            "-n",
            namespace,
            "pod/target",
            "--image",
            IMAGE,
            "--container",
            profile,
            "--profile",
            profile,
        ])
    };
    let profiles = ["general", "netadmin", "sysadmin", "restricted"];
    let mut refused = Vec::new();
    for profile in profiles {
        let bare = debug("debug-bare", profile);
        assert!(
            !bare.ok && bare.err.contains("cannot be set for a windows pod"),
            "{profile}: {bare:?}"
        );
        let printed = debug("debug", profile);
        if !printed.ok {
            refused.push(format!("{profile}: {}", printed.err));
        } else if !printed
            .err
            .contains("fields that Windows ignores: spec.ephemeralContainers[")
        {
            refused.push(format!("{profile} has no warning: {printed:?}"));
        }
    }
    assert_eq!(refused, Vec::<String>::new());
    let stored = get(cluster, "debug", &["pod/target"]);
    let containers = stored["spec"]["ephemeralContainers"].as_array().unwrap();
    let added: Vec<&str> = containers.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(added, profiles);
    let removed = cluster.audited("debug", "target");
    assert!(
        removed.contains_key("mutate-deny.transom.dev/removed"),
        "{removed:?}"
    );
}

#[test]
fn what_was_there_before_hinders_no_update_and_no_deletion() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("before", &[]);
    let mut bad = windows_pod("bad");
    set(
        &mut bad,
        "/spec/containers/0/securityContext",
        json!({"runAsUser": 0}),
    );
    let workload = workload("Deployment", "bad", &bad["spec"], 1);
    let mut held = bad.clone();
    set(&mut held, "/metadata/name", json!("held"));
    set(&mut held, "/metadata/finalizers", json!(["example.com/hold"]));
    create(cluster, "before", &[bad, held, workload], &[]).succeeded();
    switch_on(cluster, "before", "deny");
    let kubectl = |args: &[&str]| cluster.kubectl(&[&["-n", "before"], args].concat());

    for silent in [
        &["label", "pod/bad", "a=b"][..],
        &["annotate", "pod/bad", "a=b"],
        &[
            "set",
            "image",
            "pod/bad",
            "web=mcr.microsoft.com/windows/servercore:ltsc2025",
        ],
        &[
            "patch",
            "pod/bad",
            "--subresource=status",
            "-p",
            r#"{"status": {"message": "seen"}}"#,
        ],
        &["label", "deployment/bad", "a=b"],
        &["scale", "deployment/bad", "--replicas=2"],
        &["patch", "deployment/bad", "-p", r#"{"spec": {"replicas": 1}}"#],
        &[
            "patch",
            "deployment/bad",
            "--subresource=status",
            "-p",
            r#"{"status": {"collisionCount": 1}}"#,
        ],
    ] {
        let printed = kubectl(silent);
        assert!(printed.ok, "{silent:?}: {}", printed.err);
        assert_eq!(printed.err, "", "{silent:?}");
    }

    let warned = kubectl(&["set", "env", "deployment/bad", "A=b"]).succeeded();
    assert!(
        warned.err.contains(
            "Deployment before/bad: spec.template.spec.containers[web].securityContext.runAsUser: "
        ) && warned.err.contains("[TSM204 run-as-user]"),
        "{warned:?}"
    );
    let worse = r#"{"spec": {"template": {"spec": {"hostPID": true}}}}"#;
    let denied = kubectl(&["patch", "deployment/bad", "-p", worse]);
    assert!(
        !denied.ok
            && denied
                .err
                .contains("\"validate-deny.transom.dev\" denied the request: 2 problems")
            && denied.err.contains("\nspec.template.spec.hostPID: ")
            && denied
                .err
                .contains("\n(warning) spec.template.spec.containers[web].securityContext.runAsUser: "),
        "{denied:?}"
    );
    let better =
        r#"{"spec": {"template": {"spec": {"containers": [{"name": "web", "securityContext": null}]}}}}"#;
    let printed = kubectl(&["patch", "deployment/bad", "-p", better]).succeeded();
    assert_eq!(printed.err, "", "fixed");

    kubectl(&["delete", "pod/held", "--wait=false"]).succeeded();
    let free = r#"{"metadata": {"finalizers": null}}"#;
    kubectl(&["patch", "pod/held", "-p", free]).succeeded();
    for object in ["pod/bad", "deployment/bad"] {
        kubectl(&["delete", object]).succeeded();
    }
    let left = kubectl(&[
        "get",
        "pod/held",
        "pod/bad",
        "deployment/bad",
        "--ignore-not-found",
        "-o",
        "name",
    ]);
    assert_eq!(left.succeeded().out, "");
}

#[test]
fn a_policy_that_only_looks_denies_and_changes_nothing_and_says_so_in_the_audit_log() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("looked-at", &[("webhook", "dry")]);
    cluster.create_namespace("not-looked-at", &[]);
    let mut bad = windows_pod("bad");
    set(&mut bad, "/spec/hostPID", json!(true));
    let mut stored = Vec::new();
    for namespace in ["looked-at", "not-looked-at"] {
        let workload = workload("Deployment", "bad", &bad["spec"], 1);
        let printed = create(cluster, namespace, &[bad.clone(), workload], &[]).succeeded();
        assert_eq!(printed.err, "", "nobody is warned");
        stored.push(printed.objects());
    }
    for (reviewed_kind, bare) in stored[0].iter().zip(&stored[1]) {
        assert_eq!(reviewed_kind["spec"], bare["spec"]);
    }
    let annotations = cluster.audited("looked-at", "bad");
    let value = |key: &str| annotations.get(key).map_or("", String::as_str);
    for (phase, decision) in [("mutate", "allow"), ("validate", "would-deny")] {
        assert_eq!(
            value(&format!("{phase}-dry.transom.dev/decision")),
            decision,
            "{annotations:#?}"
        );
        assert_eq!(value(&format!("{phase}-dry.transom.dev/verdict")), "Windows");
        assert_eq!(value(&format!("{phase}-dry.transom.dev/policy")), "dry");
    }
    assert_eq!(value("validate-dry.transom.dev/would-deny"), "host-pid");
    assert_eq!(
        value("validate-dry.transom.dev/evidence").replace("spec.template.", ""),
        "spec.nodeSelector[kubernetes.io/os]=windows"
    );
    let patch: Value = serde_json::from_str(value("mutate-dry.transom.dev/would-patch")).unwrap();
    assert!(
        patch.as_array().unwrap().iter().any(|operation| operation["path"]
            .as_str()
            .unwrap()
            .starts_with("/spec/tolerations")),
        "{patch}"
    );
}

#[test]
fn a_denial_and_a_patch_stand_in_the_audit_log() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("audited", &[("webhook", "deny")]);
    let mut denied = windows_pod("denied");
    set(&mut denied, "/spec/hostPID", json!(true));
    assert!(!create(cluster, "audited", &[windows_pod("patched"), denied], &[]).ok);
    let patched = cluster.audited("audited", "patched");
    assert_eq!(patched["mutate-deny.transom.dev/decision"], "patch");
    assert_eq!(patched["validate-deny.transom.dev/decision"], "allow");
    assert_eq!(patched["mutate-deny.transom.dev/policy"], "built-in");
    let denied = cluster.audited("audited", "denied");
    assert_eq!(denied["validate-deny.transom.dev/decision"], "deny");
    assert!(
        denied["validate-deny.transom.dev/rules"].starts_with("host-pid"),
        "{denied:?}"
    );
    assert_eq!(denied["mutate-deny.transom.dev/withheld"], "spec.hostPID");
}

#[test]
fn kubectl_prints_warnings_and_a_dry_run_stores_nothing() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("warned", &[("webhook", "deny")]);
    let mut odd = windows_pod("odd");
    set(
        &mut odd,
        "/spec/containers/0/command",
        json!(["/bin/sh", "-c", "true"]),
    );
    let workload = workload("Deployment", "odd", &odd["spec"], 1);
    for object in [&odd, &workload] {
        let dry = create(
            cluster,
            "warned",
            std::slice::from_ref(object),
            &["--dry-run=server"],
        )
        .succeeded();
        let wet = create(cluster, "warned", std::slice::from_ref(object), &[]).succeeded();
        for printed in [&dry, &wet] {
            assert!(
                printed
                    .err
                    .lines()
                    .any(|line| line.starts_with("Warning: transom: ")
                        && line.contains(": spec.")
                        && line.ends_with("[TSM417 unix-command]")),
                "{printed:?}"
            );
            assert!(
                printed
                    .err
                    .lines()
                    .all(|line| line.starts_with("Warning: transom: ")),
                "{printed:?}"
            );
        }
        assert_eq!(
            dry.object()["spec"],
            wet.object()["spec"],
            "a dry run shows what would be stored"
        );
    }
    let dry = create(cluster, "warned", &[windows_pod("dry")], &["--dry-run=server"]).succeeded();
    assert_eq!(dry.object()["spec"]["os"]["name"], "windows");
    let left = cluster.kubectl(&[
        "get",
        "-n",
        "warned",
        "pod/dry",
        "--ignore-not-found",
        "-o",
        "name",
    ]);
    assert_eq!(left.succeeded().out, "");
    let mut bad = windows_pod("bad");
    set(&mut bad, "/spec/hostPID", json!(true));
    let denied = create(cluster, "warned", &[bad], &["--dry-run=server"]);
    assert!(
        !denied.ok && denied.err.contains("[TSM401 host-pid]"),
        "{denied:?}"
    );
}

#[test]
fn a_windows_pod_is_admitted_to_a_restricted_namespace_by_its_os_name() {
    let Some(cluster) = cluster() else { return };
    let restricted = ("pod-security.kubernetes.io/enforce", "restricted");
    cluster.create_namespace("restricted", &[("webhook", "deny"), restricted]);
    cluster.create_namespace("restricted-bare", &[restricted]);
    let mut safe = windows_pod("safe");
    set(
        &mut safe,
        "/spec/securityContext",
        json!({"runAsNonRoot": true, "windowsOptions": {"runAsUserName": "ContainerUser"}}),
    );
    let bare = create(cluster, "restricted-bare", &[safe.clone()], &[]);
    assert!(
        !bare.ok
            && ["allowPrivilegeEscalation", "capabilities", "seccompProfile"]
                .iter()
                .all(|field| bare.err.contains(field)),
        "{bare:?}"
    );
    let stored = create(cluster, "restricted", &[safe], &[]).succeeded().object();
    assert_eq!(stored["spec"]["os"]["name"], "windows");

    // What the profile asks of Windows pods too, it still asks.
    let root = create(cluster, "restricted", &[windows_pod("root")], &[]);
    assert!(!root.ok && root.err.contains("runAsNonRoot"), "{root:?}");
    let linux = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "linux"}, "spec": {
        "securityContext": {"runAsNonRoot": true}, "containers": [{"name": "web", "image": "nginx"}]}});
    let linux = create(cluster, "restricted", &[linux], &[]);
    assert!(
        !linux.ok && linux.err.contains("violates PodSecurity"),
        "{linux:?}"
    );
}

#[test]
fn a_field_that_another_admission_added_is_reported_to_be_added() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("injected", &[("webhook", "deny"), ("inject", "yes")]);
    let injector = json!([
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": "inject-host-pid"},
            "spec": {
                "reinvocationPolicy": "Never", "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule("", &["pods"], &["CREATE"])]},
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
                    "expression": "Object{spec: Object.spec{hostPID: true}}"}}],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": "inject-host-pid"},
            "spec": {"policyName": "inject-host-pid", "matchResources": {
                "namespaceSelector": {"matchLabels": {"inject": "yes"}}}},
        },
    ]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": injector});
    cluster
        .kubectl_with(&["create", "-f", "-"], &list.to_string())
        .succeeded();
    let mut message = String::new();
    let denied = || {
        message = create(cluster, "injected", &[windows_pod("web")], &["--dry-run=server"]).err;
        message.contains("denied the request")
    };
    assert!(wait(Duration::from_secs(30), denied), "the injector works");
    assert!(
        message.contains(
            "\"validate-deny.transom.dev\" denied the request: 1 problem with Pod injected/web for Windows"
        ),
        "{message}"
    );
    assert!(
        message.contains("spec.hostPID: ") && message.contains(" (added in admission)"),
        "{message}"
    );
}

#[test]
fn spans_of_reviews_are_children_of_the_api_servers_own() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("traces", &[("webhook", "deny")]);
    switch_on(cluster, "traces", "deny");
    create(cluster, "traces", &[windows_pod("traced")], &[]).succeeded();
    let spans = |name: &str, phases: &[&str]| {
        let of = |phase: &str| {
            let is_one = |span: &collector::Span| {
                span.attributes.get("transom.object.name") == Some(&json!(name)) && span.name.ends_with(phase)
            };
            collector().wait_for(1, is_one).remove(0)
        };
        phases.iter().map(|phase| of(phase)).collect::<Vec<_>>()
    };
    let both = spans("traced", &["/mutate", "/validate"]);
    assert_eq!(
        both[0].trace, both[1].trace,
        "both reviews of one request are in its trace"
    );
    for span in &both {
        assert_eq!(span.parent.len(), 16, "{span:?}");
        assert_ne!(span.parent, span.id);
        // Sampled, and by a parent that is somebody else.
        assert_eq!(span.flags & 0x301, 0x301, "{span:?}");
        let agent = span.attributes["user_agent.original"].as_str().unwrap();
        assert!(agent.starts_with("kube-apiserver"), "{agent}");
        assert_eq!(span.attributes["transom.object.namespace"], "traces");
    }
    assert_ne!(
        both[0].parent, both[1].parent,
        "each call has a span of its own in the API server"
    );

    // An administrator's trace goes on through the API server.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = cluster.client().await;
        let request = hyper::Request::post("/api/v1/namespaces/traces/pods")
            .header("content-type", "application/json")
            .header("traceparent", format!("00-{TRACE}-{SPAN}-01"))
            .body(serde_json::to_vec(&windows_pod("followed")).unwrap())
            .unwrap();
        client.request::<Value>(request).await.unwrap();
    });
    for span in spans("followed", &["/mutate", "/validate"]) {
        assert_eq!(span.trace, TRACE);
        assert_ne!(span.parent, SPAN, "the API server's span stands between");
    }
}

#[test]
fn a_webhook_that_asks_for_the_api_servers_certificate_answers_no_other_client() {
    let Some(cluster) = cluster() else { return };
    cluster.create_namespace("certified", &[]);
    switch_on(cluster, "certified", "deny");
    let mut bad = windows_pod("bad");
    set(&mut bad, "/spec/os", json!({"name": "windows"}));
    set(&mut bad, "/spec/hostPID", json!(true));
    let printed = create(cluster, "certified", &[bad], &[]);
    assert!(printed.err.contains("denied the request"), "{}", printed.err);

    let configuration = get(
        cluster,
        "default",
        &["validatingwebhookconfiguration", "transom-deny"],
    );
    let url = configuration["webhooks"][0]["clientConfig"]["url"]
        .as_str()
        .unwrap();
    let address = url.trim_start_matches("https://").split('/').next().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let ca = std::fs::read(cluster.path("deny-ca.pem")).unwrap();
    let ca: rustls::pki_types::CertificateDer<'_> =
        rustls::pki_types::pem::PemObject::from_pem_slice(&ca).unwrap();
    roots.add(ca).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = std::net::TcpStream::connect(address).unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let mut tls = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    let mut answer = Vec::new();
    let requested = stream
        .write_all(
            b"POST /validate HTTP/1.1\r\nHost: transom\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        )
        .and_then(|()| std::io::Read::read_to_end(&mut stream, &mut answer));
    let refused = requested.unwrap_err().to_string();
    assert!(
        refused.contains("CertificateRequired"),
        "{refused}: {}",
        String::from_utf8_lossy(&answer)
    );
}
