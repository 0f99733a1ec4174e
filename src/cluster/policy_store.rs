//! Stored pod policies: which of them count as they are stored, and which as they were when they could last be used; pure.
//!
//! That version is kept in memory, and by the leader as a ControllerRevision, where a replica that starts finds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::revisions::{StoredRevision, of_policy};
pub use super::revisions::{generation, text};
use crate::api::{DecodedPolicy, PolicyError, decode_policy};
use crate::engine::policy_set::PolicySet;
use crate::model::policy::Policy;

/// What became of one stored policy.
#[derive(Clone, PartialEq, Debug)]
pub enum PolicyState {
    /// It counts as it is stored, except for what this version does not know.
    InForce(DecodedPolicy),
    /// It cannot be used, so its last good version goes on counting.
    LastGood {
        /// That version.
        good: DecodedPolicy,
        /// The generation of that version.
        generation: i64,
        /// Why the one that is stored cannot be used.
        error: PolicyError,
    },
    /// It cannot be used, and no good version of it has been seen or is kept, so it does not count.
    Skipped {
        /// Why it cannot be used.
        error: PolicyError,
    },
}

impl PolicyState {
    /// The version that counts.
    pub fn in_force(&self) -> Option<&DecodedPolicy> {
        match self {
            PolicyState::InForce(decoded) | PolicyState::LastGood { good: decoded, .. } => Some(decoded),
            PolicyState::Skipped { .. } => None,
        }
    }
}

/// The last version of a policy that could be used.
#[derive(Clone, Debug)]
struct LastValidPolicy {
    /// Another policy of the same name has another uid.
    uid: String,
    generation: i64,
    decoded: DecodedPolicy,
}

impl LastValidPolicy {
    /// The newest version before the stored one that is kept as a revision and that this program can use.
    fn kept(object: &Value, revisions: &PolicyRevisions) -> Option<Self> {
        let uid = text(object, "/metadata/uid");
        let stored = generation(object);
        let mut earlier = of_policy(revisions, uid).into_iter();
        earlier.find_map(|(_, revision)| {
            // What has the generation that is stored, or a later one, is not an earlier version.
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

/// The kept versions of policies, by the names of their revisions.
type PolicyRevisions = BTreeMap<String, Arc<StoredRevision>>;

/// The policies of the cluster, with the last good version of each. Where none is stored, the built-in policy counts
/// that denies and changes nothing.
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
    /// Takes in what is stored now. [`PodPolicies::set`] stays the same set, not only an equal one, as long as nothing
    /// changes that counts. A policy that has not changed is not read again.
    pub fn update(&mut self, stored: &BTreeMap<String, Arc<Value>>, revisions: &PolicyRevisions) {
        // A revision is read only where the stored version cannot be used and no other is known.
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

    /// What reviews are to be judged by.
    pub fn set(&self) -> &Arc<PolicySet> {
        &self.set
    }

    /// What became of each policy, by name.
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

/// Whether the status of a stored policy says that a version of it counts: so the leader has read it, or goes on by one
/// that it has seen.
pub fn was_accepted(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let accepted = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == "Accepted");
    accepted.is_some_and(|accepted| {
        accepted["status"] == "True" || accepted["reason"] == "PreviousVersionApplies"
    })
}
