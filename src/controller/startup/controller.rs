//! The controller: reads what snapshots do not show, and carries out what [`gate`](super::gate) plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::gate::{GatePlan, GateRule, GatedNode, ReleaseReason, plan};
use super::memory::{StartupMemory, StartupOutcome};
use super::news::{
    PendingEvents, SIZES_UNKNOWN, StartupMetrics, held, late, not_pulled, not_released, who_refuses,
};
use super::puller_pods::PullerPods;
use super::pulls::PullerPod;
use super::survey::{
    NodeIdentity, PullsByNode, SurveyedNodes, WantedImage, facts_for, failing_last, survey, wanted,
};
use super::{PullerAccount, StartupSettings};
use crate::api::{FailedImage, ImagePuller, NodeStartup};
use crate::cluster::errors::ApiError;
use crate::cluster::node::NodeView;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored_node_policies::{NodePolicies, NodePolicy, SelectedPolicy};
use crate::cluster::workload_survey::SurveyError;
use crate::controller::events::{NewEvent, of_node};
use crate::controller::leader_loop::{Controller, PassResult};
use crate::controller::node_policies::nodes::apply::{ApplyResult, apply};
use crate::controller::node_policies::nodes::plan::plan_release;
use crate::controller::startup_states::{NOT_PULLED_HERE, StartupStates};
use crate::controller::write_overlay::WriteOverlay;
use crate::controller::writer::Writer;
use crate::model::nodes::node::{NodeSigns as _, OS_LABEL, ReportedOs};
use crate::process::server_clock::ServerClock;
use crate::registry::service::ImageService;

/// How long a pass begins writes other than releases: the nodes that are released next must not wait for them.
const OTHER_WRITES: Duration = Duration::from_secs(3);
/// How long after its deadline a node may be released and still be new: no replica may have led. An older one got the taint later.
const OVERDUE: SignedDuration = SignedDuration::from_hours(1);
/// How many times as long as a survey took the next one waits.
const SURVEY_REST: u32 = 4;

/// The images whose failure is news, by node.
type NewFailures = Vec<(Arc<NodeView>, Vec<FailedImage>)>;
type SurveyResult = Result<PullsByNode, SurveyError>;

/// What the last survey of workloads found.
#[derive(Default)]
struct LastSurvey {
    /// When it ended, and for which nodes it was.
    ended: Option<(Instant, BTreeSet<NodeIdentity>)>,
    took: Duration,
    pulls: PullsByNode,
    failed: Option<SurveyError>,
}

impl LastSurvey {
    /// Whether these nodes need another one. Surveys of a large cluster, which take long, are rare even if nodes join all the
    /// time.
    fn is_due(&self, nodes: &BTreeSet<NodeIdentity>, settings: &StartupSettings) -> bool {
        let Some((ended, before)) = &self.ended else {
            return true;
        };
        let pause = if nodes.is_subset(before) && self.failed.is_none() {
            settings.survey_every
        } else {
            settings.survey_again
        };
        let rest = (self.took * SURVEY_REST).min(settings.survey_every);
        ended.elapsed() >= pause.max(rest)
    }
}

/// Releases new nodes, with its state between passes.
pub struct StartupController {
    parts: StartupParts,
    memory: StartupMemory,
    written: WriteOverlay,
    survey: LastSurvey,
    /// The survey that runs, since when, and for which nodes.
    surveying: Option<(Instant, BTreeSet<NodeIdentity>, JoinHandle<SurveyResult>)>,
    pods: PullerPods,
    events: PendingEvents,
    /// The nodes that the last pass could not release, by uid: the name, and why.
    blocked: BTreeMap<String, (String, ApiError)>,
    /// The nodes that policies which cannot be read may select, by the name of the policy: their uids and names.
    held: BTreeMap<String, BTreeMap<String, String>>,
}

/// What a [`StartupController`] needs.
pub struct StartupParts {
    pub settings: StartupSettings,
    /// The account of the pods that pull.
    pub account: PullerAccount,
    /// Makes its writes. It should not be shared: nodes must not wait for the writes of other controllers.
    pub writer: Writer,
    /// The clock that the creation of a node is compared with.
    pub clock: ServerClock,
    /// What registries report; `None` if they are not asked.
    pub images: Option<ImageService>,
    pub metrics: StartupMetrics,
    /// Receives the state of all policies.
    pub publish: watch::Sender<Arc<StartupStates>>,
}

/// Whether all that is missing is of one namespace, and the node waits for images of others too.
fn is_of_one(wanted: Option<&[WantedImage]>, missing: Option<&[String]>) -> bool {
    let (Some(wanted), Some(missing)) = (wanted, missing) else {
        return false;
    };
    let namespaces = |of: &dyn Fn(&&WantedImage) -> bool| -> BTreeSet<Arc<str>> {
        let images = wanted.iter().filter(of);
        images.map(|image| Arc::clone(&image.namespace)).collect()
    };
    let missing = namespaces(&|image| missing.contains(&image.image));
    // What the policy lists is nobody's share.
    missing.len() == 1 && !missing.contains("") && namespaces(&|_| true).len() > 1
}

impl Controller for StartupController {
    const EVERY: Duration = Duration::from_secs(60);

    async fn changed(&mut self) {
        let Some((.., running)) = &mut self.surveying else {
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
        if let Some((.., running)) = self.surveying.take() {
            running.abort();
        }
        self.memory = StartupMemory::default();
        self.written = WriteOverlay::default();
        self.survey = LastSurvey::default();
        self.pods.lost();
        self.events = PendingEvents::default();
        self.blocked.clear();
        self.held.clear();
        self.show(&NodePolicies::default());
    }
}

impl StartupController {
    /// A controller that has seen nothing yet.
    pub fn new(parts: StartupParts) -> Self {
        let (account, writer) = (parts.account.clone(), parts.writer.clone());
        StartupController {
            pods: PullerPods::new(account, writer, parts.settings),
            parts,
            memory: StartupMemory::default(),
            written: WriteOverlay::default(),
            survey: LastSurvey::default(),
            surveying: None,
            events: PendingEvents::default(),
            blocked: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    async fn run(&mut self, snapshot: &Snapshot, result: &mut PassResult) {
        let policies = &snapshot.node_policies;
        let nodes = &snapshot.cache.nodes;
        self.written.retain(|name| nodes.contains_key(name));
        let now = Instant::now();
        let newest = nodes
            .iter()
            .map(|(name, node)| self.written.newest(name, node, now));
        let gated: Vec<(Arc<NodeView>, GateRule)> = newest
            .filter(|node| node.is_gated() && !node.deleting)
            .map(|node| (Arc::clone(&node), rule(&node, policies)))
            .collect();
        self.forget(nodes, &gated, policies);
        self.start_survey(snapshot, &gated);
        let pulling = gated.iter().filter_map(|(_, rule)| rule.pulling_policy());
        let pulling: BTreeSet<&str> = pulling.map(|(policy, _)| policy).collect();
        let pods = self.pods.list(&pulling, result).await;
        let now = self.now();
        let (gated, failures) = self.observe(gated, pods.as_deref().unwrap_or_default(), now);
        let plan = plan(now, &gated, pods.as_deref());
        // First of all: a node must not wait for anything else.
        self.release(&plan, &gated, result).await;
        self.report_failures(failures);
        self.report_held(&gated, now);
        let until = Instant::now() + OTHER_WRITES;
        let (is_pod_left, is_event_left) = tokio::join!(
            self.pods.write(&plan, now, until, result),
            self.events.write(&self.parts.writer, until)
        );
        let others = pulled_by_others(&gated, &plan);
        self.pods.read_others(&others, until, result).await;
        if is_pod_left || is_event_left {
            result.wake_at(Instant::now());
        }
        self.show(policies);
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
        let nodes = gated
            .iter()
            .filter(|(node, rule)| rule.waits_for_workloads() && !node.is_uninitialized());
        let nodes: SurveyedNodes = nodes
            .map(|(node, _)| (NodeIdentity::of(node), node.name.clone()))
            .collect();
        let identities: BTreeSet<NodeIdentity> = nodes.keys().cloned().collect();
        if nodes.is_empty() {
            // The failure concerns no node any longer.
            self.survey.failed = None;
            return;
        }
        if self.surveying.is_some() || !self.survey.is_due(&identities, &self.parts.settings) {
            return;
        }
        let (client, images) = (self.parts.writer.client.clone(), self.parts.images.clone());
        let (facts, policies) = (facts_for(&snapshot.facts, &nodes), Arc::clone(&snapshot.policies));
        let running = survey(client, facts, policies, images, nodes);
        self.surveying = Some((Instant::now(), identities, tokio::spawn(running)));
    }

    /// Keeps the result of a survey. After a failure the last one is still used.
    fn surveyed(&mut self, outcome: SurveyResult) {
        let Some((began, nodes, _)) = self.surveying.take() else {
            return;
        };
        self.survey.took = began.elapsed();
        self.survey.ended = Some((Instant::now(), nodes));
        match outcome {
            Ok(pulls) => (self.survey.pulls, self.survey.failed) = (pulls, None),
            Err(error) => self.survey.failed = Some(error),
        }
    }

    /// Adds what nodes and pods report to what was seen before. Returns the new failures, too.
    fn observe(
        &mut self,
        nodes: Vec<(Arc<NodeView>, GateRule)>,
        pods: &[PullerPod],
        now: Timestamp,
    ) -> (Vec<GatedNode>, NewFailures) {
        let (mut gated, mut failures) = (Vec::new(), Vec::new());
        let failed = self.memory.failed_images();
        let failed: BTreeSet<&str> = failed.iter().map(String::as_str).collect();
        for (node, rule) in nodes {
            let (mut missing, mut all_failed, mut share_is_over) = (None, None, None);
            let mut is_idle = false;
            if let GateRule::Policy { name, startup } = &rule {
                let pulls = self.survey.pulls.get(&NodeIdentity::of(&node)).map(Arc::as_ref);
                // Labels that it gets later may decide what it needs, and which policy selects it.
                let wanted = (!node.is_uninitialized())
                    .then(|| wanted(startup, pulls, node.storage))
                    .flatten()
                    .map(|wanted| failing_last(wanted, &failed));
                let of_node = pods.iter().filter(|pod| pod.node_uid == node.uid);
                let (of_node, outdated): (Vec<&PullerPod>, Vec<_>) =
                    of_node.partition(|pod| pod.has_secrets_of(startup));
                if !outdated.is_empty() {
                    // What other pull Secrets could not pull may still arrive.
                    self.memory.forget_failures(&node.uid);
                }
                let others = self.pods.shown_on(&node);
                let pods = (&*of_node, &others);
                let news = self.memory.observe((&node, name), wanted.as_deref(), pods, now);
                self.parts.metrics.pulled(news.pulled_bytes, news.failures.len());
                if !news.failures.is_empty() {
                    failures.push((Arc::clone(&node), news.failures));
                }
                share_is_over = is_of_one(wanted.as_deref(), news.missing.as_deref())
                    .then(|| node.created?.saturating_add(startup.timeout() / 2).ok())
                    .flatten();
                (missing, all_failed, is_idle) = (news.missing, news.all_failed, news.is_idle);
            }
            gated.push(GatedNode {
                node,
                rule,
                missing,
                all_failed,
                share_is_over,
                is_idle,
            });
        }
        (gated, failures)
    }

    /// One Event for each node.
    fn report_failures(&mut self, failures: NewFailures) {
        for (node, failed) in failures {
            let event = NewEvent {
                is_warning: true,
                action: "PullImages",
                reason: "ImagePullFailed",
                note: &not_pulled(&failed),
                regarding: of_node(&node.name, &node.uid),
            };
            self.events.push(event.at(Timestamp::now()));
        }
    }

    /// One Event for each node that a policy which cannot be read may select.
    fn report_held(&mut self, gated: &[GatedNode], now: Timestamp) {
        let before = std::mem::take(&mut self.held);
        for gated in gated {
            let GateRule::Held(Some(policy)) = &gated.rule else {
                continue;
            };
            let node = &gated.node;
            if !before
                .get(policy)
                .is_some_and(|nodes| nodes.contains_key(&node.uid))
            {
                let left = gated.deadline().duration_since(now).as_secs().max(0);
                let note = format!(
                    "no pod is scheduled here for {left} s: WindowsNodePolicy {policy} cannot be read, and may select the node; \
                     correct it, or delete it"
                );
                self.report_about(node, true, "HeldByInvalidPolicy", &note);
            }
            let nodes = self.held.entry(policy.clone()).or_default();
            nodes.insert(node.uid.clone(), node.name.clone());
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
        let before_pass = std::mem::take(&mut self.blocked);
        for (before, why, outcome) in written {
            match outcome {
                ApplyResult::Wrote(node, _) => {
                    self.written.put(&before.name, Arc::clone(&node), Instant::now());
                    let gated = gated.iter().find(|gated| gated.node.uid == before.uid);
                    if let Some(gated) = gated {
                        self.report_release(gated, why);
                    }
                }
                // Another client removed it.
                ApplyResult::Stands(node) => self.written.put(&before.name, node, Instant::now()),
                ApplyResult::Gone => self.written.remove(&before.name),
                ApplyResult::Failed(error) => {
                    let is_known = before_pass
                        .get(&before.uid)
                        .is_some_and(|(_, known)| *known == error);
                    if !is_known {
                        self.report_blocked(&before, &error);
                    }
                    result.fail(
                        format!("remove the startup taint of node {}", before.name),
                        &error,
                    );
                    result.wake_at(Instant::now() + self.parts.settings.poll);
                    let blocked = (before.name.clone(), error);
                    self.blocked.insert(before.uid.clone(), blocked);
                }
            }
        }
    }

    fn report_blocked(&mut self, node: &Arc<NodeView>, error: &ApiError) {
        let note = not_released([&*node.name], error);
        self.report_about(node, true, "ReleaseFailed", &note);
    }

    fn report_release(&mut self, gated: &GatedNode, why: ReleaseReason) {
        let (node, missing, now) = (&gated.node, gated.missing.as_deref(), self.now());
        let created = node.created.unwrap_or_default();
        let after = Duration::try_from(now.duration_since(created)).unwrap_or_default();
        let (seconds, name) = (after.as_secs(), &node.name);
        let outcome = match why {
            ReleaseReason::Open => {
                tracing::info!(node = name, "startup taint removed: no policy gates the node");
                return;
            }
            ReleaseReason::Warm => StartupOutcome::Warm,
            ReleaseReason::Failed | ReleaseReason::Late => StartupOutcome::Late,
        };
        let failed = self.memory.finish(&node.uid, outcome, missing);
        if now.duration_since(gated.deadline()) < OVERDUE {
            self.parts.metrics.started(after);
        }
        let (is_warning, reason, note) = match outcome {
            StartupOutcome::Warm => {
                let note = format!("its images are there after {seconds} s: pods can be scheduled");
                (false, "ImagesReady", note)
            }
            StartupOutcome::Late => {
                let mut note = late(why, seconds, missing, &failed);
                if gated.rule.pulling_policy().is_none() {
                    note.push_str(NOT_PULLED_HERE);
                }
                (true, "ImagesLate", note)
            }
        };
        tracing::info!(node = name, reason, "startup taint removed: {note}");
        self.report_about(node, is_warning, reason, &note);
    }

    fn report_about(&mut self, node: &NodeView, is_warning: bool, reason: &'static str, note: &str) {
        let event = NewEvent {
            is_warning,
            action: "RemoveStartupTaint",
            reason,
            note,
            regarding: of_node(&node.name, &node.uid),
        };
        self.events.push(event.at(Timestamp::now()));
    }

    /// Publishes the state of all policies with `startup`, and of all others while a node cannot be released: the pool may set
    /// the taint although no policy requires it.
    fn show(&self, policies: &NodePolicies) {
        let mut states = self.memory.states();
        for policy in policies.iter() {
            let problem = self.problem(policy);
            let startup = policy.stored.spec.startup.as_ref();
            if problem.is_some() || startup.is_some() {
                let state = states.entry(policy.name.clone()).or_default();
                // What happened to nodes is more urgent.
                let is_quiet = state.failed.is_empty() && state.late == 0;
                state.problem = problem.or_else(|| self.sizes_unknown(startup?).filter(|_| is_quiet));
                state.others_pull = startup.is_some_and(|startup| startup.puller == ImagePuller::None);
            }
        }
        let held = self.held.values().map(BTreeMap::len).sum();
        self.parts.metrics.show(&states, self.blocked.len(), held);
        self.parts.publish.send_if_modified(|shown| {
            let is_news = **shown != states;
            if is_news {
                *shown = Arc::new(states);
            }
            is_news
        });
    }

    /// What is wrong with all nodes of a policy: the reason and the message. The worst comes first.
    fn problem(&self, policy: &NodePolicy) -> Option<(&'static str, String)> {
        if let Some((_, error)) = self.blocked.values().next() {
            let nodes = self.blocked.values().map(|(name, _)| &**name);
            return Some(("ReleaseFailed", not_released(nodes, error)));
        }
        if let Some(nodes) = self.held.get(&policy.name) {
            return Some(("HeldByInvalidPolicy", held(nodes.values().map(|name| &**name))));
        }
        let startup = policy.stored.spec.startup.as_ref()?;
        let uses_pods = startup.puller == ImagePuller::Pods;
        if uses_pods && !self.pods.is_allowed() {
            let text = "puller: Pods is refused, and nothing is pulled: this installation may not create pods; set \
                        startup.imagePuller.enabled=true in the values of the chart, or puller: None";
            return Some(("PullerNotAllowed", text.to_owned()));
        }
        if let Some(error) = self.pods.refused(&policy.name).filter(|_| uses_pods) {
            let text = format!(
                "no pod that pulls images can be created: {error}{}",
                who_refuses(error)
            );
            return Some(("PullerFailed", text));
        }
        let failed = self.survey.failed.as_ref();
        let failed = failed.filter(|_| startup.waits_for_workloads())?;
        let text = format!("it is not known which images new nodes need: {failed}");
        Some(("ImagesUnknown", text))
    }

    /// The problem of a policy whose `maxImageSize` limits nothing.
    fn sizes_unknown(&self, startup: &NodeStartup) -> Option<(&'static str, String)> {
        let has_limit = startup.waits_for_workloads() && startup.max_image_size.is_some();
        (has_limit && self.parts.images.is_none()).then(|| ("ImageSizesUnknown", SIZES_UNKNOWN.to_owned()))
    }
}

/// The nodes that stay tainted and whose missing images another program pulls.
fn pulled_by_others<'g>(gated: &'g [GatedNode], plan: &GatePlan<'_>) -> Vec<&'g NodeView> {
    let is_released = |uid: &str| plan.released.iter().any(|(node, _)| node.uid == uid);
    let waits = |gated: &&GatedNode| {
        let is_missing_some = gated.missing.as_ref().is_some_and(|missing| !missing.is_empty());
        is_missing_some && gated.rule.pulling_policy().is_none() && !is_released(&gated.node.uid)
    };
    gated.iter().filter(waits).map(|gated| &*gated.node).collect()
}

/// Why a node with the startup taint waits.
fn rule(node: &NodeView, policies: &NodePolicies) -> GateRule {
    if matches!(node.reported_os(), ReportedOs::Other | ReportedOs::Virtual) {
        return GateRule::Open;
    }
    // Its kubelet will report what the label says already.
    if node.reported_os() == ReportedOs::Silent && !node.is_windows() && node.label(OS_LABEL).is_some() {
        return GateRule::Held(None);
    }
    match policies.choose(node) {
        SelectedPolicy::Held(held) => GateRule::Held(Some(held.unusable.name.clone())),
        SelectedPolicy::Policy(NodePolicy { name, stored, .. }) if stored.spec.startup.is_some() => {
            GateRule::Policy {
                name: name.clone(),
                startup: stored.spec.startup.clone().unwrap_or_default(),
            }
        }
        // A policy may select it by a label that it gets later.
        _ if node.is_uninitialized() && gates_any(policies) => GateRule::Held(None),
        _ => GateRule::Open,
    }
}

fn gates_any(policies: &NodePolicies) -> bool {
    policies.iter().any(|policy| policy.stored.spec.startup.is_some())
}

#[cfg(test)]
mod tests;
