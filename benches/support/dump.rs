//! A cluster's objects as `kubectl get … -A -o json` and `-o yaml` print them: about 4 KB each, statuses included.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// A List of this many objects. Of every ten, six are pods, one is a ReplicaSet, one a Deployment, one
/// alternates between a Service and its EndpointSlice, and one is a ConfigMap. Half of the workloads are for
/// Windows.
pub fn list(objects: usize) -> Value {
    let items: Vec<Value> = (0..objects).map(object).collect();
    json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})
}

fn object(index: usize) -> Value {
    let team = index / 10;
    let windows = team.is_multiple_of(2);
    match index % 10 {
        0 => workload("Deployment", "apps/v1", team, windows),
        1 => workload("ReplicaSet", "apps/v1", team, windows),
        2 if team.is_multiple_of(2) => service(team),
        2 => endpoints(team),
        3 => config_map(team),
        replica => pod(team, replica, windows),
    }
}

fn namespace(team: usize) -> String {
    format!("team-{}", team % 50)
}

fn metadata(name: &str, team: usize) -> Value {
    json!({
        "annotations": {
            "deployment.kubernetes.io/revision": "3",
            "kubectl.kubernetes.io/restartedAt": "2026-11-20T16:30:41Z",
            "example.com/description": "what this is for, in words that a person wrote: it's the shop's web front, \"blue\" half",
        },
        "creationTimestamp": "2026-11-20T16:30:41Z",
        "labels": {
            "app.kubernetes.io/instance": format!("web-{team}"), "app.kubernetes.io/managed-by": "Helm",
            "app.kubernetes.io/name": "web", "app.kubernetes.io/version": "1.2.3", "helm.sh/chart": "web-1.2.3",
        },
        "name": name, "namespace": namespace(team), "resourceVersion": "123456",
        "uid": format!("52ee6d80-4389-4f71-8423-{team:012}"),
    })
}

fn containers(windows: bool) -> Value {
    let (image, mount) = if windows {
        (
            "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022",
            "C:\\data",
        )
    } else {
        ("registry.example.com/team/web:1.2.3", "/data")
    };
    json!([{
        "env": [
            {"name": "ASPNETCORE_URLS", "value": "http://+:8080"}, {"name": "LOG_LEVEL", "value": "info"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "image": image, "imagePullPolicy": "IfNotPresent",
        "livenessProbe": {"failureThreshold": 3, "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
            "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
        "name": "web", "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "readinessProbe": {"failureThreshold": 3, "httpGet": {"path": "/readyz", "port": 8080, "scheme": "HTTP"},
            "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
        "resources": {"limits": {"cpu": "1", "memory": "800Mi"}, "requests": {"cpu": "100m", "memory": "300Mi"}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"mountPath": mount, "name": "data"},
            {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access-x7k2p", "readOnly": true},
        ],
    }])
}

fn spec(windows: bool) -> Value {
    let mut spec = json!({
        "containers": containers(windows), "dnsPolicy": "ClusterFirst", "enableServiceLinks": true,
        "nodeSelector": {"kubernetes.io/os": if windows { "windows" } else { "linux" }},
        "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "restartPolicy": "Always",
        "schedulerName": "default-scheduler", "securityContext": {}, "serviceAccount": "default",
        "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
            {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300},
        ],
        "volumes": [
            {"emptyDir": {}, "name": "data"},
            {"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
                {"downwardAPI": {"items": [
                    {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"},
                ]}},
            ]}},
        ],
    });
    // The fields that are copied from Linux manifests most often.
    if windows {
        spec["os"] = json!({"name": "windows"});
        spec["securityContext"] = json!({"runAsUser": 1000, "fsGroup": 2000});
    }
    spec
}

fn conditions(kinds: &[&str]) -> Value {
    let condition = |kind: &&str| {
        json!({"lastProbeTime": null, "lastTransitionTime": "2026-11-20T16:30:45Z", "observedGeneration": 1,
            "status": "True", "type": kind})
    };
    kinds.iter().map(condition).collect()
}

fn pod(team: usize, replica: usize, windows: bool) -> Value {
    let mut metadata = metadata(&format!("web-{team}-74f4dcfd48-{replica}"), team);
    metadata["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "blockOwnerDeletion": true, "controller": true, "kind": "ReplicaSet",
        "name": format!("web-{team}-74f4dcfd48"), "uid": "eaf81d78-8e3b-48ce-ba96-861d57c8463f",
    }]);
    let mut spec = spec(windows);
    spec["nodeName"] = json!(format!("node-{}", team % 20));
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
        "status": {
            "conditions": conditions(&["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]),
            "containerStatuses": [{
                "containerID": format!("containerd://{}", "0f".repeat(32)), "image": "registry.example.com/team/web:1.2.3",
                "imageID": format!("registry.example.com/team/web@sha256:{}", "0f".repeat(32)), "lastState": {},
                "name": "web", "ready": true, "restartCount": 0, "started": true,
                "state": {"running": {"startedAt": "2026-11-20T16:30:45Z"}},
            }],
            "hostIP": "10.0.0.4", "hostIPs": [{"ip": "10.0.0.4"}], "phase": "Running", "podIP": "10.244.0.7",
            "podIPs": [{"ip": "10.244.0.7"}], "qosClass": "Burstable", "startTime": "2026-11-20T16:30:41Z",
        },
    })
}

fn workload(kind: &str, api_version: &str, team: usize, windows: bool) -> Value {
    let labels =
        json!({"app.kubernetes.io/instance": format!("web-{team}"), "app.kubernetes.io/name": "web"});
    let mut metadata = metadata(&format!("web-{team}"), team);
    if kind == "Deployment" {
        let applied = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": format!("web-{team}")},
            "spec": {"template": {"spec": {"containers": containers(windows)}}}});
        metadata["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
            json!(format!("{applied}\n"));
    }
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": metadata,
        "spec": {
            "progressDeadlineSeconds": 600, "replicas": 6, "revisionHistoryLimit": 10, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec(windows)},
        },
        "status": {"availableReplicas": 6, "conditions": conditions(&["Available", "Progressing"]), "observedGeneration": 3,
            "readyReplicas": 6, "replicas": 6, "updatedReplicas": 6},
    })
}

fn service(team: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(&format!("web-{team}"), team),
        "spec": {
            "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}],
            "selector": {"app.kubernetes.io/instance": format!("web-{team}"), "app.kubernetes.io/name": "web"},
            "sessionAffinity": "None", "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    })
}

fn endpoints(team: usize) -> Value {
    let mut metadata = metadata(&format!("web-{team}-x7k2p"), team);
    metadata["labels"]["kubernetes.io/service-name"] = json!(format!("web-{team}"));
    let endpoint = |replica: usize| {
        json!({"addresses": [format!("10.244.{}.{}", team % 250, replica)], "nodeName": format!("node-{}", team % 20),
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "name": format!("web-{team}-74f4dcfd48-{replica}"), "namespace": namespace(team)}})
    };
    json!({
        "addressType": "IPv4", "apiVersion": "discovery.k8s.io/v1", "endpoints": (4..10).map(endpoint).collect::<Vec<_>>(),
        "kind": "EndpointSlice", "metadata": metadata, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

fn config_map(team: usize) -> Value {
    let mut settings = String::new();
    for line in 0..80 {
        let _ = writeln!(settings, "setting.number.{line} = value of setting {line}: yes");
    }
    json!({
        "apiVersion": "v1", "data": {"application.properties": settings, "empty": ""}, "kind": "ConfigMap",
        "metadata": metadata(&format!("settings-{team}"), team),
    })
}

/// A value as kubectl prints it in YAML: sorted keys, lists indented like their key, and literal blocks for
/// text that ends with a line end.
pub fn yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) => mapping(map, 0, false, &mut out),
        other => scalar(other, 0, &mut out),
    }
    out
}

fn mapping(map: &Map<String, Value>, depth: usize, mut inline: bool, out: &mut String) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    for (key, value) in entries {
        if !std::mem::take(&mut inline) {
            indent(depth, out);
        }
        text(key, depth, out);
        out.push(':');
        match value {
            Value::Object(map) if !map.is_empty() => {
                out.push('\n');
                mapping(map, depth + 1, false, out);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                sequence(items, depth, out);
            }
            scalar_value => {
                out.push(' ');
                scalar(scalar_value, depth + 1, out);
            }
        }
    }
}

fn sequence(items: &[Value], depth: usize, out: &mut String) {
    for item in items {
        indent(depth, out);
        out.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => mapping(map, depth + 1, true, out),
            other => scalar(other, depth + 1, out),
        }
    }
}

fn scalar(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::String(string) => text(string, depth, out),
        other => out.push_str(&other.to_string()),
    }
    out.push('\n');
}

fn text(string: &str, depth: usize, out: &mut String) {
    if let Some(lines) = string.strip_suffix('\n') {
        out.push('|');
        for line in lines.split('\n') {
            out.push('\n');
            indent(depth, out);
            out.push_str(line);
        }
        return;
    }
    let begins_well = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let plain = begins_well
        && !matches!(
            string,
            "true" | "True" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
        )
        && !string.contains(": ")
        && !string.contains(" #")
        && !string.ends_with(':')
        && !string.contains(['"', '\'', '\n', '\t']);
    if plain {
        out.push_str(string);
    } else if string.contains(['\n', '\t']) {
        out.push_str(&Value::from(string).to_string());
    } else {
        let _ = write!(out, "'{}'", string.replace('\'', "''"));
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}
