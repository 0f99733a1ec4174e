//! Pod policies: from what is stored to the set that reviews are judged by, and what each policy's status says of it.
//!
//! [`Policies`] is a value without a clock or a cluster; [`run`] carries out what it says.

mod labels;
mod registered;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::events::Recorder;
use kube::{Client, CustomResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;

pub use self::labels::{LabelNote, Teller};
pub use self::report::{Note, Report};

use crate::api::{DecodedPolicy, PolicyError, WindowsPodPolicy, decode_policy};
use crate::cluster::lease::Leadership;
use crate::cluster::view::ClusterView;
use crate::engine::effective::PolicySet;
use crate::model::policy::Policy;
use crate::registration::registered::Registered;

/// How often statuses are looked at when nothing changes in the cluster: exemptions expire by the day.
const LOOK: Duration = Duration::from_secs(60);
/// The pause after each look, so that a busy cluster, or one that refuses our writes, is not kept busier.
const PAUSE: Duration = Duration::from_secs(1);
/// The name that our writes carry in managedFields.
const FIELD_MANAGER: &str = "transom-policies";

/// What became of one stored policy.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
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
    /// It cannot be used and no good version of it has been seen since the start, so it does not count.
    Skipped {
        /// Why it cannot be used.
        error: PolicyError,
    },
}

impl Outcome {
    /// The version that counts.
    pub fn in_force(&self) -> Option<&DecodedPolicy> {
        match self {
            Outcome::InForce(decoded) | Outcome::LastGood { good: decoded, .. } => Some(decoded),
            Outcome::Skipped { .. } => None,
        }
    }
}

/// The last version of a policy that could be used.
#[derive(Clone, Debug)]
struct Good {
    /// Another policy of the same name has another uid.
    uid: String,
    generation: i64,
    decoded: DecodedPolicy,
}

/// The policies of the cluster, with the last good version of each. Where nothing is stored, the built-in policy counts
/// that denies and changes nothing.
#[derive(Debug)]
pub struct Policies {
    stored: BTreeMap<String, Arc<Value>>,
    good: BTreeMap<String, Good>,
    outcomes: BTreeMap<String, Outcome>,
    set: Arc<PolicySet>,
    /// What stands in the webhook configurations, once that is known.
    registered: Option<Arc<Registered>>,
}

impl Default for Policies {
    fn default() -> Self {
        Policies {
            stored: BTreeMap::new(),
            good: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            set: Arc::new(PolicySet::new(Vec::new(), Policy::cluster_default())),
            registered: None,
        }
    }
}

impl Policies {
    /// Takes in what is stored now; returns what reviews are to be judged by. The same set is returned, not only an
    /// equal one, as long as nothing changes that counts.
    pub fn update(&mut self, view: &ClusterView) -> Arc<PolicySet> {
        if is_same(&self.stored, &view.pod_policies) {
            return Arc::clone(&self.set);
        }
        let outcomes = view.pod_policies.iter();
        self.outcomes = outcomes
            .map(|(name, object)| (name.clone(), self.judge(name, object)))
            .collect();
        self.good.retain(|name, _| view.pod_policies.contains_key(name));
        self.stored.clone_from(&view.pod_policies);
        let in_force = self.outcomes.values().filter_map(Outcome::in_force);
        let stored = in_force.map(|decoded| decoded.policy.clone()).collect();
        let set = PolicySet::new(stored, Policy::cluster_default());
        if *self.set != set {
            self.set = Arc::new(set);
        }
        Arc::clone(&self.set)
    }

    /// Takes in what stands in the webhook configurations; `None` while that is not known.
    pub fn compare_with(&mut self, registered: Option<Arc<Registered>>) {
        self.registered = registered;
    }

    /// What became of each policy, by name, at the last update.
    pub fn outcomes(&self) -> &BTreeMap<String, Outcome> {
        &self.outcomes
    }

    fn judge(&mut self, name: &str, object: &Value) -> Outcome {
        let uid = text(object, "/metadata/uid");
        match decode_policy(object) {
            Ok(decoded) => {
                let good = Good {
                    uid: uid.to_owned(),
                    generation: generation(object),
                    decoded: decoded.clone(),
                };
                self.good.insert(name.to_owned(), good);
                Outcome::InForce(decoded)
            }
            Err(error) => match self.good.get(name).filter(|good| good.uid == uid) {
                Some(good) => Outcome::LastGood {
                    good: good.decoded.clone(),
                    generation: good.generation,
                    error,
                },
                None => Outcome::Skipped { error },
            },
        }
    }
}

fn is_same(one: &BTreeMap<String, Arc<Value>>, other: &BTreeMap<String, Arc<Value>>) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|((a, x), (b, y))| a == b && (Arc::ptr_eq(x, y) || x == y))
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn generation(object: &Value) -> i64 {
    object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// Writes statuses and Events while this replica leads. `policies` may be shared with whoever serves reviews, so that
/// both remember the same good versions. `registered` is what stands in the webhook configurations. Ends when nobody sends
/// views any more.
pub async fn run(
    client: Client,
    mut view: watch::Receiver<Arc<ClusterView>>,
    mut registered: watch::Receiver<Option<Arc<Registered>>>,
    policies: Arc<Mutex<Policies>>,
    leadership: Leadership,
    recorder: Recorder,
) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &WindowsPodPolicy::api_resource());
    let mut teller = Teller::default();
    // What the API server said last to the write of each status: a refusal that stays is logged once.
    let mut refused: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let now = Arc::clone(&view.borrow_and_update());
        let (set, reports) = {
            let mut policies = policies.lock().unwrap_or_else(PoisonError::into_inner);
            policies.compare_with(registered.borrow_and_update().clone());
            (policies.update(&now), policies.reports(&now, Timestamp::now()))
        };
        for report in reports {
            if !leadership.holds() {
                break;
            }
            let name = &report.name;
            match write(&api, &recorder, &report).await {
                Ok(()) => drop(refused.remove(name)),
                Err(error) => {
                    let error = error.to_string();
                    if refused.get(name) != Some(&error) {
                        tracing::warn!("cannot write the status of WindowsPodPolicy {name}: {error}");
                        refused.insert(name.clone(), error);
                    }
                }
            }
        }
        let more = leadership.holds() && teller.write(&client, &leadership, &set, &now).await;
        tokio::time::sleep(PAUSE).await;
        if more {
            continue;
        }
        tokio::select! {
            changed = view.changed() => if changed.is_err() { return },
            // Where nobody tells any more, what was told stays.
            Ok(()) = registered.changed() => (),
            () = tokio::time::sleep(LOOK) => (),
        }
    }
}

/// Writes one status, then its Events. A policy that has changed or gone meanwhile is left for the next look. An
/// Event that is refused is only logged.
async fn write(api: &Api<DynamicObject>, recorder: &Recorder, report: &Report) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"resourceVersion": report.resource_version}, "status": report.status});
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api
        .patch_status(&report.name, &params, &Patch::Merge(patch))
        .await
    {
        Ok(_) => (),
        Err(kube::Error::Api(refusal)) if refusal.code == 409 || refusal.code == 404 => return Ok(()),
        Err(error) => return Err(error),
    }
    for note in &report.notes {
        if let Err(error) = recorder.publish(&note.event(), &report.reference()).await {
            let (name, reason) = (&report.name, note.reason);
            tracing::warn!("cannot write the Event {reason} of WindowsPodPolicy {name}: {error}");
        }
    }
    Ok(())
}
