//! One pass over the RuntimeClasses: what is due is written, and what has to stay is remembered for the policy's status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use super::write::{Done, Users, Writer, users};
use super::{Step, plan};
use crate::cluster::snapshot::Snapshot;
use crate::cluster::view::NodeView;
use crate::controller::node_policies::Context;
use crate::controller::node_policies::nodes::assess::Decider;
use crate::controller::node_policies::nodes::write::{BackOff, Pace, patience};
use crate::controller::node_policies::status::Classes;

/// What is remembered of RuntimeClasses.
pub struct ClassKeeper {
    writer: Writer,
    client: Client,
    every: Duration,
    back_off: BackOff,
    surveyed: Option<Instant>,
    /// How many surveys in a row found that a class is named still.
    in_vain: u32,
    /// By class: the policy that is told, and why the class is not as it is to be.
    troubles: BTreeMap<String, (String, String)>,
    standings: BTreeMap<String, Classes>,
}

impl ClassKeeper {
    /// A keeper that remembers nothing yet.
    pub fn new(context: &Context, pace: Arc<Pace>) -> Self {
        ClassKeeper {
            writer: Writer::new(context.client.clone(), Some(context.leadership.clone()), pace),
            client: context.client.clone(),
            every: context.settings.guard_every,
            back_off: BackOff::new(context.settings.back_off),
            surveyed: None,
            in_vain: 0,
            troubles: BTreeMap::new(),
            standings: BTreeMap::new(),
        }
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.surveyed = None;
        self.in_vain = 0;
        self.troubles.clear();
    }

    /// How the classes of a policy stand; `None` where it has none to do with.
    pub fn standing(&self, policy: &str) -> Option<Classes> {
        let troubles: Vec<String> = (self.troubles.values())
            .filter(|(told, _)| told == policy)
            .map(|(_, why)| why.clone())
            .collect();
        let standing = self.standings.get(policy).cloned();
        if standing.is_none() && troubles.is_empty() {
            return None;
        }
        let mut standing = standing.unwrap_or_default();
        standing.problems.extend(troubles);
        Some(standing)
    }

    /// One pass, after the nodes were written. Says when the next one is due, if nothing changes until then.
    pub async fn pass(
        &mut self,
        snapshot: &Snapshot,
        decider: &Decider,
        nodes: &[Arc<NodeView>],
    ) -> Option<Instant> {
        let view = &snapshot.view;
        let absent = snapshot.pools.absent(&view.nodes);
        let absent = absent.into_iter().flat_map(|pool| pool.taints).collect();
        let plan = plan(
            &view.runtime_classes,
            &decider.policies,
            nodes,
            &absent,
            decider.others_are_gone,
        );
        self.standings = plan.standings;
        let names: BTreeSet<&str> = plan.steps.iter().map(Step::name).collect();
        self.troubles.retain(|name, _| names.contains(name.as_str()));
        let doomed: BTreeSet<String> = (plan.steps.iter())
            .filter(|step| matches!(step, Step::Delete { .. }))
            .map(|step| step.name().to_owned())
            .collect();
        if !doomed.iter().all(|name| self.troubles.contains_key(name)) {
            // One that was not asked about yet is asked about soon.
            self.in_vain = 0;
        }
        let mut alarms = Vec::new();
        let users = self.users(&doomed, &mut alarms).await;
        for step in &plan.steps {
            let (policy, is_delete) = match step {
                Step::Delete { policy, .. } => (policy.clone(), true),
                _ => (String::new(), false),
            };
            let users = match (&users, is_delete) {
                (None, true) => continue,
                (Some(users), _) => users.clone(),
                (None, false) => Users::new(),
            };
            if let Some(at) = self.back_off.until(step.name(), Instant::now()) {
                alarms.push(at);
                continue;
            }
            let done = self.writer.carry_out(step, &users).await;
            let name = step.name().to_owned();
            if !matches!(done, Done::InUse(_)) {
                self.back_off.wrote(&name, Instant::now());
            }
            match done {
                Done::Yes => _ = self.troubles.remove(&name),
                Done::Later => alarms.extend(self.back_off.until(&name, Instant::now())),
                Done::InUse(why) => {
                    if self.troubles.get(&name).is_none_or(|(_, said)| *said != why) {
                        tracing::info!(runtime_class = name, why, "RuntimeClass kept");
                    }
                    self.troubles.insert(name, (policy, why));
                }
                Done::Failed(why) => {
                    tracing::warn!(runtime_class = name, why, "RuntimeClass not written");
                    alarms.extend(self.back_off.until(&name, Instant::now()));
                    self.troubles.insert(name, (policy, why));
                }
            }
        }
        alarms.into_iter().min()
    }

    /// Who names the classes that are to go; `None` where that is not known now.
    async fn users(&mut self, doomed: &BTreeSet<String>, alarms: &mut Vec<Instant>) -> Option<Users> {
        if doomed.is_empty() {
            return None;
        }
        let now = Instant::now();
        let wait = patience(self.every, self.in_vain);
        if let Some(last) = self.surveyed
            && now < last + wait
        {
            alarms.push(last + wait);
            return None;
        }
        self.surveyed = Some(now);
        self.in_vain = self.in_vain.saturating_add(1);
        alarms.push(now + patience(self.every, self.in_vain));
        match users(&self.client, doomed).await {
            Ok(users) => Some(users),
            Err(error) => {
                tracing::warn!(error = %error, "no RuntimeClass is taken away, because it is not known who names it");
                None
            }
        }
    }
}
