//! Stored pod policies: which apply as they are stored, and which apply in their last valid version; pure.
//!
//! The last valid version is kept in memory, and stored by the leader as a ControllerRevision for replicas that start
//! later.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::revisions::{StoredRevision, of_policy};
pub use super::revisions::{generation, text};
use crate::api::{DecodedPolicy, PolicyError, decode_policy};
use crate::engine::policy_set::PolicySet;
use crate::model::policy::Policy;

/// The state of one stored policy.
#[derive(Clone, PartialEq, Debug)]
pub enum PolicyState {
    /// It applies as it is stored, except for the parts that this version does not know.
    InForce(DecodedPolicy),
    /// It cannot be used, so its last valid version still applies.
    LastGood {
        /// That version.
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
    /// The version that applies.
    pub fn in_force(&self) -> Option<&DecodedPolicy> {
        match self {
            PolicyState::InForce(decoded) | PolicyState::LastGood { good: decoded, .. } => Some(decoded),
            PolicyState::Skipped { .. } => None,
        }
    }
}

/// The last valid version of a policy.
#[derive(Clone, Debug)]
struct LastValidPolicy {
    /// Distinguishes another policy of the same name.
    uid: String,
    generation: i64,
    decoded: DecodedPolicy,
}

impl LastValidPolicy {
    /// The newest stored revision before the stored policy that this program can use.
    fn kept(object: &Value, revisions: &PolicyRevisions) -> Option<Self> {
        let uid = text(object, "/metadata/uid");
        let stored = generation(object);
        let mut earlier = of_policy(revisions, uid).into_iter();
        earlier.find_map(|(_, revision)| {
            // A revision of the stored generation, or of a later one, is not an earlier version.
            if revision.generation >= stored {
                return None;
            }
            let spec: Value = serde_json::from_str(&revision.spec).ok()?;
            let version = json!({"metadata": object.get("metadata"), "spec": spec});
            Some(LastValidPolicy {
                uid: uid.to_owned(),
                generation: revision.generation,
                decoded: decode_policy(&version).ok()?,
            })
        })
    }
}

/// Revisions of policies, by their names.
type PolicyRevisions = BTreeMap<String, Arc<StoredRevision>>;

/// The policies of the cluster, with the last valid version of each. If none is stored, the built-in policy applies,
/// which denies and changes nothing.
#[derive(Debug)]
pub struct PodPolicies {
    stored: BTreeMap<String, Arc<Value>>,
    good: BTreeMap<String, LastValidPolicy>,
    outcomes: Arc<BTreeMap<String, PolicyState>>,
    set: Arc<PolicySet>,
}

impl Default for PodPolicies {
    fn default() -> Self {
        PodPolicies {
            stored: BTreeMap::new(),
            good: BTreeMap::new(),
            outcomes: Arc::default(),
            set: Arc::new(PolicySet::new(Vec::new(), Policy::cluster_default())),
        }
    }
}

impl PodPolicies {
    /// Updates from the stored policies. [`PodPolicies::set`] stays the same allocation as long as nothing that
    /// applies changes. An unchanged policy is not parsed again.
    pub fn update(&mut self, stored: &BTreeMap<String, Arc<Value>>, revisions: &PolicyRevisions) {
        // A revision is parsed only if the stored version cannot be used and no other one is known.
        let skips = |outcome: &PolicyState| matches!(outcome, PolicyState::Skipped { .. });
        if is_same(&self.stored, stored) && !self.outcomes.values().any(skips) {
            return;
        }
        let known = Arc::clone(&self.outcomes);
        let outcomes = stored.iter().map(|(name, object)| {
            let unchanged = self.stored.get(name).is_some_and(|before| before == object);
            let known = known.get(name).filter(|known| unchanged && !skips(known));
            let outcome = known.map_or_else(|| self.outcome(name, object, revisions), PolicyState::clone);
            (name.clone(), outcome)
        });
        let outcomes: BTreeMap<String, PolicyState> = outcomes.collect();
        self.good.retain(|name, _| stored.contains_key(name));
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

    fn outcome(&mut self, name: &str, object: &Arc<Value>, revisions: &PolicyRevisions) -> PolicyState {
        let uid = text(object, "/metadata/uid");
        match decode_policy(object) {
            Ok(decoded) => {
                let good = LastValidPolicy {
                    uid: uid.to_owned(),
                    generation: generation(object),
                    decoded: decoded.clone(),
                };
                self.good.insert(name.to_owned(), good);
                PolicyState::InForce(decoded)
            }
            Err(error) => {
                let seen = self.good.remove(name).filter(|good| good.uid == uid);
                let Some(good) = seen.or_else(|| LastValidPolicy::kept(object, revisions)) else {
                    return PolicyState::Skipped { error };
                };
                let outcome = PolicyState::LastGood {
                    good: good.decoded.clone(),
                    generation: good.generation,
                    error,
                };
                self.good.insert(name.to_owned(), good);
                outcome
            }
        }
    }
}

fn is_same(one: &BTreeMap<String, Arc<Value>>, other: &BTreeMap<String, Arc<Value>>) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|((a, x), (b, y))| a == b && (Arc::ptr_eq(x, y) || x == y))
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
