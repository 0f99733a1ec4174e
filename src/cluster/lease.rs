//! Leadership: a Lease determines which replica may write. The decisions use no clock and no network; a thin loop
//! carries them out.
//!
//! Clocks of different machines are never compared. A follower measures from the time when it last saw the Lease
//! change, and a leader from before it sent its last renewal: so a leader stops acting before a follower may take
//! over, however far their clocks differ. The API server rejects writes that were in flight at that time because of
//! their resourceVersion.

mod leader_election;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use self::leader_election::{ElectionStep, Elector};
use super::errors::{ApiError, answered_within};
use crate::process::complaints::Complaints;

/// How long a Lease belongs to its holder without a renewal.
pub const LEASE: Duration = Duration::from_secs(10);

/// How long a leader acts on a renewal, from before it was sent. Shorter than [`LEASE`] by the time that a write
/// decided at the last moment may take.
pub const ACT: Duration = Duration::from_secs(7);

/// The time between two renewals, and between two reads of a follower.
const RENEW: Duration = Duration::from_secs(2);

/// The delay after a failed request.
const RETRY: Duration = Duration::from_secs(1);

/// The timeout of a request: two fit in before a leader must stop acting.
const REQUEST: Duration = Duration::from_secs(2);

/// Whether this replica may write. Cheap to clone and to check.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// Until when this replica certainly holds the lease, if it does.
    until: watch::Receiver<Option<Instant>>,
}

impl Leadership {
    /// Leadership as published by the sender: until when it certainly holds, or `None`.
    pub fn new(until: watch::Receiver<Option<Instant>>) -> Self {
        Leadership { until }
    }

    /// Whether this replica may write right now. Check before every write.
    pub fn holds(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until leadership was gained, renewed or lost since the last call.
    ///
    /// # Errors
    /// If the task that renews the lease has ended.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.until.changed().await
    }

    /// Waits until this replica leads, if it did not, or no longer leads, if it did. A renewal is not a change.
    ///
    /// # Errors
    /// If the task that renews the lease has ended.
    pub async fn switched(&mut self, led: bool) -> Result<(), watch::error::RecvError> {
        while self.holds() == led {
            self.changed().await?;
        }
        Ok(())
    }
}

/// One replica in the election.
pub struct Election {
    pub client: Client,
    /// The namespace of the Lease.
    pub namespace: String,
    pub name: String,
    /// Must be unique to this process: the name of the pod and something that changes at a restart.
    pub identity: String,
    /// Until when this replica certainly holds the Lease, if it does.
    pub until: watch::Sender<Option<Instant>>,
}

impl Election {
    /// Takes part in the election until `shutdown`, then releases the Lease, so that another replica takes over immediately.
    /// Errors are logged and retried: without an API server there cannot be a leader.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let leases = Leases {
            api: Api::namespaced(self.client, &self.namespace),
            lease: format!("{}/{}", self.namespace, self.name),
        };
        let mut elector = Elector::new(self.name, self.identity);
        tokio::select! {
            () = elect(&leases, &mut elector, &self.until) => {}
            () = shutdown => {}
        }
        self.until.send_replace(None);
        // A renewal may have been in progress: the state of the API server is decisive.
        if let Ok(seen) = leases.read(elector.name()).await {
            elector.read(Instant::now(), Ok(seen));
        }
        if let Some(lease) = elector.release() {
            match leases.write(&lease).await {
                Ok(_) => tracing::info!(lease = leases.lease, "gave up leadership"),
                Err(error) => {
                    tracing::warn!(lease = leases.lease, %error, "cannot release leadership; another replica takes over when the lease expires");
                }
            }
        }
    }
}

/// Carries out the elector's steps, forever.
async fn elect(leases: &Leases, elector: &mut Elector, until: &watch::Sender<Option<Instant>>) {
    let mut complaints = Complaints::default();
    let mut led = false;
    loop {
        let lapses = *until.borrow();
        let failure = take_step(leases, elector, lapses).await;
        let now = Instant::now();
        let leads = elector.until().filter(|until| now < *until);
        if led != leads.is_some() {
            led = leads.is_some();
            let holder = elector.holder();
            tracing::info!(
                lease = leases.lease,
                leader = led,
                holder,
                "leadership has changed"
            );
        }
        until.send_if_modified(|until| std::mem::replace(until, leads) != leads);
        match failure.map(|failure| failure.to_string()) {
            Some(failure) if complaints.is_news(&leases.lease, &failure) => {
                tracing::warn!(lease = leases.lease, "{failure}; trying again");
            }
            None if led => complaints.ended(&leases.lease),
            _ => {}
        }
    }
}

/// Carries out the elector's next step. `lapses`: when leadership that was published ends.
async fn take_step(leases: &Leases, elector: &mut Elector, lapses: Option<Instant>) -> Option<LeaseError> {
    match elector.next(Instant::now(), Timestamp::now()) {
        ElectionStep::Sleep(wake) => {
            sleep_until(lapses.filter(|lapses| *lapses < wake).unwrap_or(wake)).await;
            None
        }
        ElectionStep::Read => {
            let (seen, failure) = parts(leases.read(elector.name()).await);
            elector.read(Instant::now(), seen);
            failure
        }
        ElectionStep::Write(lease) => {
            let started = Instant::now();
            let (written, failure) = parts(leases.write(&lease).await);
            elector.wrote(started, Instant::now(), written);
            // Another replica was faster, which is not a failure; the next read shows which one.
            failure.filter(|failure| failure.why != ApiError::Conflict)
        }
    }
}

/// The answer, as the elector sees it, and why there is none.
fn parts<T>(answer: Result<T, LeaseError>) -> (Result<T, ()>, Option<LeaseError>) {
    match answer {
        Ok(answer) => (Ok(answer), None),
        Err(failure) => (Err(()), Some(failure)),
    }
}

/// Why a Lease could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} the Lease {lease}: {why}{}", remedy(why))]
struct LeaseError {
    verb: &'static str,
    lease: String,
    why: ApiError,
}

/// What to do, if known.
fn remedy(why: &ApiError) -> &'static str {
    match why {
        ApiError::NamespaceNotFound(_) => "; create it, or name Transom's namespace with --transom-namespace",
        _ => "",
    }
}

/// The Leases of a namespace, and the display name of Transom's.
struct Leases {
    api: Api<Lease>,
    lease: String,
}

impl Leases {
    async fn read(&self, name: &str) -> Result<Option<Lease>, LeaseError> {
        self.bounded("read", self.api.get_opt(name)).await
    }

    /// Creates the Lease, or replaces it if it has a resourceVersion.
    async fn write(&self, lease: &Lease) -> Result<Lease, LeaseError> {
        let params = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            let name = lease.metadata.name.as_deref().unwrap_or_default();
            self.bounded("renew", self.api.replace(name, &params, lease))
                .await
        } else {
            self.bounded("create", self.api.create(&params, lease)).await
        }
    }

    async fn bounded<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, LeaseError> {
        let answer = answered_within(REQUEST, request).await;
        answer.map_err(|why| LeaseError {
            verb,
            lease: self.lease.clone(),
            why,
        })
    }
}
