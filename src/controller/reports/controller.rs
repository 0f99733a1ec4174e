//! One term of leadership: the state, the tasks that share it, and what no event triggers.
//!
//! | state | written by | read by |
//! |---|---|---|
//! | [`OwnerIndex`]: what reports should contain | [`ObjectFeed`] | metrics, [`ReportHealth`] |
//! | [`OwnerIndex`]: what is stored | [`ReportWriter`], [`ReportWatch`] | the same |
//! | [`StoredImages`]: the facts that were used | [`ObjectFeed`] | [`ReportsController`] |
//! | [`StuckPods`] | [`ObjectFeed`] | [`StuckPodsTask`] |
//! | [`RereadQueue`] | every task that finds something to list again | [`ObjectFeed`] |
//! | [`WriteQueue`](super::write_queue::WriteQueue) | [`ObjectFeed`] | [`ReportWriter`] |
//! | [`ReportHealth`] | every task | [`ReportsController`] |

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::evaluator::Evaluator;
use super::events::EventPublisher;
use super::garbage_collection::GarbageCollector;
use super::health::ReportHealth;
use super::invalidation::{EvalInputs, Invalidation, changed};
use super::object_feed::ObjectFeed;
use super::owner_index::SharedIndex;
use super::report_api::{DiscoveredApi, ReportApi};
use super::report_watch::{Adoption, ReportWatch};
use super::report_writer::ReportWriter;
use super::reread_queue::RereadQueue;
use super::stored_images::StoredImages;
use super::stuck_pods::{StuckPods, StuckPodsTask};
use super::write_queue::write_queue;
use super::{ReportContext, lost};
use crate::cluster::custom_lists::CustomLists;
use crate::cluster::rate_limit::RateLimiter;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored::ObjectList;
use crate::model::workload::Kind;

/// How often the supervisor runs.
const LOOK: Duration = Duration::from_millis(500);
/// Rate limit of Events on owners with findings: per second, and burst.
const FINDING_EVENTS: (u32, u32) = (2, 50);
/// Rate limit of Events on owners of stuck pods: per second, and burst.
const STUCK_EVENTS: (u32, u32) = (1, 20);

/// Composes the tasks of a leader.
pub struct ReportsController<'c> {
    context: &'c ReportContext,
    /// The custom resources that the cluster serves, with the paths of their lists.
    custom: Vec<(Kind, String)>,
    lists: Vec<ObjectList>,
    index: Arc<SharedIndex>,
    stuck: StuckPods,
    rereads: RereadQueue,
    health: ReportHealth,
    api: DiscoveredApi,
    adoption: Adoption,
}

impl ReportsController<'_> {
    /// Evaluates stored objects until this replica no longer leads.
    pub async fn run(context: &ReportContext) {
        // Without an answer they are found later.
        let custom = CustomLists::read(&context.client, &BTreeSet::new()).await.kinds;
        let lists = ObjectList::all(&custom);
        let controller = ReportsController {
            context,
            index: Arc::default(),
            stuck: StuckPods::default(),
            rereads: RereadQueue::new(&lists, Instant::now()),
            custom,
            lists,
            health: ReportHealth::default(),
            api: DiscoveredApi::default(),
            adoption: Adoption::default(),
        };
        context.gauges.show(Some(Arc::clone(&controller.index)));
        tokio::select! {
            () = controller.run_tasks() => (),
            () = lost(context) => (),
        }
    }

    async fn run_tasks(&self) {
        let before = self.context.latest.borrow().clone();
        while !self.discover_api().await {
            self.publish_state();
            sleep(self.context.settings.gather).await;
        }
        let ReportContext {
            client,
            leadership,
            latest,
            settings,
            reconcile,
            gauges: _,
            reporting: _,
            images,
        } = self.context;
        let images = StoredImages::new(images.as_ref(), Instant::now());
        let (queue, receiver) = write_queue();
        let feed = ObjectFeed {
            client,
            latest,
            lists: &self.lists,
            custom: &self.custom,
            settings: *settings,
            evaluator: Evaluator::default(),
            images: &images,
            index: &self.index,
            stuck: &self.stuck,
            queue: &queue,
            rereads: &self.rereads,
            health: &self.health,
            api: &self.api,
            adoption: &self.adoption,
            passes: AtomicU64::new(0),
            pages: Semaphore::new(1),
        };
        let writer = ReportWriter {
            client,
            leadership,
            receiver,
            rate_limiter: RateLimiter::per_second(settings.writes_per_second),
            index: &self.index,
            rereads: &self.rereads,
            health: &self.health,
            api: &self.api,
            events: EventPublisher::new(client, leadership, FINDING_EVENTS.0, FINDING_EVENTS.1),
            reconcile,
        };
        let watch = ReportWatch {
            client,
            api: &self.api,
            index: &self.index,
            rereads: &self.rereads,
            health: &self.health,
            adoption: &self.adoption,
        };
        let garbage_collector = GarbageCollector {
            client,
            leadership,
            api: &self.api,
            retry: settings.retry,
        };
        let stuck_pods = StuckPodsTask {
            client,
            latest,
            stuck: &self.stuck,
            images: &images,
            events: EventPublisher::new(client, leadership, STUCK_EVENTS.0, STUCK_EVENTS.1),
        };
        tokio::select! {
            () = feed.run() => (),
            () = writer.run() => (),
            () = watch.run() => (),
            () = garbage_collector.run() => (),
            () = stuck_pods.run() => (),
            () = self.supervise(before, &images, || queue.is_empty()) => (),
        }
    }

    /// Triggers what no event triggers: new evaluations, discovery of the report API, and missing reports.
    async fn supervise(&self, mut before: Arc<Snapshot>, images: &StoredImages, is_idle: impl Fn() -> bool) {
        let mut latest = self.context.latest.clone();
        let settings = self.context.settings;
        let mut discovered = Instant::now();
        let mut inputs = EvalInputs::new(Arc::clone(&before), Instant::now());
        loop {
            let mut discover = false;
            tokio::select! {
                changed = latest.changed() => match changed {
                    Ok(()) => sleep(settings.gather).await,
                    Err(_) => return,
                },
                () = self.api.requested() => discover = true,
                () = sleep(LOOK) => (),
            }
            let now = Arc::clone(&latest.borrow_and_update());
            self.rereads.add_all(&changed(&before, &now));
            if inputs.has_changed(&now, Instant::now()) {
                self.rereads.add_all(&Invalidation::All);
            }
            before = now;
            self.rereads.add_all(&images.changed(Instant::now()));
            if self.index.lock().has_room_again() {
                self.rereads.defer(Invalidation::All);
            }
            if discover || discovered.elapsed() >= settings.ask {
                self.discover_api().await;
                if self.serves_other_kinds().await {
                    return;
                }
                discovered = Instant::now();
            }
            self.rereads.add_due(Instant::now(), settings.retry, is_idle());
            self.publish_state();
        }
    }

    /// Whether the cluster serves other custom resources than at the beginning: then everything begins again.
    async fn serves_other_kinds(&self) -> bool {
        let served = CustomLists::read(&self.context.client, &BTreeSet::new()).await;
        served.unknown.is_empty() && served.kinds != self.custom
    }

    /// Discovers the report API; returns whether the API server answered.
    async fn discover_api(&self) -> bool {
        const DISCOVERY: &str = "which kind of report exists";
        let found = match ReportApi::of(&self.context.client).await {
            Ok(found) => found,
            Err(failure) => {
                self.health.fails(DISCOVERY, &failure.to_string());
                return false;
            }
        };
        self.health.works(DISCOVERY);
        if self.api.set(found) {
            tracing::info!(
                api = found.map(ReportApi::as_str),
                "the kind of report on stored objects"
            );
            self.index.lock().forget_reports();
            self.health.forget_writes();
            self.adoption.set(false);
            self.rereads.add_all(&Invalidation::All);
        }
        if found.is_none() {
            // Without a report API there cannot be stored reports.
            self.adoption.set(true);
        }
        true
    }

    /// Publishes the state of reporting.
    fn publish_state(&self) {
        let state = self.health.state(self.api.get(), &self.index.lock());
        self.context
            .reporting
            .send_if_modified(|before| std::mem::replace(before, state.clone()) != state);
    }
}
