//! One drain at a time in a cluster: a Lease with a fixed name, which the drain renews.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::cluster::errors::{ApiError, answered};
use crate::cluster::lease::{Election, LEASE, Leadership};

/// The name of the Lease.
pub const NAME: &str = "transom-drain";
/// The time between two reads of another drain's Lease.
const READ: Duration = Duration::from_secs(1);
/// How long it may take to hold a Lease that has no holder.
const ACQUIRE: Duration = Duration::from_secs(8);
/// How often a drain tries to take it from another one.
const TAKES: usize = 5;
/// How long it may take to release it.
const RELEASE: Duration = Duration::from_millis(500);

/// The Lease of this drain.
pub struct DrainLock {
    lease: DrainLease,
    identity: String,
    leadership: Leadership,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// A drain that is at work.
pub struct OtherDrain {
    holder: String,
    since: Option<Timestamp>,
    /// The Lease, for people.
    lease: String,
}

impl fmt::Display for OtherDrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OtherDrain { holder, since, lease } = self;
        let since = since.map_or_else(String::new, |since| format!(" since {since:.0}"));
        write!(
            f,
            "another drain is at work{since}: {holder} has the Lease {lease}"
        )
    }
}

/// The Lease, as the API server stores it.
#[derive(Clone)]
pub struct DrainLease {
    client: Client,
    namespace: String,
    api: Api<Lease>,
    shown: String,
}

impl DrainLease {
    /// The Lease in this namespace; requests nothing yet.
    pub fn new(client: &Client, namespace: &str) -> Self {
        DrainLease {
            client: client.clone(),
            namespace: namespace.to_owned(),
            api: Api::namespaced(client.clone(), namespace),
            shown: format!("{namespace}/{NAME}"),
        }
    }

    async fn read(&self) -> anyhow::Result<Option<Lease>> {
        let lease = answered(self.api.get_opt(NAME)).await;
        lease.with_context(|| format!("cannot read the Lease {}", self.shown))
    }

    /// The drain that renews the Lease, if there is one. A holder that does not renew it for [`LEASE`] is dead.
    ///
    /// # Errors
    /// If the Lease cannot be read.
    pub async fn other(&self) -> anyhow::Result<Option<OtherDrain>> {
        Ok(self.unheld().await?.err())
    }

    /// The Lease, if no drain renews it; otherwise that drain.
    async fn unheld(&self) -> anyhow::Result<Result<Option<Lease>, OtherDrain>> {
        let first = self.read().await?;
        let mut last = first.clone();
        let mut waited = Duration::ZERO;
        while last.as_ref().and_then(holder).is_some() && waited < LEASE {
            sleep(READ).await;
            waited += READ;
            last = self.read().await?;
            let version = |lease: &Option<Lease>| lease.as_ref()?.metadata.resource_version.clone();
            if let Some(other) = self
                .held(last.as_ref())
                .filter(|_| version(&first) != version(&last))
            {
                return Ok(Err(other));
            }
        }
        Ok(Ok(last))
    }

    fn held(&self, lease: Option<&Lease>) -> Option<OtherDrain> {
        let spec = lease?.spec.as_ref()?;
        Some(OtherDrain {
            holder: holder(lease?)?.to_owned(),
            since: spec.acquire_time.as_ref().map(|since| since.0),
            lease: self.shown.clone(),
        })
    }

    /// Takes the Lease for this drain, or says who is at work.
    ///
    /// # Errors
    /// If the Lease cannot be read or written.
    pub async fn acquire(&self) -> anyhow::Result<Result<DrainLock, OtherDrain>> {
        let lease = match self.unheld().await? {
            Ok(lease) => lease,
            Err(other) => return Ok(Err(other)),
        };
        let identity = identity();
        if let Some(other) = self.held(lease.as_ref()) {
            match self.take(lease.unwrap_or_default(), &identity).await {
                Ok(()) => {}
                Err(ApiError::Conflict) => return Ok(Err(other)),
                Err(why) => return Err(why).with_context(|| self.unwritten()),
            }
        }
        self.start(identity).await
    }

    /// Takes the Lease from its holder, who is told to `waits`. Returns when that drain certainly no longer acts: it notices at
    /// its next renewal, and without an answer it stops before [`LEASE`] is over.
    ///
    /// # Errors
    /// If the Lease cannot be read or written.
    pub async fn force(
        &self,
        waits: impl FnOnce(&OtherDrain),
    ) -> anyhow::Result<Result<DrainLock, OtherDrain>> {
        let identity = identity();
        for _ in 0..TAKES {
            let lease = self.read().await?;
            let Some(other) = self.held(lease.as_ref()) else {
                return self.start(identity).await;
            };
            match self.take(lease.unwrap_or_default(), &identity).await {
                Ok(()) => {
                    let lock = self.start(identity).await?;
                    if lock.is_ok() {
                        waits(&other);
                        sleep(LEASE).await;
                    }
                    return Ok(lock);
                }
                // Its holder has renewed it meanwhile.
                Err(ApiError::Conflict) => {}
                Err(why) => return Err(why).with_context(|| self.unwritten()),
            }
        }
        bail!("{}: it changes all the time", self.unwritten())
    }

    fn unwritten(&self) -> String {
        format!("cannot write the Lease {}", self.shown)
    }

    /// Makes this drain the holder, unless the Lease was written since it was read.
    async fn take(&self, mut lease: Lease, identity: &str) -> Result<(), ApiError> {
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(identity.to_owned());
        let now = Some(MicroTime(Timestamp::now()));
        (spec.acquire_time, spec.renew_time) = (now.clone(), now);
        answered(self.api.replace(NAME, &PostParams::default(), &lease)).await?;
        Ok(())
    }

    /// Renews the Lease from now on, which has no other holder.
    async fn start(&self, identity: String) -> anyhow::Result<Result<DrainLock, OtherDrain>> {
        let (until, leads) = watch::channel(None);
        let (stop, stopped) = oneshot::channel();
        let election = Election {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            name: NAME.to_owned(),
            identity: identity.clone(),
            until,
        };
        let task = tokio::spawn(election.run(async { drop(stopped.await) }));
        let lock = DrainLock {
            lease: self.clone(),
            identity,
            leadership: Leadership::new(leads),
            stop,
            task,
        };
        let mut leadership = lock.leadership.clone();
        if timeout(ACQUIRE, leadership.switched(false)).await.is_ok() && lock.holds() {
            return Ok(Ok(lock));
        }
        lock.release().await;
        match self.held(self.read().await?.as_ref()) {
            Some(other) => Ok(Err(other)),
            None => bail!(self.unwritten()),
        }
    }
}

impl DrainLock {
    /// Whether this drain certainly holds it now.
    pub fn holds(&self) -> bool {
        self.leadership.holds()
    }

    /// Why the drain must end, if another one has taken the Lease.
    pub async fn taken(&self) -> Option<String> {
        let lease = self.lease.read().await.ok().flatten()?;
        let other = holder(&lease).filter(|holder| *holder != self.identity)?;
        let shown = &self.lease.shown;
        Some(format!("{other} has taken the Lease {shown} of this drain"))
    }

    /// What the drain waits for while it does not hold the Lease.
    pub fn waits(&self) -> String {
        format!("the Lease {} cannot be renewed", self.lease.shown)
    }

    /// Gives the Lease back, so that the next drain need not wait until it expires.
    pub async fn release(self) {
        drop(self.stop);
        // Without it, the next drain waits until the Lease expires.
        drop(timeout(RELEASE, self.task).await);
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    Some(holder).filter(|holder| !holder.is_empty())
}

/// Who this drain is, for people: unique to this process.
fn identity() -> String {
    let variable = |names: [&str; 2]| names.into_iter().find_map(|name| std::env::var(name).ok());
    let host = variable(["HOSTNAME", "COMPUTERNAME"]);
    let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    let user = variable(["USER", "USERNAME"]).unwrap_or_else(|| "someone".to_owned());
    let host = host.map_or_else(|| "an unknown machine".to_owned(), |host| host.trim().to_owned());
    let started = Timestamp::now().as_millisecond();
    format!("{user} on {host}, process {}-{started}", std::process::id())
}
