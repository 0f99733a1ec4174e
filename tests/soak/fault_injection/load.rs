//! A stream of creates at a steady pace, whatever becomes of them, and an account of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::runtime::Handle;

/// The namespace that the webhooks look at.
pub const SEEN: &str = "seen";
/// A namespace that they leave out: what fails here fails without Transom.
pub const LEFT_OUT: &str = "left-out";

/// Twenty of each kind in a second, ten at a time: the API server then keeps connections to several replicas.
const PACE: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 10;

/// What is created at every tick, at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A Windows pod where Transom does not look.
    LeftOut,
    Linux,
    Windows,
}

const KINDS: [Kind; 3] = [Kind::LeftOut, Kind::Linux, Kind::Windows];

/// How a create ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// With what placement adds.
    Placed,
    /// Without.
    Plain,
    Failed(String),
}

/// One create.
#[derive(Clone, Debug)]
pub struct Create {
    pub kind: Kind,
    pub began: Instant,
    pub took: Duration,
    pub end: End,
}

/// The stream.
pub struct Load {
    creates: Arc<Mutex<Vec<Create>>>,
    pending: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Load {
    /// Starts it. Nothing is stored: every create is a dry run, which admission sees like any other.
    pub fn start(runtime: &Handle, client: &Client) -> Self {
        let load = Load {
            creates: Arc::default(),
            pending: Arc::default(),
            stop: Arc::default(),
        };
        let (creates, pending, stop) = (
            Arc::clone(&load.creates),
            Arc::clone(&load.pending),
            Arc::clone(&load.stop),
        );
        let client = client.clone();
        runtime.spawn(async move {
            let mut ticks = tokio::time::interval(PACE);
            while !stop.load(Ordering::Relaxed) {
                ticks.tick().await;
                for kind in KINDS.into_iter().cycle().take(KINDS.len() * AT_ONCE) {
                    pending.fetch_add(1, Ordering::Relaxed);
                    let (creates, pending) = (Arc::clone(&creates), Arc::clone(&pending));
                    let client = client.clone();
                    tokio::spawn(async move {
                        let done = create(client, kind).await;
                        creates.lock().unwrap().push(done);
                        pending.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
        });
        load
    }

    /// Waits until everything is answered that has begun by now, and returns what began in a span of time.
    pub fn of(&self, from: Instant, until: Instant) -> Vec<Create> {
        // The stream goes on: no more than it has under way at any moment.
        let few = || self.pending.load(Ordering::Relaxed) <= KINDS.len() * AT_ONCE;
        assert!(
            crate::support::control_plane::wait(Duration::from_secs(60), few),
            "creates are not answered"
        );
        std::thread::sleep(Duration::from_millis(300));
        let creates = self.creates.lock().unwrap();
        let within = creates
            .iter()
            .filter(|create| create.began >= from && create.began < until);
        within.cloned().collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn create(client: Client, kind: Kind) -> Create {
    let (namespace, spec) = match kind {
        Kind::LeftOut => (LEFT_OUT, windows()),
        Kind::Windows => (SEEN, windows()),
        Kind::Linux => (SEEN, linux()),
    };
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"generateName": "load-"}, "spec": spec})).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let began = Instant::now();
    let end = match pods.create(&params, &pod).await {
        Ok(pod) => {
            let selector = pod.spec.and_then(|spec| spec.node_selector).unwrap_or_default();
            match selector.get("kubernetes.io/os") {
                Some(_) => End::Placed,
                None => End::Plain,
            }
        }
        Err(kube::Error::Api(status)) => End::Failed(status.message.clone()),
        Err(error) => End::Failed(format!("{error:?}")),
    };
    Create {
        kind,
        began,
        took: began.elapsed(),
        end,
    }
}

/// Says Windows, and leaves the selector to placement.
pub fn windows() -> serde_json::Value {
    json!({
        "os": {"name": "windows"},
        "containers": [{"name": "app", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}],
    })
}

pub fn linux() -> serde_json::Value {
    json!({"containers": [{"name": "app", "image": "registry.example/app:1"}]})
}

/// What came of the creates of one kind in one step.
#[derive(Clone, Default, Debug)]
pub struct Count {
    pub all: usize,
    /// Failed while nothing did where Transom does not look.
    pub more: usize,
    /// Failed, or not placed, while things failed there too: the API server's own failures.
    pub alike: usize,
    /// Created without what placement adds.
    pub plain: usize,
    /// The longest of them.
    pub slowest: Duration,
    /// When the last one began that failed or was not placed.
    pub last_failure: Option<Instant>,
    /// Why they failed, and one of each how often.
    pub why: BTreeMap<String, usize>,
}

/// Counts by kind. `down` is when the API server itself was known not to serve; where a create that Transom has no part
/// in takes longer than `slow`, the machine is starved, and timeouts say nothing.
pub fn count(creates: &[Create], down: Option<(Instant, Instant)>, slow: Duration) -> BTreeMap<Kind, Count> {
    /// How far apart two creates may be that met the same failure.
    const NEAR: Duration = Duration::from_millis(500);
    let mut outages: Vec<(Instant, Instant)> = creates
        .iter()
        .filter(|create| create.kind == Kind::LeftOut)
        .filter(|create| matches!(create.end, End::Failed(_)) || create.took > slow)
        .map(|create| (create.began, create.began + create.took))
        .collect();
    outages.extend(down);
    let is_alike = |create: &Create| {
        let (from, until) = (create.began, create.began + create.took);
        outages
            .iter()
            .any(|(began, ended)| until + NEAR >= *began && from <= *ended + NEAR)
    };
    let mut counts: BTreeMap<Kind, Count> = KINDS.map(|kind| (kind, Count::default())).into();
    for create in creates {
        let count = counts.entry(create.kind).or_default();
        count.all += 1;
        count.slowest = count.slowest.max(create.took);
        match &create.end {
            End::Placed => {}
            End::Plain if create.kind == Kind::Windows && is_alike(create) => count.alike += 1,
            End::Plain => {
                count.plain += 1;
                count.last_failure = count.last_failure.max(Some(create.began));
            }
            End::Failed(_) if is_alike(create) => count.alike += 1,
            End::Failed(why) => {
                count.more += 1;
                count.last_failure = count.last_failure.max(Some(create.began));
                *count.why.entry(why.clone()).or_default() += 1;
            }
        }
    }
    counts
}

/// One line of the table for a step.
pub fn line(step: &str, took: Duration, counts: &BTreeMap<Kind, Count>) -> String {
    let mut line = format!("{step:<44} {:>5.1} s", took.as_secs_f64());
    for kind in KINDS {
        let count = counts.get(&kind).cloned().unwrap_or_default();
        let _ = write!(
            line,
            " | {:>4} {:>6.2} {:>5} {:>5}",
            count.all,
            count.slowest.as_secs_f64(),
            count.alike,
            count.more
        );
        if kind == Kind::Windows {
            let _ = write!(line, " {:>8}", count.plain);
        }
    }
    line
}

/// The head of the table.
pub fn head() -> String {
    let columns = " all slowest alike  more";
    format!(
        "{:<51} | {:^23} | {:^23} | {:^32}\n{:<51} |{columns} |{columns} |{columns} unplaced",
        "", "left out", "Linux", "Windows", "fault"
    )
}
