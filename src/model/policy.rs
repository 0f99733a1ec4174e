//! The policy: what is to be done for one subject, with everything resolved that depends on who, where and when.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::named::named;
use super::node::{
    BUILD_LABEL, Host, OS_SKU_EFFECTIVE_LABEL, OS_SKU_LABEL, OS_SKU_REQUESTED_LABEL, TRUSTED_BUILD_LABEL,
    Taint,
};
use super::os::Os;
use super::severity::Severity;

named! {
    /// What findings do. Ordered: what comes later is stricter.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
    pub enum Action {
        /// Nothing at all; the rule does not run.
        Off = "Off",
        /// Nothing that the user sees: audit annotations, log, metrics.
        Audit = "Audit",
        /// A kubectl warning.
        Warn = "Warn",
        /// A denial.
        Deny = "Deny",
    }
}

impl Action {
    /// What a finding of this severity does unless the policy says otherwise.
    pub fn of_severity(severity: Severity) -> Action {
        match severity {
            Severity::Error => Action::Deny,
            Severity::Warning => Action::Warn,
            Severity::Advice => Action::Audit,
        }
    }
}

named! {
    /// What edits do. Ordered: what comes later does more.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
    pub enum Switch {
        /// No edits are planned.
        Off = "Off",
        /// Edits are planned and reported.
        DryRun = "DryRun",
        /// Edits are applied.
        Apply = "Apply",
    }
}

named! {
    /// What becomes of an inert field: one that Windows ignores, that keeps no pod from running, and that the API server
    /// takes as long as the pod does not say `spec.os.name: windows`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    pub enum Inert {
        /// It is denied, as every other error.
        Deny = "Deny",
        /// It is warned of.
        Warn = "Warn",
        /// It is denied, and what repair would take out is told.
        DryRun = "DryRun",
        /// It is taken out of pods.
        Repair = "Repair",
    }
}

impl Inert {
    /// What the finding of an inert field does at most.
    pub fn most(self) -> Action {
        if self == Inert::Warn {
            Action::Warn
        } else {
            Action::Deny
        }
    }
}

/// What happens to a Linux pod that could land on a Windows node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ReverseGuard {
    /// Nothing.
    Off,
    /// A warning.
    Warn,
    /// It gets the Linux selector.
    Apply,
}

/// The parts of placement, each on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::struct_excessive_bools)] // five independent switches of the custom resource
pub struct PlacementParts {
    /// The nodeSelector `kubernetes.io/os`.
    pub os: bool,
    /// `spec.os.name`.
    pub os_field: bool,
    /// Tolerations of the Windows nodes' taints.
    pub tolerations: bool,
    /// The build: nodeSelector or affinity.
    pub build: bool,
    /// `runtimeClassName`.
    pub runtime_class: bool,
}

impl PlacementParts {
    /// Every part.
    pub const ALL: PlacementParts = PlacementParts {
        os: true,
        os_field: true,
        tolerations: true,
        build: true,
        runtime_class: true,
    };
}

/// A label of node pools that tells the operating system; the value may end in `*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolLabel {
    /// The label's key.
    pub key: String,
    /// Its value, compared without regard to case; a trailing `*` stands for anything.
    pub value: String,
}

impl PoolLabel {
    /// Whether a nodeSelector entry says Windows by this label.
    pub fn matches(&self, key: &str, value: &str) -> bool {
        key == self.key
            && match self.value.strip_suffix('*') {
                Some(prefix) => value
                    .get(..prefix.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(prefix)),
                None => value.eq_ignore_ascii_case(&self.value),
            }
    }
}

/// An exemption that is in force for the subject at hand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exemption {
    /// The ids of the rules that it lifts; empty: every rule.
    pub rules: Vec<&'static str>,
    /// Image patterns (`*` stands for anything); only findings in containers with such an image. Empty: everywhere.
    pub images: Vec<String>,
    /// Who answers for it, and why: for the audit log.
    pub note: String,
}

/// What is to be done for one subject.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// The name of the WindowsPodPolicy, or of the built-in default.
    pub name: String,
    /// What findings do at most.
    pub validation: Action,
    /// What placement edits do.
    pub placement: Switch,
    /// The parts of placement.
    pub parts: PlacementParts,
    /// What becomes of inert fields.
    pub inert: Inert,
    /// The guard of Linux pods.
    pub reverse_guard: ReverseGuard,
    /// Actions by rule id, where they differ from what the severity says.
    pub actions: BTreeMap<&'static str, Action>,
    /// Pool labels that say Windows.
    pub pool_labels: Vec<PoolLabel>,
    /// Whether images are evidence.
    pub image_evidence: bool,
    /// The operating system of pods that give no sign.
    pub namespace_default_os: Option<Os>,
    /// Taints that pools scaled to zero will carry: tolerated by Windows pods.
    pub taints: Vec<Taint>,
    /// Pools that may be at zero.
    pub pools: Vec<Host>,
    /// Whether the build is required by the label that a kubelet cannot write.
    pub trusted_build_label: bool,
    /// RuntimeClasses by release (`ltsc2022`).
    pub runtime_classes: BTreeMap<String, String>,
    /// Users that are controllers of Kubernetes' workloads, beside those that are known.
    pub controllers: Vec<String>,
    /// Exemptions in force.
    pub exemptions: Vec<Exemption>,
}

impl Policy {
    /// What a cluster gets that has no policy stored: nothing is denied, nothing is changed, all is reported.
    pub fn cluster_default() -> Self {
        Policy {
            validation: Action::Audit,
            placement: Switch::DryRun,
            ..Policy::standalone()
        }
    }

    /// What `serve --standalone` and `check` use: Deny and Apply.
    pub fn standalone() -> Self {
        Policy {
            name: "built-in".to_owned(),
            validation: Action::Deny,
            placement: Switch::Apply,
            parts: PlacementParts::ALL,
            inert: Inert::Deny,
            reverse_guard: ReverseGuard::Off,
            actions: BTreeMap::new(),
            pool_labels: Policy::well_known_pool_labels(),
            image_evidence: true,
            namespace_default_os: None,
            taints: vec![Taint::no_schedule("os", "windows")],
            pools: Vec::new(),
            trusted_build_label: false,
            runtime_classes: BTreeMap::new(),
            controllers: Vec::new(),
            exemptions: Vec::new(),
        }
    }

    /// The pool labels of AKS, GKE and OpenShift that say Windows.
    pub fn well_known_pool_labels() -> Vec<PoolLabel> {
        [
            (OS_SKU_LABEL, "Windows*"),
            (OS_SKU_EFFECTIVE_LABEL, "Windows*"),
            (OS_SKU_REQUESTED_LABEL, "Windows*"),
            ("cloud.google.com/gke-os-distribution", "windows_*"),
            ("node.openshift.io/os_id", "Windows"),
        ]
        .map(|(key, value)| PoolLabel {
            key: key.to_owned(),
            value: value.to_owned(),
        })
        .into()
    }

    /// What a finding of the rule with this id, and of this severity, does where `validation` is Deny.
    ///
    /// The effective action is the weaker of this and `validation`.
    pub fn rule_action(&self, rule: &str, severity: Severity) -> Action {
        self.actions
            .get(rule)
            .copied()
            .unwrap_or_else(|| Action::of_severity(severity))
    }

    /// The label by which placement requires builds.
    pub fn build_label(&self) -> &'static str {
        if self.trusted_build_label {
            TRUSTED_BUILD_LABEL
        } else {
            BUILD_LABEL
        }
    }

    /// Whether the rule with this id does not run at all.
    pub fn is_off(&self, rule: &str) -> bool {
        self.actions.get(rule) == Some(&Action::Off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_labels_match_by_prefix_without_regard_to_case() {
        let label = PoolLabel {
            key: "kubernetes.azure.com/os-sku".into(),
            value: "Windows*".into(),
        };
        assert!(label.matches("kubernetes.azure.com/os-sku", "Windows2022"));
        assert!(label.matches("kubernetes.azure.com/os-sku", "windows2025"));
        assert!(!label.matches("kubernetes.azure.com/os-sku", "Ubuntu"));
        assert!(!label.matches("kubernetes.azure.com/os-sku", "Win"));
        assert!(!label.matches("agentpool", "Windows2022"));
    }
}
