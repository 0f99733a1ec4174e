//! Random pods that look like what people write: signs of either system, Linux-only fields, selectors of all shapes.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// A strategy for JSON.
pub type Json = BoxedStrategy<Value>;

/// One of these values; write one twice to see it more often.
pub fn one(values: Vec<Value>) -> Json {
    select(values).boxed()
}

/// An object in which each field is there with its probability (of 1, nearly always).
pub fn fields(fields: Vec<(&'static str, f64, Json)>) -> Json {
    let entries: Vec<_> = fields
        .into_iter()
        .map(|(name, probability, value)| {
            weighted(
                probability.min(0.999_999),
                value.prop_map(move |value| (name, value)),
            )
        })
        .collect();
    entries
        .prop_map(|entries| {
            Value::Object(
                entries
                    .into_iter()
                    .flatten()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
            )
        })
        .boxed()
}

fn list(item: Json, most: usize) -> Json {
    vec(item, 0..=most).prop_map(Value::Array).boxed()
}

/// Which signs a pod may carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signs {
    /// Any, mostly of Windows.
    Any,
    /// None of Windows.
    NoneOfWindows,
}

fn os(signs: Signs) -> Json {
    match signs {
        Signs::Any => one(vec![
            json!({"name": "windows"}),
            json!({"name": "windows"}),
            json!({"name": "windows"}),
            json!({"name": "Windows"}),
            json!({"name": "linux"}),
            json!({"name": ""}),
            json!({}),
            Value::Null,
        ]),
        Signs::NoneOfWindows => one(vec![json!({"name": "linux"}), json!({}), Value::Null]),
    }
}

fn os_label(signs: Signs) -> Json {
    match signs {
        Signs::Any => one(["windows", "windows", "windows", "windows", "Windows", "linux"]
            .map(Value::from)
            .into()),
        Signs::NoneOfWindows => one(vec!["linux".into()]),
    }
}

fn node_selector(signs: Signs) -> Json {
    let mut entries = vec![
        ("disk", 0.2, one(vec!["ssd".into(), "hdd".into()])),
        ("kubernetes.io/os", 0.3, os_label(signs)),
        (
            "kubernetes.io/arch",
            0.1,
            one(vec!["amd64".into(), "arm64".into()]),
        ),
        ("kubernetes.azure.com/os-sku", 0.05, one(vec!["Ubuntu".into()])),
        ("a~b/c", 0.05, one(vec!["".into()])),
    ];
    if signs == Signs::Any {
        entries.extend([
            (
                "beta.kubernetes.io/os",
                0.2,
                one(["windows", "windows", "Windows", "linux"].map(Value::from).into()),
            ),
            (
                "node.kubernetes.io/windows-build",
                0.1,
                one(["10.0.20348", "10.0.17763", "ltsc2022"].map(Value::from).into()),
            ),
            (
                "kubernetes.azure.com/os-sku",
                0.1,
                one(vec!["Windows2022".into(), "Ubuntu".into()]),
            ),
        ]);
    }
    fields(entries)
}

fn expression(signs: Signs) -> Json {
    let build = "node.kubernetes.io/windows-build";
    let mut expressions = vec![
        json!({"key": "zone", "operator": "In", "values": ["a", "b"]}),
        json!({"key": "disk", "operator": "NotIn", "values": ["hdd"]}),
        json!({"key": "gpu", "operator": "DoesNotExist"}),
        json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}),
        json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux", "windows"]}),
    ];
    if signs == Signs::Any {
        expressions.extend([
            json!({"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}),
            json!({"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}),
            json!({"key": "kubernetes.io/os", "operator": "NotIn", "values": ["linux"]}),
            json!({"key": "kubernetes.io/os", "operator": "In", "values": ["Windows"]}),
            json!({"key": "beta.kubernetes.io/os", "operator": "In", "values": ["windows"]}),
            json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}),
            json!({"key": build, "operator": "In", "values": ["10.0.20348", "10.0.26100"]}),
            json!({"key": build, "operator": "Gt", "values": ["17763"]}),
            json!({"key": build, "operator": "Exists"}),
        ]);
    }
    one(expressions)
}

fn term(signs: Signs) -> Json {
    let fields_of_node = json!([{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]);
    fields(vec![
        ("matchExpressions", 0.8, list(expression(signs), 3)),
        ("matchFields", 0.15, one(vec![fields_of_node])),
    ])
}

/// A list of preferences of any content.
pub fn preferences() -> Json {
    let preference =
        (1..100, term(Signs::Any)).prop_map(|(weight, term)| json!({"weight": weight, "preference": term}));
    list(preference.boxed(), 3)
}

fn affinity(signs: Signs) -> Json {
    let terms = vec(term(signs), 1..=3).prop_map(|terms| json!({"nodeSelectorTerms": terms}));
    let node_affinity = fields(vec![
        (
            "requiredDuringSchedulingIgnoredDuringExecution",
            0.7,
            terms.boxed(),
        ),
        (
            "preferredDuringSchedulingIgnoredDuringExecution",
            0.3,
            preferences(),
        ),
    ]);
    fields(vec![
        ("podAffinity", 0.2, one(vec![json!({})])),
        ("nodeAffinity", 0.9, node_affinity),
    ])
}

fn toleration() -> Json {
    one(vec![
        json!({"operator": "Exists"}),
        json!({"key": "os", "operator": "Exists"}),
        json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}),
        json!({"key": "os", "value": "Windows"}),
        json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
        json!({"key": "gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}),
    ])
}

fn windows_options(signs: Signs) -> Json {
    let mut options = vec![
        (
            "runAsUserName",
            0.4,
            one(["ContainerUser", "NT AUTHORITY\\SYSTEM", "a\\b\\c", ""]
                .map(Value::from)
                .into()),
        ),
        (
            "gmsaCredentialSpecName",
            0.1,
            one(vec!["gmsa-web".into(), "Gmsa".into()]),
        ),
    ];
    if signs == Signs::Any {
        options.push((
            "hostProcess",
            0.3,
            one(vec![true.into(), true.into(), false.into()]),
        ));
    }
    fields(options)
}

fn security_context(signs: Signs, of_pod: bool) -> Json {
    let any = || {
        let types = ["RuntimeDefault", "Unconfined", "Localhost"].map(|kind| json!({"type": kind}));
        one(types.into_iter().chain([json!({})]).collect())
    };
    let flag = || one(vec![true.into(), false.into()]);
    let id = || one(vec![0.into(), 1000.into()]);
    let mut context = vec![
        ("appArmorProfile", 0.06, any()),
        ("seLinuxOptions", 0.06, any()),
        ("seccompProfile", 0.1, any()),
        ("runAsUser", 0.1, id()),
        ("runAsGroup", 0.06, id()),
        ("runAsNonRoot", 0.1, flag()),
    ];
    // A pod that says that it is for Linux must not have them; nobody writes them for a pod that is not for Windows.
    if signs == Signs::Any {
        context.push(("windowsOptions", 0.25, windows_options(signs)));
    }
    if of_pod {
        context.extend([
            ("fsGroup", 0.08, id()),
            (
                "fsGroupChangePolicy",
                0.06,
                one(vec!["OnRootMismatch".into(), "Always".into()]),
            ),
            (
                "sysctls",
                0.08,
                one(vec![
                    json!([]),
                    json!([{"name": "net.core.somaxconn", "value": "1"}]),
                ]),
            ),
            ("supplementalGroups", 0.06, one(vec![json!([]), json!([1])])),
            (
                "supplementalGroupsPolicy",
                0.06,
                one(vec!["Merge".into(), "Strict".into()]),
            ),
            (
                "seLinuxChangePolicy",
                0.06,
                one(vec!["Recursive".into(), "MountOption".into()]),
            ),
        ]);
    } else {
        context.extend([
            (
                "capabilities",
                0.1,
                one(vec![
                    json!({}),
                    json!({"drop": ["ALL"]}),
                    json!({"add": ["NET_RAW"]}),
                ]),
            ),
            ("readOnlyRootFilesystem", 0.1, flag()),
            ("privileged", 0.08, flag()),
            ("allowPrivilegeEscalation", 0.1, flag()),
            ("procMount", 0.05, one(vec!["Default".into(), "Unmasked".into()])),
        ]);
    }
    fields(context)
}

fn image(signs: Signs) -> Json {
    let mut images = vec![
        "registry.example.com/app:1.0",
        "nginx",
        "busybox:latest",
        "registry.example.com/windows/app",
        "NOT/an image",
    ];
    if signs == Signs::Any {
        images.extend([
            "mcr.microsoft.com/windows/nanoserver:ltsc2022",
            "mcr.microsoft.com/windows/servercore:ltsc2019",
            "mcr.microsoft.com/windows/servercore:ltsc2025",
            "registry.example.com/app:1.0-windowsservercore-ltsc2022",
            "registry.example.com/known:2",
            "mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-1809",
            "mcr.microsoft.com/dotnet/runtime:8.0",
        ]);
    }
    one(images.into_iter().map(Value::from).collect())
}

fn mount() -> Json {
    let path = one([
        "C:\\data",
        "/data",
        "C:/x",
        "\\\\.\\pipe\\docker_engine",
        "c:\\",
        "/var/run/secrets",
    ]
    .map(Value::from)
    .into());
    let rest = fields(vec![
        ("subPath", 0.2, one(vec!["a\\..\\b".into(), "x".into()])),
        (
            "mountPropagation",
            0.1,
            one(vec!["HostToContainer".into(), "Bidirectional".into()]),
        ),
        ("recursiveReadOnly", 0.1, one(vec!["Enabled".into()])),
    ]);
    (0..4usize, path, rest)
        .prop_map(|(volume, path, mut rest)| {
            rest["name"] = format!("volume-{volume}").into();
            rest["mountPath"] = path;
            rest
        })
        .boxed()
}

fn container(signs: Signs) -> Json {
    let quantity = || one(vec!["512Mi".into(), "1".into(), 2.into(), "1Gi".into()]);
    let amounts = || {
        fields(vec![
            ("cpu", 0.6, quantity()),
            ("memory", 0.6, quantity()),
            ("hugepages-2Mi", 0.1, quantity()),
        ])
    };
    fields(vec![
        ("image", 0.95, image(signs)),
        (
            "command",
            0.3,
            one(vec![
                json!(["cmd", "/c", "dir"]),
                json!(["/bin/sh", "-c", "true"]),
            ]),
        ),
        ("workingDir", 0.1, one(vec!["C:\\app".into(), "/app".into()])),
        (
            "ports",
            0.3,
            one(vec![
                json!([{"containerPort": 80}]),
                json!([{"name": "s", "containerPort": 9, "protocol": "SCTP"}]),
            ]),
        ),
        (
            "resources",
            0.5,
            fields(vec![("limits", 0.6, amounts()), ("requests", 0.6, amounts())]),
        ),
        ("volumeMounts", 0.4, list(mount(), 3)),
        (
            "volumeDevices",
            0.05,
            one(vec![json!([{"name": "volume-0", "devicePath": "/dev/x"}])]),
        ),
        ("securityContext", 0.4, security_context(signs, false)),
        (
            "terminationMessagePath",
            0.2,
            one(vec!["/dev/termination-log".into(), "C:\\log".into()]),
        ),
        ("x-unknown", 0.1, one(vec![json!({"kept": [1, null]})])),
    ])
}

fn volume() -> Json {
    one(vec![
        json!({"emptyDir": {}}),
        json!({"emptyDir": {"medium": "Memory"}}),
        json!({"hostPath": {"path": "C:\\data", "type": ""}}),
        json!({"hostPath": {"path": "/var/log", "type": "Socket"}}),
        json!({"hostPath": {"path": "\\\\.\\pipe\\docker_engine"}}),
        json!({"configMap": {"name": "c", "defaultMode": 256}}),
        json!({"secret": {"secretName": "s", "items": [{"key": "k", "path": "p", "mode": 0o600}]}}),
        json!({"nfs": {"server": "s", "path": "/"}}),
        json!({"persistentVolumeClaim": {"claimName": "data"}}),
        json!({"projected": {"defaultMode": 420, "sources": [{"downwardAPI": {"items": []}}]}}),
        json!({"image": {"reference": "app"}}),
    ])
}

/// Gives the items of a list the names that people would.
fn name_all(spec: &mut Value, list: &str, name: &str) {
    for (index, item) in spec
        .get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .enumerate()
    {
        item["name"] = format!("{name}-{index}").into();
    }
}

/// Who made the pod, and where it is: mostly nobody and nowhere.
fn metadata() -> Json {
    let owner = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]);
    let annotations = one(vec![
        json!({"experimental.windows.kubernetes.io/isolation-type": "hyperv"}),
        json!({"container.apparmor.security.beta.kubernetes.io/app-0": "unconfined"}),
        json!({"sidecar.istio.io/status": "{}"}),
    ]);
    fields(vec![
        (
            "labels",
            0.1,
            one(vec![json!({"app": "a"}), json!({"kubernetes.io/os": "linux"})]),
        ),
        ("annotations", 0.1, annotations),
        (
            "ownerReferences",
            0.15,
            one(vec![owner("ReplicaSet"), owner("DaemonSet")]),
        ),
    ])
}

/// A pod spec.
pub fn spec(signs: Signs) -> Json {
    let flag = || one(vec![true.into(), false.into()]);
    let mut all = vec![
        ("os", 0.3, os(signs)),
        ("nodeSelector", 0.6, node_selector(signs)),
        ("affinity", 0.4, affinity(signs)),
        ("tolerations", 0.4, list(toleration(), 3)),
        ("initContainers", 0.2, list(container(signs), 2)),
        (
            "containers",
            1.0,
            vec(container(signs), 1..=3).prop_map(Value::Array).boxed(),
        ),
        ("volumes", 0.5, list(volume(), 4)),
        ("securityContext", 0.5, security_context(signs, true)),
        ("hostNetwork", 0.2, flag()),
        ("hostPID", 0.08, flag()),
        ("hostIPC", 0.08, flag()),
        ("hostUsers", 0.08, flag()),
        ("shareProcessNamespace", 0.08, flag()),
        (
            "resources",
            0.05,
            one(vec![json!({}), json!({"limits": {"cpu": "1"}})]),
        ),
        (
            "dnsPolicy",
            0.3,
            one(vec!["ClusterFirst".into(), "ClusterFirstWithHostNet".into()]),
        ),
        (
            "terminationGracePeriodSeconds",
            0.2,
            one(vec![30.into(), 0.into()]),
        ),
        ("priority", 0.3, one(vec![0.into()])),
    ];
    if signs == Signs::Any {
        all.extend([
            (
                "runtimeClassName",
                0.2,
                one(super::world::RUNTIME_CLASSES.map(Value::from).into()),
            ),
            ("ephemeralContainers", 0.08, list(container(signs), 2)),
        ]);
    }
    fields(all)
        .prop_map(|mut spec| {
            name_all(&mut spec, "initContainers", "init");
            name_all(&mut spec, "containers", "app");
            name_all(&mut spec, "ephemeralContainers", "debug");
            name_all(&mut spec, "volumes", "volume");
            spec
        })
        .boxed()
}

fn object(metadata: &Value, spec: &Value) -> Value {
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}});
    pod["metadata"]["name"] = "random".into();
    pod["metadata"]["namespace"] = "default".into();
    pod
}

/// A pod that a person wrote.
pub fn bare(signs: Signs) -> Json {
    spec(signs)
        .prop_map(|spec| object(&Value::Object(Map::new()), &spec))
        .boxed()
}

/// A pod of any origin, a few of them placed, or with the annotation of mirror pods.
pub fn pod() -> Json {
    (
        metadata(),
        spec(Signs::Any),
        prop_oneof![17 => Just(0), 1 => Just(1), 1 => Just(2)],
    )
        .prop_map(|(metadata, spec, special)| {
            let mut pod = object(&metadata, &spec);
            match special {
                1 => pod["spec"]["nodeName"] = "node-0".into(),
                2 => pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "hash".into(),
                _ => {}
            }
            pod
        })
        .boxed()
}
