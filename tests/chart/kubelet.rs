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

use super::container::command;
use crate::support::control_plane::{ControlPlane, free_ports, wait};

/// A replica of the Deployment.
struct Replica {
    name: String,
    process: Child,
    log: PathBuf,
    template: Value,
    health: Health,
}

/// Where a replica says how it is, as the probes of its template say.
struct Health {
    port: u16,
    ready: String,
    live: String,
}

#[derive(Default)]
struct State {
    replicas: Vec<Replica>,
    jobs: BTreeMap<String, String>,
    /// Everything that ended replicas said.
    shown_text: String,
    /// What no release may do.
    failed: Vec<String>,
    count: usize,
    /// How often it was asked to settle, and for which of these it has.
    requested: usize,
    settled: usize,
}

/// Runs what the release wants to have run, until it is dropped.
pub struct Kubelet {
    cluster: Arc<ControlPlane>,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if let Ok(mut state) = self.state.lock() {
            for replica in &mut state.replicas {
                let _ = replica.process.kill();
                let _ = replica.process.wait();
            }
            if !std::thread::panicking() {
                assert!(state.failed.is_empty(), "{}", state.failed.join("\n"));
                assert!(
                    matches!(ended, None | Some(Ok(()))),
                    "the thread of the kubelet has ended"
                );
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
            let (state, stop, cluster) = (Arc::clone(&state), Arc::clone(&stop), Arc::clone(&cluster));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    jobs(&cluster, &state);
                    deployment(&cluster, &state, address);
                    std::thread::sleep(Duration::from_millis(100));
                }
            })
        };
        Kubelet {
            cluster,
            state,
            stop,
            thread: Some(thread),
        }
    }

    /// Waits until the replicas are those that the Deployment wants now, every one of them ready.
    pub fn settled(&self) {
        let requested = {
            let mut state = self.state.lock().unwrap();
            state.requested += 1;
            state.requested
        };
        let ended = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let done = || {
            let state = self.state.lock().unwrap();
            state.settled >= requested || !state.failed.is_empty() || ended()
        };
        let done = wait(Duration::from_secs(240), done);
        let failed = self.state.lock().unwrap().failed.clone();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
        assert!(done && !ended(), "{}", self.logs());
    }

    /// The nodes go: the replicas end as they do when they are asked to, and nothing runs any more.
    pub fn leave(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        let replicas = std::mem::take(&mut self.state.lock().unwrap().replicas);
        end(&self.cluster, &self.state, replicas);
    }

    /// What the replicas said, those that ended too.
    pub fn logs(&self) -> String {
        let state = self.state.lock().unwrap();
        let mut text = state.shown_text.clone();
        for replica in &state.replicas {
            let _ = writeln!(text, "== {}", replica.name);
            text.push_str(&fs::read_to_string(&replica.log).unwrap_or_default());
        }
        text
    }

    /// What the replicas count.
    pub fn metrics(&self) -> String {
        let state = self.state.lock().unwrap();
        let of_all = state.replicas.iter();
        of_all
            .map(|replica| answer(replica.health.port, "/metrics"))
            .collect()
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
        let mut command = command(cluster, namespace, name, &job["spec"]["template"]).unwrap();
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
        let shown_text =
            [output.stdout, output.stderr].map(|it: Vec<u8>| String::from_utf8_lossy(&it).into_owned());
        state
            .lock()
            .unwrap()
            .jobs
            .insert(uid.to_owned(), shown_text.concat());
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
        end(cluster, state, replicas);
    }
}

/// Brings the replicas to what the Deployment says: new ones first, and an old one goes when a new one is ready.
fn deployment(cluster: &ControlPlane, state: &Mutex<State>, address: IpAddr) {
    let requested = {
        let state = state.lock().unwrap();
        if !state.failed.is_empty() {
            return;
        }
        state.requested
    };
    alive(state);
    let listed = cluster.kubectl(&["get", "deployments", "-n", "transom-system", "-o", "json"]);
    if !listed.ok {
        return;
    }
    let Some(deployment) = listed.objects().into_iter().next() else {
        let left = std::mem::take(&mut state.lock().unwrap().replicas);
        end(cluster, state, left);
        state.lock().unwrap().settled = requested;
        return;
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
        let replica = match start(cluster, state, template, address) {
            Ok(replica) => replica,
            Err(why) => return state.lock().unwrap().failed.push(why),
        };
        let old = {
            let mut state = state.lock().unwrap();
            let old = state.replicas.iter().position(|it| it.template != *template);
            let old = old.map(|at| state.replicas.remove(at));
            state.replicas.push(replica);
            old
        };
        end(cluster, state, old.into_iter().collect());
    }
    let too_many: Vec<Replica> = {
        let mut state = state.lock().unwrap();
        let goes = |it: &mut Replica| it.template != *template || wanted == 0;
        state.replicas.extract_if(.., goes).collect()
    };
    end(cluster, state, too_many);
    state.lock().unwrap().settled = requested;
}

/// A kubelet would restart what its liveness probe finds dead; here that fails the test.
fn alive(state: &Mutex<State>) {
    let mut state = state.lock().unwrap();
    let dead = |it: &&Replica| !is_ok(&it.health, &it.health.live);
    let dead = state.replicas.iter().find(dead);
    let dead = dead.map(|it| {
        let log = fs::read_to_string(&it.log).unwrap_or_default();
        format!("{} is not alive any more:\n{log}", it.name)
    });
    state.failed.extend(dead);
}

/// Starts a replica and makes it an endpoint of the Service when it is ready, as the controllers of Kubernetes would. One
/// that does not become ready is ended, and never an endpoint.
fn start(
    cluster: &ControlPlane,
    state: &Mutex<State>,
    template: &Value,
    address: IpAddr,
) -> Result<Replica, String> {
    let number = {
        let mut state = state.lock().unwrap();
        state.count += 1;
        state.count
    };
    let name = format!("transom-{number}");
    let [port, health] = free_ports();
    let mut command = command(cluster, "transom-system", &name, template)?;
    // Two pods have an address each; two processes share one.
    for (variable, port) in [("TRANSOM_LISTEN", port), ("TRANSOM_HEALTH_LISTEN", health)] {
        let (host, _) = listens(template, variable);
        command.env(variable, format!("{host}:{port}"));
    }
    let health = Health {
        port: health,
        ready: probe(template, "readinessProbe"),
        live: probe(template, "livenessProbe"),
    };
    let log = cluster.path(&format!("{name}.log"));
    let mut process = command
        .stderr(fs::File::create(&log).unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The caBundle, and with it readiness, waits for the first leader, or for whoever else writes it.
    let ready = wait(Duration::from_secs(90), || {
        is_ok(&health, &health.ready) || process.try_wait().unwrap().is_some()
    });
    if !ready || !is_ok(&health, &health.ready) || !is_ok(&health, &health.live) {
        let shown_text = [&health.ready, &health.live].map(|path| answer(health.port, path));
        let _ = process.kill();
        let _ = process.wait();
        let log = fs::read_to_string(&log).unwrap_or_default();
        return Err(format!(
            "{name} does not become ready:\n{}\n{log}",
            shown_text.join("\n")
        ));
    }
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "transom-system", "labels": {"kubernetes.io/service-name": "transom"}},
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &slice.to_string())
        .succeeded();
    Ok(Replica {
        name,
        process,
        log,
        template: template.clone(),
        health,
    })
}

/// The address and the port that a variable of the container says.
fn listens<'a>(template: &'a Value, variable: &str) -> (&'a str, &'a str) {
    let env = template["spec"]["containers"][0]["env"].as_array().unwrap();
    let given = env.iter().find(|it| it["name"] == variable).unwrap();
    given["value"].as_str().unwrap().rsplit_once(':').unwrap()
}

/// The path of a probe, which must ask the port that the container says and the program listens at.
fn probe(template: &Value, which: &str) -> String {
    let container = &template["spec"]["containers"][0];
    let get = &container[which]["httpGet"];
    let mut ports = container["ports"].as_array().unwrap().iter();
    let port = ports.find(|it| it["name"] == get["port"]);
    let port = port.unwrap_or_else(|| panic!("{which} asks no port of the container: {container:#}"));
    let (_, listens) = listens(template, "TRANSOM_HEALTH_LISTEN");
    assert_eq!(port["containerPort"].to_string(), listens, "{which}");
    get["path"].as_str().unwrap().to_owned()
}

/// Takes replicas out of the Service and ends them, in the order in which Kubernetes does it: both at once.
fn end(cluster: &ControlPlane, state: &Mutex<State>, mut replicas: Vec<Replica>) {
    for replica in &replicas {
        let pid = replica.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let endpoint = format!("endpointslice/{}", replica.name);
        cluster.kubectl(&["delete", &endpoint, "-n", "transom-system"]);
    }
    let started = Instant::now();
    for replica in &mut replicas {
        while replica.process.try_wait().unwrap().is_none() {
            if started.elapsed() > Duration::from_secs(45) {
                let _ = replica.process.kill();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let shown_text = fs::read_to_string(&replica.log).unwrap_or_default();
        let _ = writeln!(
            state.lock().unwrap().shown_text,
            "== {} (ended)\n{shown_text}",
            replica.name
        );
    }
}

/// Whether a probe succeeds.
fn is_ok(health: &Health, path: &str) -> bool {
    answer(health.port, path).starts_with("HTTP/1.1 200")
}

fn answer(port: u16, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut text = String::new();
    if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) {
        let _ = write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        );
        let _ = stream.read_to_string(&mut text);
    }
    text
}
