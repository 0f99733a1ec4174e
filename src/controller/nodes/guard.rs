//! The guard before the first taint: which workloads would no longer be scheduled, or would be evicted. Judged by the
//! engine, from raw JSON; the listing is in `survey`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Toleration as ClassToleration;
use serde::Deserialize;

use crate::controller::view::ClusterView;
use crate::engine::infer;
use crate::model::facts::{Facts, RuntimeClassFacts, Taint};
use crate::model::os::Verdict;
use crate::model::pod::Toleration;
use crate::model::policy::Policy;
use crate::model::subject::{Stage, Subject};
use crate::model::workload::Kind;

/// How many are named in a condition.
const NAMED: usize = 20;

/// Where an object is, and what it is called: namespace, kind, name.
type Place = (String, String, String);

/// Looks at one object after the other, and remembers who would be hurt.
pub struct Guard<'g> {
    taints: &'g [Taint],
    /// Whether placement changes pods of this namespace.
    placement: &'g (dyn Fn(&str) -> bool + Send + Sync),
    view: &'g ClusterView,
    windows_nodes: BTreeSet<&'g str>,
    facts: Facts,
    policy: Policy,
    /// What made a ReplicaSet or a Job, so that a pod's owner is named as a person knows it.
    owners: BTreeMap<Place, Place>,
    hurt: BTreeMap<Place, String>,
}

/// The parts of an object that the engine's view has no use for.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Around {
    metadata: AroundMeta,
    status: AroundStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AroundMeta {
    owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    api_version: String,
    controller: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AroundStatus {
    conditions: Option<Vec<StatusCondition>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusCondition {
    r#type: String,
    status: String,
}

impl Around {
    fn of(json: &str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }

    fn is(&self, condition: &str) -> bool {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions.any(|c| c.r#type == condition && c.status == "True")
    }

    /// The API version of the object's controller: there are other Jobs than those of `batch`.
    fn controller_version(self) -> String {
        let mut owners = self.metadata.owner_references.into_iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        controller.map(|owner| owner.api_version).unwrap_or_default()
    }
}

impl<'g> Guard<'g> {
    /// A guard for these taints, on these nodes.
    pub fn new(
        taints: &'g [Taint],
        nodes: impl IntoIterator<Item = &'g str>,
        view: &'g ClusterView,
        placement: &'g (dyn Fn(&str) -> bool + Send + Sync),
    ) -> Self {
        // Inference asks for no day.
        let mut facts = Facts::new(view.kubernetes, jiff::civil::Date::ZERO);
        for (name, class) in &view.runtime_classes {
            let selector = class.scheduling.as_ref().and_then(|s| s.node_selector.clone());
            let known = RuntimeClassFacts {
                handler: class.handler.clone(),
                node_selector: selector.unwrap_or_default(),
                has_overhead: class.overhead.is_some(),
            };
            facts.runtime_classes.insert(name.clone(), known);
        }
        Guard {
            taints,
            placement,
            view,
            windows_nodes: nodes.into_iter().collect(),
            facts,
            policy: Policy::standalone(),
            owners: BTreeMap::new(),
            hurt: BTreeMap::new(),
        }
    }

    /// Looks at one object.
    pub fn look(&mut self, kind: Kind, json: &str) {
        let subject = match Subject::parse(kind, json, Stage::Stored) {
            Ok(subject) => subject,
            Err(error) => {
                // It was stored, so something can be run from it.
                let place = (String::new(), kind.to_string(), "one of them".to_owned());
                self.hurt.insert(place, format!("cannot be read: {error}"));
                return;
            }
        };
        if subject.meta.deletion_timestamp.0 {
            return;
        }
        let place = (
            subject.namespace.to_string(),
            kind.to_string(),
            subject.meta.name.to_string(),
        );
        let owner = subject.meta.controller().map(|owner| {
            let known = Kind::of_api_version(&Around::of(json).controller_version(), &owner.kind);
            (
                (place.0.clone(), owner.kind.to_string(), owner.name.to_string()),
                known,
            )
        });
        match (kind, owner) {
            (Kind::Pod, owner) => self.look_at_pod(&subject, json, place, owner),
            // Its owner is judged, in its stead.
            (_, Some((owner, Some(known)))) if known.has_pod() => _ = self.owners.insert(place, owner),
            (Kind::Job, _) if is_finished(json) => {}
            _ => self.look_at_template(&subject, place),
        }
    }

    fn look_at_template(&mut self, subject: &Subject<'_>, place: Place) {
        if self.verdict(subject) != Verdict::Windows {
            return;
        }
        // A DaemonSet's controller reads the template: what placement does to its pods comes too late.
        let in_template = subject.kind == Kind::DaemonSet;
        let lacking = self.lacking(subject, in_template, !in_template);
        if !lacking.is_empty() {
            self.add(place, &lacking, "its template does not tolerate");
        }
    }

    fn look_at_pod(
        &mut self,
        subject: &Subject<'_>,
        json: &str,
        place: Place,
        owner: Option<(Place, Option<Kind>)>,
    ) {
        let Some(pod) = subject.pod() else { return };
        if subject.is_mirror() {
            return;
        }
        let node = pod.node_name.as_deref().unwrap_or_default();
        let on_windows = self.windows_nodes.contains(node);
        let verdict = self.verdict(subject);
        let evicting: Vec<Taint> = (self.lacking(subject, false, false).into_iter())
            .filter(|taint| taint.effect == "NoExecute")
            .collect();
        let owner_kind = owner.as_ref().and_then(|(_, kind)| *kind);
        // A pod that waits for a node was admitted already: neither placement nor another template helps it any more.
        // Those of a DaemonSet are made for a node, and made anew.
        let judged_at_owner =
            owner_kind.is_some_and(Kind::has_pod) && (pod.is_bound() || owner_kind == Some(Kind::DaemonSet));
        let waits_for_owner = owner_kind.is_some() && !pod.is_bound();
        let named = owner.map_or(place, |(owner, _)| {
            self.owners.get(&owner).cloned().unwrap_or(owner)
        });
        if on_windows && !evicting.is_empty() {
            self.add(
                named,
                &evicting,
                "its pods would be evicted, as they do not tolerate",
            );
            return;
        }
        if verdict == Verdict::Windows && !judged_at_owner {
            let lacking = self.lacking(subject, false, pod.is_bound());
            let why = if waits_for_owner {
                "pods of it wait for a node since before they were given a toleration: delete those pods, so that it \
                 makes new ones; they do not tolerate"
            } else {
                "it does not tolerate"
            };
            if !lacking.is_empty() {
                self.add(named, &lacking, why);
            }
        } else if on_windows
            && matches!(verdict, Verdict::Unknown | Verdict::Conflicting)
            && Around::of(json).is("Ready")
        {
            // Placement gives nothing to a pod that is not known to be for Windows.
            let lacking = self.lacking(subject, false, false);
            if !lacking.is_empty() {
                let why = "it selects no operating system, runs on a Windows node all the same, and does not tolerate";
                self.add(named, &lacking, why);
            }
        }
    }

    fn verdict(&self, subject: &Subject<'_>) -> Verdict {
        infer(subject, &self.facts, &self.policy).verdict
    }

    /// The taints that would keep the subject's pods away. `as_written`: what a RuntimeClass adds to the pod does not
    /// count. `placed`: placement adds tolerations where it applies.
    fn lacking(&self, subject: &Subject<'_>, as_written: bool, placed: bool) -> Vec<Taint> {
        let Some(pod) = subject.pod() else {
            return Vec::new();
        };
        let of_class = pod
            .runtime_class_name
            .as_deref()
            .filter(|_| !as_written)
            .and_then(|name| self.view.runtime_classes.get(name))
            .and_then(|class| class.scheduling.as_ref()?.tolerations.as_ref());
        (self.taints.iter())
            .filter(|taint| !pod.tolerations.iter().any(|t| taint.is_tolerated_by(t)))
            .filter(|taint| !of_class.into_iter().flatten().any(|t| tolerates(t, taint)))
            .filter(|taint| !(placed && self.is_placed(&subject.namespace, taint)))
            .filter(|taint| taint.effect != "PreferNoSchedule")
            .cloned()
            .collect()
    }

    /// Whether placement adds the toleration of this taint to the Windows pods of a namespace: it learns taints that
    /// say Windows and nothing else, and respects the namespace's whitelist.
    fn is_placed(&self, namespace: &str, taint: &Taint) -> bool {
        let whitelist = (self.view.namespaces.get(namespace))
            .and_then(|namespace| namespace.tolerations_whitelist.as_deref());
        let allowed = whitelist.is_none_or(|text| {
            serde_json::from_str::<Vec<Toleration<'_>>>(text).is_ok_and(|list| {
                list.is_empty() || list.iter().any(|toleration| taint.is_tolerated_by(toleration))
            })
        });
        taint.marks_windows() && allowed && (self.placement)(namespace)
    }

    fn add(&mut self, place: Place, lacking: &[Taint], why: &str) {
        let taints: Vec<String> = lacking.iter().map(ToString::to_string).collect();
        self.hurt
            .entry(place)
            .or_insert_with(|| format!("{why} {}", taints.join(", ")));
    }

    /// Who would be hurt; empty where nobody would.
    pub fn hurt(self) -> Hurt {
        let names = self.hurt.into_iter().map(|((namespace, kind, name), why)| {
            let place = if namespace.is_empty() {
                name
            } else {
                format!("{namespace}/{name}")
            };
            format!("{kind} {place} ({why})")
        });
        Hurt(names.collect())
    }
}

fn is_finished(json: &str) -> bool {
    let job = Around::of(json);
    job.is("Complete") || job.is("Failed")
}

fn tolerates(toleration: &ClassToleration, taint: &Taint) -> bool {
    taint.is_tolerated_by(&Toleration {
        key: toleration.key.as_deref().map(Into::into),
        operator: toleration.operator.as_deref().map(Into::into),
        value: toleration.value.as_deref().map(Into::into),
        effect: toleration.effect.as_deref().map(Into::into),
        toleration_seconds: toleration.toleration_seconds,
    })
}

/// Who would be hurt by taints, one text each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hurt(Vec<String>);

impl Hurt {
    /// Whether nobody is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What to tell people: who, what to write, and where the platform wants it.
    pub fn message(&self, taints: &[Taint]) -> String {
        let list: Vec<String> = taints.iter().map(ToString::to_string).collect();
        let many = if self.0.len() == 1 {
            "1 workload"
        } else {
            &format!("{} workloads", self.0.len())
        };
        let mut text = format!("not set: {}, because {many} would be hurt: ", list.join(", "));
        let named: Vec<&str> = self.0.iter().take(NAMED).map(String::as_str).collect();
        text.push_str(&named.join("; "));
        if self.0.len() > NAMED {
            let _ = write!(text, "; and {} more", self.0.len() - NAMED);
        }
        text.push_str(". Write in their pod templates: tolerations: [");
        for (i, taint) in taints.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let _ = match taint.value.as_str() {
                "" => write!(
                    text,
                    "{comma}{{key: {}, operator: Exists, effect: {}}}",
                    taint.key, taint.effect
                ),
                value => write!(
                    text,
                    "{comma}{{key: {}, operator: Equal, value: {}, effect: {}}}",
                    taint.key,
                    quoted(value),
                    taint.effect
                ),
            };
        }
        let first = taints.first().map(ToString::to_string).unwrap_or_default();
        let _ = write!(
            text,
            "]. It is looked at again within 15 minutes, and at once when the policy changes. Where a cloud made the nodes, set the taint on the pool too, because \
             clouds reset what they own: AKS az aks nodepool add --node-taints {first}; EKS taints of the managed node \
             group (eksctl: managedNodeGroups[].taints); GKE gcloud container node-pools create --node-taints {first}; \
             OpenShift spec.template.spec.taints of the Windows MachineSet (WMCO sets os=Windows:NoSchedule itself)"
        );
        text
    }
}

/// A value as YAML reads it as a string.
fn quoted(value: &str) -> String {
    let plain = value.starts_with(|c: char| c.is_ascii_alphabetic())
        && !["true", "false", "yes", "no", "on", "off", "null", "y", "n"]
            .contains(&value.to_ascii_lowercase().as_str());
    if plain {
        value.to_owned()
    } else {
        format!("\"{value}\"")
    }
}

#[cfg(test)]
mod tests;
