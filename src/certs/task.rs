//! The certificate task of every replica: watches the Secret and the configurations, serves the certificate, and
//! reports readiness. What only the leader writes is in `leader`.

mod leader;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::DynamicObject;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use self::leader::{LeaderStep, WRITES};
use super::bootstrap::REASON;
use super::bundles::Bundles;
use super::ca_bundle_conflict::CaBundleConflict;
use super::ca_injector::{ConfigurationStore, PublishedConfiguration};
use super::rotation::{RotationState, takes_over};
use super::served::ServedIdentities;
use super::store::{SecretStore, StoredSecret};
use super::{CertificateConfig, CertificateMode, CertsError};
use crate::cluster::lease::Leadership;
use crate::cluster::watch_staleness::WatchStaleness;
use crate::cluster::watches::object::{ObservedObject, next, watch_object};
use crate::cluster::webhook_configurations::resources;
use crate::model::doubling_pause::DoublingPause;
use crate::process::complaints::Complaints;
use crate::process::metrics::{Metrics, Reconcile};
use crate::process::readiness::Readiness;
use crate::process::token_bucket::TokenBucket;
use crate::tls::cert_resolver::ServingCert;

/// The longest time between two checks of what depends on the clock: clocks jump.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The same for files, which are not watched.
const POLL: Duration = Duration::from_secs(5);

/// The pauses after failed writes.
const RETRY: DoublingPause = DoublingPause {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(30),
};

/// What cannot be done if there is a problem.
const CERTIFICATES: &str = "certificates";

/// The certificate task, with everything that it needs.
pub struct CertificateTask {
    pub client: Client,
    /// Who issues the certificate and publishes its CA.
    pub mode: CertificateMode,
    pub config: CertificateConfig,
    /// Whether this replica writes.
    pub leadership: Leadership,
    /// What is served: the one that [`first`] returned.
    pub serving: Arc<ServingCert>,
    /// Held as `certificate-chain` while an API server cannot be expected to trust what is served.
    pub readiness: Readiness,
    pub metrics: Metrics,
    /// Records when the API server last answered the watch of the Secret, and knows its clock.
    pub staleness: WatchStaleness,
    /// Counts passes and failed requests.
    pub reconcile: Reconcile,
    /// Publishes the message about another writer that repeatedly overwrites the `caBundle`.
    pub contested: watch::Sender<Option<String>>,
}

impl CertificateTask {
    /// Maintains certificates forever: every replica serves them, the leader issues and publishes them. Returns only
    /// on an error that retrying would not fix. `configurations` are the stored webhook configurations, the mutating one
    /// first.
    pub async fn run(
        self,
        configurations: [watch::Receiver<ObservedObject<DynamicObject>>; 2],
    ) -> CertsError {
        let reload: BoxFuture<'_, ()> = match self.mode.files().cloned() {
            Some(files) => Box::pin(files.keep(Arc::clone(&self.serving), self.metrics.clone())),
            None => Box::pin(std::future::pending()),
        };
        let (publish, secret) = watch::channel(None);
        // If the certificate comes from files, the Secret is not used. A client for its watch would then report a watch
        // that the API server never answers.
        let secrets = (self.mode.files().is_none())
            .then(|| SecretStore::new(self.staleness.client(&self.client, "secrets"), &self.config));
        let watch_secret = async {
            let Some(secrets) = secrets else {
                return std::future::pending().await;
            };
            watch_object(secrets.api, &secrets.name, "secrets", |secret| {
                publish.send_replace(Some(secret));
            })
            .await;
        };
        tokio::select! {
            error = TaskState::new(self).run(secret, configurations) => error,
            () = reload => CertsError::Watch("certificate files".to_owned()),
            () = watch_secret => CertsError::Watch("certificate's Secret".to_owned()),
        }
    }
}

/// An observed value, and since when it has been so.
struct Observed<T> {
    value: T,
    since: Instant,
}

impl<T: PartialEq> Observed<T> {
    fn new(value: T) -> Self {
        Observed {
            value,
            since: Instant::now(),
        }
    }

    fn see(&mut self, value: T) {
        if self.value != value {
            *self = Observed::new(value);
        }
    }
}

/// The state of the loop.
struct TaskState {
    task: CertificateTask,
    secrets: SecretStore,
    stores: [ConfigurationStore; 2],
    /// `None` until the watch has listed; then whether there is a Secret.
    secret: Option<Observed<Option<StoredSecret>>>,
    /// Which of the two configurations the watches have listed, and their content.
    listed: [bool; 2],
    published: [Option<PublishedConfiguration>; 2],
    bundles: Observed<Bundles>,
    served: ServedIdentities,
    writes: TokenBucket,
    contest: CaBundleConflict,
    /// How many writes in a row have failed.
    failures: u32,
    complaints: Complaints,
}

impl TaskState {
    fn new(task: CertificateTask) -> Self {
        let (client, config) = (&task.client, &task.config);
        let issues = task.mode.files().is_none();
        let served = task.serving.identity().as_ref().clone();
        let is_placeholder = issues && served.is_self_signed();
        TaskState {
            secrets: SecretStore::new(client.clone(), config),
            stores: resources()
                .map(|resource| ConfigurationStore::new(client, resource, &config.configuration)),
            // If the certificate comes from files, the Secret is not used.
            secret: (!issues).then(|| Observed::new(None)),
            listed: [false, false],
            published: [None, None],
            bundles: Observed::new(Bundles::default()),
            served: ServedIdentities {
                current: (!is_placeholder).then_some(served),
                former: Vec::new(),
            },
            writes: TokenBucket::new(WRITES.0, WRITES.1),
            contest: CaBundleConflict::default(),
            failures: 0,
            complaints: Complaints::default(),
            task,
        }
    }

    async fn run(
        mut self,
        mut secret: watch::Receiver<ObservedObject<Secret>>,
        [mut mutating, mut validating]: [watch::Receiver<ObservedObject<DynamicObject>>; 2],
    ) -> CertsError {
        let mut led = false;
        let mut wake = Instant::now() + LOOK_AGAIN;
        loop {
            tokio::select! {
                secret = next(&mut secret) => match secret {
                    Some(secret) => self.put_secret(secret.map(|secret| StoredSecret::read(Arc::unwrap_or_clone(secret)))),
                    None => return CertsError::Watch(self.secrets.title()),
                },
                object = next(&mut mutating) => match object {
                    Some(object) => self.see_configuration(0, object.as_deref()),
                    None => return CertsError::Watch(self.stores[0].title()),
                },
                object = next(&mut validating) => match object {
                    Some(object) => self.see_configuration(1, object.as_deref()),
                    None => return CertsError::Watch(self.stores[1].title()),
                },
                switched = self.task.leadership.switched(led) => match switched {
                    Ok(()) => led = !led,
                    Err(_) => return CertsError::Leadership,
                },
                () = sleep_until(wake) => {}
            }
            let began = Instant::now();
            let went = self.go_on().await;
            self.task.reconcile.took(began.elapsed());
            match went {
                Ok(after) => wake = Instant::now() + after.min(LOOK_AGAIN),
                Err(error) => return error,
            }
        }
    }

    fn put_secret(&mut self, stored: Option<StoredSecret>) {
        match &mut self.secret {
            // A new resourceVersion with the same data is not a new Secret, but the next write must name it.
            Some(seen) if seen.value == stored => seen.value = stored,
            secret => *secret = Some(Observed::new(stored)),
        }
    }

    fn see_configuration(&mut self, which: usize, object: Option<&DynamicObject>) {
        self.put_configuration(which, object.map(PublishedConfiguration::read));
    }

    fn put_configuration(&mut self, which: usize, published: Option<PublishedConfiguration>) {
        // In bounds: `which` is 0 or 1, and there are two of each.
        self.listed[which] = true;
        self.published[which] = published;
        let configurations = self.published.iter().flatten();
        self.bundles.see(Bundles {
            configurations: configurations
                .map(|published| published.bundles.clone())
                .collect(),
        });
    }

    /// Serves, reports readiness, and writes what is due; returns when to run again.
    async fn go_on(&mut self) -> Result<Duration, CertsError> {
        if self.secret.is_none() || self.listed.contains(&false) {
            // Readiness has been held since the start.
            return Ok(LOOK_AGAIN);
        }
        let contested = self.contest.message(Instant::now());
        self.task.contested.send_if_modified(|published| {
            let differs = *published != contested;
            *published = contested;
            differs
        });
        loop {
            let pending = self.serve();
            self.log_state();
            let step = match self.task.mode.clone() {
                CertificateMode::SelfManaged => self.issue().await?,
                CertificateMode::Provided {
                    ca_bundle: Some(file),
                    ..
                } => self.publish_file(&file).await,
                CertificateMode::Provided { .. } | CertificateMode::CertManager(_) => LeaderStep::Rest(POLL),
            };
            match step {
                LeaderStep::Again => {}
                LeaderStep::Rest(after) => return Ok(pending.map_or(after, |pending| pending.min(after))),
                LeaderStep::Failed => {
                    self.task.reconcile.failed();
                    let after = RETRY.after(self.failures);
                    self.failures = self.failures.saturating_add(1);
                    return Ok(after);
                }
            }
        }
    }

    /// The Secret, if it exists.
    fn stored(&self) -> Option<&StoredSecret> {
        self.secret.as_ref()?.value.as_ref()
    }

    fn situation(&self) -> RotationState<'_> {
        RotationState {
            now: self.task.staleness.server_clock().now(),
            secret: self.stored().map(|stored| &stored.state),
            secret_for: (self.secret.as_ref()).map_or(Duration::ZERO, |seen| seen.since.elapsed()),
            bundles: &self.bundles.value,
            bundles_for: self.bundles.since.elapsed(),
            served: self.served.current.as_ref(),
            served_before: &self.served.former,
            names: &self.task.config.names,
            lifetimes: &self.task.config.lifetimes,
        }
    }

    /// Switches to the certificate in the Secret if it is time; returns how long to wait if it is not.
    fn serve(&mut self) -> Option<Duration> {
        self.served
            .forget(self.task.config.lifetimes.grace, Instant::now());
        if self.task.mode.files().is_some() {
            self.served.current = Some(self.task.serving.identity().as_ref().clone());
            return None;
        }
        let situation = self.situation();
        let offered = situation.secret.and_then(|secret| secret.leaf.as_ref())?;
        if situation.serves(offered) {
            return None;
        }
        if !takes_over(&situation, offered) {
            return Some(situation.lifetimes.settle);
        }
        let offered = offered.clone();
        self.task.serving.replace(offered.clone());
        self.task.metrics.certificate_reloaded(true);
        tracing::info!(
            secret = self.secrets.title(),
            "serves the certificate of the Secret"
        );
        self.served.replace(offered, Instant::now());
        None
    }

    /// Holds readiness while the API server cannot be expected to trust what is served.
    fn log_state(&self) {
        let readiness = &self.task.readiness;
        let situation = self.situation();
        let Some(served) = situation.served else {
            let secret = self.secrets.title();
            let why = format!("there is no certificate yet; the leader puts one into the {secret}");
            return readiness.hold(REASON, why);
        };
        let names = situation.names;
        let Some(webhook) = situation.bundles.distrusts(served, names, situation.now) else {
            return readiness.release(REASON);
        };
        let remedy = match self.task.mode {
            CertificateMode::SelfManaged
            | CertificateMode::Provided {
                ca_bundle: Some(_), ..
            } => "the leader publishes it",
            CertificateMode::CertManager(_) => {
                "cert-manager's CA injector should write it (annotation cert-manager.io/inject-ca-from)"
            }
            CertificateMode::Provided { ca_bundle: None, .. } => {
                "the tool that issued the certificate should write it"
            }
        };
        readiness.hold(
            REASON,
            format!(
                "the caBundle of the webhook {} does not make a client trust the certificate that is served for {}; {remedy}",
                webhook.name,
                names.join(", ")
            ),
        );
    }

    /// Logs a problem once, until it changes.
    fn complain(&mut self, text: &str) {
        if self.complaints.is_news(CERTIFICATES, text) {
            tracing::warn!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::certs::Lifetimes;
    use crate::cluster::test_client::answering;
    use crate::process::metrics::Reconciles;
    use crate::tls::files::CertificateFiles;
    use crate::tls::identity::Identity;

    fn self_signed() -> Arc<ServingCert> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        ServingCert::new(Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn the_secret_has_a_last_contact_only_if_it_is_watched() {
        let files = CertificateFiles {
            certificate: "none.crt".into(),
            key: "none.key".into(),
            poll: Duration::from_secs(3_600),
        };
        let provided = CertificateMode::Provided {
            files: files.clone(),
            ca_bundle: None,
        };
        for (mode, is_watched) in [
            (CertificateMode::SelfManaged, true),
            (CertificateMode::CertManager(files), false),
            (provided, false),
        ] {
            let metrics = Metrics::new("0", None);
            let (_lead, until) = watch::channel(None);
            let [(_mutating, first), (_validating, second)] = [watch::channel(None), watch::channel(None)];
            let task = CertificateTask {
                client: answering(|_, _, _| (403, json!({"kind": "Status", "code": 403, "message": "no"}))),
                mode: mode.clone(),
                config: CertificateConfig {
                    namespace: "own".to_owned(),
                    secret: "tls".to_owned(),
                    configuration: "transom".to_owned(),
                    names: vec!["localhost".to_owned()],
                    lifetimes: Lifetimes::default(),
                },
                leadership: Leadership::new(until),
                serving: self_signed(),
                readiness: Readiness::default(),
                metrics: metrics.clone(),
                staleness: WatchStaleness::new(&metrics),
                reconcile: Reconciles::new(&metrics).of("certificates"),
                contested: watch::channel(None).0,
            };
            let running = Box::pin(task.run([first, second]));
            let ended = tokio::time::timeout(Duration::from_secs(60), running).await;
            assert!(ended.is_err(), "{mode:?}: {ended:?}");
            let shown = metrics.expose();
            assert_eq!(
                shown.contains("resource=\"secrets\""),
                is_watched,
                "{mode:?}: {shown}"
            );
        }
    }
}
