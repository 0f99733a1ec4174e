//! The input of the benchmarks and the load test: recorded reviews, and pods as large as the API server accepts.
//!
//! Not a separate crate: each of them includes this file with `#[path]` and uses a part of it.
#![allow(dead_code)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The largest request body of a kube-apiserver, `MaxRequestBodyBytes`.
pub const LARGEST: usize = 3 << 20;

/// The largest review of an update that is stored: two objects of 1.5 MiB, each byte encoded as six.
pub const LARGEST_REVIEW: usize = 18 << 20;

/// The folder of the recorded reviews.
pub fn reviews() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = if here.ends_with("benches/load") {
        here.join("../..")
    } else {
        here.to_owned()
    };
    root.join("tests/reviews")
}

/// A review in a file, as a server sends it: compact.
pub fn read(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    value.to_string()
}

/// Every recorded review by the name of its file, compact, sorted.
pub fn real() -> Vec<(String, String)> {
    let files =
        std::fs::read_dir(reviews()).unwrap_or_else(|error| panic!("{}: {error}", reviews().display()));
    let mut named: Vec<(String, String)> = files
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            (
                path.file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                read(&path),
            )
        })
        .collect();
    named.sort();
    named
}

/// A recorded review as JSON, from which others are created.
pub fn sample(name: &str) -> Value {
    serde_json::from_str(&read(&reviews().join(name).with_extension("json"))).expect("a real review is JSON")
}

/// A recorded pod that `/validate` denies for seven findings, with two others that only warn.
pub fn denied() -> String {
    let mut review = sample("pod-create-linux-fields");
    let spec = &mut review["request"]["object"]["spec"];
    spec["hostNetwork"] = json!(false);
    spec["dnsPolicy"] = json!("ClusterFirst");
    spec["volumes"][0]["emptyDir"] = json!({});
    review.to_string()
}

/// A recorded pod with many copies of its container, each with its own name and entry in managedFields.
pub fn many_containers(sample_name: &str, count: usize) -> String {
    let mut review = sample(sample_name);
    let object = &mut review["request"]["object"];
    let container = object["spec"]["containers"][0].clone();
    object["spec"]["containers"] = (0..count)
        .map(|index| {
            let mut copy = container.clone();
            copy["name"] = json!(format!("container-{index}"));
            copy
        })
        .collect();
    for entry in object["metadata"]["managedFields"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        let Some(owned) = entry
            .pointer_mut("/fieldsV1/f:spec/f:containers")
            .and_then(Value::as_object_mut)
        else {
            continue;
        };
        let Some(fields) = owned.values().next().cloned() else {
            continue;
        };
        owned.clear();
        owned.extend(
            (0..count).map(|index| (format!("k:{{\"name\":\"container-{index}\"}}"), fields.clone())),
        );
    }
    review.to_string()
}

/// The placeholder for the items of a large pod.
const HERE: &str = "\"@items@\"";

/// The content of a pod of 3 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worst {
    /// Containers with long image names and every field that Windows does not support.
    Containers,
    /// The same, with managedFields in which no manager owns them, as if another webhook had added them.
    Injected,
    /// The shortest containers with the most such fields: the most findings per byte.
    Findings,
    /// One container with as many mounts as there are volumes.
    Mounts,
    /// Node selector terms, each with an expression.
    Terms,
    /// Entries of the nodeSelector.
    Selector,
    /// Tolerations.
    Tolerations,
    /// A variable of `<`, which the API server writes as six bytes each.
    Escapes,
    /// A Linux pod, without findings.
    Linux,
}

impl Worst {
    /// Every kind.
    pub const ALL: [Worst; 9] = [
        Worst::Containers,
        Worst::Injected,
        Worst::Findings,
        Worst::Mounts,
        Worst::Terms,
        Worst::Selector,
        Worst::Tolerations,
        Worst::Escapes,
        Worst::Linux,
    ];

    /// A name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Worst::Containers => "containers",
            Worst::Injected => "injected",
            Worst::Findings => "findings",
            Worst::Mounts => "mounts",
            Worst::Terms => "terms",
            Worst::Selector => "selector",
            Worst::Tolerations => "tolerations",
            Worst::Escapes => "escapes",
            Worst::Linux => "linux",
        }
    }

    /// One item of the content.
    fn item(self, index: usize) -> String {
        let long = |index: usize| {
            let tag = "t".repeat(100);
            format!(
                "registry.example.com:5000/{}/image-{index}:{tag}-nanoserver-ltsc2022",
                "p".repeat(200)
            )
        };
        match self {
            Worst::Containers | Worst::Injected => json!({
                "name": format!("container-{index}"), "image": long(index), "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "command": ["/bin/sh", "-c"], "workingDir": "/var/lib/app",
                "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "a/b", "mountPropagation": "Bidirectional"}],
                "securityContext": {
                    "appArmorProfile": {"type": "RuntimeDefault"}, "seLinuxOptions": {"level": "s0:c1,c2"},
                    "seccompProfile": {"type": "RuntimeDefault"}, "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
                    "readOnlyRootFilesystem": true, "privileged": true, "allowPrivilegeEscalation": true,
                    "procMount": "Default", "runAsUser": 1000, "runAsGroup": 1000,
                },
            })
            .to_string(),
            Worst::Findings => format!(
                "{{\"name\":\"c{index}\",\"securityContext\":{{\"privileged\":true,\"procMount\":\"\",\"runAsUser\":1,\"runAsGroup\":1,\
                 \"capabilities\":{{}},\"appArmorProfile\":{{}},\"seLinuxOptions\":{{}},\"seccompProfile\":{{}},\
                 \"readOnlyRootFilesystem\":true,\"allowPrivilegeEscalation\":true}}}}"
            ),
            Worst::Mounts => json!({"name": format!("v{index}"), "mountPath": format!("/m{index}")}).to_string(),
            Worst::Terms => {
                json!({"matchExpressions": [{"key": format!("k{index}"), "operator": "In", "values": ["v"]}]}).to_string()
            }
            Worst::Selector => format!("\"example.com/k{index}\":\"v\""),
            Worst::Tolerations => {
                json!({"key": format!("k{index}"), "operator": "Exists", "effect": "NoSchedule"}).to_string()
            }
            Worst::Escapes => format!("{{\"name\":\"E{index}\",\"value\":\"{}\"}}", "\\u003c".repeat(10_000)),
            Worst::Linux => json!({"name": format!("c{index}"), "image": long(index)}).to_string(),
        }
    }

    /// A review of the create of such a pod, of about this many bytes.
    pub fn review(self, bytes: usize) -> String {
        let mut pod = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "worst", "namespace": "default"},
            "spec": {
                "containers": [{"name": "app", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}],
                "volumes": [{"name": "data", "emptyDir": {}}],
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "hostPID": true, "hostIPC": true, "hostUsers": true, "shareProcessNamespace": true,
                "securityContext": {"fsGroup": 1, "runAsUser": 1, "sysctls": [{"name": "a", "value": "b"}]},
            },
        });
        if self == Worst::Injected {
            pod["metadata"]["managedFields"] = json!([{
                "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:image": {}, "f:name": {}}}}},
            }]);
        }
        if self == Worst::Linux {
            pod["spec"] = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": []});
        }
        // Mounts need their volumes: half of the bytes each.
        let room = if self == Worst::Mounts { bytes / 2 } else { bytes } - pod.to_string().len() - 600;
        let mut items = String::with_capacity(room + 1000);
        let mut count = 0;
        while items.len() < room {
            if count > 0 {
                items.push(',');
            }
            items.push_str(&self.item(count));
            count += 1;
        }
        // The items are text already: they replace a placeholder, so that they are not parsed and printed again.
        let spec = &mut pod["spec"];
        match self {
            Worst::Containers | Worst::Injected | Worst::Findings | Worst::Linux => {
                spec["containers"] = json!(["@items@"]);
            }
            Worst::Mounts => {
                spec["containers"][0]["volumeMounts"] = json!(["@items@"]);
                let mut volumes = String::new();
                for index in 0..count {
                    let _ = write!(
                        volumes,
                        "{}{{\"name\":\"v{index}\",\"emptyDir\":{{}}}}",
                        if index > 0 { "," } else { "" }
                    );
                }
                spec["volumes"] = serde_json::from_str(&format!("[{volumes}]")).expect("volumes");
            }
            Worst::Terms => {
                spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
                    json!(["@items@"]);
            }
            Worst::Selector => spec["nodeSelector"] = json!({"kubernetes.io/os": "windows", "@": "@items@"}),
            Worst::Tolerations => spec["tolerations"] = json!(["@items@"]),
            Worst::Escapes => spec["containers"][0]["env"] = json!(["@items@"]),
        }
        let pod = pod
            .to_string()
            .replace("\"@\":\"@items@\"", HERE)
            .replace(HERE, &items);
        create("Pod", "", &pod)
    }
}

/// The review of the create of an object, from the object's text.
pub fn create(kind: &str, group: &str, object: &str) -> String {
    format!(
        "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{{\
         \"uid\":\"52ee6d80-4389-4f71-8423-265284f8a050\",\"kind\":{{\"group\":\"{group}\",\"version\":\"v1\",\"kind\":\"{kind}\"}},\
         \"resource\":{{\"group\":\"{group}\",\"version\":\"v1\",\"resource\":\"pods\"}},\"name\":\"worst\",\"namespace\":\"default\",\
         \"operation\":\"CREATE\",\"userInfo\":{{\"username\":\"admin\",\"groups\":[\"system:authenticated\"]}},\
         \"object\":{object},\"oldObject\":null,\"dryRun\":false,\"options\":null}}}}"
    )
}
