//! What a cluster with nodes would do for the release: its Deployment's pods and its Jobs run here, as processes with
//! the arguments, the environment and the rights that their templates give them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::TRANSOM;
use super::control_plane::{ControlPlane, free_ports, wait};

/// The administrator's kubeconfig.
pub fn kubeconfig(cluster: &ControlPlane) -> String {
    cluster.path("admin.kubeconfig").display().to_string()
}

/// A replica of the Deployment.
struct Replica {
    name: String,
    process: Child,
    log: PathBuf,
    template: Value,
    health: u16,
}

#[derive(Default)]
struct State {
    replicas: Vec<Replica>,
    jobs: BTreeMap<String, String>,
    /// Everything that ended replicas said.
    said: String,
    count: usize,
    settled: bool,
}

/// Runs what the release wants to have run, until it is dropped.
pub struct Kubelet {
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
        if let Ok(mut state) = self.state.lock() {
            for replica in &mut state.replicas {
                let _ = replica.process.kill();
                let _ = replica.process.wait();
            }
        }
    }
}

impl Kubelet {
    pub fn start(cluster: Arc<ControlPlane>, address: IpAddr) -> Self {
        let (state, stop) = (
            Arc::new(Mutex::new(State::default())),
            Arc::new(AtomicBool::new(false)),
        );
        let thread = {
            let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    jobs(&cluster, &state);
                    deployment(&cluster, &state, address);
                    std::thread::sleep(Duration::from_millis(100));
                }
            })
        };
        Kubelet {
            state,
            stop,
            thread: Some(thread),
        }
    }

    /// Waits until the replicas are those that the Deployment wants now.
    pub fn settled(&self) {
        self.state.lock().unwrap().settled = false;
        let settled = || self.state.lock().unwrap().settled;
        assert!(wait(Duration::from_secs(120), settled), "{}", self.logs());
    }

    /// What the replicas said, those that ended too.
    pub fn logs(&self) -> String {
        let state = self.state.lock().unwrap();
        let mut text = state.said.clone();
        for replica in &state.replicas {
            let _ = writeln!(text, "== {}", replica.name);
            text.push_str(&fs::read_to_string(&replica.log).unwrap_or_default());
        }
        text
    }

    /// What the Jobs said.
    pub fn jobs(&self) -> String {
        let state = self.state.lock().unwrap();
        state
            .jobs
            .values()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// A kubeconfig with the token of a ServiceAccount, as a pod has it.
fn account(cluster: &ControlPlane, namespace: &str, name: &str) -> PathBuf {
    let token = cluster
        .kubectl(&["create", "token", name, "-n", namespace, "--duration=1h"])
        .succeeded()
        .out;
    let text = fs::read_to_string(cluster.path("admin.kubeconfig")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    let file = cluster.path(&format!("{namespace}-{name}.kubeconfig"));
    fs::write(&file, config.to_string()).unwrap();
    file
}

/// The command of a pod's only container. Where the API server is does not come from the environment of a pod here, so
/// a kubeconfig says it.
fn command(cluster: &ControlPlane, namespace: &str, pod: &str, template: &Value) -> Command {
    let spec = &template["spec"];
    let container = &spec["containers"][0];
    let mut command = Command::new(TRANSOM);
    let strings = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    command.args(strings(&container["args"])).env_clear();
    for variable in container["env"].as_array().into_iter().flatten() {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("metadata.namespace") => namespace,
            Some("metadata.name") => pod,
            Some(other) => panic!("{other}"),
            None => variable["value"].as_str().unwrap(),
        };
        command.env(variable["name"].as_str().unwrap(), value);
    }
    let account = account(cluster, namespace, spec["serviceAccountName"].as_str().unwrap());
    command.env("TRANSOM_KUBECONFIG", account).stdin(Stdio::null());
    command
}

/// Runs each Job once, and reports how it ended.
fn jobs(cluster: &ControlPlane, state: &Mutex<State>) {
    let listed = cluster.kubectl(&["get", "jobs", "-A", "-o", "json"]);
    for job in listed
        .out
        .is_empty()
        .then(Vec::new)
        .unwrap_or_else(|| listed.objects())
    {
        let uid = job["metadata"]["uid"].as_str().unwrap();
        if state.lock().unwrap().jobs.contains_key(uid) {
            continue;
        }
        let name = job["metadata"]["name"].as_str().unwrap();
        let namespace = job["metadata"]["namespace"].as_str().unwrap();
        // The Deployment must go on being looked after, and some cleanups wait for it.
        state.lock().unwrap().jobs.insert(uid.to_owned(), String::new());
        let mut command = command(cluster, namespace, name, &job["spec"]["template"]);
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while process.try_wait().unwrap().is_none() {
            stop_replicas(cluster, state);
            std::thread::sleep(Duration::from_millis(100));
        }
        let output = process.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        state.lock().unwrap().jobs.insert(uid.to_owned(), said.concat());
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Ended", "lastTransitionTime": now});
        let status = if output.status.success() {
            json!({"startTime": now, "completionTime": now, "succeeded": 1,
                   "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]})
        } else {
            json!({"startTime": now, "failed": 1, "conditions": [condition("FailureTarget"), condition("Failed")]})
        };
        let patch = json!({"status": status}).to_string();
        cluster
            .kubectl(&[
                "patch",
                "job",
                name,
                "-n",
                namespace,
                "--subresource=status",
                "--type=merge",
                "-p",
                &patch,
            ])
            .succeeded();
    }
}

/// Ends the replicas when the Deployment is scaled to nothing.
fn stop_replicas(cluster: &ControlPlane, state: &Mutex<State>) {
    let wanted = cluster.kubectl(&["get", "deployments", "-n", "transom-system", "-o", "json"]);
    let gone = wanted.ok && wanted.objects().iter().all(|it| it["spec"]["replicas"] == 0);
    if gone {
        let replicas = std::mem::take(&mut state.lock().unwrap().replicas);
        for replica in replicas {
            end(cluster, state, replica);
        }
    }
}

/// Brings the replicas to what the Deployment says: new ones first, and an old one goes when a new one is ready.
fn deployment(cluster: &ControlPlane, state: &Mutex<State>, address: IpAddr) {
    let listed = cluster.kubectl(&["get", "deployments", "-n", "transom-system", "-o", "json"]);
    if !listed.ok {
        return;
    }
    let Some(deployment) = listed.objects().into_iter().next() else {
        let left = std::mem::take(&mut state.lock().unwrap().replicas);
        return left.into_iter().for_each(|replica| end(cluster, state, replica));
    };
    let template = &deployment["spec"]["template"];
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap();
    let current = |state: &State| {
        state
            .replicas
            .iter()
            .filter(|it| it.template == *template)
            .count() as u64
    };
    while current(&state.lock().unwrap()) < wanted {
        let replica = start(cluster, state, template, address);
        // The caBundle, and with it readiness, may wait for the whole first replica.
        if !wait(Duration::from_secs(60), || is_ready(replica.health)) {
            let log = fs::read_to_string(&replica.log).unwrap_or_default();
            eprintln!(
                "{} does not become ready: {}\n{log}",
                replica.name,
                readiness(replica.health)
            );
        }
        let old = {
            let mut state = state.lock().unwrap();
            let old = state.replicas.iter().position(|it| it.template != *template);
            let old = old.map(|at| state.replicas.remove(at));
            state.replicas.push(replica);
            old
        };
        if let Some(old) = old {
            end(cluster, state, old);
        }
    }
    while let Some(old) = {
        let mut state = state.lock().unwrap();
        let old = state
            .replicas
            .iter()
            .position(|it| it.template != *template || wanted == 0);
        old.map(|at| state.replicas.remove(at))
    } {
        end(cluster, state, old);
    }
    state.lock().unwrap().settled = true;
}

/// Starts a replica and makes it an endpoint of the Service when it is ready, as the controllers of Kubernetes would.
fn start(cluster: &ControlPlane, state: &Mutex<State>, template: &Value, address: IpAddr) -> Replica {
    let number = {
        let mut state = state.lock().unwrap();
        state.count += 1;
        state.count
    };
    let name = format!("transom-{number}");
    let [port, health] = free_ports();
    let mut command = command(cluster, "transom-system", &name, template);
    // Two pods have an address each; two processes share one.
    for (variable, port) in [("TRANSOM_LISTEN", port), ("TRANSOM_HEALTH_LISTEN", health)] {
        let env = &template["spec"]["containers"][0]["env"];
        let given = env
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == variable)
            .unwrap();
        let (host, _) = given["value"].as_str().unwrap().rsplit_once(':').unwrap();
        command.env(variable, format!("{host}:{port}"));
    }
    let log = cluster.path(&format!("{name}.log"));
    let process = command
        .stderr(fs::File::create(&log).unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait(Duration::from_secs(60), || is_ready(health));
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "transom-system", "labels": {"kubernetes.io/service-name": "transom"}},
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &slice.to_string())
        .succeeded();
    Replica {
        name,
        process,
        log,
        template: template.clone(),
        health,
    }
}

/// Takes a replica out of the Service and ends it, in the order in which Kubernetes does it: both at once.
fn end(cluster: &ControlPlane, state: &Mutex<State>, mut replica: Replica) {
    let pid = replica.process.id().to_string();
    let _ = Command::new("kill").args(["-TERM", &pid]).status();
    let endpoint = format!("endpointslice/{}", replica.name);
    cluster.kubectl(&["delete", &endpoint, "-n", "transom-system"]);
    let started = Instant::now();
    while replica.process.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(45) {
            let _ = replica.process.kill();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = fs::read_to_string(&replica.log).unwrap_or_default();
    let _ = writeln!(state.lock().unwrap().said, "== {} (ended)\n{said}", replica.name);
}

fn is_ready(health: u16) -> bool {
    readiness(health).starts_with("HTTP/1.1 200")
}

fn readiness(health: u16) -> String {
    use std::io::{Read as _, Write as _};
    let mut text = String::new();
    if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", health)) {
        let _ = stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let _ = stream.read_to_string(&mut text);
    }
    text
}
