//! One reconcile pass of the RuntimeClasses: writes what is due, and keeps what could not be changed for the policy's
//! status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::write::{ClassWriteResult, carry_out};
use super::{ClassChange, ClassesOfPolicy, plan};
use crate::cluster::node::NodeView;
use crate::cluster::rate_limit::WriteBackoff;
use crate::cluster::snapshot::Snapshot;
use crate::controller::node_policies::pod_references::{
    PodReferences, ReferenceSchedule, ReferencesError, ReferencesOfPass,
};
use crate::controller::node_policies::policies::NodePolicies;
use crate::controller::node_policies::writer::Writer;

/// State of the RuntimeClass controller between passes.
pub struct ClassController {
    writer: Writer,
    back_off: WriteBackoff,
    schedule: ReferenceSchedule,
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
            back_off: WriteBackoff::new(back_off),
            schedule: ReferenceSchedule::new(every),
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
        references: &mut ReferencesOfPass<'_>,
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
        let doomed = || (plan.changes.iter()).filter(|change| matches!(change, ClassChange::Delete { .. }));
        if !doomed().all(|change| self.troubles.contains_key(change.name())) {
            // A class that has not been surveyed yet is surveyed soon.
            self.schedule.reset();
        }
        let mut alarms = Vec::new();
        let mut is_due = false;
        if doomed().next().is_some() {
            let (due, next) = self.schedule.is_due();
            alarms.push(next);
            is_due = due;
        }
        let mut known = None;
        if is_due {
            match references.get().await {
                Ok(references) => known = Some(references),
                Err(error) => doomed().for_each(|change| self.cannot_delete(change, error)),
            }
        }
        for change in &plan.changes {
            // A class that is not known to be unused stays.
            if known.is_some() || !matches!(change, ClassChange::Delete { .. }) {
                let known = known.unwrap_or(const { &PodReferences::none() });
                alarms.extend(self.carry_out(change, known).await);
            }
        }
        alarms.into_iter().min()
    }

    /// Records that it is unknown what names a class.
    fn cannot_delete(&mut self, change: &ClassChange, error: &ReferencesError) {
        let (name, policy) = (change.name(), change.policy());
        let why = format!(
            "RuntimeClass {name} is not deleted, because it is unknown which objects use it: {error}"
        );
        tracing::warn!(runtime_class = name, why, "RuntimeClass kept");
        self.troubles.insert(name.to_owned(), (policy.to_owned(), why));
    }

    /// Applies one change, unless its class is backing off; returns when to try again.
    async fn carry_out(&mut self, change: &ClassChange, references: &PodReferences) -> Option<Instant> {
        let name = change.name().to_owned();
        if let Some(at) = self.back_off.until(&name, Instant::now()) {
            return Some(at);
        }
        let policy = change.policy().to_owned();
        let done = carry_out(&self.writer, change, references).await;
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
}
