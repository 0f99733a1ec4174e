//! One reconcile pass: writes what is due, and reports the result in the status of the policies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use kube::Resource as _;
use kube::api::PartialObjectMeta;
use tokio::time::Instant;

use super::NodeControllerContext;
use super::events::NodeEvents;
use super::guard::cache::GuardCache;
use super::node_state::{NodesOfPolicy, PolicyResolver, assess};
use super::nodes::apply::{ApplyResult, apply};
use super::nodes::assumed::AssumedNodes;
use super::pod_references::{LabelRelease, ReferencesOfPass};
use super::policies::{NodePolicies, NodePolicy, SelectedPolicy};
use super::runtime_classes::{self, reconcile::ClassController};
use super::status::{PolicyFacts, write::Statuses};
use super::writer::Writer;
use crate::api::WindowsNodePolicy;
use crate::cluster::cache::ClusterCache;
use crate::cluster::errors::ApiError;
use crate::cluster::list::{Listing, collect};
use crate::cluster::node::NodeView;
use crate::cluster::pool_history::undeclared;
use crate::cluster::rate_limit::WriteBackoff;
use crate::cluster::snapshot::Snapshot;

/// The node controller for one term of leadership, with its state between passes. Losing the state is harmless: it
/// only saves requests and decides nothing.
pub struct NodeController {
    context: NodeControllerContext,
    writer: Writer,
    classes: ClassController,
    statuses: Statuses,
    guard_cache: GuardCache,
    label_release: LabelRelease,
    back_off: WriteBackoff,
    assumed: AssumedNodes,
    events: NodeEvents,
    /// Why nodes could not be written, by node.
    failures: BTreeMap<String, String>,
    generations: BTreeMap<String, i64>,
    /// When the API server was last asked whether all other policies are deleted, and the answer.
    listed_others: Option<(Instant, bool)>,
}

impl NodeController {
    /// A controller without any state.
    pub fn new(context: NodeControllerContext) -> Self {
        let settings = context.settings;
        let writer = Writer::new(
            context.client.clone(),
            Some(context.leadership.clone()),
            Some(context.recorder.clone()),
            settings.writes_per_second,
        );
        NodeController {
            classes: ClassController::new(writer.clone(), settings.guard_every, settings.back_off),
            statuses: Statuses::new(writer.clone(), settings.status_every, context.reconcile.clone()),
            guard_cache: GuardCache::new(context.client.clone(), settings),
            label_release: LabelRelease::new(settings.guard_every),
            back_off: WriteBackoff::new(settings.back_off),
            assumed: AssumedNodes::default(),
            events: NodeEvents::default(),
            failures: BTreeMap::new(),
            generations: BTreeMap::new(),
            listed_others: None,
            writer,
            context,
        }
    }

    /// Runs one pass. Returns when the next one is due if nothing changes until then.
    pub async fn pass(&mut self, snapshot: &Snapshot) -> Option<Instant> {
        let view = &*snapshot.view;
        let start = Instant::now();
        let mut alarms: Vec<Instant> = Vec::new();
        let mut resolver = PolicyResolver {
            policies: NodePolicies::of(&view.node_policies),
            label_use: self.label_release.known(),
            ..PolicyResolver::default()
        };
        self.apply_new_generations(&resolver.policies, start);
        let nodes = self.nodes_now(view);
        let orphans = nodes.iter().any(|node| resolver.is_orphan(node))
            || runtime_classes::has_orphans(&view.runtime_classes, &resolver.policies);
        if orphans {
            resolver.others_are_gone = self.others_are_gone(&resolver.policies).await;
            if !resolver.others_are_gone {
                alarms.push(start + self.context.settings.status_every);
            }
        }
        let assessed = assess(&nodes, &resolver, view.kubernetes);
        let configured = snapshot.policies.pod_templates();
        let client = self.context.client.clone();
        let mut references = ReferencesOfPass::new(&client, configured);
        if assessed.keeps_labels {
            alarms.push(self.label_release.ask(&mut references, &snapshot.facts).await);
            resolver.label_use = self.label_release.known();
        } else {
            self.label_release.reset();
        }
        alarms.extend(
            self.guard_cache
                .update(&resolver, &assessed.by_policy, &nodes, snapshot)
                .await,
        );
        for policy in resolver.policies.iter() {
            if let Some(cleared) = self.guard_cache.cleared(&policy.name) {
                resolver.cleared.insert(policy.name.clone(), cleared.clone());
            }
        }
        let resolver = Arc::new(resolver);
        let due = assess(&nodes, &resolver, view.kubernetes).due;
        alarms.extend(self.write(due, &resolver).await);

        let nodes = self.nodes_now(view);
        let by_policy = assess(&nodes, &resolver, view.kubernetes).by_policy;
        let gone = resolver.others_are_gone;
        let undeclared = undeclared(&view.nodes, &snapshot.facts);
        alarms.extend(
            self.classes
                .pass(snapshot, &resolver.policies, gone, &nodes, &mut references)
                .await,
        );
        for policy in resolver.policies.iter() {
            let of_policy = by_policy.get(&policy.name).cloned().unwrap_or_default();
            let selects = |node: &&String| {
                view.nodes
                    .get(*node)
                    .is_some_and(|node| policy.selects(&node.labels))
            };
            let known = PolicyFacts {
                undeclared: undeclared.iter().filter(selects).cloned().collect(),
                ..self.known(policy, &of_policy)
            };
            alarms.extend(self.statuses.write(policy, &of_policy, &known).await);
        }
        alarms.extend(self.assumed.until());
        alarms.into_iter().min()
    }

    /// Every node, in Transom's last written version if the watch does not show that version yet.
    fn nodes_now(&mut self, view: &ClusterCache) -> Vec<Arc<NodeView>> {
        self.failures.retain(|name, _| view.nodes.contains_key(name));
        self.assumed.nodes(view, Instant::now())
    }

    /// Resets all back-offs of policies that have a new generation.
    fn apply_new_generations(&mut self, policies: &NodePolicies, now: Instant) {
        let generations: BTreeMap<String, i64> = policies
            .iter()
            .map(|policy| (policy.name.clone(), policy.generation))
            .collect();
        if generations != self.generations {
            self.back_off = WriteBackoff::new(self.context.settings.back_off);
            self.guard_cache.apply_generations(&generations);
            self.generations = generations;
            self.listed_others = None;
            self.label_release.reset();
        }
        self.back_off.forget_quiet(now);
    }

    /// Asks the API server whether there are policies that are not in `known`: nodes must not lose their taints
    /// because the cache is behind.
    async fn others_are_gone(&mut self, known: &NodePolicies) -> bool {
        if let Some((at, gone)) = self.listed_others
            && Instant::now() < at + self.context.settings.status_every
        {
            return gone;
        }
        let gone = self.list_others(known).await;
        self.listed_others = Some((Instant::now(), gone));
        gone
    }

    async fn list_others(&self, known: &NodePolicies) -> bool {
        let listing = Listing::new(WindowsNodePolicy::url_path(&(), None)).metadata_only();
        match collect::<PartialObjectMeta<WindowsNodePolicy>>(&self.context.client, listing).await {
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
                self.context.reconcile.failed();
                tracing::warn!(error = %error, "nothing is removed, because the node policies cannot be listed");
                false
            }
        }
    }

    /// Writes the nodes that are due, a few at a time; returns when to continue with the rest.
    async fn write(&mut self, due: Vec<Arc<NodeView>>, resolver: &Arc<PolicyResolver>) -> Option<Instant> {
        let now = Instant::now();
        let (mut ready, mut alarms) = (Vec::new(), Vec::new());
        for node in due {
            match self.back_off.until(&node.name, now) {
                None => ready.push(node),
                Some(at) => alarms.push(at),
            }
        }
        let more = ready.len() > self.context.settings.at_once;
        if more {
            ready.truncate(self.context.settings.at_once);
            alarms.push(now);
        }
        let writer = &self.writer;
        let writes = ready.into_iter().map(|node| {
            let resolver = Arc::clone(resolver);
            async move {
                let name = node.name.clone();
                let decide = move |node: &NodeView| resolver.decide(node);
                (name, apply(writer, node, &decide).await)
            }
        });
        let outcomes: Vec<_> = futures::stream::iter(writes)
            .buffer_unordered(self.context.settings.in_flight.max(1))
            .collect()
            .await;
        for (name, outcome) in outcomes {
            if !matches!(outcome, ApplyResult::Failed(_)) {
                self.failures.remove(&name);
            }
            match outcome {
                ApplyResult::Stands(node) => self.assumed.put(node, Instant::now()),
                ApplyResult::Wrote(node, changes) => {
                    let now = Instant::now();
                    self.back_off.wrote(&name, now);
                    let policy = match resolver.policies.choose(&node) {
                        SelectedPolicy::Policy(policy) => policy.name.as_str(),
                        SelectedPolicy::NoPolicy | SelectedPolicy::Held(_) => "",
                    };
                    self.events.add(policy, &node, changes, now);
                    self.assumed.put(node, Instant::now());
                }
                ApplyResult::Gone => self.assumed.remove(&name),
                ApplyResult::Failed(error) => {
                    self.context.reconcile.failed();
                    tracing::warn!(node = name, error, "node not written");
                    self.back_off.wrote(&name, Instant::now());
                    alarms.extend(self.back_off.until(&name, Instant::now()));
                    self.failures.insert(name, error);
                }
            }
        }
        let due = self.events.due();
        if !more || due.is_some_and(|due| due <= Instant::now()) {
            self.events.flush(&resolver.policies, &self.writer).await;
        }
        alarms.into_iter().min()
    }

    /// Inputs of a policy's status other than the state of its nodes.
    fn known(&self, policy: &NodePolicy, nodes: &NodesOfPolicy) -> PolicyFacts {
        PolicyFacts {
            guarded: self.guard_cache.result(&policy.name),
            failures: (self.failures.iter())
                .filter(|(node, _)| nodes.drift.contains_key(*node))
                .map(|(node, error)| format!("{node}: {error}"))
                .collect(),
            restless: (nodes.drift.keys())
                .filter(|node| self.back_off.is_restless(node) && !self.failures.contains_key(*node))
                .cloned()
                .collect(),
            undeclared: BTreeSet::new(),
            classes: self.classes.of_policy(&policy.name),
        }
    }
}
