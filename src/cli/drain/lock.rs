//! One drain at a time in a cluster: a Lease with a fixed name, which the drain renews.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
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
/// How long it may take to release it.
const RELEASE: Duration = Duration::from_millis(500);

/// The Lease of this drain.
pub struct DrainLock {
    api: Api<Lease>,
    shown: String,
    identity: String,
    leadership: Leadership,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl DrainLock {
    /// Takes the Lease, or says who is at work. A holder that does not renew it for [`LEASE`] is taken to be dead.
    /// `force`: takes it from its holder at once.
    ///
    /// # Errors
    /// If the Lease cannot be read or written.
    pub async fn acquire(
        client: &Client,
        namespace: &str,
        force: bool,
    ) -> anyhow::Result<Result<Self, String>> {
        let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let shown = format!("{namespace}/{NAME}");
        let read = || async {
            let lease = answered(api.get_opt(NAME)).await;
            lease.with_context(|| format!("cannot read the Lease {shown}"))
        };
        let mut waited = Duration::ZERO;
        if let Some(first) = read().await? {
            let mut last = first.clone();
            while holder(&last).is_some() && !force && waited < LEASE {
                sleep(READ).await;
                waited += READ;
                let Some(now) = read().await? else { break };
                if now.metadata.resource_version != first.metadata.resource_version && holder(&now).is_some()
                {
                    return Ok(Err(at_work(&now, &shown)));
                }
                last = now;
            }
            if holder(&last).is_some()
                && let Err(why) = clear(&api, last.clone()).await
            {
                return match why {
                    ApiError::Conflict => Ok(Err(at_work(&last, &shown))),
                    why => Err(why).with_context(|| format!("cannot write the Lease {shown}")),
                };
            }
        }
        let lock = DrainLock::start(client, namespace, api.clone(), shown.clone());
        let mut leadership = lock.leadership.clone();
        if timeout(ACQUIRE, leadership.switched(false)).await.is_ok() && lock.holds() {
            return Ok(Ok(lock));
        }
        lock.release().await;
        match read().await? {
            Some(lease) if holder(&lease).is_some() => Ok(Err(at_work(&lease, &shown))),
            _ => anyhow::bail!("cannot write the Lease {shown}"),
        }
    }

    fn start(client: &Client, namespace: &str, api: Api<Lease>, shown: String) -> Self {
        let (until, leads) = watch::channel(None);
        let (stop, stopped) = oneshot::channel();
        let identity = identity();
        let election = Election {
            client: client.clone(),
            namespace: namespace.to_owned(),
            name: NAME.to_owned(),
            identity: identity.clone(),
            until,
        };
        let task = tokio::spawn(election.run(async { drop(stopped.await) }));
        DrainLock {
            api,
            shown,
            identity,
            leadership: Leadership::new(leads),
            stop,
            task,
        }
    }

    /// Whether this drain certainly holds it now.
    pub fn holds(&self) -> bool {
        self.leadership.holds()
    }

    /// Why the drain must end, if another one has taken the Lease.
    pub async fn taken(&self) -> Option<String> {
        let lease = answered(self.api.get_opt(NAME)).await.ok().flatten()?;
        let other = holder(&lease).filter(|holder| *holder != self.identity)?;
        Some(format!(
            "{other} has taken the Lease {} of this drain",
            self.shown
        ))
    }

    /// What the drain waits for while it does not hold the Lease.
    pub fn waits(&self) -> String {
        format!("the Lease {} cannot be renewed", self.shown)
    }

    /// Gives it back.
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

fn at_work(lease: &Lease, shown: &str) -> String {
    let since = lease.spec.as_ref().and_then(|spec| spec.acquire_time.as_ref());
    let since = since.map_or_else(String::new, |since| format!(" since {:.0}", since.0));
    format!(
        "another drain is at work{since}: {} has the Lease {shown}. Wait until it ends; if it is dead, add --force-lock",
        holder(lease).unwrap_or("(unknown)")
    )
}

/// Removes the holder, unless the Lease was written since it was read.
async fn clear(api: &Api<Lease>, mut lease: Lease) -> Result<(), ApiError> {
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    answered(api.replace(NAME, &PostParams::default(), &lease)).await?;
    Ok(())
}

/// Who this drain is, for people: unique to this process.
fn identity() -> String {
    let variable = |names: [&str; 2]| names.into_iter().find_map(|name| std::env::var(name).ok());
    let host = variable(["HOSTNAME", "COMPUTERNAME"]);
    let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    let user = variable(["USER", "USERNAME"]).unwrap_or_else(|| "someone".to_owned());
    let host = host.map_or_else(|| "an unknown machine".to_owned(), |host| host.trim().to_owned());
    let started = jiff::Timestamp::now().as_millisecond();
    format!("{user} on {host}, process {}-{started}", std::process::id())
}
