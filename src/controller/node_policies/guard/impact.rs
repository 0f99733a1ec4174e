//! What people are told of a taint that was not set: which workloads would be hurt, and what to write so that none is.

use std::fmt::Write as _;

use crate::model::node::Taint;
use crate::model::text::{cut, list};

/// How many are named in one line.
const BRIEF: usize = 3;

/// How many are named in a condition.
const NAMED: usize = 20;

/// How many are named beside one remedy.
const NAMED_AGAIN: usize = 5;

/// A workload that would be hurt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AffectedWorkload {
    /// Kind, namespace and name.
    pub name: String,
    /// Why.
    pub why: String,
    /// What to write; `None` where it could not be read.
    pub remedy: Option<Remedy>,
}

/// What to write in a pod template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// It selects Windows nodes.
    Tolerate,
    /// It is for Windows, and nothing tells the scheduler.
    SelectWindows,
    /// It is for Linux, and nothing tells the scheduler.
    SelectLinux,
    /// It gives no sign, or signs that contradict each other.
    Say,
}

impl Remedy {
    const ALL: [Remedy; 4] = [
        Remedy::Tolerate,
        Remedy::SelectWindows,
        Remedy::SelectLinux,
        Remedy::Say,
    ];

    fn text(self, tolerations: &str) -> String {
        const LINUX: &str = "nodeSelector: {kubernetes.io/os: linux}";
        let windows = format!("nodeSelector: {{kubernetes.io/os: windows}} and {tolerations}");
        match self {
            Remedy::Tolerate => tolerations.to_owned(),
            Remedy::SelectWindows => windows,
            Remedy::SelectLinux => LINUX.to_owned(),
            Remedy::Say => format!("where it is for Windows {windows}, where it is for Linux {LINUX}"),
        }
    }
}

/// The workloads that would be hurt by taints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Impact(pub(super) Vec<AffectedWorkload>);

impl Impact {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn opening(&self, taints: &[Taint]) -> String {
        let list: Vec<String> = taints.iter().map(ToString::to_string).collect();
        let many = match self.0.len() {
            1 => "1 workload".to_owned(),
            count => format!("{count} workloads"),
        };
        format!("not set: {}, because {many} would be hurt: ", list.join(", "))
    }

    /// The same as [`Impact::message`] in one line: the first names, and how many more there are.
    pub fn brief(&self, taints: &[Taint]) -> String {
        let names = self.0.iter().map(|victim| victim.name.as_str());
        let names = list(names, BRIEF);
        let opening = self.opening(taints);
        let opening = cut(&opening, 200);
        format!("{opening}{names}; the condition TaintsRefused says why, and what to write")
    }

    /// What to tell people: which workloads, what to write, and where the platform wants it.
    pub fn message(&self, taints: &[Taint]) -> String {
        let mut text = self.opening(taints);
        for (i, victim) in self.0.iter().take(NAMED).enumerate() {
            let comma = if i > 0 { "; " } else { "" };
            let _ = write!(text, "{comma}{} ({})", victim.name, victim.why);
        }
        if self.0.len() > NAMED {
            let _ = write!(text, "; and {} more", self.0.len() - NAMED);
        }
        let tolerations = tolerations(taints);
        for remedy in Remedy::ALL {
            let of_it = self.0.iter().filter(|victim| victim.remedy == Some(remedy));
            let names: Vec<&str> = of_it.map(|victim| victim.name.as_str()).collect();
            if !names.is_empty() {
                let whose = if names.len() == self.0.len() {
                    "their pod templates".to_owned()
                } else {
                    format!("the pod templates of {}", list(names, NAMED_AGAIN))
                };
                let _ = write!(text, ". Write in {whose}: {}", remedy.text(&tolerations));
            }
        }
        let first = taints.first().map(ToString::to_string).unwrap_or_default();
        let _ = write!(
            text,
            ". It is checked again within a minute after a workload that is named here changes, at least every 15 minutes, \
             and immediately when the policy changes. Where a cloud made the nodes, set \
             the taint on the pool too, because clouds reset what they own: AKS az aks nodepool add --node-taints {first}; \
             EKS taints of the managed node group (eksctl: managedNodeGroups[].taints); GKE gcloud container node-pools \
             create --node-taints {first}; OpenShift spec.template.spec.taints of the Windows MachineSet (WMCO sets \
             os=Windows:NoSchedule itself)"
        );
        text
    }
}

/// The tolerations of taints as YAML in one line.
fn tolerations(taints: &[Taint]) -> String {
    let each = taints.iter().map(|taint| {
        let Taint { key, value, effect } = taint;
        if value.is_empty() {
            format!("{{key: {key}, operator: Exists, effect: {effect}}}")
        } else {
            format!(
                "{{key: {key}, operator: Equal, value: {}, effect: {effect}}}",
                quoted(value)
            )
        }
    });
    format!("tolerations: [{}]", each.collect::<Vec<_>>().join(", "))
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
