//! Facts of images for a server: a cache in memory, and look-ups in the background, so that a review only uses what is
//! known.
//!
//! ```text
//! reviews ──────────┐                                    ┌─ cache (bounded, in memory)
//!                   ├─ ImageService::known ─ ServiceState ┼─ queue (namespaces in turn, single flight)
//! stored workloads ─┘                                    └─ registries (circuit breaker, rate, slots)
//!                                        run ─ RegistryClient
//! ```
//!
//! Every replica has its own: nothing is shared, and all replicas see the same workloads.

mod breaker;
mod cache;
mod key;
mod look_up;
mod metrics;
mod queue;
mod state;

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::cache::{Due, ImageCache, LookupOrigin};
use self::key::{ImageKey, registry_of};
use self::metrics::LookupMetrics;
use self::queue::Job;
use self::state::{Dropped, Finished, LookupOutcome, Next, ServiceState};
use super::{Keychain, RegistryClient};
use crate::model::image::ImageRef;
use crate::model::image_facts::ImageFacts;
use crate::model::pod_images::PodImages;
use crate::model::registry_patterns::RegistryPatterns;
use crate::process::metrics::Metrics;

pub use self::key::Access;
pub use self::state::UnreachableRegistry;

/// After how long a look-up is not waited for any more: the reviews of one object wait for it once.
const PATIENCE: Duration = Duration::from_millis(500);
/// The maximum number of images that are looked up for one object; more containers are rare, and only named ones.
const IMAGES_OF_OBJECT: usize = 64;
/// How long a registry must be unreachable before it is reported: a restart takes less.
const UNREACHABLE: Duration = Duration::from_secs(5 * 60);
/// How often the reported state of registries is updated.
const REPORT: Duration = Duration::from_secs(15);

/// Where the credentials of look-ups come from.
pub trait CredentialSource: Send + Sync + 'static {
    /// Whose credentials the look-ups for a pod use.
    fn access(&self, _: &PodImages) -> Access {
        Access::Shared
    }

    /// The credentials for an access, those to try first in front. A registry without one is asked anonymously.
    fn keychain<'s>(&'s self, access: &'s Access) -> BoxFuture<'s, Keychain>;
}

/// No credentials: every registry is asked anonymously.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCredentials;

impl CredentialSource for NoCredentials {
    fn keychain<'s>(&'s self, _: &'s Access) -> BoxFuture<'s, Keychain> {
        Box::pin(async { Keychain::anonymous() })
    }
}

/// Resolves when the look-ups that a review could wait for have ended.
pub type LookupsEnded = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is known of the images of an object.
#[derive(Default)]
pub struct KnownImages {
    /// By reference, as written.
    pub images: HashMap<String, Arc<ImageFacts>>,
    /// Images that are not known, or not any more, and for which a look-up was requested recently.
    pub pending: Option<LookupsEnded>,
}

/// Facts of images. Cheap to clone.
#[derive(Clone)]
pub struct ImageService(Arc<Shared>);

struct Shared {
    client: RegistryClient,
    credentials: Box<dyn CredentialSource>,
    registries: RegistryPatterns,
    state: Mutex<ServiceState>,
    /// Something was queued.
    queued: Notify,
    metrics: LookupMetrics,
    unreachable: watch::Sender<Vec<UnreachableRegistry>>,
    /// Counts registries that answer again.
    recoveries: watch::Sender<u64>,
    /// Counts answers with other contents than before.
    changes: watch::Sender<u64>,
}

impl ImageService {
    /// A service that asks these registries. Nothing is looked up before [`run`](Self::run).
    pub fn new(
        client: RegistryClient,
        registries: RegistryPatterns,
        credentials: impl CredentialSource,
        metrics: &Metrics,
    ) -> Self {
        ImageService(Arc::new(Shared {
            client,
            credentials: Box::new(credentials),
            metrics: LookupMetrics::new(metrics, &registries),
            registries,
            state: Mutex::new(ServiceState::new()),
            queued: Notify::new(),
            unreachable: watch::channel(Vec::new()).0,
            recoveries: watch::channel(0).0,
            changes: watch::channel(0).0,
        }))
    }

    /// What is known now of the images of a review. What is not known, or will expire, is queued. Takes a short lock
    /// and never waits.
    pub fn known(&self, request: &PodImages) -> KnownImages {
        let now = Instant::now();
        let mut known = KnownImages::default();
        let (mut waits, mut dropped) = (Vec::new(), Vec::new());
        let mut oldest = Duration::ZERO;
        let mut is_queued = false;
        let keys = self.keys(request);
        let mut state = self.state();
        for (text, key, registry) in keys {
            let recalled = state.cache.recall(&key, LookupOrigin::Review, now);
            if recalled.due != Due::No {
                match state.request(&key, &registry, &request.namespace, LookupOrigin::Review, now) {
                    Ok(()) => is_queued = true,
                    Err(why) => dropped.push(why),
                }
            }
            if recalled.due == Due::Now {
                waits.extend(state.done(&key, PATIENCE, now));
            }
            if let Some(facts) = recalled.facts {
                oldest = oldest.max(recalled.age);
                known.images.insert(text.to_owned(), facts);
            }
        }
        drop(state);
        self.noted(is_queued, &dropped);
        self.0.metrics.served(oldest, now);
        if !waits.is_empty() {
            let ends = waits.into_iter().map(|mut done| async move {
                let _ = done.changed().await;
            });
            known.pending = Some(Box::pin(join_all(ends).map(|_| ())));
        }
        known
    }

    /// What is known now of images that are not looked up for it: those of the previous version of an object.
    pub fn recalled(&self, request: &PodImages) -> HashMap<String, Arc<ImageFacts>> {
        self.recall(request, LookupOrigin::Review)
    }

    /// What is known now of the images of a stored object; nothing is looked up. That an image does not exist is known
    /// until another answer arrives, and the time of the look-up is that of the first one with this content: an object is
    /// evaluated again when something has changed, and not when it was only confirmed.
    pub fn stored(&self, request: &PodImages) -> HashMap<String, Arc<ImageFacts>> {
        self.recall(request, LookupOrigin::Stored)
    }

    fn recall(&self, request: &PodImages, origin: LookupOrigin) -> HashMap<String, Arc<ImageFacts>> {
        let mut facts = HashMap::new();
        if request.references.is_empty() {
            return facts;
        }
        let now = Instant::now();
        let keys = self.keys(request);
        let mut state = self.state();
        for (text, key, _) in keys {
            let recalled = state.cache.recall(&key, origin, now);
            facts.extend(recalled.facts.map(|found| (text.to_owned(), found)));
        }
        facts
    }

    /// Looks the tags of a denied object up again: its author may push another image and retry.
    pub fn refresh_tags(&self, request: &PodImages) {
        /// Answers newer than this are not looked up again.
        const MIN_AGE: Duration = Duration::from_secs(15);
        self.queue(request, LookupOrigin::Review, |cache, key, now| {
            cache.expire_tag(key, MIN_AGE, now)
        });
    }

    /// Queues the look-ups that a stored workload needs. Returns whether all images are known or queued.
    pub fn prepare(&self, request: &PodImages) -> bool {
        self.queue(request, LookupOrigin::Stored, |cache, key, now| {
            cache.recall(key, LookupOrigin::Stored, now).due != Due::No
        })
    }

    /// Queues the look-ups of a request that are due. Returns whether none of them was dropped.
    fn queue(
        &self,
        request: &PodImages,
        origin: LookupOrigin,
        is_due: impl Fn(&mut ImageCache, &ImageKey, Instant) -> bool,
    ) -> bool {
        let now = Instant::now();
        let (mut is_queued, mut dropped) = (false, Vec::new());
        let keys = self.keys(request);
        let mut state = self.state();
        for (_, key, registry) in keys {
            if !is_due(&mut state.cache, &key, now) {
                continue;
            }
            match state.request(&key, &registry, &request.namespace, origin, now) {
                Ok(()) => is_queued = true,
                Err(why) => dropped.push(why),
            }
        }
        drop(state);
        self.noted(is_queued, &dropped);
        dropped.is_empty()
    }

    /// Transom's own credentials have changed: all answers are looked up again, and used until then.
    pub fn credentials_changed(&self) {
        self.state().cache.credentials_changed();
    }

    /// The listed registries that cannot be reached, for a condition.
    pub fn unreachable(&self) -> watch::Receiver<Vec<UnreachableRegistry>> {
        self.0.unreachable.subscribe()
    }

    /// Changes when a registry answers again that did not before: what was dropped meanwhile can be queued now.
    pub fn recoveries(&self) -> watch::Receiver<u64> {
        self.0.recoveries.subscribe()
    }

    /// Changes when an image has another content than before, or one for the first time: what was evaluated without it can
    /// be evaluated again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Records facts as if they had been looked up now.
    ///
    /// # Panics
    /// If the text is not an image reference.
    #[cfg(test)]
    pub fn learn(&self, reference: &str, facts: ImageFacts) {
        let image = ImageRef::parse(reference).expect("a reference");
        let job = Job {
            key: ImageKey::of(&image, Access::Shared),
            registry: registry_of(&image).into(),
            namespace: "shop".into(),
            since: Instant::now(),
        };
        let outcome = LookupOutcome::Answered(facts);
        let finished = self.state().finish(&job, outcome, Instant::now());
        self.announce(&job, finished);
    }

    /// Looks up what is queued, forever.
    pub async fn run(self) {
        let mut running = JoinSet::new();
        let mut report = tokio::time::interval(REPORT);
        loop {
            let now = Instant::now();
            let next = self.state().next(now);
            let until = match next {
                Next::Start(job) => {
                    running.spawn(self.clone().complete(job));
                    continue;
                }
                Next::Wait(at) => at.unwrap_or(now + REPORT),
            };
            tokio::select! {
                () = self.0.queued.notified() => (),
                Some(_) = running.join_next() => (),
                () = sleep_until(until) => (),
                _ = report.tick() => self.report(),
            }
        }
    }

    async fn complete(self, job: Job) {
        let began = Instant::now();
        // A task of its own, so that a panic does not leave the look-up running forever.
        let looking = tokio::spawn(self.clone().look_up(job.key.clone()));
        let outcome = looking.await.unwrap_or_else(|error| LookupOutcome::ImageFailed {
            message: format!("the look-up ended unexpectedly: {error}"),
            is_refused: false,
        });
        let now = Instant::now();
        let pattern = self.0.metrics.pattern(&job.registry);
        self.0.metrics.looked_up(pattern, &outcome, now - began);
        if let Some(why) = outcome.failure() {
            self.0.metrics.log(pattern, &job.registry, why, now);
        }
        let finished = self.state().finish(&job, outcome, now);
        self.announce(&job, finished);
    }

    fn announce(&self, job: &Job, finished: Finished) {
        let Finished {
            recovers,
            has_changed,
        } = finished;
        if recovers {
            tracing::info!(registry = &*job.registry, "the registry answers again");
            self.0.recoveries.send_modify(|count| *count += 1);
        }
        if has_changed {
            self.0.changes.send_modify(|count| *count += 1);
        }
    }

    async fn look_up(self, key: ImageKey) -> LookupOutcome {
        let known = self.state().cache.known_content(&key);
        let keychain = self.0.credentials.keychain(&key.access).await;
        look_up::look_up(&self.0.client, &key, known.as_ref(), &keychain).await
    }

    /// Updates the gauges and the state that a condition shows.
    fn report(&self) {
        let now = Instant::now();
        let is_named = |registry: &str| {
            let mut patterns = self.0.registries.iter();
            patterns.any(|pattern| !pattern.host().contains('*') && pattern.matches(registry))
        };
        let (unreachable, gauges) = {
            let state = self.state();
            let gauges = (state.cache.len(), state.cache.bytes(), state.queued());
            (state.unreachable(UNREACHABLE, is_named, now), gauges)
        };
        self.0.metrics.show(gauges, &unreachable, now);
        self.0.unreachable.send_if_modified(|shown| {
            let names = |list: &[UnreachableRegistry]| {
                let named = list
                    .iter()
                    .map(|it| (Arc::clone(&it.registry), it.message.clone()));
                named.collect::<Vec<_>>()
            };
            let differs = names(shown) != names(&unreachable);
            if differs {
                *shown = unreachable;
            }
            differs
        });
    }

    /// The keys of the images of a request that are in listed registries, each once.
    fn keys<'r>(&self, request: &'r PodImages) -> Vec<(&'r str, ImageKey, String)> {
        let access = self.0.credentials.access(request);
        let mut seen = HashSet::new();
        let mut keys = Vec::new();
        for text in &request.references {
            if keys.len() >= IMAGES_OF_OBJECT || !seen.insert(text) {
                continue;
            }
            let Ok(image) = ImageRef::parse(text) else {
                continue;
            };
            if self.0.registries.matches(image.registry) {
                let key = ImageKey::of(&image, access.clone());
                keys.push((text.as_str(), key, registry_of(&image)));
            }
        }
        keys
    }

    fn noted(&self, is_queued: bool, dropped: &[Dropped]) {
        if is_queued {
            self.0.queued.notify_one();
        }
        for why in dropped {
            self.0.metrics.dropped(*why);
        }
    }

    fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
