//! The controller: reads what snapshots do not show, and carries out what [`gate`](super::gate) plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Resource as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::gate::{GatePlan, GateRule, GatedNode, NewPuller, ReleaseReason, plan};
use super::memory::{StartupMemory, StartupOutcome};
use super::news::{NodeEvent, StartupMetrics, late, not_pulled};
use super::puller::puller_pod;
use super::pulls::{PULLER_SELECTOR, PullerPod, is_pulling};
use super::survey::{PullsByNode, survey, wanted};
use super::{PullerAccount, StartupSettings};
use crate::api::{FailedImage, ImagePuller, StartupImages};
use crate::cluster::errors::ApiError;
use crate::cluster::list::{Listing, collect};
use crate::cluster::node::NodeView;
use crate::cluster::node_policies::{NodePolicies, SelectedPolicy};
use crate::cluster::snapshot::Snapshot;
use crate::cluster::workload_survey::SurveyError;
use crate::controller::leader_loop::{Controller, PassResult};
use crate::controller::node_policies::nodes::apply::{ApplyResult, apply};
use crate::controller::node_policies::nodes::plan::plan_release;
use crate::controller::startup_states::StartupStates;
use crate::controller::write_overlay::WriteOverlay;
use crate::controller::writer::{Write, Writer};
use crate::model::node::{NodeSigns as _, ReportedOs};
use crate::process::server_clock::ServerClock;
use crate::registry::service::ImageService;

/// How long a list of pods may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The images whose failure is news, by node.
type NewFailures = Vec<(Arc<NodeView>, Vec<FailedImage>)>;
type SurveyResult = Result<PullsByNode, SurveyError>;

/// What the last survey of workloads found.
#[derive(Default)]
struct LastSurvey {
    /// When it ended, and for which nodes it was.
    ended: Option<(Instant, BTreeSet<String>)>,
    pulls: PullsByNode,
    failed: Option<SurveyError>,
}

/// Releases new nodes, with its state between passes.
pub struct StartupController {
    parts: StartupParts,
    memory: StartupMemory,
    written: WriteOverlay<NodeView>,
    survey: LastSurvey,
    /// The survey that runs, and for which nodes.
    surveying: Option<(BTreeSet<String>, JoinHandle<SurveyResult>)>,
    /// Why no pod can be created.
    refused: Option<ApiError>,
    /// How many nodes the last pass could not release.
    blocked: usize,
    /// Whether pods may be left, of this leader or of another one.
    has_pods: bool,
}

/// What a [`StartupController`] needs.
pub struct StartupParts {
    /// Its intervals.
    pub settings: StartupSettings,
    /// The account of the pods that pull.
    pub account: PullerAccount,
    /// Makes its writes. It should not be shared: nodes must not wait for the writes of other controllers.
    pub writer: Writer,
    /// The clock that the creation of a node is compared with.
    pub clock: ServerClock,
    /// What registries report; `None` if they are not asked.
    pub images: Option<ImageService>,
    /// The metrics.
    pub metrics: StartupMetrics,
    /// Receives the state of all policies.
    pub publish: watch::Sender<Arc<StartupStates>>,
}

impl Controller for StartupController {
    const EVERY: Duration = Duration::from_secs(60);

    async fn changed(&mut self) {
        let Some((_, running)) = &mut self.surveying else {
            return std::future::pending().await;
        };
        let outcome = running.await;
        self.surveyed(outcome.unwrap_or_else(|_| Ok(PullsByNode::new())));
    }

    async fn pass(&mut self, snapshot: &Snapshot) -> PassResult {
        let mut result = PassResult::with_pause(self.parts.settings.settle);
        if snapshot.is_known() {
            Box::pin(self.run(snapshot, &mut result)).await;
        }
        result
    }

    fn lost(&mut self) {
        if let Some((_, running)) = self.surveying.take() {
            running.abort();
        }
        self.memory = StartupMemory::default();
        self.written = WriteOverlay::default();
        self.survey = LastSurvey::default();
        self.refused = None;
        self.blocked = 0;
        self.has_pods = true;
        self.show(&NodePolicies::default());
    }
}

impl StartupController {
    /// A controller that has seen nothing yet.
    pub fn new(parts: StartupParts) -> Self {
        StartupController {
            parts,
            memory: StartupMemory::default(),
            written: WriteOverlay::default(),
            survey: LastSurvey::default(),
            surveying: None,
            refused: None,
            blocked: 0,
            has_pods: true,
        }
    }

    async fn run(&mut self, snapshot: &Snapshot, result: &mut PassResult) {
        let policies = NodePolicies::of(&snapshot.cache.node_policies);
        let nodes = &snapshot.cache.nodes;
        self.written.retain(|name| nodes.contains_key(name));
        let now = Instant::now();
        let newest = nodes
            .iter()
            .map(|(name, node)| self.written.newest(name, node, now));
        let gated: Vec<(Arc<NodeView>, GateRule)> = newest
            .filter(|node| node.is_gated() && !node.deleting)
            .map(|node| (Arc::clone(&node), rule(&node, &policies)))
            .collect();
        self.forget(nodes, &gated, &policies);
        self.start_survey(snapshot, &gated);
        let pods = self.pods(&gated, result).await;
        let now = self.now();
        let (gated, failures) = self.observe(gated, pods.as_deref().unwrap_or_default(), now);
        let plan = plan(now, &gated, pods.as_deref());
        // First of all: a node must not wait for anything else.
        self.release(&plan, &gated, result).await;
        self.report_failures(failures).await;
        self.write_pods(&plan, now, result).await;
        self.show(&policies);
        if !gated.is_empty() {
            result.wake_at(Instant::now() + self.parts.settings.poll);
        }
        let next = plan.next.map(|at| at.duration_since(now));
        let next = next.and_then(|left| Duration::try_from(left).ok());
        result.wake_at(next.map(|left| Instant::now() + left));
        result.wake_at(self.written.until());
    }

    /// Forgets what is of no more use.
    fn forget(
        &mut self,
        nodes: &BTreeMap<String, Arc<NodeView>>,
        gated: &[(Arc<NodeView>, GateRule)],
        policies: &NodePolicies,
    ) {
        let waiting = gated.iter();
        let waiting = waiting.filter(|(_, rule)| matches!(rule, GateRule::Policy { .. }));
        let waiting: BTreeSet<&str> = waiting.map(|(node, _)| &*node.uid).collect();
        let exists = |name: &str, uid: &str| nodes.get(name).is_some_and(|node| node.uid == uid);
        let policies = policies.iter();
        let generations = policies.map(|policy| (policy.name.clone(), policy.generation));
        self.memory
            .retain(exists, |uid| waiting.contains(uid), generations.collect());
    }

    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.parts.clock.now()).unwrap_or_else(|_| Timestamp::now())
    }

    /// Reads the workloads in a task of its own if nodes wait for their images: the timeouts of nodes must not wait for it.
    fn start_survey(&mut self, snapshot: &Snapshot, gated: &[(Arc<NodeView>, GateRule)]) {
        let waits = |rule: &GateRule| matches!(rule, GateRule::Policy { startup, .. } if startup.images == StartupImages::Workloads);
        let nodes = gated.iter().filter(|(_, rule)| waits(rule));
        let nodes: BTreeSet<String> = nodes.map(|(node, _)| node.name.clone()).collect();
        if nodes.is_empty() || self.surveying.is_some() {
            return;
        }
        if let Some((ended, before)) = &self.survey.ended {
            let pause = if nodes.is_subset(before) && self.survey.failed.is_none() {
                self.parts.settings.survey_every
            } else {
                self.parts.settings.survey_again
            };
            if ended.elapsed() < pause {
                return;
            }
        }
        let (client, images) = (self.parts.writer.client.clone(), self.parts.images.clone());
        let running = survey(client, Arc::new(snapshot.clone()), images, nodes.clone());
        self.surveying = Some((nodes, tokio::spawn(running)));
    }

    /// Keeps the result of a survey. After a failure the last one is still used.
    fn surveyed(&mut self, outcome: SurveyResult) {
        let Some((nodes, _)) = self.surveying.take() else {
            return;
        };
        self.survey.ended = Some((Instant::now(), nodes));
        match outcome {
            Ok(pulls) => (self.survey.pulls, self.survey.failed) = (pulls, None),
            Err(error) => self.survey.failed = Some(error),
        }
    }

    /// The stored pods that pull; `None` if they cannot be read, or must not be created and none is left.
    async fn pods(
        &mut self,
        gated: &[(Arc<NodeView>, GateRule)],
        result: &mut PassResult,
    ) -> Option<Vec<PullerPod>> {
        self.parts.account.name.as_ref()?;
        let pulls = |rule: &GateRule| matches!(rule, GateRule::Policy { startup, .. } if startup.puller == ImagePuller::Pods);
        if !self.has_pods && !gated.iter().any(|(_, rule)| pulls(rule)) {
            return None;
        }
        let listing = Listing::new(Pod::url_path(&(), Some(&self.parts.account.namespace)));
        let listing = listing.with_labels(PULLER_SELECTOR);
        match self.list_pods(listing).await {
            Ok(pods) => {
                self.has_pods = !pods.is_empty();
                Some(pods.into_iter().map(PullerPod::of).collect())
            }
            Err(error) => {
                result.fail("list the pods that pull images".to_owned(), &error);
                None
            }
        }
    }

    /// A short list of pods, which must not delay the release of nodes.
    async fn list_pods(&self, listing: Listing) -> Result<Vec<Pod>, ApiError> {
        let pods = timeout(PATIENCE, collect::<Pod>(&self.parts.writer.client, listing)).await;
        pods.unwrap_or_else(|_| Err(ApiError::Other("the API server does not answer".to_owned())))
    }

    /// Adds what nodes and pods report to what was seen before. Returns the new failures, too.
    fn observe(
        &mut self,
        nodes: Vec<(Arc<NodeView>, GateRule)>,
        pods: &[PullerPod],
        now: Timestamp,
    ) -> (Vec<GatedNode>, NewFailures) {
        let (mut gated, mut failures) = (Vec::new(), Vec::new());
        for (node, rule) in nodes {
            let (mut missing, mut all_failed) = (None, None);
            if let GateRule::Policy { name, startup } = &rule {
                let pulls = self.survey.pulls.get(&node.name).map(Arc::as_ref);
                let wanted = wanted(startup, pulls, node.storage);
                let of_node: Vec<&PullerPod> = (pods.iter()).filter(|pod| pod.node_uid == node.uid).collect();
                let news = self
                    .memory
                    .observe((&node, name), wanted.as_deref(), &of_node, now);
                self.parts.metrics.pulled(news.pulled_bytes, news.failures.len());
                if !news.failures.is_empty() {
                    failures.push((Arc::clone(&node), news.failures));
                }
                (missing, all_failed) = (news.missing, news.all_failed);
            }
            gated.push(GatedNode {
                node,
                rule,
                missing,
                all_failed,
            });
        }
        (gated, failures)
    }

    /// One Event for each node: the next pass must not wait for many.
    async fn report_failures(&self, failures: NewFailures) {
        for (node, failed) in failures {
            let event = NodeEvent {
                reason: "ImagePullFailed",
                action: "PullImages",
                is_warning: true,
                note: not_pulled(&failed),
            };
            event.write(&node, &self.parts.writer).await;
        }
    }

    /// Removes the startup taint, and reports it.
    async fn release(&mut self, plan: &GatePlan<'_>, gated: &[GatedNode], result: &mut PassResult) {
        let writer = &self.parts.writer;
        let released = plan.released.iter();
        let released: Vec<_> = released.map(|(node, why)| (Arc::clone(node), *why)).collect();
        let writes = released.into_iter().map(|(node, why)| async move {
            let outcome = apply(writer, Arc::clone(&node), &plan_release).await;
            (node, why, outcome)
        });
        let written: Vec<_> = futures::stream::iter(writes)
            .buffer_unordered(self.parts.settings.in_flight.max(1))
            .collect()
            .await;
        self.blocked = 0;
        for (before, why, outcome) in written {
            match outcome {
                ApplyResult::Wrote(node, _) => {
                    let missing = gated.iter().find(|gated| gated.node.uid == before.uid);
                    let missing = missing.and_then(|gated| gated.missing.as_deref());
                    self.written.put(&before.name, Arc::clone(&node), Instant::now());
                    self.report_release(&node, why, missing).await;
                }
                // Another client removed it.
                ApplyResult::Stands(node) => self.written.put(&before.name, node, Instant::now()),
                ApplyResult::Gone => self.written.remove(&before.name),
                ApplyResult::Failed(error) => {
                    self.blocked += 1;
                    result.fail(
                        format!("remove the startup taint of node {}", before.name),
                        &error,
                    );
                    result.wake_at(Instant::now() + self.parts.settings.poll);
                }
            }
        }
    }

    async fn report_release(&mut self, node: &NodeView, why: ReleaseReason, missing: Option<&[String]>) {
        let created = node.created.unwrap_or_default();
        let after = Duration::try_from(self.now().duration_since(created)).unwrap_or_default();
        let (seconds, name) = (after.as_secs(), &node.name);
        let outcome = match why {
            ReleaseReason::Open => {
                tracing::info!(node = name, "startup taint removed: no policy gates the node");
                return;
            }
            ReleaseReason::Warm => StartupOutcome::Warm,
            ReleaseReason::Failed | ReleaseReason::Late => StartupOutcome::Late,
        };
        let failed = self.memory.finish(&node.uid, outcome);
        self.parts.metrics.started(after);
        let event = match outcome {
            StartupOutcome::Warm => NodeEvent {
                reason: "ImagesReady",
                action: "RemoveStartupTaint",
                is_warning: false,
                note: format!("its images are there after {seconds} s: pods can be scheduled"),
            },
            StartupOutcome::Late => NodeEvent {
                reason: "ImagesLate",
                action: "RemoveStartupTaint",
                is_warning: true,
                note: late(why, seconds, missing, &failed),
            },
        };
        tracing::info!(
            node = name,
            reason = event.reason,
            "startup taint removed: {}",
            event.note
        );
        event.write(node, &self.parts.writer).await;
    }

    /// Deletes and creates pods that pull.
    async fn write_pods(&mut self, plan: &GatePlan<'_>, now: Timestamp, result: &mut PassResult) {
        let Some(account) = self.parts.account.name.clone() else {
            return;
        };
        let namespace = self.parts.account.namespace.clone();
        let api: Api<Pod> = Api::namespaced(self.parts.writer.client.clone(), &namespace);
        for pod in &plan.deleted {
            let write = Write::Delete {
                name: pod.name.clone(),
                uid: Some(pod.uid.clone()),
                version: None,
            };
            let task = || format!("delete the Pod {namespace}/{}", pod.name);
            result.record(task, self.parts.writer.write(&api, &write).await);
        }
        for new in self.undisturbed(&plan.created, now).await {
            let pod = puller_pod(new, &namespace, &account, now);
            self.has_pods = true;
            let written = self.parts.writer.write(&api, &Write::Create(pod)).await;
            self.refused = written
                .as_ref()
                .err()
                .filter(|error| **error != ApiError::Conflict)
                .cloned();
            let task = || format!("create the pod that pulls images on node {}", new.node.name);
            result.record(task, written);
        }
    }

    /// Those of these pods on whose nodes no other pod still pulls.
    async fn undisturbed<'p>(&self, created: &'p [NewPuller<'p>], now: Timestamp) -> Vec<&'p NewPuller<'p>> {
        let mut idle = Vec::new();
        for some in created.chunks(self.parts.settings.in_flight.max(1)) {
            let busy = join_all(some.iter().map(|new| self.is_busy(new, now))).await;
            let some = some.iter().zip(busy);
            idle.extend(some.filter_map(|(new, is_busy)| (!is_busy).then_some(new)));
        }
        idle
    }

    /// Whether pods on a node still pull, such as those of DaemonSets: theirs come first, for half of the timeout at most.
    async fn is_busy(&self, new: &NewPuller<'_>, now: Timestamp) -> bool {
        let half = new.startup.timeout() / 2;
        if new.deadline.saturating_sub(half).is_ok_and(|half| now >= half) {
            return false;
        }
        let on_node = format!("spec.nodeName={}", new.node.name);
        let listing = Listing::new(Pod::url_path(&(), None)).with_fields(&on_node);
        let pods = self.list_pods(listing).await;
        pods.is_ok_and(|pods| pods.iter().any(is_pulling))
    }

    /// Publishes the state of all policies with `startup`.
    fn show(&self, policies: &NodePolicies) {
        let mut states = self.memory.states();
        for policy in policies.iter() {
            let Some(startup) = &policy.stored.spec.startup else {
                continue;
            };
            let state = states.entry(policy.name.clone()).or_default();
            let uses_pods = startup.puller == ImagePuller::Pods;
            state.problem = if uses_pods && self.parts.account.name.is_none() {
                let text = "puller: Pods is refused, and nothing is pulled: this installation may not create pods; set \
                            startup.imagePuller.enabled=true in the values of the chart, or puller: None";
                Some(("PullerNotAllowed", text.to_owned()))
            } else if let Some(error) = self.refused.as_ref().filter(|_| uses_pods) {
                let text = format!("no pod that pulls images can be created: {error}");
                Some(("PullerFailed", text))
            } else {
                let failed = self.survey.failed.as_ref();
                let failed = failed.filter(|_| startup.images == StartupImages::Workloads);
                failed.map(|error| {
                    let text = format!("it is not known which images new nodes need: {error}");
                    ("ImagesUnknown", text)
                })
            };
        }
        self.parts.metrics.show(&states, self.blocked);
        self.parts.publish.send_if_modified(|shown| {
            let is_news = **shown != states;
            if is_news {
                *shown = Arc::new(states);
            }
            is_news
        });
    }
}

/// Why a node with the startup taint waits.
fn rule(node: &NodeView, policies: &NodePolicies) -> GateRule {
    if node.reported_os() == ReportedOs::Other {
        return GateRule::Open;
    }
    match policies.choose(node) {
        SelectedPolicy::NoPolicy => GateRule::Open,
        SelectedPolicy::Held(_) => GateRule::Held,
        SelectedPolicy::Policy(policy) => match &policy.stored.spec.startup {
            None => GateRule::Open,
            Some(startup) => GateRule::Policy {
                name: policy.name.clone(),
                startup: startup.clone(),
            },
        },
    }
}
