//! One term of leadership: one task that owns [`ReportsState`]. It takes the events of stored objects and of reports, and the
//! answers to its requests, one by one; nothing is shared. Writes follow from the state: [`OwnerIndex::plan`].

mod writes;

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _, pending};
use futures::stream::FuturesUnordered;
use kube::runtime::watcher::Event;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use self::writes::Writes;
use super::garbage_collection::keep_only;
use super::health::{ReportHealth, ReportingState};
use super::invalidation::{EvalInputs, Invalidation, changed};
use super::metrics::StoredFindingFigures;
use super::owner_index::OwnerIndex;
use super::report_api::ReportApi;
use super::report_watch::{ReportChange, ReportWatch};
use super::requests::{Answer, discover};
use super::state::ReportsState;
use super::stored_images::StoredImages;
use super::stuck_pods::StuckPodsCheck;
use super::write_queue::ObservationSource::{List, Watch};
use super::{NextDenials, ReportContext, send_if_different};
use crate::cluster::errors::ApiError;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored::{KindEvent, ObjectList, StoredObjects};
use crate::model::objects::workload::Kind;

/// How long to wait for the list of stored reports before objects are listed.
const ADOPTION: Duration = Duration::from_secs(10);
/// The activities of [`ReportHealth`], besides those of each list.
const DISCOVERY: &str = "which kind of report exists";
const WATCHING: &str = "cannot watch the reports";

enum Input {
    Object(KindEvent),
    Report(ReportChange),
    Answer(Answer),
    Tick,
}

/// The controller of a leader.
pub struct ReportsController {
    context: ReportContext,
    state: ReportsState,
    api: Option<ReportApi>,
    objects: StoredObjects,
    reports: ReportWatch,
    requests: FuturesUnordered<BoxFuture<'static, Answer>>,
    writes: Writes,
    /// Deletes the reports of other report APIs.
    garbage_collection: BoxFuture<'static, Infallible>,
    tick: Interval,
    /// Whether the stored reports are known.
    is_adopted: bool,
    /// When to continue even if the stored reports cannot be read: findings are counted and reported all the same.
    adopt_until: Instant,
    /// When to ask again what the cluster serves.
    discover_at: Instant,
    before: Arc<Snapshot>,
    inputs: EvalInputs,
}

impl ReportsController {
    /// A controller that has read nothing yet. `custom`: the custom resources that the cluster serves.
    fn new(context: &ReportContext, api: Option<ReportApi>, custom: Vec<(Kind, String)>) -> Self {
        let now = Instant::now();
        let before = context.latest.borrow().clone();
        let mut tick = interval(context.settings.gather);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lists = ObjectList::all(&custom);
        // Last, because they are evaluated with the workloads and network engines that exist.
        lists.push(ObjectList::network_policies());
        let mut controller = ReportsController {
            objects: StoredObjects::new(&context.client, lists),
            state: ReportsState::new(custom, StoredImages::new(context.images.as_ref(), now)),
            api: None,
            reports: ReportWatch::new(&context.client, None),
            requests: FuturesUnordered::new(),
            writes: Writes::new(context.settings.writes_per_second),
            garbage_collection: pending().boxed(),
            tick,
            is_adopted: true,
            adopt_until: now,
            discover_at: now + context.settings.ask,
            inputs: EvalInputs::new(Arc::clone(&before), now),
            before,
            context: context.clone(),
        };
        controller.use_api(api);
        controller
    }

    /// Evaluates stored objects until the snapshot channel ends, or the cluster serves other custom resources.
    pub async fn run(context: &ReportContext) {
        let mut health = ReportHealth::default();
        let (api, custom) = loop {
            match discover(context.client.clone()).await {
                (Ok(api), custom) => break (api, custom.kinds),
                (Err(failure), _) => health.fails(DISCOVERY, &failure.to_string()),
            }
            let state = health.state(None, &OwnerIndex::default());
            if matches!(state, ReportingState::Amiss("RequestFailed", _)) {
                context.publish(state);
            }
            sleep(context.settings.gather).await;
        };
        let mut controller = ReportsController::new(context, api, custom);
        while context.latest.has_changed().is_ok() {
            let input = controller.next().await;
            if controller.take(input).is_break() {
                return;
            }
            controller.start_write();
        }
    }

    /// The next input. Cancel safe.
    async fn next(&mut self) -> Input {
        let is_ready = self.is_ready();
        tokio::select! {
            event = self.objects.next(), if is_ready => Input::Object(event),
            change = self.reports.next() => Input::Report(change),
            Some(answer) = self.requests.next() => Input::Answer(answer),
            never = &mut self.garbage_collection => match never {},
            _ = self.tick.tick() => Input::Tick,
        }
    }

    fn is_ready(&self) -> bool {
        self.is_adopted || Instant::now() >= self.adopt_until
    }

    fn take(&mut self, input: Input) -> ControlFlow<()> {
        match input {
            Input::Object(event) => self.object(event),
            Input::Report(change) => self.report(change),
            Input::Answer(Answer::Discovered(found, custom)) => {
                if custom.unknown.is_empty() && custom.kinds != self.state.custom {
                    return ControlFlow::Break(());
                }
                self.discovered(found);
            }
            Input::Answer(Answer::Read(kind, owner, read)) => self.owner_read(kind, owner, read),
            Input::Answer(Answer::Wrote(write)) => self.wrote(*write),
            Input::Answer(Answer::Explained(explained)) => {
                for uid in &explained.gone {
                    self.state.stuck.record(uid, None);
                }
                for event in explained.events {
                    self.publish(Some(event));
                }
            }
            Input::Answer(Answer::Published) => {}
            Input::Tick => self.tick(),
        }
        ControlFlow::Continue(())
    }

    fn object(&mut self, (kind, event): KindEvent) {
        let (snapshot, state) = (self.context.latest.borrow().clone(), &mut self.state);
        match event {
            Ok(Event::Init) => {
                let activity = format!("cannot read every {kind}");
                state.health.works(&activity);
                return state.index.begin_pass(kind);
            }
            Ok(Event::InitApply(object)) => {
                state.observe(&snapshot, kind, &object, List);
                return;
            }
            Ok(Event::InitDone) => state.listed(kind),
            Ok(Event::Apply(object)) => drop(state.observe(&snapshot, kind, &object, Watch)),
            Ok(Event::Delete(object)) => state.deleted(kind, &object),
            // The watcher lists them again.
            Err(ApiError::Expired(_)) => return,
            Err(error @ ApiError::ObjectTooLarge(_)) => {
                let activity = format!("cannot read every {kind}");
                return state.health.fails(&activity, &error.to_string());
            }
            Err(error) => {
                let activity = self.watching(kind);
                return self.state.health.fails(&activity, &error.to_string());
            }
        }
        if self.state.health.has_failures() {
            let activity = self.watching(kind);
            self.state.health.works(&activity);
        }
    }

    fn watching(&self, kind: Kind) -> String {
        let list = self.objects.list(kind);
        format!("cannot watch {}", list.map_or("", |list| &*list.path))
    }

    fn report(&mut self, change: ReportChange) {
        let state = &mut self.state;
        match change {
            ReportChange::Listed(reports) => {
                for report in reports.values() {
                    state.index.found(report);
                }
                state.index.without_report(|uid| reports.contains_key(uid));
                self.is_adopted = true;
            }
            ReportChange::Written(report) => state.index.found(&report),
            ReportChange::Deleted(report) => state.index.missing(&report),
            ReportChange::Failed(ApiError::NotFound) => {
                self.discover_at = Instant::now();
                return;
            }
            // The watcher lists them again.
            ReportChange::Failed(ApiError::Expired(_)) => return,
            ReportChange::Failed(error) => return state.health.fails(WATCHING, &error.to_string()),
        }
        state.health.works(WATCHING);
    }

    fn discovered(&mut self, found: Result<Option<ReportApi>, ApiError>) {
        match found {
            Ok(found) => {
                self.state.health.works(DISCOVERY);
                if found != self.api {
                    self.use_api(found);
                }
            }
            Err(failure) => self.state.health.fails(DISCOVERY, &failure.to_string()),
        }
    }

    /// Writes another kind of report from now on.
    fn use_api(&mut self, api: Option<ReportApi>) {
        tracing::info!(
            api = api.map(ReportApi::as_str),
            "the kind of report on stored objects"
        );
        self.api = api;
        self.state.index.forget_reports(api.is_some());
        self.state.health.forget_writes();
        self.state.health.works(WATCHING);
        self.reports = ReportWatch::new(&self.context.client, api);
        // Without a report API there cannot be stored reports.
        self.is_adopted = api.is_none();
        self.adopt_until = Instant::now() + ADOPTION;
        let (client, leadership) = (self.context.client.clone(), self.context.leadership.clone());
        self.garbage_collection = match api {
            Some(api) => keep_only(client, api, leadership, self.context.settings.retry).boxed(),
            None => pending().boxed(),
        };
    }

    /// Does what no event triggers.
    fn tick(&mut self) {
        let now = Instant::now();
        self.invalidate(now);
        if now >= self.discover_at {
            self.discover_at = now + self.context.settings.ask;
            let discovery = discover(self.context.client.clone());
            let answer = discovery.map(|(found, custom)| Answer::Discovered(found, custom));
            self.requests.push(answer.boxed());
            self.check_stuck_pods(now);
        }
        let ReportsState {
            health,
            index,
            untolerating,
            ..
        } = &mut self.state;
        self.context.publish(health.state(self.api, index));
        let next_denials = NextDenials {
            rollouts: index.unlisted_controllers(),
            of_classes: index.denied_by_class(),
            daemon_sets: untolerating.by_policy(),
        };
        send_if_different(&self.context.next_denials, next_denials);
        self.context.gauges.show(Some(StoredFindingFigures::of(index)));
    }

    /// Lists again what changes of policies, facts or other objects affect.
    fn invalidate(&mut self, now: Instant) {
        let (snapshot, state) = (self.snapshot(), &mut self.state);
        let mut invalid = state.images.changed(now);
        if !Arc::ptr_eq(&snapshot, &self.before) {
            invalid = invalid.and(changed(&self.before, &snapshot));
            state.require(&snapshot);
            self.before = Arc::clone(&snapshot);
        }
        if self.inputs.has_changed(&snapshot, now) || state.index.takes_room_again() {
            invalid = Invalidation::All;
        }
        state.invalid = std::mem::take(&mut state.invalid).and(invalid);
        if self.objects.lists_namespaces() {
            return;
        }
        let kinds: Vec<Kind> = self.objects.lists().iter().map(|list| list.kind).collect();
        for (kind, wanted) in self.state.take_rereads(kinds.into_iter()) {
            match wanted {
                Invalidation::None => {}
                Invalidation::All => self.objects.list_again(kind),
                Invalidation::In(namespaces) => self.objects.list_namespaces_again(kind, namespaces),
            }
        }
    }

    fn check_stuck_pods(&mut self, now: Instant) {
        let due = self.state.stuck.due(now);
        if let Some(pods) = self.objects.list(Kind::Pod).filter(|_| !due.is_empty()) {
            let check = StuckPodsCheck {
                client: self.context.client.clone(),
                snapshot: self.snapshot(),
                images: self.context.images.clone(),
                pods: pods.clone(),
            };
            self.requests.push(check.run(due).map(Answer::Explained).boxed());
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.context.latest.borrow().clone()
    }
}
