//! Facts of images for a server: a cache in memory, and look-ups in the background, so that a review only uses what is
//! known.
//!
//! ```text
//! reviews ──────────┐                                    ┌─ cache (bounded, in memory)
//!                   ├─ ImageService::known ─ ServiceState ┼─ queue (namespaces in turn, single flight, rate)
//! stored workloads ─┘                                    └─ registries (circuit breakers, slots)
//!                                        run ─ RegistryClient
//! ```
//!
//! Every replica has its own: nothing is shared, and all replicas see the same workloads.

mod breaker;
mod cache;
mod key;
mod metrics;
mod outages;
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

use self::cache::{Due, LookupOrigin};
use self::key::ImageKey;
use self::metrics::LookupMetrics;
use self::queue::Job;
use self::state::{Dropped, Finished, LookupEnd, ServiceState};
use super::{Detail, ImageChange, Keychain, KnownImage, LookupError, RegistryClient};
use crate::model::objects::pod_images::PodImages;
use crate::model::windows::image::ImageRef;
use crate::model::windows::image_facts::ImageFacts;
use crate::model::windows::registry_patterns::RegistryPatterns;
use crate::process::metrics::Metrics;

pub use self::key::Access;
pub use self::state::UnreachableRegistry;

/// The maximum number of images that are looked up for one object; more containers are rare, and only named ones.
const IMAGES_OF_OBJECT: usize = 64;
/// How long a registry must be unreachable before it is reported: a restart takes less.
const UNREACHABLE: Duration = Duration::from_secs(5 * 60);
/// How often the reported state of registries is updated.
const REPORT: Duration = Duration::from_secs(15);

/// The source of the credentials of look-ups.
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
            state: Mutex::new(ServiceState::new(registries.clone())),
            registries,
            queued: Notify::new(),
            unreachable: watch::channel(Vec::new()).0,
            recoveries: watch::channel(0).0,
            changes: watch::channel(0).0,
        }))
    }

    /// What is known now of the images of a review. What is not known, or will expire, is queued. Takes a short lock
    /// and never waits.
    pub fn known(&self, request: &PodImages) -> KnownImages {
        let mut known = KnownImages::default();
        let (mut ends, mut oldest) = (Vec::new(), Duration::ZERO);
        self.for_each_image(request, |state, text, job| {
            let recalled = state.cache.recall(&job.key, LookupOrigin::Review, job.due);
            if let Some(facts) = recalled.facts {
                oldest = oldest.max(recalled.age);
                known.images.insert(text.to_owned(), facts);
            }
            if recalled.due != Due::No {
                let end = self.request(state, job).ok().flatten();
                ends.extend(end.filter(|_| recalled.due == Due::Now));
            }
        });
        self.0.metrics.served(oldest, Instant::now());
        if !ends.is_empty() {
            let ends = ends.into_iter().map(|mut end: LookupEnd| async move {
                let _ = end.changed().await;
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
        self.for_each_image(request, |state, text, job| {
            let recalled = state.cache.recall(&job.key, origin, job.due);
            facts.extend(recalled.facts.map(|found| (text.to_owned(), found)));
        });
        facts
    }

    /// Looks the tags of a denied object up again: its author may push another image and retry.
    pub fn refresh_tags(&self, request: &PodImages) {
        /// Answers newer than this are not looked up again.
        const MIN_AGE: Duration = Duration::from_secs(15);
        self.for_each_image(request, |state, _, job| {
            if state.cache.expire_tag(&job.key, MIN_AGE, job.due) {
                // What is dropped is counted, and requested again by the next review.
                let _ = self.request(state, job);
            }
        });
    }

    /// Queues the look-ups that a stored workload needs. Returns whether all images are known or queued.
    pub fn prepare(&self, request: &PodImages) -> bool {
        let mut is_complete = true;
        self.for_each_image(request, |state, _, job| {
            let recalled = state.cache.recall(&job.key, LookupOrigin::Stored, job.due);
            is_complete &= recalled.due == Due::No || self.request(state, job).is_ok();
        });
        is_complete
    }

    /// Calls `visit` with a look-up of each image of a request that is in a listed registry, while the state is locked.
    fn for_each_image(&self, request: &PodImages, mut visit: impl FnMut(&mut ServiceState, &str, Job)) {
        let jobs = self.jobs(request);
        if jobs.is_empty() {
            return;
        }
        let mut state = self.state();
        for (text, job) in jobs {
            visit(&mut state, text, job);
        }
    }

    fn request(&self, state: &mut ServiceState, job: Job) -> Result<Option<LookupEnd>, Dropped> {
        let requested = state.request(job);
        match &requested {
            Ok(_) => self.0.queued.notify_one(),
            Err(why) => self.0.metrics.dropped(*why),
        }
        requested
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
            registry: image.canonical_registry().into(),
            namespace: "shop".into(),
            due: Instant::now(),
        };
        let result = Ok(ImageChange::Changed(facts));
        let finished = self.state().finish(&job, result, Duration::ZERO, job.due);
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
                Ok(job) => {
                    running.spawn(self.clone().complete(job));
                    continue;
                }
                Err(at) => at.unwrap_or(now + REPORT),
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
        let result = looking.await.unwrap_or_else(|error| {
            Err(LookupError::image(format!(
                "the look-up ended unexpectedly: {error}"
            )))
        });
        let now = Instant::now();
        let took = now - began;
        self.0.metrics.looked_up(&job.registry, &result, took, now);
        let finished = self.state().finish(&job, result, took, now);
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

    /// Looks up an image. Of what is known, only what has changed is requested.
    async fn look_up(self, key: ImageKey) -> Result<ImageChange, LookupError> {
        let known = self.state().cache.known_content(&key);
        let known = known.as_ref().and_then(|known| {
            Some(KnownImage {
                contents: known.facts.found.as_ref()?,
                completes: known.completes,
            })
        });
        let keychain = self.0.credentials.keychain(&key.access).await;
        let image = ImageRef::parse(&key.reference).map_err(|error| LookupError::image(error.to_string()))?;
        let client = &self.0.client;
        client
            .look_up(&image, &keychain, Detail::Configurations, known)
            .await
    }

    /// Updates the gauges and the state that a condition shows.
    fn report(&self) {
        let now = Instant::now();
        let (unreachable, gauges) = {
            let state = self.state();
            let gauges = (state.cache.len(), state.cache.bytes(), state.queued());
            (state.unreachable(UNREACHABLE, now), gauges)
        };
        self.0.metrics.show(gauges, &unreachable, now);
        self.0.unreachable.send_if_modified(|shown| {
            let differs = *shown != unreachable;
            *shown = unreachable;
            differs
        });
    }

    /// The look-ups of the images of a request that are in listed registries, each once, with the image as written.
    fn jobs<'r>(&self, request: &'r PodImages) -> Vec<(&'r str, Job)> {
        let access = self.0.credentials.access(request);
        let namespace: Arc<str> = request.namespace.as_str().into();
        let due = Instant::now();
        let mut seen = HashSet::new();
        let images = request.references.iter().filter_map(|text| {
            let image = ImageRef::parse(text).ok()?;
            let is_wanted = self.0.registries.matches(image.registry) && seen.insert(text);
            is_wanted.then(|| {
                let job = Job {
                    key: ImageKey::of(&image, access.clone()),
                    registry: image.canonical_registry().into(),
                    namespace: Arc::clone(&namespace),
                    due,
                };
                (text.as_str(), job)
            })
        });
        images.take(IMAGES_OF_OBJECT).collect()
    }

    fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
