//! The message about a taint that was not set: which workloads would be affected, and what to write to prevent that.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::api::{TAINTS_BLOCKED, WORKLOADS_EXCLUDED};
use crate::model::nodes::node::Taint;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::text::{count, cut, list};
use crate::model::windows::os::{Inference, Verdict};

/// How many workloads the short message names.
const BRIEF: usize = 3;

/// How many workloads a condition names.
const NAMED: usize = 20;

/// How many workloads are named with one remedy.
const NAMED_AGAIN: usize = 5;

/// How a workload would be affected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AffectedWorkload {
    pub why: String,
    /// What to write; `None` if it could not be read.
    pub remedy: Option<Remedy>,
    /// Its generation, if its own object was read.
    pub generation: Option<i64>,
}

/// What to write in a pod template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// It selects Windows nodes: add a toleration.
    Tolerate,
    /// It is for Windows, but the scheduler cannot see that.
    SelectWindows,
    /// It is for Linux, but the scheduler cannot see that.
    SelectLinux,
    /// It has no evidence of its operating system, or contradicting evidence.
    StateOs,
}

impl Remedy {
    const ALL: [Remedy; 4] = [
        Remedy::Tolerate,
        Remedy::SelectWindows,
        Remedy::SelectLinux,
        Remedy::StateOs,
    ];

    fn text(self, tolerations: &str) -> String {
        const LINUX: &str = "nodeSelector: {kubernetes.io/os: linux}";
        let windows = format!("nodeSelector: {{kubernetes.io/os: windows}} and {tolerations}");
        match self {
            Remedy::Tolerate => tolerations.to_owned(),
            Remedy::SelectWindows => windows,
            Remedy::SelectLinux => LINUX.to_owned(),
            Remedy::StateOs => format!("if it is for Windows {windows}, if it is for Linux {LINUX}"),
        }
    }
}

/// What the author of a pod or template should write. `in_template`: what a RuntimeClass selects is ignored.
pub(super) fn remedy(inference: &Inference, in_template: bool) -> Remedy {
    match inference.verdict {
        Verdict::Windows if inference.selects_nodes(in_template) => Remedy::Tolerate,
        Verdict::Windows => Remedy::SelectWindows,
        Verdict::Linux => Remedy::SelectLinux,
        Verdict::Unknown | Verdict::Conflicting => Remedy::StateOs,
    }
}

/// The workloads that taints would affect.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Impact(pub(super) BTreeMap<WorkloadName, AffectedWorkload>);

impl Impact {
    /// Adds those that are not in it yet.
    pub(super) fn add(&mut self, other: Impact) {
        for (place, affected) in other.0 {
            self.0.entry(place).or_insert(affected);
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn opening(&self, taints: &[Taint]) -> String {
        let many = count(self.0.len(), "workload");
        format!("not set: {}, because {many} would be affected: ", texts(taints))
    }

    fn opening_of_carried(&self, taints: &[Taint]) -> String {
        let many = count(self.0.len(), "workload");
        format!(
            "{} keeps new pods of {many} off nodes that carry it: ",
            texts(taints)
        )
    }

    /// The first names, and the number of others.
    fn brief(&self, opening: &str, condition: &str) -> String {
        let names = list(self.0.keys().map(ToString::to_string), BRIEF);
        let opening = cut(opening, 200);
        format!("{opening}{names}; the condition {condition} gives the reasons and the remedies")
    }

    /// The short form of [`Impact::message`].
    pub fn brief_of_missing(&self, taints: &[Taint]) -> String {
        self.brief(&self.opening(taints), TAINTS_BLOCKED)
    }

    /// The short form of [`Impact::message_of_carried`].
    pub fn brief_of_carried(&self, taints: &[Taint]) -> String {
        self.brief(&self.opening_of_carried(taints), WORKLOADS_EXCLUDED)
    }

    /// Each workload and why, and what to write, and in which field.
    fn details(&self, taints: &[Taint]) -> String {
        let mut text = String::new();
        for (i, (place, affected)) in self.0.iter().take(NAMED).enumerate() {
            let comma = if i > 0 { "; " } else { "" };
            let _ = write!(text, "{comma}{place} ({})", affected.why);
        }
        if self.0.len() > NAMED {
            let _ = write!(text, "; and {} more", self.0.len() - NAMED);
        }
        let tolerations = tolerations(taints);
        for remedy in Remedy::ALL {
            let of_it = (self.0.iter()).filter(|(_, affected)| affected.remedy == Some(remedy));
            let names: Vec<String> = of_it.map(|(place, _)| place.to_string()).collect();
            if !names.is_empty() {
                let whose = if names.len() == self.0.len() {
                    "their pod templates".to_owned()
                } else {
                    format!("the pod templates of {}", list(names, NAMED_AGAIN))
                };
                let _ = write!(text, ". Write in {whose}: {}", remedy.text(&tolerations));
            }
        }
        text
    }

    /// The message about taints that are not set: which workloads, what to write, and in which field.
    pub fn message(&self, taints: &[Taint]) -> String {
        let first = taints.first().map(ToString::to_string).unwrap_or_default();
        format!(
            "{}{}. It is checked again within a minute after a workload that is named here changes, at least every 15 minutes, \
             and immediately when the policy changes. If a cloud created the nodes, set \
             the taint on the pool too, because clouds reset what they own: AKS az aks nodepool add --node-taints {first}; \
             EKS taints of the managed node group (eksctl: managedNodeGroups[].taints); GKE gcloud container node-pools \
             create --node-taints {first}; OpenShift spec.template.spec.taints of the Windows MachineSet (WMCO sets \
             os=Windows:NoSchedule itself)",
            self.opening(taints),
            self.details(taints)
        )
    }

    /// The message about taints that nodes carry.
    pub fn message_of_carried(&self, taints: &[Taint]) -> String {
        format!(
            "{}{}. If placement should add the toleration, check spec.placement of the WindowsPodPolicy of the namespace, and \
             the namespace's labels. If workloads run on such nodes now, or other nodes lack the taint and placement therefore \
             withholds the toleration, Transom removes the taint there after a second check a minute later. It is checked \
             again when policies, webhooks, namespaces, RuntimeClasses or groups of nodes change",
            self.opening_of_carried(taints),
            self.details(taints)
        )
    }
}

/// Taints as one list.
fn texts(taints: &[Taint]) -> String {
    let each: Vec<String> = taints.iter().map(ToString::to_string).collect();
    each.join(", ")
}

/// The tolerations of taints as YAML in one line.
fn tolerations(taints: &[Taint]) -> String {
    let each = taints.iter().map(Taint::toleration_yaml);
    format!("tolerations: [{}]", each.collect::<Vec<_>>().join(", "))
}
