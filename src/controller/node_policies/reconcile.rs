//! One reconcile pass: writes what is due, and reports the result in the status of the policies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Resource as _;
use kube::api::PartialObjectMeta;
use tokio::sync::watch;
use tokio::time::Instant;

use super::NodeControllerSettings;
use super::events::NodeEvents;
use super::guard::cache::GuardCache;
use super::guard::carried::CarriedTaints;
use super::node_state::{NodePlans, NodesByPolicy, NodesOfPolicy, PolicyResolver};
use super::nodes::apply::{ApplyResult, apply};
use super::pod_references::{LabelRelease, ReferencesOfPass};
use super::runtime_classes::{self, reconcile::ClassController};
use super::status::{PolicyFacts, write::Statuses};
use crate::api::WindowsNodePolicy;
use crate::cluster::cache::ClusterCache;
use crate::cluster::errors::ApiError;
use crate::cluster::list::{Listing, collect};
use crate::cluster::node::NodeView;
use crate::cluster::rate_limit::WriteBackoff;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored_node_policies::{NodePolicies, NodePolicy, SelectedPolicy};
use crate::controller::leader_loop::{Controller, PassResult};
use crate::controller::reports::NextDenials;
use crate::controller::startup_states::{StartupStates, startup_of};
use crate::controller::write_overlay::WriteOverlay;
use crate::controller::writer::Writer;

/// The node controller, with its state between passes. Losing the state is harmless: it only saves requests and decides
/// nothing.
pub struct NodeController {
    settings: NodeControllerSettings,
    writer: Writer,
    /// The new nodes of policies that gate them.
    startup: watch::Receiver<Arc<StartupStates>>,
    /// The DaemonSets that would be denied once all nodes have their taints.
    next_denials: watch::Receiver<NextDenials>,
    /// Until when a pass waits for the content of the webhook configurations.
    registered_by: Instant,
    classes: ClassController,
    statuses: Statuses,
    guard_cache: GuardCache,
    carried: CarriedTaints,
    label_release: LabelRelease,
    back_off: WriteBackoff,
    written: WriteOverlay,
    events: NodeEvents,
    /// The nodes that could not be written, by uid: the name, and why. Another node may get the name of one that is gone.
    failures: BTreeMap<String, (String, ApiError)>,
    generations: BTreeMap<String, i64>,
    /// When the API server was last asked whether all other policies are deleted, and the answer.
    listed_others: Option<(Instant, bool)>,
}

impl Controller for NodeController {
    /// Whatever depends on the time requests a pass of its own.
    const EVERY: Duration = Duration::from_secs(3_600);

    /// Reconciles nodes and RuntimeClasses. The cache in a snapshot must be complete, because a missing policy is treated
    /// as deleted: snapshots are only built after every watch has listed its objects, and a snapshot without a cache is not
    /// used. Before the controller reverts anything for a deleted policy it asks the API server whether the policy is really
    /// gone.
    async fn pass(&mut self, snapshot: &Snapshot) -> PassResult {
        let mut result = PassResult::with_pause(self.settings.settle);
        if !snapshot.is_known() {
            return result;
        }
        // The guard depends on whether placement applies, which needs registered webhooks.
        if snapshot.registered.is_none() && Instant::now() < self.registered_by {
            result.wake_at(self.registered_by);
            return result;
        }
        // Boxed because the future of a pass is large and would become part of the caller's future.
        Box::pin(self.reconcile(snapshot, &mut result)).await;
        result
    }

    async fn changed(&mut self) {
        // A controller that sends them has ended, or there is none.
        tokio::select! {
            Ok(()) = self.startup.changed() => (),
            Ok(()) = self.next_denials.changed() => (),
            else => std::future::pending().await,
        }
    }

    fn lost(&mut self) {
        let new = NodeController::new(self.writer.clone(), self.settings);
        *self = new
            .with_startup(self.startup.clone())
            .with_next_denials(self.next_denials.clone());
    }
}

impl NodeController {
    /// A controller without any state.
    pub fn new(writer: Writer, settings: NodeControllerSettings) -> Self {
        NodeController {
            settings,
            startup: watch::channel(Arc::default()).1,
            next_denials: watch::channel(NextDenials::default()).1,
            registered_by: Instant::now() + settings.know_registered,
            classes: ClassController::new(writer.clone(), settings.guard_every, settings.back_off),
            statuses: Statuses::new(writer.clone(), settings.status_every),
            guard_cache: GuardCache::new(writer.client.clone(), settings),
            carried: CarriedTaints::new(writer.client.clone(), settings),
            label_release: LabelRelease::new(settings.guard_every),
            back_off: WriteBackoff::new(settings.back_off),
            written: WriteOverlay::default(),
            events: NodeEvents::default(),
            failures: BTreeMap::new(),
            generations: BTreeMap::new(),
            listed_others: None,
            writer,
        }
    }

    /// With the states of new nodes, for the statuses of their policies.
    #[must_use]
    pub fn with_startup(self, startup: watch::Receiver<Arc<StartupStates>>) -> Self {
        NodeController { startup, ..self }
    }

    /// With what the reports find out, for the statuses of policies.
    #[must_use]
    pub fn with_next_denials(self, next_denials: watch::Receiver<NextDenials>) -> Self {
        NodeController { next_denials, ..self }
    }

    async fn reconcile(&mut self, snapshot: &Snapshot, result: &mut PassResult) {
        self.startup.mark_unchanged();
        self.next_denials.mark_unchanged();
        let cache = &*snapshot.cache;
        let policies = snapshot.node_policies.clone();
        self.apply_new_generations(&policies);
        let exists = |uid: &String, name: &String| cache.nodes.get(name).is_some_and(|node| node.uid == *uid);
        self.failures.retain(|uid, (name, _)| exists(uid, name));
        self.written.retain(|name| cache.nodes.contains_key(name));
        let nodes = self.nodes_now(cache);
        self.guard_cache.age(&nodes);
        self.carried.age(&nodes);
        let mut resolver = PolicyResolver {
            policies,
            approved: self.guard_cache.approved(),
            withdrawn: self.carried.withdrawn(),
            label_use: self.label_release.known(),
            others_are_gone: false,
        };
        let orphans = nodes.iter().any(|node| resolver.is_orphan(node))
            || runtime_classes::has_orphans(&cache.runtime_classes, &resolver.policies);
        if orphans {
            resolver.others_are_gone = self.others_are_gone(&resolver.policies, result).await;
        }
        let mut plans = NodePlans::of(&nodes, &resolver);
        let client = self.writer.client.clone();
        let mut references = ReferencesOfPass::new(&client, &snapshot.facts.config.pod_templates);
        if plans.keep_labels() {
            result.wake_at(self.label_release.ask(&mut references, &snapshot.facts).await);
        } else {
            self.label_release.reset_if_unknown();
        }
        let waiting = plans.waiting(&resolver.policies);
        let guard = (self.guard_cache).update(&resolver, &waiting, &nodes, snapshot);
        result.wake_at(guard.await);
        let is_news = self.has_news(&mut resolver);
        match self.carried.update(&resolver, &nodes, snapshot).await {
            Ok(again) => result.wake_at(again),
            Err(error) => {
                let task = "find the workloads that taints keep off nodes".to_owned();
                result.fail(task, &error);
            }
        }
        if self.has_news(&mut resolver) || is_news {
            plans = NodePlans::of(&nodes, &resolver);
        }
        let due = plans.due();
        let (resolver, has_due) = (Arc::new(resolver), !due.is_empty());
        self.write_nodes(due, &resolver, result).await;
        let nodes = self.nodes_now(cache);
        if has_due {
            plans = NodePlans::of(&nodes, &resolver);
        }
        let plan = runtime_classes::plan_of(snapshot, &resolver, &nodes);
        result.wake_at(self.classes.pass(plan, &mut references).await);
        let assessed = plans.assess(&resolver.policies, &snapshot.facts);
        self.write_statuses(snapshot, &resolver.policies, &assessed, result)
            .await;
        result.wake_at(self.written.until());
    }

    /// Gives the resolver what the guard and the survey of labels have found out. Returns whether that is news.
    fn has_news(&self, resolver: &mut PolicyResolver) -> bool {
        let (approved, withdrawn) = (self.guard_cache.approved(), self.carried.withdrawn());
        let label_use = self.label_release.known();
        let is_news = approved != resolver.approved
            || withdrawn != resolver.withdrawn
            || label_use != resolver.label_use;
        (resolver.approved, resolver.withdrawn, resolver.label_use) = (approved, withdrawn, label_use);
        is_news
    }

    /// Every node, in Transom's last written version if the watch does not show that version yet.
    fn nodes_now(&mut self, cache: &ClusterCache) -> Vec<Arc<NodeView>> {
        let now = Instant::now();
        let nodes = cache.nodes.iter();
        nodes
            .map(|(name, node)| self.written.newest(name, node, now))
            .collect()
    }

    /// Resets all back-offs of policies that have a new generation.
    fn apply_new_generations(&mut self, policies: &NodePolicies) {
        let generations: BTreeMap<String, i64> = policies
            .iter()
            .map(|policy| (policy.name.clone(), policy.generation))
            .collect();
        if generations != self.generations {
            self.back_off = WriteBackoff::new(self.settings.back_off);
            self.failures.clear();
            self.guard_cache.apply_generations(&generations);
            self.generations = generations;
            self.listed_others = None;
            self.label_release.reset();
        }
        self.back_off.forget_quiet(Instant::now());
    }

    /// Asks the API server whether there are policies that are not in `known`: nodes must not lose their taints
    /// because the cache is behind.
    async fn others_are_gone(&mut self, known: &NodePolicies, result: &mut PassResult) -> bool {
        let every = self.settings.status_every;
        let last = self.listed_others.filter(|(at, _)| Instant::now() < *at + every);
        let (at, gone) = match last {
            Some(answer) => answer,
            None => (Instant::now(), self.list_others(known, result).await),
        };
        self.listed_others = Some((at, gone));
        if !gone {
            result.wake_at(Instant::now() + every);
        }
        gone
    }

    async fn list_others(&self, known: &NodePolicies, result: &mut PassResult) -> bool {
        let listing = Listing::new(WindowsNodePolicy::url_path(&(), None)).metadata_only();
        match collect::<PartialObjectMeta<WindowsNodePolicy>>(&self.writer.client, listing).await {
            Ok(policies) => (policies.iter())
                .filter(|policy| policy.metadata.deletion_timestamp.is_none())
                .all(|policy| {
                    known
                        .get(policy.metadata.name.as_deref().unwrap_or_default())
                        .is_some()
                }),
            // Without the resource definition there are no policies.
            Err(ApiError::NotFound) => true,
            Err(error) => {
                let task = "list the node policies, so nothing is removed for deleted ones";
                result.fail(task.to_owned(), &error);
                false
            }
        }
    }

    /// Writes the nodes that are due, a few at a time; the next pass continues with the rest.
    async fn write_nodes(
        &mut self,
        due: Vec<Arc<NodeView>>,
        resolver: &Arc<PolicyResolver>,
        result: &mut PassResult,
    ) {
        let now = Instant::now();
        let mut ready = Vec::new();
        for node in due {
            match self.back_off.until(&node.uid, now) {
                None => ready.push(node),
                Some(at) => result.wake_at(at),
            }
        }
        let more = ready.len() > self.settings.at_once;
        if more {
            ready.truncate(self.settings.at_once);
            result.wake_at(now);
        }
        let writer = &self.writer;
        let writes = ready.into_iter().map(|node| {
            let resolver = Arc::clone(resolver);
            async move {
                let decide = move |node: &NodeView| resolver.decide(node);
                (Arc::clone(&node), apply(writer, node, &decide).await)
            }
        });
        let outcomes: Vec<_> = futures::stream::iter(writes)
            .buffer_unordered(self.settings.in_flight.max(1))
            .collect()
            .await;
        for (node, outcome) in outcomes {
            self.note_written(&node, outcome, &resolver.policies, result);
        }
        let due = self.events.due();
        if !more || due.is_some_and(|due| due <= Instant::now()) {
            self.events.flush(&resolver.policies, &self.writer).await;
        }
    }

    fn note_written(
        &mut self,
        before: &NodeView,
        outcome: ApplyResult,
        policies: &NodePolicies,
        result: &mut PassResult,
    ) {
        let now = Instant::now();
        let (name, uid) = (&*before.name, &*before.uid);
        self.failures.remove(uid);
        match outcome {
            ApplyResult::Stands(node) => self.written.put(name, node, now),
            ApplyResult::Wrote(node, changes) => {
                self.back_off.wrote(uid, now);
                let policy = match policies.choose(&node) {
                    SelectedPolicy::Policy(policy) => policy.name.as_str(),
                    SelectedPolicy::NoPolicy | SelectedPolicy::Held(_) => "",
                };
                self.events.add(policy, &node, changes, now);
                self.written.put(name, node, now);
            }
            ApplyResult::Gone => self.written.remove(name),
            ApplyResult::Failed(error) => {
                result.fail(format!("write node {name}"), &error);
                self.back_off.wrote(uid, now);
                result.wake_at(self.back_off.until(uid, now));
                self.failures.insert(uid.to_owned(), (name.to_owned(), error));
            }
        }
    }

    async fn write_statuses(
        &mut self,
        snapshot: &Snapshot,
        policies: &NodePolicies,
        assessed: &NodesByPolicy,
        result: &mut PassResult,
    ) {
        let nodes = &snapshot.cache.nodes;
        let labels = snapshot.facts.stated_node_labels();
        let undeclared = snapshot.pools.undeclared(nodes, &labels);
        for policy in policies.iter() {
            let none = NodesOfPolicy::default();
            let of_policy = assessed.get(&policy.name).unwrap_or(&none);
            let selects =
                |node: &&String| (nodes.get(*node)).is_some_and(|node| policy.selects(&node.labels));
            let known = PolicyFacts {
                undeclared: undeclared.iter().filter(selects).cloned().collect(),
                ..self.known(policy, of_policy, nodes)
            };
            match self.statuses.write(policy, of_policy, &known).await {
                Ok(next) => result.wake_at(next),
                Err(error) => {
                    let task = || format!("write the status of WindowsNodePolicy {}", policy.name);
                    result.record(task, Err::<(), _>(error));
                    result.wake_at(Instant::now() + self.settings.status_every);
                }
            }
        }
    }

    /// Inputs of a policy's status other than the state of its nodes.
    fn known(
        &self,
        policy: &NodePolicy,
        nodes: &NodesOfPolicy,
        cached: &BTreeMap<String, Arc<NodeView>>,
    ) -> PolicyFacts {
        let is_restless = |name: &&String| {
            let uid = cached.get(*name).map(|node| &*node.uid);
            uid.is_some_and(|uid| self.back_off.is_restless(uid) && !self.failures.contains_key(uid))
        };
        PolicyFacts {
            guarded: self.guard_cache.result(&policy.name),
            excluded: self.carried.excluded(&policy.name).cloned(),
            failures: (self.failures.values())
                .filter(|(node, _)| nodes.drift.contains_key(node))
                .cloned()
                .collect(),
            restless: nodes.drift.keys().filter(is_restless).cloned().collect(),
            undeclared: BTreeSet::new(),
            untolerating: (self.next_denials.borrow().daemon_sets.get(&policy.name))
                .cloned()
                .unwrap_or_default(),
            classes: self.classes.of_policy(&policy.name),
            startup: startup_of(
                &self.startup.borrow(),
                &policy.name,
                policy.stored.spec.startup.is_some(),
            ),
        }
    }
}
