//! A container as a process: the arguments, the environment, the ServiceAccount's token and the mounted Secrets and
//! ConfigMaps that its template says, in a mount namespace of its own where that can be had.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::command::program;
use crate::support::control_plane::ControlPlane;
use crate::support::skipped::skipped;

/// Where a pod finds who it is.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Puts folders where a container would have them mounted: `MOUNT FOLDER … -- PROGRAM ARGUMENT …`. What is exec'd keeps
/// the process id, so a signal reaches it.
const SET_UP: &str = r#"
PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t tmpfs tmpfs /var/run || exit 97
while [ "$1" != -- ]; do
    mkdir -p "$1" && cp "$2"/* "$1"/ || exit 97
    shift 2
done
shift
exec "$@"
"#;

/// How a process gets mounts of its own here; `None`, said once, past the test harness, where it gets none.
fn unshare() -> Option<&'static [&'static str]> {
    static FLAGS: OnceLock<Option<&[&str]>> = OnceLock::new();
    *FLAGS.get_or_init(|| {
        // An administrator needs no namespace of users; anybody else may be allowed one.
        let found = [&["--mount"][..], &["--map-root-user", "--mount"]]
            .into_iter()
            .find(|flags| {
                Command::new("unshare")
                    .args(*flags)
                    .args(["sh", "-c", "mount -t tmpfs tmpfs /var/run"])
                    .output()
                    .is_ok_and(|tried| tried.status.success())
            });
        if found.is_none() {
            skipped("SKIPPED: the configuration inside a cluster: no mount namespace can be made here. It takes the program\n\
                 SKIPPED: unshare, and root or unprivileged user namespaces. Replicas and Jobs get a kubeconfig instead");
        }
        found
    })
}

/// A pod's only container, ready to be started.
pub fn command(
    cluster: &ControlPlane,
    namespace: &str,
    pod: &str,
    template: &Value,
) -> Result<Command, String> {
    let spec = &template["spec"];
    let container = &spec["containers"][0];
    assert_eq!(spec["automountServiceAccountToken"], true, "{spec:#}");
    let account = spec["serviceAccountName"].as_str().unwrap();
    let folder = cluster.path(&format!("{namespace}-{pod}"));
    let mut mounts = vec![(ACCOUNT.to_owned(), folder.join("account"))];
    token(cluster, namespace, account, &mounts[0].1)?;
    for mount in list(&container["volumeMounts"]) {
        let name = mount["name"].as_str().unwrap();
        let volume = list(&spec["volumes"]).find(|it| it["name"] == *name).unwrap();
        let from = folder.join(name);
        match volume["configMap"]["name"].as_str() {
            Some(name) => config_map(cluster, namespace, name, &from)?,
            None => secret(
                cluster,
                namespace,
                volume["secret"]["secretName"].as_str().unwrap(),
                &from,
            )?,
        }
        mounts.push((mount["mountPath"].as_str().unwrap().to_owned(), from));
    }

    let arguments = list(&container["args"]).map(|it| it.as_str().unwrap().to_owned());
    let mut environment: Vec<(String, String)> = list(&container["env"])
        .map(|variable| {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.namespace") => namespace,
                Some("metadata.name") => pod,
                Some(other) => panic!("{other}"),
                None => variable["value"].as_str().unwrap(),
            };
            (variable["name"].as_str().unwrap().to_owned(), value.to_owned())
        })
        .collect();
    let mut command = if let Some(flags) = unshare() {
        let (host, port) = api_server(cluster);
        environment.push(("KUBERNETES_SERVICE_HOST".to_owned(), host));
        environment.push(("KUBERNETES_SERVICE_PORT".to_owned(), port));
        let mut command = Command::new("unshare");
        command.args(flags).args(["sh", "-c", SET_UP, "sh"]);
        for (at, from) in &mounts {
            command.arg(at).arg(from);
        }
        command.arg("--").arg(program());
        command
    } else {
        for (_, value) in &mut environment {
            for (at, from) in &mounts {
                *value = value.replace(at, from.to_str().unwrap());
            }
        }
        let file = kubeconfig(cluster, &mounts[0].1);
        environment.push(("TRANSOM_KUBECONFIG".to_owned(), file.display().to_string()));
        Command::new(program())
    };
    command
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null());
    Ok(command)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// What the kubelet mounts for a ServiceAccount.
fn token(cluster: &ControlPlane, namespace: &str, account: &str, folder: &Path) -> Result<(), String> {
    let printed = cluster.kubectl(&["create", "token", account, "-n", namespace, "--duration=1h"]);
    if !printed.ok {
        return Err(printed.err);
    }
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("token"), printed.out.trim()).unwrap();
    fs::write(folder.join("namespace"), namespace).unwrap();
    fs::copy(cluster.path("ca.crt"), folder.join("ca.crt")).unwrap();
    Ok(())
}

/// What it mounts for a Secret.
fn secret(cluster: &ControlPlane, namespace: &str, name: &str, folder: &Path) -> Result<(), String> {
    let printed = cluster.kubectl(&["get", "secret", name, "-n", namespace, "-o", "json"]);
    if !printed.ok {
        return Err(printed.err);
    }
    fs::create_dir_all(folder).unwrap();
    for (key, value) in printed.object()["data"].as_object().unwrap() {
        let value = base64::prelude::BASE64_STANDARD.decode(value.as_str().unwrap());
        fs::write(folder.join(key), value.unwrap()).unwrap();
    }
    Ok(())
}

/// What it mounts for a ConfigMap.
fn config_map(cluster: &ControlPlane, namespace: &str, name: &str, folder: &Path) -> Result<(), String> {
    let printed = cluster.kubectl(&["get", "configmap", name, "-n", namespace, "-o", "json"]);
    if !printed.ok {
        return Err(printed.err);
    }
    fs::create_dir_all(folder).unwrap();
    for (key, value) in printed.object()["data"].as_object().unwrap() {
        fs::write(folder.join(key), value.as_str().unwrap()).unwrap();
    }
    Ok(())
}

fn admin(cluster: &ControlPlane) -> Value {
    let text = fs::read_to_string(cluster.path("admin.kubeconfig")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Where the API server is: host and port.
fn api_server(cluster: &ControlPlane) -> (String, String) {
    let admin = admin(cluster);
    let url = admin["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let (host, port) = url.strip_prefix("https://").unwrap().rsplit_once(':').unwrap();
    (host.to_owned(), port.to_owned())
}

/// A kubeconfig with the token of a ServiceAccount.
fn kubeconfig(cluster: &ControlPlane, account: &Path) -> PathBuf {
    let mut config = admin(cluster);
    let token = fs::read_to_string(account.join("token")).unwrap();
    config["users"][0]["user"] = json!({ "token": token });
    let file = account.join("kubeconfig");
    fs::write(&file, config.to_string()).unwrap();
    file
}

/// A kubeconfig of a ServiceAccount that is there.
pub fn kubeconfig_of(cluster: &ControlPlane, namespace: &str, account: &str) -> PathBuf {
    let folder = cluster.path(account);
    token(cluster, namespace, account, &folder).unwrap();
    kubeconfig(cluster, &folder)
}

/// A kubeconfig of a ServiceAccount that is made here, with these rules in the whole cluster.
pub fn account(cluster: &ControlPlane, name: &str, rules: &Value) -> PathBuf {
    let rbac = "rbac.authorization.k8s.io";
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}},
        {"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
         "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
         "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]},
    ]});
    cluster
        .kubectl_with(&["create", "-f", "-"], &objects.to_string())
        .succeeded();
    let folder = cluster.path(name);
    token(cluster, "default", name, &folder).unwrap();
    kubeconfig(cluster, &folder)
}
