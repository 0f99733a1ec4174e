//! One pass over the cluster: what is due is written, and what became of it is told in the status of the policies.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::events::Event;
use kube::{Api, Resource as _};
use serde_json::json;
use tokio::time::Instant;

use super::Context;
use super::classes::{self, keeper::ClassKeeper};
use super::guard::Guard;
use super::nodes::assess::{Cleared, Decider, Standing, assess};
use super::nodes::fresh::Fresh;
use super::nodes::write::{BackOff, FIELD_MANAGER, Pace, Writer, is_older, patience};
use super::policies::{NodePolicies, NodePolicy};
use super::status::{Guarded, Known, news_of, status_of};
use crate::api::WindowsNodePolicy;
use crate::cluster::errors::{Failure, answered};
use crate::cluster::snapshot::Snapshot;
use crate::cluster::survey::visit_pod_carriers;
use crate::cluster::view::{ClusterView, NodeView};
use crate::model::facts::Taint;

/// What is remembered from pass to pass. All of it can be lost: it saves requests, and decides nothing.
pub struct Keeper {
    context: Context,
    writer: Writer,
    runtime_classes: ClassKeeper,
    policies: Api<WindowsNodePolicy>,
    back_off: BackOff,
    fresh: Fresh,
    /// Why nodes could not be written.
    failures: BTreeMap<String, String>,
    guards: HashMap<String, GuardState>,
    generations: BTreeMap<String, i64>,
    /// When the API server was asked last whether all other policies are gone, and what it said.
    asked_others: Option<(Instant, bool)>,
    /// Policies as they are since we wrote their status, and when that was.
    told: HashMap<String, (Instant, Option<Arc<WindowsNodePolicy>>)>,
}

/// What the guard has said of the taints of a policy.
struct GuardState {
    generation: i64,
    cleared: Cleared,
    /// When it may be asked again.
    again: Option<Instant>,
    /// How often it was asked since it last said yes.
    refusals: u32,
    said: Guarded,
}

impl Keeper {
    /// A keeper that remembers nothing yet.
    pub fn new(context: Context) -> Self {
        let pace = Arc::new(Pace::per_second(context.settings.writes_per_second));
        let (client, lead) = (context.client.clone(), Some(context.leadership.clone()));
        Keeper {
            writer: Writer::new(
                client.clone(),
                lead.clone(),
                Some(context.recorder.clone()),
                Arc::clone(&pace),
            ),
            runtime_classes: ClassKeeper::new(&context, pace),
            policies: Api::all(client),
            back_off: BackOff::new(context.settings.back_off),
            fresh: Fresh::default(),
            failures: BTreeMap::new(),
            guards: HashMap::new(),
            generations: BTreeMap::new(),
            asked_others: None,
            told: HashMap::new(),
            context,
        }
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.fresh.clear();
        self.failures.clear();
        self.guards.clear();
        self.asked_others = None;
        self.told.clear();
        self.runtime_classes.forget();
    }

    /// One pass. Says when the next one is due, if nothing changes until then.
    pub async fn pass(&mut self, snapshot: &Snapshot) -> Option<Instant> {
        let view = &*snapshot.view;
        let start = Instant::now();
        let mut alarms: Vec<Instant> = Vec::new();
        let mut decider = Decider {
            policies: NodePolicies::of(&view.node_policies),
            ..Decider::default()
        };
        self.heed_new_generations(&decider.policies, start);
        let nodes = self.nodes_now(view);
        let orphans = nodes.iter().any(|node| decider.is_orphan(node))
            || classes::has_orphans(&view.runtime_classes, &decider.policies);
        if orphans {
            decider.others_are_gone = self.others_are_gone(&decider.policies).await;
            if !decider.others_are_gone {
                alarms.push(start + self.context.settings.status_every);
            }
        }
        let (standings, _) = assess(&nodes, &decider, view.kubernetes);
        for policy in decider.policies.iter() {
            let Some(standing) = standings.get(&policy.name) else {
                continue;
            };
            alarms.extend(self.ask_guard(policy, standing, snapshot, &nodes).await);
            if let Some(state) = self.guards.get(&policy.name) {
                decider.cleared.insert(policy.name.clone(), state.cleared.clone());
            }
        }
        let decider = Arc::new(decider);
        let (_, due) = assess(&nodes, &decider, view.kubernetes);
        alarms.extend(self.write(due, &decider).await);

        let nodes = self.nodes_now(view);
        let (standings, _) = assess(&nodes, &decider, view.kubernetes);
        alarms.extend(self.runtime_classes.pass(snapshot, &decider, &nodes).await);
        for policy in decider.policies.iter() {
            let standing = standings.get(&policy.name).cloned().unwrap_or_default();
            alarms.extend(self.tell(policy, &standing).await);
        }
        alarms.extend(self.fresh.until());
        alarms.into_iter().min()
    }

    /// Nodes as they are: as we wrote them last, where the watch does not show that yet.
    fn nodes_now(&mut self, view: &ClusterView) -> Vec<Arc<NodeView>> {
        self.failures.retain(|name, _| view.nodes.contains_key(name));
        self.fresh.nodes(view, Instant::now())
    }

    /// Another generation of a policy is a new start for everybody.
    fn heed_new_generations(&mut self, policies: &NodePolicies, now: Instant) {
        let generations: BTreeMap<String, i64> = policies
            .iter()
            .map(|policy| (policy.name.clone(), policy.generation))
            .collect();
        if generations != self.generations {
            self.back_off = BackOff::new(self.context.settings.back_off);
            self.guards
                .retain(|name, state| generations.get(name) == Some(&state.generation));
            self.told.retain(|name, _| generations.contains_key(name));
            self.generations = generations;
            self.asked_others = None;
        }
        self.back_off.forget_quiet(now);
    }

    /// Asks the API server whether there are policies that are not among these: a view that lags must not cost anybody
    /// their taints.
    async fn others_are_gone(&mut self, known: &NodePolicies) -> bool {
        if let Some((at, gone)) = self.asked_others
            && Instant::now() < at + self.context.settings.status_every
        {
            return gone;
        }
        let gone = self.ask_for_others(known).await;
        self.asked_others = Some((Instant::now(), gone));
        gone
    }

    async fn ask_for_others(&self, known: &NodePolicies) -> bool {
        match answered(self.policies.list_metadata(&ListParams::default())).await {
            Ok(list) => (list.items.iter())
                .filter(|policy| policy.metadata.deletion_timestamp.is_none())
                .all(|policy| {
                    known
                        .get(policy.metadata.name.as_deref().unwrap_or_default())
                        .is_some()
                }),
            // Without the resource there are no policies.
            Err(Failure::Gone) => true,
            Err(error) => {
                tracing::warn!(error = %error, "nothing is taken back, because the node policies cannot be listed");
                false
            }
        }
    }

    /// Asks the guard about the taints that nodes wait for and that were not surveyed with these nodes, unless it was
    /// asked just now; says when it may be asked again.
    async fn ask_guard(
        &mut self,
        policy: &NodePolicy,
        standing: &Standing,
        snapshot: &Snapshot,
        nodes: &[Arc<NodeView>],
    ) -> Option<Instant> {
        let state = self
            .guards
            .entry(policy.name.clone())
            .or_insert_with(|| GuardState {
                generation: policy.generation,
                cleared: Cleared::default(),
                again: None,
                refusals: 0,
                said: Guarded::Free,
            });
        state.cleared.age(nodes.iter().map(|node| &**node));
        let open = not_cleared(standing, nodes, &state.cleared);
        if open.is_empty() {
            return None;
        }
        if let Some(again) = state.again
            && Instant::now() < again
        {
            return Some(again);
        }
        let taints: Vec<Taint> = open.keys().map(|taint| (*taint).clone()).collect();
        let names: BTreeSet<&str> = open.values().flatten().map(|node| node.name.as_str()).collect();
        let policy_of = |namespace: &str| snapshot.in_namespace(namespace);
        let mut guard = Guard::new(&taints, names, snapshot, &policy_of);
        let surveyed = visit_pod_carriers(&self.context.client, |kind, json| guard.look(kind, json)).await;
        let hurt = guard.hurt();
        state.said = match surveyed {
            Err(error) => Guarded::Unknown(error.to_string()),
            Ok(()) if hurt.is_empty() => Guarded::Free,
            Ok(()) => Guarded::Refused {
                message: hurt.message(&taints),
                brief: hurt.brief(&taints),
            },
        };
        let settings = self.context.settings;
        if state.said == Guarded::Free {
            for (taint, nodes) in open {
                for node in &nodes {
                    state.cleared.add(taint, node);
                }
            }
            state.refusals = 0;
            // Nodes that come one after the other are not each worth a survey.
            state.again = Some(Instant::now() + settings.status_every);
            return None;
        }
        state.refusals = state.refusals.saturating_add(1);
        state.again = Some(Instant::now() + patience(settings.guard_every, state.refusals));
        state.again
    }

    /// Writes the nodes that are due, a few at a time; says when to go on with the rest.
    async fn write(&mut self, due: Vec<Arc<NodeView>>, decider: &Arc<Decider>) -> Option<Instant> {
        let now = Instant::now();
        let (mut ready, mut next) = (Vec::new(), None::<Instant>);
        for node in due {
            match self.back_off.until(&node.name, now) {
                None => ready.push(node),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        if ready.len() > self.context.settings.at_once {
            ready.truncate(self.context.settings.at_once);
            next = Some(now);
        }
        let bringer = &self.writer;
        let writes = ready.into_iter().map(|node| {
            let decider = Arc::clone(decider);
            async move {
                let name = node.name.clone();
                let decide = move |node: &NodeView| decider.decide(node);
                (name, bringer.bring_about(node, &decide).await)
            }
        });
        let outcomes: Vec<_> = futures::stream::iter(writes)
            .buffer_unordered(self.context.settings.in_flight.max(1))
            .collect()
            .await;
        for (name, outcome) in outcomes {
            if let Some(error) = outcome.error {
                tracing::warn!(node = name, error, "node not written");
                self.back_off.wrote(&name, Instant::now());
                next = next
                    .into_iter()
                    .chain(self.back_off.until(&name, Instant::now()))
                    .min();
                self.failures.insert(name, error);
                continue;
            }
            self.failures.remove(&name);
            if outcome.wrote {
                self.back_off.wrote(&name, Instant::now());
            }
            match outcome.node {
                Some(node) => self.fresh.put(node, Instant::now()),
                None => self.fresh.remove(&name),
            }
        }
        next
    }

    /// Writes the status of a policy, where it says something new; says when to try again.
    async fn tell(&mut self, policy: &NodePolicy, standing: &Standing) -> Option<Instant> {
        let (last, stored) = match self.told.get(&policy.name) {
            Some((at, Some(ours))) if is_older(version(&policy.stored), version(ours)) => {
                (Some(*at), Arc::clone(ours))
            }
            Some((at, _)) => (Some(*at), Arc::clone(&policy.stored)),
            None => (None, Arc::clone(&policy.stored)),
        };
        let known = Known {
            guarded: self
                .guards
                .get(&policy.name)
                .map(|state| state.said.clone())
                .unwrap_or_default(),
            failures: (self.failures.iter())
                .filter(|(node, _)| standing.drift.contains_key(*node))
                .map(|(node, error)| format!("{node}: {error}"))
                .collect(),
            restless: (standing.drift.keys())
                .filter(|node| self.back_off.is_restless(node) && !self.failures.contains_key(*node))
                .cloned()
                .collect(),
            classes: self.runtime_classes.standing(&policy.name),
        };
        let status = status_of(policy, standing, &known, stored.status.as_ref(), Timestamp::now());
        if stored.status.as_ref() == Some(&status) {
            return None;
        }
        let now = Instant::now();
        let earliest = last.map_or(now, |last| last + self.context.settings.status_every);
        if now < earliest {
            return Some(earliest);
        }
        if !self.context.leadership.holds() {
            return None;
        }
        let patch =
            Patch::Merge(json!({"metadata": {"resourceVersion": version(&stored)}, "status": status}));
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let written = self.policies.patch_status(&policy.name, &params, &patch);
        let (ours, again) = match answered(written).await {
            Ok(written) => {
                self.announce(
                    &written,
                    news_of(policy, standing, &known, stored.status.as_ref()),
                )
                .await;
                (Some(Arc::new(written)), None)
            }
            Err(Failure::Gone) => return None,
            Err(error) => {
                tracing::warn!(policy = policy.name, error = %error, "status not written");
                (None, Some(now + self.context.settings.status_every))
            }
        };
        self.told.insert(policy.name.clone(), (now, ours));
        again
    }

    /// Writes Events about a policy. Where that fails, its status has it all the same.
    async fn announce(&self, policy: &WindowsNodePolicy, news: Vec<Event>) {
        let mut reference = policy.object_ref(&());
        // It says which version was meant, and would keep Events of the same thing apart.
        reference.resource_version = None;
        for event in news {
            if let Err(error) = answered(self.context.recorder.publish(&event, &reference)).await {
                let (policy, reason) = (&reference.name, &event.reason);
                tracing::warn!(?policy, reason, error = %error, "no Event could be written");
            }
        }
    }
}

/// The taints that nodes wait for, with those of the nodes for which it is not known that nobody would be hurt.
fn not_cleared<'a>(
    standing: &'a Standing,
    nodes: &'a [Arc<NodeView>],
    cleared: &Cleared,
) -> BTreeMap<&'a Taint, Vec<&'a NodeView>> {
    let open = standing.waiting.iter().map(|(taint, names)| {
        let waiting = nodes.iter().filter(|node| names.contains(&node.name));
        let open = waiting.filter(|node| !cleared.has(taint, node));
        (taint, open.map(|node| &**node).collect::<Vec<_>>())
    });
    open.filter(|(_, nodes)| !nodes.is_empty()).collect()
}

fn version(policy: &WindowsNodePolicy) -> &str {
    policy.metadata.resource_version.as_deref().unwrap_or_default()
}
