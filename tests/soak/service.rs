//! Replicas of the real program behind a Service, and somebody who plays the kubelet's probe and the controller of its
//! endpoints.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::runtime::Handle;

use crate::netns::ADDRESSES;
use crate::support::command::{printed, program};
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::Replica;

const NAMESPACE: &str = "transom-system";

/// How often readiness is asked for.
const PROBE: Duration = Duration::from_secs(1);

/// The replica of a number, and how it is called everywhere.
pub fn name(number: usize) -> String {
    format!("transom-{number}")
}

/// Starts a replica as the chart does: its Service's names, and a delay in which endpoints can follow.
pub fn start(cluster: &ControlPlane, number: usize) {
    let address = ADDRESSES[number];
    let args = [
        "serve".to_owned(),
        format!("--kubeconfig={}", cluster.path("admin.kubeconfig").display()),
        format!("--transom-namespace={NAMESPACE}"),
        format!("--identity={}", name(number)),
        format!("--listen={address}:8443"),
        format!("--health-listen={address}:8080"),
        "--drain-delay=3s".to_owned(),
    ];
    cluster.run_program(&name(number), &program(), &args);
}

/// What a replica says of itself.
pub fn replica_of(number: usize) -> Replica {
    Replica {
        name: name(number),
        address: ADDRESSES[number].to_owned(),
        port: 8443,
        health: 8080,
    }
}

/// How many connections a replica has: where the API server sends its reviews.
pub fn connections(number: usize) -> u64 {
    let open = replica_of(number).metric("transom_connections_open ");
    open.unwrap_or_default()
}

/// Registers both configurations, waits until the leader has published its CA in each entry, and gives the API server the
/// time to see it: an entry without the CA fails, whichever replica is called.
pub fn register(cluster: &ControlPlane, failure_policy: &str) {
    let service = ["generate", "webhooks", "--service", "transom.transom-system"];
    let webhooks = printed(&[&service[..], &["--failure-policy", failure_policy]].concat());
    cluster
        .kubectl_with(&["apply", "--server-side", "-f", "-"], &webhooks)
        .succeeded();
    let configurations = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
    let bundled = || {
        let stored = cluster
            .kubectl(&["get", configurations, "-o", "json"])
            .succeeded()
            .objects();
        let mut webhooks = stored
            .iter()
            .flat_map(|it| it["webhooks"].as_array().into_iter().flatten());
        webhooks.all(|webhook| webhook["clientConfig"]["caBundle"].is_string())
    };
    assert!(
        wait(Duration::from_secs(60), bundled),
        "the leader publishes no CA"
    );
    std::thread::sleep(Duration::from_secs(2));
}

/// Makes the Service; its endpoints are the business of [`Endpoints`].
pub fn make(cluster: &ControlPlane) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "transom", "namespace": NAMESPACE},
        "spec": {"ports": [{"name": "webhook", "port": 443, "targetPort": 8443}]},
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &service.to_string())
        .succeeded();
}

/// The endpoints of the Service, as they should be and as they were published.
#[derive(Clone)]
pub struct Endpoints {
    published: Arc<Mutex<(Instant, Vec<usize>)>>,
}

impl Endpoints {
    /// Follows readiness for as long as the process lives.
    pub fn follow(runtime: Handle, client: Client) -> Self {
        let endpoints = Endpoints {
            published: Arc::new(Mutex::new((Instant::now(), Vec::new()))),
        };
        let published = Arc::clone(&endpoints.published);
        std::thread::spawn(move || {
            let slices: Api<EndpointSlice> = Api::namespaced(client, NAMESPACE);
            loop {
                let began = Instant::now();
                let is_ready = |number: &usize| replica_of(*number).get("/readyz").is_some_and(|(ok, _)| ok);
                let ready: Vec<usize> = (0..ADDRESSES.len()).filter(is_ready).collect();
                if published.lock().unwrap().1 != ready && runtime.block_on(publish(&slices, &ready)) {
                    *published.lock().unwrap() = (Instant::now(), ready);
                }
                std::thread::sleep(PROBE.saturating_sub(began.elapsed()));
            }
        });
        endpoints
    }

    /// Which replicas are published, and since when.
    pub fn published(&self) -> (Instant, Vec<usize>) {
        self.published.lock().unwrap().clone()
    }

    /// Waits until exactly these are published, and the API server has had a moment to see it; returns when they were.
    #[track_caller]
    pub fn are(&self, cluster: &ControlPlane, wanted: &[usize]) -> Instant {
        let come = wait(Duration::from_secs(60), || self.published().1 == wanted);
        assert!(
            come,
            "the endpoints are {:?}, not {wanted:?}\n{}",
            self.published().1,
            wanted
                .iter()
                .map(|number| format!(
                    "{:?}\n{}",
                    replica_of(*number).get("/readyz"),
                    cluster.end_of_log(&name(*number))
                ))
                .collect::<Vec<_>>()
                .join("\n")
        );
        let since = self.published().0;
        std::thread::sleep(Duration::from_millis(500));
        since
    }
}

async fn publish(slices: &Api<EndpointSlice>, ready: &[usize]) -> bool {
    let endpoints: Vec<_> = ready
        .iter()
        .map(|number| json!({"addresses": [ADDRESSES[*number]], "conditions": {"ready": true}}))
        .collect();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "transom-1", "labels": {"kubernetes.io/service-name": "transom"}},
        "ports": [{"name": "webhook", "port": 8443, "protocol": "TCP"}],
        "endpoints": endpoints,
    });
    let params = PatchParams::apply("endpoints").force();
    let slice = Patch::Apply(&slice);
    let written = slices.patch("transom-1", &params, &slice);
    tokio::time::timeout(PROBE * 3, written)
        .await
        .is_ok_and(|written| written.is_ok())
}

/// Who leads, by the Lease.
pub fn leader(runtime: &Handle, client: &Client) -> Option<usize> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let lease = runtime.block_on(leases.get_opt("transom")).ok()??;
    let holder = lease.spec?.holder_identity?;
    (0..ADDRESSES.len()).find(|number| holder.starts_with(&format!("{}_", name(*number))))
}
