//! A real etcd and kube-apiserver on loopback, in a temporary folder, and kubectl to query them as a user
//! would.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use serde_json::{Value, json};

use super::skipped::skipped;

/// The programs that envtest provides.
const PROGRAMS: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// Executes each line of its standard input: mostly `start NAME PROGRAM ARGS`, in the background. When its
/// input ends, it kills the programs that still run, because their state is not needed any more, and a
/// terminating API server waits for its watches. Its input ends when the test process ends for any reason.
const SUPERVISOR: &str = r#"
cd "$1" || exit 1
# Go collects garbage less often: a quarter less processor time for each API server, and 100 MiB more memory.
export GOGC=400
pids=
start() {
    name=$1; shift
    "$@" >>"$name.log" 2>&1 </dev/null &
    pids="$! $pids"
    echo $! >"$name.pid"
}
# A process that has ended is forgotten: its number may be another one's soon.
reap() {
    gone=$(cat "$1.pid"); left=
    wait "$gone"; ended=$?
    for pid in $pids; do [ "$pid" = "$gone" ] || left="$left $pid"; done
    pids=$left
    rm "$1.pid"; echo $ended >"$1.status"
}
while IFS= read -r line; do eval "$line"; done
for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
wait
cd / && rm -rf "$1"
"#;

/// The flag with which each controller uses its own ServiceAccount.
pub const OWN_ACCOUNTS: &str = "--use-service-account-credentials=true";

const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
# Which rights the account of the chart uses.
- level: Metadata
  users: ["system:serviceaccount:transom-system:transom"]
- level: Metadata
  verbs: [create, update, patch, delete]
  resources:
  - {group: "", resources: [pods, pods/ephemeralcontainers]}
  - {group: apps, resources: [deployments, daemonsets, statefulsets, replicasets]}
  - {group: batch, resources: [jobs, cronjobs]}
- level: None
"#;

/// Free ports, all different.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let listeners: [TcpListener; N] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// The path of the programs, or what is missing.
pub fn programs() -> Result<PathBuf, String> {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS")
        .map_or_else(|| PathBuf::from("/usr/local/kubebuilder/bin"), PathBuf::from);
    let missing: Vec<&str> = PROGRAMS
        .into_iter()
        .filter(|program| !folder.join(program).is_file())
        .collect();
    if missing.is_empty() {
        Ok(folder)
    } else {
        Err(format!("no {} in {}", missing.join(", "), folder.display()))
    }
}

/// The path of the programs; if something is missing, reports that `what` is not tested.
pub fn programs_or_skip(what: &str) -> Option<PathBuf> {
    let report = |missing: &String| {
        skipped(format!(
            "SKIPPED: {what}: {missing}. To get a control plane:\n\
             SKIPPED:   go install sigs.k8s.io/controller-runtime/tools/setup-envtest@latest\n\
             SKIPPED:   export KUBEBUILDER_ASSETS=$(setup-envtest use 1.36 -p path)"
        ));
    };
    programs().inspect_err(report).ok()
}

/// The path of the programs including the controllers and the scheduler, for tests that schedule pods; if
/// something is missing, reports once that the tests of a file are skipped.
pub fn programs_of_a_whole_control_plane(tests: &str) -> Option<PathBuf> {
    let found = programs().and_then(|folder| {
        let missing = ["kube-controller-manager", "kube-scheduler"]
            .into_iter()
            .find(|program| !folder.join(program).is_file());
        missing.map_or(Ok(folder.clone()), |program| {
            Err(format!("no {program} in {}", folder.display()))
        })
    });
    let report = |missing: &String| {
        skipped(format!(
            "SKIPPED: {tests}: {missing}. Put kube-controller-manager and kube-scheduler of the same release beside the \
             programs of setup-envtest, in $KUBEBUILDER_ASSETS"
        ));
    };
    found.inspect_err(report).ok()
}

/// The output of kubectl.
#[derive(Debug)]
pub struct Printed {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

impl Printed {
    /// The output, asserting that the command succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert!(self.ok, "kubectl failed: {}", self.err);
        self
    }

    /// The objects printed with `-o json`, with Lists expanded.
    #[track_caller]
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = Vec::new();
        for document in serde_json::Deserializer::from_str(&self.out).into_iter() {
            let document: Value = document.unwrap();
            match document["items"].as_array() {
                Some(items) => objects.extend(items.iter().cloned()),
                None => objects.push(document),
            }
        }
        objects
    }

    /// The only object printed.
    #[track_caller]
    pub fn object(&self) -> Value {
        let mut objects = self.objects();
        assert_eq!(objects.len(), 1, "{self:?}");
        objects.remove(0)
    }
}

/// A shell that stops the programs it started when its standard input ends.
struct Supervisor {
    shell: Child,
    lines: Mutex<Option<ChildStdin>>,
    /// By name, the line that started each program.
    started: Mutex<BTreeMap<String, String>>,
}

impl Supervisor {
    fn start(folder: &Path) -> Self {
        let log = std::fs::File::create(folder.join("supervisor.log")).unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            // Ctrl-C goes to the tests; the programs are then stopped in order.
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = Mutex::new(shell.stdin.take());
        Supervisor {
            shell,
            lines,
            started: Mutex::default(),
        }
    }

    /// Starts a program with its output in `NAME.log` in the folder.
    fn run(&self, name: &str, program: &Path, args: &[String]) {
        let quote = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
        let mut line = format!("start {name} {}", quote(program.to_str().unwrap()));
        for arg in args {
            let _ = write!(line, " {}", quote(arg));
        }
        self.send(&line);
        self.started.lock().unwrap().insert(name.to_owned(), line);
    }

    fn send(&self, line: &str) {
        let mut lines = self.lines.lock().unwrap();
        writeln!(lines.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.lines.lock().map(|mut lines| lines.take()));
        let _ = self.shell.wait();
    }
}

/// A running control plane without nodes. It stops when this is dropped or the process ends.
pub struct ControlPlane {
    supervisor: Supervisor,
    programs: PathBuf,
    folder: PathBuf,
}

impl ControlPlane {
    /// Starts etcd and the API server, and waits until it is ready.
    pub fn start(programs: PathBuf) -> Result<Self, String> {
        Self::start_with(programs, &[])
    }

    /// Starts with additional flags for the API server; if a flag occurs twice, the last one applies.
    pub fn start_with(programs: PathBuf, more: &[&str]) -> Result<Self, String> {
        // The supervisor removes it after the last program has ended.
        let folder = tempfile::Builder::new()
            .prefix("transom-cluster-")
            .tempdir()
            .map_err(|error| error.to_string())?
            .keep();
        let plane = ControlPlane {
            supervisor: Supervisor::start(&folder),
            programs,
            folder,
        };
        let [etcd, peer, port] = free_ports();
        plane.issue_certificates(port);
        std::fs::write(plane.path("audit.yaml"), AUDIT_POLICY).unwrap();
        plane.run(
            "etcd",
            &[
                "--data-dir=etcd".to_owned(),
                // The data need not survive a crash, and other writers to this disk must not delay tests.
                "--unsafe-no-fsync".to_owned(),
                // Soak tests store more than the default of 2 GiB.
                format!("--quota-backend-bytes={}", 8_u64 << 30),
                format!("--listen-client-urls=http://127.0.0.1:{etcd}"),
                format!("--advertise-client-urls=http://127.0.0.1:{etcd}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster=default=http://127.0.0.1:{peer}"),
            ],
        );
        let mut args = vec![
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--cert-dir=.".to_owned(),
            "--tls-cert-file=apiserver.crt".to_owned(),
            "--tls-private-key-file=apiserver.key".to_owned(),
            "--client-ca-file=ca.crt".to_owned(),
            "--service-account-key-file=accounts.pub".to_owned(),
            "--service-account-signing-key-file=accounts.key".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
            // The API server calls webhooks behind a Service at its endpoints, because no kube-proxy runs
            // here.
            "--enable-aggregator-routing=true".to_owned(),
            // No controller creates the default ServiceAccounts here.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--audit-log-path=audit.log".to_owned(),
            "--audit-policy-file=audit.yaml".to_owned(),
        ];
        args.extend(more.iter().map(ToString::to_string));
        plane.run("kube-apiserver", &args);
        let ready = || plane.kubectl(&["get", "--raw", "/readyz"]).ok;
        if wait(Duration::from_secs(90), ready) {
            Ok(plane)
        } else {
            Err(format!(
                "the API server did not become ready:\n{}\n{}",
                plane.end_of_log("etcd"),
                plane.end_of_log("kube-apiserver")
            ))
        }
    }

    /// Starts the controllers that create pods from Deployments, or returns what is missing.
    pub fn start_controllers(&self) -> Result<(), String> {
        self.start_controllers_of("deployment-controller,replicaset-controller")
    }

    /// Starts these controllers.
    pub fn start_controllers_of(&self, controllers: &str) -> Result<(), String> {
        self.start_controllers_with(controllers, &[])
    }

    /// Starts these controllers with additional flags. They use the identity
    /// `system:kube-controller-manager`, or with [`OWN_ACCOUNTS`] each its own ServiceAccount in kube-system,
    /// as on most platforms.
    pub fn start_controllers_with(&self, controllers: &str, more: &[&str]) -> Result<(), String> {
        if !self.programs.join("kube-controller-manager").is_file() {
            return Err(format!(
                "no kube-controller-manager in {}",
                self.programs.display()
            ));
        }
        let [port] = free_ports();
        self.run(
            "kube-controller-manager",
            &[
                [
                    "--kubeconfig=controllers.kubeconfig".to_owned(),
                    "--leader-elect=false".to_owned(),
                    "--bind-address=127.0.0.1".to_owned(),
                    format!("--secure-port={port}"),
                    "--cert-dir=.".to_owned(),
                    format!("--controllers={controllers}"),
                ]
                .as_slice(),
                &more.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ]
            .concat(),
        );
        Ok(())
    }

    /// Starts the scheduler.
    pub fn start_scheduler(&self) -> Result<(), String> {
        self.start_scheduler_with(&[])
    }

    /// Starts the scheduler with additional arguments. Without `--config`, the address of the API server is
    /// added.
    pub fn start_scheduler_with(&self, more: &[String]) -> Result<(), String> {
        if !self.programs.join("kube-scheduler").is_file() {
            return Err(format!("no kube-scheduler in {}", self.programs.display()));
        }
        let [port] = free_ports();
        let mut args = vec![
            "--kubeconfig=admin.kubeconfig".to_owned(),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "--cert-dir=.".to_owned(),
        ];
        args.extend_from_slice(more);
        self.run("kube-scheduler", &args);
        Ok(())
    }

    /// Starts a program of the test; it is stopped before the control plane.
    pub fn run_program(&self, name: &str, program: &Path, args: &[String]) {
        self.supervisor.run(name, program, args);
    }

    fn run(&self, program: &str, args: &[String]) {
        self.supervisor.run(program, &self.programs.join(program), args);
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The last lines of a program's output.
    pub fn end_of_log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// The events of the API server's audit log.
    pub fn audit_events(&self) -> Vec<Value> {
        std::fs::read_to_string(self.path("audit.log"))
            .unwrap_or_default()
            .lines()
            // The last line may be incomplete.
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// All annotations that the audit log has for an object.
    pub fn audited(&self, namespace: &str, name: &str) -> BTreeMap<String, String> {
        let events = self.audit_events().into_iter();
        let of_object = events.filter(|event| {
            event["objectRef"]["namespace"] == namespace && event["objectRef"]["name"] == name
        });
        let annotations = of_object.filter_map(|mut event| {
            serde_json::from_value::<BTreeMap<_, _>>(event["annotations"].take()).ok()
        });
        annotations.flatten().collect()
    }

    /// Creates a namespace with these labels.
    #[track_caller]
    pub fn create_namespace(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        let metadata = json!({"name": name, "labels": labels});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        self.kubectl_with(&["create", "-f", "-"], &namespace.to_string())
            .succeeded();
    }

    /// The output of kubectl, as the administrator.
    pub fn kubectl(&self, args: &[&str]) -> Printed {
        self.kubectl_with(args, "")
    }

    /// The output of kubectl with this standard input (`-f -`).
    pub fn kubectl_with(&self, args: &[&str], input: &str) -> Printed {
        let mut child = Command::new(self.programs.join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.path("admin.kubeconfig"))
            .arg("--cache-dir")
            .arg(self.path("cache"))
            .args(args)
            .env("GOGC", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // kubectl may exit before it has read everything.
        let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Printed {
            ok: output.status.success(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Issues a CA, a certificate of the API server, and a kubeconfig of an administrator.
    fn issue_certificates(&self, port: u16) {
        let write = |name: &str, text: &str| std::fs::write(self.path(name), text).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "kube-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        write("ca.crt", &ca.pem());

        let issue = |file: &str, name: &str, group: Option<&str>, hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            let is_server = !hosts.is_empty();
            let mut params = CertificateParams::new(hosts).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            if let Some(group) = group {
                params.distinguished_name.push(DnType::OrganizationName, group);
            }
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![if is_server {
                ExtendedKeyUsagePurpose::ServerAuth
            } else {
                ExtendedKeyUsagePurpose::ClientAuth
            }];
            let key = KeyPair::generate().unwrap();
            write(
                &format!("{file}.crt"),
                &params.signed_by(&key, &ca).unwrap().pem(),
            );
            write(&format!("{file}.key"), &key.serialize_pem());
        };
        issue(
            "apiserver",
            "kube-apiserver",
            None,
            &["127.0.0.1", "localhost", "kubernetes.default.svc"],
        );
        issue("admin", "admin", Some("system:masters"), &[]);
        // Without their own ServiceAccounts, the controllers use this identity with the permissions of all of
        // them.
        let manager = "system:kube-controller-manager";
        issue("controllers", manager, Some("system:masters"), &[]);
        let accounts = KeyPair::generate().unwrap();
        write("accounts.key", &accounts.serialize_pem());
        write("accounts.pub", &accounts.public_key_pem());

        let file = |name: &str| self.path(name).display().to_string();
        for user in ["admin", "controllers"] {
            let mut kubeconfig = kubeconfig(&format!("https://127.0.0.1:{port}"));
            kubeconfig["clusters"][0]["cluster"]["certificate-authority"] = file("ca.crt").into();
            kubeconfig["users"][0]["user"] = json!({
                "client-certificate": file(&format!("{user}.crt")),
                "client-key": file(&format!("{user}.key")),
            });
            write(&format!("{user}.kubeconfig"), &kubeconfig.to_string());
        }
    }
}

/// For tests that use Transom's own API client.
impl ControlPlane {
    /// Waits until the API server has accepted all CustomResourceDefinitions.
    #[track_caller]
    pub fn wait_for_definitions(&self) {
        let all = [
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ];
        self.kubectl(&all).succeeded();
    }

    /// Starts a control plane; if programs are missing, reports on the terminal that `what` is not tested.
    pub fn start_or_skip(what: &str) -> Option<Self> {
        let programs = programs_or_skip(what)?;
        Some(Self::start(programs).unwrap_or_else(|error| panic!("{error}")))
    }

    /// A client of the administrator.
    pub async fn client(&self) -> kube::Client {
        self.client_with(|_| ()).await
    }

    /// The same, with changed settings.
    pub async fn client_with(&self, change: impl FnOnce(&mut kube::Config)) -> kube::Client {
        let mut config = self.config().await;
        change(&mut config);
        kube::Client::try_from(config).unwrap()
    }

    /// The client configuration of the administrator.
    pub async fn config(&self) -> kube::Config {
        // Fails if another test of this process has already installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = kube::config::Kubeconfig::read_from(self.path("admin.kubeconfig")).unwrap();
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
            .await
            .unwrap()
    }
}

/// For fault injection tests.
impl ControlPlane {
    /// Sends a signal (`STOP`, `CONT`) to a program that was started here.
    pub fn signal(&self, name: &str, signal: &str) {
        self.supervisor
            .send(&format!("kill -s {signal} $(cat {name}.pid)"));
    }

    /// Ends a program with a signal, waits for it, and returns its status: 128 plus the signal if the signal
    /// ended it.
    pub fn end(&self, name: &str, signal: &str) -> i32 {
        let status = self.path(&format!("{name}.status"));
        let _ = std::fs::remove_file(&status);
        self.signal(name, signal);
        self.supervisor.send(&format!("reap {name}"));
        let read = || std::fs::read_to_string(&status).ok()?.trim().parse().ok();
        assert!(
            wait(Duration::from_secs(60), || read().is_some()),
            "{name} does not end by {signal}"
        );
        read().unwrap()
    }

    /// Restarts a program that has ended, with the same arguments.
    pub fn start_again(&self, name: &str) {
        let line = self.supervisor.started.lock().unwrap()[name].clone();
        self.supervisor.send(&line);
    }

    /// The process ID of a program that was started here.
    pub fn pid(&self, name: &str) -> u32 {
        let file = self.path(&format!("{name}.pid"));
        let read = || std::fs::read_to_string(&file).ok()?.trim().parse().ok();
        assert!(
            wait(Duration::from_secs(10), || read().is_some()),
            "{name} was not started"
        );
        read().unwrap()
    }
}

/// Waits until the condition is true; returns whether it became true. Most conditions run kubectl, which takes a tenth of
/// a second of processor time: the pauses grow, so that tests that wait do not delay the others.
pub fn wait(most: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        let waited = start.elapsed();
        if waited > most {
            return false;
        }
        std::thread::sleep((waited / 8).clamp(Duration::from_millis(50), Duration::from_millis(500)));
    }
    true
}

/// The kubeconfig for an API server, without credentials.
pub fn kubeconfig(url: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]})
}
