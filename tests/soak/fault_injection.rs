//! What happens to creates while replicas, the API server, etcd and certificates fail: three replicas behind a Service,
//! a steady stream of pods, and an account of every one that failed, beside the same without Transom. Without the
//! programs, or without a network of its own, this says so and proves nothing.
#![cfg(unix)]

mod load;

use crate::netns;
use crate::support::install;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::service::{self, Endpoints, leader, name, replica_of};
use crate::support::control_plane::{ControlPlane, programs, wait};
use crate::support::skipped::skipped;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use load::{Count, Kind, LEFT_OUT, Load, SEEN, count, linux, windows};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const TEST: &str = "fault_injection::creates_fail_no_more_than_without_transom_whatever_fails";

/// After an endpoint was withdrawn: the API server reads it from a watch, and what was under way ends.
const FOLLOWS: Duration = Duration::from_secs(1);

/// Nothing takes so long on a machine that has a little time for everybody.
const SLOW: Duration = Duration::from_secs(1);

#[test]
fn creates_fail_no_more_than_without_transom_whatever_fails() {
    let _turn = crate::alone();
    let Some(programs) = found() else { return };
    if !netns::is_inside(TEST) {
        return;
    }
    let cluster = ControlPlane::start(programs).unwrap();
    cluster.start_controllers().unwrap();
    let world = World::new(&cluster);

    // Without Transom.
    world
        .step("nothing, without Transom", |_| rest(3))
        .is_like_without();
    world
        .step("API server restarted, without Transom", |step| {
            world.restart_api_server(step);
        })
        .is_like_without();
    world
        .step("etcd paused for 20 s, without Transom", |step| {
            world.pause_etcd(step);
        })
        .is_like_without();

    world.install();
    world.step("nothing", |_| rest(3)).is_graceful();
    world
        .step("the leader killed", |step| world.kill(step, true))
        .is_open();
    world.register("Fail");
    world
        .step("a follower killed, under Fail", |step| world.kill(step, false))
        .is_closed_until_withdrawn();
    world
        .step("the leader killed, under Fail", |step| world.kill(step, true))
        .is_closed_until_withdrawn();
    world.step("rolling restart", |_| world.roll()).is_graceful();
    world
        .step("API server restarted", |step| world.restart_api_server(step))
        .is_graceful();
    world
        .step("etcd paused for 20 s", |step| world.pause_etcd(step))
        .is_graceful();
    world.all_is_well();
    world
        .step("certificates and CA replaced twice", |_| {
            world.replace_certificates();
        })
        .is_graceful();
    world
        .step("Transom gone, under Fail", |_| world.gone())
        .refuses_windows();
    world.register("Ignore");
    world
        .step("Transom gone, under Ignore", |_| rest(3))
        .lets_windows_pass();
    world.come_back();
    world.step("Transom back", |_| rest(3)).is_graceful();
    world.every_workload_has_its_pods();
    world.print();
}

fn found() -> Option<std::path::PathBuf> {
    let found = programs().and_then(|folder| {
        let program = "kube-controller-manager";
        if folder.join(program).is_file() {
            Ok(folder)
        } else {
            Err(format!("no {program} in {}", folder.display()))
        }
    });
    found
        .inspect_err(|missing| {
            skipped(format!("SKIPPED: tests/soak/fault_injection.rs: {missing}. Put kube-controller-manager of the same release beside the \
                 programs of setup-envtest, in $KUBEBUILDER_ASSETS"));
        })
        .ok()
}

/// Everything that the steps share.
struct World<'c> {
    cluster: &'c ControlPlane,
    runtime: Runtime,
    client: Client,
    load: Load,
    endpoints: Endpoints,
    table: RefCell<Vec<String>>,
    workloads: RefCell<Vec<String>>,
}

/// What is noted while a step goes on.
#[derive(Default)]
struct Notes {
    /// When the API server itself was down.
    down: Option<(Instant, Instant)>,
    /// Creates take long whoever looks at them.
    slow: bool,
    /// When the endpoint that was killed was withdrawn.
    withdrawn: Option<Instant>,
}

/// A step, and what came of it.
struct Step {
    name: &'static str,
    notes: Notes,
    counts: BTreeMap<Kind, Count>,
}

impl World<'_> {
    fn new(cluster: &ControlPlane) -> World<'_> {
        for (namespace, label) in [
            (SEEN, ("seen", "yes")),
            (LEFT_OUT, ("transom.dev/ignore", "true")),
        ] {
            cluster.create_namespace(namespace, &[label]);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(cluster.client_with(|config| {
            // What fails is counted, not tried again.
            config.default_retry = false;
            config.read_timeout = Some(Duration::from_secs(60));
        }));
        World {
            cluster,
            load: Load::start(runtime.handle(), &client),
            endpoints: Endpoints::follow(runtime.handle().clone(), client.clone()),
            client,
            runtime,
            table: RefCell::new(vec![load::head()]),
            workloads: RefCell::default(),
        }
    }

    /// Does something under load, and counts what became of the creates meanwhile.
    fn step(&self, name: &'static str, fault: impl FnOnce(&mut Notes)) -> Step {
        let mut notes = Notes::default();
        let from = Instant::now();
        fault(&mut notes);
        let until = Instant::now();
        let slow = if notes.slow { Duration::MAX } else { SLOW };
        let counts = count(&self.load.of(from, until), notes.down, slow);
        let line = load::line(name, until - from, &counts);
        let _ = writeln!(std::io::stderr(), "{line}");
        self.table.borrow_mut().push(line);
        for (kind, count) in &counts {
            for (why, times) in &count.why {
                let _ = writeln!(std::io::stderr(), "    {kind:?}, {times} times: {why}");
            }
        }
        Step { name, notes, counts }
    }

    fn install(&self) {
        install::prepare(self.cluster, install::POLICIES);
        service::make(self.cluster);
        for number in 0..3 {
            service::start(self.cluster, number);
        }
        self.register("Ignore");
        self.endpoints.are(self.cluster, &[0, 1, 2]);
    }

    /// Registers the webhooks, and waits until the API server goes by it.
    fn register(&self, failure_policy: &str) {
        service::register(self.cluster, failure_policy);
    }

    /// Kills a replica, the leader or another, waits until somebody leads and the endpoint is withdrawn, and starts it
    /// again.
    fn kill(&self, notes: &mut Notes, the_leader: bool) {
        let leads = || leader(self.runtime.handle(), &self.client);
        assert!(
            wait(Duration::from_secs(15), || leads().is_some()),
            "nobody leads"
        );
        let led = leads().unwrap();
        let followers = (0..3).filter(|number| *number != led);
        let busy = followers
            .max_by_key(|number| service::connections(*number))
            .unwrap();
        let killed = if the_leader { led } else { busy };
        let _ = writeln!(
            std::io::stderr(),
            "kills {} that has {} connections",
            name(killed),
            service::connections(killed)
        );
        let at = Instant::now();
        assert_eq!(self.cluster.end(&name(killed), "KILL"), 137);
        self.deploy();
        let left: Vec<usize> = (0..3).filter(|number| *number != killed).collect();
        notes.withdrawn = Some(self.endpoints.are(self.cluster, &left));
        let other = || leads().is_some_and(|leader| leader != killed);
        // How soon is a property of the election, in time that a test controls.
        assert!(wait(Duration::from_secs(60), other), "nobody leads any more");
        if the_leader {
            let took = at.elapsed();
            let _ = writeln!(std::io::stderr(), "another replica led {took:.1?} after the kill");
        } else {
            assert_eq!(leads(), Some(led), "the leader had no reason to change");
        }
        rest(2);
        self.cluster.start_again(&name(killed));
        self.endpoints.are(self.cluster, &[0, 1, 2]);
    }

    /// What a Deployment's rollout does, one replica after the other.
    fn roll(&self) {
        for number in 0..3 {
            assert_eq!(
                self.cluster.end(&name(number), "TERM"),
                0,
                "{}",
                self.cluster.end_of_log(&name(number))
            );
            self.cluster.start_again(&name(number));
            if number == 1 {
                self.deploy();
            }
            self.endpoints.are(self.cluster, &[0, 1, 2]);
        }
    }

    fn restart_api_server(&self, notes: &mut Notes) {
        let began = Instant::now();
        // Asked to end it waits a minute for watches; a crash is the harder case anyway.
        self.cluster.end("kube-apiserver", "KILL");
        self.cluster.start_again("kube-apiserver");
        let ready = || self.cluster.kubectl(&["get", "--raw", "/readyz"]).ok;
        assert!(wait(Duration::from_secs(60), ready));
        notes.down = Some((began, Instant::now()));
        self.deploy();
        rest(3);
    }

    fn pause_etcd(&self, notes: &mut Notes) {
        notes.slow = true;
        self.cluster.signal("etcd", "STOP");
        rest(20);
        self.cluster.signal("etcd", "CONT");
        self.deploy();
        rest(3);
    }

    /// Deletes the Secret, which is how people get new keys at once; again before the replicas have changed over.
    fn replace_certificates(&self) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "transom-system");
        let certificate = || {
            let secret = self
                .runtime
                .block_on(secrets.get_opt("transom-certificates"))
                .ok()??;
            Some(secret.data?.get("tls.crt")?.0.clone())
        };
        let served = || (0..3).map(|number| self.taken_over(number)).collect::<Vec<_>>();
        let before = served();
        let mut seen = vec![certificate().unwrap()];
        for _ in 0..2 {
            let params = DeleteParams::default();
            let delete = secrets.delete("transom-certificates", &params);
            self.runtime.block_on(delete).unwrap();
            let another = || certificate().is_some_and(|certificate| !seen.contains(&certificate));
            assert!(wait(Duration::from_secs(20), another), "no new certificate");
            seen.push(certificate().unwrap());
            rest(5);
        }
        self.deploy();
        let changed = || served().iter().zip(&before).all(|(now, before)| now > before);
        assert!(
            wait(Duration::from_secs(100), changed),
            "{:?} {before:?}",
            served()
        );
        rest(3);
    }

    /// How often a replica has taken over a certificate of the Secret.
    fn taken_over(&self, number: usize) -> usize {
        let log = std::fs::read_to_string(self.cluster.path(&format!("{}.log", name(number)))).unwrap();
        log.matches("serves the certificate of the Secret").count()
    }

    fn gone(&self) {
        for number in 0..3 {
            assert_eq!(self.cluster.end(&name(number), "KILL"), 137);
        }
        self.endpoints.are(self.cluster, &[]);
        let apply = |os: &str, spec: &Value| {
            let object = deployment(&format!("{os}-without"), spec).to_string();
            self.cluster.kubectl_with(&["apply", "-f", "-"], &object)
        };
        apply("linux", &linux()).succeeded();
        self.workloads.borrow_mut().push("linux-without".to_owned());
        let refused = apply("windows", &windows());
        assert!(
            !refused.ok && refused.err.contains("validate.transom.dev"),
            "{refused:?}"
        );
        // Their controllers make new ones: of Linux now, of Windows when Transom is back, or does not matter any more.
        self.cluster
            .kubectl(&[
                "-n",
                SEEN,
                "delete",
                "pods",
                "--all",
                "--wait=false",
                "--grace-period=0",
            ])
            .succeeded();
        rest(5);
    }

    fn come_back(&self) {
        for number in 0..3 {
            self.cluster.start_again(&name(number));
        }
        self.endpoints.are(self.cluster, &[0, 1, 2]);
    }

    /// All replicas are ready, somebody leads, and the Secret is served.
    fn all_is_well(&self) {
        self.endpoints.are(self.cluster, &[0, 1, 2]);
        for number in 0..3 {
            let ready = replica_of(number).get("/readyz");
            assert!(ready.as_ref().is_some_and(|(ok, _)| *ok), "{ready:?}");
        }
        let leads = || leader(self.runtime.handle(), &self.client).is_some();
        assert!(wait(Duration::from_secs(15), leads), "nobody leads");
    }

    /// Applies a Deployment for either system in the midst of a fault; as people and their tools do, again when it
    /// fails.
    fn deploy(&self) {
        let number = self.workloads.borrow().len();
        for (os, spec) in [("linux", linux()), ("windows", windows())] {
            let name = format!("{os}-{number}");
            let object = deployment(&name, &spec).to_string();
            let apply = || self.cluster.kubectl_with(&["apply", "-f", "-"], &object).ok;
            assert!(wait(Duration::from_secs(30), apply), "{name} is not accepted");
            self.workloads.borrow_mut().push(name);
        }
    }

    fn every_workload_has_its_pods(&self) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), SEEN);
        for workload in self.workloads.borrow().iter() {
            let of = ListParams::default().labels(&format!("app={workload}"));
            let there = || {
                let list = self.runtime.block_on(pods.list(&of));
                list.is_ok_and(|list| list.items.len() == 2)
            };
            assert!(wait(Duration::from_secs(60), there), "{workload} lacks pods");
        }
        assert!(self.workloads.borrow().len() >= 10);
    }

    fn print(&self) {
        let _ = writeln!(std::io::stderr(), "\n{}\n", self.table.borrow().join("\n"));
    }
}

fn rest(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

fn deployment(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": SEEN},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    })
}

impl Step {
    fn of(&self, kind: Kind) -> &Count {
        &self.counts[&kind]
    }

    /// Linux pods are never the worse for Transom, and the stream went on.
    #[track_caller]
    fn leaves_linux_alone(&self) {
        let linux = self.of(Kind::Linux);
        assert!(linux.all >= 30, "{}: only {} creates", self.name, linux.all);
        assert_eq!(linux.more, 0, "{}: {:#?}", self.name, linux.why);
        assert_eq!(self.of(Kind::LeftOut).more, 0, "{}", self.name);
    }

    #[track_caller]
    fn is_like_without(&self) {
        self.leaves_linux_alone();
        self.places_none();
    }

    #[track_caller]
    fn places_none(&self) {
        let windows = self.of(Kind::Windows);
        assert_eq!(windows.plain + windows.alike, windows.all, "{}", self.name);
    }

    /// Nor are Windows pods, and each is placed.
    #[track_caller]
    fn is_graceful(&self) {
        self.leaves_linux_alone();
        let windows = self.of(Kind::Windows);
        assert_eq!(windows.more, 0, "{}: {:#?}", self.name, windows.why);
        assert_eq!(windows.plain, 0, "{}: some were not placed", self.name);
    }

    /// None fails, but until the endpoint of the one that was killed is withdrawn some may not be placed.
    #[track_caller]
    fn is_open(&self) {
        self.is_closed_until_withdrawn();
        let windows = self.of(Kind::Windows);
        assert_eq!(windows.more, 0, "{}: {:#?}", self.name, windows.why);
    }

    /// Windows pods fail only until the endpoint of the one that was killed is withdrawn.
    #[track_caller]
    fn is_closed_until_withdrawn(&self) {
        self.leaves_linux_alone();
        let windows = self.of(Kind::Windows);
        let withdrawn = self.notes.withdrawn.unwrap();
        if let Some(last) = windows.last_failure {
            assert!(
                last <= withdrawn + FOLLOWS,
                "{}: {:?} after the endpoint was withdrawn: {windows:#?}",
                self.name,
                last.saturating_duration_since(withdrawn),
            );
        }
    }

    #[track_caller]
    fn refuses_windows(&self) {
        self.leaves_linux_alone();
        let windows = self.of(Kind::Windows);
        assert!(windows.more * 10 >= windows.all * 9, "{}: {windows:?}", self.name);
    }

    #[track_caller]
    fn lets_windows_pass(&self) {
        self.leaves_linux_alone();
        let windows = self.of(Kind::Windows);
        assert_eq!(windows.more, 0, "{}: {:#?}", self.name, windows.why);
        self.places_none();
    }
}
