//! Leadership over a real API server: a killed leader is followed, a paused one is refused.

use std::time::Duration;

use crate::support::control_plane::ControlPlane;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use transom::cluster::lease::{ACT, Election, LEASE, Leadership};

const NAMESPACE: &str = "default";

/// A replica in the election.
struct Replica {
    leadership: Leadership,
    shutdown: oneshot::Sender<()>,
    election: JoinHandle<()>,
}

impl Replica {
    fn start(client: &Client, lease: &str, identity: &str) -> Self {
        let (sender, receiver) = watch::channel(None);
        let (shutdown, ends) = oneshot::channel::<()>();
        let election = Election {
            client: client.clone(),
            namespace: NAMESPACE.to_owned(),
            name: lease.to_owned(),
            identity: identity.to_owned(),
            until: sender,
        };
        let election = election.run(async { drop(ends.await) });
        Replica {
            leadership: Leadership::new(receiver),
            shutdown,
            election: tokio::spawn(election),
        }
    }

    /// How long it took until it led. How long it may take is a property of the election, in time that a test controls.
    async fn leads(&self) -> Duration {
        const PATIENCE: Duration = Duration::from_secs(120);
        let start = Instant::now();
        let leads = async {
            while !self.leadership.holds() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, leads).await.expect("it leads");
        start.elapsed()
    }
}

async fn get(client: &Client, name: &str) -> Lease {
    Api::namespaced(client.clone(), NAMESPACE)
        .get(name)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_passes_on_when_a_leader_is_killed_paused_or_ends() {
    let _turn = crate::beside_others();
    let Some(cluster) = ControlPlane::start_or_skip("tests/soak/leadership.rs") else {
        return;
    };
    let config = cluster.config().await;
    let client = Client::try_from(config.clone()).unwrap();
    tokio::join!(
        a_killed_leader_is_followed(&client),
        a_leader_that_ends_is_followed_at_once(&client),
        a_paused_leader_knows_that_it_does_not_lead_and_its_late_write_is_refused(&client, config),
    );
}

async fn a_killed_leader_is_followed(client: &Client) {
    let one = Replica::start(client, "killed", "one");
    one.leads().await;
    let two = Replica::start(client, "killed", "two");
    sleep(Duration::from_secs(5)).await;
    assert!(one.leadership.holds() && !two.leadership.holds());
    one.election.abort();
    let took = two.leads().await;
    eprintln!("the next leader led {took:?} after the kill");
    assert!(!one.leadership.holds(), "it stopped before");
    let spec = get(client, "killed").await.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("two"));
    assert_eq!(spec.lease_transitions, Some(1));
}

async fn a_leader_that_ends_is_followed_at_once(client: &Client) {
    let one = Replica::start(client, "ended", "one");
    one.leads().await;
    let two = Replica::start(client, "ended", "two");
    sleep(Duration::from_secs(1)).await;
    one.shutdown.send(()).unwrap();
    one.election.await.unwrap();
    assert!(!one.leadership.holds());
    let took = two.leads().await;
    eprintln!("the next leader led {took:?} after the other gave up");
}

async fn a_paused_leader_knows_that_it_does_not_lead_and_its_late_write_is_refused(
    client: &Client,
    config: kube::Config,
) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    // The leader's runtime has one thread, so that it can be starved as a paused process is.
    let (control, commands) = std::sync::mpsc::channel::<Duration>();
    let (signal, signalled) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            // Connections belong to one runtime.
            let client = Client::try_from(config).unwrap();
            let one = Replica::start(&client, "paused", "one");
            one.leads().await;
            let before = get(&client, "paused").await;
            signal.send(()).unwrap();
            // Blocks this thread, and so the election with it.
            let pause = commands.recv().unwrap();
            std::thread::sleep(pause);
            let held = one.leadership.holds();
            one.election.abort();
            (held, before)
        })
    });
    signalled.await.unwrap();
    let two = Replica::start(client, "paused", "two");
    control.send(LEASE + Duration::from_secs(4)).unwrap();
    assert!(ACT < LEASE);
    two.leads().await;
    let (held, before) = tokio::task::spawn_blocking(|| thread.join().unwrap())
        .await
        .unwrap();
    assert!(!held, "it knows without asking anybody");

    let late = leases.replace("paused", &PostParams::default(), &before).await;
    match late {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 409, "{status:?}"),
        other => panic!("a late write was accepted: {other:?}"),
    }
    assert!(two.leadership.holds());
}
