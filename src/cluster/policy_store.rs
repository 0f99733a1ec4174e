//! Stored pod policies: which apply as they are stored, and which apply in their last valid version; pure.
//!
//! The last valid version is kept in memory, and stored by the leader as a ControllerRevision for replicas that start
//! later.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::cache::equal;
use super::policy_revisions::{PolicyRevision, of_policy};
pub use super::policy_revisions::{generation, text};
use crate::api::{DecodedPolicy, PolicyError, decode_policy};
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::policy::Policy;

/// The state of one stored policy.
#[derive(Clone, PartialEq, Debug)]
pub enum PolicyState {
    /// It applies as it is stored, except for the parts that this version does not know.
    InForce(DecodedPolicy),
    /// It cannot be used, so its last valid version still applies.
    LastGood {
        good: DecodedPolicy,
        /// The generation of that version.
        generation: i64,
        /// Why the stored version cannot be used.
        error: PolicyError,
    },
    /// It cannot be used, and no valid version is known, so it does not apply.
    Skipped {
        /// Why it cannot be used.
        error: PolicyError,
    },
}

impl PolicyState {
    /// The version that applies, with its generation; `object` is the stored one.
    fn last_valid(&self, object: &Value) -> Option<(DecodedPolicy, i64)> {
        match self {
            PolicyState::InForce(decoded) => Some((decoded.clone(), generation(object))),
            PolicyState::LastGood { good, generation, .. } => Some((good.clone(), *generation)),
            PolicyState::Skipped { .. } => None,
        }
    }

    /// The version that applies.
    pub fn in_force(&self) -> Option<&DecodedPolicy> {
        match self {
            PolicyState::InForce(decoded) | PolicyState::LastGood { good: decoded, .. } => Some(decoded),
            PolicyState::Skipped { .. } => None,
        }
    }

    fn is_skipped(&self) -> bool {
        matches!(self, PolicyState::Skipped { .. })
    }
}

/// Revisions of policies, by their names.
type PolicyRevisions = BTreeMap<String, Arc<PolicyRevision>>;

/// The policies of the cluster, with the last valid version of each. If none is stored, the built-in policy applies,
/// which denies and changes nothing.
#[derive(Debug)]
pub struct PodPolicies {
    stored: BTreeMap<String, Arc<Value>>,
    outcomes: Arc<BTreeMap<String, PolicyState>>,
    set: Arc<PolicySet>,
}

impl Default for PodPolicies {
    fn default() -> Self {
        PodPolicies {
            stored: BTreeMap::new(),
            outcomes: Arc::default(),
            set: Arc::new(PolicySet::new(Vec::new(), Policy::cluster_default())),
        }
    }
}

impl PodPolicies {
    /// Updates from the stored policies. [`PodPolicies::set`] stays the same allocation as long as nothing that
    /// applies changes. An unchanged policy is not parsed again.
    pub fn update(&mut self, stored: &BTreeMap<String, Arc<Value>>, revisions: &PolicyRevisions) {
        // A skipped policy is tried again with every update, because its revisions may arrive later.
        if equal(&self.stored, stored) && !self.outcomes.values().any(PolicyState::is_skipped) {
            return;
        }
        let outcomes = stored.iter().map(|(name, object)| {
            let before = self.stored.get(name).map(|before| &**before);
            let known = before.zip(self.outcomes.get(name));
            (name.clone(), outcome(object, known, revisions))
        });
        let outcomes: BTreeMap<String, PolicyState> = outcomes.collect();
        self.stored.clone_from(stored);
        let in_force = outcomes.values().filter_map(PolicyState::in_force);
        let in_force = in_force.map(|decoded| Arc::clone(&decoded.policy)).collect();
        let set = PolicySet::of_shared(in_force, Policy::cluster_default());
        if *self.set != set {
            self.set = Arc::new(set);
        }
        if *self.outcomes != outcomes {
            self.outcomes = Arc::new(outcomes);
        }
    }

    /// The policies for reviews.
    pub fn set(&self) -> &Arc<PolicySet> {
        &self.set
    }

    /// The state of each policy, by name.
    pub fn outcomes(&self) -> &Arc<BTreeMap<String, PolicyState>> {
        &self.outcomes
    }
}

/// The state of a stored policy. `known`: the object that had its name before, and the state of that one.
fn outcome(
    object: &Value,
    known: Option<(&Value, &PolicyState)>,
    revisions: &PolicyRevisions,
) -> PolicyState {
    if let Some((before, state)) = known
        && before == object
        && !state.is_skipped()
    {
        return state.clone();
    }
    let error = match decode_policy(object) {
        Ok(decoded) => return PolicyState::InForce(decoded),
        Err(error) => error,
    };
    // Another uid is another policy of the same name.
    let uid = text(object, "/metadata/uid");
    let in_memory = known.filter(|(before, _)| text(before, "/metadata/uid") == uid);
    let in_memory = in_memory.and_then(|(before, state)| state.last_valid(before));
    match in_memory.or_else(|| last_stored(object, revisions)) {
        Some((good, generation)) => PolicyState::LastGood {
            good,
            generation,
            error,
        },
        None => PolicyState::Skipped { error },
    }
}

/// The newest revision before the stored policy that this program can use. A revision of the stored generation, or of a
/// later one, is not an earlier version.
fn last_stored(object: &Value, revisions: &PolicyRevisions) -> Option<(DecodedPolicy, i64)> {
    let stored = generation(object);
    let all = of_policy(revisions, text(object, "/metadata/uid"));
    let mut earlier = (all.into_iter()).filter(|(_, revision)| revision.generation < stored);
    earlier.find_map(|(_, revision)| {
        let spec: Value = serde_json::from_str(&revision.spec).ok()?;
        let version = json!({"metadata": object.get("metadata"), "spec": spec});
        Some((decode_policy(&version).ok()?, revision.generation))
    })
}

/// Whether the status of a stored policy says that a version of it applies: then the leader could read it, or uses a
/// version that it read before.
pub fn was_accepted(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let accepted = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == "Accepted");
    accepted.is_some_and(|accepted| accepted["status"] == "True" || accepted["reason"] == "UsingLastValid")
}
