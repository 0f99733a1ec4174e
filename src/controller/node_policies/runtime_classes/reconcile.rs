//! One reconcile pass of the RuntimeClasses: writes what is due, and keeps what could not be changed for the policy's
//! status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::write::{ClassUsers, ClassWriteResult, carry_out, users};
use super::{ClassChange, ClassesOfPolicy, plan};
use crate::cluster::node::NodeView;
use crate::cluster::rate_limit::{WriteBackoff, backoff_interval};
use crate::cluster::snapshot::Snapshot;
use crate::controller::node_policies::policies::NodePolicies;
use crate::controller::node_policies::writer::Writer;

/// State of the RuntimeClass controller between passes.
pub struct ClassController {
    writer: Writer,
    every: Duration,
    back_off: WriteBackoff,
    surveyed: Option<Instant>,
    /// How many surveys in a row found a class still in use.
    in_vain: u32,
    /// By class: the policy that reports it, and why the class differs from its desired state.
    troubles: BTreeMap<String, (String, String)>,
    by_policy: BTreeMap<String, ClassesOfPolicy>,
}

impl ClassController {
    /// Without any state. `every`: the interval between surveys; `back_off`: how long a class is skipped after a
    /// write.
    pub fn new(writer: Writer, every: Duration, back_off: Duration) -> Self {
        ClassController {
            writer,
            every,
            back_off: WriteBackoff::new(back_off),
            surveyed: None,
            in_vain: 0,
            troubles: BTreeMap::new(),
            by_policy: BTreeMap::new(),
        }
    }

    /// The classes of a policy; `None` if it has none.
    pub fn of_policy(&self, policy: &str) -> Option<ClassesOfPolicy> {
        let troubles = self.troubles.values().filter(|(reported, _)| reported == policy);
        let troubles: Vec<String> = troubles.map(|(_, why)| why.clone()).collect();
        let planned = self.by_policy.get(policy).cloned();
        if planned.is_none() && troubles.is_empty() {
            return None;
        }
        let mut state = planned.unwrap_or_default();
        state.problems.extend(troubles);
        Some(state)
    }

    /// One pass, after the nodes were written. Returns when the next one is due if nothing changes until then.
    pub async fn pass(
        &mut self,
        snapshot: &Snapshot,
        policies: &NodePolicies,
        others_are_gone: bool,
        nodes: &[Arc<NodeView>],
    ) -> Option<Instant> {
        let view = &snapshot.view;
        let absent = snapshot
            .pools
            .absent(&view.nodes, &snapshot.facts.policy_pool_labels());
        let absent = absent.into_iter().flat_map(|pool| pool.taints).collect();
        let plan = plan(&view.runtime_classes, policies, nodes, &absent, others_are_gone);
        self.by_policy = plan.by_policy;
        let names: BTreeSet<&str> = plan.changes.iter().map(ClassChange::name).collect();
        self.troubles.retain(|name, _| names.contains(name.as_str()));
        let doomed: BTreeSet<String> = (plan.changes.iter())
            .filter(|change| matches!(change, ClassChange::Delete { .. }))
            .map(|change| change.name().to_owned())
            .collect();
        if !doomed.iter().all(|name| self.troubles.contains_key(name)) {
            // A class that has not been surveyed yet is surveyed soon.
            self.in_vain = 0;
        }
        let mut alarms = Vec::new();
        let users = self.users(&doomed, &mut alarms).await;
        for change in &plan.changes {
            // A class that is not known to be unused stays.
            if users.is_some() || !doomed.contains(change.name()) {
                let users = users.as_ref().unwrap_or(const { &ClassUsers::new() });
                alarms.extend(self.carry_out(change, users).await);
            }
        }
        alarms.into_iter().min()
    }

    /// Applies one change, unless its class is backing off; returns when to try again.
    async fn carry_out(&mut self, change: &ClassChange, users: &ClassUsers) -> Option<Instant> {
        let name = change.name().to_owned();
        if let Some(at) = self.back_off.until(&name, Instant::now()) {
            return Some(at);
        }
        let policy = match change {
            ClassChange::Delete { policy, .. } => policy.clone(),
            _ => String::new(),
        };
        let done = carry_out(&self.writer, change, users).await;
        if !matches!(done, ClassWriteResult::InUse(_)) {
            self.back_off.wrote(&name, Instant::now());
        }
        let again = self.back_off.until(&name, Instant::now());
        match done {
            ClassWriteResult::Yes => {
                self.troubles.remove(&name);
                None
            }
            ClassWriteResult::Later => again,
            ClassWriteResult::InUse(why) => {
                if self
                    .troubles
                    .get(&name)
                    .is_none_or(|(_, message)| *message != why)
                {
                    tracing::info!(runtime_class = name, why, "RuntimeClass kept");
                }
                self.troubles.insert(name, (policy, why));
                None
            }
            ClassWriteResult::Failed(why) => {
                tracing::warn!(runtime_class = name, why, "RuntimeClass not written");
                self.troubles.insert(name, (policy, why));
                again
            }
        }
    }

    /// Which objects name the classes to delete; `None` if that is unknown.
    async fn users(&mut self, doomed: &BTreeSet<String>, alarms: &mut Vec<Instant>) -> Option<ClassUsers> {
        if doomed.is_empty() {
            return None;
        }
        let now = Instant::now();
        let wait = backoff_interval(self.every, self.in_vain);
        if let Some(last) = self.surveyed
            && now < last + wait
        {
            alarms.push(last + wait);
            return None;
        }
        self.surveyed = Some(now);
        self.in_vain = self.in_vain.saturating_add(1);
        alarms.push(now + backoff_interval(self.every, self.in_vain));
        match users(&self.writer.client, doomed).await {
            Ok(users) => Some(users),
            Err(error) => {
                tracing::warn!(error = %error, "no RuntimeClass is deleted: Transom could not determine which objects use it");
                None
            }
        }
    }
}
