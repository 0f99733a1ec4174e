//! One reconcile pass of the RuntimeClasses: writes what is due, and keeps what could not be changed for the policy's
//! status.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::write::{ClassWriteResult, carry_out};
use super::{ClassChange, ClassPlan, ClassesOfPolicy};
use crate::cluster::errors::ApiError;
use crate::cluster::rate_limit::WriteBackoff;
use crate::controller::node_policies::pod_references::{
    PodReferences, ReferenceSchedule, ReferencesError, ReferencesOfPass,
};
use crate::controller::writer::Writer;

/// State of the RuntimeClass controller between passes.
pub struct ClassController {
    writer: Writer,
    back_off: WriteBackoff,
    schedule: ReferenceSchedule,
    /// The classes that differ from their desired state, by name.
    troubles: BTreeMap<String, ClassTrouble>,
    by_policy: BTreeMap<String, ClassesOfPolicy>,
}

/// Why a class differs from its desired state.
struct ClassTrouble {
    /// The policy that reports it.
    policy: String,
    message: String,
    /// What the API server says, if a right is missing.
    forbidden: Option<String>,
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
        let troubles: Vec<&ClassTrouble> = (self.troubles.values())
            .filter(|trouble| trouble.policy == policy)
            .collect();
        let planned = self.by_policy.get(policy).cloned();
        if planned.is_none() && troubles.is_empty() {
            return None;
        }
        let mut state = planned.unwrap_or_default();
        state.forbidden = troubles.iter().find_map(|trouble| trouble.forbidden.clone());
        (state.problems).extend(troubles.iter().map(|trouble| trouble.message.clone()));
        Some(state)
    }

    /// Carries out a plan, after the nodes were written. Returns when the next pass is due if nothing changes until then.
    pub async fn pass(&mut self, plan: ClassPlan, references: &mut ReferencesOfPass<'_>) -> Option<Instant> {
        self.by_policy = plan.by_policy;
        let names: BTreeSet<&str> = plan.changes.iter().map(|change| &*change.name).collect();
        self.troubles.retain(|name, _| names.contains(name.as_str()));
        let doomed = || (plan.changes.iter()).filter(|change| change.why_deleted.is_some());
        if !doomed().all(|change| self.troubles.contains_key(&change.name)) {
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
            let began = Instant::now();
            let read = references.get().await;
            self.schedule.asked(began);
            match read {
                Ok(references) => known = Some(references),
                Err(error) => doomed().for_each(|change| self.cannot_delete(change, error)),
            }
        }
        let none = PodReferences::default();
        for change in &plan.changes {
            // A class that is not known to be unused stays.
            if known.is_some() || change.why_deleted.is_none() {
                alarms.extend(self.carry_out(change, known.unwrap_or(&none)).await);
            }
        }
        alarms.into_iter().min()
    }

    /// Records that it is unknown what names a class.
    fn cannot_delete(&mut self, change: &ClassChange, error: &ReferencesError) {
        let name = &change.name;
        let why = format!(
            "RuntimeClass {name} is not deleted, because it is unknown which objects use it: {error}"
        );
        tracing::warn!(runtime_class = name, why, "RuntimeClass kept");
        self.note(change, why, None);
    }

    fn note(&mut self, change: &ClassChange, message: String, forbidden: Option<String>) {
        let trouble = ClassTrouble {
            policy: change.policy.clone(),
            message,
            forbidden,
        };
        self.troubles.insert(change.name.clone(), trouble);
    }

    /// Applies one change, unless its class is backing off; returns when to try again.
    async fn carry_out(&mut self, change: &ClassChange, references: &PodReferences) -> Option<Instant> {
        let name = &change.name;
        if let Some(at) = self.back_off.until(name, Instant::now()) {
            return Some(at);
        }
        let done = carry_out(&self.writer, change, references).await;
        if !matches!(done, ClassWriteResult::InUse(_)) {
            self.back_off.wrote(name, Instant::now());
        }
        let again = self.back_off.until(name, Instant::now());
        match done {
            ClassWriteResult::Yes => {
                self.troubles.remove(name);
                None
            }
            ClassWriteResult::Later => again,
            ClassWriteResult::InUse(why) => {
                let known = self.troubles.get(name);
                if known.is_none_or(|trouble| trouble.message != why) {
                    tracing::info!(runtime_class = name, why, "RuntimeClass kept");
                }
                self.note(change, why, None);
                None
            }
            ClassWriteResult::Failed(error) => {
                let message = format!("cannot {} {name}: {error}", change.verb());
                tracing::warn!(runtime_class = name, why = message, "RuntimeClass not written");
                let forbidden = match error {
                    ApiError::Forbidden(why) => Some(why),
                    _ => None,
                };
                self.note(change, message, forbidden);
                again
            }
        }
    }
}
